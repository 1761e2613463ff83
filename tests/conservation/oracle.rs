//! Where every mark is after a run, and whether all is whole.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::marks::{Kind, Mark, MarkId, word, words_in};
use crate::objects::Objects;
use crate::support::{OutputExt, run_with_timeout};
use crate::world::World;

#[derive(Clone, Debug)]
pub enum Failure {
    /// Acknowledged work is nowhere.
    Lost(String),
    /// A commit, a branch that was moved, or a view takes back what others did.
    Reversed(String),
    /// What a person typed and never saved is in a commit.
    Leaked(String),
    /// Index or tree of the main checkout are not what its user made of them.
    Main(String),
    /// The repository or the store is not whole.
    Broken(String),
    /// Two worktrees are on one branch.
    Shared(String),
    /// A command failed in a way that is a fault of tine's.
    Strange(String),
    Hangs(String),
    /// The test itself, or the daemon, panicked.
    Panicked(String),
}

impl Failure {
    pub fn kind(&self) -> &'static str {
        match self {
            Failure::Lost(_) => "lost",
            Failure::Reversed(_) => "reversed",
            Failure::Leaked(_) => "leaked",
            Failure::Main(_) => "main",
            Failure::Broken(_) => "broken",
            Failure::Shared(_) => "shared",
            Failure::Strange(_) => "strange",
            Failure::Hangs(_) => "hangs",
            Failure::Panicked(_) => "panicked",
        }
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Failure::Lost(what)
        | Failure::Reversed(what)
        | Failure::Leaked(what)
        | Failure::Main(what)
        | Failure::Broken(what)
        | Failure::Shared(what)
        | Failure::Strange(what)
        | Failure::Hangs(what)
        | Failure::Panicked(what)) = self;
        write!(f, "{}: {what}", self.kind())
    }
}

/// What the run came to: nothing, where all is as it must be.
pub fn judge(world: &World<'_>) -> Vec<Failure> {
    let mut judge = Judge {
        world,
        failures: world.failures(),
        marks: world.marks.all(),
    };
    let looks = AssertUnwindSafe(|| {
        judge.main_checkout();
        judge.branches();
        let views = judge.views();
        judge.work(&views);
        judge.wholeness();
    });
    if let Err(panic) = catch_unwind(looks) {
        let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
        judge.failures.push(Failure::Broken(text));
    }
    // What costs work comes first.
    judge
        .failures
        .sort_by_key(|failure| matches!(failure, Failure::Strange(_)));
    judge.failures
}

struct Judge<'w> {
    world: &'w World<'w>,
    failures: Vec<Failure>,
    marks: Vec<Mark>,
}

/// What a directory shows, and the commit that it stands on.
struct View {
    name: String,
    marks: BTreeSet<MarkId>,
    head: Option<String>,
}

impl Judge<'_> {
    /// Paths that differ are those that its user touched.
    fn main_checkout(&mut self) {
        let touched = self
            .world
            .touched_in_main
            .lock()
            .expect("no holder panics")
            .clone();
        let Some(touched) = touched else {
            return;
        };
        let status = self.world.repo.git(&["status", "--porcelain", "-uall"]);
        for line in status.lines() {
            if !line.get(3..).is_some_and(|path| touched.contains(path)) {
                self.failures.push(Failure::Main(format!(
                    "git status shows {line:?}, which its user did not do"
                )));
            }
        }
    }

    fn branches(&mut self) {
        let list = self.world.repo.git(&["worktree", "list", "--porcelain"]);
        let mut holders: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let mut holder = "";
        for line in list.lines() {
            if let Some(dir) = line.strip_prefix("worktree ") {
                holder = dir;
            }
            if let Some(branch) = line.strip_prefix("branch ") {
                holders.entry(branch).or_default().push(holder);
            }
        }
        for (branch, holders) in holders {
            if holders.len() > 1 {
                self.failures.push(Failure::Shared(format!(
                    "{branch} is checked out in {}",
                    holders.join(", ")
                )));
            }
        }
    }

    fn views(&mut self) -> Vec<View> {
        let world = self.world;
        let list = world.tine.json(&["list"]);
        let mut views = vec![View {
            name: "the main checkout".to_owned(),
            marks: in_directory(world.repo.dir()),
            head: Some(world.repo.head()),
        }];
        // A fork that went back with `--exact`, and was unmounted, may not have been handed over,
        // and is whole.
        let is_told = |trouble: &Value| trouble["code"] == "takes-back";
        if list["damaged"]
            .as_array()
            .is_some_and(|damaged| !damaged.iter().all(is_told))
        {
            self.failures
                .push(Failure::Broken(format!("tine list: {list}")));
        }
        for fork in list["forks"].as_array().into_iter().flatten() {
            let name = fork["name"].as_str().expect("a name");
            let mounted = world.tine.run(&["mount", name]);
            if !mounted.status.success() {
                let text = mounted.error_text();
                self.failures
                    .push(Failure::Broken(format!("{name} cannot be mounted: {text}")));
                continue;
            }
            views.push(View {
                name: name.to_owned(),
                marks: in_directory(Path::new(&mounted.text())),
                head: fork["head_commit"].as_str().map(str::to_owned),
            });
        }
        views
    }

    /// Every mark that somebody was told is written, and nobody let go, is somewhere.
    fn work(&mut self, views: &[View]) {
        let repo = self.world.repo;
        repo.git(&["fetch", "-q", "origin"]);
        let objects = Objects::read(repo);
        // What tine keeps under its own refs counts where one of its commands shows it.
        let shown = ["refs/heads", "refs/remotes", "refs/tags", "refs/stash"];
        let args = [&["for-each-ref", "--format=%(objectname)"], &shown[..]].concat();
        let refs: Vec<String> = lines(&repo.git(&args));
        // All stashes but the newest are in the reflog alone.
        let stashes = lines(
            &repo
                .try_git_in(repo.dir(), &["stash", "list", "--format=%H"])
                .text(),
        );
        let all = [refs, stashes].concat();
        let branches: Vec<String> =
            lines(&repo.git(&["for-each-ref", "--format=%(objectname)", "refs/heads"]));
        let heads: Vec<String> = views.iter().filter_map(|view| view.head.clone()).collect();
        let mut kept = objects.reached(&[all, heads.clone()].concat());
        for view in views {
            kept.extend(&view.marks);
        }
        let store = repo.common_dir().join("tine");
        for place in ["buffers", "rounds"] {
            kept.extend(in_directory(&store.join(place)));
        }
        // Of a fork that is gone: what a program wrote to its place.
        kept.extend(in_directory(&self.world.fork_dir("")));
        let entries = self.world.tine.json(&["recover"])["entries"].take();
        let entries = entries.as_array().cloned().unwrap_or_default();
        for entry in &entries {
            kept.extend(self.brought_back(entry));
        }
        let missing = |kept: &BTreeSet<MarkId>, marks: &[Mark]| -> BTreeSet<MarkId> {
            let all = marks.iter().enumerate();
            let missing =
                all.filter(|(id, mark)| mark.acknowledged && !mark.released && !kept.contains(id));
            missing.map(|(id, _)| id).collect()
        };
        type Look<'j, 'w> = fn(&mut Judge<'w>, &[View], &[Value]) -> BTreeSet<MarkId>;
        let looks: [Look<'_, '_>; 3] = [
            |judge, _, _| judge.in_reviews_and_handoffs(),
            |judge, views, _| judge.in_snapshots(views),
            |judge, _, entries| judge.in_snapshots_of_entries(entries),
        ];
        for look in looks {
            if !missing(&kept, &self.marks).is_empty() {
                kept.extend(look(self, views, &entries));
            }
        }
        for id in missing(&kept, &self.marks) {
            let told = self.told(id);
            self.failures
                .push(Failure::Lost(format!("{told} is nowhere")));
        }
        let must_follow = |id: &MarkId| {
            let mark = &self.marks[*id];
            mark.kind == Kind::File && !mark.released && !mark.taken_back
        };
        let undone = self.world.undone.lock().expect("no holder panics").clone();
        let is_undone = |fork: &str, id: MarkId| {
            let path = Path::new(&self.marks[id].path);
            let is_back = fork.starts_with("back");
            let is_it = |(of, undone): &(String, String)| {
                (of == fork || is_back) && path.starts_with(undone)
            };
            undone.iter().any(is_it)
        };
        // Who goes back past the work of others with `--exact` lacks it, wherever that is merged.
        // What `main` had it still has.
        let exact = self.world.exact.lock().expect("no holder panics").clone();
        let main = [repo.git(&["rev-parse", "refs/heads/main"])];
        let (in_main, was_in_main) = (objects.in_commit(&main[0]), objects.reached(&main));
        let is_exact = |id: MarkId| {
            let is_lacked = exact.values().any(|lacks| lacks.contains(&id));
            is_lacked && (in_main.contains(&id) || !was_in_main.contains(&id))
        };
        let mut reversed: BTreeMap<MarkId, String> = BTreeMap::new();
        for (commit, parents) in objects.history(&[branches.clone(), heads].concat()) {
            let here = objects.in_commit(&commit);
            for parent in parents {
                for id in objects
                    .in_commit(&parent)
                    .difference(&here)
                    .filter(|id| must_follow(id) && !is_exact(**id))
                {
                    let subject = repo.git(&["log", "-1", "--format=%h \"%s\"", &commit]);
                    let told = self.told(*id);
                    let what = format!("{told} is in {parent:.8} and not in its child {subject}");
                    reversed.insert(*id, what);
                }
            }
        }
        for (branch, [old, new], message) in moves(&repo.common_dir().join("logs/refs/heads")) {
            // Who takes a merge back takes back what came by it.
            if message.contains(" undo ") || message.contains(" redo ") {
                continue;
            }
            let now = objects.in_commit(&new);
            for id in objects
                .in_commit(&old)
                .difference(&now)
                .filter(|id| must_follow(id) && !is_exact(**id))
            {
                let what = format!("{} was in {branch} until {message:?}", self.told(*id));
                reversed.entry(*id).or_insert(what);
            }
        }
        for view in views {
            let Some(head) = &view.head else {
                continue;
            };
            for id in objects
                .in_commit(head)
                .difference(&view.marks)
                .filter(|id| must_follow(id) && !is_undone(&view.name, **id) && !is_exact(**id))
            {
                let what = format!(
                    "{} is in HEAD of {} and not in its files",
                    self.told(*id),
                    view.name
                );
                reversed.entry(*id).or_insert(what);
            }
        }
        self.failures
            .extend(reversed.into_values().map(Failure::Reversed));
        let committed = objects.reached(&branches);
        for (id, mark) in self.marks.iter().enumerate() {
            if mark.kind == Kind::Typed && !mark.acknowledged && committed.contains(&id) {
                let told = self.told(id);
                self.failures.push(Failure::Leaked(format!(
                    "{told} was never saved and is in a commit"
                )));
            }
        }
    }

    fn told(&self, id: MarkId) -> String {
        let Mark {
            actor,
            kind,
            fork,
            path,
            began,
            ..
        } = &self.marks[id];
        let fork = fork.as_deref().unwrap_or("the main checkout");
        let secs = began.as_secs_f64();
        format!(
            "{} ({kind:?} of actor {actor}, {path} in {fork}, at {secs:.3})",
            word(id)
        )
    }

    /// Marks in what an entry of `tine recover` brings back, by the command that it tells.
    fn brought_back(&mut self, entry: &Value) -> BTreeSet<MarkId> {
        let tine = self.world.tine;
        let mut way_back = entry["way_back"].as_str().unwrap_or_default();
        // The fork that a review is into comes back first.
        while let Some((first, rest)) = way_back.split_once(" && ") {
            let mut answer = match first.strip_prefix("tine ") {
                Some(args) => tine.run(&args.split(' ').collect::<Vec<_>>()),
                None => self.world.repo.try_sh_in(self.world.repo.dir(), first),
            };
            // Somebody's files are at its place, and the refusal says what then.
            if answer
                .error_text()
                .contains("another place with `--at DIR`")
            {
                let place = self.world.repo.root().join(format!("at-{}", entry["id"]));
                let args = first.split(' ').skip(1).chain(["--at"]);
                let args = args.chain(place.to_str()).collect::<Vec<_>>();
                answer = tine.run(&args);
            }
            self.looked_at(entry, answer.status.success(), &answer, BTreeSet::new());
            way_back = rest;
        }
        let name = format!("look-back-{}", entry["id"]);
        let mut args: Vec<&str> = way_back.split(' ').skip(1).collect();
        match args.iter().position(|word| *word == "NAME") {
            Some(at) => args[at] = &name,
            None if args.first() == Some(&"recover") => args.push(&name),
            None => {}
        }
        if args.first() == Some(&"review") {
            // Two of the same merge are one.
            let answer = tine.run(&args);
            let is_answer = answer.status.success() || answer.status.code() == Some(3);
            return self.looked_at(entry, is_answer, &answer, BTreeSet::new());
        }
        let args = [&args[..], &["--json"]].concat();
        let answer = tine.run(&args);
        let value: Value = serde_json::from_slice(&answer.stdout).unwrap_or(Value::Null);
        let mut found = BTreeSet::new();
        if let Some(commit) = value["commit"].as_str() {
            let history = self
                .world
                .repo
                .git(&["log", "-p", "-m", "--format=", commit]);
            found.extend(words_in(history.as_bytes()));
        }
        if let Some(dir) = value["fork"]["mount_dir"].as_str() {
            found.extend(in_directory(Path::new(dir)));
            tine.run(&["delete", &name, "--force"]);
        }
        self.looked_at(entry, answer.status.success(), &answer, found)
    }

    fn looked_at(
        &mut self,
        what: &Value,
        is_there: bool,
        answer: &Output,
        found: BTreeSet<MarkId>,
    ) -> BTreeSet<MarkId> {
        if !is_there {
            let text = answer.error_text();
            self.failures.push(Failure::Broken(format!(
                "{what} does not come back: {text}"
            )));
        }
        found
    }

    fn in_snapshots_of_entries(&mut self, entries: &[Value]) -> BTreeSet<MarkId> {
        let tine = self.world.tine;
        let mut found = BTreeSet::new();
        for entry in entries {
            for (number, snapshot) in entry["snapshots"]
                .as_array()
                .into_iter()
                .flatten()
                .enumerate()
            {
                let (id, snapshot) = (entry["id"].to_string(), snapshot["name"].as_str());
                let name = format!("look-back-{id}-{number}");
                let made = tine.run(&[
                    "recover",
                    &id,
                    &name,
                    "--snapshot",
                    snapshot.unwrap_or_default(),
                ]);
                let marks = in_directory(Path::new(&made.text()));
                found.extend(self.looked_at(entry, made.status.success(), &made, marks));
                tine.run(&["delete", &name, "--force"]);
            }
        }
        found
    }

    fn in_reviews_and_handoffs(&mut self) -> BTreeSet<MarkId> {
        let tine = self.world.tine;
        let mut found = BTreeSet::new();
        for (list, verb) in [("reviews", "review"), ("handoffs", "handoff")] {
            let all = tine.json(&[verb, "list"])[list].take();
            for one in all.as_array().into_iter().flatten() {
                let diff = tine.run(&[verb, "diff", &one["id"].to_string()]);
                found.extend(words_in(&diff.stdout));
            }
        }
        found
    }

    /// Marks in all snapshots, each looked at as a fork of it.
    fn in_snapshots(&mut self, views: &[View]) -> BTreeSet<MarkId> {
        let tine = self.world.tine;
        let mut found = BTreeSet::new();
        // The first is the main checkout.
        let lists = views
            .iter()
            .skip(1)
            .map(|view| tine.json(&["snapshots", &view.name]));
        let names = lists.flat_map(|list| {
            let snapshots = list["snapshots"].as_array().cloned().unwrap_or_default();
            let text =
                |snapshot: &Value, key: &str| snapshot[key].as_str().unwrap_or_default().to_owned();
            let name =
                move |snapshot| format!("{}@{}", text(&snapshot, "fork"), text(&snapshot, "name"));
            snapshots.into_iter().map(name).collect::<Vec<_>>()
        });
        for (number, from) in names.enumerate() {
            let name = format!("look-{number}");
            let made = tine.run(&["new", &name, "--from-fork", &from]);
            match made.status.success() {
                true => found.extend(in_directory(Path::new(&made.text()))),
                false => self.failures.push(Failure::Broken(format!(
                    "{from} cannot be looked at: {}",
                    made.error_text()
                ))),
            }
            tine.run(&["delete", &name, "--force"]);
        }
        found
    }

    /// git and tine find nothing amiss, also once all is gone that git may remove.
    fn wholeness(&mut self) {
        let repo = self.world.repo;
        let settings = [
            "gc.reflogExpire=now",
            "gc.reflogExpireUnreachable=now",
            "gc.refs/stash.reflogExpire=never",
            "gc.refs/stash.reflogExpireUnreachable=never",
        ];
        let settings = settings.iter().flat_map(|setting| ["-c", setting]);
        let args: Vec<&str> = settings.chain(["gc", "-q", "--prune=now"]).collect();
        self.world.remove_locks();
        repo.git(&args);
        let fsck = repo.try_git_in(
            repo.dir(),
            &["fsck", "--strict", "--no-dangling", "--no-progress"],
        );
        if !fsck.status.success() {
            let text = format!("git fsck: {}{}", fsck.text(), fsck.error_text());
            self.failures.push(Failure::Broken(text));
        }
        // What a killed command left and nothing names is no work.
        self.world.tine.run(&["gc"]);
        let check = run_with_timeout(&mut self.world.tine.command(&["--json", "check"]));
        let found: Value = serde_json::from_slice(&check.stdout).unwrap_or(Value::Null);
        if found["ok"] != true {
            self.failures.push(Failure::Broken(format!(
                "tine check: {}{}",
                check.text(),
                check.error_text()
            )));
        }
        let log = fs::read_to_string(repo.common_dir().join("tine/daemon.log")).unwrap_or_default();
        for line in log.lines().filter(|line| line.contains("panicked")) {
            self.failures.push(Failure::Panicked(line.to_owned()));
        }
    }
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

/// Marks in all files beneath, but for git's own.
fn in_directory(dir: &Path) -> BTreeSet<MarkId> {
    let mut found = BTreeSet::new();
    let Ok(entries) = fs::read_dir(dir) else {
        return found;
    };
    for entry in entries.flatten() {
        let Ok(kind) = entry.file_type() else {
            continue;
        };
        if kind.is_dir() && entry.file_name() != ".git" {
            found.extend(in_directory(&entry.path()));
        } else if kind.is_file() {
            found.extend(words_in(&fs::read(entry.path()).unwrap_or_default()));
        }
    }
    found
}

/// How branches moved: each with the commits before and after, and why.
fn moves(logs: &Path) -> Vec<(String, [String; 2], String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(logs).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(moves(&path));
            continue;
        }
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        for line in fs::read_to_string(&path).unwrap_or_default().lines() {
            let (ids, message) = line.split_once('\t').unwrap_or((line, ""));
            let mut ids = ids.split(' ').map(str::to_owned);
            if let (Some(old), Some(new)) = (ids.next(), ids.next()) {
                found.push((name.clone(), [old, new], message.to_owned()));
            }
        }
    }
    found
}
