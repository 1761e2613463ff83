//! Buffers of editors, with real connections, mounts and editors: what an agent writes to an open
//! file comes into the editor, and nothing that a person or an agent has written is lost, whoever
//! goes away.

mod support;

#[path = "buffers/bringing.rs"]
mod bringing;
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
use support::{TestRepo, Tine, agent};
use tine::ops::Failure;
use tine::ops::protocol::BufferMerged;

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

/// An agent of which nothing is refused.
struct Agent(agent::Agent);

impl Agent {
    fn of(repo: &TestRepo, fork: Option<&str>) -> Agent {
        Agent(agent::Agent::new(repo, fork))
    }

    #[track_caller]
    fn read(&mut self, path: &str) -> String {
        let bytes = self.0.read(path).expect("it can be read");
        String::from_utf8(bytes).expect("it is a text")
    }

    #[track_caller]
    fn write(&mut self, path: &str, text: &str) {
        self.0
            .write(path, text.as_bytes())
            .expect("it can be written");
    }

    #[track_caller]
    fn edit(&mut self, path: &str, old: &str, new: &str) {
        self.0.edit(path, old, new).expect("it can be edited");
    }

    fn merge(&mut self, path: &str) -> Result<BufferMerged, Failure> {
        self.0.merge(path)
    }
}
