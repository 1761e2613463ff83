//! Random histories, merged by tine and by git.

use tine::git::Repository;
use tine::merge::{Level, MergeOptions, MergeSide, Strategy, merge};

use crate::against_git::{
    Compared, compare_paths, compare_strategies, compare_texts, input, options, resolved, try_merge,
};
use crate::histories::{self, Pair};
use crate::support::{Random, SayWhich, TestRepo, soaking};

const SEED: &str = "TINE_MERGE_SEED";

/// How many histories; `TINE_MERGE_CASES` says otherwise.
fn cases() -> usize {
    let given = std::env::var("TINE_MERGE_CASES")
        .ok()
        .and_then(|number| number.parse().ok());
    given.unwrap_or(if soaking() { 6000 } else { 120 })
}

fn with_histories(count: usize, test: impl FnOnce(&Repository, &[Pair])) {
    let (mut random, seed) = Random::from_environment(SEED);
    let _say = SayWhich(SEED, seed);
    let repo = TestRepo::unborn();
    let pairs = histories::write(&repo, &mut random, count);
    test(&Repository::discover(repo.dir()).unwrap(), &pairs);
}

#[track_caller]
fn assert_same(compared: &Compared) {
    assert!(
        compared.differences.is_empty(),
        "{} differences:\n{}",
        compared.differences.len(),
        compared.differences.join("\n")
    );
}

#[test]
fn random_histories_merge_as_git_merges_them() {
    with_histories(cases(), |repository, pairs| {
        let mut compared = Compared::default();
        for pair in pairs {
            compare_texts(repository, pair.ours, pair.theirs, &mut compared);
        }
        assert_same(&compared);
        println!(
            "{} merges, {} clean, {} conflicts: {:?}",
            compared.merges, compared.clean, compared.conflicts, compared.kinds
        );
        assert!(compared.clean > pairs.len() / 10 && compared.clean < pairs.len());
        // Other markers have one reason: another of several ways to match lines that occur often.
        let others = compared.other_texts.len();
        println!("{others} of {} texts have other markers", compared.texts);
        assert!(
            others * 20 <= compared.texts + 40,
            "{}",
            compared.other_texts.join("\n")
        );
    });
}

#[test]
fn random_histories_merge_by_whole_files_as_git_read_tree_merges_them() {
    with_histories(cases(), |repository, pairs| {
        let mut compared = Compared::default();
        for pair in pairs {
            if let Some(base) = pair.base {
                compare_paths(repository, base, pair.ours, pair.theirs, &mut compared);
            }
        }
        assert_same(&compared);
        println!(
            "{} merges, {} clean: {:?}",
            compared.merges, compared.clean, compared.kinds
        );
        assert!(compared.clean < compared.merges);
    });
}

#[test]
fn strategies_settle_texts_as_git_does() {
    with_histories(cases() / 2, |repository, pairs| {
        let mut compared = Compared::default();
        for pair in pairs {
            compare_strategies(repository, pair.ours, pair.theirs, &mut compared);
        }
        assert_same(&compared);
        let others = compared.other_texts.len();
        assert!(
            others * 20 <= compared.merges + 40,
            "{}",
            compared.other_texts.join("\n")
        );
    });
}

#[test]
fn strategies_leave_open_what_they_have_no_answer_for() {
    with_histories(cases() / 4, |repository, pairs| {
        for pair in pairs {
            let input = input(pair.ours, pair.theirs);
            for level in [Level::Text, Level::Path] {
                let Some(open) = try_merge(repository, &input, &options(level, Strategy::Abort))
                else {
                    continue;
                };
                assert!(open.settled.is_empty());
                for strategy in [Strategy::Ours, Strategy::Theirs, Strategy::Union] {
                    let merged = merge(repository, &input, &options(level, strategy)).unwrap();
                    assert_eq!(
                        merged.conflicts.len() + merged.settled.len(),
                        open.conflicts.len()
                    );
                    assert!(merged.conflicts.is_empty() || strategy == Strategy::Union);
                    let all = || merged.conflicts.iter().chain(&merged.settled);
                    assert!(all().all(|conflict| open.conflicts.contains(conflict)));
                }
            }
        }
    });
}

#[test]
fn every_conflict_can_be_resolved_to_every_side() {
    with_histories(cases() / 4, |repository, pairs| {
        for pair in pairs {
            for level in [Level::Text, Level::Path] {
                let options = MergeOptions {
                    level,
                    ..MergeOptions::default()
                };
                let Some(merged) = try_merge(repository, &input(pair.ours, pair.theirs), &options)
                else {
                    continue;
                };
                for side in [MergeSide::Base, MergeSide::Ours, MergeSide::Theirs] {
                    resolved(repository, &merged, side);
                }
            }
        }
    });
}
