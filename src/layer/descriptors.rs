//! Open file descriptors of content files.
//!
//! One bounded pool serves all layers of the process, so that neither many files nor many layers
//! use up its descriptors. It evicts the least recently used file. A file that is being read stays
//! open through its `Arc`.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Maximum number of descriptors in the pool.
const POOL_MAX: usize = 256;

static POOL: Mutex<Pool> = Mutex::new(Pool {
    files: BTreeMap::new(),
    clock: 0,
});

static NEXT_OWNER: AtomicU64 = AtomicU64::new(0);

struct Pool {
    /// Open files and the times of their last use.
    ///
    /// The key is the owner and the file number.
    files: BTreeMap<(u64, u64), (Arc<File>, u64)>,
    clock: u64,
}

impl Pool {
    fn get(&mut self, key: (u64, u64)) -> Option<Arc<File>> {
        self.clock += 1;
        let (file, used) = self.files.get_mut(&key)?;
        *used = self.clock;
        Some(file.clone())
    }

    /// Adds `file`, and returns an evicted file.
    ///
    /// The caller must drop the evicted file without the lock.
    fn insert(&mut self, key: (u64, u64), file: Arc<File>) -> Option<Arc<File>> {
        self.clock += 1;
        self.files.insert(key, (file, self.clock));
        if self.files.len() <= POOL_MAX {
            return None;
        }
        let oldest = self
            .files
            .iter()
            .min_by_key(|(_, (_, used))| *used)
            .map(|(key, _)| *key)?;
        self.files.remove(&oldest).map(|(file, _)| file)
    }
}

/// Content files of one layer.
pub(super) struct Descriptors {
    owner: u64,
    dir: PathBuf,
    writable: bool,
}

impl Descriptors {
    /// Creates the descriptors of the layer's `files` directory `dir`.
    pub(crate) fn new(dir: PathBuf, writable: bool) -> Descriptors {
        Descriptors {
            owner: NEXT_OWNER.fetch_add(1, Ordering::Relaxed),
            dir,
            writable,
        }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn path(&self, number: u64) -> PathBuf {
        self.dir.join(number.to_string())
    }

    /// Opens the file `number`, or takes it from the pool.
    pub(crate) fn open(&self, number: u64) -> io::Result<Arc<File>> {
        if let Some(file) = POOL.lock().get((self.owner, number)) {
            return Ok(file);
        }
        let mut options = OpenOptions::new();
        self.keep(number, options.read(true).write(self.writable))
    }

    /// Creates the file `number`, which must not exist.
    pub(crate) fn create(&self, number: u64) -> io::Result<Arc<File>> {
        let mut options = OpenOptions::new();
        self.keep(
            number,
            options.read(true).write(true).create_new(true).mode(0o600),
        )
    }

    fn keep(&self, number: u64, options: &mut OpenOptions) -> io::Result<Arc<File>> {
        let path = self.path(number);
        let file = match tine_sys::file::open_with(&path, options) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
                let closed = std::mem::take(&mut POOL.lock().files);
                drop(closed);
                tine_sys::file::open_with(&path, options)?
            }
            file => file?,
        };
        let file = Arc::new(file);
        let closed = POOL.lock().insert((self.owner, number), file.clone());
        drop(closed);
        Ok(file)
    }

    /// Closes the file `number` and removes it.
    pub(crate) fn remove(&self, number: u64) -> io::Result<()> {
        let closed = POOL.lock().files.remove(&(self.owner, number));
        drop(closed);
        match std::fs::remove_file(self.path(number)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        let closed = {
            let mut pool = POOL.lock();
            let mut mine = pool.files.split_off(&(self.owner, 0));
            let mut later = mine.split_off(&(self.owner + 1, 0));
            pool.files.append(&mut later);
            mine
        };
        drop(closed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_is_bounded_and_files_open_again() {
        let dir = tempfile::tempdir().unwrap();
        let descriptors = Descriptors::new(dir.path().to_owned(), true);
        for number in 0..2 * POOL_MAX as u64 {
            descriptors.create(number).unwrap();
        }
        assert!(POOL.lock().files.len() <= POOL_MAX);
        for number in 0..2 * POOL_MAX as u64 {
            descriptors.open(number).unwrap();
        }
        descriptors.remove(3).unwrap();
        assert_eq!(
            descriptors.open(3).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
        let owner = descriptors.owner;
        drop(descriptors);
        assert!(POOL.lock().files.keys().all(|key| key.0 != owner));
    }
}
