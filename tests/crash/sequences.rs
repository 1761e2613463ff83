//! Kills while the daemon brings a fork up to date, and while it applies patches.

use std::time::Duration;

use super::merges::{Moment, run_and_kill};
use super::{rounds, seeded};
use crate::support::{OutputExt, TestRepo, Tine, assert_agreement, path_text, require_fuse};

/// HEAD, the view, and where the fork's own commits begin.
fn standing(repo: &TestRepo, tine: &Tine) -> [String; 3] {
    let diff = tine.json(&["diff", "work"]);
    let log = tine.json(&["log", "work"]);
    [
        repo.git_of_fork("work", &["rev-parse", "HEAD^{tree}"]),
        diff["view_tree"].to_string(),
        log["commits"].as_array().map_or(0, Vec::len).to_string(),
    ]
}

fn is_moving(repo: &TestRepo) -> bool {
    let record = repo.common_dir().join("tine/forks/work/fork.json");
    let text = std::fs::read(record).unwrap_or_default();
    let value: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
    value["advancing"].is_object()
}

/// How many operations are known of.
fn operations(tine: &Tine) -> usize {
    tine.ok(&["op", "log", "work", "-n", "500"]).lines().count()
}

/// Has a command killed again and again, half of the time amid the moving: each time it happened or
/// not. What it leads to is what it leads to undisturbed.
fn happens_or_not(repo: &TestRepo, tine: &Tine, args: &[&str], uncommitted: [&str; 2]) {
    let (mut random, _say) = seeded();
    let before = standing(repo, tine);
    tine.ok(args);
    let after = standing(repo, tine);
    assert_ne!(before, after);
    tine.ok(&["undo", "work"]);
    assert_eq!(standing(repo, tine), before);
    let (mut done, mut undone) = (0, 0);
    for round in 0..rounds() {
        let is_mounted = round % 4 != 3;
        if !is_mounted {
            tine.ok(&["unmount", "work"]);
        }
        let moving = || is_moving(repo);
        let count = operations(tine);
        let moment = match random.below(3) {
            0 => Moment::Within(Duration::from_millis(400)),
            _ => Moment::After(&moving, Duration::from_millis(60)),
        };
        let reported = run_and_kill(tine, &mut random, moment, tine.command(args), b"");
        tine.ok(&["list"]);
        let now = standing(repo, tine);
        assert!(!is_moving(repo), "round {round}: what was begun is done");
        let what = format!("round {round}: {now:?}, {}", reported.error_text());
        if now == after {
            done += 1;
            assert_agreement(repo, tine, "work", uncommitted[1]);
            assert_eq!(
                operations(tine),
                count + 1,
                "one command is one operation: {what}"
            );
            tine.ok(&["undo", "work"]);
        } else {
            undone += 1;
            assert!(!reported.status.success(), "{what}");
        }
        assert_eq!(standing(repo, tine), before, "{what}");
        if !is_mounted {
            tine.ok(&["mount", "work"]);
        }
        assert_agreement(repo, tine, "work", uncommitted[0]);
    }
    println!("{done} happened, {undone} did not");
    repo.git(&["fsck", "--strict"]);
}

/// A fork `work` with a commit of its own and uncommitted changes in the files that main changes,
/// too.
fn forked() -> TestRepo {
    let repo = TestRepo::new().without_maintenance();
    let lines: String = (0..50).map(|line| format!("{line}\n")).collect();
    repo.commit_files(&[("list.txt", lines.as_bytes())], "list");
    repo
}

fn go_on(repo: &TestRepo, tine: &Tine) {
    let dir = tine.new_fork("work");
    repo.sh_in(
        &dir,
        "sed -i 2s/.*/own/ list.txt; echo own > own.txt; git add -A; git commit -qm own
         sed -i 10s/.*/uncommitted/ list.txt; echo new > new.txt; rm docs/empty; echo log > a.log",
    );
    repo.sh_in(
        repo.dir(),
        "sed -i 40s/.*/main/ list.txt; for i in $(seq 40); do mkdir -p many/$i; echo $i > many/$i/file; done
         chmod +x README.md; rm link; git add -A; git commit -qm main",
    );
}

const UNCOMMITTED: &str = "D\tdocs/empty\nM\tlist.txt\nA\tnew.txt";

#[test]
fn invariant_13_an_update_that_is_killed_happened_or_not() {
    require_fuse!();
    let repo = forked();
    let tine = Tine::new(&repo);
    go_on(&repo, &tine);
    happens_or_not(&repo, &tine, &["update", "work"], [UNCOMMITTED; 2]);
}

#[test]
fn invariant_13_an_update_that_moves_submodules_and_is_killed_happened_or_not() {
    require_fuse!();
    let repo = forked();
    let inner = repo.root().join("inner");
    repo.sh_in(
        repo.root(),
        "git init -q inner; git -C inner commit -q --allow-empty -m one; git -C inner commit -q --allow-empty -m two",
    );
    let [one, two] =
        ["HEAD~1", "HEAD"].map(|revision| repo.git_in(&inner, &["rev-parse", revision]));
    let link = |path: &str, id: &str| {
        repo.sh_in(
            repo.dir(),
            &format!("mkdir -p {path}; git update-index --add --cacheinfo 160000,{id},{path}"),
        );
    };
    link("empty", &one);
    link("there", &one);
    link("gone", &one);
    repo.git(&["commit", "-qm", "submodules"]);
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("work");
    repo.sh_in(
        &dir,
        &format!(
            "git clone -q ../../inner there; git -C there checkout -q {one}; echo new > new.txt"
        ),
    );
    link("empty", &two);
    link("there", &two);
    link("come", &one);
    repo.sh_in(
        repo.dir(),
        "git rm -q --cached gone; rmdir gone; echo main > main.txt; git add main.txt; git commit -qm main",
    );
    happens_or_not(
        &repo,
        &tine,
        &["update", "work"],
        ["A\tnew.txt", "A\tnew.txt\nM\tthere"],
    );
}

#[test]
fn invariant_13_a_rebase_that_is_killed_happened_or_not() {
    require_fuse!();
    let repo = forked();
    let tine = Tine::new(&repo);
    go_on(&repo, &tine);
    happens_or_not(
        &repo,
        &tine,
        &["update", "work", "--rebase"],
        [UNCOMMITTED; 2],
    );
}

#[test]
fn invariant_13_a_patch_that_is_killed_is_applied_or_not() {
    require_fuse!();
    let repo = forked();
    let tine = Tine::new(&repo);
    go_on(&repo, &tine);
    let patch = repo.root().join("patch");
    let (from, to) = ("HEAD~1", "HEAD");
    repo.sh_in(
        repo.dir(),
        &format!(
            "git diff --binary {from} {to} -- many docs list.txt > {}",
            patch.display()
        ),
    );
    let many: Vec<String> = (1..=40)
        .map(|number| format!("A\tmany/{number}/file"))
        .collect();
    let mut after: Vec<&str> = UNCOMMITTED
        .lines()
        .chain(many.iter().map(String::as_str))
        .collect();
    after.sort_by_key(|line| line.split('\t').nth(1));
    happens_or_not(
        &repo,
        &tine,
        &["apply", "work", path_text(&patch)],
        [UNCOMMITTED, &after.join("\n")],
    );
}
