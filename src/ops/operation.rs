//! The operation trait, a call of an operation, and the registry entry.

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
use crate::agents::AgentOptions;
use crate::failure::{ErrorCode, Failure};
use crate::policy::Signers;
use crate::state::slots::Daemon;
use crate::state::taking;
use tine_git::{GitError, Identity};
use tine_path::RepoPath;
use tine_path::text::{PathText, optional_host_path};
use tine_store::ForkName;
use tine_sys::process::PeerCredentials;
use tine_tools::path::relative_path;
use tine_workspace::{Actor, Caller};

/// The umask of a caller that sends none.
const DEFAULT_UMASK: u16 = 0o022;

/// Longest command line, in bytes, that the log of operations keeps whole.
const COMMAND_MAX: usize = 1024;

/// Operation that the daemon runs for a client.
///
/// The type holds the arguments. The command line parses it, the socket carries it, and MCP
/// describes it to agents. [`OPERATIONS`](crate::OPERATIONS) lists all operations.
pub trait Operation: Debug + Serialize + DeserializeOwned {
    /// Name on the socket, in kebab-case.
    const NAME: &'static str;
    /// Progress text while the caller waits, such as `committing`.
    const PROGRESS: &'static str = "waiting for the daemon";
    /// True if a client of another version may call the operation.
    ///
    /// This allows a newer program to end an older daemon. The fields of such operations are never
    /// renamed.
    const ANY_VERSION: bool = false;
    /// Answer, as `--json` and the library return it.
    type Answer: Debug + Serialize + DeserializeOwned;

    /// Returns the field that names the fork, if the operation has one.
    ///
    /// `None` in that field means the fork whose mount contains the caller's directory.
    fn fork(&mut self) -> Option<&mut Option<ForkName>> {
        None
    }

    /// Returns the operation's options about the agent, if it has any.
    fn agent(&mut self) -> Option<&mut AgentOptions> {
        None
    }

    /// Returns true if the operation frees space.
    ///
    /// It must then succeed on a full disk.
    fn frees_space(&self) -> bool {
        false
    }

    /// Runs the operation in the daemon.
    ///
    /// # Errors
    /// Fails with a stable code. Unless documented otherwise, a failed operation changes nothing.
    fn run(self, call: &Call<'_>) -> Result<Self::Answer, Failure>;
}

/// Surroundings of a caller, which travel once, beside the arguments.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct CallerContext {
    /// Command line as it was typed, for the log of operations.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub command: String,
    /// Caller's current directory, as seen by the daemon.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "optional_host_path"
    )]
    pub dir: Option<PathBuf>,
    /// Private git directory of the worktree that the caller is in.
    ///
    /// Revisions are resolved there if the operation names no fork.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "optional_host_path"
    )]
    pub git_dir: Option<PathBuf>,
    /// Caller's umask. The default is 022.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub umask: Option<u16>,
    /// Author of commits. `None` means that git's configuration decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<Identity>,
    /// Committer of commits. `None` means that git's configuration decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub committer: Option<Identity>,
}

/// One call of an operation.
pub struct Call<'a> {
    /// Daemon that runs the operation.
    pub daemon: &'a Arc<Daemon>,
    /// Connection's editor, if the connection becomes one.
    pub editor: &'a Editor<'a>,
    /// Credentials of the process that connected, from the kernel.
    pub peer: PeerCredentials,
    /// Surroundings that the caller sent.
    pub from: &'a CallerContext,
}

impl Call<'_> {
    /// Returns the named fork, or the one that the caller is in.
    ///
    /// # Errors
    /// `not-in-fork` if the caller's directory is in the mount of none.
    pub(crate) fn fork(&self, named: Option<ForkName>) -> Result<ForkName, Failure> {
        self.fork_if_any(named).ok_or_else(Failure::not_in_fork)
    }

    /// Returns the named fork, or else the one that contains the caller.
    pub(crate) fn fork_if_any(&self, named: Option<ForkName>) -> Option<ForkName> {
        named.or_else(|| self.daemon.fork_at(self.from.dir.as_deref()?))
    }

    /// Takes over what git did in the forks concerned.
    ///
    /// They are the named one, and the one that the caller is in.
    /// A revision may be resolved before the fork is locked, and names what was committed there a
    /// moment ago.
    fn take_over(&self, named: Option<&ForkName>) {
        let around = self
            .from
            .dir
            .as_deref()
            .and_then(|dir| self.daemon.fork_at(dir));
        for fork in around.iter().chain(named) {
            taking::bring_fork(self.daemon, fork);
        }
    }

    /// Returns the owner of what the call makes: the caller, with its umask.
    pub(crate) fn owner(&self) -> Caller {
        Caller {
            umask: self.from.umask.unwrap_or(DEFAULT_UMASK),
            ..Caller::new(self.peer.uid, self.peer.gid)
        }
    }

    /// Returns the private git directory of the caller's worktree.
    ///
    /// # Errors
    /// `not-a-repository` if the caller is in none.
    pub(crate) fn git_dir(&self) -> Result<&Path, Failure> {
        let from = self.from;
        from.git_dir.as_deref().ok_or_else(|| {
            let dir = from.dir.as_deref().unwrap_or(Path::new("."));
            GitError::NotARepository(dir.to_owned()).into()
        })
    }

    /// Resolves `path` to a path from the fork's root.
    ///
    /// A relative `path` begins at the root. An absolute one must be inside the mount.
    ///
    /// # Errors
    /// `path-refused` if it is outside; `usage` if it is empty; others if it is not a valid path.
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
        let beneath = relative_path(&mount_dir, path).ok_or_else(|| {
            Failure::new(
                ErrorCode::PathRefused,
                format!("{} is not in {fork}", path.display()),
            )
            .hint(format!(
                "name it from the fork's root, or under {}",
                mount_dir.display()
            ))
        })?;
        Ok(RepoPath::parse(beneath.as_os_str().as_bytes())?)
    }

    /// Resolves each of `paths` with [`Call::path`].
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

    /// Returns the author and the committer that the caller named.
    pub(crate) fn signers(&self) -> Signers {
        Signers {
            author: self.from.author.clone(),
            committer: self.from.committer.clone(),
        }
    }
}

/// Registered operation.
pub struct Entry {
    /// Name on the socket.
    pub name: &'static str,
    /// Copy of [`Operation::ANY_VERSION`].
    pub for_every_version: bool,
    run: fn(&RawValue, &Call<'_>) -> Result<Box<RawValue>, Failure>,
    check: fn(&RawValue) -> Result<(), Failure>,
}

impl Entry {
    pub(crate) const fn of<O: Operation>() -> Entry {
        Entry {
            name: O::NAME,
            for_every_version: O::ANY_VERSION,
            run: |arguments, call| {
                let mut operation: O = parse(arguments)?;
                log::debug!("process {} asks {operation:?}", call.peer.pid);
                let _loan = operation
                    .frees_space()
                    .then(|| call.daemon.store.lend_reserve());
                if !O::ANY_VERSION {
                    call.take_over(operation.fork().and_then(|fork| fork.as_ref()));
                }
                let answer = operation.run(call)?;
                serde_json::value::to_raw_value(&answer).map_err(|error| {
                    Failure::new(ErrorCode::Internal, "the answer could not be written")
                        .cause(error.to_string())
                })
            },
            check: |arguments| parse::<O>(arguments).map(drop),
        }
    }

    /// Runs the operation. Arguments and answer are in JSON.
    ///
    /// # Errors
    /// `usage` if the arguments do not parse; the errors of the operation.
    pub fn run(&self, arguments: &RawValue, call: &Call<'_>) -> Result<Box<RawValue>, Failure> {
        (self.run)(arguments, call)
    }

    /// Checks that the arguments parse.
    ///
    /// # Errors
    /// `usage` if they do not.
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

/// Joins the paragraphs of a message. `None` if there are none.
pub fn joined_message(paragraphs: &[String]) -> Option<String> {
    (!paragraphs.is_empty()).then(|| paragraphs.join("\n\n"))
}

/// Serializes the paragraphs of a message as one string.
pub(crate) mod paragraphs {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        paragraphs: &[String],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&paragraphs.join("\n\n"))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<String>, D::Error> {
        let message = Option::<String>::deserialize(deserializer)?;
        Ok(message.into_iter().collect())
    }
}
