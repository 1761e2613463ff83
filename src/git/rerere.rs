//! git's recorded resolutions of text conflicts (`git rerere`).
//!
//! The record belongs to the repository, but its use requires a checkout with a merge in progress.
//! tine therefore creates one for git: a directory with an index that contains only the conflict,
//! and the file with its markers.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::program;
use super::{GitError, ObjectId, Repository, TreeEntryKind};
use tine_path::RepoPath;

/// A text conflict, as in an index.
#[derive(Debug, Clone)]
pub struct TextConflict {
    /// Path of the file.
    pub path: RepoPath,
    /// Base, ours and theirs; `None` if a side lacks the file.
    pub stages: [Option<(TreeEntryKind, ObjectId)>; 3],
    /// Text with conflict markers.
    pub marked: Vec<u8>,
}

impl Repository {
    /// Returns whether resolutions are recorded.
    ///
    /// This is `rerere.enabled`; if unset, whether any resolution was recorded.
    pub fn remembers_resolutions(&self) -> bool {
        self.config_bool("rerere.enabled")
            .unwrap_or_else(|| self.common_dir().join("rr-cache").is_dir())
    }

    /// Returns the text that git recorded for this conflict.
    ///
    /// `scratch` is an empty directory.
    ///
    /// # Errors
    /// [`GitError::Io`] or [`GitError::GitFailed`].
    pub fn remembered_resolution(
        &self,
        conflict: &TextConflict,
        scratch: &Path,
    ) -> Result<Option<Vec<u8>>, GitError> {
        let checkout = Checkout::make(self, conflict, scratch)?;
        checkout.rerere(&[])?;
        let text = checkout.read()?;
        Ok((text != conflict.marked).then_some(text))
    }

    /// Records a conflict's resolution, replacing an earlier one.
    ///
    /// `scratch` is an empty directory.
    ///
    /// # Errors
    /// [`GitError::Io`] or [`GitError::GitFailed`].
    pub fn remember_resolution(
        &self,
        conflict: &TextConflict,
        resolved: &[u8],
        scratch: &Path,
    ) -> Result<(), GitError> {
        let checkout = Checkout::make(self, conflict, scratch)?;
        checkout.rerere(&[])?;
        let known = checkout.read()?;
        if known == resolved {
            return Ok(());
        }
        if known != conflict.marked {
            checkout.write(&conflict.marked)?;
            checkout.rerere(&["forget".as_ref(), "--".as_ref(), checkout.name()])?;
        }
        checkout.write(resolved)?;
        checkout.rerere(&[])
    }
}

/// A checkout with one conflict in it.
struct Checkout {
    git_dir: PathBuf,
    dir: PathBuf,
    path: RepoPath,
}

impl Checkout {
    fn make(
        repository: &Repository,
        conflict: &TextConflict,
        scratch: &Path,
    ) -> Result<Checkout, GitError> {
        let checkout = Checkout {
            git_dir: scratch.join("git"),
            dir: scratch.join("checkout"),
            path: conflict.path.clone(),
        };
        for dir in [&checkout.git_dir, &checkout.dir] {
            fs::create_dir(dir).map_err(GitError::io("create", dir))?;
        }
        let mut common_dir = repository.common_dir().as_os_str().to_owned();
        common_dir.push("\n");
        for (name, text) in [
            ("commondir", common_dir.as_bytes()),
            ("HEAD", b"ref: refs/heads/tine\n"),
        ] {
            let path = checkout.git_dir.join(name);
            fs::write(&path, text).map_err(GitError::io("write", &path))?;
        }
        let mut index: Vec<u8> = Vec::new();
        for (stage, version) in (1..).zip(&conflict.stages) {
            if let Some((kind, id)) = version {
                index.extend(format!("{} {id} {stage}\t", kind.mode_text()).bytes());
                index.extend_from_slice(conflict.path.as_bytes());
                index.push(0);
            }
        }
        program::run(
            checkout
                .git()
                .args(["update-index", "-z", "--add", "--index-info"]),
            &index,
        )?;
        if let Some(parent) = checkout.file().parent() {
            fs::create_dir_all(parent).map_err(GitError::io("create", parent))?;
        }
        checkout.write(&conflict.marked)?;
        Ok(checkout)
    }

    fn git(&self) -> Command {
        let mut git = program::command(&self.dir);
        git.env("GIT_DIR", &self.git_dir)
            .env("GIT_WORK_TREE", &self.dir);
        git
    }

    fn rerere(&self, args: &[&OsStr]) -> Result<(), GitError> {
        let mut git = self.git();
        git.args([
            "-c",
            "rerere.enabled=true",
            "-c",
            "rerere.autoUpdate=false",
            "rerere",
        ])
        .args(args);
        program::run(&mut git, b"").map(drop)
    }

    fn name(&self) -> &OsStr {
        OsStr::from_bytes(self.path.as_bytes())
    }

    fn file(&self) -> PathBuf {
        self.dir.join(self.name())
    }

    fn read(&self) -> Result<Vec<u8>, GitError> {
        tine_sys::file::read(&self.file()).map_err(GitError::io("read", self.file()))
    }

    fn write(&self, text: &[u8]) -> Result<(), GitError> {
        fs::write(self.file(), text).map_err(GitError::io("write", self.file()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestRepository;

    const MARKED: &[u8] = b"a\n<<<<<<< ours\nb\n=======\nc\n>>>>>>> theirs\n";

    fn conflict(test: &TestRepository, path: &str) -> TextConflict {
        let mut stages = [None; 3];
        for (stage, text) in stages.iter_mut().zip(["a\n", "a\nb\n", "a\nc\n"]) {
            test.write("side", text);
            let id =
                ObjectId::from_hex(test.git(&["hash-object", "-w", "side"]).as_bytes()).unwrap();
            *stage = Some((TreeEntryKind::File, id));
        }
        TextConflict {
            path: RepoPath::parse(path).unwrap(),
            stages,
            marked: MARKED.to_vec(),
        }
    }

    #[test]
    fn what_was_resolved_is_remembered_as_git_does() {
        let test = TestRepository::new();
        test.write("f", "a\n");
        test.commit("base");
        let repository = test.open();
        assert!(!repository.remembers_resolutions());
        let scratch = || tempfile::tempdir().unwrap();
        let here = conflict(&test, "some dir/f");
        assert_eq!(
            repository
                .remembered_resolution(&here, scratch().path())
                .unwrap(),
            None
        );
        repository
            .remember_resolution(&here, b"a\nb and c\n", scratch().path())
            .unwrap();
        assert!(repository.remembers_resolutions());
        // Of any file with the same conflict.
        for path in ["some dir/f", "elsewhere"] {
            let found = repository.remembered_resolution(&conflict(&test, path), scratch().path());
            assert_eq!(found.unwrap().as_deref(), Some(&b"a\nb and c\n"[..]));
        }
        // Said again, it is otherwise.
        repository
            .remember_resolution(&here, b"a\nneither\n", scratch().path())
            .unwrap();
        let found = repository.remembered_resolution(&here, scratch().path());
        assert_eq!(found.unwrap().as_deref(), Some(&b"a\nneither\n"[..]));
        test.git(&["config", "rerere.enabled", "false"]);
        assert!(!test.open().remembers_resolutions());
    }

    #[test]
    fn git_itself_uses_what_is_remembered() {
        let test = TestRepository::new();
        test.write("f", "a\n");
        test.commit("base");
        test.git(&["branch", "other"]);
        test.write("f", "a\nb\n");
        test.commit("ours");
        test.git(&["checkout", "-q", "other"]);
        test.write("f", "a\nc\n");
        test.commit("theirs");
        let repository = test.open();
        let scratch = tempfile::tempdir().unwrap();
        repository
            .remember_resolution(&conflict(&test, "f"), b"a\nb and c\n", scratch.path())
            .unwrap();
        test.git(&["checkout", "-q", "-"]);
        let merged = test.try_git(&["-c", "rerere.enabled=true", "merge", "other"], b"");
        assert!(!merged.status.success());
        assert_eq!(fs::read(test.dir().join("f")).unwrap(), b"a\nb and c\n");
    }
}
