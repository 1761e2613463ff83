//! Writes files, and moves and removes paths.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{fork_as_path, fork_of, is_a_fork, only};
use crate::agents::{AgentOptions, Effect, routed, with_tools};
use crate::buffers::with_agent_texts_at;
use crate::failure::Failure;
use crate::operation::{Call, Operation, path_parser};
use crate::protocol::{
    MovedLine, Removed, ToolAnswer, ToolDeleted, ToolMoved, ToolWritten, WrittenLine,
};
use crate::state::slots::ForkGuard;
use crate::transfer::Transfer;
use tine_path::RepoPath;
use tine_path::text::PathText;
use tine_store::ForkName;
use tine_workspace::{MoveOptions, PutOptions, Workspace};

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
            return with_tools(call, self.fork, &self.agent, Effect::Write, |tools| {
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
        let fork = fork_of(call, self.fork, Some(&self.path))?;
        let path = call.path(&fork, &self.path)?;
        let options = PutOptions {
            parents: self.parents,
            executable: self.executable,
        };
        change_files(call, &fork, |_, workspace| {
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
            let effect = Effect::Unlink(&self.from);
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
        change_files_at(call, &fork, &[from.clone(), to.clone()], |workspace| {
            let moved = workspace.move_path(call.by(), &from, &to, options)?;
            Ok(ToolAnswer::Saved(MovedLine {
                fork: fork.clone(),
                from: (&moved.from).into(),
                to: (&moved.to).into(),
                replaced: moved.replaced,
            }))
        })
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
            let effect = Effect::Unlink(path);
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
        let removed = change_files_at(call, &fork, &paths, |workspace| {
            Ok(workspace.remove_paths(call.by(), &paths, self.recursive)?)
        })?;
        Ok(ToolAnswer::Saved(Removed {
            fork,
            removed: removed.iter().map(Into::into).collect(),
        }))
    }
}

/// Calls `change` with the fork's workspace, under the fork's lock.
///
/// Syncs an unmounted fork to the disk before it returns.
fn change_files<T>(
    call: &Call<'_>,
    name: &ForkName,
    change: impl FnOnce(&ForkGuard<'_>, &Workspace) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let slot = call.daemon.slot(name);
    let guard = call.daemon.lock_fork(&slot)?;
    let fork = guard.open_existing()?;
    let answer = change(&guard, &fork.workspace)?;
    guard.sync_if_unmounted(&fork)?;
    Ok(answer)
}

/// Calls `change` like [`change_files`], with agents' texts in the files.
///
/// Texts that agents wrote to open buffers at and below `paths` move or go with the files.
fn change_files_at<T>(
    call: &Call<'_>,
    name: &ForkName,
    paths: &[RepoPath],
    change: impl FnOnce(&Workspace) -> Result<T, Failure>,
) -> Result<T, Failure> {
    change_files(call, name, |guard, workspace| {
        let (answer, _) = with_agent_texts_at(guard, paths, || change(workspace))?;
        Ok(answer)
    })
}
