//! Repositories made to do harm: the host is not touched, the daemon neither ends, nor hangs, nor
//! takes all memory, and other forks go on. What git refuses to check out is refused, or left out,
//! with a clear word.

mod support;

#[path = "hostile/names.rs"]
mod names;
#[path = "hostile/objects.rs"]
mod objects;
#[path = "hostile/rules.rs"]
mod rules;
#[path = "hostile/sizes.rs"]
mod sizes;
#[path = "hostile/trees.rs"]
mod trees;

use std::fs;
use std::path::PathBuf;
use std::process::Output;

use support::command::run_with_timeout_of;
use support::{OutputExt, TestRepo, Tine};

/// What any command on a hostile repository may take.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);

/// The most memory that the daemon may need for one, in bytes.
const MAX_MEMORY: u64 = 400 << 20;

/// A fork of good standing that goes on whatever happens to the others in its daemon.
struct Bystander {
    dir: PathBuf,
    pid: u32,
}

impl Bystander {
    fn new(tine: &Tine<'_>) -> Bystander {
        let dir = tine.new_fork("bystander");
        let pid = tine.daemon_pid().expect("the daemon runs");
        Bystander { dir, pid }
    }

    #[track_caller]
    fn goes_on(&self, tine: &Tine<'_>) {
        assert_eq!(tine.daemon_pid(), Some(self.pid), "it is the same process");
        fs::write(self.dir.join("new.txt"), "new").unwrap();
        assert_eq!(fs::read_to_string(self.dir.join("new.txt")).unwrap(), "new");
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap();
        let most = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .unwrap();
        let most: u64 = most.trim().trim_end_matches(" kB").parse().unwrap();
        assert!(most << 10 < MAX_MEMORY, "the daemon took {most} KiB");
    }
}

/// Runs `tine` with a time limit; it must not have failed for a fault of its own.
#[track_caller]
fn run(tine: &Tine<'_>, args: &[&str]) -> Output {
    let output = run_with_timeout_of(&mut tine.command(args), PATIENCE, b"");
    let error = output.error_text();
    assert!(
        !error.contains("panicked") && !error.contains("a fault of tine's"),
        "tine {args:?}: {error}"
    );
    output
}

/// `tine new` of a commit, which must be refused for `reason` and leave nothing behind.
#[track_caller]
fn is_refused(tine: &Tine<'_>, repo: &TestRepo, commit: &str, reason: &str) {
    let before = repo.git(&["for-each-ref"]);
    let output = run(tine, &["new", "hostile", "--from", commit]);
    let error = output.error_text();
    assert!(!output.status.success(), "{commit} was let through");
    assert!(error.contains(reason), "{reason:?} is not told: {error}");
    assert!(error.contains("hint:"), "{error}");
    assert_eq!(repo.git(&["for-each-ref"]), before);
    assert!(!repo.root().join("repo.forks/hostile").exists());
    assert!(!repo.common_dir().join("tine/forks/hostile").exists());
}
