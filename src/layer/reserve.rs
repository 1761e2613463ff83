//! Reserve of disk space and inodes for operations that free space.
//!
//! The reserve is one file that is allocated and never written. On a full disk, an operation that
//! frees space truncates the file and uses the blocks that this frees. Two kinds of operations do
//! so: records that remove something ([`Reserve::take`]), and commands that free space
//! ([`Reserve::lend`]). Each kind has a share, so neither depends on what the other has used up.
//!
//! While the reserve is short, nothing else in the store grows, and freed space goes to the reserve
//! first ([`Reserve::check_growth`]). A file system that cannot preallocate has no reserve.
//!
//! Inodes are kept as empty files, the spares. When the disk has hardly an inode left, they are
//! removed for a command that frees space, and for opening a store. Operations that need no inode
//! go on while spares are missing.

use std::cell::Cell;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::marker::PhantomData;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::fault;
use tine_sys::file::FsStats;

/// Maximum size of the reserve in bytes, also limited by [`PART_OF_DISK`].
const SIZE: u64 = 8 << 20;
/// Divisor of the file system's space and inodes for the maximum share.
const PART_OF_DISK: u64 = 16;

/// Divisor of the reserve's size for the share of commands.
const PART_FOR_COMMANDS: u64 = 4;

/// Maximum number of spares, also limited by [`PART_OF_DISK`].
const SPARES: u64 = 32;

/// Unit in which the reserve is truncated and refilled, in bytes.
const PIECE: u64 = 256 << 10;

thread_local! {
    /// Number of loans of this thread.
    static LOANS: Cell<u32> = const { Cell::new(0) };
}

/// Reserve of one store.
///
/// All methods may be called from any thread.
pub struct Reserve {
    path: PathBuf,
    /// Directory of the spares.
    spares: PathBuf,
    /// Intended size in bytes.
    ///
    /// 0 if the file system cannot preallocate.
    size: u64,
    /// Intended number of spares.
    ///
    /// 0 if the file system has inodes as long as it has space.
    spare_count: u64,
    state: Mutex<State>,
    /// True if the reserve is smaller than intended.
    ///
    /// Written with `state` locked.
    is_short: AtomicBool,
    /// True if spares may be missing.
    ///
    /// Written with `state` locked.
    lacks_spares: AtomicBool,
}

struct State {
    /// File of the reserve; `None` if there is no reserve.
    file: Option<File>,
    /// Allocated bytes: the length of the file.
    held: u64,
    loans: u32,
}

/// Permission to use a part of the reserve.
///
/// While it lives, the reserve is not refilled, and only its thread may make the store grow.
#[must_use]
pub struct Loan {
    reserve: Arc<Reserve>,
    /// A loan stays with the thread that took it.
    _thread: PhantomData<*const ()>,
}

impl Drop for Loan {
    fn drop(&mut self) {
        LOANS.set(LOANS.get().saturating_sub(1));
        let mut state = self.reserve.state.lock();
        state.loans = state.loans.saturating_sub(1);
        self.reserve.refill_locked(&mut state);
    }
}

impl Reserve {
    /// Opens the reserve at `path` and fills it.
    ///
    /// The spares are in the directory `spares`. It fills as far as the disk has space.
    pub fn open(path: &Path, spares: &Path) -> Reserve {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600);
        let opened = match tine_sys::file::open_with(path, &mut options) {
            // The file has no data that could be lost.
            Err(error) if tine_sys::file::NotAFile::in_error(&error).is_some() => {
                std::fs::remove_file(path)
                    .and_then(|()| tine_sys::file::open_with(path, &mut options))
            }
            opened => opened,
        };
        let parent = path.parent().unwrap_or(path);
        let (size, spare_count) = match tine_sys::file::fs_figures(parent) {
            Ok(figures) => (
                (figures.blocks.saturating_mul(figures.block_size) / PART_OF_DISK).min(SIZE),
                (figures.files / PART_OF_DISK).min(SPARES),
            ),
            Err(_) => (SIZE, 0),
        };
        let size = size / PIECE * PIECE;
        let held = opened.as_ref().ok().and_then(|file| file.metadata().ok());
        let mut state = State {
            held: held.map_or(0, |meta| meta.len()),
            file: None,
            loans: 0,
        };
        match opened {
            // A copied file may have holes.
            Ok(file) => match tine_sys::file::reserve(&file, 0, state.held.max(1)) {
                Ok(()) => state.file = Some(file),
                Err(error) if is_full(&error) => {
                    let _ = file.set_len(0);
                    state.held = 0;
                    state.file = Some(file);
                }
                Err(error) => log::debug!("{}: no reserve: {error}", path.display()),
            },
            Err(error) => log::warn!("open {}: {error}", path.display()),
        }
        let reserve = Reserve {
            path: path.to_owned(),
            spares: spares.to_owned(),
            spare_count,
            size: if state.file.is_some() { size } else { 0 },
            state: Mutex::new(state),
            is_short: AtomicBool::new(true),
            lacks_spares: AtomicBool::new(spare_count > 0),
        };
        reserve.refill();
        reserve
    }

    /// Returns the path of the reserve's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Checks that the store may grow.
    ///
    /// It may not while the reserve is short and cannot be refilled, unless this thread has a loan.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`] if it may not.
    pub fn check_growth(&self) -> io::Result<()> {
        if !self.is_short.load(Ordering::Relaxed) || LOANS.get() > 0 {
            return Ok(());
        }
        if self.refill() {
            Ok(())
        } else {
            Err(io::ErrorKind::StorageFull.into())
        }
    }

    /// Frees at least `bytes` for records that remove something.
    ///
    /// `None` if the reserve has less left for them.
    pub fn take(self: &Arc<Reserve>, bytes: u64) -> Option<Loan> {
        let mut state = self.state.lock();
        let rest = state
            .held
            .checked_sub(bytes.checked_next_multiple_of(PIECE)?)?;
        (rest >= self.size / PART_FOR_COMMANDS && self.truncate(&mut state, rest))
            .then(|| self.loan(&mut state))
    }

    /// Lends a part of the reserve to a command that frees space.
    ///
    /// It only truncates the reserve if the disk has too little space.
    pub fn lend(self: &Arc<Reserve>) -> Loan {
        let mut state = self.state.lock();
        let share = self.size / PART_FOR_COMMANDS;
        if state.loans == 0 && self.available() < share {
            let rest = state.held.saturating_sub(share);
            self.truncate(&mut state, rest);
        }
        self.release_spares(&mut state);
        self.loan(&mut state)
    }

    /// Lends inodes only.
    ///
    /// They are for files that must be created before any command can be answered.
    pub fn lend_inodes(self: &Arc<Reserve>) -> Loan {
        let mut state = self.state.lock();
        self.release_spares(&mut state);
        self.loan(&mut state)
    }

    /// Removes the spares if inodes are scarce.
    ///
    /// They are scarce if the disk has fewer than the intended number of spares.
    fn release_spares(&self, state: &mut State) {
        let is_scarce = || {
            tine_sys::file::fs_figures(&self.spares)
                .is_ok_and(|it| it.files_free < self.spare_count)
        };
        if self.spare_count == 0 || state.loans > 0 || !is_scarce() {
            return;
        }
        self.lacks_spares.store(true, Ordering::Relaxed);
        for number in 0..self.spare_count {
            match std::fs::remove_file(self.spare_path(number)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    log::warn!("remove {}: {error}", self.spare_path(number).display());
                }
                _ => {}
            }
        }
    }

    fn spare_path(&self, number: u64) -> PathBuf {
        self.spares.join(number.to_string())
    }

    /// Creates the missing spares, as far as there are inodes.
    fn refill_spares(&self) {
        let made = make_private_dir(&self.spares).and_then(|()| {
            (0..self.spare_count).try_for_each(|number| {
                let mut options = OpenOptions::new();
                let made = options.write(true).create_new(true).mode(0o600);
                match made.open(self.spare_path(number)) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
                    _ => Ok(()),
                }
            })
        });
        match made {
            Ok(()) => self.lacks_spares.store(false, Ordering::Relaxed),
            Err(error) => log::debug!("{}: {error}", self.spares.display()),
        }
    }

    fn loan(self: &Arc<Reserve>, state: &mut State) -> Loan {
        state.loans = state.loans.saturating_add(1);
        LOANS.set(LOANS.get().saturating_add(1));
        Loan {
            reserve: self.clone(),
            _thread: PhantomData,
        }
    }

    /// Returns true if the disk has less space than the reserve.
    pub fn is_disk_full(&self) -> bool {
        self.is_short() || self.available() < self.size
    }

    /// Returns true if a part of the reserve is missing.
    pub fn is_short(&self) -> bool {
        self.is_short.load(Ordering::Relaxed)
    }

    /// Refills the reserve, and returns true if it is complete.
    ///
    /// During a loan, it does nothing.
    pub fn refill(&self) -> bool {
        let is_whole = !self.is_short() && !self.lacks_spares.load(Ordering::Relaxed);
        is_whole || self.refill_locked(&mut self.state.lock())
    }

    fn refill_locked(&self, state: &mut State) -> bool {
        if state.loans > 0 {
            return false;
        }
        if self.lacks_spares.load(Ordering::Relaxed) {
            self.refill_spares();
        }
        while state.held < self.size
            && self.free() >= PIECE
            && let Some(file) = &state.file
        {
            let end = state.held.saturating_add(PIECE).min(self.size);
            let grown = fault::step()
                .and_then(|()| tine_sys::file::reserve(file, state.held, end - state.held))
                .and_then(|()| file.set_len(end));
            match grown {
                Ok(()) => state.held = end,
                Err(error) => {
                    log::debug!("{}: {error}", self.path.display());
                    // Free the blocks that were allocated past the end.
                    let _ = file.set_len(state.held);
                    break;
                }
            }
        }
        let is_whole = state.held >= self.size;
        self.is_short.store(!is_whole, Ordering::Relaxed);
        is_whole
    }

    /// Truncates the reserve to `rest` bytes.
    ///
    /// Returns true if the freed blocks can be used.
    fn truncate(&self, state: &mut State, rest: u64) -> bool {
        let Some(file) = state.file.as_ref().filter(|_| rest < state.held) else {
            return false;
        };
        self.is_short.store(true, Ordering::Relaxed);
        // A file system may not reuse blocks before their release is on disk.
        let truncated =
            fault::step().and_then(|()| file.set_len(rest).and_then(|()| file.sync_all()));
        match truncated {
            Ok(()) => {
                state.held = rest;
                true
            }
            Err(error) => {
                log::warn!("{}: {error}", self.path.display());
                false
            }
        }
    }

    /// Returns the bytes that may be free for this process.
    ///
    /// root may use some that others may not, and the file system may keep back others.
    fn free(&self) -> u64 {
        match tine_sys::process::effective_uid() {
            0 => self.figure(|figures| figures.blocks_free),
            _ => self.available(),
        }
    }

    /// Returns the bytes that are free for all users.
    fn available(&self) -> u64 {
        self.figure(|figures| figures.blocks_available)
    }

    fn figure(&self, blocks: impl FnOnce(&FsStats) -> u64) -> u64 {
        let parent = self.path.parent().unwrap_or(&self.path);
        tine_sys::file::fs_figures(parent).map_or(0, |figures| {
            blocks(&figures).saturating_mul(figures.block_size)
        })
    }
}

fn make_private_dir(dir: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_refilled_and_commands_have_a_share_of_their_own() {
        let place = tempfile::tempdir().unwrap();
        let reserve = Arc::new(Reserve::open(
            &place.path().join("reserve"),
            &place.path().join("spares"),
        ));
        if reserve.size == 0 {
            eprintln!("SKIP: the file system cannot allocate ahead");
            return;
        }
        assert!(!reserve.is_short());
        assert_eq!(reserve.state.lock().held, reserve.size);
        let mut taken = 0;
        while reserve.take(1).is_some_and(|loan| {
            // Filled up again when it ends, which nobody is to see here.
            std::mem::forget(loan);
            true
        }) {
            taken += PIECE;
        }
        LOANS.set(0);
        reserve.state.lock().loans = 0;
        assert_eq!(reserve.size - taken, reserve.size / PART_FOR_COMMANDS);
        assert!(reserve.is_short());
        let loan = reserve.lend();
        assert!(!reserve.refill(), "a command uses it");
        reserve.check_growth().unwrap();
        let other = reserve.clone();
        std::thread::spawn(move || other.check_growth().unwrap_err())
            .join()
            .unwrap();
        drop(loan);
        assert!(!reserve.is_short());
        assert_eq!(reserve.state.lock().held, reserve.size);
        reserve.check_growth().unwrap();
        let spares = std::fs::read_dir(place.path().join("spares")).map_or(0, Iterator::count);
        assert_eq!(spares as u64, reserve.spare_count);
        let again = Reserve::open(reserve.path(), &place.path().join("spares"));
        assert_eq!(again.state.lock().held, reserve.size);
    }
}
