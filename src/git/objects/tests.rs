use super::*;
use crate::testing::TestRepository;

#[test]
fn commits_are_read_whatever_their_encoding() {
    let repository = TestRepository::new();
    let tree = repository.git(&["mktree"]);
    let mut raw =
        format!("tree {tree}\nauthor J\u{fc}rgen <j@x> 100 +0200\ncommitter C <c@x> 200 +0000\n\n")
            .replace('\u{fc}', "#")
            .into_bytes();
    raw.iter_mut()
        .filter(|b| **b == b'#')
        .for_each(|b| *b = 0xfc);
    raw.extend_from_slice(b"first \xff line\nsecond line\n\nbody\n");
    let id = repository.write_object("commit", &raw);
    let info = repository.open().commit_info(id).unwrap();
    assert_eq!(info.summary, "first \u{fffd} line second line");
    assert_eq!(info.author_name, "J\u{fffd}rgen");
    assert_eq!(
        (
            info.author_email.as_str(),
            info.author_time_secs,
            info.time_secs
        ),
        ("j@x", 100, 200)
    );
    assert_eq!(info.tree_id.to_string(), tree);
}

#[test]
fn the_log_goes_from_the_tip_to_what_is_hidden() {
    let repository = TestRepository::new();
    let commits: Vec<_> = (0..5)
        .map(|n| repository.commit(&format!("commit {n}")))
        .collect();
    let opened = repository.open();
    let log = opened.log(commits[4], Some(commits[1]), 10).unwrap();
    let ids: Vec<_> = log.iter().map(|(id, _)| *id).collect();
    assert_eq!(ids, [commits[4], commits[3], commits[2]]);
    assert_eq!(log[0].1.summary, "commit 4");
    assert_eq!(opened.log(commits[4], None, 2).unwrap().len(), 2);
    assert_eq!(opened.log(commits[4], None, 100).unwrap().len(), 5);
}

#[test]
fn trees_have_all_kinds_of_entries_in_gits_order() {
    for format in ["sha1", "sha256"] {
        let repository = TestRepository::with_options(&[&format!("--object-format={format}")]);
        let blob = repository.write_object("blob", b"x");
        let null = "1".repeat(blob.to_string().len());
        let listing = format!(
            "100644 blob {blob}\ta.b\n040000 tree {tree}\ta\n100755 blob {blob}\ta0\n\
             120000 blob {blob}\tlink\n160000 commit {null}\tmodule\n",
            tree = repository.git_with_input(&["mktree"], b""),
        );
        let tree = repository.git_with_input(&["mktree"], listing.as_bytes());
        let entries = repository.open().read_tree(tree.parse().unwrap()).unwrap();
        let seen: Vec<_> = entries
            .iter()
            .map(|e| (e.name.to_string(), e.kind.mode()))
            .collect();
        let wanted = [
            ("a.b", 0o100644),
            ("a", 0o040000),
            ("a0", 0o100755),
            ("link", 0o120000),
            ("module", 0o160000),
        ];
        assert_eq!(seen, wanted.map(|(name, mode)| (name.to_owned(), mode)));
        let opened = repository.open();
        assert_eq!(opened.read_tree(opened.empty_tree_id()).unwrap(), []);
    }
}

/// A tree object with one entry.
fn tree_with(repository: &TestRepository, mode: &str, name: &[u8]) -> ObjectId {
    let blob = repository.write_object("blob", b"x");
    let mut raw = [mode.as_bytes(), b" ", name, b"\0"].concat();
    raw.extend_from_slice(blob.as_bytes());
    repository.write_object("tree", &raw)
}

#[test]
fn names_that_lead_out_of_a_checkout_are_refused() {
    let repository = TestRepository::new();
    let opened = repository.open();
    let hostile: [&[u8]; 12] = [
        b".git",
        b".GIT",
        b".Git",
        b"git~1",
        b"GIT~1",
        b".git ",
        b".git.",
        b".git. .",
        b".git::$INDEX_ALLOCATION",
        b"a\\.git",
        b"..",
        b"a/b",
    ];
    for name in hostile {
        let tree = tree_with(&repository, "100644", name);
        let error = opened.read_tree(tree).unwrap_err();
        assert!(
            matches!(error, GitError::HostileTree { .. }),
            "{name:?}: {error}"
        );
    }
    let link = tree_with(&repository, "120000", b".gitmodules");
    assert!(matches!(
        opened.read_tree(link),
        Err(GitError::HostileTree { .. })
    ));
    for name in [
        &b".gitmodules"[..],
        b".gitignore",
        b"git",
        b".github",
        b"a\\b",
        b"git~2",
        b"\xff\xfe",
        b".g\xe2\x80\x8cit",
    ] {
        let tree = tree_with(&repository, "100644", name);
        assert_eq!(opened.read_tree(tree).unwrap().len(), 1, "{name:?}");
    }
    repository.git(&["config", "core.protectHFS", "true"]);
    repository.git(&["config", "core.protectNTFS", "false"]);
    let opened = repository.open();
    let disguised = tree_with(&repository, "100644", b".g\xe2\x80\x8cit");
    assert!(matches!(
        opened.read_tree(disguised),
        Err(GitError::HostileTree { .. })
    ));
    assert!(
        opened
            .read_tree(tree_with(&repository, "100644", b"git~1"))
            .is_ok()
    );
    assert!(
        opened
            .read_tree(tree_with(&repository, "100644", b".gIt"))
            .is_err()
    );
}

#[test]
fn trees_with_a_name_twice_or_out_of_order_are_refused() {
    let repository = TestRepository::new();
    let blob = repository.write_object("blob", b"x");
    let opened = repository.open();
    let entry = |mode: &str, name: &str| {
        let mut raw = format!("{mode} {name}\0").into_bytes();
        raw.extend_from_slice(blob.as_bytes());
        raw
    };
    for raw in [
        [entry("100644", "a"), entry("100644", "a")].concat(),
        [
            entry("100644", "a"),
            entry("100644", "a.b"),
            entry("40000", "a"),
        ]
        .concat(),
        [entry("100644", "b"), entry("100644", "a")].concat(),
        b"100644 torn".to_vec(),
    ] {
        let tree = repository.write_object("tree", &raw);
        let error = opened.read_tree(tree).unwrap_err();
        assert!(matches!(error, GitError::CorruptObject { .. }), "{error}");
    }
}

#[test]
fn objects_are_found_after_gc_and_in_packs_and_alternates_that_come_later() {
    let repository = TestRepository::new();
    repository.write("file", "one");
    repository.commit("first");
    let opened = repository.open();
    let first = repository.id_of("HEAD:file");
    assert_eq!(opened.read_blob(first).unwrap(), b"one");
    repository.write("file", "two");
    repository.commit("second");
    let second = repository.id_of("HEAD:file");
    repository.git(&["repack", "-adq"]);
    repository.git(&["prune-packed"]);
    assert_eq!(opened.read_blob(first).unwrap(), b"one");
    assert_eq!(opened.read_blob(second).unwrap(), b"two");
    assert_eq!(opened.blob_size(second).unwrap(), 3);

    let missing = ObjectId::from_hex(&[b'1'; 40]).unwrap();
    assert!(
        matches!(opened.read_blob(missing), Err(GitError::MissingObject { id }) if id == missing)
    );
    assert!(matches!(
        opened.blob_size(missing),
        Err(GitError::MissingObject { .. })
    ));
    repository.write("file", "three");
    repository.commit("third");
    repository.git(&["repack", "-adq"]);
    assert_eq!(
        opened.read_blob(repository.id_of("HEAD:file")).unwrap(),
        b"three"
    );

    let clone = repository.dir().join("../clone");
    repository.git(&["clone", "-q", "--shared", ".", clone.to_str().unwrap()]);
    assert_eq!(
        Repository::discover(&clone)
            .unwrap()
            .read_blob(second)
            .unwrap(),
        b"two"
    );
}

#[test]
fn packs_may_come_by_the_dozen_and_be_indexed_together() {
    let repository = TestRepository::new();
    repository.commit("first");
    let opened = repository.open();
    let blobs: Vec<_> = (0..70)
        .map(|n| {
            let blob = repository.write_object("blob", format!("blob {n}").as_bytes());
            let name = repository.dir().join(".git/objects/pack/pack");
            let list = format!("{blob}\n");
            repository.git_with_input(
                &["pack-objects", "-q", name.to_str().unwrap()],
                list.as_bytes(),
            );
            repository.git(&["prune-packed", "-q"]);
            assert_eq!(
                opened.blob_size(blob).unwrap(),
                format!("blob {n}").len() as u64,
                "pack {n}"
            );
            blob
        })
        .collect();
    repository.git(&["multi-pack-index", "write"]);
    for repository in [opened, repository.open()] {
        for (n, blob) in blobs.iter().enumerate() {
            assert_eq!(
                repository.read_blob(*blob).unwrap(),
                format!("blob {n}").as_bytes()
            );
        }
    }
}

#[test]
fn damaged_and_swapped_objects_are_errors_and_never_other_bytes() {
    let repository = TestRepository::new();
    let (one, two) = (
        repository.write_object("blob", b"one"),
        repository.write_object("blob", b"two"),
    );
    let path = |id: ObjectId| {
        let hex = id.to_string();
        repository
            .dir()
            .join(".git/objects")
            .join(&hex[..2])
            .join(&hex[2..])
    };
    std::fs::remove_file(path(two)).unwrap();
    std::fs::copy(path(one), path(two)).unwrap();
    let opened = repository.open();
    assert!(matches!(opened.read_blob(two), Err(GitError::CorruptObject { id, .. }) if id == two));
    std::fs::remove_file(path(two)).unwrap();
    std::fs::write(path(two), b"garbage").unwrap();
    assert!(matches!(
        opened.read_blob(two),
        Err(GitError::CorruptObject { .. })
    ));
    assert!(
        matches!(opened.read_tree(one), Err(GitError::CorruptObject { .. })),
        "a blob is no tree"
    );
    assert_eq!(opened.read_blob(one).unwrap(), b"one");
}

#[test]
fn replaced_objects_read_as_git_reads_them() {
    let repository = TestRepository::new();
    let (one, two) = (
        repository.write_object("blob", b"one"),
        repository.write_object("blob", b"two"),
    );
    repository.git(&["replace", &one.to_string(), &two.to_string()]);
    assert_eq!(repository.open().read_blob(one).unwrap(), b"two");
}

#[test]
fn a_shallow_clone_has_a_log_that_ends() {
    let repository = TestRepository::new();
    for n in 0..4 {
        repository.commit(&format!("commit {n}"));
    }
    let clone = repository.dir().join("../shallow");
    let url = format!("file://{}", repository.dir().display());
    repository.git(&["clone", "-q", "--depth=2", &url, clone.to_str().unwrap()]);
    let opened = Repository::discover(&clone).unwrap();
    let tip = opened.resolve_commit(opened.common_dir(), "HEAD").unwrap();
    assert_eq!(opened.log(tip, None, 100).unwrap().len(), 2);
}

#[test]
fn a_partial_clone_fetches_what_is_missing_and_says_when_it_cannot() {
    let repository = TestRepository::new();
    for n in 0..20 {
        repository.write(&format!("file{n}"), format!("content {n}"));
    }
    repository.commit("first");
    repository.git(&["config", "uploadpack.allowFilter", "true"]);
    repository.git(&["config", "uploadpack.allowAnySHA1InWant", "true"]);
    let clone = repository.dir().join("../partial");
    let url = format!("file://{}", repository.dir().display());
    repository.git(&[
        "clone",
        "-q",
        "--bare",
        "--filter=blob:none",
        &url,
        clone.to_str().unwrap(),
    ]);
    let opened = Repository::discover(&clone).unwrap();
    assert_eq!(opened.promisor_remote(), Some("origin"));
    let ids: Vec<_> = (0..20)
        .map(|n| repository.id_of(&format!("HEAD:file{n}")))
        .collect();
    assert!(!opened.has_object(ids[0]));
    assert_eq!(opened.read_blob(ids[0]).unwrap(), b"content 0");
    assert_eq!(opened.blob_size(ids[1]).unwrap(), 9);
    opened.fetch_missing(&ids).unwrap();
    assert!(ids.iter().all(|id| opened.has_object(*id)));

    let unknown = ObjectId::from_hex(&[b'1'; 40]).unwrap();
    assert!(matches!(
        opened.read_blob(unknown),
        Err(GitError::MissingObject { .. })
    ));
}
