//! Runs agents' tool calls: finds the active fork and buffers for the router.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::buffers;
use super::paths::node_line;
use crate::failure::Failure;
use crate::operation::{Call, Operation};
use crate::protocol::{
    FoundLine, Route, SearchRequest, ToolAnswer, ToolContextShown, ToolOperation,
};
use crate::state::slots::Daemon;
use crate::transfer::{Outgoing, Transfer};
use tine_path::RepoPath;
use tine_path::text::PathText;
use tine_store::ForkName;
use tine_tools::search::SearchOptions;
use tine_tools::{ActiveBuffers, ActiveFork, AgentId, BufferKey, Routed, ToolContext, ToolRouter};
use tine_workspace::Actor;

/// Runs one call of a file tool.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CallTool {
    /// Fork that the agent works in; `None` is the main checkout.
    pub fork: Option<ForkName>,
    /// True to use open buffers before files.
    pub buffers: bool,
    /// Session of the agent.
    #[serde(default)]
    pub agent: AgentId,
    /// The tool call.
    pub operation: ToolOperation,
}

impl Operation for CallTool {
    const NAME: &'static str = "tool";
    const PROGRESS: &'static str = "looking";
    type Answer = ToolAnswer;

    fn run(self, call: &Call<'_>) -> Result<ToolAnswer, Failure> {
        answer(call.daemon, call.by(), &self)
    }
}

/// Runs a tool call on fork, buffers or main checkout.
pub(crate) fn answer(
    daemon: &Arc<Daemon>,
    by: Actor<'_>,
    request: &CallTool,
) -> Result<ToolAnswer, Failure> {
    let context = ToolContext {
        fork: None,
        buffers: request.buffers.then_some(ActiveBuffers {
            buffers: &daemon.buffers,
            store: &daemon.store,
            agent: &request.agent,
        }),
        checkout_dir: daemon.repository.main_checkout(),
    };
    let operation = &request.operation;
    let answer = match &request.fork {
        None => Tools::new(daemon, by, context, false).answer(operation)?,
        Some(name) => {
            let slot = daemon.slot(name);
            let guard = daemon.lock_fork(&slot)?;
            let record = guard.record()?;
            let fork = guard.open()?;
            let active = ActiveFork {
                name,
                repository: &daemon.repository,
                fork: &fork,
                mount_dir: &record.mount_dir,
            };
            let context = ToolContext {
                fork: Some(active),
                ..context
            };
            let is_mounted = guard.is_mounted();
            let tools = Tools::new(daemon, by, context, is_mounted);
            let taken = tools.taken_away(operation)?;
            let answer = if taken.is_empty() {
                tools.answer(operation)?
            } else {
                buffers::with_agent_texts_at(&guard, &taken, || tools.answer(operation))?.0
            };
            if !is_mounted && changes(operation) {
                // No mount syncs these changes, so they must be on disk before the answer.
                fork.workspace.sync()?;
            }
            answer
        }
    };
    let answer = match answer {
        Done::Answer(answer) => answer,
        // The fork's lock is released: this waits for an editor, which may need the fork.
        Done::Merges(key) => {
            let name = key.path.as_path().to_owned();
            ToolAnswer::Buffer(buffers::merge(daemon, &key, &name, None)?)
        }
    };
    Ok(answer)
}

/// Result of a call while the fork is locked.
enum Done {
    Answer(ToolAnswer),
    /// Buffer to merge after the lock is released.
    Merges(BufferKey),
}

fn changes(operation: &ToolOperation) -> bool {
    match operation {
        ToolOperation::WriteFile { .. }
        | ToolOperation::EditFile { .. }
        | ToolOperation::DeleteFile { .. }
        | ToolOperation::MoveFile { .. }
        | ToolOperation::MergeBuffer { .. } => true,
        ToolOperation::Context
        | ToolOperation::ReadFile { .. }
        | ToolOperation::ListDirectory { .. }
        | ToolOperation::Search(_) => false,
    }
}

/// One tool call with its context.
struct Tools<'a> {
    daemon: &'a Daemon,
    by: Actor<'a>,
    router: ToolRouter<'a>,
    is_mounted: bool,
}

impl<'a> Tools<'a> {
    fn new(
        daemon: &'a Daemon,
        by: Actor<'a>,
        context: ToolContext<'a>,
        is_mounted: bool,
    ) -> Tools<'a> {
        Tools {
            daemon,
            by,
            router: ToolRouter::new(context),
            is_mounted,
        }
    }

    fn answer(&self, operation: &ToolOperation) -> Result<Done, Failure> {
        let (by, router) = (self.by, &self.router);
        Ok(Done::Answer(match operation {
            ToolOperation::Context => ToolAnswer::Context(self.context()),
            ToolOperation::ReadFile { path } => self.read(path)?,
            ToolOperation::WriteFile { path, content } => self.write(path, content)?,
            ToolOperation::EditFile { path, edits } => routed(
                router.edit_file(by, &path.to_bytes(), edits)?,
                |route, edited| ToolAnswer::Edited {
                    route,
                    path: (&edited.path).into(),
                    replaced: edited.replaced,
                    size: edited.size,
                },
            ),
            ToolOperation::DeleteFile { path } => {
                routed(router.delete_file(by, &path.to_bytes())?, |_, path| {
                    ToolAnswer::Deleted {
                        path: (&path).into(),
                    }
                })
            }
            ToolOperation::MoveFile { from, to } => {
                let moved = router.move_file(by, &from.to_bytes(), &to.to_bytes())?;
                routed(moved, |_, moved| ToolAnswer::Moved {
                    from: (&moved.from).into(),
                    to: (&moved.to).into(),
                })
            }
            ToolOperation::ListDirectory { path, deep } => routed(
                router.list_directory(&path.to_bytes(), *deep)?,
                |_, (path, nodes)| ToolAnswer::Entries {
                    path: (&path).into(),
                    entries: nodes.into_iter().map(node_line).collect(),
                },
            ),
            ToolOperation::Search(request) => self.search(request)?,
            ToolOperation::MergeBuffer { path } => {
                return Ok(
                    match router
                        .context()
                        .buffers
                        .and(router.file_key(&path.to_bytes())?)
                    {
                        Some(key) => Done::Merges(key),
                        None => Done::Answer(ToolAnswer::Passthrough),
                    },
                );
            }
        }))
    }

    /// Returns the files that the operation moves or deletes.
    fn taken_away(&self, operation: &ToolOperation) -> Result<Vec<RepoPath>, Failure> {
        let (ToolOperation::DeleteFile { path } | ToolOperation::MoveFile { from: path, .. }) =
            operation
        else {
            return Ok(Vec::new());
        };
        // If there is no such path, the operation fails with that error.
        let key = self.router.file_key(&path.to_bytes()).ok().flatten();
        Ok(key.into_iter().map(|key| key.path).collect())
    }

    fn context(&self) -> ToolContextShown {
        let context = self.router.context();
        let path = |path: &Path| PathText::from(path.as_os_str().as_bytes());
        ToolContextShown {
            fork: context.fork.map(|active| active.name.clone()),
            working_dir: self.router.working_dir().map(path),
            mounted: self.is_mounted,
            buffers: self
                .router
                .buffers()
                .iter()
                .map(|key| (&key.path).into())
                .collect(),
            environment: self
                .router
                .command_env()
                .into_iter()
                .map(|(name, value)| (name.to_owned(), path(&value)))
                .collect(),
        }
    }

    fn read(&self, path: &PathText) -> Result<ToolAnswer, Failure> {
        let mut content = Outgoing::new(self.daemon.store.dir());
        let read = self
            .router
            .read_file::<Failure>(&path.to_bytes(), &mut |piece| content.add(piece))?;
        Ok(routed(read, |route, file| ToolAnswer::File {
            route,
            path: (&file.path).into(),
            size: file.size,
            content: content.finish(),
        }))
    }

    fn write(&self, path: &PathText, content: &Transfer) -> Result<ToolAnswer, Failure> {
        if !self.router.is_active() {
            return Ok(ToolAnswer::Passthrough);
        }
        let arrived = content.take(self.daemon.store.dir())?;
        let written = self
            .router
            .write_file(self.by, &path.to_bytes(), arrived.content())?;
        Ok(routed(written, |route, written| ToolAnswer::Written {
            route,
            path: (&written.path).into(),
            size: written.size,
            created: written.created,
        }))
    }

    fn search(&self, request: &SearchRequest) -> Result<ToolAnswer, Failure> {
        let options = SearchOptions {
            pattern: request.pattern.clone(),
            path: request.path.as_ref().map(PathText::to_bytes),
            globs: request.globs.clone(),
            ignore_case: request.ignore_case,
            ignored: request.ignored,
            limit: request.limit,
        };
        Ok(routed(self.router.search(&options)?, |_, found| {
            ToolAnswer::Found {
                lines: found
                    .lines
                    .into_iter()
                    .map(|line| FoundLine {
                        path: (&line.path).into(),
                        line: line.line,
                        text: line.text,
                    })
                    .collect(),
                truncated: found.truncated,
                too_large: found.too_large.iter().map(Into::into).collect(),
            }
        }))
    }
}

fn routed<T>(outcome: Routed<T>, answer: impl FnOnce(Route, T) -> ToolAnswer) -> ToolAnswer {
    match outcome {
        Routed::Buffer(value) => answer(Route::Buffer, value),
        Routed::Fork(value) => answer(Route::Fork, value),
        Routed::Passthrough => ToolAnswer::Passthrough,
    }
}
