//! Merges with git's hooks.
//!
//! The hooks of a commit run for uncommitted work in a source. The hooks `pre-merge-commit`,
//! `prepare-commit-msg` and `commit-msg` run for a merge commit.
//!
//! They run before any branch moves: a dry run plans the merge, and the hooks' messages and
//! refusals apply to the merge that follows. Hooks need a checkout. They are skipped for a target
//! that is not checked out and for a fork that is not mounted.

use std::collections::BTreeMap;

use crate::commit::{self, CommitWithHooks};
use crate::hooks::{HookOutput, Hooks, MERGE_HOOKS, may_run};
use crate::place::Place;
use crate::{Client, identity};
use tine_git::{CallerConfig, ObjectId};
use tine_ops as ops;
use tine_ops::protocol::{MergeStatus, Merged, MergedSource, ReviewPolicy, SourceOutcome};
use tine_ops::{Failure, Signers, stays_committed, work_message};
use tine_store::ForkName;

/// Options of hooks.
#[derive(Debug, Clone, Copy)]
pub struct HookOptions {
    /// Destination of the hooks' output.
    pub output: HookOutput,
    /// True to skip hooks that can refuse, as `--no-verify` does.
    pub no_verify: bool,
}

/// Results of the hooks of a planned merge.
#[derive(Debug, Default)]
pub struct Prepared {
    /// Message of each source's merge commit, as changed by the hooks.
    ///
    /// `None` for a source without a merge commit or hooks: the default message applies.
    pub messages: Vec<Option<String>>,
    /// Commits of uncommitted work in sources, by the source's point.
    committed: BTreeMap<String, String>,
}

/// Merges, with hooks.
///
/// Neither a dry run nor a merge with [`ReviewPolicy::Always`] runs hooks. The commit of the review
/// runs them.
///
/// # Errors
/// `hook-refused` with the hook's output as causes, `no-identity`, and the errors of
/// [`Merge`](ops::Merge).
pub fn merged(
    place: &Place,
    connection: &mut Client,
    mut request: ops::Merge,
    signers: &Signers,
    options: HookOptions,
) -> Result<Merged, Failure> {
    if !request.dry_run && may_have_hooks(place)? {
        let plan = ops::Merge {
            dry_run: true,
            review: ReviewPolicy::Never,
            markers: false,
            ..request.clone()
        };
        // A merge that is always reviewed runs the hooks at the commit of its review.
        if request.review != ReviewPolicy::Always {
            let planned = connection.call_as(&plan, signers)?;
            let prepared = prepare(place, connection, &planned, request.markers, options)?;
            request.messages.clone_from(&prepared.messages);
            let merged = connection.call_as(&request, signers);
            return match merged {
                Ok(merged) => Ok(prepared.with_committed(merged)),
                Err(failure) => Err(prepared.with_commits_as_causes(failure)),
            };
        }
    }
    connection.call_as(&request, signers)
}

/// Returns whether the repository may have hooks of commits or merges.
///
/// # Errors
/// The errors of [`Place::repository`].
pub fn may_have_hooks(place: &Place) -> Result<bool, Failure> {
    let dir = place.repository()?.common_dir();
    Ok(may_run(CallerConfig::of(dir).as_ref()))
}

/// Runs a planned merge's hooks and commits the sources' uncommitted work.
///
/// `planned` is the answer to a dry run. `with_markers` is the [`markers`](ops::Merge::markers)
/// option of the merge: with it, sources that conflict are committed as well.
///
/// # Errors
/// `hook-refused` with the hook's output as causes, `no-identity`, and the errors of
/// [`Client::call`]. Commits made before the failure stay.
pub fn prepare(
    place: &Place,
    connection: &mut Client,
    planned: &Merged,
    with_markers: bool,
    options: HookOptions,
) -> Result<Prepared, Failure> {
    let mut prepared = Prepared::default();
    for source in &planned.sources {
        let message = message_of(place, connection, planned, source, options)?;
        prepared.messages.push(message);
    }
    let is_for_git = with_markers && planned.status == MergeStatus::Conflicts;
    for source in &planned.sources {
        let Some(fork) = source.source.point.strip_prefix("fork:") else {
            continue;
        };
        let fork = ForkName::parse(fork)?;
        let is_merged = source.commit.is_some() || is_for_git;
        // Work that is newer than the plan is left to the daemon, which merges or refuses it.
        if !is_merged || !source.uncommitted || planned.target.fork.as_ref() == Some(&fork) {
            continue;
        }
        if connection.changes(&fork, false)?.changes.is_empty() {
            continue;
        }
        let info = connection.show(&fork)?;
        let mut commit = CommitWithHooks::of(work_message(&fork));
        commit.no_verify = options.no_verify;
        // The daemon has refused the plan already if the merge must not undo commits of others.
        commit.operation.allow_revert = true;
        let made = commit::make(place, connection, &info, commit, options.output, &|| Ok(()))?;
        if made.hooks_skipped && !options.no_verify {
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

/// Runs the target's hooks for a source's merge commit.
///
/// Returns the message, as changed by the hooks. `None` if the source has no merge commit, or if
/// the target is not checked out or has no hooks.
fn message_of(
    place: &Place,
    connection: &mut Client,
    planned: &Merged,
    source: &MergedSource,
    options: HookOptions,
) -> Result<Option<String>, Failure> {
    let (SourceOutcome::MergeCommit, Some(commit)) = (source.how, &source.commit) else {
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
    let mut hooks = Hooks::find(&dir, config.as_ref(), &author, options.output, &MERGE_HOOKS)?;
    if hooks.is_empty() {
        return Ok(None);
    }
    let repository = place.repository()?;
    let commit_id = crate::content::object_id(commit)?;
    let tree_id: ObjectId = repository.commit_info(commit_id)?.tree_id;
    hooks.make_index(&tree_id.to_string())?;
    let message = repository.commit_message(commit_id)?;
    Ok(Some(hooks.merge_message(message, !options.no_verify)?))
}

impl Prepared {
    /// Adds the commits that stay to a failure, as causes.
    fn with_commits_as_causes(&self, failure: Failure) -> Failure {
        let committed = self.committed.iter();
        committed.fold(failure, |failure, (point, commit)| {
            failure.cause(stays_committed(point.trim_start_matches("fork:"), commit))
        })
    }

    /// Adds to the answer of the merge the commits of uncommitted work.
    pub fn with_committed(&self, mut merged: Merged) -> Merged {
        for source in &mut merged.sources {
            if let Some(commit) = self.committed.get(&source.source.point) {
                source.committed = Some(commit.clone());
            }
        }
        merged
    }
}
