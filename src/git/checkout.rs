//! What the main checkout has as a base has it, and since when.

use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use gix::bstr::ByteSlice;
use gix::index::entry::{Flags, Stage};

use super::checksum::Checksum;
use super::index::kind_of;
use super::{
    Base, BaseDir, BaseEntry, GitError, IgnoreRules, ObjectId, Repository, TreeEntryKind, rule_files,
};
use tine_attr::{Ino, Timestamp};
use tine_path::{DOT_GIT, EntryName, RepoPath};

/// A tracked file of the main checkout, whose content is that of a blob.
struct UnchangedFile {
    path: RepoPath,
    kind: TreeEntryKind,
    id: ObjectId,
    times: Times,
}

#[derive(Clone, Copy)]
struct Times {
    /// mtime.
    modified: Timestamp,
    /// ctime.
    changed: Timestamp,
}

impl Times {
    fn of(found: &Metadata) -> Times {
        Times {
            modified: timestamp(found.mtime(), found.mtime_nsec()),
            changed: timestamp(found.ctime(), found.ctime_nsec()),
        }
    }

    /// Whether what has them has an older mtime than what is written: it was moved here, or copied or unpacked with its times, and what
    /// was built before is of what was here then.
    fn came_with_it(&self) -> bool {
        let nanos = |time: Timestamp| i128::from(time.secs) * 1_000_000_000 + i128::from(time.nanos);
        nanos(self.changed) - nanos(self.modified) > SETTLED_NANOS
    }
}

/// Whoever writes a file is done with its mode and its name soon after, and nothing is built of other bytes in between.
const SETTLED_NANOS: i128 = 10_000_000;

/// What comes within so many seconds came in one step, as by a checkout.
const STEP_SECS: i64 = 2;

/// How many symlinks are followed.
const MAX_LINKS: usize = 40;

/// Of so many files and more, most of which came with their times, all were copied, with what was built of them.
const MIN_COPIED: usize = 16;
/// The same where nearly all came with their times.
const MIN_ALL_COPIED: usize = 4;

/// Below this many files or directories a second thread costs more than it saves.
const MIN_TO_SHARE: usize = 1024;

/// Files whose entries are racy, or that were touched since git looked at them, are compared by content up to this many bytes in all, so
/// that a fresh clone, whose last second of files is racy, counts as unchanged.
const MAX_READ_BYTES: u64 = 64 << 20;

/// A file that changed less than this ago may change again without another time.
const TICK: Duration = Duration::from_millis(20);

impl Repository {
    /// Finds what of `base` is the same in `checkout` (the main one), and when it got to be so there: by the number of the node.
    ///
    /// A file is the same where the index has the base's blob, and `lstat` says what the entry says, which is not racy, or else the
    /// bytes are those of the blob; a directory where it has the same names and no others. What came with an older mtime counts from
    /// when it came, except in a checkout that was copied or unpacked as a whole.
    ///
    /// Some are left out though they are the same, or count as newer: what was built in `checkout` was built of what was there then.
    /// - Where a directory has other names in `checkout` than in `base`, but for ignored and hidden ones, no file in it is there (`*.c`);
    ///   where directories are among them, none in the directories in it either (`*/*.c`).
    /// - What a symlink leads to, or is beneath that, is not there where the link is not the same.
    /// - What a symlink leads to is as new as the symlink.
    /// - What is beneath a directory that was moved here is as new as that.
    ///
    /// Costs an `lstat` a file and a listing a directory, and reads no content but that of racy entries and of files that were touched.
    ///
    /// # Errors
    /// [`GitError::Library`] where the index cannot be read, others where a tree or a symlink of the base cannot.
    pub fn same_since(&self, base: &Base, checkout: &Path) -> Result<Vec<(Ino, Timestamp)>, GitError> {
        let files = self.unchanged_files(checkout)?;
        let is_copied = is_copied(&files);
        let since = |times: Times| match times.came_with_it() && !is_copied {
            true => times.changed,
            false => times.modified,
        };
        let hasher = base.hasher();
        let unchanged = files.into_iter();
        let unchanged: HashMap<Ino, UnchangedFile> =
            unchanged.map(|file| (hasher.ino(&file.path), file)).collect();
        let is_same = |entry: &BaseEntry| {
            let file = unchanged.get(&entry.ino);
            file.is_some_and(|file| (entry.id, entry.kind) == (file.id, file.kind))
        };
        let mut dirs = vec![base.root()?];
        let mut links: HashMap<RepoPath, (RepoPath, Link)> = HashMap::new();
        let mut next = 0;
        while let Some(dir) = dirs.get(next).cloned() {
            next += 1;
            for entry in &dir.entries {
                let path = || dir.path.join(&entry.name);
                match entry.kind {
                    TreeEntryKind::Directory => dirs.push(base.dir(&path(), entry.id)?),
                    TreeEntryKind::Symlink => {
                        let target = base.raw_content(entry.id)?.to_vec();
                        let target = target.map_err(GitError::library("read a symlink"))?;
                        let same = unchanged.get(&entry.ino).filter(|_| is_same(entry));
                        let link = match same {
                            Some(link) if is_copied => Link::Since(link.times.modified),
                            Some(link) => Link::Since(since(link.times)),
                            None => Link::Other,
                        };
                        links.extend(led_to(&path(), &target).map(|led_to| (path(), (led_to, link))));
                    }
                    _ => {}
                }
            }
        }
        let led_to = ends_of(&links);
        let look = |dirs: &[Arc<BaseDir>]| {
            let found = dirs.iter().map(|dir| (dir.clone(), Names::of(checkout, dir)));
            found.collect::<Vec<_>>()
        };
        let mut rules = IgnoreRules::new(self, |dir: &RepoPath| {
            let read = rule_files::read(&checkout.join(dir.as_path()).join(".gitignore"));
            read.map_err(GitError::library("read rules"))
        })?;
        let mut same = Vec::with_capacity(unchanged.len());
        let mut known: HashMap<RepoPath, Beneath> = HashMap::new();
        // Directories come after those that they are in.
        for (dir, names) in shared(&dirs, look) {
            let above = dir.path.split_last().and_then(|(above, _)| known.get(&above));
            let above = above.copied().unwrap_or_default();
            let difference = names.difference(&dir, &mut rules)?;
            let times = names.times.filter(|_| !is_copied);
            let moved = times
                .filter(|times| times.came_with_it())
                .map(|times| times.changed);
            let beneath = Beneath {
                moved: above.moved.max(moved),
                is_among_others: difference == Difference::Directories,
                link: above.link.max(led_to.get(&dir.path).copied()),
            };
            known.insert(dir.path.clone(), beneath);
            if let Some(times) = names.times.filter(|_| names.are_the_same(&dir)) {
                same.push((
                    hasher.ino(&dir.path),
                    since(times).max(beneath.moved.unwrap_or(since(times))),
                ));
            }
            if difference != Difference::None || above.is_among_others {
                continue;
            }
            for entry in dir.entries.iter().filter(|entry| is_same(entry)) {
                let Some(file) = unchanged.get(&entry.ino) else {
                    continue;
                };
                let own = since(file.times);
                let time = own.max(beneath.moved.unwrap_or(own));
                match beneath.link.max(led_to.get(&file.path).copied()) {
                    Some(Link::Other) => {}
                    Some(Link::Since(link)) if link.secs.saturating_sub(time.secs) > STEP_SECS => {
                        same.push((entry.ino, link));
                    }
                    _ => same.push((entry.ino, time)),
                }
            }
        }
        Ok(same)
    }

    fn unchanged_files(&self, checkout: &Path) -> Result<Vec<UnchangedFile>, GitError> {
        let index = gix::index::File::at_or_default(
            self.common_dir().join("index"),
            self.hash_kind(),
            true,
            gix::index::decode::Options::default(),
        )
        .map_err(GitError::library("read the main checkout's index"))?;
        let look = |entries: &[gix::index::Entry]| self.look_at(checkout, &index, entries);
        Ok(shared(index.entries(), look))
    }

    fn look_at(
        &self,
        checkout: &Path,
        index: &gix::index::File,
        entries: &[gix::index::Entry],
    ) -> Vec<UnchangedFile> {
        let index_secs = index.timestamp().unix_seconds();
        let mut read_bytes = 0;
        let mut place = PathBuf::new();
        let unchanged = entries.iter().filter_map(|entry| {
            let kind = file_kind(entry)?;
            let bytes = entry.path(index);
            place.clear();
            place.push(checkout);
            place.push(bytes.to_path().ok()?);
            let found = fs::symlink_metadata(&place).ok()?;
            if !is_alike(&found, entry, kind) {
                return None;
            }
            if !is_as_looked_at(&found, entry) || i64::from(entry.stat.mtime.secs) >= index_secs {
                read_bytes += found.len();
                if read_bytes > MAX_READ_BYTES || !self.holds_blob(&place, &found, kind, entry.id) {
                    return None;
                }
            }
            Some(UnchangedFile {
                path: RepoPath::parse(bytes).ok()?,
                kind,
                id: entry.id,
                times: Times::of(&found),
            })
        });
        unchanged.collect()
    }

    /// Whether the file has the very bytes of the blob, and had no other since `found` was looked at.
    fn holds_blob(&self, place: &Path, found: &Metadata, kind: TreeEntryKind, id: ObjectId) -> bool {
        let is_settled = found
            .modified()
            .is_ok_and(|time| SystemTime::now().duration_since(time).is_ok_and(|age| age > TICK));
        let content = match kind {
            TreeEntryKind::Symlink => {
                fs::read_link(place).map(|target| target.as_os_str().as_bytes().to_vec())
            }
            _ => fs::read(place),
        };
        let hash_of = |content: &[u8]| {
            let len = content.len() as u64;
            let mut checksum = Checksum::of_object(self.hash_kind(), gix::objs::Kind::Blob, len);
            checksum.update(content);
            checksum.finish().ok()
        };
        is_settled
            && content.is_ok_and(|content| hash_of(&content) == Some(id))
            && fs::symlink_metadata(place).is_ok_and(|after| {
                (after.ctime(), after.ctime_nsec(), after.ino())
                    == (found.ctime(), found.ctime_nsec(), found.ino())
            })
    }
}

/// What `look` finds of `all`, by two threads where that is worth it.
fn shared<T: Sync, Found: Send>(all: &[T], look: impl Fn(&[T]) -> Vec<Found> + Sync) -> Vec<Found> {
    if all.len() < MIN_TO_SHARE {
        return look(all);
    }
    let (first, second) = all.split_at(all.len() / 2);
    thread::scope(|scope| {
        let second = scope.spawn(|| look(second));
        let mut found = look(first);
        // Without it files count as changed, and are built again.
        found.append(&mut second.join().unwrap_or_default());
        found
    })
}

/// Whether most files came with their times, and what was built of them came with its own.
fn is_copied(files: &[UnchangedFile]) -> bool {
    let came = files.iter().filter(|file| file.times.came_with_it()).count();
    came >= MIN_COPIED && came > files.len() / 2 || came >= MIN_ALL_COPIED && came * 10 >= files.len() * 9
}

/// Where a symlink leads to in the tree, links on the way left as they are; `None` out of it.
fn led_to(link: &RepoPath, target: &[u8]) -> Option<RepoPath> {
    let mut path = link.split_last()?.0;
    if target.starts_with(b"/") {
        return None;
    }
    for name in target.split(|byte| *byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => path = path.split_last()?.0,
            name => path.push(&EntryName::new(name).ok()?),
        }
    }
    Some(path)
}

/// A symlink, for what it leads to: what says more is greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Link {
    /// It is the same since then.
    Since(Timestamp),
    /// It is another one.
    Other,
}

/// What links lead to, by way of others, too.
fn ends_of(links: &HashMap<RepoPath, (RepoPath, Link)>) -> HashMap<RepoPath, Link> {
    let mut ends: HashMap<RepoPath, Link> = HashMap::new();
    for (led_to, link) in links.values() {
        let mut at = Some(led_to);
        for _ in 0..MAX_LINKS {
            let Some(path) = at else { break };
            let known = ends.entry(path.clone()).or_insert(*link);
            *known = (*known).max(*link);
            at = links.get(path).map(|(led_to, _)| led_to);
        }
    }
    ends
}

/// What holds for all that is in a directory.
#[derive(Clone, Copy, Default)]
struct Beneath {
    /// The link that leads to it, or to one above it.
    link: Option<Link>,
    /// When it, or one above it, was moved here.
    moved: Option<Timestamp>,
    /// Whether other directories are beside those in it.
    is_among_others: bool,
}

/// What tells the names of a directory in the checkout from those of the base.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Difference {
    None,
    Files,
    Directories,
}

/// The names of a directory in the checkout beside those of the base.
struct Names {
    /// Of the directory; `None` where there is none that can be listed, or it is changing.
    times: Option<Times>,
    /// Those that the base has not, and whether they are directories.
    more: Vec<(EntryName, bool)>,
    /// How many of the base's there are.
    count: usize,
    /// The base's that are missing, as far as they are directories.
    lacks_dir: bool,
}

impl Names {
    fn of(checkout: &Path, dir: &BaseDir) -> Names {
        let place = checkout.join(dir.path.as_path());
        let mut names = Names {
            times: None,
            more: Vec::new(),
            count: 0,
            lacks_dir: false,
        };
        let mut dirs_left = dir
            .entries
            .iter()
            .filter(|entry| entry.kind == TreeEntryKind::Directory)
            .count();
        let mut look = |names: &mut Names| -> std::io::Result<()> {
            let found = fs::symlink_metadata(&place)?;
            if !found.is_dir() {
                return Ok(());
            }
            for entry in fs::read_dir(&place)? {
                let entry = entry?;
                let name = entry.file_name();
                let name = name.as_bytes();
                if name == DOT_GIT && dir.path.is_root() {
                    continue;
                }
                let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
                match (dir.find(name), EntryName::new(name)) {
                    (Some(index), _) => {
                        names.count += 1;
                        if is_dir && dir.entries[index].kind == TreeEntryKind::Directory {
                            dirs_left = dirs_left.saturating_sub(1);
                        }
                    }
                    (None, Ok(name)) => names.more.push((name, is_dir)),
                    (None, Err(_)) => return Ok(()),
                }
            }
            let is_settled = fs::symlink_metadata(&place)?.ctime_nsec() == found.ctime_nsec();
            names.times = is_settled.then(|| Times::of(&found));
            Ok(())
        };
        if look(&mut names).is_err() {
            names.times = None;
        }
        names.lacks_dir = dirs_left > 0;
        names
    }

    fn are_the_same(&self, dir: &BaseDir) -> bool {
        self.more.is_empty() && self.count == dir.entries.len()
    }

    /// How they tell of other files than those of the base.
    fn difference(&self, dir: &BaseDir, rules: &mut IgnoreRules<'_>) -> Result<Difference, GitError> {
        let mut difference = match self.times.is_some() && self.count == dir.entries.len() {
            true => Difference::None,
            false if self.lacks_dir => Difference::Directories,
            false => Difference::Files,
        };
        for (name, is_dir) in &self.more {
            // No pattern finds a hidden one that does not name it.
            if !name.as_bytes().starts_with(b".") && !rules.is_ignored(&dir.path.join(name), *is_dir)? {
                match is_dir {
                    true => difference = Difference::Directories,
                    false if difference == Difference::None => difference = Difference::Files,
                    false => {}
                }
            }
        }
        Ok(difference)
    }
}

/// The kind of an entry that stands for one file whose `lstat` says something.
fn file_kind(entry: &gix::index::Entry) -> Option<TreeEntryKind> {
    let left_alone = Flags::INTENT_TO_ADD | Flags::SKIP_WORKTREE | Flags::ASSUME_VALID;
    if entry.stage() != Stage::Unconflicted || entry.flags.intersects(left_alone) {
        return None;
    }
    kind_of(entry.mode).filter(|kind| *kind != TreeEntryKind::Submodule)
}

/// Whether the file may have the content of the entry.
fn is_alike(found: &Metadata, entry: &gix::index::Entry, kind: TreeEntryKind) -> bool {
    let is_kind = match kind {
        TreeEntryKind::Symlink => found.file_type().is_symlink(),
        TreeEntryKind::Executable => found.file_type().is_file() && found.mode() & 0o100 != 0,
        _ => found.file_type().is_file() && found.mode() & 0o100 == 0,
    };
    is_kind && entry.stat.size == found.len() as u32
}

/// Whether the file is the one that git looked at. An index that has no nanoseconds, or no inode numbers, says less.
fn is_as_looked_at(found: &Metadata, entry: &gix::index::Entry) -> bool {
    let stat = &entry.stat;
    let is_time = |known: gix::index::entry::stat::Time, secs: i64, nanos: i64| {
        known.secs == secs as u32 && (known.nsecs == 0 || i64::from(known.nsecs) == nanos)
    };
    (stat.ino == 0 || stat.ino == found.ino() as u32)
        && is_time(stat.mtime, found.mtime(), found.mtime_nsec())
        && is_time(stat.ctime, found.ctime(), found.ctime_nsec())
}

fn timestamp(secs: i64, nanos: i64) -> Timestamp {
    Timestamp {
        secs,
        nanos: u32::try_from(nanos).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::testing::TestRepository;
    use crate::{BaseCache, InoHasher};

    const HOUR: Duration = Duration::from_secs(3600);

    /// How many seconds ago each of these got to be what it is.
    fn ages(repository: &TestRepository) -> BTreeMap<String, i64> {
        // What was written just now may change again.
        thread::sleep(2 * TICK);
        let open = repository.open();
        let spool = tempfile::tempdir().unwrap();
        let cache = BaseCache::new(spool.path(), 1 << 20).unwrap();
        let tree_id = repository.id_of("HEAD^{tree}");
        let base = Base::open(&open, tree_id, &cache, InoHasher::new([7; 16])).unwrap();
        let now = Timestamp::now().secs;
        let same: HashMap<Ino, Timestamp> = open
            .same_since(&base, repository.dir())
            .unwrap()
            .into_iter()
            .collect();
        let listed = repository.git(&["ls-tree", "-rt", "--name-only", "HEAD"]);
        let age = |path: &str| {
            let time = same.get(&base.hasher().ino(&RepoPath::parse(path).unwrap()))?;
            Some((path.to_owned(), now - time.secs))
        };
        listed.lines().filter_map(age).collect()
    }

    fn make_old(repository: &TestRepository, path: &str) {
        let file = fs::File::open(repository.dir().join(path)).unwrap();
        file.set_modified(SystemTime::now() - HOUR).unwrap();
    }

    #[test]
    fn a_file_that_came_with_an_old_time_is_as_new_as_it_came_but_in_a_copied_checkout() {
        let repository = TestRepository::new();
        let names: Vec<String> = (0..MIN_COPIED + 4)
            .map(|number| format!("{number}.txt"))
            .collect();
        names.iter().for_each(|name| repository.write(name, name));
        repository.commit("files");
        make_old(&repository, "3.txt");
        assert!(ages(&repository)["3.txt"] < 60);
        names.iter().for_each(|name| make_old(&repository, name));
        assert!(ages(&repository).values().all(|age| *age >= 3600));
    }

    #[test]
    fn a_file_that_was_touched_counts_by_its_bytes() {
        let repository = TestRepository::new();
        repository.write("same", "bytes\n");
        repository.write("other", "bytes\n");
        repository.commit("files");
        repository.write("same", "bytes\n");
        repository.write("other", "BYTES\n");
        let unchanged: Vec<String> = ages(&repository).into_keys().collect();
        assert_eq!(unchanged, ["same"]);
    }

    #[test]
    fn a_directory_is_the_same_as_long_as_it_has_the_same_names() {
        let repository = TestRepository::new();
        for path in [
            "changed/a",
            "more/a",
            "fewer/a",
            "fewer/b",
            "above/below/a",
            "ignored/a",
        ] {
            repository.write(path, path);
        }
        repository.write(".gitignore", "*.o\n");
        repository.commit("files");
        repository.write("changed/a", "other");
        repository.write("more/b", "b");
        repository.write("ignored/a.o", "b");
        fs::remove_file(repository.dir().join("fewer/b")).unwrap();
        make_old(&repository, "above");
        let same: Vec<String> = ages(&repository).into_keys().collect();
        assert_eq!(
            same,
            [
                ".gitignore",
                "above",
                "above/below",
                "above/below/a",
                "changed",
                "ignored/a"
            ]
        );
    }

    #[test]
    fn what_another_link_leads_to_is_not_the_same() {
        let repository = TestRepository::new();
        for path in ["one/a", "two/deep/a", "three/a"] {
            repository.write(path, path);
        }
        let link = repository.dir().join("three/link");
        std::os::unix::fs::symlink("../one", &link).unwrap();
        repository.commit("files");
        assert!(ages(&repository).contains_key("one/a"));
        fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink("../two", &link).unwrap();
        let same: Vec<String> = ages(&repository)
            .into_keys()
            .filter(|path| path.ends_with("/a"))
            .collect();
        assert_eq!(same, ["three/a", "two/deep/a"]);
    }
}
