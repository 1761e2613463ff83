//! Passes unsaved buffers to the workspaces of mounts with `--overlay-buffers`.
//!
//! `docs/overlay-buffers.md` says what programs in such a mount see.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;

use super::slots::{Daemon, Slot};
use tine_tools::BufferKey;
use tine_workspace::Workspace;

/// Editor processes, for mounts that show unsaved buffers.
///
/// The buffers themselves are in [`Daemon::buffers`].
#[derive(Default)]
pub struct Overlays {
    /// Processes of each editor's session, which see their files as saved.
    ///
    /// Held from reading a buffer's text until the workspace shows it, so that the latest text
    /// wins. A workspace's locks are taken after it.
    editors: Mutex<BTreeMap<u64, Vec<u32>>>,
}

/// Registers a listener that shows changes of buffers in their forks' mounts.
pub fn follow_buffers(daemon: &Arc<Daemon>) {
    let weak = Arc::downgrade(daemon);
    daemon.buffers.set_listener(Box::new(move |key| {
        if let (Some(daemon), Some(fork)) = (weak.upgrade(), &key.fork)
            && let Some(slot) = daemon.known_slot(fork)
            && let Some(workspace) = shown_in(&slot)
        {
            let _last = daemon.overlays.editors.lock();
            show(&daemon, &workspace, key);
        }
    }));
}

/// Shows all buffers of a fork that was just mounted.
pub fn show_all(daemon: &Daemon, slot: &Slot) {
    let Some(workspace) = shown_in(slot) else {
        return;
    };
    let editors = daemon.overlays.editors.lock();
    workspace.set_editors(processes(&editors));
    for key in daemon.buffers.of(Some(&slot.name)) {
        show(daemon, &workspace, &key);
    }
}

/// Records that an editor in `process` began a session.
pub fn editor_came(daemon: &Daemon, session: u64, process: u32) {
    let mut editors = daemon.overlays.editors.lock();
    // The connection is often that of a program that the editor started.
    editors.insert(session, tine_fuse::process_and_above(process));
    update_editors(daemon, &editors);
}

/// Records that an editor's session ended.
pub fn editor_left(daemon: &Daemon, session: u64) {
    let mut editors = daemon.overlays.editors.lock();
    if editors.remove(&session).is_some() {
        update_editors(daemon, &editors);
    }
}

fn update_editors(daemon: &Daemon, editors: &BTreeMap<u64, Vec<u32>>) {
    for slot in daemon.slots() {
        if let Some(workspace) = shown_in(&slot) {
            workspace.set_editors(processes(editors));
        }
    }
}

fn processes(editors: &BTreeMap<u64, Vec<u32>>) -> HashSet<u32> {
    editors.values().flatten().copied().collect()
}

/// Returns the fork's workspace if the fork's mount shows buffers.
fn shown_in(slot: &Slot) -> Option<Arc<Workspace>> {
    let shows = slot.mount_settings()?.overlay_buffers;
    let fork = slot.open_fork().filter(|_| shows)?;
    Some(fork.workspace.clone())
}

/// Shows a buffer's text, or the file if the text is saved.
fn show(daemon: &Daemon, workspace: &Workspace, key: &BufferKey) {
    let person = daemon.buffers.person_text(key);
    let unsaved = person.filter(|person| !person.saved);
    workspace.show_text(&key.path, unsaved.map(|person| person.text.into()));
}
