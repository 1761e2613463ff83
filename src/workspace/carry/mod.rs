//! What a fork carries: ignored files of the main checkout, seen beneath its layers and never
//! written.
//!
//! ```text
//! a name in a directory:  layers ─► base ─► carry, where the directory holds a carried root or lies beneath one
//! ```
//!
//! The main checkout goes on changing, and nobody tells. So a carried file is one *version* of a
//! file: its number is a hash of its path and of what tells this version from others. When the main
//! checkout changes it, the name leads to another number; whoever reads the old one is refused
//! ([`FsError::Stale`]), and the kernel's cache of one number never holds bytes of two versions. A
//! directory keeps its number and shows what it holds at the moment, but for files that are not
//! older than the fork ([`Carry::came_later`]). A dependency tree of which the store keeps a
//! [`generation`] is shown as that has it, whatever the main checkout does; what was
//! taken up later has the time of [`arrivals`].
//!
//! What is changed in a fork is the fork's from then on: its node is put into the layer, with those
//! of the carried directories above, each at the name that it has.

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
pub(super) use secrets::{is_secret, named_secrets};
pub(super) use since::moment_by;

/// A carried node as it was looked at.
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

    /// What a layer remembers of it.
    pub(crate) fn content(&self) -> CarriedContent {
        CarriedContent {
            path: self.path.clone(),
            version: self.version,
        }
    }
}

/// A carried root, in the directory that holds it.
struct Root {
    name: EntryName,
    is_dir: bool,
    /// Whether it was there when it was looked for last.
    was_there: AtomicBool,
}

/// A dependency tree that is shown as a generation has it.
struct KeptTree {
    /// Where the main checkout has it.
    path: RepoPath,
    generation: Arc<Generation>,
    arrivals: Arc<Arrivals>,
}

impl KeptTree {
    /// What it has at `path`, which is in the tree.
    fn at(&self, path: &RepoPath) -> FrozenPlace {
        FrozenPlace {
            generation: self.generation.clone(),
            arrivals: self.arrivals.clone(),
            start: (self.path.as_bytes().len() + 1).min(path.as_bytes().len()),
        }
    }
}

/// A place in a generation.
struct FrozenPlace {
    generation: Arc<Generation>,
    arrivals: Arc<Arrivals>,
    /// Where the path from the root of the tree begins in the path from the top of the checkout.
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

/// The carried files of one fork. All methods may be called from any thread.
pub struct Carry {
    /// The top of the main checkout.
    top: File,
    device: u64,
    hasher: InoHasher,
    /// By the directory that holds them. Immutable.
    roots: HashMap<RepoPath, Vec<Root>>,
    /// By root that is not carried as a whole, what is carried in it. Immutable.
    partial: HashMap<RepoPath, Vec<RepoPath>>,
    /// Secrets that somebody asked for by name.
    named: PatternSet,
    /// Where dependency trees are. Immutable.
    trees: Vec<RepoPath>,
    /// Of files beneath carried directories, those that changed at this moment or later are not
    /// there. Immutable.
    since: Option<Timestamp>,
    /// The newest first: of one tree the first is shown, and the others are there for who has files
    /// of them open.
    kept: RwLock<Vec<KeptTree>>,
    /// When the main checkout changed the directories that the fork has changed, too, as it was
    /// seen last.
    moments: Mutex<InoMap<Option<(Timestamp, Timestamp)>>>,
    /// Directories in which names came or went, until somebody is told.
    changed_dirs: Mutex<Vec<Ino>>,
    files: files::OpenFiles,
    dirs: listing::Dirs,
}

impl Carry {
    /// Opens what `record` names. Fails where the main checkout is not there.
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

    /// Shows the dependency tree at `path` as `generation` has it, with files as of their arrivals,
    /// from now on; the generation that was shown before.
    pub(super) fn show_generation(
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

    /// Files of the generation that are seen now, and were not while the tree was shown as the main
    /// checkout has it: they came later than the fork.
    pub(super) fn late_files<'g>(
        &self,
        generation: &'g Generation,
    ) -> impl Iterator<Item = Box<[u8]>> + use<'g> {
        let since = self.since;
        since
            .into_iter()
            .flat_map(|since| generation.changed_since(since))
    }

    /// The generation that shows what is at `path`; `None` where the main checkout does.
    fn shown_by(&self, path: &RepoPath) -> Option<FrozenPlace> {
        let kept = self.kept.read();
        let kept = kept.iter().find(|kept| path.starts_with(&kept.path))?;
        Some(kept.at(path))
    }

    /// The generation that has this version of the file or symlink at `path`.
    fn frozen_version(&self, path: &RepoPath, version: &FileVersion) -> Option<FrozenPlace> {
        let kept = self.kept.read();
        let of_path = kept.iter().filter(|kept| path.starts_with(&kept.path));
        let mut of_path = of_path.map(|kept| kept.at(path));
        of_path.find(|frozen| frozen.generation.has(frozen.below(path), version))
    }

    /// Whether the directory at this base path holds carried roots.
    pub fn has_roots_in(&self, dir: &RepoPath) -> bool {
        self.roots.contains_key(dir)
    }

    /// Whether a carried root of this name may be in the directory at this base path.
    pub fn has_root(&self, dir: &RepoPath, name: &[u8]) -> bool {
        let roots = self.roots.get(dir).into_iter().flatten();
        roots.into_iter().any(|root| root.name.as_bytes() == name)
    }

    /// How many carried roots in the directory at this base path are directories.
    pub fn dir_roots_in(&self, dir: &RepoPath) -> u32 {
        let roots = self.roots.get(dir).into_iter().flatten();
        u32::try_from(roots.filter(|root| root.is_dir).count()).unwrap_or(u32::MAX)
    }

    fn is_root(&self, path: &RepoPath) -> bool {
        path.split_last()
            .is_some_and(|(parent, name)| self.has_root(&parent, name.as_bytes()))
    }

    /// The carried root called `name` in the directory at this base path.
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

    /// The main checkout's part of the directory `ino` is now of these times, or gone.
    pub(super) fn note_listing(&self, ino: Ino, moment: Option<(Timestamp, Timestamp)>) {
        let before = self.moments.lock().insert(ino, moment);
        if before.is_some_and(|before| before != moment) {
            self.changed_dirs.lock().push(ino);
        }
    }

    /// The directories in which names came or went since this was asked last.
    pub(super) fn take_changed_dirs(&self) -> Vec<Ino> {
        std::mem::take(&mut *self.changed_dirs.lock())
    }

    /// What the carried directory at `dir` has at `name`.
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

    /// What is at `path`, a carried root or beneath one.
    pub(super) fn node(&self, path: &RepoPath) -> Result<Option<CarriedNode>, FsError> {
        if let Some(frozen) = self.shown_by(path) {
            let stat = frozen.stat(path);
            let node = stat.and_then(|stat| self.carried(path.clone(), &stat));
            return Ok(node.map(|node| CarriedNode {
                attr: frozen.arrivals.shown(frozen.below(path), node.attr),
                ..node
            }));
        }
        let found = beneath::open(&self.top, path.as_path(), Access::Look)
            .and_then(|file| beneath::stat(&file));
        Ok(found_or_none(found)?.and_then(|stat| self.shown(path.clone(), &stat)))
    }

    /// The node that the main checkout has, if it is one to be carried.
    fn shown(&self, path: RepoPath, stat: &HostStat) -> Option<CarriedNode> {
        let is_in_tree = self.trees.iter().any(|tree| path.starts_with(tree));
        let changed = if is_in_tree {
            changed_in_tree(stat)
        } else {
            stat.ctime
        };
        let is_later = stat.kind != FileKind::Directory && self.came_later(&path, changed);
        // A symlink that has come to where a directory was chosen may lead anywhere, back into the
        // main checkout, too.
        let is_of_its_kind = stat.kind == FileKind::Directory || !self.is_dir_root(&path);
        match stat.dev == self.device && !is_later && is_of_its_kind {
            true => self.carried(path, stat),
            false => None,
        }
    }

    /// Whether the path was chosen as a directory.
    fn is_dir_root(&self, path: &RepoPath) -> bool {
        let Some((parent, name)) = path.split_last() else {
            return false;
        };
        let roots = self.roots.get(&parent).into_iter().flatten();
        roots
            .into_iter()
            .any(|root| root.is_dir && root.name == name)
    }

    /// The node, unless it is hidden.
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
            // Other names of a file may lie anywhere.
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

    /// The number of one version of the file at `path`.
    pub(super) fn number(&self, path: &RepoPath, version: &FileVersion) -> Ino {
        self.other_number(path, version, 0)
    }

    /// Where [`Carry::number`] is taken, the first, second, … that does instead.
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

    /// Whether what is at `path` is not to be seen: a repository's own directory at a root and
    /// links to repositories, and secrets that nobody asked for.
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

    /// Names the directories above a carried node that are carried, the nearest first, up to the
    /// root that holds it.
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

/// When a file of a dependency tree changed last. One that package stores share gets another ctime
/// with each link that somebody else makes to it.
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

/// What is missing, or is no place to look at, is nothing.
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
        // It was there when it was looked up.
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => FsError::Stale,
        _ => match error.raw_os_error() {
            Some(libc::ELOOP | libc::EXDEV | libc::ENXIO) => FsError::Stale,
            _ => FsError::Carried(error),
        },
    }
}
