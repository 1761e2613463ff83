//! Refs of a fork and of the main repository that git forbids beside each other: `a` and `a/b`.

use std::path::Path;

use super::{assert_whole, await_taken, new_own};
use crate::support::{TestRepo, Tine, require_fuse};

/// Commits in the fork, and collects its garbage.
fn commit_and_collect(repo: &TestRepo, dir: &Path, file: &str) {
    repo.sh_in(
        dir,
        &format!("echo {file} > {file}; git add {file}; git commit -qm {file}; git gc -q"),
    );
    let subject = repo.git_in(dir, &["log", "-1", "--format=%s"]);
    assert_eq!(subject, file);
    assert_eq!(repo.status(dir), "");
}

#[test]
fn a_fork_goes_on_when_the_main_repository_makes_a_branch_that_git_forbids_beside_its_own() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = new_own(&tine, "demo");
    for (own, lent) in [("work/a", "work"), ("zz", "zz/top")] {
        for (number, [own_first, main_packs]) in [[true, true], [true, false], [false, true]]
            .into_iter()
            .enumerate()
        {
            let own = own.replacen(['k', 'z'], &number.to_string(), 1);
            let lent = lent.replacen(['k', 'z'], &number.to_string(), 1);
            let file = own.replace('/', "-");
            repo.sh_in(&dir, &format!("git switch -qc {own}"));
            commit_and_collect(&repo, &dir, &format!("{file}-1"));
            if own_first {
                repo.git_in(&dir, &["pack-refs", "--all"]);
            } else {
                repo.git_in(&dir, &["commit", "--allow-empty", "-qm", "loose"]);
            }
            let branches = || repo.git_in(&dir, &["for-each-ref", "refs/heads"]);
            let before = branches();
            repo.git(&["branch", &lent]);
            if main_packs {
                repo.git(&["pack-refs", "--all"]);
            }
            assert_eq!(branches(), before);
            commit_and_collect(&repo, &dir, &format!("{file}-2"));
            assert!(
                !repo
                    .try_git_in(&dir, &["rev-parse", "-q", "--verify", &lent])
                    .status
                    .success()
            );
            let tip = repo.git_in(&dir, &["rev-parse", "HEAD"]);
            await_taken(&repo, &format!("refs/tine/demo/git/heads/{own}"), &tip);
            // The lent branch is back when the fork's own is gone.
            repo.sh_in(
                &dir,
                &format!("git switch -q tine/demo; git branch -qD {own}"),
            );
            assert_eq!(
                repo.git_in(&dir, &["rev-parse", &lent]),
                repo.git(&["rev-parse", &lent])
            );
            commit_and_collect(&repo, &dir, &format!("{file}-3"));
        }
    }
    assert_whole(&repo, &[&dir]);
}

#[test]
fn a_branch_takes_the_place_of_lent_ones_that_the_fork_deleted() {
    require_fuse!();
    let repo = TestRepo::new();
    repo.sh_in(
        repo.dir(),
        "git branch a/b; git branch a/c/d; git branch topic; git tag t/1",
    );
    let tine = Tine::new(&repo);
    let dir = new_own(&tine, "demo");
    repo.sh_in(
        &dir,
        "git branch -qD a/b a/c/d; git branch a; git branch -qD topic; git branch topic/sub
         git tag -d t/1 >&2; git tag t",
    );
    repo.git_in(&dir, &["gc", "-q"]);
    let refs = repo.git_in(&dir, &["for-each-ref", "--format=%(refname:short)"]);
    assert_eq!(refs, "a\nmain\ntine/demo\ntopic/sub\nt");
    repo.sh_in(&dir, "git branch -qD a; git branch a/b");
    assert_eq!(repo.git(&["branch", "--list", "a*"]), "  a/b\n  a/c/d");
    assert_whole(&repo, &[&dir]);
}

#[test]
fn fetch_prunes_a_branch_whose_name_became_a_directory_or_a_file() {
    require_fuse!();
    let repo = TestRepo::new();
    repo.sh_in(
        repo.dir(),
        "git init -q --bare ../up.git; git remote add origin ../up.git
         git push -q origin main main:one/x main:two; git fetch -q",
    );
    let tine = Tine::new(&repo);
    let forks = ["first", "second", "third"].map(|name| new_own(&tine, name));
    let [first, second, third] = &forks;
    repo.sh_in(
        repo.dir(),
        "git push -q origin main:three/x main:four && git -C ../up.git pack-refs --all",
    );
    // One has refs of its own, packed; the second has only lent ones.
    repo.sh_in(first, "git fetch -q; git pack-refs --all");
    repo.sh_in(third, "git fetch -q");
    repo.sh_in(
        repo.dir(),
        "git push -q origin :one/x :two :three/x :four
         git push -q origin main:one main:two/x main:three main:four/x",
    );
    let prune = |dir: &Path| {
        repo.sh_in(dir, "git fetch -qp; git fetch -qp; git gc -q");
        let format = "--format=%(refname)";
        let refs = repo.git_in(dir, &["for-each-ref", format, "refs/remotes/origin"]);
        let names: Vec<&str> = refs
            .lines()
            .filter_map(|name| name.strip_prefix("refs/remotes/origin/"))
            .filter(|name| *name != "HEAD")
            .collect();
        assert_eq!(names, ["four/x", "main", "one", "three", "two/x"]);
    };
    // Before the main repository prunes, and after.
    prune(second);
    prune(repo.dir());
    for dir in &forks {
        prune(dir);
    }
    assert_whole(&repo, &[first, second, third]);
}
