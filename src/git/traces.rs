//! Traces of tine in a repository outside its store, for their removal.
//!
//! They are refs under `refs/tine/`, settings, and the extension that
//! [`set_monitor`](super::Worktree::set_monitor) enables.

use std::fs;
use std::path::{Path, PathBuf};

use super::monitor::{CONFIG_NAME, EXTENSION, EXTENSION_MARK};
use super::worktree::registered_git_dirs;
use super::{GitError, ObjectId, Repository, program};

/// Namespace of tine's refs.
const NAMESPACE: &str = "refs/tine";

/// A ref under `refs/tine/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnRef {
    /// Full name.
    pub name: String,
    /// Object that the ref points to.
    pub object_id: ObjectId,
}

impl OwnRef {
    /// Returns whether it may keep the only copy of some work.
    ///
    /// That is an entry of `tine recover`, a handoff, a seat of a round, a damaged record, or a
    /// discarded snapshot. The other refs keep what forks need, or copies of remote refs.
    pub fn may_be_work(&self) -> bool {
        let Some((owner, label)) = self
            .name
            .get(NAMESPACE.len() + 1..)
            .and_then(|rest| rest.split_once('/'))
        else {
            return false;
        };
        match owner {
            "+recover" | "+handoffs" | "+rounds" | "+damaged" => true,
            _ => !owner.starts_with('+') && label.starts_with("discarded-"),
        }
    }
}

impl OwnRef {
    /// Returns whether it keeps an entry of `tine recover`.
    pub fn is_recoverable(&self) -> bool {
        let rest = self.name.strip_prefix(NAMESPACE);
        rest.is_some_and(|rest| rest.starts_with("/+recover/"))
    }
}

impl Repository {
    /// Lists all refs under `refs/tine/`.
    ///
    /// # Errors
    /// [`GitError::GitFailed`] if git cannot list the refs.
    pub fn own_refs(&self) -> Result<Vec<OwnRef>, GitError> {
        let listed = program::run(
            program::command(self.common_dir()).args([
                "for-each-ref",
                "--format=%(objectname) %(refname)",
                NAMESPACE,
            ]),
            b"",
        )?;
        let own_ref = |line: &str| {
            let (id, name) = line.split_once(' ')?;
            Some(OwnRef {
                name: name.to_owned(),
                object_id: id.parse().ok()?,
            })
        };
        Ok(String::from_utf8_lossy(&listed)
            .lines()
            .filter_map(own_ref)
            .collect())
    }

    /// Removes refs if none of them has changed, all or none.
    ///
    /// # Errors
    /// [`GitError::GitFailed`] if one of them changed or is locked.
    pub fn remove_own_refs(&self, refs: &[OwnRef]) -> Result<(), GitError> {
        let mut input = Vec::new();
        for own in refs {
            input.extend(format!("delete {}\0{}\0", own.name, own.object_id).into_bytes());
        }
        if !input.is_empty() {
            program::run(
                program::command(self.common_dir()).args([
                    "update-ref",
                    "--no-deref",
                    "--stdin",
                    "-z",
                ]),
                &input,
            )?;
        }
        // git leaves the directory of a namespace behind.
        for dir in [NAMESPACE.to_owned(), format!("logs/{NAMESPACE}")] {
            remove_empty(&self.common_dir().join(dir));
        }
        Ok(())
    }

    /// Lists the keys of tine's settings in the repository's configuration.
    ///
    /// A key that is set several times is listed as often.
    ///
    /// # Errors
    /// [`GitError::GitFailed`] if the configuration cannot be read.
    pub fn own_settings(&self) -> Result<Vec<String>, GitError> {
        let mut keys = self.own_keys()?;
        keys.retain(|key| !is_mark(key));
        Ok(keys)
    }

    fn own_keys(&self) -> Result<Vec<String>, GitError> {
        let mut command = self.own_config();
        command.args(["--name-only", "--get-regexp", r"^tine\."]);
        let found = program::finish(&mut command, b"")?;
        match found.status.code() {
            Some(0) => Ok(String::from_utf8_lossy(&found.stdout)
                .lines()
                .map(str::to_owned)
                .collect()),
            // Status 1: no key is set.
            Some(1) => Ok(Vec::new()),
            _ => Err(program::failed(&command, &found)),
        }
    }

    /// Removes tine's settings, and the extension if tine enabled it.
    ///
    /// The extension stays if a worktree uses it.
    ///
    /// # Errors
    /// [`GitError::GitFailed`] if the configuration cannot be changed.
    pub fn remove_own_settings(&self) -> Result<(), GitError> {
        let keys = self.own_keys()?;
        if keys.iter().any(|key| is_mark(key)) && !self.has_own_configs()? {
            let mut unset = self.own_config();
            unset.args(["--unset-all", EXTENSION]);
            let finished = program::finish(&mut unset, b"")?;
            // Status 5: another program removed it before.
            if !matches!(finished.status.code(), Some(0 | 5)) {
                return Err(program::failed(&unset, &finished));
            }
        }
        if !keys.is_empty() {
            program::run(self.own_config().args(["--remove-section", "tine"]), b"")?;
        }
        Ok(())
    }

    /// Creates a `git config` command for the repository's own configuration file.
    pub(super) fn own_config(&self) -> std::process::Command {
        let mut command = program::command(self.common_dir());
        command
            .arg("config")
            .arg("--file")
            .arg(self.common_dir().join("config"));
        command
    }

    /// Returns whether any worktree has its own configuration.
    fn has_own_configs(&self) -> Result<bool, GitError> {
        let worktrees = registered_git_dirs(self.common_dir())?;
        let main: PathBuf = self.common_dir().to_owned();
        Ok(std::iter::once(main)
            .chain(worktrees)
            .any(|dir| dir.join(CONFIG_NAME).exists()))
    }
}

/// Compares without case, because git prints keys in lower case.
fn is_mark(key: &str) -> bool {
    key.eq_ignore_ascii_case(EXTENSION_MARK)
}

/// Removes a directory tree without files.
fn remove_empty(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_empty(&entry.path());
        }
    }
    // A directory with a file stays.
    let _ = fs::remove_dir(dir);
}
