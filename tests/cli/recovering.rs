//! What commands dropped, in one place: it shows nowhere else, outlives git's garbage collection,
//! and comes back.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{TestRepo, Tine, require_fuse};

/// What somebody sees who looks at all that git has.
fn all_that_git_shows(repo: &TestRepo) -> String {
    repo.git(&["log", "--all", "--format=%H %s"])
}

fn let_git_forget(repo: &TestRepo) {
    repo.sh_in(
        repo.dir(),
        "git reflog expire --expire=now --all; git gc -q --prune=now",
    );
}

fn entries(tine: &Tine) -> Vec<Value> {
    tine.json(&["recover"])["entries"]
        .as_array()
        .unwrap()
        .clone()
}

/// What git removes between two looks after the entries must not be missing in them.
#[test]
fn a_deleted_fork_comes_back_with_commits_that_its_branch_had_when_it_went() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    for name in ["one", "two", "three"] {
        fs::write(dir.join(name), name).unwrap();
        tine.ok(&["commit", "demo", "-m", name]);
    }
    let log = repo.git_in(&dir, &["log", "--format=%H %s"]);
    fs::write(dir.join("four"), "four").unwrap();
    tine.ok(&["delete", "demo", "--force"]);
    repo.git(&["branch", "-D", "tine/demo"]);
    let_git_forget(&repo);
    tine.ok(&["recover", "1"]);
    let dir = PathBuf::from(tine.ok(&["path", "demo"]));
    assert_eq!(repo.git_in(&dir, &["log", "--format=%H %s"]), log);
    assert_eq!(repo.git_in(&dir, &["status", "--porcelain"]), "?? four");
}

/// Invariant 12: what is deleted can be brought back.
#[test]
fn a_deleted_fork_comes_back_as_it_was_though_its_branch_went_too_and_git_forgot_it() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    assert_eq!(
        tine.ok(&["recover"]),
        "nothing was dropped that could be brought back"
    );
    let before = all_that_git_shows(&repo);
    let dir = tine.new_fork("demo");
    fs::write(dir.join("one.txt"), "one\n").unwrap();
    tine.ok(&["commit", "demo", "-m", "One"]);
    let head = repo.git_in(&dir, &["rev-parse", "HEAD"]);
    fs::write(dir.join("two.txt"), "two\n").unwrap();
    tine.ok(&["snapshot", "demo", "here", "-m", "mark"]);
    fs::write(dir.join("two.txt"), "three\n").unwrap();
    fs::remove_file(dir.join("README.md")).unwrap();
    let status = repo.git_in(&dir, &["status", "--porcelain"]);

    let said = tine.ok(&["delete", "demo", "--force"]);
    assert!(
        said.contains("(`tine recover 1` brings them back)"),
        "{said}"
    );
    let said = tine.ok(&["branch", "delete", "tine/demo", "--force"]);
    assert!(said.contains("`tine recover 2` brings it back"), "{said}");
    assert_eq!(all_that_git_shows(&repo), before);
    let_git_forget(&repo);
    let lost = repo.try_git_in(repo.dir(), &["cat-file", "-e", &head]);
    assert!(!lost.status.success(), "git has let go of it");

    let listed = tine.ok(&["recover"]);
    for part in [
        "fork demo: uncommitted changes, 1 snapshot",
        "tine delete demo --force",
        "branch tine/demo",
        "90d",
    ] {
        assert!(listed.contains(part), "{part}: {listed}");
    }
    let shown = tine.ok(&["recover", "show", "1"]);
    assert!(
        shown.contains("tine recover 1 NAME --snapshot here"),
        "{shown}"
    );

    let back = PathBuf::from(tine.ok(&["recover", "1"]));
    assert_eq!(back, dir);
    assert_eq!(
        repo.git_in(&back, &["rev-parse", "HEAD"]),
        head,
        "under its own id"
    );
    assert_eq!(
        repo.git_in(&back, &["symbolic-ref", "--short", "HEAD"]),
        "tine/demo"
    );
    assert_eq!(repo.git_in(&back, &["status", "--porcelain"]), status);
    assert_eq!(fs::read_to_string(back.join("two.txt")).unwrap(), "three\n");
    let refused = tine.fails(5, &["recover", "1"]);
    assert!(refused.contains("`tine recover 1 OTHER`"), "{refused}");

    let other = PathBuf::from(tine.ok(&["recover", "1", "other", "--snapshot", "here"]));
    assert_eq!(fs::read_to_string(other.join("two.txt")).unwrap(), "two\n");
    assert!(other.join("README.md").exists());
    assert_eq!(repo.git_in(&other, &["rev-parse", "HEAD"]), head);
    repo.git(&["fsck", "--strict"]);
    assert!(tine.ok(&["check"]).contains("all is whole"));
}

#[test]
fn what_comes_back_follows_the_branch_that_it_came_from_wherever_the_checkout_is() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    repo.git(&["branch", "old"]);
    let main = repo.commit_files(&[("later.txt", b"later\n")], "later");
    let dir = tine.new_fork("demo");
    fs::write(dir.join("mine.txt"), "mine\n").unwrap();
    tine.ok(&["snapshot", "demo", "here"]);
    tine.ok(&["snapshot", "demo", "here", "--delete", "--force"]);
    tine.ok(&["delete", "demo", "--force"]);
    repo.git(&["switch", "-q", "old"]);
    for (entry, name) in [("1", "one"), ("2", "two")] {
        tine.ok(&["recover", entry, name]);
        let fork = tine.json(&["path", name]);
        assert_eq!(fork["from_branch"], "main", "{fork}");
        assert_eq!(fork["fork_point"], main.as_str(), "{fork}");
        tine.run(&["update", name]);
        assert_eq!(tine.json(&["path", name])["head"], fork["head"]);
    }
}

#[test]
fn snapshots_that_go_and_those_of_a_fork_that_goes_come_back() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    fs::write(dir.join("new.txt"), "first\n").unwrap();
    tine.ok(&["snapshot", "demo", "here"]);
    let deleted = tine.json(&["snapshot", "demo", "here", "--delete", "--force"]);
    assert_eq!(deleted["recover"], 1, "{deleted}");
    tine.ok(&["reset", "demo"]);
    let elsewhere = &tine.json(&["recover"])["elsewhere"][0];
    assert_eq!(elsewhere["way_back"], "tine restore demo before-reset-1");

    // Nothing is uncommitted, and still there is something to come back to.
    let deleted = tine.json(&["delete", "demo"]);
    assert_eq!(
        (&deleted["recover"], &deleted["snapshots_only"]),
        (&2.into(), &true.into())
    );
    let_git_forget(&repo);
    let back = PathBuf::from(tine.ok(&["recover", "1", "one"]));
    assert_eq!(fs::read_to_string(back.join("new.txt")).unwrap(), "first\n");
    let listed = entries(&tine);
    assert_eq!(
        listed[1]["way_back"],
        "tine recover 2 NAME --snapshot before-reset-1"
    );
    let back = PathBuf::from(tine.ok(&["recover", "2", "two", "--snapshot", "before-reset-1"]));
    assert_eq!(fs::read_to_string(back.join("new.txt")).unwrap(), "first\n");
    tine.fails(4, &["recover", "2", "three", "--snapshot", "nowhere"]);
    tine.fails(4, &["recover", "9"]);
    tine.fails(2, &["recover", "purge"]);
}

#[test]
fn entries_expire_by_age_and_go_when_told_and_no_number_is_given_twice() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let before = repo.git(&["for-each-ref"]);
    let drop_one = || {
        let dir = tine.new_fork("demo");
        fs::write(dir.join("new.txt"), "new\n").unwrap();
        tine.json(&["delete", "demo", "--force"])["recover"]
            .as_u64()
            .unwrap()
    };
    assert_eq!(drop_one(), 1);
    assert_eq!(drop_one(), 2);
    tine.ok(&["gc"]);
    assert_eq!(entries(&tine).len(), 2, "nothing is too old");
    assert_eq!(
        tine.json(&["recover", "purge", "--older-than", "1d"])["purged"],
        serde_json::json!([])
    );
    tine.fails(4, &["recover", "purge", "1", "7"]);
    assert_eq!(entries(&tine).len(), 2, "all of them, or none");
    assert_eq!(
        tine.json(&["recover", "purge", "2"])["purged"],
        serde_json::json!([2])
    );
    assert_eq!(drop_one(), 3);

    // Nothing goes by a rule that nobody made.
    repo.git(&["config", "tine.recoverAge", "soon"]);
    tine.ok(&["gc"]);
    let listed = tine.json(&["recover"]);
    assert_eq!(listed["entries"].as_array().unwrap().len(), 2);
    assert!(
        listed["damaged"][0]["causes"][0]
            .as_str()
            .unwrap()
            .contains("tine.recoverAge"),
        "{listed}"
    );
    repo.git(&["config", "tine.recoverAge", "0"]);
    let said = tine.ok(&["gc"]);
    assert!(
        said.starts_with("2 entries of `tine recover` expired"),
        "{said}"
    );
    assert_eq!(repo.git(&["for-each-ref"]), before);
}

#[test]
fn what_an_earlier_tine_kept_as_refs_is_taken_over() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    tine.ok(&["daemon", "stop"]);
    let before = all_that_git_shows(&repo);
    let base = repo.git(&["rev-parse", "HEAD"]);
    let old = |subject: &str| {
        let tree = format!("{base}^{{tree}}");
        repo.git(&["commit-tree", "-p", &base, "-m", subject, &tree])
    };
    let (state, branch) = (
        old("tine: discarded state of gone"),
        old("A branch's last commit"),
    );
    repo.git(&["update-ref", "refs/tine/gone/discarded-1", &state]);
    repo.git(&["update-ref", "refs/tine/_branches/deleted-1", &branch]);

    tine.ok(&["mount", "demo"]);
    assert!(dir.join("README.md").exists());
    assert_eq!(all_that_git_shows(&repo), before);
    let listed = entries(&tine);
    let kinds: Vec<&str> = listed
        .iter()
        .map(|entry| entry["kind"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["branch", "fork"]);
    let_git_forget(&repo);
    tine.ok(&["recover", "1", "topic"]);
    assert_eq!(repo.git(&["rev-parse", "topic"]), branch);
    tine.ok(&["recover", "2"]);
    // A process that died between the two steps makes no second entry.
    tine.ok(&["daemon", "stop"]);
    repo.git(&["update-ref", "refs/tine/_branches/deleted-1", &branch]);
    assert_eq!(entries(&tine).len(), 2);
}

#[test]
fn a_thousand_entries_are_listed_and_purged_at_once() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let before = repo.git(&["for-each-ref"]);
    let dir = tine.new_fork("demo");
    fs::write(dir.join("new.txt"), "new\n").unwrap();
    tine.ok(&["delete", "demo", "--force"]);
    repo.sh_in(
        repo.dir(),
        "tree=$(git rev-parse refs/tine/+recover/1); for n in $(seq 2 1000); do echo create refs/tine/+recover/$n $tree; done | git update-ref --stdin",
    );
    for packed in [false, true] {
        if packed {
            repo.git(&["pack-refs", "--all"]);
        }
        let started = Instant::now();
        assert_eq!(entries(&tine).len(), 1000);
        let took = started.elapsed();
        assert!(took < Duration::from_secs(5), "listing took {took:?}");
    }
    let started = Instant::now();
    let purged = tine.json(&["recover", "purge", "--all"]);
    assert_eq!(purged["purged"].as_array().unwrap().len(), 1000);
    assert!(
        started.elapsed() < Duration::from_secs(10),
        "purging took {:?}",
        started.elapsed()
    );
    assert_eq!(repo.git(&["for-each-ref"]), before);
}

/// Invariant 12, when the daemon dies in the middle.
#[test]
fn a_daemon_that_is_killed_while_it_deletes_leaves_the_fork_or_its_entry() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    for round in 0..8_u64 {
        let name = format!("demo{round}");
        let dir = tine.new_fork(&name);
        let mark = format!("mark {round}\n");
        fs::write(dir.join("mark.txt"), &mark).unwrap();
        let mut deleting = tine.command(&["delete", &name, "--force"]).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(round * 15));
        tine.kill_daemon();
        let _ = deleting.wait();
        let is_there = tine.json(&["list"])["forks"]
            .as_array()
            .unwrap()
            .iter()
            .any(|fork| fork["name"] == name.as_str());
        let ids: Vec<u64> = entries(&tine)
            .iter()
            .filter(|entry| entry["fork"] == name.as_str())
            .map(|entry| entry["id"].as_u64().unwrap())
            .collect();
        match ids.last() {
            Some(id) => assert_eq!(
                tine.recoverable_file(&repo, *id, "mark.txt"),
                mark.trim_end()
            ),
            None => assert!(is_there, "round {round}: the work is gone"),
        }
        if is_there {
            assert_eq!(
                tine.ok(&["cat", "--fork", &name, "mark.txt"]),
                mark.trim_end()
            );
        }
    }
    assert!(tine.ok(&["check"]).contains("all is whole"));
    tine.ok(&["recover", "purge", "--all"]);
    repo.git(&["fsck", "--strict"]);
}

#[test]
fn commits_that_only_a_deleted_forks_past_has_come_back() {
    require_fuse!();
    let apply = |tine: &Tine| {
        let out = tine.ok(&["handoff", "create", "child"]);
        assert!(out.contains('1'), "{out}");
        tine.ok(&["handoff", "apply", "1", "--into", "demo"]);
        tine.ok(&["handoff", "delete", "1"]);
        tine.ok(&["delete", "child"]);
        tine.ok(&["branch", "delete", "tine/child", "--force"]);
        tine.ok(&["recover", "purge", "--all"]);
    };
    let merge_and_delete = |tine: &Tine| {
        tine.ok(&["merge", "child", "--into", "demo", "--delete"]);
    };
    let merge_then_delete = |tine: &Tine| {
        tine.ok(&["merge", "child", "--into", "demo"]);
        tine.ok(&["delete", "child"]);
        tine.ok(&["branch", "delete", "tine/child"]);
    };
    let ways: [&dyn Fn(&Tine); 3] = [&merge_and_delete, &merge_then_delete, &apply];
    for (way, bring) in ways.iter().enumerate() {
        let repo = TestRepo::new();
        let tine = Tine::new(&repo);
        tine.new_fork("demo");
        let child = tine.new_fork("child");
        fs::write(child.join("work.txt"), "work\n").unwrap();
        tine.ok(&["commit", "child", "-m", "Work"]);
        bring(&tine);
        let merged = repo.git(&["rev-parse", "tine/demo"]);
        assert_ne!(merged, repo.head(), "{way}");
        tine.ok(&["undo", "demo"]);
        assert_eq!(repo.git(&["rev-parse", "tine/demo"]), repo.head(), "{way}");

        let deleted = tine.json(&["delete", "demo"]);
        assert_eq!(
            (&deleted["superseded"], &deleted["snapshots_only"]),
            (&1.into(), &true.into()),
            "{way}: {deleted}"
        );
        let_git_forget(&repo);
        let lost = repo.try_git_in(repo.dir(), &["cat-file", "-e", &merged]);
        assert!(!lost.status.success(), "{way}: git has let go of it");
        let id = deleted["recover"].to_string();
        let shown = tine.json(&["recover", "show", &id]);
        assert_eq!(
            shown["way_back"],
            format!("tine recover {id} NAME --snapshot superseded-1").as_str()
        );
        let back = PathBuf::from(tine.ok(&["recover", &id, "back", "--snapshot", "superseded-1"]));
        assert_eq!(repo.git_in(&back, &["rev-parse", "HEAD"]), merged, "{way}");
        assert_eq!(repo.status(&back), "", "{way}");
        assert_eq!(fs::read_to_string(back.join("work.txt")).unwrap(), "work\n");
    }
}

#[test]
fn a_fork_in_which_git_is_at_work_goes_by_force_only_and_its_stash_comes_back() {
    require_fuse!();
    // A branch that was made in a repository of its own goes with it.
    for (kind, kept) in [("own", &["mine", "theirs"][..]), ("linked", &["mine"])] {
        let repo = TestRepo::new();
        let tine = Tine::new(&repo);
        let dir = PathBuf::from(tine.ok(&["new", "demo", "--git", kind]));
        repo.sh_in(
            &dir,
            "git branch up; echo ours > one.txt; git add one.txt; git commit -qm ours
             git switch -q up; echo theirs > one.txt; git add one.txt; git commit -qm theirs; git switch -q tine/demo
             git update-ref refs/worktree/mine $(git commit-tree -m mine -p HEAD HEAD^{tree})
             echo unsaved >> README.md
             ! git rebase -q --autostash up",
        );
        let readme = fs::read_to_string(dir.join("README.md")).unwrap();
        assert!(!readme.contains("unsaved"), "git has it in its stash");
        repo.sh_in(
            &dir,
            "git checkout -q --force HEAD -- .; git reset -q --hard",
        );
        let refused = tine.fails(3, &["delete", "demo"]);
        assert!(refused.contains("git rebase --abort"), "{refused}");

        let deleted = tine.json(&["delete", "demo", "--force"]);
        assert_eq!(deleted["superseded"], 1 + kept.len(), "{kind}: {deleted}");
        let_git_forget(&repo);
        let snapshots = entries(&tine)[0]["snapshots"].clone();
        let messages: Vec<&str> = snapshots
            .as_array()
            .unwrap()
            .iter()
            .map(|snapshot| snapshot["message"].as_str().unwrap())
            .collect();
        for message in kept {
            assert!(messages.contains(message), "{kind}: {snapshots}");
        }
        let back = PathBuf::from(tine.ok(&["recover", "1", "back", "--snapshot", "autostash-1"]));
        assert_eq!(repo.status(&back), " M README.md");
        let readme = fs::read_to_string(back.join("README.md")).unwrap();
        assert!(readme.ends_with("unsaved\n"), "{readme}");
    }
}

/// The source is gone by then, and its author sees nothing of the fork that it was merged into.
#[test]
fn commits_that_an_undone_merge_alone_had_are_an_entry() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    tine.ok(&["new", "target"]);
    let source = PathBuf::from(tine.ok(&["new", "source"]));
    fs::write(source.join("work"), "work\n").unwrap();
    tine.ok(&["commit", "source", "-m", "work"]);
    tine.ok(&["merge", "source", "--into", "fork:target", "--delete"]);
    assert!(entries(&tine).is_empty());
    tine.ok(&["undo", "target"]);
    // What git keeps for the fork is at another commit from then on.
    fs::write(repo.root().join("repo.forks/target/other"), "other\n").unwrap();
    tine.ok(&["commit", "target", "-m", "other"]);
    let entries = entries(&tine);
    assert_eq!(entries.len(), 1, "{entries:?}");
    assert_eq!(entries[0]["command"], "tine undo target");
    assert_eq!(entries[0]["way_back"], "tine recover 1 NAME");
    tine.ok(&["recover", "1", "back"]);
    assert_eq!(repo.git(&["show", "back:work"]), "work");
}
