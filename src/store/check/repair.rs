//! Repair of findings.
//!
//! Damaged files are moved to `<store>/damaged/<n>/`, under the names that they had in the store,
//! together with the layers that nothing else names. Refs below `refs/tine/+damaged/` keep the
//! objects that their refs kept. So the next opening, which removes everything unnamed, does not
//! touch them. The record is moved last: if the process dies before, the next repair does the rest.

use std::fs;
use std::path::{Path, PathBuf};

use super::super::recover::{Inventory, release_refs};
use super::super::{Store, files};
use super::finding::{Found, Repair};
use super::refs::refs_of;
use super::{CheckCallbacks, is_file, next_aside};
use crate::fork::ForkName;
use crate::format::Formats;
use crate::places::is_there;
use crate::worktree::{fork_of_lock_reason, lock_reason};
use crate::{RecordKind, StoreError};
use tine_git::ObjectId;
use tine_layer::FILES_NAME;

/// Group of refs below `refs/tine/`. It is not a valid fork name.
pub(super) const REFS: &str = "+damaged";

impl Store {
    /// Repairs the findings and adds the result to each.
    ///
    /// A failed repair is reported in its finding and does not prevent the others.
    pub(super) fn repair(
        &self,
        above: CheckCallbacks<'_>,
        found: &mut [Found],
    ) -> Result<(), StoreError> {
        // Each layer gets a number, so that each can be put back separately.
        for one in found.iter_mut() {
            let Repair::CutLayer(name, id) = &one.repair else {
                continue;
            };
            match self.cut_layer(name, *id, above) {
                Err(StoreError::Busy(name)) => one.finding.hint = in_use_hint(&name),
                done => note(one, done),
            }
        }
        let aside = next_aside(&self.places)?;
        for one in found.iter_mut() {
            let done = match &one.repair {
                Repair::None | Repair::SetForkAside(_) | Repair::CutLayer(..) | Repair::Collect => {
                    continue;
                }
                Repair::SetRef { group, label, id } => self.set_ref(group, label, *id),
                Repair::AddRef { group, id } => self
                    .repository
                    .hold(group, *id)
                    .map(|()| format!("a ref keeps {id} now"))
                    .map_err(StoreError::from),
                Repair::DeleteRefs { group, labels } => self
                    .repository
                    .release_all(group, labels)
                    .map(|()| "removed".to_owned())
                    .map_err(StoreError::from),
                Repair::RegisterWorktree(name) => self
                    .record(name)
                    .and_then(|record| self.restore_worktree(&record))
                    .map(|()| "registered again".to_owned()),
                Repair::MendHead(name) => self.mend_head(name),
                Repair::MendBranch(branch) => self.mend_branch(branch),
                Repair::MendIndex(name) => self.mend_index(name),
                Repair::MendDotGit(name) => self
                    .open_fork(name)
                    .and_then(|fork| fork.mend_dot_git())
                    .map(|_| "written anew".to_owned()),
                Repair::MendFormat => Formats::read(&self.places)
                    .settle(&self.places)
                    .map(|()| "written anew".to_owned()),
                Repair::SetFileAside(path) => self.set_file_aside(path, &aside),
                Repair::SetSpecialAside(path, within) => {
                    self.set_special_aside(path, &aside.join(within))
                }
                Repair::SetDocumentAside(kind, id) => self.set_document_aside(*kind, *id, &aside),
            };
            note(one, done);
        }
        self.set_forks_aside(found, &aside)?;
        if found
            .iter()
            .any(|one| matches!(one.repair, Repair::Collect))
        {
            let collected = self.collect();
            for one in found
                .iter_mut()
                .filter(|one| matches!(one.repair, Repair::Collect))
            {
                let is_gone = !is_there(Path::new(&one.finding.what));
                match &collected {
                    Ok(_) if is_gone => one.finding.repaired = Some("freed".to_owned()),
                    Ok(_) => {}
                    Err(error) => one.finding.detail = format!("{}; {error}", one.finding.detail),
                }
            }
        }
        Ok(())
    }

    /// Sets a ref that was missing or wrong.
    ///
    /// A valid `head` of a fork that was set since is newer and stays.
    fn set_ref(&self, group: &str, label: &str, id: ObjectId) -> Result<String, StoreError> {
        let is_right =
            |kept: &ObjectId| *kept == id || label == "head" && self.repository.has_object(*kept);
        if let Some(id) = self.repository.kept_as(group, label)?.filter(is_right) {
            return Ok(format!("it is there again, at {id}"));
        }
        self.repository.keep(group, label, id)?;
        Ok(format!("set anew, to {id}"))
    }

    /// Moves damaged fork records aside, with layers no other record names.
    fn set_forks_aside(&self, found: &mut [Found], aside: &Path) -> Result<(), StoreError> {
        let is_one = |one: &Found| matches!(one.repair, Repair::SetForkAside(_));
        if !found.iter().any(is_one) {
            return Ok(());
        }
        let _admin = self.admin.lock();
        let unreadable = Inventory::of(&self.places)?.unreadable;
        let mut moving = Vec::new();
        for one in found.iter_mut().filter(|one| is_one(one)) {
            let Repair::SetForkAside(text) = &one.repair else {
                continue;
            };
            let Ok(name) = ForkName::parse(text) else {
                continue;
            };
            // Records may have been put back since.
            if !unreadable.contains(text) {
                continue;
            }
            let is_open = self.open.lock().check_is_closed(&name).is_err();
            if is_open && self.places.read_record(&name).is_err() {
                one.finding.hint = in_use_hint(&name);
                continue;
            }
            moving.push((one, name));
        }
        // The remaining unreadable records may name any layer. A record moved without its layers
        // would lose them as soon as the others are readable again.
        if moving.len() != unreadable.len() {
            for (one, _) in moving {
                one.finding.hint =
                    "it stays as long as others cannot be read, which may name the same layers: put those right first".to_owned();
            }
            return Ok(());
        }
        let layers = self.unnamed_layers()?;
        // A missing snapshot list that leaves no layer is all that can be lost of a fork that
        // stays.
        let moves_nothing = |one: &Found, name: &ForkName| {
            layers.is_empty()
                && !is_there(Path::new(&one.finding.what))
                && self.places.read_record(name).is_ok()
        };
        for (one, name) in &moving {
            if moves_nothing(one, name) {
                continue;
            }
            self.keep_refs(name.as_str(), name.as_str(), aside, |_| true)?;
        }
        for id in &layers {
            let dir = self.places.layer(*id);
            move_to(&dir, &aside.join("layers").join(id.to_string()))?;
        }
        for (one, name) in moving {
            let moves_nothing = moves_nothing(one, &name);
            let done = self.set_fork_aside(&name, aside);
            let done = done.map(|()| match layers.is_empty() {
                true if moves_nothing => "the fork goes on without".to_owned(),
                true => format!("moved to {}; {}", aside.display(), put_back_hint(aside)),
                false => {
                    let ids: Vec<String> = layers.iter().map(u64::to_string).collect();
                    format!(
                        "moved to {}, with what no other record names: layers {}; {}",
                        aside.display(),
                        ids.join(", "),
                        put_back_hint(aside)
                    )
                }
            });
            note(one, done);
        }
        Ok(())
    }

    /// Moves a closed fork aside; returns the number for [`Store::put_back`].
    ///
    /// Layers that its record names stay in their place and are kept as long as the fork is aside.
    /// If its record or snapshot list is unreadable, layers that nothing else names are moved with
    /// it.
    ///
    /// # Errors
    /// [`StoreError::Busy`] if the fork is open. [`StoreError::Damaged`] if another fork's record
    /// is unreadable as well: then it is unknown to which fork a layer belongs.
    pub fn set_aside_fork(&self, name: &ForkName) -> Result<u64, StoreError> {
        let _admin = self.admin.lock();
        {
            let mut open = self.open.lock();
            open.check_is_closed(name)?;
            open.forks.remove(name);
            open.new_indexes.remove(name);
        }
        self.check_can_remove(name)?;
        let aside = next_aside(&self.places)?;
        let unreadable = Inventory::of(&self.places)?.unreadable;
        let layers = if unreadable.contains(name.as_str()) {
            self.unnamed_layers()?
        } else {
            Vec::new()
        };
        let others = unreadable
            .iter()
            .filter_map(|text| ForkName::parse(text).ok());
        if let Some(other) = others
            .into_iter()
            .find(|other| !layers.is_empty() && other != name)
        {
            return Err(StoreError::Damaged {
                path: self.places.fork(&other),
                reason: format!(
                    "it may name the same layers as {name}; `tine check --repair` sets both aside"
                ),
            });
        }
        self.keep_refs(name.as_str(), name.as_str(), &aside, |_| true)?;
        for id in &layers {
            let dir = self.places.layer(*id);
            move_to(&dir, &aside.join("layers").join(id.to_string()))?;
        }
        self.move_fork(name, &aside)?;
        Ok(number(&aside).parse().unwrap_or_default())
    }

    /// Lists the layers that no readable record names.
    fn unnamed_layers(&self) -> Result<Vec<u64>, StoreError> {
        let inventory = Inventory::of(&self.places)?;
        let open = self.open.lock();
        Ok(self
            .places
            .layer_dirs()?
            .into_iter()
            .map(|(id, _)| id)
            .filter(|id| !inventory.names_layer(*id) && !open.is_in_use(*id))
            .collect())
    }

    fn set_fork_aside(&self, name: &ForkName, aside: &Path) -> Result<(), StoreError> {
        let to = aside.join("forks").join(name.as_str());
        match self.places.read_record(name) {
            // Without its layers nothing tells of a fork whose directory is lost.
            Err(StoreError::Damaged { .. } | StoreError::NoSuchFork(_)) => {}
            Err(error) => return Err(error),
            // Only its snapshot list is damaged.
            Ok(mut record) => {
                move_to(&self.places.snapshots(name), &to.join("snapshots.json"))?;
                record.has_snapshots = false;
                return files::write_json(&self.places.record(name), &record);
            }
        }
        self.move_fork(name, aside)
    }

    /// Moves the worktree of a fork, then its record. The caller holds `admin`.
    fn move_fork(&self, name: &ForkName, aside: &Path) -> Result<(), StoreError> {
        let worktrees = self.repository.common_dir().join("worktrees");
        for dir in files::list(&worktrees)? {
            let Ok(reason) = tine_sys::file::read_to_string(&dir.join("locked")) else {
                continue;
            };
            if fork_of_lock_reason(&reason).as_ref() != Some(name) {
                continue;
            }
            let head = self
                .repository
                .head_of(&dir)
                .ok()
                .and_then(|head| head.commit_id());
            if let Some(head) = head {
                let label = format!("{}-{name}-HEAD", number(aside));
                self.repository.keep(REFS, &label, head)?;
            }
            let id = dir.file_name().unwrap_or_default().to_owned();
            move_to(&dir, &aside.join("worktrees").join(id))?;
        }
        move_to(
            &self.places.fork(name),
            &aside.join("forks").join(name.as_str()),
        )?;
        // Other refs keep those objects now.
        release_refs(&self.repository, name.as_str())
    }

    fn set_document_aside(
        &self,
        kind: RecordKind,
        id: u64,
        aside: &Path,
    ) -> Result<String, StoreError> {
        let _admin = self.admin.lock();
        self.note_highest(kind)?;
        let of_it = |label: &str| label == id.to_string() || label.starts_with(&format!("{id}-"));
        self.keep_refs(
            refs_of(kind),
            refs_of(kind).trim_start_matches('+'),
            aside,
            of_it,
        )?;
        let dir = self.places.root().join(kind.dir_name());
        let prefix = format!("{id}.");
        let mut paths = files::list(&dir)?;
        paths.retain(|path| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with(&prefix))
        });
        // An attachment without a record would be removed, so the record is moved last.
        paths.sort_by_key(|path| {
            path.extension()
                .is_some_and(|extension| extension == "json")
        });
        for path in paths {
            let name = path.file_name().unwrap_or_default().to_owned();
            move_to(&path, &aside.join(kind.dir_name()).join(name))?;
        }
        let without = match kind {
            RecordKind::Reverts => {
                "; nothing refuses now what takes back the commits that it named"
            }
            _ => "",
        };
        Ok(format!(
            "moved to {}{without}; {}",
            aside.display(),
            put_back_hint(aside)
        ))
    }

    /// Moves a file out of the place of a store directory.
    ///
    /// The directory for a layer's large contents is made again. A missing layer has its own
    /// finding and repair.
    fn set_file_aside(&self, path: &Path, aside: &Path) -> Result<String, StoreError> {
        let _admin = self.admin.lock();
        let from = self.places.root().join(path);
        if is_file(&from) {
            move_to(&from, &aside.join(path))?;
        }
        if path.ends_with(FILES_NAME) {
            files::create_private_dir(&from)?;
        }
        Ok(format!(
            "moved to {}; {}",
            aside.display(),
            put_back_hint(aside)
        ))
    }

    /// Moves a pipe, socket or device out of a file's place.
    ///
    /// The lock of a worktree is rewritten: without it git may remove the worktree.
    fn set_special_aside(&self, path: &Path, to: &Path) -> Result<String, StoreError> {
        let _admin = self.admin.lock();
        if tine_sys::file::check_regular(path).is_ok() {
            return Ok("it is gone".to_owned());
        }
        fs::metadata(path).map_err(StoreError::io("look at", path))?;
        move_to(path, to)?;
        let records = Inventory::of(&self.places)?.records;
        let locked = records
            .iter()
            .find(|record| self.worktree_dir(record).join("locked") == path);
        if let Some(record) = locked {
            files::write_atomically(path, format!("{}\n", lock_reason(&record.name)).as_bytes())?;
        }
        Ok(format!("moved to {}", to.display()))
    }

    /// Sets other refs to the objects of a group to be removed.
    fn keep_refs(
        &self,
        group: &str,
        name: &str,
        aside: &Path,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<(), StoreError> {
        for (label, id) in self.repository.kept(group)? {
            if wanted(&label) && self.repository.has_object(id) {
                let label = format!("{}-{name}-{label}", number(aside));
                self.repository.keep(REFS, &label, id)?;
            }
        }
        Ok(())
    }
}

/// Returns the hint for damage to a fork that is open.
fn in_use_hint(name: &ForkName) -> String {
    format!(
        "the fork is in use, and whole as long as it is: copy out what is not committed, then `tine unmount {name} --keep` or `tine daemon stop`, and `tine check --repair`"
    )
}

pub(super) fn put_back_hint(aside: &Path) -> String {
    format!("`tine check --put-back {}` brings it back", number(aside))
}

fn number(aside: &Path) -> String {
    aside
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

fn note(one: &mut Found, done: Result<String, StoreError>) {
    match done {
        Ok(done) => one.finding.repaired = Some(done),
        Err(error) => {
            one.finding.detail =
                format!("{}; it could not be put right: {error}", one.finding.detail)
        }
    }
}

/// Moves a file or directory of the store, durably. It may be missing.
pub(crate) fn move_to(from: &Path, to: &Path) -> Result<(), StoreError> {
    if !is_there(from) {
        return Ok(());
    }
    let dir: PathBuf = to.parent().unwrap_or(to).to_owned();
    files::create_private_dirs(&dir)?;
    fs::rename(from, to).map_err(StoreError::io("move", from))?;
    files::sync_parent(to)?;
    files::sync_parent(from)
}
