//! Requests about attributes, extended attributes and inode flags.

use std::time::Duration;

use super::{Answer, Operations, dot_git};
use crate::convert::{self, XattrAnswer};
use crate::counters::Operation;
use crate::entries::{REMEMBER, ttl};
use crate::errno::Errno;
use crate::ioctl::{self, Ioctl};
use crate::priming::PrimingFile;
use crate::replay::Act;
use tine_attr::{Attr, FileKind, Ino, InodeFlags};
use tine_workspace::{Caller, SetAttr, StatFs};

impl Operations {
    /// Returns the attributes, and their cache time in the kernel.
    pub(crate) fn getattr(&self, caller: Caller, ino: Ino) -> Answer<(Attr, Duration)> {
        if ino == PrimingFile::INO {
            return Ok((self.priming.attr(), REMEMBER));
        }
        if let Some(git) = self.git_node(ino) {
            return self.in_git(Operation::GetAttr, ino, || {
                let (attr, keeps) = git.getattr(ino)?;
                Ok((attr, dot_git::ttl(keeps)))
            });
        }
        let replayed = self.replayed(caller, (Operation::GetAttr, ino), |replay, _| {
            let attr = match self.workspace.getattr(ino) {
                Ok(attr) => self.with_time(attr),
                Err(error) => replay.former_node(ino).ok_or(error)?,
            };
            Ok((attr, Duration::ZERO))
        });
        if let Some(answer) = replayed {
            return answer;
        }
        self.call(Operation::GetAttr, ino, |workspace| {
            if self.is_text(ino) {
                return Ok((workspace.getattr_of_text(ino)?, Duration::ZERO));
            }
            let attr = self.with_time(workspace.getattr(ino)?);
            let is_carried = attr.kind == FileKind::Directory && workspace.is_carried(ino);
            Ok((attr, ttl(is_carried)))
        })
    }

    /// Changes attributes, and returns them as [`Operations::getattr`] does.
    pub(crate) fn setattr(
        &self,
        caller: Caller,
        ino: Ino,
        set: &SetAttr,
    ) -> Answer<(Attr, Duration)> {
        if set.size == Some(0)
            && self.is_git_file(ino)
            && let Some(git) = self.git_node(ino)
        {
            // It changes when the new content is written.
            return self.in_git(Operation::SetAttr, ino, || {
                let (attr, _) = git.getattr(ino)?;
                Ok((Attr { size: 0, ..attr }, Duration::ZERO))
            });
        }
        if let Some(git) = self.git_node(ino) {
            // A change that is replayed is there already.
            let is_replayed = self.replay.replayed_by(caller).is_some();
            return self.in_git(Operation::SetAttr, ino, || {
                let (attr, keeps) = if is_replayed {
                    git.getattr(ino)?
                } else {
                    git.setattr(ino, set)?
                };
                Ok((attr, dot_git::ttl(keeps)))
            });
        }
        let replayed = self.replayed(caller, (Operation::SetAttr, ino), |replay, worker| {
            replay.acknowledge(&self.workspace, worker, Act::SetAttributes(ino))?;
            Ok((self.with_time(self.workspace.getattr(ino)?), REMEMBER))
        });
        if let Some(answer) = replayed {
            return answer;
        }
        self.call(Operation::SetAttr, ino, |workspace| {
            let Some(overlay) = &self.overlay else {
                return Ok((workspace.setattr(caller, ino, set)?, REMEMBER));
            };
            if set.size.is_some() {
                self.check_is_file(overlay, caller, ino)?;
            }
            let file = workspace.file_of_text(ino)?;
            if set.mtime.is_some() {
                workspace.forget_uncovered(file);
            }
            let attr = workspace.setattr(caller, file, set)?;
            if file == ino {
                return Ok((workspace.uncovered(attr), REMEMBER));
            }
            workspace.announce_shown(&[file]);
            Ok((workspace.getattr_of_text(ino)?, Duration::ZERO))
        })
    }

    /// Checks access. `mask` is that of access(2).
    pub(crate) fn access(&self, ino: Ino, mask: i32) -> Answer<()> {
        // The kernel sends this only if it does not check permissions, for a process that may read
        // and write everything.
        if let Some(git) = self.git_node(ino) {
            return self.in_git(Operation::Access, ino, || match mask & libc::X_OK {
                0 => Ok(()),
                _ => git.check_executable(ino),
            });
        }
        self.call(Operation::Access, ino, |workspace| {
            match mask & libc::X_OK {
                0 => Ok(()),
                _ => Ok(workspace.check_executable(self.file(ino)?)?),
            }
        })
    }

    /// Returns the statistics of the file system.
    pub(crate) fn statfs(&self, ino: Ino) -> Answer<StatFs> {
        if let Some(git) = self.git_node(ino) {
            return self.in_git(Operation::StatFs, ino, || git.statfs());
        }
        self.call(Operation::StatFs, ino, |workspace| Ok(workspace.statfs()?))
    }

    /// Sets an extended attribute. `flags` are those of setxattr(2).
    pub(crate) fn setxattr(
        &self,
        caller: Caller,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        flags: i32,
    ) -> Answer<()> {
        // The kernel removes privileges before it changes a file. The replayed change has done so.
        if self.replay.replayed_by(caller).is_some() {
            return Ok(());
        }
        if let Some(git) = self.git_node(ino) {
            return self.in_git(Operation::SetXattr, ino, || {
                git.setxattr(ino, name, value, flags)
            });
        }
        self.call(Operation::SetXattr, ino, |workspace| {
            let mode = convert::xattr_mode(flags)?;
            Ok(workspace.setxattr(caller, self.file(ino)?, name, value, mode)?)
        })
    }

    /// Reads an extended attribute into a buffer of `size` bytes.
    pub(crate) fn getxattr(
        &self,
        caller: Caller,
        ino: Ino,
        name: &[u8],
        size: u32,
    ) -> Answer<XattrAnswer> {
        if let Some(git) = self.git_node(ino) {
            let value = self.in_git(Operation::GetXattr, ino, || git.getxattr(ino, name))?;
            return convert::xattr_answer(value, size);
        }
        self.call(Operation::GetXattr, ino, |workspace| {
            let value = workspace.getxattr(caller, self.file(ino)?, name)?;
            Ok(convert::xattr_answer(value, size)?)
        })
    }

    /// Lists the names of extended attributes.
    ///
    /// A zero byte follows each name. `size` is that of the caller's buffer.
    pub(crate) fn listxattr(&self, caller: Caller, ino: Ino, size: u32) -> Answer<XattrAnswer> {
        if let Some(git) = self.git_node(ino) {
            let names = self.in_git(Operation::ListXattr, ino, || git.listxattr(ino))?;
            return convert::xattr_answer(names, size);
        }
        self.call(Operation::ListXattr, ino, |workspace| {
            let mut list = Vec::new();
            for name in workspace.listxattr(caller, self.file(ino)?)? {
                list.extend_from_slice(&name);
                list.push(0);
            }
            Ok(convert::xattr_answer(list, size)?)
        })
    }

    /// Removes an extended attribute.
    pub(crate) fn removexattr(&self, caller: Caller, ino: Ino, name: &[u8]) -> Answer<()> {
        // The kernel removes privileges before it changes a file. The replayed change has done so.
        if self.replay.replayed_by(caller).is_some() {
            return Ok(());
        }
        if let Some(git) = self.git_node(ino) {
            return self.in_git(Operation::RemoveXattr, ino, || git.removexattr(ino, name));
        }
        self.call(Operation::RemoveXattr, ino, |workspace| {
            Ok(workspace.removexattr(caller, self.file(ino)?, name)?)
        })
    }

    /// Gets or sets inode flags, and returns the bytes for the program.
    pub(crate) fn ioctl(
        &self,
        caller: Caller,
        ino: Ino,
        command: u32,
        data: &[u8],
    ) -> Answer<Vec<u8>> {
        if self.replay.replayed_by(caller).is_some() {
            return Err(Errno::EPERM);
        }
        if self.git_node(ino).is_some() {
            return Err(Errno::ENOTTY);
        }
        self.call(Operation::Ioctl, ino, |workspace| {
            let ino = self.file(ino)?;
            Ok(match ioctl::decode(command, data)? {
                Ioctl::GetFlags => ioctl::flags(workspace.flags(ino)?),
                Ioctl::GetExtended => ioctl::extended(workspace.flags(ino)?),
                Ioctl::SetFlags(flags) => {
                    workspace.set_flags(caller, ino, flags)?;
                    Vec::new()
                }
                Ioctl::SetExtended(flags) => {
                    let kept = workspace.flags(ino)?.intersection(InodeFlags::DIRSYNC);
                    workspace.set_flags(caller, ino, flags.union(kept))?;
                    Vec::new()
                }
            })
        })
    }
}
