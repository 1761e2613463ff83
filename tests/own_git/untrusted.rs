//! Untrusted forks: what makes git run a program cannot be written in them.

#[path = "untrusted/cases.rs"]
mod cases;

use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use self::cases::{CASES, Case, Shown};
use crate::support::{OutputExt, TestRepo, Tine, require_fuse};
use tine::git::own::settings::refused::REFUSED;

#[track_caller]
fn new_untrusted(tine: &Tine<'_>, name: &str) -> PathBuf {
    let path = tine.ok(&["new", name, "--untrusted"]);
    PathBuf::from(path.trim_end())
}

/// Checks that a change was refused with `EPERM`.
#[track_caller]
fn assert_refused<T>(done: std::io::Result<T>) {
    let error = done.err().expect("it is refused");
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    assert_eq!(error.raw_os_error(), Some(libc::EPERM));
}

/// A program that leaves the mark `marker`.
fn program(dir: &Path, marker: &Path) -> PathBuf {
    let path = dir.join("prog");
    fs::write(&path, format!("#!/bin/sh\ntouch {}\n", marker.display())).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

impl Case {
    fn filled(&self, text: &str, dir: &Path) -> String {
        let prog = dir.join("prog").display().to_string();
        text.replace("{prog}", &prog)
            .replace("{dir}", &dir.display().to_string())
    }
}

#[test]
fn each_refused_setting_has_a_case() {
    for case in CASES {
        if let Shown::Not(reason) = case.shown {
            println!("SKIP {}: {reason}", case.key);
        }
    }
    let rows: BTreeSet<&str> = REFUSED.iter().map(|row| row.pattern.0).collect();
    let cases: BTreeSet<&str> = CASES.iter().map(|case| case.pattern).collect();
    assert_eq!(rows, cases);
    assert_eq!(rows.len(), REFUSED.len());
    assert!(REFUSED.iter().all(|row| !row.reason.is_empty()));
}

#[test]
fn git_runs_a_program_for_each_refused_setting_where_it_is_set() {
    let repo = TestRepo::new();
    repo.sh_in(
        repo.dir(),
        "echo 1 > f; git add f; git commit -qm one; echo 2 > f; git commit -qam two",
    );
    let mut failed = Vec::new();
    for (number, case) in CASES.iter().enumerate() {
        let Shown::By(script) = &case.shown else {
            continue;
        };
        let dir = repo.root().join(format!("case-{number}"));
        fs::create_dir(&dir).unwrap();
        let marker = dir.join("marker");
        program(&dir, &marker);
        let clone = dir.join("clone");
        let (from, to) = (repo.dir().display(), clone.display());
        repo.sh_in(&dir, &format!("git clone -q --shared {from} {to}"));
        fs::write(
            clone.join(".git/info/attributes"),
            "f filter=m diff=m merge=m\n",
        )
        .unwrap();
        let (key, value) = (case.filled(case.key, &dir), case.filled(case.value, &dir));
        repo.git_in(&clone, &["config", &key, &value]);
        // The program does nothing useful, so git may fail.
        let script = format!("set +e\n{}", case.filled(script, &dir));
        let output = repo.try_sh_in(&clone, &script);
        if !marker.exists() {
            failed.push(format!("{key}: {}", output.text()));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn each_refused_setting_is_refused_by_each_way_to_write_it() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = new_untrusted(&tine, "demo");
    repo.sh_in(&dir, "git init -q nested; git init -q --bare bare.git");
    for part in ["objects", "refs"] {
        fs::create_dir_all(dir.join(".git/modules/m").join(part)).unwrap();
    }
    let places = [
        ".git/config",
        ".git/config.worktree",
        ".git/modules/m/config",
        "nested/.git/config",
        "nested/.git/config.worktree",
        "bare.git/config",
    ];
    let before = places.map(|place| fs::read(dir.join(place)).ok());
    for case in CASES {
        let scratch = repo.root().join("scratch");
        let (key, value) = (
            case.filled(case.key, &scratch),
            case.filled(case.value, &scratch),
        );
        for place in places {
            let file = dir.join(place);
            let output = repo.try_git_in(&dir, &["config", "-f", place, &key, &value]);
            assert!(!output.status.success(), "{key} in {place}");
            assert!(
                output.error_text().contains("Operation not permitted"),
                "{key} in {place}: {}",
                output.error_text()
            );
            // As a program does it that is not git.
            let content = fs::read(&file).unwrap_or_default();
            let other = repo.root().join("other");
            fs::write(&other, &content).unwrap();
            repo.git(&["config", "-f", other.to_str().unwrap(), &key, &value]);
            let evil = fs::read(&other).unwrap();
            assert_refused(fs::write(&file, &evil));
            let lock = dir.join(format!("{place}.lock"));
            fs::write(&lock, &evil).unwrap();
            assert_refused(fs::rename(&lock, &file));
            assert_refused(fs::hard_link(&lock, &file).map_err(|error| {
                match error.kind() {
                    // It is there.
                    ErrorKind::AlreadyExists => std::io::Error::from_raw_os_error(libc::EPERM),
                    _ => error,
                }
            }));
            fs::remove_file(&lock).unwrap();
        }
        // What becomes a git directory is checked then.
        let late = dir.join("late");
        fs::create_dir_all(late.join("refs")).unwrap();
        let content = repo.root().join("other");
        fs::write(&content, "").unwrap();
        repo.git(&["config", "-f", content.to_str().unwrap(), &key, &value]);
        fs::copy(&content, late.join("config")).unwrap();
        assert_refused(fs::create_dir(late.join("objects")));
        fs::create_dir(dir.join("objects-to-be")).unwrap();
        assert_refused(fs::rename(dir.join("objects-to-be"), late.join("objects")));
        assert_refused(symlink("/", late.join("objects")));
        fs::remove_dir(dir.join("objects-to-be")).unwrap();
        fs::remove_dir_all(&late).unwrap();
    }
    assert_eq!(before, places.map(|place| fs::read(dir.join(place)).ok()));
    let status = tine.json(&["status", "demo"]);
    assert_eq!(status["untrusted"], true);
    assert!(!status["refused"].as_array().unwrap().is_empty());
}

#[test]
fn hooks_and_what_leads_to_other_git_directories_are_refused() {
    require_fuse!();
    let repo = TestRepo::new();
    repo.hook("post-commit", "true");
    let tine = Tine::new(&repo);
    let dir = new_untrusted(&tine, "demo");
    repo.sh_in(&dir, "git init -q nested; git init -q --bare bare.git");
    for git_dir in [".git", "nested/.git", "bare.git"] {
        let at = |path: &str| dir.join(git_dir).join(path);
        fs::write(at("hooks/any.sample"), "x").unwrap();
        for name in ["pre-commit", "post-checkout", "reference-transaction", "x"] {
            let hook = format!("hooks/{name}");
            assert_refused(fs::write(at(&hook), "x"));
            assert_refused(fs::rename(at("hooks/any.sample"), at(&hook)));
            assert_refused(symlink("/bin/true", at(&hook)));
            assert_refused(fs::create_dir(at(&hook)));
            assert_refused(fs::hard_link(at("HEAD"), at(&hook)));
        }
        if git_dir != "bare.git" {
            assert_refused(symlink("/tmp", at("modules")));
        }
        assert_refused(symlink("/tmp", at("config.worktree")));
        // Another directory in its place.
        if git_dir != ".git" {
            fs::create_dir(dir.join("mine")).unwrap();
            fs::write(dir.join("mine/pre-commit"), "x").unwrap();
            fs::rename(at("hooks"), dir.join("away")).unwrap();
            assert_refused(fs::rename(dir.join("mine"), at("hooks")));
            assert_refused(symlink("../mine", at("hooks")));
            fs::rename(dir.join("away"), at("hooks")).unwrap();
            fs::remove_dir_all(dir.join("mine")).unwrap();
        }
    }
    // The main repository's hook is seen, and stays as it is.
    let hook = dir.join(".git/hooks/post-commit");
    assert!(fs::read_to_string(&hook).unwrap().contains("true"));
    assert_refused(fs::write(&hook, "x"));
    assert_refused(fs::set_permissions(
        &hook,
        fs::Permissions::from_mode(0o755),
    ));
    assert_refused(fs::write(dir.join(".git/commondir"), "/tmp"));
    fs::create_dir(dir.join("sub")).unwrap();
    assert_refused(symlink("/tmp", dir.join("sub/.git")));
    for target in [
        "/tmp/evil",
        "../../.git/modules/m",
        "../.git",
        "../nested",
        "../.git/refs/heads",
        "../.git/modules/../refs/heads",
    ] {
        let file = dir.join("sub/.git");
        assert_refused(fs::write(&file, format!("gitdir: {target}\n")));
        fs::remove_file(&file).unwrap();
    }
    let fine = "gitdir: ../.git/modules/sub\n";
    fs::write(dir.join("sub/.git"), fine).unwrap();
    assert_eq!(fs::read_to_string(dir.join("sub/.git")).unwrap(), fine);
    assert_refused(fs::write(dir.join("sub/.git"), "gitdir: /tmp/evil\n"));
    // A directory that was made elsewhere.
    repo.sh_in(&dir, "git init -q made");
    fs::rename(dir.join("made/.git"), dir.join("made/x")).unwrap();
    let output = repo.try_git_in(&dir, &["config", "-f", "made/x/config", "core.pager", "x"]);
    assert!(!output.status.success());
    fs::rename(dir.join("made/x"), dir.join("made/.git")).unwrap();
    // Without `refs` it is no git directory, and not again with that file.
    fs::rename(dir.join("made/.git/refs"), dir.join("refs-away")).unwrap();
    fs::write(dir.join("made/.git/config"), "[core]\n\tpager = x\n").unwrap();
    assert_refused(fs::rename(
        dir.join("refs-away"),
        dir.join("made/.git/refs"),
    ));
}

/// What a program has open or mapped does not change what git reads.
#[test]
fn an_open_or_mapped_file_does_not_become_the_configuration() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = new_untrusted(&tine, "demo");
    repo.sh_in(&dir, "git init -q nested");
    let mapped = include_str!("untrusted/mapped.py");
    let output = crate::support::run_with_timeout(repo.command("python3", &dir).args([
        "-c",
        mapped,
        ".git/config",
        "nested/.git/config",
    ]));
    assert!(output.status.success(), "{}", output.error_text());
}

#[test]
fn harmless_work_goes_on_in_an_untrusted_fork() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = new_untrusted(&tine, "demo");
    let main = repo.dir().display();
    repo.sh_in(
        &dir,
        &format!(
            "git config user.name A; git config user.email a@b; test \"$(git config user.name)\" = A
             git remote add o https://host/x.git; git config branch.x.remote o; git config pull.rebase true
             git config --unset pull.rebase; git config --remove-section branch.x; git config core.fsmonitor false
             git config --unset core.fsmonitor
             echo 1 > one; git add one; git commit -qm one; git stash list; git branch topic; git push -q . HEAD:refs/heads/p
             git worktree add -q wt topic; git -C wt commit -q --allow-empty -m w; git worktree remove wt
             git sparse-checkout set docs; git config --worktree core.x 1; git sparse-checkout disable
             git bisect start HEAD HEAD~ >/dev/null; git bisect reset
             git clone -q {main} cloned; git -C cloned config user.name B; git -C cloned commit -q --allow-empty -m c; rm -rf cloned
             git -c protocol.file.allow=always submodule add -q {main} sub; git commit -qm sub
             git submodule deinit -q -f sub; git -c protocol.file.allow=always submodule update -q --init
             git -C sub log -1 -q; git -C sub config user.name C; git gc -q; git fsck --no-progress; git status"
        ),
    );
    assert_eq!(repo.git_in(&dir, &["status", "--porcelain"]), "");
    let list = tine.json(&["list"]);
    assert_eq!(list["forks"][0]["untrusted"], true);
    assert_eq!(list["forks"][0].get("refused"), None, "{list}");
    let log = repo.git_in(&dir, &["rev-parse", "HEAD"]);
    super::await_taken(&repo, "tine/demo", &log);
}

#[test]
fn tools_that_install_hooks_get_a_refusal_that_names_the_setting() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = new_untrusted(&tine, "demo");
    // husky
    repo.try_git_in(&dir, &["config", "core.hooksPath", ".husky/_"]);
    // pre-commit
    assert_refused(fs::write(dir.join(".git/hooks/pre-commit"), "#!/bin/sh\n"));
    // git lfs install --local
    repo.try_git_in(&dir, &["config", "filter.lfs.clean", "git-lfs clean -- %f"]);
    let status = tine.json(&["status", "demo"]);
    let refused = |number: usize, part: &str| status["refused"][number][part].clone();
    assert_eq!(refused(0, "what"), "filter.lfs.clean");
    assert_eq!(refused(1, "what"), ".git/hooks/pre-commit");
    assert_eq!(refused(1, "reason"), "git runs it as a hook");
    assert_eq!(refused(2, "what"), "core.hooksPath");
    assert_eq!(refused(2, "path"), ".git/config");
    let text = tine.run(&["status", "demo"]);
    let text = text.error_text();
    assert!(
        text.contains(
            "demo: refused: core.hooksPath in .git/config (git runs the hooks in that directory)"
        ),
        "{text}"
    );
    let list = tine.run(&["list"]);
    assert!(
        list.text().contains("mounted, untrusted"),
        "{}",
        list.text()
    );
    assert!(list.error_text().contains("refused: filter.lfs.clean"));
}

#[test]
fn an_untrusted_fork_stays_untrusted_and_so_do_forks_of_it() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = new_untrusted(&tine, "one");
    let usage = tine.run(&["new", "x", "--untrusted", "--git", "linked"]);
    assert!(usage.error_text().contains("cannot be a linked worktree"));
    let usage = tine.run(&["convert", "one", "--git", "linked"]);
    assert!(usage.error_text().contains("untrusted"));
    tine.ok(&["unmount", "one"]);
    tine.ok(&["mount", "one"]);
    assert_refused(fs::write(dir.join(".git/hooks/pre-commit"), "x"));
    let two = tine.ok(&["new", "two", "--from-fork", "one"]);
    assert_refused(fs::write(
        Path::new(two.trim_end()).join(".git/config"),
        "x",
    ));
    repo.git(&["config", "tine.untrusted", "true"]);
    let three = tine.ok(&["new", "three"]);
    assert_refused(fs::write(
        Path::new(three.trim_end()).join(".git/config"),
        "x",
    ));
    repo.git(&["config", "--unset", "tine.untrusted"]);
    // What a trusted fork has set stays, and is still all that is there.
    let four = tine.ok(&["new", "four", "--git", "own"]);
    let four = PathBuf::from(four.trim_end());
    repo.git_in(&four, &["config", "alias.mine", "!true"]);
    fs::write(four.join(".git/hooks/post-commit"), "#!/bin/sh\n").unwrap();
    let five = tine.ok(&["new", "five", "--from-fork", "four", "--untrusted"]);
    let five = PathBuf::from(five.trim_end());
    repo.git_in(&five, &["mine"]);
    repo.git_in(&five, &["config", "user.name", "x"]);
    assert!(
        !repo
            .try_git_in(&five, &["config", "alias.other", "!x"])
            .status
            .success()
    );
    assert_refused(fs::write(five.join(".git/hooks/post-commit"), "x"));
    for fork in tine.json(&["list"])["forks"].as_array().unwrap() {
        assert_eq!(fork["untrusted"], fork["name"] != "four", "{fork}");
    }
}

#[test]
fn tine_runs_the_main_repositorys_hooks_and_not_the_forks_files() {
    require_fuse!();
    let repo = TestRepo::new();
    let marker = repo.root().join("hooks-ran");
    let hook = format!("echo main >> {}", marker.display());
    repo.write(".husky/pre-commit", format!("#!/bin/sh\n{hook}\n"));
    let path = repo.dir().join(".husky/pre-commit");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    repo.commit_all("husky");
    repo.git(&["config", "core.hooksPath", ".husky"]);
    let tine = Tine::new(&repo);
    let dir = new_untrusted(&tine, "demo");
    let mut file = fs::OpenOptions::new()
        .append(true)
        .open(dir.join(".husky/pre-commit"))
        .unwrap();
    writeln!(file, "echo fork >> {}", marker.display()).unwrap();
    drop(file);
    tine.ok(&["commit", "demo", "-m", "by tine"]);
    assert_eq!(fs::read_to_string(&marker).unwrap(), "main\n");
    repo.sh_in(&dir, "git commit -q --allow-empty -m 'by git'");
    assert_eq!(fs::read_to_string(&marker).unwrap(), "main\nmain\n");
}

/// tine's own tools and an earlier state bring files that no program could write.
#[test]
fn git_does_not_run_what_came_by_another_way() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = new_untrusted(&tine, "demo");
    // No git directory yet, so it can be written, and is in the snapshot.
    let evil = repo.root().join("evil");
    repo.sh_in(
        &dir,
        &format!(
            "mkdir -p late/hooks; printf '[alias]\\nx = !touch {0}\\n[user]\\nname = kept\\n' > late/config
             printf '#!/bin/sh\\ntouch {0}\\n' > late/hooks/post-commit; chmod +x late/hooks/post-commit",
            evil.display()
        ),
    );
    tine.ok(&["snapshot", "demo", "before"]);
    repo.sh_in(
        &dir,
        "rm -r late; git init -q --bare late; git -C late config core.bare false",
    );
    let restored = ["late/config", "late/hooks/post-commit"];
    for path in restored {
        tine.ok(&["restore", "demo", "before", "--path", path]);
    }
    for path in restored {
        assert!(fs::metadata(dir.join(path)).is_ok(), "{path}");
    }
    let git = |args: &[&str]| {
        repo.try_git_in(&dir, &[&["--git-dir=late", "--work-tree=."], args].concat())
    };
    assert!(!git(&["x"]).status.success());
    assert_eq!(git(&["config", "user.name"]).text(), "kept");
    git(&["commit", "-q", "--allow-empty", "-m", "x"]).expect_success("git commit");
    assert!(!evil.exists());
    let status = tine.run(&["status", "demo"]);
    assert!(
        status.error_text().contains("alias.x in late/config"),
        "{}",
        status.error_text()
    );
    repo.sh_in(&dir, "rm -r late");
}

/// The page has the table of the code.
#[test]
fn the_page_lists_the_refused_settings() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/git-in-forks.md");
    let page = fs::read_to_string(&path).unwrap();
    let rows = REFUSED.iter().map(|row| {
        format!(
            "| `{}` | {} | {} |\n",
            row.pattern.0,
            row.values.text(),
            row.reason
        )
    });
    let table: String =
        std::iter::once("| setting | refused values | why |\n|---|---|---|\n".into())
            .chain(rows)
            .collect();
    let start = page
        .find("| setting | refused values |")
        .expect("the table is there");
    let end = page[start..]
        .find("\n\n")
        .map_or(page.len(), |end| start + end + 1);
    if std::env::var_os("TINE_UPDATE_DOCS").is_some_and(|value| value == "1") {
        fs::write(&path, [&page[..start], &table, &page[end..]].concat()).unwrap();
        return;
    }
    assert_eq!(
        &page[start..end],
        table,
        "`TINE_UPDATE_DOCS=1 cargo test --test own_git` writes it"
    );
}
