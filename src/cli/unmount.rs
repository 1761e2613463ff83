//! `tine unmount`: takes a fork's mount away and does with its layer what is asked for, or what the
//! fork's policy says.

use super::context::Context;
use super::restore::index_kept;
use super::{Exit, SUCCESS};
use crate::client::commit::{self, CommitWithHooks};
use crate::client::hooks::HookOutput;
use crate::client::{Client, identity};
use crate::ops;
use crate::ops::protocol::{MergeStatus, Merged, UnmountAction, Unmounted};
use crate::ops::{ExitCode, Failure, stays_committed, work_message};
use crate::render::handoffs::format_line;
use crate::render::text::short_id;
use crate::workspace::{ForkName, UnmountPolicy};

#[derive(Debug, clap::Args)]
#[group(skip)]
pub(super) struct Unmount {
    #[command(flatten)]
    pub operation: ops::Unmount,

    /// Skip the hooks pre-commit and commit-msg
    #[arg(long, conflicts_with_all = ["keep", "discard"])]
    pub no_verify: bool,
}

pub(super) fn run(verb: &Unmount, context: &Context) -> Result<Exit, Failure> {
    let (mut connection, name) = context.connect_to(verb.operation.fork.as_ref())?;
    // A policy may ask for a commit; where it needs an identity and there is none, the daemon says
    // so.
    let signers = identity::signers_if_any(context.repository()?.common_dir());
    let committed = commit_first(verb, context, &mut connection, &name)?;
    context.step_out();
    let request = ops::Unmount {
        fork: Some(name.clone()),
        ..verb.operation.clone()
    };
    let unmounted = connection.call_as(&request, &signers);
    let unmounted = match (unmounted, committed) {
        (Ok(unmounted), Some(commit)) => with_commit(unmounted, commit),
        (Err(failure), Some(commit)) => {
            return Err(failure.cause(stays_committed(name.as_str(), &commit)));
        }
        (unmounted, None) => unmounted?,
    };
    match context.output.is_json() {
        true => context.output.json(&unmounted)?,
        false => {
            context.output.text(&told(&unmounted))?;
            if let Some(trouble) = &unmounted.trouble {
                context.output.trouble(trouble);
            }
        }
    }
    Ok(match &unmounted.merge {
        Some(merge) if merge.status == MergeStatus::Conflicts => ExitCode::Refused.code(),
        _ => SUCCESS,
    })
}

/// Commits what the action is going to commit, while the fork is mounted and its hooks can run; the
/// commit, if one was made.
fn commit_first(
    verb: &Unmount,
    context: &Context,
    connection: &mut Client,
    name: &ForkName,
) -> Result<Option<String>, Failure> {
    let info = connection.show(name)?;
    let (message, is_merged) = match verb.operation.action() {
        Some(UnmountAction::Commit { message }) => (message, false),
        // The message is the merge commit's.
        Some(UnmountAction::Merge { .. }) => (work_message(name), true),
        Some(UnmountAction::Handoff {
            include_uncommitted: true,
            message,
            ..
        }) => (message.unwrap_or_else(|| work_message(name)), false),
        Some(UnmountAction::Keep | UnmountAction::Discard | UnmountAction::Handoff { .. }) => {
            return Ok(None);
        }
        None => match info.on_unmount {
            UnmountPolicy::Commit if info.mounted => (work_message(name), false),
            UnmountPolicy::Merge { .. } if info.mounted => (work_message(name), true),
            UnmountPolicy::Commit
            | UnmountPolicy::Merge { .. }
            | UnmountPolicy::Keep
            | UnmountPolicy::Discard
            | UnmountPolicy::Handoff { .. } => return Ok(None),
        },
    };
    let mut wish = CommitWithHooks::of(message);
    wish.no_verify = verb.no_verify;
    // A merge is looked at as a whole.
    wish.operation.allow_revert = is_merged || verb.operation.allow_revert;
    commit::commit_first(context, connection, name, wish, HookOutput::Shown)
}

/// What came of it, with the commit that was made before.
fn with_commit(mut unmounted: Unmounted, commit: String) -> Unmounted {
    match &mut unmounted.merge {
        Some(merge) => {
            for source in &mut merge.sources {
                source.committed.get_or_insert_with(|| commit.clone());
            }
        }
        None => {
            unmounted.commit.get_or_insert(commit);
        }
    }
    unmounted
}

fn told(unmounted: &Unmounted) -> String {
    let fork = &unmounted.fork;
    let then = match (&unmounted.policy, &unmounted.commit, &unmounted.snapshot) {
        (UnmountPolicy::Keep, ..) => "its changes are kept".to_owned(),
        (UnmountPolicy::Commit, Some(commit), _) => {
            format!("its changes are commit {}", short_id(commit))
        }
        (UnmountPolicy::Commit, None, _) => "there was nothing to commit".to_owned(),
        (UnmountPolicy::Discard, _, Some(kept)) => {
            format!("its changes are discarded (`tine restore {fork} {kept}` brings them back)")
        }
        (UnmountPolicy::Handoff { .. }, ..) => match &unmounted.handoff {
            Some(handoff) => format!("its work is {}", format_line(handoff).trim_end()),
            None => "its work was not handed over".to_owned(),
        },
        (UnmountPolicy::Merge { .. }, ..) => format_of_merge(unmounted),
        (UnmountPolicy::Discard, _, None) => "there was nothing to discard".to_owned(),
    };
    format!("unmounted {fork}: {then}\n{}", index_kept(&unmounted.index))
}

/// What came of merging it.
fn format_of_merge(unmounted: &Unmounted) -> String {
    let target = |merge: &Merged| {
        merge
            .target
            .branch
            .clone()
            .unwrap_or_else(|| "the target".to_owned())
    };
    match unmounted.merge.as_deref() {
        None => "it was not merged".to_owned(),
        Some(merge) => match (merge.status, merge.review) {
            (MergeStatus::NothingToMerge, _) => format!("{} has all of it", target(merge)),
            (MergeStatus::Merged | MergeStatus::Reviewed, None) => format!(
                "its changes are merged into {}, which is at {}",
                target(merge),
                short_id(merge.after.as_deref().unwrap_or_default())
            ),
            (_, Some(review)) => format!(
                "it has conflicts with {} and is whole; `tine review show {review}` is where to go on",
                target(merge)
            ),
            (MergeStatus::Conflicts, None) => format!("it has conflicts with {}", target(merge)),
        },
    }
}
