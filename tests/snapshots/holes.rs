//! Commands that meet.

use std::fs;
use std::path::PathBuf;
use std::thread;

use crate::support::{OutputExt, TestRepo, Tine, require_fuse, run_with_timeout};

fn dir_of(repo: &TestRepo, name: &str) -> PathBuf {
    repo.root().join("repo.forks").join(name)
}

#[test]
fn a_child_outlives_its_parent() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let parent = tine.new_fork("parent");
    fs::write(parent.join("file"), "of the parent").unwrap();
    fs::write(parent.join("large"), vec![7; 300_000]).unwrap();
    repo.sh_in(
        &parent,
        "echo committed > committed; git add committed; git commit -qm one",
    );
    tine.ok(&["commit", "parent", "-m", "two"]);
    fs::write(parent.join("late"), "late").unwrap();
    tine.ok(&["snapshot", "parent", "point"]);
    let child = PathBuf::from(tine.ok(&["new", "child", "--from-fork", "parent"]));
    let grandchild = PathBuf::from(tine.ok(&["new", "grandchild", "--from-fork", "child"]));
    let late = PathBuf::from(tine.ok(&["new", "late", "--from-fork", "parent@point"]));
    let open = fs::File::open(child.join("large")).unwrap();
    tine.ok(&["delete", "--force", "parent"]);
    repo.git(&["reflog", "expire", "--expire=now", "--all"]);
    for branch in repo
        .git(&[
            "for-each-ref",
            "--format=%(refname)",
            "refs/heads/tine/parent",
        ])
        .lines()
    {
        repo.git(&["update-ref", "-d", branch]);
    }
    repo.git(&["gc", "-q", "--prune=now"]);
    let check = || {
        for dir in [&child, &grandchild, &late] {
            assert_eq!(fs::read(dir.join("file")).unwrap(), b"of the parent");
            assert_eq!(fs::read(dir.join("late")).unwrap(), b"late");
            assert_eq!(fs::read(dir.join("committed")).unwrap(), b"committed\n");
            assert!(fs::read(dir.join("large")).unwrap() == vec![7; 300_000]);
            assert_eq!(repo.git_in(dir, &["status", "--porcelain"]), "?? late");
        }
    };
    check();
    tine.ok(&["gc"]);
    check();
    drop(open);
    tine.kill_daemon();
    tine.ok(&["list"]);
    check();
    tine.ok(&["daemon", "stop"]);
    tine.ok(&["mount", "child"]);
    check_layers(&repo, &tine);
    for name in ["child", "late", "grandchild"] {
        tine.ok(&["delete", "--force", name]);
    }
    check_layers(&repo, &tine);
    repo.git(&["fsck", "--strict"]);
}

/// There are layers that records name, also of forks that are set aside, and no others.
fn check_layers(repo: &TestRepo, tine: &Tine<'_>) {
    tine.ok(&["gc"]);
    let store = repo.common_dir().join("tine");
    let mut named = std::collections::BTreeSet::new();
    let aside = fs::read_dir(store.join("damaged")).into_iter().flatten();
    let aside = aside.map(|entry| entry.unwrap().path().join("forks"));
    let all: Vec<PathBuf> = std::iter::once(store.join("forks")).chain(aside).collect();
    for entry in all
        .iter()
        .flat_map(|dir| fs::read_dir(dir).into_iter().flatten())
    {
        let dir = entry.unwrap().path();
        // Those that were moved aside with their record are elsewhere.
        let is_aside = !dir.starts_with(store.join("forks"));
        let moved = dir.join("../../layers");
        for file in ["fork.json", "snapshots.json"] {
            let Ok(text) = fs::read_to_string(dir.join(file)) else {
                continue;
            };
            let Ok(value) = serde_json::from_str::<serde_json::Value>(&text) else {
                assert!(is_aside, "{}", dir.display());
                continue;
            };
            let snapshots = value["snapshots"].as_array().cloned().unwrap_or_default();
            for record in snapshots.iter().chain([&value]) {
                let frozen = record["frozen_layers"]
                    .as_array()
                    .cloned()
                    .unwrap_or_default();
                let ids = frozen.iter().chain([&record["open_layer"]]);
                let ids = ids.filter_map(serde_json::Value::as_u64);
                named.extend(ids.filter(|id| !is_aside || !moved.join(id.to_string()).exists()));
            }
        }
    }
    let found: std::collections::BTreeSet<u64> = fs::read_dir(store.join("layers"))
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok())
        .collect();
    assert_eq!(found, named);
}

#[test]
fn a_snapshot_may_be_named_like_another_fork() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let demo = tine.new_fork("demo");
    let other = tine.new_fork("other");
    fs::write(demo.join("file"), "of demo").unwrap();
    fs::write(other.join("file"), "of other").unwrap();
    for name in ["other", "demo"] {
        tine.ok(&["snapshot", "demo", name]);
    }
    fs::write(demo.join("file"), "later").unwrap();
    let child = PathBuf::from(tine.ok(&["new", "third", "--from-fork", "demo@other"]));
    assert_eq!(fs::read(child.join("file")).unwrap(), b"of demo");
    tine.ok(&["restore", "demo", "other"]);
    assert_eq!(fs::read(demo.join("file")).unwrap(), b"of demo");
    tine.ok(&["delete", "--force", "other"]);
    assert_eq!(fs::read(demo.join("file")).unwrap(), b"of demo");
    let snapshots = tine.json(&["snapshots", "demo"]);
    assert_eq!(
        snapshots["snapshots"].as_array().map(Vec::len),
        Some(3),
        "{snapshots}"
    );
    tine.ok(&["snapshot", "demo", "other", "--delete", "--force"]);
    assert_eq!(fs::read(demo.join("file")).unwrap(), b"of demo");
    assert_eq!(fs::read(child.join("file")).unwrap(), b"of demo");
    check_layers(&repo, &tine);
}

#[test]
fn forks_are_taken_from_each_other_at_once() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    for name in ["a", "b"] {
        fs::write(tine.new_fork(name).join("file"), name).unwrap();
    }
    thread::scope(|scope| {
        for (own, other) in [("a", "b"), ("b", "a")] {
            let tine = &tine;
            scope.spawn(move || {
                for round in 0..4 {
                    let name = format!("{own}-{round}");
                    // The youngest of the others, if it is there already.
                    let parent = format!("{other}-{}", round - 1);
                    let args = ["new", &name, "--from-fork", &parent];
                    if round == 0 || !tine.run(&args).status.success() {
                        tine.ok(&["new", &name, "--from-fork", other]);
                    }
                    tine.ok(&["snapshot", other]);
                    tine.ok(&["restore", own, tine.ok(&["snapshot", own]).as_str()]);
                }
            });
        }
    });
    let list = tine.json(&["list"]);
    assert_eq!(list["forks"].as_array().map(Vec::len), Some(10), "{list}");
    for name in ["a", "b"] {
        assert_eq!(
            fs::read_to_string(dir_of(&repo, name).join("file")).unwrap(),
            name
        );
    }
    check_layers(&repo, &tine);
    repo.git(&["fsck", "--strict"]);
}

#[test]
fn a_damaged_record_of_the_parent_harms_no_child() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let parent = tine.new_fork("parent");
    fs::write(parent.join("file"), "of the parent").unwrap();
    tine.ok(&["snapshot", "parent", "point"]);
    let child = PathBuf::from(tine.ok(&["new", "child", "--from-fork", "parent"]));
    fs::write(child.join("own"), "own").unwrap();
    tine.ok(&["daemon", "stop"]);
    let record = repo.common_dir().join("tine/forks/parent/fork.json");
    fs::write(&record, "no json").unwrap();
    let list = tine.json(&["list"]);
    assert_eq!(list["damaged"].as_array().map(Vec::len), Some(1), "{list}");
    tine.ok(&["mount", "child"]);
    let check = || {
        assert_eq!(fs::read(child.join("file")).unwrap(), b"of the parent");
        assert_eq!(fs::read(child.join("own")).unwrap(), b"own");
    };
    check();
    tine.ok(&["gc"]);
    tine.ok(&["tree"]);
    tine.fails(1, &["new", "other", "--from-fork", "parent"]);
    tine.fails(1, &["new", "other", "--from-fork", "parent@point"]);
    tine.fails(1, &["snapshot", "parent"]);
    tine.ok(&["snapshot", "child"]);
    tine.ok(&["new", "grandchild", "--from-fork", "child"]);
    tine.ok(&["delete", "--force", "parent"]);
    check();
    check_layers(&repo, &tine);
    tine.kill_daemon();
    tine.ok(&["list"]);
    check();

    // Its list of snapshots alone.
    let snapshots = repo.common_dir().join("tine/forks/child/snapshots.json");
    fs::write(&snapshots, "no json").unwrap();
    tine.ok(&["daemon", "stop"]);
    tine.ok(&["mount", "child"]);
    check();
    tine.fails(1, &["snapshots", "child"]);
    tine.fails(1, &["snapshot", "child"]);
    tine.ok(&["gc"]);
    check();
    tine.ok(&["delete", "--force", "child"]);
    tine.ok(&["delete", "--force", "grandchild"]);
    check_layers(&repo, &tine);
}

#[test]
fn unmounting_while_snapshots_are_taken() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let demo = tine.new_fork("demo");
    fs::write(demo.join("count"), "0").unwrap();
    let taken = thread::scope(|scope| {
        let taking = scope.spawn(|| {
            let take = |_| tine.run(&["snapshot", "demo"]);
            (0..12)
                .map(take)
                .filter(|output| output.status.success())
                .count()
        });
        for round in 1..5 {
            tine.ok(&["unmount", "demo", "--keep"]);
            tine.ok(&["mount", "demo"]);
            fs::write(demo.join("count"), round.to_string()).unwrap();
        }
        taking.join().unwrap()
    });
    assert_eq!(taken, 12, "a fork need not be mounted for it");
    let snapshots = tine.json(&["snapshots", "demo"]);
    let snapshots = snapshots["snapshots"].as_array().unwrap().clone();
    assert_eq!(snapshots.len(), taken);
    let mut last = 0;
    for snapshot in &snapshots {
        tine.ok(&["restore", "demo", snapshot["name"].as_str().unwrap()]);
        let count = fs::read_to_string(demo.join("count")).unwrap();
        // Between cutting the file and writing it.
        if let Ok(count) = count.parse::<u32>() {
            assert!(count >= last);
            last = count;
        }
    }
    check_layers(&repo, &tine);
}

#[test]
fn restoring_while_git_rebases() {
    require_fuse!();
    let repo = TestRepo::new();
    repo.sh_in(
        repo.dir(),
        "git checkout -qb side && echo side > README.md && git commit -qam side && git checkout -q main",
    );
    let tine = Tine::new(&repo);
    let demo = tine.new_fork("demo");
    let git = |args: &[&str]| repo.git_in(&demo, args);
    repo.sh_in(
        &demo,
        "echo mine > README.md && git commit -qam mine && echo x > scratch",
    );
    tine.ok(&["snapshot", "demo", "before"]);
    let head = git(&["rev-parse", "HEAD"]);
    let rebase = repo.try_git_in(&demo, &["rebase", "side"]);
    assert!(!rebase.status.success(), "there is a conflict");
    assert!(
        fs::read_to_string(demo.join("README.md"))
            .unwrap()
            .contains("<<<<<<<")
    );
    tine.ok(&["snapshot", "demo", "conflict"]);
    let refused = tine.fails(3, &["restore", "demo", "before"]);
    assert!(
        refused.contains("rebase") && refused.contains("`--exact`"),
        "{refused}"
    );
    tine.ok(&["restore", "demo", "before", "--exact"]);
    assert_eq!(fs::read(demo.join("README.md")).unwrap(), b"mine\n");
    assert!(
        git(&["status"]).contains("rebase"),
        "git's own affairs are left alone"
    );
    tine.ok(&["restore", "demo", "conflict"]);
    assert!(
        fs::read_to_string(demo.join("README.md"))
            .unwrap()
            .contains("<<<<<<<")
    );
    assert!(
        git(&["status", "--porcelain"]).contains("UU README.md"),
        "as it was"
    );
    tine.ok(&["restore", "demo", "before", "--exact"]);
    git(&["rebase", "--abort"]);
    assert_eq!(git(&["rev-parse", "HEAD"]), head);
    assert_eq!(git(&["status", "--porcelain"]), "?? scratch");
    assert_eq!(fs::read(demo.join("README.md")).unwrap(), b"mine\n");
    // And onwards where it is carried through.
    let rebase = repo.try_git_in(&demo, &["rebase", "side"]);
    assert!(!rebase.status.success());
    tine.ok(&["restore", "demo", "before", "--exact"]);
    repo.sh_in(
        &demo,
        "git add README.md && GIT_EDITOR=true git rebase --continue",
    );
    assert_eq!(git(&["show", "HEAD:README.md"]), "mine");
    let status = run_with_timeout(&mut tine.command(&["status", "demo"]));
    status.expect_success("tine status");
    repo.git(&["fsck", "--strict"]);
}
