use std::fs;

use crate::testing::TestRepository;
use crate::{GitError, Repository};

fn sample() -> (TestRepository, Repository) {
    let test = TestRepository::new();
    test.write("f", "one");
    test.commit("one");
    test.write("f", "two");
    test.commit("two");
    let repository = test.open();
    (test, repository)
}

#[test]
fn branches_are_created_read_and_deleted() {
    let (test, repository) = sample();
    let (first, second) = (test.id_of("HEAD~"), test.id_of("HEAD"));
    assert_eq!(repository.branch("tine/demo").unwrap(), None);
    repository
        .create_branch("tine/demo", first, "branch: Created from x")
        .unwrap();
    assert_eq!(repository.branch("tine/demo").unwrap(), Some(first));
    assert_eq!(test.id_of("refs/heads/tine/demo"), first);
    assert_eq!(
        test.git(&["reflog", "show", "--format=%gs", "tine/demo"]),
        "branch: Created from x"
    );
    // Packed away by git, it is still found, still taken, and can still be deleted.
    test.git(&["pack-refs", "--all"]);
    assert_eq!(repository.branch("tine/demo").unwrap(), Some(first));
    for id in [first, second] {
        let error = repository.create_branch("tine/demo", id, "x").unwrap_err();
        assert!(
            matches!(&error, GitError::BranchExists(name) if name == "tine/demo"),
            "{error}"
        );
    }
    let error = repository.delete_branch("tine/demo", second).unwrap_err();
    assert!(matches!(error, GitError::RefMoved { .. }), "{error}");
    repository.delete_branch("tine/demo", first).unwrap();
    assert_eq!(repository.branch("tine/demo").unwrap(), None);
    assert!(!test.git(&["branch", "--list"]).contains("demo"));
    let error = repository.delete_branch("tine/demo", first).unwrap_err();
    assert!(matches!(error, GitError::RefMoved { .. }), "{error}");
    test.git(&["fsck", "--strict"]);
}

#[test]
fn a_branch_in_the_way_of_another_is_named() {
    let (test, repository) = sample();
    let id = test.id_of("HEAD");
    test.git(&["branch", "a"]);
    test.git(&["branch", "p/q/r"]);
    for packed in [false, true] {
        if packed {
            test.git(&["pack-refs", "--all"]);
        }
        for (wanted, there) in [
            ("a/b/c", "a"),
            ("p/q", "p/q/r"),
            ("p", "p/q/r"),
            ("p/q/r/s", "p/q/r"),
        ] {
            let error = repository.create_branch(wanted, id, "x").unwrap_err();
            assert!(
                matches!(&error, GitError::BranchExists(name) if name == there),
                "{wanted}: {error}"
            );
        }
    }
    repository.create_branch("p/q/s", id, "x").unwrap();
    assert_eq!(test.id_of("p/q/s"), id);
}

#[test]
fn branch_names_are_judged_as_git_does() {
    let (test, repository) = sample();
    for name in [
        "tine/demo",
        "a.b",
        "ä",
        "a-",
        "-a",
        "",
        "a b",
        "a..b",
        "a/",
        "/a",
        "a//b",
        "a.lock",
        "a.lock/b",
        "HEAD",
        "a@{1",
        "a\\b",
        "a~",
        "a^",
        "a:",
        "a?",
        "a*",
        "a[",
        ".a",
        "a/.b",
        "a.",
        "x@",
        "{",
        "refs/heads/x",
        "\u{7f}",
        "a\tb",
    ] {
        let git_takes_it = test
            .try_git(&["check-ref-format", "--branch", name], b"")
            .status
            .success();
        assert_eq!(
            repository.check_branch_name(name).is_ok(),
            git_takes_it,
            "{name:?}"
        );
    }
    assert!(
        repository.check_branch_name("@").is_err(),
        "git would take it for HEAD"
    );
}

#[test]
fn kept_refs_are_in_the_way_of_gc_until_released() {
    let (test, repository) = sample();
    let tree_id = test.id_of("HEAD^{tree}");
    let blob_id = test.git_with_input(&["hash-object", "-w", "--stdin"], b"unreferenced");
    let blob_id = blob_id.parse().unwrap();
    repository.keep("demo", "base", tree_id).unwrap();
    repository.keep("demo", "held-1", tree_id).unwrap();
    repository.keep("demo", "held-1", blob_id).unwrap();
    repository.keep("demo2", "base", tree_id).unwrap();
    let expected = vec![("base".to_owned(), tree_id), ("held-1".to_owned(), blob_id)];
    assert_eq!(repository.kept("demo").unwrap(), expected);
    test.git(&["gc", "-q", "--prune=now"]);
    assert_eq!(repository.kept("demo").unwrap(), expected, "packed as well");
    assert_eq!(
        test.git(&["cat-file", "blob", &blob_id.to_string()]),
        "unreferenced"
    );
    repository.release("demo", "held-1").unwrap();
    repository.release("demo", "held-1").unwrap();
    repository.release("demo", "base").unwrap();
    assert_eq!(repository.kept("demo").unwrap(), []);
    assert_eq!(repository.kept("demo2").unwrap().len(), 1);
    test.git(&["gc", "-q", "--prune=now"]);
    assert!(
        !test
            .try_git(&["cat-file", "-e", &blob_id.to_string()], b"")
            .status
            .success()
    );
    assert!(repository.keep("demo", "bad..label", tree_id).is_err());
    test.git(&["fsck", "--strict"]);
}

#[test]
fn a_branch_checked_out_anywhere_is_found() {
    let (test, repository) = sample();
    for name in ["side", "rebased", "bisected", "free"] {
        test.git(&["branch", name]);
    }
    let at = |name: &str| repository.checked_out_at(name).unwrap();
    let beside = |name: &str| test.dir().parent().unwrap().join(name);
    let add = |name: &str| {
        let dir = beside(name);
        test.git(&["worktree", "add", "-q", dir.to_str().unwrap(), name]);
        dir
    };
    assert_eq!(at("main").as_deref(), Some(test.dir()));
    let side = add("side");
    assert_eq!(at("side"), Some(side));
    let rebased = add("rebased");
    let rebased_dir = rebased.to_str().unwrap();
    test.try_git(
        &[
            "-C",
            rebased_dir,
            "rebase",
            "-q",
            "--exec",
            "false",
            "HEAD~",
        ],
        b"",
    );
    assert!(rebased.join(".git").is_file());
    assert_eq!(
        test.git(&["-C", rebased_dir, "rev-parse", "--abbrev-ref", "HEAD"]),
        "HEAD",
        "in the middle of a rebase"
    );
    assert_eq!(at("rebased"), Some(rebased));
    let bisected = add("bisected");
    let bisected_dir = bisected.to_str().unwrap();
    test.git(&["-C", bisected_dir, "bisect", "start", "HEAD", "HEAD~"]);
    test.git(&["-C", bisected_dir, "checkout", "-q", "--detach"]);
    assert_eq!(at("bisected"), Some(bisected));
    assert_eq!(at("free"), None);
    assert_eq!(at("none"), None);
}

#[test]
fn the_head_of_a_bare_repository_is_no_checkout() {
    let (test, _) = sample();
    let bare = test.dir().parent().unwrap().join("bare.git");
    test.git(&["clone", "-q", "--bare", ".", bare.to_str().unwrap()]);
    let repository = Repository::discover(&bare).unwrap();
    assert_eq!(repository.checked_out_at("main").unwrap(), None);
    let id = test.id_of("HEAD");
    repository
        .create_branch("side", id, "branch: Created")
        .unwrap();
    assert!(
        !bare.join("logs/refs/heads/side").exists(),
        "a bare repository logs nothing"
    );
}

#[test]
fn ancestry_is_that_of_git() {
    let (test, repository) = sample();
    let (first, second) = (test.id_of("HEAD~"), test.id_of("HEAD"));
    test.git(&["checkout", "-q", "--orphan", "other"]);
    let orphan = test.commit("orphan");
    for (a, d, expected) in [
        (first, second, true),
        (second, first, false),
        (first, first, true),
        (orphan, second, false),
    ] {
        assert_eq!(repository.is_ancestor(a, d).unwrap(), expected);
    }
    let shallow = test.dir().parent().unwrap().join("shallow");
    let url = format!("file://{}", test.dir().display());
    test.git(&[
        "clone",
        "-q",
        "--depth=1",
        "--branch=main",
        &url,
        shallow.to_str().unwrap(),
    ]);
    fs::write(shallow.join("f"), "three").unwrap();
    let shallow_dir = shallow.to_str().unwrap();
    test.git(&["-C", shallow_dir, "commit", "-qam", "three"]);
    let repository = Repository::discover(&shallow).unwrap();
    let third = test
        .git(&["-C", shallow_dir, "rev-parse", "HEAD"])
        .parse()
        .unwrap();
    assert!(repository.is_ancestor(second, third).unwrap());
    assert!(!repository.is_ancestor(third, second).unwrap());
}

#[test]
fn a_ref_locked_by_git_is_left_alone() {
    let (test, repository) = sample();
    let (first, second) = (test.id_of("HEAD~"), test.id_of("HEAD"));
    repository.keep("demo", "base", first).unwrap();
    let lock = test.dir().join(".git/refs/tine/demo/base.lock");
    fs::write(&lock, "").unwrap();
    for error in [
        repository.keep("demo", "base", second).unwrap_err(),
        repository.release("demo", "base").unwrap_err(),
    ] {
        let GitError::RefLocked { name, lock: held } = &error else {
            panic!("{error}");
        };
        assert_eq!((name.as_str(), held), ("refs/tine/demo/base", &lock));
    }
    assert_eq!(
        repository.kept("demo").unwrap(),
        [("base".to_owned(), first)]
    );
    fs::remove_file(lock).unwrap();

    test.git(&["pack-refs", "--all"]);
    let lock = test.dir().join(".git/packed-refs.lock");
    fs::write(&lock, "").unwrap();
    let error = repository.release("demo", "base").unwrap_err();
    let GitError::RefLocked { name, lock: held } = &error else {
        panic!("{error}");
    };
    assert_eq!((name.as_str(), held), ("packed-refs", &lock));
    fs::remove_file(lock).unwrap();
    repository.keep("demo", "base", second).unwrap();
    assert_eq!(
        repository.kept("demo").unwrap(),
        [("base".to_owned(), second)]
    );
}

#[test]
fn of_many_who_create_one_branch_one_succeeds() {
    let (test, repository) = sample();
    let id = test.id_of("HEAD");
    let results: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| repository.create_branch("tine/one", id, "branch: Created")))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert_eq!(
        results.iter().filter(|result| result.is_ok()).count(),
        1,
        "{results:?}"
    );
    for error in results.into_iter().filter_map(Result::err) {
        assert!(matches!(error, GitError::BranchExists(_)), "{error}");
    }
    assert_eq!(
        test.git(&["reflog", "show", "--format=%gs", "tine/one"]),
        "branch: Created"
    );
}

#[test]
fn locks_that_a_dead_process_left_are_released() {
    let (test, repository) = sample();
    let id = test.id_of("HEAD");
    repository.keep("demo", "head", id).unwrap();
    let refs = test.dir().join(".git/refs");
    let locks = [
        refs.join("tine/demo/head.lock"),
        refs.join("tine/demo/base.lock"),
        refs.join("tine/demo/git/heads/tine/demo.lock"),
    ];
    for lock in &locks {
        fs::create_dir_all(lock.parent().unwrap()).unwrap();
        fs::write(lock, "").unwrap();
    }
    let branch_lock = refs.join("heads/main.lock");
    fs::write(&branch_lock, "").unwrap();
    let error = repository.keep("demo", "head", id).unwrap_err();
    assert!(matches!(error, GitError::RefLocked { .. }), "{error}");

    repository.release_stale_ref_locks().unwrap();
    assert!(locks.iter().all(|lock| !lock.exists()));
    assert!(branch_lock.exists(), "it is git's");
    repository.keep("demo", "head", id).unwrap();
    repository.release_stale_branch_lock("main").unwrap();
    assert!(!branch_lock.exists());
}

#[test]
fn a_lock_of_the_packed_refs_goes_unless_git_is_at_work() {
    let (test, repository) = sample();
    let packed = |name: &str| test.dir().join(".git").join(name);
    repository.release_stale_packed_refs_lock().unwrap();
    fs::write(packed("packed-refs.lock"), "").unwrap();
    fs::write(packed("packed-refs.new"), "").unwrap();
    repository.release_stale_packed_refs_lock().unwrap();
    assert!(packed("packed-refs.lock").exists());
    fs::remove_file(packed("packed-refs.new")).unwrap();
    repository.release_stale_packed_refs_lock().unwrap();
    assert!(!packed("packed-refs.lock").exists());
}

#[test]
fn a_ref_is_deleted_while_git_locks_packed_refs_that_are_not_there() {
    let (test, repository) = sample();
    let id = test.id_of("HEAD");
    let packed = test.dir().join(".git/packed-refs");
    let _ = fs::remove_file(&packed);
    let lock = packed.with_extension("lock");
    for kept in [false, true] {
        if kept {
            repository.keep("demo", "label", id).unwrap();
        } else {
            repository.create_branch("tine/demo", id, "made").unwrap();
        }
        fs::write(&lock, "").unwrap();
        std::thread::scope(|scope| {
            let deleted = scope.spawn(|| {
                if kept {
                    repository.release("demo", "label")
                } else {
                    repository.delete_branch("tine/demo", id)
                }
            });
            std::thread::sleep(std::time::Duration::from_millis(60));
            fs::remove_file(&lock).unwrap();
            deleted.join().unwrap().unwrap();
        });
        assert_eq!(repository.branch("tine/demo").unwrap(), None);
        assert_eq!(repository.kept_as("demo", "label").unwrap(), None);
        assert!(!lock.exists() && !packed.exists());
    }
}
