//! Named pipes in the place of files: opening one waits until somebody writes to it, which nobody
//! does.

use std::time::Duration;

use super::support::run_with_timeout_of;
use super::*;

/// What a command may take that waits for nothing.
const LIMIT: Duration = Duration::from_secs(30);

/// Two forks with a snapshot, a handoff, a round and large contents, and no daemon.
fn with_all(repo: &TestRepo) -> Tine<'_> {
    let tine = Tine::new(repo);
    for name in ["one", "two"] {
        let dir = tine.new_fork(name);
        fs::write(dir.join("small.txt"), format!("small, of {name}\n")).unwrap();
        fs::write(dir.join("large.bin"), vec![7; 200_000]).unwrap();
        tine.ok(&["commit", name, "-m", "first"]);
        fs::write(dir.join("later.txt"), "later\n").unwrap();
    }
    tine.ok(&["snapshot", "one", "kept"]);
    fs::write(dir_of(repo, "one").join("last.txt"), "last\n").unwrap();
    tine.ok(&["handoff", "create", "one"]);
    tine.ok(&["round", "start", "--agents", "a"]);
    tine.ok(&["daemon", "stop"]);
    tine
}

fn dir_of(repo: &TestRepo, fork: &str) -> PathBuf {
    repo.root().join("repo.forks").join(fork)
}

fn make_pipe(repo: &TestRepo, path: &Path) {
    repo.sh_in(repo.root(), &format!("mkfifo '{}'", path.display()));
}

/// The fork that alone needs the file, if one does.
fn owner_of(stopped: &Stopped<'_>, path: &Path) -> Option<&'static str> {
    let has = |dir: PathBuf| path.starts_with(dir);
    ["one", "two"].into_iter().find(|fork| {
        let record = stopped.record(fork);
        let ids = record["frozen_layers"].as_array().into_iter().flatten();
        let mut ids = ids.chain([&record["open_layer"]]);
        has(stopped.store().join("forks").join(fork))
            || has(stopped.repo.common_dir().join("worktrees").join(fork))
            || ids.any(|id| has(stopped.store().join("layers").join(id.to_string())))
    })
}

/// Runs a command, which must end in time.
#[track_caller]
fn run(tine: &Tine<'_>, args: &[&str]) -> std::process::Output {
    run_with_timeout_of(&mut tine.command(args), LIMIT, b"")
}

#[test]
fn a_pipe_in_the_place_of_any_file_hurts_only_that_and_is_found() {
    require_fuse!();
    for repo in [TestRepo::new(), TestRepo::new().with_linked_forks()] {
        a_pipe_hurts_only_that(&repo);
    }
}

fn a_pipe_hurts_only_that(repo: &TestRepo) {
    let stopped = Stopped {
        tine: with_all(repo),
        repo,
    };
    let Stopped { tine, .. } = &stopped;
    let common_dir = repo.common_dir();
    let mut files: Vec<PathBuf> = files_beneath(&stopped.store()).into_keys().collect();
    for fork in ["one", "two"] {
        files.extend(files_beneath(&repo.git_dir_of_fork(fork)).into_keys());
    }
    // Where nothing is as long as nothing is under way.
    let may_be_there = [
        "tine/forks/one/operations",
        "tine/forks/one/untold.json",
        "tine/damaged",
        "tine/recover.json",
        "tine/layers/1/log.new",
        "tine/reviews/1.json",
        "tine/buffers/1.json",
        "tine/moves/1.json",
        "tine/unsaved-reads/1.json",
        "tine/open-files/1.json",
    ];
    files.extend(may_be_there.map(|name| common_dir.join(name)));
    let of_git = [
        "MERGE_HEAD",
        "BISECT_START",
        "rebase-merge/head-name",
        "sequencer/todo",
        "config.worktree",
        "logs/HEAD",
    ];
    files.extend(of_git.map(|name| repo.git_dir_of_fork("one").join(name)));
    let own_dir = repo.git_dir_of_fork("one");
    if own_dir.join("objects").exists() {
        files.push(own_dir.join("packed-refs"));
    }
    // One of them is as good as another.
    files.retain(|path| !path.parent().unwrap().ends_with("spares") || path.ends_with("0"));
    files.sort();
    files.dedup();
    assert!(files.len() > 40, "{files:?}");
    let away = repo.root().join("away");
    for (number, path) in files.iter().enumerate() {
        let name = path
            .strip_prefix(&common_dir)
            .unwrap()
            .display()
            .to_string();
        // Nothing goes without the lock, which says so.
        let is_lock = name == "tine/lock";
        let owner = owner_of(&stopped, path);
        let other = if owner == Some("two") { "one" } else { "two" };
        let was_there = path.exists();
        match was_there {
            true => fs::rename(path, &away).unwrap(),
            false => fs::create_dir_all(path.parent().unwrap()).unwrap(),
        }
        make_pipe(repo, path);

        if !is_lock && name != "tine/daemon.log" {
            let checked = run(tine, &["check"]);
            let said = checked.text() + &checked.error_text();
            // What holds nothing that can be lost is made anew.
            let is_mended = path.is_file() || path.is_dir();
            let is_named = said.contains(&*path.to_string_lossy()) || is_mended;
            assert!(is_named, "{name}: {said}");
        }
        let commands: [&[&str]; 4] = [
            &["list"],
            &["mount", other],
            &["status", other],
            &["commit", other, "-m", "goes on"],
        ];
        for command in commands {
            if command[0] == "commit" {
                fs::write(dir_of(repo, other).join("number"), number.to_string()).unwrap();
            }
            let output = run(tine, command);
            let said = output.error_text();
            if is_lock {
                assert!(
                    said.contains("a named pipe is in its place") && said.contains("hint: `ls -ld"),
                    "{said}"
                );
                break;
            }
            assert!(output.status.success(), "{name}: tine {command:?}: {said}");
        }
        run(tine, &["check"]);
        // Of a fork that a pipe is in, commands may fail, and do not wait.
        if let Some(owner) = owner {
            run(tine, &["status", owner]);
        }
        run(tine, &["daemon", "stop", "--force"]);
        assert!(tine.daemons().is_empty(), "{name}: the daemon waits");
        if fs::symlink_metadata(path).is_ok_and(|meta| !meta.is_dir()) {
            fs::remove_file(path).unwrap();
        }
        match was_there {
            true => fs::rename(&away, path).unwrap(),
            // Directories that were made for it mean something to git.
            false => drop(fs::remove_dir(path.parent().unwrap())),
        }
    }
    stopped.check(&[], 0);
}

#[test]
fn a_pipe_that_stands_for_a_file_is_set_aside_and_the_fork_goes_on() {
    require_fuse!();
    for repo in [TestRepo::new(), TestRepo::new().with_linked_forks()] {
        goes_on_without_a_pipe(&repo);
    }
}

fn goes_on_without_a_pipe(repo: &TestRepo) {
    let stopped = Stopped {
        tine: with_all(repo),
        repo,
    };
    let worktree = repo.git_dir_of_fork("one");
    let mut names = vec![
        ("HEAD", "head-damaged"),
        ("index", "index-damaged"),
        ("MERGE_HEAD", "not-a-file"),
    ];
    if worktree.join("objects").exists() {
        names.push(("packed-refs", "not-a-file"));
    }
    if worktree.join("locked").exists() {
        names.extend([("locked", "not-a-file"), ("gitdir", "not-a-file")]);
    }
    for (name, kind) in names {
        let path = worktree.join(name);
        let before = fs::read(&path).ok();
        if before.is_some() {
            fs::remove_file(&path).unwrap();
        }
        make_pipe(repo, &path);
        let found = stopped.only(kind);
        assert_eq!(found["what"], path.to_str().unwrap());
        assert_eq!(found["fork"], "one");
        stopped.check(&["--repair"], 0);
        stopped.tine.ok(&["mount", "one"]);
        let dir = dir_of(repo, "one");
        assert_eq!(fs::read_to_string(dir.join("last.txt")).unwrap(), "last\n");
        repo.git_in(&dir, &["status"]);
        stopped.tine.ok(&["daemon", "stop"]);
        if name != "index" {
            assert_eq!(fs::read(&path).ok(), before, "{name}");
        }
        stopped.check(&[], 0);
    }
}
