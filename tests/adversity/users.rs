//! Users who may not: read the repository, write its store, open `/dev/fuse`.

use std::ffi::OsString;
use std::fs;
use std::process::Command;

use crate::states::assert_doctor_helps;
use crate::support::{
    OutputExt, TestRepo, Tine, require_fuse, require_program, require_root, run_with_timeout, skip,
    test_name,
};
use crate::{Tried, World};

/// Runs what follows as nobody.
const AS_NOBODY: [&str; 4] = [
    "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
];

/// The same, who trusts every repository.
fn as_nobody(repo: &TestRepo) -> Vec<OsString> {
    let global = repo.home().join("trusting");
    fs::write(&global, "[safe]\n\tdirectory = *\n").expect("the home can be written");
    let mut runner: Vec<OsString> = AS_NOBODY.iter().map(OsString::from).collect();
    runner.push("env".into());
    runner.push(format!("GIT_CONFIG_GLOBAL={}", global.display()).into());
    runner
}

fn change(repo: &TestRepo, program: &str, how: &[&str]) {
    run_with_timeout(Command::new(program).args(how).arg(repo.root())).expect_success(program);
}

/// Whether nobody can run the program at all.
fn can_run(world: &World<'_>) -> bool {
    world.run(&["--version".into()]).status.success()
}

#[test]
fn a_repository_that_may_not_be_read() {
    require_root!("become another user");
    require_program!("setpriv");
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let world = World {
        runner: as_nobody(&repo),
        ..World::new(&repo)
    };
    for place in [repo.dir(), &repo.common_dir()] {
        run_with_timeout(Command::new("chmod").args(["-R", "go-rwx"]).arg(place))
            .expect_success("chmod");
    }
    if !can_run(&world) {
        skip(test_name!(), "another user cannot run the program");
        return;
    }
    for (subject, tried) in world.try_all(18) {
        let needs_none =
            ["completions", "doctor", "man", "shell-init"].contains(&subject.name().as_str());
        assert!(
            needs_none || tried.code() == "permission-denied",
            "{}: {tried:?}",
            subject.name()
        );
    }
    assert_doctor_helps(&world, "repository");
    assert_eq!(tine.daemon_pid(), None);
}

#[test]
fn a_store_that_may_not_be_written() {
    require_fuse!();
    require_root!("become another user");
    require_program!("setpriv");
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    tine.ok(&["new", "demo", "--no-mount"]);
    tine.ok(&["daemon", "stop"]);
    change(&repo, "chmod", &["-R", "a+rX"]);
    let world = World {
        runner: as_nobody(&repo),
        ..World::new(&repo)
    };
    if !can_run(&world) {
        skip(test_name!(), "another user cannot run the program");
        return;
    }
    for (subject, tried) in world.try_all(19) {
        if let Tried::Failed(error) = &tried {
            assert_ne!(
                tried.code(),
                "daemon-unreachable",
                "{}: {error}",
                subject.name()
            );
        }
    }
    assert_doctor_helps(&world, "store");
    assert_eq!(tine.daemon_pid(), None);
}

#[test]
fn a_device_that_may_not_be_opened() {
    require_fuse!();
    require_root!("become another user");
    require_program!("setpriv");
    require_program!("unshare");
    let repo = TestRepo::new();
    let _tine = Tine::new(&repo);
    let world = World::new(&repo);
    let nobody = as_nobody(&repo);
    change(&repo, "chown", &["-R", "65534:65534"]);
    let script = "mount -t tmpfs none /mnt && mknod -m 600 /mnt/fuse c 10 229 && mount --bind /mnt/fuse /dev/fuse && exec \"$@\"";
    let mut runner: Vec<OsString> = ["unshare", "--mount", "sh", "-euc", script, "sh"]
        .iter()
        .map(OsString::from)
        .collect();
    runner.extend(nobody);
    let world = World { runner, ..world };
    if !can_run(&world) {
        skip(
            test_name!(),
            "another user cannot run the program, or no mount namespace can be made",
        );
        return;
    }
    for (subject, tried) in world.try_all(20) {
        if subject.name() == "new" {
            assert!(
                ["fuse-not-permitted", "no-fusermount"].contains(&tried.code()),
                "{tried:?}"
            );
        }
    }
    assert_doctor_helps(&world, "fuse");
    world.assert_no_panic_in_log();
}
