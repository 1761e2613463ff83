//! What agents wrote to buffers, where it outlives them: records in the store, and what becomes of
//! a file by one.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::BufferKey;
use super::buffer::AgentEdit;
use super::lines;
use tine_merge::{Favor, is_binary, merge_text};
use tine_path::text::repo_path;
use tine_path::{EntryName, RepoPath};
use tine_workspace::store::RecordKind;
use tine_workspace::{ForkName, Store, StoreError};

/// What agents wrote to one buffer and no file has yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentTextRecord {
    pub id: u64,
    /// None: the main checkout.
    pub fork: Option<ForkName>,
    #[serde(with = "repo_path")]
    pub path: RepoPath,
    /// Whether the file was there when an agent wrote first: then one that is gone was removed, and
    /// is not made again.
    #[serde(default)]
    pub existed: bool,
    /// What the file held when an agent wrote first: what else the ancestors have, its person had
    /// not saved.
    #[serde(default)]
    pub saved: Option<String>,
    /// One after the other.
    pub steps: Vec<KeptStep>,
}

/// What an agent made of a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptStep {
    pub ancestor: String,
    pub agent: String,
}

impl From<&AgentEdit> for KeptStep {
    fn from(step: &AgentEdit) -> KeptStep {
        KeptStep {
            ancestor: step.ancestor.to_string(),
            agent: step.agent.to_string(),
        }
    }
}

/// What becomes of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outcome {
    /// Its new content, where that is another.
    pub content: Option<Vec<u8>>,
    /// Texts of the agent's that do not fit it.
    pub beside: Vec<String>,
    /// Of each step, whether the file has it then.
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
            steps: steps.iter().map(KeptStep::from).collect(),
        }
    }

    /// Whether it says these steps.
    pub(super) fn is_of(&self, steps: &[AgentEdit]) -> bool {
        self.steps
            .iter()
            .cloned()
            .eq(steps.iter().map(KeptStep::from))
    }

    pub fn key(&self) -> BufferKey {
        BufferKey {
            fork: self.fork.clone(),
            path: self.path.clone(),
        }
    }

    /// What becomes of the file that holds `content` now; `None` where there is none. One thing
    /// that the agent did after the other is merged into it; what excludes something there leaves
    /// it as it is.
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
            match fits {
                true => now = merge.settle(Favor::Ours),
                false => {
                    let text = self.text_beside(step, &saved, &outcome.beside);
                    outcome.beside.push(text);
                }
            }
        }
        outcome.content = (now != before).then_some(now);
        outcome
    }

    /// What becomes of a path that holds no file any more.
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

    /// The agent's text of a step without what only the person's unsaved text has. `beside` are
    /// those of earlier steps.
    fn text_beside(&self, step: &KeptStep, file: &str, beside: &[String]) -> String {
        let known = beside
            .iter()
            .map(String::as_str)
            .chain(self.saved.as_deref());
        let known: Vec<&str> = known.chain([file]).collect();
        lines::own(&step.ancestor, &step.agent, &known)
    }

    /// A file that was never there is made. One that was removed since stays so.
    fn outcome_without_file(&self) -> Outcome {
        let last = self.outcome_beside().beside.pop();
        match self.existed {
            false => Outcome {
                content: last.map(String::into_bytes),
                beside: Vec::new(),
                fits: vec![true; self.steps.len()],
            },
            true => Outcome {
                content: None,
                beside: last.into_iter().collect(),
                fits: vec![false; self.steps.len()],
            },
        }
    }
}

/// The file of a buffer as it was when an agent wrote first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct FileBefore {
    pub existed: bool,
    /// Unknown where an earlier version noted it.
    pub text: Option<Arc<str>>,
}

/// Brings the record of that number to these steps, makes one or removes it; its number.
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

/// The longest name that file systems take, in bytes.
const NAME_MAX: usize = 255;

/// Where the `number`th text goes, from 1, that does not fit the file at `path`: beside it. `None`
/// for the root.
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
