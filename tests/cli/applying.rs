//! `tine apply`: what a patch makes of a fork's files, as `git apply` has it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::{Value, json};

use crate::merging::{each, merge_refused, repo_with_list, set_line, told};
use crate::support::command::DEFAULT_LIMIT;
use crate::support::{
    OutputExt, TestRepo, Tine, assert_agreement, path_text, require_fuse, run_with_timeout_of,
};
use crate::updating::standing;

/// Writes a patch beside the repository; where it is.
fn patch_file(repo: &TestRepo, text: impl AsRef<[u8]>) -> String {
    let path = repo.root().join("the.patch");
    fs::write(&path, text).expect("it can be written");
    path_text(&path).to_owned()
}

/// The patch from HEAD to what `script` makes of it in a checkout of its own; with that checkout,
/// which has it.
fn patch_of(repo: &TestRepo, name: &str, script: &str) -> (String, PathBuf) {
    let dir = repo.git_checkout_of("HEAD", name);
    repo.sh_in(&dir, script);
    repo.git_in(&dir, &["add", "-A"]);
    let patch = repo.root().join(format!("{name}.patch"));
    repo.sh_in(
        &dir,
        &format!(
            "git diff --cached --binary -M -C --find-copies-harder > {}",
            patch.display()
        ),
    );
    (path_text(&patch).to_owned(), dir)
}

fn piped(tine: &Tine, args: &[&str], input: &[u8]) -> Output {
    run_with_timeout_of(&mut tine.command(args), DEFAULT_LIMIT, input)
}

const EVERYTHING: &str = "\
sed -i 2s/.*/two/ list.txt; git mv docs/guide.md docs/manual.md; echo more >> docs/manual.md
cp src/main.rs src/copy.rs; echo '// a copy' >> src/copy.rs; chmod +x README.md; chmod -x run.sh
printf '\\0\\1\\2' > data/large.bin; ln -sfn src link; rm docs/empty; mkdir -p new/dir; echo new > new/dir/file
: > new/empty; printf 'no newline' > tail; rm dangling; echo 'a file now' > dangling; printf 'a\\r\\nb\\r\\n' > crlf";

#[test]
fn all_that_a_patch_of_gits_can_say_is_done_and_taken_back() {
    require_fuse!();
    for is_mounted in [true, false] {
        let repo = repo_with_list();
        let tine = Tine::new(&repo);
        let dir = tine.new_fork("work");
        let (patch, expected) = patch_of(&repo, "expected", EVERYTHING);
        if !is_mounted {
            tine.ok(&["unmount", "work"]);
        }
        let stood = standing(&repo, &tine, "work");
        let checked = told(&tine, 0, &["apply", "work", &patch, "--check"]);
        assert_eq!(
            standing(&repo, &tine, "work"),
            stood,
            "a check changes nothing"
        );
        let done = told(&tine, 0, &["apply", "work", &patch]);
        assert_eq!(checked["changes"], done["changes"]);
        assert_eq!(
            (&done["status"], &done["commits"]),
            (&json!("merged"), &json!([]))
        );
        assert_eq!(done["before"], done["after"]);
        let status = repo.git_in(
            &expected,
            &["diff", "--cached", "--no-renames", "--name-status"],
        );
        assert_agreement(&repo, &tine, "work", &status);
        let came = standing(&repo, &tine, "work");
        tine.ok(&["undo", "work"]);
        assert_eq!(standing(&repo, &tine, "work"), stood);
        tine.ok(&["redo", "work"]);
        assert_eq!(standing(&repo, &tine, "work"), came);
        if !is_mounted {
            tine.ok(&["mount", "work"]);
        }
        repo.assert_same_trees(&expected, &dir);
        assert_eq!(
            tine.json(&["op", "log", "work"])["operations"][2]["kind"],
            "apply"
        );
        tine.ok(&["undo", "work"]);
        // Again, by a merge of three.
        told(&tine, 0, &["apply", "work", &patch, "--3way"]);
        assert_eq!(standing(&repo, &tine, "work"), came);
    }
}

#[test]
fn a_patch_is_applied_backwards() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("work");
    let script = "sed -i 2s/.*/two/ list.txt; git mv docs/guide.md docs/manual.md; echo more >> docs/manual.md
         chmod +x README.md; printf '\\0\\1' > data/large.bin; rm docs/empty src/main.rs; echo new > new; git mv run.sh ran.sh";
    let (patch, expected) = patch_of(&repo, "expected", script);
    told(&tine, 3, &["apply", "work", &patch, "-R"]);
    told(&tine, 0, &["apply", "work", &patch]);
    repo.assert_same_trees(&expected, &dir);
    told(&tine, 0, &["apply", "work", &patch, "-R", "--check"]);
    told(&tine, 0, &["apply", "work", &patch, "-R"]);
    assert_agreement(&repo, &tine, "work", "");
    // Where the lines beside it have changed since, by a merge of three.
    told(&tine, 0, &["apply", "work", &patch]);
    repo.sh_in(
        &dir,
        "sed -i 5s/.*/five/ list.txt; sed -i 1s/.*/1st/ docs/manual.md",
    );
    told(&tine, 3, &["apply", "work", &patch, "-R"]);
    told(&tine, 0, &["apply", "work", &patch, "-R", "-3"]);
    assert_agreement(&repo, &tine, "work", "M\tdocs/guide.md\nM\tlist.txt");
    assert_eq!(
        repo.sh_in(&dir, "head -1 docs/guide.md; sed -n '2p;5p' list.txt"),
        "1st\n2\nfive"
    );
}

#[test]
fn patches_of_other_programs_are_understood() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("work");
    let hunk = "@@ -4,3 +4,3 @@\n 4\n-5\n+five\n 6\n";
    for (strip, old, new) in [
        ("-p1", "a/list.txt", "b/list.txt"),
        ("-p0", "list.txt", "list.txt"),
        ("-p2", "x/y/list.txt", "x/z/list.txt"),
    ] {
        let text = format!(
            "Some words.\n\n--- {old}\t2024-01-01 00:00:00.0 +0000\n+++ {new}\t2024-01-01\n{hunk}"
        );
        let output = piped(
            &tine,
            &["apply", "work", "-", strip, "--json"],
            text.as_bytes(),
        );
        assert_eq!(output.status.code(), Some(0), "{strip}: {}", output.text());
        assert_agreement(&repo, &tine, "work", "M\tlist.txt");
        let file = patch_file(&repo, &text);
        told(&tine, 0, &["apply", "work", "-R", strip, &file]);
        assert_agreement(&repo, &tine, "work", "");
    }
    // Elsewhere in the file, as uncommitted work has moved it, and with what is uncommitted kept.
    repo.sh_in(&dir, "sed -i '1i 0' list.txt; echo kept > kept.txt");
    let file = patch_file(&repo, format!("--- a/list.txt\n+++ b/list.txt\n{hunk}"));
    told(&tine, 0, &["apply", "work", &file]);
    assert_eq!(
        repo.sh_in(&dir, "cat list.txt"),
        "0\n1\n2\n3\n4\nfive\n6\n7\n8\n9"
    );
    assert_agreement(&repo, &tine, "work", "A\tkept.txt\nM\tlist.txt");
    // The ends of lines are the file's.
    repo.sh_in(&dir, "printf 'a\\r\\nb\\r\\nc\\r\\n' > crlf");
    let text = "--- a/crlf\n+++ b/crlf\n@@ -1,3 +1,3 @@\n a\r\n-b\r\n+B\r\n c\r\n";
    told(&tine, 0, &["apply", "work", &patch_file(&repo, text)]);
    assert_eq!(fs::read(dir.join("crlf")).unwrap(), b"a\r\nB\r\nc\r\n");
}

#[test]
fn a_patch_that_does_not_fit_changes_nothing_and_says_which_hunks() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("work");
    let (patch, _) = patch_of(
        &repo,
        "other",
        "sed -i -e 1s/.*/one/ -e 9s/.*/nine/ list.txt; echo new > new.txt; rm docs/guide.md; sed -i 1s/.*/x/ src/main.rs",
    );
    repo.sh_in(
        &dir,
        "sed -i 1s/.*/eins/ list.txt; echo mine > new.txt; echo four >> docs/guide.md",
    );
    let stood = standing(&repo, &tine, "work");
    let done = told(&tine, 3, &["apply", "work", &patch]);
    assert_eq!(done["status"], "conflicts");
    assert_eq!(
        each(&done["conflicts"], "path"),
        ["docs/guide.md", "list.txt", "new.txt"]
    );
    assert_eq!(each(&done["conflicts"], "kind"), ["rejected"; 3]);
    let list = &done["conflicts"][1]["rejected"];
    let hunks = list["hunks"]["text"].as_str().unwrap();
    assert!(
        hunks.contains("-1\n+one\n") && !hunks.contains("nine"),
        "{hunks}"
    );
    assert_eq!(
        done["conflicts"][2]["rejected"]["reason"],
        "new.txt: already exists in index"
    );
    assert_eq!(standing(&repo, &tine, "work"), stood);
    let said = tine.run(&["apply", "work", &patch]);
    assert_eq!(said.status.code(), Some(3));
    let text = said.text();
    assert!(
        text.contains("list.txt") && text.contains("nothing was changed"),
        "{text}"
    );

    // What fits is kept for who resolves the rest.
    let review = told(&tine, 3, &["apply", "work", &patch, "--review"])["review"].to_string();
    tine.ok(&["resolve", &review, "list.txt", "--theirs"]);
    tine.ok(&["resolve", &review, "new.txt", "--ours"]);
    tine.ok(&["resolve", &review, "docs/guide.md", "--delete"]);
    let done = told(&tine, 0, &["review", "commit", &review]);
    assert_eq!(
        each(&done["changes"], "path"),
        ["docs/guide.md", "list.txt", "src/main.rs"]
    );
    assert_eq!(
        repo.sh_in(&dir, "cat list.txt new.txt; head -1 src/main.rs"),
        "eins\n2\n3\n4\n5\n6\n7\n8\nnine\nmine\nx"
    );
    tine.ok(&["undo", "work"]);
    assert_eq!(standing(&repo, &tine, "work"), stood);
    // A strategy that prefers what is there leaves those files alone.
    told(&tine, 0, &["apply", "work", &patch, "--strategy", "ours"]);
    assert_eq!(
        repo.sh_in(&dir, "cat new.txt; head -1 list.txt src/main.rs"),
        "mine\n==> list.txt <==\neins\n\n==> src/main.rs <==\nx"
    );
}

#[test]
fn a_merge_of_three_takes_what_has_moved_on() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("work");
    let (patch, _) = patch_of(
        &repo,
        "other",
        "sed -i 5s/.*/five/ list.txt; git mv docs/guide.md docs/manual.md",
    );
    repo.sh_in(
        &dir,
        "sed -i 4,6d list.txt; sed -i '3a 4\\nfive\\n6' list.txt; sed -i 1s/.*/one/ list.txt",
    );
    // Has it by now.
    told(&tine, 3, &["apply", "work", &patch]);
    told(&tine, 0, &["apply", "work", &patch, "--3way"]);
    assert_agreement(
        &repo,
        &tine,
        "work",
        "D\tdocs/guide.md\nA\tdocs/manual.md\nM\tlist.txt",
    );
    tine.ok(&["undo", "work"]);
    repo.sh_in(&dir, "sed -i 5s/.*/fünf/ list.txt");
    let done = told(&tine, 3, &["apply", "work", &patch, "-3"]);
    assert_eq!(each(&done["conflicts"], "kind"), ["both_modified"]);
    assert_eq!(
        done["conflicts"][0]["hunks"][0]["theirs"],
        json!({"text": "five\n"})
    );
    told(
        &tine,
        0,
        &["apply", "work", &patch, "-3", "--strategy", "theirs"],
    );
    assert!(repo.sh_in(&dir, "cat list.txt").contains("five"));
    tine.ok(&["undo", "work"]);
    // Without the blobs that it was made of there are only hunks.
    let text = fs::read_to_string(&patch)
        .unwrap()
        .replace("index ", "index 1234567..7654321 was ");
    let text: String = text
        .lines()
        .filter(|line| !line.starts_with("index "))
        .map(|line| format!("{line}\n"))
        .collect();
    let done = told(&tine, 3, &["apply", "work", &patch_file(&repo, text), "-3"]);
    assert_eq!(each(&done["conflicts"], "kind"), ["rejected"]);
}

/// git decides for each file whether it is merged or patched.
#[test]
fn a_file_that_cannot_be_merged_is_patched_beside_those_that_are() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    let script = "echo a > 'a[1]*.md'; echo a > a1.md; git add -A; git commit -qm more";
    repo.sh_in(repo.dir(), script);
    let dir = tine.new_fork("work");
    let (patch, _) = patch_of(
        &repo,
        "other",
        "sed -i 5s/.*/five/ list.txt; rm dangling; echo n > new.sh",
    );
    // The blobs of one file are nobody's.
    let foreign = "diff --git a/a[1]*.md b/a[1]*.md\nindex 1234567..7654321 100644\n\
        --- a/a[1]*.md\n+++ b/a[1]*.md\n@@ -1 +1 @@\n-a\n+b\n";
    let text = fs::read_to_string(&patch).unwrap() + foreign;
    let patch = patch_file(&repo, text);
    let script = "sed -i '4,6d;3a 4\\nfive\\n6' list.txt; sed -i 1s/.*/one/ list.txt; \
        echo n > new.sh; chmod +x new.sh";
    let beside = repo.git_checkout_of("HEAD", "beside");
    for dir in [&dir, &beside] {
        repo.sh_in(dir, script);
    }
    repo.git_in(&beside, &["add", "-A"]);
    repo.git_in(&beside, &["apply", "--3way", &patch]);
    told(&tine, 0, &["apply", "work", &patch, "--3way"]);
    repo.git_in(&dir, &["add", "-A"]);
    assert_eq!(
        repo.git_in(&dir, &["write-tree"]),
        repo.git_in(&beside, &["write-tree"])
    );
    assert_eq!(repo.sh_in(&dir, "cat 'a[1]*.md' a1.md"), "b\na");
}

fn added(path: &str) -> String {
    format!(
        "diff --git a/{path} b/{path}\nnew file mode 100644\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n"
    )
}

#[test]
fn hostile_and_broken_patches_are_refused() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("work");
    let outside = repo.root().join("outside");
    fs::create_dir(&outside).unwrap();
    repo.sh_in(
        &dir,
        &format!("ln -s {} out; echo kept > a.log", outside.display()),
    );
    for text in [
        String::new(),
        "no patch at all\n".to_owned(),
        added("../evil"),
        added(".git/config"),
        added("x/.git/config"),
        added("/etc/evil"),
        "--- a/list.txt\n+++ b/list.txt\n@@ -1,3 +1,3 @@\n 1\n".to_owned(),
        "diff --git a/.git/config b/stolen\nsimilarity index 100%\nrename from .git/config\nrename to stolen\n".to_owned(),
        "diff --git a/../x b/stolen\nsimilarity index 100%\ncopy from ../x\ncopy to stolen\n".to_owned(),
    ] {
        let file = patch_file(&repo, &text);
        for more in [&[][..], &["--check"], &["-3"], &["--review"], &["-R"]] {
            let args = [&["apply", "work", &file], more].concat();
            let output = tine.run(&[&args[..], &["--json"]].concat());
            let failure: Value = serde_json::from_str(&output.text()).unwrap();
            assert_eq!(failure["error"]["code"], "bad-patch", "{text:?} {more:?}: {failure}");
        }
        merge_refused(&repo, &tine, &["apply", "work", &file], "bad-patch", 2);
    }
    // Other spellings are git's to know.
    merge_refused(
        &repo,
        &tine,
        &["apply", "work", &patch_file(&repo, added("x/.GIT/config"))],
        "bad-patch",
        2,
    );
    // Beyond a symlink, uncommitted or not.
    for path in ["out/evil", "link/evil", "docs/up/evil"] {
        let file = patch_file(&repo, added(path));
        let done = told(&tine, 3, &["apply", "work", &file]);
        assert_eq!(each(&done["conflicts"], "path"), [path]);
    }
    let both = "diff --git a/s b/s\nnew file mode 120000\n--- /dev/null\n+++ b/s\n@@ -0,0 +1 @@\n+/tmp\n\\ No newline at end of file\n".to_owned();
    let output = tine.run(&[
        "apply",
        "work",
        &patch_file(&repo, both + &added("s/evil")),
        "--json",
    ]);
    assert!(
        matches!(output.status.code(), Some(2 | 3)),
        "{}",
        output.text()
    );
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    assert!(!Path::new("/tmp/evil").exists());
    // What git ignores is somebody's, too.
    let file = patch_file(&repo, added("a.log"));
    merge_refused(&repo, &tine, &["apply", "work", &file], "in-the-way", 3);
    merge_refused(
        &repo,
        &tine,
        &["apply", "work", &file, "--check"],
        "in-the-way",
        3,
    );
    assert_eq!(fs::read_to_string(dir.join("a.log")).unwrap(), "kept\n");
    tine.fails(4, &["apply", "work", "no-such-file"]);
    merge_refused(&repo, &tine, &["apply", "none", &file], "no-such-fork", 4);
}

#[test]
fn directories_and_files_change_places() {
    require_fuse!();
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("work");
    let (patch, expected) = patch_of(
        &repo,
        "expected",
        "rm list.txt; mkdir list.txt; echo in > list.txt/in; rm -r src; echo file > src",
    );
    told(&tine, 0, &["apply", "work", &patch]);
    repo.assert_same_trees(&expected, &dir);
    told(&tine, 0, &["apply", "work", &patch, "-R"]);
    assert_agreement(&repo, &tine, "work", "");
    // Something else is in the directory.
    repo.sh_in(&dir, "echo mine > src/mine");
    let done = told(&tine, 3, &["apply", "work", &patch]);
    assert_eq!(each(&done["conflicts"], "path"), ["src"]);
    let done = told(
        &tine,
        3,
        &["apply", "work", &patch_file(&repo, added("README.md/in"))],
    );
    assert_eq!(each(&done["conflicts"], "path"), ["README.md/in"]);
    // Modes alone, and nothing but a new empty file.
    repo.sh_in(&dir, "rm src/mine");
    let (patch, expected) = patch_of(
        &repo,
        "modes",
        "chmod +x README.md; : > empty; chmod +x docs/empty",
    );
    told(&tine, 0, &["apply", "work", &patch]);
    repo.assert_same_trees(&expected, &dir);
}

#[test]
fn a_patch_whose_old_blobs_are_not_here_is_applied_as_it_stands_or_refused() {
    require_fuse!();
    let elsewhere = repo_with_list();
    set_line(&elsewhere, elsewhere.dir(), 8, "elsewhere");
    elsewhere.commit_all("what nobody else has");
    set_line(&elsewhere, elsewhere.dir(), 2, "zwei");
    elsewhere.commit_all("zwei");
    let diff = elsewhere.git(&["diff", "--full-index", "HEAD~1"]);
    let mails = elsewhere.git(&["format-patch", "--full-index", "--stdout", "HEAD~1"]);
    for fits in [true, false] {
        let repo = repo_with_list();
        let tine = Tine::new(&repo);
        if !fits {
            set_line(&repo, repo.dir(), 2, "two");
            repo.commit_all("two");
        }
        tine.ok(&["new", "work", "--no-mount"]);
        let patch = patch_file(&repo, format!("{diff}\n"));
        let mailbox = repo.root().join("mails");
        std::fs::write(&mailbox, format!("{mails}\n")).unwrap();
        tine.ok(&[
            "handoff",
            "import",
            mailbox.to_str().unwrap(),
            "--to",
            "work",
        ]);
        for args in [
            &["apply", "work", patch.as_str(), "--3way"][..],
            &["handoff", "apply", "1"],
        ] {
            let done = told(&tine, if fits { 0 } else { 3 }, args);
            match fits {
                true => drop(tine.ok(&["undo", "work"])),
                false => assert_eq!(each(&done["conflicts"], "kind"), ["rejected"], "{args:?}"),
            }
        }
        if !fits {
            told(&tine, 3, &["handoff", "apply", "1", "--review"]);
        }
    }
}
