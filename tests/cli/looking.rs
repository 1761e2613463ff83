//! Status, diff and log; what the daemon tells of its mounts.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use base64::Engine;
use serde_json::json;

use crate::refused;
use crate::support::{
    OutputExt, TestRepo, Tine, repo::path_text, require_fuse, run_with_timeout, run_with_timeout_of,
};

/// One change of each kind, and things that do not count.
fn change_a_bit_of_everything(repo: &TestRepo, dir: &Path) {
    repo.sh_in(
        dir,
        "echo four >> docs/guide.md
         echo new > src/new.rs
         rm README.md
         rm link && echo file > link
         chmod 644 run.sh
         mkdir -p target/debug && echo built > target/debug/out
         echo noise > noise.log
         mkfifo pipe",
    );
}

#[test]
fn status_shows_a_line_a_change_and_leaves_out_what_is_ignored() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    let head = &repo.head()[..7];
    assert_eq!(
        tine.ok(&["status", "demo"]),
        format!("fork demo on branch tine/demo (HEAD {head}, its fork point)\nnothing to commit")
    );
    change_a_bit_of_everything(&repo, &dir);
    let expected = format!(
        "fork demo on branch tine/demo (HEAD {head}, its fork point)\n\
         D README.md\n\
         M docs/guide.md\n\
         T link\n\
         M run.sh\n\
         A src/new.rs\n\
         ! pipe (left out: git cannot hold it)\n\
         5 changes"
    );
    assert_eq!(tine.ok(&["status", "demo"]), expected);
    assert_eq!(
        tine.ok_in(&dir.join("src"), &["status"]),
        expected,
        "inside the mount, without the name"
    );
    assert_eq!(tine.ok(&["-C", path_text(&dir), "status"]), expected);
    tine.ok(&["unmount", "demo"]);
    assert_eq!(
        tine.ok(&["status", "demo"]),
        expected.replacen("its fork point)", "its fork point), not mounted", 1)
    );
    assert!(
        tine.ok(&["status", "demo", "--color", "always"])
            .contains("\x1b[32mA\x1b[0m src/new.rs")
    );
}

#[test]
fn status_agrees_with_git_add_all() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    change_a_bit_of_everything(&repo, &dir);
    let status = tine.json(&["status", "demo"]);
    let ours: Vec<String> = status["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|change| {
            format!(
                "{} {}",
                change["new_mode"].as_str().unwrap_or("000000"),
                change["path"].as_str().unwrap()
            )
        })
        .collect();
    repo.git_in(&dir, &["add", "-A"]);
    let staged = repo.git_in(&dir, &["diff", "--cached", "--raw", "--no-renames"]);
    let gits: Vec<String> = staged
        .lines()
        .map(|line| {
            let (modes, path) = line.split_once('\t').unwrap();
            format!("{} {path}", modes.split(' ').nth(1).unwrap())
        })
        .collect();
    assert_eq!(ours, gits);
    assert_eq!(status["left_out"], json!(["pipe"]));
}

#[test]
fn names_that_could_steer_a_terminal_are_quoted() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    for name in [
        &b"esc\x1b[2J"[..],
        b"line\nbreak",
        b"not\xffutf8",
        "naïve".as_bytes(),
    ] {
        std::fs::write(dir.join(std::ffi::OsStr::from_bytes(name)), "x").unwrap();
    }
    let status = tine.run(&["status", "demo"]).expect_success("status");
    let said = String::from_utf8(status.stdout).expect("quoting makes it UTF-8");
    for line in [
        "A \"esc\\033[2J\"\n",
        "A \"line\\nbreak\"\n",
        "A \"not\\377utf8\"\n",
        "A naïve\n",
    ] {
        assert!(said.contains(line), "{line:?} in {said:?}");
    }
    let paths = &tine.json(&["status", "demo"])["changes"];
    let odd = base64::engine::general_purpose::STANDARD.encode(b"not\xffutf8");
    assert!(
        paths
            .as_array()
            .unwrap()
            .iter()
            .any(|change| change["path"] == json!({"base64": odd})),
        "{paths}"
    );
}

#[test]
fn diff_is_gits_own() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    assert_eq!(tine.ok(&["diff", "demo"]), "");
    change_a_bit_of_everything(&repo, &dir);
    let patch = tine.ok(&["diff", "demo"]);
    assert!(
        patch.contains("diff --git a/docs/guide.md b/docs/guide.md"),
        "{patch}"
    );
    assert!(patch.contains("\n three\n+four\n"), "{patch}");
    assert!(
        patch.contains("new file mode 100644"),
        "untracked files are in it: {patch}"
    );
    assert_eq!(
        tine.ok(&["diff", "demo", "--name-only"]),
        "README.md\ndocs/guide.md\nlink\nrun.sh\nsrc/new.rs"
    );
    assert!(
        tine.ok(&["diff", "demo", "--stat"])
            .contains(" docs/guide.md | 1 +\n")
    );
    assert_eq!(
        tine.ok(&["diff", "demo", "--name-only", "--", "docs", "*.rs"]),
        "docs/guide.md\nsrc/new.rs"
    );
    assert_eq!(
        tine.ok_in(&dir.join("docs"), &["diff", "--name-only", "--", "."]),
        "docs/guide.md"
    );
    assert!(
        tine.ok(&["diff", "demo", "--color=always"])
            .contains("\x1b[32m+")
    );
    let noted = tine
        .run(&["diff", "demo"])
        .expect_success("diff")
        .error_text();
    assert_eq!(noted, "note: pipe is left out: git cannot hold it\n");
    assert_eq!(
        repo.git_in(&dir, &["diff", "--cached"]),
        "",
        "nothing is staged by looking"
    );
}

#[test]
fn a_diff_with_content_can_be_applied_elsewhere() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    change_a_bit_of_everything(&repo, &dir);
    let mut binary = crate::support::repo::large_content();
    binary.truncate(5000);
    std::fs::write(dir.join("data/small.bin"), &binary).unwrap();
    let patch = run_with_timeout(&mut tine.command(&["diff", "demo", "--content"]))
        .expect_success("diff --content");
    let other = repo.git_checkout_of("HEAD", "other");
    let mut apply = repo.command("git", &other);
    run_with_timeout_of(
        apply.args(["apply", "--index"]),
        std::time::Duration::from_secs(20),
        &patch.stdout,
    )
    .expect_success("git apply");
    assert_eq!(std::fs::read(other.join("data/small.bin")).unwrap(), binary);
    let tree = repo.git_in(&other, &["write-tree"]);
    assert_eq!(tine.json(&["diff", "demo"])["view_tree"], tree);
}

#[test]
fn diff_tells_machines_lines_and_contents() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    repo.sh_in(
        &dir,
        "echo four >> docs/guide.md; printf 'a\\377b' > odd.bin; rm README.md",
    );
    let plain = tine.json(&["diff", "demo"]);
    assert_eq!(plain["fork"], "demo");
    assert_eq!(plain["head_tree"], repo.git(&["rev-parse", "HEAD^{tree}"]));
    assert_eq!(plain["changes"].as_array().unwrap().len(), 3);
    assert_eq!(plain["changes"][0].get("added_lines"), None);

    let narrowed = tine.ok(&["diff", "demo", "--stat", "--json", "--", "docs"]);
    let narrowed: serde_json::Value = serde_json::from_str(&narrowed).unwrap();
    assert_eq!(narrowed["changes"].as_array().unwrap().len(), 1);
    assert_eq!(narrowed["changes"][0]["added_lines"], 1);
    assert_eq!(narrowed["changes"][0]["removed_lines"], 0);

    let full = tine.json(&["diff", "demo", "--content"]);
    let changes = full["changes"].as_array().unwrap();
    assert_eq!(changes[0]["path"], "README.md");
    assert_eq!(changes[0]["kind"], "deleted");
    assert_eq!(changes[0]["new_content"], json!(null));
    assert_eq!(
        changes[0]["old_content"]["text"],
        "# A test\n\nWith two paragraphs.\n"
    );
    assert_eq!(changes[1]["old_content"]["text"], "one\ntwo\nthree\n");
    assert_eq!(changes[1]["new_content"]["text"], "one\ntwo\nthree\nfour\n");
    assert_eq!(
        changes[1]["new_id"],
        repo.git_in(&dir, &["hash-object", "docs/guide.md"]),
        "the id is the blob's"
    );
    assert_eq!(changes[2]["new_content"], json!({"base64": "Yf9i"}));
    assert_eq!(changes[2]["old_mode"], json!(null));
    assert_eq!(changes[2]["new_mode"], "100644");
}

#[test]
fn log_shows_the_commits_since_the_base() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    let empty = tine.run(&["log", "demo"]).expect_success("log");
    assert_eq!(empty.text(), "");
    assert!(
        empty
            .error_text()
            .contains("no commits since the fork point"),
        "{}",
        empty.error_text()
    );
    assert_eq!(tine.json(&["log", "demo"]), json!({"commits": []}));
    repo.sh_in(
        &dir,
        "for n in 1 2 3; do echo $n > n; git add -A; git commit -qm \"commit $n\"; done",
    );
    let subjects = |text: &str| -> Vec<String> {
        text.lines()
            .map(|line| line.split_once(' ').unwrap().1.to_owned())
            .collect()
    };
    assert_eq!(
        subjects(&tine.ok_in(&dir, &["log"])),
        ["commit 3", "commit 2", "commit 1"]
    );
    assert_eq!(
        subjects(&tine.ok(&["log", "demo", "-n", "1"])),
        ["commit 3"]
    );
    let commits = tine.json(&["log", "demo", "-n", "2"]);
    assert_eq!(commits["commits"].as_array().unwrap().len(), 2);
    assert_eq!(
        commits["commits"][0]["commit"],
        repo.git_in(&dir, &["rev-parse", "HEAD"])
    );
    assert_eq!(commits["commits"][0]["author_name"], "Ada Author");
}

#[test]
fn what_git_committed_a_moment_ago_is_found() {
    require_fuse!();
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    let commit = || {
        repo.git_in(&dir, &["commit", "-q", "--allow-empty", "-m", "now"]);
        repo.git_in(&dir, &["rev-parse", "--short=7", "HEAD"])
    };
    // git may be taken over before the question, too, and then it is no test.
    for number in 0..4 {
        let now = commit();
        assert!(tine.ok(&["log", "demo"]).starts_with(&now));
        let now = commit();
        assert!(tine.ok_in(&dir, &["log"]).starts_with(&now));
        // Revisions are resolved before anything is locked.
        let now = commit();
        let branch = format!("here-{number}");
        let args = ["branch", "create", &branch, "--at", "HEAD"];
        assert_eq!(
            tine.ok_in(&dir, &args),
            format!("created {branch} at {now}")
        );
        let now = commit();
        let branch = format!("there-{number}");
        let args = ["branch", "create", &branch, "--fork", "demo", "--at", &now];
        assert_eq!(tine.ok(&args), format!("created {branch} at {now}"));
    }
}

#[test]
fn looking_at_a_fork_that_is_not_there_is_refused() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    tine.new_fork("demo");
    for verb in ["status", "diff", "log", "path"] {
        refused(&repo, &tine, &[verb, "other"], "no-such-fork", 4);
        refused(&repo, &tine, &[verb], "not-in-fork", 2);
        refused(&repo, &tine, &[verb, "../demo"], "invalid-fork-name", 2);
    }
}

#[test]
fn the_daemon_counts_what_each_mount_is_asked() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    tine.ok(&["new", "idle"]);
    let dir = tine.new_fork("used");
    tine.ok(&["new", "unmounted", "--no-mount"]);
    let requests = || {
        let status = tine.json(&["daemon", "status"]);
        let mounted = status["mounted"].as_array().unwrap();
        let forks: Vec<_> = mounted.iter().map(|mount| &mount["fork"]).collect();
        assert_eq!(forks, ["idle", "used"]);
        let of = |kind: &str| [0, 1].map(|at| mounted[at]["requests"][kind].as_u64().unwrap_or(0));
        (of("mknod"), of("write"))
    };
    let ([idle, used], [idle_writes, used_writes]) = requests();
    std::fs::write(dir.join("one"), "1").unwrap();
    std::fs::write(dir.join("two"), "2").unwrap();
    assert_eq!(
        requests(),
        ([idle, used + 2], [idle_writes, used_writes + 2])
    );

    let text = tine.ok(&["daemon", "status", "--requests"]);
    let line = format!("mknod {}", used + 2);
    let lines: Vec<String> = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    let heading = lines
        .iter()
        .position(|line| line.starts_with("requests to used "));
    assert!(lines[heading.unwrap()..].contains(&line), "{text}");
    assert!(!tine.ok(&["daemon", "status"]).contains("requests to"));
}
