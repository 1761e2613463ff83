//! Check of the refs that keep objects, and of these objects.

use std::collections::BTreeSet;

use super::finding::{FindingKind, Found, Repair};
use super::{FSCK, REPAIRS, StoreCheck};
use crate::fork::{ForkName, ForkRecord};
use crate::recover::Inventory;
use crate::{RecordKind, StoreError};
use tine_git::ObjectId;
use tine_git::own::is_of_git_dir;
use tine_git::refs::{STATE, is_for_layers};

impl StoreCheck<'_> {
    pub(super) fn is_kept(&self, held: &BTreeSet<ObjectId>, commit: ObjectId) -> bool {
        held.contains(&commit)
            || held
                .iter()
                .filter(|id| self.repository().has_object(**id))
                .any(|id| self.repository().is_ancestor(commit, *id).unwrap_or(false))
    }

    pub(super) fn unkept_commit(&mut self, group: &str, id: ObjectId, what: &str) {
        let found = Found::new(
            FindingKind::RefMissing,
            Some(group),
            format!("refs/tine/{group}/"),
            format!("no ref keeps the commit {id}, which {what} stands on"),
            format!("{REPAIRS}sets one"),
        );
        self.found.push(found.with(Repair::AddRef {
            group: group.to_owned(),
            id,
        }));
    }

    pub(super) fn missing_ref(&mut self, group: &str, label: &str, id: ObjectId) {
        let found = Found::new(
            FindingKind::RefMissing,
            Some(group),
            format!("refs/tine/{group}/{label}"),
            format!("it keeps {id} no more, which the fork needs: `git gc` may remove that"),
            format!("{REPAIRS}sets it anew"),
        );
        self.found.push(found.with(Repair::SetRef {
            group: group.to_owned(),
            label: label.to_owned(),
            id,
        }));
    }

    /// Returns an object's id; adds a finding if it is missing.
    pub(super) fn object(
        &mut self,
        record: &ForkRecord,
        hex: Option<&str>,
        what: &str,
    ) -> Option<ObjectId> {
        let hex = hex?;
        let path = self.places().record(&record.name);
        let name = record.name.as_str();
        let Ok(id) = ObjectId::from_hex(hex.as_bytes()) else {
            self.found.push(Found::new(
                FindingKind::RecordDamaged,
                Some(name),
                path.display(),
                format!("{hex:?} is not an object id"),
                format!(
                    "what was committed is on its branch; `tine delete --force {name}` gives the rest up"
                ),
            ));
            return None;
        };
        if self.repository().has_object(id) {
            return Some(id);
        }
        self.found.push(Found::new(
            FindingKind::ObjectMissing,
            Some(name),
            id,
            format!("{what} of {name} is not in the repository"),
            FSCK,
        ));
        None
    }

    /// Checks for refs of deleted forks. Discarded states are kept on purpose.
    pub(super) fn leaked_refs(&mut self, inventory: &Inventory) -> Result<(), StoreError> {
        for group in self.repository().keepers()? {
            let is_known = inventory
                .records
                .iter()
                .any(|record| record.name.as_str() == group)
                || inventory.unreadable.contains(&group);
            // It may be a fork that is being made.
            let is_being_made =
                ForkName::parse(&group).map_or(true, |name| self.places().fork(&name).exists());
            if is_known || is_being_made {
                continue;
            }
            // A group that cannot be read now may belong to its fork.
            let kept = self.repository().labels(&group).unwrap_or_default();
            let labels: Vec<String> = kept
                .into_iter()
                .map(|(label, _)| label)
                .filter(|label| {
                    is_for_layers(label)
                        || is_of_git_dir(label)
                        || label == STATE
                        || label.starts_with("snapshot-")
                })
                .collect();
            if labels.is_empty() {
                continue;
            }
            let found = Found::new(
                FindingKind::RefLeaked,
                None,
                format!("refs/tine/{group}/"),
                format!(
                    "{} are kept for the fork {group}, which is no more",
                    labels.join(", ")
                ),
                format!("{REPAIRS}removes them"),
            );
            self.found
                .push(found.with(Repair::DeleteRefs { group, labels }));
        }
        Ok(())
    }

    /// Checks for refs with invalid files that have no finding yet.
    pub(super) fn broken_refs(&mut self) {
        for (group, label) in self.repository().broken_kept() {
            let what = format!("refs/tine/{group}/{label}");
            let is_reported = self.found.iter().any(|known| known.finding.what == what)
                || matches!(&leaked_labels(&self.found, &group), Some(labels) if labels.contains(&label));
            // The check of the record knows what these refs must keep.
            let has_record = [RecordKind::Reviews, RecordKind::Handoffs]
                .into_iter()
                .any(|kind| refs_of(kind) == group);
            if is_reported || has_record {
                continue;
            }
            let fork = ForkName::parse(&group).ok();
            let found = Found::new(
                FindingKind::RefMissing,
                fork.as_ref().map(ForkName::as_str),
                what,
                "its file holds no object id, and what it kept is not known",
                format!("{REPAIRS}removes it; {FSCK}"),
            );
            let labels = vec![label];
            self.found
                .push(found.with(Repair::DeleteRefs { group, labels }));
        }
    }
}

/// Returns the leaked refs of this group that a repair would remove.
fn leaked_labels<'a>(found: &'a [Found], of: &str) -> Option<&'a Vec<String>> {
    found.iter().find_map(|known| match &known.repair {
        Repair::DeleteRefs { group, labels } if group == of => Some(labels),
        _ => None,
    })
}

/// Returns the group of refs that belongs to records of a kind.
pub(super) fn refs_of(kind: RecordKind) -> &'static str {
    match kind {
        RecordKind::Reviews => "+reviews",
        RecordKind::Handoffs => "+handoffs",
        RecordKind::Rounds => "+rounds",
        // Buffers have no refs.
        RecordKind::Buffers => "+buffers",
        RecordKind::Moves => "+moves",
        RecordKind::UnsavedReads => "+unsaved-reads",
        RecordKind::OpenFiles => "+open-files",
        RecordKind::Reverts => "+gone-back",
    }
}
