//! Who commits: identities as git finds them.

use gix::actor::{Signature, SignatureRef};
use gix::date::Time;
use serde::{Deserialize, Serialize};

use crate::{GitError, Repository, program};

/// Who made a commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub name: String,
    pub email: String,
    /// When; `None` means when it is used, in the time zone of whoever does.
    #[serde(default)]
    pub time: Option<CommitTime>,
}

impl Identity {
    /// tine itself, for commits that nobody else signs.
    pub fn tine() -> Identity {
        Identity {
            name: "tine".to_owned(),
            email: "tine@localhost".to_owned(),
            time: None,
        }
    }
}

/// A moment, and the time zone it was told in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitTime {
    /// Seconds since 1970.
    pub secs: i64,
    /// Seconds that the zone is ahead of UTC.
    pub offset_secs: i32,
}

impl Identity {
    /// Parses `Name <email>`, as git's `--author` takes it. The name may not be empty, the email
    /// may.
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

    /// Parses `Name <email> seconds zone`, as `git var GIT_AUTHOR_IDENT` prints it.
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

/// Which of a commit's two people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Author,
    Committer,
}

impl Role {
    /// The environment's variable for `what`, or what `git var` calls it: `NAME`, `EMAIL`, `DATE`,
    /// `IDENT`.
    pub fn variable(self, what: &str) -> String {
        match self {
            Role::Author => format!("GIT_AUTHOR_{what}"),
            Role::Committer => format!("GIT_COMMITTER_{what}"),
        }
    }

    /// The setting for `what`: `name`, `email`.
    pub fn key(self, what: &str) -> String {
        match self {
            Role::Author => format!("author.{what}"),
            Role::Committer => format!("committer.{what}"),
        }
    }
}

impl Repository {
    /// The signature of `role`: `given`, or else as the configuration and environment say.
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
        // git knows further sources (the user's full name, the host's), and the reason where there
        // is none.
        self.signature_from_git(role)
    }

    /// The committer for reflogs: never an error, because git does not refuse to log for want of an
    /// identity.
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

/// The line of git's complaint that says what is wrong.
fn reason(stderr: &str) -> String {
    let line = stderr
        .lines()
        .find_map(|line| line.strip_prefix("fatal: "))
        .or_else(|| stderr.lines().rfind(|line| !line.trim().is_empty()))
        .unwrap_or("git gives no reason");
    line.trim().to_owned()
}

/// Removes what git removes from names and addresses (`strbuf_addstr_without_crud`): control
/// characters, spaces and punctuation at both ends, and within them the characters that end a
/// field.
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
