//! `tine exec --at-origin`: the fork stands at the main checkout's path, for the command alone.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use crate::support::repo::path_text;
use crate::support::{
    OutputExt, TestRepo, Tine, mounts_beneath, require_fuse, require_namespace, require_program,
    require_root, run_with_timeout, run_with_timeout_of, skip, skip_optional, test_name,
    wait_until,
};
use crate::{failure_of, names_in, state};

/// With the fork `demo`, and where that is mounted.
fn demo(repo: &TestRepo) -> (Tine<'_>, PathBuf) {
    let tine = Tine::new(repo);
    let dir = tine.new_fork("demo");
    (tine, dir)
}

/// `tine exec demo --at-origin -- sh -euc SCRIPT` in `dir`; what it prints.
#[track_caller]
fn at_origin(tine: &Tine, dir: &Path, script: &str) -> String {
    tine.ok_in(
        dir,
        &["exec", "demo", "--at-origin", "--", "sh", "-euc", script],
    )
}

#[test]
fn the_fork_stands_at_the_main_checkout_and_nobody_else_sees_it() {
    require_namespace!();
    let repo = TestRepo::new();
    let (tine, dir) = demo(&repo);
    fs::write(dir.join("mine.txt"), "the fork's\n").unwrap();
    let main = repo.dir().display();
    let said = at_origin(
        &tine,
        repo.dir(),
        &format!(
            "pwd; echo \"$PWD|$TINE_MOUNT|$TINE_FORK|${{GIT_DIR-unset}}\"; git rev-parse --show-toplevel
             cat {main}/mine.txt {}/mine.txt; echo more > {main}/more.txt; id -u; stat -c %u {main}/more.txt {main}/README.md",
            dir.display()
        ),
    );
    let uid = run_with_timeout(Command::new("id").arg("-u")).text();
    assert_eq!(
        said,
        format!(
            "{main}\n{main}|{main}|demo|unset\n{main}\nthe fork's\nthe fork's\n{uid}\n{uid}\n{uid}"
        )
    );
    assert_eq!(fs::read_to_string(dir.join("more.txt")).unwrap(), "more\n");
    assert!(!repo.dir().join("more.txt").exists());
    assert_eq!(repo.git(&["status", "--porcelain", "--ignored"]), "");
    assert_eq!(mounts_beneath(repo.root()), std::slice::from_ref(&dir));
    // The last fork takes the place along that was used for it.
    tine.ok(&["delete", "demo", "--force"]);
    assert_eq!(names_in(repo.root()), "home repo");
}

#[test]
fn a_fork_stands_where_the_fork_was_that_it_began_as() {
    require_namespace!();
    let repo = TestRepo::new();
    let (tine, dir) = demo(&repo);
    fs::write(dir.join("built"), format!("{}/source", dir.display())).unwrap();
    fs::write(dir.join("source"), "the parent's\n").unwrap();
    let child = PathBuf::from(tine.ok(&["new", "child", "--from-fork", "demo", "--at-parent"]));
    let grandchild = PathBuf::from(tine.ok(&["new", "grandchild", "--from-fork", "child"]));
    for (name, place) in [("child", &child), ("grandchild", &grandchild)] {
        fs::write(place.join("source"), format!("{name}'s\n")).unwrap();
        let script = "pwd; cat $(cat built); tine() { \"$TINE_PROGRAM\" \"$@\"; }; git add -A; git commit -qm $TINE_FORK; \
                      git rev-parse --abbrev-ref HEAD; tine path; echo more >> source; tine commit -m 'More' >/dev/null; git status --short";
        let mut command = tine.command(&["exec", name, "--", "sh", "-euc", script]);
        let said =
            run_with_timeout(command.env("TINE_PROGRAM", Tine::program())).expect_success(name);
        assert_eq!(
            said.text(),
            format!(
                "{}\n{name}'s\ntine/{name}\n{}",
                dir.display(),
                place.display()
            ),
        );
        assert_eq!(
            repo.git(&["log", "--format=%s", "-2", &format!("tine/{name}")]),
            format!("More\n{name}")
        );
        assert_eq!(tine.json(&["mount", name])["at_origin"], "parent");
    }
    assert_eq!(
        fs::read_to_string(dir.join("source")).unwrap(),
        "the parent's\n"
    );
    assert_eq!(
        repo.git_in(&dir, &["rev-parse", "--abbrev-ref", "HEAD"]),
        "tine/demo"
    );
    let own = tine.ok(&["exec", "child", "--no-at-origin", "--", "pwd"]);
    assert_eq!(Path::new(&own), child);
    // What is configured for all says nothing of where the parent was built.
    repo.git(&["config", "tine.atOrigin", "true"]);
    for name in ["child", "grandchild"] {
        let seen = tine.ok(&["exec", name, "--at-parent", "--", "pwd"]);
        assert_eq!(Path::new(&seen), dir);
    }
    repo.git(&["config", "--unset", "tine.atOrigin"]);
    let none = tine.run(&["exec", "demo", "--at-parent", "--", "pwd"]);
    assert!(
        none.error_text().contains("did not begin as another fork"),
        "{}",
        none.error_text()
    );
    tine.ok(&["delete", "demo", "--force"]);
    let gone = tine.run(&["exec", "child", "--", "pwd"]);
    assert!(
        gone.error_text().contains("is gone"),
        "{}",
        gone.error_text()
    );
}

#[test]
fn the_command_runs_where_its_caller_is() {
    require_namespace!();
    let repo = TestRepo::new();
    let (tine, dir) = demo(&repo);
    fs::create_dir(dir.join("only-here")).unwrap();
    fs::create_dir(repo.dir().join("only-there")).unwrap();
    for (from, there) in [
        (repo.dir().join("src/deep"), "src/deep"),
        (dir.join("docs"), "docs"),
        (dir.join("only-here"), "only-here"),
        (repo.dir().join("only-there"), ""),
        (dir.clone(), ""),
    ] {
        let said = at_origin(&tine, &from, "pwd; echo \"$PWD\"");
        let expected = repo.dir().join(there);
        let expected = expected.to_str().unwrap().trim_end_matches('/');
        assert_eq!(
            said,
            format!("{expected}\n{expected}"),
            "{}",
            from.display()
        );
    }
    // From a place that is in neither.
    let args = [
        "-C",
        path_text(repo.dir()),
        "exec",
        "demo",
        "--at-origin",
        "--",
        "pwd",
    ];
    assert_eq!(tine.ok_in(repo.root(), &args), path_text(repo.dir()));
}

#[test]
fn git_and_tine_work_in_there() {
    require_namespace!();
    for kind in ["own", "linked"] {
        git_and_tine_work_in(kind);
    }
}

fn git_and_tine_work_in(kind: &str) {
    let repo = TestRepo::new();
    repo.git(&["config", "tine.git", kind]);
    let (tine, dir) = demo(&repo);
    let other = tine.new_fork("other");
    fs::write(other.join("o.txt"), "o\n").unwrap();
    repo.git(&["worktree", "add", "-q", "-b", "linked", "../linked"]);
    // git writes where a worktree is into a file that is a day old.
    let gitdir = repo.git_dir_of_fork("demo").join(match kind {
        "own" => "tine/gitdir",
        _ => "gitdir",
    });
    let long_ago = SystemTime::now() - Duration::from_secs(3 * 24 * 3600);
    fs::File::options()
        .write(true)
        .open(&gitdir)
        .and_then(|file| file.set_modified(long_ago))
        .unwrap();
    let registered = fs::read_to_string(&gitdir).unwrap();
    let program = Tine::program().display();
    let said = at_origin(
        &tine,
        repo.dir(),
        &format!(
            "tine() {{ {program} \"$@\"; }}
             echo 1 > one.txt; git status --short; tine status | tail -n 1
             tine commit -m one > /dev/null; echo 2 > two.txt; git add -A; git commit -qm two
             git log --format=%s; tine log --json | grep -c two; git status --short; tine path
             tine status other | tail -n 1; git -C ../repo.forks/other status --short; git -C ../linked status --short --branch
             tine commit other -m other > /dev/null; tine new inner > /dev/null; cd src; tine diff --stat"
        ),
    );
    assert_eq!(
        said,
        format!(
            "?? one.txt\n1 change\ntwo\none\nbase\n1\n{}\n1 change\n?? o.txt\n## linked",
            dir.display()
        )
    );
    assert_eq!(
        repo.git(&["log", "--format=%s", "tine/demo"]),
        "two\none\nbase"
    );
    assert_eq!(
        repo.git(&["log", "-1", "--format=%s", "tine/other"]),
        "other"
    );
    // It began where the fork was, in which the command ran.
    assert_eq!(
        repo.git(&["rev-parse", "tine/inner"]),
        repo.git(&["rev-parse", "tine/demo"])
    );
    assert_eq!(fs::read_to_string(&gitdir).unwrap(), registered);
    assert_eq!(repo.status(&dir), "");
    assert_eq!(repo.status(repo.dir()), "");
    let log = fs::read_to_string(repo.common_dir().join("tine/daemon.log")).unwrap_or_default();
    assert!(!log.contains("ERROR"), "{log}");
}

/// The kernel takes what is mounted on a name along when it is told to forget the name.
#[test]
fn going_back_to_a_snapshot_leaves_git_where_it_is() {
    require_namespace!();
    let repo = TestRepo::new();
    let (tine, _) = demo(&repo);
    let program = Tine::program().display();
    let said = at_origin(
        &tine,
        repo.dir(),
        &format!(
            "tine() {{ {program} \"$@\" > ../said 2>&1 || cat ../said; }}
             echo 1 > one.txt; tine snapshot demo first; rm README.md; git add -A; git commit -qm two
             tine restore demo first; git status --short; git log --format=%s -n 1
             tine reset demo; git status --short; cat one.txt; test ! -e README.md"
        ),
    );
    // HEAD stays where it is.
    assert_eq!(said, "?? README.md\ntwo\n1");
}

#[test]
fn git_asks_the_daemon_in_there_what_changed() {
    require_namespace!();
    let repo = TestRepo::new();
    let (tine, dir) = demo(&repo);
    repo.status(&dir);
    let script = "echo new > new.txt; GIT_TRACE_FSMONITOR=1 git status --short 2>&1";
    let said = at_origin(&tine, repo.dir(), script);
    assert!(
        said.contains("returned success") && said.contains("?? new.txt"),
        "{said}"
    );
}

#[test]
fn submodules_and_included_settings_are_found_in_there() {
    require_namespace!();
    let repo = TestRepo::new();
    repo.sh_in(
        repo.root(),
        "git init -q inner; cd inner; echo i > i; git add i; git commit -qm i",
    );
    repo.git(&[
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "--quiet",
        "add",
        "../inner",
        "a/sub",
    ]);
    repo.write("shared.cfg", "[alias]\n\thello = !echo hello\n");
    repo.git(&["config", "include.path", "../shared.cfg"]);
    repo.commit_all("submodule");
    let (tine, dir) = demo(&repo);
    let update = [
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "--quiet",
        "update",
        "--init",
    ];
    repo.git_in(&dir, &update);
    let said = at_origin(
        &tine,
        repo.dir(),
        "git hello; echo new > a/sub/new; git -C a/sub add new; git -C a/sub commit -qm new; git status --short",
    );
    assert_eq!(said, "hello\n M a/sub");
    assert_eq!(
        repo.git_in(&dir.join("a/sub"), &["log", "-1", "--format=%s"]),
        "new"
    );
    assert_eq!(repo.git(&["status", "--short"]), "");
}

#[test]
fn a_build_of_the_main_checkout_goes_on_in_there() {
    require_namespace!();
    let repo = TestRepo::unborn();
    repo.write(
        "Cargo.toml",
        "[workspace]\nmembers = [\"part\"]\n[package]\nname = \"tiny\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\npart = { path = \"part\" }\n",
    );
    repo.write(
        "part/Cargo.toml",
        "[package]\nname = \"part\"\nversion = \"0.1.0\"\nedition = \"2021\"\n",
    );
    repo.write("part/src/lib.rs", "pub fn answer() -> u32 { 42 }\n");
    repo.write(
        "src/main.rs",
        "fn main() { println!(\"{}\", part::answer()); }\n",
    );
    repo.write(
        "build.rs",
        "fn main() { println!(\"cargo:rerun-if-changed={}/data.txt\", std::env::var(\"CARGO_MANIFEST_DIR\").unwrap()); }\n",
    );
    repo.write("data.txt", "data\n");
    repo.write(".gitignore", "/target\n");
    let limit = Duration::from_secs(240);
    let build = ["build", "-v", "--offline"];
    let mut cargo = repo.cargo(repo.dir());
    cargo.args(["generate-lockfile", "--offline"]);
    run_with_timeout_of(&mut cargo, limit, b"").expect_success("cargo generate-lockfile");
    repo.commit_all("crate");
    run_with_timeout_of(repo.cargo(repo.dir()).args(build), limit, b"")
        .expect_success("cargo build");

    let tine = Tine::new(&repo);
    let dir = PathBuf::from(tine.ok(&["new", "demo", "--carry", "/target"]));
    let in_fork = |option: &[&str]| {
        // With the toolchain's homes.
        let cargo = repo.cargo(repo.dir());
        let mut command = tine.command(&["exec", "demo"]);
        command
            .args(option)
            .arg("--")
            .arg(cargo.get_program())
            .args(build);
        for (name, value) in cargo.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        run_with_timeout_of(&mut command, limit, b"")
            .expect_success("cargo build in the fork")
            .error_text()
    };
    let said = in_fork(&["--at-origin"]);
    assert!(
        !said.contains("Compiling") && said.contains("Fresh tiny"),
        "{said}"
    );
    assert_eq!(said.matches("Fresh").count(), 2, "{said}");
    // Only what was changed in the fork is built again, and the main checkout's build stays.
    fs::write(
        dir.join("src/main.rs"),
        "fn main() { println!(\"{}\", part::answer() + 1); }\n",
    )
    .unwrap();
    let said = in_fork(&["--at-origin"]);
    assert!(
        said.contains("Fresh part") && said.contains("Compiling tiny"),
        "{said}"
    );
    let built =
        |dir: &Path| run_with_timeout(&mut Command::new(dir.join("target/debug/tiny"))).text();
    assert_eq!((built(repo.dir()), built(&dir)), ("42".into(), "43".into()));
    // Elsewhere what a build script named by its absolute path is another file.
    assert!(in_fork(&[]).contains("Compiling tiny"));
}

#[test]
fn exit_code_signal_input_and_failures_are_as_without() {
    require_namespace!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let args = [
        "exec",
        "demo",
        "--new",
        "--at-origin",
        "--",
        "sh",
        "-c",
        "cat; exit 42",
    ];
    let output = run_with_timeout_of(&mut tine.command(&args), Duration::from_secs(30), b"input");
    assert_eq!(
        (output.status.code(), output.text().as_str()),
        (Some(42), "input")
    );
    let output = tine.run(&[
        "exec",
        "demo",
        "--at-origin",
        "--",
        "sh",
        "-c",
        "kill -TERM $$",
    ]);
    assert_eq!(output.status.signal(), Some(libc::SIGTERM));
    tine.fails(
        127,
        &["exec", "demo", "--at-origin", "--", "no-such-program"],
    );
    tine.fails(126, &["exec", "demo", "--at-origin", "--", "./README.md"]);
    let output = tine.run(&["exec", "demo", "--at-origin", "--json", "--", "echo", "hi"]);
    assert_eq!(output.text(), "hi");
    assert!(
        output.error_text().contains("\"name\":\"demo\""),
        "{}",
        output.error_text()
    );
}

#[test]
fn a_fork_that_stands_elsewhere_is_in_use() {
    require_namespace!();
    let repo = TestRepo::new();
    let (tine, dir) = demo(&repo);
    let mut command = tine.command(&[
        "exec",
        "demo",
        "--at-origin",
        "--",
        "sh",
        "-c",
        "echo ready; exec cat",
    ]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    let comm = || fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    wait_until("the command runs", Duration::from_secs(30), || {
        comm() == "cat\n"
    });
    let said = tine.fails(5, &["unmount", "demo"]);
    assert!(
        said.contains(&format!("cause: cat (process {pid})")),
        "{said}"
    );
    let said = tine.fails(5, &["daemon", "stop"]);
    assert!(
        said.contains(&format!("cause: cat (process {pid})")),
        "{said}"
    );
    assert_eq!(mounts_beneath(repo.root()), [dir]);
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    tine.ok(&["unmount", "demo"]);
}

#[test]
fn what_runs_in_there_starts_no_daemon_and_stands_nowhere_else() {
    require_namespace!();
    let repo = TestRepo::new();
    let (tine, _) = demo(&repo);
    let program = Tine::program().display();
    let said = at_origin(
        &tine,
        repo.dir(),
        &format!("{program} exec demo --at-origin -- true 2>&1 || echo $?"),
    );
    assert!(
        said.contains("a fork is already at") && said.ends_with('5'),
        "{said}"
    );
    let script = format!(
        "cd /; {program} daemon stop --force -C {0} > /dev/null; {program} list -C {0} --json || echo $?",
        repo.dir().display()
    );
    // The fork's mount ends with the daemon, and with it whoever stands in it.
    let output = tine.run(&["exec", "demo", "--at-origin", "--", "sh", "-c", &script]);
    assert!(
        output.text().contains("error") && output.text().ends_with(char::is_numeric),
        "{}",
        output.text()
    );
    assert_eq!(tine.daemon_pid(), None);
}

#[test]
fn a_repository_without_a_main_checkout_is_refused() {
    require_namespace!();
    let repo = TestRepo::bare();
    let tine = Tine::new(&repo);
    let before = state(&repo);
    let output = tine.run(&[
        "exec",
        "demo",
        "--new",
        "--at-origin",
        "--json",
        "--",
        "true",
    ]);
    let failure = failure_of(&output, "a bare repository");
    assert_eq!(failure["code"], "unsupported-repository");
    assert_eq!(state(&repo), before);
}

#[test]
fn a_git_directory_elsewhere_is_found() {
    require_namespace!();
    let repo = TestRepo::init(&["--separate-git-dir", "../elsewhere.git"]);
    repo.write_base_files();
    repo.commit_all("base");
    let (tine, _) = demo(&repo);
    let script =
        "pwd; echo new > new.txt; git add new.txt; git commit -qm new; git log --format=%s";
    let said = at_origin(&tine, repo.dir(), script);
    assert_eq!(said, format!("{}\nnew\nbase", repo.dir().display()));
    tine.ok(&["status", "demo"]);
    assert_eq!(repo.git(&["log", "-1", "--format=%s", "tine/demo"]), "new");
}

/// Root without any right, in a user namespace that may have none in it.
#[test]
fn where_no_namespace_can_be_had_it_says_why_and_changes_nothing() {
    require_fuse!();
    require_root!("say how many namespaces there may be");
    require_program!("setpriv");
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let before = state(&repo);
    let script = "echo 0 > /proc/sys/user/max_user_namespaces
        exec setpriv --bounding-set=-all --inh-caps=-all \"$@\"";
    let mut command = repo.command("unshare", repo.dir());
    command
        .args([
            "--user",
            "--map-root-user",
            "sh",
            "-euc",
            script,
            "sh",
            path_text(Tine::program()),
        ])
        .args([
            "exec",
            "demo",
            "--new",
            "--at-origin",
            "--json",
            "--",
            "true",
        ]);
    let output = run_with_timeout(&mut command);
    if output.text().is_empty() {
        return skip(test_name!(), &output.error_text());
    }
    let failure = failure_of(&output, "no namespaces");
    assert_eq!(
        (&failure["code"], &failure["exit"]),
        (&"namespace-not-permitted".into(), &6.into())
    );
    let hint = failure["hint"].as_str().unwrap();
    assert!(hint.contains("sysctl user.max_user_namespaces"), "{hint}");
    assert_eq!(state(&repo), before);
    assert_eq!(tine.daemon_pid(), None);
}

/// With a FUSE device of the test's own, which the user may open.
#[test]
fn an_ordinary_user_stands_there_in_a_user_namespace() {
    require_fuse!();
    require_root!("become an ordinary user");
    require_program!("setpriv");
    require_program!("fusermount3");
    let place = tempfile::tempdir().unwrap();
    let dir = place.path();
    fs::copy(Tine::program(), dir.join("tine")).unwrap();
    let script = format!(
        "cd {0}; chmod 755 .; mknod fuse c 10 229; chmod 666 fuse; mount --bind fuse /dev/fuse
         mkdir home; chown daemon home; cd home
         exec setpriv --reuid=daemon --regid=daemon --clear-groups \
           env HOME={0}/home GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null sh -euc \"$1\"",
        dir.display()
    );
    let as_user = "trap '../tine -C repo daemon stop --force > /dev/null' EXIT
        git init -q repo; cd repo; git config user.name D; git config user.email d@e; echo a > a; git add a; git commit -qm a; cd ..
        unshare --user --mount true || { echo none; exit 0; }
        cd repo; ../../tine exec demo --new --at-origin -- sh -euc '
          pwd; echo b > b; git add b; git commit -qm b; echo c > c; ../../tine status | tail -n 1; ../../tine commit -m c >/dev/null
          stat -c %U a b .git; id -un; grep CapEff /proc/self/status; cat /proc/self/uid_map'
        cd ..; ls repo; git -C repo log --format=%s tine/demo";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-euc", &script, "sh", as_user]);
    let output = run_with_timeout(&mut command);
    if output.text() == "none" {
        return skip_optional(
            test_name!(),
            "ordinary users may make no user namespaces here",
        );
    }
    let said = output.expect_success("an ordinary user's command").text();
    let words: Vec<&str> = said.split_whitespace().collect();
    let home = dir.canonicalize().unwrap().join("home/repo");
    let expected = format!(
        "{} 1 change daemon daemon daemon daemon CapEff: 0000000000000000 1 1 1 a c b a",
        home.display()
    );
    assert_eq!(words.join(" "), expected, "{said}");
}
