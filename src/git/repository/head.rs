//! HEAD of a worktree, and revisions as seen from there.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use gix::ObjectId;
use gix::objs::Kind;

use super::Repository;
use crate::error::with_causes;
use crate::refs::{damaged_ref, refuse_packed_pipe};
use crate::{GitError, program};

/// The position of a worktree's HEAD.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Head {
    /// HEAD on a branch with a commit.
    Branch {
        /// Full name: `refs/heads/…`.
        name: String,
        /// Commit that the branch points to.
        commit_id: ObjectId,
    },
    /// HEAD on a branch without a commit yet.
    Unborn {
        /// Full name: `refs/heads/…`.
        name: String,
    },
    /// HEAD on a commit, not on a branch.
    Detached {
        /// Commit that HEAD names.
        commit_id: ObjectId,
    },
}

impl Head {
    /// Returns the commit of HEAD, or `None` on an unborn branch.
    pub fn commit_id(&self) -> Option<ObjectId> {
        match self {
            Head::Branch { commit_id, .. } | Head::Detached { commit_id } => Some(*commit_id),
            Head::Unborn { .. } => None,
        }
    }

    /// Returns the branch's full name (`refs/heads/…`), if HEAD is on a branch.
    pub fn branch(&self) -> Option<&str> {
        match self {
            Head::Branch { name, .. } | Head::Unborn { name } => Some(name),
            Head::Detached { .. } => None,
        }
    }

    /// Returns the branch's short name, if HEAD is on a branch.
    pub fn short_branch(&self) -> Option<&str> {
        let name = self.branch()?;
        Some(name.strip_prefix("refs/heads/").unwrap_or(name))
    }
}

impl Repository {
    /// Reads HEAD of the worktree with the private git directory `git_dir`.
    ///
    /// `git_dir` is the common directory for the main checkout, and `worktrees/<id>` for a linked
    /// worktree.
    ///
    /// # Errors
    /// [`GitError::DamagedHead`], [`GitError::DamagedRef`] or [`GitError::Io`] if HEAD or its
    /// branch cannot be read.
    pub fn head_of(&self, git_dir: &Path) -> Result<Head, GitError> {
        refuse_packed_pipe(git_dir)?;
        let head = head_in(&self.refs_of(git_dir))?;
        if let Some(id) = head.commit_id()
            && self.is_own_git_dir(git_dir)
            && let Some(bring) = self.inner.bringer.get()
            && !self.has_object(id)
        {
            bring(git_dir);
        }
        Ok(head)
    }

    /// Reads the commit of HEAD in the submodule repository at `git_dir`.
    ///
    /// Returns `None` if HEAD has no commit yet, or `git_dir` is not a repository.
    ///
    /// # Errors
    /// Fails as [`Repository::head_of`].
    pub fn head_of_submodule(&self, git_dir: &Path) -> Result<Option<ObjectId>, GitError> {
        if !git_dir.join("HEAD").is_file() {
            return Ok(None);
        }
        let refs =
            gix::refs::file::Store::at_opts(git_dir.to_owned(), self.hash_kind(), read_only());
        Ok(head_in(&refs)?.commit_id())
    }

    /// Opens the refs as seen from the worktree with `git_dir`.
    fn refs_of(&self, git_dir: &Path) -> gix::refs::file::Store {
        if self.is_own_git_dir(git_dir) {
            let dir = git_dir.to_owned();
            return gix::refs::file::Store::at_opts(dir, self.hash_kind(), read_only());
        }
        gix::refs::file::Store::for_linked_worktree_opts(
            git_dir.to_owned(),
            self.inner.common_dir.clone(),
            self.hash_kind(),
            read_only(),
        )
    }

    /// Resolves `revision` to a commit, as seen from the worktree with `git_dir`.
    ///
    /// `HEAD` and `@{1}` are thus the worktree's own. Tags are peeled.
    ///
    /// # Errors
    /// [`GitError::UnknownRevision`] if it does not name a commit.
    pub fn resolve_commit(&self, git_dir: &Path, revision: &str) -> Result<ObjectId, GitError> {
        match self.resolve(git_dir, revision)? {
            (id, Kind::Commit) => Ok(id),
            _ => Err(GitError::UnknownRevision(revision.to_owned())),
        }
    }

    /// Resolves `revision` to a tree, as seen from the worktree with `git_dir`.
    ///
    /// Also returns the commit, unless the revision names a tree itself.
    ///
    /// # Errors
    /// [`GitError::UnknownRevision`] if it names neither a commit nor a tree.
    pub fn resolve_tree(
        &self,
        git_dir: &Path,
        revision: &str,
    ) -> Result<(ObjectId, Option<ObjectId>), GitError> {
        match self.resolve(git_dir, revision)? {
            (id, Kind::Commit) => Ok((self.commit_info(id)?.tree_id, Some(id))),
            (id, Kind::Tree) => Ok((id, None)),
            _ => Err(GitError::UnknownRevision(revision.to_owned())),
        }
    }

    /// Resolves `revision` to an object and its kind. Tags are peeled.
    pub(super) fn resolve(
        &self,
        git_dir: &Path,
        revision: &str,
    ) -> Result<(ObjectId, Kind), GitError> {
        let unknown = || GitError::UnknownRevision(revision.to_owned());
        if revision == "HEAD" {
            let commit_id = self.head_of(git_dir)?.commit_id().ok_or_else(unknown)?;
            return Ok((commit_id, Kind::Commit));
        }
        if revision.is_empty() || revision.contains(['\0', '\n']) {
            return Err(unknown());
        }
        let parse = |git_dir: &Path| {
            let mut command = program::command(&self.inner.common_dir);
            command
                .env("GIT_DIR", git_dir)
                .args(["rev-parse", "--quiet", "--verify", "--end-of-options"])
                .arg(revision);
            let finished = program::finish(&mut command, b"")?;
            if !finished.status.success() {
                log::debug!("{}", program::failed(&command, &finished));
                return Err(unknown());
            }
            ObjectId::from_hex(finished.stdout.trim_ascii()).map_err(|_| unknown())
        };
        let id = match parse(git_dir) {
            // What the fork's own refs do not name, the main repository's may.
            Err(_) if self.is_own_git_dir(git_dir) => parse(self.common_dir())?,
            parsed => parsed?,
        };
        match self.peel(id) {
            // git accepts any full id, whether the object exists or not. A ref to a missing object
            // is a different error.
            Err(GitError::MissingObject { .. })
                if revision.eq_ignore_ascii_case(&id.to_string()) =>
            {
                Err(unknown())
            }
            peeled => peeled,
        }
    }
}

fn read_only() -> gix::refs::store::init::Options {
    gix::refs::store::init::Options {
        write_reflog: gix::refs::store::WriteReflog::Disable,
        ..Default::default()
    }
}

/// Reads HEAD from a ref store.
fn head_in(refs: &gix::refs::file::Store) -> Result<Head, GitError> {
    use gix::refs::TargetRef;

    let failed = || GitError::library("read HEAD");
    let path = refs.git_dir().join("HEAD");
    // The library would block on a pipe.
    tine_sys::file::check_regular(&path).map_err(GitError::io("read", &path))?;
    let head = refs
        .find_loose("HEAD")
        .map_err(|error| match tine_sys::file::read(&path) {
            Ok(_) => GitError::DamagedHead {
                path,
                reason: with_causes(&error),
            },
            Err(error) => GitError::io("read", path)(error),
        })?;
    let mut name = match head.target.to_ref() {
        TargetRef::Object(id) => {
            return Ok(Head::Detached {
                commit_id: id.into(),
            });
        }
        TargetRef::Symbolic(name) => name.to_owned(),
    };
    let branch = name.as_bstr().to_string();
    // A branch may be a symbolic ref; git follows five of them.
    for _ in 0..5 {
        let path = refs
            .common_dir_resolved()
            .join(std::ffi::OsStr::from_bytes(name.as_bstr()));
        match tine_sys::file::check_regular(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::IsADirectory => {
                return Err(GitError::io("read", path)(error));
            }
            _ => {}
        }
        let found = refs.try_find(name.as_ref().as_partial_name());
        let Some(reference) = found.map_err(|error| {
            damaged_ref(refs.common_dir_resolved(), name.as_bstr())
                .unwrap_or_else(|| failed()(error))
        })?
        else {
            return Ok(Head::Unborn { name: branch });
        };
        match reference.target.to_ref() {
            TargetRef::Object(id) => {
                return Ok(Head::Branch {
                    name: branch,
                    commit_id: id.into(),
                });
            }
            TargetRef::Symbolic(next) => name = next.to_owned(),
        }
    }
    Err(GitError::Library {
        action: "read HEAD",
        reason: format!("{branch} leads through too many symbolic refs"),
    })
}
