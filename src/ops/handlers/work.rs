//! The work in a fork: its changes, commits and log.

use std::sync::Arc;

use super::buffers::{in_buffers_only, with_agent_texts};
use crate::failure::{ErrorCode, Failure};
use crate::protocol::{Answer, Changes, Committed, Difference, Response};
use crate::slots::Daemon;
use crate::strays::Untold;
use crate::{points, report};
use tine_change::changeset::{self, Blobs};
use tine_change::compare::compare_trees;
use tine_change::fork_point::fork_point;
use tine_change::going_back::KnownGoneBack;
use tine_change::{CommitOptions, commit as committing};
use tine_git::{Identity, LinkedWorktree, ObjectId};
use tine_workspace::{ForkName, ForkRecord};

pub fn changes(daemon: &Arc<Daemon>, name: &ForkName, write: bool) -> Response {
    let slot = daemon.slot(name);
    let turn = daemon.turn(&slot)?;
    let fork = turn.open_existing()?;
    let repository = daemon.repository_now()?;
    turn.settle(&repository, &fork)?;
    let blobs = match write {
        true => Blobs::Write,
        false => Blobs::Hash,
    };
    let changeset = changeset::changeset(&repository, &fork, blobs)?;
    let view_tree = match write {
        true => Some(changeset::write_tree(&repository, &changeset)?.to_string()),
        false => None,
    };
    let head = repository.head_of(fork.worktree.git_dir())?;
    let carry = turn.record()?.carry;
    Ok(Answer::Changes(Changes {
        trouble: slot.trouble().or_else(|| Untold::of(&daemon.store, name).failed),
        operation: fork.worktree.operation_in_progress().map(str::to_owned),
        fork: name.clone(),
        branch: head.short_branch().map(str::to_owned),
        head_commit: changeset.head_commit.map(|id| id.to_string()),
        head_tree: changeset.head_tree.to_string(),
        view_tree,
        changes: changeset.changes.iter().map(report::change_line).collect(),
        left_out: changeset.left_out.iter().map(Into::into).collect(),
        in_buffers: in_buffers_only(daemon, name).iter().map(Into::into).collect(),
        trees: carry.map_or_else(Vec::new, |carry| report::trees(daemon, &carry)),
    }))
}

/// What leads from the point `against` (HEAD, where none is named) to the fork's view; with `reverse` the other way.
pub fn diff(daemon: &Arc<Daemon>, name: &ForkName, against: Option<&str>, reverse: bool) -> Response {
    let repository = daemon.repository_now()?;
    let against = match against {
        Some(word) => Some(points::resolve(daemon, &repository, name, word)?),
        None => None,
    };
    let slot = daemon.slot(name);
    let turn = daemon.turn(&slot)?;
    let fork = turn.open_existing()?;
    turn.settle(&repository, &fork)?;
    let changeset = changeset::changeset(&repository, &fork, Blobs::Write)?;
    let view_tree = changeset::write_tree(&repository, &changeset)?;
    let other_tree = match &against {
        Some(point) => point.tree_id,
        None => changeset.head_tree,
    };
    let (old_tree, new_tree) = match reverse {
        false => (other_tree, view_tree),
        true => (view_tree, other_tree),
    };
    let changes = compare_trees(&repository, old_tree, new_tree)?;
    let head = repository.head_of(fork.worktree.git_dir())?;
    Ok(Answer::Difference(Box::new(Difference {
        fork: name.clone(),
        branch: head.short_branch().map(str::to_owned),
        head_commit: changeset.head_commit.map(|id| id.to_string()),
        head_tree: changeset.head_tree.to_string(),
        view_tree: view_tree.to_string(),
        against: against.as_ref().map(Into::into),
        old_tree: old_tree.to_string(),
        new_tree: new_tree.to_string(),
        changes: changes.iter().map(report::change_line).collect(),
        left_out: changeset.left_out.iter().map(Into::into).collect(),
        in_buffers: in_buffers_only(daemon, name).iter().map(Into::into).collect(),
    })))
}

pub fn commit(
    daemon: &Arc<Daemon>,
    name: &ForkName,
    message: String,
    author: Option<Identity>,
    committer: Option<Identity>,
    allow_revert: bool,
) -> Response {
    let slot = daemon.slot(name);
    let turn = daemon.turn(&slot)?;
    let fork = turn.open_existing()?;
    let repository = daemon.repository_now()?;
    turn.settle(&repository, &fork)?;
    let options = CommitOptions {
        message,
        author,
        committer,
        gone_back: match allow_revert {
            true => KnownGoneBack::default(),
            false => KnownGoneBack::of(&daemon.store),
        },
    };
    let lease = turn.lease_head(&repository, &format!("tine commit {name}"))?;
    let (outcome, agent_texts) = with_agent_texts(&turn, || {
        Ok(committing::commit(&repository, name, &fork, &options)?)
    })?;
    drop(lease);
    turn.note_settled(&outcome);
    if !turn.record()?.mounted {
        // A policy that could not commit, if anything: now it is done.
        turn.set_trouble(None);
    }
    // The commit is made: what cannot be told of it is left out.
    let branch = match repository.head_of(fork.worktree.git_dir()) {
        Ok(head) => head.short_branch().map(str::to_owned),
        Err(error) => {
            log::warn!("{name}: {error}");
            None
        }
    };
    let summary = match repository.commit_info(outcome.commit_id) {
        Ok(info) => info.summary,
        Err(error) => {
            log::warn!("{name}: {error}");
            String::new()
        }
    };
    Ok(Answer::Committed(Committed {
        fork: name.clone(),
        branch,
        commit: outcome.commit_id.to_string(),
        tree: outcome.tree_id.to_string(),
        parent: outcome.parent_id.map(|id| id.to_string()),
        summary,
        changes: outcome
            .changeset
            .changes
            .iter()
            .map(report::change_line)
            .collect(),
        left_out: outcome.changeset.left_out.iter().map(Into::into).collect(),
        agent_texts,
    }))
}

pub fn log(daemon: &Arc<Daemon>, name: &ForkName, limit: usize) -> Response {
    let record = daemon.store.record(name)?;
    let worktree = LinkedWorktree::open(&daemon.repository, &record.worktree_id)?;
    let head = daemon.repository.head_of(worktree.git_dir())?;
    let commits = match head.commit_id() {
        Some(tip) => {
            let point = fork_point(&daemon.repository, &record, Some(tip))?;
            daemon.repository.log(tip, point, limit)?
        }
        None => Vec::new(),
    };
    Ok(Answer::Log {
        commits: commits
            .iter()
            .map(|(id, info)| report::commit_line(*id, info))
            .collect(),
    })
}

/// The commit of the fork's base.
pub fn base_commit(record: &ForkRecord) -> Result<Option<ObjectId>, Failure> {
    record
        .base_commit
        .as_deref()
        .map(|hex| commit_in(record, hex))
        .transpose()
}

fn commit_in(record: &ForkRecord, hex: &str) -> Result<ObjectId, Failure> {
    ObjectId::from_hex(hex.as_bytes()).map_err(|error| {
        Failure::new(
            ErrorCode::StoreDamaged,
            format!("the record of {} is damaged", record.name),
        )
        .cause(error.to_string())
    })
}
