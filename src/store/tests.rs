//! The store over real repositories.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::{GitKind, MountSettings, SnapshotReason, Traces};
use tine_attr::{FileKind, Ino, InodeFlags, Timestamp};
use tine_git::testing::TestRepository;
use tine_git::{GitError, Head, Repository};
use tine_path::RepoPath;
use tine_workspace::{Caller, Workspace};

mod merging;
mod renewing;

const ME: Caller = Caller::new(1000, 1000);

fn name(text: &str) -> ForkName {
    ForkName::parse(text).unwrap()
}

fn options(repository: &TestRepository, fork: &str) -> ForkOptions {
    ForkOptions {
        name: name(fork),
        git_dir: repository.open().common_dir().to_owned(),
        from: None,
        parent: None,
        state: None,
        branch: None,
        detached: false,
        git_kind: GitKind::default(),
        untrusted: false,
        follow: false,
        mount_dir: repository.dir().join("../forks").join(fork),
        mounted: false,
        settings: MountSettings::default(),
        on_unmount: UnmountPolicy::Keep,
        snapshot_every: None,
        uid: ME.uid,
        gid: ME.gid,
        umask: 0o022,
        carry: Default::default(),
    }
}

/// A repository with two commits, and its store.
fn sample() -> (TestRepository, Store) {
    let repository = TestRepository::new();
    repository.write("a.txt", "alpha\n");
    repository.commit("first");
    repository.write("dir/b.txt", "beta\n");
    repository.commit("second");
    let store = Store::open(&repository.open()).unwrap();
    (repository, store)
}

fn path(text: &str) -> RepoPath {
    RepoPath::parse(text).unwrap()
}

fn refs(repository: &TestRepository) -> String {
    repository.git(&["for-each-ref", "--format=%(refname)"])
}

fn entries(dir: &Path) -> Vec<String> {
    files::list(dir)
        .unwrap()
        .iter()
        .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
        .collect()
}

#[test]
fn a_new_fork_shows_its_commit_and_is_a_worktree() {
    let (repository, store) = sample();
    let record = store.create_fork(&options(&repository, "demo")).unwrap();
    assert_eq!(
        record.base_commit,
        Some(repository.id_of("HEAD").to_string())
    );
    assert_eq!(record.branch, "tine/demo");
    assert_eq!(store.record(&name("demo")).unwrap(), record);

    let fork = store.open_fork(&name("demo")).unwrap();
    let workspace = &fork.workspace;
    assert_eq!(workspace.read_path(&path("dir/b.txt")).unwrap(), b"beta\n");
    assert_eq!(
        workspace.read_path(&path(".git")).unwrap(),
        fork.worktree.dot_git()
    );
    let root = workspace.getattr(Ino::ROOT).unwrap();
    assert_eq!((root.nlink, root.perm, root.uid), (3, 0o755, 1000));
    assert!(workspace.delta().unwrap().root.entries.is_empty());

    let listed = repository.git(&["worktree", "list", "--porcelain"]);
    assert!(listed.contains("branch refs/heads/tine/demo"), "{listed}");
    assert!(
        listed.contains("locked tine fork demo, which `tine delete demo` removes"),
        "{listed}"
    );
    repository.git(&["worktree", "prune", "--expire=now"]);
    assert!(fork.worktree.git_dir().join("HEAD").exists());
    let git_dir = format!("--git-dir={}", fork.worktree.git_dir().display());
    assert_eq!(repository.git(&[&git_dir, "ls-files"]), "a.txt\ndir/b.txt");
    assert_eq!(
        refs(&repository),
        "refs/heads/main\nrefs/heads/tine/demo\nrefs/tine/demo/base\nrefs/tine/demo/head"
    );
}

#[test]
fn a_fork_is_opened_once_and_keeps_what_was_written() {
    let (repository, store) = sample();
    store.create_fork(&options(&repository, "demo")).unwrap();
    let fork = store.open_fork(&name("demo")).unwrap();
    let again = store.open_fork(&name("demo")).unwrap();
    assert!(Arc::ptr_eq(&fork, &again));
    let workspace = fork.workspace.clone();
    drop((fork, again));
    let third = store.open_fork(&name("demo")).unwrap();
    assert!(
        Arc::ptr_eq(&third.workspace, &workspace),
        "somebody still holds the file system"
    );
    workspace.write_path(ME, &path("new"), b"text").unwrap();
    drop((third, workspace, store));

    let store = Store::open(&repository.open()).unwrap();
    let fork = store.open_fork(&name("demo")).unwrap();
    assert_eq!(fork.workspace.read_path(&path("new")).unwrap(), b"text");
}

#[test]
fn forks_of_one_commit_share_index_and_base() {
    let (repository, store) = sample();
    let first = store.create_fork(&options(&repository, "one")).unwrap();
    let second = store.create_fork(&options(&repository, "two")).unwrap();
    assert!(first.base_attrs.time < second.base_attrs.time);
    assert_eq!(entries(&store.places.bases()).len(), 1);
    let (one, two) = (
        store.open_fork(&name("one")).unwrap(),
        store.open_fork(&name("two")).unwrap(),
    );
    assert!(Arc::ptr_eq(&one.workspace.base(), &two.workspace.base()));
    for fork in [&one, &two] {
        let output = std::process::Command::new("git")
            .arg("--git-dir")
            .arg(fork.worktree.git_dir())
            .args(["ls-files", "--debug"])
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let time = fork.workspace.base_attrs().time;
        let line = format!("  mtime: {}:{}", time.secs, time.nanos);
        assert!(text.lines().any(|found| found == line), "{text}");
    }
}

/// A commit's time says nothing of when its files came: build tools would take them for older than
/// what was built of others.
#[test]
fn base_files_are_as_old_as_their_fork_and_older_than_its_index() {
    let (repository, store) = sample();
    let before = Timestamp::now();
    let record = store.create_fork(&options(&repository, "demo")).unwrap();
    let (attrs, after) = (record.base_attrs, Timestamp::now());
    assert!(before <= attrs.time && attrs.time <= after, "{attrs:?}");
    assert_eq!(attrs.time.secs - attrs.change_time().secs, 2);
    let fork = store.open_fork(&name("demo")).unwrap();
    let written = fs::metadata(fork.worktree.index_path()).unwrap().modified();
    assert!(Timestamp::from(written.unwrap()).secs > attrs.time.secs);
    let attr = fork.workspace.resolve(&path("a.txt")).unwrap();
    assert_eq!((attr.mtime, attr.ctime), (attrs.time, attrs.change_time()));
}

#[test]
fn a_store_is_open_once() {
    let (repository, store) = sample();
    assert!(matches!(
        Store::open(&repository.open()),
        Err(StoreError::Locked { path }) if path == store.dir()
    ));
    let mode = fs::metadata(store.dir()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    drop(store);
    Store::open(&repository.open()).unwrap();
}

#[test]
fn a_newer_or_damaged_format_is_refused() {
    let (repository, store) = sample();
    let format = store.places.format();
    store.create_fork(&options(&repository, "demo")).unwrap();
    let dir = store.dir().to_owned();
    drop(store);
    let good = fs::read(&format).unwrap();
    let copy = dir.join("format.copy");
    fs::write(&format, r#"{"format": 2, "something": "else"}"#).unwrap();
    assert!(matches!(
        Store::open(&repository.open()),
        Err(StoreError::NewerFormat {
            found: 2,
            known: 1,
            ..
        })
    ));
    for bad in ["", "{}", r#"{"format": 1, "ino_key": "zz"}"#] {
        fs::write(&format, bad).unwrap();
        drop(Store::open(&repository.open()).unwrap());
        assert_eq!(fs::read(&format).unwrap(), good, "made again of its copy");
        fs::write(&format, bad).unwrap();
        fs::write(&copy, bad).unwrap();
        assert!(
            matches!(Store::open(&repository.open()), Err(StoreError::Damaged { path, .. }) if path == format),
            "{bad:?}"
        );
        fs::write(&copy, &good).unwrap();
    }
    fs::remove_file(&format).unwrap();
    fs::remove_file(&copy).unwrap();
    assert!(
        matches!(
            Store::open(&repository.open()),
            Err(StoreError::Damaged { .. })
        ),
        "a new key would change every number of the fork"
    );
    fs::write(&format, &good).unwrap();
    let store = Store::open(&repository.open()).unwrap();
    assert_eq!(fs::read(&copy).unwrap(), good, "an earlier tine made none");
    store.open_fork(&name("demo")).unwrap();
}

#[test]
fn a_damaged_record_is_reported_and_nothing_of_it_is_removed() {
    let (repository, store) = sample();
    store.create_fork(&options(&repository, "bad")).unwrap();
    store.create_fork(&options(&repository, "good")).unwrap();
    let record_path = store.places.record(&name("bad"));
    let layers = entries(&store.places.layers());
    fs::write(&record_path, "{").unwrap();
    drop(store);

    let store = Store::open(&repository.open()).unwrap();
    let (records, errors) = store.records();
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].name, name("good"));
    assert!(matches!(&errors[..], [StoreError::Damaged { path, .. }] if *path == record_path));
    assert_eq!(entries(&store.places.layers()), layers);
    assert!(refs(&repository).contains("refs/tine/bad/base"));
    assert_eq!(repository.git(&["worktree", "list"]).lines().count(), 3);
    store.open_fork(&name("good")).unwrap();
    assert!(matches!(
        store.create_fork(&options(&repository, "bad")),
        Err(StoreError::ForkExists(_))
    ));

    store.remove_fork(&name("bad")).unwrap();
    drop(store);
    let store = Store::open(&repository.open()).unwrap();
    assert!(store.records().1.is_empty());
    assert_eq!(repository.git(&["worktree", "list"]).lines().count(), 2);
    assert!(!refs(&repository).contains("refs/tine/bad/"));
    assert_eq!(entries(&store.places.layers()), ["2", "next"]);
}

#[test]
fn branches_are_made_taken_or_refused() {
    let (repository, store) = sample();
    let (first, second) = (repository.id_of("HEAD~1"), repository.id_of("HEAD"));
    repository.git(&["branch", "old", "HEAD~1"]);
    repository.git(&["branch", "tine/left", "HEAD"]);
    let create = |fork: &str, from: Option<&str>, branch: Option<&str>| {
        let mut options = options(&repository, fork);
        options.from = from.map(str::to_owned);
        options.branch = branch.map(str::to_owned);
        let record = store.create_fork(&options)?;
        Ok::<_, StoreError>((record.base_commit.unwrap(), record.branch))
    };
    let is = |id: tine_git::ObjectId, branch: &str| (id.to_string(), branch.to_owned());

    assert_eq!(
        create("a", Some("HEAD~1"), None).unwrap(),
        is(first, "tine/a")
    );
    assert_eq!(
        create("b", None, Some("fresh")).unwrap(),
        is(second, "fresh")
    );
    assert_eq!(create("c", None, Some("old")).unwrap(), is(first, "old"));
    repository.git(&["branch", "older", "HEAD~1"]);
    assert_eq!(
        create("d", Some("main~1"), Some("older")).unwrap(),
        is(first, "older")
    );

    repository.git(&["branch", "other", "HEAD"]);
    let git = |error: Result<_, StoreError>| match error {
        Err(StoreError::Git(error)) => error,
        other => panic!("{other:?}"),
    };
    assert!(matches!(
        git(create("e", None, Some("main"))),
        GitError::BranchCheckedOut { .. }
    ));
    assert!(matches!(
        git(create("e", None, Some("old"))),
        GitError::BranchCheckedOut { .. }
    ));
    assert!(matches!(
        git(create("e", Some("HEAD~1"), Some("other"))),
        GitError::BranchExists(_)
    ));
    assert!(matches!(
        git(create("left", None, None)),
        GitError::BranchExists(_)
    ));
    assert!(matches!(
        git(create("e", Some("nowhere"), None)),
        GitError::UnknownRevision(_)
    ));
    assert!(matches!(
        git(create("e", None, Some("a..b"))),
        GitError::InvalidBranchName(_)
    ));
    assert!(matches!(
        create("a", None, None),
        Err(StoreError::ForkExists(_))
    ));
    assert_eq!(store.records().0.len(), 4);
    assert_eq!(entries(&store.places.forks()), ["a", "b", "c", "d"]);
}

#[test]
fn what_fails_is_undone() {
    let (repository, store) = sample();
    let before = refs(&repository);
    let obstacle = store.repository().common_dir().join("worktrees");
    fs::write(&obstacle, "a file where a directory should be").unwrap();
    store
        .create_fork(&options(&repository, "demo"))
        .unwrap_err();
    assert_eq!(refs(&repository), before);
    assert!(entries(&store.places.forks()).is_empty());
    fs::remove_file(&obstacle).unwrap();
    store.create_fork(&options(&repository, "demo")).unwrap();
}

#[test]
fn a_conversion_that_was_cut_short_keeps_the_former_git_directory() {
    let (repository, store) = sample();
    let mut own = options(&repository, "demo");
    own.git_kind = GitKind::Own;
    store.create_fork(&own).unwrap();
    let demo = name("demo");
    let (git_dir, former_dir) = (
        store.places.git_dir(&demo),
        store.places.former_git_dir(&demo),
    );
    let mark = |dir: &Path| dir.join("info/mine");
    fs::write(mark(&git_dir), "").unwrap();
    let fork = store.open_fork(&demo).unwrap();
    store.convert_fork(&demo, &fork, GitKind::Linked).unwrap();
    drop(fork);
    assert!(mark(&former_dir).exists() && !git_dir.exists());
    // Dead before the record of the conversion back, or before the last step of the first one.
    fs::rename(&former_dir, &git_dir).unwrap();
    drop(store);

    let store = Store::open(&repository.open()).unwrap();
    assert!(mark(&former_dir).exists() && !git_dir.exists());
    let fork = store.open_fork(&demo).unwrap();
    store.convert_fork(&demo, &fork, GitKind::Own).unwrap();
    assert!(mark(&git_dir).exists() && !former_dir.exists());
}

#[test]
fn what_a_crash_left_is_removed_by_the_next_opening() {
    let (repository, store) = sample();
    let before = refs(&repository);
    store.create_fork(&options(&repository, "whole")).unwrap();
    store.create_fork(&options(&repository, "torn")).unwrap();
    store.create_fork(&options(&repository, "half")).unwrap();
    repository.git(&["update-ref", "refs/tine/half/discarded-1", "HEAD"]);
    // Dead while being made: no record yet, and the list of what goes with it still there.
    fs::remove_file(store.places.record(&name("torn"))).unwrap();
    let traces = Traces {
        branch: Some(("tine/torn".to_owned(), repository.id_of("HEAD").to_string())),
        mount_dir: Some(repository.dir().join("../forks/torn")),
    };
    fs::create_dir_all(repository.dir().join("../forks/torn")).unwrap();
    // Dead while being registered with git, the first time empty, the second time with an empty
    // `locked`.
    let worktrees = repository.open().common_dir().join("worktrees");
    fs::create_dir(worktrees.join("torn1")).unwrap();
    fs::create_dir(worktrees.join("torn2")).unwrap();
    fs::write(worktrees.join("torn2/locked"), "").unwrap();
    files::write_json(&store.places.traces(&name("torn")), &traces).unwrap();
    // Dead while being removed: the record went first, and the traces go last.
    files::write_json(&store.places.traces(&name("half")), &Traces::default()).unwrap();
    fs::remove_file(store.places.record(&name("half"))).unwrap();
    fs::write(store.places.root().join("format.1-1.tmp"), "half a file").unwrap();
    drop(store);

    let store = Store::open(&repository.open()).unwrap();
    assert_eq!(entries(&store.places.forks()), ["whole"]);
    assert_eq!(entries(&store.places.layers()), ["1", "next"]);
    assert!(!store.places.root().join("format.1-1.tmp").exists());
    assert_eq!(repository.git(&["worktree", "list"]).lines().count(), 2);
    assert_eq!(entries(&worktrees), ["whole"]);
    assert!(!repository.dir().join("../forks/torn").exists());
    let expected = format!(
        "{before}\nrefs/heads/tine/half\nrefs/heads/tine/whole\nrefs/tine/half/discarded-1\n\
         refs/tine/whole/base\nrefs/tine/whole/head"
    );
    assert_eq!(refs(&repository), expected);
    store.open_fork(&name("whole")).unwrap();
    store.create_fork(&options(&repository, "torn")).unwrap();
}

#[test]
fn the_index_lock_of_a_commit_that_was_killed_is_given_back() {
    let (repository, store) = sample();
    let record = store.create_fork(&options(&repository, "demo")).unwrap();
    let git_dir = store.worktree_dir(&record);
    drop(store);
    fs::write(git_dir.join("index.tine"), "half an index").unwrap();
    fs::hard_link(git_dir.join("index.tine"), git_dir.join("index.lock")).unwrap();
    Store::open(&repository.open()).unwrap();
    assert!(!git_dir.join("index.lock").exists());
    assert!(!git_dir.join("index.tine").exists());
}

#[test]
fn worktrees_of_others_are_left_alone() {
    let (repository, store) = sample();
    drop(store);
    repository.git(&["worktree", "add", "-q", "../mine", "-b", "mine"]);
    repository.git(&["worktree", "lock", "--reason", "on a stick", "../mine"]);
    Store::open(&repository.open()).unwrap();
    assert!(repository.git(&["worktree", "list"]).contains("mine"));
}

#[test]
fn an_open_fork_is_not_removed() {
    let (repository, store) = sample();
    store.create_fork(&options(&repository, "demo")).unwrap();
    let fork = store.open_fork(&name("demo")).unwrap();
    let workspace = fork.workspace.clone();
    drop(fork);
    assert!(matches!(
        store.remove_fork(&name("demo")),
        Err(StoreError::Busy(_))
    ));
    drop(workspace);
    store.remove_fork(&name("demo")).unwrap();
    assert!(matches!(
        store.record(&name("demo")),
        Err(StoreError::NoSuchFork(_))
    ));
    assert!(matches!(
        store.open_fork(&name("demo")),
        Err(StoreError::NoSuchFork(_))
    ));
}

#[test]
fn a_thread_that_still_has_a_fork_open_is_waited_for() {
    let (repository, store) = sample();
    store.create_fork(&options(&repository, "demo")).unwrap();
    let fork = store.open_fork(&name("demo")).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            drop(fork);
        });
        store.await_closed(&name("demo"));
        store.remove_fork(&name("demo")).unwrap();
    });
}

#[test]
fn removing_leaves_the_branch_and_what_was_discarded() {
    let (repository, store) = sample();
    store.create_fork(&options(&repository, "demo")).unwrap();
    repository.git(&["update-ref", "refs/tine/demo/discarded-3", "HEAD"]);
    repository.git(&["update-ref", "refs/tine/demo/held-1", "HEAD"]);
    store.remove_fork(&name("demo")).unwrap();
    assert_eq!(
        refs(&repository),
        "refs/heads/main\nrefs/heads/tine/demo\nrefs/tine/demo/discarded-3"
    );
    assert_eq!(entries(&store.places.layers()), ["next"]);
    assert_eq!(repository.git(&["worktree", "list"]).lines().count(), 1);
}

#[test]
fn a_worktree_that_is_gone_is_registered_again() {
    let (repository, store) = sample();
    store.create_fork(&options(&repository, "demo")).unwrap();
    let fork = store.open_fork(&name("demo")).unwrap();
    fork.workspace
        .write_path(ME, &path("new"), b"text")
        .unwrap();
    let git_dir = fork.worktree.git_dir().to_owned();
    let index = fs::read(fork.worktree.index_path()).unwrap();
    drop(fork);
    fs::remove_dir_all(&git_dir).unwrap();

    let fork = store.open_fork(&name("demo")).unwrap();
    assert_eq!(fork.workspace.read_path(&path("new")).unwrap(), b"text");
    assert_eq!(
        fork.workspace.read_path(&path(".git")).unwrap(),
        fork.worktree.dot_git()
    );
    assert_eq!(fs::read(fork.worktree.index_path()).unwrap(), index);
    let head = store.repository().head_of(&git_dir).unwrap();
    assert_eq!(head.branch(), Some("refs/heads/tine/demo"));
}

#[test]
fn a_worktree_that_is_gone_does_not_stop_a_removal() {
    let (repository, store) = sample();
    let record = store.create_fork(&options(&repository, "demo")).unwrap();
    fs::remove_dir_all(store.worktree_dir(&record)).unwrap();
    store.remove_fork(&name("demo")).unwrap();
    assert!(store.records().0.is_empty());
}

#[test]
fn a_reset_fork_is_empty_and_stands_on_head() {
    let (repository, store) = sample();
    let first = store.create_fork(&options(&repository, "demo")).unwrap();
    let fork = store.open_fork(&name("demo")).unwrap();
    fork.workspace
        .write_path(ME, &path("new"), b"text")
        .unwrap();
    let git_dir = fork.worktree.git_dir().to_owned();
    repository.write("c.txt", "gamma\n");
    let third = repository.commit("third");
    fs::write(git_dir.join("HEAD"), format!("{third}\n")).unwrap();
    fs::write(git_dir.join("MERGE_HEAD"), format!("{third}\n")).unwrap();
    repository.git(&["update-ref", "refs/tine/demo/held-1", "HEAD"]);

    let before = store.reset_fork(&name("demo"), &fork, SnapshotReason::BeforeReset);
    let before = before.unwrap().expect("there was something");
    let record = store.record(&name("demo")).unwrap();
    assert_eq!(record.base_commit, Some(third.to_string()));
    assert_ne!(record.open_layer, first.open_layer);
    assert_eq!(entries(&store.places.layers()), ["1", "2", "next"]);
    assert_eq!(before.frozen_layers, [1]);
    assert!(fork.workspace.resolve(&path("new")).is_err());
    assert_eq!(
        fork.workspace.read_path(&path("c.txt")).unwrap(),
        b"gamma\n"
    );
    assert_eq!(fork.worktree.operation_in_progress(), None);
    let head = store.repository().head_of(&git_dir).unwrap();
    assert_eq!(head, Head::Detached { commit_id: third });
    assert_eq!(repository.id_of("refs/tine/demo/base"), third);
    // The snapshot may need what the fork stood on, and every HEAD that it had.
    let first_commit = first.base_commit.unwrap();
    assert_eq!(
        repository.id_of("refs/tine/demo/held-2").to_string(),
        first_commit
    );

    drop(fork);
    let fork = store.open_fork(&name("demo")).unwrap();
    assert!(fork.workspace.resolve(&path("new")).is_err());
    store
        .restore(&name("demo"), &fork, &before, SnapshotReason::BeforeRestore)
        .unwrap();
    assert_eq!(fork.workspace.read_path(&path("new")).unwrap(), b"text");
    assert!(fork.workspace.resolve(&path("c.txt")).is_err());
}

#[test]
fn a_base_that_is_gone_is_named() {
    let (repository, store) = sample();
    store.create_fork(&options(&repository, "demo")).unwrap();
    let missing = "1".repeat(40);
    store
        .update_record(&name("demo"), |record| record.base_tree = missing.clone())
        .unwrap();
    match store.open_fork(&name("demo")) {
        Err(StoreError::Damaged { path, reason }) => {
            assert_eq!(path, store.places.record(&name("demo")));
            assert!(reason.contains(&missing), "{reason}");
        }
        other => panic!("{:?}", other.err()),
    }
}

#[test]
fn a_changed_record_is_there_after_reopening() {
    let (repository, store) = sample();
    store.create_fork(&options(&repository, "demo")).unwrap();
    store
        .update_record(&name("demo"), |record| {
            record.mounted = true;
            record.name = name("other");
        })
        .unwrap();
    drop(store);
    let store = Store::open(&repository.open()).unwrap();
    let record = store.record(&name("demo")).unwrap();
    assert!(record.mounted);
    assert_eq!(record.name, name("demo"), "a fork keeps its name");
}

#[test]
fn a_repository_without_a_commit_can_be_forked() {
    let repository = TestRepository::new();
    let store = Store::open(&repository.open()).unwrap();
    let record = store.create_fork(&options(&repository, "demo")).unwrap();
    assert_eq!(record.base_commit, None);
    let fork = store.open_fork(&name("demo")).unwrap();
    let head = store.repository().head_of(fork.worktree.git_dir()).unwrap();
    assert_eq!(
        head,
        Head::Unborn {
            name: "refs/heads/tine/demo".to_owned()
        }
    );
    let names = fork.workspace.list_path(&RepoPath::root()).unwrap();
    assert_eq!(names.len(), 1, "only .git");
    let mut taken = options(&repository, "two");
    taken.branch = Some("main".to_owned());
    assert!(matches!(
        store.create_fork(&taken),
        Err(StoreError::Git(GitError::BranchCheckedOut { .. }))
    ));
    let reset = store.reset_fork(&name("demo"), &fork, SnapshotReason::BeforeReset);
    assert_eq!(reset.unwrap(), None, "there was nothing");
    drop(fork);
    store.remove_fork(&name("demo")).unwrap();
}

#[test]
fn a_bare_repository_can_be_forked() {
    let repository = TestRepository::new();
    repository.write("a.txt", "alpha\n");
    repository.commit("first");
    let bare_dir = repository.dir().join("../bare.git");
    repository.git(&["clone", "-q", "--bare", ".", "../bare.git"]);
    let bare = Repository::discover(&bare_dir).unwrap();
    let store = Store::open(&bare).unwrap();
    let mut options = options(&repository, "demo");
    options.git_dir = bare.common_dir().to_owned();
    store.create_fork(&options).unwrap();
    let fork = store.open_fork(&name("demo")).unwrap();
    assert_eq!(
        fork.workspace.read_path(&path("a.txt")).unwrap(),
        b"alpha\n"
    );
}

#[test]
fn a_repository_that_was_moved_has_its_forks_lead_to_the_new_place() {
    let (repository, store) = sample();
    store.create_fork(&options(&repository, "demo")).unwrap();
    store.create_fork(&options(&repository, "own")).unwrap();
    let chosen = b"gitdir: /srv/elsewhere\n";
    let fork = store.open_fork(&name("own")).unwrap();
    fork.workspace
        .write_path(ME, &path(".git"), chosen)
        .unwrap();
    drop(fork);
    // Protected from programs, not from being led back.
    let fork = store.open_fork(&name("demo")).unwrap();
    for ino in [
        Ino::ROOT,
        fork.workspace.resolve(&path(".git")).unwrap().ino,
    ] {
        let set = fork
            .workspace
            .set_flags(Caller::ROOT, ino, InodeFlags::IMMUTABLE);
        set.unwrap();
    }
    drop(fork);
    assert!(store.is_in_place());

    let new_dir = repository.dir().with_extension("moved");
    fs::rename(repository.dir(), &new_dir).unwrap();
    assert!(!store.is_in_place());
    fs::create_dir_all(store.dir()).unwrap();
    fs::write(store.dir().join("lock"), "").unwrap();
    assert!(!store.is_in_place(), "that lock is another store's");
    drop(store);

    let store = Store::open(&Repository::discover(&new_dir).unwrap()).unwrap();
    let fork = store.open_fork(&name("demo")).unwrap();
    assert!(fork.worktree.git_dir().starts_with(&new_dir));
    assert_eq!(
        fork.workspace.read_path(&path(".git")).unwrap(),
        fork.worktree.dot_git()
    );
    let fork = store.open_fork(&name("own")).unwrap();
    assert_eq!(fork.workspace.read_path(&path(".git")).unwrap(), chosen);
}
