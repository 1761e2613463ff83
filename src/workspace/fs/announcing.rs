//! Announcements of changes to the listener of a mount.

use std::sync::Arc;

use super::Workspace;
use crate::view_steps::ViewStep;
use tine_attr::Ino;
use tine_path::EntryName;

/// Cache invalidation that a mount must send to the kernel.
///
/// It follows a change that did not come through that mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Invalidation {
    /// The name in this directory may resolve to another node now.
    Entry {
        /// Directory that holds the name.
        parent: Ino,
        /// Name whose dentry the kernel must drop.
        name: EntryName,
    },
    /// The node's attributes or content changed.
    Node(Ino),
    /// The node's attributes changed. The content did not, or the kernel knows of its change.
    Attributes(Ino),
}

/// Completed change that did not come through the kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Announcement {
    /// Caches that the kernel must drop.
    pub invalidations: Vec<Invalidation>,
    /// Steps by which a program would have made the change.
    ///
    /// Only steps that may be watched are included.
    pub steps: Vec<ViewStep>,
}

/// Callback that receives changes that did not come through the kernel.
pub type AnnouncementListener = Arc<dyn Fn(Announcement) + Send + Sync>;

impl Workspace {
    /// Sets the callback for changes that did not come through the kernel.
    ///
    /// `None` when the mount is gone. The listener is called without any lock held and must not
    /// call back into this workspace.
    pub fn set_listener(&self, listener: Option<AnnouncementListener>) {
        *self.listener.write() = listener;
    }

    pub(crate) fn has_listener(&self) -> bool {
        self.listener.read().is_some()
    }

    /// Notifies the listener. No lock of this workspace may be held.
    pub(crate) fn announce(&self, changes: impl IntoIterator<Item = Invalidation>) {
        self.announce_steps(changes, Vec::new());
    }

    /// Notifies the listener of a change that may be watched.
    ///
    /// Like [`Workspace::announce`], with the steps that a watcher should see.
    pub(crate) fn announce_steps(
        &self,
        changes: impl IntoIterator<Item = Invalidation>,
        steps: Vec<ViewStep>,
    ) {
        let listener = self.listener.read().clone();
        if let Some(listener) = listener {
            let mut changes: Vec<Invalidation> = changes.into_iter().collect();
            let is_name = |change: &Invalidation| matches!(change, Invalidation::Entry { .. });
            if self.shows_texts() && changes.iter().any(is_name) {
                // The change may have moved another directory to the path of a shown text.
                changes.extend(self.shown_names());
            }
            if !changes.is_empty() {
                listener(Announcement {
                    invalidations: changes,
                    steps,
                });
            }
        }
    }
}
