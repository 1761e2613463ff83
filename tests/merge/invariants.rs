//! What must hold of every merge.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use tine::git::{ObjectId, Repository};
use tine::merge::{Conflict, ConflictKind, Level, MergeInput, MergeOutcome, Strategy};

use crate::against_git::{options, try_merge};
use crate::histories::{self, Pair};
use crate::support::{Random, SayWhich, TestRepo};

const SEED: &str = "TINE_MERGE_SEED";

fn with_histories(count: usize, test: impl FnOnce(&TestRepo, &Repository, &[Pair])) {
    let (mut random, seed) = Random::from_environment(SEED);
    let _say = SayWhich(SEED, seed);
    let repo = TestRepo::new();
    let pairs = histories::write(&repo, &mut random, count);
    test(&repo, &Repository::discover(repo.dir()).unwrap(), &pairs);
}

/// `None` where git dies of it.
fn merged(
    repository: &Repository,
    [base, ours, theirs]: [ObjectId; 3],
    level: Level,
) -> Option<MergeOutcome> {
    let input = MergeInput {
        base: Some(base),
        ours,
        theirs,
        allow_unrelated: false,
    };
    try_merge(repository, &input, &options(level, Strategy::Abort))
}

/// All files beneath `dir` with their contents, but for the object database, which grows.
fn all_files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let kind = fs::symlink_metadata(&path).unwrap().file_type();
            if kind.is_dir() && !path.ends_with(".git/objects") {
                open.push(path);
            } else if kind.is_file() {
                let content = fs::read(&path).unwrap();
                files.insert(path, content);
            } else if kind.is_symlink() {
                let target = fs::read_link(&path).unwrap();
                files.insert(path, target.into_os_string().into_encoded_bytes());
            }
        }
    }
    files
}

#[test]
fn invariant_09_merging_touches_neither_refs_nor_the_checkout() {
    with_histories(12, |repo, repository, pairs| {
        repo.write("docs/guide.md", "changed and not committed\n");
        let before = all_files(repo.dir());
        assert!(before.len() > 10);
        for pair in pairs {
            let input = MergeInput {
                base: None,
                ours: pair.ours,
                theirs: pair.theirs,
                allow_unrelated: false,
            };
            for level in [Level::Text, Level::Path] {
                for strategy in [
                    Strategy::Abort,
                    Strategy::Ours,
                    Strategy::Theirs,
                    Strategy::Union,
                ] {
                    let first = try_merge(repository, &input, &options(level, strategy));
                    let again = try_merge(repository, &input, &options(level, strategy));
                    assert_eq!(first, again, "the same input gives the same outcome");
                }
            }
        }
        let after = all_files(repo.dir());
        assert!(before.keys().eq(after.keys()));
        for (path, content) in before {
            assert!(after[&path] == content, "{} changed", path.display());
        }
    });
}

#[test]
fn invariant_10_what_one_side_changed_comes_unchanged() {
    with_histories(40, |_, repository, pairs| {
        for pair in pairs {
            let (base, side) = (pair.ours, pair.theirs);
            let expected = repository.peel_to_tree(side).unwrap();
            for level in [Level::Text, Level::Path] {
                for three in [[base, base, side], [base, side, base], [base, side, side]] {
                    let outcome = merged(repository, three, level).unwrap();
                    assert_eq!(outcome.tree_id, expected, "{level:?} {three:?}");
                    assert!(outcome.conflicts.is_empty() && outcome.settled.is_empty());
                }
            }
        }
    });
}

#[test]
fn invariant_10_swapped_sides_mirror_the_conflicts() {
    with_histories(60, |_, repository, pairs| {
        for pair in pairs {
            let Some(base) = pair.base else {
                continue;
            };
            for level in [Level::Text, Level::Path] {
                let outcome = merged(repository, [base, pair.ours, pair.theirs], level);
                let swapped = merged(repository, [base, pair.theirs, pair.ours], level);
                let (Some(outcome), Some(swapped)) = (outcome, swapped) else {
                    continue;
                };
                let what = format!("{level:?} {pair:?}");
                assert_eq!(outcome.tree_id, swapped.tree_id, "{what}");
                let mirrored: Vec<Conflict> = swapped.conflicts.into_iter().map(mirrored).collect();
                let outcome: Vec<Conflict> =
                    outcome.conflicts.into_iter().map(without_markers).collect();
                let mirrored: Vec<Conflict> = mirrored.into_iter().map(without_markers).collect();
                assert_eq!(outcome, mirrored, "{what}");
            }
        }
    });
}

fn mirrored(mut conflict: Conflict) -> Conflict {
    std::mem::swap(&mut conflict.ours, &mut conflict.theirs);
    conflict
}

/// Where one file got two names git has merged its texts already, and written markers: ours come
/// first in them.
fn without_markers(mut conflict: Conflict) -> Conflict {
    if conflict.kind == ConflictKind::RenameRename {
        for version in conflict.ours.iter_mut().chain(&mut conflict.theirs) {
            version.id = ObjectId::null(version.id.kind());
        }
    }
    conflict
}
