//! Agents' file tools.

use std::sync::Arc;

use crate::daemon::failure::Failure;
use crate::daemon::protocol::{Answer, Response, Route, ToolAnswer, ToolOperation, ToolRequest};
use crate::daemon::slots::Daemon;
use crate::daemon::transfer::{Arrived, Outgoing};
use crate::path::RepoPath;
use crate::tools::BufferKey;
use crate::workspace::By;

/// Does what a tool asks, where that belongs.
pub fn answer(daemon: &Arc<Daemon>, _by: By<'_>, request: &ToolRequest) -> Response {
    let key = |path: &crate::path::text::PathText| {
        Ok::<_, Failure>(BufferKey {
            fork: request.fork.clone(),
            path: RepoPath::parse(path.to_bytes())?,
        })
    };
    let answer = match &request.operation {
        ToolOperation::ReadFile { path } => daemon.buffers.read(&key(path)?).map(|text| {
            let mut content = Outgoing::new(daemon.store.dir());
            content.add(text.as_bytes())?;
            Ok::<_, Failure>(ToolAnswer::File {
                route: Route::Buffer,
                path: path.clone(),
                size: text.len() as u64,
                content: content.finish(),
            })
        }),
        ToolOperation::WriteFile { path, content } => {
            let Arrived::Bytes(bytes) = content.take(daemon.store.dir())? else {
                return Ok(Answer::Tool(Box::new(ToolAnswer::Passthrough)));
            };
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let size = text.len() as u64;
            let written = daemon
                .buffers
                .write(&daemon.store, &key(path)?, |_| Ok::<_, Failure>(text));
            written.map(|written| {
                written.map(|()| ToolAnswer::Written {
                    route: Route::Buffer,
                    path: path.clone(),
                    size,
                    created: false,
                })
            })
        }
        _ => None,
    };
    Ok(Answer::Tool(Box::new(
        answer.transpose()?.unwrap_or(ToolAnswer::Passthrough),
    )))
}
