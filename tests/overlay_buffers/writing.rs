//! Who writes to a file whose unsaved text is shown.

use std::fs::{self, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

use super::support::{require_fuse, require_program};
use super::{SAVED, TYPED, assert_read, end, output_of, overlaid, repo, saved, type_text};

#[test]
fn every_way_of_writing_comes_to_the_file() {
    require_fuse!();
    let repo = repo();
    let fork = overlaid(&repo, "one");
    let file = fork.path().join("notes.txt");
    type_text(&fork, "notes.txt", TYPED);
    assert_read(&fork, "notes.txt", TYPED);
    let check = |text: &str| {
        assert_eq!(saved(&fork, "notes.txt"), text);
        assert_read(&fork, "notes.txt", TYPED);
    };
    output_of(&fork, &["sh", "-c", "echo appended >> notes.txt"]);
    check(&format!("{SAVED}appended\n"));
    output_of(&fork, &["sh", "-c", "echo all of it > notes.txt"]);
    check("all of it\n");
    output_of(&fork, &["truncate", "-s", "3", "notes.txt"]);
    check("all");
    fs::write(&file, "by this process\n").unwrap();
    check("by this process\n");
    OpenOptions::new()
        .write(true)
        .open(&file)
        .unwrap()
        .write_all_at(b"BY", 0)
        .unwrap();
    check("BY this process\n");
    output_of(
        &fork,
        &[
            "dd",
            "if=/dev/zero",
            "of=notes.txt",
            "bs=1",
            "count=1",
            "seek=2",
            "conv=notrunc",
            "status=none",
        ],
    );
    check("BY\0this process\n");
    output_of(&fork, &["sed", "-i", "s/this/that/", "notes.txt"]);
    // It reads what is shown and puts another file in place.
    check(TYPED);
    end(&fork, "notes.txt");
    assert_read(&fork, "notes.txt", TYPED);
}

/// Who reads and writes has one file, not two.
#[test]
fn who_opens_to_write_reads_the_file_too() {
    require_fuse!();
    require_program!("python3");
    let repo = repo();
    let fork = overlaid(&repo, "one");
    type_text(&fork, "notes.txt", TYPED);
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(fork.path().join("notes.txt"))
        .unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, SAVED);
    assert_eq!(file.metadata().unwrap().len(), SAVED.len() as u64);
    assert_eq!(file.seek(SeekFrom::End(0)).unwrap(), SAVED.len() as u64);
    file.write_all(b"more\n").unwrap();
    file.set_len(4).unwrap();
    drop(file);
    assert_eq!(saved(&fork, "notes.txt"), "what");
    let map = "import mmap\n\
        with open('notes.txt', 'r+b') as file, mmap.mmap(file.fileno(), 0) as map:\n\
        \x20   assert map[:] == b'what', map[:]\n\
        \x20   map[:1] = b'W'";
    output_of(&fork, &["python3", "-c", map]);
    assert_eq!(saved(&fork, "notes.txt"), "What");
    assert_read(&fork, "notes.txt", TYPED);
}

/// An editor writes and then says that it has.
#[test]
fn what_is_saved_is_read_when_the_text_ends() {
    require_fuse!();
    let repo = repo();
    let fork = overlaid(&repo, "one");
    let file = fork.path().join("notes.txt");
    for (number, in_place) in [(1, true), (2, false), (3, true), (4, false)] {
        let text = format!("text {number}, saved\n");
        type_text(&fork, "notes.txt", &text);
        assert_read(&fork, "notes.txt", &text);
        if in_place {
            fs::write(&file, &text).unwrap();
        } else {
            fs::write(fork.path().join("notes.txt.new"), &text).unwrap();
            fs::rename(fork.path().join("notes.txt.new"), &file).unwrap();
        }
        assert_read(&fork, "notes.txt", &text);
        end(&fork, "notes.txt");
        assert_read(&fork, "notes.txt", &text);
        assert_eq!(saved(&fork, "notes.txt"), text);
        repo.git_in(fork.path(), &["commit", "-q", "-a", "-m", "saved"]);
        assert_eq!(
            repo.git_in(fork.path(), &["show", "HEAD:notes.txt"]),
            text.trim_end()
        );
    }
}

/// A writer that comes through the kernel a second time must not be taken for one later.
#[test]
fn a_thread_that_wrote_reads_the_text_again() {
    require_fuse!();
    let repo = repo();
    let fork = overlaid(&repo, "one");
    let file = fork.path().join("notes.txt");
    type_text(&fork, "notes.txt", TYPED);
    for round in 0..50 {
        let text = format!("round {round}\n");
        fs::write(&file, &text).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), TYPED);
        assert_eq!(file.metadata().unwrap().len(), TYPED.len() as u64);
        assert_eq!(saved(&fork, "notes.txt"), text);
    }
    let read_only = fs::File::open(&file).unwrap();
    assert!((&read_only).write_all(b"x").is_err());
}
