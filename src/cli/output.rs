//! Standard output and standard error: text or JSON, colour, quoting.
//!
//! A reader that goes away (`tine list | head -1`) is no failure: what was to be done is done by then.

use std::fmt::Write as _;
use std::io::{IsTerminal, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use schemars::JsonSchema;
use serde::Serialize;

use super::args::Global;
pub use super::table::{Cell, table};
use super::{pager, progress, terminal};
use crate::attr::Timestamp;
use crate::ops::protocol::PointInfo;
use crate::ops::transfer::{Arrived, unread};
use crate::ops::{ErrorCode, Failure};
use crate::path::text::PathText;

/// When to colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Color {
    Auto,
    Always,
    Never,
}

/// Where a command prints.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    json: bool,
    color: Color,
    /// Neither notes nor progress.
    quiet: bool,
    /// Nothing goes through a pager.
    no_pager: bool,
}

/// What a piece of text means; decides its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Good,
    Bad,
    Careful,
    Name,
    Faint,
}

impl Tone {
    pub fn escape(self) -> &'static str {
        match self {
            Tone::Good => "\x1b[32m",
            Tone::Bad => "\x1b[31m",
            Tone::Careful => "\x1b[33m",
            Tone::Name => "\x1b[1m",
            Tone::Faint => "\x1b[2m",
        }
    }
}

/// A command's failure in JSON.
#[derive(Serialize)]
pub struct FailureObject<'a> {
    error: FailureBody<'a>,
}

impl<'a> From<&'a Failure> for FailureObject<'a> {
    fn from(failure: &'a Failure) -> FailureObject<'a> {
        FailureObject {
            error: FailureBody::from(failure),
        }
    }
}

/// A failure in JSON.
#[derive(Serialize, JsonSchema)]
pub struct FailureBody<'a> {
    /// Stable, for machines.
    #[schemars(with = "String")]
    code: ErrorCode,
    message: &'a str,
    /// What lay beneath it, outermost first.
    causes: &'a [String],
    /// The paths that it is about, where they are known.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    paths: &'a [PathText],
    /// What to do next.
    hint: Option<&'a str>,
    /// The exit code of a command that fails so.
    exit: u8,
}

impl<'a> FailureBody<'a> {
    /// As a command tells it that ends with `exit`.
    fn of(failure: &'a Failure, exit: u8) -> FailureBody<'a> {
        FailureBody {
            code: failure.code,
            message: &failure.message,
            causes: &failure.causes,
            paths: &failure.paths,
            hint: failure.hint.as_deref(),
            exit,
        }
    }
}

impl<'a> From<&'a Failure> for FailureBody<'a> {
    fn from(failure: &'a Failure) -> FailureBody<'a> {
        FailureBody::of(failure, failure.exit.code())
    }
}

impl Output {
    pub fn new(json: bool, color: Color) -> Output {
        Output {
            json,
            color,
            quiet: false,
            no_pager: false,
        }
    }

    /// As the global flags say, which are known when all is parsed.
    pub fn with(self, global: &Global) -> Output {
        Output {
            quiet: global.quiet,
            no_pager: global.no_pager,
            ..self
        }
    }

    pub fn is_json(&self) -> bool {
        self.json
    }

    pub fn color(&self) -> Color {
        self.color
    }

    /// What was asked for, said to a program that decides by itself (`--color=always`); `None` for its own choice.
    pub fn color_flag(&self) -> Option<&'static str> {
        match self.color {
            Color::Auto => no_color().then_some("--color=never"),
            Color::Always => Some("--color=always"),
            Color::Never => Some("--color=never"),
        }
    }

    /// Keeps a git command from its pager, where that was asked for.
    pub fn page(&self, git: &mut Command) {
        if self.no_pager {
            // Unlike `--no-pager`, this may come after a subcommand.
            git.env("GIT_PAGER", "cat");
        }
    }

    /// `text` in the colour of its tone, where standard output is coloured.
    pub fn paint(&self, tone: Tone, text: &str) -> String {
        paint(self.has_colors(), tone, text)
    }

    /// Whether standard output is coloured.
    pub fn has_colors(&self) -> bool {
        self.colors(std::io::stdout().is_terminal())
    }

    fn colors(&self, is_terminal: bool) -> bool {
        match self.color {
            Color::Auto => {
                is_terminal && !no_color() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
            }
            Color::Always => true,
            Color::Never => false,
        }
    }

    /// Prints `bytes` on standard output.
    pub fn bytes(&self, bytes: &[u8]) -> Result<(), Failure> {
        let mut stdout = std::io::stdout().lock();
        match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::new(
                ErrorCode::Io,
                "the answer could not be written to standard output",
            )
            .cause(error.to_string())),
            _ => Ok(()),
        }
    }

    /// Prints the path of a directory on a line of its own, byte for byte, so that a shell can use it.
    pub fn path(&self, dir: &Path) -> Result<(), Failure> {
        let mut line = dir.as_os_str().as_bytes().to_vec();
        line.push(b'\n');
        self.bytes(&line)
    }

    /// Prints what has arrived, as it is read.
    pub fn arrived(&self, arrived: Arrived) -> Result<(), Failure> {
        let mut input = arrived.into_reader();
        let mut buffer = vec![0; 256 << 10];
        loop {
            match input.read(&mut buffer).map_err(|error| unread(&error))? {
                0 => return Ok(()),
                count => self.bytes(buffer.get(..count).unwrap_or_default())?,
            }
        }
    }

    /// Prints `text`, which ends with its own newline.
    pub fn text(&self, text: &str) -> Result<(), Failure> {
        self.bytes(text.as_bytes())
    }

    /// `rows` as a table that is no wider than the terminal.
    pub fn table(&self, rows: &[Vec<Cell>]) -> String {
        super::table::fitted(rows, terminal::columns())
    }

    /// Prints what may be long: where a terminal shows it through the pager that git would take.
    pub fn long(&self, text: &str) -> Result<(), Failure> {
        match self.pages() && pager::show(&mut text.as_bytes()) {
            true => Ok(()),
            false => self.text(text),
        }
    }

    /// Whether what is long goes through a pager.
    pub fn pages(&self) -> bool {
        !self.no_pager && !self.json && std::io::stdout().is_terminal()
    }

    /// Prints one JSON value on a line of its own.
    pub fn json<T: Serialize>(&self, value: &T) -> Result<(), Failure> {
        self.bytes(&json_line(value)?)
    }

    /// Prints one JSON value on standard error, for verbs whose standard output is not theirs.
    pub fn json_aside<T: Serialize>(&self, value: &T) -> Result<(), Failure> {
        // Nobody may be listening there: that is no reason to stop.
        let _ = std::io::stderr().write_all(&json_line(value)?);
        Ok(())
    }

    /// Prints `bytes` on standard error, for verbs that tell what another program said there.
    pub fn bytes_aside(&self, bytes: &[u8]) {
        // Nobody may be listening there: that is no reason to stop.
        let _ = std::io::stderr().write_all(bytes);
    }

    /// What passes on what another program says of its progress, where somebody watches.
    pub fn progress(&self) -> Option<impl FnMut(&[u8]) + use<>> {
        self.is_watched().then_some(|said: &[u8]| {
            // Nobody may be listening any more: that is no reason to stop.
            let _ = std::io::stderr().write_all(said);
        })
    }

    /// Whether somebody wants to see progress.
    fn is_watched(&self) -> bool {
        !self.json && !self.quiet && std::io::stderr().is_terminal()
    }

    /// Shows that `what` is going on until the value is dropped, if it takes long and somebody watches.
    pub fn busy(&self, what: &'static str) -> Option<progress::Busy> {
        self.is_watched().then(|| progress::Busy::with(what))
    }

    /// Says something on standard error that is no answer and no failure.
    pub fn note(&self, text: &str) {
        if !self.quiet {
            self.say(Tone::Careful, "note", text);
        }
    }

    /// Says what `word` was taken for, where it means something else, too.
    pub fn note_meaning(&self, word: &str, point: &PointInfo) {
        if !point.also.is_empty() {
            self.note(&format!(
                "{word:?} is taken for {}; it could also be {}",
                point.point,
                point.also.join(" or ")
            ));
        }
    }

    /// Says on standard error what is wrong with something that the command did not fail for, and what to do.
    pub fn trouble(&self, failure: &Failure) {
        self.say(Tone::Careful, "note", &failure.to_string());
        if let Some(hint) = &failure.hint {
            self.say(Tone::Good, "hint", hint);
        }
    }

    /// Shows a failure; the exit code it asks for.
    pub fn failure(&self, failure: &Failure) -> u8 {
        let exit = failure.exit.code();
        self.failure_as(failure, exit);
        exit
    }

    /// Shows a failure that ends the process with `exit`.
    pub fn failure_as(&self, failure: &Failure, exit: u8) {
        if self.json {
            let object = FailureObject {
                error: FailureBody::of(failure, exit),
            };
            // The exit code still tells that it failed.
            let _ = self.json(&object);
            return;
        }
        self.say(Tone::Bad, "error", &failure.message);
        for cause in &failure.causes {
            self.say(Tone::Faint, "cause", cause);
        }
        if let Some(hint) = &failure.hint {
            self.say(Tone::Good, "hint", hint);
        }
    }

    fn say(&self, tone: Tone, label: &str, text: &str) {
        let mut stderr = std::io::stderr().lock();
        let label = paint(self.colors(stderr.is_terminal()), tone, &format!("{label}:"));
        // Where standard error is closed there is nobody to tell.
        let _ = writeln!(stderr, "{label} {}", one_line(text));
    }
}

fn json_line<T: Serialize>(value: &T) -> Result<Vec<u8>, Failure> {
    let mut line = serde_json::to_vec(value).map_err(|error| {
        Failure::new(ErrorCode::Internal, "the answer cannot be told in JSON").cause(error.to_string())
    })?;
    line.push(b'\n');
    Ok(line)
}

fn paint(colors: bool, tone: Tone, text: &str) -> String {
    if colors {
        format!("{}{text}\x1b[0m", tone.escape())
    } else {
        text.to_owned()
    }
}

/// Whether the environment asks for no colour (<https://no-color.org>).
fn no_color() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

/// `text` on one line: line breaks become spaces, and other control characters, which could steer the terminal, are
/// escaped.
pub fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.trim().chars() {
        match character {
            '\n' | '\t' => line.push(' '),
            '\r' => {}
            c if c.is_control() => {
                let _ = write!(line, "\\x{:02x}", u32::from(c));
            }
            c => line.push(c),
        }
    }
    line
}

/// A repository path as git prints it: as it is, or in double quotes with C's escapes where it holds control characters,
/// quotes, backslashes or bytes that are not UTF-8.
pub fn quoted(path: &PathText) -> String {
    let bytes = path.to_bytes();
    let plain = std::str::from_utf8(&bytes)
        .ok()
        .filter(|text| !text.chars().any(|c| c.is_control() || c == '"' || c == '\\'));
    if let Some(plain) = plain {
        return plain.to_owned();
    }
    let mut quoted = String::from("\"");
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '"' => quoted.push_str("\\\""),
                '\\' => quoted.push_str("\\\\"),
                '\n' => quoted.push_str("\\n"),
                '\t' => quoted.push_str("\\t"),
                '\r' => quoted.push_str("\\r"),
                '\x07' => quoted.push_str("\\a"),
                '\x08' => quoted.push_str("\\b"),
                '\x0b' => quoted.push_str("\\v"),
                '\x0c' => quoted.push_str("\\f"),
                c if c.is_control() => push_octal(&mut quoted, c.encode_utf8(&mut [0; 4]).as_bytes()),
                c => quoted.push(c),
            }
        }
        push_octal(&mut quoted, chunk.invalid());
    }
    quoted.push('"');
    quoted
}

fn push_octal(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        let _ = write!(text, "\\{byte:03o}");
    }
}

/// Bytes as a person reads them: `0 B`, `12.3 KiB`, `4.0 GiB`.
pub fn human_size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    // 1023.95 would be shown as 1024.0 of the smaller unit.
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS.get(unit).unwrap_or(&"PiB"))
}

/// Seconds since 1970.
pub fn now_secs() -> i64 {
    Timestamp::now().secs
}

/// How long ago `then_secs` was: `now`, `5m ago`.
pub fn human_ago(then_secs: i64, now_secs: i64) -> String {
    match human_age(then_secs, now_secs) {
        age if age == "now" => age,
        age => format!("{age} ago"),
    }
}

/// The time since `then_secs` (seconds since 1970) as a person reads it: `now`, `5m`, `3h`, `12d`.
pub fn human_age(then_secs: i64, now_secs: i64) -> String {
    let seconds = now_secs.saturating_sub(then_secs);
    match seconds {
        ..60 => "now".to_owned(),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// The first characters of an object id, as git shows it.
pub fn short_id(id: &str) -> &str {
    id.get(..7).unwrap_or(id)
}

/// `1 change`, `2 changes`.
pub fn counted(count: usize, one: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        _ => format!("{count} {one}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(path: &str) -> PathText {
        PathText::Text(path.to_owned())
    }

    #[test]
    fn paths_are_quoted_as_git_does() {
        assert_eq!(quoted(&text("src/naïve file.rs")), "src/naïve file.rs");
        assert_eq!(quoted(&text("a\nb")), r#""a\nb""#);
        assert_eq!(quoted(&text("say \"hi\"\\")), r#""say \"hi\"\\""#);
        assert_eq!(quoted(&text("\x1b[31m")), r#""\033[31m""#);
        let bytes = PathText::Bytes {
            base64: "Zv9v".to_owned(),
        };
        assert_eq!(quoted(&bytes), r#""f\377o""#);
    }

    #[test]
    fn a_message_cannot_break_its_line_or_steer_the_terminal() {
        assert_eq!(one_line("two\nlines\x1b[2J\r\n"), "two lines\\x1b[2J");
    }

    #[test]
    fn sizes_and_ages_are_short() {
        let sizes: Vec<String> = [0, 1023, 1024, 1536, 1024 * 1024 - 1, 5 << 30, u64::MAX]
            .map(human_size)
            .into();
        assert_eq!(
            sizes,
            [
                "0 B",
                "1023 B",
                "1.0 KiB",
                "1.5 KiB",
                "1.0 MiB",
                "5.0 GiB",
                "16384.0 PiB"
            ]
        );
        let ages: Vec<String> = [1000, 940, 0, -99_000, -1_000_000]
            .map(|then| human_age(then, 1000))
            .into();
        assert_eq!(ages, ["now", "1m", "16m", "1d", "11d"]);
        assert_eq!(human_ago(100, 120), "now");
        assert_eq!(human_ago(0, 60), "1m ago");
        assert_eq!(human_age(i64::MIN, i64::MAX), format!("{}d", i64::MAX / 86_400));
    }
}
