//! Layers that are damaged or gone: a repair cuts the log of a fork's open layer, keeps a copy, and
//! has an inverse. What stands on a frozen layer that is damaged costs nobody else anything.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::support::{OutputExt, TestRepo, Tine, require_fuse};
use super::{Stopped, files_beneath, flip};

/// A stopped fork `one` with three files, of which the last was written after `log_len` bytes of
/// the log.
fn with_later_file<'r>(repo: &'r TestRepo) -> (Stopped<'r>, PathBuf, usize) {
    let stopped = Stopped::new(repo);
    let layer = stopped.open_layer("one");
    let log_len = fs::metadata(layer.join("log")).unwrap().len() as usize;
    stopped.tine.ok(&["list"]);
    stopped.tine.ok(&["mount", "one"]);
    fs::write(dir_of(repo, "one").join("last.txt"), "last\n").unwrap();
    stopped.tine.ok(&["daemon", "stop"]);
    (stopped, layer, log_len)
}

pub(super) fn dir_of(repo: &TestRepo, fork: &str) -> PathBuf {
    repo.root().join("repo.forks").join(fork)
}

/// The number that a repair says to be the way back.
#[track_caller]
fn number_of(report: &Value) -> String {
    let repaired = report["findings"][0]["repaired"].as_str();
    let repaired = repaired.unwrap_or_else(|| panic!("nothing was repaired: {report}"));
    let number = repaired.rsplit("--put-back ").next().unwrap();
    number.split('`').next().unwrap().to_owned()
}

#[track_caller]
fn assert_holds(dir: &Path, name: &str, content: &str) {
    assert_eq!(
        fs::read_to_string(dir.join(name)).unwrap(),
        content,
        "{name}"
    );
}

#[test]
fn a_damaged_open_layer_is_cut_there_and_comes_back_and_goes_again() {
    require_fuse!();
    let repo = TestRepo::new();
    let (stopped, layer, log_len) = with_later_file(&repo);
    // In the records of the last file, with whole ones behind.
    flip(&layer.join("log"), log_len + 60);
    let damaged = files_beneath(&layer);
    let finding = stopped.only("layer-damaged");
    assert!(
        finding["hint"]
            .as_str()
            .unwrap()
            .contains("tine check --repair"),
        "{finding}"
    );

    let before = files_beneath(&stopped.store());
    let planned = stopped.check(&["--repair", "--dry-run"], 1);
    let plan = planned["findings"][0]["planned"].as_str().unwrap();
    assert!(plan.contains("cut its log"), "{plan}");
    assert_eq!(
        files_beneath(&stopped.store()),
        before,
        "a dry run changes nothing"
    );

    let report = stopped.check(&["--repair"], 0);
    let repaired = report["findings"][0]["repaired"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(repaired.contains("are left out"), "{repaired}");
    let number = number_of(&report);
    let aside = stopped.store().join("damaged").join(&number).join("layers");
    let copy = aside.join(layer.file_name().unwrap());
    assert_eq!(
        contents(&files_beneath(&copy), &copy),
        contents(&damaged, &layer)
    );
    stopped.check(&[], 0);

    stopped.tine.ok(&["mount", "one"]);
    let dir = dir_of(&repo, "one");
    assert_holds(&dir, "small.txt", "small, of one\n");
    assert_eq!(fs::read(dir.join("large.bin")).unwrap(), vec![7; 200_000]);
    assert!(
        !dir.join("last.txt").exists(),
        "it was written behind the damage"
    );
    fs::write(dir.join("newer.txt"), "newer\n").unwrap();
    // What is written in place, and freed, is not the copy's.
    fs::write(dir.join("large.bin"), vec![8; 200_000]).unwrap();
    fs::remove_file(dir.join("small.txt")).unwrap();
    stopped.tine.ok(&["gc"]);
    stopped.tine.ok(&["daemon", "stop"]);
    stopped.check(&[], 0);
    assert_eq!(
        contents(&files_beneath(&copy), &copy),
        contents(&damaged, &layer)
    );

    // `tine recover` knows of it.
    let list = stopped.tine.json(&["recover"]);
    let way_back = format!("tine check --put-back {number}");
    let elsewhere = list["elsewhere"].as_array().unwrap();
    assert!(
        elsewhere
            .iter()
            .any(|line| line["way_back"] == way_back.as_str()),
        "{list}"
    );
    let told = stopped.tine.fails(5, &["check", "--put-back", &number]);
    assert!(
        told.contains("one"),
        "a fork that is mounted is left alone: {told}"
    );
    stopped.tine.ok(&["daemon", "stop"]);

    let back = stopped.check(&["--put-back", &number], 0);
    assert_eq!(
        contents(&files_beneath(&layer), &layer),
        contents(&damaged, &layer)
    );
    let newest = back["set_aside"].as_array().unwrap().last().unwrap()["number"].to_string();
    assert_eq!(stopped.only("layer-damaged")["fork"], "one");
    // The inverse has an inverse.
    stopped.check(&["--put-back", &newest], 0);
    stopped.check(&[], 0);
    stopped.tine.ok(&["mount", "one"]);
    assert_holds(&dir, "newer.txt", "newer\n");
    stopped.tine.ok(&["daemon", "stop"]);
}

/// Paths below `dir` with contents.
fn contents(
    files: &std::collections::BTreeMap<PathBuf, Vec<u8>>,
    dir: &Path,
) -> Vec<(PathBuf, Vec<u8>)> {
    let within = files.iter();
    within
        .map(|(path, bytes)| (path.strip_prefix(dir).unwrap().to_owned(), bytes.clone()))
        .collect()
}

#[test]
fn an_open_layer_whose_header_or_log_or_directory_is_gone_is_made_anew() {
    require_fuse!();
    let repo = TestRepo::new();
    let stopped = Stopped::new(&repo);
    let layer = stopped.open_layer("one");
    let dir = dir_of(&repo, "one");

    // Records tell whose they are, so a header costs nothing.
    fs::write(layer.join("log"), {
        let mut log = fs::read(layer.join("log")).unwrap();
        log[..24].fill(0);
        log
    })
    .unwrap();
    stopped.check(&["--repair"], 0);
    stopped.tine.ok(&["mount", "one"]);
    assert_holds(&dir, "small.txt", "small, of one\n");
    stopped.tine.ok(&["daemon", "stop"]);

    let nothing: &dyn Fn(&Path) = &|layer| fs::write(layer.join("log"), "nothing").unwrap();
    let gone: &dyn Fn(&Path) = &|layer| fs::remove_file(layer.join("log")).unwrap();
    let a_directory: &dyn Fn(&Path) = &|layer| {
        fs::remove_file(layer.join("log")).unwrap();
        fs::create_dir(layer.join("log")).unwrap();
    };
    for harm in [nothing, gone, a_directory] {
        harm(&layer);
        let kind = stopped.found()[0]["kind"].clone();
        assert_eq!(kind, "layer-damaged");
        let number = number_of(&stopped.check(&["--repair"], 0));
        stopped.tine.ok(&["mount", "one"]);
        assert!(!dir.join("small.txt").exists());
        assert_eq!(
            stopped.tine.json(&["status", "one"])["changes"],
            serde_json::json!([])
        );
        fs::write(dir.join("new.txt"), "new\n").unwrap();
        stopped.tine.ok(&["daemon", "stop"]);
        assert_eq!(
            fs::read_dir(stopped.store().join("damaged").join(&number).join("layers"))
                .unwrap()
                .count(),
            1
        );
    }

    fs::remove_dir_all(&layer).unwrap();
    assert_eq!(stopped.only("layer-missing")["fork"], "one");
    stopped.check(&["--repair"], 0);
    stopped.tine.ok(&["mount", "one"]);
    assert!(!dir.join("new.txt").exists());
    assert!(dir.join(".git").exists());
    stopped.tine.ok(&["daemon", "stop"]);
    stopped.check(&[], 0);
}

#[test]
fn a_repair_and_a_way_back_that_were_killed_are_done_again() {
    require_fuse!();
    let repo = TestRepo::new();
    let (stopped, layer, log_len) = with_later_file(&repo);
    flip(&layer.join("log"), log_len + 60);
    let damaged = files_beneath(&layer);
    // As a process leaves it that dies while it copies, and one that dies when it has copied.
    let half = stopped
        .store()
        .join("damaged/1.tmp/layers")
        .join(layer.file_name().unwrap());
    fs::create_dir_all(&half).unwrap();
    fs::copy(layer.join("log"), half.join("log")).unwrap();
    assert_eq!(
        stopped.check(&["--set-aside"], 0)["set_aside"],
        serde_json::json!([])
    );
    let copied = stopped.store().join("damaged/1/layers");
    fs::create_dir_all(&copied).unwrap();
    let copy = std::process::Command::new("cp")
        .arg("-a")
        .arg(&layer)
        .arg(&copied)
        .status();
    assert!(copy.unwrap().success());
    assert_eq!(number_of(&stopped.check(&["--repair"], 0)), "1");
    assert!(!stopped.store().join("damaged/1.tmp").exists());
    assert!(!stopped.store().join("damaged/2").exists());

    // The present layer is aside, the damaged one is not back.
    let moved = stopped
        .store()
        .join("damaged/2/layers")
        .join(layer.file_name().unwrap());
    fs::create_dir_all(moved.parent().unwrap()).unwrap();
    fs::rename(&layer, &moved).unwrap();
    stopped.check(&["--put-back", "1"], 0);
    assert_eq!(files_beneath(&layer), damaged);
    assert!(moved.exists());
    // All is back, and the entry is there still.
    fs::create_dir_all(stopped.store().join("damaged/1/layers")).unwrap();
    stopped.check(&["--put-back", "1"], 0);
    assert!(!stopped.store().join("damaged/1").exists());
    let told = stopped.tine.fails(2, &["check", "--put-back", "1"]);
    assert!(told.contains("tine check --set-aside"), "{told}");
}

#[test]
fn a_fork_that_went_back_takes_no_commit_back_without_being_told_to() {
    require_fuse!();
    let repo = TestRepo::new();
    repo.commit_files(
        &[("theirs.txt", b"theirs, old\n"), ("own.txt", b"own, old\n")],
        "both",
    );
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("back");
    fs::write(dir.join("mine.txt"), "mine\n").unwrap();
    tine.ok(&["daemon", "stop"]);
    tine.ok(&["mount", "back"]);
    // What it stands on moves, and HEAD moves by a commit of its own.
    repo.commit_files(&[("theirs.txt", b"theirs, new\n")], "theirs");
    tine.ok(&["update", "back"]);
    assert_holds(&dir, "theirs.txt", "theirs, new\n");
    fs::write(dir.join("own.txt"), "own, new\n").unwrap();
    tine.ok(&["commit", "back", "-m", "own"]);
    fs::write(dir.join("more.txt"), "more\n").unwrap();
    tine.ok(&["daemon", "stop"]);

    // The update began a layer: what it brought is behind the damage.
    let record = fs::read(repo.common_dir().join("tine/forks/back/fork.json")).unwrap();
    let record: Value = serde_json::from_slice(&record).unwrap();
    flip(
        &repo
            .common_dir()
            .join(format!("tine/layers/{}/log", record["open_layer"])),
        60,
    );
    let report = tine.run(&["check", "--repair"]);
    assert!(
        report.status.success(),
        "{}{}",
        report.text(),
        report.error_text()
    );
    tine.ok(&["mount", "back"]);
    assert_holds(&dir, "mine.txt", "mine\n");
    assert_holds(&dir, "theirs.txt", "theirs, old\n");
    assert_holds(&dir, "own.txt", "own, old\n");
    let told = tine.fails(3, &["commit", "back", "-m", "all"]);
    assert!(
        told.contains("own.txt") && told.contains("theirs.txt"),
        "{told}"
    );
    assert!(!told.contains("mine.txt"), "{told}");
    let told = tine.fails(
        3,
        &["merge", "back", "--into", "main", "--with-uncommitted"],
    );
    assert!(told.contains("theirs.txt"), "{told}");
    tine.ok(&["revert", "back", "theirs.txt", "own.txt", "--to", "HEAD"]);
    assert_eq!(
        tine.json(&["status", "back"])["changes"],
        serde_json::json!([])
    );
    fs::write(dir.join("next.txt"), "next\n").unwrap();
    tine.ok(&["commit", "back", "-m", "goes on"]);
    assert_eq!(repo.git(&["show", "tine/back:own.txt"]), "own, new");
}

#[test]
fn a_mounted_fork_with_a_damaged_log_is_left_until_nobody_uses_it() {
    require_fuse!();
    let repo = TestRepo::new();
    let (stopped, layer, log_len) = with_later_file(&repo);
    stopped.tine.ok(&["mount", "one"]);
    flip(&layer.join("log"), log_len + 60);
    let report = stopped.check(&["--repair"], 1);
    let hint = report["findings"][0]["hint"].as_str().unwrap();
    assert!(hint.contains("tine unmount one --keep"), "{hint}");
    assert!(!stopped.store().join("damaged").exists());
    assert_holds(&dir_of(&repo, "one"), "last.txt", "last\n");
    stopped.tine.ok(&["unmount", "one", "--keep"]);
    stopped.check(&["--repair"], 0);
    stopped.tine.ok(&["mount", "one"]);
    assert_holds(&dir_of(&repo, "one"), "small.txt", "small, of one\n");
    stopped.tine.ok(&["daemon", "stop"]);
}

#[test]
fn what_was_set_aside_of_a_deleted_fork_stays_and_is_said() {
    require_fuse!();
    let repo = TestRepo::new();
    let (stopped, layer, log_len) = with_later_file(&repo);
    flip(&layer.join("log"), log_len + 60);
    let number = number_of(&stopped.check(&["--repair"], 0));
    stopped.tine.ok(&["delete", "one", "--force"]);
    stopped.tine.ok(&["gc"]);
    let told = stopped.tine.fails(4, &["check", "--put-back", &number]);
    assert!(
        told.contains("the fork is gone") && told.contains("tine recover"),
        "{told}"
    );
    stopped.tine.ok(&["daemon", "stop"]);
    let copy = stopped.store().join("damaged").join(&number).join("layers");
    assert!(copy.join(layer.file_name().unwrap()).join("log").exists());
}

#[test]
fn a_damaged_frozen_layer_costs_only_what_stands_on_it() {
    require_fuse!();
    let repo = TestRepo::new();
    let stopped = Stopped::new(&repo);
    stopped.tine.ok(&["snapshot", "two", "later"]);
    let dir = dir_of(&repo, "two");
    fs::write(dir.join("latest.txt"), "latest\n").unwrap();
    stopped.tine.ok(&["daemon", "stop"]);
    let frozen: Vec<u64> =
        serde_json::from_value(stopped.record("two")["frozen_layers"].clone()).unwrap();
    assert_eq!(frozen.len(), 2, "kept, later");
    let log = stopped.store().join(format!("layers/{}/log", frozen[0]));
    flip(&log, 40);
    let finding = stopped.only("layer-damaged");
    let hint = finding["hint"].as_str().unwrap();
    assert!(
        hint.contains("`tine new two-kept --from-fork two@kept`"),
        "{hint}"
    );
    assert!(
        hint.contains("`tine snapshot two later --delete --force`"),
        "{hint}"
    );
    assert!(hint.contains("`tine delete --force two`"), "{hint}");
    let after = stopped.check(&["--repair"], 1);
    assert_eq!(
        after["findings"][0]["repaired"],
        Value::Null,
        "a snapshot does not change in silence"
    );

    // Others go on.
    stopped.tine.run(&["list"]);
    stopped.tine.ok(&["status", "one"]);
    stopped.tine.ok(&["new", "three"]);
    stopped
        .tine
        .ok(&["new", "two-kept", "--from-fork", "two@kept"]);
    assert_holds(&dir_of(&repo, "two-kept"), "small.txt", "small, of two\n");
    assert!(!dir_of(&repo, "two-kept").join("later.txt").exists());
    stopped.tine.ok(&["commit", "one", "-m", "one"]);
    stopped.tine.ok(&["merge", "one", "--into", "main"]);
    stopped
        .tine
        .ok(&["snapshot", "two", "later", "--delete", "--force"]);

    let deleted = stopped.tine.json(&["delete", "two", "--force"]);
    let lost = deleted["lost"].as_array().unwrap();
    assert!(
        lost.contains(&Value::from("what was not committed")),
        "{deleted}"
    );
    let id = deleted["recover"].to_string();
    stopped
        .tine
        .ok(&["recover", &id, "brought", "--snapshot", "kept"]);
    assert_holds(&dir_of(&repo, "brought"), "small.txt", "small, of two\n");
    stopped.tine.ok(&["daemon", "stop"]);
    stopped.check(&[], 0);
}

/// It comes back under its number, which must not be another fork's by then.
#[test]
fn the_number_of_a_layer_that_was_set_aside_is_not_given_again() {
    require_fuse!();
    let repo = TestRepo::new();
    let (stopped, layer, _) = with_later_file(&repo);
    let record = stopped.store().join("forks/one/fork.json");
    fs::write(&record, "no record").unwrap();
    let report = stopped.check(&["--repair"], 0);
    assert!(!layer.exists(), "{report}");
    let number = number_of(&report);
    fs::remove_file(stopped.store().join("layers/next")).unwrap();
    for name in ["other", "another"] {
        stopped.tine.ok(&["new", name]);
        fs::write(dir_of(&repo, name).join("own.txt"), name).unwrap();
    }
    stopped.tine.ok(&["daemon", "stop"]);
    assert!(!layer.exists(), "no new fork has the number");
    stopped.check(&["--put-back", &number], 0);
    assert!(layer.exists());
    stopped.tine.ok(&["list"]);
    for name in ["other", "another"] {
        assert_holds(&dir_of(&repo, name), "own.txt", name);
    }
}

#[test]
fn a_file_where_the_store_has_a_directory_is_set_aside_and_missing_directories_are_made() {
    require_fuse!();
    let repo = TestRepo::new();
    let stopped = Stopped::new(&repo);
    for name in [
        "bases",
        "spool",
        "scratch",
        "reviews",
        "handoffs",
        "gone-back",
        "rounds",
    ] {
        let path = stopped.store().join(name);
        for is_file in [false, true] {
            if path.exists() {
                fs::remove_dir_all(&path).unwrap();
            }
            if is_file {
                fs::write(&path, "a file").unwrap();
            }
            stopped.tine.ok(&["list"]);
            let made = stopped.tine.ok(&["new", &format!("{name}-{is_file}")]);
            assert!(
                Path::new(made.trim()).join(".git").exists(),
                "{name}: {made}"
            );
            stopped.tine.ok(&["status", "one"]);
            stopped.tine.ok(&["daemon", "stop"]);
        }
        let list = stopped.check(&["--set-aside"], 0);
        let newest = list["set_aside"]
            .as_array()
            .unwrap()
            .last()
            .unwrap()
            .clone();
        assert_eq!(newest["paths"], serde_json::json!([name]), "{list}");
    }
    let next = stopped.store().join("layers/next");
    fs::remove_file(&next).unwrap();
    fs::create_dir(&next).unwrap();
    stopped.tine.ok(&["new", "next"]);
    stopped.tine.ok(&["commit", "one", "-m", "one"]);
    stopped.tine.ok(&["daemon", "stop"]);
    stopped.check(&[], 0);
}

/// What is in a place of the store, for what has to be there.
#[derive(Debug, Clone, Copy)]
enum Wrong {
    /// A file for the open layer of the fork, or for one that a snapshot of it stands on.
    Layer,
    Frozen,
    /// A file for the directory of large contents, of these layers.
    Files,
    FrozenFiles,
    /// A directory for the record.
    Record,
}

impl Wrong {
    const ALL: [Wrong; 5] = [
        Wrong::Layer,
        Wrong::Frozen,
        Wrong::Files,
        Wrong::FrozenFiles,
        Wrong::Record,
    ];

    /// Puts it there, in place of what belongs to the fork `two`.
    fn put(self, stopped: &Stopped<'_>) -> PathBuf {
        let record = stopped.record("two");
        let layer = |id: &Value| stopped.store().join("layers").join(id.to_string());
        let (open, frozen) = (
            layer(&record["open_layer"]),
            layer(&record["frozen_layers"][0]),
        );
        let path = match self {
            Wrong::Layer => open,
            Wrong::Frozen => frozen,
            Wrong::Files => open.join("files"),
            Wrong::FrozenFiles => frozen.join("files"),
            Wrong::Record => stopped.store().join("forks/two/fork.json"),
        };
        match path.is_dir() {
            true => fs::remove_dir_all(&path).unwrap(),
            false => fs::remove_file(&path).unwrap(),
        }
        match self {
            Wrong::Record => fs::create_dir(&path).unwrap(),
            _ => fs::write(&path, "a file").unwrap(),
        }
        path
    }
}

#[test]
fn what_is_of_the_wrong_kind_in_the_place_of_a_forks_own_has_a_way_out() {
    require_fuse!();
    for wrong in Wrong::ALL {
        for way in ["repair", "repair beside a daemon", "delete"] {
            let repo = TestRepo::new();
            let stopped = Stopped::new(&repo);
            let tine = &stopped.tine;
            let path = wrong.put(&stopped);
            let case = format!("{wrong:?}, {way}");
            let found = stopped.found();
            let names_it = |one: &Value| one["what"] == path.to_str().unwrap();
            assert!(found.iter().any(names_it), "{case}: {found:?}");
            if way != "repair" {
                assert!(tine.ok(&["list"]).contains("one"), "{case}");
            }
            if way != "delete" {
                let whole = !matches!(wrong, Wrong::Frozen | Wrong::FrozenFiles);
                let report = stopped.check(&["--repair"], i32::from(!whole));
                let findings = report["findings"].as_array().unwrap();
                let set_aside = findings
                    .iter()
                    .any(|one| names_it(one) && one["repaired"].is_string());
                assert!(set_aside, "{case}: {report}");
                assert_eq!(
                    tine.run(&["status", "one"]).status.code(),
                    Some(0),
                    "{case}"
                );
                tine.ok(&["daemon", "stop"]);
                // There and back again.
                if matches!(wrong, Wrong::Files) {
                    assert!(path.is_dir(), "{case}");
                    stopped.check(&["--put-back", "1"], 0);
                    assert!(path.is_file(), "{case}");
                    stopped.check(&["--repair"], 0);
                }
            }
            if way != "delete" && matches!(wrong, Wrong::Layer | Wrong::Files | Wrong::FrozenFiles)
            {
                tine.ok(&["mount", "two"]);
                let large = dir_of(&repo, "two").join("large.bin");
                fs::write(&large, vec![8; 200_000]).unwrap();
                assert_eq!(fs::read(&large).unwrap(), vec![8; 200_000], "{case}");
            }
            if way == "delete" || !matches!(wrong, Wrong::Record) {
                tine.ok(&["delete", "--force", "two"]);
            }
            // Others go on.
            tine.ok(&["new", "three"]);
            tine.ok(&["mount", "one"]);
            assert_holds(&dir_of(&repo, "one"), "small.txt", "small, of one\n");
            tine.ok(&["commit", "one", "-m", "one"]);
            tine.ok(&["gc"]);
            tine.ok(&["daemon", "stop"]);
            tine.run(&["check", "--repair"]);
            stopped.check(&[], 0);
        }
    }
}
