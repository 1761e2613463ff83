//! Builds that go on from what the main checkout has built.

use std::path::Path;
use std::time::{Duration, SystemTime};

use super::support::{OutputExt, TestRepo, Tine, require_fuse, run_with_timeout};

/// A program that adds what its two libraries say.
fn project() -> TestRepo {
    let repo = TestRepo::new();
    let manifest = "[workspace]\nmembers = [\"one\", \"two\"]\n[package]\nname = \"sum\"\nversion = \"0.1.0\"\n\
                    edition = \"2021\"\n[dependencies]\none = { path = \"one\" }\ntwo = { path = \"two\" }\n";
    repo.write("Cargo.toml", manifest);
    repo.write(
        "src/main.rs",
        "fn main() { println!(\"{}\", one::number() + two::number()) }\n",
    );
    for name in ["one", "two"] {
        let manifest =
            format!("[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2021\"\n");
        repo.write(&format!("{name}/Cargo.toml"), &manifest);
        repo.write(&format!("{name}/src/lib.rs"), library(1));
    }
    repo.write(".gitignore", "/target\n");
    repo
}

fn library(number: u32) -> String {
    format!("pub fn number() -> u32 {{ {number} }}\n")
}

/// Lets all files of the checkout seem to have been written a while before they are built.
fn age(repo: &TestRepo, secs: u64) {
    let then = SystemTime::now() - Duration::from_secs(secs);
    for path in repo
        .sh_in(repo.dir(), "git ls-files -co --exclude-standard")
        .lines()
    {
        // The repository's own first files may not be there any more.
        if let Ok(file) = std::fs::File::options()
            .write(true)
            .open(repo.dir().join(path))
        {
            file.set_modified(then).unwrap();
        }
    }
}

/// Where cargo and its toolchain are: the home of a test is its own.
fn with_toolchain(command: &mut std::process::Command) {
    for (name, dir) in [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")] {
        let default = || {
            Some(
                Path::new(&std::env::var_os("HOME")?)
                    .join(dir)
                    .into_os_string(),
            )
        };
        if let Some(value) = std::env::var_os(name).or_else(default) {
            command.env(name, value);
        }
    }
}

fn build(repo: &TestRepo) -> String {
    let mut cargo = repo.command("cargo", repo.dir());
    with_toolchain(cargo.args(["build", "--offline"]));
    run_with_timeout(&mut cargo)
        .expect_success("cargo")
        .error_text()
}

/// Builds in a fork that stands at the main checkout's own path; the names of the crates that were
/// compiled, and what the program says.
fn build_in(tine: &Tine, fork: &str) -> (Vec<String>, String) {
    let mut command = tine.command(&[
        "exec",
        fork,
        "--at-origin",
        "--",
        "cargo",
        "build",
        "--offline",
    ]);
    with_toolchain(&mut command);
    let told = run_with_timeout(&mut command)
        .expect_success("cargo")
        .error_text();
    let compiled = told
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Compiling "));
    let mut names: Vec<String> = compiled
        .filter_map(|rest| rest.split(' ').next())
        .map(str::to_owned)
        .collect();
    names.sort();
    let said = tine.ok(&["exec", fork, "--at-origin", "--", "target/debug/sum"]);
    (names, said)
}

#[test]
fn a_fork_compiles_what_differs_from_the_main_checkout_and_nothing_else() {
    require_fuse!();
    let repo = project();
    let mut cargo = repo.command("cargo", repo.dir());
    with_toolchain(cargo.args(["generate-lockfile", "--offline"]));
    run_with_timeout(&mut cargo).expect_success("cargo");
    age(&repo, 60);
    assert_eq!(build(&repo).matches("Compiling").count(), 3);
    // Committed after it was built, as people do.
    repo.commit_all("all");
    let tine = Tine::new(&repo);

    tine.ok(&["new", "warm", "--carry", "target"]);
    assert_eq!(build_in(&tine, "warm"), (vec![], "2".to_owned()));
    let child = tine.ok(&["new", "child", "--from-fork", "warm"]);
    let main = "fn main() { println!(\"{}\", one::number() * 10 + two::number()) }\n";
    std::fs::write(Path::new(&child).join("src/main.rs"), main).unwrap();
    assert_eq!(
        build_in(&tine, "child"),
        (vec!["sum".to_owned()], "11".to_owned())
    );
    assert_eq!(
        build_in(&tine, "warm"),
        (vec![], "2".to_owned()),
        "its own way"
    );

    tine.ok(&["new", "before", "--carry", "target"]);

    // What the main checkout built of files that no commit has must not get into a fork's program,
    // whenever that was made.
    repo.write("two/src/lib.rs", library(5));
    assert_eq!(build(&repo).matches("Compiling").count(), 2);
    let both = || vec!["sum".to_owned(), "two".to_owned()];
    assert_eq!(build_in(&tine, "before"), (both(), "2".to_owned()));
    assert_eq!(build_in(&tine, "before"), (vec![], "2".to_owned()));
    assert_eq!(build_in(&tine, "warm").1, "2");
    tine.ok(&["new", "clean", "--carry", "target"]);
    assert_eq!(build_in(&tine, "clean"), (both(), "2".to_owned()));
    tine.ok(&["reset", "clean"]);
    assert_eq!(build_in(&tine, "clean"), (both(), "2".to_owned()));
}
