//! A bare repository that tine creates for a directory outside every repository.
//!
//! It is not inside the directory. Its commits hold the directory's files byte for byte.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use super::{CommitSpec, GitError, Identity, ObjectId, Repository, program};

/// Branch that holds the directory's files.
pub const BRANCH: &str = "main";

/// Attributes that disable every conversion.
///
/// They override the directory's own attribute files.
const ATTRIBUTES: &str = "* -text !eol -ident !filter !working-tree-encoding\n";

impl Repository {
    /// Opens the repository at `common_dir`, creating it if missing.
    ///
    /// # Errors
    /// [`GitError::Io`] if a directory or file cannot be created; fails as [`Repository::open`]
    /// otherwise, and if `git init` fails.
    pub fn open_for_directory(common_dir: &Path) -> Result<Repository, GitError> {
        if !common_dir.is_dir() {
            let home = common_dir.parent().unwrap_or(common_dir);
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(home)
                .map_err(GitError::io("create", home))?;
            // The rename makes the repository visible only when it is complete.
            let new = common_dir.with_extension("new");
            if new.exists() {
                fs::remove_dir_all(&new).map_err(GitError::io("remove", &new))?;
            }
            let mut init = program::command(home);
            init.args(["init", "--quiet", "--bare", "--initial-branch", BRANCH])
                .arg(&new);
            program::run(&mut init, b"")?;
            let info = new.join("info");
            fs::create_dir_all(&info).map_err(GitError::io("create", &info))?;
            let attributes = info.join("attributes");
            fs::write(&attributes, ATTRIBUTES).map_err(GitError::io("write", &attributes))?;
            fs::rename(&new, common_dir).map_err(GitError::io("replace", common_dir))?;
        }
        Repository::open(
            &common_dir
                .canonicalize()
                .map_err(GitError::io("find", common_dir))?,
        )
    }

    /// Commits all files in `directory` to [`BRANCH`], and returns the commit.
    ///
    /// Ignored files are included. If nothing changed, returns the existing commit.
    ///
    /// # Errors
    /// [`GitError::NestedRepository`] if a repository is inside `directory`, because a commit
    /// cannot contain its files; [`GitError::RefMoved`] if the branch moved meanwhile; or an error
    /// of git.
    pub fn take_in(&self, directory: &Path) -> Result<ObjectId, GitError> {
        let index = self.common_dir().join("index.directory");
        let git = || {
            let mut git = program::command(directory);
            git.env("GIT_INDEX_FILE", &index)
                .arg("--git-dir")
                .arg(self.common_dir())
                .arg("--work-tree")
                .arg(directory);
            git
        };
        if index.exists() {
            fs::remove_file(&index).map_err(GitError::io("remove", &index))?;
        }
        program::run(
            git().args([
                "-c",
                "advice.addEmbeddedRepo=false",
                "add",
                "--all",
                "--force",
                ".",
            ]),
            b"",
        )?;
        let listed = program::run(git().args(["ls-files", "--stage", "-z"]), b"")?;
        let nested = listed
            .split(|byte| *byte == 0)
            .find(|entry| entry.starts_with(b"160000 "));
        if let Some(nested) = nested {
            let path = nested
                .splitn(2, |byte| *byte == b'\t')
                .nth(1)
                .unwrap_or_default();
            return Err(GitError::NestedRepository(
                directory.join(Path::new(String::from_utf8_lossy(path).as_ref())),
            ));
        }
        let written = program::run(git().arg("write-tree"), b"")?;
        let _ = fs::remove_file(&index);
        let tree_id = ObjectId::from_hex(written.trim_ascii())
            .map_err(GitError::library("write the tree"))?;
        let tip = self.branch(BRANCH)?;
        if let Some(tip) = tip
            && self.commit_info(tip)?.tree_id == tree_id
        {
            return Ok(tip);
        }
        let commit_id = self.write_commit(&CommitSpec {
            tree_id,
            parent_ids: tip.into_iter().collect(),
            message: "The directory's files\n".to_owned().into(),
            author: Some(Identity::tine()),
            committer: Some(Identity::tine()),
        })?;
        match tip {
            Some(tip) => self.move_branch(BRANCH, tip, commit_id, "tine: the directory")?,
            None => self.create_branch(BRANCH, commit_id, "tine: the directory")?,
        }
        Ok(commit_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_taken_in_byte_for_byte_and_again_only_where_it_changed() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("notes");
        fs::create_dir_all(directory.join("deep")).unwrap();
        fs::write(directory.join("windows.txt"), "a\r\nb\r\n").unwrap();
        fs::write(
            directory.join(".gitattributes"),
            "* text=auto\n*.txt eol=lf\n",
        )
        .unwrap();
        fs::write(directory.join(".gitignore"), "ignored\n").unwrap();
        fs::write(directory.join("deep/ignored"), "there\n").unwrap();
        let common_dir = place.path().join("home/repo.git");
        let repository = Repository::open_for_directory(&common_dir).unwrap();
        let commit_id = repository.take_in(&directory).unwrap();
        assert_eq!(repository.take_in(&directory).unwrap(), commit_id);
        let show = |path: &str| {
            program::run(
                program::command(&common_dir).args([
                    "cat-file",
                    "blob",
                    &format!("{BRANCH}:{path}"),
                ]),
                b"",
            )
            .unwrap()
        };
        assert_eq!(show("windows.txt"), b"a\r\nb\r\n");
        assert_eq!(show("deep/ignored"), b"there\n");
        fs::write(directory.join("new"), "").unwrap();
        let again = Repository::open_for_directory(&common_dir).unwrap();
        assert_ne!(again.take_in(&directory).unwrap(), commit_id);
    }
}
