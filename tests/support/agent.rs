//! An agent that calls file tools over the daemon's socket.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tine::client::Client;
use tine::ops;
use tine::ops::Failure;
use tine::ops::protocol::{BufferMerged, SearchRequest, ToolAnswer, ToolOperation};
use tine::ops::transfer::Transfer;
use tine::path::text::PathText;
use tine::store::ForkName;
use tine::tools::{AgentId, TextEdit};

use super::TestRepo;

/// How many agents there were.
static AGENTS: AtomicU64 = AtomicU64::new(0);

/// An agent: a connection to the daemon, and the fork that its tools work in.
pub struct Agent {
    client: Client,
    store_dir: PathBuf,
    fork: Option<ForkName>,
    /// Each agent is one of its own.
    id: AgentId,
}

impl Agent {
    /// The daemon must run.
    pub fn new(repo: &TestRepo, fork: Option<&str>) -> Agent {
        let common_dir = repo.common_dir();
        let client = Client::connect(&common_dir).expect("the daemon answers");
        Agent {
            client: client.expect("the daemon runs"),
            store_dir: common_dir.join("tine"),
            fork: fork.map(|fork| ForkName::parse(fork).expect("a good name")),
            id: AgentId(format!("agent {}", AGENTS.fetch_add(1, Ordering::Relaxed))),
        }
    }

    pub fn call(&mut self, operation: ToolOperation) -> Result<ToolAnswer, Failure> {
        self.client.from.command = "a tool".to_owned();
        self.client.call(&ops::CallTool {
            fork: self.fork.clone(),
            buffers: true,
            agent: self.id.clone(),
            operation,
        })
    }

    pub fn read(&mut self, path: impl AsRef<[u8]>) -> Result<Vec<u8>, Failure> {
        match self.call(ToolOperation::ReadFile { path: text(path) })? {
            ToolAnswer::File { content, .. } => content.take(&self.store_dir)?.into_bytes(),
            other => panic!("no file: {other:?}"),
        }
    }

    pub fn write(&mut self, path: impl AsRef<[u8]>, content: &[u8]) -> Result<ToolAnswer, Failure> {
        self.call(ToolOperation::WriteFile {
            path: text(path),
            content: Transfer::Base64(STANDARD.encode(content)),
        })
    }

    pub fn edit(
        &mut self,
        path: impl AsRef<[u8]>,
        old: &str,
        new: &str,
    ) -> Result<ToolAnswer, Failure> {
        self.call(ToolOperation::EditFile {
            path: text(path),
            edits: vec![TextEdit {
                old: old.to_owned(),
                new: new.to_owned(),
                replace_all: false,
            }],
        })
    }

    pub fn merge(&mut self, path: impl AsRef<[u8]>) -> Result<BufferMerged, Failure> {
        match self.call(ToolOperation::MergeBuffer { path: text(path) })? {
            ToolAnswer::Buffer(merged) => Ok(merged),
            other => panic!("no buffer: {other:?}"),
        }
    }

    pub fn delete(&mut self, path: impl AsRef<[u8]>) -> Result<ToolAnswer, Failure> {
        self.call(ToolOperation::DeleteFile { path: text(path) })
    }

    pub fn rename(
        &mut self,
        from: impl AsRef<[u8]>,
        to: impl AsRef<[u8]>,
    ) -> Result<ToolAnswer, Failure> {
        self.call(ToolOperation::MoveFile {
            from: text(from),
            to: text(to),
        })
    }

    pub fn list(&mut self, path: impl AsRef<[u8]>, deep: bool) -> Result<Vec<Vec<u8>>, Failure> {
        match self.call(ToolOperation::ListDirectory {
            path: text(path),
            deep,
        })? {
            ToolAnswer::Entries { entries, .. } => Ok(entries
                .into_iter()
                .map(|node| node.path.to_bytes())
                .collect()),
            other => panic!("no directory: {other:?}"),
        }
    }

    /// Paths and line numbers.
    pub fn search(
        &mut self,
        pattern: &str,
        path: Option<&[u8]>,
    ) -> Result<Vec<(Vec<u8>, u64)>, Failure> {
        let request = SearchRequest {
            pattern: pattern.to_owned(),
            path: path.map(text),
            globs: Vec::new(),
            ignore_case: false,
            ignored: false,
            limit: 10_000,
        };
        match self.call(ToolOperation::Search(request))? {
            ToolAnswer::Found { lines, .. } => {
                let lines = lines.into_iter();
                Ok(lines
                    .map(|line| (line.path.to_bytes(), line.line))
                    .collect())
            }
            other => panic!("no search: {other:?}"),
        }
    }
}

fn text(path: impl AsRef<[u8]>) -> PathText {
    PathText::from(path.as_ref())
}
