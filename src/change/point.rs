//! Points, named by a word: something to compare a fork with, to revert to or to start at.
//!
//! A word may have several meanings. They are tried in this order, and the first that exists wins:
//! a snapshot of the fork, a fork (its current view), `pristine` (the fork point), a revision as
//! git resolves it in the fork's worktree. The other meanings are reported. A prefix selects one:
//!
//! ```text
//! snapshot:NAME          fork:NAME          fork:NAME@SNAPSHOT          rev:REVISION
//! ```
//!
//! `NAME@SNAPSHOT` without a prefix also means the snapshot of that fork.

use std::fmt;
use std::path::Path;

use super::fork_point::fork_point;
use super::{ChangeError, snapshots};
use tine_git::{GitError, ObjectId};
use tine_store::{ForkName, ForkRecord, Store, StoreError};

/// Word for the fork point.
const PRISTINE: &str = "pristine";

/// Meaning of a word.
///
/// It is displayed with its prefix, so that it parses as the same meaning again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Point {
    /// A snapshot of the fork in question.
    Snapshot(ForkName),
    /// The current view of a fork.
    Fork(ForkName),
    /// A snapshot of the named fork: fork, then snapshot.
    SnapshotOf(ForkName, ForkName),
    /// The fork point of the fork in question.
    Pristine,
    /// A commit or tree, as a revision that git resolves.
    Revision(String),
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Point::Snapshot(snapshot) => write!(f, "snapshot:{snapshot}"),
            Point::Fork(fork) => write!(f, "fork:{fork}"),
            Point::SnapshotOf(fork, snapshot) => write!(f, "fork:{fork}@{snapshot}"),
            Point::Pristine => f.write_str(PRISTINE),
            Point::Revision(revision) => write!(f, "rev:{revision}"),
        }
    }
}

/// State of a point's tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PointTree {
    /// A view, whose tree must be written first.
    Unwritten,
    /// A tree that exists.
    Known {
        /// Tree of the point.
        tree_id: ObjectId,
        /// Commit of that tree; `None` if the point is a bare tree.
        commit_id: Option<ObjectId>,
    },
}

/// Point that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundPoint {
    /// Meaning of the word.
    pub point: Point,
    /// State of its tree.
    pub tree: PointTree,
    /// Other existing meanings of the word.
    pub others: Vec<Point>,
}

impl Point {
    /// Returns the possible meanings of `word`, in order of precedence.
    ///
    /// `name` is the fork in question. With a prefix there is one meaning.
    fn meanings(name: &ForkName, word: &str) -> Result<Vec<Point>, ChangeError> {
        let snapshot_name = |snapshot: &str| {
            ForkName::parse(snapshot).map_err(|_| ChangeError::NoSuchPoint {
                fork: name.clone(),
                word: word.to_owned(),
            })
        };
        if let Some(snapshot) = word.strip_prefix("snapshot:") {
            return Ok(vec![Point::Snapshot(snapshot_name(snapshot)?)]);
        }
        if let Some(fork) = word.strip_prefix("fork:") {
            return Ok(vec![match fork.split_once('@') {
                Some((fork, snapshot)) => {
                    Point::SnapshotOf(ForkName::parse(fork)?, snapshot_name(snapshot)?)
                }
                None => Point::Fork(ForkName::parse(fork)?),
            }]);
        }
        if let Some(revision) = word.strip_prefix("rev:") {
            return Ok(vec![Point::Revision(revision.to_owned())]);
        }
        let mut meanings = Vec::new();
        if let Ok(word) = ForkName::parse(word) {
            meanings.extend([Point::Snapshot(word.clone()), Point::Fork(word)]);
        }
        if let Some((fork, snapshot)) = word.split_once('@')
            && let (Ok(fork), Ok(snapshot)) = (ForkName::parse(fork), ForkName::parse(snapshot))
        {
            meanings.push(Point::SnapshotOf(fork, snapshot));
        }
        if word == PRISTINE {
            meanings.push(Point::Pristine);
        }
        meanings.push(Point::Revision(word.to_owned()));
        Ok(meanings)
    }

    /// Finds the meaning of `word` for the fork `name`. Writes nothing.
    ///
    /// # Errors
    /// [`ChangeError::NoSuchPoint`] if nothing by that name exists, and the errors of reading
    /// records and refs.
    pub fn find(store: &Store, name: &ForkName, word: &str) -> Result<FoundPoint, ChangeError> {
        let meanings = Point::meanings(name, word)?;
        let has_prefix = ["snapshot:", "fork:", "rev:"]
            .iter()
            .any(|prefix| word.starts_with(prefix));
        if let [only] = meanings.as_slice()
            && has_prefix
        {
            return only.clone().found(store, name);
        }
        let record = store.record(name)?;
        let mut found: Option<FoundPoint> = None;
        for point in meanings {
            match (point.tree(store, &record), &mut found) {
                (Ok(_), Some(found)) => found.others.push(point),
                (Ok(tree), None) => {
                    found = Some(FoundPoint {
                        point,
                        tree,
                        others: Vec::new(),
                    });
                }
                (Err(error), None) if !is_missing(&error) => return Err(error),
                (Err(_), _) => {}
            }
        }
        found.ok_or_else(|| ChangeError::NoSuchPoint {
            fork: name.clone(),
            word: word.to_owned(),
        })
    }

    /// Finds the meaning of `word` without a fork in question. Writes nothing.
    ///
    /// It may be a fork, a snapshot (`fork@snapshot`), or a revision in the worktree with
    /// `git_dir`.
    ///
    /// # Errors
    /// [`ChangeError::NothingCalled`] if nothing by that name exists, and the errors of reading
    /// records and refs.
    pub fn find_anywhere(
        store: &Store,
        git_dir: &Path,
        word: &str,
    ) -> Result<FoundPoint, ChangeError> {
        let name = word.strip_prefix("fork:").unwrap_or(word);
        let mut meanings = Vec::new();
        match name.split_once('@') {
            Some((fork, snapshot)) => {
                if let (Ok(fork), Ok(snapshot)) = (ForkName::parse(fork), ForkName::parse(snapshot))
                {
                    meanings.push(Point::SnapshotOf(fork, snapshot));
                }
            }
            None => meanings.extend(ForkName::parse(name).ok().map(Point::Fork)),
        }
        let mut found: Vec<(Point, PointTree)> = Vec::new();
        for point in meanings {
            let (Point::Fork(fork) | Point::SnapshotOf(fork, _)) = &point else {
                continue;
            };
            let tree = store
                .record(fork)
                .map_err(ChangeError::from)
                .and_then(|record| point.tree(store, &record));
            match tree {
                Ok(tree) => found.push((point, tree)),
                Err(error) if is_missing(&error) => {}
                Err(error) => return Err(error),
            }
        }
        if !word.starts_with("fork:") {
            let revision = word.strip_prefix("rev:").unwrap_or(word);
            match store.repository().resolve_tree(git_dir, revision) {
                Ok((tree_id, commit_id)) => found.push((
                    Point::Revision(revision.to_owned()),
                    PointTree::Known { tree_id, commit_id },
                )),
                Err(GitError::UnknownRevision(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let mut found = found.into_iter();
        match found.next() {
            Some((point, tree)) => Ok(FoundPoint {
                point,
                tree,
                others: found.map(|(point, _)| point).collect(),
            }),
            None => Err(ChangeError::NothingCalled(word.to_owned())),
        }
    }

    /// Finds this point for the fork `name`. Writes nothing.
    ///
    /// # Errors
    /// [`ChangeError::Store`] or [`ChangeError::Git`] if there is no such point or it cannot be
    /// read.
    pub fn found(self, store: &Store, name: &ForkName) -> Result<FoundPoint, ChangeError> {
        Ok(FoundPoint {
            tree: self.tree(store, &store.record(name)?)?,
            point: self,
            others: Vec::new(),
        })
    }

    /// Returns the state of the point's tree.
    ///
    /// # Errors
    /// The point does not exist or cannot be read.
    fn tree(&self, store: &Store, record: &ForkRecord) -> Result<PointTree, ChangeError> {
        match self {
            Point::Snapshot(snapshot) => find_snapshot(store, &record.name, snapshot),
            Point::SnapshotOf(fork, snapshot) => {
                store.record(fork)?;
                find_snapshot(store, fork, snapshot)
            }
            Point::Fork(fork) => {
                store.record(fork)?;
                Ok(PointTree::Unwritten)
            }
            Point::Pristine => {
                let repository = store.repository();
                let worktree = store.worktree_of(&record.name)?;
                let head = repository.head_of(worktree.git_dir())?.commit_id();
                let commit_id = fork_point(repository, record, head)?;
                let tree_id = repository.tree_of(commit_id)?;
                Ok(PointTree::Known { tree_id, commit_id })
            }
            Point::Revision(revision) => {
                let worktree = store.worktree_of(&record.name)?;
                let (tree_id, commit_id) = store
                    .repository()
                    .resolve_tree(worktree.git_dir(), revision)?;
                Ok(PointTree::Known { tree_id, commit_id })
            }
        }
    }
}

fn find_snapshot(
    store: &Store,
    fork: &ForkName,
    snapshot: &ForkName,
) -> Result<PointTree, ChangeError> {
    let snapshot = store.snapshot(fork, snapshot)?;
    Ok(
        match snapshots::written_tree(store.repository(), &snapshot) {
            Some(tree_id) => PointTree::Known {
                tree_id,
                commit_id: None,
            },
            None => PointTree::Unwritten,
        },
    )
}

/// Maps an error to "the record of `name` is damaged", for `map_err`.
pub(super) fn damaged<E: fmt::Display>(name: &ForkName) -> impl Fn(E) -> ChangeError + '_ {
    move |error| {
        ChangeError::Store(StoreError::Damaged {
            path: format!("the record of {name}").into(),
            reason: error.to_string(),
        })
    }
}

/// Returns whether the error only means that nothing has that name.
fn is_missing(error: &ChangeError) -> bool {
    matches!(
        error,
        ChangeError::NoSuchPoint { .. }
            | ChangeError::Store(StoreError::NoSuchFork(_) | StoreError::NoSuchSnapshot { .. })
            | ChangeError::Git(GitError::UnknownRevision(_))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meanings(word: &str) -> Result<Vec<String>, ChangeError> {
        let name = ForkName::parse("own").expect("a good name");
        let meanings = Point::meanings(&name, word)?;
        Ok(meanings.iter().map(Point::to_string).collect())
    }

    #[test]
    fn a_word_means_the_nearest_thing_first() {
        assert_eq!(
            meanings("demo").unwrap(),
            ["snapshot:demo", "fork:demo", "rev:demo"]
        );
        assert_eq!(
            meanings("pristine").unwrap(),
            [
                "snapshot:pristine",
                "fork:pristine",
                "pristine",
                "rev:pristine"
            ]
        );
        assert_eq!(
            meanings("HEAD~2").unwrap(),
            ["rev:HEAD~2"],
            "no other's name"
        );
        assert_eq!(
            meanings("demo@before").unwrap(),
            ["fork:demo@before", "rev:demo@before"]
        );
    }

    #[test]
    fn a_prefix_leaves_one_meaning() {
        for word in [
            "snapshot:demo",
            "fork:demo",
            "fork:demo@before",
            "rev:demo",
            "rev:fork:x",
        ] {
            assert_eq!(meanings(word).unwrap(), [word]);
        }
        for word in [
            "fork:../x",
            "fork:@x",
            "fork:demo@",
            "snapshot:",
            "snapshot:../x",
        ] {
            assert!(meanings(word).is_err(), "{word}");
        }
    }
}
