//! Kills while the daemon merges, and while conflicts are resolved.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::commits::{Files, read_files};
use super::{let_pass, rounds, seeded};
use crate::support::command::DEFAULT_LIMIT;
use crate::support::{
    OutputExt, Random, TestRepo, Tine, assert_agreement, require_fuse, run_with_timeout,
    run_with_timeout_of,
};

/// When the daemon is killed.
pub enum Moment<'a> {
    Within(Duration),
    /// A little while after this holds, or when the command has ended.
    After(&'a (dyn Fn() -> bool + Sync), Duration),
}

/// Runs `command` with `input` and kills the daemon at the moment.
pub fn run_and_kill(
    tine: &Tine,
    random: &mut Random,
    moment: Moment<'_>,
    mut command: Command,
    input: &[u8],
) -> Output {
    std::thread::scope(|scope| {
        let running = scope.spawn(|| run_with_timeout_of(&mut command, DEFAULT_LIMIT, input));
        match moment {
            Moment::Within(most) => let_pass(random, most),
            Moment::After(holds, most) => {
                while !holds() && !running.is_finished() {
                    std::thread::yield_now();
                }
                let_pass(random, most);
            }
        }
        tine.kill_daemon();
        running.join().expect("the command ends")
    })
}

/// Writes files whole into `dir` until somebody says stop, or nobody answers; those that were
/// acknowledged, and the name of the one that may be there.
fn write(dir: &Path, random: &mut Random, stop: &AtomicBool) -> (Files, Option<String>) {
    let mut written = Files::new();
    // Not too many: each is looked at in every round from then on.
    while !stop.load(Ordering::SeqCst) && written.len() < 20 {
        let name = format!("new-{}", random.next());
        let content = random.bytes(2_000);
        if fs::write(dir.join(&name), &content).is_err() {
            return (written, Some(name));
        }
        written.insert(name, content);
    }
    (written, None)
}

/// Something to be merged: many files come, change and go. In the branch `main`, or uncommitted in
/// the fork `work`.
fn go_on(repo: &TestRepo, dir: &Path, round: usize) {
    let script = format!(
        "mkdir -p many/{round}; for i in $(seq 30); do echo {round} $i > many/{round}/$i; done
         echo {round} >> docs/guide.md; rm -rf many/{old}; ln -sfn {round} link",
        old = round.saturating_sub(2)
    );
    repo.sh_in(dir, &script);
}

#[test]
fn invariant_13_a_merge_that_is_killed_happened_or_not() {
    require_fuse!();
    let (mut random, _say) = seeded();
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    let target = tine.new_fork("target");
    let mut expected = Files::new();
    let mut most = Duration::from_millis(600);
    let (mut done, mut undone) = (0, 0);
    for round in 0..rounds() {
        let what = format!("round {round}");
        // In turns from a branch that git knows, and from a fork with uncommitted work, which is
        // made anew from the target.
        let work = format!("work-{round}");
        let source = if round % 3 == 2 {
            work.as_str()
        } else {
            "main"
        };
        if source == work {
            let dir = tine.ok(&["new", source, "--from", "tine/target"]);
            repo.sh_in(
                Path::new(&dir),
                &format!("echo {round} > work.txt; rm -f docs/empty; echo {round} > from-{round}"),
            );
        } else {
            go_on(&repo, repo.dir(), round);
            repo.commit_all(&what);
        }
        // Every other time both sides went on.
        if round % 2 == 0 {
            repo.sh_in(
                &target,
                &format!("echo {round} > own-{round}; git add own-{round}; git commit -qm own"),
            );
        }
        let tip = if source == work {
            format!("tine/{work}")
        } else {
            source.to_owned()
        };
        // What git did in the target is taken over first.
        tine.ok(&["status", "target"]);
        let theirs = repo.git(&["rev-parse", &tip]);
        let before = repo.git(&["rev-parse", "tine/target"]);
        fs::create_dir_all(target.join("beside")).expect("the mount can be written");
        let is_mounted = round % 4 != 3;
        if !is_mounted {
            tine.ok(&["unmount", "target"]);
        }
        let record = repo.common_dir().join("tine/forks/target/fork.json");
        let is_advancing = || {
            let text = fs::read(&record).unwrap_or_default();
            let value: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
            value["advancing"].is_object()
        };
        // Half of them amid the steps that move the fork, the others anywhere.
        let moment = match random.below(2) {
            0 => Moment::Within(most),
            _ => Moment::After(&is_advancing, Duration::from_millis(60)),
        };
        let was_within = matches!(moment, Moment::Within(_));
        let stop = AtomicBool::new(false);
        let command = tine.command(&["merge", source, "--into", "target", "--json"]);
        let (reported, written, unsure) = std::thread::scope(|scope| {
            let mut numbers = Random::new(random.next());
            let (target, stop) = (&target, &stop);
            let writing = is_mounted
                .then(|| scope.spawn(move || write(&target.join("beside"), &mut numbers, stop)));
            let reported = run_and_kill(&tine, &mut random, moment, command, b"");
            stop.store(true, Ordering::SeqCst);
            let (written, unsure) =
                writing.map_or_else(Default::default, |writing| writing.join().expect("it ends"));
            (reported, written, unsure)
        });
        tine.ok(&["list"]);
        if !is_mounted {
            tine.ok(&["mount", "target"]);
        }
        expected.extend(written);
        let found = read_files(&target.join("beside"));
        let unsure = unsure.filter(|name| !expected.contains_key(name));
        if let Some((name, content)) = unsure.and_then(|name| found.get_key_value(&name)) {
            expected.insert(name.clone(), content.clone());
        }
        assert!(
            found == expected,
            "{what}: the files beside are not as they were written"
        );

        let uncommitted: Vec<String> = expected
            .keys()
            .map(|name| format!("A\tbeside/{name}"))
            .collect();
        assert_agreement(&repo, &tine, "target", &uncommitted.join("\n"));
        let after = repo.git(&["rev-parse", "tine/target"]);
        if after == before {
            undone += 1;
            // So that about as many happen as do not.
            most = most * 5 / 4;
            assert!(
                !reported.status.success(),
                "{what}: a merge was reported that did not happen"
            );
        } else {
            done += 1;
            if was_within {
                most = most * 4 / 5;
            }
            let is_in = |commit: &str| {
                let args = ["merge-base", "--is-ancestor", commit, &after];
                repo.try_git_in(repo.dir(), &args).status.success()
            };
            assert!(
                is_in(&before) && is_in(&theirs),
                "{what}: {after} is something else"
            );
            if source == work {
                assert_eq!(
                    repo.git(&["show", &format!("{after}:from-{round}")]),
                    round.to_string()
                );
            }
        }
        // What is in the mount is what HEAD has, byte by byte, not only as the index remembers it.
        repo.sh_in(
            &target,
            "git update-index -q --really-refresh; git diff --quiet HEAD",
        );
        assert!(!is_advancing(), "{what}: what was begun is done");
        if source == work {
            // Its work is there: committed, or staged, or as it was.
            assert_eq!(
                tine.ok(&["cat", "--fork", source, &format!("from-{round}")]),
                round.to_string()
            );
            let diff = tine.json(&["diff", source]);
            let index = repo.git_of_fork(source, &["write-tree"]);
            assert!(
                diff["head_tree"] == index || diff["view_tree"] == index,
                "{what}: {index} in {diff}"
            );
            tine.ok(&["delete", source, "--force"]);
        }
        // Nothing is left that keeps it from being done now, and from being taken back.
        let again = tine.run(&["merge", "main", "--into", "target"]);
        assert!(
            matches!(again.status.code(), Some(0 | 7)),
            "{what}: {}",
            again.error_text()
        );
        assert_agreement(&repo, &tine, "target", &uncommitted.join("\n"));
    }
    println!("{done} merges happened, {undone} did not");
    repo.git(&["fsck", "--strict"]);
}

#[test]
fn invariant_13_an_undo_of_a_merge_that_is_killed_happened_or_not() {
    require_fuse!();
    let (mut random, _say) = seeded();
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    let target = tine.new_fork("target");
    go_on(&repo, repo.dir(), 7);
    let after = repo.commit_all("what comes");
    let before = repo.git(&["rev-parse", "tine/target"]);
    fs::write(target.join("beside"), "beside").expect("the mount can be written");
    tine.ok(&["merge", "main", "--into", "target"]);
    for round in 0..rounds() {
        let stood = repo.git(&["rev-parse", "tine/target"]);
        let verb = if stood == after { "undo" } else { "redo" };
        let reported = run_and_kill(
            &tine,
            &mut random,
            Moment::Within(Duration::from_millis(120)),
            tine.command(&[verb, "target"]),
            b"",
        );
        tine.ok(&["list"]);
        assert_agreement(&repo, &tine, "target", "A\tbeside");
        assert_eq!(
            fs::read(target.join("beside")).expect("it is there"),
            b"beside"
        );
        let stands = repo.git(&["rev-parse", "tine/target"]);
        assert!(
            stands == before || stands == after,
            "round {round}: {stands}"
        );
        let said = format!(
            "round {round}, {verb}: {}{}",
            reported.text(),
            reported.error_text()
        );
        assert!(!reported.status.success() || stands != stood, "{said}");
    }
    repo.git(&["fsck", "--strict"]);
}

#[test]
fn invariant_13_a_review_is_never_lost_or_half() {
    require_fuse!();
    let (mut random, _say) = seeded();
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    repo.git(&["branch", "theirs"]);
    repo.commit_files(
        &[("docs/guide.md", b"ours\n"), ("README.md", b"ours\n")],
        "ours",
    );
    let theirs = repo.git_checkout_of("theirs", "theirs");
    repo.sh_in(
        &theirs,
        "git switch -q theirs; echo theirs > docs/guide.md; echo theirs > README.md; git commit -qam theirs",
    );
    let merge = tine.run(&["merge", "theirs", "--into", "main", "--review"]);
    assert_eq!(merge.status.code(), Some(3), "{}", merge.error_text());
    tine.ok(&[
        "resolve",
        "1",
        "README.md",
        "--ours",
        "--reason",
        "it stays",
    ]);
    let mut known = b"first\n".to_vec();
    let resolve = || tine.command(&["resolve", "1", "docs/guide.md", "--stdin"]);
    run_with_timeout_of(&mut resolve(), DEFAULT_LIMIT, &known).expect_success("tine resolve");
    for round in 0..rounds() {
        // One that goes through the store's directory, and one that comes with the request.
        let len = [10, 200_000][round % 2];
        let next = format!("{}\n", round.to_string().repeat(len)).into_bytes();
        let reported = run_and_kill(
            &tine,
            &mut random,
            Moment::Within(Duration::from_millis(60)),
            resolve(),
            &next,
        );
        let shown = tine.json(&["review", "show", "1"]);
        assert_eq!(shown["open"], 0, "round {round}");
        assert_eq!(shown["conflicts"][0]["resolution"]["reasoning"], "it stays");
        let id = shown["conflicts"][1]["resolution"]["versions"][0]["id"]
            .as_str()
            .expect("an id");
        if round % 5 == 4 {
            repo.sh_in(
                repo.dir(),
                "find .git/objects -type f -exec touch -d '3 weeks ago' {} +; git gc -q --prune=now",
            );
        }
        let found = run_with_timeout(
            repo.command("git", repo.dir())
                .args(["cat-file", "blob", id]),
        )
        .expect_success("git cat-file")
        .stdout;
        assert!(
            found == next || found == known && !reported.status.success(),
            "round {round}"
        );
        known = found;
        assert_eq!(
            tine.json(&["review", "list"])["damaged"],
            serde_json::json!([])
        );
    }
    // Until one attempt to commit it comes through: the merge is made once.
    let before = repo.head();
    for _ in 0..rounds() {
        run_and_kill(
            &tine,
            &mut random,
            Moment::Within(Duration::from_millis(80)),
            tine.command(&["review", "commit", "1"]),
            b"",
        );
        // The checkout is git's: a lock of one that was killed with the daemon is a person's to
        // remove.
        let _ = fs::remove_file(repo.git_dir().join("index.lock"));
        if repo.head() != before {
            break;
        }
        assert_eq!(tine.json(&["review", "show", "1"])["state"], "open");
    }
    if repo.head() == before {
        tine.ok(&["review", "commit", "1"]);
    }
    assert_eq!(repo.git(&["rev-parse", "HEAD^1"]), before);
    assert_eq!(
        repo.git(&["rev-parse", "HEAD^2"]),
        repo.git(&["rev-parse", "theirs"])
    );
    assert_eq!(repo.git(&["rev-list", "--count", "--merges", "HEAD"]), "1");
    let shown = tine.json(&["review", "show", "1"]);
    match shown["state"].as_str() {
        Some("committed") => assert_eq!(shown["commit"], repo.head()),
        // Killed before it could say so.
        _ => assert_eq!(tine.run(&["review", "commit", "1"]).status.code(), Some(3)),
    }
    repo.git(&["fsck", "--strict"]);
}
