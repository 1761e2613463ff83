//! Refs under `refs/tine/`, which keep the objects that a fork needs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Instant;
use std::{fs, thread};

use gix::ObjectId;
use gix::refs::FullName;
use gix::refs::file::Store;
use gix::refs::store::WriteReflog;
use gix::refs::transaction::{PreviousValue, RefEdit};

use super::damage::is_broken;
use super::locks::ref_locked;
use super::{PACKED_REFS_INTERVAL, PACKED_REFS_LOCK_TIMEOUT, REF_LOCK_TIMEOUT};
use crate::{GitError, Repository};
use tine_sys::file;

/// Prefix of the refs that keep tine's objects.
pub(super) const KEEPING: &str = "refs/tine/";

/// Prefix of labels for a layer's objects other than base and head.
pub const HELD: &str = "held-";

/// Label of the fork's state that was last created for a remote.
pub const STATE: &str = "state";

/// Returns whether a label belongs to the fork's layers.
///
/// A ref `refs/tine/<fork>/<label>` with such a label is removed with the layers.
pub fn is_for_layers(label: &str) -> bool {
    label == "base" || label == "head" || label.starts_with(HELD)
}

impl Repository {
    /// Points `refs/tine/<fork>/<label>` at `id` (a commit, tree or blob).
    ///
    /// Creates or moves the ref.
    ///
    /// # Errors
    /// [`GitError::RefLocked`], or [`GitError::Io`] if the ref cannot be written.
    pub fn keep(&self, fork: &str, label: &str, id: ObjectId) -> Result<(), GitError> {
        let (full_name, path) = self.keeping_ref(fork, label)?;
        let edit = RefEdit::update(full_name, id, PreviousValue::Any, "");
        self.change_kept(edit, &path)
    }

    /// Returns the object that `refs/tine/<fork>/<label>` keeps, if any.
    ///
    /// A damaged ref keeps nothing.
    ///
    /// # Errors
    /// [`GitError::Library`] if the ref cannot be read.
    pub fn kept_as(&self, fork: &str, label: &str) -> Result<Option<ObjectId>, GitError> {
        let (full_name, path) = self.keeping_ref(fork, label)?;
        let found = self
            .keeping_store()
            .try_find(full_name.as_ref().as_partial_name());
        match found {
            Ok(found) => Ok(found.and_then(|reference| reference.target.try_into_id().ok())),
            Err(_) if is_broken(&path) => Ok(None),
            Err(error) => Err(GitError::library("read a ref of the fork")(error)),
        }
    }

    /// Lists the refs under `refs/tine/<fork>/` by label, with their targets.
    ///
    /// Damaged refs are left out.
    ///
    /// # Errors
    /// Fails if the refs cannot be listed.
    pub fn kept(&self, fork: &str) -> Result<Vec<(String, ObjectId)>, GitError> {
        let labels = self.labels(fork)?.into_iter();
        Ok(labels
            .filter_map(|(label, id)| Some((label, id?)))
            .collect())
    }

    /// Lists the refs under `refs/tine/<fork>/`, including damaged ones.
    ///
    /// A damaged ref has no target. The list is sorted by label.
    ///
    /// # Errors
    /// Fails if the refs cannot be listed.
    pub fn labels(&self, fork: &str) -> Result<Vec<(String, Option<ObjectId>)>, GitError> {
        let prefix = format!("{KEEPING}{fork}/");
        let label = |name: String| {
            name.strip_prefix(&prefix)
                .map(str::to_owned)
                .unwrap_or(name)
        };
        let (mut refs, failure) = self.refs_below(&prefix)?;
        if let Some(failure) = failure {
            let broken = self.broken_below(&prefix)?;
            if broken.is_empty() {
                return Err(failure);
            }
            refs.extend(broken.into_iter().map(|name| (name, None)));
        }
        let mut labels: Vec<_> = refs
            .into_iter()
            .map(|(name, id)| (label(name), id))
            .collect();
        labels.sort();
        Ok(labels)
    }

    /// Returns the fork names that have refs under `refs/tine/`.
    ///
    /// Names that a fork cannot have, and refs that cannot be read, are left out.
    ///
    /// # Errors
    /// [`GitError::Library`] if the ref store cannot be opened.
    pub fn keepers(&self) -> Result<BTreeSet<String>, GitError> {
        let group = |name: &str| Some(name.strip_prefix(KEEPING)?.split_once('/')?.0.to_owned());
        let (refs, _) = self.refs_below(KEEPING)?;
        let groups = refs.into_iter().filter_map(|(name, _)| group(&name));
        Ok(groups.filter(|group| !group.starts_with('+')).collect())
    }

    /// Keeps an object of the fork's layers for the fork's lifetime.
    ///
    /// `id` is a commit or a tree.
    ///
    /// # Errors
    /// Fails as [`Repository::keep`].
    pub fn hold(&self, fork: &str, id: ObjectId) -> Result<(), GitError> {
        self.keep(fork, &self.next_label(fork, HELD)?, id)
    }

    /// Returns the unused label `<prefix><n>` with the next number.
    ///
    /// The number follows the greatest one in use under `refs/tine/<fork>/`.
    ///
    /// # Errors
    /// Fails as [`Repository::labels`].
    pub fn next_label(&self, fork: &str, prefix: &str) -> Result<String, GitError> {
        let labels = self.labels(fork)?;
        let numbers = labels
            .iter()
            .filter_map(|(label, _)| label.strip_prefix(prefix));
        let greatest = numbers
            .filter_map(|number| number.parse::<u64>().ok())
            .max();
        Ok(format!(
            "{prefix}{}",
            greatest.unwrap_or(0).saturating_add(1)
        ))
    }

    /// Removes `refs/tine/<fork>/<label>`, if it exists.
    ///
    /// # Errors
    /// [`GitError::RefLocked`], or [`GitError::Io`] if the ref cannot be removed.
    pub fn release(&self, fork: &str, label: &str) -> Result<(), GitError> {
        let (full_name, path) = self.keeping_ref(fork, label)?;
        self.change_kept(RefEdit::delete(full_name, PreviousValue::Any), &path)
    }

    /// Removes the refs `refs/tine/<fork>/<label>`, in one transaction if possible.
    ///
    /// # Errors
    /// As in [`Repository::release`]. Then some of them may be removed.
    pub fn release_all(&self, fork: &str, labels: &[String]) -> Result<(), GitError> {
        let mut edits = Vec::new();
        for label in labels {
            let (full_name, path) = self.keeping_ref(fork, label)?;
            edits.push((RefEdit::delete(full_name, PreviousValue::Any), path));
        }
        match self.apply_ref_edits(&self.keeping_store(), edits, None) {
            Ok(()) => Ok(()),
            // One of them may be damaged.
            Err(error) => {
                log::debug!("the refs of {fork} are removed one by one: {error}");
                labels
                    .iter()
                    .try_for_each(|label| self.release(fork, label))
            }
        }
    }

    /// Changes a ref under `refs/tine/`, whose loose file is `path`.
    ///
    /// Removes a damaged file first, because it contains no value.
    fn change_kept(&self, edit: RefEdit, path: &Path) -> Result<(), GitError> {
        let store = self.keeping_store();
        if file::check_regular(path).is_err() && !path.is_dir() {
            log::warn!("removing {}, which is no file", path.display());
            fs::remove_file(path).map_err(GitError::io("remove", path))?;
        }
        match self.apply_ref_edit(&store, edit.clone(), path) {
            Err(_) if is_broken(path) => {
                log::warn!("removing the ref {}, which is damaged", path.display());
                fs::remove_file(path).map_err(GitError::io("remove", path))?;
                self.apply_ref_edit(&store, edit, path).map(drop)
            }
            changed => changed.map(drop),
        }
    }

    /// Checks that the refs under `refs/tine/<fork>/` can be removed.
    ///
    /// Neither they nor the packed refs may be locked. Waits for locks as a removal does.
    ///
    /// # Errors
    /// [`GitError::RefLocked`].
    pub fn check_releasable(&self, fork: &str) -> Result<(), GitError> {
        let common_dir = self.common_dir();
        let mut paths = vec![(common_dir.join("packed-refs"), PACKED_REFS_LOCK_TIMEOUT)];
        for (label, _) in self.labels(fork)? {
            paths.push((self.keeping_ref(fork, &label)?.1, REF_LOCK_TIMEOUT));
        }
        let started = Instant::now();
        for (path, timeout) in paths {
            while let Some(locked) = ref_locked(common_dir, &path) {
                if started.elapsed() >= timeout {
                    return Err(locked);
                }
                thread::sleep(PACKED_REFS_INTERVAL);
            }
        }
        Ok(())
    }

    /// Opens the ref store for refs without reflogs.
    pub(crate) fn keeping_store(&self) -> Store {
        let mut store = self.ref_store(None);
        store.write_reflog = WriteReflog::Disable;
        store
    }

    /// Returns name and loose file of `refs/tine/<fork>/<label>`.
    pub(crate) fn keeping_ref(
        &self,
        fork: &str,
        label: &str,
    ) -> Result<(FullName, PathBuf), GitError> {
        let name = format!("{KEEPING}{fork}/{label}");
        let path = self.common_dir().join(&name);
        let full_name =
            FullName::try_from(name).map_err(GitError::library("name a ref for the fork"))?;
        Ok((full_name, path))
    }
}
