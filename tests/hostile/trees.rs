//! Trees that are no trees: out of order, doubled, of odd modes, bottomless, endless.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Instant;

use gix::ObjectId;

use crate::objects::{Packed, blob, commit, object, pack, tree, tree_content};
use crate::support::{OutputExt, TestRepo, Tine, require_fuse, run_with_timeout};
use crate::{Bystander, is_refused, run};

#[test]
fn doubled_and_unsorted_entries_are_refused() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let bystander = Bystander::new(&tine);
    let content = blob(&repo, b"content");
    let empty = tree(&repo, &[]);
    let trees = [
        tree(
            &repo,
            &[("100644", b"a", content), ("100644", b"a", content)],
        ),
        tree(
            &repo,
            &[("100644", b"b", content), ("100644", b"a", content)],
        ),
        tree(&repo, &[("100644", b"a", content), ("40000", b"a", empty)]),
        tree(
            &repo,
            &[
                ("100644", b"a", content),
                ("100644", b"a.b", content),
                ("40000", b"a", empty),
            ],
        ),
    ];
    for hostile in trees {
        is_refused(&tine, &repo, &commit(&repo, hostile), "tree");
    }
    bystander.goes_on(&tine);
}

#[test]
fn odd_modes_are_shown_as_git_checks_them_out() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let bystander = Bystander::new(&tine);
    let content = blob(&repo, b"content");
    let inner = tree(&repo, &[("100644", b"inner", content)]);
    let odd = [
        ("100664", content),
        ("100600", content),
        ("100755", content),
        ("100777", content),
        ("100111", content),
        ("0100644", content),
        ("040000", inner),
        ("40755", inner),
        ("000000", content),
        ("177777", content),
        ("160755", content),
        ("120777", content),
        ("7", content),
        ("40000", content),
    ];
    for (mode, id) in odd {
        let top = tree(&repo, &[(mode, b"odd", id)]);
        let commit = commit(&repo, top);
        let by_git = repo.root().join("by-git");
        let checkout = run_with_timeout(
            repo.command("git", repo.dir())
                .args(["worktree", "add", "-q", "--detach"])
                .args([&by_git])
                .arg(&commit),
        );
        let output = run(&tine, &["new", "odd", "--from", &commit]);
        if output.status.success() {
            assert!(
                checkout.status.success(),
                "{mode} is shown, and git says {}",
                checkout.error_text()
            );
            let dir = repo.root().join("repo.forks/odd");
            repo.assert_same_trees(&by_git, &dir);
            assert_eq!(repo.status(&dir), "", "{mode}");
            run(&tine, &["delete", "odd", "--force"]).expect_success("tine delete");
        } else {
            assert!(
                output.error_text().contains("hint:"),
                "{mode}: {}",
                output.error_text()
            );
        }
        repo.try_git_in(repo.dir(), &["worktree", "remove", "--force", "by-git"]);
        let _ = fs::remove_dir_all(&by_git);
        repo.git(&["worktree", "prune"]);
    }
    bystander.goes_on(&tine);
}

/// A chain of `depth` directories above a file; in a pack, as there are many.
fn chain(repo: &TestRepo, depth: usize) -> ObjectId {
    let content = blob(repo, b"content");
    let mut packed = vec![Packed::whole(
        "tree",
        tree_content(&[("100644", b"f", content)]),
    )];
    for _ in 0..depth {
        let inner = packed.last().expect("there is a first").id;
        packed.push(Packed::whole(
            "tree",
            tree_content(&[("40000", b"d", inner)]),
        ));
    }
    pack(repo, &packed);
    packed.last().expect("there is a first").id
}

#[test]
fn a_chain_of_ten_thousand_directories_is_refused_and_one_of_a_thousand_is_not() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let bystander = Bystander::new(&tine);
    is_refused(
        &tine,
        &repo,
        &commit(&repo, chain(&repo, 10_000)),
        "2048 levels deep",
    );
    let deep = commit(&repo, chain(&repo, 1_000));
    run(&tine, &["new", "deep", "--from", &deep]).expect_success("tine new");
    let dir = repo.root().join("repo.forks/deep");
    let bottom = dir.join("d/".repeat(1_000));
    assert_eq!(fs::read_to_string(bottom.join("f")).unwrap(), "content");
    fs::write(bottom.join("f"), "changed").unwrap();
    let status = run(&tine, &["status", "deep"])
        .expect_success("tine status")
        .text();
    assert!(status.contains("1 change"), "{status}");
    run(&tine, &["commit", "deep", "-m", "deep"]).expect_success("tine commit");
    bystander.goes_on(&tine);
}

#[test]
fn a_tree_of_ten_thousand_million_files_is_refused_soon() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let bystander = Bystander::new(&tine);
    let content = blob(&repo, b"content");
    let names: Vec<String> = (0..10).map(|number| format!("n{number}")).collect();
    let ten = |mode: &'static str, id: ObjectId| {
        let entries: Vec<_> = names
            .iter()
            .map(|name| (mode, name.as_bytes(), id))
            .collect();
        tree(&repo, &entries)
    };
    let bomb = (0..9).fold(ten("100644", content), |inner, _| ten("40000", inner));
    let start = Instant::now();
    let bomb = commit(&repo, bomb);
    is_refused(&tine, &repo, &bomb, "files");
    println!("refused after {:?}", start.elapsed());
    bystander.goes_on(&tine);

    // A fork whose HEAD is led there by hand is told the same, and goes on.
    repo.git(&["update-ref", "refs/heads/bomb", &bomb]);
    repo.git_in(&bystander.dir, &["symbolic-ref", "HEAD", "refs/heads/bomb"]);
    for args in [
        &["status", "bystander"][..],
        &["commit", "bystander", "-m", "x"],
        &["diff", "bystander", "--stat"],
    ] {
        let output = run(&tine, args);
        assert!(!output.status.success(), "{args:?}");
        assert!(
            output.error_text().contains("files"),
            "{args:?}: {}",
            output.error_text()
        );
    }
    repo.git_in(
        &bystander.dir,
        &["symbolic-ref", "HEAD", "refs/heads/tine/bystander"],
    );
    bystander.goes_on(&tine);
    run(&tine, &["commit", "bystander", "-m", "goes on"]).expect_success("tine commit");
}

#[test]
fn objects_of_the_wrong_kind_are_told() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let bystander = Bystander::new(&tine);
    let content = blob(&repo, b"content");
    let empty = tree(&repo, &[]);
    let directory_is_blob = tree(&repo, &[("40000", b"d", content)]);
    is_refused(
        &tine,
        &repo,
        &commit(&repo, directory_is_blob),
        "not a tree",
    );
    let file_is_tree = tree(&repo, &[("100644", b"f", empty)]);
    is_refused(&tine, &repo, &commit(&repo, file_is_tree), "not a blob");
    is_refused(&tine, &repo, &commit(&repo, content), "not a tree");
    for garbage in [
        &b""[..],
        b"tree",
        b"tree \0",
        b"tree zzzz\n",
        b"\n\n\n",
        &[0xff; 100],
    ] {
        let id = object(&repo, "commit", garbage).to_string();
        let output = run(&tine, &["new", "hostile", "--from", &id]);
        assert!(!output.status.success(), "{garbage:?}");
    }
    // Half an entry, a mode without end, an id cut short.
    for garbage in [
        &b"100644"[..],
        b"100644 name",
        b"100644 name\0short",
        b" name\0aaaaaaaaaaaaaaaaaaaa",
        &[b'1'; 5000],
    ] {
        let id = object(&repo, "tree", garbage);
        let output = run(&tine, &["new", "hostile", "--from", &commit(&repo, id)]);
        assert!(!output.status.success(), "{garbage:?}");
        assert!(
            output.error_text().contains("hint:"),
            "{}",
            output.error_text()
        );
    }
    bystander.goes_on(&tine);
}

#[test]
fn symlinks_lead_nowhere_that_they_should_not() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let bystander = Bystander::new(&tine);
    let link = |target: &[u8]| blob(&repo, target);
    let long = vec![b'x'; 100 << 10];
    let top = tree(
        &repo,
        &[
            ("120000", b"cycle-a", link(b"cycle-b")),
            ("120000", b"cycle-b", link(b"cycle-a")),
            ("120000", b"empty", link(b"")),
            ("120000", b"long", link(&long)),
            ("120000", b"nul", link(b"a\0b")),
            ("120000", b"out", link(b"../../../../../../../etc")),
            ("120000", b"self", link(b"self")),
        ],
    );
    let output = run(&tine, &["new", "links", "--from", &commit(&repo, top)]);
    output.expect_success("tine new");
    let dir = repo.root().join("repo.forks/links");
    for cyclic in ["cycle-a", "self"] {
        assert_eq!(
            fs::read(dir.join(cyclic)).unwrap_err().raw_os_error(),
            Some(libc::ELOOP)
        );
    }
    for odd in ["empty", "long", "nul"] {
        // As a target it is refused or cut, never followed to what it does not say.
        let _ = fs::read_link(dir.join(odd));
        assert!(fs::read(dir.join(odd)).is_err(), "{odd}");
    }
    // Writing beneath a symlink writes where it leads; removing it removes it alone.
    assert!(fs::read_link(dir.join("out")).unwrap().ends_with("etc"));
    fs::remove_file(dir.join("out")).unwrap();
    let status = run(&tine, &["status", "links"])
        .expect_success("tine status")
        .text();
    assert!(status.contains("D out"), "{status}");
    run(&tine, &["diff", "links"]).expect_success("tine diff");
    run(&tine, &["commit", "links", "-m", "x"]).expect_success("tine commit");
    assert!(std::path::Path::new("/etc/passwd").exists());

    // A symlink in place of a tracked directory is a change of that name, and nothing beneath it is
    // one.
    let outside = repo.root().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("guide.md"), "not ours").unwrap();
    fs::remove_dir_all(bystander.dir.join("docs")).unwrap();
    symlink(&outside, bystander.dir.join("docs")).unwrap();
    run(&tine, &["commit", "bystander", "-m", "x"]).expect_success("tine commit");
    assert_eq!(
        repo.git(&["ls-tree", "tine/bystander", "docs"])
            .split(' ')
            .next(),
        Some("120000")
    );
    assert_eq!(
        fs::read_to_string(outside.join("guide.md")).unwrap(),
        "not ours"
    );
    bystander.goes_on(&tine);
}
