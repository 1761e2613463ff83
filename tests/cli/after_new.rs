//! Steps after a fork was made: git's `post-checkout`, the setup command of the user's
//! configuration, and where its commands see it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::json;

use crate::support::{
    OutputExt, TestRepo, Tine, require_fuse, require_namespace, run_with_timeout,
};

/// Writes an executable script.
fn script(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("#!/bin/sh\n{text}")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A hook that writes what it is given to `name` beside the repository.
fn telling(repo: &TestRepo, name: &str) -> String {
    let file = repo.root().join(name);
    format!(
        "echo \"$*|$(pwd)|$(git rev-parse --show-toplevel)|$(git rev-parse HEAD)\" >> {}\n",
        file.display()
    )
}

fn told(repo: &TestRepo, name: &str) -> String {
    fs::read_to_string(repo.root().join(name)).unwrap_or_default()
}

#[test]
fn a_new_fork_runs_post_checkout_as_a_new_worktree_does() {
    require_fuse!();
    let repo = TestRepo::new();
    script(
        &repo.git_dir().join("hooks/post-checkout"),
        &telling(&repo, "told"),
    );
    let tine = Tine::new(&repo);
    let dir = tine.ok(&["new", "demo"]);
    let head = repo.git(&["rev-parse", "HEAD"]);
    let expected = format!("{} {head} 1|{dir}|{dir}|{head}\n", "0".repeat(40));
    assert_eq!(told(&repo, "told"), expected);
    // git itself, of a worktree.
    fs::remove_file(repo.root().join("told")).unwrap();
    repo.git(&["worktree", "add", "-q", "../linked"]);
    let linked = repo.root().join("linked");
    assert_eq!(
        told(&repo, "told"),
        expected.replace(&dir, linked.to_str().unwrap())
    );

    // Nothing is checked out, as with `git worktree add --no-checkout`.
    fs::remove_file(repo.root().join("told")).unwrap();
    tine.ok(&["new", "later", "--no-mount"]);
    assert_eq!(told(&repo, "told"), "");

    // Of a directory that the configuration names.
    let other = repo.root().join("other-hooks");
    script(&other.join("post-checkout"), &telling(&repo, "told-there"));
    repo.git(&["config", "core.hooksPath", other.to_str().unwrap()]);
    tine.ok(&["exec", "third", "--new", "--", "true"]);
    assert_eq!(told(&repo, "told"), "");
    assert_eq!(told(&repo, "told-there").lines().count(), 1);
}

#[test]
fn a_failing_post_checkout_ends_the_command_as_git_does_and_the_fork_stays() {
    require_fuse!();
    let repo = TestRepo::new();
    script(
        &repo.git_dir().join("hooks/post-checkout"),
        "echo out; echo no >&2; exit 41\n",
    );
    let tine = Tine::new(&repo);
    let output = tine.run(&["new", "demo"]);
    assert_eq!(output.status.code(), Some(41));
    let dir = repo.root().join("repo.forks/demo");
    assert_eq!(output.text(), dir.to_str().unwrap());
    let said = output.error_text();
    assert!(
        said.contains("the hook post-checkout failed") && said.contains("no\n"),
        "{said}"
    );
    assert!(dir.join("README.md").is_file());
    let git = repo
        .command("git", repo.dir())
        .args(["worktree", "add", "-q", "../linked"])
        .status()
        .unwrap();
    assert_eq!(git.code(), Some(41));

    let output = tine.run(&["new", "two", "--json"]);
    assert_eq!(output.status.code(), Some(41));
    let made: serde_json::Value = serde_json::from_str(&output.text()).unwrap();
    assert_eq!(made["failed"][0]["code"], "hook-failed");
    assert_eq!(made["mounted"], true);
    let said = tine.fails(1, &["exec", "three", "--new", "--", "echo", "ran"]);
    assert!(said.contains("the hook post-checkout failed"), "{said}");
}

#[test]
fn a_switch_of_branches_runs_post_checkout_as_git_does() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.ok(&["new", "demo"]);
    let old = repo.git(&["rev-parse", "HEAD"]);
    repo.git(&["branch", "other"]);
    repo.commit_files(&[("more.txt", b"more\n")], "more");
    let new = repo.git(&["rev-parse", "HEAD"]);
    repo.git(&["branch", "-f", "other", &new]);
    script(
        &repo.git_dir().join("hooks/post-checkout"),
        &telling(&repo, "told"),
    );
    tine.ok(&["branch", "switch", "demo", "other"]);
    assert_eq!(
        told(&repo, "told"),
        format!("{old} {new} 1|{dir}|{dir}|{new}\n")
    );
    script(&repo.git_dir().join("hooks/post-checkout"), "exit 41\n");
    let said = tine.fails(1, &["branch", "switch", "demo", "--create", "fresh"]);
    assert!(said.contains("the hook post-checkout failed"), "{said}");
    assert_eq!(
        repo.git_in(Path::new(&dir), &["branch", "--show-current"]),
        "fresh"
    );
}

#[test]
fn the_setup_command_of_the_user_runs_in_each_new_fork() {
    require_fuse!();
    let repo = TestRepo::new();
    repo.git(&[
        "config",
        "tine.setup",
        "echo \"$TINE_FORK $(pwd)\" | tee set-up; ls README.md",
    ]);
    let tine = Tine::new(&repo);
    let output = tine.run(&["new", "demo"]).expect_success("tine new");
    let dir = output.text();
    assert_eq!(
        dir,
        repo.root().join("repo.forks/demo").to_str().unwrap(),
        "nothing else on standard output"
    );
    assert_eq!(
        fs::read_to_string(Path::new(&dir).join("set-up")).unwrap(),
        format!("demo {dir}\n")
    );
    assert!(
        output.error_text().contains("README.md"),
        "{}",
        output.error_text()
    );
    let dir = tine.ok(&["new", "bare", "--no-setup"]);
    assert!(!Path::new(&dir).join("set-up").exists());
    tine.ok(&["exec", "third", "--new", "--", "test", "-e", "set-up"]);

    repo.git(&["config", "tine.setup", "echo broken >&2; exit 9"]);
    let output = tine.run(&["new", "stays"]);
    assert_eq!(output.status.code(), Some(1));
    let said = output.error_text();
    assert!(
        said.contains("the setup command of stays failed")
            && said.contains("broken")
            && said.contains("--no-setup"),
        "{said}"
    );
    assert!(Path::new(&output.text()).join("README.md").is_file());
    let made = tine.run(&["new", "json", "--json"]);
    let made: serde_json::Value = serde_json::from_str(&made.text()).unwrap();
    assert_eq!(made["failed"][0]["code"], "setup-failed");
}

#[test]
fn no_file_of_the_tree_says_what_the_setup_is() {
    require_fuse!();
    let repo = TestRepo::new();
    repo.commit_files(
        &[(".gitsettings", b"[tine]\n\tsetup = touch brought\n")],
        "settings",
    );
    repo.git(&["config", "include.path", "../.gitsettings"]);
    assert_eq!(repo.git(&["config", "tine.setup"]), "touch brought");
    let tine = Tine::new(&repo);
    let dir = tine.ok(&["new", "demo"]);
    assert!(!Path::new(&dir).join("brought").exists());
    // Nor a file of another checkout of it, such as a fork.
    repo.git(&["config", "include.path", &format!("{dir}/.gitsettings")]);
    let other = tine.ok(&["new", "other"]);
    assert!(!Path::new(&other).join("brought").exists());
    // What a user includes from elsewhere counts.
    fs::write(repo.root().join("mine"), "[tine]\n\tsetup = touch mine\n").unwrap();
    repo.git(&["config", "--add", "include.path", "../../mine"]);
    let dir = tine.ok(&["new", "two"]);
    assert!(Path::new(&dir).join("mine").exists());
}

#[test]
fn commands_see_the_fork_at_the_main_checkout_where_that_is_set() {
    require_namespace!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let main = repo.dir().to_str().unwrap().to_owned();
    let pwd = |args: &[&str]| tine.ok(&[args, &["--", "pwd"]].concat());
    let own = tine.ok(&["new", "own"]);
    assert_eq!(pwd(&["exec", "own"]), own);
    let made = tine.json(&["new", "there", "--at-origin"]);
    assert_eq!(made["at_origin"], json!(true));
    assert_eq!(pwd(&["exec", "there"]), main);
    assert_eq!(
        pwd(&["exec", "there", "--no-at-origin"]),
        made["mount_dir"].as_str().unwrap()
    );
    // What a fork inherits was built there.
    tine.ok(&["new", "child", "--from-fork", "there"]);
    assert_eq!(pwd(&["exec", "child"]), main);
    tine.ok(&["daemon", "stop"]);
    assert_eq!(pwd(&["exec", "child"]), main, "it is in the record");

    repo.git(&["config", "tine.atOrigin", "true"]);
    assert_eq!(pwd(&["exec", "own"]), main);
    let mut shell = tine.command(&["shell", "own"]);
    shell.env("SHELL", "/bin/pwd");
    assert_eq!(run_with_timeout(&mut shell).text(), main);
    repo.git(&["config", "tine.setup", "pwd > set-up"]);
    let dir = tine.ok(&["new", "fresh"]);
    assert_eq!(
        fs::read_to_string(Path::new(&dir).join("set-up")).unwrap(),
        format!("{main}\n")
    );
    let dir = tine.ok(&["new", "fourth", "--no-at-origin"]);
    assert_eq!(pwd(&["exec", "fourth"]), dir);
    // A command that stands there already goes on in the other fork's own place.
    let program = Tine::program().display().to_string();
    let inner = tine.ok(&["exec", "own", "--", &program, "exec", "fresh", "--", "pwd"]);
    assert_eq!(
        inner,
        repo.root().join("repo.forks/fresh").to_str().unwrap()
    );
}

#[test]
fn a_target_directory_that_is_shared_is_told_and_a_fork_may_have_its_own() {
    require_fuse!();
    let repo = TestRepo::new();
    repo.commit_files(&[("Cargo.toml", b"[package]\n")], "crate");
    let shared = repo.root().join("shared");
    fs::create_dir_all(repo.home().join(".cargo")).unwrap();
    fs::write(
        repo.home().join(".cargo/config.toml"),
        format!("[build]\ntarget-dir = \"{}\"\n", shared.display()),
    )
    .unwrap();
    let tine = Tine::new(&repo);
    let run = |args: &[&str]| {
        let mut command = tine.command(args);
        command
            .env_remove("CARGO_HOME")
            .env_remove("CARGO_TARGET_DIR");
        run_with_timeout(&mut command).expect_success("tine")
    };
    let output = run(&["new", "demo"]);
    let dir = output.text();
    let told = format!("cargo builds into {}", shared.display());
    assert!(
        output.error_text().contains(&told),
        "{}",
        output.error_text()
    );
    let env = [
        "exec",
        "demo",
        "--",
        "sh",
        "-c",
        "echo ${CARGO_TARGET_DIR-unset}",
    ];
    assert_eq!(run(&env).text(), "unset");
    repo.git(&["config", "tine.cargoTargetDir", "own"]);
    let output = run(&env);
    assert_eq!(
        (output.text(), output.error_text()),
        (format!("{dir}/target"), String::new())
    );
    repo.git(&["config", "tine.cargoTargetDir", "shared"]);
    let output = run(&env);
    assert_eq!(
        (output.text(), output.error_text()),
        ("unset".into(), String::new())
    );
}
