//! Snapshots and forks that are taken while programs write.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::support::{Random, SayWhich, TestRepo, Tine, is_root, require_fuse, soaking};

const WRITERS: usize = 3;
/// Of each writer, which appends a record to one after the other.
const FILES: usize = 7;

/// A record, which tells where it belongs; the longest make a file outgrow its place soon.
fn record(writer: usize, file: usize, number: u64) -> Vec<u8> {
    let len = 20 + (number * 37 + file as u64 * 211) % 3000;
    let mut record = format!("{writer}.{file}.{number}:").into_bytes();
    record.resize(len as usize, b'a' + (number % 26) as u8);
    record.push(b'\n');
    record
}

/// The kernel may ask for the two sides of a page's end one after the other, for one call of a
/// program's.
const PAGE: usize = 4096;

/// How many whole records the file has, which must be the first ones, and whether the beginning of
/// another follows.
fn records_in(path: &Path, writer: usize, file: usize) -> (u64, bool) {
    let bytes = fs::read(path).unwrap_or_default();
    let (mut at, mut count) = (0, 0);
    while at < bytes.len() {
        let expected = record(writer, file, count);
        let found = &bytes[at..bytes.len().min(at + expected.len())];
        if bytes.len().is_multiple_of(PAGE)
            && found.len() < expected.len()
            && expected.starts_with(found)
        {
            return (count, true);
        }
        assert!(
            found == expected,
            "{}: record {count} of {} bytes is torn or another one",
            path.display(),
            bytes.len()
        );
        at += expected.len();
        count += 1;
    }
    (count, false)
}

struct Writer {
    number: usize,
    dir: PathBuf,
    begun: AtomicU64,
    acknowledged: AtomicU64,
}

impl Writer {
    fn path(&self, root: &Path, file: usize) -> PathBuf {
        root.join(&self.dir).join(file.to_string())
    }

    fn work(&self, root: &Path, stop: &AtomicBool) {
        fs::create_dir_all(root.join(&self.dir)).unwrap();
        let mut files: Vec<File> = (0..FILES)
            .map(|file| {
                let mut options = OpenOptions::new();
                options.create(true).append(true);
                options.open(self.path(root, file)).unwrap()
            })
            .collect();
        for number in 0.. {
            for (file, open) in files.iter_mut().enumerate() {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                let record = record(self.number, file, number);
                self.begun.fetch_add(1, Ordering::SeqCst);
                let written = open.write(&record).unwrap();
                assert_eq!(written, record.len());
                self.acknowledged.fetch_add(1, Ordering::SeqCst);
            }
        }
    }

    /// How much a fork has of it: all that was acknowledged `from` and no more than was begun `to`,
    /// as of one moment. What was under way at that moment may be there in part.
    fn check(&self, root: &Path, from: u64, to: u64) -> u64 {
        let (counts, torn): (Vec<u64>, Vec<bool>) = (0..FILES)
            .map(|file| records_in(&self.path(root, file), self.number, file))
            .unzip();
        let total: u64 = counts.iter().sum();
        let what = format!("writer {} in {}: {counts:?}", self.number, root.display());
        assert!((from..=to).contains(&total), "{what}, not {from}..={to}");
        let next = (total % FILES as u64) as usize;
        for file in (0..FILES).filter(|file| torn[*file]) {
            assert!(
                file == next && total < to,
                "{what}: a record of file {file} is torn"
            );
        }
        for (file, count) in counts.iter().enumerate() {
            let expected = total / FILES as u64 + u64::from((file as u64) < total % FILES as u64);
            assert_eq!(*count, expected, "{what} at file {file}: not one moment");
        }
        total
    }
}

struct Taken {
    name: String,
    bounds: Vec<(u64, u64)>,
}

fn under_load(profile: &[&str]) {
    let (mut random, seed) = Random::from_environment("TINE_LOAD_SEED");
    let _say = SayWhich("TINE_LOAD_SEED", seed);
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let args = [&["new", "demo"], profile].concat();
    let root = PathBuf::from(tine.ok(&args));
    let writers: Vec<Writer> = (0..WRITERS)
        .map(|number| Writer {
            number,
            dir: PathBuf::from(format!("writer-{number}")),
            begun: AtomicU64::new(0),
            acknowledged: AtomicU64::new(0),
        })
        .collect();
    let stop = AtomicBool::new(false);
    let rounds = if soaking() { 300 } else { 12 };
    let mut children: Vec<Taken> = Vec::new();
    let mut snapshots: Vec<Taken> = Vec::new();
    let at = |name: &str| repo.root().join("repo.forks").join(name);
    thread::scope(|scope| {
        for writer in &writers {
            scope.spawn(|| writer.work(&root, &stop));
        }
        // Whoever fails ends the others.
        let _stop = StopAtEnd(&stop);
        for round in 0..rounds {
            let from: Vec<u64> = writers
                .iter()
                .map(|w| w.acknowledged.load(Ordering::SeqCst))
                .collect();
            let name = format!("taken-{round}");
            let is_child = random.below(2) == 0;
            match is_child {
                true => {
                    let args = ["new", &name, "--from-fork", "demo"];
                    tine.ok(&[&args[..], profile].concat());
                }
                false => drop(tine.ok(&["snapshot", "demo", &name])),
            }
            let to = writers.iter().map(|w| w.begun.load(Ordering::SeqCst));
            let taken = Taken {
                name: name.clone(),
                bounds: from.into_iter().zip(to).collect(),
            };
            match is_child {
                true => {
                    check(&writers, &at(&name), &taken.bounds);
                    children.push(taken);
                }
                false => snapshots.push(taken),
            }
        }
    });
    for writer in &writers {
        let all = writer.acknowledged.load(Ordering::SeqCst);
        writer.check(&root, all, all);
    }
    for taken in &snapshots {
        let child = format!("of-{}", taken.name);
        tine.ok(&[
            "new",
            &child,
            "--from-fork",
            &format!("demo@{}", taken.name),
        ]);
        check(&writers, &at(&child), &taken.bounds);
    }
    // Children did not change meanwhile, nor by a crash; and they go on from there.
    tine.kill_daemon();
    tine.ok(&["list"]);
    for taken in &children {
        let dir = at(&taken.name);
        let counts = check(&writers, &dir, &taken.bounds);
        for (writer, total) in writers.iter().zip(counts) {
            let (number, file) = (total / FILES as u64, (total % FILES as u64) as usize);
            let mut whole = Vec::new();
            (0..=number).for_each(|number| whole.extend(record(writer.number, file, number)));
            let path = writer.path(&dir, file);
            let len = fs::metadata(&path).map_or(0, |meta| meta.len());
            // A writer that had not begun has no directory yet.
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let mut options = OpenOptions::new();
            let mut open = options.create(true).append(true).open(&path).unwrap();
            open.write_all(&whole[len as usize..]).unwrap();
            assert_eq!(writer.check(&dir, total + 1, total + 1), total + 1);
        }
    }
    for writer in &writers {
        let all = writer.acknowledged.load(Ordering::SeqCst);
        writer.check(&root, all, all);
    }
    if let Some(taken) = snapshots.first() {
        tine.ok(&["restore", "demo", &taken.name]);
        check(&writers, &root, &taken.bounds);
    }
}

fn check(writers: &[Writer], root: &Path, bounds: &[(u64, u64)]) -> Vec<u64> {
    let checked = writers.iter().zip(bounds);
    checked
        .map(|(writer, (from, to))| writer.check(root, *from, *to))
        .collect()
}

struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn what_is_taken_under_load_is_the_fork_of_one_moment() {
    require_fuse!();
    under_load(&[]);
}

#[test]
fn what_is_taken_under_load_is_the_fork_of_one_moment_with_large_files() {
    require_fuse!();
    if is_root() {
        under_load(&["--profile", "large-files"]);
    }
}
