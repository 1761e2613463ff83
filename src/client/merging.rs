//! The hooks that git runs around a merge: those of a commit for what is uncommitted in a source,
//! and `pre-merge-commit`, `prepare-commit-msg` and `commit-msg` for a merge commit.
//!
//! They are asked before anything moves: the merge is planned as a dry run, and what they say
//! counts for the merge that follows. Where the target is not checked out there is no place for its
//! hooks, and they are skipped, as those of a fork that is not mounted.

use std::collections::BTreeMap;

use crate::commit::{self, CommitWithHooks};
use crate::hooks::{HookOutput, Hooks, MERGE_HOOKS, may_run};
use crate::place::Place;
use crate::{Client, identity};
use tine_git::{CallerConfig, ObjectId};
use tine_ops as ops;
use tine_ops::protocol::{MergeStatus, Merged, MergedHow, MergedSource, ReviewPolicy};
use tine_ops::{Failure, Signers, stays_committed, work_message};
use tine_workspace::ForkName;

/// How hooks run.
#[derive(Debug, Clone, Copy)]
pub struct HookOptions {
    pub output: HookOutput,
    /// Those that may refuse are skipped.
    pub no_verify: bool,
}

/// What the hooks came to.
#[derive(Debug, Default)]
pub struct Prepared {
    /// The messages of merge commits as hooks left them, one for each source.
    pub messages: Vec<Option<String>>,
    /// What was committed in sources: the commit of each point.
    committed: BTreeMap<String, String>,
}

/// Has the daemon merge, with hooks.
pub fn merged(
    place: &Place,
    connection: &mut Client,
    mut request: ops::Merge,
    signers: &Signers,
    wish: HookOptions,
) -> Result<Merged, Failure> {
    if !request.dry_run && are_there(place)? {
        let plan = ops::Merge {
            dry_run: true,
            review: ReviewPolicy::Never,
            markers: false,
            ..request.clone()
        };
        // What is looked at first is merged later.
        if request.review != ReviewPolicy::Always {
            let planned = connection.call_as(&plan, signers)?;
            let prepared = prepare(place, connection, &planned, request.markers, wish)?;
            request.messages.clone_from(&prepared.messages);
            let merged = connection.call_as(&request, signers);
            return match merged {
                Ok(merged) => Ok(prepared.noted_in(merged)),
                Err(failure) => Err(prepared.format_in(failure)),
            };
        }
    }
    connection.call_as(&request, signers)
}

/// Whether the repository may have any of the hooks.
pub fn are_there(place: &Place) -> Result<bool, Failure> {
    let dir = place.repository()?.common_dir();
    Ok(may_run(CallerConfig::of(dir).as_ref()))
}

/// Runs the hooks for what was planned, and commits what is uncommitted in its sources.
pub fn prepare(
    place: &Place,
    connection: &mut Client,
    planned: &Merged,
    with_markers: bool,
    wish: HookOptions,
) -> Result<Prepared, Failure> {
    let mut prepared = Prepared::default();
    for source in &planned.sources {
        let message = message_of(place, connection, planned, source, wish)?;
        prepared.messages.push(message);
    }
    let is_for_git = with_markers && planned.status == MergeStatus::Conflicts;
    for source in &planned.sources {
        let Some(fork) = source.source.point.strip_prefix("fork:") else {
            continue;
        };
        let fork = ForkName::parse(fork)?;
        let is_merged = source.commit.is_some() || is_for_git;
        // What came after the plan is for the daemon to refuse, or to take.
        if !is_merged || !source.uncommitted || planned.target.fork.as_ref() == Some(&fork) {
            continue;
        }
        if connection.changes(&fork, false)?.changes.is_empty() {
            continue;
        }
        let info = connection.show(&fork)?;
        let mut commit_wish = CommitWithHooks::of(work_message(&fork));
        commit_wish.no_verify = wish.no_verify;
        // The plan of the merge is refused before, where that is not wanted.
        commit_wish.operation.allow_revert = true;
        let made = commit::make(place, connection, &info, commit_wish, wish.output, &|| {
            Ok(())
        })?;
        if made.hooks_skipped && !wish.no_verify {
            place.note(&format!(
                "the hooks are skipped for {fork}: it is not mounted, and they need a checkout"
            ));
        }
        prepared
            .committed
            .insert(source.source.point.clone(), made.committed.commit);
    }
    Ok(prepared)
}

/// The message of a source's merge commit as the target's hooks leave it; `None` where there is no
/// such commit, or no hook.
fn message_of(
    place: &Place,
    connection: &mut Client,
    planned: &Merged,
    source: &MergedSource,
    wish: HookOptions,
) -> Result<Option<String>, Failure> {
    let (MergedHow::MergeCommit, Some(commit)) = (source.how, &source.commit) else {
        return Ok(None);
    };
    let dir = match (&planned.target.fork, &planned.target.checkout) {
        (Some(fork), _) => {
            let info = connection.show(fork)?;
            info.mounted.then_some(info.mount_dir)
        }
        (None, checkout) => checkout.clone(),
    };
    let Some(dir) = dir else {
        return Ok(None);
    };
    let config = CallerConfig::of(&dir);
    let author = identity::author(&dir, config.as_ref(), None)?;
    let mut hooks = Hooks::find(&dir, config.as_ref(), &author, wish.output, &MERGE_HOOKS)?;
    if hooks.is_empty() {
        return Ok(None);
    }
    let repository = place.repository()?;
    let commit_id = crate::content::object_id(commit)?;
    let tree_id: ObjectId = repository.commit_info(commit_id)?.tree_id;
    hooks.give_index(&tree_id.to_string())?;
    let message = repository.commit_message(commit_id)?;
    Ok(Some(hooks.merge_message(message, !wish.no_verify)?))
}

impl Prepared {
    /// A failure of the merge, with what was committed for it and stays.
    fn format_in(&self, failure: Failure) -> Failure {
        let committed = self.committed.iter();
        committed.fold(failure, |failure, (point, commit)| {
            failure.cause(stays_committed(point.trim_start_matches("fork:"), commit))
        })
    }

    /// The merge, with what was committed for it.
    pub fn noted_in(&self, mut merged: Merged) -> Merged {
        for source in &mut merged.sources {
            if let Some(commit) = self.committed.get(&source.source.point) {
                source.committed = Some(commit.clone());
            }
        }
        merged
    }
}
