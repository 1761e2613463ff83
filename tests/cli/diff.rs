//! `tine diff --against`: a fork beside other points.

use serde_json::{Value, json};

use crate::refused;
use crate::support::{
    OutputExt, TestRepo, Tine, require_fuse, run_with_timeout, run_with_timeout_of,
};

/// `A new.txt` for each change.
fn changes(difference: &Value) -> Vec<String> {
    let changes = difference["changes"].as_array().expect("a list");
    let line = |change: &Value| {
        let kind = change["kind"].as_str().expect("a kind").to_uppercase();
        format!(
            "{} {}",
            &kind[..1],
            change["path"].as_str().expect("a text")
        )
    };
    changes.iter().map(line).collect()
}

/// Two forks of one commit that changed different things, and something both have alike.
fn two_forks(repo: &TestRepo, tine: &Tine<'_>) {
    let ours = tine.new_fork("ours");
    let theirs = tine.new_fork("theirs");
    for dir in [&ours, &theirs] {
        repo.sh_in(dir, "echo both > both.txt; echo built > noise.log");
    }
    repo.sh_in(&ours, "echo four >> docs/guide.md; rm README.md");
    repo.sh_in(
        &theirs,
        "echo theirs > theirs.txt; rm link && echo file > link",
    );
}

#[test]
fn a_fork_is_compared_with_another_as_both_are_now() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    two_forks(&repo, &tine);
    let difference = tine.json(&["diff", "ours", "--against", "theirs"]);
    assert_eq!(
        changes(&difference),
        ["D README.md", "M docs/guide.md", "T link", "D theirs.txt"]
    );
    let against = &difference["against"];
    assert_eq!(
        (
            &against["kind"],
            &against["point"],
            &against["commit"],
            &against["also"]
        ),
        (
            &json!("fork"),
            &json!("fork:theirs"),
            &Value::Null,
            &json!([])
        )
    );
    assert_eq!(against["tree"], tine.json(&["diff", "theirs"])["view_tree"]);
    assert_eq!(difference["old_tree"], against["tree"]);
    assert_eq!(difference["new_tree"], difference["view_tree"]);

    // The other way round, and from the other side.
    let reverse = tine.json(&["diff", "ours", "--against", "theirs", "--reverse"]);
    assert_eq!(
        changes(&reverse),
        ["A README.md", "M docs/guide.md", "T link", "A theirs.txt"]
    );
    assert_eq!(
        (&reverse["old_tree"], &reverse["new_tree"]),
        (&difference["new_tree"], &difference["old_tree"])
    );
    assert_eq!(
        reverse["changes"],
        tine.json(&["diff", "theirs", "--against", "fork:ours"])["changes"]
    );

    // Neither needs to be mounted.
    tine.ok(&["unmount", "ours"]);
    tine.ok(&["unmount", "theirs"]);
    assert_eq!(
        tine.json(&["diff", "ours", "--against", "theirs"]),
        difference
    );
    assert_eq!(tine.ok(&["diff", "ours", "--against", "ours"]), "");
}

#[test]
fn the_patch_against_a_point_leads_from_there_to_the_fork() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    two_forks(&repo, &tine);
    let theirs = tine.ok(&["path", "theirs"]);
    let theirs = std::path::Path::new(&theirs);
    let patch =
        run_with_timeout(&mut tine.command(&["diff", "ours", "--against", "theirs", "--content"]))
            .expect_success("diff --content");
    let apply = |patch: &[u8], args: &[&str]| {
        let mut apply = repo.command("git", theirs);
        run_with_timeout_of(
            apply.arg("apply").args(args),
            std::time::Duration::from_secs(20),
            patch,
        )
        .expect_success("git apply");
    };
    apply(&patch.stdout, &[]);
    assert_eq!(tine.ok(&["diff", "ours", "--against", "theirs"]), "");
    apply(&patch.stdout, &["--reverse"]);
    let back = run_with_timeout(&mut tine.command(&[
        "diff",
        "ours",
        "--against",
        "theirs",
        "--reverse",
        "--content",
    ]))
    .expect_success("diff --reverse");
    let ours = tine.ok(&["path", "ours"]);
    let mut git = repo.command("git", std::path::Path::new(&ours));
    run_with_timeout_of(
        git.arg("apply"),
        std::time::Duration::from_secs(20),
        &back.stdout,
    )
    .expect_success("git apply");
    assert_eq!(tine.ok(&["diff", "ours", "--against", "theirs"]), "");
}

#[test]
fn names_lines_and_contents_of_both_sides_are_told() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    two_forks(&repo, &tine);
    let against = ["diff", "ours", "--against", "theirs"];
    let with = |more: &[&str]| tine.ok(&[&against[..], more].concat());
    assert_eq!(
        with(&["--name-only"]),
        "README.md\ndocs/guide.md\nlink\ntheirs.txt"
    );
    assert_eq!(
        with(&["--name-status"]),
        "D\tREADME.md\nM\tdocs/guide.md\nT\tlink\nD\ttheirs.txt"
    );
    assert_eq!(
        with(&["--name-status", "--reverse", "--", "theirs.txt"]),
        "A\ttheirs.txt"
    );
    assert!(with(&["--stat"]).contains(" docs/guide.md | 1 +\n"));
    let of = |path: &str, more: &[&str]| {
        let words = [&against[..], more, &["--content", "--json", "--", path]].concat();
        let difference: Value = serde_json::from_str(&tine.ok(&words)).expect("JSON");
        let change = difference["changes"][0].clone();
        (change["old_content"].clone(), change["new_content"].clone())
    };
    let theirs = json!({"text": "theirs\n"});
    assert_eq!(of("theirs.txt", &[]), (theirs.clone(), Value::Null));
    assert_eq!(of("theirs.txt", &["--reverse"]), (Value::Null, theirs));
    let (old, new) = of("link", &[]);
    assert_eq!(old, json!({"text": "file\n"}));
    assert!(new["text"].is_string(), "{new}");
}

#[test]
fn what_a_fork_was_made_from_stays_a_point_when_head_moves_on() {
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let base = repo.head();
    let pointed = |word: &str| tine.json(&["diff", "demo", "--against", word])["against"].clone();
    require_fuse!();
    let dir = tine.new_fork("demo");
    repo.sh_in(&dir, "echo one > one.txt");
    tine.ok(&["commit", "demo", "-m", "one"]);
    repo.sh_in(&dir, "echo two > two.txt");
    assert_eq!(changes(&tine.json(&["diff", "demo"])), ["A two.txt"]);
    let pristine = tine.json(&["diff", "demo", "--against", "pristine"]);
    assert_eq!(changes(&pristine), ["A one.txt", "A two.txt"]);
    assert_eq!(
        pristine["against"],
        json!({
            "kind": "pristine",
            "point": "pristine",
            "tree": repo.git(&["rev-parse", &format!("{base}^{{tree}}")]),
            "commit": base,
            "also": [],
        })
    );
    // Revisions are the fork's own: HEAD, HEAD~1.
    let head = repo.git_in(&dir, &["rev-parse", "HEAD"]);
    assert_eq!(pointed("HEAD")["commit"], json!(head));
    assert_eq!(pointed("HEAD~1")["commit"], json!(base));
    assert_eq!(
        changes(&tine.json(&["diff", "demo", "--against", "HEAD~1"])),
        ["A one.txt", "A two.txt"]
    );
    let tree = pointed("HEAD^{tree}");
    assert_eq!(
        (&tree["kind"], &tree["commit"]),
        (&json!("revision"), &Value::Null)
    );
    assert_eq!(
        tine.ok(&["diff", "demo", "--reverse", "--name-status"]),
        "D\ttwo.txt"
    );
}

#[test]
fn a_word_with_two_meanings_is_told() {
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    tine.ok(&["new", "demo", "--no-mount"]);
    tine.ok(&["new", "main", "--no-mount"]);
    let difference = tine
        .run(&["diff", "demo", "--against", "main"])
        .expect_success("diff");
    assert_eq!(
        difference.error_text(),
        "note: \"main\" is taken for fork:main; it could also be rev:main\n"
    );
    let also = &tine.json(&["diff", "demo", "--against", "main"])["against"]["also"];
    assert_eq!(also, &json!(["rev:main"]));
    for word in ["fork:main", "rev:main"] {
        let output = tine
            .run(&["diff", "demo", "--against", word])
            .expect_success("diff");
        assert_eq!(output.error_text(), "", "{word}");
        assert_eq!(
            tine.json(&["diff", "demo", "--against", word])["against"]["point"],
            word
        );
    }
    tine.ok(&["new", "pristine", "--no-mount"]);
    let output = tine
        .run(&["diff", "demo", "--against", "pristine"])
        .expect_success("diff");
    assert_eq!(
        output.error_text(),
        "note: \"pristine\" is taken for fork:pristine; it could also be pristine\n"
    );
}

#[test]
fn points_that_do_not_exist_are_refused() {
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    tine.ok(&["new", "demo", "--no-mount"]);
    for (word, code, exit) in [
        ("nothing", "no-such-point", 4),
        ("", "no-such-point", 4),
        ("HEAD~5", "no-such-point", 4),
        ("HEAD:README.md", "no-such-point", 4),
        ("fork:nothing", "no-such-fork", 4),
        ("fork:../x", "invalid-fork-name", 2),
        ("rev:nothing", "unknown-revision", 4),
        ("rev:", "unknown-revision", 4),
        ("rev:--all", "unknown-revision", 4),
    ] {
        let against = format!("--against={word}");
        refused(&repo, &tine, &["diff", "demo", &against], code, exit);
    }
}

/// Forks that are compared with each other from both sides at the same time do not wait for each
/// other for ever.
#[test]
fn forks_are_compared_from_both_sides_at_once() {
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    tine.ok(&["new", "a", "--no-mount"]);
    tine.ok(&["new", "b", "--no-mount"]);
    std::thread::scope(|scope| {
        for (one, other) in [("a", "b"), ("b", "a"), ("a", "b"), ("b", "a")] {
            let tine = &tine;
            scope.spawn(move || {
                for _ in 0..5 {
                    assert_eq!(tine.ok(&["diff", one, "--against", other]), "");
                }
            });
        }
    });
}

#[test]
fn a_fork_is_compared_with_its_snapshots_and_those_of_others() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    repo.sh_in(
        &dir,
        "echo four >> docs/guide.md; echo new > new.txt; echo noise > noise.log",
    );
    let then = tine.json(&["diff", "demo"])["view_tree"].clone();
    tine.ok(&["snapshot", "demo", "before"]);
    let listed = || tine.json(&["snapshots", "demo"])["snapshots"][0]["tree"].clone();
    assert_eq!(listed(), Value::Null, "nobody asked for it");
    repo.sh_in(&dir, "rm new.txt; echo later > later.txt; rm noise.log");
    tine.ok(&["commit", "demo", "-m", "later"]);
    let difference = tine.json(&["diff", "demo", "--against", "before"]);
    assert_eq!(changes(&difference), ["A later.txt", "D new.txt"]);
    assert_eq!(
        difference["against"],
        json!({"kind": "snapshot", "point": "snapshot:before", "tree": then, "commit": null, "also": []})
    );
    assert_eq!(listed(), then);
    assert_eq!(
        json!(repo.git(&["rev-parse", "refs/tine/demo/snapshot-before"])),
        then
    );
    tine.ok(&["unmount", "demo"]);
    tine.kill_daemon();
    repo.git(&["gc", "-q", "--prune=now"]);
    assert_eq!(
        tine.json(&["diff", "demo", "--against", "snapshot:before"]),
        difference
    );

    tine.ok(&["new", "other", "--no-mount"]);
    let theirs = tine.json(&["diff", "other", "--against", "fork:demo@before"]);
    assert_eq!(changes(&theirs), ["M docs/guide.md", "D new.txt"]);
    assert_eq!(theirs["against"]["point"], "fork:demo@before");
    // A snapshot comes before a fork of that name, and that before a branch.
    tine.ok(&["snapshot", "demo", "other"]);
    let output = tine
        .run(&["diff", "demo", "--against", "other"])
        .expect_success("diff");
    assert_eq!(
        output.error_text(),
        "note: \"other\" is taken for snapshot:other; it could also be fork:other\n"
    );
    for (word, code) in [
        ("snapshot:nothing", "no-such-snapshot"),
        ("fork:demo@nothing", "no-such-snapshot"),
        ("fork:nothing@before", "no-such-fork"),
        ("snapshot:a b", "no-such-point"),
    ] {
        refused(&repo, &tine, &["diff", "demo", "--against", word], code, 4);
    }
    tine.ok(&["snapshot", "demo", "before", "--delete", "--force"]);
    assert_eq!(
        repo.git(&["for-each-ref", "refs/tine/demo/snapshot-before"]),
        ""
    );
    refused(
        &repo,
        &tine,
        &["diff", "demo", "--against", "before"],
        "no-such-point",
        4,
    );
}
