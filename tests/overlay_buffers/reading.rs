//! What programs read.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use super::support::{require_fuse, require_program, require_root};
use super::{SAVED, TYPED, assert_read, end, output_of, overlaid, repo, type_text};

const MAP: &str = "import mmap, sys\n\
    with open(sys.argv[1], 'rb') as file:\n\
    \x20   sys.stdout.buffer.write(mmap.mmap(file.fileno(), 0, MODE)[:])";

#[test]
fn every_text_is_read_at_once_and_none_after_its_end() {
    require_fuse!();
    let repo = repo();
    let fork = overlaid(&repo, "one");
    for at in ["notes.txt", "src/deep/code.txt"] {
        assert_read(&fork, at, SAVED);
        let large = "a line of a large text\n".repeat(100_000);
        for text in [TYPED, "", "a", "b", &large, "short\n"] {
            type_text(&fork, at, text);
            assert_read(&fork, at, text);
        }
        end(&fork, at);
        assert_read(&fork, at, SAVED);
    }
}

#[test]
fn mappings_show_the_text() {
    require_fuse!();
    require_program!("python3");
    let repo = repo();
    let fork = overlaid(&repo, "one");
    let large = "a line of a large text\n".repeat(20_000);
    for mode in [
        "mmap.MAP_PRIVATE, mmap.PROT_READ",
        "mmap.MAP_SHARED, mmap.PROT_READ",
    ] {
        let mapped = || {
            output_of(
                &fork,
                &["python3", "-c", &MAP.replace("MODE", mode), "notes.txt"],
            )
        };
        assert_eq!(mapped(), SAVED.as_bytes());
        for text in [TYPED, &large, "short\n"] {
            type_text(&fork, "notes.txt", text);
            assert_eq!(mapped(), text.as_bytes(), "{mode}");
        }
        end(&fork, "notes.txt");
        assert_eq!(mapped(), SAVED.as_bytes());
    }
}

#[test]
fn a_compiler_and_an_interpreter_take_what_was_typed() {
    require_fuse!();
    require_program!("cc");
    require_program!("python3");
    let repo = repo();
    repo.commit_files(
        &[
            ("answer.h", b"#define ANSWER 1\n"),
            (
                "main.c",
                b"#include \"answer.h\"\nint main(void) { return ANSWER; }\n",
            ),
            ("answer.py", b"ANSWER = 1\n"),
        ],
        "programs",
    );
    let fork = overlaid(&repo, "one");
    let built = || {
        output_of(&fork, &["cc", "-o", "main", "main.c"]);
        let run = std::process::Command::new(fork.path().join("main"))
            .status()
            .unwrap();
        run.code().unwrap()
    };
    let imported = || {
        output_of(
            &fork,
            &["python3", "-B", "-c", "import answer; print(answer.ANSWER)"],
        )
    };
    assert_eq!((built(), imported()), (1, b"1\n".to_vec()));
    type_text(&fork, "answer.h", "#define ANSWER 42\n");
    type_text(&fork, "answer.py", "ANSWER = 42\n");
    assert_eq!((built(), imported()), (42, b"42\n".to_vec()));
    end(&fork, "answer.h");
    end(&fork, "answer.py");
    assert_eq!((built(), imported()), (1, b"1\n".to_vec()));
}

/// A build tool compares times: what was made of one text is older than the next, and older than
/// the file when the text is given up.
#[test]
fn make_makes_again_what_was_made_of_another_text() {
    require_fuse!();
    require_program!("make");
    let repo = repo();
    repo.commit_files(
        &[("Makefile", b"copy: notes.txt\n\tcp notes.txt copy\n")],
        "rule",
    );
    let fork = overlaid(&repo, "one");
    let made = || {
        output_of(&fork, &["make", "-s", "copy"]);
        fs::read_to_string(fork.path().join("copy")).unwrap()
    };
    assert_eq!(made(), SAVED);
    type_text(&fork, "notes.txt", TYPED);
    assert_eq!(made(), TYPED);
    type_text(&fork, "notes.txt", "another\n");
    assert_eq!(made(), "another\n");
    end(&fork, "notes.txt");
    assert_eq!(made(), SAVED);
}

#[test]
fn the_time_moves_with_each_text_and_is_the_files_own_when_that_is_set() {
    require_fuse!();
    let repo = repo();
    let fork = overlaid(&repo, "one");
    let file = fork.path().join("notes.txt");
    let time = || {
        let meta = file.metadata().unwrap();
        (meta.mtime(), meta.mtime_nsec())
    };
    let before = time();
    type_text(&fork, "notes.txt", TYPED);
    end(&fork, "notes.txt");
    assert_eq!(time(), before, "nobody has seen it");
    let mut last = before;
    for text in ["a", "b", "c"] {
        type_text(&fork, "notes.txt", text);
        assert!(time() > last);
        last = time();
    }
    end(&fork, "notes.txt");
    assert!(time() > last);
    output_of(&fork, &["touch", "-d", "@1000000000", "notes.txt"]);
    assert_eq!(time(), (1_000_000_000, 0));
    type_text(&fork, "notes.txt", TYPED);
    assert!(time() > last);
    fs::write(&file, TYPED).unwrap();
    let written = fork
        .workspace()
        .resolve(&super::path("notes.txt"))
        .unwrap()
        .mtime;
    end(&fork, "notes.txt");
    assert_eq!(
        time(),
        (written.secs, written.nanos.into()),
        "saved as an editor does"
    );
}

#[test]
fn who_has_a_text_open_goes_on_reading_it() {
    require_fuse!();
    let repo = repo();
    let fork = overlaid(&repo, "one");
    let open = || File::open(fork.path().join("notes.txt")).unwrap();
    let read = |file: &File| {
        let mut bytes = vec![0; 100];
        let len = file.read_at(&mut bytes, 0).unwrap();
        String::from_utf8(bytes[..len].to_vec()).unwrap()
    };
    let of_file = open();
    type_text(&fork, "notes.txt", TYPED);
    let mut of_text = open();
    type_text(&fork, "notes.txt", "next\n");
    let of_next = open();
    end(&fork, "notes.txt");
    assert_eq!(
        (read(&of_file), read(&of_text)),
        (SAVED.to_owned(), TYPED.to_owned())
    );
    assert_eq!(read(&of_next), "next\n");
    assert_eq!(of_text.metadata().unwrap().len(), TYPED.len() as u64);
    assert_eq!(of_text.seek(SeekFrom::End(0)).unwrap(), TYPED.len() as u64);
    of_text.rewind().unwrap();
    let mut copied = Vec::new();
    of_text.read_to_end(&mut copied).unwrap();
    assert_eq!(copied, TYPED.as_bytes());
}

#[test]
fn programs_that_copy_ask_for_holes_and_for_attributes_are_answered() {
    require_fuse!();
    let repo = repo();
    let fork = overlaid(&repo, "one");
    type_text(&fork, "notes.txt", TYPED);
    output_of(
        &fork,
        &["cp", "-a", "--sparse=always", "notes.txt", "copy.txt"],
    );
    assert_eq!(
        fs::read_to_string(fork.path().join("copy.txt")).unwrap(),
        TYPED
    );
    let listed = String::from_utf8(output_of(&fork, &["ls", "-la"])).unwrap();
    let line = listed
        .lines()
        .find(|line| line.ends_with("notes.txt"))
        .unwrap();
    assert!(line.contains(&format!(" {} ", TYPED.len())), "{line}");
    output_of(&fork, &["chmod", "600", "notes.txt"]);
    let meta = fork.path().join("notes.txt").metadata().unwrap();
    assert_eq!(
        (meta.mode() & 0o777, meta.len()),
        (0o600, TYPED.len() as u64)
    );
    assert_eq!(
        fork.workspace()
            .resolve(&super::path("notes.txt"))
            .unwrap()
            .perm,
        0o600
    );
}

/// Each text says which one it is, again and again, so that a mixture shows.
fn numbered(number: u64) -> String {
    format!("{number}\n").repeat((number % 700) as usize + 1)
}

fn number_of(text: &str) -> u64 {
    let number = text
        .lines()
        .next()
        .expect("it is not empty")
        .parse()
        .expect("a number");
    assert!(
        text == numbered(number),
        "a mixture of texts, or a part of one"
    );
    number
}

#[test]
fn readers_never_see_a_mixture_nor_an_older_text_and_git_never_any() {
    require_fuse!();
    let repo = repo();
    let fork = overlaid(&repo, "one");
    let file = fork.path().join("notes.txt");
    type_text(&fork, "notes.txt", &numbered(0));
    let (begun, shown, done) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        for by_git in [false, false, true] {
            let (file, begun, shown, done) = (&file, &begun, &shown, &done);
            let (repo, fork) = (&repo, &fork);
            scope.spawn(move || {
                while !done.load(Ordering::SeqCst) {
                    if by_git {
                        let hashed = repo.git_in(fork.path(), &["hash-object", "notes.txt"]);
                        assert_eq!(hashed, repo.git(&["rev-parse", "HEAD:notes.txt"]));
                        continue;
                    }
                    let least = shown.load(Ordering::SeqCst);
                    let mut open = File::open(file).unwrap();
                    let size = open.metadata().unwrap().len();
                    let mut text = String::new();
                    open.read_to_string(&mut text).unwrap();
                    assert_eq!(text.len() as u64, size);
                    let number = number_of(&text);
                    let most = begun.load(Ordering::SeqCst);
                    assert!(
                        (least..=most).contains(&number),
                        "{number} of {least} to {most}"
                    );
                }
            });
        }
        for number in 1..2000 {
            begun.store(number, Ordering::SeqCst);
            type_text(&fork, "notes.txt", &numbered(number));
            shown.store(number, Ordering::SeqCst);
        }
        done.store(true, Ordering::SeqCst);
    });
    end(&fork, "notes.txt");
    assert_read(&fork, "notes.txt", SAVED);
}

#[test]
fn nothing_is_shown_on_a_mount_that_did_not_ask_and_nobody_is_asked_there() {
    require_fuse!();
    let repo = repo();
    let mut fork = super::TestFork::mounted(&repo, "plain");
    type_text(&fork, "notes.txt", TYPED);
    assert_read(&fork, "notes.txt", SAVED);
    let opens = |fork: &super::TestFork| {
        let counters = fork.mounted_at().unwrap().counters();
        counters.iter().find(|(name, _)| *name == "open").unwrap().1
    };
    assert!(
        opens(&fork) <= 1,
        "the first opening is the last that is asked for"
    );
    fork.unmount();
    fork.mount();
    assert_read(&fork, "notes.txt", SAVED);
}

#[test]
fn nothing_is_shown_after_another_mount_until_it_is_told() {
    require_fuse!();
    let repo = repo();
    let mut fork = overlaid(&repo, "one");
    type_text(&fork, "notes.txt", TYPED);
    assert_read(&fork, "notes.txt", TYPED);
    fork.unmount();
    fork.mount();
    assert_read(&fork, "notes.txt", SAVED);
    type_text(&fork, "notes.txt", "again\n");
    assert_read(&fork, "notes.txt", "again\n");
    fork.reopen();
    assert_read(&fork, "notes.txt", SAVED);
}

#[test]
fn texts_are_shown_where_the_kernel_reads_large_files_by_itself() {
    require_fuse!();
    require_root!("have the kernel read files by itself");
    let repo = repo();
    let mut fork = super::TestFork::with(&repo, "one", |options| {
        options.settings.overlay_buffers = true;
        options.settings.profile = tine::store::MountProfile::LargeFiles;
    });
    fork.mount();
    let large = "saved, and large\n".repeat(50_000);
    fs::write(fork.path().join("notes.txt"), &large).unwrap();
    let reader = File::open(fork.path().join("notes.txt")).unwrap();
    for text in [TYPED, "", &"typed\n".repeat(300_000)] {
        type_text(&fork, "notes.txt", text);
        assert_read(&fork, "notes.txt", text);
        fs::write(fork.path().join("notes.txt"), &large).unwrap();
        assert_eq!(super::saved(&fork, "notes.txt"), large);
    }
    end(&fork, "notes.txt");
    assert_read(&fork, "notes.txt", &large);
    let mut begun = [0; 5];
    reader.read_exact_at(&mut begun, 0).unwrap();
    assert_eq!(&begun, b"saved");
}
