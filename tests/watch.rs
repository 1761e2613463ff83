//! Programs that watch a mounted fork (inotify): each change of tine's raises the events that a program's would, before the
//! command returns.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};

use support::{OutputExt, TestRepo, Tine, path_text, require_fuse, run_with_timeout};

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

    /// What has happened until now: `src CREATE new.rs`. Both ends of a move have the same number. A program chooses in how
    /// many steps it writes: of several modifications of a file in a row one is told.
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
                let mask: Vec<&str> = event.mask.iter_names().map(|(name, _)| &name[3..]).collect();
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
                let of_one_file = told.iter().rev().take_while(|line| line.contains(" MODIFY"));
                if !(line.contains(" MODIFY") && of_one_file.take(2).any(|before| *before == line)) {
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

    /// The events of `change` in the fork are those of `program` in the copy, where every directory and file is watched.
    #[track_caller]
    fn agree(&self, what: &str, change: impl FnOnce(&Tine<'_>), program: impl FnOnce(&Path)) {
        self.agree_watching(what, true, change, program);
    }

    /// As [`Pair::agree`], where directories alone are watched.
    #[track_caller]
    fn agree_in_directories(&self, what: &str, change: impl FnOnce(&Tine<'_>), program: impl FnOnce(&Path)) {
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
        let (in_fork, in_copy) = (Watch::all(&self.fork, files), Watch::all(&self.plain, files));
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
    let limit = std::time::Duration::from_secs(60);
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
        move |tine: &Tine<'_>| feed(tine, &["write", "-p", "one", path], text)
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
        "tool",
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
            &["tool", "write", "--fork", "one", "docs/by-tool"],
            "text\n",
        )
    };
    pair.agree("tool write", text, |plain| {
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
        run(&["mv", "one", "README.md", "READ.md"]),
        rename("README.md", "READ.md"),
    );
    pair.agree("undo", run(&["undo", "one"]), rename("READ.md", "README.md"));
    let args = ["mv", "one", "docs/guide.md", "src"];
    pair.agree(
        "mv elsewhere",
        run(&args),
        rename("docs/guide.md", "src/guide.md"),
    );
    let args = ["mv", "-f", "one", "README.md", "run.sh"];
    pair.agree("mv over a file", run(&args), rename("README.md", "run.sh"));
    pair.agree(
        "mv a directory",
        run(&["mv", "one", "src", "lib"]),
        rename("src", "lib"),
    );
    pair.agree("undo of that", run(&["undo", "one"]), rename("lib", "src"));
    pair.agree("redo of that", run(&["redo", "one"]), rename("src", "lib"));
    let args = ["mv", "one", "lib/deep", "docs"];
    pair.agree(
        "mv a directory elsewhere",
        run(&args),
        rename("lib/deep", "docs/deep"),
    );
    let args = [
        "tool",
        "move",
        "--fork",
        "one",
        "data/large.bin",
        "made/for/it.bin",
    ];
    pair.agree("tool move", run(&args), |plain| {
        fs::create_dir_all(plain.join("made/for")).unwrap();
        rename("data/large.bin", "made/for/it.bin")(plain);
    });
    pair.agree_in_directories(
        "mv",
        run(&["mv", "one", "lib/main.rs", "m.rs"]),
        rename("lib/main.rs", "m.rs"),
    );
}

#[test]
fn what_is_removed_is_deleted_each_thing_in_it_too() {
    require_fuse!();
    let pair = Pair::new(|_, _, _| {});
    pair.agree("rm", run(&["rm", "one", "README.md"]), |plain| {
        fs::remove_file(plain.join("README.md")).unwrap();
    });
    pair.agree("undo", run(&["undo", "one"]), |plain| {
        write(&plain.join("README.md"), "# A test\n\nWith two paragraphs.\n")
    });
    pair.agree("rm -r", run(&["rm", "-r", "one", "src"]), |plain| {
        remove_all(&plain.join("src"))
    });
    pair.agree("rm of a link", run(&["rm", "one", "link"]), |plain| {
        fs::remove_file(plain.join("link")).unwrap();
    });
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
    let args = ["tool", "delete", "--fork", "one", "run.sh"];
    pair.agree_in_directories("tool delete", run(&args), |plain| {
        fs::remove_file(plain.join("run.sh")).unwrap();
    });
    pair.agree_in_directories("rm -r again", run(&["rm", "-r", "one", "docs"]), |plain| {
        remove_all(&plain.join("docs"))
    });
}

/// Writes a file of each kind, and commits.
fn second_commit(repo: &TestRepo) -> String {
    repo.write("docs/guide.md", "one\ntwo\nTHREE\n");
    repo.write("src/more.rs", "// more\n");
    repo.write("brand/new.txt", "new\n");
    fs::remove_file(repo.dir().join("src/deep/er/still/leaf.txt")).unwrap();
    fs::set_permissions(repo.dir().join("README.md"), fs::Permissions::from_mode(0o755)).unwrap();
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
fn a_fork_that_moves_is_checked_out_step_by_step() {
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
        pair.agree(&format!("undo of {what}"), run(&["undo", "one"]), check_out_first);
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
    tine.ok(&["rm", "-r", "one", "src"]);
    assert!(!fork.join("src").exists());
    tine.ok(&["undo", "one"]);
    let made = fs::write(fork.join("src/deep/new"), "new");
    let left = fs::write(format!("/proc/{}/cwd/other", inside.id()), "new");
    inside.kill().unwrap();
    inside.wait().unwrap();
    made.unwrap();
    left.unwrap_err();
}
