//! Carried and inherited trees that lead to where they were made: a fork's programs read and write
//! the fork.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::{
    OutputExt, TestRepo, Tine, require_fuse, require_program, run_with_timeout, skip_optional,
    test_name,
};

/// A Python package with an editable install in `.venv`, which ignores itself. `None` where no venv
/// can be made here.
fn project() -> Option<TestRepo> {
    let repo = TestRepo::new();
    repo.write("demo/__init__.py", "ANSWER = 42\n");
    repo.write(
        "test_demo.py",
        "import demo, unittest\nclass Test(unittest.TestCase):\n    def test(self):\n        self.assertEqual(demo.ANSWER, 42)\n",
    );
    repo.write(
        "check/test_demo.py",
        "import demo\nassert demo.ANSWER == 42, demo.__file__\n",
    );
    repo.commit_all("package");
    let made = run_with_timeout(
        repo.command("python3", repo.dir())
            .args(["-m", "venv", ".venv"]),
    );
    if !made.status.success() {
        return None;
    }
    repo.write(".venv/.gitignore", "*\n");
    // What `pip install -e .` and `uv sync` write.
    let main = repo.dir().display();
    let packages = repo.sh_in(repo.dir(), "echo .venv/lib/python3*/site-packages");
    repo.write(
        &format!("{packages}/__editable__.demo-1.pth"),
        format!("{main}\n"),
    );
    repo.write(
        &format!("{packages}/demo-1.dist-info/direct_url.json"),
        format!("{{\"dir_info\": {{\"editable\": true}}, \"url\": \"file://{main}\"}}"),
    );
    repo.write(
        &format!("{packages}/demo-1.dist-info/METADATA"),
        "Metadata-Version: 2.1\nName: demo\nVersion: 1\n",
    );
    Some(repo)
}

fn leads<'v>(made: &'v Value, kind: &str) -> Vec<&'v str> {
    let leads = made["leads"].as_array().unwrap().iter();
    leads
        .filter(|lead| lead["kind"] == kind)
        .map(|lead| lead["path"].as_str().unwrap())
        .collect()
}

/// Finding B3: what a fork's tests import, and where its pip installs.
#[test]
fn a_carried_venv_is_the_forks() {
    require_fuse!();
    require_program!("python3");
    let Some(repo) = project() else {
        return skip_optional(test_name!(), "python3 cannot make a venv here");
    };
    let tine = Tine::new(&repo);
    repo.write(".worktreeinclude", ".venv\n");
    let before = repo.sh_in(
        repo.dir(),
        "find .venv -type f -not -name '*.pyc' -exec md5sum {} + | sort",
    );
    let output = tine
        .run(&["new", "demo", "--json"])
        .expect_success("tine new");
    let made: Value = serde_json::from_str(&output.text()).unwrap();
    assert_eq!(made["carry"]["paths"], json!([".venv/"]));
    let dir = Path::new(made["mount_dir"].as_str().unwrap());
    assert_eq!(leads(&made, "venv"), [".venv"], "{made}");
    assert_eq!(leads(&made, "editable-install").len(), 2, "{made}");
    assert!(
        made["leads"]
            .as_array()
            .unwrap()
            .iter()
            .all(|lead| lead["made_right"] == true),
        "{made}"
    );
    assert_eq!(repo.status(dir), "");
    assert_eq!(tine.json(&["status", "demo"])["changes"], json!([]));

    check_own(&repo, dir, repo.dir());
    assert_eq!(
        repo.sh_in(
            repo.dir(),
            "find .venv -type f -not -name '*.pyc' -exec md5sum {} + | sort"
        ),
        before,
        "the main checkout's is as it was"
    );

    // Going back takes the layer away, and not what leads to the fork.
    tine.ok(&["reset", "demo"]);
    check_own(&repo, dir, repo.dir());

    // A fork of a fork, whose venv is the parent's.
    let child = tine.json(&["new", "child", "--from-fork", "demo"]);
    let child_dir = Path::new(child["mount_dir"].as_str().unwrap());
    assert_eq!(leads(&child, "venv"), [".venv"], "{child}");
    assert_eq!(child["leads"][0]["leads_to"], dir.to_str().unwrap());
    fs::write(child_dir.join("demo/__init__.py"), "ANSWER = 42\n").unwrap();
    check_own(&repo, child_dir, dir);
    let said = tine
        .run(&["new", "third"])
        .expect_success("tine new")
        .error_text();
    assert!(said.contains("made to lead to the fork"), "{said}");
}

/// With a broken source in the fork a test there fails, and `other`'s passes; what is installed in
/// the fork's venv is there alone.
#[track_caller]
fn check_own(repo: &TestRepo, dir: &Path, other: &Path) {
    let run =
        |root: &Path, script: &str| run_with_timeout(repo.command("sh", root).args(["-c", script]));
    run(dir, ".venv/bin/python check/test_demo.py").expect_success("with the fork's source");
    fs::write(dir.join("demo/__init__.py"), "ANSWER = 41\n").unwrap();
    let broken = run(dir, ".venv/bin/python check/test_demo.py");
    assert!(!broken.status.success());
    assert!(
        broken
            .error_text()
            .contains(dir.join("demo").to_str().unwrap()),
        "{}",
        broken.error_text()
    );
    let activated = run(
        dir,
        ". .venv/bin/activate; echo $VIRTUAL_ENV; command -v python",
    );
    assert_eq!(
        activated.text(),
        format!("{0}/.venv\n{0}/.venv/bin/python", dir.display())
    );
    let purelib = "import sysconfig; print(sysconfig.get_paths()['purelib'])";
    let pip = run(
        dir,
        &format!("head -n 1 .venv/bin/pip; .venv/bin/python -c \"{purelib}\""),
    );
    let pip = pip.expect_success("pip").text();
    for line in pip.lines() {
        assert!(line.contains(dir.to_str().unwrap()), "{pip}");
    }
    run(
        dir,
        "mkdir -p wheel/extra && echo 1 > wheel/extra/__init__.py && .venv/bin/pip --version",
    )
    .expect_success("pip --version");
    run(dir, "cp -r wheel/extra \"$(.venv/bin/python -c \"import sysconfig; print(sysconfig.get_paths()['purelib'])\")\"; rm -r wheel")
        .expect_success("an install");
    let has_extra = |root: &Path| {
        run(root, ".venv/bin/python -c 'import extra'")
            .status
            .success()
    };
    assert!(has_extra(dir) && !has_extra(other));
    // The next fork begins with a name that is free.
    run(dir, "rm -rf .venv/lib/python3*/site-packages/extra").expect_success("rm");
}

#[test]
fn links_into_the_main_checkout_lead_to_the_fork_and_caches_are_told() {
    require_fuse!();
    let repo = TestRepo::new();
    repo.write(".gitignore", "/build/\n/modules/\n/target/\n/links\n");
    repo.write("part/file.txt", "part\n");
    repo.commit_all("parts");
    let main = repo.dir().display().to_string();
    repo.write(
        "build/CMakeCache.txt",
        format!(
            "CMAKE_CACHEFILE_DIR:INTERNAL={main}/build\nCMAKE_HOME_DIRECTORY:INTERNAL={main}\n"
        ),
    );
    repo.write("target/.rustc_info.json", "{}");
    repo.write(
        "target/debug/demo.d",
        format!("{main}/target/debug/demo: {main}/src/main.rs\n"),
    );
    fs::create_dir(repo.dir().join("modules")).unwrap();
    symlink(repo.dir().join("part"), repo.dir().join("modules/part")).unwrap();
    symlink(
        repo.dir().join("only-main"),
        repo.dir().join("modules/none"),
    )
    .unwrap();
    symlink("../part", repo.dir().join("modules/relative")).unwrap();
    // Where package managers put them deeper down.
    symlink(repo.root(), repo.root().join("alias")).unwrap();
    fs::create_dir_all(repo.dir().join("modules/.bin")).unwrap();
    let by_alias = repo
        .root()
        .join("alias")
        .join(repo.dir().file_name().unwrap());
    symlink(by_alias.join("part"), repo.dir().join("modules/.bin/p")).unwrap();
    for deep in ["modules/@org/pkg", "build/__editable__.demo/a/b/pkg"] {
        fs::create_dir_all(repo.dir().join(deep).parent().unwrap()).unwrap();
        symlink(repo.dir().join("src/../part"), repo.dir().join(deep)).unwrap();
    }
    let tine = Tine::new(&repo);
    let output = tine
        .run(&["new", "demo", "--carry", "ignored"])
        .expect_success("tine new");
    let said = output.error_text();
    assert!(
        said.contains("build/CMakeCache.txt")
            && said.contains("--at-origin")
            && said.contains("tine.atOrigin"),
        "{said}"
    );
    let dir = Path::new(&output.text()).to_owned();
    for link in [
        "modules/@org/pkg",
        "build/__editable__.demo/a/b/pkg",
        "modules/.bin/p",
    ] {
        assert_eq!(
            fs::read_link(dir.join(link)).unwrap(),
            dir.join("part"),
            "{link}"
        );
    }
    fs::write(dir.join("modules/part/file.txt"), "the fork's\n").unwrap();
    assert_eq!(
        fs::read_to_string(repo.dir().join("part/file.txt")).unwrap(),
        "part\n"
    );
    assert_eq!(
        fs::read_to_string(dir.join("part/file.txt")).unwrap(),
        "the fork's\n"
    );
    assert_eq!(
        fs::read_link(repo.dir().join("modules/part")).unwrap(),
        repo.dir().join("part")
    );

    let made = tine.json(&["new", "two", "--carry", "ignored"]);
    let by_path = |path: &str| {
        made["leads"]
            .as_array()
            .unwrap()
            .iter()
            .find(|lead| lead["path"] == path)
            .cloned()
    };
    let expected = |path: &str, kind: &str, made_right: bool| json!({"path": path, "kind": kind, "leads_to": main, "made_right": made_right});
    for (path, kind, made_right) in [
        ("modules/part", "symlink", true),
        ("modules/none", "symlink", false),
        ("build/CMakeCache.txt", "cmake-cache", false),
        ("target", "cargo-target", false),
    ] {
        assert_eq!(
            by_path(path),
            Some(expected(path, kind, made_right)),
            "{made}"
        );
    }
    assert_eq!(by_path("modules/relative"), None);
    let plain = tine.json(&["new", "plain"]);
    assert_eq!(plain["leads"], Value::Null);
}
