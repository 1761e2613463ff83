//! Commands with what they answer, told in a way that is the same in each run.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Output;
use std::time::Duration;

use serde_json::Value;

use super::agent::Agent;
use super::support::{OutputExt, TestRepo, Tine, run_with_timeout_of};

const LIMIT: Duration = Duration::from_secs(60);

/// The fewest hex digits of an id that is replaced.
const ABBREVIATED: usize = 7;

/// What was run, and what came of it.
pub struct Record<'r> {
    repo: &'r TestRepo,
    tine: Tine<'r>,
    text: String,
}

impl<'r> Record<'r> {
    pub fn new(repo: &'r TestRepo) -> Record<'r> {
        Record {
            repo,
            tine: Tine::new(repo),
            text: String::new(),
        }
    }

    /// Runs `tine` with these words and `--json`.
    pub fn run(&mut self, words: &str) {
        self.feed(words, "");
    }

    /// As [`Record::run`], with something on its standard input.
    pub fn feed(&mut self, words: &str, input: &str) {
        let mut args: Vec<&str> = words.split_whitespace().collect();
        args.push("--json");
        let output = run_with_timeout_of(&mut self.tine.command(&args), LIMIT, input.as_bytes());
        let _ = writeln!(self.text, "$ tine {}", args.join(" "));
        self.note_output(&output);
    }

    fn note_output(&mut self, output: &Output) {
        let printed = output.text();
        match serde_json::from_str(&printed) {
            Ok(value) => self.add(value),
            Err(_) => {
                let text = self.replaced(&printed);
                let _ = writeln!(self.text, "{text}");
            }
        }
        match output.status.code() {
            Some(0) => {}
            code => {
                let _ = writeln!(self.text, "[{code:?}]");
            }
        }
        self.text.push('\n');
    }

    /// Calls a tool of an agent's.
    pub fn call(&mut self, agent: &Agent, tool: &str, arguments: Value) {
        let answer = agent.call(tool, arguments.clone());
        self.note(
            &format!("{tool} {arguments}"),
            serde_json::to_value(answer).expect("an answer is JSON"),
        );
    }

    pub fn note(&mut self, what: &str, value: Value) {
        let _ = writeln!(self.text, "> {what}");
        self.add(value);
        self.text.push('\n');
    }

    fn add(&mut self, mut value: Value) {
        self.replace(&mut value, "");
        let text = serde_json::to_string_pretty(&value).expect("a value is JSON");
        let _ = writeln!(self.text, "{text}");
    }

    fn replace(&self, value: &mut Value, key: &str) {
        match value {
            Value::String(text) => *text = self.replaced(text),
            Value::Array(values) => values.iter_mut().for_each(|value| self.replace(value, key)),
            Value::Object(entries) => entries
                .iter_mut()
                .for_each(|(key, value)| self.replace(value, key)),
            Value::Number(_) if varies(key) => *value = Value::String("<number>".to_owned()),
            Value::Number(_) | Value::Bool(_) | Value::Null => {}
        }
    }

    /// The text without the place of the repository, and without object ids.
    fn replaced(&self, text: &str) -> String {
        let root = self.repo.root().to_string_lossy().into_owned();
        let text = text.replace(&root, "<root>");
        let mut told = String::new();
        let mut rest = text.as_str();
        while let Some(start) = rest.find(|c: char| c.is_ascii_alphanumeric()) {
            let (before, word_on) = rest.split_at(start);
            let end = word_on.find(|c: char| !c.is_ascii_alphanumeric());
            let (word, after) = word_on.split_at(end.unwrap_or(word_on.len()));
            told.push_str(before);
            told.push_str(if is_id(word) { "<id>" } else { word });
            rest = after;
        }
        told + rest
    }

    /// Compares all of it with the file of that name.
    pub fn compare(self, name: &str) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.txt"));
        if std::env::var_os("TINE_UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, &self.text).expect("the file can be written");
        }
        let golden = std::fs::read_to_string(&path).unwrap_or_default();
        for (number, (line, expected)) in self.text.lines().zip(golden.lines()).enumerate() {
            let command = self
                .text
                .lines()
                .take(number + 1)
                .filter(|line| line.starts_with(['$', '>']));
            assert_eq!(
                line,
                expected,
                "line {} of {}, after {:?}",
                number + 1,
                path.display(),
                command.last()
            );
        }
        assert_eq!(
            self.text.lines().count(),
            golden.lines().count(),
            "{}",
            path.display()
        );
    }
}

/// Whether it may be an object id. Some are abbreviated.
fn is_id(word: &str) -> bool {
    let is_hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    word.len() >= ABBREVIATED
        && word.chars().all(is_hex)
        && word.contains(|c: char| c.is_ascii_digit())
}

/// Whether the number of this key is another in each run.
fn varies(key: &str) -> bool {
    let ends = [
        "_secs",
        "_bytes",
        "_ns",
        "_ms",
        "_us",
        "secs",
        "nanos",
        "pid",
        "ino",
        "time",
        "uid",
        "gid",
        "_namespace",
        "open_files",
        "open_files_limit",
    ];
    ends.iter().any(|end| key.ends_with(end))
}
