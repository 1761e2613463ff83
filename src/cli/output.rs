//! Standard output and standard error: text or JSON, colour, quoting.
//!
//! A reader that goes away (`tine list | head -1`) is no failure: what was to be done is done by
//! then.

use std::io::{IsTerminal, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use serde::Serialize;

use super::args::Global;
pub(super) use super::table::{Cell, table};
use super::{pager, progress, terminal};
use crate::ops::protocol::PointInfo;
use crate::ops::transfer::{Arrived, unread};
use crate::ops::{ErrorCode, Failure};
use crate::render::failure::FailureBody;
use crate::render::failure::FailureObject;
use crate::render::text::one_line;

/// When to colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Color {
    Auto,
    Always,
    Never,
}

/// Where a command prints.
#[derive(Debug, Clone, Copy)]
pub(super) struct Output {
    json: bool,
    color: Color,
    /// Neither notes nor progress.
    quiet: bool,
    /// Nothing goes through a pager.
    no_pager: bool,
}

/// What a piece of text means; decides its colour.
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

    /// As the global flags say, which are known when all is parsed.
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

    /// What was asked for, said to a program that decides by itself (`--color=always`); `None` for
    /// its own choice.
    pub(super) fn color_flag(&self) -> Option<&'static str> {
        match self.color {
            Color::Auto => no_color().then_some("--color=never"),
            Color::Always => Some("--color=always"),
            Color::Never => Some("--color=never"),
        }
    }

    /// Keeps a git command from its pager, where that was asked for.
    pub(super) fn page(&self, git: &mut Command) {
        if self.no_pager {
            // Unlike `--no-pager`, this may come after a subcommand.
            git.env("GIT_PAGER", "cat");
        }
    }

    /// `text` in the colour of its tone, where standard output is coloured.
    pub(super) fn paint(&self, tone: Tone, text: &str) -> String {
        paint(self.has_colors(), tone, text)
    }

    /// Whether standard output is coloured.
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
            .cause(error.to_string())),
            _ => Ok(()),
        }
    }

    /// Prints the path of a directory on a line of its own, byte for byte, so that a shell can use
    /// it.
    pub(super) fn path(&self, dir: &Path) -> Result<(), Failure> {
        let mut line = dir.as_os_str().as_bytes().to_vec();
        line.push(b'\n');
        self.bytes(&line)
    }

    /// Prints what has arrived, as it is read.
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

    /// Prints `text`, which ends with its own newline.
    pub(super) fn text(&self, text: &str) -> Result<(), Failure> {
        self.bytes(text.as_bytes())
    }

    /// `rows` as a table that is no wider than the terminal.
    pub(super) fn table(&self, rows: &[Vec<Cell>]) -> String {
        super::table::fitted(rows, terminal::columns())
    }

    /// Prints what may be long: where a terminal shows it through the pager that git would take.
    pub(super) fn long(&self, text: &str) -> Result<(), Failure> {
        match self.pages() && pager::show(&mut text.as_bytes()) {
            true => Ok(()),
            false => self.text(text),
        }
    }

    /// Whether what is long goes through a pager.
    pub(super) fn pages(&self) -> bool {
        !self.no_pager && !self.json && std::io::stdout().is_terminal()
    }

    /// Prints one JSON value on a line of its own.
    pub(super) fn json<T: Serialize>(&self, value: &T) -> Result<(), Failure> {
        self.bytes(&json_line(value)?)
    }

    /// Prints one JSON value on standard error, for verbs whose standard output is not theirs.
    pub(super) fn json_aside<T: Serialize>(&self, value: &T) -> Result<(), Failure> {
        // Nobody may be listening there: that is no reason to stop.
        let _ = std::io::stderr().write_all(&json_line(value)?);
        Ok(())
    }

    /// Prints `bytes` on standard error, for verbs that tell what another program said there.
    pub(super) fn bytes_aside(&self, bytes: &[u8]) {
        // Nobody may be listening there: that is no reason to stop.
        let _ = std::io::stderr().write_all(bytes);
    }

    /// What passes on what another program says of its progress, where somebody watches.
    pub(super) fn progress(&self) -> Option<impl FnMut(&[u8]) + use<>> {
        self.is_watched().then_some(|said: &[u8]| {
            // Nobody may be listening any more: that is no reason to stop.
            let _ = std::io::stderr().write_all(said);
        })
    }

    /// Whether somebody wants to see progress.
    fn is_watched(&self) -> bool {
        !self.json && !self.quiet && std::io::stderr().is_terminal()
    }

    /// Shows that `what` is going on until the value is dropped, if it takes long and somebody
    /// watches.
    pub(super) fn busy(&self, what: &'static str) -> Option<progress::Busy> {
        self.is_watched().then(|| progress::Busy::with(what))
    }

    /// Says something on standard error that is no answer and no failure.
    pub(super) fn note(&self, text: &str) {
        if !self.quiet {
            self.say(Tone::Careful, "note", text);
        }
    }

    /// Says what `word` was taken for, where it means something else, too.
    pub(super) fn note_meaning(&self, word: &str, point: &PointInfo) {
        if !point.also.is_empty() {
            self.note(&format!(
                "{word:?} is taken for {}; it could also be {}",
                point.point,
                point.also.join(" or ")
            ));
        }
    }

    /// Says on standard error what is wrong with something that the command did not fail for, and
    /// what to do.
    pub(super) fn trouble(&self, failure: &Failure) {
        self.say(Tone::Careful, "note", &failure.to_string());
        if let Some(hint) = &failure.hint {
            self.say(Tone::Good, "hint", hint);
        }
    }

    /// Shows a failure; the exit code it asks for.
    pub(super) fn failure(&self, failure: &Failure) -> u8 {
        let exit = failure.exit.code();
        self.failure_as(failure, exit);
        exit
    }

    /// Shows a failure that ends the process with `exit`.
    pub(super) fn failure_as(&self, failure: &Failure, exit: u8) {
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
        let label = paint(
            self.colors(stderr.is_terminal()),
            tone,
            &format!("{label}:"),
        );
        // Where standard error is closed there is nobody to tell.
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

/// Whether the environment asks for no colour (<https://no-color.org>).
fn no_color() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}
