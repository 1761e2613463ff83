//! `tine check` sees every kind of damage that is done to a store by hand, says what to do about
//! it, and `--repair` puts right what can be and changes nothing else.

mod support;

#[path = "check/branches.rs"]
mod branches;
#[path = "check/layers.rs"]
mod layers;
#[path = "check/set_aside.rs"]
mod set_aside;
#[path = "check/specials.rs"]
mod specials;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use support::{OutputExt, TestRepo, Tine, require_fuse};

/// A repository with two forks that have small and large files, a snapshot of one, and no daemon.
struct Stopped<'r> {
    repo: &'r TestRepo,
    tine: Tine<'r>,
}

impl<'r> Stopped<'r> {
    fn new(repo: &'r TestRepo) -> Stopped<'r> {
        let tine = Tine::new(repo);
        for name in ["one", "two"] {
            let dir = tine.new_fork(name);
            fs::write(dir.join("small.txt"), format!("small, of {name}\n")).unwrap();
            fs::write(dir.join("large.bin"), vec![7; 200_000]).unwrap();
        }
        tine.ok(&["snapshot", "two", "kept"]);
        fs::write(repo.root().join("repo.forks/two/later.txt"), "later\n").unwrap();
        tine.ok(&["daemon", "stop"]);
        Stopped { repo, tine }
    }

    fn store(&self) -> PathBuf {
        self.repo.common_dir().join("tine")
    }

    fn record(&self, fork: &str) -> Value {
        let text = fs::read(self.store().join("forks").join(fork).join("fork.json")).unwrap();
        serde_json::from_slice(&text).unwrap()
    }

    fn open_layer(&self, fork: &str) -> PathBuf {
        self.store()
            .join("layers")
            .join(self.record(fork)["open_layer"].to_string())
    }

    /// Checks, which must end with `exit`.
    #[track_caller]
    fn check(&self, args: &[&str], exit: i32) -> Value {
        let output = self.tine.run(&[&["check", "--json"], args].concat());
        assert_eq!(
            output.status.code(),
            Some(exit),
            "{}{}",
            output.text(),
            output.error_text()
        );
        serde_json::from_str(&output.text()).unwrap()
    }

    /// The findings of a check that must find something and change nothing.
    #[track_caller]
    fn found(&self) -> Vec<Value> {
        let before = files_beneath(&self.store());
        let report = self.check(&[], 1);
        assert_eq!(report["ok"], false, "{report}");
        let after = files_beneath(&self.store());
        assert_eq!(before, after, "looking changes nothing");
        assert_eq!(self.tine.daemon_pid(), None, "looking starts no daemon");
        let findings = report["findings"].as_array().unwrap().clone();
        for finding in &findings {
            assert!(!finding["hint"].as_str().unwrap().is_empty(), "{finding}");
            assert_eq!(finding["repaired"], Value::Null, "{finding}");
        }
        findings
    }

    /// The one finding of a check.
    #[track_caller]
    fn only(&self, kind: &str) -> Value {
        let findings = self.found();
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(findings[0]["kind"], kind, "{findings:?}");
        findings[0].clone()
    }
}

/// Contents by name; without what each start of a process leaves anew.
fn files_beneath(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => found.extend(files_beneath(&path)),
            kind if kind.is_file() => drop(found.insert(path.clone(), fs::read(&path).unwrap())),
            _ => {}
        }
    }
    found
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 0x10;
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_healthy_store_is_whole_with_a_daemon_and_without() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let nothing = tine.json(&["check"]);
    assert_eq!(nothing["ok"], true);
    assert!(
        !repo.common_dir().join("tine").exists(),
        "no store was made"
    );

    let stopped = Stopped::new(&repo);
    let report = stopped.check(&[], 0);
    assert_eq!(report["ok"], true, "{report}");
    assert_eq!(report["findings"], serde_json::json!([]));
    let checked = &report["checked"];
    assert_eq!(checked["forks"], 2, "{report}");
    assert_eq!(checked["snapshots"], 1, "{report}");
    assert_eq!(checked["layers"], 3, "{report}");
    assert!(
        checked["content_bytes"].as_u64().unwrap() > 400_000,
        "{report}"
    );
    assert_eq!(stopped.tine.daemon_pid(), None);

    stopped.tine.ok(&["list"]);
    let said = stopped.tine.ok(&["check"]);
    assert!(said.ends_with(": all is whole"), "{said}");
    assert_eq!(
        stopped.check(&["--repair"], 0)["findings"],
        serde_json::json!([])
    );
}

#[test]
fn what_is_written_meanwhile_is_no_damage() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("busy");
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 0;
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                number += 1;
                let path = dir.join(format!("file-{}", number % 17));
                // It may be removed in the middle of anything: that is the point.
                let _ = fs::write(&path, vec![1; number * 997 % 150_000]);
                if number % 3 == 0 {
                    let _ = fs::remove_file(&path);
                }
            }
        });
        for _ in 0..5 {
            let report = tine.json(&["check"]);
            assert_eq!(report["findings"], serde_json::json!([]));
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn a_large_content_that_is_gone_is_told_by_the_files_name_and_the_rest_is_whole() {
    require_fuse!();
    let repo = TestRepo::new();
    let stopped = Stopped::new(&repo);
    let files = stopped.open_layer("one").join("files");
    let content = fs::read_dir(&files)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    fs::remove_file(&content).unwrap();
    let finding = stopped.only("content-missing");
    assert_eq!(finding["fork"], "one");
    assert_eq!(finding["what"], content.to_str().unwrap());
    assert!(
        finding["detail"].as_str().unwrap().contains("large.bin"),
        "{finding}"
    );

    let after = stopped.check(&["--repair"], 1);
    assert_eq!(
        after["findings"][0]["repaired"],
        Value::Null,
        "bytes cannot be made up"
    );
    stopped.tine.ok(&["list"]);
    let small = fs::read_to_string(repo.root().join("repo.forks/one/small.txt"));
    assert_eq!(small.unwrap(), "small, of one\n");
}

#[test]
fn contents_that_are_cut_off_are_told_with_how_much_is_left() {
    require_fuse!();
    let repo = TestRepo::new();
    let stopped = Stopped::new(&repo);
    let layer = stopped.open_layer("one");
    let large = fs::read_dir(layer.join("files"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    fs::File::options()
        .write(true)
        .open(&large)
        .unwrap()
        .set_len(1000)
        .unwrap();
    let finding = stopped.only("content-damaged");
    let detail = finding["detail"].as_str().unwrap();
    assert!(
        detail.contains("large.bin has 200000 bytes, of which 1000"),
        "{detail}"
    );
    fs::write(&large, vec![7; 200_000]).unwrap();

    let data = layer.join("data");
    let whole = fs::read(&data).unwrap();
    fs::File::options()
        .write(true)
        .open(&data)
        .unwrap()
        .set_len(0)
        .unwrap();
    let findings = stopped.found();
    assert!(
        findings
            .iter()
            .any(|finding| finding["kind"] == "content-damaged"
                && finding["detail"].as_str().unwrap().contains("small.txt")),
        "{findings:?}"
    );
    fs::write(&data, whole).unwrap();
    stopped.check(&[], 0);
}

/// A daemon that opens the fork does not hide it.
#[test]
fn contents_that_are_lost_are_told_after_the_fork_was_opened_too() {
    require_fuse!();
    let repo = TestRepo::new().with_linked_forks();
    let stopped = Stopped::new(&repo);
    let data = stopped.open_layer("one").join("data");
    fs::File::options()
        .write(true)
        .open(&data)
        .unwrap()
        .set_len(0)
        .unwrap();
    let found = stopped.found();
    assert!(
        found
            .iter()
            .all(|finding| finding["kind"] == "content-damaged"),
        "{found:?}"
    );
    let of = |name: &str| {
        let mut details = found
            .iter()
            .map(|finding| finding["detail"].as_str().unwrap());
        details.any(|detail| detail.starts_with(&format!("{name} has")))
    };
    assert!(
        found.len() == 2 && of(".git") && of("small.txt"),
        "{found:?}"
    );
    // What `.git` must hold is known.
    stopped.tine.ok(&["list"]);
    let dir = repo.root().join("repo.forks/one");
    let error = fs::read(dir.join("small.txt")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EIO), "{error}");
    fs::write(dir.join("other.txt"), "what is written now is another").unwrap();
    assert!(fs::read(dir.join(".git")).unwrap().starts_with(b"gitdir: "));
    stopped.tine.ok(&["daemon", "stop"]);
    let told = stopped.only("content-missing");
    assert!(
        told["detail"].as_str().unwrap().contains("small.txt"),
        "{told}"
    );
    stopped.tine.ok(&["list"]);
    fs::remove_file(dir.join("small.txt")).unwrap();
    fs::write(dir.join("small.txt"), "again").unwrap();
    stopped.check(&[], 0);
    stopped.tine.ok(&["daemon", "stop"]);
}

/// Work that was synced is not given up for a bit in the middle of it.
#[test]
fn a_log_that_was_damaged_while_nobody_had_it_open_is_refused_and_kept() {
    require_fuse!();
    let repo = TestRepo::new();
    let stopped = Stopped::new(&repo);
    let log = stopped.open_layer("one").join("log");
    let whole = fs::read(&log).unwrap();
    for at in [whole.len() / 4, whole.len() / 2] {
        flip(&log, at);
        let damaged = fs::read(&log).unwrap();
        assert_eq!(stopped.only("layer-damaged")["fork"], "one");
        stopped.tine.run(&["list"]);
        stopped.tine.ok(&["daemon", "stop"]);
        assert_eq!(fs::read(&log).unwrap(), damaged);
        fs::write(&log, &whole).unwrap();
    }
    stopped.tine.ok(&["list"]);
    let small = fs::read_to_string(repo.root().join("repo.forks/one/small.txt"));
    assert_eq!(small.unwrap(), "small, of one\n");
    stopped.tine.ok(&["daemon", "stop"]);
}

#[test]
fn a_log_with_a_flipped_bit_is_told_with_its_place_and_keeps_no_other_fork_from_being_whole() {
    require_fuse!();
    let repo = TestRepo::new();
    let stopped = Stopped::new(&repo);
    let log = stopped.open_layer("one").join("log");
    let whole = fs::read(&log).unwrap();
    flip(&log, 40);
    let finding = stopped.only("layer-damaged");
    assert_eq!(finding["what"], log.to_str().unwrap());
    assert_eq!(finding["fork"], "one");
    assert!(
        finding["detail"].as_str().unwrap().contains("at byte 24"),
        "{finding}"
    );
    // The record that is damaged says nothing of files.
    let damaged = fs::read(&log).unwrap();
    let after = stopped.check(&["--repair"], 0);
    let repaired = after["findings"][0]["repaired"].as_str().unwrap();
    assert!(repaired.contains("`tine check --put-back 1`"), "{repaired}");
    stopped.tine.ok(&["list"]);
    for (fork, content) in [("one", "small, of one\n"), ("two", "small, of two\n")] {
        let small = fs::read_to_string(repo.root().join("repo.forks").join(fork).join("small.txt"));
        assert_eq!(small.unwrap(), content);
    }
    stopped.tine.ok(&["daemon", "stop"]);
    stopped.check(&["--put-back", "1"], 0);
    assert_eq!(fs::read(&log).unwrap(), damaged);
    fs::write(&log, whole).unwrap();
    stopped.check(&[], 0);
}

#[test]
fn a_layer_that_is_gone_is_missed_and_one_that_nothing_names_is_freed() {
    require_fuse!();
    let repo = TestRepo::new();
    let stopped = Stopped::new(&repo);
    let layer = stopped.open_layer("one");
    let elsewhere = repo.root().join("elsewhere");
    fs::rename(&layer, &elsewhere).unwrap();
    let finding = stopped.only("layer-missing");
    assert_eq!(finding["what"], layer.to_str().unwrap());
    fs::rename(&elsewhere, &layer).unwrap();

    // As a process leaves it that dies before the record names it.
    let leaked = stopped.store().join("layers/4711");
    let copied = std::process::Command::new("cp")
        .arg("-a")
        .arg(&layer)
        .arg(&leaked)
        .status();
    assert!(copied.unwrap().success());
    let finding = stopped.only("layer-leaked");
    assert_eq!(finding["what"], leaked.to_str().unwrap());
    let before = files_beneath(&layer);
    let report = stopped.check(&["--repair"], 0);
    assert_eq!(report["findings"][0]["repaired"], "freed", "{report}");
    assert!(!leaked.exists());
    assert_eq!(files_beneath(&layer), before, "nothing else changed");
    stopped.check(&[], 0);
}

#[test]
fn refs_that_are_gone_are_set_anew_and_those_of_no_fork_go() {
    require_fuse!();
    let repo = TestRepo::new();
    let stopped = Stopped::new(&repo);
    let refs = || repo.git(&["for-each-ref", "refs/tine"]);
    let before = refs();
    let base = repo.git(&["rev-parse", "refs/tine/one/base"]);
    repo.git(&["update-ref", "-d", "refs/tine/one/base"]);
    repo.git(&["update-ref", "-d", "refs/tine/two/head"]);
    repo.git(&["update-ref", "refs/tine/gone/base", &base]);
    repo.git(&["update-ref", "refs/tine/gone/discarded-1", &base]);
    let found: Vec<(Value, Value)> = stopped
        .found()
        .iter()
        .map(|finding| (finding["kind"].clone(), finding["what"].clone()))
        .collect();
    let expected = [
        ("ref-leaked", "refs/tine/gone/"),
        ("ref-missing", "refs/tine/one/base"),
        ("ref-missing", "refs/tine/two/head"),
    ];
    assert_eq!(
        found,
        expected.map(|(kind, what)| (kind.into(), what.into()))
    );

    // The daemon does it as well.
    stopped.tine.ok(&["daemon", "start"]);
    let said = stopped.tine.ok(&["check", "--repair"]);
    assert!(said.ends_with("3 put right, all is whole"), "{said}");
    // It has taken over what an earlier tine kept.
    assert_eq!(
        stopped.tine.json(&["recover"])["entries"][0]["head"],
        base.as_str()
    );
    stopped.tine.ok(&["recover", "purge", "--all"]);
    assert_eq!(refs(), before);
    stopped.check(&[], 0);
}

#[test]
fn an_object_that_git_lost_is_told() {
    require_fuse!();
    let repo = TestRepo::new();
    let stopped = Stopped::new(&repo);
    let tree = stopped.record("one")["base_tree"]
        .as_str()
        .unwrap()
        .to_owned();
    let object = repo
        .common_dir()
        .join("objects")
        .join(&tree[..2])
        .join(&tree[2..]);
    fs::remove_file(&object).unwrap();
    let findings = stopped.found();
    assert!(
        findings
            .iter()
            .any(|finding| finding["kind"] == "object-missing" && finding["what"] == tree.as_str()),
        "{findings:?}"
    );
}

#[test]
fn a_worktree_that_git_was_made_to_forget_is_registered_again() {
    require_fuse!();
    let repo = TestRepo::new();
    let stopped = Stopped::new(&repo);
    let worktree = repo.git_dir_of_fork("one");
    fs::remove_dir_all(&worktree).unwrap();
    assert_eq!(stopped.only("worktree-missing")["fork"], "one");
    let report = stopped.check(&["--repair"], 0);
    assert_eq!(report["findings"][0]["repaired"], "registered again");
    assert!(worktree.join("HEAD").exists());
    stopped.check(&[], 0);
}

#[test]
fn a_damaged_record_is_moved_aside_with_all_that_only_it_names() {
    require_fuse!();
    let repo = TestRepo::new();
    let stopped = Stopped::new(&repo);
    let store = stopped.store();
    let layer = stopped.open_layer("one");
    let id = layer.file_name().unwrap().to_owned();
    let path = store.join("forks/one/fork.json");
    let record = fs::read(&path).unwrap();
    fs::write(&path, &record[..record.len() / 2]).unwrap();
    let contents: Vec<Vec<u8>> = files_beneath(&layer).into_values().collect();
    let other = files_beneath(&stopped.open_layer("two"));
    let tip = repo.git(&["rev-parse", "refs/tine/one/head"]);

    let finding = stopped.only("record-damaged");
    assert_eq!(finding["what"], path.to_str().unwrap());
    let report = stopped.check(&["--repair"], 0);
    let done = report["findings"][0]["repaired"].as_str().unwrap();
    let aside = store.join("damaged/1");
    assert!(done.contains(aside.to_str().unwrap()), "{done}");

    assert_eq!(
        fs::read(aside.join("forks/one/fork.json")).unwrap(),
        record[..record.len() / 2]
    );
    let moved: Vec<Vec<u8>> = files_beneath(&aside.join("layers").join(&id))
        .into_values()
        .collect();
    assert_eq!(moved, contents, "every byte of its layer is kept");
    assert!(aside.join("forks/one/git/HEAD").exists());
    assert_eq!(
        files_beneath(&stopped.open_layer("two")),
        other,
        "nothing else changed"
    );
    assert_eq!(
        repo.git(&["rev-parse", "refs/tine/+damaged/1-one-head"]),
        tip
    );
    assert_eq!(
        repo.git(&["rev-parse", "refs/heads/tine/one"]),
        tip,
        "its branch stays"
    );

    // What is opened afterwards, and collects, finds nothing of it to remove.
    stopped.tine.ok(&["gc"]);
    assert!(aside.join("layers").join(&id).join("log").exists());
    let forks = stopped.tine.json(&["list"]);
    assert_eq!(forks["forks"].as_array().unwrap().len(), 1, "{forks}");
    assert_eq!(forks["damaged"], serde_json::json!([]));
    assert_eq!(
        fs::read_to_string(repo.root().join("repo.forks/two/later.txt")).unwrap(),
        "later\n"
    );
    stopped.tine.ok(&["new", "one", "--branch", "again"]);
    stopped.check(&[], 0);
}

#[test]
fn the_damaged_record_of_a_mounted_fork_is_left_until_nobody_uses_it() {
    require_fuse!();
    let repo = TestRepo::new();
    let stopped = Stopped::new(&repo);
    stopped.tine.ok(&["list"]);
    let path = stopped.store().join("forks/one/fork.json");
    fs::write(&path, "{").unwrap();
    let report = stopped.check(&["--repair"], 1);
    let finding = &report["findings"][0];
    assert_eq!(finding["kind"], "record-damaged", "{report}");
    assert!(
        finding["hint"]
            .as_str()
            .unwrap()
            .contains("tine daemon stop"),
        "{report}"
    );
    assert_eq!(fs::read(&path).unwrap(), b"{");
    assert_eq!(
        fs::read_to_string(repo.root().join("repo.forks/one/small.txt")).unwrap(),
        "small, of one\n"
    );
}

#[test]
fn a_damaged_list_of_snapshots_costs_the_snapshots_and_not_the_fork() {
    require_fuse!();
    let repo = TestRepo::new();
    let stopped = Stopped::new(&repo);
    let list = stopped.store().join("forks/two/snapshots.json");
    fs::write(&list, "[]").unwrap();
    assert_eq!(
        stopped.only("record-damaged")["what"],
        list.to_str().unwrap()
    );
    stopped.check(&["--repair"], 0);
    assert_eq!(
        fs::read(stopped.store().join("damaged/1/forks/two/snapshots.json")).unwrap(),
        b"[]"
    );
    stopped.tine.ok(&["list"]);
    let dir = repo.root().join("repo.forks/two");
    assert_eq!(
        fs::read_to_string(dir.join("later.txt")).unwrap(),
        "later\n"
    );
    assert_eq!(
        fs::read_to_string(dir.join("small.txt")).unwrap(),
        "small, of two\n"
    );
}

#[test]
fn handoffs_are_checked_by_their_checksum_and_made_again() {
    require_fuse!();
    let repo = TestRepo::new();
    let stopped = Stopped::new(&repo);
    stopped.tine.ok(&["commit", "one", "-m", "work"]);
    stopped.tine.ok(&["handoff", "create", "one"]);
    stopped.tine.ok(&["handoff", "await", "1"]);
    stopped.tine.ok(&["daemon", "stop"]);
    let mailbox = stopped.store().join("handoffs/1.mbox");
    let whole = fs::read(&mailbox).unwrap();
    flip(&mailbox, whole.len() / 2);
    assert_eq!(
        stopped.only("mailbox-damaged")["what"],
        mailbox.to_str().unwrap()
    );
    let report = stopped.check(&["--repair"], 0);
    assert_eq!(report["findings"][0]["repaired"], "made again");
    assert_eq!(fs::read(&mailbox).unwrap(), whole);

    repo.git(&["update-ref", "-d", "refs/tine/+handoffs/1"]);
    assert_eq!(stopped.only("ref-missing")["what"], "refs/tine/+handoffs/1");
    stopped.check(&["--repair"], 0);
    let head = repo.git(&["rev-parse", "refs/tine/+handoffs/1"]);
    assert_eq!(head, repo.git(&["rev-parse", "refs/heads/tine/one"]));

    fs::write(stopped.store().join("handoffs/1.json"), "nonsense").unwrap();
    stopped.only("record-damaged");
    stopped.check(&["--repair"], 0);
    assert_eq!(
        fs::read(stopped.store().join("damaged/1/handoffs/1.mbox")).unwrap(),
        whole
    );
    assert_eq!(
        repo.git(&["rev-parse", "refs/tine/+damaged/1-handoffs-1"]),
        head
    );
    stopped.tine.ok(&["handoff", "create", "one"]);
    assert!(
        stopped.store().join("handoffs/2.json").exists(),
        "the number is not used again"
    );
}

#[test]
fn a_record_that_cannot_be_read_is_not_taken_for_damaged() {
    require_fuse!();
    let repo = TestRepo::new();
    let stopped = Stopped::new(&repo);
    let record = stopped.store().join("forks/one/fork.json");
    let other = stopped.store().join("forks/two/fork.json");
    let whole = fs::read(&record).unwrap();
    let other_whole = fs::read(&other).unwrap();
    fs::remove_file(&record).unwrap();
    // Not even root can follow it.
    std::os::unix::fs::symlink(&record, &record).unwrap();
    fs::write(&other, "{").unwrap();
    let layers = files_beneath(&stopped.store().join("layers"));

    let report = stopped.check(&["--repair"], 1);
    let kinds: Vec<&str> = report["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| finding["kind"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["record-unreadable", "record-damaged"], "{report}");
    assert!(
        report["findings"][0]["hint"]
            .as_str()
            .unwrap()
            .contains("ls -ld")
    );
    assert!(
        !stopped.store().join("damaged").exists(),
        "nothing is moved: {report}"
    );
    assert!(record.is_symlink());
    stopped.check(&["--repair"], 1);
    assert_eq!(layers, files_beneath(&stopped.store().join("layers")));

    fs::remove_file(&record).unwrap();
    fs::write(&record, whole).unwrap();
    stopped.check(&["--repair"], 0);
    let list = stopped.check(&["--set-aside"], 0);
    assert_eq!(list["set_aside"][0]["number"], 1, "{list}");

    // The way back: with the record put right it is as if nothing had been.
    let aside = stopped.store().join("damaged/1/forks/two/fork.json");
    fs::write(aside, other_whole).unwrap();
    stopped.check(&["--put-back", "1"], 0);
    assert_eq!(layers, files_beneath(&stopped.store().join("layers")));
    stopped.check(&[], 0);
    stopped.tine.ok(&["list"]);
    let dir = repo.root().join("repo.forks/two");
    assert_eq!(
        fs::read_to_string(dir.join("later.txt")).unwrap(),
        "later\n"
    );
    assert!(stopped.tine.ok(&["snapshots", "two"]).contains("kept"));
}

#[test]
fn a_dry_run_of_a_repair_changes_nothing() {
    require_fuse!();
    let repo = TestRepo::new();
    let stopped = Stopped::new(&repo);
    fs::write(stopped.store().join("forks/one/fork.json"), "{").unwrap();
    repo.git(&["update-ref", "-d", "refs/tine/two/base"]);
    let before = files_beneath(&repo.common_dir());
    let report = stopped.check(&["--repair", "--dry-run"], 1);
    let planned: Vec<&str> = report["findings"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|finding| finding["planned"].as_str())
        .collect();
    assert_eq!(planned.len(), 2, "{report}");
    assert_eq!(before, files_beneath(&repo.common_dir()));
}

/// Removes the commit that the fork made last from the repository.
fn lose_head(repo: &TestRepo, fork: &str) -> String {
    let head = repo.git(&["rev-parse", &format!("refs/heads/tine/{fork}")]);
    // Also the second name, and what the fork itself has.
    let name = &head[2..];
    repo.sh_in(
        &repo.common_dir(),
        &format!("find . -type f -name '*{name}*' -delete; rm -rf objects/tine-held"),
    );
    head
}

/// A fork with a commit of its own, which is lost, and work that was not committed; the one beside
/// it is whole.
fn with_lost_head(stopped: &Stopped<'_>) -> (PathBuf, String) {
    let dir = stopped.repo.root().join("repo.forks/one");
    stopped.tine.ok(&["commit", "one", "-m", "work"]);
    fs::write(dir.join("open.txt"), "open\n").unwrap();
    // A daemon gives back what it has just taken over.
    stopped.tine.ok(&["daemon", "stop"]);
    let head = lose_head(stopped.repo, "one");
    (dir, head)
}

#[test]
fn a_head_whose_commit_is_lost_is_found_and_can_be_mended() {
    require_fuse!();
    let repo = TestRepo::new();
    let stopped = Stopped::new(&repo);
    let (dir, head) = with_lost_head(&stopped);
    let findings = stopped.found();
    let found = findings
        .iter()
        .find(|finding| finding["kind"] == "head-damaged")
        .unwrap_or_else(|| panic!("{findings:?}"));
    assert_eq!(found["fork"], "one");
    assert!(found["detail"].as_str().unwrap().contains(&head), "{found}");
    let report = stopped.check(&["--repair"], 1);
    assert!(report.to_string().contains("went from"), "{report}");
    stopped.tine.ok(&["list"]);
    assert_eq!(
        repo.git(&["rev-parse", "refs/heads/tine/one"]),
        repo.git(&["rev-parse", "main"])
    );
    assert_eq!(fs::read_to_string(dir.join("open.txt")).unwrap(), "open\n");
    assert!(stopped.tine.ok(&["status", "one"]).contains("open.txt"));
}

#[test]
fn there_is_a_way_out_of_a_lost_head() {
    require_fuse!();
    let ways: [&[&[&str]]; 4] = [
        &[&["unmount", "one", "--keep"], &["delete", "one", "--force"]],
        &[&["delete", "one", "--force"]],
        &[&["reset", "one"], &["commit", "two", "-m", "work"]],
        &[&["uninstall", "--force"]],
    ];
    for way in ways {
        let repo = TestRepo::new();
        let stopped = Stopped::new(&repo);
        with_lost_head(&stopped);
        for args in way {
            let output = stopped.tine.run(args);
            assert!(
                output.status.success(),
                "{args:?}: {}{}",
                output.text(),
                output.error_text()
            );
        }
    }
}

#[test]
fn a_head_and_an_index_that_cannot_be_read_cost_nothing_that_was_written() {
    require_fuse!();
    let repo = TestRepo::new();
    let stopped = Stopped::new(&repo);
    let worktree = repo.git_dir_of_fork("one");
    let head = fs::read(worktree.join("HEAD")).unwrap();
    for (file, kind) in [("HEAD", "head-damaged"), ("index", "index-damaged")] {
        fs::write(worktree.join(file), "nonsense").unwrap();
        let found = stopped.only(kind);
        assert_eq!(found["fork"], "one", "{found}");
        // The other fork does not notice.
        stopped.tine.ok(&["status", "two"]);
        stopped.tine.ok(&["daemon", "stop"]);
        stopped.check(&["--repair"], 0);
        stopped.check(&[], 0);
    }
    assert_eq!(fs::read(worktree.join("HEAD")).unwrap(), head);
}

#[test]
fn a_registration_without_its_files_is_made_whole() {
    require_fuse!();
    let repo = TestRepo::new().with_linked_forks();
    let stopped = Stopped::new(&repo);
    let worktree = repo.git_dir_of_fork("one");
    fs::remove_file(worktree.join("commondir")).unwrap();
    fs::remove_file(worktree.join("gitdir")).unwrap();
    let status = stopped.tine.ok(&["status", "one"]);
    assert!(status.contains("small.txt"), "{status}");
    stopped.tine.ok(&["daemon", "stop"]);
    stopped.check(&[], 0);
}

#[test]
fn a_worktree_that_goes_while_its_fork_is_mounted_is_registered_again() {
    require_fuse!();
    let repo = TestRepo::new().with_linked_forks();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    fs::write(dir.join("committed.txt"), "committed\n").unwrap();
    tine.ok(&["commit", "demo", "-m", "committed"]);
    fs::write(dir.join("open.txt"), "open\n").unwrap();
    fs::remove_dir_all(repo.git_dir_of_fork("demo")).unwrap();
    let status = tine.ok(&["status", "demo"]);
    assert!(
        status.contains("open.txt") && !status.contains("committed.txt"),
        "{status}"
    );
    tine.ok(&["commit", "demo", "-m", "open"]);
    let log = repo.git_in(&dir, &["log", "--format=%s", "-2"]);
    assert_eq!(log, "open\ncommitted");
    assert_eq!(repo.git_in(&dir, &["status", "--porcelain"]), "");
    assert!(tine.ok(&["check"]).contains("all is whole"));
    // Of a commit that git made in the mount, and that tine has not seen yet.
    fs::write(dir.join("by git.txt"), "by git\n").unwrap();
    repo.sh_in(&dir, "git add -A && git commit -qm 'by git'");
    fs::remove_dir_all(repo.git_dir_of_fork("demo")).unwrap();
    tine.ok(&["status", "demo"]);
    assert_eq!(repo.git_in(&dir, &["status", "--porcelain"]), "");
    fs::write(dir.join("next.txt"), "next\n").unwrap();
    tine.ok(&["commit", "demo", "-m", "next"]);
    // Without a command, in the daemon's next round.
    fs::remove_dir_all(repo.git_dir_of_fork("demo")).unwrap();
    for _ in 0..100 {
        if repo.git_dir_of_fork("demo").join("index").exists() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert_eq!(repo.git_in(&dir, &["status", "--porcelain"]), "");
}

#[test]
fn a_dot_git_file_that_a_program_removed_or_changed_is_written_anew() {
    require_fuse!();
    let repo = TestRepo::new().with_linked_forks();
    let stopped = Stopped::new(&repo);
    stopped.tine.ok(&["list"]);
    let dot_git = repo.root().join("repo.forks/one/.git");
    let right = fs::read(&dot_git).unwrap();
    fs::write(&dot_git, "x\n").unwrap();
    stopped.tine.ok(&["status", "one"]);
    assert_eq!(fs::read(&dot_git).unwrap(), right);
    fs::remove_file(&dot_git).unwrap();
    let found = stopped.check(&[], 1);
    assert_eq!(found["findings"][0]["kind"], "dot-git-damaged", "{found}");
    stopped.check(&["--repair"], 0);
    assert_eq!(fs::read(&dot_git).unwrap(), right);
    fs::remove_file(&dot_git).unwrap();
    // Without a command, in the daemon's next round.
    for _ in 0..100 {
        if dot_git.exists() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert_eq!(fs::read(&dot_git).unwrap(), right);
    fs::remove_file(&dot_git).unwrap();
    stopped.tine.kill_daemon();
    stopped.tine.ok(&["list"]);
    assert_eq!(fs::read(&dot_git).unwrap(), right);
}

/// Moves something away, and back when that is asked for.
struct MovedAway {
    from: PathBuf,
    to: PathBuf,
}

impl MovedAway {
    fn new(repo: &TestRepo, from: PathBuf) -> MovedAway {
        let to = repo.root().join("moved-away");
        fs::rename(&from, &to).unwrap();
        MovedAway { from, to }
    }

    fn back(self) {
        fs::rename(self.to, self.from).unwrap();
    }
}

#[test]
fn what_a_lost_record_may_name_stays_until_its_fork_is_deleted_by_force() {
    require_fuse!();
    for repo in [TestRepo::new(), TestRepo::new().with_linked_forks()] {
        what_a_lost_record_names_stays(&repo);
    }
}

fn what_a_lost_record_names_stays(repo: &TestRepo) {
    let stopped = Stopped::new(repo);
    let is_own = repo.git_dir_of_fork("two").starts_with(stopped.store());
    let layers = || -> Vec<PathBuf> {
        let beneath = files_beneath(&stopped.store().join("layers"));
        beneath.into_keys().collect()
    };
    let refs = || repo.git(&["for-each-ref", "refs/tine"]);
    let before = (layers(), refs());
    let whole = |dir: &str| {
        repo.root()
            .join("repo.forks")
            .join(dir)
            .join("small.txt")
            .exists()
    };
    for lost in ["forks/two", "forks", "forks/two/snapshots.json"] {
        let moved = MovedAway::new(repo, stopped.store().join(lost));
        let findings = stopped.found();
        assert!(
            findings
                .iter()
                .any(|finding| finding["kind"] == "record-damaged"
                    && finding["fork"] == "two"
                    && finding["detail"] == "it is missing"),
            "{lost}: {findings:?}"
        );
        let list = stopped.tine.json(&["list"]);
        if !lost.ends_with("json") {
            assert!(
                list["damaged"].to_string().contains("forks/two"),
                "{lost}: {list}"
            );
            let output = stopped.tine.run(&["new", "two"]);
            assert!(!output.status.success(), "{lost}: its name is taken");
        }
        stopped.tine.ok(&["daemon", "stop"]);
        assert_eq!((layers(), refs()), before, "{lost}");
        // An own git directory is in the fork's directory, and went with it.
        if !is_own || lost.ends_with("json") {
            assert!(repo.git_dir_of_fork("two").join("HEAD").exists(), "{lost}");
        }
        if lost == "forks" {
            fs::remove_dir(stopped.store().join("forks")).unwrap();
        }
        moved.back();
        stopped.check(&[], 0);
        stopped.tine.ok(&["list"]);
        assert!(whole("one") && whole("two"), "{lost}");
        stopped.tine.ok(&["daemon", "stop"]);
    }

    // A repair takes all that may be its away, and gives all of it back.
    let moved = MovedAway::new(repo, stopped.store().join("forks/two"));
    stopped.check(&["--repair"], 0);
    stopped.check(&[], 0);
    moved.back();
    stopped.check(&["--put-back", "1"], 0);
    assert_eq!((layers(), refs()), before);
    stopped.check(&[], 0);

    // A fork goes on without its list of snapshots.
    fs::remove_file(stopped.store().join("forks/two/snapshots.json")).unwrap();
    stopped.check(&["--repair"], 0);
    stopped.check(&[], 0);

    fs::remove_dir_all(stopped.store().join("forks/two")).unwrap();
    stopped.tine.ok(&["delete", "two", "--force"]);
    stopped.check(&[], 0);
    assert!(!repo.git_dir_of_fork("two").exists());
    assert!(!refs().contains("refs/tine/two/"));
    stopped.tine.ok(&["new", "two", "--branch", "again"]);
}

#[test]
fn refs_without_a_content_are_found_and_set_anew_and_keep_nothing_from_being_deleted() {
    require_fuse!();
    let repo = TestRepo::new();
    let stopped = Stopped::new(&repo);
    let dir = repo.common_dir().join("refs/tine/one");
    let base = fs::read(dir.join("base")).unwrap();
    fs::write(dir.join("base"), "").unwrap();
    fs::write(dir.join("held-7"), "").unwrap();
    let findings = stopped.found();
    let what: Vec<&str> = findings
        .iter()
        .map(|finding| finding["what"].as_str().unwrap())
        .collect();
    assert_eq!(
        what,
        ["refs/tine/one/base", "refs/tine/one/held-7"],
        "{findings:?}"
    );
    stopped.check(&["--repair"], 0);
    assert_eq!(fs::read(dir.join("base")).unwrap(), base);
    assert!(!dir.join("held-7").exists());
    stopped.check(&[], 0);

    fs::write(dir.join("base"), "").unwrap();
    stopped.tine.ok(&["delete", "one", "--force"]);
    stopped.check(&[], 0);
    stopped.tine.ok(&["new", "one"]);
}

#[test]
fn a_deletion_under_a_lock_of_gits_changes_nothing() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    tine.new_fork("one");
    repo.git(&["pack-refs", "--all"]);
    let lock = repo.common_dir().join("packed-refs.lock");
    let refs = repo.git(&["for-each-ref", "--format=%(refname)"]);
    fs::write(&lock, "").unwrap();
    let output = tine.run(&["delete", "one"]);
    assert!(
        output.error_text().contains("packed-refs"),
        "{}",
        output.error_text()
    );
    fs::remove_file(&lock).unwrap();
    assert!(tine.ok(&["list"]).contains("mounted"));
    assert_eq!(repo.git(&["for-each-ref", "--format=%(refname)"]), refs);
    tine.ok(&["check"]);
    tine.ok(&["delete", "one"]);
    tine.ok(&["check"]);
}

#[test]
fn what_cannot_be_read_hurts_only_itself_and_is_not_repaired() {
    require_fuse!();
    for repo in [TestRepo::new(), TestRepo::new().with_linked_forks()] {
        hurts_only_itself(&repo);
    }
}

fn hurts_only_itself(repo: &TestRepo) {
    let stopped = Stopped::new(repo);
    let git_dir = repo.git_dir_of_fork("one");
    let index = git_dir.join("index");
    let staged = fs::read(&index).unwrap();
    let layer = stopped.open_layer("one");
    let is_own = git_dir.starts_with(stopped.store());
    let branch = repo.common_dir().join("refs/heads/tine/one");
    for path in [
        index.clone(),
        git_dir.join("HEAD"),
        branch.clone(),
        layer.join("log"),
        git_dir.clone(),
        stopped.store().join("forks/one"),
    ] {
        if is_own && path == branch {
            // The fork does not need it.
            continue;
        }
        // Not even root can follow it.
        let moved = MovedAway::new(repo, path.clone());
        std::os::unix::fs::symlink(&path, &path).unwrap();
        let report = stopped.check(&["--repair"], 1);
        let finding = &report["findings"][0];
        let kind = finding["kind"].as_str().unwrap();
        assert!(
            ["unreadable", "record-unreadable"].contains(&kind),
            "{report}"
        );
        assert_eq!(report["findings"].as_array().unwrap().len(), 1, "{report}");
        assert_eq!(finding["repaired"], Value::Null, "{report}");
        assert!(path.is_symlink(), "{report}");
        let list = stopped.tine.ok(&["list"]);
        assert!(list.contains("two"), "{}: {list}", path.display());
        stopped.tine.ok(&["status", "two"]);
        stopped.tine.ok(&["daemon", "stop"]);
        fs::remove_file(&path).unwrap();
        moved.back();
        stopped.check(&[], 0);
    }
    assert_eq!(fs::read(&index).unwrap(), staged);
    for name in ["home", "daemon.log"] {
        let path = stopped.store().join(name);
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&path, &path).unwrap();
        stopped.tine.ok(&["status", "one"]);
        stopped.tine.ok(&["daemon", "stop"]);
    }
}

#[test]
fn a_file_that_a_repair_made_again_can_be_exchanged_for_what_it_was() {
    require_fuse!();
    let own = ["forks/one/git/index", "forks/one/git/HEAD"];
    exchanged(&TestRepo::new(), "tine", &own);
    let linked = [
        "worktrees/one/index",
        "worktrees/one/HEAD",
        "refs/heads/tine/one",
    ];
    exchanged(&TestRepo::new().with_linked_forks(), "", &linked);
}

/// `names` are relative to `top`, which is in the common directory.
fn exchanged(repo: &TestRepo, top: &str, names: &[&str]) {
    let stopped = Stopped::new(repo);
    for &name in names {
        let path = repo.common_dir().join(top).join(name);
        fs::write(&path, "damaged").unwrap();
        let report = stopped.check(&["--repair"], 0);
        let repaired = report["findings"][0]["repaired"].as_str().unwrap();
        let number = repaired.rsplit("--put-back ").next().unwrap();
        let number = number.split('`').next().unwrap();
        let made = fs::read(&path).unwrap();
        let back = stopped.check(&["--put-back", number], 0);
        assert_eq!(back["put_back"]["paths"][0], name);
        assert_eq!(fs::read(&path).unwrap(), b"damaged");
        let aside = back["set_aside"]
            .as_array()
            .unwrap()
            .last()
            .unwrap()
            .clone();
        assert_eq!(aside["paths"][0], name, "{back}");
        stopped.check(&["--put-back", &aside["number"].to_string()], 0);
        assert_eq!(fs::read(&path).unwrap(), made);
        stopped.check(&[], 0);
    }
    let index = repo.git_dir_of_fork("one").join("index");
    fs::remove_file(&index).unwrap();
    let report = stopped.check(&["--repair"], 0);
    assert_eq!(
        report["findings"][0]["repaired"],
        "made again; it was missing"
    );
}

#[test]
fn one_repair_of_a_record_does_all() {
    require_fuse!();
    let repo = TestRepo::new();
    let stopped = Stopped::new(&repo);
    fs::write(stopped.store().join("forks/one/fork.json"), "{").unwrap();
    stopped.check(&["--repair"], 0);
    stopped.check(&[], 0);
}

#[test]
fn the_format_is_made_again_of_its_copy() {
    require_fuse!();
    let repo = TestRepo::new();
    let stopped = Stopped::new(&repo);
    let format = stopped.store().join("format");
    let copy = stopped.store().join("format.copy");
    let whole = fs::read(&format).unwrap();
    for (path, content) in [
        (&format, &whole[..20]),
        (&format, &b""[..]),
        (&copy, &whole[..20]),
    ] {
        fs::write(path, content).unwrap();
        assert_eq!(
            stopped.only("record-damaged")["what"],
            path.to_str().unwrap()
        );
        stopped.check(&["--repair"], 0);
        assert_eq!(fs::read(path).unwrap(), whole);
    }
    // A key of the right form that is another one.
    let other = String::from_utf8(whole.clone()).unwrap();
    let at = other.find("ino_key").unwrap() + 12;
    let digit = if &other[at..=at] == "0" { "1" } else { "0" };
    fs::write(
        &format,
        format!("{}{digit}{}", &other[..at], &other[at + 1..]),
    )
    .unwrap();
    stopped.tine.ok(&["list"]);
    assert_eq!(fs::read(&format).unwrap(), whole);
    let small = repo.root().join("repo.forks/one/small.txt");
    assert_eq!(fs::read_to_string(small).unwrap(), "small, of one\n");
}

/// Invariant 12: what cannot come back is told before somebody counts on it.
#[test]
fn an_entry_of_recover_that_stands_on_a_lost_object_is_found_and_refused() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    repo.sh_in(
        repo.dir(),
        "git switch -q -c side; echo side > side.txt; git add side.txt; git commit -qm side; git switch -q main",
    );
    tine.ok(&["new", "demo", "--from", "side"]);
    let dir = PathBuf::from(tine.ok(&["path", "demo"]));
    fs::write(dir.join("one.txt"), "one\n").unwrap();
    tine.ok(&["commit", "demo", "-m", "One"]);
    fs::write(dir.join("two.txt"), "two\n").unwrap();
    tine.ok(&["delete", "demo", "--force"]);
    let id_of = |rev: &str| repo.git(&["rev-parse", rev]).trim().to_owned();
    let kept = "refs/tine/+recover/1";
    let view_tree = repo
        .git(&["ls-tree", &format!("{kept}:trees")])
        .split_whitespace()
        .nth(2)
        .unwrap()
        .to_owned();
    for lost in [
        id_of("side"),
        id_of("tine/demo^{tree}"),
        view_tree,
        id_of(kept),
    ] {
        tine.ok(&["daemon", "stop"]);
        let (dir, name) = lost.split_at(2);
        let object = repo.common_dir().join("objects").join(dir).join(name);
        let aside = repo.root().join("aside");
        fs::rename(&object, &aside).unwrap();

        let checked = tine.run(&["check", "--json"]);
        assert_eq!(checked.status.code(), Some(1), "{}", checked.text());
        let checked: Value = serde_json::from_str(&checked.text()).unwrap();
        let mut findings = checked["findings"].as_array().unwrap().clone();
        if lost == id_of("side") {
            let branch = findings.remove(0);
            assert_eq!(
                (&branch["kind"], &branch["what"]),
                (&"ref-damaged".into(), &"refs/heads/side".into())
            );
        }
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(
            (&findings[0]["kind"], &findings[0]["what"]),
            (&"object-missing".into(), &kept.into())
        );
        assert!(
            findings[0]["detail"].as_str().unwrap().contains(&lost),
            "{findings:?}"
        );

        let list = tine.json(&["recover"]);
        match lost == id_of(kept) {
            // Not even what it is can be told.
            true => assert_eq!(list["damaged"].as_array().unwrap().len(), 1, "{list}"),
            false => {
                assert_eq!(list["entries"][0]["missing"], lost, "{list}");
                let told = tine.ok(&["recover"]);
                assert!(
                    told.contains(&format!("{} is missing", &lost[..7])),
                    "{told}"
                );
                let shown = tine.ok(&["recover", "show", "1"]);
                assert!(shown.contains(&lost), "{shown}");
                let refs = repo.git(&["for-each-ref", "--format=%(refname)"]);
                let refused = tine.run(&["recover", "1", "--json"]);
                let refused: Value = serde_json::from_str(&refused.text()).unwrap();
                assert_eq!(refused["error"]["code"], "history-gone", "{refused}");
                assert!(
                    refused["error"]["message"]
                        .as_str()
                        .unwrap()
                        .contains(&lost),
                    "{refused}"
                );
                assert_eq!(repo.git(&["for-each-ref", "--format=%(refname)"]), refs);
                assert!(!repo.root().join("repo.forks/demo").exists());
            }
        }
        fs::rename(&aside, &object).unwrap();
    }
    assert!(tine.ok(&["check"]).contains("all is whole"));
    let back = PathBuf::from(tine.ok(&["recover", "1"]));
    assert_eq!(fs::read_to_string(back.join("two.txt")).unwrap(), "two\n");
}
