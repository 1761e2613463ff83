//! The operation trait, the call that carries an operation, and the registry entry.

use std::ffi::OsStr;
use std::fmt::Debug;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::builder::{OsStringValueParser, TypedValueParser};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::Editor;
use crate::failure::{ErrorCode, Failure};
use crate::policy::Signers;
use crate::state::slots::Daemon;
use tine_git::{GitError, Identity};
use tine_path::RepoPath;
use tine_path::text::{PathText, optional_host_path};
use tine_sys::process::PeerCredentials;
use tine_tools::path::beneath;
use tine_workspace::{Actor, Caller, ForkName};

/// The umask of a caller that sends none.
const DEFAULT_UMASK: u16 = 0o022;

/// A command line longer than this is not kept whole.
const COMMAND_MAX: usize = 1024;

/// An operation that the daemon runs for a client.
///
/// The type holds the arguments. The command line parses it, the socket carries it, and MCP
/// describes it to agents. [`OPERATIONS`](crate::OPERATIONS) lists all operations.
pub trait Operation: Debug + Serialize + DeserializeOwned {
    /// The name on the socket, in kebab-case.
    const NAME: &'static str;
    /// The progress text while the caller waits, such as `committing`.
    const DOING: &'static str = "waiting for the daemon";
    /// Set for operations that a client of another version may call, so that a newer program can
    /// end an older daemon. Their fields are never renamed.
    const FOR_EVERY_VERSION: bool = false;
    /// The answer, as `--json` and the library return it.
    type Answer: Debug + Serialize + DeserializeOwned;

    /// Returns the field that names the fork. `None` in that field means the fork whose mount
    /// contains the caller's directory.
    fn fork(&mut self) -> Option<&mut Option<ForkName>> {
        None
    }

    /// Returns true if the operation must succeed on a full disk because it frees space.
    fn frees_space(&self) -> bool {
        false
    }

    /// Runs the operation in the daemon.
    ///
    /// # Errors
    /// Fails with a stable code. Unless documented otherwise, a failed operation changes nothing.
    fn run(self, call: &Call<'_>) -> Result<Self::Answer, Failure>;
}

/// The surroundings of a caller: they travel once, beside the arguments.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Surroundings {
    /// The command line as it was typed, for the log of operations.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub command: String,
    /// The caller's current directory, as seen by the daemon.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "optional_host_path"
    )]
    pub dir: Option<PathBuf>,
    /// The private git directory of the worktree that the caller is in: revisions are understood
    /// there where no fork is meant.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "optional_host_path"
    )]
    pub git_dir: Option<PathBuf>,
    /// The caller's umask. The default is 022.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub umask: Option<u16>,
    /// The author of commits. The default is git's configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<Identity>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub committer: Option<Identity>,
}

/// User, group and umask of what an operation makes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner {
    pub uid: u32,
    pub gid: u32,
    pub umask: u16,
}

/// One call of an operation.
pub struct Call<'a> {
    pub daemon: &'a Arc<Daemon>,
    /// The connection's editor, if it becomes one.
    pub editor: &'a Editor<'a>,
    pub peer: PeerCredentials,
    pub from: &'a Surroundings,
}

impl Call<'_> {
    /// Returns the named fork, or the one whose mount contains the caller's directory.
    ///
    /// # Errors
    /// `not-in-fork` where it is in none.
    pub(crate) fn fork(&self, named: Option<ForkName>) -> Result<ForkName, Failure> {
        self.fork_if_any(named).ok_or_else(Failure::not_in_fork)
    }

    /// The fork that is named, or in whose mount the caller is, if it is in one.
    pub(crate) fn fork_if_any(&self, named: Option<ForkName>) -> Option<ForkName> {
        named.or_else(|| self.daemon.fork_at(self.from.dir.as_deref()?))
    }

    /// Returns the owner of what the call makes.
    pub(crate) fn owner(&self) -> Owner {
        Owner {
            uid: self.peer.uid,
            gid: self.peer.gid,
            umask: self.from.umask.unwrap_or(DEFAULT_UMASK),
        }
    }

    /// The private git directory of the worktree that the caller is in.
    ///
    /// # Errors
    /// `not-a-repository` where it is in none.
    pub(crate) fn git_dir(&self) -> Result<&Path, Failure> {
        let from = self.from;
        from.git_dir.as_deref().ok_or_else(|| {
            let dir = from.dir.as_deref().unwrap_or(Path::new("."));
            GitError::NotARepository(dir.to_owned()).into()
        })
    }

    /// Resolves `path` to a path from the fork's root. It is relative to the root, or absolute
    /// inside the mount.
    ///
    /// # Errors
    /// `path-refused` where it is outside; others where it is no path.
    pub(crate) fn path(&self, fork: &ForkName, path: &PathText) -> Result<RepoPath, Failure> {
        let bytes = path.to_bytes();
        if bytes.is_empty() {
            return Err(Failure::new(ErrorCode::Usage, "a path is empty")
                .hint("`.` is the fork's root, everything else is named from there"));
        }
        if bytes[0] != b'/' {
            return Ok(RepoPath::parse(&bytes)?);
        }
        let mount_dir = self.daemon.store.record(fork)?.mount_dir;
        let path = Path::new(OsStr::from_bytes(&bytes));
        let beneath = beneath(&mount_dir, path).ok_or_else(|| {
            Failure::new(
                ErrorCode::PathRefused,
                format!("{} is not in {fork}", path.display()),
            )
            .hint(format!(
                "name it from the fork's root, or beneath {}",
                mount_dir.display()
            ))
        })?;
        Ok(RepoPath::parse(beneath.as_os_str().as_bytes())?)
    }

    pub(crate) fn paths(
        &self,
        fork: &ForkName,
        paths: &[PathText],
    ) -> Result<Vec<RepoPath>, Failure> {
        paths.iter().map(|path| self.path(fork, path)).collect()
    }

    /// Returns the user and the command line for the log of operations.
    pub(crate) fn by(&self) -> Actor<'_> {
        let command = &self.from.command;
        let end = (0..=command.len().min(COMMAND_MAX)).rfind(|end| command.is_char_boundary(*end));
        Actor {
            caller: Caller::new(self.peer.uid, self.peer.gid),
            command: &command[..end.unwrap_or(0)],
        }
    }

    pub(crate) fn signers(&self) -> Signers {
        Signers {
            author: self.from.author.clone(),
            committer: self.from.committer.clone(),
        }
    }
}

/// A registered operation.
pub struct Entry {
    pub name: &'static str,
    pub for_every_version: bool,
    run: fn(&RawValue, &Call<'_>) -> Result<Box<RawValue>, Failure>,
    check: fn(&RawValue) -> Result<(), Failure>,
}

impl Entry {
    pub(crate) const fn of<O: Operation>() -> Entry {
        Entry {
            name: O::NAME,
            for_every_version: O::FOR_EVERY_VERSION,
            run: |arguments, call| {
                let operation: O = parse(arguments)?;
                log::debug!("process {} asks {operation:?}", call.peer.pid);
                let _loan = operation
                    .frees_space()
                    .then(|| call.daemon.store.lend_reserve());
                let answer = operation.run(call)?;
                serde_json::value::to_raw_value(&answer).map_err(|error| {
                    Failure::new(ErrorCode::Internal, "the answer could not be written")
                        .cause(error.to_string())
                })
            },
            check: |arguments| parse::<O>(arguments).map(drop),
        }
    }

    /// Runs the operation with `arguments` in JSON, and returns the answer in JSON.
    ///
    /// # Errors
    /// `usage` where the arguments do not fit; the operation's own.
    pub fn run(&self, arguments: &RawValue, call: &Call<'_>) -> Result<Box<RawValue>, Failure> {
        (self.run)(arguments, call)
    }

    /// Checks that the arguments parse.
    ///
    /// # Errors
    /// `usage` where they do not.
    pub fn check(&self, arguments: &RawValue) -> Result<(), Failure> {
        (self.check)(arguments)
    }
}

fn parse<O: Operation>(arguments: &RawValue) -> Result<O, Failure> {
    serde_json::from_str(arguments.get()).map_err(Failure::not_understood)
}

/// Parses a path of a fork from the command line. The path may be any bytes.
pub(crate) fn path_parser() -> impl TypedValueParser<Value = PathText> {
    OsStringValueParser::new().map(|path| PathText::from(path.as_bytes()))
}
