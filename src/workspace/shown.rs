//! Text shown in place of what files hold: what a person has in an editor and has not saved. It is
//! in memory only: no layer has it, so no commit, diff, status or snapshot does.
//!
//! What is shown is a path, not a node: the text appears at the regular file that the path leads to
//! now, whichever that is, and at none of the file's other names. Each text is a node of its own (a
//! *text node*), whose number no other node ever has:
//!
//! ```text
//! name ─┬─► the file, as always         for whoever records files, or writes to this one
//!       └─► the text's node, immutable  for everybody else
//! ```
//!
//! So the kernel's cache and mappings of one are never those of the other, nobody reads half of one
//! text and half of the next, and whoever has a text open goes on reading it, as with a file that
//! was replaced.
//!
//! A text node holds one lookup of its file, so that whatever is asked of it beside bytes, size and
//! times can be asked of the file.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;

use super::base_nodes::blocks_of;
use super::error::FsError;
use super::fs::{Invalidation, Workspace};
use tine_attr::{Attr, FileKind, Ino, InoMap, Timestamp};
use tine_path::RepoPath;

/// Numbers of text nodes are counted down from here. Those of a fork's new nodes are counted up
/// from the top bit and come nowhere near.
const LAST: u64 = u64::MAX - 1;
const FIRST: u64 = LAST - (1 << 48);

/// What a fork shows. Internally synchronised: nothing else is locked while its lock is held.
#[derive(Default)]
pub(super) struct Shown(Mutex<Table>);

#[derive(Default)]
struct Table {
    paths: BTreeMap<RepoPath, ShownText>,
    nodes: InoMap<TextNode>,
    /// How many numbers were given.
    numbers: u64,
    /// When files ceased to be hidden by a text that is newer than they are: what was made from
    /// that text must be made again.
    uncovered: InoMap<Timestamp>,
    editors: HashSet<u32>,
}

struct ShownText {
    text: Arc<[u8]>,
    since: Timestamp,
    /// The text's node, and its file.
    node: Option<(Ino, Ino)>,
    /// Whether this text or one before had a node.
    was_seen: bool,
}

struct TextNode {
    text: Arc<[u8]>,
    since: Timestamp,
    file: Ino,
    lookups: u64,
}

impl TextNode {
    /// What stat(2) tells, given that of the file.
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

/// A moment that is later than `last`.
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

/// Whether the number is a text node's.
pub fn is_text_node(ino: Ino) -> bool {
    (FIRST..=LAST).contains(&ino.0)
}

impl Workspace {
    /// Shows `text` at `path` from now on, or with `None` what is there. Programs see it when this
    /// returns.
    pub fn show_text(&self, path: &RepoPath, text: Option<Arc<[u8]>>) {
        let ended = {
            let mut table = self.shown.0.lock();
            match text {
                Some(text) => match table.paths.get_mut(path) {
                    Some(shown) => {
                        // The name is asked for each time: the kernel has nothing to forget.
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

    /// Where the file is older than the text that was shown, it becomes newer.
    fn note_uncovered(&self, path: &RepoPath, since: Timestamp) {
        if let Ok(file) = self.resolve(path)
            && file.mtime < since
        {
            self.shown.0.lock().uncovered.insert(file.ino, after(since));
        }
    }

    /// What the kernel may remember of what `path` leads to.
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

    /// What the kernel may remember of all paths that are shown: names may lead elsewhere now.
    pub(super) fn shown_names(&self) -> Vec<Invalidation> {
        let paths: Vec<RepoPath> = self.shown.0.lock().paths.keys().cloned().collect();
        paths.iter().flat_map(|path| self.names_of(path)).collect()
    }

    /// Has the kernel ask again for all paths that are shown, after names were changed through it,
    /// and for the attributes of these files.
    pub fn announce_shown(&self, files: &[Ino]) {
        let files = files.iter().copied().map(Invalidation::Attributes);
        self.announce(files.chain(self.shown_names()));
    }

    /// Whether a path is shown that ends in `name`. Where the name stands in such a path, the
    /// kernel must ask for it each time.
    pub fn is_name_shown(&self, name: &[u8]) -> bool {
        let table = self.shown.0.lock();
        table.paths.keys().any(|path| ends_in(path, name))
    }

    /// Which of a directory's names are shown, in so far as there is something.
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

    /// What `name` in the directory `parent` leads to for whoever sees texts: takes the lookup of
    /// `file`, which is there, and gives one of the text's node for it. `None`, with the lookup
    /// left, where nothing is shown.
    pub fn lookup_text(&self, parent: Ino, name: &[u8], file: &Attr) -> Option<Attr> {
        if file.kind != FileKind::Regular {
            return None;
        }
        let path = self.shown_path(parent, name)?;
        let (attr, is_held) = {
            let mut table = self.shown.0.lock();
            let Table {
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

    /// The path that is shown where this name is.
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

    /// The file that a text node stands for; any other number itself.
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

    /// The bytes of a text node.
    pub fn text_of(&self, ino: Ino) -> Result<Arc<[u8]>, FsError> {
        let table = self.shown.0.lock();
        table
            .nodes
            .get(&ino)
            .map(|node| node.text.clone())
            .ok_or(FsError::Stale)
    }

    pub fn getattr_of_text(&self, ino: Ino) -> Result<Attr, FsError> {
        let file = self.getattr(self.file_of_text(ino)?)?;
        let table = self.shown.0.lock();
        let node = table.nodes.get(&ino).ok_or(FsError::Stale)?;
        Ok(node.attr(ino, &file))
    }

    /// As [`Workspace::forget`], of a text node.
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

    /// A file's attributes as programs are to have them: what was made from a text that is shown no
    /// more is older than the file.
    pub fn uncovered(&self, mut attr: Attr) -> Attr {
        if let Some(since) = self.shown.0.lock().uncovered.get(&attr.ino) {
            attr.mtime = attr.mtime.max(*since);
            attr.ctime = attr.ctime.max(*since);
        }
        attr
    }

    /// The file has the time that somebody gave it.
    pub fn forget_uncovered(&self, ino: Ino) {
        self.shown.0.lock().uncovered.remove(&ino);
    }

    /// Sets which processes are editors: they are to see what they saved, not what they have yet to
    /// save.
    pub fn set_editors(&self, processes: HashSet<u32>) {
        self.shown.0.lock().editors = processes;
    }

    pub fn is_editor(&self, process: u32) -> bool {
        self.shown.0.lock().editors.contains(&process)
    }

    /// Shows nothing any more, when nobody is there to see it.
    pub(super) fn show_nothing(&self) {
        let mut table = self.shown.0.lock();
        // Numbers go on being counted.
        *table = Table {
            numbers: table.numbers,
            ..Table::default()
        };
    }

    /// Whether any path is shown.
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
