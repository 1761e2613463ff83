//! What a fork stands on, and how that changes while programs work in it.
//!
//! Freezing what was written, and going back to what was frozen before, happen between two
//! requests: who has the fork *exclusively* knows that nothing is being written. What is to outlive
//! this process is recorded by the caller meanwhile, before what the record says is so: a change
//! that comes after is in a layer that the record names.
//!
//! When the fork goes elsewhere, names lead to what is there at once. A file that a program has
//! open keeps the bytes that it had: its number goes on to mean those, without a name, and what its
//! names lead to gets a number of its own. The kernel does not tell which files are open, only
//! which it remembers; it forgets those that nobody uses when their names are invalidated, so that
//! is done first.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::RwLockWriteGuard;

use super::backing::{Lent, lend_pinned};
use super::base_nodes::{BaseAttrs, BaseNodes};
use super::base_times::BaseTimes;
use super::dir_places::DirPlaces;
use super::error::FsError;
use super::fs::{Found, Invalidation, State, Workspace};
use super::inodes::BaseRef;
use super::view_steps::{Held, ViewStep};
use tine_attr::{Attr, FileKind, Ino, InoMap, Timestamp};
use tine_git::{Base, BaseDir, ObjectId, TreeEntryKind};
use tine_layer::{
    Content, Dentry, DirDelta, FrozenLayer, Layer, LayerId, LayerIndex, LayerStack, MergedIndexes,
    Node, Op, inos_below,
};
use tine_path::{DOT_GIT, EntryName, RepoPath};

/// How long the kernel may take to forget what it was told to forget …
const FORGETTING: Duration = Duration::from_millis(50);
/// … and how long nothing may happen before it is taken to be done.
const QUIET: Duration = Duration::from_millis(3);

/// Everything beneath a fork's open layer.
#[derive(Clone)]
pub struct LowerStack {
    pub base: Arc<Base>,
    pub attrs: BaseAttrs,
    pub times: Option<Arc<BaseTimes>>,
    /// Newest first.
    pub frozen: Vec<Arc<FrozenLayer>>,
    /// When the fork went back to this, if it ever did. No file of a layer shows an earlier ctime:
    /// git, which compares times by the second, would take a file that went back for the one of the
    /// same size that it has in its index.
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

/// Numbers, and where each would stand in any base.
type Places = HashMap<Ino, Option<RepoPath>>;

/// A fork while nobody else can use it.
pub struct Exclusive<'a> {
    workspace: &'a Workspace,
    state: RwLockWriteGuard<'a, State>,
    /// What the kernel has to forget.
    changes: Vec<Invalidation>,
    /// How a program would have made them.
    steps: Vec<ViewStep>,
    /// Contents that the kernel uses by itself.
    lent: Vec<Lent>,
}

/// Names and nodes that two standings may not have in common.
#[derive(Default)]
struct Differing {
    names: HashSet<(Ino, EntryName)>,
    nodes: HashSet<Ino>,
    /// Names at which one base has a file and the other has one with another content.
    rewritten: Vec<(Ino, EntryName)>,
}

impl Differing {
    fn add_layer(&mut self, index: &LayerIndex) {
        self.nodes.extend(index.nodes().map(|(ino, _)| ino));
        for (parent, dir) in index.dirs() {
            self.names
                .extend(dir.iter().map(|(name, _)| (parent, name.clone())));
        }
    }

    /// What the layers say that only one of the stacks has.
    fn of(old: &LayerStack, new: &[Arc<FrozenLayer>]) -> Differing {
        let mut differing = Differing::default();
        differing.add_layer(old.open_layer().index());
        for index in differing_layers(old.frozen(), new) {
            differing.add_layer(index);
        }
        differing
    }

    /// Leaves `.git` out, which has the number `ino` before and after: who has something mounted on
    /// it, as a command at the main checkout's path has, would lose that with the name.
    fn leave_out_dot_git(&mut self, ino: Ino) {
        self.names
            .retain(|(parent, name)| *parent != Ino::ROOT || !name.is_dot_git());
        self.nodes.remove(&ino);
    }

    /// The names at which one base has something and the other has not, or something of another
    /// kind.
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

/// The layers that only one of two stacks has.
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

/// A name at which two bases have not the same. Where both have a directory, it is what differs in
/// that.
pub(super) struct BaseDifference {
    pub dir: RepoPath,
    pub name: EntryName,
    pub old: Option<(TreeEntryKind, ObjectId)>,
    pub new: Option<(TreeEntryKind, ObjectId)>,
}

/// Costs O(the directories in which something differs).
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
    /// What the fork stands on now.
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

    /// Where a node with this number would stand in any base.
    pub(super) fn base_path(&self, state: &State, ino: Ino) -> Option<RepoPath> {
        if ino.is_new() || ino == Ino::ROOT {
            return None;
        }
        let origin = state.stack.node(ino).and_then(|node| node.origin.as_ref());
        match origin {
            Some(origin) => Some(origin.path.clone()),
            None => Some(self.inodes.base(ino)?.path()),
        }
    }

    /// Whether the open layer has nothing to say but where the repository is.
    pub fn is_unwritten(&self) -> bool {
        has_nothing_but(&self.read_state(), |_, _| false, |_, _| false)
    }

    /// How many steps changed the fork since it was opened or its layer was frozen.
    pub fn steps(&self) -> u64 {
        self.read_state().stack.open_layer().commits()
    }

    /// The node that the fork has at `.git`.
    pub fn dot_git(&self) -> Option<(Ino, Node)> {
        let state = self.read_state();
        match state.stack.dentry(Ino::ROOT, DOT_GIT) {
            Some(Dentry::Entry(ino)) => Some((ino, state.stack.node(ino)?.clone())),
            _ => None,
        }
    }

    /// All frozen layers at hand, those too that only hold the contents of open files.
    pub fn frozen_layers(&self) -> Vec<Arc<FrozenLayer>> {
        let state = self.read_state();
        let layers = state.stack.frozen().iter().chain(state.stack.retired());
        layers.cloned().collect()
    }

    /// Has things looked up in few indexes where there are many small layers. Others use the fork
    /// meanwhile.
    pub fn merge_indexes(&self) {
        let frozen = self.read_state().stack.frozen().to_vec();
        let merged = MergedIndexes::of(&frozen);
        self.write_state().stack.use_merged(&merged);
    }

    /// Puts a layer in the place of those that it was merged of, newest first, where the fork
    /// stands on these.
    pub fn exchange_layers(&self, merged: &Arc<FrozenLayer>, layers: &[LayerId]) {
        self.write_state().stack.exchange(merged, layers);
    }

    /// Runs `act` while nobody else uses the fork. It must not wait for anybody who does.
    pub fn exclusively<T>(&self, act: impl FnOnce(&mut Exclusive<'_>) -> T) -> T {
        let contents = self.contents.write_all();
        let mut exclusive = Exclusive {
            workspace: self,
            state: self.write_state(),
            changes: Vec::new(),
            steps: Vec::new(),
            lent: Vec::new(),
        };
        let outcome = act(&mut exclusive);
        let changes = std::mem::take(&mut exclusive.changes);
        let steps = std::mem::take(&mut exclusive.steps);
        drop(exclusive);
        drop(contents);
        self.announce_steps(changes, steps);
        outcome
    }

    /// Leaves out the names in directories that the kernel does not remember: it knows none of
    /// them.
    fn leave_out_forgotten(&self, differing: &mut Differing) {
        let is_known = |dir: Ino| dir == Ino::ROOT || self.inodes.is_remembered(dir);
        differing.names.retain(|(parent, _)| is_known(*parent));
    }

    /// Has the kernel forget what will not be as it is once the fork stands on `to`, so that it
    /// remembers of those files only what is open. Changes nothing.
    pub fn prepare_to_stand_on(&self, to: &LowerStack) -> Result<(), FsError> {
        let differing = {
            let state = self.read_state();
            let mut differing = Differing::of(&state.stack, &to.frozen);
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
            // Only what leads to nodes that it remembers: the rest is for later.
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
        while left > 0 && begun.elapsed() < FORGETTING && since.elapsed() < QUIET {
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
    /// As [`Workspace::is_unwritten`], or beside that only which operations led there, and the
    /// times of what came back.
    pub fn is_untouched(&self) -> bool {
        has_nothing_but(
            &self.state,
            |ino, node| ino == Ino::TRASH || node.operation().is_some(),
            |ino, node| is_as_base(&self.state, ino, node),
        )
    }

    /// Makes `next` ready to be written after the open layer: all of [`Exclusive::freeze`] and
    /// [`Exclusive::stand_on`] that can fail.
    pub fn prepare(&mut self, next: &mut Layer) -> Result<(), FsError> {
        let stack = &self.state.stack;
        let below = inos_below(stack.frozen().iter().chain(stack.retired()));
        next.reserve_below(below.max(stack.open_layer().index().inos_below()))?;
        self.lent = lend_pinned(&mut self.state, next)?;
        Ok(())
    }

    /// Freezes the open layer and goes on in `next`, which was prepared and recorded.
    pub fn freeze(&mut self, mut next: Layer) {
        let in_next = self.exchange_lent();
        let ops = in_next
            .into_iter()
            .map(|(ino, node)| Op::PutNode(ino, node));
        if let Err(error) = next.commit(ops.collect()) {
            log::error!("files that are open are not seen as they are written: {error}");
        }
        self.state.stack.freeze(next);
    }

    /// Gives the open layer copies of what the kernel uses by itself; the nodes as the next layer
    /// is to have them.
    fn exchange_lent(&mut self) -> HashMap<Ino, Node> {
        let lent = std::mem::take(&mut self.lent);
        let (ops, in_next): (Vec<Op>, HashMap<Ino, Node>) = lent
            .into_iter()
            .map(|lent| {
                (
                    Op::PutNode(lent.ino, lent.in_frozen),
                    (lent.ino, lent.in_next),
                )
            })
            .unzip();
        if let Err(error) = self.state.stack.open_layer_mut().commit(ops) {
            log::error!("what was frozen may still change through files that are open: {error}");
        }
        in_next
    }

    /// Lets the fork stand on `to` from now on, which is recorded. What it stood on must just have
    /// been frozen; who wants it back has recorded that before. `renewed` are nodes of files there
    /// with the times that they must have from now on.
    pub fn stand_on(&mut self, to: LowerStack, renewed: InoMap<Node>) {
        let mut differing = Differing::of(&self.state.stack, &to.frozen);
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
        // A layer that hides a file of the base need not have a node for it.
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
        let mut held: HashMap<Ino, (Node, Held)> = HashMap::new();
        let mut places: Places = HashMap::new();
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
            let now = self.file_beneath(*ino).filter(|_| names.contains_key(ino));
            // What had no name gets none: nobody expects to find there what is written to it.
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
        // The kernel has the root without ever having looked it up, and keeps what it listed there
        // if it does not know a name.
        let nodes = remembered.into_iter().chain([Ino::ROOT]);
        self.changes.extend(nodes.map(Invalidation::Node));
    }

    /// Where in this view programs may watch what differs. Nothing where nobody is told.
    fn watchable_paths(&self, differing: &Differing) -> BTreeSet<RepoPath> {
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

    /// The number of what a base may have by this name, where the directory stands in one.
    fn base_number(&self, parent: Ino, name: &EntryName) -> Option<Ino> {
        let dir = match parent {
            Ino::ROOT => RepoPath::root(),
            _ => self.workspace.base_path(&self.state, parent)?,
        };
        Some(self.state.base.base.hasher().ino(&dir.join(name)))
    }

    /// Lets go of layers that hold nothing which a program may have open.
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
        // One that is not on the disk yet is brought there by the next sync.
        let stack = &mut self.state.stack;
        let is_needed = |layer: &FrozenLayer| layer.content_layers().any(|id| needed.contains(&id));
        stack.retain_retired(|layer| is_needed(layer) || !layer.is_sealed());
    }

    /// The node beneath the open layer, which has just begun and speaks only of files that the
    /// kernel uses by itself.
    fn file_beneath(&self, ino: Ino) -> Option<(Node, Held)> {
        self.regular_file(ino, self.state.stack.frozen_node(ino))
    }

    /// A regular file, which is `node` or else the base's, and what tells its bytes from others.
    fn regular_file(&self, ino: Ino, node: Option<&Node>) -> Option<(Node, Held)> {
        let node = match node {
            Some(node) => node.clone(),
            None => {
                let place = self.workspace.inodes.lower(ino)?.into();
                self.workspace
                    .node(&self.state, &Found { ino, place })
                    .ok()?
            }
        };
        if node.kind != FileKind::Regular {
            return None;
        }
        let held = Held::of(&node);
        Some((node, held))
    }

    /// Lets the numbers of `held` mean what they meant, and gives their names others: those names.
    fn keep_open_files(
        &mut self,
        held: HashMap<Ino, (Node, Held)>,
        mut names: HashMap<Ino, HashSet<(Ino, EntryName)>>,
        mut renewed: InoMap<Node>,
    ) -> Result<Vec<(Ino, EntryName)>, FsError> {
        let mut renumbered = Vec::new();
        let mut ops = Vec::new();
        for (ino, (mut before, _)) in held {
            // The number may be that of a symlink or a fifo in another fork.
            let beneath = self.file_beneath(ino).map(|(now, _)| now);
            let beneath = beneath.or_else(|| self.state.stack.frozen_node(ino).cloned());
            if let Some(names) = names.remove(&ino)
                && let Some(mut now) = beneath.filter(|now| now.kind != FileKind::Directory)
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

/// Whether the node is the base's but for its times.
fn is_as_base(state: &State, ino: Ino, node: &Node) -> bool {
    let Some(origin) = &node.origin else {
        return false;
    };
    let attr = match origin.path.is_root() {
        // It has links to what is carried, too.
        true => state
            .base
            .root_attr()
            .map(|attr| Attr {
                nlink: node.nlink,
                ..attr
            })
            .ok(),
        false => base_ref(state, &origin.path).and_then(|base| state.base.attr(&base).ok()),
    };
    let is_of_base = matches!(node.content, Content::Base | Content::Empty);
    is_of_base
        && node.xattrs.is_empty()
        && attr.is_some_and(|attr| {
            (attr.ino, attr.kind, attr.perm, attr.nlink) == (ino, node.kind, node.perm, node.nlink)
                && (attr.uid, attr.gid, attr.size) == (node.uid, node.gid, node.size)
        })
}

/// Whether the open layer has nothing to say but where the repository is, what is nothing, with the
/// names in it, and nodes that are nothing, whose names count.
fn has_nothing_but(
    state: &State,
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
        // It is put when a fork is made.
        Ino::ROOT if node.ctime == base.attrs.change_time() && node.xattrs.is_empty() => true,
        _ if is_nothing(ino, node) || is_no_node(ino, node) => true,
        _ => stack.dentry(Ino::ROOT, DOT_GIT) == Some(Dentry::Entry(ino)),
    };
    index.dirs().all(is_dot_git) && index.nodes().all(is_untouched)
}

/// The names that lead to these numbers. `places` tells where each would stand in any base.
fn names_of(state: &State, places: &Places) -> HashMap<Ino, HashSet<(Ino, EntryName)>> {
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

fn base_ref(state: &State, path: &RepoPath) -> Option<BaseRef> {
    match state.base.base.find(path) {
        Ok(found) => found.and_then(|(dir, index)| BaseRef::new(&dir, index)),
        Err(error) => {
            log::error!("{path} is not found in the base: {error}");
            None
        }
    }
}
