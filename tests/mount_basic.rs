//! A fork through the real kernel: what programs do with files, and what a mount does when it ends.

mod support;

use std::ffi::CString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use support::{
    TestFork, TestRepo, mounts_beneath, path_text, require_fuse, require_program, run_with_timeout,
    skip, test_name, transport, wait_until,
};
use tine::fuse::{FuseMount, MountError, MountOptions, UnmountMode, users_of};
use tine::path::RepoPath;
use tine::store::MountSettings;
use tine::workspace::Caller;

const PATIENCE: Duration = Duration::from_secs(30);

fn path(text: &str) -> RepoPath {
    RepoPath::parse(text).expect("a test's path is valid")
}

/// Names in a directory, sorted.
fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// How often the kernel asked for `operation` so far.
fn requests(fork: &TestFork, operation: &str) -> u64 {
    let counters = fork.mounted_at().expect("the fork is mounted").counters();
    let counter = counters.iter().find(|(name, _)| *name == operation);
    counter.expect("every operation has a counter").1
}

fn all_requests(fork: &TestFork) -> Vec<(&'static str, u64)> {
    fork.mounted_at().expect("the fork is mounted").counters()
}

/// The errno that a libc call left behind, or 0.
fn errno_of(result: impl Into<i64>) -> i32 {
    if result.into() < 0 {
        std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
    } else {
        0
    }
}

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("a test's path holds no NUL")
}

#[test]
fn the_base_is_seen_as_a_checkout() {
    require_fuse!();
    let repo = TestRepo::new();
    let fork = TestFork::mounted(&repo, "one");
    let root = fork.path();
    assert_eq!(
        fs::read(root.join("README.md")).unwrap(),
        fs::read(repo.dir().join("README.md")).unwrap()
    );
    assert_eq!(
        fs::read(root.join("data/large.bin")).unwrap(),
        fs::read(repo.dir().join("data/large.bin")).unwrap()
    );
    assert_eq!(fs::read(root.join("docs/empty")).unwrap(), b"");
    assert_eq!(
        fs::read_link(root.join("link")).unwrap(),
        Path::new("README.md")
    );
    assert_eq!(
        fs::read_link(root.join("dangling")).unwrap(),
        Path::new("nowhere")
    );
    assert_eq!(
        fs::read(root.join("docs/up/main.rs")).unwrap(),
        fs::read(repo.dir().join("src/main.rs")).unwrap()
    );
    assert_eq!(
        fs::metadata(root.join("run.sh")).unwrap().mode() & 0o777,
        0o755
    );
    assert_eq!(
        fs::metadata(root.join("README.md")).unwrap().mode() & 0o777,
        0o644
    );
    let mut expected = names(repo.dir());
    expected.retain(|name| name != ".git");
    let mut seen = names(root);
    seen.retain(|name| name != ".git");
    assert_eq!(seen, expected);
    let output = run_with_timeout(&mut Command::new(root.join("run.sh")));
    assert_eq!(output.stdout, b"ran\n");
}

#[test]
fn files_directories_and_links_come_move_and_go() {
    require_fuse!();
    let repo = TestRepo::new();
    let fork = TestFork::mounted(&repo, "one");
    let root = fork.path();
    fs::create_dir(root.join("new")).unwrap();
    fs::write(root.join("new/a"), "first").unwrap();
    fs::write(root.join("new/a"), "2nd").unwrap();
    assert_eq!(fs::read(root.join("new/a")).unwrap(), b"2nd");

    fs::rename(root.join("new/a"), root.join("b")).unwrap();
    assert_eq!(fs::read(root.join("b")).unwrap(), b"2nd");
    assert_eq!(
        fs::metadata(root.join("new/a")).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    fs::rename(root.join("b"), root.join("README.md")).unwrap();
    assert_eq!(fs::read(root.join("README.md")).unwrap(), b"2nd");
    fs::rename(root.join("src"), root.join("moved")).unwrap();
    assert_eq!(
        fs::read(root.join("moved/deep/er/still/leaf.txt")).unwrap(),
        b"leaf\n"
    );
    assert!(!root.join("src").exists());

    fs::hard_link(root.join("moved/main.rs"), root.join("twin")).unwrap();
    assert_eq!(fs::metadata(root.join("twin")).unwrap().nlink(), 2);
    assert_eq!(
        fs::metadata(root.join("twin")).unwrap().ino(),
        fs::metadata(root.join("moved/main.rs")).unwrap().ino()
    );
    fs::write(root.join("twin"), "shared").unwrap();
    assert_eq!(fs::read(root.join("moved/main.rs")).unwrap(), b"shared");
    fs::remove_file(root.join("twin")).unwrap();
    assert_eq!(fs::metadata(root.join("moved/main.rs")).unwrap().nlink(), 1);

    symlink("../run.sh", root.join("new/to")).unwrap();
    assert_eq!(
        fs::read_link(root.join("new/to")).unwrap(),
        Path::new("../run.sh")
    );
    assert_eq!(
        fs::remove_dir(root.join("new")).unwrap_err().kind(),
        ErrorKind::DirectoryNotEmpty
    );
    fs::remove_file(root.join("new/to")).unwrap();
    fs::remove_dir(root.join("new")).unwrap();
    assert!(!root.join("new").exists());
    // The origin's checkout saw nothing of it.
    assert_eq!(repo.git(&["status", "--porcelain"]), "");
}

#[test]
fn the_ways_of_opening_work_without_open_requests() {
    require_fuse!();
    let repo = TestRepo::new();
    let fork = TestFork::mounted(&repo, "one");
    let root = fork.path();
    // A file that its maker may write although its mode says that nobody may.
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o444)
        .open(root.join("read-only"))
        .unwrap();
    file.write_all(b"written").unwrap();
    assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o444);
    drop(file);
    assert_eq!(fs::read(root.join("read-only")).unwrap(), b"written");

    let again = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(root.join("read-only"));
    assert_eq!(again.unwrap_err().kind(), ErrorKind::AlreadyExists);
    let base = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(root.join("README.md"));
    assert_eq!(base.unwrap_err().kind(), ErrorKind::AlreadyExists);

    // O_TRUNC on a file of the base, with nothing written afterwards.
    OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(root.join("README.md"))
        .unwrap();
    assert_eq!(fs::read(root.join("README.md")).unwrap(), b"");
    assert_eq!(fs::metadata(root.join("README.md")).unwrap().len(), 0);
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(root.join("docs/guide.md"))
        .unwrap();
    assert_eq!(file.metadata().unwrap().len(), 0);

    let nofollow = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW)
        .open(root.join("link"));
    assert_eq!(nofollow.unwrap_err().raw_os_error(), Some(libc::ELOOP));
    let directory = OpenOptions::new().write(true).open(root.join("src"));
    assert_eq!(directory.unwrap_err().raw_os_error(), Some(libc::EISDIR));
    let no_directory = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECTORY)
        .open(root.join("run.sh"));
    assert_eq!(
        no_directory.unwrap_err().raw_os_error(),
        Some(libc::ENOTDIR)
    );
    let nameless = OpenOptions::new()
        .write(true)
        .custom_flags(libc::O_TMPFILE)
        .open(root);
    assert_eq!(nameless.unwrap_err().raw_os_error(), Some(libc::EOPNOTSUPP));

    assert_eq!(
        requests(&fork, "create"),
        1,
        "the kernel asked for create again"
    );
}

#[test]
fn a_fork_without_any_file_is_mounted() {
    require_fuse!();
    let repo = TestRepo::unborn();
    repo.git(&["commit", "-q", "--allow-empty", "-m", "empty"]);
    let fork = TestFork::mounted(&repo, "one");
    assert_eq!(names(fork.path()), [".git"]);
    fork.workspace()
        .remove_path(Caller::ROOT, &path(".git"))
        .unwrap();
    assert_eq!(names(fork.path()), [""; 0]);
    fs::write(fork.path().join("first"), "1").unwrap();
    assert_eq!(fs::read(fork.path().join("first")).unwrap(), b"1");
    assert_eq!(requests(&fork, "open"), 1);
}

#[test]
fn the_umask_is_applied_once() {
    require_fuse!();
    let repo = TestRepo::new();
    let fork = TestFork::mounted(&repo, "one");
    repo.sh_in(
        fork.path(),
        "umask 027; mkdir d; : > f; mkfifo p; mkdir -m 1777 sticky",
    );
    let mode = |name: &str| fs::symlink_metadata(fork.path().join(name)).unwrap().mode() & 0o7777;
    assert_eq!(
        (mode("d"), mode("f"), mode("p"), mode("sticky")),
        (0o750, 0o640, 0o640, 0o1777)
    );
}

#[test]
fn an_unlinked_file_is_freed_when_it_is_closed() {
    require_fuse!();
    let repo = TestRepo::new();
    let fork = TestFork::mounted(&repo, "one");
    // The root directory is in the layer from its first change on.
    fs::write(fork.path().join("other"), "x").unwrap();
    let nodes = || fork.workspace().stats().nodes;
    let before = nodes();
    let mut file = File::create(fork.path().join("short-lived")).unwrap();
    file.write_all(&[1; 100_000]).unwrap();
    fs::remove_file(fork.path().join("short-lived")).unwrap();
    assert_eq!(nodes(), before + 1);
    drop(file);
    wait_until("the kernel forgets the node", PATIENCE, || {
        nodes() == before
    });
}

#[test]
fn base_directories_are_removed_with_rm() {
    require_fuse!();
    let repo = TestRepo::new();
    let fork = TestFork::mounted(&repo, "one");
    let output = run_with_timeout(
        Command::new("rm")
            .args(["-rf", "src", "docs"])
            .current_dir(fork.path()),
    );
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(!fork.path().join("src").exists());
    fs::create_dir(fork.path().join("src")).unwrap();
    assert_eq!(names(&fork.path().join("src")), [""; 0]);
}

#[test]
fn extended_attributes_keep_to_the_size_protocol() {
    require_fuse!();
    let repo = TestRepo::new();
    let fork = TestFork::mounted(&repo, "one");
    let file = c_path(&fork.path().join("README.md"));
    let name = c"user.comment";
    // SAFETY (all calls below): strings are NUL-terminated, buffers as long as is said.
    let set = |value: &[u8], flags| unsafe {
        errno_of(libc::setxattr(
            file.as_ptr(),
            name.as_ptr(),
            value.as_ptr().cast(),
            value.len(),
            flags,
        ))
    };
    let get = |buffer: &mut [u8]| unsafe {
        libc::getxattr(
            file.as_ptr(),
            name.as_ptr(),
            buffer.as_mut_ptr().cast(),
            buffer.len(),
        )
    };
    assert_eq!(errno_of(get(&mut []) as i64), libc::ENODATA);
    assert_eq!(set(b"five!", libc::XATTR_REPLACE), libc::ENODATA);
    assert_eq!(set(b"five!", libc::XATTR_CREATE), 0);
    assert_eq!(set(b"five!", libc::XATTR_CREATE), libc::EEXIST);
    assert_eq!(get(&mut []), 5);
    assert_eq!(errno_of(get(&mut [0; 4]) as i64), libc::ERANGE);
    let mut buffer = [0; 5];
    assert_eq!((get(&mut buffer), &buffer), (5, b"five!"));
    let mut list = [0u8; 64];
    let len = unsafe { libc::listxattr(file.as_ptr(), list.as_mut_ptr().cast(), list.len()) };
    assert_eq!(&list[..len as usize], b"user.comment\0");
    let removed = unsafe { libc::removexattr(file.as_ptr(), name.as_ptr()) };
    assert_eq!(errno_of(removed), 0);
    assert_eq!(errno_of(get(&mut []) as i64), libc::ENODATA);
}

/// A user who is not root, and mounts of who runs the test.
#[test]
fn permissions_hold_for_those_who_are_not_root() {
    require_fuse!();
    require_program!("setpriv");
    let repo = TestRepo::new();
    let fork = TestFork::new(&repo, "one");
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    // The test's own directory must not be what keeps the other user out.
    for dir in [repo.root(), fork.path().parent().unwrap()] {
        fs::create_dir_all(dir).unwrap();
        fs::set_permissions(dir, Permissions::from_mode(0o755)).unwrap();
    }
    let as_user = |script: &str| {
        let mut command = match is_root {
            true => Command::new("setpriv"),
            false => Command::new("env"),
        };
        if is_root {
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        }
        let output = run_with_timeout(command.args(["sh", "-c", script]).env("DIR", fork.path()));
        (
            output.status.success(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let mount = |allow_other| {
        let options = MountOptions {
            dir: fork.path().to_owned(),
            name: "one".into(),
            settings: MountSettings {
                allow_other,
                ..MountSettings::default()
            },
            transport: transport(),
            guarded: false,
        };
        FuseMount::start(
            Arc::clone(fork.workspace()),
            None,
            &options,
            Box::new(|| {}),
        )
        .unwrap()
    };

    if is_root {
        let private = mount(false);
        let (entered, message) = as_user(r#"ls "$DIR""#);
        assert!(
            !entered && message.contains("Permission denied"),
            "{message}"
        );
        private.unmount(UnmountMode::Clean).unwrap();
    }
    let shared = mount(is_root);
    let file = |name: &str, mode| {
        let file = fork.path().join(name);
        fs::write(&file, "text").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        file
    };
    let sealed = file("sealed", 0o444);
    let set_user_id = file("set-user-id", 0o4777);
    let also = file("also", 0o6777);
    let (written, message) = as_user(r#"cat "$DIR/sealed" && echo more >> "$DIR/sealed""#);
    assert!(
        !written && message.contains("Permission denied"),
        "{message}"
    );
    assert_eq!(fs::read(sealed).unwrap(), b"text");
    // Who may write a program with set-user-id does not get to run it as its owner.
    let (written, message) = as_user(r#"echo more >> "$DIR/set-user-id" && : > "$DIR/also""#);
    assert!(written, "{message}");
    assert_eq!(fs::metadata(set_user_id).unwrap().mode() & 0o7777, 0o777);
    assert_eq!(fs::metadata(also).unwrap().mode() & 0o7777, 0o777);
    for how in [
        "--length 100",
        "--punch-hole --length 2",
        "--zero-range --length 2",
    ] {
        let program = file("program", 0o6777);
        let (done, message) = as_user(&format!(r#"fallocate {how} "$DIR/program""#));
        assert!(done, "{message}");
        assert_eq!(
            fs::metadata(program).unwrap().mode() & 0o7777,
            0o777,
            "{how}"
        );
    }
    shared.unmount(UnmountMode::Clean).unwrap();
}

#[test]
fn a_warm_file_is_opened_and_read_without_a_request() {
    require_fuse!();
    let repo = TestRepo::new();
    let fork = TestFork::mounted(&repo, "one");
    let look = || {
        assert_eq!(
            names(&fork.path().join("docs")),
            ["empty", "guide.md", "up"]
        );
        assert_eq!(
            fs::read(fork.path().join("docs/guide.md")).unwrap(),
            b"one\ntwo\nthree\n"
        );
        assert!(!fork.path().join("docs/missing").exists());
        assert_eq!(
            fs::read_link(fork.path().join("docs/up")).unwrap(),
            Path::new("../src")
        );
    };
    // Twice: reading something makes the kernel doubt its access time, so that the next stat asks
    // once more.
    look();
    look();
    let before = all_requests(&fork);
    look();
    assert_eq!(all_requests(&fork), before);
    assert_eq!(
        (requests(&fork, "open"), requests(&fork, "opendir")),
        (1, 1)
    );
}

#[test]
fn changes_by_path_are_seen_at_once() {
    require_fuse!();
    let repo = TestRepo::new();
    let fork = TestFork::mounted(&repo, "one");
    let root = fork.path();
    let workspace = fork.workspace();
    let write = |name: &str, content: &[u8]| {
        workspace
            .write_path(Caller::ROOT, &path(name), content)
            .unwrap()
    };
    let remove = |name: &str| workspace.remove_path(Caller::ROOT, &path(name)).unwrap();
    let held = File::open(root.join("docs/guide.md")).unwrap();
    for round in 0..50u8 {
        // Everything is in the kernel's caches, the missing name too.
        assert!(!root.join("docs/new").exists());
        let listing = names(&root.join("docs"));
        assert!(!listing.contains(&"new".to_owned()));

        write("docs/new", &[round]);
        assert_eq!(fs::read(root.join("docs/new")).unwrap(), [round]);
        assert!(names(&root.join("docs")).contains(&"new".to_owned()));

        let longer = vec![b'a' + round % 26; 100 + usize::from(round)];
        write("docs/guide.md", &longer);
        assert_eq!(
            fs::metadata(root.join("docs/guide.md")).unwrap().len(),
            longer.len() as u64
        );
        assert_eq!(fs::read(root.join("docs/guide.md")).unwrap(), longer);
        let mut first = [0];
        held.read_exact_at(&mut first, 0).unwrap();
        assert_eq!(first[0], longer[0]);

        remove("docs/new");
        assert!(!root.join("docs/new").exists());
        assert_eq!(names(&root.join("docs")), listing);
    }
}

#[test]
fn changes_from_both_sides_at_once_do_not_hang() {
    require_fuse!();
    let repo = TestRepo::new();
    let fork = TestFork::mounted(&repo, "one");
    let root = fork.path();
    fs::create_dir(root.join("busy")).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for worker in 0..3 {
            let stop = &stop;
            scope.spawn(move || {
                let mut round = 0u32;
                while !stop.load(Ordering::Relaxed) {
                    let name = root.join(format!("busy/k{worker}-{}", round % 7));
                    fs::write(&name, round.to_string()).unwrap();
                    let _ = fs::read(root.join(format!("busy/p{}", round % 5)));
                    let _ = fs::read_dir(root.join("busy")).unwrap().count();
                    fs::remove_file(&name).unwrap();
                    round += 1;
                }
            });
        }
        for round in 0..300u32 {
            let name = path(&format!("busy/p{}", round % 5));
            fork.workspace()
                .write_path(Caller::ROOT, &name, round.to_string().as_bytes())
                .unwrap();
            if round % 3 == 0 {
                fork.workspace().remove_path(Caller::ROOT, &name).unwrap();
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    for number in 0..5 {
        let name = format!("busy/p{number}");
        let stored = fork.workspace().read_path(&path(&name)).ok();
        assert_eq!(fs::read(root.join(&name)).ok(), stored);
    }
}

#[test]
fn what_was_written_is_there_after_remounting() {
    require_fuse!();
    let repo = TestRepo::new();
    let mut fork = TestFork::mounted(&repo, "one");
    fs::write(fork.path().join("docs/guide.md"), "changed").unwrap();
    fs::write(fork.path().join("new"), "new").unwrap();
    let number = |name: &str| fs::metadata(fork.path().join(name)).unwrap().ino();
    let before = [number("docs/guide.md"), number("new"), number("README.md")];
    fork.reopen();
    let number = |name: &str| fs::metadata(fork.path().join(name)).unwrap().ino();
    assert_eq!(
        [number("docs/guide.md"), number("new"), number("README.md")],
        before
    );
    assert_eq!(
        fs::read(fork.path().join("docs/guide.md")).unwrap(),
        b"changed"
    );
    assert_eq!(fs::read(fork.path().join("new")).unwrap(), b"new");
}

#[test]
fn a_mount_in_use_is_busy_and_then_not() {
    require_fuse!();
    let repo = TestRepo::new();
    let fork = TestFork::mounted(&repo, "one");
    let mount = fork.mounted_at().unwrap();
    let mut user = Command::new("sleep")
        .arg("600")
        .current_dir(fork.path().join("src"))
        .spawn()
        .unwrap();
    let refused = mount.unmount(UnmountMode::Clean);
    let users = users_of(fork.path());
    user.kill().unwrap();
    user.wait().unwrap();
    assert!(matches!(refused, Err(MountError::Busy(_))), "{refused:?}");
    assert_eq!(users, [(user.id(), "sleep".to_owned())]);
    assert_eq!(fs::read(fork.path().join("docs/empty")).unwrap(), b"");
    mount.unmount(UnmountMode::Clean).unwrap();
    assert_eq!(names(fork.path()), [""; 0]);
}

/// Whoever makes a mount namespace has a copy of every mount there, and may never look at it.
#[test]
fn a_copy_in_another_namespace_keeps_nothing_from_being_unmounted() {
    require_fuse!();
    if !nix::unistd::geteuid().is_root() {
        return skip(test_name!(), "only root can cut off a mount elsewhere");
    }
    let repo = TestRepo::new();
    let fork = TestFork::mounted(&repo, "one");
    fs::write(fork.path().join("new"), b"new").unwrap();
    let mut elsewhere = Command::new("unshare")
        .args(["--mount", "sleep", "600"])
        .spawn()
        .unwrap();
    let proc = Path::new("/proc").join(elsewhere.id().to_string());
    let copies = || fs::read_to_string(proc.join("mountinfo")).unwrap_or_default();
    let namespace = || fs::read_link(proc.join("ns/mnt")).ok();
    let ours = fs::read_link("/proc/self/ns/mnt").unwrap();
    wait_until("the namespace is there", PATIENCE, || {
        namespace().is_some_and(|theirs| theirs != ours)
    });
    let is_copied = copies().contains(path_text(fork.path()));
    let unmounted = fork.mounted_at().unwrap().unmount(UnmountMode::Clean);
    let root = proc.join("root");
    let copy = root.join(fork.path().strip_prefix("/").unwrap());
    let seen = fs::read(copy.join("new"));
    elsewhere.kill().unwrap();
    elsewhere.wait().unwrap();
    unmounted.unwrap();
    assert!(is_copied && mounts_beneath(fork.path()).is_empty());
    assert_eq!(seen.unwrap_err().kind(), ErrorKind::NotConnected);
    assert_eq!(fork.workspace().read_path(&path("new")).unwrap(), b"new");
}

/// As in a container that was given the fork, or a command at the main checkout's path.
#[test]
fn who_stands_in_another_namespace_uses_the_mount() {
    require_fuse!();
    if !nix::unistd::geteuid().is_root() {
        return skip(
            test_name!(),
            "only root can mount a directory at another place",
        );
    }
    let repo = TestRepo::new();
    let fork = TestFork::mounted(&repo, "one");
    let script = "mount --bind \"$0\" \"$1\" && cd \"$1\" && exec sleep 600";
    let mut elsewhere = Command::new("unshare")
        .args(["--mount", "sh", "-c", script])
        .args([fork.path(), repo.dir()])
        .spawn()
        .unwrap();
    let comm = format!("/proc/{}/comm", elsewhere.id());
    wait_until("it stands there", PATIENCE, || {
        fs::read_to_string(&comm).is_ok_and(|comm| comm == "sleep\n")
    });
    let mount = fork.mounted_at().unwrap();
    let refused = mount.unmount(UnmountMode::Clean);
    let users = users_of(fork.path());
    elsewhere.kill().unwrap();
    elsewhere.wait().unwrap();
    assert!(matches!(refused, Err(MountError::Busy(_))), "{refused:?}");
    assert_eq!(users, [(elsewhere.id(), "sleep".to_owned())]);
    assert_eq!(fs::read(fork.path().join("docs/empty")).unwrap(), b"");
    mount.unmount(UnmountMode::Clean).unwrap();
}

#[test]
fn unmounting_from_outside_ends_the_session_and_frees_the_place() {
    require_fuse!();
    let repo = TestRepo::new();
    let fork = TestFork::new(&repo, "one");
    let options = MountOptions {
        dir: fork.path().to_owned(),
        name: "one".into(),
        settings: MountSettings::default(),
        transport: transport(),
        guarded: false,
    };
    for round in 0..3 {
        let (tell, ended) = channel();
        let told = Box::new(move || tell.send(()).unwrap());
        let mount = FuseMount::start(Arc::clone(fork.workspace()), None, &options, told).unwrap();
        let table = fs::read_to_string("/proc/self/mounts").unwrap();
        assert!(
            table.contains("tine:one ") && table.contains(" fuse.tine rw,nosuid,nodev"),
            "{table}"
        );
        fs::write(fork.path().join("round"), round.to_string()).unwrap();
        let output = run_with_timeout(Command::new("umount").arg(fork.path()));
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        ended
            .recv_timeout(PATIENCE)
            .expect("the end of the session is told");
        assert!(mounts_beneath(fork.path()).is_empty());
        mount.unmount(UnmountMode::Clean).unwrap();
        assert!(ended.try_recv().is_err(), "it is told once");
        assert_eq!(
            fork.workspace().read_path(&path("round")).unwrap(),
            round.to_string().as_bytes()
        );
    }
}
