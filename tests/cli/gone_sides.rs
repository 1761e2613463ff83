//! Reviews whose source or target was renamed or deleted since they were planned.

use serde_json::{Value, json};

use crate::branches::text;
use crate::merging::{conflicting, content_at, merge_refused, parents, repo_with_list, told};
use crate::reviews::review_of;
use crate::support::{TestRepo, Tine, require_fuse};

/// Runs the commands that `words` has in backticks, or is; those of tine and those of git. Such as
/// have a word in capitals are left out.
fn run_commands(repo: &TestRepo, tine: &Tine, words: &str) -> usize {
    let quoted: Vec<&str> = match words.contains('`') {
        true => words.split('`').skip(1).step_by(2).collect(),
        false => vec![words],
    };
    let mut count = 0;
    for command in quoted.iter().flat_map(|command| command.split(" && ")) {
        match command.split_once(' ') {
            Some(("tine", words)) => drop(tine.ok(&words.split(' ').collect::<Vec<_>>())),
            Some(("git", _)) => drop(repo.sh_in(repo.dir(), command)),
            _ => panic!("{command:?} is no command"),
        }
        count += 1;
    }
    count
}

fn listed(tine: &Tine) -> Value {
    tine.json(&["review", "list", "--all"])["reviews"][0].clone()
}

/// A review of the fork `work`, or of its branch, into the branch `side`, beside the branch that it
/// came from.
fn review_into_side(repo: &TestRepo, tine: &Tine, source: &str) -> String {
    conflicting(repo, tine);
    repo.git(&["branch", "side"]);
    if source != "work" {
        tine.ok(&["commit", "work", "-m", "work"]);
    }
    let merged = told(tine, 3, &["merge", source, "--into", "side", "--review"]);
    let review = merged["review"].to_string();
    tine.ok(&["resolve", &review, "list.txt", "--theirs"]);
    review
}

#[test]
fn a_review_goes_on_from_what_it_keeps_when_its_source_is_deleted() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    conflicting(&repo, &tine);
    let review = review_of(&tine, &["--delete"]);
    let planned = tine.json(&["review", "show", &review]);
    tine.ok(&["delete", "work", "--force"]);
    let shown = tine.json(&["review", "show", &review]);
    assert_eq!(
        (&shown["moved"], &shown["gone"]),
        (&json!([]), &json!(["theirs"]))
    );
    assert_eq!(shown["conflicts"], planned["conflicts"]);
    let words = tine.ok(&["review", "show", &review]);
    assert!(
        words.contains("fork:work is gone: the review goes on"),
        "{words}"
    );
    merge_refused(
        &repo,
        &tine,
        &["review", "commit", &review],
        "review-state",
        3,
    );
    tine.ok(&["resolve", &review, "list.txt", "--theirs"]);
    assert!(tine.ok(&["review", "list"]).contains("resolved"));
    tine.ok(&["review", "refresh", &review]);
    let merged = told(&tine, 0, &["review", "commit", &review]);
    assert_eq!(merged["status"], "merged");
    assert_eq!(parents(&repo, "main")[1], *text(&planned["theirs_commit"]));
    assert_eq!(content_at(&repo, "main", "work.txt"), "work");
    let subject = repo.git(&["show", "-s", "--format=%s", "main"]);
    assert_eq!(subject, "Merge fork 'work' into main");
}

#[test]
fn a_review_whose_deleted_source_was_merged_otherwise_is_not_resolved() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    conflicting(&repo, &tine);
    let review = review_of(&tine, &[]);
    tine.ok(&["resolve", &review, "list.txt", "--theirs"]);
    tine.ok(&["merge", "work", "--strategy", "ours"]);
    tine.ok(&["delete", "work", "--force"]);
    assert!(tine.ok(&["review", "list"]).contains("outdated"));
    for verb in ["commit", "refresh"] {
        let args = ["review", verb, &review];
        let output = tine.run(&args);
        let failure = crate::support::OutputExt::error_text(&output);
        assert!(
            failure.contains("branch:main has all of fork:work by now"),
            "{failure}"
        );
        assert!(
            failure.contains(&format!("`tine review abort {review}`")),
            "{failure}"
        );
    }
    tine.ok(&["review", "abort", &review]);
}

#[test]
fn a_review_whose_target_is_deleted_waits_for_it_or_is_aborted() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    let review = review_into_side(&repo, &tine, "work");
    let side = repo.git(&["rev-parse", "side"]);
    repo.git(&["branch", "-qD", "side"]);
    assert_eq!(
        (&listed(&tine)["gone"], &listed(&tine)["moved"]),
        (&json!(["ours"]), &json!([]))
    );
    assert!(tine.ok(&["review", "list"]).contains("its target is gone"));
    let shown = tine.ok(&["review", "show", &review]);
    assert!(!shown.contains("review refresh"), "{shown}");
    tine.ok(&["resolve", &review, "list.txt", "--ours"]);
    merge_refused(
        &repo,
        &tine,
        &["review", "refresh", &review],
        "unknown-revision",
        4,
    );
    let failure = merge_refused(
        &repo,
        &tine,
        &["review", "commit", &review],
        "unknown-revision",
        4,
    );
    let back = format!("git branch side {side}");
    assert!(
        text(&failure["hint"]).contains(&format!("`{back}` brings it back")),
        "{failure}"
    );

    // Aborted it comes back with its target.
    tine.ok(&["review", "abort", &review]);
    let failure = merge_refused(
        &repo,
        &tine,
        &["review", "refresh", &review],
        "unknown-revision",
        4,
    );
    assert!(
        text(&failure["hint"]).contains("stays aborted"),
        "{failure}"
    );
    repo.sh_in(
        repo.dir(),
        "git reflog expire --expire=now --all; git gc -q --prune=now",
    );
    let entry = tine.json(&["recover", "list"])["entries"][0].clone();
    assert_eq!(
        entry["way_back"],
        format!("{back} && tine review refresh {review}")
    );
    assert_eq!(run_commands(&repo, &tine, text(&entry["way_back"])), 2);
    told(&tine, 0, &["review", "commit", &review]);
    assert_eq!(parents(&repo, "side")[0], side);
}

#[test]
fn a_review_into_a_fork_that_is_deleted_has_a_way_back() {
    require_fuse!();
    let work = [
        "true",
        "echo mine > mine.txt",
        "git commit -q --allow-empty -m own",
    ];
    // What becomes of its branch afterwards.
    let branch = [
        "true",
        "git branch -f tine/target HEAD",
        "git branch -D tine/target",
    ];
    for (work, branch) in work
        .iter()
        .flat_map(|work| branch.iter().map(move |then| (work, then)))
    {
        let what = format!("{work}, {branch}");
        let repo = repo_with_list();
        let tine = Tine::new(&repo);
        conflicting(&repo, &tine);
        let target = tine.new_fork("target");
        tine.ok(&["snapshot", "target", "before"]);
        repo.sh_in(&target, work);
        let review = review_of(&tine, &["--into", "target"]);
        tine.ok(&["resolve", &review, "list.txt", "--theirs"]);
        tine.ok(&["delete", "target", "--force"]);
        repo.try_sh_in(repo.dir(), branch);
        let failure = merge_refused(
            &repo,
            &tine,
            &["review", "commit", &review],
            "no-such-fork",
            4,
        );
        let hint = text(&failure["hint"]).split(';').next().unwrap().to_owned();
        assert!(run_commands(&repo, &tine, &hint) > 0, "{what}: {hint}");
        // Its branch is another one by now, which is planned anew.
        if tine.run(&["review", "commit", &review]).status.code() != Some(0) {
            told(&tine, 0, &["review", "refresh", &review]);
            told(&tine, 0, &["review", "commit", &review]);
        }
        // What was uncommitted is over the commit that it was over, or it is not brought back here.
        if branch == &"true" {
            assert_eq!(
                target.join("mine.txt").exists(),
                work.contains("mine"),
                "{what}"
            );
        }
        assert!(target.join("work.txt").exists(), "{what}");
    }
}

#[test]
fn a_review_follows_its_branches_when_they_are_renamed() {
    require_fuse!();
    for by_git in [false, true] {
        let repo = repo_with_list();
        let tine = Tine::new(&repo);
        let rename = |old: &str, new: &str| match by_git {
            true => drop(repo.git(&["branch", "-m", old, new])),
            false => drop(tine.ok(&["branch", "rename", old, new])),
        };
        let review = review_into_side(&repo, &tine, "tine/work");
        rename("side", "aside");
        rename("tine/work", "elsewhere");
        let shown = tine.json(&["review", "show", &review]);
        assert_eq!(
            (&shown["moved"], &shown["gone"]),
            (&json!([]), &json!([])),
            "{by_git}"
        );
        assert_eq!(
            (&shown["merge"]["source"], &shown["merge"]["into"]),
            (&json!("rev:elsewhere"), &json!("branch:aside"))
        );
        tine.ok(&["review", "abort", &review]);
        tine.ok(&["review", "refresh", &review]);
        told(&tine, 0, &["review", "commit", &review]);
        assert_eq!(
            parents(&repo, "aside")[1],
            repo.git(&["rev-parse", "elsewhere"])
        );
        // It stays committed under another name.
        rename("aside", "side");
        assert_eq!(listed(&tine)["state"], "committed");
    }
}

#[test]
fn an_aborted_review_comes_back_without_its_source() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    conflicting(&repo, &tine);
    let review = review_of(&tine, &[]);
    tine.ok(&["delete", "work", "--force"]);
    tine.ok(&["recover", "purge", "--all"]);
    // Nothing is resolved, and nothing else has the source by now.
    tine.ok(&["review", "abort", &review]);
    repo.sh_in(
        repo.dir(),
        "git reflog expire --expire=now --all; git gc -q --prune=now",
    );
    let entry = tine.json(&["recover", "list"])["entries"][0].clone();
    assert_eq!(entry["kind"], "review");
    assert_eq!(run_commands(&repo, &tine, text(&entry["way_back"])), 1);
    tine.ok(&["resolve", &review, "list.txt", "--theirs"]);
    told(&tine, 0, &["review", "commit", &review]);
    assert_eq!(content_at(&repo, "main", "work.txt"), "work");

    // Without an entry the commits are gone, and the refusal says so.
    let again = repo_with_list();
    let tine = Tine::new(&again);
    conflicting(&again, &tine);
    let review = review_of(&tine, &[]);
    tine.ok(&["delete", "work", "--force"]);
    tine.ok(&["review", "abort", &review]);
    tine.ok(&["recover", "purge", "--all"]);
    again.sh_in(
        again.dir(),
        "git reflog expire --expire=now --all; git gc -q --prune=now",
    );
    let failure = merge_refused(
        &again,
        &tine,
        &["review", "refresh", &review],
        "no-such-point",
        4,
    );
    assert!(
        text(&failure["message"]).contains("fork:work is gone"),
        "{failure}"
    );
    let elsewhere = tine.json(&["recover", "list"])["elsewhere"][0].clone();
    assert_eq!(elsewhere["way_back"], format!("tine review show {review}"));
    tine.ok(&["review", "show", &review]);
}

#[test]
fn a_review_of_an_update_goes_on_without_the_branch_that_it_came_from() {
    require_fuse!();
    let repo = repo_with_list();
    repo.git(&["branch", "side"]);
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("work");
    repo.sh_in(&dir, "sed -i '2s/.*/two/' list.txt; git commit -qam two");
    repo.sh_in(
        repo.dir(),
        "git switch -q side; sed -i '2s/.*/zwei/' list.txt; git commit -qam zwei; git switch -q main",
    );
    let side = repo.git(&["rev-parse", "side"]);
    for (args, review) in [
        (&["update", "work", "--from", "side", "--review"][..], "1"),
        (&["cherry-pick", "work", "side", "--review"], "2"),
    ] {
        assert_eq!(told(&tine, 3, args)["review"].to_string(), review);
        tine.ok(&["resolve", review, "list.txt", "--theirs"]);
    }
    repo.git(&["branch", "-qD", "side"]);
    for review in ["1", "2"] {
        let shown = tine.json(&["review", "show", review]);
        assert_eq!(
            (&shown["moved"], &shown["gone"]),
            (&json!([]), &json!(["theirs"]))
        );
        tine.ok(&["review", "refresh", review]);
    }
    told(&tine, 0, &["review", "commit", "2"]);
    tine.ok(&["undo", "work"]);
    tine.ok(&["review", "abort", "2"]);
    told(&tine, 0, &["review", "commit", "1"]);
    assert_eq!(parents(&repo, "tine/work")[1], side);
}

#[test]
fn a_review_of_an_update_goes_on_when_its_fork_was_made_again() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("work");
    repo.sh_in(
        &dir,
        "sed -i '2s/.*/two/' list.txt; echo own > own.txt; git add .; git commit -qm two",
    );
    let two = repo.git_in(&dir, &["rev-parse", "HEAD"]);
    repo.sh_in(
        repo.dir(),
        "sed -i '2s/.*/zwei/' list.txt; git commit -qam zwei",
    );
    let main = repo.git(&["rev-parse", "main"]);
    told(&tine, 3, &["update", "work", "--review"]);
    tine.ok(&["resolve", "1", "list.txt", "--theirs"]);
    tine.ok(&["review", "abort", "1"]);
    tine.ok(&["delete", "work", "--force"]);
    repo.git(&["branch", "-D", "tine/work"]);
    let entries = tine.json(&["recover", "list"])["entries"].clone();
    let of_review = entries
        .as_array()
        .unwrap()
        .iter()
        .find(|entry| entry["kind"] == "review");
    let back = text(&of_review.unwrap()["way_back"]).to_owned();
    assert_eq!(run_commands(&repo, &tine, &back), 3, "{back}");
    told(&tine, 0, &["review", "commit", "1"]);
    assert_eq!(parents(&repo, "tine/work"), [two, main]);
    assert!(dir.join("own.txt").exists());
}
