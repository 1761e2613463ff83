//! Table of modification times that base files take from the main checkout.
//!
//! A build tool compares the times of carried build outputs, or remembers the exact times of their
//! sources. So a file that is the same in the main checkout has its time from there, and so does a
//! directory with the same names. A table holds these. Every other base node has the time at which
//! the fork was made, and is newer than all outputs. A table is immutable, named by its hash, and
//! shared by all forks made of the same base and state of the main checkout.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha1::{Digest, Sha1};

use tine_attr::{Ino, InoMap, Timestamp};

/// First bytes of each table. The last digit is the format's number.
const MAGIC: &[u8; 8] = b"tinetim1";

/// Size of an entry in bytes.
///
/// Number (8), seconds (8) and nanoseconds (4), big-endian.
const ENTRY_LEN: usize = 20;

/// Name of a table: the SHA-1 of its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TimesId([u8; 20]);

impl fmt::Display for TimesId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TimesId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl From<TimesId> for String {
    fn from(id: TimesId) -> String {
        id.to_string()
    }
}

impl TryFrom<String> for TimesId {
    type Error = String;

    fn try_from(hex: String) -> Result<TimesId, String> {
        let digits = hex.as_bytes();
        let mut id = [0; 20];
        if digits.len() != 2 * id.len() || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(format!("{hex:?} is not the name of a table of times"));
        }
        for (byte, pair) in id.iter_mut().zip(hex.as_bytes().chunks_exact(2)) {
            *byte = std::str::from_utf8(pair)
                .ok()
                .and_then(|pair| u8::from_str_radix(pair, 16).ok())
                .ok_or_else(|| format!("{hex:?} is not the name of a table of times"))?;
        }
        Ok(TimesId(id))
    }
}

/// Table of modification times by inode number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseTimes {
    id: TimesId,
    times: InoMap<Timestamp>,
}

impl BaseTimes {
    /// Builds a table. Also returns the bytes to store.
    pub fn build(mut times: Vec<(Ino, Timestamp)>) -> (BaseTimes, Vec<u8>) {
        times.sort_unstable_by_key(|(ino, _)| *ino);
        let mut bytes = Vec::with_capacity(MAGIC.len() + times.len() * ENTRY_LEN);
        bytes.extend_from_slice(MAGIC);
        for (ino, time) in &times {
            bytes.extend_from_slice(&ino.0.to_be_bytes());
            bytes.extend_from_slice(&time.secs.to_be_bytes());
            bytes.extend_from_slice(&time.nanos.to_be_bytes());
        }
        let table = BaseTimes {
            id: id_of(&bytes),
            times: times.into_iter().collect(),
        };
        (table, bytes)
    }

    /// Parses a stored table. `None` if `id` is not the name of the bytes.
    pub fn parse(id: TimesId, bytes: &[u8]) -> Option<BaseTimes> {
        if id_of(bytes) != id {
            return None;
        }
        let entries = bytes.strip_prefix(MAGIC)?.chunks_exact(ENTRY_LEN);
        let times = entries.map(|entry| {
            let (ino, time) = entry.split_first_chunk()?;
            let (secs, nanos) = time.split_first_chunk()?;
            let time = Timestamp {
                secs: i64::from_be_bytes(*secs),
                nanos: u32::from_be_bytes(nanos.try_into().ok()?),
            };
            Some((Ino(u64::from_be_bytes(*ino)), time))
        });
        Some(BaseTimes {
            id,
            times: times.collect::<Option<_>>()?,
        })
    }

    /// Returns the name of the table.
    pub fn id(&self) -> TimesId {
        self.id
    }

    /// Returns the main checkout's modification time of an equal node.
    ///
    /// `None` if the main checkout does not have the node as the base has it.
    pub fn get(&self, ino: Ino) -> Option<Timestamp> {
        self.times.get(&ino).copied()
    }
}

fn id_of(bytes: &[u8]) -> TimesId {
    TimesId(Sha1::digest(bytes).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_read_as_it_was_built_and_a_changed_one_is_not() {
        let time = |secs, nanos| Timestamp { secs, nanos };
        let times = vec![(Ino(9), time(-1, 999_999_999)), (Ino(4), time(1 << 40, 0))];
        let (table, mut bytes) = BaseTimes::build(times);
        assert_eq!(BaseTimes::parse(table.id(), &bytes), Some(table.clone()));
        assert_eq!(table.get(Ino(9)), Some(time(-1, 999_999_999)));
        assert_eq!(table.get(Ino(5)), None);
        let text = serde_json::to_string(&table.id()).unwrap();
        assert_eq!(serde_json::from_str::<TimesId>(&text).unwrap(), table.id());
        bytes[10] ^= 1;
        assert_eq!(BaseTimes::parse(table.id(), &bytes), None);
    }

    #[test]
    fn names_that_are_not_those_of_tables_are_refused() {
        for text in ["", "zz", &"é".repeat(20), &"+f".repeat(20)] {
            assert!(TimesId::try_from(text.to_owned()).is_err(), "{text}");
        }
    }
}
