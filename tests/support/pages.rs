//! Pages of documentation that are run: the commands in their `console` blocks, beside the output
//! that stands there.
//!
//! | in a block | meaning |
//! |---|---|
//! | `$ command` | a command; lines that follow it and begin with `> ` go on with it |
//! | any other line | what it prints, on standard output and standard error together |
//! | `[..]` within a line | any text within that line |
//! | `...` as a line | any number of lines |
//!
//! All commands of a page run in one bash, in an empty directory, with an empty home and `tine` in
//! `PATH`. Spaces at the ends of lines and empty lines at the end of an output do not count.
//! `TINE_UPDATE_DOCS=1` writes into the page what was printed; lines with `[..]` that still fit
//! stay.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use super::fuse::transport_name;
use super::{OutputExt, Tine, force_unmount_beneath, process, run_with_timeout_of};

/// How long all commands of a page may take together.
const LIMIT: Duration = Duration::from_secs(240);

/// Begins the line that stands between the outputs of two commands.
const MARK: &str = "=== tine runs a page: ";

/// A command of a page, and what is expected of it.
struct Step {
    /// Line of the page, from 0.
    line: usize,
    command: String,
    /// Lines of the page that hold the expected output.
    expected: std::ops::Range<usize>,
}

/// Where a page was run. Dropping it ends what its commands have left running, and removes
/// everything.
pub struct Scratch {
    root: TempDir,
}

impl Scratch {
    fn new() -> Scratch {
        let root = tempfile::Builder::new()
            .prefix("p-")
            .tempdir_in(env!("CARGO_TARGET_TMPDIR"))
            .expect("a temporary directory can be made");
        let scratch = Scratch { root };
        fs::create_dir(scratch.home()).expect("the directory is new");
        fs::create_dir(scratch.dir()).expect("the directory is new");
        if let Some(name) = transport_name() {
            let config = format!("[tine]\n\ttransport = {name}\n");
            fs::write(scratch.home().join(".gitconfig"), config).expect("the home can be written");
        }
        scratch
    }

    fn home(&self) -> PathBuf {
        self.root.path().join("home")
    }

    /// Where the first command of the page ran.
    pub fn dir(&self) -> PathBuf {
        self.root.path().join("page")
    }

    /// Runs all steps; what each of them printed, as far as they came.
    fn run(&self, steps: &[Step]) -> Vec<Vec<String>> {
        let mut script = format!(
            "exec 2>&1 </dev/null\n__mark() {{ local status=$?; printf '\\n%s%s\\n' '{MARK}' \"$1\"; return $status; }}\n"
        );
        for (number, step) in steps.iter().enumerate() {
            writeln!(script, "__mark {number}\n{}", step.command)
                .expect("a string takes everything");
        }
        script.push_str("__mark end\n");
        let file = self.root.path().join("script");
        fs::write(&file, script).expect("the script can be written");

        let program = Tine::program()
            .parent()
            .expect("a program is in a directory");
        let others = std::env::var("PATH").expect("there is a PATH");
        let mut bash = Command::new("bash");
        bash.args(["--noprofile", "--norc"])
            .arg(&file)
            .current_dir(self.dir())
            .env_clear()
            .env("PATH", format!("{}:{others}", program.display()))
            .env("HOME", self.home())
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .envs([
                ("LANG", "C.UTF-8"),
                ("TZ", "UTC"),
                ("TERM", "dumb"),
                ("SHELL", "/bin/sh"),
            ]);
        let printed = run_with_timeout_of(&mut bash, LIMIT, b"").text();
        printed
            .split(&format!("\n{MARK}"))
            .skip(1)
            .filter_map(|part| {
                let (number, output) = part.split_once('\n').unwrap_or((part, ""));
                number.parse::<usize>().ok().map(|_| lines(output))
            })
            .collect()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let program = Tine::program()
            .canonicalize()
            .unwrap_or_else(|_| Tine::program().to_owned());
        for pid in process::find(&program, "HOME", self.home().as_os_str()) {
            process::kill(pid);
        }
        force_unmount_beneath(self.root.path());
    }
}

/// Lines without spaces at their ends, and without empty ones at the end.
fn lines(output: &str) -> Vec<String> {
    let mut lines: Vec<String> = output
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect();
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines
}

/// The steps of a page.
fn steps(page: &[&str]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut in_block = false;
    for (line, text) in page.iter().enumerate() {
        if text.starts_with("```") {
            in_block = *text == "```console";
        } else if !in_block {
        } else if let Some(command) = text.strip_prefix("$ ") {
            steps.push(Step {
                line,
                command: command.to_owned(),
                expected: line + 1..line + 1,
            });
        } else {
            let step = steps
                .last_mut()
                .unwrap_or_else(|| panic!("line {}: output without a command", line + 1));
            match text.strip_prefix('>') {
                Some(more) if step.expected.is_empty() && step.expected.start == line => {
                    step.command.push('\n');
                    step.command
                        .push_str(more.strip_prefix(' ').unwrap_or(more));
                    step.expected = line + 1..line + 1;
                }
                _ => step.expected.end = line + 1,
            }
        }
    }
    steps
}

/// Runs a page, named from the root of the repository. Panics with every difference.
#[track_caller]
pub fn assert_holds(name: &str) -> Scratch {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
    let page: Vec<&str> = text.lines().collect();
    let steps = steps(&page);
    assert!(!steps.is_empty(), "{name} has no console block");
    let scratch = Scratch::new();
    let printed = scratch.run(&steps);

    let mut differences = String::new();
    let mut updated: Vec<String> = page.iter().map(|&line| line.to_owned()).collect();
    for (number, step) in steps.iter().enumerate().rev() {
        let expected = lines(&page[step.expected.clone()].join("\n"));
        let Some(printed) = printed.get(number) else {
            differences.insert_str(
                0,
                &format!(
                    "{name}:{}: was not reached: {}\n",
                    step.line + 1,
                    step.command
                ),
            );
            continue;
        };
        if fits(&expected, printed) {
            continue;
        }
        if updating() && !expected.iter().any(|line| line == "...") {
            updated.splice(step.expected.clone(), merged(&expected, printed));
            continue;
        }
        differences.insert_str(0, &difference(name, step, &expected, printed));
    }
    if updating() {
        fs::write(&path, updated.join("\n") + "\n").expect("the page can be written");
    }
    assert!(
        differences.is_empty(),
        "\n{differences}\n(- is what stands there, + what was printed; TINE_UPDATE_DOCS=1 writes it there)"
    );
    scratch
}

/// Whether pages and pictures get what is really printed.
pub fn updating() -> bool {
    std::env::var_os("TINE_UPDATE_DOCS").is_some_and(|value| value == "1")
}

/// What was printed, with lines that have a wildcard and fit in the place of those that they fit.
fn merged(expected: &[String], printed: &[String]) -> Vec<String> {
    let mut rest = expected;
    let mut merged = Vec::new();
    for line in printed {
        let kept = rest
            .iter()
            .position(|pattern| pattern.contains("[..]") && line_fits(pattern, line));
        match kept {
            Some(at) => {
                merged.push(rest[at].clone());
                rest = &rest[at + 1..];
            }
            None => merged.push(line.clone()),
        }
    }
    merged
}

/// The lines of both, with those at beginning and end that fit left unmarked.
fn difference(name: &str, step: &Step, expected: &[String], printed: &[String]) -> String {
    let mut text = format!("{name}:{}: $ {}\n", step.line + 1, step.command);
    let same = |(pattern, line): &(&String, &String)| *pattern != "..." && line_fits(pattern, line);
    let before = expected.iter().zip(printed).take_while(same).count();
    let (expected, printed) = (&expected[before..], &printed[before..]);
    let after = expected
        .iter()
        .rev()
        .zip(printed.iter().rev())
        .take_while(same)
        .count();
    for line in &expected[..expected.len() - after] {
        writeln!(text, "  - {line}").expect("a string takes everything");
    }
    for line in &printed[..printed.len() - after] {
        writeln!(text, "  + {line}").expect("a string takes everything");
    }
    text
}

/// Whether an output is what is expected.
pub fn fits(expected: &[String], printed: &[String]) -> bool {
    match expected.split_first() {
        None => printed.is_empty(),
        Some((first, rest)) if first == "..." => {
            (0..=printed.len()).any(|skipped| fits(rest, &printed[skipped..]))
        }
        Some((first, rest)) => printed
            .split_first()
            .is_some_and(|(line, others)| line_fits(first, line) && fits(rest, others)),
    }
}

/// Whether a line is what is expected.
pub fn line_fits(pattern: &str, line: &str) -> bool {
    let mut parts = pattern.split("[..]");
    let first = parts.next().expect("split gives at least one");
    let Some(mut rest) = line.strip_prefix(first) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}
