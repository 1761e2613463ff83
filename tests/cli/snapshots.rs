//! Snapshots, going back to them, and forks of forks, from the command line.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::support::{OutputExt, TestRepo, Tine, require_fuse, run_with_timeout, wait_until};

fn names(snapshots: &Value) -> Vec<&str> {
    let list = snapshots["snapshots"].as_array().unwrap();
    list.iter()
        .map(|snapshot| snapshot["name"].as_str().unwrap())
        .collect()
}

fn text(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap()
}

#[test]
fn a_fork_goes_back_while_programs_use_it() {
    require_fuse!();
    let repo = TestRepo::new();
    repo.write(".gitignore", "*.log\n");
    repo.commit_all("ignore");
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    repo.sh_in(&dir, "echo one > README.md && echo noise > build.log && mkdir -p deep/er && echo x > deep/er/x && chmod 600 README.md");
    // Sources that come back are new, for whoever builds, and so are directories in which a name
    // comes or goes; what git ignores has its time.
    let look = "find . -not -path ./.git \\( \\( -path './src*' -type d -o -path ./data -o -name build.log \\) -printf '%P %m %s %T@\\n' \
                -o -printf '%P %m %s\\n' \\) | sort";
    let before = repo.sh_in(&dir, look);
    let in_which_names_change = "stat -c %Y.%y . deep deep/er docs";
    let then = repo.sh_in(&dir, in_which_names_change);
    assert_eq!(
        tine.ok(&["snapshot", "demo", "good", "-m", "it works"]),
        "good"
    );

    repo.sh_in(
        &dir,
        "echo two > README.md && rm -r deep build.log docs && echo new > new.txt",
    );
    let mut changed = fs::File::open(dir.join("README.md")).unwrap();
    let mut made = fs::File::open(dir.join("new.txt")).unwrap();
    let told = tine.ok(&["restore", "demo", "good"]);
    assert_eq!(
        told,
        "demo is as at snapshot:good; `tine restore demo before-restore-1` takes that back"
    );
    assert_eq!(repo.sh_in(&dir, look), before);
    let now = repo.sh_in(&dir, in_which_names_change);
    assert!(
        now.lines().zip(then.lines()).all(|(now, then)| now > then),
        "{now}\n{then}"
    );
    assert_eq!(text(dir.join("README.md")), "one\n");
    assert_eq!(text(dir.join("build.log")), "noise\n");
    let mut held = String::new();
    changed.read_to_string(&mut held).unwrap();
    made.read_to_string(&mut held).unwrap();
    assert_eq!(held, "two\nnew\n", "what was open stays as it was opened");
    assert_eq!(repo.status(&dir), " M README.md\n?? deep/er/x");

    tine.ok(&["restore", "demo", "before-restore-1"]);
    assert_eq!(text(dir.join("README.md")), "two\n");
    assert!(!dir.join("deep").exists() && dir.join("new.txt").exists());
    let listed = tine.json(&["snapshots", "demo"]);
    assert_eq!(
        names(&listed),
        ["good", "before-restore-1", "before-restore-2"]
    );
    assert_eq!(listed["snapshots"][0]["message"], "it works");
    assert_eq!(
        repo.sh_in(&dir, "git fsck 2>&1 | grep -v dangling || true"),
        ""
    );
}

#[test]
fn any_point_of_the_repository_can_be_restored() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    repo.sh_in(&dir, "echo 1 > one.txt && git add -A && git commit -qm one && echo 2 > one.txt && echo '*.skip' > .gitignore && echo l > a.skip");
    tine.ok(&["snapshot", "demo", "mark"]);
    let tree = tine.json(&["diff", "demo", "--against", "mark"])["new_tree"]
        .as_str()
        .unwrap()
        .to_owned();
    tine.ok(&["restore", "demo", "HEAD"]);
    assert_eq!(
        repo.status(&dir),
        "?? a.skip",
        "what was ignored stays, and is shown"
    );
    assert_eq!(text(dir.join("one.txt")), "1\n");
    tine.ok(&["restore", "demo", "pristine"]);
    assert!(!dir.join("one.txt").exists() && !dir.join("a.skip").exists());
    assert_eq!(repo.status(&dir), " D one.txt");

    let snapshots = tine.json(&["snapshots", "demo"]);
    assert_eq!(
        snapshots["snapshots"][0]["tree"],
        json!(tree),
        "it is written down"
    );
    repo.git(&["gc", "-q", "--prune=now"]);
    let restored = tine.json(&["restore", "demo", &tree]);
    assert_eq!(restored["to"], "snapshot:mark");
    assert_eq!(text(dir.join("one.txt")), "2\n");
    assert_eq!(
        text(dir.join("a.skip")),
        "l\n",
        "the snapshot itself is meant"
    );

    repo.sh_in(&dir, "echo 3 > one.txt && echo 3 > README.md");
    tine.ok(&["restore", "demo", "mark", "--path", "one.txt"]);
    assert_eq!(
        (text(dir.join("one.txt")), text(dir.join("README.md"))),
        ("2\n".into(), "3\n".into())
    );
    let failed = run_with_timeout(&mut tine.command(&["restore", "demo", "nowhere", "--json"]));
    let failure: Value = serde_json::from_str(&failed.text()).unwrap();
    assert_eq!(failure["error"]["code"], "no-such-point");
    let count = tine.json(&["snapshots", "demo"])["snapshots"]
        .as_array()
        .unwrap()
        .len();
    let failed = run_with_timeout(
        &mut tine.command(&["restore", "demo", "mark", "--path", "no/such", "--json"]),
    );
    assert!(!failed.status.success());
    let left = tine.json(&["snapshots", "demo"])["snapshots"]
        .as_array()
        .unwrap()
        .len();
    assert_eq!(left, count, "what failed changed nothing");
}

#[test]
fn forks_of_forks_go_their_own_ways_and_outlive_each_other() {
    require_fuse!();
    let repo = TestRepo::new();
    repo.write(".gitignore", "*.log\n");
    repo.commit_all("ignore");
    let tine = Tine::new(&repo);
    let one = tine.new_fork("one");
    repo.sh_in(
        &one,
        "echo 1 > file && echo l > a.log && echo staged > s && git add s && git commit -qm own --allow-empty",
    );
    repo.sh_in(&one, "echo more >> file");
    let two = PathBuf::from(tine.ok(&["new", "two", "--from-fork", "one"]));
    repo.sh_in(&two, "echo two >> file && git rm -q --cached s");
    repo.sh_in(&one, "echo one >> file && rm a.log");
    assert_eq!(text(one.join("file")), "1\nmore\none\n");
    assert_eq!(text(two.join("file")), "1\nmore\ntwo\n");
    assert_eq!(text(two.join("a.log")), "l\n");
    assert_eq!(
        repo.sh_in(&two, "git log --format=%s -1 && git branch --show-current"),
        "own\ntine/two"
    );
    assert_eq!(
        repo.sh_in(&one, "git status --short"),
        "?? file",
        "its index is its own"
    );

    tine.ok(&["snapshot", "two", "mark"]);
    let three = PathBuf::from(tine.ok(&["new", "three", "--from-fork", "two@mark"]));
    assert_eq!(text(three.join("file")), "1\nmore\ntwo\n");
    let forks = tine.json(&["list"])["forks"].clone();
    assert_eq!(
        forks[1]["parent"],
        json!({"fork": "two", "snapshot": "mark"})
    );
    let drawn = tine.ok(&["tree"]);
    let lines: Vec<&str> = drawn.lines().collect();
    assert_eq!(
        lines,
        [
            "one [tine/one]",
            "└─ two [tine/two]",
            "   └─ @mark",
            "      └─ three [tine/three]"
        ]
    );

    let refused = run_with_timeout(&mut tine.command(&["delete", "two", "--json"]));
    assert!(!refused.status.success());
    for name in ["one", "two"] {
        tine.ok(&["delete", name, "--force"]);
    }
    repo.git(&["reflog", "expire", "--expire=now", "--all"]);
    repo.git(&["gc", "-q", "--prune=now"]);
    tine.ok(&["daemon", "stop"]);
    tine.ok(&["list"]);
    assert_eq!(text(three.join("file")), "1\nmore\ntwo\n");
    assert_eq!(text(three.join("s")), "staged\n");
    assert!(tine.ok(&["tree"]).contains("began as two (deleted)"));
    tine.ok(&["delete", "three", "--force"]);
    let freed = tine.json(&["gc"]);
    assert_eq!(
        (&freed["layers"], &freed["kept_bytes"]),
        (&json!(0), &json!(0)),
        "nothing was left"
    );
}

#[test]
fn snapshots_are_taken_by_themselves() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = PathBuf::from(tine.ok(&["new", "demo", "--snapshot-every", "10ops"]));
    assert_eq!(tine.json(&["path", "demo"])["snapshot_every"], "10ops");
    for number in 0..20 {
        fs::write(dir.join(format!("file-{number}")), "x").unwrap();
    }
    wait_until(
        "a snapshot is taken",
        std::time::Duration::from_secs(60),
        || !names(&tine.json(&["snapshots", "demo"])).is_empty(),
    );
    let snapshots = tine.json(&["snapshots", "demo"]);
    assert_eq!(snapshots["snapshots"][0]["reason"], "periodic");
    tine.ok(&["mount", "demo", "--snapshot-every", "never"]);
    assert_eq!(tine.json(&["path", "demo"])["snapshot_every"], Value::Null);
    let failed = run_with_timeout(&mut tine.command(&[
        "new",
        "other",
        "--snapshot-every",
        "often",
        "--json",
    ]));
    assert!(failed.text().contains("\"usage\""), "{}", failed.text());
}

/// A fork `a` with a file of its own and a snapshot `s1`; main has a commit more, which the fork
/// was brought up to in that way.
fn went_on_since(repo: &TestRepo, tine: &Tine, way: &str) -> PathBuf {
    repo.write("both.txt", "1\n2\n3\n4\n5\n6\n7\n8\n");
    repo.commit_all("both");
    let dir = tine.new_fork("a");
    repo.sh_in(&dir, "echo a > mine; sed -i 's/^8$/own/' both.txt");
    tine.ok(&["snapshot", "a", "s1"]);
    repo.write("important.txt", "important\n");
    repo.sh_in(repo.dir(), "sed -i 's/^1$/main/' both.txt");
    repo.commit_all("important");
    match way {
        "update" => tine.ok(&["update", "a"]),
        _ => repo.sh_in(&dir, "git add -A; git commit -qm own; git rebase -q main"),
    };
    repo.sh_in(&dir, "echo later > mine; echo later > other");
    dir
}

#[test]
fn a_snapshot_from_before_an_update_brings_back_the_forks_own_work_only() {
    require_fuse!();
    for way in ["update", "rebase"] {
        let repo = TestRepo::new();
        let tine = Tine::new(&repo);
        let dir = went_on_since(&repo, &tine, way);
        let told = tine.ok(&["restore", "a", "s1"]);
        assert!(told.contains("on HEAD"), "{told}");
        assert_eq!(text(dir.join("mine")), "a\n");
        assert!(!dir.join("other").exists());
        assert_eq!(text(dir.join("important.txt")), "important\n");
        assert_eq!(text(dir.join("both.txt")), "main\n2\n3\n4\n5\n6\n7\nown\n");
        if way == "update" {
            tine.ok(&["commit", "a", "-m", "a"]);
        }
        tine.ok(&["undo", "a"]);
        assert_eq!(text(dir.join("mine")), "later\n");
    }
}

#[test]
fn the_very_tree_of_a_snapshot_is_taken_where_it_is_asked_for() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = went_on_since(&repo, &tine, "update");
    let restored = tine.json(&["restore", "a", "s1", "--exact"]);
    assert_eq!(restored["how"], "exact");
    assert_eq!(restored["left_out"][0]["commit"], json!(repo.head()));
    assert_eq!(restored["left_out"][0]["summary"], "important");
    assert!(!dir.join("important.txt").exists());
    assert_eq!(text(dir.join("both.txt")), "1\n2\n3\n4\n5\n6\n7\nown\n");
    // Undoing that goes to a state at the present HEAD.
    tine.ok(&["undo", "a"]);
    assert_eq!(text(dir.join("important.txt")), "important\n");
    let told = tine.ok(&["restore", "a", "s1", "--exact"]);
    assert!(told.contains("important"), "{told}");
}

#[test]
fn paths_of_an_old_snapshot_come_onto_head_too() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = went_on_since(&repo, &tine, "update");
    let others = ["both.txt", "important.txt"];
    let merged = "main\n2\n3\n4\n5\n6\n7\nown\n";
    repo.sh_in(&dir, "echo junk > both.txt");
    tine.ok(&["restore", "a", "s1", "--path", "both.txt"]);
    assert_eq!(text(dir.join("both.txt")), merged);
    assert_eq!(text(dir.join("mine")), "later\n", "no other path");
    repo.sh_in(&dir, "echo junk > both.txt");
    tine.ok(&["revert", "a", others[0], others[1], "--to", "s1"]);
    assert_eq!(text(dir.join("both.txt")), merged);
    assert_eq!(text(dir.join("important.txt")), "important\n");
    tine.ok(&["revert", "a", others[0], others[1], "--to", "s1", "--exact"]);
    assert_eq!(text(dir.join("both.txt")), "1\n2\n3\n4\n5\n6\n7\nown\n");
    assert!(!dir.join("important.txt").exists());
    // The state of another fork that is behind.
    tine.ok(&["undo", "a"]);
    tine.ok(&["new", "b", "--from", "main~1", "--no-mount"]);
    run_with_timeout(
        tine.command(&["write", "--fork", "b", "of-b"])
            .stdin(std::process::Stdio::null()),
    );
    tine.ok(&["restore", "a", "fork:b"]);
    assert!(dir.join("of-b").exists() && dir.join("important.txt").exists());
}

#[test]
fn conflicts_of_an_old_snapshot_change_nothing_and_are_resolved_in_a_review() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("a");
    repo.sh_in(&dir, "echo a > README.md");
    tine.ok(&["snapshot", "a", "s1"]);
    tine.ok(&["reset", "a"]);
    repo.write("README.md", "main\n");
    repo.commit_all("main");
    tine.ok(&["update", "a"]);
    let before = tine.ok(&["snapshots", "a"]);
    let refused = run_with_timeout(&mut tine.command(&["restore", "a", "s1", "--json"]));
    assert_eq!(refused.status.code(), Some(3), "{}", refused.text());
    assert!(refused.text().contains("README.md"));
    assert_eq!(text(dir.join("README.md")), "main\n");
    assert_eq!(tine.ok(&["snapshots", "a"]), before);
    let refused =
        run_with_timeout(&mut tine.command(&["revert", "a", "README.md", "--to", "s1", "--json"]));
    assert!(
        refused.text().contains("merge-conflicts"),
        "{}",
        refused.text()
    );
    run_with_timeout(&mut tine.command(&["restore", "a", "s1", "--review"]));
    tine.ok(&["resolve", "1", "README.md", "--theirs"]);
    tine.ok(&["review", "commit", "1"]);
    assert_eq!(text(dir.join("README.md")), "a\n");
    assert_eq!(repo.status(&dir), " M README.md");
}

#[test]
fn undo_refuses_what_would_take_back_the_commits_of_others() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("a");
    repo.sh_in(&dir, "echo a > mine");
    tine.ok(&["snapshot", "a", "s1"]);
    repo.sh_in(&dir, "echo b > mine");
    tine.ok(&["restore", "a", "s1"]);
    repo.write("important.txt", "important\n");
    repo.commit_all("important");
    repo.git_in(&dir, &["merge", "-q", "main"]);
    let refused = run_with_timeout(&mut tine.command(&["undo", "a", "--json"]));
    assert!(refused.text().contains("cannot-undo"), "{}", refused.text());
    assert!(refused.text().contains("tine restore a before-restore-1"));
    tine.ok(&["restore", "a", "before-restore-1"]);
    assert_eq!(text(dir.join("mine")), "b\n");
    assert_eq!(text(dir.join("important.txt")), "important\n");
}

#[test]
fn a_fork_of_an_old_snapshot_begins_at_the_head_of_that_time() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let began = repo.head();
    went_on_since(&repo, &tine, "update");
    let base = repo.git(&["rev-parse", "main~1"]);
    assert_ne!(base, began);
    let dir = PathBuf::from(tine.ok(&["new", "b", "--from-fork", "a@s1"]));
    assert_eq!(repo.git_in(&dir, &["rev-parse", "HEAD"]), base);
    assert_eq!(tine.json(&["list"])["forks"][1]["fork_point"], json!(base));
    assert_eq!(repo.status(&dir), " M both.txt\n?? mine");
    tine.ok(&["update", "b", "--from", "main"]);
    assert_eq!(text(dir.join("important.txt")), "important\n");
    assert_eq!(text(dir.join("both.txt")), "main\n2\n3\n4\n5\n6\n7\nown\n");
}

#[test]
fn a_snapshot_from_before_own_commits_is_taken_as_it_is() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("a");
    repo.sh_in(&dir, "echo 1 > f");
    tine.ok(&["snapshot", "a", "s1"]);
    repo.sh_in(
        &dir,
        "echo 2 > f; git add -A; git commit -qm own; echo 3 > g; git add -A; git commit -qm own",
    );
    tine.ok(&["new", "child", "--from-fork", "a", "--no-mount"]);
    let restored = tine.json(&["restore", "a", "s1"]);
    assert_eq!(
        (&restored["how"], &restored["left_out"]),
        (&json!("exact"), &json!([]))
    );
    assert_eq!(text(dir.join("f")), "1\n");
    assert!(!dir.join("g").exists());
}

#[test]
fn what_takes_the_commits_of_others_back_wants_a_word() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = went_on_since(&repo, &tine, "update");
    tine.ok(&["restore", "a", "s1", "--exact"]);
    let refused = run_with_timeout(&mut tine.command(&["commit", "a", "-m", "a", "--json"]));
    assert!(refused.text().contains("takes-back") && refused.text().contains("important.txt"));
    assert_eq!(refused.status.code(), Some(3));
    // Committed by git the merge names it.
    repo.sh_in(&dir, "git add -A; git commit -qm a");
    for extra in [&["--dry-run"][..], &[]] {
        let merge = [&["merge", "a", "--json"], extra].concat();
        let refused = run_with_timeout(&mut tine.command(&merge));
        assert!(refused.text().contains("takes-back"), "{}", refused.text());
    }
    assert_eq!(text(repo.dir().join("important.txt")), "important\n");
    repo.sh_in(&dir, "git reset -q --soft HEAD~1");
    tine.ok(&["commit", "a", "-m", "a", "--allow-revert"]);
    tine.ok(&["merge", "a", "--allow-revert"]);
    assert!(!repo.dir().join("important.txt").exists());
    // What a fork removes by itself is its own affair.
    let other = tine.new_fork("b");
    repo.write("new.txt", "new\n");
    repo.commit_all("new");
    tine.ok(&["update", "b"]);
    repo.sh_in(&other, "rm new.txt");
    tine.ok(&["commit", "b", "-m", "without it"]);
    tine.ok(&["merge", "b"]);
}

#[test]
fn a_sparse_checkout_is_not_taken_for_deletions_on_the_way_back() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    tine.ok(&["snapshot", "demo", "full"]);
    repo.git_in(&dir, &["sparse-checkout", "set", "--no-cone", "/docs/"]);
    fs::write(dir.join("docs/new.txt"), "new\n").unwrap();
    let before = repo.status(&dir);
    assert!(!before.contains('D'), "{before}");
    tine.ok(&["snapshot", "demo", "sparse"]);
    for args in [
        &["reset", "demo"][..],
        &["restore", "demo", "full"],
        &["restore", "demo", "pristine"],
        &["unmount", "demo", "--discard"],
        &["new", "child", "--from-fork", "demo@sparse"],
    ] {
        let said = tine.fails(3, args);
        assert!(
            said.contains("git sparse-checkout disable"),
            "{args:?}: {said}"
        );
        assert_eq!(repo.status(&dir), before, "{args:?}");
    }
    tine.ok(&["restore", "demo", "sparse"]);
    assert_eq!(repo.status(&dir), before);
    repo.git_in(&dir, &["sparse-checkout", "disable"]);
    tine.fails(3, &["restore", "demo", "sparse"]);
    tine.ok(&["reset", "demo"]);
    assert_eq!(repo.status(&dir), "");
}

/// A file that went back and was worked on, or moved, still lacks what others did to it.
#[test]
fn an_edit_after_going_back_hides_nothing_that_it_takes_back() {
    require_fuse!();
    let repo = TestRepo::new();
    repo.sh_in(
        repo.dir(),
        "seq 1 30 > list.txt; git add list.txt; git commit -qm list",
    );
    let tine = Tine::new(&repo);
    for (number, edit) in [
        "sed -i 's/^20$/F20/' list.txt",
        "echo more >> list.txt",
        "git mv list.txt moved.txt",
        "sed -i 's/^4$/F4/' list.txt",
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("f{number}");
        let dir = tine.new_fork(&name);
        tine.ok(&["snapshot", &name, "here"]);
        repo.sh_in(
            repo.dir(),
            &format!("sed -i '3s/.*/M{number}/' list.txt; git commit -qam theirs"),
        );
        tine.ok(&["update", &name]);
        tine.ok(&["restore", &name, "here", "--exact"]);
        repo.sh_in(&dir, edit);
        let refused =
            run_with_timeout(&mut tine.command(&["commit", &name, "-m", "mine", "--json"]));
        assert!(
            refused.text().contains("takes-back"),
            "{edit}: {}",
            refused.text()
        );
        assert!(
            refused.text().contains("list.txt"),
            "{edit}: {}",
            refused.text()
        );
        tine.ok(&["commit", &name, "-m", "mine", "--allow-revert"]);
    }
    // Who has their work, and goes on from it, is asked nothing.
    let dir = tine.new_fork("on");
    repo.sh_in(&dir, "sed -i '3s/.*/on/; s/^20$/on/' list.txt");
    tine.ok(&["commit", "on", "-m", "on"]);
    tine.ok(&["merge", "on"]);
}

/// The commands of a hint that are not in the way of a commit.
fn commands_of(hint: &str) -> Vec<&str> {
    hint.split('`')
        .skip(1)
        .step_by(2)
        .filter(|command| command.starts_with("tine "))
        .collect()
}

#[test]
fn what_would_take_commits_back_says_the_command_that_has_them_again() {
    require_fuse!();
    for way in ["commit", "merge", "handoff"] {
        let repo = TestRepo::new();
        let tine = Tine::new(&repo);
        let dir = tine.new_fork("a");
        fs::write(dir.join("own"), "own\n").unwrap();
        tine.ok(&["commit", "a", "-m", "own"]);
        tine.ok(&["snapshot", "a", "s1"]);
        repo.write("it's important.txt", "important\n");
        repo.commit_all("important");
        tine.ok(&["update", "a"]);
        tine.ok(&["restore", "a", "s1", "--exact"]);
        if way != "commit" {
            repo.sh_in(&dir, "git add -A; git commit -qm back");
            repo.write("later.txt", "later\n");
            repo.commit_all("later");
        }
        let args: &[&str] = match way {
            "commit" => &["commit", "a", "-m", "mine"],
            "merge" => &["merge", "a"],
            _ => &["handoff", "create", "a"],
        };
        let refused = tine.run(&[args, &["--json"]].concat());
        let refused: Value = serde_json::from_str(&refused.text()).unwrap();
        assert_eq!(refused["error"]["code"], "takes-back", "{way}: {refused}");
        let hint = refused["error"]["hint"].as_str().unwrap().to_owned();
        let [command] = commands_of(&hint)[..] else {
            panic!("{way}: {hint}");
        };
        let with_it = command.strip_prefix("tine").unwrap();
        let program = env!("CARGO_BIN_EXE_tine");
        let environment = tine.command(&["list"]);
        let mut shell = std::process::Command::new("sh");
        shell
            .args(["-c", &format!("'{program}'{with_it}")])
            .current_dir(repo.dir());
        shell.envs(
            environment
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        run_with_timeout(&mut shell).expect_success(command);
        assert_eq!(text(dir.join("it's important.txt")), "important\n", "{way}");
        if way == "commit" {
            assert!(
                tine.run(args).error_text().contains("nothing to commit"),
                "{way}"
            );
        } else {
            tine.ok(&["commit", "a", "-m", "again"]);
            tine.ok(args);
        }
    }
}

#[test]
fn an_unmount_hands_over_what_takes_commits_back_where_that_is_meant() {
    require_fuse!();
    for is_committed in [true, false] {
        let repo = TestRepo::new();
        let tine = Tine::new(&repo);
        let dir = went_on_since(&repo, &tine, "update");
        tine.ok(&["restore", "a", "s1", "--exact"]);
        let mut args = vec!["unmount", "a", "--handoff", "--json"];
        match is_committed {
            true => drop(repo.sh_in(&dir, "git add -A; git commit -qm a")),
            false => args.push("--include-uncommitted"),
        }
        let refused = tine.run(&args);
        assert!(refused.text().contains("takes-back"), "{}", refused.text());
        args.push("--allow-revert");
        if is_committed {
            // It is unmounted, and was not handed over.
            tine.ok(&["mount", "a"]);
        }
        let unmounted: Value = serde_json::from_str(&tine.ok(&args)).unwrap();
        assert_eq!(unmounted["trouble"], Value::Null, "{unmounted}");
        assert!(unmounted["handoff"]["id"].is_u64(), "{unmounted}");
    }
}

/// What is forgotten would be taken back in silence.
#[test]
fn what_may_take_commits_of_others_back_wants_a_word_where_the_record_of_them_cannot_be_read() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = went_on_since(&repo, &tine, "update");
    tine.ok(&["restore", "a", "s1", "--exact"]);
    let records = repo.common_dir().join("tine/gone-back");
    let record = fs::read_dir(&records)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let record = record
        .into_iter()
        .find(|path| path.extension().is_some_and(|kind| kind == "json"));
    let record = record.expect("it went back past a commit");
    let whole = fs::read(&record).unwrap();
    fs::write(&record, "{ damaged").unwrap();
    let refuses = |args: &[&str]| {
        let refused = run_with_timeout(&mut tine.command(&[args, &["--json"]].concat()));
        assert_eq!(
            refused.status.code(),
            Some(3),
            "{args:?}: {}",
            refused.text()
        );
        let text = refused.text();
        assert!(
            text.contains("takes-back") && text.contains("--repair"),
            "{args:?}: {text}"
        );
        assert!(text.contains(record.to_str().unwrap()), "{args:?}: {text}");
    };
    refuses(&["commit", "a", "-m", "a"]);
    refuses(&["handoff", "create", "a", "--include-uncommitted"]);
    refuses(&["unmount", "a", "--commit", "-m", "a"]);
    let checked = run_with_timeout(&mut tine.command(&["check"])).text();
    assert!(checked.contains(record.to_str().unwrap()), "{checked}");
    // Committed by git the merge is refused.
    repo.sh_in(&dir, "git add -A; git commit -qm a");
    refuses(&["merge", "a"]);
    refuses(&["handoff", "create", "a"]);
    assert_eq!(text(repo.dir().join("important.txt")), "important\n");
    // What changes nothing takes nothing back.
    tine.new_fork("idle");
    tine.ok(&["unmount", "idle", "--handoff"]);
    // As before, once the record is there again.
    fs::write(&record, &whole).unwrap();
    let refused = run_with_timeout(&mut tine.command(&["merge", "a"])).error_text();
    assert!(refused.contains("would take back"), "{refused}");
    fs::write(&record, "{ damaged").unwrap();
    let repaired = tine.ok(&["check", "--repair"]);
    assert!(
        repaired.contains("nothing refuses") && !record.exists(),
        "{repaired}"
    );
    tine.ok(&["merge", "a"]);
}

#[test]
fn what_takes_the_commits_of_others_back_wants_a_word_whichever_way_it_goes() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = went_on_since(&repo, &tine, "update");
    tine.ok(&["restore", "a", "s1", "--exact"]);
    let refuses = |args: &[&str]| {
        let refused = run_with_timeout(&mut tine.command(&[args, &["--json"]].concat()));
        assert!(
            refused.text().contains("takes-back"),
            "{args:?}: {}",
            refused.text()
        );
        assert!(
            refused.text().contains("important.txt"),
            "{}",
            refused.text()
        );
        assert_eq!(text(repo.dir().join("important.txt")), "important\n");
    };
    // A snapshot of it, and a fork that takes that up.
    tine.ok(&["snapshot", "a", "s2"]);
    refuses(&["merge", "a@s2"]);
    tine.new_fork("other");
    tine.ok(&["restore", "other", "a@s2"]);
    refuses(&["commit", "other", "-m", "other"]);
    // A child.
    let child = PathBuf::from(tine.ok(&["new", "child", "--from-fork", "a"]));
    refuses(&["commit", "child", "-m", "child"]);
    repo.sh_in(&child, "git add -A; git commit -qm child");
    refuses(&["merge", "child", "--into", "main"]);
    refuses(&["merge", "tine/child", "--into", "main"]);
    // What is committed for it.
    refuses(&["handoff", "create", "a", "--include-uncommitted"]);
    refuses(&["unmount", "a", "--commit", "-m", "a"]);
    // The fork brought back.
    tine.ok(&["delete", "a", "--force"]);
    tine.ok(&["recover", "1"]);
    refuses(&["commit", "a", "-m", "a"]);
    // A handoff of it, committed by git.
    repo.sh_in(&dir, "git add -A; git commit -qm a");
    refuses(&["handoff", "create", "a", "--to", "main"]);
    refuses(&["handoff", "create", "a", "--base", "HEAD~"]);
    refuses(&["handoff", "create", "a", "--base", "HEAD~2"]);
    assert_eq!(
        tine.json(&["handoff", "list", "--all"])["handoffs"],
        json!([])
    );
    tine.ok(&["handoff", "create", "a", "--to", "main", "--allow-revert"]);
    refuses(&["handoff", "apply", "1"]);
    refuses(&["handoff", "apply", "1", "--dry-run"]);
    // A review, whatever was resolved in it.
    repo.write("mine", "main's\n");
    repo.commit_all("mine");
    run_with_timeout(&mut tine.command(&["merge", "a", "--review"]));
    tine.ok(&["resolve", "1", "mine", "--ours"]);
    refuses(&["review", "commit", "1"]);
    tine.ok(&["review", "commit", "1", "--allow-revert"]);
    assert!(!repo.dir().join("important.txt").exists());
    // What the branch has lost by now, no fork takes from it.
    tine.ok(&["new", "late", "--from", "main~1", "--no-mount"]);
    tine.ok(&["merge", "main", "--into", "late"]);
}

/// The commit that a merge makes of a fork's files is compared with the fork's HEAD. Compared with
/// a target branch that lacks the others' commits, it shows no difference. Merged on from there, it
/// would remove their work.
#[test]
fn a_merge_commits_nothing_that_takes_back_what_only_the_fork_has_of_others() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    repo.git(&["switch", "-q", "-c", "others"]);
    tine.new_fork("a");
    tine.ok(&["snapshot", "a", "before"]);
    repo.commit_files(&[("theirs.txt", b"theirs\n")], "theirs");
    tine.ok(&["update", "a"]);
    tine.ok(&["restore", "a", "before", "--exact"]);
    tine.ok(&["snapshot", "a", "after"]);
    let main = repo.git(&["rev-parse", "main"]);
    for source in ["a", "a@after"] {
        let mut args = vec!["merge", source, "--into", "branch:main"];
        args.extend(["--with-uncommitted", "--json"]);
        let refused = run_with_timeout(&mut tine.command(&args)).text();
        assert!(refused.contains("takes-back"), "{source}: {refused}");
        assert!(refused.contains("theirs.txt"), "{source}: {refused}");
        assert_eq!(repo.git(&["rev-parse", "main"]), main);
        args.push("--allow-revert");
        tine.ok(&[&args[..], &["--dry-run"]].concat());
    }
}

#[test]
fn going_to_the_fork_point_names_what_the_fork_has_merged() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let (one, two) = (tine.new_fork("one"), tine.new_fork("two"));
    repo.sh_in(&one, "echo one > README.md");
    tine.ok(&["commit", "one", "-m", "of one"]);
    repo.sh_in(&two, "echo two > own");
    tine.ok(&["commit", "two", "-m", "of two"]);
    // Its own work the fork takes back as it likes.
    assert_eq!(tine.json(&["revert", "two", "own"])["left_out"], json!([]));
    tine.ok(&["undo", "two"]);
    tine.ok(&["merge", "one", "--into", "two"]);
    tine.ok(&["merge", "one"]);
    assert_eq!(
        tine.json(&["revert", "two", "own", "--dry-run"])["left_out"],
        json!([])
    );
    let reverted = tine.json(&["revert", "two", "."]);
    assert_eq!(reverted["left_out"][0]["summary"], "of one");
    assert_eq!(reverted["left_out"].as_array().unwrap().len(), 1);
    let refused = tine.fails(3, &["commit", "two", "-m", "back"]);
    assert!(refused.contains("README.md"), "{refused}");
    repo.sh_in(&two, "git add -A; git commit -qm back");
    let refused = tine.fails(3, &["merge", "two"]);
    assert!(refused.contains("README.md"), "{refused}");
    assert_eq!(text(repo.dir().join("README.md")), "one\n");
    repo.sh_in(&two, "git reset -q --hard HEAD~1");
    let told = tine.ok(&["restore", "two", "pristine"]);
    assert!(
        told.contains("of one") && !told.contains("of two"),
        "{told}"
    );
}
