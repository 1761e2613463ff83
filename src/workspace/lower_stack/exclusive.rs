//! Exclusive access to a fork: freezing, and exchange of the lower layers.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use parking_lot::RwLockWriteGuard;

use super::difference::StackDifference;
use super::{BasePaths, LowerStack, base_ref, has_nothing_but, names_of};
use crate::backing::{PinnedContent, lend_pinned};
use crate::dir_places::DirPlaces;
use crate::error::FsError;
use crate::fs::{FoundNode, Invalidation, ViewState, Workspace};
use crate::view_steps::{BytesIdentity, ViewStep};
use tine_attr::{Attr, FileKind, Ino, InoMap};
use tine_layer::{Content, Dentry, FrozenLayer, Layer, LayerId, Node, Op, inos_below};
use tine_path::{DOT_GIT, EntryName, RepoPath};

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

impl Workspace {
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
    /// Does everything of [`Exclusive::freeze`] and [`Exclusive::switch_to`] that can fail.
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
    pub fn switch_to(&mut self, to: LowerStack, renewed: InoMap<Node>) {
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
        self.state.stack.replace_frozen(to.frozen);
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
