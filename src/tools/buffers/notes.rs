//! Notes on files and buffers that outlive a daemon: small records in the store, found by a key.

use std::collections::BTreeMap;

use serde::Serialize;
use serde::de::DeserializeOwned;

use tine_store::{ForkName, RecordKind, Store, StoreError};

/// One record, `<store>/<shelf>/<id>.json`.
pub(super) trait Note: Serialize + DeserializeOwned {
    const SHELF: RecordKind;
    type Key: Ord;

    fn id(&self) -> u64;
    fn key(&self) -> Self::Key;
    /// Fork of the file. None is the main checkout.
    fn fork(&self) -> Option<&ForkName>;
}

/// All notes of one kind.
pub(super) struct Notes<N: Note>(BTreeMap<N::Key, N>);

impl<N: Note> Default for Notes<N> {
    fn default() -> Notes<N> {
        Notes(BTreeMap::new())
    }
}

impl<N: Note> Notes<N> {
    /// Loads earlier daemons' notes. Returns the errors of damaged records.
    pub(super) fn load(&mut self, store: &Store) -> Result<Vec<StoreError>, StoreError> {
        let (notes, damaged) = store.documents::<N>(N::SHELF)?;
        self.0
            .extend(notes.into_iter().map(|note| (note.key(), note)));
        Ok(damaged)
    }

    pub(super) fn get(&self, key: &N::Key) -> Option<&N> {
        self.0.get(key)
    }

    /// Returns whether the fork, or the main checkout, has a note.
    pub(super) fn is_in(&self, fork: Option<&ForkName>) -> bool {
        self.0.values().any(|note| note.fork() == fork)
    }

    /// Adds the note that `make` builds for its id.
    ///
    /// It replaces a note with the same key. It is in the store when this returns.
    pub(super) fn add(
        &mut self,
        store: &Store,
        make: impl FnOnce(u64) -> N,
    ) -> Result<(), StoreError> {
        let note = store.add_document::<_, StoreError>(N::SHELF, |id| Ok(make(id)))?;
        if let Some(old) = self.0.insert(note.key(), note) {
            drop_record(store, &old);
        }
        Ok(())
    }

    /// Removes the note with that key, if there is one.
    pub(super) fn forget(&mut self, store: &Store, key: &N::Key) {
        if let Some(note) = self.0.remove(key) {
            drop_record(store, &note);
        }
    }

    /// Removes the notes of a deleted fork.
    pub(super) fn forget_fork(&mut self, store: &Store, fork: &ForkName) {
        self.forget_all(store, |note| note.fork() == Some(fork));
    }

    /// Removes the notes for which `is_over` returns true.
    pub(super) fn forget_all(&mut self, store: &Store, is_over: impl Fn(&N) -> bool) {
        self.0.retain(|_, note| {
            let goes = is_over(note);
            if goes {
                drop_record(store, note);
            }
            !goes
        });
    }
}

/// Removes the record of a note.
///
/// If that fails, an agent reads a file once more than necessary.
fn drop_record<N: Note>(store: &Store, note: &N) {
    if let Err(error) = store.remove_document(N::SHELF, note.id(), None) {
        log::warn!("{error}");
    }
}
