//! What an agent takes back, lets go, and brings back.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;

use super::Agent;
use crate::marks::{Kind, Mark, MarkId, words_in};
use crate::plan::{Back, Fork};
use crate::support::run_with_timeout;
use crate::world::{Answer, Done};

impl Agent<'_> {
    pub(super) fn change_own(
        &self,
        fork: Fork,
        which: impl Fn(&Mark) -> bool,
        change: impl Fn(&mut Mark),
    ) {
        let name = self.name(fork);
        let is_own = |mark: &Mark| mark.actor == self.number && mark.fork.as_ref() == Some(&name);
        self.world
            .marks
            .change_where(|mark| is_own(mark) && which(mark), change);
    }

    pub(super) fn takes_back(&self, fork: Fork, which: impl Fn(&Mark) -> bool) {
        self.change_own(fork, which, |mark| mark.taken_back = true);
    }

    /// Lets own work go that no commit of the fork has.
    pub(super) fn releases_uncommitted(&self, fork: Fork, which: impl Fn(&Mark) -> bool) {
        let name = self.name(fork);
        let committed = self.in_head(&name);
        let marks = self.world.marks.all();
        for (id, mark) in marks.iter().enumerate() {
            if mark.actor != self.number || mark.fork.as_ref() != Some(&name) || !which(mark) {
                continue;
            }
            let is_committed = committed.contains(&id);
            self.world.marks.change(id, |mark| match is_committed {
                true => mark.taken_back = true,
                false => mark.released = true,
            });
        }
    }

    /// Marks in the commit that a fork stands on.
    pub(super) fn in_head(&self, name: &str) -> BTreeSet<MarkId> {
        let repo = self.world.repo;
        let words = ["grep", "-o", "-h", "-E", "m[0-9]+z", "HEAD", "--", "."];
        let mut grep = repo.command_of_fork(name, &words);
        words_in(&run_with_timeout(&mut grep).stdout)
    }

    /// Whether the private fork went back past the work of others.
    pub(super) fn is_exact(&self) -> bool {
        let exact = self.world.exact.lock().expect("no holder panics");
        exact.contains_key(&self.number)
    }

    /// A point to go back to, and from when on own work is not in it; without one: the point may
    /// lack any of it.
    pub(super) fn point(&self, fork: Fork, back: Back) -> Option<(String, Option<Duration>)> {
        Some(match back {
            Back::Snapshot => {
                let (name, taken) = self.snapshot_of(fork)?;
                (name, Some(taken))
            }
            Back::Head => ("HEAD".to_owned(), None),
            Back::Other => (format!("fork:{}", self.name(Agent::other(fork))), None),
        })
    }

    pub(super) fn restore_path(&mut self, fork: Fork, back: Back) {
        let Some((point, taken)) = self.point(fork, back) else {
            return;
        };
        let args = ["restore", &self.name(fork), &point, "--path", &self.dir()];
        if self.tine(&args).done.maybe() {
            self.takes_back(fork, |mark| taken.is_none_or(|taken| mark.began >= taken));
            // What came here from the other fork is there still.
            self.takes_back(Agent::other(fork), |_| true);
        }
    }

    pub(super) fn revert(&mut self, fork: Fork, back: Option<Back>) {
        let (name, dir) = (self.name(fork), self.dir());
        let mut args = vec!["revert", &name, &dir];
        let point = match back {
            Some(back) => match self.point(fork, back) {
                Some((point, _)) => point,
                None => return,
            },
            None => "pristine".to_owned(),
        };
        args.extend(["--to", &point]);
        if self.tine(&args).done.maybe() {
            self.releases_uncommitted(fork, |mark| mark.kind == Kind::File);
            // What came here from the other fork is there still.
            self.takes_back(Agent::other(fork), |mark| mark.kind == Kind::File);
        }
    }

    /// The private fork, as it was when a snapshot was taken: what others have done since is in
    /// HEAD, and not in its files.
    pub(super) fn restore_exact(&mut self) {
        let fork = Fork::Private;
        let name = self.name(fork);
        let Some((snapshot, taken)) = self.snapshot_of(fork) else {
            return;
        };
        if !self
            .tine(&["restore", &name, &snapshot, "--exact"])
            .done
            .maybe()
        {
            return;
        }
        self.takes_back(fork, |mark| mark.began >= taken);
        self.takes_back(Agent::other(fork), |_| true);
        let mut lacks = self.in_head(&name);
        let shown = self.tine(&["ls", "--deep", "--fork", &name]);
        if shown.done == Done::Yes {
            let has = words_in(shown.value.to_string().as_bytes());
            lacks.retain(|id| !has.contains(id));
        }
        let mut exact = self.world.exact.lock().expect("no holder panics");
        exact.entry(self.number).or_default().extend(lacks);
    }

    /// Brings an entry back by the command that `tine recover` tells, as a fork or branch of
    /// another name where its own is taken.
    pub(super) fn recover(&mut self, back: u8) {
        if self.recovered.len() > 1 {
            let name = self.recovered.remove(0);
            self.tine(&["delete", &name, "--force"]);
        }
        let list = self.tine(&["recover"]).value;
        let entries = list["entries"].as_array().map_or(&[][..], Vec::as_slice);
        let Some(entry) = entries.iter().rev().nth(back.into()) else {
            return;
        };
        let way_back = entry["way_back"].as_str().unwrap_or_default();
        // Of two commands the first brings back a fork that may be another actor's.
        if way_back.contains(" && ") {
            return;
        }
        self.recoveries += 1;
        let name = format!("back{}-{}", self.number, self.recoveries);
        let words: Vec<&str> = way_back.split(' ').skip(1).collect();
        let mut args: Vec<&str> = words
            .iter()
            .map(|word| if *word == "NAME" { &name } else { *word })
            .collect();
        let own = [Fork::Private, Fork::Open].into_iter().find(|&fork| {
            entry["kind"] == "fork"
                && entry["fork"] == self.name(fork)
                && way_back.ends_with(char::is_numeric)
        });
        let mut answer = self.tine(&args);
        if answer.value["error"]["code"] == "fork-exists"
            || answer.value["error"]["code"] == "branch-exists"
        {
            // One that is named already met somebody who made the same branch.
            if !args.contains(&name.as_str()) {
                args.push(&name);
            }
            answer = self.tine(&args);
        } else if let Some(fork) = own
            && answer.done == Done::Yes
        {
            *self.is_mounted(fork) = true;
        }
        let made = answer.value["fork"]["name"].as_str();
        if answer.done == Done::Perhaps || made == Some(&name) {
            self.recovered.push(name);
        }
    }

    /// Own work of the operation that was undone is let go: only `tine redo` has it now.
    pub(super) fn has_undone(&self, fork: Fork, answer: &Answer) {
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
            Done::Yes => self.releases_uncommitted(fork, |mark| {
                paths.iter().any(|path| is_at_or_below(path, &mark.path))
            }),
            Done::No => {}
            Done::Perhaps => self.releases_uncommitted(fork, |_| true),
        }
    }

    /// The fork was deleted, and its snapshots with it.
    pub(super) fn is_gone(&mut self, fork: Fork) {
        *self.is_mounted(fork) = false;
        self.snapshots.retain(|(of, ..)| *of != fork);
    }
}

fn is_at_or_below(dir: &Value, path: &str) -> bool {
    let Some(dir) = dir.as_str() else {
        return false;
    };
    path == dir
        || path
            .strip_prefix(dir)
            .is_some_and(|rest| rest.starts_with('/'))
}
