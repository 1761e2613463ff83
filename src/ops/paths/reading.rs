//! Shows attributes of paths, lists directories, and reads files.

use serde::{Deserialize, Serialize};

use super::{fork_of, node_line, only, with_workspace};
use crate::agents::{AgentOptions, Effect, routed, with_tools};
use crate::failure::Failure;
use crate::operation::{Call, Operation, path_parser};
use crate::protocol::{Contents, FileLine, NodeLine, Nodes, ToolAnswer, ToolListed, ToolRead};
use crate::transfer::Outgoing;
use tine_path::text::PathText;
use tine_store::ForkName;
use tine_workspace::FinalComponent;

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
        with_workspace(call.daemon, &fork, |workspace| {
            Ok(node_line(
                workspace.node_at_path(&path, FinalComponent::Keep)?,
            ))
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
            return with_tools(call, self.fork, &self.agent, Effect::Read, |tools| {
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
        let fork = fork_of(call, self.fork, Some(&self.path))?;
        let path = call.path(&fork, &self.path)?;
        let nodes = with_workspace(call.daemon, &fork, |workspace| {
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
            return with_tools(call, self.fork, &self.agent, Effect::Read, |tools| {
                let mut content = Outgoing::new(call.daemon.store.dir());
                let mut add = |bytes: &[u8]| content.add(bytes);
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
        let fork = fork_of(call, self.fork, self.paths.first())?;
        let paths = call.paths(&fork, &self.paths)?;
        let mut contents = Outgoing::new(call.daemon.store.dir());
        let mut files = Vec::with_capacity(paths.len());
        with_workspace(call.daemon, &fork, |workspace| {
            for path in &paths {
                let size = workspace.read_at(path, &mut |bytes| contents.add(bytes))?;
                files.push(FileLine {
                    path: path.into(),
                    size,
                });
            }
            Ok(())
        })?;
        Ok(ToolAnswer::Saved(Contents {
            fork,
            files,
            contents: contents.finish(),
        }))
    }
}

/// Returns the path for a request that names none: the fork's root.
fn root() -> PathText {
    PathText::from(&b"."[..])
}
