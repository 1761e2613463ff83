use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use super::super::tests::check_index_file;
use super::super::{IndexChange, KnownState, update_index};
use super::*;
use crate::testing::TestRepository;
use crate::{BaseCache, Head, InoHasher, Repository, TreeChange, Worktree};
use tine_attr::{Attr, FileKind, Ino};

const STAT: BaseStat = BaseStat {
    uid: 1234,
    gid: 5678,
    time: Timestamp {
        secs: 1_600_000_000,
        nanos: 123_456_789,
    },
};

fn open_base(test: &TestRepository, repository: &Repository, tree_id: ObjectId) -> Base {
    let spool_dir = test.dir().join("../spool");
    let cache = BaseCache::new(&spool_dir, 1 << 20).unwrap();
    Base::open(repository, tree_id, &cache, InoHasher::new([7; 16])).unwrap()
}

/// What `git ls-files --debug` tells of an index: for each path (quoted) its lines of stat.
fn debug_stats(test: &TestRepository, index: &Path) -> BTreeMap<String, Vec<String>> {
    let mut command = crate::program::command(test.dir());
    command
        .env("GIT_INDEX_FILE", index)
        .args(["-c", "core.quotePath=true", "ls-files", "--debug"]);
    let output = crate::program::run(&mut command, b"").unwrap();
    let mut stats: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut path = String::new();
    for line in String::from_utf8(output).unwrap().lines() {
        match line.strip_prefix("  ") {
            Some(stat) => stats.entry(path.clone()).or_default().push(stat.to_owned()),
            None => path = line.to_owned(),
        }
    }
    stats
}

fn write_sample(test: &TestRepository) {
    for name in [
        "a.c",
        "a/x",
        "b b",
        "deep/er/and/er/one",
        "deep.x",
        "deep0",
        "z",
    ] {
        test.write(name, format!("content of {name}\n"));
    }
    test.write("empty", "");
    test.write("run", "#!/bin/sh\n");
    fs::set_permissions(test.dir().join("run"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("a/x", test.dir().join("link")).unwrap();
    test.write(".gitattributes", "*.crlf text eol=crlf\n");
    test.write("dos.crlf", "one\ntwo\n");
    test.commit("base");
}

#[test]
fn the_index_of_a_base_is_that_of_its_checkout() {
    for format in ["sha1", "sha256"] {
        let test = TestRepository::with_options(&["--object-format", format]);
        write_sample(&test);
        let repository = test.open();
        let tree_id = test.id_of("HEAD^{tree}");
        let base = open_base(&test, &repository, tree_id);
        let index = test.dir().join(".git/base-index");
        write_base_index(&base, &STAT, "tine:base:test", &index).unwrap();
        check_index_file(&test, &repository, &index, tree_id);
        let checkout = test.dir().parent().unwrap().join("checkout");
        test.git(&[
            "worktree",
            "add",
            "-q",
            "--detach",
            checkout.to_str().unwrap(),
        ]);
        let ours = debug_stats(&test, &index);
        let theirs = debug_stats(&test, &test.dir().join(".git/worktrees/checkout/index"));
        assert_eq!(
            ours.keys().collect::<Vec<_>>(),
            theirs.keys().collect::<Vec<_>>()
        );
        for (path, stat) in &ours {
            let path_in_base = RepoPath::parse(path).unwrap();
            let size = theirs[path].last().unwrap();
            let ino = base.hasher().ino(&path_in_base).0 as u32;
            assert_eq!(
                stat,
                &[
                    "ctime: 1600000000:123456789".to_owned(),
                    "mtime: 1600000000:123456789".to_owned(),
                    format!("dev: 0\tino: {ino}"),
                    "uid: 1234\tgid: 5678".to_owned(),
                    size.clone(),
                ],
                "{path}"
            );
        }
        assert!(
            ours["dos.crlf"].last().unwrap().starts_with("size: 10\t"),
            "{ours:?}"
        );
        let names = fs::read_dir(test.dir().join(".git")).unwrap();
        let leftover = names
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .find(|name| name.starts_with("base-index."));
        assert_eq!(leftover, None);
    }
}

#[test]
fn the_first_status_reads_no_file() {
    let test = TestRepository::new();
    write_sample(&test);
    let repository = test.open();
    let base = open_base(&test, &repository, test.id_of("HEAD^{tree}"));
    let dir = test.dir().parent().unwrap().join("fork");
    let head = Head::Detached {
        commit_id: test.id_of("HEAD"),
    };
    let worktree = Worktree::register(&repository, "fork", &dir, &head, "x").unwrap();
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join(".git"), worktree.dot_git()).unwrap();
    let dir_name = dir.to_str().unwrap();
    test.git(&["-C", dir_name, "reset", "-q", "--hard"]);
    // Other bytes of the same size, and the time that the index holds: git must not notice. It has
    // no inode numbers and owners of ours on a disk, so it is told to compare sizes and
    // modification times only.
    test.git(&["config", "core.checkStat", "minimal"]);
    test.git(&["config", "core.trustctime", "false"]);
    let time = UNIX_EPOCH + Duration::from_secs(1_600_000_000);
    let files = [
        ".gitattributes",
        "a.c",
        "a/x",
        "b b",
        "deep.x",
        "deep/er/and/er/one",
        "deep0",
        "dos.crlf",
        "empty",
        "run",
        "z",
    ];
    for name in files {
        let path = dir.join(name);
        let len = fs::metadata(&path).unwrap().len();
        if !name.starts_with('.') {
            fs::write(&path, "#".repeat(len as usize)).unwrap();
        }
        let file = fs::File::options().append(true).open(&path).unwrap();
        file.set_modified(time).unwrap();
    }
    let touched = std::process::Command::new("touch")
        .args(["-h", "-d", "@1600000000"])
        .arg(dir.join("link"))
        .status()
        .unwrap();
    assert!(touched.success());
    write_base_index(&base, &STAT, "tine:base:test", &worktree.index_path()).unwrap();
    assert_eq!(test.git(&["-C", dir_name, "status", "--porcelain"]), "");
    assert_eq!(test.git(&["-C", dir_name, "diff-files", "--name-only"]), "");
    fs::write(dir.join("z"), "longer than it was before\n").unwrap();
    assert_eq!(test.git(&["-C", dir_name, "status", "--porcelain"]), " M z");
}

#[test]
fn long_and_odd_paths_and_submodules_are_encoded_as_git_reads_them() {
    let test = TestRepository::new();
    write_sample(&test);
    let repository = test.open();
    let blob_id = repository.write_blob(&mut &b"x"[..], 1).unwrap();
    let set = |path: &[u8], kind, id| TreeChange {
        path: RepoPath::parse(path).unwrap(),
        new: Some((kind, id)),
    };
    let long = "directory/".repeat(500);
    let tree_id = repository
        .edit_tree(
            test.id_of("HEAD^{tree}"),
            &[
                set(b"n\xff\xfe/\x01", TreeEntryKind::File, blob_id),
                set(format!("{long}a").as_bytes(), TreeEntryKind::File, blob_id),
                set(
                    format!("{long}b").as_bytes(),
                    TreeEntryKind::Executable,
                    blob_id,
                ),
                set(b"sub", TreeEntryKind::Submodule, test.id_of("HEAD")),
                set(b"sub-", TreeEntryKind::File, blob_id),
            ],
        )
        .unwrap();
    let base = open_base(&test, &repository, tree_id);
    let index = test.dir().join(".git/base-index");
    write_base_index(&base, &STAT, "tine:base:test", &index).unwrap();
    check_index_file(&test, &repository, &index, tree_id);
    assert_eq!(
        debug_stats(&test, &index)["sub"].first().unwrap(),
        "ctime: 0:0"
    );
}

#[test]
fn an_empty_base_has_an_empty_index() {
    let test = TestRepository::new();
    let repository = test.open();
    let base = open_base(&test, &repository, repository.empty_tree_id());
    let index = test.dir().join(".git/index");
    write_base_index(&base, &STAT, "tine:base:test", &index).unwrap();
    assert_eq!(test.git(&["ls-files"]), "");
    assert_eq!(test.git(&["status", "--porcelain"]), "");
    assert_eq!(
        test.git(&["write-tree"]),
        repository.empty_tree_id().to_string()
    );
}

#[test]
fn a_tree_that_no_checkout_may_have_gets_no_index() {
    let test = TestRepository::new();
    write_sample(&test);
    let blob_id = test.id_of("HEAD:z");
    let raw = [b"100644 .git\0".as_slice(), blob_id.as_slice()].concat();
    let bad_id = test.write_object("tree", &raw);
    let raw = [b"40000 d\0".as_slice(), bad_id.as_slice()].concat();
    let tree_id = test.write_object("tree", &raw);
    let repository = test.open();
    let base = open_base(&test, &repository, tree_id);
    let index: PathBuf = test.dir().join(".git/base-index");
    let error = write_base_index(&base, &STAT, "tine:base:test", &index).unwrap_err();
    assert!(matches!(error, GitError::HostileTree { .. }), "{error}");
    assert!(!index.exists());
}

#[test]
fn a_partial_clone_fetches_what_is_missing_in_one_go() {
    let test = TestRepository::new();
    write_sample(&test);
    test.git(&["config", "uploadpack.allowFilter", "true"]);
    test.git(&["config", "uploadpack.allowAnySHA1InWant", "true"]);
    let partial = test.dir().parent().unwrap().join("partial");
    let url = format!("file://{}", test.dir().display());
    let partial_name = partial.to_str().unwrap();
    test.git(&[
        "clone",
        "-q",
        "--filter=blob:none",
        "--no-checkout",
        &url,
        partial_name,
    ]);
    let packs = || {
        fs::read_dir(partial.join(".git/objects/pack"))
            .unwrap()
            .filter(|entry| {
                entry
                    .as_ref()
                    .unwrap()
                    .path()
                    .extension()
                    .is_some_and(|extension| extension == "pack")
            })
            .count()
    };
    let repository = Repository::discover(&partial).unwrap();
    let tree_id = test.id_of("HEAD^{tree}");
    let base = open_base(&test, &repository, tree_id);
    let after_opening = packs();
    let index = test.dir().join(".git/base-index");
    write_base_index(&base, &STAT, "tine:base:test", &index).unwrap();
    assert!(packs() <= after_opening + 1, "several fetches");
    check_index_file(&test, &repository, &index, tree_id);
}

#[test]
fn directories_as_deep_as_git_takes_them_are_no_trouble() {
    let test = TestRepository::new();
    let repository = test.open();
    let blob_id = repository.write_blob(&mut &b"x"[..], 1).unwrap();
    for (depth, is_fine) in [(2000, true), (2100, false)] {
        let change = TreeChange {
            path: RepoPath::parse(format!("{}f", "d/".repeat(depth))).unwrap(),
            new: Some((TreeEntryKind::File, blob_id)),
        };
        let tree_id = repository
            .edit_tree(repository.empty_tree_id(), &[change])
            .unwrap();
        let base = open_base(&test, &repository, tree_id);
        // Not the whole way: the attributes of a path are looked for in each directory above it.
        let walked = on_deep_stack(test.dir(), || {
            let mut files = Vec::new();
            let tree = collect(&base, &RepoPath::root(), Vec::new(), tree_id, 0, &mut files)?;
            Encoder::new(repository.hash_kind(), 0).finish(&tree, None, None)
        });
        assert_eq!(walked.is_ok(), is_fine, "{depth}");
        let head = Head::Unborn {
            name: "refs/heads/deep".into(),
        };
        let dir = test.dir().join("../deep");
        let worktree = Worktree::register(&repository, "deep", &dir, &head, "x").unwrap();
        let updated = update_index(&repository, &worktree, tree_id, &[], None);
        assert_eq!(updated.is_ok(), is_fine, "{depth}");
        // The index stays locked for as long as somebody might put the old one back.
        drop(updated);
        if is_fine {
            update_index(&repository, &worktree, tree_id, &[], None).unwrap();
            check_index_file(&test, &repository, &worktree.index_path(), tree_id);
        }
    }
}

/// An entry that git trusts without looking stands in lower case in `git ls-files -f`.
#[test]
fn git_trusts_the_entries_of_a_fork_that_did_not_change() {
    let test = TestRepository::new();
    for number in 0..200 {
        test.write(&format!("file-{number:03}"), "text\n");
    }
    test.commit("many");
    let repository = test.open();
    let base = open_base(&test, &repository, test.id_of("HEAD^{tree}"));
    let index = test.dir().join(".git/index");
    write_base_index(&base, &STAT, "tine:base:test", &index).unwrap();
    let hook = "printf 'tine:next\\0file-007\\0file-190\\0' && true";
    test.git(&["config", "core.fsmonitor", hook]);
    test.git(&["config", "core.fsmonitorHookVersion", "2"]);
    let untrusted = || {
        let listed = test.git(&["ls-files", "-f"]);
        let lines = listed.lines().filter(|line| !line.starts_with("h "));
        lines.map(|line| line[2..].to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(untrusted(), ["file-007", "file-190"]);

    // The same after a commit, where files are as they were in the beginning.
    let head = Head::Detached {
        commit_id: test.id_of("HEAD"),
    };
    let place = test.dir().join("../fork");
    let worktree = Worktree::register(&repository, "fork", &place, &head, "x").unwrap();
    fs::copy(&index, worktree.index_path()).unwrap();
    let written = Timestamp::from_secs(1_700_000_000);
    let attr = Attr {
        ino: Ino(5),
        kind: FileKind::Regular,
        perm: 0o644,
        nlink: 1,
        uid: STAT.uid,
        gid: STAT.gid,
        rdev: 0,
        size: 3,
        blocks: 8,
        atime: written,
        mtime: written,
        ctime: written,
    };
    let blob_id = repository.write_blob(&mut &b"new"[..], 3).unwrap();
    let path = RepoPath::parse("file-100").unwrap();
    let new = Some((TreeEntryKind::File, blob_id));
    let tree_id = repository
        .edit_tree(
            base.tree_id(),
            &[TreeChange {
                path: path.clone(),
                new,
            }],
        )
        .unwrap();
    let change = IndexChange {
        path,
        new: Some((TreeEntryKind::File, blob_id, attr)),
    };
    let state = KnownState {
        token: "tine:base:test",
        changed: STAT.time,
        is_known: &|_| false,
    };
    drop(update_index(&repository, &worktree, tree_id, &[change], Some(&state)).unwrap());
    fs::copy(worktree.index_path(), &index).unwrap();
    assert_eq!(untrusted(), ["file-007", "file-100", "file-190"]);
}
