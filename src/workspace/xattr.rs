//! Extended attributes.
//!
//! Names in `user.`, `trusted.` and `security.` are kept as they come: the kernel has checked who may set them.
//! `system.` names (access control lists) are not supported.

use super::error::FsError;
use super::fs::Workspace;
use super::ops::{Caller, XattrMode};
use crate::attr::{Ino, Timestamp};
use crate::layer::Node;

/// Longest attribute name in bytes (`XATTR_NAME_MAX`).
const NAME_MAX: usize = 255;
/// Longest value in bytes (`XATTR_SIZE_MAX`).
const VALUE_MAX: usize = 64 * 1024;

impl Workspace {
    pub fn setxattr(
        &self,
        _caller: Caller,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<(), FsError> {
        check_name(name)?;
        if value.len() > VALUE_MAX {
            return Err(FsError::Range);
        }
        self.change_xattrs(ino, |node| {
            match (mode, node.xattrs.contains_key(name)) {
                (XattrMode::Create, true) => return Err(FsError::Exists),
                (XattrMode::Replace, false) => return Err(FsError::NoAttribute),
                _ => {}
            }
            node.xattrs.insert(name.into(), value.into());
            Ok(())
        })
    }

    pub fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>, FsError> {
        check_name(name)?;
        let state = self.read_state();
        self.find(&state, ino)?;
        let value = state.stack.node(ino).and_then(|node| node.xattrs.get(name));
        value.map(|value| value.to_vec()).ok_or(FsError::NoAttribute)
    }

    /// Names.
    pub fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>, FsError> {
        let state = self.read_state();
        self.find(&state, ino)?;
        let names = state
            .stack
            .node(ino)
            .map(|node| node.xattrs.keys().map(|name| name.to_vec()).collect());
        Ok(names.unwrap_or_default())
    }

    pub fn removexattr(&self, _caller: Caller, ino: Ino, name: &[u8]) -> Result<(), FsError> {
        check_name(name)?;
        self.change_xattrs(ino, |node| match node.xattrs.remove(name) {
            Some(_) => Ok(()),
            None => Err(FsError::NoAttribute),
        })
    }

    fn change_xattrs(
        &self,
        ino: Ino,
        change: impl FnOnce(&mut Node) -> Result<(), FsError>,
    ) -> Result<(), FsError> {
        let mut state = self.write_state();
        let found = self.find(&state, ino)?;
        let mut node = self.node(&state, &found)?;
        change(&mut node)?;
        node.ctime = Timestamp::now();
        self.put_content(&mut state, ino, node)
    }
}

fn check_name(name: &[u8]) -> Result<(), FsError> {
    let known: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
    match known.iter().find(|prefix| name.starts_with(prefix)) {
        Some(prefix) if name.len() == prefix.len() => Err(FsError::Invalid),
        Some(_) if name.len() > NAME_MAX => Err(FsError::Range),
        Some(_) => Ok(()),
        None => Err(FsError::Unsupported),
    }
}
