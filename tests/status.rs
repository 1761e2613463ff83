//! `git status` in a fork asks the daemon what changed. What it forgets is a change that git does
//! not see, so git with the daemon's help is set beside git that looks at every file.

mod support;

use std::path::Path;
use std::process::Output;

use support::random::{Random, SayWhich};
use support::{OutputExt, TestRepo, Tine, require_fuse, run_with_timeout, soaking};

/// Takes away the daemon's help, and writes no index.
const ALONE: [&str; 5] = [
    "--no-optional-locks",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.untrackedCache=false",
];

const FLAGS: [&[&str]; 4] = [
    &[],
    &["-uall"],
    &["-uall", "--ignored"],
    &["--ignored=matching"],
];

fn status(repo: &TestRepo, dir: &Path, git_flags: &[&str], flags: &[&str]) -> Output {
    let words = [git_flags, &["status", "--porcelain", "-z"], flags].concat();
    repo.try_git_in(dir, &words)
}

/// Checks that git with the daemon's help says what git says without. `done` is what was done so
/// far.
#[track_caller]
fn agrees(repo: &TestRepo, dir: &Path, flags: &[&str], done: &[String]) {
    let helped = status(repo, dir, &[], flags);
    let alone = status(repo, dir, &ALONE, flags);
    let last = done.len().saturating_sub(12);
    assert!(
        helped.stdout == alone.stdout && helped.status == alone.status,
        "git status {flags:?} says\n{}{}alone it says\n{}after\n{}",
        String::from_utf8_lossy(&helped.stdout).replace('\0', "\n"),
        helped.error_text(),
        String::from_utf8_lossy(&alone.stdout).replace('\0', "\n"),
        done[last..].join("\n")
    );
}

fn repository() -> TestRepo {
    let repo = TestRepo::new();
    for dir in ["", "src/", "src/deep/", "docs/", ".github/", "sp ace/"] {
        for file in ["a", "b", "c"] {
            repo.write(&format!("{dir}{file}"), format!("{dir}{file}\n"));
        }
    }
    repo.write(".gitignore", "*.log\n/build/\n");
    repo.commit_all("first");
    repo.sh_in(
        repo.dir(),
        "git checkout -qb side; echo side >> src/a; git rm -q docs/b; mkdir new; echo n > new/a; git add -A
         git commit -qm side; git checkout -q -; echo main >> src/a; git commit -qam main",
    );
    repo
}

/// A word of the shell that names a path: among few, so that things meet.
fn some_path(random: &mut Random) -> String {
    let dir = some_dir(random);
    let names = [
        "a",
        "b",
        "c",
        "x",
        "y.log",
        ".gitignore",
        "$(printf 'd\\377')",
        "e\\ f",
        "g",
        "git~1",
    ];
    let name = names[random.below(names.len() as u64) as usize];
    format!("{dir}/{name}")
}

fn some_dir(random: &mut Random) -> &'static str {
    let dirs = [
        ".",
        "src",
        "src/deep",
        "docs",
        "new",
        "new/in",
        "new/in/it",
        "build",
        ".github",
        "sp\\ ace",
        "nested",
        "other",
        ".gitx",
        "src/deep/er",
    ];
    dirs[random.below(dirs.len() as u64) as usize]
}

/// Something that a person may do, as a script. Much of it fails.
fn some_step(random: &mut Random) -> String {
    let (path, other) = (some_path(random), some_path(random));
    let (dir, other_dir) = (some_dir(random), some_dir(random));
    let number = random.below(1000);
    match random.below(48) {
        0..4 => format!("mkdir -p {dir}; echo {number} > {path}"),
        4..6 => format!("echo {number} >> {path}"),
        6 => format!("touch {path}"),
        7 => format!("touch -d '2020-01-01' {path}"),
        8 => format!("chmod +x {path}"),
        9 => format!("chmod -x {path}; chmod 700 {dir}; chmod 755 {dir}"),
        10..12 => format!("rm -f {path}"),
        12 => format!("mv {path} {other}"),
        13..15 => format!("mv -T {dir} {other_dir}"),
        15 => format!("mv {dir} {other_dir}/"),
        16 => format!("mkdir -p {dir}/in/it; echo {number} > {dir}/in/it/x"),
        17 => format!("rm -rf {dir}/*"),
        18 => format!("test {dir} = . || rm -rf {dir}"),
        19 => format!("ln -f {path} {other}"),
        20 => format!("ln -sfn {path} {other}"),
        21 => format!("test {dir} = . || cp -a {dir} {other_dir}/"),
        22 => format!("echo {number} > {path}.tmp; mv {path}.tmp {path}"),
        23 => format!("truncate -s 3 {path}"),
        24 => "echo '*.x' >> .gitignore".to_owned(),
        25 => format!(
            "echo '{}' > {dir}/.gitignore",
            ["x", "!y.log", "*", "in/"][number as usize % 4]
        ),
        26 => format!(
            "echo '{}' > $(git rev-parse --git-path info/exclude)",
            ["x", "g", "", "new/"][number as usize % 4]
        ),
        27 => format!(
            "git config core.excludesFile $HOME/excluded; echo '{}' > $HOME/excluded",
            ["b", "x", ""][number as usize % 3]
        ),
        28..30 => "git add -A".to_owned(),
        30 => format!("git add {path}; git add -N {other}"),
        31 => format!("git rm -q --cached {path}"),
        32..34 => format!("git commit -qam {number}"),
        34 => "git checkout -q --detach side".to_owned(),
        35 => "git checkout -qf tine/one".to_owned(),
        36 => "git stash -q -u; git checkout -q side --detach; git stash pop -q".to_owned(),
        37 => "git stash -q; git stash drop -q".to_owned(),
        38 => format!(
            "git reset -q {} HEAD~1",
            ["--soft", "--mixed", "--hard"][number as usize % 3]
        ),
        39 => "git merge -q side -m merged; true".to_owned(),
        40 => "git merge --abort; git rebase -q side || git rebase --abort".to_owned(),
        41 => "git clean -fdq".to_owned(),
        42 => "git sparse-checkout set src docs || true".to_owned(),
        43 => "git sparse-checkout disable".to_owned(),
        // Only where no other file is: what git remembers of untracked files goes wrong without
        // anybody's help where a directory with tracked files becomes a repository.
        44 => {
            "mkdir -p own; git init -q own/nested; git -C own/nested commit -q --allow-empty -m n"
                .to_owned()
        }
        45 => [
            "rm -rf own",
            "echo > own/nested/x",
            "git -C own/nested commit -q --allow-empty -m n",
        ][number as usize % 3]
            .to_owned(),
        46 => format!(
            "git config --worktree status.showUntrackedFiles {}",
            ["all", "normal"][number as usize % 2]
        ),
        _ => {
            format!("ln -f {path} kept; mv -T {dir} {other_dir}; echo {number} >> kept; rm -f kept")
        }
    }
}

/// Invariant 8, for git, which trusts what it knew before.
#[test]
fn git_sees_every_change_with_the_help_of_the_daemon() {
    require_fuse!();
    let (mut random, seed) = Random::from_environment("TINE_STATUS_SEED");
    let _say = SayWhich("TINE_STATUS_SEED", seed);
    println!("TINE_STATUS_SEED={seed}");
    let repo = repository();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("one");
    let mut done: Vec<String> = Vec::new();
    agrees(&repo, &dir, &[], &done);
    for _ in 0..if soaking() { 6_000 } else { 150 } {
        match random.below(40) {
            0 => {
                done.push("tine commit".to_owned());
                tine.run(&["commit", "one", "-m", "by tine"]);
            }
            1 => {
                done.push("tine daemon stop".to_owned());
                tine.run(&["daemon", "stop", "--force"]);
                tine.run(&["list"]);
            }
            2 => {
                done.push("the daemon is killed".to_owned());
                tine.kill_daemon();
                tine.run(&["list"]);
            }
            3 => {
                // Changes while git looks.
                let steps: Vec<String> = (0..6).map(|_| some_step(&mut random)).collect();
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        for step in &steps {
                            repo.try_sh_in(&dir, step);
                        }
                    });
                    for _ in 0..6 {
                        status(&repo, &dir, &[], &[]);
                    }
                });
                done.push(format!("while git looks: {}", steps.join("; ")));
            }
            _ => {
                let step = some_step(&mut random);
                repo.try_sh_in(&dir, &step);
                done.push(step);
            }
        }
        if random.below(4) > 0 {
            let flags = match random.below(3) {
                0 => FLAGS[random.below(FLAGS.len() as u64) as usize],
                _ => &[],
            };
            agrees(&repo, &dir, flags, &done);
            done.push(format!("git status {flags:?}"));
        }
    }
    for flags in FLAGS {
        agrees(&repo, &dir, flags, &done);
    }
}

/// What git says that it looked at: the paths that it was told, or `everything`.
fn told(repo: &TestRepo, dir: &Path) -> Vec<String> {
    let mut command = repo.command("git", dir);
    command
        .env("GIT_TRACE_FSMONITOR", "1")
        .args(["status", "--porcelain"]);
    let output = run_with_timeout(&mut command).expect_success("git status");
    let trace = output.error_text();
    if !trace.contains("returned success") {
        return vec!["everything".to_owned()];
    }
    let told = trace.lines().filter_map(|line| {
        let (_, rest) = line.split_once("fsmonitor_refresh_callback '")?;
        Some(rest.split_once('\'')?.0.to_owned())
    });
    told.collect()
}

/// Invariant 6, as far as it can be seen from outside.
#[test]
fn git_looks_at_what_changed_only_and_tine_commits_keep_it_so() {
    require_fuse!();
    let repo = repository();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("one");
    assert_eq!(
        told(&repo, &dir),
        [""; 0],
        "a new fork has nothing to be looked at"
    );
    repo.sh_in(&dir, "echo changed > src/a");
    assert_eq!(told(&repo, &dir), ["src/a"]);
    assert_eq!(told(&repo, &dir), [""; 0]);
    tine.ok(&["commit", "one", "-m", "changed"]);
    assert_eq!(told(&repo, &dir), ["src/a"]);
    let looked_at = repo.git_in(&dir, &["ls-files", "-f"]);
    assert!(
        looked_at.lines().all(|line| line.starts_with("h ")),
        "all is known after that:\n{looked_at}"
    );
    // A second fork begins with the same index, and its own changes.
    let other = tine.new_fork("two");
    repo.sh_in(&other, "rm src/b");
    assert_eq!(told(&repo, &other), ["src/b", "src/b/"]);
}

/// How many directories git reads to find untracked files.
fn directories_read(repo: &TestRepo, dir: &Path) -> u64 {
    let mut command = repo.command("git", dir);
    command
        .env("GIT_TRACE2_PERF", "1")
        .args(["status", "--porcelain"]);
    let output = run_with_timeout(&mut command).expect_success("git status");
    let trace = output.error_text();
    let counts = trace
        .lines()
        .filter_map(|line| line.rsplit_once("opendir:")?.1.trim().parse::<u64>().ok());
    counts.sum()
}

#[test]
fn a_commit_keeps_what_git_knows_of_untracked_files() {
    require_fuse!();
    let repo = repository();
    for dir in 0..40 {
        repo.write(&format!("many/{dir}/deep/file"), "file");
    }
    repo.commit_all("many");
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("one");
    assert!(directories_read(&repo, &dir) > 80, "git lists all once");
    repo.sh_in(
        &dir,
        "mkdir seen made; echo > seen/u; echo ignored > many/3/x.log",
    );
    directories_read(&repo, &dir);
    assert_eq!(directories_read(&repo, &dir), 0);
    // One is changed, one is made, one goes, and one that git has seen as untracked goes without a
    // trace.
    repo.sh_in(
        &dir,
        "echo changed > src/a; echo > many/5/new; rm many/7/deep/file; echo > made/new; rm -r seen",
    );
    tine.ok(&["commit", "one", "-m", "by tine"]);
    agrees(&repo, &dir, &[], &[]);
    repo.sh_in(&dir, "echo > many/9/deep/u; echo more >> many/1/deep/file");
    tine.ok(&["commit", "one", "-m", "again"]);
    let read = directories_read(&repo, &dir);
    assert!(read < 20, "{read}");
    assert_eq!(directories_read(&repo, &dir), 0);
    repo.sh_in(&dir, "echo > many/11/deep/u");
    agrees(&repo, &dir, &["-uall"], &[]);
    agrees(&repo, &dir, &[], &[]);
}

#[test]
fn git_works_without_the_daemon_s_help_and_without_noise() {
    require_fuse!();
    let repo = repository();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("one");
    assert_eq!(told(&repo, &dir), [""; 0]);

    let quiet = || {
        let output = status(&repo, &dir, &[], &[]);
        assert!(output.status.success());
        assert_eq!(output.error_text(), "");
        output.text()
    };
    repo.sh_in(&dir, "echo changed > src/a");
    let socket = repo.common_dir().join("tine/daemon.sock");
    let away = socket.with_extension("away");
    std::fs::rename(&socket, &away).expect("it is there");
    assert_eq!(quiet(), " M src/a\0");
    repo.sh_in(&dir, "rm docs/a");
    assert_eq!(quiet(), " D docs/a\0 M src/a\0");

    // Another work tree with this one's index: what the daemon knows of the mount says nothing of
    // it.
    std::fs::rename(&away, &socket).expect("it is there");
    let elsewhere = repo.root().join("elsewhere");
    std::fs::create_dir(&elsewhere).expect("a new directory");
    agrees(&repo, &dir, &[], &[]);
    let place = format!("--work-tree={}", elsewhere.display());
    let git_dir = format!(
        "--git-dir={}",
        repo.git_in(&dir, &["rev-parse", "--git-dir"])
    );
    let deleted = repo.git(&[&git_dir, &place, "ls-files", "--deleted"]);
    let tracked = repo.git_in(&dir, &["ls-files"]);
    assert_eq!(deleted, tracked);

    // What somebody set for the fork stays set, also when the daemon starts anew.
    repo.git_in(&dir, &["config", "--worktree", "core.fsmonitor", "false"]);
    tine.ok(&["daemon", "stop"]);
    tine.ok(&["list"]);
    assert_eq!(repo.git_in(&dir, &["config", "core.fsmonitor"]), "false");
    agrees(&repo, &dir, &[], &[]);
}

#[test]
fn a_directory_that_git_cannot_be_told_of_is_looked_at() {
    require_fuse!();
    let repo = repository();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("one");
    for step in [
        "mkdir GIT~1",
        "echo > GIT~1/a",
        "mkdir GIT~1/b; echo > GIT~1/b/c",
        "rm -r GIT~1",
    ] {
        repo.sh_in(&dir, step);
        for _ in 0..2 {
            agrees(&repo, &dir, &[], &[step.to_owned()]);
        }
    }
}
