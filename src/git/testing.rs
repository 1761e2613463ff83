//! Repositories for tests, made by git without the user's configuration.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{ObjectId, Repository, program};

/// A repository in a temporary directory.
///
/// There is room for others beside it (`dir().join("../other")`).
pub struct TestRepository {
    _place: tempfile::TempDir,
    dir: PathBuf,
    /// Time of the last commit; each commit is a second later.
    clock_secs: Cell<u64>,
}

impl Default for TestRepository {
    fn default() -> TestRepository {
        TestRepository::new()
    }
}

impl TestRepository {
    /// Creates a repository with the branch `main` and no commit.
    pub fn new() -> TestRepository {
        TestRepository::with_options(&[])
    }

    /// Creates a repository with `options` for `git init`.
    pub fn with_options(options: &[&str]) -> TestRepository {
        let place = tempfile::tempdir().expect("a temporary directory");
        let dir = place
            .path()
            .canonicalize()
            .expect("it was just made")
            .join("repository");
        std::fs::create_dir(&dir).expect("a directory in it");
        let repository = TestRepository {
            _place: place,
            dir,
            clock_secs: Cell::new(1_700_000_000),
        };
        repository.git(&[&["init", "-q", "-b", "main"], options].concat());
        repository
    }

    /// Returns the root of the checkout.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Opens the repository.
    pub fn open(&self) -> Repository {
        Repository::discover(&self.dir).expect("a good repository")
    }

    fn command(&self) -> Command {
        let mut command = program::command(&self.dir);
        command
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_SYSTEM", "/dev/null")
            .env("HOME", &self.dir)
            .env("GIT_AUTHOR_NAME", "A U Thor")
            .env("GIT_AUTHOR_EMAIL", "author@example.com")
            .env("GIT_COMMITTER_NAME", "C O Mitter")
            .env("GIT_COMMITTER_EMAIL", "committer@example.com");
        for date in ["GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"] {
            command.env(date, format!("{} +0000", self.clock_secs.get()));
        }
        command
    }

    /// Runs git in the checkout, and returns its output without trailing newlines.
    pub fn git(&self, arguments: &[&str]) -> String {
        self.git_with_input(arguments, b"")
    }

    /// Runs git with `input`, and returns its output without trailing newlines.
    pub fn git_with_input(&self, arguments: &[&str], input: &[u8]) -> String {
        let output = self.git_bytes(arguments, input);
        String::from_utf8_lossy(&output)
            .trim_end_matches('\n')
            .to_owned()
    }

    /// Runs git with `input`, and returns its raw output.
    pub fn git_bytes(&self, arguments: &[&str], input: &[u8]) -> Vec<u8> {
        program::run(self.command().args(arguments), input).expect("git succeeds")
    }

    /// Runs git, which may fail, and returns its status and output.
    pub fn try_git(&self, arguments: &[&str], input: &[u8]) -> program::Finished {
        program::finish(self.command().args(arguments), input).expect("git runs")
    }

    /// Writes a file in the checkout.
    pub fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.dir.join(path);
        std::fs::create_dir_all(path.parent().expect("a path beneath the checkout"))
            .expect("directories");
        std::fs::write(path, content).expect("a file");
    }

    /// Commits all changes in the checkout, possibly none.
    pub fn commit(&self, message: &str) -> ObjectId {
        self.clock_secs.set(self.clock_secs.get() + 1);
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "--allow-empty", "-m", message]);
        self.id_of("HEAD")
    }

    /// Resolves a revision to an object id.
    pub fn id_of(&self, revision: &str) -> ObjectId {
        let hex = self.git(&["rev-parse", revision]);
        hex.parse().expect("an object id")
    }

    /// Writes any bytes as an object, even an invalid one.
    pub fn write_object(&self, kind: &str, raw: &[u8]) -> ObjectId {
        let hex = self.git_with_input(
            &["hash-object", "-w", "--literally", "-t", kind, "--stdin"],
            raw,
        );
        hex.parse().expect("an object id")
    }
}
