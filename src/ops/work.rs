//! A fork's work: its changes, commits and log.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::buffers::{in_buffers_only, with_agent_texts};
use crate::failure::{ErrorCode, Failure};
use crate::locks;
use crate::operation::{Call, Operation, paragraphs};
use crate::protocol::{Changes, Commits, Committed, Difference};
use crate::state::strays::UnreportedStrays;
use crate::state::taking;
use crate::{points, report};
use tine_change::changeset::{self, Blobs};
use tine_change::compare::compare_trees;
use tine_change::fork_point::fork_point;
use tine_change::revert_guard::RevertRecords;
use tine_change::{CommitOptions, commit as committing};
use tine_git::ObjectId;
use tine_store::{ForkName, ForkRecord};

/// Changes of a fork against HEAD.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Status {
    /// Fork to compare.
    pub fork: ForkName,
    /// True to write the view as git objects too, which sets `Changes::view_tree`.
    pub write: bool,
}

impl Operation for Status {
    const NAME: &'static str = "changes";
    const PROGRESS: &'static str = "comparing";
    type Answer = Changes;

    fn run(self, call: &Call<'_>) -> Result<Changes, Failure> {
        let (daemon, name) = (call.daemon, &self.fork);
        let slot = daemon.slot(name);
        let guard = daemon.lock_fork(&slot)?;
        let fork = guard.open_existing()?;
        let repository = daemon.repository_now()?;
        guard.settle(&repository, &fork)?;
        let blobs = if self.write {
            Blobs::Write
        } else {
            Blobs::Hash
        };
        let changeset = changeset::changeset(&repository, &fork, blobs)?;
        let view_tree = if self.write {
            Some(changeset::write_tree(&repository, &changeset)?.to_string())
        } else {
            None
        };
        let head = repository.head_of(fork.worktree.git_dir())?;
        let record = guard.record()?;
        let carry = record.carry;
        Ok(Changes {
            trouble: slot
                .trouble()
                .or_else(|| UnreportedStrays::of(&daemon.store, name).failed),
            untrusted: record.untrusted,
            refused: report::refused(&slot),
            operation: fork.worktree.operation_in_progress().map(str::to_owned),
            fork: name.clone(),
            branch: head.short_branch().map(str::to_owned),
            head_commit: changeset.head_commit.map(|id| id.to_string()),
            head_tree: changeset.head_tree.to_string(),
            view_tree,
            changes: changeset.changes.iter().map(report::change_line).collect(),
            left_out: changeset.left_out.iter().map(Into::into).collect(),
            in_buffers: in_buffers_only(daemon, name)
                .iter()
                .map(Into::into)
                .collect(),
            trees: carry.map_or_else(Vec::new, |carry| report::trees(daemon, &carry)),
        })
    }
}

/// Difference between the fork's view and another point.
///
/// It leads from that point to the view, or the other way with `reverse`. Both trees are written as
/// git objects.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Diff {
    /// Fork whose view is compared.
    pub fork: ForkName,
    /// Other point, in the words that [`Point`](tine_change::Point) parses. `None` means HEAD.
    pub against: Option<String>,
    /// True for the difference from the view to the other point.
    #[serde(default)]
    pub reverse: bool,
}

impl Operation for Diff {
    const NAME: &'static str = "diff";
    const PROGRESS: &'static str = "comparing";
    type Answer = Difference;

    fn run(self, call: &Call<'_>) -> Result<Difference, Failure> {
        let (daemon, name) = (call.daemon, &self.fork);
        let repository = daemon.repository_now()?;
        let against = match &self.against {
            Some(word) => Some(points::resolve(daemon, &repository, name, word)?),
            None => None,
        };
        let slot = daemon.slot(name);
        let guard = daemon.lock_fork(&slot)?;
        let fork = guard.open_existing()?;
        guard.settle(&repository, &fork)?;
        let changeset = changeset::changeset(&repository, &fork, Blobs::Write)?;
        let view_tree = changeset::write_tree(&repository, &changeset)?;
        let other_tree = match &against {
            Some(point) => point.tree_id,
            None => changeset.head_tree,
        };
        let (old_tree, new_tree) = if self.reverse {
            (view_tree, other_tree)
        } else {
            (other_tree, view_tree)
        };
        let changes = compare_trees(&repository, old_tree, new_tree)?;
        let head = repository.head_of(fork.worktree.git_dir())?;
        Ok(Difference {
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
            in_buffers: in_buffers_only(daemon, name)
                .iter()
                .map(Into::into)
                .collect(),
        })
    }
}

/// Commits what changed in a fork; hooks are the caller's.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize, JsonSchema)]
pub struct Commit {
    /// The fork [default: the one whose mount this is]
    #[arg(value_name = "NAME")]
    #[schemars(skip)]
    #[serde(default)]
    pub fork: Option<ForkName>,

    /// The commit's message; given again, another paragraph of it
    #[arg(short, long, value_name = "MSG", required = true)]
    #[schemars(with = "String")]
    #[serde(with = "paragraphs")]
    pub message: Vec<String>,

    /// Commit also what takes commits of others back, after `tine restore --exact`
    #[arg(long)]
    #[serde(default)]
    pub allow_revert: bool,
}

impl Operation for Commit {
    const NAME: &'static str = "commit";
    const PROGRESS: &'static str = "committing";
    type Answer = Committed;

    fn fork(&mut self) -> Option<&mut Option<ForkName>> {
        Some(&mut self.fork)
    }

    fn run(self, call: &Call<'_>) -> Result<Committed, Failure> {
        let (daemon, name, signers) = (call.daemon, &call.fork(self.fork)?, call.signers());
        let slot = daemon.slot(name);
        let guard = daemon.lock_fork(&slot)?;
        let fork = guard.open_existing()?;
        let repository = daemon.repository_now()?;
        guard.settle(&repository, &fork)?;
        let options = CommitOptions {
            message: self.message.join("\n\n"),
            author: signers.author,
            committer: signers.committer,
            reverts: if self.allow_revert {
                RevertRecords::default()
            } else {
                RevertRecords::of(&daemon.store)
            },
        };
        let lease = locks::lease(daemon, &format!("tine commit {name}"), || {
            locks::head_of(&guard, &repository)
        })?;
        let (outcome, agent_texts) = with_agent_texts(&guard, || {
            Ok(committing::commit(&repository, name, &fork, &options)?)
        })?;
        drop(lease);
        guard.note_settled(&outcome);
        if !guard.record()?.mounted {
            // This may be the commit that a failed unmount policy could not make.
            guard.set_trouble(None);
        }
        // The commit is made, so failures from here on only shorten the answer.
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
        Ok(Committed {
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
        })
    }
}

/// Lists the fork's commits since its fork point, newest first.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Log {
    /// Fork to list.
    pub fork: ForkName,
    /// Largest number of commits in the answer.
    pub limit: usize,
}

impl Operation for Log {
    const NAME: &'static str = "log";
    type Answer = Commits;

    fn run(self, call: &Call<'_>) -> Result<Commits, Failure> {
        let (daemon, name) = (call.daemon, &self.fork);
        let record = daemon.store.record(name)?;
        taking::bring(daemon, &daemon.slot(name));
        let worktree = record.open_worktree(&daemon.repository)?;
        let head = daemon.repository.head_of(worktree.git_dir())?;
        let commits = match head.commit_id() {
            Some(tip) => {
                let point = fork_point(&daemon.repository, &record, Some(tip))?;
                daemon.repository.log(tip, point, self.limit)?
            }
            None => Vec::new(),
        };
        Ok(Commits {
            commits: commits
                .iter()
                .map(|(id, info)| report::commit_line(*id, info))
                .collect(),
        })
    }
}

/// Returns the commit of the fork's base.
pub(crate) fn base_commit(record: &ForkRecord) -> Result<Option<ObjectId>, Failure> {
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
