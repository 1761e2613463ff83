//! Kills while a fork is put on another branch.

use std::fs;
use std::time::Duration;

use super::merges::{Moment, run_and_kill};
use super::{rounds, seeded};
use crate::support::{OutputExt, TestRepo, Tine, assert_agreement, require_fuse};

#[test]
fn invariant_13_a_switch_that_is_killed_happened_or_not() {
    require_fuse!();
    let (mut random, _say) = seeded();
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    // Two branches that differ in many files, and in kinds.
    let topic = repo.git_checkout_of("HEAD", "topic-files");
    repo.sh_in(
        &topic,
        "git switch -qc topic; mkdir -p many; for i in $(seq 60); do echo $i > many/$i; done
         echo topic > README.md; rm -rf docs; echo docs > docs; ln -sfn elsewhere link; chmod -x run.sh
         git add -A; git commit -qm topic; git switch -q --detach",
    );
    fs::write(dir.join("beside"), "beside").expect("the mount can be written");
    let record = repo.common_dir().join("tine/forks/demo/fork.json");
    let is_advancing = || {
        let text = fs::read(&record).unwrap_or_default();
        let value: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
        value["advancing"].is_object()
    };
    let branch_of = || repo.git_of_fork("demo", &["symbolic-ref", "--short", "HEAD"]);
    let mut most = Duration::from_millis(300);
    let (mut done, mut undone) = (0, 0);
    for round in 0..rounds() {
        let what = format!("round {round}");
        // As they are seen in the fork, where its own are, too.
        let branches = || {
            let format = "--format=%(refname) %(objectname)";
            repo.git_in(&dir, &["for-each-ref", "refs/heads", format])
        };
        let tips = branches();
        let is_mounted = round % 4 != 3;
        if !is_mounted {
            tine.ok(&["unmount", "demo"]);
        }
        let stood = branch_of();
        let new = format!("new-{round}");
        // In turns to a branch that is there, to one that is made, and back by an undo.
        let (args, wanted): (Vec<&str>, Option<&str>) = match (round % 3, stood.as_str()) {
            (0, "topic") => (
                vec!["branch", "switch", "demo", "tine/demo"],
                Some("tine/demo"),
            ),
            (0, _) => (vec!["branch", "switch", "demo", "topic"], Some("topic")),
            (1, _) => {
                let at = if random.below(2) == 0 {
                    "topic"
                } else {
                    "main"
                };
                let args = vec!["branch", "switch", "demo", &new, "--create", "--at", at];
                (args, Some(&new))
            }
            _ => (vec!["undo", "demo"], None),
        };
        let moment = match random.below(2) {
            0 => Moment::Within(most),
            _ => Moment::After(&is_advancing, Duration::from_millis(60)),
        };
        let was_within = matches!(moment, Moment::Within(_));
        let reported = run_and_kill(&tine, &mut random, moment, tine.command(&args), b"");
        tine.ok(&["list"]);
        if !is_mounted {
            tine.ok(&["mount", "demo"]);
        }
        assert!(!is_advancing(), "{what}: what was begun is done");
        assert_agreement(&repo, &tine, "demo", "A\tbeside");
        assert_eq!(
            fs::read(dir.join("beside")).expect("it is there"),
            b"beside"
        );
        // What is in the mount is what HEAD has, byte by byte, not only as the index remembers it.
        repo.sh_in(
            &dir,
            "git update-index -q --really-refresh; git diff --quiet HEAD",
        );

        let stands = branch_of();
        let is_done = stands != stood;
        let said = format!(
            "{what}, {args:?}: {}{}",
            reported.text(),
            reported.error_text()
        );
        if let Some(wanted) = wanted {
            assert!(stands == wanted || !is_done, "{said}: on {stands}");
        }
        // No branch moves, and one is made only to be gone to.
        let after = branches();
        let is_made = after
            .lines()
            .any(|line| line.starts_with(&format!("refs/heads/{new} ")));
        assert_eq!(is_made, stands == new, "{said}");
        let rest: Vec<&str> = after
            .lines()
            .filter(|line| !line.starts_with(&format!("refs/heads/{new} ")))
            .collect();
        assert_eq!(rest.join("\n"), tips, "{said}");
        match is_done {
            true => done += 1,
            false => {
                undone += 1;
                let is_refused = reported.status.code() == Some(3);
                assert!(!reported.status.success() || is_refused, "{said}");
            }
        }
        if was_within {
            // So that about as many happen as do not.
            most = if is_done { most * 4 / 5 } else { most * 5 / 4 };
        }
    }
    println!("{done} switches happened, {undone} did not");
    tine.ok(&["branch", "switch", "demo", "tine/demo", "--merge"]);
    assert_agreement(&repo, &tine, "demo", "A\tbeside");
    repo.git(&["fsck", "--strict"]);
}
