//! Reads and changes a fork by path, mounted or not.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::buffers::with_agent_texts_at;
use crate::failure::Failure;
use crate::operation::{Call, Operation, path_parser};
use crate::protocol::{
    Contents, FileLine, MovedLine, NodeKind, NodeLine, Nodes, Removed, WrittenLine,
};
use crate::state::slots::{Daemon, ForkGuard};
use crate::transfer::{Outgoing, Transfer};
use tine_attr::FileKind;
use tine_path::RepoPath;
use tine_path::text::PathText;
use tine_store::ForkName;
use tine_workspace::{Actor, Last, MoveOptions, OperationError, PathNode, PutOptions, Workspace};

/// Show what is at a path of a fork, mounted or not
///
/// Kind, size, mode, owner, inode number and times, as stat(2) tells them in the mount. A symlink
/// is shown itself.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Examples:
  tine stat fix-parser src/main.rs
  tine stat fix-parser src/main.rs --json | jq .size")]
pub struct Stat {
    /// The fork
    #[arg(value_name = "FORK", required = true)]
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
/// One name a line, sorted by bytes; a file is listed itself. Symlinks are followed within the
/// fork. The fork's own .git is left out.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Examples:
  tine ls fix-parser src
  tine ls fix-parser -l
  tine ls fix-parser --json | jq -r '.nodes[].path'")]
pub struct ListEntries {
    /// The fork
    #[arg(value_name = "FORK", required = true)]
    #[serde(default)]
    pub fork: Option<ForkName>,

    /// From the fork's root, or absolute in its mount
    #[arg(value_name = "PATH", default_value = ".", value_parser = path_parser())]
    #[serde(default = "root")]
    pub path: PathText,
}

impl Operation for ListEntries {
    const NAME: &'static str = "entries";
    type Answer = Nodes;

    fn fork(&mut self) -> Option<&mut Option<ForkName>> {
        Some(&mut self.fork)
    }

    fn run(self, call: &Call<'_>) -> Result<Nodes, Failure> {
        nodes(call, self.fork, &self.path, Workspace::list_at)
    }
}

/// List every path below a directory of a fork, mounted or not
///
/// One line a path, sorted by bytes: its kind as `ls -l` has it (- file, d directory, l symlink),
/// its size, the path from the fork's root. Symlinks are not followed below PATH. The fork's own
/// .git is left out; what git ignores is not.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Examples:
  tine walk fix-parser
  tine walk fix-parser src --json | jq -r '.nodes[] | select(.kind == \"file\") | .path'")]
pub struct Walk {
    /// The fork
    #[arg(value_name = "FORK", required = true)]
    #[serde(default)]
    pub fork: Option<ForkName>,

    /// From the fork's root, or absolute in its mount
    #[arg(value_name = "PATH", default_value = ".", value_parser = path_parser())]
    #[serde(default = "root")]
    pub path: PathText,
}

impl Operation for Walk {
    const NAME: &'static str = "walk";
    type Answer = Nodes;

    fn fork(&mut self) -> Option<&mut Option<ForkName>> {
        Some(&mut self.fork)
    }

    fn run(self, call: &Call<'_>) -> Result<Nodes, Failure> {
        nodes(call, self.fork, &self.path, Workspace::walk_at)
    }
}

/// Print files of a fork, mounted or not
///
/// Byte for byte, one after the other, as the mount would show them; nothing is printed if one of
/// them cannot be read. Symlinks are followed within the fork. With --json a content is {"text": …}
/// or, where it is not UTF-8, {"base64": …}.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Examples:
  tine cat fix-parser src/main.rs
  tine cat fix-parser logo.png > logo.png")]
pub struct ReadFiles {
    /// The fork
    #[arg(value_name = "FORK", required = true)]
    #[serde(default)]
    pub fork: Option<ForkName>,

    /// From the fork's root, or absolute in its mount
    #[arg(value_name = "PATH", required = true, value_parser = path_parser())]
    pub paths: Vec<PathText>,
}

impl Operation for ReadFiles {
    const NAME: &'static str = "read";
    type Answer = Contents;

    fn fork(&mut self) -> Option<&mut Option<ForkName>> {
        Some(&mut self.fork)
    }

    fn run(self, call: &Call<'_>) -> Result<Contents, Failure> {
        let fork = call.fork(self.fork)?;
        let paths = call.paths(&fork, &self.paths)?;
        read(call.daemon, fork, &paths)
    }
}

/// Write a file of a fork, mounted or not
///
/// The content comes from standard input, or from --file. It takes the place of the old one in one
/// step: nobody sees half of it. The file keeps its mode; what is not a regular file is refused.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Examples:
  tine write fix-parser notes.md < notes.md
  tine write fix-parser tools/run.sh -p --executable --file run.sh")]
pub struct Write {
    /// The fork
    #[arg(value_name = "FORK", required = true)]
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
    #[arg(short = 'x', long)]
    #[serde(default)]
    pub executable: bool,

    /// The content, on its way to the daemon.
    #[arg(skip)]
    pub content: Transfer,
}

impl Operation for Write {
    const NAME: &'static str = "write";
    const PROGRESS: &'static str = "writing";
    type Answer = WrittenLine;

    fn fork(&mut self) -> Option<&mut Option<ForkName>> {
        Some(&mut self.fork)
    }

    fn run(self, call: &Call<'_>) -> Result<WrittenLine, Failure> {
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
            Ok(WrittenLine {
                fork: fork.clone(),
                path: (&written.path).into(),
                size: written.size,
                created: written.created,
            })
        })
    }
}

/// Move or rename a path of a fork, mounted or not
///
/// One step, whatever is below. It goes into DST where that is a directory. An existing file is
/// replaced with --force only, a directory never. Modes, times and inode numbers stay.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Examples:
  tine mv fix-parser src/old.rs src/new.rs
  tine mv fix-parser src/lexer lib/")]
pub struct Move {
    /// The fork
    #[arg(value_name = "FORK", required = true)]
    #[serde(default)]
    pub fork: Option<ForkName>,

    /// From the fork's root, or absolute in its mount
    #[arg(value_name = "SRC", value_parser = path_parser())]
    pub from: PathText,

    /// The new path, or a directory to move into
    #[arg(value_name = "DST", value_parser = path_parser())]
    pub to: PathText,

    /// Replace a file that is there
    #[arg(short, long)]
    pub force: bool,
}

impl Operation for Move {
    const NAME: &'static str = "move";
    type Answer = MovedLine;

    fn fork(&mut self) -> Option<&mut Option<ForkName>> {
        Some(&mut self.fork)
    }

    fn run(self, call: &Call<'_>) -> Result<MovedLine, Failure> {
        let fork = call.fork(self.fork)?;
        let options = MoveOptions {
            force: self.force,
            into: self.to.to_bytes().ends_with(b"/"),
            parents: false,
        };
        let (from, to) = (call.path(&fork, &self.from)?, call.path(&fork, &self.to)?);
        rename(call.daemon, call.by(), &fork, (&from, &to), options)
    }
}

/// Remove paths of a fork, mounted or not
///
/// All of them in one step, or nothing. A directory goes with everything below it, with -r only; a
/// symlink goes itself.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Examples:
  tine rm fix-parser src/old.rs notes.md
  tine rm -r fix-parser target")]
pub struct Remove {
    /// The fork
    #[arg(value_name = "FORK", required = true)]
    #[serde(default)]
    pub fork: Option<ForkName>,

    /// From the fork's root, or absolute in its mount
    #[arg(value_name = "PATH", required = true, value_parser = path_parser())]
    pub paths: Vec<PathText>,

    /// Remove directories, with everything below them
    #[arg(short, long)]
    pub recursive: bool,
}

impl Operation for Remove {
    const NAME: &'static str = "remove";
    const PROGRESS: &'static str = "removing";
    type Answer = Removed;

    fn fork(&mut self) -> Option<&mut Option<ForkName>> {
        Some(&mut self.fork)
    }

    fn frees_space(&self) -> bool {
        true
    }

    fn run(self, call: &Call<'_>) -> Result<Removed, Failure> {
        let fork = call.fork(self.fork)?;
        let paths = call.paths(&fork, &self.paths)?;
        remove(call.daemon, call.by(), fork, &paths, self.recursive)
    }
}

/// Returns the path for a request that names none: the fork's root.
fn root() -> PathText {
    PathText::from(&b"."[..])
}

fn nodes(
    call: &Call<'_>,
    named: Option<ForkName>,
    path: &PathText,
    list: impl FnOnce(&Workspace, &RepoPath) -> Result<Vec<PathNode>, OperationError>,
) -> Result<Nodes, Failure> {
    let fork = call.fork(named)?;
    let path = call.path(&fork, path)?;
    let nodes = looking(call.daemon, &fork, |workspace| Ok(list(workspace, &path)?))?;
    Ok(Nodes {
        fork,
        nodes: nodes.into_iter().map(node_line).collect(),
    })
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
