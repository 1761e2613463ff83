//! Who commits: the identities that git finds for the caller.

use std::path::Path;

use super::failures::lines;
use crate::daemon::protocol::IdentityText;
use crate::daemon::{ErrorCode, Failure};
use crate::git::{Identity, program};

/// The committer as git knows it in `dir`: from the caller's environment, then from the configuration.
pub fn committer(dir: &Path) -> Result<IdentityText, Failure> {
    ask(dir, "GIT_COMMITTER_IDENT")
}

/// The author as git knows it in `dir`, or as `--author` says: `Name <address>`, or else a pattern for the author of an
/// earlier commit, as git takes it.
pub fn author(dir: &Path, given: Option<&str>) -> Result<IdentityText, Failure> {
    let Some(given) = given else {
        return ask(dir, "GIT_AUTHOR_IDENT");
    };
    match Identity::parse(given) {
        Some(Identity { name, email }) => Ok(IdentityText { name, email }),
        None => earlier_author(dir, given),
    }
}

/// The author of the newest commit whose author matches `pattern`.
fn earlier_author(dir: &Path, pattern: &str) -> Result<IdentityText, Failure> {
    let mut command = program::command(dir);
    command.args(["log", "--all", "-1", "-i", "--use-mailmap", "--format=%aN%n%aE"]);
    command.arg(format!("--author={pattern}"));
    let found = program::run(&mut command, b"")?;
    let text = String::from_utf8_lossy(&found);
    let mut found = text.lines();
    match (found.next(), found.next()) {
        (Some(name), Some(email)) => Ok(IdentityText {
            name: name.to_owned(),
            email: email.to_owned(),
        }),
        _ => Err(Failure::new(
            ErrorCode::Usage,
            format!("{pattern:?} is no author, and no earlier commit's author matches it"),
        )
        .hint("write it as git does: `--author 'Name <address>'`")),
    }
}

/// Asks git for `variable`: `Name <address> time zone`.
fn ask(dir: &Path, variable: &str) -> Result<IdentityText, Failure> {
    let mut command = program::command(dir);
    let finished = program::finish(command.args(["var", variable]), b"")?;
    let printed = String::from_utf8_lossy(&finished.stdout);
    let identity = printed.trim_end().rsplit_once('>').and_then(|(identity, _)| {
        let (name, email) = identity.split_once('<')?;
        Some(IdentityText {
            name: name.trim_end().to_owned(),
            email: email.to_owned(),
        })
    });
    match identity {
        Some(identity) if finished.status.success() => Ok(identity),
        _ => Err(no_identity(&finished.stderr)),
    }
}

/// git's own words without the advice, which is our hint.
fn no_identity(stderr: &[u8]) -> Failure {
    let failure = Failure::new(ErrorCode::NoIdentity, "git does not know who commits")
        .hint("`git config --global user.name NAME` and `git config --global user.email ADDRESS`");
    lines(stderr)
        .iter()
        .filter_map(|line| line.strip_prefix("fatal: "))
        .fold(failure, |failure, line| failure.cause(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_why_there_is_no_identity_is_the_cause() {
        let said = b"Author identity unknown\n\n*** Please tell me who you are.\n\nRun\n\nfatal: empty ident name (for <>) not allowed\n";
        let failure = no_identity(said);
        assert_eq!(failure.code, ErrorCode::NoIdentity);
        assert_eq!(failure.causes, ["empty ident name (for <>) not allowed"]);
    }
}
