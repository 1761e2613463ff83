//! What each ref of the forks and of the main repository must be.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::support::{OutputExt, TestRepo};

/// The forks, by place. The main repository's place is after them.
pub const FORKS: [&str; 2] = ["one", "two"];
pub const MAIN: usize = FORKS.len();

pub type Refs = BTreeMap<String, String>;

/// What a command makes of a ref.
#[derive(Debug, Clone)]
pub enum Expected {
    /// This value, or its absence.
    Exactly(Option<String>),
    /// Any value, or its absence.
    Anything,
    /// This value or the one that it had.
    Perhaps(Option<String>),
}

/// What a command makes of the refs at a place.
#[derive(Debug, Clone)]
pub struct Change {
    pub place: usize,
    pub refs: BTreeMap<String, Expected>,
    /// Content of HEAD afterwards: a full ref name, or nothing if it is detached.
    pub head: Option<String>,
    /// Refs of the main repository that change too.
    pub in_main: BTreeMap<String, Expected>,
    pub is_sure: bool,
}

impl Change {
    pub fn nothing(place: usize) -> Change {
        Change {
            place,
            refs: BTreeMap::new(),
            head: None,
            in_main: BTreeMap::new(),
            is_sure: true,
        }
    }

    /// The change of a command that failed or was killed.
    pub fn perhaps(mut self) -> Change {
        for expected in self.refs.values_mut().chain(self.in_main.values_mut()) {
            if let Expected::Exactly(id) = expected {
                *expected = Expected::Perhaps(id.clone());
            }
        }
        self.is_sure = false;
        self
    }
}

/// State of one fork.
#[derive(Debug, Clone)]
pub struct ForkModel {
    /// Refs that the fork wrote, or removed (`None`). The others are the main repository's.
    pub own: BTreeMap<String, Option<String>>,
    /// Full name of the branch, or nothing if HEAD is detached.
    pub head: String,
    pub head_id: String,
}

/// State of all.
pub struct Model {
    pub forks: Vec<ForkModel>,
    pub main: Refs,
    pub main_head: String,
}

/// Refs of the main repository that forks see.
fn is_lent(name: &str) -> bool {
    ![
        "refs/tine/",
        "refs/worktree/",
        "refs/bisect/",
        "refs/rewritten/",
        "refs/stash",
    ]
    .iter()
    .any(|own| name.starts_with(own))
}

fn read_refs(repo: &TestRepo, dir: &std::path::Path) -> Refs {
    let text = repo.git_in(dir, &["for-each-ref", "--format=%(refname) %(objectname)"]);
    let pairs = text.lines().filter_map(|line| line.split_once(' '));
    pairs
        .map(|(name, id)| (name.to_owned(), id.to_owned()))
        .collect()
}

fn read_head(repo: &TestRepo, dir: &std::path::Path) -> (String, String) {
    let name = repo.try_git_in(dir, &["symbolic-ref", "-q", "HEAD"]).text();
    (name, repo.git_in(dir, &["rev-parse", "HEAD"]))
}

fn short(refs: &Refs) -> String {
    let lines = refs.iter().map(|(name, id)| format!("{name} {:.8}", id));
    lines.collect::<Vec<_>>().join("\n  ")
}

fn difference(what: &str, expected: &Refs, found: &Refs) -> Result<(), String> {
    if expected == found {
        return Ok(());
    }
    let only = |one: &Refs, other: &Refs| -> Refs {
        let pairs = one.iter().filter(|(name, id)| other.get(*name) != Some(id));
        pairs.map(|(name, id)| (name.clone(), id.clone())).collect()
    };
    Err(format!(
        "{what}: expected\n  {}\nand found\n  {}",
        short(&only(expected, found)),
        short(&only(found, expected))
    ))
}

impl Model {
    pub fn read(repo: &TestRepo, dirs: &[PathBuf; 2]) -> Model {
        let mut main = read_refs(repo, repo.dir());
        main.retain(|name, _| !name.starts_with("refs/tine/"));
        let forks = dirs.iter().enumerate().map(|(place, dir)| {
            let (head, head_id) = read_head(repo, dir);
            assert_eq!(head, branch_of(place));
            ForkModel {
                own: [(head.clone(), Some(head_id.clone()))].into(),
                head,
                head_id,
            }
        });
        Model {
            forks: forks.collect(),
            main_head: read_head(repo, repo.dir()).0,
            main,
        }
    }

    /// The refs that git must show in the fork.
    pub fn seen(&self, place: usize) -> Refs {
        let lent = self.main.iter().filter(|(name, _)| is_lent(name));
        let mut seen: Refs = lent.map(|(name, id)| (name.clone(), id.clone())).collect();
        for (name, id) in &self.forks[place].own {
            match id {
                Some(id) => seen.insert(name.clone(), id.clone()),
                None => seen.remove(name),
            };
        }
        seen
    }

    /// Compares the fork's refs with the model, which follows the command.
    pub fn check_fork(
        &mut self,
        repo: &TestRepo,
        dirs: &[PathBuf; 2],
        place: usize,
        changes: &[&Change],
        all: &[Change],
    ) -> Result<(), String> {
        let dir = &dirs[place];
        let found = read_refs(repo, dir);
        let (head, head_id) = read_head(repo, dir);
        let mut seen = self.seen(place);
        // What the main repository changed meanwhile is checked there.
        for name in all.iter().flat_map(|change| {
            let in_main = change.in_main.keys();
            let refs = change.refs.keys().filter(|_| change.place == MAIN);
            in_main.chain(refs)
        }) {
            if !self.forks[place].own.contains_key(name) && is_lent(name) {
                set(&mut seen, name, found.get(name).cloned());
            }
        }
        for other in 0..FORKS.len() {
            let name = branch_of(other);
            if self.forks[place].own.contains_key(&name) {
                continue;
            }
            // It may have followed the other fork meanwhile.
            let is_set = changes.iter().any(|change| change.refs.contains_key(&name));
            let id = if is_set {
                read_refs(repo, repo.dir()).remove(&name)
            } else {
                found.get(&name).cloned()
            };
            set(&mut seen, &name, id);
        }
        for (name, expected) in changes.iter().flat_map(|change| &change.refs) {
            let old = seen.get(name).cloned();
            let now = found.get(name).cloned();
            let new = match expected {
                Expected::Exactly(id) => id.clone(),
                Expected::Perhaps(id) if *id == now => now.clone(),
                Expected::Perhaps(_) => old.clone(),
                Expected::Anything => now.clone(),
            };
            set(&mut seen, name, new.clone());
            if new != old {
                let own = &mut self.forks[place].own;
                // A ref that the main repository has, too, is hidden.
                if new.is_some() || self.main.contains_key(name) {
                    own.insert(name.clone(), new);
                } else {
                    own.remove(name);
                }
            }
        }
        let fork = &mut self.forks[place];
        for change in changes {
            let wanted = change.head.as_ref();
            if let Some(wanted) = wanted.filter(|wanted| change.is_sure || **wanted == head) {
                fork.head = wanted.clone();
            }
        }
        // The branch that HEAD is on is the fork's own.
        if let Some(id) = seen.get(&fork.head).cloned() {
            fork.own.entry(fork.head.clone()).or_insert(Some(id));
        }
        fork.head_id = head_id;
        let name = FORKS[place];
        if fork.head != head {
            return Err(format!(
                "{name}: HEAD is on {head:?} and not on {:?}",
                fork.head
            ));
        }
        difference(&format!("refs of {name}"), &seen, &found)
    }

    /// Compares the main repository's refs with the model, which follows the command.
    pub fn check_main(&mut self, repo: &TestRepo, changes: &[Change]) -> Result<(), String> {
        let found = read_refs(repo, repo.dir());
        for (place, fork) in FORKS.iter().enumerate() {
            let prefix = format!("refs/tine/{fork}/git/");
            let kept: Refs = found
                .iter()
                .filter_map(|(name, id)| Some((name.strip_prefix(&prefix)?, id)))
                .filter(|(label, _)| {
                    let first = label.split('/').next().unwrap_or_default();
                    !["logs", "logged", "pseudo"].contains(&first)
                })
                .map(|(label, id)| (label.to_owned(), id.clone()))
                .collect();
            let model = &self.forks[place];
            let own = model.own.iter().filter_map(|(name, id)| {
                let label = name.strip_prefix("refs/").unwrap_or(name);
                Some((label.to_owned(), id.clone()?))
            });
            let mut wanted: Refs = own.collect();
            wanted.insert("HEAD".to_owned(), model.head_id.clone());
            difference(&format!("{prefix}*"), &wanted, &kept)?;
        }
        let mut main: Refs = self.main.clone();
        let of_main = changes.iter().flat_map(|change| {
            let own = change.refs.iter().filter(|_| change.place == MAIN);
            own.chain(&change.in_main)
        });
        for (name, expected) in of_main {
            let now = found.get(name).cloned();
            let new = match expected {
                Expected::Exactly(id) => id.clone(),
                Expected::Perhaps(id) if *id == now => now,
                Expected::Perhaps(_) => continue,
                Expected::Anything => now,
            };
            set(&mut main, name, new);
        }
        let touched: BTreeSet<&String> = changes
            .iter()
            .filter(|change| change.place == MAIN)
            .flat_map(|change| change.refs.keys())
            .collect();
        for (place, fork) in FORKS.iter().enumerate() {
            let name = branch_of(place);
            let now = found.get(&name);
            if now == main.get(&name) {
                let recorded = found.get(&format!("refs/tine/{fork}/git-branch"));
                let fork = self.forks[place].own.get(&name).cloned().flatten();
                let is_followed = recorded.is_some() && recorded == now;
                let is_taken = self.main_head == name
                    || changes
                        .iter()
                        .any(|c| c.place == MAIN && c.head.as_ref() == Some(&name));
                let is_moved = changes
                    .iter()
                    .any(|c| c.place == place && c.is_sure && c.refs.contains_key(&name));
                if is_moved && is_followed && !is_taken && fork.is_some() && fork.as_ref() != now {
                    return Err(format!("{name} does not follow the fork's"));
                }
                continue;
            }
            // It follows the fork's branch, and nothing else.
            let fork = self.forks[place].own.get(&name).cloned().flatten();
            if now.is_none() || now != fork.as_ref() {
                return Err(format!(
                    "{name} is at {now:?}, at {fork:?} in the fork, and was at {:?}",
                    self.main.get(&name)
                ));
            }
            if self.main_head == name && !touched.contains(&name) {
                return Err(format!("{name} moved, which the main checkout has"));
            }
            set(&mut main, &name, now.cloned());
        }
        let shown = |refs: &Refs| -> Refs {
            let others = refs
                .iter()
                .filter(|(name, _)| !name.starts_with("refs/tine/"));
            others
                .map(|(name, id)| (name.clone(), id.clone()))
                .collect()
        };
        difference("refs of the main repository", &shown(&main), &shown(&found))?;
        self.main = shown(&main);
        for change in changes.iter().filter(|change| change.place == MAIN) {
            if let Some(head) = &change.head {
                let (now, _) = read_head(repo, repo.dir());
                if change.is_sure && now != *head {
                    return Err(format!("the main checkout is on {now} and not on {head}"));
                }
                self.main_head = now;
            }
        }
        Ok(())
    }
}

/// Full name of the branch that was made with a fork.
pub fn branch_of(place: usize) -> String {
    format!("refs/heads/tine/{}", FORKS[place])
}

fn set(refs: &mut Refs, name: &str, id: Option<String>) {
    match id {
        Some(id) => refs.insert(name.to_owned(), id),
        None => refs.remove(name),
    };
}
