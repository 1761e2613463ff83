//! Nodes of the view: in a layer, in the base, or carried.

use std::sync::Arc;

use log::error;

use super::{ViewState, Workspace};
use crate::base_nodes::{base_node, blocks_of, file_kind};
use crate::carry::CarriedNode;
use crate::error::FsError;
use crate::inodes::{BaseRef, LowerRef};
use tine_attr::{Attr, FileKind, Ino, Timestamp};
use tine_git::{BaseDir, TreeEntryKind};
use tine_layer::{Content, Dentry, Node};
use tine_path::{NAME_MAX, RepoPath};

/// Returns the ctime that a layer's node shows.
///
/// It is not earlier than `since`, the time at which the fork got its lower layers.
pub(crate) fn shown_ctime(node: &Node, since: Option<Timestamp>) -> Timestamp {
    since.map_or(node.ctime, |since| node.ctime.max(since))
}

/// Node together with the place of its attributes.
#[derive(Clone)]
pub(crate) struct FoundNode {
    pub ino: Ino,
    pub place: NodePlace,
}

impl FoundNode {
    /// Returns a node that a layer has, or will have.
    pub(crate) fn in_layer(ino: Ino) -> FoundNode {
        FoundNode {
            ino,
            place: NodePlace::Layer,
        }
    }

    /// Returns whether the base has the node and no layer does.
    pub(crate) fn is_in_base(&self) -> bool {
        matches!(self.place, NodePlace::Base(_))
    }
}

/// Place of a node's attributes.
#[derive(Clone)]
pub(crate) enum NodePlace {
    /// A layer has the node.
    Layer,
    /// Only the base has the node.
    Base(BaseRef),
    /// The node is carried, and no layer has it.
    Carried(Arc<CarriedNode>),
    /// The root, while no layer has it.
    BaseRoot,
}

impl From<LowerRef> for NodePlace {
    fn from(lower: LowerRef) -> NodePlace {
        match lower {
            LowerRef::Base(base) => NodePlace::Base(base),
            LowerRef::Carried(node) => NodePlace::Carried(node),
        }
    }
}

impl Workspace {
    /// Finds the node with this number.
    ///
    /// It must be in a layer, be the root, or be remembered by the kernel.
    pub(crate) fn find(&self, state: &ViewState, ino: Ino) -> Result<FoundNode, FsError> {
        let place = if state.stack.node(ino).is_some() {
            NodePlace::Layer
        } else if ino == Ino::ROOT {
            NodePlace::BaseRoot
        } else {
            self.inodes.lower(ino).ok_or(FsError::Stale)?.into()
        };
        Ok(FoundNode { ino, place })
    }

    /// Finds the directory with this number; see [`Workspace::find`].
    pub(crate) fn find_dir(&self, state: &ViewState, ino: Ino) -> Result<FoundNode, FsError> {
        let found = self.find(state, ino)?;
        match self.kind(state, &found)? {
            FileKind::Directory => Ok(found),
            _ => Err(FsError::NotADirectory),
        }
    }

    /// Returns the layers' node of a [`NodePlace::Layer`].
    pub(crate) fn layer_node<'s>(
        &self,
        state: &'s ViewState,
        ino: Ino,
    ) -> Result<&'s Node, FsError> {
        state.stack.node(ino).ok_or(FsError::Stale)
    }

    pub(crate) fn kind(&self, state: &ViewState, found: &FoundNode) -> Result<FileKind, FsError> {
        Ok(match &found.place {
            NodePlace::Layer => self.layer_node(state, found.ino)?.kind,
            NodePlace::Base(base) => file_kind(base.entry().kind),
            NodePlace::Carried(node) => node.attr.kind,
            NodePlace::BaseRoot => FileKind::Directory,
        })
    }

    /// Returns the node at `name` in the directory `dir`.
    pub(crate) fn child(
        &self,
        state: &ViewState,
        dir: &FoundNode,
        name: &[u8],
    ) -> Result<Option<FoundNode>, FsError> {
        // The kernel passes names of up to 1024 bytes. A plain "not found" would hide that such a
        // name can never exist.
        if name.len() > NAME_MAX {
            return Err(FsError::NameTooLong);
        }
        match state.stack.dentry(dir.ino, name) {
            Some(Dentry::Entry(ino)) => Ok(Some(FoundNode {
                ino,
                place: NodePlace::Layer,
            })),
            Some(Dentry::Whiteout) => Ok(None),
            None => match self.base_dir(state, dir)? {
                Some(base_dir) => match base_dir.find(name) {
                    Some(index) => Ok(self.base_child(state, &base_dir, index)),
                    None => self.carried_child(state, dir, name),
                },
                None => self.carried_child(state, dir, name),
            },
        }
    }

    /// Returns an entry of a base directory.
    ///
    /// The node is a layer's if one has it.
    pub(crate) fn base_child(
        &self,
        state: &ViewState,
        dir: &Arc<BaseDir>,
        index: usize,
    ) -> Option<FoundNode> {
        let base = BaseRef::new(dir, index)?;
        let ino = base.entry().ino;
        let place = if state.stack.node(ino).is_some() {
            NodePlace::Layer
        } else {
            NodePlace::Base(base)
        };
        Some(FoundNode { ino, place })
    }

    /// Returns the base directory below a directory of the view.
    ///
    /// `None` for a directory made in the fork and for a submodule's.
    pub(crate) fn base_dir(
        &self,
        state: &ViewState,
        dir: &FoundNode,
    ) -> Result<Option<Arc<BaseDir>>, FsError> {
        Ok(match &dir.place {
            NodePlace::BaseRoot => Some(state.base.base.root()?),
            NodePlace::Base(base) if base.entry().kind == TreeEntryKind::Directory => {
                Some(state.base.base.dir(&base.path(), base.entry().id)?)
            }
            NodePlace::Base(_) | NodePlace::Carried(_) => None,
            NodePlace::Layer => match &self.layer_node(state, dir.ino)?.origin {
                Some(origin) if origin.kind == TreeEntryKind::Directory => {
                    Some(state.base.base.dir(&origin.path, origin.id)?)
                }
                _ => None,
            },
        })
    }

    /// Returns the number of the directory that holds `dir`. The root is its own parent.
    pub(crate) fn parent_of(&self, state: &ViewState, dir: &FoundNode) -> Result<Ino, FsError> {
        if dir.ino == Ino::ROOT {
            return Ok(Ino::ROOT);
        }
        if let Some(parent) = state.stack.dir_parent(dir.ino) {
            return Ok(parent);
        }
        let base_parent = match &dir.place {
            NodePlace::BaseRoot => return Ok(Ino::ROOT),
            NodePlace::Base(base) => base.dir().path.clone(),
            NodePlace::Carried(node) => node
                .path
                .split_last()
                .map(|(parent, _)| parent)
                .unwrap_or_default(),
            NodePlace::Layer => match &self.layer_node(state, dir.ino)?.origin {
                Some(origin) => origin
                    .path
                    .split_last()
                    .map(|(parent, _)| parent)
                    .unwrap_or_default(),
                // An unlinked directory that was made in the fork has no place.
                None => return Ok(Ino::ROOT),
            },
        };
        Ok(state.base.base.hasher().ino(&base_parent))
    }

    pub(crate) fn remember(&self, found: &FoundNode) -> Result<(), FsError> {
        let lower = match &found.place {
            NodePlace::Base(base) => Some(LowerRef::Base(base.clone())),
            NodePlace::Carried(node) => Some(LowerRef::Carried(node.clone())),
            NodePlace::Layer | NodePlace::BaseRoot => None,
        };
        self.inodes
            .remember(found.ino, lower.as_ref())
            .map_err(|_| {
                error!("two paths share the inode number {}", found.ino.0);
                FsError::Stale
            })
    }

    pub(crate) fn attr(&self, state: &ViewState, found: &FoundNode) -> Result<Attr, FsError> {
        match &found.place {
            NodePlace::Layer => {
                let node = self.layer_node(state, found.ino)?;
                Ok(self.with_carried_times(
                    found.ino,
                    node,
                    self.node_attr(state, found.ino, node)?,
                ))
            }
            NodePlace::Base(base) => self.base_attr(&state.base, base),
            NodePlace::Carried(node) => self.carried_attr(node),
            NodePlace::BaseRoot => {
                Ok(self.with_dir_roots(state.base.root_attr()?, &RepoPath::root()))
            }
        }
    }

    pub(crate) fn node_attr(
        &self,
        state: &ViewState,
        ino: Ino,
        node: &Node,
    ) -> Result<Attr, FsError> {
        let blocks = match &node.content {
            Content::Own(content) => state.stack.content_blocks(*content, node.size)?,
            Content::Carried(_) if node.kind == FileKind::Directory => 0,
            Content::Base | Content::Blob(_) | Content::Carried(_) => blocks_of(node.size),
            Content::Empty | Content::Link(_) => 0,
        };
        Ok(Attr {
            ino,
            kind: node.kind,
            perm: node.perm,
            nlink: node.nlink,
            uid: node.uid,
            gid: node.gid,
            rdev: node.rdev,
            size: node.size,
            blocks,
            atime: node.atime,
            mtime: node.mtime,
            ctime: shown_ctime(node, state.since),
        })
    }

    /// Returns the node as a record that a layer can hold.
    ///
    /// It is the layer's node, or a copy-up of the base's or carried one.
    pub(crate) fn node(&self, state: &ViewState, found: &FoundNode) -> Result<Node, FsError> {
        Ok(match &found.place {
            NodePlace::Layer => self.layer_node(state, found.ino)?.clone(),
            NodePlace::Base(base) => base_node(&self.base_attr(&state.base, base)?, base.origin()),
            NodePlace::Carried(node) => return self.carried_node(node),
            NodePlace::BaseRoot => base_node(&self.attr(state, found)?, state.base.root_origin()),
        })
    }
}
