//! Completions and `tcd`, in the shells themselves.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{
    OutputExt, Terminal, TestRepo, Tine, process, require_fuse, require_program, run_with_timeout,
};

/// A shell that finds the binary as `tine`.
fn shell(repo: &TestRepo, program: &str, args: &[&str]) -> Command {
    let mut command = repo.command(program, repo.dir());
    let own = Tine::program().parent().expect("it is in a directory");
    let path = std::env::var_os("PATH").expect("there is a PATH");
    let dirs = std::iter::once(own.to_owned()).chain(std::env::split_paths(&path));
    command
        .env("PATH", std::env::join_paths(dirs).expect("it was one"))
        .args(args);
    command
}

/// What the program itself offers after these words, the last of which is being typed.
#[track_caller]
fn offered(tine: &Tine, dir: &Path, words: &[&str]) -> Vec<String> {
    let mut command = tine.command_in(dir, &["--", "tine"]);
    command.args(words).env("TINE_COMPLETE", "fish");
    let output = run_with_timeout(&mut command).expect_success("completing");
    assert_eq!(output.error_text(), "", "{words:?}");
    let text = output.text();
    let lines = text.lines().filter(|line| !line.is_empty());
    lines
        .map(|line| line.split('\t').next().unwrap_or_default().to_owned())
        .collect()
}

/// A repository with something of every kind that has a name.
fn filled(tine: &Tine, repo: &TestRepo) -> PathBuf {
    let dir = tine.new_fork("fix-parser");
    tine.ok(&["new", "fix-lexer", "--no-mount"]);
    tine.ok(&[
        "snapshot",
        "fix-parser",
        "before-lunch",
        "-m",
        "All is well",
    ]);
    repo.git(&["branch", "topic"]);
    std::fs::write(dir.join("same.txt"), "theirs\n").unwrap();
    tine.ok(&["commit", "fix-parser", "-m", "Theirs"]);
    tine.ok(&["handoff", "create", "fix-parser"]);
    repo.write("same.txt", "ours\n");
    repo.git(&["add", "same.txt"]);
    repo.git(&["commit", "--quiet", "-m", "Ours"]);
    let output = tine.run(&["merge", "fix-parser", "--into", "main", "--review"]);
    assert_eq!(output.status.code(), Some(3), "{}", output.error_text());
    dir
}

#[test]
fn names_of_all_kinds_are_offered_where_they_belong() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = filled(&tine, &repo);
    tine.ok(&["round", "start", "--agents", "coder,tester"]);
    let offers = |words: &[&str]| offered(&tine, repo.dir(), words);
    let forks = ["fix-lexer", "fix-parser"];
    assert_eq!(offers(&["path", "fix"]), forks);
    assert_eq!(offers(&["delete", "fix-p"]), ["fix-parser"]);
    assert_eq!(offers(&["rm", "--fork", "fix"]), forks);
    assert_eq!(offers(&["search", "--fork", "fix"]), forks);
    assert_eq!(
        offers(&["new", "fix"]),
        Vec::<String>::new(),
        "a new name is nobody's"
    );
    assert_eq!(
        offers(&["new", "x", "--from-fork", "fix-p"]),
        ["fix-parser"]
    );
    assert_eq!(
        offers(&["new", "x", "--from-fork", "fix-parser@"]),
        ["fix-parser@before-lunch"]
    );
    assert_eq!(
        offers(&["new", "x", "--from-fork=fix-p"]),
        ["--from-fork=fix-parser"]
    );
    assert_eq!(offers(&["snapshot", "fix-parser", "be"]), ["before-lunch"]);
    assert_eq!(
        offers(&["snapshot", "fix-lexer", "be"]),
        Vec::<String>::new()
    );
    assert_eq!(offers(&["restore", "fix-parser", "be"]), ["before-lunch"]);
    assert_eq!(
        offers(&["diff", "fix-parser", "--against", "pri"]),
        ["pristine"]
    );
    assert_eq!(offers(&["branch", "delete", "to"]), ["topic"]);
    assert_eq!(
        offers(&["branch", "switch", "fix-parser", "tine/fix-l"]),
        ["tine/fix-lexer"]
    );
    assert_eq!(offers(&["merge", "fix-l"]), ["fix-lexer"]);
    assert_eq!(offers(&["merge", "--into", "ma"]), ["main"]);
    assert_eq!(offers(&["review", "show", ""]), ["1"]);
    assert_eq!(offers(&["resolve", "1", "sa"]), ["same.txt"]);
    assert_eq!(offers(&["handoff", "show", ""]), ["1"]);
    assert_eq!(offers(&["round", "present", "--winner", "c"]), ["coder"]);
    assert_eq!(offers(&["round", "--session", "d"]), ["default"]);
    assert_eq!(
        offers(&["cat", "--fork", "fix-parser", "same"]),
        ["same.txt"]
    );
    assert_eq!(offers(&["snap"]), ["snapshot", "snapshots"]);
    // Flags come where one is begun.
    assert!(offers(&["path", "--m"]).contains(&"--main".to_owned()));
    assert!(
        !offers(&["path", ""])
            .iter()
            .any(|offer| offer.starts_with('-'))
    );
    // A place for all of that: named, or stood in.
    let elsewhere = tempfile::tempdir().unwrap();
    let here = repo.dir().to_str().unwrap();
    assert_eq!(
        offered(&tine, elsewhere.path(), &["-C", here, "path", "fix"]),
        forks
    );
    let nothing_named = offered(&tine, elsewhere.path(), &["path", ""]);
    assert!(
        nothing_named.iter().all(|offer| offer.starts_with('-')),
        "{nothing_named:?}"
    );
    assert!(
        offered(&tine, &dir, &["branch", "create", "x", "--at", "be"])
            .contains(&"before-lunch".to_owned())
    );
}

#[test]
fn every_command_is_offered_and_none_that_is_hidden() {
    let repo = TestRepo::unborn();
    let tine = Tine::new(&repo);
    let offers = offered(&tine, repo.dir(), &[""]);
    for verb in super::VERBS {
        assert!(
            offers.iter().any(|offer| offer == verb[0]),
            "{verb:?} in {offers:?}"
        );
    }
    for (words, others) in [
        (&["daemon", ""][..], &["start", "stop", "status"][..]),
        (&["buffer", ""], &["list", "show", "merge", "serve"]),
    ] {
        let offers = offered(&tine, repo.dir(), words);
        let offers: std::collections::BTreeSet<&str> = offers.iter().map(String::as_str).collect();
        assert_eq!(offers, others.iter().copied().chain(["help"]).collect());
    }
    assert_eq!(offered(&tine, repo.dir(), &["completions", "z"]), ["zsh"]);
    assert_eq!(
        offered(&tine, repo.dir(), &["new", "x", "--on-unmount", "com"]),
        Vec::<String>::new()
    );
    assert_eq!(
        offered(&tine, repo.dir(), &["list", "--color", "al"]),
        ["always"]
    );
}

#[test]
fn completing_starts_no_daemon_and_waits_for_none() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    tine.new_fork("demo");
    let daemon = tine.daemon_pid().expect("a daemon runs");
    let stopped = process::Stopped::new(daemon);
    let offers = offered(&tine, repo.dir(), &["path", "d"]);
    drop(stopped);
    assert_eq!(offers, ["demo"]);
    // In a mount that says nothing there is nothing to offer.
    let script = format!(
        "cd repo.forks/demo; kill -STOP {daemon}; TINE_COMPLETE=fish tine -- tine path d; kill -CONT {daemon}"
    );
    let mut command = shell(&repo, "sh", &["-c", &script]);
    command.current_dir(repo.root());
    let output = run_with_timeout(&mut command).expect_success(&script);
    assert_eq!(
        (output.text().as_str(), output.error_text().as_str()),
        ("", "")
    );
    tine.ok(&["daemon", "stop"]);
    assert_eq!(offered(&tine, repo.dir(), &["path", "d"]), ["demo"]);
    assert_eq!(tine.daemon_pid(), None);
}

/// Types a line with a tab in it into an interactive shell, and gives what it shows after.
#[track_caller]
fn typed(mut terminal: Terminal, setup: &str, line: &str, expected: &str) {
    terminal.send(&format!("{setup}; echo rea''dy\n"));
    terminal.wait_for("ready");
    terminal.send(line);
    terminal.wait_for(expected);
    // Whatever is typed by then goes.
    terminal.send("\x03\nexit\n");
    terminal.end();
}

/// Words that are completed by a tab and then run, in a shell that was set up so.
fn assert_tab_completes(repo: &TestRepo, interactive: impl Fn() -> Terminal, setup: &str) {
    let mounted = repo.root().join("repo.forks/fix-parser");
    typed(
        interactive(),
        setup,
        "tine path fix-p\t\n",
        mounted.to_str().unwrap(),
    );
    typed(
        interactive(),
        setup,
        "tcd fix-p\t && echo \"in [$PWD]\"\n",
        &format!("in [{}]", mounted.display()),
    );
    typed(
        interactive(),
        setup,
        "tine stat --json --fork fix-parser sa\t\n",
        "\"path\":\"same.txt\"",
    );
    typed(
        interactive(),
        setup,
        "tine diff --json fix-parser --against fix-parser@be\t\n",
        "\"point\":\"fork:fix-parser@before-lunch\"",
    );
}

#[test]
fn bash_completes() {
    require_fuse!();
    require_program!("bash");
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    filled(&tine, &repo);
    let setup = "eval \"$(tine shell-init bash)\"";
    let reply = |line: &str, words: &str, word: &str| {
        let count = words.split(' ').count() - 1;
        let script = format!(
            "{setup}; COMP_LINE='{line}'; COMP_POINT=${{#COMP_LINE}}; \
             COMP_WORDS=({words}); COMP_CWORD={count}; _tine tine '{word}'; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        let output = run_with_timeout(&mut shell(&repo, "bash", &["--norc", "-c", &script]));
        output.expect_success(&script).text()
    };
    assert_eq!(
        reply("tine path fix", "tine path fix", "fix"),
        "fix-lexer\nfix-parser"
    );
    assert_eq!(
        reply(
            "tine merge  fix-parser@be",
            "tine merge fix-parser @be",
            "@be"
        ),
        "@before-lunch"
    );
    assert_eq!(
        reply(
            "tine new x --from-fork=fix-p",
            "tine new x --from-fork = fix-p",
            "fix-p"
        ),
        "fix-parser"
    );
    // As it is pressed: the line that comes of it runs.
    let interactive = || {
        let mut command = shell(&repo, "bash", &["--norc", "--noprofile", "-i"]);
        command.env("PS1", "$ ");
        Terminal::start(&mut command, 200)
    };
    assert_tab_completes(&repo, interactive, setup);
}

#[test]
fn zsh_completes() {
    require_fuse!();
    require_program!("zsh");
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    filled(&tine, &repo);
    let setup = "eval \"$(tine shell-init zsh)\"";
    let interactive = || Terminal::start(&mut shell(&repo, "zsh", &["-f", "-i"]), 200);
    assert_tab_completes(&repo, interactive, setup);
    // As a file where zsh looks for it, from the first tab on.
    let functions = repo.root().join("functions");
    std::fs::create_dir(&functions).unwrap();
    std::fs::write(functions.join("_tine"), tine.ok(&["completions", "zsh"])).unwrap();
    let setup = format!(
        "fpath=({} $fpath); autoload -Uz compinit; compinit -u -D",
        functions.display()
    );
    typed(
        interactive(),
        &setup,
        "tine path fix-p\t\n",
        repo.root().join("repo.forks/fix-parser").to_str().unwrap(),
    );
}

#[test]
fn fish_completes() {
    require_fuse!();
    require_program!("fish");
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = filled(&tine, &repo);
    let run = |script: &str| {
        let script = format!("tine shell-init fish | source; {script}");
        let output = run_with_timeout(&mut shell(&repo, "fish", &["--no-config", "-c", &script]));
        output.expect_success(&script).text()
    };
    assert_eq!(
        run("complete -C 'tine path fix'"),
        "fix-lexer\ttine/fix-lexer, not mounted\nfix-parser\ttine/fix-parser"
    );
    assert_eq!(
        run("complete -C 'tine merge fix-parser@'"),
        "fix-parser@before-lunch\tAll is well"
    );
    assert_eq!(
        run("complete -C 'tine review show '"),
        "1\tfork:fix-parser into branch:main"
    );
    assert_eq!(
        run("complete -C 'tcd fix-p'"),
        "fix-parser\ttine/fix-parser"
    );
    assert_eq!(run("complete -C 'tcd fix-parser '"), "");
    assert_eq!(
        run("tcd fix-parser; pwd; tcd; pwd"),
        format!("{}\n{}", dir.display(), repo.dir().display())
    );
}

#[test]
fn tcd_goes_to_a_fork_and_back_and_mounts_on_the_way() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    std::fs::create_dir(dir.join("deep")).unwrap();
    for (program, args) in [("bash", ["--norc", "-c"]), ("zsh", ["-f", "-c"])] {
        require_program!(program);
        tine.ok(&["unmount", "demo"]);
        let script = format!(
            "eval \"$(tine shell-init {program})\"; tcd demo && cd deep && pwd; tcd && pwd; tcd - >/dev/null && pwd; \
             tcd nothing; echo \"$? $PWD\"; cd /"
        );
        let output = run_with_timeout(&mut shell(&repo, program, &[args[0], args[1], &script]));
        let deep = dir.join("deep");
        let expected = [
            deep.display().to_string(),
            repo.dir().display().to_string(),
            deep.display().to_string(),
            format!("4 {}", deep.display()),
        ];
        assert_eq!(
            output.text(),
            expected.join("\n"),
            "{program}: {}",
            output.error_text()
        );
        assert!(
            output
                .error_text()
                .starts_with("error: there is no fork called nothing"),
            "{program}: {}",
            output.error_text()
        );
    }
}

#[test]
fn the_main_checkout_is_found_from_everywhere() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    let main = repo.dir().to_str().unwrap();
    assert_eq!(tine.ok_in(&dir, &["path", "--main"]), main);
    assert_eq!(tine.ok(&["path", "--main"]), main);
    assert_eq!(tine.json(&["path", "--main"])["main_checkout"], main);
    let said = tine.fails(2, &["path", "demo", "--main"]);
    assert!(said.contains("cannot be used with"), "{said}");
}
