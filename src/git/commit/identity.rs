//! Author and committer identities, resolved as git does.

use gix::actor::{Signature, SignatureRef};
use gix::date::Time;
use serde::{Deserialize, Serialize};

use crate::{GitError, Repository, program};

/// The author or committer of a commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Full name.
    pub name: String,
    /// E-mail address, which may be empty.
    pub email: String,
    /// Time of the commit; `None` means the time of use.
    ///
    /// The zone is then the local one.
    #[serde(default)]
    pub time: Option<CommitTime>,
}

impl Identity {
    /// Returns tine's own identity, for commits without a user.
    pub fn tine() -> Identity {
        Identity {
            name: "tine".to_owned(),
            email: "tine@localhost".to_owned(),
            time: None,
        }
    }
}

/// A time with its time zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitTime {
    /// Seconds since 1970.
    pub secs: i64,
    /// Offset of the zone from UTC in seconds, positive to the east.
    pub offset_secs: i32,
}

impl Identity {
    /// Parses `Name <email>`, the format of git's `--author`.
    ///
    /// The email may be empty, but not the name.
    pub fn parse(text: &str) -> Option<Identity> {
        let (name, rest) = text.split_once('<')?;
        let (email, _) = rest.split_once('>')?;
        let name = strip_crud(name);
        (!name.is_empty()).then(|| Identity {
            name,
            email: strip_crud(email),
            time: None,
        })
    }

    /// Parses `Name <email> seconds zone`, the output of `git var GIT_AUTHOR_IDENT`.
    pub fn parse_signature(text: &[u8]) -> Option<Identity> {
        let signature = SignatureRef::from_bytes(text.trim_ascii_end()).ok()?;
        let time = signature.time().ok()?;
        Some(Identity {
            name: signature.name.to_string(),
            email: signature.email.to_string(),
            time: Some(CommitTime {
                secs: time.seconds,
                offset_secs: time.offset,
            }),
        })
    }

    fn signature(&self) -> Result<Signature, GitError> {
        let name = strip_crud(&self.name);
        if name.is_empty() {
            return Err(GitError::NoIdentity(format!(
                "the name for <{}> is empty",
                self.email
            )));
        }
        Ok(Signature {
            name: name.into(),
            email: strip_crud(&self.email).into(),
            time: match self.time {
                Some(time) => Time::new(time.secs, time.offset_secs),
                None => Time::now_local_or_utc(),
            },
        })
    }
}

/// The role of a person in a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Person who wrote the change.
    Author,
    /// Person who created the commit.
    Committer,
}

impl Role {
    /// Returns the name of an environment or `git var` variable.
    ///
    /// `what` is `NAME`, `EMAIL`, `DATE` or `IDENT`.
    pub fn variable(self, what: &str) -> String {
        match self {
            Role::Author => format!("GIT_AUTHOR_{what}"),
            Role::Committer => format!("GIT_COMMITTER_{what}"),
        }
    }

    /// Returns the configuration key for `what`: `name` or `email`.
    pub fn key(self, what: &str) -> String {
        match self {
            Role::Author => format!("author.{what}"),
            Role::Committer => format!("committer.{what}"),
        }
    }
}

impl Repository {
    /// Returns the signature of `role`, from `given` or the configuration.
    pub(super) fn signature(
        &self,
        fresh: &gix::Repository,
        role: Role,
        given: Option<&Identity>,
    ) -> Result<Signature, GitError> {
        if let Some(identity) = given {
            return identity.signature();
        }
        let configured = match role {
            Role::Author => fresh.author(),
            Role::Committer => fresh.committer(),
        };
        if let Some(Ok(signature)) = configured
            && let Ok(signature) = signature.to_owned()
        {
            let identity = Identity {
                name: signature.name.to_string(),
                email: signature.email.to_string(),
                time: None,
            };
            if let Ok(cleaned) = identity.signature() {
                return Ok(Signature {
                    time: signature.time,
                    ..cleaned
                });
            }
        }
        // git knows more sources (the user's full name, the host's name), and the reason if there
        // is none.
        self.signature_from_git(role)
    }

    /// Returns the committer for reflogs.
    ///
    /// It never fails, because git writes reflogs without an identity, too.
    pub(crate) fn reflog_signature(&self) -> Signature {
        let local = self.local();
        self.signature(&local, Role::Committer, None)
            .unwrap_or_else(|_| Signature {
                name: "tine".into(),
                email: "tine@localhost".into(),
                time: Time::now_local_or_utc(),
            })
    }

    fn signature_from_git(&self, role: Role) -> Result<Signature, GitError> {
        let mut command = program::command(self.common_dir());
        command
            .arg("--git-dir")
            .arg(self.common_dir())
            .args(["var", &role.variable("IDENT")]);
        let output = program::run(&mut command, b"").map_err(|error| match error {
            GitError::GitFailed { stderr, .. } => GitError::NoIdentity(reason(&stderr)),
            other => other,
        })?;
        SignatureRef::from_bytes(output.trim_ascii_end())
            .and_then(|signature| signature.to_owned())
            .map_err(GitError::library("read the identity"))
    }
}

/// Returns the line of git's error output that gives the reason.
fn reason(stderr: &str) -> String {
    let line = stderr
        .lines()
        .find_map(|line| line.strip_prefix("fatal: "))
        .or_else(|| stderr.lines().rfind(|line| !line.trim().is_empty()))
        .unwrap_or("git gives no reason");
    line.trim().to_owned()
}

/// Strips a name or address as git does (`strbuf_addstr_without_crud`).
///
/// Removes control characters, spaces and punctuation at both ends, and characters inside that
/// would end a field.
pub(crate) fn strip_crud(text: &str) -> String {
    let is_crud =
        |c: char| c <= ' ' || matches!(c, '.' | ',' | ':' | ';' | '<' | '>' | '"' | '\\' | '\'');
    text.trim_matches(is_crud)
        .chars()
        .filter(|c| !matches!(c, '<' | '>' | '\n' | '\0'))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn author_is_parsed_as_git_does() {
        let parsed = Identity::parse("  A. U. Thor  <author@example.com> ").unwrap();
        assert_eq!(
            (parsed.name.as_str(), parsed.email.as_str()),
            ("A. U. Thor", "author@example.com")
        );
        assert_eq!(Identity::parse("Jürgen <>").unwrap().email, "");
        assert_eq!(parsed.time, None);
        for bad in ["", "nobody", "<a@b>", "A <a@b", "a@b>"] {
            assert_eq!(Identity::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_signature_is_read_with_its_time_and_zone() {
        let read = Identity::parse_signature("Jürgen Ö <> 981153246 -0330\n".as_bytes()).unwrap();
        assert_eq!((read.name.as_str(), read.email.as_str()), ("Jürgen Ö", ""));
        let time = CommitTime {
            secs: 981_153_246,
            offset_secs: -(3 * 60 + 30) * 60,
        };
        assert_eq!(read.time, Some(time));
        for bad in ["", "A <a@b>", "A <a@b> now", "A 1 +0000"] {
            assert_eq!(Identity::parse_signature(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
