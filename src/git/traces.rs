//! What tine leaves in a repository outside of its store, for who takes it away again: refs beneath
//! `refs/tine/`, its settings, and the extension that
//! [`set_monitor`](super::LinkedWorktree::set_monitor) switched on.

use std::fs;
use std::path::{Path, PathBuf};

use super::monitor::{CONFIG_NAME, EXTENSION, EXTENSION_MARK};
use super::worktree::registered_git_dirs;
use super::{GitError, ObjectId, Repository, program};

/// The namespace of tine's refs.
const NAMESPACE: &str = "refs/tine";

/// A ref beneath `refs/tine/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnRef {
    pub name: String,
    pub object_id: ObjectId,
}

impl OwnRef {
    /// Whether it may keep work that nothing else has: what `tine recover` lists, a handoff, a seat
    /// of a round, or what was damaged. The others are what forks stand on, and copies of what
    /// remotes have.
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
    /// Whether it keeps what `tine recover` lists.
    pub fn is_recoverable(&self) -> bool {
        let rest = self.name.strip_prefix(NAMESPACE);
        rest.is_some_and(|rest| rest.starts_with("/+recover/"))
    }
}

impl Repository {
    /// Every ref beneath `refs/tine/`.
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

    /// Removes refs, as long as each is what it was: all, or none.
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

    /// The keys of tine's settings that somebody made in the repository's own configuration, as
    /// often as each is set.
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
            // None is set.
            Some(1) => Ok(Vec::new()),
            _ => Err(program::failed(&command, &found)),
        }
    }

    /// Removes tine's settings, and the extension if tine switched it on and nobody uses it.
    pub fn remove_own_settings(&self) -> Result<(), GitError> {
        let keys = self.own_keys()?;
        if keys.iter().any(|key| is_mark(key)) && !self.has_own_configs()? {
            let mut unset = self.own_config();
            unset.args(["--unset-all", EXTENSION]);
            let finished = program::finish(&mut unset, b"")?;
            // 5: somebody removed it before.
            if !matches!(finished.status.code(), Some(0 | 5)) {
                return Err(program::failed(&unset, &finished));
            }
        }
        if !keys.is_empty() {
            program::run(self.own_config().args(["--remove-section", "tine"]), b"")?;
        }
        Ok(())
    }

    /// git on the repository's own configuration, whatever else is configured.
    pub(super) fn own_config(&self) -> std::process::Command {
        let mut command = program::command(self.common_dir());
        command
            .arg("config")
            .arg("--file")
            .arg(self.common_dir().join("config"));
        command
    }

    /// Whether any worktree has a configuration of its own.
    fn has_own_configs(&self) -> Result<bool, GitError> {
        let worktrees = registered_git_dirs(self.common_dir())?;
        let main: PathBuf = self.common_dir().to_owned();
        Ok(std::iter::once(main)
            .chain(worktrees)
            .any(|dir| dir.join(CONFIG_NAME).exists()))
    }
}

/// git writes the names of settings in lower case.
fn is_mark(key: &str) -> bool {
    key.eq_ignore_ascii_case(EXTENSION_MARK)
}

/// Removes directories in which there is nothing but such directories.
fn remove_empty(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_empty(&entry.path());
        }
    }
    // One in which there is something stays.
    let _ = fs::remove_dir(dir);
}
