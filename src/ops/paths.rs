//! Reads and changes a fork by path, for people and for agents.
//!
//! The fork need not be mounted. Without an agent the operations work on the saved files of one
//! fork. An agent's go where [`agents`](super::agents) routes them.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::agents::{AgentOptions, Effect, routed, with_tools};
use super::buffers::with_agent_texts_at;
use crate::failure::{ErrorCode, Failure};
use crate::operation::{Call, Operation, path_parser};
use crate::protocol::{
    Contents, FileLine, MovedLine, NodeKind, NodeLine, Nodes, Removed, ToolAnswer, ToolDeleted,
    ToolListed, ToolMoved, ToolRead, ToolWritten, WrittenLine,
};
use crate::state::slots::{Daemon, ForkGuard};
use crate::transfer::{Outgoing, Transfer};
use tine_attr::FileKind;
use tine_path::RepoPath;
use tine_path::text::PathText;
use tine_store::ForkName;
use tine_workspace::{Actor, Last, MoveOptions, PathNode, PutOptions, Workspace};

/// Show what is at a path of a fork, mounted or not
///
/// Kind, size, mode, owner, inode number and times, as stat(2) tells them in the mount. A symlink
/// is shown itself.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Examples:
  tine stat src/main.rs
  tine stat --fork fix-parser src/main.rs --json | jq .size")]
pub struct Stat {
    /// The fork [default: the one whose mount this is]
    #[arg(long, value_name = "NAME")]
    #[serde(default)]
    pub fork: Option<ForkName>,

    /// From the fork's root, or absolute in its mount
    #[arg(value_name = "PATH", value_parser = path_parser())]
    pub path: PathText,
}

impl Operation for Stat {
    const NAME: &'static str = "stat";
    type Answer = NodeLine;

    fn fork(&mut self) -> Option<&mut Option<ForkName>> {
        Some(&mut self.fork)
    }

    fn run(self, call: &Call<'_>) -> Result<NodeLine, Failure> {
        let fork = call.fork(self.fork)?;
        let path = call.path(&fork, &self.path)?;
        looking(call.daemon, &fork, |workspace| {
            Ok(node_line(workspace.look_at(&path, Last::Keep)?))
        })
    }
}

/// List a directory of a fork, mounted or not
///
/// One name a line, sorted by bytes; a file is listed itself. With --deep every path below it, one
/// line each: its kind as `ls -l` has it (- file, d directory, l symlink), its size, the path from
/// the fork's root. Symlinks are followed within the fork, but not below PATH. The fork's own .git
/// is left out; what git ignores is not.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Examples:
  tine ls src
  tine ls -l --fork fix-parser
  tine ls --json | jq -r '.nodes[].path'
  tine ls --deep src --json | jq -r '.nodes[] | select(.kind == \"file\") | .path'")]
pub struct ListDirectory {
    /// The fork [default: the one whose mount this is]
    #[arg(long, value_name = "NAME")]
    #[serde(default)]
    pub fork: Option<ForkName>,

    /// From the fork's root, or absolute in its mount
    #[arg(value_name = "PATH", default_value = ".", value_parser = path_parser())]
    #[serde(default = "root")]
    pub path: PathText,

    /// List everything below it
    #[arg(long)]
    #[serde(default)]
    pub deep: bool,

    /// The agent.
    #[command(flatten)]
    #[serde(default)]
    pub agent: AgentOptions,
}

impl ListDirectory {
    /// Lists the directory at `path`.
    pub fn of(path: PathText, deep: bool) -> ListDirectory {
        ListDirectory {
            fork: None,
            path,
            deep,
            agent: AgentOptions::default(),
        }
    }
}

impl Operation for ListDirectory {
    const NAME: &'static str = "list-directory";
    const PROGRESS: &'static str = "looking";
    type Answer = ToolAnswer<ToolListed, Nodes>;

    fn fork(&mut self) -> Option<&mut Option<ForkName>> {
        Some(&mut self.fork)
    }

    fn agent(&mut self) -> Option<&mut AgentOptions> {
        Some(&mut self.agent)
    }

    fn run(self, call: &Call<'_>) -> Result<Self::Answer, Failure> {
        if self.agent.is_agents() {
            return with_tools(call, self.fork, &self.agent, Effect::Looks, |tools| {
                let listed = tools
                    .router
                    .list_directory(&self.path.to_bytes(), self.deep)?;
                Ok(routed(listed, |route, (path, nodes)| ToolListed {
                    route,
                    path: (&path).into(),
                    entries: nodes.into_iter().map(node_line).collect(),
                }))
            });
        }
        if let Some(name) = fork_as_path(call, self.fork.as_ref(), Some(&self.path))? {
            return Err(is_a_fork(&name));
        }
        let fork = call.fork(self.fork)?;
        let path = call.path(&fork, &self.path)?;
        let nodes = looking(call.daemon, &fork, |workspace| {
            Ok(if self.deep {
                workspace.walk_at(&path)?
            } else {
                workspace.list_at(&path)?
            })
        })?;
        Ok(ToolAnswer::Saved(Nodes {
            fork,
            nodes: nodes.into_iter().map(node_line).collect(),
        }))
    }
}

/// Print files of a fork, mounted or not
///
/// Byte for byte, one after the other, as the mount would show them; nothing is printed if one of
/// them cannot be read. Symlinks are followed within the fork. With --json a content is {"text": …}
/// or, where it is not UTF-8, {"base64": …}. With --agent one file at a time.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Examples:
  tine cat src/main.rs
  tine cat --fork fix-parser logo.png > logo.png
  tine cat --agent src/main.rs --json")]
pub struct ReadFiles {
    /// The fork [default: the one whose mount this is]
    #[arg(long, value_name = "NAME")]
    #[serde(default)]
    pub fork: Option<ForkName>,

    /// From the fork's root, or absolute in its mount
    #[arg(value_name = "PATH", required = true, value_parser = path_parser())]
    pub paths: Vec<PathText>,

    /// The agent.
    #[command(flatten)]
    #[serde(default)]
    pub agent: AgentOptions,
}

impl ReadFiles {
    /// Reads the file at `path`.
    pub fn of(path: PathText) -> ReadFiles {
        ReadFiles {
            fork: None,
            paths: vec![path],
            agent: AgentOptions::default(),
        }
    }
}

impl Operation for ReadFiles {
    const NAME: &'static str = "read";
    const PROGRESS: &'static str = "looking";
    type Answer = ToolAnswer<ToolRead, Contents>;

    fn fork(&mut self) -> Option<&mut Option<ForkName>> {
        Some(&mut self.fork)
    }

    fn agent(&mut self) -> Option<&mut AgentOptions> {
        Some(&mut self.agent)
    }

    fn run(self, call: &Call<'_>) -> Result<Self::Answer, Failure> {
        if self.agent.is_agents() {
            let path = only(&self.paths)?;
            return with_tools(call, self.fork, &self.agent, Effect::Looks, |tools| {
                let mut content = Outgoing::new(call.daemon.store.dir());
                let mut add = |piece: &[u8]| content.add(piece);
                let read = tools
                    .router
                    .read_file::<Failure>(&path.to_bytes(), &mut add)?;
                Ok(routed(read, |route, file| ToolRead {
                    route,
                    path: (&file.path).into(),
                    size: file.size,
                    content: content.finish(),
                }))
            });
        }
        let first = self.paths.first();
        if let Some(name) = fork_as_path(call, self.fork.as_ref(), first)? {
            return Err(is_a_fork(&name));
        }
        let fork = call.fork(self.fork)?;
        let paths = call.paths(&fork, &self.paths)?;
        Ok(ToolAnswer::Saved(read(call.daemon, fork, &paths)?))
    }
}

/// Write a file of a fork, mounted or not
///
/// The content comes from standard input, or from --file. It takes the place of the old one in one
/// step: nobody sees half of it. The file keeps its mode; what is not a regular file is refused.
/// With --agent a symlink is followed within the fork, and missing directories are made.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Examples:
  tine write notes.md < notes.md
  tine write --fork fix-parser tools/run.sh -p --executable --file run.sh
  tine write --agent notes/today.md < today.md")]
pub struct WriteFile {
    /// The fork [default: the one whose mount this is]
    #[arg(long, value_name = "NAME")]
    #[serde(default)]
    pub fork: Option<ForkName>,

    /// From the fork's root, or absolute in its mount
    #[arg(value_name = "PATH", value_parser = path_parser())]
    pub path: PathText,

    /// Take the content from FILE
    #[arg(short = 'F', long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    #[serde(skip)]
    pub file: Option<PathBuf>,

    /// Make directories that are missing
    #[arg(short, long)]
    #[serde(default)]
    pub parents: bool,

    /// Let whoever may read it execute it
    #[arg(short = 'x', long, conflicts_with = "agent")]
    #[serde(default)]
    pub executable: bool,

    /// The agent.
    #[command(flatten)]
    #[serde(default)]
    pub agent: AgentOptions,

    /// The content, on its way to the daemon.
    #[arg(skip)]
    pub content: Transfer,
}

impl WriteFile {
    /// Writes `content` to the file at `path`.
    pub fn of(path: PathText, content: Transfer) -> WriteFile {
        WriteFile {
            fork: None,
            path,
            file: None,
            parents: false,
            executable: false,
            agent: AgentOptions::default(),
            content,
        }
    }
}

impl Operation for WriteFile {
    const NAME: &'static str = "write";
    const PROGRESS: &'static str = "writing";
    type Answer = ToolAnswer<ToolWritten, WrittenLine>;

    fn fork(&mut self) -> Option<&mut Option<ForkName>> {
        Some(&mut self.fork)
    }

    fn agent(&mut self) -> Option<&mut AgentOptions> {
        Some(&mut self.agent)
    }

    fn run(self, call: &Call<'_>) -> Result<Self::Answer, Failure> {
        if self.agent.is_agents() {
            return with_tools(call, self.fork, &self.agent, Effect::Changes, |tools| {
                if !tools.router.is_active() {
                    return Ok(ToolAnswer::passthrough());
                }
                let arrived = self.content.take(call.daemon.store.dir())?;
                let path = self.path.to_bytes();
                let written = tools
                    .router
                    .write_file(call.by(), &path, arrived.content())?;
                Ok(routed(written, |route, written| ToolWritten {
                    route,
                    path: (&written.path).into(),
                    size: written.size,
                    created: written.created,
                }))
            });
        }
        if let Some(name) = fork_as_path(call, self.fork.as_ref(), Some(&self.path))? {
            return Err(is_a_fork(&name));
        }
        let fork = call.fork(self.fork)?;
        let path = call.path(&fork, &self.path)?;
        let options = PutOptions {
            parents: self.parents,
            executable: self.executable,
        };
        changing(call.daemon, &fork, |workspace| {
            // Not before the fork is locked: a caller that is sent to the next daemon still has it.
            let arrived = self.content.take(call.daemon.store.dir())?;
            let written = workspace.put_file(call.by(), &path, arrived.content(), options)?;
            Ok(ToolAnswer::Saved(WrittenLine {
                fork: fork.clone(),
                path: (&written.path).into(),
                size: written.size,
                created: written.created,
            }))
        })
    }
}

/// Move or rename a path of a fork, mounted or not
///
/// One step, whatever is below. It goes into DST where that is a directory. An existing file is
/// replaced with --force only, a directory never. Modes, times and inode numbers stay. With --agent
/// nothing is replaced, and missing directories are made; a buffer that is open for it stays where
/// it is.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Examples:
  tine mv src/old.rs src/new.rs
  tine mv --fork fix-parser src/lexer lib/
  tine mv --agent src/old.rs src/lexer/new.rs")]
pub struct MovePath {
    /// The fork [default: the one whose mount this is]
    #[arg(long, value_name = "NAME")]
    #[serde(default)]
    pub fork: Option<ForkName>,

    /// From the fork's root, or absolute in its mount
    #[arg(value_name = "SRC", value_parser = path_parser())]
    pub from: PathText,

    /// The new path, or a directory to move into
    #[arg(value_name = "DST", value_parser = path_parser())]
    pub to: PathText,

    /// Replace a file that is there
    #[arg(short, long, conflicts_with = "agent")]
    #[serde(default)]
    pub force: bool,

    /// The agent.
    #[command(flatten)]
    #[serde(default)]
    pub agent: AgentOptions,
}

impl MovePath {
    /// Moves `from` to `to`.
    pub fn of(from: PathText, to: PathText) -> MovePath {
        MovePath {
            fork: None,
            from,
            to,
            force: false,
            agent: AgentOptions::default(),
        }
    }
}

impl Operation for MovePath {
    const NAME: &'static str = "move";
    type Answer = ToolAnswer<ToolMoved, MovedLine>;

    fn fork(&mut self) -> Option<&mut Option<ForkName>> {
        Some(&mut self.fork)
    }

    fn agent(&mut self) -> Option<&mut AgentOptions> {
        Some(&mut self.agent)
    }

    fn run(self, call: &Call<'_>) -> Result<Self::Answer, Failure> {
        if self.agent.is_agents() {
            let effect = Effect::TakesAway(&self.from);
            return with_tools(call, self.fork, &self.agent, effect, |tools| {
                let (from, to) = (self.from.to_bytes(), self.to.to_bytes());
                let moved = tools.router.move_file(call.by(), &from, &to)?;
                Ok(routed(moved, |route, moved| ToolMoved {
                    route,
                    from: (&moved.from).into(),
                    to: (&moved.to).into(),
                }))
            });
        }
        let fork = call.fork(self.fork)?;
        let options = MoveOptions {
            force: self.force,
            into: self.to.to_bytes().ends_with(b"/"),
            parents: false,
        };
        let (from, to) = (call.path(&fork, &self.from)?, call.path(&fork, &self.to)?);
        let moved = rename(call.daemon, call.by(), &fork, (&from, &to), options)?;
        Ok(ToolAnswer::Saved(moved))
    }
}

/// Remove paths of a fork, mounted or not
///
/// All of them in one step, or nothing. A directory goes with everything below it, with -r only; a
/// symlink goes itself. With --agent one file at a time, and no directory; a buffer that is open
/// for it stays open in its editor.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Examples:
  tine rm src/old.rs notes.md
  tine rm -r --fork fix-parser target
  tine rm --agent src/old.rs")]
pub struct RemovePaths {
    /// The fork [default: the one whose mount this is]
    #[arg(long, value_name = "NAME")]
    #[serde(default)]
    pub fork: Option<ForkName>,

    /// From the fork's root, or absolute in its mount
    #[arg(value_name = "PATH", required = true, value_parser = path_parser())]
    pub paths: Vec<PathText>,

    /// Remove directories, with everything below them
    #[arg(short, long, conflicts_with = "agent")]
    #[serde(default)]
    pub recursive: bool,

    /// The agent.
    #[command(flatten)]
    #[serde(default)]
    pub agent: AgentOptions,
}

impl RemovePaths {
    /// Removes the file at `path`.
    pub fn of(path: PathText) -> RemovePaths {
        RemovePaths {
            fork: None,
            paths: vec![path],
            recursive: false,
            agent: AgentOptions::default(),
        }
    }
}

impl Operation for RemovePaths {
    const NAME: &'static str = "remove";
    const PROGRESS: &'static str = "removing";
    type Answer = ToolAnswer<ToolDeleted, Removed>;

    fn fork(&mut self) -> Option<&mut Option<ForkName>> {
        Some(&mut self.fork)
    }

    fn frees_space(&self) -> bool {
        true
    }

    fn agent(&mut self) -> Option<&mut AgentOptions> {
        Some(&mut self.agent)
    }

    fn run(self, call: &Call<'_>) -> Result<Self::Answer, Failure> {
        if self.agent.is_agents() {
            let path = only(&self.paths)?;
            let effect = Effect::TakesAway(path);
            return with_tools(call, self.fork, &self.agent, effect, |tools| {
                let deleted = tools.router.delete_file(call.by(), &path.to_bytes())?;
                Ok(routed(deleted, |route, path| ToolDeleted {
                    route,
                    path: (&path).into(),
                }))
            });
        }
        let first = self.paths.first();
        if let Some(name) = fork_as_path(call, self.fork.as_ref(), first)? {
            return Err(is_a_fork(&name).hint(format!(
                "name the fork with `--fork {name}`, and paths from its root; `tine delete {name}` removes the fork; nothing was done"
            )));
        }
        let fork = call.fork(self.fork)?;
        let paths = call.paths(&fork, &self.paths)?;
        let removed = remove(call.daemon, call.by(), fork, &paths, self.recursive)?;
        Ok(ToolAnswer::Saved(removed))
    }
}

/// Returns the path for a request that names none: the fork's root.
fn root() -> PathText {
    PathText::from(&b"."[..])
}

/// Returns the only path of an agent's call.
fn only(paths: &[PathText]) -> Result<&PathText, Failure> {
    match paths {
        [path] => Ok(path),
        _ => Err(
            Failure::new(ErrorCode::Usage, "an agent's tool takes one file at a time")
                .hint("call it once for each; without `--agent` several are taken together"),
        ),
    }
}

/// Returns the fork that `first` names, if no such path exists.
///
/// Earlier versions named the fork before the paths.
fn fork_as_path(
    call: &Call<'_>,
    named: Option<&ForkName>,
    first: Option<&PathText>,
) -> Result<Option<ForkName>, Failure> {
    let (None, Some(path)) = (named, first) else {
        return Ok(None);
    };
    let bytes = path.to_bytes();
    let name = std::str::from_utf8(&bytes).ok().map(ForkName::parse);
    let Some(Ok(name)) = name else {
        return Ok(None);
    };
    if call.daemon.store.record(&name).is_err() {
        return Ok(None);
    }
    if let Some(here) = call.fork_if_any(None) {
        let path = call.path(&here, path)?;
        let is_there = looking(call.daemon, &here, |workspace| {
            Ok(workspace.look_at(&path, Last::Keep).is_ok())
        })?;
        if is_there {
            return Ok(None);
        }
    }
    Ok(Some(name))
}

/// Makes the failure of a fork's name as the first path.
fn is_a_fork(name: &ForkName) -> Failure {
    Failure::new(
        ErrorCode::Usage,
        format!("{name} is a fork, and there is no such path here"),
    )
    .hint(format!(
        "name the fork with `--fork {name}`, and paths from its root; `./{name}` is a path; nothing was done"
    ))
}

fn read(daemon: &Arc<Daemon>, fork: ForkName, paths: &[RepoPath]) -> Result<Contents, Failure> {
    let mut contents = Outgoing::new(daemon.store.dir());
    let mut files = Vec::with_capacity(paths.len());
    looking(daemon, &fork, |workspace| {
        for path in paths {
            let size = workspace.read_at(path, &mut |piece| contents.add(piece))?;
            files.push(FileLine {
                path: path.into(),
                size,
            });
        }
        Ok(())
    })?;
    Ok(Contents {
        fork,
        files,
        contents: contents.finish(),
    })
}

pub(crate) fn rename(
    daemon: &Arc<Daemon>,
    by: Actor<'_>,
    name: &ForkName,
    (from, to): (&RepoPath, &RepoPath),
    options: MoveOptions,
) -> Result<MovedLine, Failure> {
    changing_at(daemon, name, &[from.clone(), to.clone()], |workspace| {
        let moved = workspace.move_path(by, from, to, options)?;
        Ok(MovedLine {
            fork: name.clone(),
            from: (&moved.from).into(),
            to: (&moved.to).into(),
            replaced: moved.replaced,
        })
    })
}

pub(crate) fn remove(
    daemon: &Arc<Daemon>,
    by: Actor<'_>,
    fork: ForkName,
    paths: &[RepoPath],
    recursive: bool,
) -> Result<Removed, Failure> {
    let removed = changing_at(daemon, &fork, paths, |workspace| {
        Ok(workspace.remove_paths(by, paths, recursive)?)
    })?;
    Ok(Removed {
        fork,
        removed: removed.iter().map(Into::into).collect(),
    })
}

/// Calls `look` with the fork's workspace, under the fork's lock.
pub(super) fn looking<T>(
    daemon: &Arc<Daemon>,
    name: &ForkName,
    look: impl FnOnce(&Workspace) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let slot = daemon.slot(name);
    let guard = daemon.lock_fork(&slot)?;
    look(&guard.open_existing()?.workspace)
}

/// Calls `change` with the fork's workspace. Syncs an unmounted fork to the disk before it returns.
fn changing<T>(
    daemon: &Arc<Daemon>,
    name: &ForkName,
    change: impl FnOnce(&Workspace) -> Result<T, Failure>,
) -> Result<T, Failure> {
    changing_in(daemon, name, |_, workspace| change(workspace))
}

/// Calls `change` like [`changing`], with agents' texts in the files.
///
/// Texts that agents wrote to open buffers at and below `paths` move or go with the files.
fn changing_at<T>(
    daemon: &Arc<Daemon>,
    name: &ForkName,
    paths: &[RepoPath],
    change: impl FnOnce(&Workspace) -> Result<T, Failure>,
) -> Result<T, Failure> {
    changing_in(daemon, name, |guard, workspace| {
        let (answer, _) = with_agent_texts_at(guard, paths, || change(workspace))?;
        Ok(answer)
    })
}

fn changing_in<T>(
    daemon: &Arc<Daemon>,
    name: &ForkName,
    change: impl FnOnce(&ForkGuard<'_>, &Workspace) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let slot = daemon.slot(name);
    let guard = daemon.lock_fork(&slot)?;
    let fork = guard.open_existing()?;
    let answer = change(&guard, &fork.workspace)?;
    if !guard.is_mounted() {
        fork.workspace.sync()?;
    }
    Ok(answer)
}

pub(super) fn node_line(node: PathNode) -> NodeLine {
    let PathNode {
        path,
        attr,
        link_target,
    } = node;
    let (kind, bits) = match attr.kind {
        FileKind::Regular => (NodeKind::File, libc::S_IFREG),
        FileKind::Directory => (NodeKind::Directory, libc::S_IFDIR),
        FileKind::Symlink => (NodeKind::Symlink, libc::S_IFLNK),
        FileKind::Fifo => (NodeKind::Fifo, libc::S_IFIFO),
        FileKind::Socket => (NodeKind::Socket, libc::S_IFSOCK),
        FileKind::CharDevice => (NodeKind::CharDevice, libc::S_IFCHR),
        FileKind::BlockDevice => (NodeKind::BlockDevice, libc::S_IFBLK),
    };
    NodeLine {
        path: (&path).into(),
        kind,
        mode: format!("{:06o}", bits | u32::from(attr.perm)),
        size: attr.size,
        links: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        ino: attr.ino.0,
        modified: attr.mtime.into(),
        changed: attr.ctime.into(),
        target: link_target.as_deref().map(Into::into),
    }
}
