//! Reviews: merges with conflicts that are kept, resolved path by path, and committed or let go.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::merging::{
    conflicting, content_at, each, everything, merge_refused, parents, repo_with_list, set_line,
    told,
};
use crate::support::{
    OutputExt, TestRepo, Tine, assert_agreement, command::DEFAULT_LIMIT, require_fuse,
    run_with_timeout, run_with_timeout_of,
};

/// Conflicts of several kinds between the fork `work` and `main`: `list.txt` (both modified),
/// `docs/guide.md` (modified there, deleted here), `new.txt` (both added), `data/large.bin`
/// (binary), and the fork's clean `work.txt`.
pub fn many_conflicts(repo: &TestRepo, tine: &Tine) -> PathBuf {
    let dir = conflicting(repo, tine);
    repo.sh_in(
        &dir,
        "echo four >> docs/guide.md; echo theirs > new.txt; printf '\\0theirs' > data/large.bin",
    );
    repo.sh_in(
        repo.dir(),
        "rm docs/guide.md; echo ours > new.txt; printf '\\0ours' > data/large.bin; git add -A; git commit -qm more",
    );
    dir
}

const CONFLICTS: [&str; 4] = ["data/large.bin", "docs/guide.md", "list.txt", "new.txt"];

/// Makes the merge of `work` a review; its number.
#[track_caller]
pub fn review_of(tine: &Tine, args: &[&str]) -> String {
    let merged = told(tine, 3, &[&["merge", "work", "--review"], args].concat());
    merged["review"].to_string()
}

/// The resolution at each path: `open`, or how.
fn resolutions(tine: &Tine, review: &str) -> Vec<(String, String)> {
    let shown = tine.json(&["review", "show", review]);
    let conflicts = shown["conflicts"].as_array().unwrap().iter();
    conflicts
        .map(|conflict| {
            let how = conflict["resolution"]["how"].as_str().unwrap_or("open");
            (
                conflict["path"].as_str().unwrap().to_owned(),
                how.to_owned(),
            )
        })
        .collect()
}

#[track_caller]
fn resolve_with(tine: &Tine, args: &[&str], content: &[u8]) {
    let mut command = tine.command(&[&["resolve"], args, &["--stdin"]].concat());
    run_with_timeout_of(&mut command, DEFAULT_LIMIT, content).expect_success("tine resolve");
}

#[test]
fn a_merge_with_conflicts_is_kept_resolved_and_committed() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    many_conflicts(&repo, &tine);
    let before = everything(&repo, &tine);
    let main = repo.head();
    let review = review_of(&tine, &["-m", "Merge the work"]);
    assert_eq!(review, "1");
    let without_review = |all: String| -> String {
        let lines = all
            .lines()
            .filter(|line| !line.contains("refs/tine/+reviews/"));
        lines.collect::<Vec<_>>().join("\n")
    };
    assert_eq!(
        without_review(everything(&repo, &tine)),
        before,
        "only the review is there"
    );

    let shown = tine.json(&["review", "show", "1"]);
    assert_eq!(each(&shown["conflicts"], "path"), CONFLICTS);
    assert_eq!(
        each(&shown["conflicts"], "kind"),
        ["binary", "modify_delete", "both_modified", "both_added"]
    );
    assert_eq!(
        shown["conflicts"][3]["theirs"][0]["content"]["text"],
        "theirs\n"
    );
    assert_eq!(shown["conflicts"][1]["ours"], json!([]));
    let list = tine.json(&["review", "list"]);
    assert_eq!(
        (&list["reviews"][0]["open"], &list["reviews"][0]["moved"]),
        (&json!(4), &json!([]))
    );
    assert!(
        tine.ok(&["review", "list"])
            .contains("4 of 4 conflicts open")
    );

    let failure = merge_refused(&repo, &tine, &["review", "commit", "1"], "review-state", 3);
    assert_eq!(failure["message"], "4 conflicts of review 1 are open");
    tine.ok(&["resolve", "1", "list.txt", "--base"]);
    tine.ok(&["resolve", "1", "docs/guide.md", "--delete"]);
    tine.ok(&[
        "resolve",
        "1",
        "data/large.bin",
        "--theirs",
        "--reason",
        "theirs is\nnewer",
    ]);
    merge_refused(&repo, &tine, &["review", "commit", "1"], "review-state", 3);
    repo.write("../by-hand", "by hand\n");
    tine.ok(&["resolve", "1", "new.txt", "--file", "../by-hand"]);
    // Said again, and differently; open again; and once more.
    tine.ok(&["resolve", "1", "list.txt", "--ours"]);
    tine.ok(&["resolve", "1", "list.txt", "--reopen"]);
    merge_refused(&repo, &tine, &["review", "commit", "1"], "review-state", 3);
    resolve_with(&tine, &["1", "list.txt"], b"from standard input\n");
    let hows = resolutions(&tine, "1");
    assert_eq!(
        hows.iter().map(|(_, how)| how.as_str()).collect::<Vec<_>>(),
        ["theirs", "delete", "content", "content"]
    );
    let diff = tine.json(&["review", "diff", "1"]);
    assert_eq!(
        each(&diff["changes"], "path"),
        ["data/large.bin", "list.txt", "new.txt", "work.txt"]
    );
    assert!(
        tine.ok(&["review", "diff", "1"])
            .contains("+from standard input")
    );

    let dry = told(&tine, 0, &["review", "commit", "1", "--dry-run"]);
    assert_eq!(repo.head(), main);
    let merged = told(&tine, 0, &["review", "commit", "1"]);
    assert_eq!(dry["changes"], merged["changes"]);
    assert_eq!(diff["changes"], merged["changes"]);
    assert_eq!(
        parents(&repo, "main"),
        [main, repo.git(&["rev-parse", "tine/work"])]
    );
    for (path, content) in [
        ("list.txt", "from standard input"),
        ("new.txt", "by hand"),
        ("work.txt", "work"),
        ("data/large.bin", "\0theirs"),
        ("main.txt", "acht"),
    ] {
        assert_eq!(content_at(&repo, "main", path), content, "{path}");
    }
    assert_eq!(repo.git(&["ls-tree", "main", "docs/guide.md"]), "");
    let message = repo.git(&["show", "-s", "--format=%B", "main"]);
    assert!(message.starts_with("Merge the work\n\n"), "{message}");
    let trailers = repo.git(&["show", "-s", "--format=%(trailers)", "main"]);
    assert!(
        trailers.contains("Resolution-reasoning: data/large.bin: theirs is newer"),
        "{trailers}"
    );
    assert_eq!(repo.status(repo.dir()), "");
    assert_agreement(&repo, &tine, "work", "");
    assert_eq!(tine.json(&["review", "list"])["reviews"], json!([]));
    assert_eq!(
        tine.json(&["review", "list", "--all"])["reviews"][0]["state"],
        "committed"
    );
    assert_eq!(repo.git(&["for-each-ref", "refs/tine/+reviews"]), "");
    for args in [
        &["review", "commit", "1"][..],
        &["review", "abort", "1"],
        &["review", "refresh", "1"],
        &["resolve", "1", "list.txt", "--ours"],
    ] {
        merge_refused(&repo, &tine, args, "review-state", 3);
    }
    tine.ok(&["review", "show", "1"]);
}

/// Invariant 3.
#[test]
fn a_review_outlives_the_daemon_and_git_gc() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    let dir = many_conflicts(&repo, &tine);
    let review = review_of(&tine, &[]);
    resolve_with(&tine, &[&review, "list.txt"], b"only here\n");
    tine.ok(&["resolve", &review, "new.txt", "--theirs"]);
    let shown = tine.json(&["review", "show", &review]);
    tine.kill_daemon();
    let age = "find .git/objects -type f -exec touch -d '3 weeks ago' {} +; git reflog expire --expire=now --all; git gc -q --prune=now";
    repo.sh_in(repo.dir(), age);
    assert_eq!(tine.json(&["review", "show", &review]), shown);
    tine.ok(&["review", "diff", &review]);
    // The source, too, when its fork is rewritten: the review still shows what it was made of.
    repo.sh_in(
        &dir,
        "git reset -q --hard; git clean -qfd; git commit -q --allow-empty -m other",
    );
    tine.ok(&["daemon", "stop"]);
    repo.sh_in(repo.dir(), age);
    let then = tine.json(&["review", "show", &review]);
    assert_eq!(then["conflicts"], shown["conflicts"]);
    assert_eq!(then["moved"], json!(["theirs"]));
    merge_refused(
        &repo,
        &tine,
        &["review", "commit", &review],
        "review-state",
        3,
    );
    tine.ok(&["review", "abort", &review]);
    tine.ok(&["review", "show", &review]);
}

#[test]
fn a_review_that_is_let_go_changed_nothing() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    conflicting(&repo, &tine);
    let before = everything(&repo, &tine);
    let review = review_of(&tine, &[]);
    resolve_with(&tine, &[&review, "list.txt"], b"x\n");
    tine.ok(&["review", "abort", &review]);
    tine.ok(&["recover", "purge", "--all"]);
    assert_eq!(everything(&repo, &tine), before);
    merge_refused(
        &repo,
        &tine,
        &["resolve", &review, "list.txt", "--ours"],
        "review-state",
        3,
    );
    // Numbers are not used again.
    assert_eq!(review_of(&tine, &[]), "2");
    merge_refused(&repo, &tine, &["review", "show", "3"], "no-such-review", 4);
    merge_refused(
        &repo,
        &tine,
        &["review", "commit", "3"],
        "no-such-review",
        4,
    );
    merge_refused(
        &repo,
        &tine,
        &["resolve", "2", "work.txt", "--ours"],
        "no-such-conflict",
        4,
    );
    merge_refused(&repo, &tine, &["resolve", "2", "list.txt"], "usage", 2);
}

#[test]
fn a_side_that_moves_on_makes_a_review_outdated_and_a_refresh_keeps_what_is_the_same() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    let dir = many_conflicts(&repo, &tine);
    let review = review_of(&tine, &[]);
    let outdated = |moved: Value| {
        let list = tine.json(&["review", "list"]);
        assert_eq!(list["reviews"][0]["moved"], moved);
        assert!(tine.ok(&["review", "list"]).contains("outdated"));
        merge_refused(
            &repo,
            &tine,
            &["review", "commit", &review],
            "review-outdated",
            3,
        );
    };
    let resolve_all = || {
        for path in CONFLICTS {
            tine.ok(&["resolve", &review, path, "--ours", "--reason", "so"]);
        }
    };
    resolve_all();
    // The source, where it conflicts.
    repo.sh_in(&dir, "echo otherwise > new.txt");
    outdated(json!(["theirs"]));
    tine.ok(&["review", "refresh", &review]);
    let open = |path: &str| {
        let resolutions = resolutions(&tine, &review);
        resolutions
            .into_iter()
            .filter(|(_, how)| how == "open")
            .map(|(path, _)| path)
            .collect::<Vec<_>>()
            == [path]
    };
    assert!(open("new.txt"), "{:?}", resolutions(&tine, &review));
    resolve_all();
    // The target, where it conflicts; the source stays.
    set_line(&repo, repo.dir(), 2, "deux");
    repo.commit_all("deux");
    outdated(json!(["ours"]));
    tine.ok(&["review", "refresh", &review]);
    assert!(open("list.txt"), "{:?}", resolutions(&tine, &review));
    resolve_all();
    // Where it does not conflict nothing is opened.
    repo.write("elsewhere.txt", "x\n");
    repo.commit_all("elsewhere");
    assert!(!tine.ok(&["review", "list"]).contains("outdated"));
    assert_eq!(tine.json(&["review", "show", &review])["moved"], json!([]));
    assert!(
        resolutions(&tine, &review)
            .iter()
            .all(|(_, how)| how == "ours")
    );
    // What is committed in the source is the same content, and no other merge.
    tine.ok(&["commit", "work", "-m", "by hand"]);
    let merged = told(&tine, 0, &["review", "commit", &review]);
    assert_eq!(
        parents(&repo, merged["after"].as_str().unwrap())[1],
        repo.git(&["rev-parse", "tine/work"])
    );
    assert_eq!(
        content_at(&repo, "main", "list.txt"),
        "1\ndeux\n3\n4\n5\n6\n7\nacht\n9"
    );
    assert_eq!(repo.status(repo.dir()), "");
}

#[test]
fn a_review_is_committed_into_the_branch_that_was_named() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    let (dir, tg) = (tine.new_fork("work"), tine.new_fork("tg"));
    for (fork, line) in [(&dir, "theirs"), (&tg, "ours")] {
        repo.sh_in(
            fork,
            &format!("sed -i '1s/.*/{line}/' list.txt; git commit -qam {line}"),
        );
    }
    let ours = repo.git_in(&tg, &["rev-parse", "HEAD"]);
    let review = review_of(&tine, &["--into", "branch:tine/tg"]);
    let of_fork = review_of(&tine, &["--into", "tg"]);
    tine.ok(&["resolve", &review, "list.txt", "--theirs"]);
    tine.ok(&["resolve", &of_fork, "list.txt", "--theirs"]);
    repo.git_in(&tg, &["switch", "-qc", "elsewhere"]);
    let done = tine.json(&["review", "commit", &review]);
    assert_eq!(
        (&done["target"]["branch"], &done["target"]["fork"]),
        (&json!("tine/tg"), &json!(null))
    );
    assert_eq!(repo.git_in(&tg, &["rev-parse", "elsewhere"]), ours);
    assert_eq!(repo.git(&["rev-parse", "tine/tg~"]), ours);
    // Into a fork it goes wherever that is.
    let done = tine.json(&["review", "commit", &of_fork]);
    assert_eq!(done["target"]["branch"], json!("elsewhere"));
}

#[test]
fn a_review_whose_merge_was_made_otherwise_cannot_be_refreshed() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    conflicting(&repo, &tine);
    let review = review_of(&tine, &[]);
    tine.ok(&["resolve", &review, "list.txt", "--theirs"]);
    tine.ok(&["merge", "work", "--strategy", "ours"]);
    merge_refused(
        &repo,
        &tine,
        &["review", "commit", &review],
        "review-outdated",
        3,
    );
    merge_refused(
        &repo,
        &tine,
        &["review", "refresh", &review],
        "review-state",
        3,
    );
    // Neither is one of a fork that is gone.
    tine.ok(&["delete", "work", "--force"]);
    assert!(tine.ok(&["review", "list"]).contains("outdated"));
    let failure = merge_refused(
        &repo,
        &tine,
        &["review", "commit", &review],
        "review-outdated",
        3,
    );
    assert_eq!(
        failure["message"],
        "branch:main has all of fork:work by now"
    );
    tine.ok(&["review", "abort", &review]);
}

#[test]
fn a_review_is_committed_into_a_mounted_fork_with_work_beside_it() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    conflicting(&repo, &tine);
    let target = tine.new_fork("target");
    repo.sh_in(&target, "echo mine > mine.txt");
    let review = review_of(&tine, &["--into", "target"]);
    resolve_with(&tine, &[&review, "list.txt"], b"both\n");
    repo.sh_in(&target, "echo mine > work.txt");
    merge_refused(
        &repo,
        &tine,
        &["review", "commit", &review],
        "review-outdated",
        3,
    );
    repo.sh_in(&target, "rm work.txt; cat list.txt");
    let merged = told(&tine, 0, &["review", "commit", &review]);
    assert_eq!(merged["snapshot"], "before-merge-1");
    assert_eq!(
        std::fs::read_to_string(target.join("list.txt")).unwrap(),
        "both\n"
    );
    assert_agreement(&repo, &tine, "target", "A\tmine.txt");
    tine.ok(&["undo", "target"]);
    assert_agreement(&repo, &tine, "target", "A\tmine.txt");
    assert!(!target.join("work.txt").exists());
}

#[test]
fn conflicts_at_odd_names_are_resolved_by_them() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("work");
    let names = [
        &b"with space\ttab"[..],
        b"not\xffutf8",
        b"-dash",
        b"\"quoted\"",
    ];
    for (place, text) in [(repo.dir(), "ours\n"), (dir.as_path(), "theirs\n")] {
        for name in names {
            std::fs::write(place.join(std::ffi::OsStr::from_bytes(name)), text).unwrap();
        }
    }
    repo.commit_all("odd names");
    let merged = told(&tine, 3, &["merge", "work", "--review"]);
    let paths: Vec<&Value> = merged["conflicts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| &c["path"])
        .collect();
    assert_eq!(
        paths,
        [
            &json!("\"quoted\""),
            &json!("-dash"),
            &json!({"base64": "bm90/3V0Zjg="}),
            &json!("with space\ttab")
        ]
    );
    for name in names {
        let mut command = tine.command(&["resolve", "1", "--theirs", "--"]);
        command.arg(std::ffi::OsStr::from_bytes(name));
        run_with_timeout(&mut command).expect_success("tine resolve");
    }
    assert!(
        tine.ok(&["review", "show", "1"])
            .contains("\"not\\377utf8\"")
    );
    tine.ok(&["review", "commit", "1"]);
    for name in names {
        assert_eq!(
            std::fs::read_to_string(repo.dir().join(std::ffi::OsStr::from_bytes(name))).unwrap(),
            "theirs\n"
        );
    }
    assert_eq!(repo.status(repo.dir()), "");
}

#[test]
fn executable_bits_and_symlinks_in_conflicts_come_as_the_chosen_side_has_them() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("work");
    repo.sh_in(
        &dir,
        "ln -sfn docs link; echo theirs >> run.sh; rm README.md; ln -s list.txt README.md",
    );
    repo.sh_in(
        repo.dir(),
        "ln -sfn src link; echo ours >> run.sh; echo ours >> README.md; git commit -qam ours",
    );
    let review = review_of(&tine, &[]);
    let shown = tine.json(&["review", "show", &review]);
    assert_eq!(
        each(&shown["conflicts"], "path"),
        ["README.md", "link", "run.sh"]
    );
    assert_eq!(shown["conflicts"][1]["theirs"][0]["mode"], "120000");
    tine.ok(&["resolve", &review, "README.md", "--theirs"]);
    tine.ok(&["resolve", &review, "link", "--theirs"]);
    resolve_with(&tine, &[&review, "run.sh"], b"#!/bin/sh\necho both\n");
    tine.ok(&["review", "commit", &review]);
    let listed = repo.git(&[
        "ls-tree",
        "--format=%(objectmode) %(path)",
        "main",
        "README.md",
        "link",
        "run.sh",
    ]);
    assert_eq!(listed, "120000 README.md\n120000 link\n100755 run.sh");
    assert_eq!(content_at(&repo, "main", "link"), "docs");
}

#[test]
fn git_remembers_what_was_resolved_and_is_asked() {
    require_fuse!();
    let repo = repo_with_list();
    repo.git(&["config", "rerere.enabled", "true"]);
    let tine = Tine::new(&repo);
    conflicting(&repo, &tine);
    let review = review_of(&tine, &[]);
    assert_eq!(
        resolutions(&tine, &review),
        [("list.txt".to_owned(), "open".to_owned())]
    );
    let both = b"1\nboth\n3\n4\n5\n6\n7\nacht\n9\n";
    resolve_with(&tine, &[&review, "list.txt"], both);
    tine.ok(&["review", "commit", &review]);
    repo.git(&["reset", "-q", "--hard", "HEAD~1"]);

    let again = review_of(&tine, &[]);
    let shown = tine.json(&["review", "show", &again]);
    let resolution = &shown["conflicts"][0]["resolution"];
    assert_eq!(resolution["by"], "git rerere");
    assert_eq!(
        resolution["contents"][0]["text"],
        String::from_utf8_lossy(both).as_ref()
    );
    tine.ok(&["review", "commit", &again]);
    assert_eq!(
        content_at(&repo, "main", "list.txt").as_bytes(),
        both.trim_ascii_end()
    );
}

#[test]
fn a_side_is_taken_where_both_conflict_and_the_rest_stays_merged() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("work");
    // Both change line 5; each has a line and, of list.txt, a mode of its own.
    repo.sh_in(
        &dir,
        "sed -i '1s/.*/their 1/; 5s/.*/their 5/' list.txt; chmod +x list.txt",
    );
    repo.sh_in(
        repo.dir(),
        "sed -i '9s/.*/our 9/; 5s/.*/our 5/' list.txt; git commit -qam ours",
    );
    let review = review_of(&tine, &[]);
    let merged_with = |args: &[&str]| {
        tine.ok(&[&["resolve", &review, "list.txt"], args].concat());
        let shown = tine.json(&["review", "show", &review]);
        let resolution = &shown["conflicts"][0]["resolution"];
        assert_eq!(resolution["versions"][0]["mode"], "100755", "{args:?}");
        let text = resolution["contents"][0]["text"]
            .as_str()
            .unwrap()
            .to_owned();
        (resolution["how"].as_str().unwrap().to_owned(), text)
    };
    let lines = |first: &str, fifth: &str, last: &str| {
        format!("{first}\n2\n3\n4\n{fifth}\n6\n7\n8\n{last}\n")
    };
    for (args, how, text) in [
        (["--theirs"], "theirs", lines("their 1", "their 5", "our 9")),
        (["--ours"], "ours", lines("their 1", "our 5", "our 9")),
        (["--base"], "base", lines("their 1", "5", "our 9")),
        (
            ["--union"],
            "union",
            lines("their 1", "our 5\ntheir 5", "our 9"),
        ),
        (
            ["--theirs-file"],
            "theirs-file",
            lines("their 1", "their 5", "9"),
        ),
    ] {
        assert_eq!(merged_with(&args), (how.to_owned(), text), "{args:?}");
    }
    tine.ok(&["resolve", &review, "list.txt", "--ours-file"]);
    let shown = tine.json(&["review", "show", &review]);
    assert_eq!(
        shown["conflicts"][0]["resolution"]["versions"][0]["mode"],
        "100644"
    );
    // A content has the merged mode, too.
    resolve_with(&tine, &[&review, "list.txt"], b"both\n");
    tine.ok(&["review", "commit", &review]);
    assert!(
        repo.git(&["ls-tree", "main", "list.txt"])
            .starts_with("100755")
    );
    assert_eq!(content_at(&repo, "main", "list.txt"), "both");
}

#[test]
fn a_symlink_in_a_conflict_stays_one_whatever_is_given() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("work");
    repo.sh_in(&dir, "ln -sfn docs link");
    repo.sh_in(repo.dir(), "ln -sfn src link; git commit -qam ours");
    let review = review_of(&tine, &[]);
    let mut command = tine.command(&["resolve", &review, "link", "--stdin", "--json"]);
    let output = run_with_timeout_of(&mut command, DEFAULT_LIMIT, b"two\nlines\n");
    assert_eq!(output.status.code(), Some(3), "{}", output.error_text());
    assert!(
        output.text().contains("wrong-kind"),
        "{}",
        output.error_text()
    );
    resolve_with(&tine, &[&review, "link"], b"data\n");
    tine.ok(&["review", "commit", &review]);
    assert!(repo.git(&["ls-tree", "main", "link"]).starts_with("120000"));
    assert_eq!(repo.sh_in(repo.dir(), "readlink link").trim(), "data");
}

#[test]
fn a_review_is_open_again_when_its_merge_is_taken_back() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    conflicting(&repo, &tine);
    tine.ok(&["new", "target", "--no-mount"]);
    let review = review_of(&tine, &["--into", "target"]);
    tine.ok(&["resolve", &review, "list.txt", "--theirs"]);
    tine.ok(&["review", "commit", &review]);
    assert_eq!(
        tine.json(&["review", "show", &review])["state"],
        "committed"
    );
    tine.ok(&["undo", "target"]);
    let shown = tine.json(&["review", "show", &review]);
    assert_eq!(
        (&shown["state"], &shown["open"]),
        (&json!("open"), &json!(0))
    );
    assert!(tine.ok(&["review", "list"]).contains("resolved"));
    tine.ok(&["redo", "target"]);
    assert_eq!(
        tine.json(&["review", "show", &review])["state"],
        "committed"
    );
    tine.ok(&["undo", "target"]);
    let merged = told(&tine, 0, &["review", "commit", &review]);
    let after = merged["after"].as_str().unwrap();
    assert_eq!(
        content_at(&repo, after, "list.txt"),
        "1\ntwo\n3\n4\n5\n6\n7\nacht\n9"
    );
}

#[test]
fn a_merge_that_is_reviewed_again_is_the_same_review() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    let dir = many_conflicts(&repo, &tine);
    let review = review_of(&tine, &[]);
    tine.ok(&["resolve", &review, "list.txt", "--ours"]);
    assert_eq!(review_of(&tine, &[]), review);
    repo.sh_in(&dir, "echo otherwise > new.txt");
    assert_eq!(review_of(&tine, &[]), review);
    let open = |path: &str| (path.to_owned(), "open".to_owned());
    assert_eq!(
        resolutions(&tine, &review),
        [
            open("data/large.bin"),
            open("docs/guide.md"),
            ("list.txt".to_owned(), "ours".to_owned()),
            open("new.txt")
        ]
    );
    assert_eq!(
        tine.json(&["review", "list"])["reviews"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    // The same of an update.
    tine.ok(&["commit", "work", "-m", "work"]);
    let update = || told(&tine, 3, &["update", "work", "--review"])["review"].to_string();
    assert_eq!(update(), update());
    // Another merge is another review.
    assert_ne!(review_of(&tine, &["--no-ff", "--level", "path"]), review);
}
