//! Programs that watch a mounted fork (inotify): each change of tine's raises the events that a
//! program's would, before the command returns.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use nix::sys::fanotify::{self, Fanotify};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};

use support::{
    OutputExt, TestRepo, Tine, is_root, path_text, require_fuse, run_with_timeout, wait_until,
};

/// What is asked for: all but that something was opened or read.
fn of_changes() -> AddWatchFlags {
    AddWatchFlags::IN_ATTRIB
        | AddWatchFlags::IN_CLOSE_WRITE
        | AddWatchFlags::IN_CREATE
        | AddWatchFlags::IN_DELETE
        | AddWatchFlags::IN_DELETE_SELF
        | AddWatchFlags::IN_MODIFY
        | AddWatchFlags::IN_MOVE
        | AddWatchFlags::IN_MOVE_SELF
}

/// Watches what is in a directory.
struct Watch {
    inotify: Inotify,
    watched: BTreeMap<WatchDescriptor, String>,
}

impl Watch {
    fn nothing() -> Watch {
        let flags = InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC;
        Watch {
            inotify: Inotify::init(flags).expect("a process may watch"),
            watched: BTreeMap::new(),
        }
    }

    /// All directories in `root`, and with `files` all files.
    fn all(root: &Path, files: bool) -> Watch {
        let mut watch = Watch::nothing();
        let mut open = vec![PathBuf::new()];
        while let Some(dir) = open.pop() {
            watch.add(root, &dir);
            let mut entries: Vec<_> = fs::read_dir(root.join(&dir))
                .unwrap()
                .map(Result::unwrap)
                .collect();
            entries.sort_by_key(fs::DirEntry::file_name);
            for entry in entries {
                let path = dir.join(entry.file_name());
                let kind = entry.file_type().unwrap();
                if kind.is_dir() && entry.file_name() != ".git" {
                    open.push(path);
                } else if kind.is_file() && files && entry.file_name() != ".git" {
                    watch.add(root, &path);
                }
            }
        }
        watch
    }

    fn add(&mut self, root: &Path, path: &Path) {
        let added = self.inotify.add_watch(&root.join(path), of_changes());
        let name = match path_text(path) {
            "" => "/",
            name => name,
        };
        self.watched.insert(added.unwrap(), name.to_owned());
    }

    /// What has happened until now: `src CREATE new.rs`. Both ends of a move have the same number.
    /// A program chooses in how many steps it writes: of several modifications of a file in a row
    /// one is told.
    fn events(&self) -> Vec<String> {
        let mut told: Vec<String> = Vec::new();
        let mut cookies = Vec::new();
        loop {
            let events = match self.inotify.read_events() {
                Err(Errno::EAGAIN) => return told,
                events => events.unwrap(),
            };
            for event in events {
                if event.mask.contains(AddWatchFlags::IN_IGNORED) {
                    continue;
                }
                let mask: Vec<&str> = event
                    .mask
                    .iter_names()
                    .map(|(name, _)| &name[3..])
                    .collect();
                let at = self.watched.get(&event.wd).map_or("?", String::as_str);
                let mut line = format!("{at} {}", mask.join("|"));
                if event.cookie != 0 {
                    let number = cookies.iter().position(|cookie| *cookie == event.cookie);
                    let number = number.unwrap_or_else(|| {
                        cookies.push(event.cookie);
                        cookies.len() - 1
                    });
                    line.push_str(&format!("#{number}"));
                }
                if let Some(name) = event.name {
                    line.push_str(&format!(" {}", name.to_string_lossy()));
                }
                let of_one_file = told
                    .iter()
                    .rev()
                    .take_while(|line| line.contains(" MODIFY"));
                if !(line.contains(" MODIFY") && of_one_file.take(2).any(|before| *before == line))
                {
                    told.push(line);
                }
            }
        }
    }
}

/// A mounted fork, and a copy of it on the disk.
struct Pair {
    repo: TestRepo,
    fork: PathBuf,
    plain: PathBuf,
}

impl Pair {
    /// Runs `prepare` on the fork before it is copied.
    fn new(prepare: impl FnOnce(&Tine<'_>, &TestRepo, &Path)) -> Pair {
        let repo = TestRepo::new();
        let tine = std::mem::ManuallyDrop::new(Tine::new(&repo));
        let fork = tine.new_fork("one");
        prepare(&tine, &repo, &fork);
        let plain = repo.root().join("plain");
        let copied = run_with_timeout(repo.command("cp", repo.root()).args([
            "-a",
            path_text(&fork),
            path_text(&plain),
        ]));
        copied.expect_success("cp -a");
        Pair { repo, fork, plain }
    }

    /// The events of `change` in the fork are those of `program` in the copy, where every directory
    /// and file is watched.
    #[track_caller]
    fn agree(&self, what: &str, change: impl FnOnce(&Tine<'_>), program: impl FnOnce(&Path)) {
        self.agree_watching(what, true, change, program);
    }

    /// As [`Pair::agree`], where directories alone are watched.
    #[track_caller]
    fn agree_in_directories(
        &self,
        what: &str,
        change: impl FnOnce(&Tine<'_>),
        program: impl FnOnce(&Path),
    ) {
        self.agree_watching(what, false, change, program);
    }

    #[track_caller]
    fn agree_watching(
        &self,
        what: &str,
        files: bool,
        change: impl FnOnce(&Tine<'_>),
        program: impl FnOnce(&Path),
    ) {
        let tine = std::mem::ManuallyDrop::new(Tine::new(&self.repo));
        let (in_fork, in_copy) = (
            Watch::all(&self.fork, files),
            Watch::all(&self.plain, files),
        );
        change(&tine);
        let found = in_fork.events();
        program(&self.plain);
        let expected = in_copy.events();
        assert_eq!(
            found.join("\n"),
            expected.join("\n"),
            "{what}, files watched: {files}"
        );
        assert!(!expected.is_empty(), "{what}");
        self.repo.assert_same_trees(&self.plain, &self.fork);
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        drop(Tine::new(&self.repo));
    }
}

/// As a program writes a file that is there or not.
fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
}

/// As git writes a file that is there.
fn replace(path: &Path, text: &str) {
    fs::remove_file(path).unwrap();
    write(path, text);
}

/// As `rm -r` does, in an order that is always the same.
fn remove_all(dir: &Path) {
    let entries = fs::read_dir(dir).unwrap().map(Result::unwrap);
    // Without the entries themselves, which keep the directory open.
    let mut names: Vec<_> = entries.map(|entry| entry.path()).collect();
    names.sort();
    for path in names.iter().rev() {
        match path.is_dir() && !path.is_symlink() {
            true => remove_all(path),
            false => fs::remove_file(path).unwrap(),
        }
    }
    fs::remove_dir(dir).unwrap();
}

fn feed(tine: &Tine<'_>, args: &[&str], text: &str) {
    let limit = Duration::from_secs(60);
    let output = support::run_with_timeout_of(&mut tine.command(args), limit, text.as_bytes());
    output.expect_success(&format!("tine {args:?}"));
}

fn run<'a>(args: &'a [&'a str]) -> impl FnOnce(&Tine<'_>) + 'a {
    move |tine| {
        tine.ok(args);
    }
}

#[test]
fn a_file_that_is_written_is_modified_and_closed() {
    require_fuse!();
    let pair = Pair::new(|_, _, _| {});
    let readme = fs::read_to_string(pair.fork.join("README.md")).unwrap();
    let put = |path: &'static str, text: &'static str| {
        move |tine: &Tine<'_>| feed(tine, &["write", "--fork", "one", "-p", path], text)
    };
    pair.agree("write", put("README.md", "other\n"), |plain| {
        write(&plain.join("README.md"), "other\n");
    });
    pair.agree("write as much", put("README.md", "OTHER\n"), |plain| {
        write(&plain.join("README.md"), "OTHER\n");
    });
    pair.agree("undo", run(&["undo", "one"]), |plain| {
        write(&plain.join("README.md"), "other\n")
    });
    pair.agree("undo again", run(&["undo", "one"]), |plain| {
        write(&plain.join("README.md"), &readme)
    });
    pair.agree("redo", run(&["redo", "one"]), |plain| {
        write(&plain.join("README.md"), "other\n")
    });
    pair.agree("make", put("src/new.rs", "new\n"), |plain| {
        write(&plain.join("src/new.rs"), "new\n")
    });
    pair.agree("make empty", put("src/none", ""), |plain| {
        write(&plain.join("src/none"), "")
    });
    let make_deep = |plain: &Path| {
        fs::create_dir_all(plain.join("a/b")).unwrap();
        write(&plain.join("a/b/new.rs"), "new\n");
    };
    let remove_deep = |plain: &Path| {
        fs::remove_file(plain.join("a/b/new.rs")).unwrap();
        fs::remove_dir(plain.join("a/b")).unwrap();
        fs::remove_dir(plain.join("a")).unwrap();
    };
    pair.agree("make deep", put("a/b/new.rs", "new\n"), make_deep);
    pair.agree("undo making", run(&["undo", "one"]), remove_deep);
    pair.agree("redo making", run(&["redo", "one"]), make_deep);
    let edit = [
        "edit",
        "--fork",
        "one",
        "src/new.rs",
        "--old",
        "new",
        "--new",
        "newer",
    ];
    pair.agree("edit", run(&edit), |plain| {
        write(&plain.join("src/new.rs"), "newer\n")
    });
    let text = |tine: &Tine<'_>| {
        feed(
            tine,
            &["write", "--agent", "--fork", "one", "docs/by-tool"],
            "text\n",
        )
    };
    pair.agree("write --agent", text, |plain| {
        write(&plain.join("docs/by-tool"), "text\n")
    });
    pair.agree_in_directories("write", put("docs/guide.md", "guide\n"), |plain| {
        write(&plain.join("docs/guide.md"), "guide\n");
    });
    assert_eq!(
        pair.repo.status(&pair.fork),
        [
            " M README.md",
            " M docs/guide.md",
            "?? a/b/new.rs",
            "?? docs/by-tool",
            "?? src/new.rs",
            "?? src/none"
        ]
        .join("\n")
    );
}

#[test]
fn what_is_moved_is_moved_from_and_to() {
    require_fuse!();
    let pair = Pair::new(|_, _, _| {});
    let rename = |from: &'static str, to: &'static str| {
        move |plain: &Path| fs::rename(plain.join(from), plain.join(to)).unwrap()
    };
    pair.agree(
        "mv",
        run(&["mv", "--fork", "one", "README.md", "READ.md"]),
        rename("README.md", "READ.md"),
    );
    pair.agree(
        "undo",
        run(&["undo", "one"]),
        rename("READ.md", "README.md"),
    );
    let args = ["mv", "--fork", "one", "docs/guide.md", "src"];
    pair.agree(
        "mv elsewhere",
        run(&args),
        rename("docs/guide.md", "src/guide.md"),
    );
    let args = ["mv", "--fork", "one", "-f", "README.md", "run.sh"];
    pair.agree("mv over a file", run(&args), rename("README.md", "run.sh"));
    pair.agree("undo of that", run(&["undo", "one"]), |plain| {
        rename("run.sh", "README.md")(plain);
        let mut options = fs::OpenOptions::new();
        let made = options
            .write(true)
            .create_new(true)
            .mode(0o755)
            .open(plain.join("run.sh"));
        made.unwrap().write_all(b"#!/bin/sh\necho ran\n").unwrap();
    });
    pair.agree(
        "redo of that",
        run(&["redo", "one"]),
        rename("README.md", "run.sh"),
    );
    pair.agree(
        "mv a directory",
        run(&["mv", "--fork", "one", "src", "lib"]),
        rename("src", "lib"),
    );
    pair.agree("undo of that", run(&["undo", "one"]), rename("lib", "src"));
    pair.agree("redo of that", run(&["redo", "one"]), rename("src", "lib"));
    let args = ["mv", "--fork", "one", "lib/deep", "docs"];
    pair.agree(
        "mv a directory elsewhere",
        run(&args),
        rename("lib/deep", "docs/deep"),
    );
    let args = [
        "mv",
        "--agent",
        "--fork",
        "one",
        "data/large.bin",
        "made/for/it.bin",
    ];
    pair.agree("mv --agent", run(&args), |plain| {
        fs::create_dir_all(plain.join("made/for")).unwrap();
        rename("data/large.bin", "made/for/it.bin")(plain);
    });
    pair.agree_in_directories(
        "mv",
        run(&["mv", "--fork", "one", "lib/main.rs", "m.rs"]),
        rename("lib/main.rs", "m.rs"),
    );
}

#[test]
fn invariant_19_what_is_removed_is_deleted_each_thing_in_it_too() {
    require_fuse!();
    let pair = Pair::new(|_, _, _| {});
    pair.agree("rm", run(&["rm", "--fork", "one", "README.md"]), |plain| {
        fs::remove_file(plain.join("README.md")).unwrap();
    });
    pair.agree("undo", run(&["undo", "one"]), |plain| {
        write(
            &plain.join("README.md"),
            "# A test\n\nWith two paragraphs.\n",
        )
    });
    pair.agree(
        "rm -r",
        run(&["rm", "--fork", "one", "-r", "src"]),
        |plain| remove_all(&plain.join("src")),
    );
    pair.agree(
        "rm of a link",
        run(&["rm", "--fork", "one", "link"]),
        |plain| {
            fs::remove_file(plain.join("link")).unwrap();
        },
    );
    pair.agree("undo of a link", run(&["undo", "one"]), |plain| {
        symlink("README.md", plain.join("link")).unwrap();
    });
    let copied = pair.repo.root().join("copied");
    pair.repo.sh_in(pair.repo.root(), "cp -a repo/src copied");
    pair.agree("undo of rm -r", run(&["undo", "one", "src"]), |plain| {
        // Nobody watches a directory that is new.
        fs::create_dir(plain.join("src")).unwrap();
        pair.repo
            .sh_in(plain, &format!("cp -r {}/. src", path_text(&copied)));
    });
    let args = ["rm", "--agent", "--fork", "one", "run.sh"];
    pair.agree_in_directories("rm --agent", run(&args), |plain| {
        fs::remove_file(plain.join("run.sh")).unwrap();
    });
    pair.agree_in_directories(
        "rm -r again",
        run(&["rm", "--fork", "one", "-r", "docs"]),
        |plain| remove_all(&plain.join("docs")),
    );
}

/// Writes a file of each kind, and commits.
fn second_commit(repo: &TestRepo) -> String {
    repo.write("docs/guide.md", "one\ntwo\nTHREE\n");
    repo.write("src/more.rs", "// more\n");
    repo.write("brand/new.txt", "new\n");
    fs::remove_file(repo.dir().join("src/deep/er/still/leaf.txt")).unwrap();
    fs::set_permissions(
        repo.dir().join("README.md"),
        fs::Permissions::from_mode(0o755),
    )
    .unwrap();
    repo.commit_all("second")
}

/// As `git checkout` brings [`second_commit`].
fn check_out_second(plain: &Path) {
    fs::remove_file(plain.join("src/deep/er/still/leaf.txt")).unwrap();
    for dir in ["src/deep/er/still", "src/deep/er", "src/deep"] {
        fs::remove_dir(plain.join(dir)).unwrap();
    }
    fs::create_dir(plain.join("brand")).unwrap();
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(plain.join("README.md"), mode).unwrap();
    write(&plain.join("brand/new.txt"), "new\n");
    replace(&plain.join("docs/guide.md"), "one\ntwo\nTHREE\n");
    write(&plain.join("src/more.rs"), "// more\n");
}

/// And back.
fn check_out_first(plain: &Path) {
    fs::remove_file(plain.join("src/more.rs")).unwrap();
    fs::remove_file(plain.join("brand/new.txt")).unwrap();
    fs::remove_dir(plain.join("brand")).unwrap();
    fs::create_dir_all(plain.join("src/deep/er/still")).unwrap();
    let mode = fs::Permissions::from_mode(0o644);
    fs::set_permissions(plain.join("README.md"), mode).unwrap();
    replace(&plain.join("docs/guide.md"), "one\ntwo\nthree\n");
    write(&plain.join("src/deep/er/still/leaf.txt"), "leaf\n");
}

#[test]
fn invariant_19_a_fork_that_moves_is_checked_out_step_by_step() {
    require_fuse!();
    for (what, args) in [
        ("update", &["update", "one"][..]),
        ("merge", &["merge", "main", "--into", "one"]),
        ("switch", &["branch", "switch", "one", "other"]),
        ("apply", &["apply", "one", "../second.patch"]),
        ("revert", &["revert", "one", ".", "--to", "main"]),
    ] {
        let pair = Pair::new(|_, _, _| {});
        second_commit(&pair.repo);
        pair.repo.git(&["branch", "other"]);
        let patch = pair.repo.git(&["diff", "HEAD~", "HEAD"]) + "\n";
        fs::write(pair.repo.root().join("second.patch"), patch).unwrap();
        pair.agree(what, run(args), check_out_second);
        pair.agree(
            &format!("undo of {what}"),
            run(&["undo", "one"]),
            check_out_first,
        );
    }
}

#[test]
fn a_fork_that_goes_back_is_checked_out_step_by_step() {
    require_fuse!();
    for (what, args) in [
        ("restore", &["restore", "one", "before"][..]),
        ("reset", &["reset", "one"]),
        ("revert", &["revert", "one", "."]),
    ] {
        let pair = Pair::new(|tine, _, fork| {
            tine.ok(&["snapshot", "one", "before"]);
            check_out_second(fork);
        });
        pair.agree(what, run(args), check_out_first);
    }
}

/// Whatever the base says of them: another one comes beneath the fork when it goes back to HEAD.
#[test]
fn symlinks_and_what_becomes_another_kind_go_and_come() {
    require_fuse!();
    let pair = Pair::new(|tine, repo, _| {
        repo.git(&["switch", "-q", "-c", "other"]);
        let change = "ln -sfn run.sh link; rm docs/empty; mkdir docs/empty; echo x > docs/empty/x; \
                      rm -r src/deep; echo deep > src/deep; git add -A; git commit -qm other; git switch -q main";
        repo.sh_in(repo.dir(), change);
        tine.ok(&["merge", "other", "--into", "one"]);
        tine.ok(&["restore", "one", "pristine", "--exact"]);
    });
    pair.agree_in_directories("reset", run(&["reset", "one"]), |plain| {
        fs::remove_file(plain.join("src/deep/er/still/leaf.txt")).unwrap();
        fs::remove_dir(plain.join("src/deep/er/still")).unwrap();
        fs::remove_dir(plain.join("src/deep/er")).unwrap();
        fs::remove_dir(plain.join("src/deep")).unwrap();
        fs::remove_file(plain.join("docs/empty")).unwrap();
        fs::create_dir(plain.join("docs/empty")).unwrap();
        write(&plain.join("docs/empty/x"), "x\n");
        fs::remove_file(plain.join("link")).unwrap();
        symlink("run.sh", plain.join("link")).unwrap();
        write(&plain.join("src/deep"), "deep\n");
    });
}

#[test]
fn a_directory_that_comes_back_is_one_to_work_in() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let fork = tine.new_fork("one");
    let mut inside = std::process::Command::new("sleep");
    let mut inside = inside
        .arg("600")
        .current_dir(fork.join("src/deep"))
        .spawn()
        .unwrap();
    tine.ok(&["rm", "--fork", "one", "-r", "src"]);
    assert!(!fork.join("src").exists());
    tine.ok(&["undo", "one"]);
    let made = fs::write(fork.join("src/deep/new"), "new");
    let left = fs::write(format!("/proc/{}/cwd/other", inside.id()), "new");
    inside.kill().unwrap();
    inside.wait().unwrap();
    made.unwrap();
    left.unwrap_err();
}

#[test]
fn what_agents_write_over_mcp_is_seen() {
    require_fuse!();
    let pair = Pair::new(|_, _, _| {});
    let calls = [
        ("write_file", r#"{"path":"README.md","content":"other\n"}"#),
        (
            "edit_file",
            r#"{"path":"docs/guide.md","edits":[{"old":"three","new":"THREE"}]}"#,
        ),
        ("delete_file", r#"{"path":"run.sh"}"#),
    ];
    pair.agree(
        "mcp",
        |tine| {
            let mut lines = vec![
                r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"a test","version":"1"}}}"#.to_owned(),
                r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.to_owned(),
            ];
            lines.extend(calls.iter().enumerate().map(|(id, (tool, arguments))| {
                let id = id + 1;
                format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}}}}}"#)
            }));
            let mut mcp = tine.command(&["mcp", "--fork", "one"]);
            let mut mcp = mcp.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let mut input = mcp.stdin.take().unwrap();
            let mut answers = BufReader::new(mcp.stdout.take().unwrap()).lines();
            for line in lines {
                writeln!(input, "{line}").unwrap();
                if line.contains("\"id\":") {
                    let answer = answers.next().unwrap().unwrap();
                    assert!(answer.contains("\"result\"") && !answer.contains("\"isError\":true"), "{answer}");
                }
            }
            drop(input);
            mcp.wait().unwrap();
        },
        |plain| {
            write(&plain.join("README.md"), "other\n");
            write(&plain.join("docs/guide.md"), "one\ntwo\nTHREE\n");
            fs::remove_file(plain.join("run.sh")).unwrap();
        },
    );
}

/// Number, times, and size of a directory or file; of all but `.git`.
fn times(root: &Path) -> BTreeMap<PathBuf, [i64; 7]> {
    let mut found = BTreeMap::new();
    let mut open = vec![root.to_owned()];
    while let Some(path) = open.pop() {
        let meta = path.symlink_metadata().unwrap();
        let numbers = [
            meta.atime(),
            meta.atime_nsec(),
            meta.mtime(),
            meta.mtime_nsec(),
            meta.ctime(),
            meta.ctime_nsec(),
            meta.ino().cast_signed(),
        ];
        if meta.is_dir() {
            let entries = fs::read_dir(&path).unwrap().map(Result::unwrap);
            open.extend(
                entries
                    .filter(|entry| entry.file_name() != ".git")
                    .map(|entry| entry.path()),
            );
        }
        found.insert(path, numbers);
    }
    found
}

#[test]
fn no_time_moves_by_what_watchers_are_told() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let fork = tine.new_fork("one");
    second_commit(&repo);
    let changes: [&[&str]; 6] = [
        &["mv", "--fork", "one", "README.md", "docs"],
        &["undo", "one"],
        &["rm", "--fork", "one", "-r", "src/deep"],
        &["undo", "one"],
        &["update", "one"],
        &["undo", "one"],
    ];
    for (number, change) in changes.iter().enumerate() {
        let watch = Watch::all(&fork, true);
        let before = times(&fork);
        tine.ok(change);
        assert!(!watch.events().is_empty(), "{change:?}");
        drop(watch);
        let after = times(&fork);
        assert_eq!(
            repo.status(&fork),
            if number == 0 || number == 2 {
                repo.status(&fork)
            } else {
                String::new()
            }
        );
        // As the kernel has them, they are those of the fork.
        tine.ok(&["unmount", "one"]);
        tine.ok(&["mount", "one"]);
        assert_eq!(times(&fork), after, "{change:?}");
        let touched = after
            .iter()
            .filter(|(path, times)| before.get(*path) != Some(times));
        let untouched = ["run.sh", "data", "data/large.bin", "docs/empty"];
        for (path, _) in touched {
            assert!(
                !untouched.iter().any(|name| *path == fork.join(name)),
                "{change:?} touched {path:?}"
            );
        }
    }
    assert_eq!(repo.status(&fork), "");
}

#[test]
fn a_running_program_is_told_as_far_as_can_be() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let fork = tine.new_fork("one");
    let sleep = std::env::split_paths(&std::env::var_os("PATH").unwrap())
        .map(|dir| dir.join("sleep"))
        .find(|path| path.is_file());
    let program = fork.join("program");
    fs::copy(sleep.unwrap(), &program).unwrap();
    let mut running = Command::new(&program).arg("600").spawn().unwrap();
    let mut watch = Watch::nothing();
    watch.add(&fork, Path::new(""));
    feed(
        &tine,
        &["write", "--fork", "one", "program"],
        "no program\n",
    );
    assert_eq!(watch.events(), ["/ MODIFY program"]);
    assert_eq!(fs::read_to_string(&program).unwrap(), "no program\n");
    running.kill().unwrap();
    running.wait().unwrap();
    feed(&tine, &["write", "--fork", "one", "program"], "again\n");
    assert_eq!(
        watch.events(),
        ["/ MODIFY program", "/ CLOSE_WRITE program"]
    );
}

#[test]
fn a_file_that_nobody_may_write_to_is_told_as_far_as_can_be() {
    require_fuse!();
    let pair = Pair::new(|_, _, fork| {
        fs::set_permissions(fork.join("run.sh"), fs::Permissions::from_mode(0o444)).unwrap();
    });
    let tine = std::mem::ManuallyDrop::new(Tine::new(&pair.repo));
    let mut watch = Watch::nothing();
    watch.add(&pair.fork, Path::new(""));
    feed(&tine, &["write", "--fork", "one", "run.sh"], "other\n");
    let expected: &[&str] = match is_root() {
        true => &["/ MODIFY run.sh", "/ CLOSE_WRITE run.sh"],
        false => &["/ MODIFY run.sh"],
    };
    assert_eq!(watch.events(), expected);
    assert_eq!(
        fs::read_to_string(pair.fork.join("run.sh")).unwrap(),
        "other\n"
    );
}

/// Commits as many files as `count`, by hundreds in a directory.
fn commit_many(repo: &TestRepo, count: usize, text: &str) {
    for number in 0..count {
        repo.write(
            &format!("many/{}/{number}", number / 100),
            format!("{text} {number}\n"),
        );
    }
    repo.commit_all(text);
}

#[test]
fn many_files_in_several_directories_are_told_each_directory_in_its_order() {
    require_fuse!();
    let repo = TestRepo::new();
    commit_many(&repo, 1000, "first");
    let tine = Tine::new(&repo);
    let fork = tine.new_fork("one");
    commit_many(&repo, 1000, "second");
    let watch = Watch::all(&fork, false);
    tine.ok(&["update", "one"]);
    let events = watch.events();
    for hundred in 0..10 {
        let mut names: Vec<String> = (0..100)
            .map(|number| (hundred * 100 + number).to_string())
            .collect();
        names.sort();
        let dir = format!("many/{hundred}");
        let expected: Vec<String> = names
            .iter()
            .flat_map(|name| {
                ["DELETE", "CREATE", "MODIFY", "CLOSE_WRITE"]
                    .map(|event| format!("{dir} {event} {name}"))
            })
            .collect();
        let is_there = |event: &&String| event.starts_with(&format!("{dir} "));
        let told: Vec<String> = events.iter().filter(is_there).cloned().collect();
        assert_eq!(told, expected, "{dir}");
    }
    assert_eq!(events.len(), 4000);
    assert_eq!(repo.status(&fork), "");
}

#[test]
fn a_queue_that_nobody_reads_overflows_and_holds_up_nothing() {
    require_fuse!();
    let repo = TestRepo::new();
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let limit: usize = limit.trim().parse().unwrap();
    // Each file raises more events than five.
    let count = limit / 5;
    commit_many(&repo, count, "first");
    let tine = Tine::new(&repo);
    let fork = tine.new_fork("one");
    commit_many(&repo, count, "second");
    let watch = Watch::all(&fork, true);
    tine.ok(&["update", "one"]);
    let events = watch.inotify.read_events();
    let mut last = None;
    let mut told = 0;
    let mut events = events.unwrap();
    while !events.is_empty() {
        told += events.len();
        last = events.pop();
        events = watch.inotify.read_events().unwrap_or_default();
    }
    assert!(told > limit);
    assert!(last.unwrap().mask.contains(AddWatchFlags::IN_Q_OVERFLOW));
    assert_eq!(repo.status(&fork), "");
    assert_eq!(
        fs::read_to_string(fork.join("many/0/0")).unwrap(),
        "second 0\n"
    );
}

#[test]
fn invariant_19_a_daemon_that_is_killed_while_it_tells_leaves_the_fork_whole() {
    require_fuse!();
    let repo = TestRepo::new();
    commit_many(&repo, 2000, "first");
    let tine = Tine::new(&repo);
    let fork = tine.new_fork("one");
    commit_many(&repo, 2000, "second");
    let watch = Watch::all(&fork, true);
    let mut update = tine.command(&["update", "one"]);
    let mut update = update
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // Wait for the first event.
    let queue = watch.inotify.as_fd();
    let mut poll = [PollFd::new(queue, PollFlags::POLLIN)];
    assert_eq!(
        nix::poll::poll(&mut poll, 60_000u16).unwrap(),
        1,
        "something is told"
    );
    tine.kill_daemon();
    update.wait().unwrap();
    drop(watch);
    assert_eq!(tine.json(&["list"])["forks"][0]["name"], "one");
    tine.ok(&["mount", "one"]);
    assert_eq!(repo.status(&fork), "");
    assert_eq!(
        fs::read_to_string(fork.join("many/19/1999")).unwrap(),
        "second 1999\n"
    );
}

#[test]
fn many_forks_are_told_at_the_same_time_each_of_its_own() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let names: Vec<String> = (0..6).map(|number| format!("fork-{number}")).collect();
    let forks: Vec<PathBuf> = names.iter().map(|name| tine.new_fork(name)).collect();
    let watches: Vec<Watch> = forks.iter().map(|fork| Watch::all(fork, false)).collect();
    std::thread::scope(|scope| {
        for name in &names {
            let tine = &tine;
            scope.spawn(move || {
                for round in 0..5 {
                    let path = format!("src/{name}-{round}");
                    feed(tine, &["write", "--fork", name, &path], "new\n");
                }
            });
        }
    });
    for (name, watch) in names.iter().zip(&watches) {
        let expected: Vec<String> = (0..5)
            .flat_map(|round| {
                ["CREATE", "MODIFY", "CLOSE_WRITE"]
                    .map(|event| format!("src {event} {name}-{round}"))
            })
            .collect();
        assert_eq!(watch.events(), expected, "{name}");
    }
    // Nothing keeps a mount busy.
    for name in &names {
        tine.ok(&["unmount", name]);
    }
}

#[test]
fn a_call_that_does_not_end_holds_up_no_command() {
    require_fuse!();
    if !is_root() {
        support::skip_optional(
            support::test_name!(),
            "only root can hold up what others open",
        );
        return;
    }
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let fork = tine.new_fork("one");
    let mut watch = Watch::nothing();
    watch.add(&fork, Path::new(""));
    let group = Fanotify::init(
        fanotify::InitFlags::FAN_CLASS_CONTENT | fanotify::InitFlags::FAN_CLOEXEC,
        fanotify::EventFFlags::O_RDONLY,
    )
    .unwrap();
    let file = fork.join("README.md");
    let mask = fanotify::MaskFlags::FAN_OPEN_PERM;
    group
        .mark(
            fanotify::MarkFlags::FAN_MARK_ADD,
            mask,
            nix::fcntl::AT_FDCWD,
            Some(&file),
        )
        .unwrap();
    for text in ["one\n", "two\n", "three\n"] {
        let begun = Instant::now();
        feed(&tine, &["write", "--fork", "one", "README.md"], text);
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
    feed(&tine, &["write", "--fork", "one", "untold"], "new\n");
    assert!(watch.events().is_empty());
    // Whoever was held up goes on, and so does telling.
    drop(group);
    assert_eq!(fs::read_to_string(&file).unwrap(), "three\n");
    let mut told = Vec::new();
    wait_until("telling goes on", Duration::from_secs(60), || {
        feed(&tine, &["write", "--fork", "one", "told"], "new\n");
        told = watch.events();
        told.iter().any(|event| event == "/ CLOSE_WRITE told")
    });
    tine.ok(&["unmount", "one"]);
}
