//! Extended attributes, and the access control lists among them.
//!
//! Names in `user.`, `trusted.` and `security.` are kept as they come: the kernel has checked who
//! may set them on what. In `system.` there are the two access control lists and nothing else. A
//! list and the mode of its node are one thing in two places: whatever changes one changes the
//! other here.

use super::acl::{self, Acl};
use super::error::FsError;
use super::flags::check_may_change;
use super::fs::{Invalidation, Workspace};
use super::ops::{Caller, XattrMode};
use super::privileges::S_ISGID;
use tine_attr::{FileKind, Ino, Timestamp};
use tine_layer::Node;

/// Longest attribute name in bytes (`XATTR_NAME_MAX`).
const NAME_MAX: usize = 255;
/// Longest value in bytes (`XATTR_SIZE_MAX`).
const VALUE_MAX: usize = 64 * 1024;
/// Bytes that the names of a node's attributes, each with its end, may have together
/// (`XATTR_LIST_MAX`): more could not be listed.
const NAMES_MAX: usize = 64 * 1024;
/// Bytes that a node's names and values may have together. They are logged with every change of the
/// node.
const ALL_MAX: usize = 4 * VALUE_MAX;

/// Names that only the privileged see.
const TRUSTED: &[u8] = b"trusted.";

/// What a name speaks of.
enum Meaning {
    /// A value to keep.
    Value,
    AccessAcl,
    DefaultAcl,
}

impl Workspace {
    pub fn setxattr(
        &self,
        caller: Caller,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<(), FsError> {
        let meaning = meaning(name)?;
        if value.len() > VALUE_MAX {
            return Err(FsError::ValueTooLong);
        }
        self.change_xattrs(ino, |node| match meaning {
            Meaning::Value => {
                match (mode, node.xattrs.contains_key(name)) {
                    (XattrMode::Create | XattrMode::CreateAndReplace, true) => {
                        return Err(FsError::Exists);
                    }
                    (XattrMode::Replace | XattrMode::CreateAndReplace, false) => {
                        return Err(FsError::NoAttribute);
                    }
                    _ => {}
                }
                node.xattrs.insert(name.into(), value.into());
                check_room(node)
            }
            // As the kernel's own file systems do, whatever the mode says.
            Meaning::AccessAcl => set_access_acl(caller, node, Acl::decode(value)?),
            Meaning::DefaultAcl => set_default_acl(node, Acl::decode(value)?),
        })
    }

    pub fn getxattr(&self, caller: Caller, ino: Ino, name: &[u8]) -> Result<Vec<u8>, FsError> {
        meaning(name)?;
        let state = self.read_state();
        self.find(&state, ino)?;
        let value = state.stack.node(ino).and_then(|node| node.xattrs.get(name));
        match value {
            Some(value) if is_visible(caller, name) => Ok(value.to_vec()),
            _ => Err(FsError::NoAttribute),
        }
    }

    /// Names, as far as the caller may see them.
    pub fn listxattr(&self, caller: Caller, ino: Ino) -> Result<Vec<Vec<u8>>, FsError> {
        let state = self.read_state();
        self.find(&state, ino)?;
        let Some(node) = state.stack.node(ino) else {
            return Ok(Vec::new());
        };
        let names = node.shown_xattrs().map(|(name, _)| name);
        let visible = names.filter(|name| is_visible(caller, name));
        Ok(visible.map(<[u8]>::to_vec).collect())
    }

    pub fn removexattr(&self, _caller: Caller, ino: Ino, name: &[u8]) -> Result<(), FsError> {
        let meaning = meaning(name)?;
        self.change_xattrs(ino, |node| match (node.xattrs.remove(name), meaning) {
            // A node has a list always, if only the one that its mode says.
            (Some(_), _) | (None, Meaning::AccessAcl | Meaning::DefaultAcl) => Ok(()),
            (None, Meaning::Value) => Err(FsError::NoAttribute),
        })
    }

    fn change_xattrs(
        &self,
        ino: Ino,
        change: impl FnOnce(&mut Node) -> Result<(), FsError>,
    ) -> Result<(), FsError> {
        self.own_carried_node(ino)?;
        let mut state = self.write_state();
        let found = self.find(&state, ino)?;
        check_may_change(&state, ino)?;
        let mut node = self.node(&state, &found)?;
        let perm = node.perm;
        change(&mut node)?;
        node.ctime = Timestamp::now();
        let changes_mode = node.perm != perm;
        self.put_content(&mut state, ino, node)?;
        drop(state);
        // The kernel takes no more than ctime to have changed.
        self.announce(changes_mode.then_some(Invalidation::Attributes(ino)));
        Ok(())
    }
}

fn meaning(name: &[u8]) -> Result<Meaning, FsError> {
    if name == acl::ACCESS {
        return Ok(Meaning::AccessAcl);
    }
    if name == acl::DEFAULT {
        return Ok(Meaning::DefaultAcl);
    }
    let known: [&[u8]; 3] = [b"user.", TRUSTED, b"security."];
    match known.iter().find(|prefix| name.starts_with(prefix)) {
        Some(prefix) if name.len() == prefix.len() => Err(FsError::Invalid),
        Some(_) if name.len() > NAME_MAX => Err(FsError::Range),
        Some(_) => Ok(Meaning::Value),
        None => Err(FsError::Unsupported),
    }
}

fn is_visible(caller: Caller, name: &[u8]) -> bool {
    caller.is_privileged() || !name.starts_with(TRUSTED)
}

fn check_room(node: &Node) -> Result<(), FsError> {
    let names: usize = node.shown_xattrs().map(|(name, _)| name.len() + 1).sum();
    let values: usize = node.shown_xattrs().map(|(_, value)| value.len()).sum();
    match names > NAMES_MAX || names + values > ALL_MAX {
        true => Err(FsError::AttributesFull),
        false => Ok(()),
    }
}

/// Gives the node a list of its own, or takes it away. A list that says no more than a mode becomes
/// the mode.
fn set_access_acl(caller: Caller, node: &mut Node, list: Option<Acl>) -> Result<(), FsError> {
    if node.kind == FileKind::Symlink {
        return Err(FsError::Unsupported);
    }
    let Some(list) = list else {
        node.xattrs.remove(acl::ACCESS);
        return Ok(());
    };
    node.perm = node.perm & !0o777 | list.mode();
    if !caller.is_privileged() && !caller.is_in_group(node.gid) {
        node.perm &= !S_ISGID;
    }
    put_access_acl(node, &list);
    Ok(())
}

fn put_access_acl(node: &mut Node, list: &Acl) {
    match list.is_mode_only() {
        true => node.xattrs.remove(acl::ACCESS),
        false => node.xattrs.insert(acl::ACCESS.into(), list.encode().into()),
    };
}

/// Sets what new nodes in the directory begin with, or takes it away.
fn set_default_acl(node: &mut Node, list: Option<Acl>) -> Result<(), FsError> {
    match (node.kind, list) {
        (FileKind::Symlink, _) => return Err(FsError::Unsupported),
        (FileKind::Directory, Some(list)) => {
            node.xattrs
                .insert(acl::DEFAULT.into(), list.encode().into());
        }
        (_, Some(_)) => return Err(FsError::AccessDenied),
        (_, None) => {
            node.xattrs.remove(acl::DEFAULT);
        }
    }
    Ok(())
}

/// What a new node takes over from its directory's default list, which no umask narrows further.
pub(super) fn inherit_acl(node: &mut Node, default: &[u8]) -> Result<(), FsError> {
    let Some(mut list) = Acl::decode(default)? else {
        return Ok(());
    };
    list.narrow(node.perm);
    node.perm = node.perm & !0o777 | list.mode();
    put_access_acl(node, &list);
    if node.kind == FileKind::Directory {
        node.xattrs.insert(acl::DEFAULT.into(), default.into());
    }
    Ok(())
}

/// Sets the low 12 bits of the mode, and what the node's list says of them.
pub(super) fn set_perm(node: &mut Node, perm: u16) -> Result<(), FsError> {
    node.perm = perm;
    if let Some(value) = node.xattrs.get(acl::ACCESS)
        && let Some(mut list) = Acl::decode(value)?
    {
        list.set_mode(perm);
        put_access_acl(node, &list);
    }
    Ok(())
}
