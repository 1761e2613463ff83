//! The system calls of a writer: carried out in a directory, and what each one means for the tree.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, RenameFlags, Timespec, Timestamps, Uid,
    XattrFlags,
};
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};

use super::tree::{Kind, Time, Tree};

/// One change, of which the system says once that it happened.
#[derive(Debug, Clone)]
pub enum Change {
    Create(String),
    Write {
        path: String,
        offset: usize,
        data: Vec<u8>,
    },
    /// Through a shared mapping, then `msync`.
    WriteMapped {
        path: String,
        offset: usize,
        data: Vec<u8>,
    },
    Truncate(String, usize),
    /// `fallocate`; `mode` says what of.
    Allocate {
        path: String,
        mode: AllocateMode,
        offset: usize,
        len: usize,
    },
    CopyRange {
        from: String,
        to: String,
        from_offset: usize,
        to_offset: usize,
        len: usize,
    },
    Rename(String, String),
    Exchange(String, String),
    Unlink(String),
    Mkdir(String),
    Rmdir(String),
    Symlink(String, Vec<u8>),
    Link(String, String),
    Fifo(String),
    Device(String, u64),
    Chmod(String, u32),
    Chown(String, u32, u32),
    SetTimes(String, Time, Time),
    SetXattr(String, String, Vec<u8>),
    RemoveXattr(String, String),
    Sync(String),
}

#[derive(Debug, Clone, Copy)]
pub enum AllocateMode {
    Grow,
    KeepSize,
    Punch,
    Zero,
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

impl Change {
    /// Whether this system user may do it at all.
    pub fn needs_root(&self) -> bool {
        matches!(self, Change::Chown(..) | Change::Device(..))
    }

    pub fn carry_out(&self, dir: &Path) -> io::Result<()> {
        let at = |path: &str| dir.join(path);
        match self {
            Change::Create(path) => {
                OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .open(at(path))?;
            }
            Change::Write { path, offset, data } => {
                open(&at(path))?.write_all_at(data, *offset as u64)?
            }
            Change::WriteMapped { path, offset, data } => write_mapped(&at(path), *offset, data)?,
            Change::Truncate(path, size) => open(&at(path))?.set_len(*size as u64)?,
            Change::Allocate {
                path,
                mode,
                offset,
                len,
            } => {
                let flags = match mode {
                    AllocateMode::Grow => FallocateFlags::empty(),
                    AllocateMode::KeepSize => FallocateFlags::KEEP_SIZE,
                    AllocateMode::Punch => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                    AllocateMode::Zero => FallocateFlags::ZERO_RANGE,
                };
                rustix::fs::fallocate(open(&at(path))?, flags, *offset as u64, *len as u64)?;
            }
            Change::CopyRange {
                from,
                to,
                from_offset,
                to_offset,
                len,
            } => {
                let (from, to) = (File::open(at(from))?, open(&at(to))?);
                let (mut from_at, mut to_at) = (*from_offset as u64, *to_offset as u64);
                let end = from_at + *len as u64;
                while from_at < end {
                    let left = (end - from_at) as usize;
                    rustix::fs::copy_file_range(
                        &from,
                        Some(&mut from_at),
                        &to,
                        Some(&mut to_at),
                        left,
                    )?;
                }
            }
            Change::Rename(from, to) => fs::rename(at(from), at(to))?,
            Change::Exchange(one, other) => {
                rustix::fs::renameat_with(CWD, at(one), CWD, at(other), RenameFlags::EXCHANGE)?;
            }
            Change::Unlink(path) => fs::remove_file(at(path))?,
            Change::Mkdir(path) => fs::create_dir(at(path))?,
            Change::Rmdir(path) => fs::remove_dir(at(path))?,
            Change::Symlink(path, target) => rustix::fs::symlink(target.as_slice(), at(path))?,
            Change::Link(from, to) => fs::hard_link(at(from), at(to))?,
            Change::Fifo(path) => make_node(&at(path), FileType::Fifo, 0)?,
            Change::Device(path, number) => {
                make_node(&at(path), FileType::CharacterDevice, *number)?
            }
            Change::Chmod(path, perm) => rustix::fs::chmod(at(path), Mode::from_raw_mode(*perm))?,
            Change::Chown(path, uid, gid) => {
                let (uid, gid) = (Uid::from_raw(*uid), Gid::from_raw(*gid));
                rustix::fs::chownat(
                    CWD,
                    at(path),
                    Some(uid),
                    Some(gid),
                    AtFlags::SYMLINK_NOFOLLOW,
                )?;
            }
            Change::SetTimes(path, access, modification) => {
                let spec = |time: &Time| Timespec {
                    tv_sec: time.0,
                    tv_nsec: time.1,
                };
                let times = Timestamps {
                    last_access: spec(access),
                    last_modification: spec(modification),
                };
                rustix::fs::utimensat(CWD, at(path), &times, AtFlags::SYMLINK_NOFOLLOW)?;
            }
            Change::SetXattr(path, name, value) => {
                rustix::fs::setxattr(at(path), name.as_str(), value, XattrFlags::empty())?;
            }
            Change::RemoveXattr(path, name) => rustix::fs::removexattr(at(path), name.as_str())?,
            Change::Sync(path) => open(&at(path))?.sync_all()?,
        }
        Ok(())
    }

    pub fn apply(&self, tree: &mut Tree) {
        match self {
            Change::Create(path) => tree.add(path, Kind::File(Vec::new())),
            Change::Write { path, offset, data } | Change::WriteMapped { path, offset, data } => {
                tree.change_content(path, |content| put(content, *offset, data));
            }
            Change::Truncate(path, size) => {
                tree.change_content(path, |content| content.resize(*size, 0))
            }
            Change::Allocate {
                path,
                mode,
                offset,
                len,
            } => tree.change_content(path, |content| {
                let end = offset + len;
                match mode {
                    AllocateMode::KeepSize => {}
                    AllocateMode::Grow => content.resize(content.len().max(end), 0),
                    AllocateMode::Zero | AllocateMode::Punch => {
                        if matches!(mode, AllocateMode::Zero) {
                            content.resize(content.len().max(end), 0);
                        }
                        let end = end.min(content.len());
                        content[(*offset).min(end)..end].fill(0);
                    }
                }
            }),
            Change::CopyRange {
                from,
                to,
                from_offset,
                to_offset,
                len,
            } => {
                let data = tree.content(from)[*from_offset..from_offset + len].to_vec();
                tree.change_content(to, |content| put(content, *to_offset, &data));
            }
            Change::Rename(from, to) => tree.rename(from, to),
            Change::Exchange(one, other) => tree.exchange(one, other),
            Change::Unlink(path) | Change::Rmdir(path) => tree.remove(path),
            Change::Mkdir(path) => tree.add(path, Kind::Dir),
            Change::Symlink(path, target) => tree.add(path, Kind::Symlink(target.clone())),
            Change::Link(from, to) => tree.link(from, to),
            Change::Fifo(path) => tree.add(path, Kind::Fifo),
            Change::Device(path, number) => tree.add(path, Kind::Device(*number)),
            Change::Chmod(path, perm) => tree.node_mut(path).perm = Some(*perm),
            Change::Chown(path, uid, gid) => tree.node_mut(path).owner = Some((*uid, *gid)),
            Change::SetTimes(path, access, modification) => {
                tree.node_mut(path).times = Some((*access, *modification));
            }
            Change::SetXattr(path, name, value) => {
                tree.node_mut(path)
                    .xattrs
                    .insert(name.clone(), value.clone());
            }
            Change::RemoveXattr(path, name) => {
                tree.node_mut(path).xattrs.remove(name);
            }
            Change::Sync(_) => {}
        }
    }

    /// The file whose bytes it changes, which the kernel may do in pieces.
    pub fn written(&self) -> Option<&str> {
        match self {
            Change::Write { path, .. }
            | Change::WriteMapped { path, .. }
            | Change::Truncate(path, _)
            | Change::Allocate { path, .. }
            | Change::CopyRange { to: path, .. } => Some(path),
            _ => None,
        }
    }
}

fn put(content: &mut Vec<u8>, offset: usize, data: &[u8]) {
    if content.len() < offset + data.len() {
        content.resize(offset + data.len(), 0);
    }
    content[offset..offset + data.len()].copy_from_slice(data);
}

fn make_node(path: &Path, kind: FileType, number: u64) -> io::Result<()> {
    Ok(rustix::fs::mknodat(
        CWD,
        path,
        kind,
        Mode::from_raw_mode(0o644),
        number,
    )?)
}

/// Writes within the file's length through a shared mapping. The bytes go through `/proc/self/mem`:
/// a page that cannot be read, because the daemon is gone, is an error there and no SIGBUS.
fn write_mapped(path: &Path, offset: usize, data: &[u8]) -> io::Result<()> {
    let file = open(path)?;
    let len = offset + data.len();
    // SAFETY: the kernel chooses the place; nothing in this process knows the mapping but this
    // function.
    let memory = unsafe {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        rustix::mm::mmap(
            std::ptr::null_mut(),
            len,
            access,
            MapFlags::SHARED,
            &file,
            0,
        )?
    };
    let written = OpenOptions::new()
        .write(true)
        .open("/proc/self/mem")
        .and_then(|mem| mem.write_all_at(data, (memory as usize + offset) as u64));
    let result = written.and_then(|()| {
        // SAFETY: the mapping is whole until it is unmapped below.
        Ok(unsafe { rustix::mm::msync(memory, len, MsyncFlags::SYNC) }?)
    });
    // SAFETY: as above; nothing refers to the mapping any more.
    unsafe { rustix::mm::munmap(memory, len) }?;
    result
}

/// The extended attributes of the user's namespace.
pub fn xattrs(path: &Path) -> io::Result<BTreeMap<String, Vec<u8>>> {
    let mut names = vec![0; 64 << 10];
    let len = rustix::fs::listxattr(path, &mut names)?;
    names[..len]
        .split(|byte| *byte == 0)
        .filter_map(|name| {
            std::str::from_utf8(name)
                .ok()
                .filter(|name| name.starts_with("user."))
        })
        .map(|name| {
            let mut value = vec![0; 64 << 10];
            let len = rustix::fs::getxattr(path, name, &mut value)?;
            value.truncate(len);
            Ok((name.to_owned(), value))
        })
        .collect()
}
