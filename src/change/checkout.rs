//! Moving a checkout that is not a fork's along with its branch, with a record by which the next daemon ends what a killed one had begun.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::ChangeError;
use crate::git::{CheckoutMove, GitError, ObjectId, Repository};
use crate::workspace::Store;
use crate::workspace::store::Shelf;

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

/// Brings a checkout along, all or nothing. The caller holds the leases of the branch and of the checkout.
pub fn advance(store: &Store, moving: CheckoutMove<'_>, action: &str) -> Result<(), ChangeError> {
    let (from, to) = moving.commits();
    let record = store.add_document::<_, ChangeError>(Shelf::Moves, |id| {
        Ok(MoveRecord {
            id,
            dir: moving.dir().to_owned(),
            branch: moving.branch().to_owned(),
            from: from.to_string(),
            to: to.to_string(),
            action: action.to_owned(),
        })
    })?;
    let moved = moving.go(action);
    // One that stays leads to nothing worse than looking at it again.
    if let Err(error) = store.remove_document(Shelf::Moves, record.id, None) {
        log::warn!("{error}");
    }
    Ok(moved?)
}

/// Ends moves that a process which died had begun: of the checkout `dir`, of which the caller holds the lease, or of all,
/// where no other request runs yet. What fails is logged, and tried again before the next move there.
pub fn finish(store: &Store, repository: &Repository, dir: Option<&Path>) {
    let records = match store.documents::<MoveRecord>(Shelf::Moves) {
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
            Ok(store.remove_document(Shelf::Moves, record.id, None)?)
        });
        if let Err(error) = finished {
            log::error!("{dir} was about to follow {branch}, and is half there: {error}");
        }
    }
}

fn finish_one(repository: &Repository, record: &MoveRecord) -> Result<bool, ChangeError> {
    let id = |hex: &str| ObjectId::from_hex(hex.as_bytes()).map_err(GitError::library("read an id"));
    let commits = (id(&record.from)?, id(&record.to)?);
    Ok(repository.finish_checkout_move(&record.dir, &record.branch, commits, &record.action)?)
}
