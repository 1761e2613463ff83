//! Handoffs: finished work of a fork as a file that outlives it, until somebody applies it.
//!
//! The file is a mailbox of patches (`git am` takes it), the record beside it says what it is of. A
//! ref keeps the commits as long as the record is there. What happens to a record, each one atomic
//! replacement of its file:
//!
//! | state | what is there |
//! |---|---|
//! | `pending` | the ref; no mailbox. Whoever finds it makes the mailbox, of the same commits |
//! | `ready` | the mailbox, whole and on the disk since before the record said so |
//! | `skipped` | no mailbox: there was nothing to hand over |
//! | `failed` | no mailbox, and why |

use std::fs;
use std::io::Read;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::ChangeError;
use super::branches::rename_in;
use tine_attr::Timestamp;
use tine_git::mailbox::{
    CommitRange, MailboxFigures, RangeCommits, copy_mailbox, mailbox_figures, read_mails,
};
use tine_git::{ObjectId, Repository};
use tine_workspace::store::RecordKind;
use tine_workspace::{ForkName, Store, StoreError};

/// Beneath `refs/tine/`; no fork can be called so.
pub(super) const REFS: &str = "+handoffs";

/// How mailboxes end.
const MAILBOX: &str = "mbox";

/// How a handoff stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HandoffState {
    Pending,
    Ready,
    Failed,
    /// Nothing was committed.
    Skipped,
}

impl HandoffState {
    /// In one word, as it is written.
    pub fn word(self) -> &'static str {
        match self {
            HandoffState::Pending => "pending",
            HandoffState::Ready => "ready",
            HandoffState::Failed => "failed",
            HandoffState::Skipped => "skipped",
        }
    }
}

/// What the store remembers of a handoff: one atomically replaced file. Commits are in hex, times
/// in seconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandoffRecord {
    pub id: u64,
    /// Whose work it is; it may have been deleted since. `None` of what was imported.
    pub fork: Option<ForkName>,
    /// The branch that its HEAD was on.
    pub branch: Option<String>,
    /// Who is to apply it: `fork:NAME` or `branch:NAME`.
    pub to: Option<String>,
    pub state: HandoffState,
    /// Why it failed, or was skipped.
    pub reason: Option<String>,
    /// What the commits come after; `None`: nothing, or it is not known.
    pub base_commit: Option<String>,
    pub head_commit: Option<String>,
    /// Whether the fork had changes that were not committed, which are no part of it.
    pub uncommitted: bool,
    /// How many patches there are, one a commit.
    pub commits: u64,
    /// How many commits are left out because they have several parents.
    pub merges: u64,
    pub mailbox_bytes: u64,
    /// Of the mailbox, in hex.
    pub sha256: Option<String>,
    pub created_secs: i64,
    /// When it came to be `ready`, `failed` or `skipped`.
    pub finished_secs: Option<i64>,
    pub applied_secs: Option<i64>,
    /// What it was applied to, and the commit that came of it.
    pub applied_to: Option<String>,
    pub applied_head: Option<String>,
    /// The commit that it was applied on, and the branch: what tells whether that was taken back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_from: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_on: Option<String>,
    /// The file that it came from, of what was imported.
    pub imported_from: Option<String>,
    /// The mails of what was imported.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mails: Vec<MailRecord>,
}

/// One patch of an imported mailbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MailRecord {
    pub summary: String,
    pub author_name: String,
    pub author_email: String,
}

/// What is handed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandoffSpec {
    pub fork: ForkName,
    pub branch: Option<String>,
    pub to: Option<String>,
    pub base: Option<ObjectId>,
    /// `None`: there is no commit at all.
    pub head: Option<ObjectId>,
    pub uncommitted: bool,
}

/// What came of making a mailbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MailboxOutcome {
    Mailbox {
        figures: MailboxFigures,
        commits: u64,
        merges: u64,
    },
    /// There is no commit that a patch could tell of.
    Nothing { merges: u64 },
}

impl HandoffRecord {
    /// A new one, which has no number yet.
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

    /// Puts a pending one on the shelf; its commits are kept from `git gc` from here on.
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

    /// Puts the mailbox that `input` gives on the shelf, ready.
    ///
    /// # Errors
    /// [`GitError::NotAMailbox`](tine_git::GitError::NotAMailbox)
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

    /// Reads a handoff.
    pub fn load(store: &Store, id: u64) -> Result<HandoffRecord, ChangeError> {
        store
            .read_document(RecordKind::Handoffs, id)?
            .ok_or(ChangeError::NoSuchHandoff(id))
    }

    /// Has it name a branch (short names) that was renamed; whether it named it.
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

    /// Replaces the record.
    pub fn save(&self, store: &Store) -> Result<(), ChangeError> {
        Ok(store.write_document(RecordKind::Handoffs, self.id, self)?)
    }

    /// Removes record and mailbox, and lets go of the commits.
    pub fn remove(&self, store: &Store, repository: &Repository) -> Result<(), ChangeError> {
        store.remove_document(RecordKind::Handoffs, self.id, Some(MAILBOX))?;
        Ok(release(repository, self.id)?)
    }

    /// Whether it is of these commits of that fork.
    pub fn is_of(&self, spec: &HandoffSpec) -> bool {
        let is = |hex: &Option<String>, id: Option<ObjectId>| *hex == id.map(|id| id.to_string());
        self.fork.as_ref() == Some(&spec.fork)
            && is(&self.base_commit, spec.base)
            && is(&self.head_commit, spec.head)
    }

    /// The commits; `None` where there are none, or they are not known.
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

    /// Makes the mailbox, in the place of any that is there. The record is left as it is.
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

    /// It is to be made, whatever became of it before.
    pub fn begin_again(&mut self) {
        self.state = HandoffState::Pending;
        self.reason = None;
        self.finished_secs = None;
    }

    /// What came of making it; `Err` is why it failed.
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

    /// Where the mailbox is, or would be.
    pub fn mailbox(&self, store: &Store) -> PathBuf {
        mailbox_path(store, self.id)
    }

    /// Whether `git am --keep` is what gives the commits' own subjects back: of what comes from
    /// elsewhere, which has `[PATCH]` before each, it is not.
    pub fn keeps_subjects(&self) -> bool {
        self.imported_from.is_none()
    }

    /// Whether there is a mailbox of the right length where there must be one.
    fn is_in_place(&self, store: &Store) -> bool {
        self.state != HandoffState::Ready
            || fs::metadata(self.mailbox(store)).is_ok_and(|meta| meta.len() == self.mailbox_bytes)
    }

    /// Whether a ref keeps its commits, if it has any.
    pub(super) fn is_kept(&self, repository: &Repository) -> Result<bool, ChangeError> {
        Ok(self.head_commit.is_none() || repository.kept_as(REFS, &self.id.to_string())?.is_some())
    }

    /// Has refs keep its commits.
    pub(super) fn keep(&self, repository: &Repository) -> Result<(), ChangeError> {
        match self.range()? {
            Some(range) => keep_commits(repository, self.id, range.base, Some(range.head)),
            None => Ok(()),
        }
    }

    /// Sees whether there is a mailbox of the right length, where there must be one.
    pub(super) fn look(&self, store: &Store) -> Result<(), ChangeError> {
        match self.is_in_place(store) {
            true => Ok(()),
            false => Err(ChangeError::DamagedHandoff {
                id: self.id,
                reason: format!(
                    "{} is gone, or has another length",
                    self.mailbox(store).display()
                ),
            }),
        }
    }

    /// Reads all of the mailbox and sees that it is what it was when it was made.
    ///
    /// # Errors
    /// [`ChangeError::DamagedHandoff`]
    pub fn verify(&self, store: &Store) -> Result<(), ChangeError> {
        let found = mailbox_figures(&self.mailbox(store))?;
        match found.bytes == self.mailbox_bytes && Some(&found.sha256) == self.sha256.as_ref() {
            true => Ok(()),
            false => Err(ChangeError::DamagedHandoff {
                id: self.id,
                reason: format!("{} is not as it was made", self.mailbox(store).display()),
            }),
        }
    }
}

/// Where the mailbox of the handoff `id` is, or would be.
pub fn mailbox_path(store: &Store, id: u64) -> PathBuf {
    store.attachment(RecordKind::Handoffs, id, MAILBOX)
}

/// Puts right what a process that died has left; the handoffs that are to be made. Nobody else may
/// be at work on them.
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

/// Keeps what a handoff needs: its commits, and what they come after.
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
    // A fork that was rebased stands on something else.
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
