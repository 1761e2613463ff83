//! Open buffers of editors, and what agents have written to them.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::path::RepoPath;
use crate::workspace::ForkName;

/// Which file a buffer shows.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct BufferKey {
    /// In whose mount; none: in the main checkout.
    pub fork: Option<ForkName>,
    /// Without symlinks on the way.
    pub path: RepoPath,
}

/// Lines of a buffer that become others, as an editor applies it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextPatch {
    /// From 0.
    pub first_line: u64,
    /// How many lines go.
    pub lines: u64,
    /// What comes there: whole lines, with their ends.
    pub text: String,
}

/// A place that the agent and the person changed in different ways.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BufferConflict {
    /// In the person's text, from 1.
    pub line: u64,
    pub ancestor: String,
    pub agent: String,
    pub person: String,
}

/// All open buffers.
#[derive(Debug, Default)]
pub struct Buffers {
    open: Mutex<BTreeMap<BufferKey, Buffer>>,
}

#[derive(Debug)]
struct Buffer {
    text: String,
    agent: Option<AgentText>,
}

#[derive(Debug)]
struct AgentText {
    text: String,
}

impl Buffers {
    /// What an agent sees at `key`, where a buffer is open there: its own text, or the person's.
    pub fn read(&self, key: &BufferKey) -> Option<String> {
        let open = self.open.lock();
        let buffer = open.get(key)?;
        Some(
            buffer
                .agent
                .as_ref()
                .map_or(&buffer.text, |agent| &agent.text)
                .clone(),
        )
    }

    /// Lets the agent's text of the buffer be what `edit` makes of what the agent sees; `None` where no buffer is open there.
    pub fn write<E>(
        &self,
        key: &BufferKey,
        edit: impl FnOnce(&str) -> Result<String, E>,
    ) -> Option<Result<(), E>> {
        let mut open = self.open.lock();
        let buffer = open.get_mut(key)?;
        let seen = buffer.agent.as_ref().map_or(&buffer.text, |agent| &agent.text);
        Some(edit(seen).map(|text| buffer.agent = Some(AgentText { text })))
    }

    /// Buffers of the fork, or of the main checkout.
    pub fn of(&self, fork: Option<&ForkName>) -> Vec<RepoPath> {
        let open = self.open.lock();
        open.keys()
            .filter(|key| key.fork.as_ref() == fork)
            .map(|key| key.path.clone())
            .collect()
    }
}
