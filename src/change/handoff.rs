//! Handoffs: finished work of a fork as a file that outlives it.
//!
//! The file is a mailbox of patches that `git am` accepts. A record beside it describes it, and a
//! ref keeps the commits as long as the record exists. The handoff stays until it is applied or
//! deleted. Each change of state replaces the record atomically:
//!
//! | state | what exists |
//! |---|---|
//! | `pending` | the ref, no mailbox; the next daemon makes the mailbox from the same commits |
//! | `ready` | the complete mailbox, synced before the record said so |
//! | `skipped` | no mailbox: there was nothing to hand over |
//! | `failed` | no mailbox, and the reason |

use std::fs;
use std::io::Read;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ChangeError;
use super::branches::rename_in;
use tine_attr::Timestamp;
use tine_git::mailbox::{
    CommitRange, MailboxStats, RangeCommits, copy_mailbox, mailbox_figures, read_mails,
};
use tine_git::{ObjectId, Repository};
use tine_store::{ForkName, RecordKind, Store, StoreError};

/// Group under `refs/tine/`; not a valid fork name.
pub(super) const REFS: &str = "+handoffs";

/// File name extension of mailboxes.
const MAILBOX: &str = "mbox";

/// State of a handoff.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HandoffState {
    /// The mailbox is still to be made.
    Pending,
    /// The mailbox exists.
    Ready,
    /// The mailbox could not be made.
    Failed,
    /// There is no mailbox, since nothing was committed.
    Skipped,
}

impl HandoffState {
    /// Returns the state as the record spells it.
    pub fn word(self) -> &'static str {
        match self {
            HandoffState::Pending => "pending",
            HandoffState::Ready => "ready",
            HandoffState::Failed => "failed",
            HandoffState::Skipped => "skipped",
        }
    }
}

/// Record of a handoff, one atomically replaced file of the store.
///
/// Commits are in hex, times in seconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HandoffRecord {
    /// Number of the handoff.
    pub id: u64,
    /// Fork with the work, which may be deleted by now.
    ///
    /// `None` for an imported mailbox.
    #[schemars(with = "Option<String>")]
    pub fork: Option<ForkName>,
    /// Short name of the branch of its HEAD; `None` if detached.
    pub branch: Option<String>,
    /// Addressee, `fork:NAME` or `branch:NAME`; `None` if not given.
    pub to: Option<String>,
    /// State of the mailbox.
    pub state: HandoffState,
    /// Reason that it failed or was skipped.
    pub reason: Option<String>,
    /// Commit before the first patch; `None` if none or unknown.
    pub base_commit: Option<String>,
    /// Commit of the last patch; `None` if there is none.
    pub head_commit: Option<String>,
    /// True if the fork had uncommitted changes, which are left out.
    pub uncommitted: bool,
    /// Number of patches, one for each commit.
    pub commits: u64,
    /// Number of commits left out because they are merges.
    pub merges: u64,
    /// Size of the mailbox in bytes.
    pub mailbox_bytes: u64,
    /// SHA-256 of the mailbox, in hex.
    pub sha256: Option<String>,
    /// Time of creation.
    pub created_secs: i64,
    /// Time of becoming `ready`, `failed` or `skipped`.
    pub finished_secs: Option<i64>,
    /// Time of being applied; `None` if it was not.
    pub applied_secs: Option<i64>,
    /// Fork or branch that it was applied to.
    pub applied_to: Option<String>,
    /// Commit of the target after it was applied.
    pub applied_head: Option<String>,
    /// Commit of the target before it was applied.
    ///
    /// With the branch it shows whether the handoff was undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_from: Option<String>,
    /// Branch (short name) that the target was on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_on: Option<String>,
    /// File that an imported mailbox came from.
    pub imported_from: Option<String>,
    /// Mails of an imported mailbox.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mails: Vec<MailRecord>,
}

/// Patch of an imported mailbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MailRecord {
    /// Subject of the mail, without prefixes.
    pub summary: String,
    /// Name of the author.
    pub author_name: String,
    /// Mail address of the author.
    pub author_email: String,
}

/// Content of a handoff to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandoffSpec {
    /// Fork with the work.
    pub fork: ForkName,
    /// Short name of the branch of its HEAD; `None` if detached.
    pub branch: Option<String>,
    /// Addressee, `fork:NAME` or `branch:NAME`; `None` if not given.
    pub to: Option<String>,
    /// Commit before the first patch; `None`: all commits.
    pub base: Option<ObjectId>,
    /// Commit of HEAD; `None` on an unborn branch.
    pub head: Option<ObjectId>,
    /// True if the fork has uncommitted changes.
    pub uncommitted: bool,
}

/// Outcome of making a mailbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MailboxOutcome {
    /// A mailbox was written.
    Mailbox {
        /// Size and checksum of the mailbox.
        figures: MailboxStats,
        /// Number of patches in it.
        commits: u64,
        /// Number of merges left out.
        merges: u64,
    },
    /// No commit can be a patch.
    Nothing {
        /// Number of merges left out.
        merges: u64,
    },
}

impl HandoffRecord {
    /// Makes a record without a number.
    fn new(state: HandoffState) -> HandoffRecord {
        HandoffRecord {
            id: 0,
            fork: None,
            branch: None,
            to: None,
            state,
            reason: None,
            base_commit: None,
            head_commit: None,
            uncommitted: false,
            commits: 0,
            merges: 0,
            mailbox_bytes: 0,
            sha256: None,
            created_secs: Timestamp::now().secs,
            finished_secs: None,
            applied_secs: None,
            applied_to: None,
            applied_head: None,
            applied_from: None,
            applied_on: None,
            imported_from: None,
            mails: Vec::new(),
        }
    }

    /// Adds a pending handoff to the store, and keeps its commits.
    ///
    /// # Errors
    /// [`ChangeError::Store`] if the record cannot be written, [`ChangeError::Git`] if the commits
    /// cannot be kept.
    pub fn add(
        spec: &HandoffSpec,
        store: &Store,
        repository: &Repository,
    ) -> Result<HandoffRecord, ChangeError> {
        let hex = |id: ObjectId| id.to_string();
        let mut record = HandoffRecord {
            fork: Some(spec.fork.clone()),
            branch: spec.branch.clone(),
            to: spec.to.clone(),
            base_commit: spec.base.map(hex),
            head_commit: spec.head.map(hex),
            uncommitted: spec.uncommitted,
            ..HandoffRecord::new(HandoffState::Pending)
        };
        store.add_document(RecordKind::Handoffs, |id| {
            record.id = id;
            keep_commits(repository, id, spec.base, spec.head)?;
            Ok::<_, ChangeError>(record)
        })
    }

    /// Adds the mailbox from `input` to the store, as ready.
    ///
    /// # Errors
    /// [`GitError::NotAMailbox`](tine_git::GitError::NotAMailbox), and the errors of reading and
    /// writing files.
    pub fn import(
        input: &mut dyn Read,
        from: String,
        to: Option<String>,
        store: &Store,
    ) -> Result<HandoffRecord, ChangeError> {
        let scratch = store.scratch_dir()?;
        let path = scratch.path().join("mailbox");
        let figures = copy_mailbox(input, &path)?;
        let mails = store.scratch_dir()?;
        let mails = read_mails(&path, mails.path())?;
        let mut record = HandoffRecord {
            to,
            commits: mails.len() as u64,
            mailbox_bytes: figures.bytes,
            sha256: Some(figures.sha256),
            finished_secs: Some(Timestamp::now().secs),
            imported_from: Some(from),
            mails: mails
                .into_iter()
                .map(|mail| MailRecord {
                    summary: mail.subject,
                    author_name: mail.author_name,
                    author_email: mail.author_email,
                })
                .collect(),
            ..HandoffRecord::new(HandoffState::Ready)
        };
        store.add_document(RecordKind::Handoffs, |id| {
            record.id = id;
            store.attach(RecordKind::Handoffs, id, MAILBOX, |place| {
                fs::rename(&path, place).map_err(StoreError::io("move", &path))
            })?;
            Ok::<_, ChangeError>(record)
        })
    }

    /// Reads the handoff with a number.
    ///
    /// # Errors
    /// [`ChangeError::NoSuchHandoff`], or [`ChangeError::Store`] if the record is damaged.
    pub fn load(store: &Store, id: u64) -> Result<HandoffRecord, ChangeError> {
        store
            .read_document(RecordKind::Handoffs, id)?
            .ok_or(ChangeError::NoSuchHandoff(id))
    }

    /// Renames a branch (short names) in the record.
    ///
    /// Returns whether the record named it.
    pub fn rename_branch(&mut self, old: &str, new: &str) -> bool {
        let words = [
            &mut self.branch,
            &mut self.to,
            &mut self.applied_to,
            &mut self.applied_on,
        ];
        let words = words.into_iter().flatten();
        words.fold(false, |is_renamed, word| {
            rename_in(word, old, new) | is_renamed
        })
    }

    /// Replaces the record in the store.
    ///
    /// # Errors
    /// [`ChangeError::Store`] if it cannot be written.
    pub fn save(&self, store: &Store) -> Result<(), ChangeError> {
        Ok(store.write_document(RecordKind::Handoffs, self.id, self)?)
    }

    /// Removes record and mailbox, and releases the commits.
    ///
    /// # Errors
    /// [`ChangeError::Store`] if a file cannot be removed, [`ChangeError::Git`] if a ref cannot.
    pub fn remove(&self, store: &Store, repository: &Repository) -> Result<(), ChangeError> {
        store.remove_document(RecordKind::Handoffs, self.id, Some(MAILBOX))?;
        Ok(release(repository, self.id)?)
    }

    /// Returns whether the handoff has these commits of this fork.
    pub fn is_of(&self, spec: &HandoffSpec) -> bool {
        let is = |hex: &Option<String>, id: Option<ObjectId>| *hex == id.map(|id| id.to_string());
        self.fork.as_ref() == Some(&spec.fork)
            && is(&self.base_commit, spec.base)
            && is(&self.head_commit, spec.head)
    }

    /// Returns the commits; `None` if there are none or they are unknown.
    ///
    /// # Errors
    /// [`ChangeError::DamagedHandoff`] if a commit id is invalid.
    pub fn range(&self) -> Result<Option<CommitRange>, ChangeError> {
        let id = |hex: &String| {
            ObjectId::from_hex(hex.as_bytes()).map_err(|_| ChangeError::DamagedHandoff {
                id: self.id,
                reason: format!("{hex:?} is no commit"),
            })
        };
        let base = self.base_commit.as_ref().map(id).transpose()?;
        let head = self.head_commit.as_ref().map(id).transpose()?;
        Ok(head.map(|head| CommitRange { base, head }))
    }

    /// Makes or replaces the mailbox. Does not change the record.
    ///
    /// # Errors
    /// [`ChangeError::DamagedHandoff`] if a commit id is invalid, [`ChangeError::Git`] or
    /// [`ChangeError::Store`] if commits cannot be read or the mailbox not written.
    pub fn make(
        &self,
        store: &Store,
        repository: &Repository,
    ) -> Result<MailboxOutcome, ChangeError> {
        let Some(range) = self.range()? else {
            return Ok(MailboxOutcome::Nothing { merges: 0 });
        };
        let commits @ RangeCommits { merges, .. } = &repository.commits_in(&range)?;
        if commits.plain.is_empty() {
            return Ok(MailboxOutcome::Nothing { merges: *merges });
        }
        let figures = store.attach(RecordKind::Handoffs, self.id, MAILBOX, |path| {
            let written = repository.write_mailbox(&range, commits, path);
            written.map_err(ChangeError::from)
        })?;
        Ok(MailboxOutcome::Mailbox {
            figures,
            commits: commits.plain.len() as u64,
            merges: *merges,
        })
    }

    /// Sets the state back to pending.
    pub fn begin_again(&mut self) {
        self.state = HandoffState::Pending;
        self.reason = None;
        self.finished_secs = None;
    }

    /// Records the outcome of making the mailbox.
    ///
    /// `Err` is the reason of a failure.
    pub fn finish(&mut self, outcome: Result<MailboxOutcome, String>) {
        self.finished_secs = Some(Timestamp::now().secs);
        match outcome {
            Ok(MailboxOutcome::Mailbox {
                figures,
                commits,
                merges,
            }) => {
                self.state = HandoffState::Ready;
                self.commits = commits;
                self.merges = merges;
                self.mailbox_bytes = figures.bytes;
                self.sha256 = Some(figures.sha256);
            }
            Ok(MailboxOutcome::Nothing { merges }) => {
                self.state = HandoffState::Skipped;
                self.merges = merges;
                let reason = match merges {
                    0 => "nothing was committed",
                    _ => "there are only merges, which patches cannot tell of",
                };
                self.reason = Some(reason.to_owned());
            }
            Err(reason) => {
                self.state = HandoffState::Failed;
                self.reason = Some(reason);
            }
        }
    }

    /// Returns the path of the mailbox, even if it does not exist.
    pub fn mailbox(&self, store: &Store) -> PathBuf {
        mailbox_path(store, self.id)
    }

    /// Returns whether `git am --keep` restores the commits' own subjects.
    ///
    /// It does for mailboxes made here. Imported mails have `[PATCH]` before each subject.
    pub fn keeps_subjects(&self) -> bool {
        self.imported_from.is_none()
    }

    /// Returns whether a ready handoff has a mailbox of the right size.
    ///
    /// Handoffs in other states need no mailbox.
    fn is_in_place(&self, store: &Store) -> bool {
        self.state != HandoffState::Ready
            || fs::metadata(self.mailbox(store)).is_ok_and(|meta| meta.len() == self.mailbox_bytes)
    }

    /// Returns whether a ref keeps its commits, if it has any.
    pub(super) fn is_kept(&self, repository: &Repository) -> Result<bool, ChangeError> {
        Ok(self.head_commit.is_none() || repository.kept_as(REFS, &self.id.to_string())?.is_some())
    }

    /// Keeps its commits by refs.
    pub(super) fn keep(&self, repository: &Repository) -> Result<(), ChangeError> {
        match self.range()? {
            Some(range) => keep_commits(repository, self.id, range.base, Some(range.head)),
            None => Ok(()),
        }
    }

    /// Checks that a ready handoff has a mailbox of the right size.
    pub(super) fn check_mailbox_size(&self, store: &Store) -> Result<(), ChangeError> {
        if self.is_in_place(store) {
            Ok(())
        } else {
            Err(ChangeError::DamagedHandoff {
                id: self.id,
                reason: format!(
                    "{} is gone, or has another length",
                    self.mailbox(store).display()
                ),
            })
        }
    }

    /// Reads the mailbox and checks its size and checksum.
    ///
    /// # Errors
    /// [`ChangeError::DamagedHandoff`] if they differ, [`ChangeError::Git`] if it cannot be read.
    pub fn verify(&self, store: &Store) -> Result<(), ChangeError> {
        let found = mailbox_figures(&self.mailbox(store))?;
        if found.bytes == self.mailbox_bytes && Some(&found.sha256) == self.sha256.as_ref() {
            Ok(())
        } else {
            Err(ChangeError::DamagedHandoff {
                id: self.id,
                reason: format!("{} is not as it was made", self.mailbox(store).display()),
            })
        }
    }
}

/// Returns the path of the mailbox of the handoff `id`.
///
/// The file may not exist.
pub fn mailbox_path(store: &Store, id: u64) -> PathBuf {
    store.attachment(RecordKind::Handoffs, id, MAILBOX)
}

/// Repairs the handoffs after a crash.
///
/// Returns the numbers of those whose mailbox must be made. No other thread may work on handoffs.
///
/// # Errors
/// [`ChangeError::Store`] or [`ChangeError::Git`] if records or refs cannot be read or written.
pub fn recover(store: &Store, repository: &Repository) -> Result<Vec<u64>, ChangeError> {
    let ids = store.document_ids(RecordKind::Handoffs)?;
    for (label, _) in repository.kept(REFS)? {
        let number = label.trim_end_matches("-base").parse();
        if number.is_ok_and(|id: u64| !ids.contains(&id)) {
            repository.release(REFS, &label)?;
        }
    }
    let (records, damaged) = store.documents::<HandoffRecord>(RecordKind::Handoffs)?;
    for error in damaged {
        log::error!("{error}");
    }
    let mut to_make = Vec::new();
    for mut record in records {
        if !record.is_in_place(store) && record.head_commit.is_some() {
            log::warn!(
                "the mailbox of handoff {} is gone and is made again",
                record.id
            );
            record.begin_again();
            record.save(store)?;
        }
        if record.state == HandoffState::Pending {
            to_make.push(record.id);
        }
    }
    Ok(to_make)
}

/// Keeps the commits of a handoff, and their base.
fn keep_commits(
    repository: &Repository,
    id: u64,
    base: Option<ObjectId>,
    head: Option<ObjectId>,
) -> Result<(), ChangeError> {
    let Some(head) = head else {
        return Ok(());
    };
    repository.keep(REFS, &id.to_string(), head)?;
    // After a rebase the base is not an ancestor of the commits.
    if let Some(base) = base
        && !repository.is_ancestor(base, head)?
    {
        repository.keep(REFS, &base_label(id), base)?;
    }
    Ok(())
}

fn release(repository: &Repository, id: u64) -> Result<(), tine_git::GitError> {
    repository.release(REFS, &base_label(id))?;
    repository.release(REFS, &id.to_string())
}

fn base_label(id: u64) -> String {
    format!("{id}-base")
}
