//! Writes to the repository: blobs, trees, commits and HEAD.
//!
//! Trees are edited along the changed paths only. HEAD moves by compare-and-swap. The git library
//! never syncs, so objects written here are synced before a ref names them.

mod identity;
mod message;
mod objects;
mod recent;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};

use gix::actor::Signature;
use gix::bstr::{BStr, ByteSlice};
use gix::objs::tree::EntryKind;
use gix::objs::{Data, Find, FindExt, Kind, WriteTo};
use gix::refs::transaction::{PreviousValue, RefEdit};
use gix::refs::{FullName, Target};
use gix::{ObjectId, oid};

pub(super) use self::identity::strip_crud;
pub use self::identity::{CommitTime, Identity, Role};
pub use self::message::{Message, clean_message};
use super::refs::{lock_of, read_if_there, reflog_message};
use super::{GitError, Repository, TreeEntryKind, Worktree, program};
use tine_path::RepoPath;

/// One path of a tree edit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeChange {
    /// Path relative to the root tree.
    pub path: RepoPath,
    /// New entry; `None` removes the path, also a whole directory.
    pub new: Option<(TreeEntryKind, ObjectId)>,
}

/// A commit to be written.
#[derive(Debug, Clone)]
pub struct CommitSpec {
    /// Root tree of the commit.
    pub tree_id: ObjectId,
    /// Parents, in the commit's order.
    pub parent_ids: Vec<ObjectId>,
    /// Message, which may be empty.
    pub message: Message,
    /// Author; the default comes from configuration and environment.
    pub author: Option<Identity>,
    /// Committer; the default comes from configuration and environment.
    pub committer: Option<Identity>,
}

impl Repository {
    /// Writes the tree `tree_id` with `changes` applied, and returns its id.
    ///
    /// It reads and writes only the trees along the changed paths. Empty directories vanish.
    /// Removals are applied first, whatever their order, so that a file can replace a directory and
    /// the reverse.
    ///
    /// # Errors
    /// [`GitError::HostilePath`] for a path that a checkout must refuse (a variant of `.git`);
    /// fails if a tree cannot be read or written.
    pub fn edit_tree(
        &self,
        tree_id: ObjectId,
        changes: &[TreeChange],
    ) -> Result<ObjectId, GitError> {
        let failed = "edit a tree";
        let trees = TreeReader { repository: self };
        let mut buffer = Vec::new();
        let root = match trees.find_tree(&tree_id, &mut buffer) {
            Ok(root) => root.into(),
            // This error says what is wrong with the tree.
            Err(_) => return self.read_object(tree_id, Kind::Tree).map(|_| tree_id),
        };
        let mut editor = gix::objs::tree::Editor::new(root, &trees, self.hash_kind());

        // Remove a directory before its entries: the editor would keep a tree that it has already
        // opened.
        let mut removed: Vec<&RepoPath> = Vec::new();
        let mut set: Vec<(&RepoPath, EntryKind, ObjectId)> = Vec::new();
        for change in changes {
            match change.new {
                Some((kind, id)) if !(kind == TreeEntryKind::Directory && id.is_empty_tree()) => {
                    check_path(&change.path, kind)?;
                    set.push((&change.path, entry_kind(kind), id));
                }
                _ => removed.push(&change.path),
            }
        }
        removed.sort();
        for path in removed {
            editor
                .remove(components(path))
                .map_err(GitError::library(failed))?;
        }
        for (path, kind, id) in set {
            editor
                .upsert(components(path), kind, id)
                .map_err(GitError::library(failed))?;
        }
        editor.write(|tree| {
            let mut bytes = Vec::new();
            tree.write_to(&mut bytes)
                .map_err(GitError::library(failed))?;
            self.write_object(Kind::Tree, &bytes)
        })
    }

    /// Writes a commit object, without moving a ref.
    ///
    /// git signs it if `commit.gpgSign` is set. Syncs it together with every object that this
    /// process wrote since the last sync.
    ///
    /// # Errors
    /// [`GitError::NoIdentity`] with git's reason if author or committer are neither given nor
    /// configured; [`GitError::Library`] for a NUL byte in the message.
    pub fn write_commit(&self, spec: &CommitSpec) -> Result<ObjectId, GitError> {
        let message = spec.message.bytes();
        if message.contains(&0) {
            return Err(GitError::Library {
                action: "write the commit",
                reason: "the message holds a NUL byte".to_owned(),
            });
        }
        let fresh = self.local_with_fresh_config()?;
        let author = self.signature(&fresh, Role::Author, spec.author.as_ref())?;
        let committer = self.signature(&fresh, Role::Committer, spec.committer.as_ref())?;
        let commit_id = if fresh.config_snapshot().boolean("commit.gpgSign") == Some(true) {
            self.write_signed_commit(spec, &message, &author, &committer)?
        } else {
            let commit = gix::objs::Commit {
                tree: spec.tree_id,
                parents: spec.parent_ids.iter().copied().collect(),
                author,
                committer,
                encoding: None,
                message: message.into(),
                extra_headers: Vec::new(),
            };
            let mut bytes = Vec::new();
            commit
                .write_to(&mut bytes)
                .map_err(GitError::library("write the commit"))?;
            self.write_object(Kind::Commit, &bytes)?
        };
        self.sync_objects()?;
        Ok(commit_id)
    }

    /// Checks that no git command holds the locks that a commit needs.
    ///
    /// These are the locks of the worktree's index, of HEAD and of its branch. Waits up to two
    /// seconds for the ref locks.
    ///
    /// # Errors
    /// [`GitError::IndexLocked`], [`GitError::RefLocked`].
    pub fn check_unlocked(&self, worktree: &Worktree) -> Result<(), GitError> {
        let lock = lock_of(&worktree.index_path());
        if fs::symlink_metadata(&lock).is_ok() {
            return Err(GitError::IndexLocked { lock });
        }
        // `git gc` locks each ref briefly.
        self.check_unlocked_for_a_while(&worktree.git_dir().join("HEAD"))?;
        self.check_unlocked_for_a_while(&self.head_ref_path(worktree)?)
    }

    /// Moves the HEAD of `worktree` from `expected` to `commit_id`.
    ///
    /// If HEAD is on a branch, the branch moves. HEAD and branch get reflog lines as git writes
    /// them. `expected` is `None` for an unborn branch. On return, the move is on disk.
    ///
    /// # Errors
    /// [`GitError::RefMoved`] if HEAD or its branch is not at `expected`, or
    /// [`GitError::RefLocked`] if git holds a lock. In both cases nothing has changed.
    pub fn advance_head(
        &self,
        worktree: &Worktree,
        expected: Option<ObjectId>,
        commit_id: ObjectId,
        reflog: &str,
    ) -> Result<(), GitError> {
        let store = self.ref_store(Some(worktree.git_dir()));
        let expected = match expected {
            Some(id) => PreviousValue::MustExistAndMatch(Target::Object(id)),
            None => PreviousValue::MustNotExist,
        };
        let edit = RefEdit::update(head_name(), commit_id, expected, reflog_message(reflog))
            .with_deref(true);
        let ref_path = self.head_ref_path(worktree)?;
        self.apply_ref_edit(&store, edit, &ref_path).map(drop)
    }

    /// Returns the loose file that moves with HEAD: its branch's, or HEAD.
    pub(super) fn head_ref_path(&self, worktree: &Worktree) -> Result<PathBuf, GitError> {
        let head_path = worktree.git_dir().join("HEAD");
        let head = read_if_there(&head_path)?.unwrap_or_default();
        let target = head.strip_prefix(b"ref:").map(<[u8]>::trim_ascii);
        let Some(target) = target else {
            return Ok(head_path);
        };
        let invalid = |reason: String| GitError::DamagedHead {
            path: head_path.clone(),
            reason,
        };
        let name =
            FullName::try_from(target.as_bstr()).map_err(|error| invalid(error.to_string()))?;
        let path = name
            .as_bstr()
            .to_path()
            .map_err(|error| invalid(error.to_string()))?;
        Ok(self.refs_dir_of(worktree.git_dir()).join(path))
    }

    /// Creates the HEAD reflog of a new worktree, as `git worktree add`.
    pub(super) fn log_first_head(
        &self,
        git_dir: &Path,
        commit_id: ObjectId,
    ) -> Result<(), GitError> {
        let store = self.ref_store(Some(git_dir));
        if store.write_reflog == gix::refs::store::WriteReflog::Disable {
            return Ok(());
        }
        let null_id = ObjectId::null(commit_id.kind());
        let mut line = format!("{null_id} {commit_id} ").into_bytes();
        let log = git_dir.join("logs");
        self.reflog_signature()
            .write_to(&mut line)
            .and_then(|()| {
                line.push(b'\n');
                fs::create_dir(&log)?;
                fs::write(log.join("HEAD"), line)
            })
            .map_err(GitError::io("write", log.join("HEAD")))
    }

    /// Writes and signs the commit with git.
    ///
    /// Keys, formats and signing programs are configured there.
    fn write_signed_commit(
        &self,
        spec: &CommitSpec,
        message: &[u8],
        author: &Signature,
        committer: &Signature,
    ) -> Result<ObjectId, GitError> {
        let mut command = program::command(self.common_dir());
        command
            .arg("--git-dir")
            .arg(self.common_dir())
            .args(["-c", "i18n.commitEncoding=UTF-8", "commit-tree", "-S"])
            .arg(spec.tree_id.to_string());
        for parent_id in &spec.parent_ids {
            command.args(["-p", &parent_id.to_string()]);
        }
        for (person, signature) in [("AUTHOR", author), ("COMMITTER", committer)] {
            command
                .env(format!("GIT_{person}_NAME"), signature.name.to_string())
                .env(format!("GIT_{person}_EMAIL"), signature.email.to_string())
                .env(format!("GIT_{person}_DATE"), signature.time.to_string());
        }
        let output = program::run(&mut command, message)?;
        let id = ObjectId::from_hex(output.trim_ascii())
            .map_err(GitError::library("sign the commit"))?;
        self.note_unsynced(id);
        Ok(id)
    }
}

/// Tree reader for the editor that verifies hashes and fetches missing objects.
struct TreeReader<'a> {
    repository: &'a Repository,
}

impl Find for TreeReader<'_> {
    fn try_find<'b>(
        &self,
        id: &oid,
        buffer: &'b mut Vec<u8>,
    ) -> Result<Option<Data<'b>>, gix::Error> {
        buffer.clear();
        if !id.is_empty_tree() {
            *buffer = self
                .repository
                .read_object(id.to_owned(), Kind::Tree)
                .map_err(gix::Error::from_error)?;
        }
        Ok(Some(Data::new(buffer, Kind::Tree, id.kind())))
    }
}

fn head_name() -> FullName {
    FullName::try_from("HEAD").expect("HEAD is a valid ref name")
}

fn entry_kind(kind: TreeEntryKind) -> EntryKind {
    match kind {
        TreeEntryKind::File => EntryKind::Blob,
        TreeEntryKind::Executable => EntryKind::BlobExecutable,
        TreeEntryKind::Symlink => EntryKind::Link,
        TreeEntryKind::Directory => EntryKind::Tree,
        TreeEntryKind::Submodule => EntryKind::Commit,
    }
}

fn components(path: &RepoPath) -> impl Iterator<Item = &BStr> {
    path.as_bytes()
        .split(|&byte| byte == b'/')
        .map(ByteSlice::as_bstr)
}

/// Refuses paths that `git add` refuses: variants of `.git`, and the root.
pub(super) fn check_path(path: &RepoPath, kind: TreeEntryKind) -> Result<(), GitError> {
    let options = gix::validate::path::component::Options {
        protect_windows: false,
        protect_hfs: true,
        protect_ntfs: true,
    };
    let mode =
        (kind == TreeEntryKind::Symlink).then_some(gix::validate::path::component::Mode::Symlink);
    let mut names = components(path).peekable();
    while let Some(name) = names.next() {
        let mode = mode.filter(|_| names.peek().is_none());
        gix::validate::path::component(name, mode, options)
            .map_err(|_| GitError::HostilePath { path: path.clone() })?;
    }
    Ok(())
}
