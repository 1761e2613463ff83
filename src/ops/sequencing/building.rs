//! Builds sequences of requests and the present state.

use super::{SequenceArgs, TargetState, mailboxes};
use crate::failure::{ErrorCode, Failure};
use crate::state::taking;
use crate::target::{Target, fork_called};
use tine_change::branches;
use tine_change::fork_point::kept_by_update;
use tine_change::sequence::{Sequence, SequenceItem, SequenceRequest};
use tine_git::{GitError, ObjectId};

/// Builds the sequence for `args`.
pub(super) fn build(
    target: &Target<'_>,
    args: &SequenceArgs,
    now: &TargetState,
) -> Result<Sequence, Failure> {
    match &args.request {
        SequenceRequest::Update { rebase, .. } => update(target, args, now, *rebase),
        SequenceRequest::CherryPick {
            commits,
            mainline,
            says_origin,
            emptied,
        } => {
            for word in commits {
                taking::bring_named(target.daemon, word);
            }
            let mut items = Vec::new();
            for commit_id in target.repository.named_commits(&args.git_dir, commits)? {
                items.push(pick(target, commit_id, *mainline, *says_origin)?);
            }
            Ok(Sequence {
                emptied: *emptied,
                keep_empty: false,
                ..Sequence::of(items)
            })
        }
        SequenceRequest::Patch {
            patch,
            strip,
            reverse,
            three_way,
        } => Ok(Sequence::of(vec![SequenceItem::Patch {
            patch: patch.clone(),
            strip: *strip,
            reverse: *reverse,
            three_way: *three_way,
        }])),
        SequenceRequest::Restore {
            base_tree,
            view_tree,
            paths,
            ..
        } => Ok(Sequence::of(vec![SequenceItem::Restored {
            base_tree: base_tree.clone(),
            view_tree: view_tree.clone(),
            paths: paths.clone(),
        }])),
        SequenceRequest::Mailbox { handoff, three_way } => {
            mailboxes::items(target, *handoff, *three_way).map(Sequence::of)
        }
    }
}

/// Returns the commit that an update goes to. `None` for other requests.
pub(super) fn upstream(
    target: &Target<'_>,
    args: &SequenceArgs,
) -> Result<Option<ObjectId>, Failure> {
    let SequenceRequest::Update { from, .. } = &args.request else {
        return Ok(None);
    };
    let (daemon, repository) = (target.daemon, target.repository);
    let branch = match (from, target.guard) {
        (Some(word), _) => {
            if let Some(fork) = fork_called(daemon, word) {
                taking::bring_fork(daemon, &fork);
                let worktree = daemon.store.worktree_of(&fork)?;
                let head = repository.head_of(worktree.git_dir())?.commit_id();
                return head
                    .map(Some)
                    .ok_or_else(|| GitError::UnknownRevision(word.clone()).into());
            }
            taking::bring_named(daemon, word);
            return Ok(Some(repository.resolve_commit(&args.git_dir, word)?));
        }
        (None, Some(guard)) => {
            branches::follow(&daemon.store, repository)?;
            guard.record()?.from_branch
        }
        (None, None) => None,
    };
    let Some(branch) = branch else {
        return Err(Failure::new(
            ErrorCode::Usage,
            format!(
                "{} began at a commit, and on no branch",
                args.into.trim_start_matches("fork:")
            ),
        )
        .hint("name the revision to bring it up to: `--from REV`"));
    };
    taking::bring_named(daemon, &branch);
    match repository.branch(&branch)? {
        Some(tip) => Ok(Some(tip)),
        None => Err(Failure::from(GitError::UnknownRevision(branch))
            .context("the branch that it came from is gone")),
    }
}

/// Returns the ref name of [`upstream`], if it is a branch.
fn upstream_name(target: &Target<'_>, args: &SequenceArgs) -> Result<Option<String>, Failure> {
    let SequenceRequest::Update { from, .. } = &args.request else {
        return Ok(None);
    };
    let in_full = |branch: &str| format!("refs/heads/{branch}");
    match (from, target.guard) {
        (Some(word), _) => match fork_called(target.daemon, word) {
            Some(fork) => {
                let worktree = target.daemon.store.worktree_of(&fork)?;
                let head = target.repository.head_of(worktree.git_dir())?;
                Ok(head.short_branch().map(in_full))
            }
            None => Ok(Some(word.clone())),
        },
        (None, Some(guard)) => Ok(guard.record()?.from_branch.as_deref().map(in_full)),
        (None, None) => Ok(None),
    }
}

fn update(
    target: &Target<'_>,
    args: &SequenceArgs,
    now: &TargetState,
    rebase: bool,
) -> Result<Sequence, Failure> {
    let repository = target.repository;
    let (Some(guard), Some(view)) = (target.guard, now.view) else {
        return Err(Failure::new(
            ErrorCode::NoSuchFork,
            format!("{} is not a fork", args.into),
        )
        .hint("`tine list` shows the forks"));
    };
    let Some(upstream) = upstream(target, args)? else {
        return Ok(Sequence::of(Vec::new()));
    };
    let uncommitted = SequenceItem::Uncommitted {
        head_tree: now.tip.tree_id.to_string(),
        view_tree: view.to_string(),
        is_ours: !rebase,
    };
    let Some(head) = now.tip.commit_id else {
        return Ok(onto(upstream, vec![uncommitted]));
    };
    let name = upstream_name(target, args)?;
    let record = guard.record()?;
    let point = kept_by_update(
        repository,
        &target.daemon.store,
        &record,
        head,
        upstream,
        name.as_deref(),
    )?;
    // A fork without commits of its own just moves.
    if point == Some(head) {
        return Ok(onto(upstream, vec![uncommitted]));
    }
    if rebase {
        let mut items = Vec::new();
        for commit_id in repository.commits_to_rebase(head, upstream, point)? {
            items.push(pick(target, commit_id, None, false)?);
        }
        items.push(uncommitted);
        return Ok(Sequence {
            reuse: true,
            ..onto(upstream, items)
        });
    }
    let message = match &args.message {
        Some(message) => message.clone(),
        None => merge_message(target, args, upstream)?,
    };
    let merge = SequenceItem::Merge {
        commit: upstream.to_string(),
        message,
    };
    Ok(Sequence::of(vec![merge, uncommitted]))
}

fn onto(commit_id: ObjectId, items: Vec<SequenceItem>) -> Sequence {
    Sequence {
        onto: Some(commit_id.to_string()),
        ..Sequence::of(items)
    }
}

/// Returns the merge's message in git's words.
fn merge_message(
    target: &Target<'_>,
    args: &SequenceArgs,
    upstream: ObjectId,
) -> Result<String, Failure> {
    let word = match &args.request {
        SequenceRequest::Update {
            from: Some(word), ..
        } => Some(word.clone()),
        _ => match target.guard {
            Some(guard) => guard.record()?.from_branch,
            None => None,
        },
    };
    let what = match word {
        Some(word)
            if target
                .repository
                .branch(&word)
                .is_ok_and(|tip| tip.is_some()) =>
        {
            format!("branch '{word}'")
        }
        Some(word) => format!("'{word}'"),
        None => format!("commit '{upstream}'"),
    };
    Ok(match target.line()?.branch {
        Some(branch) => format!("Merge {what} into {branch}"),
        None => format!("Merge {what}"),
    })
}

fn pick(
    target: &Target<'_>,
    commit_id: ObjectId,
    mainline: Option<usize>,
    says_origin: bool,
) -> Result<SequenceItem, Failure> {
    let info = target.repository.commit_info(commit_id)?;
    let refused =
        |message: String, hint: &str| Err(Failure::new(ErrorCode::Usage, message).hint(hint));
    let parent = match (info.parent_ids.as_slice(), mainline) {
        ([], None) => None,
        ([only], None | Some(1)) => Some(only),
        (parents, Some(number)) => match parents.get(number.wrapping_sub(1)) {
            Some(parent) => Some(parent),
            None => {
                return refused(
                    format!("the commit {commit_id} has no parent {number}"),
                    "`git show --no-patch --format=%P COMMIT` lists its parents",
                );
            }
        },
        (_, None) => {
            return refused(
                format!("the commit {commit_id} is a merge"),
                "`--mainline 1` takes what it changed against its first parent",
            );
        }
    };
    Ok(SequenceItem::Pick {
        commit: commit_id.to_string(),
        parent: parent.map(|id| id.to_string()),
        says_origin,
    })
}
