//! Answers git's query for the paths that changed in a fork.
//!
//! It also configures git to run the query.

use std::ffi::OsStr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::failure::{ErrorCode, Failure};
use super::operation::{Call, Operation};
use super::protocol::ChangedSince;
use super::state::slots::{Daemon, ForkGuard};
use tine_attr::Ino;
use tine_git::{Repository, monitor};
use tine_path::text::{PathText, host_path};
use tine_store::{Fork, ForkName};
use tine_workspace::{Changed, FsError, Workspace};

/// Command that git runs, hidden from users.
pub const COMMAND: &str = "fsmonitor";

/// Answer that git understands as every path.
const EVERYTHING: &[u8] = b"/";

/// File that is always said to be changed.
///
/// `git mv` and `git rm` of a submodule change it after git asked, and would not stage it.
const GIT_MODULES: &[u8] = b".gitmodules";

/// Paths that changed in a fork since the token in git's index.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AskChanged {
    /// Fork of the worktree that git is in.
    pub fork: ForkName,
    /// Root of git's work tree. The operation fails if the fork is not mounted there.
    #[serde(with = "host_path")]
    pub dir: PathBuf,
    /// Token of an earlier answer, from git's index.
    pub token: String,
}

impl Operation for AskChanged {
    const NAME: &'static str = "changed";
    type Answer = ChangedSince;

    fn run(self, call: &Call<'_>) -> Result<ChangedSince, Failure> {
        let (name, dir) = (&self.fork, &self.dir);
        // No lock of the fork: its holder may run git, as a commit does with its hooks.
        let slot = call.daemon.known_slot(name);
        let mounted = slot.and_then(|slot| Some((slot.open_fork()?, slot.mount_dir()?)));
        // An index may be used with another work tree (`git --work-tree`), of which the daemon
        // knows nothing.
        let fork = match mounted {
            Some((fork, mount_dir)) if mount_dir == *dir => fork,
            _ => {
                return Err(Failure::new(
                    ErrorCode::NotMounted,
                    format!("{name} is not mounted at {}", dir.display()),
                )
                .hint(format!("`tine mount {name}` mounts it")));
            }
        };
        let (token, paths) = changed_since(&fork.workspace, &self.token)?;
        let paths = paths.iter().map(|path| PathText::from(path.as_slice()));
        Ok(ChangedSince {
            token,
            paths: paths.collect(),
        })
    }
}

/// Returns the next token and the paths that changed since `token`.
fn changed_since(workspace: &Workspace, token: &str) -> Result<(String, Vec<Vec<u8>>), FsError> {
    let (token, changed) = workspace.changed_since(token)?;
    let paths = match changed {
        Changed::Everything => vec![EVERYTHING.to_vec()],
        Changed::Paths(paths) => {
            let mut paths: Vec<Vec<u8>> = paths.iter().map(|path| path.to_vec()).collect();
            if workspace.number_at(Ino::ROOT, GIT_MODULES)?.is_some() {
                paths.push(GIT_MODULES.to_vec());
            }
            paths
        }
    };
    Ok((token, paths))
}

/// Returns git's answer for a token: the next token and the changed paths.
pub(crate) fn answer(workspace: &Workspace, token: &str) -> Option<Vec<u8>> {
    let (token, paths) = changed_since(workspace, token).ok()?;
    let mut answer = token.into_bytes();
    answer.push(0);
    for path in paths {
        answer.extend_from_slice(&path);
        answer.push(0);
    }
    Some(answer)
}

/// Configures git to run the query in a new fork.
///
/// If this fails, git looks at every file, and the failure is only logged.
pub fn set_up(guard: &ForkGuard<'_>, repository: &Repository) {
    if repository.config_bool("tine.fsmonitor") == Some(false) {
        return;
    }
    let Some(command) = command_of(guard.daemon, guard.name()) else {
        return;
    };
    let set = guard.record().and_then(|record| {
        let worktree = record.open_worktree(repository)?;
        if worktree.is_own() {
            return Ok(true);
        }
        Ok(worktree.set_monitor(repository, &command)?)
    });
    match set {
        Ok(true) => {}
        Ok(false) => log::info!("git in {} will look at every file", guard.name()),
        Err(failure) => log::warn!("git in {} will look at every file: {failure}", guard.name()),
    }
}

/// Updates the query's command, which an earlier daemon configured.
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
