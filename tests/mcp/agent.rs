//! An agent: a client with a server of its own.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, ClientRequest,
    ProgressNotificationParam, Resource, ServerPeerInfo, ServerResult, Tool,
};
use rmcp::service::{
    NotificationContext, Peer, PeerRequestOptions, RequestHandle, RoleClient, RunningService,
    ServiceError,
};
use rmcp::transport::TokioChildProcess;
use rmcp::{ClientHandler, ServiceExt};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::support::Tine;

/// How long a server may take for anything that a test asks.
const LIMIT: Duration = Duration::from_secs(60);

/// What a server says without being asked.
#[derive(Clone, Default)]
pub struct Listener {
    progress: Arc<Mutex<Vec<ProgressNotificationParam>>>,
}

impl ClientHandler for Listener {
    async fn on_progress(
        &self,
        said: ProgressNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        self.progress.lock().push(said);
    }
}

/// Dropping it ends the server.
pub struct Agent {
    service: Option<RunningService<RoleClient, Listener>>,
    listener: Listener,
    runtime: Runtime,
}

impl Agent {
    /// Starts `tine mcp` with `args`, in the checkout.
    pub fn start(tine: &Tine, args: &[&str]) -> Agent {
        let words: Vec<&str> = ["mcp"].iter().chain(args).copied().collect();
        Agent::over(tine.command(&words))
    }

    pub fn over(command: std::process::Command) -> Agent {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let listener = Listener::default();
        let heard = listener.clone();
        let service = runtime.block_on(async {
            let server = TokioChildProcess::new(tokio::process::Command::from(command))
                .expect("tine starts");
            tokio::time::timeout(LIMIT, heard.serve(server))
                .await
                .expect("the server answers")
                .expect("the server speaks the protocol")
        });
        Agent {
            service: Some(service),
            listener,
            runtime,
        }
    }

    fn peer(&self) -> Peer<RoleClient> {
        self.service.as_ref().expect("it is running").peer().clone()
    }

    /// Waits for an answer, with a time limit.
    pub fn wait<T>(
        &self,
        answer: impl Future<Output = Result<T, ServiceError>>,
    ) -> Result<T, ServiceError> {
        self.runtime.block_on(async {
            tokio::time::timeout(LIMIT, answer)
                .await
                .expect("the server answers in time")
        })
    }

    pub fn server(&self) -> ServerPeerInfo {
        let info = self.peer().peer_info().expect("it has introduced itself");
        (*info).clone()
    }

    pub fn tools(&self) -> Vec<Tool> {
        self.wait(self.peer().list_all_tools())
            .expect("tools are listed")
    }

    pub fn resources(&self) -> Vec<Resource> {
        self.wait(self.peer().list_all_resources())
            .expect("resources are listed")
    }

    /// The contents of a resource, as JSON.
    pub fn resource(&self, uri: &str) -> Result<Value, ServiceError> {
        let request = rmcp::model::ReadResourceRequestParams::new(uri);
        let read = self.wait(self.peer().read_resource(request))?;
        Ok(serde_json::to_value(&read).expect("an answer is JSON")["contents"][0].clone())
    }

    /// Begins a call, with a token for its progress.
    pub fn begin(&self, tool: &str, arguments: Value) -> RequestHandle<RoleClient> {
        let Value::Object(arguments) = arguments else {
            panic!("arguments are an object");
        };
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let peer = self.peer();
        self.wait(async move {
            peer.send_cancellable_request(request, PeerRequestOptions::no_options())
                .await
        })
        .expect("the server takes requests")
    }

    /// Waits for a call's end.
    pub fn finish(&self, call: RequestHandle<RoleClient>) -> Result<CallToolResult, ServiceError> {
        match self.wait(call.await_response())? {
            ServerResult::CallToolResult(result) => Ok(result),
            other => panic!("a tool was answered with {other:?}"),
        }
    }

    pub fn cancel(&self, call: RequestHandle<RoleClient>) {
        self.wait(call.cancel(Some("a test".to_owned())))
            .expect("the server takes notifications");
    }

    pub fn call(&self, tool: &str, arguments: Value) -> CallToolResult {
        let call = self.begin(tool, arguments);
        self.finish(call).expect("a tool answers")
    }

    /// Calls a tool, which must not fail; its structured answer.
    #[track_caller]
    pub fn ok(&self, tool: &str, arguments: Value) -> Value {
        let result = self.call(tool, arguments);
        assert_ne!(result.is_error, Some(true), "{tool}: {result:?}");
        assert!(!said(&result).is_empty(), "{tool} says nothing in words");
        result.structured_content.expect("answers are structured")
    }

    /// Calls a tool, which must fail with `code`; the whole error.
    #[track_caller]
    pub fn fails(&self, code: &str, tool: &str, arguments: Value) -> Value {
        let result = self.call(tool, arguments.clone());
        assert_eq!(
            result.is_error,
            Some(true),
            "{tool} {arguments}: {result:?}"
        );
        let words = said(&result);
        let structured = result.structured_content.expect("failures are structured");
        let error = structured["error"].clone();
        assert_eq!(error["code"], code, "{tool} {arguments}: {error}");
        let message = error["message"].as_str().expect("a failure has a message");
        assert!(words.contains(message) && words.contains(code), "{words}");
        error
    }

    /// What the server has said of progress so far.
    pub fn progress(&self) -> Vec<ProgressNotificationParam> {
        self.listener.progress.lock().clone()
    }

    /// A fork that is made and active; its mount.
    pub fn fork(&self, name: &str) -> std::path::PathBuf {
        let made = self.ok("fork", json!({ "name": name }));
        made["mount_dir"].as_str().expect("a path").into()
    }

    /// Closes the server's standard input and waits for its end.
    pub fn leave(mut self) {
        if let Some(service) = self.service.take() {
            let leave = async { tokio::time::timeout(LIMIT, service.cancel()).await };
            let left = self.runtime.block_on(leave);
            left.expect("the server ends").expect("the client ends");
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if let Some(service) = self.service.take() {
            // A test that panics has other trouble.
            let leave = async { tokio::time::timeout(LIMIT, service.cancel()).await };
            let _ = self.runtime.block_on(leave);
        }
    }
}

/// A result in words.
pub fn said(result: &CallToolResult) -> String {
    result
        .content
        .iter()
        .filter_map(|block| block.as_text())
        .map(|text| text.text.clone())
        .collect()
}
