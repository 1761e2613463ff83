//! Converts forks between linked worktrees and repositories of their own.

use serde::{Deserialize, Serialize};

use super::deleting::refuse_worktrees;
use crate::failure::{ErrorCode, Failure};
use crate::operation::{Call, Operation};
use crate::state::slots::Daemon;
use crate::state::taking;
use tine_change::ChangeError;
use tine_fuse::UnmountMode;
use tine_git::own::parts_of_its_own;
use tine_store::{Fork, ForkName, GitKind};

/// Make a fork a repository of its own, or a linked worktree
///
/// HEAD, its reflog, what is staged, a sparse checkout, and all files stay as they are. A mounted
/// fork is unmounted for a moment: no program may be in it. What a linked worktree cannot have
/// (branches, tags, stashes, settings and hooks of the fork) does not count there, and is back when
/// the fork becomes a repository of its own again.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Examples:
  tine convert fix-parser --git own
  tine convert fix-parser --git linked")]
pub struct Convert {
    /// The fork [default: the one whose mount this is]
    #[arg(value_name = "NAME")]
    #[serde(default)]
    pub fork: Option<ForkName>,

    /// What git finds in the fork
    #[arg(long, value_enum, value_name = "KIND")]
    pub git: GitKind,
}

/// Outcome of a conversion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Converted {
    /// The fork.
    pub fork: ForkName,
    /// Kind of the git directory now.
    pub git: GitKind,
    /// True if it was of another kind before.
    pub changed: bool,
    /// Parts of the fork that a linked worktree lacks, in words.
    ///
    /// They count again when the fork is a repository of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dormant: Vec<String>,
}

impl Operation for Convert {
    const NAME: &'static str = "convert";
    const PROGRESS: &'static str = "converting";
    type Answer = Converted;

    fn fork(&mut self) -> Option<&mut Option<ForkName>> {
        Some(&mut self.fork)
    }

    fn run(mut self, call: &Call<'_>) -> Result<Converted, Failure> {
        let (daemon, kind) = (call.daemon, self.git);
        let name = call.fork(self.fork.take())?;
        let slot = daemon.slot(&name);
        let guard = daemon.lock_fork(&slot)?;
        let record = guard.record()?;
        let converted = |changed| Converted {
            fork: name.clone(),
            git: kind,
            changed,
            dormant: Vec::new(),
        };
        if record.git_kind == kind {
            return Ok(converted(false));
        }
        if record.untrusted && kind == GitKind::Linked {
            return Err(Failure::new(
                ErrorCode::Usage,
                format!("{name} is untrusted and cannot be a linked worktree"),
            )
            .cause("git would use the main repository's configuration there, and change it")
            .hint(format!(
                "`tine new NAME --from refs/tine/{name}/git/HEAD --git linked` makes a fork of what it committed"
            )));
        }
        let fork = guard.open()?;
        if let Some(operation) = fork.worktree.operation_in_progress() {
            return Err(ChangeError::OperationInProgress(operation).into());
        }
        if fork.worktree.has_submodules() {
            return Err(Failure::new(
                ErrorCode::UncommittedChanges,
                format!("{name} has repositories of submodules, which cannot move"),
            )
            .hint("push what was committed in them, and make a new fork"));
        }
        refuse_worktrees(&name, &fork, &record.mount_dir)?;
        refuse_rejected(&slot, &name)?;
        let mounted = guard.mounted_as();
        guard.unmount(UnmountMode::Clean)?;
        // git may have gone on until the unmount.
        let taken =
            taking::take_over_all(daemon, &slot).and_then(|()| refuse_rejected(&slot, &name));
        if let Err(failure) = taken {
            drop(fork);
            if let Some((dir, settings)) = mounted {
                guard.mount_or_note(dir, settings);
            }
            return Err(failure);
        }
        let dormant = dormant_parts(daemon, &fork, kind);
        let done = daemon.store.convert_fork(&name, &fork, kind);
        drop(fork);
        taking::forget(&slot);
        if let Some((dir, settings)) = mounted {
            guard.mount_or_note(dir, settings);
        }
        done?;
        Ok(Converted {
            dormant,
            ..converted(true)
        })
    }
}

/// Returns the parts of the fork that a linked worktree lacks.
fn dormant_parts(daemon: &Daemon, fork: &Fork, kind: GitKind) -> Vec<String> {
    if !kind.is_linked() {
        return Vec::new();
    }
    let parts = || -> Result<_, Failure> {
        let config = daemon.store.own_config()?;
        Ok(parts_of_its_own(
            &daemon.repository,
            fork.worktree.git_dir(),
            &config,
        )?)
    };
    let parts = parts().unwrap_or_else(|failure| {
        log::warn!("{}: {failure}", fork.name());
        Vec::new()
    });
    parts.into_iter().map(str::to_owned).collect()
}

/// Refuses if the main repository does not have what the fork committed.
fn refuse_rejected(slot: &crate::state::slots::Slot, name: &ForkName) -> Result<(), Failure> {
    match taking::outcome(slot).rejected().first() {
        None => Ok(()),
        Some(rejected) => Err(Failure::new(
            ErrorCode::UncommittedChanges,
            format!("the main repository refused {} of {name}", rejected.name),
        )
        .cause(rejected.reason.clone())
        .hint("mend the commit in the fork, or remove the ref there")),
    }
}
