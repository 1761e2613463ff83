//! Repair of a fork's open layer by cutting its damaged log.
//!
//! | after this step | a process that dies leaves |
//! |---|---|
//! | the callback notes what the fork may go back past | notes that refuse to take commits back |
//! | a copy of the layer is in `damaged/<n>.tmp` | the same; the next opening or repair removes the copy |
//! | the copy is `damaged/<n>` | the same; the next repair reuses the copy |
//! | the log that ends before the damage is in place | a fork that opens |

use std::fs;
use std::path::{Path, PathBuf};

use super::repair::put_back_hint;
use super::{CheckCallbacks, next_aside};
use crate::fork::{ForkName, ForkRecord};
use crate::places::is_there;
use crate::recover::Inventory;
use crate::{Store, StoreError, files};
use tine_layer::LayerId;
use tine_layer::salvage::{Salvaged, copy_all, salvage};

/// Suffix of an incomplete directory below `damaged/`.
pub(super) const UNFINISHED: &str = ".tmp";

impl Store {
    /// Cuts the open layer's log before its first damaged record.
    ///
    /// The layer is `id`. Missing files of it are rebuilt, and a copy of it is set aside first.
    /// Returns a description of the repair.
    ///
    /// # Errors
    /// [`StoreError::Busy`] if the fork is open. [`StoreError::Damaged`] if another fork or a
    /// snapshot uses the layer.
    pub(super) fn cut_layer(
        &self,
        name: &ForkName,
        id: u64,
        above: CheckCallbacks<'_>,
    ) -> Result<String, StoreError> {
        let record = self.record(name)?;
        self.open.lock().check_is_closed(name)?;
        (above.before_cut)(self, &record)?;
        let _admin = self.admin.lock();
        let record = self.places.read_record(name)?;
        self.check_stands_alone(&record, id)?;
        let dir = self.places.layer(id);
        // The layer is damaged, so nobody can open it meanwhile.
        let aside = self.copy_aside(id)?;
        let open = self.open.lock();
        open.check_is_closed(name)?;
        let salvaged = salvage(&dir, LayerId(id))?;
        drop(open);
        Ok(describe(salvaged, aside.as_deref()))
    }

    /// Checks that only this fork uses its open layer.
    fn check_stands_alone(&self, record: &ForkRecord, id: u64) -> Result<(), StoreError> {
        let inventory = Inventory::of(&self.places)?;
        let is_shared = inventory.stacks.iter().any(|stack| stack.contains(&id))
            || inventory
                .records
                .iter()
                .any(|other| other.open_layer == id && other.name != record.name);
        if record.open_layer == id && !is_shared {
            Ok(())
        } else {
            Err(StoreError::Damaged {
                path: self.places.layer(id),
                reason: "another fork or a snapshot stands on it".to_owned(),
            })
        }
    }

    /// Copies a layer to `damaged/<n>/layers/<id>`.
    ///
    /// Returns the directory, or `None` if the layer is empty. A copy by a repair that died is
    /// reused.
    fn copy_aside(&self, id: u64) -> Result<Option<PathBuf>, StoreError> {
        clean_unfinished(self.places.root())?;
        let dir = self.places.layer(id);
        if files::list(&dir)?.is_empty() {
            return Ok(None);
        }
        let within = Path::new("layers").join(id.to_string());
        let log = tine_sys::file::read(&dir.join("log")).ok();
        for known in files::list(&self.places.root().join("damaged"))? {
            let known_log = tine_sys::file::read(&known.join(&within).join("log")).ok();
            if log.is_some() && known_log == log {
                return Ok(Some(known));
            }
        }
        let aside = next_aside(&self.places)?;
        let unfinished = aside.with_extension(UNFINISHED.trim_start_matches('.'));
        let layers = unfinished.join("layers");
        files::create_private_dirs(&layers)?;
        if let Err(error) = copy_all(&dir, &unfinished.join(&within)) {
            // Best effort: on a full disk it takes space that others need.
            let _ = files::remove_dir(&unfinished);
            return Err(error.into());
        }
        files::sync_parent(&unfinished.join(&within))?;
        files::sync_parent(&layers)?;
        fs::rename(&unfinished, &aside).map_err(StoreError::io("move", &unfinished))?;
        files::sync_parent(&aside)?;
        Ok(Some(aside))
    }
}

/// Removes incomplete copies of a process that died.
pub(crate) fn clean_unfinished(root: &Path) -> Result<(), StoreError> {
    for dir in files::list(&root.join("damaged"))? {
        let name = dir.file_name().and_then(|name| name.to_str());
        let number = name.and_then(|name| name.strip_suffix(UNFINISHED));
        if number.is_some_and(|number| number.parse::<u64>().is_ok()) && is_there(&dir) {
            files::remove_dir(&dir)?;
        }
    }
    Ok(())
}

fn describe(salvaged: Salvaged, aside: Option<&Path>) -> String {
    let Salvaged {
        kept_bytes,
        log_bytes,
        cut_records,
        later_contents,
        lost_contents,
    } = salvaged;
    let mut text = match (log_bytes, kept_bytes) {
        (0, _) => "an empty layer is in its place: the fork shows what it stands on".to_owned(),
        (all, kept) if all == kept => {
            "the log is written anew: what was damaged said nothing of files".to_owned()
        }
        (_, 0) => format!(
            "cut at the beginning: all {log_bytes} bytes of the log, {cut_records} whole records among them, are left out, and the fork shows what it stands on"
        ),
        _ => format!(
            "cut after byte {kept_bytes}: the last {} bytes of the log, {cut_records} whole records among them, are left out, and the fork shows what was before",
            log_bytes.saturating_sub(kept_bytes)
        ),
    };
    if later_contents > 0 {
        text.push_str(&format!("; {later_contents} files have a later content"));
    }
    if lost_contents > 0 {
        text.push_str(&format!("; the content of {lost_contents} files is lost"));
    }
    if let Some(aside) = aside {
        text.push_str(&format!(
            "; the layer as it was is in {}: {}",
            aside.display(),
            put_back_hint(aside)
        ));
    }
    text
}
