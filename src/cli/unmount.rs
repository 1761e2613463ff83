//! `tine unmount`: unmounts a fork and applies its unmount policy.
//!
//! An action on the command line takes the place of the policy.

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
use crate::store::{ForkName, UnmountPolicy};

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
    // The policy may be to commit. If that needs an identity and there is none, the daemon reports
    // it.
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
    if context.output.is_json() {
        context.output.json(&unmounted)?;
    } else {
        context.output.text(&format_unmounted(&unmounted))?;
        if let Some(trouble) = &unmounted.trouble {
            context.output.trouble(trouble);
        }
    }
    Ok(match &unmounted.merge {
        Some(merge) if merge.status == MergeStatus::Conflicts => ExitCode::Refused.code(),
        _ => SUCCESS,
    })
}

/// Commits first if the action is going to commit, with hooks.
///
/// The fork must be mounted for hooks. Returns the commit, if one was made.
fn commit_first(
    verb: &Unmount,
    context: &Context,
    connection: &mut Client,
    name: &ForkName,
) -> Result<Option<String>, Failure> {
    let info = connection.show(name)?;
    let (message, is_merged) = match verb.operation.action() {
        Some(UnmountAction::Commit { message }) => (message, false),
        // The given message is for the merge commit.
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
    let mut first_commit = CommitWithHooks::of(message);
    first_commit.no_verify = verb.no_verify;
    // A merge is checked for reverts as a whole.
    first_commit.operation.allow_revert = is_merged || verb.operation.allow_revert;
    commit::commit_first(context, connection, name, first_commit, HookOutput::Shown)
}

/// Adds the earlier commit to the result.
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

fn format_unmounted(unmounted: &Unmounted) -> String {
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

/// Formats the result of the merge.
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
