use std::fs;
use std::path::PathBuf;

use super::*;
use crate::Head;
use crate::testing::TestRepository;

fn sample(options: &[&str]) -> (TestRepository, Repository) {
    let test = TestRepository::with_options(options);
    test.write("f", "one");
    test.commit("one");
    let repository = test.open();
    (test, repository)
}

fn head(test: &TestRepository) -> Head {
    test.git(&["branch", "-f", "tine/demo"]);
    Head::Branch {
        name: "refs/heads/tine/demo".into(),
        commit_id: test.id_of("HEAD"),
    }
}

fn beside(test: &TestRepository, name: &str) -> PathBuf {
    test.dir().parent().unwrap().join(name)
}

/// Makes a checkout as a mount would show it: the `.git` file and nothing else.
fn make_checkout(worktree: &Worktree) -> PathBuf {
    let dir = worktree.checkout_dir().unwrap();
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join(".git"), worktree.dot_git()).unwrap();
    dir
}

#[test]
fn git_sees_a_locked_worktree_and_leaves_it_alone() {
    for format in ["sha1", "sha256"] {
        let (test, repository) = sample(&["--object-format", format]);
        let commit_id = test.id_of("HEAD");
        let dir = beside(&test, "de mo");
        let worktree =
            Worktree::register(&repository, "demo", &dir, &head(&test), "mounted by tine").unwrap();
        assert_eq!(worktree.id(), Some("demo"));
        assert!(!dir.exists(), "nothing is written at the checkout");
        let listed = format!(
            "worktree {}\nHEAD {commit_id}\nbranch refs/heads/tine/demo\nlocked mounted by tine\n",
            dir.display()
        );
        for _ in 0..2 {
            let porcelain = test.git(&["worktree", "list", "--porcelain"]) + "\n";
            assert!(porcelain.ends_with(&listed), "{porcelain}");
            // Neither of these may take it for a leftover, although there is no checkout.
            assert_eq!(test.git(&["worktree", "prune", "-v", "--expire=now"]), "");
            test.git(&["gc", "-q", "--prune=now"]);
        }
        test.git(&["fsck", "--strict"]);
        assert_eq!(
            test.git(&["reflog", "show", "--format=%H|%gs", "worktrees/demo/HEAD"]),
            format!("{commit_id}|")
        );
        let removal = test.try_git(&["worktree", "remove", dir.to_str().unwrap()], b"");
        assert!(!removal.status.success());

        // Once the checkout is there, git works in it.
        let dir = make_checkout(&worktree);
        let dir = dir.to_str().unwrap();
        test.git(&["-C", dir, "reset", "-q", "--hard"]);
        assert_eq!(test.git(&["-C", dir, "status", "--porcelain"]), "");
        test.git(&["-C", dir, "commit", "-q", "--allow-empty", "-m", "inside"]);
        assert_ne!(test.id_of("tine/demo"), commit_id);
        assert_eq!(test.id_of("main"), commit_id);
    }
}

#[test]
fn registration_is_what_git_worktree_add_writes() {
    let (test, repository) = sample(&[]);
    let ours = Worktree::register(
        &repository,
        "ours",
        &beside(&test, "ours"),
        &head(&test),
        "why",
    )
    .unwrap();
    let theirs_dir = beside(&test, "theirs");
    let theirs_dir = theirs_dir.to_str().unwrap();
    test.git(&[
        "worktree",
        "add",
        "-q",
        "--no-checkout",
        "--lock",
        "--reason=why",
        "-b",
        "t",
        theirs_dir,
    ]);
    let theirs = Worktree::open(&repository, "theirs").unwrap();
    for name in ["commondir", "locked"] {
        assert_eq!(
            fs::read(ours.git_dir().join(name)).unwrap(),
            fs::read(theirs.git_dir().join(name)).unwrap(),
            "{name}"
        );
    }
    assert_eq!(
        fs::read(ours.git_dir().join("HEAD")).unwrap(),
        b"ref: refs/heads/tine/demo\n"
    );
    assert_eq!(
        theirs.dot_git(),
        fs::read(beside(&test, "theirs/.git")).unwrap()
    );
    assert_eq!(theirs.checkout_dir().unwrap(), beside(&test, "theirs"));
    for id in ["none", "..", "", "ours/refs"] {
        assert!(Worktree::open(&repository, id).is_err(), "{id:?}");
    }
}

#[test]
fn names_that_are_taken_or_odd_get_an_id_of_their_own() {
    let (test, repository) = sample(&[]);
    let register = |name: &str| {
        let head = Head::Detached {
            commit_id: test.id_of("HEAD"),
        };
        Worktree::register(&repository, name, &beside(&test, name), &head, "x").unwrap()
    };
    let ids: Vec<_> = ["demo", "demo", "demo", "a/../b ä.lock", ""]
        .iter()
        .filter_map(|name| register(name).id().map(str::to_owned))
        .collect();
    assert_eq!(ids, ["demo", "demo1", "demo2", "a----b---lock", "worktree"]);
    assert_eq!(test.git(&["worktree", "list"]).lines().count(), 6);
    for id in ids {
        test.git(&["rev-parse", "--verify", &format!("worktrees/{id}/HEAD")]);
    }
}

#[test]
fn an_unborn_branch_can_be_registered() {
    let test = TestRepository::new();
    let repository = test.open();
    let head = Head::Unborn {
        name: "refs/heads/start".into(),
    };
    let worktree =
        Worktree::register(&repository, "demo", &beside(&test, "demo"), &head, "x").unwrap();
    assert_eq!(repository.head_of(worktree.git_dir()).unwrap(), head);
    assert!(
        test.git(&["worktree", "list", "--porcelain"])
            .contains("branch refs/heads/start")
    );
    let dir = make_checkout(&worktree);
    fs::write(dir.join("f"), "x").unwrap();
    let dir = dir.to_str().unwrap();
    test.git(&["-C", dir, "add", "-A"]);
    test.git(&["-C", dir, "commit", "-q", "-m", "first"]);
    assert!(repository.branch("start").unwrap().is_some());
    test.git(&["fsck"]);
}

#[test]
fn relocation_and_removal_are_seen_by_git() {
    let (test, repository) = sample(&[]);
    let worktree = Worktree::register(
        &repository,
        "demo",
        &beside(&test, "old"),
        &head(&test),
        "x",
    )
    .unwrap();
    worktree.relocate(&beside(&test, "new")).unwrap();
    let list = test.git(&["worktree", "list", "--porcelain"]);
    assert!(
        list.contains(beside(&test, "new").to_str().unwrap()),
        "{list}"
    );
    assert!(
        !list.contains(beside(&test, "old").to_str().unwrap()),
        "{list}"
    );
    worktree.clone().remove().unwrap();
    worktree.remove().unwrap();
    assert_eq!(test.git(&["worktree", "list"]).lines().count(), 1);
    assert!(!test.dir().join(".git/worktrees").exists());
    test.git(&["branch", "-D", "tine/demo"]);
}

#[test]
fn a_bare_repository_has_linked_worktrees_with_logs() {
    let (test, _) = sample(&[]);
    let bare = beside(&test, "bare.git");
    test.git(&["clone", "-q", "--bare", ".", bare.to_str().unwrap()]);
    let repository = Repository::discover(&bare).unwrap();
    let head = Head::Detached {
        commit_id: test.id_of("HEAD"),
    };
    let worktree =
        Worktree::register(&repository, "demo", &beside(&test, "demo"), &head, "x").unwrap();
    let dir = make_checkout(&worktree);
    let dir = dir.to_str().unwrap();
    test.git(&["-C", dir, "reset", "-q", "--hard"]);
    assert_eq!(test.git(&["-C", dir, "status", "--porcelain"]), "");
    assert!(worktree.git_dir().join("logs/HEAD").exists());
}

#[test]
fn worktree_configuration_follows_without_place_and_sparseness() {
    let (test, _) = sample(&[]);
    test.git(&["config", "extensions.worktreeConfig", "true"]);
    test.git(&["config", "--worktree", "user.name", "Own Name"]);
    test.git(&["config", "--worktree", "core.sparseCheckout", "true"]);
    test.git(&[
        "config",
        "--worktree",
        "core.worktree",
        test.dir().to_str().unwrap(),
    ]);
    let repository = test.open();
    let worktree = Worktree::register(
        &repository,
        "demo",
        &beside(&test, "demo"),
        &head(&test),
        "x",
    )
    .unwrap();
    let dir = make_checkout(&worktree);
    let dir = dir.to_str().unwrap();
    assert_eq!(test.git(&["-C", dir, "config", "user.name"]), "Own Name");
    assert_eq!(test.git(&["-C", dir, "rev-parse", "--show-toplevel"]), dir);
    let sparse = test.try_git(&["-C", dir, "config", "core.sparseCheckout"], b"");
    assert!(sparse.stdout.is_empty());
}

#[test]
fn operations_under_way_are_told_by_name() {
    let (test, repository) = sample(&[]);
    test.git(&["checkout", "-q", "-b", "other"]);
    test.write("f", "other");
    test.commit("other");
    test.write("g", "more");
    let more = test.commit("more");
    test.git(&["checkout", "-q", "main"]);
    test.write("f", "mine");
    test.commit("mine");
    let worktree = Worktree::register(
        &repository,
        "demo",
        &beside(&test, "demo"),
        &head(&test),
        "x",
    )
    .unwrap();
    let dir = make_checkout(&worktree);
    let dir = dir.to_str().unwrap();
    test.git(&["-C", dir, "reset", "-q", "--hard"]);
    assert_eq!(worktree.operation_in_progress(), None);
    let patch = test.git_bytes(&["format-patch", "--stdout", "-1", "other~"], b"");
    let operations: [(&str, &[&str], &[&str]); 6] = [
        ("merge", &["merge", "other"], &["merge", "--abort"]),
        ("rebase", &["rebase", "other"], &["rebase", "--abort"]),
        (
            "cherry-pick",
            &["cherry-pick", "other~"],
            &["cherry-pick", "--abort"],
        ),
        (
            "revert",
            &["revert", "--no-edit", "main~"],
            &["revert", "--abort"],
        ),
        ("bisect", &["bisect", "start"], &["bisect", "reset"]),
        ("am", &["am"], &["am", "--abort"]),
    ];
    for (name, start, end) in operations {
        let input: &[u8] = if name == "am" { &patch } else { b"" };
        test.try_git(&[&["-C", dir], start].concat(), input);
        assert_eq!(worktree.operation_in_progress(), Some(name));
        test.git(&[&["-C", dir], end].concat());
        assert_eq!(worktree.operation_in_progress(), None, "after {name}");
    }
    // Between two picks there is no CHERRY_PICK_HEAD.
    test.try_git(
        &["-C", dir, "cherry-pick", "other~", &more.to_string()],
        b"",
    );
    test.git(&["-C", dir, "commit", "-q", "-a", "-m", "resolved"]);
    assert_eq!(worktree.operation_in_progress(), Some("cherry-pick"));
}
