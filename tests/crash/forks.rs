//! Kills while the daemon makes, mounts, unmounts and removes forks, starts and ends: each fork is
//! then as it was before the command or as it should be after it, and nothing else is left of the
//! command.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use super::commits::{Files, read_files};
use super::{assert_nothing_else, let_pass, names_in, rounds, seeded};
use crate::support::{
    OutputExt, Random, TestRepo, Tine, mounts_beneath, process, require_fuse, run_with_timeout,
};

const NAMES: [&str; 3] = ["one", "two", "three"];

/// A fork as it must be.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Fork {
    /// What is in its directory `work`.
    files: Files,
    /// The same in its HEAD.
    committed: Files,
    mounted: bool,
}

/// What the test knows of each fork that exists.
type Forks = BTreeMap<&'static str, Fork>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Command {
    New,
    Delete,
    Commit,
    UnmountKeep,
    UnmountCommit,
    UnmountDiscard,
    Mount,
    Stop,
    StopForced,
    /// Whatever starts the daemon after a crash.
    Recover,
}

impl Command {
    fn args(self, name: &'static str) -> Vec<&'static str> {
        match self {
            Command::New => vec!["new", name],
            Command::Delete => vec!["delete", "--force", name],
            Command::Commit => vec!["commit", name, "-m", "committed"],
            Command::UnmountKeep => vec!["unmount", name, "--keep"],
            Command::UnmountCommit => vec!["unmount", name, "--commit", "-m", "committed"],
            Command::UnmountDiscard => vec!["unmount", name, "--discard"],
            Command::Mount => vec!["mount", name],
            Command::Stop => vec!["daemon", "stop"],
            Command::StopForced => vec!["daemon", "stop", "--force"],
            Command::Recover => vec!["list"],
        }
    }

    /// The commands that can succeed for a fork in this state.
    fn possible(fork: Option<&Fork>) -> Vec<Command> {
        let mut commands = vec![Command::Recover, Command::Stop, Command::StopForced];
        commands.extend(match fork {
            None => vec![Command::New, Command::New, Command::New],
            Some(fork) if fork.mounted => vec![
                Command::Delete,
                Command::Commit,
                Command::UnmountKeep,
                Command::UnmountCommit,
                Command::UnmountDiscard,
            ],
            Some(_) => vec![
                Command::Mount,
                Command::Mount,
                Command::Delete,
                Command::Commit,
            ],
        });
        commands
    }

    /// What the fork is afterwards.
    fn apply(self, fork: Option<Fork>) -> Option<Fork> {
        if self == Command::New {
            return Some(Fork {
                files: Files::new(),
                committed: Files::new(),
                mounted: true,
            });
        }
        let mut fork = fork?;
        match self {
            Command::New | Command::Recover | Command::Stop | Command::StopForced => {}
            Command::Delete => return None,
            Command::Commit => fork.committed.clone_from(&fork.files),
            Command::UnmountKeep => fork.mounted = false,
            Command::UnmountCommit => {
                fork.mounted = false;
                fork.committed.clone_from(&fork.files);
            }
            Command::UnmountDiscard => {
                fork.mounted = false;
                fork.files.clone_from(&fork.committed);
            }
            Command::Mount => fork.mounted = true,
        }
        Some(fork)
    }
}

struct Crashes<'r> {
    repo: &'r TestRepo,
    tine: Tine<'r>,
    forks: Forks,
    random: Random,
}

impl Crashes<'_> {
    fn mount_dir(&self, name: &str) -> PathBuf {
        self.repo.root().join("repo.forks").join(name)
    }

    /// What `tine list` says: each fork, and whether it is mounted. Nothing may be wrong with any.
    fn listed(&self) -> BTreeMap<String, bool> {
        let list = self.tine.json(&["list"]);
        assert_eq!(list["damaged"].as_array().map(Vec::len), Some(0), "{list}");
        let forks = list["forks"].as_array().expect("a list of forks");
        forks
            .iter()
            .map(|fork| {
                let name = fork["name"].as_str().expect("a fork has a name");
                (name.to_owned(), fork["mounted"] == true)
            })
            .collect()
    }

    fn committed(&self, name: &str) -> Files {
        let tree = format!("tine/{name}:work");
        let listing = self
            .repo
            .try_git_in(self.repo.dir(), &["ls-tree", "--name-only", &tree]);
        if !listing.status.success() {
            return Files::new();
        }
        let read = |file: &str| {
            let blob = self.repo.try_git_in(
                self.repo.dir(),
                &["cat-file", "blob", &format!("{tree}/{file}")],
            );
            (file.to_owned(), blob.expect_success("git cat-file").stdout)
        };
        listing.text().lines().map(read).collect()
    }

    /// Some files are written anew in the fork, where it is mounted.
    fn write(&mut self, name: &'static str) {
        let dir = self.mount_dir(name).join("work");
        let Some(fork) = self.forks.get_mut(name).filter(|fork| fork.mounted) else {
            return;
        };
        fs::create_dir_all(&dir).expect("the mount can be written");
        for _ in 0..10 {
            let file = format!("file-{}", self.random.below(30));
            let len = self.random.below(9_000) as usize;
            let content = self.random.bytes(len);
            fs::write(dir.join(&file), &content).expect("the mount can be written");
            fork.files.insert(file, content);
        }
    }

    /// Kills the daemon, and in one of two cases whoever asked it, too.
    fn kill(&mut self) {
        match self.random.below(2) {
            0 => self.tine.kill_daemon(),
            _ => {
                for pid in self.tine.daemons() {
                    process::kill_and_wait(pid);
                }
            }
        }
    }

    /// Runs `command` and kills the daemon meanwhile; whether the command said that it succeeded.
    fn run_and_kill(&mut self, command: Command, name: &'static str) -> bool {
        if command == Command::Recover {
            self.tine.kill_daemon();
        }
        let mut program = self.tine.command(&command.args(name));
        thread::scope(|scope| {
            let running = scope.spawn(|| run_with_timeout(&mut program));
            let most = [10, 40, 120][self.random.below(3) as usize];
            let_pass(&mut self.random, Duration::from_millis(most));
            self.kill();
            running.join().expect("the command ends").status.success()
        })
    }

    /// Checks the fork against its state before `command` and after it, and takes over what is
    /// found.
    fn check(&mut self, command: Command, name: &'static str, succeeded: bool) {
        let listed = self.listed();
        self.assert_nothing_else(&listed);
        let before = self.forks.remove(name);
        let after = command.apply(before.clone());
        let what = format!("{command:?} of {name}, succeeded: {succeeded}");
        let Some(mounted) = listed.get(name).copied() else {
            let may_be_gone = if succeeded {
                after.is_none()
            } else {
                before.is_none() || after.is_none()
            };
            assert!(may_be_gone, "{what}: the fork is gone");
            return;
        };
        // To be looked into.
        if !mounted {
            self.tine.ok(&["mount", name]);
        }
        let dir = self.mount_dir(name).join("work");
        let files = match dir.exists() {
            true => read_files(&dir),
            false => Files::new(),
        };
        let found = Fork {
            files,
            committed: self.committed(name),
            mounted,
        };
        let states = match succeeded {
            true => vec![after.clone()],
            false => vec![before.clone(), after.clone()],
        };
        // A command of several steps may have done the first ones.
        let fits = |state: &Fork| {
            let commits =
                [before.as_ref(), after.as_ref()].map(|state| state.map(|state| &state.committed));
            let is_committed = match succeeded {
                true => found.committed == state.committed,
                false => commits.contains(&Some(&found.committed)),
            };
            found.files == state.files
                && is_committed
                && (!succeeded || found.mounted == state.mounted)
        };
        assert!(
            states.iter().flatten().any(fits),
            "{what}: found {}, before {}, after {}",
            brief(Some(&found)),
            brief(before.as_ref()),
            brief(after.as_ref())
        );
        self.repo.git_in(&self.mount_dir(name), &["status"]);
        if !mounted {
            self.tine.ok(&["unmount", name, "--keep"]);
        }
        self.forks.insert(name, found);
    }

    /// That there is nothing of forks but these.
    fn assert_nothing_else(&self, listed: &BTreeMap<String, bool>) {
        let names: BTreeSet<String> = listed.keys().cloned().collect();
        assert_nothing_else(self.repo, "the store", &names);
        let mounted: BTreeSet<PathBuf> = mounts_beneath(self.repo.root()).into_iter().collect();
        let expected = listed
            .iter()
            .filter(|(_, mounted)| **mounted)
            .map(|(name, _)| self.mount_dir(name));
        assert_eq!(mounted, expected.collect(), "mounts");
        let places = names_in(&self.repo.root().join("repo.forks"));
        assert!(
            places.is_subset(&names),
            "directories {places:?} of the forks {names:?}"
        );

        let unmerged = [
            "for-each-ref",
            "--format=%(refname)",
            "--merged=main",
            "refs/heads/tine",
        ];
        for branch in self.repo.git(&unmerged).lines() {
            let fork = &branch["refs/heads/tine/".len()..];
            assert!(names.contains(fork), "{branch} has no commit and no fork");
        }
    }
}

/// The fork without its bytes.
fn brief(fork: Option<&Fork>) -> String {
    let lens = |files: &Files| -> Vec<String> {
        files
            .iter()
            .map(|(name, content)| format!("{name}:{}", content.len()))
            .collect()
    };
    fork.map_or("nothing".to_owned(), |fork| {
        format!(
            "files {:?}, committed {:?}, mounted {}",
            lens(&fork.files),
            lens(&fork.committed),
            fork.mounted
        )
    })
}

/// Invariant 13, for what commands make of forks.
#[test]
fn a_command_that_is_killed_leaves_each_fork_whole_and_nothing_behind() {
    require_fuse!();
    let (random, _say) = seeded();
    let repo = TestRepo::new();
    let mut crashes = Crashes {
        repo: &repo,
        tine: Tine::new(&repo),
        forks: Forks::new(),
        random,
    };
    for _ in 0..rounds() {
        let name = NAMES[crashes.random.below(NAMES.len() as u64) as usize];
        crashes.write(name);
        let possible = Command::possible(crashes.forks.get(name));
        let command = possible[crashes.random.below(possible.len() as u64) as usize];
        let succeeded = crashes.run_and_kill(command, name);
        // Killed again while it recovers, now and then.
        for _ in 0..crashes.random.below(3) {
            crashes.run_and_kill(Command::Recover, name);
        }
        crashes.check(command, name, succeeded);
    }
    repo.git(&["fsck", "--strict"]);
    let tine = &crashes.tine;
    for name in crashes.listed().keys() {
        tine.ok(&["delete", "--force", name]);
    }
    crashes.assert_nothing_else(&BTreeMap::new());
    tine.ok(&["daemon", "stop"]);
    repo.git(&["fsck", "--strict"]);
}
