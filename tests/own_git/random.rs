//! Random commands in two forks and in the main checkout, while the daemon is killed.
//!
//! After each command every ref of the forks and of the main repository is compared with a model.
//! A failure prints `TINE_OWN_GIT_SEED=n`, which chooses the same commands again (the order of what
//! runs at the same time stays the scheduler's). `TINE_SOAK=1` runs many more.

#[path = "random/commands.rs"]
mod commands;
#[path = "random/model.rs"]
mod model;

use std::fs;
use std::path::PathBuf;
use std::process::Output;
use std::time::{Duration, Instant};

use super::new_own;
use crate::support::{
    OutputExt, Random, SayWhich, TestRepo, Tine, require_fuse, run_with_timeout, soaking,
};
use commands::Command;
use model::{Change, FORKS, Model};

const SEED: &str = "TINE_OWN_GIT_SEED";

/// Steps at which a process that takes over can die.
const POINTS: [&str; 10] = [
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

/// Format that needs no objects.
const FORMAT: &str = "--format=%(objectname) %(refname)";

/// Time for the daemon to take over, also on a busy machine.
const TAKEN_WITHIN: Duration = Duration::from_secs(20);

/// Time for the daemon to come to a point, if it does.
const REACHED_WITHIN: Duration = Duration::from_secs(2);

struct Run<'r> {
    repo: &'r TestRepo,
    tine: &'r Tine<'r>,
    dirs: [PathBuf; 2],
    points: PathBuf,
    random: Random,
    model: Model,
    /// Commands so far, for the message of a failure.
    story: Vec<String>,
}

impl<'r> Run<'r> {
    fn new(repo: &'r TestRepo, tine: &'r Tine<'r>, random: Random) -> Run<'r> {
        let points = repo.root().join("points");
        fs::create_dir(&points).expect("the name is free");
        for n in 0..8 {
            repo.write(&format!("f{n}"), format!("{n}\n"));
        }
        repo.commit_all("files");
        repo.sh_in(repo.dir(), "git branch topic; git tag v1");
        // The daemon that this starts pauses where the test asks for it.
        run_with_timeout(tine.command(&["list"]).env("TINE_PAUSE_IN", &points))
            .expect_success("tine list");
        let dirs = FORKS.map(|name| new_own(tine, name));
        let model = Model::read(repo, &dirs);
        Run {
            repo,
            tine,
            dirs,
            points,
            random,
            model,
            story: Vec::new(),
        }
    }

    /// Fails with what happened before.
    #[track_caller]
    fn fail(&self, what: &str) -> ! {
        let last = self.story.len().saturating_sub(40);
        let log = fs::read_to_string(self.repo.common_dir().join("tine/daemon.log"));
        let log = log.unwrap_or_default();
        let log: Vec<&str> = log.lines().rev().take(30).collect();
        let log: Vec<&str> = log.into_iter().rev().collect();
        let refs = FORKS.iter().zip(&self.dirs).map(|(name, dir)| {
            let own = self.repo.git_dir_of_fork(name);
            format!(
                "--- {name}\n{}{}",
                self.repo.try_git_in(dir, &["for-each-ref", FORMAT]).text(),
                fs::read_to_string(own.join("packed-refs")).unwrap_or_default(),
            )
        });
        let refs: String = refs.collect();
        panic!(
            "{what}\n--- commands\n{}\n--- main\n{}\n{refs}--- log\n{}",
            self.story[last..].join("\n"),
            self.repo
                .try_git_in(self.repo.dir(), &["for-each-ref", FORMAT])
                .text(),
            log.join("\n")
        );
    }

    fn start(&self, command: &Command) -> Output {
        let place = command.place;
        let dir = self.dirs.get(place).map_or(self.repo.dir(), |dir| dir);
        if command.is_tine {
            let script = command.script.replace("tine ", "\"$TINE\" ");
            let mut shell = self.repo.command("sh", self.repo.dir());
            shell
                .args(["-euc", &script])
                .env("TINE", Tine::program())
                .env("TINE_PAUSE_IN", &self.points);
            run_with_timeout(&mut shell)
        } else {
            // The shell goes there: a mount that ends refuses to be anybody's directory.
            let script = format!("cd '{}'\n{}", dir.display(), command.script);
            self.repo.try_sh_in(self.repo.root(), &script)
        }
    }

    fn note(&mut self, how: &str, command: &Command) {
        let place = FORKS.get(command.place).copied().unwrap_or("main");
        self.story
            .push(format!("{how}{place}: {}", command.script.trim()));
    }

    /// Waits until all is there that refs name.
    ///
    /// The daemon gives objects back that a `git prune` removed at the same time.
    fn await_objects(&self) {
        let deadline = Instant::now() + TAKEN_WITHIN;
        let list = "git rev-list --all --objects > /dev/null";
        loop {
            let listed = self.repo.try_sh_in(self.repo.dir(), list);
            if listed.status.success() {
                return;
            }
            if Instant::now() > deadline {
                self.fail(&listed.error_text());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Runs commands at the same time, and checks what they made.
    fn run(&mut self, commands: Vec<Command>) {
        let how = if commands.len() > 1 {
            "(together) "
        } else {
            ""
        };
        for command in &commands {
            self.note(how, command);
        }
        let this = &*self;
        let outputs: Vec<Output> = std::thread::scope(|scope| {
            let running: Vec<_> = commands
                .iter()
                .map(|command| scope.spawn(move || this.start(command)))
                .collect();
            let ended = running.into_iter().map(|thread| thread.join());
            ended.map(|output| output.expect("it ends")).collect()
        });
        let mut changes = Vec::new();
        for (command, output) in commands.into_iter().zip(outputs) {
            if !output.status.success() {
                let said = format!("{}\n{}", output.error_text(), output.text());
                let said = said.trim_start().to_owned();
                let last = said.lines().next().unwrap_or_default();
                self.story.push(format!("    failed: {last}"));
                if !command.may_fail {
                    self.fail(&format!("{} failed:\n{said}", command.script));
                }
            }
            let change = command.change;
            changes.push(if output.status.success() {
                change
            } else {
                change.perhaps()
            });
        }
        self.check(&changes);
        if changes.len() > 1 {
            self.await_objects();
        }
    }

    /// Kills the daemon while the command runs, or at a point of taking over.
    fn run_and_kill(&mut self, command: Command, point: Option<&str>) {
        self.note(&format!("(killed at {point:?}) "), &command);
        let most = Duration::from_millis(self.random.below(120));
        if let Some(point) = point {
            fs::write(self.points.join(point), "").expect("the directory can be written");
        }
        let this = &*self;
        let output = std::thread::scope(|scope| {
            let running = scope.spawn(|| this.start(&command));
            match point {
                Some(point) => {
                    let reached = this.points.join(format!("{point}.reached"));
                    let begun = Instant::now();
                    let output = running.join().expect("it ends");
                    while !reached.exists() && begun.elapsed() < REACHED_WITHIN {
                        std::thread::sleep(Duration::from_millis(2));
                    }
                    this.tine.kill_daemon();
                    let _ = fs::remove_file(this.points.join(point));
                    let _ = fs::remove_file(reached);
                    output
                }
                None => {
                    std::thread::sleep(most);
                    this.tine.kill_daemon();
                    running.join().expect("it ends")
                }
            }
        });
        let is_done = output.status.success();
        self.story.push(format!("    done: {is_done}"));
        self.restart();
        let change = match is_done {
            true => command.change,
            false => command.change.perhaps(),
        };
        self.check(&[change]);
    }

    /// Starts the daemon, and mounts the forks again.
    fn restart(&self) {
        let mut list = self.tine.command(&["list"]);
        run_with_timeout(list.env("TINE_PAUSE_IN", &self.points)).expect_success("tine list");
        for (name, dir) in FORKS.iter().zip(&self.dirs) {
            if !dir.join(".git").exists() {
                self.tine.ok(&["mount", name]);
            }
            // As git asks for when a git program was killed, and ends what it had begun.
            self.repo.sh_in(
                dir,
                "find .git -name '*.lock' -not -path '.git/tine/*' -delete
                 rm -rf .git/rebase-merge .git/rebase-apply .git/sequencer
                 git reset -q --hard",
            );
        }
    }

    /// Checks the refs of all, and that the main repository has what the forks have.
    fn check(&mut self, changes: &[Change]) {
        for place in 0..FORKS.len() {
            let own: Vec<&Change> = changes.iter().filter(|c| c.place == place).collect();
            if let Err(reason) = self
                .model
                .check_fork(self.repo, &self.dirs, place, &own, changes)
            {
                self.fail(&reason);
            }
        }
        let deadline = Instant::now() + TAKEN_WITHIN;
        loop {
            match self.model.check_main(self.repo, changes) {
                Ok(()) => return,
                Err(reason) if Instant::now() > deadline => self.fail(&reason),
                Err(_) => std::thread::sleep(Duration::from_millis(3)),
            }
        }
    }

    /// Checks that all is whole, after the main repository was pruned or before.
    fn check_whole(&mut self, prunes: bool) {
        if prunes {
            self.story.push("main: collected".to_owned());
            self.repo.sh_in(
                self.repo.dir(),
                "git reflog expire --expire=now --all; git gc -q --prune=now",
            );
        }
        // What unreachable commits a commit-graph of git gc names, git repack drops.
        let fsck = [
            "-c",
            "core.commitGraph=false",
            "fsck",
            "--full",
            "--strict",
            "--no-progress",
            "--no-dangling",
        ];
        for dir in self.dirs.iter().map(|dir| &**dir).chain([self.repo.dir()]) {
            let found = self.repo.try_git_in(dir, &fsck);
            let said = found.error_text();
            if !found.status.success() || said.contains("error") || said.contains("warning") {
                self.fail(&format!("git fsck in {}:\n{said}", dir.display()));
            }
        }
        for dir in &self.dirs {
            // All that refs, index, stash and reflogs name, with what it needs.
            let script = "
                git rev-list --objects --all --reflog --indexed-objects > /dev/null
                { cat .git/logs/HEAD; find .git/logs -type f -exec cat {} +; } |
                    cut -d' ' -f1,2 | tr ' ' '\\n' | grep -v '^0*$' | sort -u > ../ids || true
                git ls-files -s | cut -d' ' -f2 >> ../ids
                git cat-file --batch-check < ../ids | grep missing && exit 1 || rm ../ids";
            let found = self.repo.try_sh_in(dir, script);
            if !found.status.success() {
                self.fail(&format!(
                    "something is missing in {}: {}{}",
                    dir.display(),
                    found.text(),
                    found.error_text()
                ));
            }
        }
    }
}

/// The objects' part of a command's outcome is checked after so many commands.
const CHECKED_EVERY: usize = 8;

#[test]
fn two_forks_and_the_main_checkout_stay_as_their_commands_leave_them() {
    require_fuse!();
    let (random, seed) = Random::from_environment(SEED);
    let _say = SayWhich(SEED, seed);
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    let mut run = Run::new(&repo, &tine, random);
    let rounds = if soaking() { 4000 } else { 30 };
    let mut points = POINTS.iter().cycle();
    for round in 0..rounds {
        match run.random.below(10) {
            0 | 1 => {
                let commands = commands::together(&mut run.random, &run.model, repo.dir());
                run.run(commands);
            }
            2 => {
                let command = commands::of_tine(&mut run.random, &run.model);
                run.run(vec![command]);
            }
            3 => {
                let command = commands::that_moves(&mut run.random, &run.model, repo.dir());
                run.run_and_kill(command, None);
            }
            4 | 5 => {
                let command = commands::that_moves(&mut run.random, &run.model, repo.dir());
                let point = points.next().copied();
                run.run_and_kill(command, point);
            }
            6 => {
                let command = commands::in_main(&mut run.random, &run.model, &run.dirs);
                run.run(vec![command]);
            }
            _ => {
                let place = run.random.below(2) as usize;
                let command = commands::in_fork(&mut run.random, &run.model, place, repo.dir());
                run.run(vec![command]);
            }
        }
        if round % CHECKED_EVERY == CHECKED_EVERY - 1 {
            let prunes = run.random.below(2) == 0;
            run.check_whole(prunes);
        }
    }
    run.check_whole(true);
}
