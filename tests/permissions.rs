//! Who may do what: access control lists, extended attributes and the bits of a mode, side by side
//! with the file system that the tests lie on.
//!
//! A script is run in an empty directory there and in one of a mount, and must say the same in
//! both.

#[path = "support/mod.rs"]
mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::command::shell;
use support::{
    OutputExt, Random, TestFork, TestRepo, Tine, is_root, require_fuse, require_program,
    require_root, run_with_timeout, soaking,
};

/// What every script begins with: `try` tells a command, what it says and its exit code; `as` runs
/// one as an ordinary user, `as_member` as one who is in the group 4000, too.
const PRELUDE: &str = r#"
try() { echo "\$ $*"; "$@" 2>&1 || echo "exit code $?"; }
as() { user=$1; shift; setpriv --reuid="$user" --regid="$user" --clear-groups "$@"; }
as_member() { user=$1; shift; setpriv --reuid="$user" --regid="$user" --groups=4000 "$@"; }
modes() { stat -c '%n %A %u %g' "$@"; }
umask 022
"#;

/// Who may enter the mount.
#[derive(Clone, Copy, PartialEq)]
enum Entry {
    OnlyRoot,
    Anybody,
}

fn fork_for(repo: &TestRepo, entry: Entry) -> TestFork {
    let mut fork = TestFork::with(repo, "one", |options| {
        options.settings.allow_other = entry == Entry::Anybody
    });
    fork.mount();
    fork
}

/// What a script says in a fresh directory.
fn said_in(dir: &Path, script: &str) -> String {
    fs::create_dir(dir).expect("the directory is new");
    // The script stands there already: who it runs commands as need not be able to reach the
    // directory from above.
    let script = format!("{PRELUDE}{script}");
    let mut command = Command::new("sh");
    command.args(["-uc", &script]).current_dir(dir);
    let output = run_with_timeout(&mut command).expect_success("the script");
    assert_eq!(output.error_text(), "", "what goes wrong outside `try`");
    output.text()
}

/// Runs a script on the host's file system and on a mount, and compares.
#[track_caller]
fn same_on_host_and_mount(entry: Entry, script: &str) {
    let repo = TestRepo::new();
    let fork = fork_for(&repo, entry);
    compare(&repo, &fork, "dir", script);
}

/// Runs a script in fresh directories called `name` on the host's file system and on a mount, and
/// compares.
#[track_caller]
fn compare(repo: &TestRepo, fork: &TestFork, name: &str, script: &str) {
    let on_host = said_in(&repo.root().join(name), script);
    let on_mount = said_in(&fork.path().join(name), script);
    for (at, (host, mount)) in on_host.lines().zip(on_mount.lines()).enumerate() {
        let before: Vec<&str> = on_host.lines().take(at).collect();
        let start = before.len().saturating_sub(12);
        assert_eq!(
            host,
            mount,
            "line {at} differs, after\n{}",
            before[start..].join("\n")
        );
    }
    assert_eq!(on_host, on_mount);
    assert!(
        on_host.lines().count() > 5,
        "the script says something: {on_host}"
    );
}

const ACLS: &str = r#"
touch plain; mkdir dir
acl() { getfacl -cnp "$@"; modes "$@"; }
try acl plain dir
# A list stands beside the mode, and the mask in its group bits.
try setfacl -m u:3000:rw,g:3001:r plain; try acl plain
for mode in 600 664 000 777 4755 2710; do try chmod "$mode" plain; try acl plain; done
try setfacl -m m::r plain; try acl plain
try setfacl -x u:3000 plain; try acl plain
try setfacl -b plain; try acl plain
# One that says no more than a mode is the mode.
try setfacl --set u::rwx,g::r-x,o::- plain; try acl plain
try getfattr -h -m - plain
# Default lists, and what is made under one.
try setfacl -d -m u:3000:rwx,g:3001:r-x,o::- dir; try acl dir
(umask 077; touch dir/file; mkdir dir/sub; mkfifo dir/fifo; ln -s nowhere dir/link)
touch dir/other; mkdir -m 700 dir/narrow; mkdir -p dir/sub/deep
try acl dir/file dir/sub dir/fifo dir/other dir/narrow dir/sub/deep
modes dir/link
try setfacl -k dir; (umask 027; touch dir/after; mkdir dir/after.d); try acl dir dir/after dir/after.d
# One without further entries.
try setfacl -d --set u::rwx,g::rw,o::r dir; (umask 077; touch dir/three; mkdir dir/three.d); try acl dir/three dir/three.d
# Where a list cannot be.
try setfacl -d -m u:3000:r plain
try setfattr -h -n system.posix_acl_access -v 0x02000000 dir/link
try getfattr -h -n system.posix_acl_access dir/link
try getfattr -h -n system.posix_acl_access dir/after
try getfattr -h -n system.posix_acl_default plain
try setfattr -x system.posix_acl_access dir/after
try setfattr -x system.posix_acl_default dir/after
for value in 0x02 0x0200000001000700ffffffff 0x03000000 \
    0x0200000001000700ffffffff02000600e803000004000500ffffffff20000400ffffffff \
    0x0200000001000700ffffffff04000500ffffffff20000400ffffffff; do
    try setfattr -n system.posix_acl_access -v "$value" plain; try acl plain
done
try setfattr -n system.other -v x plain
try setfattr -n other -v x plain
# What copies them.
try setfacl -m u:3000:rw plain; try cp -a plain plain.cp; try cp -a dir dir.cp; try acl plain.cp dir.cp dir.cp/sub
try tar --acls -cf all.tar plain dir; mkdir tar rsync; try tar --acls -C tar -xf all.tar; try acl tar/plain tar/dir tar/dir/sub
try rsync -aA plain dir rsync/; try acl rsync/plain rsync/dir rsync/dir/sub rsync/dir/file
# They go with a rename, and all names of a node have them.
try mv plain moved; try ln moved linked; try setfacl -m u:3005:r linked; try acl moved
"#;

#[test]
fn acls_are_those_of_the_host() {
    require_fuse!();
    for program in ["setfacl", "setfattr", "setpriv", "rsync"] {
        require_program!(program);
    }
    same_on_host_and_mount(Entry::OnlyRoot, ACLS);
    if is_root() {
        same_on_host_and_mount(Entry::Anybody, ACLS);
    }
}

#[test]
fn acls_decide_for_ordinary_users() {
    require_fuse!();
    require_root!("be other users");
    require_program!("setfacl");
    let script = r#"
acl() { getfacl -cnp "$@"; modes "$@"; }
chmod 755 .
echo secret > file; chmod 600 file; mkdir dir; chmod 700 dir; echo x > dir/x
try as 3000 cat file; try as 3000 ls dir
try setfacl -m u:3000:r file; try as 3000 cat file; try as 3000 sh -c 'echo more >> file'
try setfacl -m u:3000:rw file; try as 3000 sh -c 'echo more >> file'; try cat file
try chmod g-rw file; try as 3000 cat file
try chmod g+r file; try as 3000 cat file; try as 3000 sh -c 'echo more >> file'
try setfacl -x u:3000 file; try as 3000 cat file
try setfacl -m g:4000:r file; try as 3000 cat file; try as_member 3000 cat file
try setfacl -m u:3000:rx dir; try as 3000 ls dir; try as 3000 touch dir/y
try setfacl -m u:3000:rwx dir; try as 3000 touch dir/y; try as 3000 rm dir/x
try setfacl -d -m u:3001:rw dir; try as 3000 sh -c 'umask 077; echo mine > dir/z'; try acl dir/z
try setfacl -m u:3001:x dir; try as 3001 cat dir/z; try as 3001 sh -c 'echo and mine >> dir/z'; try cat dir/z
# Only the owner sets one.
try as 3001 setfacl -m u:3002:r dir/z; try as 3000 setfacl -m u:3002:r dir/z; try acl dir/z
try as 3001 chmod 777 dir/z
# Set-group-id goes when somebody who is not of the group changes the bits.
touch program; chown 3000:4000 program; chmod 2775 program; modes program
try as_member 3000 setfacl -m u:3005:r program; modes program
try as 3000 setfacl -m u:3006:r program; modes program
chmod 2775 program; try as_member 3000 chmod 2755 program; modes program
try as 3000 chmod 2750 program; modes program
"#;
    same_on_host_and_mount(Entry::Anybody, script);
}

/// Run by root; the last part needs that others may enter.
const XATTRS: &str = r#"
touch file; mkdir dir; ln -s nowhere link; mkfifo fifo; mknod null c 1 3; chmod 666 file fifo null; chmod 777 dir
all() { getfattr -h -d -m - "$@" | sort; }
for name in user.a trusted.a security.a system.a a user. trusted. security. user.$(printf %0250d 0) user.$(printf %0251d 0); do
    for at in file dir link fifo null; do
        try setfattr -h -n "$name" -v value "$at"
        try getfattr -h -n "$name" --only-values "$at"; echo
    done
done
try all file dir link fifo null
try setfattr -h -x trusted.a link; try setfattr -h -x trusted.a link; try setfattr -x user.none file
try setfattr -n user.empty file; try all file
try python3 - <<'END'
import errno, os
def told(what, *args):
    try:
        print(what.__name__, args[1:2], what(*args))
    except OSError as error:
        print(what.__name__, args[1:2], errno.errorcode[error.errno])
told(os.setxattr, 'file', 'user.a', b'x', os.XATTR_CREATE)
told(os.setxattr, 'file', 'user.b', b'x', os.XATTR_REPLACE)
told(os.setxattr, 'file', 'user.a', b'x', os.XATTR_CREATE | os.XATTR_REPLACE)
told(os.setxattr, 'file', 'user.b', b'x' * 65537)
told(os.setxattr, 'file', 'user.' + 'b' * 251, b'x')
told(os.getxattr, 'file', 'user.none')
told(os.setxattr, 'file', 'user.b', b'x' * 3000)
told(os.setxattr, 'file', 'user.b', b'')
told(os.getxattr, 'file', 'user.b')
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
buffer = ctypes.create_string_buffer(100)
os.setxattr('file', 'user.b', b'x' * 50)
for size in (0, 1, 49, 50, 51):
    print(size, libc.getxattr(b'file', b'user.b', buffer, size), errno.errorcode.get(ctypes.get_errno()))
    ctypes.set_errno(0)
print(libc.listxattr(b'file', buffer, 3), errno.errorcode.get(ctypes.get_errno()))
END
# Hard links and renames share and keep them; copies take them along.
ln file linked; mv file moved; try all linked moved; try cp -a moved copy; try all copy
"#;

const XATTRS_OF_OTHERS: &str = r#"
touch file; mkdir dir; chmod 777 . file dir; mkdir sticky; chmod 1777 sticky; ln -s nowhere link; mkfifo fifo; chmod 666 fifo
all() { getfattr -h -d -m - "$@" | sort; }
setfattr -n trusted.t -v 1 file; setfattr -n security.s -v 2 file; setfattr -n user.u -v 3 file; try all file
try as 3000 getfattr -h -d -m - file; try as 3000 getfattr -n trusted.t file
for name in user.a trusted.a security.a system.a a; do
    for at in file dir sticky link fifo; do try as 3000 setfattr -h -n "$name" -v value "$at"; done
done
try as 3000 setfattr -x trusted.t file; try as 3000 setfattr -x security.s file; try as 3000 setfattr -x user.u file
chmod 600 file; try as 3000 getfattr -n user.a file; try as 3000 setfattr -n user.a -v other file
chmod 644 file; try as 3000 getfattr -n user.a file; try as 3000 setfattr -n user.a -v other file
try all file dir sticky link fifo
"#;

#[test]
fn extended_attributes_are_those_of_the_host() {
    require_fuse!();
    require_root!("be other users");
    for program in ["setfattr", "setpriv", "python3"] {
        require_program!(program);
    }
    for entry in [Entry::OnlyRoot, Entry::Anybody] {
        same_on_host_and_mount(entry, XATTRS);
    }
    same_on_host_and_mount(Entry::Anybody, XATTRS_OF_OTHERS);
}

/// What takes the capabilities of a program's file and its set-user-id bits, and what does not.
const PRIVILEGES: &str = r#"
fresh() { rm -f p; echo text > p; chown 3000:3000 p; chmod "$1" p; setcap cap_net_raw+ep p; }
after() { try "$@"; modes p; getcap p; }
for who in "" "as 3001" "as 3000"; do
    for mode in 6777 2767; do
        echo "== $who $mode"
        fresh $mode; after $who true
        fresh $mode; after $who sh -c 'echo more >> p'
        fresh $mode; after $who sh -c ': > p'
        fresh $mode; after $who truncate -s 2 p
        fresh $mode; after $who truncate -s 5 p
        fresh $mode; after $who fallocate -l 100 p
        fresh $mode; after $who fallocate -p -l 2 p
        fresh $mode; after $who python3 -c "import os; f=os.open('p', os.O_RDWR); os.ftruncate(f, 3)"
        fresh $mode; after $who python3 -c "import os; f=os.open('p', os.O_RDWR); os.copy_file_range(f, f, 2, 0, 2)"
        fresh $mode; after $who python3 -c "import mmap, os; m=mmap.mmap(os.open('p', os.O_RDWR), 4); m[0:1]=b'T'; m.flush()"
        fresh $mode; after $who python3 -c "import os; f=os.open('p', os.O_WRONLY|os.O_SYNC); os.pwrite(f, b'x', 0)"
        fresh $mode; after $who touch p
        fresh $mode; after $who cat p
    done
done
for mode in 6777 2767 4707 6666; do
    fresh $mode; after chown 3001 p
    fresh $mode; after chgrp 3001 p
    fresh $mode; after chown 3000:3000 p
    fresh $mode; after as_member 3000 chgrp 4000 p
    fresh $mode; after as 3000 chgrp 3000 p
    fresh $mode; after chmod 755 p
    fresh $mode; after as 3000 chmod 4755 p
    fresh $mode; mv p q; mv q p; ln p l; after rm l
done
mkdir d; chmod 6777 d; chown 3000:3000 d; modes d; touch d/x; modes d; chgrp 4000 d; modes d
"#;

#[test]
fn privileges_go_when_another_could_have_changed_a_program() {
    require_fuse!();
    require_root!("be other users");
    for program in ["setcap", "setpriv", "python3", "fallocate"] {
        require_program!(program);
    }
    same_on_host_and_mount(Entry::Anybody, PRIVILEGES);
}

/// What flags are shown, kept and inherited. The host may show `e`, which says how it keeps a file.
const FLAGS: &str = r#"
trap 'chattr -Rf -ia .' EXIT
flags() { lsattr -d "$@" | awk '{ gsub("e", "-", $1); print }'; }
# Whether a command succeeds: what is refused when opening there may be refused when writing here.
does() { "$@" >/dev/null 2>&1 && echo "did $*" || echo "did not $*"; }
chmod 777 .
for flag in i a d A S; do
    echo text > file; mkdir dir
    for at in file dir; do
        try chattr +$flag $at; flags $at; try chattr -p 0 $at; try chattr +d $at; flags $at; try chattr -d $at
        try chattr -$flag $at; flags $at
    done
    try as 3000 chattr +$flag file; chown 3000 file; try as 3000 chattr +$flag file; flags file
    rm -rf file dir
done
mkdir dir; chattr +dASD dir; touch dir/file; mkdir dir/sub; mkfifo dir/fifo; touch dir/sub/file
flags dir dir/file dir/sub dir/sub/file; try lsattr dir/fifo
echo synchronous > dir/file; mv dir/file dir/other; ln dir/other dir/third; rm dir/other; truncate -s 3 dir/third; try cat dir/third
rm -r dir; touch file; mkdir dir; chattr +a dir; try chattr +D dir; flags dir; chattr -a dir; rm -r dir file

prepare() {
    chattr -Rf -ia .; rm -rf ./*
    mkdir dir; echo text > file; echo inner > dir/inner; mkdir dir/sub; touch other; chmod 4755 file
    setfattr -n user.a -v 1 file dir; chattr +$1 file dir
}
for flag in i a; do
    echo "== $flag"
    prepare $flag
    # Contents.
    try cat file dir/inner; try ls dir
    does sh -c 'echo more >> file'; does sh -c ': > file'; does truncate -s 1 file; does truncate -s 100 file
    does sh -c 'echo x | dd of=file conv=notrunc bs=1 count=1';
    try python3 -c 'import ctypes, os; c = ctypes.CDLL(None)
for mode in (0, 1, 3, 16, 17):
    try:
        refused = c.fallocate(os.open("file", os.O_WRONLY | os.O_APPEND), mode, ctypes.c_long(0), ctypes.c_long(50))
    except OSError:
        refused = -1
    print(mode, refused)'
    does python3 -c 'import os; os.copy_file_range(os.open("dir/inner", 0), os.open("file", os.O_WRONLY), 3)'
    does sh -c 'echo into >> dir/inner'; try cat dir/inner; try od -c file
    # Attributes.
    try chmod 600 file; try chown 3000 file; try chgrp 3000 dir; try touch -c -d @5 file; try touch -c file; try touch -c -a -d @5 file
    try touch -c -a file; try setfattr -n user.b -v 1 file; try setfattr -x user.a dir; try setfacl -m u:3000:r file
    try setfattr -n security.b -v 1 file; try setfattr -n trusted.b -v 1 dir; try getfattr -n user.a file
    # Names.
    try rm -f file; try rmdir dir; try rm -f dir/inner; try rmdir dir/sub; try rm -f dir/none; try touch dir/new
    try mkdir dir/new.d; try mkdir dir/sub; try ln -s x dir/link; try mkfifo dir/fifo; try ln other dir/linked; try ln file linked
    try ln other dir/inner; try mv -T file moved; try mv -T dir moved; try mv -T other dir/moved; try mv -T dir/inner moved
    try mv -T dir/inner dir/again; try mv -T other file; try mv -T dir/inner dir/inner; touch third; try mv -T third dir/sub
    try python3 -c 'import ctypes, os; c = ctypes.CDLL(None, use_errno=True)
for a, b in ((b"third", b"file"), (b"dir/sub", b"third"), (b"third", b"dir")):
    print(c.renameat2(-100, a, -100, b, 2), os.strerror(ctypes.get_errno()))'
    # The flag is the node's, whatever its name and whoever asks.
    touch mine; chown 3000 mine; try as 3000 rm -f file; try as 3000 chattr -$flag file; chattr +$flag mine; try as 3000 chattr -$flag mine
    try as 3000 chattr +d mine
    chattr -$flag file dir mine; try rm -r file dir/inner; try chmod 755 dir
done
chattr -Rf -ia .; rm -rf ./*
"#;

#[test]
fn flags_protect_as_on_the_host() {
    require_fuse!();
    require_root!("be other users");
    for program in [
        "chattr",
        "setfattr",
        "setfacl",
        "setpriv",
        "python3",
        "fallocate",
    ] {
        require_program!(program);
    }
    same_on_host_and_mount(Entry::Anybody, FLAGS);
}

#[test]
fn what_a_flag_forbids_is_refused_however_it_is_tried() {
    require_fuse!();
    require_root!("be other users");
    for program in ["chattr", "python3"] {
        require_program!(program);
    }
    let repo = TestRepo::new();
    let mut fork = fork_for(&repo, Entry::OnlyRoot);
    let script = r#"
import ctypes, errno, mmap, os, subprocess
def refused(what, *args):
    try:
        what(*args)
    except OSError as error:
        return errno.errorcode[error.errno]
    return None
open('file', 'w').write('x' * 8192)
# Opened while it was allowed: not a byte is written any more, and none of it stays in the page cache.
before = os.open('file', os.O_RDWR)
mapped = mmap.mmap(before, 8192)
subprocess.run(['chattr', '+i', 'file'], check=True)
assert refused(os.pwrite, before, b'new', 0) == 'EPERM'
assert refused(os.pwrite, before, b'new', 8192) == 'EPERM'
assert refused(os.ftruncate, before, 3) == 'EPERM'
assert os.pread(before, 9000, 0) == b'x' * 8192
mapped[0:3] = b'new'
assert refused(mapped.flush) == 'EPERM'
while os.pread(before, 3, 0) != b'xxx':
    pass
subprocess.run(['chattr', '-i', '+a', 'file'], check=True)
assert refused(os.pwrite, before, b'new', 8191) == 'EPERM'
assert os.pwrite(before, b'end', 8192) == 3
"#;
    let mut command = Command::new("python3");
    command.args(["-c", script]).current_dir(fork.path());
    run_with_timeout(&mut command).expect_success("the script");
    fork.reopen();
    let content = fs::read(fork.path().join("file")).expect("reading is allowed");
    assert_eq!(content, [&[b'x'; 8192][..], b"end"].concat());
    let removed = fs::remove_file(fork.path().join("file"));
    assert_eq!(
        removed.map_err(|error| error.raw_os_error()),
        Err(Some(libc::EPERM)),
        "the flags outlive the daemon"
    );
}

#[test]
fn tine_goes_on_with_forks_that_hold_immutable_files() {
    require_fuse!();
    require_root!("be other users");
    require_program!("chattr");
    for repo in [TestRepo::new(), TestRepo::new().with_linked_forks()] {
        goes_on_with_immutable_files(&repo);
    }
}

fn goes_on_with_immutable_files(repo: &TestRepo) {
    let tine = Tine::new(repo);
    let dir = tine.new_fork("one");
    let protect = |names: &str| {
        let script =
            format!("echo kept > new; mkdir sub; echo below > sub/file; chattr +i {names}");
        run_with_timeout(&mut shell(&dir, &script)).expect_success("the script");
    };
    // The root, too: what tine keeps there must not depend on it.
    // A git directory is no part of the layer, and has no such flags.
    let dot_git = if dir.join(".git").is_file() {
        ".git"
    } else {
        ""
    };
    protect(&format!("new sub . {dot_git}"));
    tine.ok(&["commit", "one", "-m", "with immutable files"]);
    assert_eq!(repo.git(&["show", "tine/one:sub/file"]), "below");
    tine.ok(&["unmount", "one"]);
    tine.ok(&["mount", "one"]);
    let message = fs::write(dir.join("new"), "other").expect_err("the flag is still there");
    assert_eq!(message.raw_os_error(), Some(libc::EPERM));
    tine.ok(&["unmount", "one", "--discard"]);
    tine.ok(&["mount", "one"]);
    fs::write(dir.join("new"), "other").expect("the flag went with the layer");
    run_with_timeout(&mut shell(&dir, "chattr +i new .")).expect_success("chattr");
    tine.ok(&["unmount", "one"]);
    tine.ok(&["delete", "one", "--force"]);
}

#[test]
fn programs_and_devices_are_inert_unless_asked_for() {
    require_fuse!();
    require_root!("be other users");
    require_program!("setpriv");
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    // Who runs the program, and whether the device takes anything.
    let tried = |dir: &Path| {
        let script = format!(
            "{PRELUDE} cp \"$(command -v id)\" id; chmod 4755 id; as 3000 ./id -u
            rm -f null; mknod null c 1 3; chmod 666 null; as 3000 sh -c ': > null' 2>/dev/null || echo refused"
        );
        run_with_timeout(&mut shell(dir, &script))
            .expect_success("the script")
            .text()
    };
    let dir = tine.json(&["new", "plain", "--allow-other"]);
    assert_eq!((&dir["suid"], &dir["dev"]), (&false.into(), &false.into()));
    let plain = tine.ok(&["path", "plain"]);
    assert_eq!(tried(Path::new(&plain)), "3000\nrefused");

    tine.ok(&["mount", "plain", "--allow-other"]);
    let busy = tine.fails(5, &["mount", "plain", "--suid"]);
    assert!(busy.contains("unmount --keep plain"), "{busy}");
    tine.ok(&["unmount", "plain"]);
    tine.ok(&["mount", "plain", "--suid"]);
    assert_eq!(tried(Path::new(&plain)), "0\nrefused");
    let listed = &tine.json(&["list"])["forks"][0];
    assert_eq!(
        (&listed["allow_other"], &listed["suid"], &listed["dev"]),
        (&true.into(), &true.into(), &false.into())
    );

    let open = PathBuf::from(tine.ok(&["new", "open", "--allow-other", "--suid", "--dev"]));
    assert_eq!(tried(&open), "0");
    tine.ok(&["daemon", "stop"]);
    tine.ok(&["daemon", "start"]);
    assert_eq!(tried(&open), "0", "the next mount allows as much");
}

/// Owners, groups and modes of what is made and changed, by whom.
const OWNERS: &str = r#"
chmod 777 .
as 3000 touch mine; as 3000 mkdir mine.d; as_member 3000 mkfifo pipe; as 3000 ln -s x link; modes mine mine.d pipe link
try as 3001 chmod 777 mine; try as 3001 chown 3001 mine; try as 3000 chown 3001 mine; try as 3000 chgrp 4000 mine
try as_member 3000 chgrp 4000 mine; try as 3001 touch -c -d @5 mine; try as 3001 touch -c mine; modes mine
# Set-group-id directories hand their group, and themselves, down.
mkdir team; chown 3000:4000 team; chmod 2777 team
as 3001 touch team/file; as 3001 mkdir team/sub team/sub/deep; as 3001 ln -s x team/link; as 3001 mkfifo team/fifo
modes team team/file team/sub team/sub/deep team/link team/fifo
try as 3001 chmod 2755 team/file; try as 3001 chmod 2755 team/sub; modes team/file team/sub
try as_member 3001 chmod 2755 team/file; try as_member 3001 chmod 2755 team/sub; modes team/file team/sub
try as 3001 python3 -c 'import os
os.umask(0)
for mode in (0o2777, 0o2767, 0o6777, 0o1777):
    for make, dir in ((os.mkdir, "team"), (os.mkdir, "."), (os.mknod, "team"), (os.mknod, ".")):
        name = f"{dir}/{make.__name__}-{mode:o}"
        make(name, mode)
        seen = os.stat(name)
        print(name, oct(seen.st_mode), seen.st_uid, seen.st_gid)'
# Sticky directories: only owners remove and rename.
mkdir sticky; chown 3000:3000 sticky; chmod 1777 sticky; as 3001 touch sticky/a sticky/b; as 3002 touch sticky/c; as 3002 mkdir sticky/d
try as 3002 rm -f sticky/a; try as 3002 mv sticky/a sticky/z; try as 3002 mv sticky/c sticky/a; try as 3001 mv sticky/d sticky/e
try as 3002 mv sticky/c sticky/y; try as 3001 rm -f sticky/a; try as 3000 rm -f sticky/b; try as 3000 rmdir sticky/d; try ls sticky
# Modes decide, for the owner before the group, and for the group before others.
echo text > file; chown 3000:4000 file
for mode in 000 077 707 770 400 040 004; do
    chmod $mode file; echo $mode
    for who in "as 3000" "as_member 3001" "as 3001"; do try $who cat file; try $who sh -c 'echo more >> file'; done
done
mkdir dir; touch dir/in; chown 3000:4000 dir
for mode in 711 744 733 755 700; do
    chmod $mode dir; echo $mode
    try as 3001 ls dir; try as 3001 stat -c %n dir/in; try as 3001 touch dir/new; try as 3001 rm -f dir/new
done
try as 3001 touch sealed/none; chmod 555 .; try as 3001 touch no; try as 3001 mkdir no; try as 3001 ln -s x no; try as 3001 ln file no
try as 3001 rm -f mine; try as 3001 mv mine no; try as 3001 mknod no p
"#;

#[test]
fn owners_and_modes_decide_as_on_the_host() {
    require_fuse!();
    require_root!("be other users");
    for program in ["setpriv", "python3"] {
        require_program!(program);
    }
    same_on_host_and_mount(Entry::Anybody, OWNERS);
}

#[test]
fn whatever_users_do_comes_out_as_on_the_host() {
    require_fuse!();
    require_root!("be other users");
    for program in ["python3", "chattr"] {
        require_program!(program);
    }
    let (mut random, seed) = Random::from_environment("TINE_PERMISSIONS_SEED");
    eprintln!("TINE_PERMISSIONS_SEED={seed}");
    let repo = TestRepo::new();
    let fork = fork_for(&repo, Entry::Anybody);
    let program = repo.root().join("random.py");
    fs::write(&program, include_str!("permissions/random.py"))
        .expect("the directory can be written");
    let rounds = if soaking() { 200 } else { 2 };
    for round in 0..rounds {
        for flags in ["", "flags"] {
            let script = format!(
                "python3 '{}' {} 150 {flags}",
                program.display(),
                random.next()
            );
            compare(&repo, &fork, &format!("round-{round}{flags}"), &script);
        }
    }
}
