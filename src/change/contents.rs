//! The blob ids of what a fork wrote.

use std::io::Cursor;
use std::sync::Arc;

use super::ChangeError;
use super::changeset::{Blobs, Side};
use tine_attr::Attr;
use tine_git::{Base, GitError, ObjectId, Repository, TreeEntryKind};
use tine_path::RepoPath;
use tine_workspace::store::{ConvertedAs, StoredAs};
use tine_workspace::{DeltaNode, Fork, FsError};

/// How often a file that is being written is read again before giving up on it.
const ATTEMPTS: usize = 8;

/// Files from this size in bytes on are not read to find out what their blob is called: git's own
/// default for `core.bigFileThreshold`.
const HUGE: u64 = 512 << 20;

/// What a node holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    pub id: ObjectId,
    /// The attributes that the node had while it held this.
    pub attr: Attr,
    /// Whether the bytes stand in a layer and are the blob's own, unconverted: once the repository
    /// keeps the blob they need not stand there any more.
    pub may_leave_layer: bool,
}

/// Names, and writes where asked to, the blobs of nodes.
pub(super) struct Contents<'a> {
    pub repository: &'a Repository,
    pub fork: &'a Fork,
    pub blobs: Blobs,
    /// Whose attributes say what is converted.
    pub rules: Arc<Base>,
}

impl Contents<'_> {
    /// The blob that the file or symlink `node` at `path` is in git. A file that changes meanwhile
    /// is read again; one that goes on changing, or went away, is [`ChangeError::Unstable`].
    pub(crate) fn of(&self, path: &RepoPath, node: &DeltaNode) -> Result<Held, ChangeError> {
        if let Some(id) = node.blob_id {
            return Ok(Held {
                id,
                attr: node.attr,
                may_leave_layer: false,
            });
        }
        if let Some(target) = &node.link_target {
            return Ok(Held {
                id: self.store(path, target)?,
                attr: node.attr,
                may_leave_layer: false,
            });
        }
        let converted_as = match self.rules.is_converted(path)? {
            true => Some(ConvertedAs {
                path: path.clone(),
                tree_id: self.rules.tree_id(),
            }),
            false => None,
        };
        let converted_as = converted_as.as_ref();
        for _ in 0..ATTEMPTS {
            let before = self.attr_of(path, node)?;
            let stored_as = self.read(path, node, &before, converted_as)?;
            if self.attr_of(path, node)? == before {
                self.fork
                    .memo()
                    .remember_blob(&before, converted_as, stored_as);
                return Ok(Held {
                    id: stored_as.id,
                    attr: before,
                    may_leave_layer: stored_as.is_same && before.size > 0,
                });
            }
        }
        Err(ChangeError::Unstable(path.clone()))
    }

    /// Whether a file so large that reading it takes seconds is known to differ from HEAD's: there
    /// is none, or it has another size. Where blobs are written everything is read.
    pub(crate) fn differs_without_reading(
        &self,
        path: &RepoPath,
        node: &DeltaNode,
        old: Option<&Side>,
    ) -> Result<bool, ChangeError> {
        if self.blobs != Blobs::Hash || node.blob_id.is_some() || node.attr.size < HUGE {
            return Ok(false);
        }
        let Some(old) = old else { return Ok(true) };
        match old.kind {
            TreeEntryKind::File | TreeEntryKind::Executable => {}
            TreeEntryKind::Symlink | TreeEntryKind::Directory | TreeEntryKind::Submodule => {
                return Ok(true);
            }
        }
        Ok(!self.rules.is_converted(path)? && self.repository.blob_size(old.id)? != node.attr.size)
    }

    /// The blob that a base file in its place is in git: the one it was made from, unless
    /// attributes have changed that convert its bytes another way (`git add --renormalize`).
    pub(crate) fn of_stored(
        &self,
        path: &RepoPath,
        stored: &Side,
    ) -> Result<ObjectId, ChangeError> {
        let is_file = matches!(stored.kind, TreeEntryKind::File | TreeEntryKind::Executable);
        if !is_file || !self.rules.is_converted(path)? {
            return Ok(stored.id);
        }
        let unstable = gone_is_unstable(path);
        let content = self.fork.workspace.read_path(path).map_err(unstable)?;
        self.store(path, &self.rules.clean(path, content)?)
    }

    fn attr_of(&self, path: &RepoPath, node: &DeltaNode) -> Result<Attr, ChangeError> {
        let attr = self
            .fork
            .workspace
            .getattr(node.attr.ino)
            .map_err(gone_is_unstable(path))?;
        // Access times move by reading; nothing else does.
        Ok(Attr {
            atime: node.attr.atime,
            ..attr
        })
    }

    fn read(
        &self,
        path: &RepoPath,
        node: &DeltaNode,
        attr: &Attr,
        converted_as: Option<&ConvertedAs>,
    ) -> Result<StoredAs, ChangeError> {
        // A blob that is to be written is always written anew: one that was written before may have
        // been pruned.
        let writes = self.writes(path);
        if !writes && let Some(stored_as) = self.fork.memo().blob(attr, converted_as) {
            return Ok(stored_as);
        }
        let workspace = &self.fork.workspace;
        let unstable = gone_is_unstable(path);
        if converted_as.is_none() {
            let id = workspace
                .with_content(node.attr.ino, |len, reader| match writes {
                    false => self.repository.hash_blob(reader, len),
                    true => self.repository.write_blob(reader, len),
                })
                .map_err(unstable)??;
            return Ok(StoredAs { id, is_same: true });
        }
        let content = workspace
            .with_content(node.attr.ino, |_, reader| {
                let mut content = Vec::new();
                reader.read_to_end(&mut content).map(|_| content)
            })
            .map_err(unstable)?
            .map_err(GitError::io("read", path.as_path()))?;
        let cleaned = self.rules.clean(path, content.clone())?;
        Ok(StoredAs {
            id: self.store(path, &cleaned)?,
            is_same: cleaned == content,
        })
    }

    /// Whether the blob at `path` is written to the object database.
    fn writes(&self, path: &RepoPath) -> bool {
        match self.blobs {
            Blobs::Hash => false,
            Blobs::Name => is_attributes(path),
            Blobs::Write => true,
        }
    }

    fn store(&self, path: &RepoPath, content: &[u8]) -> Result<ObjectId, ChangeError> {
        let len = content.len() as u64;
        let mut reader = Cursor::new(content);
        Ok(match self.writes(path) {
            false => self.repository.hash_blob(&mut reader, len)?,
            true => self.repository.write_blob(&mut reader, len)?,
        })
    }
}

/// Whether git reads attributes from the file at `path`.
pub(super) fn is_attributes(path: &RepoPath) -> bool {
    path.split_last()
        .is_some_and(|(_, name)| name.as_bytes() == b".gitattributes")
}

/// A node that went away between being listed and being read is one that changes.
fn gone_is_unstable(path: &RepoPath) -> impl Fn(FsError) -> ChangeError + '_ {
    move |error| match error {
        FsError::NotFound | FsError::Stale => ChangeError::Unstable(path.clone()),
        error => ChangeError::Fs(error),
    }
}
