//! What only who sits at a terminal sees: pagers, progress, and tables that fit.

use std::fs;
use std::time::Duration;

use unicode_width::UnicodeWidthStr;

use crate::support::{
    OutputExt, Terminal, TestRepo, Tine, process, require_fuse, require_program, run_with_timeout,
    shown_on_terminal, wait_until,
};

/// A pager that marks each line, and itself.
const PAGER: &str = "sed 's/^/| /'; echo paged";

#[test]
fn what_is_long_goes_through_the_pager_that_git_would_take() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    fs::write(dir.join("new.txt"), "new\n").unwrap();
    tine.ok(&["commit", "demo", "-m", "One more"]);
    tine.ok(&["handoff", "create", "demo"]);
    tine.ok(&["rm", "--fork", "demo", "new.txt"]);
    tine.ok(&["snapshot", "demo", "here"]);
    let at_terminal = |args: &[&str], variable: &str, pager: &str| {
        let mut command = tine.command(args);
        command.env(variable, pager).env("NO_COLOR", "1");
        shown_on_terminal(&mut command, 80)
    };
    for (args, line) in [
        (&["diff", "demo"][..], "| deleted file mode 100644\n"),
        (&["log", "demo"], " One more\n"),
        (
            &["op", "log", "demo"],
            "| 1  now  done  tine rm --fork demo new.txt\n",
        ),
        (&["snapshots", "demo"], "| here "),
        (&["branch", "list"], "| tine/demo "),
        (
            &["ls", "--deep", "--fork", "demo"],
            " src/deep/er/still/leaf.txt\n",
        ),
        (&["handoff", "diff", "1"], "| +new\n"),
        (
            &["handoff", "show", "1"],
            "| handoff 1: demo to branch:main: ready",
        ),
        (
            &["handoff", "show", "1", "--patch"],
            "| Subject: One more\n",
        ),
    ] {
        let shown = at_terminal(args, "GIT_PAGER", PAGER);
        assert!(shown.contains(line), "{args:?}: {line:?} in {shown}");
        assert!(shown.ends_with("paged\n"), "{args:?}: {shown}");
        assert!(
            shown
                .lines()
                .filter(|line| *line != "paged")
                .all(|line| line.starts_with("| ")),
            "{args:?}: {shown}"
        );
        let shown = at_terminal(&[args, &["--no-pager"]].concat(), "GIT_PAGER", PAGER);
        let is_marked = shown.lines().any(|line| line.starts_with("| "));
        assert!(!shown.contains("paged") && !is_marked, "{args:?}: {shown}");
        // A pipe is no terminal.
        let mut command = tine.command(args);
        command.env("GIT_PAGER", PAGER);
        assert!(
            !run_with_timeout(&mut command).text().contains("paged"),
            "{args:?}"
        );
    }
    assert!(at_terminal(&["snapshots", "demo"], "PAGER", PAGER).contains("paged"));
    assert!(!at_terminal(&["snapshots", "demo"], "PAGER", "").contains("paged"));
    assert!(!at_terminal(&["snapshots", "demo", "--json"], "GIT_PAGER", PAGER).contains("paged"));
    repo.git(&["config", "core.pager", "sed 's/^/own: /'"]);
    assert!(at_terminal(&["snapshots", "demo"], "TERM", "xterm").contains("own: here"));
    assert!(at_terminal(&["diff", "demo"], "TERM", "xterm").contains("own: deleted file"));
}

#[test]
fn patches_reach_the_pager_in_gits_own_colours() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    fs::write(dir.join("docs/guide.md"), "one\nzwei\nthree\n").unwrap();
    let mut command = tine.command(&["diff", "demo"]);
    command.env("GIT_PAGER", "cat -v");
    let ours = shown_on_terminal(&mut command, 80);
    assert!(ours.contains("^[[31m-two^[[m\n"), "{ours}");
    let mut command = repo.command("git", &dir);
    command.args(["diff"]).env("GIT_PAGER", "cat -v");
    assert_eq!(ours, shown_on_terminal(&mut command, 80));
}

#[test]
fn leaving_the_pager_is_no_failure() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    tine.new_fork("demo");
    for number in 0..200 {
        repo.write(&format!("many/{number:03}-{}", "x".repeat(180)), "");
    }
    repo.commit_all("Many");
    tine.ok(&["new", "many"]);
    let mut command = tine.command(&["ls", "--deep", "--fork", "many"]);
    // More than a pipe holds is never read.
    command.env("GIT_PAGER", "head -1; exit 3");
    let shown = shown_on_terminal(&mut command, 300);
    assert_eq!(shown.lines().count(), 1, "{shown}");

    require_program!("less");
    let mut command = tine.command(&["ls", "--deep", "--fork", "many"]);
    command.env("GIT_PAGER", "less").env_remove("LESS");
    let mut less = Terminal::start(&mut command, 80);
    let asks = ":\x1b[K";
    less.wait_for(asks);
    // Interrupting is less's affair, leaving it ends both.
    less.send("\x03");
    wait_until("less asks again", Duration::from_secs(60), || {
        less.shown().matches(asks).count() > 1
    });
    less.send("q");
    let (shown, status) = less.end();
    assert!(status.success(), "{status}: {shown}");
    // What fits on a screen is only shown.
    let mut command = tine.command(&["branch", "list"]);
    command.env("GIT_PAGER", "less").env_remove("LESS");
    assert!(shown_on_terminal(&mut command, 200).contains("tine/demo"));
}

#[test]
fn what_takes_long_is_shown_and_wiped_away() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    tine.new_fork("demo");
    let daemon = tine.daemon_pid().expect("a daemon runs");
    let stopped = process::Stopped::new(daemon);
    let start = |args: &[&str]| Terminal::start(&mut tine.command(args), 100);
    let silent = [start(&["list", "--quiet"]), start(&["list", "--json"])];
    let piped = tine
        .command(&["list"])
        .stderr(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let seen = start(&["list"]);
    seen.wait_for("waiting for the daemon");
    drop(stopped);

    let (shown, status) = seen.end();
    assert!(status.success(), "{shown}");
    let (before, after) = shown.rsplit_once("waiting for the daemon").unwrap();
    let (_, answer) = after
        .split_once("\x1b[2K")
        .unwrap_or_else(|| panic!("it stays: {shown:?}"));
    assert!(
        !before.contains("NAME") && answer.contains("NAME") && answer.contains("demo"),
        "{shown:?}"
    );
    for terminal in silent {
        let (shown, status) = terminal.end();
        assert!(status.success() && shown.contains("demo"), "{shown}");
        assert!(
            !shown.contains("waiting") && !shown.contains("\x1b[2K"),
            "{shown:?}"
        );
    }
    let output = piped.wait_with_output().unwrap();
    assert_eq!(output.error_text(), "", "nobody watches a pipe");
    assert!(output.text().contains("demo"));
}

#[test]
fn tables_fit_the_terminal_and_are_whole_elsewhere() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let long = "a-fork-with-a-very-long-name-indeed-that-goes-on-and-on";
    let dir = tine.new_fork(long);
    fs::write(dir.join("same.txt"), "theirs\n").unwrap();
    let subject =
        "Say what it is about in so many words that no terminal has room for them 日本語日本語";
    tine.ok(&["commit", long, "-m", subject]);
    tine.ok(&["snapshot", long, "point", "-m", subject]);
    tine.ok(&["handoff", "create", long]);
    tine.ok(&[
        "rm",
        "--fork",
        long,
        "src/deep/er/still/leaf.txt",
        "docs/guide.md",
    ]);
    tine.ok(&[
        "round",
        "start",
        "--agents",
        "coder,tester",
        "--session",
        "a-session-with-a-long-name",
    ]);
    repo.write("same.txt", "ours\n");
    repo.commit_all("Ours");
    let merge = tine.run(&[
        "merge",
        long,
        "--into",
        "main",
        "--review",
        "--with-uncommitted",
    ]);
    assert_eq!(merge.status.code(), Some(3), "{}", merge.error_text());
    for args in [
        &["list"][..],
        &["snapshots", long],
        &["op", "log", long],
        &["handoff", "list"],
        &["review", "list"],
        &["branch", "list"],
        &["round", "show", "--session", "a-session-with-a-long-name"],
        &[],
    ] {
        let whole = tine.ok(args);
        assert!(!whole.contains('…'), "{args:?}: {whole}");
        let shown = |columns| {
            let mut command = tine.command(&[args, &["--no-pager", "--color=never"]].concat());
            shown_on_terminal(&mut command, columns)
        };
        let narrow = shown(60);
        let is_suggestion = |line: &&str| line.starts_with("  tine ");
        for line in narrow.lines().filter(|line| !is_suggestion(line)) {
            assert!(line.width() <= 60, "{args:?}: {line:?} in {narrow}");
        }
        assert!(narrow.contains('…'), "{args:?}: {narrow}");
        assert_eq!(shown(1000).trim_end(), whole.trim_end(), "{args:?}");
        let wide = shown(200);
        assert!(
            wide.lines().all(|line| line.width() <= 200),
            "{args:?}: {wide}"
        );
    }
    // Of a path the end is what matters.
    let mut command = tine.command(&["list", "--color=never"]);
    let narrow = shown_on_terminal(&mut command, 100);
    assert!(
        narrow
            .lines()
            .any(|line| line.contains('…') && line.ends_with("and-on")),
        "{narrow}"
    );
}
