//! Through the daemon: mounts that remember the wish, and editors that come and go.

use std::path::{Path, PathBuf};

use super::support::{TestRepo, Tine, require_fuse};
use super::{SAVED, TYPED, repo};
use tine::client::Client;
use tine::ops::protocol::{BufferAnswer, BufferRequest};
use tine::tools::buffers::NewText;

/// What is no editor reads.
fn cat(repo: &TestRepo, dir: &Path) -> String {
    repo.sh_in(dir, "cat notes.txt; wc -c < notes.txt")
}

fn read(text: &str) -> String {
    format!("{text}{}", text.len())
}

/// An editor with one connection; this process is it.
struct Editor(Client);

impl Editor {
    fn new(repo: &TestRepo) -> Editor {
        let client = Client::connect(&repo.common_dir())
            .expect("it answers")
            .expect("a daemon runs");
        let mut editor = Editor(client);
        editor.ask(BufferRequest::Attach);
        editor
    }

    fn ask(&mut self, request: BufferRequest) -> BufferAnswer {
        self.0.call(&request).expect("the daemon does it")
    }

    fn version(&mut self, request: BufferRequest) -> u64 {
        match self.ask(request) {
            BufferAnswer::Version { version, .. } => version,
            other => panic!("{other:?}"),
        }
    }

    fn open(&mut self, dir: &Path) -> u64 {
        self.version(BufferRequest::Open {
            path: dir.join("notes.txt"),
            text: SAVED.to_owned(),
            saved: true,
            after: None,
        })
    }

    fn change(&mut self, dir: &Path, text: &str) -> u64 {
        self.version(BufferRequest::Change {
            path: dir.join("notes.txt"),
            base: None,
            new: NewText::Text(text.to_owned()),
        })
    }
}

fn new_overlaid(tine: &Tine<'_>, name: &str) -> PathBuf {
    PathBuf::from(tine.ok(&["new", name, "--overlay-buffers"]))
}

#[test]
fn a_buffer_is_shown_while_it_is_unsaved() {
    require_fuse!();
    let repo = repo();
    let tine = Tine::new(&repo);
    let (one, two) = (new_overlaid(&tine, "one"), new_overlaid(&tine, "two"));
    let plain = tine.new_fork("plain");
    let mut editor = Editor::new(&repo);
    for dir in [&one, &two, &plain] {
        editor.open(dir);
        assert_eq!(cat(&repo, dir), read(SAVED));
    }
    editor.change(&one, TYPED);
    editor.change(&two, "typed in the other\n");
    editor.change(&plain, "typed in the plain one\n");
    assert_eq!(cat(&repo, &one), read(TYPED));
    assert_eq!(cat(&repo, &two), read("typed in the other\n"));
    assert_eq!(cat(&repo, &plain), read(SAVED));

    // An editor that looked and found another text there would ask the person what to do.
    let seen = std::fs::read_to_string(one.join("notes.txt")).unwrap();
    assert_eq!(seen, SAVED);

    tine.fails(3, &["commit", "one", "-m", "nothing"]);
    assert_eq!(
        tine.json(&["status", "one"])["changes"]
            .as_array()
            .unwrap()
            .len(),
        0
    );
    tine.ok(&["snapshot", "one", "kept"]);

    let base = editor.change(&one, "typed and saved\n");
    std::fs::write(one.join("notes.txt"), "typed and saved\n").unwrap();
    editor.ask(BufferRequest::Save {
        path: one.join("notes.txt"),
        base,
    });
    assert_eq!(cat(&repo, &one), read("typed and saved\n"));
    tine.ok(&["commit", "one", "-m", "saved"]);
    assert_eq!(
        repo.git_in(&one, &["show", "HEAD:notes.txt"]),
        "typed and saved"
    );

    editor.change(&one, TYPED);
    tine.ok(&["restore", "one", "kept"]);
    assert_eq!(cat(&repo, &one), read(TYPED));
    editor.ask(BufferRequest::Close {
        path: one.join("notes.txt"),
    });
    assert_eq!(cat(&repo, &one), read(SAVED));
    drop(editor);
    assert_eq!(cat(&repo, &plain), read(SAVED));
}

#[test]
fn nothing_is_shown_when_the_editor_or_the_daemon_is_gone() {
    require_fuse!();
    let repo = repo();
    let tine = Tine::new(&repo);
    let dir = new_overlaid(&tine, "one");
    let mut editor = Editor::new(&repo);
    editor.open(&dir);
    editor.change(&dir, TYPED);
    assert_eq!(cat(&repo, &dir), read(TYPED));
    drop(editor);
    super::support::wait_until(
        "the daemon has seen it",
        std::time::Duration::from_secs(20),
        || cat(&repo, &dir) == read(SAVED),
    );
    let mut editor = Editor::new(&repo);
    editor.open(&dir);
    editor.change(&dir, TYPED);
    assert_eq!(cat(&repo, &dir), read(TYPED));
    tine.kill_daemon();
    tine.ok(&["list"]);
    assert_eq!(cat(&repo, &dir), read(SAVED));
    let mut editor = Editor::new(&repo);
    editor.open(&dir);
    editor.change(&dir, TYPED);
    assert_eq!(
        cat(&repo, &dir),
        read(TYPED),
        "the mount is again as it was"
    );
}

#[test]
fn the_wish_is_remembered_until_it_is_taken_back() {
    require_fuse!();
    let repo = repo();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("one");
    let refused = tine.fails(5, &["mount", "one", "--overlay-buffers"]);
    assert!(refused.contains("not with these settings"), "{refused}");
    let remount = |flags: &[&str]| {
        tine.ok(&["unmount", "one", "--keep"]);
        tine.ok(&[&["mount", "one"], flags].concat());
        let list = tine.json(&["list"]);
        list["forks"][0]["overlay_buffers"]
            .as_bool()
            .expect("it is told")
    };
    assert!(remount(&["--overlay-buffers"]));
    let mut editor = Editor::new(&repo);
    editor.open(&dir);
    editor.change(&dir, TYPED);
    assert_eq!(cat(&repo, &dir), read(TYPED));
    drop(editor);
    assert!(remount(&[]));
    assert!(!remount(&["--no-overlay-buffers"]));
    assert!(!remount(&[]));
    let mut editor = Editor::new(&repo);
    editor.open(&dir);
    editor.change(&dir, TYPED);
    assert_eq!(cat(&repo, &dir), read(SAVED));
}
