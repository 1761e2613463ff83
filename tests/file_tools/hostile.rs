//! Paths that would lead out of a fork: each is refused, or stays within, and nothing outside
//! changes.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tine::ops::protocol::ToolAnswer;
use tine::ops::{ErrorCode, Failure};

use crate::support::{Random, SayWhich, TestRepo, Tine, fuse_missing, require_fuse, soaking};
use crate::{Agent, files_beneath};

const SEED: &str = "TINE_TOOL_SEED";

/// A repository with a fork `fork` and one called `fork2`, and secrets around them.
struct Place {
    repo: TestRepo,
    mount_dir: PathBuf,
}

impl Place {
    fn new(mounted: bool) -> Place {
        let repo = TestRepo::new();
        fs::write(repo.root().join("secret"), "secret").unwrap();
        fs::create_dir(repo.root().join("outside")).unwrap();
        fs::write(repo.root().join("outside/secret"), "secret").unwrap();
        repo.write("inside/file", "inside");
        for (target, link) in [
            ("/", "to-root"),
            ("..", "up"),
            ("../..", "up-two"),
            ("../outside", "to-outside"),
            ("../secret", "to-secret"),
            ("inside/../../secret", "by-inside"),
            ("chain-2", "chain-1"),
            ("inside/chain-3", "chain-2"),
            ("loop-2", "loop-1"),
            ("loop-1", "loop-2"),
            (".git", "to-git"),
            ("inside", "to-inside"),
            ("/proc/self/root", "to-proc"),
            ("/proc/self/cwd", "to-cwd"),
        ] {
            symlink(target, repo.dir().join(link)).unwrap();
        }
        symlink("../../secret", repo.dir().join("inside/chain-3")).unwrap();
        symlink(repo.root().join("secret"), repo.dir().join("absolute")).unwrap();
        repo.commit_all("links");
        let tine = Tine::new(&repo);
        let made = match mounted {
            true => tine.ok(&["new", "fork"]),
            false => {
                tine.ok(&["new", "fork", "--no-mount"]);
                tine.ok(&["path", "fork"])
            }
        };
        tine.ok(&["new", "fork2", "--no-mount"]);
        // Its daemon is stopped with the place.
        std::mem::forget(tine);
        Place {
            repo,
            mount_dir: PathBuf::from(made),
        }
    }

    /// All that must stay as it is: what lies around the fork, and the other fork.
    fn outside(&self) -> String {
        let around = ["secret", "outside", "repo"].map(|name| {
            let path = self.repo.root().join(name);
            match path.is_dir() {
                true => format!("{:?}", files_beneath(&path)),
                false => fs::read_to_string(path).unwrap(),
            }
        });
        let names = |dir: &Path| {
            let names = fs::read_dir(dir).into_iter().flatten();
            let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            format!("{names:?}")
        };
        let other = Agent::new(&self.repo, Some("fork2"))
            .list(".", true)
            .unwrap();
        [
            around.concat(),
            names(self.repo.root()),
            format!("{other:?}"),
        ]
        .join("\n")
    }

    /// Whether the path is a symlink's own, which is moved and deleted as any other file.
    fn is_link(&self, path: &[u8]) -> bool {
        let in_mount = [self.mount_dir.as_os_str().as_bytes(), b"/"].concat();
        let path = path.strip_prefix(&in_mount[..]).unwrap_or(path);
        let path = Path::new(std::ffi::OsStr::from_bytes(path));
        let links = [
            "to-root",
            "to-outside",
            "to-secret",
            "by-inside",
            "absolute",
            "chain-1",
            "loop-1",
            "to-git",
        ];
        links.iter().any(|link| path.as_os_str() == *link) || path.ends_with("chain-3")
    }

    fn hostile_paths(&self) -> Vec<Vec<u8>> {
        let mount = self.mount_dir.as_os_str().as_bytes();
        let root = self.repo.root().as_os_str().as_bytes();
        let mut paths: Vec<Vec<u8>> = [
            "",
            "..",
            "../",
            "../secret",
            "../fork2/README.md",
            "inside/..",
            "inside/../../secret",
            "./../secret",
            "inside/./../../secret",
            "/",
            "//",
            "/etc/passwd",
            "/../etc/passwd",
            "/proc/self/root",
            "/proc/self/root/etc/passwd",
            "/proc/self/cwd/README.md",
            "/dev/null",
            "to-root/etc/passwd",
            "to-root",
            "up/secret",
            "up-two/x",
            "to-outside",
            "to-outside/secret",
            "to-outside/new",
            "to-secret",
            "by-inside",
            "absolute",
            "chain-1",
            "inside/chain-3",
            "loop-1",
            "loop-1/x",
            "to-proc/etc/passwd",
            "to-cwd/secret",
            ".git",
            ".git/",
            "./.git",
            ".//.git",
            ".git/config",
            ".git/hooks/pre-commit",
            "to-git",
            "to-git/config",
            "to-inside/../../secret",
            "to-inside/chain-3",
            "nul\0",
            "\0",
            "inside/fi\0le",
            "README.md/..",
            "README.md/../../secret",
        ]
        .map(|path| path.as_bytes().to_vec())
        .to_vec();
        paths.push([&b"long/"[..], &[b'x'; 256]].concat());
        for suffix in [
            "2/README.md",
            "/..",
            "/../fork2/README.md",
            "/../../secret",
            "/.git",
            "/to-secret",
            "x",
        ] {
            paths.push([mount, suffix.as_bytes()].concat());
        }
        for suffix in [
            "/secret",
            "/outside/secret",
            "/repo/../secret",
            "/repo/.git/config",
            "/repo2",
        ] {
            paths.push([root, suffix.as_bytes()].concat());
        }
        paths.push([b"/proc/self/root", mount, b"/README.md"].concat());
        paths.push([root, b"/repo.forks/../secret"].concat());
        paths.push(mount.to_ascii_uppercase());
        paths
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(Tine::new(&self.repo));
    }
}

#[track_caller]
fn assert_refused<T: std::fmt::Debug>(answer: Result<T, Failure>, what: &str) {
    let failure = answer.expect_err(what);
    assert!(
        matches!(
            failure.code,
            ErrorCode::PathRefused
                | ErrorCode::Usage
                | ErrorCode::NoSuchPath
                | ErrorCode::PathExists
                | ErrorCode::WrongKind
                | ErrorCode::EditNotFound
        ),
        "{what}: {failure:?}"
    );
    assert!(failure.hint.is_some(), "{what}: {failure:?}");
}

fn nothing_leads_out(mounted: bool) {
    let place = Place::new(mounted);
    let mut agent = Agent::new(&place.repo, Some("fork"));
    let before = place.outside();
    let files = || match mounted {
        true => files_beneath(&place.mount_dir),
        false => Default::default(),
    };
    let files_before = files();
    for path in place.hostile_paths() {
        let what = String::from_utf8_lossy(&path).into_owned();
        assert_refused(agent.read(&path), &what);
        assert_refused(agent.write(&path, b"broken out"), &what);
        assert_refused(agent.edit(&path, "secret", "broken out"), &what);
        assert_refused(agent.rename("inside/file", &path), &what);
        if !place.is_link(&path) {
            assert_refused(agent.rename(&path, "to-inside/stolen"), &what);
            assert_refused(agent.delete(&path), &what);
        }
        assert_refused(agent.search("secret", Some(&path)), &what);
        assert_refused(agent.list(&path, true), &what);
        assert_eq!(place.outside(), before, "{what}");
        assert_eq!(files(), files_before, "{what}");
    }
    // Nothing of what is outside is found from inside.
    let found = agent.search("secret", None).unwrap();
    assert_eq!(found, [], "no symlink is followed");
    let listed = agent.list(".", true).unwrap();
    assert!(
        !listed
            .iter()
            .any(|path| path.starts_with(b".git/") || path == b".git")
    );
    // What such a link itself is may go; what it leads to stays.
    for link in [
        "to-secret",
        "absolute",
        "to-root",
        "up",
        "chain-1",
        "to-git",
        "loop-1",
    ] {
        agent.delete(link).unwrap();
    }
    assert_eq!(place.outside(), before);
}

#[test]
fn nothing_leads_out_of_a_mounted_fork() {
    require_fuse!();
    nothing_leads_out(true);
}

#[test]
fn nothing_leads_out_of_a_fork_that_is_not_mounted() {
    nothing_leads_out(false);
}

#[test]
fn what_stays_within_works_however_it_is_named() {
    let place = Place::new(fuse_missing().is_none());
    let mut agent = Agent::new(&place.repo, Some("fork"));
    let mount = place.mount_dir.to_str().unwrap().to_owned();
    let checkout = place.repo.dir().to_str().unwrap().to_owned();
    for path in [
        "inside/file".to_owned(),
        "./inside//file".to_owned(),
        "to-inside/file".to_owned(),
        format!("{mount}/inside/file"),
        format!("{mount}//inside/./file"),
        format!("{checkout}/inside/file"),
    ] {
        assert_eq!(agent.read(&path).unwrap(), b"inside", "{path}");
        let ToolAnswer::Agents(written) = agent.write(&path, b"changed").unwrap() else {
            panic!("{path} was not written");
        };
        assert_eq!(written.path.to_bytes(), b"inside/file", "{path}");
        agent.edit(&path, "changed", "inside").unwrap();
    }
    assert_eq!(
        fs::read(place.repo.dir().join("inside/file")).unwrap(),
        b"inside"
    );
    // A name that only looks like git's is any other; bytes that are no UTF-8 are, too.
    for name in [
        &b".GIT/config"[..],
        b".gitx",
        b"inside/.git",
        b"n\xffme",
        b"...",
        b"-rf",
        b"a b\n",
    ] {
        agent.write(name, b"own").unwrap();
        assert_eq!(agent.read(name).unwrap(), b"own", "{name:?}");
        agent.delete(name).unwrap();
    }
    for path in ["inside/file/", "inside/file/.", "new/"] {
        let failure = agent.write(path, b"x").unwrap_err();
        assert_eq!(failure.code, ErrorCode::WrongKind, "{path}");
    }
    let listed = agent.list(format!("{mount}/"), false).unwrap();
    assert!(listed.contains(&b".gitignore".to_vec()));
}

#[test]
fn a_symlink_that_is_swapped_meanwhile_leads_nowhere_else() {
    require_fuse!();
    let (mut random, seed) = Random::from_environment(SEED);
    let _which = SayWhich(SEED, seed);
    let place = Place::new(true);
    let before = place.outside();
    let head = fs::read_to_string(place.mount_dir.join(".git/HEAD")).unwrap();
    let (ends, dir) = (AtomicBool::new(false), place.mount_dir.clone());
    let rounds = if soaking() { 5_000 } else { 300 };
    thread::scope(|scope| {
        // `door` is a directory, a link out, a link to git's file and a link inside, by turns.
        scope.spawn(|| {
            let door = dir.join("door");
            let targets = [
                Path::new("../outside"),
                Path::new(".git"),
                Path::new("inside"),
                place.repo.root(),
            ];
            // What an agent puts there by the way makes some of these fail, and goes.
            for target in targets.iter().cycle() {
                if ends.load(Ordering::Relaxed) {
                    return;
                }
                let fresh = dir.join("fresh");
                symlink(target, &fresh).unwrap();
                let swapped = fs::rename(&fresh, &door);
                let _ = match swapped {
                    Ok(()) => fs::remove_file(&door),
                    Err(_) => fs::remove_file(&fresh),
                };
                let _ = fs::create_dir(&door);
                let _ = fs::remove_dir_all(&door);
            }
        });
        let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut agent = Agent::new(&place.repo, Some("fork"));
            for _ in 0..rounds {
                let content = match random.below(5) {
                    0 => agent.read("door/secret").ok(),
                    1 => agent
                        .write("door/secret", b"broken out")
                        .ok()
                        .map(|_| Vec::new()),
                    2 => agent
                        .edit("door/secret", "secret", "broken out")
                        .ok()
                        .map(|_| Vec::new()),
                    3 => agent.delete("door/secret").ok().map(|_| Vec::new()),
                    _ => agent
                        .rename("door/secret", "stolen")
                        .ok()
                        .map(|_| Vec::new()),
                };
                assert_ne!(
                    content.as_deref(),
                    Some(&b"secret"[..]),
                    "what is outside was read"
                );
                // What was made inside by the way is not asked about.
                let _ = agent.delete("stolen");
                let _ = agent.delete("inside/secret");
            }
        }));
        ends.store(true, Ordering::Relaxed);
        worked.unwrap();
    });
    assert_eq!(place.outside(), before);
    assert_eq!(fs::read_to_string(dir.join(".git/HEAD")).unwrap(), head);
}
