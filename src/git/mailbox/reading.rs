//! Parsing of a mailbox, as `git am` does it.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::commit::clean_message;
use crate::{GitError, Identity, ObjectId, Repository, Role, program};

/// Maximum length of a mail's first line.
const MAX_BEGINNING_BYTES: u64 = 256;

/// A commit as a mail has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mail {
    /// Id of the commit in the mail's first line, in hex.
    pub commit: Option<String>,
    /// Subject, cut or kept as requested.
    pub subject: String,
    /// Message with the subject, in UTF-8 if the mail declares its encoding.
    pub message: Vec<u8>,
    /// Name of the author, lossily decoded.
    pub author_name: String,
    /// E-mail address of the author, lossily decoded.
    pub author_email: String,
    /// Date as written in the mail; empty if missing.
    pub date: String,
    /// Patch; empty for a commit without changes.
    pub patch: Vec<u8>,
}

/// The treatment of prefixes in subjects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subjects {
    /// Strip `[PATCH]` and other brackets, `Re:` and spaces, as `git am`.
    Cut,
    /// Keep all, as `git am --keep`.
    Kept,
}

/// Splits the mailbox at `path` into files in the empty directory `dir`.
///
/// Returns a file for each mail, in order.
///
/// # Errors
/// [`GitError::NotAMailbox`] if git cannot split it.
pub fn split_mailbox(path: &Path, dir: &Path) -> Result<Vec<PathBuf>, GitError> {
    let mut git = program::command(dir);
    git.args(["mailsplit", "-o."]).arg(path);
    let split = program::finish(&mut git, b"")?;
    if split.status.success() {
        files_in(dir)
    } else {
        Err(refused(error_text(&split.stderr)))
    }
}

/// Reads one of the mails from [`split_mailbox`].
///
/// # Errors
/// [`GitError::NotAMailbox`] if it has no author; [`GitError::Io`] if a file cannot be read.
pub fn read_mail(file: &Path, subjects: Subjects) -> Result<Mail, GitError> {
    let dir = file.parent().unwrap_or(file);
    let (body, patch) = (dir.join("message"), dir.join("patch"));
    let input = File::open(file).map_err(GitError::io("open", file))?;
    let mut info = program::command(dir);
    info.args(["mailinfo", "--encoding=UTF-8"]);
    if subjects == Subjects::Kept {
        info.arg("-k");
    }
    let told = program::finish_reading(info.args([&body, &patch]), Stdio::from(input))?;
    let field = |name: &str| {
        let lines = told.stdout.split(|&byte| byte == b'\n');
        let mut values = lines.filter_map(|line| line.strip_prefix(name.as_bytes()));
        values.next().unwrap_or_default().trim_ascii().to_vec()
    };
    let text = |name| String::from_utf8_lossy(&field(name)).into_owned();
    if !told.status.success() || field("Email:").is_empty() {
        return Err(refused("a mail does not say who wrote it".to_owned()));
    }
    let mut message = field("Subject:");
    message.extend_from_slice(b"\n\n");
    message.extend_from_slice(&fs::read(&body).map_err(GitError::io("read", &body))?);
    Ok(Mail {
        commit: commit_of(file)?,
        subject: text("Subject:"),
        message: clean_message(&message),
        author_name: text("Author:"),
        author_email: text("Email:"),
        date: text("Date:"),
        patch: fs::read(&patch).map_err(GitError::io("read", &patch))?,
    })
}

/// Reads the mails of the mailbox at `path`, and checks their patches.
///
/// The returned mails have empty patches. Each patch must be one that git understands, or missing.
/// `scratch` is an empty directory.
///
/// # Errors
/// [`GitError::NotAMailbox`] if it is not a mailbox, contains an invalid patch, or contains no
/// patch.
pub fn read_mails(path: &Path, scratch: &Path) -> Result<Vec<Mail>, GitError> {
    let (mut mails, mut patches) = (Vec::new(), 0);
    for file in split_mailbox(path, scratch)? {
        let number = mails.len() + 1;
        let mail = read_mail(&file, Subjects::Cut)?;
        if !mail.patch.is_empty() {
            check_patch(&mail.patch, scratch)
                .map_err(|reason| refused(format!("the patch in mail {number}: {reason}")))?;
            patches += 1;
        }
        mails.push(Mail {
            patch: Vec::new(),
            ..mail
        });
        fs::remove_file(&file).map_err(GitError::io("remove", &file))?;
    }
    match patches {
        0 => Err(refused("no mail in it has a patch".to_owned())),
        _ => Ok(mails),
    }
}

impl Repository {
    /// Returns the author and date of a mail, parsed by git.
    ///
    /// # Errors
    /// [`GitError::NotAMailbox`] if git rejects the name or the date.
    pub fn author_of(&self, mail: &Mail) -> Result<Identity, GitError> {
        let mut var = program::command(self.common_dir());
        var.env(Role::Author.variable("NAME"), &mail.author_name)
            .env(Role::Author.variable("EMAIL"), &mail.author_email)
            .env(Role::Author.variable("DATE"), &mail.date)
            .args(["var", &Role::Author.variable("IDENT")]);
        let told = program::finish(&mut var, b"")?;
        match Identity::parse_signature(&told.stdout) {
            Some(identity) if told.status.success() => Ok(identity),
            _ => Err(refused(format!(
                "{} <{}>, {:?}: {}",
                mail.author_name,
                mail.author_email,
                mail.date,
                error_text(&told.stderr)
            ))),
        }
    }
}

/// Parses git's first line of a mail: `From <commit> Mon Sep 17 00:00:00 2001`.
fn commit_of(file: &Path) -> Result<Option<String>, GitError> {
    let io = |action| GitError::io(action, file.to_owned());
    let mut line = Vec::new();
    BufReader::new(File::open(file).map_err(io("open"))?)
        .take(MAX_BEGINNING_BYTES)
        .read_until(b'\n', &mut line)
        .map_err(io("read"))?;
    let hex = line
        .strip_prefix(b"From ")
        .and_then(|rest| rest.split(|&byte| byte == b' ').next());
    let id = hex.and_then(|hex| ObjectId::from_hex(hex).ok());
    Ok(id.filter(|id| !id.is_null()).map(|id| id.to_string()))
}

fn refused(reason: String) -> GitError {
    GitError::NotAMailbox { reason }
}

fn error_text(stderr: &[u8]) -> String {
    String::from_utf8_lossy(stderr).trim().to_owned()
}

/// Lists the files that `git mailsplit` made, in order.
fn files_in(dir: &Path) -> Result<Vec<PathBuf>, GitError> {
    let entries = fs::read_dir(dir).map_err(GitError::io("list", dir))?;
    let mut files: Vec<(u64, PathBuf)> = entries
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
        .collect();
    // Sort by number: `0010000` comes after `9999`.
    files.sort();
    Ok(files.into_iter().map(|(_, path)| path).collect())
}

/// Checks a patch with git, and returns git's message on failure.
fn check_patch(patch: &[u8], dir: &Path) -> Result<(), String> {
    let mut git = program::command(dir);
    git.args(["apply", "--numstat", "-z"]);
    match program::finish(&mut git, patch) {
        Ok(told) if told.status.success() => Ok(()),
        Ok(told) => Err(error_text(&told.stderr)),
        Err(error) => Err(error.to_string()),
    }
}
