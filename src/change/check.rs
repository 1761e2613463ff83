//! Checks a store, including reviews, handoffs and sessions.
//!
//! [`Store::check`] checks forks and layers. This module checks the records whose types are defined
//! in this crate, and the objects that they need.

use std::cell::RefCell;
use std::io;

use super::ChangeError;
use super::checkout::MoveRecord;
use super::cut_back;
use super::handoff::{self, HandoffRecord, HandoffState};
use super::recovery;
use super::revert_guard::RevertRecord;
use super::review::{self, ReviewRecord, ReviewState};
use super::round::{self, RoundRecord};
use tine_git::Repository;
use tine_git::recovery::RECOVER;
use tine_store::{
    CheckCallbacks, CheckOptions, CheckReport, Depth, FSCK, Finding, FindingKind, ForkRecord,
    RecordKind, Store, StoreError,
};

/// Checks the whole store, and repairs what it can if asked to.
///
/// # Errors
/// [`ChangeError::Store`] or [`ChangeError::Git`] if the check itself fails. Damage is a finding,
/// not an error.
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
            .map_err(|error| as_store_error(store, error))?;
        noted.borrow_mut().push((record.name.clone(), notes));
        Ok(())
    };
    let above = CheckCallbacks {
        reads: &check_readable,
        before_cut: &before_cut,
    };
    let mut report = store.check(above, options)?;
    for (fork, notes) in noted.take() {
        // A leftover note only causes one question too many.
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
            report.findings.push(
                finding
                    .planned(plan, "set it anew")
                    .with_result(done, "set anew"),
            );
        }
    }
    let (handoffs, _) = store.documents::<HandoffRecord>(RecordKind::Handoffs)?;
    for mut handoff in handoffs {
        if !handoff.is_kept(repository)? {
            let finding = missing_ref("handoffs", handoff.id, "the commits of the handoff");
            let done = repair.then(|| handoff.keep(repository));
            report.findings.push(
                finding
                    .planned(plan, "set it anew")
                    .with_result(done, "set anew"),
            );
        }
        if handoff.state == HandoffState::Ready
            && let Err(error) = match options.depth {
                Depth::Places => handoff.check_mailbox_size(store),
                Depth::Bytes => handoff.verify(store),
            }
        {
            let can_be_made = handoff.head_commit.is_some();
            let hint = if can_be_made {
                "`tine check --repair` makes the patches again, of the same commits".to_owned()
            } else {
                format!(
                    "import the mailbox again (`tine handoff import FILE`) and let go of this one (`tine handoff delete {}`)",
                    handoff.id
                )
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
            let done =
                (repair && can_be_made).then(|| remake_patches(&mut handoff, store, repository));
            let finding = finding.planned(plan && can_be_made, "make the patches again");
            report
                .findings
                .push(finding.with_result(done, "made again"));
        }
    }
    report.findings.extend(lost_objects(repository)?);
    Ok(report)
}

/// Returns findings for kept or needed objects that are missing.
///
/// Refs of reviews, handoffs, rounds and entries of `tine recover` keep objects. Such entries need
/// further objects.
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

/// Converts the error that kept the files of a fork from repair.
fn as_store_error(store: &Store, error: ChangeError) -> StoreError {
    match error {
        ChangeError::Store(error) => error,
        ChangeError::Git(error) => error.into(),
        other => StoreError::io("note what goes back in", store.dir())(io::Error::other(other)),
    }
}

/// Checks that a record can be read as its type.
fn check_readable(store: &Store, kind: RecordKind, id: u64) -> Result<(), StoreError> {
    match kind {
        RecordKind::Reviews => store.read_document::<ReviewRecord>(kind, id).map(drop),
        RecordKind::Handoffs => store.read_document::<HandoffRecord>(kind, id).map(drop),
        RecordKind::Rounds => store.read_document::<RoundRecord>(kind, id).map(drop),
        RecordKind::Reverts => store.read_document::<RevertRecord>(kind, id).map(drop),
        RecordKind::Moves => store.read_document::<MoveRecord>(kind, id).map(drop),
        // The types of these are defined above this crate.
        RecordKind::Buffers | RecordKind::UnsavedReads | RecordKind::OpenFiles => store
            .read_document::<serde::de::IgnoredAny>(kind, id)
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

/// Makes the patches of a handoff again, and records their checksum.
///
/// The same commits always give the same patches.
fn remake_patches(
    handoff: &mut HandoffRecord,
    store: &Store,
    repository: &Repository,
) -> Result<(), ChangeError> {
    let made = handoff.make(store, repository)?;
    // The handoff may have been applied while the patches were made.
    *handoff = HandoffRecord::load(store, handoff.id)?;
    handoff.finish(Ok(made));
    handoff.save(store)
}
