//! Rules that cost more than they say: attributes, ignore patterns, alternates.

use std::fs;
use std::time::Instant;

use crate::objects::{blob, commit, tree};
use crate::support::{OutputExt, TestRepo, Tine, require_fuse};
use crate::{Bystander, run};

#[test]
fn attributes_and_ignore_rules_that_explode() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let bystander = Bystander::new(&tine);
    let stars = format!("{}b", "*a".repeat(30));
    let deep_stars = format!("{}b", "**/".repeat(60));
    let mut patterns = format!(
        "{stars} text\n{deep_stars} text\n[attr]loop loop\n[attr]a b\n[attr]b a\n* a b loop\n"
    );
    patterns.push_str(&"x".repeat(10_000));
    patterns.push_str(" text\n[!-");
    let long_name = "a".repeat(250);
    let content = blob(&repo, b"one\ntwo\n");
    let top = tree(
        &repo,
        &[
            (
                "100644",
                b".gitattributes",
                blob(&repo, patterns.as_bytes()),
            ),
            (
                "100644",
                b".gitignore",
                blob(&repo, format!("{stars}\n{deep_stars}\n[!-\n\\").as_bytes()),
            ),
            ("100644", long_name.as_bytes(), content),
        ],
    );
    let start = Instant::now();
    run(&tine, &["new", "rules", "--from", &commit(&repo, top)]).expect_success("tine new");
    let dir = repo.root().join("repo.forks/rules");
    assert_eq!(
        fs::read_to_string(dir.join(&long_name)).unwrap(),
        "one\ntwo\n"
    );
    fs::write(dir.join("a".repeat(251)), "new").unwrap();
    run(&tine, &["status", "rules"]).expect_success("tine status");
    println!("{:?}", start.elapsed());
    bystander.goes_on(&tine);
}

#[test]
fn filters_that_only_the_repository_names_are_not_run() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let bystander = Bystander::new(&tine);
    let marker = repo.root().join("run");
    // Neither attributes nor a .gitconfig in the tree can bring a program along.
    let config = format!(
        "[filter \"evil\"]\n\tsmudge = touch {0}\n\tclean = touch {0}\n",
        marker.display()
    );
    let content = blob(&repo, b"content");
    let top = tree(
        &repo,
        &[
            (
                "100644",
                b".gitattributes",
                blob(&repo, b"* filter=evil diff=evil merge=evil\n"),
            ),
            ("100644", b".gitconfig", blob(&repo, config.as_bytes())),
            ("100644", b"f", content),
        ],
    );
    run(&tine, &["new", "filters", "--from", &commit(&repo, top)]).expect_success("tine new");
    let dir = repo.root().join("repo.forks/filters");
    assert_eq!(fs::read_to_string(dir.join("f")).unwrap(), "content");
    fs::write(dir.join("f"), "changed").unwrap();
    run(&tine, &["commit", "filters", "-m", "x"]).expect_success("tine commit");
    assert!(!marker.exists());
    bystander.goes_on(&tine);
}

#[test]
fn alternates_that_lead_in_circles_or_nowhere() {
    require_fuse!();
    let repo = TestRepo::new();
    let info = repo.common_dir().join("objects/info");
    fs::create_dir_all(&info).unwrap();
    let own = repo.common_dir().join("objects");
    for alternates in [
        format!("{}\n", own.display()),
        "/nonexistent/objects\n".to_owned(),
        "../../../../../../../../etc\n/dev/null\n/proc/self/mem\n".to_owned(),
        "# only a comment\n\n\"unfinished".to_owned(),
    ] {
        fs::write(info.join("alternates"), &alternates).unwrap();
        let tine = Tine::new(&repo);
        let by_git = repo.try_git_in(repo.dir(), &["cat-file", "-e", "HEAD^{tree}"]);
        let output = run(&tine, &["new", "alternates"]);
        if by_git.status.success() {
            assert!(
                output.status.success() || output.error_text().contains("lternates"),
                "{alternates:?}: {}",
                output.error_text()
            );
        }
        if output.status.success() {
            let dir = repo.root().join("repo.forks/alternates");
            assert!(fs::read_to_string(dir.join("README.md")).is_ok());
            run(&tine, &["delete", "alternates", "--force"]).expect_success("tine delete");
        }
        drop(tine);
    }
}
