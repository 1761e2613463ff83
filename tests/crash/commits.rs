//! Kills while the daemon commits.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use super::{let_pass, rounds, seeded};
use crate::support::{OutputExt, TestRepo, Tine, require_fuse, run_with_timeout};

/// Files by name.
pub type Files = BTreeMap<String, Vec<u8>>;

pub fn read_files(dir: &Path) -> Files {
    let entries = fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    entries
        .map(|entry| {
            let entry = entry.expect("the directory can be listed");
            let name = entry
                .file_name()
                .into_string()
                .expect("the names are UTF-8");
            (name, fs::read(entry.path()).expect("the file can be read"))
        })
        .collect()
}

#[test]
fn invariant_13_a_commit_that_is_killed_happened_or_not() {
    require_fuse!();
    let (mut random, _say) = seeded();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let mount = tine.new_fork("demo");
    let dir = mount.join("files");
    fs::create_dir(&dir).expect("the mount can be written");
    let mut expected = Files::new();
    for round in 0..rounds() {
        for number in 0..40 {
            let name = format!("file-{}", (round * 7 + number) % 100);
            let len = random.below(20_000) as usize;
            let content = random.bytes(len);
            fs::write(dir.join(&name), &content).expect("the mount can be written");
            expected.insert(name, content);
        }
        let before = repo.git(&["rev-parse", "tine/demo"]);
        let message = format!("round {round}");
        let mut command = tine.command(&["commit", "demo", "-m", &message]);
        let reported = std::thread::scope(|scope| {
            let committing = scope.spawn(|| run_with_timeout(&mut command));
            let_pass(&mut random, Duration::from_millis(80));
            tine.kill_daemon();
            committing.join().expect("the command ends")
        });
        assert_eq!(Path::new(&tine.ok(&["path", "demo"])), mount);
        assert!(
            read_files(&dir) == expected,
            "the files are not as they were written"
        );
        let after = repo.git(&["rev-parse", "tine/demo"]);
        if after == before {
            assert!(
                !reported.status.success(),
                "a commit was reported that did not happen"
            );
        } else {
            assert_eq!(
                repo.git(&["log", "-1", "--format=%s", "tine/demo"]),
                message
            );
            assert_eq!(repo.git(&["rev-parse", "tine/demo~"]), before);
        }
        // Nothing is left that keeps git from working, such as a lock.
        repo.sh_in(
            &mount,
            "git add -A && git commit -q --allow-empty -m 'by git'",
        );
        assert_eq!(repo.git_in(&mount, &["status", "--porcelain"]), "");
        let changes = tine
            .run(&["status", "demo", "--json"])
            .expect_success("tine status")
            .text();
        let changes: serde_json::Value = serde_json::from_str(&changes).expect("JSON");
        assert_eq!(
            changes["changes"].as_array().map(Vec::len),
            Some(0),
            "{changes}"
        );
    }
    repo.git(&["fsck", "--strict"]);
}
