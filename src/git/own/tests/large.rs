//! Packs, partial clones, and collections in the main repository meanwhile.

use std::thread;
use std::time::{Duration, Instant};

use super::*;

/// Bytes that cannot be compressed.
fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes
}

#[test]
fn large_files_and_packs_arrive() {
    let main = main_repository();
    let fork = Fork::new(&main, "f");
    fork.write("large", noise(20 << 20, 1));
    fork.commit("large");
    let started = Instant::now();
    fork.take_all();
    println!("a file of 20 MiB: {:?}", started.elapsed());
    assert_eq!(fork.loose_objects(), 0);
    // It is small on disk, and large in memory.
    fork.write("zeros", vec![0; 100 << 20]);
    fork.commit("zeros");
    fork.take_all();
    for n in 0..20 {
        fork.write(&format!("part{n}"), noise(1 << 20, n));
    }
    fork.commit("parts");
    fork.git(&["repack", "-q", "-d", "-l"]);
    assert_eq!(packs(&fork.git_dir), 1);
    let started = Instant::now();
    fork.take_all();
    println!("a pack of 20 MiB: {:?}", started.elapsed());
    assert_eq!(packs(&fork.git_dir), 0);
    for n in 0..20 {
        fork.write(&format!("more{n}"), format!("{n}\n"));
        fork.commit("more");
        fork.git(&["repack", "-q", "-d", "-l"]);
    }
    let before = packs(&fork.git_dir);
    assert!(before >= 20, "{before}");
    let started = Instant::now();
    fork.take_all();
    println!("{before} packs: {:?}", started.elapsed());
    assert_eq!(packs(&fork.git_dir), 0);
    fork.prune_main();
}

#[test]
fn a_partial_clone_may_lack_what_its_remote_has() {
    let origin = main_repository();
    origin.git(&["config", "uploadpack.allowFilter", "true"]);
    origin.git(&["config", "uploadpack.allowAnySHA1InWant", "true"]);
    let main = TestRepository::new();
    let url = format!("file://{}", origin.dir().display());
    main.git(&["remote", "add", "origin", &url]);
    main.git(&["fetch", "-q", "--filter=blob:none", "origin"]);
    main.git(&["reset", "-q", "--hard", "origin/main"]);
    let old = main.git(&["rev-parse", "HEAD~1:a"]);
    let is_there = |id: &str| {
        let missing = main.git(&["rev-list", "--objects", "--all", "--missing=print"]);
        !missing.contains(&format!("?{id}"))
    };
    assert!(!is_there(&old));
    let fork = Fork::new(&main, "f");
    fork.write("x", "1\n");
    fork.commit("one");
    fork.git(&["cat-file", "-e", "HEAD"]);
    assert_eq!(fork.take().rejected, []);
    let reverted = fork.git(&["commit-tree", "-m", "old", "-p", "HEAD", "HEAD~2^{tree}"]);
    fork.git(&["update-ref", "HEAD", &reverted]);
    assert_eq!(fork.take().rejected, []);
    assert_eq!(main.git(&["rev-parse", "tine/f"]), reverted);
    let missing = "1234567890123456789012345678901234567890";
    let tree = fork.git_with_input(
        &["mktree", "--missing"],
        format!("100644 blob {missing}\tx\n").as_bytes(),
    );
    let bad = fork.git(&["commit-tree", "-m", "bad", "-p", "HEAD", &tree]);
    fork.git(&["update-ref", "refs/heads/bad", &bad]);
    let rejected = fork.take().rejected;
    assert_eq!(rejected.len(), 1, "{rejected:?}");
    assert_eq!(rejected[0].name, "heads/bad");
    assert!(!is_there(&old));
    let finished = main.try_git(&["fsck", "--full", "--strict"], b"");
    assert!(finished.status.success(), "{finished:?}");
}

#[test]
fn a_collection_in_the_main_repository_loses_nothing() {
    let main = main_repository();
    let fork = Fork::new(&main, "f");
    let repository = main.open();
    thread::scope(|scope| {
        let dir = main.dir().to_owned();
        let collecting = scope.spawn(move || {
            let deadline = Instant::now() + Duration::from_secs(4);
            while Instant::now() < deadline {
                let mut git = program::command(&dir);
                program::run(git.args(["gc", "-q", "--prune=now"]), b"").unwrap();
                // It fails if a ref names what another one has just removed.
                thread::sleep(Duration::from_millis(300));
            }
        });
        let mut n = 0;
        while !collecting.is_finished() {
            n += 1;
            fork.write("x", format!("{n}\n"));
            fork.write(&format!("dir/{n}"), format!("{n}\n"));
            fork.commit("more");
            if let Err(error) = fork.try_take(&repository) {
                println!("{error:?}");
            }
        }
        collecting.join().unwrap();
    });
    let taken = fork.take();
    assert!(!taken.is_pending);
    fork.take_all();
    assert_eq!(fork.loose_objects(), 0);
    fork.prune_main();
}

/// Each loose ref is a file that is synced, so many are packed.
#[test]
fn many_refs_are_packed_in_the_main_repository() {
    let main = main_repository();
    let fork = Fork::new(&main, "f");
    fork.git(&["tag", "-a", "-m", "annotated", "tagged"]);
    let head = fork.id_of("HEAD");
    let names: Vec<String> = (0..300)
        .map(|n| format!("refs/tags/many/{}/{n}", n % 10))
        .collect();
    let creations: Vec<String> = names
        .iter()
        .map(|name| format!("create {name} {head}\n"))
        .collect();
    fork.git_with_input(&["update-ref", "--stdin"], creations.concat().as_bytes());
    fork.take_all();
    let kept = |name: &str| format!("refs/tine/f/git/{}", name.strip_prefix("refs/").unwrap());
    for name in &names {
        assert_eq!(main.id_of(&kept(name)), head);
        assert!(!main.dir().join(".git").join(kept(name)).exists());
    }
    assert_eq!(
        main.git(&["rev-parse", "refs/tine/f/git/tags/tagged^{}"])
            .trim(),
        head.to_string()
    );
    main.git(&["fsck", "--strict"]);
    // Some move, some go, and some have a loose file by then.
    let newer = fork.commit("newer");
    fork.git(&["tag", "-f", "many/0/0", "HEAD"]);
    fork.take_all();
    let changes: Vec<String> = names
        .iter()
        .enumerate()
        .map(|(n, name)| match n % 2 {
            0 => format!("update {name} {newer}\n"),
            _ => format!("delete {name}\n"),
        })
        .collect();
    fork.git_with_input(&["update-ref", "--stdin"], changes.concat().as_bytes());
    fork.take_all();
    let listed = main.git(&[
        "for-each-ref",
        "--format=%(objectname)",
        "refs/tine/f/git/tags/many",
    ]);
    let listed: Vec<&str> = listed.lines().collect();
    assert_eq!(listed, vec![newer.to_string(); 150]);
    let repository = main.open();
    let labels = repository.labels("f").unwrap().into_iter();
    let labels: Vec<String> = labels.map(|(label, _)| label).collect();
    repository.release_all("f", &labels).unwrap();
    assert_eq!(main.git(&["for-each-ref", "refs/tine/f/"]), "");
    main.git(&["fsck", "--strict"]);
}
