//! What is staged in a fork whose HEAD tine moves: it stays staged, and comes back when the move is
//! taken back.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::merging::{main_goes_on, merge_refused, repo_with_list, set_line};
use crate::support::command::DEFAULT_LIMIT;
use crate::support::random::{Random, SayWhich};
use crate::support::{OutputExt, TestRepo, Tine, require_fuse, run_with_timeout, wait_until};

const SEED: &str = "TINE_STAGING_SEED";

/// What somebody did to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Nothing,
    Staged,
    Unstaged,
    StagedAndGoneOn,
    StagedMode,
    StagedRename,
    StagedRenameAndGoneOn,
    StagedDeletion,
    Deletion,
    /// `git rm --cached`: the file stays.
    Untracked,
    New,
    NewStaged,
    NewStagedAndGoneOn,
    NewStagedAndGone,
    Intended,
}

use Work::{
    Deletion, Intended, New, NewStaged, NewStagedAndGone, NewStagedAndGoneOn, Nothing, Staged,
    StagedAndGoneOn, StagedDeletion, StagedMode, StagedRename, StagedRenameAndGoneOn, Unstaged,
    Untracked,
};

const WORK: [Work; 15] = [
    Nothing,
    Staged,
    Unstaged,
    StagedAndGoneOn,
    StagedMode,
    StagedRename,
    StagedRenameAndGoneOn,
    StagedDeletion,
    Deletion,
    Untracked,
    New,
    NewStaged,
    NewStagedAndGoneOn,
    NewStagedAndGone,
    Intended,
];

impl Work {
    /// Whether a change of another line of the file merges with it.
    fn meets(self) -> bool {
        !matches!(
            self,
            StagedDeletion
                | Deletion
                | Untracked
                | New
                | NewStaged
                | NewStagedAndGoneOn
                | NewStagedAndGone
                | Intended
        )
    }

    fn is_of_new_file(self) -> bool {
        matches!(
            self,
            New | NewStaged | NewStagedAndGoneOn | NewStagedAndGone | Intended
        )
    }

    /// The command that does it to `path`; `edit LINE` changes a line of it.
    fn script(self, path: &str) -> String {
        let edit = |line: u32| format!("sed -i '{line}s/$/ mine/' {path}");
        let (first, more) = (edit(20), edit(28));
        match self {
            Nothing => "true".to_owned(),
            Staged => format!("{first}; git add {path}"),
            Unstaged => first,
            StagedAndGoneOn => format!("{first}; git add {path}; {more}"),
            StagedMode => format!("chmod +x {path}; git add {path}"),
            StagedRename => format!("git mv {path} {path}.moved"),
            StagedRenameAndGoneOn => format!("git mv {path} {path}.moved; {}.moved", first),
            StagedDeletion => format!("git rm -q {path}"),
            Deletion => format!("rm {path}"),
            Untracked => format!("git rm -q --cached {path}"),
            New => format!("echo new > {path}"),
            NewStaged => format!("echo {path} > {path}; git add {path}"),
            NewStagedAndGoneOn => {
                format!("echo {path} > {path}; git add {path}; echo on >> {path}")
            }
            NewStagedAndGone => format!("echo {path} > {path}; git add {path}; rm {path}"),
            Intended => format!("echo new > {path}; git add -N {path}"),
        }
    }
}

fn path_of(number: usize, work: Work) -> String {
    let kind = if work.is_of_new_file() { "new" } else { "file" };
    // Directories of one file, of several, and none.
    match number % 3 {
        0 => format!("{kind}{number}"),
        1 => format!("dir/{kind}{number}"),
        _ => format!("dir/only{number}/{kind}{number}"),
    }
}

/// All that git knows of an index, and what it takes for its tree.
fn index_of(repo: &TestRepo, dir: &Path) -> String {
    // git trusts the trees that an index remembers: those of the entries must be the same.
    let script = format!(
        "root='{}'
        git diff --name-only --diff-filter=A | while read path; do git ls-files -s \"$path\"; done > \"$root/intended\"
        echo none >> \"$root/intended\"
        rm -f \"$root/rebuilt\"
        git ls-files -s | grep -v -x -F -f \"$root/intended\" | GIT_INDEX_FILE=\"$root/rebuilt\" git update-index --index-info
        echo tree $(git write-tree) $(GIT_INDEX_FILE=\"$root/rebuilt\" git write-tree)
        git ls-files -s
        git status --short",
        repo.root().display()
    );
    let index = repo.sh_in(dir, &script);
    let trees: Vec<&str> = index
        .lines()
        .next()
        .unwrap_or_default()
        .split(' ')
        .collect();
    assert_eq!(trees[1], trees[2], "{index}");
    index
}

/// The entries of an index by path.
fn entries(repo: &TestRepo, dir: &Path) -> BTreeMap<String, String> {
    let listed = repo.git_in(dir, &["ls-files", "-s"]);
    let entry = |line: &str| {
        line.split_once('\t')
            .map(|(entry, path)| (path.to_owned(), entry.to_owned()))
    };
    listed.lines().filter_map(entry).collect()
}

#[test]
fn what_is_staged_stays_so_over_every_move_and_comes_back_with_undo() {
    require_fuse!();
    let (mut random, seed) = Random::from_environment(SEED);
    let _say = SayWhich(SEED, seed);
    let repo = TestRepo::new().without_maintenance();
    let count = 18;
    let lines = |path: &str| {
        (1..=30)
            .map(|n| format!("{path} line {n}\n"))
            .collect::<String>()
    };
    for number in 0..count {
        let path = path_of(number, Nothing);
        repo.write(&path, lines(&path));
    }
    repo.commit_all("Begin");
    let tine = Tine::new(&repo);
    for round in 0..8 {
        let start = repo.head();
        let work: Vec<Work> = (0..count)
            .map(|_| WORK[random.below(15) as usize])
            .collect();
        let touched: Vec<bool> = work
            .iter()
            .map(|work| work.meets() && random.below(2) == 0)
            .collect();
        let what = format!(
            "round {round}: {:?}",
            work.iter().zip(&touched).collect::<Vec<_>>()
        );
        let name = format!("fork{round}");
        let dir = tine.new_fork(&name);
        let with_commit = random.below(2) == 0;
        if with_commit {
            repo.sh_in(&dir, "echo own > own; git add own; git commit -qm own");
        }
        let did = |dir: &Path| {
            for (number, work) in work.iter().enumerate() {
                repo.sh_in(dir, &work.script(&path_of(number, *work)));
            }
        };
        did(&dir);
        let before = index_of(&repo, &dir);

        for (number, _) in touched.iter().enumerate().filter(|(_, touched)| **touched) {
            let path = path_of(number, Nothing);
            repo.sh_in(repo.dir(), &format!("sed -i '3s/$/ theirs/' {path}"));
        }
        repo.write(&format!("coming{round}"), format!("{round}\n"));
        repo.commit_all("Come");
        // What git makes of the same work on what comes.
        let git = repo.git_checkout_of(&repo.head(), &format!("git{round}"));
        if with_commit {
            repo.sh_in(&git, "echo own > own; git add own; git commit -qm own");
        }
        did(&git);

        let update = ["update", name.as_str()];
        let rebase = ["update", name.as_str(), "--rebase"];
        let into = format!("fork:{name}");
        let merge = ["merge", "main", "--into", into.as_str()];
        let verb: &[&str] = [&update[..], &rebase[..], &merge[..]][random.below(3) as usize];
        tine.ok(verb);
        assert_eq!(
            entries(&repo, &dir),
            entries(&repo, &git),
            "{what} {verb:?}"
        );
        assert_eq!(repo.status(&dir), repo.status(&git), "{what} {verb:?}");
        let after = index_of(&repo, &dir);
        tine.ok(&["undo", &name]);
        assert_eq!(index_of(&repo, &dir), before, "{what} {verb:?}, undone");
        tine.ok(&["redo", &name]);
        assert_eq!(index_of(&repo, &dir), after, "{what} {verb:?}, done again");
        // What is staged since stays.
        repo.sh_in(&dir, "echo since > since; git add since");
        tine.ok(&["undo", &name]);
        let taken_back = index_of(&repo, &dir);
        assert!(taken_back.contains("A  since"), "{taken_back}");
        repo.sh_in(&dir, "git rm -qf since");
        assert_eq!(
            index_of(&repo, &dir),
            before,
            "{what} {verb:?}, undone again"
        );
        assert_ne!(repo.head(), start);
    }
}

/// A fork whose staged line 8 is not the file's, and a branch `main` with that line and another one
/// changed.
fn at_odds_when_staged(repo: &TestRepo, tine: &Tine) -> PathBuf {
    let dir = tine.new_fork("work");
    set_line(repo, &dir, 8, "staged");
    repo.sh_in(&dir, "echo other > other; git add list.txt other");
    set_line(repo, &dir, 8, "8");
    set_line(repo, &dir, 2, "two");
    main_goes_on(repo, "acht");
    dir
}

#[test]
fn what_is_staged_alone_and_conflicts_keeps_the_fork_where_it_is() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    let dir = at_odds_when_staged(&repo, &tine);
    let before = index_of(&repo, &dir);
    for args in [
        &["merge", "main", "--into", "work"][..],
        &["update", "work"],
        &["update", "work", "--rebase"],
    ] {
        // A refused command may leave a tree that the index names, and that is kept from then on.
        tine.ok(&["status", "work"]);
        let failure = merge_refused(&repo, &tine, args, "local-changes", 3);
        assert_eq!(failure["paths"], json!(["list.txt"]), "{args:?}");
        let hint = failure["hint"].as_str().unwrap();
        assert!(hint.contains("git restore --staged"), "{hint}");
        assert_eq!(index_of(&repo, &dir), before, "{args:?}");
    }
    // As the hint says.
    repo.sh_in(&dir, "git add list.txt");
    tine.ok(&["update", "work"]);
    assert_eq!(repo.status(&dir), "M  list.txt\nA  other");
    let merged = "1\ntwo\n3\n4\n5\n6\n7\nacht\n9";
    assert_eq!(repo.git_in(&dir, &["show", ":list.txt"]), merged);
}

#[test]
fn what_git_left_in_conflict_in_the_index_keeps_the_fork_where_it_is() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("work");
    set_line(&repo, &dir, 2, "stashed");
    repo.sh_in(
        &dir,
        "git stash -q; sed -i '2s/.*/two/' list.txt; git commit -qam two; git stash pop -q || true",
    );
    let before = repo.git_in(&dir, &["ls-files", "-s"]);
    assert_eq!(
        before
            .lines()
            .filter(|line| line.ends_with("list.txt"))
            .count(),
        3
    );
    main_goes_on(&repo, "acht");
    tine.ok(&["status", "work"]);
    for args in [
        &["merge", "main", "--into", "work"][..],
        &["update", "work"],
    ] {
        merge_refused(&repo, &tine, args, "local-changes", 3);
        assert_eq!(repo.git_in(&dir, &["ls-files", "-s"]), before, "{args:?}");
    }
}

#[test]
fn a_review_that_is_committed_leaves_staged_what_was() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("work");
    set_line(&repo, &dir, 8, "eight");
    repo.sh_in(
        &dir,
        "echo other > other; git add list.txt other; echo more >> other",
    );
    let before = index_of(&repo, &dir);
    main_goes_on(&repo, "acht");
    tine.fails(3, &["update", "work", "--review"]);
    tine.ok(&["resolve", "1", "list.txt", "--union"]);
    tine.ok(&["review", "commit", "1"]);
    assert_eq!(repo.status(&dir), "M  list.txt\nAM other");
    assert_eq!(repo.git_in(&dir, &["show", ":other"]), "other");
    assert_eq!(repo.git_in(&dir, &["diff", "--name-only"]), "other");
    tine.ok(&["undo", "work"]);
    assert_eq!(index_of(&repo, &dir), before);
}

#[test]
fn a_daemon_that_is_killed_in_a_move_leaves_staged_what_was() {
    require_fuse!();
    for point in ["before-view", "before-index", "head-moved"] {
        let repo = repo_with_list();
        let tine = Tine::new(&repo);
        let points = repo.root().join("points");
        std::fs::create_dir(&points).unwrap();
        let mut first = tine.command(&["new", "work"]);
        let dir = PathBuf::from(run_with_timeout(first.env("TINE_PAUSE_IN", &points)).text());
        set_line(&repo, &dir, 2, "two");
        repo.sh_in(
            &dir,
            "echo other > other; echo intended > intended; git add list.txt other; git add -N intended; echo more >> other",
        );
        set_line(&repo, &dir, 5, "five");
        let before = index_of(&repo, &dir);
        main_goes_on(&repo, "acht");
        std::fs::write(points.join(point), "").unwrap();
        std::thread::scope(|scope| {
            let reached = points.join(format!("{point}.reached"));
            let update = scope.spawn(|| tine.run(&["update", "work"]));
            wait_until("the move", DEFAULT_LIMIT, || reached.exists());
            tine.kill_daemon();
            assert!(!update.join().unwrap().status.success(), "{point}");
        });
        tine.ok(&["mount", "work"]);
        assert_eq!(
            repo.git_in(&dir, &["rev-parse", "HEAD"]),
            repo.head(),
            "{point}"
        );
        assert_eq!(
            repo.sh_in(&dir, "git status --short"),
            " A intended\nMM list.txt\nAM other",
            "{point}"
        );
        let staged = repo.git_in(&dir, &["show", ":list.txt"]);
        assert_eq!(staged, "1\ntwo\n3\n4\n5\n6\n7\nacht\n9", "{point}");
        tine.ok(&["undo", "work"]);
        assert_eq!(index_of(&repo, &dir), before, "{point}");
    }
}

#[test]
fn what_is_uncommitted_and_comes_as_well_is_uncommitted_again_after_an_undo() {
    require_fuse!();
    let moves: [&[&str]; 3] = [
        &["merge", "source", "--into", "fork:target"],
        &[
            "branch",
            "switch",
            "target",
            "next",
            "--create",
            "--at",
            "tine/source",
        ],
        &["cherry-pick", "target", "tine/source"],
    ];
    for args in moves {
        let repo = TestRepo::new();
        repo.commit_files(&[("gone.txt", b"gone\n".as_slice())], "gone");
        let tine = Tine::new(&repo);
        let (source, target) = (tine.new_fork("source"), tine.new_fork("target"));
        for dir in [&source, &target] {
            fs::write(dir.join("README.md"), "the same\n").unwrap();
            fs::write(dir.join("new.txt"), "new\n").unwrap();
            fs::remove_file(dir.join("gone.txt")).unwrap();
        }
        fs::write(source.join("other.txt"), "other\n").unwrap();
        tine.ok(&["commit", "source", "-m", "Both"]);
        let status = || repo.git_in(&target, &["status", "--porcelain"]);
        let before = status();
        assert_eq!(before.lines().count(), 3, "{before}");
        for _ in 0..2 {
            match tine.run(args) {
                done if done.status.success() => {}
                // What is done again finds the branch.
                refused if args[0] == "branch" && refused.status.code() == Some(5) => {
                    tine.ok(&["redo", "target"]);
                }
                refused => panic!("{args:?}: {}", refused.error_text()),
            }
            assert_eq!(status(), "", "{args:?}");
            tine.ok(&["undo", "target"]);
            assert_eq!(status(), before, "{args:?}");
            assert_eq!(
                fs::read_to_string(target.join("README.md")).unwrap(),
                "the same\n"
            );
            assert_eq!(fs::read_to_string(target.join("new.txt")).unwrap(), "new\n");
            assert!(!target.join("gone.txt").exists(), "{args:?}");
            assert!(!target.join("other.txt").exists(), "{args:?}");
        }
    }
}

/// Only a commit of git's, or an entry, keeps it: no snapshot has it.
#[test]
fn what_is_staged_and_in_no_file_comes_back_whatever_drops_it() {
    require_fuse!();
    for drop in [
        &["reset", "work"][..],
        &["unmount", "work", "--discard"],
        &["delete", "work", "--force"],
        &["delete", "work"],
    ] {
        let repo = TestRepo::new();
        let tine = Tine::new(&repo);
        let dir = tine.new_fork("work");
        let status = || repo.git_in(&dir, &["status", "--porcelain"]);
        fs::write(dir.join("README.md"), "staged\n").unwrap();
        fs::write(dir.join("new.txt"), "staged, too\n").unwrap();
        repo.git_in(&dir, &["add", "README.md", "new.txt"]);
        let head = repo.git_in(&dir, &["show", "HEAD:README.md"]);
        fs::write(dir.join("README.md"), format!("{head}\n")).unwrap();
        fs::remove_file(dir.join("new.txt")).unwrap();
        assert_eq!(status(), "MM README.md\nAD new.txt");
        let said = tine.ok(drop);
        let entries = tine.json(&["recover"])["entries"].clone();
        assert_eq!(
            entries.as_array().unwrap().len(),
            1,
            "{drop:?}: {entries:#}"
        );
        let id = entries[0]["id"].to_string();
        assert!(said.contains("tine recover"), "{drop:?}: {said}");
        repo.git(&["gc", "-q", "--prune=now"]);
        match drop[0] {
            "delete" => tine.ok(&["recover", &id, "back", "--snapshot", "staged"]),
            _ => tine.ok(&["recover", &id, "back"]),
        };
        let back = dir.with_file_name("back");
        assert_eq!(
            fs::read_to_string(back.join("README.md")).unwrap(),
            "staged\n",
            "{drop:?}"
        );
        assert_eq!(
            fs::read_to_string(back.join("new.txt")).unwrap(),
            "staged, too\n"
        );
        assert_eq!(
            repo.git_in(&back, &["status", "--porcelain"])
                .lines()
                .count(),
            2
        );
    }
}

#[test]
fn what_is_staged_beside_a_conflict_comes_back_after_a_reset_and_what_is_in_files_makes_no_entry() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("work");
    set_line(&repo, &dir, 8, "two");
    tine.ok(&["commit", "work", "-m", "Two"]);
    main_goes_on(&repo, "zwei");
    repo.try_sh_in(&dir, "git merge main");
    fs::write(dir.join("new.txt"), "staged\n").unwrap();
    repo.git_in(&dir, &["add", "new.txt"]);
    fs::write(dir.join("new.txt"), "gone on\n").unwrap();
    let staged = tine.json(&["reset", "work"])["staged"].to_string();
    assert_eq!(repo.git_in(&dir, &["status", "--porcelain"]), "");
    tine.ok(&["recover", &staged, "back"]);
    let back = dir.with_file_name("back");
    // With what the merge brought.
    assert_eq!(
        repo.git_in(&back, &["status", "--porcelain"]),
        "?? main.txt\n?? new.txt"
    );
    assert_eq!(
        fs::read_to_string(back.join("new.txt")).unwrap(),
        "staged\n"
    );
    // Of what is staged as it is in the file nothing is lost with the index.
    fs::write(dir.join("README.md"), "mine\n").unwrap();
    repo.git_in(&dir, &["add", "README.md"]);
    assert_eq!(tine.json(&["reset", "work"])["staged"], json!(null));
}

#[test]
fn an_index_that_cannot_be_read_is_set_aside_by_what_drops_it() {
    require_fuse!();
    for drop in [&["reset", "work"][..], &["unmount", "work", "--discard"]] {
        let repo = TestRepo::new();
        let tine = Tine::new(&repo);
        let dir = tine.new_fork("work");
        fs::write(dir.join("new.txt"), "staged\n").unwrap();
        repo.git_in(&dir, &["add", "new.txt"]);
        fs::remove_file(dir.join("new.txt")).unwrap();
        let index = dir.join(repo.git_in(&dir, &["rev-parse", "--git-path", "index"]));
        let whole = fs::read(&index).unwrap();
        let half = &whole[..whole.len() / 2];
        fs::write(&index, half).unwrap();
        // What is locked stays as it is.
        let lock = index.with_extension("lock");
        fs::write(&lock, "").unwrap();
        tine.fails(5, drop);
        assert_eq!(fs::read(&index).unwrap(), half, "{drop:?}");
        fs::remove_file(lock).unwrap();

        let said = tine.ok(drop);
        assert!(
            said.contains("`tine check --put-back 1` brings it back"),
            "{said}"
        );
        tine.ok(&["mount", "work"]);
        assert_eq!(repo.git_in(&dir, &["status", "--porcelain"]), "");
        let listed = tine.json(&["recover"])["elsewhere"].clone();
        let aside = listed
            .as_array()
            .unwrap()
            .iter()
            .find(|one| one["what"] == "damaged");
        assert_eq!(
            aside.unwrap()["way_back"],
            "tine check --put-back 1",
            "{listed:#}"
        );
        fs::remove_file(&index).unwrap();
        tine.ok(&["check", "--put-back", "1"]);
        assert_eq!(fs::read(&index).unwrap(), half, "{drop:?}");
    }
}
