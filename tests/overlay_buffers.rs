//! Unsaved text of editors in a mount: programs read it, and nothing records it.

mod support;

#[path = "overlay_buffers/editors.rs"]
mod editors;
#[path = "overlay_buffers/names.rs"]
mod names;
#[path = "overlay_buffers/random.rs"]
mod random;
#[path = "overlay_buffers/reading.rs"]
mod reading;
#[path = "overlay_buffers/recording.rs"]
mod recording;
#[path = "overlay_buffers/writing.rs"]
mod writing;

use std::fs;
use std::process::Command;

use support::{OutputExt, TestFork, TestRepo, run_with_timeout};
use tine::path::RepoPath;

const SAVED: &str = "what is saved\n";
const TYPED: &str = "what was typed and not saved\n";

fn path(text: &str) -> RepoPath {
    RepoPath::parse(text).unwrap()
}

fn repo() -> TestRepo {
    let repo = TestRepo::new().without_maintenance();
    let files = [
        ("notes.txt", SAVED.as_bytes()),
        ("src/deep/code.txt", SAVED.as_bytes()),
    ];
    repo.commit_files(&files, "begin");
    repo
}

/// A mounted fork that shows texts.
fn overlaid(repo: &TestRepo, name: &str) -> TestFork {
    let mut fork = TestFork::with(repo, name, |options| {
        options.settings.overlay_buffers = true
    });
    fork.mount();
    fork
}

/// As the daemon tells of a buffer with unsaved text.
fn type_text(fork: &TestFork, at: &str, text: &str) {
    fork.workspace()
        .show_text(&path(at), Some(text.as_bytes().into()));
}

/// As the daemon tells of a buffer that is saved or closed.
fn end(fork: &TestFork, at: &str) {
    fork.workspace().show_text(&path(at), None);
}

/// What the fork has, whatever is shown.
fn saved(fork: &TestFork, at: &str) -> String {
    String::from_utf8(fork.workspace().read_path(&path(at)).unwrap()).unwrap()
}

/// The output of a program on a file, byte for byte.
#[track_caller]
fn output_of(fork: &TestFork, program: &[&str]) -> Vec<u8> {
    let (name, arguments) = program.split_first().unwrap();
    let mut command = Command::new(name);
    command.args(arguments).current_dir(fork.path());
    run_with_timeout(&mut command).expect_success(name).stdout
}

/// Programs of all kinds read this text at the path.
#[track_caller]
fn assert_read(fork: &TestFork, at: &str, text: &str) {
    let file = fork.path().join(at);
    assert_eq!(fs::read_to_string(&file).unwrap(), text, "read(2)");
    assert_eq!(file.metadata().unwrap().len(), text.len() as u64, "stat(2)");
    let shown = String::from_utf8(output_of(fork, &["cat", at])).unwrap();
    assert_eq!(shown, text, "cat");
    let size = String::from_utf8(output_of(fork, &["stat", "-c", "%s", at])).unwrap();
    assert_eq!(size.trim(), text.len().to_string(), "stat");
}
