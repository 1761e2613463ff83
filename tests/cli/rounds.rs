//! `tine round`: the books of agents that work in turns, and that all of it goes again.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use crate::merging::each;
use crate::support::{
    OutputExt, TestRepo, Tine, repo::path_text, require_fuse, require_program, run_with_timeout_of,
};
use crate::{failure_of, refused, state};

/// Names that no agent may come across.
const NAMES: [&str; 3] = ["planner", "coder", "tester"];

fn start(tine: &Tine, args: &[&str]) -> Value {
    tine.json(&[&["round", "start"], args].concat())
}

/// The seat of an agent in the current round.
fn seat(tine: &Tine, agent: &str) -> Value {
    let shown = tine.json(&["round", "show"]);
    let agents = shown["agents"].as_array().unwrap().iter();
    let mut found = agents.filter(|found| found["agent"] == agent);
    found.next().expect("the agent has a seat")["seat"].clone()
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

/// The mount of an agent.
fn mount(tine: &Tine, agent: &str) -> PathBuf {
    PathBuf::from(text(&seat(tine, agent)["mount_dir"]))
}

/// A repository, and two agents who have written the same line.
fn with_two(tine: &Tine, args: &[&str]) {
    start(tine, &[&["--agents", "planner,coder"], args].concat());
    for agent in ["planner", "coder"] {
        let dir = mount(tine, agent);
        fs::write(
            dir.join("README.md"),
            format!("{}\n", text(&seat(tine, agent)["fork"])),
        )
        .unwrap();
    }
}

fn example(args: &[&str]) {
    let repo = TestRepo::new().without_maintenance();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/examples/rounds");
    let mut command = repo.command(&script, repo.root());
    command
        .args(args)
        .arg(repo.dir())
        .env("TINE", Tine::program());
    let output = run_with_timeout_of(&mut command, Duration::from_secs(240), b"")
        .expect_success("the example");
    assert!(
        output.text().ends_with("all statements hold"),
        "{}",
        output.text()
    );
}

#[test]
fn three_agents_play_three_rounds_and_nothing_is_left() {
    require_fuse!();
    require_program!("python3");
    example(&[]);
}

#[test]
fn three_agents_play_three_rounds_with_the_daemon_killed_between_all_steps() {
    require_fuse!();
    require_program!("python3");
    example(&["--kill"]);
}

#[test]
fn names_tell_nothing_and_a_round_is_begun_once() {
    require_fuse!();
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    let shown = start(
        &tine,
        &[
            "--agents",
            "planner,coder,tester",
            "--session",
            "secret",
            "--round",
            "1",
        ],
    );
    assert_eq!(
        (&shown["round"], &shown["stage"], &shown["mode"]),
        (&json!(1), &json!("open"), &json!("branches"))
    );
    assert_eq!(each(&shown["agents"], "agent"), NAMES);
    let again = start(&tine, &["--session", "secret", "--round", "1"]);
    assert_eq!(again, shown);
    let mut forks = BTreeSet::new();
    for agent in shown["agents"].as_array().unwrap() {
        let seat = &agent["seat"];
        let fork = text(&seat["fork"]);
        assert!(
            fork.len() == 8 && fork.bytes().all(|b| b.is_ascii_hexdigit()),
            "{fork}"
        );
        assert_eq!(seat["branch"], format!("tine/{fork}"));
        assert_eq!(seat["label"], fork.as_str());
        let dir = PathBuf::from(text(&seat["mount_dir"]));
        assert_eq!(repo.git_in(&dir, &["rev-parse", "HEAD"]), repo.head());
        assert_eq!(
            repo.git_in(&dir, &["status", "--porcelain", "--ignored"]),
            ""
        );
        assert!(dir.join(".scratch").is_dir());
        // Whatever an agent finds in and through its mount.
        let seen = [
            path_text(&dir).to_owned(),
            repo.git_in(&dir, &["log", "--all", "--format=%an %ae %s %D"]),
            repo.git_in(&dir, &["reflog", "--all"]),
            repo.git_in(&dir, &["worktree", "list", "--porcelain"]),
            repo.git_in(&dir, &["for-each-ref"]),
            repo.git_in(&dir, &["config", "--list", "--show-origin"]),
            repo.sh_in(
                &dir,
                "cat \"$(git rev-parse --git-common-dir)/info/exclude\"",
            ),
            repo.sh_in(
                &dir,
                "find .git -type f ! -path '*/objects/*' -exec cat {} +
                 cat \"$(git rev-parse --git-dir)\"/logs/HEAD; env",
            ),
            tine.ok_in(&dir, &["list"]),
            tine.ok_in(&dir, &["log"]),
            tine.ok_in(&dir, &["op", "log", &fork]),
            tine.ok_in(&dir, &["exec", &fork, "--", "env"]),
        ];
        for seen in seen {
            for name in NAMES.into_iter().chain(["secret"]) {
                assert!(!seen.contains(name), "{name} is in {seen}");
            }
        }
        forks.insert(fork);
    }
    assert_eq!(forks.len(), 3);
    refused(
        &repo,
        &tine,
        &["round", "start", "--session", "secret"],
        "round-state",
        3,
    );
    tine.ok(&["round", "finish", "--session", "secret"]);
    let next = start(&tine, &["--session", "secret"]);
    for agent in next["agents"].as_array().unwrap() {
        assert!(
            !forks.contains(&text(&agent["seat"]["fork"])),
            "names are new in each round"
        );
        assert!(forks.contains(&text(&agent["before"]["fork"])));
    }
}

#[test]
fn what_is_wrong_is_refused_and_changes_nothing() {
    require_fuse!();
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    for (args, code, exit) in [
        (&["show"][..], "no-such-session", 4),
        (&["finish"], "no-such-session", 4),
        (&["clean"], "no-such-session", 4),
        (&["attempt", "--agent", "a"], "no-such-session", 4),
        (&["start"], "usage", 2),
        (&["start", "--agents", "a,a"], "usage", 2),
        (&["start", "--agents", "a,b", "--labels", "x"], "usage", 2),
        (&["start", "--agents", "a,b", "--labels", "x,x"], "usage", 2),
        (&["start", "--agents", "a/b"], "usage", 2),
        (&["start", "--agents", "a", "--scratch", "docs"], "usage", 2),
        (&["start", "--agents", "a", "--scratch", ".git"], "usage", 2),
        (&["start", "--agents", "a", "--scratch", "a/b"], "usage", 2),
        (
            &["start", "--agents", "a", "--from", "nowhere"],
            "unknown-revision",
            4,
        ),
        (
            &["start", "--agents", "a", "--from-agent", "b"],
            "no-such-agent",
            4,
        ),
        (&["start", "--agents", "a", "--no-git", "."], "usage", 2),
    ] {
        refused(&repo, &tine, &[&["round"], args].concat(), code, exit);
    }
    with_two(&tine, &["--budget", "0"]);
    for (args, code, exit) in [
        (&["start"][..], "round-state", 3),
        (&["start", "--round", "2"], "round-state", 3),
        (&["show", "--for", "tester"], "no-such-agent", 4),
        (&["show", "--session", "other"], "no-such-session", 4),
        (&["finish", "--agent", "tester"], "no-such-agent", 4),
        (&["finish", "--label", "x"], "usage", 2),
        (&["merge", "--into", "main"], "round-state", 3),
        (
            &["merge", "--agents", "tester", "--into", "main"],
            "no-such-agent",
            4,
        ),
        (&["present", "--winner", "coder"], "round-state", 3),
        (&["diff", "planner", "tester"], "no-such-agent", 4),
        (&["attempt", "--agent", "coder"], "budget-spent", 9),
        (&["clean"], "round-state", 3),
    ] {
        refused(&repo, &tine, &[&["round"], args].concat(), code, exit);
    }
    let fork = text(&seat(&tine, "coder")["fork"]);
    refused(
        &repo,
        &tine,
        &["exec", &fork, "--attempt", "--", "touch", "x"],
        "budget-spent",
        9,
    );
    assert!(!mount(&tine, "coder").join("x").exists());
    tine.ok(&["new", "plain"]);
    refused(
        &repo,
        &tine,
        &["exec", "plain", "--attempt", "--", "true"],
        "no-such-agent",
        4,
    );
    tine.ok(&["round", "finish", "--agent", "planner", "--label", "x"]);
    refused(
        &repo,
        &tine,
        &["round", "finish", "--agent", "coder", "--label", "x"],
        "usage",
        2,
    );
    refused(
        &repo,
        &tine,
        &["round", "finish", "--agent", "planner", "--label", "y"],
        "round-state",
        3,
    );
}

#[test]
fn a_round_of_which_a_fork_cannot_be_made_leaves_nothing() {
    require_fuse!();
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    let exclude = repo.common_dir().join("info/exclude");
    let before = fs::read(&exclude).ok();
    repo.git(&["config", "tine.mountRoot", "inside"]);
    refused(
        &repo,
        &tine,
        &["round", "start", "--agents", "a,b"],
        "mount-dir-refused",
        2,
    );
    assert_eq!(fs::read(&exclude).ok(), before);
    assert_eq!(
        repo.git(&["for-each-ref", "--format=%(refname)"]),
        "refs/heads/main"
    );
    assert_eq!(repo.git(&["worktree", "list"]).lines().count(), 1);
    refused(&repo, &tine, &["round", "show"], "no-such-session", 4);
    repo.git(&["config", "--unset", "tine.mountRoot"]);
    assert_eq!(start(&tine, &["--agents", "a,b"])["round"], 1);
}

#[test]
fn scratch_is_seen_by_nobody_and_archived_as_it_is() {
    require_fuse!();
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    let exclude = repo.common_dir().join("info/exclude");
    fs::create_dir_all(exclude.parent().unwrap()).unwrap();
    fs::write(&exclude, "*.mine").unwrap();
    start(&tine, &["--agents", "planner,coder", "--scratch", ".lab"]);
    let dir = mount(&tine, "planner");
    let fork = text(&seat(&tine, "planner")["fork"]);
    let scratch = dir.join(".lab");
    let outside = repo.root().join("outside");
    fs::write(&outside, "not yours").unwrap();
    repo.sh_in(
        &scratch,
        "mkdir -p a/b; printf 'x' > a/b/run.sh; chmod 755 a/b/run.sh; mkfifo pipe; truncate -s 3M holes; printf e >> holes; \
         printf n > \"$(printf 'na\\377me')\"; mkdir closed; echo c > closed/c; chmod 500 closed; git init -q nested",
    );
    symlink(&outside, scratch.join("link")).unwrap();
    symlink("/", scratch.join("root")).unwrap();
    symlink("../../../../../..", scratch.join("up")).unwrap();
    fs::write(dir.join("work.txt"), "work\n").unwrap();
    assert_eq!(repo.git_in(&dir, &["status", "--porcelain"]), "?? work.txt");
    assert_eq!(
        each(&tine.json(&["status", &fork])["changes"], "path"),
        ["work.txt"]
    );
    let finished = tine.json(&["round", "finish", "--agent", "planner", "--label", "alpha"]);
    let archive = PathBuf::from(text(&finished["finished"][0]["archive"]));
    assert_eq!(
        archive,
        repo.common_dir().join("tine/rounds/default/scratch/alpha")
    );
    let branch = text(&finished["finished"][0]["branch"]);
    assert_eq!(
        repo.git(&["diff", "--name-only", "main", &branch]),
        "work.txt"
    );
    assert_eq!(
        repo.git(&["log", "-1", "--format=%s", &branch]),
        "[round 1] auto-commit"
    );
    assert_eq!(fs::read_link(archive.join("link")).unwrap(), outside);
    assert_eq!(fs::read_link(archive.join("root")).unwrap(), Path::new("/"));
    let mode = |path: &str| {
        fs::metadata(archive.join(path))
            .unwrap()
            .permissions()
            .mode()
            & 0o777
    };
    assert_eq!(mode("a/b/run.sh"), 0o755);
    assert_eq!(
        fs::metadata(archive.join("holes")).unwrap().len(),
        (3 << 20) + 1
    );
    assert!(!archive.join("pipe").exists(), "a fifo is no note");
    assert!(archive.join("closed/c").exists() && archive.join("nested/.git/HEAD").exists());
    // Nothing to archive, nothing to commit.
    let finished = tine.json(&["round", "finish", "--agent", "coder"]);
    assert_eq!(finished["finished"][0]["archive"], Value::Null);
    assert_eq!(finished["finished"][0]["committed"], Value::Null);
    assert_eq!(fs::read(&outside).unwrap(), b"not yours");
    fs::write(
        &exclude,
        [fs::read(&exclude).unwrap(), b"\n*.later\n".to_vec()].concat(),
    )
    .unwrap();
    tine.ok(&["round", "clean", "--force", "--archives"]);
    assert_eq!(fs::read(&exclude).unwrap(), b"*.mine\n*.later\n");
    assert!(!repo.common_dir().join("tine/rounds/default").exists());
    assert_eq!(fs::read(&outside).unwrap(), b"not yours");
}

#[test]
fn a_finish_that_was_refused_goes_on_when_it_is_repeated() {
    require_fuse!();
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    with_two(&tine, &[]);
    let dir = mount(&tine, "coder");
    let held = fs::File::open(dir.join("README.md")).unwrap();
    let failure = failure_of(&tine.run(&["round", "finish", "--json"]), "finish");
    assert_eq!(failure["code"], "busy");
    assert_eq!(seat(&tine, "planner")["state"], "finished");
    assert_eq!(seat(&tine, "coder")["state"], "finishing");
    drop(held);
    // An agent that wandered off is told where it is.
    repo.git_in(&dir, &["switch", "-q", "-c", "elsewhere"]);
    let failure = failure_of(&tine.run(&["round", "finish", "--json"]), "finish");
    assert_eq!(failure["code"], "round-state");
    let branch = text(&seat(&tine, "coder")["branch"]);
    repo.git_in(&dir, &["switch", "-q", &branch]);
    repo.git_in(&dir, &["branch", "-q", "-D", "elsewhere"]);
    tine.ok(&["round", "finish"]);
    tine.ok(&["round", "finish"]);
    for agent in ["planner", "coder"] {
        let seat = seat(&tine, agent);
        assert_eq!(
            (&seat["state"], &seat["mounted"]),
            (&json!("finished"), &json!(false))
        );
        assert_eq!(
            repo.git(&[
                "rev-list",
                "--count",
                &format!("main..{}", text(&seat["branch"]))
            ]),
            "1"
        );
    }
    // A fork that somebody has deleted keeps nobody from going on; its branch is read all the same.
    tine.ok(&["delete", &text(&seat(&tine, "coder")["fork"])]);
    let shown = tine.json(&["round", "show", "--for", "planner"]);
    assert_eq!(shown["others"][0]["files_changed"], 1);
    let next = start(&tine, &["--from-agent", "coder"]);
    assert_eq!(next["base_commit"], repo.git(&["rev-parse", &branch]));
    tine.ok(&["round", "finish"]);
    start(&tine, &[]);
    assert_eq!(
        repo.git(&["branch", "--list", &branch]),
        "",
        "the round before the last is gone"
    );
}

#[test]
fn comparing_changes_nothing_and_merging_goes_in_the_order_that_was_asked_for() {
    require_fuse!();
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    with_two(&tine, &[]);
    fs::write(mount(&tine, "coder").join("only-coder"), "1\n2\n").unwrap();
    let before = state(&repo);
    let compared = tine.json(&["round", "compare"]);
    assert_eq!(state(&repo), before);
    assert_eq!(compared["pairs"][0]["overlap"], json!(["README.md"]));
    assert_eq!(compared["pairs"][0]["conflicts"], json!(["README.md"]));
    assert_eq!(each(&compared["results"], "agent"), ["planner", "coder"]);
    assert_eq!(compared["results"][1]["files_changed"], 2);
    let told = tine.ok(&["round", "compare"]);
    assert!(told.contains("planner coder"), "{told}");
    assert_eq!(
        tine.ok(&["round", "diff", "planner", "coder", "--name-only"]),
        "README.md\nonly-coder"
    );
    tine.ok(&["round", "finish"]);
    let merged = tine.run(&["round", "merge", "--into", "main", "--review", "--json"]);
    assert_eq!(merged.status.code(), Some(3), "{}", merged.error_text());
    let merged: Value = serde_json::from_str(&merged.text()).unwrap();
    assert_eq!(merged["merges"][0]["review"], 1);
    assert_eq!(merged["merges"][0]["sources"][0]["how"], "fast-forward");
    tine.ok(&["resolve", "1", "README.md", "--theirs"]);
    tine.ok(&["review", "commit", "1"]);
    let again = tine.run(&[
        "round",
        "merge",
        "--agents",
        "coder,planner",
        "--into",
        "main",
    ]);
    assert_eq!(again.status.code(), Some(7), "{}", again.text());
    let coder = text(&seat(&tine, "coder")["fork"]);
    assert_eq!(
        fs::read_to_string(repo.dir().join("README.md")).unwrap(),
        format!("{coder}\n")
    );
    tine.ok(&["round", "clean"]);
}

#[test]
fn the_presenter_goes_on_from_the_winner_under_its_own_name() {
    require_fuse!();
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    with_two(&tine, &[]);
    tine.ok(&["round", "finish"]);
    tine.ok(&["branch", "create", "tine/taken"]);
    refused(
        &repo,
        &tine,
        &["round", "present", "--winner", "coder", "--label", "taken"],
        "branch-exists",
        5,
    );
    refused(
        &repo,
        &tine,
        &[
            "round", "present", "--winner", "coder", "--label", "planner",
        ],
        "usage",
        2,
    );
    let presented = tine.json(&[
        "round", "present", "--winner", "coder", "--label", "release",
    ]);
    let dir = PathBuf::from(text(&presented["fork"]["mount_dir"]));
    assert_eq!(
        repo.git_in(&dir, &["symbolic-ref", "--short", "HEAD"]),
        "tine/release"
    );
    assert_eq!(
        tine.ok(&[
            "round", "present", "--winner", "coder", "--label", "release"
        ]),
        path_text(&dir)
    );
    refused(
        &repo,
        &tine,
        &["round", "present", "--winner", "coder"],
        "round-state",
        3,
    );
    fs::write(dir.join("summary"), "done\n").unwrap();
    let said = tine.fails(3, &["round", "clean"]);
    assert!(
        said.contains("tine/release of release: 1 path not committed"),
        "{said}"
    );
    tine.ok(&["round", "finish", "--agent", "release"]);
    tine.ok(&["merge", "tine/release", "--into", "main"]);
    let said = tine.fails(3, &["round", "clean"]);
    assert!(
        said.contains("of planner") && !said.contains("of release"),
        "{said}"
    );
    tine.ok(&["round", "clean", "--force"]);
    assert_eq!(
        repo.git(&["branch", "--list", "tine/*"]).trim(),
        "tine/taken"
    );
}

#[test]
fn layers_alone_leave_nothing_in_refs() {
    require_fuse!();
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    let refs = || repo.git(&["for-each-ref", "--exclude=refs/tine"]);
    let before = (refs(), repo.git(&["for-each-ref"]));
    with_two(&tine, &["--no-branch"]);
    let dir = mount(&tine, "planner");
    assert!(
        !repo
            .try_git_in(&dir, &["symbolic-ref", "-q", "HEAD"])
            .status
            .success()
    );
    fs::write(dir.join(".scratch/notes"), "mine").unwrap();
    tine.ok(&["round", "finish"]);
    assert_eq!(refs(), before.0);
    assert_eq!(
        repo.git_in(repo.dir(), &["rev-list", "--all", "--count"]),
        "1",
        "nothing is committed"
    );
    let shown = tine.json(&["round", "show", "--for", "coder"]);
    assert_eq!(shown["others"][0]["branch"], Value::Null);
    assert_eq!(shown["others"][0]["uncommitted"], true);
    start(&tine, &["--from-agent", "planner"]);
    let dir = mount(&tine, "coder");
    let planner = fs::read_to_string(dir.join("README.md")).unwrap();
    assert_eq!(
        fs::read_dir(dir.join(".scratch")).unwrap().count(),
        0,
        "notes stay whose they are"
    );
    tine.ok(&["round", "finish"]);
    tine.ok(&["round", "merge", "--agents", "coder", "--into", "main"]);
    assert_eq!(
        fs::read_to_string(repo.dir().join("README.md")).unwrap(),
        planner
    );
    tine.fails(3, &["round", "clean"]);
    tine.ok(&["round", "clean", "--force", "--archives"]);
    repo.git(&["reset", "-q", "--hard", "HEAD~"]);
    // What was let go of by force can be brought back.
    assert_eq!(refs(), before.0);
    let dropped = tine.ok(&["recover", "--json"]);
    assert!(
        dropped.contains("tine round") && !dropped.contains("tine delete"),
        "{dropped}"
    );
    tine.ok(&["recover", "purge", "--all"]);
    assert_eq!(repo.git(&["for-each-ref"]), before.1);
}

#[test]
fn a_directory_without_git_gets_the_result_back_unless_it_changed() {
    require_fuse!();
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    // Outside of all repositories.
    let outside = tempfile::tempdir().unwrap();
    let place = outside.path().join("notes");
    repo.sh_in(
        outside.path(),
        "mkdir -p notes/sub notes/gone; cd notes; printf 'a\\r\\n' > windows; echo two > sub/two; echo old > gone/file; \
         printf '#!/bin/sh\\n' > run; chmod 755 run; ln -s sub link; printf '*.o\\n' > .gitignore; echo o > built.o",
    );
    let round = |args: &[&str]| {
        tine.run_in(
            outside.path(),
            &[&["round", "--no-git", "notes"], args].concat(),
        )
    };
    let ok = |args: &[&str]| round(args).expect_success(&format!("{args:?}")).text();
    let listing = || {
        repo.sh_in(
            &place,
            "find . -printf '%p %y %m %l\\n' | sort; find . -type f | sort | xargs sha256sum",
        )
    };
    let before = listing();
    let shown: Value = serde_json::from_str(&ok(&["start", "--agents", "solo", "--json"])).unwrap();
    let dir = PathBuf::from(text(&shown["agents"][0]["seat"]["mount_dir"]));
    assert!(
        dir.starts_with(repo.root()) && !dir.starts_with(&place),
        "{}",
        dir.display()
    );
    assert_eq!(fs::read(dir.join("windows")).unwrap(), b"a\r\n");
    assert_eq!(fs::read(dir.join("built.o")).unwrap(), b"o\n");
    repo.sh_in(
        &dir,
        "printf 'b\\r\\n' > windows; rm -r gone; mkdir -p new/deep; echo n > new/deep/n; chmod 644 run; rm link; ln -s new link; \
         rm -r sub; echo file > sub; echo note > .scratch/note",
    );
    assert_eq!(listing(), before, "nothing goes back before the end");
    fs::write(place.join("windows"), "mine\r\n").unwrap();
    fs::write(place.join("other"), "mine, and in nobody's way\n").unwrap();
    let changed = listing();
    let refused = round(&["finish", "--json"]);
    let failure = failure_of(&refused, "finish");
    assert_eq!(
        (&failure["code"], &failure["causes"]),
        (&json!("directory-changed"), &json!(["windows"]))
    );
    assert_eq!(listing(), changed, "nothing is written");
    // As in the result already is no conflict, as it is where a process died that wrote it; nor is
    // an empty directory.
    fs::remove_file(place.join("sub/two")).unwrap();
    fs::create_dir(place.join("sub/empty")).unwrap();
    fs::write(place.join("windows"), "b\r\n").unwrap();
    let finished: Value = serde_json::from_str(&ok(&["finish", "--json"])).unwrap();
    let written = &finished["written"];
    assert_eq!(written["deleted"], json!(["gone/file"]));
    assert_eq!(
        written["written"],
        json!(["link", "new/deep/n", "run", "sub"])
    );
    assert_eq!(fs::read_to_string(place.join("sub")).unwrap(), "file\n");
    assert_eq!(fs::read_link(place.join("link")).unwrap(), Path::new("new"));
    assert_eq!(
        fs::metadata(place.join("run"))
            .unwrap()
            .permissions()
            .mode()
            & 0o777,
        0o644
    );
    assert!(
        !place.join("gone").exists()
            && !place.join(".scratch").exists()
            && place.join("other").exists()
    );
    let after = listing();
    ok(&["finish"]);
    assert_eq!(listing(), after, "again it is the same");
    ok(&["clean", "--archives"]);
    let home = dir.parent().unwrap().parent().unwrap();
    assert!(!home.exists(), "nothing of tine's is left");
    assert_eq!(listing(), after);
}

#[test]
fn open_seats_are_named_and_their_scratch_is_archived_before_they_go() {
    require_fuse!();
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    start(&tine, &["--agents", "planner"]);
    let dir = mount(&tine, "planner");
    fs::write(dir.join(".scratch/notes"), "mine").unwrap();
    let said = tine.fails(3, &["round", "clean"]);
    assert!(said.contains("of planner: the seat is open"), "{said}");
    assert_eq!(
        fs::read_to_string(dir.join(".scratch/notes")).unwrap(),
        "mine"
    );
    let cleaned = tine.json(&["round", "clean", "--force"]);
    let archives = PathBuf::from(text(&cleaned["archives"]));
    assert_eq!(
        fs::read_to_string(archives.join("planner/notes")).unwrap_or_else(|_| {
            let only = fs::read_dir(&archives)
                .unwrap()
                .next()
                .unwrap()
                .unwrap()
                .path();
            fs::read_to_string(only.join("notes")).unwrap()
        }),
        "mine"
    );
}

#[test]
fn a_new_round_takes_nothing_away_that_came_into_a_finished_seat() {
    require_fuse!();
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    start(&tine, &["--agents", "planner"]);
    tine.ok(&["round", "finish"]);
    let dir = mount(&tine, "planner");
    tine.ok(&["mount", &text(&seat(&tine, "planner")["fork"])]);
    fs::create_dir_all(dir.join(".scratch")).unwrap();
    fs::write(dir.join(".scratch/late"), "mine").unwrap();
    repo.sh_in(
        &dir,
        "mkdir nest; cd nest; git init -q; echo n > n; git add n; git commit -qm nested",
    );
    // The others read it for one round more.
    tine.ok(&["round", "start"]);
    tine.ok(&["round", "finish"]);
    let said = tine.fails(3, &["round", "start"]);
    assert!(said.contains("a repository of its own in nest"), "{said}");
    assert!(dir.join("nest/n").exists() && dir.join(".scratch/late").exists());
    fs::remove_dir_all(dir.join("nest")).unwrap();
    tine.ok(&["round", "start"]);
    let archived = repo.sh_in(&repo.common_dir(), "grep -rl mine tine/rounds");
    assert!(archived.contains("late"), "{archived}");
}

#[test]
fn a_branch_that_a_new_round_cannot_let_go_of_is_named() {
    require_fuse!();
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    start(&tine, &["--agents", "coder"]);
    let branch = text(&seat(&tine, "coder")["branch"]);
    fs::write(mount(&tine, "coder").join("work.txt"), "work\n").unwrap();
    tine.ok(&["round", "finish", "--agent", "coder"]);
    start(&tine, &["--agents", "coder"]);
    let switched = tine.run(&[
        "delete",
        &text(&tine.json(&["round", "show"])["agents"][0]["before"]["fork"]),
        "--force",
    ]);
    assert!(switched.status.success(), "{}", switched.error_text());
    let elsewhere = repo.root().join("elsewhere");
    repo.git(&["worktree", "add", "-q", path_text(&elsewhere), &branch]);
    tine.ok(&["round", "finish", "--agent", "coder"]);
    let shown = start(&tine, &["--agents", "coder"]);
    assert_eq!(
        shown["stays"],
        json!([{"branch": branch, "checkout": path_text(&elsewhere)}])
    );
    assert!(elsewhere.join("work.txt").exists());
}
