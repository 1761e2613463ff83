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

use std::cell::Cell;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::Client;
use crate::origin::SeenPlaces;
use crate::place::Place;
use tine_attr::FileKind;
use tine_ops::Failure;
use tine_ops::protocol::ForkInfo;
use tine_path::text::PathText;
use tine_path::{EntryName, RepoPath, normalized};
use tine_render::text::{counted, quoted};
use tine_store::default_mount_root;
use tine_store::{ForkName, VisiblePath};
use tine_sys::beneath::{self, Access};

/// Maximum number of directories and files opened in one fork.
const MAX_LOOKS: u32 = 4_000;
/// Maximum depth of the search for symlinks of an editable install.
const MAX_LINK_DEPTH: u32 = 6;
/// Maximum size in bytes of a text file that is searched.
const MAX_TEXT_BYTES: u64 = 256 << 10;
/// Maximum number of dependency files read in each directory of a build.
const MAX_DEP_FILES: usize = 8;
/// Number of bytes that the kernel reads of a script's first line.
const MAX_SHEBANG_BYTES: usize = 255;
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
        looks: Cell::new(0),
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
        search.place(place);
    }
    Ok(search.found)
}

/// Repeats the search in a fork that shows other files now.
///
/// A restore or mount can show other files, without earlier rewrites. The listener receives notes
/// about the paths that are found. A failure is logged.
pub fn again(place: &Place, connection: &mut Client, fork: &ForkName) {
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
    /// Number of directories and files opened, see [`MAX_LOOKS`].
    looks: Cell<u32>,
    found: Vec<EmbeddedPath>,
}

impl Search<'_> {
    /// Counts one look and returns whether [`MAX_LOOKS`] permits it.
    fn look(&self) -> bool {
        self.looks.set(self.looks.get() + 1);
        self.looks.get() <= MAX_LOOKS
    }

    /// Lists a directory of the fork. Empty if it cannot be listed.
    fn list(&self, dir: &RepoPath) -> Vec<(EntryName, FileKind)> {
        self.list_in(&self.top, dir)
    }

    fn list_in(&self, top: &File, dir: &RepoPath) -> Vec<(EntryName, FileKind)> {
        if !self.look() {
            return Vec::new();
        }
        let listed = beneath::open(top, dir.as_path(), Access::Read).and_then(beneath::list);
        let listed = listed.unwrap_or_default().into_iter();
        listed
            .filter_map(|(name, kind)| Some((EntryName::new(name).ok()?, kind?)))
            .collect()
    }

    fn kind_of(&self, path: &RepoPath) -> Option<FileKind> {
        let found = beneath::open(&self.top, path.as_path(), Access::Look);
        found
            .and_then(|file| beneath::stat(&file))
            .ok()
            .map(|stat| stat.kind)
    }

    /// Searches a carried or inherited directory, and its children.
    ///
    /// Directories in which package managers put symlinks are searched deeper.
    fn place(&mut self, place: &RepoPath) {
        match self.kind_of(place) {
            Some(FileKind::Symlink) => self.link(place),
            Some(FileKind::Directory) => {
                let is_known = self.dir(place);
                for (name, kind) in self.list(place) {
                    let path = place.join(&name);
                    match kind {
                        FileKind::Symlink => self.link(&path),
                        FileKind::Directory if holds_links(&name) => self.links_under(path),
                        FileKind::Directory if !is_known => {
                            self.dir(&path);
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
                    FileKind::Symlink => self.link(&path),
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
    fn dir(&mut self, dir: &RepoPath) -> bool {
        if !self.look() {
            return false;
        }
        if self.has(dir, "pyvenv.cfg") {
            self.venv(dir);
            return true;
        }
        if self.has(dir, "CMakeCache.txt") {
            self.cmake(dir);
            return true;
        }
        if self.has(dir, ".rustc_info.json") {
            self.cargo(dir);
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
        if !self.look() {
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

    fn found(&mut self, path: &RepoPath, kind: EmbeddedPathKind, root: &[u8], made_right: bool) {
        self.found.push(EmbeddedPath {
            path: path.into(),
            kind,
            leads_to: PathText::from(root),
            made_right,
        });
    }

    fn venv(&mut self, dir: &RepoPath) {
        let mut files: Vec<RepoPath> = child(dir, "pyvenv.cfg").into_iter().collect();
        let mut other_root = None;
        let mut is_right = true;
        if let Some(bin) = child(dir, "bin") {
            for (name, kind) in self.list(&bin) {
                match kind {
                    FileKind::Regular => files.push(bin.join(&name)),
                    FileKind::Symlink => self.link(&bin.join(&name)),
                    _ => {}
                }
            }
        }
        for file in files {
            if let Some((root, right)) = self.rewrite(&file, false) {
                other_root = other_root.or(Some(root));
                is_right &= right;
            }
        }
        if let Some(root) = other_root {
            self.found(dir, EmbeddedPathKind::Venv, &root, is_right);
        }
        let Some(lib) = child(dir, "lib") else {
            return;
        };
        for (version, kind) in self.list(&lib) {
            if kind == FileKind::Directory
                && let Some(packages) = child(&lib.join(&version), "site-packages")
            {
                self.packages(&packages);
            }
        }
    }

    fn packages(&mut self, packages: &RepoPath) {
        for (name, kind) in self.list(packages) {
            let bytes = name.as_bytes();
            let path = packages.join(&name);
            let file = match kind {
                FileKind::Regular
                    if bytes.ends_with(b".pth")
                        || bytes.ends_with(b".egg-link")
                        || bytes.starts_with(b"__editable__") =>
                {
                    Some(path)
                }
                FileKind::Directory if bytes.ends_with(b".dist-info") => {
                    child(&path, "direct_url.json")
                }
                _ => None,
            };
            if let Some(file) = file
                && let Some((root, is_right)) = self.rewrite(&file, true)
            {
                self.found(&file, EmbeddedPathKind::EditableInstall, &root, is_right);
            }
        }
    }

    /// Rewrites paths to other trees in a text file.
    ///
    /// Returns the root of the other tree, and whether the file leads to the fork now. With
    /// `if_there`, the file is rewritten only if the fork has every path that it names. `None` if
    /// the file names no other tree.
    fn rewrite(&self, path: &RepoPath, if_there: bool) -> Option<(Vec<u8>, bool)> {
        let mut text = self.text(path)?;
        let mut other_root = None;
        for root in self.roots {
            let root = root.as_os_str().as_bytes();
            let Some((rewritten, named)) = replaced(&text, root, self.to) else {
                continue;
            };
            other_root = other_root.or_else(|| Some(root.to_vec()));
            let is_there = |rest: &Vec<u8>| {
                let place = [self.to, rest.as_slice()].concat();
                Path::new(OsStr::from_bytes(&place))
                    .symlink_metadata()
                    .is_ok()
            };
            if if_there && !named.iter().all(is_there) {
                return other_root.map(|root| (root, false));
            }
            text = rewritten;
        }
        let other_root = other_root?;
        let first_line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
        if first_line.starts_with(b"#!") && first_line.len() > MAX_SHEBANG_BYTES {
            return Some((other_root, false));
        }
        let written = self.replace(path, &text);
        if let Err(error) = &written {
            log::warn!("{path} leads elsewhere still: {error}");
        }
        Some((other_root, written.is_ok()))
    }

    /// Replaces the text of the file at `path` and keeps its mode.
    fn replace(&self, path: &RepoPath, text: &[u8]) -> io::Result<()> {
        let before = beneath::open(&self.top, path.as_path(), Access::Read)?.metadata()?;
        self.exchange(path, |new| {
            let mut file = fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(new)?;
            file.write_all(text)?;
            file.set_permissions(fs::Permissions::from_mode(
                before.permissions().mode() & 0o7777,
            ))
        })
    }

    /// Replaces the file at `path` atomically by the one that `make` creates.
    ///
    /// `make` gets a temporary path. Both paths go through a descriptor of the directory, so a
    /// symlink that appears in the path meanwhile has no effect.
    fn exchange(
        &self,
        path: &RepoPath,
        make: impl FnOnce(&Path) -> io::Result<()>,
    ) -> io::Result<()> {
        let Some((dir, name)) = path.split_last() else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let dir = beneath::open(&self.top, dir.as_path(), Access::Look)?;
        let dir = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd()));
        let new = dir.join(format!(".tine-{}.new", std::process::id()));
        let made = make(&new)
            .and_then(|()| fs::rename(&new, dir.join(OsStr::from_bytes(name.as_bytes()))));
        if made.is_err() {
            let _ = fs::remove_file(&new);
        }
        made
    }

    /// Checks a symlink and rewrites it if the fork has the target.
    fn link(&mut self, path: &RepoPath) {
        if !self.look() {
            return;
        }
        let target = beneath::open(&self.top, path.as_path(), Access::Look)
            .and_then(|link| beneath::read_link(&link));
        let Ok(target) = target else {
            return;
        };
        if !target.starts_with(b"/") {
            return;
        }
        let under_a_root = |target: &Path| {
            let mut roots = self.roots.iter();
            roots.find_map(|root| Some((root, target.strip_prefix(root).ok()?.to_owned())))
        };
        // Symlinks in the target's path may lead to a root by another name.
        let target = Path::new(OsStr::from_bytes(&target));
        let found = under_a_root(&normalized(target))
            .or_else(|| under_a_root(&target.canonicalize().ok()?));
        let Some((root, rest)) = found else {
            return;
        };
        // Joining an empty path would append a slash.
        let to = Path::new(OsStr::from_bytes(self.to));
        let to: PathBuf = to.components().chain(rest.components()).collect();
        let is_right =
            to.symlink_metadata().is_ok() && self.exchange(path, |new| symlink(&to, new)).is_ok();
        let root = root.as_os_str().as_bytes().to_vec();
        self.found(path, EmbeddedPathKind::Symlink, &root, is_right);
    }

    fn cmake(&mut self, dir: &RepoPath) {
        let Some(path) = child(dir, "CMakeCache.txt") else {
            return;
        };
        let Some(text) = self.text(&path) else {
            return;
        };
        let places = text.split(|byte| *byte == b'\n').filter(|line| {
            line.starts_with(b"CMAKE_HOME_DIRECTORY:") || line.starts_with(b"CMAKE_CACHEFILE_DIR:")
        });
        let root = places.into_iter().find_map(|line| self.root_in(line));
        if let Some(root) = root {
            self.found(&path, EmbeddedPathKind::CmakeCache, &root, false);
        }
    }

    /// Searches a target directory of cargo by its dependency files (`*.d`).
    fn cargo(&mut self, dir: &RepoPath) {
        let found = self
            .build_top
            .as_ref()
            .and_then(|top| self.cargo_in(top, dir));
        if let Some(root) = found {
            self.found(dir, EmbeddedPathKind::CargoTarget, &root, false);
        }
    }

    fn cargo_in(&self, top: &File, dir: &RepoPath) -> Option<Vec<u8>> {
        let profiles = self.list_in(top, dir).into_iter();
        let profiles = profiles
            .filter(|(name, kind)| *kind == FileKind::Directory && name.as_bytes() != b"tmp");
        for (profile, _) in profiles {
            let profile = dir.join(&profile);
            for place in [Some(profile.clone()), child(&profile, "deps")]
                .into_iter()
                .flatten()
            {
                let lists = self.list_in(top, &place).into_iter();
                let lists = lists.filter(|(name, kind)| {
                    *kind == FileKind::Regular && name.as_bytes().ends_with(b".d")
                });
                for (name, _) in lists.take(MAX_DEP_FILES) {
                    let text = self.text_in(top, &place.join(&name)).unwrap_or_default();
                    if let Some(root) = self.root_in(&text) {
                        return Some(root);
                    }
                }
            }
        }
        None
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

/// Replaces the prefix `root` by `to` in all paths of a text.
///
/// Returns the new text, and for each path the part after the prefix. `None` if no path in the text
/// begins with `root`.
fn replaced(text: &[u8], root: &[u8], to: &[u8]) -> Option<(Vec<u8>, Vec<Vec<u8>>)> {
    let is_of_name =
        |byte: &u8| byte.is_ascii_alphanumeric() || b"._-+~@".contains(byte) || !byte.is_ascii();
    let ends_path = |byte: &u8| b" \t\r\n\"'`:;,)]}<>|&$\\".contains(byte);
    let mut rewritten = Vec::with_capacity(text.len());
    let mut named = Vec::new();
    let mut at = 0;
    while let Some(rest) = text.get(at..) {
        let Some(position) = rest.windows(root.len()).position(|window| window == root) else {
            rewritten.extend_from_slice(rest);
            break;
        };
        let (start, end) = (at + position, at + position + root.len());
        rewritten.extend_from_slice(&text[at..start]);
        let is_path = text.get(end).is_none_or(|next| !is_of_name(next))
            && (start == 0 || text.get(start - 1).is_none_or(|before| !is_of_name(before)));
        rewritten.extend_from_slice(if is_path { to } else { root });
        if is_path {
            let follows = text.get(end..).unwrap_or_default();
            let len = follows.iter().position(ends_path).unwrap_or(follows.len());
            named.push(follows[..len].to_vec());
        }
        at = end;
    }
    (!named.is_empty()).then_some((rewritten, named))
}

/// Returns notes for the user about embedded paths, with advice.
///
/// # Errors
/// The errors of [`Place::repository`].
pub fn notes(
    place: &Place,
    fork: &ForkInfo,
    found: &[EmbeddedPath],
) -> Result<Vec<String>, Failure> {
    if found.is_empty() {
        return Ok(Vec::new());
    }
    Ok(notes_at(&SeenPlaces::of(place, fork)?, &fork.name, found))
}

/// Returns the notes: for each other tree one, rewritten paths first.
fn notes_at(places: &SeenPlaces, name: &ForkName, found: &[EmbeddedPath]) -> Vec<String> {
    let mut notes = Vec::new();
    for (root, right) in by_root(found.iter().filter(|lead| lead.made_right)) {
        notes.push(format!(
            "{} led to {}: made to lead to the fork ({})",
            listed(&right),
            quoted(root),
            counted(right.len(), "place"),
        ));
    }
    for (root, left) in by_root(found.iter().filter(|lead| !lead.made_right)) {
        let is_at = |place: &Option<PathBuf>| {
            place
                .as_ref()
                .is_some_and(|place| place.as_os_str().as_bytes() == root.to_bytes())
        };
        let (is_origin, is_parent) = (is_at(&places.origin), is_at(&places.parent));
        let leads = format!("{} leads to {}", listed(&left), quoted(root));
        let wrong = "so programs may read other sources than the fork's";
        let by_default = places.by_default;
        notes.push(
            if by_default == VisiblePath::Origin && is_origin || by_default == VisiblePath::Parent && is_parent {
                format!("{leads}, where commands that tine runs in {name} see the fork")
            } else if is_origin {
                format!(
                    "{leads}, {wrong}: `tine exec {name} --at-origin -- CMD` runs CMD there, `git config tine.atOrigin true` does so always; or build it again in the fork"
                )
            } else if is_parent {
                format!(
                    "{leads}, {wrong}: `tine exec {name} --at-parent -- CMD` runs CMD there, `tine new --at-parent` has it so always; or build it again in the fork"
                )
            } else {
                format!("{leads}, {wrong}: build it again in the fork")
            },
        );
    }
    notes
}

/// Groups embedded paths by the other tree, in the order of discovery.
fn by_root<'f>(
    found: impl Iterator<Item = &'f EmbeddedPath>,
) -> Vec<(&'f PathText, Vec<&'f EmbeddedPath>)> {
    let mut roots: Vec<(&PathText, Vec<&EmbeddedPath>)> = Vec::new();
    for lead in found {
        match roots.iter_mut().find(|(root, _)| **root == lead.leads_to) {
            Some((_, leads)) => leads.push(lead),
            None => roots.push((&lead.leads_to, vec![lead])),
        }
    }
    roots
}

/// Formats the first three paths as a list.
fn listed(found: &[&EmbeddedPath]) -> String {
    const MOST: usize = 3;
    let mut text: Vec<String> = found
        .iter()
        .take(MOST)
        .map(|lead| quoted(&lead.path))
        .collect();
    if found.len() > MOST {
        text.push("…".to_owned());
    }
    text.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tree_has_a_note_with_the_advice_that_fits() {
        let lead = |path: &str, root: &str| EmbeddedPath {
            path: PathText::from(path.as_bytes()),
            kind: EmbeddedPathKind::CmakeCache,
            leads_to: PathText::from(root.as_bytes()),
            made_right: false,
        };
        let found = [
            lead("a", "/x/repo"),
            lead("b", "/x/repo.forks/parent"),
            lead("c", "/x/repo"),
            lead("d", "/x/repo.forks/other"),
        ];
        let name = ForkName::parse("work").unwrap();
        let said = |by_default| {
            let places = SeenPlaces {
                by_default,
                origin: Some("/x/repo".into()),
                parent: Some("/x/repo.forks/parent".into()),
            };
            notes_at(&places, &name, &found)
        };
        let own = said(VisiblePath::Own);
        assert_eq!(own.len(), 3, "{own:?}");
        assert!(own[0].starts_with("a, c leads to /x/repo,") && own[0].contains("--at-origin"));
        assert!(
            own[1].starts_with("b leads to /x/repo.forks/parent,")
                && own[1].contains("--at-parent")
        );
        assert!(own[2].starts_with("d leads to") && !own[2].contains("--at-"));
        let is_seen = |note: &String| note.contains("see the fork");
        let seen = |notes: Vec<String>| notes.iter().map(is_seen).collect::<Vec<_>>();
        assert_eq!(seen(said(VisiblePath::Origin)), [true, false, false]);
        assert_eq!(seen(said(VisiblePath::Parent)), [false, true, false]);
    }

    #[test]
    fn a_root_is_replaced_where_it_is_a_path() {
        let text =
            b"#!/x/repo/.venv/bin/python\nurl=file:///x/repo\n/x/repo.forks/a /y/x/repo \"/x/repo/a b\"";
        let (rewritten, named) = replaced(text, b"/x/repo", b"/f").unwrap();
        assert_eq!(
            String::from_utf8(rewritten).unwrap(),
            "#!/f/.venv/bin/python\nurl=file:///f\n/x/repo.forks/a /y/x/repo \"/f/a b\""
        );
        assert_eq!(
            named,
            [b"/.venv/bin/python".to_vec(), b"".to_vec(), b"/a".to_vec()]
        );
        assert!(replaced(b"/x/repository", b"/x/repo", b"/f").is_none());
    }
}
