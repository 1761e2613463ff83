//! When the files of a dependency tree became what a fork shows of them.
//!
//! A file that is taken up may be older in the main checkout than what the fork has built since.
//! Build tools would skip it: so it is shown as of the moment at which the fork got it. A file that
//! stays the same when another generation is taken up keeps the time that it had.
//!
//! The store keeps arrivals beside the generations, named by what is in them, and forks of a fork
//! share them. They never change.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha1::{Digest, Sha1};

use super::difference::TreeDifference;
use super::generation::{Generation, GenerationId, read_checked, with_checksum};
use tine_attr::{Attr, Timestamp};

/// The file in the directory of stored arrivals.
pub const ARRIVALS: &str = "arrivals";

/// What a fork's record says of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrivalsRef {
    /// The directory beside the generations.
    pub id: GenerationId,
    /// The latest of them: where they are lost all files have it.
    pub latest: Timestamp,
}

/// The moments, by path from the root of the tree. Paths that are not there have the times of the
/// main checkout.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Arrivals {
    moments: HashMap<Box<[u8]>, Timestamp>,
    /// Of all other paths.
    others: Option<Timestamp>,
}

/// As it is stored: paths by moment, both sorted.
#[derive(Serialize, Deserialize)]
struct StoredArrivals {
    by_moment: Vec<(Timestamp, Vec<Box<[u8]>>)>,
    others: Option<Timestamp>,
}

impl Arrivals {
    /// Those of which only the latest is known.
    pub fn all_at(moment: Timestamp) -> Arrivals {
        Arrivals {
            moments: HashMap::new(),
            others: Some(moment),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.moments.is_empty() && self.others.is_none()
    }

    /// Those of `now`, which takes the place of another generation at `moment`.
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

    /// The attributes with which what is at `path` is shown.
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

    /// What is stored, and how a record names it. `None` where all files have the times of the main
    /// checkout.
    ///
    /// # Errors
    /// Where it cannot be encoded.
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

    /// Reads those in `dir`.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] where they are not as they were written.
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
