//! Looking whether a store is whole, with what stands above its forks: reviews, handoffs and
//! sessions.
//!
//! [`Store::check`] looks at forks and layers; here are the records whose types it does not know,
//! and what they need.

use std::cell::RefCell;
use std::io;

use super::ChangeError;
use super::checkout::MoveRecord;
use super::cut_back;
use super::going_back::GoneBack;
use super::handoff::{self, HandoffRecord, HandoffState};
use super::recovery;
use super::review::{self, ReviewRecord, ReviewState};
use super::round::{self, RoundRecord};
use tine_git::Repository;
use tine_git::recovery::RECOVER;
use tine_workspace::store::{
    Above, CheckOptions, CheckReport, Depth, FSCK, Finding, FindingKind, RecordKind,
};
use tine_workspace::{ForkRecord, Store, StoreError};

/// Looks at all that the store has, and puts right what can be, if that is asked for.
pub fn check(
    store: &Store,
    repository: &Repository,
    options: CheckOptions,
) -> Result<CheckReport, ChangeError> {
    let (repair, plan) = (
        options.repair && !options.dry_run,
        options.repair && options.dry_run,
    );
    let noted = RefCell::new(Vec::new());
    let before_cut = |store: &Store, record: &ForkRecord| {
        let notes = cut_back::before_cut(store, repository, record)
            .map_err(|error| note_failed(store, error))?;
        noted.borrow_mut().push((record.name.clone(), notes));
        Ok(())
    };
    let above = Above {
        reads: &reads,
        before_cut: &before_cut,
    };
    let mut report = store.check(above, options)?;
    for (fork, notes) in noted.take() {
        // What stays only asks once too often.
        if let Err(error) = cut_back::after_cut(store, repository, &fork, notes) {
            log::warn!("{fork}: {error}");
        }
    }
    let (reviews, _) = store.documents::<ReviewRecord>(RecordKind::Reviews)?;
    for review in reviews
        .iter()
        .filter(|review| review.state == ReviewState::Open)
    {
        if !review.is_kept(repository)? {
            let finding = missing_ref("reviews", review.id, "the sides of the review");
            let done = repair.then(|| review.save(store, repository));
            report
                .findings
                .push(finding.planned(plan, "set it anew").told(done, "set anew"));
        }
    }
    let (handoffs, _) = store.documents::<HandoffRecord>(RecordKind::Handoffs)?;
    for mut handoff in handoffs {
        if !handoff.is_kept(repository)? {
            let finding = missing_ref("handoffs", handoff.id, "the commits of the handoff");
            let done = repair.then(|| handoff.keep(repository));
            report
                .findings
                .push(finding.planned(plan, "set it anew").told(done, "set anew"));
        }
        if handoff.state == HandoffState::Ready
            && let Err(error) = match options.depth {
                Depth::Places => handoff.look(store),
                Depth::Bytes => handoff.verify(store),
            }
        {
            let can_be_made = handoff.head_commit.is_some();
            let hint = match can_be_made {
                true => {
                    "`tine check --repair` makes the patches again, of the same commits".to_owned()
                }
                false => format!(
                    "import the mailbox again (`tine handoff import FILE`) and let go of this one (`tine handoff delete {}`)",
                    handoff.id
                ),
            };
            let finding = Finding {
                kind: FindingKind::MailboxDamaged,
                fork: handoff.fork.as_ref().map(ToString::to_string),
                what: handoff.mailbox(store).display().to_string(),
                detail: error.to_string(),
                hint,
                repaired: None,
                planned: None,
            };
            let done = (repair && can_be_made).then(|| made_again(&mut handoff, store, repository));
            let finding = finding.planned(plan && can_be_made, "make the patches again");
            report.findings.push(finding.told(done, "made again"));
        }
    }
    report.findings.extend(lost_objects(repository)?);
    Ok(report)
}

/// Objects that refs of reviews, handoffs, rounds and entries of `tine recover` keep, or that such
/// entries need, and that are not in the repository.
fn lost_objects(repository: &Repository) -> Result<Vec<Finding>, ChangeError> {
    let finding = |kind, what: String, detail: String, hint: String| Finding {
        kind,
        fork: None,
        what,
        detail,
        hint,
        repaired: None,
        planned: None,
    };
    let mut findings = Vec::new();
    for group in [review::REFS, handoff::REFS, round::KEPT, RECOVER] {
        for (label, id) in repository.kept(group)? {
            if !repository.has_object(id) {
                findings.push(finding(
                    FindingKind::ObjectMissing,
                    format!("refs/tine/{group}/{label}"),
                    format!("the object {id}, which it keeps, is not in the repository"),
                    FSCK.to_owned(),
                ));
            }
        }
    }
    let (entries, damaged) = recovery::list(repository)?;
    let mut unreadable = damaged;
    for found in &entries {
        match recovery::missing(repository, found, &entries) {
            Ok(None) => {}
            Ok(Some(id)) => findings.push(finding(
                FindingKind::ObjectMissing,
                recovery::ref_name(found.id),
                format!(
                    "the object {id}, without which `tine recover {}` does not bring all of it back, is not in the repository",
                    found.id
                ),
                FSCK.to_owned(),
            )),
            Err(error) => unreadable.push((found.id, error)),
        }
    }
    for (id, error) in unreadable {
        let what = recovery::ref_name(id);
        if !findings.iter().any(|known| known.what == what) {
            findings.push(finding(
                FindingKind::RecordDamaged,
                what,
                format!("the entry {id} of `tine recover` cannot be read: {error}"),
                format!("`tine recover purge {id}` lets go of it; {FSCK}"),
            ));
        }
    }
    Ok(findings)
}

/// Why the files of a fork stay where they are.
fn note_failed(store: &Store, error: ChangeError) -> StoreError {
    match error {
        ChangeError::Store(error) => error,
        ChangeError::Git(error) => error.into(),
        other => StoreError::io("note what goes back in", store.dir())(io::Error::other(other)),
    }
}

/// Whether a record is what it must be.
fn reads(store: &Store, shelf: RecordKind, id: u64) -> Result<(), StoreError> {
    match shelf {
        RecordKind::Reviews => store.read_document::<ReviewRecord>(shelf, id).map(drop),
        RecordKind::Handoffs => store.read_document::<HandoffRecord>(shelf, id).map(drop),
        RecordKind::Rounds => store.read_document::<RoundRecord>(shelf, id).map(drop),
        RecordKind::GoneBack => store.read_document::<GoneBack>(shelf, id).map(drop),
        RecordKind::Moves => store.read_document::<MoveRecord>(shelf, id).map(drop),
        // What is in them is known to those who keep them, above this layer.
        RecordKind::Buffers | RecordKind::UnsavedReads | RecordKind::OpenFiles => store
            .read_document::<serde::de::IgnoredAny>(shelf, id)
            .map(drop),
    }
}

fn missing_ref(group: &str, id: u64, what: &str) -> Finding {
    Finding {
        kind: FindingKind::RefMissing,
        fork: None,
        what: format!("refs/tine/+{group}/{id}"),
        detail: format!("it is gone: `git gc` may remove {what} {id}"),
        hint: "`tine check --repair` sets it anew, where the repository still has the commits"
            .to_owned(),
        repaired: None,
        planned: None,
    }
}

/// The patches are the same whenever they are made of the same commits; the record learns their
/// checksum.
fn made_again(
    handoff: &mut HandoffRecord,
    store: &Store,
    repository: &Repository,
) -> Result<(), ChangeError> {
    let made = handoff.make(store, repository)?;
    // That took a while, and somebody may have applied it.
    *handoff = HandoffRecord::load(store, handoff.id)?;
    handoff.finish(Ok(made));
    handoff.save(store)
}
