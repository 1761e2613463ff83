//! What is shown is a path: renames, links, removal.

use std::fs;

use super::support::require_fuse;
use super::{SAVED, TYPED, assert_read, end, overlaid, path, repo, saved, type_text};
use tine::workspace::{Actor, Caller, MoveOptions};

#[test]
fn the_text_stays_at_its_path_whatever_file_is_there() {
    require_fuse!();
    let repo = repo();
    let fork = overlaid(&repo, "one");
    let at = |name: &str| fork.path().join(name);
    type_text(&fork, "notes.txt", TYPED);
    assert_read(&fork, "notes.txt", TYPED);
    fs::rename(at("notes.txt"), at("moved.txt")).unwrap();
    assert!(!at("notes.txt").exists());
    assert_read(&fork, "moved.txt", SAVED);
    fs::write(at("notes.txt"), "a new file\n").unwrap();
    assert_eq!(saved(&fork, "notes.txt"), "a new file\n");
    assert_read(&fork, "notes.txt", TYPED);
    fs::remove_file(at("notes.txt")).unwrap();
    assert!(!at("notes.txt").exists());
    fs::create_dir(at("notes.txt")).unwrap();
    assert!(at("notes.txt").is_dir());
    fs::remove_dir(at("notes.txt")).unwrap();
    std::os::unix::fs::symlink("moved.txt", at("notes.txt")).unwrap();
    assert_eq!(
        fs::read_to_string(at("notes.txt")).unwrap(),
        SAVED,
        "a link is no file"
    );
    fs::remove_file(at("notes.txt")).unwrap();
    fs::rename(at("moved.txt"), at("notes.txt")).unwrap();
    assert_read(&fork, "notes.txt", TYPED);
    end(&fork, "notes.txt");
    assert_read(&fork, "notes.txt", SAVED);
}

#[test]
fn a_second_name_of_the_file_shows_what_is_saved() {
    require_fuse!();
    let repo = repo();
    let fork = overlaid(&repo, "one");
    let at = |name: &str| fork.path().join(name);
    type_text(&fork, "notes.txt", TYPED);
    assert_read(&fork, "notes.txt", TYPED);
    fs::hard_link(at("notes.txt"), at("second.txt")).unwrap();
    assert_read(&fork, "notes.txt", TYPED);
    assert_read(&fork, "second.txt", SAVED);
    fs::write(at("second.txt"), "through the second\n").unwrap();
    assert_eq!(saved(&fork, "notes.txt"), "through the second\n");
    fs::remove_file(at("notes.txt")).unwrap();
    let links = std::os::unix::fs::MetadataExt::nlink(&at("second.txt").metadata().unwrap());
    assert_eq!(links, 1);
    assert_read(&fork, "second.txt", "through the second\n");
}

#[test]
fn a_directory_that_comes_to_a_shown_path_brings_its_file_there() {
    require_fuse!();
    let repo = repo();
    let fork = overlaid(&repo, "one");
    let at = |name: &str| fork.path().join(name);
    type_text(&fork, "lib/deep/code.txt", TYPED);
    assert_read(&fork, "src/deep/code.txt", SAVED);
    fs::rename(at("src"), at("lib")).unwrap();
    super::support::wait_until(
        "the kernel has forgotten",
        std::time::Duration::from_secs(20),
        || fs::read_to_string(at("lib/deep/code.txt")).unwrap() == TYPED,
    );
    assert_read(&fork, "lib/deep/code.txt", TYPED);
    let options = MoveOptions::default();
    let by = Actor {
        caller: Caller::ROOT,
        command: "a test",
    };
    fork.workspace()
        .move_path(by, &path("lib"), &path("src"), options)
        .unwrap();
    assert_read(&fork, "src/deep/code.txt", SAVED);
    fork.workspace()
        .move_path(by, &path("src"), &path("lib"), options)
        .unwrap();
    assert_read(&fork, "lib/deep/code.txt", TYPED);
}

#[test]
fn a_text_waits_for_its_file() {
    require_fuse!();
    let repo = repo();
    let fork = overlaid(&repo, "one");
    let at = |name: &str| fork.path().join(name);
    assert!(!at("new/file.txt").exists());
    type_text(&fork, "new/file.txt", TYPED);
    assert!(
        !at("new/file.txt").exists(),
        "what was never saved is nowhere"
    );
    fs::create_dir(at("new")).unwrap();
    assert!(!at("new/file.txt").exists());
    fs::write(at("new/file.txt"), SAVED).unwrap();
    assert_read(&fork, "new/file.txt", TYPED);
    end(&fork, "new/file.txt");
    assert_read(&fork, "new/file.txt", SAVED);
}

#[test]
fn tools_change_the_file_beneath_the_text() {
    require_fuse!();
    let repo = repo();
    let fork = overlaid(&repo, "one");
    type_text(&fork, "notes.txt", TYPED);
    assert_read(&fork, "notes.txt", TYPED);
    fork.workspace()
        .write_path(Caller::ROOT, &path("notes.txt"), b"by a tool\n")
        .unwrap();
    assert_read(&fork, "notes.txt", TYPED);
    assert_eq!(
        repo.git_in(fork.path(), &["status", "--porcelain"]),
        " M notes.txt"
    );
    end(&fork, "notes.txt");
    assert_read(&fork, "notes.txt", "by a tool\n");
}
