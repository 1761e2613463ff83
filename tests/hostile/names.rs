//! Names in trees that git does not check out, and its measure for them.

use tine::git::Repository;

use crate::objects::{blob, commit, tree};
use crate::support::{TestRepo, Tine, require_fuse, run_with_timeout, soaking};
use crate::{Bystander, is_refused};

/// Names that somebody might mind, for files or symlinks.
fn names() -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = [
        "..",
        ".",
        "",
        "a/b",
        "/etc",
        "/",
        "a/../b",
        ".git",
        ".GIT",
        ".Git",
        ".gIt",
        "git~1",
        "GIT~1",
        "git~2",
        "git~10",
        ".git ",
        ".git.",
        ".git...",
        ".git . .",
        ".git::$INDEX_ALLOCATION",
        ".git:stream",
        "git~1:x",
        ".git\\x",
        "a\\.git",
        "a\\..\\b",
        "\\",
        "a\\b",
        "..\\x",
        ".git\u{200c}",
        ".g\u{200c}it",
        "\u{200d}.git",
        ".gi\u{202e}t",
        ".git\u{feff}",
        ".g\u{206f}iT",
        ".gitmodules",
        ".GITMODULES",
        ".gitmodules ",
        ".gitmodules.",
        "gitmod~1",
        "GITMOD~1",
        "gi7eba~1",
        "gi7eba~9",
        ".gitmodules::$DATA",
        ".g\u{200c}itmodules",
        ".gitattributes",
        ".gitignore",
        ".mailmap",
        "gitatt~1",
        "...",
        "....",
        "CON",
        "con",
        "aux.txt",
        "nul",
        "COM1",
        "a:b",
        "a*b",
        "a?b",
        "a|b",
        "a<b",
        "tail ",
        "tail.",
        "-rf",
        "--",
        "new\nline",
        "\t",
        "\u{7f}",
        "\u{1b}[2J",
        "~",
        "~root",
        "$HOME",
        "`id`",
        ".g",
        "git",
        "gitt",
        ".gitx",
        "x.git",
        "ä",
        "\u{202e}x",
    ]
    .iter()
    .map(|name| name.as_bytes().to_vec())
    .collect();
    names.extend([b"\xff\xfe".to_vec(), b".git\xff".to_vec(), vec![b'x'; 255]]);
    names
}

#[test]
fn git_and_tine_refuse_the_same_names() {
    let repo = TestRepo::new();
    let content = blob(&repo, b"content");
    let scratch_index = repo.root().join("scratch-index");
    let mut compared = 0;
    for (hfs, ntfs) in [("false", "false"), ("false", "true"), ("true", "false")] {
        repo.git(&["config", "core.protectHFS", hfs]);
        repo.git(&["config", "core.protectNTFS", ntfs]);
        let opened = Repository::discover(repo.dir()).unwrap();
        for name in names() {
            let modes = ["100644", "120000", "40000", "160000"];
            for mode in modes.into_iter().take(if soaking() { 4 } else { 2 }) {
                let id = match mode {
                    "40000" => tree(&repo, &[("100644", b"inner", content)]),
                    _ => content,
                };
                let tree_id = tree(&repo, &[(mode, &name, id)]);
                // Every path that git takes into an index it may check out.
                let mut read_tree = repo.command("git", repo.dir());
                read_tree
                    .env("GIT_INDEX_FILE", &scratch_index)
                    .args(["read-tree", &tree_id.to_string()]);
                let taken = run_with_timeout(&mut read_tree);
                let ours = opened.read_tree(tree_id);
                // To git's index a slash in a name is as good as a directory; `git fsck` knows
                // better.
                if name.contains(&b'/') {
                    assert!(ours.is_err(), "{name:?}");
                    continue;
                }
                assert_eq!(
                    ours.is_ok(),
                    taken.status.success(),
                    "{:?} as {mode}, protectHFS={hfs}, protectNTFS={ntfs}: git says {:?}, tine {ours:?}",
                    String::from_utf8_lossy(&name),
                    String::from_utf8_lossy(&taken.stderr),
                );
                compared += 1;
            }
        }
    }
    assert!(compared > 400, "{compared}");
}

#[test]
fn refused_names_leave_no_trace() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let bystander = Bystander::new(&tine);
    let content = blob(&repo, b"content");
    let long = vec![b'x'; 4096];
    let hostile: [&[u8]; 6] = [b"..", b".git", b"a/b", b"git~1", b"", &long];
    for name in hostile {
        let top = tree(&repo, &[("100644", name, content)]);
        is_refused(&tine, &repo, &commit(&repo, top), "tree");
        let below = tree(&repo, &[("40000", b"below", top)]);
        is_refused(&tine, &repo, &commit(&repo, below), "tree");
    }
    bystander.goes_on(&tine);
}
