//! Moves a checkout that is not a fork along with its branch.
//!
//! A record allows the next daemon to finish a move that a killed one began.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::ChangeError;
use tine_git::{CheckoutMove, GitError, ObjectId, Repository};
use tine_store::{RecordKind, Store};

/// Unfinished move, in `<store>/moves/<n>.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveRecord {
    /// Number of the record.
    pub id: u64,
    /// Directory of the checkout.
    pub dir: PathBuf,
    /// Short name of the branch.
    pub branch: String,
    /// Commit before the move, in hex.
    pub from: String,
    /// Commit after the move, in hex.
    pub to: String,
    /// Message for the reflogs.
    pub action: String,
}

/// Checkout with a locked index, ready to follow its branch.
///
/// Its record is written before the lock is taken, so that a killed daemon leaves no unknown lock.
pub struct PreparedMove<'a> {
    store: &'a Store,
    record: MoveRecord,
    /// Move in progress; dropped, with its lock, before the record is removed.
    moving: Option<CheckoutMove<'a>>,
    /// True if the move stopped halfway.
    ///
    /// The record stays then, for the next move of the checkout or the next daemon.
    is_half_done: bool,
}

/// Locks a checkout and decides whether it can follow.
///
/// The caller holds the leases of the branch and of the checkout until the move is done or dropped.
///
/// # Errors
/// The errors of [`Repository::prepare_checkout_move`], and [`ChangeError::Store`] if the record
/// cannot be written.
pub fn prepare<'a>(
    store: &'a Store,
    repository: &'a Repository,
    (dir, branch): (&Path, &str),
    (from, to): (ObjectId, ObjectId),
    action: &str,
) -> Result<PreparedMove<'a>, ChangeError> {
    finish(store, repository, Some(dir));
    let record = store.add_document::<_, ChangeError>(RecordKind::Moves, |id| {
        Ok(MoveRecord {
            id,
            dir: dir.to_owned(),
            branch: branch.to_owned(),
            from: from.to_string(),
            to: to.to_string(),
            action: action.to_owned(),
        })
    })?;
    let mut prepared = PreparedMove {
        store,
        record,
        moving: None,
        is_half_done: false,
    };
    prepared.moving = Some(repository.prepare_checkout_move(dir, branch, from, to)?);
    Ok(prepared)
}

impl PreparedMove<'_> {
    /// Moves the checkout, all or nothing.
    ///
    /// # Errors
    /// The errors of [`CheckoutMove::go`].
    pub fn go(mut self) -> Result<(), ChangeError> {
        match self.moving.take() {
            Some(moving) => {
                let gone = moving.go(&self.record.action);
                self.is_half_done = matches!(gone, Err(GitError::CheckoutHalfMoved { .. }));
                Ok(gone?)
            }
            None => Ok(()),
        }
    }
}

impl Drop for PreparedMove<'_> {
    fn drop(&mut self) {
        self.moving = None;
        if self.is_half_done {
            return;
        }
        // A leftover record only causes another look at the checkout.
        if let Err(error) = self
            .store
            .remove_document(RecordKind::Moves, self.record.id, None)
        {
            log::warn!("{error}");
        }
    }
}

/// Finishes moves that a process began before it died.
///
/// With `dir`, it finishes those of one checkout, whose lease the caller holds. Without it, it
/// finishes all, and no other request may run yet. A failure is logged, and retried before the next
/// move of that checkout.
pub fn finish(store: &Store, repository: &Repository, dir: Option<&Path>) {
    let records = match store.documents::<MoveRecord>(RecordKind::Moves) {
        Ok((records, damaged)) => {
            for error in damaged {
                log::error!("{error}");
            }
            records
        }
        Err(error) => {
            log::error!("{error}");
            return;
        }
    };
    for record in records {
        if dir.is_some_and(|dir| dir != record.dir) {
            continue;
        }
        let (dir, branch) = (record.dir.display(), &record.branch);
        let finished = finish_one(repository, &record).and_then(|is_done| {
            log::info!("{dir} was about to follow {branch}: done is {is_done}");
            Ok(store.remove_document(RecordKind::Moves, record.id, None)?)
        });
        if let Err(error) = finished {
            log::error!("{dir} was about to follow {branch}, and is half there: {error}");
        }
    }
}

fn finish_one(repository: &Repository, record: &MoveRecord) -> Result<bool, ChangeError> {
    let id =
        |hex: &str| ObjectId::from_hex(hex.as_bytes()).map_err(GitError::library("read an id"));
    let commits = (id(&record.from)?, id(&record.to)?);
    Ok(repository.finish_checkout_move(&record.dir, &record.branch, commits, &record.action)?)
}
