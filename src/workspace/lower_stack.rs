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

mod difference;
mod exclusive;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::difference::StackDifference;
pub(super) use self::difference::{BaseDifference, base_differences, differing_layers};
pub use self::exclusive::Exclusive;
use super::base_nodes::{BaseAttrs, BaseNodes};
use super::base_times::BaseTimes;
use super::error::FsError;
use super::fs::{Invalidation, ViewState, Workspace};
use super::inodes::BaseRef;
use tine_attr::{Ino, Timestamp};
use tine_git::Base;
use tine_layer::{Dentry, DirDelta, FrozenLayer, LayerId, MergedIndexes, Node};
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
    pub fn prepare_switch_to(&self, to: &LowerStack) -> Result<(), FsError> {
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
