//! Consistency check of a store.
//!
//! A check changes nothing, not even what opening a store repairs. A finding in a fork that is
//! being written to is checked once more while nobody writes, so that a change in progress is not
//! taken for damage. Repairs are in [`repair`].

mod aside;
mod contents;
mod cut;
mod finding;
mod layers;
mod records;
mod refs;
mod repair;
mod specials;
mod worktree;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use self::aside::SetAside;
pub(super) use self::aside::layers_of_aside;
pub(super) use self::cut::clean_unfinished;
pub use self::finding::{CheckOptions, CheckReport, Checked, Finding, FindingKind};
use self::finding::{Found, Repair};
use self::records::unreadable;
pub(super) use self::repair::move_to;
use super::places::{Places, is_there};
use super::recover::Inventory;
use super::snapshots::tree_label;
use super::{RecordKind, Store, files};
use crate::StoreError;
use crate::fork::ForkRecord;
use tine_git::{GitError, ObjectId, Repository};
use tine_layer::check::CheckedLayer;
pub use tine_layer::check::Depth;
use tine_workspace::Workspace;
use tine_workspace::carry::generation::GenerationId;

const REPAIRS: &str = "`tine check --repair` ";
/// Maximum number of checks after a repair. Each may find more damage.
const MAX_ROUNDS: usize = 4;

/// Hint for an object that git has lost.
pub const FSCK: &str =
    "`git fsck` tells what else the repository lacks; fetch or copy the object from another clone";

/// Callback that checks a record of a kind by its number.
pub(super) type ReadsDocument<'a> = &'a dyn Fn(&Store, RecordKind, u64) -> Result<(), StoreError>;

/// Callbacks into the layers above the store.
#[derive(Clone, Copy)]
pub struct CheckCallbacks<'a> {
    /// Checks that a record can be read.
    pub reads: ReadsDocument<'a>,
    /// Callback before files of a fork are rolled back.
    ///
    /// An error prevents the rollback.
    pub before_cut: &'a dyn Fn(&Store, &ForkRecord) -> Result<(), StoreError>,
}

/// Check in progress.
struct StoreCheck<'a> {
    store: &'a Store,
    reads: ReadsDocument<'a>,
    depth: Depth,
    /// True if nobody may write to an open layer during its check.
    exclusively: bool,
    checked: Checked,
    found: Vec<Found>,
    layers: BTreeMap<u64, Option<CheckedLayer>>,
    /// Results for the generations checked so far.
    generations: BTreeMap<GenerationId, Result<(), String>>,
}

impl Store {
    /// Checks that everything that records name exists, and nothing unnamed.
    ///
    /// With the option `repair` it repairs what it can. It removes nothing that may be a user's
    /// work, but moves damaged files aside.
    ///
    /// # Errors
    /// An I/O error of listing the store's files. Damage is a finding, not an error.
    pub fn check(
        &self,
        above: CheckCallbacks<'_>,
        options: CheckOptions,
    ) -> Result<CheckReport, StoreError> {
        let reads = above.reads;
        let (mut checked, mut found) = self.check_once(reads, options.depth, false)?;
        if !found.is_empty() {
            let admin = self.admin.lock();
            // Records may have changed since, and files may have been written.
            (checked, found) = self.check_once(reads, options.depth, true)?;
            drop(admin);
        }
        if options.repair {
            if options.dry_run {
                found
                    .iter_mut()
                    .for_each(|one| one.finding.planned = one.repair.plan());
            } else {
                self.repair_all(above, options.depth, &mut found)?;
            }
        }
        let mut findings: Vec<Finding> = found.into_iter().map(|found| found.finding).collect();
        findings.sort_by(|one, other| {
            let key =
                |finding: &Finding| (finding.fork.clone(), finding.kind, finding.what.clone());
            key(one).cmp(&key(other))
        });
        Ok(CheckReport { checked, findings })
    }

    /// Repairs the findings, and those that appear only afterwards.
    fn repair_all(
        &self,
        above: CheckCallbacks<'_>,
        depth: Depth,
        found: &mut Vec<Found>,
    ) -> Result<(), StoreError> {
        self.repair(above, found)?;
        for _ in 0..MAX_ROUNDS {
            if !found.iter().any(|one| one.finding.repaired.is_some()) {
                return Ok(());
            }
            let admin = self.admin.lock();
            let (_, mut more) = self.check_once(above.reads, depth, true)?;
            drop(admin);
            more.retain(
                |one| match found.iter_mut().find(|known| known.is_same_damage(one)) {
                    Some(known) => {
                        if known.finding.repaired.take().is_some() {
                            known.repair = Repair::None;
                        }
                        false
                    }
                    None => true,
                },
            );
            if more.is_empty() {
                return Ok(());
            }
            self.repair(above, &mut more)?;
            found.append(&mut more);
        }
        Ok(())
    }

    fn check_once(
        &self,
        reads: ReadsDocument<'_>,
        depth: Depth,
        exclusively: bool,
    ) -> Result<(Checked, Vec<Found>), StoreError> {
        let mut check = StoreCheck {
            store: self,
            reads,
            depth,
            exclusively,
            checked: Checked::default(),
            found: Vec::new(),
            layers: BTreeMap::new(),
            generations: BTreeMap::new(),
        };
        let inventory = Inventory::of(&self.places)?;
        check.format();
        check.records(&inventory);
        check.layers(&inventory)?;
        for record in &inventory.records {
            check.fork(record);
            check.generations(record);
        }
        check.branches()?;
        check.leaked_refs(&inventory)?;
        check.broken_refs();
        check.documents()?;
        check.specials(&inventory);
        Ok((check.checked, check.found))
    }

    /// Returns the fork's workspace if the fork is open.
    fn workspace_of(&self, record: &ForkRecord) -> Option<Arc<Workspace>> {
        let open = self.open.lock();
        open.forks.get(&record.name)?.1.upgrade()
    }
}

impl StoreCheck<'_> {
    fn places(&self) -> &Places {
        &self.store.places
    }

    fn repository(&self) -> &Repository {
        &self.store.repository
    }

    /// Checks the contents, objects, refs and worktree of a fork.
    fn fork(&mut self, record: &ForkRecord) {
        let snapshots = self
            .places()
            .read_snapshots(&record.name)
            .unwrap_or_default();
        self.checked.snapshots += snapshots.snapshots.len() as u64;
        let mut stack = vec![record.open_layer];
        stack.extend(&record.frozen_layers);
        self.stack(record, &stack);
        for snapshot in &snapshots.snapshots {
            self.stack(record, &snapshot.frozen_layers);
        }
        self.worktree(record);
        self.dot_git(record);

        let name = record.name.as_str();
        let kept = match self.repository().kept(name) {
            Ok(kept) => kept,
            Err(error) => {
                let dir = self.repository().common_dir().join("refs/tine").join(name);
                let error = match error {
                    GitError::Io { source, .. } => source,
                    other => io::Error::other(other),
                };
                self.unreadable(Some(name), &dir, &error);
                return;
            }
        };
        let keeps = |label: &str, id: ObjectId| kept.contains(&(label.to_owned(), id));
        let base = self.object(record, record.base_commit.as_deref(), "the base");
        let is_there = |wanted: &str| {
            let kept = kept.iter().find(|(label, _)| label == wanted);
            kept.is_some_and(|(_, id)| self.repository().has_object(*id))
        };
        let (has_base, has_head) = (is_there("base"), is_there("head"));
        let mut held: BTreeSet<ObjectId> = kept.iter().map(|(_, id)| *id).collect();
        if let Some(base) = base {
            if !has_base {
                self.missing_ref(name, "base", base);
            } else if !self.is_kept(&held, base) {
                // If the fork went back to a commit, another ref keeps that.
                self.unkept_commit(name, base, "the fork");
            }
            held.insert(base);
        }
        self.object(record, Some(&record.base_tree), "the tree of the base");
        if record.base_commit.is_some() && !has_head {
            let head = self.store.worktree_dir(record);
            let head = self
                .repository()
                .head_of(&head)
                .ok()
                .and_then(|head| head.commit_id());
            if let Some(head) = head.filter(|head| self.repository().has_object(*head)) {
                self.missing_ref(name, "head", head);
            }
        }
        for snapshot in &snapshots.snapshots {
            let what = format!("the snapshot {}", snapshot.name);
            let base = self.object(record, snapshot.base_commit.as_deref(), &what);
            let label = tree_label(&snapshot.name);
            if let Some(tree) = self.object(record, snapshot.tree.as_deref(), &what)
                && !keeps(&label, tree)
            {
                self.missing_ref(name, &label, tree);
            }
            if let Some(base) = base
                && !self.is_kept(&held, base)
                && held.insert(base)
            {
                self.unkept_commit(name, base, &what);
            }
        }
        for (label, id) in &kept {
            let what = format!("refs/tine/{name}/{label}");
            // The ref has the wrong value, which is reported.
            let is_reported = self.found.iter().any(|known| known.finding.what == what);
            if is_reported || self.repository().has_object(*id) {
                continue;
            }
            self.found.push(Found::new(
                FindingKind::ObjectMissing,
                Some(name),
                what,
                format!("the object {id}, which it keeps, is not in the repository"),
                FSCK,
            ));
        }
    }

    /// Checks the generations of dependency trees that the fork shows.
    fn generations(&mut self, record: &ForkRecord) {
        let name = &record.name;
        for tree in record.carry.iter().flat_map(|carry| &carry.trees) {
            let (Some(id), Some(path)) = (&tree.generation, tree.path()) else {
                continue;
            };
            let checked = match self.generations.get(id) {
                Some(checked) => checked.clone(),
                None => {
                    let checked = self.store.check_generation(id, self.depth);
                    let checked = checked.map_err(|error| error.to_string());
                    self.generations.insert(id.clone(), checked.clone());
                    checked
                }
            };
            if let Err(error) = checked {
                self.found.push(Found::new(
                    FindingKind::GenerationDamaged,
                    Some(name.as_str()),
                    self.places().generation(id).display(),
                    format!("what was kept of {path} is not whole: {error}"),
                    format!("`tine update {name} --carried` keeps it anew, as the main checkout has it now"),
                ));
            }
        }
    }

    fn worktree(&mut self, record: &ForkRecord) {
        let dir = self.store.worktree_dir(record);
        if let Some(error) = unreadable(&dir) {
            self.unreadable(Some(record.name.as_str()), &dir, &error);
            return;
        }
        if !is_there(&dir) {
            let found = Found::new(
                FindingKind::WorktreeMissing,
                Some(record.name.as_str()),
                dir.display(),
                "git's worktree of the fork is gone: what was staged, and where HEAD was if it was detached, is lost",
                format!(
                    "{REPAIRS}registers it again, as the next command that opens the fork does"
                ),
            );
            self.found
                .push(found.with(Repair::RegisterWorktree(record.name.clone())));
            return;
        }
        self.head(record, &dir);
        self.index(record, &dir);
    }
}

/// Returns whether the path is a regular file and not a link.
fn is_file(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file())
}

/// Lists the ids of the layers in `<store>/damaged/`.
pub(super) fn layer_ids_aside(places: &Places) -> Result<Vec<u64>, StoreError> {
    let mut ids = Vec::new();
    for aside in files::list(&places.root().join("damaged"))? {
        let layers = files::list(&aside.join("layers"))?.into_iter();
        ids.extend(layers.filter_map(|dir| dir.file_name()?.to_str()?.parse::<u64>().ok()));
    }
    Ok(ids)
}

/// Returns the next free `<store>/damaged/<n>`.
pub(super) fn next_aside(places: &Places) -> Result<PathBuf, StoreError> {
    let root = places.root().join("damaged");
    let numbers = files::list(&root)?;
    let numbers = numbers
        .iter()
        .filter_map(|dir| dir.file_name()?.to_str()?.parse::<u64>().ok());
    Ok(root.join(numbers.max().unwrap_or(0).saturating_add(1).to_string()))
}
