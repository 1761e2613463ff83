//! Carried nodes in a fork's view: found, told of, and put into the layer when they are about to
//! change.

use std::sync::Arc;

use super::base_nodes::BaseNodes;
use super::carry::arrivals::Arrivals;
use super::carry::difference::TreeDifference;
use super::carry::generation::Generation;
use super::carry::tree::below;
use super::carry::{CarriedNode, Carry, version_of};
use super::copy_up::Fetched;
use super::error::FsError;
use super::fs::{Found, Invalidation, Place, State, Workspace};
use super::inodes::{BaseRef, LowerRef};
use tine_attr::{Attr, FileKind, Ino};
use tine_git::TreeEntryKind;
use tine_layer::{Content, Dentry, Node, Op, Xattrs};
use tine_path::{EntryName, RepoPath};

/// Larger files, in bytes, keep the main checkout's bytes until they are written.
const OWN_MAX: u64 = 256 << 20;

/// Where the carry has what a directory of the view holds beneath layers and base.
pub(super) enum CarriedDir {
    /// Carried roots, in this base directory.
    Roots(RepoPath),
    /// All that this carried directory holds.
    Within(RepoPath),
}

/// What must be in the layer before a carried node can be: the directories above, and the names of
/// all of them.
#[derive(Default)]
pub(super) struct Home {
    pub nodes: Vec<(Ino, Node)>,
    pub names: Vec<Op>,
}

impl Home {
    pub(crate) fn add(&mut self, other: Home) {
        self.nodes.extend(other.nodes);
        self.names.extend(other.names);
    }
}

impl Workspace {
    /// What the carry has beneath a directory of the view.
    pub(super) fn carried_dir<'w>(
        &'w self,
        state: &State,
        dir: &Found,
    ) -> Result<Option<(&'w Arc<Carry>, CarriedDir)>, FsError> {
        let Some(carry) = &self.carry else {
            return Ok(None);
        };
        let roots = |path: RepoPath| carry.has_roots_in(&path).then_some(CarriedDir::Roots(path));
        let beneath = match &dir.place {
            Place::BaseRoot => roots(RepoPath::root()),
            Place::Base(base) if base.entry().kind == TreeEntryKind::Directory => {
                roots(base.path())
            }
            Place::Base(_) => None,
            Place::Carried(node) => Some(CarriedDir::Within(node.path.clone())),
            Place::Layer => {
                let node = self.layer_node(state, dir.ino)?;
                match (&node.content, &node.origin) {
                    (Content::Carried(carried), _) => {
                        Some(CarriedDir::Within(carried.path.clone()))
                    }
                    (_, Some(origin)) if origin.kind == TreeEntryKind::Directory => {
                        roots(origin.path.clone())
                    }
                    _ => None,
                }
            }
        };
        Ok(beneath.map(|beneath| (carry, beneath)))
    }

    /// What the carry has at a name of which layers and base do not speak.
    pub(super) fn carried_child(
        &self,
        state: &State,
        dir: &Found,
        name: &[u8],
    ) -> Result<Option<Found>, FsError> {
        let node = self.carried_beneath(state, dir, name)?;
        Ok(node.and_then(|(carry, node)| found(carry, state, node)))
    }

    /// What the main checkout has at a name in a directory of the view, whether or not it is seen.
    pub(super) fn carried_beneath<'w>(
        &'w self,
        state: &State,
        dir: &Found,
        name: &[u8],
    ) -> Result<Option<(&'w Arc<Carry>, CarriedNode)>, FsError> {
        let (carry, node) = match self.carried_dir(state, dir)? {
            Some((carry, CarriedDir::Roots(path))) => (carry, carry.root(&path, name)?),
            Some((carry, CarriedDir::Within(path))) => (carry, carry.child(&path, name)?),
            None => return Ok(None),
        };
        Ok(node.map(|node| (carry, node)))
    }

    /// All that the carry has in a carried directory, but for what layers and base have instead.
    pub(super) fn carried_children(
        &self,
        state: &State,
        dir: &Found,
    ) -> Result<Vec<(EntryName, Found)>, FsError> {
        let Some((carry, CarriedDir::Within(path))) = self.carried_dir(state, dir)? else {
            return Ok(Vec::new());
        };
        let nodes = carry.nodes_in(&path, &carry.names(&path)?)?;
        let found = nodes
            .into_iter()
            .filter_map(|(listed, node)| Some((listed.name, found(carry, state, node)?)));
        Ok(found.collect())
    }

    /// Whether what stands at `name` in the directory, or that nothing does, may change without
    /// anybody telling.
    pub(super) fn may_change_untold(
        &self,
        state: &State,
        dir: &Found,
        name: &[u8],
    ) -> Result<bool, FsError> {
        if self.carry.is_none() || state.stack.dentry(dir.ino, name).is_some() {
            return Ok(false);
        }
        Ok(match self.carried_dir(state, dir)? {
            Some((_, CarriedDir::Within(_))) => true,
            Some((carry, CarriedDir::Roots(path))) => {
                let in_base = self
                    .base_dir(state, dir)?
                    .is_some_and(|dir| dir.find(name).is_some());
                !in_base && carry.has_root(&path, name)
            }
            None => false,
        })
    }

    /// Whether the main checkout may change the attributes, or what the name leads to, without
    /// anybody telling.
    pub(super) fn follows(&self, state: &State, found: &Found) -> bool {
        match &found.place {
            Place::Carried(_) => true,
            Place::Layer => self.carried_path(state, found).is_some(),
            Place::Base(_) | Place::BaseRoot => false,
        }
    }

    /// As [`Workspace::follows`], of a node that the kernel remembers.
    pub fn is_carried(&self, ino: Ino) -> bool {
        if self.carry.is_none() {
            return false;
        }
        let state = self.read_state();
        let found = self.find(&state, ino);
        found.is_ok_and(|found| self.follows(&state, &found))
    }

    /// The attributes of a layer's node. A directory that still shows what the main checkout has
    /// changes when that does.
    pub(super) fn as_followed(&self, ino: Ino, node: &Node, attr: Attr) -> Attr {
        let (Content::Carried(carried), FileKind::Directory, Some(carry)) =
            (&node.content, node.kind, &self.carry)
        else {
            return attr;
        };
        let now = carry.node(&carried.path).ok().flatten();
        let now = now.filter(CarriedNode::is_dir).map(|now| now.attr);
        carry.note_listing(ino, now.map(|now| (now.mtime, now.ctime)));
        now.map_or(attr, |now| Attr {
            mtime: attr.mtime.max(now.mtime),
            ctime: attr.ctime.max(now.ctime),
            ..attr
        })
    }

    /// Has directories listed anew in which the main checkout changed names since somebody looked:
    /// the kernel goes on with the list that it has until the directory's time changes, and that of
    /// the fork's own change may be the later one. No lock may be held.
    pub(super) fn announce_listings(&self) {
        if let Some(carry) = &self.carry {
            let changed = carry.take_changed_dirs();
            self.announce(changed.into_iter().map(Invalidation::Node));
        }
    }

    /// Shows the dependency tree at `path` of the main checkout as `generation` has it, from now
    /// on. When this returns the kernel has forgotten what is otherwise than before. No lock may be
    /// held.
    pub(super) fn show_generation(
        &self,
        path: RepoPath,
        generation: Arc<Generation>,
        arrivals: Arc<Arrivals>,
    ) {
        let Some(carry) = &self.carry else {
            return;
        };
        let before = carry.show_generation(path.clone(), generation.clone(), arrivals);
        if before
            .as_ref()
            .is_some_and(|before| before.id == generation.id)
        {
            // It was damaged, and is made anew: numbers are those of versions.
            let nodes = self.inodes.carried_below(&path);
            self.announce(nodes.iter().map(|node| Invalidation::Node(node.ino())));
        }
        let difference = match before {
            Some(before) => TreeDifference::between(&before, &generation),
            None => self.difference_from_followed(carry, &path, &generation),
        };
        self.announce_tree(&path, &difference);
        self.announce_times(carry, &path);
        self.announce_listings();
    }

    /// What `generation` has otherwise than the kernel remembers of the main checkout's tree.
    /// Nothing in that has changed for longer than the kernel remembers that a name leads nowhere.
    fn difference_from_followed(
        &self,
        carry: &Carry,
        path: &RepoPath,
        generation: &Generation,
    ) -> TreeDifference {
        let late = carry.late_files(generation);
        let mut difference = TreeDifference {
            names: late.collect(),
            ..TreeDifference::default()
        };
        for node in self.inodes.carried_below(path) {
            let in_tree = node.path.as_bytes().get(path.as_bytes().len() + 1..);
            let in_tree = in_tree.unwrap_or_default();
            match (generation.stat(in_tree), &node.version) {
                (Some(stat), Some(version)) if version_of(stat) == *version => {}
                (Some(stat), None) if stat.kind == FileKind::Directory => {
                    if (stat.mtime, stat.ctime) != (node.attr.mtime, node.attr.ctime) {
                        difference.dirs.push(in_tree.into());
                    }
                }
                _ => difference.names.push(in_tree.into()),
            }
        }
        difference.add_parents();
        difference
    }

    /// Lets the kernel forget what it remembers of a tree that is another by now.
    fn announce_tree(&self, tree: &RepoPath, difference: &TreeDifference) {
        let hasher = self.base().hasher().clone();
        let mut changes = Vec::new();
        for path in &difference.names {
            let Ok(path) = below(tree, path) else {
                continue;
            };
            let Some((parent, name)) = path.split_last() else {
                continue;
            };
            let parent = hasher.ino(&parent);
            if parent == Ino::ROOT || self.inodes.is_remembered(parent) {
                changes.push(Invalidation::Entry { parent, name });
            }
        }
        let dirs = difference
            .dirs
            .iter()
            .filter_map(|dir| below(tree, dir).ok());
        let dirs = dirs.chain(tree.split_last().map(|(parent, _)| parent));
        let dirs = dirs.map(|dir| hasher.ino(&dir));
        let dirs = dirs.filter(|ino| *ino == Ino::ROOT || self.inodes.is_remembered(*ino));
        changes.extend(dirs.map(Invalidation::Node));
        self.announce(changes);
    }

    /// Lets the kernel forget the times of files in the tree that the fork shows as of another
    /// moment than when they were found. Their numbers are those of their versions.
    fn announce_times(&self, carry: &Carry, tree: &RepoPath) {
        let mut changes = Vec::new();
        for node in self.inodes.carried_below(tree) {
            let Ok(Some(mut now)) = carry.node(&node.path) else {
                continue;
            };
            now.attr.ino = node.ino();
            if !node.is_dir() && now.version == node.version && now.attr != node.attr {
                changes.push(Invalidation::Attributes(now.ino()));
                self.inodes.set_carried(now.ino(), Arc::new(now));
            }
        }
        self.announce(changes);
    }

    /// The path at which the main checkout has the directory, if it is a carried one.
    pub(super) fn carried_path(&self, state: &State, dir: &Found) -> Option<RepoPath> {
        match &dir.place {
            Place::Carried(node) => Some(node.path.clone()),
            Place::Layer => match &state.stack.node(dir.ino)?.content {
                Content::Carried(carried) => Some(carried.path.clone()),
                _ => None,
            },
            Place::Base(_) | Place::BaseRoot => None,
        }
    }

    /// A file is what it was when it was found, a directory what it is now.
    pub(super) fn carried_attr(&self, node: &CarriedNode) -> Result<Attr, FsError> {
        if !node.is_dir() {
            return Ok(node.attr);
        }
        let now = self
            .carry
            .as_ref()
            .ok_or(FsError::Stale)?
            .node(&node.path)?;
        let now = now.filter(CarriedNode::is_dir).ok_or(FsError::Stale)?;
        Ok(now.attr)
    }

    pub(super) fn base_attr(&self, nodes: &BaseNodes, base: &BaseRef) -> Result<Attr, FsError> {
        let attr = nodes.attr(base)?;
        Ok(match attr.kind {
            FileKind::Directory if self.carry.is_some() => self.with_dir_roots(attr, &base.path()),
            _ => attr,
        })
    }

    /// The attributes of the base directory at `path` with the links that carried directories in it
    /// make.
    pub(super) fn with_dir_roots(&self, attr: Attr, path: &RepoPath) -> Attr {
        let carried = self
            .carry
            .as_ref()
            .map_or(0, |carry| carry.dir_roots_in(path));
        Attr {
            nlink: attr.nlink.saturating_add(carried),
            ..attr
        }
    }

    /// A carried node as a record that a layer could hold.
    pub(super) fn carried_node(&self, node: &CarriedNode) -> Result<Node, FsError> {
        let attr = self.carried_attr(node)?;
        let carry = self.carry.as_ref().ok_or(FsError::Stale)?;
        let content = match (attr.kind, &node.version) {
            (FileKind::Symlink, Some(version)) => {
                Content::Link(carry.read_link(&node.path, version)?.into())
            }
            (FileKind::Regular, _) if attr.size == 0 => Content::Empty,
            _ => Content::Carried(Box::new(node.content())),
        };
        Ok(Node {
            kind: attr.kind,
            perm: attr.perm,
            uid: attr.uid,
            gid: attr.gid,
            nlink: attr.nlink.max(if node.is_dir() { 2 } else { 1 }),
            rdev: 0,
            size: attr.size,
            atime: attr.atime,
            mtime: attr.mtime,
            ctime: attr.ctime,
            content,
            origin: None,
            xattrs: Xattrs::new(),
        })
    }

    /// What brings a carried node's place into the layer. Nothing where a layer has it.
    pub(super) fn home(&self, state: &State, node: &CarriedNode) -> Result<Home, FsError> {
        let carry = self.carry.as_ref().ok_or(FsError::Stale)?;
        let hasher = state.base.base.hasher();
        let mut home = Home::default();
        let mut name_at = |path: &RepoPath, ino: Ino| {
            let (parent, name) = path.split_last().ok_or(FsError::Stale)?;
            let parent_ino = hasher.ino(&parent);
            if state.stack.dentry(parent_ino, name.as_bytes()).is_none() {
                home.names.push(Op::PutDentry {
                    parent: parent_ino,
                    name,
                    dentry: Dentry::Entry(ino),
                });
            }
            Ok::<_, FsError>((parent, parent_ino))
        };
        let (mut parent, mut parent_ino) = name_at(&node.path, node.ino())?;
        let mut nodes = Vec::new();
        for dir in carry.dirs_above(&node.path) {
            if state.stack.node(parent_ino).is_some() {
                home.nodes = nodes;
                return Ok(home);
            }
            let above = carry
                .node(&dir)?
                .filter(CarriedNode::is_dir)
                .ok_or(FsError::Stale)?;
            nodes.push((parent_ino, self.carried_node(&above)?));
            (parent, parent_ino) = name_at(&dir, parent_ino)?;
        }
        // The base directory that holds the root: so that whoever goes up from the root finds where
        // that stands.
        if parent_ino != Ino::ROOT
            && state.stack.node(parent_ino).is_none()
            && let Some((dir, index)) = state.base.base.find(&parent)?
            && let Some(base) = BaseRef::new(&dir, index)
        {
            let place = Place::Base(base);
            let ino = parent_ino;
            nodes.push((ino, self.node(state, &Found { ino, place })?));
        }
        home.nodes = nodes;
        Ok(home)
    }

    /// As [`Workspace::home`], of a number that the kernel remembers, where it is a carried node's.
    pub(super) fn home_of(&self, state: &State, ino: Ino) -> Result<Home, FsError> {
        if self.carry.is_none() || state.stack.node(ino).is_some() {
            return Ok(Home::default());
        }
        match self.inodes.lower(ino) {
            Some(LowerRef::Carried(node)) => self.home(state, &node),
            Some(LowerRef::Base(_)) | None => Ok(Home::default()),
        }
    }

    /// Whether a file must be copied ([`Workspace::own_carried`]) before something of it becomes
    /// the fork's own, but not its bytes: so that they stay whatever the main checkout does.
    pub(super) fn is_to_be_owned(&self, state: &State, found: &Found) -> Result<bool, FsError> {
        if self.carry.is_none() {
            return Ok(false);
        }
        Ok(match &found.place {
            Place::Carried(node) => {
                node.attr.kind == FileKind::Regular && is_owned_size(node.attr.size)
            }
            Place::Layer => {
                let node = self.layer_node(state, found.ino)?;
                let is_carried =
                    matches!(&node.content, Content::Carried(carried) if carried.version.is_some());
                is_carried && is_owned_size(node.size)
            }
            Place::Base(_) | Place::BaseRoot => false,
        })
    }

    /// Copies the bytes of a carried file into the layer. Nothing else of it changes.
    pub(super) fn own_carried(&self, found: &Found) -> Result<(), FsError> {
        let ino = found.ino;
        self.remember(found)?;
        let owned = self.contents.write(ino).and_then(|_content| {
            self.copying_up(
                ino,
                |size| size,
                0,
                |fetched| self.own_fetched(ino, fetched),
            )
        });
        let owned = self.note_stale(ino, owned);
        self.forget(ino, 1);
        owned
    }

    /// As [`Workspace::own_carried`], of a node that the kernel remembers, if it must be.
    pub(super) fn own_carried_node(&self, ino: Ino) -> Result<(), FsError> {
        if self.carry.is_none() {
            return Ok(());
        }
        let (found, must) = {
            let state = self.read_state();
            let found = self.find(&state, ino)?;
            let must = self.is_to_be_owned(&state, &found)?;
            (found, must)
        };
        match must {
            true => self.own_carried(&found),
            false => Ok(()),
        }
    }

    fn own_fetched(&self, ino: Ino, fetched: &mut Option<Fetched>) -> Result<(), FsError> {
        let mut state = self.write_state();
        let found = self.find(&state, ino)?;
        let mut node = self.node(&state, &found)?;
        if node.kind != FileKind::Regular || !matches!(node.content, Content::Carried(_)) {
            return Ok(());
        }
        let size = node.size;
        let content = self.own_content(&mut state, &node, size, size, fetched)?;
        node.content = Content::Own(content);
        self.put_content(&mut state, ino, node)
    }

    /// Before the layers go from beneath a carried directory that the kernel remembers: lets the
    /// number mean the main checkout's from then on.
    pub(super) fn remember_carried_dir(&self, state: &State, ino: Ino) {
        if let Some(carry) = &self.carry
            && let Some(node) = state.stack.node(ino)
            && let Content::Carried(carried) = &node.content
            && carried.version.is_none()
            && let Ok(Some(node)) = carry.node(&carried.path)
            && node.ino() == ino
        {
            self.inodes.set_carried(ino, Arc::new(node));
        }
    }

    /// After an operation on `ino`: where it found that the main checkout has another version, the
    /// kernel is told that the name leads elsewhere. No lock may be held.
    pub(super) fn note_stale<T>(&self, ino: Ino, done: Result<T, FsError>) -> Result<T, FsError> {
        if let Err(FsError::Stale) = done
            && self.carry.is_some()
            && let Some(LowerRef::Carried(node)) = self.inodes.lower(ino)
            && let Some((parent, name)) = node.path.split_last()
        {
            let parent = self.base().hasher().ino(&parent);
            self.announce([Invalidation::Entry { parent, name }]);
        }
        done
    }
}

/// Whether a file of this size is copied.
fn is_owned_size(size: u64) -> bool {
    (1..=OWN_MAX).contains(&size)
}

/// A carried node as the view has it, at a name of which no layer speaks. `None` for a directory
/// that the fork has elsewhere: it moved it away, and the name is free since.
pub(super) fn found(carry: &Carry, state: &State, mut node: CarriedNode) -> Option<Found> {
    let mut salt = 0;
    while state.stack.node(node.ino()).is_some() {
        // A program may have open what the fork had at this number before it went back to a
        // snapshot.
        salt += 1;
        node.attr.ino = carry.other_number(&node.path, node.version.as_ref()?, salt);
    }
    Some(Found {
        ino: node.ino(),
        place: Place::Carried(Arc::new(node)),
    })
}
