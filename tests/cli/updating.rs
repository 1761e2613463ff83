//! `tine update`: a fork goes to where its branch is now, with its commits and with what is
//! uncommitted.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::merging::{
    each, fork_with_work, main_goes_on, merge_refused, parents, repo_with_list, set_line, told,
};
use crate::resolvers::resolver;
use crate::support::{
    OutputExt, TestRepo, Tine, assert_agreement, path_text, require_fuse, require_program,
};

/// All that an update may change of a fork: HEAD, view, index, and where its own commits begin.
pub fn standing(repo: &TestRepo, tine: &Tine, fork: &str) -> String {
    let diff = tine.json(&["diff", fork]);
    [
        repo.git_of_fork(fork, &["rev-parse", "HEAD"]),
        repo.git_of_fork(fork, &["symbolic-ref", "--quiet", "HEAD"]),
        repo.git_of_fork(fork, &["ls-files", "-s"]),
        diff["view_tree"].to_string(),
        tine.ok(&["log", fork, "--json"]),
    ]
    .join("\n")
}

/// Path and modification time of every file in the mount.
fn times(repo: &TestRepo, dir: &Path) -> Vec<String> {
    let listing = "find . -name .git -prune -o -type f -printf '%P %T@ %i\\n' | sort";
    repo.sh_in(dir, listing)
        .lines()
        .map(str::to_owned)
        .collect()
}

fn commit_in(repo: &TestRepo, dir: &Path, script: &str, message: &str) -> String {
    repo.sh_in(dir, script);
    repo.git_in(dir, &["add", "-A"]);
    repo.git_in(dir, &["commit", "-q", "--allow-empty", "-m", message]);
    repo.git_in(dir, &["rev-parse", "HEAD"])
}

fn log_of(repo: &TestRepo, range: &str, format: &str) -> String {
    repo.git(&["log", "--reverse", &format!("--format={format}"), range])
}

fn how_of(done: &Value) -> Vec<&str> {
    each(&done["commits"], "how")
}

/// A fork `work` whose uncommitted line 2 says other than main's.
fn at_odds(repo: &TestRepo, tine: &Tine) -> PathBuf {
    let dir = fork_with_work(repo, tine);
    set_line(repo, repo.dir(), 2, "zwei");
    main_goes_on(repo, "acht");
    dir
}

#[test]
fn a_fork_without_commits_moves_and_takes_what_is_uncommitted_along() {
    require_fuse!();
    for is_mounted in [true, false] {
        let repo = repo_with_list();
        let tine = Tine::new(&repo);
        let dir = fork_with_work(&repo, &tine);
        let began = repo.head();
        let main = main_goes_on(&repo, "acht");
        let before = times(&repo, &dir);
        let stood = standing(&repo, &tine, "work");
        if !is_mounted {
            tine.ok(&["unmount", "work"]);
        }
        let dry = told(&tine, 0, &["update", "work", "--dry-run"]);
        assert_eq!(
            (&dry["dry_run"], &dry["snapshot"]),
            (&json!(true), &Value::Null)
        );
        assert_eq!(
            standing(&repo, &tine, "work"),
            stood,
            "a dry run changes nothing"
        );
        let done = told(&tine, 0, &["update", "work"]);
        for field in [
            "status",
            "before",
            "after",
            "commits",
            "changes",
            "target",
            "conflicts",
        ] {
            assert_eq!(dry[field], done[field], "{field}");
        }
        assert_eq!(
            (&done["status"], &done["before"], &done["after"]),
            (&json!("merged"), &json!(began), &json!(main))
        );
        assert_eq!(each(&done["changes"], "path"), ["list.txt", "main.txt"]);
        let uncommitted = "M\tlist.txt\nA\twork.txt";
        assert_agreement(&repo, &tine, "work", uncommitted);
        assert_eq!(
            repo.git_of_fork("work", &["diff-index", "--cached", "HEAD"]),
            ""
        );
        assert_eq!(
            tine.ok(&["cat", "--fork", "work", "list.txt"]),
            "1\ntwo\n3\n4\n5\n6\n7\nacht\n9"
        );
        assert_eq!(tine.json(&["log", "work"])["commits"], json!([]));
        assert_eq!(
            told(&tine, 7, &["update", "work"])["status"],
            "nothing-to-merge"
        );

        let came = standing(&repo, &tine, "work");
        tine.ok(&["undo", "work"]);
        assert_eq!(standing(&repo, &tine, "work"), stood);
        tine.ok(&["redo", "work"]);
        assert_eq!(standing(&repo, &tine, "work"), came);
        if !is_mounted {
            tine.ok(&["mount", "work"]);
        }
        assert_agreement(&repo, &tine, "work", uncommitted);
        let after = times(&repo, &dir);
        let is_same =
            |line: &&String| !line.starts_with("list.txt ") && !line.starts_with("main.txt ");
        if is_mounted {
            assert_eq!(
                before.iter().filter(is_same).collect::<Vec<_>>(),
                after.iter().filter(is_same).collect::<Vec<_>>(),
                "what does not differ keeps its time"
            );
        }
        assert!(
            !after
                .iter()
                .any(|line| before.contains(line) && line.starts_with("list.txt "))
        );
    }
}

#[test]
fn own_commits_are_merged_as_git_merges_them() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("work");
    let own = commit_in(&repo, &dir, "sed -i 2s/.*/two/ list.txt", "own");
    let main = main_goes_on(&repo, "acht");
    repo.sh_in(
        &dir,
        "sed -i 5s/.*/five/ list.txt; rm docs/guide.md; echo new > new.txt",
    );
    let stood = standing(&repo, &tine, "work");
    let done = told(&tine, 0, &["update", "work"]);
    assert_eq!(how_of(&done), ["committed"]);
    assert_eq!(done["commits"][0]["source"], json!(main));
    assert_eq!(parents(&repo, "tine/work"), [own.clone(), main.clone()]);
    let git = repo.git_checkout_of(&own, "by-git");
    repo.git_in(&git, &["switch", "-qc", "tine/by-git"]);
    repo.git_in(&git, &["merge", "-q", "--no-edit", "main"]);
    assert_eq!(
        repo.git(&["rev-parse", "tine/by-git^{tree}"]),
        repo.git(&["rev-parse", "tine/work^{tree}"])
    );
    assert_eq!(
        repo.git(&["show", "-s", "--format=%B", "tine/work"]),
        "Merge branch 'main' into tine/work"
    );
    assert_agreement(
        &repo,
        &tine,
        "work",
        "D\tdocs/guide.md\nM\tlist.txt\nA\tnew.txt",
    );
    assert_eq!(
        repo.sh_in(&dir, "cat list.txt"),
        "1\ntwo\n3\n4\nfive\n6\n7\nacht\n9"
    );
    // Those that the fork has made are its own; those of the branch are not.
    let log = tine.json(&["log", "work"]);
    assert_eq!(
        each(&log["commits"], "summary"),
        ["Merge branch 'main' into tine/work", "own"]
    );

    // Taken back with an edit on top that is about neither.
    repo.sh_in(&dir, "echo later > later.txt");
    tine.ok(&["undo", "work"]);
    repo.sh_in(&dir, "rm later.txt");
    assert_eq!(standing(&repo, &tine, "work"), stood);
    tine.ok(&["redo", "work"]);
    assert_eq!(repo.git(&["rev-parse", "tine/work^2"]), main);
    // And with one that is in the way: nothing happens.
    repo.sh_in(&dir, "echo more >> list.txt");
    merge_refused(&repo, &tine, &["undo", "work"], "local-changes", 3);
    repo.sh_in(
        &dir,
        "git checkout -q HEAD -- list.txt; sed -i 5s/.*/five/ list.txt",
    );
    tine.ok(&["undo", "work"]);
    assert_eq!(standing(&repo, &tine, "work"), stood);
}

#[test]
fn a_rebase_makes_own_commits_again_as_git_does() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("work");
    repo.sh_in(
        &dir,
        "sed -i 2s/.*/two/ list.txt
         GIT_AUTHOR_NAME='Ö Ther' GIT_AUTHOR_DATE='2001-02-03T04:05:06 -0730' git commit -qam 'first

         with a body'
         git commit -q --allow-empty -m 'empty by intent'
         echo picked > picked.txt; git add -A; git commit -qm 'goes upstream, too'
         sed -i 5s/.*/five/ list.txt; git commit -qam 'last'
         echo uncommitted > u.txt; sed -i 9s/.*/nine/ list.txt",
    );
    tine.ok(&["status", "work"]);
    let picked = repo.git(&["rev-parse", "tine/work~1"]);
    main_goes_on(&repo, "beside");
    repo.sh_in(repo.dir(), "sed -i 8s/.*/8/ list.txt; git commit -qam back");
    repo.git(&["cherry-pick", &picked]);
    let main = repo.head();
    let format = "%an|%ae|%ad|%B|%T";
    let git = repo.git_checkout_of("tine/work", "by-git");
    repo.git_in(&git, &["switch", "-qc", "by-git"]);
    repo.git_in(&git, &["rebase", "-q", "main"]);
    let stood = standing(&repo, &tine, "work");
    let done = told(&tine, 0, &["update", "work", "--rebase"]);
    assert_eq!(how_of(&done), ["committed", "committed", "committed"]);
    assert_eq!(
        log_of(&repo, "main..tine/work", format),
        log_of(&repo, "main..by-git", format)
    );
    assert_eq!(repo.git(&["merge-base", "main", "tine/work"]), main);
    assert_agreement(&repo, &tine, "work", "M\tlist.txt\nA\tu.txt");
    let log = tine.json(&["log", "work"]);
    assert_eq!(
        each(&log["commits"], "summary"),
        ["last", "empty by intent", "first"]
    );
    tine.ok(&["undo", "work"]);
    assert_eq!(standing(&repo, &tine, "work"), stood);
    tine.ok(&["redo", "work"]);
    // On where it is there is nothing to do; and back to where it began all is made anew.
    told(&tine, 7, &["update", "work", "--rebase"]);
}

#[test]
fn conflicts_of_what_is_uncommitted_change_nothing_and_are_resolved_in_a_review() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    let dir = at_odds(&repo, &tine);
    let stood = standing(&repo, &tine, "work");
    let done = told(&tine, 3, &["update", "work"]);
    assert_eq!(done["status"], "conflicts");
    assert_eq!(each(&done["conflicts"], "path"), ["list.txt"]);
    assert_eq!(done["conflicts"][0]["kind"], "both_modified");
    assert_eq!(
        done["conflicts"][0]["hunks"][0]["ours"],
        json!({"text": "two\n"})
    );
    assert_eq!(
        done["conflicts"][0]["hunks"][0]["theirs"],
        json!({"text": "zwei\n"})
    );
    assert_eq!(done["review"], Value::Null);
    assert_eq!(standing(&repo, &tine, "work"), stood);

    let review = told(&tine, 3, &["update", "work", "--review"])["review"].to_string();
    assert_eq!(standing(&repo, &tine, "work"), stood);
    merge_refused(
        &repo,
        &tine,
        &["review", "commit", &review],
        "review-state",
        3,
    );
    repo.write("../list", "1\nboth\n3\n4\n5\n6\n7\nacht\n9\n");
    tine.ok(&["resolve", &review, "list.txt", "--file", "../list"]);
    // It was edited meanwhile, where it conflicts: the review is of another state.
    repo.sh_in(
        &dir,
        "cp list.txt kept.log; sed -i '2s/.*/otherwise/' list.txt",
    );
    merge_refused(
        &repo,
        &tine,
        &["review", "commit", &review],
        "review-outdated",
        3,
    );
    assert_eq!(
        tine.json(&["review", "show", &review])["moved"],
        json!(["ours"])
    );
    // Elsewhere it is not: it is planned again without a word.
    repo.sh_in(&dir, "cp kept.log list.txt; echo more > more.txt");
    assert_eq!(tine.json(&["review", "show", &review])["moved"], json!([]));
    let done = told(&tine, 0, &["review", "commit", &review]);
    assert_eq!(done["after"], json!(repo.head()));
    assert_agreement(
        &repo,
        &tine,
        "work",
        "M\tlist.txt\nA\tmore.txt\nA\twork.txt",
    );
    assert_eq!(
        repo.sh_in(&dir, "cat list.txt"),
        "1\nboth\n3\n4\n5\n6\n7\nacht\n9"
    );
    assert_eq!(
        tine.json(&["review", "show", &review])["state"],
        "committed"
    );
}

#[test]
fn strategies_settle_what_is_uncommitted() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    at_odds(&repo, &tine);
    for (how, strategy, line) in [
        (None, "ours", "two"),
        (None, "theirs", "zwei"),
        (None, "union", "two\nzwei"),
        (Some("--rebase"), "union", "zwei\ntwo"),
    ] {
        let args = ["update", "work", "--strategy", strategy];
        told(&tine, 0, &args.into_iter().chain(how).collect::<Vec<_>>());
        assert_eq!(
            tine.ok(&["cat", "--fork", "work", "list.txt"]),
            format!("1\n{line}\n3\n4\n5\n6\n7\nacht\n9")
        );
        tine.ok(&["undo", "work"]);
    }
    // Whole files: each side changed it.
    repo.sh_in(repo.dir(), "sed -i 2s/.*/2/ list.txt; git commit -qam two");
    told(&tine, 0, &["update", "work", "--dry-run"]);
    let done = told(&tine, 3, &["update", "work", "--level", "path"]);
    assert_eq!(each(&done["conflicts"], "path"), ["list.txt"]);
}

#[test]
fn a_fork_goes_to_whatever_is_named() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    let base = repo.head();
    let one = main_goes_on(&repo, "one");
    repo.git(&["tag", "-a", "-m", "v1", "v1"]);
    let two = main_goes_on(&repo, "two");
    tine.ok(&["new", "work", "--from", &base]);
    tine.ok(&["write", "--fork", "work", "u.txt"]);
    let failure = merge_refused(&repo, &tine, &["update", "work"], "usage", 2);
    assert!(
        failure["hint"].as_str().unwrap().contains("--from"),
        "{failure}"
    );
    merge_refused(&repo, &tine, &["update", "work", "--fetch"], "usage", 2);
    merge_refused(
        &repo,
        &tine,
        &["update", "work", "--from", "nothing"],
        "unknown-revision",
        4,
    );
    for (from, at) in [
        ("v1", &one),
        ("main", &two),
        ("main~2", &base),
        (two.as_str(), &two),
    ] {
        let done = told(&tine, 0, &["update", "work", "--from", from]);
        assert_eq!(done["after"], json!(at), "{from}");
        assert_eq!(repo.git(&["rev-parse", "tine/work"]), *at);
        assert_agreement(&repo, &tine, "work", "A\tu.txt");
    }

    // A fork of a fork follows that one's branch, and a fork may be named.
    let parent = tine.new_fork("parent");
    tine.ok(&["new", "child", "--from-fork", "parent", "--no-mount"]);
    let at = commit_in(&repo, &parent, "echo parent > parent.txt", "parent");
    assert_eq!(told(&tine, 0, &["update", "child"])["after"], json!(at));
    assert_eq!(
        told(&tine, 0, &["update", "work", "--from", "parent"])["after"],
        json!(at)
    );
    assert_eq!(tine.ok(&["cat", "--fork", "work", "parent.txt"]), "parent");
    merge_refused(&repo, &tine, &["update", "none"], "no-such-fork", 4);
}

#[test]
fn what_the_remote_has_is_fetched_first() {
    require_fuse!();
    let origin = repo_with_list();
    let url = path_text(origin.dir()).to_owned();
    let repo = TestRepo::new().without_maintenance();
    repo.git(&["remote", "add", "origin", &url]);
    let tine = Tine::new(&repo);
    tine.new_fork("work");
    let failure = merge_refused(&repo, &tine, &["update", "work", "--fetch"], "usage", 2);
    assert!(
        failure["message"]
            .as_str()
            .unwrap()
            .contains("follows no branch"),
        "{failure}"
    );
    repo.git(&["fetch", "-q", "origin"]);
    repo.git(&["reset", "-q", "--hard", "origin/main"]);
    repo.git(&["branch", "-q", "--set-upstream-to=origin/main", "main"]);
    told(&tine, 0, &["update", "work"]);
    let there = main_goes_on(&origin, "there");
    told(&tine, 7, &["update", "work"]);
    let done = told(&tine, 0, &["update", "work", "--fetch"]);
    assert_eq!(done["after"], json!(there));
    assert_eq!(repo.git(&["rev-parse", "origin/main"]), there);
    // The branch itself is its owner's to move.
    assert_ne!(repo.head(), there);
    let there = main_goes_on(&origin, "there again");
    let done = told(
        &tine,
        0,
        &["update", "work", "--fetch", "--from", "origin/main"],
    );
    assert_eq!(done["after"], json!(there));
    // A relative URL is meant from the top, wherever the command runs; a remote's name may have a
    // slash.
    repo.sh_in(
        repo.dir(),
        "ln -s \"$(git remote get-url origin)\" ../their && git remote set-url origin ../their",
    );
    repo.git(&["remote", "rename", "origin", "team/them"]);
    std::fs::create_dir_all(repo.dir().join("deep/er")).unwrap();
    let there = main_goes_on(&origin, "there a third time");
    let done = tine.run_in(
        &repo.dir().join("deep/er"),
        &["update", "work", "--fetch", "--json"],
    );
    assert_eq!(done.status.code(), Some(0), "{}", done.error_text());
    assert!(done.text().contains(&there), "{}", done.text());
    let there = main_goes_on(&origin, "there a fourth time");
    let done = told(
        &tine,
        0,
        &["update", "work", "--fetch", "--from", "team/them/main"],
    );
    assert_eq!(done["after"], json!(there));
    origin.sh_in(origin.root(), "mv repo gone");
    let output = tine.run(&["update", "work", "--fetch", "--json"]);
    assert_eq!(output.status.code(), Some(1), "{}", output.error_text());
    assert!(
        output.text().contains("\"remote-unreachable\""),
        "{}",
        output.text()
    );
    origin.sh_in(origin.root(), "mv gone repo");
}

#[test]
fn a_resolver_is_asked_of_each_commit_that_is_made_again() {
    require_fuse!();
    require_program!("python3");
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("work");
    commit_in(&repo, &dir, "sed -i 2s/.*/first/ list.txt", "first");
    commit_in(
        &repo,
        &dir,
        "sed -i 2s/.*/second/ list.txt; echo b > b.txt",
        "second",
    );
    repo.sh_in(&dir, "sed -i 2s/.*/third/ list.txt");
    repo.sh_in(
        repo.dir(),
        "sed -i 2s/.*/zwei/ list.txt; git commit -qam zwei",
    );
    let command = resolver(
        &repo,
        "lines = lambda side: ask[side][0]['content']['text'].split('\\n')\n\
         if ask['ask'] == 'judge': answer(verdict='accept')\n\
         else: answer(content='\\n'.join(ours if ours == theirs else ours + '+' + theirs \
         for ours, theirs in zip(lines('ours'), lines('theirs'))))",
    );
    let args = [
        "update",
        "work",
        "--rebase",
        "--resolver",
        &command,
        "--auto-commit",
        "--semantic",
    ];
    let done = told(&tine, 0, &args);
    assert_eq!(how_of(&done), ["committed", "committed"]);
    assert_eq!(
        repo.git(&["log", "--format=%s", "main..tine/work"]),
        "second\nfirst"
    );
    let second_line = |revision: &str| {
        let text = repo.git(&["show", &format!("{revision}:list.txt")]);
        text.lines().nth(1).unwrap_or_default().to_owned()
    };
    assert_eq!(second_line("tine/work~1"), "zwei+first");
    assert_eq!(second_line("tine/work"), "zwei+first+second");
    assert_eq!(
        repo.sh_in(&dir, "sed -n 2p list.txt"),
        "zwei+first+second+third"
    );
    assert_agreement(&repo, &tine, "work", "M\tlist.txt");
}

#[test]
fn what_a_resolver_amends_is_there_also_without_a_commit() {
    require_fuse!();
    require_program!("python3");
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("work");
    main_goes_on(&repo, "acht");
    let command = resolver(
        &repo,
        "answer(verdict='amend', changes=[{'path': 'amended.txt', 'content': 'amended\\n'}])",
    );
    let args = [
        "update",
        "work",
        "--resolver",
        &command,
        "--semantic",
        "--auto-commit",
    ];
    told(&tine, 0, &args);
    assert_eq!(repo.git(&["rev-parse", "tine/work"]), repo.head());
    assert_eq!(repo.sh_in(&dir, "cat amended.txt"), "amended");
    assert_agreement(&repo, &tine, "work", "A\tamended.txt");
}

#[test]
fn what_submodules_stand_on_is_their_own_affair() {
    require_fuse!();
    let inner = TestRepo::new();
    let repo = repo_with_list();
    repo.git(&["config", "protocol.file.allow", "always"]);
    repo.git(&[
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "add",
        "-q",
        path_text(inner.dir()),
        "sub",
    ]);
    repo.commit_all("sub");
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("work");
    repo.git_in(
        &dir,
        &[
            "-c",
            "protocol.file.allow=always",
            "submodule",
            "update",
            "-q",
            "--init",
        ],
    );
    let stood = repo.git_in(&dir.join("sub"), &["rev-parse", "HEAD"]);
    repo.sh_in(&dir, "echo uncommitted > u.txt");
    repo.sh_in(&repo.dir().join("sub"), "git commit -q --allow-empty -m on");
    let main = main_goes_on(&repo, "acht");
    let before = standing(&repo, &tine, "work");
    let done = told(&tine, 0, &["update", "work"]);
    assert_eq!(done["after"], json!(main));
    assert_eq!(repo.git_in(&dir.join("sub"), &["rev-parse", "HEAD"]), stood);
    assert_eq!(repo.status(&dir), " M sub\n?? u.txt");
    assert_agreement(&repo, &tine, "work", "M\tsub\nA\tu.txt");
    tine.ok(&["undo", "work"]);
    assert_eq!(standing(&repo, &tine, "work"), before);
    tine.ok(&["redo", "work"]);
    assert_eq!(repo.git(&["rev-parse", "tine/work"]), main);
    tine.ok(&["undo", "work"]);
    told(&tine, 0, &["update", "work"]);
    // The one that is not checked out follows.
    tine.ok(&["new", "other", "--from", "main~1"]);
    told(&tine, 0, &["update", "other", "--from", "main"]);
    assert_agreement(&repo, &tine, "other", "");
}

#[test]
fn an_update_is_taken_back_when_nothing_else_keeps_what_was() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    let dir = fork_with_work(&repo, &tine);
    repo.sh_in(&dir, "mkdir -p deep/er; echo deep > deep/er/file");
    commit_in(&repo, &dir, "git add deep; git stash -q -- list.txt", "own");
    repo.sh_in(&dir, "git stash pop -q; mkdir new; echo new > new/file");
    main_goes_on(&repo, "acht");
    let stood = standing(&repo, &tine, "work");
    told(&tine, 0, &["update", "work", "--rebase"]);
    let came = standing(&repo, &tine, "work");
    let expire = "find .git/objects -type f -exec touch -d '3 weeks ago' {} +
         git reflog expire --expire=now --all; git gc -q --prune=now";
    repo.sh_in(repo.dir(), expire);
    tine.ok(&["undo", "work"]);
    assert_eq!(standing(&repo, &tine, "work"), stood);
    repo.sh_in(repo.dir(), expire);
    tine.ok(&["redo", "work"]);
    assert_eq!(standing(&repo, &tine, "work"), came);
}

#[test]
fn where_own_commits_begin_is_known_after_git_has_merged() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("work");
    commit_in(&repo, &dir, "echo own > own.txt", "own");
    let main = main_goes_on(&repo, "acht");
    repo.git_in(&dir, &["rebase", "-q", "main"]);
    told(&tine, 7, &["update", "work", "--dry-run"]);
    told(&tine, 7, &["update", "work"]);
    assert_eq!(
        each(&tine.json(&["log", "work"])["commits"], "summary"),
        ["own"]
    );
    // The branch is rewritten: its old commits are not the fork's.
    repo.sh_in(repo.dir(), "git commit -q --amend -m 'said otherwise'");
    told(&tine, 0, &["update", "work", "--rebase"]);
    assert_eq!(repo.git(&["rev-list", "--count", "main..tine/work"]), "1");
    assert!(!repo.git(&["rev-list", "tine/work"]).contains(&main));
    // Git is in the middle of something.
    repo.sh_in(&dir, "git bisect start");
    main_goes_on(&repo, "neun");
    merge_refused(
        &repo,
        &tine,
        &["update", "work"],
        "operation-in-progress",
        3,
    );
    repo.sh_in(&dir, "git bisect reset 2> /dev/null");
    told(&tine, 0, &["update", "work"]);
}

#[test]
fn an_update_takes_nothing_out_that_another_branch_brought() {
    require_fuse!();
    for rebase in [false, true] {
        for main_goes in [false, true] {
            let repo = repo_with_list();
            let tine = Tine::new(&repo);
            tine.new_fork("work");
            repo.sh_in(
                repo.dir(),
                "git switch -q -c theirs; echo theirs > theirs.txt; git add -A; git commit -qm theirs; git switch -q main",
            );
            told(&tine, 0, &["update", "work", "--from", "theirs"]);
            if main_goes {
                main_goes_on(&repo, "acht");
            }
            let mut update = vec!["update", "work"];
            update.extend(rebase.then_some("--rebase"));
            told(&tine, if main_goes { 0 } else { 7 }, &update);
            assert_eq!(tine.ok(&["cat", "--fork", "work", "theirs.txt"]), "theirs");
            let behind = repo.git(&["rev-list", "--count", "tine/work..main"]);
            assert_eq!(behind, "0", "{update:?}");
        }
    }
}

/// A branch `tine/w` of a fork that is gone, with a commit; main has gone on.
fn branch_of_a_deleted_fork(repo: &TestRepo, tine: &Tine) -> String {
    let dir = tine.new_fork("w");
    let own = commit_in(repo, &dir, "echo own > own.txt", "own");
    tine.ok(&["delete", "w"]);
    main_goes_on(repo, "acht");
    own
}

#[test]
fn an_update_keeps_the_commits_of_a_branch_that_was_there_before() {
    require_fuse!();
    for rebase in [false, true] {
        for from in [None, Some("tine/w")] {
            let repo = repo_with_list();
            let tine = Tine::new(&repo);
            let began = repo.head();
            let own = branch_of_a_deleted_fork(&repo, &tine);
            let mut new = vec!["new", "w", "--branch", "tine/w", "--no-mount"];
            new.extend(from.into_iter().flat_map(|from| ["--from", from]));
            tine.ok(&new);
            assert_eq!(tine.json(&["list"])["forks"][0]["fork_point"], json!(began));
            assert_eq!(
                each(&tine.json(&["log", "w"])["commits"], "commit"),
                [own.as_str()]
            );
            let mut update = vec!["update", "w"];
            update.extend(rebase.then_some("--rebase"));
            told(&tine, 0, &update);
            assert_eq!(tine.ok(&["cat", "--fork", "w", "own.txt"]), "own");
            assert!(log_of(&repo, "main..tine/w", "%s").contains("own"));
            assert_eq!(repo.git(&["merge-base", "main", "tine/w"]), repo.head());
            // What it was brought up to is no work of its own.
            assert_eq!(
                tine.json(&["list"])["forks"][0]["fork_point"],
                json!(repo.head())
            );
        }
    }
}

#[test]
fn records_of_earlier_versions_lose_no_commits_either() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    let began = repo.head();
    let own = branch_of_a_deleted_fork(&repo, &tine);
    tine.ok(&["new", "w", "--branch", "tine/w", "--no-mount"]);
    tine.ok(&["daemon", "stop"]);
    let path = repo.dir().join(".git/tine/forks/w/fork.json");
    let mut record: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let fields = record.as_object_mut().unwrap();
    assert!(fields.remove("own_commits").is_some());
    fields.insert("fork_point".to_owned(), json!(own));
    std::fs::write(&path, record.to_string()).unwrap();
    assert_eq!(tine.json(&["list"])["forks"][0]["fork_point"], json!(began));
    told(&tine, 0, &["update", "w"]);
    assert_eq!(tine.ok(&["cat", "--fork", "w", "own.txt"]), "own");
}

#[test]
fn commits_that_main_took_over_and_lost_stay_in_the_fork() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("work");
    commit_in(&repo, &dir, "echo own > own.txt", "own");
    tine.ok(&["merge", "work"]);
    told(&tine, 7, &["update", "work"]);
    repo.git(&["reset", "-q", "--hard", "HEAD~1"]);
    main_goes_on(&repo, "acht");
    told(&tine, 0, &["update", "work"]);
    assert_eq!(tine.ok(&["cat", "--fork", "work", "own.txt"]), "own");
}

#[test]
fn a_revert_goes_to_the_fork_point_as_an_update_moved_it() {
    require_fuse!();
    for way in ["update", "git merge", "git rebase", "tine merge"] {
        let repo = repo_with_list();
        let tine = Tine::new(&repo);
        let dir = tine.new_fork("work");
        commit_in(&repo, &dir, "echo own > own.txt", "own");
        let main = main_goes_on(&repo, "acht");
        match way {
            "update" => drop(told(&tine, 0, &["update", "work"])),
            "git merge" => drop(repo.git_in(&dir, &["merge", "-q", "--no-edit", "main"])),
            "git rebase" => drop(repo.git_in(&dir, &["rebase", "-q", "main"])),
            _ => drop(tine.ok(&["merge", "main", "--into", "work"])),
        }
        set_line(&repo, &dir, 2, "zwei");
        repo.sh_in(&dir, "echo more > own.txt");
        tine.ok(&["revert", "work", "list.txt", "own.txt"]);
        assert_eq!(
            repo.sh_in(&dir, "cat list.txt"),
            repo.sh_in(repo.dir(), "cat list.txt"),
            "{way}"
        );
        assert!(!dir.join("own.txt").exists(), "{way}");
        let pristine = tine.json(&["diff", "work", "--against", "pristine"]);
        assert_eq!(pristine["against"]["commit"], json!(main), "{way}");
        tine.ok(&["restore", "work", "pristine"]);
        assert_eq!(repo.git_in(&dir, &["diff", "main"]), "", "{way}");
        assert_eq!(
            tine.json(&["list"])["forks"][0]["fork_point"],
            json!(main),
            "{way}"
        );
        assert!(
            !repo
                .git_in(&dir, &["status", "--short"])
                .contains("list.txt"),
            "{way}"
        );
    }
}
