//! What is refused: a message, a cause, a hint, a stable code, an exit code, and nothing changed.

use std::fs;
use std::process::Command;
use std::time::Duration;

use crate::support::{
    OutputExt, TestRepo, Tine, repo::path_text, require_fuse, require_program, require_root,
    run_with_timeout, skip, test_name, wait_until,
};
use crate::{failure_of, refused, state};

#[test]
fn names_that_are_none() {
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let long = "x".repeat(65);
    for name in [
        "", ".", "..", "a/b", "a b", ".hidden", "x.lock", "a..b", "naïve", "x.", &long, "a\nb",
    ] {
        refused(&repo, &tine, &["new", name], "invalid-fork-name", 2);
        refused(&repo, &tine, &["status", name], "invalid-fork-name", 2);
    }
    assert!(
        !repo.common_dir().join("tine").exists(),
        "no store was made"
    );
}

#[test]
fn a_name_that_is_taken() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    tine.new_fork("demo");
    let failure = refused(&repo, &tine, &["new", "demo"], "fork-exists", 5);
    assert!(
        failure["hint"]
            .as_str()
            .unwrap()
            .contains("tine delete demo"),
        "{failure}"
    );
}

#[test]
fn a_revision_that_does_not_exist() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    for revision in ["nonsense", "HEAD~99", "--all", "", "HEAD^{tree}"] {
        let from = format!("--from={revision}");
        refused(&repo, &tine, &["new", "demo", &from], "unknown-revision", 4);
    }
}

#[test]
fn a_branch_that_cannot_be_had() {
    require_fuse!();
    let repo = TestRepo::new().with_linked_forks();
    repo.git(&["branch", "taken"]);
    let tine = Tine::new(&repo);
    let failure = refused(
        &repo,
        &tine,
        &["new", "demo", "--branch", "main"],
        "branch-checked-out",
        5,
    );
    assert!(
        failure["message"]
            .as_str()
            .unwrap()
            .contains(path_text(repo.dir())),
        "{failure}"
    );
    refused(
        &repo,
        &tine,
        &["new", "demo", "--branch", "no..name"],
        "invalid-branch",
        2,
    );
    refused(
        &repo,
        &tine,
        &["new", "demo", "--branch", "--force"],
        "usage",
        2,
    );
    tine.ok(&["new", "first", "--branch", "work"]);
    refused(
        &repo,
        &tine,
        &["new", "second", "--branch", "work"],
        "branch-checked-out",
        5,
    );
}

#[test]
fn a_mount_place_that_cannot_be_used() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let full = repo.root().join("full");
    fs::create_dir(&full).unwrap();
    fs::write(full.join("mine"), "mine").unwrap();
    refused(
        &repo,
        &tine,
        &["new", "demo", "--at", path_text(&full)],
        "mount-dir-not-empty",
        5,
    );
    assert_eq!(fs::read_to_string(full.join("mine")).unwrap(), "mine");
    let file = repo.root().join("file");
    fs::write(&file, "mine").unwrap();
    refused(
        &repo,
        &tine,
        &["new", "demo", "--at", path_text(&file)],
        "mount-dir-not-empty",
        5,
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    for inside in ["inside", ".git/inside", "."] {
        refused(
            &repo,
            &tine,
            &["new", "demo", "--at", inside],
            "mount-dir-refused",
            2,
        );
    }
    let other = tine.new_fork("other");
    refused(
        &repo,
        &tine,
        &["new", "demo", "--at", path_text(&other.join("src"))],
        "mount-dir-refused",
        2,
    );
    let taken = refused(
        &repo,
        &tine,
        &["new", "demo", "--at", path_text(&other)],
        "mount-dir-refused",
        2,
    );
    assert!(taken["hint"].as_str().unwrap().contains("--at"), "{taken}");
    // The same for a fork that is there.
    tine.ok(&["new", "demo", "--no-mount"]);
    refused(
        &repo,
        &tine,
        &["mount", "demo", "--at", path_text(&full)],
        "mount-dir-not-empty",
        5,
    );
    assert_eq!(
        tine.ok(&["path", "demo"]),
        path_text(&repo.root().join("repo.forks/demo"))
    );
}

#[test]
fn a_store_of_a_newer_format() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    tine.new_fork("demo");
    tine.ok(&["daemon", "stop"]);
    let file = repo.common_dir().join("tine/format");
    let mut format: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    format["format"] = 4_000_000.into();
    fs::write(&file, format.to_string()).unwrap();
    for verb in [
        &["list"][..],
        &["new", "other"],
        &["mount", "demo"],
        &["delete", "demo"],
        &["daemon", "start"],
    ] {
        let failure = refused(&repo, &tine, verb, "newer-format", 6);
        assert!(
            failure["message"].as_str().unwrap().contains("4000000"),
            "{failure}"
        );
    }
    wait_until(
        "the refused daemon has ended",
        Duration::from_secs(20),
        || tine.daemon_pid().is_none(),
    );
}

#[test]
fn a_store_that_another_program_holds() {
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let repository = tine::git::Repository::discover(repo.dir()).unwrap();
    let store = tine::store::Store::open(&repository).unwrap();
    let before = state(&repo);
    let output = tine.run(&["new", "demo", "--json"]);
    assert_eq!(output.status.code(), Some(5), "{}", output.text());
    assert_eq!(failure_of(&output, "new")["code"], "store-locked");
    assert_eq!(state(&repo), before);
    drop(store);
    assert_eq!(tine.json(&["list"])["forks"], serde_json::json!([]));
}

#[test]
fn a_damaged_record_is_shown_and_does_not_hide_the_other_forks() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    tine.ok(&["new", "bad", "--no-mount"]);
    tine.ok(&["new", "good", "--no-mount"]);
    tine.ok(&["daemon", "stop"]);
    fs::write(
        repo.common_dir().join("tine/forks/bad/fork.json"),
        "{ not json",
    )
    .unwrap();
    let output = tine.run(&["list"]).expect_success("list");
    assert!(
        output.text().contains("good") && !output.text().contains("\nbad"),
        "{}",
        output.text()
    );
    assert!(
        output.error_text().contains("forks/bad"),
        "{}",
        output.error_text()
    );
    let list = tine.json(&["list"]);
    assert_eq!(list["forks"].as_array().unwrap().len(), 1);
    assert_eq!(list["damaged"][0]["code"], "store-damaged");
    // With and without a daemon.
    for _ in 0..2 {
        let said = tine.ok(&["doctor"]);
        assert!(said.contains("\nwarn forks: 1 fork whole; "), "{said}");
        assert!(said.contains("forks/bad"), "{said}");
        tine.ok(&["daemon", "stop"]);
    }
    refused(&repo, &tine, &["mount", "bad"], "store-damaged", 1);
}

#[test]
fn corrupt_objects() {
    require_fuse!();
    let repo = TestRepo::new();
    let tree = repo.git(&["rev-parse", "HEAD^{tree}"]);
    let object = repo
        .common_dir()
        .join("objects")
        .join(&tree[..2])
        .join(&tree[2..]);
    let whole = fs::read(&object).unwrap();
    fs::remove_file(&object).unwrap();
    fs::write(&object, &whole[..whole.len() / 2]).unwrap();
    let tine = Tine::new(&repo);
    let refs = repo.git(&["for-each-ref"]);
    let output = tine.run(&["new", "demo", "--json"]);
    assert_eq!(output.status.code(), Some(1), "{}", output.text());
    let failure = failure_of(&output, "new");
    assert_eq!(failure["code"], "corrupt-object", "{failure}");
    assert!(
        failure["hint"].as_str().unwrap().contains("git fsck"),
        "{failure}"
    );
    assert_eq!(repo.git(&["for-each-ref"]), refs);
    assert_eq!(repo.git(&["worktree", "list"]).lines().count(), 1);
    assert_eq!(tine.json(&["list"])["forks"], serde_json::json!([]));
    let log = fs::read_to_string(repo.common_dir().join("tine/daemon.log")).unwrap();
    let is_told = |line: &str| line.contains(" WARN ") && line.contains(&tree);
    assert!(log.lines().any(is_told), "the log names what failed: {log}");
    fs::remove_file(&object).unwrap();
    fs::write(&object, &whole).unwrap();
    tine.new_fork("demo");
}

#[test]
fn a_repository_of_a_kind_that_cannot_be_read() {
    let repo = TestRepo::init(&["--ref-format=reftable"]);
    let tine = Tine::new(&repo);
    let before = state(&repo);
    let output = tine.run(&["new", "demo", "--json"]);
    assert_eq!(output.status.code(), Some(6), "{}", output.text());
    let failure = failure_of(&output, "new");
    assert_eq!(failure["code"], "unsupported-repository");
    assert!(failure.to_string().contains("reftable"), "{failure}");
    assert_eq!(state(&repo), before);
    let doctor = tine.run(&["doctor"]);
    assert_eq!(doctor.status.code(), Some(6));
    assert!(
        doctor.text().contains("fail repository: "),
        "{}",
        doctor.text()
    );
}

#[test]
fn no_fuse_device() {
    require_fuse!();
    // A mount namespace of its own has a /dev without it.
    let can_unshare = Command::new("unshare")
        .args(["--mount", "true"])
        .output()
        .is_ok_and(|output| output.status.success());
    if !can_unshare {
        skip(test_name!(), "a mount namespace cannot be made");
        return;
    }
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let before = state(&repo);
    let script = "mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && mknod -m 666 /dev/urandom c 1 9 && exec \"$@\"";
    let mut command = repo.command("unshare", repo.dir());
    command.args(["--mount", "sh", "-euc", script, "sh"]);
    let in_there = |args: &[&str]| {
        let mut command = repo.command("unshare", repo.dir());
        command
            .args([
                "--mount",
                "sh",
                "-euc",
                script,
                "sh",
                path_text(Tine::program()),
            ])
            .args(args);
        run_with_timeout(&mut command)
    };
    let output = in_there(&["new", "demo", "--json"]);
    assert_eq!(
        output.status.code(),
        Some(6),
        "{} {}",
        output.text(),
        output.error_text()
    );
    assert_eq!(failure_of(&output, "new")["code"], "no-fuse");
    assert_eq!(state(&repo), before, "the fork is taken back");
    let doctor = in_there(&["doctor"]);
    assert_eq!(doctor.status.code(), Some(6));
    assert!(
        doctor.text().contains("fail fuse: /dev/fuse is missing"),
        "{}",
        doctor.text()
    );
    // It needs no mount to make a fork.
    in_there(&["new", "demo", "--no-mount"]).expect_success("new --no-mount");
    drop(tine);
}

#[test]
fn an_ordinary_user_without_fusermount() {
    require_fuse!();
    require_root!("become another user");
    require_program!("setpriv");
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    run_with_timeout(
        Command::new("chown")
            .args(["-R", "65534:65534"])
            .arg(repo.root()),
    )
    .expect_success("chown");
    // Only git is in PATH.
    let bin = repo.root().join("bin");
    fs::create_dir(&bin).unwrap();
    let git = run_with_timeout(Command::new("sh").args(["-c", "command -v git"])).text();
    std::os::unix::fs::symlink(git, bin.join("git")).unwrap();
    let as_nobody = |args: &[&str]| {
        let mut command = repo.command("setpriv", repo.dir());
        command
            .args([
                "--reuid=65534",
                "--regid=65534",
                "--clear-groups",
                "--inh-caps=-all",
                "--bounding-set=-all",
            ])
            .args(["env", &format!("PATH={}", bin.display())])
            .arg(Tine::program())
            .args(args);
        run_with_timeout(&mut command)
    };
    let probe = as_nobody(&["--version"]);
    if !probe.status.success() {
        skip(
            test_name!(),
            &format!(
                "another user cannot run the program: {}",
                probe.error_text()
            ),
        );
        return;
    }
    let output = as_nobody(&["new", "demo", "--json"]);
    assert_eq!(
        output.status.code(),
        Some(6),
        "{} {}",
        output.text(),
        output.error_text()
    );
    let failure = failure_of(&output, "new");
    // Where /dev/fuse itself is closed to users, that is told.
    assert!(
        ["no-fusermount", "fuse-not-permitted"].contains(&failure["code"].as_str().unwrap()),
        "{failure}"
    );
    let doctor = as_nobody(&["doctor"]);
    assert_eq!(doctor.status.code(), Some(6));
    assert!(
        doctor.text().contains("fail fusermount3: not installed"),
        "{}",
        doctor.text()
    );
    drop(tine);
}

#[test]
fn rules_of_the_users_own_that_may_not_be_read_do_not_count_and_the_log_says_so_once() {
    require_root!("become another user");
    require_program!("setpriv");
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let log = repo.common_dir().join("tine/daemon.log");
    let config = repo.home().join(".config/git");
    fs::create_dir_all(&config).unwrap();
    for name in ["ignore", "attributes"] {
        fs::write(config.join(name), "*\n").unwrap();
        run_with_timeout(Command::new("chmod").arg("000").arg(config.join(name)))
            .expect_success("chmod");
    }
    run_with_timeout(
        Command::new("chown")
            .args(["-R", "65534:65534"])
            .arg(repo.root()),
    )
    .expect_success("chown");
    let as_nobody = |args: &[&str]| {
        let mut command = repo.command("setpriv", repo.dir());
        command
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(Tine::program())
            .args(args);
        run_with_timeout(&mut command)
    };
    let probe = as_nobody(&["--version"]);
    if !probe.status.success() {
        skip(
            test_name!(),
            &format!(
                "another user cannot run the program: {}",
                probe.error_text()
            ),
        );
        return;
    }
    as_nobody(&["new", "demo", "--no-mount"]).expect_success("new");
    for _ in 0..2 {
        as_nobody(&["status", "demo"]).expect_success("status");
    }
    as_nobody(&["daemon", "stop"]).expect_success("stop");
    let log = fs::read_to_string(log).unwrap();
    for name in ["ignore", "attributes"] {
        let place = config.join(name).display().to_string();
        let told = log.lines().filter(|line| line.contains(&place));
        let told: Vec<&str> = told.collect();
        assert_eq!(told.len(), 1, "{name}: {log}");
        assert!(told[0].contains(" WARN "), "{log}");
    }
    drop(tine);
}

#[test]
fn a_store_that_may_not_be_written() {
    require_fuse!();
    require_root!("become another user");
    require_program!("setpriv");
    let repo = TestRepo::new();
    run_with_timeout(Command::new("chmod").args(["-R", "a+rX"]).arg(repo.root()))
        .expect_success("chmod");
    let mut command = repo.command("setpriv", repo.dir());
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .env("GIT_CONFIG_COUNT", "1")
        .env("GIT_CONFIG_KEY_0", "safe.directory")
        .env("GIT_CONFIG_VALUE_0", "*")
        .arg(Tine::program())
        .args(["new", "demo", "--json"]);
    let before = state(&repo);
    let output = run_with_timeout(&mut command);
    let failure = failure_of(&output, "new");
    // A repository of another user may be refused before that.
    assert!(
        [
            "permission-denied",
            "unsupported-repository",
            "not-a-repository",
            "git-failed"
        ]
        .contains(&failure["code"].as_str().unwrap()),
        "{failure}"
    );
    assert_eq!(state(&repo), before);
}

#[test]
fn a_repository_of_another_user_is_told_with_the_way_to_trust_it() {
    require_root!("become another user");
    require_program!("setpriv");
    let repo = TestRepo::new();
    run_with_timeout(Command::new("chmod").args(["-R", "a+rX"]).arg(repo.root()))
        .expect_success("chmod");
    let as_nobody = |trusted: &str| {
        let mut command = repo.command("setpriv", repo.dir());
        command
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .env("GIT_CONFIG_GLOBAL", repo.root().join("global"))
            .arg(Tine::program())
            .args(["list", "--json"]);
        fs::write(repo.root().join("global"), trusted).unwrap();
        run_with_timeout(&mut command)
    };
    let output = as_nobody("");
    if output.status.code() == Some(126) {
        skip(test_name!(), "another user cannot run the program");
        return;
    }
    let failure = failure_of(&output, "list");
    assert_eq!(failure["code"], "unsupported-repository", "{failure}");
    let command = format!(
        "`git config --global --add safe.directory {}`",
        repo.dir().display()
    );
    assert!(
        failure["hint"].as_str().unwrap().contains(&command),
        "{failure}"
    );
    let trusted = as_nobody(&format!("[safe]\n\tdirectory = {}\n", repo.dir().display()));
    assert!(trusted.status.success(), "{}", trusted.text());
}

#[test]
fn paths_of_a_difference_that_git_does_not_understand() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    tine.new_fork("demo");
    for path in ["", "../x", "/", ":(nonsense)x"] {
        refused(
            &repo,
            &tine,
            &["diff", "demo", "--", path],
            "path-refused",
            2,
        );
    }
    assert_eq!(tine.ok(&["diff", "demo", "--", "no/such/path"]), "");
}

#[test]
fn a_branch_whose_name_no_file_can_have() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    tine.new_fork("demo");
    let long = "x".repeat(251);
    for name in [
        long.as_str(),
        &format!("dir/{long}"),
        &format!("{long}/name"),
    ] {
        for verb in [
            &["branch", "create"][..],
            &["branch", "switch", "demo"],
            &["new", "other", "--branch"],
        ] {
            refused(&repo, &tine, &[verb, &[name]].concat(), "invalid-branch", 2);
        }
    }
    tine.ok(&["branch", "create", &"x".repeat(250)]);
}

#[test]
fn a_target_that_does_not_exist_keeps_the_fork_mounted() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    tine.new_fork("demo");
    refused(
        &repo,
        &tine,
        &["unmount", "demo", "--merge=nowhere"],
        "unknown-revision",
        4,
    );
}

#[test]
fn an_author_that_is_no_pattern_either() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    fs::write(dir.join("new.txt"), "new").unwrap();
    refused(
        &repo,
        &tine,
        &["commit", "demo", "-m", "m", "--author", "[2J"],
        "usage",
        2,
    );
}

#[test]
fn a_directory_where_a_file_is_to_be_read() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    tine.new_fork("demo");
    for verb in [
        &["write", "--fork", "demo", "a.txt", "--file", "/"][..],
        &["apply", "demo", "/"],
    ] {
        refused(&repo, &tine, verb, "wrong-kind", 3);
    }
}

#[test]
fn a_ceiling_ends_the_search_for_a_repository_as_it_does_gits() {
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let inner = repo.dir().join("plain/inner");
    fs::create_dir_all(&inner).unwrap();
    let looked = |ceiling: &std::path::Path| {
        let mut command = tine.command_in(&inner, &["list", "--json"]);
        run_with_timeout(command.env("GIT_CEILING_DIRECTORIES", ceiling))
    };
    looked(repo.root()).expect_success("a repository below the ceiling");
    let output = looked(&repo.dir().join("plain"));
    assert_eq!(failure_of(&output, "list")["code"], "not-a-repository");
}
