//! Every command that touches a branch or a checkout with every other, the first held at each named
//! point while the second runs.
//!
//! ```text
//! scene: what both commands are about, made anew ─► first, held at a point ─┐
//!                                                   second ────────────────┴─► both told, all in order, all work somewhere
//! ```

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde_json::Value;

use super::pairs::{POINTS, Points};
use crate::support::{OutputExt, Random, SayWhich, TestRepo, require_fuse, soaking};

const SEED: &str = "TINE_PAIRS_SEED";
/// How many meetings chance chooses on an ordinary day, besides those of [`ALWAYS`].
const CHOSEN: usize = 18;
/// Meetings at the same time, each in a repository of its own.
const WORKERS: usize = 3;

/// What two commands meet at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Scene {
    /// The branch `shared`, and the fork `fork` that has it.
    Fork,
    /// The branch of an agent's seat in a round, and the seat.
    Seat,
    /// The branch `shared`, which no checkout has.
    Free,
    /// `main` and the main checkout.
    Main,
}

const SCENES: [Scene; 4] = [Scene::Fork, Scene::Seat, Scene::Free, Scene::Main];

/// What there must be before a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    Nothing,
    /// `{own}`: a fork of the command's own with a commit.
    Own,
    /// `{own}`, merged into the fork.
    Merged,
    /// `{own}`, merged into the fork, and undone.
    Undone,
    /// The target of the fork has gone on.
    Behind,
    /// `{handoff}`: one for both.
    Handoff,
    /// `{entry}`: a fork on the branch that was deleted.
    Entry,
    /// A snapshot of the fork without its uncommitted work.
    Snapshot,
    /// The agent of the seat has finished.
    Finished,
}

struct Verb {
    args: &'static [&'static str],
    needs: Needs,
    scenes: &'static [Scene],
}

const fn verb(args: &'static [&'static str], needs: Needs, scenes: &'static [Scene]) -> Verb {
    Verb {
        args,
        needs,
        scenes,
    }
}

const ALL: &[Scene] = &[Scene::Fork, Scene::Seat, Scene::Free, Scene::Main];
const OF_BRANCH: &[Scene] = &[Scene::Fork, Scene::Seat, Scene::Free];
const OF_FORK: &[Scene] = &[Scene::Fork, Scene::Seat];
const OF_SEAT: &[Scene] = &[Scene::Seat];

/// `{fork}` and `{branch}` are what both are about; other words in braces are the command's own.
const VERBS: [Verb; 24] = [
    verb(
        &["new", "{new}", "--branch", "{branch}"],
        Needs::Nothing,
        OF_BRANCH,
    ),
    verb(
        &["branch", "switch", "{own}", "{branch}"],
        Needs::Own,
        OF_BRANCH,
    ),
    verb(
        &["branch", "delete", "{branch}", "--force"],
        Needs::Nothing,
        OF_BRANCH,
    ),
    verb(
        &["branch", "rename", "{branch}", "{new}"],
        Needs::Nothing,
        OF_BRANCH,
    ),
    verb(
        &["merge", "{own}", "--into", "branch:{branch}"],
        Needs::Own,
        ALL,
    ),
    verb(&["unmount", "{own}", "--merge={branch}"], Needs::Own, ALL),
    verb(
        &["handoff", "apply", "{handoff}", "--into", "branch:{branch}"],
        Needs::Handoff,
        ALL,
    ),
    verb(
        &["handoff", "delete", "{handoff}", "--force"],
        Needs::Handoff,
        ALL,
    ),
    verb(
        &["recover", "{entry}"],
        Needs::Entry,
        &[Scene::Fork, Scene::Free],
    ),
    verb(
        &["update", "{fork}"],
        Needs::Behind,
        &[Scene::Fork, Scene::Seat, Scene::Main],
    ),
    verb(&["undo", "{fork}"], Needs::Merged, OF_FORK),
    verb(&["redo", "{fork}"], Needs::Undone, OF_FORK),
    verb(&["delete", "{fork}", "--force"], Needs::Nothing, OF_FORK),
    verb(
        &["unmount", "{fork}", "--commit", "-m", "work"],
        Needs::Nothing,
        OF_FORK,
    ),
    verb(&["unmount", "{fork}", "--discard"], Needs::Nothing, OF_FORK),
    verb(
        &["unmount", "{fork}", "--merge=main"],
        Needs::Nothing,
        &[Scene::Fork, Scene::Seat, Scene::Main],
    ),
    verb(&["commit", "{fork}", "-m", "work"], Needs::Nothing, OF_FORK),
    verb(&["restore", "{fork}", "point"], Needs::Snapshot, OF_FORK),
    verb(&["reset", "{fork}"], Needs::Nothing, OF_FORK),
    verb(
        &["cherry-pick", "{fork}", "tine/{own}"],
        Needs::Own,
        OF_FORK,
    ),
    verb(
        &["handoff", "create", "{fork}", "--include-uncommitted"],
        Needs::Nothing,
        OF_FORK,
    ),
    verb(&["round", "finish"], Needs::Nothing, OF_SEAT),
    verb(&["round", "start"], Needs::Finished, OF_SEAT),
    verb(&["round", "clean", "--force"], Needs::Nothing, OF_SEAT),
];

/// Those that are tried on any day, by the beginnings of their commands.
const ALWAYS: [(Scene, &str, &str); 8] = [
    (Scene::Seat, "round finish", "merge"),
    (Scene::Seat, "round start", "update"),
    (Scene::Main, "handoff apply", "handoff delete"),
    (Scene::Main, "unmount {own} --merge", "handoff apply"),
    (Scene::Fork, "delete", "undo"),
    (Scene::Fork, "update", "commit"),
    (Scene::Fork, "restore", "merge"),
    (Scene::Free, "recover", "new"),
];

/// A refusal that tells of a meeting, and not of what there is: the command is to wait, or to plan
/// again.
const UNSETTLED: [&str; 11] = [
    "ref-moved",
    "ref-locked",
    "index-locked",
    "lease-held",
    "busy",
    "internal",
    "io",
    "git-failed",
    "corrupt-object",
    "store-damaged",
    "daemon-unreachable",
];

#[derive(Clone, Copy)]
struct Meeting {
    scene: Scene,
    first: usize,
    second: usize,
    point: usize,
}

impl Meeting {
    fn all() -> Vec<Meeting> {
        let mut all = Vec::new();
        for scene in SCENES {
            let here: Vec<usize> = (0..VERBS.len())
                .filter(|&verb| VERBS[verb].scenes.contains(&scene))
                .collect();
            for &first in &here {
                for &second in &here {
                    // Only where a round is about it the seat is more than a fork.
                    let of_rounds = [first, second]
                        .iter()
                        .any(|&verb| VERBS[verb].scenes == OF_SEAT);
                    if scene == Scene::Seat && !of_rounds {
                        continue;
                    }
                    all.extend((0..POINTS.len()).map(|point| Meeting {
                        scene,
                        first,
                        second,
                        point,
                    }));
                }
            }
        }
        all
    }

    fn is_always(&self) -> bool {
        let begins = |verb: usize, with: &str| VERBS[verb].args.join(" ").starts_with(with);
        ALWAYS.iter().any(|&(scene, first, second)| {
            self.scene == scene && begins(self.first, first) && begins(self.second, second)
        })
    }
}

/// A repository with what two commands are about.
struct Stage<'r> {
    repo: &'r TestRepo,
    points: Points<'r>,
    fork: String,
    branch: String,
    handoff: String,
    entry: String,
    /// Own work, committed meanwhile, that is not in the files of who goes back behind it.
    gone_back_behind: Vec<String>,
    /// Files that stand for somebody's work.
    marks: Vec<String>,
}

impl<'r> Stage<'r> {
    fn set(repo: &'r TestRepo, meeting: &Meeting) -> Stage<'r> {
        let needs = [VERBS[meeting.first].needs, VERBS[meeting.second].needs];
        let mut stage = Stage {
            repo,
            gone_back_behind: Vec::new(),
            points: Points::new(repo),
            fork: "fork".to_owned(),
            branch: "shared".to_owned(),
            handoff: String::new(),
            entry: String::new(),
            marks: Vec::new(),
        };
        if needs.contains(&Needs::Snapshot) {
            stage.gone_back_behind.push("mark-uncommitted".to_owned());
            let picks =
                [meeting.first, meeting.second].map(|verb| VERBS[verb].args[0] == "cherry-pick");
            let roles = (0..2).filter(|&role| picks[role]);
            let picked = roles.map(|role| format!("mark-{}", Stage::own(role, "own")));
            stage.gone_back_behind.extend(picked);
        }
        match meeting.scene {
            Scene::Main => stage.branch = "main".to_owned(),
            Scene::Fork | Scene::Seat | Scene::Free => drop(repo.git(&["branch", "shared"])),
        }
        if needs.contains(&Needs::Entry) {
            stage.ok(&["new", "gone", "--branch", "shared"]);
            stage.write("gone", "gone");
            stage.ok(&["delete", "gone", "--force"]);
            stage.entry = "1".to_owned();
        }
        match meeting.scene {
            Scene::Fork => drop(stage.ok(&["new", "fork", "--branch", "shared"])),
            Scene::Main => drop(stage.ok(&["new", "fork"])),
            Scene::Free => {}
            Scene::Seat => {
                stage.ok(&["round", "start", "--agents", "x"]);
                let seat = stage.points.tine.json(&["round", "show"])["agents"][0]["seat"].take();
                stage.fork = seat["fork"].as_str().expect("a seat has a fork").to_owned();
                stage.branch = seat["branch"]
                    .as_str()
                    .expect("a seat has a branch")
                    .to_owned();
            }
        }
        let has_fork = meeting.scene != Scene::Free;
        if has_fork {
            let fork = stage.fork.clone();
            stage.write(&fork, "committed");
            stage.ok(&["commit", &fork, "-m", "first"]);
        }
        for (role, needs) in needs.into_iter().enumerate() {
            stage.meet_needs(role, needs);
        }
        if has_fork && !needs.contains(&Needs::Finished) {
            let fork = stage.fork.clone();
            stage.write(&fork, "uncommitted");
        }
        if needs.contains(&Needs::Finished) {
            stage.ok(&["round", "finish"]);
        }
        stage
    }

    fn meet_needs(&mut self, role: usize, needs: Needs) {
        let own = Stage::own(role, "own");
        let fork = self.fork.clone();
        match needs {
            Needs::Own | Needs::Merged | Needs::Undone => {
                self.ok(&["new", &own]);
                self.write(&own, &own);
                self.ok(&["commit", &own, "-m", "work"]);
                if needs != Needs::Own {
                    self.ok(&["merge", &own, "--into", &format!("fork:{fork}")]);
                }
                if needs == Needs::Undone {
                    self.ok(&["undo", &fork]);
                }
            }
            Needs::Behind => {
                let file = format!("mark-main-{role}");
                self.repo.write(&file, "work");
                self.repo.git(&["add", "-A"]);
                self.repo.git(&["commit", "-q", "-m", "main goes on"]);
                self.marks.push(file);
            }
            Needs::Handoff if self.handoff.is_empty() => {
                self.ok(&["new", "giver"]);
                self.write("giver", "giver");
                self.ok(&["commit", "giver", "-m", "work"]);
                let made = self.points.tine.json(&["handoff", "create", "giver"]);
                self.handoff = made["id"].to_string();
                // Nothing else has the work.
                self.ok(&["delete", "giver"]);
                self.ok(&["branch", "delete", "tine/giver", "--force"]);
            }
            Needs::Snapshot => drop(self.points.run(&["snapshot", &fork, "point"])),
            Needs::Handoff | Needs::Nothing | Needs::Entry | Needs::Finished => {}
        }
    }

    fn own(role: usize, what: &str) -> String {
        format!("{what}-{}", ["first", "second"][role])
    }

    fn words(&self, verb: usize, role: usize) -> Vec<String> {
        let word = |word: &&str| {
            word.replace("{fork}", &self.fork)
                .replace("{branch}", &self.branch)
                .replace("{own}", &Stage::own(role, "own"))
                .replace("{new}", &Stage::own(role, "new"))
                .replace("{handoff}", &self.handoff)
                .replace("{entry}", &self.entry)
        };
        VERBS[verb].args.iter().map(word).collect()
    }

    fn ok(&self, args: &[&str]) -> String {
        self.points.run(args).expect_success(&args.join(" ")).text()
    }

    fn write(&mut self, fork: &str, what: &str) {
        let mark = format!("mark-{what}");
        let dir = PathBuf::from(self.ok(&["path", fork]));
        fs::write(dir.join(&mark), "work").unwrap();
        self.marks.push(mark);
    }

    /// What is not in order.
    fn amiss(&self) -> Vec<String> {
        let repo = self.repo;
        let mut found = Vec::new();
        let listed = repo.git(&["worktree", "list", "--porcelain"]);
        let mut branches = HashSet::new();
        for line in listed.lines().filter(|line| line.starts_with("branch ")) {
            if !branches.insert(line) {
                found.push(format!("{line} has two checkouts: {listed}"));
            }
        }
        let status = repo.status(repo.dir());
        if !status.is_empty() {
            found.push(format!("the main checkout shows {status:?}"));
        }
        let deleted = repo.git(&[
            "log",
            "--branches",
            "--diff-filter=D",
            "--name-only",
            "--format=",
        ]);
        if !deleted.is_empty() {
            found.push(format!("a commit takes {deleted:?} out"));
        }
        for fork in self.forks() {
            let dir = self.points.run(&["mount", &fork]);
            if !dir.status.success() {
                found.push(format!("{fork} cannot be mounted: {}", dir.error_text()));
                continue;
            }
            let status = repo.git_in(Path::new(&dir.text()), &["status", "--porcelain"]);
            let is_own = |line: &str| {
                let is_gone = |mark: &String| line.trim() == format!("D {mark}");
                line.starts_with("?? mark-") || self.gone_back_behind.iter().any(is_gone)
            };
            if !status.lines().all(is_own) {
                found.push(format!("{fork} shows {status:?}"));
            }
        }
        let kept = self.kept();
        let missing = self.marks.iter().filter(|mark| !kept.contains(*mark));
        found.extend(missing.map(|mark| format!("{mark} is nowhere")));
        let check = self.points.run(&["check"]);
        if !check.status.success() {
            found.push(format!(
                "tine check: {}{}",
                check.text(),
                check.error_text()
            ));
        }
        let fsck = repo.try_git_in(repo.dir(), &["fsck", "--strict", "--no-dangling"]);
        if !fsck.status.success() {
            found.push(format!("git fsck: {}{}", fsck.text(), fsck.error_text()));
        }
        found
    }

    fn forks(&self) -> Vec<String> {
        let forks = self.points.tine.json(&["list"])["forks"].take();
        let forks = forks.as_array().into_iter().flatten();
        let names = forks.map(|fork| fork["name"].as_str().expect("a name").to_owned());
        names.filter(|name| name != "zero").collect()
    }

    /// Marks that branches, files, handoffs, snapshots and `tine recover` have; looked for as long
    /// as one is missing.
    fn kept(&self) -> BTreeSet<String> {
        let tine = &self.points.tine;
        let mut kept = BTreeSet::new();
        let is_all = |kept: &BTreeSet<String>| self.marks.iter().all(|mark| kept.contains(mark));
        let log = self
            .repo
            .git(&["log", "--branches", "--name-only", "--format="]);
        kept.extend(log.lines().map(str::to_owned));
        let mut dirs = vec![self.repo.dir().to_owned()];
        dirs.extend(
            self.forks()
                .iter()
                .map(|fork| PathBuf::from(tine.ok(&["path", fork]))),
        );
        for dir in dirs {
            kept.extend(files_in(&dir));
        }
        if !is_all(&kept) {
            let handoffs = tine.json(&["handoff", "list"])["handoffs"].take();
            for handoff in handoffs.as_array().into_iter().flatten() {
                let diff =
                    tine.run(&["handoff", "diff", &handoff["id"].to_string(), "--name-only"]);
                kept.extend(diff.text().lines().map(str::to_owned));
            }
        }
        if !is_all(&kept) {
            for fork in self.forks() {
                let snapshots = tine.json(&["snapshots", &fork])["snapshots"].take();
                for snapshot in snapshots.as_array().into_iter().flatten() {
                    let snapshot = snapshot["name"].as_str().expect("a name");
                    let (look, from) = (
                        format!("look-{fork}-{snapshot}"),
                        format!("{fork}@{snapshot}"),
                    );
                    kept.extend(self.looked_at(&["new", &look, "--from-fork", &from]));
                }
            }
        }
        if !is_all(&kept) {
            let entries = tine.json(&["recover"])["entries"].take();
            for entry in entries.as_array().into_iter().flatten() {
                let id = entry["id"].to_string();
                let look = format!("back-{id}");
                kept.extend(self.looked_at(&["recover", &id, &look]));
                for snapshot in entry["snapshots"].as_array().into_iter().flatten() {
                    let name = snapshot["name"].as_str().expect("a name");
                    let look = format!("{look}-{name}");
                    kept.extend(self.looked_at(&["recover", &id, &look, "--snapshot", name]));
                }
            }
        }
        kept
    }

    /// Files of the fork, or of the branch, that a command makes and that stays: the repository is
    /// of this meeting alone.
    fn looked_at(&self, args: &[&str]) -> Vec<String> {
        let made = self.points.run(&[args, &["--json"]].concat());
        let value: Value = serde_json::from_slice(&made.stdout).unwrap_or(Value::Null);
        let mut found = Vec::new();
        if let Some(commit) = value["commit"].as_str() {
            let log = self.repo.git(&["log", "--name-only", "--format=", commit]);
            found.extend(log.lines().map(str::to_owned));
        }
        let dir = value["fork"]["mount_dir"]
            .as_str()
            .or(value["mount_dir"].as_str());
        if let Some(dir) = dir {
            found.extend(files_in(Path::new(dir)));
        }
        found
    }
}

fn files_in(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

/// What a command said that it should not have.
fn badly_told(output: &Output) -> Option<String> {
    let text = output.error_text();
    let value: Value = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    let code = value["error"]["code"].as_str().unwrap_or_default();
    let is_told = matches!(output.status.code(), Some(0 | 7))
        || (value["error"]["hint"].is_string() && !code.is_empty());
    let is_conflict = output.status.code() == Some(3) && output.text().contains("conflicts");
    let is_unsettled = UNSETTLED.contains(&code) || text.contains("panicked");
    ((!is_told && !is_conflict) || is_unsettled).then(|| {
        format!(
            "{:?} {} {}",
            output.status.code(),
            output.text(),
            text.trim_end()
        )
    })
}

/// Two commands meet; what is amiss, and whether the first came to the point.
fn meet(meeting: &Meeting) -> (Vec<String>, bool) {
    let repo = TestRepo::new().without_maintenance();
    let stage = Stage::set(&repo, meeting);
    let (first, second) = (
        stage.words(meeting.first, 0),
        stage.words(meeting.second, 1),
    );
    let json = |words: &[String]| [words, &["--json".to_owned()]].concat();
    let point = POINTS[meeting.point];
    let (outputs, is_held) = stage.points.meet(point, &json(&first), &json(&second));
    let mut amiss: Vec<String> = outputs.iter().filter_map(badly_told).collect();
    amiss.extend(stage.amiss());
    let what = format!(
        "{:?}: tine {} × tine {} at {point}",
        meeting.scene,
        first.join(" "),
        second.join(" ")
    );
    let told = |output: &Output| format!("{:?} {}", output.status.code(), output.text());
    let answers = outputs.each_ref().map(told).join("; ");
    let amiss = amiss.into_iter();
    (
        amiss
            .map(|amiss| format!("{what}: {amiss}\n    ({answers})"))
            .collect(),
        is_held,
    )
}

fn take<'m>(meetings: &'m [Meeting], next: &AtomicUsize) -> Option<(usize, &'m Meeting)> {
    let number = next.fetch_add(1, Ordering::Relaxed);
    Some((number, meetings.get(number)?))
}

#[test]
fn any_two_commands_that_touch_a_branch_or_a_checkout_leave_both_in_order() {
    require_fuse!();
    let (mut random, seed) = Random::from_environment(SEED);
    let _say = SayWhich(SEED, seed);
    let mut meetings = Meeting::all();
    // Without an order, so that a part of them is a sample.
    for at in (1..meetings.len()).rev() {
        meetings.swap(at, random.below(at as u64 + 1) as usize);
    }
    meetings.sort_by_key(|meeting| !meeting.is_always());
    let always = meetings
        .iter()
        .filter(|meeting| meeting.is_always())
        .count();
    assert!(
        always >= ALWAYS.len() * POINTS.len(),
        "one of ALWAYS is no meeting"
    );
    if !soaking() {
        meetings.truncate(always + CHOSEN);
    }
    let count = meetings.len();
    let (next, held, amiss) = (
        AtomicUsize::new(0),
        AtomicUsize::new(0),
        Mutex::new(Vec::new()),
    );
    // Most of a meeting is waiting.
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Some((number, meeting)) = take(&meetings, &next) {
                    if number % 100 == 99 {
                        eprintln!("{} of {count} meetings", number + 1);
                    }
                    let (found, is_held) = meet(meeting);
                    held.fetch_add(usize::from(is_held), Ordering::Relaxed);
                    for line in &found {
                        eprintln!("{} of {count}: {line}", number + 1);
                    }
                    amiss.lock().expect("no holder panics").extend(found);
                }
            });
        }
    });
    let (held, amiss) = (
        held.into_inner(),
        amiss.into_inner().expect("no holder panics"),
    );
    eprintln!("{SEED}={seed}: {count} meetings, {held} of them at the point");
    assert!(
        held > count / 8,
        "the points are not reached any more: {held} of {count}"
    );
    assert!(
        amiss.is_empty(),
        "{} amiss:\n{}",
        amiss.len(),
        amiss.join("\n")
    );
}
