//! Mounts that show what a person has in an editor and has not saved (`--overlay-buffers`): what
//! their workspaces are told. `docs/overlay-buffers.md` says what programs see.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;

use super::slots::{Daemon, Slot};
use tine_tools::BufferKey;
use tine_workspace::Workspace;

/// What is shown, beside the buffers themselves.
#[derive(Default)]
pub struct Overlays {
    /// The processes of each editor's session, which are to see their files as saved. Held from the
    /// look at a text to its being shown, so that the last one stays; a workspace's own locks are
    /// taken after it.
    editors: Mutex<BTreeMap<u64, Vec<u32>>>,
}

/// Shows from now on what becomes of buffers.
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

/// Shows all buffers of a fork that was mounted.
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

/// An editor has begun a session on a connection of that process.
pub fn editor_came(daemon: &Daemon, session: u64, process: u32) {
    let mut editors = daemon.overlays.editors.lock();
    // The connection is often that of a program which the editor has started.
    editors.insert(session, tine_fuse::process_and_above(process));
    tell_editors(daemon, &editors);
}

pub fn editor_left(daemon: &Daemon, session: u64) {
    let mut editors = daemon.overlays.editors.lock();
    if editors.remove(&session).is_some() {
        tell_editors(daemon, &editors);
    }
}

fn tell_editors(daemon: &Daemon, editors: &BTreeMap<u64, Vec<u32>>) {
    for slot in daemon.slots() {
        if let Some(workspace) = shown_in(&slot) {
            workspace.set_editors(processes(editors));
        }
    }
}

fn processes(editors: &BTreeMap<u64, Vec<u32>>) -> HashSet<u32> {
    editors.values().flatten().copied().collect()
}

/// The fork's workspace, where its mount shows buffers.
fn shown_in(slot: &Slot) -> Option<Arc<Workspace>> {
    let shows = slot.mount_settings()?.overlay_buffers;
    let fork = slot.open_fork().filter(|_| shows)?;
    Some(fork.workspace.clone())
}

/// Shows the text of a buffer as it is now, unless the file has it.
fn show(daemon: &Daemon, workspace: &Workspace, key: &BufferKey) {
    let person = daemon.buffers.person_text(key);
    let unsaved = person.filter(|person| !person.saved);
    workspace.show_text(&key.path, unsaved.map(|person| person.text.into()));
}
