//! `tine` alone, and `--quiet`.

use std::fs;

use serde_json::json;

use super::machines::{documented, keys};
use super::{failure_of, refused};
use crate::support::{OutputExt, TestRepo, Tine, require_fuse};

#[test]
fn tine_alone_says_what_there_is_and_what_to_do_next() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    assert_eq!(
        tine.ok(&[]),
        "there are no forks yet\n\nnext:\n  tine new NAME  make a fork of HEAD, and mount it\n  tine --help    see all commands"
    );
    assert_eq!(
        tine.daemon_pid(),
        None,
        "looking starts none where there is no fork"
    );
    assert!(
        !repo.common_dir().join("tine").exists(),
        "no store was made"
    );

    let dir = tine.new_fork("demo");
    tine.new_fork("other");
    tine.ok(&["unmount", "other"]);
    fs::write(dir.join("new.txt"), "new\n").unwrap();
    fs::write(dir.join("more.txt"), "more\n").unwrap();
    assert_eq!(
        tine.ok(&[]),
        "demo   tine/demo   mounted    2 paths uncommitted\n\
         other  tine/other  unmounted  nothing uncommitted\n\
         \n\
         next:\n\
         \x20 tine diff demo           see what changed\n\
         \x20 tine commit demo -m MSG  commit it\n\
         \x20 tine shell demo          work in it\n\
         \x20 tine new NAME            make a fork of HEAD, and mount it"
    );
    assert!(tine.ok_in(&dir, &[]).starts_with("* demo   tine/demo "));

    let told = tine.json(&[]);
    assert_eq!(keys(&told), documented("`tine` alone prints"));
    assert_eq!(keys(&told["forks"][0]), documented("a fork there has"));
    assert_eq!(told["forks"][0]["name"], "demo");
    assert_eq!(told["forks"][0]["uncommitted"], 2);
    assert_eq!(told["forks"][0]["here"], false);
    assert_eq!(
        told["next"][0],
        json!({"command": "tine diff demo", "about": "see what changed"})
    );
}

#[test]
fn tine_alone_tells_of_reviews_and_handoffs_that_wait() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    super::leave_review_and_handoff(&repo, &tine);
    let told = tine.ok(&[]);
    for line in [
        "\nreview 1   fork:demo into branch:main, 1 of 1 conflict open\n",
        "\nhandoff 1  demo to branch:main, 1 commit\n",
        "\n  tine review show 1   see its conflicts\n",
        "\n  tine handoff show 1  see what is handed over\n",
    ] {
        assert!(told.contains(line), "{line:?} in {told}");
    }
    let told = tine.json(&[]);
    assert_eq!(
        told["reviews"],
        json!([{"id": 1, "source": "fork:demo", "into": "branch:main", "conflicts": 1, "open": 1}])
    );
    assert_eq!(
        told["handoffs"],
        json!([{"id": 1, "fork": "demo", "to": "branch:main", "commits": 1}])
    );
}

#[test]
fn a_newcomer_outside_of_any_repository_is_told_how_to_begin() {
    let repo = TestRepo::unborn();
    let place = tempfile::tempdir().unwrap();
    let tine = Tine::new(&repo);
    let output = tine.run_in(place.path(), &[]);
    assert_eq!(output.status.code(), Some(4));
    let said = output.error_text();
    assert!(said.contains("is not inside a git repository"), "{said}");
    assert!(
        said.contains("run `tine new NAME`; `tine --help` lists"),
        "{said}"
    );
    let failure = failure_of(&tine.run_in(place.path(), &["--json"]), "tine --json");
    assert_eq!(failure["code"], "not-a-repository");
}

#[test]
fn quiet_leaves_out_notes_and_never_failures() {
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let output = tine.run(&["list"]).expect_success("list");
    assert!(
        output.error_text().starts_with("note: "),
        "{}",
        output.error_text()
    );
    for flag in ["-q", "--quiet"] {
        let output = tine.run(&["list", flag]).expect_success("list");
        assert_eq!(
            (output.text().as_str(), output.error_text().as_str()),
            ("", "")
        );
    }
    refused(&repo, &tine, &["-q", "status", "x"], "no-such-fork", 4);
}

#[test]
fn the_log_tells_what_is_done_where_it_is_asked_for() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    tine.new_fork("demo");
    let said = |flags: &[&str], filter: Option<&str>| {
        let mut command = tine.command(&[&["branch", "list"], flags].concat());
        if let Some(filter) = filter {
            command.env("TINE_LOG", filter);
        }
        let output = crate::support::run_with_timeout(&mut command).expect_success("list");
        assert!(
            output.text().contains("tine/demo"),
            "the answer is the same"
        );
        output.error_text()
    };
    assert_eq!(said(&[], None), "");
    for (flags, filter) in [
        (&["-v"][..], None),
        (&["-v", "--quiet"], None),
        (&[], Some("tine=debug")),
    ] {
        let said = said(flags, filter);
        assert!(
            said.contains("asks the daemon: branches"),
            "{flags:?} {filter:?}: {said}"
        );
        assert!(!said.contains("Branches {"), "{flags:?} {filter:?}: {said}");
    }
    assert!(said(&["-vv"], None).contains("ListBranches { all: false }"));
    assert!(said(&[], Some("tine=trace")).contains("ListBranches { all: false }"));
    assert_eq!(
        said(&["-vv"], Some("off")),
        "",
        "the variable has the last word"
    );
}
