//! Steps that a program would have taken to bring a view from before a change to after it.
//!
//! A change that does not come through the kernel switches the view at once. Programs that watch
//! files expect more: the events of each call that such a change would have taken. So a mount is
//! told the steps as well, and may replay them.
//!
//! ```text
//! before the change: the names it is about, and what they lead to ─► ViewBefore
//! after it:          the same names                               ─► steps: remove, make, move, write, set the mode
//! ```
//!
//! A watch pins its inode, so nobody watches what the kernel does not remember: a name counts only
//! if its directory, or the node that it led to, is remembered. What is in a directory that is new
//! needs no steps, for the same reason.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::error::FsError;
use super::fs::{Found, Place, State, Workspace};
use tine_attr::{Attr, FileKind, Ino};
use tine_git::ObjectId;
use tine_layer::{Content, Node};
use tine_path::{EntryName, RepoPath};

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamePlace {
    pub dir: Ino,
    /// Where the directory is when the step is taken.
    pub dir_path: RepoPath,
    pub name: EntryName,
}

/// Where a name that loses its node leads when all is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameOutcome {
    Nowhere,
    /// Nowhere, because its directory goes as well, with the name in it.
    WithItsDirectory,
    To(Ino),
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ViewStep {
    /// The name loses its node.
    Remove {
        at: NamePlace,
        node: Attr,
        then: NameOutcome,
    },
    /// The name, which is free, gets a node.
    Make { at: NamePlace, node: Attr },
    /// The node goes to another name, where it may replace one.
    Move {
        from: NamePlace,
        to: NamePlace,
        node: Attr,
        replaced: Option<Attr>,
        /// Where `from` leads when all is done.
        then: NameOutcome,
    },
    /// The file gets another content.
    Write { at: NamePlace, ino: Ino },
    /// The file gets other permission bits.
    SetMode { at: NamePlace, ino: Ino, perm: u16 },
}

/// The bytes of a file, in so far as they can be told from others without being read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Held {
    Content(Content, u64),
    /// A checkout of this blob at this path.
    Base(RepoPath, ObjectId),
}

impl Held {
    pub(crate) fn of(node: &Node) -> Held {
        match (&node.content, &node.origin) {
            (Content::Base, Some(origin)) => Held::Base(origin.path.clone(), origin.id),
            (content, _) => Held::Content(content.clone(), node.size),
        }
    }
}

/// What a name leads to.
struct NodeBehind {
    attr: Attr,
    /// Of a regular file or a symlink.
    held: Option<Held>,
}

/// A name that may be watched.
struct NameBehind {
    dir: Ino,
    node: Option<NodeBehind>,
}

/// What names led to before a change.
pub(super) struct ViewBefore {
    /// All names that the change is about.
    paths: BTreeSet<RepoPath>,
    names: HashMap<RepoPath, NameBehind>,
    /// What is below directories that may go.
    beneath: BTreeMap<RepoPath, (Ino, Attr)>,
    /// Which names went where.
    moved: Vec<(RepoPath, RepoPath)>,
}

impl ViewBefore {
    /// Adds names that nothing was found at.
    pub(crate) fn add_paths(&mut self, paths: BTreeSet<RepoPath>) {
        self.paths.extend(paths);
    }
}

/// Directories by path, as far as they were found.
type Dirs = HashMap<RepoPath, Option<Found>>;

impl Workspace {
    fn may_be_watched(&self, ino: Ino) -> bool {
        ino == Ino::ROOT || self.inodes.is_remembered(ino)
    }

    /// Looks at the names that a change is about, of which some are `moved`, before it is made;
    /// `None` where nobody is told of steps.
    pub(super) fn view_before(
        &self,
        state: &State,
        paths: BTreeSet<RepoPath>,
        moved: Vec<(RepoPath, RepoPath)>,
    ) -> Option<ViewBefore> {
        if !self.has_listener() {
            return None;
        }
        let mut before = ViewBefore {
            paths,
            names: HashMap::new(),
            beneath: BTreeMap::new(),
            moved,
        };
        let mut dirs = Dirs::new();
        let mut open = Vec::new();
        for path in &before.paths {
            let Some((behind, found)) = self.name_behind(state, &mut dirs, path) else {
                continue;
            };
            let is_dir = |node: &NodeBehind| node.attr.kind == FileKind::Directory;
            if behind.node.as_ref().is_some_and(is_dir)
                && !before.moved.iter().any(|(from, _)| from == path)
                && let Some(dir) = found
            {
                open.push((path.clone(), dir));
            }
            before.names.insert(path.clone(), behind);
        }
        while let Some((path, dir)) = open.pop() {
            if !self.may_be_watched(dir.ino) {
                continue;
            }
            if let Err(error) = self.add_beneath(state, &path, &dir, &mut before.beneath, &mut open)
            {
                log::debug!("{path} is not looked at for those who watch it: {error}");
            }
        }
        Some(before)
    }

    fn add_beneath(
        &self,
        state: &State,
        path: &RepoPath,
        dir: &Found,
        beneath: &mut BTreeMap<RepoPath, (Ino, Attr)>,
        open: &mut Vec<(RepoPath, Found)>,
    ) -> Result<(), FsError> {
        for (name, kind, _) in self.entries(state, dir)? {
            let Some(child) = self.child(state, dir, name.as_bytes())? else {
                continue;
            };
            let at = path.join(&name);
            beneath.insert(at.clone(), (dir.ino, self.attr(state, &child)?));
            if kind == FileKind::Directory {
                open.push((at, child));
            }
        }
        Ok(())
    }

    /// What is at `path`, if that may be watched.
    fn name_behind(
        &self,
        state: &State,
        dirs: &mut Dirs,
        path: &RepoPath,
    ) -> Option<(NameBehind, Option<Found>)> {
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
            Some(found) => Some(self.node_behind(state, found).ok()?),
            None => None,
        };
        Some((NameBehind { dir: dir.ino, node }, found))
    }

    fn node_behind(&self, state: &State, found: &Found) -> Result<NodeBehind, FsError> {
        let attr = self.attr(state, found)?;
        let held = match (&found.place, attr.kind) {
            (Place::Base(base), FileKind::Regular | FileKind::Symlink) => {
                Some(Held::Base(base.path(), base.entry().id))
            }
            (_, FileKind::Regular | FileKind::Symlink) => Some(Held::of(&self.node(state, found)?)),
            _ => None,
        };
        Ok(NodeBehind { attr, held })
    }

    /// The steps that led from `before` to the view that is now, in an order in which they can be
    /// taken.
    pub(super) fn view_steps(&self, state: &State, before: ViewBefore) -> Vec<ViewStep> {
        let mut dirs = Dirs::new();
        let mut steps = Steps::default();
        let mut done = HashSet::new();
        let ViewBefore {
            paths,
            mut names,
            beneath,
            moved,
        } = before;
        let mut now: HashMap<&RepoPath, NameBehind> = paths
            .iter()
            .filter_map(|path| Some((path, self.name_behind(state, &mut dirs, path)?.0)))
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
                // What has come to where it was comes after it has gone.
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
            steps.add(path, names.remove(path), now.remove(path), &beneath);
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

/// Steps, by when they are taken.
#[derive(Default)]
struct Steps {
    /// By path.
    removals: BTreeMap<RepoPath, ViewStep>,
    dirs: Vec<ViewStep>,
    moves: Vec<ViewStep>,
    /// From where.
    sources: Vec<RepoPath>,
    others: Vec<ViewStep>,
}

impl Steps {
    fn add(
        &mut self,
        path: &RepoPath,
        before: Option<NameBehind>,
        now: Option<NameBehind>,
        beneath: &BTreeMap<RepoPath, (Ino, Attr)>,
    ) {
        let (dir_before, before) = before.map_or((None, None), |name| (Some(name.dir), name.node));
        let (dir_now, now) = now.map_or((None, None), |name| (Some(name.dir), name.node));
        if let (Some(before), Some(now)) = (&before, &now)
            && before.attr.ino == now.attr.ino
            // Nothing is written to a symlink, and nothing becomes another kind: it goes, and
            // something else comes.
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
        // A file that takes another's place comes right after that has gone, as git writes files.
        let is_dir = |node: &Option<NodeBehind>| {
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
                self.empty(path, beneath);
            }
            let step = ViewStep::Remove { at, node, then };
            match is_replaced {
                true => self.others.push(step),
                false => {
                    self.removals.insert(path.clone(), step);
                }
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

    /// All that was below the directory goes.
    fn empty(&mut self, path: &RepoPath, beneath: &BTreeMap<RepoPath, (Ino, Attr)>) {
        let is_alike = |other: &RepoPath| other.as_bytes().starts_with(path.as_bytes());
        let alike = beneath
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

    /// Deepest first what goes, but not before what is moved out of it; then directories, what is
    /// moved, and what else comes.
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
