use std::fs;

use super::*;
use crate::Head;
use crate::testing::TestRepository;

/// A repository and a worktree of it, whose checkout has nothing but its `.git`.
fn sample(name: &str) -> (TestRepository, Repository, Worktree, String) {
    let test = TestRepository::new();
    test.write("f", "one");
    test.commit("one");
    let repository = test.open();
    let head = Head::Detached {
        commit_id: test.id_of("HEAD"),
    };
    let dir = test.dir().parent().unwrap().join(name);
    let worktree = Worktree::register(&repository, "demo", &dir, &head, "x").unwrap();
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join(".git"), worktree.dot_git()).unwrap();
    let dir = dir.to_str().unwrap().to_owned();
    test.git(&["-C", &dir, "reset", "-q", "--hard"]);
    (test, repository, worktree, dir)
}

#[test]
fn git_runs_the_command_whatever_its_place_is_called() {
    let (test, repository, worktree, dir) = sample("it's a \"place\" $HOME;#");
    let said = Path::new(&dir).join("said");
    let program = Path::new(&dir).join("ask");
    fs::write(
        &program,
        format!(
            "#!/bin/sh\nprintf '%s|' \"$@\" >> \"{}\"\nprintf 'token\\0'\n",
            "said"
        ),
    )
    .unwrap();
    fs::set_permissions(
        &program,
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let command = monitor_command(&[program.as_os_str(), OsStr::new("it's")]).unwrap();
    assert!(worktree.set_monitor(&repository, &command).unwrap());
    test.git(&["-C", &dir, "status"]);
    let said = fs::read_to_string(said).unwrap();
    assert!(said.starts_with("it's|2|"), "{said}");

    // A program that is gone makes no noise, and git looks for itself.
    fs::remove_file(&program).unwrap();
    let status = test.try_git(&["-C", &dir, "status", "--porcelain"], b"");
    assert_eq!(String::from_utf8_lossy(&status.stderr), "");
    assert_eq!(String::from_utf8_lossy(&status.stdout), "?? said\n");
}

#[test]
fn what_somebody_set_in_the_worktree_stays() {
    let (test, repository, worktree, dir) = sample("demo");
    let command = |program: &str| monitor_command(&[OsStr::new(program)]).unwrap();
    let set = || test.git(&["-C", &dir, "config", "--default", "none", "core.fsmonitor"]);
    worktree.update_monitor(&command("/never/set")).unwrap();
    assert_eq!(set(), "none");
    worktree
        .set_monitor(&repository, &command("/old/tine"))
        .unwrap();
    worktree.update_monitor(&command("/new/tine")).unwrap();
    assert_eq!(set(), "exec '/new/tine' 2>/dev/null");
    let remote = || {
        test.git(&[
            "-C",
            &dir,
            "config",
            "--default",
            "none",
            "fsmonitor.allowRemote",
        ])
    };
    assert_eq!(remote(), "true", "git takes FUSE for a remote file system");
    // One that an older tine made has no such key.
    test.git(&[
        "-C",
        &dir,
        "config",
        "--worktree",
        "--unset",
        "fsmonitor.allowRemote",
    ]);
    worktree.update_monitor(&command("/new/tine")).unwrap();
    assert_eq!(remote(), "true");
    test.git(&[
        "-C",
        &dir,
        "config",
        "--worktree",
        "fsmonitor.allowRemote",
        "false",
    ]);
    worktree.update_monitor(&command("/new/tine")).unwrap();
    assert_eq!(remote(), "false");
    for own in ["false", "true", "/my/hook"] {
        test.git(&["-C", &dir, "config", "--worktree", "core.fsmonitor", own]);
        worktree.update_monitor(&command("/newer/tine")).unwrap();
        assert_eq!(set(), own);
    }
    test.git(&[
        "-C",
        &dir,
        "config",
        "--worktree",
        "--unset",
        "core.fsmonitor",
    ]);
    worktree.update_monitor(&command("/newer/tine")).unwrap();
    assert_eq!(set(), "none");
    let main = test.git(&["config", "--default", "none", "core.fsmonitor"]);
    assert_eq!(main, "none", "the main worktree is left alone");
}

#[test]
fn a_repository_whose_other_worktrees_would_notice_is_left_as_it_is() {
    let command = monitor_command(&[OsStr::new("/tine")]).unwrap();
    let refuses = |prepare: &dyn Fn(&TestRepository)| {
        let (test, repository, worktree, dir) = sample("demo");
        prepare(&test);
        assert!(!worktree.set_monitor(&repository, &command).unwrap());
        let set = |key| test.git(&["-C", &dir, "config", "--default", "none", key]);
        assert_eq!(set(EXTENSION), "none");
        assert_eq!(set("core.fsmonitor"), "none");
    };
    refuses(&|test| drop(test.git(&["config", "core.worktree", test.dir().to_str().unwrap()])));
    refuses(&|test| {
        fs::write(
            test.dir().join(".git/config.worktree"),
            "[user]\nname = x\n",
        )
        .unwrap()
    });
    assert!(monitor_command(&[OsStr::new("line\nbreak")]).is_none());
}
