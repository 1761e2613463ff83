//! Check of layers: their logs and the contents that they name.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::ErrorKind;
use std::path::PathBuf;

use super::contents::{broken_content, shown};
use super::finding::{FindingKind, Found, Repair};
use super::{FSCK, REPAIRS, StoreCheck, is_file};
use crate::StoreError;
use crate::fork::{ForkName, ForkRecord};
use crate::recover::Inventory;
use crate::usage::sole_usage;
use tine_layer::check::{CheckedLayer, check};
use tine_layer::{FILES_NAME, LayerError};

/// Reason why a layer cannot be read.
enum LayerDefect {
    /// It is missing.
    Missing,
    /// Its log, or a file beside it, is damaged.
    Damaged { what: String, detail: String },
    /// It is another layer.
    Other { detail: String },
    /// A newer version of tine has written it.
    Newer { detail: String },
}

impl StoreCheck<'_> {
    /// Checks every layer that exists or must exist.
    pub(super) fn layers(&mut self, inventory: &Inventory) -> Result<(), StoreError> {
        let there: BTreeMap<u64, PathBuf> = self.places().layer_dirs()?.into_iter().collect();
        let open: HashMap<u64, &ForkRecord> = inventory
            .records
            .iter()
            .map(|record| (record.open_layer, record))
            .collect();
        let mut owners: BTreeMap<u64, &ForkName> = BTreeMap::new();
        for record in &inventory.records {
            for id in record.frozen_layers.iter().chain([&record.open_layer]) {
                owners.entry(*id).or_insert(&record.name);
            }
        }
        self.files_for_layers(&there, &owners);
        let mut defects = Vec::new();
        for id in &inventory.layers {
            let fork = owners.get(id).map(|name| name.as_str());
            // It was found to have a file in the place of a directory.
            if self.layers.contains_key(id) {
                continue;
            }
            let Some(dir) = there.get(id) else {
                defects.push((*id, LayerDefect::Missing));
                self.layers.insert(*id, None);
                continue;
            };
            let writer = open.get(id).filter(|_| self.exclusively);
            let looked = match writer.and_then(|record| self.store.workspace_of(record)) {
                Some(workspace) => workspace.exclusively(|_| check(dir, self.depth)),
                None => check(dir, self.depth),
            };
            self.checked.layers += 1;
            let layer = match looked {
                Ok(layer) if layer.id.0 != *id => {
                    let detail = format!("it holds layer {}", layer.id.0);
                    defects.push((*id, LayerDefect::Other { detail }));
                    None
                }
                Ok(layer) => {
                    self.checked.contents += layer.contents;
                    self.checked.content_bytes += layer.content_bytes;
                    Some(layer)
                }
                Err(LayerError::Io { path, source, .. })
                    if !matches!(
                        source.kind(),
                        ErrorKind::NotFound
                            | ErrorKind::UnexpectedEof
                            | ErrorKind::IsADirectory
                            | ErrorKind::NotADirectory
                    ) =>
                {
                    self.unreadable(fork, &path, &source);
                    None
                }
                Err(error) => {
                    let defect = match error {
                        LayerError::Corrupt {
                            path,
                            offset,
                            reason,
                        } => LayerDefect::Damaged {
                            what: path.display().to_string(),
                            detail: format!("damaged at byte {offset}: {reason}"),
                        },
                        error @ LayerError::NewerFormat { .. } => LayerDefect::Newer {
                            detail: error.to_string(),
                        },
                        other => LayerDefect::Damaged {
                            what: dir.display().to_string(),
                            detail: other.to_string(),
                        },
                    };
                    defects.push((*id, defect));
                    None
                }
            };
            self.layers.insert(*id, layer);
        }
        defects.sort_by_key(|(id, _)| *id);
        for (id, defect) in defects {
            self.report_defect(
                id,
                defect,
                open.get(&id).copied(),
                owners.get(&id).copied(),
                inventory,
            );
        }
        self.leaked_layers(&there, inventory);
        Ok(())
    }

    /// Checks for files in the place of a layer's directories.
    ///
    /// Such a layer is not checked further.
    fn files_for_layers(
        &mut self,
        there: &BTreeMap<u64, PathBuf>,
        owners: &BTreeMap<u64, &ForkName>,
    ) {
        for (id, dir) in there {
            let wrong = [PathBuf::new(), PathBuf::from(FILES_NAME)].map(|within| {
                let path = if within.as_os_str().is_empty() {
                    dir.clone()
                } else {
                    dir.join(within)
                };
                is_file(&path).then_some(path)
            });
            let Some(path) = wrong.into_iter().flatten().next() else {
                continue;
            };
            let fork = owners.get(id).map(|name| name.as_str());
            let found = Found::new(
                FindingKind::LayerDamaged,
                fork,
                path.display(),
                "a file is in the place of a directory",
                format!("{REPAIRS}moves it aside"),
            );
            let within = path.strip_prefix(self.places().root()).unwrap_or(&path);
            let repair = Repair::SetFileAside(within.to_owned());
            self.found.push(found.with(repair));
            self.checked.layers += 1;
            self.layers.insert(*id, None);
        }
    }

    /// Checks for layers that nothing names.
    ///
    /// If a record is unreadable, it may name any of them, and none is reported.
    fn leaked_layers(&mut self, there: &BTreeMap<u64, PathBuf>, inventory: &Inventory) {
        if !inventory.unreadable.is_empty() {
            return;
        }
        let in_use = self.store.open.lock();
        let leaked: Vec<PathBuf> = there
            .iter()
            .filter(|(id, dir)| {
                !is_file(dir)
                    && !inventory.names_layer(**id)
                    && !in_use.is_in_use(**id)
                    && !in_use.awaited.contains(id)
            })
            .map(|(_, dir)| dir.clone())
            .collect();
        drop(in_use);
        for dir in leaked {
            let bytes = sole_usage(&dir);
            let found = Found::new(
                FindingKind::LayerLeaked,
                None,
                dir.display(),
                format!("nothing names the layer, which takes {bytes} bytes"),
                "`tine gc` frees it, as `tine check --repair` does",
            );
            self.found.push(found.with(Repair::Collect));
        }
    }

    /// Adds a finding for a layer that cannot be read.
    ///
    /// `opener` is the fork that writes to it, `owner` any fork with it in its stack.
    fn report_defect(
        &mut self,
        id: u64,
        defect: LayerDefect,
        opener: Option<&ForkRecord>,
        owner: Option<&ForkName>,
        inventory: &Inventory,
    ) {
        let dir = self.places().layer(id).display().to_string();
        let is_open_only = !inventory.stacks.iter().any(|stack| stack.contains(&id));
        let opener = opener.filter(|_| is_open_only);
        let (kind, what, detail, can_be_cut) = match defect {
            LayerDefect::Missing => {
                let detail = "a record names the layer, and it is not there";
                (FindingKind::LayerMissing, dir, detail.to_owned(), true)
            }
            LayerDefect::Damaged { what, detail } => {
                (FindingKind::LayerDamaged, what, detail, true)
            }
            LayerDefect::Other { detail } | LayerDefect::Newer { detail } => {
                (FindingKind::LayerDamaged, dir, detail, false)
            }
        };
        let fork = owner.map(ForkName::as_str);
        let found = match opener.filter(|_| can_be_cut) {
            Some(record) => {
                let hint = match kind {
                    FindingKind::LayerMissing => format!(
                        "put it back where it was, and all is as before; {REPAIRS}makes an empty one: the fork then shows what it stands on"
                    ),
                    _ => format!(
                        "put it back from a backup; {REPAIRS}keeps a copy of it and cuts the log there: the fork then shows what was before"
                    ),
                };
                let repair = Repair::CutLayer(record.name.clone(), id);
                Found::new(kind, fork, what, detail, hint).with(repair)
            }
            None => {
                let hint = self.repair_options(id, owner, inventory);
                Found::new(kind, fork, what, detail, hint)
            }
        };
        self.found.push(found);
    }

    /// Returns the user's options if a shared layer is damaged.
    ///
    /// These are commands for the snapshots and forks that are not damaged.
    fn repair_options(&self, id: u64, owner: Option<&ForkName>, inventory: &Inventory) -> String {
        let mut ways = vec!["put it back from a backup".to_owned()];
        for record in &inventory.records {
            let fork = &record.name;
            let list = self.places().read_snapshots(fork).unwrap_or_default();
            let is_of_it = |layers: &[u64]| layers.contains(&id);
            let stands_on_it = is_of_it(&record.frozen_layers) || record.open_layer == id;
            if !stands_on_it
                && !list
                    .snapshots
                    .iter()
                    .any(|one| is_of_it(&one.frozen_layers))
            {
                continue;
            }
            let is_whole = |layers: &[u64]| {
                let mut read = layers.iter().map(|layer| self.layers.get(layer));
                read.all(|layer| matches!(layer, Some(Some(_))))
            };
            if stands_on_it
                && let Some(one) = list
                    .snapshots
                    .iter()
                    .rfind(|one| is_whole(&one.frozen_layers))
            {
                ways.push(format!(
                    "`tine new {fork}-{snapshot} --from-fork {fork}@{snapshot}` makes a fork of the newest snapshot that is whole",
                    snapshot = one.name
                ));
            }
            let damaged = list
                .snapshots
                .iter()
                .filter(|one| is_of_it(&one.frozen_layers));
            ways.extend(damaged.map(|one| {
                format!(
                    "`tine snapshot {fork} {} --delete --force` lets go of a snapshot that stands on it",
                    one.name
                )
            }));
        }
        if let Some(fork) = owner {
            ways.push(format!(
                "what was committed is on the branch, and `tine delete --force {fork}` gives the rest up"
            ));
        }
        ways.join("; ")
    }

    /// Checks contents and objects named in the layers of one stack.
    pub(super) fn stack(&mut self, record: &ForkRecord, stack: &[u64]) {
        let layers: Vec<&CheckedLayer> = stack
            .iter()
            .filter_map(|id| self.layers.get(id)?.as_ref())
            .collect();
        let is_whole = layers.len() == stack.len();
        let holds: BTreeSet<_> = layers
            .iter()
            .flat_map(|layer| layer.holds.iter().copied())
            .collect();
        let is_partial = self.repository().promisor_remote().is_some();
        let name = record.name.as_str();
        let mut found = Vec::new();
        for layer in &layers {
            for broken in &layer.broken {
                found.push(broken_content(name, &layers, broken));
            }
            for other in layer.of_others().difference(&holds).filter(|_| is_whole) {
                found.push(Found::new(
                    FindingKind::ContentMissing,
                    Some(name),
                    self.places().layer(layer.id.0).display(),
                    format!(
                        "it names contents of layer {}, which no layer of the fork has",
                        other.0
                    ),
                    "put the layer back from a backup; files whose bytes it had cannot be read",
                ));
            }
            for (ino, id) in layer.objects().filter(|_| !is_partial) {
                if !self.repository().has_object(id) {
                    found.push(Found::new(
                        FindingKind::ObjectMissing,
                        Some(name),
                        id,
                        format!(
                            "the bytes of {} are not in the repository",
                            shown(&layers, ino)
                        ),
                        FSCK,
                    ));
                }
            }
        }
        found.dedup_by(|one, other| one.finding == other.finding);
        for one in found {
            // Forks and snapshots share layers.
            let is_known = |known: &Found| {
                known.finding.what == one.finding.what && known.finding.detail == one.finding.detail
            };
            if !self.found.iter().any(is_known) {
                self.found.push(one);
            }
        }
    }
}
