//! An own git directory is written by a program that nobody trusts.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;

use super::*;

/// Writes any bytes as a loose object of a fork under any id.
fn put_loose(fork: &Fork<'_>, id: &str, raw: &[u8]) {
    let path = fork.git_dir.join("objects").join(&id[..2]).join(&id[2..]);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let _ = fs::remove_file(&path);
    fs::write(path, raw).unwrap();
}

fn raw_of(fork: &Fork<'_>, id: &str) -> Vec<u8> {
    let path = fork.git_dir.join("objects").join(&id[..2]).join(&id[2..]);
    fs::read(path).unwrap()
}

fn write_literally(fork: &Fork<'_>, kind: &str, content: &[u8]) -> String {
    let arguments = ["hash-object", "-w", "--literally", "-t", kind, "--stdin"];
    fork.git_with_input(&arguments, content)
}

fn commit_of(fork: &Fork<'_>, tree: &str) -> String {
    let parent = fork.id_of("tine/f").to_string();
    let raw = format!(
        "tree {tree}\nparent {parent}\nauthor A <a@b> 1700000000 +0000\ncommitter A <a@b> 1700000000 +0000\n\nx\n"
    );
    write_literally(fork, "commit", raw.as_bytes())
}

fn tree_with(name: &str, mode: &str, id: &str) -> Vec<u8> {
    let id: ObjectId = id.parse().unwrap();
    [format!("{mode} {name}\0").as_bytes(), id.as_slice()].concat()
}

/// Histories that old tools wrote, and that `git fetch` takes, have such faults.
#[test]
fn faults_that_do_no_harm_are_taken_over() {
    let main = main_repository();
    let fork = Fork::new(&main, "f");
    fork.take_all();
    let blob = fork.git_with_input(&["hash-object", "-w", "--stdin"], b"good\n");
    let inner = write_literally(&fork, "tree", &tree_with("file", "0100644", &blob));
    let tree = write_literally(&fork, "tree", &tree_with("dir", "040000", &inner));
    let parent = fork.id_of("tine/f").to_string();
    let mut written = Vec::new();
    for (name, person) in [
        ("zone", "A <a@b> 1700000000 +051800"),
        ("date", "A <a@b>1700000000 +0000"),
        ("email", "A<a@b> 1700000000 +0000"),
    ] {
        let raw =
            format!("tree {tree}\nparent {parent}\nauthor {person}\ncommitter {person}\n\nx\n");
        let commit = write_literally(&fork, "commit", raw.as_bytes());
        fork.git(&["update-ref", &format!("refs/heads/{name}"), &commit]);
        written.push((name, commit));
    }
    assert_eq!(fork.take().rejected, []);
    for (name, commit) in written {
        let kept = main.git(&["rev-parse", &format!("refs/tine/f/git/heads/{name}")]);
        assert_eq!(kept, commit);
    }
}

/// A fault that the main repository accepts from a push is accepted from a fork.
#[test]
fn settings_of_the_main_repository_say_which_faults_are_taken_over() {
    let main = main_repository();
    let fork = Fork::new(&main, "f");
    let parent = fork.id_of("tine/f").to_string();
    let tree = fork.git(&["rev-parse", "tine/f^{tree}"]);
    let person = "A <a@b> 99999999999999999999 +0000";
    let raw = format!("tree {tree}\nparent {parent}\nauthor {person}\ncommitter {person}\n\nx\n");
    let commit = write_literally(&fork, "commit", raw.as_bytes());
    fork.git(&["update-ref", "refs/heads/late", &commit]);
    assert_eq!(fork.take().rejected.len(), 1);
    main.git(&["config", "receive.fsck.badDateOverflow", "ignore"]);
    // What was rejected is checked again by the next daemon.
    *fork.last.borrow_mut() = None;
    assert_eq!(fork.take().rejected, []);
}

#[test]
fn what_fails_the_checks_is_rejected_and_holds_nothing_back() {
    let main = main_repository();
    let fork = Fork::new(&main, "f");
    fork.take_all();
    let blob = fork.git_with_input(&["hash-object", "-w", "--stdin"], b"good\n");
    let mut bad: Vec<(&str, String, &str)> = Vec::new();
    let tree = write_literally(&fork, "tree", &tree_with(".git", "100644", &blob));
    bad.push(("dot-git", commit_of(&fork, &tree), ".git"));
    let tree = write_literally(&fork, "tree", &tree_with("..", "100644", &blob));
    bad.push(("dot-dot", commit_of(&fork, &tree), "'..'"));
    let modules = fork.git_with_input(
        &["hash-object", "-w", "--stdin"],
        b"[submodule \"a\"]\n\tpath = a\n\turl = -u./payload\n",
    );
    let tree = write_literally(&fork, "tree", &tree_with(".gitmodules", "100644", &modules));
    bad.push(("modules", commit_of(&fork, &tree), "gitmodules"));
    let missing = "1234567890123456789012345678901234567890";
    let tree = write_literally(&fork, "tree", &tree_with("missing", "100644", missing));
    bad.push(("missing-blob", commit_of(&fork, &tree), missing));
    bad.push(("missing-tree", commit_of(&fork, missing), missing));
    bad.push((
        "bad-commit",
        write_literally(&fork, "commit", b"no commit\n"),
        "",
    ));
    // The content of another object.
    let wrong = fork.git_with_input(&["hash-object", "-w", "--stdin"], b"wrong\n");
    put_loose(&fork, &wrong, &raw_of(&fork, &blob));
    let tree = write_literally(&fork, "tree", &tree_with("wrong", "100644", &wrong));
    bad.push(("wrong-hash", commit_of(&fork, &tree), "hashes to"));
    let garbage = fork.git_with_input(&["hash-object", "-w", "--stdin"], b"garbage\n");
    put_loose(&fork, &garbage, b"garbage");
    let tree = write_literally(&fork, "tree", &tree_with("garbage", "100644", &garbage));
    bad.push(("garbage", commit_of(&fork, &tree), "corrupt"));
    let dir = fork.git_dir.join("refs/heads/bad");
    fs::create_dir_all(&dir).unwrap();
    for (name, id, _) in &bad {
        fs::write(dir.join(name), format!("{id}\n")).unwrap();
    }
    fs::write(dir.join("no-object"), format!("{missing}\n")).unwrap();
    bad.push(("no-object", missing.to_owned(), missing));
    fork.git(&["branch", "-q", "good-one"]);
    fork.write("good", "good\n");
    let tip = fork.commit("good");
    fork.take();
    let rejected = fork.rejected();
    for (name, id, reason) in &bad {
        let name = format!("heads/bad/{name}");
        let found = rejected.iter().find(|rejected| rejected.name == name);
        let found = found.unwrap_or_else(|| panic!("{name}: {rejected:?}"));
        assert_eq!(found.id, id.parse().ok());
        assert!(found.reason.contains(reason), "{found:?}");
        assert!(!found.reason.contains('\n'));
        println!("{found:?}");
    }
    assert_eq!(rejected.len(), bad.len(), "{rejected:?}");
    assert_eq!(fork.kept("git/heads/good-one"), Some(fork.id_of("HEAD~1")));
    assert_eq!(main.id_of("tine/f"), tip);
    // Not one of them has left.
    for (_, id, _) in bad.iter().filter(|(name, ..)| *name != "no-object") {
        raw_of(&fork, id);
    }
    let again = fork.take();
    assert!(again.changed.is_empty());
    assert_eq!(again.rejected, rejected);
    // A ref that is good again is taken over.
    fs::remove_dir_all(&dir).unwrap();
    fork.git(&["branch", "-q", "bad/dot-git", "HEAD"]);
    assert_eq!(fork.take().rejected, []);
    assert_eq!(fork.kept("git/heads/bad/dot-git"), Some(tip));
    let finished = main.try_git(&["fsck", "--full", "--strict"], b"");
    assert!(finished.status.success(), "{finished:?}");
}

#[test]
fn bad_objects_in_packs_are_rejected() {
    let main = main_repository();
    let fork = Fork::new(&main, "f");
    let blob = fork.git_with_input(&["hash-object", "-w", "--stdin"], b"good\n");
    let tree = write_literally(&fork, "tree", &tree_with(".git", "100644", &blob));
    let commit = commit_of(&fork, &tree);
    fork.git(&["update-ref", "refs/heads/bad", &commit]);
    fork.write("good", "good too\n");
    let tip = fork.commit("good");
    fork.git(&["repack", "-q", "-a", "-d", "-l"]);
    let taken = fork.take();
    assert_eq!(taken.rejected.len(), 1, "{taken:?}");
    assert_eq!(fork.kept("git/heads/tine/f"), Some(tip));
    assert_eq!(packs(&fork.git_dir), 1);
    fork.git(&["cat-file", "-e", &commit]);
}

#[test]
fn files_that_are_no_refs_are_skipped_and_reported() {
    let main = main_repository();
    let fork = Fork::new(&main, "f");
    let tip = fork.commit("one");
    let git_dir = &fork.git_dir;
    let outside = main.dir().join("outside");
    fs::write(&outside, format!("{tip}\n")).unwrap();
    symlink(&outside, git_dir.join("refs/heads/link")).unwrap();
    symlink(main.dir().join(".git/refs"), git_dir.join("refs/remotes")).unwrap();
    let pipe = |path: &str| {
        let made = Command::new("mkfifo").arg(git_dir.join(path)).status();
        assert!(made.unwrap().success());
    };
    pipe("refs/heads/pipe");
    pipe("MERGE_HEAD");
    pipe("packed-refs");
    pipe("logs/pipe");
    fs::write(git_dir.join("refs/heads/text"), "some text\n").unwrap();
    fs::write(git_dir.join("refs/heads/loop"), "ref: refs/heads/loop\n").unwrap();
    fs::write(git_dir.join("refs/heads/a..b"), format!("{tip}\n")).unwrap();
    fs::write(
        git_dir.join("refs/heads/null"),
        format!("{}\n", "0".repeat(40)),
    )
    .unwrap();
    fs::write(git_dir.join("refs/heads/up"), "ref: refs/../../../HEAD\n").unwrap();
    fs::create_dir(git_dir.join("refs/logs")).unwrap();
    fs::write(git_dir.join("refs/logs/x"), format!("{tip}\n")).unwrap();
    fs::write(git_dir.join("refs/HEAD"), format!("{tip}\n")).unwrap();
    fs::write(git_dir.join("logs/text"), "no log\n\0\n").unwrap();
    symlink("/", git_dir.join("logs/root")).unwrap();
    let taken = fork.take();
    let mut names: Vec<&str> = taken.rejected.iter().map(|r| r.name.as_str()).collect();
    names.sort();
    let expected = [
        "MERGE_HEAD",
        "packed-refs",
        "refs/heads/a..b",
        "refs/heads/link",
        "refs/heads/null",
        "refs/heads/pipe",
        "refs/heads/text",
        "refs/remotes",
    ];
    assert_eq!(names, expected);
    assert_eq!(main.id_of("tine/f"), tip);
    assert_eq!(fork.kept("git/refs/logs/x"), Some(tip));
    assert_eq!(fork.kept("git/refs/HEAD"), Some(tip));
    assert_eq!(fork.kept("git/heads/up"), None);
}

#[test]
fn configuration_and_alternates_count_for_nothing() {
    let main = main_repository();
    let other = main_repository();
    other.write("secret", "secret\n");
    let secret = other.commit("secret");
    let fork = Fork::new(&main, "f");
    fork.write("x", "1\n");
    let tip = fork.commit("one");
    let ran = main.dir().join("ran");
    let hook = format!("#!/bin/sh\necho >> {}\n", ran.display());
    fs::create_dir_all(fork.git_dir.join("hooks")).unwrap();
    for name in ["reference-transaction", "post-index-change", "program"] {
        let path = fork.git_dir.join("hooks").join(name);
        fs::write(&path, &hook).unwrap();
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let program = fork.git_dir.join("hooks/program");
    let mut config = fs::read_to_string(fork.git_dir.join("config")).unwrap();
    config.push_str(&format!(
        "[core]\n\tfsmonitor = {0}\n\thooksPath = hooks\n[uploadpack]\n\tpackObjectsHook = {0}\n[gpg]\n\tprogram = {0}\n[extensions]\n\tpartialClone = origin\n[remote \"origin\"]\n\turl = ext::{0}\n\tpromisor = true\n",
        program.display()
    ));
    fs::write(fork.git_dir.join("config"), config).unwrap();
    let objects = other.dir().join(".git/objects");
    let alternates = format!("../tine/objects\n/\n{}\n", objects.display());
    fs::write(fork.git_dir.join("objects/info/alternates"), alternates).unwrap();
    let secret_ref = fork.git_dir.join("refs/heads/secret");
    fs::write(secret_ref, format!("{secret}\n")).unwrap();
    // Directories of objects that lead elsewhere.
    let fan_out = &secret.to_string()[..2];
    let fan_out_dir = fork.git_dir.join("objects").join(fan_out);
    if !fan_out_dir.exists() {
        symlink(objects.join(fan_out), &fan_out_dir).unwrap();
    }
    let taken = fork.take();
    assert_eq!(taken.rejected.len(), 1, "{taken:?}");
    assert_eq!(taken.rejected[0].name, "heads/secret");
    assert_eq!(main.id_of("tine/f"), tip);
    assert!(
        !main
            .try_git(&["cat-file", "-e", &secret.to_string()], b"")
            .status
            .success()
    );
    assert!(!ran.exists());
    main.open().protect_index(&fork.git_dir, "f").unwrap();
    assert!(!ran.exists());
}

#[test]
fn removing_follows_no_symlink_into_the_main_repository() {
    let main = main_repository();
    let fork = Fork::new(&main, "f");
    fork.take_all();
    fork.write("x", "1\n");
    let tip = fork.commit("one").to_string();
    fork.take_all();
    // The main repository's own directory in the place of the fork's.
    let fan_out = fork.git_dir.join("objects").join(&tip[..2]);
    let _ = fs::remove_dir_all(&fan_out);
    symlink(main.dir().join(".git/objects").join(&tip[..2]), &fan_out).unwrap();
    let taken = main.dir().join(".git/objects/tine-incoming-f");
    fs::create_dir(&taken).unwrap();
    fs::write(taken.join("taken"), format!("{tip}\n")).unwrap();
    let done = fork.try_take(&main.open());
    println!("{done:?}");
    main.git(&["cat-file", "-e", &tip]);
    assert!(
        main.dir()
            .join(".git/objects")
            .join(&tip[..2])
            .join(&tip[2..])
            .exists()
    );
}

#[test]
fn damaged_objects_that_the_main_repository_has_leave() {
    let main = main_repository();
    let fork = Fork::new(&main, "f");
    fork.take_all();
    fork.write("x", "1\n");
    let tip = fork.commit("one").to_string();
    let ids = [
        tip,
        fork.id_of("HEAD^{tree}").to_string(),
        fork.id_of("HEAD:x").to_string(),
    ];
    fork.take_all();
    // As after a loss of power, before the objects had left.
    ids.iter().for_each(|id| put_loose(&fork, id, b""));
    fs::create_dir(main.dir().join(".git/objects/tine-incoming-f")).unwrap();
    fork.take_all();
    assert_eq!(fork.loose_objects(), 0);
}

/// A path that the system refuses is one of many, and the others go on.
#[test]
fn a_ref_with_a_long_name_holds_nothing_back() {
    let main = main_repository();
    let fork = Fork::new(&main, "f");
    fork.take_all();
    let tip = fork.git(&["rev-parse", "HEAD"]);
    let mut dir = File::open(fork.git_dir.join("refs/heads")).unwrap();
    for _ in 0..36 {
        tine_sys::host_dir::make_dir(&dir, &[b'e'; 100], 0o755).unwrap();
        let below = format!("/proc/self/fd/{}/{}", dir.as_raw_fd(), "e".repeat(100));
        dir = File::open(below).unwrap();
    }
    let leaf = format!("/proc/self/fd/{}/leaf", dir.as_raw_fd());
    fs::write(leaf, format!("{tip}\n")).unwrap();
    fork.git(&["commit", "-q", "--allow-empty", "-m", "later"]);
    let taken = fork.take();
    let reasons: Vec<&str> = taken
        .rejected
        .iter()
        .map(|one| one.reason.as_str())
        .collect();
    assert_eq!(reasons, ["its name is too long"]);
    let head = fork.git(&["rev-parse", "HEAD"]);
    assert_eq!(main.git(&["rev-parse", "tine/f"]), head);
}
