//! A process that dies at any step, and several processes at once.

use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::own::OwnBranch;
use tine_sys::pause;

/// Set in a child process, to the directory of the main repository.
const CHILD: &str = "TINE_TEST_TAKE_OVER_IN";

/// Takes over in a child process, if a test has started one.
#[test]
fn as_a_child() {
    let Some(dir) = std::env::var_os(CHILD) else {
        return;
    };
    let repository = Repository::discover(Path::new(&dir)).unwrap();
    let own = repository.common_dir().join("tine/forks/f/git");
    // As the daemon does when it starts.
    repository.release_noted_locks().unwrap();
    repository
        .take_over(&own, "f", Some("tine/f"), None, None)
        .unwrap();
}

/// Takes over in a process that is killed at `point`. Returns whether it came there.
fn killed_at(main: &TestRepository, point: &str) -> bool {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join(point), "").unwrap();
    // It stays if another build replaces the file.
    let mut child = Command::new("/proc/self/exe")
        .args(["--exact", "own::tests::crashes::as_a_child"])
        .env(CHILD, main.dir())
        .env(pause::VARIABLE, place.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let reached = place.path().join(format!("{point}.reached"));
    let deadline = Instant::now() + Duration::from_secs(30);
    while !reached.exists() {
        assert!(Instant::now() < deadline, "{point}");
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    true
}

#[test]
fn a_later_call_finishes_what_was_cut_off() {
    let points = [
        "walked",
        "checked",
        "synced",
        "migrated",
        "before-taking-refs",
        "refs-locked",
        "refs-taken",
        "branch-moved",
        "before-leaving",
        "objects-left",
    ];
    for point in points {
        let main = main_repository();
        let fork = Fork::new(&main, "f");
        fork.take_all();
        fork.write("x", "1\n");
        fork.commit("one");
        fork.git(&["tag", "v1"]);
        assert!(killed_at(&main, point), "{point}");
        // The fork goes on before the next call.
        fork.write("y", "2\n");
        let tip = fork.commit("two");
        assert!(killed_at(&main, point), "{point}");
        let repository = main.open();
        repository.release_noted_locks().unwrap();
        let taken = fork.try_take(&repository).unwrap();
        assert_eq!(taken.rejected, [], "{point}");
        assert_eq!(main.id_of("tine/f"), tip, "{point}");
        fork.assert_same();
        assert_eq!(fork.loose_objects(), 0, "{point}");
        assert!(!main.dir().join(".git/objects/tine-incoming-f").exists());
        fork.prune_main();
        let taken = fork.take_all();
        assert!(taken.changed.is_empty());
        assert_eq!(taken.branch, Some(OwnBranch::Same));
    }
}

#[test]
fn a_name_that_becomes_a_directory_is_kept_when_the_process_dies() {
    let main = main_repository();
    let fork = Fork::new(&main, "f");
    fork.git(&["branch", "a"]);
    fork.take_all();
    fork.git(&["branch", "-D", "a"]);
    fork.git(&["branch", "a/b"]);
    assert!(killed_at(&main, "between-names"));
    main.open().release_noted_locks().unwrap();
    fork.take_all();
    let left = main.git(&["for-each-ref", "refs/tine/f/git-between"]);
    assert_eq!(left, "");
}

#[test]
fn two_forks_and_git_in_the_main_repository_at_once() {
    const ROUNDS: usize = 12;

    let main = main_repository();
    let forks = ["f", "g"].map(|name| Fork::new(&main, name));
    thread::scope(|scope| {
        for fork in &forks {
            let commands = |dir: PathBuf, git_dir: PathBuf| {
                move || {
                    for n in 0..ROUNDS {
                        fs::write(dir.join(format!("file{n}")), format!("{n}\n")).unwrap();
                        for arguments in [
                            &["add", "-A"][..],
                            &["commit", "-q", "-m", "more"],
                            &["commit", "-q", "--amend", "-m", "amended"],
                        ] {
                            let mut git = program::command(&dir);
                            git.env("GIT_DIR", &git_dir)
                                .env("GIT_WORK_TREE", &dir)
                                .args(["-c", "user.name=F", "-c", "user.email=f@example.com"])
                                .args(arguments);
                            program::run(&mut git, b"").unwrap();
                        }
                    }
                }
            };
            scope.spawn(commands(fork.dir.clone(), fork.git_dir.clone()));
        }
        let dir = main.dir().to_owned();
        let in_main = scope.spawn(move || {
            for n in 0..ROUNDS {
                fs::write(dir.join("main-file"), format!("{n}\n")).unwrap();
                for arguments in [
                    &["add", "-A"][..],
                    &["commit", "-q", "-m", "more"],
                    &["pack-refs", "--all"],
                    &["repack", "-q", "-a", "-d"],
                ] {
                    let mut git = program::command(&dir);
                    git.args(["-c", "user.name=M", "-c", "user.email=m@example.com"])
                        .args(arguments);
                    program::run(&mut git, b"").unwrap();
                }
            }
        });
        let repository = main.open();
        let takers = ["f", "g"].map(|name| {
            let repository = repository.clone();
            scope.spawn(move || {
                let own = repository
                    .common_dir()
                    .join("tine/forks")
                    .join(name)
                    .join("git");
                let branch = format!("tine/{name}");
                let mut last: Option<TakenOver> = None;
                let deadline = Instant::now() + Duration::from_secs(3);
                while Instant::now() < deadline {
                    match repository.take_over(&own, name, Some(&branch), last.as_ref(), None) {
                        Ok(taken) => last = Some(taken),
                        Err(error) => println!("{name}: {error}"),
                    }
                    thread::sleep(Duration::from_millis(3));
                }
                last.unwrap()
            })
        });
        in_main.join().unwrap();
        for taker in takers {
            println!("{:?}", taker.join().unwrap().rejected);
        }
    });
    for fork in &forks {
        fork.take_all();
        assert_eq!(main.id_of(&fork.branch()), fork.id_of("HEAD"));
        // git writes a copy if it cannot find an object that is being packed.
        for id in fork.loose_ids() {
            main.git(&["cat-file", "-e", &id]);
        }
    }
    for fork in &forks {
        fork.prune_main();
    }
}
