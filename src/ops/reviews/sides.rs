//! Follows renamed and deleted sides of a review.
//!
//! A renamed branch is followed. A source that is gone is merged from the commits that the review
//! keeps. A target that is gone must come back before the review can be committed; until then the
//! review can be shown, resolved and aborted.

use std::path::Path;

use crate::failure::{ErrorCode, Failure};
use crate::recovery::recover_command;
use crate::state::slots::Daemon;
use crate::target::fork_called;
use tine_change::branches;
use tine_change::recovery::{self, RecoverKind, Recoverable};
use tine_change::review::{ReviewRecord, ReviewState};
use tine_change::sequence::{SequenceItem, SequenceRequest};
use tine_git::{GitError, ObjectId, Repository};
use tine_merge::MergeSide;
use tine_path::shell::shell_word;
use tine_store::own_branch;
use tine_store::{ForkName, StoreError};

/// Updates renamed branches in the record, and returns the missing sides.
///
/// A caller can compare the record with a copy to detect a change.
pub(crate) fn find(
    daemon: &Daemon,
    repository: &Repository,
    record: &mut ReviewRecord,
) -> Result<Vec<MergeSide>, Failure> {
    let mut gone = Vec::new();
    if !is_target_there(daemon, repository, record)? {
        gone.push(MergeSide::Ours);
    }
    if !is_source_there(daemon, repository, record)? {
        gone.push(MergeSide::Theirs);
    }
    Ok(gone)
}

/// Fails if the target is gone.
pub(crate) fn require_target(
    repository: &Repository,
    record: &ReviewRecord,
    gone: &[MergeSide],
) -> Result<(), Failure> {
    if gone.contains(&MergeSide::Ours) {
        return Err(missing_target(repository, record));
    }
    Ok(())
}

fn missing_target(repository: &Repository, record: &ReviewRecord) -> Failure {
    let id = record.id;
    let failure = match record.merge.into.strip_prefix("fork:") {
        Some(fork) => Failure::new(
            ErrorCode::NoSuchFork,
            format!("the fork {fork}, into which review {id} merges, is gone"),
        ),
        None => {
            let branch = branch_of(&record.merge.into);
            Failure::new(
                ErrorCode::UnknownRevision,
                format!("the branch {branch:?}, into which review {id} merges, is gone"),
            )
        }
    };
    let back = match target_command(repository, record) {
        Some(command) => format!("`{command}` brings it back; "),
        None => String::new(),
    };
    failure.hint(match record.state {
        ReviewState::Aborted => {
            format!("{back}the review stays aborted, and `tine review show {id}` shows it")
        }
        _ => format!("{back}`tine review abort {id}` lets the review go"),
    })
}

/// Returns the command that restores a missing target, if there is one.
fn target_command(repository: &Repository, record: &ReviewRecord) -> Option<String> {
    let commit_id = ObjectId::from_hex(record.ours_commit.as_ref()?.as_bytes()).ok()?;
    let is_kept = repository.has_object(commit_id);
    let Some(fork) = record.merge.into.strip_prefix("fork:") else {
        let branch = shell_word(branch_of(&record.merge.into));
        return is_kept.then(|| format!("git branch {branch} {commit_id}"));
    };
    let branch = own_branch(&ForkName::parse(fork).ok()?);
    let tip = repository.branch(&branch).ok()?;
    let (found, _) = recovery::list(repository).ok()?;
    // Uncommitted changes are restored over the HEAD that they were made on.
    let has_work = |found: &&Recoverable| {
        let entry = &found.entry;
        let of_fork = entry
            .fork
            .as_ref()
            .is_some_and(|name| name.as_str() == fork);
        let is_in_place = tip.is_none_or(|tip| entry.head == Some(tip.to_string()));
        entry.kind == RecoverKind::Fork && of_fork && entry.uncommitted.is_some() && is_in_place
    };
    match (found.iter().rfind(has_work), tip) {
        (Some(found), _) => Some(recover_command(found.id, &found.entry)),
        (None, Some(_)) => Some(format!("tine new {fork} --branch {}", shell_word(&branch))),
        // The fork had only commits. They are its own only if its branch exists before the fork is
        // made.
        (None, None) => is_kept.then(|| {
            let branch = shell_word(&branch);
            format!("git branch {branch} {commit_id} && tine new {fork} --branch {branch}")
        }),
    }
}

/// Returns the command that reopens an aborted review, or else shows it.
///
/// `is_kept` is true if an entry of `tine recover` keeps all objects that the review needs.
pub(crate) fn reopen_command(
    daemon: &Daemon,
    repository: &Repository,
    id: u64,
    is_kept: bool,
) -> String {
    let refresh = format!("tine review refresh {id}");
    let found = ReviewRecord::load(&daemon.store, id)
        .map_err(Failure::from)
        .and_then(|mut record| Ok((find(daemon, repository, &mut record)?, record)));
    match found {
        Ok((gone, record)) if gone.contains(&MergeSide::Ours) => {
            match target_command(repository, &record) {
                Some(back) => format!("{back} && {refresh}"),
                // The command fails with a hint how to restore the target.
                None if is_kept => refresh,
                None => format!("tine review show {id}"),
            }
        }
        Ok((gone, record)) if !is_kept && is_lost(repository, &record, &gone).is_some() => {
            format!("tine review show {id}")
        }
        Ok(_) => refresh,
        Err(failure) => {
            log::info!("review {id}: {failure}");
            refresh
        }
    }
}

fn branch_of(into: &str) -> &str {
    into.strip_prefix("branch:")
        .or_else(|| into.strip_prefix("refs/heads/"))
        .unwrap_or(into)
}

fn is_target_there(
    daemon: &Daemon,
    repository: &Repository,
    record: &mut ReviewRecord,
) -> Result<bool, Failure> {
    if let Some(fork) = record.merge.into.strip_prefix("fork:") {
        return match daemon.store.record(&ForkName::parse(fork)?) {
            Ok(_) => Ok(true),
            Err(StoreError::NoSuchFork(_)) => Ok(false),
            Err(error) => Err(error.into()),
        };
    }
    let branch = branch_of(&record.merge.into).to_owned();
    match repository.branch(&branch)? {
        Some(_) => Ok(true),
        None => follow_renaming(repository, record, &branch),
    }
}

/// Updates a renamed branch in the record; returns whether it did.
fn follow_renaming(
    repository: &Repository,
    record: &mut ReviewRecord,
    branch: &str,
) -> Result<bool, Failure> {
    if repository.check_branch_name(branch).is_err() {
        return Ok(false);
    }
    let Some(now) = repository.renamed_to(branch, record.created_secs)? else {
        return Ok(false);
    };
    log::info!(
        "review {}: the branch {branch} is called {now} now",
        record.id
    );
    Ok(record.rename_branch(branch, &now))
}

fn is_source_there(
    daemon: &Daemon,
    repository: &Repository,
    record: &mut ReviewRecord,
) -> Result<bool, Failure> {
    let git_dir = git_dir_of(repository, record).to_owned();
    let words: Vec<String> = match record.work.as_ref().map(|work| &work.request) {
        None => vec![record.merge.source.clone()],
        Some(SequenceRequest::Update {
            from: Some(from), ..
        }) => vec![from.clone()],
        Some(SequenceRequest::Update { from: None, .. }) => {
            branches::follow(&daemon.store, repository)?;
            let fork = record.merge.into.strip_prefix("fork:");
            let known =
                fork.and_then(|fork| daemon.store.record(&ForkName::parse(fork).ok()?).ok());
            match known.and_then(|known| known.from_branch) {
                Some(branch) => vec![format!("rev:refs/heads/{branch}")],
                None => return Ok(true),
            }
        }
        Some(SequenceRequest::CherryPick { commits, .. }) => {
            return match repository.named_commits(&git_dir, commits) {
                Ok(_) => Ok(true),
                Err(GitError::UnknownRevision(_)) => Ok(false),
                Err(error) => Err(error.into()),
            };
        }
        // The review keeps all objects that these need.
        Some(
            SequenceRequest::Patch { .. }
            | SequenceRequest::Restore { .. }
            | SequenceRequest::Mailbox { .. },
        ) => return Ok(true),
    };
    for word in words {
        if !is_word_there(daemon, repository, record, &git_dir, &word)? {
            let branch = word.strip_prefix("rev:").unwrap_or(&word);
            let branch = branch
                .strip_prefix("refs/heads/")
                .unwrap_or(branch)
                .to_owned();
            if word.starts_with("fork:") || !follow_renaming(repository, record, &branch)? {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

fn is_word_there(
    daemon: &Daemon,
    repository: &Repository,
    record: &ReviewRecord,
    git_dir: &Path,
    word: &str,
) -> Result<bool, Failure> {
    let is_there = |found: Result<(), StoreError>| match found {
        Ok(()) => Ok(true),
        Err(StoreError::NoSuchFork(_) | StoreError::NoSuchSnapshot { .. }) => Ok(false),
        Err(error) => Err(Failure::from(error)),
    };
    let parsed = |name: &str| ForkName::parse(name).ok();
    if let Some(named) = word.strip_prefix("fork:") {
        return match named.split_once('@') {
            Some((fork, snapshot)) => match (parsed(fork), parsed(snapshot)) {
                (Some(fork), Some(snapshot)) => {
                    is_there(daemon.store.snapshot(&fork, &snapshot).map(drop))
                }
                _ => Ok(false),
            },
            None => match parsed(named) {
                Some(fork) => is_there(daemon.store.record(&fork).map(drop)),
                None => Ok(false),
            },
        };
    }
    if word == "pristine" {
        return match &record.merge.here {
            Some(fork) => is_there(daemon.store.record(fork).map(drop)),
            None => Ok(false),
        };
    }
    if !word.starts_with("rev:") && fork_called(daemon, word).is_some() {
        return Ok(true);
    }
    let revision = word.strip_prefix("rev:").unwrap_or(word);
    // In another worktree these names mean other commits.
    let is_of_checkout = revision.starts_with("HEAD")
        || revision.starts_with('@')
        || revision.starts_with("worktree/");
    if is_of_checkout && !record.merge.git_dir.exists() {
        return Ok(false);
    }
    match repository.resolve_tree(git_dir, revision) {
        Ok(_) => Ok(true),
        Err(GitError::UnknownRevision(_)) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Returns the git directory in which the review's revisions are resolved.
///
/// It is that of the review's worktree, if that exists.
pub(crate) fn git_dir_of<'a>(repository: &'a Repository, record: &'a ReviewRecord) -> &'a Path {
    if record.merge.git_dir.exists() {
        &record.merge.git_dir
    } else {
        repository.common_dir()
    }
}

/// Fails if the source is gone and the review's own copy, too.
///
/// An aborted review does not protect its objects from `git gc`.
pub(crate) fn require_kept(
    repository: &Repository,
    record: &ReviewRecord,
    gone: &[MergeSide],
) -> Result<(), Failure> {
    let Some(lost) = is_lost(repository, record, gone) else {
        return Ok(());
    };
    let source = &record.merge.source;
    Err(Failure::new(
        ErrorCode::NoSuchPoint,
        format!(
            "{source} is gone, and so is {lost}, which review {} needs",
            record.id
        ),
    )
    .hint("`tine recover list` shows what can come back; with its source the review can be taken up again"))
}

/// Returns a lost object that a review without source needs.
fn is_lost<'a>(
    repository: &Repository,
    record: &'a ReviewRecord,
    gone: &[MergeSide],
) -> Option<&'a String> {
    let kept = [&record.theirs_commit, &record.ours_commit];
    let is_lost = |hex: &&String| {
        ObjectId::from_hex(hex.as_bytes()).is_ok_and(|id| !repository.has_object(id))
    };
    let lost = kept.into_iter().flatten().find(is_lost);
    lost.filter(|_| gone.contains(&MergeSide::Theirs))
}

/// Returns whether the target contains the source, which is gone.
///
/// The target contains the kept commit, or a commit with the same files on the same parents, as
/// another merge of the source makes.
pub(crate) fn is_merged(
    daemon: &Daemon,
    repository: &Repository,
    record: &ReviewRecord,
    gone: &[MergeSide],
) -> Result<bool, Failure> {
    let (Some(hex), None, [MergeSide::Theirs]) = (&record.theirs_commit, &record.work, gone) else {
        return Ok(false);
    };
    let tip = match record.merge.into.strip_prefix("fork:") {
        Some(fork) => {
            let worktree = daemon.store.worktree_of(&ForkName::parse(fork)?)?;
            repository.head_of(worktree.git_dir())?.commit_id()
        }
        None => repository.branch(branch_of(&record.merge.into))?,
    };
    let commit_id = ObjectId::from_hex(hex.as_bytes()).map_err(GitError::library("read an id"))?;
    match tip {
        Some(tip) => Ok(repository.reaches_the_same(commit_id, tip)?),
        None => Ok(false),
    }
}

/// Returns the kept source as a revision word.
pub(crate) fn kept_source(record: &ReviewRecord) -> String {
    format!(
        "rev:{}",
        record.theirs_commit.as_ref().unwrap_or(&record.theirs_tree)
    )
}

/// Returns the sequence's request with commits in place of names.
///
/// Names may mean other commits by now.
pub(crate) fn pinned_request(record: &ReviewRecord) -> Option<SequenceRequest> {
    let work = record.work.as_ref()?;
    let mut request = work.request.clone();
    match &mut request {
        SequenceRequest::Update { from, .. } => {
            let merged = work.sequence.items.iter().find_map(|item| match item {
                SequenceItem::Merge { commit, .. } => Some(commit),
                _ => None,
            });
            *from = work
                .sequence
                .onto
                .as_ref()
                .or(merged)
                .cloned()
                .or(from.take());
        }
        SequenceRequest::CherryPick { commits, .. } => {
            *commits = work
                .sequence
                .items
                .iter()
                .filter_map(|item| match item {
                    SequenceItem::Pick { commit, .. } => Some(commit.clone()),
                    _ => None,
                })
                .collect();
        }
        SequenceRequest::Patch { .. }
        | SequenceRequest::Restore { .. }
        | SequenceRequest::Mailbox { .. } => {}
    }
    Some(request)
}
