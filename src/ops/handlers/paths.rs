//! Looking at and changing a fork by path, mounted or not.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::buffers::with_agent_texts_at;
use crate::failure::Failure;
use crate::operation::{Call, Operation};
use crate::protocol::{
    Contents, FileLine, MovedLine, NodeKind, NodeLine, Nodes, Removed, WriteRequest, WrittenLine,
};
use crate::slots::Daemon;
use crate::transfer::Outgoing;
use tine_attr::FileKind;
use tine_path::RepoPath;
use tine_path::text::PathText;
use tine_workspace::{By, ForkName, Last, MoveOptions, PathNode, PutOptions, Workspace};

/// What is at a path; a symlink is not followed at its end.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Stat {
    pub fork: ForkName,
    pub path: PathText,
}

impl Operation for Stat {
    const NAME: &'static str = "stat";
    type Answer = Nodes;

    fn run(self, call: &Call<'_>) -> Result<Nodes, Failure> {
        stat(call.daemon, &self.fork, &self.path)
    }
}

/// What a directory holds; of anything else itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ListEntries {
    pub fork: ForkName,
    pub path: PathText,
    /// All beneath.
    pub deep: bool,
}

impl Operation for ListEntries {
    const NAME: &'static str = "entries";
    type Answer = Nodes;

    fn run(self, call: &Call<'_>) -> Result<Nodes, Failure> {
        entries(call.daemon, &self.fork, &self.path, self.deep)
    }
}

/// The contents of regular files.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReadFiles {
    pub fork: ForkName,
    pub paths: Vec<PathText>,
}

impl Operation for ReadFiles {
    const NAME: &'static str = "read";
    type Answer = Contents;

    fn run(self, call: &Call<'_>) -> Result<Contents, Failure> {
        read(call.daemon, &self.fork, &self.paths)
    }
}

impl Operation for WriteRequest {
    const NAME: &'static str = "write";
    const DOING: &'static str = "writing";
    type Answer = WrittenLine;

    fn run(self, call: &Call<'_>) -> Result<WrittenLine, Failure> {
        write(call.daemon, call.by(), &self)
    }
}

/// Moves what is at a path, into a directory that is there.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Move {
    pub fork: ForkName,
    pub from: PathText,
    pub to: PathText,
    /// `to` must be a directory.
    pub into: bool,
    pub force: bool,
}

impl Operation for Move {
    const NAME: &'static str = "move";
    type Answer = MovedLine;

    fn run(self, call: &Call<'_>) -> Result<MovedLine, Failure> {
        let options = MoveOptions {
            force: self.force,
            into: self.into,
            parents: false,
        };
        rename(
            call.daemon,
            call.by(),
            &self.fork,
            (&self.from, &self.to),
            options,
        )
    }
}

/// Removes all of these, or nothing.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Remove {
    pub fork: ForkName,
    pub paths: Vec<PathText>,
    pub recursive: bool,
}

impl Operation for Remove {
    const NAME: &'static str = "remove";
    const DOING: &'static str = "removing";
    type Answer = Removed;

    fn frees_space(&self) -> bool {
        true
    }

    fn run(self, call: &Call<'_>) -> Result<Removed, Failure> {
        remove(call.daemon, call.by(), &self.fork, &self.paths, self.recursive)
    }
}

pub fn stat(daemon: &Arc<Daemon>, name: &ForkName, path: &PathText) -> Result<Nodes, Failure> {
    let path = parse(path)?;
    looking(daemon, name, |workspace| {
        let node = workspace.look_at(&path, Last::Keep)?;
        Ok(Nodes {
            nodes: vec![node_line(node)],
        })
    })
}

pub fn entries(daemon: &Arc<Daemon>, name: &ForkName, path: &PathText, deep: bool) -> Result<Nodes, Failure> {
    let path = parse(path)?;
    looking(daemon, name, |workspace| {
        let nodes = match deep {
            true => workspace.walk_at(&path)?,
            false => workspace.list_at(&path)?,
        };
        Ok(Nodes {
            nodes: nodes.into_iter().map(node_line).collect(),
        })
    })
}

pub fn read(daemon: &Arc<Daemon>, name: &ForkName, paths: &[PathText]) -> Result<Contents, Failure> {
    let paths = parse_all(paths)?;
    looking(daemon, name, |workspace| {
        let mut contents = Outgoing::new(daemon.store.dir());
        let mut files = Vec::with_capacity(paths.len());
        for path in &paths {
            let size = workspace.read_at(path, &mut |piece| contents.add(piece))?;
            files.push(FileLine {
                path: path.into(),
                size,
            });
        }
        Ok(Contents {
            files,
            contents: contents.finish(),
        })
    })
}

pub fn write(daemon: &Arc<Daemon>, by: By<'_>, request: &WriteRequest) -> Result<WrittenLine, Failure> {
    let path = parse(&request.path)?;
    let options = PutOptions {
        parents: request.parents,
        executable: request.executable,
    };
    changing(daemon, &request.fork, |workspace| {
        // Not before it is this request's turn: who is sent to the next daemon still has it.
        let arrived = request.content.take(daemon.store.dir())?;
        let written = workspace.put_file(by, &path, arrived.content(), options)?;
        Ok(WrittenLine {
            fork: request.fork.clone(),
            path: (&written.path).into(),
            size: written.size,
            created: written.created,
        })
    })
}

pub fn rename(
    daemon: &Arc<Daemon>,
    by: By<'_>,
    name: &ForkName,
    (from, to): (&PathText, &PathText),
    options: MoveOptions,
) -> Result<MovedLine, Failure> {
    let (from, to) = (parse(from)?, parse(to)?);
    changing_at(daemon, name, &[from.clone(), to.clone()], |workspace| {
        let moved = workspace.move_path(by, &from, &to, options)?;
        Ok(MovedLine {
            fork: name.clone(),
            from: (&moved.from).into(),
            to: (&moved.to).into(),
            replaced: moved.replaced,
        })
    })
}

pub fn remove(
    daemon: &Arc<Daemon>,
    by: By<'_>,
    name: &ForkName,
    paths: &[PathText],
    recursive: bool,
) -> Result<Removed, Failure> {
    let paths = parse_all(paths)?;
    changing_at(daemon, name, &paths, |workspace| {
        let removed = workspace.remove_paths(by, &paths, recursive)?;
        Ok(Removed {
            paths: removed.iter().map(Into::into).collect(),
        })
    })
}

/// Runs `look` on the fork.
pub(super) fn looking<T>(
    daemon: &Arc<Daemon>,
    name: &ForkName,
    look: impl FnOnce(&Workspace) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let slot = daemon.slot(name);
    let turn = daemon.turn(&slot)?;
    look(&turn.open_existing()?.workspace)
}

/// Runs `change` on the fork. What no mount keeps open is on the disk before this returns.
fn changing<T>(
    daemon: &Arc<Daemon>,
    name: &ForkName,
    change: impl FnOnce(&Workspace) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let slot = daemon.slot(name);
    let turn = daemon.turn(&slot)?;
    let fork = turn.open_existing()?;
    let answer = change(&fork.workspace)?;
    if !turn.is_mounted() {
        fork.workspace.sync()?;
    }
    Ok(answer)
}

/// As [`changing`], of what agents wrote to open buffers at and beneath `paths`, too: it goes where the files go.
fn changing_at<T>(
    daemon: &Arc<Daemon>,
    name: &ForkName,
    paths: &[RepoPath],
    change: impl FnOnce(&Workspace) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let slot = daemon.slot(name);
    let turn = daemon.turn(&slot)?;
    let fork = turn.open_existing()?;
    let (answer, _) = with_agent_texts_at(&turn, paths, || change(&fork.workspace))?;
    if !turn.is_mounted() {
        fork.workspace.sync()?;
    }
    Ok(answer)
}

pub(super) fn parse(path: &PathText) -> Result<RepoPath, Failure> {
    Ok(RepoPath::parse(path.to_bytes())?)
}

fn parse_all(paths: &[PathText]) -> Result<Vec<RepoPath>, Failure> {
    paths.iter().map(parse).collect()
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
