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

/// Unmount a fork and keep, commit, merge or discard its changes
///
/// Without a flag the fork's own policy decides (`tine new --on-unmount`), as it does after a plain
/// `umount`. What is discarded is kept as a snapshot, from which it can be brought back. What is
/// committed goes through the hooks that `tine commit` runs; one that refuses leaves the fork
/// mounted.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine unmount fix-parser
  tine unmount fix-parser --commit -m 'Fix the parser'
  tine unmount fix-parser --merge=main
  tine unmount fix-parser --handoff --include-uncommitted
  tine unmount fix-parser --discard")]
pub(super) struct Unmount {
    /// The fork [default: the one whose mount this is]
    #[arg(value_name = "NAME")]
    pub name: Option<String>,

    /// Leave the changes in the layer
    #[arg(long, group = "action")]
    pub keep: bool,

    /// Commit the changes to the fork's branch
    #[arg(long, group = "action", requires = "message")]
    pub commit: bool,

    /// Throw the changes away
    #[arg(long, group = "action")]
    pub discard: bool,

    /// Commit the changes and merge them into a fork or branch [default: the branch that the fork
    /// came from]; conflicts become a review
    #[arg(long, group = "action", value_name = "TARGET", num_args = 0..=1, default_missing_value = "", require_equals = true)]
    pub merge: Option<String>,

    /// Hand over what is committed, as `tine handoff create` does
    #[arg(long, group = "action")]
    pub handoff: bool,

    /// The fork or branch that is to apply it [default: what the fork came from]
    #[arg(long, value_name = "PARENT", requires = "handoff")]
    pub to: Option<String>,

    /// Commit what is not committed before it is handed over
    #[arg(long, requires = "handoff")]
    pub include_uncommitted: bool,

    /// Hand over also what takes commits of others back, after `tine restore --exact` in the fork
    #[arg(long, requires = "handoff")]
    pub allow_revert: bool,

    /// The commit's message
    #[arg(short, long, value_name = "MSG", requires = "action", conflicts_with_all = ["keep", "discard"])]
    pub message: Option<String>,

    /// Skip the hooks pre-commit and commit-msg
    #[arg(long, conflicts_with_all = ["keep", "discard"])]
    pub no_verify: bool,

    /// Detach the mount even while programs use it
    #[arg(short, long)]
    pub force: bool,
}

impl Unmount {
    fn action(&self) -> Option<UnmountAction> {
        if self.handoff {
            return Some(UnmountAction::Handoff {
                to: self.to.clone(),
                include_uncommitted: self.include_uncommitted,
                message: self.message.clone(),
                allow_revert: self.allow_revert,
            });
        }
        match (&self.merge, &self.message, self.keep, self.discard) {
            (Some(into), message, ..) => Some(UnmountAction::Merge {
                into: (!into.is_empty()).then(|| into.clone()),
                message: message.clone(),
            }),
            (None, Some(message), ..) => Some(UnmountAction::Commit {
                message: message.clone(),
            }),
            (None, None, true, _) => Some(UnmountAction::Keep),
            (None, None, false, true) => Some(UnmountAction::Discard),
            (None, None, false, false) => None,
        }
    }
}

pub(super) fn run(verb: &Unmount, context: &Context) -> Result<Exit, Failure> {
    let (mut connection, name) = context.connect_to_fork(verb.name.as_deref())?;
    // A policy may ask for a commit; where it needs an identity and there is none, the daemon says
    // so.
    let signers = identity::signers_if_any(context.repository()?.common_dir());
    let committed = commit_first(verb, context, &mut connection, &name)?;
    context.step_out();
    let request = ops::Unmount {
        fork: name.clone(),
        action: verb.action(),
        force: verb.force,
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
    let (message, is_merged) = match verb.action() {
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
    wish.operation.allow_revert = is_merged || verb.allow_revert;
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
