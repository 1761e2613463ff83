//! Extended attributes, and the access control lists (ACLs) among them.
//!
//! Attributes in `user.`, `trusted.` and `security.` are kept as they are: the kernel has checked
//! who may set them. `system.` has only the two ACLs. An ACL and the mode of its node overlap, so a
//! change of one also changes the other.

use super::acl::{self, Acl};
use super::error::FsError;
use super::flags::check_may_change;
use super::fs::{Invalidation, Workspace};
use super::ops::{Caller, XattrMode};
use super::privileges::S_ISGID;
use tine_attr::{FileKind, Ino, Timestamp};
use tine_layer::Node;

/// Maximum length of an attribute name in bytes (`XATTR_NAME_MAX`).
const NAME_MAX: usize = 255;
/// Maximum size of a value in bytes (`XATTR_SIZE_MAX`).
const VALUE_MAX: usize = 64 * 1024;
/// Maximum size of a node's list of names (`XATTR_LIST_MAX`).
///
/// In bytes, each name with its NUL. `listxattr` cannot return more.
const NAMES_MAX: usize = 64 * 1024;
/// Maximum total size of a node's names and values, in bytes.
///
/// They are logged with every change of the node.
const ALL_MAX: usize = 4 * VALUE_MAX;

/// Prefix of names that only privileged callers see.
const TRUSTED: &[u8] = b"trusted.";

/// Kind of an attribute name.
enum XattrKind {
    /// The value is kept as it is.
    Value,
    /// The node's own ACL.
    AccessAcl,
    /// The ACL that new nodes in the directory inherit.
    DefaultAcl,
}

impl Workspace {
    /// Sets an extended attribute.
    ///
    /// # Errors
    /// [`FsError::Exists`] or [`FsError::NoAttribute`] if `mode` forbids it; [`FsError::Range`],
    /// [`FsError::ValueTooLong`] or [`FsError::AttributesFull`] beyond a limit;
    /// [`FsError::Unsupported`] for an unknown prefix or an ACL on a symlink; [`FsError::Invalid`]
    /// for a bad ACL or name; [`FsError::AccessDenied`] for a default ACL on a file;
    /// [`FsError::NotPermitted`] where inode flags forbid it.
    pub fn setxattr(
        &self,
        caller: Caller,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<(), FsError> {
        let kind = xattr_kind(name)?;
        if value.len() > VALUE_MAX {
            return Err(FsError::ValueTooLong);
        }
        self.change_xattrs(ino, |node| match kind {
            XattrKind::Value => {
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
            // The kernel's own file systems ignore the create and replace flags here, too.
            XattrKind::AccessAcl => set_access_acl(caller, node, Acl::decode(value)?),
            XattrKind::DefaultAcl => set_default_acl(node, Acl::decode(value)?),
        })
    }

    /// Returns the value of an extended attribute.
    ///
    /// # Errors
    /// [`FsError::NoAttribute`] if the node lacks it or the caller may not see it;
    /// [`FsError::Unsupported`], [`FsError::Invalid`] or [`FsError::Range`] for a bad name;
    /// [`FsError::Stale`] if no node has the number.
    pub fn getxattr(&self, caller: Caller, ino: Ino, name: &[u8]) -> Result<Vec<u8>, FsError> {
        xattr_kind(name)?;
        let state = self.read_state();
        self.find(&state, ino)?;
        let value = state.stack.node(ino).and_then(|node| node.xattrs.get(name));
        match value {
            Some(value) if is_visible(caller, name) => Ok(value.to_vec()),
            _ => Err(FsError::NoAttribute),
        }
    }

    /// Returns the names of the attributes that the caller may see.
    ///
    /// # Errors
    /// [`FsError::Stale`] if no node has the number.
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

    /// Removes an extended attribute. An ACL need not exist.
    ///
    /// # Errors
    /// [`FsError::NoAttribute`] if the node lacks it; [`FsError::Unsupported`],
    /// [`FsError::Invalid`] or [`FsError::Range`] for a bad name; [`FsError::NotPermitted`] where
    /// inode flags forbid it.
    pub fn removexattr(&self, _caller: Caller, ino: Ino, name: &[u8]) -> Result<(), FsError> {
        let kind = xattr_kind(name)?;
        self.change_xattrs(ino, |node| match (node.xattrs.remove(name), kind) {
            // Every node has an ACL, if only the one that its mode implies.
            (Some(_), _) | (None, XattrKind::AccessAcl | XattrKind::DefaultAcl) => Ok(()),
            (None, XattrKind::Value) => Err(FsError::NoAttribute),
        })
    }

    fn change_xattrs(
        &self,
        ino: Ino,
        change: impl FnOnce(&mut Node) -> Result<(), FsError>,
    ) -> Result<(), FsError> {
        self.copy_up_if_needed(ino)?;
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
        // After setxattr the kernel refreshes ctime only, not the mode.
        self.announce(changes_mode.then_some(Invalidation::Attributes(ino)));
        Ok(())
    }
}

fn xattr_kind(name: &[u8]) -> Result<XattrKind, FsError> {
    if name == acl::ACCESS {
        return Ok(XattrKind::AccessAcl);
    }
    if name == acl::DEFAULT {
        return Ok(XattrKind::DefaultAcl);
    }
    let known: [&[u8]; 3] = [b"user.", TRUSTED, b"security."];
    match known.iter().find(|prefix| name.starts_with(prefix)) {
        Some(prefix) if name.len() == prefix.len() => Err(FsError::Invalid),
        Some(_) if name.len() > NAME_MAX => Err(FsError::Range),
        Some(_) => Ok(XattrKind::Value),
        None => Err(FsError::Unsupported),
    }
}

fn is_visible(caller: Caller, name: &[u8]) -> bool {
    caller.is_privileged() || !name.starts_with(TRUSTED)
}

fn check_room(node: &Node) -> Result<(), FsError> {
    let names: usize = node.shown_xattrs().map(|(name, _)| name.len() + 1).sum();
    let values: usize = node.shown_xattrs().map(|(_, value)| value.len()).sum();
    if names > NAMES_MAX || names + values > ALL_MAX {
        Err(FsError::AttributesFull)
    } else {
        Ok(())
    }
}

/// Sets or removes the node's ACL.
///
/// An ACL that a mode can express becomes the mode.
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
    if list.is_mode_only() {
        node.xattrs.remove(acl::ACCESS);
    } else {
        node.xattrs.insert(acl::ACCESS.into(), list.encode().into());
    }
}

/// Sets or removes the ACL that new nodes in the directory inherit.
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

/// Applies the directory's default ACL instead of the umask.
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

/// Sets the low 12 bits of the mode, also in the ACL.
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
