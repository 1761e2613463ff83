//! What a writer's directory must hold: a tree of nodes in memory, what each system call makes of
//! it, and how it is compared with what is found.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// Times of a node: seconds and nanoseconds.
pub type Time = (i64, i64);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    File(Vec<u8>),
    Dir,
    Symlink(Vec<u8>),
    Fifo,
    /// A character device of this number.
    Device(u64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub kind: Kind,
    /// `None` where nobody set it.
    pub perm: Option<u32>,
    pub owner: Option<(u32, u32)>,
    /// Access and modification; `None` once something changed the second.
    pub times: Option<(Time, Time)>,
    pub xattrs: BTreeMap<String, Vec<u8>>,
}

impl Node {
    pub fn new(kind: Kind) -> Node {
        Node {
            kind,
            perm: None,
            owner: None,
            times: None,
            xattrs: BTreeMap::new(),
        }
    }

    /// Whether `found` is what this node says, as far as it says it.
    fn fits(&self, found: &Node) -> bool {
        self.kind == found.kind
            && self.xattrs == found.xattrs
            && self.perm.is_none_or(|perm| found.perm == Some(perm))
            && self.owner.is_none_or(|owner| found.owner == Some(owner))
            && self.times.is_none_or(|times| found.times == Some(times))
    }
}

/// Paths relative to the writer's directory, and the nodes that they lead to: hard links to the
/// same one.
#[derive(Debug, Clone, Default)]
pub struct Tree {
    pub paths: BTreeMap<String, u64>,
    pub nodes: BTreeMap<u64, Node>,
}

impl Tree {
    pub fn node(&self, path: &str) -> &Node {
        let id = self
            .paths
            .get(path)
            .unwrap_or_else(|| panic!("{path} exists"));
        &self.nodes[id]
    }

    pub fn node_mut(&mut self, path: &str) -> &mut Node {
        let id = self
            .paths
            .get(path)
            .unwrap_or_else(|| panic!("{path} exists"));
        self.nodes.get_mut(id).expect("a path leads to a node")
    }

    pub fn is_dir(&self, path: &str) -> bool {
        self.node(path).kind == Kind::Dir
    }

    pub fn has_children(&self, path: &str) -> bool {
        let beneath = format!("{path}/");
        self.paths.keys().any(|path| path.starts_with(&beneath))
    }

    pub fn content(&self, path: &str) -> &[u8] {
        match &self.node(path).kind {
            Kind::File(content) => content,
            other => panic!("{path} is {other:?}"),
        }
    }

    /// Changes a file's bytes.
    pub fn change_content(&mut self, path: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let node = self.node_mut(path);
        node.times = None;
        match &mut node.kind {
            Kind::File(content) => change(content),
            other => panic!("{path} is {other:?}"),
        }
    }

    pub fn add(&mut self, path: &str, kind: Kind) {
        let id = self.nodes.keys().next_back().map_or(1, |last| last + 1);
        self.nodes.insert(id, Node::new(kind));
        self.paths.insert(path.to_owned(), id);
        self.touch_parent(path);
    }

    pub fn link(&mut self, from: &str, to: &str) {
        self.paths.insert(to.to_owned(), self.paths[from]);
        self.touch_parent(to);
    }

    pub fn remove(&mut self, path: &str) {
        let id = self
            .paths
            .remove(path)
            .unwrap_or_else(|| panic!("{path} exists"));
        self.touch_parent(path);
        self.forget_unnamed(id);
    }

    pub fn rename(&mut self, from: &str, to: &str) {
        // Two names of one node: rename(2) does nothing.
        if self.paths.get(from) == self.paths.get(to) {
            return;
        }
        let replaced = self.paths.remove(to);
        self.move_paths(&[(from, to)]);
        if let Some(id) = replaced {
            self.forget_unnamed(id);
        }
    }

    pub fn exchange(&mut self, one: &str, other: &str) {
        self.move_paths(&[(one, other), (other, one)]);
    }

    /// Moves what is at or beneath each first path to the second, all at once.
    fn move_paths(&mut self, moves: &[(&str, &str)]) {
        for (from, to) in moves {
            self.touch_parent(from);
            self.touch_parent(to);
        }
        let moved = std::mem::take(&mut self.paths)
            .into_iter()
            .map(|(path, id)| {
                let target = moves.iter().find_map(|(from, to)| {
                    let rest = path.strip_prefix(from)?;
                    (rest.is_empty() || rest.starts_with('/')).then(|| format!("{to}{rest}"))
                });
                (target.unwrap_or(path), id)
            });
        self.paths = moved.collect();
    }

    fn forget_unnamed(&mut self, id: u64) {
        if !self.paths.values().any(|named| *named == id) {
            self.nodes.remove(&id);
        }
    }

    fn touch_parent(&mut self, path: &str) {
        if let Some((parent, _)) = path.rsplit_once('/')
            && self.paths.contains_key(parent)
        {
            self.node_mut(parent).times = None;
        }
    }

    /// For each path the first of the names of its node: equal for two trees if their hard links
    /// are.
    fn links(&self) -> BTreeMap<&str, &str> {
        let mut first_names: BTreeMap<u64, &str> = BTreeMap::new();
        self.paths
            .iter()
            .map(|(path, id)| (path.as_str(), *first_names.entry(*id).or_insert(path)))
            .collect()
    }

    /// How `found` differs from what this tree says; `None` where it does not.
    pub fn difference(&self, found: &Tree) -> Option<String> {
        let (wanted, links) = (self.links(), found.links());
        if wanted != links {
            let missing: Vec<_> = wanted
                .iter()
                .filter(|(path, _)| !links.contains_key(*path))
                .collect();
            let extra: Vec<_> = links
                .iter()
                .filter(|(path, _)| !wanted.contains_key(*path))
                .collect();
            return Some(format!(
                "names: missing {missing:?}, not expected {extra:?}, links {wanted:?}, {links:?}"
            ));
        }
        self.paths.keys().find_map(|path| {
            let (wanted, found) = (self.node(path), found.node(path));
            (!wanted.fits(found))
                .then(|| format!("{path}: wanted {}, found {}", brief(wanted), brief(found)))
        })
    }

    /// What is beneath `dir`.
    pub fn read(dir: &Path) -> Tree {
        let mut tree = Tree::default();
        tree.read_beneath(dir, "");
        tree
    }

    fn read_beneath(&mut self, dir: &Path, prefix: &str) {
        let entries =
            fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
        for entry in entries {
            let entry = entry.unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
            let name = entry
                .file_name()
                .into_string()
                .expect("the writers' names are UTF-8");
            let path = format!("{prefix}{name}");
            let (ino, node) = read_node(&entry.path());
            let is_dir = node.kind == Kind::Dir;
            self.nodes.entry(ino).or_insert(node);
            self.paths.insert(path.clone(), ino);
            if is_dir {
                self.read_beneath(&entry.path(), &format!("{path}/"));
            }
        }
    }
}

fn read_node(path: &Path) -> (u64, Node) {
    let failed = |error: std::io::Error| -> ! { panic!("{}: {error}", path.display()) };
    let meta = fs::symlink_metadata(path).unwrap_or_else(|error| failed(error));
    let kind = if meta.is_dir() {
        Kind::Dir
    } else if meta.is_file() {
        let content = fs::read(path).unwrap_or_else(|error| failed(error));
        assert_eq!(content.len() as u64, meta.len(), "{}", path.display());
        Kind::File(content)
    } else if meta.is_symlink() {
        let target = fs::read_link(path).unwrap_or_else(|error| failed(error));
        Kind::Symlink(target.as_os_str().as_bytes().to_vec())
    } else if meta.file_type().is_fifo() {
        Kind::Fifo
    } else {
        Kind::Device(meta.rdev())
    };
    let xattrs = match kind {
        Kind::File(_) | Kind::Dir => {
            super::calls::xattrs(path).unwrap_or_else(|error| failed(error))
        }
        Kind::Symlink(_) | Kind::Fifo | Kind::Device(_) => BTreeMap::new(),
    };
    let node = Node {
        kind,
        perm: Some(meta.mode() & 0o7777),
        owner: Some((meta.uid(), meta.gid())),
        times: Some((
            (meta.atime(), meta.atime_nsec()),
            (meta.mtime(), meta.mtime_nsec()),
        )),
        xattrs,
    };
    (meta.ino(), node)
}

/// The node without its bytes.
fn brief(node: &Node) -> String {
    let kind = match &node.kind {
        Kind::File(content) => format!(
            "{} bytes (crc {:08x})",
            content.len(),
            crc32fast::hash(content)
        ),
        other => format!("{other:?}"),
    };
    let xattrs: Vec<_> = node
        .xattrs
        .iter()
        .map(|(name, value)| (name, value.len()))
        .collect();
    format!(
        "{kind} perm {:?} owner {:?} times {:?} xattrs {xattrs:?}",
        node.perm, node.owner, node.times
    )
}
