//! The values that a layer holds.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::contents::ContentRef;
use tine_attr::{FileKind, Ino, InodeFlags, Timestamp};
use tine_git::{ObjectId, TreeEntryKind};
use tine_path::{EntryName, RepoPath};

/// Names a layer; unique in its store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LayerId(pub u64);

/// Extended attributes: full name (`user.comment`) to value.
pub type Xattrs = BTreeMap<Box<[u8]>, Box<[u8]>>;

/// One inode as a layer has it: complete, it hides whatever lies beneath it at the same number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    pub kind: FileKind,
    /// The low 12 bits of `st_mode`.
    pub perm: u16,
    pub uid: u32,
    pub gid: u32,
    /// Names that lead to the node; directories: 2 and one for each subdirectory. 0 once unlinked
    /// and still in use; such nodes are dropped when the layer is opened.
    pub nlink: u32,
    pub rdev: u32,
    /// Bytes; for a symlink its target's length, for a directory 0.
    pub size: u64,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    pub content: Content,
    /// Where the node stood in the base, if it comes from there. Stays with the node through
    /// renames. Boxed: most nodes of a large layer were made in it.
    pub origin: Option<Box<Origin>>,
    /// With the flags among them: see [`Node::flags`].
    pub xattrs: Xattrs,
}

/// How names begin that stand among a node's extended attributes because a record's fields are
/// fixed. No program can set or see one.
const OWN: &[u8] = b"tine.";
const FLAGS: &[u8] = b"tine.flags";
const OPERATION: &[u8] = b"tine.operation";

impl Node {
    /// What `chattr` set.
    pub fn flags(&self) -> InodeFlags {
        let bits = self
            .xattrs
            .get(FLAGS)
            .and_then(|value| (**value).try_into().ok());
        let flags = bits.and_then(|bits| InodeFlags::from_bits(u32::from_le_bytes(bits)));
        flags.unwrap_or_default()
    }

    pub fn set_flags(&mut self, flags: InodeFlags) {
        match flags.bits() {
            0 => self.xattrs.remove(FLAGS),
            bits => self.xattrs.insert(FLAGS.into(), bits.to_le_bytes().into()),
        };
    }

    /// What a directory of the attic says of the operation that it belongs to.
    pub fn operation(&self) -> Option<&[u8]> {
        self.xattrs.get(OPERATION).map(|value| &**value)
    }

    pub fn set_operation(&mut self, value: &[u8]) {
        self.xattrs.insert(OPERATION.into(), value.into());
    }

    /// Names and values that programs may know of.
    pub fn shown_xattrs(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let all = self.xattrs.iter().map(|(name, value)| (&**name, &**value));
        all.filter(|(name, _)| !name.starts_with(OWN))
    }
}

/// Where a node's bytes are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Content {
    /// Nothing to read: directories, fifos, sockets, devices, and empty files.
    Empty,
    /// As a checkout of the base would hold them; the node has an origin.
    Base,
    /// The bytes of this blob, unconverted.
    Blob(#[serde(with = "object_id")] ObjectId),
    /// A symlink's target.
    Link(Box<[u8]>),
    /// In a layer's own store: this layer's, or that of a frozen one beneath it.
    Own(ContentRef),
    /// In the main checkout: a file's bytes, or the names of a directory that the layers do not
    /// speak of.
    Carried(Box<CarriedContent>),
}

impl Content {
    /// Its place in a layer's own store.
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

/// What is beneath a carried node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CarriedContent {
    /// From the top of the main checkout.
    pub path: RepoPath,
    /// Which version of the file it is; `None` for a directory, which is as it is at the moment.
    pub version: Option<FileVersion>,
}

/// Tells one state of a file of the main checkout from all others at its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FileVersion {
    pub host_ino: u64,
    /// Bytes.
    pub size: u64,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
}

/// A node's place in the base.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    pub path: RepoPath,
    pub kind: TreeEntryKind,
    #[serde(with = "object_id")]
    pub id: ObjectId,
}

/// What a layer says about one name in one directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Dentry {
    Entry(Ino),
    /// Nothing is here, whatever lies beneath.
    Whiteout,
}

/// One change of a layer. Applied in order; several together are one atomic step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// Sets the node. A content of this layer's own that the node had and has no longer is freed.
    PutNode(Ino, Node),
    /// The node's bytes changed: a shorter form of `PutNode` with a new size, and `mtime` and
    /// `ctime` set to `time`.
    Written {
        ino: Ino,
        size: u64,
        time: Timestamp,
    },
    /// Forgets the node and, if it was a directory, all that the layer says of names in it. Its
    /// content is freed.
    DropNode(Ino),
    PutDentry {
        parent: Ino,
        name: EntryName,
        dentry: Dentry,
    },
    /// Says nothing of this name any more.
    DropDentry { parent: Ino, name: EntryName },
    /// Numbers of new nodes below this one may have been given out.
    ReserveInos { below: Ino },
}

/// Object ids as bytes.
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
