//! A newcomer's way through the pages.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use crate::file;
use crate::support::{
    OutputExt, TestRepo, Tine, require_fuse, require_program, require_root, run_with_timeout_of,
};

/// Walks pages of `repository`, which has the script.
fn walk(repository: &Path, pages: &[&str]) -> Output {
    let mut newcomer = Command::new(repository.join("scripts/newcomer"));
    newcomer.arg("--tine").arg(Tine::program()).args(pages);
    run_with_timeout_of(&mut newcomer, Duration::from_secs(300), b"")
}

#[test]
fn a_newcomer_sees_what_the_pages_say() {
    require_fuse!();
    require_program!("fusermount3");
    require_program!("setpriv");
    require_root!("make a new user");
    let pages = ["README.md", "docs/tutorial.md", "docs/install.md"];
    let has_commands = |page: &&str| {
        fs::read_to_string(file(page)).is_ok_and(|text| text.contains("```console\n"))
    };
    let pages: Vec<&str> = pages.into_iter().filter(has_commands).collect();
    let walked = walk(&file(""), &pages).expect_success("scripts/newcomer");
    assert!(
        walked.text().contains("docs/install.md: "),
        "{}",
        walked.text()
    );
}

#[test]
fn a_page_that_says_something_else_is_told() {
    require_fuse!();
    require_program!("setpriv");
    require_root!("make a new user");
    let repo = TestRepo::new();
    repo.write(
        "scripts/newcomer",
        fs::read(file("scripts/newcomer")).unwrap(),
    );
    fs::set_permissions(
        repo.dir().join("scripts/newcomer"),
        fs::Permissions::from_mode(0o755),
    )
    .unwrap();
    let page = [
        "```console",
        "$ id -un; echo $HOME",
        "newcomer",
        "[..]/home",
        "$ cat <<END",
        "> a",
        "> b",
        "> END",
        "...",
        "b",
        "$ ls ~/.ssh",
        "$ tine --version",
        "something else",
        "```",
    ]
    .join("\n");
    repo.write("page.md", &page);
    repo.write(
        "good.md",
        page.replace("something else", "tine [..]")
            .replace("$ ls ~/.ssh\n", ""),
    );
    repo.commit_all("pages");
    let walked = walk(repo.dir(), &["page.md"]);
    assert_eq!(walked.status.code(), Some(1), "{}", walked.error_text());
    let said = walked.text();
    for line in [
        "page.md: 4 commands, 2 of them print something else",
        "page.md:11: $ ls ~/.ssh",
        "  - something else",
    ] {
        assert!(said.contains(line), "{line} in {said}");
    }
    walk(repo.dir(), &["good.md"]).expect_success("a page that says what is printed");
}
