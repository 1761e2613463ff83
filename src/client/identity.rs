//! The author and committer of the caller, as git determines them.

use std::path::Path;

use crate::failures::lines;
use tine_git::caller::commit_time;
use tine_git::{CallerConfig, Identity, Role, program};
use tine_ops::{ErrorCode, Failure, Signers};

/// Returns the committer.
///
/// Name and address come from the environment, or else from git's configuration. The time is that
/// of `GIT_COMMITTER_DATE`, or else now. `config` is the configuration for `dir`, if it could be
/// read without the git program.
///
/// # Errors
/// `no-identity`, or `usage` for an invalid date in the environment.
pub fn committer(dir: &Path, config: Option<&CallerConfig>) -> Result<Identity, Failure> {
    of_caller(dir, config, Role::Committer)
}

/// Returns the author.
///
/// `given` is the value of `--author`: `Name <address>`, or a pattern that matches the author of an
/// earlier commit, as in git. If it is `None`, name and address come from the environment, or else
/// from git's configuration. The time is that of `GIT_AUTHOR_DATE`, or else now. `config` is as in
/// [`committer`].
///
/// # Errors
/// `no-identity`, or `usage` for an invalid date, or if no earlier author matches `given`.
pub fn author(
    dir: &Path,
    config: Option<&CallerConfig>,
    given: Option<&str>,
) -> Result<Identity, Failure> {
    let Some(given) = given else {
        return of_caller(dir, config, Role::Author);
    };
    let (name, email) = match Identity::parse(given) {
        Some(identity) => (identity.name, identity.email),
        None => earlier_author(dir, given)?,
    };
    let time = match commit_time(Role::Author) {
        Some(time) => Some(time),
        None => {
            let environment = [("GIT_AUTHOR_NAME", &*name), ("GIT_AUTHOR_EMAIL", &*email)];
            ask_git(dir, Role::Author, &environment)?.time
        }
    };
    Ok(Identity { name, email, time })
}

/// Returns the author and the committer of a command in `dir`.
///
/// # Errors
/// `no-identity`, or `usage` for an invalid date in the environment.
pub fn signers(dir: &Path) -> Result<Signers, Failure> {
    let config = CallerConfig::of(dir);
    Ok(Signers {
        author: Some(author(dir, config.as_ref(), None)?),
        committer: Some(committer(dir, config.as_ref())?),
    })
}

/// Returns the author and the committer, each if git knows one.
///
/// For operations that may not make a commit. If one does, the daemon refuses it without an
/// identity.
pub fn signers_if_any(dir: &Path) -> Signers {
    let config = CallerConfig::of(dir);
    Signers {
        author: author(dir, config.as_ref(), None).ok(),
        committer: committer(dir, config.as_ref()).ok(),
    }
}

fn of_caller(dir: &Path, config: Option<&CallerConfig>, role: Role) -> Result<Identity, Failure> {
    match config.and_then(|config| config.identity(role)) {
        Some(identity) => Ok(identity),
        None => ask_git(dir, role, &[]),
    }
}

/// Returns name and address of the newest author that matches `pattern`.
fn earlier_author(dir: &Path, pattern: &str) -> Result<(String, String), Failure> {
    let mut command = program::command(dir);
    command.args([
        "log",
        "--all",
        "-1",
        "-i",
        "--use-mailmap",
        "--format=%aN%n%aE",
    ]);
    command.arg(format!("--author={pattern}"));
    let found = program::finish(&mut command, b"")?;
    let text = String::from_utf8_lossy(&found.stdout);
    let mut words = text.lines();
    match (words.next(), words.next()) {
        (Some(name), Some(email)) if found.status.success() => {
            Ok((name.to_owned(), email.to_owned()))
        }
        _ => {
            let failure = Failure::new(
                ErrorCode::Usage,
                format!("{pattern:?} is not an author, and no earlier commit's author matches it"),
            )
            .hint("write it as git does: `--author 'Name <address>'`");
            Err(lines(&found.stderr)
                .into_iter()
                .fold(failure, Failure::cause))
        }
    }
}

/// Runs `git var` with additional environment variables.
fn ask_git(dir: &Path, role: Role, environment: &[(&str, &str)]) -> Result<Identity, Failure> {
    let mut command = program::command(dir);
    command.envs(environment.iter().copied());
    let finished = program::finish(command.args(["var", &role.variable("IDENT")]), b"")?;
    match Identity::parse_signature(&finished.stdout) {
        Some(Identity { name, email, time }) if finished.status.success() => {
            Ok(Identity { name, email, time })
        }
        _ => Err(refused(&finished.stderr)),
    }
}

/// Returns the failure for an error of `git var`.
///
/// git's advice is dropped: the hint replaces it.
fn refused(stderr: &[u8]) -> Failure {
    let lines = lines(stderr);
    let reasons: Vec<&str> = lines
        .iter()
        .filter_map(|line| line.strip_prefix("fatal: "))
        .collect();
    let failure = if reasons
        .iter()
        .any(|reason| reason.starts_with("invalid date format"))
    {
        Failure::new(ErrorCode::Usage, "git does not understand the date of the commit").hint(
            "write GIT_AUTHOR_DATE and GIT_COMMITTER_DATE as `2026-01-31T12:00:00+0100`, or unset them",
        )
    } else {
        Failure::new(ErrorCode::NoIdentity, "git does not know who commits").hint(
            "`git config --global user.name NAME` and `git config --global user.email ADDRESS`",
        )
    };
    reasons.into_iter().fold(failure, Failure::cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_why_there_is_no_identity_is_the_cause() {
        let said = b"Author identity unknown\n\n*** Please tell me who you are.\n\nRun\n\nfatal: empty ident name (for <>) not allowed\n";
        let failure = refused(said);
        assert_eq!(failure.code, ErrorCode::NoIdentity);
        assert_eq!(failure.causes, ["empty ident name (for <>) not allowed"]);
    }
}
