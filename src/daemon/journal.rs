//! The daemon's log, `<store>/daemon.log`.
//!
//! It is the standard error of a launched daemon. If the log is larger than [`ROTATE_BYTES`], a
//! start renames it to `daemon.log.old` first.

use std::backtrace::Backtrace;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::panic;
use std::path::Path;

use tine_ops::failure::Failure;
use tine_store::Store;

/// Name of the log in the store's directory.
pub const LOG_NAME: &str = "daemon.log";

/// Size in bytes above which a start begins a new log.
pub const ROTATE_BYTES: u64 = 1 << 20;

/// Number of bytes at the log's end searched for an error.
const TAIL_BYTES: u64 = 64 << 10;

/// Maximum number of characters shown of an error's line.
///
/// The line of a panic contains its backtrace.
const MAX_ERROR_CHARS: usize = 300;

/// Text before the message of an error in the log.
const ERROR_MARK: &str = " ERROR ";

/// Opens the log for a daemon that is about to start.
///
/// Creates the store's directory if it is missing. Returns the log and its length in bytes, which
/// is the offset of the new daemon's first line. If the log cannot be opened, the result is
/// `/dev/null`.
///
/// # Errors
/// `io` or a similar code if the store's directory cannot be created; the error of
/// [`Store::exists_at`] if another user may have put it there.
pub fn open(store_dir: &Path) -> Result<(File, u64), Failure> {
    let path = store_dir.join(LOG_NAME);
    // This check comes before any write to the directory, because another user may own it.
    Store::exists_at(store_dir)?;
    let open = || -> io::Result<(File, u64)> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(store_dir)?;
        if fs::metadata(&path).is_ok_and(|log| log.len() > ROTATE_BYTES) {
            fs::rename(&path, path.with_extension("log.old"))?;
        }
        let mut options = OpenOptions::new();
        let log = tine_sys::file::open_with(&path, options.create(true).append(true).mode(0o600))?;
        let len = log.metadata()?.len();
        Ok((log, len))
    };
    open().or_else(|error| {
        // Access to the forks is more important than the log.
        let nowhere = Path::new("/dev/null");
        let is_there = store_dir.is_dir();
        match OpenOptions::new().append(true).open(nowhere) {
            Ok(log) if is_there => Ok((log, 0)),
            _ => Err(Failure::io("open", &path, &error)),
        }
    })
}

/// Returns the last error message in the log after offset `from`.
///
/// Only the last 64 KiB of the log are searched. A long message is truncated.
pub fn last_error(store_dir: &Path, from: u64) -> Option<String> {
    let mut log = tine_sys::file::open(&store_dir.join(LOG_NAME)).ok()?;
    let len = log.metadata().ok()?.len();
    log.seek(SeekFrom::Start(from.max(len.saturating_sub(TAIL_BYTES))))
        .ok()?;
    let mut tail = Vec::new();
    log.take(TAIL_BYTES).read_to_end(&mut tail).ok()?;
    let tail = String::from_utf8_lossy(&tail);
    let (_, message) = tail
        .lines()
        .rev()
        .find_map(|line| line.split_once(ERROR_MARK))?;
    Some(message.chars().take(MAX_ERROR_CHARS).collect())
}

/// Sets up the daemon's logging to standard error.
///
/// Each line has time, level and message. `TINE_LOG` sets the level in the syntax of `RUST_LOG`;
/// the default is `info`. Panics are logged as errors.
pub fn init() {
    let environment = env_logger::Env::new().filter_or("TINE_LOG", "info");
    let builder = &mut env_logger::Builder::from_env(environment);
    let initialised = builder
        .format(|out, record| {
            let time = out.timestamp_millis();
            let message = record.args().to_string().replace('\n', "; ");
            // Over io_uring, the kernel rejects an answer to INTERRUPT, but `fuser` sends one.
            if record.target() == "fuser::reply" && message.ends_with("(os error 2)") {
                return Ok(());
            }
            writeln!(out, "{time} {} {message}", record.level())
        })
        .try_init();
    if initialised.is_err() {
        log::debug!("the log goes where the embedding program sends it");
    }
    // With a panic as one line, `last_error` finds it.
    panic::set_hook(Box::new(|panic| {
        log::error!("{panic}\n{}", Backtrace::capture());
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_rotated_and_its_last_error_found() {
        let place = tempfile::tempdir().unwrap();
        let store = place.path().join("tine");
        let (mut log, len) = open(&store).unwrap();
        assert_eq!(len, 0);
        log.write_all(b"1.000 ERROR old trouble\n").unwrap();
        let (mut log, len) = open(&store).unwrap();
        assert_eq!(
            last_error(&store, len),
            None,
            "errors of earlier daemons do not count"
        );
        log.write_all(b"2.000 INFO fine\n2.001 ERROR the disk burns\n2.002 INFO end\n")
            .unwrap();
        assert_eq!(last_error(&store, len).as_deref(), Some("the disk burns"));

        log.write_all(&vec![b'x'; ROTATE_BYTES as usize]).unwrap();
        let (_log, len) = open(&store).unwrap();
        assert_eq!(len, 0);
        assert!(fs::metadata(store.join("daemon.log.old")).unwrap().len() > ROTATE_BYTES);
    }
}
