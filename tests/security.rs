//! Who may reach the daemon and its store, and what may be asked of it.

mod support;

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use support::{
    OutputExt, TestRepo, Tine, is_root, require_fuse, require_program, require_root,
    run_with_timeout, soaking, wait_until,
};

const LIMIT: Duration = Duration::from_secs(30);

/// Exit codes, as `docs/errors.md` has them.
const USAGE: i32 = 2;
const ENVIRONMENT: i32 = 6;

/// A user who owns nothing here.
const STRANGER: u32 = 65534;

fn store_dir(repo: &TestRepo) -> PathBuf {
    repo.common_dir().join("tine")
}

fn connect(repo: &TestRepo) -> UnixStream {
    let stream =
        UnixStream::connect(store_dir(repo).join("daemon.sock")).expect("the daemon listens");
    stream
        .set_read_timeout(Some(LIMIT))
        .expect("a timeout can be set");
    stream
}

/// Sends a line and reads the answer's; empty where the daemon hung up.
fn ask(stream: &UnixStream, line: &[u8]) -> String {
    let mut output = stream;
    // The answer tells whether it was read.
    let _ = output
        .write_all(line)
        .and_then(|()| output.write_all(b"\n"));
    let mut answer = String::new();
    BufReader::new(stream)
        .read_line(&mut answer)
        .expect("the daemon answers or hangs up");
    answer
}

#[test]
fn a_planted_store_is_not_used() {
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let store = store_dir(&repo);
    let elsewhere = repo.root().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let refused = |why: &str| {
        let error = tine.fails(ENVIRONMENT, &["list"]);
        assert!(
            error.contains("is not your store") && error.contains(why),
            "{error}"
        );
        assert!(error.contains("hint:"), "{error}");
        assert_eq!(tine.daemon_pid(), None, "none was started");
    };

    symlink(&elsewhere, &store).unwrap();
    refused("it is not a directory");
    assert_eq!(
        fs::read_dir(&elsewhere).unwrap().count(),
        0,
        "nothing was written there"
    );
    fs::remove_file(&store).unwrap();

    // What a log in a planted store leads to is not appended to.
    let victim = repo.root().join("victim");
    fs::write(&victim, "mine\n").unwrap();
    fs::create_dir(&store).unwrap();
    symlink(&victim, store.join("daemon.log")).unwrap();
    fs::set_permissions(&store, Permissions::from_mode(0o777)).unwrap();
    refused("others may write into it (mode 777)");
    if is_root() {
        fs::set_permissions(&store, Permissions::from_mode(0o700)).unwrap();
        chown(&store, Some(STRANGER), None).unwrap();
        refused("it belongs to user 65534");
    }
    assert_eq!(fs::read_to_string(&victim).unwrap(), "mine\n");
    fs::remove_dir_all(&store).unwrap();
    tine.ok(&["list"]);
}

/// Another user's program: perl, with `script` and a socket to speak through.
fn by_stranger(script: &str, socket: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.arg(format!("--reuid={STRANGER}"));
    command.arg(format!("--regid={STRANGER}"));
    command
        .args(["--clear-groups", "perl", "-e", script])
        .arg(socket);
    command
}

#[test]
fn another_user_is_not_served() {
    require_program!("setpriv");
    require_program!("perl");
    require_root!("be another user");
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    tine.ok(&["daemon", "start"]);
    let socket = store_dir(&repo).join("daemon.sock");
    let as_stranger = || {
        // The answer may come, and the connection end, before anything is asked.
        let script = r#"use IO::Socket::UNIX;
$SIG{PIPE} = "IGNORE";
my $s = IO::Socket::UNIX->new($ARGV[0]) or do { print "closed: $!"; exit };
print $s "{\"protocol\":2,\"request\":\"list\",\"arguments\":{}}\n";
$s->flush;
print <$s>;"#;
        run_with_timeout(&mut by_stranger(script, &socket))
            .expect_success("setpriv")
            .text()
    };
    assert!(as_stranger().starts_with("closed"));
    // Somebody opens every door: the kernel's word about who connects still counts.
    for dir in socket
        .ancestors()
        .skip(1)
        .take_while(|dir| *dir != Path::new("/tmp") && *dir != Path::new("/"))
    {
        fs::set_permissions(dir, Permissions::from_mode(0o755)).unwrap();
    }
    fs::set_permissions(&socket, Permissions::from_mode(0o666)).unwrap();
    let answer = as_stranger();
    assert!(answer.contains("permission-denied"), "{answer}");
    tine.ok(&["list"]);
}

#[test]
fn commands_do_not_talk_to_the_daemon_of_another_user() {
    require_program!("setpriv");
    require_program!("perl");
    require_root!("be another user");
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    tine.ok(&["daemon", "start"]);
    tine.ok(&["daemon", "stop"]);
    // The stranger listens where the daemon would.
    let place = repo.root().join("place");
    fs::create_dir(&place).unwrap();
    chown(&place, Some(STRANGER), Some(STRANGER)).unwrap();
    fs::set_permissions(repo.root(), Permissions::from_mode(0o755)).unwrap();
    let script = r#"use IO::Socket::UNIX;
my $s = IO::Socket::UNIX->new(Local => $ARGV[0], Listen => 5) or die $!;
my $c = $s->accept or die $!;
print <$c>;"#;
    let planted = place.join("daemon.sock");
    let mut command = by_stranger(script, &planted);
    command.stdout(std::process::Stdio::piped());
    let listener = command.spawn().expect("setpriv runs");
    wait_until("the stranger listens", LIMIT, || planted.exists());
    fs::rename(&planted, store_dir(&repo).join("daemon.sock")).unwrap();
    // Between bind and listen nobody answers yet.
    wait_until("the command meets the stranger", LIMIT, || {
        tine.run(&["list"])
            .error_text()
            .contains("runs as another user")
    });
    let told = listener.wait_with_output().unwrap();
    assert_eq!(told.text(), "", "nothing was said to it");
}

#[test]
fn a_mount_place_that_another_user_could_exchange_is_refused() {
    require_root!("give a directory away");
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let root = repo.root().join("repo.forks");
    fs::create_dir(&root).unwrap();
    chown(&root, Some(STRANGER), None).unwrap();
    let error = tine.fails(USAGE, &["new", "demo"]);
    assert!(
        error.contains("user 65534 owns the directory around it"),
        "{error}"
    );
    assert_eq!(repo.git(&["branch", "--list", "tine/*"]), "");
}

/// Everything beneath `dir`, but not in the store, whose log grows.
fn names_beneath(dir: &Path) -> BTreeSet<PathBuf> {
    let mut names = BTreeSet::new();
    let mut rest = vec![dir.to_owned()];
    while let Some(dir) = rest.pop() {
        for entry in fs::read_dir(&dir).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() && entry.file_name() != "tine" {
                rest.push(entry.path());
            }
            names.insert(entry.path());
        }
    }
    names
}

fn new_request(fork: Value) -> Value {
    json!({"request": "new", "from": {"git_dir": "", "umask": 18},
        "arguments": {"fork": fork, "from": null, "branch": null, "at": null, "on_unmount": "keep"}})
}

/// Requests with one field that leads elsewhere, and the code that each is answered with.
fn hostile_requests(repo: &TestRepo) -> Vec<(Value, &'static str)> {
    let mut requests = Vec::new();
    let long = "x".repeat(65);
    let names = [
        "..",
        ".",
        "",
        "/",
        "a/b",
        "../x",
        "/etc",
        "-rf",
        "--help",
        "a\0b",
        "a\nb",
        "a\u{7f}",
        "ä",
        "a b",
        ".git",
        "x.lock",
        "a..b",
        "CON:",
        "\u{202e}x",
        &long,
    ];
    for name in names {
        requests.push((new_request(json!(name)), "usage"));
        requests.push((
            json!({"request": "show", "arguments": {"fork": name}}),
            "usage",
        ));
        requests.push((
            json!({"request": "delete", "arguments": {"fork": name, "force": true}}),
            "usage",
        ));
        requests.push((
            json!({"request": "changes", "arguments": {"fork": name, "write": true}}),
            "usage",
        ));
        requests.push((
            json!({"request": "log", "arguments": {"fork": name, "limit": 1}}),
            "usage",
        ));
    }
    for not_a_name in [
        json!(1),
        json!(null),
        json!(["demo"]),
        json!({"base64": "ZGVtbw=="}),
    ] {
        requests.push((new_request(not_a_name), "usage"));
    }
    let with = |key: &str, value: Value| {
        let mut request = new_request(json!("other"));
        request["from"]["git_dir"] = json!(repo.git_dir());
        request["arguments"][key] = value;
        request
    };
    let with_from = |key: &str, value: Value| {
        let mut request = with("from", json!(null));
        request["from"][key] = value;
        request
    };
    for git_dir in [
        "/",
        "/etc",
        "relative",
        "",
        "/dev/null",
        "/proc/self/fd",
        "/a\0b",
    ] {
        let mut request = with_from("git_dir", json!(git_dir));
        request["arguments"]["from"] = json!("HEAD");
        requests.push((request, "any"));
    }
    for from in [
        "",
        "--all",
        "-x",
        "HEAD\nHEAD",
        "HEAD\0",
        "../../etc/passwd",
        ":/",
        "@{-1}",
        "HEAD^{/x}",
        "refs/../../x",
    ] {
        requests.push((with("from", json!(from)), "any"));
    }
    for branch in [
        "",
        "-x",
        "--delete",
        "../x",
        "a..b",
        "/x",
        "x/",
        "HEAD",
        "a\0b",
        "a\nb",
        "x.lock",
        "refs/heads/../../config",
        "@{u}",
        "a b",
    ] {
        requests.push((with("branch", json!(branch)), "any"));
    }
    let inside = [
        repo.dir().join("x"),
        repo.git_dir().join("x"),
        repo.git_dir().join("tine/x"),
    ];
    for dir in inside {
        requests.push((with("at", json!(dir)), "mount-dir-refused"));
        requests.push((
            json!({"request": "mount", "arguments": {"fork": "demo", "at": dir, "allow_other": false}}),
            "mount-dir-refused",
        ));
    }
    let dirs = [
        json!("relative"),
        json!(""),
        json!("/no/such/../x"),
        json!("/a\0b"),
        json!({"base64": "!"}),
        json!(7),
        json!("/proc/self/x"),
        json!("/dev/null"),
        json!("/etc/passwd/x"),
        json!(repo.dir()),
        json!(repo.root()),
        json!("x/".repeat(4096)),
        json!(format!("/{}", "y".repeat(300))),
    ];
    for dir in dirs {
        requests.push((with("at", dir.clone()), "any"));
        requests.push((
            json!({"request": "mount", "arguments": {"fork": "demo", "at": dir, "allow_other": false}}),
            "any",
        ));
    }
    requests.push((
        json!({"request": "log", "arguments": {"fork": "demo", "limit": -1}}),
        "usage",
    ));
    requests.push((
        json!({"request": "log", "arguments": {"fork": "demo", "limit": 1e300}}),
        "usage",
    ));
    requests.push((with_from("umask", json!(70000)), "usage"));
    requests.push((
        json!({"request": "run", "arguments": {"command": "id"}}),
        "usage",
    ));
    requests
}

#[test]
fn no_request_reaches_outside() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    tine.ok(&["unmount", "demo"]);
    symlink(repo.dir(), repo.root().join("leads-inside")).unwrap();
    let pid = tine.daemon_pid();
    let before = names_beneath(repo.root());
    let refs = repo.git(&["for-each-ref"]);
    let stream = connect(&repo);
    let mut requests = hostile_requests(&repo);
    requests.push((
        json!({"request": "mount", "arguments": {"fork": "demo", "at": repo.root().join("leads-inside/x"), "allow_other": false}}),
        "mount-dir-refused",
    ));
    for (mut request, code) in requests {
        request["protocol"] = json!(2);
        let answer = ask(&stream, request.to_string().as_bytes());
        let answer: Value = serde_json::from_str(&answer)
            .unwrap_or_else(|error| panic!("{request}: {error}: {answer}"));
        let found = answer.pointer("/error/code").and_then(Value::as_str);
        match (code, found) {
            ("any", Some("internal")) | (_, None) => panic!("{request}: {answer}"),
            ("any", Some(_)) => {}
            (expected, Some(found)) => assert_eq!(found, expected, "{request}: {answer}"),
        }
    }
    assert_eq!(names_beneath(repo.root()), before, "nothing came or went");
    assert_eq!(repo.git(&["for-each-ref"]), refs);
    assert_eq!(tine.daemon_pid(), pid);

    // A message or an identity cannot smuggle headers into a commit.
    tine.ok(&["mount", "demo"]);
    fs::write(dir.join("new.txt"), "new\n").unwrap();
    let smuggler = "A\nparent 0000000000000000000000000000000000000000\nB";
    let identity = json!({"name": smuggler, "email": "e>\ngpgsig x", "time": null});
    let request = json!({"protocol": 2, "request": "commit", "from": {"author": identity, "committer": identity}, "arguments": {"fork": "demo", "message": "m"}});
    ask(&stream, request.to_string().as_bytes());
    let request = json!({"protocol": 2, "request": "commit", "arguments": {"fork": "demo", "message": "m\0n"}});
    assert!(ask(&stream, request.to_string().as_bytes()).contains("\"error\""));
    let commit = repo.git(&["cat-file", "commit", "tine/demo"]);
    let headers: Vec<&str> = commit
        .lines()
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert_eq!(
        headers,
        ["tree", "parent", "author", "committer"],
        "{commit}"
    );
    repo.git(&["fsck", "--strict"]);
}

#[test]
fn the_names_in_git_that_a_fork_may_not_have_are_refused_on_the_command_line() {
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    for name in ["..", "a/b", "-x", ".hidden", "a..b", "x.lock", "ä"] {
        let output = tine.run(&["new", "--no-mount", "--", name]);
        assert_eq!(
            output.status.code(),
            Some(USAGE),
            "{name}: {}",
            output.error_text()
        );
        assert!(
            output.error_text().contains("hint:"),
            "{}",
            output.error_text()
        );
    }
    assert_eq!(names_beneath(&repo.git_dir().join("refs/heads")).len(), 1);
}

#[test]
fn paths_of_a_diff_stay_in_the_fork() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    fs::write(dir.join("new.txt"), "new\n").unwrap();
    for path in [
        "../..",
        "/etc/passwd",
        "../../../../../../etc/passwd",
        ":(top)../x",
    ] {
        let output = tine.run(&["diff", "demo", "--", path]);
        assert!(!output.text().contains("root:"), "{}", output.text());
        assert!(
            !output.error_text().contains("panicked"),
            "{}",
            output.error_text()
        );
    }
}

#[test]
fn silent_and_half_finished_clients_are_bounded() {
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    tine.ok(&["daemon", "start"]);
    let pid = tine.daemon_pid();
    // Half a request, and one that announces more than it sends.
    let mut half = connect(&repo);
    half.write_all(b"{\"protocol\":1,\"request\":\"li").unwrap();
    let silent: Vec<UnixStream> = (0..511).map(|_| connect(&repo)).collect();
    // What is one too many is told so and let go.
    let mut turned_away = 0;
    for _ in 0..50 {
        let answer = ask(&connect(&repo), b"{\"protocol\":1,\"request\":\"list\"}");
        assert!(answer.contains("\"busy\""), "{answer}");
        turned_away += 1;
    }
    assert_eq!(turned_away, 50);
    let error = tine.fails(5, &["list"]);
    assert!(error.contains("512 programs are connected"), "{error}");
    if soaking() {
        // Who says nothing at first is not waited for for ever.
        wait_until("there is room again", LIMIT, || {
            tine.run(&["list"]).status.success()
        });
    }
    drop(silent);
    drop(half);
    wait_until("there is room again", LIMIT, || {
        tine.run(&["list"]).status.success()
    });
    assert_eq!(tine.daemon_pid(), pid);
}

#[test]
fn random_bytes_on_the_socket_do_no_harm() {
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    tine.ok(&["daemon", "start"]);
    let pid = tine.daemon_pid();
    let (mut random, seed) = support::Random::from_environment("TINE_FUZZ_SEED");
    println!("TINE_FUZZ_SEED={seed}");
    // No request here changes anything, whatever becomes of it.
    let valid = [
        json!({"protocol": 2, "request": "show", "arguments": {"fork": "demo"}}).to_string(),
        json!({"protocol": 2, "request": "changes", "arguments": {"fork": "demo", "write": false}})
            .to_string(),
        json!({"protocol": 2, "request": "log", "arguments": {"fork": "demo", "limit": 3}})
            .to_string(),
        json!({"protocol": 2, "request": "figures", "arguments": {}}).to_string(),
    ];
    for _ in 0..if soaking() { 20_000 } else { 500 } {
        let mut line = match random.below(3) {
            0 => {
                let len = random.below(300) as usize;
                random.bytes(len)
            }
            _ => valid[random.below(valid.len() as u64) as usize]
                .clone()
                .into_bytes(),
        };
        for _ in 0..random.below(4) {
            if !line.is_empty() {
                let at = random.below(line.len() as u64) as usize;
                line[at] = random.next() as u8;
            }
        }
        line.retain(|byte| *byte != b'\n');
        let answer = ask(&connect(&repo), &line);
        let answer: Value = serde_json::from_str(&answer)
            .unwrap_or_else(|error| panic!("{error}: {answer:?} to {line:?}"));
        assert_ne!(
            answer.pointer("/error/code"),
            Some(&json!("internal")),
            "{answer}"
        );
    }
    assert_eq!(tine.daemon_pid(), pid);
}

#[test]
fn root_leaves_no_daemon_and_no_files_in_another_users_repository() {
    require_program!("setpriv");
    require_root!("be root in another user's repository");
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    // Asked now: git as root answers nothing in another user's repository.
    let (store, config) = (store_dir(&repo), repo.common_dir().join("config"));
    run_with_timeout(
        Command::new("chown")
            .args(["-R", &format!("{STRANGER}:{STRANGER}")])
            .arg(repo.dir()),
    )
    .expect_success("chown");
    let as_root = |args: &[&str]| {
        let mut command = tine.command(args);
        command
            .env("GIT_CONFIG_COUNT", "1")
            .env("GIT_CONFIG_KEY_0", "safe.directory")
            .env("GIT_CONFIG_VALUE_0", "*")
            .env("SUDO_UID", STRANGER.to_string());
        run_with_timeout(&mut command)
    };
    let refused = as_root(&["new", "one", "--no-mount"]);
    assert!(!refused.status.success(), "{}", refused.text());
    assert!(
        refused.error_text().contains("sudo -u"),
        "{}",
        refused.error_text()
    );
    assert!(!store.exists(), "no store was made");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("{text}[tine]\n\tasRoot = true\n")).unwrap();
    let served = as_root(&["new", "one", "--no-mount"]);
    assert!(served.status.success(), "{}", served.error_text());
}
