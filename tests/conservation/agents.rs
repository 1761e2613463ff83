//! An agent with two forks, and all that it does with tine and git.

#[path = "ways_back.rs"]
mod ways_back;

use std::fs;
use std::io;
use std::time::Duration;

use serde_json::{Value, json};

use crate::marks::{Kind, MarkId, word};
use crate::plan::{By, Conflicts, Fork, Git, Policy, Source, Start, Step, Target};
use crate::support::OutputExt;
use crate::world::{Answer, Done, World};

pub struct Agent<'w> {
    world: &'w World<'w>,
    number: usize,
    /// Whether the private fork and the open one are mounted, as far as the agent knows.
    mounted: [bool; 2],
    /// Git commands that failed and could not be aborted then: a daemon that was killed took the
    /// files away.
    to_abort: Vec<(Fork, &'static str)>,
    /// Fork, name, and when it was about to be taken.
    snapshots: Vec<(Fork, String, Duration)>,
    branches: u32,
    /// Forks of other names that `tine recover` made, the oldest first.
    recovered: Vec<String>,
    recoveries: u32,
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
            recovered: Vec::new(),
            recoveries: 0,
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
            Step::Commit(fork) => self.commit(fork),
            Step::GitCommit(fork) => {
                self.git_in(fork, &["add", "-A"]);
                let message = format!("{}'s, by git", self.name(fork));
                self.git_in(fork, &["commit", "-q", "-m", &message]);
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
            Step::ReviewAbort => {
                if let Some(id) = self.newest_review(false) {
                    self.tine(&["review", "abort", &id]);
                }
            }
            Step::ReviewRefresh => {
                if let Some(id) = self.newest_review(true) {
                    self.tine(&["review", "refresh", &id]);
                }
            }
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
            Step::OldBranchDelete(fork, force) => {
                let branch = format!("tine/{}", self.name(fork));
                let mut args = vec!["branch", "delete", &branch];
                args.extend(force.then_some("--force"));
                self.tine(&args);
            }
            Step::SnapshotDelete(fork) => {
                if let Some((snapshot, _)) = self.snapshot_of(fork)
                    && self
                        .tine(&[
                            "snapshot",
                            &self.name(fork),
                            &snapshot,
                            "--delete",
                            "--force",
                        ])
                        .done
                        .maybe()
                {
                    self.snapshots
                        .retain(|(of, name, _)| (*of, name) != (fork, &snapshot));
                }
            }
            Step::RestorePath(fork, back) => self.restore_path(fork, back),
            Step::RestoreExact => self.restore_exact(),
            Step::Snapshot(fork) => {
                let began = self.world.now();
                let answer = self.tine(&["snapshot", &self.name(fork)]);
                if let Some(name) = answer.value["name"].as_str() {
                    self.snapshots.push((fork, name.to_owned(), began));
                }
            }
            Step::Restore(fork) => {
                if let Some((snapshot, taken)) = self.snapshot_of(fork)
                    && self
                        .tine(&["restore", &self.name(fork), &snapshot])
                        .done
                        .maybe()
                {
                    self.takes_back(fork, |mark| mark.began >= taken);
                    // Own work that was applied and committed since is in HEAD, and not in the
                    // files.
                    let mut undone = self.world.undone.lock().expect("no holder panics");
                    undone.insert((self.name(fork), self.dir()));
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
            Step::Revert(fork) => self.revert(fork, None),
            Step::RevertTo(fork, back) => self.revert(fork, Some(back)),
            Step::HandoffCreate(fork, uncommitted) => {
                let name = self.name(fork);
                let mut args = vec!["handoff", "create", &name];
                args.extend(uncommitted.then_some("--include-uncommitted"));
                self.tine(&args);
            }
            Step::HandoffApply(target) => self.apply_handoff(target),
            Step::HandoffDelete(force) => {
                if let Some(id) = self.newest_handoff(|_| true) {
                    let mut args = vec!["handoff", "delete", &id];
                    args.extend(force.then_some("--force"));
                    self.tine(&args);
                }
            }
            Step::HandoffImport => self.import_handoff(),
            Step::Recover(back) => self.recover(back),
            Step::PushAs(fork, agent) => {
                drop(self.tine(&[
                    "push",
                    &self.name(fork),
                    "origin",
                    "--as",
                    &format!("o{agent}"),
                ]));
            }
            Step::PushDelete(fork) => {
                drop(self.tine(&["push", "--delete", &self.name(fork), "origin"]));
            }
            Step::UpdateFetch(fork) => drop(self.tine(&["update", &self.name(fork), "--fetch"])),
            Step::Colleague => self.colleague(),
            Step::Stray(fork) => self.stray(fork),
            Step::Push(fork) => drop(self.tine(&["push", &self.name(fork), "origin"])),
            Step::Fetch => drop(self.tine(&["fetch", "origin"])),
            Step::InFork(git) => self.by_git(git),
            Step::ForgetLast => {
                self.git_in(Fork::Private, &["reset", "-q", "--hard", "HEAD~1"]);
            }
            other => panic!("no step of an agent's: {other:?}"),
        }
    }

    fn name(&self, fork: Fork) -> String {
        match fork {
            Fork::Private => format!("p{}", self.number),
            Fork::Open => format!("o{}", self.number),
        }
    }

    fn other(fork: Fork) -> Fork {
        match fork {
            Fork::Private => Fork::Open,
            Fork::Open => Fork::Private,
        }
    }

    /// The newest snapshot of the fork, and when it was about to be taken.
    fn snapshot_of(&self, fork: Fork) -> Option<(String, Duration)> {
        let newest = self.snapshots.iter().rfind(|(of, ..)| *of == fork);
        newest.map(|(_, name, taken)| (name.clone(), *taken))
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
        self.world
            .tine(self.number, self.world.repo.dir(), args, input)
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
            self.releases_uncommitted(fork, |_| true);
            if !self.world.git(self.number, &dir, &[command, "--abort"])
                && !self
                    .world
                    .git(self.number, &dir, &["rev-parse", "-q", "--verify", "HEAD"])
            {
                return false;
            }
            self.to_abort.remove(begun);
        }
        let Some(output) = self.world.git_output(self.number, &dir, args) else {
            return false;
        };
        // A merge that fails resets what is not committed, and brings it back from a stash that no
        // ref names. Where the mount goes in between, git does not.
        if output.error_text().contains("Index was not unstashed") {
            self.releases_uncommitted(fork, |_| true);
        }
        output.status.success()
    }

    fn create(&mut self, fork: Fork, start: Start) {
        let name = self.name(fork);
        let other = self.name(Agent::other(fork));
        let (option, value) = match start {
            Start::Head => ("", String::new()),
            Start::OnBranch(branch) => ("--branch", shared(branch)),
            Start::FromFork(agent) => ("--from-fork", format!("o{agent}")),
            Start::FromSnapshot => match self.snapshots.last() {
                // It may be without the work of others, and others use open forks.
                Some((Fork::Private, ..)) if fork == Fork::Open && self.is_exact() => return,
                Some((of, snapshot, _)) => {
                    ("--from-fork", format!("{}@{snapshot}", self.name(*of)))
                }
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
        if policy == Policy::Outside {
            if *self.is_mounted(fork) {
                *self.is_mounted(fork) = !self.world.unmount_outside(self.number, &self.name(fork));
            }
            return;
        }
        let options: &[&str] = match policy {
            Policy::Keep => &["--keep"],
            Policy::Commit => &["--commit", "-m", "unmounted"],
            Policy::Discard => &["--discard"],
            Policy::Merge => &["--merge"],
            Policy::Handoff => &["--handoff"],
            Policy::Outside => unreachable!("done above"),
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
        self.world
            .mark(self.number, kind, Some(&self.name(fork)), path)
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
        self.world
            .marks
            .change(id, |mark| mark.path.clone_from(&path));
        let text = format!("{}\n", word(id));
        let name = self.name(fork);
        let written = match by {
            By::Program => self.in_mount(fork, |root| {
                fs::create_dir_all(root.join(&path).parent().expect("it has one"))?;
                fs::write(root.join(&path), &text)
            }),
            By::Command => done(&self.tine_with(
                &["write", "--fork", &name, &path, "--parents"],
                text.as_bytes(),
            )),
            By::Tool => done(&self.tine_with(
                &["write", "--agent", "--fork", &name, &path],
                text.as_bytes(),
            )),
            By::Exec => {
                let line = format!("mkdir -p {} && echo {} > {path}", self.dir(), word(id));
                done(&self.tine(&["exec", &name, "--", "sh", "-c", &line]))
            }
            By::Mcp => {
                let arguments = json!({"path": path, "content": text});
                self.world.mcp(self.number, &name, "write_file", &arguments)
            }
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
            By::Command | By::Tool => {
                done(&self.tine(&["edit", "--fork", &name, &path, "--old", &old, "--new", &new]))
            }
            By::Exec => {
                let line = format!(
                    "sed -i 's/^{old}/{new}/' {path} && grep -q {} {path}",
                    word(id)
                );
                done(&self.tine(&["run", "--fork", &name, "--shell", &line]))
            }
            By::Mcp => {
                let edits = json!([{"old": old, "new": new}]);
                let arguments = json!({"path": path, "edits": edits});
                self.world.mcp(self.number, &name, "edit_file", &arguments)
            }
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
            By::Command => done(&self.tine(&["mv", "--fork", &name, &from, &to])),
            By::Tool => done(&self.tine(&["mv", "--agent", "--fork", &name, &from, &to])),
            By::Exec => done(&self.tine(&["exec", &name, "--", "mv", &from, &to])),
            By::Mcp => {
                let arguments = json!({"from": from, "to": to});
                self.world.mcp(self.number, &name, "move_file", &arguments)
            }
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
            By::Command => self.tine(&["rm", "--fork", &name, &path]).done,
            By::Tool => self.tine(&["rm", "--agent", "--fork", &name, &path]).done,
            By::Exec => match self.tine(&["exec", &name, "--", "rm", &path]).done {
                Done::Yes => Done::Yes,
                // The program's failure tells nothing of what it had done.
                Done::No | Done::Perhaps => Done::Perhaps,
            },
            By::Mcp => {
                let deleted =
                    self.world
                        .mcp(self.number, &name, "delete_file", &json!({"path": path}));
                match deleted {
                    Ok(()) => Done::Yes,
                    Err(error) if error.kind() == io::ErrorKind::InvalidInput => Done::No,
                    Err(_) => Done::Perhaps,
                }
            }
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

    fn merge(
        &mut self,
        from: Source,
        into: Target,
        conflicts: Conflicts,
        uncommitted: bool,
        delete: bool,
    ) {
        let source = match from {
            Source::Own(fork) => self.name(fork),
            Source::OpenOf(agent) => format!("o{agent}"),
            Source::BranchOf(agent) => format!("tine/p{agent}"),
            Source::Shared(branch) => shared(branch),
            Source::Snapshot => match self.snapshots.last() {
                Some((fork, snapshot, _)) => format!("{}@{snapshot}", self.name(*fork)),
                None => return,
            },
            Source::Main => "main".to_owned(),
        };
        let target = match (self.target(into), from) {
            // A branch came from nowhere.
            (None, Source::Main | Source::Shared(_) | Source::BranchOf(_)) => {
                self.target(Target::Main)
            }
            (target, _) => target,
        };
        let mut args = vec!["merge", &source];
        if let Some(target) = &target {
            args.extend(["--into", target]);
        }
        args.extend(words_of(conflicts));
        args.extend(
            (uncommitted && self.world.asks_for_uncommitted).then_some("--with-uncommitted"),
        );
        args.extend(delete.then_some("--delete"));
        let answer = self.tine(&args);
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

    fn newest_review(&self, all: bool) -> Option<String> {
        let args: &[&str] = match all {
            true => &["review", "list", "--all"],
            false => &["review", "list"],
        };
        let reviews = self.tine(args).value;
        let id = reviews["reviews"].as_array()?.last()?["id"].as_u64()?;
        Some(id.to_string())
    }

    fn newest_handoff(&self, which: impl Fn(&Value) -> bool) -> Option<String> {
        let handoffs = self.tine(&["handoff", "list"]).value;
        let newest = handoffs["handoffs"]
            .as_array()?
            .iter()
            .rfind(|handoff| which(handoff))?;
        Some(newest["id"].as_u64()?.to_string())
    }

    fn resolve(&mut self, ours: bool) {
        let Some(id) = self.newest_review(false) else {
            return;
        };
        let review = self.tine(&["review", "show", &id]).value;
        for conflict in review["conflicts"].as_array().into_iter().flatten() {
            if let Some(path) = conflict["path"].as_str() {
                self.tine(&[
                    "resolve",
                    &id,
                    path,
                    if ours { "--ours" } else { "--theirs" },
                ]);
            }
        }
        self.tine(&["review", "commit", &id]);
    }

    /// The commit at the tip of the other fork's branch, as a patch.
    fn apply(&mut self, fork: Fork) {
        let other = self.name(Agent::other(fork));
        let args = [
            "show",
            "--binary",
            "--format=",
            &format!("tine/{other}"),
            "--",
        ];
        let Some(output) = self
            .world
            .git_output(self.number, self.world.repo.dir(), &args)
        else {
            return;
        };
        if output.status.success() && !output.stdout.is_empty() {
            self.tine_with(&["apply", &self.name(fork), "-"], &output.stdout);
        }
    }

    fn apply_handoff(&mut self, target: Target) {
        let Some(id) = self.newest_handoff(|handoff| handoff["state"] == "ready") else {
            return;
        };
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
                if !self.git_in(fork, &["rebase", "-q", "main"])
                    && !self.git_in(fork, &["rebase", "--abort"])
                {
                    self.to_abort.push((fork, "rebase"));
                }
            }
            Git::Merge => {
                let args = [
                    "merge",
                    "-q",
                    "-m",
                    &format!("{name}'s merge, by git"),
                    "main",
                ];
                if !self.git_in(fork, &args) && !self.git_in(fork, &["merge", "--abort"]) {
                    self.to_abort.push((fork, "merge"));
                }
            }
            Git::ResetHard => {
                self.releases_uncommitted(fork, |_| true);
                self.git_in(fork, &["reset", "-q", "--hard"]);
            }
            Git::Amend => {
                let message = format!("{name}'s, again");
                self.git_in(fork, &["commit", "-q", "--amend", "-m", &message]);
            }
            Git::SwitchToNew => {
                self.branches += 1;
                let branch = format!("x{}-{}", self.number, self.branches);
                self.git_in(fork, &["switch", "-q", "-c", &branch]);
            }
            Git::SwitchBack => drop(self.git_in(fork, &["switch", "-q", &format!("tine/{name}")])),
        }
    }

    fn commit(&mut self, fork: Fork) {
        let name = self.name(fork);
        let message = format!("{name}'s");
        let args = ["commit", &name, "-m", &message];
        let answer = self.tine(&args);
        if answer.value["error"]["code"] == "takes-back" && fork == Fork::Private {
            self.tine(&[&args[..], &["--allow-revert"]].concat());
        }
    }

    fn import_handoff(&mut self) {
        let branch = format!("main..tine/{}", self.name(Fork::Private));
        let args = ["format-patch", "--stdout", "--binary", &branch];
        let Some(output) = self
            .world
            .git_output(self.number, self.world.repo.dir(), &args)
        else {
            return;
        };
        if output.status.success() && !output.stdout.is_empty() {
            let to = self.name(Fork::Open);
            self.tine_with(&["handoff", "import", "-", "--to", &to], &output.stdout);
        }
    }

    /// Somebody with another repository of the same remote.
    fn colleague(&mut self) {
        let _alone = self.world.colleague.lock().expect("no holder panics");
        let dir = self.world.colleague_dir();
        let git = |args: &[&str]| self.world.git(self.number, &dir, args);
        let id = self.world.mark(self.number, Kind::File, None, "");
        let path = format!("c/{}", word(id));
        let written = git(&["fetch", "-q", "origin"])
            && git(&["reset", "-q", "--hard", "origin/main"])
            && fs::create_dir_all(dir.join("c")).is_ok()
            && fs::write(dir.join(&path), format!("{}\n", word(id))).is_ok()
            && git(&["add", "-A"])
            && git(&["commit", "-q", "-m", "a colleague's"])
            && git(&["push", "-q", "origin", "HEAD:main"]);
        self.world.marks.change(id, |mark| {
            mark.path = path;
            mark.acknowledged = written;
        });
    }

    /// A program that knows the path writes there, though nothing is mounted.
    fn stray(&mut self, fork: Fork) {
        if *self.is_mounted(fork) {
            self.unmount(fork, Policy::Keep);
        }
        let id = self.new_mark(fork, Kind::File, "");
        let path = format!("{}/{}", self.dir(), word(id));
        self.world
            .marks
            .change(id, |mark| mark.path.clone_from(&path));
        let written = self.world.place(&self.name(fork)).and_then(|place| {
            let path = place.path().join(&path);
            fs::create_dir_all(path.parent().expect("it has one"))?;
            fs::write(path, format!("{}\n", word(id)))
        });
        self.acknowledge(id, &written);
    }
}

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

fn done(answer: &Answer) -> io::Result<()> {
    match answer.done {
        Done::Yes => Ok(()),
        Done::No | Done::Perhaps => Err(io::Error::other("refused, or killed")),
    }
}
