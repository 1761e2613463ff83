//! What the kernel asks for, operation by operation: exact numbers. A time would show a lost
//! optimisation only on a machine that does nothing else; a request that was not there before shows
//! everywhere. `scripts/round-trips` counts more of them, and programs.

mod support;

use std::fs::{self, File, FileTimes, OpenOptions, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use support::{
    OutputExt, TestFork, TestRepo, Tine, is_root, path_text, require_fuse, require_program,
    run_with_timeout,
};

/// A mounted fork, and what it was asked until the last look.
struct Counted {
    fork: TestFork,
    before: Vec<(&'static str, u64)>,
    /// Whether the kernel checks permissions.
    checks: bool,
}

impl Counted {
    fn new(repo: &TestRepo, allow_other: bool) -> Counted {
        let mut fork = TestFork::with(repo, "one", |options| {
            options.settings.allow_other = allow_other
        });
        fork.mount();
        let mut counted = Counted {
            fork,
            before: Vec::new(),
            checks: allow_other || !is_root(),
        };
        // CREATE is asked for once, because its answer holds for good; each test starts behind
        // that.
        write_new(&counted.path("first"), b"");
        stat(counted.fork.path());
        counted.look();
        counted
    }

    fn path(&self, name: &str) -> PathBuf {
        self.fork.path().join(name)
    }

    /// What was asked since the last look: `lookup 1, write 2`, in alphabetical order. Nobody waits
    /// for a forget.
    fn look(&mut self) -> String {
        let now = self.fork.mounted_at().expect("it is mounted").counters();
        let mut asked: Vec<String> = Vec::new();
        for (at, (kind, count)) in now.iter().enumerate() {
            let before = self.before.get(at).map_or(0, |(_, count)| *count);
            if *count > before && *kind != "forget" {
                asked.push(format!("{kind} {}", count - before));
            }
        }
        asked.sort();
        self.before = now;
        asked.join(", ")
    }

    /// Runs `act`, which must make the kernel ask exactly that.
    #[track_caller]
    fn costs(&mut self, what: &str, expected: &str, act: impl FnOnce()) {
        self.look();
        act();
        assert_eq!(
            self.look(),
            expected,
            "{what}, permissions checked: {}",
            self.checks
        );
    }

    /// The same in a directory that something was just made or removed in: the kernel does not know
    /// its mode any more, and asks where it is to check permissions.
    #[track_caller]
    fn costs_after_a_change(&mut self, what: &str, expected: &str, act: impl FnOnce()) {
        let mut asked = expected.to_owned();
        if self.checks {
            asked = match expected.strip_prefix("getattr 1") {
                Some(rest) => format!("getattr 2{rest}"),
                None => format!("getattr 1, {expected}"),
            };
        }
        self.costs(what, &asked, act);
    }
}

/// Runs `test` on a mount that only who made the fork may enter (there the kernel checks no
/// permissions for root), and on one that others may enter, too.
fn on_both_kinds_of_mounts(test: impl Fn(Counted)) {
    for allow_other in [false, true] {
        let repo = TestRepo::new();
        test(Counted::new(&repo, allow_other));
    }
}

fn write_new(path: &Path, bytes: &[u8]) {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path)
        .unwrap();
    if !bytes.is_empty() {
        file.write_all(bytes).unwrap();
    }
}

/// As `cat` reads: without a look at the size.
fn read(path: &Path) {
    let mut buffer = vec![0; 128 * 1024];
    let mut file = File::open(path).unwrap();
    while file.read(&mut buffer).unwrap() > 0 {}
}

fn stat(path: &Path) {
    fs::symlink_metadata(path).unwrap();
}

fn list(path: &Path) {
    assert!(fs::read_dir(path).unwrap().count() > 0);
}

#[test]
fn what_was_seen_once_is_not_asked_for_again() {
    require_fuse!();
    on_both_kinds_of_mounts(|mut counted| {
        let (file, missing, docs) = (
            counted.path("README.md"),
            counted.path("missing"),
            counted.path("docs"),
        );
        counted.costs("stat, first", "lookup 1", || stat(&file));
        counted.costs("stat, again", "", || stat(&file));
        counted.costs("open and close", "", || drop(File::open(&file).unwrap()));
        counted.costs("open to write and close", "", || {
            drop(OpenOptions::new().write(true).open(&file).unwrap());
        });
        counted.costs("read, first", "read 1", || read(&file));
        counted.costs("read, again", "", || read(&file));
        counted.costs("stat after the first read", "getattr 1", || stat(&file));
        counted.costs("stat after that", "", || stat(&file));

        counted.costs("a missing name, first", "lookup 1", || {
            assert!(!missing.exists())
        });
        counted.costs("a missing name, again", "", || assert!(!missing.exists()));

        let link = counted.path("link");
        counted.costs("read a symlink, first", "lookup 1, readlink 1", || {
            fs::read_link(&link).unwrap();
        });
        counted.costs("read a symlink, again", "", || {
            fs::read_link(&link).unwrap();
        });

        counted.costs("stat a directory", "lookup 1", || stat(&docs));
        counted.costs("list, first", "readdirplus 2", || list(&docs));
        counted.costs("stat what was listed", "", || {
            stat(&docs.join("guide.md"));
            stat(&docs.join("empty"));
        });
        counted.costs(
            "list, again: opendir(3) asks for the access time",
            "getattr 1",
            || list(&docs),
        );
        counted.costs("list, after that", "", || list(&docs));
    });
}

#[test]
fn writing_costs_what_it_must() {
    require_fuse!();
    on_both_kinds_of_mounts(|mut counted| {
        let dir = counted.path("new");
        counted.costs("mkdir", "lookup 1, mkdir 1", || {
            fs::create_dir(&dir).unwrap()
        });
        let file = dir.join("file");
        counted.costs_after_a_change(
            "create, write, close",
            "getxattr 1, lookup 1, mknod 1, write 1",
            || {
                write_new(&file, &[b'x'; 4096]);
            },
        );
        counted.costs_after_a_change("stat after a write", "getattr 1", || stat(&file));
        let large = dir.join("large");
        counted.costs(
            "create, write 1 MiB, close",
            "getxattr 1, lookup 1, mknod 1, write 1",
            || {
                write_new(&large, &vec![b'x'; 1 << 20]);
            },
        );
        counted.costs_after_a_change("write in place", "getxattr 1, write 1", || {
            let mut open = OpenOptions::new().write(true).open(&file).unwrap();
            open.write_all(b"new").unwrap();
        });
        counted.costs("append twice", "write 2", || {
            let mut open = OpenOptions::new().append(true).open(&file).unwrap();
            open.write_all(b"one").unwrap();
            open.write_all(b"two").unwrap();
        });
        counted.costs("sync", "fsync 1", || {
            File::open(&file).unwrap().sync_all().unwrap()
        });
        counted.costs(
            "truncate while opening, and write",
            "getxattr 1, setattr 1, write 1",
            || {
                let mut open = OpenOptions::new()
                    .write(true)
                    .truncate(true)
                    .open(&file)
                    .unwrap();
                open.write_all(b"new").unwrap();
            },
        );
        counted.costs("read whole pages that were written", "getattr 1", || {
            read(&large)
        });
        counted.costs(
            "read a part of a page that was written",
            "getattr 1, read 1",
            || read(&file),
        );
        counted.costs("chmod", "setattr 1", || {
            fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        });
        counted.costs("set times", "setattr 1", || {
            let times = FileTimes::new().set_modified(SystemTime::UNIX_EPOCH);
            File::open(&file).unwrap().set_times(times).unwrap();
        });
        counted.costs("stat after both", "", || stat(&file));
        counted.costs("hard link", "link 1, lookup 1", || {
            fs::hard_link(&file, dir.join("twin")).unwrap()
        });
        counted.costs_after_a_change("symlink", "lookup 1, symlink 1", || {
            symlink("file", dir.join("symlink")).unwrap();
        });
        counted.costs_after_a_change("rename", "lookup 1, rename 1", || {
            fs::rename(&file, dir.join("moved")).unwrap();
        });
        counted.costs_after_a_change("unlink", "unlink 1", || {
            fs::remove_file(dir.join("moved")).unwrap()
        });
        for name in ["twin", "symlink", "large"] {
            fs::remove_file(dir.join(name)).unwrap();
        }
        counted.costs("rmdir", "rmdir 1", || fs::remove_dir(&dir).unwrap());
    });
}

#[test]
fn a_base_file_is_changed_in_one_request() {
    require_fuse!();
    on_both_kinds_of_mounts(|mut counted| {
        let (file, gone) = (counted.path("README.md"), counted.path("docs/guide.md"));
        read(&file);
        stat(&file);
        counted.costs("append to a base file", "getxattr 1, write 1", || {
            let mut open = OpenOptions::new().append(true).open(&file).unwrap();
            open.write_all(b"more\n").unwrap();
        });
        stat(&gone);
        counted.costs("unlink a base file", "unlink 1", || {
            fs::remove_file(&gone).unwrap()
        });
    });
}

#[test]
fn the_script_that_counts_finds_the_same() {
    require_fuse!();
    require_program!("python3");
    let repo = TestRepo::new();
    // Ends the script's daemon, should the script not come to its end.
    let _tine = Tine::new(&repo);
    let counts = repo.root().join("counts.json");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/round-trips");
    let mut command = repo.command(&script, repo.dir());
    command.args([
        "--tine",
        path_text(Tine::program()),
        "--json",
        path_text(&counts),
    ]);
    command.args(["--dir", path_text(repo.root())]);
    command.args(["--times", "2", "--only", "stat, ", "--only", "mkdir"]);
    run_with_timeout(&mut command).expect_success("scripts/round-trips");
    let counted: serde_json::Value = serde_json::from_slice(&fs::read(&counts).unwrap()).unwrap();
    let requests = |operation: &str| {
        let rows = counted["rows"].as_array().unwrap().iter();
        let mut found = rows.filter(|row| row["operation"] == operation);
        found.next().expect("the operation was counted")["requests"].clone()
    };
    assert_eq!(requests("stat, first"), serde_json::json!({"lookup": 1.0}));
    assert_eq!(requests("stat, again"), serde_json::json!({}));
    assert_eq!(requests("mkdir")["mkdir"], 1.0);
}
