//! Times, which are printed only.

use super::*;
use std::time::Instant;

#[test]
fn times_of_taking_over() {
    let main = main_repository();
    let tip = main.id_of("HEAD");
    let mut lines = "# pack-refs with: peeled fully-peeled sorted \n".to_owned();
    for n in 100_000..201_000 {
        lines.push_str(&format!("{tip} refs/remotes/origin/branch-{n}\n"));
    }
    fs::write(main.dir().join(".git/packed-refs"), lines).unwrap();
    let fork = Fork::new(&main, "f");
    let repository = main.open();
    fork.try_take(&repository).unwrap();
    let time = |what: &str| {
        let started = Instant::now();
        let taken = fork.try_take(&repository).unwrap();
        println!("{what}: {:?}", started.elapsed());
        assert_eq!(taken.rejected, []);
    };
    time("idle");
    time("idle again");
    for round in 0..3 {
        for count in [1, 10, 90, 100, 400] {
            for n in 0..count {
                fork.write(&format!("d{count}/{n}"), format!("{count} {round} {n}\n"));
            }
            fork.commit("files");
            time(&format!("{count} files"));
        }
        fork.git(&["branch", "-q", "-f", "other", "HEAD~1"]);
        time("a branch");
        fork.git(&["commit", "-q", "--amend", "-m", "amended"]);
        time("amend");
    }
    time("idle");
    fork.assert_same();
}
