//! Kills while the daemon takes snapshots, goes back to them, makes forks of forks and frees what
//! they leave, while a program writes: each fork is as it was before the command or as it should be
//! after it, with all that was acknowledged, what is listed is whole, and nothing else is left.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::commits::{Files, read_files};
use super::{assert_nothing_else, let_pass, rounds, seeded};
use crate::support::{Random, TestRepo, Tine, require_fuse, run_with_timeout};

const FORKS_MAX: usize = 4;
const SNAPSHOTS_MAX: usize = 5;

/// A fork as it was found.
#[derive(Debug, Clone, Default)]
struct Fork {
    /// What is in its directory `work`.
    files: Files,
    snapshots: BTreeMap<String, Files>,
}

#[derive(Debug, Clone)]
enum Command {
    Snapshot(String),
    Restore(String),
    Reset,
    Forget(String),
    Child(String),
    ChildOf(String, String),
    Delete,
    Collect,
}

impl Command {
    fn args(&self, fork: &str) -> Vec<String> {
        let args: Vec<&str> = match self {
            Command::Snapshot(name) => vec!["snapshot", fork, name],
            Command::Restore(name) => vec!["restore", fork, name],
            Command::Reset => vec!["reset", fork],
            Command::Forget(name) => vec!["snapshot", fork, name, "--delete", "--force"],
            Command::Child(child) => vec!["new", child, "--from-fork", fork],
            Command::ChildOf(child, name) => {
                return ["new", child, "--from-fork", &format!("{fork}@{name}")]
                    .map(str::to_owned)
                    .to_vec();
            }
            Command::Delete => vec!["delete", "--force", fork],
            Command::Collect => vec!["gc"],
        };
        args.into_iter().map(str::to_owned).collect()
    }
}

/// What a program wrote before the daemon was gone.
#[derive(Default)]
struct Written {
    acknowledged: Vec<(String, Vec<u8>)>,
    /// The call that failed may have made it, in part.
    unsure: Option<(String, Vec<u8>)>,
}

impl Written {
    /// How many of the writes `files` may have over `before`, which it must have otherwise.
    fn prefixes_in(&self, before: &Files, files: &Files) -> Vec<usize> {
        let mut expected = before.clone();
        let unsure = self.unsure.as_ref().map(|(name, _)| name);
        let without_unsure = |files: &Files| {
            let mut files = files.clone();
            unsure.and_then(|name| files.remove(name));
            files
        };
        let found = without_unsure(files);
        let of_unsure = unsure.and_then(|name| files.get(name));
        let is_whole = |expected: &Files| match &self.unsure {
            Some((name, content)) => expected.get(name) == of_unsure || of_unsure == Some(content),
            None => true,
        };
        let mut prefixes = Vec::new();
        for number in 0..=self.acknowledged.len() {
            if without_unsure(&expected) == found && is_whole(&expected) {
                prefixes.push(number);
            }
            if let Some((name, content)) = self.acknowledged.get(number) {
                expected.insert(name.clone(), content.clone());
            }
        }
        prefixes
    }
}

struct Crashes<'r> {
    repo: &'r TestRepo,
    tine: Tine<'r>,
    forks: BTreeMap<String, Fork>,
    random: Random,
    named: u32,
}

impl Crashes<'_> {
    fn dir_of(&self, name: &str) -> PathBuf {
        self.repo.root().join("repo.forks").join(name).join("work")
    }

    fn fresh(&mut self, stem: &str) -> String {
        self.named += 1;
        format!("{stem}{}", self.named)
    }

    fn pick<T: Clone>(&mut self, from: Vec<T>) -> Option<T> {
        let count = from.len() as u64;
        (count > 0).then(|| from[self.random.below(count) as usize].clone())
    }

    fn command(&mut self, fork: &str) -> Command {
        loop {
            let snapshots: Vec<String> = self.forks[fork].snapshots.keys().cloned().collect();
            let is_crowded = snapshots.len() >= SNAPSHOTS_MAX;
            let snapshot = self.pick(snapshots);
            let has_room = self.forks.len() < FORKS_MAX;
            return match (self.random.below(9), snapshot) {
                (0 | 1, _) if !is_crowded => Command::Snapshot(self.fresh("point")),
                (2 | 3, Some(snapshot)) => Command::Restore(snapshot),
                (4, _) => Command::Reset,
                (5, Some(snapshot)) if is_crowded || self.random.below(3) == 0 => {
                    Command::Forget(snapshot)
                }
                (6, _) if has_room => Command::Child(self.fresh("fork")),
                (7, Some(snapshot)) if has_room => Command::ChildOf(self.fresh("fork"), snapshot),
                (7, _) if self.forks.len() > 1 => Command::Delete,
                (8, _) => Command::Collect,
                _ => continue,
            };
        }
    }

    /// Runs the command with a program that writes to the fork, and kills the daemon meanwhile;
    /// whether the command said that it succeeded.
    fn run_and_kill(&mut self, command: &Command, fork: &str) -> (bool, Written) {
        let dir = self.dir_of(fork);
        // What is written to a fork that is being deleted is deleted.
        let is_written = !matches!(command, Command::Delete);
        let args = command.args(fork);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let mut program = self.tine.command(&args);
        let mut of_writer = Random::new(self.random.next());
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let writing = scope.spawn(|| match is_written {
                true => write(&dir, &mut of_writer, &stop),
                false => Written::default(),
            });
            let running = scope.spawn(|| run_with_timeout(&mut program));
            let most = [20, 80, 250][self.random.below(3) as usize];
            let_pass(&mut self.random, Duration::from_millis(most));
            self.tine.kill_daemon();
            stop.store(true, Ordering::SeqCst);
            let succeeded = running.join().expect("the command ends").status.success();
            (
                succeeded,
                writing.join().expect("a writer only stops for an error"),
            )
        })
    }

    fn files_of(&self, name: &str) -> Files {
        let dir = self.dir_of(name);
        match dir.exists() {
            true => read_files(&dir),
            false => Files::new(),
        }
    }

    /// What a snapshot has, seen through a fork of it.
    fn files_of_snapshot(&self, fork: &str, snapshot: &str) -> Files {
        self.tine
            .ok(&["new", "look", "--from-fork", &format!("{fork}@{snapshot}")]);
        let files = self.files_of("look");
        self.tine.ok(&["delete", "--force", "look"]);
        files
    }

    fn snapshots_of(&self, fork: &str) -> BTreeSet<String> {
        let list = self.tine.json(&["snapshots", fork]);
        let names = list["snapshots"]
            .as_array()
            .expect("a list of snapshots")
            .iter();
        names
            .map(|snapshot| snapshot["name"].as_str().expect("it has a name").to_owned())
            .collect()
    }

    fn check(&mut self, command: &Command, fork: &str, succeeded: bool, written: &Written) {
        let what = format!("{command:?} of {fork}, succeeded: {succeeded}");
        let list = self.tine.json(&["list"]);
        assert_eq!(
            list["damaged"].as_array().map(Vec::len),
            Some(0),
            "{what}: {list}"
        );
        let names = list["forks"].as_array().expect("a list of forks").iter();
        let names: BTreeSet<String> = names
            .map(|fork| fork["name"].as_str().expect("a fork has a name").to_owned())
            .collect();
        assert_nothing_else(self.repo, &what, &names);
        let before = std::mem::take(&mut self.forks);
        for name in before.keys().filter(|name| *name != fork) {
            assert!(names.contains(name), "{what}: {name} is gone");
        }
        if !names.contains(fork) {
            assert!(matches!(command, Command::Delete), "{what}: it is gone");
        } else if matches!(command, Command::Delete) {
            assert!(!succeeded, "{what}: it is there");
        }
        for name in &names {
            let known = before.get(name);
            let mut found = Fork {
                files: self.files_of(name),
                snapshots: known
                    .map(|known| known.snapshots.clone())
                    .unwrap_or_default(),
            };
            let listed = self.snapshots_of(name);
            let new: Vec<String> = listed
                .iter()
                .filter(|snapshot| !found.snapshots.contains_key(*snapshot))
                .cloned()
                .collect();
            found.snapshots.retain(|snapshot, _| {
                let may_go =
                    matches!(command, Command::Forget(gone) if name == fork && gone == snapshot);
                assert!(
                    may_go || listed.contains(snapshot),
                    "{what}: the snapshot {snapshot} of {name} is gone"
                );
                listed.contains(snapshot)
            });
            for snapshot in &new {
                found
                    .snapshots
                    .insert(snapshot.clone(), self.files_of_snapshot(name, snapshot));
            }
            match known {
                None => self.check_child(&what, command, name, &found, &before[fork], written),
                Some(known) if name == fork => {
                    check_target(&what, command, succeeded, known, &found, &new, written);
                }
                Some(known) => {
                    assert!(found.files == known.files, "{what}: {name} is another");
                    assert!(new.is_empty(), "{what}: {name} has the snapshots {new:?}");
                }
            }
            self.forks.insert(name.clone(), found);
        }
        if let Command::Child(child) | Command::ChildOf(child, _) = command {
            assert!(
                !succeeded || names.contains(child),
                "{what}: there is no child"
            );
        }
    }

    fn check_child(
        &self,
        what: &str,
        command: &Command,
        name: &str,
        found: &Fork,
        parent: &Fork,
        written: &Written,
    ) {
        let is_it = match command {
            Command::Child(child) => {
                child == name && !written.prefixes_in(&parent.files, &found.files).is_empty()
            }
            Command::ChildOf(child, snapshot) => {
                child == name && found.files == parent.snapshots[snapshot]
            }
            _ => false,
        };
        assert!(is_it, "{what}: {name} has {:?}", brief(&found.files));
        assert!(found.snapshots.is_empty(), "{what}: {name} has snapshots");
    }
}

/// Writes files until somebody says stop, or nobody answers.
fn write(dir: &Path, random: &mut Random, stop: &AtomicBool) -> Written {
    let mut written = Written::default();
    while !stop.load(Ordering::SeqCst) {
        let name = format!("file-{}", random.below(40));
        let len = [100, 9_000, 90_000][random.below(3) as usize];
        let content = random.bytes(len);
        // At once, so that it is there or not, and under a name that no snapshot has.
        let temporary = dir.with_file_name(format!("temporary-{}", random.next()));
        let path = dir.join(&name);
        let done = fs::write(&temporary, &content).and_then(|()| fs::rename(&temporary, &path));
        match done {
            Ok(()) => written.acknowledged.push((name, content)),
            // The temporary file went where the fork went; a command cannot do without the
            // directory.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let _ = fs::create_dir_all(dir);
            }
            Err(_) => {
                written.unsure = Some((name, content));
                break;
            }
        }
    }
    written
}

/// Checks the fork that the command was about.
fn check_target(
    what: &str,
    command: &Command,
    succeeded: bool,
    known: &Fork,
    found: &Fork,
    new: &[String],
    written: &Written,
) {
    let all = written.acknowledged.len();
    let is_old = written
        .prefixes_in(&known.files, &found.files)
        .contains(&all);
    let point = match command {
        Command::Restore(snapshot) => known.snapshots[snapshot].clone(),
        Command::Reset => Files::new(),
        Command::Snapshot(name) => {
            assert!(is_old, "{what}: has {:?}", brief(&found.files));
            assert!(new.iter().all(|new| new == name), "{what}: {new:?}");
            assert!(!succeeded || !new.is_empty(), "{what}: there is none");
            if let Some(taken) = found.snapshots.get(name) {
                let prefixes = written.prefixes_in(&known.files, taken);
                assert!(!prefixes.is_empty(), "{what}: {:?}", brief(taken));
            }
            return;
        }
        _ => {
            assert!(is_old, "{what}: has {:?}", brief(&found.files));
            assert!(new.is_empty(), "{what}: {new:?}");
            return;
        }
    };
    assert!(new.len() <= 1, "{what}: {new:?}");
    // What was written until then is in the snapshot, what was written afterwards in the fork.
    let kept = new.first().map(|name| &found.snapshots[name]);
    let splits = kept.map_or(Vec::new(), |kept| written.prefixes_in(&known.files, kept));
    assert!(
        kept.is_none() || !splits.is_empty(),
        "{what}: {new:?} is torn"
    );
    let is_new = splits.iter().any(|split| {
        let rest = Written {
            acknowledged: written.acknowledged[*split..].to_vec(),
            unsure: written.unsure.clone(),
        };
        rest.prefixes_in(&point, &found.files)
            .contains(&(all - split))
    });
    // A fork that had nothing leaves no snapshot.
    let was_nothing =
        matches!(command, Command::Reset) && kept.is_none() && known.files.is_empty() && is_old;
    assert!(
        is_new || was_nothing || (!succeeded && is_old),
        "{what}: has {:?}, had {:?}, wrote {:?}, {new:?} has {:?}",
        brief(&found.files),
        brief(&known.files),
        written
            .acknowledged
            .iter()
            .map(|(name, content)| (name, content.len()))
            .collect::<Vec<_>>(),
        kept.map(brief),
    );
}

fn brief(files: &Files) -> Vec<(&String, usize)> {
    files
        .iter()
        .map(|(name, content)| (name, content.len()))
        .collect()
}

#[test]
fn invariant_13_snapshots_and_forks_of_forks_that_are_killed_happened_or_not() {
    require_fuse!();
    let (random, _say) = seeded();
    let repo = TestRepo::new();
    let mut crashes = Crashes {
        repo: &repo,
        tine: Tine::new(&repo),
        forks: BTreeMap::new(),
        random,
        named: 0,
    };
    crashes.tine.new_fork("first");
    crashes.forks.insert("first".to_owned(), Fork::default());
    for _ in 0..rounds() {
        let names = crashes.forks.keys().cloned().collect();
        let fork = crashes.pick(names).expect("one is always there");
        fs::create_dir_all(crashes.dir_of(&fork)).expect("the mount can be written");
        let command = crashes.command(&fork);
        let (succeeded, written) = crashes.run_and_kill(&command, &fork);
        crashes.check(&command, &fork, succeeded, &written);
    }
    repo.git(&["fsck", "--strict"]);
    for (name, fork) in &crashes.forks {
        for (snapshot, files) in &fork.snapshots {
            let found = crashes.files_of_snapshot(name, snapshot);
            assert!(
                found == *files,
                "the snapshot {snapshot} of {name} is another"
            );
        }
        crashes
            .repo
            .git_in(&repo.root().join("repo.forks").join(name), &["status"]);
    }
    for name in crashes.forks.keys() {
        crashes.tine.ok(&["delete", "--force", name]);
    }
    crashes.tine.ok(&["daemon", "stop"]);
    crashes.tine.ok(&["list"]);
    assert_nothing_else(crashes.repo, "when all is deleted", &BTreeSet::new());
    repo.git(&["fsck", "--strict"]);
}
