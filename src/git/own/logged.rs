//! Objects that only reflogs name, and the commit that keeps them.

use std::collections::{BTreeSet, BinaryHeap, HashSet};

use gix::ObjectId;
use gix::objs::{CommitRefIter, Find, Kind};

use crate::{GitError, Repository};

/// Commits that a search visits beside those that it looks for.
///
/// What it does not find by then counts as unreached. It is then kept without need.
const MAX_OTHER_COMMITS: usize = 1000;

/// Author of commits that keep others: no person, at no time.
pub(super) const KEEPER: &str = "tine <tine@localhost> 0 +0000";

/// Result of [`unreached`].
#[derive(Default)]
pub(super) struct Unreached {
    /// Commits that no root reaches, without those that others among them reach.
    pub(super) commits: BTreeSet<ObjectId>,
    /// Other objects.
    pub(super) others: BTreeSet<ObjectId>,
}

/// Finds the ones of `wanted` that no commit of `roots` reaches.
///
/// Objects that do not exist are left out. All ids of `settled` remain, without a search.
pub(super) fn unreached(
    main: &Repository,
    roots: &HashSet<ObjectId>,
    wanted: &HashSet<ObjectId>,
    settled: &HashSet<ObjectId>,
) -> Unreached {
    let mut search = Search {
        main,
        seen: HashSet::new(),
        open: BinaryHeap::new(),
    };
    let mut found = Unreached::default();
    let mut missing: HashSet<ObjectId> = HashSet::new();
    let mut open: Vec<(i64, ObjectId)> = Vec::new();
    for id in wanted.difference(roots) {
        match search.commit(*id) {
            Object::Commit { time, .. } if settled.contains(id) => {
                found.commits.insert(*id);
                search.open.push((time, *id));
            }
            Object::Commit { time, .. } => {
                missing.insert(*id);
                open.push((time, *id));
            }
            Object::Other => {
                found.others.insert(*id);
            }
            Object::Missing => {}
        }
    }
    for id in roots {
        if let Object::Commit { time, .. } = search.commit(*id) {
            search.open.push((time, *id));
        }
    }
    search.run(&mut missing);
    // The newest first, because it may reach the others.
    open.sort_unstable();
    while let Some((time, id)) = open.pop() {
        if missing.remove(&id) {
            found.commits.insert(id);
            search.open.push((time, id));
            search.run(&mut missing);
        }
    }
    found
}

enum Object {
    Commit { time: i64, parents: Vec<ObjectId> },
    Other,
    Missing,
}

struct Search<'r> {
    main: &'r Repository,
    seen: HashSet<ObjectId>,
    open: BinaryHeap<(i64, ObjectId)>,
}

impl Search<'_> {
    /// Visits commits, the newest first, until it has found all of `wanted`.
    fn run(&mut self, wanted: &mut HashSet<ObjectId>) {
        let mut left = wanted.len().saturating_add(MAX_OTHER_COMMITS);
        while !wanted.is_empty()
            && left > 0
            && let Some((_, id)) = self.open.pop()
        {
            if !self.seen.insert(id) {
                continue;
            }
            left = left.saturating_sub(1);
            wanted.remove(&id);
            let Object::Commit { parents, .. } = self.commit(id) else {
                continue;
            };
            for parent in parents {
                if let Object::Commit { time, .. } = self.commit(parent) {
                    self.open.push((time, parent));
                }
            }
        }
    }

    fn commit(&self, id: ObjectId) -> Object {
        let mut data = Vec::new();
        let kind = self.main.with_local(|local| {
            let found = local.objects.try_find(&id, &mut data);
            found.ok().flatten().map(|found| found.kind)
        });
        match kind {
            Some(Kind::Commit) => {
                let commit = || CommitRefIter::from_bytes(&data, id.kind());
                Object::Commit {
                    time: commit()
                        .committer()
                        .map_or(0, |committer| committer.seconds()),
                    parents: commit().parent_ids().collect(),
                }
            }
            Some(_) => Object::Other,
            None => Object::Missing,
        }
    }
}

impl Repository {
    /// Writes the commit that keeps `commits`. Equal sets give the same commit.
    pub(super) fn write_keeper(&self, commits: &BTreeSet<ObjectId>) -> Result<ObjectId, GitError> {
        let tree_id = self.write_object(Kind::Tree, b"")?;
        self.write_keeping_commit(tree_id, commits, "Commits that only reflogs name")
    }

    /// Returns the parents of the commit that keeps logged ones.
    pub(super) fn kept_by_keeper(&self, keeper: Option<ObjectId>) -> BTreeSet<ObjectId> {
        let commit = keeper.and_then(|id| self.commit_info(id).ok());
        commit.map_or_else(BTreeSet::new, |commit| {
            commit.parent_ids.into_iter().collect()
        })
    }
}
