//! How git comes to ask what changed in a linked worktree, in place of looking at every file:
//! `core.fsmonitor` of the worktree's own configuration (`config.worktree`), with
//! `core.untrackedCache` and `fsmonitor.allowRemote`, which go with it.
//!
//! git runs the command with a shell, in the worktree's root, with two words more: the version of
//! the protocol (2) and the token that its index has. Where the command fails, git looks at
//! everything.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::refs::read_if_there;
use super::worktree::registered_git_dirs;
use super::{GitError, LinkedWorktree, Repository, program};

/// The file of a worktree's own configuration in its private directory.
pub(super) const CONFIG_NAME: &str = "config.worktree";

/// What makes git read it.
pub(super) const EXTENSION: &str = "extensions.worktreeConfig";

/// Says that it was tine that set it, for whoever takes tine's traces away.
pub(super) const EXTENSION_MARK: &str = "tine.setWorktreeConfig";

/// From 2.55 on git takes every FUSE file system for a remote one, where it asks nobody what
/// changed unless this is true.
const ALLOW_REMOTE: &str = "fsmonitor.allowRemote";

/// The first and last words of a command: who reads it knows tine's own by them. The shell gives
/// its place to the program, and what cannot be run, or fails, makes no noise.
const COMMAND_START: &[u8] = b"exec ";
const COMMAND_END: &[u8] = b" 2>/dev/null";

/// The command that runs `words`; `None` where the configuration cannot hold it.
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

impl LinkedWorktree {
    /// Has git in this worktree ask `command`, in place of whatever is configured for all
    /// worktrees. The repository's configuration is told that worktrees have their own, unless that
    /// would change what another worktree reads; whether git asks now.
    pub fn set_monitor(&self, repository: &Repository, command: &[u8]) -> Result<bool, GitError> {
        if repository.config_bool(EXTENSION) != Some(true) {
            if !may_have_own_configs(repository)? {
                return Ok(false);
            }
            // The mark first: nobody else's setting is taken for ours, whatever happens between.
            for key in [EXTENSION_MARK, EXTENSION] {
                program::run(repository.own_config().args([key, "true"]), b"")?;
            }
        }
        self.write_monitor(command)?;
        Ok(true)
    }

    /// Brings a command that [`LinkedWorktree::set_monitor`] set before up to date: the program or
    /// the repository may have moved. What somebody else set, or took away, stays.
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

/// Whether nobody notices that worktrees may have configurations of their own: with `core.bare` or
/// `core.worktree` the main worktree's settings would count for all, and files that nobody read so
/// far would be read.
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
