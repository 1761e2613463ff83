//! Converts forks, changes, snapshots and commits to lines of answers.

use super::failure::Failure;
use super::protocol::{
    AgentTexts, CarryInfo, ChangeLine, CommitLine, ForkInfo, RefusedChange, SnapshotInfo, TreeInfo,
    TreeWord,
};
use super::state::slots::{Daemon, Slot};
use super::state::strays::{self, UnreportedStrays};
use super::state::taking;
use tine_change::fork_point::fork_point;
use tine_change::{Change, Side};
use tine_dotgit::guarding::RefusedWrite;
use tine_git::{CommitInfo, ObjectId};
use tine_store::{ForkName, ForkRecord, SnapshotRecord};
use tine_store::{TreeState, disk_usage};
use tine_workspace::{CarryRecord, DependencyTree};

/// Describes a fork. Does not wait for the fork's lock.
pub(crate) fn fork_info(
    daemon: &Daemon,
    slot: &Slot,
    record: &ForkRecord,
) -> Result<ForkInfo, Failure> {
    let worktree = record.open_worktree(&daemon.repository)?;
    let head = daemon.repository.head_of(worktree.git_dir())?;
    let stats = slot.with_open_fork(|fork| fork.workspace.stats());
    let (layer_bytes, content_bytes) = match stats {
        Some(stats) => (stats.log_bytes + stats.content_bytes, stats.content_bytes),
        None => {
            let layer_dir = daemon
                .store
                .dir()
                .join("layers")
                .join(record.open_layer.to_string());
            let bytes = disk_usage(&layer_dir);
            (bytes, bytes)
        }
    };
    Ok(ForkInfo {
        agent_texts: AgentTexts::default(),
        name: record.name.clone(),
        created_secs: record.created_secs,
        branch: head.short_branch().map(str::to_owned),
        base_commit: record.base_commit.clone(),
        from_branch: record.from_branch.clone(),
        fork_point: fork_point(&daemon.repository, record, head.commit_id())?
            .map(|id| id.to_string()),
        head_commit: head.commit_id().map(|id| id.to_string()),
        parent: record.parent.clone(),
        mount_dir: record.mount_dir.clone(),
        mounted: slot.is_mounted(),
        settings: record.settings,
        on_unmount: record.on_unmount.clone(),
        snapshot_every: record.snapshot_every,
        layer_bytes,
        content_bytes,
        strays: UnreportedStrays::of(&daemon.store, &record.name).brought,
        lying: if slot.is_mounted() {
            Vec::new()
        } else {
            strays::strays_at(&record.mount_dir)
        },
        untrusted: record.untrusted,
        refused: refused(slot),
        note: slot.note().or_else(|| taking::note(slot)),
        carry: record.carry.as_ref().map(|carry| {
            Box::new(CarryInfo {
                from: carry.from.clone(),
                available: daemon.store.is_carry_there(carry),
                paths: carry.paths(),
                held_back: carry.held_back.clone(),
                trees: trees(daemon, carry),
            })
        }),
    })
}

/// Describes the changes that a fork's mount refused.
pub(crate) fn refused(slot: &Slot) -> Vec<RefusedChange> {
    let refused = slot.refused().into_iter();
    let line = |refused: RefusedWrite| RefusedChange {
        path: refused.path.as_slice().into(),
        what: refused.what,
        reason: refused.reason.to_owned(),
    };
    refused.map(line).collect()
}

/// Describes the dependency trees that a fork carries.
pub(crate) fn trees(daemon: &Daemon, carry: &CarryRecord) -> Vec<TreeInfo> {
    let info = |tree: &DependencyTree| {
        let state = daemon.store.tree_state(carry, tree);
        TreeInfo {
            path: tree.path.clone(),
            state: match state {
                TreeState::Keeping => TreeWord::Keeping,
                TreeState::Kept { .. } => TreeWord::Kept,
                TreeState::Following => TreeWord::Following,
                TreeState::Damaged => TreeWord::Damaged,
            },
            generation: tree.generation.as_ref().map(ToString::to_string),
            moved_on: state == TreeState::Kept { moved_on: true },
            reason: tree.given_up.clone(),
        }
    };
    carry.trees.iter().map(info).collect()
}

pub(crate) fn change_line(change: &Change) -> ChangeLine {
    let mode = |side: &Option<Side>| side.as_ref().map(|side| side.kind.mode_text());
    let id = |side: &Option<Side>| {
        let known = side.as_ref().filter(|side| !side.id.is_null());
        known.map(|side| side.id.to_string())
    };
    ChangeLine {
        path: (&change.path).into(),
        kind: change.kind(),
        old_mode: mode(&change.old),
        new_mode: mode(&change.new),
        old_id: id(&change.old),
        new_id: id(&change.new),
    }
}

pub(crate) fn snapshot_info(fork: &ForkName, snapshot: &SnapshotRecord) -> SnapshotInfo {
    SnapshotInfo {
        agent_texts: AgentTexts::default(),
        fork: fork.clone(),
        name: snapshot.name.clone(),
        created_secs: snapshot.created_secs,
        message: snapshot.message.clone(),
        reason: snapshot.reason,
        base_commit: snapshot.base_commit.clone(),
        head_commit: snapshot.head_commit.clone(),
        branch: snapshot.branch.clone(),
        tree: snapshot.tree.clone(),
        layers: snapshot.frozen_layers.len(),
    }
}

pub(crate) fn commit_line(id: ObjectId, info: &CommitInfo) -> CommitLine {
    CommitLine {
        commit: id.to_string(),
        summary: info.summary.clone(),
        author_name: info.author_name.clone(),
        author_email: info.author_email.clone(),
        author_time_secs: info.author_time_secs,
    }
}
