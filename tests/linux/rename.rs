//! Renaming, replacing and unlinking while others look.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::fcntl::{
    AT_FDCWD, AtFlags, FallocateFlags, RenameFlags, copy_file_range, fallocate, renameat2,
};
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::{ftruncate, linkat};

use crate::compare::{Child, Place, compare, errno_in_child, pipe};
use crate::mapping::Mapping;
use crate::support::test_name;

const NOTHING: RenameFlags = RenameFlags::empty();
const NOREPLACE: RenameFlags = RenameFlags::RENAME_NOREPLACE;
const EXCHANGE: RenameFlags = RenameFlags::RENAME_EXCHANGE;
const WHITEOUT: RenameFlags = RenameFlags::RENAME_WHITEOUT;

fn rename(from: &Path, to: &Path, flags: RenameFlags) -> Result<(), Errno> {
    renameat2(AT_FDCWD, from, AT_FDCWD, to, flags)
}

/// What there is beneath a directory: names, kinds, links and contents, sorted.
fn tree(dir: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut open = vec![dir.to_owned()];
    while let Some(at) = open.pop() {
        for entry in fs::read_dir(&at).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let kind = meta.file_type();
            let what = if kind.is_dir() {
                open.push(path.clone());
                "directory".to_owned()
            } else if kind.is_char_device() {
                format!("device {}", meta.rdev())
            } else if kind.is_symlink() {
                format!("link to {:?}", fs::read_link(&path).unwrap())
            } else {
                String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned()
            };
            let name = path.strip_prefix(dir).unwrap().display().to_string();
            lines.push(format!("{name}: {what}, {} links", meta.nlink()));
        }
    }
    lines.sort();
    lines
}

/// Every kind of thing onto every other, with every choice of flags.
#[test]
fn renames_answer_and_do_what_ext4_does() {
    compare(test_name!(), &[], |place| {
        let names = [
            "file",
            "twin",
            "empty",
            "full",
            "full/in",
            "link",
            "missing",
            "empty/new",
        ];
        let mut round = 0;
        for flags in [NOTHING, NOREPLACE, EXCHANGE, WHITEOUT] {
            for (from, to) in names
                .iter()
                .flat_map(|from| names.iter().map(move |to| (from, to)))
            {
                let dir = place.at("round");
                fs::create_dir(&dir).unwrap();
                let at = |name: &str| dir.join(name);
                fs::write(at("file"), "file").unwrap();
                fs::hard_link(at("file"), at("twin")).unwrap();
                fs::create_dir(at("empty")).unwrap();
                fs::create_dir(at("full")).unwrap();
                fs::write(at("full/in"), "in").unwrap();
                symlink("file", at("link")).unwrap();
                let renamed = rename(&at(from), &at(to), flags);
                place.result(format!("{from} to {to} {flags:?}"), renamed);
                place.note(format!("tree after {from} to {to} {flags:?}"), tree(&dir));
                round += 1;
                fs::rename(&dir, place.at(format!("round-{round}"))).unwrap();
            }
        }
        for flags in [
            NOREPLACE | EXCHANGE,
            NOREPLACE | WHITEOUT,
            EXCHANGE | WHITEOUT,
            RenameFlags::from_bits_retain(8),
        ] {
            for to in ["docs", "docs/empty", "missing"] {
                let renamed = rename(&place.at("docs/guide.md"), &place.at(to), flags);
                place.result(format!("to {to} {flags:?}"), renamed);
            }
        }
    });
}

#[test]
fn directories_of_the_base_are_moved_and_exchanged() {
    compare(test_name!(), &[], |place| {
        let at = |name: &str| place.at(name);
        let results = [
            rename(&at("src"), &at("docs"), NOTHING),
            rename(&at("src"), &at("src/deep/in"), NOTHING),
            rename(&at("src/deep"), &at("src"), EXCHANGE),
            rename(&at("src"), &at("docs"), EXCHANGE),
            rename(&at("docs/deep/er"), &at("data/er"), NOREPLACE),
            rename(&at("docs"), &at("data/er/still/docs"), NOREPLACE),
            rename(&at("data/er"), &at("er"), WHITEOUT),
            rename(&at("er/still/docs/main.rs"), &at("run.sh"), EXCHANGE),
        ];
        let mut seen = tree(place.dir());
        seen.retain(|line| !line.starts_with(".git:"));
        place.note("results", results);
        place.note("tree", seen);
        place.note(
            "links of the root",
            fs::metadata(place.dir()).unwrap().nlink(),
        );
    });
}

#[test]
fn readers_see_the_old_or_the_new_file_and_nothing_else() {
    const VERSIONS: usize = 300;
    let content = |version: usize| format!("{version:08}").repeat(1500);
    compare(test_name!(), &[], |place| {
        let (name, new) = (place.at("docs/guide.md"), place.at("docs/.new"));
        fs::write(&name, content(0)).unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let reader = || {
                let mut last = 0;
                while !over.load(Ordering::Relaxed) {
                    let mut seen = String::new();
                    let mut file = File::open(&name).expect("the name is never missing");
                    file.read_to_string(&mut seen).unwrap();
                    let version: usize = seen[..8].parse().unwrap();
                    assert!(seen == content(version), "two versions mixed");
                    assert!(version >= last, "version {version} after {last}");
                    last = version;
                }
            };
            let looker = || {
                let mut numbers = 0;
                let mut last = 0;
                while !over.load(Ordering::Relaxed) {
                    let meta = fs::metadata(&name).expect("the name is never missing");
                    assert_eq!(meta.len(), 12_000);
                    numbers += u64::from(meta.ino() != last);
                    last = meta.ino();
                }
                numbers
            };
            let (first, second) = (scope.spawn(reader), scope.spawn(looker));
            for version in 1..=VERSIONS {
                fs::write(&new, content(version)).unwrap();
                fs::rename(&new, &name).unwrap();
            }
            over.store(true, Ordering::Relaxed);
            first.join().unwrap();
            assert!(second.join().unwrap() > 0);
        });
        place.note(
            "the last",
            fs::read_to_string(&name).unwrap() == content(VERSIONS),
        );
        place.note("the other name", new.exists());
    });
}

#[test]
fn an_exchange_leaves_no_name_without_a_file() {
    compare(test_name!(), &[], |place| {
        let (one, two) = (place.at("src"), place.at("other"));
        fs::create_dir(&two).unwrap();
        fs::write(two.join("main.rs"), "other").unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let looker = scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    for dir in [&one, &two] {
                        fs::metadata(dir).expect("the name is never missing");
                        fs::read(dir.join("main.rs")).expect("both have it");
                    }
                }
            });
            for _ in 0..301 {
                rename(&one, &two, EXCHANGE).unwrap();
            }
            over.store(true, Ordering::Relaxed);
            looker.join().unwrap();
        });
        place.note(
            "exchanged",
            fs::read_to_string(one.join("main.rs")).unwrap(),
        );
    });
}

/// Notes everything that can be done with a file that has no name.
fn use_nameless(place: &mut Place, label: &str, file: &File, mut mapping: Mapping) {
    let note =
        |place: &mut Place, what: &str, seen: String| place.note(format!("{label}: {what}"), seen);
    note(place, "links", file.metadata().unwrap().nlink().to_string());
    note(
        place,
        "mapped",
        String::from_utf8_lossy(&mapping.bytes()[..5]).into_owned(),
    );
    mapping.bytes()[0] = b'!';
    mapping.sync();
    file.write_all_at(b"written", 3).unwrap();
    let mut seen = [0; 10];
    file.read_exact_at(&mut seen, 0).unwrap();
    note(
        place,
        "written",
        String::from_utf8_lossy(&seen).into_owned(),
    );
    file.write_all_at(&[7; 200_000], 100_000).unwrap();
    ftruncate(file, 150_000).unwrap();
    fallocate(file, FallocateFlags::empty(), 150_000, 1000).unwrap();
    note(place, "size", file.metadata().unwrap().len().to_string());
    fchmod(file, Mode::S_IRUSR).unwrap();
    file.sync_all().unwrap();
    note(
        place,
        "mode",
        format!("{:o}", file.metadata().unwrap().mode()),
    );
    let by_descriptor = format!("/proc/self/fd/{}", file.as_raw_fd());
    let mut again = [0; 4];
    File::open(&by_descriptor)
        .unwrap()
        .read_exact_at(&mut again, 3)
        .unwrap();
    note(
        place,
        "opened again",
        String::from_utf8_lossy(&again).into_owned(),
    );
    let link = |from: &str, flags| linkat(file, from, AT_FDCWD, &place.at("again"), flags);
    let linked = [
        link(&by_descriptor, AtFlags::AT_SYMLINK_FOLLOW),
        link("", AtFlags::AT_EMPTY_PATH),
    ];
    note(place, "linked", format!("{linked:?}"));
    let copy = place.open(format!("copy-{}", file.metadata().unwrap().len()));
    note(
        place,
        "copied",
        format!(
            "{:?}",
            copy_file_range(file, Some(&mut 0), &copy, None, 100)
        ),
    );
    drop(mapping);
}

#[test]
fn a_file_without_a_name_lives_for_who_holds_it() {
    compare(test_name!(), &[], |place| {
        let large = vec![b'L'; 300_000];
        place.file("small", "small content");
        place.file("large", &large);
        for name in ["small", "large", "README.md", "data/large.bin"] {
            let file = place.open(name);
            let mapping = Mapping::shared(&file, 4096);
            let number = file.metadata().unwrap().ino();
            fs::remove_file(place.at(name)).unwrap();
            place.note(format!("{name} is gone"), !place.at(name).exists());
            // A new file of that name is another one.
            place.file(name, "new");
            place.note(
                format!("{name} is another"),
                fs::metadata(place.at(name)).unwrap().ino() != number,
            );
            use_nameless(place, &format!("unlinked {name}"), &file, mapping);
            place.note(format!("{name} is new"), fs::read(place.at(name)).unwrap());
        }
        for name in ["small", "docs/guide.md", "src/main.rs"] {
            fs::write(place.at(name), "replaced content").unwrap();
            let file = place.open(name);
            let mapping = Mapping::shared(&file, 4096);
            let new = place.file("incoming", "incoming");
            fs::rename(&new, place.at(name)).unwrap();
            use_nameless(place, &format!("replaced {name}"), &file, mapping);
            place.note(
                format!("{name} replaced"),
                fs::read(place.at(name)).unwrap(),
            );
        }
    });
}

#[test]
fn a_removed_directory_is_empty_for_who_stands_in_it() {
    compare(test_name!(), &[], |place| {
        fs::create_dir(place.at("made")).unwrap();
        fs::remove_file(place.at("docs/empty")).unwrap();
        fs::remove_file(place.at("docs/guide.md")).unwrap();
        fs::remove_file(place.at("docs/up")).unwrap();
        for name in ["made", "docs"] {
            let dir = place.at(name);
            let inside = |work: &dyn Fn() -> Result<(), Errno>| {
                errno_in_child(|| {
                    nix::unistd::chdir(&dir)?;
                    fs::remove_dir(&dir).map_err(|_| Errno::EREMOTEIO)?;
                    let done = work();
                    // For the next one.
                    fs::create_dir(&dir).map_err(|_| Errno::EREMOTEIO)?;
                    done
                })
            };
            let code = |error: std::io::Error| Errno::from_raw(error.raw_os_error().unwrap_or(0));
            place.result(
                format!("{name}: getcwd"),
                inside(&|| nix::unistd::getcwd().map(drop)),
            );
            place.result(
                format!("{name}: create"),
                inside(&|| File::create("new").map(drop).map_err(code)),
            );
            place.result(
                format!("{name}: mkdir"),
                inside(&|| fs::create_dir("new").map_err(code)),
            );
            place.result(
                format!("{name}: stat"),
                inside(&|| fs::metadata(".").map(drop).map_err(code)),
            );
            place.result(
                format!("{name}: list"),
                inside(&|| {
                    let entries = fs::read_dir(".").map_err(code)?;
                    entries
                        .into_iter()
                        .try_for_each(|entry| entry.map(drop).map_err(code))
                }),
            );
            place.result(
                format!("{name}: links"),
                inside(&|| {
                    let links = fs::metadata(".").map_err(code)?.nlink();
                    if links == 0 {
                        Ok(())
                    } else {
                        Err(Errno::from_raw(links as i32))
                    }
                }),
            );
            place.result(
                format!("{name}: up"),
                inside(&|| fs::metadata("..").map(drop).map_err(code)),
            );
            place.result(
                format!("{name}: rename in"),
                inside(&|| fs::rename(dir.with_file_name("run.sh"), "x").map_err(code)),
            );
        }
    });
}

#[test]
fn a_removed_file_of_the_base_stays_readable_through_every_handle() {
    compare(test_name!(), &[], |place| {
        // Never written, so that its bytes are git's, not the layer's.
        let (first, second) = (
            File::open(place.at("data/large.bin")).unwrap(),
            File::open(place.at("data/large.bin")).unwrap(),
        );
        let mut mapping = Mapping::private(&second, 300_000);
        fs::remove_file(place.at("data/large.bin")).unwrap();
        fs::remove_dir(place.at("data")).unwrap();
        let mut content = vec![0; 300_000];
        first.read_exact_at(&mut content, 0).unwrap();
        place.note("read as mapped", content == mapping.bytes());
        drop((first, mapping));
        second.read_exact_at(&mut content[..100], 200_000).unwrap();
        place.note("read by the last", &content[..100]);
    });
}

#[test]
fn where_a_process_stands_moves_with_its_directory() {
    compare(test_name!(), &[], |place| {
        let root = place.dir().to_owned();
        let ((told, tell), (ready, stands)) = (pipe(), pipe());
        let child = Child::start(|| {
            nix::unistd::chdir(&root.join("src/deep/er")).unwrap();
            File::from(stands.try_clone().unwrap())
                .write_all(b"x")
                .unwrap();
            File::from(told.try_clone().unwrap())
                .read_exact(&mut [0])
                .unwrap();
            let here = nix::unistd::getcwd().unwrap();
            fs::write("made-here", "").unwrap();
            let is_right =
                here == root.join("docs/moved/deep/er") && fs::metadata("../../main.rs").is_ok();
            i32::from(!is_right)
        });
        File::from(ready).read_exact(&mut [0]).unwrap();
        fs::rename(place.at("src"), place.at("moved")).unwrap();
        fs::rename(place.at("moved"), place.at("docs/moved")).unwrap();
        File::from(tell).write_all(b"x").unwrap();
        place.note("it stands there", child.end());
        place.note(
            "what it made",
            place.at("docs/moved/deep/er/made-here").exists(),
        );
    });
}

/// Of many who want the same name, one gets it.
#[test]
fn exactly_one_gets_a_name() {
    const WORKERS: usize = 4;
    compare(test_name!(), &[], |place| {
        let root = place.dir().to_owned();
        type Attempt = fn(&Path, usize, &Path) -> bool;
        let attempts: [(&str, Attempt); 5] = [
            ("create", |_, _, name| File::create_new(name).is_ok()),
            ("mkdir", |_, _, name| fs::create_dir(name).is_ok()),
            ("symlink", |_, worker, name| {
                symlink(worker.to_string(), name).is_ok()
            }),
            ("link", |root, _, name| {
                fs::hard_link(root.join("run.sh"), name).is_ok()
            }),
            ("rename", |root, worker, name| {
                let own = root.join(format!("own-{worker}"));
                fs::write(&own, "").unwrap();
                rename(&own, name, NOREPLACE).is_ok()
            }),
        ];
        for (what, attempt) in attempts {
            let mut wins = Vec::new();
            for round in 0..20 {
                let name = root.join(format!("{what}-{round}"));
                let barrier = std::sync::Barrier::new(WORKERS);
                wins.push(std::thread::scope(|scope| {
                    let workers: Vec<_> = (0..WORKERS)
                        .map(|worker| {
                            let (root, name, barrier) = (&root, &name, &barrier);
                            scope.spawn(move || {
                                barrier.wait();
                                usize::from(attempt(root, worker, name))
                            })
                        })
                        .collect();
                    workers
                        .into_iter()
                        .map(|worker| worker.join().unwrap())
                        .sum::<usize>()
                }));
            }
            place.note(what, wins);
        }
    });
}
