//! File system monitor settings of a linked worktree.
//!
//! `core.fsmonitor` in the worktree's own configuration (`config.worktree`) makes git ask for
//! changes instead of checking every file. `core.untrackedCache` and `fsmonitor.allowRemote` belong
//! to it.
//!
//! git runs the command with a shell in the worktree's root, with two more arguments: the protocol
//! version (2) and the token in its index. If the command fails, git checks every file.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::refs::read_if_there;
use super::worktree::registered_git_dirs;
use super::{GitError, Repository, Worktree, program};

/// Name of the worktree's own configuration file in its private directory.
pub(super) const CONFIG_NAME: &str = "config.worktree";

/// Setting that makes git read it.
pub(super) const EXTENSION: &str = "extensions.worktreeConfig";

/// Setting that records that tine set the extension, for its removal later.
pub(super) const EXTENSION_MARK: &str = "tine.setWorktreeConfig";

/// Setting that permits the monitor on remote file systems.
///
/// Since 2.55, git treats every FUSE file system as remote, and does not ask a monitor there unless
/// this is true.
const ALLOW_REMOTE: &str = "fsmonitor.allowRemote";

/// First and last words of a command, which mark it as tine's.
///
/// The shell replaces itself by the program, and the errors of a failed start are not printed.
const COMMAND_START: &[u8] = b"exec ";
const COMMAND_END: &[u8] = b" 2>/dev/null";

/// Formats a shell command that runs `words`.
///
/// Returns `None` if a word contains a control character, which the configuration cannot hold.
pub fn monitor_command(words: &[&OsStr]) -> Option<Vec<u8>> {
    let mut command = COMMAND_START.to_vec();
    for (number, word) in words.iter().enumerate() {
        if word.as_bytes().iter().any(|byte| byte.is_ascii_control()) {
            return None;
        }
        if number > 0 {
            command.push(b' ');
        }
        command.push(b'\'');
        for byte in word.as_bytes() {
            match byte {
                b'\'' => command.extend_from_slice(br"'\''"),
                byte => command.push(*byte),
            }
        }
        command.push(b'\'');
    }
    command.extend_from_slice(COMMAND_END);
    Some(command)
}

impl Worktree {
    /// Makes git in this worktree ask `command` for changes.
    ///
    /// It overrides what is configured for all worktrees. The repository's configuration gets
    /// `extensions.worktreeConfig`, unless that would change what another worktree reads. Returns
    /// whether git asks now.
    ///
    /// # Errors
    /// [`GitError::GitFailed`] if `git config` fails, [`GitError::Io`] or [`GitError::Library`] if
    /// the worktree's configuration cannot be read or written.
    pub fn set_monitor(&self, repository: &Repository, command: &[u8]) -> Result<bool, GitError> {
        if !may_read_own_config(repository)? {
            return Ok(false);
        }
        self.write_monitor(command)?;
        Ok(true)
    }

    /// Updates a command that [`Worktree::set_monitor`] set earlier.
    ///
    /// The program or the repository may have moved. Settings that another program made or removed
    /// stay.
    ///
    /// # Errors
    /// [`GitError::Io`] or [`GitError::Library`] if the worktree's configuration cannot be read or
    /// written.
    pub fn update_monitor(&self, command: &[u8]) -> Result<(), GitError> {
        let path = self.git_dir().join(CONFIG_NAME);
        let Some(content) = read_if_there(&path)? else {
            return Ok(());
        };
        let config = parse(&content)?;
        let lacks_remote = config.raw_value(ALLOW_REMOTE).is_err();
        match config.raw_value("core.fsmonitor") {
            Ok(set) if is_own(&set) && (**set != *command || lacks_remote) => {
                self.write_monitor(command)
            }
            _ => Ok(()),
        }
    }

    fn write_monitor(&self, command: &[u8]) -> Result<(), GitError> {
        let path = self.git_dir().join(CONFIG_NAME);
        let content = read_if_there(&path)?.unwrap_or_default();
        let mut config = parse(&content)?;
        for (key, value) in [
            ("core.fsmonitor", command),
            ("core.fsmonitorHookVersion", b"2"),
            ("core.untrackedCache", b"true"),
            (ALLOW_REMOTE, b"true"),
        ] {
            config
                .set_raw_value(key, value)
                .map_err(GitError::library("write the worktree configuration"))?;
        }
        let new_path = self.git_dir().join("config.worktree.new");
        fs::write(&new_path, &*config.to_bstring())
            .and_then(|()| fs::rename(&new_path, &path))
            .map_err(GitError::io("write", &path))
    }
}

fn is_own(command: &[u8]) -> bool {
    command.starts_with(COMMAND_START) && command.ends_with(COMMAND_END)
}

fn parse(content: &[u8]) -> Result<gix::config::File, GitError> {
    let metadata = gix::config::file::Metadata::from(gix::config::Source::Worktree);
    gix::config::File::from_bytes_no_includes(content, metadata, Default::default())
        .map_err(GitError::library("read the worktree configuration"))
}

/// Makes git read the configurations of worktrees, unless that has other effects.
///
/// Returns whether git reads them now.
pub(super) fn may_read_own_config(repository: &Repository) -> Result<bool, GitError> {
    if repository.config_bool(EXTENSION) == Some(true) {
        return Ok(true);
    }
    if !may_have_own_configs(repository)? {
        return Ok(false);
    }
    // The mark comes first, so that after a crash another program's setting never counts as tine's.
    for key in [EXTENSION_MARK, EXTENSION] {
        program::run(repository.own_config().args([key, "true"]), b"")?;
    }
    Ok(true)
}

/// Returns whether worktree configurations can be enabled without effects.
///
/// With `core.bare` or `core.worktree`, the main worktree's settings would apply to all. Existing
/// files that git ignored would be read.
fn may_have_own_configs(repository: &Repository) -> Result<bool, GitError> {
    let common_dir = repository.common_dir();
    let content = read_if_there(&common_dir.join("config"))?.unwrap_or_default();
    let config = parse(&content)?;
    let is_bare = !matches!(config.boolean("core.bare"), Ok(None | Some(false)));
    let has_config = |dir: &Path| dir.join(CONFIG_NAME).exists();
    Ok(!is_bare
        && config.raw_value("core.worktree").is_err()
        && !has_config(common_dir)
        && !registered_git_dirs(common_dir)?
            .iter()
            .any(|dir| has_config(dir)))
}

#[cfg(test)]
mod tests;
