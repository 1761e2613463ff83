//! Reviews: looking at them, resolving their conflicts, and committing them.

use std::sync::Arc;

use super::sequencing::write_content;
use super::{merging, sequencing};
use crate::change::compare::compare_trees;
use crate::change::recovery::{self, RecoverEntry, RecoverKind};
use crate::change::review::{
    Amendment, ResolutionRecord, ResolvedHow, ReviewRecord, ReviewState, VersionRecord,
};
use crate::change::{ChangeError, rerere};
use crate::daemon::failure::{ErrorCode, Failure};
use crate::daemon::policy::Signers;
use crate::daemon::protocol::{
    Answer, CommitReviewRequest, JudgeRequest, MergeRequest, MergeStatus, ResolutionWish, ResolveRequest,
    Response, ReviewInfo, ReviewShown,
};
use crate::daemon::report;
use crate::daemon::slots::Daemon;
use crate::git::TreeEntryKind;
use crate::merge::MergeSide;
use crate::path::RepoPath;
use crate::workspace::By;
use crate::workspace::store::Shelf;

pub fn list(daemon: &Arc<Daemon>, by: By<'_>, all: bool) -> Response {
    let (records, damaged) = daemon.store.documents::<ReviewRecord>(Shelf::Reviews)?;
    let reviews = records
        .into_iter()
        .filter(|record| all || record.state == ReviewState::Open)
        .map(|record| info(daemon, by, record))
        .collect();
    Ok(Answer::Reviews {
        reviews,
        damaged: damaged.into_iter().map(Failure::from).collect(),
    })
}

pub fn show(daemon: &Arc<Daemon>, by: By<'_>, review: u64) -> Response {
    let record = ReviewRecord::load(&daemon.store, review)?;
    shown(daemon, by, record)
}

/// Says what is to become of a conflict, in the place of what was said before.
pub fn resolve(daemon: &Arc<Daemon>, by: By<'_>, request: &ResolveRequest) -> Response {
    let repository = daemon.repository_now()?;
    let _turn = daemon.reviews.lock();
    let mut record = open_review(daemon, request.review)?;
    let Some(conflict) = record.conflict_at(&request.path) else {
        return Err(Failure::new(
            ErrorCode::NoSuchConflict,
            format!(
                "{} is in no conflict of review {}",
                RepoPath::parse(request.path.to_bytes())?,
                request.review
            ),
        )
        .hint(format!("`tine review show {}` lists them", request.review)));
    };
    let resolved = |how, versions| {
        Some(ResolutionRecord {
            how,
            versions,
            by: request.by.clone(),
            reasoning: request.reasoning.clone(),
            metadata: request.metadata.clone(),
        })
    };
    conflict.resolution = match &request.wish {
        ResolutionWish::Open => None,
        ResolutionWish::Delete => resolved(ResolvedHow::Delete, Vec::new()),
        ResolutionWish::Side(side) => {
            let how = match side {
                MergeSide::Base => ResolvedHow::Base,
                MergeSide::Ours => ResolvedHow::Ours,
                MergeSide::Theirs => ResolvedHow::Theirs,
            };
            resolved(how, conflict.versions(*side).to_vec())
        }
        ResolutionWish::Content { content, executable } => {
            let (path, kind) = conflict.content_place();
            let kind = match executable {
                None => kind,
                Some(true) => TreeEntryKind::Executable,
                Some(false) => TreeEntryKind::File,
            };
            let id = write_content(daemon, &repository, content)?;
            let version = VersionRecord {
                path,
                kind,
                id: id.to_string(),
            };
            resolved(ResolvedHow::Content, vec![version])
        }
    };
    // What was thought of the whole was thought of another.
    record.verdict = None;
    record.amendments.clear();
    sequencing::find_more(daemon, &repository, &mut record)?;
    record.save(&daemon.store, &repository)?;
    shown(daemon, by, record)
}

/// Says what is thought of the whole, in the place of what was said before.
pub fn judge(daemon: &Arc<Daemon>, by: By<'_>, request: &JudgeRequest) -> Response {
    let repository = daemon.repository_now()?;
    let _turn = daemon.reviews.lock();
    let mut record = open_review(daemon, request.review)?;
    let (_, merged_tree) = record.trees(&daemon.store, &repository)?;
    let mut amendments = Vec::new();
    for (path, content) in &request.changes {
        let repo_path = RepoPath::parse(path.to_bytes())?;
        let kind = match repository
            .tree_entry(merged_tree, &repo_path)?
            .map(|entry| entry.kind)
        {
            Some(TreeEntryKind::Executable) => TreeEntryKind::Executable,
            Some(TreeEntryKind::Directory) => {
                return Err(
                    Failure::new(ErrorCode::WrongKind, format!("{repo_path} is a directory"))
                        .hint("name a file in it"),
                );
            }
            _ => TreeEntryKind::File,
        };
        let new = match content {
            None => None,
            Some(content) => Some(VersionRecord {
                path: path.clone(),
                kind,
                id: write_content(daemon, &repository, content)?.to_string(),
            }),
        };
        amendments.push(Amendment {
            path: path.clone(),
            new,
        });
    }
    record.amendments = amendments;
    record.verdict = Some(request.verdict.clone());
    record.save(&daemon.store, &repository)?;
    shown(daemon, by, record)
}

/// Plans the merge again, of the sides as they are now. One that was aborted is open again then.
pub fn refresh(daemon: &Arc<Daemon>, by: By<'_>, review: u64) -> Response {
    let repository = daemon.repository_now()?;
    let _turn = daemon.reviews.lock();
    let mut record = ReviewRecord::load(&daemon.store, review)?;
    match record.state {
        ReviewState::Aborted => {
            recovery::write_review_again(&repository, review)?;
            record.state = ReviewState::Open;
        }
        _ => record = open_review(daemon, review)?,
    }
    if record.work.is_some() {
        sequencing::refresh(daemon, by, &mut record)?;
        record.save(&daemon.store, &repository)?;
        return shown(daemon, by, record);
    }
    let (ours, theirs, conflicts) = merging::replan(daemon, by, &request_of(&record, by))?;
    let Some(conflicts) = conflicts else {
        return Err(Failure::new(
            ErrorCode::ReviewState,
            format!("{} has all of {} by now", record.merge.into, record.merge.source),
        )
        .hint(format!("`tine review abort {review}` lets it go")));
    };
    record.plan_again(&ours, &theirs, &conflicts);
    record.save(&daemon.store, &repository)?;
    shown(daemon, by, record)
}

/// Lets the review go. Neither side was changed by it.
pub fn abort(daemon: &Arc<Daemon>, by: By<'_>, review: u64) -> Response {
    let repository = daemon.repository_now()?;
    let _turn = daemon.reviews.lock();
    let mut record = open_review(daemon, review)?;
    let before = record.clone();
    if let Some(commit_id) = record.kept_commit(&repository)? {
        let entry = RecoverEntry {
            head: Some(commit_id.to_string()),
            number: Some(review),
            ..RecoverEntry::new(RecoverKind::Review, format!("tine review abort {review}"))
        };
        recovery::keep(&daemon.store, &repository, entry, &[])?;
    }
    record.state = ReviewState::Aborted;
    record.save(&daemon.store, &repository)?;
    shown_as(daemon, by, record, &before)
}

/// Merges with the resolutions. Refused while a conflict is open, or where a side has moved on.
pub fn commit(
    daemon: &Arc<Daemon>,
    by: By<'_>,
    request: &CommitReviewRequest,
    signers: &Signers,
) -> Response {
    let repository = daemon.repository_now()?;
    let _turn = daemon.reviews.lock();
    let mut record = open_review(daemon, request.review)?;
    let open = record.open_conflicts();
    if open > 0 {
        let first = record
            .conflicts
            .iter()
            .find(|conflict| conflict.resolution.is_none());
        let path = first.map(|conflict| conflict.path.to_bytes()).unwrap_or_default();
        return Err(Failure::new(
            ErrorCode::ReviewState,
            match open {
                1 => format!("1 conflict of review {} is open", record.id),
                _ => format!("{open} conflicts of review {} are open", record.id),
            },
        )
        .cause(RepoPath::parse(path)?.to_string())
        .hint(format!(
            "`tine resolve {} PATH --ours|--theirs|--file F` resolves one",
            record.id
        )));
    }
    let (answer, after) = match record.work.is_some() {
        true => {
            let done = sequencing::commit_review(daemon, by, &record, request, signers)?;
            let after = (done.status == MergeStatus::Merged).then(|| done.after.clone());
            (Answer::Sequenced(Box::new(done)), after)
        }
        false => {
            let merge = MergeRequest {
                dry_run: request.dry_run,
                message: request.message.clone().or_else(|| record.merge.message.clone()),
                author: request.author.clone(),
                committer: request.committer.clone(),
                ..request_of(&record, by)
            };
            let merged = merging::merge_with(daemon, by, &merge, signers, Some(&record))?;
            let after = (merged.status == MergeStatus::Merged).then(|| merged.after.clone());
            (Answer::Merge(Box::new(merged)), after)
        }
    };
    if let Some(after) = after.filter(|_| !request.dry_run) {
        if let Err(error) = rerere::remember(&daemon.store, &repository, &record) {
            log::warn!("git does not remember review {}: {error}", record.id);
        }
        record.state = ReviewState::Committed;
        record.commit = after;
        // It is done.
        if let Err(error) = record.save(&daemon.store, &repository) {
            log::error!("review {}: {error}", record.id);
        }
    }
    Ok(answer)
}

fn open_review(daemon: &Daemon, review: u64) -> Result<ReviewRecord, Failure> {
    let record = ReviewRecord::load(&daemon.store, review)?;
    let how = match record.state {
        ReviewState::Open => return Ok(record),
        ReviewState::Committed => "committed",
        ReviewState::Aborted => "aborted",
    };
    Err(Failure::new(
        ErrorCode::ReviewState,
        format!("review {review} is {how} already"),
    )
    .hint("`tine review list` shows the open ones"))
}

/// The request that the review came from.
fn request_of(record: &ReviewRecord, by: By<'_>) -> MergeRequest {
    let merge = &record.merge;
    MergeRequest {
        into: Some(merge.into.clone()),
        here: merge.here.clone(),
        base: merge.base.clone(),
        level: merge.level,
        strategy: merge.strategy,
        fast_forward: merge.fast_forward,
        allow_unrelated: merge.allow_unrelated,
        delete: merge.delete,
        // What it comes to was looked at.
        allow_revert: true,
        command: by.command.to_owned(),
        ..MergeRequest::of(merge.source.clone(), merge.git_dir.clone())
    }
}

fn info(daemon: &Arc<Daemon>, by: By<'_>, record: ReviewRecord) -> ReviewInfo {
    let mut moved = Vec::new();
    if record.state == ReviewState::Open {
        let now = match record.work.is_some() {
            true => sequencing::moved(daemon, by, &record),
            false => merging::sides(daemon, by, &request_of(&record, by))
                .map(|(ours, theirs)| record.moved(&ours, &theirs)),
        };
        match now {
            Ok(sides) => moved = sides,
            // Gone, or not to be read: told by whoever wants to commit it.
            Err(failure) => {
                log::info!("review {}: {failure}", record.id);
                moved.extend([MergeSide::Ours, MergeSide::Theirs]);
            }
        }
    }
    ReviewInfo {
        open: record.open_conflicts(),
        record,
        moved,
    }
}

fn shown(daemon: &Arc<Daemon>, by: By<'_>, record: ReviewRecord) -> Response {
    let of = record.clone();
    shown_as(daemon, by, record, &of)
}

/// Shows `record`, with the trees of `of`.
fn shown_as(daemon: &Arc<Daemon>, by: By<'_>, record: ReviewRecord, of: &ReviewRecord) -> Response {
    let repository = daemon.repository_now()?;
    let (old_tree, new_tree) = match (of.state, of.trees(&daemon.store, &repository)) {
        (_, Ok(trees)) => trees,
        (ReviewState::Open, Err(error)) => return Err(error.into()),
        // git has let go of what nobody needs any more.
        (_, Err(ChangeError::Git(_))) => (repository.empty_tree_id(), repository.empty_tree_id()),
        (_, Err(error)) => return Err(error.into()),
    };
    let changes = compare_trees(&repository, old_tree, new_tree)?;
    Ok(Answer::Review(Box::new(ReviewShown {
        info: info(daemon, by, record),
        old_tree: old_tree.to_string(),
        new_tree: new_tree.to_string(),
        changes: changes.iter().map(report::change_line).collect(),
    })))
}
