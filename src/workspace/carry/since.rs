//! The moment as of which a fork shows what is beneath carried directories.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use super::Carry;
use tine_attr::Timestamp;
use tine_path::RepoPath;
use tine_sys::beneath;

/// How long to wait for the clock to go on. It ticks 100 times a second or more; where times of
/// files are coarser than that, what changed at the same time counts as changed later.
const MAX_WAIT: Duration = Duration::from_millis(50);

/// A moment of the clock that the host takes ctimes from, told by the file `scratch`, which is made
/// for that and removed: what changed before has an earlier ctime, what changes from now on has
/// that or a later one.
pub(crate) fn moment_by(scratch: &Path) -> io::Result<Timestamp> {
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
    /// Whether the file at `path`, last changed at this time, is what the main checkout made of it
    /// after the fork was made, so that it is not there for the fork. What was chosen itself is
    /// followed, and so is the `.gitignore` of a directory that was: it may be what makes git
    /// ignore the directory.
    pub(super) fn came_later(&self, path: &RepoPath, changed: Timestamp) -> bool {
        self.since.is_some_and(|since| changed >= since)
            && !self.was_chosen(path)
            && !path.split_last().is_some_and(|(dir, name)| {
                name.as_bytes() == b".gitignore" && self.was_chosen(&dir)
            })
    }

    /// Whether the path itself was chosen.
    fn was_chosen(&self, path: &RepoPath) -> bool {
        self.is_root(path) || self.partial.values().flatten().any(|only| only == path)
    }
}
