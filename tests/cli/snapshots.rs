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
    let before = repo.sh_in(&dir, "find . -not -path ./.git -printf '%P %m %s %T@\\n' | sort");
    assert_eq!(tine.ok(&["snapshot", "demo", "good", "-m", "it works"]), "good");

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
    let after = "find . -not -path ./.git -printf '%P %m %s %T@\\n' | sort";
    assert_eq!(repo.sh_in(&dir, after), before);
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
    assert_eq!(names(&listed), ["good", "before-restore-1", "before-restore-2"]);
    assert_eq!(listed["snapshots"][0]["message"], "it works");
    assert_eq!(repo.sh_in(&dir, "git fsck 2>&1 | grep -v dangling || true"), "");
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
    assert_eq!(text(dir.join("a.skip")), "l\n", "the snapshot itself is meant");

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
    let failed =
        run_with_timeout(&mut tine.command(&["restore", "demo", "mark", "--path", "no/such", "--json"]));
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
    assert_eq!(forks[1]["parent"], json!({"fork": "two", "snapshot": "mark"}));
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
    wait_until("a snapshot is taken", std::time::Duration::from_secs(60), || {
        !names(&tine.json(&["snapshots", "demo"])).is_empty()
    });
    let snapshots = tine.json(&["snapshots", "demo"]);
    assert_eq!(snapshots["snapshots"][0]["reason"], "periodic");
    tine.ok(&["mount", "demo", "--snapshot-every", "never"]);
    assert_eq!(tine.json(&["path", "demo"])["snapshot_every"], Value::Null);
    let failed =
        run_with_timeout(&mut tine.command(&["new", "other", "--snapshot-every", "often", "--json"]));
    assert!(failed.text().contains("\"usage\""), "{}", failed.text());
}
