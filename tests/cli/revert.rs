//! `tine revert`: paths go back to what they were, mounted or not.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use serde_json::json;

use crate::refused;
use crate::support::{OutputExt, TestRepo, Tine, repo::path_text, require_fuse};

/// One change of each kind.
fn change_a_bit_of_everything(repo: &TestRepo, dir: &Path) {
    repo.sh_in(
        dir,
        "echo four >> docs/guide.md
         echo new > src/new.rs
         mkdir -p made/deep && echo x > made/deep/x
         rm README.md
         rm link && echo file > link
         chmod 644 run.sh
         echo noise > noise.log",
    );
}

const EVERYTHING: &str = "A README.md\n\
                          M docs/guide.md\n\
                          T link\n\
                          D made/deep/x\n\
                          M run.sh\n\
                          D src/new.rs\n\
                          6 paths taken back to pristine; `tine undo demo` takes that back";

#[test]
fn a_mount_sees_at_once_what_was_taken_back() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    // The kernel knows all of it, and what is not there.
    repo.sh_in(
        &dir,
        "find . -exec stat {} + > /dev/null; cat docs/guide.md README.md link > /dev/null",
    );
    let guide = std::fs::read(dir.join("docs/guide.md")).unwrap();
    let before = std::fs::metadata(dir.join("README.md")).unwrap();
    change_a_bit_of_everything(&repo, &dir);
    repo.sh_in(
        &dir,
        "find . -exec stat {} + > /dev/null; cat docs/guide.md link > /dev/null; ! stat README.md",
    );
    let dry = tine.ok(&["revert", "demo", ".", "--dry-run"]);
    let would = EVERYTHING.replace("taken back to", "would be taken back to");
    assert_eq!(dry, would.replace("; `tine undo demo` takes that back", ""));
    assert_eq!(tine.ok(&["revert", "demo", "."]), EVERYTHING);
    assert_eq!(std::fs::read(dir.join("docs/guide.md")).unwrap(), guide);
    assert!(
        std::fs::symlink_metadata(dir.join("link"))
            .unwrap()
            .is_symlink()
    );
    assert!(!dir.join("made").exists() && !dir.join("src/new.rs").exists());
    assert_eq!(
        std::fs::metadata(dir.join("run.sh"))
            .unwrap()
            .permissions()
            .mode()
            & 0o777,
        0o755
    );
    let after = std::fs::metadata(dir.join("README.md")).unwrap();
    assert_eq!(after.len(), before.len());
    assert!(
        (after.mtime(), after.mtime_nsec()) > (before.mtime(), before.mtime_nsec()),
        "what builds by times sees that it changed"
    );
    assert_eq!(
        std::fs::read_to_string(dir.join("noise.log")).unwrap(),
        "noise\n"
    );
    assert_eq!(repo.git_in(&dir, &["status", "--porcelain"]), "");
    assert_eq!(
        tine.ok(&["revert", "demo", "docs", "README.md"]),
        "nothing to take back: it is as at pristine"
    );
    let listed = std::fs::read_dir(&dir).unwrap().count();
    tine.ok(&["unmount", "demo"]);
    tine.ok(&["mount", "demo"]);
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), listed);
    assert_eq!(tine.json(&["status", "demo"])["changes"], json!([]));
}

#[test]
fn a_fork_that_is_not_mounted_goes_back_to_any_point() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    repo.sh_in(&dir, "echo one > docs/guide.md; echo one > one.txt");
    tine.ok(&["commit", "demo", "-m", "one"]);
    change_a_bit_of_everything(&repo, &dir);
    tine.ok(&["unmount", "demo"]);
    tine.ok(&["new", "other", "--no-mount"]);
    repo.sh_in(repo.dir(), "echo theirs > ../theirs");
    tine.ok(&["write", "--fork", "other", "README.md", "-F", "../theirs"]);
    assert_eq!(
        tine.ok(&["revert", "demo", "docs", "run.sh", "--to", "HEAD"]),
        "M docs/guide.md\nM run.sh\n2 paths taken back to rev:HEAD; `tine undo demo` takes that back"
    );
    assert_eq!(tine.ok(&["cat", "--fork", "demo", "docs/guide.md"]), "one");
    let reverted = tine.json(&["revert", "demo", "README.md", "--to", "fork:other"]);
    assert_eq!(reverted["to"]["point"], "fork:other");
    assert_eq!(
        (
            &reverted["changes"][0]["kind"],
            &reverted["changes"][0]["path"]
        ),
        (&json!("added"), &json!("README.md"))
    );
    assert_eq!(tine.ok(&["cat", "--fork", "demo", "README.md"]), "theirs");
    // To what the fork was made from, its commit included; HEAD stays.
    tine.ok(&["revert", "demo", "."]);
    assert_eq!(tine.ok(&["diff", "demo", "--against", "pristine"]), "");
    assert_eq!(
        tine.ok(&["diff", "demo", "--name-status"]),
        "M\tdocs/guide.md\nD\tone.txt"
    );
    tine.kill_daemon();
    assert_eq!(tine.ok(&["diff", "demo", "--against", "pristine"]), "");
}

#[test]
fn a_removed_directory_comes_back_with_hundreds_of_files() {
    require_fuse!();
    let repo = TestRepo::new();
    repo.sh_in(
        repo.dir(),
        "for i in $(seq 400); do mkdir -p many/$((i % 7)); echo $i > many/$((i % 7))/$i; done
         git add -A && git commit -qm many",
    );
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    repo.sh_in(
        &dir,
        "cat many/*/* | sort > ../before; find many | sort >> ../before; rm -r many; echo file > many; ls -l",
    );
    let told = tine.ok(&["revert", "demo", "many"]);
    assert!(
        told.ends_with("401 paths taken back to pristine; `tine undo demo` takes that back"),
        "{told}"
    );
    repo.sh_in(
        &dir,
        "(cat many/*/* | sort; find many | sort) | cmp - ../before",
    );
    assert_eq!(repo.git_in(&dir, &["status", "--porcelain"]), "");
}

#[test]
fn paths_are_named_from_the_root_or_in_the_mount() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    let odd = dir.join(std::ffi::OsStr::from_bytes(b"not\xffutf8"));
    let change = || {
        std::fs::write(dir.join("README.md"), "changed").unwrap();
        std::fs::write(&odd, "x").unwrap();
    };
    change();
    let readme = dir.join("README.md");
    assert_eq!(
        tine.ok(&["revert", "demo", path_text(&readme)]),
        "M README.md\n1 path taken back to pristine; `tine undo demo` takes that back"
    );
    let mut command = tine.command(&["revert", "demo"]);
    command.arg(&odd);
    let output = crate::support::run_with_timeout(&mut command).expect_success("revert");
    assert_eq!(
        output.text(),
        "D \"not\\377utf8\"\n1 path taken back to pristine; `tine undo demo` takes that back"
    );
    change();
    assert_eq!(
        tine.ok(&["revert", "demo", "./README.md", "README.md/", "."]),
        "M README.md\nD \"not\\377utf8\"\n2 paths taken back to pristine; `tine undo demo` takes that back"
    );
}

#[test]
fn what_cannot_be_taken_back_is_refused_and_nothing_changes() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    repo.sh_in(
        &dir,
        "echo four >> docs/guide.md; rm README.md; mkdir README.md; echo hidden > README.md/x.log",
    );
    let before = tine.json(&["diff", "demo"])["view_tree"].clone();
    for (words, code, exit) in [
        (&["docs", "nothing"][..], "no-such-path", 4),
        (&["docs", "README.md"], "in-the-way", 3),
        (&["docs", ".git"], "path-refused", 2),
        (&["docs", "/etc/passwd"], "path-refused", 2),
        (&["docs", "../demo"], "usage", 2),
        (&["docs", ""], "usage", 2),
        (&["docs", "--to", "nowhere"], "no-such-point", 4),
        (&["docs", "--to", "rev:nowhere"], "unknown-revision", 4),
    ] {
        let words = [&["revert", "demo"], words].concat();
        refused(&repo, &tine, &words, code, exit);
        assert_eq!(
            tine.json(&["diff", "demo"])["view_tree"],
            before,
            "{words:?}"
        );
    }
    refused(&repo, &tine, &["revert", "nobody", "x"], "no-such-fork", 4);
    tine.ok(&["revert", "demo", ".", "--force"]);
    assert!(dir.join("README.md").is_file());
    assert_eq!(repo.git_in(&dir, &["status", "--porcelain"]), "");
}

#[test]
fn paths_go_back_to_a_snapshot_and_the_rest_goes_on() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    change_a_bit_of_everything(&repo, &dir);
    tine.ok(&["snapshot", "demo", "then"]);
    repo.sh_in(
        &dir,
        "echo later > src/new.rs; rm -r made docs; echo later > README.md; chmod 755 run.sh; echo later > noise.log",
    );
    assert_eq!(
        tine.ok(&["revert", "demo", "src", "made", "--to", "then"]),
        "A made/deep/x\nM src/new.rs\n2 paths taken back to snapshot:then; `tine undo demo` takes that back"
    );
    let read = |path: &str| std::fs::read_to_string(dir.join(path)).unwrap();
    assert_eq!(
        (read("src/new.rs"), read("made/deep/x")),
        ("new\n".into(), "x\n".into())
    );
    assert_eq!(read("README.md"), "later\n");
    let restored = tine.json(&[
        "restore", "demo", "then", "--path", "docs", "--path", "run.sh",
    ]);
    assert_eq!(restored["to"], "snapshot:then");
    assert!(read("docs/guide.md").ends_with("four\n"));
    tine.ok(&["revert", "demo", ".", "--to", "then"]);
    assert!(!dir.join("README.md").exists());
    assert_eq!(
        read("noise.log"),
        "later\n",
        "ignored files are no part of it"
    );
    assert_eq!(tine.ok(&["diff", "demo", "--against", "then"]), "");
    // Of another fork, that is not mounted, and with the snapshot gone what came stays.
    tine.ok(&["new", "other", "--no-mount"]);
    tine.ok(&["revert", "other", "made", "docs", "--to", "fork:demo@then"]);
    tine.ok(&["snapshot", "demo", "then", "--delete", "--force"]);
    tine.ok(&["unmount", "demo"]);
    tine.ok(&["delete", "demo", "--force"]);
    for reference in repo
        .git(&[
            "for-each-ref",
            "--format=%(refname)",
            "refs/tine/demo/",
            "refs/tine/+recover/",
        ])
        .lines()
    {
        repo.git(&["update-ref", "-d", reference]);
    }
    repo.git(&["gc", "-q", "--prune=now"]);
    assert_eq!(tine.ok(&["cat", "--fork", "other", "made/deep/x"]), "x");
    assert!(
        tine.ok(&["cat", "--fork", "other", "docs/guide.md"])
            .ends_with("four")
    );
    assert_eq!(
        tine.ok(&["diff", "other", "--name-status"]),
        "M\tdocs/guide.md\nA\tmade/deep/x"
    );
}

#[test]
fn carried_files_that_went_with_a_directory_do_not_come_back_with_it() {
    require_fuse!();
    let repo = TestRepo::new();
    repo.commit_files(&[(".gitignore", b"*.log\n/target/\ncache/\n")], "rules");
    repo.write("src/cache/x", "carried\n");
    repo.write("docs/cache/y", "carried\n");
    let tine = Tine::new(&repo);
    tine.ok(&["new", "demo", "--carry", "cache"]);
    let dir = std::path::PathBuf::from(tine.ok(&["path", "demo"]));
    assert_eq!(
        std::fs::read_to_string(dir.join("src/cache/x")).unwrap(),
        "carried\n"
    );
    repo.sh_in(&dir, "echo changed > docs/guide.md; rm -r src");
    tine.ok(&["revert", "demo", "."]);
    assert_eq!(tine.json(&["status", "demo"])["changes"], json!([]));
    assert!(dir.join("src").is_dir());
    assert!(!dir.join("src/cache").exists(), "nobody asked for it");
    assert_eq!(
        std::fs::read_to_string(dir.join("docs/cache/y")).unwrap(),
        "carried\n"
    );
    tine.ok(&["unmount", "demo"]);
    tine.ok(&["mount", "demo"]);
    assert!(!dir.join("src/cache").exists());
}

/// Whatever programs do meanwhile, a revert is one step or none, and says which.
#[test]
fn paths_are_taken_back_amid_programs_that_change_them() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    let stop = std::sync::atomic::AtomicBool::new(false);
    let done = std::thread::scope(|scope| {
        for worker in 0..3 {
            let (dir, stop) = (dir.clone(), &stop);
            scope.spawn(move || {
                let mut round = 0u32;
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    round += 1;
                    // Any of it may fail: what it works on comes and goes.
                    let own = dir.join(format!("work/{worker}"));
                    let _ = std::fs::create_dir_all(&own);
                    let _ = std::fs::write(own.join("file"), format!("{worker} {round}"));
                    let _ = std::fs::write(dir.join("docs/guide.md"), format!("{worker} {round}"));
                    let _ = std::fs::rename(
                        own.join("file"),
                        dir.join("src").join(format!("moved{worker}")),
                    );
                    let _ = std::fs::remove_file(dir.join("README.md"));
                    let _ = std::fs::read_dir(&own).map(Iterator::count);
                }
            });
        }
        let mut done = 0;
        for _ in 0..30 {
            let output = tine.run(&["revert", "demo", ".", "--json"]);
            if output.status.success() {
                done += 1;
            } else {
                let failure = crate::failure_of(&output, "revert");
                assert_eq!(failure["code"], "busy", "{failure}");
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        done
    });
    assert!(done > 0, "none of them went through");
    tine.ok(&["revert", "demo", "."]);
    assert_eq!(tine.json(&["status", "demo"])["changes"], json!([]));
    assert_eq!(repo.git_in(&dir, &["status", "--porcelain"]), "");
    tine.ok(&["unmount", "demo"]);
    tine.ok(&["mount", "demo"]);
    assert_eq!(tine.json(&["status", "demo"])["changes"], json!([]));
}

#[test]
fn a_revert_can_be_taken_back_and_done_again() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    change_a_bit_of_everything(&repo, &dir);
    repo.sh_in(&dir, "chmod 700 src/new.rs; rm -r docs");
    let changed = tine.json(&["diff", "demo"])["view_tree"].clone();
    let times = || repo.sh_in(&dir, "stat -c '%.Y' link src/new.rs");
    let before_times = times();
    let before = repo.sh_in(&dir, "find . ! -type d -printf '%p %y %m %s %i\\n' | sort");
    tine.ok(&["revert", "demo", "."]);
    assert_eq!(tine.json(&["status", "demo"])["changes"], json!([]));
    tine.ok(&["undo", "demo"]);
    assert_eq!(tine.json(&["diff", "demo"])["view_tree"], changed);
    let after = repo.sh_in(&dir, "find . ! -type d -printf '%p %y %m %s %i\\n' | sort");
    assert_eq!(after, before, "the very files, with their modes");
    for (after, before) in times().lines().zip(before_times.lines()) {
        assert!(after > before, "what comes back is new: {after}, {before}");
    }
    tine.ok(&["redo", "demo"]);
    assert_eq!(tine.json(&["status", "demo"])["changes"], json!([]));
    assert_eq!(repo.git_in(&dir, &["status", "--porcelain"]), "");
    tine.ok(&["unmount", "demo"]);
    tine.kill_daemon();
    tine.ok(&["undo", "demo"]);
    assert_eq!(tine.json(&["diff", "demo"])["view_tree"], changed);
    let operations = tine.ok(&["op", "log", "demo"]);
    assert!(operations.contains("tine revert demo ."), "{operations}");
}
