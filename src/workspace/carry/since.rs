//! Time from which changes below carried directories are hidden.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use super::Carry;
use tine_attr::Timestamp;
use tine_path::RepoPath;
use tine_sys::beneath;

/// Longest wait for the clock to tick.
///
/// It ticks 100 times a second or more. If file times are coarser, a file changed in the same tick
/// counts as changed later.
const MAX_WAIT: Duration = Duration::from_millis(50);

/// Returns the current time of the clock behind the host's ctimes.
///
/// The time is read from the file `scratch`, which is made for that and removed. Earlier changes
/// have an earlier ctime, later ones the same or a later ctime. Blocks for up to 50 ms.
///
/// # Errors
/// [`io::Error`] if the file exists, or cannot be made, changed or removed.
pub fn moment_by(scratch: &Path) -> io::Result<Timestamp> {
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(scratch)?;
    let moment = next_moment(&file);
    std::fs::remove_file(scratch)?;
    moment
}

fn next_moment(file: &File) -> io::Result<Timestamp> {
    let began = Instant::now();
    let first = beneath::stat(file)?.ctime;
    loop {
        file.set_modified(SystemTime::now())?;
        let now = beneath::stat(file)?.ctime;
        if now > first || began.elapsed() > MAX_WAIT {
            return Ok(now);
        }
        thread::sleep(Duration::from_millis(1));
    }
}

impl Carry {
    /// Returns whether a file changed too late for the fork.
    ///
    /// `changed` is the time of its last change in the main checkout. Paths that were chosen
    /// themselves are always followed, and so is the `.gitignore` of a chosen directory: it may be
    /// what makes git ignore the directory.
    pub(super) fn came_later(&self, path: &RepoPath, changed: Timestamp) -> bool {
        self.since.is_some_and(|since| changed >= since)
            && !self.was_chosen(path)
            && !path.split_last().is_some_and(|(dir, name)| {
                name.as_bytes() == b".gitignore" && self.was_chosen(&dir)
            })
    }

    /// Returns whether the path itself was chosen.
    fn was_chosen(&self, path: &RepoPath) -> bool {
        self.is_root(path) || self.partial.values().flatten().any(|only| only == path)
    }
}
