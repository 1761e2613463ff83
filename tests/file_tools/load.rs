//! Many edits while programs work in the mount, as a build does.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use crate::support::{Random, SayWhich, TestRepo, Tine, require_fuse, soaking};
use crate::{Agent, files_beneath};

const SEED: &str = "TINE_TOOL_SEED";

/// Files that are edited.
const FILES: u64 = 25;

/// Lines in each of them.
const LINES: u64 = 12;

fn edits() -> u64 {
    let wanted = std::env::var("TINE_TOOL_EDITS")
        .ok()
        .and_then(|edits| edits.parse().ok());
    wanted.unwrap_or(if soaking() { 10_000 } else { 500 })
}

fn name(file: u64) -> String {
    format!("src/part{}/file{file}.c", file % 5)
}

/// Always as long: who reads a file to its end does so in several steps, and would find more there
/// than there was.
fn line(file: u64, line: u64, value: u64) -> String {
    format!("int value_{file}_{line} = {value:08};\n")
}

#[test]
fn no_edit_is_lost_while_a_build_runs_in_the_mount() {
    require_fuse!();
    let (mut random, seed) = Random::from_environment(SEED);
    let _which = SayWhich(SEED, seed);
    let repo = TestRepo::new();
    let mut values = vec![[0_u64; LINES as usize]; FILES as usize];
    let content = |file: u64, values: &[u64]| -> String {
        (0..)
            .zip(values)
            .map(|(n, value)| line(file, n, *value))
            .collect()
    };
    for file in 0..FILES {
        repo.write(&name(file), content(file, &values[file as usize]));
    }
    repo.commit_all("sources");
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    let mut agent = Agent::new(&repo, Some("demo"));
    let (count, ends) = (edits(), AtomicBool::new(false));
    let started = Instant::now();
    let builds = thread::scope(|scope| {
        // Reads every source, writes an object for each and moves it to its name, and lists all of
        // it.
        let build = scope.spawn(|| {
            let mut builds = 0_u64;
            while !ends.load(Ordering::Relaxed) {
                fs::create_dir_all(dir.join("target/objects")).unwrap();
                for file in 0..FILES {
                    let source = fs::read_to_string(dir.join(name(file))).unwrap();
                    // Never half of an edit.
                    assert_eq!(source.lines().count() as u64, LINES, "{source}");
                    assert!(source.ends_with(";\n"), "{source}");
                    let object = dir.join(format!("target/objects/{file}.o"));
                    let fresh = object.with_extension("tmp");
                    fs::write(&fresh, source.repeat(20)).unwrap();
                    fs::rename(&fresh, &object).unwrap();
                }
                assert!(files_beneath(&dir.join("src")).len() as u64 >= FILES);
                builds += 1;
            }
            builds
        });
        // Rewrites one line of a file in its place, as long as the one before, while the tools edit
        // the other one.
        let writer = scope.spawn(|| {
            fs::write(dir.join("both"), "mount 00000000\ntools 00000000\n").unwrap();
            let file = OpenOptions::new()
                .write(true)
                .open(dir.join("both"))
                .unwrap();
            let mut written = 0_u64;
            while !ends.load(Ordering::Relaxed) {
                written += 1;
                file.write_all_at(format!("mount {written:08}\n").as_bytes(), 0)
                    .unwrap();
            }
            written
        });
        let edited = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut both = 0_u64;
            for number in 1..=count {
                let (file, n) = (random.below(FILES), random.below(LINES));
                let value = &mut values[file as usize][n as usize];
                let (old, new) = (line(file, n, *value), line(file, n, number));
                agent.edit(name(file), &old, &new).unwrap();
                *value = number;
                if dir.join("both").exists() && fs::metadata(dir.join("both")).unwrap().len() == 30
                {
                    let (old, new) = (format!("tools {both:08}"), format!("tools {:08}", both + 1));
                    agent.edit("both", &old, &new).unwrap();
                    both += 1;
                }
            }
            both
        }));
        ends.store(true, Ordering::Relaxed);
        let (builds, written) = (build.join().unwrap(), writer.join().unwrap());
        let both = edited.unwrap();
        let expected = format!("mount {written:08}\ntools {both:08}\n");
        assert_eq!(fs::read_to_string(dir.join("both")).unwrap(), expected);
        assert_eq!(agent.read("both").unwrap(), expected.as_bytes());
        builds
    });
    let elapsed = started.elapsed();
    for file in 0..FILES {
        let expected = content(file, &values[file as usize]);
        assert_eq!(
            fs::read_to_string(dir.join(name(file))).unwrap(),
            expected,
            "{file}"
        );
        assert_eq!(
            agent.read(name(file)).unwrap(),
            expected.as_bytes(),
            "{file}"
        );
    }
    eprintln!("{count} edits in {elapsed:.1?} during {builds} builds");
    drop(agent);
    // What was acknowledged outlives the daemon.
    tine.kill_daemon();
    for file in 0..FILES {
        let expected = content(file, &values[file as usize]);
        let shown = tine.ok(&["cat", "--fork", "demo", &name(file)]);
        assert_eq!(format!("{shown}\n"), expected, "{file}");
    }
}
