//! Writers: each changes a directory of its own with every kind of system call until the daemon is
//! killed beneath it.

use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::io;
use std::path::PathBuf;

use super::calls::{AllocateMode, Change};
use super::tree::{Kind, Tree};
use crate::support::{Random, is_root};

/// Names that a writer has at most.
const MAX_PATHS: usize = 40;
/// Files are not made longer than this by a write, in bytes.
const MAX_LEN: usize = 400_000;

/// One writer: a directory of its own, and what must be in it.
pub struct Writer {
    pub dir: PathBuf,
    pub tree: Tree,
    random: Random,
    next_name: u32,
    /// What is to follow whatever else is chosen: a change that takes several calls.
    plan: VecDeque<Change>,
    is_root: bool,
}

impl Writer {
    pub fn new(dir: PathBuf, seed: u64) -> Writer {
        Writer {
            dir,
            tree: Tree::default(),
            random: Random::new(seed),
            next_name: 0,
            plan: VecDeque::new(),
            is_root: is_root(),
        }
    }

    /// How many of its paths git would take.
    pub fn files(&self) -> usize {
        self.paths_where(|kind| matches!(kind, Kind::File(_) | Kind::Symlink(_)))
            .len()
    }

    fn below(&mut self, end: usize) -> usize {
        self.random.below(end as u64) as usize
    }

    fn pick(&mut self, paths: &[String]) -> Option<String> {
        match paths.len() {
            0 => None,
            len => Some(paths[self.below(len)].clone()),
        }
    }

    fn paths_where(&self, wanted: impl Fn(&Kind) -> bool) -> Vec<String> {
        let kind_of = |path: &String| wanted(&self.tree.node(path).kind);
        self.tree
            .paths
            .keys()
            .filter(|path| kind_of(path))
            .cloned()
            .collect()
    }

    /// A new name in the writer's directory or in one beneath it.
    fn new_path(&mut self) -> String {
        self.next_name += 1;
        let name = format!("name-{}", self.next_name);
        let dirs = self.paths_where(|kind| *kind == Kind::Dir);
        let shallow: Vec<String> = dirs
            .into_iter()
            .filter(|dir| dir.matches('/').count() < 2)
            .collect();
        match self.pick(&shallow) {
            Some(dir) if self.below(2) == 0 => format!("{dir}/{name}"),
            _ => name,
        }
    }

    /// A change that is possible now, or `None` where the dice fell on one that is not.
    fn roll(&mut self) -> Option<Change> {
        let all: Vec<String> = self.tree.paths.keys().cloned().collect();
        let files = self.paths_where(|kind| matches!(kind, Kind::File(_)));
        if files.is_empty() {
            return Some(Change::Create(self.new_path()));
        }
        let is_full = all.len() >= MAX_PATHS;
        let file = self.pick(&files)?;
        let size = self.tree.content(&file).len();
        let change = match self.below(34) {
            0 if !is_full => Change::Create(self.new_path()),
            1 if !is_full => Change::Mkdir(self.new_path()),
            2 if !is_full => Change::Symlink(self.new_path(), format!("../{file}").into_bytes()),
            3 if !is_full => Change::Fifo(self.new_path()),
            4 if !is_full => Change::Device(self.new_path(), rustix::fs::makedev(1, 3)),
            5 if !is_full => Change::Link(file, self.new_path()),
            6 | 7 => {
                let others = self.paths_where(|kind| *kind != Kind::Dir);
                Change::Unlink(self.pick(&others)?)
            }
            8 => {
                let dirs = self.paths_where(|kind| *kind == Kind::Dir);
                let dir = self.pick(&dirs)?;
                match self.tree.has_children(&dir) {
                    true => Change::Rename(dir, self.new_path()),
                    false => Change::Rmdir(dir),
                }
            }
            9 => Change::Rename(self.pick(&all)?, self.new_path()),
            10 => Change::Rename(self.pick(&all)?, self.pick(&all)?),
            11 => Change::Exchange(self.pick(&all)?, self.pick(&all)?),
            12 => {
                let path = self.pick(&all)?;
                let is_symlink = matches!(self.tree.node(&path).kind, Kind::Symlink(_));
                Change::Chmod(path, 0o700 | self.random.below(0o100) as u32)
                    .filtered(!is_symlink)?
            }
            13 => Change::Chown(
                self.pick(&all)?,
                self.random.below(3) as u32,
                self.random.below(3) as u32,
            ),
            14 => {
                let secs = self.random.below(1 << 33) as i64 - (1 << 31);
                Change::SetTimes(self.pick(&all)?, (secs, 5), (secs + 1, 999_999_999))
            }
            15 => {
                let name = format!("user.{}", self.below(3));
                let len = [0, 10, 3_000, 50_000][self.below(4)];
                Change::SetXattr(file, name, self.random.bytes(len))
            }
            16 => {
                let name = self.tree.node(&file).xattrs.keys().next()?.clone();
                Change::RemoveXattr(file, name)
            }
            17 => Change::Truncate(file, self.below(size + 70_000)),
            18 => {
                let mode = [
                    AllocateMode::Grow,
                    AllocateMode::KeepSize,
                    AllocateMode::Punch,
                    AllocateMode::Zero,
                ][self.below(4)];
                let (offset, len) = (self.below(size + 1), 1 + self.below(80_000));
                Change::Allocate {
                    path: file,
                    mode,
                    offset,
                    len,
                }
                .filtered(size < MAX_LEN)?
            }
            19 => {
                let to = self.pick(&files)?;
                let (from_offset, to_len) = (self.below(size + 1), self.tree.content(&to).len());
                let len = (size - from_offset).min(1 + self.below(200_000));
                let is_other = self.tree.paths[&to] != self.tree.paths[&file];
                let to_offset = self.below(to_len + 1);
                Change::CopyRange {
                    from: file,
                    to,
                    from_offset,
                    to_offset,
                    len,
                }
                .filtered(len > 0 && is_other && to_len < MAX_LEN)?
            }
            20 if size > 0 => {
                let offset = self.below(size);
                let len = (size - offset).min(20_000);
                Change::WriteMapped {
                    path: file,
                    offset,
                    data: self.random.bytes(len),
                }
            }
            21 => Change::Sync(file),
            22 => {
                // As editors save: beside it, to the disk, over it.
                let beside = format!("{file}.new");
                if self.tree.paths.contains_key(&beside) {
                    return None;
                }
                let len = self.below(100_000);
                self.plan.extend([
                    Change::Create(beside.clone()),
                    Change::Write {
                        path: beside.clone(),
                        offset: 0,
                        data: self.random.bytes(len),
                    },
                    Change::Sync(beside.clone()),
                    Change::Rename(beside, file),
                ]);
                return self.plan.pop_front();
            }
            _ => {
                let len = [10, 300, 5_000, 60_000, 300_000][self.below(5)];
                let offset = match size < MAX_LEN && self.below(2) == 0 {
                    true => size,
                    false => self.below(size + 1),
                };
                Change::Write {
                    path: file,
                    offset,
                    data: self.random.bytes(len),
                }
            }
        };
        self.is_possible(&change).then_some(change)
    }

    fn is_possible(&self, change: &Change) -> bool {
        let is_beneath = |path: &str, dir: &str| path.starts_with(&format!("{dir}/"));
        let nested = |one: &str, other: &str| {
            one == other || is_beneath(one, other) || is_beneath(other, one)
        };
        match change {
            Change::Rename(from, to) if nested(from, to) => false,
            Change::Rename(from, to) if self.tree.paths.contains_key(to) => {
                match (self.tree.is_dir(from), self.tree.is_dir(to)) {
                    (true, true) => !self.tree.has_children(to),
                    (false, false) => true,
                    _ => false,
                }
            }
            Change::Exchange(one, other) => !nested(one, other),
            change => self.is_root || !change.needs_root(),
        }
    }

    fn choose(&mut self) -> Change {
        loop {
            if let Some(change) = self.plan.pop_front().or_else(|| self.roll()) {
                return change;
            }
        }
    }

    /// Changes its directory until something fails; the change that failed, which may have happened
    /// or not, and the failure.
    pub fn work(&mut self) -> (Change, io::Error) {
        loop {
            let change = self.choose();
            match change.carry_out(&self.dir) {
                Ok(()) => change.apply(&mut self.tree),
                Err(error) => {
                    self.plan.clear();
                    return (change, error);
                }
            }
        }
    }

    /// Checks the directory against what was acknowledged, with `unsure` done or not done, or half
    /// done where the kernel does it in pieces. What is there is what is expected from now on.
    pub fn check(&mut self, unsure: &Change) {
        let found = Tree::read(&self.dir);
        let mut after = self.tree.clone();
        unsure.apply(&mut after);
        let not_done = self.tree.difference(&found);
        let done = after.difference(&found);
        if let (Some(not_done), Some(done)) = (&not_done, &done) {
            assert!(
                is_half_done(unsure, &self.tree, &after, &found),
                "{} is neither as it was acknowledged nor as it was to be after {}:\nas it was: {not_done}\nafter: {done}",
                self.dir.display(),
                brief(unsure),
            );
        }
        self.tree = found;
    }
}

impl Change {
    fn filtered(self, is_good: bool) -> Option<Change> {
        is_good.then_some(self)
    }
}

/// Whether `found` is what `unsure` makes of `before`, but for the bytes that it writes: each of
/// them the old one or the new one.
fn is_half_done(unsure: &Change, before: &Tree, after: &Tree, found: &Tree) -> bool {
    let Some(path) = unsure.written() else {
        return false;
    };
    if !found.paths.contains_key(path) {
        return false;
    }
    let (old, new, now) = (
        before.content(path),
        after.content(path),
        found.content(path),
    );
    let is_between = now.len() >= old.len().min(new.len())
        && now.len() <= old.len().max(new.len())
        && now.iter().enumerate().all(|(at, byte)| {
            old.get(at) == Some(byte) || new.get(at) == Some(byte) || *byte == 0 && at >= old.len()
        });
    let mut expected = after.clone();
    expected.change_content(path, |content| *content = now.to_vec());
    is_between && expected.difference(found).is_none()
}

/// The change without its bytes.
fn brief(change: &Change) -> String {
    let text = format!("{change:?}");
    match text.split_once("data: [") {
        Some((head, _)) => format!("{head}data: …"),
        None => text.chars().take(300).collect(),
    }
}

/// A writer that fills and empties one directory of thousands of names.
pub struct Crowd {
    pub dir: PathBuf,
    names: BTreeSet<u64>,
    random: Random,
    next: u64,
}

impl Crowd {
    /// Names that the directory holds at most.
    const MOST: usize = 4_000;

    pub fn new(dir: PathBuf, seed: u64) -> Crowd {
        Crowd {
            dir,
            names: BTreeSet::new(),
            random: Random::new(seed),
            next: 0,
        }
    }

    /// Makes and removes names until something fails; the name that it failed at.
    pub fn work(&mut self) -> (u64, io::Error) {
        loop {
            let goes = self.random.below(4) == 0 || self.names.len() >= Crowd::MOST;
            let oldest = self
                .names
                .range(self.random.below(self.next + 1)..)
                .next()
                .copied();
            let (number, result) = match oldest.filter(|_| goes) {
                Some(number) => (number, fs::remove_file(self.dir.join(number.to_string()))),
                None => {
                    self.next += 1;
                    (
                        self.next,
                        fs::File::create_new(self.dir.join(self.next.to_string())).map(drop),
                    )
                }
            };
            match result {
                Ok(()) if !self.names.remove(&number) => drop(self.names.insert(number)),
                Ok(()) => {}
                Err(error) => return (number, error),
            }
        }
    }

    /// Checks the directory; `unsure` may be there or not.
    pub fn check(&mut self, unsure: u64) {
        let mut found: BTreeSet<u64> = fs::read_dir(&self.dir)
            .expect("the directory can be listed")
            .map(|entry| entry.expect("each entry can be read").file_name())
            .map(|name| {
                name.to_str()
                    .and_then(|name| name.parse().ok())
                    .expect("the names are numbers")
            })
            .collect();
        let is_there = found.remove(&unsure);
        self.names.remove(&unsure);
        assert!(
            found == self.names,
            "missing {:?}, not expected {:?}",
            self.names.difference(&found).collect::<Vec<_>>(),
            found.difference(&self.names).collect::<Vec<_>>()
        );
        if is_there {
            self.names.insert(unsure);
        }
    }

    pub fn len(&self) -> usize {
        self.names.len()
    }
}
