//! Strays: files that programs put into a mount place while nothing was mounted there.
//!
//! They become files of the fork, in one operation that can be taken back: at their own paths where
//! the fork has nothing or the same there, else beside it under a name that says where they come
//! from. Only then are they removed from the place.

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
use tine_sys::file;
use tine_workspace::{
    Actor, ApplyOptions, Caller, FileContent, Fork, ForkName, FsError, NewEntry, OperationKind,
    Replacement, Store, Workspace,
};

/// Files of more bytes are read from their place while they are written, and not into memory.
const MAX_MEMORY_BYTES: u64 = 1 << 20;

/// Follows the name of a stray that cannot have its own.
const SUFFIX: &str = ".stray";

/// What the user of a fork was not told yet; it outlives the daemon.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Untold {
    /// In the order in which they came.
    pub brought: Vec<Stray>,
    /// Why those that lie under the mount stay there. It is told until they come.
    pub failed: Option<Failure>,
}

impl Untold {
    /// A record that cannot be read says nothing.
    pub(crate) fn of(store: &Store, name: &ForkName) -> Untold {
        store
            .untold(name)
            .unwrap_or_else(|error| {
                log::warn!("{name}: {error}");
                None
            })
            .unwrap_or_default()
    }

    fn write(&self, store: &Store, name: &ForkName) {
        let is_empty = *self == Untold::default();
        if let Err(error) = store.note_untold(name, (!is_empty).then_some(self)) {
            log::warn!("{name}: what came in from under the mount may not be told: {error}");
        }
    }

    /// Takes strays out that somebody was told of.
    pub(crate) fn told(store: &Store, name: &ForkName, told: &[Stray]) {
        let mut untold = Untold::of(store, name);
        untold.brought.retain(|stray| !told.contains(stray));
        untold.write(store, name);
    }
}

/// What lies at the mount place `dir` of a fork that is not mounted, by its name there. What cannot
/// be read is not told.
pub(crate) fn lying_at(dir: &Path) -> Vec<PathText> {
    let names = tine_fuse::lying_at(dir).unwrap_or_else(|error| {
        log::debug!("what lies at {} cannot be told: {error}", dir.display());
        Vec::new()
    });
    names
        .iter()
        .map(|name| PathText::from(name.as_slice()))
        .collect()
}

/// What a fork that is deleted leaves at its mount place `dir`.
pub(crate) fn left_at(dir: &Path) -> Option<LeftInPlace> {
    let paths = lying_at(dir);
    (!paths.is_empty()).then(|| LeftInPlace {
        mount_dir: dir.to_owned(),
        paths,
    })
}

/// Brings what lies under a new mount into its fork, and notes what is to be told of it.
pub(crate) fn under(store: &Store, name: &ForkName, fork: &Fork, mount: &FuseMount) {
    let Some(ground) = mount.take_ground() else {
        return;
    };
    let before = Untold::of(store, name);
    let brought_with = |strays: &[Stray]| {
        let new = strays
            .iter()
            .filter(|stray| !before.brought.contains(stray));
        before.brought.iter().chain(new).cloned().collect()
    };
    // Before they come: a daemon that dies in between must not keep it to itself.
    let note = |strays: &[Stray]| {
        let untold = Untold {
            brought: brought_with(strays),
            failed: None,
        };
        if untold != before {
            untold.write(store, name);
        }
    };
    if let Err(failure) = take_in(fork, &ground, mount.dir(), note) {
        let failure = failure.context(format!(
            "what programs wrote to {} while nothing was mounted there stays under the mount",
            mount.dir().display()
        ));
        log::error!("{failure}");
        let untold = Untold {
            brought: before.brought.clone(),
            failed: Some(failure),
        };
        untold.write(store, name);
    }
}

/// Brings what lies under a mount into its fork; `note` is told before what comes of each file that
/// the fork does not have as it is. A place that holds nothing is the usual case.
///
/// # Errors
/// Where the fork cannot take them: then they stay where they are.
fn take_in(
    fork: &Fork,
    ground: &MountPoint,
    dir: &Path,
    note: impl FnOnce(&[Stray]),
) -> Result<(), Failure> {
    let top = ground.path();
    let read = |error: io::Error| Failure::io("look under the mount at", dir, &error);
    if ground.is_empty().map_err(read)? {
        note(&[]);
        return Ok(());
    }
    let mut found = Found {
        workspace: &fork.workspace,
        replacements: Vec::new(),
        coming: HashSet::new(),
        seen: Vec::new(),
        strays: Vec::new(),
    };
    found
        .look_into(&top, &RepoPath::root(), &RepoPath::root())
        .map_err(read)?;
    let Found {
        replacements,
        seen,
        strays,
        ..
    } = found;
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
    // Nobody but this process reaches the directory under a live mount.
    ground.unshut();
    for one in seen.iter().rev() {
        // One that somebody still writes stays, and is looked at with the next mount.
        if let Err(error) = one.remove() {
            log::warn!("{} stays under the mount: {error}", one.path.display());
        }
    }
    ground.shut();
    log::warn!(
        "{} strays at {} are in the fork now",
        strays.len(),
        dir.display()
    );
    Ok(())
}

/// A file or directory of the place, to be removed.
struct Seen {
    path: PathBuf,
    is_dir: bool,
    /// Size, and time of the last change.
    stamp: (u64, i64, i64),
}

impl Seen {
    fn remove(&self) -> io::Result<()> {
        if self.is_dir {
            return fs::remove_dir(&self.path);
        }
        let found = fs::symlink_metadata(&self.path)?;
        // What is written to a file without a name goes nowhere.
        let is_open =
            || tine_sys::file::open(&self.path).is_ok_and(|file| file::is_open_elsewhere(&file));
        match stamp(&found) == self.stamp && !(found.is_file() && is_open()) {
            true => fs::remove_file(&self.path),
            false => Err(io::ErrorKind::ResourceBusy.into()),
        }
    }
}

fn stamp(meta: &fs::Metadata) -> (u64, i64, i64) {
    (meta.size(), meta.mtime(), meta.mtime_nsec())
}

struct Found<'a> {
    workspace: &'a Workspace,
    replacements: Vec<Replacement>,
    /// Paths that the replacements make.
    coming: HashSet<RepoPath>,
    /// Directories come before what is in them.
    seen: Vec<Seen>,
    strays: Vec<Stray>,
}

impl Found<'_> {
    /// Looks at what is in the directory `host`: it was meant to be at `meant` in the fork, and
    /// goes to `to`.
    fn look_into(&mut self, host: &Path, meant: &RepoPath, to: &RepoPath) -> io::Result<()> {
        let mut entries = fs::read_dir(host)?.collect::<io::Result<Vec<_>>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let Ok(name) = EntryName::new(entry.file_name().as_bytes()) else {
                continue;
            };
            let path = entry.path();
            let meta = fs::symlink_metadata(&path)?;
            if meant.is_root() && name.is_dot_git() {
                // The fork has one, and a file says nothing that it does not.
                if meta.is_file() {
                    self.see(path, &meta);
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

    fn see(&mut self, path: PathBuf, meta: &fs::Metadata) {
        self.seen.push(Seen {
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
        self.see(path.clone(), meta);
        self.look_into(&path, meant, &to)
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
            // A socket or a pipe has no content.
            log::warn!("{} stays under the mount: it is not a file", path.display());
            return Ok(());
        };
        self.see(path, meta);
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
            // Something is there that cannot be looked at.
            Err(_) => Some(FileKind::Fifo),
        }
    }

    /// Whether the fork's file holds the bytes of the one at `host`.
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

    /// The first free name beside `path`.
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
