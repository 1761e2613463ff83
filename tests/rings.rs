//! FUSE over io_uring: forks whose requests come through rings, where the kernel has them switched
//! on. The other test programs run over rings as well with `TINE_TEST_TRANSPORT=ring`.

mod support;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use support::{
    OutputExt, TestRepo, Tine, path_text, require_fuse, require_program, require_root,
    run_with_timeout, skip_optional, test_name, wait_until,
};

const PATIENCE: Duration = Duration::from_secs(30);

/// Why no mount can be served through rings here; `None` where they can.
fn rings_missing() -> Option<String> {
    let file = "/sys/module/fuse/parameters/enable_uring";
    match fs::read_to_string(file) {
        Ok(text) if text.trim() == "Y" => None,
        Ok(text) => Some(format!("{file} is {}", text.trim())),
        Err(error) => Some(format!("{file}: {error}")),
    }
}

/// Returns from the test with a `SKIP` line where the kernel has no rings, which few have today.
macro_rules! require_rings {
    () => {
        require_fuse!();
        if let Some(reason) = rings_missing() {
            return skip_optional(test_name!(), &reason);
        }
    };
}

fn choose(repo: &TestRepo, transport: &str) {
    repo.git(&["config", "tine.transport", transport]);
}

/// How requests to the fork come, as `tine daemon status` has it.
#[track_caller]
fn transport_of(tine: &Tine<'_>, fork: &str) -> String {
    let status = tine.json(&["daemon", "status"]);
    let mounted = status["mounted"].as_array().expect("it is a list");
    let mount = mounted.iter().find(|mount| mount["fork"] == fork);
    mount.expect("it is mounted")["transport"]
        .as_str()
        .expect("it is a word")
        .to_owned()
}

/// One figure of `tine daemon status`.
fn figure(tine: &Tine<'_>, key: &str) -> u64 {
    tine.json(&["daemon", "status"])[key]
        .as_u64()
        .expect("it is a number")
}

/// Runs a shell script in `dir`, on one CPU: all its requests go to one queue.
fn on_one_cpu(dir: &Path, script: &str) -> Command {
    let mut command = Command::new("taskset");
    command
        .args(["-c", "0", "sh", "-ec", script])
        .current_dir(dir);
    command
}

#[test]
fn requests_come_as_is_chosen() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let has_rings = rings_missing().is_none();
    choose(&repo, "device");
    tine.new_fork("one");
    assert_eq!(transport_of(&tine, "one"), "device");
    let text = tine.ok(&["daemon", "status"]);
    assert!(text.contains("served through /dev/fuse    one"), "{text}");

    choose(&repo, "auto");
    tine.new_fork("two");
    assert_eq!(
        transport_of(&tine, "two"),
        if has_rings { "ring" } else { "device" }
    );

    choose(&repo, "ring");
    if has_rings {
        tine.new_fork("three");
        assert_eq!(transport_of(&tine, "three"), "ring");
        let text = tine.ok(&["daemon", "status"]);
        assert!(
            text.contains("served through io_uring     three, two"),
            "{text}"
        );
    } else {
        let message = tine.fails(1, &["new", "three"]);
        assert!(
            message.contains("requests cannot come through io_uring"),
            "{message}"
        );
        assert!(
            message.contains("hint: ") && message.contains("tine.transport"),
            "{message}"
        );
    }

    choose(&repo, "pigeon");
    let message = tine.fails(1, &["new", "four"]);
    assert!(
        message.contains(r#"tine.transport is "pigeon""#),
        "{message}"
    );
    assert!(
        message.contains("none of auto, device and ring"),
        "{message}"
    );
}

#[test]
fn programs_work_over_rings() {
    require_rings!();
    let repo = TestRepo::new();
    choose(&repo, "ring");
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("one");
    let script = r#"
        head -c 3500000 /dev/urandom > "$HOME/large"
        cp "$HOME/large" large
        dd if="$HOME/large" of=by-large-blocks bs=1M conv=fsync status=none
        cp large copy
        for file in large by-large-blocks copy; do cmp "$HOME/large" $file; done
        mkdir many
        for i in $(seq 2000); do echo $i > many/$i; done
        test $(ls many | wc -l) = 2000
        mv many more
        test "$(cat more/1999)" = 1999
        ln more/1 second && ln -s second third && test "$(cat third)" = 1
        truncate -s 100 large && test $(stat -c %s large) = 100
        touch -d 1960-01-01T00:00:00.25Z old && test $(stat -c %.Y old) = -315619199.750000000
        rm -r more copy third
        ! test -e more
    "#;
    run_with_timeout(on_one_cpu(&dir, script).env("HOME", repo.root().join("home")))
        .expect_success(script);
    tine.ok(&["daemon", "stop"]);
    tine.ok(&["mount", "one"]);
    let script = r#"test $(stat -c %s large) = 100; test "$(cat second)" = 1; cmp "$HOME/large" by-large-blocks"#;
    run_with_timeout(on_one_cpu(&dir, script).env("HOME", repo.root().join("home")))
        .expect_success(script);
    let counted = tine.json(&["daemon", "status"])["mounted"][0]["requests"]["read"].as_u64();
    assert!(counted > Some(0), "{counted:?}");
}

/// A filter that waits runs for a lookup, a read and whatever else; everybody else on the CPU goes
/// on.
#[test]
fn what_takes_long_holds_nobody_up() {
    require_rings!();
    require_program!("taskset");
    let repo = TestRepo::new();
    let go = repo.root().join("go");
    let begun = repo.root().join("begun");
    let smudge = format!(
        "touch {}; while ! test -e {}; do sleep 0.02; done; cat",
        path_text(&begun),
        path_text(&go)
    );
    repo.write(".gitattributes", "*.slow filter=slow\n");
    repo.write("a.slow", "slow text\n");
    repo.write("quick", "quick text\n");
    repo.write("dir/file", "");
    repo.commit_all("slow");
    repo.git(&["config", "filter.slow.smudge", &smudge]);
    choose(&repo, "ring");
    let tine = Tine::new(&repo);
    fs::write(&go, "").unwrap();
    let dir = tine.new_fork("one");
    // Another daemon remembers nothing of it.
    tine.ok(&["daemon", "stop"]);
    fs::remove_file(&go).unwrap();
    let _ = fs::remove_file(&begun);
    tine.ok(&["mount", "one"]);
    assert_eq!(transport_of(&tine, "one"), "ring");

    let mut waiting: Vec<_> = (0..3)
        .map(|_| {
            let mut command = on_one_cpu(&dir, "cat a.slow");
            command.stdout(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    wait_until("the filter runs", PATIENCE, || begun.exists());
    // A signal that nobody may take an answer for.
    run_with_timeout(Command::new("kill").args(["-WINCH", &waiting[0].id().to_string()]));
    for i in 0..20 {
        let script = format!("cat quick; ls dir; test ! -e missing{i}");
        let output = run_with_timeout(&mut on_one_cpu(&dir, &script));
        assert_eq!(output.text(), "quick text\nfile");
    }
    assert!(
        waiting
            .iter_mut()
            .all(|child| child.try_wait().unwrap().is_none())
    );
    fs::write(&go, "").unwrap();
    for child in waiting {
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "slow text\n");
    }
}

#[test]
fn nothing_is_left_of_mounts_that_ended() {
    require_rings!();
    let repo = TestRepo::new();
    choose(&repo, "ring");
    let tine = Tine::new(&repo);
    let names: Vec<String> = (0..12).map(|i| format!("fork{i}")).collect();
    let mut before = None;
    for round in 0..3 {
        for name in &names {
            let verb = if round == 0 { "new" } else { "mount" };
            tine.ok(&[verb, name]);
            assert_eq!(transport_of(&tine, name), "ring");
        }
        for name in &names {
            let dir = tine.ok(&["path", name]);
            let script = "head -c 2000000 /dev/zero > large; cat large > /dev/null; ls > /dev/null";
            run_with_timeout(&mut on_one_cpu(Path::new(&dir), script)).expect_success(name);
            tine.ok(&["unmount", name, "--keep"]);
        }
        let left = || (figure(&tine, "threads"), figure(&tine, "open_files"));
        let before = *before.get_or_insert_with(left);
        wait_until("threads and descriptors are given back", PATIENCE, || {
            let now = left();
            now.0 <= before.0 && now.1 <= before.1
        });
    }
}

#[test]
fn a_connection_that_is_cut_off_ends_its_rings() {
    require_rings!();
    require_root!("abort a connection");
    let repo = TestRepo::new();
    choose(&repo, "ring");
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("one");
    let threads = figure(&tine, "threads");
    let control = repo.root().join("control");
    fs::create_dir(&control).unwrap();
    let script = r#"
        mount -t fusectl none "$0"
        echo 1 > "$0/$(stat -c %Ld "$1")/abort"
        umount "$0"
    "#;
    let abort = ["-ec", script, path_text(&control), path_text(&dir)];
    run_with_timeout(Command::new("sh").args(abort)).expect_success(script);
    wait_until("the rings have ended", PATIENCE, || {
        figure(&tine, "threads") < threads
    });
    tine.ok(&["mount", "one"]);
    assert_eq!(transport_of(&tine, "one"), "ring");
    run_with_timeout(&mut on_one_cpu(&dir, "echo text > file")).expect_success("write");
    tine.kill_daemon();
    tine.ok(&["mount", "one"]);
    assert_eq!(fs_text(&dir.join("file")), "text");
}

/// Read by another process, as one that hangs can be given up.
fn fs_text(file: &Path) -> String {
    run_with_timeout(Command::new("cat").arg(file)).text()
}
