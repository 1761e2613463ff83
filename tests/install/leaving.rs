//! `tine uninstall` and `scripts/uninstall`: what is refused, what is kept, and that nothing else
//! is left.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use crate::file;
use crate::support::{
    OutputExt, TestRepo, Tine, mounts_beneath, path_text, require_fuse, run_with_timeout,
    run_with_timeout_of,
};

/// Every file beneath `dir` with its kind, mode and bytes.
fn tree(dir: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut open = vec![dir.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(&next).expect("the tree can be read") {
            let path = entry.expect("the tree can be read").path();
            let meta = path.symlink_metadata().expect("the file is there");
            let what = if meta.is_dir() {
                open.push(path.clone());
                "directory".to_owned()
            } else if meta.is_symlink() {
                format!("to {}", fs::read_link(&path).unwrap().display())
            } else {
                String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned()
            };
            let name = path.strip_prefix(dir).unwrap().display().to_string();
            found.insert(name, format!("{:o} {what}", meta.permissions().mode()));
        }
    }
    found
}

/// Checks that two trees are the same, and names the files that are not.
#[track_caller]
fn assert_same(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) {
    let differ =
        |one: &BTreeMap<String, String>, other: &BTreeMap<String, String>| -> Vec<String> {
            let names = one.keys().filter(|name| one.get(*name) != other.get(*name));
            names.cloned().collect()
        };
    assert_eq!(
        differ(before, after),
        differ(after, before),
        "lost or changed, and left"
    );
    assert_eq!(differ(before, after), [] as [String; 0]);
}

/// Runs `scripts/uninstall` as the user of the repository's home.
fn script(repo: &TestRepo, args: &[&str]) -> Output {
    let mut command = Command::new(file("scripts/uninstall"));
    repo.isolate(&mut command);
    command
        .args(args)
        .current_dir(repo.root())
        // cargo keeps no books of what was put there by hand.
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("GIT_CONFIG_GLOBAL", repo.home().join(".gitconfig"))
        .env_remove("CARGO_HOME")
        .env_remove("CARGO_INSTALL_ROOT");
    run_with_timeout_of(&mut command, Duration::from_secs(120), b"")
}

#[test]
fn nothing_is_left_of_an_installation_and_a_day_of_work() {
    require_fuse!();
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    let home = repo.home();
    fs::write(home.join(".gitconfig"), "[user]\n\tname = Ada\n").unwrap();
    let before = tree(repo.root());
    let git_before = (
        repo.git(&["for-each-ref"]),
        repo.git(&["config", "--list", "--local"]),
    );

    // Installed, with all that install.md tells to put somewhere.
    let data = home.join(".local/share");
    for dir in [
        home.join(".cargo/bin"),
        data.join("bash-completion/completions"),
        home.join(".config/fish/completions"),
        home.join(".zfunc"),
        home.join(".config/systemd/user/default.target.wants"),
    ] {
        fs::create_dir_all(dir).unwrap();
    }
    symlink(Tine::program(), home.join(".cargo/bin/tine")).unwrap();
    for (shell, place) in [
        ("bash", data.join("bash-completion/completions/tine")),
        ("fish", home.join(".config/fish/completions/tine.fish")),
        ("zsh", home.join(".zfunc/_tine")),
    ] {
        fs::write(place, tine.ok(&["completions", shell])).unwrap();
    }
    tine.ok(&["man", "--dir", path_text(&data.join("man/man1"))]);
    let units = home.join(".config/systemd/user");
    fs::copy(file("packaging/tine@.service"), units.join("tine@.service")).unwrap();
    symlink(
        units.join("tine@.service"),
        units.join("default.target.wants/tine@nowhere.service"),
    )
    .unwrap();
    let mut config = repo.command("git", repo.dir());
    config
        .args(["config", "--global", "tine.transport", "auto"])
        .env("GIT_CONFIG_GLOBAL", home.join(".gitconfig"));
    run_with_timeout(&mut config).expect_success("git config --global");
    repo.git(&["config", "tine.carry", "target"]);

    // Used: commits, a fork of a fork, a merge, a handoff, rounds, a directory without git.
    let first = tine.new_fork("first");
    fs::write(first.join("first.txt"), "first\n").unwrap();
    tine.ok(&["new", "second", "--from-fork", "first"]);
    tine.ok(&["commit", "first", "-m", "first"]);
    tine.ok(&[
        "write",
        "--fork",
        "second",
        "second.txt",
        "--file",
        path_text(&file("rustfmt.toml")),
    ]);
    tine.ok(&["undo", "second"]);
    tine.ok(&["reset", "second"]);
    tine.ok(&["handoff", "create", "first"]);
    tine.ok(&["handoff", "await", "1"]);
    tine.ok(&["handoff", "apply", "1", "--into", "fork:second"]);
    tine.ok(&["round", "start", "--agents", "a,b"]);
    tine.ok(&["round", "finish"]);
    tine.ok(&["round", "clean", "--force"]);
    tine.ok(&["recover", "purge", "--all"]);
    tine.ok(&["unmount", "second"]);

    let output = script(&repo, &["--dry-run", path_text(repo.dir())]).expect_success("a dry run");
    assert!(
        output.text().contains("would remove the fork first at "),
        "{}",
        output.text()
    );
    assert!(first.join("first.txt").exists());
    let output = script(&repo, &[]).expect_success("scripts/uninstall");
    assert!(
        output.text().contains("removed the fork second"),
        "{}",
        output.text()
    );
    assert_eq!(tine.daemon_pid(), None);
    assert_eq!(mounts_beneath(repo.root()).len(), 0);
    repo.git(&["fsck", "--strict"]);
    assert_eq!(repo.git(&["worktree", "list"]).lines().count(), 1);

    // What is left is what was asked for: commits on branches.
    repo.git(&["branch", "-D", "tine/first", "tine/second"]);
    let git_after = (
        repo.git(&["for-each-ref"]),
        repo.git(&["config", "--list", "--local"]),
    );
    assert_eq!(git_after, git_before);
    repo.git(&["prune", "--expire=now"]);
    assert_same(&before, &tree(repo.root()));
}

#[test]
fn work_that_nothing_else_has_is_named_and_nothing_is_removed() {
    require_fuse!();
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    fs::write(dir.join("new.txt"), "new\n").unwrap();
    tine.ok(&["new", "marked"]);
    tine.ok(&["snapshot", "marked", "here"]);
    tine.ok(&["new", "clean"]);
    tine.ok(&["round", "start", "--agents", "a"]);
    let forks = tine.ok(&["list"]);

    let refused = tine.fails(3, &["uninstall"]);
    for line in [
        "cause: demo has changes in 1 path that are not committed",
        "cause: marked has snapshots: here",
        "cause: the session default of rounds is not ended",
        "hint: ",
    ] {
        assert!(refused.contains(line), "{line} in {refused}");
    }
    let planned = tine.run(&["uninstall", "--dry-run"]);
    assert_eq!(planned.status.code(), Some(3));
    assert!(
        planned
            .text()
            .contains("refused without --force: marked has snapshots: here")
    );
    let program = path_text(Tine::program());
    let by_script = script(&repo, &["--tine", program, path_text(repo.dir())]);
    assert_eq!(by_script.status.code(), Some(3), "{}", by_script.text());
    assert_eq!(by_script.text(), "");
    assert!(
        by_script
            .error_text()
            .contains("demo has changes in 1 path"),
        "{}",
        by_script.error_text()
    );
    assert_eq!(tine.ok(&["list"]), forks);
    assert_eq!(fs::read_to_string(dir.join("new.txt")).unwrap(), "new\n");

    // A program that uses a mount is in the way as well, unless it is cut off.
    tine.ok(&["round", "clean", "--force"]);
    tine.ok(&["snapshot", "marked", "here", "--delete", "--force"]);
    tine.ok(&["recover", "purge", "--all"]);
    tine.ok(&["commit", "demo", "-m", "new"]);
    fs::write(dir.join("new.txt"), "newer\n").unwrap();
    let gone = tine.json(&["uninstall", "--force"]);
    let of_demo = gone["forks"]
        .as_array()
        .unwrap()
        .iter()
        .find(|fork| fork["fork"] == "demo")
        .unwrap();
    let kept = format!("refs/tine/+recover/{}", of_demo["recover"]);
    let refs_kept = gone["refs_kept"].as_array().unwrap();
    assert!(refs_kept.iter().any(|name| name == kept.as_str()), "{gone}");
    let commits = repo.git(&["ls-tree", "--name-only", &format!("{kept}:commits")]);
    let mut contents: Vec<(String, &str)> = commits
        .lines()
        .map(|commit| (repo.git(&["show", &format!("{commit}:new.txt")]), commit))
        .collect();
    contents.sort();
    let [(new, _), (newer, commit)] = contents.as_slice() else {
        panic!("what was committed, and what was not: {contents:?}");
    };
    assert_eq!((new.as_str(), newer.as_str()), ("new", "newer"));
    assert_eq!(
        repo.git(&["for-each-ref", "--format=%(refname)", "refs/tine"]),
        kept
    );
    assert!(!dir.exists() && !repo.common_dir().join("tine").exists());
    assert_eq!(tine.daemon_pid(), None);

    // That is work, too; nothing of it goes unasked.
    assert!(tine.fails(3, &["uninstall"]).contains(&kept));
    tine.ok(&["uninstall", "--keep-refs"]);
    tine.ok(&["uninstall", "--force"]);
    assert_eq!(
        repo.git(&["for-each-ref", "--format=%(refname)", "refs/tine"]),
        kept
    );
    repo.git(&["branch", "back", commit]);
    assert_eq!(tine.ok(&["uninstall"]), "removed 1 ref beneath refs/tine/");
    assert_eq!(
        tine.ok(&["uninstall"]),
        "there is nothing of tine's in this repository"
    );
}

/// Only the fork has the name, though all have the commit.
#[test]
fn a_tag_that_a_fork_alone_had_is_kept() {
    require_fuse!();
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    repo.git_in(&dir, &["tag", "mine"]);
    let gone = tine.json(&["uninstall"]);
    let kept = format!("refs/tine/+recover/{}", gone["forks"][0]["recover"]);
    assert_eq!(gone["refs_kept"], serde_json::json!([kept]));
    assert!(tine.fails(3, &["uninstall"]).contains(&kept));
    tine.ok(&["recover", "1"]);
    assert_eq!(repo.git_in(&dir, &["tag"]), "mine");
}

#[test]
fn refs_and_settings_of_others_stay() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    repo.git(&["config", "extensions.worktreeConfig", "true"]);
    repo.git(&["config", "--worktree", "core.hooksPath", "hooks"]);
    repo.git(&["config", "tineless.x", "1"]);
    repo.git(&["update-ref", "refs/tineless/x", "HEAD"]);
    let worktree = repo.root().join("linked");
    repo.git(&[
        "worktree",
        "add",
        "-q",
        "-b",
        "linked",
        path_text(&worktree),
    ]);
    let state = || {
        let heads = repo.git(&["for-each-ref"]);
        (
            heads,
            repo.git(&["config", "--list", "--local"]),
            repo.git(&["worktree", "list"]),
        )
    };
    let before = state();
    let dir = tine.new_fork("demo");
    fs::write(dir.parent().unwrap().join("mine.txt"), "mine\n").unwrap();
    tine.ok(&["unmount", "demo"]);
    tine.ok(&["daemon", "stop"]);
    tine.ok(&["uninstall"]);
    assert_eq!(state(), before);
    // So does what somebody put beside the forks.
    assert_eq!(
        fs::read_to_string(dir.parent().unwrap().join("mine.txt")).unwrap(),
        "mine\n"
    );
    // A look alone leaves no daemon behind.
    tine.ok(&["new", "again"]);
    tine.ok(&["daemon", "stop"]);
    tine.ok(&["uninstall", "--dry-run"]);
    assert_eq!(tine.daemon_pid(), None);
    assert!(repo.common_dir().join("tine").exists());
}

#[test]
fn repositories_of_directories_without_git_are_found() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    // Elsewhere: what is beneath target/ is in this repository.
    let place = tempfile::tempdir().unwrap();
    let notes = place.path().join("notes");
    fs::create_dir(&notes).unwrap();
    fs::write(notes.join("a.txt"), "a\n").unwrap();
    tine.ok(&[
        "round",
        "start",
        "--agents",
        "a",
        "--no-git",
        path_text(&notes),
    ]);
    let kept = repo.home().join(".local/share/tine");
    assert!(kept.join("directories").is_dir());
    let program = path_text(Tine::program());
    let refused = script(&repo, &["--tine", program]);
    assert_eq!(refused.status.code(), Some(3), "{}", refused.error_text());
    assert!(kept.join("directories").is_dir());
    script(&repo, &["--tine", program, "--force"]).expect_success("scripts/uninstall --force");
    assert!(!kept.exists());
    assert_eq!(tine.daemon_pid(), None);
    assert_eq!(fs::read_to_string(notes.join("a.txt")).unwrap(), "a\n");
}
