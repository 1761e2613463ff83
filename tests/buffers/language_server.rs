//! `scripts/editors/lsp-bridge`, with a client as editors have one.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use serde_json::{Value, json};

use super::{Agent, LIMIT};
use crate::support::{TestRepo, Tine, require_fuse, require_program, wait_until};

/// A client with one document, which does what it is asked and says so.
struct LspClient {
    child: Child,
    messages: Receiver<Value>,
    uri: String,
    text: String,
    version: u64,
}

impl LspClient {
    fn start(repo: &TestRepo) -> LspClient {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/editors/lsp-bridge");
        let mut child = repo
            .command(program, repo.dir())
            .arg("--tine")
            .arg(Tine::program())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 runs it");
        let mut output = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let (sender, messages) = channel();
        thread::spawn(move || {
            while let Some(message) = read_message(&mut output) {
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let mut client = LspClient {
            child,
            messages,
            uri: String::new(),
            text: String::new(),
            version: 0,
        };
        client.send(json!({"id": 1, "method": "initialize", "params": {"capabilities": {}}}));
        let sync = &client.next()["result"]["capabilities"]["textDocumentSync"];
        assert_eq!(sync["change"], 1);
        client
    }

    fn send(&mut self, mut message: Value) {
        message["jsonrpc"] = json!("2.0");
        let body = message.to_string();
        let input = self.child.stdin.as_mut().expect("stdin is piped");
        write!(input, "Content-Length: {}\r\n\r\n{body}", body.len())
            .and_then(|()| input.flush())
            .expect("it reads");
    }

    fn notify(&mut self, method: &str, params: Value) {
        self.send(json!({"method": method, "params": params}));
    }

    #[track_caller]
    fn next(&mut self) -> Value {
        self.messages
            .recv_timeout(LIMIT)
            .expect("a message in time")
    }

    /// The next message of that method.
    #[track_caller]
    fn next_of(&mut self, method: &str) -> Value {
        loop {
            let message = self.next();
            if message["method"] == method {
                return message;
            }
        }
    }

    fn open(&mut self, file: &Path) {
        self.uri = format!("file://{}", file.display()).replace(' ', "%20");
        self.text = fs::read_to_string(file).expect("it is there");
        let document =
            json!({"uri": self.uri, "languageId": "text", "version": 0, "text": self.text});
        self.notify("textDocument/didOpen", json!({"textDocument": document}));
    }

    fn change(&mut self, text: &str) {
        self.text = text.to_owned();
        self.version += 1;
        let document = json!({"uri": self.uri, "version": self.version});
        let changes = json!([{"text": text}]);
        self.notify(
            "textDocument/didChange",
            json!({"textDocument": document, "contentChanges": changes}),
        );
    }

    /// Takes the next edit, as an editor does: of its own version only.
    #[track_caller]
    fn apply(&mut self) {
        let request = self.next_of("workspace/applyEdit");
        let change = &request["params"]["edit"]["documentChanges"][0];
        assert_eq!(change["textDocument"]["uri"], self.uri);
        let is_current = change["textDocument"]["version"] == self.version;
        if is_current {
            let mut text = self.text.clone();
            let edits = change["edits"].as_array().expect("edits").clone();
            for edit in edits.iter().rev() {
                let place = |end: &str| offset(&text, &edit["range"][end]);
                let range = place("start")..place("end");
                text.replace_range(range, edit["newText"].as_str().expect("a text"));
            }
            self.change(&text);
        }
        self.send(json!({"id": request["id"], "result": {"applied": is_current}}));
        if !is_current {
            self.apply();
        }
    }
}

impl Drop for LspClient {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where a position is in the text, which has no character outside the basic plane.
fn offset(text: &str, position: &Value) -> usize {
    let line = position["line"].as_u64().expect("a line") as usize;
    let character = position["character"].as_u64().expect("a character") as usize;
    let start: usize = text.split_inclusive('\n').take(line).map(str::len).sum();
    let rest = &text[start..];
    start
        + rest
            .char_indices()
            .nth(character)
            .map_or(rest.len(), |(at, _)| at)
}

fn read_message(output: &mut impl BufRead) -> Option<Value> {
    let mut length = None;
    loop {
        let mut line = String::new();
        if output.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim_end() {
            "" => break,
            header => {
                let (name, value) = header.split_once(": ")?;
                if name == "Content-Length" {
                    length = value.parse().ok();
                }
            }
        }
    }
    let mut body = vec![0; length?];
    output.read_exact(&mut body).ok()?;
    serde_json::from_slice(&body).ok()
}

#[test]
fn any_editor_with_a_language_client_shares_its_files() {
    require_fuse!();
    require_program!("python3");
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    let file = dir.join("a file.txt");
    fs::write(&file, "one\ntwo\nthr\u{e9}e").expect("the mount takes it");
    let mut client = LspClient::start(&repo);
    client.open(&file);
    wait_until("the buffer is open", LIMIT, || {
        tine.json(&["buffer", "list"])["buffers"][0]["saved"] == true
    });
    let mut agent = Agent::of(&repo, Some("demo"));
    agent.read("a file.txt");
    agent.write("a file.txt", "ONE\ntwo\nthr\u{e9}e\nfour\n");
    client.apply();
    assert_eq!(client.text, "ONE\ntwo\nthr\u{e9}e\nfour\n");
    wait_until("the daemon has what the editor has", LIMIT, || {
        tine.json(&["buffer", "show", &file.display().to_string()])["agent"].is_null()
    });
    // Typed while the edit is on its way: the edit is made again for the text that is there.
    agent.edit("a file.txt", "four", "FOUR");
    client.change("ONE\nTWO\nthr\u{e9}e\nfour\n");
    client.apply();
    assert_eq!(client.text, "ONE\nTWO\nthr\u{e9}e\nFOUR\n");
    // A conflict is shown where it is, and settled by a command.
    wait_until("the daemon has what the editor has", LIMIT, || {
        agent.read("a file.txt") == "ONE\nTWO\nthr\u{e9}e\nFOUR\n"
    });
    agent.edit("a file.txt", "TWO", "agent");
    client.change("ONE\nperson\nthr\u{e9}e\nFOUR\n");
    let shown = loop {
        let message = client.next_of("textDocument/publishDiagnostics");
        let shown = message["params"]["diagnostics"].clone();
        if shown != json!([]) {
            break shown;
        }
    };
    assert_eq!(shown[0]["range"]["start"]["line"], 1, "{shown}");
    let arguments = json!([client.uri, "both"]);
    client.send(json!({"id": 7, "method": "workspace/executeCommand",
                       "params": {"command": "tine.merge", "arguments": arguments}}));
    client.apply();
    assert_eq!(client.text, "ONE\nperson\nagent\nthr\u{e9}e\nFOUR\n");
    fs::write(&file, &client.text).expect("the mount takes it");
    let uri = client.uri.clone();
    client.notify(
        "textDocument/didSave",
        json!({"textDocument": {"uri": uri}}),
    );
    wait_until("it is saved", LIMIT, || {
        tine.json(&["buffer", "list"])["buffers"][0]["saved"] == true
    });
    client.notify(
        "textDocument/didClose",
        json!({"textDocument": {"uri": uri}}),
    );
    wait_until("it is closed", LIMIT, || {
        tine.json(&["buffer", "list"]) == json!({"buffers": []})
    });
}
