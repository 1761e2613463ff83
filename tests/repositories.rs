//! Repositories as they come: however they are stored and whatever is in them, a fork is what git
//! itself would check out, or it is refused.

mod support;

use std::fs;
use std::path::Path;

use support::repo::path_text;
use support::{OutputExt, TestFork, TestRepo, Tine, require_fuse};

/// Checks the whole of a fork's life: clean, as git would check it out, changed, committed by tine
/// and by git, opened again.
#[track_caller]
fn works(repo: &TestRepo) {
    let mut fork = TestFork::mounted(repo, "demo");
    let head = repo.git_in(fork.path(), &["rev-parse", "HEAD"]);
    assert_eq!(repo.status(fork.path()), "");
    let checkout = repo.git_checkout_of(&head, "by-git");
    repo.assert_same_trees(&checkout, fork.path());

    // The same is done to both.
    for dir in [&checkout, fork.path()] {
        repo.sh_in(
            dir,
            "echo added > added.txt; echo changed >> README.md; rm -f docs/guide.md",
        );
    }
    let outcome = fork
        .commit("by tine")
        .expect("there is something to commit");
    assert_eq!(repo.status(fork.path()), "");
    repo.sh_in(&checkout, "git add -A; git commit -qm 'by git'");
    assert_eq!(
        outcome.tree_id.to_string(),
        repo.git_in(&checkout, &["rev-parse", "HEAD^{tree}"]),
        "tine commits what git does"
    );
    assert_eq!(
        repo.git(&["rev-parse", "tine/demo"]),
        outcome.commit_id.to_string()
    );
    repo.sh_in(
        fork.path(),
        "echo more > more.txt; git add -A; git commit -qm 'by git inside'",
    );
    fork.reopen();
    assert_eq!(repo.status(fork.path()), "");
    assert_eq!(
        fs::read_to_string(fork.path().join("more.txt")).expect("it was committed"),
        "more\n"
    );
    assert!(fork.changes().changes.is_empty());
    repo.git(&["fsck", "--strict"]);
}

/// As [`works`], where a fork may instead be refused for `reason`; never may it differ from git's
/// checkout.
#[track_caller]
fn works_or_is_refused(repo: &TestRepo, reason: &str) {
    match TestFork::try_with(repo, "trial", |_| {}) {
        Ok(fork) => {
            fork.remove();
            works(repo);
        }
        Err(error) => {
            let error = error.to_string();
            assert!(
                error.contains(reason),
                "the refusal does not name {reason:?}: {error}"
            );
            assert_nothing_left(repo, "trial");
        }
    }
}

/// Checks that a refused fork left no trace.
#[track_caller]
fn assert_nothing_left(repo: &TestRepo, name: &str) {
    let refs = repo.git(&[
        "for-each-ref",
        &format!("refs/tine/{name}/"),
        &format!("refs/heads/tine/{name}"),
    ]);
    assert_eq!(refs, "");
    let worktrees = repo.git(&["worktree", "list", "--porcelain"]);
    assert!(
        !worktrees.contains(&format!("repo.forks/{name}")),
        "{worktrees}"
    );
    assert!(!repo.common_dir().join("tine/forks").join(name).exists());
}

#[test]
fn loose() {
    require_fuse!();
    works(&TestRepo::new());
}

#[test]
fn packed() {
    require_fuse!();
    works(&TestRepo::packed());
}

#[test]
fn with_alternates() {
    require_fuse!();
    works(&TestRepo::alternates());
}

#[test]
fn shallow() {
    require_fuse!();
    works(&TestRepo::shallow());
}

#[test]
fn bare() {
    require_fuse!();
    works(&TestRepo::bare());
}

#[test]
fn sha256() {
    require_fuse!();
    works(&TestRepo::sha256());
}

#[test]
fn linked_worktree_with_a_head_of_its_own() {
    require_fuse!();
    let repo = TestRepo::linked_worktree();
    let head = repo.commit_files(&[("linked.txt", b"linked\n")], "only here");
    works(&repo);
    assert_eq!(repo.git(&["rev-parse", "tine/demo~2"]), head);
}

#[test]
fn detached_head() {
    require_fuse!();
    let repo = TestRepo::new();
    repo.git(&["checkout", "-q", "--detach"]);
    works(&repo);
}

#[test]
fn packed_while_the_fork_is_open() {
    require_fuse!();
    let repo = TestRepo::new();
    let fork = TestFork::mounted(&repo, "demo");
    repo.git(&["repack", "-adq"]);
    repo.git(&["prune-packed"]);
    repo.assert_same_trees(repo.dir(), fork.path());
    assert_eq!(repo.status(fork.path()), "");
}

#[test]
fn submodules_are_empty_directories() {
    require_fuse!();
    let repo = TestRepo::new();
    let inner = repo.root().join("inner");
    repo.sh_in(
        repo.root(),
        &format!(
            "git init -q {0}; cd {0}; echo inner > f; git add f; git commit -qm inner",
            path_text(&inner)
        ),
    );
    repo.git(&[
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "--quiet",
        "add",
        path_text(&inner),
        "sub/module",
    ]);
    repo.commit_all("submodule");
    works(&repo);
    let fork = TestFork::mounted(&repo, "second");
    let module = fork.path().join("sub/module");
    assert_eq!(fs::read_dir(&module).expect("a directory").count(), 0);
    let commit = repo.git(&["rev-parse", "HEAD:sub/module"]);
    assert_eq!(
        repo.git_in(fork.path(), &["rev-parse", "HEAD:sub/module"]),
        commit
    );
    assert!(fork.changes().changes.is_empty());
}

#[test]
fn line_ends_by_attributes() {
    require_fuse!();
    let repo = TestRepo::unborn();
    repo.write_base_files();
    repo.write(
        ".gitattributes",
        "*.md text eol=crlf\n*.txt text=auto eol=lf\n*.bin -text\ndocs/*.md eol=lf\n",
    );
    repo.write("mixed.md", "one\ntwo\n");
    repo.write("deep/.gitattributes", "* -text\n");
    repo.write("deep/kept.md", "as\r\nit\nis\r\n");
    repo.commit_all("base");
    works(&repo);
}

#[test]
fn line_ends_by_autocrlf() {
    require_fuse!();
    let repo = TestRepo::new();
    repo.git(&["config", "core.autocrlf", "true"]);
    works(&repo);
}

#[test]
fn invariant_01_a_fork_keeps_the_conversions_that_it_was_made_with() {
    require_fuse!();
    let repo = TestRepo::unborn();
    repo.git(&["config", "filter.shout.smudge", "tr a-z A-Z"]);
    repo.git(&["config", "filter.shout.clean", "tr A-Z a-z"]);
    repo.write(
        ".gitattributes",
        "*.loud filter=shout\n*.later filter=later\n*.txt text\n",
    );
    repo.write("word.loud", "word\n");
    repo.write("word.later", "word\n");
    repo.write("lines.txt", "one\ntwo\n");
    repo.commit_all("base");
    let tine = Tine::new(&repo);
    let shown = |dir: &Path| {
        ["word.loud", "word.later", "lines.txt"].map(|name| {
            let text = fs::read_to_string(dir.join(name)).expect("it is in the base");
            let len = fs::metadata(dir.join(name)).expect("it is there").len();
            assert_eq!(
                len,
                text.len() as u64,
                "{name} has the size that it is said to have"
            );
            text
        })
    };
    let plain = ["WORD\n", "word\n", "one\ntwo\n"];
    let before = tine.new_fork("before");
    assert_eq!(shown(&before), plain);

    repo.git(&["config", "core.autocrlf", "true"]);
    repo.git(&["config", "filter.shout.smudge", "sed s/^/louder-/"]);
    repo.git(&["config", "filter.later.smudge", "sed s/^/later-/"]);
    // In the same daemon, from the same commit.
    let after = tine.new_fork("after");
    let converted = ["louder-word\r\n", "later-word\r\n", "one\r\ntwo\r\n"];
    let check = || {
        assert_eq!(shown(&before), plain);
        assert_eq!(shown(&after), converted);
        for name in ["before", "after"] {
            let changes = tine.json(&["status", name]);
            assert_eq!(changes["changes"], serde_json::json!([]), "{name}");
        }
        assert_eq!(repo.status(&before), "");
        assert_eq!(repo.status(&after), "");
    };
    check();
    tine.ok(&["daemon", "stop"]);
    tine.ok(&["list"]);
    check();
    // What is discarded comes back as it was.
    fs::write(before.join("lines.txt"), "other").expect("the mount can be written");
    tine.ok(&["unmount", "before", "--discard"]);
    tine.ok(&["mount", "before"]);
    check();
}

#[test]
fn autocrlf_input() {
    require_fuse!();
    let repo = TestRepo::new();
    repo.git(&["config", "core.autocrlf", "input"]);
    let fork = TestFork::mounted(&repo, "demo");
    fs::write(fork.path().join("dos.txt"), "one\r\ntwo\r\n").expect("the mount can be written");
    fork.commit("dos").expect("there is something to commit");
    assert_eq!(
        repo.git(&["cat-file", "-s", "tine/demo:dos.txt"]),
        "8",
        "git stores it with \\n"
    );
    assert_eq!(repo.status(fork.path()), "");
}

#[test]
fn renormalized_files_stay_renormalized() {
    require_fuse!();
    let repo = TestRepo::new();
    repo.commit_files(&[("dos.txt", b"one\r\ntwo\r\n")], "dos");
    let fork = TestFork::mounted(&repo, "demo");
    repo.sh_in(
        fork.path(),
        "echo '*.txt text eol=crlf' > .gitattributes; git add .gitattributes; git add --renormalize .; git commit -qm unix",
    );
    assert_eq!(repo.git(&["cat-file", "-s", "tine/demo:dos.txt"]), "8");
    assert_eq!(repo.status(fork.path()), "");
    assert!(fork.changes().changes.is_empty());
    fs::write(fork.path().join("new"), "new\n").expect("the mount can be written");
    fork.commit("new").expect("there is something to commit");
    let changed = repo.git(&["diff", "--name-only", "tine/demo~", "tine/demo"]);
    assert_eq!(changed, "new");
}

#[test]
fn filters_that_change_content() {
    require_fuse!();
    let repo = TestRepo::unborn();
    repo.git(&["config", "filter.shout.smudge", "tr a-z A-Z"]);
    repo.git(&["config", "filter.shout.clean", "tr A-Z a-z"]);
    repo.git(&["config", "filter.shout.required", "true"]);
    repo.write_base_files();
    repo.write(".gitattributes", "*.loud filter=shout\n");
    repo.write("word.loud", "QUIET\n");
    repo.commit_all("base");
    assert_eq!(repo.git(&["cat-file", "blob", "HEAD:word.loud"]), "quiet");
    works_or_is_refused(&repo, "filter");
}

#[test]
fn pointers_of_a_filter_that_is_not_installed() {
    require_fuse!();
    let repo = TestRepo::unborn();
    repo.write_base_files();
    repo.write(
        ".gitattributes",
        "*.psd filter=lfs diff=lfs merge=lfs -text\n",
    );
    repo.write(
        "art.psd",
        "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n",
    );
    repo.commit_all("base");
    works(&repo);
}

#[test]
fn ident_and_encodings() {
    require_fuse!();
    for (attributes, reason) in [
        ("*.c ident\n", "ident"),
        ("*.c working-tree-encoding=UTF-16LE\n", "encoding"),
    ] {
        let repo = TestRepo::unborn();
        repo.write_base_files();
        repo.write(".gitattributes", attributes);
        let source = "$Id$\n"
            .encode_utf16()
            .flat_map(u16::to_le_bytes)
            .collect::<Vec<u8>>();
        let content = if reason == "ident" {
            b"$Id$\n".to_vec()
        } else {
            source
        };
        repo.write("a.c", content);
        repo.commit_all("base");
        works_or_is_refused(&repo, reason);
    }
}

/// A partial clone of a repository that serves one: blobs are fetched when they are needed.
fn partial_clone() -> TestRepo {
    let origin = TestRepo::new();
    origin.git(&["config", "uploadpack.allowFilter", "true"]);
    origin.git(&["config", "uploadpack.allowAnySHA1InWant", "true"]);
    origin.cloned("partial/repo", &["--filter=blob:none", "--no-checkout"])
}

#[test]
fn partial_clone_fetches_what_is_missing() {
    require_fuse!();
    let repo = partial_clone();
    let missing = repo.git(&["rev-list", "--objects", "--missing=print", "--all"]);
    assert!(
        missing.contains("\n?"),
        "blobs are missing before: {missing}"
    );
    let fork = TestFork::mounted(&repo, "demo");
    repo.assert_same_trees(&repo.root().join("repo"), fork.path());
    assert_eq!(repo.status(fork.path()), "");
    drop(fork);
    // works() makes its own fork; the blobs are here by now.
    let fork = TestFork::mounted(&repo, "second");
    fs::write(fork.path().join("new.txt"), "new\n").expect("the mount can be written");
    fork.commit("new").expect("there is something to commit");
    assert_eq!(repo.status(fork.path()), "");
}

#[test]
fn partial_clone_without_its_origin_gives_an_error_and_no_data() {
    require_fuse!();
    let repo = partial_clone();
    fs::rename(repo.root().join("repo"), repo.root().join("gone"))
        .expect("the origin can be moved away");
    match TestFork::try_with(&repo, "demo", |_| {}) {
        Err(error) => {
            assert!(!error.to_string().is_empty());
            assert_nothing_left(&repo, "demo");
        }
        Ok(mut fork) => {
            fork.mount();
            let error =
                fs::read(fork.path().join("README.md")).expect_err("the blob cannot be had");
            assert_eq!(error.raw_os_error(), Some(libc::EIO));
        }
    }
}

#[test]
fn corrupt_objects_give_an_error_and_no_data() {
    require_fuse!();
    let repo = TestRepo::new();
    let blob = repo.git(&["rev-parse", "HEAD:docs/guide.md"]);
    let object = repo
        .common_dir()
        .join("objects")
        .join(&blob[..2])
        .join(&blob[2..]);
    fs::remove_file(&object).expect("the object is loose");
    fs::write(&object, "this is no object").expect("the object can be damaged");
    match TestFork::try_with(&repo, "demo", |_| {}) {
        Err(error) => {
            assert!(
                error.to_string().contains(&blob),
                "the object is named: {error}"
            );
            assert_nothing_left(&repo, "demo");
        }
        Ok(mut fork) => {
            fork.mount();
            let error =
                fs::read(fork.path().join("docs/guide.md")).expect_err("the blob cannot be read");
            assert_eq!(error.raw_os_error(), Some(libc::EIO));
            assert!(
                fs::read(fork.path().join("README.md")).is_ok(),
                "the others can"
            );
        }
    }
}

#[test]
fn unborn_head() {
    require_fuse!();
    let repo = TestRepo::unborn();
    let mut fork = TestFork::mounted(&repo, "demo");
    assert_eq!(repo.status(fork.path()), "");
    assert_eq!(
        fs::read_dir(fork.path()).expect("a directory").count(),
        1,
        "only .git is there"
    );
    fs::write(fork.path().join("first.txt"), "first\n").expect("the mount can be written");
    assert_eq!(repo.status(fork.path()), "?? first.txt");
    let outcome = fork.commit("first").expect("there is something to commit");
    assert_eq!(outcome.parent_id, None);
    fork.reopen();
    assert_eq!(repo.status(fork.path()), "");
    assert_eq!(repo.git_in(fork.path(), &["log", "--format=%s"]), "first");
    assert!(
        !repo
            .try_git_in(repo.dir(), &["rev-parse", "-q", "--verify", "HEAD"])
            .status
            .success()
    );
}

#[test]
fn empty_tree() {
    require_fuse!();
    let repo = TestRepo::unborn();
    repo.git(&["commit", "-q", "--allow-empty", "-m", "empty"]);
    let fork = TestFork::mounted(&repo, "demo");
    assert_eq!(repo.status(fork.path()), "");
    fs::write(fork.path().join("first.txt"), "first\n").expect("the mount can be written");
    fork.commit("first").expect("there is something to commit");
    fs::remove_file(fork.path().join("first.txt")).expect("it was just made");
    fork.commit("empty again")
        .expect("there is something to commit");
    assert_eq!(
        repo.git(&["rev-parse", "tine/demo^{tree}"]),
        repo.git(&["rev-parse", "main^{tree}"])
    );
    assert_eq!(repo.status(fork.path()), "");
}

#[test]
fn reftable_is_refused() {
    let repo = TestRepo::init(&["--ref-format=reftable"]);
    repo.write_base_files();
    repo.commit_all("base");
    let error = TestFork::try_with(&repo, "demo", |_| {})
        .err()
        .expect("the refs cannot be read");
    assert!(error.to_string().contains("reftable"), "{error}");
}

#[test]
fn what_is_no_repository_is_refused() {
    let repo = TestRepo::new();
    let outside = Path::new("/");
    let tine = Tine::new(&repo);
    let output = tine.run_in(outside, &["new", "demo"]);
    assert!(!output.status.success());
    assert!(
        output.error_text().contains("not inside a git repository"),
        "{}",
        output.error_text()
    );
}
