//! Which paths changed in a fork since git looked last: git's question, and how it comes to ask it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::failure::{ErrorCode, Failure};
use super::operation::{Call, Operation};
use super::protocol::ChangedSince;
use super::state::slots::{Daemon, ForkGuard};
use tine_git::{Repository, monitor};
use tine_path::text::{PathText, host_path};
use tine_workspace::{Changed, Fork, ForkName};

/// The command, hidden from people, that git runs.
pub const COMMAND: &str = "fsmonitor";

/// What git takes for every path.
const EVERYTHING: &[u8] = b"/";

/// What changed in the fork that is mounted at `dir`, since the moment that git's index names.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AskChanged {
    pub fork: ForkName,
    #[serde(with = "host_path")]
    pub dir: PathBuf,
    pub token: String,
}

impl Operation for AskChanged {
    const NAME: &'static str = "changed";
    type Answer = ChangedSince;

    fn run(self, call: &Call<'_>) -> Result<ChangedSince, Failure> {
        changed_since(call.daemon, &self.fork, &self.dir, &self.token)
    }
}

/// Answers git. It takes no turn: git may be run by who has one, a commit's hook for example.
fn changed_since(
    daemon: &Arc<Daemon>,
    name: &ForkName,
    dir: &Path,
    token: &str,
) -> Result<ChangedSince, Failure> {
    let slot = daemon.known_slot(name);
    let mounted = slot.and_then(|slot| Some((slot.open_fork()?, slot.mount_dir()?)));
    // An index may be used with another work tree (`git --work-tree`), of which nothing is known
    // here.
    let fork = match mounted {
        Some((fork, mount_dir)) if mount_dir == dir => fork,
        _ => {
            return Err(Failure::new(
                ErrorCode::NotMounted,
                format!("{name} is not mounted at {}", dir.display()),
            )
            .hint(format!("`tine mount {name}` mounts it")));
        }
    };
    let (token, changed) = fork.workspace.changed_since(token)?;
    let paths = match changed {
        Changed::Everything => vec![PathText::from(EVERYTHING)],
        Changed::Paths(paths) => paths
            .iter()
            .map(|path| PathText::from(path.as_slice()))
            .collect(),
    };
    Ok(ChangedSince { token, paths })
}

/// Has git ask, in a fork that was just made. Without it git looks at every file, and no more is
/// lost.
pub fn set_up(guard: &ForkGuard<'_>, repository: &Repository) {
    if repository.config_bool("tine.fsmonitor") == Some(false) {
        return;
    }
    let Some(command) = command_of(guard.daemon, guard.name()) else {
        return;
    };
    let set = guard.record().and_then(|record| {
        let worktree = tine_git::LinkedWorktree::open(repository, &record.worktree_id)?;
        Ok(worktree.set_monitor(repository, &command)?)
    });
    match set {
        Ok(true) => {}
        Ok(false) => log::info!("git in {} will look at every file", guard.name()),
        Err(failure) => log::warn!("git in {} will look at every file: {failure}", guard.name()),
    }
}

/// Has git ask this daemon, in a fork in which it asked one before.
pub fn update(daemon: &Daemon, name: &ForkName, fork: &Fork) {
    if let Some(command) = command_of(daemon, name)
        && let Err(error) = fork.worktree.update_monitor(&command)
    {
        log::warn!("git in {name} will look at every file: {error}");
    }
}

fn command_of(daemon: &Daemon, name: &ForkName) -> Option<Vec<u8>> {
    let program = daemon.program.as_ref()?;
    monitor::monitor_command(&[
        program.as_os_str(),
        OsStr::new(COMMAND),
        daemon.store.dir().as_os_str(),
        OsStr::new(name.as_str()),
    ])
}
