//! `tine cherry-pick`: commits are made again on a fork, as `git cherry-pick` makes them.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::merging::{content_at, each, merge_refused, repo_with_list, told};
use crate::support::{TestRepo, Tine, assert_agreement, require_fuse};
use crate::updating::standing;

const FORMAT: &str = "%an|%ae|%ad|%e|%T|%B";

/// A mounted fork `work` at the first commit, and main with `script` on top.
fn fork_before(repo: &TestRepo, tine: &Tine, script: &str) -> PathBuf {
    let dir = tine.new_fork("work");
    repo.sh_in(repo.dir(), script);
    dir
}

/// What git makes of it, at `base`: the branch.
fn by_git(repo: &TestRepo, base: &str, name: &str, args: &[&str]) -> String {
    let dir = repo.git_checkout_of(base, name);
    repo.git_in(&dir, &["switch", "-qc", name]);
    repo.git_in(&dir, &[&["cherry-pick"], args].concat());
    name.to_owned()
}

fn log_of(repo: &TestRepo, range: &str) -> String {
    repo.git(&[
        "log",
        "--reverse",
        "--encoding=UTF-8",
        &format!("--format={FORMAT}"),
        range,
    ])
}

#[track_caller]
fn assert_as_git(repo: &TestRepo, tine: &Tine, number: usize, args: &[&str]) -> Value {
    let base = repo.git(&["rev-parse", "tine/work"]);
    let done = told(tine, 0, &[&["cherry-pick", "work"], args].concat());
    let git = by_git(repo, &base, &format!("by-git-{number}"), args);
    assert_eq!(
        log_of(repo, &format!("{base}..tine/work")),
        log_of(repo, &format!("{base}..{git}")),
        "{args:?}"
    );
    assert_eq!(done["before"], json!(base));
    tine.ok(&["undo", "work"]);
    assert_eq!(repo.git(&["rev-parse", "tine/work"]), base);
    done
}

#[test]
fn commits_ranges_and_origins_are_as_git_has_them() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    fork_before(
        &repo,
        &tine,
        "echo before > before.txt; git add -A; git commit -qm before
         for line in 1 2 3; do
           sed -i $((line * 2))s/.*/new$line/ list.txt
           GIT_AUTHOR_NAME=Other GIT_AUTHOR_EMAIL=o@e GIT_AUTHOR_DATE=\"2005-04-0${line}T00:00:00 +0530\" git commit -qam \"change $line\"
         done
         echo signed > s.txt; git add -A; git commit -qm 'signed

Body.

Signed-off-by: A <a@b>'
         echo bare > b.txt; git add -A; git commit -q --allow-empty-message -m ''
         echo crlf > c.txt; git add -A; git commit -q --cleanup=verbatim -m '

  leading space, # no comment
# a comment


many lines

'",
    );
    tine.ok(&["write", "--fork", "work", "beside.txt"]);
    let cases: [&[&str]; 8] = [
        &["main~5"],
        &["main~3", "main~5", "main~4"],
        &["main~6..main~2"],
        &["-x", "main~6..main~2"],
        &["-x", "main~2", "main~5"],
        &["-x", "main"],
        &["main"],
        &["main~3..main~2", "main~5"],
    ];
    for (number, args) in cases.into_iter().enumerate() {
        assert_as_git(&repo, &tine, number, args);
        assert_agreement(&repo, &tine, "work", "A\tbeside.txt");
    }
    // Twice from elsewhere, and each says so.
    tine.ok(&["cherry-pick", "-x", "work", "main~5", "main~2"]);
    repo.git(&["branch", "told", "tine/work"]);
    tine.ok(&["undo", "work"]);
    assert_as_git(&repo, &tine, 8, &["-x", "told~1", "told"]);
    let stood = standing(&repo, &tine, "work");
    let dry = told(&tine, 0, &["cherry-pick", "work", "main~5", "--dry-run"]);
    assert_eq!(standing(&repo, &tine, "work"), stood);
    let done = told(&tine, 0, &["cherry-pick", "work", "main~5"]);
    assert_eq!(dry["changes"], done["changes"]);
    assert_eq!(done["commits"][0]["subject"], "change 1");
    assert_eq!(done["commits"][0]["how"], "committed");
    let text = tine.ok(&["cherry-pick", "work", "main~4"]);
    assert!(
        text.contains("change 2") && text.contains("tine undo work"),
        "{text}"
    );
}

#[test]
fn merges_roots_and_other_encodings_are_picked() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    fork_before(
        &repo,
        &tine,
        "git switch -qc side; echo side > side.txt; git add -A; git commit -qm side
         git switch -q main; echo main > main.txt; git add -A; git commit -qm main
         git merge -q --no-edit side
         git switch -q --orphan root; echo root > root.txt; git add -A; git commit -qm root
         printf 'gr\\374n\\n' > message
         echo latin > latin.txt; git add latin.txt; git -c i18n.commitEncoding=ISO-8859-1 commit -q -F message
         echo raw > raw.txt; git add raw.txt; printf 'raw \\377\\376\\n' > message; git commit -q -F message
         rm message; git switch -q main",
    );
    let failure = merge_refused(&repo, &tine, &["cherry-pick", "work", "main"], "usage", 2);
    assert!(failure["hint"].as_str().unwrap().contains("--mainline 1"));
    merge_refused(
        &repo,
        &tine,
        &["cherry-pick", "work", "main", "-m", "3"],
        "usage",
        2,
    );
    merge_refused(
        &repo,
        &tine,
        &["cherry-pick", "work", "main", "-m", "0"],
        "usage",
        2,
    );
    let cases: [&[&str]; 5] = [
        &["-m", "1", "main"],
        &["-m", "2", "main"],
        &["root~2"],
        &["root~1"],
        &["root~2..root"],
    ];
    for (number, args) in cases.into_iter().enumerate() {
        assert_as_git(&repo, &tine, number, args);
    }
    merge_refused(
        &repo,
        &tine,
        &["cherry-pick", "work", "nothing"],
        "unknown-revision",
        4,
    );
    merge_refused(
        &repo,
        &tine,
        &["cherry-pick", "work", "main^{tree}"],
        "unknown-revision",
        4,
    );
}

#[test]
fn commits_that_change_nothing_stop_go_or_stay() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    fork_before(
        &repo,
        &tine,
        "echo a > a.txt; git add -A; git commit -qm a; git commit -q --allow-empty -m hollow
         echo b > b.txt; git add -A; git commit -qm b",
    );
    told(&tine, 0, &["cherry-pick", "work", "main~2"]);
    let failure = merge_refused(
        &repo,
        &tine,
        &["cherry-pick", "work", "main~3..main"],
        "empty-pick",
        3,
    );
    assert!(
        failure["hint"].as_str().unwrap().contains("--empty"),
        "{failure}"
    );
    merge_refused(
        &repo,
        &tine,
        &["cherry-pick", "work", "main~1"],
        "empty-pick",
        3,
    );
    let count = |range: &str| repo.git(&["rev-list", "--count", range]);
    let base = repo.git(&["rev-parse", "tine/work"]);
    let done = told(
        &tine,
        0,
        &["cherry-pick", "work", "main~3..main", "--empty", "keep"],
    );
    assert_eq!(each(&done["commits"], "how"), ["committed"; 3]);
    assert_eq!(count(&format!("{base}..tine/work")), "3");
    tine.ok(&["undo", "work"]);
    let done = told(
        &tine,
        0,
        &["cherry-pick", "work", "main~2", "main", "--empty", "drop"],
    );
    assert_eq!(each(&done["commits"], "how"), ["left-out", "committed"]);
    assert_eq!(content_at(&repo, "tine/work", "b.txt"), "b");
    told(
        &tine,
        7,
        &["cherry-pick", "work", "main~2", "--empty", "drop"],
    );
}

#[test]
fn what_is_uncommitted_stays_or_is_in_the_way() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    let dir = fork_before(
        &repo,
        &tine,
        "sed -i 2s/.*/zwei/ list.txt; git commit -qam two; echo n > new.txt; git add -A; git commit -qm new
         git mv docs/guide.md guide; git commit -qm moved",
    );
    repo.sh_in(
        &dir,
        "sed -i 8s/.*/eight/ list.txt; echo mine > other.txt; echo o > o.log",
    );
    let failure = merge_refused(
        &repo,
        &tine,
        &["cherry-pick", "work", "main~2"],
        "local-changes",
        3,
    );
    assert!(failure.to_string().contains("list.txt"), "{failure}");
    merge_refused(
        &repo,
        &tine,
        &["cherry-pick", "work", "main~2", "--dry-run"],
        "local-changes",
        3,
    );
    repo.sh_in(&dir, "echo untracked > new.txt");
    merge_refused(
        &repo,
        &tine,
        &["cherry-pick", "work", "main~1"],
        "local-changes",
        3,
    );
    repo.sh_in(&dir, "rm new.txt");
    told(&tine, 0, &["cherry-pick", "work", "main~2..main"]);
    assert_agreement(&repo, &tine, "work", "M\tlist.txt\nA\tother.txt");
    assert_eq!(
        repo.sh_in(&dir, "cat guide new.txt o.log"),
        "one\ntwo\nthree\nn\no"
    );
    // git is in the middle of something of its own.
    repo.sh_in(
        &dir,
        "git commit -qam mine; ! git cherry-pick main~2 > /dev/null 2>&1 || git reset -q --hard",
    );
}

#[test]
fn conflicts_of_several_commits_are_resolved_one_after_another() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    let dir = fork_before(
        &repo,
        &tine,
        "sed -i 2s/.*/zwei/ list.txt; git commit -qam first
         echo clean > clean.txt; git add -A; git commit -qm clean
         sed -i 2s/.*/deux/ list.txt; git rm -q docs/guide.md; git commit -qam second",
    );
    repo.sh_in(
        &dir,
        "sed -i 2s/.*/two/ list.txt; echo four >> docs/guide.md; git commit -qam own",
    );
    let stood = standing(&repo, &tine, "work");
    let first = repo.git(&["rev-parse", "main~2"]);
    let done = told(&tine, 3, &["cherry-pick", "work", "main~3..main"]);
    assert_eq!(done["status"], "conflicts");
    assert_eq!(done["conflicts"][0]["of"], json!(first));
    assert_eq!(done["commits"][0]["how"], Value::Null);
    assert_eq!(standing(&repo, &tine, "work"), stood);
    let review = told(
        &tine,
        3,
        &["cherry-pick", "work", "main~3..main", "--review"],
    )["review"]
        .to_string();
    tine.ok(&["resolve", &review, "list.txt", "--theirs"]);
    // What comes up now is the last commit's.
    let shown = tine.json(&["review", "show", &review]);
    let open: Vec<(&Value, &Value)> = shown["conflicts"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|conflict| conflict["resolution"].is_null())
        .map(|conflict| (&conflict["of"], &conflict["path"]))
        .collect();
    assert_eq!(open, [(&json!(repo.head()), &json!("docs/guide.md"))]);
    tine.ok(&["resolve", &review, "docs/guide.md", "--ours"]);
    assert_eq!(tine.json(&["review", "show", &review])["open"], 0);
    let done = told(&tine, 0, &["review", "commit", &review]);
    assert_eq!(each(&done["commits"], "how"), ["committed"; 3]);
    assert_eq!(
        repo.git(&["log", "-3", "--format=%s", "tine/work"]),
        "second\nclean\nfirst"
    );
    assert_eq!(
        content_at(&repo, "tine/work~2", "list.txt"),
        "1\nzwei\n3\n4\n5\n6\n7\n8\n9"
    );
    assert_eq!(
        content_at(&repo, "tine/work", "list.txt"),
        "1\ndeux\n3\n4\n5\n6\n7\n8\n9"
    );
    assert_eq!(
        content_at(&repo, "tine/work", "docs/guide.md"),
        "one\ntwo\nthree\nfour"
    );
    assert_agreement(&repo, &tine, "work", "");
    tine.ok(&["undo", "work"]);
    assert_eq!(standing(&repo, &tine, "work"), stood);
}
