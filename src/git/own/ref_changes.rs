//! Changes of several refs of the main repository at once.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::time::Duration;

use gix::actor::Signature;
use gix::lock::acquire::Fail;
use gix::refs::file::Store;
use gix::refs::file::transaction::PackedRefs;
use gix::refs::transaction::{Change, PreviousValue, RefEdit};
use gix::refs::{FullName, Target};
use gix::{ObjectId, date};

use crate::refs::{library_io_error, lock_of, ref_locked, sync_if_there};
use crate::{GitError, Repository};
use tine_sys::parallel::disk_work;
use tine_sys::pause;

/// Maximum wait for a locked ref.
const REF_LOCK_TIMEOUT: Duration = Duration::from_millis(2000);
const PACKED_REFS_LOCK_TIMEOUT: Duration = Duration::from_millis(2000);

/// Number of attempts to lock refs whose directory goes missing.
const PREPARE_ATTEMPTS: usize = 8;

/// Number of new values from which they are written to `packed-refs`.
///
/// Each loose ref is a file that is synced.
const PACK_FROM: usize = 100;

/// Prefix of labels that keep a value between two names.
const BETWEEN: &str = "git-between/";

impl Repository {
    /// Changes labels below `refs/tine/<fork>/`. `None` deletes one.
    ///
    /// `kept` are the present values. A crash leaves each old or new value kept.
    pub(super) fn change_labels(
        &self,
        fork: &str,
        kept: &BTreeMap<String, Option<ObjectId>>,
        changes: &BTreeMap<String, Option<ObjectId>>,
    ) -> Result<(), GitError> {
        let mut changes = changes.clone();
        // Values that an interrupted change kept.
        let left = kept.keys().filter(|label| label.starts_with(BETWEEN));
        changes.extend(left.map(|label| (label.clone(), None)));
        let is_set = |label: &str| changes.get(label).is_some_and(Option::is_some);
        // A directory must become free before a file has its name, and the reverse.
        let in_the_way = |label: &&String| {
            let above = |label: &str| {
                let mut slashes = label.match_indices('/');
                slashes.any(|(slash, _)| label.get(..slash).is_some_and(is_set))
            };
            let prefix = format!("{label}/");
            let mut below = changes.range(prefix.clone()..);
            above(label)
                || below
                    .by_ref()
                    .take_while(|(other, _)| other.starts_with(&prefix))
                    .any(|(_, value)| value.is_some())
        };
        let conflicting: Vec<String> = kept
            .keys()
            .filter(|label| changes.get(*label) == Some(&None))
            .filter(in_the_way)
            .cloned()
            .collect();
        if !conflicting.is_empty() {
            let mut between = BTreeMap::new();
            for (number, label) in conflicting.iter().enumerate() {
                if let Some(Some(id)) = kept.get(label) {
                    between.insert(format!("{BETWEEN}{number}"), Some(*id));
                }
            }
            self.apply_labels(fork, &between)?;
            pause::at("between-names");
            let gone = conflicting.iter().map(|label| (label.clone(), None));
            self.apply_labels(fork, &gone.collect())?;
            for label in &conflicting {
                changes.remove(label);
            }
            changes.extend(between.into_keys().map(|label| (label, None)));
        }
        self.apply_labels(fork, &changes)
    }

    fn apply_labels(
        &self,
        fork: &str,
        changes: &BTreeMap<String, Option<ObjectId>>,
    ) -> Result<(), GitError> {
        let mut edits = Vec::new();
        for (label, value) in changes {
            let (full_name, path) = self.keeping_ref(fork, label)?;
            let edit = match value {
                Some(id) => RefEdit::update(full_name, *id, PreviousValue::Any, ""),
                None => RefEdit::delete(full_name, PreviousValue::Any),
            };
            edits.push((edit, path));
        }
        self.apply_ref_edits(&self.keeping_store(), edits, None)
    }

    /// Applies edits, each with its loose file, in one transaction.
    ///
    /// New values are synced before they are moved into place, and directories after. Many are written
    /// to `packed-refs`, which the library moves into place before it can be synced.
    pub(crate) fn apply_ref_edits(
        &self,
        store: &Store,
        edits: Vec<(RefEdit, PathBuf)>,
        signature: Option<&Signature>,
    ) -> Result<(), GitError> {
        if edits.is_empty() {
            return Ok(());
        }
        let locks: Vec<PathBuf> = edits.iter().map(|(_, path)| lock_of(path)).collect();
        let _locking = self.note_locking(&locks);
        let paths: Vec<PathBuf> = edits.iter().map(|(_, path)| path.clone()).collect();
        let updated = edits
            .iter()
            .filter(|(edit, _)| matches!(edit.change, Change::Update { .. }));
        let updated: Vec<PathBuf> = updated.map(|(_, path)| lock_of(path)).collect();
        let new_ids: Vec<ObjectId> = edits
            .iter()
            .filter_map(|(edit, _)| match &edit.change {
                Change::Update { new, .. } => new.try_id().map(ToOwned::to_owned),
                Change::Delete { .. } => None,
            })
            .collect();
        let failed = |error: &gix::Error| {
            if error.is_retryable() {
                let held = paths
                    .iter()
                    .chain([&self.common_dir().join("packed-refs")])
                    .find_map(|path| ref_locked(self.common_dir(), path));
                if let Some(held) = held {
                    return held;
                }
            }
            if error.downcast_any_ref::<io::Error>().is_none() {
                let name = paths.first().map(|path| path.display().to_string());
                log::debug!("{error}");
                return GitError::RefMoved {
                    name: name.unwrap_or_default(),
                };
            }
            let path = paths.first().cloned().unwrap_or_default();
            library_io_error("change the ref", path, error)
        };
        let mut time = date::parse::TimeBuf::default();
        let is_packed = new_ids.len() >= PACK_FROM;
        let packed_refs = || {
            if !is_packed {
                return PackedRefs::DeletionsOnly;
            }
            let mut objects = self.local().objects;
            objects.ignore_replacements = true;
            PackedRefs::DeletionsAndNonSymbolicUpdatesRemoveLooseSourceReference(Box::new(objects))
        };
        let prepare = || {
            store.transaction().packed_refs(packed_refs()).prepare(
                edits.iter().map(|(edit, _)| edit.clone()),
                Fail::AfterDurationWithBackoff(REF_LOCK_TIMEOUT),
                Fail::AfterDurationWithBackoff(PACKED_REFS_LOCK_TIMEOUT),
            )
        };
        let mut prepared = prepare();
        for _ in 1..PREPARE_ATTEMPTS {
            match &prepared {
                // git removes directories that become empty when it packs refs.
                Err(error) if is_missing(error) => prepared = prepare(),
                _ => break,
            }
        }
        let prepared = prepared.map_err(|error| failed(&error))?;
        if !is_packed {
            disk_work(&updated, |lock| sync_if_there(lock))?;
        }
        pause::at("refs-locked");
        prepared
            .commit(signature.map(|signature| signature.to_ref(&mut time)))
            .map_err(|error| failed(&error))?;
        let mut dirs: Vec<PathBuf> = paths
            .iter()
            .filter_map(|path| path.parent().map(ToOwned::to_owned))
            .collect();
        // Deletions may have changed the packed refs, too.
        if is_packed || new_ids.len() < paths.len() {
            sync_if_there(&self.common_dir().join("packed-refs"))?;
            dirs.push(self.common_dir().to_owned());
        }
        dirs.sort();
        dirs.dedup();
        disk_work(&dirs, |dir| sync_if_there(dir))?;
        for id in new_ids {
            self.confirm_named(id);
        }
        Ok(())
    }

    /// Moves the branch (short name) with the log line `by` and `message`.
    ///
    /// `expected` is its present value, if it exists. The ref `record`, with its loose file, gets
    /// the new value after the branch.
    pub(super) fn move_with_log(
        &self,
        (name, record): (&str, (FullName, PathBuf)),
        expected: Option<ObjectId>,
        commit_id: ObjectId,
        (by, message): (Option<Signature>, String),
    ) -> Result<(), GitError> {
        let full_name = crate::refs::branch_ref(name)?;
        let expected = match expected {
            Some(id) => PreviousValue::MustExistAndMatch(Target::Object(id)),
            None => PreviousValue::MustNotExist,
        };
        let edit = RefEdit::update(full_name, commit_id, expected, message);
        let path = self.common_dir().join("refs/heads").join(name);
        let signature = by.unwrap_or_else(|| self.reflog_signature());
        let (record, record_path) = record;
        let record = RefEdit::update(record, commit_id, PreviousValue::Any, "");
        let edits = vec![(edit, path), (record, record_path)];
        self.apply_ref_edits(&self.ref_store(None), edits, Some(&signature))
    }
}

fn is_missing(error: &gix::Error) -> bool {
    let cause = error.downcast_any_ref::<io::Error>();
    cause.is_some_and(|cause| cause.kind() == ErrorKind::NotFound)
}
