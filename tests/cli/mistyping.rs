//! Names that are not there, and those that may have been meant.

use crate::support::{TestRepo, Tine, require_fuse};

#[test]
fn a_mistyped_name_is_told_which_one_is_like_it() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    tine.new_fork("fix-parser");
    tine.ok(&["snapshot", "fix-parser", "before-lunch"]);
    repo.git(&["branch", "topic"]);
    for (args, code, hint) in [
        (
            &["status", "fix-praser"][..],
            "no-such-fork",
            "did you mean fix-parser?",
        ),
        (
            &["delete", "fix-prser"],
            "no-such-fork",
            "did you mean fix-parser?",
        ),
        (
            &["rm", "--fork", "fixparser", "a"],
            "no-such-fork",
            "did you mean fix-parser?",
        ),
        (
            &["new", "x", "--from-fork", "fix-parser@before-lunhc"],
            "no-such-snapshot",
            "did you mean before-lunch?",
        ),
        (
            &["snapshot", "fix-parser", "beforelunch", "--delete"],
            "no-such-snapshot",
            "did you mean before-lunch?",
        ),
        (
            &["restore", "fix-parser", "before-luch"],
            "no-such-point",
            "did you mean before-lunch?",
        ),
        (
            &["diff", "fix-parser", "--against", "pristin"],
            "no-such-point",
            "did you mean pristine?",
        ),
        (
            &["branch", "delete", "tpoic"],
            "no-such-branch",
            "did you mean topic?",
        ),
        (
            &["branch", "rename", "tine/fix-praser", "x"],
            "no-such-branch",
            "did you mean tine/fix-parser?",
        ),
        (
            &["new", "x", "--from", "topc"],
            "unknown-revision",
            "did you mean topic?",
        ),
    ] {
        let failure = super::refused(&repo, &tine, args, code, 4);
        let hinted = failure["hint"].as_str().unwrap();
        assert!(hinted.starts_with(hint), "{args:?}: {hinted}");
    }
    let failure = super::refused(
        &repo,
        &tine,
        &["status", "something-else"],
        "no-such-fork",
        4,
    );
    assert!(
        !failure["hint"].as_str().unwrap().contains("did you mean"),
        "{failure}"
    );
    // What git ran in a hook or the like has its own words.
    let said = tine.fails(2, &["snapshto", "fix-parser"]);
    assert!(said.contains("`tine snapshot`"), "{said}");
}

#[test]
fn a_number_that_is_none_is_told_those_that_are() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    super::leave_review_and_handoff(&repo, &tine);
    let said = tine.fails(4, &["review", "show", "7"]);
    assert!(
        said.contains("hint: 1 is open; `tine review list --all`"),
        "{said}"
    );
    let said = tine.fails(4, &["handoff", "show", "7"]);
    assert!(said.contains("hint: 1 is ready; "), "{said}");
}
