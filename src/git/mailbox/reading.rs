//! What is in a mailbox, as `git am` takes it apart.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use crate::git::{GitError, program};

/// One mail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mail {
    pub author_name: String,
    pub author_email: String,
    /// Without `[PATCH]`.
    pub subject: String,
}

/// Reads the mails of the mailbox at `path`, each of them with a patch that git understands or with none. `scratch` is an empty
/// directory.
///
/// # Errors
/// [`GitError::NotAMailbox`] where it is no mailbox, or has no patch at all.
pub fn read_mails(path: &Path, scratch: &Path) -> Result<Vec<Mail>, GitError> {
    let refused = |reason: String| GitError::NotAMailbox { reason };
    let mut git = program::command(scratch);
    git.args(["mailsplit", "-o."]).arg(path);
    let split = program::finish(&mut git, b"")?;
    if !split.status.success() {
        return Err(refused(String::from_utf8_lossy(&split.stderr).trim().to_owned()));
    }
    let (mut mails, mut patches) = (Vec::new(), 0);
    for file in files_in(scratch)? {
        let number = mails.len() + 1;
        let (message, patch) = (scratch.join("message"), scratch.join("patch"));
        let mut git = program::command(scratch);
        git.args(["mailinfo", "-b", "--encoding=UTF-8"])
            .arg(&message)
            .arg(&patch)
            .stdin(File::open(&file).map_err(GitError::io("open", &file))?);
        let told = output(&mut git)?;
        let mail = mail_of(&told.stdout);
        if !told.status.success() || mail.author_email.is_empty() {
            return Err(refused(format!("mail {number} does not say who wrote it")));
        }
        let len = fs::metadata(&patch)
            .map_err(GitError::io("look at", &patch))?
            .len();
        if len > 0 {
            check_patch(&patch, scratch)
                .map_err(|reason| refused(format!("the patch in mail {number}: {reason}")))?;
            patches += 1;
        }
        mails.push(mail);
        fs::remove_file(&file).map_err(GitError::io("remove", &file))?;
    }
    match patches {
        0 => Err(refused("no mail in it has a patch".to_owned())),
        _ => Ok(mails),
    }
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
fn check_patch(patch: &Path, dir: &Path) -> Result<(), String> {
    let mut git = program::command(dir);
    git.args(["apply", "--numstat", "-z"])
        .arg(patch)
        .stdin(Stdio::null());
    match output(&mut git) {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Runs `git` with the input that it has.
fn output(git: &mut std::process::Command) -> Result<Output, GitError> {
    git.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = program::spawn(git)?;
    child.wait_with_output().map_err(GitError::GitMissing)
}

/// What `git mailinfo` prints.
fn mail_of(printed: &[u8]) -> Mail {
    let printed = String::from_utf8_lossy(printed);
    let field = |name: &str| {
        let line = printed.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_default().to_owned()
    };
    Mail {
        author_name: field("Author: "),
        author_email: field("Email: "),
        subject: field("Subject: "),
    }
}
