//! Two commands that are about one branch or one checkout, in every order that a named point can
//! force, and many at once. What a person sees afterwards: at most one checkout on a branch, index
//! and files of the main checkout as HEAD has them, and everybody's work.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

use crate::support::{
    OutputExt, TestRepo, Tine, command::DEFAULT_LIMIT, mounts_beneath, require_fuse,
    run_with_timeout_of, soaking,
};

/// The points at which a request can be held; see docs/testing.md.
pub const POINTS: [&str; 3] = ["before-lease", "before-ref", "before-index"];

/// How long the second command gets, while the first is held, to show what it does. One that must
/// wait shows nothing.
const MEETING: Duration = Duration::from_millis(250);

/// Work that a fork has before two commands meet.
enum Work {
    Committed(&'static str),
    Uncommitted(&'static str),
}

/// Two commands, and what there is before them. A `%` in a name is the number of the meeting.
struct Pair {
    branches: &'static [&'static str],
    forks: &'static [&'static [&'static str]],
    work: &'static [Work],
    before: &'static [&'static [&'static str]],
    first: &'static [&'static str],
    second: &'static [&'static str],
}

const NOTHING: Pair = Pair {
    branches: &[],
    forks: &[],
    work: &[],
    before: &[],
    first: &[],
    second: &[],
};

const PAIRS: [Pair; 12] = [
    Pair {
        branches: &["s%"],
        first: &["new", "a%", "--branch", "s%"],
        second: &["new", "b%", "--branch", "s%"],
        ..NOTHING
    },
    Pair {
        branches: &["s%"],
        forks: &[&["a%"]],
        first: &["branch", "switch", "a%", "s%"],
        second: &["new", "b%", "--branch", "s%"],
        ..NOTHING
    },
    Pair {
        branches: &["s%"],
        first: &["branch", "delete", "s%"],
        second: &["new", "b%", "--branch", "s%"],
        ..NOTHING
    },
    Pair {
        branches: &["s%"],
        first: &["new", "a%", "--branch", "s%"],
        second: &["branch", "rename", "s%", "t%"],
        ..NOTHING
    },
    Pair {
        first: &["branch", "create", "s%"],
        second: &["new", "b%", "--branch", "s%"],
        ..NOTHING
    },
    Pair {
        branches: &["s%"],
        forks: &[&["a%"]],
        work: &[Work::Committed("a%")],
        first: &["merge", "a%", "--into", "s%"],
        second: &["new", "b%", "--branch", "s%"],
        ..NOTHING
    },
    Pair {
        forks: &[&["a%"], &["b%"]],
        work: &[Work::Committed("a%"), Work::Committed("b%")],
        first: &["merge", "a%", "--into", "main"],
        second: &["merge", "b%", "--into", "main"],
        ..NOTHING
    },
    Pair {
        forks: &[&["a%"], &["b%"]],
        work: &[Work::Committed("a%"), Work::Uncommitted("b%")],
        first: &["merge", "a%", "--into", "main"],
        second: &["update", "b%"],
        ..NOTHING
    },
    Pair {
        forks: &[&["a%"]],
        work: &[Work::Uncommitted("a%")],
        first: &["commit", "a%", "-m", "work"],
        second: &["branch", "rename", "tine/a%", "t%"],
        ..NOTHING
    },
    Pair {
        forks: &[&["a%"], &["b%"], &["c%"]],
        work: &[Work::Committed("b%"), Work::Committed("c%")],
        before: &[&["merge", "b%", "--into", "a%"]],
        first: &["undo", "a%"],
        second: &["merge", "c%", "--into", "a%"],
        ..NOTHING
    },
    Pair {
        forks: &[&["a%"], &["b%"]],
        first: &["delete", "a%"],
        second: &["branch", "switch", "b%", "tine/a%"],
        ..NOTHING
    },
    Pair {
        forks: &[&["a%"], &["b%"]],
        work: &[Work::Committed("a%"), Work::Committed("b%")],
        first: &["unmount", "a%", "--merge=main"],
        second: &["merge", "b%", "--into", "main"],
        ..NOTHING
    },
];

/// Where a test asks for pauses.
pub struct Points<'r> {
    pub tine: Tine<'r>,
    dir: PathBuf,
}

impl<'r> Points<'r> {
    pub fn new(repo: &'r TestRepo) -> Points<'r> {
        let dir = repo.root().join("points");
        fs::create_dir(&dir).unwrap();
        let points = Points {
            tine: Tine::new(repo),
            dir,
        };
        points
            .run(&["new", "zero"])
            .expect_success("the daemon starts");
        points
    }

    pub fn run(&self, args: &[impl AsRef<str>]) -> Output {
        let args: Vec<&str> = args.iter().map(AsRef::as_ref).collect();
        let args = args.as_slice();
        let mut command = self.tine.command(args);
        run_with_timeout_of(command.env("TINE_PAUSE_IN", &self.dir), DEFAULT_LIMIT, b"")
    }

    /// Runs a command, and kills the daemon where the command comes to `point`.
    #[track_caller]
    fn kill_at(&self, point: &str, args: &[&str]) {
        self.hold_at(point, args, || self.tine.kill_daemon());
    }

    /// Runs a command, and does something while it is held at `point`. What came of it.
    #[track_caller]
    fn hold_at(&self, point: &str, args: &[&str], act: impl FnOnce()) -> Output {
        let reached = self.dir.join(format!("{point}.reached"));
        fs::write(self.dir.join(point), "").unwrap();
        std::thread::scope(|scope| {
            let held = scope.spawn(|| self.run(args));
            while !reached.exists() && !held.is_finished() {
                std::thread::yield_now();
            }
            assert!(reached.exists(), "{args:?} never came to {point}");
            act();
            let _ = fs::remove_file(&reached);
            held.join().unwrap()
        })
    }

    /// Runs `first`, holds it at `point`, runs `second`, and lets both end. What came of both, and
    /// whether the first was held.
    pub fn meet(&self, point: &str, first: &[String], second: &[String]) -> ([Output; 2], bool) {
        let (armed, reached) = (
            self.dir.join(point),
            self.dir.join(format!("{point}.reached")),
        );
        fs::write(&armed, "").unwrap();
        std::thread::scope(|scope| {
            let first = scope.spawn(|| self.run(first));
            while !reached.exists() && !first.is_finished() {
                std::thread::yield_now();
            }
            // One that never comes there holds nobody.
            let is_held = fs::remove_file(&armed).is_err();
            let second = scope.spawn(|| self.run(second));
            let deadline = Instant::now() + MEETING;
            while !second.is_finished() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(2));
            }
            let _ = fs::remove_file(&reached);
            ([first.join().unwrap(), second.join().unwrap()], is_held)
        })
    }
}

/// That a command did what it was told, or says why not.
pub fn assert_told(what: &str, output: &Output) {
    let text = output.error_text();
    let is_told = matches!(output.status.code(), Some(0 | 7)) || text.contains("hint:");
    assert!(
        is_told,
        "{what}: {:?}\n{}\n{text}",
        output.status,
        output.text()
    );
    assert!(!text.contains("panicked"), "{what}: {text}");
}

/// That no branch has two checkouts, that the main checkout is as HEAD has it, and that no work is
/// gone.
fn assert_in_order(repo: &TestRepo, what: &str, marks: &[String]) {
    let listed = repo.git(&["worktree", "list", "--porcelain"]);
    let mut branches: Vec<&str> = listed
        .lines()
        .filter(|line| line.starts_with("branch "))
        .collect();
    branches.sort_unstable();
    for pair in branches.windows(2) {
        assert_ne!(pair[0], pair[1], "{what}: two checkouts\n{listed}");
    }
    assert_eq!(repo.status(repo.dir()), "", "{what}: the main checkout");
    // The branches of the main repository, and those of forks.
    let log = |more: &[&str]| {
        let log = ["log", "--branches", "--glob=refs/tine/*/git/heads/*"];
        repo.git(&[&log, more, &["--name-only", "--format="]].concat())
    };
    let deleted = log(&["--diff-filter=D"]);
    assert_eq!(deleted, "", "{what}: a commit takes work out");
    let committed = log(&[]);
    let worktrees = listed
        .lines()
        .filter_map(|line| line.strip_prefix("worktree "));
    let mut dirs: Vec<PathBuf> = worktrees.map(PathBuf::from).collect();
    dirs.extend(mounts_beneath(repo.root()));
    for mark in marks {
        let is_there = committed.lines().any(|line| line == mark)
            || dirs.iter().any(|dir| dir.join(mark).exists());
        assert!(is_there, "{what}: {mark} is gone");
    }
    for dir in dirs.iter().filter(|dir| dir.join(".git").exists()) {
        let status = repo.git_in(dir, &["status", "--porcelain"]);
        let is_own = |line: &str| line.starts_with("?? mark-");
        let dir = dir.display();
        assert!(status.lines().all(is_own), "{what}: {dir} shows {status}");
    }
}

/// Each command sees that the other's branch has the commits, and neither may remove the last one.
#[test]
fn a_merge_that_deletes_its_source_keeps_it_where_the_target_is_deleted_meanwhile() {
    require_fuse!();
    let repo = TestRepo::new();
    let points = Points::new(&repo);
    let tine = &points.tine;
    repo.git(&["branch", "aside"]);
    repo.sh_in(
        repo.dir(),
        "git switch -q -c source; echo work > work.txt; git add work.txt; git commit -qm work; git switch -q main",
    );
    let work = repo.git(&["rev-parse", "source"]);
    let words = |args: &[&str]| {
        args.iter()
            .map(|&arg| arg.to_owned())
            .collect::<Vec<String>>()
    };
    let merge = words(&["merge", "source", "--into", "aside", "--delete"]);
    let delete = words(&["branch", "delete", "aside", "--force"]);
    let ([merged, deleted], is_held) = points.meet("before-removal", &merge, &delete);
    assert!(is_held);
    deleted.expect_success("the target goes: the source has its commits");
    let text = merged.error_text() + &merged.text();
    assert!(text.contains("source"), "{text}");
    assert_eq!(repo.git(&["rev-parse", "source"]), work, "{text}");
    assert_eq!(repo.git(&["branch", "--list", "aside"]), "");
    tine.ok(&["merge", "source", "--into", "main", "--delete"]);
    assert_eq!(repo.git(&["branch", "--list", "source"]), "");
    assert_eq!(repo.git(&["show", "main:work.txt"]), "work");
}

/// git reads the index before it locks it, asks the monitor in between, and writes what it read.
#[test]
fn a_commit_of_git_that_read_the_index_before_a_merge_does_not_put_it_back() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let [armed, asked] = ["armed", "asked"].map(|name| repo.root().join(name));
    let monitor = repo.root().join("monitor");
    let script = format!(
        "#!/bin/sh\nif mv {0} {1} 2>/dev/null; then while [ -e {1} ]; do sleep 0.01; done; fi\nprintf 'token\\0/\\0'\n",
        armed.display(),
        asked.display()
    );
    fs::write(&monitor, script).unwrap();
    repo.sh_in(repo.root(), "chmod +x monitor");
    let monitor = format!("core.fsmonitor={}", monitor.display());
    let source = tine.new_fork("source");
    let fork = tine.new_fork("target");
    let main = repo.dir().to_owned();
    for (dir, into, branch) in [
        (&main, "branch:main", "main"),
        (&fork, "fork:target", "tine/target"),
    ] {
        let theirs = format!("theirs-{branch}").replace('/', "-");
        fs::write(source.join(&theirs), "theirs\n").unwrap();
        tine.ok(&["commit", "source", "-m", &theirs]);
        fs::write(dir.join("mine"), "mine\n").unwrap();
        repo.git_in(dir, &["-c", &monitor, "update-index", "--fsmonitor"]);
        repo.git_in(dir, &["-c", &monitor, "add", "mine"]);
        // In a fork's mount git would be one of those that the merge waits for.
        let tip = || match into.strip_prefix("fork:") {
            Some(fork) => repo.git_of_fork(fork, &["rev-parse", branch]),
            None => repo.git(&["rev-parse", branch]),
        };
        let before = tip();
        fs::write(&armed, "").unwrap();
        let [committed, merged] = std::thread::scope(|scope| {
            let commit = scope
                .spawn(|| repo.try_git_in(dir, &["-c", &monitor, "commit", "-q", "-m", "mine"]));
            while !asked.exists() && !commit.is_finished() {
                std::thread::yield_now();
            }
            let merge = scope.spawn(|| tine.run(&["merge", "source", "--into", into]));
            while tip() == before && !merge.is_finished() {
                std::thread::yield_now();
            }
            let _ = fs::remove_file(&asked);
            [commit, merge].map(|thread| thread.join().unwrap())
        });
        merged.expect_success("the merge");
        assert!(
            !committed.status.success(),
            "{branch}: {}",
            committed.error_text()
        );
        let status = repo.git_in(dir, &["status", "--porcelain", "-uall", "--", &theirs]);
        assert_eq!(status, "", "{branch}: the index has what the merge brought");
        repo.git_in(dir, &["add", "mine"]);
        repo.git_in(dir, &["commit", "-q", "-m", "mine"]);
        assert_eq!(repo.git(&["show", &format!("{branch}:{theirs}")]), "theirs");
    }
}

/// The other checkout would not follow, and its next commit would take this one back.
#[test]
fn a_commit_is_refused_where_another_checkout_has_the_branch() {
    require_fuse!();
    let repo = TestRepo::new().with_linked_forks();
    let tine = Tine::new(&repo);
    let fork = tine.new_fork("a");
    fs::write(fork.join("mine"), "mine\n").unwrap();
    let other = repo.root().join("other");
    repo.git(&[
        "worktree",
        "add",
        "-q",
        "--force",
        crate::support::path_text(&other),
        "tine/a",
    ]);
    let before = repo.git(&["rev-parse", "tine/a"]);
    let said = tine.fails(5, &["commit", "a", "-m", "mine"]);
    assert!(said.contains(crate::support::path_text(&other)), "{said}");
    assert_eq!(repo.git(&["rev-parse", "tine/a"]), before);
    repo.git(&["worktree", "remove", crate::support::path_text(&other)]);
    tine.ok(&["commit", "a", "-m", "mine"]);
}

/// git reads the branch first, and puts HEAD on it when all files are there.
#[test]
fn a_branch_that_git_is_switching_to_is_moved_with_its_checkout() {
    require_fuse!();
    let repo = TestRepo::new();
    let [hold, held] = ["hold", "held"].map(|name| repo.root().join(name));
    let smudge = format!("{}; cat", waiting(&hold, &held));
    repo.git(&["config", "filter.slow.smudge", &smudge]);
    merge_into_a_branch_being_switched_to(&repo, &hold, &held);
}

/// Its index is not locked any more then. A git before 2.46 runs no such hook, and is met at any
/// moment.
#[test]
fn a_branch_that_git_is_about_to_put_head_on_is_moved_with_its_checkout() {
    require_fuse!();
    let repo = TestRepo::new();
    let [hold, held] = ["hold", "held"].map(|name| repo.root().join(name));
    let wait = waiting(&hold, &held);
    let hook =
        format!("if [ \"$1\" = prepared ] && grep -q 'ref:refs/heads/main HEAD'; then {wait}; fi");
    repo.hook("reference-transaction", &hook);
    merge_into_a_branch_being_switched_to(&repo, &hold, &held);
}

/// A line of shell that says that it is reached, and waits for as long as there is a file `hold`.
fn waiting(hold: &Path, held: &Path) -> String {
    let [hold, held] = [hold, held].map(Path::display);
    format!("if [ -e {hold} ]; then : > {held}; while [ -e {hold} ]; do sleep 0.01; done; fi")
}

fn merge_into_a_branch_being_switched_to(repo: &TestRepo, hold: &Path, held: &Path) {
    let tine = Tine::new(repo);
    repo.sh_in(
        repo.dir(),
        "echo '*.slow filter=slow' > .gitattributes; echo 1 > a.slow; git add .; git commit -qm slow; git branch old; echo 2 > a.slow; git commit -qam new",
    );
    let fork = tine.new_fork("source");
    fs::write(fork.join("theirs"), "theirs\n").unwrap();
    tine.ok(&["commit", "source", "-m", "theirs"]);
    repo.git(&["switch", "-q", "old"]);
    fs::write(hold, "").unwrap();
    let merged = std::thread::scope(|scope| {
        let switch = scope.spawn(|| repo.git(&["switch", "-q", "main"]));
        while !held.exists() && !switch.is_finished() {
            std::thread::yield_now();
        }
        let merge = scope.spawn(|| tine.run(&["merge", "source", "--into", "main"]));
        let deadline = Instant::now() + MEETING;
        while !merge.is_finished() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        fs::remove_file(hold).unwrap();
        switch.join().unwrap();
        merge.join().unwrap()
    });
    assert_told("the merge", &merged);
    assert_eq!(repo.status(repo.dir()), "");
    assert_told(
        "the merge again",
        &tine.run(&["merge", "source", "--into", "main"]),
    );
    assert_eq!(repo.status(repo.dir()), "");
    assert_eq!(
        fs::read_to_string(repo.dir().join("theirs")).unwrap(),
        "theirs\n"
    );
}

/// git never breaks the lock of a branch: whoever commits on it would wait in vain.
#[test]
fn a_daemon_that_is_killed_while_a_branch_is_locked_leaves_no_lock() {
    require_fuse!();
    let repo = TestRepo::new();
    let points = Points::new(&repo);
    let tine = &points.tine;
    repo.git(&["branch", "aside"]);
    let dir = tine.new_fork("a");
    fs::write(dir.join("own.txt"), "own\n").unwrap();
    tine.ok(&["commit", "a", "-m", "own"]);
    tine.ok(&["daemon", "stop"]);
    let lock = repo.common_dir().join("refs/heads/aside.lock");
    let merge = ["merge", "a", "--into", "aside"];
    fs::write(points.dir.join("ref-locked"), "").unwrap();
    let reached = points.dir.join("ref-locked.reached");
    std::thread::scope(|scope| {
        let held = scope.spawn(|| points.run(&merge));
        while !reached.exists() && !held.is_finished() {
            std::thread::yield_now();
        }
        assert!(lock.exists(), "it is held with the branch locked");
        tine.kill_daemon();
        let _ = fs::remove_file(&reached);
        held.join().unwrap();
    });
    tine.ok(&["list"]);
    assert!(!lock.exists());
    assert_told("the merge again", &tine.run(&merge));
    assert_eq!(repo.git(&["show", "aside:own.txt"]), "own");
    let notes = fs::read_dir(repo.common_dir().join("tine/locking")).unwrap();
    assert_eq!(notes.count(), 0);
}

/// Without a line in HEAD's reflog the branch seemed to have moved under the fork, and nobody could
/// commit.
#[test]
fn a_daemon_that_is_killed_when_head_is_on_another_branch_says_so_when_it_is_back() {
    require_fuse!();
    let repo = TestRepo::new();
    let points = Points::new(&repo);
    repo.sh_in(
        repo.dir(),
        "git checkout -qb topic; echo t > t; git add t; git commit -qm topic; git checkout -q main",
    );
    points.run(&["new", "a"]).expect_success("a fork");
    points.kill_at("head-switched", &["branch", "switch", "a", "topic"]);
    let dir = repo.root().join("repo.forks/a");
    points.run(&["list"]).expect_success("the next daemon");
    assert_eq!(
        repo.git_in(&dir, &["symbolic-ref", "--short", "HEAD"]),
        "topic"
    );
    assert_eq!(repo.git_in(&dir, &["status", "--porcelain"]), "");
    fs::write(dir.join("own"), "own").unwrap();
    points
        .run(&["commit", "a", "-m", "own"])
        .expect_success("a commit");
    let back = repo.git_in(&dir, &["rev-parse", "--abbrev-ref", "@{-1}"]);
    assert_eq!(back, "tine/a");
}

#[test]
fn a_daemon_that_is_killed_between_a_branch_and_the_reflog_of_head_finishes_the_merge() {
    require_fuse!();
    let repo = TestRepo::new();
    let points = Points::new(&repo);
    points.run(&["new", "a"]).expect_success("a fork");
    repo.sh_in(
        repo.dir(),
        "echo theirs > theirs; git add theirs; git commit -qm theirs",
    );
    points.kill_at("head-moved", &["merge", "main", "--into", "fork:a"]);
    let log = repo.git_dir_of_fork("a").join("logs/HEAD");
    let whole = fs::read_to_string(&log).unwrap();
    let (before, last) = whole
        .trim_end()
        .rsplit_once('\n')
        .expect("the fork began, and was moved");
    fs::write(&log, format!("{before}\n")).unwrap();
    points.run(&["list"]).expect_success("the next daemon");
    let dir = repo.root().join("repo.forks/a");
    fs::write(dir.join("own"), "own").unwrap();
    points
        .run(&["commit", "a", "-m", "own"])
        .expect_success("nothing moved under it");
    let told = last.split_once('\t').expect("a message").1;
    assert!(fs::read_to_string(&log).unwrap().contains(told));
}

/// What it saw of the fork's files is old by the time that it replaces them.
#[test]
fn what_a_program_writes_while_a_fork_is_about_to_follow_is_merged_and_not_replaced() {
    require_fuse!();
    let repo = TestRepo::new();
    repo.sh_in(
        repo.dir(),
        "seq 1 20 > lines; git add lines; git commit -qm lines",
    );
    let points = Points::new(&repo);
    let follows = [
        ["merge", "main", "--into", "fork:FORK"].as_slice(),
        &["update", "FORK"],
    ];
    for (number, follow) in follows.into_iter().enumerate() {
        let name = format!("a{number}");
        let into = format!("fork:{name}");
        let args: Vec<&str> = follow
            .iter()
            .map(|&word| match word {
                "FORK" => &name,
                "fork:FORK" => &into,
                other => other,
            })
            .collect();
        points.run(&["new", &name]).expect_success("a fork");
        repo.sh_in(
            repo.dir(),
            "sed -i 's/^2+*$/&+/' lines; git commit -qam theirs",
        );
        let file = repo.root().join("repo.forks").join(&name).join("lines");
        let before = fs::read_to_string(&file).unwrap();
        let done = points.hold_at("before-view", &args, || {
            fs::write(&file, before.replace("\n19\n", "\n19 mine\n")).unwrap();
        });
        done.expect_success("it is planned again");
        let theirs = fs::read_to_string(repo.dir().join("lines")).unwrap();
        let both = theirs.replace("\n19\n", "\n19 mine\n");
        assert_eq!(fs::read_to_string(&file).unwrap(), both, "{args:?}");
    }
}

/// The files are old already, so that they are is known already.
#[test]
fn a_daemon_that_is_killed_when_a_fork_has_gone_back_still_knows_what_it_goes_back_past() {
    require_fuse!();
    let repo = TestRepo::new();
    let points = Points::new(&repo);
    let goings = [
        ["restore", "FORK", "here", "--exact"].as_slice(),
        &["restore", "FORK", "here", "--exact", "--path", "."],
        &["revert", "FORK", ".", "--to", "here", "--exact"],
    ];
    for (number, going) in goings.into_iter().enumerate() {
        let name = format!("a{number}");
        let args: Vec<&str> = going
            .iter()
            .map(|&word| if word == "FORK" { &name } else { word })
            .collect();
        points.run(&["new", &name]).expect_success("a fork");
        points
            .run(&["snapshot", &name, "here"])
            .expect_success("a snapshot");
        let theirs = format!("theirs-{number}");
        repo.sh_in(
            repo.dir(),
            &format!("echo theirs > {theirs}; git add {theirs}; git commit -qm theirs"),
        );
        points.run(&["update", &name]).expect_success("it has that");
        points.kill_at("files-restored", &args);
        let refused = points.run(&["commit", &name, "-m", "mine"]);
        assert_eq!(
            refused.status.code(),
            Some(3),
            "{args:?}: {}",
            refused.text()
        );
        let text = refused.error_text();
        assert!(
            text.contains("would take back") && text.contains(&theirs),
            "{text}"
        );
    }
}

#[test]
fn two_commands_that_meet_at_one_branch_or_checkout_leave_both_in_order() {
    require_fuse!();
    let repo = TestRepo::new().without_maintenance();
    let points = Points::new(&repo);
    let mut number = 0;
    let mut marks = Vec::new();
    for pair in &PAIRS {
        for point in POINTS {
            number += 1;
            let named = |text: &&str| text.replace('%', &number.to_string());
            let words = |args: &[&str]| args.iter().map(named).collect::<Vec<String>>();
            let run = |args: &[&str]| {
                let args = words(args);
                points.run(&args).expect_success(&args.join(" ")).text()
            };
            for branch in pair.branches {
                repo.git(&["branch", &named(branch)]);
            }
            for fork in pair.forks {
                run(&[&["new"], *fork].concat());
            }
            for work in pair.work {
                let (Work::Committed(fork) | Work::Uncommitted(fork)) = work;
                let mark = format!("mark-{}", named(fork));
                let dir = PathBuf::from(run(&["path", fork]));
                fs::write(dir.join(&mark), "work").unwrap();
                if matches!(work, Work::Committed(_)) {
                    run(&["commit", fork, "-m", "work"]);
                }
                marks.push(mark);
            }
            for args in pair.before {
                run(args);
            }
            let (first, second) = (words(pair.first), words(pair.second));
            let what = format!("{} × {} at {point}", first.join(" "), second.join(" "));
            let ([one, other], _) = points.meet(point, &first, &second);
            assert_told(&what, &one);
            assert_told(&what, &other);
            assert!(
                one.status.success() || other.status.success(),
                "{what}: neither was done: {} {}",
                one.error_text(),
                other.error_text()
            );
            assert_in_order(&repo, &what, &marks);
        }
    }
    drop(points);
    repo.git(&["fsck", "--strict"]);
}

#[test]
fn a_command_that_waits_too_long_for_a_branch_says_who_has_it() {
    require_fuse!();
    let repo = TestRepo::new();
    let points = Points::new(&repo);
    repo.git(&["branch", "s"]);
    let reached = points.dir.join("before-ref.reached");
    fs::write(points.dir.join("before-ref"), "").unwrap();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| points.run(&["branch", "delete", "s"]));
        while !reached.exists() {
            assert!(
                !first.is_finished(),
                "{}",
                first.join().unwrap().error_text()
            );
            std::thread::yield_now();
        }
        let refused = points.run(&["new", "b", "--branch", "s"]);
        assert_eq!(refused.status.code(), Some(5), "{}", refused.error_text());
        let text = refused.error_text();
        assert!(
            text.contains("the branch \"s\" is in use by `tine branch delete s`"),
            "{text}"
        );
        fs::remove_file(&reached).unwrap();
        first.join().unwrap().expect_success("the first goes on");
    });
    assert!(
        points.run(&["path", "b"]).status.code() == Some(4),
        "nothing was made"
    );
}

/// Merges eight forks with a file each into the main checkout at once, by `verb`.
fn merge_eight(verb: impl Fn(&str) -> Vec<String>, options: &[&str]) {
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    let rounds = if soaking() { 200 } else { 3 };
    for round in 0..rounds {
        let names: Vec<String> = (0..8).map(|n| format!("c{round}-{n}")).collect();
        for name in &names {
            let dir = PathBuf::from(tine.ok(&[&["new", name], options].concat()));
            fs::write(dir.join(format!("file-{name}")), name).unwrap();
            tine.ok(&["commit", name, "-m", "work"]);
        }
        let outputs: Vec<Output> = std::thread::scope(|scope| {
            let running: Vec<_> = names
                .iter()
                .map(|name| {
                    let (tine, args) = (&tine, verb(name));
                    scope.spawn(move || {
                        tine.run(&args.iter().map(String::as_str).collect::<Vec<_>>())
                    })
                })
                .collect();
            running
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        assert_eq!(repo.status(repo.dir()), "", "round {round}");
        for (name, output) in names.iter().zip(outputs) {
            output.expect_success(&format!("round {round}: the merge of {name}"));
            let file = format!("file-{name}");
            assert_eq!(fs::read_to_string(repo.dir().join(&file)).unwrap(), *name);
            assert_eq!(repo.git(&["show", &format!("main:{file}")]), *name);
            tine.ok(&["delete", name]);
        }
    }
    assert_eq!(
        repo.git(&["log", "main", "--diff-filter=D", "--name-only", "--format="]),
        ""
    );
    repo.git(&["fsck", "--strict"]);
}

#[test]
fn eight_merges_at_once_into_the_main_checkout_are_all_done_and_leave_it_clean() {
    require_fuse!();
    merge_eight(
        |name| {
            ["merge", name, "--into", "main"]
                .map(str::to_owned)
                .to_vec()
        },
        &[],
    );
}

#[test]
fn eight_unmounts_at_once_that_merge_into_the_main_checkout_are_all_done() {
    require_fuse!();
    merge_eight(
        |name| ["unmount", name].map(str::to_owned).to_vec(),
        &["--on-unmount", "merge:main"],
    );
}

#[test]
fn a_merge_into_a_checkout_keeps_its_uncommitted_work_its_hook_and_the_way_back() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let fork = tine.new_fork("work");
    repo.sh_in(
        &fork,
        "echo new > new; echo changed > README.md; rm -rf docs",
    );
    tine.ok(&["commit", "work", "-m", "work"]);
    let before = repo.git(&["rev-parse", "main"]);
    repo.sh_in(
        repo.dir(),
        "echo mine >> run.sh; echo own > own; echo staged > staged; git add staged
         mkdir -p .git/hooks; printf '#!/bin/sh\\ntine list > hook-said\\n' > .git/hooks/post-merge; chmod +x .git/hooks/post-merge",
    );
    let path = format!(
        "{}:{}",
        Tine::program().parent().unwrap().display(),
        std::env::var("PATH").unwrap()
    );
    // Of the daemon, which runs the hook.
    tine.ok(&["daemon", "stop"]);
    let merged = run_with_timeout_of(
        tine.command(&["merge", "work", "--into", "main"])
            .env("PATH", path),
        DEFAULT_LIMIT,
        b"",
    );
    merged.expect_success("the merge");
    assert_eq!(
        repo.status(repo.dir()),
        " M run.sh\nA  staged\n?? hook-said\n?? own",
        "what was uncommitted is so still"
    );
    assert!(
        fs::read_to_string(repo.dir().join("hook-said"))
            .unwrap()
            .contains("work")
    );
    assert_eq!(repo.git(&["rev-parse", "ORIG_HEAD"]), before);
    assert_eq!(repo.git(&["rev-parse", "main@{1}"]), before);
    assert_eq!(repo.git(&["rev-parse", "HEAD@{1}"]), before);
    // One that is in the way keeps all of it back.
    repo.sh_in(&fork, "echo more > run.sh; echo other > other");
    tine.ok(&["commit", "work", "-m", "more"]);
    let stood = repo.git(&["rev-parse", "main"]);
    let refused = tine.fails(3, &["merge", "work", "--into", "main"]);
    assert!(
        refused.contains("run.sh") && refused.contains("nothing was changed"),
        "{refused}"
    );
    assert_eq!(repo.git(&["rev-parse", "main"]), stood);
    assert!(!repo.dir().join("other").exists());
    // Neither does another git command that has the index.
    repo.sh_in(repo.dir(), "git checkout -q run.sh; touch .git/index.lock");
    let locked = tine.fails(5, &["merge", "work", "--into", "main"]);
    assert!(locked.contains("index.lock"), "{locked}");
    assert_eq!(repo.git(&["rev-parse", "main"]), stood);
    fs::remove_file(repo.dir().join(".git/index.lock")).unwrap();
    tine.ok(&["merge", "work", "--into", "main"]);
    assert_eq!(repo.status(repo.dir()), "A  staged\n?? hook-said\n?? own");
}

#[test]
fn a_fork_whose_branch_moved_under_it_takes_back_nobodys_work() {
    require_fuse!();
    let repo = TestRepo::new().with_linked_forks();
    let tine = Tine::new(&repo);
    let fork = tine.new_fork("mine");
    fs::write(fork.join("own"), "own").unwrap();
    // Another worktree of git's has the branch, too.
    let other = repo.root().join("other");
    repo.git(&[
        "worktree",
        "add",
        "-q",
        "-f",
        other.to_str().unwrap(),
        "tine/mine",
    ]);
    repo.sh_in(
        &other,
        "echo theirs > theirs; git add theirs; git commit -qm theirs",
    );
    let tip = repo.git(&["rev-parse", "tine/mine"]);
    repo.sh_in(
        repo.dir(),
        "echo main > goes-on; git add goes-on; git commit -qm on",
    );
    for args in [
        &["commit", "mine", "-m", "own"][..],
        &["update", "mine"],
        &["merge", "mine", "--into", "main"],
        &["merge", "main", "--into", "mine"],
    ] {
        let output = tine.run(args);
        let text = output.error_text();
        assert_eq!(output.status.code(), Some(3), "{args:?}: {text}");
        assert!(text.contains("moved under the fork"), "{text}");
        assert!(text.contains("Carl Committer: commit: theirs"), "{text}");
    }
    assert_eq!(repo.git(&["rev-parse", "tine/mine"]), tip);
    // The way that the hint names.
    tine.ok(&["branch", "switch", "mine", "mine-own", "--create"]);
    assert_eq!(repo.status(&fork), "?? own");
    tine.ok(&["merge", "tine/mine", "--into", "mine"]);
    tine.ok(&["commit", "mine", "-m", "both"]);
    assert_eq!(fs::read_to_string(fork.join("theirs")).unwrap(), "theirs\n");
    assert_eq!(repo.git(&["show", "mine-own:own"]), "own");
    assert_eq!(repo.git(&["show", "mine-own:theirs"]), "theirs");
}

#[test]
fn what_leaves_a_fork_whose_branch_moved_under_it_takes_back_nobodys_work() {
    require_fuse!();
    let repo = TestRepo::new().with_linked_forks();
    let tine = Tine::new(&repo);
    let fork = tine.new_fork("mine");
    let began = repo.head();
    let other = repo.root().join("other");
    repo.sh_in(
        repo.dir(),
        &format!("git worktree add -q -f {} tine/mine", other.display()),
    );
    repo.sh_in(
        &other,
        "echo theirs > theirs; git add theirs; git commit -qm theirs",
    );
    fs::write(fork.join("own"), "own").unwrap();
    repo.git(&["merge", "-q", "tine/mine"]);
    let is_whole = |branch: &str| {
        assert_eq!(repo.git(&["show", &format!("{branch}:theirs")]), "theirs");
        assert_eq!(repo.git(&["show", &format!("{branch}:own")]), "own");
    };
    // A snapshot, and a child, begin where the fork left its branch.
    tine.ok(&["snapshot", "mine", "s"]);
    repo.git(&["branch", "with-snapshot"]);
    tine.ok(&["merge", "mine@s", "--into", "with-snapshot"]);
    is_whole("with-snapshot");
    let child = PathBuf::from(tine.ok(&["new", "child", "--from-fork", "mine"]));
    assert_eq!(repo.git_in(&child, &["rev-parse", "HEAD"]), began);
    assert_eq!(repo.status(&child), "?? own");
    tine.ok(&["commit", "child", "-m", "own"]);
    repo.git(&["branch", "with-child"]);
    tine.ok(&["merge", "child", "--into", "with-child"]);
    is_whole("with-child");
    // Without reflogs tine knows by itself.
    repo.git(&["reflog", "expire", "--expire=now", "--all"]);
    let refused = tine.fails(3, &["commit", "mine", "-m", "own"]);
    assert!(refused.contains("moved under the fork"), "{refused}");
    // What comes back is on a branch of its own: the other has somebody else's commit.
    tine.ok(&["delete", "mine", "--force"]);
    tine.fails(5, &["recover", "1"]);
    let back = tine.ok(&["recover", "1", "back"]);
    assert_eq!(repo.status(Path::new(&back)), "?? own");
    tine.ok(&["commit", "back", "-m", "own"]);
    tine.ok(&["merge", "back", "--into", "main"]);
    is_whole("main");
    // What goes on after that is no move of others.
    repo.sh_in(
        Path::new(&back),
        "echo more > more; git add -A; git commit -qm more",
    );
    tine.ok(&["snapshot", "back"]);
    repo.git(&["reflog", "expire", "--expire=now", "--all"]);
    fs::write(Path::new(&back).join("last"), "last").unwrap();
    tine.ok(&["commit", "back", "-m", "last"]);
}

/// Ways in which the file HEAD can be damaged.
const DAMAGES: [fn(&Path); 3] = [
    |head| fs::write(head, "no head\n").unwrap(),
    |head| fs::write(head, "").unwrap(),
    |head| {
        fs::remove_file(head).unwrap();
        fs::create_dir(head).unwrap();
    },
];

#[test]
fn a_fork_whose_head_cannot_be_read_stops_no_other() {
    require_fuse!();
    for repo in [TestRepo::new(), TestRepo::new().with_linked_forks()] {
        unreadable_heads_stop_no_other(&repo);
    }
}

fn unreadable_heads_stop_no_other(repo: &TestRepo) {
    let tine = Tine::new(repo);
    for (n, damage) in DAMAGES.into_iter().enumerate() {
        let (bad, good) = (format!("bad{n}"), format!("good{n}"));
        tine.ok(&["new", &bad]);
        let dir = tine.new_fork(&good);
        let head = repo.git_dir_of_fork(&bad).join("HEAD");
        let saved = fs::read(&head).unwrap();
        damage(&head);
        fs::write(dir.join(format!("file{n}")), "good").unwrap();
        tine.ok(&["commit", &good, "-m", "work"]);
        tine.ok(&["handoff", "create", &good, "--to", "branch:main"]);
        tine.ok(&["merge", &good, "--into", "main"]);
        let policy = tine.ok(&["new", &format!("more{n}"), "--on-unmount", "merge:main"]);
        assert!(Path::new(&policy).join(format!("file{n}")).exists());
        // A git directory without the file HEAD is none, and is made again.
        let is_made_again = head.is_file() && fs::read(&head).unwrap() == saved;
        assert_ne!(
            is_made_again,
            tine.json(&["branch", "list"])["damaged"]
                .to_string()
                .contains(&bad)
        );
        if head.is_dir() {
            fs::remove_dir(&head).unwrap();
        }
        fs::write(&head, saved).unwrap();
    }
}

/// Its branch is still its own, and who wants that learns whose it is.
#[test]
fn the_branch_of_a_linked_fork_whose_head_cannot_be_read_is_not_free() {
    require_fuse!();
    let repo = TestRepo::new().with_linked_forks();
    let tine = Tine::new(&repo);
    for (n, damage) in DAMAGES.into_iter().enumerate() {
        let (bad, good) = (format!("bad{n}"), format!("good{n}"));
        tine.ok(&["new", &bad]);
        tine.new_fork(&good);
        let head = repo.git_dir_of_fork(&bad).join("HEAD");
        let saved = fs::read(&head).unwrap();
        damage(&head);
        let refused = tine.run(&[
            "new",
            &format!("thief{n}"),
            "--branch",
            &format!("tine/{bad}"),
        ]);
        assert_eq!(refused.status.code(), Some(5), "{}", refused.error_text());
        let refused = tine.run(&["merge", &good, "--into", &format!("branch:tine/{bad}")]);
        assert!(!refused.status.success());
        assert!(
            refused.error_text().contains(&bad),
            "{}",
            refused.error_text()
        );
        if head.is_dir() {
            fs::remove_dir(&head).unwrap();
        }
        fs::write(&head, saved).unwrap();
    }
}
