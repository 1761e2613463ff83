//! Committing: what is committed, who, and which hooks are asked.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::refused;
use crate::support::{OutputExt, TestRepo, Tine, require_fuse, run_with_timeout};

#[test]
fn a_commit_is_what_git_add_and_commit_would_make() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    repo.sh_in(
        &dir,
        "echo four >> docs/guide.md; rm README.md; mkdir -p target && echo x > target/x; git mv src lib",
    );
    let said = tine.ok(&[
        "commit",
        "demo",
        "-m",
        "Change things",
        "-m",
        "And say why.",
    ]);
    let head = repo.git_in(&dir, &["rev-parse", "HEAD"]);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(
        lines[0],
        format!("[tine/demo {}] Change things", &head[..7])
    );
    assert!(
        lines[1].contains("files changed, ") && lines.len() == 2,
        "{said}"
    );
    assert_eq!(
        repo.git_in(&dir, &["log", "-1", "--format=%B"]),
        "Change things\n\nAnd say why."
    );
    assert_eq!(repo.git_in(&dir, &["rev-parse", "HEAD~1"]), repo.head());
    assert_eq!(repo.git_in(&dir, &["status", "--porcelain"]), "");
    assert_eq!(
        repo.git(&["show", "tine/demo:lib/main.rs"]),
        fs::read_to_string(dir.join("lib/main.rs"))
            .unwrap()
            .trim_end()
    );
    assert!(dir.join("target/x").exists(), "what is ignored stays");
    assert!(tine.ok(&["status", "demo"]).ends_with("nothing to commit"));

    // git itself makes the same tree of the same changes.
    let other = repo.git_checkout_of("main", "other");
    repo.sh_in(
        &other,
        "echo four >> docs/guide.md; rm README.md; git mv src lib; git add -A",
    );
    assert_eq!(
        repo.git_in(&other, &["write-tree"]),
        repo.git(&["rev-parse", "tine/demo^{tree}"])
    );
    repo.git(&["fsck", "--strict"]);
}

#[test]
fn a_commit_tells_machines_what_it_made() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    fs::write(dir.join("new.txt"), "new\n").unwrap();
    let made = tine.json(&["commit", "demo", "-m", "New file"]);
    assert_eq!(made["commit"], repo.git(&["rev-parse", "tine/demo"]));
    assert_eq!(made["tree"], repo.git(&["rev-parse", "tine/demo^{tree}"]));
    assert_eq!(made["parent"], repo.head());
    assert_eq!(
        (&made["summary"], &made["branch"]),
        (&json!("New file"), &json!("tine/demo"))
    );
    assert_eq!(made["changes"][0]["path"], "new.txt");
    assert_eq!(made["changes"][0]["kind"], "added");
}

#[test]
fn nothing_to_commit_and_an_empty_message_are_refused() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    refused(
        &repo,
        &tine,
        &["commit", "demo", "-m", "m"],
        "nothing-to-commit",
        3,
    );
    fs::write(dir.join("new.txt"), "new\n").unwrap();
    refused(
        &repo,
        &tine,
        &["commit", "demo", "-m", ""],
        "empty-message",
        2,
    );
    refused(
        &repo,
        &tine,
        &["commit", "demo", "-m", " \n"],
        "empty-message",
        2,
    );
    refused(&repo, &tine, &["commit", "demo"], "usage", 2);
    assert!(tine.ok(&["status", "demo"]).contains("A new.txt"));
}

#[test]
fn an_operation_under_way_is_to_be_ended_first() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    repo.sh_in(
        &dir,
        "echo a > README.md && git commit -qam a && git checkout -qb other HEAD~1",
    );
    repo.sh_in(&dir, "echo b > README.md && git commit -qam b");
    assert!(
        !repo
            .try_git_in(&dir, &["merge", "tine/demo"])
            .status
            .success()
    );
    let failure = refused(
        &repo,
        &tine,
        &["commit", "demo", "-m", "m"],
        "operation-in-progress",
        3,
    );
    assert!(
        failure["hint"]
            .as_str()
            .unwrap()
            .contains("git merge --abort"),
        "{failure}"
    );
}

#[test]
fn what_another_git_command_has_locked_is_named_and_left_alone() {
    require_fuse!();
    for repo in [TestRepo::new(), TestRepo::new().with_linked_forks()] {
        names_what_is_locked(&repo);
    }
}

fn names_what_is_locked(repo: &TestRepo) {
    let tine = Tine::new(repo);
    let dir = tine.new_fork("demo");
    fs::write(dir.join("new.txt"), "new\n").unwrap();
    let git_dir = repo.git_dir_of_fork("demo");
    let is_own = git_dir.join("refs/heads").exists();
    let refs_dir = if is_own {
        git_dir.clone()
    } else {
        repo.common_dir()
    };
    for (lock, code) in [
        (git_dir.join("index.lock"), "index-locked"),
        (git_dir.join("HEAD.lock"), "ref-locked"),
        (refs_dir.join("refs/heads/tine/demo.lock"), "ref-locked"),
    ] {
        fs::write(&lock, "").unwrap();
        let failure = refused(repo, &tine, &["commit", "demo", "-m", "m"], code, 5);
        let hint = failure["hint"].as_str().unwrap();
        assert!(hint.contains(lock.to_str().unwrap()), "{failure}");
        assert!(lock.exists());
        fs::remove_file(&lock).unwrap();
        assert_eq!(repo.status(&dir), "?? new.txt", "nothing is staged");
    }
    tine.ok(&["commit", "demo", "-m", "m"]);
}

#[test]
fn identities_are_found_as_git_finds_them() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    let who = || repo.git_in(&dir, &["log", "-1", "--format=%an <%ae> %cn <%ce>"]);
    let mut number = 0;
    let mut change = || {
        number += 1;
        fs::write(dir.join("file"), number.to_string()).unwrap();
    };

    change();
    tine.ok(&["commit", "demo", "-m", "from the environment"]);
    assert_eq!(
        who(),
        "Ada Author <ada@example.org> Carl Committer <carl@example.org>"
    );

    change();
    tine.ok(&[
        "commit",
        "demo",
        "-m",
        "as said",
        "--author",
        "Grace <grace@example.org>",
    ]);
    assert_eq!(
        who(),
        "Grace <grace@example.org> Carl Committer <carl@example.org>"
    );

    change();
    tine.ok(&[
        "commit",
        "demo",
        "-m",
        "as an earlier one",
        "--author",
        "ada auth",
    ]);
    assert_eq!(
        who(),
        "Ada Author <ada@example.org> Carl Committer <carl@example.org>"
    );

    change();
    refused(
        &repo,
        &tine,
        &["commit", "demo", "-m", "m", "--author", "Nobody Known"],
        "usage",
        2,
    );

    // From the configuration, of a caller without such variables.
    let anonymous = |args: &[&str]| {
        let mut command = tine.command(args);
        for name in [
            "GIT_AUTHOR_NAME",
            "GIT_AUTHOR_EMAIL",
            "GIT_COMMITTER_NAME",
            "GIT_COMMITTER_EMAIL",
            "EMAIL",
        ] {
            command.env_remove(name);
        }
        run_with_timeout(&mut command)
    };
    repo.git(&["config", "user.useConfigOnly", "true"]);
    let before = repo.git(&["for-each-ref"]);
    let output = anonymous(&["commit", "demo", "-m", "m", "--json"]);
    assert_eq!(output.status.code(), Some(6), "{}", output.text());
    let failure = crate::failure_of(&output, "commit without an identity");
    assert_eq!(failure["code"], "no-identity");
    assert!(
        failure["hint"].as_str().unwrap().contains("git config"),
        "{failure}"
    );
    assert_eq!(repo.git(&["for-each-ref"]), before);

    repo.git(&["config", "user.name", "Conny Config"]);
    repo.git(&["config", "user.email", "conny@example.org"]);
    anonymous(&["commit", "demo", "-m", "configured"]).expect_success("commit");
    assert_eq!(
        who(),
        "Conny Config <conny@example.org> Conny Config <conny@example.org>"
    );
}

#[test]
fn times_are_those_that_the_callers_environment_sets() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    let when = || repo.git_in(&dir, &["log", "-1", "--format=%an %aI %cI"]);
    let commit = |content: &str, more: &[&str], variables: &[(&str, &str)]| {
        fs::write(dir.join("file"), content).unwrap();
        let args = [&["commit", "demo", "-m", "m"], more].concat();
        run_with_timeout(tine.command(&args).envs(variables.iter().copied()))
    };
    let dates = [
        ("GIT_AUTHOR_DATE", "2001-02-03T04:05:06+0530"),
        ("GIT_COMMITTER_DATE", "@981173106 -0330"),
    ];
    commit("1", &[], &dates).expect_success("commit");
    assert_eq!(
        when(),
        "Ada Author 2001-02-03T04:05:06+05:30 2001-02-03T00:35:06-03:30"
    );

    repo.hook(
        "pre-commit",
        "echo \"$GIT_AUTHOR_NAME $GIT_AUTHOR_DATE\" > \"$HOME/told\"",
    );
    let as_said = ["--author", "Grace <grace@example.org>"];
    commit("2", &as_said, &dates).expect_success("commit as somebody else");
    assert_eq!(
        when(),
        "Grace 2001-02-03T04:05:06+05:30 2001-02-03T00:35:06-03:30"
    );
    let told = fs::read_to_string(repo.home().join("told")).unwrap();
    assert_eq!(told, "Grace @981153306 +0530\n");

    // Without them it is now, in the caller's own time zone, whatever the daemon's is.
    commit("3", &[], &[("TZ", "XYZ-5:45")]).expect_success("commit now");
    let now = repo.git_in(&dir, &["log", "-1", "--format=%aI %cI"]);
    assert!(now.split(' ').all(|time| time.ends_with("+05:45")), "{now}");
    let secs: u64 = repo
        .git_in(&dir, &["log", "-1", "--format=%ct"])
        .parse()
        .unwrap();
    let since_1970 = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    assert!(since_1970 - secs < 60, "{now}");

    let before = repo.git(&["for-each-ref"]);
    let output = commit("4", &["--json"], &[("GIT_AUTHOR_DATE", "yesteryear")]);
    let failure = crate::failure_of(&output, "commit at no time");
    assert_eq!(failure["code"], "usage", "{failure}");
    assert_eq!(repo.git(&["for-each-ref"]), before);
}

#[test]
fn hooks_see_what_is_committed_and_may_change_the_message() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    let trace = repo.root().join("trace");
    let trace = trace.display();
    repo.hook(
        "pre-commit",
        &format!(
            "echo \"pre $PWD\" >> {trace}; git diff --cached --name-only >> {trace}; echo to stdout"
        ),
    );
    repo.hook(
        "prepare-commit-msg",
        &format!("echo \"prepare $2\" >> {trace}; printf '\\nPrepared: yes\\n' >> \"$1\""),
    );
    repo.hook(
        "commit-msg",
        &format!("echo msg >> {trace}; echo 'Checked: yes' >> \"$1\""),
    );
    repo.hook(
        "post-commit",
        &format!("echo \"post $(git log -1 --format=%s)\" >> {trace}; exit 1"),
    );
    fs::write(dir.join("new.txt"), "new\n").unwrap();
    fs::remove_file(dir.join("README.md")).unwrap();
    let output = tine
        .run(&["commit", "demo", "-m", "Subject"])
        .expect_success("commit");
    assert!(
        output.text().starts_with("[tine/demo "),
        "{}",
        output.text()
    );
    assert!(
        output.error_text().contains("to stdout"),
        "a hook's output is no answer: {}",
        output.error_text()
    );
    assert_eq!(
        fs::read_to_string(repo.root().join("trace")).unwrap(),
        format!(
            "pre {}\nREADME.md\nnew.txt\nprepare message\nmsg\npost Subject\n",
            dir.display()
        )
    );
    assert_eq!(
        repo.git_in(&dir, &["log", "-1", "--format=%B"]).trim_end(),
        "Subject\n\nPrepared: yes\nChecked: yes"
    );
    assert_eq!(repo.git_in(&dir, &["status", "--porcelain"]), "");
    let git_dir = PathBuf::from(repo.git_in(&dir, &["rev-parse", "--absolute-git-dir"]));
    assert!(
        !crate::names_in(&git_dir).contains("tine-commit"),
        "no index stays behind"
    );
}

#[test]
fn a_hook_that_refuses_changes_nothing_and_can_be_skipped() {
    require_fuse!();
    for name in ["pre-commit", "commit-msg"] {
        let repo = TestRepo::new();
        let tine = Tine::new(&repo);
        let dir = tine.new_fork("demo");
        repo.hook(name, "exit 3");
        fs::write(dir.join("new.txt"), "new\n").unwrap();
        let failure = refused(
            &repo,
            &tine,
            &["commit", "demo", "-m", "m"],
            "hook-refused",
            3,
        );
        assert!(
            failure["message"].as_str().unwrap().contains(name),
            "{failure}"
        );
        assert!(
            failure["hint"].as_str().unwrap().contains("--no-verify"),
            "{failure}"
        );
        assert_eq!(
            repo.git_in(&dir, &["status", "--porcelain"]),
            "?? new.txt",
            "nothing is staged"
        );
        tine.ok(&["commit", "demo", "-m", "m", "--no-verify"]);
        assert_eq!(repo.git(&["show", "tine/demo:new.txt"]), "new");
    }
}

#[test]
fn what_an_unmount_or_a_handoff_commits_goes_through_the_hooks() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let ways: [(&[&str], &[&str]); 5] = [
        (&[], &["unmount", "demo", "--commit", "-m", "work"]),
        (&[], &["unmount", "demo", "--merge=main"]),
        (
            &[],
            &["unmount", "demo", "--handoff", "--include-uncommitted"],
        ),
        (&["--on-unmount", "commit"], &["unmount", "demo"]),
        (&[], &["handoff", "create", "demo", "--include-uncommitted"]),
    ];
    for (number, (policy, way)) in ways.into_iter().enumerate() {
        let log = repo.root().join("hooks.log");
        for name in ["pre-commit", "commit-msg", "post-commit"] {
            repo.hook(name, &format!("echo {name} >> {}", log.display()));
        }
        repo.hook("pre-commit", "echo 'not like this' >&2; exit 1");
        let dir = PathBuf::from(tine.ok(&[&["new", "demo"], policy].concat()));
        fs::write(dir.join("README.md"), format!("{number}\n")).unwrap();
        let before = repo.git(&["for-each-ref"]);
        let said = tine.fails(3, way);
        assert!(said.contains("not like this"), "{way:?}: {said}");
        assert_eq!(repo.git(&["for-each-ref"]), before, "{way:?}");
        assert_eq!(
            fs::read_to_string(dir.join("README.md")).unwrap(),
            format!("{number}\n")
        );
        assert!(!log.exists(), "{way:?}");

        repo.hook(
            "pre-commit",
            &format!("echo pre-commit >> {}", log.display()),
        );
        tine.ok(way);
        assert_eq!(
            fs::read_to_string(&log).unwrap(),
            "pre-commit\ncommit-msg\npost-commit\n",
            "{way:?}"
        );
        assert_eq!(
            repo.git(&["show", "tine/demo:README.md"]),
            number.to_string(),
            "{way:?}"
        );
        fs::remove_file(&log).unwrap();
        tine.ok(&["delete", "demo", "--force"]);
        repo.git(&["branch", "-qD", "tine/demo"]);
    }
}

#[test]
fn without_a_mount_the_hooks_are_skipped_and_a_note_says_so() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    fs::write(dir.join("new.txt"), "new\n").unwrap();
    tine.ok(&["unmount", "demo"]);
    repo.hook("pre-commit", "exit 1");
    let output = tine
        .run(&["commit", "demo", "-m", "m"])
        .expect_success("commit");
    assert_eq!(
        output.error_text(),
        "note: the hooks are skipped: the fork is not mounted, and they need a checkout\n"
    );
    assert_eq!(repo.git(&["show", "tine/demo:new.txt"]), "new");
    tine.ok(&["mount", "demo"]);
    assert_eq!(repo.git_in(&dir, &["status", "--porcelain"]), "");
}

#[test]
fn a_commit_by_git_inside_and_one_by_tine_follow_each_other() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    repo.sh_in(&dir, "echo 1 > one && git add -A && git commit -qm one");
    assert!(tine.ok(&["status", "demo"]).ends_with("nothing to commit"));
    fs::write(Path::new(&dir).join("two"), "2\n").unwrap();
    tine.ok_in(&dir, &["commit", "-m", "two"]);
    repo.sh_in(
        &dir,
        "git rm -q one && git commit -qm three && git status --porcelain",
    );
    let subjects = repo.git_in(&dir, &["log", "--format=%s"]);
    assert_eq!(subjects, "three\ntwo\none\nbase");
    let head = repo.git_in(&dir, &["rev-parse", "--short=7", "HEAD"]);
    assert!(
        tine.ok(&["status", "demo"])
            .contains(&format!("HEAD {head}, fork point "))
    );
}

#[test]
fn a_submodule_is_committed_where_its_head_is() {
    require_fuse!();
    let repo = TestRepo::new();
    let library = repo.root().join("library");
    repo.sh_in(
        repo.root(),
        "git init -q library && cd library && echo one > code && git add code && git commit -qm one",
    );
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    let add = format!(
        "git -c protocol.file.allow=always submodule --quiet add {} lib",
        library.display()
    );
    repo.sh_in(&dir, &add);
    let first = repo.git_in(&library, &["rev-parse", "HEAD"]);
    tine.ok(&["commit", "demo", "-m", "Add the library"]);
    let gitlink = |commit: &str| format!("160000 commit {commit}\tlib");
    assert_eq!(repo.git(&["ls-tree", "tine/demo", "lib"]), gitlink(&first));
    assert!(
        repo.git(&["show", "tine/demo:.gitmodules"])
            .contains("path = lib")
    );
    assert_eq!(repo.status(&dir), "");

    repo.sh_in(&dir.join("lib"), "echo two > code && git commit -qam two");
    let second = repo.git_in(&dir.join("lib"), &["rev-parse", "HEAD"]);
    assert_eq!(tine.ok(&["status", "demo"]).lines().nth(1), Some("M lib"));
    tine.ok(&["commit", "demo", "-m", "Raise the library"]);
    assert_eq!(repo.git(&["ls-tree", "tine/demo", "lib"]), gitlink(&second));
    assert_eq!(repo.status(&dir), "");
    assert!(tine.ok(&["status", "demo"]).ends_with("nothing to commit"));
    let refused = tine.fails(3, &["delete", "demo"]);
    assert!(refused.contains("repositories of submodules"), "{refused}");
    tine.ok(&["delete", "demo", "--force"]);
}

#[test]
fn a_nested_repository_counts_once_git_tracks_it() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    repo.sh_in(
        &dir,
        "git init -q own && cd own && echo one > code && git add code && git commit -qm one && git pack-refs --all",
    );
    let status = tine.ok(&["status", "demo"]);
    assert!(status.contains("! own (left out"), "{status}");
    repo.sh_in(&dir, "git -c advice.addEmbeddedRepo=false add own");
    assert_eq!(tine.ok(&["status", "demo"]).lines().nth(1), Some("A own"));
    tine.ok(&["commit", "demo", "-m", "Add a gitlink"]);
    let head = repo.git_in(&dir.join("own"), &["rev-parse", "HEAD"]);
    assert_eq!(
        repo.git(&["ls-tree", "tine/demo", "own"]),
        format!("160000 commit {head}\town")
    );
    assert_eq!(repo.status(&dir), "");
    let refused = tine.fails(3, &["delete", "demo"]);
    assert!(
        refused.contains("has a repository of its own in own"),
        "{refused}"
    );
    tine.ok(&["delete", "demo", "--force"]);
}

/// `delete` must refuse, naming the checkout at `path` of the fork `demo`, and change nothing.
#[track_caller]
fn refuses_to_delete_checkout(tine: &Tine<'_>, dir: &Path, path: &str) {
    let refused = tine.fails(3, &["delete", "demo"]);
    let named = format!("has a checkout of another repository in {path}");
    assert!(refused.contains(&named), "{refused}");
    let unsaved = fs::read_to_string(dir.join(path).join("unsaved")).unwrap();
    assert_eq!(unsaved, "work\n");
}

#[test]
fn a_tracked_checkout_of_a_repository_elsewhere_is_not_taken_along_unasked() {
    require_fuse!();
    let repo = TestRepo::new();
    let library = repo.root().join("library");
    repo.sh_in(
        repo.root(),
        "git init -q library && cd library && echo one > code && git add code && git commit -qm one",
    );
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    let add = |script: String| {
        repo.sh_in(
            &dir,
            &format!(
                "{script} && git -c advice.addEmbeddedRepo=false add lib && git commit -qm gitlink"
            ),
        );
        repo.sh_in(&dir, "echo work > lib/unsaved && echo more >> lib/code");
    };
    let mounted_lib = dir.join("lib");
    add(format!(
        "git -C {} worktree add -q {}",
        library.display(),
        mounted_lib.display()
    ));
    assert!(mounted_lib.join(".git").is_file());
    refuses_to_delete_checkout(&tine, &dir, "lib");
    // What throws away keeps a snapshot, which has it.
    tine.ok(&["reset", "demo"]);
    tine.ok(&["restore", "demo", "before-reset-1"]);
    refuses_to_delete_checkout(&tine, &dir, "lib");
    tine.ok(&["unmount", "demo", "--discard"]);
    tine.ok(&["mount", "demo"]);
    tine.ok(&["restore", "demo", "before-discard-3"]);
    refuses_to_delete_checkout(&tine, &dir, "lib");
    tine.ok(&["delete", "demo", "--force"]);

    // A repository whose git directory is elsewhere.
    repo.git(&["branch", "-D", "tine/demo"]);
    let dir = tine.new_fork("demo");
    repo.sh_in(
        &dir,
        &format!(
            "git clone -q --separate-git-dir={} {} lib && git -c advice.addEmbeddedRepo=false add lib && git commit -qm gitlink",
            repo.root().join("elsewhere.git").display(),
            library.display()
        ),
    );
    repo.sh_in(&dir, "echo work > lib/unsaved");
    refuses_to_delete_checkout(&tine, &dir, "lib");
    tine.ok(&["delete", "demo", "--force"]);
}

#[test]
fn git_runs_for_the_figures_of_a_commit_only() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    // Once for each repository tine sets this by itself, before its first fork.
    repo.git(&["config", "extensions.worktreeConfig", "true"]);
    let (bin, trace) = (repo.root().join("bin"), repo.root().join("trace"));
    fs::create_dir(&bin).unwrap();
    let path = std::env::var("PATH").unwrap();
    let recorder = format!(
        "#!/bin/sh\necho \"$1\" >> '{}'\nPATH='{path}' exec git \"$@\"\n",
        trace.display()
    );
    fs::write(bin.join("git"), recorder).unwrap();
    fs::set_permissions(bin.join("git"), fs::Permissions::from_mode(0o755)).unwrap();
    let recorded_path = format!("{}:{path}", bin.display());
    let run = |args: &[&str]| {
        let mut command = tine.command(args);
        run_with_timeout(command.env("PATH", &recorded_path)).expect_success(args[0]);
    };
    run(&["new", "demo"]);
    let dir = PathBuf::from(tine.ok(&["path", "demo"]));
    fs::write(dir.join("README.md"), "new\n").unwrap();
    run(&["status", "demo"]);
    run(&["commit", "demo", "-m", "m"]);
    assert_eq!(repo.git_in(&dir, &["log", "-1", "--format=%s"]), "m");
    let ran = fs::read_to_string(&trace).unwrap();
    // The daemon looks once which git it is.
    let ran: Vec<&str> = ran.lines().filter(|verb| *verb != "version").collect();
    // A fork is lent the main repository's settings as git reads them.
    assert_eq!(ran, ["config", "diff-tree"]);
}

/// Runs `tine` with `args`, and `git gc --prune=now` each time when something is written and a ref
/// is about to name it.
fn collected_before_refs(repo: &TestRepo, tine: &Tine<'_>, points: &Path, args: &[&str]) {
    let armed = ["before-ref", "before-keeping"].map(|point| points.join(point));
    let reached = armed
        .each_ref()
        .map(|point| point.with_extension("reached"));
    for point in &armed {
        fs::write(point, "").unwrap();
    }
    let mut collected = 0;
    std::thread::scope(|scope| {
        let command = scope.spawn(|| tine.run(args));
        while !command.is_finished() {
            if !reached.iter().any(|file| file.exists()) {
                std::thread::yield_now();
                continue;
            }
            repo.git(&["gc", "-q", "--prune=now"]);
            collected += 1;
            for (point, file) in armed.iter().zip(&reached) {
                if file.exists() {
                    fs::write(point, "").unwrap();
                    fs::remove_file(file).unwrap();
                }
            }
        }
        command
            .join()
            .unwrap()
            .expect_success(&format!("tine {args:?}"));
    });
    assert!(collected > 0);
    for point in &armed {
        fs::remove_file(point).unwrap();
    }
    repo.git(&["fsck", "--strict"]);
}

#[test]
fn what_git_gc_removes_before_a_ref_names_it_is_written_again() {
    require_fuse!();
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    let points = repo.root().join("points");
    fs::create_dir(&points).unwrap();
    let mut first = tine.command(&["new", "demo"]);
    let dir = PathBuf::from(run_with_timeout(first.env("TINE_PAUSE_IN", &points)).text());
    repo.sh_in(&dir, "seq 1000 > lines");
    tine.ok(&["commit", "demo", "-m", "Lines"]);
    tine.ok(&["merge", "demo", "--into", "main"]);

    // Among them one that is not kept in memory.
    let sizes = [10, 3_000, 70_000, 300_000, 6 << 20];
    let content = |size: usize| format!("{size} bytes ").repeat(size / 8).into_bytes();
    for size in sizes {
        fs::write(dir.join(format!("f{size}")), content(size)).unwrap();
    }
    repo.sh_in(&dir, "sed -i 1s/$/a/ lines");
    collected_before_refs(&repo, &tine, &points, &["commit", "demo", "-m", "Files"]);

    // Trees, a blob and a commit that only a merge makes.
    repo.sh_in(
        repo.dir(),
        "sed -i 999s/$/b/ lines && git commit -qam theirs && git checkout -q --detach",
    );
    collected_before_refs(&repo, &tine, &points, &["merge", "demo", "--into", "main"]);
    let merged = repo.sh_in(repo.dir(), "git show main:lines | sed -n '1p;999p'");
    assert_eq!(merged, "1a\n999b");

    repo.git(&["gc", "-q", "--prune=now"]);
    tine.ok(&["daemon", "stop"]);
    tine.ok(&["mount", "demo"]);
    for size in sizes {
        assert!(
            fs::read(dir.join(format!("f{size}"))).unwrap() == content(size),
            "{size}"
        );
    }
}
