//! The daemon is killed at random moments while programs write: whatever was acknowledged must be there afterwards,
//! and everything must go on.
//!
//! A failure prints the seed; `TINE_CRASH_SEED=n` uses it again (the moments of killing stay the scheduler's).
//! `TINE_SOAK=1` runs 500 rounds.

mod support;

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use support::{OutputExt, Random, TestRepo, Tine, require_fuse, run_with_timeout, soaking};

const WRITERS: usize = 3;

fn rounds() -> usize {
    if soaking() { 500 } else { 20 }
}

/// The files of one writer, by name.
type Files = BTreeMap<String, Vec<u8>>;

/// One writer: a directory of its own, and what must be in it.
struct Writer {
    dir: PathBuf,
    files: Files,
    random: Random,
    next_name: u32,
}

/// One system call's worth of change.
#[derive(Debug, Clone)]
enum Change {
    Create(String),
    Write {
        name: String,
        offset: usize,
        data: Vec<u8>,
    },
    Truncate(String, usize),
    Rename(String, String),
    Unlink(String),
}

impl Change {
    fn carry_out(&self, dir: &Path) -> io::Result<()> {
        let open = |name: &str| OpenOptions::new().write(true).open(dir.join(name));
        match self {
            Change::Create(name) => {
                OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .open(dir.join(name))?;
            }
            Change::Write { name, offset, data } => open(name)?.write_all_at(data, *offset as u64)?,
            Change::Truncate(name, size) => open(name)?.set_len(*size as u64)?,
            Change::Rename(from, to) => fs::rename(dir.join(from), dir.join(to))?,
            Change::Unlink(name) => fs::remove_file(dir.join(name))?,
        }
        Ok(())
    }

    fn apply(&self, files: &mut Files) {
        match self {
            Change::Create(name) => {
                files.insert(name.clone(), Vec::new());
            }
            Change::Write { name, offset, data } => {
                let content = files.get_mut(name).expect("only files that exist are written");
                if content.len() < offset + data.len() {
                    content.resize(offset + data.len(), 0);
                }
                content[*offset..offset + data.len()].copy_from_slice(data);
            }
            Change::Truncate(name, size) => {
                let content = files.get_mut(name).expect("only files that exist are truncated");
                content.resize(*size, 0);
            }
            Change::Rename(from, to) => {
                let content = files.remove(from).expect("only files that exist are renamed");
                files.insert(to.clone(), content);
            }
            Change::Unlink(name) => {
                files.remove(name);
            }
        }
    }
}

impl Writer {
    fn choose(&mut self) -> Change {
        let names: Vec<String> = self.files.keys().cloned().collect();
        let choice = self.random.below(12);
        if names.is_empty() || (choice == 0 && names.len() < 40) {
            self.next_name += 1;
            return Change::Create(format!("file-{}", self.next_name));
        }
        let index = self.random.below(names.len() as u64) as usize;
        let name = names[index].clone();
        let size = self.files[&name].len();
        match choice {
            1 => Change::Rename(name, names[(index + 1) % names.len()].clone() + "~"),
            2 => Change::Unlink(name),
            3 => Change::Truncate(name, self.random.below(size as u64 + 5000) as usize),
            _ => {
                let len = [10, 300, 5_000, 60_000][self.random.below(4) as usize];
                let offset = if choice < 8 && size < 300_000 {
                    size
                } else {
                    self.random.below(size as u64 + 1) as usize
                };
                Change::Write {
                    name,
                    offset,
                    data: self.random.bytes(len),
                }
            }
        }
    }

    /// Changes files until something fails; the change that failed, which may have happened or not.
    fn work(&mut self) -> Change {
        loop {
            let change = self.choose();
            match change.carry_out(&self.dir) {
                Ok(()) => change.apply(&mut self.files),
                Err(_) => return change,
            }
        }
    }

    /// Checks the directory against what was acknowledged, with `unsure` done, half done or not done. What is there is
    /// what is expected from now on.
    fn check(&mut self, unsure: Change) {
        let before = std::mem::take(&mut self.files);
        let mut after = before.clone();
        unsure.apply(&mut after);
        let found = read_files(&self.dir);
        for (name, content) in &found {
            let candidates = [before.get(name), after.get(name)];
            let half_written = match (&unsure, candidates) {
                (Change::Write { name: written, .. }, [Some(old), Some(new)]) if written == name => {
                    is_between(content, old, new)
                }
                _ => false,
            };
            let known = candidates
                .into_iter()
                .flatten()
                .any(|candidate| candidate == content);
            assert!(
                known || half_written,
                "{name} holds {} bytes that nobody wrote; acknowledged {:?}, unsure {:?} of {}",
                content.len(),
                candidates.map(|candidate| candidate.map(Vec::len)),
                std::mem::discriminant(&unsure),
                self.dir.display(),
            );
        }
        for name in before.keys().filter(|name| after.contains_key(*name)) {
            assert!(found.contains_key(name), "{name} was acknowledged and is gone");
        }
        if let Change::Rename(from, to) = &unsure {
            assert!(
                found.contains_key(from) || found.contains_key(to),
                "{from} was lost when it was renamed to {to}"
            );
        }
        self.files = found;
    }
}

/// Whether each byte is the old one or the new one; a write may have been cut into pieces.
fn is_between(found: &[u8], old: &[u8], new: &[u8]) -> bool {
    found.len() >= old.len()
        && found.len() <= new.len()
        && found
            .iter()
            .enumerate()
            .all(|(at, b)| old.get(at) == Some(b) || new.get(at) == Some(b))
}

fn read_files(dir: &Path) -> Files {
    let entries = fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    entries
        .map(|entry| {
            let entry = entry.expect("the directory can be listed");
            let name = entry
                .file_name()
                .into_string()
                .expect("the writers' names are UTF-8");
            (name, fs::read(entry.path()).expect("the file can be read"))
        })
        .collect()
}

/// Waits a while for its own sake: the moment of the crash is to be a random one.
fn let_pass(random: &mut Random, most: Duration) {
    let nanos = random.below(most.as_nanos() as u64);
    let end = Instant::now() + Duration::from_nanos(nanos);
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        std::thread::sleep(left);
    }
}

/// Fails with the seed.
struct SayWhich<'a>(&'a str, u64);

impl Drop for SayWhich<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}={} to run this again", self.0, self.1);
        }
    }
}

#[test]
fn invariant_13_no_acknowledged_write_is_lost_when_the_daemon_is_killed() {
    require_fuse!();
    let (mut random, seed) = Random::from_environment("TINE_CRASH_SEED");
    let _say = SayWhich("TINE_CRASH_SEED", seed);
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let mount = tine.new_fork("demo");
    let mut writers: Vec<Writer> = (0..WRITERS)
        .map(|number| Writer {
            dir: mount.join(format!("writer-{number}")),
            files: Files::new(),
            random: Random::new(random.next()),
            next_name: 0,
        })
        .collect();
    for writer in &writers {
        fs::create_dir(&writer.dir).expect("the mount can be written");
    }
    for round in 0..rounds() {
        let unsure: Vec<Change> = std::thread::scope(|scope| {
            let working: Vec<_> = writers
                .iter_mut()
                .map(|writer| scope.spawn(|| writer.work()))
                .collect();
            let_pass(&mut random, Duration::from_millis(150));
            assert!(tine.daemon_pid().is_some(), "the daemon runs in round {round}");
            tine.kill_daemon();
            working
                .into_iter()
                .map(|writer| writer.join().expect("a writer only stops for an error"))
                .collect()
        });
        // Whatever command comes next recovers.
        let found = if round % 2 == 0 {
            tine.ok(&["path", "demo"])
        } else {
            tine.ok(&["list"]);
            mount.display().to_string()
        };
        assert_eq!(Path::new(&found), mount);
        for (writer, unsure) in writers.iter_mut().zip(unsure) {
            writer.check(unsure);
        }
    }
    let status = repo.git_in(&mount, &["status", "--porcelain", "--untracked-files=all"]);
    let files: usize = writers.iter().map(|writer| writer.files.len()).sum();
    assert_eq!(status.lines().count(), files, "{status}");
    tine.ok(&["commit", "demo", "-m", "what is left"]);
    assert_eq!(repo.git_in(&mount, &["status", "--porcelain"]), "");
    repo.git(&["fsck", "--strict"]);
}

#[test]
fn invariant_13_a_commit_that_is_killed_happened_or_not() {
    require_fuse!();
    let (mut random, seed) = Random::from_environment("TINE_CRASH_SEED");
    let _say = SayWhich("TINE_CRASH_SEED", seed);
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let mount = tine.new_fork("demo");
    let dir = mount.join("files");
    fs::create_dir(&dir).expect("the mount can be written");
    let mut expected = Files::new();
    for round in 0..rounds() {
        for number in 0..40 {
            let name = format!("file-{}", (round * 7 + number) % 100);
            let len = random.below(20_000) as usize;
            let content = random.bytes(len);
            fs::write(dir.join(&name), &content).expect("the mount can be written");
            expected.insert(name, content);
        }
        let before = repo.git(&["rev-parse", "tine/demo"]);
        let message = format!("round {round}");
        let mut command = tine.command(&["commit", "demo", "-m", &message]);
        let reported = std::thread::scope(|scope| {
            let committing = scope.spawn(|| run_with_timeout(&mut command));
            let_pass(&mut random, Duration::from_millis(80));
            tine.kill_daemon();
            committing.join().expect("the command ends")
        });
        assert_eq!(Path::new(&tine.ok(&["path", "demo"])), mount);
        assert!(
            read_files(&dir) == expected,
            "the files are not as they were written"
        );
        let after = repo.git(&["rev-parse", "tine/demo"]);
        if after == before {
            assert!(
                !reported.status.success(),
                "a commit was reported that did not happen"
            );
        } else {
            assert_eq!(repo.git(&["log", "-1", "--format=%s", "tine/demo"]), message);
            assert_eq!(repo.git(&["rev-parse", "tine/demo~"]), before);
        }
        // Nothing is left that keeps git from working, such as a lock.
        repo.sh_in(&mount, "git add -A && git commit -q --allow-empty -m 'by git'");
        assert_eq!(repo.git_in(&mount, &["status", "--porcelain"]), "");
        let changes = tine
            .run(&["status", "demo", "--json"])
            .expect_success("tine status")
            .text();
        let changes: serde_json::Value = serde_json::from_str(&changes).expect("JSON");
        assert_eq!(changes["changes"].as_array().map(Vec::len), Some(0), "{changes}");
    }
    repo.git(&["fsck", "--strict"]);
}
