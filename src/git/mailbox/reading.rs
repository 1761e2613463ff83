//! What is in a mailbox, as `git am` takes it apart.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::commit::clean_message;
use crate::{GitError, Identity, ObjectId, Repository, Role, program};

/// The line that begins a mail is shorter.
const MAX_BEGINNING_BYTES: u64 = 256;

/// A commit as a mail has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mail {
    /// What the line that begins the mail says it was made of, in hex.
    pub commit: Option<String>,
    pub subject: String,
    /// With the subject, in UTF-8 where the mail says how it is written.
    pub message: Vec<u8>,
    pub author_name: String,
    pub author_email: String,
    /// As the mail has it; empty where it has none.
    pub date: String,
    /// Empty for a commit that changes nothing.
    pub patch: Vec<u8>,
}

/// What is taken from the beginnings of subjects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subjects {
    /// `[PATCH]` and all else in brackets, `Re:` and spaces: `git am`.
    Cut,
    /// Nothing: `git am --keep`.
    Kept,
}

/// Takes the mailbox at `path` apart: a file for each mail, in their order, in the empty directory
/// `dir`.
///
/// # Errors
/// [`GitError::NotAMailbox`]
pub fn split_mailbox(path: &Path, dir: &Path) -> Result<Vec<PathBuf>, GitError> {
    let mut git = program::command(dir);
    git.args(["mailsplit", "-o."]).arg(path);
    let split = program::finish(&mut git, b"")?;
    match split.status.success() {
        true => files_in(dir),
        false => Err(refused(complaint(&split.stderr))),
    }
}

/// Reads one of the mails that [`split_mailbox`] made.
///
/// # Errors
/// [`GitError::NotAMailbox`] where it does not say who wrote it.
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

/// Reads the mails of the mailbox at `path`, each of them with a patch that git understands or with
/// none. `scratch` is an empty directory.
///
/// # Errors
/// [`GitError::NotAMailbox`] where it is no mailbox, or has no patch at all.
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
    /// Who wrote a mail, and when: as git understands the date.
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
                complaint(&told.stderr)
            ))),
        }
    }
}

/// As `git format-patch` begins a mail: `From <commit> Mon Sep 17 00:00:00 2001`.
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

fn complaint(stderr: &[u8]) -> String {
    String::from_utf8_lossy(stderr).trim().to_owned()
}

/// The files that `git mailsplit` made, in their order.
fn files_in(dir: &Path) -> Result<Vec<PathBuf>, GitError> {
    let entries = fs::read_dir(dir).map_err(GitError::io("list", dir))?;
    let mut files: Vec<(u64, PathBuf)> = entries
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
        .collect();
    // `0010000` comes after `9999`.
    files.sort();
    Ok(files.into_iter().map(|(_, path)| path).collect())
}

/// What git has against the patch, if anything.
fn check_patch(patch: &[u8], dir: &Path) -> Result<(), String> {
    let mut git = program::command(dir);
    git.args(["apply", "--numstat", "-z"]);
    match program::finish(&mut git, patch) {
        Ok(told) if told.status.success() => Ok(()),
        Ok(told) => Err(complaint(&told.stderr)),
        Err(error) => Err(error.to_string()),
    }
}
