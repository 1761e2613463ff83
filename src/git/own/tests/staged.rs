//! What only the index of a fork names outlives a collection in the main repository.

use super::*;

fn protect(fork: &Fork<'_>) -> usize {
    let repository = fork.main.open();
    repository.protect_index(&fork.git_dir, &fork.name).unwrap()
}

#[test]
fn blobs_that_only_the_main_repository_has_are_kept() {
    let main = main_repository();
    let blob = main.git_with_input(&["hash-object", "-w", "--stdin"], b"only here\n");
    let fork = Fork::new(&main, "f");
    assert_eq!(protect(&fork), 0);
    fork.write("own", "in the own directory\n");
    fork.git(&["add", "own"]);
    assert_eq!(protect(&fork), 0);
    fork.git(&[
        "update-index",
        "--add",
        "--cacheinfo",
        &format!("100644,{blob},x"),
    ]);
    assert_eq!(protect(&fork), 1);
    fork.prune_main();
    fork.git(&["cat-file", "blob", &blob]);
    // An index of another commit, without a cached tree.
    let old = main.id_of("HEAD~1:a").to_string();
    fork.git(&["read-tree", "HEAD~1"]);
    assert_eq!(protect(&fork), 1);
    let kept = fork.kept("git-index").unwrap().to_string();
    assert!(main.git(&["ls-tree", &kept]).contains(&old));
    fork.git(&["read-tree", "HEAD"]);
    assert_eq!(protect(&fork), 0);
    assert_eq!(fork.kept("git-index"), None);
    fork.git(&["update-index", "--split-index"]);
    fork.git(&[
        "update-index",
        "--add",
        "--cacheinfo",
        &format!("100644,{old},dir/y"),
    ]);
    assert_eq!(protect(&fork), 1);
    fs::remove_file(fork.git_dir.join("index")).unwrap();
    assert_eq!(protect(&fork), 0);
    fs::write(fork.git_dir.join("index"), "no index").unwrap();
    let repository = main.open();
    assert!(repository.protect_index(&fork.git_dir, "f").is_err());
}

#[test]
fn own_tips_lists_all_that_is_named() {
    use crate::own::{OwnTipKind, own_tips};

    let main = main_repository();
    let fork = Fork::new(&main, "f");
    fork.write("x", "1\n");
    let dropped = fork.commit("dropped");
    fork.git(&["commit", "-q", "--amend", "-m", "kept"]);
    fork.write("x", "stashed\n");
    fork.git(&["stash", "push", "-q", "-m", "one"]);
    fork.write("x", "stashed again\n");
    fork.git(&["stash", "push", "-q", "-m", "two"]);
    fork.git(&["tag", "v1"]);
    let found = own_tips(&main.open(), &fork.git_dir).unwrap();
    let has = |name: &str, revision: &str| {
        let id = fork.id_of(revision);
        assert!(
            found.iter().any(|tip| tip.name == name && tip.id == id),
            "{name}: {found:?}"
        );
    };
    has("HEAD", "HEAD");
    has("refs/heads/tine/f", "HEAD");
    has("refs/tags/v1", "HEAD");
    has("stash@{0}", "stash@{0}");
    has("stash@{1}", "stash@{1}");
    has("ORIG_HEAD", "HEAD");
    let message = |kind: &OwnTipKind| match kind {
        OwnTipKind::Stash { message } | OwnTipKind::Logged { message } => message.clone(),
        _ => String::new(),
    };
    let of = |id: ObjectId| found.iter().find(|tip| tip.id == id).unwrap();
    assert_eq!(message(&of(dropped).kind), "commit: dropped");
    let stashes: Vec<String> = found
        .iter()
        .filter(|tip| tip.name.starts_with("stash@"))
        .map(|tip| message(&tip.kind))
        .collect();
    assert_eq!(stashes, ["On tine/f: two", "On tine/f: one"]);
}
