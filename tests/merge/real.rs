//! Merges of real histories: `scripts/merge-parity REPO…`.

use std::path::Path;

use tine::git::{ObjectId, Repository};

use crate::against_git::{Compared, compare_paths, compare_strategies, compare_texts};
use crate::listing::{ParseId, output};

/// Those of `TINE_MERGE_REPOSITORIES` (paths with colons between), at most `TINE_MERGE_LIMIT` of
/// each, spread over the whole history.
#[test]
#[ignore = "needs TINE_MERGE_REPOSITORIES, see scripts/merge-parity"]
fn real_merges_come_out_as_git_merges_them() {
    let repositories = std::env::var("TINE_MERGE_REPOSITORIES").expect("it names repositories");
    let limit = std::env::var("TINE_MERGE_LIMIT")
        .ok()
        .and_then(|limit| limit.parse().ok());
    let mut failed = false;
    for dir in repositories.split(':') {
        let repository = Repository::discover(Path::new(dir)).unwrap();
        let [mut texts, mut paths, mut strategies] = [(); 3].map(|()| Compared::default());
        let merges = merges(&repository, limit.unwrap_or(300));
        for (number, [ours, theirs]) in merges.iter().copied().enumerate() {
            compare_texts(&repository, ours, theirs, &mut texts);
            if let [base] = repository.merge_bases(ours, theirs).unwrap()[..] {
                compare_paths(&repository, base, ours, theirs, &mut paths);
            }
            compare_strategies(&repository, ours, theirs, &mut strategies);
            if number % 50 == 49 {
                eprintln!("{} of {}", number + 1, merges.len());
            }
        }
        println!("{dir}");
        for (what, compared) in [
            ("text", &texts),
            ("path", &paths),
            ("strategies", &strategies),
        ] {
            println!(
                "  {what}: {} merges, {} clean, {} conflicts, {} differences; {} texts compared, {} others",
                compared.merges,
                compared.clean,
                compared.conflicts,
                compared.differences.len(),
                compared.texts,
                compared.other_texts.len()
            );
            println!("    {:?}", compared.kinds);
            if !compared.own_time.is_zero() {
                println!("    in {} ms", compared.own_time.as_millis());
            }
            if !compared.git_time.is_zero() {
                println!("    git alone in {} ms", compared.git_time.as_millis());
            }
            for line in compared.differences.iter().chain(&compared.other_texts) {
                println!("    {line}");
            }
            failed |= !compared.differences.is_empty();
        }
    }
    assert!(!failed, "there are differences");
}

/// The parents of merges of two.
fn merges(repository: &Repository, limit: usize) -> Vec<[ObjectId; 2]> {
    let printed = output(
        repository.common_dir(),
        &[
            "rev-list",
            "--all",
            "--merges",
            "--max-parents=2",
            "--parents",
        ],
    );
    let printed = String::from_utf8(printed).unwrap();
    let all: Vec<[ObjectId; 2]> = printed
        .lines()
        .map(|line| {
            let mut ids = line.split(' ').skip(1).map(|id| id.parse_id());
            [ids.next().unwrap(), ids.next().unwrap()]
        })
        .collect();
    let step = all.len().div_ceil(limit.max(1)).max(1);
    all.into_iter().step_by(step).collect()
}
