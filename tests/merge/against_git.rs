//! One merge, by tine and by git, and everything in which they differ.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use tine::git::{ObjectId, Repository, TreeChange};
use tine::merge::{
    Conflict, ConflictKind, Level, MarkerOptions, MergeInput, MergeOptions, MergeOutcome,
    MergeSide, Resolution, Strategy, merge, text_of,
};

use crate::listing::{
    Listing, Staged, files, git, is_regular, merge_by_git, merge_one_way, output, real_path,
    versions,
};
use crate::support::{OutputExt, run_with_timeout};

/// What was compared, and what was not the same.
#[derive(Debug, Default)]
pub struct Compared {
    pub merges: usize,
    pub clean: usize,
    pub conflicts: usize,
    /// What merging took, and what git alone took.
    pub own_time: Duration,
    pub git_time: Duration,
    /// How many conflicts of each kind.
    pub kinds: BTreeMap<String, usize>,
    /// Texts in conflict whose markers were compared with git's.
    pub texts: usize,
    /// Of those, the ones with other markers.
    pub other_texts: Vec<String>,
    pub differences: Vec<String>,
}

/// Merges; `None` where git dies of it or loses a version, both ways round, as it does in rare
/// cases of renamed directories.
pub fn try_merge(
    repository: &Repository,
    input: &MergeInput,
    options: &MergeOptions,
) -> Option<MergeOutcome> {
    match merge(repository, input, options) {
        Ok(outcome) => Some(outcome),
        Err(error) => {
            let git_dir = repository.common_dir();
            let options: &[&str] = if input.allow_unrelated {
                &["--allow-unrelated-histories"]
            } else {
                &[]
            };
            let base = input.base.map(|base| format!("--merge-base={base}"));
            let options: Vec<&str> = options.iter().copied().chain(base.as_deref()).collect();
            let by_git = merge_by_git(git_dir, input.ours, input.theirs, &options);
            assert!(by_git.is_none(), "{error}");
            println!("git cannot: {error}");
            None
        }
    }
}

impl Compared {
    fn count(&mut self, merged: &MergeOutcome) {
        self.conflicts += merged.conflicts.len();
        for conflict in &merged.conflicts {
            *self
                .kinds
                .entry(format!("{:?}", conflict.kind))
                .or_default() += 1;
        }
    }
}

pub fn input(ours: ObjectId, theirs: ObjectId) -> MergeInput {
    MergeInput {
        base: None,
        ours,
        theirs,
        allow_unrelated: true,
    }
}

pub fn options(level: Level, strategy: Strategy) -> MergeOptions {
    MergeOptions {
        level,
        strategy,
        ..MergeOptions::default()
    }
}

/// As git merges: trees, unmerged entries, texts with markers.
pub fn compare_texts(
    repository: &Repository,
    ours: ObjectId,
    theirs: ObjectId,
    compared: &mut Compared,
) {
    let git_dir = repository.common_dir();
    let what = format!("{ours} {theirs}");
    let started = Instant::now();
    let Some(merged) = try_merge(repository, &input(ours, theirs), &MergeOptions::default()) else {
        return;
    };
    compared.own_time += started.elapsed();
    let started = Instant::now();
    let by_git = merge_by_git(git_dir, ours, theirs, &["--allow-unrelated-histories"])
        .expect("git could do it");
    compared.git_time += started.elapsed();
    let mut differences = check(&merged, git_dir);
    compared.merges += 1;
    compared.clean += usize::from(by_git.is_clean);
    compared.count(&merged);
    if by_git.is_clean != merged.conflicts.is_empty() {
        differences.push(format!("git: clean is {}", by_git.is_clean));
    }
    let real = |path: &[u8]| real_path(path, [ours, theirs]);
    let stages: BTreeSet<Staged> = by_git
        .stages
        .iter()
        .map(|(path, stage, mode, id)| (real(path), *stage, *mode, *id))
        .collect();
    if stages != versions(&merged.conflicts) {
        differences.push(format!("git has {stages:?}, not {:?}", merged.conflicts));
    }
    let mut expected = files(git_dir, by_git.tree_id);
    let git_tree = expected.clone();
    for (path, ..) in &by_git.stages {
        expected.remove(path);
    }
    let found = files(git_dir, merged.tree_id);
    if found != expected {
        differences.push(format!("{:?}", unequal(&found, &expected)));
    }
    for conflict in &merged.conflicts {
        if let Some(difference) = compare_markers(repository, conflict, &git_tree, [ours, theirs]) {
            compared.texts += 1;
            compared
                .other_texts
                .extend(difference.map(|text| format!("{what} {}: {text}", conflict.path)));
        }
    }
    compared.differences.extend(
        differences
            .into_iter()
            .map(|difference| format!("{what}: {difference}")),
    );
}

/// `None` where there is nothing to compare.
fn compare_markers(
    repository: &Repository,
    conflict: &Conflict,
    git_tree: &Listing,
    [ours, theirs]: [ObjectId; 2],
) -> Option<Option<String>> {
    let text = text_of(repository, conflict).unwrap()?;
    let (_, by_git) = git_tree.get(conflict.path.as_bytes())?;
    let by_git = repository.read_blob(*by_git).unwrap();
    let rendered = |ours: String, theirs: String| {
        text.render(&MarkerOptions {
            ours_label: Some(ours),
            theirs_label: Some(theirs),
            ..MarkerOptions::default()
        })
    };
    let plain = rendered(ours.to_string(), theirs.to_string());
    if plain == by_git {
        return Some(None);
    }
    // Where a file was renamed git tells whose name was which, which a conflict does not keep.
    let marked = |id: ObjectId| {
        by_git
            .windows(41)
            .any(|window| window == format!("{id}:").as_bytes())
    };
    if marked(ours) || marked(theirs) {
        return None;
    }
    Some(Some(format!(
        "{} bytes with markers, {} by git",
        plain.len(),
        by_git.len()
    )))
}

/// Whole files beside `git read-tree -m`, which knows no renames either.
pub fn compare_paths(
    repository: &Repository,
    base: ObjectId,
    ours: ObjectId,
    theirs: ObjectId,
    compared: &mut Compared,
) {
    let git_dir = repository.common_dir();
    let what = format!("{base} {ours} {theirs}");
    let input = MergeInput {
        base: Some(base),
        ..input(ours, theirs)
    };
    let started = Instant::now();
    let merged = merge(repository, &input, &options(Level::Path, Strategy::Abort)).unwrap();
    compared.own_time += started.elapsed();
    compared.merges += 1;
    compared.clean += usize::from(merged.conflicts.is_empty());
    compared.count(&merged);
    let mut differences = check(&merged, git_dir);
    let tree = |commit: ObjectId| files(git_dir, repository.peel_to_tree(commit).unwrap());
    let sides = [base, ours, theirs].map(tree);
    let found = files(git_dir, merged.tree_id);
    let open = |path: &[u8]| {
        merged
            .conflicts
            .iter()
            .find(|conflict| conflict.path.as_bytes() == path)
    };
    let (settled, unmerged) = read_tree(git_dir, [base, ours, theirs]);
    for (path, entry) in &settled {
        if found.get(path) != Some(entry) && open(path).is_none() {
            differences.push(format!("git has {entry:?} at {}", path.escape_ascii()));
        }
    }
    for conflict in &merged.conflicts {
        let path = conflict.path.as_bytes();
        // git sees the other kind of conflict only when it would write the files.
        if !unmerged.contains(path) && conflict.kind != ConflictKind::DirectoryFile {
            differences.push(format!("only here: {conflict:?}"));
        }
    }
    for path in unmerged.iter().filter(|path| open(path).is_none()) {
        let entries = sides.each_ref().map(|files| files.get(path).copied());
        // The executable bit and the content merge apart, and one file is not in the way of what
        // was a directory.
        let is_apart = entries
            .iter()
            .all(|entry| entry.is_some_and(|(mode, _)| is_regular(mode)));
        let stays = found.contains_key(path);
        if !(is_apart && stays || is_taken_by_one(&entries, found.get(path).copied())) {
            differences.push(format!("only git: {} {entries:?}", path.escape_ascii()));
        }
    }
    for path in found.keys() {
        if !settled.contains_key(path) && !unmerged.contains(path) {
            differences.push(format!("only here: {}", path.escape_ascii()));
        }
    }
    compared.differences.extend(
        differences
            .into_iter()
            .map(|difference| format!("{what}: {difference}")),
    );
}

type Entry = Option<(u32, ObjectId)>;

/// Whether only one side differs from the base, and the merge has that.
fn is_taken_by_one([base, ours, theirs]: &[Entry; 3], merged: Entry) -> bool {
    (base == ours && merged == *theirs)
        || (base == theirs && merged == *ours)
        || (ours == theirs && merged == *ours)
}

/// What `git read-tree` merges, and the paths that it leaves unmerged.
fn read_tree(git_dir: &Path, trees: [ObjectId; 3]) -> (Listing, BTreeSet<Vec<u8>>) {
    let place = tempfile::tempdir().unwrap();
    let index = place.path().join("index");
    let trees = trees.map(|id| id.to_string());
    let mut command = git(git_dir, &["read-tree", "-i", "-m", "--aggressive"]);
    run_with_timeout(command.args(&trees).env("GIT_INDEX_FILE", &index))
        .expect_success("git read-tree");
    let mut command = git(git_dir, &["ls-files", "-s", "-z"]);
    let printed = run_with_timeout(command.env("GIT_INDEX_FILE", &index))
        .expect_success("git ls-files")
        .stdout;
    let (mut settled, mut unmerged) = (Listing::new(), BTreeSet::new());
    for line in printed
        .split(|&byte| byte == 0)
        .filter(|line| !line.is_empty())
    {
        let tab = line.iter().position(|&byte| byte == b'\t').unwrap();
        let head = String::from_utf8(line[..tab].to_vec()).unwrap();
        let words: Vec<&str> = head.split(' ').collect();
        let path = line[tab + 1..].to_vec();
        if words[2] == "0" {
            let mode = u32::from_str_radix(words[0], 8).unwrap();
            settled.insert(
                path,
                (mode, ObjectId::from_hex(words[1].as_bytes()).unwrap()),
            );
        } else {
            unmerged.insert(path);
        }
    }
    (settled, unmerged)
}

/// A strategy beside git's own, where git has one and only texts are in conflict.
pub fn compare_strategies(
    repository: &Repository,
    ours: ObjectId,
    theirs: ObjectId,
    compared: &mut Compared,
) {
    let git_dir = repository.common_dir();
    for (strategy, option) in [(Strategy::Ours, "-Xours"), (Strategy::Theirs, "-Xtheirs")] {
        let what = format!("{option} {ours} {theirs}");
        let Some(merged) = try_merge(
            repository,
            &input(ours, theirs),
            &options(Level::Text, strategy),
        ) else {
            return;
        };
        if !merged.conflicts.is_empty() {
            compared
                .differences
                .push(format!("{what}: open are {:?}", merged.conflicts));
        }
        let is_text = |conflict: &Conflict| text_of(repository, conflict).unwrap().is_some();
        let allowed = ["--allow-unrelated-histories", option];
        let Some(by_git) = merge_one_way(git_dir, [ours, theirs], &allowed) else {
            continue;
        };
        if !merged.settled.iter().all(is_text) || !by_git.is_clean {
            continue;
        }
        compared.merges += 1;
        let (found, expected) = (
            files(git_dir, merged.tree_id),
            files(git_dir, by_git.tree_id),
        );
        for path in unequal(&found, &expected) {
            compared.other_texts.push(format!("{what}: {path}"));
        }
    }
}

/// What holds of every outcome.
fn check(merged: &MergeOutcome, git_dir: &Path) -> Vec<String> {
    let mut wrong = Vec::new();
    let found = files(git_dir, merged.tree_id);
    let all = || merged.conflicts.iter().chain(&merged.settled);
    let mut seen = BTreeSet::new();
    for conflict in all() {
        if !conflict.paths.contains(&conflict.path) || !conflict.paths.is_sorted() {
            wrong.push(format!("its paths are not in order: {conflict:?}"));
        }
        for path in &conflict.paths {
            if !seen.insert(path.clone()) {
                wrong.push(format!("{path} is in two conflicts"));
            }
        }
        let is_named = |path| conflict.paths.contains(path);
        let versions = || {
            [MergeSide::Base, MergeSide::Ours, MergeSide::Theirs]
                .map(|side| conflict.versions(side))
        };
        if !versions()
            .into_iter()
            .flatten()
            .all(|version| is_named(&version.path))
        {
            wrong.push(format!("a version is elsewhere: {conflict:?}"));
        }
    }
    for conflict in &merged.conflicts {
        let has_versions = [&conflict.base, &conflict.ours, &conflict.theirs]
            .iter()
            .any(|versions| !versions.is_empty());
        for path in conflict.paths.iter().filter(|_| has_versions) {
            if found.contains_key(path.as_bytes()) {
                wrong.push(format!("{path} is in the tree, and in conflict"));
            }
        }
    }
    if !merged.conflicts.is_sorted_by(|a, b| a.path < b.path) {
        wrong.push("conflicts are not sorted".to_owned());
    }
    wrong
}

/// Every side of every conflict can be taken; the tree then.
pub fn resolved(repository: &Repository, merged: &MergeOutcome, side: MergeSide) -> ObjectId {
    let edits: Vec<TreeChange> = merged
        .conflicts
        .iter()
        .flat_map(|conflict| conflict.edits(&Resolution::Side(side)))
        .collect();
    let tree_id = repository.edit_tree(merged.tree_id, &edits).unwrap();
    output(
        repository.common_dir(),
        &["fsck", "--no-dangling", "--strict", &tree_id.to_string()],
    );
    tree_id
}

/// Paths at which two trees differ.
fn unequal(found: &Listing, expected: &Listing) -> Vec<String> {
    let paths: BTreeSet<&Vec<u8>> = found.keys().chain(expected.keys()).collect();
    paths
        .into_iter()
        .filter(|path| found.get(*path) != expected.get(*path))
        .map(|path| {
            let (found, expected) = (found.get(path), expected.get(path));
            format!("{}: {found:?}, by git {expected:?}", path.escape_ascii())
        })
        .collect()
}
