//! Looking at and changing a fork by path, mounted and not.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use serde_json::json;

use crate::support::repo::{large_content, path_text};
use crate::support::{OutputExt, TestRepo, Tine, require_fuse, run_with_timeout};
use crate::{refused, written};

#[test]
fn a_fork_that_is_not_mounted_is_looked_at_and_changed() {
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    tine.ok(&["new", "demo", "--no-mount"]);
    assert_eq!(
        tine.ok(&["ls", "--fork", "demo"]),
        ".gitignore\nREADME.md\ndangling\ndata\ndocs\nlink\nrun.sh\nsrc"
    );
    assert_eq!(
        tine.ok(&["ls", "--fork", "demo", "docs/up"]),
        "deep\nmain.rs"
    );
    assert_eq!(
        tine.ok(&["cat", "--fork", "demo", "link"]),
        "# A test\n\nWith two paragraphs."
    );
    assert_eq!(
        tine.ok(&[
            "cat",
            "--fork",
            "demo",
            "src/deep/er/still/leaf.txt",
            "docs/guide.md"
        ]),
        "leaf\none\ntwo\nthree"
    );
    let long = tine.ok(&["ls", "--fork", "demo", "-l"]);
    assert!(long.contains("-rwxr-xr-x"), "{long}");
    assert!(long.contains("link -> README.md"), "{long}");

    assert_eq!(
        written(
            &tine,
            &["write", "--fork", "demo", "new/deep/file", "-p"],
            b"new\n"
        ),
        "made new/deep/file (4 bytes)"
    );
    assert_eq!(
        written(
            &tine,
            &["write", "--fork", "demo", "run.sh"],
            b"#!/bin/sh\n"
        ),
        "wrote run.sh (10 bytes); `tine undo demo` takes that back"
    );
    assert_eq!(
        tine.ok(&["mv", "--fork", "demo", "src", "new"]),
        "moved src to new/src"
    );
    assert_eq!(
        tine.ok(&["rm", "--fork", "demo", "-r", "docs", "link"]),
        "removed docs\nremoved link\n`tine undo demo` brings them back"
    );
    assert_eq!(
        tine.ok(&["ls", "--deep", "--fork", "demo", "new"]),
        "d   0  new/deep\n\
         -   4  new/deep/file\n\
         d   0  new/src\n\
         d   0  new/src/deep\n\
         d   0  new/src/deep/er\n\
         d   0  new/src/deep/er/still\n\
         -   5  new/src/deep/er/still/leaf.txt\n\
         -  37  new/src/main.rs"
    );
    let status = tine.ok(&["status", "demo"]);
    for line in [
        "D docs/guide.md",
        "D link",
        "A new/deep/file",
        "A new/src/main.rs",
        "D src/main.rs",
        "M run.sh",
    ] {
        assert!(status.contains(line), "{line} in {status}");
    }
    let stat = tine.json(&["stat", "--fork", "demo", "run.sh"]);
    assert_eq!(
        (&stat["mode"], &stat["kind"]),
        (&"100755".into(), &"file".into())
    );
    assert_eq!(stat["size"], 10);
    assert!(
        tine.ok(&["stat", "--fork", "demo", "dangling"])
            .contains("dangling -> nowhere")
    );
    tine.ok(&["daemon", "stop"]);
    assert_eq!(tine.ok(&["cat", "--fork", "demo", "new/deep/file"]), "new");
}

#[test]
fn a_mount_shows_every_change_at_once() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    // The kernel knows all of it, names that are not there, too.
    repo.sh_in(
        &dir,
        "find . -type f -exec cat {} + >/dev/null; ls -lR >/dev/null; ! test -e new",
    );
    let read = |name: &str| std::fs::read(dir.join(name)).unwrap();
    let inode = std::fs::metadata(dir.join("docs/guide.md")).unwrap().ino();

    written(
        &tine,
        &["write", "--fork", "demo", "docs/guide.md"],
        b"replaced\n",
    );
    assert_eq!(read("docs/guide.md"), b"replaced\n");
    assert_eq!(
        std::fs::metadata(dir.join("docs/guide.md")).unwrap().ino(),
        inode
    );
    written(
        &tine,
        &["write", "--fork", "demo", "new/file", "-p", "--executable"],
        b"#!/bin/sh\necho hi\n",
    );
    let ran = run_with_timeout(&mut repo.command(path_text(&dir.join("new/file")), &dir));
    assert_eq!(ran.text(), "hi");
    assert_eq!(
        std::fs::metadata(dir.join("new/file"))
            .unwrap()
            .permissions()
            .mode(),
        0o100_755
    );

    let absolute = dir.join("src/main.rs");
    tine.ok_in(
        &dir.join("src"),
        &[
            "mv",
            "--fork",
            "demo",
            path_text(&absolute),
            path_text(&dir.join("new/")),
        ],
    );
    assert!(!absolute.exists());
    assert!(read("new/main.rs").starts_with(b"fn main"));
    tine.ok(&["mv", "--fork", "demo", "--force", "run.sh", "README.md"]);
    assert_eq!(read("README.md"), b"#!/bin/sh\necho ran\n");
    tine.ok(&["rm", "--fork", "demo", "-r", "data", "src"]);
    assert!(!dir.join("data/large.bin").exists());
    assert!(!dir.join("src").exists());
    assert_eq!(
        repo.sh_in(&dir, "find . -name .git -prune -o -type f -print | sort"),
        "./.gitignore\n./README.md\n./docs/empty\n./docs/guide.md\n./new/file\n./new/main.rs"
    );
    // A name that nobody looked for, in a directory that was listed.
    written(&tine, &["write", "--fork", "demo", "docs/unheard"], b"");
    assert_eq!(repo.sh_in(&dir, "ls docs"), "empty\nguide.md\nunheard\nup");
    // git, which asks the daemon what changed, agrees.
    assert_eq!(
        repo.status(&dir),
        repo.sh_in(
            &dir,
            "git -c core.fsmonitor=false -c core.untrackedCache=false status --short -uall"
        )
    );
    // What the mount changes the commands see.
    std::fs::write(dir.join("here"), "seen").unwrap();
    assert_eq!(tine.ok(&["cat", "--fork", "demo", "here"]), "seen");
}

#[test]
fn an_open_file_lives_on_when_its_directory_is_removed() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    let mut open = std::fs::File::open(dir.join("data/large.bin")).unwrap();
    tine.ok(&["rm", "--fork", "demo", "-r", "data"]);
    let mut content = Vec::new();
    std::io::Read::read_to_end(&mut open, &mut content).unwrap();
    assert!(content == large_content());
}

#[test]
fn contents_of_every_size_and_kind_pass_unchanged() {
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    tine.ok(&["new", "demo", "--no-mount"]);
    let large: Vec<u8> = (0..40_u32 << 20).map(|i| (i ^ (i >> 11)) as u8).collect();
    for content in [&b""[..], b"\xff\0\n", &large[..300_000], &large] {
        written(&tine, &["write", "--fork", "demo", "file"], content);
        let read = run_with_timeout(&mut tine.command(&["cat", "--fork", "demo", "file"]));
        assert!(read.status.success() && read.stdout == content);
    }
    let place = repo.root().join("content");
    std::fs::write(&place, &large[..1 << 20]).unwrap();
    tine.ok(&[
        "write",
        "--fork",
        "demo",
        "copy",
        "--file",
        path_text(&place),
    ]);
    let read = run_with_timeout(&mut tine.command(&["cat", "--fork", "demo", "copy", "README.md"]));
    assert!(read.stdout.starts_with(&large[..1 << 20]) && read.stdout.ends_with(b"paragraphs.\n"));
    let transfers = repo.common_dir().join("tine/transfers");
    assert_eq!(std::fs::read_dir(transfers).unwrap().count(), 0);
    written(&tine, &["write", "--fork", "demo", "bytes"], b"\xff");
    assert_eq!(
        tine.json(&["cat", "--fork", "demo", "bytes", "docs/guide.md"]),
        json!({"fork": "demo", "files": [
            {"path": "bytes", "size": 1, "content": {"base64": "/w=="}},
            {"path": "docs/guide.md", "size": 14, "content": {"text": "one\ntwo\nthree\n"}},
        ]})
    );
}

#[test]
fn what_is_refused_changes_nothing_and_says_why() {
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    tine.ok(&["new", "demo", "--no-mount"]);
    std::os::unix::fs::symlink("/etc", repo.dir().join("outside")).unwrap();
    repo.commit_all("a link out");
    tine.ok(&["new", "linked", "--no-mount"]);
    let before = tine.ok(&["ls", "--deep", "--fork", "demo", "--json"]);
    for (args, code, exit) in [
        (
            &["mv", "--fork", "demo", "missing", "x"][..],
            "no-such-path",
            4,
        ),
        (
            &["mv", "--fork", "demo", "run.sh", "README.md"],
            "path-exists",
            5,
        ),
        (
            &["mv", "--fork", "demo", "src", "src/deep"],
            "path-refused",
            2,
        ),
        (
            &["mv", "--fork", "demo", "run.sh", "nowhere/"],
            "no-such-path",
            4,
        ),
        (
            &["mv", "--fork", "demo", "run.sh", ".git"],
            "path-refused",
            2,
        ),
        (&["mv", "--fork", "demo", ".", "x"], "path-refused", 2),
        (&["mv", "--fork", "demo", "../x", "x"], "usage", 2),
        (&["rm", "--fork", "demo", "src"], "wrong-kind", 3),
        (&["rm", "--fork", "demo", "-r", ".git"], "path-refused", 2),
        (&["rm", "--fork", "demo", "-r", "."], "path-refused", 2),
        (
            &["rm", "--fork", "demo", "-r", "src", "missing"],
            "no-such-path",
            4,
        ),
        (&["rm", "--fork", "demo", "/etc/passwd"], "path-refused", 2),
        (
            &["rm", "--fork", "linked", "outside/passwd"],
            "path-refused",
            2,
        ),
        (
            &["write", "--fork", "linked", "outside/passwd"],
            "path-refused",
            2,
        ),
        (&["write", "--fork", "demo", "src"], "wrong-kind", 3),
        (&["write", "--fork", "demo", "link"], "wrong-kind", 3),
        (&["write", "--fork", "demo", "run.sh/x"], "wrong-kind", 3),
        (&["write", "--fork", "demo", "a/b"], "no-such-path", 4),
        (&["cat", "--fork", "demo", "src"], "wrong-kind", 3),
        (
            &["cat", "--fork", "linked", "outside/passwd"],
            "path-refused",
            2,
        ),
        (
            &["cat", "--fork", "demo", "README.md", "missing"],
            "no-such-path",
            4,
        ),
        (&["ls", "--fork", "demo", "missing"], "no-such-path", 4),
        (
            &["ls", "--deep", "--fork", "demo", "missing"],
            "no-such-path",
            4,
        ),
        (&["stat", "--fork", "demo", "missing"], "no-such-path", 4),
        (&["stat", "--fork", "demo", ""], "usage", 2),
    ] {
        refused(&repo, &tine, args, code, exit);
    }
    assert_eq!(
        tine.ok(&["ls", "--deep", "--fork", "demo", "--json"]),
        before
    );
    let hint = refused(&repo, &tine, &["rm", "--fork", "demo"], "usage", 2)["hint"].to_string();
    assert!(hint.contains("tine delete"), "{hint}");
    assert!(Path::new("/etc/passwd").exists());
}

#[test]
fn names_that_are_not_utf_8_are_changed_as_any_other() {
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    tine.ok(&["new", "demo", "--no-mount"]);
    let name = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"n\xffme");
    let mut command = tine.command(&["write", "--fork", "demo"]);
    command.arg(name);
    run_with_timeout(&mut command).expect_success("write");
    assert!(tine.ok(&["ls", "--fork", "demo"]).contains("\"n\\377me\""));
    let nodes = tine.json(&["ls", "--fork", "demo"]);
    assert_eq!(
        nodes["nodes"][6]["path"],
        json!({"base64": "bv9tZQ=="}),
        "{nodes}"
    );
    let mut command = tine.command(&["rm", "--fork", "demo"]);
    command.arg(name);
    run_with_timeout(&mut command).expect_success("rm");
}

#[test]
fn a_fork_named_as_the_first_path_is_refused_before_anything_changes() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    let calls = [
        &["ls", "demo"][..],
        &["ls", "--deep", "demo"],
        &["cat", "demo", "README.md"],
        &["rm", "demo", "README.md"],
        &["rm", "-r", "demo"],
    ];
    for args in calls {
        let hint = refused(&repo, &tine, args, "usage", 2)["hint"].to_string();
        assert!(hint.contains("`--fork demo`"), "{args:?}: {hint}");
        let output = tine.run_in(&dir, args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(output.error_text().contains("`--fork demo`"), "{args:?}");
    }
    assert!(dir.join("README.md").exists());
    let output = tine.run_in(&dir, &["write", "demo"]);
    assert_eq!(output.status.code(), Some(2));
    let said = output.error_text();
    assert!(
        said.contains("`--fork demo`") && said.contains("`./demo`"),
        "{said}"
    );
    assert!(!dir.join("demo").exists());
    // A path of that name is meant as a path.
    tine.ok_in(&dir, &["write", "./demo"]);
    std::fs::write(dir.join("demo"), "mine\n").unwrap();
    assert_eq!(tine.ok_in(&dir, &["cat", "demo"]), "mine");
    tine.ok_in(&dir, &["rm", "demo"]);
    assert!(!dir.join("demo").exists());
}
