use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::packed::{format_merged, parse};
use tine_workspace::Caller;

mod refs;

const ME: Caller = Caller::new(0, 0);

/// Two git directories: the fork's own and the main repository's.
struct Pair {
    place: tempfile::TempDir,
    shown: GitDirectory,
}

impl Pair {
    fn new(fill: impl FnOnce(&Path, &Path)) -> Pair {
        let place = tempfile::tempdir().unwrap();
        let (own, main) = (place.path().join("own"), place.path().join("main"));
        for dir in [&own, &main] {
            for name in ["refs/heads", "objects/ab", "hooks"] {
                fs::create_dir_all(dir.join(name)).unwrap();
            }
            fs::write(dir.join("HEAD"), "ref: refs/heads/mine\n").unwrap();
        }
        fill(&own, &main);
        let shown = GitDirectory::open(&own, &main, &[], "demo").unwrap();
        Pair { place, shown }
    }

    fn own(&self, path: &str) -> PathBuf {
        self.place.path().join("own").join(path)
    }

    fn main(&self, path: &str) -> PathBuf {
        self.place.path().join("main").join(path)
    }

    /// What the kernel must forget.
    fn resync(&self) -> Vec<String> {
        let mut told = Vec::new();
        self.shown.resync(|changes| told = changes);
        told.iter().map(|change| format!("{change:?}")).collect()
    }

    fn find(&self, path: &str) -> io::Result<Option<Ino>> {
        let mut at = self.shown.root();
        for name in path.split('/') {
            match self.shown.lookup(at, name.as_bytes())?.attr {
                Some(attr) => at = attr.ino,
                None => return Ok(None),
            }
        }
        Ok(Some(at))
    }

    fn dir(&self, path: &str) -> Ino {
        self.find(path).unwrap().expect("the directory is there")
    }

    fn read(&self, path: &str) -> Option<String> {
        let ino = self.find(path).unwrap()?;
        let mut buffer = vec![0; 1 << 16];
        let count = self.shown.read(ino, 0, &mut buffer).unwrap();
        Some(String::from_utf8(buffer[..count].to_vec()).unwrap())
    }

    /// Writes a file as git does: a lock, then a rename.
    fn write(&self, dir: &str, name: &str, content: &str) {
        let dir = if dir.is_empty() {
            self.shown.root()
        } else {
            self.dir(dir)
        };
        let lock = format!("{name}.lock");
        let made = self
            .shown
            .mknod(ME, dir, lock.as_bytes(), 0o100_644)
            .unwrap();
        let ino = made.attr.unwrap().ino;
        self.shown.write(ino, 0, content.as_bytes()).unwrap();
        self.shown
            .rename((dir, lock.as_bytes()), (dir, name.as_bytes()), 0)
            .unwrap();
    }
}

fn line(digit: char, name: &str) -> String {
    format!("{} {name}\n", digit.to_string().repeat(40))
}

#[test]
fn a_lent_ref_is_seen_live_until_the_fork_writes_it() {
    let pair = Pair::new(|_, main| fs::write(main.join("refs/heads/main"), "1\n").unwrap());
    assert_eq!(pair.read("refs/heads/main").unwrap(), "1\n");
    fs::write(pair.main("refs/heads/new"), "2\n").unwrap();
    fs::write(pair.main("refs/heads/main.new"), "3\n").unwrap();
    fs::rename(
        pair.main("refs/heads/main.new"),
        pair.main("refs/heads/main"),
    )
    .unwrap();
    assert_eq!(pair.read("refs/heads/main").unwrap(), "3\n");
    assert_eq!(pair.read("refs/heads/new").unwrap(), "2\n");
    pair.write("refs/heads", "main", "4\n");
    assert_eq!(pair.read("refs/heads/main").unwrap(), "4\n");
    assert_eq!(
        fs::read_to_string(pair.main("refs/heads/main")).unwrap(),
        "3\n"
    );
}

#[test]
fn a_lent_name_that_is_removed_stays_away_and_can_come_back() {
    let pair = Pair::new(|_, main| fs::write(main.join("hooks/pre-commit"), "x").unwrap());
    let hooks = pair.dir("hooks");
    pair.shown.unlink(hooks, b"pre-commit").unwrap();
    assert_eq!(pair.read("hooks/pre-commit"), None);
    assert!(pair.main("hooks/pre-commit").exists());
    let again = GitDirectory::open(&pair.own(""), &pair.main(""), &[], "demo").unwrap();
    let hooks_again = again
        .lookup(again.root(), b"hooks")
        .unwrap()
        .attr
        .unwrap()
        .ino;
    assert!(
        again
            .lookup(hooks_again, b"pre-commit")
            .unwrap()
            .attr
            .is_none()
    );
    pair.write("hooks", "pre-commit", "mine");
    assert_eq!(pair.read("hooks/pre-commit").unwrap(), "mine");
}

#[test]
fn a_change_of_a_lent_hook_makes_a_copy() {
    let pair = Pair::new(|_, main| fs::write(main.join("hooks/update"), "abc").unwrap());
    let ino = pair.find("hooks/update").unwrap().unwrap();
    pair.shown.write(ino, 0, b"X").unwrap();
    assert_eq!(pair.read("hooks/update").unwrap(), "Xbc");
    assert_eq!(
        fs::read_to_string(pair.main("hooks/update")).unwrap(),
        "abc"
    );
}

#[test]
fn the_main_repository_s_file_does_not_return_when_the_fork_removes_its_own() {
    let pair = Pair::new(|_, main| {
        fs::write(main.join("hooks/update"), "main").unwrap();
        fs::write(main.join("hooks/moved"), "main").unwrap();
        fs::write(main.join("shallow"), "1\n").unwrap();
    });
    let hooks = pair.dir("hooks");
    let root = pair.shown.root();
    for (dir, name) in [("hooks", "update"), ("", "shallow")] {
        pair.write(dir, name, "mine");
        let dir = if dir.is_empty() { root } else { hooks };
        pair.shown.unlink(dir, name.as_bytes()).unwrap();
        assert_eq!(pair.shown.lookup(dir, name.as_bytes()).unwrap().attr, None);
    }
    // As `pre-commit install` does.
    pair.shown
        .rename((hooks, b"moved"), (hooks, b"moved.legacy"), 0)
        .unwrap();
    assert_eq!(pair.read("hooks/moved"), None);
    assert_eq!(pair.read("hooks/moved.legacy").unwrap(), "main");
    // A directory of hooks can be replaced by a link.
    pair.shown.unlink(hooks, b"moved.legacy").unwrap();
    pair.shown.rmdir(root, b"hooks").unwrap();
    pair.shown
        .symlink(ME, root, b"hooks", b"../hooks-of-the-project")
        .unwrap();
    assert!(pair.main("hooks/update").exists() && pair.main("shallow").exists());
}

#[test]
fn objects_are_found_from_their_directory_and_from_the_work_tree() {
    let pair = Pair::new(|own, main| {
        fs::write(main.join("objects/ab/cd"), "blob").unwrap();
        fs::create_dir_all(own.join("objects/.git/tine")).unwrap();
    });
    let alias = "objects/.git/tine/objects/ab/cd";
    assert_eq!(pair.read(alias).unwrap(), "blob");
    let mut names = Vec::new();
    let objects = pair.dir("objects");
    let list = |entry: &Listed| {
        names.push(entry.name.clone());
        true
    };
    pair.shown.readdir(objects, 0, &mut { list }).unwrap();
    assert!(!names.contains(&b".git".to_vec()), "{names:?}");
    let dir = pair.dir("objects/.git/tine");
    let made = pair.shown.mknod(ME, dir, b"x", 0o100_644);
    assert_eq!(made.unwrap_err().raw_os_error(), Some(libc::EPERM));
    let removed = pair.shown.rmdir(objects, b".git");
    assert_eq!(removed.unwrap_err().raw_os_error(), Some(libc::EPERM));
}

#[test]
fn objects_are_lent_and_nothing_changes_them() {
    let pair = Pair::new(|_, main| fs::write(main.join("objects/ab/cd"), "blob").unwrap());
    assert_eq!(pair.read("tine/objects/ab/cd").unwrap(), "blob");
    let ino = pair.find("tine/objects/ab/cd").unwrap().unwrap();
    let dir = pair.dir("tine/objects/ab");
    let set = tine_workspace::SetAttr {
        mtime: Some(tine_workspace::SetTime::Now),
        ..Default::default()
    };
    let refused = |done: io::Result<()>| done.unwrap_err().raw_os_error() == Some(libc::EPERM);
    assert!(refused(pair.shown.setattr(ino, &set).map(drop)));
    assert!(refused(pair.shown.write(ino, 0, b"x")));
    assert!(refused(pair.shown.unlink(dir, b"cd")));
    assert!(refused(
        pair.shown.mknod(ME, dir, b"new", 0o100_644).map(drop)
    ));
}

/// A program that opens a pipe in the place of HEAD or the packed refs waits for its writer.
#[test]
fn files_and_sockets_are_made_but_no_pipes() {
    let pair = Pair::new(|_, _| {});
    let root = pair.shown.root();
    let make = |name: &[u8], kind: u32| pair.shown.mknod(ME, root, name, kind | 0o644);
    for kind in [libc::S_IFIFO, libc::S_IFCHR, libc::S_IFBLK] {
        let refused = make(b"packed-refs", kind).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EPERM));
    }
    make(b"file", libc::S_IFREG).unwrap();
    make(b"fsmonitor--daemon.ipc", libc::S_IFSOCK).unwrap();
}

#[test]
fn packed_refs_of_both_are_one_file() {
    let pair = Pair::new(|_, main| {
        let packed = [
            line('1', "refs/heads/main"),
            line('2', "refs/tags/v1"),
            line('3', "refs/tine/x/head"),
        ];
        fs::write(main.join("packed-refs"), packed.concat()).unwrap();
        fs::write(main.join("refs/heads/loose"), "4".repeat(40)).unwrap();
    });
    let seen = parse(pair.read("packed-refs").unwrap().as_bytes()).0;
    let names: Vec<_> = seen
        .keys()
        .map(|name| String::from_utf8_lossy(name))
        .collect();
    assert_eq!(names, ["refs/heads/main", "refs/tags/v1"]);
    // As `git pack-refs --all` in the fork, which also deletes v1 and has a branch of its own.
    let packed = [
        line('4', "refs/heads/loose"),
        line('1', "refs/heads/main"),
        line('5', "refs/heads/mine"),
    ];
    pair.write("", "packed-refs", &packed.concat());
    let own = fs::read_to_string(pair.own("packed-refs")).unwrap();
    assert!(own.ends_with(&line('5', "refs/heads/mine")), "{own}");
    assert!(!own.contains("main") && !own.contains("loose"), "{own}");
    // git prunes the loose file, which the main repository keeps.
    pair.shown.unlink(pair.dir("refs/heads"), b"loose").unwrap();
    assert!(pair.read("refs/heads/loose").is_some());
    let moved = [line('6', "refs/heads/main"), line('2', "refs/tags/v1")];
    fs::write(pair.main("packed-refs"), moved.concat()).unwrap();
    let seen = pair.read("packed-refs").unwrap();
    assert!(seen.contains(&line('6', "refs/heads/main")), "{seen}");
    assert!(!seen.contains("v1"), "{seen}");
    // This removal is meant.
    pair.delete("refs/heads/loose");
    assert!(pair.read("refs/heads/loose").is_none());
}

/// The main repository goes on while git packs the refs of the fork.
#[test]
fn what_was_read_while_packing_stays_lent() {
    let pair = Pair::new(|_, main| {
        fs::write(main.join("refs/heads/moved"), "1".repeat(40)).unwrap();
        fs::write(main.join("refs/heads/packed"), "2".repeat(40)).unwrap();
        fs::write(main.join("packed-refs"), line('3', "refs/heads/old")).unwrap();
    });
    let root = pair.shown.root();
    let make = |name: &[u8]| pair.shown.mknod(ME, root, name, 0o100_644).unwrap();
    let replace = |name: &str, content: &str| {
        fs::write(pair.main("new"), content).unwrap();
        fs::rename(pair.main("new"), pair.main(name)).unwrap();
    };
    make(b"packed-refs.lock");
    assert!(pair.read("packed-refs").is_some());
    replace("packed-refs", &line('4', "refs/heads/old"));
    assert!(pair.read("packed-refs").is_some());
    replace("refs/heads/moved", &"5".repeat(40));
    assert!(pair.read("refs/heads/moved").is_some());
    assert!(pair.read("refs/heads/packed").is_some());
    replace("refs/heads/moved", &"6".repeat(40));
    let now = [line('7', "refs/heads/old"), line('2', "refs/heads/packed")];
    replace("packed-refs", &now.concat());
    fs::remove_file(pair.main("refs/heads/packed")).unwrap();
    let written = [
        line('5', "refs/heads/moved"),
        line('4', "refs/heads/old"),
        line('2', "refs/heads/packed"),
    ];
    let new = make(b"packed-refs.new");
    assert!(
        !new.keeps_name,
        "the kernel must ask for what becomes of it"
    );
    let ino = new.attr.unwrap().ino;
    let content = written.concat();
    pair.shown.write(ino, 0, content.as_bytes()).unwrap();
    let to = (root, &b"packed-refs"[..]);
    pair.shown
        .rename((root, b"packed-refs.new"), to, 0)
        .unwrap();
    pair.shown.unlink(root, b"packed-refs.lock").unwrap();
    // git prunes the loose file that it has read.
    let heads = pair.dir("refs/heads");
    pair.shown.unlink(heads, b"moved").unwrap();
    let own = parse(&fs::read(pair.own("packed-refs")).unwrap()).0;
    assert!(own.is_empty(), "{own:?}");
    assert_eq!(pair.read("refs/heads/moved").unwrap(), "6".repeat(40));
    let seen = pair.read("packed-refs").unwrap();
    assert!(seen.contains(&now.concat()), "{seen}");
}

#[test]
fn the_forks_own_packed_ref_wins_over_a_lent_loose_one() {
    let pair = Pair::new(|own, main| {
        fs::write(own.join("packed-refs"), line('1', "refs/heads/main")).unwrap();
        fs::write(main.join("refs/heads/main"), "2".repeat(40)).unwrap();
    });
    assert_eq!(pair.read("refs/heads/main"), None);
    assert!(
        pair.read("packed-refs")
            .unwrap()
            .contains(&line('1', "refs/heads/main"))
    );
}

#[test]
fn a_branch_that_head_goes_to_becomes_the_forks_own() {
    let pair =
        Pair::new(|_, main| fs::write(main.join("refs/heads/main"), "a".repeat(40)).unwrap());
    pair.write("", "HEAD", "ref: refs/heads/main\n");
    let own = fs::read_to_string(pair.own("refs/heads/main")).unwrap();
    assert_eq!(own.trim_end(), "a".repeat(40));
}

#[test]
fn a_lock_is_to_be_had_when_the_kernel_knows_what_it_protects() {
    let pair = Pair::new(|own, _| {
        fs::write(own.join("refs/heads/mine"), "old").unwrap();
    });
    let told = Arc::new(AtomicUsize::new(0));
    let counted = told.clone();
    pair.shown.set_callbacks(Callbacks {
        observer: Some(Arc::new(move |change| {
            if change == GitChange::Outdated {
                counted.fetch_add(1, Ordering::SeqCst);
            }
        })),
        ..Callbacks::default()
    });
    let heads = pair.dir("refs/heads");
    let lock = |name: &[u8]| {
        let made = pair.shown.mknod(ME, heads, name, 0o644);
        if made.is_ok() {
            pair.shown.unlink(heads, name).unwrap();
        }
        made.map(drop).map_err(|error| error.raw_os_error())
    };
    assert_eq!(pair.read("refs/heads/mine").unwrap(), "old");
    assert_eq!(pair.read("refs/heads/none"), None);
    assert_eq!(lock(b"mine.lock"), Ok(()));
    fs::write(pair.own("new"), "new").unwrap();
    fs::rename(pair.own("new"), pair.own("refs/heads/mine")).unwrap();
    fs::write(pair.own("refs/heads/none"), "made").unwrap();
    assert_eq!(lock(b"mine.lock"), Err(Some(libc::EEXIST)));
    assert_eq!(told.load(Ordering::SeqCst), 1);
    // The kernel asks each time for what the main repository may have.
    for name in [&b"none.lock"[..], b"other.lock"] {
        assert_eq!(lock(name), Ok(()));
    }
    // Nor while the kernel is being told.
    pair.shown.resync(|changes| {
        assert!(!changes.is_empty());
        assert_eq!(lock(b"mine.lock"), Err(Some(libc::EEXIST)));
    });
    assert_eq!(lock(b"mine.lock"), Ok(()));
}

#[test]
fn an_open_file_outlives_its_name_and_changes_on_the_host_are_told() {
    let pair = Pair::new(|own, _| {
        fs::write(own.join("index"), "old").unwrap();
        fs::write(own.join("objects/ab/cd"), "blob").unwrap();
    });
    let index = pair.find("index").unwrap().unwrap();
    assert_eq!(pair.read("MERGE_HEAD"), None);
    fs::write(pair.own("index.new"), "new").unwrap();
    fs::rename(pair.own("index.new"), pair.own("index")).unwrap();
    fs::write(pair.own("MERGE_HEAD"), "id").unwrap();
    let mut told = pair.resync();
    told.sort();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(
        told[0].contains("MERGE_HEAD") && told[1].contains("index"),
        "{told:?}"
    );
    let mut buffer = [0; 8];
    let count = pair.shown.read(index, 0, &mut buffer).unwrap();
    assert_eq!(&buffer[..count], b"old");
    assert_eq!(pair.read("index").unwrap(), "new");
    assert!(pair.resync().is_empty());
    let object = pair.find("objects/ab/cd").unwrap().unwrap();
    assert_eq!(pair.shown.remove(b"objects/ab/cd").unwrap().len(), 1);
    let count = pair.shown.read(object, 0, &mut buffer).unwrap();
    assert_eq!(&buffer[..count], b"blob");
    assert_eq!(pair.read("objects/ab/cd"), None);
}

#[test]
fn a_lent_file_that_was_found_outlives_its_removal_in_the_main_repository() {
    let pair = Pair::new(|_, main| {
        fs::create_dir_all(main.join("objects/pack")).unwrap();
        fs::write(main.join("objects/pack/p.pack"), "pack").unwrap();
        fs::write(main.join("objects/ab/cd"), "blob").unwrap();
        fs::write(main.join("packed-refs"), line('1', "refs/heads/a")).unwrap();
    });
    let pack = pair.find("tine/objects/pack/p.pack").unwrap().unwrap();
    let object = pair.find("tine/objects/ab/cd").unwrap().unwrap();
    let refs = pair.find("packed-refs").unwrap().unwrap();
    for path in ["objects/pack/p.pack", "objects/ab/cd", "packed-refs"] {
        fs::remove_file(pair.main(path)).unwrap();
    }
    let mut buffer = [0; 64];
    for (ino, content) in [(pack, "pack"), (object, "blob")] {
        let count = pair.shown.read(ino, 0, &mut buffer).unwrap();
        assert_eq!(&buffer[..count], content.as_bytes());
    }
    assert!(pair.shown.read(refs, 0, &mut buffer).unwrap() > 0);
    assert_eq!(pair.read("tine/objects/ab/cd"), None);
}

#[test]
fn the_time_of_a_directory_tells_of_changes_in_the_lent_one() {
    let pair = Pair::new(|_, _| {});
    let time = || {
        let dir = pair.dir("refs/heads");
        pair.shown.getattr(dir).unwrap().0.mtime
    };
    let mut last = time();
    for n in 0..50 {
        fs::write(pair.main(&format!("refs/heads/b{n}")), "1\n").unwrap();
        let now = time();
        assert_ne!(now, last);
        last = now;
    }
}

#[test]
fn the_observer_hears_of_refs_and_the_index_and_of_no_lock() {
    let pair = Pair::new(|_, _| {});
    let heard = Arc::new(AtomicUsize::new(0));
    let counted = heard.clone();
    pair.shown.set_callbacks(Callbacks {
        observer: Some(Arc::new(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
        })),
        ..Callbacks::default()
    });
    pair.write("refs/heads", "mine", "1\n");
    assert_eq!(heard.load(Ordering::Relaxed), 1);
    pair.write("", "index", "x");
    assert_eq!(heard.load(Ordering::Relaxed), 2);
    pair.write("", "COMMIT_EDITMSG", "x");
    assert_eq!(heard.load(Ordering::Relaxed), 2);
    let top = pair.shown.root();
    pair.shown.mkdir(ME, top, b"worktrees", 0o755).unwrap();
    let worktrees = pair.dir("worktrees");
    pair.shown.mkdir(ME, worktrees, b"one", 0o755).unwrap();
    pair.write("worktrees/one", "index", "x");
    assert_eq!(heard.load(Ordering::Relaxed), 2);
    pair.write("worktrees/one", "HEAD", "1\n");
    assert_eq!(heard.load(Ordering::Relaxed), 3);
}

#[test]
fn what_is_parsed_is_written_again() {
    let text = [
        line('1', "refs/heads/a"),
        line('2', "refs/tags/v1"),
        format!("^{}\n", "3".repeat(40)),
    ];
    let (refs, _) = parse(text.concat().as_bytes());
    let merged = format_merged(std::iter::empty(), &refs);
    assert!(String::from_utf8(merged).unwrap().ends_with(&text.concat()));
}

/// A program that makes many files and directories must not take all descriptors of the daemon.
#[test]
fn few_of_many_files_and_directories_stay_open() {
    let pair = Pair::new(|_, _| {});
    let count = 2 * nodes::MAX_OPEN;
    for n in 0..count {
        let refs = pair.dir("refs/heads");
        let name = format!("d{n}");
        pair.shown
            .mkdir(ME, refs, name.as_bytes(), 0o040_755)
            .unwrap();
        pair.write(&format!("refs/heads/d{n}"), "b", &format!("{n}\n"));
    }
    assert!(open_below(pair.place.path()) < 3 * nodes::MAX_OPEN);
    // The kernel knows them all the same.
    for n in [0, 1, count - 1] {
        assert_eq!(
            pair.read(&format!("refs/heads/d{n}/b")).unwrap(),
            format!("{n}\n")
        );
    }
    // One that was closed is renamed with its directory, and removed.
    let refs = pair.dir("refs/heads");
    pair.shown
        .rename((refs, b"d0"), (refs, b"moved"), 0)
        .unwrap();
    assert_eq!(pair.read("refs/heads/moved/b").unwrap(), "0\n");
    pair.shown.unlink(pair.dir("refs/heads/d1"), b"b").unwrap();
    pair.shown.rmdir(refs, b"d1").unwrap();
    assert_eq!(pair.find("refs/heads/d1").unwrap(), None);
    // Another directory on the host in the place of one that was closed.
    fs::rename(pair.own("refs/heads/d2"), pair.own("refs/heads/old")).unwrap();
    fs::create_dir(pair.own("refs/heads/d2")).unwrap();
    fs::write(pair.own("refs/heads/d2/c"), "new\n").unwrap();
    pair.resync();
    assert_eq!(pair.read("refs/heads/d2/c").unwrap(), "new\n");
}

/// Returns the number of files below `dir` that this process has open.
fn open_below(dir: &Path) -> usize {
    let open = fs::read_dir("/proc/self/fd").unwrap();
    open.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok())
        .filter(|target| target.starts_with(dir))
        .count()
}
