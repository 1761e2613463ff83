//! Remotes: what is sent to them and fetched from them of forks, by the git program and in the
//! process of the user, so that credentials, agents, proxies and prompts are those that `git push`
//! has.
//!
//! On a remote a fork is one ref, `refs/tine/forks/<name>`. What was last seen of it is remembered
//! here as `refs/tine/+remotes/<remote>/<name>`; what was last put there or taken up from here as
//! `refs/tine/+leases/<remote>/<name>`, the lease under which it is changed: what somebody else put
//! there since is not overwritten, whether it was seen or not.

mod followed;

use std::path::Path;
use std::process::Command;

use gix::ObjectId;

use super::program::{self, Finished};
use super::{GitError, Repository};

/// Where forks are on a remote.
const FORKS: &str = "refs/tine/forks/";

/// Beneath `refs/tine/`; no fork can be called so.
const TRACKING: &str = "+remotes";

/// Likewise.
const LEASES: &str = "+leases";

/// What git calls a remote if nobody names one.
const ORIGIN: &str = "origin";

/// Hears what git says while it is at work, as it says it; `None` where nobody wants to.
pub type ProgressSink<'a> = Option<&'a mut dyn FnMut(&[u8])>;

/// What the remote's ref must be before it changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lease {
    Absent,
    At(ObjectId),
    Anything,
}

/// What came of a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pushed {
    Moved,
    /// It was so already.
    Unchanged,
    /// Refused: the remote's ref is not what the lease says.
    Stale,
}

/// The name beneath `refs/tine/` of what is remembered of a remote.
fn tracking(remote: &str) -> String {
    format!("{TRACKING}/{remote}")
}

/// The name beneath `refs/tine/` of the leases of a remote.
fn leases(remote: &str) -> String {
    format!("{LEASES}/{remote}")
}

impl Repository {
    /// The names of all remotes that are configured.
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

    /// The remotes that are fetched where all are (`remote.<name>.skipFetchAll`).
    pub fn remotes_to_fetch(&self) -> Result<Vec<String>, GitError> {
        let mut names = self.remotes()?;
        names.retain(|name| {
            let is_set =
                |key: &str| self.config_bool(&format!("remote.{name}.{key}")) == Some(true);
            !is_set("skipFetchAll") && !is_set("skipDefaultUpdate")
        });
        Ok(names)
    }

    /// `named`, if there is such a remote; else the one to which git would push a branch: for the
    /// first of `branches` (short names) that says something.
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

    /// `named`, if there is such a remote; else the one from which git would fetch on `branch`
    /// (short name).
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
        // A branch may follow another one here (`.`), or a URL: that is no remote with a name.
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

    /// What was last seen of the fork `name` on a remote.
    pub fn tracked(&self, remote: &str, name: &str) -> Result<Option<ObjectId>, GitError> {
        self.kept_as(&tracking(remote), name)
    }

    /// What was last seen of all forks on a remote, sorted by name.
    pub fn all_tracked(&self, remote: &str) -> Result<Vec<(String, ObjectId)>, GitError> {
        self.kept(&tracking(remote))
    }

    /// Remembers what was put there as the fork `name`, or removed (`None`).
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

    /// Remembers that work goes on here from what the fork `name` is on a remote: it may be
    /// replaced from here.
    pub fn lease(&self, remote: &str, name: &str, id: ObjectId) -> Result<(), GitError> {
        self.keep(&leases(remote), name, id)
    }

    /// Fetches the forks of a remote, or one of them, and remembers what they are; with `prune`
    /// forgets those that are there no more (without, the configuration decides: `fetch.prune`).
    ///
    /// # Errors
    /// [`GitError::NoSuchState`] where the one is not there, [`GitError::RemoteUnreachable`],
    /// [`GitError::RemoteDenied`].
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
            (_, Some(name)) => Err(why_not_fetched(remote, name, &finished)),
            // The remote gave them, and some could not be kept.
            (Some(1), None) => Err(program::failed(&command, &finished)),
            (_, None) => Err(not_reached(remote, &finished)),
        }
    }

    /// What the fork `name` is on a remote now, if it is there. Its objects come here; what is
    /// remembered stays.
    fn look_at_state(&self, remote: &str, name: &str) -> Result<Option<ObjectId>, GitError> {
        let modes = [
            ("--dry-run", true),
            ("--porcelain", true),
            ("--verbose", true),
        ];
        let mut command = self.fetch_command(remote, Some(name), false, &modes);
        let finished = converse(&mut command, None)?;
        if !finished.status.success() {
            return match why_not_fetched(remote, name, &finished) {
                GitError::NoSuchState { .. } => Ok(None),
                error => Err(error),
            };
        }
        // `<flag> <old id> <new id> <ref>`; the flag may be a space.
        let ids = finished
            .stdout
            .split(|&byte| byte == b'\n')
            .find_map(|line| {
                let mut words = line.get(2..)?.split(|&byte| byte == b' ');
                ObjectId::from_hex(words.nth(1)?).ok()
            });
        Ok(ids)
    }

    /// Lets the fork `name` on a remote be `commit_id`, or, with `None`, not be there, and
    /// remembers it. Whether anything changed there. What is there must be what was last put there
    /// or taken up from here, or nothing, unless `force` is on.
    ///
    /// # Errors
    /// [`GitError::RemoteMoved`]; [`GitError::NoSuchState`] where what was to go is not there;
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
            // That nothing goes is no failure to git.
            let found = self.look_at_state(remote, name)?;
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
            let found = self.look_at_state(remote, name)?;
            pushed = match found {
                // Sent by a process that died before it could remember.
                Some(_) if found == commit_id => Pushed::Unchanged,
                // Deleted there since.
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
            // A mirror takes all refs or none.
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
        outcome(remote, name, &finished)
    }

    fn fetch_command(
        &self,
        remote: &str,
        name: Option<&str>,
        is_heard: bool,
        modes: &[(&str, bool)],
    ) -> Command {
        let name = name.unwrap_or("*");
        let mut command = self.user_command();
        // Nothing but these refs, whatever else is configured for the remote.
        command
            .args(["fetch", "--no-tags", "--refmap=", "--no-write-fetch-head"])
            .args([
                "--no-prune-tags",
                "--recurse-submodules=no",
                progress(is_heard),
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

    /// git at the top of the main checkout, from which remotes may be named by relative paths.
    fn user_command(&self) -> Command {
        let dir: &Path = match self.checkout_dir().is_dir() {
            true => self.checkout_dir(),
            false => self.common_dir(),
        };
        let mut command = program::command_of_user(dir);
        command.arg("--git-dir").arg(self.common_dir());
        command
    }
}

fn progress(is_heard: bool) -> &'static str {
    match is_heard {
        true => "--progress",
        false => "--no-progress",
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

/// What a push came to, of what git says with `--porcelain` (git-push(1), OUTPUT).
fn outcome(remote: &str, name: &str, finished: &Finished) -> Result<Pushed, GitError> {
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
            // A hook may say it on standard output, too.
            let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
            GitError::PushHook {
                name: name.to_owned(),
                said: lines.map(str::to_owned).chain(said).collect(),
            }
        } else {
            not_reached(remote, finished)
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

/// Whether a ref was refused because it is not what it was to be: known when the push began, or
/// found by the remote when two pushes met.
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

/// Why the one fork `name` did not come.
fn why_not_fetched(remote: &str, name: &str, finished: &Finished) -> GitError {
    let said = String::from_utf8_lossy(&finished.stderr);
    match said.contains("couldn't find remote ref") {
        true => no_such_state(remote, name),
        false => not_reached(remote, finished),
    }
}

/// The remote was not reached, or does not let anybody in.
fn not_reached(remote: &str, finished: &Finished) -> GitError {
    let remote = remote.to_owned();
    let said = said(finished);
    match said.iter().any(|line| is_denial(line)) {
        true => GitError::RemoteDenied { remote, said },
        false => GitError::RemoteUnreachable { remote, said },
    }
}

/// Whether git, ssh or a server's answer says that somebody may not.
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

/// What git said, without progress and advice: each line as it was at its end.
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
