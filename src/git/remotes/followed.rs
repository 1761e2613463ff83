//! Upstream branches on remotes, and fetching them.

use super::{ProgressSink, connection_error, converse, progress};
use crate::{GitError, Repository, program};

/// A branch with its upstream, or a remote branch itself. All are full names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Followed {
    /// Branch; for a remote branch the same as `upstream`.
    pub branch: String,
    /// Remote-tracking ref with the last fetched value.
    pub upstream: String,
    /// Configured name of the remote.
    pub remote: String,
}

/// Number of attempts to fetch while another fetch interferes.
const FETCH_ATTEMPTS: usize = 3;

const HEADS: &str = "refs/heads/";
const REMOTES: &str = "refs/remotes/";

impl Repository {
    /// Returns the upstream of the branch `name`.
    ///
    /// `name` is `main`, `origin/main` or a full name. The result is `None` if it does not follow a
    /// remote's branch, or does not exist.
    ///
    /// # Errors
    /// [`GitError::GitFailed`] if the refs cannot be listed.
    pub fn followed_by(&self, name: &str) -> Result<Option<Followed>, GitError> {
        let candidates = if name.starts_with("refs/") {
            vec![name.to_owned()]
        } else {
            vec![format!("{HEADS}{name}"), format!("{REMOTES}{name}")]
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
        // A pattern also matches the names under such a branch.
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
            // A remote's name may contain slashes.
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

    /// Fetches from the remote as configured, and returns the newer branch.
    ///
    /// This is the full name of the upstream, or of the branch itself if that is ahead. Blocks on
    /// the network.
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
                // A concurrent fetch was faster, so the old value was not the expected one.
                Some(1) if attempts > 0 => {}
                Some(1) => return Err(program::failed(&command, &finished)),
                _ => return Err(connection_error(&followed.remote, &finished)),
            }
        }
        let upstream = self.resolve_commit(self.common_dir(), &followed.upstream)?;
        let is_ahead = self.is_ancestor(
            upstream,
            self.resolve_commit(self.common_dir(), &followed.branch)?,
        )?;
        Ok(if is_ahead {
            followed.branch.clone()
        } else {
            followed.upstream.clone()
        })
    }
}
