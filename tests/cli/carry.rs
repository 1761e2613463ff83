//! Ignored files of the main checkout in a fork: chosen, seen, changed, and never written.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::support::{OutputExt, TestRepo, Tine, require_fuse, run_with_timeout, wait_until};

/// How long a change of the main checkout may take to be seen; a second is what the kernel
/// remembers.
const SOON: Duration = Duration::from_secs(10);

/// A repository that ignores `target/`, `*.log`, `.env*`, `config/` and `node_modules/`, with some
/// of each.
fn repo() -> TestRepo {
    let repo = TestRepo::new();
    repo.commit_files(
        &[
            (
                ".gitignore",
                b"target/\n*.log\n.env*\nconfig/\nnode_modules/\n*.pem\n",
            ),
            ("crates/x/lib.rs", b"// x\n"),
        ],
        "rules",
    );
    repo.write("target/debug/app", "built\n");
    repo.write("crates/x/target/cache", "cached\n");
    repo.write("node_modules/left-pad/test/server.pem", "a test's\n");
    repo.write("config/local.json", "{}\n");
    repo.write("config/.env", "deep secret\n");
    repo.write(".env.local", "secret\n");
    repo.write("server.pem", "secret\n");
    repo.write("noise.log", "noise\n");
    repo
}

fn paths(fork: &Value) -> Value {
    fork["carry"]["paths"].clone()
}

#[track_caller]
fn seen(dir: &Path, path: &str) -> bool {
    dir.join(path).symlink_metadata().is_ok()
}

#[test]
fn nothing_is_carried_unasked() {
    require_fuse!();
    let repo = repo();
    let tine = Tine::new(&repo);
    let fork = tine.json(&["new", "plain"]);
    assert_eq!(fork["carry"], Value::Null);
    let dir = Path::new(fork["mount_dir"].as_str().unwrap());
    for path in [
        "target",
        "node_modules",
        "config",
        ".env.local",
        "crates/x/target",
    ] {
        assert!(!seen(dir, path), "{path}");
    }
}

#[test]
fn worktreeinclude_configuration_and_options_choose_in_this_order() {
    require_fuse!();
    let repo = repo();
    let tine = Tine::new(&repo);
    repo.write(
        ".worktreeinclude",
        "# for every worktree\ntarget/\n.env.local\nREADME.md\n",
    );
    let by_file = tine.json(&["new", "by-file"]);
    assert_eq!(
        paths(&by_file),
        json!([".env.local", "crates/x/target/", "target/"])
    );
    let dir = Path::new(by_file["mount_dir"].as_str().unwrap());
    assert_eq!(
        fs::read_to_string(dir.join("target/debug/app")).unwrap(),
        "built\n"
    );
    assert_eq!(
        fs::read_to_string(dir.join("crates/x/target/cache")).unwrap(),
        "cached\n"
    );
    assert_eq!(
        fs::read_to_string(dir.join(".env.local")).unwrap(),
        "secret\n"
    );
    assert!(!seen(dir, "node_modules"));
    assert_eq!(repo.status(dir), "");

    repo.git(&["config", "--add", "tine.carry", "node_modules"]);
    repo.git(&["config", "--add", "tine.carry", "/config/local.json"]);
    let by_config = tine.json(&["new", "by-config", "--no-mount"]);
    assert_eq!(
        paths(&by_config),
        json!(["config/local.json", "node_modules/"])
    );
    tine.ok(&["mount", "by-config"]);
    let dir = Path::new(by_config["mount_dir"].as_str().unwrap());
    assert_eq!(
        fs::read_to_string(dir.join("config/local.json")).unwrap(),
        "{}\n"
    );
    assert!(!seen(dir, "config/.env") && !seen(dir, "target"));
    assert!(
        seen(dir, "node_modules/left-pad/test/server.pem"),
        "packages hold what they need"
    );

    let by_option = tine.json(&[
        "new",
        "by-option",
        "--carry-only",
        "*.log",
        "--carry-only",
        "/target",
    ]);
    assert_eq!(paths(&by_option), json!(["noise.log", "target/"]));
    assert_eq!(
        tine.json(&["new", "none", "--no-carry"])["carry"],
        Value::Null
    );
    repo.git(&["config", "--unset-all", "tine.carry"]);
    repo.git(&["config", "tine.carry", "none"]);
    assert_eq!(tine.json(&["new", "never"])["carry"], Value::Null);

    let listed = tine.json(&["list"]);
    let carried: Vec<&Value> = listed["forks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|fork| &fork["carry"])
        .collect();
    assert_eq!(carried.iter().filter(|carry| carry.is_object()).count(), 3);
    let text = tine.ok(&["list"]);
    assert!(
        text.contains("CARRIES") && text.contains(".env.local, crates/x/target/, target/"),
        "{text}"
    );
}

#[test]
fn secrets_are_carried_only_by_name() {
    require_fuse!();
    let repo = repo();
    let tine = Tine::new(&repo);
    let output = tine
        .run(&["new", "all", "--carry", "ignored"])
        .expect_success("tine new");
    let said = output.error_text();
    assert!(said.contains(".env.local, server.pem"), "{said}");
    let dir = repo.root().join("repo.forks/all");
    assert!(
        seen(&dir, "config/local.json")
            && seen(&dir, "noise.log")
            && seen(&dir, "target/debug/app")
    );
    for secret in [".env.local", "server.pem", "config/.env"] {
        assert!(!seen(&dir, secret), "{secret}");
    }
    let listed: Vec<_> = fs::read_dir(dir.join("config")).unwrap().collect();
    assert_eq!(listed.len(), 1);

    let asked = tine.json(&["new", "asked", "--carry", "ignored", "--carry", ".env*"]);
    let dir = Path::new(asked["mount_dir"].as_str().unwrap());
    assert!(seen(dir, ".env.local") && seen(dir, "config/.env") && !seen(dir, "server.pem"));
    assert_eq!(asked["carry"]["held_back"], json!(["server.pem"]));
    let broad = tine.json(&["new", "broad", "--carry", "*"]);
    assert_eq!(
        broad["carry"]["held_back"],
        json!([".env.local", "server.pem"])
    );
}

#[test]
fn what_cannot_be_carried_is_said() {
    require_fuse!();
    let repo = TestRepo::bare();
    let tine = Tine::new(&repo);
    let output = tine
        .run(&["new", "x", "--carry", "target"])
        .expect_success("tine new");
    assert!(
        output.error_text().contains("the repository is bare"),
        "{}",
        output.error_text()
    );
    let repo = self::repo();
    let tine = Tine::new(&repo);
    let output = tine
        .run(&["new", "x", "--carry", "nowhere"])
        .expect_success("tine new");
    assert!(
        output.error_text().contains("nothing is carried"),
        "{}",
        output.error_text()
    );
    // A tracked file is no affair of the carry.
    let output = tine
        .run(&["new", "y", "--carry", "README.md"])
        .expect_success("tine new");
    assert!(
        output.error_text().contains("nothing is carried"),
        "{}",
        output.error_text()
    );
}

/// Invariant 14.
#[test]
fn a_fork_works_on_its_own_copy_and_git_sees_nothing() {
    require_fuse!();
    let repo = repo();
    let tine = Tine::new(&repo);
    let before = repo.sh_in(
        repo.dir(),
        "find target node_modules crates config -type f -exec md5sum {} + | sort",
    );
    let fork = tine.json(&["new", "work", "--carry", "ignored"]);
    let dir = Path::new(fork["mount_dir"].as_str().unwrap());
    repo.sh_in(
        dir,
        "echo more >> target/debug/app
         echo new > target/debug/new
         mv crates/x/target/cache crates/x/target/moved
         ln target/debug/app target/debug/hard
         chmod 700 config/local.json
         rm -r node_modules
         mkdir node_modules && echo own > node_modules/own",
    );
    assert_eq!(repo.status(dir), "");
    let status = tine.json(&["status", "work"]);
    assert_eq!(status["changes"], json!([]));
    // Another process, the daemon's too.
    tine.ok(&["unmount", "work"]);
    tine.ok(&["daemon", "stop"]);
    tine.ok(&["mount", "work"]);
    assert_eq!(
        fs::read_to_string(dir.join("target/debug/hard")).unwrap(),
        "built\nmore\n"
    );
    assert_eq!(
        fs::metadata(dir.join("target/debug/app")).unwrap().nlink(),
        2
    );
    assert_eq!(
        fs::read_to_string(dir.join("crates/x/target/moved")).unwrap(),
        "cached\n"
    );
    assert_eq!(
        repo.sh_in(dir, "ls -A node_modules crates/x/target"),
        "crates/x/target:\nmoved\n\nnode_modules:\nown"
    );
    assert_eq!(repo.status(dir), "");
    repo.git_in(dir, &["clean", "-qxfd"]);
    assert_eq!(repo.sh_in(dir, "git ls-files --others --directory"), "");
    assert!(!seen(dir, "target") && !seen(dir, "config"));
    let after = repo.sh_in(
        repo.dir(),
        "find target node_modules crates config -type f -exec md5sum {} + | sort",
    );
    assert_eq!(after, before, "the main checkout is never written");
}

#[test]
fn a_file_that_is_carried_itself_follows_the_main_checkout() {
    require_fuse!();
    let repo = repo();
    let tine = Tine::new(&repo);
    let fork = tine.json(&[
        "new",
        "follow",
        "--carry",
        "*.log",
        "--carry",
        "/config/local.json",
    ]);
    let dir = Path::new(fork["mount_dir"].as_str().unwrap());
    let reads =
        |path: &str, text: &str| fs::read_to_string(dir.join(path)).is_ok_and(|read| read == text);
    assert!(reads("noise.log", "noise\n") && reads("config/local.json", "{}\n"));
    repo.write("noise.log", "more noise\n");
    repo.write("config/local.json", "[]\n");
    wait_until("the new version is seen", SOON, || {
        reads("noise.log", "more noise\n")
    });
    wait_until("in a directory, too", SOON, || {
        reads("config/local.json", "[]\n")
    });
    fs::remove_file(repo.dir().join("noise.log")).unwrap();
    wait_until("it is not found", SOON, || !seen(dir, "noise.log"));
    symlink("config/local.json", repo.dir().join("noise.log")).unwrap();
    wait_until("a file became a link", SOON, || reads("noise.log", "[]\n"));
}

#[test]
fn carried_directories_show_no_file_that_is_later_than_the_fork() {
    require_fuse!();
    let repo = repo();
    let tine = Tine::new(&repo);
    repo.write("target/debug/lib", "built\n");
    repo.write("target/debug/old", "built\n");
    let fork = tine.json(&["new", "still", "--carry", "target"]);
    // Whatever is changed right after.
    repo.write("target/debug/app", "built again\n");
    repo.write("target/debug/later", "later\n");
    let dir = Path::new(fork["mount_dir"].as_str().unwrap());
    let names = |dir: &Path| {
        let names = fs::read_dir(dir.join("target/debug")).unwrap();
        let mut names: Vec<String> = names
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    wait_until("what is later is not listed", SOON, || {
        names(dir) == ["lib", "old"]
    });
    wait_until("nor found", SOON, || !seen(dir, "target/debug/app"));
    assert!(!seen(dir, "target/debug/later"));
    fs::remove_file(repo.dir().join("target/debug/old")).unwrap();
    wait_until("what goes is gone", SOON, || names(dir) == ["lib"]);

    // A directory that the fork has changed, and names that are free.
    fs::write(dir.join("target/debug/app"), "own\n").unwrap();
    repo.write("target/debug/another", "another\n");
    fs::rename(
        repo.dir().join("target/debug/lib"),
        repo.dir().join("target/debug/renamed"),
    )
    .unwrap();
    wait_until("a renamed file is gone", SOON, || names(dir) == ["app"]);
    tine.ok(&["unmount", "still"]);
    tine.ok(&["daemon", "stop"]);
    tine.ok(&["mount", "still"]);
    assert_eq!(names(dir), ["app"]);
    assert_eq!(
        fs::read_to_string(dir.join("target/debug/app")).unwrap(),
        "own\n"
    );

    for options in [&[][..], &["--carry", "target"]] {
        let name = format!("child{}", options.len());
        let child = tine.json(&[&["new", &name, "--from-fork", "still"], options].concat());
        let child = Path::new(child["mount_dir"].as_str().unwrap());
        assert_eq!(
            names(child),
            ["app"],
            "as of the moment of the fork that it began as"
        );
    }
    let fresh = tine.json(&["new", "fresh", "--carry", "target"]);
    assert_eq!(
        names(Path::new(fresh["mount_dir"].as_str().unwrap())),
        ["another", "app", "later", "renamed"]
    );
}

/// Invariant 8. A file of one letter, rewritten in place with another, again and again: whoever
/// reads it in a fork gets one letter.
#[test]
fn a_file_that_is_rewritten_is_never_seen_mixed() {
    require_fuse!();
    const LEN: usize = 3 << 20;
    let repo = repo();
    let tine = Tine::new(&repo);
    repo.write("large.log", vec![b'a'; LEN]);
    let fork = tine.json(&["new", "mix", "--carry", "*.log"]);
    let dir = Path::new(fork["mount_dir"].as_str().unwrap());
    let is_over = AtomicBool::new(false);
    let (mut whole, mut refused, mut letters) = (0, 0, std::collections::BTreeSet::new());
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut letter = b'a';
            while !is_over.load(Ordering::Relaxed) {
                letter = if letter == b'z' { b'a' } else { letter + 1 };
                let file = fs::OpenOptions::new()
                    .write(true)
                    .open(repo.dir().join("large.log"))
                    .unwrap();
                // At once, whose times are those of its beginning; or in pieces.
                if letter.is_multiple_of(2) {
                    file.write_all_at(&vec![letter; LEN], 0).unwrap();
                    continue;
                }
                for piece in 0..LEN / 65536 {
                    file.write_all_at(&[letter; 65536], piece as u64 * 65536)
                        .unwrap();
                }
                drop(file);
                thread::sleep(Duration::from_millis(u64::from(letter) % 7 * 15));
            }
        });
        let check = |bytes: &[u8]| {
            let first = bytes[0];
            assert_eq!(bytes.len(), LEN);
            assert!(
                bytes.iter().all(|byte| *byte == first),
                "a mixture was read"
            );
            first
        };
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let deadline = std::time::Instant::now() + Duration::from_secs(20);
            while (letters.len() < 4 || refused == 0) && std::time::Instant::now() < deadline {
                match fs::read(dir.join("large.log")) {
                    Ok(bytes) => {
                        letters.insert(check(&bytes));
                        whole += 1;
                    }
                    Err(error) => {
                        assert_eq!(error.raw_os_error(), Some(nix::libc::ESTALE), "{error}");
                        refused += 1;
                    }
                }
            }
        }));
        is_over.store(true, Ordering::Relaxed);
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    });
    println!(
        "{whole} whole, {refused} refused, {} versions",
        letters.len()
    );
    assert!(
        letters.len() > 1 && refused > 0,
        "{whole} whole, {refused} refused"
    );
}

#[test]
fn a_warm_build_stays_warm() {
    require_fuse!();
    let repo = TestRepo::new();
    repo.write(
        "Cargo.toml",
        "[package]\nname = \"warm\"\nversion = \"0.1.0\"\nedition = \"2021\"\n",
    );
    let cargo = |verb: &str, dir: &Path| {
        let mut command = repo.command("cargo", dir);
        // The home is the test's own; the toolchain is not in it.
        for name in ["CARGO_HOME", "RUSTUP_HOME"] {
            let default = || {
                let home = std::env::var_os("HOME")?;
                let sub = if name == "CARGO_HOME" {
                    ".cargo"
                } else {
                    ".rustup"
                };
                Some(Path::new(&home).join(sub).into_os_string())
            };
            if let Some(value) = std::env::var_os(name).or_else(default) {
                command.env(name, value);
            }
        }
        command.args([verb, "--offline"]);
        let output = run_with_timeout(&mut command).expect_success(verb);
        output.error_text()
    };
    cargo("generate-lockfile", repo.dir());
    repo.commit_all("a crate");
    assert!(cargo("build", repo.dir()).contains("Compiling"));
    let tine = Tine::new(&repo);
    let dir = tine.ok(&["new", "warm", "--carry", "target"]);
    let dir = Path::new(&dir);
    let times = "find target -type d -printf '%P %T@ %m\\n' -o -printf '%P %T@ %s %m\\n' | sort";
    assert_eq!(repo.sh_in(dir, times), repo.sh_in(repo.dir(), times));
    assert_eq!(repo.sh_in(dir, "target/debug/warm"), "hello");
    let again = cargo("build", dir);
    assert!(!again.contains("Compiling"), "{again}");
    assert_eq!(repo.status(dir), "");
}

#[test]
fn going_back_and_forking_on_keep_what_is_carried() {
    require_fuse!();
    let repo = repo();
    let tine = Tine::new(&repo);
    let fork = tine.json(&[
        "new",
        "one",
        "--carry",
        "target",
        "--carry",
        "config/local.json",
    ]);
    let dir = Path::new(fork["mount_dir"].as_str().unwrap());
    let read = |dir: &Path, path: &str| fs::read_to_string(dir.join(path)).unwrap();
    tine.ok(&["snapshot", "one", "untouched"]);
    repo.sh_in(
        dir,
        "echo more >> target/debug/app && echo new > target/debug/new && rm -r crates/x/target",
    );
    tine.ok(&["snapshot", "one", "touched"]);
    let open = fs::File::open(dir.join("target/debug/app")).unwrap();

    let second = tine.json(&["new", "two", "--from-fork", "one"]);
    assert_eq!(paths(&second), paths(&fork));
    let other = Path::new(second["mount_dir"].as_str().unwrap());
    assert_eq!(read(other, "target/debug/app"), "built\nmore\n");
    assert!(!seen(other, "crates/x/target"));
    assert_eq!(read(other, "config/local.json"), "{}\n");

    tine.ok(&["restore", "one", "untouched"]);
    assert_eq!(read(dir, "target/debug/app"), "built\n");
    assert_eq!(read(dir, "crates/x/target/cache"), "cached\n");
    assert!(!seen(dir, "target/debug/new"));
    assert_eq!(std::io::read_to_string(&open).unwrap(), "built\nmore\n");
    assert_eq!(repo.status(dir), "");
    repo.sh_in(dir, "echo other >> target/debug/app");
    assert_eq!(read(dir, "target/debug/app"), "built\nother\n");

    tine.ok(&["restore", "one", "touched"]);
    assert_eq!(read(dir, "target/debug/app"), "built\nmore\n");
    assert!(!seen(dir, "crates/x/target"));
    drop(open);
    let third = tine.json(&["new", "three", "--from-fork", "one@untouched", "--no-carry"]);
    assert_eq!(third["carry"], Value::Null);
    assert!(!seen(
        Path::new(third["mount_dir"].as_str().unwrap()),
        "target"
    ));
    assert_eq!(
        repo.sh_in(repo.dir(), "cat target/debug/app crates/x/target/cache"),
        "built\ncached"
    );
}

#[test]
fn a_root_that_goes_and_comes_back_is_seen_and_listed_so() {
    require_fuse!();
    let repo = repo();
    let tine = Tine::new(&repo);
    let fork = tine.json(&["new", "roots", "--carry", "target"]);
    let dir = Path::new(fork["mount_dir"].as_str().unwrap());
    let listed = || {
        let mut names = fs::read_dir(dir).unwrap();
        names.any(|entry| entry.unwrap().file_name() == "target")
    };
    assert!(listed());
    fs::rename(repo.dir().join("target"), repo.dir().join("aside.log")).unwrap();
    wait_until("it is not found", SOON, || !seen(dir, "target"));
    wait_until("it is not listed", SOON, || !listed());
    fs::rename(repo.dir().join("aside.log"), repo.dir().join("target")).unwrap();
    wait_until("it is found", SOON, || seen(dir, "target"));
    wait_until("it is listed", SOON, listed);
    assert_eq!(repo.status(dir), "");
}

/// Finding B5: as uv, Python 3.13 and husky write them.
#[test]
fn directories_that_ignore_themselves_are_carried() {
    require_fuse!();
    let repo = TestRepo::new();
    repo.write(".husky/pre-commit", "true\n");
    repo.commit_all("husky");
    for dir in [".venv", ".husky/_", "tools/.venv"] {
        repo.write(&format!("{dir}/.gitignore"), "*\n");
        repo.write(&format!("{dir}/lib/file"), "carried\n");
    }
    // Ignores its objects, and is seen otherwise.
    repo.write("part/.gitignore", "*.o\n");
    repo.write("part/a.o", "object\n");
    let tine = Tine::new(&repo);
    let named = tine.json(&["new", "named", "--carry", ".venv", "--carry", "/.husky/_"]);
    assert_eq!(
        paths(&named),
        json!([".husky/_/", ".venv/", "tools/.venv/"])
    );
    let dir = Path::new(named["mount_dir"].as_str().unwrap());
    for file in [
        ".venv/lib/file",
        ".husky/_/lib/file",
        "tools/.venv/lib/file",
    ] {
        assert_eq!(
            fs::read_to_string(dir.join(file)).unwrap(),
            "carried\n",
            "{file}"
        );
    }
    let is_clean = |dir: &Path| {
        assert_eq!(repo.status(dir), "");
        assert_eq!(tine.json(&["status", "named"])["changes"], json!([]));
    };
    is_clean(dir);
    fs::write(dir.join(".venv/lib/own"), "own\n").unwrap();
    fs::write(dir.join("tools/.venv/lib/file"), "own\n").unwrap();
    is_clean(dir);
    // Whoever makes it anew in the main checkout.
    repo.sh_in(
        repo.dir(),
        "rm -r .venv; mkdir -p .venv/lib; echo '*' > .venv/.gitignore",
    );
    wait_until("the new rules are seen", SOON, || {
        seen(dir, ".venv/.gitignore")
    });
    is_clean(dir);

    repo.write(".worktreeinclude", ".venv/\n");
    assert_eq!(
        paths(&tine.json(&["new", "by-file"])),
        json!([".venv/", "tools/.venv/"])
    );
    let all = tine.json(&["new", "all", "--carry", "ignored"]);
    assert_eq!(
        repo.status(Path::new(all["mount_dir"].as_str().unwrap())),
        ""
    );
    assert!(
        !paths(&all).as_array().unwrap().contains(&json!("part/a.o")),
        "{all}"
    );
}

#[test]
fn carry_adds_to_what_is_configured_and_carry_only_replaces_it() {
    require_fuse!();
    let repo = repo();
    let tine = Tine::new(&repo);
    repo.write(".worktreeinclude", "target/\n");
    let added = tine.json(&["new", "added", "--carry", "*.log"]);
    assert_eq!(
        paths(&added),
        json!(["crates/x/target/", "noise.log", "target/"])
    );
    let only = tine.json(&["new", "only", "--carry-only", "*.log"]);
    assert_eq!(paths(&only), json!(["noise.log"]));
    repo.git(&["config", "tine.carry", "/config/local.json"]);
    let added = tine.json(&["new", "by-config", "--carry", "*.log"]);
    assert_eq!(paths(&added), json!(["config/local.json", "noise.log"]));
    // Of a fork: to what that has.
    let child = tine.json(&[
        "new",
        "child",
        "--from-fork",
        "by-config",
        "--carry",
        "/target",
    ]);
    assert_eq!(
        paths(&child),
        json!(["config/local.json", "noise.log", "target/"])
    );
    let child = tine.json(&[
        "new",
        "whole",
        "--from-fork",
        "by-config",
        "--carry",
        "config",
    ]);
    assert_eq!(paths(&child), json!(["config/", "noise.log"]));
    let dir = Path::new(child["mount_dir"].as_str().unwrap());
    assert!(seen(dir, "config/local.json") && !seen(dir, "config/.env"));
    let child = tine.json(&[
        "new",
        "other",
        "--from-fork",
        "by-config",
        "--carry-only",
        "/target",
    ]);
    assert_eq!(paths(&child), json!(["target/"]));
    tine.fails(2, &["new", "both", "--carry", "a", "--carry-only", "b"]);
}
