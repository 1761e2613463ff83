//! Taking over from own git directories that git programs made and changed.

mod crashes;
mod hostile;
mod large;
mod pruned;
mod staged;
mod times;
mod usual;

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::testing::TestRepository;
use crate::{ObjectId, Repository, program};

use super::{RejectedRef, TakenOver};

/// A repository with a fork that has an own git directory.
struct Fork<'m> {
    main: &'m TestRepository,
    name: String,
    git_dir: PathBuf,
    dir: PathBuf,
    clock_secs: Cell<u64>,
    last: std::cell::RefCell<Option<TakenOver>>,
}

fn main_repository() -> TestRepository {
    with_commits(TestRepository::new())
}

fn with_commits(main: TestRepository) -> TestRepository {
    main.write("a", "one\n");
    main.write("dir/b", "two\n");
    main.write("dir/deep/c", "three\n");
    main.commit("first");
    main.write("a", "one, changed\n");
    main.commit("second");
    main
}

impl<'m> Fork<'m> {
    fn new(main: &'m TestRepository, name: &str) -> Fork<'m> {
        let git_dir = main.dir().join(".git/tine/forks").join(name).join("git");
        let dir = main.dir().join("..").canonicalize().unwrap().join(name);
        fs::create_dir_all(&git_dir).unwrap();
        fs::create_dir_all(&dir).unwrap();
        let fork = Fork {
            main,
            name: name.to_owned(),
            git_dir,
            dir,
            clock_secs: Cell::new(1_700_001_000),
            last: Default::default(),
        };
        let repository = main.open();
        let format = format!("--object-format={}", repository.hash_kind());
        let branch = format!("tine/{name}");
        fork.git(&["init", "-q", "-b", &branch, &format]);
        fs::create_dir_all(fork.git_dir.join("tine")).unwrap();
        let objects = main.dir().join(".git/objects").canonicalize().unwrap();
        std::os::unix::fs::symlink(objects, fork.git_dir.join("tine/objects")).unwrap();
        let alternates = fork.git_dir.join("objects/info/alternates");
        fs::write(alternates, "../tine/objects\n").unwrap();
        let shallow = main.dir().join(".git/shallow");
        if shallow.exists() {
            fs::copy(shallow, fork.git_dir.join("shallow")).unwrap();
        }
        let base = main.id_of("HEAD").to_string();
        main.git(&["update-ref", &format!("refs/tine/{name}/base"), &base]);
        main.git(&["update-ref", &format!("refs/heads/{branch}"), &base]);
        fork.git(&["update-ref", "-m", "fork: made", "HEAD", &base]);
        fork.git(&["reset", "-q", "--hard"]);
        fork
    }

    fn command(&self) -> Command {
        let mut command = program::command(&self.dir);
        command
            .env("GIT_DIR", &self.git_dir)
            .env("GIT_WORK_TREE", &self.dir)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_SYSTEM", "/dev/null")
            .env("HOME", &self.dir)
            .env("GIT_EDITOR", "true")
            .env("GIT_AUTHOR_NAME", "F Orker")
            .env("GIT_AUTHOR_EMAIL", "fork@example.com")
            .env("GIT_COMMITTER_NAME", "F Orker")
            .env("GIT_COMMITTER_EMAIL", "fork@example.com");
        self.clock_secs.set(self.clock_secs.get() + 1);
        for date in ["GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"] {
            command.env(date, format!("{} +0000", self.clock_secs.get()));
        }
        command
    }

    fn git(&self, arguments: &[&str]) -> String {
        self.git_with_input(arguments, b"")
    }

    fn git_with_input(&self, arguments: &[&str], input: &[u8]) -> String {
        let output = program::run(self.command().args(arguments), input).expect("git succeeds");
        String::from_utf8_lossy(&output).trim_end().to_owned()
    }

    fn try_git(&self, arguments: &[&str]) -> program::Finished {
        program::finish(self.command().args(arguments), b"").expect("git runs")
    }

    fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.dir.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn commit(&self, message: &str) -> ObjectId {
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "--allow-empty", "-m", message]);
        self.id_of("HEAD")
    }

    fn id_of(&self, revision: &str) -> ObjectId {
        self.git(&["rev-parse", "--verify", revision])
            .parse()
            .unwrap()
    }

    fn branch(&self) -> String {
        format!("tine/{}", self.name)
    }

    fn try_take(&self, repository: &Repository) -> Result<TakenOver, crate::GitError> {
        let last = self.last.borrow().clone();
        let taken = repository.take_over(
            &self.git_dir,
            &self.name,
            Some(&self.branch()),
            last.as_ref(),
            None,
        )?;
        *self.last.borrow_mut() = Some(taken.clone());
        Ok(taken)
    }

    fn take(&self) -> TakenOver {
        self.try_take(&self.main.open()).unwrap()
    }

    fn take_all(&self) -> TakenOver {
        let taken = self.take();
        assert_eq!(taken.rejected, []);
        self.assert_same();
        taken
    }

    fn kept(&self, label: &str) -> Option<ObjectId> {
        self.main.open().kept_as(&self.name, label).unwrap()
    }

    /// The main repository has exactly the fork's refs, and both are sound.
    fn assert_same(&self) {
        let format = "--format=%(objectname) %(refname)";
        let own = self.git(&["for-each-ref", format, "refs/"]);
        let prefix = format!("refs/tine/{}/git/", self.name);
        let kept = self.main.git(&["for-each-ref", format, &prefix]);
        let kept: Vec<String> = kept
            .lines()
            .map(|line| line.replace(&prefix, "refs/"))
            .filter(|line| {
                let is_own = |part: &str| line.contains(&format!(" refs/{part}"));
                !is_own("HEAD") && !is_own("logs") && !is_own("logged/") && !is_own("pseudo/")
            })
            .collect();
        let mut own: Vec<&str> = own.lines().collect();
        own.sort();
        let mut kept: Vec<&str> = kept.iter().map(String::as_str).collect();
        kept.sort();
        assert_eq!(kept, own);
        let head = self.try_git(&["rev-parse", "--verify", "-q", "HEAD"]);
        let head = String::from_utf8(head.stdout).unwrap();
        let kept_head = self
            .kept("git/HEAD")
            .map(|id| id.to_string())
            .unwrap_or_default();
        assert_eq!(kept_head, head.trim_end());
        self.assert_sound();
    }

    fn assert_sound(&self) {
        let finished = self.main.try_git(&["fsck", "--full", "--strict"], b"");
        assert!(finished.status.success(), "{finished:?}");
        let finished = self.try_git(&["fsck", "--full", "--strict"]);
        assert!(finished.status.success(), "{finished:?}");
    }

    /// Prunes the main repository, and checks that both still are whole.
    fn prune_main(&self) {
        self.main
            .git(&["reflog", "expire", "--expire=now", "--all"]);
        self.main.git(&["gc", "-q", "--prune=now"]);
        self.assert_sound();
        // The reflogs' commits are there, with all that they need.
        self.git(&[
            "rev-list",
            "--objects",
            "--all",
            "--reflog",
            "--indexed-objects",
        ]);
    }

    fn loose_objects(&self) -> usize {
        let counted = self.git(&["count-objects"]);
        counted.split(' ').next().unwrap().parse().unwrap()
    }

    fn loose_ids(&self) -> Vec<String> {
        let mut ids = Vec::new();
        for dir in fs::read_dir(self.git_dir.join("objects"))
            .unwrap()
            .flatten()
        {
            let fan_out = dir.file_name().into_string().unwrap();
            if fan_out.len() == 2 {
                let names = fs::read_dir(dir.path()).unwrap().flatten();
                let names = names.map(|name| name.file_name().into_string().unwrap());
                ids.extend(names.map(|name| format!("{fan_out}{name}")));
            }
        }
        ids
    }

    fn rejected(&self) -> Vec<RejectedRef> {
        self.last.borrow().as_ref().unwrap().rejected.clone()
    }
}

fn packs(git_dir: &Path) -> usize {
    let entries = fs::read_dir(git_dir.join("objects/pack"))
        .unwrap()
        .flatten();
    entries
        .filter(|entry| entry.path().extension().is_some_and(|ext| ext == "pack"))
        .count()
}
