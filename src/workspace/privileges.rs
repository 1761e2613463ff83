//! Removal of set-user-id, set-group-id and file capabilities on a write.
//!
//! These grant rights to every user who runs the file. They are void once another user could have
//! changed the file. If root writes, only the capabilities are removed; the kernel does that
//! itself, by removing the attribute.

use super::ops::Caller;
use tine_attr::FileKind;
use tine_layer::Node;

const S_ISUID: u16 = 0o4000;
pub(super) const S_ISGID: u16 = 0o2000;
const S_IXGRP: u16 = 0o010;

/// Extended attribute that holds a file's capabilities.
const CAPABILITIES: &[u8] = b"security.capability";

/// Returns whether a change by `caller` removes privileges.
pub(super) fn loses_privileges(node: &Node, caller: Caller) -> bool {
    // A directory's bits have other meanings.
    let is_program = node.kind != FileKind::Directory;
    is_program && (left_by(node, caller) != node.perm || node.xattrs.contains_key(CAPABILITIES))
}

/// Removes the privileges that a change by `caller` voids. Returns whether there were any.
pub(super) fn take_privileges(node: &mut Node, caller: Caller) -> bool {
    let loses = loses_privileges(node, caller);
    if loses {
        node.perm = left_by(node, caller);
        node.xattrs.remove(CAPABILITIES);
    }
    loses
}

/// Returns the mode bits that a change by `caller` leaves.
///
/// Set-group-id without group execute grants nothing. It stays if the caller is in the group.
fn left_by(node: &Node, caller: Caller) -> u16 {
    let perm = node.perm & !S_ISUID;
    let stays = perm & (S_ISGID | S_IXGRP) == S_ISGID
        && (caller.is_privileged() || caller.is_in_group(node.gid));
    if stays { perm } else { perm & !S_ISGID }
}
