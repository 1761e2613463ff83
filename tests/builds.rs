//! Builds in forks, with build outputs that are carried or inherited: after each step of a history
//! the program is that of the sources.
//!
//! The program prints the values that its sources hold, so whatever a build tool skips shows. The
//! same history is played in a worktree of git with `cp -a` of the outputs: where that is right, a
//! fork must be.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use support::{
    OutputExt, Random, SayWhich, TestRepo, Tine, has_program, require_fuse, run_with_timeout_of,
    soaking,
};

const SEED: &str = "TINE_BUILDS_SEED";
const LIMIT: Duration = Duration::from_secs(120);

/// How many sources hold a value.
const SOURCES: usize = 3;

/// A build tool, and a project for it.
struct Tool {
    name: &'static str,
    /// What must be there; without it nothing is tried.
    program: &'static str,
    /// Files besides the sources.
    files: &'static [(&'static str, &'static str)],
    /// The ignored directory that outputs are in.
    outputs: &'static str,
    source: fn(usize) -> String,
    content: fn(usize, &str) -> String,
    /// Builds, and prints the values.
    build: &'static str,
    /// Whether outputs may be used at another path than where they were made.
    moves: bool,
}

const MAKE: Tool = Tool {
    name: "make",
    program: "make",
    files: &[
        (
            "Makefile",
            "build/prog: build/main.o build/m0.o build/m1.o build/m2.o\n\tcc -o $@ $^\n\
             build/%.o: %.c\n\t@mkdir -p build\n\tcc -O0 -MMD -c -o $@ $<\n-include build/*.d\n",
        ),
        (
            "main.c",
            "#include <stdio.h>\nextern const char *m0, *m1, *m2;\n\
             int main(void) { printf(\"%s %s %s\\n\", m0, m1, m2); return 0; }\n",
        ),
    ],
    outputs: "build",
    source: |number| format!("m{number}.c"),
    content: |number, value| format!("const char *m{number} = \"{value}\";\n"),
    build: "make -s >&2 && build/prog",
    moves: true,
};

const CARGO: Tool = Tool {
    name: "cargo",
    program: "cargo",
    files: &[
        (
            "Cargo.toml",
            "[package]\nname = \"prog\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\ninner = { path = \"inner\" }\n",
        ),
        (
            "inner/Cargo.toml",
            "[package]\nname = \"inner\"\nversion = \"0.1.0\"\nedition = \"2021\"\n",
        ),
        // Without `rerun-if-changed` cargo remembers the exact times of all files of the package.
        ("inner/build.rs", "fn main() {}\n"),
        ("inner/src/lib.rs", "pub mod m0;\n"),
        (
            "src/main.rs",
            "mod m1;\nmod m2;\nfn main() { println!(\"{} {} {}\", inner::m0::V, m1::V, m2::V); }\n",
        ),
    ],
    outputs: "target",
    source: |number| match number {
        0 => "inner/src/m0.rs".to_owned(),
        _ => format!("src/m{number}.rs"),
    },
    content: |_, value| format!("pub const V: &str = \"{value}\";\n"),
    build: "$CARGO build -q --offline >&2 && target/debug/prog",
    moves: true,
};

const PYTHON: Tool = Tool {
    name: "python",
    program: "python3",
    files: &[
        (
            "main.py",
            "from p import m0, m1, m2\nprint(m0.V, m1.V, m2.V)\n",
        ),
        ("p/__init__.py", ""),
    ],
    outputs: "p/__pycache__",
    source: |number| format!("p/m{number}.py"),
    content: |_, value| format!("V = '{value}'\n"),
    build: "PYTHONDONTWRITEBYTECODE= python3 main.py",
    moves: true,
};

const CMAKE: Tool = Tool {
    name: "cmake",
    program: "ninja",
    files: &[
        (
            "CMakeLists.txt",
            "cmake_minimum_required(VERSION 3.18)\nproject(prog C)\nadd_library(inner m0.c)\n\
             add_executable(prog main.c m1.c m2.c)\ntarget_link_libraries(prog inner)\n",
        ),
        MAKE.files[1],
    ],
    outputs: "build",
    source: MAKE.source,
    content: MAKE.content,
    build: "cmake -S . -B build -G Ninja >/dev/null && ninja -C build >&2 && build/prog",
    // CMake refuses a cache that was made for another directory.
    moves: false,
};

const GO: Tool = Tool {
    name: "go",
    program: "go",
    files: &[
        ("go.mod", "module prog\n\ngo 1.19\n"),
        (
            "main.go",
            "package main\n\nimport (\n\t\"prog/m0\"\n\t\"prog/m1\"\n\t\"prog/m2\"\n)\n\n\
             func main() { print(m0.V, \" \", m1.V, \" \", m2.V, \"\\n\") }\n",
        ),
    ],
    outputs: "build",
    source: |number| format!("m{number}/m.go"),
    content: |number, value| format!("package m{number}\n\nconst V = \"{value}\"\n"),
    build: "export GOCACHE=$PWD/build/cache GOPATH=$PWD/build/path GOTOOLCHAIN=local GOFLAGS=-mod=mod; \
            go build -o build/prog . >&2 && build/prog 2>&1",
    moves: true,
};

const TSC: Tool = Tool {
    name: "tsc",
    program: "tsc",
    files: &[
        (
            "tsconfig.json",
            r#"{ "files": [], "references": [{ "path": "inner" }, { "path": "outer" }] }"#,
        ),
        (
            "inner/tsconfig.json",
            r#"{ "compilerOptions": { "composite": true, "module": "commonjs", "rootDir": ".", "outDir": "../build/inner" } }"#,
        ),
        (
            "outer/tsconfig.json",
            r#"{ "compilerOptions": { "composite": true, "module": "commonjs", "rootDir": ".", "outDir": "../build/outer" },
                 "references": [{ "path": "../inner" }] }"#,
        ),
        (
            "outer/main.ts",
            "import * as m0 from \"../inner/m0\";\nimport * as m1 from \"./m1\";\nimport * as m2 from \"./m2\";\n\
             declare const console: { log(text: string): void };\nconsole.log(`${m0.V} ${m1.V} ${m2.V}`);\n",
        ),
    ],
    outputs: "build",
    source: |number| match number {
        0 => "inner/m0.ts".to_owned(),
        _ => format!("outer/m{number}.ts"),
    },
    content: |_, value| format!("export const V: string = \"{value}\";\n"),
    build: "tsc -b >&2 && node build/outer/main.js",
    moves: true,
};

impl Tool {
    /// Builds in `dir`, which must give the program of the sources there.
    #[track_caller]
    fn check(&self, repo: &TestRepo, dir: &Path, what: &str) {
        let cargo = repo.cargo(dir);
        let mut command = repo.command("sh", dir);
        for (name, value) in cargo.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.env("CARGO", cargo.get_program());
        command.args(["-c", self.build]);
        let built = run_with_timeout_of(&mut command, LIMIT, b"");
        let built = built.expect_success(&format!("{}: {what}", self.name));
        assert_eq!(built.text(), self.values(dir), "{}: {what}", self.name);
        tick(repo);
    }

    /// What the program of the sources in `dir` prints.
    fn values(&self, dir: &Path) -> String {
        let value = |number| {
            let text = fs::read_to_string(dir.join((self.source)(number))).expect("a source");
            let quoted = text.split(['"', '\'']).nth(1);
            quoted.expect("a value in quotes").to_owned()
        };
        let values: Vec<String> = (0..SOURCES).map(value).collect();
        values.join(" ")
    }

    fn repository(&self) -> TestRepo {
        let repo = TestRepo::new().without_maintenance();
        for (path, content) in self.files {
            repo.write(path, content);
        }
        for number in 0..SOURCES {
            repo.write(&(self.source)(number), (self.content)(number, "first"));
        }
        repo.write(
            ".gitignore",
            format!("/{}/\n*.lock\n__pycache__/\ntarget/\n", self.outputs),
        );
        repo.commit_all("project");
        repo
    }

    fn write(&self, dir: &Path, number: usize, value: &str) {
        fs::write(
            dir.join((self.source)(number)),
            (self.content)(number, value),
        )
        .expect("a source");
    }
}

/// Waits until files get other times than those that were just written.
fn tick(repo: &TestRepo) {
    let path = repo.root().join("tick");
    let time = || -> SystemTime {
        fs::write(&path, "").expect("a file");
        fs::metadata(&path)
            .and_then(|found| found.modified())
            .expect("a time")
    };
    let (first, began) = (time(), Instant::now());
    while time() == first && began.elapsed() < Duration::from_secs(1) {
        std::thread::yield_now();
    }
}

/// A value that no other has, nor its length: Python tells sources apart by their size and the
/// second of their change.
fn value(number: &mut usize) -> String {
    *number += 1;
    format!("v{number:x<width$}", width = 8 + *number)
}

/// What happens in the main checkout before a fork is made of it.
const IN_MAIN: [&str; 7] = [
    "true",
    // A commit comes that nobody builds.
    "git switch -q topic && git switch -q main && git merge -q --no-edit topic",
    // Changes are built, and put away.
    "git stash push -q",
    "git switch -q topic",
    "git reset -q --hard HEAD~1",
    "git checkout -q HEAD~1 -- .",
    // Another source was built meanwhile than the one that comes back, as old as it was.
    "mv ../kept \"$(cat ../which)\" && git status -s",
];

/// Plays histories of the main checkout, and of the forks that are made after each.
fn play(tool: &Tool, seed: u64, rounds: usize) {
    let mut random = Random::new(seed);
    let mut number = 0;
    for round in 0..rounds {
        let repo = tool.repository();
        let tine = Tine::new(&repo);
        let main = repo.dir().to_owned();
        repo.git(&["switch", "-q", "-c", "topic"]);
        tool.write(
            &main,
            random.below(SOURCES as u64) as usize,
            &value(&mut number),
        );
        repo.commit_all("topic");
        repo.git(&["switch", "-q", "main"]);
        tool.write(
            &main,
            random.below(SOURCES as u64) as usize,
            &value(&mut number),
        );
        repo.commit_all("main");
        tool.check(&repo, &main, "the main checkout");
        let in_main = IN_MAIN[(round + seed as usize) % IN_MAIN.len()];
        if in_main.contains("stash") {
            tool.write(
                &main,
                random.below(SOURCES as u64) as usize,
                &value(&mut number),
            );
            tool.check(&repo, &main, "what is stashed");
        }
        if in_main.contains("kept") {
            let source = random.below(SOURCES as u64) as usize;
            let (path, kept) = ((tool.source)(source), repo.root().join("kept"));
            fs::write(repo.root().join("which"), &path).expect("a file");
            repo.sh_in(
                &main,
                &format!("cp -p {path} ../kept && touch -d '1 hour ago' ../kept"),
            );
            assert!(kept.exists());
            tool.write(&main, source, &value(&mut number));
            tool.check(&repo, &main, "what is moved away");
        }
        repo.sh_in(
            &main,
            &format!("{in_main} || git checkout -q --theirs . && git add -A && git commit -qm both || true"),
        );
        let history =
            |at: &str| format!("{at}, {SEED}={seed}, round {round}, after `{in_main}` in main");

        let worktree = repo.root().join("worktree");
        repo.git(&[
            "worktree",
            "add",
            "-q",
            "--detach",
            support::path_text(&worktree),
        ]);
        let copy = format!(
            "mkdir -p $(dirname {1}/{0}) && cp -a {0} {1}/{0}",
            tool.outputs,
            worktree.display()
        );
        repo.sh_in(&main, &copy);
        let carried = format!("/{}/", tool.outputs);
        let carry: &[&str] = if tool.moves {
            &["--carry", &carried]
        } else {
            &[]
        };
        let fork = PathBuf::from(tine.ok(&[&["new", "f"], carry].concat()));
        if tool.moves {
            tool.check(&repo, &worktree, &history("the worktree"));
        }
        tool.check(&repo, &fork, &history("the fork"));
        let mut at = (fork, "f".to_owned());
        for step in 0..10 {
            let (fork, name) = &at;
            let (source, new) = (random.below(SOURCES as u64) as usize, value(&mut number));
            let path = (tool.source)(source);
            let content = (tool.content)(source, &new);
            let write = || fs::write(fork.join(&path), &content).expect("a source");
            let did = match random.below(if tool.moves { 14 } else { 13 }) {
                0 => {
                    write();
                    tool.check(&repo, fork, &history("a program's write"));
                    repo.git_in(fork, &["stash", "push", "-q"]);
                    "git stash"
                }
                1 => {
                    let from = repo.root().join("new");
                    fs::write(&from, &content).expect("a file");
                    tine.ok(&[
                        "write",
                        "--fork",
                        name,
                        &path,
                        "--file",
                        support::path_text(&from),
                    ]);
                    tool.check(&repo, fork, &history("tine write"));
                    tine.ok(&["undo", name]);
                    tool.check(&repo, fork, &history("tine undo"));
                    tine.ok(&["redo", name]);
                    "tine redo"
                }
                2 => {
                    tine.ok(&["snapshot", name, &format!("s{step}")]);
                    write();
                    tool.check(&repo, fork, &history("a write after a snapshot"));
                    tine.ok(&["restore", name, &format!("s{step}"), "--exact"]);
                    "tine restore"
                }
                3 => {
                    write();
                    tool.check(
                        &repo,
                        fork,
                        &history("a write that is not built when a snapshot is taken"),
                    );
                    write();
                    fs::write(
                        fork.join(&path),
                        (tool.content)(source, &value(&mut number)),
                    )
                    .expect("a source");
                    tine.ok(&["snapshot", name, &format!("u{step}")]);
                    tool.check(&repo, fork, &history("what was not built"));
                    tine.ok(&["restore", name, &format!("u{step}"), "--exact"]);
                    "tine restore of what was not built"
                }
                4 => {
                    write();
                    tool.check(&repo, fork, &history("a write"));
                    tine.ok(&["revert", name, &path]);
                    "tine revert"
                }
                5 => {
                    write();
                    tool.check(&repo, fork, &history("a write"));
                    tine.ok(&["reset", name]);
                    "tine reset"
                }
                6 => {
                    repo.sh_in(fork, "git add -A; git commit -qm own || true");
                    repo.sh_in(&main, "git stash push -q; git switch -q main");
                    tool.write(&main, source, &new);
                    repo.sh_in(&main, "git commit -qam theirs");
                    let _ = tine.run(&["update", name, "--strategy", "theirs"]);
                    "tine update"
                }
                13 => {
                    let child = format!("{name}c");
                    write();
                    let dir = tine.ok(&["new", &child, "--from-fork", name]);
                    tool.check(&repo, fork, &history("the parent"));
                    at = (PathBuf::from(dir), child);
                    "a fork of the fork"
                }
                8 => {
                    repo.sh_in(fork, "git add -A; git commit -qm own || true");
                    write();
                    repo.sh_in(
                        fork,
                        "git commit -qam more; git checkout -q --detach HEAD~1",
                    );
                    tool.check(&repo, fork, &history("git checkout of the commit before"));
                    repo.git_in(fork, &["checkout", "-q", "-"]);
                    "git checkout -"
                }
                9 => {
                    write();
                    tool.check(&repo, fork, &history("a write"));
                    tine.ok(&["rm", "--fork", name, &path]);
                    tine.ok(&["undo", name]);
                    "tine rm and undo"
                }
                10 => {
                    tine.ok(&["unmount", name]);
                    tine.ok(&["mount", name]);
                    "a remount"
                }
                11 => {
                    // What was built comes back, and is older than the source.
                    tine.ok(&["rm", "--fork", name, "-r", tool.outputs]);
                    write();
                    tine.ok(&["undo", name, tool.outputs]);
                    "tine rm of the outputs, a write and undo"
                }
                12 => {
                    tine.ok(&["mv", "--fork", name, tool.outputs, "aside"]);
                    write();
                    tine.ok(&["undo", name, tool.outputs]);
                    "tine mv of the outputs, a write and undo"
                }
                _ => {
                    write();
                    "a write"
                }
            };
            tool.check(&repo, &at.0, &history(&format!("step {step}, {did}")));
        }
    }
}

fn begin(tool: &Tool) -> Option<(u64, SayWhich<'static>)> {
    if !has_program(tool.program) {
        support::skip(
            &format!("builds::{}", tool.name),
            &format!("there is no {}", tool.program),
        );
        return None;
    }
    let (_, seed) = Random::from_environment(SEED);
    Some((seed, SayWhich(SEED, seed)))
}

fn rounds(everyday: usize) -> usize {
    if soaking() { 20 * everyday } else { everyday }
}

#[test]
fn invariant_18_make_builds_what_a_fork_shows() {
    require_fuse!();
    if let Some((seed, _say)) = begin(&MAKE) {
        play(&MAKE, seed, rounds(3));
    }
}

#[test]
fn invariant_18_cargo_builds_what_a_fork_shows() {
    require_fuse!();
    if let Some((seed, _say)) = begin(&CARGO) {
        play(&CARGO, seed, rounds(1));
    }
}

#[test]
fn invariant_18_python_runs_what_a_fork_shows() {
    require_fuse!();
    if let Some((seed, _say)) = begin(&PYTHON) {
        play(&PYTHON, seed, rounds(2));
    }
}

#[test]
fn invariant_18_ninja_builds_what_a_fork_shows() {
    require_fuse!();
    if let Some((seed, _say)) = begin(&CMAKE) {
        play(&CMAKE, seed, rounds(1));
    }
}

#[test]
fn invariant_18_go_builds_what_a_fork_shows() {
    require_fuse!();
    if let Some((seed, _say)) = begin(&GO) {
        play(&GO, seed, rounds(1));
    }
}

#[test]
fn invariant_18_tsc_builds_what_a_fork_shows() {
    require_fuse!();
    if let Some((seed, _say)) = begin(&TSC) {
        play(&TSC, seed, rounds(1));
    }
}

/// What the main checkout built since the parent was made is of sources that the parent has not.
#[test]
fn invariant_18_a_fork_of_a_fork_that_carries_more_builds_what_it_shows() {
    require_fuse!();
    for tool in [&MAKE, &CARGO] {
        let repo = tool.repository();
        let tine = Tine::new(&repo);
        let (main, mut number) = (repo.dir().to_owned(), 0);
        let parent = tine.new_fork("a");
        tool.write(&parent, 0, &value(&mut number));
        tick(&repo);
        tine.ok(&["snapshot", "a", "s"]);
        for source in 0..SOURCES {
            tool.write(&main, source, &value(&mut number));
        }
        tool.check(&repo, &main, "the main checkout");
        let carried = format!("/{}/", tool.outputs);
        for (name, of, option) in [
            ("b", "a", "--carry"),
            ("c", "a@s", "--carry"),
            ("d", "a", "--carry-only"),
        ] {
            let fork = PathBuf::from(tine.ok(&["new", name, "--from-fork", of, option, &carried]));
            tool.check(&repo, &fork, &format!("{of} {option}"));
        }
    }
}

/// A repository with these files, in which `make` writes what it is made of to `build/out`.
fn made_by(makefile: &str, files: &[(&str, &str)]) -> TestRepo {
    let repo = TestRepo::new().without_maintenance();
    repo.write("Makefile", makefile);
    repo.write(".gitignore", "/build/\n");
    for (path, content) in files {
        repo.write(path, content);
    }
    repo.commit_all("project");
    tick(&repo);
    repo
}

/// The lines of what `make` built in `dir`.
fn made(repo: &TestRepo, dir: &Path) -> String {
    let made = repo.sh_in(dir, "make -s >&2 && cat build/out");
    tick(repo);
    made.replace('\n', " ")
}

/// The main checkout built of files that the fork has not, or not so.
#[test]
fn invariant_18_what_was_built_of_other_files_is_built_again() {
    require_fuse!();
    let all = "build/out: $(wildcard src/*.c)\n\tmkdir -p build; cat $^ > $@\n";
    let repo = made_by(all, &[("src/a.c", "a\n"), ("src/b.c", "b\n")]);
    let tine = Tine::new(&repo);
    repo.write("src/x.c", "x\n");
    assert_eq!(made(&repo, repo.dir()), "a b x");
    let carry = |name: &str, more: &[&str]| {
        let args = [&["new", name, "--carry", "/build/"], more].concat();
        PathBuf::from(tine.ok(&args))
    };
    assert_eq!(made(&repo, &carry("untracked", &[])), "a b");
    repo.commit_all("x");
    assert_eq!(made(&repo, &carry("older", &["--from", "HEAD~1"])), "a b");
    repo.sh_in(repo.dir(), "git rm -q src/b.c");
    assert_eq!(made(&repo, &carry("removed", &[])), "a b x");

    let through = "build/out: cur\n\tmkdir -p build; cat cur > $@\n";
    let repo = made_by(through, &[("one", "one\n"), ("two", "two\n")]);
    let tine = Tine::new(&repo);
    repo.sh_in(
        repo.dir(),
        "ln -s one cur && git add cur && git commit -qm link && ln -sfn two cur",
    );
    tick(&repo);
    assert_eq!(made(&repo, repo.dir()), "two");
    let fork = PathBuf::from(tine.ok(&["new", "f", "--carry", "/build/"]));
    assert_eq!(made(&repo, &fork), "one");
}

/// What is in the main checkout now is what it was before, but it was built of something else
/// meanwhile.
#[test]
fn invariant_18_what_came_back_in_the_main_checkout_is_built_again() {
    require_fuse!();
    let fork_of = |repo: &TestRepo, name: &str| {
        tick(repo);
        let tine = std::mem::ManuallyDrop::new(Tine::new(repo));
        PathBuf::from(tine.ok(&["new", name, "--carry", "/build/"]))
    };
    let one = "build/out: src/f\n\tmkdir -p build; cat src/f > $@\n";
    let repo = made_by(one, &[("src/f", "old\n")]);
    repo.sh_in(repo.dir(), "cp -a src ../kept && echo new > src/f");
    tick(&repo);
    assert_eq!(made(&repo, repo.dir()), "new");
    repo.sh_in(repo.dir(), "rm -r src && mv ../kept src && git status -s");
    assert_eq!(made(&repo, &fork_of(&repo, "moved")), "old");
    drop(Tine::new(&repo));

    let deep = "build/out: $(wildcard src/*/*.c)\n\tmkdir -p build; cat $^ > $@\n";
    let repo = made_by(deep, &[("src/a/a.c", "a\n"), ("src/b/b.c", "b\n")]);
    repo.write("src/c/c.c", "c\n");
    assert_eq!(made(&repo, repo.dir()), "a b c");
    assert_eq!(made(&repo, &fork_of(&repo, "deep")), "a b");
    drop(Tine::new(&repo));

    let through = "build/out: cur\n\tmkdir -p build; cat cur > $@\n";
    let repo = made_by(through, &[("one", "one\n"), ("two", "two\n")]);
    repo.sh_in(
        repo.dir(),
        "ln -s one cur; git add cur; git commit -qm one; git switch -qc other; ln -sfn two cur; git commit -qam two",
    );
    assert_eq!(made(&repo, repo.dir()), "two");
    repo.git(&["switch", "-q", "main"]);
    assert_eq!(made(&repo, &fork_of(&repo, "link")), "one");
    drop(Tine::new(&repo));
}

/// A directory is as new as the last name that came or went in it, whichever base it is of.
#[test]
fn invariant_18_a_directory_that_an_update_changed_stays_as_new() {
    require_fuse!();
    let listing = "build/out: d\n\tmkdir -p build; ls d > $@\n";
    for back in [&["reset", "f"][..], &["restore", "f", "pristine"]] {
        let repo = made_by(listing, &[("d/b", "b\n"), ("d/q", "q\n")]);
        let tine = Tine::new(&repo);
        assert_eq!(made(&repo, repo.dir()), "b q");
        let fork = PathBuf::from(tine.ok(&["new", "f", "--carry", "/build/"]));
        repo.sh_in(
            repo.dir(),
            "echo c > d/c && git add d && git rm -q d/q && git commit -qm two",
        );
        tick(&repo);
        tine.ok(&["update", "f"]);
        let modified = || {
            fs::metadata(fork.join("d"))
                .and_then(|found| found.modified())
                .expect("a time")
        };
        let before = modified();
        tine.ok(back);
        assert!(modified() >= before, "{back:?}");
        assert_eq!(made(&repo, &fork), "b c", "{back:?}");
    }
}

/// Where git ignores no outputs, what is restored is in the order in which it was written.
#[test]
fn invariant_18_outputs_that_git_does_not_ignore_are_built_again_after_a_restore() {
    require_fuse!();
    let repo = MAKE.repository();
    let tine = Tine::new(&repo);
    repo.write(".gitignore", "");
    repo.commit_all("nothing is ignored");
    let fork = tine.new_fork("f");
    MAKE.check(&repo, &fork, "the fork");
    let mut number = 0;
    MAKE.write(&fork, 1, &value(&mut number));
    tick(&repo);
    // The outputs are out of date in it.
    tine.ok(&["snapshot", "f", "s"]);
    MAKE.check(&repo, &fork, "a write");
    for what in ["a restore", "a second one"] {
        tine.ok(&["restore", "f", "s"]);
        MAKE.check(&repo, &fork, what);
    }
    tine.ok(&["undo", "f"]);
    MAKE.check(&repo, &fork, "undo of a restore");
    MAKE.write(&fork, 2, &value(&mut number));
    MAKE.check(&repo, &fork, "a write after all");
}

/// Each tree that builds into the directory of another takes what that built last for its own. A
/// fork has a directory of its own where the setting says so.
#[test]
fn invariant_18_cargo_builds_what_a_fork_shows_where_all_share_a_target_directory() {
    require_fuse!();
    let Some((seed, _say)) = begin(&CARGO) else {
        return;
    };
    let mut random = Random::new(seed);
    let mut number = 0;
    let repo = CARGO.repository();
    let shared = repo.root().join("shared");
    fs::create_dir(repo.root().join(".cargo")).expect("a directory");
    fs::write(
        repo.root().join(".cargo/config.toml"),
        format!("[build]\ntarget-dir = \"{}\"\n", shared.display()),
    )
    .expect("a file");
    repo.git(&["config", "tine.cargoTargetDir", "own"]);
    let tine = Tine::new(&repo);
    let main = repo.dir().to_owned();
    let fork = tine.new_fork("f");
    let build =
        |target: &str| format!("\"$CARGO\" build -q --offline >&2 && \"{target}/debug/prog\"");
    let in_main = build(support::path_text(&shared));
    let in_fork = build("$CARGO_TARGET_DIR");
    let built = |mut command: std::process::Command, dir: &Path, what: &str| {
        for (name, value) in repo.cargo(dir).get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.env("CARGO", repo.cargo(dir).get_program());
        command.env_remove("CARGO_TARGET_DIR");
        let built = run_with_timeout_of(&mut command, LIMIT, b"").expect_success(what);
        assert_eq!(built.text(), CARGO.values(dir), "{what}, {SEED}={seed}");
        tick(&repo);
    };
    for step in 0..rounds(6) {
        let (dir, who) = if random.below(2) == 0 {
            (&main, "main")
        } else {
            (&fork, "the fork")
        };
        let what = match random.below(3) {
            0 => "a write",
            // There may be nothing to take back.
            1 if tine.run(&["undo", "f"]).status.success() => "tine undo",
            _ => {
                let from = repo.root().join("new");
                let source = random.below(SOURCES as u64) as usize;
                fs::write(&from, (CARGO.content)(source, &value(&mut number))).expect("a file");
                tine.ok(&[
                    "write",
                    "--fork",
                    "f",
                    &(CARGO.source)(source),
                    "--file",
                    support::path_text(&from),
                ]);
                "tine write"
            }
        };
        if what == "a write" {
            CARGO.write(
                dir,
                random.below(SOURCES as u64) as usize,
                &value(&mut number),
            );
        }
        let mut command = repo.command("sh", &main);
        command.args(["-c", &in_main]);
        built(
            command,
            &main,
            &format!("step {step}, {what} in {who}: main"),
        );
        let command = tine.command(&["exec", "f", "--", "sh", "-c", &in_fork]);
        built(
            command,
            &fork,
            &format!("step {step}, {what} in {who}: the fork"),
        );
    }
    assert!(!fork.join("shared").exists() && fork.join("target/debug/prog").exists());
}
