//! Files of the main checkout that match its index, with their times.

use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use gix::bstr::ByteSlice;
use gix::index::entry::{Flags, Stage};

use super::checkout::on_two_threads;
use super::checksum::Checksum;
use super::index::kind_of;
use super::{BaseEntry, GitError, InoHasher, ObjectId, Repository, TreeEntryKind};
use tine_attr::{Ino, Timestamp};
use tine_path::RepoPath;

/// A tracked file of the main checkout whose content is a blob's.
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

    /// Returns whether the mtime is older than the file's arrival here.
    ///
    /// The file was then moved, copied or unpacked with its times. Earlier builds used whatever was
    /// here before.
    fn is_older_than_arrival(&self) -> bool {
        nanos(self.changed) - nanos(self.modified) > SETTLED_NANOS
    }
}

fn nanos(time: Timestamp) -> i128 {
    i128::from(time.secs) * 1_000_000_000 + i128::from(time.nanos)
}

/// Maximum nanoseconds between writing a file and its last metadata change.
///
/// A program sets mode and name soon after writing, and no build reads other bytes in between.
const SETTLED_NANOS: i128 = 10_000_000;

/// Minimum number of files from which a copied checkout is recognised.
///
/// If most of them arrived with old times, all were copied, together with their build results.
pub(super) const MIN_COPIED: usize = 16;
/// Minimum number if nearly all files arrived with old times.
const MIN_ALL_COPIED: usize = 4;

/// Maximum time in nanoseconds between two files of a checkout's copy.
const MAX_PAUSE_NANOS: i128 = 2_000_000_000;

/// Maximum total bytes of files that are compared by content.
///
/// These are files with racy entries, and files touched since git checked them. A fresh clone, in
/// which the files of the last second are racy, thus counts as unchanged.
const MAX_READ_BYTES: u64 = 64 << 20;

/// Minimum age of a change, so that another change gets another time.
pub(super) const TICK: Duration = Duration::from_millis(20);

/// The unchanged tracked files of the main checkout.
///
/// The keys are the inode numbers of their paths in a base.
pub(super) struct Unchanged {
    files: HashMap<Ino, UnchangedFile>,
    /// Time span in which most files were copied here with their times.
    copied: Option<RangeInclusive<Timestamp>>,
}

impl Unchanged {
    /// Finds the unchanged files of `checkout`.
    ///
    /// # Errors
    /// [`GitError::Library`] if the index cannot be read.
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

    /// Returns the checkout's file that is equal to a base entry.
    pub(crate) fn same(&self, entry: &BaseEntry) -> Option<&UnchangedFile> {
        let file = self.files.get(&entry.ino)?;
        ((file.id, file.kind) == (entry.id, entry.kind)).then_some(file)
    }

    /// Returns the arrival time of a file with an older mtime.
    ///
    /// It is `None` for files that arrived with a copy of the whole checkout.
    pub(crate) fn arrived(&self, times: Times) -> Option<Timestamp> {
        let is_copied = |copied: &RangeInclusive<Timestamp>| copied.contains(&times.changed);
        let arrived = times.is_older_than_arrival() && !self.copied.as_ref().is_some_and(is_copied);
        arrived.then_some(times.changed)
    }

    /// Returns the time since which the file is unchanged.
    pub(crate) fn since(&self, times: Times) -> Timestamp {
        self.arrived(times).unwrap_or(times.modified)
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
        let look = |entries: &[gix::index::Entry]| self.compare(checkout, &index, entries);
        Ok(on_two_threads(index.entries(), look))
    }

    fn compare(
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
            if !may_match(&found, entry, kind) {
                return None;
            }
            if !matches_stat(&found, entry) || i64::from(entry.stat.mtime.secs) >= index_secs {
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

    /// Returns whether the file has exactly the bytes of the blob.
    ///
    /// It must not have changed after `found` was read.
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

/// Returns the time span in which the checkout was copied or unpacked.
///
/// It is the longest run of files that arrived with old times in quick succession, if it contains
/// most files.
fn copied(files: &[UnchangedFile]) -> Option<RangeInclusive<Timestamp>> {
    let arrived = files
        .iter()
        .filter(|file| file.times.is_older_than_arrival());
    let mut arrived: Vec<Timestamp> = arrived.map(|file| file.times.changed).collect();
    arrived.sort_unstable();
    let is_soon = |one: &Timestamp, next: &Timestamp| nanos(*next) - nanos(*one) <= MAX_PAUSE_NANOS;
    let run = arrived.chunk_by(is_soon).max_by_key(|run| run.len())?;
    let is_most = run.len() >= MIN_COPIED && run.len() > files.len() / 2;
    let is_nearly_all = run.len() >= MIN_ALL_COPIED && run.len() * 10 >= files.len() * 9;
    let times = *run.first()?..=*run.last()?;
    (is_most || is_nearly_all).then_some(times)
}

/// Returns the kind of an entry with a meaningful `lstat`.
///
/// It is `None` for conflicts, intents to add, skipped entries and submodules.
fn file_kind(entry: &gix::index::Entry) -> Option<TreeEntryKind> {
    let left_alone = Flags::INTENT_TO_ADD | Flags::SKIP_WORKTREE | Flags::ASSUME_VALID;
    if entry.stage() != Stage::Unconflicted || entry.flags.intersects(left_alone) {
        return None;
    }
    kind_of(entry.mode).filter(|kind| *kind != TreeEntryKind::Submodule)
}

/// Returns whether the file may have the content of the entry.
fn may_match(found: &Metadata, entry: &gix::index::Entry, kind: TreeEntryKind) -> bool {
    let is_kind = match kind {
        TreeEntryKind::Symlink => found.file_type().is_symlink(),
        TreeEntryKind::Executable => found.file_type().is_file() && found.mode() & 0o100 != 0,
        _ => found.file_type().is_file() && found.mode() & 0o100 == 0,
    };
    is_kind && entry.stat.size == found.len() as u32
}

/// Returns whether the file is the one that git checked.
///
/// An index may lack nanoseconds or inode numbers, which are then not compared.
fn matches_stat(found: &Metadata, entry: &gix::index::Entry) -> bool {
    let stat = &entry.stat;
    let is_time = |known: gix::index::entry::stat::Time, secs: i64, nanos: i64| {
        known.secs == secs as u32 && (known.nsecs == 0 || i64::from(known.nsecs) == nanos)
    };
    (stat.ino == 0 || stat.ino == found.ino() as u32)
        && is_time(stat.mtime, found.mtime(), found.mtime_nsec())
        && is_time(stat.ctime, found.ctime(), found.ctime_nsec())
}
