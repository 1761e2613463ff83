//! `tine top`: the mounts' current requests.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use crossterm::terminal::{self, ClearType, EnterAlternateScreen, LeaveAlternateScreen};
use crossterm::{cursor, execute, queue};
use serde::Serialize;

use super::context::Context;
use super::output::{Cell, Output, Tone, table};
use super::stats::{self, NONE_RUNS, ShownFork, head, operations_table, shown_fork, time};
use super::{Exit, SUCCESS};
use crate::ops::protocol::{ForkStats, Stats};
use crate::ops::{ErrorCode, Failure, ReadStats};
use crate::render::text::{human_size, quoted};
use crate::store::ForkName;

/// Watch what the mounts are asked at this moment
///
/// Shows for each mounted fork the requests a second, what is read and written, and how fast the
/// answers are; below that, of one fork, the kinds of requests and the files that are read and
/// written most. Where standard output is no terminal, and with --once, it looks for one interval
/// and prints that.
///
/// Keys: q ends, s sorts by another column, the arrows choose a fork.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine top
  tine top fix-parser --interval 5
  tine top --once --sort written")]
pub(super) struct Top {
    #[command(flatten)]
    pub read: ReadStats,

    /// Print one table and end
    #[arg(long)]
    pub once: bool,

    /// What the forks are sorted by
    #[arg(long, value_enum, value_name = "COLUMN", default_value_t = Sort::Requests)]
    pub sort: Sort,

    /// Seconds between two looks
    #[arg(long, value_name = "SECS", default_value_t = 1.0, value_parser = interval)]
    pub interval: f64,
}

/// A column to sort by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Sort {
    Requests,
    Read,
    Written,
    Slow,
    Name,
}

impl Sort {
    const ALL: [Sort; 5] = [
        Sort::Requests,
        Sort::Read,
        Sort::Written,
        Sort::Slow,
        Sort::Name,
    ];

    fn next(self) -> Sort {
        let at = Sort::ALL.iter().position(|sort| *sort == self).unwrap_or(0);
        Sort::ALL
            .get((at + 1) % Sort::ALL.len())
            .copied()
            .unwrap_or(self)
    }

    fn word(self) -> &'static str {
        match self {
            Sort::Requests => "requests",
            Sort::Read => "read",
            Sort::Written => "written",
            Sort::Slow => "slow",
            Sort::Name => "name",
        }
    }

    /// Sorts the forks, greatest first, then by name.
    fn sort(self, forks: &mut [ForkStats]) {
        let key = |fork: &ForkStats| match self {
            Sort::Requests => fork.all().count,
            Sort::Read => fork.read_bytes,
            Sort::Written => fork.written_bytes,
            Sort::Slow => (fork.all().quantile_secs(0.99).unwrap_or(0.0) * 1e6) as u64,
            Sort::Name => 0,
        };
        forks.sort_by(|one, other| {
            key(other)
                .cmp(&key(one))
                .then_with(|| one.fork.cmp(&other.fork))
        });
    }
}

/// Most files that are shown.
const FILES: usize = 10;

#[derive(Serialize)]
struct Shown<'a> {
    running: bool,
    interval_secs: f64,
    mounted: Vec<ShownFork<'a>>,
}

pub(super) fn run(top: &Top, context: &Context) -> Result<Exit, Failure> {
    let read = ReadStats {
        watch: true,
        ..top.read.clone()
    };
    let read_stats = || stats::ask(context, &read);
    let Some(first) = read_stats()? else {
        if context.output.is_json() {
            context.output.json(&Shown {
                running: false,
                interval_secs: top.interval,
                mounted: Vec::new(),
            })?;
        } else {
            context.output.note(NONE_RUNS);
        }
        return Ok(SUCCESS);
    };
    let is_watched = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    if !top.once && !context.output.is_json() && is_watched {
        return watch(top, &context.output, first, read_stats);
    }
    std::thread::sleep(Duration::from_secs_f64(top.interval));
    let Some(mut now) = read_stats()? else {
        return Err(ended());
    };
    now.mounted = since(&first, &now, top.sort);
    context.output.json_or_text(
        &Shown {
            running: true,
            interval_secs: top.interval,
            mounted: now.mounted.iter().map(shown_fork).collect(),
        },
        || drawn(&now, 0, &context.output),
    )?;
    Ok(SUCCESS)
}

fn interval(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(secs) if (0.1..=3600.0).contains(&secs) => Ok(secs),
        _ => Err("a number of seconds from 0.1 to 3600 is needed".to_owned()),
    }
}

fn ended() -> Failure {
    Failure::new(ErrorCode::DaemonUnreachable, "the daemon has ended")
        .hint("any tine command that needs it starts it again; then run this one again")
}

/// Returns the forks' figures between two readings.
fn since(before: &Stats, now: &Stats, sort: Sort) -> Vec<ForkStats> {
    let mut forks: Vec<ForkStats> = now
        .mounted
        .iter()
        .map(|fork| fork.since(before.mounted.iter().find(|known| known.fork == fork.fork)))
        .collect();
    sort.sort(&mut forks);
    forks
}

/// Action of a key.
#[derive(Debug, PartialEq, Eq)]
enum KeyAction {
    End,
    Sort,
    Up,
    Down,
    Nothing,
}

fn action_of(key: &KeyEvent) -> KeyAction {
    if key.kind == KeyEventKind::Release {
        return KeyAction::Nothing;
    }
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => KeyAction::End,
        KeyCode::Char('q') | KeyCode::Esc => KeyAction::End,
        KeyCode::Char('s') => KeyAction::Sort,
        KeyCode::Up | KeyCode::Char('k') => KeyAction::Up,
        KeyCode::Down | KeyCode::Char('j') => KeyAction::Down,
        _ => KeyAction::Nothing,
    }
}

/// Terminal in full-screen mode, restored on drop.
struct Screen;

impl Screen {
    fn take() -> std::io::Result<Screen> {
        terminal::enable_raw_mode()?;
        let screen = Screen;
        execute!(std::io::stdout(), EnterAlternateScreen, cursor::Hide)?;
        Ok(screen)
    }

    /// Draws as much of `text` as fits.
    fn draw(&self, text: &str) -> std::io::Result<()> {
        let (width, height) = terminal::size()?;
        let mut out = std::io::stdout().lock();
        let lines = text.lines().take(usize::from(height));
        let mut rows = 0;
        for (row, line) in (0..).zip(lines) {
            queue!(
                out,
                cursor::MoveTo(0, row),
                terminal::Clear(ClearType::CurrentLine)
            )?;
            out.write_all(cut(line, usize::from(width)).as_bytes())?;
            rows = row + 1;
        }
        if rows < height {
            queue!(
                out,
                cursor::MoveTo(0, rows),
                terminal::Clear(ClearType::FromCursorDown)
            )?;
        }
        out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // The process is about to end, so errors are ignored.
        let _ = execute!(std::io::stdout(), cursor::Show, LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
    }
}

/// Returns the first `width` characters of a line, not counting colour escapes.
fn cut(line: &str, width: usize) -> String {
    let (mut cut, mut shown, mut is_escape) = (String::new(), 0, false);
    for character in line.chars() {
        if is_escape || character == '\x1b' {
            is_escape = character != 'm';
            cut.push(character);
        } else if shown < width {
            shown += 1;
            cut.push(character);
        }
    }
    cut
}

fn watch(
    top: &Top,
    output: &Output,
    first: Stats,
    read_stats: impl Fn() -> Result<Option<Stats>, Failure>,
) -> Result<Exit, Failure> {
    let failed = |error: std::io::Error| {
        Failure::new(ErrorCode::Io, "the terminal could not be used")
            .cause(error.to_string())
            .hint("`tine top --once` prints one table instead")
    };
    let screen = Screen::take().map_err(failed)?;
    let (mut before, mut sort, mut chosen) = (first, top.sort, None::<ForkName>);
    let mut shown = Stats {
        mounted: since(&before, &before, sort),
        ..before.clone()
    };
    let every = Duration::from_secs_f64(top.interval);
    let mut next = Instant::now() + every;
    loop {
        let at = chosen
            .as_ref()
            .and_then(|name| shown.mounted.iter().position(|fork| fork.fork == *name))
            .unwrap_or(0);
        let keys = format!("q ends, s sorts (by {}), arrows choose\n", sort.word());
        let text = format!(
            "{}{}",
            drawn(&shown, at, output),
            output.paint(Tone::Faint, &keys)
        );
        screen.draw(&text).map_err(failed)?;
        if event::poll(next.saturating_duration_since(Instant::now())).map_err(failed)? {
            let Event::Key(key) = event::read().map_err(failed)? else {
                continue;
            };
            let to = match action_of(&key) {
                KeyAction::End => return Ok(SUCCESS),
                KeyAction::Sort => {
                    sort = sort.next();
                    sort.sort(&mut shown.mounted);
                    continue;
                }
                KeyAction::Up => at.saturating_sub(1),
                KeyAction::Down => (at + 1).min(shown.mounted.len().saturating_sub(1)),
                KeyAction::Nothing => continue,
            };
            chosen = shown.mounted.get(to).map(|fork| fork.fork.clone());
            continue;
        }
        next = Instant::now() + every;
        let Some(now) = read_stats()? else {
            return Err(ended());
        };
        shown = Stats {
            mounted: since(&before, &now, sort),
            ..now.clone()
        };
        before = now;
    }
}

/// Formats all forks, and details of the chosen one.
fn drawn(stats: &Stats, chosen: usize, output: &Output) -> String {
    let mut text = head(stats);
    if stats.mounted.is_empty() {
        text.push_str("nothing is mounted\n");
        return text;
    }
    let heads = [
        "fork",
        "requests/s",
        "read/s",
        "written/s",
        "half under",
        "99 % under",
        "nodes",
    ];
    let head = heads.iter().enumerate().map(|(column, head)| {
        let cell = match column {
            0 => Cell::indented(head),
            _ => Cell::new(*head).right(),
        };
        cell.toned(output, Tone::Faint)
    });
    let mut rows = vec![head.collect::<Vec<Cell>>()];
    for (row, fork) in stats.mounted.iter().enumerate() {
        let all = fork.all();
        let mark = if row == chosen { "> " } else { "  " };
        let bytes = |bytes| human_size(fork.per_sec(bytes) as u64);
        rows.push(vec![
            Cell::marked(mark, fork.fork.as_str()).toned(output, Tone::Name),
            Cell::new(format!("{:.1}", fork.per_sec(all.count))).right(),
            Cell::new(bytes(fork.read_bytes)).right(),
            Cell::new(bytes(fork.written_bytes)).right(),
            Cell::new(time(all.quantile_secs(0.5))).right(),
            Cell::new(time(all.quantile_secs(0.99))).right(),
            Cell::new(fork.remembered_nodes.to_string()).right(),
        ]);
    }
    text.push_str(&table(&rows));
    if let Some(fork) = stats.mounted.get(chosen) {
        text.push_str(&format!(
            "\n{}\n",
            output.paint(Tone::Name, fork.fork.as_str())
        ));
        text.push_str(&operations_table(fork, output));
        if !fork.files.is_empty() {
            text.push_str(&files_table(fork, output));
        }
    }
    text
}

fn files_table(fork: &ForkStats, output: &Output) -> String {
    let heads = ["reads", "bytes read", "writes", "bytes written", "file"];
    let head = heads.iter().enumerate().map(|(column, head)| {
        let cell = match column {
            4 => Cell::new(*head),
            _ => Cell::new(*head).right(),
        };
        cell.toned(output, Tone::Faint)
    });
    let mut rows = vec![head.collect::<Vec<Cell>>()];
    rows.extend(fork.files.iter().take(FILES).map(|file| {
        vec![
            Cell::new(file.reads.to_string()).right(),
            Cell::new(human_size(file.read_bytes)).right(),
            Cell::new(file.writes.to_string()).right(),
            Cell::new(human_size(file.written_bytes)).right(),
            Cell::new(quoted(&file.path)),
        ]
    }));
    format!("\n{}", table(&rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_by_what_is_seen() {
        assert_eq!(cut("abcdef", 3), "abc");
        assert_eq!(cut("\x1b[1mabc\x1b[0mdef", 4), "\x1b[1mabc\x1b[0md");
        assert_eq!(cut("ä", 80), "ä");
    }

    #[test]
    fn keys_mean_what_the_help_says() {
        let key = |code| action_of(&KeyEvent::new(code, KeyModifiers::NONE));
        assert_eq!(key(KeyCode::Char('q')), KeyAction::End);
        assert_eq!(key(KeyCode::Char('s')), KeyAction::Sort);
        assert_eq!(key(KeyCode::Down), KeyAction::Down);
        assert_eq!(key(KeyCode::Char('x')), KeyAction::Nothing);
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(action_of(&interrupt), KeyAction::End);
        let all: Vec<Sort> = (0..5)
            .scan(Sort::Requests, |sort, _| {
                let now = *sort;
                *sort = sort.next();
                Some(now)
            })
            .collect();
        assert_eq!(all, Sort::ALL);
    }
}
