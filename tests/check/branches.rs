//! Branches whose files hold no ref, or name what is lost, and refs that keep something else than
//! they should.

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::Path;

use super::support::{OutputExt, TestRepo, Tine, require_fuse};

/// What a power cut, or a disk, leaves of a ref.
const DAMAGES: [&str; 3] = [
    "",
    "nonsense\n",
    "1234567812345678123456781234567812345678\n",
];

/// Forks `one` and `two` of `main`, each with a commit, and no daemon.
fn two_forks(repo: &TestRepo) -> Tine<'_> {
    let tine = Tine::new(repo);
    for name in ["one", "two"] {
        let dir = tine.new_fork(name);
        fs::write(dir.join(name), "its own\n").unwrap();
        tine.ok(&["commit", name, "-m", name]);
    }
    tine.ok(&["daemon", "stop"]);
    tine
}

/// What who works in the fork `name` does goes on.
fn goes_on(tine: &Tine<'_>, name: &str) {
    tine.ok(&["mount", name]);
    fs::write(Path::new(&tine.ok(&["path", name])).join("more"), "more\n").unwrap();
    for args in [
        vec!["list"],
        vec!["branch", "list"],
        vec!["branch", "list", "--all"],
        vec!["status", name],
        vec!["diff", name],
        vec!["log", name],
        vec!["commit", name, "-m", "more"],
        vec!["snapshot", name, "kept"],
        vec!["branch", "rename", &format!("tine/{name}"), "renamed"],
        vec!["branch", "rename", "renamed", &format!("tine/{name}")],
        vec!["unmount", name, "--keep"],
    ] {
        tine.ok(&args);
    }
    tine.ok(&["delete", name, "--force"]);
    tine.ok(&["daemon", "stop"]);
}

/// The check names it, and a repair has the branch where it was.
fn is_put_back(repo: &TestRepo, tine: &Tine<'_>, branch: &str, was: &str) {
    let found = tine.run(&["check"]);
    assert_eq!(found.status.code(), Some(1), "{}", found.text());
    let short = branch.trim_start_matches("refs/heads/");
    assert!(found.text().contains(short), "{}", found.text());
    tine.ok(&["check", "--repair"]);
    assert_eq!(repo.git(&["rev-parse", branch]).trim(), was);
    tine.ok(&["check"]);
    tine.ok(&["daemon", "stop"]);
}

#[test]
fn a_damaged_branch_that_forks_came_from_holds_none_of_them_up() {
    require_fuse!();
    for damage in DAMAGES {
        let repo = TestRepo::new().with_linked_forks();
        let tine = two_forks(&repo);
        let branch = repo.git(&["symbolic-ref", "HEAD"]).trim().to_owned();
        let was = repo.git(&["rev-parse", "HEAD"]).trim().to_owned();
        fs::write(repo.common_dir().join(&branch), damage).unwrap();
        let refused = tine.run(&["update", "two"]);
        assert!(
            refused.error_text().contains("is damaged"),
            "{}",
            refused.error_text()
        );
        goes_on(&tine, "one");
        is_put_back(&repo, &tine, &branch, &was);
        let updated = tine.run(&["update", "two"]);
        assert!(
            updated.text().contains("two has all of it"),
            "{}",
            updated.text()
        );
    }
}

#[test]
fn a_damaged_branch_of_a_fork_holds_up_no_other() {
    require_fuse!();
    for damage in DAMAGES {
        let repo = TestRepo::new();
        let tine = two_forks(&repo);
        let was = repo
            .git(&["rev-parse", "refs/heads/tine/two"])
            .trim()
            .to_owned();
        fs::write(repo.common_dir().join("refs/heads/tine/two"), damage).unwrap();
        let listed = tine.run(&["branch", "list"]);
        assert!(
            listed
                .error_text()
                .contains("refs/heads/tine/two is damaged"),
            "{}",
            listed.error_text()
        );
        tine.ok(&["new", "three"]);
        tine.ok(&["merge", "one", "--into", "three"]);
        let updated = tine.run(&["update", "three"]);
        assert!(
            updated.text().contains("three has all of it"),
            "{}",
            updated.text()
        );
        goes_on(&tine, "one");
        is_put_back(&repo, &tine, "refs/heads/tine/two", &was);
        assert!(tine.ok(&["log", "two"]).contains("two"));
    }
}

#[test]
fn nobody_waits_at_a_pipe_or_socket_in_the_place_of_a_branch() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = two_forks(&repo);
    for branch in [
        repo.git(&["symbolic-ref", "HEAD"]).trim(),
        "refs/heads/tine/two",
    ] {
        let was = repo.git(&["rev-parse", branch]).trim().to_owned();
        let path = repo.common_dir().join(branch);
        for kind in ["pipe", "socket"] {
            fs::remove_file(&path).unwrap();
            let _listening = match kind {
                "pipe" => {
                    repo.sh_in(repo.root(), &format!("mkfifo {}", path.display()));
                    None
                }
                _ => Some(UnixListener::bind(&path).unwrap()),
            };
            // They end, well or not.
            for args in [
                &["list"][..],
                &["branch", "list", "--all"],
                &["status", "one"],
                &["snapshot", "one"],
                &["update", "one"],
                &["commit", "one", "-m", "nothing"],
            ] {
                tine.run(args);
            }
            is_put_back(&repo, &tine, branch, &was);
            tine.ok(&["status", "one"]);
            tine.ok(&["daemon", "stop"]);
        }
    }
}

#[test]
fn a_seat_that_is_damaged_hides_no_other() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let started = tine.json(&["round", "start", "--agents", "planner,coder"]);
    let branch = started["agents"][0]["seat"]["branch"]
        .as_str()
        .expect("a branch")
        .to_owned();
    tine.ok(&["daemon", "stop"]);
    fs::write(repo.common_dir().join("refs/heads").join(&branch), "").unwrap();
    let shown = tine.json(&["round", "show"]);
    let damage = |at: usize| shown["agents"][at]["seat"]["damage"].as_str();
    assert!(
        damage(0).is_some_and(|damage| damage.contains(&branch)),
        "{shown}"
    );
    assert_eq!(damage(1), None, "{shown}");
    assert!(tine.ok(&["round", "show"]).contains("not whole"));
}

#[test]
fn refs_that_keep_something_else_are_set_anew() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = two_forks(&repo);
    tine.ok(&["snapshot", "one", "kept"]);
    tine.ok(&["daemon", "stop"]);
    let refs = || {
        repo.git(&[
            "for-each-ref",
            "--format=%(refname) %(objectname)",
            "refs/tine/one",
        ])
    };
    let before = refs();
    let lost = "1234567812345678123456781234567812345678";
    for label in ["base", "head"] {
        let path = repo.common_dir().join("refs/tine/one").join(label);
        assert!(
            before.contains(&format!("refs/tine/one/{label} ")),
            "{before}"
        );
        fs::write(path, format!("{lost}\n")).unwrap();
    }
    let found = tine.run(&["check"]);
    assert!(
        found.text().contains("refs/tine/one/base"),
        "{}",
        found.text()
    );
    tine.ok(&["check", "--repair"]);
    assert_eq!(refs(), before);
    // Whatever else it keeps: something must keep what the fork stands on.
    let kept: Vec<&str> = before
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    let tree = repo.git(&["rev-parse", "HEAD^{tree}"]);
    for name in &kept {
        fs::write(repo.common_dir().join(name), format!("{tree}\n")).unwrap();
    }
    let found = tine.run(&["check"]);
    let base = repo.git(&["rev-parse", "HEAD"]);
    assert!(
        found
            .text()
            .contains(&format!("no ref keeps the commit {base}")),
        "{}",
        found.text()
    );
    tine.ok(&["check", "--repair"]);
    assert!(refs().contains(&base), "{}", refs());
    tine.ok(&["daemon", "stop"]);
}

/// `git clone --mirror` copies the refs of forks, and tine is used in the clone as well.
#[test]
fn refs_of_forks_that_came_with_a_clone_are_no_lost_forks() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = two_forks(&repo);
    for label in ["base", "head", "git/HEAD", "git-branch"] {
        for fork in ["three", "four"] {
            repo.git(&["update-ref", &format!("refs/tine/{fork}/{label}"), "HEAD"]);
        }
    }
    let listed = tine.run(&["list"]);
    assert!(
        !listed.error_text().contains("missing"),
        "{}",
        listed.error_text()
    );
    tine.ok(&["new", "three"]);
    tine.ok(&["daemon", "stop"]);
    let found = tine.run(&["check"]).text();
    assert!(
        found.contains("refs/tine/four/: base, git-branch, git/HEAD, head"),
        "{found}"
    );
    tine.ok(&["check", "--repair"]);
    assert_eq!(repo.git(&["for-each-ref", "refs/tine/four"]), "");
    tine.ok(&["check"]);
}
