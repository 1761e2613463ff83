//! Carried nodes in a fork's view: lookup, invalidation and copy-up.

use std::sync::Arc;

use super::base_nodes::BaseNodes;
use super::carry::arrivals::Arrivals;
use super::carry::difference::TreeDifference;
use super::carry::generation::Generation;
use super::carry::tree::below;
use super::carry::{CarriedNode, Carry, version_of};
use super::copy_up::Fetched;
use super::error::FsError;
use super::fs::{FoundNode, Invalidation, NodePlace, ViewState, Workspace};
use super::inodes::{BaseRef, LowerRef};
use tine_attr::{Attr, FileKind, Ino};
use tine_git::TreeEntryKind;
use tine_layer::{Content, Dentry, Node, Op, Xattrs};
use tine_path::{EntryName, RepoPath};

/// Maximum size of a file that a metadata change copies up.
///
/// In bytes. Larger files stay the main checkout's until they are written.
const COPY_UP_MAX: u64 = 256 << 20;

/// Part of the carry that a directory of the view shows.
pub(super) enum CarriedDir {
    /// Carried roots in this base directory.
    Roots(RepoPath),
    /// Everything in this carried directory.
    Within(RepoPath),
}

/// Records that a layer needs before it can hold a carried node.
///
/// These are the directories above the node, and the dentries of all of them.
#[derive(Default)]
pub(super) struct PlaceRecords {
    /// Directories above the node that no layer has.
    pub nodes: Vec<(Ino, Node)>,
    /// Dentries of the node and of those directories.
    pub names: Vec<Op>,
}

impl PlaceRecords {
    pub(crate) fn add(&mut self, other: PlaceRecords) {
        self.nodes.extend(other.nodes);
        self.names.extend(other.names);
    }
}

impl Workspace {
    /// Returns the part of the carry that a directory shows.
    pub(super) fn carried_dir<'w>(
        &'w self,
        state: &ViewState,
        dir: &FoundNode,
    ) -> Result<Option<(&'w Arc<Carry>, CarriedDir)>, FsError> {
        let Some(carry) = &self.carry else {
            return Ok(None);
        };
        let roots = |path: RepoPath| carry.has_roots_in(&path).then_some(CarriedDir::Roots(path));
        let lower = match &dir.place {
            NodePlace::BaseRoot => roots(RepoPath::root()),
            NodePlace::Base(base) if base.entry().kind == TreeEntryKind::Directory => {
                roots(base.path())
            }
            NodePlace::Base(_) => None,
            NodePlace::Carried(node) => Some(CarriedDir::Within(node.path.clone())),
            NodePlace::Layer => {
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
        Ok(lower.map(|lower| (carry, lower)))
    }

    /// Returns the carried node at a name in no layer or base.
    pub(super) fn carried_child(
        &self,
        state: &ViewState,
        dir: &FoundNode,
        name: &[u8],
    ) -> Result<Option<FoundNode>, FsError> {
        let node = self.carried_node_at(state, dir, name)?;
        Ok(node.and_then(|(carry, node)| found(carry, state, node)))
    }

    /// Returns the main checkout's node at a name in a directory.
    ///
    /// The view may hide it.
    pub(super) fn carried_node_at<'w>(
        &'w self,
        state: &ViewState,
        dir: &FoundNode,
        name: &[u8],
    ) -> Result<Option<(&'w Arc<Carry>, CarriedNode)>, FsError> {
        let (carry, node) = match self.carried_dir(state, dir)? {
            Some((carry, CarriedDir::Roots(path))) => (carry, carry.root(&path, name)?),
            Some((carry, CarriedDir::Within(path))) => (carry, carry.child(&path, name)?),
            None => return Ok(None),
        };
        Ok(node.map(|node| (carry, node)))
    }

    /// Returns the nodes of a carried directory that layers and base lack.
    pub(super) fn carried_children(
        &self,
        state: &ViewState,
        dir: &FoundNode,
    ) -> Result<Vec<(EntryName, FoundNode)>, FsError> {
        let Some((carry, CarriedDir::Within(path))) = self.carried_dir(state, dir)? else {
            return Ok(Vec::new());
        };
        let nodes = carry.nodes_in(&path, &carry.names(&path)?)?;
        let found = nodes
            .into_iter()
            .filter_map(|(listed, node)| Some((listed.name, found(carry, state, node)?)));
        Ok(found.collect())
    }

    /// Returns whether the answer for a name may change without notice.
    ///
    /// That is so if the main checkout decides what is at the name, or that nothing is.
    pub(super) fn name_may_change_silently(
        &self,
        state: &ViewState,
        dir: &FoundNode,
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

    /// Returns whether a node or its name may change without notice.
    pub(super) fn may_change_silently(&self, state: &ViewState, found: &FoundNode) -> bool {
        match &found.place {
            NodePlace::Carried(_) => true,
            NodePlace::Layer => self.carried_path(state, found).is_some(),
            NodePlace::Base(_) | NodePlace::BaseRoot => false,
        }
    }

    /// Returns whether the main checkout may change a remembered node without notice.
    pub fn is_carried(&self, ino: Ino) -> bool {
        if self.carry.is_none() {
            return false;
        }
        let state = self.read_state();
        let found = self.find(&state, ino);
        found.is_ok_and(|found| self.may_change_silently(&state, &found))
    }

    /// Returns the attributes of a layer's node.
    ///
    /// A directory that still shows the main checkout's names also changes when those do.
    pub(super) fn with_carried_times(&self, ino: Ino, node: &Node, attr: Attr) -> Attr {
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

    /// Invalidates directories in which the main checkout changed names.
    ///
    /// These are changes since the directory was last read. The kernel keeps its cached listing
    /// until the directory's time changes, and the fork's own change may be the later one. No lock
    /// may be held.
    pub(super) fn announce_listings(&self) {
        if let Some(carry) = &self.carry {
            let changed = carry.take_changed_dirs();
            self.announce(changed.into_iter().map(Invalidation::Node));
        }
    }

    /// Shows a generation of the dependency tree at `path` from now on.
    ///
    /// On return the kernel has dropped every cache that differs. No lock may be held.
    pub fn show_generation(
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
            // The same generation was damaged and is made again. Numbers belong to versions.
            let nodes = self.inodes.carried_below(&path);
            self.announce(nodes.iter().map(|node| Invalidation::Node(node.ino())));
        }
        let difference = match before {
            Some(before) => TreeDifference::between(&before, &generation),
            None => self.difference_from_checkout(carry, &path, &generation),
        };
        self.announce_tree(&path, &difference);
        self.announce_times(carry, &path);
        self.announce_listings();
    }

    /// Returns the differences between `generation` and the tree that the kernel remembers.
    ///
    /// The main checkout's tree has not changed for longer than the kernel caches a negative
    /// lookup.
    fn difference_from_checkout(
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

    /// Invalidates the names and directories of a tree that differ.
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

    /// Invalidates the times of files that now have other times.
    ///
    /// The fork now shows the files as of another moment. Their numbers stay, as these belong to
    /// versions.
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

    /// Returns the main checkout's path of a carried directory.
    pub(super) fn carried_path(&self, state: &ViewState, dir: &FoundNode) -> Option<RepoPath> {
        match &dir.place {
            NodePlace::Carried(node) => Some(node.path.clone()),
            NodePlace::Layer => match &state.stack.node(dir.ino)?.content {
                Content::Carried(carried) => Some(carried.path.clone()),
                _ => None,
            },
            NodePlace::Base(_) | NodePlace::BaseRoot => None,
        }
    }

    /// Returns the attributes of a carried node.
    ///
    /// A file's are those at lookup, a directory's the present ones.
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

    /// Adds the links of carried directories to a base directory's attributes.
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

    /// Returns a carried node as a record that a layer can hold.
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

    /// Returns the records that put a carried node's place into the layer.
    ///
    /// Empty if a layer has it.
    pub(super) fn place_records(
        &self,
        state: &ViewState,
        node: &CarriedNode,
    ) -> Result<PlaceRecords, FsError> {
        let carry = self.carry.as_ref().ok_or(FsError::Stale)?;
        let hasher = state.base.base.hasher();
        let mut records = PlaceRecords::default();
        let mut name_at = |path: &RepoPath, ino: Ino| {
            let (parent, name) = path.split_last().ok_or(FsError::Stale)?;
            let parent_ino = hasher.ino(&parent);
            if state.stack.dentry(parent_ino, name.as_bytes()).is_none() {
                records.names.push(Op::PutDentry {
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
                records.nodes = nodes;
                return Ok(records);
            }
            let above = carry
                .node(&dir)?
                .filter(CarriedNode::is_dir)
                .ok_or(FsError::Stale)?;
            nodes.push((parent_ino, self.carried_node(&above)?));
            (parent, parent_ino) = name_at(&dir, parent_ino)?;
        }
        // The base directory that holds the carried root. A walk upwards from that root needs its
        // node.
        if parent_ino != Ino::ROOT
            && state.stack.node(parent_ino).is_none()
            && let Some((dir, index)) = state.base.base.find(&parent)?
            && let Some(base) = BaseRef::new(&dir, index)
        {
            let place = NodePlace::Base(base);
            let ino = parent_ino;
            nodes.push((ino, self.node(state, &FoundNode { ino, place })?));
        }
        records.nodes = nodes;
        Ok(records)
    }

    /// Returns the records for a carried node's remembered number.
    ///
    /// Empty for any other number. See [`Workspace::place_records`].
    pub(super) fn place_records_of(
        &self,
        state: &ViewState,
        ino: Ino,
    ) -> Result<PlaceRecords, FsError> {
        if self.carry.is_none() || state.stack.node(ino).is_some() {
            return Ok(PlaceRecords::default());
        }
        match self.inodes.lower(ino) {
            Some(LowerRef::Carried(node)) => self.place_records(state, &node),
            Some(LowerRef::Base(_)) | None => Ok(PlaceRecords::default()),
        }
    }

    /// Returns whether a metadata change must first copy the file up.
    ///
    /// Its bytes then stay, whatever the main checkout does. [`Workspace::copy_up_carried`] copies
    /// them.
    pub(super) fn needs_copy_up(
        &self,
        state: &ViewState,
        found: &FoundNode,
    ) -> Result<bool, FsError> {
        if self.carry.is_none() {
            return Ok(false);
        }
        Ok(match &found.place {
            NodePlace::Carried(node) => {
                node.attr.kind == FileKind::Regular && is_copied_size(node.attr.size)
            }
            NodePlace::Layer => {
                let node = self.layer_node(state, found.ino)?;
                let is_carried =
                    matches!(&node.content, Content::Carried(carried) if carried.version.is_some());
                is_carried && is_copied_size(node.size)
            }
            NodePlace::Base(_) | NodePlace::BaseRoot => false,
        })
    }

    /// Copies the bytes of a carried file up. Changes nothing else of it.
    pub(super) fn copy_up_carried(&self, found: &FoundNode) -> Result<(), FsError> {
        let ino = found.ino;
        self.remember(found)?;
        let owned = self.contents.write(ino).and_then(|_content| {
            self.copying_up(
                ino,
                |size| size,
                0,
                |fetched| self.put_copied_up(ino, fetched),
            )
        });
        let owned = self.note_stale(ino, owned);
        self.forget(ino, 1);
        owned
    }

    /// Copies up a carried file that the kernel remembers, if needed.
    pub(super) fn copy_up_if_needed(&self, ino: Ino) -> Result<(), FsError> {
        if self.carry.is_none() {
            return Ok(());
        }
        let (found, must) = {
            let state = self.read_state();
            let found = self.find(&state, ino)?;
            let must = self.needs_copy_up(&state, &found)?;
            (found, must)
        };
        if must {
            self.copy_up_carried(&found)
        } else {
            Ok(())
        }
    }

    fn put_copied_up(&self, ino: Ino, fetched: &mut Option<Fetched>) -> Result<(), FsError> {
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

    /// Makes a remembered number mean the main checkout's directory.
    ///
    /// Called before the fork drops the layers that have the directory.
    pub(super) fn remember_carried_dir(&self, state: &ViewState, ino: Ino) {
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

    /// Invalidates the name of a carried node whose file was replaced.
    ///
    /// That is so if the operation on it found another version. `done` is the operation's result,
    /// which is returned. No lock may be held.
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

/// Returns whether a file of this size is copied up.
fn is_copied_size(size: u64) -> bool {
    (1..=COPY_UP_MAX).contains(&size)
}

/// Returns the carried node as the view shows it.
///
/// Its name is in no layer. If a layer has a node of its number, a file gets another number. `None`
/// for a directory then: the fork moved it away, and the name is free since.
pub(super) fn found(carry: &Carry, state: &ViewState, mut node: CarriedNode) -> Option<FoundNode> {
    let mut salt = 0;
    while state.stack.node(node.ino()).is_some() {
        // A program may have the layer's node open, from before the fork went back to a snapshot.
        salt += 1;
        node.attr.ino = carry.other_number(&node.path, node.version.as_ref()?, salt);
    }
    Some(FoundNode {
        ino: node.ino(),
        place: NodePlace::Carried(Arc::new(node)),
    })
}
