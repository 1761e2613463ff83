//! Ignored files of the main checkout that a fork shows.
//!
//! They are below the fork's layers, and a fork never writes to them.
//!
//! ```text
//! lookup of a name:  layers ─► base ─► carry, if the directory has or is in a carried root
//! ```
//!
//! The main checkout keeps changing, and nothing notifies tine. So a carried file is one *version*
//! of a file: its inode number is a hash of its path and of the attributes that identify the
//! version. When the main checkout changes the file, the name leads to another number. Reads of the
//! old number fail ([`FsError::Stale`]), so the kernel's cache of one number never holds bytes of
//! two versions.
//!
//! A directory keeps its number and shows its current content, except for files that are not older
//! than the fork ([`Carry::came_later`]). A dependency tree with a [`generation`] in the store is
//! shown as of that generation, whatever the main checkout does. Files that come with a later
//! generation have the time of their [`arrivals`].
//!
//! When a fork changes a carried file, the file becomes the fork's: its node is put into the layer,
//! with the nodes of the carried directories above it.

pub mod arrivals;
pub mod difference;
mod files;
pub mod generation;
mod listing;
pub mod record;
mod secrets;
mod since;
pub mod tree;

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock};

use self::arrivals::Arrivals;
use self::generation::Generation;
use super::error::FsError;
use tine_attr::{Attr, FileKind, Ino, InoMap, Timestamp};
use tine_git::InoHasher;
use tine_git::patterns::PatternSet;
use tine_layer::{CarriedContent, FileVersion};
use tine_path::{EntryName, RepoPath};
use tine_sys::beneath::{self, Access, HostStat};

pub(super) use files::CarriedFile;
pub(super) use listing::CarriedName;
pub use record::{CarryRecord, CarryRules, DependencyTree};
pub use secrets::{is_secret, named_secrets};
pub use since::moment_by;

/// Carried node with its attributes.
#[derive(Clone, Debug)]
pub(super) struct CarriedNode {
    pub path: RepoPath,
    pub attr: Attr,
    /// `None` for a directory.
    pub version: Option<FileVersion>,
}

impl CarriedNode {
    pub(crate) fn ino(&self) -> Ino {
        self.attr.ino
    }

    pub(crate) fn is_dir(&self) -> bool {
        self.attr.kind == FileKind::Directory
    }

    /// Returns the reference to it that a layer stores.
    pub(crate) fn content(&self) -> CarriedContent {
        CarriedContent {
            path: self.path.clone(),
            version: self.version,
        }
    }
}

/// Carried root, listed under the directory that holds it.
struct Root {
    name: EntryName,
    is_dir: bool,
    /// True if it existed at the last lookup.
    was_there: AtomicBool,
}

/// Dependency tree that is shown as of a generation.
struct KeptTree {
    /// Path from the top of the main checkout.
    path: RepoPath,
    generation: Arc<Generation>,
    arrivals: Arc<Arrivals>,
}

impl KeptTree {
    /// Returns the place of `path` in the generation.
    fn at(&self, path: &RepoPath) -> FrozenPlace {
        FrozenPlace {
            generation: self.generation.clone(),
            arrivals: self.arrivals.clone(),
            start: (self.path.as_bytes().len() + 1).min(path.as_bytes().len()),
        }
    }
}

/// Place in a generation.
struct FrozenPlace {
    generation: Arc<Generation>,
    arrivals: Arc<Arrivals>,
    /// Offset in a checkout path at which the tree's path begins.
    start: usize,
}

impl FrozenPlace {
    fn stat(&self, path: &RepoPath) -> Option<HostStat> {
        self.generation.stat(self.below(path)).copied()
    }

    fn below<'p>(&self, path: &'p RepoPath) -> &'p [u8] {
        path.as_bytes().get(self.start..).unwrap_or_default()
    }
}

/// Carried files of one fork. All methods may be called from any thread.
pub struct Carry {
    /// Top directory of the main checkout.
    top: File,
    device: u64,
    hasher: InoHasher,
    /// By the directory that holds them. Immutable.
    roots: HashMap<RepoPath, Vec<Root>>,
    /// Carried paths in roots that are carried in part, by root. Immutable.
    partial: HashMap<RepoPath, Vec<RepoPath>>,
    /// Patterns of secrets that were asked for by name. Immutable.
    named: PatternSet,
    /// Paths of dependency trees. Immutable.
    trees: Vec<RepoPath>,
    /// Time from which changed files below carried directories are hidden. Immutable.
    since: Option<Timestamp>,
    /// Generations of trees, newest first.
    ///
    /// The first of a tree is shown. The others serve programs with open files of them.
    kept: RwLock<Vec<KeptTree>>,
    /// Last seen mtime and ctime of directories that the fork changed, too.
    ///
    /// The times are those in the main checkout; `None` if the directory is gone there.
    moments: Mutex<InoMap<Option<(Timestamp, Timestamp)>>>,
    /// Directories with changed names, not yet reported.
    changed_dirs: Mutex<Vec<Ino>>,
    files: files::OpenFiles,
    dirs: listing::Dirs,
}

impl Carry {
    /// Opens the main checkout that `record` names.
    ///
    /// # Errors
    /// [`io::Error`] if the main checkout cannot be opened or a pattern is invalid.
    pub fn open(record: &CarryRecord, hasher: InoHasher) -> io::Result<Carry> {
        let top = beneath::open_top(&record.from)?;
        let device = beneath::stat(&top)?.dev;
        let mut roots: HashMap<RepoPath, Vec<Root>> = HashMap::new();
        for root in record.roots() {
            if let Some((parent, name)) = root.path.split_last() {
                roots.entry(parent).or_default().push(Root {
                    name,
                    is_dir: root.is_dir,
                    was_there: AtomicBool::new(true),
                });
            }
        }
        let mut partial: HashMap<RepoPath, Vec<RepoPath>> = HashMap::new();
        let all_roots: Vec<RepoPath> = record.roots().map(|root| root.path).collect();
        for only in record.only() {
            if let Some(root) = all_roots.iter().find(|root| only.path.starts_with(root)) {
                partial.entry(root.clone()).or_default().push(only.path);
            }
        }
        Ok(Carry {
            top,
            device,
            hasher,
            roots,
            partial,
            named: PatternSet::parse(&record.named_text()).map_err(io::Error::other)?,
            trees: record.tree_paths().collect(),
            since: record.since,
            kept: RwLock::default(),
            moments: Mutex::default(),
            changed_dirs: Mutex::default(),
            files: files::OpenFiles::default(),
            dirs: listing::Dirs::default(),
        })
    }

    /// Shows the dependency tree at `path` as of `generation` from now on.
    ///
    /// Files have the times of `arrivals`. Returns the generation shown before.
    pub fn show_generation(
        &self,
        path: RepoPath,
        generation: Arc<Generation>,
        arrivals: Arc<Arrivals>,
    ) -> Option<Arc<Generation>> {
        let mut kept = self.kept.write();
        let before = kept.iter().find(|kept| kept.path == path);
        let before = before.map(|before| before.generation.clone());
        let shown = KeptTree {
            path,
            generation,
            arrivals,
        };
        kept.insert(0, shown);
        before
    }

    /// Returns the files that `generation` adds for the fork.
    ///
    /// They changed later than the fork was made, and were hidden while it followed the main
    /// checkout.
    pub(super) fn late_files<'g>(
        &self,
        generation: &'g Generation,
    ) -> impl Iterator<Item = Box<[u8]>> + use<'g> {
        let since = self.since;
        since
            .into_iter()
            .flat_map(|since| generation.changed_since(since))
    }

    /// Returns the generation that shows `path`; `None` for the main checkout.
    fn shown_by(&self, path: &RepoPath) -> Option<FrozenPlace> {
        let kept = self.kept.read();
        let kept = kept.iter().find(|kept| path.starts_with(&kept.path))?;
        Some(kept.at(path))
    }

    /// Finds the generation with this version of the file at `path`.
    fn frozen_version(&self, path: &RepoPath, version: &FileVersion) -> Option<FrozenPlace> {
        let kept = self.kept.read();
        let of_path = kept.iter().filter(|kept| path.starts_with(&kept.path));
        let mut of_path = of_path.map(|kept| kept.at(path));
        of_path.find(|frozen| frozen.generation.has(frozen.below(path), version))
    }

    /// Returns whether the base directory holds carried roots.
    pub fn has_roots_in(&self, dir: &RepoPath) -> bool {
        self.roots.contains_key(dir)
    }

    /// Returns whether a carried root of this name belongs in the directory.
    pub fn has_root(&self, dir: &RepoPath, name: &[u8]) -> bool {
        let roots = self.roots.get(dir).into_iter().flatten();
        roots.into_iter().any(|root| root.name.as_bytes() == name)
    }

    /// Counts the carried roots in the base directory that are directories.
    pub fn dir_roots_in(&self, dir: &RepoPath) -> u32 {
        let roots = self.roots.get(dir).into_iter().flatten();
        u32::try_from(roots.filter(|root| root.is_dir).count()).unwrap_or(u32::MAX)
    }

    fn is_root(&self, path: &RepoPath) -> bool {
        path.split_last()
            .is_some_and(|(parent, name)| self.has_root(&parent, name.as_bytes()))
    }

    /// Looks up the carried root `name` in a base directory.
    pub(super) fn root(&self, dir: &RepoPath, name: &[u8]) -> Result<Option<CarriedNode>, FsError> {
        let roots = self.roots.get(dir).into_iter().flatten();
        match roots.into_iter().find(|root| root.name.as_bytes() == name) {
            Some(root) => {
                let node = self.node(&dir.join(&root.name))?;
                if root.was_there.swap(node.is_some(), Ordering::Relaxed) != node.is_some() {
                    self.changed_dirs.lock().push(self.hasher.ino(dir));
                }
                Ok(node)
            }
            None => Ok(None),
        }
    }

    /// Records the times of a directory in the main checkout.
    ///
    /// `None`: it is gone. If they differ from the last ones, the directory is reported as changed.
    pub(super) fn note_listing(&self, ino: Ino, moment: Option<(Timestamp, Timestamp)>) {
        let before = self.moments.lock().insert(ino, moment);
        if before.is_some_and(|before| before != moment) {
            self.changed_dirs.lock().push(ino);
        }
    }

    /// Returns the directories whose names changed since the last call.
    pub(super) fn take_changed_dirs(&self) -> Vec<Ino> {
        std::mem::take(&mut *self.changed_dirs.lock())
    }

    /// Looks up `name` in the carried directory `dir`.
    pub(super) fn child(
        &self,
        dir: &RepoPath,
        name: &[u8],
    ) -> Result<Option<CarriedNode>, FsError> {
        match EntryName::new(name) {
            Ok(name) => self.node(&dir.join(&name)),
            Err(_) => Ok(None),
        }
    }

    /// Looks up `path`, which is a carried root or below one.
    pub(super) fn node(&self, path: &RepoPath) -> Result<Option<CarriedNode>, FsError> {
        if let Some(frozen) = self.shown_by(path) {
            let stat = frozen.stat(path);
            let node = stat.and_then(|stat| self.carried(path.clone(), &stat));
            return Ok(node.map(|node| CarriedNode {
                attr: frozen.arrivals.shown(frozen.below(path), node.attr),
                ..node
            }));
        }
        let found = beneath::open(&self.top, path.as_path(), Access::Attributes)
            .and_then(|file| beneath::stat(&file));
        Ok(found_or_none(found)?.and_then(|stat| self.shown(path.clone(), &stat)))
    }

    /// Returns the node for a main checkout's file, if shown.
    fn shown(&self, path: RepoPath, stat: &HostStat) -> Option<CarriedNode> {
        let is_in_tree = self.trees.iter().any(|tree| path.starts_with(tree));
        let changed = if is_in_tree {
            changed_in_tree(stat)
        } else {
            stat.ctime
        };
        let is_later = stat.kind != FileKind::Directory && self.came_later(&path, changed);
        // A symlink in the place of a chosen directory may lead anywhere, even into the main
        // checkout.
        let is_of_its_kind = stat.kind == FileKind::Directory || !self.is_dir_root(&path);
        if stat.dev == self.device && !is_later && is_of_its_kind {
            self.carried(path, stat)
        } else {
            None
        }
    }

    /// Returns whether the path was chosen as a directory.
    fn is_dir_root(&self, path: &RepoPath) -> bool {
        let Some((parent, name)) = path.split_last() else {
            return false;
        };
        let roots = self.roots.get(&parent).into_iter().flatten();
        roots
            .into_iter()
            .any(|root| root.is_dir && root.name == name)
    }

    /// Returns the node, unless it is hidden.
    fn carried(&self, path: RepoPath, stat: &HostStat) -> Option<CarriedNode> {
        if self.hides(&path, stat.kind) {
            return None;
        }
        let version = match stat.kind {
            FileKind::Directory => None,
            FileKind::Regular | FileKind::Symlink => Some(version_of(stat)),
            FileKind::Fifo | FileKind::Socket | FileKind::CharDevice | FileKind::BlockDevice => {
                return None;
            }
        };
        let ino = match &version {
            None => self.hasher.ino(&path),
            Some(version) => self.number(&path, version),
        };
        let is_dir = version.is_none();
        let attr = Attr {
            ino,
            kind: stat.kind,
            perm: stat.perm,
            // Other names of the file may be anywhere.
            nlink: if is_dir {
                u32::try_from(stat.nlink).unwrap_or(u32::MAX)
            } else {
                1
            },
            uid: stat.uid,
            gid: stat.gid,
            rdev: 0,
            size: if is_dir { 0 } else { stat.size },
            blocks: if is_dir { 0 } else { stat.blocks },
            atime: stat.atime,
            mtime: stat.mtime,
            ctime: stat.ctime,
        };
        Some(CarriedNode {
            path,
            attr,
            version,
        })
    }

    /// Returns the inode number of one version of the file at `path`.
    pub(super) fn number(&self, path: &RepoPath, version: &FileVersion) -> Ino {
        self.other_number(path, version, 0)
    }

    /// Returns the substitute number `salt` if [`Carry::number`] is taken.
    pub(super) fn other_number(&self, path: &RepoPath, version: &FileVersion, salt: u64) -> Ino {
        let FileVersion {
            host_ino,
            size,
            mtime,
            ctime,
        } = version;
        self.hasher.version_ino(
            path,
            &[
                *host_ino,
                *size,
                mtime.secs.cast_unsigned(),
                mtime.nanos.into(),
                ctime.secs.cast_unsigned(),
                ctime.nanos.into(),
                salt,
            ],
        )
    }

    /// Returns whether the fork must not see `path`.
    ///
    /// Hidden are `.git` files, `.git` directories at a root, paths that are not chosen in a root
    /// carried in part, and secrets that were not asked for by name.
    fn hides(&self, path: &RepoPath, kind: FileKind) -> bool {
        let Some((parent, name)) = path.split_last() else {
            return true;
        };
        if name.is_dot_git()
            && (kind != FileKind::Directory || self.is_root(path) || self.is_root(&parent))
        {
            return true;
        }
        let is_left_out = |only: &Vec<RepoPath>| {
            !only
                .iter()
                .any(|only| path.starts_with(only) || only.starts_with(path))
        };
        if !self.partial.is_empty()
            && let Some(root) = path
                .components()
                .scan(RepoPath::root(), |at, name| {
                    at.push(&name);
                    Some(at.clone())
                })
                .find(|at| self.is_root(at))
            && self.partial.get(&root).is_some_and(is_left_out)
        {
            return true;
        }
        is_secret(path) && !self.named.choose(path, kind == FileKind::Directory)
    }

    /// Lists the carried directories above a node, nearest first.
    ///
    /// The last one is its root.
    pub(super) fn dirs_above(&self, path: &RepoPath) -> Vec<RepoPath> {
        let mut above = Vec::new();
        let mut at = path.clone();
        while !self.is_root(&at) {
            let Some((parent, _)) = at.split_last() else {
                break;
            };
            above.push(parent.clone());
            at = parent;
        }
        above
    }
}

/// Returns the last change of a file in a dependency tree.
///
/// This is the ctime, or the mtime of a file with several hard links: package stores share files,
/// and each new link changes the ctime.
fn changed_in_tree(stat: &HostStat) -> Timestamp {
    if stat.nlink > 1 {
        stat.mtime
    } else {
        stat.ctime
    }
}

pub(super) fn version_of(stat: &HostStat) -> FileVersion {
    FileVersion {
        host_ino: stat.ino,
        size: stat.size,
        mtime: stat.mtime,
        ctime: stat.ctime,
    }
}

/// Treats a missing or unreachable path as `None`.
///
/// `ELOOP` is a symlink on the way, `EXDEV` another file system.
fn found_or_none<T>(found: io::Result<T>) -> Result<Option<T>, FsError> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) => match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP | libc::EXDEV | libc::ESTALE) => {
                Ok(None)
            }
            _ => Err(host_error(error)),
        },
    }
}

fn host_error(error: io::Error) -> FsError {
    match error.kind() {
        io::ErrorKind::PermissionDenied => FsError::AccessDenied,
        // It existed when it was looked up.
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => FsError::Stale,
        _ => match error.raw_os_error() {
            Some(libc::ELOOP | libc::EXDEV | libc::ENXIO) => FsError::Stale,
            _ => FsError::Carried(error),
        },
    }
}
