//! An agent that calls file tools over the daemon's socket.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tine::client::Client;
use tine::ops::protocol::{
    BufferMerged, MovedLine, NoSaved, Removed, ToolAnswer, ToolDeleted, ToolEdited, ToolFound,
    ToolListed, ToolMoved, ToolRead, ToolWritten, WrittenLine,
};
use tine::ops::transfer::Transfer;
use tine::ops::{
    AgentOptions, EditFile, Failure, ListDirectory, MergeBuffer, MovePath, Operation, ReadFiles,
    RemovePaths, SearchFiles, WriteFile,
};
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

    /// Calls an operation as this agent.
    pub fn call<O: Operation>(&mut self, mut operation: O) -> Result<O::Answer, Failure> {
        self.client.from.command = "a tool".to_owned();
        let fork = operation.fork().expect("it works in a fork");
        fork.clone_from(&self.fork);
        let agent = operation.agent().expect("agents call it");
        agent.agent = Some(self.id.clone());
        self.client.call(&operation)
    }

    pub fn read(&mut self, path: impl AsRef<[u8]>) -> Result<Vec<u8>, Failure> {
        match self.call(ReadFiles::of(text(path)))? {
            ToolAnswer::Agents(ToolRead { content, .. }) => {
                content.take(&self.store_dir)?.into_bytes()
            }
            other => panic!("no file: {other:?}"),
        }
    }

    pub fn write(
        &mut self,
        path: impl AsRef<[u8]>,
        content: &[u8],
    ) -> Result<ToolAnswer<ToolWritten, WrittenLine>, Failure> {
        let content = Transfer::Base64(STANDARD.encode(content));
        self.call(WriteFile::of(text(path), content))
    }

    pub fn edit(
        &mut self,
        path: impl AsRef<[u8]>,
        old: &str,
        new: &str,
    ) -> Result<ToolAnswer<ToolEdited, NoSaved>, Failure> {
        let edit = TextEdit {
            old: old.to_owned(),
            new: new.to_owned(),
            replace_all: false,
        };
        self.call(EditFile::of(text(path), vec![edit]))
    }

    pub fn merge(&mut self, path: impl AsRef<[u8]>) -> Result<BufferMerged, Failure> {
        match self.call(merge_of(path))? {
            ToolAnswer::Agents(merged) => Ok(merged),
            other => panic!("no buffer: {other:?}"),
        }
    }

    pub fn delete(
        &mut self,
        path: impl AsRef<[u8]>,
    ) -> Result<ToolAnswer<ToolDeleted, Removed>, Failure> {
        self.call(RemovePaths::of(text(path)))
    }

    pub fn rename(
        &mut self,
        from: impl AsRef<[u8]>,
        to: impl AsRef<[u8]>,
    ) -> Result<ToolAnswer<ToolMoved, MovedLine>, Failure> {
        self.call(MovePath::of(text(from), text(to)))
    }

    pub fn list(&mut self, path: impl AsRef<[u8]>, deep: bool) -> Result<Vec<Vec<u8>>, Failure> {
        match self.call(ListDirectory::of(text(path), deep))? {
            ToolAnswer::Agents(ToolListed { entries, .. }) => Ok(entries
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
        let search = SearchFiles {
            fork: None,
            pattern: pattern.to_owned(),
            path: path.map(text),
            globs: Vec::new(),
            ignore_case: false,
            ignored: false,
            limit: 10_000,
            agent: AgentOptions::default(),
        };
        match self.call(search)? {
            ToolAnswer::Agents(ToolFound { lines, .. }) => {
                let lines = lines.into_iter();
                Ok(lines
                    .map(|line| (line.path.to_bytes(), line.line))
                    .collect())
            }
            other => panic!("no search: {other:?}"),
        }
    }
}

/// A call that merges the buffer of the file at `path`.
pub fn merge_of(path: impl AsRef<[u8]>) -> MergeBuffer {
    MergeBuffer {
        fork: None,
        path: text(path),
        agent: AgentOptions::default(),
    }
}

fn text(path: impl AsRef<[u8]>) -> PathText {
    PathText::from(path.as_ref())
}
