//! Transfers of file contents between a client and the daemon.
//!
//! A short content travels in the message, a long one in a file of the store that the receiver
//! removes.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Cursor, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::failure::{ErrorCode, Failure};
use tine_workspace::NewContent;

/// Largest size in bytes that travels in the message. Longer contents travel in a file.
const INLINE_MAX: usize = 256 << 10;

/// Directory of the files, below the store.
const DIR_NAME: &str = "transfers";

/// Age at which an untaken file is removed. A process that died has left it.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(24 * 3600);

/// Content in transit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transfer {
    /// The bytes themselves, in base64.
    Base64(String),
    /// Name of a file in the store's directory of transfers.
    File(String),
}

impl Default for Transfer {
    fn default() -> Transfer {
        Transfer::Base64(String::new())
    }
}

/// Content that has arrived.
pub enum Arrived {
    /// The bytes themselves.
    Bytes(Vec<u8>),
    /// Open file that has no name any more.
    File(File),
}

impl Arrived {
    /// Returns a reader over the whole content.
    pub fn into_reader(self) -> Box<dyn Read> {
        match self {
            Arrived::Bytes(bytes) => Box::new(Cursor::new(bytes)),
            Arrived::File(file) => Box::new(file),
        }
    }

    /// Reads the whole content into memory.
    ///
    /// # Errors
    /// `io` if the file cannot be read.
    pub fn into_bytes(self) -> Result<Vec<u8>, Failure> {
        match self {
            Arrived::Bytes(bytes) => Ok(bytes),
            Arrived::File(mut file) => {
                let mut bytes = Vec::new();
                file.read_to_end(&mut bytes)
                    .map_err(|error| unread(&error))?;
                Ok(bytes)
            }
        }
    }

    /// Returns the content for a write to a workspace.
    pub fn content(&self) -> NewContent<'_> {
        match self {
            Arrived::Bytes(bytes) => NewContent::Bytes(bytes),
            Arrived::File(file) => NewContent::File(file),
        }
    }
}

/// Returns the failure for content that cannot be read.
pub fn unread(error: &io::Error) -> Failure {
    Failure::new(ErrorCode::Io, "the content could not be read")
        .cause(error.to_string())
        .hint("try again")
}

/// Collects a content to send. A value that is dropped before `finish` removes its file.
pub struct Outgoing {
    store_dir: PathBuf,
    bytes: Vec<u8>,
    file: Option<(String, File)>,
}

impl Outgoing {
    /// Returns an empty content, with files in the store at `store_dir`.
    pub fn new(store_dir: &Path) -> Outgoing {
        Outgoing {
            store_dir: store_dir.to_owned(),
            bytes: Vec::new(),
            file: None,
        }
    }

    /// Appends `bytes`.
    ///
    /// # Errors
    /// `io`, `no-space` or `permission-denied` if the transfer's file cannot be made or written.
    pub fn add(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        if self.file.is_none() && self.bytes.len() + bytes.len() > INLINE_MAX {
            let (name, mut file) = make_file(&self.store_dir)?;
            let written = file.write_all(&self.bytes);
            self.bytes = Vec::new();
            self.file = Some((name, file));
            written.map_err(|error| self.failed(&error))?;
        }
        match &mut self.file {
            None => self.bytes.extend_from_slice(bytes),
            Some((_, file)) => {
                let written = file.write_all(bytes);
                written.map_err(|error| self.failed(&error))?;
            }
        }
        Ok(())
    }

    /// Appends everything that `input` returns until its end.
    ///
    /// # Errors
    /// `io` if `input` cannot be read; those of [`Outgoing::add`].
    pub fn add_all(&mut self, input: &mut dyn Read) -> Result<(), Failure> {
        let mut buffer = vec![0; 64 << 10];
        loop {
            match input.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => self.add(&buffer[..count])?,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(Failure::new(ErrorCode::Io, "the content could not be read")
                        .cause(error.to_string())
                        .hint("nothing was written: try again"));
                }
            }
        }
    }

    fn failed(&self, error: &io::Error) -> Failure {
        Failure::io("write to", &self.store_dir.join(DIR_NAME), error)
    }

    /// Returns the part for the message. From here on the receiver owns the file.
    pub fn finish(mut self) -> Transfer {
        match self.file.take() {
            Some((name, _)) => Transfer::File(name),
            None => Transfer::Base64(STANDARD.encode(&self.bytes)),
        }
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        if let Some((name, _)) = &self.file {
            remove(&self.store_dir, name);
        }
    }
}

impl Transfer {
    /// Removes the file that the receiver may not have taken.
    pub fn withdraw(&self, store_dir: &Path) {
        if let Transfer::File(name) = self {
            // An error means that the receiver took it.
            let _ = fs::remove_file(store_dir.join(DIR_NAME).join(name));
        }
    }

    /// Takes the content, and removes its file from the store.
    ///
    /// # Errors
    /// `usage` if the base64, the file's name or its type is invalid; `io` or `permission-denied`
    /// if the file cannot be opened.
    pub fn take(&self, store_dir: &Path) -> Result<Arrived, Failure> {
        let refused = |reason: &str| {
            Failure::new(ErrorCode::Usage, "the content did not arrive")
                .cause(reason)
                .hint("try again")
        };
        match self {
            Transfer::Base64(text) => match STANDARD.decode(text) {
                Ok(bytes) => Ok(Arrived::Bytes(bytes)),
                Err(error) => Err(refused(&error.to_string())),
            },
            Transfer::File(name) => {
                let is_name =
                    !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit() || b == b'-');
                if !is_name {
                    return Err(refused("its name is none that a transfer has"));
                }
                let path = store_dir.join(DIR_NAME).join(name);
                let opened = OpenOptions::new()
                    .read(true)
                    .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
                    .open(&path)
                    .map_err(|error| Failure::io("open", &path, &error))?;
                remove(store_dir, name);
                match opened.metadata() {
                    Ok(meta) if meta.is_file() => Ok(Arrived::File(opened)),
                    Ok(_) => Err(refused("it is not a regular file")),
                    Err(error) => Err(Failure::io("stat", &path, &error)),
                }
            }
        }
    }
}

fn remove(store_dir: &Path, name: &str) {
    let path = store_dir.join(DIR_NAME).join(name);
    if let Err(error) = fs::remove_file(&path) {
        log::warn!("{} stays: {error}", path.display());
    }
}

/// Creates a new file that only its owner can read.
fn make_file(store_dir: &Path) -> Result<(String, File), Failure> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let dir = store_dir.join(DIR_NAME);
    match DirBuilder::new().mode(0o700).create(&dir) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            return Err(Failure::io("create", &dir, &error));
        }
        _ => {}
    }
    let nanos = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |now| now.as_nanos());
    loop {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{nanos}-{count}", std::process::id());
        let made = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(dir.join(&name));
        match made {
            Ok(file) => return Ok((name, file)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(Failure::io("create", &dir.join(&name), &error)),
        }
    }
}

/// Removes the files that processes that died have left.
pub fn clear_forgotten(store_dir: &Path) {
    let Ok(entries) = fs::read_dir(store_dir.join(DIR_NAME)) else {
        return;
    };
    for entry in entries.flatten() {
        let age = entry.metadata().and_then(|meta| meta.modified()).ok();
        let age = age.and_then(|modified| modified.elapsed().ok());
        if age.is_some_and(|age| age > FORGOTTEN_AFTER)
            && let Some(name) = entry.file_name().to_str()
        {
            remove(store_dir, name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(store: &Path, bytes: &[u8]) -> Transfer {
        let mut outgoing = Outgoing::new(store);
        for piece in bytes.chunks(100_000) {
            outgoing.add(piece).unwrap();
        }
        outgoing.finish()
    }

    fn received(store: &Path, transfer: &Transfer) -> Vec<u8> {
        match transfer.take(store).unwrap() {
            Arrived::Bytes(bytes) => bytes,
            Arrived::File(mut file) => {
                let mut bytes = Vec::new();
                file.read_to_end(&mut bytes).unwrap();
                bytes
            }
        }
    }

    fn left(store: &Path) -> usize {
        fs::read_dir(store.join(DIR_NAME)).map_or(0, Iterator::count)
    }

    #[test]
    fn bytes_arrive_whether_few_or_many_and_leave_nothing_behind() {
        let store = tempfile::tempdir().unwrap();
        for len in [0, 1, INLINE_MAX, INLINE_MAX + 1, 3 << 20] {
            let bytes: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
            let transfer = sent(store.path(), &bytes);
            assert_eq!(matches!(transfer, Transfer::File(_)), len > INLINE_MAX);
            assert!(received(store.path(), &transfer) == bytes, "{len}");
            assert_eq!(left(store.path()), 0);
        }
        let mut dropped = Outgoing::new(store.path());
        dropped.add(&vec![0; INLINE_MAX + 1]).unwrap();
        assert_eq!(left(store.path()), 1);
        drop(dropped);
        assert_eq!(left(store.path()), 0);
    }

    #[test]
    fn a_name_that_leads_elsewhere_is_refused() {
        let store = tempfile::tempdir().unwrap();
        fs::create_dir(store.path().join(DIR_NAME)).unwrap();
        fs::write(store.path().join("secret"), "x").unwrap();
        std::os::unix::fs::symlink("../secret", store.path().join(DIR_NAME).join("1-1")).unwrap();
        for name in ["../secret", "", "1-1", "2-2"] {
            assert!(
                Transfer::File(name.to_owned()).take(store.path()).is_err(),
                "{name}"
            );
        }
        assert!(store.path().join("secret").exists());
    }

    #[test]
    fn what_nobody_took_goes_after_a_day() {
        let store = tempfile::tempdir().unwrap();
        let Transfer::File(name) = sent(store.path(), &vec![0; INLINE_MAX + 1]) else {
            panic!("too many bytes for a message");
        };
        clear_forgotten(store.path());
        assert_eq!(left(store.path()), 1);
        let file = File::open(store.path().join(DIR_NAME).join(name)).unwrap();
        file.set_modified(SystemTime::now() - 2 * FORGOTTEN_AFTER)
            .unwrap();
        clear_forgotten(store.path());
        assert_eq!(left(store.path()), 0);
    }
}
