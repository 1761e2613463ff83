//! The protocol on top of `rmcp`: lists, calls, progress, cancellation and shutdown.
//!
//! Each call runs on its own thread, so several run at a time, and a cancelled call returns at
//! once. Standard output belongs to the protocol.

use std::sync::Arc;
use std::time::Duration;
use std::{io, thread};

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ErrorData, Implementation,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ProgressNotificationParam, ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities,
    ServerConfig, Tool as ToolLine,
};
use rmcp::service::{RequestContext, RoleServer, ServerInitializeError};
use rmcp::{ServerHandler, ServiceExt};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, interval_at};

use super::call::ToolCall;
use super::session::Session;
use super::{resources, tool, tools};
use tine_ops::{ErrorCode, Failure};

/// Maximum number of concurrent calls. Others wait.
const MAX_CALLS: usize = 32;

/// Interval of progress notifications to clients that ask for them.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// The server in one line, for clients.
const DESCRIPTION: &str =
    "Copy-on-write workspaces over a git repository, one for every coding agent";

const INSTRUCTIONS: &str = "\
tine gives you a fork: your own copy-on-write workspace over this git repository. Nothing that you do in it changes the main \
checkout or the forks of others, and everything can be taken back.

Begin with `context`. Where no fork is active, `fork` makes one and lets it be active; all other tools then mean it. Paths are \
from the fork's root (`src/main.rs`).

Look with `read_file`, `list_directory` and `search`; change with `edit_file` (exact text, all edits or none) and `write_file`; \
build and test with `run`, which runs a shell command at the fork's root. File tools and commands see the same files at once.

`snapshot` marks a point before something risky and `restore` goes back to it; `undo` takes the last tool's change of files back. \
`status` and `diff` show what is uncommitted; `commit` commits all of it. `merge` brings the fork's work to the branch that it \
came from; conflicts become a review: `show_review`, `resolve_conflict` for each, `commit_review`. `update` brings in what that \
branch has got meanwhile. `handoff` gives finished commits to somebody else instead.

Failures have a stable `code`, causes, and a `hint` that says what to do next.";

/// Serves one client on standard input and output.
///
/// Blocks until the client disconnects or a signal stops the server.
///
/// # Errors
/// [`Failure`] if the server cannot start or the client does not speak the protocol.
pub fn serve(session: Arc<Session>) -> Result<(), Failure> {
    let failed = |error: io::Error| {
        Failure::new(ErrorCode::Io, "the MCP server could not start").cause(error.to_string())
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .map_err(failed)?;
    let stop = stop_on_signal().map_err(failed)?;
    let served = runtime.block_on(converse(Arc::clone(&session), stop));
    session.close();
    // The thread that reads standard input may block forever.
    runtime.shutdown_background();
    served
}

/// Returns a receiver that resolves when a signal stops the server.
fn stop_on_signal() -> io::Result<oneshot::Receiver<()>> {
    let (sender, receiver) = oneshot::channel();
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    thread::Builder::new()
        .name("mcp-signals".to_owned())
        .spawn(move || {
            if signals.forever().next().is_some() {
                // The receiver is gone if the server has already ended.
                let _ = sender.send(());
            }
        })?;
    Ok(receiver)
}

async fn converse(session: Arc<Session>, mut stop: oneshot::Receiver<()>) -> Result<(), Failure> {
    let server = Server {
        session,
        permits: Arc::new(Semaphore::new(MAX_CALLS)),
    };
    let started = tokio::select! {
        started = server.serve(rmcp::transport::stdio()) => started,
        _ = &mut stop => return Ok(()),
    };
    let running = match started {
        Ok(running) => running,
        // The client disconnected before its first message.
        Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => {
            return Err(Failure::new(
                ErrorCode::Usage,
                "the client does not speak the Model Context Protocol",
            )
            .cause(error.to_string())
            .hint("an MCP client is to start this command: docs/integrations.md tells how"));
        }
    };
    let end = running.cancellation_token();
    let waiting = running.waiting();
    tokio::pin!(waiting);
    let quit = tokio::select! {
        quit = &mut waiting => quit,
        _ = &mut stop => {
            end.cancel();
            waiting.await
        }
    };
    log::debug!("the client has gone: {quit:?}");
    Ok(())
}

struct Server {
    session: Arc<Session>,
    permits: Arc<Semaphore>,
}

impl Server {
    /// Runs `work` on its own thread, until it is done or cancelled.
    async fn run_blocking<T: Send + 'static>(
        &self,
        context: &RequestContext<RoleServer>,
        doing: Option<String>,
        work: impl FnOnce(&Session, &ToolCall) -> T + Send + 'static,
    ) -> Result<T, ErrorData> {
        let permit = tokio::select! {
            permit = Arc::clone(&self.permits).acquire_owned() => permit.map_err(|error| broken(&error))?,
            () = context.ct.cancelled() => return Err(cancelled()),
        };
        let (id, call) = self.session.begin();
        let session = Arc::clone(&self.session);
        let shared = Arc::clone(&call);
        let mut done = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let ended = Ended {
                session: &session,
                id,
            };
            work(ended.session, &shared)
        });
        let token = context
            .meta
            .get_progress_token()
            .filter(|_| doing.is_some());
        let message = doing.unwrap_or_default();
        let began = Instant::now();
        let mut ticks = interval_at(began, PROGRESS_INTERVAL);
        let mut steps = 0u32;
        loop {
            tokio::select! {
                done = &mut done => return done.map_err(|error| broken(&error)),
                () = context.ct.cancelled() => {
                    call.cancel();
                    return Err(cancelled());
                }
                _ = ticks.tick(), if token.is_some() => {
                    let Some(token) = token.clone() else { continue };
                    let progress = ProgressNotificationParam::new(token, f64::from(steps))
                        .with_message(match steps {
                            0 => message.clone(),
                            _ => format!("{message}: {} s", began.elapsed().as_secs()),
                        });
                    steps = steps.saturating_add(1);
                    // The client may have disconnected. The call goes on even so.
                    let _ = context.peer.notify_progress(progress).await;
                }
            }
        }
    }
}

/// Guard that ends the call after its work, also after a panic.
struct Ended<'s> {
    session: &'s Session,
    id: u64,
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.session.end(self.id);
    }
}

fn broken(error: &dyn std::fmt::Display) -> ErrorData {
    ErrorData::internal_error(format!("the call was not done: {error}"), None)
}

/// Returns the error of a cancelled call, which no client waits for.
fn cancelled() -> ErrorData {
    ErrorData::internal_error("the call was cancelled", None)
}

/// Converts a failure to an error of the protocol.
///
/// Tools report failures in their results instead.
fn protocol_error(failure: &Failure) -> ErrorData {
    let data = serde_json::to_value(tine_render::failure::FailureObject::from(failure)).ok();
    let message = failure.to_string();
    match failure.code {
        ErrorCode::NoSuchPath | ErrorCode::NoSuchFork | ErrorCode::NotInFork => {
            ErrorData::resource_not_found(message, data)
        }
        ErrorCode::Usage
        | ErrorCode::PathRefused
        | ErrorCode::WrongKind
        | ErrorCode::InvalidForkName => ErrorData::invalid_params(message, data),
        _ => ErrorData::internal_error(message, data),
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .build();
        let about = Implementation::new("tine", env!("CARGO_PKG_VERSION"))
            .with_title("tine")
            .with_description(DESCRIPTION);
        ServerConfig::new(capabilities)
            .with_server_info(about)
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let lines = tools::all().iter().map(|entry| entry.line.clone());
        Ok(ListToolsResult::with_all_items(lines.collect()))
    }

    fn get_tool(&self, name: &str) -> Option<ToolLine> {
        tools::find(name).map(|entry| entry.line.clone())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let entry = tools::find(&request.name).ok_or_else(|| {
            ErrorData::invalid_params(format!("there is no tool {:?}", request.name), None)
        })?;
        let mut prepared = match entry.prepare(request.arguments.unwrap_or_default()) {
            Ok(prepared) => prepared,
            Err(failure) => return Ok(tool::failed(&failure).into()),
        };
        let doing = prepared.doing.take();
        let result = self
            .run_blocking(&context, doing, |session, call| {
                prepared.call(session, call)
            })
            .await?;
        Ok(result.into())
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let listed = self
            .run_blocking(&context, None, |session, _| resources::list(session))
            .await?
            .map_err(|failure| protocol_error(&failure))?;
        Ok(ListResourcesResult::with_all_items(listed))
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(
            resources::templates(),
        ))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let read = self
            .run_blocking(&context, None, move |session, _| {
                resources::read(session, &request.uri)
            })
            .await?
            .map_err(|failure| protocol_error(&failure))?;
        Ok(read.into())
    }
}
