//! Objects that claim to be, or become, larger than memory; packs that lead in circles; objects
//! that are not there.

use std::fs;
use std::io::Read;
use std::time::Instant;

use gix::ObjectId;

use crate::objects::{
    Packed, blob, commit, delta_number, delta_offset, hash, lose, object, pack, put, tree,
};
use crate::support::{OutputExt, TestRepo, Tine, require_fuse, soaking};
use crate::{Bystander, run};

/// Makes a fork of a tree with the file `f`, which may be refused; if not, reading `f` must fail in
/// the end, with everything else as it should be.
#[track_caller]
fn cannot_be_read(repo: &TestRepo, tine: &Tine<'_>, id: ObjectId, mode: &str) {
    let good = blob(repo, b"good");
    let top = tree(repo, &[(mode, b"f", id), ("100644", b"good", good)]);
    let start = Instant::now();
    let output = run(tine, &["new", "hostile", "--from", &commit(repo, top)]);
    if !output.status.success() {
        assert!(
            output.error_text().contains("hint:"),
            "{}",
            output.error_text()
        );
        println!(
            "refused after {:?}: {}",
            start.elapsed(),
            output.error_text()
        );
        return;
    }
    let dir = repo.root().join("repo.forks/hostile");
    assert_eq!(fs::read_to_string(dir.join("good")).unwrap(), "good");
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 3);
    let mut buffer = vec![0; 1 << 16];
    let read = fs::File::open(dir.join("f")).and_then(|mut file| file.read(&mut buffer));
    let error = read.expect_err("there is nothing to read");
    assert_eq!(
        error.raw_os_error(),
        Some(libc::EIO),
        "{mode}, {:?}: {error}",
        fs::symlink_metadata(dir.join("f"))
    );
    fs::write(dir.join("good"), "better").unwrap();
    run(tine, &["status", "hostile"]).expect_success("tine status");
    println!("read in vain after {:?}", start.elapsed());
    run(tine, &["delete", "hostile", "--force"]).expect_success("tine delete");
}

#[test]
fn headers_of_absurd_sizes() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let bystander = Bystander::new(&tine);
    for (kind, mode) in [("blob", "100644"), ("blob", "120000"), ("tree", "40000")] {
        for size in [
            "40000000",
            "4611686018427387904",
            "9223372036854775808",
            "18446744073709551615",
            "99999999999999999999",
            "-1",
            "",
            "1",
        ] {
            let whole = format!("{kind} {size}\0some content");
            let id = hash(whole.as_bytes());
            put(&repo, id, whole.as_bytes());
            cannot_be_read(&repo, &tine, id, mode);
            bystander.goes_on(&tine);
        }
    }
    let commit = format!("commit 4611686018427387904\0tree {}\n", tree(&repo, &[]));
    let id = hash(commit.as_bytes());
    put(&repo, id, commit.as_bytes());
    assert!(
        !run(&tine, &["new", "hostile", "--from", &id.to_string()])
            .status
            .success()
    );
    bystander.goes_on(&tine);
}

/// A delta that copies the first 64 KiB of its base `times` times.
fn copying_delta(base_size: u64, times: u64) -> Vec<u8> {
    let mut delta = delta_number(base_size);
    delta.extend(delta_number(times << 16));
    // Copy from offset 0; a length that is not given is 64 KiB.
    delta.extend(std::iter::repeat_n(0x80, times as usize));
    delta
}

fn packed_blob(content: &[u8]) -> Packed {
    Packed::whole("blob", content.to_vec())
}

fn packed_delta(id: ObjectId, on: ObjectId, delta: Vec<u8>) -> Packed {
    Packed {
        id,
        kind: 7,
        size: delta.len() as u64,
        base: on.as_bytes().to_vec(),
        content: delta,
    }
}

#[test]
fn a_delta_that_becomes_gibibytes() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let bystander = Bystander::new(&tine);
    let base = packed_blob(&[b'x'; 1 << 16]);
    for (fill, mode, times) in [
        (0xa1, "100644", 1 << 13),
        (0xa2, "40000", 1 << 13),
        (0xa3, "120000", 1 << 13),
        (0xa4, "100644", 1 << 16),
    ] {
        // 512 MiB, then 4 GiB; the whole of the larger one only where there is time, as git
        // inflates it, too.
        if times > 1 << 13 && !soaking() {
            continue;
        }
        let id = ObjectId::from_bytes_or_panic(&[fill; 20]);
        pack(
            &repo,
            &[
                packed_blob(&[b'x'; 1 << 16]),
                packed_delta(id, base.id, copying_delta(1 << 16, times)),
            ],
        );
        cannot_be_read(&repo, &tine, id, mode);
        bystander.goes_on(&tine);
    }
}

#[test]
fn deltas_that_lead_in_circles() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let bystander = Bystander::new(&tine);
    let id = |fill: u8| ObjectId::from_bytes_or_panic(&[fill; 20]);
    let delta = || copying_delta(1 << 16, 1);
    pack(
        &repo,
        &[
            packed_delta(id(0xb1), id(0xb1), delta()),
            packed_delta(id(0xb2), id(0xb3), delta()),
            packed_delta(id(0xb3), id(0xb2), delta()),
            packed_delta(id(0xb4), id(0xb5), delta()),
        ],
    );
    for fill in [0xb1, 0xb2, 0xb4] {
        for mode in ["100644", "40000", "120000"] {
            cannot_be_read(&repo, &tine, id(fill), mode);
            bystander.goes_on(&tine);
        }
    }
}

#[test]
fn a_chain_of_five_thousand_deltas_is_read() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let bystander = Bystander::new(&tine);
    let content = |number: u32| format!("{number:08}").into_bytes();
    let mut objects = vec![packed_blob(&content(0))];
    for number in 1..=5000u32 {
        // Nothing is copied: eight new bytes on a base of eight.
        let mut delta = vec![8, 8, 8];
        delta.extend(content(number));
        let before = objects.last().expect("there is a first");
        // Header, distance and stream of the one before; the first has no distance.
        let len = 1 + before.base.len() + crate::objects::zlib(&before.content).len();
        let mut whole = b"blob 8\0".to_vec();
        whole.extend(content(number));
        objects.push(Packed {
            id: hash(&whole),
            kind: 6,
            size: delta.len() as u64,
            base: delta_offset(len as u64),
            content: delta,
        });
    }
    let last = objects.last().expect("there is a last").id;
    pack(&repo, &objects);
    assert_eq!(
        repo.git(&["cat-file", "blob", &last.to_string()]),
        "00005000"
    );
    let top = tree(&repo, &[("100644", b"f", last)]);
    run(&tine, &["new", "chain", "--from", &commit(&repo, top)]).expect_success("tine new");
    let dir = repo.root().join("repo.forks/chain");
    assert_eq!(fs::read_to_string(dir.join("f")).unwrap(), "00005000");
    bystander.goes_on(&tine);
}

#[test]
fn objects_that_are_damaged_or_not_there() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let bystander = Bystander::new(&tine);
    for (kind, mode) in [("blob", "100644"), ("blob", "120000"), ("tree", "40000")] {
        let gone = object(&repo, kind, format!("gone {mode}").as_bytes());
        lose(&repo, gone);
        cannot_be_read(&repo, &tine, gone, mode);
        let damaged = object(&repo, kind, format!("damaged {mode}").as_bytes());
        put(
            &repo,
            damaged,
            format!("{kind} 14\0another {mode}").as_bytes(),
        );
        cannot_be_read(&repo, &tine, damaged, mode);
        let cut = object(&repo, kind, format!("cut {mode}").as_bytes());
        put(&repo, cut, format!("{kind} 10").as_bytes());
        cannot_be_read(&repo, &tine, cut, mode);
    }
    bystander.goes_on(&tine);
}
