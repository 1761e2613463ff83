//! Programs in the main repository that remove objects while these are taken over.

use super::*;

/// Removes what a pruning removes that read the refs before the fork's were there.
fn prune_as_before(main: &TestRepository, ids: &[String]) {
    let objects = main.dir().join(".git/objects");
    for id in ids {
        let _ = fs::remove_file(objects.join(&id[..2]).join(&id[2..]));
    }
    let packs = fs::read_dir(objects.join("pack")).unwrap().flatten();
    packs.for_each(|file| fs::remove_file(file.path()).unwrap());
}

#[test]
fn what_an_earlier_pruning_removed_comes_back() {
    for count in [1, 80] {
        let main = main_repository();
        let fork = Fork::new(&main, "f");
        fork.take_all();
        for n in 0..count {
            fork.write(&format!("new/{n}"), format!("{n}\n"));
        }
        fork.commit("new files");
        let ids = fork.loose_ids();
        fork.take_all();
        assert_eq!(fork.loose_objects(), 0);
        let is_pack = packs(&main.dir().join(".git")) > 0;
        assert_eq!(is_pack, count > 50);
        prune_as_before(&main, &ids);
        assert!(main.open().restore_held().unwrap() > 0);
        assert_eq!(main.open().restore_held().unwrap(), 0);
        fork.assert_sound();
        // What was packed does not come back as loose objects.
        fork.prune_main();
        assert_eq!(main.open().restore_held().unwrap(), 0);
        fork.assert_sound();
    }
}

#[test]
fn objects_are_held_for_minutes_only() {
    let main = main_repository();
    let fork = Fork::new(&main, "f");
    fork.write("x", "1\n");
    fork.commit("one");
    fork.take_all();
    let held = main.dir().join(".git/objects/tine-held");
    let set = fs::read_dir(&held).unwrap().next().unwrap().unwrap().path();
    main.open().restore_held().unwrap();
    assert!(set.exists());
    let past = std::time::SystemTime::now() - std::time::Duration::from_secs(700);
    fs::File::open(&set).unwrap().set_modified(past).unwrap();
    main.open().restore_held().unwrap();
    assert!(!held.exists());
    fork.assert_sound();
}

#[test]
fn what_only_the_index_names_is_kept_when_the_logs_forget_it() {
    let main = main_repository();
    let fork = Fork::new(&main, "f");
    fork.write("x", "only staged in the end\n");
    fork.commit("one");
    fork.take_all();
    assert_eq!(fork.loose_objects(), 0);
    fork.git(&["reset", "-q", "--soft", "HEAD~1"]);
    let _ = fs::remove_file(fork.git_dir.join("ORIG_HEAD"));
    fork.git(&["reflog", "expire", "--expire=now", "--all"]);
    fork.take_all();
    fork.prune_main();
    assert_eq!(fork.git(&["show", ":x"]), "only staged in the end");
}

#[test]
fn the_head_and_logs_of_a_forks_worktree_are_kept() {
    let main = main_repository();
    let fork = Fork::new(&main, "f");
    fork.write("x", "1\n");
    fork.commit("one");
    fork.take_all();
    let beside = fork.dir.join("../beside");
    let beside = beside.to_str().unwrap();
    fork.git(&["worktree", "add", "-q", "--detach", beside]);
    fork.git(&["reset", "-q", "--hard", "HEAD~1"]);
    let _ = fs::remove_file(fork.git_dir.join("ORIG_HEAD"));
    fork.git(&["reflog", "expire", "--expire=now", "HEAD", "tine/f"]);
    fork.take_all();
    fork.prune_main();
    let worktree = fork.git_dir.join("worktrees/beside/HEAD");
    let id = fs::read_to_string(worktree).unwrap();
    fork.git(&["cat-file", "-e", id.trim_end()]);
}
