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
use super::{Base, BaseDir, GitError, ObjectId, Repository, TreeEntryKind};
use tine_attr::{Ino, Timestamp};
use tine_path::{DOT_GIT, RepoPath};

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
        self.changed.secs.saturating_sub(self.modified.secs) > SETTLED_SECS
    }
}

/// Whoever writes a file is done with its mode and its name soon after.
const SETTLED_SECS: i64 = 2;

/// Of so many files and more, most of which came with their times, all were copied, with what was built of them.
const MIN_COPIED: usize = 16;

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
    /// bytes are those of the blob; a directory where it has the same names and no others, of files or directories that are the same.
    /// What came with an older mtime counts from when it came, except in a checkout that was copied or unpacked as a whole.
    ///
    /// Costs an `lstat` a file and a listing a directory, and reads no content but that of racy entries and of files that were touched.
    ///
    /// # Errors
    /// [`GitError::Library`] where the index cannot be read, others where a tree of the base cannot.
    pub fn same_since(&self, base: &Base, checkout: &Path) -> Result<Vec<(Ino, Timestamp)>, GitError> {
        let files = self.unchanged_files(checkout)?;
        let came = files.iter().filter(|file| file.times.came_with_it()).count();
        let is_copied = came >= MIN_COPIED && came > files.len() / 2;
        let since = |times: Times| match times.came_with_it() && !is_copied {
            true => times.changed,
            false => times.modified,
        };
        let mut same = Vec::with_capacity(files.len());
        let mut dirs: HashMap<RepoPath, Arc<BaseDir>> = HashMap::new();
        for file in files {
            let Some((dir, index)) = base.find(&file.path)? else {
                continue;
            };
            let entry = &dir.entries[index];
            if (entry.id, entry.kind) == (file.id, file.kind) {
                same.push((entry.ino, since(file.times)));
                if !dirs.contains_key(&dir.path) {
                    dirs.insert(dir.path.clone(), dir);
                }
            }
        }
        let paths: Vec<RepoPath> = dirs.keys().cloned().collect();
        for path in paths {
            let mut above = path.split_last();
            while let Some((path, _)) = above {
                above = path.split_last();
                if dirs.contains_key(&path) {
                    break;
                }
                let dir = match base.find(&path)? {
                    Some((parent, index)) => base.dir(&path, parent.entries[index].id)?,
                    None => base.root()?,
                };
                dirs.insert(path, dir);
            }
        }
        let dirs: Vec<Arc<BaseDir>> = dirs.into_values().collect();
        let look = |dirs: &[Arc<BaseDir>]| -> Vec<(Ino, Timestamp)> {
            let times = dirs.iter().map(|dir| (dir, same_names(checkout, dir)));
            let same = times.filter_map(|(dir, times)| Some((base.hasher().ino(&dir.path), since(times?))));
            same.collect()
        };
        same.append(&mut shared(&dirs, look));
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

/// The times of the directory in the checkout, if it has the names of this one and no others.
fn same_names(checkout: &Path, dir: &BaseDir) -> Option<Times> {
    let place = checkout.join(dir.path.as_path());
    let found = fs::symlink_metadata(&place).ok().filter(Metadata::is_dir)?;
    let mut count = 0;
    for entry in fs::read_dir(&place).ok()? {
        let name = entry.ok()?.file_name();
        let name = name.as_bytes();
        if name == DOT_GIT && dir.path.is_root() {
            continue;
        }
        dir.find(name)?;
        count += 1;
    }
    let is_settled = fs::symlink_metadata(&place).is_ok_and(|after| after.ctime() == found.ctime());
    (count == dir.entries.len() && is_settled).then(|| Times::of(&found))
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
        for path in ["changed/a", "more/a", "fewer/a", "fewer/b", "above/below/a"] {
            repository.write(path, path);
        }
        repository.commit("files");
        repository.write("changed/a", "other");
        repository.write("more/b", "b");
        fs::remove_file(repository.dir().join("fewer/b")).unwrap();
        make_old(&repository, "above");
        let dirs: Vec<(String, bool)> = ages(&repository)
            .into_iter()
            .map(|(path, age)| (path, age < 60))
            .collect();
        let same = |path: &str| (path.to_owned(), true);
        assert_eq!(
            dirs,
            ["above", "above/below", "above/below/a", "fewer/a", "more/a"].map(same)
        );
    }
}
