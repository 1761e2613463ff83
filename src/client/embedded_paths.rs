//! Files of carried and inherited trees that lead back to where they were made: found, and made
//! right where text is enough.
//!
//! | kind | what leads | here |
//! |---|---|---|
//! | venv | `pyvenv.cfg`, scripts of `bin/`, links of `bin/` | made right |
//! | editable-install | `.pth`, `.egg-link`, finders and `direct_url.json` in `site-packages/` | made right, if the fork has what they name |
//! | symlink | an absolute target | made right, if the fork has it |
//! | cmake-cache | `CMAKE_HOME_DIRECTORY` and `CMAKE_CACHEFILE_DIR` | told |
//! | cargo-target | paths that programs were compiled with (`CARGO_MANIFEST_DIR`) | told |
//!
//! Everything is read and written through the mount, without following a symlink: what is made
//! right is in the fork's layer. The look is bounded ([`MAX_LOOKS`]).

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
use tine_sys::beneath::{self, Access};
use tine_workspace::store::default_mount_root;
use tine_workspace::{ForkName, SeenAt};

/// Directories and files that are looked at in one fork at most.
const MAX_LOOKS: u32 = 4_000;
/// Levels of directories in which the links of an editable install are looked for.
const MAX_LINK_DEPTH: u32 = 6;
/// Larger files hold no settings.
const MAX_TEXT_BYTES: u64 = 256 << 10;
/// Files of dependencies that are looked into in one build directory.
const MAX_DEP_FILES: usize = 8;
/// The kernel reads so much of a script's first line.
const MAX_SHEBANG_BYTES: usize = 255;
/// Forks above a fork that are looked for.
const MAX_ANCESTORS: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum EmbeddedPathKind {
    Venv,
    EditableInstall,
    Symlink,
    CmakeCache,
    CargoTarget,
}

/// A file or directory of a fork that leads to another tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EmbeddedPath {
    pub path: PathText,
    pub kind: EmbeddedPathKind,
    /// The root of the tree to which it leads, or led.
    pub leads_to: PathText,
    /// It leads to the fork now.
    pub made_right: bool,
}

/// Finds what leads out of a fork that was just made, and makes right what can be.
pub fn make_right(
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
    let ancestors = match fork.parent.is_some() {
        true => ancestors(connection, fork, place)?,
        false => Vec::new(),
    };
    if fork.parent.is_some() {
        roots.extend(place.repository()?.main_checkout().map(Path::to_owned));
        roots.extend(ancestors);
    }
    roots.sort();
    roots.dedup();
    roots.retain(|root| *root != fork.mount_dir && root.parent().is_some());
    let top = beneath::open_top(&fork.mount_dir)
        .map_err(|error| Failure::io("open", &fork.mount_dir, &error))?;
    // What a look through the mount finds there the kernel remembers for a second, while the main
    // checkout may build on.
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

/// Looks again in a fork of which other files are seen now: it was mounted, or went back. What was
/// made right before went with its layer.
pub fn again(place: &Place, connection: &mut Client, fork: &ForkName) {
    let found = connection.show(fork).and_then(|fork| {
        let is_seen = fork.mounted && place.check_mounted_here(connection, &fork).is_ok();
        let found = match is_seen {
            true => make_right(place, connection, &fork)?,
            false => Vec::new(),
        };
        notes(place, &fork, &found)
    });
    match found {
        Ok(notes) => notes.iter().for_each(|note| place.note(note)),
        Err(failure) => log::warn!("{fork}: {failure}"),
    }
}

/// The places of the forks that `fork` began as, the nearest first. One that is gone had the usual
/// place.
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

struct Search<'a> {
    /// The fork's root.
    top: File,
    /// Where build directories are looked into: the main checkout, or the fork that inherits them.
    build_top: Option<File>,
    /// Its path.
    to: &'a [u8],
    /// Where things may lead.
    roots: &'a [PathBuf],
    looks: Cell<u32>,
    found: Vec<EmbeddedPath>,
}

impl Search<'_> {
    /// Counts a look; whether it may be.
    fn look(&self) -> bool {
        self.looks.set(self.looks.get() + 1);
        self.looks.get() <= MAX_LOOKS
    }

    /// What is in a directory. What cannot be listed has nothing.
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

    /// Looks at a carried or inherited place, one level below, and where package managers put links
    /// deeper down.
    fn place(&mut self, place: &RepoPath) {
        match self.kind_of(place) {
            Some(FileKind::Symlink) => self.link(place),
            Some(FileKind::Directory) => {
                let is_known = self.dir(place);
                for (name, kind) in self.list(place) {
                    let path = place.join(&name);
                    match kind {
                        FileKind::Symlink => self.link(&path),
                        FileKind::Directory if holds_links(&name) => self.links_beneath(path),
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

    fn links_beneath(&mut self, dir: RepoPath) {
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

    /// Looks at a directory; whether it is of a known kind.
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

    /// The text of a file that is not too large and no program.
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
        let mut led = None;
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
                led = led.or(Some(root));
                is_right &= right;
            }
        }
        if let Some(root) = led {
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

    /// Lets a text file lead to the fork: the root to which it led, and whether it leads to the
    /// fork now. With `if_there` only where the fork has what it names.
    fn rewrite(&self, path: &RepoPath, if_there: bool) -> Option<(Vec<u8>, bool)> {
        let mut text = self.text(path)?;
        let mut led = None;
        for root in self.roots {
            let root = root.as_os_str().as_bytes();
            let Some((rewritten, named)) = replaced(&text, root, self.to) else {
                continue;
            };
            led = led.or_else(|| Some(root.to_vec()));
            let is_there = |rest: &Vec<u8>| {
                let place = [self.to, rest.as_slice()].concat();
                Path::new(OsStr::from_bytes(&place))
                    .symlink_metadata()
                    .is_ok()
            };
            if if_there && !named.iter().all(is_there) {
                return led.map(|root| (root, false));
            }
            text = rewritten;
        }
        let led = led?;
        let first_line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
        if first_line.starts_with(b"#!") && first_line.len() > MAX_SHEBANG_BYTES {
            return Some((led, false));
        }
        let written = self.replace(path, &text);
        if let Err(error) = &written {
            log::warn!("{path} leads elsewhere still: {error}");
        }
        Some((led, written.is_ok()))
    }

    /// Puts a file of this text in the place of the one at `path`.
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

    /// Puts what `make` makes in the place of what is at `path`. The directory is opened first:
    /// nothing on the way can lead elsewhere.
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
        let beneath_a_root = |target: &Path| {
            let mut roots = self.roots.iter();
            roots.find_map(|root| Some((root, target.strip_prefix(root).ok()?.to_owned())))
        };
        // A root may have other names, by links above it.
        let target = Path::new(OsStr::from_bytes(&target));
        let found = beneath_a_root(&normalized(target))
            .or_else(|| beneath_a_root(&target.canonicalize().ok()?));
        let Some((root, rest)) = found else {
            return;
        };
        // Joining nothing would add a slash.
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

    /// What cargo built says by its lists of dependencies where it was built.
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

    /// The first root that a text names.
    fn root_in(&self, text: &[u8]) -> Option<Vec<u8>> {
        self.roots.iter().find_map(|root| {
            let root = root.as_os_str().as_bytes();
            replaced(text, root, root).map(|_| root.to_vec())
        })
    }
}

/// Whether package managers put symlinks to the project's own files into a directory of this name:
/// commands, packages of a scope (`@name`), or an editable install.
fn holds_links(name: &EntryName) -> bool {
    let name = name.as_bytes();
    name == b".bin" || name.starts_with(b"@") || name.starts_with(b"__editable__")
}

/// Whether it is a scope of packages (`node_modules/@name`).
fn is_scope(dir: &RepoPath) -> bool {
    dir.split_last()
        .is_some_and(|(_, name)| name.as_bytes().starts_with(b"@"))
}

fn child(dir: &RepoPath, name: &str) -> Option<RepoPath> {
    Some(dir.join(&EntryName::new(name).ok()?))
}

/// `text` with `to` in the place of each `root` that stands there as a path or the beginning of
/// one, and what follows it in each, up to where a path ends. `None` where there is none.
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

/// Notes that say what was found, and what to do about it.
pub fn notes(
    place: &Place,
    fork: &ForkInfo,
    found: &[EmbeddedPath],
) -> Result<Vec<String>, Failure> {
    match found.is_empty() {
        true => Ok(Vec::new()),
        false => Ok(notes_at(&SeenPlaces::of(place, fork)?, &fork.name, found)),
    }
}

/// One for each tree to which something leads or led.
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
            if by_default == SeenAt::Origin && is_origin || by_default == SeenAt::Parent && is_parent {
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

/// By the trees to which they lead, in the order in which these are found.
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

/// The first few paths.
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
        let own = said(SeenAt::Own);
        assert_eq!(own.len(), 3, "{own:?}");
        assert!(own[0].starts_with("a, c leads to /x/repo,") && own[0].contains("--at-origin"));
        assert!(
            own[1].starts_with("b leads to /x/repo.forks/parent,")
                && own[1].contains("--at-parent")
        );
        assert!(own[2].starts_with("d leads to") && !own[2].contains("--at-"));
        let is_seen = |note: &String| note.contains("see the fork");
        let seen = |notes: Vec<String>| notes.iter().map(is_seen).collect::<Vec<_>>();
        assert_eq!(seen(said(SeenAt::Origin)), [true, false, false]);
        assert_eq!(seen(said(SeenAt::Parent)), [false, true, false]);
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
