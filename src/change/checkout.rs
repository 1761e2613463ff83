//! Moving a checkout that is not a fork's along with its branch, with a record by which the next
//! daemon ends what a killed one had begun.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::ChangeError;
use tine_git::{CheckoutMove, GitError, ObjectId, Repository};
use tine_workspace::Store;
use tine_workspace::store::RecordKind;

/// A move that was begun: `<store>/moves/<n>.json`, until it is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveRecord {
    pub id: u64,
    pub dir: PathBuf,
    /// Short name.
    pub branch: String,
    /// In hex, as `to`.
    pub from: String,
    pub to: String,
    /// What the reflogs say.
    pub action: String,
}

/// A checkout whose index is locked, so that it can follow its branch. Its record is written before
/// the lock is taken: a daemon that is killed leaves no lock of which nobody knows.
pub struct PreparedMove<'a> {
    store: &'a Store,
    record: MoveRecord,
    /// Until it is over; the lock goes before the record.
    moving: Option<CheckoutMove<'a>>,
    /// The record stays then, for the next move there or the next daemon.
    is_half_done: bool,
}

/// Locks a checkout and finds out whether it can follow. The caller holds the leases of the branch
/// and of the checkout, also when the move is dropped or gone.
///
/// # Errors
/// As [`Repository::prepare_checkout_move`].
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
    /// Brings the checkout along, all or nothing.
    ///
    /// # Errors
    /// As [`CheckoutMove::go`].
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
        // A record that stays leads to nothing worse than a second look at the checkout.
        if let Err(error) = self
            .store
            .remove_document(RecordKind::Moves, self.record.id, None)
        {
            log::warn!("{error}");
        }
    }
}

/// Ends moves that a process which died had begun: of the checkout `dir`, of which the caller holds
/// the lease, or of all, where no other request runs yet. What fails is logged, and tried again
/// before the next move there.
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
