//! Unsaved texts of editors, shown in place of files.
//!
//! A text is in memory only. No layer has it, so no commit, diff, status or snapshot does.
//!
//! A path shows the text, not a node: it appears at the regular file that the path leads to now,
//! and at none of the file's other names. Each text is a node (a *text node*) whose number is never
//! used again:
//!
//! ```text
//! name ─┬─► the file, as always         for programs that record files, or write to this one
//!       └─► the text node, immutable    for all others
//! ```
//!
//! So the kernel never mixes the caches and mappings of both, no program reads half of one text and
//! half of the next, and a program that has a text open goes on reading it, as with a replaced
//! file.
//!
//! A text node holds one lookup of its file, so that attributes other than bytes, size and times
//! can be taken from the file.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;

use super::base_nodes::blocks_of;
use super::error::FsError;
use super::fs::{Invalidation, Workspace};
use tine_attr::{Attr, FileKind, Ino, InoMap, Timestamp};
use tine_path::RepoPath;

/// Number of the first text node. Text nodes count down from here.
///
/// Numbers of a fork's new nodes count up from the top bit, and never get near.
const LAST: u64 = u64::MAX - 1;
/// Lowest number of a text node.
const FIRST: u64 = LAST - (1 << 48);

/// Texts that a fork shows.
///
/// It synchronizes itself. Nothing else is locked while its lock is held.
#[derive(Default)]
pub(super) struct ShownTexts(Mutex<ShownTable>);

/// State under the lock.
#[derive(Default)]
struct ShownTable {
    /// Texts by path.
    paths: BTreeMap<RepoPath, ShownText>,
    /// Text nodes that the kernel may remember.
    nodes: InoMap<TextNode>,
    /// Number of text nodes made so far.
    numbers: u64,
    /// Times at which files older than their text got visible again.
    ///
    /// Whatever was built from that text must be built again.
    uncovered: InoMap<Timestamp>,
    /// Processes of editors.
    editors: HashSet<u32>,
}

/// Text at one path.
struct ShownText {
    /// Bytes of the text.
    text: Arc<[u8]>,
    /// Time at which the text was last changed.
    since: Timestamp,
    /// Numbers of the text node and its file, once looked up.
    node: Option<(Ino, Ino)>,
    /// True if a text at the path ever had a node.
    was_seen: bool,
}

/// Node of one text.
struct TextNode {
    /// Bytes of the node. Immutable.
    text: Arc<[u8]>,
    /// Modification time, unless the file's is later.
    since: Timestamp,
    /// Number of the file, of which one lookup is held.
    file: Ino,
    /// Lookup count of the node.
    lookups: u64,
}

impl TextNode {
    /// Returns the attributes, given those of the file.
    fn attr(&self, ino: Ino, file: &Attr) -> Attr {
        let size = self.text.len() as u64;
        Attr {
            ino,
            size,
            blocks: blocks_of(size),
            mtime: file.mtime.max(self.since),
            ctime: file.ctime.max(self.since),
            ..*file
        }
    }
}

/// Returns a time after `last`, the present one if possible.
fn after(last: Timestamp) -> Timestamp {
    let next = match last.nanos {
        999_999_999 => Timestamp {
            secs: last.secs.saturating_add(1),
            nanos: 0,
        },
        nanos => Timestamp {
            nanos: nanos + 1,
            ..last
        },
    };
    Timestamp::now().max(next)
}

/// Returns whether the number is a text node's.
pub fn is_text_node(ino: Ino) -> bool {
    (FIRST..=LAST).contains(&ino.0)
}

impl Workspace {
    /// Shows `text` at `path` from now on; `None` shows the file again.
    ///
    /// On return programs see it. Does nothing if no text is shown and `text` is `None`.
    pub fn show_text(&self, path: &RepoPath, text: Option<Arc<[u8]>>) {
        let ended = {
            let mut table = self.shown.0.lock();
            match text {
                Some(text) => match table.paths.get_mut(path) {
                    Some(shown) => {
                        // The kernel looks the name up each time, so nothing is cached.
                        shown.change(text);
                        return;
                    }
                    None => {
                        table.paths.insert(path.clone(), ShownText::new(text));
                        None
                    }
                },
                None => match table.paths.remove(path) {
                    Some(shown) => Some(shown),
                    None => return,
                },
            }
        };
        if let Some(shown) = ended.filter(|shown| shown.was_seen) {
            self.note_uncovered(path, shown.since);
        }
        self.announce(self.names_of(path));
    }

    /// Makes a file newer than the text that hid it.
    fn note_uncovered(&self, path: &RepoPath, since: Timestamp) {
        if let Ok(file) = self.resolve(path)
            && file.mtime < since
        {
            self.shown.0.lock().uncovered.insert(file.ino, after(since));
        }
    }

    /// Returns the invalidations of everything that `path` leads to.
    fn names_of(&self, path: &RepoPath) -> Vec<Invalidation> {
        let Some((parent, name)) = path.split_last() else {
            return Vec::new();
        };
        let state = self.read_state();
        let Ok(parent) = self.walk_dir(&state, &parent) else {
            return Vec::new();
        };
        let file = self.child(&state, &parent, name.as_bytes());
        let file = file
            .ok()
            .flatten()
            .map(|file| Invalidation::Attributes(file.ino));
        let parent = parent.ino;
        let mut names = vec![Invalidation::Entry { parent, name }];
        names.extend(file);
        names
    }

    /// Returns the invalidations of all paths that show a text. Call it after names changed.
    pub(super) fn shown_names(&self) -> Vec<Invalidation> {
        let paths: Vec<RepoPath> = self.shown.0.lock().paths.keys().cloned().collect();
        paths.iter().flat_map(|path| self.names_of(path)).collect()
    }

    /// Invalidates all paths that show a text, and the attributes of `files`.
    ///
    /// Called after names were changed through the kernel.
    pub fn announce_shown(&self, files: &[Ino]) {
        let files = files.iter().copied().map(Invalidation::Attributes);
        self.announce(files.chain(self.shown_names()));
    }

    /// Returns whether a path that shows a text ends in `name`.
    ///
    /// The kernel must not cache such a name.
    pub fn is_name_shown(&self, name: &[u8]) -> bool {
        let table = self.shown.0.lock();
        table.paths.keys().any(|path| ends_in(path, name))
    }

    /// Returns the names in a directory that show a text.
    pub fn shown_in(&self, dir: Ino) -> Vec<Vec<u8>> {
        let paths: Vec<RepoPath> = self.shown.0.lock().paths.keys().cloned().collect();
        let state = self.read_state();
        let names = paths.iter().filter_map(|path| {
            let (parent, name) = path.split_last()?;
            let parent = self.walk_dir(&state, &parent).ok()?;
            (parent.ino == dir).then(|| name.as_bytes().to_vec())
        });
        names.collect()
    }

    /// Looks up the text node at `name` in `parent`.
    ///
    /// It takes over the caller's lookup of `file`, the file at the name. `None` if no text is
    /// shown; the caller keeps the lookup.
    pub fn lookup_text(&self, parent: Ino, name: &[u8], file: &Attr) -> Option<Attr> {
        if file.kind != FileKind::Regular {
            return None;
        }
        let path = self.shown_path(parent, name)?;
        let (attr, is_held) = {
            let mut table = self.shown.0.lock();
            let ShownTable {
                paths,
                nodes,
                numbers,
                ..
            } = &mut *table;
            let shown = paths.get_mut(&path)?;
            let (ino, is_held) = match shown.node {
                Some((ino, of)) if of == file.ino && nodes.contains_key(&ino) => (ino, true),
                _ => {
                    let ino = Ino(LAST.checked_sub(*numbers).filter(|ino| *ino >= FIRST)?);
                    *numbers += 1;
                    shown.node = Some((ino, file.ino));
                    shown.was_seen = true;
                    (ino, false)
                }
            };
            let node = nodes.entry(ino).or_insert_with(|| TextNode {
                text: shown.text.clone(),
                since: shown.since,
                file: file.ino,
                lookups: 0,
            });
            node.lookups += 1;
            (node.attr(ino, file), is_held)
        };
        if is_held {
            self.forget(file.ino, 1);
        }
        Some(attr)
    }

    /// Returns the path of the text at this name.
    fn shown_path(&self, parent: Ino, name: &[u8]) -> Option<RepoPath> {
        let paths: Vec<RepoPath> = {
            let table = self.shown.0.lock();
            let paths = table.paths.keys().filter(|path| ends_in(path, name));
            paths.cloned().collect()
        };
        let state = self.read_state();
        paths.into_iter().find(|path| {
            let dir = path
                .split_last()
                .map(|(dir, _)| self.walk_dir(&state, &dir));
            matches!(dir, Some(Ok(dir)) if dir.ino == parent)
        })
    }

    /// Returns the file of a text node. Returns any other number unchanged.
    ///
    /// # Errors
    /// [`FsError::Stale`] if the text node was forgotten.
    pub fn file_of_text(&self, ino: Ino) -> Result<Ino, FsError> {
        if !is_text_node(ino) {
            return Ok(ino);
        }
        let table = self.shown.0.lock();
        table
            .nodes
            .get(&ino)
            .map(|node| node.file)
            .ok_or(FsError::Stale)
    }

    /// Returns the bytes of a text node.
    ///
    /// # Errors
    /// [`FsError::Stale`] if the text node was forgotten.
    pub fn text_of(&self, ino: Ino) -> Result<Arc<[u8]>, FsError> {
        let table = self.shown.0.lock();
        table
            .nodes
            .get(&ino)
            .map(|node| node.text.clone())
            .ok_or(FsError::Stale)
    }

    /// Returns the attributes of a text node.
    ///
    /// # Errors
    /// [`FsError::Stale`] if the text node was forgotten, and those of [`Workspace::getattr`] for
    /// its file.
    pub fn getattr_of_text(&self, ino: Ino) -> Result<Attr, FsError> {
        let file = self.getattr(self.file_of_text(ino)?)?;
        let table = self.shown.0.lock();
        let node = table.nodes.get(&ino).ok_or(FsError::Stale)?;
        Ok(node.attr(ino, &file))
    }

    /// Lowers the lookup count of a text node; see [`Workspace::forget`].
    pub fn forget_text(&self, ino: Ino, lookups: u64) {
        let file = {
            let mut table = self.shown.0.lock();
            let Some(node) = table.nodes.get_mut(&ino) else {
                return;
            };
            node.lookups = node.lookups.saturating_sub(lookups);
            match node.lookups {
                0 => table.nodes.remove(&ino).map(|node| node.file),
                _ => None,
            }
        };
        if let Some(file) = file {
            self.forget(file, 1);
        }
    }

    /// Returns a file's attributes as programs must see them.
    ///
    /// A file that a text had hidden is newer than whatever was built from that text.
    pub fn uncovered(&self, mut attr: Attr) -> Attr {
        if let Some(since) = self.shown.0.lock().uncovered.get(&attr.ino) {
            attr.mtime = attr.mtime.max(*since);
            attr.ctime = attr.ctime.max(*since);
        }
        attr
    }

    /// Forgets the raised time of a file. Called after a program set its times.
    pub fn forget_uncovered(&self, ino: Ino) {
        self.shown.0.lock().uncovered.remove(&ino);
    }

    /// Sets the editors' processes, which see files instead of texts.
    pub fn set_editors(&self, processes: HashSet<u32>) {
        self.shown.0.lock().editors = processes;
    }

    /// Returns whether the process is an editor's.
    pub fn is_editor(&self, process: u32) -> bool {
        self.shown.0.lock().editors.contains(&process)
    }

    /// Removes all texts. Called when the mount is gone.
    pub(super) fn show_nothing(&self) {
        let mut table = self.shown.0.lock();
        // Numbers are never used again.
        *table = ShownTable {
            numbers: table.numbers,
            ..ShownTable::default()
        };
    }

    /// Returns whether any path shows a text.
    pub fn shows_texts(&self) -> bool {
        !self.shown.0.lock().paths.is_empty()
    }
}

impl ShownText {
    fn new(text: Arc<[u8]>) -> ShownText {
        ShownText {
            text,
            since: Timestamp::now(),
            node: None,
            was_seen: false,
        }
    }

    fn change(&mut self, text: Arc<[u8]>) {
        if !Arc::ptr_eq(&self.text, &text) && self.text != text {
            self.text = text;
            self.since = after(self.since);
            self.node = None;
        }
    }
}

fn ends_in(path: &RepoPath, name: &[u8]) -> bool {
    path.split_last()
        .is_some_and(|(_, last)| last.as_bytes() == name)
}
