//! Carries out steps on a [`Workspace`], as the kernel would ask for them: by inode number, with
//! lookups counted and given back.

use std::collections::BTreeMap;
use std::sync::Arc;

use tine::attr::{Attr, FileKind, Ino};
use tine::layer::contents::SeekWhence;
use tine::path::RepoPath;
use tine::workspace::{
    Caller, FallocateMode, FsError, RenameMode, SetAttr, SetTime, Workspace, XattrMode,
};

use super::steps::{Fallocate, Outcome, Path, Seen, Sight, Step, Subject, joined};

/// A workspace without a mount.
pub struct ByInode {
    workspace: Arc<Workspace>,
    caller: Caller,
    /// Lookups not given back yet.
    held: Vec<Ino>,
}

impl ByInode {
    pub fn new(workspace: Arc<Workspace>) -> ByInode {
        // SAFETY: these calls touch no memory.
        let (uid, gid) = unsafe { (libc::getuid(), libc::getgid()) };
        ByInode {
            workspace,
            caller: Caller::new(uid, gid),
            held: Vec::new(),
        }
    }

    fn hold(&mut self, attr: Attr) -> Attr {
        self.held.push(attr.ino);
        attr
    }

    fn lookup(&mut self, dir: Ino, name: &[u8]) -> Result<Attr, FsError> {
        let attr = self.workspace.lookup(dir, name)?;
        Ok(self.hold(attr))
    }

    /// Follows no symlinks. The kernel refuses to look beneath what is not a directory, so that is
    /// done here.
    fn walk(&mut self, path: &[Vec<u8>]) -> Result<Attr, FsError> {
        let mut at = self.workspace.getattr(Ino::ROOT)?;
        for name in path {
            if at.kind != FileKind::Directory {
                return Err(FsError::NotADirectory);
            }
            at = self.lookup(at.ino, name)?;
        }
        Ok(at)
    }

    fn parent<'p>(&mut self, path: &'p Path) -> Result<(Ino, &'p [u8]), FsError> {
        let (name, above) = path.split_last().expect("no step is about the root");
        let dir = self.walk(above)?;
        match dir.kind {
            FileKind::Directory => Ok((dir.ino, name)),
            _ => Err(FsError::NotADirectory),
        }
    }

    /// A regular file, as opening it for writing would find it.
    fn file(&mut self, path: &Path) -> Result<Attr, FsError> {
        let attr = self.walk(path)?;
        match attr.kind {
            FileKind::Regular => Ok(attr),
            FileKind::Directory => Err(FsError::IsADirectory),
            _ => Err(FsError::SymlinkLoop),
        }
    }

    fn run(&mut self, step: &Step) -> Result<Outcome, FsError> {
        let caller = self.caller;
        let workspace = self.workspace.clone();
        match step {
            Step::Create { path, perm } => {
                let (dir, name) = self.parent(path)?;
                let attr =
                    workspace.mknod(caller, dir, name, libc::S_IFREG | u32::from(*perm), 0)?;
                self.hold(attr);
            }
            Step::Mkdir { path, perm } => {
                let (dir, name) = self.parent(path)?;
                let attr = workspace.mkdir(caller, dir, name, u32::from(*perm))?;
                self.hold(attr);
            }
            Step::Symlink { path, target } => {
                let (dir, name) = self.parent(path)?;
                let attr = workspace.symlink(caller, dir, name, target)?;
                self.hold(attr);
            }
            Step::Fifo { path } => {
                let (dir, name) = self.parent(path)?;
                let attr = workspace.mknod(caller, dir, name, libc::S_IFIFO | 0o644, 0)?;
                self.hold(attr);
            }
            Step::Write { path, offset, data } => {
                let file = self.file(path)?;
                workspace.write(file.ino, *offset, data, None)?;
            }
            Step::Append { path, data } => {
                let file = self.file(path)?;
                workspace.write(file.ino, file.size, data, None)?;
            }
            Step::Truncate { path, size } => {
                let file = self.file(path)?;
                let set = SetAttr {
                    size: Some(*size),
                    ..SetAttr::default()
                };
                assert_eq!(workspace.setattr(caller, file.ino, &set)?.size, *size);
            }
            Step::Rmdir { path } => {
                let (dir, name) = self.parent(path)?;
                workspace.rmdir(caller, dir, name)?;
            }
            Step::Unlink { path } => {
                let (dir, name) = self.parent(path)?;
                workspace.unlink(caller, dir, name)?;
            }
            Step::UnlinkWhileOpen { path, data } => {
                let file = self.file(path)?;
                let (dir, name) = self.parent(path)?;
                workspace.unlink(caller, dir, name)?;
                let unlinked = workspace.getattr(file.ino)?;
                assert_eq!(unlinked.nlink, file.nlink - 1, "links after unlinking");
                workspace.write(file.ino, unlinked.size, data, None)?;
                let content =
                    workspace.read(file.ino, 0, unlinked.size as usize + data.len() + 1)?;
                return Ok(Outcome::Data(content));
            }
            Step::Rename { from, to, mode } => {
                let (from_dir, from_name) = self.parent(from)?;
                let (to_dir, to_name) = self.parent(to)?;
                // The kernel finds both names before it looks at how they stand to each other.
                self.lookup(from_dir, from_name)?;
                match (mode, self.lookup(to_dir, to_name)) {
                    (RenameMode::NoReplace, Ok(_)) => return Err(FsError::Exists),
                    (RenameMode::Exchange, Err(error)) => return Err(error),
                    // And it never asks to put something in the place of a directory above it.
                    (RenameMode::Replace, Ok(_))
                        if from.len() > to.len() && from.starts_with(to) =>
                    {
                        return Err(FsError::NotEmpty);
                    }
                    _ => {}
                }
                workspace.rename(caller, from_dir, from_name, to_dir, to_name, *mode)?;
            }
            Step::Link { from, to } => {
                let node = self.walk(from)?;
                let (dir, name) = self.parent(to)?;
                // The kernel looks at the new name before it looks at what is linked.
                if node.kind == FileKind::Directory && self.lookup(dir, name).is_ok() {
                    return Err(FsError::Exists);
                }
                let attr = workspace.link(caller, node.ino, dir, name)?;
                assert_eq!(attr.ino, node.ino, "a link is the same node");
                self.hold(attr);
            }
            Step::Chmod { path, perm } => {
                let node = self.walk(path)?;
                let set = SetAttr {
                    perm: Some(*perm),
                    ..SetAttr::default()
                };
                workspace.setattr(caller, node.ino, &set)?;
            }
            Step::Utimens { path, mtime } => {
                let node = self.walk(path)?;
                let set = SetAttr {
                    mtime: Some(SetTime::At(*mtime)),
                    ..SetAttr::default()
                };
                workspace.setattr(caller, node.ino, &set)?;
            }
            Step::SetXattr { path, name, value } => {
                let node = self.walk(path)?;
                workspace.setxattr(caller, node.ino, name, value, XattrMode::Set)?;
            }
            Step::RemoveXattr { path, name } => {
                let node = self.walk(path)?;
                workspace.removexattr(caller, node.ino, name)?;
            }
            Step::Fallocate {
                path,
                kind,
                offset,
                len,
            } => {
                let file = self.file(path)?;
                let mode = match kind {
                    Fallocate::Allocate => FallocateMode::Allocate { keep_size: false },
                    Fallocate::AllocateKeepingSize => FallocateMode::Allocate { keep_size: true },
                    Fallocate::PunchHole => FallocateMode::PunchHole,
                    Fallocate::ZeroRange => FallocateMode::ZeroRange { keep_size: false },
                    Fallocate::ZeroRangeKeepingSize => FallocateMode::ZeroRange { keep_size: true },
                };
                workspace.fallocate(file.ino, *offset, *len, mode, None)?;
            }
            Step::CopyRange {
                from,
                from_offset,
                to,
                to_offset,
                len,
            } => {
                let to = self.file(to)?;
                let from = self.file(from)?;
                workspace.copy_range(from.ino, *from_offset, to.ino, *to_offset, *len, None)?;
            }
            Step::Read { path, offset, len } => {
                let file = self.file(path)?;
                return Ok(Outcome::Data(workspace.read(
                    file.ino,
                    *offset,
                    *len as usize,
                )?));
            }
            Step::List { path } => {
                let dir = self.walk(path)?;
                if dir.kind != FileKind::Directory {
                    return Err(FsError::NotADirectory);
                }
                let listed = self.list(dir.ino, path.is_empty())?;
                return Ok(Outcome::Names(
                    listed
                        .into_iter()
                        .map(|(name, (kind, _))| (name, kind))
                        .collect(),
                ));
            }
            Step::Commit | Step::Reopen => {}
        }
        Ok(Outcome::Done)
    }

    /// Lists three entries at a time, as a small buffer would, without `.`, `..` and the root's
    /// `.git`.
    fn list(
        &mut self,
        dir: Ino,
        is_root: bool,
    ) -> Result<BTreeMap<Vec<u8>, (FileKind, Ino)>, FsError> {
        let mut found = BTreeMap::new();
        let mut cookie = 0;
        loop {
            let mut taken = Vec::new();
            self.workspace.readdir(dir, cookie, &mut |entry| {
                if taken.len() == 3 {
                    return false;
                }
                taken.push(entry);
                true
            })?;
            let Some(last) = taken.last() else { break };
            cookie = last.cookie;
            for entry in taken {
                let name = entry.name.as_bytes().to_vec();
                if is_root && name == b".git" {
                    continue;
                }
                let twice = found.insert(name, (entry.kind, entry.ino)).is_some();
                assert!(!twice, "a listing names {} twice", entry.name);
            }
        }
        Ok(found)
    }

    fn look(&mut self, path: &mut Path, sight: &mut Sight) -> Result<(), FsError> {
        let attr = self.walk(path)?;
        let repo_path = RepoPath::parse(joined(path)).expect("a listed path is valid");
        assert_eq!(
            self.workspace.resolve(&repo_path)?,
            attr,
            "resolve and lookup agree on {repo_path}"
        );
        let content = match attr.kind {
            FileKind::Regular => {
                let content = self.workspace.read(attr.ino, 0, attr.size as usize + 10)?;
                assert_eq!(
                    self.workspace.read_path(&repo_path)?,
                    content,
                    "both readings of {repo_path}"
                );
                self.check_holes(attr.ino, &content)?;
                content
            }
            FileKind::Symlink => self.workspace.readlink(attr.ino)?,
            _ => Vec::new(),
        };
        let mut xattrs = BTreeMap::new();
        for name in self.workspace.listxattr(self.caller, attr.ino)? {
            let value = self.workspace.getxattr(self.caller, attr.ino, &name)?;
            xattrs.insert(name, value);
        }
        let has_size = matches!(attr.kind, FileKind::Regular | FileKind::Symlink);
        let seen = Seen {
            kind: attr.kind,
            perm: attr.perm,
            nlink: attr.nlink,
            size: if has_size { attr.size } else { 0 },
            content,
            xattrs,
            mtime: Some(attr.mtime),
            node: attr.ino.0,
        };
        sight.insert(joined(path), seen);
        if attr.kind == FileKind::Directory {
            for (name, (kind, ino)) in self.list(attr.ino, path.is_empty())? {
                path.push(name);
                let child = self.walk(path)?;
                assert_eq!(
                    (child.kind, child.ino),
                    (kind, ino),
                    "listing and lookup agree on {path:?}"
                );
                self.look(path, sight)?;
                path.pop();
            }
        }
        Ok(())
    }

    /// Every hole that the file claims to have must read as zeros.
    fn check_holes(&self, ino: Ino, content: &[u8]) -> Result<(), FsError> {
        let size = content.len() as u64;
        let mut at = 0;
        while at < size {
            let data = match self.workspace.seek(ino, at, SeekWhence::Data) {
                Ok(data) => data,
                Err(FsError::NoSuchOffset) => size,
                Err(error) => return Err(error),
            };
            let hole = &content[at as usize..data as usize];
            assert!(
                hole.iter().all(|&b| b == 0),
                "the hole {at}..{data} holds data"
            );
            if data == size {
                break;
            }
            at = self.workspace.seek(ino, data, SeekWhence::Hole)?;
            assert!(at > data, "after data at {data} comes a hole, not {at}");
        }
        Ok(())
    }

    /// The number of the regular file at `path`, held as by a program that has it open.
    pub fn hold_open(&mut self, path: &Path) -> Option<Ino> {
        let found = self.file(path).ok().filter(|_| !path.is_empty());
        if found.is_some() {
            self.held.pop();
        }
        self.give_back();
        found.map(|attr| attr.ino)
    }

    /// All bytes of a file that is held open, and how many names it has.
    pub fn read_open(&self, ino: Ino) -> (Vec<u8>, u32) {
        let attr = self.workspace.getattr(ino).expect("an open file is there");
        let content = self.workspace.read(ino, 0, attr.size as usize + 10);
        (content.expect("an open file can be read"), attr.nlink)
    }

    /// Writes to a file that is held open.
    pub fn write_open(&self, ino: Ino, offset: u64, data: &[u8]) {
        let written = self.workspace.write(ino, offset, data, None);
        written.expect("an open file can be written");
    }

    pub fn close(&self, ino: Ino) {
        self.workspace.forget(ino, 1);
    }

    fn give_back(&mut self) {
        for ino in self.held.drain(..) {
            self.workspace.forget(ino, 1);
        }
    }
}

impl Subject for ByInode {
    fn apply(&mut self, step: &Step) -> Outcome {
        let outcome = match self.run(step) {
            Ok(outcome) => outcome,
            Err(error) => Outcome::Failed(errno(&error)),
        };
        self.give_back();
        outcome
    }

    fn sight(&mut self) -> Sight {
        let mut sight = Sight::new();
        self.look(&mut Vec::new(), &mut sight)
            .unwrap_or_else(|error| panic!("the workspace cannot be looked at: {error}"));
        self.give_back();
        sight
    }
}

/// What the kernel would be told.
fn errno(error: &FsError) -> i32 {
    match error {
        FsError::NotFound => libc::ENOENT,
        FsError::Exists => libc::EEXIST,
        FsError::NotADirectory => libc::ENOTDIR,
        FsError::IsADirectory => libc::EISDIR,
        FsError::NotEmpty => libc::ENOTEMPTY,
        FsError::NotPermitted => libc::EPERM,
        FsError::Invalid => libc::EINVAL,
        FsError::NameTooLong => libc::ENAMETOOLONG,
        FsError::SymlinkLoop => libc::ELOOP,
        FsError::NoAttribute => libc::ENODATA,
        other => panic!("no step may fail with: {other}"),
    }
}
