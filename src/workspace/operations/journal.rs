//! The journal: every operation of a fork, one JSON value a line, in the order in which they were
//! done.
//!
//! It is for reading. A line is written after the record of its operation; what a process that died
//! did not write is added from the attic when the fork is opened again.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::FileOperation;
use super::trash::Weights;
use tine_sys::file;

/// Where a fork's operations are written down, and which is the last.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    /// `None` for a workspace without a store.
    path: Option<PathBuf>,
    /// The last operation in the file.
    written: u64,
    /// The last one that was given a number.
    last: u64,
    /// Those of the attic.
    pub(crate) weights: Weights,
}

impl Journal {
    /// Reads how far the file goes, and cuts off half a line at its end. One that is missing is
    /// empty.
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
                    // A line that was damaged tells nothing, and those around it do.
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
            weights: Weights::default(),
        })
    }

    /// Numbers up to this one were given.
    pub(crate) fn note(&mut self, id: u64) {
        self.last = self.last.max(id);
    }

    /// The number of the next operation.
    pub(crate) fn next_id(&self) -> u64 {
        self.last.saturating_add(1)
    }

    /// Whether the file lacks more than the operation `id`.
    pub(crate) fn lacks_more_than(&self, id: u64) -> bool {
        self.path.is_some() && self.written.saturating_add(1) < id
    }

    /// Writes down those that the file lacks, by number. What fails is made up for the next time.
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

    /// The newest `limit` operations, the newest first.
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
        // Half a line would be in the way of the next; where this fails, too, opening cuts it off.
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
