//! Commits, what they let go of, and what is kept of a discard.

use super::*;

#[test]
fn contents_that_no_conversion_changes_leave_the_layer() {
    let repository = sample();
    repository.write(".gitattributes", "* text=auto\n");
    repository.commit("attributes");
    let fixture = Fixture::new(repository);
    fixture.write("big", &"words\n".repeat(20_000));
    let held = fixture.content_bytes();
    fixture.commit("big").unwrap();
    assert!(fixture.content_bytes() + 100_000 < held);
}

#[test]
fn a_commit_is_what_git_would_have_made() {
    let fixture = Fixture::sample();
    let parent = fixture.head();
    fixture.write("a.txt", "other\n");
    fixture.write("dir/new", "new\n");
    fixture.symlink("dir/up", "../a.txt").unwrap();
    fixture.remove("dir/b.txt");
    let checkout = fixture.checkout();
    checkout.git(&["add", "-A"]);
    let expected_tree = checkout.git(&["write-tree"]);

    let options = CommitOptions {
        message: "Change things\n\nMuch.\n".to_owned(),
        author: Identity::parse("Some One <one@example.com>"),
        ..CommitOptions::default()
    };
    let outcome = commit(fixture.git(), &demo(), &fixture.fork, &options).unwrap();
    assert_eq!(outcome.tree_id.to_string(), expected_tree.trim());
    assert_eq!(outcome.parent_id, parent);
    assert_eq!(fixture.head(), Some(outcome.commit_id));
    assert_eq!(
        fixture.git().branch("tine/demo").unwrap(),
        Some(outcome.commit_id)
    );
    let shown = fixture.repository.git(&[
        "show",
        "-s",
        "--format=%an <%ae>%n%cn <%ce>%n%B",
        "refs/heads/tine/demo",
    ]);
    assert_eq!(
        shown.trim(),
        "Some One <one@example.com>\nC O Nfig <config@example.com>\nChange things\n\nMuch."
    );
    let git_dir = format!("--git-dir={}", fixture.fork.worktree.git_dir().display());
    assert_eq!(
        fixture
            .repository
            .git(&[&git_dir, "reflog", "-1", "--format=%gs", "HEAD"]),
        "commit: Change things"
    );
    fixture.repository.git(&["fsck", "--strict"]);
    // Nothing is staged, nothing differs, and the next commit has nothing to do.
    let tree = outcome.tree_id.to_string();
    assert_eq!(
        fixture
            .repository
            .git(&[&git_dir, "diff-index", "--cached", &tree]),
        ""
    );
    assert!(fixture.status().is_empty());
    assert!(matches!(
        fixture.commit("again"),
        Err(ChangeError::NothingToCommit)
    ));
    assert_eq!(
        fixture.repository.git(&["status", "--porcelain"]),
        "",
        "the main checkout is untouched"
    );
}

#[test]
fn the_index_after_a_commit_knows_the_files_as_they_are() {
    let fixture = Fixture::sample();
    fixture.write("a.txt", "other\n");
    fixture.rename("dir", "moved").unwrap();
    fixture.commit("m").unwrap();
    let git_dir = format!("--git-dir={}", fixture.fork.worktree.git_dir().display());
    for at in ["a.txt", "moved/b.txt", "run.sh"] {
        let attr = fixture.fork.workspace.resolve(&path(at)).unwrap();
        let listed = fixture
            .repository
            .git(&[&git_dir, "ls-files", "--debug", at]);
        let expected = format!("mtime: {}:{}", attr.mtime.secs, attr.mtime.nanos);
        assert!(listed.contains(&expected), "{at}: {expected} in {listed}");
        let low = attr.ino.0 as u32;
        assert!(
            listed.contains(&format!("ino: {low}")),
            "{at}: {low} in {listed}"
        );
    }
}

#[test]
fn committed_contents_leave_the_layer_unnoticed() {
    let fixture = Fixture::sample();
    let text = "many words ".repeat(10_000);
    fixture.write("big", &text);
    fixture.write("small", "few words\n");
    fixture.write("junk.log", "ignored\n");
    let before = fixture.fork.workspace.resolve(&path("big")).unwrap();
    let held = fixture.content_bytes();
    fixture.commit("contents").unwrap();
    assert!(fixture.content_bytes() + 100_000 < held);
    let workspace = &fixture.fork.workspace;
    assert_eq!(workspace.read_path(&path("big")).unwrap(), text.as_bytes());
    let after = workspace.resolve(&path("big")).unwrap();
    assert_eq!(
        Attr { blocks: 0, ..after },
        Attr {
            blocks: 0,
            ..before
        }
    );
    assert_eq!(
        workspace.read_path(&path("junk.log")).unwrap(),
        b"ignored\n"
    );
}

#[test]
fn commits_are_refused_with_nothing_changed() {
    let fixture = Fixture::sample();
    fixture.write("a.txt", "other\n");
    let head = fixture.head();
    assert!(matches!(
        fixture.commit(" \n"),
        Err(ChangeError::EmptyMessage)
    ));
    let merge_head = fixture.fork.worktree.git_dir().join("MERGE_HEAD");
    fs::write(&merge_head, format!("{}\n", head.unwrap())).unwrap();
    assert!(matches!(
        fixture.commit("m"),
        Err(ChangeError::OperationInProgress("merge"))
    ));
    fs::remove_file(merge_head).unwrap();
    let lock = fixture.fork.worktree.git_dir().join("index.lock");
    fs::write(&lock, "").unwrap();
    assert!(matches!(
        fixture.commit("m"),
        Err(ChangeError::Git(GitError::IndexLocked { .. }))
    ));
    assert_eq!(fixture.head(), head);
    assert_eq!(fixture.status(), ["M a.txt"]);
    fs::remove_file(lock).unwrap();
    let index = fs::read(fixture.fork.worktree.index_path()).unwrap();
    let branch_lock = fixture.git().common_dir().join("refs/heads/tine/demo.lock");
    fs::write(&branch_lock, "").unwrap();
    fixture.commit("m").unwrap_err();
    assert_eq!(fixture.head(), head);
    assert_eq!(fs::read(fixture.fork.worktree.index_path()).unwrap(), index);
    fs::remove_file(branch_lock).unwrap();
    fixture.commit("m").unwrap();
}

#[test]
fn the_first_commit_of_a_repository_can_be_made_in_a_fork() {
    let repository = TestRepository::new();
    repository.git(&["config", "user.name", "C O Nfig"]);
    repository.git(&["config", "user.email", "config@example.com"]);
    let fixture = Fixture::new(repository);
    fixture.write("a", "1\n");
    assert_eq!(fixture.status(), ["A a"]);
    let outcome = fixture.commit("first").unwrap();
    assert_eq!(outcome.parent_id, None);
    assert_eq!(
        fixture.git().branch("tine/demo").unwrap(),
        Some(outcome.commit_id)
    );
    assert_eq!(fixture.refs()["head"], outcome.commit_id);
    assert!(fixture.status().is_empty());
}

#[test]
fn a_commit_by_git_is_settled() {
    let fixture = Fixture::sample();
    let before = fixture.head();
    fixture.write("big", &"words ".repeat(20_000));
    fixture.write("half", &"committed ".repeat(10_000));
    let checkout = fixture.checkout();
    checkout.git(&["add", "-A"]);
    checkout.git(&["commit", "-qm", "by git"]);
    fs::copy(&checkout.index, fixture.fork.worktree.index_path()).unwrap();
    fixture.write("half", &"and changed ".repeat(10_000));
    assert_eq!(fixture.status(), ["M half"]);

    let held = fixture.content_bytes();
    let settled = settle(fixture.git(), &demo(), &fixture.fork, before).unwrap();
    assert_eq!(settled, SettleOutcome::Settled(1));
    assert!(fixture.content_bytes() + 100_000 < held);
    assert_eq!(fixture.refs()["head"], fixture.head().unwrap());
    assert_eq!(fixture.status(), ["M half"]);
    let again = settle(fixture.git(), &demo(), &fixture.fork, fixture.head()).unwrap();
    assert_eq!(again, SettleOutcome::Settled(0));
}

/// Invariant 3: nothing is freed while a fork reaches it.
#[test]
fn what_a_layer_adopted_survives_a_reset_and_git_gc() {
    let fixture = Fixture::sample();
    let first = fixture.head().unwrap();
    let text = "precious ".repeat(20_000);
    fixture.write("big", &text);
    let second = fixture.commit("second").unwrap().commit_id;
    let git_dir = fixture.fork.worktree.git_dir().to_owned();
    let move_head = |to: ObjectId| {
        let git_dir = format!("--git-dir={}", git_dir.display());
        let to = to.to_string();
        fixture
            .repository
            .git(&[&git_dir, "update-ref", "refs/heads/tine/demo", &to]);
    };
    move_head(first);
    settle(fixture.git(), &demo(), &fixture.fork, Some(second)).unwrap();
    assert_eq!(
        fixture.refs()["head"],
        second,
        "the first commit is reachable from it"
    );
    fixture.write("other", "x\n");
    assert_eq!(fixture.status(), ["A big", "A other"]);
    fixture.remove("other");
    fixture.write("a.txt", "another line of history\n");
    let third = fixture.commit("third").unwrap().commit_id;
    assert_eq!(fixture.refs()["head"], third);
    assert_eq!(fixture.refs()["held-1"], second);

    fixture
        .repository
        .git(&["reflog", "expire", "--expire=all", "--all"]);
    fs::remove_dir_all(git_dir.join("logs")).unwrap();
    fixture.repository.git(&["gc", "-q", "--prune=now"]);
    let store = Repository::discover(fixture.repository.dir()).unwrap();
    assert_eq!(store.commit_info(second).unwrap().summary, "second");
    assert_eq!(
        fixture.fork.workspace.read_path(&path("big")).unwrap(),
        text.as_bytes()
    );
}

/// Removes an object that is loose, as `git prune` does.
fn prune(fixture: &Fixture, id: ObjectId) {
    let hex = id.to_string();
    let (dir, file) = hex.split_at(2);
    fs::remove_file(
        fixture
            .git()
            .common_dir()
            .join("objects")
            .join(dir)
            .join(file),
    )
    .unwrap();
}

#[test]
fn contents_stay_in_the_layer_and_objects_in_memory_until_a_gc_has_ended() {
    let fixture = Fixture::sample();
    let text = "precious ".repeat(20_000);
    fixture.write("big", &text);
    let held = fixture.content_bytes();
    // This process is no gc, but it lives.
    let gc_pid = fixture.git().common_dir().join("gc.pid");
    fs::write(&gc_pid, format!("{} here", std::process::id())).unwrap();
    let made = fixture.commit("beside a gc").unwrap();
    assert!(!made.is_settled);
    assert_eq!(fixture.content_bytes(), held);
    let settled = settle(fixture.git(), &demo(), &fixture.fork, None).unwrap();
    assert_eq!(settled, SettleOutcome::Later);

    let blob_id = made.changeset.changes[0].new.as_ref().unwrap().id;
    for id in [made.commit_id, made.tree_id, blob_id] {
        prune(&fixture, id);
    }
    fixture.git().confirm_pending();
    assert!(
        fixture
            .git()
            .missing_objects([blob_id])
            .unwrap()
            .contains(&blob_id)
    );
    fs::remove_file(gc_pid).unwrap();
    fixture.git().confirm_pending();
    fixture.repository.git(&["fsck", "--strict"]);

    // One that is in the layer only is written out of it.
    prune(&fixture, blob_id);
    let settled = settle(fixture.git(), &demo(), &fixture.fork, None).unwrap();
    assert_eq!(settled, SettleOutcome::Settled(1));
    assert!(fixture.content_bytes() + 100_000 < held);
    fixture.repository.git(&["fsck", "--strict"]);
    let read = fixture.fork.workspace.read_path(&path("big")).unwrap();
    assert_eq!(read, text.as_bytes());
}

/// Keeps what is uncommitted as `tine delete --force` does; the number of the entry and the commit.
fn keep_uncommitted(fixture: &Fixture) -> Option<(u64, ObjectId)> {
    let kept =
        recovery::commit_uncommitted(fixture.git(), &demo(), &fixture.fork, None).unwrap()?;
    let entry = RecoverEntry {
        head: fixture.head().map(|id| id.to_string()),
        uncommitted: Some(kept.to_string()),
        ..RecoverEntry::new(RecoverKind::Fork, "tine delete demo --force")
    };
    let id = recovery::keep(&fixture.store, fixture.git(), entry, &[]).unwrap();
    Some((id, kept))
}

#[test]
fn what_was_uncommitted_comes_back_as_the_same_commit_after_gc() {
    let fixture = Fixture::sample();
    assert_eq!(keep_uncommitted(&fixture), None);
    fixture.write("a.txt", "unfinished\n");
    fixture.write("new", "x\n");
    let head = fixture.head();
    let git = |args: &[&str]| fixture.repository.git(args);
    let log_before = git(&["log", "--all", "--format=%H %s"]);
    let (id, commit_id) = keep_uncommitted(&fixture).unwrap();
    assert_eq!(id, 1);
    assert_eq!(fixture.head(), head, "HEAD stays");
    assert_eq!(git(&["log", "--all", "--format=%H %s"]), log_before);
    assert_eq!(
        git(&[
            "for-each-ref",
            "--format=%(objecttype)",
            "refs/tine/+recover"
        ]),
        "tree"
    );

    git(&["reflog", "expire", "--expire=all", "--all"]);
    git(&["gc", "-q", "--prune=now"]);
    let repository = Repository::discover(fixture.repository.dir()).unwrap();
    assert!(
        !repository.has_object(commit_id),
        "it is kept as a blob alone"
    );
    let found = recovery::find(&repository, id).unwrap();
    recovery::write_again(&repository, &found).unwrap();
    assert_eq!(git(&["show", &format!("{commit_id}:a.txt")]), "unfinished");
    assert_eq!(git(&["show", &format!("{commit_id}:new")]), "x");
    assert_eq!(
        Some(fixture.repository.id_of(&format!("{commit_id}^"))),
        head
    );
    git(&["fsck", "--strict"]);

    let (second, _) = keep_uncommitted(&fixture).unwrap();
    assert_eq!(second, 2);
    assert!(recovery::purge(&fixture.store, &repository, &[1, 2]).is_empty());
    assert!(matches!(
        recovery::find(&repository, 2),
        Err(ChangeError::NothingToRecover(2))
    ));
    let (third, _) = keep_uncommitted(&fixture).unwrap();
    assert_eq!(third, 3, "no number is given twice");
}

/// Invariant 12: discarding leaves something from which the work can be brought back.
#[test]
fn a_discarded_state_is_kept_even_where_nobody_has_a_name() {
    let repository = TestRepository::new();
    repository.git(&["config", "user.useConfigOnly", "true"]);
    let fixture = Fixture::new(repository);
    fixture.write("a", "unfinished\n");
    let (_, commit_id) = keep_uncommitted(&fixture).unwrap();
    let shown = fixture.repository.git(&["show", &format!("{commit_id}:a")]);
    assert_eq!(shown, "unfinished");
}

#[test]
fn an_entry_takes_in_what_it_stands_on_before_that_is_lost() {
    let fixture = Fixture::sample();
    let git = |args: &[&str]| fixture.repository.git(args);
    git(&["commit", "--allow-empty", "-qm", "second"]);
    let second = fixture.repository.id_of("HEAD");
    git(&["commit", "--allow-empty", "-qm", "third"]);
    let third = fixture.repository.id_of("HEAD");
    git(&["reset", "-q", "--hard", "HEAD^"]);
    let entry = RecoverEntry {
        head: Some(third.to_string()),
        ..RecoverEntry::new(RecoverKind::Branch, "tine branch delete topic --force")
    };
    let id = recovery::keep(&fixture.store, fixture.git(), entry, &[]).unwrap();
    let stands_on = |id| {
        recovery::find(fixture.git(), id)
            .unwrap()
            .entry
            .needed_commits
    };
    assert_eq!(stands_on(id), [second.to_string()]);

    git(&["reset", "-q", "--hard", "HEAD^"]);
    recovery::maintain(&fixture.store, fixture.git(), 0).unwrap();
    assert_eq!(
        stands_on(id),
        [fixture.repository.id_of("HEAD").to_string()]
    );
    git(&["reflog", "expire", "--expire=all", "--all"]);
    git(&["gc", "-q", "--prune=now"]);
    let repository = Repository::discover(fixture.repository.dir()).unwrap();
    assert!(!repository.has_object(second));
    recovery::write_again(&repository, &recovery::find(&repository, id).unwrap()).unwrap();
    assert_eq!(fixture.repository.id_of(&format!("{third}^")), second);
}

/// A file that is rewritten all the time is committed as it was at some moment, or not at all.
#[test]
fn what_changes_while_it_is_read_is_never_committed_torn() {
    let fixture = Fixture::sample();
    let is_done = AtomicBool::new(false);
    let workspace = &fixture.fork.workspace;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for letter in ["a", "b", "c", "d"].iter().cycle() {
                if is_done.load(Ordering::Relaxed) {
                    return;
                }
                let content = letter.repeat(50_000);
                workspace
                    .write_path(ME, &path("busy"), content.as_bytes())
                    .unwrap();
                workspace
                    .write_path(ME, &path("came"), b"and goes")
                    .unwrap();
                workspace.remove_path(ME, &path("came")).unwrap();
            }
        });
        for number in 0..20 {
            match fixture.commit(&format!("commit {number}")) {
                Ok(_) | Err(ChangeError::NothingToCommit | ChangeError::Unstable(_)) => {}
                Err(error) => {
                    is_done.store(true, Ordering::Relaxed);
                    panic!("{error}");
                }
            }
        }
        is_done.store(true, Ordering::Relaxed);
    });
    fixture.write("busy", &"e".repeat(50_000));
    fixture.commit("last").unwrap();
    for commit in fixture
        .repository
        .git(&["rev-list", "tine/demo", "--", "busy"])
        .lines()
    {
        let content = fixture.repository.git(&["show", &format!("{commit}:busy")]);
        assert_eq!(content.len(), 50_000, "{commit}");
        assert_eq!(
            content.trim_start_matches(&content[..1]),
            "",
            "{commit} is torn"
        );
    }
    assert!(fixture.status().is_empty());
    assert_eq!(
        fixture.fork.workspace.read_path(&path("busy")).unwrap(),
        "e".repeat(50_000).as_bytes()
    );
}
