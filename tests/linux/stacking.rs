//! A mount beneath others: loop devices, overlays, bind mounts, other roots; and handles of its
//! files.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nix::errno::Errno;

use crate::compare::{Place, c_path, checked, compare, compare_with};
use crate::support::command::shell;
use crate::support::{
    OutputExt, TestFork, TestRepo, has_program, require_fuse, require_root, run_with_timeout,
    run_with_timeout_of, skip, test_name,
};

const LIMIT: Duration = Duration::from_secs(120);

/// Whether mounts can be made that nobody else sees.
fn may_mount() -> bool {
    run_with_timeout(Command::new("unshare").args(["--mount", "true"]))
        .status
        .success()
}

/// Runs a script in the place, in a mount namespace of its own, which takes what it mounts away
/// with it. Its output and exit code are noted.
fn in_namespace(place: &mut Place, what: &str, script: &str) {
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-euc", script])
        .current_dir(place.dir())
        .env("LC_ALL", "C");
    let output = run_with_timeout_of(&mut command, LIMIT, b"");
    place.note(
        what,
        (
            output.status.code(),
            output.text(),
            output
                .error_text()
                .replace(&place.dir().display().to_string(), "DIR"),
        ),
    );
}

#[test]
fn a_file_carries_a_file_system_of_its_own() {
    if !may_mount() || !has_program("mkfs.ext4") || !Path::new("/dev/loop-control").exists() {
        return skip(
            test_name!(),
            "loop devices and ext4 need root and mkfs.ext4",
        );
    }
    compare(test_name!(), &[], |place| {
        for direct in ["off", "on"] {
            let script = "
                truncate -s 24M disk
                device=$(losetup --find --show --direct-io=$DIRECT disk)
                trap 'umount inner 2>/dev/null || true; losetup --detach $device' EXIT
                mkfs.ext4 -q $device
                mkdir -p inner
                mount $device inner
                cp -r docs data inner
                mkdir inner/many
                for i in $(seq 300); do echo $i > inner/many/$i; done
                rm inner/many/1*
                sync
                fstrim inner && echo trimmed
                umount inner
                fsck.ext4 -fn $device >/dev/null 2>&1
                mount -o ro $device inner
                cmp data/large.bin inner/data/large.bin
                ls inner/many | wc -l
                cat inner/many/2* | cksum
                umount inner
                rmdir inner
            ";
            in_namespace(
                place,
                &format!("direct {direct}"),
                &format!("DIRECT={direct}\n{script}"),
            );
            // What the inner file system gave back are holes.
            let blocks = fs::metadata(place.at("disk")).unwrap().blocks();
            place.note(format!("sparse, direct {direct}"), blocks < (8 << 20) / 512);
            fs::remove_file(place.at("disk")).unwrap();
        }
    });
}

/// Changes of every kind through the overlay `over`, and what is then seen in it and in its upper
/// directory.
const OVERLAY_WORK: &str = "
    echo more >> over/guide.md
    mv over/guide.md over/moved.md
    rm over/empty
    mkdir over/new
    mv over/new over/newer
    echo in > over/newer/in
    ln over/moved.md over/twin
    chmod 600 over/moved.md
    ln -s target over/symlink
    mv over/sub over/sub2
    rm -r over/gone
    mkdir over/gone
    test ! -e over/guide.md
    cat over/moved.md over/sub2/x
    find over | sort
    stat -c '%n %A %h' over/moved.md over/gone over/sub2
    umount over
    find \"$UPPER\" -printf '%P %M %s\\n' | sed 's/ d\\(.*\\) [0-9]*$/ d\\1/' | sort
";

#[test]
fn an_overlay_stands_on_a_mount() {
    if !may_mount() {
        return skip(test_name!(), "only root can mount an overlay");
    }
    compare(test_name!(), &[], |place| {
        for (number, options) in [
            "userxattr",
            "index=off",
            "redirect_dir=on,index=on",
            "metacopy=on,redirect_dir=on",
            "xino=on",
            "volatile",
        ]
        .iter()
        .enumerate()
        {
            let upper = format!("upper{number}");
            // A rename of a directory that lies beneath needs redirects.
            let work = if options.contains("redirect_dir=on") {
                OVERLAY_WORK.to_owned()
            } else {
                OVERLAY_WORK.replace("mv over/sub over/sub2", "cp -r over/sub over/sub2")
            };
            let script = format!(
                "UPPER={upper}
                mkdir -p over $UPPER work{number} lower{number}/sub lower{number}/gone/deep
                cp docs/guide.md docs/empty lower{number}
                echo x > lower{number}/sub/x
                echo y > lower{number}/gone/deep/y
                mount -t overlay over -o lowerdir=lower{number},upperdir=$UPPER,workdir=work{number},{options} over
                {work}"
            );
            in_namespace(place, options, &script);
        }
        // Beneath an overlay whose upper directory is elsewhere, and above one whose lower
        // directories are.
        let elsewhere = place
            .dir()
            .with_file_name(format!("elsewhere-{}", place.dir().as_os_str().len()));
        fs::create_dir(&elsewhere).unwrap();
        let script = format!(
            "E={}
            mkdir -p over $E/upper $E/work $E/lower w2 u2
            mount -t overlay over -o lowerdir=docs:src,upperdir=$E/upper,workdir=$E/work over
            echo changed >> over/guide.md; mv over/main.rs over/other.rs; cat over/guide.md over/deep/er/still/leaf.txt
            find over | sort
            umount over
            echo low > $E/lower/low
            mount -t overlay over -o lowerdir=$E/lower,upperdir=u2,workdir=w2 over
            echo high >> over/low; echo new > over/new; cat over/low
            umount over
            find u2 | sort; cat u2/low docs/guide.md",
            elsewhere.display()
        );
        in_namespace(place, "elsewhere", &script);
    });
}

#[test]
fn a_mount_is_bound_entered_and_made_a_root() {
    if !may_mount() {
        return skip(test_name!(), "only root can mount and change its root");
    }
    compare(test_name!(), &[], |place| {
        in_namespace(
            place,
            "bound",
            "mkdir bound; mount --bind src bound; echo through > bound/new; cat src/new
            mv bound/new docs/new 2>&1 || true; ls bound docs
            mount -o remount,bind,ro bound; echo x > bound/y || echo read-only; cat bound/main.rs
            touch file; mount --bind run.sh file; ./file; rm run.sh || echo busy; mv bound other || echo busy
            umount file; umount bound; rm -r src/main.rs; ls src",
        );
        in_namespace(
            place,
            "as a root",
            "mkdir -p root/old root/dir; echo hello > root/dir/file
            for file in $(ldd /bin/sh | grep -o '/[^ ]*'); do cp --parents $file root; done
            cp /bin/sh root/sh
            chroot root /sh -c 'cd /; echo *; read line < dir/file; echo $line; echo new > made'
            mount --bind root root; cd root; pivot_root . old
            exec /sh -c 'cd /; echo *; read line < made; echo $line; test -d old/proc && echo there'",
        );
    });
}

/// `struct file_handle` with room for any handle.
#[repr(C)]
struct Handle {
    bytes: libc::c_uint,
    kind: libc::c_int,
    handle: [u8; 128],
}

fn name_to_handle(path: &Path) -> Result<Handle, Errno> {
    let mut handle = Handle {
        bytes: 128,
        kind: 0,
        handle: [0; 128],
    };
    let mut mount = 0i32;
    let path = c_path(path);
    // SAFETY: the path is NUL-terminated, the handle has the room that it says.
    checked(unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            libc::AT_FDCWD,
            path.as_ptr(),
            &raw mut handle,
            &raw mut mount,
            0,
        )
    })?;
    Ok(handle)
}

fn open_by_handle(mount: &File, handle: &mut Handle) -> Result<File, Errno> {
    // SAFETY: the handle is one that the kernel filled in.
    let fd = checked(unsafe {
        libc::syscall(
            libc::SYS_open_by_handle_at,
            mount.as_raw_fd(),
            &raw mut *handle,
            libc::O_RDONLY | libc::O_CLOEXEC,
        )
    })?;
    // SAFETY: it was just opened and nobody else has it.
    Ok(unsafe { File::from_raw_fd(fd as i32) })
}

#[test]
fn a_handle_leads_to_its_file_while_that_is_known() {
    require_root!("open by handle");
    compare(test_name!(), &[], |place| {
        let root = File::open(place.dir()).unwrap();
        for name in ["README.md", "src", "made"] {
            if name == "made" {
                place.file(name, "made content");
            }
            let held = File::open(place.at(name)).unwrap();
            let mut handle = name_to_handle(&place.at(name)).unwrap();
            let opened = open_by_handle(&root, &mut handle);
            let number = opened
                .as_ref()
                .map(|file| file.metadata().unwrap().ino() == held.metadata().unwrap().ino());
            place.result(format!("{name}: the same"), number.map_err(|errno| *errno));
            if let Ok(mut file) = opened {
                let mut content = String::new();
                place.outcome(format!("{name}: read"), file.read_to_string(&mut content));
                place.note(format!("{name}: content"), content);
            }
            fs::rename(place.at(name), place.at(format!("{name}-moved"))).unwrap();
            place.outcome(
                format!("{name}: renamed"),
                open_by_handle(&root, &mut handle),
            );
            if name != "src" {
                fs::remove_file(place.at(format!("{name}-moved"))).unwrap();
                drop(held);
                place.outcome(format!("{name}: gone"), open_by_handle(&root, &mut handle));
            }
            handle.handle[..8].fill(0xab);
            place.outcome(
                format!("{name}: made up"),
                open_by_handle(&root, &mut handle),
            );
        }
    });
}

/// As an NFS server needs it, whose clients hold handles for as long as they like.
#[test]
fn a_handle_outlives_a_remount() {
    require_root!("open by handle");
    require_fuse!();
    let repo = TestRepo::new();
    let mut fork = TestFork::mounted(&repo, "one");
    fs::write(fork.path().join("made"), "made").unwrap();
    let names = ["README.md", "made", "src/deep", "src/main.rs", "run.sh"];
    let mut handles = names.map(|name| {
        let path = fork.path().join(name);
        (
            name_to_handle(&path).unwrap(),
            fs::metadata(path).unwrap().ino(),
        )
    });
    fs::rename(fork.path().join("src"), fork.path().join("moved")).unwrap();
    fs::remove_file(fork.path().join("run.sh")).unwrap();
    fork.reopen();
    let root = File::open(fork.path()).unwrap();
    for ((handle, number), name) in handles.iter_mut().zip(names) {
        let opened = open_by_handle(&root, handle);
        match name {
            "run.sh" => assert_eq!(opened.map(drop), Err(Errno::ESTALE), "{name}"),
            _ => assert_eq!(opened.unwrap().metadata().unwrap().ino(), *number, "{name}"),
        }
        handle.handle[..8].fill(0xab);
        assert_eq!(
            open_by_handle(&root, handle).map(drop),
            Err(Errno::ESTALE),
            "{name}"
        );
    }
}

/// Many programs' way of asking whether two names are in one file system.
#[test]
fn a_mount_is_a_file_system_of_its_own() {
    compare_with(test_name!(), &[], |fork, place| {
        let device = |path: &Path| fs::metadata(path).unwrap().dev();
        place.note(
            "one device",
            device(place.dir()) == device(&place.at("src/deep")),
        );
        let across = fs::rename(place.at("run.sh"), "/dev/shm/tine-run.sh");
        place.outcome("renamed to another", across);
        place.outcome(
            "linked to another",
            fs::hard_link(place.at("run.sh"), "/dev/shm/tine-run.sh"),
        );
        if let Some(fork) = fork {
            assert_ne!(device(place.dir()), device(fork.path().parent().unwrap()));
            run_with_timeout(&mut shell(
                fork.path(),
                "mountpoint -q . && ! mountpoint -q src",
            ))
            .expect_success("mountpoint");
        }
    });
}
