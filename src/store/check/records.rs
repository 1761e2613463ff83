//! Check of records, and findings for files that cannot be read.

use std::fs;
use std::io::{self, ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::finding::{FindingKind, Found, Repair};
use super::{REPAIRS, StoreCheck};
use crate::fork::ForkName;
use crate::format::Formats;
use crate::places::is_there;
use crate::recover::Inventory;
use crate::{RecordKind, StoreError};
use tine_path::shell::shell_word;
use tine_sys::file::NotAFile;

impl StoreCheck<'_> {
    /// Checks the format and its copy.
    pub(super) fn format(&mut self) {
        for (path, error) in Formats::read(self.places()).errors() {
            let found = record_finding(None, &path, error, &|| {
                let hint = "writes it anew, of its copy, as the next start of the daemon does";
                (hint, Repair::MendFormat)
            });
            self.found.push(found);
        }
    }

    /// Checks for fork records and snapshot lists that cannot be read.
    pub(super) fn records(&mut self, inventory: &Inventory) {
        self.checked.forks = inventory.records.len() as u64;
        for text in &inventory.unreadable {
            let Ok(name) = ForkName::parse(text) else {
                continue;
            };
            let (path, error) = match self.places().read_record(&name) {
                Err(error) => (self.places().record(&name), error),
                Ok(_) => match self.places().read_snapshots(&name) {
                    Err(error) => (self.places().snapshots(&name), error),
                    Ok(_) => continue,
                },
            };
            let found = record_finding(Some(text), &path, error, &|| {
                let hint = "moves it aside, with the layers that only it names";
                (hint, Repair::SetForkAside(text.clone()))
            });
            let mut found = found;
            if matches!(found.repair, Repair::SetForkAside(_)) && !is_there(&path) {
                found.finding.hint = format!(
                    "put it back where it was, and all is as before; {REPAIRS}moves aside what may belong to it"
                );
            }
            self.found.push(found);
        }
    }

    pub(super) fn documents(&mut self) -> Result<(), StoreError> {
        for kind in RecordKind::ALL {
            for id in self.store.document_ids(kind)? {
                self.checked.records += 1;
                let Err(error) = (self.reads)(self.store, kind, id) else {
                    continue;
                };
                let path = self
                    .places()
                    .root()
                    .join(kind.dir_name())
                    .join(format!("{id}.json"));
                let found = record_finding(None, &path, error, &|| {
                    let hint = match kind {
                        RecordKind::Reverts => {
                            "moves it aside: then nothing refuses what takes back the commits that it names, which a fork went back past with `--exact`"
                        }
                        _ => "moves it aside; refs go on to keep its commits",
                    };
                    (hint, Repair::SetDocumentAside(kind, id))
                });
                self.found.push(found);
            }
        }
        Ok(())
    }

    /// Adds a finding for a file that may be valid.
    pub(super) fn unreadable(&mut self, fork: Option<&str>, path: &Path, error: &io::Error) {
        self.found.push(Found::new(
            FindingKind::Unreadable,
            fork,
            path.display(),
            format!("it cannot be read, and may be whole: {error}"),
            unreadable_hint(path, error),
        ));
    }
}

/// Returns the finding for a record that cannot be read.
///
/// A damaged record can be moved aside. One that cannot be read may be valid and is left to its
/// user.
fn record_finding(
    fork: Option<&str>,
    path: &Path,
    error: StoreError,
    repair: &dyn Fn() -> (&'static str, Repair),
) -> Found {
    match error {
        StoreError::Damaged { reason, .. } => {
            let (hint, repair) = repair();
            let hint = format!("{REPAIRS}{hint}");
            Found::new(
                FindingKind::RecordDamaged,
                fork,
                path.display(),
                reason,
                hint,
            )
            .with(repair)
        }
        StoreError::Io { source, .. } => {
            let hint = unreadable_hint(path, &source);
            let detail = format!("it cannot be read, and may be whole: {source}");
            Found::new(
                FindingKind::RecordUnreadable,
                fork,
                path.display(),
                detail,
                hint,
            )
        }
        other => {
            let hint = unreadable_hint(path, &io::Error::other(other.to_string()));
            let detail = format!("it cannot be read, and may be whole: {other}");
            Found::new(
                FindingKind::RecordUnreadable,
                fork,
                path.display(),
                detail,
                hint,
            )
        }
    }
}

/// Returns the error of reading an existing file or directory, if any.
pub(super) fn unreadable(path: &Path) -> Option<io::Error> {
    let read = fs::symlink_metadata(path).and_then(|meta| {
        if meta.is_dir() {
            fs::read_dir(path).map(drop)
        } else {
            tine_sys::file::open(path)?.read(&mut [0]).map(drop)
        }
    });
    let is_gone =
        |error: &io::Error| matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory);
    // An object that is not a file cannot be valid.
    read.err()
        .filter(|error| !is_gone(error) && NotAFile::in_error(error).is_none())
}

/// Returns the hint for making a file readable.
fn unreadable_hint(path: &Path, error: &io::Error) -> String {
    // The store, all of which its owner must be able to read, or else the path in git's directory.
    let dir = path.ancestors().find(|dir| dir.ends_with(".git/tine"));
    let dir = dir.unwrap_or(path);
    match error.kind() {
        ErrorKind::PermissionDenied => format!(
            "give it back to its user: `sudo chown -R {} {}`, or correct the modes with `chmod -R u+rwX` there",
            tine_sys::process::effective_uid(),
            shell_word(dir.as_os_str().as_bytes())
        ),
        _ => format!(
            "`ls -ld {}` says what is there; put it right and check again",
            shell_word(path.as_os_str().as_bytes())
        ),
    }
}
