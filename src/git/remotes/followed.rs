//! What a branch follows on a remote, and fetching that.

use super::{ProgressSink, converse, not_reached, progress};
use crate::{GitError, Repository, program};

/// A branch that follows one of a remote, or that one itself as it was last seen. All are full
/// names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Followed {
    pub branch: String,
    /// What it was on the remote when that was fetched last.
    pub upstream: String,
    /// As it is configured.
    pub remote: String,
}

/// How often a fetch is made that another one beside it got in the way of.
const FETCH_ATTEMPTS: usize = 3;

const HEADS: &str = "refs/heads/";
const REMOTES: &str = "refs/remotes/";

impl Repository {
    /// What the branch called `name` (`main`, `origin/main`, a full name) follows; `None` where it
    /// follows no branch of a remote, or is not there.
    pub fn followed_by(&self, name: &str) -> Result<Option<Followed>, GitError> {
        let candidates = match name.starts_with("refs/") {
            true => vec![name.to_owned()],
            false => vec![format!("{HEADS}{name}"), format!("{REMOTES}{name}")],
        };
        let mut command = program::command(self.common_dir());
        command
            .arg("--git-dir")
            .arg(self.common_dir())
            .args([
                "for-each-ref",
                "--format=%(refname)%00%(upstream)%00%(upstream:remotename)",
            ])
            .args(&candidates);
        let printed = program::run(&mut command, b"")?;
        let printed = String::from_utf8_lossy(&printed);
        let fields = |line: &str| -> Option<(String, String, String)> {
            let mut fields = line.split('\0').map(str::to_owned);
            Some((fields.next()?, fields.next()?, fields.next()?))
        };
        // A pattern also matches what is beneath a branch of that name.
        let mut found = printed
            .lines()
            .filter_map(fields)
            .filter(|(full, ..)| candidates.contains(full));
        let Some((branch, upstream, remote)) = found.next() else {
            return Ok(None);
        };
        if let Some(rest) = branch.strip_prefix(REMOTES) {
            let remotes = self.remotes()?;
            let is_of = |remote: &String| {
                rest.strip_prefix(remote.as_str())
                    .is_some_and(|rest| rest.starts_with('/'))
            };
            // A remote's name may have slashes itself.
            let remote = remotes.into_iter().filter(is_of).max_by_key(String::len);
            return Ok(remote.map(|remote| Followed {
                upstream: branch.clone(),
                branch,
                remote,
            }));
        }
        let is_remote = upstream.starts_with(REMOTES) && !remote.is_empty();
        Ok(is_remote.then_some(Followed {
            branch,
            upstream,
            remote,
        }))
    }

    /// Fetches from the remote, as the user has set it up, and gives the full name of the newer
    /// one: of what is followed, or of the branch where that is ahead.
    ///
    /// # Errors
    /// [`GitError::RemoteUnreachable`], [`GitError::RemoteDenied`].
    pub fn fetch_followed(
        &self,
        followed: &Followed,
        mut listener: ProgressSink<'_>,
    ) -> Result<String, GitError> {
        let mut attempts = FETCH_ATTEMPTS;
        loop {
            attempts -= 1;
            let mut command = self.user_command();
            command
                .args([
                    "fetch",
                    "--no-write-fetch-head",
                    progress(listener.is_some()),
                    "--",
                ])
                .arg(&followed.remote);
            let finished = match &mut listener {
                Some(told) => converse(&mut command, Some(&mut **told))?,
                None => converse(&mut command, None)?,
            };
            match finished.status.code() {
                Some(0) => break,
                // Another fetch was faster: its value is not the one that this one began from.
                Some(1) if attempts > 0 => {}
                Some(1) => return Err(program::failed(&command, &finished)),
                _ => return Err(not_reached(&followed.remote, &finished)),
            }
        }
        let upstream = self.resolve_commit(self.common_dir(), &followed.upstream)?;
        let is_ahead = self.is_ancestor(
            upstream,
            self.resolve_commit(self.common_dir(), &followed.branch)?,
        )?;
        Ok(match is_ahead {
            true => followed.branch.clone(),
            false => followed.upstream.clone(),
        })
    }
}
