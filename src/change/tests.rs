//! Changesets and commits over real repositories, held against what git says of a real checkout
//! with the same content. Here is what both have in common.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;

use super::changeset::{Blobs, changeset, write_tree};
use super::commit::{commit, settle};
use super::recovery::{self, RecoverEntry, RecoverKind};
use super::*;
use tine_attr::{Attr, FileKind, Ino};
use tine_git::testing::TestRepository;
use tine_git::{GitError, Identity, ObjectId, Repository, TreeEntryKind, program};
use tine_path::{EntryName, RepoPath};
use tine_store::{Fork, ForkName, ForkOptions, GitKind, MountSettings, Store, UnmountPolicy};
use tine_workspace::{Caller, FsError, RenameMode, SetAttr};

mod changesets;
mod commits;
mod reverts;

const ME: Caller = Caller::new(1000, 1000);

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

/// `a.txt`, `run.sh` (executable), `link`, `dir/b.txt`, `dir/sub/c.txt`, `ignored.log` (tracked
/// though ignored) and `.gitignore` (`*.log`, `/build/`).
fn sample() -> TestRepository {
    let repository = TestRepository::new();
    repository.git(&["config", "user.name", "C O Nfig"]);
    repository.git(&["config", "user.email", "config@example.com"]);
    repository.write("a.txt", "alpha\n");
    repository.write("run.sh", "#!/bin/sh\n");
    repository.write("dir/b.txt", "beta\n");
    repository.write("dir/sub/c.txt", "gamma\n");
    repository.write("ignored.log", "log\n");
    fs::set_permissions(
        repository.dir().join("run.sh"),
        PermissionsExt::from_mode(0o755),
    )
    .unwrap();
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
            parent: None,
            state: None,
            branch: None,
            detached: false,
            git_kind: GitKind::default(),
            untrusted: false,
            follow: false,
            mount_dir: repository.dir().join("../forks/demo"),
            mounted: false,
            settings: MountSettings::default(),
            on_unmount: UnmountPolicy::Keep,
            snapshot_every: None,
            uid: ME.uid,
            gid: ME.gid,
            umask: 0o022,
            carry: Default::default(),
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
        self.fork
            .workspace
            .write_path(ME, &path(at), content.as_bytes())
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
                    fs::set_permissions(&to, PermissionsExt::from_mode(u32::from(attr.perm)))
                        .unwrap();
                }
                _ => {}
            }
        }
    }
}

/// The fork's worktree as git has it, with a real directory for the checkout and an index of its
/// own.
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

    /// `git add -A`, and what the index then differs in from `tree`: old and new mode and id, and
    /// the path.
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
                format!(
                    "{} {} {} {} {path}",
                    fields[0], fields[1], fields[2], fields[3]
                )
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
