//! Texts that each agent last had of each file.
//!
//! An agent has a text that a tool returned to it or that it wrote. That text is the ancestor of
//! what the agent writes next.
//!
//! The texts are in memory, up to [`MAX_BYTES`]; the least recently used ones are evicted. An agent
//! whose text is unknown must read the file again before it writes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{AgentId, BufferKey};
use crate::edit::EDIT_MAX;
use tine_merge::{Favor, merge_text};

/// Maximum size of all texts together, in bytes.
const MAX_BYTES: usize = 64 << 20;

#[derive(Default)]
pub(super) struct SeenTexts {
    texts: BTreeMap<(BufferKey, AgentId), Seen>,
    /// Keys by time of use, oldest first.
    uses: BTreeMap<u64, (BufferKey, AgentId)>,
    last_use: u64,
    bytes: usize,
}

struct Seen {
    text: Arc<str>,
    used: u64,
}

impl SeenTexts {
    pub(super) fn get(&self, agent: &AgentId, key: &BufferKey) -> Option<Arc<str>> {
        let seen = self.texts.get(&(key.clone(), agent.clone()))?;
        Some(seen.text.clone())
    }

    pub(super) fn insert(&mut self, agent: &AgentId, key: &BufferKey, text: Arc<str>) {
        let of = (key.clone(), agent.clone());
        self.remove(&of);
        if text.len() as u64 > EDIT_MAX {
            return;
        }
        self.last_use += 1;
        self.bytes += text.len();
        self.uses.insert(self.last_use, of.clone());
        let used = self.last_use;
        self.texts.insert(of, Seen { text, used });
        while self.bytes > MAX_BYTES
            && let Some((_, oldest)) = self.uses.pop_first()
        {
            self.remove(&oldest);
        }
    }

    /// Applies an agent's edit to the text that it had.
    ///
    /// The edit made `after` from `before`. `before` may be newer than the text that the agent had;
    /// then the agent has not seen the rest of it.
    pub(super) fn edit(&mut self, agent: &AgentId, key: &BufferKey, before: &str, after: &str) {
        let Some(had) = self.get(agent, key) else {
            return;
        };
        let merge = merge_text(before.as_bytes(), had.as_bytes(), after.as_bytes());
        if merge.is_clean()
            && let Ok(text) = String::from_utf8(merge.settle(Favor::Ours))
        {
            self.insert(agent, key, text.into());
        }
    }

    /// Removes the texts of a file, or moves them to `to`.
    pub(super) fn rename(&mut self, key: &BufferKey, to: Option<&BufferKey>) {
        let of = self.texts.keys().filter(|(of, _)| of == key);
        for of in of.cloned().collect::<Vec<_>>() {
            let text = self.remove(&of);
            if let (Some(text), Some(to)) = (text, to) {
                self.insert(&of.1, to, text);
            }
        }
    }

    fn remove(&mut self, of: &(BufferKey, AgentId)) -> Option<Arc<str>> {
        let seen = self.texts.remove(of)?;
        self.uses.remove(&seen.used);
        self.bytes -= seen.text.len();
        Some(seen.text)
    }
}
