//! Buffers of editors, with real connections, mounts and editors: what an agent writes to an open file comes into the editor, and
//! nothing that a person or an agent has written is lost, whoever goes away.

mod support;

#[path = "buffers/keeping.rs"]
mod keeping;
#[path = "buffers/language_server.rs"]
mod language_server;
#[path = "buffers/neovim.rs"]
mod neovim;
#[path = "buffers/page.rs"]
mod page;
#[path = "buffers/protocol.rs"]
mod protocol;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use support::{TestRepo, Tine};
use tine::daemon::protocol::{Answer, Request, ToolAnswer, ToolOperation, ToolRequest};
use tine::daemon::transfer::{Arrived, Outgoing};
use tine::daemon::{Client, Failure};
use tine::path::text::PathText;
use tine::tools::TextEdit;
use tine::workspace::ForkName;

/// How long anything may take.
const LIMIT: Duration = Duration::from_secs(30);

/// A program that speaks lines, and is killed in the end.
struct Lines {
    child: Child,
    input: Option<ChildStdin>,
    output: Receiver<String>,
}

impl Lines {
    fn of(mut command: std::process::Command) -> Lines {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it can be started");
        let (sender, output) = channel();
        let lines = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Lines {
            input: child.stdin.take(),
            child,
            output,
        }
    }

    fn write(&mut self, line: &str) {
        let input = self.input.as_mut().expect("it is open");
        input
            .write_all(format!("{line}\n").as_bytes())
            .and_then(|()| input.flush())
            .expect("it reads");
    }

    #[track_caller]
    fn next(&mut self) -> Value {
        let line = self.output.recv_timeout(LIMIT).expect("a line in time");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line:?}"))
    }

    /// Closes its input, and waits for its end.
    fn finish(&mut self) {
        self.input = None;
        self.child.wait().expect("it ends");
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An editor on `tine buffer serve`.
struct Editor {
    lines: Lines,
    last_id: u64,
    events: Vec<Value>,
}

impl Editor {
    fn start(tine: &Tine<'_>) -> Editor {
        let mut editor = Editor {
            lines: Lines::of(tine.command(&["buffer", "serve"])),
            last_id: 0,
            events: Vec::new(),
        };
        assert_eq!(editor.lines.next(), json!({"event": "attached"}));
        editor
    }

    /// Sends a message; what is answered.
    #[track_caller]
    fn ask(&mut self, mut message: Value) -> Value {
        self.last_id += 1;
        message["id"] = self.last_id.into();
        self.lines.write(&message.to_string());
        loop {
            let line = self.lines.next();
            if line["id"] == self.last_id {
                return line;
            }
            self.events.push(line);
        }
    }

    /// Sends a message that must be taken; what is answered.
    #[track_caller]
    fn ok(&mut self, message: Value) -> Value {
        let answer = self.ask(message.clone());
        assert!(answer["ok"].is_object(), "{message}: {answer}");
        answer["ok"].clone()
    }

    #[track_caller]
    fn open(&mut self, path: &Path, text: &str, saved: bool) -> u64 {
        let message = json!({"buffer": "open", "path": path, "text": text, "saved": saved});
        self.ok(message)["version"].as_u64().expect("a version")
    }

    /// The next event.
    #[track_caller]
    fn event(&mut self) -> Value {
        match self.events.is_empty() {
            true => self.lines.next(),
            false => self.events.remove(0),
        }
    }

    /// The next event, which is an edit: that is applied, and said to be.
    #[track_caller]
    fn apply(&mut self, path: &Path) -> Value {
        let event = self.event();
        assert_eq!(event["event"], "edit", "{event}");
        self.ok(json!({"buffer": "applied", "path": path, "base": event["version"]}));
        event
    }
}

/// An agent: calls of tools, over the daemon's socket.
struct Agent {
    client: Client,
    store_dir: std::path::PathBuf,
    fork: Option<ForkName>,
}

impl Agent {
    fn of(repo: &TestRepo, fork: Option<&str>) -> Agent {
        let client = Client::connect(&repo.common_dir()).expect("it can be asked");
        Agent {
            client: client.expect("the daemon runs"),
            store_dir: repo.common_dir().join("tine"),
            fork: fork.map(|fork| ForkName::parse(fork).expect("a good name")),
        }
    }

    fn call(&mut self, operation: ToolOperation) -> Result<ToolAnswer, Failure> {
        let request = Request::Tool(Box::new(ToolRequest {
            fork: self.fork.clone(),
            buffers: true,
            operation,
            command: "an agent".to_owned(),
        }));
        match self.client.call(&request)? {
            Answer::Tool(answer) => Ok(*answer),
            other => panic!("not a tool's answer: {other:?}"),
        }
    }

    #[track_caller]
    fn read(&mut self, path: &str) -> String {
        let answer = self.call(ToolOperation::ReadFile {
            path: PathText::Text(path.to_owned()),
        });
        match answer.expect("it can be read") {
            ToolAnswer::File { content, .. } => match content.take(&self.store_dir).expect("it arrives") {
                Arrived::Bytes(bytes) => String::from_utf8(bytes).expect("it is a text"),
                Arrived::File(_) => panic!("it is short"),
            },
            other => panic!("no file: {other:?}"),
        }
    }

    #[track_caller]
    fn write(&mut self, path: &str, text: &str) {
        let mut content = Outgoing::new(&self.store_dir);
        content.add(text.as_bytes()).expect("it is short");
        let answer = self.call(ToolOperation::WriteFile {
            path: PathText::Text(path.to_owned()),
            content: content.finish(),
        });
        answer.expect("it can be written");
    }

    #[track_caller]
    fn edit(&mut self, path: &str, old: &str, new: &str) {
        let answer = self.call(ToolOperation::EditFile {
            path: PathText::Text(path.to_owned()),
            edits: vec![TextEdit {
                old: old.to_owned(),
                new: new.to_owned(),
                replace_all: false,
            }],
        });
        answer.expect("it can be edited");
    }

    fn merge(&mut self, path: &str) -> Result<tine::daemon::protocol::BufferMerged, Failure> {
        let answer = self.call(ToolOperation::MergeBuffer {
            path: PathText::Text(path.to_owned()),
        });
        answer.map(|answer| match answer {
            ToolAnswer::Buffer(merged) => merged,
            other => panic!("no buffer: {other:?}"),
        })
    }
}
