//! Sequences of commits and patches on random histories, beside what git makes of the same,
//! conflicts included.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Output;

use tine::change::ChangeError;
use tine::change::merge::Tip;
use tine::change::sequence::{
    Emptied, RunOptions, Sequence, SequenceItem, SequenceOutcome, of_mailbox, run,
};
use tine::git::mailbox::Subjects;
use tine::git::{GitError, ObjectId, Repository};
use tine::path::RepoPath;
use tine::store::Store;

use crate::histories::{self, Pair};
use crate::support::{
    OutputExt, Random, SayWhich, TestRepo, open_store, run_with_timeout, soaking,
};

const SEED: &str = "TINE_SEQUENCE_SEED";

fn cases() -> usize {
    if soaking() { 400 } else { 25 }
}

/// A repository with histories, what tine needs of it, and a checkout in which git does the same.
struct Place {
    repo: TestRepo,
    repository: Repository,
    store: Store,
    checkout: PathBuf,
    pairs: Vec<Pair>,
}

/// What came of it, in git or in tine.
#[derive(Debug, PartialEq, Eq)]
enum Came {
    /// Tree, author and message of each commit that was made.
    Commits(String),
    Tree(String),
    /// How many commits were made, and which paths are in conflict.
    Conflicts(usize, BTreeSet<Vec<u8>>),
    Empty,
    Refused,
}

fn with_places(test: impl Fn(&Place, &Pair)) {
    let (mut random, seed) = Random::from_environment(SEED);
    let _say = SayWhich(SEED, seed);
    let repo = TestRepo::unborn().without_maintenance();
    let pairs = histories::write_lines(&repo, &mut random, cases(), 3);
    let repository = Repository::discover(repo.dir()).expect("it is a repository");
    let store = open_store(&repository).expect("the store can be opened");
    let checkout = repo.git_checkout_of(&pairs[0].ours.to_string(), "by-git");
    let place = Place {
        repo,
        repository,
        store,
        checkout,
        pairs,
    };
    for pair in &place.pairs {
        test(&place, pair);
    }
}

impl Place {
    fn tip(&self, commit_id: ObjectId) -> Tip {
        let info = self
            .repository
            .commit_info(commit_id)
            .expect("it is a commit");
        Tip {
            commit_id: Some(commit_id),
            tree_id: info.tree_id,
        }
    }

    /// Whether the difference renames a file to a path that `on` has.
    fn renames_onto(&self, from: ObjectId, to: ObjectId, on: ObjectId) -> bool {
        let listed = run_with_timeout(self.repo.command("git", self.repo.dir()).args([
            "diff",
            "-M",
            "--name-status",
            "-z",
            "--diff-filter=R",
            &from.to_string(),
            &to.to_string(),
        ]));
        let fields: Vec<&[u8]> = listed.stdout.split(|&byte| byte == 0).collect();
        let tree_id = self.tip(on).tree_id;
        fields.chunks_exact(3).any(|renamed| {
            let target = RepoPath::parse(renamed[2]).expect("git has it in a tree");
            let there = self.repository.tree_entry(tree_id, &target);
            there.expect("the tree can be read").is_some()
        })
    }

    fn run(&self, sequence: &Sequence, on: ObjectId, view: Option<ObjectId>) -> Option<Came> {
        let options = RunOptions::default();
        match run(
            &self.store,
            &self.repository,
            sequence,
            self.tip(on),
            view,
            &options,
        ) {
            Ok(SequenceOutcome {
                stopped: Some(stopped),
                done,
                ..
            }) => {
                let versions = stopped.conflicts.iter().flat_map(|conflict| {
                    let sides = conflict
                        .base
                        .iter()
                        .chain(&conflict.ours)
                        .chain(&conflict.theirs);
                    sides.map(|version| version.path.to_bytes())
                });
                let made = done.iter().filter(|done| done.commit_id.is_some()).count();
                Some(Came::Conflicts(made, Place::files_only(versions.collect())))
            }
            Ok(ran) if view.is_some() => ran.view.map(|id| Came::Tree(id.to_string())),
            Ok(ran) => {
                let tip = ran.tip.commit_id.expect("it stands on a commit");
                Some(Came::Commits(self.told(on, &tip.to_string())))
            }
            Err(ChangeError::EmptyPick { .. }) => Some(Came::Empty),
            Err(ChangeError::Git(GitError::BadPatch { .. })) => Some(Came::Refused),
            // In rare cases of renamed directories git dies of a merge.
            Err(error) => {
                println!("skipped: {error}");
                None
            }
        }
    }

    /// Runs git in the checkout, at `commit_id` and clean.
    fn git(&self, commit_id: ObjectId, args: &[&str]) -> Output {
        // A git that died of a merge has left its lock.
        let clean = r#"rm -f "$(git rev-parse --git-path index.lock)"
            git rebase --abort || git am --quit || git cherry-pick --quit || :
            git reset -q --hard; git clean -qfdx"#;
        self.repo.sh_in(
            &self.checkout,
            &format!("({clean}) > /dev/null 2>&1; git checkout -q --detach {commit_id}"),
        );
        run_with_timeout(self.repo.command("git", &self.checkout).args(args))
    }

    fn came_of_git(&self, on: ObjectId, args: &[&str]) -> Option<Came> {
        let output = self.git(on, args);
        if output.status.success() {
            return Some(Came::Commits(self.told(on, &self.head())));
        }
        let listed = run_with_timeout(
            self.repo
                .command("git", &self.checkout)
                .args(["ls-files", "-u", "-z"]),
        );
        let paths: BTreeSet<Vec<u8>> = listed
            .stdout
            .split(|&byte| byte == 0)
            .filter(|line| !line.is_empty())
            .map(|line| {
                let path = line
                    .splitn(2, |&byte| byte == b'\t')
                    .nth(1)
                    .unwrap_or_default();
                // Where two things want one place git moves one aside.
                path.split(|&byte| byte == b'~')
                    .next()
                    .unwrap_or_default()
                    .to_vec()
            })
            .collect();
        let made = self
            .repo
            .git(&["rev-list", "--count", &format!("{on}..{}", self.head())]);
        match (paths.is_empty(), output.error_text()) {
            (false, _) => Some(Came::Conflicts(
                made.parse().expect("a number"),
                Place::files_only(paths),
            )),
            (true, text) if text.contains("is now empty") => Some(Came::Empty),
            (true, text) => {
                println!("git {args:?}: {text}");
                None
            }
        }
    }

    /// Without those that are directories of others: which of the two is in the way of the other is
    /// a matter of view.
    fn files_only(paths: BTreeSet<Vec<u8>>) -> BTreeSet<Vec<u8>> {
        let is_above = |path: &[u8]| {
            let dir = [path, b"/"].concat();
            paths.iter().any(|other| other.starts_with(&dir))
        };
        paths
            .iter()
            .filter(|path| !is_above(path))
            .cloned()
            .collect()
    }

    fn head(&self) -> String {
        self.repo.git_in(&self.checkout, &["rev-parse", "HEAD"])
    }

    fn told(&self, from: ObjectId, to: &str) -> String {
        let range = format!("{from}..{to}");
        self.repo
            .git(&["log", "--reverse", "--format=%T %an %ae %ad %B", &range])
    }

    fn parent(&self, commit_id: ObjectId) -> Option<String> {
        let info = self
            .repository
            .commit_info(commit_id)
            .expect("it is a commit");
        info.parent_ids.first().map(ObjectId::to_string)
    }

    fn pick(&self, commit_id: ObjectId) -> SequenceItem {
        SequenceItem::Pick {
            commit: commit_id.to_string(),
            parent: self.parent(commit_id),
            says_origin: false,
        }
    }
}

#[track_caller]
fn assert_same(tine: Option<Came>, git: Option<Came>, pair: &Pair) {
    if let (Some(tine), Some(git)) = (tine, git) {
        assert_eq!(tine, git, "{pair:?}");
    }
}

#[test]
fn commits_are_picked_as_git_cherry_pick_picks_them() {
    with_places(|place, pair| {
        let sequence = Sequence {
            emptied: Emptied::Stop,
            keep_empty: true,
            ..Sequence::of(vec![place.pick(pair.theirs)])
        };
        let theirs = pair.theirs.to_string();
        let git = place.came_of_git(pair.ours, &["cherry-pick", "--allow-empty", &theirs]);
        assert_same(place.run(&sequence, pair.ours, None), git, pair);
    });
}

#[test]
fn commits_are_made_again_as_git_rebase_makes_them() {
    with_places(|place, pair| {
        let commits = place
            .repository
            .commits_to_rebase(pair.ours, pair.theirs, pair.base);
        let items = commits.expect("they are listed").into_iter();
        let sequence = Sequence {
            onto: Some(pair.theirs.to_string()),
            reuse: true,
            ..Sequence::of(items.map(|id| place.pick(id)).collect())
        };
        let onto = pair.theirs.to_string();
        let output = place.came_of_git(pair.ours, &["rebase", "-q", "--no-fork-point", &onto]);
        // What stands on the other branch is told from there on.
        let git = match output {
            Some(Came::Commits(_)) => Some(Came::Commits(place.told(pair.theirs, &place.head()))),
            Some(Came::Conflicts(_, paths)) => {
                let made =
                    place
                        .repo
                        .git(&["rev-list", "--count", &format!("{onto}..{}", place.head())]);
                Some(Came::Conflicts(made.parse().expect("a number"), paths))
            }
            other => other,
        };
        let tine = match run(
            &place.store,
            &place.repository,
            &sequence,
            place.tip(pair.ours),
            None,
            &RunOptions::default(),
        ) {
            Ok(ran) if ran.stopped.is_none() => {
                let tip = ran
                    .tip
                    .commit_id
                    .expect("it stands on a commit")
                    .to_string();
                Some(Came::Commits(place.told(pair.theirs, &tip)))
            }
            _ => place.run(&sequence, pair.ours, None),
        };
        assert_same(tine, git, pair);
    });
}

#[test]
fn mails_are_applied_as_git_am_applies_them() {
    with_places(|place, pair| {
        let range = format!("{}..{}", pair.base.expect("there is one"), pair.theirs);
        let mailbox = place.repo.root().join("mailbox");
        let patches = run_with_timeout(place.repo.command("git", place.repo.dir()).args([
            "format-patch",
            "--stdout",
            "--always",
            "--binary",
            "--full-index",
            &range,
        ]))
        .expect_success("git format-patch");
        fs::write(&mailbox, &patches.stdout).expect("it can be written");
        let file = mailbox.to_str().expect("test directories are UTF-8");
        let items = of_mailbox(
            &place.store,
            &place.repository,
            &mailbox,
            Subjects::Cut,
            true,
        )
        .expect("they are mails");
        assert_eq!(items.len(), 3);
        let git = place.came_of_git(pair.ours, &["am", "-q", "--3way", "--empty=keep", file]);
        // Of a mode that is there already git makes a commit that changes nothing.
        let trees = place.repo.git(&[
            "log",
            "--format=%T",
            &format!("{}~1..{}", pair.ours, place.head()),
        ]);
        let mut trees: Vec<&str> = trees.lines().collect();
        let made = trees.len();
        trees.dedup();
        if trees.len() < made {
            return;
        }
        let tine = place.run(&Sequence::of(items), pair.ours, None);
        // A patch that does not fit at all has no unmerged paths in git.
        assert_same(tine, git, pair);
    });
}

#[test]
fn patches_are_applied_as_git_apply_applies_them() {
    with_places(|place, pair| {
        let base = pair.base.expect("there is one");
        let file = place.repo.root().join("patch");
        let path = file
            .to_str()
            .expect("test directories are UTF-8")
            .to_owned();
        for (from, to, on, reverse, three_way) in [
            (base, pair.theirs, pair.ours, false, false),
            (base, pair.theirs, base, false, false),
            (base, pair.ours, pair.ours, true, false),
            (base, pair.theirs, pair.ours, true, false),
            (base, pair.theirs, pair.ours, false, true),
        ] {
            let what = format!("{from} {to} {on} {reverse} {three_way}");
            let diff = run_with_timeout(place.repo.command("git", place.repo.dir()).args([
                "diff",
                "--binary",
                "--full-index",
                "-M",
                &from.to_string(),
                &to.to_string(),
            ]));
            if diff.stdout.is_empty() {
                continue;
            }
            fs::write(&file, &diff.stdout).expect("it can be written");
            let mut args = vec!["apply", "--index"];
            args.extend(reverse.then_some("--reverse"));
            args.extend(three_way.then_some("--3way"));
            args.push(&path);
            let output = place.git(on, &args);
            let git = output
                .status
                .success()
                .then(|| place.repo.git_in(&place.checkout, &["write-tree"]));
            let patch_id = place
                .repository
                .write_blob(&mut diff.stdout.as_slice(), diff.stdout.len() as u64)
                .expect("it can be written");
            let sequence = Sequence::of(vec![SequenceItem::Patch {
                patch: patch_id.to_string(),
                strip: 1,
                reverse,
                three_way,
            }]);
            let tine = match place.run(&sequence, on, Some(place.tip(on).tree_id)) {
                Some(Came::Tree(tree)) => Some(tree),
                Some(_) => None,
                None => continue,
            };
            // Of renames on either side git knows less.
            if three_way && git.is_none() {
                continue;
            }
            // What is there where a patch renames to, git replaces; in tine that is a conflict.
            if three_way && tine.is_none() && place.renames_onto(from, to, on) {
                continue;
            }
            assert_eq!(tine, git, "{what}: {}", output.error_text());
        }
    });
}
