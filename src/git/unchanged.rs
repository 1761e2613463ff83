//! The files of the main checkout that are as its index has them, and since when.

use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use gix::bstr::ByteSlice;
use gix::index::entry::{Flags, Stage};

use super::checkout::shared;
use super::checksum::Checksum;
use super::index::kind_of;
use super::{BaseEntry, GitError, InoHasher, ObjectId, Repository, TreeEntryKind};
use tine_attr::{Ino, Timestamp};
use tine_path::RepoPath;

/// A tracked file of the main checkout, whose content is that of a blob.
pub(super) struct UnchangedFile {
    pub path: RepoPath,
    kind: TreeEntryKind,
    id: ObjectId,
    pub times: Times,
}

#[derive(Clone, Copy)]
pub(super) struct Times {
    /// mtime.
    modified: Timestamp,
    /// ctime.
    changed: Timestamp,
}

impl Times {
    pub(crate) fn of(found: &Metadata) -> Times {
        Times {
            modified: Timestamp::of_stat(found.mtime(), found.mtime_nsec()),
            changed: Timestamp::of_stat(found.ctime(), found.ctime_nsec()),
        }
    }

    /// Whether what has them has an older mtime than what is written: it was moved here, or copied
    /// or unpacked with its times, and what was built before is of what was here then.
    fn came_with_it(&self) -> bool {
        nanos(self.changed) - nanos(self.modified) > SETTLED_NANOS
    }
}

fn nanos(time: Timestamp) -> i128 {
    i128::from(time.secs) * 1_000_000_000 + i128::from(time.nanos)
}

/// Whoever writes a file is done with its mode and its name soon after, and nothing is built of
/// other bytes in between.
const SETTLED_NANOS: i128 = 10_000_000;

/// Of so many files and more, most of which came with their times, all were copied, with what was
/// built of them.
pub(super) const MIN_COPIED: usize = 16;
/// The same where nearly all came with their times.
const MIN_ALL_COPIED: usize = 4;

/// Whoever copies a checkout takes no longer from one of its files to the next.
const MAX_PAUSE_NANOS: i128 = 2_000_000_000;

/// Files whose entries are racy, or that were touched since git looked at them, are compared by
/// content up to this many bytes in all, so that a fresh clone, whose last second of files is racy,
/// counts as unchanged.
const MAX_READ_BYTES: u64 = 64 << 20;

/// A file that changed less than this ago may change again without another time.
pub(super) const TICK: Duration = Duration::from_millis(20);

/// The tracked files of the main checkout that have the content of their index entries, by the
/// number that a base gives to their path.
pub(super) struct Unchanged {
    files: HashMap<Ino, UnchangedFile>,
    /// When most files were copied here with their times, as what was built of them was.
    copied: Option<RangeInclusive<Timestamp>>,
}

impl Unchanged {
    /// # Errors
    /// [`GitError::Library`] where the index cannot be read.
    pub(crate) fn of(
        repository: &Repository,
        checkout: &Path,
        hasher: &InoHasher,
    ) -> Result<Unchanged, GitError> {
        let files = repository.unchanged_files(checkout)?;
        let copied = copied(&files);
        let files = files.into_iter().map(|file| (hasher.ino(&file.path), file));
        Ok(Unchanged {
            files: files.collect(),
            copied,
        })
    }

    /// The file of the checkout that is the same as this one of a base.
    pub(crate) fn same(&self, entry: &BaseEntry) -> Option<&UnchangedFile> {
        let file = self.files.get(&entry.ino)?;
        ((file.id, file.kind) == (entry.id, entry.kind)).then_some(file)
    }

    /// When it came here with an older mtime, if it did so other than with the whole checkout.
    pub(crate) fn came(&self, times: Times) -> Option<Timestamp> {
        let is_copied = |copied: &RangeInclusive<Timestamp>| copied.contains(&times.changed);
        let came = times.came_with_it() && !self.copied.as_ref().is_some_and(is_copied);
        came.then_some(times.changed)
    }

    /// When it got to be what it is.
    pub(crate) fn since(&self, times: Times) -> Timestamp {
        self.came(times).unwrap_or(times.modified)
    }
}

impl Repository {
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

    /// Whether the file has the very bytes of the blob, and had no other since `found` was looked
    /// at.
    fn holds_blob(
        &self,
        place: &Path,
        found: &Metadata,
        kind: TreeEntryKind,
        id: ObjectId,
    ) -> bool {
        let is_settled = found.modified().is_ok_and(|time| {
            SystemTime::now()
                .duration_since(time)
                .is_ok_and(|age| age > TICK)
        });
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

/// When the checkout was copied or unpacked: the longest run of files that came with their times
/// one soon after another, if most did.
fn copied(files: &[UnchangedFile]) -> Option<RangeInclusive<Timestamp>> {
    let came = files.iter().filter(|file| file.times.came_with_it());
    let mut came: Vec<Timestamp> = came.map(|file| file.times.changed).collect();
    came.sort_unstable();
    let is_soon = |one: &Timestamp, next: &Timestamp| nanos(*next) - nanos(*one) <= MAX_PAUSE_NANOS;
    let run = came.chunk_by(is_soon).max_by_key(|run| run.len())?;
    let is_most = run.len() >= MIN_COPIED && run.len() > files.len() / 2;
    let is_nearly_all = run.len() >= MIN_ALL_COPIED && run.len() * 10 >= files.len() * 9;
    let times = *run.first()?..=*run.last()?;
    (is_most || is_nearly_all).then_some(times)
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

/// Whether the file is the one that git looked at. An index that has no nanoseconds, or no inode
/// numbers, says less.
fn is_as_looked_at(found: &Metadata, entry: &gix::index::Entry) -> bool {
    let stat = &entry.stat;
    let is_time = |known: gix::index::entry::stat::Time, secs: i64, nanos: i64| {
        known.secs == secs as u32 && (known.nsecs == 0 || i64::from(known.nsecs) == nanos)
    };
    (stat.ino == 0 || stat.ino == found.ino() as u32)
        && is_time(stat.mtime, found.mtime(), found.mtime_nsec())
        && is_time(stat.ctime, found.ctime(), found.ctime_nsec())
}
