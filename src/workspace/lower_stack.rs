//! Lower layers of a fork, and their exchange while programs run.
//!
//! Freezing the open layer, and going back to frozen layers, happen between two requests: the
//! holder of [`Exclusive`] knows that no write is under way. The caller first records the new
//! state on disk, and then exchanges the layers. So a later change is in a layer that the record
//! names.
//!
//! After an exchange names resolve to the new nodes at once. A file that a program has open keeps
//! its bytes: its number goes on to mean those, without a name, and the node that its names lead to
//! gets a new number. The kernel does not say which files are open, only which it remembers. It
//! forgets unused nodes when their names are invalidated, so that happens first.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::RwLockWriteGuard;

use super::backing::{PinnedContent, lend_pinned};
use super::base_nodes::{BaseAttrs, BaseNodes};
use super::base_times::BaseTimes;
use super::dir_places::DirPlaces;
use super::error::FsError;
use super::fs::{FoundNode, Invalidation, ViewState, Workspace};
use super::inodes::BaseRef;
use super::view_steps::{BytesIdentity, ViewStep};
use tine_attr::{Attr, FileKind, Ino, InoMap, Timestamp};
use tine_git::{Base, BaseDir, ObjectId, TreeEntryKind};
use tine_layer::{
    Content, Dentry, DirDelta, FrozenLayer, Layer, LayerId, LayerIndex, LayerStack, MergedIndexes,
    Node, Op, inos_below,
};
use tine_path::{DOT_GIT, EntryName, RepoPath};

/// Maximum time for the kernel to forget the invalidated names.
const FORGET_TIMEOUT: Duration = Duration::from_millis(50);
/// Time without a FORGET after which the kernel counts as done.
const FORGET_QUIET: Duration = Duration::from_millis(3);

/// Base and frozen layers below a fork's open layer.
#[derive(Clone)]
pub struct LowerStack {
    /// Base tree.
    pub base: Arc<Base>,
    /// Attributes that base nodes share.
    pub attrs: BaseAttrs,
    /// Modification times of base files; `None` if all have [`BaseAttrs::time`].
    pub times: Option<Arc<BaseTimes>>,
    /// Frozen layers, newest first.
    pub frozen: Vec<Arc<FrozenLayer>>,
    /// Time at which the fork last went back to these layers.
    ///
    /// `None` if it never did. No file of a layer shows an earlier ctime. Git compares times by the
    /// second and would otherwise take a reverted file for the one of the same size in its index.
    pub since: Option<Timestamp>,
}

impl LowerStack {
    pub(super) fn base_nodes(&self) -> BaseNodes {
        BaseNodes {
            base: self.base.clone(),
            attrs: self.attrs,
            times: self.times.clone(),
        }
    }
}

/// Inode numbers, each with the path that it has in any base.
type BasePaths = HashMap<Ino, Option<RepoPath>>;

/// Exclusive access to a fork.
pub struct Exclusive<'a> {
    workspace: &'a Workspace,
    state: RwLockWriteGuard<'a, ViewState>,
    /// Caches that the kernel must drop.
    changes: Vec<Invalidation>,
    /// Steps by which a program would have made the changes.
    steps: Vec<ViewStep>,
    /// Pinned contents, prepared for the freeze.
    pinned: Vec<PinnedContent>,
}

/// Names and nodes that may differ between two lower stacks.
#[derive(Default)]
struct StackDifference {
    names: HashSet<(Ino, EntryName)>,
    nodes: HashSet<Ino>,
    /// Names at which both bases have a file, with different contents.
    rewritten: Vec<(Ino, EntryName)>,
}

impl StackDifference {
    fn add_layer(&mut self, index: &LayerIndex) {
        self.nodes.extend(index.nodes().map(|(ino, _)| ino));
        for (parent, dir) in index.dirs() {
            self.names
                .extend(dir.iter().map(|(name, _)| (parent, name.clone())));
        }
    }

    /// Collects names and nodes of layers that only one stack has.
    fn of(old: &LayerStack, new: &[Arc<FrozenLayer>]) -> StackDifference {
        let mut differing = StackDifference::default();
        differing.add_layer(old.open_layer().index());
        for index in differing_layers(old.frozen(), new) {
            differing.add_layer(index);
        }
        differing
    }

    /// Leaves out `.git`, whose number `ino` stays the same.
    ///
    /// A command that mounts something on it, as at the main checkout's path, would lose that mount
    /// if the name were invalidated.
    fn leave_out_dot_git(&mut self, ino: Ino) {
        self.names
            .retain(|(parent, name)| *parent != Ino::ROOT || !name.is_dot_git());
        self.nodes.remove(&ino);
    }

    /// Adds names that only one base has, or with another kind.
    fn add_bases(&mut self, old: &Base, new: &Base) -> Result<(), FsError> {
        for BaseDifference {
            dir,
            name,
            old: before,
            new: now,
        } in base_differences(old, new)?
        {
            let at = (old.hasher().ino(&dir), name);
            match (before, now) {
                (Some((before, _)), Some((now, _))) if before == now => self.rewritten.push(at),
                _ => drop(self.names.insert(at)),
            }
        }
        Ok(())
    }
}

/// Returns the layers that only one of two stacks has.
pub(super) fn differing_layers<'l>(
    old: &'l [Arc<FrozenLayer>],
    new: &'l [Arc<FrozenLayer>],
) -> impl Iterator<Item = &'l LayerIndex> {
    let ids = |layers: &[Arc<FrozenLayer>]| layers.iter().map(|layer| layer.id()).collect();
    let (old_ids, new_ids): (BTreeSet<LayerId>, BTreeSet<LayerId>) = (ids(old), ids(new));
    let layers = old.iter().chain(new);
    layers
        .filter(move |layer| !(old_ids.contains(&layer.id()) && new_ids.contains(&layer.id())))
        .map(|layer| layer.index())
}

/// Name at which two bases differ. Common directories are compared entry by entry.
pub(super) struct BaseDifference {
    /// Directory that holds the name.
    pub dir: RepoPath,
    /// Name in the directory.
    pub name: EntryName,
    /// Kind and object in the old base, if it has the name.
    pub old: Option<(TreeEntryKind, ObjectId)>,
    /// Kind and object in the new base, if it has the name.
    pub new: Option<(TreeEntryKind, ObjectId)>,
}

/// Returns the differences of two bases. Reads only directories that differ.
pub(super) fn base_differences(old: &Base, new: &Base) -> Result<Vec<BaseDifference>, FsError> {
    let mut differences = Vec::new();
    let mut pairs = vec![(old.root()?, new.root()?)];
    while let Some((old_dir, new_dir)) = pairs.pop() {
        if old_dir.tree_id == new_dir.tree_id {
            continue;
        }
        let names = old_dir.entries.iter().chain(&new_dir.entries);
        let names: BTreeSet<&EntryName> = names.map(|entry| &entry.name).collect();
        for name in names {
            let dir = &old_dir.path;
            match (entry(&old_dir, name), entry(&new_dir, name)) {
                (before, now) if before == now => {}
                (
                    Some((TreeEntryKind::Directory, before)),
                    Some((TreeEntryKind::Directory, now)),
                ) => {
                    let path = dir.join(name);
                    pairs.push((old.dir(&path, before)?, new.dir(&path, now)?));
                }
                (before, now) => differences.push(BaseDifference {
                    dir: dir.clone(),
                    name: name.clone(),
                    old: before,
                    new: now,
                }),
            }
        }
    }
    Ok(differences)
}

fn entry(dir: &BaseDir, name: &EntryName) -> Option<(TreeEntryKind, ObjectId)> {
    let entry = dir.entries.get(dir.find(name.as_bytes())?)?;
    Some((entry.kind, entry.id))
}

impl Workspace {
    /// Returns the present lower layers of the fork.
    pub fn lower_stack(&self) -> LowerStack {
        let state = self.read_state();
        LowerStack {
            base: state.base.base.clone(),
            attrs: state.base.attrs,
            times: state.base.times.clone(),
            frozen: state.stack.frozen().to_vec(),
            since: state.since,
        }
    }

    /// Returns the path that this number has in any base.
    pub(super) fn base_path(&self, state: &ViewState, ino: Ino) -> Option<RepoPath> {
        if ino.is_new() || ino == Ino::ROOT {
            return None;
        }
        let origin = state.stack.node(ino).and_then(|node| node.origin.as_ref());
        match origin {
            Some(origin) => Some(origin.path.clone()),
            None => Some(self.inodes.base(ino)?.path()),
        }
    }

    /// Returns whether the open layer has nothing but the `.git` file.
    pub fn is_unwritten(&self) -> bool {
        has_nothing_but(&self.read_state(), |_, _| false, |_, _| false)
    }

    /// Returns the number of commits to the open layer.
    ///
    /// Counts from when the fork was opened or the layer began.
    pub fn steps(&self) -> u64 {
        self.read_state().stack.open_layer().commits()
    }

    /// Returns number and node of the fork's `.git`.
    pub fn dot_git(&self) -> Option<(Ino, Node)> {
        let state = self.read_state();
        match state.stack.dentry(Ino::ROOT, DOT_GIT) {
            Some(Dentry::Entry(ino)) => Some((ino, state.stack.node(ino)?.clone())),
            _ => None,
        }
    }

    /// Returns all frozen layers in use.
    ///
    /// That includes those that only hold the contents of open files.
    pub fn frozen_layers(&self) -> Vec<Arc<FrozenLayer>> {
        let state = self.read_state();
        let layers = state.stack.frozen().iter().chain(state.stack.retired());
        layers.cloned().collect()
    }

    /// Merges the indexes of many small layers, so that lookups search few.
    ///
    /// Others use the fork meanwhile.
    pub fn merge_indexes(&self) {
        let frozen = self.read_state().stack.frozen().to_vec();
        let merged = MergedIndexes::of(&frozen);
        self.write_state().stack.use_merged(&merged);
    }

    /// Replaces layers by the one that they were merged into.
    ///
    /// `layers` are newest first. Does nothing unless the fork has all of them.
    pub fn exchange_layers(&self, merged: &Arc<FrozenLayer>, layers: &[LayerId]) {
        self.write_state().stack.exchange(merged, layers);
    }

    /// Runs `act` while nobody else uses the fork.
    ///
    /// `act` must not wait for a user of the fork. The listener is notified afterwards. Blocks
    /// until running requests end.
    pub fn exclusively<T>(&self, act: impl FnOnce(&mut Exclusive<'_>) -> T) -> T {
        let contents = self.contents.write_all();
        let mut exclusive = Exclusive {
            workspace: self,
            state: self.write_state(),
            changes: Vec::new(),
            steps: Vec::new(),
            pinned: Vec::new(),
        };
        let outcome = act(&mut exclusive);
        let changes = std::mem::take(&mut exclusive.changes);
        let steps = std::mem::take(&mut exclusive.steps);
        drop(exclusive);
        drop(contents);
        self.announce_steps(changes, steps);
        outcome
    }

    /// Leaves out names in directories that the kernel does not remember.
    fn leave_out_forgotten(&self, differing: &mut StackDifference) {
        let is_known = |dir: Ino| dir == Ino::ROOT || self.inodes.is_remembered(dir);
        differing.names.retain(|(parent, _)| is_known(*parent));
    }

    /// Invalidates names that an exchange for `to` will change.
    ///
    /// The kernel then remembers only those of the changed files that are open. Changes nothing in
    /// the fork. Blocks for up to 50 ms.
    ///
    /// # Errors
    /// [`FsError::Base`] if a directory of a base cannot be read.
    pub fn prepare_to_stand_on(&self, to: &LowerStack) -> Result<(), FsError> {
        let differing = {
            let state = self.read_state();
            let mut differing = StackDifference::of(&state.stack, &to.frozen);
            if state.base.base.tree_id() != to.base.tree_id() {
                differing.add_bases(&state.base.base, &to.base)?;
                differing.nodes.extend(self.inodes.numbers());
            }
            if let Some(Dentry::Entry(ino)) = state.stack.dentry(Ino::ROOT, DOT_GIT) {
                differing.leave_out_dot_git(ino);
            }
            differing
                .nodes
                .retain(|ino| self.inodes.is_remembered(*ino));
            let places = differing
                .nodes
                .iter()
                .map(|ino| (*ino, self.base_path(&state, *ino)));
            // Only names of remembered nodes. The rest is invalidated later.
            differing.names = names_of(&state, &places.collect())
                .into_values()
                .flatten()
                .collect();
            self.leave_out_forgotten(&mut differing);
            differing
        };
        let names = differing.names.into_iter();
        self.announce(names.map(|(parent, name)| Invalidation::Entry { parent, name }));
        let remembered = || {
            let nodes = differing.nodes.iter();
            nodes.filter(|ino| self.inodes.is_remembered(**ino)).count()
        };
        let (begun, mut left, mut since) = (Instant::now(), remembered(), Instant::now());
        while left > 0 && begun.elapsed() < FORGET_TIMEOUT && since.elapsed() < FORGET_QUIET {
            std::thread::sleep(Duration::from_millis(1));
            let now_left = remembered();
            if now_left != left {
                (left, since) = (now_left, Instant::now());
            }
        }
        Ok(())
    }
}

impl Exclusive<'_> {
    /// Returns whether the open layer is untouched, apart from operations.
    ///
    /// Like [`Workspace::is_unwritten`], but ignores the trash and base nodes that only have new
    /// times.
    pub fn is_untouched(&self) -> bool {
        has_nothing_but(
            &self.state,
            |ino, node| ino == Ino::TRASH || node.operation().is_some(),
            |ino, node| is_as_base(&self.state, ino, node),
        )
    }

    /// Prepares `next` as the following open layer.
    ///
    /// Does everything of [`Exclusive::freeze`] and [`Exclusive::stand_on`] that can fail.
    ///
    /// # Errors
    /// [`FsError::Layer`] or [`FsError::NoSpace`] if the pinned contents cannot be copied or the
    /// numbers cannot be reserved.
    pub fn prepare(&mut self, next: &mut Layer) -> Result<(), FsError> {
        let stack = &self.state.stack;
        let below = inos_below(stack.frozen().iter().chain(stack.retired()));
        next.reserve_below(below.max(stack.open_layer().index().inos_below()))?;
        self.pinned = lend_pinned(&mut self.state, next)?;
        Ok(())
    }

    /// Freezes the open layer and continues in `next`.
    ///
    /// `next` must be prepared and recorded.
    pub fn freeze(&mut self, mut next: Layer) {
        let in_next = self.exchange_pinned();
        let ops = in_next
            .into_iter()
            .map(|(ino, node)| Op::PutNode(ino, node));
        if let Err(error) = next.commit(ops.collect()) {
            log::error!("files that are open are not seen as they are written: {error}");
        }
        self.state.stack.freeze(next);
    }

    /// Gives the open layer copies of the pinned contents.
    ///
    /// Returns the nodes for the next layer, which takes over the backing files.
    fn exchange_pinned(&mut self) -> HashMap<Ino, Node> {
        let pinned = std::mem::take(&mut self.pinned);
        let (ops, in_next): (Vec<Op>, HashMap<Ino, Node>) = pinned
            .into_iter()
            .map(|pinned| {
                (
                    Op::PutNode(pinned.ino, pinned.in_frozen),
                    (pinned.ino, pinned.in_next),
                )
            })
            .unzip();
        if let Err(error) = self.state.stack.open_layer_mut().commit(ops) {
            log::error!("what was frozen may still change through files that are open: {error}");
        }
        in_next
    }

    /// Exchanges the lower layers for `to`, which must be recorded already.
    ///
    /// The open layer must just have been frozen. A caller that wants it back has recorded it.
    /// `renewed` are nodes of files in `to`, with the times that they get now.
    pub fn stand_on(&mut self, to: LowerStack, renewed: InoMap<Node>) {
        let mut differing = StackDifference::of(&self.state.stack, &to.frozen);
        let base = Arc::new(to.base_nodes());
        if base.base.tree_id() != self.state.base.base.tree_id()
            || base.attrs != self.state.base.attrs
        {
            if let Err(error) = differing.add_bases(&self.state.base.base, &base.base) {
                log::error!("names may be seen that are no longer there: {error}");
            }
            differing.nodes.extend(self.workspace.inodes.numbers());
        }
        let stack = &self.state.stack;
        let own = stack.open_layer().index().dir(Ino::ROOT);
        if let Some(Dentry::Entry(ino)) = own.and_then(|dir| dir.get(DOT_GIT))
            && stack.frozen_dentry(Ino::ROOT, DOT_GIT) == Some(Dentry::Entry(ino))
        {
            differing.leave_out_dot_git(ino);
        }
        // A layer that hides a file of the base may have no node for it.
        let hidden: Vec<Ino> = differing
            .names
            .iter()
            .filter_map(|(parent, name)| self.base_number(*parent, name))
            .collect();
        differing.nodes.extend(hidden);
        let remembered: Vec<Ino> = differing
            .nodes
            .iter()
            .copied()
            .filter(|ino| self.workspace.inodes.is_remembered(*ino))
            .collect();
        let mut held: HashMap<Ino, (Node, BytesIdentity)> = HashMap::new();
        let mut places: BasePaths = HashMap::new();
        for ino in &remembered {
            places.insert(*ino, self.workspace.base_path(&self.state, *ino));
            self.workspace.remember_carried_dir(&self.state, *ino);
            if let Some(found) = self.regular_file(*ino, self.state.stack.node(*ino)) {
                held.insert(*ino, found);
            }
        }

        let of_other_times = renewed.keys().map(|ino| Invalidation::Attributes(*ino));
        self.changes.extend(of_other_times);
        let paths = self.watchable_paths(&differing);
        let before = self.workspace.view_before(&self.state, paths, Vec::new());
        self.state.base = base;
        self.state.since = to.since;
        self.state.stack.stand_on(to.frozen);
        for ino in &remembered {
            let place = places.get(ino).and_then(Option::as_ref);
            let place = place.and_then(|path| base_ref(&self.state, path));
            self.workspace.inodes.set_base(*ino, place);
        }
        places.retain(|ino, _| held.contains_key(ino));
        let names = names_of(&self.state, &places);
        held.retain(|ino, (node, before)| {
            let now = self.lower_file(*ino).filter(|_| names.contains_key(ino));
            // A file without a name does not get one: no program expects its writes there.
            node.nlink == 0 || now.is_none_or(|(_, now)| now != *before)
        });
        match self.keep_open_files(held, names, renewed) {
            Ok(names) => differing.names.extend(names),
            Err(error) => log::error!("programs lose the files that they have open: {error}"),
        }
        self.forget_retired();
        if let Some(mut before) = before {
            before.add_paths(self.watchable_paths(&differing));
            self.steps
                .extend(self.workspace.view_steps(&self.state, before));
        }
        self.workspace.leave_out_forgotten(&mut differing);
        let names = differing.names.into_iter();
        self.changes
            .extend(names.map(|(parent, name)| Invalidation::Entry { parent, name }));
        // The kernel has the root without a lookup, and keeps its cached listing unless that is
        // invalidated.
        let nodes = remembered.into_iter().chain([Ino::ROOT]);
        self.changes.extend(nodes.map(Invalidation::Node));
    }

    /// Returns the differing paths of this view that programs may watch.
    ///
    /// Empty if there is no listener.
    fn watchable_paths(&self, differing: &StackDifference) -> BTreeSet<RepoPath> {
        if !self.workspace.has_listener() {
            return BTreeSet::new();
        }
        let nodes = differing.nodes.iter();
        let nodes = nodes.map(|ino| (*ino, self.workspace.base_path(&self.state, *ino)));
        let of_nodes = names_of(&self.state, &nodes.collect());
        let of_nodes = of_nodes.values().flatten();
        let names = differing
            .names
            .iter()
            .chain(&differing.rewritten)
            .chain(of_nodes);
        let mut places = DirPlaces::new(&self.state);
        let mut dir_path = |dir: Ino| {
            places.dir_path(dir).or_else(|| {
                let base_path = self.workspace.base_path(&self.state, dir)?;
                places.base_dir_path(dir, base_path)
            })
        };
        names
            .filter_map(|(dir, name)| Some(dir_path(*dir)?.join(name)))
            .collect()
    }

    /// Returns the number of the base's node at this name.
    ///
    /// `None` if the directory is not a base's.
    fn base_number(&self, parent: Ino, name: &EntryName) -> Option<Ino> {
        let dir = match parent {
            Ino::ROOT => RepoPath::root(),
            _ => self.workspace.base_path(&self.state, parent)?,
        };
        Some(self.state.base.base.hasher().ino(&dir.join(name)))
    }

    /// Drops retired layers without the content of an open file.
    fn forget_retired(&mut self) {
        let stack = &self.state.stack;
        if stack.retired().is_empty() {
            return;
        }
        let frozen = stack.frozen().iter().map(|layer| layer.index());
        let indexes = std::iter::once(stack.open_layer().index()).chain(frozen);
        let nameless = indexes
            .flat_map(|index| index.nodes())
            .filter(|(ino, node)| node.nlink == 0 && self.workspace.inodes.is_remembered(*ino));
        let needed: BTreeSet<LayerId> = nameless
            .filter_map(|(_, node)| Some(node.content.own()?.layer))
            .collect();
        // A layer that is not sealed yet is sealed by the next sync.
        let stack = &mut self.state.stack;
        let is_needed = |layer: &FrozenLayer| layer.content_layers().any(|id| needed.contains(&id));
        stack.retain_retired(|layer| is_needed(layer) || !layer.is_sealed());
    }

    /// Returns the regular file below the open layer.
    ///
    /// The open layer has just begun and holds only files with pinned contents.
    fn lower_file(&self, ino: Ino) -> Option<(Node, BytesIdentity)> {
        self.regular_file(ino, self.state.stack.frozen_node(ino))
    }

    /// Returns a regular file with the identity of its bytes.
    ///
    /// It is `node`, or the base's if that is `None`.
    fn regular_file(&self, ino: Ino, node: Option<&Node>) -> Option<(Node, BytesIdentity)> {
        let node = match node {
            Some(node) => node.clone(),
            None => {
                let place = self.workspace.inodes.lower(ino)?.into();
                self.workspace
                    .node(&self.state, &FoundNode { ino, place })
                    .ok()?
            }
        };
        if node.kind != FileKind::Regular {
            return None;
        }
        let held = BytesIdentity::of(&node);
        Some((node, held))
    }

    /// Keeps open files' contents, and gives their names new numbers.
    ///
    /// `held` has the open files by number. Returns those names.
    fn keep_open_files(
        &mut self,
        held: HashMap<Ino, (Node, BytesIdentity)>,
        mut names: HashMap<Ino, HashSet<(Ino, EntryName)>>,
        mut renewed: InoMap<Node>,
    ) -> Result<Vec<(Ino, EntryName)>, FsError> {
        let mut renumbered = Vec::new();
        let mut ops = Vec::new();
        for (ino, (mut before, _)) in held {
            // The number may be a symlink's or a fifo's in the other lower layers.
            let lower = self.lower_file(ino).map(|(now, _)| now);
            let lower = lower.or_else(|| self.state.stack.frozen_node(ino).cloned());
            if let Some(names) = names.remove(&ino)
                && let Some(mut now) = lower.filter(|now| now.kind != FileKind::Directory)
            {
                now.nlink = u32::try_from(names.len()).unwrap_or(u32::MAX);
                if let Some(renewed) = renewed.get(&ino) {
                    now.mtime = renewed.mtime;
                }
                let number = self.state.stack.open_layer_mut().allocate_ino()?;
                ops.push(Op::PutNode(number, now));
                ops.extend(names.iter().map(|(parent, name)| Op::PutDentry {
                    parent: *parent,
                    name: name.clone(),
                    dentry: Dentry::Entry(number),
                }));
                renumbered.extend(names);
            }
            before.nlink = 0;
            ops.push(Op::PutNode(ino, before));
            renewed.remove(&ino);
        }
        ops.extend(
            renewed
                .into_iter()
                .map(|(ino, node)| Op::PutNode(ino, node)),
        );
        self.state.stack.open_layer_mut().commit(ops)?;
        Ok(renumbered)
    }
}

/// Returns whether the node differs from the base's in its times only.
fn is_as_base(state: &ViewState, ino: Ino, node: &Node) -> bool {
    let Some(origin) = &node.origin else {
        return false;
    };
    let attr = if origin.path.is_root() {
        // Carried directories count as links of the root, too.
        let root = state.base.root_attr().map(|attr| Attr {
            nlink: node.nlink,
            ..attr
        });
        root.ok()
    } else {
        base_ref(state, &origin.path).and_then(|base| state.base.attr(&base).ok())
    };
    let is_of_base = matches!(node.content, Content::Base | Content::Empty);
    is_of_base
        && node.xattrs.is_empty()
        && attr.is_some_and(|attr| {
            (attr.ino, attr.kind, attr.perm, attr.nlink) == (ino, node.kind, node.perm, node.nlink)
                && (attr.uid, attr.gid, attr.size) == (node.uid, node.gid, node.size)
        })
}

/// Returns whether the open layer has only `.git` and ignored records.
///
/// A node for which `is_nothing` is true is ignored with the names in it. One for which
/// `is_no_node` is true is ignored, but names in it count.
fn has_nothing_but(
    state: &ViewState,
    is_nothing: impl Fn(Ino, &Node) -> bool,
    is_no_node: impl Fn(Ino, &Node) -> bool,
) -> bool {
    let (stack, base) = (&state.stack, &state.base);
    let index = stack.open_layer().index();
    let is_dot_git = |(parent, dir): (Ino, &DirDelta)| {
        let holds_nothing = index
            .node(parent)
            .is_some_and(|node| is_nothing(parent, node));
        holds_nothing || parent == Ino::ROOT && dir.iter().all(|(name, _)| name.is_dot_git())
    };
    let is_untouched = |(ino, node): (Ino, &Node)| match ino {
        // The root's node is put when a fork is made.
        Ino::ROOT if node.ctime == base.attrs.change_time() && node.xattrs.is_empty() => true,
        _ if is_nothing(ino, node) || is_no_node(ino, node) => true,
        _ => stack.dentry(Ino::ROOT, DOT_GIT) == Some(Dentry::Entry(ino)),
    };
    index.dirs().all(is_dot_git) && index.nodes().all(is_untouched)
}

/// Returns the names that lead to these numbers.
///
/// `places` has the path of each in any base.
fn names_of(state: &ViewState, places: &BasePaths) -> HashMap<Ino, HashSet<(Ino, EntryName)>> {
    let stack = &state.stack;
    let mut names: HashMap<Ino, HashSet<(Ino, EntryName)>> = HashMap::new();
    if places.is_empty() {
        return names;
    }
    for (parent, dir) in stack.indexes().flat_map(|index| index.dirs()) {
        for (name, dentry) in dir.iter() {
            if let Dentry::Entry(ino) = dentry
                && places.contains_key(&ino)
                && stack.dentry(parent, name.as_bytes()) == Some(dentry)
            {
                names.entry(ino).or_default().insert((parent, name.clone()));
            }
        }
    }
    for (ino, path) in places {
        let Some((parent, name)) = path.as_ref().and_then(RepoPath::split_last) else {
            continue;
        };
        let parent = state.base.base.hasher().ino(&parent);
        let shows_base = stack.dentry(parent, name.as_bytes()).is_none();
        if shows_base
            && path
                .as_ref()
                .is_some_and(|path| base_ref(state, path).is_some())
        {
            names.entry(*ino).or_default().insert((parent, name));
        }
    }
    names
}

fn base_ref(state: &ViewState, path: &RepoPath) -> Option<BaseRef> {
    match state.base.base.find(path) {
        Ok(found) => found.and_then(|(dir, index)| BaseRef::new(&dir, index)),
        Err(error) => {
            log::error!("{path} is not found in the base: {error}");
            None
        }
    }
}
