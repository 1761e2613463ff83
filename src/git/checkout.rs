//! The files of the main checkout that are as its index has them.

use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime};

use gix::bstr::ByteSlice;
use gix::index::entry::{Flags, Stage};

use super::checksum::Checksum;
use super::index::kind_of;
use super::{GitError, ObjectId, Repository, TreeEntryKind};
use crate::attr::Timestamp;
use crate::path::RepoPath;

/// A tracked file of the main checkout, whose content is that of a blob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnchangedFile {
    pub path: RepoPath,
    pub kind: TreeEntryKind,
    pub id: ObjectId,
    /// When it got its content, as far as can be told.
    pub modified: Timestamp,
    /// Its ctime.
    changed: Timestamp,
}

impl UnchangedFile {
    /// Whether it has an older mtime than a file that is written: it was moved here, or copied or unpacked with its times, and what was
    /// built before is of the bytes that were here then.
    fn came_with_its_time(&self) -> bool {
        self.changed.secs.saturating_sub(self.modified.secs) > SETTLED_SECS
    }
}

/// Whoever writes a file is done with its mode and its name soon after.
const SETTLED_SECS: i64 = 2;

/// Of so many files and more, most of which came with their times, all were copied, with what was built of them.
const MIN_COPIED: usize = 16;

/// Below this many files a second thread costs more than it saves.
const MIN_FILES_TO_SHARE: usize = 2048;

/// Files whose entries are racy, or that were touched since git looked at them, are compared by content up to this many bytes in all, so
/// that a fresh clone, whose last second of files is racy, counts as unchanged.
const MAX_READ_BYTES: u64 = 64 << 20;

/// A file that changed less than this ago may change again without another time.
const TICK: Duration = Duration::from_millis(20);

impl Repository {
    /// Finds the tracked files of `checkout` (the main one) whose content is certain to be that of their index entries: `lstat` says what
    /// the entry says, and the entry is not racy, or else the bytes are those of the blob. Costs an `lstat` a file, and reads no
    /// content but that of racy entries and of files that were touched.
    ///
    /// A file that came with an older mtime counts as modified when it came, except in a checkout that was copied or unpacked as a whole.
    ///
    /// # Errors
    /// [`GitError::Library`] where the index cannot be read.
    pub fn unchanged_files(&self, checkout: &Path) -> Result<Vec<UnchangedFile>, GitError> {
        let index = gix::index::File::at_or_default(
            self.common_dir().join("index"),
            self.hash_kind(),
            true,
            gix::index::decode::Options::default(),
        )
        .map_err(GitError::library("read the main checkout's index"))?;
        let look = |entries: &[gix::index::Entry]| self.look_at(checkout, &index, entries);
        let entries = index.entries();
        let mut unchanged = match entries.len() < MIN_FILES_TO_SHARE {
            true => look(entries),
            false => thread::scope(|scope| {
                let (first, second) = entries.split_at(entries.len() / 2);
                let second = scope.spawn(|| look(second));
                let mut unchanged = look(first);
                // Without it files count as changed, and are built again.
                unchanged.append(&mut second.join().unwrap_or_default());
                unchanged
            }),
        };
        let came = unchanged.iter().filter(|file| file.came_with_its_time()).count();
        if came < MIN_COPIED || came <= unchanged.len() / 2 {
            for file in &mut unchanged {
                if file.came_with_its_time() {
                    file.modified = file.changed;
                }
            }
        }
        Ok(unchanged)
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
                modified: timestamp(found.mtime(), found.mtime_nsec()),
                changed: timestamp(found.ctime(), found.ctime_nsec()),
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
    use crate::git::testing::TestRepository;

    const HOUR: Duration = Duration::from_secs(3600);

    /// How many seconds ago each unchanged file got its content.
    fn ages(repository: &TestRepository) -> BTreeMap<String, i64> {
        // What was written just now may change again.
        thread::sleep(2 * TICK);
        let now = Timestamp::now().secs;
        let unchanged = repository.open().unchanged_files(repository.dir()).unwrap();
        let age = |file: UnchangedFile| (file.path.to_string(), now - file.modified.secs);
        unchanged.into_iter().map(age).collect()
    }

    fn make_old(repository: &TestRepository, path: &str) {
        let file = fs::File::open(repository.dir().join(path)).unwrap();
        file.set_modified(SystemTime::now() - HOUR).unwrap();
    }

    #[test]
    fn a_file_that_came_with_an_old_time_is_as_new_as_it_came_but_in_a_copied_checkout() {
        let repository = TestRepository::new();
        let names: Vec<String> = (0..MIN_COPIED + 4).map(|number| format!("{number}.txt")).collect();
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
}
