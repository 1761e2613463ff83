//! Mailboxes of patches: written by `git format-patch`, read as by `git am`.
//!
//! The same commits give the same bytes, whatever the user has configured. Subjects are unchanged.
//! Plain `git am` strips leading brackets from them, and `git am --keep` does not.
//!
//! `git am` strips carriage returns from the ends of lines, and starts a new mail at a line that
//! begins with `From `. A mail that would change in this way is encoded as quoted-printable, as
//! mail programs do. All others are readable.

mod quoting;
mod reading;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashSet};
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use gix::hash::Kind;

use super::checksum::Checksum;
use super::program::{self, Finished};
use super::{GitError, ObjectId, Repository};

pub use reading::{Mail, Subjects, read_mail, read_mails, split_mailbox};

/// Settings that change the mails and have no flag, with git's defaults.
const SETTINGS: [&str; 6] = [
    "core.quotePath=true",
    "diff.suppressBlankEmpty=false",
    "format.headers=",
    "format.mboxrd=false",
    "format.numbered=false",
    "i18n.logOutputEncoding=UTF-8",
];

/// Flags that override the other settings.
const FLAGS: [&str; 36] = [
    "--stdout",
    "--keep-subject",
    "--always",
    "--root",
    "--encode-email-headers",
    "--no-add-header",
    "--no-attach",
    "--no-base",
    "--no-cc",
    "--no-cover-letter",
    "--no-force-in-body-from",
    "--no-from",
    "--no-notes",
    "--no-signature",
    "--no-signoff",
    "--no-thread",
    "--no-to",
    "--binary",
    "--full-index",
    "--find-renames",
    "-l1000",
    "--stat=80",
    "--summary",
    "--default-prefix",
    "--diff-algorithm=myers",
    "--ignore-submodules=none",
    "--indent-heuristic",
    "--inter-hunk-context=0",
    "--no-color",
    "--no-ext-diff",
    "--no-relative",
    "--no-textconv",
    "--submodule=short",
    "--unified=3",
    "-O",
    "/dev/null",
];

/// End of git's first line of a mail, after the commit id.
const MAIL_BEGINS: &[u8] = b" Mon Sep 17 00:00:00 2001\n";

/// A range of commits: those that `head` reaches and `base` does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommitRange {
    /// Excluded commit; `None` includes the whole history.
    pub base: Option<ObjectId>,
    /// Newest commit.
    pub head: ObjectId,
}

/// The commits of a range.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RangeCommits {
    /// Commits that a patch can represent, the newest first.
    pub plain: Vec<ObjectId>,
    /// Number of merge commits, which a patch cannot represent.
    pub merges: u64,
}

/// The size and checksum of a mailbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailboxStats {
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 in hex.
    pub sha256: String,
}

impl CommitRange {
    /// Returns the range as an argument for git.
    fn argument(&self) -> String {
        match self.base {
            Some(base) => format!("{base}..{}", self.head),
            None => self.head.to_string(),
        }
    }
}

impl Repository {
    /// Lists the commits of a range.
    ///
    /// # Errors
    /// [`GitError::GitFailed`] if a commit is missing.
    pub fn commits_in(&self, range: &CommitRange) -> Result<RangeCommits, GitError> {
        let mut git = program::command(self.common_dir());
        git.args(["rev-list", "--parents"]).arg(range.argument());
        let printed = program::run(&mut git, b"")?;
        let mut commits = RangeCommits::default();
        for line in printed.lines() {
            let line = line.map_err(GitError::GitMissing)?;
            let mut ids = line.split(' ');
            let id = ids.next().unwrap_or_default();
            match ids.count() {
                0 | 1 => commits.plain.push(
                    ObjectId::from_hex(id.as_bytes())
                        .map_err(GitError::library("read the history"))?,
                ),
                _ => commits.merges += 1,
            }
        }
        Ok(commits)
    }

    /// Writes the patches of `commits` to a new file at `path`.
    ///
    /// `commits` are those of `range`.
    ///
    /// # Errors
    /// [`GitError::Io`] if the file exists or cannot be written, [`GitError::GitFailed`] if git
    /// fails, [`GitError::Library`] if git writes fewer patches.
    pub fn write_mailbox(
        &self,
        range: &CommitRange,
        commits: &RangeCommits,
        path: &Path,
    ) -> Result<MailboxStats, GitError> {
        let mut mails = Mails::of(commits);
        let mut written = NewFile::create(path)?;
        self.format_patches(range, |line| {
            mails.classify(line);
            written.add(line)
        })?;
        if mails.begun != commits.plain.len() as u64 {
            return Err(GitError::Library {
                action: "write the patches",
                reason: format!("git wrote {} of {}", mails.begun, commits.plain.len()),
            });
        }
        if mails.needs_encoding.is_empty() {
            return written.finish();
        }
        // Removing the plain file frees its name for the encoded one. Its descriptor stays open.
        let plain = written.into_file()?;
        fs::remove_file(path).map_err(GitError::io("replace", path))?;
        let mut encoded = NewFile::create(path)?;
        let mut place = Place::new(Mails::of(commits));
        each_line(BufReader::new(plain), |line| {
            place.encoded(line, &mails.needs_encoding, |bytes| encoded.add(bytes))
        })?;
        encoded.finish()
    }

    /// Runs `git format-patch` and passes its lines to `take` as they come.
    fn format_patches(
        &self,
        range: &CommitRange,
        take: impl FnMut(&[u8]) -> Result<(), GitError>,
    ) -> Result<(), GitError> {
        let mut git = program::command(self.common_dir());
        for setting in SETTINGS {
            git.args(["-c", setting]);
        }
        git.arg("format-patch").args(FLAGS).arg(range.argument());
        stream(&mut git, take)
    }
}

/// Runs `git` to its end, and passes its output lines to `take`.
fn stream(
    git: &mut Command,
    take: impl FnMut(&[u8]) -> Result<(), GitError>,
) -> Result<(), GitError> {
    git.stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = program::spawn(git)?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let mut errors = Vec::new();
    let errors_end = &mut errors;
    let taken = thread::scope(|scope| {
        if let Some(mut stderr) = stderr {
            scope.spawn(move || stderr.read_to_end(errors_end).ok());
        }
        // If `take` fails, the closed pipe ends git.
        stdout.map_or(Ok(()), |pipe| each_line(BufReader::new(pipe), take))
    });
    let status = child.wait().map_err(GitError::GitMissing)?;
    taken?;
    let finished = Finished {
        status,
        stdout: Vec::new(),
        stderr: errors,
    };
    if finished.status.success() {
        Ok(())
    } else {
        Err(program::failed(git, &finished))
    }
}

/// Passes each line, with its end, to `take`.
fn each_line(
    mut input: impl BufRead,
    mut take: impl FnMut(&[u8]) -> Result<(), GitError>,
) -> Result<(), GitError> {
    let mut line = Vec::new();
    loop {
        line.clear();
        let count = input
            .read_until(b'\n', &mut line)
            .map_err(GitError::io("read", "the patches"))?;
        if count == 0 {
            return Ok(());
        }
        take(&line)?;
    }
}

/// Assignment of lines to mails.
struct Mails {
    /// Commits, in hex, whose mails follow.
    ///
    /// Only these begin a mail, so that no message can imitate a beginning.
    pending: HashSet<Vec<u8>>,
    begun: u64,
    /// Mails, counted from 1, that `git am` would change.
    needs_encoding: BTreeSet<u64>,
}

impl Mails {
    fn of(commits: &RangeCommits) -> Mails {
        Mails {
            pending: commits
                .plain
                .iter()
                .map(|id| id.to_string().into_bytes())
                .collect(),
            begun: 0,
            needs_encoding: BTreeSet::new(),
        }
    }

    /// Returns whether a mail begins with this line, and counts it.
    fn begins(&mut self, line: &[u8]) -> bool {
        let commit = line
            .strip_prefix(b"From ")
            .and_then(|rest| rest.strip_suffix(MAIL_BEGINS));
        let begins = commit.is_some_and(|commit| self.pending.remove(commit));
        self.begun += u64::from(begins);
        begins
    }

    fn classify(&mut self, line: &[u8]) {
        if !self.begins(line) && (line.ends_with(b"\r\n") || line.starts_with(b"From ")) {
            self.needs_encoding.insert(self.begun);
        }
    }
}

/// The position of an encoder in a mailbox.
struct Place {
    mails: Mails,
    in_headers: bool,
}

impl Place {
    fn new(mails: Mails) -> Place {
        Place {
            mails,
            in_headers: true,
        }
    }

    /// Passes the line to `give`, encoded if it is in `mails`.
    fn encoded(
        &mut self,
        line: &[u8],
        mails: &BTreeSet<u64>,
        mut give: impl FnMut(&[u8]) -> Result<(), GitError>,
    ) -> Result<(), GitError> {
        if self.mails.begins(line) {
            self.in_headers = true;
            return give(line);
        }
        if !mails.contains(&self.mails.begun) {
            return give(line);
        }
        match (self.in_headers, line) {
            (true, b"\n") => {
                self.in_headers = false;
                give(quoting::HEADERS)
            }
            (true, line) if quoting::is_replaced(line) => Ok(()),
            (true, line) => give(line),
            (false, line) => give(&quoting::quoted(line)),
        }
    }
}

/// A file that is being written, counted and hashed.
struct NewFile<'p> {
    path: &'p Path,
    file: BufWriter<File>,
    bytes: u64,
    hash: Checksum,
}

impl NewFile<'_> {
    fn create(path: &Path) -> Result<NewFile<'_>, GitError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(GitError::io("create", path))?;
        Ok(NewFile {
            path,
            file: BufWriter::new(file),
            bytes: 0,
            hash: Checksum::new(Kind::Sha256),
        })
    }

    fn add(&mut self, bytes: &[u8]) -> Result<(), GitError> {
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
        self.file
            .write_all(bytes)
            .map_err(GitError::io("write", self.path))
    }

    /// Returns the file, positioned at its start.
    fn into_file(self) -> Result<File, GitError> {
        let failed = |error: std::io::Error| GitError::io("write", self.path)(error);
        let mut file = self
            .file
            .into_inner()
            .map_err(|error| failed(error.into_error()))?;
        file.seek(SeekFrom::Start(0)).map_err(failed)?;
        Ok(file)
    }

    fn finish(mut self) -> Result<MailboxStats, GitError> {
        self.file
            .flush()
            .map_err(GitError::io("write", self.path))?;
        Ok(MailboxStats {
            bytes: self.bytes,
            sha256: self.hash.finish()?.to_string(),
        })
    }
}

/// Copies `input` to a new file at `path`.
///
/// # Errors
/// [`GitError::Io`] if the file exists, or reading or writing fails.
pub fn copy_mailbox(input: &mut dyn Read, path: &Path) -> Result<MailboxStats, GitError> {
    let mut copy = NewFile::create(path)?;
    each_chunk(input, Path::new("what is imported"), |bytes| {
        copy.add(bytes)
    })?;
    copy.finish()
}

/// Reads the mailbox at `path`, and returns its size and checksum.
///
/// # Errors
/// [`GitError::Io`] if the file cannot be read.
pub fn mailbox_figures(path: &Path) -> Result<MailboxStats, GitError> {
    let mut file = tine_sys::file::open(path).map_err(GitError::io("open", path))?;
    let mut hash = Checksum::new(Kind::Sha256);
    let mut count = 0;
    each_chunk(&mut file, path, |bytes| {
        hash.update(bytes);
        count += bytes.len() as u64;
        Ok(())
    })?;
    Ok(MailboxStats {
        bytes: count,
        sha256: hash.finish()?.to_string(),
    })
}

fn each_chunk(
    input: &mut dyn Read,
    path: &Path,
    mut take: impl FnMut(&[u8]) -> Result<(), GitError>,
) -> Result<(), GitError> {
    let mut input = BufReader::with_capacity(64 << 10, input);
    loop {
        let chunk = input.fill_buf().map_err(GitError::io("read", path))?;
        let count = chunk.len();
        if count == 0 {
            return Ok(());
        }
        take(chunk)?;
        input.consume(count);
    }
}
