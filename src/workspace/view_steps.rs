//! Steps by which a program would have changed the view.
//!
//! A change that does not come through the kernel changes the view at once. Programs that watch
//! files expect the events of each call that the change would have taken. So a mount also gets the
//! steps, and may replay them.
//!
//! ```text
//! before the change: the names it concerns, with their nodes ─► ViewBefore
//! after it:          the same names ─► steps: remove, make, move, write, set the mode
//! ```
//!
//! A watch pins its inode, so no program watches a node that the kernel does not remember. A name
//! counts only if its directory, or its node before, is remembered. For the same reason the content
//! of a new directory needs no steps.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::error::FsError;
use super::fs::{FoundNode, NodePlace, ViewState, Workspace};
use tine_attr::{Attr, FileKind, Ino};
use tine_git::ObjectId;
use tine_layer::{Content, Node};
use tine_path::{EntryName, RepoPath};

/// Name in a directory, with the directory's path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamePlace {
    /// Inode number of the directory.
    pub dir: Ino,
    /// Path of the directory when the step is made.
    pub dir_path: RepoPath,
    /// Name in the directory.
    pub name: EntryName,
}

/// Final state of a name that loses its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameOutcome {
    /// The name is free.
    Nowhere,
    /// The name is gone together with its directory.
    WithItsDirectory,
    /// The name leads to this node.
    To(Ino),
}

/// One step of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ViewStep {
    /// A name loses its node.
    Remove {
        /// The name.
        at: NamePlace,
        /// Attributes of the node before.
        node: Attr,
        /// Final state of the name.
        then: NameOutcome,
    },
    /// A free name gets a node.
    Make {
        /// The name.
        at: NamePlace,
        /// Attributes of the node.
        node: Attr,
    },
    /// A node moves to another name, where it may replace a node.
    Move {
        /// Name before.
        from: NamePlace,
        /// Name after.
        to: NamePlace,
        /// Attributes of the node before.
        node: Attr,
        /// Attributes of the replaced node; `None` if the name was free.
        replaced: Option<Attr>,
        /// Final state of `from`.
        then: NameOutcome,
    },
    /// A file gets another content.
    Write {
        /// Name of the file.
        at: NamePlace,
        /// Inode number of the file.
        ino: Ino,
    },
    /// A file gets other permission bits.
    SetMode {
        /// Name of the file.
        at: NamePlace,
        /// Inode number of the file.
        ino: Ino,
        /// Low 12 bits of the new mode.
        perm: u16,
    },
}

/// Identity of a file's bytes, known without reading them.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BytesIdentity {
    /// Content and size.
    Content(Content, u64),
    /// Checkout of this blob at this path.
    Base(RepoPath, ObjectId),
}

impl BytesIdentity {
    pub(crate) fn of(node: &Node) -> BytesIdentity {
        match (&node.content, &node.origin) {
            (Content::Base, Some(origin)) => BytesIdentity::Base(origin.path.clone(), origin.id),
            (content, _) => BytesIdentity::Content(content.clone(), node.size),
        }
    }
}

/// Node of a name.
struct NamedNode {
    attr: Attr,
    /// Identity of the bytes of a regular file or a symlink.
    held: Option<BytesIdentity>,
}

/// Name that may be watched.
struct WatchedName {
    dir: Ino,
    node: Option<NamedNode>,
}

/// Nodes of names before a change.
pub(super) struct ViewBefore {
    /// All names that the change concerns.
    paths: BTreeSet<RepoPath>,
    /// Names that may be watched, with their nodes.
    names: HashMap<RepoPath, WatchedName>,
    /// Nodes below directories that the change may remove, with their parents' numbers.
    below: BTreeMap<RepoPath, (Ino, Attr)>,
    /// Moves, as source and destination.
    moved: Vec<(RepoPath, RepoPath)>,
}

impl ViewBefore {
    /// Adds names that no node was found at.
    pub(crate) fn add_paths(&mut self, paths: BTreeSet<RepoPath>) {
        self.paths.extend(paths);
    }
}

/// Directories by path; `None` if there is none.
type DirsByPath = HashMap<RepoPath, Option<FoundNode>>;

impl Workspace {
    fn may_be_watched(&self, ino: Ino) -> bool {
        ino == Ino::ROOT || self.inodes.is_remembered(ino)
    }

    /// Records the nodes of names before a change.
    ///
    /// `moved` are the moves among them. `None` if there is no listener.
    pub(super) fn view_before(
        &self,
        state: &ViewState,
        paths: BTreeSet<RepoPath>,
        moved: Vec<(RepoPath, RepoPath)>,
    ) -> Option<ViewBefore> {
        if !self.has_listener() {
            return None;
        }
        let mut before = ViewBefore {
            paths,
            names: HashMap::new(),
            below: BTreeMap::new(),
            moved,
        };
        let mut dirs = DirsByPath::new();
        let mut open = Vec::new();
        for path in &before.paths {
            let Some((name, found)) = self.watched_name(state, &mut dirs, path) else {
                continue;
            };
            let is_dir = |node: &NamedNode| node.attr.kind == FileKind::Directory;
            if name.node.as_ref().is_some_and(is_dir)
                && !before.moved.iter().any(|(from, _)| from == path)
                && let Some(dir) = found
            {
                open.push((path.clone(), dir));
            }
            before.names.insert(path.clone(), name);
        }
        while let Some((path, dir)) = open.pop() {
            if !self.may_be_watched(dir.ino) {
                continue;
            }
            if let Err(error) = self.add_below(state, &path, &dir, &mut before.below, &mut open) {
                log::debug!("{path} is not looked at for those who watch it: {error}");
            }
        }
        Some(before)
    }

    fn add_below(
        &self,
        state: &ViewState,
        path: &RepoPath,
        dir: &FoundNode,
        below: &mut BTreeMap<RepoPath, (Ino, Attr)>,
        open: &mut Vec<(RepoPath, FoundNode)>,
    ) -> Result<(), FsError> {
        for (name, kind, _) in self.entries(state, dir)? {
            let Some(child) = self.child(state, dir, name.as_bytes())? else {
                continue;
            };
            let at = path.join(&name);
            below.insert(at.clone(), (dir.ino, self.attr(state, &child)?));
            if kind == FileKind::Directory {
                open.push((at, child));
            }
        }
        Ok(())
    }

    /// Returns the node at `path`, if it may be watched.
    fn watched_name(
        &self,
        state: &ViewState,
        dirs: &mut DirsByPath,
        path: &RepoPath,
    ) -> Option<(WatchedName, Option<FoundNode>)> {
        let (parent, name) = path.split_last()?;
        if path.is_in_dot_git() {
            return None;
        }
        let dir = match dirs.get(&parent) {
            Some(known) => known.clone(),
            None => {
                let dir = self.walk_dir(state, &parent).ok();
                dirs.insert(parent, dir.clone());
                dir
            }
        }?;
        let found = self.child(state, &dir, name.as_bytes()).ok()?;
        let is_watchable = self.may_be_watched(dir.ino)
            || found
                .as_ref()
                .is_some_and(|found| self.may_be_watched(found.ino));
        if !is_watchable {
            return None;
        }
        let node = match &found {
            Some(found) => Some(self.named_node(state, found).ok()?),
            None => None,
        };
        Some((WatchedName { dir: dir.ino, node }, found))
    }

    fn named_node(&self, state: &ViewState, found: &FoundNode) -> Result<NamedNode, FsError> {
        let attr = self.attr(state, found)?;
        let held = match (&found.place, attr.kind) {
            (NodePlace::Base(base), FileKind::Regular | FileKind::Symlink) => {
                Some(BytesIdentity::Base(base.path(), base.entry().id))
            }
            (_, FileKind::Regular | FileKind::Symlink) => {
                Some(BytesIdentity::of(&self.node(state, found)?))
            }
            _ => None,
        };
        Ok(NamedNode { attr, held })
    }

    /// Returns the steps from `before` to the present view, in order.
    pub(super) fn view_steps(&self, state: &ViewState, before: ViewBefore) -> Vec<ViewStep> {
        let mut dirs = DirsByPath::new();
        let mut steps = Steps::default();
        let mut done = HashSet::new();
        let ViewBefore {
            paths,
            mut names,
            below,
            moved,
        } = before;
        let mut now: HashMap<&RepoPath, WatchedName> = paths
            .iter()
            .filter_map(|path| Some((path, self.watched_name(state, &mut dirs, path)?.0)))
            .collect();
        for (from, to) in &moved {
            let (Some(source), Some(target)) = (names.get(from), now.get(to)) else {
                continue;
            };
            let (Some(node), Some(arrived)) = (&source.node, &target.node) else {
                continue;
            };
            let replaced = names.get(to).and_then(|name| name.node.as_ref());
            let come = now
                .get(from)
                .and_then(|name| Some((name.dir, name.node.as_ref()?.attr)));
            if node.attr.ino == arrived.attr.ino
                && let (Some(from_place), Some(to_place)) =
                    (place(from, source.dir), place(to, target.dir))
            {
                steps.moves.push(ViewStep::Move {
                    from: from_place,
                    to: to_place,
                    node: node.attr,
                    replaced: replaced.map(|node| node.attr),
                    then: come.map_or(NameOutcome::Nowhere, |(_, node)| NameOutcome::To(node.ino)),
                });
                // The node that is at the source now comes after the moved one has gone.
                if let Some((dir, node)) = come
                    && let Some(at) = place(from, dir)
                {
                    steps.others.push(ViewStep::Make { at, node });
                }
                steps.sources.push(from.clone());
                done.extend([from.clone(), to.clone()]);
            }
        }
        for path in paths.iter().filter(|path| !done.contains(*path)) {
            steps.add(path, names.remove(path), now.remove(path), &below);
        }
        steps.in_order()
    }
}

fn place(path: &RepoPath, dir: Ino) -> Option<NamePlace> {
    let (dir_path, name) = path.split_last()?;
    Some(NamePlace {
        dir,
        dir_path,
        name,
    })
}

/// Steps, grouped in the order in which they are made.
#[derive(Default)]
struct Steps {
    /// Removals by path.
    removals: BTreeMap<RepoPath, ViewStep>,
    /// New directories.
    dirs: Vec<ViewStep>,
    /// Moves.
    moves: Vec<ViewStep>,
    /// Sources of the moves.
    sources: Vec<RepoPath>,
    /// Everything else.
    others: Vec<ViewStep>,
}

impl Steps {
    fn add(
        &mut self,
        path: &RepoPath,
        before: Option<WatchedName>,
        now: Option<WatchedName>,
        below: &BTreeMap<RepoPath, (Ino, Attr)>,
    ) {
        let (dir_before, before) = before.map_or((None, None), |name| (Some(name.dir), name.node));
        let (dir_now, now) = now.map_or((None, None), |name| (Some(name.dir), name.node));
        if let (Some(before), Some(now)) = (&before, &now)
            && before.attr.ino == now.attr.ino
            // A symlink cannot be written, and a node cannot change its kind: these are replaced.
            && before.attr.kind == now.attr.kind
            && (before.held == now.held || now.attr.kind == FileKind::Regular)
        {
            let Some(at) = dir_now.and_then(|dir| place(path, dir)) else {
                return;
            };
            let ino = now.attr.ino;
            if before.held != now.held {
                let at = at.clone();
                self.others.push(ViewStep::Write { at, ino });
            }
            if before.attr.perm != now.attr.perm {
                let perm = now.attr.perm;
                self.others.push(ViewStep::SetMode { at, ino, perm });
            }
            return;
        }
        // A file that replaces another comes right after its removal, as git writes files.
        let is_dir = |node: &Option<NamedNode>| {
            let kind = node.as_ref().map(|node| node.attr.kind);
            kind == Some(FileKind::Directory)
        };
        let is_replaced = now.is_some() && !is_dir(&before) && !is_dir(&now);
        if let Some(node) = before
            && let Some(at) = dir_before.and_then(|dir| place(path, dir))
        {
            let node = node.attr;
            let now = now.as_ref().map(|now| now.attr.ino);
            let then = now.map_or(NameOutcome::Nowhere, NameOutcome::To);
            if node.kind == FileKind::Directory {
                self.empty(path, below);
            }
            let step = ViewStep::Remove { at, node, then };
            if is_replaced {
                self.others.push(step);
            } else {
                self.removals.insert(path.clone(), step);
            }
        }
        if let Some(node) = now
            && let Some(at) = dir_now.and_then(|dir| place(path, dir))
        {
            let step = ViewStep::Make {
                at,
                node: node.attr,
            };
            match node.attr.kind {
                FileKind::Directory => self.dirs.push(step),
                _ => self.others.push(step),
            }
        }
    }

    /// Removes everything below the directory.
    fn empty(&mut self, path: &RepoPath, below: &BTreeMap<RepoPath, (Ino, Attr)>) {
        let is_alike = |other: &RepoPath| other.as_bytes().starts_with(path.as_bytes());
        let alike = below
            .range(path.clone()..)
            .take_while(|(other, _)| is_alike(other));
        for (at, (dir, node)) in alike.filter(|(other, _)| other.starts_with(path)) {
            if let Some(place) = place(at, *dir) {
                let then = NameOutcome::WithItsDirectory;
                let step = ViewStep::Remove {
                    at: place,
                    node: *node,
                    then,
                };
                self.removals.entry(at.clone()).or_insert(step);
            }
        }
    }

    /// Returns all steps in order.
    ///
    /// Removals come first, deepest first, except for those of directories that something is moved
    /// out of. New directories, moves, those removals and all else follow.
    fn in_order(self) -> Vec<ViewStep> {
        let Steps {
            removals,
            dirs,
            moves,
            sources,
            others,
        } = self;
        let (late, early): (Vec<_>, Vec<_>) = removals
            .into_iter()
            .rev()
            .partition(|(path, _)| sources.iter().any(|source| source.starts_with(path)));
        let early = early.into_iter().map(|(_, step)| step);
        let late = late.into_iter().map(|(_, step)| step);
        early
            .chain(dirs)
            .chain(moves)
            .chain(late)
            .chain(others)
            .collect()
    }
}
