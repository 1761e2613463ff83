//! Arrival times of the files of a dependency tree in a fork.
//!
//! A file of a newly shown generation may be older in the main checkout than what the fork has
//! built since. Build tools would skip it. So it is shown with the time at which the fork got it. A
//! file that is the same in the next generation keeps its time.
//!
//! The store keeps arrivals beside the generations, named by a hash of their content, and forks of
//! a fork share them. They are immutable.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha1::{Digest, Sha1};

use super::difference::TreeDifference;
use super::generation::{Generation, GenerationId, read_checked, with_checksum};
use tine_attr::{Attr, Timestamp};

/// Name of the file in the directory of stored arrivals.
pub const ARRIVALS: &str = "arrivals";

/// Reference from a fork's record to stored arrivals.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrivalsRef {
    /// Name of their directory, beside the generations.
    pub id: GenerationId,
    /// The latest of the times. If the stored arrivals are lost, all files have it.
    pub latest: Timestamp,
}

/// Arrival times by path from the root of the tree.
///
/// Paths that are not in it have the times of the main checkout.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Arrivals {
    moments: HashMap<Box<[u8]>, Timestamp>,
    /// Arrival time of all other paths, if they have one.
    others: Option<Timestamp>,
}

/// Stored form: paths by time, both sorted.
#[derive(Serialize, Deserialize)]
struct StoredArrivals {
    by_moment: Vec<(Timestamp, Vec<Box<[u8]>>)>,
    others: Option<Timestamp>,
}

impl Arrivals {
    /// Returns arrivals with the same time for all paths.
    pub fn all_at(moment: Timestamp) -> Arrivals {
        Arrivals {
            moments: HashMap::new(),
            others: Some(moment),
        }
    }

    /// Returns whether all files have the times of the main checkout.
    pub fn is_empty(&self) -> bool {
        self.moments.is_empty() && self.others.is_none()
    }

    /// Returns the arrivals for `now`, shown from `moment` on.
    ///
    /// `difference` is that from the generation shown before to `now`.
    #[must_use]
    pub fn after(
        &self,
        difference: &TreeDifference,
        now: &Generation,
        moment: Timestamp,
    ) -> Arrivals {
        let stayed = self.moments.iter();
        let stayed = stayed.filter(|(path, _)| now.stat(path).is_some());
        let mut moments: HashMap<Box<[u8]>, Timestamp> = stayed
            .map(|(path, moment)| (path.clone(), *moment))
            .collect();
        moments.extend(difference.arrived.iter().map(|path| (path.clone(), moment)));
        Arrivals {
            moments,
            others: self.others,
        }
    }

    /// Returns the attributes with which the file at `path` is shown.
    pub fn shown(&self, path: &[u8], attr: Attr) -> Attr {
        match self.moments.get(path).or(self.others.as_ref()) {
            Some(moment) => Attr {
                mtime: attr.mtime.max(*moment),
                ctime: attr.ctime.max(*moment),
                ..attr
            },
            None => attr,
        }
    }

    /// Encodes the arrivals; returns the record's reference and the bytes.
    ///
    /// `None` if all files have the times of the main checkout.
    ///
    /// # Errors
    /// [`io::Error`] if they cannot be encoded.
    pub fn encode(&self) -> io::Result<Option<(ArrivalsRef, Vec<u8>)>> {
        let mut by_moment: HashMap<Timestamp, Vec<Box<[u8]>>> = HashMap::new();
        for (path, moment) in &self.moments {
            by_moment.entry(*moment).or_default().push(path.clone());
        }
        let latest = by_moment.keys().copied().chain(self.others).max();
        let Some(latest) = latest else {
            return Ok(None);
        };
        let mut by_moment: Vec<_> = by_moment.into_iter().collect();
        by_moment.sort_unstable();
        for (_, paths) in &mut by_moment {
            paths.sort_unstable();
        }
        let stored = StoredArrivals {
            by_moment,
            others: self.others,
        };
        let bytes = with_checksum(&stored)?;
        let id = GenerationId::of(Sha1::digest(&bytes).into());
        Ok(Some((ArrivalsRef { id, latest }, bytes)))
    }

    /// Reads the arrivals in `dir`.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if their checksum is wrong.
    pub fn open(dir: &Path) -> io::Result<Arrivals> {
        let stored: StoredArrivals = read_checked(&dir.join(ARRIVALS))?;
        let by_moment = stored.by_moment.into_iter();
        let moments =
            by_moment.flat_map(|(moment, paths)| paths.into_iter().map(move |path| (path, moment)));
        Ok(Arrivals {
            moments: moments.collect(),
            others: stored.others,
        })
    }
}
