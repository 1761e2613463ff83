//! Lists, brings back and purges what commands dropped.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::making::{self, NewOptions};
use super::reviews::sides;
use crate::New;
use crate::failure::{ErrorCode, Failure};
use crate::operation::{Call, Operation};
use crate::protocol::{
    OtherRecoverKind, OtherRecoverLine, Purged, RecoverLine, RecoverList, RecoverWork,
    WorkRecovered,
};
use crate::state::slots::Daemon;
use tine_attr::Timestamp;
use tine_change::recovery::{self, RecoverEntry, RecoverKind, RecoverRules, Recoverable};
use tine_change::review::{ReviewRecord, ReviewState};
use tine_git::{GitError, ObjectId, Repository};
use tine_store::RecordKind;
use tine_store::{ForkName, ForkState, SnapshotReason};

/// List what can be brought back
///
/// As `tine recover` does without arguments.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Examples:
  tine recover list
  tine recover list --json")]
pub struct ListRecover {}

impl Operation for ListRecover {
    const NAME: &'static str = "recover-list";
    const PROGRESS: &'static str = "looking at what was dropped";
    type Answer = RecoverList;

    fn run(self, call: &Call<'_>) -> Result<RecoverList, Failure> {
        let daemon = call.daemon;
        let repository = daemon.repository_now()?;
        let (found, damaged) = recovery::list(&repository)?;
        let mut damaged: Vec<Failure> = damaged
            .into_iter()
            .map(|(id, error)| unreadable(id, error))
            .collect();
        let rules = RecoverRules::configured(&repository).unwrap_or_else(|reason| {
            let failure = Failure::new(
                ErrorCode::Usage,
                "a setting of `tine recover` cannot be read, so nothing expires",
            );
            damaged.push(failure.cause(reason).hint(format!(
                "set it right: `git config {} 90d`, `git config {} 10g`",
                recovery::AGE_KEY,
                recovery::SIZE_KEY
            )));
            RecoverRules {
                max_age_secs: None,
                max_bytes: None,
            }
        });
        let size_bytes = total(&found);
        let elsewhere = list_others(daemon, &found, &mut damaged)?;
        let mut entries = Vec::new();
        for one in &found {
            match recovery::missing(&repository, one, &found) {
                Ok(missing) => {
                    entries.push(line(daemon, &repository, one.clone(), missing, &rules))
                }
                Err(error) => damaged.push(unreadable(one.id, error)),
            }
        }
        Ok(RecoverList {
            entries,
            elsewhere,
            size_bytes,
            max_age_secs: rules.max_age_secs,
            max_bytes: rules.max_bytes,
            damaged,
        })
    }
}

/// Show one entry
///
/// When and by what it was dropped, its HEAD, its snapshots, and until when it can be brought back.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Example:
  tine recover show 5")]
pub struct ShowRecover {
    /// Its number
    #[arg(value_name = "ID")]
    pub id: u64,
}

impl Operation for ShowRecover {
    const NAME: &'static str = "recover-show";
    const PROGRESS: &'static str = "looking at what was dropped";
    type Answer = RecoverLine;

    fn run(self, call: &Call<'_>) -> Result<RecoverLine, Failure> {
        let repository = call.daemon.repository_now()?;
        let rules = RecoverRules::configured(&repository).unwrap_or_default();
        let found = recovery::find(&repository, self.id)?;
        let missing = recovery::missing(&repository, &found, &recovery::list(&repository)?.0)?;
        Ok(line(call.daemon, &repository, found, missing, &rules))
    }
}

impl Operation for RecoverWork {
    const NAME: &'static str = "recover-back";
    const PROGRESS: &'static str = "bringing back";
    type Answer = WorkRecovered;

    fn run(self, call: &Call<'_>) -> Result<WorkRecovered, Failure> {
        let daemon = call.daemon;
        let repository = daemon.repository_now()?;
        let found = recovery::find(&repository, self.id)?;
        recovery::write_again(&repository, &found)?;
        let (id, kind) = (found.id, found.entry.kind);
        let brought = match (kind, &self.snapshot) {
            (RecoverKind::Branch | RecoverKind::Handoff, None) => {
                as_branch(&repository, &found, &self)?
            }
            (RecoverKind::Fork | RecoverKind::Snapshot, _) => {
                as_fork(call, &repository, &found, self)?
            }
            (RecoverKind::Review, None) => {
                return Err(Failure::new(
                    ErrorCode::Usage,
                    format!("the entry {id} is a review, which has a command of its own"),
                )
                .hint(format!(
                    "`{}` takes it up again",
                    sides::reopen_command(
                        daemon,
                        &repository,
                        found.entry.number.unwrap_or_default(),
                        true
                    )
                )));
            }
            (RecoverKind::Branch | RecoverKind::Handoff | RecoverKind::Review, Some(snapshot)) => {
                return Err(no_snapshot(&found, snapshot));
            }
        };
        log::info!("the entry {id} of `tine recover` was brought back");
        Ok(brought)
    }
}

/// Let go of entries for good
///
/// They cannot be brought back then. It removes refs and writes nothing else, so it works on a full
/// disk. git frees the room of what nothing else reaches: by itself after two weeks, or at once
/// with `git gc --prune=now` (on a full disk: `git prune`).
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(group(clap::ArgGroup::new("which").required(true).multiple(true)))]
#[command(after_long_help = "\
Examples:
  tine recover purge 5 6
  tine recover purge --older-than 30d
  tine recover purge --all")]
pub struct Purge {
    /// Their numbers
    #[arg(value_name = "ID", group = "which")]
    #[serde(default)]
    pub ids: Vec<u64>,

    /// All that are at least so old: 12h, 30d, 8w
    #[arg(long = "older-than", value_name = "AGE", group = "which", value_parser = age_secs)]
    #[serde(default)]
    pub older_than_secs: Option<u64>,

    /// All of them
    #[arg(long, group = "which")]
    #[serde(default)]
    pub all: bool,
}

impl Operation for Purge {
    const NAME: &'static str = "recover-purge";
    const PROGRESS: &'static str = "letting go of what was dropped";
    type Answer = Purged;

    fn frees_space(&self) -> bool {
        true
    }

    fn run(self, call: &Call<'_>) -> Result<Purged, Failure> {
        let ids = &self.ids;
        let repository = call.daemon.repository_now()?;
        let (found, damaged) = recovery::list(&repository)?;
        let there: BTreeSet<u64> = found
            .iter()
            .map(|found| found.id)
            .chain(damaged.iter().map(|(id, _)| *id))
            .collect();
        if let Some(missing) = ids.iter().find(|id| !there.contains(id)) {
            return Err(tine_change::ChangeError::NothingToRecover(*missing).into());
        }
        let mut going: BTreeSet<u64> = ids.iter().copied().collect();
        if self.all {
            going.extend(&there);
        }
        if let Some(secs) = self.older_than_secs {
            let until = Timestamp::now()
                .secs
                .saturating_sub(i64::try_from(secs).unwrap_or(i64::MAX));
            let old = found.iter().filter(|found| found.entry.kept_secs <= until);
            going.extend(old.map(|found| found.id));
        }
        let going: Vec<u64> = going.into_iter().collect();
        let staying: Vec<Recoverable> = found
            .iter()
            .filter(|found| !going.contains(&found.id))
            .cloned()
            .collect();
        // Entries that stay may need ancestors that purged ones keep. A full disk must not prevent
        // the purge.
        if let Err(error) = recovery::keep_ancestors(&repository, &staying) {
            log::warn!("what stays may stand on what is purged: {error}");
        }
        let stays = recovery::purge(&call.daemon.store, &repository, &going);
        let is_gone = |id: &u64| !stays.iter().any(|(staying, _)| staying == id);
        let purged: Vec<u64> = going.into_iter().filter(is_gone).collect();
        let gone = found.iter().filter(|found| purged.contains(&found.id));
        Ok(Purged {
            size_bytes: gone.fold(0, |sum, found| sum.saturating_add(found.entry.size_bytes)),
            purged,
            stays: stays
                .into_iter()
                .map(|(id, error)| stuck(id, error))
                .collect(),
        })
    }
}

fn total(found: &[Recoverable]) -> u64 {
    found
        .iter()
        .fold(0, |sum, found| sum.saturating_add(found.entry.size_bytes))
}

fn unreadable(id: u64, error: impl Into<Failure>) -> Failure {
    error
        .into()
        .context(format!("the entry {id} cannot be read"))
        .hint(format!(
            "`git ls-tree -r refs/tine/+recover/{id}` shows what is left of it, `tine recover purge {id}` lets it go"
        ))
}

fn line(
    daemon: &Daemon,
    repository: &Repository,
    found: Recoverable,
    missing: Option<ObjectId>,
    rules: &RecoverRules,
) -> RecoverLine {
    let max_age_secs = rules.max_age_secs.and_then(|secs| i64::try_from(secs).ok());
    RecoverLine {
        id: found.id,
        recover_command: match (found.entry.kind, found.entry.number) {
            (RecoverKind::Review, Some(review)) => {
                sides::reopen_command(daemon, repository, review, true)
            }
            _ => recover_command(found.id, &found.entry),
        },
        expires_secs: max_age_secs.map(|secs| found.entry.kept_secs.saturating_add(secs)),
        missing: missing.map(|id| id.to_string()),
        entry: found.entry,
    }
}

/// Returns the command that brings an entry back.
pub fn recover_command(id: u64, entry: &RecoverEntry) -> String {
    match (entry.kind, &entry.branch) {
        (RecoverKind::Fork, _)
            if entry.uncommitted.is_none()
                && !entry.snapshots.is_empty()
                && (entry.refs.is_empty() || entry.head.is_none()) =>
        {
            let newest = entry
                .snapshots
                .last()
                .map_or("", |snapshot| snapshot.name.as_str());
            format!("tine recover {id} NAME --snapshot {newest}")
        }
        (RecoverKind::Fork, _) => format!("tine recover {id}"),
        (RecoverKind::Branch, Some(_)) => format!("tine recover {id}"),
        (RecoverKind::Review, _) => {
            format!("tine review refresh {}", entry.number.unwrap_or_default())
        }
        // The entry records no name for them.
        (RecoverKind::Snapshot | RecoverKind::Branch | RecoverKind::Handoff, _) => {
            format!("tine recover {id} NAME")
        }
    }
}

/// Lists what other commands bring back.
///
/// These are the snapshots that tine took before it changed a fork, reviews that were aborted, and
/// what repairs set aside.
fn list_others(
    daemon: &Daemon,
    entries: &[Recoverable],
    damaged: &mut Vec<Failure>,
) -> Result<Vec<OtherRecoverLine>, Failure> {
    let is_entry = |review: u64| {
        let mut entries = entries.iter().map(|found| &found.entry);
        entries.any(|entry| entry.kind == RecoverKind::Review && entry.number == Some(review))
    };
    let mut lines = Vec::new();
    for record in daemon.store.records().0 {
        let fork = record.name;
        let snapshots = match daemon.store.snapshots(&fork) {
            Ok(snapshots) => snapshots,
            Err(error) => {
                damaged.push(
                    Failure::from(error).context(format!("the snapshots of {fork} cannot be read")),
                );
                continue;
            }
        };
        let taken_before = snapshots.into_iter().filter(|snapshot| {
            snapshot.reason.is_automatic() && snapshot.reason != SnapshotReason::Periodic
        });
        lines.extend(taken_before.map(|snapshot| OtherRecoverLine {
            what: OtherRecoverKind::Snapshot,
            recover_command: format!("tine restore {fork} {}", snapshot.name),
            because: snapshot.reason.stem().replace('-', " "),
            name: snapshot.name.to_string(),
            kept_secs: snapshot.created_secs,
            fork: Some(fork.clone()),
        }));
    }
    let repository = daemon.repository_now()?;
    let (reviews, _) = daemon
        .store
        .documents::<ReviewRecord>(RecordKind::Reviews)?;
    let aborted = reviews
        .into_iter()
        .filter(|review| review.state == ReviewState::Aborted && !is_entry(review.id));
    lines.extend(aborted.map(|review| OtherRecoverLine {
        what: OtherRecoverKind::Review,
        recover_command: sides::reopen_command(daemon, &repository, review.id, false),
        because: format!("{} into {}", review.merge.source, review.merge.into),
        name: review.id.to_string(),
        kept_secs: review.created_secs,
        fork: None,
    }));
    for (aside, kept_secs) in daemon.store.set_aside_since()? {
        lines.push(OtherRecoverLine {
            what: OtherRecoverKind::Damaged,
            fork: None,
            name: aside.number.to_string(),
            kept_secs,
            because: "set aside by a repair or a forced delete".to_owned(),
            recover_command: format!("tine check --put-back {}", aside.number),
        });
    }
    lines.sort_by_key(|line| line.kept_secs);
    Ok(lines)
}

fn as_branch(
    repository: &Repository,
    found: &Recoverable,
    request: &RecoverWork,
) -> Result<WorkRecovered, Failure> {
    let (id, entry) = (found.id, &found.entry);
    let Some(name) = request.name.as_ref().or(entry.branch.as_ref()) else {
        return Err(unnamed(id));
    };
    let Some(head) = &entry.head else {
        return Err(no_commit(id));
    };
    let head_id = recovery::parse(head)?;
    recovery::require_tree(repository, found, head_id)?;
    let reflog = format!("branch: Created from tine recover {id}");
    repository
        .create_branch(name, head_id, &reflog)
        .map_err(|error| taken(id, error.into()))?;
    Ok(WorkRecovered {
        id,
        fork: None,
        branch: Some(name.clone()),
        commit: Some(head.clone()),
        refs: 0,
    })
}

fn as_fork(
    call: &Call<'_>,
    repository: &Repository,
    found: &Recoverable,
    request: RecoverWork,
) -> Result<WorkRecovered, Failure> {
    let (id, entry) = (found.id, &found.entry);
    let snapshot = match (&request.snapshot, entry.kind) {
        (Some(name), _) => {
            let kept = entry
                .snapshots
                .iter()
                .find(|snapshot| snapshot.name == *name);
            Some(kept.ok_or_else(|| no_snapshot(found, name))?)
        }
        (None, RecoverKind::Snapshot) => entry.snapshots.last(),
        (None, _) => None,
    };
    let (view, head) = match snapshot {
        Some(snapshot) => (Some(&snapshot.view), &snapshot.head),
        None => (
            entry.uncommitted.as_ref().or(entry.head.as_ref()),
            &entry.head,
        ),
    };
    let Some(view) = view else {
        return Err(no_commit(id));
    };
    let fork = match (&request.name, &entry.fork) {
        (Some(name), _) => ForkName::parse(name)?,
        (None, Some(fork)) => fork.clone(),
        (None, None) => return Err(unnamed(id)),
    };
    let id_of = |hex: &Option<String>| hex.as_deref().map(recovery::parse).transpose();
    let (view_id, head) = (recovery::parse(view)?, id_of(head)?);
    for commit_id in head.into_iter().chain([view_id]) {
        recovery::require_tree(repository, found, commit_id)?;
    }
    let fork_point = match id_of(&entry.fork_point)? {
        Some(point) if repository.has_object(point) => Some(point),
        _ => head,
    };
    let take_up = ForkState {
        commit_id: view_id,
        head,
        base: fork_point,
        fork_point,
        from_branch: entry.from_branch.clone(),
        origin: format!("tine recover {id}"),
    };
    let request = New {
        no_mount: !request.mount,
        detached: entry.branch.is_none() && head.is_some(),
        options: NewOptions {
            branch: free_branch(repository, entry, head)?,
            at: request.dir,
            ..NewOptions::default()
        },
        ..New::of(fork)
    };
    let made = making::make(
        call.daemon,
        call.owner(),
        call.git_dir()?,
        request,
        Some(take_up),
    )
    .map_err(|failure| taken(id, failure))?;
    let refs = if snapshot.is_none() {
        bring_refs(call.daemon, repository, &made.name, entry).map_err(|failure| {
            failure.context(format!("{} is back, without its refs", made.name))
        })?
    } else {
        0
    };
    Ok(WorkRecovered {
        id,
        branch: made.branch.clone(),
        commit: head.map(|id| id.to_string()),
        refs,
        fork: Some(made),
    })
}

/// Creates the entry's refs in a fork that was just made.
fn bring_refs(
    daemon: &Arc<Daemon>,
    repository: &Repository,
    name: &ForkName,
    entry: &RecoverEntry,
) -> Result<usize, Failure> {
    let slot = daemon.slot(name);
    let guard = daemon.lock_fork(&slot)?;
    let fork = guard.open()?;
    let count = recovery::bring_refs(repository, &fork.worktree, &entry.refs, "tine recover")?;
    Ok(count)
}

fn no_commit(id: u64) -> Failure {
    Failure::new(
        ErrorCode::UnknownRevision,
        format!("the entry {id} has no commit"),
    )
    .hint(format!("`tine recover show {id}` shows what it has"))
}

/// Returns the entry's branch if a new fork can be on it.
///
/// `None` makes the fork take its default branch.
fn free_branch(
    repository: &Repository,
    entry: &RecoverEntry,
    head: Option<ObjectId>,
) -> Result<Option<String>, Failure> {
    let Some(branch) = &entry.branch else {
        return Ok(None);
    };
    let tip = repository.branch(branch)?;
    let is_free = (tip.is_none() || tip == head) && repository.checked_out_at(branch)?.is_none();
    Ok(is_free.then(|| branch.clone()))
}

fn unnamed(id: u64) -> Failure {
    Failure::new(
        ErrorCode::Usage,
        format!("the entry {id} has no name to come back under"),
    )
    .hint(format!("`tine recover {id} NAME` gives it one"))
}

/// Adds a hint with another name, if the name is taken.
fn taken(id: u64, failure: Failure) -> Failure {
    match failure.code {
        ErrorCode::ForkExists | ErrorCode::BranchExists | ErrorCode::BranchCheckedOut => failure
            .hint(format!(
                "`tine recover {id} OTHER` brings it back under another name"
            )),
        _ => failure,
    }
}

fn no_snapshot(found: &Recoverable, name: &ForkName) -> Failure {
    let names: Vec<&str> = found
        .entry
        .snapshots
        .iter()
        .map(|snapshot| snapshot.name.as_str())
        .collect();
    let failure = Failure::new(
        ErrorCode::NoSuchSnapshot,
        format!("the entry {} has no snapshot {name}", found.id),
    );
    if names.is_empty() {
        failure.hint(format!(
            "`tine recover show {}` shows what it has",
            found.id
        ))
    } else {
        failure.hint(format!("it has {}", names.join(", ")))
    }
}

fn stuck(id: u64, error: GitError) -> Failure {
    Failure::from(error).context(format!("the entry {id} stays"))
}

/// Parses an age on the command line, in seconds.
fn age_secs(word: &str) -> Result<u64, Failure> {
    recovery::parse_age(word).flatten().ok_or_else(|| {
        Failure::new(ErrorCode::Usage, format!("{word:?} is not a time"))
            .hint("a number with `s`, `m`, `h`, `d` or `w`: `tine recover purge --older-than 30d`")
    })
}
