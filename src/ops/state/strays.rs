//! Brings strays into forks: files that programs wrote to an unmounted mount place.
//!
//! They become files of the fork in one operation, which `tine undo` takes back. A stray keeps its
//! path if the fork has nothing or the same content there. Otherwise it gets a name beside it that
//! marks it as a stray. Only then is it removed from the mount place.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::protocol::{LeftInPlace, Stray};
use tine_attr::FileKind;
use tine_fuse::{FuseMount, MountPoint};
use tine_git::BlobContent;
use tine_path::text::PathText;
use tine_path::{EntryName, RepoPath};
use tine_store::{Fork, ForkName, Store};
use tine_sys::file;
use tine_workspace::{
    Actor, ApplyOptions, Caller, FileContent, FsError, NewEntry, OperationKind, Replacement,
    Workspace,
};

/// Size in bytes above which a file is not read into memory.
///
/// It is read from its place while it is written.
const MAX_MEMORY_BYTES: u64 = 1 << 20;

/// Suffix of a stray whose own name is taken.
const SUFFIX: &str = ".stray";

/// Strays that no command has reported to the user yet.
///
/// The store keeps them, so they survive the daemon.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct UnreportedStrays {
    /// Strays that are in the fork, in order of arrival.
    pub brought: Vec<Stray>,
    /// Reason that strays stay under the mount.
    ///
    /// It is reported until they are in the fork.
    pub failed: Option<Failure>,
}

impl UnreportedStrays {
    /// Reads the record; returns an empty one if that fails.
    pub(crate) fn of(store: &Store, name: &ForkName) -> UnreportedStrays {
        store
            .notices(name)
            .unwrap_or_else(|error| {
                log::warn!("{name}: {error}");
                None
            })
            .unwrap_or_default()
    }

    fn write(&self, store: &Store, name: &ForkName) {
        let is_empty = *self == UnreportedStrays::default();
        if let Err(error) = store.write_notices(name, (!is_empty).then_some(self)) {
            log::warn!("{name}: what came in from under the mount may not be told: {error}");
        }
    }

    /// Removes strays that a command has reported.
    pub(crate) fn remove_reported(store: &Store, name: &ForkName, reported: &[Stray]) {
        let mut unreported = UnreportedStrays::of(store, name);
        unreported.brought.retain(|stray| !reported.contains(stray));
        unreported.write(store, name);
    }
}

/// Lists the names at the mount place `dir` of an unmounted fork.
///
/// Returns none if the directory cannot be read.
pub(crate) fn strays_at(dir: &Path) -> Vec<PathText> {
    let names = tine_fuse::files_under_mount_point(dir).unwrap_or_else(|error| {
        log::debug!("what lies at {} cannot be told: {error}", dir.display());
        Vec::new()
    });
    names
        .iter()
        .map(|name| PathText::from(name.as_slice()))
        .collect()
}

/// Lists the files that a deleted fork leaves at `dir`.
pub(crate) fn left_in_place(dir: &Path) -> Option<LeftInPlace> {
    let paths = strays_at(dir);
    (!paths.is_empty()).then(|| LeftInPlace {
        mount_dir: dir.to_owned(),
        paths,
    })
}

/// Brings strays under a new mount into its fork and records them.
pub(crate) fn import_strays(store: &Store, name: &ForkName, fork: &Fork, mount: &FuseMount) {
    let Some(mount_point) = mount.take_mount_point() else {
        return;
    };
    let before = UnreportedStrays::of(store, name);
    let brought_with = |strays: &[Stray]| {
        let new = strays
            .iter()
            .filter(|stray| !before.brought.contains(stray));
        before.brought.iter().chain(new).cloned().collect()
    };
    // Recorded before the strays are in the fork: if the daemon dies in between, they are still
    // reported.
    let note = |strays: &[Stray]| {
        let unreported = UnreportedStrays {
            brought: brought_with(strays),
            failed: None,
        };
        if unreported != before {
            unreported.write(store, name);
        }
    };
    if let Err(failure) = import_files(fork, &mount_point, mount.dir(), note) {
        let failure = failure.context(format!(
            "what programs wrote to {} while nothing was mounted there stays under the mount",
            mount.dir().display()
        ));
        log::error!("{failure}");
        let unreported = UnreportedStrays {
            brought: before.brought.clone(),
            failed: Some(failure),
        };
        unreported.write(store, name);
    }
}

/// Brings files under a mount into its fork.
///
/// Calls `note` first, with the files that the fork does not have already. The directory is usually
/// empty.
///
/// # Errors
/// If the fork cannot take the files. Then they stay under the mount.
fn import_files(
    fork: &Fork,
    mount_point: &MountPoint,
    dir: &Path,
    note: impl FnOnce(&[Stray]),
) -> Result<(), Failure> {
    let top = mount_point.path();
    let read = |error: io::Error| Failure::io("look under the mount at", dir, &error);
    if mount_point.is_empty().map_err(read)? {
        note(&[]);
        return Ok(());
    }
    let mut scan = StrayScan {
        workspace: &fork.workspace,
        replacements: Vec::new(),
        coming: HashSet::new(),
        scanned: Vec::new(),
        strays: Vec::new(),
    };
    scan.scan_dir(&top, &RepoPath::root(), &RepoPath::root())
        .map_err(read)?;
    let StrayScan {
        replacements,
        scanned,
        strays,
        ..
    } = scan;
    note(&strays);
    if !replacements.is_empty() {
        let attrs = fork.workspace.base_attrs();
        let by = Actor {
            caller: Caller::new(attrs.uid, attrs.gid),
            command: "tine mount (what was written while nothing was mounted)",
        };
        let options = ApplyOptions {
            kind: Some(OperationKind::Write),
            ..ApplyOptions::default()
        };
        fork.workspace.apply(by, &replacements, &options)?;
    }
    fork.workspace.sync()?;
    // Only this process reaches the directory under a live mount.
    mount_point.make_writable();
    for one in scanned.iter().rev() {
        // A file that a program still writes stays until the next mount.
        if let Err(error) = one.remove() {
            log::warn!("{} stays under the mount: {error}", one.path.display());
        }
    }
    mount_point.make_unwritable();
    log::warn!(
        "{} strays at {} are in the fork now",
        strays.len(),
        dir.display()
    );
    Ok(())
}

/// File or directory under the mount that will be removed.
struct ScannedEntry {
    path: PathBuf,
    is_dir: bool,
    /// Size, and time of the last change (seconds, nanoseconds).
    stamp: (u64, i64, i64),
}

impl ScannedEntry {
    fn remove(&self) -> io::Result<()> {
        if self.is_dir {
            return fs::remove_dir(&self.path);
        }
        let found = fs::symlink_metadata(&self.path)?;
        // Bytes written to an open file after its name is removed would be lost.
        let is_open =
            || tine_sys::file::open(&self.path).is_ok_and(|file| file::is_open_elsewhere(&file));
        if stamp(&found) == self.stamp && !(found.is_file() && is_open()) {
            fs::remove_file(&self.path)
        } else {
            Err(io::ErrorKind::ResourceBusy.into())
        }
    }
}

fn stamp(meta: &fs::Metadata) -> (u64, i64, i64) {
    (meta.size(), meta.mtime(), meta.mtime_nsec())
}

struct StrayScan<'a> {
    workspace: &'a Workspace,
    replacements: Vec<Replacement>,
    /// Paths that the replacements make.
    coming: HashSet<RepoPath>,
    /// Each directory comes before its entries.
    scanned: Vec<ScannedEntry>,
    strays: Vec<Stray>,
}

impl StrayScan<'_> {
    /// Examines the entries of the directory `host`.
    ///
    /// Its path in the fork would be `meant`; it goes to `to`.
    fn scan_dir(&mut self, host: &Path, meant: &RepoPath, to: &RepoPath) -> io::Result<()> {
        let mut entries = fs::read_dir(host)?.collect::<io::Result<Vec<_>>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let Ok(name) = EntryName::new(entry.file_name().as_bytes()) else {
                continue;
            };
            let path = entry.path();
            let meta = fs::symlink_metadata(&path)?;
            if meant.is_root() && name.is_dot_git() {
                // The fork has a `.git` of its own. A stray `.git` file adds nothing to it.
                if meta.is_file() {
                    self.record(path, &meta);
                }
                continue;
            }
            let (meant, to) = (meant.join(&name), to.join(&name));
            if meta.is_dir() {
                self.directory(path, &meta, &meant, to)?;
            } else {
                self.file(path, &meta, &meant, to)?;
            }
        }
        Ok(())
    }

    fn record(&mut self, path: PathBuf, meta: &fs::Metadata) {
        self.scanned.push(ScannedEntry {
            path,
            is_dir: meta.is_dir(),
            stamp: stamp(meta),
        });
    }

    fn directory(
        &mut self,
        path: PathBuf,
        meta: &fs::Metadata,
        meant: &RepoPath,
        to: RepoPath,
    ) -> io::Result<()> {
        let to = match self.kind_at(&to) {
            Some(FileKind::Directory) => to,
            None => {
                self.make(to.clone(), NewEntry::Directory);
                to
            }
            Some(_) => {
                let beside = self.beside(&to);
                self.make(beside.clone(), NewEntry::Directory);
                beside
            }
        };
        self.record(path.clone(), meta);
        self.scan_dir(&path, meant, &to)
    }

    fn file(
        &mut self,
        path: PathBuf,
        meta: &fs::Metadata,
        meant: &RepoPath,
        to: RepoPath,
    ) -> io::Result<()> {
        let (entry, is_same) = if meta.is_symlink() {
            let target = fs::read_link(&path)?.as_os_str().as_bytes().to_vec();
            let is_same = self.kind_at(&to) == Some(FileKind::Symlink)
                && self
                    .workspace
                    .read_path(&to)
                    .is_ok_and(|known| known == target);
            let entry = NewEntry::Symlink {
                target,
                is_base: false,
            };
            (entry, is_same)
        } else if meta.is_file() {
            let content = match meta.len() {
                ..=MAX_MEMORY_BYTES => BlobContent::Memory(fs::read(&path)?.into()),
                len => BlobContent::Spooled(Arc::new(fs::File::open(&path)?), len),
            };
            let is_same = self.kind_at(&to) == Some(FileKind::Regular)
                && self.holds(&to, &path, meta.len())?;
            let entry = NewEntry::File {
                content: FileContent::Bytes(content),
                executable: meta.permissions().mode() & 0o100 != 0,
                is_base: false,
            };
            (entry, is_same)
        } else {
            // A socket or a FIFO has no content.
            log::warn!("{} stays under the mount: it is not a file", path.display());
            return Ok(());
        };
        self.record(path, meta);
        if is_same {
            return Ok(());
        }
        let became = match self.kind_at(&to) {
            None => to,
            Some(_) => self.beside(&to),
        };
        self.strays.push(Stray {
            path: meant.into(),
            became: (&became).into(),
        });
        self.make(became, entry);
        Ok(())
    }

    fn make(&mut self, path: RepoPath, new: NewEntry) {
        self.coming.insert(path.clone());
        self.replacements.push(Replacement {
            path,
            replaces: false,
            new: Some(new),
        });
    }

    fn kind_at(&self, path: &RepoPath) -> Option<FileKind> {
        match self.workspace.resolve(path) {
            Ok(attr) => Some(attr.kind),
            Err(FsError::NotFound | FsError::NotADirectory) => None,
            // An entry exists but cannot be examined.
            Err(_) => Some(FileKind::Fifo),
        }
    }

    /// Returns whether the fork's file equals the one at `host`.
    fn holds(&self, path: &RepoPath, host: &Path, len: u64) -> io::Result<bool> {
        let is_as_long = self
            .workspace
            .resolve(path)
            .is_ok_and(|attr| attr.size == len);
        if !is_as_long {
            return Ok(false);
        }
        let bytes = fs::read(host)?;
        Ok(self
            .workspace
            .read_path(path)
            .is_ok_and(|known| known == bytes))
    }

    /// Returns the first free name beside `path`.
    fn beside(&self, path: &RepoPath) -> RepoPath {
        let Some((parent, name)) = path.split_last() else {
            return path.clone();
        };
        (1u32..)
            .filter_map(|number| {
                let suffix = match number {
                    1 => SUFFIX.to_owned(),
                    _ => format!("{SUFFIX}-{number}"),
                };
                let room = 255usize.saturating_sub(suffix.len());
                let stem = name.as_bytes().get(..room).unwrap_or(name.as_bytes());
                let name = EntryName::new([stem, suffix.as_bytes()].concat()).ok()?;
                Some(parent.join(&name))
            })
            .find(|candidate| !self.coming.contains(candidate) && self.kind_at(candidate).is_none())
            .unwrap_or_else(|| path.clone())
    }
}
