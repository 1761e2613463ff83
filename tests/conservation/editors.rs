//! A person with an editor that is connected to tine, and an agent that writes to the file which is
//! open there.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::marks::{Kind, MarkId, word};
use crate::oracle::Failure;
use crate::plan::Step;
use crate::support::path_text;
use crate::world::{Done, World};

const FILE: &str = "notes";
/// Of these the person changes the first ones, and the agent the last ones.
const LINES: usize = 24;
const LIMIT: Duration = Duration::from_secs(30);

/// `tine buffer serve`.
struct Connection {
    child: Child,
    input: ChildStdin,
    output: Receiver<Value>,
    last_id: u64,
    events: Vec<Value>,
}

impl Connection {
    /// Sends a message; what is answered, and nothing where the connection is of no use any more.
    fn ask(&mut self, mut message: Value) -> Option<Value> {
        self.last_id += 1;
        message["id"] = self.last_id.into();
        writeln!(self.input, "{message}")
            .and_then(|()| self.input.flush())
            .ok()?;
        loop {
            let line = self.output.recv_timeout(LIMIT).ok()?;
            if line["id"] == self.last_id {
                return Some(line);
            }
            self.events.push(line);
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub struct Editor<'w> {
    world: &'w World<'w>,
    number: usize,
    connection: Option<Connection>,
    /// What the person sees, while the file is open.
    text: Option<String>,
    version: u64,
    /// Typed and not saved.
    typed: Vec<MarkId>,
    /// What the agent wrote last.
    agent_text: Option<String>,
    lines: usize,
    is_made: bool,
}

impl<'w> Editor<'w> {
    pub fn new(world: &'w World<'w>, number: usize) -> Editor<'w> {
        Editor {
            world,
            number,
            connection: None,
            text: None,
            version: 0,
            typed: Vec::new(),
            agent_text: None,
            lines: 0,
            is_made: false,
        }
    }

    pub fn step(&mut self, step: Step) {
        if !self.is_made && !self.make() {
            return;
        }
        match step {
            Step::OpenFile => self.open(),
            Step::Type => self.type_line(),
            Step::TakeEdits => self.take_edits(),
            Step::Save => self.save(),
            Step::Close => {
                let close = self.message("close");
                self.ask(close);
                self.forget();
            }
            Step::Crash => {
                self.connection = None;
                self.forget();
            }
            Step::AgentWrites(rereads) => self.agent_writes(rereads),
            Step::AgentEdits => self.agent_edits(),
            Step::BufferMerge(both) => {
                let file = self.file();
                let mut args = vec!["buffer", "merge", path_text(&file)];
                args.extend(both.then_some(["--keep", "both"]).into_iter().flatten());
                self.tine(&args);
            }
            Step::CommitEdited => drop(self.tine(&["commit", &self.fork(), "-m", "an editor's"])),
            Step::SnapshotEdited => drop(self.tine(&["snapshot", &self.fork()])),
            Step::MergeEdited => drop(self.tine(&["merge", &self.fork(), "--into", "branch:main"])),
            other => panic!("no step of an editor's: {other:?}"),
        }
    }

    fn fork(&self) -> String {
        format!("e{}", self.number)
    }

    fn path(&self) -> String {
        format!("w{}/{FILE}", self.number)
    }

    fn file(&self) -> std::path::PathBuf {
        self.world.fork_dir(&self.fork()).join(self.path())
    }

    fn tine(&self, args: &[&str]) -> crate::world::Answer {
        self.world
            .tine(self.number, self.world.repo.dir(), args, b"")
    }

    fn make(&mut self) -> bool {
        let made = self.tine(&["new", &self.fork()]);
        let text: String = (0..LINES).map(|line| format!("line {line}:\n")).collect();
        let args = ["write", "--fork", &self.fork(), &self.path(), "--parents"];
        let written = self
            .world
            .tine(self.number, self.world.repo.dir(), &args, text.as_bytes());
        self.is_made = made.done != Done::No && written.done == Done::Yes;
        self.is_made
    }

    fn message(&self, kind: &str) -> Value {
        json!({"buffer": kind, "path": self.file()})
    }

    fn ask(&mut self, message: Value) -> Option<Value> {
        let text = message.to_string();
        let answer = self.connection.as_mut()?.ask(message);
        let shown = answer
            .as_ref()
            .map_or("no answer".to_owned(), Value::to_string);
        self.world
            .say(self.number, &format!("buffer {text}: {shown}"));
        if answer.is_none() {
            self.connection = None;
        }
        answer
    }

    /// What was typed goes with the editor.
    fn forget(&mut self) {
        for id in self.typed.drain(..) {
            self.world.marks.change(id, |mark| mark.released = true);
        }
        self.text = None;
    }

    fn open(&mut self) {
        if self.text.is_some() {
            return;
        }
        let read = self
            .world
            .entered(&self.fork())
            .and_then(|root| fs::read_to_string(root.path().join(self.path())));
        let Ok(text) = read else {
            return;
        };
        if self.connection.is_none() {
            self.connect();
        }
        let mut open = self.message("open");
        open["text"] = json!(text);
        open["saved"] = json!(true);
        if let Some(answer) = self.ask(open)
            && let Some(version) = answer["ok"]["version"].as_u64()
        {
            (self.text, self.version) = (Some(text), version);
        }
    }

    fn connect(&mut self) {
        let mut command = self.world.tine.command(&["buffer", "serve"]);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let Ok(mut child) = command.spawn() else {
            return;
        };
        let (sender, output) = channel();
        let lines = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if sender
                    .send(serde_json::from_str(&line).unwrap_or(Value::Null))
                    .is_err()
                {
                    return;
                }
            }
        });
        let attached = output
            .recv_timeout(LIMIT)
            .is_ok_and(|line| line["event"] == "attached");
        let input = child.stdin.take().expect("stdin is piped");
        let connection = Connection {
            child,
            input,
            output,
            last_id: 0,
            events: Vec::new(),
        };
        if attached {
            self.connection = Some(connection);
        }
    }

    /// The whole text, whatever version the daemon has; where a new daemon knows of nothing, the
    /// buffer is opened anew.
    fn send_text(&mut self) {
        let Some(text) = self.text.clone() else {
            return;
        };
        let mut change = self.message("change");
        change["text"] = json!(text);
        let answer = self.ask(change);
        let version = answer
            .as_ref()
            .and_then(|answer| answer["ok"]["version"].as_u64());
        if let Some(version) = version {
            self.version = version;
            return;
        }
        if self.connection.is_none() {
            self.connect();
        }
        let mut open = self.message("open");
        open["text"] = json!(text);
        open["saved"] = json!(false);
        if let Some(version) = self
            .ask(open)
            .and_then(|answer| answer["ok"]["version"].as_u64())
        {
            self.version = version;
        }
    }

    fn type_line(&mut self) {
        let Some(text) = &mut self.text else {
            return;
        };
        let id = self.world.mark(
            self.number,
            Kind::Typed,
            Some(&format!("e{}", self.number)),
            FILE,
        );
        self.lines += 1;
        let line = format!("line {}:", self.lines % (LINES / 2));
        match text.contains(&line) {
            true => *text = text.replacen(&line, &format!("{line} {}", word(id)), 1),
            // A daemon that is killed while a file is written leaves as much of it as it had been
            // given.
            false => text.push_str(&format!("{line} {}\n", word(id))),
        }
        self.typed.push(id);
        self.send_text();
    }

    fn take_edits(&mut self) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        // Answers come in order: an event that was sent before is here afterwards.
        connection.events.extend(connection.output.try_iter());
        let events = std::mem::take(&mut connection.events);
        for event in events {
            self.world.say(self.number, &format!("event {event}"));
            if event["event"] == "attached" {
                self.send_text();
            }
            if event["event"] != "edit" || event["version"] != self.version {
                continue;
            }
            let Some(text) = &mut self.text else {
                return;
            };
            let mut edited = text.clone();
            for patch in event["patches"].as_array().into_iter().flatten().rev() {
                edited = patched(&edited, patch);
            }
            let mut applied = self.message("applied");
            applied["base"] = json!(self.version);
            if let Some(answer) = self.ask(applied)
                && let Some(version) = answer["ok"]["version"].as_u64()
            {
                self.version = version;
                self.text = Some(edited);
                self.has_typed();
            }
        }
    }

    /// An agent's edit takes nothing away that the person typed.
    fn has_typed(&self) {
        let Some(text) = &self.text else {
            return;
        };
        for id in &self.typed {
            if !text.contains(&word(*id)) {
                let what = format!(
                    "{} was typed, and an agent's edit took it out of the editor",
                    word(*id)
                );
                self.world.fail(Failure::Lost(what));
            }
        }
    }

    fn save(&mut self) {
        let Some(text) = self.text.clone() else {
            return;
        };
        let path = self.path();
        let Ok(root) = self.world.entered(&self.fork()) else {
            return;
        };
        // An editor asks before it writes over a file that somebody else has changed: here it reads
        // again, and goes on.
        let on_disk = fs::read_to_string(root.path().join(&path)).unwrap_or_default();
        if has_foreign(&on_disk, &text) {
            self.world
                .say(self.number, "the file has changed: it is read again");
            let mut text = on_disk.clone();
            for id in &self.typed {
                text.push_str(&format!("{}\n", word(*id)));
            }
            self.text = Some(text);
            // So it says that it read the file, and did not take out what that lacks of an agent's.
            let mut open = self.message("open");
            open["text"] = json!(on_disk);
            open["saved"] = json!(true);
            self.ask(open);
            self.send_text();
            return;
        }
        if fs::write(root.path().join(&path), &text).is_err() && !self.save_again(&text) {
            return;
        }
        for id in self.typed.drain(..) {
            self.world.marks.change(id, |mark| mark.acknowledged = true);
        }
        let mut save = self.message("save");
        save["base"] = json!(self.version);
        self.ask(save);
    }

    /// Saves until it works: an editor that cannot write says so, and its person, who has the text,
    /// does not leave the file cut off. What the next daemon has brought into the file of an
    /// agent's it does not write over.
    fn save_again(&self, text: &str) -> bool {
        for _ in 0..20 {
            self.tine(&["mount", &self.fork()]);
            let Ok(root) = self.world.entered(&self.fork()) else {
                continue;
            };
            let place = root.path().join(self.path());
            if has_foreign(&fs::read_to_string(&place).unwrap_or_default(), text) {
                return false;
            }
            if fs::write(&place, text).is_ok() {
                return true;
            }
        }
        false
    }

    fn agent_writes(&mut self, rereads: bool) {
        let fork = self.fork();
        let path = self.path();
        if rereads || self.agent_text.is_none() {
            let answer = self.tine(&["cat", "--agent", "--fork", &fork, &path]);
            let Some(text) = answer.value["content"]["text"].as_str() else {
                return;
            };
            self.agent_text = Some(text.to_owned());
        }
        let id = self.world.mark(self.number, Kind::Line, Some(&fork), &path);
        self.lines += 1;
        let line = format!("line {}:", LINES / 2 + self.lines % (LINES / 2));
        let text = self.agent_text.as_ref().expect("it was read");
        let text = text.replacen(&line, &format!("{line} {}", word(id)), 1);
        let args = ["write", "--agent", "--fork", &fork, &path];
        let answer = self
            .world
            .tine(self.number, self.world.repo.dir(), &args, text.as_bytes());
        if answer.done == Done::Yes {
            // What its older text lacks it has taken out itself; of a file that nobody has open,
            // all: it is replaced.
            let is_taken_out = |kind| match kind {
                Kind::Line => true,
                Kind::Typed => self.text.is_none(),
                _ => false,
            };
            let kept = crate::marks::words_in(text.as_bytes());
            let own = self.number;
            let all = self.world.marks.all();
            for (other, mark) in all.iter().enumerate() {
                if mark.actor == own && is_taken_out(mark.kind) && !kept.contains(&other) {
                    self.world.marks.change(other, |mark| mark.released = true);
                }
            }
            self.world
                .marks
                .change(id, |mark| mark.acknowledged = text.contains(&word(id)));
            self.world
                .say(self.number, &format!("{} written by the agent", word(id)));
        }
        // What it has was never saved, and cannot be told from what is: it reads again.
        let has_unsaved = answer.value["error"]["code"] == "unsaved-read";
        self.agent_text = (!has_unsaved).then_some(text);
    }

    fn agent_edits(&mut self) {
        let fork = self.fork();
        let path = self.path();
        let id = self.world.mark(self.number, Kind::Line, Some(&fork), &path);
        self.lines += 1;
        let old = format!("line {}:", LINES / 2 + self.lines % (LINES / 2));
        let new = format!("{old} {}", word(id));
        let args = ["edit", "--fork", &fork, &path, "--old", &old, "--new", &new];
        if self.tine(&args).done == Done::Yes {
            self.world.marks.change(id, |mark| mark.acknowledged = true);
            self.world
                .say(self.number, &format!("{} edited by the agent", word(id)));
            // It has read the file meanwhile.
            self.agent_text = None;
        }
    }
}

impl Drop for Editor<'_> {
    fn drop(&mut self) {
        self.connection = None;
        self.forget();
    }
}

/// One patch of an event `edit`.
fn patched(text: &str, patch: &Value) -> String {
    let number = |key: &str| patch[key].as_u64().unwrap_or_default() as usize;
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let first = number("first_line").min(lines.len());
    let end = (first + number("lines")).min(lines.len());
    let new = patch["text"].as_str().unwrap_or_default();
    [&lines[..first].concat(), new, &lines[end..].concat()].concat()
}

/// Whether the file holds what the editor's text does not.
fn has_foreign(on_disk: &str, text: &str) -> bool {
    let own = crate::marks::words_in(text.as_bytes());
    !crate::marks::words_in(on_disk.as_bytes()).is_subset(&own)
}
