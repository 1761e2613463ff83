use std::os::unix::fs::symlink;

use super::*;
use crate::testing::TestRepository;

fn same_place(found: &Repository, repository: &TestRepository) {
    let dir = repository.dir().canonicalize().unwrap();
    assert_eq!(found.common_dir(), dir.join(".git"));
    assert_eq!(found.checkout_dir(), dir);
}

#[test]
fn discovers_from_checkout_subdirectory_git_directory_and_linked_worktree() {
    let repository = TestRepository::new();
    repository.write("sub/dir/file", "x");
    repository.commit("first");
    let linked = repository.dir().join("../linked");
    repository.git(&["worktree", "add", "-q", linked.to_str().unwrap()]);
    std::fs::create_dir(linked.join("new")).unwrap();
    let link = repository.dir().join("../link");
    symlink(repository.dir(), &link).unwrap();
    for start in [
        "",
        "sub/dir",
        ".git",
        ".git/refs/heads",
        "../linked",
        "../linked/new",
        "../link/sub",
    ] {
        let found = Repository::discover(&repository.dir().join(start))
            .unwrap_or_else(|error| panic!("{start}: {error}"));
        same_place(&found, &repository);
    }
    same_place(
        &Repository::open(&repository.dir().join(".git")).unwrap(),
        &repository,
    );
}

#[test]
fn a_bare_repository_is_its_own_checkout_directory() {
    let repository = TestRepository::with_options(&["--bare"]);
    let found = Repository::discover(&repository.dir().join("refs")).unwrap();
    let dir = repository.dir().canonicalize().unwrap();
    assert_eq!((found.common_dir(), found.checkout_dir()), (&*dir, &*dir));
}

#[test]
fn a_separate_git_directory_and_a_submodule_have_their_checkouts() {
    let place = tempfile::tempdir().unwrap();
    let git_dir = place.path().join("store.git");
    let option = format!("--separate-git-dir={}", git_dir.display());
    let repository = TestRepository::with_options(&[&option]);
    repository.write("file", "x");
    repository.commit("first");
    let found = Repository::discover(repository.dir()).unwrap();
    assert_eq!(found.common_dir(), git_dir.canonicalize().unwrap());
    assert_eq!(
        found.checkout_dir(),
        repository.dir().canonicalize().unwrap()
    );

    let outer = TestRepository::new();
    outer.git(&[
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "--quiet",
        "add",
        repository.dir().to_str().unwrap(),
        "module",
    ]);
    let module = outer.dir().join("module").canonicalize().unwrap();
    let found = Repository::discover(&module).unwrap();
    assert_eq!(found.checkout_dir(), module);
    let reopened = Repository::open(found.common_dir()).unwrap();
    assert_eq!(reopened.checkout_dir(), module);
}

#[test]
fn what_is_no_repository_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for result in [
        Repository::discover(dir.path()),
        Repository::discover(&dir.path().join("missing")),
        Repository::open(dir.path()),
    ] {
        assert!(matches!(result.err(), Some(GitError::NotARepository(_))));
    }
}

#[test]
fn formats_that_cannot_be_read_faithfully_are_refused() {
    let refused = |dir: &Path| match Repository::discover(dir) {
        Err(GitError::UnsupportedRepository { reason, .. }) => reason,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("was opened"),
    };
    let reftable = TestRepository::with_options(&["--ref-format=reftable"]);
    assert!(refused(reftable.dir()).contains("reftable"));

    let repository = TestRepository::new();
    repository.git(&["config", "extensions.fancy", "true"]);
    assert!(
        Repository::discover(repository.dir()).is_ok(),
        "format 0 has no extensions"
    );
    repository.git(&["config", "core.repositoryFormatVersion", "1"]);
    assert!(refused(repository.dir()).contains("fancy"));
    // git itself does not go into such a repository any more.
    let config = repository.dir().join(".git/config");
    let text = std::fs::read_to_string(&config)
        .unwrap()
        .replace("= 1", "= 7");
    std::fs::write(&config, text).unwrap();
    assert!(!refused(repository.dir()).is_empty());
}

#[test]
fn heads_of_main_and_linked_worktrees() {
    let repository = TestRepository::new();
    let opened = repository.open();
    let head = opened.head_of(opened.common_dir()).unwrap();
    assert_eq!(
        head,
        Head::Unborn {
            name: "refs/heads/main".into()
        }
    );
    assert_eq!(head.commit_id(), None);

    let first = repository.commit("first");
    let linked = repository.dir().join("../linked");
    repository.git(&[
        "worktree",
        "add",
        "-q",
        "--detach",
        linked.to_str().unwrap(),
    ]);
    let second = repository.commit("second");
    let main = opened.head_of(opened.common_dir()).unwrap();
    assert_eq!(
        main,
        Head::Branch {
            name: "refs/heads/main".into(),
            commit_id: second
        }
    );
    let linked_git_dir = opened.common_dir().join("worktrees/linked");
    assert_eq!(
        opened.head_of(&linked_git_dir).unwrap(),
        Head::Detached { commit_id: first }
    );

    repository.git(&["pack-refs", "--all"]);
    repository.git(&["symbolic-ref", "refs/heads/alias", "refs/heads/main"]);
    repository.git(&["symbolic-ref", "HEAD", "refs/heads/alias"]);
    let aliased = opened.head_of(opened.common_dir()).unwrap();
    assert_eq!(
        aliased,
        Head::Branch {
            name: "refs/heads/alias".into(),
            commit_id: second
        }
    );
}

#[test]
fn revisions_are_those_of_the_worktree_they_are_asked_in() {
    let repository = TestRepository::new();
    let first = repository.commit("first");
    let linked = repository.dir().join("../linked");
    repository.git(&[
        "worktree",
        "add",
        "-q",
        "--detach",
        linked.to_str().unwrap(),
    ]);
    let second = repository.commit("second");
    repository.git(&["tag", "-a", "-m", "a tag", "v1"]);
    let opened = repository.open();
    let main = opened.common_dir();
    let other = &main.join("worktrees/linked");
    for (git_dir, revision, wanted) in [
        (main, "HEAD", second),
        (main, "HEAD~1", first),
        (main, "v1", second),
        (main, "v1^", first),
        (main, "main@{0}", second),
        (main, ":/first", first),
        (main, &second.to_string()[..10], second),
        (other, "HEAD", first),
        (other, "@", first),
        (other, "main", second),
    ] {
        let found = opened.resolve_commit(git_dir, revision);
        assert_eq!(found.unwrap(), wanted, "{revision}");
    }
    for revision in [
        "",
        "nothing",
        "--all",
        "-h",
        "HEAD^{tree}",
        "a\0b",
        "HEAD~5",
        "a..b",
        &"1".repeat(40),
    ] {
        let found = opened.resolve_commit(main, revision);
        assert!(
            matches!(found, Err(GitError::UnknownRevision(_))),
            "{revision}: {found:?}"
        );
    }
}

#[test]
fn a_tree_is_found_by_a_commit_and_by_itself() {
    let repository = TestRepository::new();
    repository.write("dir/a", "1");
    let commit_id = repository.commit("first");
    repository.git(&["tag", "-a", "-m", "a tag", "v1"]);
    let opened = repository.open();
    let main = opened.common_dir();
    let tree_id = opened.commit_info(commit_id).unwrap().tree_id;
    for revision in ["HEAD", "main", "v1", &commit_id.to_string()] {
        let found = opened.resolve_tree(main, revision).unwrap();
        assert_eq!(found, (tree_id, Some(commit_id)), "{revision}");
    }
    for revision in ["HEAD^{tree}", &tree_id.to_string()[..12]] {
        assert_eq!(
            opened.resolve_tree(main, revision).unwrap(),
            (tree_id, None),
            "{revision}"
        );
    }
    assert!(opened.resolve_tree(main, "HEAD:dir").unwrap().0 != tree_id);
    for revision in ["HEAD:dir/a", "nothing", "", "--all"] {
        let found = opened.resolve_tree(main, revision);
        assert!(
            matches!(found, Err(GitError::UnknownRevision(_))),
            "{revision}: {found:?}"
        );
    }
}

#[test]
fn a_handle_can_be_used_while_it_is_in_use() {
    let repository = TestRepository::new();
    let opened = repository.open();
    let names = opened.with_local(|_| opened.with_local(|_| opened.config_bool("core.bare")));
    assert_eq!(names, Some(false));
}
