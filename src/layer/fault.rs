//! Hook for tests that make the disk fail.
//!
//! Outside of tests, nothing fails here.

#[cfg(not(test))]
use std::io;
use std::path::PathBuf;
use std::sync::OnceLock;

/// Runs before each disk operation.
///
/// A test selects the operation that fails by its number.
#[cfg(not(test))]
pub(super) fn step() -> io::Result<()> {
    Ok(())
}

/// Returns true if a test has selected an operation to fail.
#[cfg(not(test))]
pub(super) fn is_armed() -> bool {
    false
}

/// Panics at the point `name` if a test asks for it.
///
/// The file at `TINE_PANIC_FILE` must contain the name. It is removed, so the panic happens once. A
/// release build does not look for it.
pub(super) fn panic_point(name: &str) {
    if !cfg!(debug_assertions) {
        return;
    }
    static FILE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let file = FILE.get_or_init(|| std::env::var_os("TINE_PANIC_FILE").map(PathBuf::from));
    if let Some(file) = file
        && std::fs::read(file).is_ok_and(|named| named == name.as_bytes())
        && std::fs::remove_file(file).is_ok()
    {
        std::panic::panic_any(format!("a test asked for it at {name}"));
    }
}

#[cfg(test)]
pub(super) use armed::{Fault, arm, disarm, is_armed, step, steps_taken};

#[cfg(test)]
mod armed {
    use std::cell::Cell;
    use std::io;

    /// Failure of steps from the chosen one on.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Fault {
        /// This one step fails as on a full disk.
        DiskFull,
        /// This step and all later ones fail, as after a crash.
        Crash,
    }

    thread_local! {
        static PLAN: Cell<Option<(u64, Fault)>> = const { Cell::new(None) };
        static TAKEN: Cell<u64> = const { Cell::new(0) };
    }

    /// Makes the step after `after` others fail on this thread.
    pub(crate) fn arm(after: u64, fault: Fault) {
        TAKEN.set(0);
        PLAN.set(Some((after, fault)));
    }

    pub(crate) fn disarm() {
        PLAN.set(None);
    }

    pub(crate) fn is_armed() -> bool {
        PLAN.get().is_some()
    }

    /// Returns the number of steps since [`arm`].
    pub(crate) fn steps_taken() -> u64 {
        TAKEN.get()
    }

    pub(crate) fn step() -> io::Result<()> {
        let taken = TAKEN.replace(TAKEN.get() + 1);
        match PLAN.get() {
            Some((after, Fault::DiskFull)) if taken == after => {
                Err(io::Error::from_raw_os_error(libc::ENOSPC))
            }
            Some((after, Fault::Crash)) if taken >= after => Err(io::Error::other("crashed")),
            _ => Ok(()),
        }
    }
}
