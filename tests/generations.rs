//! Dependency trees of the main checkout, kept for the forks that carry them: whole whatever the
//! main checkout does.

mod support;

use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use support::{OutputExt, TestRepo, Tine, require_fuse, wait_until};

/// A tree must have been left alone for a second, and the kernel remembers names for one.
const SOON: Duration = Duration::from_secs(30);

const PACKAGES: usize = 20;

/// A repository that ignores `node_modules/`, with some packages of this version in it.
fn repo() -> TestRepo {
    let repo = TestRepo::new();
    repo.commit_files(&[(".gitignore", b"node_modules/\n.venv/\n")], "rules");
    install(&repo, "1");
    repo
}

/// As `npm install` does after `rm -rf node_modules`.
fn install(repo: &TestRepo, version: &str) {
    let modules = repo.dir().join("node_modules");
    let _ = fs::remove_dir_all(&modules);
    for package in 0..PACKAGES {
        let dir = format!("node_modules/p{package}");
        repo.write(
            &format!("{dir}/package.json"),
            format!("{{\"version\":\"{version}\"}}\n"),
        );
        repo.write(
            &format!("{dir}/lib/index.js"),
            format!("// {version} of {package}\n"),
        );
    }
    // Larger than what one read takes, and not of whole blocks.
    repo.write("node_modules/p0/lib/large.bin", version.repeat(300_001));
    repo.write(
        &format!("node_modules/only-in-{version}/index.js"),
        "// only\n",
    );
    repo.write(
        "node_modules/.package-lock.json",
        format!("{{\"lock\":\"{version}\"}}\n"),
    );
    fs::create_dir(modules.join(".bin")).unwrap();
    symlink("../p1/lib/index.js", modules.join(".bin/p1")).unwrap();
    fs::set_permissions(
        modules.join("p1/lib/index.js"),
        fs::Permissions::from_mode(0o755),
    )
    .unwrap();
}

fn new_fork(tine: &Tine, name: &str) -> PathBuf {
    let fork = tine.json(&["new", name, "--carry", "node_modules"]);
    PathBuf::from(fork["mount_dir"].as_str().unwrap())
}

fn trees(tine: &Tine, fork: &str) -> Vec<Value> {
    let listed = tine.json(&["list"]);
    let forks = listed["forks"].as_array().unwrap();
    let fork = forks.iter().find(|known| known["name"] == fork).unwrap();
    fork["carry"]["trees"].as_array().unwrap().clone()
}

fn generation(tine: &Tine, fork: &str) -> Option<String> {
    let trees = trees(tine, fork);
    assert_eq!(trees.len(), 1, "{trees:?}");
    trees[0]["generation"].as_str().map(str::to_owned)
}

fn wait_until_kept(tine: &Tine, fork: &str) -> String {
    wait_until("the tree is kept", SOON, || {
        generation(tine, fork).is_some()
    });
    generation(tine, fork).unwrap()
}

/// Each path with kind, mode, time, inode number and bytes.
fn picture(repo: &TestRepo, dir: &Path) -> String {
    repo.sh_in(
        &dir.join("node_modules"),
        "find . -type d -printf '%p %m\\n' | sort; find . ! -type d -printf '%p %y %m %T@ %s %l\\n' | sort; \
         find . -type f -exec md5sum {} + | sort",
    )
}

fn generations_on_disk(repo: &TestRepo) -> Vec<String> {
    let Ok(entries) = fs::read_dir(repo.common_dir().join("tine/generations")) else {
        return Vec::new();
    };
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

#[test]
fn a_reinstall_in_the_main_checkout_leaves_the_fork_whole() {
    require_fuse!();
    let repo = repo();
    let tine = Tine::new(&repo);
    let dir = new_fork(&tine, "work");
    let before = picture(&repo, &dir);
    let index = dir.join("node_modules/p3/lib/index.js");
    let ino = fs::metadata(&index).unwrap().ino();
    let mut open = fs::File::open(dir.join("node_modules/p4/lib/index.js")).unwrap();
    let id = wait_until_kept(&tine, "work");
    assert_eq!(trees(&tine, "work")[0]["state"], "kept");
    assert_eq!(picture(&repo, &dir), before, "going over changes nothing");
    assert_eq!(fs::metadata(&index).unwrap().ino(), ino);

    install(&repo, "2");
    // Longer than the kernel remembers anything of it.
    wait_until("the main checkout is seen to have moved on", SOON, || {
        trees(&tine, "work")[0]["moved_on"] == true
    });
    std::thread::sleep(Duration::from_millis(1200));
    assert_eq!(picture(&repo, &dir), before);
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "// 1 of 4\n", "what was open goes on");
    fs::remove_dir_all(repo.dir().join("node_modules")).unwrap();
    std::thread::sleep(Duration::from_millis(1200));
    assert_eq!(picture(&repo, &dir), before, "gone from the main checkout");
    assert_eq!(repo.status(&dir), "");

    // Also after a crash and a remount, and in a fork of it.
    tine.kill_daemon();
    tine.ok(&["mount", "work"]);
    assert_eq!(picture(&repo, &dir), before);
    let child = tine.json(&["new", "child", "--from-fork", "work"]);
    let child = Path::new(child["mount_dir"].as_str().unwrap());
    assert_eq!(picture(&repo, child), before);
    assert_eq!(generation(&tine, "child"), Some(id));
    assert!(tine.json(&["check"])["ok"] == true);
}

/// The names at the root of the fork with what they are, listed anew.
fn listed(repo: &TestRepo, fork: &Path) -> String {
    let listed = repo.sh_in(
        fork,
        "touch new && rm new && find . -maxdepth 1 -printf '%P %y\n' | sort",
    );
    format!("{listed}\n")
}

#[test]
fn a_kept_tree_is_listed_whatever_stands_in_its_place_in_the_main_checkout() {
    require_fuse!();
    let repo = repo();
    let tine = Tine::new(&repo);
    repo.write("target/out", "built\n");
    repo.write("packages/a/node_modules/p/index.js", "deep\n");
    repo.commit_files(
        &[
            (".gitignore", b"node_modules/\ntarget/\n"),
            ("packages/a/a.js", b"a\n"),
        ],
        "rules",
    );
    let modules = repo.dir().join("node_modules");
    let fork = tine.json(&[
        "new",
        "work",
        "--carry",
        "node_modules",
        "--carry",
        "target",
    ]);
    let fork = PathBuf::from(fork["mount_dir"].as_str().unwrap());
    wait_until("the trees are kept", SOON, || {
        let trees = trees(&tine, "work");
        trees.len() == 2 && trees.iter().all(|tree| tree["state"] == "kept")
    });
    let before = (listed(&repo, &fork), picture(&repo, &fork));
    assert!(
        before.0.contains("node_modules d\n") && before.0.contains("target d\n"),
        "{}",
        before.0
    );

    let elsewhere = repo.root().join("elsewhere");
    fs::rename(&modules, &elsewhere).unwrap();
    fs::rename(repo.dir().join("target"), elsewhere.join("target")).unwrap();
    for replace in [
        |modules: &Path, elsewhere: &Path| symlink(elsewhere, modules).unwrap(),
        |modules: &Path, _: &Path| fs::remove_file(modules).unwrap(),
        |modules: &Path, _: &Path| fs::write(modules, "a file\n").unwrap(),
    ] {
        replace(&modules, &elsewhere);
        std::thread::sleep(Duration::from_millis(1200));
        assert_eq!(listed(&repo, &fork), before.0.replace("target d\n", ""));
        assert_eq!(picture(&repo, &fork), before.1);
    }
    // Another one may lead anywhere.
    symlink(elsewhere.join("target"), repo.dir().join("target")).unwrap();
    fs::remove_dir_all(repo.dir().join("packages/a")).unwrap();
    std::thread::sleep(Duration::from_millis(1200));
    assert_eq!(listed(&repo, &fork), before.0.replace("target d\n", ""));
    assert!(fork.join("target").symlink_metadata().is_err());
    let deep = repo.sh_in(
        &fork.join("packages/a"),
        "touch new && rm new && find . -type f | sort",
    );
    assert_eq!(deep, "./a.js\n./node_modules/p/index.js");
    fs::write(fork.join("node_modules/p1/own.js"), "own\n").unwrap();
    assert!(!elsewhere.join("p1/own.js").exists());
}

#[test]
fn list_and_status_say_what_is_kept_and_where_the_main_checkout_has_moved_on() {
    require_fuse!();
    let repo = repo();
    let tine = Tine::new(&repo);
    new_fork(&tine, "work");
    let said = |args: &[&str]| tine.run(args).expect_success("tine").error_text();
    assert!(said(&["list"]).contains("node_modules/ is being kept"));
    wait_until_kept(&tine, "work");
    for args in [&["list"][..], &["status", "work"]] {
        assert!(!said(args).contains("node_modules"), "{args:?}");
    }
    // A cache does not count, nor does another name of a file.
    repo.write("node_modules/.cache/babel/x", "cached\n");
    fs::hard_link(
        repo.dir().join("node_modules/p1/package.json"),
        repo.dir().join("elsewhere"),
    )
    .unwrap();
    assert!(!said(&["list"]).contains("node_modules"));
    repo.write("node_modules/new/index.js", "new\n");
    for args in [&["list"][..], &["status", "work"]] {
        let said = said(args);
        assert!(
            said.contains("moved on from node_modules/")
                && said.contains("tine update work --carried"),
            "{said}"
        );
    }
    assert_eq!(tine.json(&["status", "work"])["trees"][0]["moved_on"], true);
}

#[test]
fn forks_of_one_tree_share_a_generation_and_the_last_takes_it_along() {
    require_fuse!();
    let repo = repo();
    let tine = Tine::new(&repo);
    new_fork(&tine, "one");
    let id = wait_until_kept(&tine, "one");
    let kept_at =
        |id: &str| fs::metadata(repo.common_dir().join("tine/generations").join(id)).unwrap();
    let made = (kept_at(&id).ino(), kept_at(&id).mtime_nsec());
    new_fork(&tine, "two");
    assert_eq!(wait_until_kept(&tine, "two"), id);
    assert_eq!(
        made,
        (kept_at(&id).ino(), kept_at(&id).mtime_nsec()),
        "it is not copied again"
    );
    tine.ok(&["delete", "one"]);
    assert_eq!(generations_on_disk(&repo), [id]);
    tine.ok(&["delete", "two"]);
    tine.ok(&["gc"]);
    assert_eq!(generations_on_disk(&repo), [""; 0]);
}

/// One of them asks for the tree while it is kept for another.
#[test]
fn forks_that_are_made_at_the_same_moment_all_keep_the_tree() {
    require_fuse!();
    let repo = repo();
    let tine = Tine::new(&repo);
    let names = ["a", "b", "c", "d", "e", "f"];
    for round in 0..2 {
        std::thread::scope(|scope| {
            for (number, name) in names.iter().enumerate() {
                let tine = &tine;
                scope.spawn(move || {
                    // The tree is looked at when it has been left alone for a second.
                    std::thread::sleep(Duration::from_millis(250 * number as u64));
                    new_fork(tine, &format!("{name}{round}"));
                });
            }
        });
        for name in names {
            wait_until_kept(&tine, &format!("{name}{round}"));
        }
        install(&repo, "2");
    }
}

#[test]
fn what_a_fork_writes_stays_its_own() {
    require_fuse!();
    let repo = repo();
    let tine = Tine::new(&repo);
    let one = new_fork(&tine, "one");
    let two = new_fork(&tine, "two");
    wait_until_kept(&tine, "one");
    wait_until_kept(&tine, "two");
    let before = picture(&repo, &two);
    repo.sh_in(
        &one.join("node_modules"),
        "echo own > p1/lib/index.js; echo more >> p2/lib/index.js; rm -r p3; mv p4 p5-moved; chmod 700 p6/package.json; \
         ln p7/package.json p7/link; printf x | dd of=p0/lib/large.bin bs=1 seek=70000 conv=notrunc 2>/dev/null; touch new",
    );
    assert_eq!(picture(&repo, &two), before);
    assert_eq!(picture(&repo, repo.dir()), before);
    assert!(tine.json(&["check"])["ok"] == true);
    let large = fs::read(one.join("node_modules/p0/lib/large.bin")).unwrap();
    assert_eq!(
        (large.len(), large[70000], large[70001]),
        (300_001, b'x', b'1')
    );
    install(&repo, "2");
    std::thread::sleep(Duration::from_millis(1200));
    assert_eq!(picture(&repo, &two), before);
    assert_eq!(
        repo.sh_in(
            &one.join("node_modules"),
            "cat p1/lib/index.js p2/lib/index.js; ls p5-moved/lib; test ! -e p3"
        ),
        "own\n// 1 of 2\nmore\nindex.js"
    );
}

#[test]
fn the_new_tree_is_taken_up_and_given_back() {
    require_fuse!();
    let repo = repo();
    let tine = Tine::new(&repo);
    let dir = new_fork(&tine, "work");
    let first = wait_until_kept(&tine, "work");
    let old = picture(&repo, &dir);
    let own = dir.join("node_modules/p2/lib/own.js");
    fs::write(&own, "own\n").unwrap();
    fs::write(dir.join("node_modules/p1/lib/index.js"), "own\n").unwrap();
    fs::read_dir(dir.join("node_modules/p2/lib"))
        .unwrap()
        .count();
    tine.fails(7, &["update", "work", "--carried"]);

    install(&repo, "2");
    // It waits until the tree has come to rest.
    tine.ok(&["update", "work", "--carried"]);
    let second = generation(&tine, "work").unwrap();
    assert_ne!(first, second);
    let reads = |path: &str, text: &str| {
        fs::read_to_string(dir.join("node_modules").join(path)).is_ok_and(|read| read == text)
    };
    wait_until("the new tree is seen", SOON, || {
        reads("p2/lib/index.js", "// 2 of 2\n")
    });
    wait_until("new names are listed", SOON, || {
        let names = repo.sh_in(&dir.join("node_modules"), "ls");
        names.contains("only-in-2") && !names.contains("only-in-1")
    });
    assert!(
        reads("p1/lib/index.js", "own\n") && reads("p2/lib/own.js", "own\n"),
        "the fork's own stays"
    );
    assert_eq!(trees(&tine, "work")[0]["moved_on"], false);

    fs::remove_dir_all(repo.dir().join("node_modules")).unwrap();
    tine.ok(&["gc"]);
    tine.ok(&["update", "work", "--carried=previous"]);
    assert_eq!(generation(&tine, "work"), Some(first));
    fs::remove_file(own).unwrap();
    fs::remove_file(dir.join("node_modules/p1/lib/index.js")).unwrap();
    wait_until("the old tree is seen", SOON, || {
        reads("p2/lib/index.js", "// 1 of 2\n")
    });
    wait_until("old names are listed", SOON, || {
        repo.sh_in(&dir.join("node_modules"), "ls")
            .contains("only-in-1")
    });
    let lines = |picture: &str| {
        picture
            .lines()
            .filter(|line| !line.contains("/p1/lib/index.js"))
            .count()
    };
    assert_eq!(lines(&picture(&repo, &dir)), lines(&old));
    let refused = tine.fails(4, &["update", "work", "--carried"]);
    assert!(refused.contains("does not have it"), "{refused}");
}

/// Each path with kind, mode, size, target and bytes, read anew in each file.
fn contents(repo: &TestRepo, dir: &Path) -> String {
    repo.sh_in(
        &dir.join("node_modules"),
        "find . -type d -printf '%p %m\\n' | sort; find . ! -type d -printf '%p %y %m %s %l\\n' | sort; \
         find . -type f -exec md5sum {} + | sort",
    )
}

#[test]
fn what_was_read_before_is_forgotten_when_a_tree_is_taken_up() {
    require_fuse!();
    let repo = repo();
    let tine = Tine::new(&repo);
    let dir = new_fork(&tine, "work");
    wait_until_kept(&tine, "work");
    let first = contents(&repo, &dir);
    assert_eq!(first, contents(&repo, repo.dir()));
    let modules = repo.dir().join("node_modules");
    let read = |path: &str| fs::read_to_string(dir.join("node_modules").join(path));
    let mut open = fs::File::open(dir.join("node_modules/p4/lib/index.js")).unwrap();

    // One by one, and all together.
    fs::write(modules.join("p3/lib/index.js"), "changed\n").unwrap();
    fs::write(modules.join("p3/lib/added.js"), "added\n").unwrap();
    fs::remove_file(modules.join("p5/package.json")).unwrap();
    fs::rename(modules.join("p6"), modules.join("q6")).unwrap();
    fs::remove_dir_all(modules.join("p7")).unwrap();
    fs::write(modules.join("p7"), "a file now\n").unwrap();
    for change in [false, true] {
        if change {
            install(&repo, "2");
        }
        let before = contents(&repo, &dir);
        assert!(read("p3/lib/added.js").is_err());
        tine.ok(&["update", "work", "--carried"]);
        let now = read("p3/lib/index.js").unwrap();
        assert_eq!(now, if change { "// 2 of 3\n" } else { "changed\n" });
        let after = contents(&repo, &dir);
        let times = picture(&repo, &dir);
        assert_ne!(times, picture(&repo, repo.dir()), "what came is new");
        assert_eq!(after, contents(&repo, repo.dir()));
        tine.ok(&["update", "work", "--carried=previous"]);
        assert_eq!(contents(&repo, &dir), before);
        tine.ok(&["update", "work", "--carried=previous"]);
        assert_eq!(contents(&repo, &dir), after);
        let later = picture(&repo, &dir);
        assert_ne!(later, times);
        tine.ok(&["update", "work", "--carried=previous"]);
        assert_eq!(contents(&repo, &dir), before);
        assert_eq!(before, first);
    }
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "// 1 of 4\n", "what was open goes on");
    drop(open);
    let times = picture(&repo, &dir);
    tine.ok(&["unmount", "work"]);
    tine.ok(&["mount", "work"]);
    assert_eq!(picture(&repo, &dir), times, "times stay");
}

#[test]
fn a_daemon_that_is_killed_leaves_nothing_half_kept() {
    require_fuse!();
    let repo = repo();
    let tine = Tine::new(&repo);
    // It waits for the tree to be quiet, or copies.
    let dir = new_fork(&tine, "work");
    tine.kill_daemon();
    let half = repo.common_dir().join("tine/generations/0123.1-1.tmp");
    fs::create_dir_all(&half).unwrap();
    fs::write(half.join("pack"), "half").unwrap();
    tine.ok(&["mount", "work"]);
    assert!(!half.exists(), "what is half made goes");
    let id = wait_until_kept(&tine, "work");
    assert_eq!(generations_on_disk(&repo), [id]);
    let before = picture(&repo, &dir);
    assert_eq!(picture(&repo, repo.dir()), before);
    install(&repo, "2");
    std::thread::sleep(Duration::from_millis(1200));
    assert_eq!(picture(&repo, &dir), before);
}

#[test]
fn a_tree_that_is_changing_is_kept_once_it_is_whole() {
    require_fuse!();
    let repo = repo();
    let tine = Tine::new(&repo);
    fs::remove_dir_all(repo.dir().join("node_modules")).unwrap();
    repo.write("node_modules/p0/index.js", "half\n");
    let dir = new_fork(&tine, "work");
    for _ in 0..5 {
        install(&repo, "3");
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(generation(&tine, "work"), None, "it changes");
    }
    wait_until_kept(&tine, "work");
    wait_until("all of it is seen", SOON, || {
        contents(&repo, &dir) == contents(&repo, repo.dir())
    });
}

#[test]
fn what_is_carried_goes_along_with_a_repository_that_is_moved() {
    require_fuse!();
    let repo = repo();
    let tine = Tine::new(&repo);
    repo.write("node_modules/main.js", "main's\n");
    let fork = new_fork(&tine, "work");
    let before = picture(&repo, &fork);
    wait_until_kept(&tine, "work");
    fs::remove_dir_all(repo.dir().join("node_modules")).unwrap();
    tine.ok(&["daemon", "stop"]);
    let moved = repo.root().join("moved");
    fs::rename(repo.dir(), &moved).unwrap();
    let place = tine
        .run_in(&moved, &["mount", "work"])
        .expect_success("tine mount");
    let place = PathBuf::from(place.text().trim());
    assert!(
        place.starts_with(repo.root().join("moved.forks")),
        "{place:?}"
    );
    assert_eq!(picture(&repo, &place), before);
    tine.run_in(&moved, &["daemon", "stop"])
        .expect_success("tine daemon stop");
    fs::rename(&moved, repo.dir()).unwrap();
}

/// Nothing changes in it for longer than a second, and yet it is not whole.
#[test]
fn a_tree_that_is_being_removed_is_kept_once_it_is_there_again() {
    require_fuse!();
    let repo = repo();
    let tine = Tine::new(&repo);
    let modules = repo.dir().join("node_modules");
    let inner = "node_modules/.pnpm/a@1/node_modules/@s/x/index.js";
    repo.write(inner, "inner\n");
    let deep = new_fork(&tine, "deep");
    fs::remove_dir_all(modules.join(".pnpm/a@1/node_modules/@s/x")).unwrap();
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(generation(&tine, "deep"), None);
    repo.write(inner, "inner\n");
    wait_until_kept(&tine, "deep");
    assert!(deep.join(inner).exists());

    fs::remove_dir_all(modules.join(".pnpm")).unwrap();
    let fork = new_fork(&tine, "work");
    for package in 0..PACKAGES / 2 {
        fs::remove_dir_all(modules.join(format!("p{package}"))).unwrap();
    }
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(generation(&tine, "work"), None);
    install(&repo, "2");
    wait_until_kept(&tine, "work");
    assert_eq!(
        picture(&repo, &fork).matches("package.json").count(),
        2 * PACKAGES
    );
    // Whoever asks gets what is there.
    fs::remove_dir_all(modules.join("p1")).unwrap();
    tine.ok(&["update", "work", "--carried"]);
    assert!(!fork.join("node_modules/p1").exists());
}

#[test]
fn make_builds_what_was_taken_up() {
    require_fuse!();
    if Command::new("make").arg("--version").output().is_err()
        || Command::new("cc").arg("--version").output().is_err()
    {
        println!("SKIP: make or cc is not here");
        return;
    }
    let repo = TestRepo::new();
    repo.commit_files(
        &[
            (".gitignore", b"vendor/\n/app\n"),
            ("a.c", b"#include <stdio.h>\n#include \"vendor/h.h\"\nint main(void) { printf(\"%d%d\\n\", H, U); }\n"),
            ("Makefile", b"app: a.c vendor/h.h vendor/u.h\n\tcc -include vendor/u.h -o app a.c\n"),
        ],
        "rules",
    );
    repo.write("vendor/u.h", "#define U 1\n");
    repo.write("vendor/h.h", "#define H 1\n");
    let tine = Tine::new(&repo);
    let new = tine.json(&["new", "work", "--carry", "vendor"]);
    let dir = PathBuf::from(new["mount_dir"].as_str().unwrap());
    wait_until_kept(&tine, "work");
    let built = |dir: &Path| repo.sh_in(dir, "make >/dev/null && ./app");
    let time = |dir: &Path, path: &str| {
        let meta = fs::metadata(dir.join("vendor").join(path)).unwrap();
        (meta.mtime(), meta.mtime_nsec())
    };
    let first = time(&dir, "h.h");
    assert_eq!(first, time(repo.dir(), "h.h"));
    assert_eq!(built(&dir), "11");

    repo.write("vendor/h.h", "#define H 2\n");
    std::thread::sleep(Duration::from_millis(1200));
    fs::write(
        dir.join("a.c"),
        fs::read_to_string(dir.join("a.c")).unwrap() + "//\n",
    )
    .unwrap();
    assert_eq!(built(&dir), "11");
    let unchanged = time(&dir, "u.h");
    tine.ok(&["update", "work", "--carried"]);
    assert_eq!(time(&dir, "u.h"), unchanged);
    assert_eq!(built(&dir), "21");
    let up_to_date = |dir: &Path| repo.sh_in(dir, "make -q && echo yes || echo no") == "yes";
    assert!(up_to_date(&dir), "what is built stays built");
    tine.ok(&["update", "work", "--carried=previous"]);
    assert!(time(&dir, "h.h") > first);
    assert_eq!(built(&dir), "11");
    tine.ok(&["update", "work", "--carried=previous"]);

    // It was taken up before another one, and has not been built since.
    let second = time(&dir, "h.h");
    repo.write("vendor/u.h", "#define U 2\n");
    tine.ok(&["update", "work", "--carried"]);
    assert_eq!(time(&dir, "h.h"), second);
    let third = time(&dir, "u.h");
    assert!(third > unchanged);
    let listed = repo.sh_in(
        &dir,
        "ls -l --time-style=full-iso vendor; find vendor -printf '%p %T@ %C@\\n' | sort",
    );

    // The same is seen after a crash, and by a fork of it.
    tine.kill_daemon();
    tine.ok(&["mount", "work"]);
    let child = tine.json(&["new", "child", "--from-fork", "work"]);
    let child = PathBuf::from(child["mount_dir"].as_str().unwrap());
    for dir in [&dir, &child] {
        assert_eq!(
            repo.sh_in(
                dir,
                "ls -l --time-style=full-iso vendor; find vendor -printf '%p %T@ %C@\\n' | sort"
            ),
            listed
        );
        assert_eq!((time(dir, "h.h"), time(dir, "u.h")), (second, third));
        assert_eq!(built(dir), "22");
    }
    assert!(tine.json(&["check"])["ok"] == true);

    // Written to and removed.
    fs::write(dir.join("vendor/h.h"), "#define H 3\n").unwrap();
    assert_eq!(built(&dir), "32");
    tine.ok(&["delete", "work", "--force"]);
    tine.ok(&["gc"]);
    assert_eq!(built(&child), "22");
    tine.ok(&["delete", "child", "--force"]);
    tine.ok(&["gc"]);
    assert_eq!(generations_on_disk(&repo), [""; 0]);
}

#[test]
fn damage_hurts_only_forks_that_name_it() {
    require_fuse!();
    let repo = repo();
    let tine = Tine::new(&repo);
    let hurt = new_fork(&tine, "hurt");
    let damaged = wait_until_kept(&tine, "hurt");
    install(&repo, "2");
    let well = new_fork(&tine, "well");
    wait_until_kept(&tine, "well");
    let before = picture(&repo, &well);
    tine.ok(&["daemon", "stop"]);
    let dir = repo.common_dir().join("tine/generations").join(&damaged);
    fs::File::options()
        .write(true)
        .open(dir.join("pack"))
        .unwrap()
        .set_len(1000)
        .unwrap();
    let report: Value = serde_json::from_str(&tine.run(&["check", "--json"]).text()).unwrap();
    let findings = report["findings"].as_array().unwrap();
    assert_eq!(findings.len(), 1, "{report}");
    assert_eq!(findings[0]["kind"], "generation-damaged");
    assert_eq!(findings[0]["fork"], "hurt");
    tine.ok(&["mount", "hurt"]);
    tine.ok(&["mount", "well"]);
    assert_eq!(picture(&repo, &well), before);
    assert_eq!(trees(&tine, "hurt")[0]["state"], "damaged");
    assert!(fs::read_dir(hurt.join("node_modules")).is_ok());
    tine.ok(&["update", "hurt", "--carried"]);
    assert_eq!(contents(&repo, &hurt), contents(&repo, &well));
    assert!(tine.json(&["check"])["ok"] == true);
}

#[test]
fn damage_in_a_file_is_found_and_mended() {
    require_fuse!();
    let repo = repo();
    let tine = Tine::new(&repo);
    let dir = new_fork(&tine, "work");
    let id = wait_until_kept(&tine, "work");
    let before = picture(&repo, &dir);
    assert!(tine.json(&["check"])["ok"] == true);
    let pack = repo
        .common_dir()
        .join("tine/generations")
        .join(&id)
        .join("pack");
    let mut bytes = fs::read(&pack).unwrap();
    let at = bytes
        .windows(4)
        .position(|window| window == b"1111")
        .unwrap();
    bytes[at + 100_000] ^= 1;
    fs::write(&pack, bytes).unwrap();
    tine.kill_daemon();
    tine.ok(&["mount", "work"]);
    assert_ne!(picture(&repo, &dir), before);
    let report: Value = serde_json::from_str(&tine.run(&["check", "--json"]).text()).unwrap();
    assert_eq!(
        report["findings"][0]["kind"], "generation-damaged",
        "{report}"
    );
    let said = report["findings"][0].to_string();
    assert!(
        said.contains("p0/lib/large.bin is not as it was copied"),
        "{said}"
    );
    tine.ok(&["update", "work", "--carried"]);
    assert_eq!(picture(&repo, &dir), before);
    assert!(tine.json(&["check"])["ok"] == true);
}

#[test]
fn configuration_says_what_a_dependency_tree_is() {
    require_fuse!();
    let repo = repo();
    let tine = Tine::new(&repo);
    repo.write(".venv/pyvenv.cfg", "home = /usr/bin\n");
    repo.write(".venv/lib/x.py", "x\n");
    let named = |fork: &str, config: &[&str]| {
        for value in config {
            repo.git(&["config", "--add", "tine.dependencyTrees", value]);
        }
        let fork = tine.json(&["new", fork, "--no-mount", "--carry", "ignored"]);
        if !config.is_empty() {
            repo.git(&["config", "--unset-all", "tine.dependencyTrees"]);
        }
        let trees = fork["carry"]["trees"].as_array().unwrap().clone();
        trees
            .iter()
            .map(|tree| tree["path"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(named("usual", &[]), [".venv/", "node_modules/"]);
    assert_eq!(named("none", &["none"]), [""; 0]);
    assert_eq!(named("others", &["deps third_party"]), [".venv/"]);
}
