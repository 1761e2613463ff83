//! Snapshots of forks: taking, opening, restoring, removing.
//!
//! The order of writes is simple for two reasons. A record names a layer as frozen before anything
//! else names it, and all of it happens while nobody writes ([`Workspace::exclusively`]). So a
//! process may die between any two steps:
//!
//! | after this step | the next opening of the fork finds |
//! |---|---|
//! | the next layer exists, unnamed | the old state; the layer is removed |
//! | the fork's record: the open layer is frozen, the next one is open | the same view, one more layer |
//! | the snapshot list, or another fork's record | the same view, and a snapshot or fork of it |
//! | the fork's record: it has another lower stack | the other view |
//! | file times are set ([`renewing`](super::renewing)) | the same; opening the fork sets missing times |

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use super::files;
use super::merge::exchange;
use super::open_fork::{OpenForks, check_identity, wait_while_locked};
use super::{Fork, Store};
use crate::StoreError;
use crate::fork::{ForkName, ForkRecord, Renewed, Restoring};
use crate::snapshot::{SnapshotList, SnapshotReason, SnapshotRecord};
use tine_attr::{FileKind, Ino, Timestamp};
use tine_git::{ObjectId, Worktree};
use tine_layer::{
    Content, Dentry, FrozenLayer, Layer, LayerError, LayerId, LayerStack, Node, Op, inos_below,
};
use tine_path::{EntryName, RepoPath};
use tine_workspace::{Exclusive, LowerStack, Workspace};

/// Options for taking a snapshot.
#[derive(Debug, Clone)]
pub struct SnapshotOptions {
    /// Name; `None`: made from the reason and a number.
    pub name: Option<ForkName>,
    /// Message of the user, if any.
    pub message: Option<String>,
    /// Reason for which the snapshot is taken.
    pub reason: SnapshotReason,
}

impl SnapshotOptions {
    /// Returns the options for a snapshot that tine takes by itself.
    pub fn because(reason: SnapshotReason) -> SnapshotOptions {
        SnapshotOptions {
            name: None,
            message: None,
            reason,
        }
    }
}

impl Store {
    /// Reads the fork's snapshots, oldest first.
    ///
    /// # Errors
    /// [`StoreError::NoSuchFork`], or [`StoreError::Damaged`] if the record or list is unusable.
    pub fn snapshots(&self, name: &ForkName) -> Result<Vec<SnapshotRecord>, StoreError> {
        self.places.read_record(name)?;
        Ok(self.places.read_snapshots(name)?.snapshots)
    }

    /// Reads the fork's snapshot of that name.
    ///
    /// # Errors
    /// [`StoreError::NoSuchSnapshot`], or the errors of [`Store::snapshots`].
    pub fn snapshot(
        &self,
        name: &ForkName,
        snapshot: &ForkName,
    ) -> Result<SnapshotRecord, StoreError> {
        Ok(self.find_snapshot(name, snapshot)?.1)
    }

    /// Reads a snapshot together with the list that has it.
    fn find_snapshot(
        &self,
        name: &ForkName,
        snapshot: &ForkName,
    ) -> Result<(SnapshotList, SnapshotRecord), StoreError> {
        self.places.read_record(name)?;
        let list = self.places.read_snapshots(name)?;
        match list.find(snapshot).cloned() {
            Some(found) => Ok((list, found)),
            None => Err(StoreError::NoSuchSnapshot {
                fork: name.clone(),
                snapshot: snapshot.clone(),
            }),
        }
    }

    /// Freezes the fork's current state under a name.
    ///
    /// Takes O(1) time. Programs may write to the fork meanwhile.
    ///
    /// # Errors
    /// [`StoreError::SnapshotExists`], the errors of [`Store::snapshots`], or an error of freezing
    /// the layer or writing the list.
    pub fn take_snapshot(
        &self,
        name: &ForkName,
        fork: &Fork,
        options: &SnapshotOptions,
    ) -> Result<SnapshotRecord, StoreError> {
        let git_point = self.note_point(&self.places.read_snapshots(name)?, fork);
        let _admin = self.admin.lock();
        let mut list = self.places.read_snapshots(name)?;
        let snapshot_name = list.name_for(options.name.as_ref(), options.reason)?;
        let mut record = self.freeze(name, &fork.workspace)?;
        let mut snapshot = self.snapshot_of(&record, fork, snapshot_name, options)?;
        snapshot.git_point = git_point;
        list.snapshots.push(snapshot.clone());
        files::write_json(&self.places.snapshots(name), &list)?;
        if let Err(error) = self.places.note_list(&mut record) {
            log::warn!("a lost list of snapshots of {name} would not be missed: {error}");
        }
        Ok(snapshot)
    }

    fn snapshot_of(
        &self,
        record: &ForkRecord,
        fork: &Fork,
        name: ForkName,
        options: &SnapshotOptions,
    ) -> Result<SnapshotRecord, StoreError> {
        let head = self.repository.head_of(fork.worktree.git_dir())?;
        Ok(SnapshotRecord {
            name,
            created_secs: Timestamp::now().secs,
            message: options.message.clone(),
            reason: options.reason,
            base_commit: record.base_commit.clone(),
            base_tree: record.base_tree.clone(),
            base_attrs: record.base_attrs,
            conversions: record.conversions.clone(),
            // The commit that the files are based on, even if the branch has moved without the
            // fork.
            head_commit: self
                .repository
                .head_left_at(&fork.worktree, fork.name().as_str(), &fork.made_on)?
                .map(|id| id.to_string()),
            branch: head.short_branch().map(str::to_owned),
            fork_point: record.fork_point.clone(),
            is_sparse: fork.worktree.is_sparse()?,
            min_ctime: record.min_ctime,
            frozen_layers: record.frozen_layers.clone(),
            tree: None,
            git_point: None,
        })
    }

    /// Records the tree of a snapshot's view.
    ///
    /// The caller keeps the tree from git's garbage collection.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if the list cannot be parsed, or an I/O error.
    pub fn note_snapshot_tree(
        &self,
        name: &ForkName,
        snapshot: &ForkName,
        tree_id: ObjectId,
    ) -> Result<(), StoreError> {
        let _admin = self.admin.lock();
        let mut list = self.places.read_snapshots(name)?;
        for known in list
            .snapshots
            .iter_mut()
            .filter(|known| known.name == *snapshot)
        {
            known.tree = Some(tree_id.to_string());
        }
        files::write_json(&self.places.snapshots(name), &list)
    }

    /// Removes a snapshot and frees the layers that nothing else reaches.
    ///
    /// # Errors
    /// [`StoreError::NoSuchSnapshot`], the errors of [`Store::snapshots`], or an error of removing
    /// the ref or layers.
    pub fn remove_snapshot(&self, name: &ForkName, snapshot: &ForkName) -> Result<(), StoreError> {
        let _admin = self.admin.lock();
        let (mut list, removed) = self.find_snapshot(name, snapshot)?;
        list.snapshots.retain(|known| known.name != *snapshot);
        files::write_json(&self.places.snapshots(name), &list)?;
        self.repository
            .release(name.as_str(), &tree_label(snapshot))?;
        self.release_points(name, &list);
        self.free_layers(&mut self.open.lock(), &removed.frozen_layers)
    }

    /// Restores the fork to `to`, which may be another fork's snapshot.
    ///
    /// The former state becomes a snapshot first, which is returned.
    ///
    /// # Errors
    /// [`StoreError::SparseCheckout`] if only one of the fork and `to` is sparse,
    /// [`StoreError::Damaged`] if a layer of `to` is unusable, or an error of freezing the layer or
    /// writing records.
    pub fn restore(
        &self,
        name: &ForkName,
        fork: &Fork,
        to: &SnapshotRecord,
        reason: SnapshotReason,
    ) -> Result<SnapshotRecord, StoreError> {
        self.restore_and_begin(name, fork, to, reason, None)
    }

    /// Restores the fork to `to`, and begins to restore its refs.
    ///
    /// The fork's record names `begun` from the moment at which the view is the other one. The
    /// caller does the rest and clears it. The fork point becomes that of `to`.
    ///
    /// # Errors
    /// As [`Store::restore`], and [`StoreError::NoGitPoint`] if HEAD, refs and index of now cannot
    /// be recorded.
    pub fn restore_with_git(
        &self,
        name: &ForkName,
        fork: &Fork,
        to: &SnapshotRecord,
        reason: SnapshotReason,
        begun: Restoring,
    ) -> Result<SnapshotRecord, StoreError> {
        self.restore_and_begin(name, fork, to, reason, Some(begun))
    }

    fn restore_and_begin(
        &self,
        name: &ForkName,
        fork: &Fork,
        to: &SnapshotRecord,
        reason: SnapshotReason,
        begun: Option<Restoring>,
    ) -> Result<SnapshotRecord, StoreError> {
        // Only the index says which files git leaves out, and it is neither restored nor rebuilt
        // here.
        if to.is_sparse != fork.worktree.is_sparse()? {
            return Err(StoreError::SparseCheckout(name.clone()));
        }
        let git_point = self.note_point(&self.places.read_snapshots(name)?, fork);
        if begun.is_some() && git_point.is_none() {
            return Err(StoreError::NoGitPoint {
                fork: name.clone(),
                reason: "what they are now cannot be recorded, and would be lost",
            });
        }
        let _admin = self.admin.lock();
        let record = self.places.read_record(name)?;
        let mut target = to.as_fork(&record);
        target.min_ctime = Some(Timestamp::now());
        target.has_snapshots = true;
        if begun.is_some() {
            target.fork_point.clone_from(&to.fork_point);
        }
        let lower_stack = self.lower_stack_of(&mut self.open.lock(), &target)?;
        // Some may have been merged since `to` was read.
        target.frozen_layers = lower_stack
            .frozen
            .iter()
            .map(|layer| layer.id().0)
            .collect();
        let workspace = &fork.workspace;
        workspace.prepare_switch_to(&lower_stack)?;
        let renewed = self.renewed_times(name, workspace, &lower_stack);

        let mut list = self.places.read_snapshots(name)?;
        let options = SnapshotOptions::because(reason);
        let before_name = list.name_for(None, reason)?;
        let mut before = self.snapshot_of(&record, fork, before_name, &options)?;
        before.git_point = git_point;
        target.restoring = begun.map(|begun| Restoring {
            before: Some(before.name.clone()),
            ..begun
        });
        let next = self.next_open_layer(|layer| {
            // Another fork may have allocated higher inode numbers.
            layer.reserve_below(inos_below(&lower_stack.frozen))?;
            put_dot_git(layer, workspace, &fork.worktree)
        })?;
        let record_path = self.places.record(name);
        let stood = workspace.exclusively(|exclusive| {
            // The written layer becomes frozen. The record says so before anything else names the
            // layer.
            let frozen = next.freeze_in(exclusive, &record, &record_path)?;
            before.frozen_layers.clone_from(&frozen.frozen_layers);
            list.snapshots.push(before.clone());
            files::write_json(&self.places.snapshots(name), &list)?;
            let target = ForkRecord {
                open_layer: frozen.open_layer,
                renewed: (!renewed.is_empty()).then(|| Renewed {
                    before: before.name.clone(),
                    open_layer: frozen.open_layer,
                }),
                ..target
            };
            files::write_json(&record_path, &target).inspect_err(|_| {
                // The record may be in its place already, and only not be known to be on the disk.
                restore_record(&record_path, &frozen);
            })?;
            // If the process dies before this, opening the fork does it.
            exclusive.switch_to(lower_stack, renewed);
            Ok(before)
        });
        self.register_layers_of(workspace);
        stood
    }

    /// Freezes the open layer if anything was written to it.
    ///
    /// Returns the fork's record. Its frozen layers are then all of its view. The caller holds
    /// `admin`.
    pub(super) fn freeze(
        &self,
        name: &ForkName,
        workspace: &Workspace,
    ) -> Result<ForkRecord, StoreError> {
        workspace.check_takes_changes()?;
        let record = self.places.read_record(name)?;
        if workspace.is_unwritten() {
            return Ok(record);
        }
        let next = self.next_open_layer(|_| Ok(()))?;
        let record_path = self.places.record(name);
        let frozen =
            workspace.exclusively(|exclusive| next.freeze_in(exclusive, &record, &record_path));
        self.register_layers_of(workspace);
        frozen
    }

    /// Registers the frozen layers of `workspace` for sharing.
    fn register_layers_of(&self, workspace: &Workspace) {
        workspace.merge_indexes();
        let mut open = self.open.lock();
        for layer in workspace.frozen_layers() {
            open.frozen.insert(layer.id().0, Arc::downgrade(&layer));
        }
    }

    /// Makes a layer that no record names yet. The caller holds `admin`.
    fn next_open_layer(
        &self,
        fill: impl FnOnce(&mut Layer) -> Result<(), LayerError>,
    ) -> Result<NextLayer, StoreError> {
        let id = self.next_layer_id()?;
        self.count_layer(id)?;
        let mut layer = Layer::create_with(&self.places.layer(id), LayerId(id), fill)?;
        layer.draw_on(self.reserve.clone());
        Ok(NextLayer {
            layer: Mutex::new(Some(layer)),
            id,
        })
    }

    /// Opens everything below the open layer of `record`.
    pub(super) fn lower_stack_of(
        &self,
        open: &mut OpenForks,
        record: &ForkRecord,
    ) -> Result<LowerStack, StoreError> {
        let base = self.base_of(open, record)?;
        let mut layers = record.frozen_layers.clone();
        for (merged_of, merged) in &open.merged {
            exchange(&mut layers, merged_of, *merged);
        }
        // The oldest first: a layer that is sealed on opening must not be on the disk before the
        // layers below it.
        let mut frozen = layers
            .iter()
            .rev()
            .map(|id| self.frozen_layer(open, *id))
            .collect::<Result<Vec<_>, _>>()?;
        frozen.reverse();
        Ok(LowerStack {
            base,
            attrs: record.base_attrs,
            times: self.times_of(open, &record.base_attrs),
            frozen,
            since: record.min_ctime,
        })
    }

    /// Opens the frozen layer `id`, shared by all lower stacks with it.
    pub(super) fn frozen_layer(
        &self,
        open: &mut OpenForks,
        id: u64,
    ) -> Result<Arc<FrozenLayer>, StoreError> {
        if let Some(layer) = open.frozen.get(&id).and_then(|layer| layer.upgrade()) {
            return Ok(layer);
        }
        let dir = self.places.layer(id);
        let layer = wait_while_locked(|| FrozenLayer::open_or_seal(&dir))?;
        check_identity(&dir, id, layer.id())?;
        open.frozen.retain(|_, layer| layer.strong_count() > 0);
        open.frozen.insert(id, Arc::downgrade(&layer));
        Ok(layer)
    }

    /// Opens a snapshot as a fork, with the fork's worktree.
    ///
    /// Changes to it are lost when it is dropped.
    ///
    /// # Errors
    /// [`StoreError::NoSuchFork`], [`StoreError::Damaged`] if a layer is unusable, or an error of
    /// opening the worktree or making the temporary layer.
    pub fn open_snapshot(
        &self,
        name: &ForkName,
        snapshot: &SnapshotRecord,
    ) -> Result<Arc<Fork>, StoreError> {
        let record = self.places.read_record(name)?;
        self.restore_worktree(&record)?;
        let worktree = record.open_worktree(&self.repository)?;
        let scratch = self.scratch_dir()?;
        let lower_stack = self.lower_stack_of(&mut self.open.lock(), &snapshot.as_fork(&record))?;
        let layer = Layer::create(&scratch.path().join("layer"), LayerId(0))?;
        let stack = LayerStack::new(layer, lower_stack.frozen.clone());
        let workspace = Workspace::on_lower_stack(&lower_stack, stack)?;
        let workspace = Arc::new(self.with_carried(workspace, &record));
        let fork = self.fork_with(record, workspace, worktree, Some(scratch));
        Ok(Arc::new(fork))
    }

    /// Removes those of the layers `ids` that no record names.
    ///
    /// A layer with open files stays until the next collection or the next opening of the store.
    /// The caller holds `admin`.
    pub(super) fn free_layers(&self, open: &mut OpenForks, ids: &[u64]) -> Result<(), StoreError> {
        let Some(named) = super::recover::named_layers(&self.places)? else {
            // A record that cannot be read may name any of them.
            return Ok(());
        };
        open.awaited.extend(ids);
        for id in std::mem::take(&mut open.awaited) {
            if named.contains(&id) {
                continue;
            }
            match open.is_in_use(id) {
                true => drop(open.awaited.insert(id)),
                // A file in the place of a layer is not tine's. A repair sets it aside.
                false if self.places.layer(id).is_file() => {}
                false => files::remove_dir(&self.places.layer(id))?,
            }
        }
        Ok(())
    }
}

/// Returns the label of the ref that keeps a snapshot's tree.
///
/// It is below `refs/tine/<fork>/`.
pub fn tree_label(snapshot: &ForkName) -> String {
    format!("snapshot-{snapshot}")
}

/// Layer that is about to be a fork's open one.
struct NextLayer {
    /// `None` once it is the fork's open layer.
    layer: Mutex<Option<Layer>>,
    id: u64,
}

impl NextLayer {
    /// Freezes a fork's open layer and makes this one its open layer.
    ///
    /// Writes the new record and returns it.
    fn freeze_in(
        &self,
        exclusive: &mut Exclusive<'_>,
        record: &ForkRecord,
        record_path: &Path,
    ) -> Result<ForkRecord, StoreError> {
        let mut frozen = record.clone();
        frozen.frozen_layers.insert(0, record.open_layer);
        frozen.open_layer = self.id;
        let mut next = self.layer.lock();
        if let Some(layer) = next.as_mut() {
            exclusive.prepare(layer)?;
        }
        files::write_json(record_path, &frozen).inspect_err(|_| {
            if !restore_record(record_path, record) {
                // The record may name the layer.
                drop(next.take());
            }
        })?;
        if let Some(layer) = next.take() {
            exclusive.freeze(layer);
        }
        Ok(frozen)
    }
}

/// Restores a record after an incomplete write; returns whether that succeeded.
fn restore_record(record_path: &Path, record: &ForkRecord) -> bool {
    let written = files::write_json(record_path, record);
    if let Err(error) = &written {
        log::error!(
            "the record of {} may tell of what did not happen: {error}",
            record.name
        );
    }
    written.is_ok()
}

impl Drop for NextLayer {
    fn drop(&mut self) {
        if let Some(layer) = self.layer.get_mut().take() {
            let dir = layer.dir().to_owned();
            drop(layer);
            // Best effort: nothing names the layer, and the next opening of the store removes it.
            let _ = files::remove_dir(&dir);
        }
    }
}

/// Gives a layer the fork's `.git` file, whatever is below it.
fn put_dot_git(
    layer: &mut Layer,
    workspace: &Workspace,
    worktree: &Worktree,
) -> Result<(), LayerError> {
    let Some((ino, node)) = workspace
        .dot_git()
        .filter(|(_, node)| node.kind == FileKind::Regular)
    else {
        // It was removed, or replaced by a repository. A restore must not bring it back.
        return Ok(());
    };
    let text = workspace.read_path(&RepoPath::root().join(&EntryName::dot_git()));
    let text = text.unwrap_or_else(|_| worktree.dot_git());
    let ops = dot_git_with(layer, ino, node, &text)?;
    layer.commit(ops)
}

/// Returns operations that give a layer a `.git` file with these bytes.
pub(super) fn dot_git_with(
    layer: &mut Layer,
    ino: Ino,
    node: Node,
    text: &[u8],
) -> Result<Vec<Op>, LayerError> {
    let size = text.len() as u64;
    let place = layer.new_content(size)?;
    let content = Content::Own(layer.write_content(place, 0, 0, text)?);
    Ok(vec![
        Op::PutNode(
            ino,
            Node {
                content,
                size,
                ..node
            },
        ),
        Op::PutDentry {
            parent: Ino::ROOT,
            name: EntryName::dot_git(),
            dentry: Dentry::Entry(ino),
        },
    ])
}
