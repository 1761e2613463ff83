//! Journal: the operations of a fork in order, one JSON value per line.
//!
//! It is for reading only. A line is written after the record of its operation. If a process dies
//! before that, the next open of the fork adds the line from the trash.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::FileOperation;
use super::trash::OperationsInTrash;
use tine_sys::file;

/// Journal file of a fork, and the last numbers.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    /// Path of the file; `None` for a workspace without a store.
    path: Option<PathBuf>,
    /// Number of the last operation in the file.
    written: u64,
    /// Last number that was given.
    last: u64,
    /// Facts of the operations in the trash.
    pub(crate) in_trash: OperationsInTrash,
}

impl Journal {
    /// Opens a journal and cuts an incomplete last line off. A missing file is empty.
    pub(crate) fn open(path: PathBuf) -> io::Result<Journal> {
        let mut written = 0;
        let mut len = 0;
        match file::open(&path) {
            Ok(file) => {
                let mut lines = BufReader::new(file);
                let mut line = Vec::new();
                while lines.read_until(b'\n', &mut line)? > 0 {
                    if line.last() != Some(&b'\n') {
                        file::open_with(&path, OpenOptions::new().write(true))?.set_len(len)?;
                        break;
                    }
                    len += line.len() as u64;
                    // A damaged line is skipped.
                    if let Ok(operation) = serde_json::from_slice::<FileOperation>(&line) {
                        written = written.max(operation.id);
                    }
                    line.clear();
                }
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(Journal {
            path: Some(path),
            written,
            last: written,
            in_trash: OperationsInTrash::default(),
        })
    }

    /// Records that numbers up to this one were given.
    pub(crate) fn note(&mut self, id: u64) {
        self.last = self.last.max(id);
    }

    /// Returns the number of the next operation.
    pub(crate) fn next_id(&self) -> u64 {
        self.last.saturating_add(1)
    }

    /// Returns whether the file lacks operations before `id`.
    pub(crate) fn lacks_more_than(&self, id: u64) -> bool {
        self.path.is_some() && self.written.saturating_add(1) < id
    }

    /// Appends the operations that the file lacks, by number.
    ///
    /// A failure is logged. The next call tries again.
    pub(crate) fn write<'o>(&mut self, operations: impl IntoIterator<Item = &'o FileOperation>) {
        let Some(path) = &self.path else {
            return;
        };
        let mut lines = Vec::new();
        let mut last = self.written;
        for operation in operations {
            if operation.id > last
                && let Ok(line) = serde_json::to_vec(operation)
            {
                lines.extend(line);
                lines.push(b'\n');
                last = operation.id;
            }
        }
        if lines.is_empty() {
            return;
        }
        let mut options = OpenOptions::new();
        let opened = file::open_with(path, options.append(true).create(true).mode(0o600));
        match opened.and_then(|mut file| write_all_or_nothing(&mut file, &lines)) {
            Ok(()) => self.written = last,
            Err(error) => log::warn!("{}: {error}", path.display()),
        }
    }

    /// Returns the newest `limit` operations, newest first.
    pub(crate) fn read(&self, limit: usize) -> io::Result<Vec<FileOperation>> {
        match &self.path {
            Some(path) => read(path, limit),
            None => Ok(Vec::new()),
        }
    }
}

fn write_all_or_nothing(file: &mut File, lines: &[u8]) -> io::Result<()> {
    let len = file.metadata()?.len();
    file.write_all(lines).inspect_err(|_| {
        // An incomplete line would damage the next one. If this fails, too, opening cuts the line
        // off.
        let _ = file.set_len(len);
    })
}

fn read(path: &Path, limit: usize) -> io::Result<Vec<FileOperation>> {
    let file = match file::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut newest = std::collections::VecDeque::new();
    for line in BufReader::new(file).split(b'\n') {
        if let Ok(operation) = serde_json::from_slice::<FileOperation>(&line?) {
            if newest.len() == limit {
                newest.pop_front();
            }
            newest.push_back(operation);
        }
    }
    newest.truncate(limit);
    Ok(newest.into_iter().rev().collect())
}
