//! Pipes, sockets and devices in the place of files.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::finding::{FindingKind, Found, Repair};
use super::{Inventory, REPAIRS, StoreCheck};
use crate::{ForkName, RecordKind};
use tine_sys::file;

/// Directories of the store with only tine's files.
///
/// Files that were set aside stay unchanged, and sessions of rounds may have repositories.
const DIRS: [&str; 8] = [
    "forks",
    "layers",
    "bases",
    "times",
    "transfers",
    "spares",
    "locking",
    "rounds/.records",
];

impl StoreCheck<'_> {
    /// Checks for special files in the store and in its worktrees.
    ///
    /// Those with a finding already are left out.
    pub(super) fn specials(&mut self, inventory: &Inventory) {
        let root = self.places().root().to_owned();
        let mut specials = specials_in(&root);
        let kinds = RecordKind::ALL.map(RecordKind::dir_name);
        for dir in DIRS.iter().chain(&kinds) {
            specials.extend(specials_below(&root.join(dir)));
        }
        let mut found: BTreeMap<PathBuf, Option<&ForkName>> =
            specials.into_iter().map(|path| (path, None)).collect();
        for record in &inventory.records {
            let specials = specials_below(&self.store.worktree_dir(record));
            found.extend(specials.into_iter().map(|path| (path, Some(&record.name))));
        }
        let common_dir = self.places().common_dir().to_owned();
        for (path, fork) in found {
            let is_reported = |known: &Found| path.starts_with(&known.finding.what);
            if self.found.iter().any(is_reported) {
                continue;
            }
            let Err(error) = file::check_regular(&path) else {
                continue;
            };
            let one = Found::new(
                FindingKind::NotAFile,
                fork.map(|name| name.as_str()),
                path.display(),
                error.to_string(),
                format!("{REPAIRS}moves it aside"),
            );
            let within = path
                .strip_prefix(&root)
                .or_else(|_| path.strip_prefix(&common_dir));
            let within = within.unwrap_or(&path).to_owned();
            self.found
                .push(one.with(Repair::SetSpecialAside(path, within)));
        }
    }
}

/// Lists special files in `dir`, and links to them.
fn specials_in(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter(|entry| {
            !entry
                .file_type()
                .is_ok_and(|kind| kind.is_file() || kind.is_dir())
        })
        .map(|entry| entry.path())
        .filter(|path| {
            fs::metadata(path).is_ok_and(|meta| !meta.is_file() && !meta.is_dir())
                && !is_socket_of_a_program(path)
        })
        .collect()
}

fn specials_below(dir: &Path) -> Vec<PathBuf> {
    let mut found = specials_in(dir);
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(specials_below(&entry.path()));
        }
    }
    found
}

/// Returns whether it is the socket of the daemon or git's fsmonitor.
fn is_socket_of_a_program(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;

    let is_socket = fs::metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
    is_socket
        && path
            .extension()
            .is_some_and(|end| end == "sock" || end == "ipc")
}
