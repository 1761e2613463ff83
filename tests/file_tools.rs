//! Agents' file tools, through the daemon: that tools, mounts, commands and editors agree on every path, that nothing leads
//! out of a fork, and that no edit is lost, whatever else goes on.

mod support;

#[path = "file_tools/agreement.rs"]
mod agreement;
#[path = "file_tools/hostile.rs"]
mod hostile;
#[path = "file_tools/load.rs"]
mod load;

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use support::TestRepo;
use tine::daemon::protocol::{Answer, Request, SearchRequest, ToolAnswer, ToolOperation, ToolRequest};
use tine::daemon::transfer::{Arrived, Transfer};
use tine::daemon::{Client, Failure};
use tine::path::text::PathText;
use tine::tools::TextEdit;
use tine::workspace::ForkName;

/// An agent: a connection to the daemon, and the fork that its tools work in.
struct Agent {
    client: Client,
    store_dir: std::path::PathBuf,
    fork: Option<ForkName>,
}

impl Agent {
    /// The daemon must run.
    fn new(repo: &TestRepo, fork: Option<&str>) -> Agent {
        let common_dir = repo.common_dir();
        let client = Client::connect(&common_dir).expect("the daemon answers");
        Agent {
            client: client.expect("the daemon runs"),
            store_dir: common_dir.join("tine"),
            fork: fork.map(|fork| ForkName::parse(fork).expect("a good name")),
        }
    }

    fn call(&mut self, operation: ToolOperation) -> Result<ToolAnswer, Failure> {
        let request = Request::Tool(Box::new(ToolRequest {
            fork: self.fork.clone(),
            buffers: true,
            operation,
            command: "a tool".to_owned(),
        }));
        match self.client.call(&request)? {
            Answer::Tool(answer) => Ok(*answer),
            other => panic!("no tool's answer: {other:?}"),
        }
    }

    fn read(&mut self, path: impl AsRef<[u8]>) -> Result<Vec<u8>, Failure> {
        match self.call(ToolOperation::ReadFile { path: text(path) })? {
            ToolAnswer::File { content, .. } => match content.take(&self.store_dir)? {
                Arrived::Bytes(bytes) => Ok(bytes),
                Arrived::File(mut file) => {
                    let mut bytes = Vec::new();
                    std::io::Read::read_to_end(&mut file, &mut bytes).expect("it can be read");
                    Ok(bytes)
                }
            },
            other => panic!("no file: {other:?}"),
        }
    }

    fn write(&mut self, path: impl AsRef<[u8]>, content: &[u8]) -> Result<ToolAnswer, Failure> {
        self.call(ToolOperation::WriteFile {
            path: text(path),
            content: Transfer::Base64(STANDARD.encode(content)),
        })
    }

    fn edit(&mut self, path: impl AsRef<[u8]>, old: &str, new: &str) -> Result<ToolAnswer, Failure> {
        self.call(ToolOperation::EditFile {
            path: text(path),
            edits: vec![TextEdit {
                old: old.to_owned(),
                new: new.to_owned(),
                replace_all: false,
            }],
        })
    }

    fn delete(&mut self, path: impl AsRef<[u8]>) -> Result<ToolAnswer, Failure> {
        self.call(ToolOperation::DeleteFile { path: text(path) })
    }

    fn rename(&mut self, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Result<ToolAnswer, Failure> {
        self.call(ToolOperation::MoveFile {
            from: text(from),
            to: text(to),
        })
    }

    fn list(&mut self, path: impl AsRef<[u8]>, deep: bool) -> Result<Vec<Vec<u8>>, Failure> {
        match self.call(ToolOperation::ListDirectory {
            path: text(path),
            deep,
        })? {
            ToolAnswer::Entries { entries, .. } => {
                Ok(entries.into_iter().map(|node| node.path.to_bytes()).collect())
            }
            other => panic!("no directory: {other:?}"),
        }
    }

    /// Paths and line numbers.
    fn search(&mut self, pattern: &str, path: Option<&[u8]>) -> Result<Vec<(Vec<u8>, u64)>, Failure> {
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
                Ok(lines.map(|line| (line.path.to_bytes(), line.line)).collect())
            }
            other => panic!("no search: {other:?}"),
        }
    }
}

fn text(path: impl AsRef<[u8]>) -> PathText {
    PathText::from(path.as_ref())
}

/// All files beneath a directory with their contents, without `.git`.
fn files_beneath(dir: &Path) -> std::collections::BTreeMap<Vec<u8>, Vec<u8>> {
    use std::os::unix::ffi::OsStrExt;
    let mut found = std::collections::BTreeMap::new();
    let mut open = vec![dir.to_owned()];
    while let Some(at) = open.pop() {
        for entry in std::fs::read_dir(&at).expect("a directory can be read") {
            let path = entry.expect("an entry can be read").path();
            if path.file_name().is_some_and(|name| name == ".git") {
                continue;
            }
            let kind = path.symlink_metadata().expect("it is there").file_type();
            if kind.is_dir() {
                open.push(path);
            } else if kind.is_file() {
                let name = path.strip_prefix(dir).expect("it is beneath").as_os_str();
                let content = std::fs::read(&path).expect("a file can be read");
                found.insert(name.as_bytes().to_vec(), content);
            }
        }
    }
    found
}
