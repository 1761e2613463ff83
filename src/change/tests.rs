//! Changesets and commits over real repositories, held against what git says of a real checkout with the same content.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;

use super::changeset::{Blobs, changeset, write_tree};
use super::commit::{commit, keep_discarded, settle};
use super::*;
use crate::attr::{Attr, FileKind, Ino};
use crate::git::testing::TestRepository;
use crate::git::{GitError, Identity, ObjectId, Repository, TreeEntryKind, program};
use crate::path::{EntryName, RepoPath};
use crate::workspace::{
    Caller, Fork, ForkName, ForkOptions, FsError, RenameMode, SetAttr, Store, UnmountPolicy,
};

const ME: Caller = Caller { uid: 1000, gid: 1000 };

/// A fork called `demo` of some repository.
struct Fixture {
    repository: TestRepository,
    store: Store,
    fork: Arc<Fork>,
}

fn demo() -> ForkName {
    ForkName::parse("demo").unwrap()
}

fn path(text: &str) -> RepoPath {
    RepoPath::parse(text).unwrap()
}

/// `a.txt`, `run.sh` (executable), `link`, `dir/b.txt`, `dir/sub/c.txt`, `ignored.log` (tracked though ignored) and
/// `.gitignore` (`*.log`, `/build/`).
fn sample() -> TestRepository {
    let repository = TestRepository::new();
    repository.git(&["config", "user.name", "C O Nfig"]);
    repository.git(&["config", "user.email", "config@example.com"]);
    repository.write("a.txt", "alpha\n");
    repository.write("run.sh", "#!/bin/sh\n");
    repository.write("dir/b.txt", "beta\n");
    repository.write("dir/sub/c.txt", "gamma\n");
    repository.write("ignored.log", "log\n");
    fs::set_permissions(repository.dir().join("run.sh"), PermissionsExt::from_mode(0o755)).unwrap();
    symlink("a.txt", repository.dir().join("link")).unwrap();
    repository.git(&["add", "-A"]);
    repository.write(".gitignore", "*.log\n/build/\n");
    repository.commit("first");
    repository
}

impl Fixture {
    fn new(repository: TestRepository) -> Fixture {
        let store = Store::open(&repository.open()).unwrap();
        let options = ForkOptions {
            name: demo(),
            git_dir: store.repository().common_dir().to_owned(),
            from: None,
            branch: None,
            mount_dir: repository.dir().join("../forks/demo"),
            allow_other: false,
            on_unmount: UnmountPolicy::Keep,
            uid: ME.uid,
            gid: ME.gid,
            umask: 0o022,
        };
        store.create_fork(&options).unwrap();
        let fork = store.open_fork(&demo()).unwrap();
        Fixture {
            repository,
            store,
            fork,
        }
    }

    fn sample() -> Fixture {
        Fixture::new(sample())
    }

    fn git(&self) -> &Repository {
        self.store.repository()
    }

    fn write(&self, at: &str, content: &str) {
        self.try_write(at, content).unwrap();
    }

    fn try_write(&self, at: &str, content: &str) -> Result<(), FsError> {
        self.fork.workspace.write_path(ME, &path(at), content.as_bytes())
    }

    fn remove(&self, at: &str) {
        self.fork.workspace.remove_path(ME, &path(at)).unwrap();
    }

    /// Finds the directory above `at`, as the kernel would.
    fn parent(&self, at: &str) -> Result<(Ino, EntryName), FsError> {
        let (parent, name) = path(at).split_last().unwrap();
        let mut ino = Ino::ROOT;
        for name in parent.components() {
            ino = self.fork.workspace.lookup(ino, name.as_bytes())?.ino;
        }
        Ok((ino, name))
    }

    fn mkdir(&self, at: &str) -> Result<(), FsError> {
        let (parent, name) = self.parent(at)?;
        self.fork
            .workspace
            .mkdir(ME, parent, name.as_bytes(), 0o755)
            .map(drop)
    }

    fn symlink(&self, at: &str, target: &str) -> Result<(), FsError> {
        let (parent, name) = self.parent(at)?;
        self.fork
            .workspace
            .symlink(ME, parent, name.as_bytes(), target.as_bytes())
            .map(drop)
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), FsError> {
        let (old_parent, old_name) = self.parent(from)?;
        let (parent, name) = self.parent(to)?;
        let workspace = &self.fork.workspace;
        workspace.lookup(old_parent, old_name.as_bytes())?;
        let _ = workspace.lookup(parent, name.as_bytes());
        workspace.rename(
            ME,
            old_parent,
            old_name.as_bytes(),
            parent,
            name.as_bytes(),
            RenameMode::Replace,
        )
    }

    fn chmod(&self, at: &str, perm: u16) -> Result<(), FsError> {
        let (parent, name) = self.parent(at)?;
        let attr = self.fork.workspace.lookup(parent, name.as_bytes())?;
        if attr.kind == FileKind::Symlink {
            return Ok(());
        }
        let set = SetAttr {
            perm: Some(perm),
            ..SetAttr::default()
        };
        self.fork.workspace.setattr(ME, attr.ino, &set).map(drop)
    }

    fn mknod(&self, at: &str, mode: u32) {
        let (parent, name) = self.parent(at).unwrap();
        self.fork
            .workspace
            .mknod(ME, parent, name.as_bytes(), mode, 0)
            .unwrap();
    }

    fn changes(&self) -> Changeset {
        changeset(self.git(), &self.fork, Blobs::Hash).unwrap()
    }

    /// The changes as `git status --short` would have their letters.
    fn status(&self) -> Vec<String> {
        let letter = |change: &Change| match change.kind() {
            ChangeKind::Added => 'A',
            ChangeKind::Modified => 'M',
            ChangeKind::Deleted => 'D',
            ChangeKind::TypeChanged => 'T',
        };
        let line = |change: &Change| format!("{} {}", letter(change), change.path);
        self.changes().changes.iter().map(line).collect()
    }

    fn commit(&self, message: &str) -> Result<CommitOutcome, ChangeError> {
        let options = CommitOptions {
            message: message.to_owned(),
            ..CommitOptions::default()
        };
        commit(self.git(), &demo(), &self.fork, &options)
    }

    fn head(&self) -> Option<ObjectId> {
        self.git()
            .head_of(self.fork.worktree.git_dir())
            .unwrap()
            .commit_id()
    }

    fn content_bytes(&self) -> u64 {
        self.fork.workspace.stats().content_bytes
    }

    fn refs(&self) -> BTreeMap<String, ObjectId> {
        self.git().kept("demo").unwrap().into_iter().collect()
    }

    /// A checkout on the disk with the fork's content, to ask git about.
    fn checkout(&self) -> Checkout {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("checkout");
        fs::create_dir(&dir).unwrap();
        self.write_out(&RepoPath::root(), &dir);
        fs::remove_file(dir.join(".git")).unwrap();
        let index = place.path().join("index");
        fs::copy(self.fork.worktree.index_path(), &index).unwrap();
        Checkout {
            git_dir: self.fork.worktree.git_dir().to_owned(),
            dir,
            index,
            _place: place,
        }
    }

    fn write_out(&self, at: &RepoPath, to: &Path) {
        let workspace = &self.fork.workspace;
        for (name, kind, _) in workspace.list_path(at).unwrap() {
            let (from, to) = (at.join(&name), to.join(name.as_os_str()));
            let attr: Attr = workspace.resolve(&from).unwrap();
            match kind {
                FileKind::Directory => {
                    fs::create_dir(&to).unwrap();
                    self.write_out(&from, &to);
                }
                FileKind::Symlink => {
                    let target = workspace
                        .readlink(attr.ino)
                        .or_else(|_| workspace.read_path(&from));
                    symlink(std::ffi::OsStr::from_bytes(&target.unwrap()), &to).unwrap();
                }
                FileKind::Regular => {
                    fs::write(&to, workspace.read_path(&from).unwrap()).unwrap();
                    fs::set_permissions(&to, PermissionsExt::from_mode(u32::from(attr.perm))).unwrap();
                }
                _ => {}
            }
        }
    }
}

/// The fork's worktree as git has it, with a real directory for the checkout and an index of its own.
struct Checkout {
    git_dir: PathBuf,
    dir: PathBuf,
    index: PathBuf,
    _place: tempfile::TempDir,
}

impl Checkout {
    fn git(&self, arguments: &[&str]) -> String {
        let mut command = program::command(&self.dir);
        command
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_SYSTEM", "/dev/null")
            .env("GIT_INDEX_FILE", &self.index)
            .env("GIT_DIR", &self.git_dir)
            .env("GIT_WORK_TREE", &self.dir)
            .args(["-c", "advice.addEmbeddedRepo=false"])
            .args(arguments);
        String::from_utf8(program::run(&mut command, b"").unwrap()).unwrap()
    }

    /// `git add -A`, and what the index then differs in from `tree`: old and new mode and id, and the path.
    fn staged(&self, tree: &ObjectId) -> Vec<String> {
        self.git(&["add", "-A"]);
        let tree = tree.to_string();
        let raw = self.git(&[
            "diff-index",
            "--cached",
            "--raw",
            "--no-renames",
            "--no-abbrev",
            &tree,
        ]);
        raw.lines()
            .map(|line| {
                let (head, path) = line.split_once('\t').unwrap();
                let fields: Vec<&str> = head.trim_start_matches(':').split(' ').collect();
                format!("{} {} {} {} {path}", fields[0], fields[1], fields[2], fields[3])
            })
            .collect()
    }
}

/// The changeset in the form of [`Checkout::staged`].
fn raw(changeset: &Changeset) -> Vec<String> {
    let text = |side: &Option<Side>| match side {
        Some(side) => (format!("{:06o}", side.kind.mode()), side.id.to_string()),
        None => ("000000".to_owned(), "0".repeat(40)),
    };
    changeset
        .changes
        .iter()
        .map(|change| {
            let ((old_mode, old), (new_mode, new)) = (text(&change.old), text(&change.new));
            format!("{old_mode} {new_mode} {old} {new} {}", change.path)
        })
        .collect()
}

#[test]
fn a_fresh_fork_has_no_changes() {
    let fixture = Fixture::sample();
    assert!(fixture.status().is_empty());
    assert!(matches!(fixture.commit("m"), Err(ChangeError::NothingToCommit)));
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
        fixture
            .repository
            .git(&["ls-tree", "-r", "--name-only", &outcome.commit_id.to_string()]),
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
    let listed = fixture
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
    assert_eq!(fixture.status(), ["M .gitignore", "A dir/.gitignore", "A x.log"]);
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
    let listed = fixture
        .repository
        .git(&["ls-tree", "-r", &outcome.tree_id.to_string(), "sub", "three"]);
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
    assert_eq!(changes.changes[0].new.as_ref().unwrap().kind, TreeEntryKind::File);
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
    assert_eq!(outcome.tree_id.to_string(), expected.git(&["write-tree"]).trim());
    let stored = fixture.repository.git_bytes(&["show", "tine/demo:a.txt"], b"");
    assert_eq!(stored, b"one\ntwo\n");
    // HEAD has them now, and the fork's base never will.
    fixture.write("a.txt", "three\r\n");
    check();
    fixture.remove(".gitattributes");
    check();
}

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
        committer: None,
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
        let listed = fixture.repository.git(&[&git_dir, "ls-files", "--debug", at]);
        let expected = format!("mtime: {}:{}", attr.mtime.secs, attr.mtime.nanos);
        assert!(listed.contains(&expected), "{at}: {expected} in {listed}");
        let low = attr.ino.0 as u32;
        assert!(listed.contains(&format!("ino: {low}")), "{at}: {low} in {listed}");
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
    assert_eq!(Attr { blocks: 0, ..after }, Attr { blocks: 0, ..before });
    assert_eq!(workspace.read_path(&path("junk.log")).unwrap(), b"ignored\n");
}

#[test]
fn commits_are_refused_with_nothing_changed() {
    let fixture = Fixture::sample();
    fixture.write("a.txt", "other\n");
    let head = fixture.head();
    assert!(matches!(fixture.commit(" \n"), Err(ChangeError::EmptyMessage)));
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
    assert_eq!(settled.adopted, 1);
    assert!(fixture.content_bytes() + 100_000 < held);
    assert_eq!(fixture.refs()["head"], fixture.head().unwrap());
    assert_eq!(fixture.status(), ["M half"]);
    let again = settle(fixture.git(), &demo(), &fixture.fork, fixture.head()).unwrap();
    assert_eq!(again.adopted, 0);
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

#[test]
fn status_follows_head_wherever_it_goes() {
    let fixture = Fixture::sample();
    fixture.write("a.txt", "two\n");
    fixture.write("new", "x\n");
    let first = fixture.head().unwrap();
    let second = fixture.commit("second").unwrap().commit_id;
    let git_dir = format!("--git-dir={}", fixture.fork.worktree.git_dir().display());
    fixture
        .repository
        .git(&[&git_dir, "update-ref", "--no-deref", "HEAD", &first.to_string()]);
    assert_eq!(fixture.status(), ["M a.txt", "A new"], "a soft reset");
    fixture
        .repository
        .git(&[&git_dir, "update-ref", "--no-deref", "HEAD", &second.to_string()]);
    assert!(fixture.status().is_empty());
    // HEAD goes where the view never was.
    fixture.repository.write("elsewhere", "y\n");
    fs::remove_file(fixture.repository.dir().join("dir/b.txt")).unwrap();
    let third = fixture.repository.commit("third");
    fixture
        .repository
        .git(&[&git_dir, "update-ref", "--no-deref", "HEAD", &third.to_string()]);
    assert_eq!(
        fixture.status(),
        ["M a.txt", "A dir/b.txt", "D elsewhere", "A new"]
    );
}

#[test]
fn a_discarded_state_is_kept_as_a_commit() {
    let fixture = Fixture::sample();
    assert_eq!(
        keep_discarded(fixture.git(), &demo(), &fixture.fork, None).unwrap(),
        None
    );
    fixture.write("a.txt", "unfinished\n");
    fixture.write("new", "x\n");
    let head = fixture.head();
    let (reference, commit_id) = keep_discarded(fixture.git(), &demo(), &fixture.fork, None)
        .unwrap()
        .unwrap();
    assert_eq!(reference, "refs/tine/demo/discarded-1");
    assert_eq!(fixture.repository.id_of(&reference), commit_id);
    assert_eq!(fixture.head(), head, "HEAD stays");
    let revision = |suffix: &str| format!("{reference}{suffix}");
    assert_eq!(
        fixture.repository.git(&["show", &revision(":a.txt")]),
        "unfinished"
    );
    assert_eq!(Some(fixture.repository.id_of(&revision("^"))), head);
    let message = fixture.repository.git(&["show", "-s", "--format=%B", &reference]);
    assert!(message.starts_with("tine: discarded state of demo"), "{message}");
    assert!(
        message.contains(&format!("tine new <name> --from {reference}")),
        "{message}"
    );

    let (second, _) = keep_discarded(fixture.git(), &demo(), &fixture.fork, None)
        .unwrap()
        .unwrap();
    assert_eq!(second, "refs/tine/demo/discarded-2");
}

/// Invariant 12: discarding leaves something from which the work can be brought back.
#[test]
fn a_discarded_state_is_kept_even_where_nobody_has_a_name() {
    let repository = TestRepository::new();
    repository.git(&["config", "user.useConfigOnly", "true"]);
    let fixture = Fixture::new(repository);
    fixture.write("a", "unfinished\n");
    let (reference, _) = keep_discarded(fixture.git(), &demo(), &fixture.fork, None)
        .unwrap()
        .unwrap();
    let shown = fixture.repository.git(&["show", &format!("{reference}:a")]);
    assert_eq!(shown, "unfinished");
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
                workspace.write_path(ME, &path("came"), b"and goes").unwrap();
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
        assert_eq!(content.trim_start_matches(&content[..1]), "", "{commit} is torn");
    }
    assert!(fixture.status().is_empty());
    assert_eq!(
        fixture.fork.workspace.read_path(&path("busy")).unwrap(),
        "e".repeat(50_000).as_bytes()
    );
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

    /// Whatever was done, the changeset is what `git add -A` stages in a checkout with the same content, and the commit
    /// has the tree that git would have written.
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
