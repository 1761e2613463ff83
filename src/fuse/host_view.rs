//! Detection of programs that see the same files as the daemon.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::askers::status_field;
use tine_sys::namespace::mount_namespace_of;
use tine_sys::process;
use tine_workspace::Caller;

/// The files that the daemon reaches by their paths.
pub(super) struct HostView {
    uid: u32,
    /// Mount namespace and root directory; `None` if they are unknown.
    place: Option<Place>,
}

/// Mount namespace of a process, and identity of its root directory.
type Place = (u64, u64, u64);

impl HostView {
    /// Returns the view of this process.
    pub(super) fn of_daemon() -> HostView {
        HostView {
            uid: process::effective_uid(),
            place: place_of(Path::new("/proc/self")),
        }
    }

    /// Returns whether a caller reaches the same files by the same paths.
    ///
    /// False if this cannot be determined, and for a program that gave up its privileges: Landlock
    /// may restrict it, which the system tells nobody.
    pub(super) fn is_of(&self, caller: Caller) -> bool {
        let proc_dir = format!("/proc/{}", caller.thread);
        let proc_dir = Path::new(&proc_dir);
        // Thread 0 is in a PID namespace that is not below the daemon's.
        caller.thread != 0
            && caller.uid == self.uid
            && self.place.is_some()
            && place_of(proc_dir) == self.place
            && fs::read_to_string(proc_dir.join("status"))
                .is_ok_and(|status| status_field(&status, "NoNewPrivs:") == Some("0"))
    }
}

fn place_of(proc_dir: &Path) -> Option<Place> {
    let root = fs::metadata(proc_dir.join("root")).ok()?;
    Some((mount_namespace_of(proc_dir)?, root.dev(), root.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_user_and_an_unknown_thread_have_other_views() {
        let view = HostView::of_daemon();
        let me = Caller {
            thread: std::process::id(),
            ..Caller::new(view.uid, 0)
        };
        assert!(view.is_of(me));
        assert!(!view.is_of(Caller { thread: 0, ..me }));
        assert!(!view.is_of(Caller {
            uid: me.uid + 1,
            ..me
        }));
    }
}
