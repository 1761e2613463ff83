//! What a program's file grants to whoever runs it: set-user-id, set-group-id, and capabilities.
//! All of it is void as soon as another could have changed the file.
//!
//! From whom changes the file and may set those bits (root) only the capabilities are taken, and
//! that the kernel does by itself, removing the attribute.

use super::ops::Caller;
use tine_attr::FileKind;
use tine_layer::Node;

const S_ISUID: u16 = 0o4000;
pub(super) const S_ISGID: u16 = 0o2000;
const S_IXGRP: u16 = 0o010;

/// The attribute that holds a file's capabilities.
const CAPABILITIES: &[u8] = b"security.capability";

/// Whether there is something of it that a change by `caller` takes.
pub(super) fn loses_privileges(node: &Node, caller: Caller) -> bool {
    // A directory's bits have other meanings.
    let is_program = node.kind != FileKind::Directory;
    is_program && (left_by(node, caller) != node.perm || node.xattrs.contains_key(CAPABILITIES))
}

/// Takes what a change by `caller` takes; whether that was anything.
pub(super) fn take_privileges(node: &mut Node, caller: Caller) -> bool {
    let loses = loses_privileges(node, caller);
    if loses {
        node.perm = left_by(node, caller);
        node.xattrs.remove(CAPABILITIES);
    }
    loses
}

/// The mode's bits that are left. Set-group-id where the group may not execute grants nothing, and
/// stays for a member of the group.
fn left_by(node: &Node, caller: Caller) -> u16 {
    let perm = node.perm & !S_ISUID;
    let stays = perm & (S_ISGID | S_IXGRP) == S_ISGID
        && (caller.is_privileged() || caller.is_in_group(node.gid));
    match stays {
        true => perm,
        false => perm & !S_ISGID,
    }
}
