//! Repositories made by the git program, each in a temporary directory of its own with a home of
//! its own.
//!
//! ```text
//! <root>/home         HOME of every program that is run
//! <root>/repo         the repository, or <root>/repo.git where it is bare
//! <root>/repo.forks   where forks are mounted by default
//! ```

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Once;

use tempfile::TempDir;

use super::fuse::transport_name;
use super::{OutputExt, force_unmount_beneath, run_with_timeout};

/// A repository with everything around it. Dropping it detaches whatever is still mounted beneath
/// and removes it all.
pub struct TestRepo {
    root: Option<TempDir>,
    root_dir: PathBuf,
    dir: PathBuf,
}

impl TestRepo {
    /// A repository on the branch `main` with one commit of [`TestRepo::write_base_files`].
    pub fn new() -> TestRepo {
        let repo = TestRepo::unborn();
        repo.write_base_files();
        repo.commit_all("base");
        repo
    }

    /// A repository on the branch `main` without a commit.
    pub fn unborn() -> TestRepo {
        TestRepo::init(&[])
    }

    /// As [`TestRepo::new`], with ids of 256 bits.
    pub fn sha256() -> TestRepo {
        let repo = TestRepo::init(&["--object-format=sha256"]);
        repo.write_base_files();
        repo.commit_all("base");
        repo
    }

    /// As [`TestRepo::new`], with every object in one pack, and packed refs.
    pub fn packed() -> TestRepo {
        let repo = TestRepo::new();
        repo.git(&["repack", "-adq"]);
        repo.git(&["pack-refs", "--all"]);
        repo.git(&["prune-packed", "-q"]);
        repo
    }

    /// A bare clone of [`TestRepo::new`].
    pub fn bare() -> TestRepo {
        TestRepo::new().cloned("repo.git", &["--bare"])
    }

    /// A clone of [`TestRepo::new`] whose objects are the origin's (`objects/info/alternates`).
    pub fn alternates() -> TestRepo {
        TestRepo::new().cloned("shared/repo", &["--shared"])
    }

    /// A clone of [`TestRepo::new`] with a second commit, of which only the second is there.
    pub fn shallow() -> TestRepo {
        let repo = TestRepo::new();
        repo.commit_files(&[("second.txt", b"second\n")], "second");
        repo.cloned("shallow/repo", &["--depth=1"])
    }

    /// A linked worktree of [`TestRepo::new`] on the branch `linked`; `dir` is the worktree.
    pub fn linked_worktree() -> TestRepo {
        let mut repo = TestRepo::new();
        let linked = repo.root().join("linked");
        repo.git(&["worktree", "add", "-q", "-b", "linked", path_text(&linked)]);
        repo.dir = linked;
        repo
    }

    /// `git init` with `options`; no commit yet.
    pub fn init(options: &[&str]) -> TestRepo {
        TestRepo::init_at("repo", options, |_| {})
    }

    /// As [`TestRepo::new`], at `<root>/disk/repo`. `mount` gets the root and puts a disk at
    /// `<root>/disk` first.
    pub fn on_disk(mount: impl FnOnce(&Path)) -> TestRepo {
        let repo = TestRepo::init_at("disk/repo", &[], |root| {
            fs::create_dir(root.join("disk")).expect("the directory is new");
            mount(root);
        });
        repo.write_base_files();
        repo.commit_all("base");
        repo
    }

    fn init_at(place: &str, options: &[&str], prepare: impl FnOnce(&Path)) -> TestRepo {
        isolate_this_process();
        // Beneath target/, because a temporary directory may be on a file system without user
        // xattrs.
        let root = tempfile::Builder::new()
            .prefix("t-")
            .tempdir_in(env!("CARGO_TARGET_TMPDIR"))
            .expect("a temporary directory can be made");
        let root_dir = root
            .path()
            .canonicalize()
            .expect("the directory was just made");
        fs::create_dir(root_dir.join("home")).expect("the directory is new");
        let repo = TestRepo {
            root: Some(root),
            dir: root_dir.join(place),
            root_dir,
        };
        // With the guard in place, which detaches what is mounted.
        prepare(&repo.root_dir);
        fs::create_dir(&repo.dir).expect("the directory is new");
        let mut args = vec!["init", "-q", "--initial-branch=main"];
        args.extend_from_slice(options);
        repo.git(&args);
        repo.choose_transport();
        repo
    }

    fn choose_transport(&self) {
        if let Some(name) = transport_name() {
            self.git(&["config", "tine.transport", &name]);
        }
    }

    /// Clones this repository to `<root>/<place>` and goes on with the clone; the origin stays
    /// beside it.
    pub fn cloned(mut self, place: &str, options: &[&str]) -> TestRepo {
        let to = self.root_dir.join(place);
        fs::create_dir_all(to.parent().expect("a place has a parent"))
            .expect("the directory can be made");
        let url = format!("file://{}", self.dir.display());
        // --shared asks for a path, the others would ignore --depth with one.
        let from = if options.contains(&"--shared") {
            path_text(&self.dir)
        } else {
            &url
        };
        let mut args = vec!["clone", "-q"];
        args.extend_from_slice(options);
        args.extend_from_slice(&[from, path_text(&to)]);
        self.git_in(&self.root_dir, &args);
        self.dir = to;
        self.choose_transport();
        self
    }

    /// Where everything of this test lives.
    pub fn root(&self) -> &Path {
        &self.root_dir
    }

    /// The checkout, or the repository itself where it is bare.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn home(&self) -> PathBuf {
        self.root_dir.join("home")
    }

    /// `git rev-parse --git-common-dir`, absolute.
    pub fn common_dir(&self) -> PathBuf {
        PathBuf::from(self.git(&["rev-parse", "--path-format=absolute", "--git-common-dir"]))
    }

    /// The private git directory of [`TestRepo::dir`], absolute.
    pub fn git_dir(&self) -> PathBuf {
        PathBuf::from(self.git(&["rev-parse", "--path-format=absolute", "--git-dir"]))
    }

    /// `program` to be run in `dir` with this repository's home and none of the caller's git
    /// configuration.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>, dir: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(dir);
        self.isolate(&mut command);
        command
    }

    /// cargo, to be run in `dir`: the toolchain is the user's, the home is this repository's.
    pub fn cargo(&self, dir: &Path) -> Command {
        let mut command = self.command(env!("CARGO"), dir);
        for name in ["CARGO_HOME", "RUSTUP_HOME"] {
            if let Some(dir) = std::env::var_os(name)
                .map(PathBuf::from)
                .or_else(|| toolchain_home(name))
            {
                command.env(name, dir);
            }
        }
        command
            .env_remove("CARGO_TARGET_DIR")
            .env_remove("RUSTFLAGS");
        command
    }

    /// Gives `command` this repository's home and an identity, and takes the caller's git away from
    /// it.
    pub fn isolate(&self, command: &mut Command) {
        for (name, _) in std::env::vars_os() {
            let name_text = name.to_string_lossy();
            if ["GIT_", "TINE_", "XDG_"]
                .iter()
                .any(|p| name_text.starts_with(p))
            {
                command.env_remove(name);
            }
        }
        command
            .env("HOME", self.home())
            .env("LC_ALL", "C")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_SYSTEM", "/dev/null")
            .env("GIT_TERMINAL_PROMPT", "0")
            // Nothing takes the repository that the tests are built in for the one that is meant.
            .env("GIT_CEILING_DIRECTORIES", &self.root_dir)
            .env("GIT_EDITOR", "true")
            .env("GIT_AUTHOR_NAME", "Ada Author")
            .env("GIT_AUTHOR_EMAIL", "ada@example.org")
            .env("GIT_COMMITTER_NAME", "Carl Committer")
            .env("GIT_COMMITTER_EMAIL", "carl@example.org");
    }

    /// Runs git in the checkout; its standard output without the last newline. Panics when git
    /// fails.
    #[track_caller]
    pub fn git(&self, args: &[&str]) -> String {
        self.git_in(&self.dir, args)
    }

    /// Runs git in `dir` (a mount, for one), with a time limit.
    #[track_caller]
    pub fn git_in(&self, dir: &Path, args: &[&str]) -> String {
        self.try_git_in(dir, args)
            .expect_success(&format!("git {args:?} in {}", dir.display()))
            .text()
    }

    /// The git directory of a fork on the disk: its own, or that of its linked worktree.
    pub fn git_dir_of_fork(&self, fork: &str) -> PathBuf {
        let own = self.common_dir().join(format!("tine/forks/{fork}/git"));
        if own.exists() {
            own
        } else {
            self.common_dir().join("worktrees").join(fork)
        }
    }

    /// Runs git with the git directory of a fork, mounted or not.
    #[track_caller]
    pub fn git_of_fork(&self, fork: &str, args: &[&str]) -> String {
        run_with_timeout(&mut self.command_of_fork(fork, args))
            .expect_success(&format!("git {args:?} of {fork}"))
            .text()
    }

    /// git, with the git directory of a fork, mounted or not.
    pub fn command_of_fork(&self, fork: &str, args: &[&str]) -> Command {
        let git_dir = format!("--git-dir={}", self.git_dir_of_fork(fork).display());
        let mut command = self.command("git", &self.dir);
        // A fork's own directory has these only in the mount.
        let objects = self.common_dir().join("objects");
        command.env("GIT_ALTERNATE_OBJECT_DIRECTORIES", objects);
        command.arg(git_dir).args(args);
        command
    }

    /// As [`TestRepo::git_in`], for a git that may fail.
    #[track_caller]
    pub fn try_git_in(&self, dir: &Path, args: &[&str]) -> Output {
        run_with_timeout(self.command("git", dir).args(args))
    }

    /// Runs a shell script in `dir`, which stops at the first failing step; its standard output.
    /// Panics when it fails.
    #[track_caller]
    pub fn sh_in(&self, dir: &Path, script: &str) -> String {
        self.try_sh_in(dir, script)
            .expect_success(&format!("sh -euc {script:?} in {}", dir.display()))
            .text()
    }

    /// As [`TestRepo::sh_in`], for a script that may fail.
    #[track_caller]
    pub fn try_sh_in(&self, dir: &Path, script: &str) -> Output {
        run_with_timeout(self.command("sh", dir).args(["-euc", script]))
    }

    /// Installs a hook of the repository, a shell script that stops at the first failing step.
    pub fn hook(&self, name: &str, script: &str) {
        let file = self.common_dir().join("hooks").join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, format!("#!/bin/sh\nset -eu\n{script}\n")).unwrap();
        fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Keeps git from leaving a program behind after a commit, for tests that unmount soon.
    pub fn without_maintenance(self) -> TestRepo {
        self.git(&["config", "maintenance.auto", "false"]);
        self
    }

    /// Makes forks linked worktrees, for tests of what only those have.
    pub fn with_linked_forks(self) -> TestRepo {
        self.git(&["config", "tine.git", "linked"]);
        self
    }

    /// Writes a file of the checkout, with the directories above it.
    pub fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.dir.join(path);
        fs::create_dir_all(path.parent().expect("a file has a parent"))
            .expect("the directory can be made");
        fs::write(path, content).expect("the file can be written");
    }

    /// The files that [`TestRepo::new`] commits: text, an executable, symlinks, nested directories,
    /// an empty file, ignore rules, and a file of 300,000 bytes.
    pub fn write_base_files(&self) {
        self.write("README.md", "# A test\n\nWith two paragraphs.\n");
        self.write(".gitignore", "target/\n*.log\n");
        self.write("src/main.rs", "fn main() {\n    println!(\"hello\");\n}\n");
        self.write("src/deep/er/still/leaf.txt", "leaf\n");
        self.write("docs/guide.md", "one\ntwo\nthree\n");
        self.write("docs/empty", "");
        self.write("data/large.bin", large_content());
        self.write("run.sh", "#!/bin/sh\necho ran\n");
        fs::set_permissions(self.dir.join("run.sh"), fs::Permissions::from_mode(0o755))
            .expect("the file was just written");
        symlink("README.md", self.dir.join("link")).expect("the name is free");
        symlink("../src", self.dir.join("docs/up")).expect("the name is free");
        symlink("nowhere", self.dir.join("dangling")).expect("the name is free");
    }

    /// Commits everything in the checkout; the commit's id.
    pub fn commit_all(&self, message: &str) -> String {
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "--allow-empty", "-m", message]);
        self.head()
    }

    /// Writes and commits files; the commit's id.
    pub fn commit_files(&self, files: &[(&str, &[u8])], message: &str) -> String {
        for (path, content) in files {
            self.write(path, content);
        }
        self.commit_all(message)
    }

    /// The commit that HEAD of the checkout stands on.
    pub fn head(&self) -> String {
        self.git(&["rev-parse", "HEAD"])
    }

    /// `git status` in `dir`, one line for each path: `?? new.txt`.
    #[track_caller]
    pub fn status(&self, dir: &Path) -> String {
        self.git_in(dir, &["status", "--short", "--untracked-files=all"])
    }

    /// Checks that two directories hold the same bytes, kinds, modes and symlinks, `.git` aside.
    #[track_caller]
    pub fn assert_same_trees(&self, expected: &Path, found: &Path) {
        let difference = run_with_timeout(
            self.command("diff", self.root())
                .args(["-r", "--no-dereference", "--exclude=.git"])
                .args([expected, found]),
        );
        assert_eq!(difference.text(), "");
        assert!(difference.status.success(), "{}", difference.error_text());
        let listing = "find . -name .git -prune -o -printf '%P %y %m %l\\n' | sort";
        assert_eq!(self.sh_in(found, listing), self.sh_in(expected, listing));
    }

    /// Checks out the commit `revision` with git itself, beside the repository, for comparing; its
    /// directory.
    pub fn git_checkout_of(&self, revision: &str, name: &str) -> PathBuf {
        let dir = self.root_dir.join(name);
        self.git(&[
            "worktree",
            "add",
            "-q",
            "--detach",
            path_text(&dir),
            revision,
        ]);
        dir
    }
}

impl Default for TestRepo {
    fn default() -> TestRepo {
        TestRepo::new()
    }
}

impl Drop for TestRepo {
    fn drop(&mut self) {
        // First of all, lest removing the directory walks into a mount.
        force_unmount_beneath(&self.root_dir);
        if let Some(root) = self.root.take() {
            if std::thread::panicking() && std::env::var_os("TINE_KEEP_TEMP").is_some() {
                eprintln!("kept: {}", root.keep().display());
            } else if let Err(error) = root.close() {
                eprintln!("{} cannot be removed: {error}", self.root_dir.display());
            }
        }
    }
}

/// Where rustup keeps what `name` says, if it is not set.
fn toolchain_home(name: &str) -> Option<PathBuf> {
    let folder = if name == "CARGO_HOME" {
        ".cargo"
    } else {
        ".rustup"
    };
    Some(PathBuf::from(std::env::var_os("HOME")?).join(folder)).filter(|dir| dir.is_dir())
}

/// 300,000 bytes that do not repeat soon.
pub fn large_content() -> Vec<u8> {
    (0..300_000_u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect()
}

/// The path as text: test directories are UTF-8.
pub fn path_text(path: &Path) -> &str {
    path.to_str().expect("test directories are UTF-8")
}

/// Keeps the developer's git configuration away from what runs in this process.
fn isolate_this_process() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for (name, value) in [
            ("GIT_CONFIG_GLOBAL", "/dev/null"),
            ("GIT_CONFIG_SYSTEM", "/dev/null"),
            ("GIT_AUTHOR_NAME", "Ada Author"),
            ("GIT_AUTHOR_EMAIL", "ada@example.org"),
            ("GIT_COMMITTER_NAME", "Carl Committer"),
            ("GIT_COMMITTER_EMAIL", "carl@example.org"),
        ] {
            // SAFETY: everything in this process reads the environment through std, which holds its
            // own lock.
            unsafe { std::env::set_var(name, value) };
        }
        for name in [
            "GIT_DIR",
            "GIT_WORK_TREE",
            "GIT_INDEX_FILE",
            "GIT_OBJECT_DIRECTORY",
        ] {
            // SAFETY: as above.
            unsafe { std::env::remove_var(name) };
        }
    });
}
