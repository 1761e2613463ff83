//! Absolute paths in carried and inherited trees that lead to another tree.
//!
//! The search rewrites such a path if a change of text or of a symlink is enough. Otherwise it
//! reports the path.
//!
//! | kind | location of the path | action |
//! |---|---|---|
//! | venv | `pyvenv.cfg`, scripts and symlinks in `bin/` | rewritten |
//! | editable-install | `.pth`, `.egg-link`, finders and `direct_url.json` in `site-packages/` | rewritten if the fork has the target |
//! | symlink | absolute target | rewritten if the fork has the target |
//! | cmake-cache | `CMAKE_HOME_DIRECTORY` and `CMAKE_CACHEFILE_DIR` | reported |
//! | cargo-target | paths compiled into programs (`CARGO_MANIFEST_DIR`) | reported |
//!
//! Rewritten files are written through the mount, so they are in the fork's layer. No symlink is
//! followed. The search opens at most 4,000 files and directories.

mod builds;
mod notes;
mod rewriting;

use std::cell::Cell;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

pub use self::notes::notes;
use self::rewriting::replaced;
use crate::Client;
use crate::place::Place;
use tine_attr::FileKind;
use tine_ops::Failure;
use tine_ops::protocol::ForkInfo;
use tine_path::text::PathText;
use tine_path::{EntryName, RepoPath};
use tine_store::{ForkName, default_mount_root};
use tine_sys::beneath::{self, Access};

/// Maximum number of directories and files opened in one fork.
const MAX_OPENED: u32 = 4_000;
/// Maximum depth of the search for symlinks of an editable install.
const MAX_LINK_DEPTH: u32 = 6;
/// Maximum size in bytes of a text file that is searched.
const MAX_TEXT_BYTES: u64 = 256 << 10;
/// Maximum number of ancestors of a fork whose paths are searched for.
const MAX_ANCESTORS: usize = 16;

/// Kind of file or directory with an embedded path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum EmbeddedPathKind {
    /// Virtual environment of Python.
    Venv,
    /// Python package that is installed in place, from its source tree.
    EditableInstall,
    /// Symlink with an absolute target.
    Symlink,
    /// `CMakeCache.txt`.
    CmakeCache,
    /// Target directory of cargo.
    CargoTarget,
}

/// File or directory of a fork that leads to another tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EmbeddedPath {
    /// Path from the fork's root.
    pub path: PathText,
    /// Kind of the file or directory.
    pub kind: EmbeddedPathKind,
    /// Root of the other tree, also if the path is rewritten.
    pub leads_to: PathText,
    /// True if the path is rewritten and leads to the fork now.
    pub made_right: bool,
}

/// Finds and rewrites the embedded paths of a fork.
///
/// The fork must be mounted. Other trees are the main checkout and the fork's ancestors. Blocks for
/// reads and writes in the mount.
///
/// # Errors
/// `io` if the mount cannot be opened, and the errors of [`Client::call`]. A file that cannot be
/// rewritten is reported in the result.
pub fn rewrite_all(
    place: &Place,
    connection: &mut Client,
    fork: &ForkInfo,
) -> Result<Vec<EmbeddedPath>, Failure> {
    let carried: Vec<RepoPath> = fork
        .carry
        .iter()
        .flat_map(|carry| &carry.paths)
        .filter_map(|text| RepoPath::parse(text.to_bytes()).ok())
        .collect();
    if carried.is_empty() && fork.parent.is_none() {
        return Ok(Vec::new());
    }
    let mut roots: Vec<PathBuf> = fork.carry.iter().map(|carry| carry.from.clone()).collect();
    if fork.parent.is_some() {
        roots.extend(ancestors(connection, fork, place)?);
        roots.extend(place.repository()?.main_checkout().map(Path::to_owned));
    }
    roots.sort();
    roots.dedup();
    roots.retain(|root| *root != fork.mount_dir && root.parent().is_some());
    let top = beneath::open_top(&fork.mount_dir)
        .map_err(|error| Failure::io("open", &fork.mount_dir, &error))?;
    // Build directories of a carried tree are read in the main checkout. Reads through the mount
    // would fill the kernel's cache for a second, while a build in the main checkout may go on.
    let build_top = fork.carry.as_ref().filter(|_| fork.parent.is_none());
    let build_top = build_top.and_then(|carry| beneath::open_top(&carry.from).ok());
    let mut search = Search {
        build_top: build_top.or_else(|| top.try_clone().ok()),
        top,
        to: fork.mount_dir.as_os_str().as_bytes(),
        roots: &roots,
        opened: Cell::new(0),
        found: Vec::new(),
    };
    let mut places = carried;
    if fork.parent.is_some() {
        for (name, kind) in search.list(&RepoPath::root()) {
            let path = RepoPath::root().join(&name);
            if kind == FileKind::Directory && !name.is_dot_git() && !places.contains(&path) {
                places.push(path);
            }
        }
    }
    for place in &places {
        search.search(place);
    }
    Ok(search.found)
}

/// Repeats the search in a fork that shows other files now.
///
/// A restore or mount can show other files, without earlier rewrites. The listener receives notes
/// about the paths that are found. A failure is logged.
pub fn rewrite_again(place: &Place, connection: &mut Client, fork: &ForkName) {
    let found = connection.show(fork).and_then(|fork| {
        let is_seen = fork.mounted && place.check_mounted_here(connection, &fork).is_ok();
        let found = if is_seen {
            rewrite_all(place, connection, &fork)?
        } else {
            Vec::new()
        };
        notes(place, &fork, &found)
    });
    match found {
        Ok(notes) => notes.iter().for_each(|note| place.note(note)),
        Err(failure) => log::warn!("{fork}: {failure}"),
    }
}

/// Lists the mount directories of the fork's ancestors, the nearest first.
///
/// An ancestor that is deleted is assumed to have had the default directory.
fn ancestors(
    connection: &mut Client,
    fork: &ForkInfo,
    place: &Place,
) -> Result<Vec<PathBuf>, Failure> {
    let (forks, _) = connection.forks()?;
    let usual = default_mount_root(place.repository()?.checkout_dir());
    let mut places = Vec::new();
    let mut next = fork.parent.clone();
    while let Some(parent) = next.take().filter(|_| places.len() < MAX_ANCESTORS) {
        match forks.iter().find(|fork| fork.name == parent.fork) {
            Some(fork) => {
                places.push(fork.mount_dir.clone());
                next.clone_from(&fork.parent);
            }
            None => places.push(usual.join(parent.fork.as_str())),
        }
    }
    Ok(places)
}

/// State of a search in one fork.
struct Search<'a> {
    /// The fork's root.
    top: File,
    /// Root of the tree in which build directories are read.
    ///
    /// The main checkout for carried trees, the fork for inherited ones.
    build_top: Option<File>,
    /// Path of the fork's root, the new prefix of rewritten paths.
    to: &'a [u8],
    /// Roots of the other trees.
    roots: &'a [PathBuf],
    /// Number of directories and files opened, see [`MAX_OPENED`].
    opened: Cell<u32>,
    found: Vec<EmbeddedPath>,
}

impl Search<'_> {
    /// Counts a file that will be opened; returns whether [`MAX_OPENED`] permits it.
    fn may_open(&self) -> bool {
        self.opened.set(self.opened.get() + 1);
        self.opened.get() <= MAX_OPENED
    }

    /// Lists a directory of the fork. Empty if it cannot be listed.
    fn list(&self, dir: &RepoPath) -> Vec<(EntryName, FileKind)> {
        self.list_in(&self.top, dir)
    }

    fn list_in(&self, top: &File, dir: &RepoPath) -> Vec<(EntryName, FileKind)> {
        if !self.may_open() {
            return Vec::new();
        }
        let listed = beneath::open(top, dir.as_path(), Access::Read).and_then(beneath::list);
        let listed = listed.unwrap_or_default().into_iter();
        listed
            .filter_map(|(name, kind)| Some((EntryName::new(name).ok()?, kind?)))
            .collect()
    }

    fn kind_of(&self, path: &RepoPath) -> Option<FileKind> {
        let found = beneath::open(&self.top, path.as_path(), Access::Attributes);
        found
            .and_then(|file| beneath::stat(&file))
            .ok()
            .map(|stat| stat.kind)
    }

    /// Searches a carried or inherited directory, and its children.
    ///
    /// Directories in which package managers put symlinks are searched deeper.
    fn search(&mut self, place: &RepoPath) {
        match self.kind_of(place) {
            Some(FileKind::Symlink) => self.rewrite_link(place),
            Some(FileKind::Directory) => {
                let is_known = self.search_dir(place);
                for (name, kind) in self.list(place) {
                    let path = place.join(&name);
                    match kind {
                        FileKind::Symlink => self.rewrite_link(&path),
                        FileKind::Directory if holds_links(&name) => self.links_under(path),
                        FileKind::Directory if !is_known => {
                            self.search_dir(&path);
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }

    /// Searches a directory for symlinks, up to [`MAX_LINK_DEPTH`] levels deep.
    fn links_under(&mut self, dir: RepoPath) {
        let mut rest = vec![(dir, 0)];
        while let Some((dir, depth)) = rest.pop() {
            for (name, kind) in self.list(&dir) {
                let path = dir.join(&name);
                match kind {
                    FileKind::Symlink => self.rewrite_link(&path),
                    FileKind::Directory if depth < MAX_LINK_DEPTH && !is_scope(&dir) => {
                        rest.push((path, depth + 1));
                    }
                    _ => {}
                }
            }
        }
    }

    /// Searches a virtual environment or build directory.
    ///
    /// Returns whether `dir` is one.
    fn search_dir(&mut self, dir: &RepoPath) -> bool {
        if !self.may_open() {
            return false;
        }
        if self.has(dir, "pyvenv.cfg") {
            self.search_venv(dir);
            return true;
        }
        if self.has(dir, "CMakeCache.txt") {
            self.search_cmake(dir);
            return true;
        }
        if self.has(dir, ".rustc_info.json") {
            self.search_cargo(dir);
            return true;
        }
        false
    }

    fn has(&self, dir: &RepoPath, name: &str) -> bool {
        child(dir, name).is_some_and(|path| self.kind_of(&path) == Some(FileKind::Regular))
    }

    /// Reads a text file of the fork.
    ///
    /// Returns `None` for a file that is too large, contains a NUL byte or cannot be read.
    fn text(&self, path: &RepoPath) -> Option<Vec<u8>> {
        self.text_in(&self.top, path)
    }

    fn text_in(&self, top: &File, path: &RepoPath) -> Option<Vec<u8>> {
        if !self.may_open() {
            return None;
        }
        let file = beneath::open(top, path.as_path(), Access::Read).ok()?;
        let stat = beneath::stat(&file).ok()?;
        if stat.kind != FileKind::Regular || stat.size > MAX_TEXT_BYTES {
            return None;
        }
        let mut text = Vec::new();
        file.take(MAX_TEXT_BYTES).read_to_end(&mut text).ok()?;
        (!text.contains(&0)).then_some(text)
    }

    fn report(&mut self, path: &RepoPath, kind: EmbeddedPathKind, root: &[u8], made_right: bool) {
        self.found.push(EmbeddedPath {
            path: path.into(),
            kind,
            leads_to: PathText::from(root),
            made_right,
        });
    }

    /// Returns the first of the other roots that a text names.
    fn root_in(&self, text: &[u8]) -> Option<Vec<u8>> {
        self.roots.iter().find_map(|root| {
            let root = root.as_os_str().as_bytes();
            replaced(text, root, root).map(|_| root.to_vec())
        })
    }
}

/// Returns whether package managers put symlinks into a directory of this name.
///
/// The symlinks lead to the project's own files. Such directories are those of commands (`.bin`),
/// of a scope of packages (`@name`), and of editable installs.
fn holds_links(name: &EntryName) -> bool {
    let name = name.as_bytes();
    name == b".bin" || name.starts_with(b"@") || name.starts_with(b"__editable__")
}

/// Returns whether `dir` is a scope of packages (`node_modules/@name`).
fn is_scope(dir: &RepoPath) -> bool {
    dir.split_last()
        .is_some_and(|(_, name)| name.as_bytes().starts_with(b"@"))
}

fn child(dir: &RepoPath, name: &str) -> Option<RepoPath> {
    Some(dir.join(&EntryName::new(name).ok()?))
}
