//! An agent with two forks, and all that it does with tine and git.

use std::fs;
use std::io;
use std::time::Duration;

use serde_json::Value;

use crate::marks::{Kind, Mark, MarkId, word};
use crate::plan::{By, Conflicts, Fork, Git, Policy, Source, Start, Step, Target};
use crate::world::{Answer, Done, World};

pub struct Agent<'w> {
    world: &'w World<'w>,
    number: usize,
    /// Whether the private fork and the open one are mounted, as far as the agent knows.
    mounted: [bool; 2],
    /// Git commands that failed and could not be aborted then: a daemon that was killed took the files away.
    to_abort: Vec<(Fork, &'static str)>,
    /// Fork, name, and when it was about to be taken.
    snapshots: Vec<(Fork, String, Duration)>,
    branches: u32,
}

impl<'w> Agent<'w> {
    pub fn new(world: &'w World<'w>, number: usize) -> Agent<'w> {
        Agent {
            world,
            number,
            mounted: [false; 2],
            to_abort: Vec::new(),
            snapshots: Vec::new(),
            branches: 0,
        }
    }

    pub fn step(&mut self, step: Step) {
        match step {
            Step::New(fork, start) => self.create(fork, start),
            Step::Delete(fork, force) => {
                let name = self.name(fork);
                let args: &[&str] = if force {
                    &["delete", &name, "--force"]
                } else {
                    &["delete", &name]
                };
                if self.tine(args).done.maybe() {
                    self.is_gone(fork);
                }
            }
            Step::Mount(fork) => {
                let answer = self.tine(&["mount", &self.name(fork)]);
                if answer.done == Done::Yes {
                    *self.is_mounted(fork) = true;
                }
            }
            Step::Unmount(fork, policy) => self.unmount(fork, policy),
            Step::Write(fork, by) => self.write(fork, by),
            Step::Line(fork, file, by) => self.line(fork, file, by),
            Step::Move(fork, by) => self.rename(fork, by),
            Step::Remove(fork, by) => self.remove(fork, by),
            Step::Commit(fork) => drop(self.tine(&["commit", &self.name(fork), "-m", "an agent's"])),
            Step::GitCommit(fork) => {
                self.git_in(fork, &["add", "-A"]);
                self.git_in(fork, &["commit", "-q", "-m", "an agent's, by git"]);
            }
            Step::Merge {
                from,
                into,
                conflicts,
                uncommitted,
                delete,
            } => {
                self.merge(from, into, conflicts, uncommitted, delete);
            }
            Step::Resolve(ours) => self.resolve(ours),
            Step::Update {
                fork,
                rebase,
                conflicts,
            } => {
                let name = self.name(fork);
                let mut args = vec!["update", &name];
                args.extend(rebase.then_some("--rebase"));
                args.extend(words_of(conflicts));
                self.tine(&args);
                self.settles(&name, conflicts);
            }
            Step::CherryPick(fork, of) => {
                drop(self.tine(&["cherry-pick", &self.name(fork), &format!("tine/p{of}")]));
            }
            Step::Apply(fork) => self.apply(fork),
            Step::Switch(fork, branch, create) => {
                let (name, branch) = (self.name(fork), shared(branch));
                let mut args = vec!["branch", "switch", &name, &branch];
                args.extend(create.then_some("--create"));
                self.tine(&args);
            }
            Step::BranchCreate(branch) => {
                drop(self.tine(&[
                    "branch",
                    "create",
                    &shared(branch),
                    "--at",
                    &self.name(Fork::Open),
                ]));
            }
            Step::BranchDelete(branch, force) => {
                let branch = shared(branch);
                let mut args = vec!["branch", "delete", &branch];
                args.extend(force.then_some("--force"));
                self.tine(&args);
            }
            Step::BranchRename(from, to) => {
                drop(self.tine(&["branch", "rename", &shared(from), &shared(to)]));
            }
            Step::Snapshot(fork) => {
                let began = self.world.now();
                let answer = self.tine(&["snapshot", &self.name(fork)]);
                if let Some(name) = answer.value["name"].as_str() {
                    self.snapshots.push((fork, name.to_owned(), began));
                }
            }
            Step::Restore(fork) => {
                let newest = self.snapshots.iter().rfind(|(of, ..)| *of == fork).cloned();
                if let Some((_, snapshot, taken)) = newest
                    && self.tine(&["restore", &self.name(fork), &snapshot]).done.maybe()
                {
                    self.takes_back(fork, |mark| mark.began >= taken);
                }
            }
            Step::Reset(fork) => {
                if self.tine(&["reset", &self.name(fork)]).done.maybe() {
                    self.takes_back(fork, |_| true);
                }
            }
            Step::Undo(fork) => {
                let answer = self.tine(&["undo", &self.name(fork)]);
                self.has_undone(fork, &answer);
            }
            Step::Redo(fork) => {
                let answer = self.tine(&["redo", &self.name(fork)]);
                self.has_undone(fork, &answer);
            }
            Step::Revert(fork) => {
                if self.tine(&["revert", &self.name(fork), &self.dir()]).done.maybe() {
                    self.releases(fork, |mark| mark.kind == Kind::File);
                    // What came here from the other fork is there still.
                    let other = if fork == Fork::Open {
                        Fork::Private
                    } else {
                        Fork::Open
                    };
                    self.takes_back(other, |mark| mark.kind == Kind::File);
                }
            }
            Step::HandoffCreate(fork, uncommitted) => {
                let name = self.name(fork);
                let mut args = vec!["handoff", "create", &name];
                args.extend(uncommitted.then_some("--include-uncommitted"));
                self.tine(&args);
            }
            Step::HandoffApply(target) => self.apply_handoff(target),
            Step::Push(fork) => drop(self.tine(&["push", &self.name(fork), "origin"])),
            Step::Fetch => drop(self.tine(&["fetch", "origin"])),
            Step::InFork(git) => self.by_git(git),
            Step::ForgetLast => drop(self.git_in(Fork::Private, &["reset", "-q", "--hard", "HEAD~1"])),
            other => panic!("no step of an agent's: {other:?}"),
        }
    }

    fn name(&self, fork: Fork) -> String {
        match fork {
            Fork::Private => format!("p{}", self.number),
            Fork::Open => format!("o{}", self.number),
        }
    }

    /// The directory that this agent alone writes in, in each fork.
    fn dir(&self) -> String {
        format!("w{}", self.number)
    }

    fn is_mounted(&mut self, fork: Fork) -> &mut bool {
        &mut self.mounted[usize::from(fork == Fork::Open)]
    }

    fn tine(&self, args: &[&str]) -> Answer {
        self.tine_with(args, b"")
    }

    fn tine_with(&self, args: &[&str], input: &[u8]) -> Answer {
        self.world.tine(self.number, self.world.repo.dir(), args, input)
    }

    fn git_in(&mut self, fork: Fork, args: &[&str]) -> bool {
        if !*self.is_mounted(fork) {
            return false;
        }
        let dir = self.world.fork_dir(&self.name(fork));
        // Who goes on in the middle of a rebase commits what git had done to the files so far.
        let begun = self.to_abort.iter().position(|(of, _)| *of == fork);
        if let Some(begun) = begun {
            let command = self.to_abort[begun].1;
            // As `git reset --hard` does, it lets go of what is not committed.
            self.releases(fork, |_| true);
            if !self.world.git(self.number, &dir, &[command, "--abort"])
                && !self
                    .world
                    .git(self.number, &dir, &["rev-parse", "-q", "--verify", "HEAD"])
            {
                return false;
            }
            self.to_abort.remove(begun);
        }
        self.world.git(self.number, &dir, args)
    }

    fn git_or_abort(&mut self, fork: Fork, args: &[&'static str]) {
        if !self.git_in(fork, args) && !self.git_in(fork, &[args[0], "--abort"]) {
            self.to_abort.push((fork, args[0]));
        }
    }

    fn create(&mut self, fork: Fork, start: Start) {
        let name = self.name(fork);
        let other = self.name(if fork == Fork::Open {
            Fork::Private
        } else {
            Fork::Open
        });
        let (option, value) = match start {
            Start::Head => ("", String::new()),
            Start::OnBranch(branch) => ("--branch", shared(branch)),
            Start::FromFork(agent) => ("--from-fork", format!("o{agent}")),
            Start::FromSnapshot => match self.snapshots.last() {
                Some((of, snapshot, _)) => ("--from-fork", format!("{}@{snapshot}", self.name(*of))),
                None => ("", String::new()),
            },
            Start::FromRemote => ("--from-remote", format!("origin/{other}")),
            Start::OnOldBranch => ("--branch", format!("tine/{name}")),
        };
        let mut args = vec!["new", &name];
        if !option.is_empty() {
            args.extend([option, &value]);
        }
        if self.tine(&args).done == Done::Yes {
            *self.is_mounted(fork) = true;
        }
    }

    fn unmount(&mut self, fork: Fork, policy: Policy) {
        let options: &[&str] = match policy {
            Policy::Keep => &["--keep"],
            Policy::Commit => &["--commit", "-m", "unmounted"],
            Policy::Discard => &["--discard"],
            Policy::Merge => &["--merge"],
            Policy::Handoff => &["--handoff"],
        };
        let answer = self.tine(&[&["unmount", &self.name(fork)], options].concat());
        if answer.done.maybe() || answer.value["error"]["code"] == "merge-conflicts" {
            *self.is_mounted(fork) = false;
        }
        if policy == Policy::Discard && answer.done.maybe() {
            self.takes_back(fork, |_| true);
        }
    }

    fn new_mark(&self, fork: Fork, kind: Kind, path: &str) -> MarkId {
        self.world.mark(self.number, kind, Some(&self.name(fork)), path)
    }

    fn acknowledge(&self, id: MarkId, written: &io::Result<()>) {
        self.world
            .marks
            .change(id, |mark| mark.acknowledged = written.is_ok());
        let mark = self.world.marks.get(id);
        let fork = mark.fork.unwrap_or_default();
        self.world.say(
            self.number,
            &format!("{} in {fork}:{}: {written:?}", word(id), mark.path),
        );
    }

    fn write(&mut self, fork: Fork, by: By) {
        let id = self.new_mark(fork, Kind::File, "");
        let path = format!("{}/{}", self.dir(), word(id));
        self.world.marks.change(id, |mark| mark.path.clone_from(&path));
        let text = format!("{}\n", word(id));
        let name = self.name(fork);
        let written = match by {
            By::Program => self.in_mount(fork, |root| {
                fs::create_dir_all(root.join(&path).parent().expect("it has one"))?;
                fs::write(root.join(&path), &text)
            }),
            By::Command => done(&self.tine_with(&["write", &name, &path, "--parents"], text.as_bytes())),
            By::Tool => done(&self.tine_with(&["tool", "--fork", &name, "write", &path], text.as_bytes())),
        };
        self.acknowledge(id, &written);
    }

    fn line(&mut self, fork: Fork, file: u8, by: By) {
        let path = format!("shared/f{file}");
        let id = self.new_mark(fork, Kind::Line, &path);
        let name = self.name(fork);
        let old = format!("a{}: ", self.number);
        let new = format!("{old}{} ", word(id));
        let written = match by {
            By::Program => self.in_mount(fork, |root| {
                let text = fs::read_to_string(root.join(&path))?;
                match text.contains(&old) {
                    true => fs::write(root.join(&path), text.replacen(&old, &new, 1)),
                    false => Err(io::ErrorKind::NotFound.into()),
                }
            }),
            By::Command | By::Tool => done(&self.tine(&[
                "tool", "--fork", &name, "edit", &path, "--old", &old, "--new", &new,
            ])),
        };
        self.acknowledge(id, &written);
    }

    /// A newest file of this agent's in the fork, as it knows it.
    fn newest(&self, fork: Fork) -> Option<(MarkId, String)> {
        let name = self.name(fork);
        let id = self.world.marks.newest(|mark| {
            mark.actor == self.number
                && mark.kind == Kind::File
                && mark.fork.as_ref() == Some(&name)
                && mark.acknowledged
                && !mark.released
        })?;
        Some((id, self.world.marks.get(id).path))
    }

    fn rename(&mut self, fork: Fork, by: By) {
        let Some((id, from)) = self.newest(fork) else {
            return;
        };
        let to = format!("{from}-moved");
        let name = self.name(fork);
        let moved = match by {
            By::Program => self.in_mount(fork, |root| fs::rename(root.join(&from), root.join(&to))),
            By::Command => done(&self.tine(&["mv", &name, &from, &to])),
            By::Tool => done(&self.tine(&["tool", "--fork", &name, "move", &from, &to])),
        };
        if moved.is_ok() {
            self.world.marks.change(id, |mark| mark.path = to);
        }
    }

    fn remove(&mut self, fork: Fork, by: By) {
        let Some((id, path)) = self.newest(fork) else {
            return;
        };
        let name = self.name(fork);
        let removed = match by {
            By::Program => match self.in_mount(fork, |root| fs::remove_file(root.join(&path))) {
                Ok(()) => Done::Yes,
                Err(error) if error.kind() == io::ErrorKind::NotFound => Done::No,
                Err(_) => Done::Perhaps,
            },
            By::Command => self.tine(&["rm", &name, &path]).done,
            By::Tool => self.tine(&["tool", "--fork", &name, "delete", &path]).done,
        };
        self.world
            .say(self.number, &format!("removing {}: {removed:?}", word(id)));
        if removed.maybe() {
            self.world.marks.change(id, |mark| mark.released = true);
        }
    }

    /// What a program does in the mount.
    fn in_mount(
        &mut self,
        fork: Fork,
        act: impl FnOnce(&std::path::Path) -> io::Result<()>,
    ) -> io::Result<()> {
        if !*self.is_mounted(fork) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let entered = self.world.entered(&self.name(fork))?;
        act(&entered.path())
    }

    fn merge(&mut self, from: Source, into: Target, conflicts: Conflicts, uncommitted: bool, delete: bool) {
        let source = match from {
            Source::Own(fork) => self.name(fork),
            Source::OpenOf(agent) => format!("o{agent}"),
            Source::BranchOf(agent) => format!("tine/p{agent}"),
            Source::Shared(branch) => shared(branch),
            Source::Main => "main".to_owned(),
        };
        let target = match (self.target(into), from) {
            // A branch came from nowhere.
            (None, Source::Main | Source::Shared(_) | Source::BranchOf(_)) => self.target(Target::Main),
            (target, _) => target,
        };
        let mut args = vec!["merge", &source];
        if let Some(target) = &target {
            args.extend(["--into", target]);
        }
        args.extend(words_of(conflicts));
        args.extend((uncommitted && self.world.asks_for_uncommitted).then_some("--with-uncommitted"));
        args.extend(delete.then_some("--delete"));
        let answer = self.tine(&args);
        if let Some(fork) = target.as_ref().and_then(|target| target.strip_prefix("fork:")) {
            self.settles(fork, conflicts);
        }
        if let Source::Own(fork) = from
            && delete
            && (answer.done == Done::Perhaps || has_deleted(&answer.value))
        {
            self.is_gone(fork);
        }
    }

    fn target(&self, target: Target) -> Option<String> {
        Some(match target {
            Target::Origin => return None,
            Target::Own(fork) => format!("fork:{}", self.name(fork)),
            Target::OpenOf(agent) => format!("fork:o{agent}"),
            Target::Shared(branch) => format!("branch:{}", shared(branch)),
            Target::Main => "branch:main".to_owned(),
        })
    }

    fn resolve(&mut self, ours: bool) {
        let reviews = self.tine(&["review", "list"]).value;
        let Some(id) = reviews["reviews"]
            .as_array()
            .and_then(|all| all.last()?["id"].as_u64())
        else {
            return;
        };
        let id = id.to_string();
        let review = self.tine(&["review", "show", &id]).value;
        for conflict in review["conflicts"].as_array().into_iter().flatten() {
            if let Some(path) = conflict["path"].as_str() {
                self.tine(&["resolve", &id, path, if ours { "--ours" } else { "--theirs" }]);
            }
        }
        self.tine(&["review", "commit", &id]);
        self.world
            .settled
            .lock()
            .expect("no holder panics")
            .insert(ANY_FORK.to_owned());
    }

    /// The commit at the tip of the other fork's branch, as a patch.
    fn apply(&mut self, fork: Fork) {
        let other = self.name(if fork == Fork::Open {
            Fork::Private
        } else {
            Fork::Open
        });
        let args = ["show", "--binary", "--format=", &format!("tine/{other}"), "--"];
        let Some(output) = self.world.git_output(self.number, self.world.repo.dir(), &args) else {
            return;
        };
        if output.status.success() && !output.stdout.is_empty() {
            self.tine_with(&["apply", &self.name(fork), "-"], &output.stdout);
        }
    }

    fn apply_handoff(&mut self, target: Target) {
        let handoffs = self.tine(&["handoff", "list"]).value;
        let ready = |handoff: &&Value| handoff["state"] == "ready";
        let Some(id) = handoffs["handoffs"]
            .as_array()
            .and_then(|all| all.iter().rfind(ready)?["id"].as_u64())
        else {
            return;
        };
        let id = id.to_string();
        let mut args = vec!["handoff", "apply", &id];
        let target = self.target(target);
        if let Some(target) = &target {
            args.extend(["--into", target]);
        }
        self.tine(&args);
    }

    fn by_git(&mut self, git: Git) {
        let fork = Fork::Private;
        let name = self.name(fork);
        match git {
            Git::Rebase => {
                self.git_or_abort(fork, &["rebase", "-q", "main"]);
            }
            Git::Merge => {
                self.git_or_abort(fork, &["merge", "-q", "-m", "by git", "main"]);
            }
            Git::ResetHard => {
                self.releases(fork, |_| true);
                self.git_in(fork, &["reset", "-q", "--hard"]);
            }
            Git::Amend => drop(self.git_in(fork, &["commit", "-q", "--amend", "-m", "again"])),
            Git::SwitchToNew => {
                self.branches += 1;
                let branch = format!("x{}-{}", self.number, self.branches);
                self.git_in(fork, &["switch", "-q", "-c", &branch]);
            }
            Git::SwitchBack => drop(self.git_in(fork, &["switch", "-q", &format!("tine/{name}")])),
        }
    }

    fn change_own(&self, fork: Fork, which: impl Fn(&Mark) -> bool, change: impl Fn(&mut Mark)) {
        let name = self.name(fork);
        let is_own = |mark: &Mark| mark.actor == self.number && mark.fork.as_ref() == Some(&name);
        self.world
            .marks
            .change_where(|mark| is_own(mark) && which(mark), change);
    }

    fn takes_back(&self, fork: Fork, which: impl Fn(&Mark) -> bool) {
        self.change_own(fork, which, |mark| mark.taken_back = true);
    }

    fn releases(&self, fork: Fork, which: impl Fn(&Mark) -> bool) {
        self.change_own(fork, which, |mark| mark.released = true);
    }

    /// Own work of the operation that was undone is let go: only `tine redo` has it now.
    fn has_undone(&self, fork: Fork, answer: &Answer) {
        if answer.done.maybe() {
            self.takes_back(fork, |_| true);
        }
        let paths = answer.value["of"]["paths"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let mut undone = self.world.undone.lock().expect("no holder panics");
        match answer.done {
            Done::Yes => undone.extend(
                paths
                    .iter()
                    .filter_map(|path| Some((self.name(fork), path.as_str()?.to_owned()))),
            ),
            Done::No => {}
            Done::Perhaps => drop(undone.insert((self.name(fork), String::new()))),
        }
        drop(undone);
        match answer.done {
            Done::Yes => self.releases(fork, |mark| {
                paths.iter().any(|path| is_at_or_below(path, &mark.path))
            }),
            Done::No => {}
            Done::Perhaps => self.releases(fork, |_| true),
        }
    }

    /// The fork was deleted, and its snapshots with it.
    fn is_gone(&mut self, fork: Fork) {
        *self.is_mounted(fork) = false;
        self.snapshots.retain(|(of, ..)| *of != fork);
        let name = self.name(fork);
        let settled = self.world.settled.lock().expect("no holder panics");
        let is_settled = settled.contains(&name) || settled.contains(ANY_FORK);
        drop(settled);
        self.releases(fork, |mark| {
            mark.taken_back || (mark.kind == Kind::Line && is_settled)
        });
    }

    fn settles(&self, fork: &str, conflicts: Conflicts) {
        if matches!(conflicts, Conflicts::Ours | Conflicts::Theirs) {
            self.world
                .settled
                .lock()
                .expect("no holder panics")
                .insert(fork.to_owned());
        }
    }
}

/// A review was resolved, into whichever fork.
const ANY_FORK: &str = "any";

fn shared(branch: u8) -> String {
    format!("s{branch}")
}

fn words_of(conflicts: Conflicts) -> &'static [&'static str] {
    match conflicts {
        Conflicts::Stop => &[],
        Conflicts::Ours => &["--strategy", "ours"],
        Conflicts::Theirs => &["--strategy", "theirs"],
        Conflicts::Union => &["--strategy", "union"],
        Conflicts::Review => &["--review"],
    }
}

fn has_deleted(merged: &Value) -> bool {
    let sources = merged["sources"].as_array().into_iter().flatten();
    sources
        .into_iter()
        .any(|source| source["deleted_fork"].is_string())
}

fn is_at_or_below(dir: &Value, path: &str) -> bool {
    let Some(dir) = dir.as_str() else {
        return false;
    };
    path == dir || path.strip_prefix(dir).is_some_and(|rest| rest.starts_with('/'))
}

fn done(answer: &Answer) -> io::Result<()> {
    match answer.done {
        Done::Yes => Ok(()),
        Done::No | Done::Perhaps => Err(io::Error::other("refused, or killed")),
    }
}
