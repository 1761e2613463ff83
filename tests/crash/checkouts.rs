//! Kills while a merge moves the main checkout.

use std::time::Duration;

use super::merges::{Moment, run_and_kill};
use super::{names_in, rounds, seeded};
use crate::support::{TestRepo, Tine, require_fuse};

#[test]
fn invariant_14_a_checkout_whose_move_is_killed_has_moved_or_not() {
    require_fuse!();
    let (mut random, _say) = seeded();
    let repo = TestRepo::new().without_maintenance();
    let tine = Tine::new(&repo);
    // Somebody works in the checkout, beside what is merged.
    repo.sh_in(
        repo.dir(),
        "echo mine >> run.sh; echo own > own; echo staged > staged; git add staged",
    );
    let uncommitted = " M run.sh\nA  staged\n?? own";
    let moves = repo.common_dir().join("tine/moves");
    let is_moving = || names_in(&moves).iter().any(|name| name.ends_with(".json"));
    let mut most = Duration::from_millis(600);
    let (mut done, mut undone) = (0, 0);
    for round in 0..rounds() {
        let what = format!("round {round}");
        let name = format!("work-{round}");
        let work = tine.new_fork(&name);
        repo.sh_in(
            &work,
            &format!(
                "mkdir -p many/{round}; for i in $(seq 300); do seq $i 400 > many/{round}/$i; done
                 rm -rf many/{old} link; ln -s {round} link; echo {round} >> README.md
                 if test -d kind; then rm -r kind; echo file > kind; else rm -f kind; mkdir kind; echo in > kind/in; fi",
                old = round.wrapping_sub(1)
            ),
        );
        tine.ok(&["commit", &name, "-m", &what]);
        let (before, theirs) = (
            repo.head(),
            repo.git(&["rev-parse", &format!("tine/{name}")]),
        );
        let moment = match random.below(3) {
            0 => Moment::Within(most),
            _ => Moment::After(&is_moving, Duration::from_millis(120)),
        };
        let was_within = matches!(moment, Moment::Within(_));
        let command = tine.command(&["merge", &name, "--into", "main"]);
        let reported = run_and_kill(&tine, &mut random, moment, command, b"");
        tine.ok(&["list"]);
        assert!(!is_moving(), "{what}: what was begun is done");
        assert_eq!(repo.status(repo.dir()), uncommitted, "{what}");
        // Byte by byte, not only as the index remembers it.
        repo.sh_in(repo.dir(), "git update-index -q --really-refresh || true");
        assert_eq!(repo.status(repo.dir()), uncommitted, "{what}");
        let after = repo.head();
        if after == before {
            undone += 1;
            most = most * 5 / 4;
            assert!(
                !reported.status.success(),
                "{what}: a merge was reported that did not happen"
            );
            tine.ok(&["merge", &name, "--into", "main"]);
        } else {
            done += 1;
            if was_within {
                most = most * 4 / 5;
            }
        }
        repo.git(&["merge-base", "--is-ancestor", &theirs, "main"]);
        assert_eq!(repo.status(repo.dir()), uncommitted, "{what}");
        assert_eq!(
            names_in(&repo.dir().join(format!("many/{round}"))).len(),
            300,
            "{what}"
        );
        let left = repo.sh_in(
            &repo.common_dir(),
            "find . -name '*.lock' -o -name 'index.tine*'",
        );
        assert_eq!(left, "", "{what}");
        tine.ok(&["delete", &name]);
    }
    println!("{done} moves happened, {undone} did not");
    repo.git(&["fsck", "--strict"]);
}
