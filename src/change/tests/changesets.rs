//! What counts as a change.

use super::*;

#[test]
fn a_fresh_fork_has_no_changes() {
    let fixture = Fixture::sample();
    assert!(fixture.status().is_empty());
    assert!(matches!(
        fixture.commit("m"),
        Err(ChangeError::NothingToCommit)
    ));
}

#[test]
fn every_kind_of_change_is_named_as_git_names_it() {
    let fixture = Fixture::sample();
    fixture.write("a.txt", "other\n");
    fixture.write("new.txt", "new\n");
    fixture.write("junk.log", "ignored\n");
    fixture.write("ignored.log", "tracked though ignored\n");
    fixture.mkdir("build").unwrap();
    fixture.write("build/out", "ignored\n");
    fixture.mkdir("empty").unwrap();
    fixture.chmod("run.sh", 0o644).unwrap();
    fixture.chmod("dir/b.txt", 0o755).unwrap();
    fixture.remove("link");
    fixture.write("link", "a file now\n");
    fixture.remove("dir/sub/c.txt");
    fixture.mknod("pipe", libc::S_IFIFO | 0o644);
    fixture.mknod("pipe.log", libc::S_IFIFO | 0o644);
    assert_eq!(
        fixture.status(),
        [
            "M a.txt",
            "M dir/b.txt",
            "D dir/sub/c.txt",
            "M ignored.log",
            "T link",
            "A new.txt",
            "M run.sh"
        ]
    );
    let changes = fixture.changes();
    assert_eq!(changes.left_out, [path("pipe")]);
    assert_eq!(raw(&changes), fixture.checkout().staged(&changes.head_tree));
}

#[test]
fn what_is_written_back_is_no_change() {
    let fixture = Fixture::sample();
    fixture.write("a.txt", "other\n");
    fixture.write("a.txt", "alpha\n");
    fixture.chmod("run.sh", 0o644).unwrap();
    fixture.chmod("run.sh", 0o700).unwrap();
    fixture.rename("dir", "moved").unwrap();
    fixture.rename("moved", "dir").unwrap();
    assert!(fixture.status().is_empty(), "{:?}", fixture.status());
}

#[test]
fn a_moved_base_directory_is_its_files_elsewhere() {
    let fixture = Fixture::sample();
    fixture.rename("dir", "elsewhere").unwrap();
    fixture.write("elsewhere/sub/c.txt", "changed\n");
    assert_eq!(
        fixture.status(),
        [
            "D dir/b.txt",
            "D dir/sub/c.txt",
            "A elsewhere/b.txt",
            "A elsewhere/sub/c.txt"
        ]
    );
    let changes = fixture.changes();
    assert_eq!(raw(&changes), fixture.checkout().staged(&changes.head_tree));
    let outcome = fixture.commit("move").unwrap();
    assert_eq!(
        fixture.repository.git(&[
            "ls-tree",
            "-r",
            "--name-only",
            &outcome.commit_id.to_string()
        ]),
        ".gitignore\na.txt\nelsewhere/b.txt\nelsewhere/sub/c.txt\nignored.log\nlink\nrun.sh"
    );
    assert!(fixture.status().is_empty());
}

#[test]
fn a_file_and_a_directory_change_places() {
    let fixture = Fixture::sample();
    fixture.remove("a.txt");
    fixture.mkdir("a.txt").unwrap();
    fixture.write("a.txt/inner", "x\n");
    fixture.rename("dir", "a.txt/dir").unwrap();
    fixture.write("dir", "a file\n");
    let changes = fixture.changes();
    assert_eq!(raw(&changes), fixture.checkout().staged(&changes.head_tree));
    let outcome = fixture.commit("swap").unwrap();
    let listed =
        fixture
            .repository
            .git(&["ls-tree", "-r", "--name-only", &outcome.tree_id.to_string()]);
    assert_eq!(
        listed,
        ".gitignore\na.txt/dir/b.txt\na.txt/dir/sub/c.txt\na.txt/inner\ndir\nignored.log\nlink\nrun.sh"
    );
}

#[test]
fn a_nested_repository_is_left_out_and_named() {
    let fixture = Fixture::sample();
    fixture.mkdir("vendor").unwrap();
    fixture.mkdir("vendor/lib").unwrap();
    fixture.mkdir("vendor/lib/.git").unwrap();
    fixture.write("vendor/lib/.git/HEAD", "ref: refs/heads/main\n");
    fixture.write("vendor/lib/code", "x\n");
    fixture.write("vendor/own", "y\n");
    assert_eq!(fixture.status(), ["A vendor/own"]);
    assert_eq!(fixture.changes().left_out, [path("vendor/lib")]);
}

#[test]
fn ignore_rules_are_those_of_the_view() {
    let fixture = Fixture::sample();
    fixture.write("x.log", "1\n");
    fixture.write("dir/y.tmp", "2\n");
    assert_eq!(fixture.status(), ["A dir/y.tmp"]);
    fixture.write(".gitignore", "# nothing\n");
    fixture.write("dir/.gitignore", "*.tmp\n");
    assert_eq!(
        fixture.status(),
        ["M .gitignore", "A dir/.gitignore", "A x.log"]
    );
    let exclude = fixture.git().common_dir().join("info/exclude");
    fs::create_dir_all(exclude.parent().unwrap()).unwrap();
    fs::write(exclude, "x.*\n").unwrap();
    assert_eq!(fixture.status(), ["M .gitignore", "A dir/.gitignore"]);
}

#[test]
fn an_ignored_file_counts_once_the_index_has_it() {
    let fixture = Fixture::sample();
    fixture.mkdir("build").unwrap();
    fixture.write("build/kept", "x\n");
    fixture.write("build/other", "y\n");
    assert!(fixture.status().is_empty());
    let checkout = fixture.checkout();
    checkout.git(&["add", "-f", "build/kept"]);
    fs::copy(&checkout.index, fixture.fork.worktree.index_path()).unwrap();
    assert_eq!(fixture.status(), ["A build/kept"]);
    fixture.commit("kept").unwrap();
    fixture.write("build/kept", "z\n");
    assert_eq!(fixture.status(), ["M build/kept"]);
}

#[test]
fn what_was_taken_out_of_the_index_is_deleted_if_it_is_ignored() {
    let fixture = Fixture::sample();
    let checkout = fixture.checkout();
    checkout.git(&["rm", "-q", "--cached", "ignored.log", "dir/b.txt"]);
    fs::copy(&checkout.index, fixture.fork.worktree.index_path()).unwrap();
    assert_eq!(
        fixture.status(),
        ["D ignored.log"],
        "git add takes dir/b.txt back"
    );
    fixture.write("ignored.log", "changed\n");
    assert_eq!(fixture.status(), ["D ignored.log"]);
    let outcome = fixture.commit("let go").unwrap();
    let listed =
        fixture
            .repository
            .git(&["ls-tree", "-r", "--name-only", &outcome.tree_id.to_string()]);
    assert!(
        !listed.contains("ignored.log") && listed.contains("dir/b.txt"),
        "{listed}"
    );
    assert!(fixture.status().is_empty());
    let kept = fixture
        .fork
        .workspace
        .read_path(&path("ignored.log"))
        .unwrap();
    assert_eq!(kept, b"changed\n", "the file itself stays");
}

#[test]
fn submodules_stay_while_a_directory_stands_in_their_place() {
    let repository = sample();
    let commit = repository.id_of("HEAD").to_string();
    for at in ["sub/one", "sub/two", "three"] {
        let info = format!("160000,{commit},{at}");
        repository.git(&["update-index", "--add", "--cacheinfo", &info]);
    }
    repository.git(&["commit", "-qm", "submodules"]);
    let fixture = Fixture::new(repository);
    assert!(fixture.status().is_empty());
    fixture.write("sub/one/.git", "gitdir: somewhere\n");
    fixture.write("sub/one/code", "x\n");
    fixture.rename("sub/two", "moved").unwrap();
    fixture.remove("three");
    fixture.write("three", "a file\n");
    assert_eq!(fixture.status(), ["D sub/two", "T three"]);
    let outcome = fixture.commit("less").unwrap();
    let listed = fixture.repository.git(&[
        "ls-tree",
        "-r",
        &outcome.tree_id.to_string(),
        "sub",
        "three",
    ]);
    let kinds: Vec<&str> = listed.lines().map(|line| &line[..6]).collect();
    assert_eq!(kinds, ["160000", "100644"]);
    assert!(fixture.status().is_empty());
}

#[test]
fn without_file_mode_executable_bits_are_no_change() {
    let repository = sample();
    repository.git(&["config", "core.fileMode", "false"]);
    let fixture = Fixture::new(repository);
    fixture.chmod("run.sh", 0o644).unwrap();
    fixture.chmod("a.txt", 0o755).unwrap();
    fixture.write("tool", "x\n");
    fixture.chmod("tool", 0o755).unwrap();
    let changes = fixture.changes();
    assert_eq!(changes.changes.len(), 1);
    assert_eq!(
        changes.changes[0].new.as_ref().unwrap().kind,
        TreeEntryKind::File
    );
}

#[test]
fn contents_are_stored_as_git_would_clean_them() {
    let repository = sample();
    repository.write(".gitattributes", "*.txt text eol=crlf\n");
    repository.commit("attributes");
    let fixture = Fixture::new(repository);
    assert_eq!(
        fixture.fork.workspace.read_path(&path("a.txt")).unwrap(),
        b"alpha\r\n"
    );
    fixture.write("a.txt", "alpha\r\nbeta\r\n");
    fixture.write("dir/new.txt", "one\r\n");
    fixture.write("dir/b.txt", "beta\r\n");
    let changes = fixture.changes();
    assert_eq!(raw(&changes), fixture.checkout().staged(&changes.head_tree));
    assert_eq!(fixture.status(), ["M a.txt", "A dir/new.txt"]);
    let before = fixture.content_bytes();
    fixture.commit("crlf").unwrap();
    assert_eq!(
        fixture.content_bytes(),
        before,
        "the bytes differ from the blobs'"
    );
    assert!(fixture.status().is_empty());
    assert_eq!(
        fixture.fork.workspace.read_path(&path("a.txt")).unwrap(),
        b"alpha\r\nbeta\r\n"
    );
}

#[test]
fn attributes_are_those_of_the_view() {
    let fixture = Fixture::sample();
    fixture.write("a.txt", "one\r\ntwo\r\n");
    fixture.write("dir/b.txt", "one\r\n");
    fixture.remove("dir/sub/c.txt");
    let check = || {
        let changes = fixture.changes();
        assert_eq!(raw(&changes), fixture.checkout().staged(&changes.head_tree));
    };
    check();
    fixture.write(".gitattributes", "a.txt text\n");
    check();
    fixture.write("dir/.gitattributes", "* text=auto\n");
    check();
    let expected = fixture.checkout();
    expected.git(&["add", "-A"]);
    let outcome = fixture.commit("attributes").unwrap();
    assert_eq!(
        outcome.tree_id.to_string(),
        expected.git(&["write-tree"]).trim()
    );
    let stored = fixture
        .repository
        .git_bytes(&["show", "tine/demo:a.txt"], b"");
    assert_eq!(stored, b"one\ntwo\n");
    // HEAD has them now, and the fork's base never will.
    fixture.write("a.txt", "three\r\n");
    check();
    fixture.remove(".gitattributes");
    check();
}

#[test]
fn status_follows_head_wherever_it_goes() {
    let fixture = Fixture::sample();
    fixture.write("a.txt", "two\n");
    fixture.write("new", "x\n");
    let first = fixture.head().unwrap();
    let second = fixture.commit("second").unwrap().commit_id;
    let git_dir = format!("--git-dir={}", fixture.fork.worktree.git_dir().display());
    fixture.repository.git(&[
        &git_dir,
        "update-ref",
        "--no-deref",
        "HEAD",
        &first.to_string(),
    ]);
    assert_eq!(fixture.status(), ["M a.txt", "A new"], "a soft reset");
    fixture.repository.git(&[
        &git_dir,
        "update-ref",
        "--no-deref",
        "HEAD",
        &second.to_string(),
    ]);
    assert!(fixture.status().is_empty());
    // HEAD goes where the view never was.
    fixture.repository.write("elsewhere", "y\n");
    fs::remove_file(fixture.repository.dir().join("dir/b.txt")).unwrap();
    let third = fixture.repository.commit("third");
    fixture.repository.git(&[
        &git_dir,
        "update-ref",
        "--no-deref",
        "HEAD",
        &third.to_string(),
    ]);
    assert_eq!(
        fixture.status(),
        ["M a.txt", "A dir/b.txt", "D elsewhere", "A new"]
    );
}

#[test]
fn the_tree_of_the_view_can_be_written_without_a_commit() {
    let fixture = Fixture::sample();
    fixture.write("dir/sub/c.txt", "changed\n");
    let changes = changeset(fixture.git(), &fixture.fork, Blobs::Write).unwrap();
    let tree = write_tree(fixture.git(), &changes).unwrap();
    let at = format!("{tree}:dir/sub/c.txt");
    assert_eq!(fixture.repository.git(&["show", &at]), "changed");
    assert_eq!(fixture.status(), ["M dir/sub/c.txt"]);
}

#[test]
fn a_second_status_reads_no_content() {
    let fixture = Fixture::sample();
    fixture.write("new", "x\n");
    assert_eq!(fixture.status(), ["A new"]);
    let attr = fixture.fork.workspace.resolve(&path("new")).unwrap();
    let remembered = fixture.fork.memo().blob(&attr, None).unwrap();
    assert_eq!(
        fixture.changes().changes[0].new.as_ref().unwrap().id,
        remembered.id
    );
    fixture.write("new", "y\n");
    let attr = fixture.fork.workspace.resolve(&path("new")).unwrap();
    assert_eq!(fixture.fork.memo().blob(&attr, None), None);
}

#[derive(Debug, Clone)]
enum Step {
    Write(&'static str, u8),
    Remove(&'static str),
    MakeDir(&'static str),
    Link(&'static str, u8),
    Rename(&'static str, &'static str),
    Chmod(&'static str, bool),
    Ignore(&'static str, u8),
    Commit,
}

fn any_step() -> impl Strategy<Value = Step> {
    let at = || {
        prop::sample::select(vec![
            "a.txt",
            "run.sh",
            "link",
            "dir",
            "dir/b.txt",
            "dir/sub",
            "dir/sub/c.txt",
            "dir/new",
            "new",
            "new/x",
            "new/y.log",
            "build",
            "build/z",
            "ignored.log",
        ])
    };
    prop_oneof![
        4 => (at(), 0u8..3).prop_map(|(at, number)| Step::Write(at, number)),
        2 => at().prop_map(Step::Remove),
        2 => at().prop_map(Step::MakeDir),
        1 => (at(), 0u8..3).prop_map(|(at, number)| Step::Link(at, number)),
        4 => (at(), at()).prop_map(|(from, to)| Step::Rename(from, to)),
        1 => (at(), any::<bool>()).prop_map(|(at, executable)| Step::Chmod(at, executable)),
        1 => (prop::sample::select(vec![".gitignore", "dir/.gitignore", "new/.gitignore"]), 0u8..4)
            .prop_map(|(at, number)| Step::Ignore(at, number)),
        1 => Just(Step::Commit),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Whatever was done, the changeset is what `git add -A` stages in a checkout with the same
    /// content, and the commit has the tree that git would have written.
    #[test]
    fn changes_are_what_git_add_would_take(steps in prop::collection::vec(any_step(), 1..20)) {
        let fixture = Fixture::sample();
        for step in &steps {
            // Steps that make no sense where they fall are refused, as for any program.
            let _ = match *step {
                Step::Write(at, number) => {
                    if let Some((parent, _)) = at.rsplit_once('/') {
                        let _ = fixture.mkdir(parent);
                    }
                    fixture.try_write(at, &format!("content {number}\n"))
                }
                Step::Remove(at) => fixture.fork.workspace.remove_path(ME, &path(at)),
                Step::MakeDir(at) => fixture.mkdir(at),
                Step::Link(at, number) => fixture.symlink(at, &format!("target{number}")),
                Step::Rename(from, to) => fixture.rename(from, to),
                Step::Chmod(at, executable) => fixture.chmod(at, if executable { 0o755 } else { 0o644 }),
                Step::Ignore(at, number) => {
                    let rules = ["", "*.txt\n", "/new/\n!x\n", "sub\n*.log\n"];
                    fixture.try_write(at, rules[usize::from(number)])
                }
                Step::Commit => match fixture.commit("step") {
                    Ok(_) | Err(ChangeError::NothingToCommit) => Ok(()),
                    Err(error) => panic!("{error}"),
                },
            };
        }
        let changes = fixture.changes();
        let checkout = fixture.checkout();
        prop_assert_eq!(raw(&changes), checkout.staged(&changes.head_tree));
        let expected = checkout.git(&["write-tree"]);
        if !changes.changes.is_empty() {
            let outcome = fixture.commit("all").unwrap();
            prop_assert_eq!(outcome.tree_id.to_string(), expected.trim());
        }
        prop_assert!(fixture.status().is_empty());
    }
}
