use std::fs;

use crate::testing::TestRepository;
use crate::{
    CommitSpec, GitError, Head, Identity, ObjectId, Repository, TreeChange, TreeEntryKind, Worktree,
};
use tine_path::RepoPath;

fn path(text: &str) -> RepoPath {
    RepoPath::parse(text).unwrap()
}

fn set(at: &str, kind: TreeEntryKind, id: ObjectId) -> TreeChange {
    TreeChange {
        path: path(at),
        new: Some((kind, id)),
    }
}

fn removed(at: &str) -> TreeChange {
    TreeChange {
        path: path(at),
        new: None,
    }
}

fn spec(tree_id: ObjectId, parent_ids: &[ObjectId], message: &str) -> CommitSpec {
    CommitSpec {
        tree_id,
        parent_ids: parent_ids.to_vec(),
        message: message.into(),
        author: None,
        committer: None,
    }
}

/// A repository with a commit, an identity, and files at several depths.
fn sample(options: &[&str]) -> (TestRepository, Repository, ObjectId) {
    let test = TestRepository::with_options(options);
    test.git(&["config", "user.name", "Configured Name"]);
    test.git(&["config", "user.email", "configured@example.com"]);
    for name in ["a", "d/x", "d/y", "d/deep/z", "e/only", "d.c", "d0"] {
        test.write(name, name);
    }
    test.commit("first");
    test.git(&["gc", "-q"]);
    let repository = test.open();
    let tree_id = test.id_of("HEAD^{tree}");
    (test, repository, tree_id)
}

fn loose_objects(test: &TestRepository) -> Vec<String> {
    let mut found = Vec::new();
    for dir in fs::read_dir(test.dir().join(".git/objects")).unwrap() {
        let dir = dir.unwrap();
        if dir.file_name().len() == 2 {
            for file in fs::read_dir(dir.path()).unwrap() {
                found.push(file.unwrap().file_name().into_string().unwrap());
            }
        }
    }
    found
}

#[test]
fn blobs_are_what_git_hashes_and_written_once() {
    for format in ["sha1", "sha256"] {
        let (test, repository, _) = sample(&["--object-format", format]);
        let large = vec![b'x'; (5 << 20) + 3];
        for content in [b"".as_slice(), b"a", b"new content\n", &large] {
            let len = content.len() as u64;
            let expected = test.git_with_input(&["hash-object", "--stdin"], content);
            assert_eq!(
                repository
                    .hash_blob(&mut &*content, len)
                    .unwrap()
                    .to_string(),
                expected
            );
            let id = repository.write_blob(&mut &*content, len).unwrap();
            assert_eq!(id.to_string(), expected);
            assert_eq!(
                test.git_bytes(&["cat-file", "blob", &expected], b""),
                content
            );
        }
        // "a" was packed already; the three others are loose, and no staging directory stays.
        assert_eq!(loose_objects(&test).len(), 3);
        repository
            .write_blob(&mut &*large, large.len() as u64)
            .unwrap();
        assert_eq!(loose_objects(&test).len(), 3);
        let names = fs::read_dir(test.dir().join(".git/objects")).unwrap();
        assert!(names.into_iter().all(|entry| {
            let name = entry.unwrap().file_name().into_string().unwrap();
            !name.starts_with("tmp")
        }));
        test.git(&["fsck", "--strict"]);
    }
}

/// A power failure leaves objects that were not synced empty: as good as not written.
#[test]
fn regression_an_empty_object_is_written_again() {
    let (test, repository, _) = sample(&[]);
    let large = vec![b'x'; (5 << 20) + 3];
    for content in [b"small\n".as_slice(), &large] {
        let write = || {
            repository
                .write_blob(&mut &*content, content.len() as u64)
                .unwrap()
        };
        let hex = write().to_string();
        let path = test
            .dir()
            .join(".git/objects")
            .join(&hex[..2])
            .join(&hex[2..]);
        for broken in [&b""[..], b"noise"] {
            fs::remove_file(&path).unwrap();
            fs::write(&path, broken).unwrap();
            write();
            assert_eq!(test.git_bytes(&["cat-file", "blob", &hex], b""), content);
        }
    }
    test.git(&["fsck", "--strict"]);
}

#[test]
fn a_content_that_ends_early_makes_no_object() {
    let (test, repository, _) = sample(&[]);
    for len in [10, 6 << 20] {
        let error = repository.write_blob(&mut &b"short"[..], len).unwrap_err();
        assert!(error.to_string().contains("too early"), "{error}");
        assert!(repository.hash_blob(&mut &b"short"[..], len).is_err());
    }
    assert!(loose_objects(&test).is_empty());
}

#[test]
fn edited_trees_are_those_that_git_makes() {
    for format in ["sha1", "sha256"] {
        let (test, repository, tree_id) = sample(&["--object-format", format]);
        let blob = repository.write_blob(&mut &b"new"[..], 3).unwrap();
        let link = repository.write_blob(&mut &b"target"[..], 6).unwrap();
        let head = test.id_of("HEAD");
        let edited = repository
            .edit_tree(
                tree_id,
                &[
                    // A file becomes a directory, a directory a file and a link, whatever the
                    // order.
                    set("a/b/c", TreeEntryKind::Executable, blob),
                    removed("a"),
                    set("d", TreeEntryKind::Symlink, link),
                    removed("d/x"),
                    removed("d"),
                    removed("e/only"),
                    removed("not/there"),
                    set("sub", TreeEntryKind::Submodule, head),
                    set("odd \u{e4}", TreeEntryKind::File, blob),
                ],
            )
            .unwrap();
        fs::remove_file(test.dir().join("a")).unwrap();
        fs::remove_dir_all(test.dir().join("d")).unwrap();
        fs::remove_dir_all(test.dir().join("e")).unwrap();
        test.write("a/b/c", "new");
        test.write("odd \u{e4}", "new");
        std::os::unix::fs::symlink("target", test.dir().join("d")).unwrap();
        test.git(&["add", "-A"]);
        test.git(&["update-index", "--chmod=+x", "a/b/c"]);
        let gitlink = format!("160000,{head},sub");
        test.git(&["update-index", "--add", "--cacheinfo", &gitlink]);
        assert_eq!(edited.to_string(), test.git(&["write-tree"]), "{format}");
    }
}

#[test]
fn a_directory_removed_and_made_anew_holds_only_the_new() {
    let (test, repository, tree_id) = sample(&[]);
    let blob = repository.write_blob(&mut &b"new"[..], 3).unwrap();
    let edited = repository
        .edit_tree(
            tree_id,
            &[
                removed("d/y"),
                set("d/fresh", TreeEntryKind::File, blob),
                removed("d"),
            ],
        )
        .unwrap();
    let listed = test.git(&["ls-tree", "-r", "--name-only", &edited.to_string()]);
    assert_eq!(listed, "a\nd.c\nd/fresh\nd0\ne/only");
}

#[test]
fn removing_everything_gives_the_empty_tree() {
    let (test, repository, tree_id) = sample(&[]);
    let all: Vec<_> = ["a", "d/x", "d/y", "d/deep/z", "e/only", "d.c", "d0"]
        .map(removed)
        .into();
    let empty = repository.edit_tree(tree_id, &all).unwrap();
    assert_eq!(empty, repository.empty_tree_id());
    let blob = repository.write_blob(&mut &b"x"[..], 1).unwrap();
    let refilled = repository
        .edit_tree(empty, &[set("p/q", TreeEntryKind::File, blob)])
        .unwrap();
    let commit_id = repository.write_commit(&spec(empty, &[], "empty")).unwrap();
    test.git(&["update-ref", "refs/heads/empty", &commit_id.to_string()]);
    let commit_id = repository
        .write_commit(&spec(refilled, &[commit_id], "full"))
        .unwrap();
    test.git(&["update-ref", "refs/heads/full", &commit_id.to_string()]);
    test.git(&["fsck", "--strict"]);
}

#[test]
fn a_few_changes_write_only_the_trees_along_their_paths() {
    let (test, repository, tree_id) = sample(&[]);
    let blob = repository.write_blob(&mut &b"new"[..], 3).unwrap();
    repository
        .edit_tree(tree_id, &[set("d/deep/z", TreeEntryKind::File, blob)])
        .unwrap();
    assert_eq!(loose_objects(&test).len(), 4, "the blob and three trees");
}

#[test]
fn paths_that_git_refuses_are_refused() {
    let (_test, repository, tree_id) = sample(&[]);
    let blob = repository.write_blob(&mut &b"x"[..], 1).unwrap();
    for bad in [".git/hooks/x", "d/.GIT", "git~1/x", "d/.git"] {
        let error = repository
            .edit_tree(tree_id, &[set(bad, TreeEntryKind::File, blob)])
            .unwrap_err();
        assert!(
            matches!(error, GitError::HostilePath { .. }),
            "{bad}: {error}"
        );
    }
    let missing = ObjectId::from_hex(b"0123456789012345678901234567890123456789").unwrap();
    let error = repository.edit_tree(missing, &[removed("a")]).unwrap_err();
    assert!(matches!(error, GitError::MissingObject { .. }), "{error}");
}

#[test]
fn commits_are_those_that_git_writes() {
    for format in ["sha1", "sha256"] {
        let (test, repository, tree_id) = sample(&["--object-format", format]);
        let parent = test.id_of("HEAD");
        let mut commit = spec(tree_id, &[parent], "\n subject  \n\n\n\nbody \n\n");
        commit.author =
            Identity::parse("Jür <gen>, <j@example.com>").or_else(|| Identity::parse("J <j@e>"));
        let id = repository.write_commit(&commit).unwrap().to_string();
        let show = |format: &str| test.git(&["show", "-s", &format!("--format={format}"), &id]);
        assert_eq!(show("%B"), " subject\n\nbody");
        assert_eq!(
            show("%cn <%ce>"),
            "Configured Name <configured@example.com>"
        );
        assert!(show("%an").starts_with('J'));
        assert_eq!(show("%P"), parent.to_string());
        assert_eq!(show("%T"), tree_id.to_string());
        let since_1970 = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
        let age = since_1970 - show("%ct").parse::<u64>().unwrap();
        assert!(age < 60, "committed now, not {age} s ago");
        test.git(&["update-ref", "refs/heads/made", &id]);
        test.git(&["fsck", "--strict"]);
    }
}

#[test]
fn an_identity_configured_later_is_used_and_a_missing_one_named() {
    let (test, repository, tree_id) = sample(&[]);
    test.git(&["config", "user.name", ""]);
    let error = repository
        .write_commit(&spec(tree_id, &[], "m"))
        .unwrap_err();
    let GitError::NoIdentity(reason) = &error else {
        panic!("{error}");
    };
    assert!(reason.contains("empty ident name"), "{reason}");
    test.git(&["config", "user.name", "Later"]);
    let id = repository.write_commit(&spec(tree_id, &[], "m")).unwrap();
    assert_eq!(
        test.git(&["show", "-s", "--format=%an", &id.to_string()]),
        "Later"
    );
    let nobody = CommitSpec {
        author: Some(Identity {
            name: " .".into(),
            email: "a@b".into(),
            time: None,
        }),
        ..spec(tree_id, &[], "m")
    };
    let error = repository.write_commit(&nobody).unwrap_err();
    assert!(matches!(error, GitError::NoIdentity(_)), "{error}");
}

#[test]
fn signing_goes_through_git() {
    let (test, repository, tree_id) = sample(&[]);
    // A stand-in for gpg that takes the payload and says what git waits for.
    let program = test.dir().join("../sign");
    fs::write(
        &program,
        "#!/bin/sh\ncat >/dev/null\necho '[GNUPG:] SIG_CREATED ' >&2\necho '-----BEGIN PGP SIGNATURE-----'\necho made up\necho '-----END PGP SIGNATURE-----'\n",
    )
    .unwrap();
    fs::set_permissions(
        &program,
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    test.git(&["config", "gpg.program", program.to_str().unwrap()]);
    test.git(&["config", "commit.gpgSign", "true"]);
    let id = repository
        .write_commit(&spec(tree_id, &[test.id_of("HEAD")], "signed ä"))
        .unwrap()
        .to_string();
    let raw = test.git(&["cat-file", "commit", &id]);
    assert!(
        raw.contains("gpgsig -----BEGIN PGP SIGNATURE-----"),
        "{raw}"
    );
    assert!(raw.ends_with("signed ä"), "{raw}");
    assert!(
        raw.contains("author Configured Name <configured@example.com>"),
        "{raw}"
    );
    fs::write(&program, "#!/bin/sh\necho no key >&2\nexit 1\n").unwrap();
    let error = repository
        .write_commit(&spec(tree_id, &[], "m"))
        .unwrap_err();
    assert!(matches!(error, GitError::GitFailed { .. }), "{error}");
}

/// The ways through merges double with each; a ref that moves to the last must not take them all.
#[test]
fn a_branch_moves_to_the_last_of_many_merges() {
    let (test, repository, tree_id) = sample(&[]);
    let mut parents = [test.id_of("HEAD"), test.id_of("HEAD")];
    for number in 0..64 {
        let commit = spec(tree_id, &parents, &format!("merge {number}"));
        parents = [repository.write_commit(&commit).unwrap(), parents[0]];
    }
    repository
        .create_branch("merged", parents[0], "made")
        .unwrap();
    let count = test.git(&["rev-list", "--count", "merged"]);
    assert_eq!(count, "65");
    test.git(&["fsck", "--strict"]);
}

fn worktree_on(test: &TestRepository, repository: &Repository, head: &Head) -> Worktree {
    let checkout_dir = test.dir().join("../checkout");
    Worktree::register(repository, "demo", &checkout_dir, head, "a test").unwrap()
}

#[test]
fn head_moves_with_its_branch_and_both_are_logged() {
    for format in ["sha1", "sha256"] {
        let (test, repository, tree_id) = sample(&["--object-format", format]);
        let first = test.id_of("HEAD");
        repository
            .create_branch("tine/demo", first, "branch: Created from HEAD")
            .unwrap();
        let head = Head::Branch {
            name: "refs/heads/tine/demo".into(),
            commit_id: first,
        };
        let worktree = worktree_on(&test, &repository, &head);
        let second = repository
            .write_commit(&spec(tree_id, &[first], "second"))
            .unwrap();
        repository
            .advance_head(&worktree, Some(first), second, "commit: second\n line")
            .unwrap();
        assert_eq!(test.id_of("tine/demo"), second);
        assert_eq!(test.id_of("worktrees/demo/HEAD"), second);
        assert_eq!(
            test.git(&["reflog", "show", "--format=%H %gs", "worktrees/demo/HEAD"]),
            format!("{second} commit: second line\n{first} ")
        );
        assert_eq!(
            test.git(&["reflog", "show", "--format=%H %gs", "tine/demo"]),
            format!("{second} commit: second line\n{first} branch: Created from HEAD")
        );
        let log = fs::read_to_string(worktree.git_dir().join("logs/HEAD")).unwrap();
        assert!(log.contains(&format!(
            "{first} {second} Configured Name <configured@example.com> "
        )));
        assert_eq!(test.id_of("HEAD"), first, "the main checkout's HEAD stays");

        // A branch that somebody else moved is left where it is.
        let error = repository
            .advance_head(&worktree, Some(first), first, "commit: x")
            .unwrap_err();
        assert!(matches!(error, GitError::RefMoved { .. }), "{error}");
        assert_eq!(test.id_of("tine/demo"), second);
        test.git(&["pack-refs", "--all"]);
        repository
            .advance_head(&worktree, Some(second), first, "reset: back")
            .unwrap();
        assert_eq!(test.id_of("tine/demo"), first);
        test.git(&["fsck", "--strict"]);
    }
}

#[test]
fn a_detached_head_moves_alone() {
    let (test, repository, tree_id) = sample(&[]);
    let first = test.id_of("HEAD");
    let worktree = worktree_on(&test, &repository, &Head::Detached { commit_id: first });
    let second = repository
        .write_commit(&spec(tree_id, &[first], "second"))
        .unwrap();
    repository
        .advance_head(&worktree, Some(first), second, "commit: second")
        .unwrap();
    assert_eq!(
        repository.head_of(worktree.git_dir()).unwrap(),
        Head::Detached { commit_id: second }
    );
    assert_eq!(test.id_of("main"), first);
    let error = repository
        .advance_head(&worktree, Some(first), first, "x")
        .unwrap_err();
    assert!(matches!(error, GitError::RefMoved { .. }), "{error}");
}

#[test]
fn the_first_commit_of_an_unborn_branch_creates_it() {
    let test = TestRepository::new();
    test.git(&["config", "user.name", "N"]);
    test.git(&["config", "user.email", "e"]);
    let repository = test.open();
    let head = Head::Unborn {
        name: "refs/heads/start".into(),
    };
    let worktree = worktree_on(&test, &repository, &head);
    let commit_id = repository
        .write_commit(&spec(repository.empty_tree_id(), &[], "one"))
        .unwrap();
    repository
        .advance_head(&worktree, None, commit_id, "commit (initial): one")
        .unwrap();
    assert_eq!(test.id_of("start"), commit_id);
    assert_eq!(
        test.git(&["reflog", "show", "--format=%gs", "worktrees/demo/HEAD"]),
        "commit (initial): one"
    );
    let error = repository
        .advance_head(&worktree, None, ObjectId::null(gix::hash::Kind::Sha1), "x")
        .unwrap_err();
    assert!(matches!(error, GitError::RefMoved { .. }), "{error}");
}

#[test]
fn worktrees_commit_beside_each_other_without_harm() {
    let (test, repository, tree_id) = sample(&[]);
    let first = test.id_of("HEAD");
    std::thread::scope(|scope| {
        for fork in 0..4 {
            let (checkouts, repository) = (test.dir().join(".."), &repository);
            scope.spawn(move || {
                let branch = format!("tine/fork{fork}");
                repository
                    .create_branch(&branch, first, "branch: Created")
                    .unwrap();
                let head = Head::Branch {
                    name: format!("refs/heads/{branch}"),
                    commit_id: first,
                };
                let dir = checkouts.join(&branch);
                let worktree = Worktree::register(repository, "fork", &dir, &head, "x").unwrap();
                let (mut tree_id, mut parent) = (tree_id, first);
                for number in 0..10 {
                    // The same contents and names in all forks: they find each other's objects.
                    let content = format!("content {number}");
                    let blob = repository
                        .write_blob(&mut content.as_bytes(), content.len() as u64)
                        .unwrap();
                    let change = set(&format!("d/deep/{number}"), TreeEntryKind::File, blob);
                    tree_id = repository.edit_tree(tree_id, &[change]).unwrap();
                    let commit_id = repository
                        .write_commit(&spec(tree_id, &[parent], "more"))
                        .unwrap();
                    repository
                        .advance_head(&worktree, Some(parent), commit_id, "commit: more")
                        .unwrap();
                    parent = commit_id;
                }
            });
        }
    });
    for fork in 0..4 {
        let count = test.git(&["rev-list", "--count", &format!("tine/fork{fork}")]);
        assert_eq!(count, "11");
    }
    assert_eq!(test.git(&["worktree", "list"]).lines().count(), 5);
    test.git(&["fsck", "--strict"]);
}
