//! Listing of a dependency tree, and detection of changes in it.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use sha1::{Digest, Sha1};

use super::generation::GenerationId;
use tine_attr::{FileKind, Timestamp};
use tine_path::RepoPath;
use tine_sys::beneath::{self, Access, HostStat};

/// Names of dependency trees if `tine.dependencyTrees` is not set.
pub const DEPENDENCY_NAMES: [&str; 2] = ["node_modules", "vendor"];

/// Name of the file at the root of a Python virtual environment.
pub const VENV_MARK: &str = "pyvenv.cfg";

/// Caches at a tree's root that tools write while reading it.
const CACHES: [&[u8]; 3] = [b".cache", b".vite", b".vite-temp"];
/// Name of such a cache in any directory.
const PYCACHE: &[u8] = b"__pycache__";

/// Maximum number of landmarks below the root, nearest to it first.
const MAX_LANDMARKS: usize = 512;

/// File, directory or symlink of a tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedFile {
    /// Path from the tree's root.
    pub path: Box<[u8]>,
    /// Attributes in the main checkout.
    pub stat: HostStat,
    /// Target of a symlink; otherwise `None`.
    pub target: Option<Box<[u8]>>,
    /// Offset of a file's bytes in the pack; otherwise 0.
    pub offset: u64,
}

/// Relation of a directory in a tree to packages.
#[derive(PartialEq, Eq)]
enum Place {
    /// The names in it are packages.
    ///
    /// It is the root, a scope, the store of a package manager, or the packages of a virtual
    /// environment.
    OfPackages,
    /// A directory with packages is below it.
    Above,
}

/// Returns the relation of `dir` to packages.
///
/// `dir` is a path from the root of a tree.
fn place_of(dir: &[u8]) -> Option<Place> {
    let mut names: Vec<&[u8]> = dir.split(|byte| *byte == b'/').collect();
    names.pop_if(|name| name.starts_with(b"@") || name.is_empty());
    match names.as_slice() {
        [] | [b".pnpm"] | [b".pnpm", _, b"node_modules"] | [b"lib", _, b"site-packages"] => {
            Some(Place::OfPackages)
        }
        [b".pnpm", _] | [b"lib"] | [b"lib", _] => Some(Place::Above),
        _ => None,
    }
}

/// Counts package names as [`TreeListing::package_names`] does, without a listing.
///
/// `root` is the tree's directory. Only directories that lead to packages are read.
pub fn count_package_names(root: &Path) -> u64 {
    count_in(root, &mut Vec::new())
}

fn count_in(root: &Path, dir: &mut Vec<u8>) -> u64 {
    let Some(place) = place_of(dir) else {
        return 0;
    };
    let listed = std::fs::read_dir(root.join(OsStr::from_bytes(dir)));
    let mut count = 0;
    for entry in listed.into_iter().flatten().flatten() {
        count += u64::from(place == Place::OfPackages);
        let len = dir.len();
        if !dir.is_empty() {
            dir.push(b'/');
        }
        dir.extend_from_slice(entry.file_name().as_bytes());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            count += count_in(root, dir);
        }
        dir.truncate(len);
    }
    count
}

/// Returns whether the path is a cache or in one.
fn is_cache(path: &[u8]) -> bool {
    let mut names = path.split(|byte| *byte == b'/');
    CACHES
        .iter()
        .any(|cache| names.clone().next() == Some(*cache))
        || names.any(|name| name == PYCACHE)
}

impl ListedFile {
    /// Returns whether it is a cache or in one.
    pub fn is_cache(&self) -> bool {
        is_cache(&self.path)
    }

    /// Returns the time of the last change.
    ///
    /// This is the ctime, or the mtime of a file with several hard links: package stores share
    /// files between projects, and each new link changes the ctime.
    fn changed(&self) -> Timestamp {
        if self.stat.kind == FileKind::Regular && self.stat.nlink > 1 {
            self.stat.mtime
        } else {
            self.stat.ctime
        }
    }
}

/// All entries of a tree, parents before children.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeListing {
    /// Attributes of the root directory.
    pub root: HostStat,
    /// Entries below the root.
    pub entries: Vec<ListedFile>,
}

impl TreeListing {
    /// Counts the names at the root and in directories of packages.
    pub fn package_names(&self) -> u64 {
        let is_beside_packages = |entry: &&ListedFile| {
            let dir = entry.path.iter().rposition(|byte| *byte == b'/');
            place_of(dir.map_or(&[], |end| &entry.path[..end])) == Some(Place::OfPackages)
        };
        self.entries.iter().filter(is_beside_packages).count() as u64
    }

    /// Lists the tree at `path` below `top`.
    ///
    /// Sockets, fifos, devices and mounted file systems are left out.
    ///
    /// # Errors
    /// [`io::Error`] if a directory or entry cannot be read.
    pub fn of(top: &File, path: &RepoPath) -> io::Result<TreeListing> {
        let root = beneath::stat(&beneath::open(top, path.as_path(), Access::Attributes)?)?;
        let mut entries = Vec::new();
        // By path: a tree may have more directories than a process may have open.
        let mut left = vec![Vec::new()];
        while let Some(at) = left.pop() {
            match listed_in(top, path, &at, root.dev) {
                Ok(found) => {
                    let is_dir = |entry: &&ListedFile| entry.stat.kind == FileKind::Directory;
                    left.extend(found.iter().filter(is_dir).map(|entry| entry.path.to_vec()));
                    entries.extend(found);
                }
                // Tools clear their caches at any time.
                Err(error) if error.kind() == io::ErrorKind::NotFound && is_cache(&at) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(TreeListing { root, entries })
    }

    /// Hashes the tree into a name for this version of it.
    ///
    /// Contents of caches and times of directories are not part of the hash.
    pub fn id(&self) -> GenerationId {
        let mut hash = Sha1::new();
        let mut entries: Vec<&ListedFile> = self
            .entries
            .iter()
            .filter(|entry| !entry.is_cache())
            .collect();
        entries.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        for entry in entries {
            let stat = &entry.stat;
            hash.update((entry.path.len() as u64).to_le_bytes());
            hash.update(&entry.path);
            let kind = [stat.kind as u8];
            let numbers = match stat.kind {
                FileKind::Directory => vec![stat.perm.into(), stat.uid.into(), stat.gid.into()],
                _ => {
                    let changed = entry.changed();
                    vec![
                        stat.perm.into(),
                        stat.uid.into(),
                        stat.gid.into(),
                        stat.ino,
                        stat.size,
                        stat.mtime.secs.cast_unsigned(),
                        stat.mtime.nanos.into(),
                        changed.secs.cast_unsigned(),
                        changed.nanos.into(),
                    ]
                }
            };
            hash.update(kind);
            for number in numbers {
                hash.update(u64::to_le_bytes(number));
            }
            hash.update(entry.target.as_deref().unwrap_or_default());
        }
        GenerationId::of(hash.finalize().into())
    }

    /// Returns whether nothing in it was changed for the time `needed`.
    ///
    /// Then a change from now on is visible in its times.
    pub fn is_quiet(&self, needed: Duration) -> bool {
        let entries = self.entries.iter().filter(|entry| !entry.is_cache());
        // The mtime of a file with several names may be arbitrary.
        let changed = entries.map(|entry| entry.changed().min(entry.stat.ctime));
        let newest = changed.chain([self.root.ctime]).max();
        let newest = newest.map_or(SystemTime::UNIX_EPOCH, SystemTime::from);
        SystemTime::now()
            .duration_since(newest)
            .is_ok_and(|age| age >= needed)
    }

    /// Returns its landmarks: the root, the files there, and directories.
    pub fn landmarks(&self) -> Vec<Landmark> {
        let depth = |entry: &&ListedFile| entry.path.iter().filter(|byte| **byte == b'/').count();
        let mut marks: Vec<&ListedFile> = self
            .entries
            .iter()
            .filter(|entry| !entry.is_cache())
            .filter(|entry| {
                entry.stat.kind == FileKind::Directory
                    || entry.stat.kind == FileKind::Regular && depth(entry) == 0
            })
            .collect();
        marks.sort_by_key(depth);
        marks.truncate(MAX_LANDMARKS);
        let mut names: HashMap<&[u8], NameSum> = HashMap::new();
        for entry in self.entries.iter().filter(|entry| !entry.is_cache()) {
            let (dir, name) = split(&entry.path);
            names.entry(dir).or_default().add(name, &entry.stat);
        }
        let mut mark = |path: &[u8], stat: &HostStat| Landmark {
            path: path.into(),
            ino: stat.ino,
            size: stat.size,
            mtime: stat.mtime,
            names: names.remove(path).unwrap_or_default(),
        };
        let mut landmarks = vec![mark(b"", &self.root)];
        landmarks.extend(
            marks
                .into_iter()
                .map(|entry| mark(&entry.path, &entry.stat)),
        );
        landmarks
    }
}

/// Lists the directory at `at` of the tree by name.
fn listed_in(top: &File, tree: &RepoPath, at: &[u8], device: u64) -> io::Result<Vec<ListedFile>> {
    let dir = beneath::open(top, below(tree, at)?.as_path(), Access::Read)?;
    let mut names = beneath::list(dir.try_clone()?)?;
    names.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    let mut found = Vec::with_capacity(names.len());
    for (name, _) in names {
        let path = if at.is_empty() {
            name.clone()
        } else {
            [at, b"/", &name].concat()
        };
        match listed(&dir, &name, &path) {
            Ok(entry) => found.extend(entry.filter(|entry| entry.stat.dev == device)),
            Err(error) if error.kind() == io::ErrorKind::NotFound && is_cache(&path) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Returns the entry `name` of the open directory; `None` if left out.
///
/// `path` is its path from the tree's root.
fn listed(dir: &File, name: &[u8], path: &[u8]) -> io::Result<Option<ListedFile>> {
    let stat = match beneath::stat_in(dir, name) {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => return Ok(None),
        stat => stat?,
    };
    let target = match stat.kind {
        FileKind::Regular | FileKind::Directory => None,
        FileKind::Symlink => {
            let link = beneath::open(dir, Path::new(OsStr::from_bytes(name)), Access::Attributes)?;
            Some(beneath::read_link(&link)?.into())
        }
        FileKind::Fifo | FileKind::Socket | FileKind::CharDevice | FileKind::BlockDevice => {
            return Ok(None);
        }
    };
    Ok(Some(ListedFile {
        path: path.into(),
        stat,
        target,
        offset: 0,
    }))
}

/// Returns the checkout path of `path`, which is relative to the tree.
///
/// # Errors
/// [`io::Error`] if the result is not a valid path.
pub fn below(tree: &RepoPath, path: &[u8]) -> io::Result<RepoPath> {
    if path.is_empty() {
        Ok(tree.clone())
    } else {
        RepoPath::parse([tree.as_bytes(), b"/", path].concat()).map_err(io::Error::other)
    }
}

/// Splits a path into its directory and its name.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}

/// Hash of a directory's names and inode numbers, independent of order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameSum(u64);

impl NameSum {
    fn add(&mut self, name: &[u8], stat: &HostStat) {
        let mut hash = Sha1::new();
        hash.update(stat.ino.to_le_bytes());
        hash.update(name);
        let digest: [u8; 20] = hash.finalize().into();
        let (first, _) = digest.split_first_chunk::<8>().unwrap_or((&[0; 8], &[]));
        self.0 = self.0.wrapping_add(u64::from_le_bytes(*first));
    }
}

/// Directory, or file at the root, at the time of a generation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Landmark {
    path: Box<[u8]>,
    ino: u64,
    size: u64,
    mtime: Timestamp,
    /// Hash of a directory's names; default for a file.
    names: NameSum,
}

impl Landmark {
    /// Returns whether this part of the tree is unchanged below `top`.
    pub fn is_unchanged(&self, top: &File, tree: &RepoPath) -> bool {
        let read = || -> io::Result<bool> {
            let path = below(tree, &self.path)?;
            let found = beneath::open(top, path.as_path(), Access::Attributes)?;
            let stat = beneath::stat(&found)?;
            if stat.ino != self.ino {
                return Ok(false);
            }
            if stat.kind != FileKind::Directory {
                return Ok((stat.size, stat.mtime) == (self.size, self.mtime));
            }
            // Only a cache may have come or gone.
            Ok(stat.mtime == self.mtime || self.names_in(&path, top)? == self.names)
        };
        read().unwrap_or(false)
    }

    fn names_in(&self, path: &RepoPath, top: &File) -> io::Result<NameSum> {
        let dir = beneath::open(top, path.as_path(), Access::Read)?;
        let mut names = NameSum::default();
        for (name, _) in beneath::list(dir.try_clone()?)? {
            if name == PYCACHE || self.path.is_empty() && CACHES.contains(&name.as_slice()) {
                continue;
            }
            let stat = match beneath::stat_in(&dir, &name) {
                Err(error) if error.kind() == io::ErrorKind::Unsupported => continue,
                stat => stat?,
            };
            let is_kept = matches!(
                stat.kind,
                FileKind::Regular | FileKind::Directory | FileKind::Symlink
            );
            if is_kept {
                names.add(&name, &stat);
            }
        }
        Ok(names)
    }
}
