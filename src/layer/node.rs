//! Nodes, dentries and changes: the values that a layer stores.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::contents::ContentRef;
use tine_attr::{FileKind, Ino, InodeFlags, Timestamp};
use tine_git::{ObjectId, TreeEntryKind};
use tine_path::{EntryName, RepoPath};

/// Number of a layer, unique in its store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LayerId(pub u64);

/// Extended attributes: full name (such as `user.comment`) to value.
pub type Xattrs = BTreeMap<Box<[u8]>, Box<[u8]>>;

/// Inode in a layer.
///
/// It is complete: it hides the node with the same number in the layers below.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// File type: the `S_IFMT` bits of `st_mode`.
    pub kind: FileKind,
    /// Permission bits: the low 12 bits of `st_mode`.
    pub perm: u16,
    /// User id of the owner.
    pub uid: u32,
    /// Group id of the owner.
    pub gid: u32,
    /// Number of hard links.
    ///
    /// A directory has 2 plus the number of its subdirectories. 0 means that the node is unlinked
    /// but still in use. Opening the layer drops such nodes.
    pub nlink: u32,
    /// Device number of a device node, in the kernel's encoding; 0 otherwise.
    pub rdev: u32,
    /// Size in bytes.
    ///
    /// It is the length of the target for a symlink, and 0 for a directory.
    pub size: u64,
    /// Time of the last access.
    pub atime: Timestamp,
    /// Time of the last change of the contents.
    pub mtime: Timestamp,
    /// Time of the last change of the attributes or contents.
    pub ctime: Timestamp,
    /// Location of the node's bytes.
    pub content: Content,
    /// Original place in the base, if the node comes from there.
    ///
    /// It stays with the node through renames. It is boxed because most nodes of a large layer have
    /// none.
    pub origin: Option<Box<Origin>>,
    /// Extended attributes, including internal ones ([`Node::flags`]).
    pub xattrs: Xattrs,
}

/// Prefix of internal attributes.
///
/// They are extended attributes because the fields of a record are fixed. No program can set or see
/// one.
const OWN: &[u8] = b"tine.";
const FLAGS: &[u8] = b"tine.flags";
const OPERATION: &[u8] = b"tine.operation";

impl Node {
    /// Returns the flags that `chattr` set.
    pub fn flags(&self) -> InodeFlags {
        let bits = self
            .xattrs
            .get(FLAGS)
            .and_then(|value| (**value).try_into().ok());
        let flags = bits.and_then(|bits| InodeFlags::from_bits(u32::from_le_bytes(bits)));
        flags.unwrap_or_default()
    }

    /// Stores the flags of `chattr`; no flags remove the attribute.
    pub fn set_flags(&mut self, flags: InodeFlags) {
        match flags.bits() {
            0 => self.xattrs.remove(FLAGS),
            bits => self.xattrs.insert(FLAGS.into(), bits.to_le_bytes().into()),
        };
    }

    /// Returns the operation that a directory in the trash belongs to.
    ///
    /// The value is JSON (`docs/store.md`).
    pub fn operation(&self) -> Option<&[u8]> {
        self.xattrs.get(OPERATION).map(|value| &**value)
    }

    /// Stores the operation that a directory in the trash belongs to.
    pub fn set_operation(&mut self, value: &[u8]) {
        self.xattrs.insert(OPERATION.into(), value.into());
    }

    /// Returns the extended attributes that programs may see.
    pub fn shown_xattrs(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let all = self.xattrs.iter().map(|(name, value)| (&**name, &**value));
        all.filter(|(name, _)| !name.starts_with(OWN))
    }
}

/// Location of a node's bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Content {
    /// No bytes: directories, fifos, sockets, devices and empty files.
    Empty,
    /// The bytes that a checkout of the base would have.
    ///
    /// The node has an origin.
    Base,
    /// The bytes of this blob, unconverted.
    Blob(#[serde(with = "object_id")] ObjectId),
    /// Target of a symlink.
    Link(Box<[u8]>),
    /// Bytes in the content store of a layer.
    ///
    /// The layer is this one or a frozen one below it.
    Own(ContentRef),
    /// Bytes of a file in the main checkout.
    ///
    /// For a directory, the names in it that the layers do not have.
    Carried(Box<CarriedContent>),
}

impl Content {
    /// Returns the location in a layer's content store, if it is there.
    pub fn own(&self) -> Option<ContentRef> {
        match self {
            Content::Own(content) => Some(*content),
            Content::Empty
            | Content::Base
            | Content::Blob(_)
            | Content::Link(_)
            | Content::Carried(_) => None,
        }
    }
}

/// File or directory of the main checkout that a carried node shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CarriedContent {
    /// Path from the top of the main checkout.
    pub path: RepoPath,
    /// Version of the file.
    ///
    /// `None` for a directory, which shows its current state.
    pub version: Option<FileVersion>,
}

/// Identity of one state of a file in the main checkout.
///
/// It differs from that of every other state at the same path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FileVersion {
    /// Inode number on the host.
    pub host_ino: u64,
    /// Size in bytes.
    pub size: u64,
    /// Time of the last change of the contents, on the host.
    pub mtime: Timestamp,
    /// Time of the last change of the inode, on the host.
    pub ctime: Timestamp,
}

/// Place of a node in the base.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Path in the base.
    pub path: RepoPath,
    /// Kind of the tree entry.
    pub kind: TreeEntryKind,
    /// Id of the blob, tree or, for a submodule, commit.
    #[serde(with = "object_id")]
    pub id: ObjectId,
}

/// State of one name in one directory of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Dentry {
    /// The name leads to this node.
    Entry(Ino),
    /// The name does not exist, even if a layer below has it.
    Whiteout,
}

/// Change of a layer.
///
/// Changes are applied in order; several in one record are one atomic step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// Sets a node.
    ///
    /// This frees a content of the layer that the node had before and does not have now.
    PutNode(Ino, Node),
    /// Records a write to a node's content.
    ///
    /// It is a short form of `PutNode` with a new size, and with `mtime` and `ctime` set to `time`.
    Written {
        /// Node that was written.
        ino: Ino,
        /// New size in bytes.
        size: u64,
        /// New `mtime` and `ctime`.
        time: Timestamp,
    },
    /// Removes a node from the layer, and frees its content.
    ///
    /// If the node is a directory, this also removes all names in it from the layer.
    DropNode(Ino),
    /// Sets a name in a directory.
    PutDentry {
        /// Directory of the name.
        parent: Ino,
        /// Name to set.
        name: EntryName,
        /// New state of the name.
        dentry: Dentry,
    },
    /// Removes a name from the layer: the layers below supply it.
    DropDentry {
        /// Directory of the name.
        parent: Ino,
        /// Name to remove.
        name: EntryName,
    },
    /// Reserves the numbers of new nodes that are below `below`.
    ///
    /// The layer may have assigned them.
    ReserveInos {
        /// End of the reserved numbers.
        below: Ino,
    },
}

/// Serialization of object ids as bytes.
pub(crate) mod object_id {
    use serde::{Deserialize, Deserializer, Serializer};

    use tine_git::ObjectId;

    pub(crate) fn serialize<S: Serializer>(
        id: &ObjectId,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(id.as_bytes())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<ObjectId, D::Error> {
        let bytes = serde_bytes::ByteBuf::deserialize(deserializer)?;
        ObjectId::try_from(bytes.as_slice()).map_err(serde::de::Error::custom)
    }
}
