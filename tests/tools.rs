//! Real programs in real mounts: git, tar, rsync, sed, cargo, SQLite and what the kernel offers to
//! all of them.

mod support;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use support::{
    OutputExt, TestFork, TestRepo, Tine, require_fuse, require_program, run_with_timeout,
    run_with_timeout_of, soaking,
};

/// A mounted fork called `demo`.
fn mounted(repo: &TestRepo) -> TestFork {
    TestFork::mounted(repo, "demo")
}

/// Runs a Python program in `dir`; it says itself what is wrong by failing.
#[track_caller]
fn python(repo: &TestRepo, dir: &Path, program: &str) -> String {
    run_with_timeout(repo.command("python3", dir).args(["-c", program]))
        .expect_success("python3")
        .text()
}

#[test]
fn invariant_01_git_sees_a_clean_checkout_identical_to_its_own() {
    require_fuse!();
    let repo = TestRepo::new();
    let fork = mounted(&repo);
    assert_eq!(repo.status(fork.path()), "");
    let checkout = repo.git_checkout_of("HEAD", "by-git");
    repo.assert_same_trees(&checkout, fork.path());
    repo.git(&["fsck", "--strict"]);
}

#[test]
fn invariant_01_a_base_stays_when_branches_move() {
    require_fuse!();
    let repo = TestRepo::new();
    let mut fork = mounted(&repo);
    let before = repo.git_checkout_of("HEAD", "before");
    // The fork's own branch stays; everything else goes.
    repo.sh_in(
        repo.dir(),
        "git rm -rq .; echo other > README.md; git add -A; git commit -q --amend -m other",
    );
    repo.git(&["reflog", "expire", "--expire=now", "--all"]);
    repo.git(&["gc", "-q", "--prune=now"]);
    for _ in 0..2 {
        repo.assert_same_trees(&before, fork.path());
        assert_eq!(repo.status(fork.path()), "");
        fork.reopen();
    }
}

/// Invariant 6, as far as it can be seen from outside.
#[test]
fn first_git_status_reads_no_file() {
    require_fuse!();
    require_program!("strace");
    let repo = TestRepo::new();
    for number in 0..200 {
        repo.write(
            &format!("many/{}/file-{number}", number % 7),
            format!("content {number}\n"),
        );
    }
    repo.commit_all("many files");
    let fork = mounted(&repo);
    let trace = repo.root().join("trace");
    let output = run_with_timeout(
        repo.command("strace", fork.path())
            .args(["-f", "-y", "-e", "trace=open,openat,openat2", "-o"])
            .arg(&trace)
            .args(["git", "status", "--porcelain"]),
    )
    .expect_success("strace git status");
    assert_eq!(output.text(), "");
    let trace = fs::read_to_string(&trace).expect("strace wrote it");
    let mount = fork.path().to_str().expect("test directories are UTF-8");
    // What was opened stands at a line's end: `= 3</the/path>`. Directories are opened to be
    // listed, ignore files to be read, and `.git` leads to the repository.
    let allowed = [".gitignore", ".gitattributes", ".git"];
    let read: Vec<&str> = trace
        .lines()
        .filter(|line| !line.contains("O_DIRECTORY"))
        .filter_map(|line| {
            line.rsplit_once("= ")?
                .1
                .split_once('<')?
                .1
                .strip_suffix('>')
        })
        .filter(|path| path.starts_with(mount) && *path != mount)
        .filter(|path| {
            !allowed
                .iter()
                .any(|name| path.ends_with(&format!("/{name}")))
        })
        .collect();
    assert!(read.is_empty(), "git status opened\n{}", read.join("\n"));
    assert!(
        trace.contains(mount),
        "the trace shows nothing of the mount"
    );
}

#[test]
fn git_adds_commits_and_amends() {
    require_fuse!();
    let repo = TestRepo::new();
    let mut fork = mounted(&repo);
    let base = repo.head();
    repo.sh_in(
        fork.path(),
        "echo new > new.txt; mkdir -p a/b; echo deep > a/b/c; echo more >> README.md; rm docs/guide.md
         chmod +x src/main.rs; git mv data/large.bin data/moved.bin; ln -sf run.sh link; touch ignored.log",
    );
    assert_eq!(
        repo.status(fork.path()),
        "R  data/large.bin -> data/moved.bin\n M README.md\n D docs/guide.md\n M link\n M src/main.rs\n?? a/b/c\n?? new.txt"
            .replace("R  data/large.bin -> data/moved.bin\n M README.md", " M README.md\nR  data/large.bin -> data/moved.bin")
    );
    repo.sh_in(
        fork.path(),
        "git add -A; git commit -qm one; echo again >> new.txt; git commit -qam two",
    );
    assert_eq!(repo.status(fork.path()), "");
    assert_eq!(
        repo.git_in(fork.path(), &["log", "--format=%s", &format!("{base}..")]),
        "two\none"
    );
    assert_eq!(
        repo.git(&["rev-parse", "tine/demo"]),
        repo.git_in(fork.path(), &["rev-parse", "HEAD"])
    );
    assert!(fork.changes().changes.is_empty());
    repo.sh_in(
        fork.path(),
        "echo third >> new.txt; git commit -q --amend --no-edit -a",
    );
    assert_eq!(repo.status(fork.path()), "");
    let checkout = repo.git_checkout_of("tine/demo", "by-git");
    fs::write(checkout.join("ignored.log"), "").expect("the checkout can be written");
    repo.assert_same_trees(&checkout, fork.path());
    fork.reopen();
    assert_eq!(repo.status(fork.path()), "");
    repo.assert_same_trees(&checkout, fork.path());
    repo.git(&["fsck", "--strict"]);
}

/// Invariant 14: nothing that is done in a fork touches the main checkout.
#[test]
fn the_main_checkout_stays_as_it_was() {
    require_fuse!();
    let repo = TestRepo::new();
    repo.write("README.md", "unfinished\n");
    repo.write("untracked.txt", "mine\n");
    let before = (
        repo.status(repo.dir()),
        repo.head(),
        repo.git(&["symbolic-ref", "HEAD"]),
    );
    let fork = mounted(&repo);
    assert!(
        !fs::read_to_string(fork.path().join("README.md"))
            .expect("it is in the base")
            .contains("unfinished"),
        "the fork stands on the commit"
    );
    repo.sh_in(
        fork.path(),
        "echo x > README.md; git commit -qam x; git checkout -q -b other; rm -r src; git commit -qam y",
    );
    fork.commit("nothing")
        .expect_err("there is nothing to commit");
    fork.remove();
    assert_eq!(
        (
            repo.status(repo.dir()),
            repo.head(),
            repo.git(&["symbolic-ref", "HEAD"])
        ),
        before
    );
}

#[test]
fn git_checkout_switches_branches_back_and_forth() {
    require_fuse!();
    let repo = TestRepo::new();
    repo.git(&["checkout", "-q", "-b", "feature"]);
    repo.sh_in(
        repo.dir(),
        "git mv src source; echo f > README.md; rm -r docs; echo d > docs; chmod -x run.sh",
    );
    repo.commit_all("feature");
    repo.git(&["checkout", "-q", "main"]);
    let fork = mounted(&repo);
    for _ in 0..2 {
        repo.git_in(fork.path(), &["checkout", "-q", "--detach", "feature"]);
        assert_eq!(repo.status(fork.path()), "");
        assert_eq!(
            fs::read_to_string(fork.path().join("docs")).expect("a file now"),
            "d\n"
        );
        assert!(fork.changes().changes.is_empty());
        repo.git_in(fork.path(), &["checkout", "-q", "tine/demo"]);
        assert_eq!(repo.status(fork.path()), "");
        assert!(fork.path().join("docs/guide.md").is_file());
    }
    let checkout = repo.git_checkout_of("main", "by-git");
    repo.assert_same_trees(&checkout, fork.path());
    let refused = repo.try_git_in(fork.path(), &["checkout", "main"]);
    assert!(!refused.status.success(), "main is checked out elsewhere");
}

#[test]
fn git_stash_keeps_index_and_files_whole() {
    require_fuse!();
    let repo = TestRepo::new();
    let fork = mounted(&repo);
    repo.sh_in(fork.path(), "echo staged >> README.md; git add README.md; echo not >> docs/guide.md; echo u > untracked; rm run.sh");
    let before = repo.status(fork.path());
    repo.git_in(fork.path(), &["stash", "push", "-q", "--include-untracked"]);
    assert_eq!(repo.status(fork.path()), "");
    assert!(fork.path().join("run.sh").is_file());
    repo.git_in(fork.path(), &["stash", "pop", "-q", "--index"]);
    assert_eq!(repo.status(fork.path()), before);
    repo.git(&["fsck"]);
}

#[test]
fn git_rebases_merges_and_cherry_picks() {
    require_fuse!();
    let repo = TestRepo::new();
    let fork = mounted(&repo);
    repo.sh_in(
        fork.path(),
        "for i in 1 2 3; do echo $i > fork-$i; git add -A; git commit -qm fork-$i; done",
    );
    repo.commit_files(
        &[
            ("main.txt", b"main\n"),
            ("docs/guide.md", b"zero\none\ntwo\nthree\n"),
        ],
        "main moves",
    );
    repo.git_in(fork.path(), &["rebase", "-q", "main"]);
    assert_eq!(
        repo.git_in(fork.path(), &["log", "--format=%s"]),
        "fork-3\nfork-2\nfork-1\nmain moves\nbase"
    );
    assert_eq!(repo.status(fork.path()), "");
    assert!(fork.changes().changes.is_empty());
    repo.commit_files(&[("main.txt", b"main again\n")], "main moves again");
    repo.git_in(fork.path(), &["merge", "-q", "--no-edit", "main"]);
    assert_eq!(
        fs::read_to_string(fork.path().join("main.txt")).expect("it was merged"),
        "main again\n"
    );

    // A conflict, seen and left again.
    repo.commit_files(&[("main.txt", b"theirs\n")], "theirs");
    repo.sh_in(fork.path(), "echo ours > main.txt; git commit -qam ours");
    let before = repo.git_in(fork.path(), &["rev-parse", "HEAD"]);
    assert!(
        !repo
            .try_git_in(fork.path(), &["merge", "-q", "main"])
            .status
            .success()
    );
    assert_eq!(repo.status(fork.path()), "UU main.txt");
    repo.git_in(fork.path(), &["merge", "--abort"]);
    assert_eq!(repo.status(fork.path()), "");
    assert_eq!(repo.git_in(fork.path(), &["rev-parse", "HEAD"]), before);
    repo.git_in(fork.path(), &["cherry-pick", "-X", "theirs", "main"]);
    assert_eq!(
        fs::read_to_string(fork.path().join("main.txt")).expect("it was picked"),
        "theirs\n"
    );
    assert_eq!(repo.status(fork.path()), "");
    repo.git(&["fsck"]);
}

#[test]
fn git_bisects() {
    require_fuse!();
    let repo = TestRepo::new();
    for number in 0..8 {
        repo.commit_files(
            &[("number", format!("{number}\n").as_bytes())],
            &format!("number {number}"),
        );
    }
    let fork = mounted(&repo);
    let found = repo.sh_in(
        fork.path(),
        "git bisect start HEAD HEAD~7 >/dev/null; git bisect run sh -c 'test $(cat number) -lt 5' | grep 'first bad'; git bisect reset >/dev/null 2>&1",
    );
    let bad = repo.git(&["rev-parse", "HEAD~2"]);
    assert!(found.starts_with(&bad), "{found}");
    assert_eq!(repo.status(fork.path()), "");
    assert_eq!(
        fs::read_to_string(fork.path().join("number")).expect("it is in the base"),
        "7\n"
    );
}

#[test]
fn a_sparse_checkout_deletes_nothing() {
    require_fuse!();
    for kind in ["--no-sparse-index", "--sparse-index"] {
        let repo = TestRepo::new();
        let mut fork = mounted(&repo);
        repo.git_in(fork.path(), &["sparse-checkout", "set", kind, "docs"]);
        assert!(!fork.path().join("src").exists());
        repo.sh_in(
            fork.path(),
            "git update-index --skip-worktree run.sh; rm run.sh; echo more >> docs/guide.md",
        );
        fork.commit("docs").expect("there is something to commit");
        let changed = repo.git(&["diff", "--name-only", "main", "tine/demo"]);
        assert_eq!(changed, "docs/guide.md", "{kind}");
        assert_eq!(repo.status(fork.path()), "", "{kind}");
        assert!(fork.changes().changes.is_empty(), "{kind}");
        fork.reopen();
        repo.git_in(fork.path(), &["sparse-checkout", "disable"]);
        assert_eq!(repo.status(fork.path()), "", "{kind}");
        let checkout = repo.git_checkout_of("tine/demo", "by-git");
        repo.assert_same_trees(&checkout, fork.path());
    }
}

#[test]
fn git_may_write_the_index_in_any_format() {
    require_fuse!();
    let repo = TestRepo::new();
    let mut fork = mounted(&repo);
    for format in [
        "--index-version=2",
        "--split-index",
        "--index-version=3",
        "--no-split-index",
        "--index-version=4",
    ] {
        let args = [
            &["update-index"][..],
            &format.split('=').collect::<Vec<_>>(),
        ]
        .concat();
        repo.git_in(fork.path(), &args);
        repo.sh_in(
            fork.path(),
            &format!("echo {format} >> README.md; echo {format} > new{format}"),
        );
        assert_eq!(
            repo.status(fork.path()),
            format!(" M README.md\n?? new{format}")
        );
        fork.commit(format).expect("there is something to commit");
        assert_eq!(repo.status(fork.path()), "", "{format}");
        let listed = repo.git_in(fork.path(), &["ls-files", &format!("new{format}")]);
        assert_eq!(listed, format!("new{format}"));
    }
    fork.reopen();
    assert_eq!(repo.status(fork.path()), "");
}

#[test]
fn git_cleans_and_restores() {
    require_fuse!();
    let repo = TestRepo::new();
    let fork = mounted(&repo);
    repo.sh_in(
        fork.path(),
        "mkdir -p x/y target/debug; touch x/y/z target/debug/o a.log new; echo bad > README.md; rm -r src",
    );
    repo.git_in(fork.path(), &["clean", "-fdq"]);
    assert_eq!(
        repo.status(fork.path())
            .lines()
            .filter(|line| line.starts_with("??"))
            .count(),
        0
    );
    assert!(
        fork.path().join("target/debug/o").exists(),
        "what is ignored stays"
    );
    repo.git_in(fork.path(), &["clean", "-fdxq"]);
    assert!(!fork.path().join("target").exists() && !fork.path().join("a.log").exists());
    repo.git_in(fork.path(), &["restore", "."]);
    assert_eq!(repo.status(fork.path()), "");
    let checkout = repo.git_checkout_of("HEAD", "by-git");
    repo.assert_same_trees(&checkout, fork.path());
}

/// Invariant 3, against git's own housekeeping.
#[test]
fn gc_and_prune_leave_forks_alone() {
    require_fuse!();
    let repo = TestRepo::new();
    repo.git(&["checkout", "-q", "-b", "passing"]);
    let base = repo.commit_files(&[("only-here.txt", b"only here\n")], "soon unreachable");
    let mut fork = TestFork::with(&repo, "demo", |options| options.from = Some(base.clone()));
    fork.mount();
    repo.sh_in(
        fork.path(),
        "echo kept > kept.txt; git add -A; git commit -qm kept; git reset -q --hard HEAD~",
    );
    let committed = {
        fs::write(fork.path().join("more.txt"), "more\n").expect("the mount can be written");
        fork.commit("more")
            .expect("there is something to commit")
            .commit_id
            .to_string()
    };
    repo.sh_in(
        fork.path(),
        "git checkout -q --detach; git branch -qD tine/demo",
    );
    repo.git(&["checkout", "-q", "main"]);
    repo.git(&["branch", "-qD", "passing"]);
    repo.git(&["worktree", "prune", "--expire=now"]);
    repo.git(&[
        "reflog",
        "expire",
        "--expire=now",
        "--expire-unreachable=now",
        "--all",
    ]);
    repo.git(&["gc", "-q", "--prune=now"]);
    let listed = repo.git(&["worktree", "list", "--porcelain"]);
    assert!(
        listed.contains(&format!("worktree {}", fork.path().display()))
            && listed.contains("locked"),
        "{listed}"
    );
    fork.reopen();
    assert_eq!(
        fs::read_to_string(fork.path().join("only-here.txt")).expect("gc kept the base"),
        "only here\n"
    );
    assert_eq!(
        fs::read_to_string(fork.path().join("more.txt")).expect("gc kept the commit"),
        "more\n"
    );
    assert_eq!(repo.git_in(fork.path(), &["rev-parse", "HEAD"]), committed);
    assert_eq!(repo.status(fork.path()), "");
    repo.git(&["fsck"]);
}

#[test]
fn git_worktree_remove_is_refused() {
    require_fuse!();
    let repo = TestRepo::new();
    let fork = mounted(&repo);
    let refused = repo.try_git_in(
        repo.dir(),
        &["worktree", "remove", support::repo::path_text(fork.path())],
    );
    assert!(!refused.status.success());
    assert!(
        refused.error_text().contains("tine"),
        "the reason leads to tine: {}",
        refused.error_text()
    );
    assert_eq!(repo.status(fork.path()), "");
}

#[test]
fn hooks_run_in_the_mount() {
    require_fuse!();
    let repo = TestRepo::new();
    let hooks = repo.common_dir().join("hooks");
    fs::create_dir_all(&hooks).expect("the directory can be made");
    for (name, script) in [
        (
            "pre-commit",
            "#!/bin/sh\npwd > \"$HOME/where\"\n! grep -rq FORBIDDEN --include='*.txt' .\n",
        ),
        (
            "post-commit",
            "#!/bin/sh\ngit log -1 --format=%s > \"$HOME/what\"\n",
        ),
    ] {
        fs::write(hooks.join(name), script).expect("the hook can be written");
        fs::set_permissions(hooks.join(name), fs::Permissions::from_mode(0o755))
            .expect("it was just written");
    }
    let fork = mounted(&repo);
    repo.sh_in(
        fork.path(),
        "echo fine > a.txt; git add a.txt; git commit -qm hooked",
    );
    let home = |name: &str| fs::read_to_string(repo.home().join(name)).expect("the hook ran");
    assert_eq!(Path::new(home("where").trim()), fork.path());
    assert_eq!(home("what"), "hooked\n");
    let refused = repo.try_sh_in(
        fork.path(),
        "echo FORBIDDEN > a.txt; git commit -qam refused",
    );
    assert!(!refused.status.success());
    assert_eq!(
        repo.git_in(fork.path(), &["log", "-1", "--format=%s"]),
        "hooked"
    );
}

#[test]
fn tar_packs_and_unpacks() {
    require_fuse!();
    let repo = TestRepo::new();
    let fork = mounted(&repo);
    repo.sh_in(
        repo.root(),
        "mkdir -p pack/d/e; echo one > pack/one; ln pack/one pack/hard; ln -s one pack/soft; chmod 640 pack/one
         head -c 500000 /dev/urandom > pack/d/big; touch -d '2001-02-03 04:05:06.789' pack/d/e; mkfifo pack/fifo
         truncate -s 1M pack/sparse; printf x | dd of=pack/sparse bs=1 seek=600000 conv=notrunc status=none
         tar --format=posix -cSf pack.tar pack",
    );
    repo.sh_in(
        fork.path(),
        "tar xSf ../../pack.tar && tar --compare -f ../../pack.tar",
    );
    let meta = |path: &str| fs::metadata(fork.path().join(path)).expect("tar made it");
    assert_eq!(meta("pack/one").ino(), meta("pack/hard").ino());
    assert_eq!(meta("pack/one").nlink(), 2);
    assert_eq!(meta("pack/d/e").mtime_nsec(), 789_000_000);
    assert!(
        meta("pack/sparse").blocks() * 512 < 1_000_000,
        "the hole takes no space"
    );
    repo.sh_in(fork.path(), "tar cf ../../back.tar pack");
    repo.sh_in(repo.root(), "tar --compare -f back.tar");
}

#[test]
fn rsync_copies_both_ways() {
    require_fuse!();
    require_program!("rsync");
    let repo = TestRepo::new();
    let fork = mounted(&repo);
    repo.sh_in(
        repo.root(),
        "mkdir -p from/d; cp -r /etc/passwd from/; head -c 200000 /dev/urandom > from/d/big; ln -s big from/d/l; chmod 700 from/d",
    );
    repo.sh_in(
        fork.path(),
        "rsync -a ../../from/ copy/; rsync -a --delete --inplace ../../from/ copy/",
    );
    let check = "test -z \"$(rsync -ain --checksum --delete ../../from/ copy/)\"";
    repo.sh_in(fork.path(), check);
    repo.sh_in(
        fork.path(),
        "echo more >> ../../from/d/big; rm ../../from/d/l; rsync -a --delete ../../from/ copy/",
    );
    repo.sh_in(fork.path(), check);
    repo.sh_in(
        fork.path(),
        "rsync -a --exclude=.git ./ ../../whole/; diff -r --no-dereference --exclude=.git . ../../whole",
    );
}

#[test]
fn editors_save_in_their_ways() {
    require_fuse!();
    let repo = TestRepo::new();
    let fork = mounted(&repo);
    repo.sh_in(
        fork.path(),
        "sed -i s/two/2/ docs/guide.md
         sed -i s/hello/hi/ src/main.rs; test \"$(cat docs/guide.md)\" = \"$(printf 'one\\n2\\nthree')\"",
    );
    // A backup by rename, then a new file; a temporary file renamed over; truncation in place.
    repo.sh_in(
        fork.path(),
        "mv README.md README.md~; echo saved > README.md; rm README.md~
         printf 'echo renamed\\n' > .run.sh.tmp; chmod --reference=run.sh .run.sh.tmp; mv .run.sh.tmp run.sh
         : > docs/empty; echo in place > docs/empty; test \"$(cat README.md)\" = saved; test \"$(./run.sh)\" = renamed",
    );
    assert_eq!(
        repo.status(fork.path()),
        " M README.md\n M docs/empty\n M docs/guide.md\n M run.sh\n M src/main.rs"
    );
    let (mut changed, changes) = (BTreeSet::new(), fork.changes());
    changed.extend(changes.changes.iter().map(|change| change.path.to_string()));
    assert_eq!(changed.len(), 5, "nothing is left over: {changed:?}");
}

#[test]
fn vim_saves_with_and_without_a_backup_copy() {
    require_fuse!();
    // Debian's small package has it under another name.
    let vim = if support::has_program("vim") {
        "vim"
    } else {
        "vim.tiny"
    };
    require_program!(vim);
    let repo = TestRepo::new();
    let fork = mounted(&repo);
    for backup in ["yes", "no"] {
        repo.sh_in(
            fork.path(),
            &format!("{vim} -es -u NONE -c 'set backupcopy={backup}' -c '%s/# .*/# saved {backup}/' -c wq README.md"),
        );
        let saved = fs::read_to_string(fork.path().join("README.md")).expect("vim saved it");
        assert!(saved.starts_with(&format!("# saved {backup}\n")), "{saved}");
        assert_eq!(
            repo.status(fork.path()),
            " M README.md",
            "nothing is left beside it"
        );
    }
}

#[test]
fn cargo_builds_twice_and_rebuilds_nothing() {
    require_fuse!();
    let repo = TestRepo::unborn();
    repo.write(
        "Cargo.toml",
        "[package]\nname = \"tiny\"\nversion = \"0.1.0\"\nedition = \"2021\"\n",
    );
    repo.write(
        "src/main.rs",
        "mod part;\nfn main() { println!(\"{}\", part::answer()); }\n",
    );
    repo.write(
        "src/part.rs",
        "pub fn answer() -> u32 { 42 }\n#[test] fn holds() { assert_eq!(answer(), 42); }\n",
    );
    repo.write(
        "build.rs",
        "fn main() { println!(\"cargo:rerun-if-changed=build.rs\"); }\n",
    );
    repo.write(".gitignore", "/target\n");
    repo.commit_all("crate");
    let mut fork = mounted(&repo);
    let cargo = |fork: &TestFork, args: &[&str]| {
        let mut command = repo.cargo(fork.path());
        command.args(args).arg("--offline");
        run_with_timeout_of(&mut command, Duration::from_secs(240), b"").expect_success("cargo")
    };
    assert_eq!(cargo(&fork, &["run", "-q"]).text(), "42");
    assert_eq!(repo.status(fork.path()), "?? Cargo.lock");
    fs::write(
        fork.path().join("src/part.rs"),
        "pub fn answer() -> u32 { 43 }\n",
    )
    .expect("the mount can be written");
    assert_eq!(cargo(&fork, &["run", "-q"]).text(), "43");
    fork.commit("answer").expect("there is something to commit");
    fork.reopen();
    let again = cargo(&fork, &["build"]).error_text();
    assert!(
        !again.contains("Compiling"),
        "commit and remount are no reason to build again: {again}"
    );
}

#[test]
fn a_base_directory_is_renamed_without_copying() {
    require_fuse!();
    let repo = TestRepo::new();
    for number in 0..300 {
        repo.write(&format!("big/{}/{number}", number % 10), vec![b'x'; 10_000]);
    }
    repo.commit_all("three megabytes");
    let mut fork = mounted(&repo);
    let before = fork.workspace().stats();
    repo.sh_in(fork.path(), "mv big moved; mv moved/3 three; mv src big");
    for _ in 0..2 {
        assert_eq!(
            repo.sh_in(
                fork.path(),
                "cat moved/4/4 three/3 | wc -c; ls moved three | wc -l; ls big"
            ),
            "20000\n42\ndeep\nmain.rs"
        );
        fork.reopen();
    }
    let after = fork.workspace().stats();
    assert_eq!(
        after.content_bytes, before.content_bytes,
        "no content was copied"
    );
    fork.commit("renamed")
        .expect("there is something to commit");
    assert_eq!(repo.status(fork.path()), "");
    let renames = repo.git(&["diff", "--name-status", "-M100%", "HEAD", "tine/demo"]);
    assert!(
        renames.lines().count() > 300 && renames.lines().all(|line| line.starts_with("R100")),
        "{renames}"
    );
    let checkout = repo.git_checkout_of("tine/demo", "by-git");
    repo.assert_same_trees(&checkout, fork.path());
}

#[test]
fn a_directory_with_very_many_entries() {
    require_fuse!();
    let count = if soaking() { 100_000 } else { 20_000 };
    let repo = TestRepo::new();
    let fork = mounted(&repo);
    let made = python(
        &repo,
        fork.path(),
        &format!(
            "import os
os.mkdir('many')
for i in range({count}): os.close(os.open(f'many/{{i}}', os.O_CREAT | os.O_EXCL | os.O_WRONLY))
names = os.listdir('many')
assert len(names) == len(set(names)) == {count}, len(names)
for i in range(0, {count}, 2): os.unlink(f'many/{{i}}')
seen = [entry.name for entry in os.scandir('many')]
assert sorted(map(int, seen)) == list(range(1, {count}, 2))
removed = 0
for entry in os.scandir('many'):
    os.unlink(entry.path)
    removed += 1
os.rmdir('many')
print(removed)"
        ),
    );
    assert_eq!(
        made,
        (count / 2).to_string(),
        "removing while listing misses nothing"
    );
}

#[test]
fn names_of_any_bytes() {
    require_fuse!();
    let repo = TestRepo::new();
    let mut fork = mounted(&repo);
    let names: [&[u8]; 6] = [
        b"\xff\xfe",
        &[b'n'; 255],
        &[0xc3; 255],
        b"a\nb",
        b" \t\\\"'*?",
        "\u{e4}\u{1f600}".as_bytes(),
    ];
    for name in names {
        fs::write(fork.path().join(OsStr::from_bytes(name)), name).expect("the name is allowed");
    }
    let too_long = fork.path().join(OsStr::from_bytes(&[b'n'; 256]));
    let error = fs::write(&too_long, "x").expect_err("the name is too long");
    assert_eq!(error.raw_os_error(), Some(libc::ENAMETOOLONG));
    fork.reopen();
    fork.commit("names").expect("there is something to commit");
    assert_eq!(repo.status(fork.path()), "");
    let listed = repo.try_git_in(fork.path(), &["ls-tree", "-z", "--name-only", "HEAD"]);
    let listed: BTreeSet<&[u8]> = listed.stdout.split(|&b| b == 0).collect();
    for name in names {
        assert!(
            listed.contains(name),
            "{} is in the commit",
            String::from_utf8_lossy(name)
        );
        let content =
            fs::read(fork.path().join(OsStr::from_bytes(name))).expect("it is in the commit");
        assert_eq!(content, name);
    }
}

#[test]
fn special_files_live_in_the_layer_and_out_of_commits() {
    require_fuse!();
    let repo = TestRepo::new();
    let fork = mounted(&repo);
    python(
        &repo,
        fork.path(),
        "import os, socket, threading
os.mkfifo('fifo')
def write():
    with open('fifo', 'w') as f: f.write('through')
thread = threading.Thread(target=write); thread.start()
with open('fifo') as f: assert f.read() == 'through'
thread.join()
server = socket.socket(socket.AF_UNIX); server.bind('sock'); server.listen()
client = socket.socket(socket.AF_UNIX); client.connect('sock')
connection, _ = server.accept(); client.send(b'hello'); assert connection.recv(5) == b'hello'",
    );
    let kind = |name: &str| {
        fs::symlink_metadata(fork.path().join(name))
            .expect("it was made")
            .file_type()
    };
    assert!(kind("fifo").is_fifo() && kind("sock").is_socket());
    let changes = fork.changes();
    assert!(changes.changes.is_empty(), "git cannot hold them");
    let left_out: Vec<String> = changes.left_out.iter().map(ToString::to_string).collect();
    assert_eq!(left_out, ["fifo", "sock"]);
    assert_eq!(repo.status(fork.path()), "");
}

#[test]
fn sqlite_with_a_write_ahead_log() {
    require_fuse!();
    let repo = TestRepo::new();
    let mut fork = mounted(&repo);
    let write = "import sqlite3, threading
db = sqlite3.connect('db', timeout=30)
assert db.execute('pragma journal_mode=wal').fetchone()[0] == 'wal'
db.execute('create table if not exists t (x integer)')
def work(n):
    own = sqlite3.connect('db', timeout=30)
    for i in range(50):
        with own: own.execute('insert into t values (?)', (n * 1000 + i,))
threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
[t.start() for t in threads]; [t.join() for t in threads]
assert db.execute('select count(*) from t').fetchone()[0] == 150
assert db.execute('pragma integrity_check').fetchone()[0] == 'ok'";
    python(&repo, fork.path(), write);
    fork.reopen();
    python(
        &repo,
        fork.path(),
        "import sqlite3
db = sqlite3.connect('db')
assert db.execute('select count(distinct x) from t').fetchone()[0] == 150
assert db.execute('pragma integrity_check').fetchone()[0] == 'ok'",
    );
}

#[test]
fn memory_maps_are_shared_and_kept() {
    require_fuse!();
    let repo = TestRepo::new();
    let mut fork = mounted(&repo);
    python(
        &repo,
        fork.path(),
        "import mmap, os
f = open('data/large.bin', 'r+b')
m = mmap.mmap(f.fileno(), 0)
before = open('data/large.bin', 'rb').read()
assert m[:] == before
m[100000:100006] = b'mapped'
m.flush()
assert open('data/large.bin', 'rb').read() == before[:100000] + b'mapped' + before[100006:]
g = open('data/large.bin', 'r+b')
n = mmap.mmap(g.fileno(), 0)
m[0:1] = b'Q'
assert n[0:1] == b'Q'
new = open('new.bin', 'w+b'); new.truncate(1 << 20)
p = mmap.mmap(new.fileno(), 0); p[500000:500003] = b'end'; p.close()",
    );
    fork.reopen();
    let large = fs::read(fork.path().join("data/large.bin")).expect("it is in the base");
    assert_eq!(&large[100_000..100_006], b"mapped");
    assert_eq!(large[0], b'Q');
    assert_eq!(large.len(), support::repo::large_content().len());
    let new = fs::read(fork.path().join("new.bin")).expect("it was made");
    assert_eq!(
        (new.len(), &new[500_000..500_003]),
        (1 << 20, b"end".as_slice())
    );
}

/// Invariant 8: what the library writes is seen through the mount at once, and the other way round.
#[test]
fn mount_and_library_see_the_same_bytes() {
    use tine::path::RepoPath;
    use tine::workspace::Caller;
    require_fuse!();
    let repo = TestRepo::new();
    let fork = mounted(&repo);
    // SAFETY: these calls touch no memory.
    let (uid, gid) = unsafe { (libc::getuid(), libc::getgid()) };
    let caller = Caller::new(uid, gid);
    let readme = RepoPath::parse("README.md").expect("a plain path");
    let new = RepoPath::parse("docs/new.txt").expect("a plain path");
    let (readme_file, new_file) = (
        fork.path().join("README.md"),
        fork.path().join("docs/new.txt"),
    );
    for round in 0..20 {
        // Everything that the kernel may remember is looked at before.
        assert!(!new_file.exists());
        fs::read(&readme_file).expect("it is in the base");
        let text = format!("round {round}: {}\n", "x".repeat(round * 400));
        fork.workspace()
            .write_path(caller, &readme, text.as_bytes())
            .expect("it can be written");
        fork.workspace()
            .write_path(caller, &new, text.as_bytes())
            .expect("it can be written");
        support::wait_until("the kernel is told", Duration::from_secs(5), || {
            fs::read_to_string(&readme_file).is_ok_and(|seen| seen == text)
                && fs::read_to_string(&new_file).is_ok_and(|seen| seen == text)
        });
        let back = format!("back {round}\n");
        fs::write(&readme_file, &back).expect("the mount can be written");
        assert_eq!(
            fork.workspace().read_path(&readme).expect("it is there"),
            back.as_bytes()
        );
        fork.workspace()
            .remove_path(caller, &new)
            .expect("it is there");
        support::wait_until("the kernel is told", Duration::from_secs(5), || {
            !new_file.exists()
        });
    }
}

/// Invariant 12, from the command line: what is discarded can be brought back.
#[test]
fn discarding_keeps_a_snapshot_to_go_back_to() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    repo.sh_in(&dir, "echo precious > precious.txt && rm docs/guide.md && echo dull > build.log && echo '*.log' > .gitignore");
    tine.ok(&["unmount", "demo", "--discard"]);
    let dir = PathBuf::from(tine.ok(&["mount", "demo"]));
    assert_eq!(repo.status(&dir), "");
    assert!(dir.join("docs/guide.md").exists() && !dir.join("precious.txt").exists());
    repo.sh_in(&dir, "echo other > other.txt");
    tine.ok(&["restore", "demo", "before-discard-1"]);
    assert_eq!(
        fs::read_to_string(dir.join("precious.txt")).expect("it was kept"),
        "precious\n"
    );
    assert!(dir.join("build.log").exists(), "ignored files, too");
    assert!(!dir.join("docs/guide.md").exists() && !dir.join("other.txt").exists());
    tine.ok(&["restore", "demo", "before-restore-2"]);
    assert!(dir.join("other.txt").exists() && dir.join("docs/guide.md").exists());
    tine.ok(&["reset", "demo"]);
    assert_eq!(repo.status(&dir), "");

    repo.sh_in(&dir, "echo again > again.txt");
    tine.ok(&["delete", "demo", "--force"]);
    let kept = repo.git(&["for-each-ref", "--format=%(refname)", "refs/tine/"]);
    assert_eq!(kept, "refs/tine/+recover/1");
    let brought_back = PathBuf::from(tine.ok(&["recover", "1", "again"]));
    assert_eq!(
        fs::read_to_string(brought_back.join("again.txt")).expect("it was kept"),
        "again\n"
    );
}

#[test]
fn forks_written_at_the_same_time_do_not_mix() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let forks: Vec<(String, PathBuf)> = (0..3)
        .map(|number| format!("fork-{number}"))
        .map(|name| (name.clone(), tine.new_fork(&name)))
        .collect();
    let content = |name: &str, writer: usize, number: usize| {
        format!("{name} {writer} {number}\n")
            .repeat(1 + number * 40)
            .into_bytes()
    };
    std::thread::scope(|scope| {
        for (name, dir) in &forks {
            for writer in 0..3 {
                scope.spawn(move || {
                    for number in 0..40 {
                        // The same names in every fork; the writers of a fork share its
                        // directories.
                        let path = dir.join(format!("src/file-{writer}-{number}"));
                        fs::write(&path, content(name, writer, number))
                            .expect("the mount can be written");
                        if number % 2 == 0 {
                            let moved = dir.join(format!("docs/moved-{writer}-{number}"));
                            fs::rename(&path, moved).expect("the file was just made");
                        }
                    }
                });
            }
        }
    });
    std::thread::scope(|scope| {
        for (name, dir) in &forks {
            let (repo, tine) = (&repo, &tine);
            scope.spawn(move || {
                tine.ok(&["commit", name, "-m", name]);
                assert_eq!(repo.status(dir), "");
            });
        }
    });
    for (name, dir) in &forks {
        for (writer, number) in
            (0..3).flat_map(|writer| (0..40).map(move |number| (writer, number)))
        {
            let path = match number % 2 {
                0 => format!("docs/moved-{writer}-{number}"),
                _ => format!("src/file-{writer}-{number}"),
            };
            let expected = content(name, writer, number);
            assert!(
                fs::read(dir.join(&path)).expect("it was written") == expected,
                "{name}: {path}"
            );
        }
        let checkout = repo.git_checkout_of(&format!("tine/{name}"), &format!("by-git-{name}"));
        repo.assert_same_trees(&checkout, dir);
    }
    repo.git(&["fsck", "--strict"]);
}
