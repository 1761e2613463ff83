use super::*;
use crate::testing::TestRepository;

fn spec(ours: ObjectId, theirs: ObjectId) -> MergeTreeSpec {
    MergeTreeSpec {
        base: None,
        ours,
        theirs,
        allow_unrelated: false,
        ignore_directory_renames: false,
    }
}

fn repo_path(path: &str) -> RepoPath {
    RepoPath::parse(path).unwrap()
}

/// `main` with `base`; `ours` and `theirs` each with a commit more.
fn sides(
    repository: &TestRepository,
    base: &[(&str, &str)],
    ours: &[(&str, &str)],
    theirs: &[(&str, &str)],
) -> (ObjectId, ObjectId) {
    let write = |files: &[(&str, &str)]| {
        files
            .iter()
            .for_each(|(path, text)| repository.write(path, text))
    };
    write(base);
    repository.commit("base");
    repository.git(&["switch", "-q", "-c", "theirs"]);
    write(theirs);
    let theirs_id = repository.commit("theirs");
    repository.git(&["switch", "-q", "-c", "ours", "main"]);
    write(ours);
    let ours_id = repository.commit("ours");
    (ours_id, theirs_id)
}

fn text_at(repository: &Repository, tree_id: ObjectId, path: &str) -> String {
    let entry = repository
        .tree_entry(tree_id, &repo_path(path))
        .unwrap()
        .unwrap();
    String::from_utf8(repository.read_blob(entry.id).unwrap()).unwrap()
}

#[test]
fn a_clean_merge_is_what_git_merge_commits() {
    let test = TestRepository::new();
    let (ours, theirs) = sides(
        &test,
        &[("a", "1\n2\n3\n"), ("b", "b\n")],
        &[("a", "0\n1\n2\n3\n")],
        &[("a", "1\n2\n3\n4\n")],
    );
    let refs = test.git(&["for-each-ref"]);
    let merged = test.open().merge_tree(&spec(ours, theirs)).unwrap();
    assert!(merged.is_clean && merged.stages.is_empty());
    assert_eq!(merged.messages[0].kind, "Auto-merging");
    assert_eq!(test.git(&["for-each-ref"]), refs);
    assert_eq!(test.git(&["status", "--porcelain"]), "");
    test.git(&["merge", "-q", "--no-edit", "theirs"]);
    assert_eq!(merged.tree_id, test.id_of("HEAD^{tree}"));
}

#[test]
fn conflicts_leave_stages_and_messages() {
    let test = TestRepository::new();
    let (ours, theirs) = sides(
        &test,
        &[("dir/a", "1\n"), ("b", "b\n")],
        &[("dir/a", "2\n")],
        &[("dir/a", "3\n")],
    );
    let merged = test.open().merge_tree(&spec(ours, theirs)).unwrap();
    assert!(!merged.is_clean);
    let stages: Vec<(StageSide, &RepoPath)> =
        merged.stages.iter().map(|s| (s.stage, &s.path)).collect();
    let path = repo_path("dir/a");
    assert_eq!(
        stages,
        [
            (StageSide::Base, &path),
            (StageSide::Ours, &path),
            (StageSide::Theirs, &path)
        ]
    );
    assert_eq!(merged.stages[1].id, test.id_of("ours:dir/a"));
    let conflict = merged
        .messages
        .iter()
        .find(|m| m.kind == "CONFLICT (contents)")
        .unwrap();
    assert_eq!(conflict.paths, [path]);
    assert!(conflict.text.contains("dir/a"));
}

#[test]
fn trees_are_merged_over_a_given_base() {
    let test = TestRepository::new();
    let (ours, theirs) = sides(&test, &[("a", "a\n")], &[("b", "b\n")], &[("c", "c\n")]);
    let repository = test.open();
    let tree = |id| repository.peel_to_tree(id).unwrap();
    let merged = repository
        .merge_tree(&MergeTreeSpec {
            base: Some(tree(test.id_of("main"))),
            ..spec(tree(ours), tree(theirs))
        })
        .unwrap();
    assert_eq!(
        test.git(&["ls-tree", "--name-only", &merged.tree_id.to_string()]),
        "a\nb\nc"
    );
    // Over the empty tree all is added on both sides.
    let merged = repository
        .merge_tree(&MergeTreeSpec {
            base: Some(repository.empty_tree_id()),
            ..spec(ours, theirs)
        })
        .unwrap();
    assert!(merged.is_clean);
}

#[test]
fn unrelated_histories_are_told_from_other_failures() {
    let test = TestRepository::new();
    test.write("a", "a\n");
    let ours = test.commit("ours");
    test.git(&["switch", "-q", "--orphan", "other"]);
    test.write("b", "b\n");
    let theirs = test.commit("theirs");
    let repository = test.open();
    assert!(matches!(
        repository.merge_tree(&spec(ours, theirs)),
        Err(GitError::UnrelatedHistories)
    ));
    assert!(repository.merge_bases(ours, theirs).unwrap().is_empty());
    let allowed = MergeTreeSpec {
        allow_unrelated: true,
        ignore_directory_renames: false,
        ..spec(ours, theirs)
    };
    assert!(repository.merge_tree(&allowed).unwrap().is_clean);
    let missing = "1234567890123456789012345678901234567890".parse().unwrap();
    assert!(matches!(
        repository.merge_tree(&spec(ours, missing)),
        Err(GitError::MissingObject { .. })
    ));
    let tree = test.id_of("other^{tree}");
    assert!(matches!(
        repository.merge_tree(&spec(ours, tree)),
        Err(GitError::GitFailed { .. })
    ));
}

#[test]
fn all_merge_bases_are_found() {
    let test = TestRepository::new();
    test.write("a", "a\n");
    let root = test.commit("root");
    test.git(&["branch", "other"]);
    let a = test.commit("a");
    test.git(&["switch", "-q", "other"]);
    let b = test.commit("b");
    test.git(&["merge", "-q", "--no-edit", "-s", "ours", "main"]);
    test.git(&["switch", "-q", "main"]);
    test.git(&["merge", "-q", "--no-edit", "-s", "ours", &b.to_string()]);
    let repository = test.open();
    let bases = repository
        .merge_bases(test.id_of("main"), test.id_of("other"))
        .unwrap();
    assert_eq!(bases, [b, a]);
    assert_eq!(repository.merge_bases(a, b).unwrap(), [root]);
}

/// `git merge` in a checkout of ours takes the attributes from there, not from wherever the main
/// checkout is.
#[test]
fn attributes_are_those_of_ours() {
    for bare in [false, true] {
        let test = TestRepository::new();
        let (ours, theirs) = sides(
            &test,
            &[("log", "1\n"), ("raw", "1\n"), ("made", "1\n")],
            &[
                (
                    ".gitattributes",
                    "log merge=union\nraw merge=binary\nmade merge=own\n",
                ),
                ("log", "1\nours\n"),
                ("raw", "1\nours\n"),
                ("made", "ours\n"),
            ],
            &[
                ("log", "1\ntheirs\n"),
                ("raw", "1\ntheirs\n"),
                ("made", "theirs\n"),
            ],
        );
        test.git(&[
            "config",
            "merge.own.driver",
            "cat %B >> %A; echo $PWD > cwd",
        ]);
        // The main checkout has other attributes.
        test.git(&["switch", "-q", "theirs"]);
        test.write(".gitattributes", "raw merge=union\nlog merge=binary\n");
        let (place, repository) = if bare {
            let place = tempfile::tempdir().unwrap();
            let to = place.path().join("bare.git").display().to_string();
            test.git(&["clone", "-q", "--bare", ".", &to]);
            test.git(&["-C", &to, "config", "merge.own.driver", "cat %B >> %A"]);
            let opened = Repository::discover(&place.path().join("bare.git")).unwrap();
            (Some(place), opened)
        } else {
            (None, test.open())
        };
        let merged = repository.merge_tree(&spec(ours, theirs)).unwrap();
        assert_eq!(
            text_at(&repository, merged.tree_id, "log"),
            "1\nours\ntheirs\n"
        );
        assert_eq!(
            text_at(&repository, merged.tree_id, "made"),
            "ours\ntheirs\n"
        );
        let unmerged: Vec<String> = merged
            .stages
            .iter()
            .map(|stage| stage.path.to_string())
            .collect();
        assert_eq!(unmerged, ["raw", "raw", "raw"]);
        assert!(
            merged
                .messages
                .iter()
                .any(|message| message.kind == "CONFLICT (binary)")
        );
        assert!(
            !test.dir().join("cwd").exists(),
            "a driver ran in the checkout"
        );
        drop(place);
    }
}

#[test]
fn renormalising_is_as_configured_and_as_git_merge_does_it() {
    for attributes_by in ["ours", "theirs"] {
        let test = TestRepository::new();
        test.git(&["config", "core.autocrlf", "false"]);
        let attributes = (".gitattributes", "* text=auto\n");
        let mut ours = vec![("a", "0\r\n1\r\n2\r\n3\r\n")];
        let mut theirs = vec![("a", "1\n2\n3\n4\n")];
        if attributes_by == "ours" {
            ours = vec![attributes, ("a", "0\n1\n2\n3\n")];
            theirs = vec![("a", "1\r\n2\r\n3\r\n4\r\n")];
        } else {
            theirs.push(attributes);
        }
        let (ours, theirs) = sides(&test, &[("a", "1\r\n2\r\n3\r\n")], &ours, &theirs);
        let repository = test.open();
        assert!(!repository.merge_tree(&spec(ours, theirs)).unwrap().is_clean);
        test.git(&["config", "merge.renormalize", "true"]);
        let merged = repository.merge_tree(&spec(ours, theirs)).unwrap();
        assert!(merged.is_clean, "{attributes_by}: {merged:?}");
        test.git(&["merge", "-q", "--no-edit", "theirs"]);
        assert_eq!(merged.tree_id, test.id_of("HEAD^{tree}"), "{attributes_by}");
    }
}

#[test]
fn renames_are_followed_as_git_merge_follows_them() {
    let text = "1\n2\n3\n4\n5\n6\n7\n8\n";
    // git 2.47 follows renames whatever `merge.renames` says, 2.50 does as it is told.
    for (setting, value) in [
        ("merge.renames", "true"),
        ("merge.renames", "false"),
        ("merge.directoryRenames", "true"),
    ] {
        let test = TestRepository::new();
        test.write("dir/old", text);
        test.commit("base");
        test.git(&["switch", "-q", "-c", "theirs"]);
        test.write("dir/old", format!("{text}9\n"));
        test.write("dir/added", "added\n");
        let theirs = test.commit("theirs");
        test.git(&["switch", "-q", "-c", "ours", "main"]);
        test.git(&["mv", "dir", "moved"]);
        let ours = test.commit("ours");
        test.git(&["config", setting, value]);
        let merged = test.open().merge_tree(&spec(ours, theirs)).unwrap();
        let by_git = test.try_git(&["merge", "-q", "--no-edit", "theirs"], b"");
        assert_eq!(
            merged.is_clean,
            by_git.status.success(),
            "{setting}={value}"
        );
        let unmerged = test.git(&["ls-files", "-u"]);
        assert_eq!(
            unmerged.lines().count(),
            merged.stages.len(),
            "{setting}={value}"
        );
        if merged.is_clean {
            assert_eq!(
                merged.tree_id,
                test.id_of("HEAD^{tree}"),
                "{setting}={value}"
            );
        }
    }
}

#[test]
fn paths_are_bytes_and_hostile_ones_are_refused() {
    let test = TestRepository::new();
    let blob = |text: &str| test.write_object("blob", text.as_bytes());
    let tree = |name: &[u8], text: &str| {
        let mut raw = b"100644 ".to_vec();
        raw.extend_from_slice(name);
        raw.push(0);
        raw.extend_from_slice(blob(text).as_bytes());
        test.write_object("tree", &raw)
    };
    let merge = |name: &[u8]| {
        test.open().merge_tree(&MergeTreeSpec {
            base: Some(tree(name, "base\n")),
            ..spec(tree(name, "ours\n"), tree(name, "theirs\n"))
        })
    };
    let merged = merge(b"a\xff\n\tb").unwrap();
    assert_eq!(merged.stages[0].path.as_bytes(), b"a\xff\n\tb");
    for name in [&b".git"[..], b".GIT", b"git~1"] {
        assert!(
            matches!(merge(name), Err(GitError::HostilePath { .. })),
            "{name:?}"
        );
    }
    assert!(matches!(merge(b".."), Err(GitError::HostileTree { .. })));
}

#[test]
fn the_environment_of_the_caller_does_not_leak_in() {
    // What `program::command` clears is tested there; this one is for merges only.
    let test = TestRepository::new();
    let (ours, theirs) = sides(&test, &[("a", "1\n")], &[("a", "2\n")], &[("a", "3\n")]);
    test.git(&["config", "merge.verbosity", "5"]);
    let merged = test.open().merge_tree(&spec(ours, theirs)).unwrap();
    assert!(merged.messages.len() <= 2);
}

#[test]
fn an_answer_that_is_cut_off_is_an_error() {
    let whole = b"4b825dc642cb6eb9a060e54bf8d69288fbee4904\x00100644 4b825dc642cb6eb9a060e54bf8d69288fbee4904 1\ta\x00\x001\0a\0CONFLICT (contents)\0text\n\0";
    let Answer::Merged(merged) = parse(whole, false).unwrap() else {
        panic!("nothing is lost");
    };
    assert_eq!(merged.messages[0].text, "text");
    for len in 0..whole.len() {
        // Without messages it is whole, too.
        if whole[..len].ends_with(b"a\0\0") {
            continue;
        }
        assert!(parse(&whole[..len], false).is_err(), "{len}");
    }
}

#[test]
fn what_git_wrote_is_synced_with_the_next_commit() {
    let test = TestRepository::new();
    let (ours, theirs) = sides(
        &test,
        &[("a", "1\n2\n3\n"), ("d/b", "b\n")],
        &[("a", "0\n1\n2\n3\n")],
        &[("a", "1\n2\n3\n4\n")],
    );
    let repository = test.open();
    let merged = repository.merge_tree(&spec(ours, theirs)).unwrap();
    let unsynced = repository.unsynced();
    let blob = repository
        .tree_entry(merged.tree_id, &repo_path("a"))
        .unwrap()
        .unwrap()
        .id;
    assert!(unsynced.contains(&merged.tree_id) && unsynced.contains(&blob));
    assert!(
        !unsynced.contains(&test.id_of("main:d")),
        "it was there before"
    );
}

/// git 2.47 has an unmerged entry without an object here, and a gitlink to nothing in its tree.
#[test]
fn regression_a_version_that_git_loses_is_found_again() {
    let test = TestRepository::new();
    let text = |last: &str| format!("{}{last}\n", "1\n2\n3\n4\n5\n6\n7\n8\n9\n");
    for (path, content) in [
        ("docs/two", text("two")),
        ("src/deep/x", "x\nx\nx\n".to_owned()),
        ("src/deep/y", "y\ny\ny\n".to_owned()),
        ("src/lib", "lib\nlib\nlib\n".to_owned()),
    ] {
        test.write(path, content);
    }
    test.commit("base");
    test.git(&["switch", "-q", "-c", "theirs"]);
    test.git(&["mv", "src", "moved"]);
    test.git(&["rm", "-q", "docs/two"]);
    let theirs = test.commit("theirs");
    test.git(&["switch", "-q", "-c", "ours", "main"]);
    test.git(&["rm", "-q", "-r", "src/deep"]);
    test.git(&["mv", "docs/two", "src/deep"]);
    test.write("src/deep", text("changed"));
    let ours = test.commit("ours");
    let version = test.id_of("ours:src/deep");
    let repository = test.open();
    for (spec, side) in [
        (spec(ours, theirs), StageSide::Ours),
        (spec(theirs, ours), StageSide::Theirs),
    ] {
        let merged = repository.merge_tree(&spec).unwrap();
        let found = |stage: &IndexStage| stage.id == version && stage.stage == side;
        assert!(merged.stages.iter().any(found), "{merged:?}");
        assert!(
            merged
                .stages
                .is_sorted_by_key(|stage| (stage.path.clone(), stage.stage))
        );
        // Of the tree that git wrote without the version nothing is left.
        test.git(&["fsck", "--strict", "--no-dangling"]);
    }
}
