//! Forks that travel through git remotes: two repositories, as on two machines, and a bare one
//! between them.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::support::{OutputExt, TestRepo, Tine, path_text, require_fuse, run_with_timeout};
use crate::{failure_of, refused};

/// The first machine's repository, with what it has on `main` pushed to a bare one, its remote
/// `origin`.
pub fn with_hub() -> (TestRepo, PathBuf) {
    let repo = TestRepo::new().without_maintenance();
    let hub = repo.root().join("hub.git");
    repo.git(&["init", "-q", "--bare", path_text(&hub)]);
    // As a person may name it.
    repo.git(&["remote", "add", "origin", "../hub.git"]);
    repo.git(&["push", "-q", "origin", "main"]);
    (repo, hub)
}

/// Another machine's clone of `hub`.
pub fn other_machine(hub: &Path) -> TestRepo {
    let repo = TestRepo::unborn().without_maintenance();
    repo.git(&["remote", "add", "origin", path_text(hub)]);
    repo.git(&["fetch", "-q", "origin"]);
    repo.git(&["reset", "-q", "--hard", "origin/main"]);
    repo
}

/// Every kind of change that git can carry.
fn change_everything(dir: &Path) {
    fs::write(dir.join("README.md"), "changed\n").unwrap();
    fs::remove_file(dir.join("docs/guide.md")).unwrap();
    fs::rename(dir.join("src/main.rs"), dir.join("src/renamed.rs")).unwrap();
    fs::rename(dir.join("src/deep"), dir.join("moved")).unwrap();
    fs::set_permissions(dir.join("run.sh"), fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(dir.join("tool"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(dir.join("tool"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::remove_file(dir.join("link")).unwrap();
    symlink("run.sh", dir.join("link")).unwrap();
    symlink("no where", dir.join("new link")).unwrap();
    fs::remove_file(dir.join("dangling")).unwrap();
    fs::create_dir(dir.join("dangling")).unwrap();
    fs::write(dir.join("dangling/file"), "a directory where a link was\n").unwrap();
    fs::write(dir.join("binary"), [0, 159, 146, 150, 0, 255]).unwrap();
    fs::write(dir.join("empty"), "").unwrap();
    fs::write(dir.join(OsStr::from_bytes(b"not\xffutf8")), "odd\n").unwrap();
    fs::write(dir.join("new\nline"), "odder\n").unwrap();
    fs::write(dir.join("data/large.bin"), vec![7; 400_000]).unwrap();
}

/// What a person sees of a fork through git, whatever is staged.
fn seen(repo: &TestRepo, dir: &Path) -> [String; 3] {
    [
        repo.git_in(dir, &["status", "--porcelain", "-uall", "--no-renames"]),
        repo.git_in(dir, &["log", "--format=%H %an %s"]),
        repo.git_in(dir, &["diff", "HEAD", "--binary", "--no-renames"]),
    ]
}

pub fn refs(repo: &TestRepo, dir: &Path) -> String {
    repo.git_in(dir, &["for-each-ref", "--format=%(refname) %(objectname)"])
}

#[test]
fn a_round_trip_through_a_bare_remote_gives_the_identical_view() {
    require_fuse!();
    let (one, hub) = with_hub();
    let two = other_machine(&hub);
    let (tine, there) = (Tine::new(&one), Tine::new(&two));
    let dir = tine.new_fork("demo");
    fs::write(dir.join("committed.txt"), "committed\n").unwrap();
    one.git_in(&dir, &["add", "committed.txt"]);
    one.git_in(&dir, &["commit", "-q", "-m", "in the fork"]);
    change_everything(&dir);
    one.git_in(&dir, &["add", "tool"]);
    let before = refs(&one, &hub);
    let said = tine.ok(&["push", "demo"]);
    assert!(said.starts_with("pushed demo to origin: "), "{said}");
    let after = refs(&one, &hub);
    let added: Vec<&str> = after
        .lines()
        .filter(|line| !before.contains(line))
        .collect();
    assert_eq!(added.len(), 1, "nothing else moved: {after}");
    assert!(added[0].starts_with("refs/tine/forks/demo "), "{after}");
    assert_eq!(after.lines().count(), before.lines().count() + 1, "{after}");
    let staged = one.git_in(&dir, &["diff", "--cached", "--name-only"]);
    assert_eq!(staged, "tool", "what was staged here still is");

    let branches = two.git(&["branch", "-a"]);
    let listed = there.ok(&["fetch"]);
    assert!(
        listed.contains("demo") && listed.contains("in the fork"),
        "{listed}"
    );
    assert_eq!(two.git(&["branch", "-a"]), branches);
    let taken = PathBuf::from(there.ok(&["new", "copy", "--from-remote", "origin/demo"]));
    one.assert_same_trees(&dir, &taken);
    one.git_in(&dir, &["reset", "-q"]);
    assert_eq!(seen(&two, &taken), seen(&one, &dir));
    assert_eq!(two.git_in(&taken, &["diff", "--cached", "--name-only"]), "");
    assert_eq!(
        two.git_in(&taken, &["branch", "--show-current"]),
        "tine/copy"
    );
    let log = |tine: &Tine, name: &str| tine.json(&["log", name])["commits"].clone();
    assert_eq!(log(&there, "copy"), log(&tine, "demo"));
    assert_eq!(log(&there, "copy").as_array().unwrap().len(), 1);
    assert_eq!(
        there.json(&["status", "copy"])["changes"],
        tine.json(&["status", "demo"])["changes"]
    );
    let pristine = |tine: &Tine, name: &str| {
        tine.json(&["diff", name, "--against", "pristine"])["changes"].clone()
    };
    assert_eq!(pristine(&there, "copy"), pristine(&tine, "demo"));
    two.git_in(&taken, &["fsck", "--connectivity-only"]);
    let begins = |tine: &Tine, name: &str| {
        let fork = tine.json(&["path", name]);
        [fork["base_commit"].clone(), fork["fork_point"].clone()]
    };
    assert_eq!(begins(&there, "copy"), begins(&tine, "demo"));

    // A fork's base may be ahead of where its commits begin.
    tine.ok(&["reset", "demo"]);
    tine.ok(&["push", "demo", "--as", "reset"]);
    there.ok(&["new", "reset", "--from-remote", "reset"]);
    assert_eq!(begins(&there, "reset"), begins(&tine, "demo"));
    assert_ne!(begins(&there, "reset")[0], begins(&there, "reset")[1]);
    assert_eq!(log(&there, "reset"), log(&tine, "demo"));
}

#[test]
fn a_fork_goes_there_and_back_again() {
    require_fuse!();
    let (one, hub) = with_hub();
    let two = other_machine(&hub);
    let (tine, there) = (Tine::new(&one), Tine::new(&two));
    let dir = tine.new_fork("demo");
    fs::write(dir.join("a.txt"), "one\n").unwrap();
    let first = tine.json(&["push", "demo"]);
    assert_eq!(first["changed"], true);
    let again = tine.json(&["push", "demo"]);
    assert_eq!(again["changed"], false);
    assert_eq!(
        again["commit"], first["commit"],
        "the same is not made again"
    );

    let taken = PathBuf::from(there.ok(&["new", "demo", "--from-remote", "demo"]));
    let unchanged = there.json(&["push", "demo"]);
    assert_eq!(unchanged["changed"], false, "{unchanged}");
    assert_eq!(unchanged["commit"], first["commit"]);
    fs::write(taken.join("a.txt"), "two\n").unwrap();
    there.ok(&["commit", "demo", "-m", "on the other machine"]);
    fs::write(taken.join("a.txt"), "three\n").unwrap();
    there.ok(&["push", "demo"]);

    let changed = tine.json(&["fetch"]);
    assert_eq!(changed["forks"][0]["news"], "changed", "{changed}");
    assert_eq!(changed["forks"][0]["summary"], "on the other machine");
    let failure = refused(
        &one,
        &tine,
        &["new", "demo", "--from-remote", "demo"],
        "fork-exists",
        5,
    );
    assert!(
        failure["hint"].as_str().unwrap().contains("another name"),
        "{failure}"
    );
    tine.ok(&["unmount", "demo"]);
    tine.ok(&["mount", "demo"]);
    let back = PathBuf::from(tine.ok(&["new", "back", "--from-remote", "demo"]));
    one.assert_same_trees(&taken, &back);
    assert_eq!(fs::read_to_string(back.join("a.txt")).unwrap(), "three\n");
    assert_eq!(seen(&one, &back), seen(&two, &taken));
    assert_eq!(fs::read_to_string(dir.join("a.txt")).unwrap(), "one\n");

    // What was taken up lives on like any other fork.
    tine.ok(&["commit", "back", "-m", "at home"]);
    assert_eq!(one.status(&back), "");
    tine.ok(&["merge", "back", "--into", "main"]);
    assert_eq!(
        fs::read_to_string(one.dir().join("a.txt")).unwrap(),
        "three\n"
    );
}

#[test]
fn what_is_taken_up_is_a_fork_like_any_other() {
    require_fuse!();
    let (one, hub) = with_hub();
    let two = other_machine(&hub);
    let (tine, there) = (Tine::new(&one), Tine::new(&two));
    let dir = tine.new_fork("demo");
    fs::write(dir.join("a.txt"), "committed\n").unwrap();
    tine.ok(&["commit", "demo", "-m", "a"]);
    fs::write(dir.join("a.txt"), "uncommitted\n").unwrap();
    fs::write(dir.join("README.md"), "uncommitted\n").unwrap();
    tine.ok(&["push", "demo"]);
    let taken = PathBuf::from(there.ok(&["new", "demo", "--from-remote", "demo"]));
    let before = seen(&two, &taken);
    assert_eq!(
        there.json(&["op", "log", "demo"])["operations"],
        serde_json::json!([])
    );

    there.ok(&["snapshot", "demo", "taken"]);
    let child = PathBuf::from(there.ok(&["new", "child", "--from-fork", "demo"]));
    assert_eq!(seen(&two, &child), before);
    there.ok(&["revert", "demo", "README.md", "--to", "HEAD"]);
    assert_eq!(two.status(&taken), " M a.txt");
    there.ok(&["undo", "demo"]);
    assert_eq!(seen(&two, &taken), before);
    there.ok(&["restore", "demo", "pristine"]);
    assert!(!taken.join("a.txt").exists());
    two.assert_same_trees(two.dir(), &taken);
    there.ok(&["restore", "demo", "taken"]);
    assert_eq!(seen(&two, &taken), before);
    there.ok(&["reset", "demo"]);
    assert_eq!(two.status(&taken), "");
    assert_eq!(
        fs::read_to_string(taken.join("a.txt")).unwrap(),
        "committed\n"
    );
    there.ok(&["restore", "demo", "taken"]);
    there.ok(&["unmount", "demo"]);
    there.ok(&["mount", "demo"]);
    assert_eq!(seen(&two, &taken), before);
    there.fails(3, &["delete", "demo"]);
    there.ok(&["delete", "demo", "--force"]);
    let kept = two.git(&["for-each-ref", "--format=%(refname)", "refs/tine/+recover"]);
    assert_eq!(kept, "refs/tine/+recover/1");
}

#[test]
fn head_may_be_on_any_branch_on_none_or_on_no_commit() {
    require_fuse!();
    let (one, hub) = with_hub();
    let two = other_machine(&hub);
    let (tine, there) = (Tine::new(&one), Tine::new(&two));
    let other = PathBuf::from(tine.ok(&["new", "other", "--branch", "topic/x"]));
    fs::write(other.join("x"), "x\n").unwrap();
    let detached = tine.new_fork("detached");
    one.git_in(&detached, &["checkout", "-q", "--detach"]);
    one.git_in(
        &detached,
        &["commit", "-q", "--allow-empty", "-m", "on no branch"],
    );
    tine.ok(&["push", "other"]);
    tine.ok(&["push", "detached"]);
    let listed = there.json(&["fetch"]);
    assert_eq!(listed["forks"][0]["branch"], serde_json::Value::Null);
    assert_eq!(listed["forks"][0]["uncommitted"], false);
    assert_eq!(listed["forks"][1]["branch"], "topic/x");
    assert_eq!(listed["forks"][1]["uncommitted"], true);
    let taken =
        PathBuf::from(there.ok(&["new", "d", "--from-remote", "detached", "--branch", "mine"]));
    assert_eq!(two.git_in(&taken, &["branch", "--show-current"]), "mine");
    assert_eq!(seen(&two, &taken), seen(&one, &detached));
    let taken = PathBuf::from(there.ok(&["new", "other", "--from-remote", "other"]));
    assert_eq!(seen(&two, &taken), seen(&one, &other));

    let unborn = TestRepo::unborn().without_maintenance();
    unborn.git(&["remote", "add", "origin", path_text(&hub)]);
    let first = Tine::new(&unborn);
    let dir = first.new_fork("first");
    fs::write(dir.join("first.txt"), "first\n").unwrap();
    first.ok(&["push", "first"]);
    let taken = PathBuf::from(there.ok(&["new", "first", "--from-remote", "first"]));
    two.assert_same_trees(&dir, &taken);
    assert_eq!(two.status(&taken), "?? first.txt");
    there.ok(&["commit", "first", "-m", "the first of all"]);
    assert_eq!(
        two.git_in(&taken, &["log", "--format=%s"]),
        "the first of all"
    );
    assert_eq!(
        there.json(&["log", "first"])["commits"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn a_daemon_that_is_killed_while_its_fork_is_pushed_does_no_harm() {
    require_fuse!();
    let (one, hub) = with_hub();
    let two = other_machine(&hub);
    let (tine, there) = (Tine::new(&one), Tine::new(&two));
    let dir = tine.new_fork("demo");
    fs::write(dir.join("a.txt"), "one\n").unwrap();
    let pid = tine.daemons()[0];
    // Between the state and its arrival.
    let hook = one.common_dir().join("hooks/pre-push");
    fs::create_dir_all(hook.parent().unwrap()).unwrap();
    fs::write(&hook, format!("#!/bin/sh\nkill -9 {pid}\nexit 1\n")).unwrap();
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    let failure = failure_of(&tine.run(&["push", "demo", "--json"]), "push");
    assert_eq!(failure["code"], "hook-refused");
    fs::remove_file(hook).unwrap();
    one.git(&["gc", "-q", "--prune=now"]);
    let pushed = tine.json(&["push", "demo"]);
    assert_eq!(pushed["changed"], true);
    let taken = PathBuf::from(there.ok(&["new", "demo", "--from-remote", "demo"]));
    one.assert_same_trees(&dir, &taken);
}

#[test]
fn git_gc_spares_what_was_fetched_and_what_was_taken_up() {
    require_fuse!();
    let (one, hub) = with_hub();
    let two = other_machine(&hub);
    let (tine, there) = (Tine::new(&one), Tine::new(&two));
    let dir = tine.new_fork("demo");
    change_everything(&dir);
    tine.ok(&["push", "demo"]);
    there.ok(&["fetch"]);
    let gc = |tine: &Tine| {
        two.git(&["reflog", "expire", "--expire=now", "--all"]);
        two.git(&["gc", "-q", "--prune=now"]);
        tine.ok(&["gc"]);
    };
    gc(&there);
    // It is here: nothing is asked of the remote.
    fs::rename(&hub, hub.with_extension("away")).unwrap();
    let taken = PathBuf::from(there.ok(&["new", "demo", "--from-remote", "demo"]));
    two.git(&["update-ref", "-d", "refs/tine/+remotes/origin/demo"]);
    there.ok(&["daemon", "stop"]);
    gc(&there);
    there.ok(&["daemon", "stop"]);
    there.ok(&["list"]);
    one.assert_same_trees(&dir, &taken);
    one.git_in(&dir, &["reset", "-q"]);
    assert_eq!(seen(&two, &taken), seen(&one, &dir));
}

#[test]
fn two_forks_may_be_pushed_at_the_same_time() {
    require_fuse!();
    let (one, hub) = with_hub();
    let tine = Tine::new(&one);
    for name in ["a", "b"] {
        let dir = tine.new_fork(name);
        fs::write(dir.join(name), name).unwrap();
    }
    std::thread::scope(|scope| {
        for name in ["a", "b"] {
            let mut push = tine.command(&["push", name]);
            scope.spawn(move || run_with_timeout(&mut push).expect_success("push"));
        }
    });
    for name in ["a", "b"] {
        let there = one.git_in(&hub, &["rev-parse", &format!("refs/tine/forks/{name}")]);
        let seen = one.git(&["rev-parse", &format!("refs/tine/+remotes/origin/{name}")]);
        assert_eq!(there, seen);
        assert_eq!(
            one.git_in(&hub, &["show", &format!("{there}:{name}")]),
            name
        );
    }
}

#[test]
fn clones_that_are_not_whole_send_and_take_up_forks() {
    require_fuse!();
    let (one, hub) = with_hub();
    one.git_in(&hub, &["config", "uploadpack.allowFilter", "true"]);
    one.commit_files(&[("second.txt", b"second\n")], "second");
    one.git(&["push", "-q", "origin", "main"]);
    let tine = Tine::new(&one);
    let dir = tine.new_fork("demo");
    change_everything(&dir);
    tine.ok(&["push", "demo"]);
    let url = format!("file://{}", hub.display());
    for options in [&["--depth=1"][..], &["--filter=blob:none"]] {
        let two = TestRepo::unborn().without_maintenance();
        two.git(&[&["fetch", "-q"], options, &[&url, "main"]].concat());
        let two = two.cloned("unused/repo", &[]);
        let clone = two.root().join("clone");
        two.git_in(
            two.root(),
            &[&["clone", "-q"], options, &[&url, path_text(&clone)]].concat(),
        );
        let there = Tine::new(&two);
        let taken = there.ok_in(&clone, &["new", "demo", "--from-remote", "demo"]);
        let taken = PathBuf::from(taken);
        one.assert_same_trees(&dir, &taken);
        assert_eq!(seen(&two, &taken)[0], seen(&one, &dir)[0]);
        fs::write(taken.join("more"), "more\n").unwrap();
        there.ok_in(&clone, &["commit", "demo", "-m", "more"]);
        there.ok_in(&clone, &["push", "demo", "--as", "back"]);
        there.ok_in(&clone, &["daemon", "stop"]);
        tine.ok(&["fetch"]);
        let back = PathBuf::from(tine.ok(&["new", "back", "--from-remote", "back"]));
        assert_eq!(fs::read_to_string(back.join("more")).unwrap(), "more\n");
        tine.ok(&["delete", "back", "--force"]);
        one.git(&["branch", "-D", "tine/back"]);
        tine.ok(&["push", "--delete", "back"]);
    }
}

#[test]
fn the_remote_is_the_one_that_git_would_take() {
    require_fuse!();
    let (one, hub) = with_hub();
    let tine = Tine::new(&one);
    for name in ["default", "own", "of-main"] {
        let dir = one.root().join(format!("{name}.git"));
        one.git(&["clone", "-q", "--bare", path_text(&hub), path_text(&dir)]);
        one.git(&["remote", "add", name, path_text(&dir)]);
    }
    tine.new_fork("demo");
    let to = || tine.json(&["push", "demo"])["remote"].clone();
    assert_eq!(to(), "origin");
    one.git(&["config", "branch.main.remote", "of-main"]);
    assert_eq!(to(), "of-main");
    one.git(&["config", "remote.pushDefault", "default"]);
    assert_eq!(to(), "default");
    one.git(&["config", "branch.tine/demo.pushRemote", "own"]);
    assert_eq!(to(), "own");
    assert_eq!(tine.json(&["push", "demo", "origin"])["remote"], "origin");
    assert_eq!(tine.json(&["fetch"])["forks"][0]["remote"], "of-main");

    // What is configured for the remote is about other refs.
    one.git(&["config", "remote.own.mirror", "true"]);
    one.git(&["config", "remote.own.fetch", "+refs/*:refs/*"]);
    one.git(&["config", "push.followTags", "true"]);
    one.git(&["tag", "-a", "-m", "t", "tagged"]);
    let before = refs(&one, one.dir());
    tine.ok(&["fetch", "own"]);
    assert_eq!(refs(&one, one.dir()), before);
    let dir = PathBuf::from(tine.ok(&["path", "demo"]));
    fs::write(dir.join("a"), "a").unwrap();
    assert_eq!(to(), "own");
    assert!(!refs(&one, &one.root().join("own.git")).contains("tagged"));
}

#[test]
fn repositories_of_all_kinds_send_and_take_up_forks() {
    require_fuse!();
    // From a bare one, whose origin is somebody's checkout.
    let bare = TestRepo::bare();
    let tine = Tine::new(&bare);
    let dir = tine.new_fork("demo");
    fs::write(dir.join("a.txt"), "one\n").unwrap();
    tine.ok(&["unmount", "demo"]);
    tine.ok(&["push", "demo"]);
    fs::write(bare.root().join("repo/b.txt"), "not committed\n").unwrap();
    bare.git_in(&bare.root().join("repo"), &["status"]);
    let taken = PathBuf::from(tine.ok(&["new", "again", "--from-remote", "origin/demo"]));
    assert_eq!(bare.status(&taken), "?? a.txt");

    // Remotes may have slashes in their names; ids may have 256 bits; a command may run in a mount,
    // or at its origin.
    let one = TestRepo::sha256().without_maintenance();
    let hub = one.root().join("hub.git");
    one.git(&[
        "init",
        "-q",
        "--bare",
        "--object-format=sha256",
        path_text(&hub),
    ]);
    one.git(&["remote", "add", "team/hub", "../hub.git"]);
    let tine = Tine::new(&one);
    let dir = tine.new_fork("demo");
    change_everything(&dir);
    tine.ok_in(&dir, &["push", "demo"]);
    tine.ok_in(&dir.join("docs"), &["fetch"]);
    let at_origin = [
        "exec",
        "demo",
        "--at-origin",
        "--",
        path_text(Tine::program()),
    ];
    tine.ok(&[&at_origin[..], &["fetch"]].concat());
    let pushed = tine.ok(&[&at_origin[..], &["push", "demo", "--json"]].concat());
    assert!(pushed.contains("\"changed\":false"), "{pushed}");
    let taken = PathBuf::from(tine.ok(&["new", "taken", "--from-remote", "team/hub/demo"]));
    one.assert_same_trees(&dir, &taken);
    assert_eq!(seen(&one, &taken), seen(&one, &dir));
}

#[test]
fn git_looks_at_what_changed_since_and_at_nothing_else() {
    require_fuse!();
    let (one, hub) = with_hub();
    let two = other_machine(&hub);
    let (tine, there) = (Tine::new(&one), Tine::new(&two));
    let dir = tine.new_fork("demo");
    change_everything(&dir);
    tine.ok(&["push", "demo"]);
    let taken = PathBuf::from(there.ok(&["new", "demo", "--from-remote", "demo"]));
    let read = |path: &str| {
        let listed = two.git_of_fork("demo", &["ls-files", "--debug", "--", path]);
        !listed.contains("mtime: 0:0")
    };
    assert!(read("docs/empty"), "what HEAD says of it holds");
    assert!(!read("README.md"), "it is not what HEAD says");
    for _ in 0..2 {
        assert_eq!(two.status(&taken), one.status(&dir));
    }
    for dir in [&dir, &taken] {
        fs::write(dir.join("docs/empty"), "no more").unwrap();
        fs::remove_file(dir.join("empty")).unwrap();
        fs::write(dir.join("later"), "later").unwrap();
        fs::write(dir.join("README.md"), "# A test\n\nWith two paragraphs.\n").unwrap();
    }
    assert_eq!(two.status(&taken), one.status(&dir));
    two.git_in(&taken, &["add", "-A"]);
    one.git_in(&dir, &["add", "-A"]);
    let tree = |repo: &TestRepo, dir: &Path| repo.git_in(dir, &["write-tree"]);
    assert_eq!(tree(&two, &taken), tree(&one, &dir));
}

#[test]
fn fetching_needs_no_fork_and_starts_no_daemon() {
    let (one, hub) = with_hub();
    let tine = Tine::new(&one);
    let output = tine.run(&["fetch"]).expect_success("fetch");
    assert_eq!(output.text(), "");
    assert!(
        output.error_text().contains("no forks are on origin"),
        "{}",
        output.error_text()
    );
    assert_eq!(
        tine.json(&["fetch"]),
        serde_json::json!({"forks": [], "damaged": [], "failures": []})
    );
    assert_eq!(tine.daemon_pid(), None);
    assert!(!one.common_dir().join("tine").exists());
    assert_eq!(refs(&one, &hub).lines().count(), 1);
}
