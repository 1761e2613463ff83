//! What git is told of changes.

use super::*;
use crate::Changed;

/// What changed since `token`, and the token that goes with it. `*` is everything.
fn told(workspace: &Workspace, token: &str) -> (String, Vec<String>) {
    let (token, changed) = workspace.changed_since(token).unwrap();
    let paths = match changed {
        Changed::Everything => vec!["*".to_owned()],
        Changed::Paths(paths) => paths
            .iter()
            .map(|path| String::from_utf8_lossy(path).into_owned())
            .collect(),
    };
    (token, paths)
}

#[test]
fn every_name_of_what_changed_is_told() {
    let fixture = Fixture::new();
    let fork = fixture.open();
    let (token, paths) = told(&fork, &fork.beginning());
    assert_eq!(paths, [""; 0]);

    fork.write_path(ME, &path("dir/sub/c.txt"), b"changed")
        .unwrap();
    let (_, paths) = told(&fork, &token);
    assert_eq!(paths, ["dir/sub/c.txt"]);
    fork.write_path(ME, &path("new"), b"").unwrap();
    fork.remove_path(ME, &path("a.txt")).unwrap();
    let (_, paths) = told(&fork, &token);
    assert_eq!(paths, ["a.txt", "a.txt/", "dir/sub/c.txt", "new"]);

    // Its names are found whether they are those of the base, in the log since, or only in the
    // layer.
    let new = fork.resolve(&path("new")).unwrap().ino;
    let dir = fork.resolve(&path("dir")).unwrap().ino;
    fork.lookup(Ino::ROOT, b"new").unwrap();
    fork.lookup(Ino::ROOT, b"dir").unwrap();
    fork.link(ME, new, dir, b"linked").unwrap();
    let (token, _) = told(&fork, &token);
    fork.write(new, 0, b"more", None).unwrap();
    let (token, paths) = told(&fork, &token);
    assert_eq!(paths, ["dir/linked", "new"]);
    assert_eq!(told(&fork, &token).1, [""; 0]);
}

#[test]
fn a_directory_that_moves_is_told_at_both_places_with_all_beneath() {
    let fixture = Fixture::new();
    let fork = fixture.open();
    let (token, _) = told(&fork, &fork.beginning());
    fork.lookup(Ino::ROOT, b"dir").unwrap();
    fork.rename(
        ME,
        Ino::ROOT,
        b"dir",
        Ino::ROOT,
        b"moved",
        RenameMode::Replace,
    )
    .unwrap();
    let moved = [
        "dir",
        "dir/",
        "moved",
        "moved/",
        "moved/.tine",
        "moved/sub/.tine",
    ];
    let (now, paths) = told(&fork, &token);
    assert_eq!(paths, moved);
    fork.write_path(ME, &path("moved/sub/c.txt"), b"changed")
        .unwrap();
    assert_eq!(told(&fork, &now).1, ["moved/sub/c.txt"]);
    drop(fork);
    let fork = fixture.open();
    let (_, paths) = told(&fork, &fork.beginning());
    assert_eq!(paths, [&moved[..], &["moved/sub/c.txt"]].concat());
}

#[test]
fn what_cannot_be_told_is_everything_and_then_every_directory() {
    let fixture = Fixture::new();
    let fork = fixture.open();
    let (token, _) = told(&fork, &fork.beginning());
    drop(fork);
    let fork = fixture.open();
    assert_eq!(told(&fork, &token).1, [""; 0], "another process knows it");
    let (token, paths) = told(&fork, &token.replace("tine:", "tine:f"));
    assert_eq!(paths, ["*"]);
    fork.write_path(ME, &path("new"), b"").unwrap();
    let (token, paths) = told(&fork, &token);
    assert_eq!(paths, [".tine", "dir/.tine", "dir/sub/.tine", "new"]);
    assert_eq!(told(&fork, &token).1, [""; 0]);
    for foreign in ["", "1700000000000000000", "tine:base:other", "nonsense"] {
        assert_eq!(told(&fork, foreign).1, ["*"], "{foreign}");
    }
}

#[test]
fn a_directory_that_git_cannot_be_told_of_leaves_nothing_to_trust() {
    let fixture = Fixture::new();
    let fork = fixture.open();
    let (mut token, _) = told(&fork, &fork.beginning());
    fork.mkdir(ME, Ino::ROOT, b"git~1", 0o755).unwrap();
    for _ in 0..3 {
        let (next, paths) = told(&fork, &token);
        assert_eq!(paths, ["*"]);
        token = next;
    }
    fork.rmdir(ME, Ino::ROOT, b"git~1").unwrap();
    let (token, _) = told(&fork, &token);
    assert_eq!(told(&fork, &token).1, [""; 0]);
}

#[test]
fn the_attributes_of_a_directory_count_for_all_beneath() {
    let fixture = Fixture::new();
    let fork = fixture.open();
    let (token, _) = told(&fork, &fork.beginning());
    let dir = fork.lookup(Ino::ROOT, b"dir").unwrap().ino;
    let set = SetAttr {
        perm: Some(0),
        ..SetAttr::default()
    };
    fork.setattr(ME, dir, &set).unwrap();
    let closed = ["dir", "dir/", "dir/.tine", "dir/sub/.tine"];
    assert_eq!(told(&fork, &token).1, closed);
    assert_eq!(told(&fork, &fork.beginning()).1, closed);
}

#[test]
fn a_repository_in_the_fork_is_told_as_the_directory_it_makes_one() {
    let fixture = Fixture::new();
    let fork = fixture.open();
    let (token, _) = told(&fork, &fork.beginning());
    fork.write_path(ME, &path(".git"), b"gitdir: elsewhere\n")
        .unwrap();
    assert_eq!(told(&fork, &token).1, [""; 0]);
    let dir = fork.lookup(Ino::ROOT, b"dir").unwrap().ino;
    fork.mkdir(ME, dir, b".git", 0o755).unwrap();
    fork.write_path(ME, &path("dir/.git/HEAD"), b"").unwrap();
    assert_eq!(told(&fork, &token).1, ["dir", "dir/.tine"]);
}

/// The kernel may not have had the answer yet to the request that made a change, and shows files as
/// they were.
#[test]
fn the_kernel_is_up_to_date_before_a_change_is_told() {
    use crate::Invalidation;
    use std::sync::Mutex;

    let fixture = Fixture::new();
    let fork = fixture.open();
    let (token, _) = told(&fork, &fork.beginning());
    let file = fork.lookup(Ino::ROOT, b"a.txt").unwrap().ino;
    let dir = fork.lookup(Ino::ROOT, b"dir").unwrap().ino;
    fork.write(file, 0, b"changed", None).unwrap();
    fork.mkdir(ME, dir, b"new", 0o755).unwrap();

    let announced: Arc<Mutex<Vec<Invalidation>>> = Arc::default();
    let listener = announced.clone();
    fork.set_listener(Some(Arc::new(move |changes| {
        listener.lock().unwrap().extend(changes.invalidations)
    })));
    let is_announced = |token: &str| {
        announced.lock().unwrap().clear();
        fork.changed_since(token).unwrap();
        let announced = announced.lock().unwrap();
        let names_waited_for = announced
            .iter()
            .any(|change| matches!(change, Invalidation::Entry { parent, .. } if *parent == dir));
        announced.contains(&Invalidation::Attributes(file)) && names_waited_for
    };
    assert!(is_announced(&token));
    assert!(is_announced(&fork.beginning()));
    assert!(is_announced("unknown"));
    let (now, _) = told(&fork, &token);
    assert!(!is_announced(&now), "it was told before");
}
