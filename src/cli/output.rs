//! Standard output and standard error: text or JSON, colour, quoting.
//!
//! A reader that closes the pipe (`tine list | head -1`) is not a failure: the command has done its
//! work by then.

use std::io::{IsTerminal, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use serde::Serialize;

use super::global::{Color, Global};
pub(super) use super::table::{Cell, table};
use super::{pager, progress, terminal};
use crate::ops::protocol::PointInfo;
use crate::ops::transfer::{Arrived, unread};
use crate::ops::{ErrorCode, Failure};
use crate::render::failure::FailureBody;
use crate::render::failure::FailureObject;
use crate::render::text::one_line;

/// Settings for everything that a command prints.
#[derive(Debug, Clone, Copy)]
pub(super) struct Output {
    json: bool,
    color: Color,
    /// True if neither notes nor progress are printed.
    quiet: bool,
    /// True if nothing goes through a pager.
    no_pager: bool,
}

/// Meaning of a piece of text, which decides its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    Good,
    Bad,
    Careful,
    Name,
    Faint,
}

impl Tone {
    pub(super) fn escape(self) -> &'static str {
        match self {
            Tone::Good => "\x1b[32m",
            Tone::Bad => "\x1b[31m",
            Tone::Careful => "\x1b[33m",
            Tone::Name => "\x1b[1m",
            Tone::Faint => "\x1b[2m",
        }
    }
}

impl Output {
    pub(super) fn new(json: bool, color: Color) -> Output {
        Output {
            json,
            color,
            quiet: false,
            no_pager: false,
        }
    }

    /// Applies the global flags, which are known after the parse.
    pub(super) fn with(self, global: &Global) -> Output {
        Output {
            quiet: global.quiet,
            no_pager: global.no_pager,
            ..self
        }
    }

    pub(super) fn is_json(&self) -> bool {
        self.json
    }

    pub(super) fn color(&self) -> Color {
        self.color
    }

    /// Returns the colour flag for a program that decides by itself (`--color=always`).
    ///
    /// `None` leaves the choice to the program.
    pub(super) fn color_flag(&self) -> Option<&'static str> {
        match self.color {
            Color::Auto => no_color().then_some("--color=never"),
            Color::Always => Some("--color=always"),
            Color::Never => Some("--color=never"),
        }
    }

    /// Disables the pager of a git command if `--no-pager` was given.
    pub(super) fn page(&self, git: &mut Command) {
        if self.no_pager {
            // Unlike `--no-pager`, this works before any subcommand.
            git.env("GIT_PAGER", "cat");
        }
    }

    /// Colours `text` by its tone, if standard output is coloured.
    pub(super) fn paint(&self, tone: Tone, text: &str) -> String {
        paint(self.has_colors(), tone, text)
    }

    /// Returns whether standard output is coloured.
    pub(super) fn has_colors(&self) -> bool {
        self.colors(std::io::stdout().is_terminal())
    }

    fn colors(&self, is_terminal: bool) -> bool {
        match self.color {
            Color::Auto => {
                is_terminal
                    && !no_color()
                    && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
            }
            Color::Always => true,
            Color::Never => false,
        }
    }

    /// Prints `bytes` on standard output.
    pub(super) fn bytes(&self, bytes: &[u8]) -> Result<(), Failure> {
        let mut stdout = std::io::stdout().lock();
        match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::new(
                ErrorCode::Io,
                "the answer could not be written to standard output",
            )
            .cause(error.to_string())
            .hint("what the command did stays done; only its answer is missing")),
            _ => Ok(()),
        }
    }

    /// Prints a directory's path on one line, byte for byte.
    pub(super) fn path(&self, dir: &Path) -> Result<(), Failure> {
        let mut line = dir.as_os_str().as_bytes().to_vec();
        line.push(b'\n');
        self.bytes(&line)
    }

    /// Prints the content of a transfer while reading it.
    pub(super) fn arrived(&self, arrived: Arrived) -> Result<(), Failure> {
        let mut input = arrived.into_reader();
        let mut buffer = vec![0; 256 << 10];
        loop {
            match input.read(&mut buffer).map_err(|error| unread(&error))? {
                0 => return Ok(()),
                count => self.bytes(buffer.get(..count).unwrap_or_default())?,
            }
        }
    }

    /// Prints `text`, which ends with a newline.
    pub(super) fn text(&self, text: &str) -> Result<(), Failure> {
        self.bytes(text.as_bytes())
    }

    /// Formats `rows` as a table that is no wider than the terminal.
    pub(super) fn table(&self, rows: &[Vec<Cell>]) -> String {
        super::table::fitted(rows, terminal::columns())
    }

    /// Prints text that may be long. On a terminal, git's pager shows it.
    pub(super) fn long(&self, text: &str) -> Result<(), Failure> {
        if self.pages() && pager::show(&mut text.as_bytes()) {
            Ok(())
        } else {
            self.text(text)
        }
    }

    /// Returns whether long text goes through a pager.
    pub(super) fn pages(&self) -> bool {
        !self.no_pager && !self.json && std::io::stdout().is_terminal()
    }

    /// Prints one JSON value on one line.
    pub(super) fn json<T: Serialize>(&self, value: &T) -> Result<(), Failure> {
        self.bytes(&json_line(value)?)
    }

    /// Prints the answer as JSON, or else the text from `text`.
    pub(super) fn json_or_text(
        &self,
        answer: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        self.json_or(answer, || self.text(&text()))
    }

    /// Prints the answer as JSON, or else calls `print`.
    pub(super) fn json_or(
        &self,
        answer: &impl Serialize,
        print: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        if self.json {
            self.json(answer)
        } else {
            print()
        }
    }

    /// Prints one JSON value on standard error.
    ///
    /// For verbs whose standard output belongs to another program.
    pub(super) fn json_aside<T: Serialize>(&self, value: &T) -> Result<(), Failure> {
        // A closed standard error is not a reason to stop.
        let _ = std::io::stderr().write_all(&json_line(value)?);
        Ok(())
    }

    /// Prints `bytes` on standard error, as another program wrote them there.
    pub(super) fn bytes_aside(&self, bytes: &[u8]) {
        // A closed standard error is not a reason to stop.
        let _ = std::io::stderr().write_all(bytes);
    }

    /// Calls `run` with a writer for another program's progress.
    ///
    /// There is none if progress is not shown.
    pub(super) fn with_progress<T>(
        &self,
        run: impl FnOnce(Option<&mut dyn FnMut(&[u8])>) -> T,
    ) -> T {
        let mut write = |bytes: &[u8]| self.bytes_aside(bytes);
        if self.is_watched() {
            run(Some(&mut write))
        } else {
            run(None)
        }
    }

    /// Returns whether progress is shown.
    fn is_watched(&self) -> bool {
        !self.json && !self.quiet && std::io::stderr().is_terminal()
    }

    /// Shows that `what` is in progress until the value is dropped.
    ///
    /// Shows nothing if progress is off, or if it is dropped soon.
    pub(super) fn busy(&self, what: &'static str) -> Option<progress::Busy> {
        self.is_watched().then(|| progress::Busy::with(what))
    }

    /// Prints a note on standard error.
    pub(super) fn note(&self, text: &str) {
        if !self.quiet {
            self.print_labelled(Tone::Careful, "note", text);
        }
    }

    /// Notes the meaning taken for `word`, if it has others.
    pub(super) fn note_meaning(&self, word: &str, point: &PointInfo) {
        if !point.also.is_empty() {
            self.note(&format!(
                "{word:?} is taken for {}; it could also be {}",
                point.point,
                point.also.join(" or ")
            ));
        }
    }

    /// Notes a problem that did not fail the command, with its hint.
    pub(super) fn trouble(&self, failure: &Failure) {
        self.print_labelled(Tone::Careful, "note", &failure.to_string());
        if let Some(hint) = &failure.hint {
            self.print_labelled(Tone::Good, "hint", hint);
        }
    }

    /// Prints a failure and returns its exit code.
    pub(super) fn failure(&self, failure: &Failure) -> u8 {
        let exit = failure.exit.code();
        self.failure_as(failure, exit);
        exit
    }

    /// Prints a failure that ends the process with `exit`.
    pub(super) fn failure_as(&self, failure: &Failure, exit: u8) {
        if self.json {
            let object = FailureObject {
                error: FailureBody::of(failure, exit),
            };
            // If this fails, the exit code still shows the failure.
            let _ = self.json(&object);
            return;
        }
        self.print_labelled(Tone::Bad, "error", &failure.message);
        for cause in &failure.causes {
            self.print_labelled(Tone::Faint, "cause", cause);
        }
        if let Some(hint) = &failure.hint {
            self.print_labelled(Tone::Good, "hint", hint);
        }
    }

    fn print_labelled(&self, tone: Tone, label: &str, text: &str) {
        let mut stderr = std::io::stderr().lock();
        let label = paint(
            self.colors(stderr.is_terminal()),
            tone,
            &format!("{label}:"),
        );
        // Nothing can be done if standard error is closed.
        let _ = writeln!(stderr, "{label} {}", one_line(text));
    }
}

fn json_line<T: Serialize>(value: &T) -> Result<Vec<u8>, Failure> {
    let mut line = serde_json::to_vec(value).map_err(|error| {
        Failure::new(ErrorCode::Internal, "the answer cannot be told in JSON")
            .cause(error.to_string())
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

/// Returns whether the environment disables colour (<https://no-color.org>).
fn no_color() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}
