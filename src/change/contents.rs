//! Blob ids of the files and symlinks that a fork wrote.

use std::io::Cursor;
use std::sync::Arc;

use super::ChangeError;
use super::changeset::{Blobs, Side};
use tine_attr::Attr;
use tine_git::{Base, GitError, ObjectId, Repository, TreeEntryKind};
use tine_path::RepoPath;
use tine_store::{ConvertedAs, Fork, StoredAs};
use tine_workspace::{DeltaNode, FsError};

/// Number of reads of a file that keeps changing before giving up.
const ATTEMPTS: usize = 8;

/// Size in bytes from which files are not read to name them.
///
/// It is git's own default for `core.bigFileThreshold`.
const HUGE: u64 = 512 << 20;

/// Blob of a node, with the node's attributes at that time.
#[derive(Debug, Clone, Copy)]
pub(super) struct NodeBlob {
    pub id: ObjectId,
    /// Attributes of the node while it had this content.
    pub attr: Attr,
    /// True if the layer can drop its copy of the content.
    ///
    /// It can once the repository keeps the blob: the bytes are in a layer and equal to the blob's,
    /// unconverted.
    pub may_leave_layer: bool,
}

/// Names the blobs of nodes, and writes them if asked to.
pub(super) struct BlobNamer<'a> {
    pub repository: &'a Repository,
    pub fork: &'a Fork,
    pub blobs: Blobs,
    /// Base whose attributes decide which files are converted.
    pub rules: Arc<Base>,
}

impl BlobNamer<'_> {
    /// Returns the blob of the file or symlink `node` at `path`.
    ///
    /// A file that changes during the read is read again. One that keeps changing, or is gone,
    /// fails with [`ChangeError::Unstable`].
    pub(crate) fn of(&self, path: &RepoPath, node: &DeltaNode) -> Result<NodeBlob, ChangeError> {
        if let Some(id) = node.blob_id {
            return Ok(NodeBlob {
                id,
                attr: node.attr,
                may_leave_layer: false,
            });
        }
        if let Some(target) = &node.link_target {
            return Ok(NodeBlob {
                id: self.store(path, target)?,
                attr: node.attr,
                may_leave_layer: false,
            });
        }
        let converted_as = if self.rules.is_converted(path)? {
            Some(ConvertedAs {
                path: path.clone(),
                tree_id: self.rules.tree_id(),
            })
        } else {
            None
        };
        let converted_as = converted_as.as_ref();
        for _ in 0..ATTEMPTS {
            let before = self.attr_of(path, node)?;
            let stored_as = self.read(path, node, &before, converted_as)?;
            if self.attr_of(path, node)? == before {
                self.fork
                    .memo()
                    .remember_blob(&before, converted_as, stored_as);
                return Ok(NodeBlob {
                    id: stored_as.id,
                    attr: before,
                    may_leave_layer: stored_as.is_same && before.size > 0,
                });
            }
        }
        Err(ChangeError::Unstable(path.clone()))
    }

    /// Returns whether a huge file differs from HEAD's, without reading it.
    ///
    /// It differs if HEAD has no such file, or one of another size. If blobs are written or named
    /// ([`Blobs::Write`], [`Blobs::Name`]), every file is read and this returns false.
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

    /// Returns the blob that git would make of an unmodified base file.
    ///
    /// That is the blob that the file was made from, unless changed attributes now convert its
    /// bytes another way (`git add --renormalize`).
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
        // Reading moves the access time, and nothing else.
        Ok(Attr {
            atime: node.attr.atime,
            ..attr
        })
    }

    /// Names the blob of a node, and writes it if asked to.
    fn read(
        &self,
        path: &RepoPath,
        node: &DeltaNode,
        attr: &Attr,
        converted_as: Option<&ConvertedAs>,
    ) -> Result<StoredAs, ChangeError> {
        // A blob that must be written is written every time: an earlier copy may have been pruned.
        let writes = self.writes(path);
        if !writes && let Some(stored_as) = self.fork.memo().blob(attr, converted_as) {
            return Ok(stored_as);
        }
        let workspace = &self.fork.workspace;
        let unstable = gone_is_unstable(path);
        if converted_as.is_none() {
            let id = workspace
                .with_content(node.attr.ino, |len, reader| {
                    if writes {
                        self.repository.write_blob(reader, len)
                    } else {
                        self.repository.hash_blob(reader, len)
                    }
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

    /// Returns whether the blob at `path` is written to the object database.
    fn writes(&self, path: &RepoPath) -> bool {
        match self.blobs {
            Blobs::Hash => false,
            Blobs::Name => is_attributes(path),
            Blobs::Write => true,
        }
    }

    /// Names the blob of `content`, and writes it if asked to.
    fn store(&self, path: &RepoPath, content: &[u8]) -> Result<ObjectId, ChangeError> {
        let len = content.len() as u64;
        let mut reader = Cursor::new(content);
        Ok(if self.writes(path) {
            self.repository.write_blob(&mut reader, len)?
        } else {
            self.repository.hash_blob(&mut reader, len)?
        })
    }
}

/// Returns whether git reads attributes from the file at `path`.
pub(super) fn is_attributes(path: &RepoPath) -> bool {
    path.split_last()
        .is_some_and(|(_, name)| name.as_bytes() == b".gitattributes")
}

/// Maps errors of a node that vanished to [`ChangeError::Unstable`].
fn gone_is_unstable(path: &RepoPath) -> impl Fn(FsError) -> ChangeError + '_ {
    move |error| match error {
        FsError::NotFound | FsError::Stale => ChangeError::Unstable(path.clone()),
        error => ChangeError::Fs(error),
    }
}
