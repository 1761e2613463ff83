//! Agents' writes that outlive their buffer.
//!
//! They are records in the store. A record decides what becomes of the file that the buffer showed.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::BufferKey;
use super::buffer::AgentEdit;
use super::lines;
use tine_merge::{Favor, is_binary, merge_text};
use tine_path::text::repo_path;
use tine_path::{EntryName, RepoPath};
use tine_store::{ForkName, RecordKind, Store, StoreError};

/// Agents' writes to one buffer that the file lacks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentTextRecord {
    /// Number of the record, which names its file in the store.
    pub id: u64,
    /// Fork of the file. None is the main checkout.
    pub fork: Option<ForkName>,
    /// Path of the file, without symlinks on the way.
    #[serde(with = "repo_path")]
    pub path: RepoPath,
    /// True if the file existed before the first write of an agent.
    ///
    /// A file that existed and is gone was removed, and is not made again.
    #[serde(default)]
    pub existed: bool,
    /// Content of the file before the first write of an agent.
    ///
    /// The rest of the ancestors' text is what the person had not saved. None if it is unknown or
    /// there was no file.
    #[serde(default)]
    pub saved: Option<String>,
    /// Steps of the agents, in order.
    pub steps: Vec<StepRecord>,
}

/// Change that an agent made to a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepRecord {
    /// Text that the agent began from.
    pub ancestor: String,
    /// Text that the agent made of it.
    pub agent: String,
}

impl From<&AgentEdit> for StepRecord {
    fn from(step: &AgentEdit) -> StepRecord {
        StepRecord {
            ancestor: step.ancestor.to_string(),
            agent: step.agent.to_string(),
        }
    }
}

/// Result of merging a record into a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outcome {
    /// New content of the file. None if it stays the same.
    pub content: Option<Vec<u8>>,
    /// Agents' texts that conflict with the file.
    pub beside: Vec<String>,
    /// For each step, true if the file contains it afterwards.
    pub fits: Vec<bool>,
}

impl AgentTextRecord {
    pub(super) fn of(
        id: u64,
        key: &BufferKey,
        file: &FileBefore,
        steps: &[AgentEdit],
    ) -> AgentTextRecord {
        AgentTextRecord {
            id,
            fork: key.fork.clone(),
            path: key.path.clone(),
            existed: file.existed,
            saved: file.text.as_deref().map(str::to_owned),
            steps: steps.iter().map(StepRecord::from).collect(),
        }
    }

    /// Returns whether the record has exactly these steps.
    pub(super) fn is_of(&self, steps: &[AgentEdit]) -> bool {
        self.steps
            .iter()
            .cloned()
            .eq(steps.iter().map(StepRecord::from))
    }

    /// Returns the buffer that the record belongs to.
    pub fn key(&self) -> BufferKey {
        BufferKey {
            fork: self.fork.clone(),
            path: self.path.clone(),
        }
    }

    /// Merges the steps into the file's content, one after the other.
    ///
    /// `content` is None if there is no file. A step that conflicts leaves the content as it is.
    pub fn outcome(&self, content: Option<&[u8]>) -> Outcome {
        let Some(before) = content else {
            return self.outcome_without_file();
        };
        let mut outcome = Outcome::default();
        let mut now = before.to_vec();
        let saved = String::from_utf8_lossy(before).into_owned();
        for step in &self.steps {
            let merge = merge_text(step.ancestor.as_bytes(), &now, step.agent.as_bytes());
            let fits = !is_binary(&now) && merge.is_clean();
            outcome.fits.push(fits);
            if fits {
                now = merge.settle(Favor::Ours);
            } else {
                let text = self.text_beside(step, &saved, &outcome.beside);
                outcome.beside.push(text);
            }
        }
        outcome.content = (now != before).then_some(now);
        outcome
    }

    /// Returns the outcome for a path that holds no file any more.
    pub fn outcome_beside(&self) -> Outcome {
        let mut beside = Vec::new();
        for step in &self.steps {
            beside.push(self.text_beside(step, "", &beside));
        }
        Outcome {
            content: None,
            beside,
            fits: vec![false; self.steps.len()],
        }
    }

    /// Returns the agent's text of a step without the person's unsaved text.
    ///
    /// `beside` has the texts of earlier steps.
    fn text_beside(&self, step: &StepRecord, file: &str, beside: &[String]) -> String {
        let known = beside
            .iter()
            .map(String::as_str)
            .chain(self.saved.as_deref());
        let known: Vec<&str> = known.chain([file]).collect();
        lines::own(&step.ancestor, &step.agent, &known)
    }

    /// Creates a file that never existed. One that was removed stays removed.
    fn outcome_without_file(&self) -> Outcome {
        let last = self.outcome_beside().beside.pop();
        if self.existed {
            Outcome {
                content: None,
                beside: last.into_iter().collect(),
                fits: vec![false; self.steps.len()],
            }
        } else {
            Outcome {
                content: last.map(String::into_bytes),
                beside: Vec::new(),
                fits: vec![true; self.steps.len()],
            }
        }
    }
}

/// State of a buffer's file before the first write of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct FileBefore {
    pub existed: bool,
    /// None without a file, and in records of an earlier version.
    pub text: Option<Arc<str>>,
}

/// Creates, updates or removes the record of these steps; returns its id.
pub(super) fn write(
    store: &Store,
    record: Option<u64>,
    key: &BufferKey,
    file: &FileBefore,
    steps: Vec<AgentEdit>,
) -> Result<Option<u64>, StoreError> {
    let made = |id| AgentTextRecord::of(id, key, file, &steps);
    match record {
        None if steps.is_empty() => Ok(None),
        None => {
            let added =
                store.add_document(RecordKind::Buffers, |id| Ok::<_, StoreError>(made(id)))?;
            Ok(Some(added.id))
        }
        Some(id) if steps.is_empty() => {
            store.remove_document(RecordKind::Buffers, id, None)?;
            Ok(None)
        }
        Some(id) => {
            store.write_document(RecordKind::Buffers, id, &made(id))?;
            Ok(Some(id))
        }
    }
}

/// Maximum length of a file name, in bytes.
const NAME_MAX: usize = 255;

/// Returns the path beside the file for a text that conflicts.
///
/// `number` counts such texts of the file from 1. Returns `None` for the root.
pub fn beside(path: &RepoPath, number: usize) -> Option<RepoPath> {
    let (dir, name) = path.split_last()?;
    let suffix = match number {
        1 => ".agent-text".to_owned(),
        number => format!(".agent-text-{number}"),
    };
    let kept = name.as_bytes();
    let kept = kept.get(..NAME_MAX - suffix.len()).unwrap_or(kept);
    let name = EntryName::new([kept, suffix.as_bytes()].concat()).ok()?;
    Some(dir.join(&name))
}
