//! One writer in a directory of its own, with everything it ever saw there: its state after each
//! change, and how much was recorded when the change had returned.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::support::Random;
use crate::support::disk::{Disk, Recording, Replayed};

/// A file through all its names.
type FileId = u32;

/// What a directory holds.
#[derive(Clone, Default)]
struct State {
    /// By path; `None` is a directory.
    names: BTreeMap<String, Option<FileId>>,
    contents: BTreeMap<FileId, Arc<Vec<u8>>>,
}

/// What is found in a directory.
type Found = BTreeMap<String, Option<Vec<u8>>>;

struct Step {
    state: State,
    /// Everything up to here is durable when it has returned.
    is_sync: bool,
    /// How much was recorded by then.
    end: u64,
    what: String,
}

pub struct Worker {
    name: String,
    dir: PathBuf,
    steps: Vec<Step>,
    random: Random,
    next_file: FileId,
}

enum Change {
    Create(String),
    Write {
        name: String,
        offset: usize,
        data: Vec<u8>,
        is_sync: bool,
    },
    Truncate(String, usize),
    Rename(String, String),
    Link(String, String),
    Unlink(String),
    Mkdir(String),
    Rmdir(String),
    Fsync(String),
    Fdatasync(String),
}

impl Worker {
    /// Begins with an empty directory, durably.
    pub fn start(mount: &Path, name: &str, random: Random, disk: &Disk) -> Worker {
        let dir = mount.join(name);
        fs::create_dir(&dir).expect("the mount can be written");
        File::open(&dir)
            .and_then(|dir| dir.sync_all())
            .expect("a directory can be synced");
        Worker {
            name: name.to_owned(),
            dir,
            steps: vec![Step {
                state: State::default(),
                is_sync: true,
                end: disk.position(),
                what: "start".to_owned(),
            }],
            random,
            next_file: 0,
        }
    }

    fn last(&self) -> &Step {
        self.steps.last().expect("it begins with one")
    }

    pub fn work(&mut self, changes: usize, disk: &Disk) {
        for _ in 0..changes {
            let change = self.choose();
            let what = change.describe();
            let mut state = self.last().state.clone();
            let is_sync = change
                .carry_out(&self.dir)
                .unwrap_or_else(|error| panic!("{what} in {}: {error}", self.name));
            change.apply(&mut state, &mut self.next_file);
            self.steps.push(Step {
                state,
                is_sync,
                end: disk.position(),
                what,
            });
        }
    }

    /// Notes something that others did, which may have synced what was done here.
    pub fn note(&mut self, is_sync: bool, end: u64) {
        let state = self.last().state.clone();
        self.steps.push(Step {
            state,
            is_sync,
            end,
            what: "something else".to_owned(),
        });
    }

    /// How many steps there were.
    pub fn steps(&self) -> usize {
        self.steps.len()
    }

    /// Notes that the directory is as it was after so many steps.
    pub fn note_restored(&mut self, steps: usize, end: u64) {
        let state = self.steps[steps - 1].state.clone();
        self.steps.push(Step {
            state,
            is_sync: false,
            end,
            what: format!("restored to {}", steps - 1),
        });
    }

    fn choose(&mut self) -> Change {
        let state = self.last().state.clone();
        let files: Vec<String> = names_where(&state, |id| id.is_some());
        let dirs: Vec<String> = names_where(&state, |id| id.is_none());
        let random = &mut self.random;
        let fresh = format!("f{}", random.below(1 << 30));
        let place =
            |random: &mut Random, name: String| match dirs.is_empty() || random.below(2) == 0 {
                true => name,
                false => format!("{}/{name}", pick(random, &dirs)),
            };
        if files.is_empty() {
            return Change::Create(fresh);
        }
        let file = pick(random, &files);
        let size = state.content(&file).len();
        match random.below(24) {
            0 | 1 => Change::Create(place(random, fresh)),
            2 => Change::Truncate(file, random.below(size as u64 + 5000) as usize),
            3 => Change::Rename(file, place(random, fresh)),
            4 => {
                let to = pick(random, &files);
                // Two names of one file stay both.
                match state.names[&to] == state.names[&file] {
                    true => Change::Fsync(to),
                    false => Change::Rename(file, to),
                }
            }
            5 => Change::Link(file, place(random, fresh)),
            6 => Change::Unlink(file),
            7 => Change::Mkdir(fresh),
            8 => match dirs.iter().find(|dir| !state.has_children(dir)) {
                Some(dir) => Change::Rmdir(dir.clone()),
                None => Change::Fsync(String::new()),
            },
            9 => Change::Fsync(file),
            10 => Change::Fdatasync(file),
            11 => Change::Fsync(if dirs.is_empty() {
                String::new()
            } else {
                pick(random, &dirs)
            }),
            choice => {
                let len = [10, 300, 5_000, 30_000, 100_000][random.below(5) as usize];
                let offset = match choice {
                    12..=17 if size < 200_000 => size,
                    18 => size + random.below(20_000) as usize,
                    _ => random.below(size as u64 + 1) as usize,
                };
                Change::Write {
                    name: file,
                    offset,
                    data: random.bytes(len),
                    is_sync: choice == 12,
                }
            }
        }
    }

    /// What must hold of the directory after the power was lost: it is as it was after one of the
    /// changes, none earlier than the last that was synced, except that what was written since in
    /// place may be there already.
    pub fn check(&self, mount: &Path, recording: &Recording, replayed: &Replayed, context: &str) {
        self.check_until(self.steps.len(), mount, recording, replayed, context);
    }

    /// As [`Worker::check`], of what was frozen after so many steps, at `dir`.
    pub fn check_until(
        &self,
        steps: usize,
        dir: &Path,
        recording: &Recording,
        replayed: &Replayed,
        context: &str,
    ) {
        let synced = self
            .steps
            .iter()
            .rposition(|step| step.is_sync && recording.flushed_at(step.end) <= replayed.flushed);
        let begun = self
            .steps
            .iter()
            .position(|step| step.end > replayed.reached)
            .unwrap_or(self.steps.len() - 1);
        let Some(synced) = synced else {
            return;
        };
        let (synced, begun) = (synced.min(steps - 1), begun.min(steps - 1));
        let found = read_tree(&dir.join(&self.name));
        let fits = (synced..=begun).any(|at| self.is_after(&found, at, begun));
        assert!(
            fits,
            "{context}: {} is as it was after none of its changes {synced} to {begun}; next to the first:\n{}changes:\n{}",
            self.name,
            self.difference(&found, synced, begun),
            (synced..=begun)
                .map(|at| format!("  {at}: {}\n", self.steps[at].what))
                .collect::<String>(),
        );
    }

    /// What is in the directory now, after everything.
    pub fn found(&self, mount: &Path) -> Found {
        read_tree(&mount.join(&self.name))
    }

    fn is_after(&self, found: &Found, at: usize, begun: usize) -> bool {
        let state = &self.steps[at].state;
        state.names.len() == found.len()
            && state
                .names
                .iter()
                .all(|(name, id)| match (found.get(name), id) {
                    (Some(None), None) => true,
                    (Some(Some(content)), Some(id)) => {
                        self.wrong_byte(content, *id, at, begun).is_none()
                    }
                    _ => false,
                })
    }

    /// The first byte of a file that is none of those it had at or after the change `at`.
    fn wrong_byte(&self, content: &[u8], id: FileId, at: usize, begun: usize) -> Option<usize> {
        let versions: Vec<&[u8]> = (at..=begun)
            .filter_map(|step| self.steps[step].state.contents.get(&id))
            .map(|version| version.as_slice())
            .collect();
        let (first, later) = versions.split_first()?;
        if content == *first {
            return None;
        }
        // The kernel may cut a write into pieces.
        let is_half_written = first.len() < content.len()
            && later.first().is_some_and(|next| content.len() < next.len());
        if content.len() != first.len() && !is_half_written {
            return Some(first.len().min(content.len()));
        }
        (0..content.len()).find(|&k| {
            let versions = if k < first.len() {
                &versions[..]
            } else {
                later
            };
            !versions.iter().any(|version| match version.get(k) {
                Some(byte) => *byte == content[k],
                // Cut off there meanwhile: cleared before it grew again.
                None => content[k] == 0,
            })
        })
    }

    fn difference(&self, found: &Found, at: usize, begun: usize) -> String {
        let state = &self.steps[at].state;
        let mut lines = String::new();
        for name in state
            .names
            .keys()
            .chain(found.keys().filter(|name| !state.names.contains_key(*name)))
        {
            let expected = state.names.get(name);
            let line = match (expected, found.get(name)) {
                (Some(Some(id)), Some(Some(content))) => {
                    match self.wrong_byte(content, *id, at, begun) {
                        None => continue,
                        Some(k) => format!(
                            "{} bytes where {} were, wrong from {k} on: {:?}",
                            content.len(),
                            state.contents[id].len(),
                            &content[k.min(content.len())..content.len().min(k + 8)]
                        ),
                    }
                }
                (Some(None), Some(None)) => continue,
                (Some(_), None) => "is missing".to_owned(),
                (None, Some(_)) => "is there".to_owned(),
                _ => "is of another kind".to_owned(),
            };
            lines += &format!("  {name}: {line}\n");
        }
        lines
    }
}

fn names_where(state: &State, wanted: impl Fn(&Option<FileId>) -> bool) -> Vec<String> {
    let names = state.names.iter().filter(|(_, id)| wanted(id));
    names.map(|(name, _)| name.clone()).collect()
}

fn pick(random: &mut Random, among: &[String]) -> String {
    among[random.below(among.len() as u64) as usize].clone()
}

fn read_tree(dir: &Path) -> Found {
    let mut found = Found::new();
    let mut waiting = vec![String::new()];
    while let Some(beneath) = waiting.pop() {
        let entries = fs::read_dir(dir.join(&beneath))
            .unwrap_or_else(|error| panic!("{}: {error}", dir.join(&beneath).display()));
        for entry in entries {
            let entry = entry.expect("the directory can be listed");
            let name = entry
                .file_name()
                .into_string()
                .expect("the names are UTF-8");
            let path = if beneath.is_empty() {
                name
            } else {
                format!("{beneath}/{name}")
            };
            if entry.file_type().expect("it is there").is_dir() {
                waiting.push(path.clone());
                found.insert(path, None);
            } else {
                let content = fs::read(entry.path()).unwrap_or_else(|error| {
                    panic!("{} cannot be read: {error}", entry.path().display())
                });
                found.insert(path, Some(content));
            }
        }
    }
    found
}

impl State {
    fn content(&self, name: &str) -> &[u8] {
        let id = self.names[name].expect("only files have contents");
        &self.contents[&id]
    }

    fn has_children(&self, dir: &str) -> bool {
        let prefix = format!("{dir}/");
        self.names.keys().any(|name| name.starts_with(&prefix))
    }

    fn edit(&mut self, name: &str, edit: impl FnOnce(&mut Vec<u8>)) {
        let id = self.names[name].expect("only files are edited");
        let content = self.contents.get_mut(&id).expect("a file has a content");
        edit(Arc::make_mut(content));
    }

    fn forget_unnamed(&mut self) {
        let names = &self.names;
        self.contents
            .retain(|id, _| names.values().any(|named| *named == Some(*id)));
    }
}

impl Change {
    /// Whether everything up to here is durable then.
    fn carry_out(&self, dir: &Path) -> io::Result<bool> {
        let open = |name: &str| OpenOptions::new().write(true).open(dir.join(name));
        let mut is_durable = false;
        match self {
            Change::Create(name) => {
                File::create_new(dir.join(name))?;
            }
            Change::Write {
                name,
                offset,
                data,
                is_sync,
            } => {
                let flags = if *is_sync { libc::O_SYNC } else { 0 };
                OpenOptions::new()
                    .write(true)
                    .custom_flags(flags)
                    .open(dir.join(name))?
                    .write_all_at(data, *offset as u64)?;
                is_durable = *is_sync;
            }
            Change::Truncate(name, size) => open(name)?.set_len(*size as u64)?,
            Change::Rename(from, to) => fs::rename(dir.join(from), dir.join(to))?,
            Change::Link(from, to) => fs::hard_link(dir.join(from), dir.join(to))?,
            Change::Unlink(name) => fs::remove_file(dir.join(name))?,
            Change::Mkdir(name) => fs::create_dir(dir.join(name))?,
            Change::Rmdir(name) => fs::remove_dir(dir.join(name))?,
            Change::Fsync(name) => {
                File::open(dir.join(name))?.sync_all()?;
                is_durable = true;
            }
            Change::Fdatasync(name) => {
                File::open(dir.join(name))?.sync_data()?;
                is_durable = true;
            }
        }
        Ok(is_durable)
    }

    fn apply(self, state: &mut State, next_file: &mut FileId) {
        match self {
            Change::Create(name) => {
                *next_file += 1;
                state.names.insert(name, Some(*next_file));
                state.contents.insert(*next_file, Arc::default());
            }
            Change::Write {
                name, offset, data, ..
            } => state.edit(&name, |content| {
                if content.len() < offset + data.len() {
                    content.resize(offset + data.len(), 0);
                }
                content[offset..offset + data.len()].copy_from_slice(&data);
            }),
            Change::Truncate(name, size) => state.edit(&name, |content| content.resize(size, 0)),
            Change::Rename(from, to) => {
                let id = state
                    .names
                    .remove(&from)
                    .expect("only what exists is renamed");
                state.names.insert(to, id);
                state.forget_unnamed();
            }
            Change::Link(from, to) => {
                let id = state.names[&from];
                state.names.insert(to, id);
            }
            Change::Unlink(name) | Change::Rmdir(name) => {
                state.names.remove(&name);
                state.forget_unnamed();
            }
            Change::Mkdir(name) => {
                state.names.insert(name, None);
            }
            Change::Fsync(_) | Change::Fdatasync(_) => {}
        }
    }

    fn describe(&self) -> String {
        match self {
            Change::Create(name) => format!("create {name}"),
            Change::Write {
                name,
                offset,
                data,
                is_sync,
            } => format!(
                "write {} at {offset} of {name}{}",
                data.len(),
                if *is_sync { ", O_SYNC" } else { "" }
            ),
            Change::Truncate(name, size) => format!("truncate {name} to {size}"),
            Change::Rename(from, to) => format!("rename {from} to {to}"),
            Change::Link(from, to) => format!("link {from} as {to}"),
            Change::Unlink(name) => format!("unlink {name}"),
            Change::Mkdir(name) => format!("mkdir {name}"),
            Change::Rmdir(name) => format!("rmdir {name}"),
            Change::Fsync(name) => format!("fsync {name}"),
            Change::Fdatasync(name) => format!("fdatasync {name}"),
        }
    }
}
