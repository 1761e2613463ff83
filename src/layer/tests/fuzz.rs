//! The fuzzers' entries, driven by random bytes: a short run each time, ten million cases in a
//! soak.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng};

use super::super::fuzzing::{read_damaged, read_noise, read_records};
use super::super::record::testing::Bytes;
use super::*;

/// Cases of each entry, and how long a soak may take for them.
const CASES: u64 = 3_000;
const SOAK_CASES: u64 = 10_000_000;
const SOAK_PATIENCE: Duration = Duration::from_secs(600);

/// Calls `entry` with random bytes of random length, at most `max_len`. A failure prints the seed,
/// which `TINE_FUZZ_SEED` uses again, and the bytes.
fn drive(max_len: usize, entry: impl Fn(&[u8])) {
    let soaking = std::env::var_os("TINE_SOAK").is_some_and(|value| value == "1");
    let given = std::env::var("TINE_FUZZ_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seed: u64 = given.unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.map_or(0, |now| now.as_nanos() as u64)
    });
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    let mut random = TestRng::from_seed(RngAlgorithm::ChaCha, &key);
    let deadline = Instant::now() + SOAK_PATIENCE;
    let cases = if soaking { SOAK_CASES } else { CASES };
    for number in 0..cases {
        let mut bytes = vec![0; random.next_u32() as usize % (max_len + 1)];
        random.fill_bytes(&mut bytes);
        let failing = SayWhich {
            seed,
            number,
            bytes,
        };
        entry(&failing.bytes);
        if soaking && number % 1024 == 0 && Instant::now() > deadline {
            eprintln!("{number} cases in {SOAK_PATIENCE:?}");
            return;
        }
    }
}

struct SayWhich {
    seed: u64,
    number: u64,
    bytes: Vec<u8>,
}

impl Drop for SayWhich {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "TINE_FUZZ_SEED={}, case {}: {:?}",
                self.seed, self.number, self.bytes
            );
        }
    }
}

#[test]
fn a_damaged_log_shows_what_was_written_or_is_refused() {
    drive(40, read_damaged);
}

#[test]
fn noise_is_no_log() {
    drive(400, read_noise);
}

#[test]
fn records_of_noise_are_read_or_refused() {
    // Most begin as records do, so that decoding gets further.
    drive(400, |bytes| {
        let mut bytes = bytes.to_vec();
        if let [len, kind, ..] = bytes.as_mut_slice() {
            *len %= 100;
            *kind %= 3;
        }
        read_records(&bytes);
    });
}

/// A record may say that it holds more than there is memory for: only what is there is taken.
#[test]
fn huge_lengths_take_no_memory() {
    let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
    let synced = [1, 0];
    for beginning in [
        // So many changes; a node with so many attributes; a symlink, a name, a path that long.
        synced.to_vec(),
        postcard::to_stdvec(&(1u8, 0u64, [Op::PutNode(Ino(5), node(Content::Empty, 0))])).unwrap(),
        [&synced[..], &[1, 0, 5]].concat(),
        [&synced[..], &[1, 3, 1]].concat(),
    ] {
        for keep in 1..=beginning.len() {
            let mut log = Bytes::new(ID);
            log.push_body(&[&beginning[..keep], &huge].concat());
            let mut records = vec![u8::try_from(keep + huge.len()).unwrap()];
            records.extend_from_slice(&beginning[..keep]);
            records.extend_from_slice(&huge);
            read_records(&records);
            read_noise(&log.bytes);
        }
    }
}
