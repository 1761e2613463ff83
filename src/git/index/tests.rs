use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use proptest::prelude::*;

use super::lock::IndexLock;
use super::*;
use crate::TreeEntryKind::{Executable, File, Symlink};
use crate::testing::TestRepository;
use crate::{CommitSpec, Head, ObjectId, TreeChange, TreeEntryKind, program};
use tine_attr::{Attr, FileKind, Ino, Timestamp};

/// A fork-like worktree: registered by us, checked out by git, all files an hour old.
struct Fork {
    test: TestRepository,
    repository: Repository,
    worktree: Worktree,
    dir: PathBuf,
}

const NAMES: [&str; 11] = [
    "a.c",
    "a/x",
    "b b",
    "dir/deep/er/one",
    "dir/deep/er/two",
    "dir/deep.x",
    "dir/deep0",
    "dir/f",
    "other/1",
    "other/22",
    "z",
];

impl Fork {
    fn new(options: &[&str]) -> Fork {
        let test = TestRepository::with_options(options);
        test.git(&["config", "user.name", "N"]);
        test.git(&["config", "user.email", "e@x"]);
        for name in NAMES {
            test.write(name, format!("content of {name}\n"));
        }
        test.write("empty", "");
        test.write("run", "#!/bin/sh\n");
        fs::set_permissions(test.dir().join("run"), fs::Permissions::from_mode(0o755)).unwrap();
        symlink("dir/f", test.dir().join("link")).unwrap();
        fs::write(test.dir().join(os(b"n\xffn")), "not UTF-8").unwrap();
        test.write(&format!("{}/{}", "l".repeat(250), "n".repeat(250)), "long");
        test.commit("base");
        let repository = test.open();
        let dir = test.dir().parent().unwrap().join("fork");
        let head = Head::Branch {
            name: "refs/heads/fork".into(),
            commit_id: test.id_of("HEAD"),
        };
        test.git(&["branch", "fork"]);
        let worktree = Worktree::register(&repository, "fork", &dir, &head, "x").unwrap();
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join(".git"), worktree.dot_git()).unwrap();
        let fork = Fork {
            test,
            repository,
            worktree,
            dir,
        };
        fork.git(&["reset", "-q", "--hard"]);
        fork.age(&["."]);
        fork.git(&["update-index", "-q", "--refresh"]);
        fork
    }

    fn git(&self, arguments: &[&str]) -> String {
        let dir = self.dir.to_str().unwrap();
        self.test.git(&[&["-C", dir], arguments].concat())
    }

    /// Sets modification times of files and of all beneath directories an hour back, so that no
    /// entry is racy.
    fn age(&self, names: &[&str]) {
        for name in names {
            let status = Command::new("find")
                .arg(self.dir.join(name))
                .args([
                    "-mindepth",
                    "0",
                    "-exec",
                    "touch",
                    "-h",
                    "-d",
                    "1 hour ago",
                    "{}",
                    "+",
                ])
                .status()
                .unwrap();
            assert!(status.success());
        }
    }

    /// The files whose stat is not what the index says: those that git would have to read.
    fn stat_dirty(&self) -> String {
        self.git(&["diff-files", "--name-only"])
    }

    fn head_tree(&self) -> ObjectId {
        self.git(&["rev-parse", "HEAD^{tree}"]).parse().unwrap()
    }

    /// Commits `edits` of the checkout as tine does: tree, commit, HEAD, index. Stats come from the
    /// checkout.
    fn commit(&self, edits: &[(&str, Option<TreeEntryKind>)]) -> ObjectId {
        let mut tree_changes = Vec::new();
        let mut index_changes = Vec::new();
        for (name, kind) in edits {
            let path = RepoPath::parse(name).unwrap();
            let new = kind.map(|kind| {
                let content = match kind {
                    TreeEntryKind::Symlink => fs::read_link(self.dir.join(name))
                        .unwrap()
                        .into_os_string()
                        .into_encoded_bytes(),
                    _ => fs::read(self.dir.join(name)).unwrap(),
                };
                let id = self
                    .repository
                    .write_blob(&mut content.as_slice(), content.len() as u64)
                    .unwrap();
                (kind, id)
            });
            tree_changes.push(TreeChange {
                path: path.clone(),
                new,
            });
            index_changes.push(IndexChange {
                path,
                new: new.map(|(kind, id)| (kind, id, lstat(&self.dir.join(name)))),
            });
        }
        let head = self
            .repository
            .head_of(self.worktree.git_dir())
            .unwrap()
            .commit_id();
        let tree_id = self
            .repository
            .edit_tree(self.head_tree(), &tree_changes)
            .unwrap();
        let spec = CommitSpec {
            tree_id,
            parent_ids: head.into_iter().collect(),
            message: "edit".into(),
            author: None,
            committer: None,
        };
        let commit_id = self.repository.write_commit(&spec).unwrap();
        self.repository
            .advance_head(&self.worktree, head, commit_id, "commit: edit")
            .unwrap();
        update_index(
            &self.repository,
            &self.worktree,
            tree_id,
            &index_changes,
            None,
        )
        .unwrap();
        tree_id
    }

    /// Everything that git can say of an index that ought to be that of `tree_id`.
    fn check_index(&self, tree_id: ObjectId) {
        check_index_file(
            &self.test,
            &self.repository,
            &self.worktree.index_path(),
            tree_id,
        );
        assert_eq!(self.git(&["write-tree"]), tree_id.to_string());
        assert!(!self.worktree.git_dir().join("index.lock").exists());
    }
}

fn os(bytes: &[u8]) -> &std::ffi::OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(bytes)
}

/// Checks hash, order, tree cache and entries against git and the git library.
pub(super) fn check_index_file(
    test: &TestRepository,
    repository: &Repository,
    at: &Path,
    tree_id: ObjectId,
) {
    on_deep_stack(at, || {
        let index =
            gix::index::File::at(at, repository.hash_kind(), false, Default::default()).unwrap();
        index.verify_integrity().unwrap();
        index.verify_entries().unwrap();
        let objects = repository.local().objects;
        index.verify_extensions(true, &objects).unwrap();
        assert_eq!(index.tree().unwrap().id, tree_id);
        assert_eq!(index.version(), gix::index::Version::V4);
        Ok(())
    })
    .unwrap();
    let with_index = |arguments: &[&str], input: &[u8]| {
        let mut command = program::command(test.dir());
        command.env("GIT_INDEX_FILE", at).args(arguments);
        program::run(&mut command, input).unwrap()
    };
    let staged = with_index(&["ls-files", "-z", "--stage"], b"");
    let in_tree = test.git_bytes(&["ls-tree", "-r", "-z", &tree_id.to_string()], b"");
    // `100644 blob <id>\t<path>` there, `100644 <id> 0\t<path>` here.
    let as_staged: Vec<_> = String::from_utf8_lossy(&in_tree)
        .split_terminator('\0')
        .map(|line| {
            let (head, path) = line.split_once('\t').unwrap();
            let words: Vec<_> = head.split(' ').collect();
            format!("{} {} 0\t{path}", words[0], words[2])
        })
        .collect();
    let staged_lossy = String::from_utf8_lossy(&staged);
    let staged_lines: Vec<_> = staged_lossy.split_terminator('\0').collect();
    assert_eq!(staged_lines, as_staged);
    // With the entries alone, without the tree cache, git comes to the same tree.
    let other = at.with_extension("other");
    let mut command = program::command(test.dir());
    command
        .env("GIT_INDEX_FILE", &other)
        .args(["update-index", "-z", "--index-info"]);
    program::run(&mut command, &staged).unwrap();
    let mut command = program::command(test.dir());
    command.env("GIT_INDEX_FILE", &other).arg("write-tree");
    let written = program::run(&mut command, b"").unwrap();
    assert_eq!(written.trim_ascii_end(), tree_id.to_string().as_bytes());
    fs::remove_file(other).unwrap();
}

fn lstat(path: &Path) -> Attr {
    let meta = fs::symlink_metadata(path).unwrap();
    let time = |secs: i64, nanos: i64| Timestamp {
        secs,
        nanos: nanos as u32,
    };
    Attr {
        ino: Ino(meta.ino()),
        kind: FileKind::from_mode(meta.mode()).unwrap(),
        perm: (meta.mode() & 0o7777) as u16,
        nlink: meta.nlink() as u32,
        uid: meta.uid(),
        gid: meta.gid(),
        rdev: 0,
        size: meta.size(),
        blocks: meta.blocks(),
        atime: time(meta.atime(), meta.atime_nsec()),
        mtime: time(meta.mtime(), meta.mtime_nsec()),
        ctime: time(meta.ctime(), meta.ctime_nsec()),
    }
}

#[test]
fn a_commit_leaves_the_index_as_git_would() {
    for format in ["sha1", "sha256"] {
        let fork = Fork::new(&["--object-format", format]);
        assert_eq!(fork.stat_dirty(), "");
        fs::write(fork.dir.join("dir/deep/er/one"), "changed").unwrap();
        fs::write(fork.dir.join("dir/new"), "new").unwrap();
        fs::remove_dir_all(fork.dir.join("other")).unwrap();
        fs::write(fork.dir.join("other"), "a file now").unwrap();
        fs::remove_file(fork.dir.join("z")).unwrap();
        fs::create_dir_all(fork.dir.join("z/y")).unwrap();
        symlink("..", fork.dir.join("z/y/up")).unwrap();
        fs::set_permissions(fork.dir.join("b b"), fs::Permissions::from_mode(0o755)).unwrap();
        fork.age(&["dir/deep/er/one", "dir/new", "other", "z/y/up"]);
        let tree_id = fork.commit(&[
            ("dir/deep/er/one", Some(File)),
            ("dir/new", Some(File)),
            ("other/1", None),
            ("other/22", None),
            ("other", Some(File)),
            ("z", None),
            ("z/y/up", Some(Symlink)),
            ("b b", Some(Executable)),
        ]);
        assert_eq!(fork.stat_dirty(), "", "git has no reason to read a file");
        fork.check_index(tree_id);
        assert_eq!(fork.git(&["status", "--porcelain"]), "");
        fork.test.git(&["fsck", "--strict"]);
    }
}

#[test]
fn a_second_commit_reads_only_the_trees_it_changes() {
    let fork = Fork::new(&[]);
    fs::write(fork.dir.join("dir/f"), "1").unwrap();
    fork.age(&["dir/f"]);
    fork.commit(&[("dir/f", Some(File))]);
    // Gone from the object database, so that reading it would fail.
    let untouched = fork.git(&["rev-parse", "HEAD:dir/deep"]);
    let hidden = loose_or_unpacked(&fork, &untouched);
    fs::write(fork.dir.join("dir/f"), "2").unwrap();
    fork.age(&["dir/f"]);
    let tree_id = fork.commit(&[("dir/f", Some(File))]);
    hidden.restore();
    fork.check_index(tree_id);
    assert_eq!(fork.stat_dirty(), "");
}

/// A loose object moved out of the way.
struct Hidden {
    from: PathBuf,
    to: PathBuf,
}

impl Hidden {
    fn restore(self) {
        fs::rename(self.to, self.from).unwrap();
    }
}

fn loose_or_unpacked(fork: &Fork, id: &str) -> Hidden {
    let from = fork
        .test
        .dir()
        .join(".git/objects")
        .join(&id[..2])
        .join(&id[2..]);
    let to = fork.test.dir().join(".git/hidden");
    fs::rename(&from, &to).unwrap();
    Hidden { from, to }
}

#[test]
fn entries_of_untouched_files_keep_their_flags_and_others_lose_their_stat() {
    let fork = Fork::new(&[]);
    fork.git(&["update-index", "--assume-unchanged", "dir/f"]);
    fork.git(&["update-index", "--skip-worktree", "a/x", "b b"]);
    // Staged, but not what is committed: the file that is there has to be read again.
    fs::write(fork.dir.join("other/1"), "staged").unwrap();
    fork.git(&["add", "other/1"]);
    fork.git(&["rm", "-q", "--cached", "other/22"]);
    fs::write(fork.dir.join("intended"), "to be added").unwrap();
    fork.git(&["add", "-N", "intended"]);
    fs::write(fork.dir.join("b b"), "changed").unwrap();
    fork.age(&["b b", "other/1"]);
    let tree_id = fork.commit(&[("b b", Some(File))]);
    fork.check_index(tree_id);
    let flags = fork.git(&["ls-files", "-v"]);
    assert!(flags.contains("h dir/f"), "{flags}");
    assert!(flags.contains("S a/x"), "{flags}");
    assert!(flags.contains("H b b"), "{flags}");
    assert_eq!(fork.stat_dirty(), "other/1\nother/22");
    assert_eq!(
        fork.git(&["status", "--porcelain"]),
        " M other/1\n?? intended"
    );
}

#[test]
fn conflicts_are_resolved_by_the_commit() {
    let fork = Fork::new(&[]);
    fork.git(&["checkout", "-q", "-b", "theirs"]);
    fs::write(fork.dir.join("dir/f"), "theirs").unwrap();
    fork.git(&["commit", "-qam", "theirs"]);
    fork.git(&["checkout", "-q", "fork"]);
    fs::write(fork.dir.join("dir/f"), "ours").unwrap();
    fork.git(&["commit", "-qam", "ours"]);
    let merge = ["-C", fork.dir.to_str().unwrap(), "merge", "theirs"];
    assert!(!fork.test.try_git(&merge, b"").status.success());
    let path = RepoPath::parse("dir/f").unwrap();
    let tracked = tracked_paths(&fork.repository, &fork.worktree, &[path]).unwrap();
    assert_eq!(tracked, [Tracking::Tracked]);
    fs::write(fork.dir.join("dir/f"), "both").unwrap();
    fork.age(&["."]);
    let tree_id = fork.commit(&[("dir/f", Some(File))]);
    fork.check_index(tree_id);
    assert_eq!(fork.git(&["ls-files", "--unmerged"]), "");
}

#[test]
fn a_file_changed_in_the_second_of_the_old_index_is_read_again() {
    let fork = Fork::new(&[]);
    // Same size, and a time that is not older than the index: only the content tells.
    fs::write(fork.dir.join("z"), "content of y\n").unwrap();
    fork.git(&["add", "z"]);
    let later = SystemTime::now() + Duration::from_secs(3600);
    let z = fs::File::options()
        .append(true)
        .open(fork.dir.join("z"))
        .unwrap();
    z.set_modified(later).unwrap();
    fork.git(&["update-index", "--refresh"]);
    let tree_id: ObjectId = fork.git(&["write-tree"]).parse().unwrap();
    fs::write(fork.dir.join("z"), "content of x\n").unwrap();
    z.set_modified(later).unwrap();
    update_index(&fork.repository, &fork.worktree, tree_id, &[], None).unwrap();
    // A younger index would hide it, had its entry kept the size.
    let index = fs::File::options()
        .append(true)
        .open(fork.worktree.index_path())
        .unwrap();
    index.set_modified(later + Duration::from_secs(5)).unwrap();
    assert_eq!(fork.git(&["diff", "--name-only"]), "z");
}

#[test]
fn indexes_in_all_forms_of_git_are_read() {
    for config in [
        "index.version=2",
        "index.version=4",
        "core.splitIndex=true",
        "core.untrackedCache=true",
        "index.skipHash=true",
        "index.threads=2",
        "core.fsmonitor=false",
    ] {
        let fork = Fork::new(&[]);
        fork.git(&[
            "-c",
            config,
            "update-index",
            "--force-write-index",
            "-q",
            "--refresh",
        ]);
        fork.git(&["-c", config, "status"]);
        fs::write(fork.dir.join("z"), config).unwrap();
        fork.age(&["z"]);
        let tree_id = fork.commit(&[("z", Some(File))]);
        fork.check_index(tree_id);
        assert_eq!(fork.stat_dirty(), "", "{config}");
    }
}

#[test]
fn a_sparse_or_missing_index_is_filled_up_from_the_tree() {
    let fork = Fork::new(&[]);
    fork.git(&["sparse-checkout", "set", "--cone", "--sparse-index", "dir"]);
    assert!(fork.git(&["ls-files", "--sparse"]).contains("other/\n"));
    fork.git(&["config", "--worktree", "core.sparseCheckout", "false"]);
    fork.git(&["checkout", "-q", "--ignore-skip-worktree-bits", "."]);
    fs::write(fork.dir.join("dir/f"), "changed").unwrap();
    fork.age(&["dir/f"]);
    let tree_id = fork.commit(&[("dir/f", Some(File))]);
    fork.check_index(tree_id);
    fs::remove_file(fork.worktree.index_path()).unwrap();
    let path = RepoPath::parse("dir/f").unwrap();
    let tracked = tracked_paths(&fork.repository, &fork.worktree, &[path]).unwrap();
    assert_eq!(tracked, [Tracking::Untracked]);
    update_index(&fork.repository, &fork.worktree, tree_id, &[], None).unwrap();
    fork.check_index(tree_id);
}

#[test]
fn an_index_locked_by_git_is_left_alone() {
    let fork = Fork::new(&[]);
    let lock = fork.worktree.git_dir().join("index.lock");
    fs::write(&lock, "").unwrap();
    let before = fs::read(fork.worktree.index_path()).unwrap();
    let error = update_index(
        &fork.repository,
        &fork.worktree,
        fork.head_tree(),
        &[],
        None,
    )
    .unwrap_err();
    let GitError::IndexLocked { lock: held } = &error else {
        panic!("{error}");
    };
    assert_eq!(held, &lock);
    assert!(lock.exists());
    assert_eq!(fs::read(fork.worktree.index_path()).unwrap(), before);

    // Who only reads it need not wait, and leaves nothing.
    let entries = |dir: &Path| fs::read_dir(dir).unwrap().count();
    let count = entries(fork.worktree.git_dir());
    for name in ["index.tine-read", "index.tine-read.lock"] {
        let left = fork.worktree.git_dir().join(name);
        fs::write(left, "left by a process that died").unwrap();
    }
    let IndexTree::Whole(tree_id) = fork.repository.index_tree(&fork.worktree).unwrap() else {
        panic!("nothing is in conflict");
    };
    assert_eq!(tree_id, fork.head_tree());
    assert_eq!(entries(fork.worktree.git_dir()), count);
    assert_eq!(fs::read(fork.worktree.index_path()).unwrap(), before);

    fs::remove_file(&lock).unwrap();
    update_index(
        &fork.repository,
        &fork.worktree,
        fork.head_tree(),
        &[],
        None,
    )
    .unwrap();
}

#[test]
fn a_lock_that_a_killed_process_left_is_given_back_and_one_of_gits_is_not() {
    let fork = Fork::new(&[]);
    let lock_path = fork.worktree.git_dir().join("index.lock");
    // As a kill would: nothing of it is cleaned up.
    std::mem::forget(IndexLock::acquire(&fork.worktree).unwrap());
    assert!(lock_path.exists());
    update_index(
        &fork.repository,
        &fork.worktree,
        fork.head_tree(),
        &[],
        None,
    )
    .unwrap_err();
    release_stale_lock(&fork.repository, &fork.worktree).unwrap();
    assert!(!lock_path.exists());
    update_index(
        &fork.repository,
        &fork.worktree,
        fork.head_tree(),
        &[],
        None,
    )
    .unwrap();

    let updated = update_index(
        &fork.repository,
        &fork.worktree,
        fork.head_tree(),
        &[],
        None,
    );
    std::mem::forget(updated.unwrap());
    assert!(lock_path.exists());
    // With it, those that are taken under it.
    let head_locks = [
        fork.worktree.git_dir().join("HEAD.lock"),
        fork.repository.common_dir().join("refs/heads/fork.lock"),
    ];
    let head = fs::read_to_string(fork.worktree.git_dir().join("HEAD")).unwrap();
    assert_eq!(head, "ref: refs/heads/fork\n");
    for lock in &head_locks {
        fs::write(lock, "").unwrap();
    }
    release_stale_lock(&fork.repository, &fork.worktree).unwrap();
    assert!(head_locks.iter().all(|lock| !lock.exists()));
    update_index(
        &fork.repository,
        &fork.worktree,
        fork.head_tree(),
        &[],
        None,
    )
    .unwrap();
    fork.check_index(fork.head_tree());

    // A move that failed puts the old index back, and is killed before it has given the lock back.
    let updated = update_index(
        &fork.repository,
        &fork.worktree,
        fork.head_tree(),
        &[],
        None,
    )
    .unwrap();
    updated.restore_old().unwrap();
    std::mem::forget(updated);
    assert!(lock_path.exists());
    release_stale_lock(&fork.repository, &fork.worktree).unwrap();
    update_index(
        &fork.repository,
        &fork.worktree,
        fork.head_tree(),
        &[],
        None,
    )
    .unwrap();

    std::mem::forget(IndexLock::acquire(&fork.worktree).unwrap());
    fs::remove_file(&lock_path).unwrap();
    fs::write(&lock_path, "").unwrap();
    fs::write(&head_locks[0], "").unwrap();
    release_stale_lock(&fork.repository, &fork.worktree).unwrap();
    assert!(lock_path.exists(), "another has it by now");
    assert!(head_locks[0].exists(), "and this one, too");
}

#[test]
fn tracked_paths_are_those_in_the_index() {
    let fork = Fork::new(&[]);
    fs::write(fork.dir.join("new"), "x").unwrap();
    fork.git(&["add", "-N", "new"]);
    let paths: Vec<_> = [
        "a.c", "a", "a/x", "nothing", "zz", "new", "link", "dir/deep",
    ]
    .iter()
    .map(|name| RepoPath::parse(name).unwrap())
    .collect();
    let tracked = tracked_paths(&fork.repository, &fork.worktree, &paths).unwrap();
    let is_tracked: Vec<_> = tracked.iter().map(|&is| is == Tracking::Tracked).collect();
    assert_eq!(
        is_tracked,
        [true, false, true, false, false, true, true, false]
    );
    let odd = RepoPath::parse(b"n\xffn").unwrap();
    assert_eq!(
        tracked_paths(&fork.repository, &fork.worktree, &[odd]).unwrap(),
        [Tracking::Tracked]
    );
}

#[test]
fn what_a_sparse_checkout_leaves_out_is_skipped_and_stays_so() {
    for kind in ["--no-sparse-index", "--sparse-index"] {
        let fork = Fork::new(&[]);
        fork.git(&["sparse-checkout", "set", "--cone", kind, "dir"]);
        let paths: Vec<_> = ["other/1", "dir/f"]
            .iter()
            .map(|name| RepoPath::parse(name).unwrap())
            .collect();
        let tracked = tracked_paths(&fork.repository, &fork.worktree, &paths).unwrap();
        assert_eq!(tracked, [Tracking::Skipped, Tracking::Tracked], "{kind}");
        fs::write(fork.dir.join("dir/f"), "changed").unwrap();
        fork.age(&["dir/f"]);
        let tree_id = fork.commit(&[("dir/f", Some(File))]);
        fork.check_index(tree_id);
        assert_eq!(fork.git(&["status", "--porcelain"]), "", "{kind}");
    }
}

#[test]
fn emptying_the_tree_empties_the_index() {
    let fork = Fork::new(&[]);
    let empty = fork.repository.empty_tree_id();
    fork.test
        .git_with_input(&["hash-object", "-w", "-t", "tree", "--stdin"], b"");
    update_index(&fork.repository, &fork.worktree, empty, &[], None).unwrap();
    assert_eq!(fork.git(&["ls-files"]), "");
    assert_eq!(fork.git(&["write-tree"]), empty.to_string());
}

/// What a random edit leaves at a path.
#[derive(Debug, Clone, Copy)]
enum Edit {
    Write(TreeEntryKind, u8),
    Remove,
}

/// Paths that are in each other's way: what is a file now may have to be a directory next.
const CROWDED: [&str; 10] = [
    "a",
    "a/x",
    "a/x/deep",
    "a.c",
    "a0",
    "dir",
    "dir/f",
    "dir/deep/er",
    "dir/deep/er/one",
    "other/1",
];

fn any_edits() -> impl Strategy<Value = Vec<Vec<(usize, Edit)>>> {
    let kind = prop_oneof![Just(File), Just(Executable), Just(Symlink)];
    let edit = prop_oneof![
        3 => (kind, 0u8..4).prop_map(|(kind, content)| Edit::Write(kind, content)),
        2 => Just(Edit::Remove),
    ];
    let commit = proptest::collection::vec((0..CROWDED.len(), edit), 0..6);
    proptest::collection::vec(commit, 1..5)
}

impl Fork {
    /// Makes room for and writes one path of the checkout, as a file system would have it.
    fn apply(&self, name: &str, edit: Edit) {
        let path = self.dir.join(name);
        remove_any(&path);
        let Edit::Write(kind, content) = edit else {
            return;
        };
        let mut parent = PathBuf::new();
        for component in Path::new(name).parent().unwrap().components() {
            parent.push(component);
            let meta = fs::symlink_metadata(self.dir.join(&parent));
            if meta.is_ok_and(|meta| !meta.is_dir()) {
                remove_any(&self.dir.join(&parent));
            }
        }
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        match kind {
            Symlink => symlink(format!("target{content}"), &path).unwrap(),
            _ => fs::write(&path, format!("content {content}\n")).unwrap(),
        }
        if kind == Executable {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        self.age(&[name]);
    }

    /// The files of the checkout with what they are and hold.
    fn files(&self) -> BTreeMap<String, (TreeEntryKind, Vec<u8>)> {
        let listed = self.git(&["ls-files", "--cached", "--others", "-z"]);
        let mut files = BTreeMap::new();
        for name in listed.split_terminator('\0') {
            let path = self.dir.join(name);
            let Ok(meta) = fs::symlink_metadata(&path) else {
                continue;
            };
            let kind = match (meta.is_symlink(), meta.is_file(), meta.mode() & 0o100) {
                (true, ..) => Symlink,
                (_, true, 0) => File,
                (_, true, _) => Executable,
                _ => continue,
            };
            let content = match kind {
                Symlink => fs::read_link(&path)
                    .unwrap()
                    .into_os_string()
                    .into_encoded_bytes(),
                _ => fs::read(&path).unwrap(),
            };
            files.insert(name.to_owned(), (kind, content));
        }
        files
    }
}

fn remove_any(path: &Path) {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(path).unwrap(),
        Ok(_) => fs::remove_file(path).unwrap(),
        Err(_) => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..Default::default() })]

    #[test]
    fn any_commits_leave_the_index_as_git_would(commits in any_edits()) {
        let fork = Fork::new(&[]);
        fs::remove_file(fork.dir.join(os(b"n\xffn"))).unwrap();
        fork.git(&["commit", "-qam", "names that are UTF-8 only"]);
        for edits in commits {
            let before = fork.files();
            for (index, edit) in edits {
                fork.apply(CROWDED[index], edit);
            }
            let after = fork.files();
            let mut changes = Vec::new();
            for name in before.keys().filter(|name| !after.contains_key(*name)) {
                changes.push((name.as_str(), None));
            }
            for (name, new) in &after {
                if before.get(name) != Some(new) {
                    changes.push((name.as_str(), Some(new.0)));
                }
            }
            // A file that was written anew with the same content has a new stat that nobody
            // recorded.
            fork.git(&["update-index", "-q", "--refresh", "--ignore-missing"]);
            let tree_id = fork.commit(&changes);
            fork.check_index(tree_id);
            prop_assert_eq!(fork.stat_dirty(), "");
            prop_assert_eq!(fork.git(&["status", "--porcelain"]), "");
        }
        fork.test.git(&["fsck", "--strict"]);
    }
}
