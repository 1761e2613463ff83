//! Reads of carried files: bytes of one version, or an error.
//!
//! A read succeeds only if the file was the same version before and after it and nobody wrote to
//! it. Times distinguish versions only after the clock behind them has ticked: a read waits until
//! then. A lease detects writers. Where leases do not exist, a read waits until the last change is
//! some time ago.

use std::collections::VecDeque;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

use super::{Carry, host_error, version_of};
use crate::FsError;
use tine_attr::{Ino, Timestamp};
use tine_git::nonblocking;
use tine_layer::FileVersion;
use tine_path::RepoPath;
use tine_sys::beneath::{self, Access, ReadLease};

/// Maximum number of files kept open.
const MAX_OPEN: usize = 64;

/// Longest tick of the clock for file times, with a margin.
///
/// The coarsest kernel clock ticks 100 times a second. A change after this time gives a file
/// another time.
pub(super) const TICK: Duration = Duration::from_millis(20);

/// Age of the last change at which open writers are ignored.
const QUIET: Duration = Duration::from_secs(1);
/// Age of the last change at which reading needs no lease.
const UNKNOWN_QUIET: Duration = Duration::from_millis(250);

/// Open carried file.
///
/// A lease belongs to the open file, not to a thread, so one thread at a time reads.
struct OpenFile {
    file: File,
    reading: Mutex<()>,
}

/// Open files, the last used at the end.
#[derive(Default)]
pub(super) struct OpenFiles {
    open: Mutex<VecDeque<(Ino, Arc<OpenFile>)>>,
}

impl OpenFiles {
    fn get(&self, ino: Ino) -> Option<Arc<OpenFile>> {
        let mut open = self.open.lock();
        let position = open.iter().position(|(other, _)| *other == ino)?;
        let entry = open.remove(position)?;
        let file = entry.1.clone();
        open.push_back(entry);
        Some(file)
    }

    fn keep(&self, ino: Ino, file: Arc<OpenFile>) {
        let mut open = self.open.lock();
        open.push_back((ino, file));
        let oldest = if open.len() > MAX_OPEN {
            open.pop_front()
        } else {
            None
        };
        // Closed without the lock.
        drop(open);
        drop(oldest);
    }

    fn remove(&self, ino: Ino) {
        self.open.lock().retain(|(other, _)| *other != ino);
    }
}

/// One version of a carried file.
#[derive(Clone)]
pub(crate) struct CarriedFile {
    pub carry: Arc<Carry>,
    pub path: RepoPath,
    pub version: FileVersion,
}

impl CarriedFile {
    pub(crate) fn ino(&self) -> Ino {
        self.carry.number(&self.path, &self.version)
    }

    pub(crate) fn len(&self) -> u64 {
        self.version.size
    }

    /// Reads at `offset` until `buffer` is full or the file ends.
    ///
    /// Returns the number of bytes read, or [`FsError::Stale`] if the main checkout has another
    /// version.
    pub(crate) fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, FsError> {
        let read = self.read_version(offset, buffer);
        if read.is_err() {
            self.carry.files.remove(self.ino());
        }
        read
    }

    fn read_version(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, FsError> {
        let left = usize::try_from(self.len().saturating_sub(offset)).unwrap_or(usize::MAX);
        let len = buffer.len().min(left);
        let Some(buffer) = buffer.get_mut(..len).filter(|buffer| !buffer.is_empty()) else {
            return Ok(0);
        };
        if let Some(frozen) = self.carry.frozen_version(&self.path, &self.version) {
            let path = frozen.below(&self.path);
            let read = frozen
                .generation
                .read_exact_at(path, &self.version, offset, buffer);
            return read.map(|()| len).map_err(FsError::Carried);
        }
        let open = self.open()?;
        wait_until(self.age(), TICK)?;
        let _one_at_a_time = match open.reading.try_lock() {
            Some(guard) => guard,
            None => {
                nonblocking::check()?;
                open.reading.lock()
            }
        };
        let lease = match ReadLease::take(&open.file) {
            Ok(lease) => Some(lease),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if self.age().is_some_and(|age| age < QUIET) {
                    return Err(FsError::Stale);
                }
                None
            }
            Err(_) => {
                wait_until(self.age(), UNKNOWN_QUIET)?;
                None
            }
        };
        self.check(&open.file)?;
        let mut done = 0;
        while done < len {
            match open.file.read_at(&mut buffer[done..], offset + done as u64) {
                // Shorter than this version, so it is another version.
                Ok(0) => return Err(FsError::Stale),
                Ok(read) => done += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(host_error(error)),
            }
        }
        self.check(&open.file)?;
        drop(lease);
        Ok(len)
    }

    fn open(&self) -> Result<Arc<OpenFile>, FsError> {
        let ino = self.ino();
        if let Some(open) = self.carry.files.get(ino) {
            return Ok(open);
        }
        let file = beneath::open(&self.carry.top, self.path.as_path(), Access::Read)
            .map_err(host_error)?;
        let open = Arc::new(OpenFile {
            file,
            reading: Mutex::default(),
        });
        self.carry.files.keep(ino, open.clone());
        Ok(open)
    }

    fn check(&self, file: &File) -> Result<(), FsError> {
        let found = version_of(&beneath::stat(file).map_err(host_error)?);
        if found == self.version {
            Ok(())
        } else {
            Err(FsError::Stale)
        }
    }

    fn age(&self) -> Option<Duration> {
        age(self.version.ctime)
    }
}

/// Returns the time since a change; `None` for the future.
pub(super) fn age(ctime: Timestamp) -> Option<Duration> {
    SystemTime::now().duration_since(ctime.into()).ok()
}

/// Blocks until a file of this age is as old as `needed`.
fn wait_until(age: Option<Duration>, needed: Duration) -> Result<(), FsError> {
    if let Some(left) = age.and_then(|age| needed.checked_sub(age))
        && !left.is_zero()
    {
        nonblocking::check()?;
        thread::sleep(left);
    }
    Ok(())
}

impl Carry {
    /// Reads the symlink at `path` if it still has that version.
    pub(crate) fn read_link(
        &self,
        path: &RepoPath,
        version: &FileVersion,
    ) -> Result<Vec<u8>, FsError> {
        if let Some(frozen) = self.frozen_version(path, version)
            && let Some(target) = frozen.generation.read_link(frozen.below(path), version)
        {
            return Ok(target.to_vec());
        }
        let link =
            beneath::open(&self.top, path.as_path(), Access::Attributes).map_err(host_error)?;
        if version_of(&beneath::stat(&link).map_err(host_error)?) != *version {
            return Err(FsError::Stale);
        }
        beneath::read_link(&link).map_err(host_error)
    }
}
