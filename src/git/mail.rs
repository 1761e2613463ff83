//! Mailboxes of patches, as `git format-patch` writes them and `git am` reads them.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::commit::clean_message;
use super::{GitError, Identity, Repository, Role, program};

/// A commit as a mail has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mail {
    pub subject: String,
    /// With the subject, in UTF-8 where the mail says how it is written.
    pub message: Vec<u8>,
    pub author: Identity,
    /// Empty for a commit that changes nothing.
    pub patch: Vec<u8>,
}

impl Repository {
    /// Takes a mailbox apart: a file for each mail, in order, in the empty directory `dir`.
    ///
    /// # Errors
    /// [`GitError::BadMailbox`] for what is none.
    pub fn split_mailbox(&self, mailbox: &Path, dir: &Path) -> Result<Vec<PathBuf>, GitError> {
        let mut split = program::command(dir);
        split.arg("mailsplit").arg("-b");
        // Ends of lines are part of patches, unless a mail program has rewritten all of them.
        if !has_network_line_ends(mailbox)? {
            split.arg("--keep-cr");
        }
        let mut output = std::ffi::OsString::from("-o");
        output.push(dir);
        split.arg(output).arg(mailbox);
        let finished = program::finish(&mut split, b"")?;
        if !finished.status.success() {
            return Err(GitError::BadMailbox {
                reason: complaint(&finished.stderr),
            });
        }
        let mut mails: Vec<PathBuf> = fs::read_dir(dir)
            .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect())
            .map_err(GitError::io("read", dir))?;
        mails.sort();
        match mails.is_empty() {
            true => Err(GitError::BadMailbox {
                reason: "there is no mail in it".to_owned(),
            }),
            false => Ok(mails),
        }
    }

    /// Reads one mail. What is in brackets in its subject goes only where it says that this is a patch.
    pub fn read_mail(&self, mail: &Path) -> Result<Mail, GitError> {
        let dir = mail.parent().unwrap_or(mail);
        let (body, patch) = (mail.with_extension("message"), mail.with_extension("patch"));
        let input = File::open(mail).map_err(GitError::io("open", mail))?;
        let mut info = program::command(dir);
        info.args([
            "-c",
            "i18n.commitEncoding=UTF-8",
            "mailinfo",
            "-b",
            "--encoding=UTF-8",
        ])
        .args([&body, &patch]);
        let finished = program::finish_reading(&mut info, Stdio::from(input))?;
        if !finished.status.success() {
            return Err(GitError::BadMailbox {
                reason: complaint(&finished.stderr),
            });
        }
        let field = |name: &str| {
            finished
                .stdout
                .split(|&byte| byte == b'\n')
                .find_map(|line| line.strip_prefix(name.as_bytes()))
                .map(|value| value.trim_ascii().to_vec())
        };
        let text = |name| field(name).map(|value| String::from_utf8_lossy(&value).into_owned());
        let (Some(author), Some(email)) = (text("Author:"), text("Email:")) else {
            return Err(GitError::BadMailbox {
                reason: "a mail does not say who wrote it".to_owned(),
            });
        };
        let mut message = field("Subject:").unwrap_or_default();
        let subject = String::from_utf8_lossy(&message).into_owned();
        let rest = fs::read(&body).map_err(GitError::io("read", &body))?;
        message.extend_from_slice(b"\n\n");
        message.extend_from_slice(&rest);
        let message = clean_message(&message);
        Ok(Mail {
            subject,
            message,
            author: self.author_of_mail(&author, &email, &text("Date:").unwrap_or_default())?,
            patch: fs::read(&patch).map_err(GitError::io("read", &patch))?,
        })
    }

    /// As git understands the date.
    fn author_of_mail(&self, name: &str, email: &str, date: &str) -> Result<Identity, GitError> {
        let mut var = program::command(self.common_dir());
        var.env(Role::Author.variable("NAME"), name)
            .env(Role::Author.variable("EMAIL"), email)
            .env(Role::Author.variable("DATE"), date)
            .args(["var", &Role::Author.variable("IDENT")]);
        let finished = program::finish(&mut var, b"")?;
        match Identity::parse_signature(&finished.stdout) {
            Some(identity) if finished.status.success() => Ok(identity),
            _ => Err(GitError::BadMailbox {
                reason: format!("{name} <{email}> of {date:?}: {}", complaint(&finished.stderr)),
            }),
        }
    }
}

/// Whether the first line ends as lines in the network do.
fn has_network_line_ends(mailbox: &Path) -> Result<bool, GitError> {
    let io = |action| GitError::io(action, mailbox.to_owned());
    let mut line = Vec::new();
    BufReader::new(File::open(mailbox).map_err(io("open"))?)
        .read_until(b'\n', &mut line)
        .map_err(io("read"))?;
    Ok(line.ends_with(b"\r\n"))
}

fn complaint(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let line = text.lines().rfind(|line| !line.trim().is_empty());
    let line = line.unwrap_or("git gives no reason").trim();
    ["fatal: ", "error: "]
        .iter()
        .find_map(|prefix| line.strip_prefix(prefix))
        .unwrap_or(line)
        .to_owned()
}
