//! Reviews in the store, and the refs that keep their objects.

use std::collections::{BTreeMap, BTreeSet};

use super::{ReviewRecord, ReviewState, VersionRecord, damaged, parse_id};
use crate::ChangeError;
use crate::sequence::NeededKind;
use tine_git::{CommitSpec, Identity, ObjectId, Repository, TreeChange, TreeEntryKind};
use tine_path::{PathError, RepoPath};
use tine_store::{RecordKind, Store};

/// Group under `refs/tine/`; not a valid fork name.
pub(crate) const REFS: &str = "+reviews";

impl ReviewRecord {
    /// Adds this to the store as a new review.
    ///
    /// Returns its number.
    ///
    /// # Errors
    /// [`ChangeError::Store`] if the record cannot be written, [`ChangeError::Git`] if its objects
    /// cannot be kept.
    pub fn add(mut self, store: &Store, repository: &Repository) -> Result<u64, ChangeError> {
        let added = store.add_document(RecordKind::Reviews, |id| {
            self.id = id;
            self.keep_contents(repository, None)?;
            Ok::<_, ChangeError>(self)
        })?;
        Ok(added.id)
    }

    /// Returns whether a ref keeps the objects of the review.
    pub(crate) fn is_kept(&self, repository: &Repository) -> Result<bool, ChangeError> {
        Ok(self.kept_commit(repository)?.is_some())
    }

    /// Returns the commit that keeps the objects of the review.
    ///
    /// `None` if no ref keeps them.
    ///
    /// # Errors
    /// [`ChangeError::Git`] if the ref cannot be read.
    pub fn kept_commit(&self, repository: &Repository) -> Result<Option<ObjectId>, ChangeError> {
        Ok(repository.kept_as(REFS, &self.id.to_string())?)
    }

    /// Writes the record, and keeps or releases its objects.
    ///
    /// The objects of the previous record are kept as well, since that record stays if the process
    /// dies in between.
    ///
    /// # Errors
    /// [`ChangeError::Store`] if the record cannot be written, [`ChangeError::Git`] if its objects
    /// cannot be kept.
    pub fn save(&self, store: &Store, repository: &Repository) -> Result<(), ChangeError> {
        if self.state != ReviewState::Open {
            store.write_document(RecordKind::Reviews, self.id, self)?;
            return Ok(repository.release(REFS, &self.id.to_string())?);
        }
        let before: Option<ReviewRecord> = store.read_document(RecordKind::Reviews, self.id)?;
        self.keep_contents(repository, before.as_ref())?;
        store.write_document(RecordKind::Reviews, self.id, self)?;
        Ok(())
    }

    /// Keeps the objects of this record and `before` from `git gc`.
    ///
    /// One commit keeps them all.
    fn keep_contents(
        &self,
        repository: &Repository,
        before: Option<&ReviewRecord>,
    ) -> Result<(), ChangeError> {
        let records = || before.into_iter().chain([self]);
        let works = || records().filter_map(|record| record.work.as_deref());
        let files = records()
            .flat_map(ReviewRecord::all_versions)
            .filter(|version| version.kind != TreeEntryKind::Submodule)
            .map(|version| (NeededKind::Blob, &version.id));
        let sides = records()
            .flat_map(|record| [&record.ours_commit, &record.theirs_commit])
            .flatten()
            .map(|hex| (NeededKind::Commit, hex));
        let views = records()
            .filter_map(|record| record.view.as_ref())
            .chain(works().filter_map(|work| work.view.as_ref()))
            .map(|hex| (NeededKind::Tree, hex));
        let sequences = works().flat_map(|work| work.sequence.needs());
        let mut commit_ids = BTreeSet::new();
        let mut kept = BTreeMap::new();
        for (need, hex) in files.chain(sides).chain(views).chain(sequences) {
            let id = parse_id(hex)?;
            let kind = match need {
                NeededKind::Commit => {
                    commit_ids.insert(id);
                    continue;
                }
                NeededKind::Tree => TreeEntryKind::Directory,
                NeededKind::Blob => TreeEntryKind::File,
            };
            let path =
                RepoPath::parse(hex.as_bytes()).map_err(|error: PathError| damaged(&error))?;
            let new = Some((kind, id));
            kept.insert(id, TreeChange { path, new });
        }
        let edits: Vec<TreeChange> = kept.into_values().collect();
        repository.sync_blobs(edits.iter().filter_map(|edit| edit.new.map(|(_, id)| id)))?;
        let tree_id = repository.edit_tree(repository.empty_tree_id(), &edits)?;
        let commit_id = repository.write_commit(&CommitSpec {
            tree_id,
            parent_ids: commit_ids.into_iter().collect(),
            message: format!("tine: what review {} needs\n", self.id).into(),
            author: Some(Identity::tine()),
            committer: Some(Identity::tine()),
        })?;
        Ok(repository.keep(REFS, &self.id.to_string(), commit_id)?)
    }

    /// Returns all entries that the record names.
    fn all_versions(&self) -> impl Iterator<Item = &VersionRecord> {
        let resolved = self
            .conflicts
            .iter()
            .filter_map(|conflict| conflict.resolution.as_ref())
            .flat_map(|resolution| &resolution.versions);
        let versions = self
            .conflicts
            .iter()
            .flat_map(|conflict| [&conflict.base, &conflict.ours, &conflict.theirs])
            .flatten();
        let amended = self
            .amendments
            .iter()
            .filter_map(|amendment| amendment.new.as_ref());
        versions.chain(resolved).chain(amended)
    }

    /// Reads the review with a number.
    ///
    /// # Errors
    /// [`ChangeError::NoSuchReview`], or [`ChangeError::Store`] if the record is damaged.
    pub fn load(store: &Store, id: u64) -> Result<ReviewRecord, ChangeError> {
        store
            .read_document(RecordKind::Reviews, id)?
            .ok_or(ChangeError::NoSuchReview(id))
    }
}
