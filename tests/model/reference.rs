//! A file system in memory, as small and as obviously right as can be: what POSIX says, with
//! Linux's choice of errno.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;

use libc::{
    EEXIST, EINVAL, EISDIR, ELOOP, ENAMETOOLONG, ENODATA, ENOENT, ENOTDIR, ENOTEMPTY, EPERM,
};
use tine::attr::{FileKind, Timestamp};
use tine::workspace::RenameMode;

use super::steps::{Fallocate, Outcome, Path, Seen, Sight, Step, Subject, joined};

type NodeId = u64;
const ROOT: NodeId = 0;

#[derive(Debug, Clone)]
enum Body {
    File(Vec<u8>),
    Dir(BTreeMap<Vec<u8>, NodeId>),
    Symlink(Vec<u8>),
    Fifo,
}

#[derive(Debug, Clone)]
struct Node {
    body: Body,
    perm: u16,
    /// `None` once something changed it to a time that the reference does not know.
    mtime: Option<Timestamp>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// The model. Nodes are never removed, so that their numbers are never used again.
#[derive(Debug, Clone)]
pub struct Reference {
    nodes: Vec<Node>,
}

impl Reference {
    /// What is in `dir` on the disk, without `.git`, with every time at `time` and modes as a
    /// checkout has them.
    pub fn read(dir: &std::path::Path, time: Timestamp) -> Reference {
        let mut reference = Reference { nodes: Vec::new() };
        reference.add(Body::Dir(BTreeMap::new()), 0o755, Some(time));
        reference.read_dir(ROOT, dir, time);
        reference
    }

    fn read_dir(&mut self, parent: NodeId, dir: &std::path::Path, time: Timestamp) {
        for entry in fs::read_dir(dir).expect("the checkout can be read") {
            let entry = entry.expect("the checkout can be read");
            if entry.file_name() == ".git" {
                continue;
            }
            let path = entry.path();
            let meta = entry.metadata().expect("the entry was just listed");
            let id = if meta.is_dir() {
                let id = self.add(Body::Dir(BTreeMap::new()), 0o755, Some(time));
                self.read_dir(id, &path, time);
                id
            } else if meta.is_symlink() {
                let target = fs::read_link(&path).expect("the entry was just listed");
                self.add(
                    Body::Symlink(target.into_os_string().into_vec()),
                    0o777,
                    Some(time),
                )
            } else {
                let content = fs::read(&path).expect("the entry was just listed");
                let executable = meta.permissions().mode() & 0o100 != 0;
                self.add(
                    Body::File(content),
                    if executable { 0o755 } else { 0o644 },
                    Some(time),
                )
            };
            self.children_mut(parent)
                .insert(entry.file_name().as_bytes().to_vec(), id);
        }
    }

    /// The steps that make this content in an empty directory.
    pub fn building_steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut times = Vec::new();
        for path in self.paths() {
            let node = &self.nodes[self.walk(&path).expect("it is listed") as usize];
            let made = path.clone();
            match &node.body {
                Body::Dir(_) => steps.push(Step::Mkdir {
                    path: made,
                    perm: node.perm,
                }),
                Body::Symlink(target) => steps.push(Step::Symlink {
                    path: made,
                    target: target.clone(),
                }),
                Body::Fifo => steps.push(Step::Fifo { path: made }),
                Body::File(content) => {
                    steps.push(Step::Create {
                        path: made.clone(),
                        perm: 0o644,
                    });
                    if !content.is_empty() {
                        steps.push(Step::Write {
                            path: made.clone(),
                            offset: 0,
                            data: content.clone(),
                        });
                    }
                    steps.push(Step::Chmod {
                        path: made,
                        perm: node.perm,
                    });
                }
            }
            if let Some(mtime) = node.mtime {
                times.push(Step::Utimens { path, mtime });
            }
        }
        steps.extend(times);
        steps
    }

    /// Which node is at `path`.
    pub fn node_at(&self, path: &Path) -> Option<u64> {
        self.walk(path).ok()
    }

    pub fn is_file(&self, node: u64) -> bool {
        matches!(self.nodes[node as usize].body, Body::File(_))
    }

    /// The bytes of a regular file, whether it has a name or not.
    /// A file has another modification time by now.
    pub fn note_mtime(&mut self, node: u64, mtime: Option<Timestamp>) {
        self.nodes[node as usize].mtime = mtime;
    }

    pub fn content(&self, node: u64) -> &[u8] {
        match &self.nodes[node as usize].body {
            Body::File(content) => content,
            other => panic!("{other:?} is not a regular file"),
        }
    }

    /// Whether a path leads to the node.
    pub fn has_name(&self, node: u64) -> bool {
        self.paths().iter().any(|path| self.walk(path) == Ok(node))
    }

    /// Writes to a file through a descriptor.
    pub fn write_node(&mut self, node: u64, offset: u64, data: &[u8]) {
        let node = &mut self.nodes[node as usize];
        node.mtime = None;
        match &mut node.body {
            Body::File(content) => put(content, offset as usize, data),
            other => panic!("{other:?} is not a regular file"),
        }
    }

    /// How many nodes there were.
    pub fn made(&self) -> usize {
        self.nodes.len()
    }

    /// Lets new nodes have numbers that nobody had in a past that was `made` nodes long.
    pub fn forget_numbers_below(&mut self, made: usize) {
        while self.nodes.len() < made {
            self.add(Body::Fifo, 0, None);
        }
    }

    /// Every path but the root, parents first.
    pub fn paths(&self) -> Vec<Path> {
        let mut found = Vec::new();
        self.collect(ROOT, &mut Vec::new(), &mut found);
        found
    }

    /// Every directory, the root first.
    pub fn dirs(&self) -> Vec<Path> {
        let mut dirs = vec![Vec::new()];
        dirs.extend(self.paths().into_iter().filter(|path| self.is_dir(path)));
        dirs
    }

    pub fn is_dir(&self, path: &Path) -> bool {
        self.body(path)
            .is_some_and(|body| matches!(body, Body::Dir(_)))
    }

    /// The paths of fifos.
    pub fn fifos(&self) -> Vec<Path> {
        let mut paths = self.paths();
        paths.retain(|path| {
            self.body(path)
                .is_some_and(|body| matches!(body, Body::Fifo))
        });
        paths
    }

    fn collect(&self, dir: NodeId, at: &mut Path, found: &mut Vec<Path>) {
        for (name, id) in self.children(dir) {
            at.push(name.clone());
            found.push(at.clone());
            if matches!(self.nodes[*id as usize].body, Body::Dir(_)) {
                self.collect(*id, at, found);
            }
            at.pop();
        }
    }

    /// Whether the step is one that every subject can carry out and that has one right answer.
    pub fn is_meaningful(&self, step: &Step) -> bool {
        let is = |path: &Path, wanted: fn(&Body) -> bool| self.body(path).is_none_or(wanted);
        let no_fifo: fn(&Body) -> bool = |body| !matches!(body, Body::Fifo);
        let regular: fn(&Body) -> bool = |body| matches!(body, Body::File(_));
        match step {
            // Opening a fifo waits for the other side.
            Step::Write { path, .. } | Step::Append { path, .. } | Step::Truncate { path, .. } => {
                is(path, no_fifo)
            }
            Step::Read { path, .. }
            | Step::UnlinkWhileOpen { path, .. }
            | Step::Fallocate { path, .. } => is(path, regular),
            // What a symlink's mode and user xattrs are, the kernel decides.
            Step::Chmod { path, .. } => is(path, |body| !matches!(body, Body::Symlink(_))),
            Step::SetXattr { path, .. } | Step::RemoveXattr { path, .. } => {
                is(path, |body| matches!(body, Body::File(_) | Body::Dir(_)))
            }
            Step::CopyRange {
                from,
                from_offset,
                to,
                to_offset,
                len,
            } => {
                is(from, regular)
                    && is(to, regular)
                    && (self.walk(from) != self.walk(to)
                        || from_offset + len <= *to_offset
                        || to_offset + len <= *from_offset)
            }
            _ => true,
        }
    }

    fn body(&self, path: &Path) -> Option<&Body> {
        let id = self.walk(path).ok()?;
        Some(&self.nodes[id as usize].body)
    }

    fn add(&mut self, body: Body, perm: u16, mtime: Option<Timestamp>) -> NodeId {
        self.nodes.push(Node {
            body,
            perm,
            mtime,
            xattrs: BTreeMap::new(),
        });
        self.nodes.len() as NodeId - 1
    }

    fn children(&self, dir: NodeId) -> &BTreeMap<Vec<u8>, NodeId> {
        match &self.nodes[dir as usize].body {
            Body::Dir(children) => children,
            other => panic!("{other:?} is not a directory"),
        }
    }

    fn children_mut(&mut self, dir: NodeId) -> &mut BTreeMap<Vec<u8>, NodeId> {
        match &mut self.nodes[dir as usize].body {
            Body::Dir(children) => children,
            other => panic!("{other:?} is not a directory"),
        }
    }

    /// Names in a directory change: so does its time.
    fn enter(&mut self, dir: NodeId, name: &[u8], id: Option<NodeId>) {
        self.nodes[dir as usize].mtime = None;
        match id {
            Some(id) => self.children_mut(dir).insert(name.to_vec(), id),
            None => self.children_mut(dir).remove(name),
        };
    }

    fn find(&self, dir: NodeId, name: &[u8]) -> Result<NodeId, i32> {
        match &self.nodes[dir as usize].body {
            Body::Dir(_) if name.len() > 255 => Err(ENAMETOOLONG),
            Body::Dir(children) => children.get(name).copied().ok_or(ENOENT),
            _ => Err(ENOTDIR),
        }
    }

    /// Follows no symlinks.
    fn walk(&self, path: &[Vec<u8>]) -> Result<NodeId, i32> {
        path.iter().try_fold(ROOT, |dir, name| self.find(dir, name))
    }

    /// The directory that holds the path's last name, and that name.
    fn parent<'p>(&self, path: &'p Path) -> Result<(NodeId, &'p [u8]), i32> {
        let (name, above) = path.split_last().expect("no step is about the root");
        let dir = self.walk(above)?;
        match self.nodes[dir as usize].body {
            Body::Dir(_) => Ok((dir, name)),
            _ => Err(ENOTDIR),
        }
    }

    /// Puts a new node at a free name.
    fn make(&mut self, path: &Path, body: Body, perm: u16) -> Result<Outcome, i32> {
        let (dir, name) = self.parent(path)?;
        match self.find(dir, name) {
            Ok(_) => return Err(EEXIST),
            Err(ENOENT) => {}
            Err(errno) => return Err(errno),
        }
        let id = self.add(body, perm, None);
        self.enter(dir, name, Some(id));
        Ok(Outcome::Done)
    }

    /// The content of the file at `path`, as opening it for writing would find it; its time is
    /// unknown from now on.
    fn content_mut(&mut self, path: &Path) -> Result<&mut Vec<u8>, i32> {
        let id = self.walk(path)?;
        let node = &mut self.nodes[id as usize];
        match &mut node.body {
            Body::File(content) => {
                node.mtime = None;
                Ok(content)
            }
            Body::Dir(_) => Err(EISDIR),
            Body::Symlink(_) => Err(ELOOP),
            Body::Fifo => unreachable!("no step opens a fifo"),
        }
    }

    fn run(&mut self, step: &Step) -> Result<Outcome, i32> {
        match step {
            Step::Create { path, perm } => self.make(path, Body::File(Vec::new()), *perm),
            Step::Mkdir { path, perm } => self.make(path, Body::Dir(BTreeMap::new()), *perm),
            Step::Symlink { path, target } => self.make(path, Body::Symlink(target.clone()), 0o777),
            Step::Fifo { path } => self.make(path, Body::Fifo, 0o644),
            Step::Write { path, offset, data } => {
                put(self.content_mut(path)?, *offset as usize, data);
                Ok(Outcome::Done)
            }
            Step::Append { path, data } => {
                self.content_mut(path)?.extend_from_slice(data);
                Ok(Outcome::Done)
            }
            Step::Truncate { path, size } => {
                self.content_mut(path)?.resize(*size as usize, 0);
                Ok(Outcome::Done)
            }
            Step::Fallocate {
                path,
                kind,
                offset,
                len,
            } => {
                let content = self.content_mut(path)?;
                fallocate(content, *kind, *offset as usize, *len as usize);
                Ok(Outcome::Done)
            }
            Step::CopyRange {
                from,
                from_offset,
                to,
                to_offset,
                len,
            } => {
                self.content_mut(to)?;
                let source = match self.body(from) {
                    Some(Body::File(content)) => content,
                    _ => {
                        return Err(self
                            .walk(from)
                            .expect_err("no step copies from anything else"));
                    }
                };
                let copied = slice(source, *from_offset, *len).to_vec();
                if !copied.is_empty() {
                    put(self.content_mut(to)?, *to_offset as usize, &copied);
                }
                Ok(Outcome::Done)
            }
            Step::Rmdir { path } => {
                let (dir, name) = self.parent(path)?;
                let id = self.find(dir, name)?;
                match &self.nodes[id as usize].body {
                    Body::Dir(children) if children.is_empty() => self.enter(dir, name, None),
                    Body::Dir(_) => return Err(ENOTEMPTY),
                    _ => return Err(ENOTDIR),
                }
                Ok(Outcome::Done)
            }
            Step::Unlink { path } => {
                let (dir, name) = self.parent(path)?;
                let id = self.find(dir, name)?;
                match &self.nodes[id as usize].body {
                    Body::Dir(_) => return Err(EISDIR),
                    _ => self.enter(dir, name, None),
                }
                Ok(Outcome::Done)
            }
            Step::UnlinkWhileOpen { path, data } => {
                self.content_mut(path)?.extend_from_slice(data);
                let content = self.content_mut(path)?.clone();
                let (dir, name) = self.parent(path)?;
                self.enter(dir, name, None);
                Ok(Outcome::Data(content))
            }
            Step::Rename { from, to, mode } => self.rename(from, to, *mode),
            Step::Link { from, to } => {
                let id = self.walk(from)?;
                let (dir, name) = self.parent(to)?;
                match self.find(dir, name) {
                    Ok(_) => return Err(EEXIST),
                    Err(ENOENT) => {}
                    Err(errno) => return Err(errno),
                }
                if matches!(self.nodes[id as usize].body, Body::Dir(_)) {
                    return Err(EPERM);
                }
                self.enter(dir, name, Some(id));
                Ok(Outcome::Done)
            }
            Step::Chmod { path, perm } => {
                let id = self.walk(path)?;
                self.nodes[id as usize].perm = *perm;
                Ok(Outcome::Done)
            }
            Step::Utimens { path, mtime } => {
                let id = self.walk(path)?;
                self.nodes[id as usize].mtime = Some(*mtime);
                Ok(Outcome::Done)
            }
            Step::SetXattr { path, name, value } => {
                let id = self.walk(path)?;
                self.nodes[id as usize]
                    .xattrs
                    .insert(name.clone(), value.clone());
                Ok(Outcome::Done)
            }
            Step::RemoveXattr { path, name } => {
                let id = self.walk(path)?;
                let removed = self.nodes[id as usize].xattrs.remove(name);
                removed.map(|_| Outcome::Done).ok_or(ENODATA)
            }
            Step::Read { path, offset, len } => match self.body(path) {
                Some(Body::File(content)) => {
                    Ok(Outcome::Data(slice(content, *offset, *len).to_vec()))
                }
                _ => Err(self.walk(path).expect_err("no step reads anything else")),
            },
            Step::List { path } => {
                let id = self.walk(path)?;
                match &self.nodes[id as usize].body {
                    Body::Dir(children) => Ok(Outcome::Names(
                        children
                            .iter()
                            .map(|(name, id)| (name.clone(), self.kind(*id)))
                            .collect(),
                    )),
                    _ => Err(ENOTDIR),
                }
            }
            // What is seen must be the same before and after.
            Step::Commit | Step::Reopen => Ok(Outcome::Done),
        }
    }

    fn rename(&mut self, from: &Path, to: &Path, mode: RenameMode) -> Result<Outcome, i32> {
        let (from_dir, from_name) = self.parent(from)?;
        let (to_dir, to_name) = self.parent(to)?;
        let moved = self.find(from_dir, from_name)?;
        let target = match self.find(to_dir, to_name) {
            Ok(_) if mode == RenameMode::NoReplace => return Err(EEXIST),
            Ok(target) => Some(target),
            Err(ENOENT) if mode == RenameMode::Exchange => return Err(ENOENT),
            Err(ENOENT) => None,
            Err(errno) => return Err(errno),
        };
        if to.len() > from.len() && to.starts_with(from) {
            return Err(EINVAL);
        }
        if from.len() > to.len() && from.starts_with(to) {
            return Err(if mode == RenameMode::Exchange {
                EINVAL
            } else {
                ENOTEMPTY
            });
        }
        if target == Some(moved) {
            return Ok(Outcome::Done);
        }
        if mode != RenameMode::Exchange
            && let Some(target) = target
        {
            match (
                &self.nodes[moved as usize].body,
                &self.nodes[target as usize].body,
            ) {
                (Body::Dir(_), Body::Dir(children)) if !children.is_empty() => {
                    return Err(ENOTEMPTY);
                }
                (Body::Dir(_), Body::Dir(_)) => {}
                (Body::Dir(_), _) => return Err(ENOTDIR),
                (_, Body::Dir(_)) => return Err(EISDIR),
                _ => {}
            }
        }
        self.enter(
            from_dir,
            from_name,
            target.filter(|_| mode == RenameMode::Exchange),
        );
        self.enter(to_dir, to_name, Some(moved));
        Ok(Outcome::Done)
    }

    fn kind(&self, id: NodeId) -> FileKind {
        match self.nodes[id as usize].body {
            Body::File(_) => FileKind::Regular,
            Body::Dir(_) => FileKind::Directory,
            Body::Symlink(_) => FileKind::Symlink,
            Body::Fifo => FileKind::Fifo,
        }
    }

    fn seen(&self, id: NodeId, nlink: u32) -> Seen {
        let node = &self.nodes[id as usize];
        let content = match &node.body {
            Body::File(bytes) | Body::Symlink(bytes) => bytes.clone(),
            Body::Dir(_) | Body::Fifo => Vec::new(),
        };
        Seen {
            kind: self.kind(id),
            perm: node.perm,
            nlink,
            size: content.len() as u64,
            content,
            xattrs: node.xattrs.clone(),
            mtime: node.mtime,
            node: id,
        }
    }
}

impl Subject for Reference {
    fn apply(&mut self, step: &Step) -> Outcome {
        self.run(step).unwrap_or_else(Outcome::Failed)
    }

    fn sight(&mut self) -> Sight {
        let mut links: BTreeMap<NodeId, u32> = BTreeMap::new();
        let mut paths = vec![Vec::new()];
        paths.extend(self.paths());
        for path in &paths {
            let id = self.walk(path).expect("it is listed");
            match &self.nodes[id as usize].body {
                Body::Dir(children) => {
                    let is_dir =
                        |id: &&NodeId| matches!(self.nodes[**id as usize].body, Body::Dir(_));
                    let subdirs = children.values().filter(is_dir).count();
                    links.insert(id, 2 + subdirs as u32);
                }
                _ => *links.entry(id).or_default() += 1,
            }
        }
        paths
            .iter()
            .map(|path| {
                let id = self.walk(path).expect("it is listed");
                (joined(path), self.seen(id, links[&id]))
            })
            .collect()
    }
}

/// The bytes at `offset`, at most `len`, fewer at the end.
fn slice(content: &[u8], offset: u64, len: u64) -> &[u8] {
    let from = (offset as usize).min(content.len());
    let to = (offset + len).min(content.len() as u64) as usize;
    &content[from..to]
}

/// Writes `data` at `offset`, with zeros in a gap before it.
fn put(content: &mut Vec<u8>, offset: usize, data: &[u8]) {
    let end = offset + data.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    content[offset..end].copy_from_slice(data);
}

fn fallocate(content: &mut Vec<u8>, kind: Fallocate, offset: usize, len: usize) {
    let end = offset + len;
    if matches!(kind, Fallocate::Allocate | Fallocate::ZeroRange) && content.len() < end {
        content.resize(end, 0);
    }
    if matches!(
        kind,
        Fallocate::PunchHole | Fallocate::ZeroRange | Fallocate::ZeroRangeKeepingSize
    ) {
        let size = content.len();
        content[offset.min(size)..end.min(size)].fill(0);
    }
}
