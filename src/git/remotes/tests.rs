use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use super::*;

fn finished(code: i32, stdout: &str, stderr: &str) -> Finished {
    Finished {
        status: ExitStatus::from_raw(code << 8),
        stdout: stdout.as_bytes().to_vec(),
        stderr: stderr.as_bytes().to_vec(),
    }
}

fn outcome_of(code: i32, stdout: &str, stderr: &str) -> Result<Pushed, GitError> {
    push_result("origin", "demo", &finished(code, stdout, stderr))
}

#[test]
fn what_git_says_of_a_push_is_understood() {
    let line = |flag: &str, reason: &str| {
        format!("To ../hub.git\n{flag}\t1234:refs/tine/forks/demo\t{reason}\nDone\n")
    };
    let moved = line("*", "[new reference]");
    assert_eq!(outcome_of(0, &moved, "").unwrap(), Pushed::Moved);
    let same = line("=", "[up to date]");
    assert_eq!(outcome_of(0, &same, "").unwrap(), Pushed::Unchanged);
    for reason in [
        "[rejected] (stale info)",
        "[remote rejected] (cannot lock ref 'refs/tine/forks/demo': is at 1 but expected 2)",
        "[remote rejected] (incorrect old value provided)",
    ] {
        assert_eq!(
            outcome_of(1, &line("!", reason), "").unwrap(),
            Pushed::Stale
        );
    }
    let refused = outcome_of(
        1,
        &line("!", "[remote rejected] (pre-receive hook declined)"),
        "remote: not on Fridays        \nerror: failed to push some refs\n",
    );
    let Err(GitError::RemoteRefused { said, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(
        said,
        [
            "remote: not on Fridays",
            "[remote rejected] (pre-receive hook declined)"
        ]
    );
}

#[test]
fn who_may_not_is_told_from_what_is_not_there() {
    let denied =
        "git@host: Permission denied (publickey).\nfatal: Could not read from remote repository.\n";
    let denied = outcome_of(128, "", denied);
    assert!(
        matches!(denied, Err(GitError::RemoteDenied { .. })),
        "{denied:?}"
    );
    let denied = outcome_of(
        1,
        "!\t1:refs/tine/forks/demo\t[remote rejected] (unpacker error)\n",
        "remote: error: insufficient permission for adding an object to repository database ./objects\n",
    );
    assert!(
        matches!(denied, Err(GitError::RemoteDenied { .. })),
        "{denied:?}"
    );
    let away = outcome_of(128, "", "fatal: unable to access: Could not resolve host\n");
    assert!(
        matches!(away, Err(GitError::RemoteUnreachable { .. })),
        "{away:?}"
    );
    let hook = outcome_of(1, "", "no\nerror: failed to push some refs to 'x'\n");
    assert!(matches!(hook, Err(GitError::PushHook { .. })), "{hook:?}");
}
