//! Remotes: pushing and fetching of forks by the git program.
//!
//! It runs in the user's process, so that credentials, agents, proxies and prompts are those of
//! `git push`.
//!
//! On a remote, a fork is one ref, `refs/tine/forks/<name>`. The value last seen is stored here as
//! `refs/tine/+remotes/<remote>/<name>`. The value last pushed or taken up from here is stored as
//! `refs/tine/+leases/<remote>/<name>`. It is the lease for a push: a value that another clone
//! pushed since is never overwritten, whether it was fetched or not.

mod followed;

use std::path::Path;
use std::process::Command;

use gix::ObjectId;

use super::program::{self, Finished};
use super::{GitError, Repository};

/// Prefix of the refs of forks on a remote.
const FORKS: &str = "refs/tine/forks/";

/// Group of the tracking refs under `refs/tine/`.
///
/// It is not a valid fork name.
const TRACKING: &str = "+remotes";

/// Group of the leases under `refs/tine/`.
///
/// It is not a valid fork name.
const LEASES: &str = "+leases";

/// Git's name of the default remote.
const ORIGIN: &str = "origin";

/// Callback for git's output as it comes, or `None` to ignore it.
pub type ProgressSink<'a> = Option<&'a mut dyn FnMut(&[u8])>;

/// The expected value of the remote's ref.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lease {
    Absent,
    At(ObjectId),
    Anything,
}

/// The result of a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pushed {
    Moved,
    /// The ref already had the value.
    Unchanged,
    /// The remote refused: its ref differs from the lease.
    Stale,
}

/// Returns the group of a remote's tracking refs under `refs/tine/`.
fn tracking(remote: &str) -> String {
    format!("{TRACKING}/{remote}")
}

/// Returns the group of a remote's leases under `refs/tine/`.
fn leases(remote: &str) -> String {
    format!("{LEASES}/{remote}")
}

impl Repository {
    /// Lists the names of all configured remotes, sorted.
    ///
    /// # Errors
    /// Fails if the configuration cannot be read.
    pub fn remotes(&self) -> Result<Vec<String>, GitError> {
        let local = self.local_with_fresh_config()?;
        let config = local.config_snapshot();
        let sections = config
            .plumbing()
            .sections_by_name("remote")
            .into_iter()
            .flatten();
        let mut names: Vec<String> = sections
            .filter(|section| section.contains_value_name("url"))
            .filter_map(|section| Some(section.header().subsection_name()?.to_string()))
            .collect();
        names.sort();
        names.dedup();
        Ok(names)
    }

    /// Lists the remotes that `git fetch --all` fetches (`remote.<name>.skipFetchAll`).
    ///
    /// # Errors
    /// Fails if the configuration cannot be read.
    pub fn remotes_to_fetch(&self) -> Result<Vec<String>, GitError> {
        let mut names = self.remotes()?;
        names.retain(|name| {
            let is_set =
                |key: &str| self.config_bool(&format!("remote.{name}.{key}")) == Some(true);
            !is_set("skipFetchAll") && !is_set("skipDefaultUpdate")
        });
        Ok(names)
    }

    /// Chooses the remote for a push.
    ///
    /// It is `named`, or else the remote to which git would push the first of `branches` (short
    /// names) that has a setting.
    ///
    /// # Errors
    /// [`GitError::NoSuchRemote`] if `named` does not exist, or no default is defined.
    pub fn push_remote(&self, named: Option<&str>, branches: &[&str]) -> Result<String, GitError> {
        let of_branches = |key: &str| {
            let keys = branches
                .iter()
                .map(|branch| format!("branch.{branch}.{key}"));
            keys.collect::<Vec<_>>()
        };
        let mut keys = of_branches("pushRemote");
        keys.push("remote.pushDefault".to_owned());
        keys.extend(of_branches("remote"));
        self.choose_remote(named, &keys)
    }

    /// Chooses the remote for a fetch.
    ///
    /// It is `named`, or else the remote from which git would fetch on `branch` (short name).
    ///
    /// # Errors
    /// [`GitError::NoSuchRemote`] if `named` does not exist, or no default is defined.
    pub fn fetch_remote(
        &self,
        named: Option<&str>,
        branch: Option<&str>,
    ) -> Result<String, GitError> {
        let keys = branch.map(|branch| format!("branch.{branch}.remote"));
        self.choose_remote(named, &Vec::from_iter(keys))
    }

    fn choose_remote(&self, named: Option<&str>, keys: &[String]) -> Result<String, GitError> {
        let remotes = self.remotes()?;
        let is_there = |name: &String| remotes.contains(name);
        if let Some(name) = named {
            let name = Some(name.to_owned());
            return name
                .clone()
                .filter(is_there)
                .ok_or(GitError::NoSuchRemote { name });
        }
        // A branch may follow a local one (`.`) or a URL, which is not a named remote.
        let configured = keys
            .iter()
            .filter_map(|key| self.config_string(key))
            .find(is_there);
        let only = || match remotes.as_slice() {
            [only] => Some(only.clone()),
            _ => None,
        };
        let origin = || Some(ORIGIN.to_owned()).filter(is_there);
        configured
            .or_else(only)
            .or_else(origin)
            .ok_or(GitError::NoSuchRemote { name: None })
    }

    /// Returns the last seen value of the fork `name` on a remote.
    ///
    /// # Errors
    /// [`GitError::Library`] if the ref cannot be read.
    pub fn tracked(&self, remote: &str, name: &str) -> Result<Option<ObjectId>, GitError> {
        self.kept_as(&tracking(remote), name)
    }

    /// Lists the last seen values of a remote's forks, by name.
    ///
    /// # Errors
    /// Fails if the refs cannot be listed.
    pub fn all_tracked(&self, remote: &str) -> Result<Vec<(String, ObjectId)>, GitError> {
        self.kept(&tracking(remote))
    }

    /// Records a push of the fork `name`, or its deletion (`None`).
    fn note_sent(&self, remote: &str, name: &str, id: Option<ObjectId>) -> Result<(), GitError> {
        match id {
            Some(id) => {
                self.keep(&tracking(remote), name, id)?;
                self.lease(remote, name, id)
            }
            None => {
                self.release(&tracking(remote), name)?;
                self.release(&leases(remote), name)
            }
        }
    }

    /// Records that work here continues from a fork's value on a remote.
    ///
    /// A later push may then replace it.
    ///
    /// # Errors
    /// Fails as [`Repository::keep`].
    pub fn lease(&self, remote: &str, name: &str, id: ObjectId) -> Result<(), GitError> {
        self.keep(&leases(remote), name, id)
    }

    /// Fetches one or all forks of a remote, and records their values.
    ///
    /// With `prune`, drops the values of forks that the remote no longer has; otherwise
    /// `fetch.prune` decides. Blocks on the network.
    ///
    /// # Errors
    /// [`GitError::NoSuchState`] if the fork `name` does not exist there,
    /// [`GitError::RemoteUnreachable`], [`GitError::RemoteDenied`].
    pub fn fetch_states(
        &self,
        remote: &str,
        name: Option<&str>,
        prune: bool,
        listener: ProgressSink<'_>,
    ) -> Result<(), GitError> {
        let mut command =
            self.fetch_command(remote, name, listener.is_some(), &[("--prune", prune)]);
        let finished = converse(&mut command, listener)?;
        match (finished.status.code(), name) {
            (Some(0), _) => Ok(()),
            (_, Some(name)) => Err(fetch_error(remote, name, &finished)),
            // The remote sent the forks, but some refs could not be updated.
            (Some(1), None) => Err(program::failed(&command, &finished)),
            (_, None) => Err(connection_error(remote, &finished)),
        }
    }

    /// Returns the current value of the fork `name` on a remote.
    ///
    /// Fetches its objects, but does not record the value. The result is `None` if the fork does
    /// not exist there.
    fn query_state(&self, remote: &str, name: &str) -> Result<Option<ObjectId>, GitError> {
        let modes = [
            ("--dry-run", true),
            ("--porcelain", true),
            ("--verbose", true),
        ];
        let mut command = self.fetch_command(remote, Some(name), false, &modes);
        let finished = converse(&mut command, None)?;
        if !finished.status.success() {
            return match fetch_error(remote, name, &finished) {
                GitError::NoSuchState { .. } => Ok(None),
                error => Err(error),
            };
        }
        // Each line is `<flag> <old id> <new id> <ref>`; the flag may be a space.
        let ids = finished
            .stdout
            .split(|&byte| byte == b'\n')
            .find_map(|line| {
                let mut words = line.get(2..)?.split(|&byte| byte == b' ');
                ObjectId::from_hex(words.nth(1)?).ok()
            });
        Ok(ids)
    }

    /// Pushes `commit_id` as the fork `name` to a remote.
    ///
    /// `None` deletes the fork there. Records the new value, and returns whether the remote
    /// changed. Unless `force` is set, the remote's value must be the one last pushed or taken up
    /// from here, or missing.
    ///
    /// # Errors
    /// [`GitError::RemoteMoved`]; [`GitError::NoSuchState`] if the fork to delete does not exist;
    /// [`GitError::RemoteRefused`], [`GitError::RemoteUnreachable`], [`GitError::RemoteDenied`],
    /// [`GitError::PushHook`].
    pub fn send_state(
        &self,
        remote: &str,
        name: &str,
        commit_id: Option<ObjectId>,
        force: bool,
        mut listener: ProgressSink<'_>,
    ) -> Result<bool, GitError> {
        let lease = match (force, self.kept_as(&leases(remote), name)?) {
            (true, _) => Lease::Anything,
            (false, Some(leased)) => Lease::At(leased),
            (false, None) => Lease::Absent,
        };
        if commit_id.is_none() && !matches!(lease, Lease::At(_)) {
            // git does not report the deletion of a missing ref as an error.
            let found = self.query_state(remote, name)?;
            if found.is_none() {
                return Err(no_such_state(remote, name));
            }
            if lease == Lease::Absent {
                return Err(moved(remote, name, found));
            }
        }
        let mut send = |lease| {
            let listener: ProgressSink<'_> = match &mut listener {
                Some(told) => Some(&mut **told),
                None => None,
            };
            self.push_state(remote, name, commit_id, lease, listener)
        };
        let mut pushed = send(lease)?;
        if pushed == Pushed::Stale {
            let found = self.query_state(remote, name)?;
            pushed = match found {
                // A process pushed it and died before it could record that.
                Some(_) if found == commit_id => Pushed::Unchanged,
                // The fork was deleted there since.
                None if commit_id.is_none() => return Err(no_such_state(remote, name)),
                None => send(Lease::Absent)?,
                Some(_) => Pushed::Stale,
            };
            if pushed == Pushed::Stale {
                return Err(moved(remote, name, found));
            }
        }
        self.note_sent(remote, name, commit_id)?;
        Ok(pushed == Pushed::Moved)
    }

    fn push_state(
        &self,
        remote: &str,
        name: &str,
        commit_id: Option<ObjectId>,
        lease: Lease,
        listener: ProgressSink<'_>,
    ) -> Result<Pushed, GitError> {
        let full_name = format!("{FORKS}{name}");
        let mut command = self.user_command();
        let mirror = format!("remote.{remote}.mirror");
        if self.config_bool(&mirror) == Some(true) {
            // A mirror pushes all refs or none.
            command.args(["-c", &format!("{mirror}=false")]);
        }
        command.args([
            "push",
            "--porcelain",
            "--no-follow-tags",
            "--recurse-submodules=no",
        ]);
        command.arg(progress(listener.is_some()));
        command.arg(match lease {
            Lease::Absent => format!("--force-with-lease={full_name}:"),
            Lease::At(id) => format!("--force-with-lease={full_name}:{id}"),
            Lease::Anything => "--force".to_owned(),
        });
        let source = commit_id.map(|id| id.to_string()).unwrap_or_default();
        command.arg(remote).arg(format!("{source}:{full_name}"));
        let finished = converse(&mut command, listener)?;
        push_result(remote, name, &finished)
    }

    fn fetch_command(
        &self,
        remote: &str,
        name: Option<&str>,
        is_shown: bool,
        modes: &[(&str, bool)],
    ) -> Command {
        let name = name.unwrap_or("*");
        let mut command = self.user_command();
        // Fetch only these refs, whatever is configured for the remote.
        command
            .args(["fetch", "--no-tags", "--refmap=", "--no-write-fetch-head"])
            .args([
                "--no-prune-tags",
                "--recurse-submodules=no",
                progress(is_shown),
            ]);
        command.args(
            modes
                .iter()
                .filter(|(_, is_on)| *is_on)
                .map(|(mode, _)| mode),
        );
        command.arg(remote).arg(format!(
            "+{FORKS}{name}:refs/tine/{tracking}/{name}",
            tracking = tracking(remote)
        ));
        command
    }

    /// Creates a git command in the main checkout's root.
    ///
    /// Relative paths of remotes are resolved there.
    fn user_command(&self) -> Command {
        let dir: &Path = if self.checkout_dir().is_dir() {
            self.checkout_dir()
        } else {
            self.common_dir()
        };
        let mut command = program::command_of_user(dir);
        command.arg("--git-dir").arg(self.common_dir());
        command
    }
}

fn progress(is_shown: bool) -> &'static str {
    if is_shown {
        "--progress"
    } else {
        "--no-progress"
    }
}

fn converse(command: &mut Command, listener: ProgressSink<'_>) -> Result<Finished, GitError> {
    match listener {
        Some(told) => program::converse(command, told),
        None => program::converse(command, &mut |_| {}),
    }
}

fn moved(remote: &str, name: &str, found: Option<ObjectId>) -> GitError {
    GitError::RemoteMoved {
        remote: remote.to_owned(),
        name: name.to_owned(),
        found,
    }
}

fn no_such_state(remote: &str, name: &str) -> GitError {
    GitError::NoSuchState {
        remote: remote.to_owned(),
        name: name.to_owned(),
    }
}

/// Parses the result of a push from `--porcelain` output (git-push(1), OUTPUT).
fn push_result(remote: &str, name: &str, finished: &Finished) -> Result<Pushed, GitError> {
    let text = String::from_utf8_lossy(&finished.stdout);
    let flagged = |flag: &str| text.lines().find(|line| line.starts_with(flag));
    if finished.status.success() {
        return Ok(match flagged("=\t") {
            Some(_) => Pushed::Unchanged,
            None => Pushed::Moved,
        });
    }
    let said = said(finished);
    let Some(rejected) = flagged("!\t") else {
        let has = |text: &str| said.iter().any(|line| line.contains(text));
        return Err(if finished.status.code() == Some(1) && !has("fatal: ") {
            // A hook may also write to standard output.
            let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
            GitError::PushHook {
                name: name.to_owned(),
                said: lines.map(str::to_owned).chain(said).collect(),
            }
        } else {
            connection_error(remote, finished)
        });
    };
    let reason = rejected.split('\t').nth(2).unwrap_or_default();
    if is_stale(reason) {
        return Ok(Pushed::Stale);
    }
    let mut said: Vec<String> = said
        .into_iter()
        .filter(|line| line.starts_with("remote: "))
        .collect();
    said.push(reason.to_owned());
    if said.iter().any(|line| is_denial(line)) {
        let remote = remote.to_owned();
        return Err(GitError::RemoteDenied { remote, said });
    }
    Err(GitError::RemoteRefused {
        remote: remote.to_owned(),
        name: name.to_owned(),
        said,
    })
}

/// Returns whether a ref was refused because its value is unexpected.
///
/// git knows that when the push begins, or the remote finds out when two pushes race.
fn is_stale(reason: &str) -> bool {
    let met = reason.contains("cannot lock ref")
        && [
            "but expected",
            "already exists",
            "unable to resolve",
            "File exists",
        ]
        .iter()
        .any(|how| reason.contains(how));
    let others = [
        "stale info",
        "incorrect old value",
        "reference already exists",
    ];
    met || others.iter().any(|how| reason.contains(how))
}

/// Returns the reason why the fork `name` was not fetched.
fn fetch_error(remote: &str, name: &str, finished: &Finished) -> GitError {
    let said = String::from_utf8_lossy(&finished.stderr);
    if said.contains("couldn't find remote ref") {
        no_such_state(remote, name)
    } else {
        connection_error(remote, finished)
    }
}

/// Returns the error for a remote that is unreachable or denies access.
fn connection_error(remote: &str, finished: &Finished) -> GitError {
    let remote = remote.to_owned();
    let said = said(finished);
    if said.iter().any(|line| is_denial(line)) {
        GitError::RemoteDenied { remote, said }
    } else {
        GitError::RemoteUnreachable { remote, said }
    }
}

/// Returns whether an output line reports denied access.
///
/// The line may come from git, ssh or a server.
fn is_denial(line: &str) -> bool {
    let line = line.to_lowercase();
    [
        "permission denied",
        "permission to",
        "insufficient permission",
        "authentication failed",
        "access denied",
        "could not read username",
        "could not read password",
        "host key verification failed",
        "error: 401",
        "error: 403",
    ]
    .iter()
    .any(|words| line.contains(words))
}

/// Returns git's error output without progress and advice.
///
/// Each line is in its last state.
fn said(finished: &Finished) -> Vec<String> {
    String::from_utf8_lossy(&finished.stderr)
        .split('\n')
        .filter_map(|line| {
            let line = line.trim_end_matches(['\r', ' ']);
            line.rsplit('\r').next()
        })
        .map(str::trim)
        .filter(|line| !line.is_empty() && *line != "remote:" && !line.starts_with("hint: "))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests;
