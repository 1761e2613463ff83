//! Operations on handoffs: create, show, await, import and delete them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::buffers::with_agent_texts;
use super::merging;
use super::sequencing::unless_taken_back;
use crate::failure::{ErrorCode, Failure};
use crate::locks;
use crate::operation::{Call, Operation, joined_message, paragraphs};
use crate::policy::{Signers, work_later, work_message};
use crate::protocol::{AgentTexts, HandoffDeleted, HandoffInfo, HandoffShown, Handoffs, PatchLine};
use crate::report;
use crate::state::slots::{Daemon, ForkGuard};
use crate::state::{handoffs, taking};
use crate::transfer::Transfer;
use tine_change::changeset::{self, Blobs};
use tine_change::compare::compare_trees;
use tine_change::fork_point::fork_point;
use tine_change::handoff::{HandoffRecord, HandoffSpec, HandoffState};
use tine_change::recovery::{self, RecoverEntry, RecoverKind};
use tine_change::revert_guard::{RevertRecords, RevertSource, refuse_taking_back};
use tine_change::{ChangeError, CommitOptions, commit};
use tine_git::{ObjectId, Repository};
use tine_store::RecordKind;
use tine_store::{ForkName, ForkRecord};

/// Hand over what a fork has committed
///
/// The same commits are handed over once: asked again, the same handoff is shown. One that failed
/// is tried again. Where nothing was committed the handoff is skipped, and the exit code is 7;
/// where it failed it is 1. Merges are left out, as `git format-patch` does: what they bring
/// besides their parents is in no patch.
#[derive(Debug, Clone, Default, clap::Args, Serialize, Deserialize, JsonSchema)]
#[command(after_long_help = "\
Examples:
  tine handoff create fix-parser
  tine handoff create fix-parser --to main --background
  tine handoff create fix-parser --include-uncommitted -m 'Fix the parser'")]
pub struct CreateHandoff {
    /// The fork [default: the one whose mount this is]
    #[arg(value_name = "FORK")]
    #[schemars(skip)]
    #[serde(default)]
    pub fork: Option<ForkName>,

    /// The fork or branch that is to apply it [default: what the fork came from]
    #[arg(long, value_name = "PARENT")]
    #[serde(default)]
    pub to: Option<String>,

    /// Hand over the commits after this revision [default: those after the fork point]
    #[arg(long, value_name = "REV")]
    #[serde(default)]
    pub base: Option<String>,

    /// Commit what is not committed first
    #[arg(long)]
    #[serde(default)]
    pub include_uncommitted: bool,

    /// The message of that commit; given again, another paragraph of it
    #[arg(short, long, value_name = "MSG", requires = "include_uncommitted")]
    #[schemars(with = "Option<String>")]
    #[serde(default, with = "paragraphs", skip_serializing_if = "Vec::is_empty")]
    pub message: Vec<String>,

    /// Hand over also what takes commits of others back, after `tine restore --exact` in the fork
    #[arg(long)]
    #[serde(default)]
    pub allow_revert: bool,
}

impl Operation for CreateHandoff {
    const NAME: &'static str = "create-handoff";
    const PROGRESS: &'static str = "handing over";
    type Answer = HandoffInfo;

    fn fork(&mut self) -> Option<&mut Option<ForkName>> {
        Some(&mut self.fork)
    }

    fn run(self, call: &Call<'_>) -> Result<HandoffInfo, Failure> {
        let (daemon, fork) = (call.daemon, call.fork(self.fork)?);
        let record = daemon.store.record(&fork)?;
        let to = named_parent(daemon, self.to.as_deref())?;
        let slot = daemon.slot(&fork);
        let guard = daemon.lock_fork(&slot)?;
        let (begun, agent_texts) = with_agent_texts(&guard, || {
            if self.include_uncommitted {
                let message = joined_message(&self.message);
                commit_uncommitted(&guard, message, &call.signers(), self.allow_revert)?;
            }
            begin(&guard, &record, to, self.base.as_deref(), self.allow_revert)
        })?;
        if slot.trouble().is_some_and(|trouble| {
            matches!(
                trouble.code,
                ErrorCode::HandoffFailed | ErrorCode::TakesBack
            )
        }) {
            // The handoff's own state replaces the trouble from now on.
            guard.set_trouble(None);
        }
        Ok(HandoffInfo {
            agent_texts,
            ..info(daemon, begun)
        })
    }
}

/// List handoffs
///
/// Those that wait to be applied, that are being made, or that failed.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Example:
  tine handoff list --all")]
pub struct ListHandoffs {
    /// Those too that are applied, or were skipped
    #[arg(short, long)]
    #[serde(default)]
    pub all: bool,
}

impl Operation for ListHandoffs {
    const NAME: &'static str = "handoffs";
    type Answer = Handoffs;

    fn run(self, call: &Call<'_>) -> Result<Handoffs, Failure> {
        let daemon = call.daemon;
        let (records, damaged) = daemon
            .store
            .documents::<HandoffRecord>(RecordKind::Handoffs)?;
        let repository = daemon.repository_now()?;
        let is_open = |record: &HandoffRecord| {
            record.applied_secs.is_none() && record.state != HandoffState::Skipped
        };
        Ok(Handoffs {
            handoffs: records
                .into_iter()
                .map(|record| unless_taken_back(daemon, &repository, record))
                .filter(|record| self.all || is_open(record))
                .map(|record| info(daemon, record))
                .collect(),
            damaged: damaged.into_iter().map(Failure::from).collect(),
        })
    }
}

/// Shows how a handoff stands, and its commits.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
pub struct ShowHandoff {
    /// Its number
    #[arg(value_name = "ID")]
    pub id: u64,
}

impl Operation for ShowHandoff {
    const NAME: &'static str = "handoff";
    type Answer = HandoffShown;

    fn run(self, call: &Call<'_>) -> Result<HandoffShown, Failure> {
        let (daemon, id) = (call.daemon, self.id);
        let repository = daemon.repository_now()?;
        let record =
            unless_taken_back(daemon, &repository, HandoffRecord::load(&daemon.store, id)?);
        let Some(range) = record.range()? else {
            let patches = record.mails.iter().map(|mail| PatchLine {
                commit: None,
                summary: mail.summary.clone(),
                author_name: mail.author_name.clone(),
                author_email: mail.author_email.clone(),
            });
            return Ok(HandoffShown {
                patches: patches.collect(),
                old_tree: None,
                new_tree: None,
                changes: Vec::new(),
                info: info(daemon, record),
            });
        };
        let commits = repository.commits_in(&range)?.plain;
        let patches = commits
            .into_iter()
            .rev()
            .map(|id| Ok(report::commit_line(id, &repository.commit_info(id)?).into()))
            .collect::<Result<_, Failure>>()?;
        let old_tree = repository.tree_of(range.base)?;
        let new_tree = repository.commit_info(range.head)?.tree_id;
        let changes = compare_trees(&repository, old_tree, new_tree)?;
        Ok(HandoffShown {
            info: info(daemon, record),
            patches,
            old_tree: Some(old_tree.to_string()),
            new_tree: Some(new_tree.to_string()),
            changes: changes.iter().map(report::change_line).collect(),
        })
    }
}

/// Wait until handoffs are made
///
/// Tells all of them. The exit code is 1 where one failed, and 8 where one is still being made when
/// the time is up.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Examples:
  tine handoff await 3
  tine handoff await 3 4 5 --timeout 2m --json")]
pub struct AwaitHandoffs {
    /// Their numbers
    #[arg(value_name = "ID", required = true)]
    pub ids: Vec<u64>,

    /// How long, in seconds, or as 30s, 5m, 2h
    #[arg(long = "timeout", value_name = "TIME", value_parser = seconds)]
    #[serde(default)]
    pub timeout_secs: Option<u64>,
}

impl Operation for AwaitHandoffs {
    const NAME: &'static str = "await-handoffs";
    const PROGRESS: &'static str = "waiting for handoffs";
    type Answer = Handoffs;

    fn run(self, call: &Call<'_>) -> Result<Handoffs, Failure> {
        // A deadline beyond the range of `Instant` is none.
        let deadline = self
            .timeout_secs
            .and_then(|secs| Instant::now().checked_add(Duration::from_secs(secs)));
        let records = handoffs::wait(call.daemon, &self.ids, deadline)?;
        Ok(Handoffs {
            handoffs: records
                .into_iter()
                .map(|record| info(call.daemon, record))
                .collect(),
            damaged: Vec::new(),
        })
    }
}

/// Delete a handoff
///
/// One that was not applied, and whose commits no branch or tag has, is deleted with --force only.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Example:
  tine handoff delete 3")]
pub struct DeleteHandoff {
    /// Its number
    #[arg(value_name = "ID")]
    pub id: u64,

    /// Delete it even if nothing else has its work
    #[arg(short, long)]
    #[serde(default)]
    pub force: bool,
}

impl Operation for DeleteHandoff {
    const NAME: &'static str = "delete-handoff";
    type Answer = HandoffDeleted;

    fn run(self, call: &Call<'_>) -> Result<HandoffDeleted, Failure> {
        let (daemon, id) = (call.daemon, self.id);
        let repository = daemon.repository_now()?;
        let kept_in = kept_in(&repository, &HandoffRecord::load(&daemon.store, id)?)?;
        let mut recover = None;
        let record = handoffs::remove(daemon, &repository, id, |record| {
            let record = unless_taken_back(daemon, &repository, record.clone());
            let is_work = record.state == HandoffState::Ready && record.applied_secs.is_none();
            if is_work && kept_in.is_none() && !self.force {
                return Err(Failure::new(
                    ErrorCode::HandoffState,
                    format!("the handoff {id} was not applied, and nothing else has its work"),
                )
                .hint("`--force` deletes it even so; `tine recover` brings its commits back"));
            }
            recover = keep(daemon, &repository, &record)?;
            Ok(())
        })?;
        Ok(HandoffDeleted {
            id,
            head_commit: record.head_commit,
            kept_in,
            recover,
        })
    }
}

/// Take a mailbox of patches from elsewhere as a handoff
///
/// As `git format-patch --stdout` writes it, or another tine.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Examples:
  tine handoff import fixes.mbox
  git -C ../other format-patch --stdout main.. | tine handoff import - --to main")]
pub struct ImportHandoff {
    /// The file; `-` is standard input
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    #[serde(skip)]
    pub file: PathBuf,

    /// The fork or branch that is to apply it
    #[arg(long, value_name = "PARENT")]
    #[serde(default)]
    pub to: Option<String>,

    /// Mailbox that the client sends.
    #[arg(skip)]
    pub content: Transfer,

    /// Origin of the mailbox, in words.
    #[arg(skip)]
    pub from: String,
}

impl Operation for ImportHandoff {
    const NAME: &'static str = "import-handoff";
    type Answer = HandoffInfo;

    fn run(self, call: &Call<'_>) -> Result<HandoffInfo, Failure> {
        let daemon = call.daemon;
        let mut input = self.content.take(daemon.store.dir())?.into_reader();
        let to = named_parent(daemon, self.to.as_deref())?;
        let record = HandoffRecord::import(&mut input, self.from, to, &daemon.store)?;
        Ok(info(daemon, record))
    }
}

/// Commits a fork's uncommitted changes; returns the commit, if there were any.
pub(crate) fn commit_uncommitted(
    guard: &ForkGuard<'_>,
    message: Option<String>,
    signers: &Signers,
    allow_revert: bool,
) -> Result<Option<ObjectId>, Failure> {
    let fork = guard.open_existing()?;
    let repository = guard.daemon.repository_now()?;
    guard.settle(&repository, &fork)?;
    let options = CommitOptions {
        message: message.unwrap_or_else(|| work_message(guard.name())),
        author: signers.author.clone(),
        committer: signers.committer.clone(),
        reverts: if allow_revert {
            RevertRecords::default()
        } else {
            RevertRecords::of(&guard.daemon.store)
        },
    };
    let command = format!("tine handoff {}", guard.name());
    let _lease = locks::lease(guard.daemon, &command, || {
        locks::head_of(guard, &repository)
    })?;
    match commit::commit(&repository, guard.name(), &fork, &options) {
        Ok(made) => {
            guard.note_settled(&made);
            Ok(Some(made.commit_id))
        }
        Err(ChangeError::NothingToCommit) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Begins a handoff of commits after `base` or the fork point.
///
/// # Errors
/// [`ChangeError::TakesBack`], without `allow_revert`, if they undo commits of others.
/// [`ChangeError::OperationInProgress`] and [`ChangeError::BranchGone`] if HEAD is not at the
/// fork's commits.
fn begin(
    guard: &ForkGuard<'_>,
    record: &ForkRecord,
    to: Option<String>,
    base: Option<&str>,
    allow_revert: bool,
) -> Result<HandoffRecord, Failure> {
    let daemon = guard.daemon;
    let repository = daemon.repository_now()?;
    let fork = guard.open_existing()?;
    guard.settle(&repository, &fork)?;
    commit::refuse_head_elsewhere(&repository, &fork)?;
    let uncommitted = changeset::changeset(&repository, &fork, Blobs::Hash)?;
    let head = repository.head_of(fork.worktree.git_dir())?;
    // Settling may have moved the fork point.
    let point = fork_point(&repository, &guard.record()?, head.commit_id())?;
    let base = match base {
        Some(word) => {
            taking::bring_named(daemon, word);
            Some(repository.resolve_commit(fork.worktree.git_dir(), word)?)
        }
        None => point,
    };
    if let (Some(head), false) = (head.commit_id(), allow_revert) {
        let reverts = RevertRecords::of(&daemon.store);
        let tree_id = repository.commit_info(head)?.tree_id;
        // Commits before the fork point are not the fork's own.
        let from = match (base, point) {
            (Some(base), Some(point)) if repository.is_ancestor(base, point)? => Some(point),
            _ => base,
        };
        refuse_taking_back(
            &repository,
            &reverts,
            from,
            tree_id,
            RevertSource::Handoff(Some(guard.name())),
        )?;
    }
    let spec = HandoffSpec {
        fork: guard.name().clone(),
        branch: head.short_branch().map(str::to_owned),
        to,
        base,
        head: head.commit_id(),
        uncommitted: !uncommitted.changes.is_empty(),
    };
    handoffs::begin(daemon, &repository, &spec, parent_of(daemon, record))
}

/// Resolves `word` to an unambiguous fork or branch.
pub(crate) fn named_parent(
    daemon: &Arc<Daemon>,
    word: Option<&str>,
) -> Result<Option<String>, Failure> {
    word.map(|word| merging::target_called(daemon, word))
        .transpose()
}

/// Returns the default recipient of a fork's work.
///
/// It is the fork that this fork was made from, if that exists, or else the branch that it came
/// from.
fn parent_of(daemon: &Daemon, record: &ForkRecord) -> Option<String> {
    let fork = record.parent.as_ref().map(|parent| &parent.fork);
    match fork.filter(|fork| daemon.store.record(fork).is_ok()) {
        Some(fork) => Some(format!("fork:{fork}")),
        None => record
            .from_branch
            .as_ref()
            .map(|branch| format!("branch:{branch}")),
    }
}

/// Hands over an unmounted fork's commits and waits for the mailbox.
///
/// The caller holds no fork's lock.
pub(crate) fn of_unmounted(
    daemon: &Arc<Daemon>,
    name: &ForkName,
    to: Option<&str>,
    allow_revert: bool,
) -> Result<HandoffRecord, Failure> {
    let begun = || -> Result<HandoffRecord, Failure> {
        let to = named_parent(daemon, to)?;
        let slot = daemon.slot(name);
        let guard = daemon.lock_fork(&slot)?;
        begin(&guard, &guard.record()?, to, None, allow_revert)
    };
    let record = begun().map_err(|failure| not_made(name, failure))?;
    let made = handoffs::wait(daemon, &[record.id], None)?;
    let record = made.into_iter().next().unwrap_or(record);
    match record.state {
        HandoffState::Failed => {
            let reason = record.reason.clone().unwrap_or_default();
            let failure = Failure::new(
                ErrorCode::HandoffFailed,
                format!("the handoff {} failed", record.id),
            )
            .cause(reason)
            .hint(format!("`tine handoff create {name}` tries again"));
            Err(not_made(name, failure))
        }
        _ => Ok(record),
    }
}

fn not_made(name: &ForkName, failure: Failure) -> Failure {
    failure
        .context(format!(
            "{name} is unmounted and whole, but its work was not handed over"
        ))
        .hint(format!("`tine handoff create {name}` tries again"))
}

/// Does the same as [`of_unmounted`] in a thread, without the guard.
pub(crate) fn of_unmounted_later(guard: &ForkGuard<'_>, to: Option<String>) -> Result<(), Failure> {
    work_later(guard, "handoff", move |daemon, name| {
        of_unmounted(daemon, name, to.as_deref(), false).map(drop)
    })
}

/// Makes a `tine recover` entry of a handoff's commits; returns its number.
///
/// Returns `None` if something else reaches the commits.
fn keep(
    daemon: &Daemon,
    repository: &Repository,
    record: &HandoffRecord,
) -> Result<Option<u64>, Failure> {
    let Some(range) = record.range()? else {
        return Ok(None);
    };
    if !repository.has_object(range.head)
        || repository.reached_otherwise(range.head, &[])?.is_some()
    {
        return Ok(None);
    }
    let entry = RecoverEntry {
        fork: record.fork.clone(),
        head: Some(range.head.to_string()),
        number: Some(record.id),
        ..RecoverEntry::new(
            RecoverKind::Handoff,
            format!("tine handoff delete {}", record.id),
        )
    };
    Ok(Some(recovery::keep(&daemon.store, repository, entry, &[])?))
}

/// Returns a branch or tag that contains the commits.
fn kept_in(repository: &Repository, record: &HandoffRecord) -> Result<Option<String>, Failure> {
    match record.range()? {
        Some(range) => Ok(repository.reached_otherwise(range.head, &[])?),
        None => Ok(None),
    }
}

/// Adds the mailbox's path to a record.
pub(crate) fn info(daemon: &Daemon, record: HandoffRecord) -> HandoffInfo {
    HandoffInfo {
        agent_texts: AgentTexts::default(),
        mailbox: (record.state == HandoffState::Ready).then(|| record.mailbox(&daemon.store)),
        record,
    }
}

/// Parses a duration on the command line, in seconds.
fn seconds(word: &str) -> Result<u64, String> {
    let (number, unit) = match word.strip_suffix(['s', 'm', 'h']) {
        Some(number) => (number, word.as_bytes().last().copied()),
        None => (word, None),
    };
    let factor = match unit {
        Some(b'm') => 60,
        Some(b'h') => 3600,
        _ => 1,
    };
    let seconds: Option<u64> = number.parse().ok();
    seconds
        .and_then(|seconds| seconds.checked_mul(factor))
        .ok_or_else(|| format!("{word:?} is no time: `30`, `30s`, `5m` and `2h` are"))
}

#[cfg(test)]
mod tests {
    use super::seconds;

    #[test]
    fn times_are_seconds_minutes_or_hours() {
        assert_eq!(
            ["0", "30", "30s", "5m", "2h"].map(|word| seconds(word).unwrap()),
            [0, 30, 30, 300, 7200]
        );
        for wrong in [
            "",
            "s",
            "-1",
            "1d",
            "1.5",
            "99999999999999999999",
            "9999999999999999999h",
        ] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
