//! Telling programs of changes: inotify, fanotify, poll.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, FallocateFlags, RenameFlags, fallocate, renameat2};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::fanotify::{
    EventFFlags, Fanotify, FanotifyResponse, InitFlags as FanInit, MarkFlags, MaskFlags, Response,
};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::select::{FdSet, select};
use nix::sys::time::{TimeVal, TimeValLike};
use nix::unistd::Pid;
use tine::path::RepoPath;
use tine::workspace::Caller;

use crate::compare::{Child, Place, compare, in_child};
use crate::support::{TestFork, TestRepo, require_fuse, require_root, test_name};

fn inotify(watched: &[&Path]) -> Inotify {
    let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).unwrap();
    for path in watched {
        inotify
            .add_watch(*path, AddWatchFlags::IN_ALL_EVENTS)
            .unwrap();
    }
    inotify
}

/// Every event so far: the watch, what happened, to which name, and which two belong together.
fn events(inotify: &Inotify) -> Vec<String> {
    let mut cookies = BTreeMap::new();
    let mut told = Vec::new();
    loop {
        match inotify.read_events() {
            Err(Errno::EAGAIN) => return told,
            events => {
                for event in events.unwrap() {
                    let fresh = cookies.len();
                    let cookie = match event.cookie {
                        0 => String::new(),
                        cookie => format!(" #{}", cookies.entry(cookie).or_insert(fresh)),
                    };
                    let name = event.name.unwrap_or_default();
                    told.push(format!("{:?} {:?} {name:?}{cookie}", event.wd, event.mask));
                }
            }
        }
    }
}

/// What a program may do to a directory and its files.
fn work_in(dir: &Path, other: &Path) {
    let at = |name: &str| dir.join(name);
    fs::write(at("new"), "content").unwrap();
    let file = OpenOptions::new().append(true).open(at("new")).unwrap();
    (&file).write_all(b"more").unwrap();
    file.set_len(3).unwrap();
    fallocate(&file, FallocateFlags::empty(), 0, 100).unwrap();
    drop(file);
    fs::read(at("new")).unwrap();
    fs::set_permissions(at("new"), Permissions::from_mode(0o600)).unwrap();
    fs::create_dir(at("sub")).unwrap();
    symlink("new", at("link")).unwrap();
    fs::hard_link(at("new"), at("twin")).unwrap();
    fs::rename(at("new"), at("moved")).unwrap();
    fs::rename(at("twin"), other.join("away")).unwrap();
    fs::write(at("replaced"), "x").unwrap();
    fs::rename(at("moved"), at("replaced")).unwrap();
    renameat2(
        AT_FDCWD,
        &at("replaced"),
        AT_FDCWD,
        &at("link"),
        RenameFlags::RENAME_EXCHANGE,
    )
    .unwrap();
    fs::read_dir(dir).unwrap().count();
    fs::remove_file(at("link")).unwrap();
    fs::remove_file(at("replaced")).unwrap();
    fs::remove_dir(at("sub")).unwrap();
    fs::remove_file(other.join("away")).unwrap();
    // What fails is no change.
    fs::remove_dir(at("sub")).unwrap_err();
    fs::rename(at("missing"), at("x")).unwrap_err();
}

#[test]
fn inotify_tells_of_what_other_processes_do() {
    compare(test_name!(), &[], |place| {
        fs::create_dir(place.at("made")).unwrap();
        fs::create_dir(place.at("other")).unwrap();
        for name in ["made", "docs"] {
            let (dir, other) = (place.at(name), place.at("other"));
            let watch = inotify(&[&dir, &other]);
            place.note(
                format!("{name}: the other's end"),
                in_child(|| {
                    work_in(&dir, &other);
                    0
                }),
            );
            place.note(name, events(&watch));
        }
        // A file and a directory that go while they are watched and in use.
        for name in ["docs/guide.md", "made"] {
            let path = place.at(name);
            let watch = inotify(&[&path]);
            let end = in_child(|| {
                let _held = File::open(&path).unwrap();
                let gone = fs::remove_file(&path).or_else(|_| fs::remove_dir(&path));
                i32::from(gone.is_err())
            });
            place.note(format!("{name} is removed"), end);
            place.note(format!("{name} goes"), events(&watch));
        }
    });
}

#[test]
fn inotify_tells_of_what_is_copied_and_mapped() {
    compare(test_name!(), &[], |place| {
        let dir = place.at("src");
        let watch = inotify(&[&dir]);
        let end = in_child(|| {
            fs::copy(place.at("README.md"), dir.join("copy")).unwrap();
            let file = place.open("src/copy");
            let mut mapping = crate::mapping::Mapping::shared(&file, 10);
            mapping.bytes()[0] = b'm';
            mapping.sync();
            0
        });
        place.note("the other's end", end);
        place.note("told", events(&watch));
        let watch = inotify(&[&dir.join("main.rs")]);
        fs::write(dir.join("new"), "new").unwrap();
        fs::rename(dir.join("new"), dir.join("main.rs")).unwrap();
        place.note("replaced", events(&watch));
    });
}

/// What tine itself changes under a mount shows at once, and raises the events that a program's
/// calls would.
#[test]
fn a_change_of_tines_own_is_seen_and_told() {
    require_fuse!();
    let repo = TestRepo::new();
    let fork = TestFork::mounted(&repo, "one");
    let path = |text: &str| RepoPath::parse(text).unwrap();
    let watch = inotify(&[&fork.path().join("docs")]);
    fs::read(fork.path().join("docs/guide.md")).unwrap();
    events(&watch);
    fork.workspace()
        .write_path(Caller::ROOT, &path("docs/guide.md"), b"changed")
        .unwrap();
    fork.workspace()
        .write_path(Caller::ROOT, &path("docs/new"), b"new")
        .unwrap();
    fork.workspace()
        .remove_path(Caller::ROOT, &path("docs/empty"))
        .unwrap();
    let told = events(&watch);
    let of_files = told.iter().filter(|event| !event.contains("IN_ISDIR"));
    let of_files: Vec<&str> = of_files.map(String::as_str).collect();
    let expected = [
        "WatchDescriptor { wd: 1 } AddWatchFlags(IN_OPEN) \"guide.md\"",
        "WatchDescriptor { wd: 1 } AddWatchFlags(IN_MODIFY) \"guide.md\"",
        "WatchDescriptor { wd: 1 } AddWatchFlags(IN_CLOSE_WRITE) \"guide.md\"",
        "WatchDescriptor { wd: 1 } AddWatchFlags(IN_CREATE) \"new\"",
        "WatchDescriptor { wd: 1 } AddWatchFlags(IN_OPEN) \"new\"",
        "WatchDescriptor { wd: 1 } AddWatchFlags(IN_MODIFY) \"new\"",
        "WatchDescriptor { wd: 1 } AddWatchFlags(IN_CLOSE_WRITE) \"new\"",
        "WatchDescriptor { wd: 1 } AddWatchFlags(IN_DELETE) \"empty\"",
    ];
    assert_eq!(of_files, expected);
    assert_eq!(
        fs::read(fork.path().join("docs/guide.md")).unwrap(),
        b"changed"
    );
    assert_eq!(fs::read(fork.path().join("docs/new")).unwrap(), b"new");
    assert!(!fork.path().join("docs/empty").exists());
    // A commit changes nothing that is seen, and what is watched stays watched.
    events(&watch);
    fork.commit("all").unwrap();
    let told = events(&watch);
    assert!(told.is_empty(), "{told:?}");
    fs::write(fork.path().join("docs/guide.md"), "again").unwrap();
    assert!(!events(&watch).is_empty());
}

fn fanotify(init: FanInit) -> Result<Fanotify, Errno> {
    Fanotify::init(
        init | FanInit::FAN_CLOEXEC | FanInit::FAN_NONBLOCK,
        EventFFlags::O_RDONLY,
    )
}

/// All that happened so far by this process. The kernel merges what follows each other closely.
fn fan_events(group: &Fanotify, of: Pid) -> MaskFlags {
    let mut told = MaskFlags::empty();
    loop {
        match group.read_events() {
            Err(Errno::EAGAIN) => return told,
            events => {
                let events = events.unwrap();
                let by_it = events.iter().filter(|event| event.pid() == of.as_raw());
                told |= by_it.map(|event| event.mask()).collect();
            }
        }
    }
}

#[test]
fn fanotify_tells_of_what_other_processes_do() {
    require_root!("watch what other processes do");
    compare(test_name!(), &[], |place| {
        let all = MaskFlags::FAN_OPEN
            | MaskFlags::FAN_MODIFY
            | MaskFlags::FAN_CLOSE_WRITE
            | MaskFlags::FAN_CLOSE_NOWRITE;
        let children = all | MaskFlags::FAN_EVENT_ON_CHILD;
        let path = place.at("docs/guide.md");
        for (what, mark, mask, at) in [
            ("a file", MarkFlags::empty(), all, path.clone()),
            (
                "a directory",
                MarkFlags::empty(),
                children,
                place.at("docs"),
            ),
            (
                "a mount",
                MarkFlags::FAN_MARK_MOUNT,
                all,
                place.dir().to_owned(),
            ),
            (
                "a file system",
                MarkFlags::FAN_MARK_FILESYSTEM,
                all,
                place.dir().to_owned(),
            ),
        ] {
            let group = fanotify(FanInit::FAN_CLASS_NOTIF).unwrap();
            place.result(
                format!("mark {what}"),
                group.mark(MarkFlags::FAN_MARK_ADD | mark, mask, AT_FDCWD, Some(&at)),
            );
            let worker = Child::start(|| {
                let mut file = OpenOptions::new().append(true).open(&path).unwrap();
                file.write_all(b"more").unwrap();
                drop(file);
                fs::read(&path).unwrap();
                0
            });
            let pid = worker.pid();
            place.note(format!("the end, {what}"), worker.end());
            place.note(format!("told of {what}"), fan_events(&group, pid));
        }
    });
}

/// With file handles in place of descriptors, as `fsnotifywait` and watchman-like programs ask for
/// it.
#[test]
fn fanotify_reports_names_where_a_directory_is_marked() {
    require_root!("watch a whole mount");
    let differences = [
        // The kernel gives FUSE no file system id, which these two need to tell file systems apart.
        ("mark a mount", "ENODEV", "()"),
        ("mark a file system", "ENODEV", "()"),
    ];
    compare(test_name!(), &differences, |place| {
        let init = FanInit::FAN_CLASS_NOTIF | FanInit::from_bits_retain(libc::FAN_REPORT_DFID_NAME);
        let mask = MaskFlags::FAN_CREATE
            | MaskFlags::FAN_DELETE
            | MaskFlags::FAN_MOVED_FROM
            | MaskFlags::FAN_MODIFY;
        for (what, mark, mask) in [
            (
                "a directory",
                MarkFlags::empty(),
                mask | MaskFlags::FAN_EVENT_ON_CHILD,
            ),
            ("a mount", MarkFlags::FAN_MARK_MOUNT, MaskFlags::FAN_MODIFY),
            ("a file system", MarkFlags::FAN_MARK_FILESYSTEM, mask),
        ] {
            let group = fanotify(init).unwrap();
            let marked = group.mark(
                MarkFlags::FAN_MARK_ADD | mark,
                mask,
                AT_FDCWD,
                Some(&place.at("src")),
            );
            place.result(format!("mark {what}"), marked);
        }
    });
}

#[test]
fn fanotify_may_refuse_an_open() {
    require_root!("refuse an open");
    compare(test_name!(), &[], |place| {
        let group = fanotify(FanInit::FAN_CLASS_CONTENT).unwrap();
        let path = place.at("docs/guide.md");
        let marked = group.mark(
            MarkFlags::FAN_MARK_ADD,
            MaskFlags::FAN_OPEN_PERM,
            AT_FDCWD,
            Some(&path),
        );
        place.result("marked", marked);
        for response in [Response::FAN_ALLOW, Response::FAN_DENY] {
            let opener = Child::start(|| match File::open(&path) {
                Ok(_) => 0,
                Err(error) => error.raw_os_error().unwrap_or(102),
            });
            let told = poll(
                &mut [PollFd::new(group.as_fd(), PollFlags::POLLIN)],
                PollTimeout::from(30_000u16),
            );
            assert_eq!(told, Ok(1), "the group is asked");
            for event in group.read_events().unwrap() {
                group
                    .write_response(FanotifyResponse::new(event.fd().unwrap(), response))
                    .unwrap();
            }
            place.note(format!("{response:?}"), opener.end().map(Errno::from_raw));
        }
    });
}

#[test]
fn a_file_is_always_ready() {
    // The kernel has a poll operation for every FUSE file, so that epoll takes them.
    compare(
        test_name!(),
        &[("epoll", "()", "EPERM")],
        |place: &mut Place| {
            let file = place.open("README.md");
            let mut polled = [PollFd::new(
                file.as_fd(),
                PollFlags::POLLIN | PollFlags::POLLOUT | PollFlags::POLLPRI,
            )];
            place.result("poll", poll(&mut polled, PollTimeout::NONE));
            place.note("ready", polled[0].revents());
            let mut readable = FdSet::new();
            readable.insert(file.as_fd());
            let mut failed = readable;
            let ready = select(
                None,
                &mut readable,
                None,
                &mut failed,
                &mut TimeVal::seconds(5),
            );
            place.result("select", ready);
            place.note(
                "readable",
                (
                    readable.contains(file.as_fd()),
                    failed.contains(file.as_fd()),
                ),
            );
            let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
            place.result(
                "epoll",
                epoll.add(&file, EpollEvent::new(EpollFlags::EPOLLIN, 1)),
            );
            let dir = File::open(place.dir()).unwrap();
            place.result(
                "epoll a directory",
                epoll.add(&dir, EpollEvent::new(EpollFlags::EPOLLIN, 2)),
            );
            let fifo = place.at("fifo");
            nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
            let (reader, mut writer) = (
                OpenOptions::new()
                    .read(true)
                    .write(true)
                    .open(&fifo)
                    .unwrap(),
                File::create(&fifo).unwrap(),
            );
            epoll
                .add(&reader, EpollEvent::new(EpollFlags::EPOLLIN, 3))
                .unwrap();
            writer.write_all(b"through").unwrap();
            let mut polled = [PollFd::new(reader.as_fd(), PollFlags::POLLIN)];
            place.result("poll a fifo", poll(&mut polled, PollTimeout::NONE));
            let mut seen = [0; 7];
            (&reader).read_exact(&mut seen).unwrap();
            place.note("through a fifo", seen);
            place.note(
                "nothing moves its offset",
                file.read_at(&mut [0; 4], 0).unwrap(),
            );
        },
    );
}
