//! The disk answers with errors: programs get EIO, the daemon stays, what was synced is there, and
//! it goes on when the disk is well again.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::support::disk::{Disk, Fault, Kind, What, extents_of, forget_cached, in_private_mounts};
use crate::support::{OutputExt, Random, TestRepo, Tine};
use crate::{on_disk, require_disk};

/// Larger than what shares a file of the store with others.
const LARGE: usize = 100_000;

/// A fork on a disk that can fail.
struct Failing<'a> {
    repo: &'a TestRepo,
    tine: Tine<'a>,
    disk: Disk,
    mount: PathBuf,
}

fn with_failing_disk(test: impl FnOnce(&mut Failing<'_>) + Send) {
    in_private_mounts(|| {
        let (repo, disk) = on_disk(Kind::Ext4);
        let tine = Tine::new(&repo);
        let mount = tine.new_fork("demo");
        let mut failing = Failing {
            repo: &repo,
            tine,
            disk,
            mount,
        };
        test(&mut failing);
    });
}

impl Failing<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.mount.join(name)
    }

    /// The directory of the fork's only layer.
    fn layer(&self) -> PathBuf {
        let layers = self.repo.dir().join(".git/tine/layers");
        layers.join("1")
    }

    fn fail_in(&self, what: What, file: &Path) {
        let extents = extents_of(file);
        let start = extents.iter().map(|(start, _)| *start).min().unwrap();
        let end = extents.iter().map(|(_, end)| *end).max().unwrap();
        self.disk.fail(Fault {
            range: (start, end),
            ..Fault::all(what)
        });
    }

    /// A commit is refused, and what is to be done is told; does that.
    fn mount_again_as_told(&self) {
        let refused = self.tine.run(&["commit", "demo", "-m", "refused"]);
        let told = refused.error_text();
        assert_eq!(refused.status.code(), Some(1), "{told}");
        assert!(
            told.contains("`tine unmount FORK` and `tine mount FORK`"),
            "{told}"
        );
        self.disk.heal();
        self.tine.ok(&["unmount", "demo"]);
        self.tine.ok(&["mount", "demo"]);
    }

    /// Writing and syncing works.
    fn check_goes_on(&self) {
        write_synced(&self.path("afterwards"), b"it goes on").unwrap();
        self.tine.ok(&["commit", "demo", "-m", "afterwards"]);
        assert_eq!(self.repo.status(&self.mount), "");
    }

    /// The daemon is the one that it was, and answers.
    fn check_alive(&self, pid: Option<u32>) {
        assert!(pid.is_some());
        assert_eq!(self.tine.daemon_pid(), pid, "the daemon stays");
        assert!(self.tine.run(&["list"]).status.success());
        assert_eq!(
            fs::read(self.path("README.md")).unwrap(),
            fs::read(self.repo.dir().join("README.md")).unwrap()
        );
    }
}

fn write_synced(path: &Path, content: &[u8]) -> io::Result<()> {
    let file = File::create(path)?;
    file.write_all_at(content, 0)?;
    file.sync_all()
}

#[track_caller]
fn assert_errno(result: io::Result<()>, expected: &[i32]) {
    let error = result.expect_err("the disk has failed");
    assert!(
        expected.contains(&error.raw_os_error().unwrap_or(0)),
        "{error}"
    );
}

#[test]
fn an_error_below_a_content_reaches_who_syncs_it() {
    require_disk!();
    with_failing_disk(|failing| {
        let (path, other) = (failing.path("large"), failing.path("other"));
        write_synced(&path, &[b'1'; LARGE]).unwrap();
        write_synced(&other, b"synced").unwrap();
        let pid = failing.tine.daemon_pid();
        failing.fail_in(What::Writes, &failing.layer().join("files/1"));

        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(&[b'2'; LARGE], 0).unwrap();
        assert_errno(file.sync_all(), &[libc::EIO]);
        assert!(failing.disk.has_failed());
        drop(file);
        // The kernel tells of it once. Whoever asks later must not hear that all is well.
        assert_errno(File::open(&other).unwrap().sync_all(), &[libc::EIO]);
        failing.check_alive(pid);
        assert_eq!(fs::read(&path).unwrap().len(), LARGE);
        failing.mount_again_as_told();
        assert_eq!(fs::read(&other).unwrap(), b"synced");
        assert_eq!(fs::read(&path).unwrap().len(), LARGE);
        failing.check_goes_on();
    });
}

#[test]
fn an_error_below_the_log_stops_changes_until_it_is_mounted_again() {
    require_disk!();
    with_failing_disk(|failing| {
        write_synced(&failing.path("synced"), b"synced").unwrap();
        let pid = failing.tine.daemon_pid();
        failing.fail_in(What::Writes, &failing.layer().join("log"));

        fs::write(failing.path("new"), b"new").unwrap();
        assert_errno(
            File::open(failing.path("new")).unwrap().sync_all(),
            &[libc::EIO],
        );
        assert_errno(fs::write(failing.path("newer"), b"newer"), &[libc::EIO]);
        assert_eq!(fs::read(failing.path("new")).unwrap(), b"new");
        failing.check_alive(pid);
        failing.mount_again_as_told();
        assert_eq!(fs::read(failing.path("synced")).unwrap(), b"synced");
        failing.check_goes_on();
    });
}

#[test]
fn a_disk_that_takes_no_writes_is_still_read() {
    require_disk!();
    for what in [What::Writes, What::Flushes] {
        with_failing_disk(|failing| {
            write_synced(&failing.path("synced"), b"synced").unwrap();
            let pid = failing.tine.daemon_pid();
            failing.disk.fail(Fault::all(what));

            fs::write(failing.path("new"), b"new").unwrap();
            assert_errno(
                File::open(failing.path("new")).unwrap().sync_all(),
                &[libc::EIO, libc::EROFS],
            );
            // By now the kernel has made the file system read-only.
            assert_errno(
                fs::write(failing.path("newer"), b"newer"),
                &[libc::EIO, libc::EROFS],
            );
            failing.check_alive(pid);
            assert_eq!(fs::read(failing.path("synced")).unwrap(), b"synced");
            for args in [
                &["commit", "demo", "-m", "refused"][..],
                &["new", "another"],
                &["unmount", "demo", "--commit", "-m", "refused"],
            ] {
                let refused = failing.tine.run(args);
                assert!(!refused.status.success(), "{args:?}");
                assert!(
                    refused.error_text().contains("hint:"),
                    "{args:?}: {}",
                    refused.error_text()
                );
            }
            assert_eq!(fs::read(failing.path("synced")).unwrap(), b"synced");

            failing
                .tine
                .run(&["daemon", "stop", "--force"])
                .expect_success("daemon stop");
            failing.disk.heal();
            failing.disk.remount();
            failing.tine.ok(&["list"]);
            assert_eq!(fs::read(failing.path("synced")).unwrap(), b"synced");
            failing.check_goes_on();
        });
    }
}

#[test]
fn what_cannot_be_read_is_an_error_for_as_long_as_it_cannot() {
    require_disk!();
    with_failing_disk(|failing| {
        // Contents of the layer, in a file of their own and among others.
        let contents = [
            (failing.path("large"), vec![b'x'; LARGE]),
            (failing.path("small"), vec![b'y'; 5000]),
        ];
        for (path, content) in &contents {
            write_synced(path, content).unwrap();
        }
        // A base in a pack, with enough in it that not all is read at once.
        let content = Random::new(1).bytes(4 << 20);
        failing
            .repo
            .commit_files(&[("big.bin", &content[..])], "large");
        failing
            .repo
            .sh_in(failing.repo.dir(), "git repack -adq && git prune-packed -q");
        let base = failing.tine.new_fork("second").join("big.bin");
        let dir = failing.repo.dir().join(".git/objects/pack");
        let pack = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .find(|path| {
                path.extension()
                    .is_some_and(|extension| extension == "pack")
            })
            .unwrap();
        failing.tine.ok(&["daemon", "stop"]);
        // With nothing of it in memory.
        failing.disk.remount();
        failing.tine.ok(&["list"]);
        let pid = failing.tine.daemon_pid();

        for (file, (path, content)) in ["files/1", "data"].into_iter().zip(&contents) {
            let file = failing.layer().join(file);
            forget_cached(&file);
            failing.fail_in(What::Reads, &file);
            assert_errno(fs::read(path).map(drop), &[libc::EIO]);
            failing.check_alive(pid);
            failing.disk.heal();
            assert_eq!(&fs::read(path).unwrap(), content);
        }
        forget_cached(&pack);
        failing.fail_in(What::Reads, &pack);
        assert_errno(fs::read(&base).map(drop), &[libc::EIO]);
        assert!(failing.disk.has_failed());
        assert_eq!(failing.tine.daemon_pid(), pid, "the daemon stays");
        failing.disk.heal();
        assert!(fs::read(&base).unwrap() == content);
        failing.check_alive(pid);
        failing.check_goes_on();
    });
}
