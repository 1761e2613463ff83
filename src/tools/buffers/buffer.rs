//! One buffer: the person's text, the agents' texts, and their merge. A value, without I/O.

use std::mem;
use std::sync::Arc;

use super::lines;
use super::{AgentId, BufferConflict, BufferSide, PersonText, TextPatch};
use tine_merge::{Favor, TextMerge, merge_text};

/// Change that an agent made to a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentEdit {
    /// Text that the agent began from.
    pub ancestor: Arc<str>,
    /// Text that the agent made of it.
    pub agent: Arc<str>,
}

impl AgentEdit {
    fn merged_into(&self, text: &str) -> TextMerge {
        merge_text(
            self.ancestor.as_bytes(),
            text.as_bytes(),
            self.agent.as_bytes(),
        )
    }
}

/// Merged text that the editor should apply.
#[derive(Debug, Clone)]
struct Offer {
    text: Arc<str>,
    taken: Vec<Taken>,
    favored: Favored,
}

/// One agent's part of an offer.
#[derive(Debug, Clone)]
struct Taken {
    agent: AgentId,
    /// Text of the agent at the time of the offer.
    text: Arc<str>,
    /// True if the file contains that text by now.
    is_filed: bool,
}

/// Buffer fork: what one agent wrote and the person's text lacks.
#[derive(Debug, Clone)]
struct AgentFork {
    agent: AgentId,
    step: AgentEdit,
    /// The agent's text that was merged into the file, if any.
    filed: Option<Arc<str>>,
}

impl AgentFork {
    /// Returns the agent's change up to `agent_text` that the file lacks.
    fn unfiled(&self, agent_text: &Arc<str>) -> Option<AgentEdit> {
        let ancestor = self.filed.as_ref().unwrap_or(&self.step.ancestor);
        (ancestor != agent_text).then(|| AgentEdit {
            ancestor: ancestor.clone(),
            agent: agent_text.clone(),
        })
    }
}

/// Outcome of a merge: whether a side was favored in conflicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Favored {
    Yes,
    No,
}

/// Event that the editor should get.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Nothing,
    Offer(Vec<TextPatch>),
    Conflict(Vec<BufferConflict>),
}

/// One buffer.
#[derive(Debug, Clone)]
pub(super) struct Buffer {
    person: Arc<str>,
    /// Number of the person's text, incremented by each change.
    version: u64,
    saved: bool,
    /// At most one for each agent, oldest first.
    forks: Vec<AgentFork>,
    /// Agents' steps that the person's text contains and the file lacks.
    merged: Vec<(AgentId, AgentEdit)>,
    /// Pending offer for the text of this version.
    offer: Option<Offer>,
    /// True if the editor has got the current conflict.
    conflict_reported: bool,
}

impl Buffer {
    pub(super) fn new(text: Arc<str>, saved: bool, version: u64) -> Buffer {
        Buffer {
            person: text,
            version,
            saved,
            forks: Vec::new(),
            merged: Vec::new(),
            offer: None,
            conflict_reported: false,
        }
    }

    pub(super) fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn person(&self) -> PersonText {
        PersonText {
            text: self.person.clone(),
            saved: self.saved,
        }
    }

    /// Returns the text of the oldest buffer fork.
    pub(super) fn agent(&self) -> Option<Arc<str>> {
        self.forks.first().map(|fork| fork.step.agent.clone())
    }

    /// Returns the agent's own text, or else the person's.
    pub(super) fn agent_sees(&self, agent: &AgentId) -> &Arc<str> {
        self.fork_of(agent)
            .map_or(&self.person, |fork| &fork.step.agent)
    }

    fn fork_of(&self, agent: &AgentId) -> Option<&AgentFork> {
        self.forks.iter().find(|fork| fork.agent == *agent)
    }

    pub(super) fn is_forked(&self) -> bool {
        !self.forks.is_empty()
    }

    pub(super) fn is_offered(&self) -> bool {
        self.offer.is_some()
    }

    pub(super) fn has_unsaved_merge(&self) -> bool {
        !self.merged.is_empty()
    }

    /// Returns agents' steps that the file lacks, in order.
    pub(super) fn steps(&self) -> Vec<AgentEdit> {
        let merged = self.merged.iter().map(|(_, step)| step.clone());
        let forked = self
            .forks
            .iter()
            .filter_map(|fork| fork.unfiled(&fork.step.agent));
        merged.chain(forked).collect()
    }

    /// Marks those of [`Buffer::steps`] as filed whose element of `fits` is true.
    ///
    /// Forgets and returns those that the person's text contains, too.
    pub(super) fn mark_filed(&mut self, fits: &[bool]) -> Vec<(AgentId, AgentEdit)> {
        let mut fits = fits.iter().copied();
        let (filed, left) = mem::take(&mut self.merged)
            .into_iter()
            .partition(|_| fits.next().unwrap_or(false));
        self.merged = left;
        for fork in &mut self.forks {
            if fork.unfiled(&fork.step.agent).is_some() && fits.next().unwrap_or(false) {
                fork.filed = Some(fork.step.agent.clone());
                let offered = self.offer.iter_mut().flat_map(|offer| &mut offer.taken);
                for taken in offered.filter(|taken| taken.agent == fork.agent) {
                    taken.is_filed = true;
                }
            }
        }
        filed
    }

    /// Reverts [`Buffer::mark_filed`], which returned `merged`.
    pub(super) fn unmark_filed(&mut self, merged: Vec<(AgentId, AgentEdit)>) {
        let left = mem::replace(&mut self.merged, merged);
        self.merged.extend(left);
        self.forget_filed();
    }

    fn forget_filed(&mut self) {
        for fork in &mut self.forks {
            fork.filed = None;
        }
        for taken in self.offer.iter_mut().flat_map(|offer| &mut offer.taken) {
            taken.is_filed = false;
        }
    }

    /// Returns whether the change from `base` applies to the agent's view.
    pub(super) fn fits(&self, agent: &AgentId, base: &str, text: &str) -> bool {
        let sees = self.agent_sees(agent);
        merge_text(base.as_bytes(), sees.as_bytes(), text.as_bytes()).is_clean()
    }

    /// Replaces the agent's text. The agent made `text` of `base`, which it last had.
    pub(super) fn write(&mut self, agent: &AgentId, base: &Arc<str>, text: Arc<str>) {
        if text == *base || text == *self.agent_sees(agent) {
            return;
        }
        self.conflict_reported = false;
        let own = self.forks.iter_mut().find(|fork| fork.agent == *agent);
        match own {
            Some(fork) => {
                // Keeps what edits brought into its text and the agent has not seen.
                let merge =
                    merge_text(base.as_bytes(), fork.step.agent.as_bytes(), text.as_bytes());
                fork.step.agent = text_of(merge.keep_both());
            }
            None => self.forks.push(AgentFork {
                agent: agent.clone(),
                step: AgentEdit {
                    ancestor: base.clone(),
                    agent: text,
                },
                filed: None,
            }),
        }
    }

    /// Replaces the person's text.
    ///
    /// An editor with a new text has not applied the pending offer, which was for the text before.
    pub(super) fn change(&mut self, text: Arc<str>) {
        self.person = text;
        self.saved = false;
        self.version += 1;
        self.offer = None;
    }

    /// Replaces the person's text, maybe by the file's content.
    ///
    /// If `saved`, the person has dropped unsaved changes, and with them what was merged there.
    /// That becomes the agents' own again.
    pub(super) fn replace(&mut self, text: Arc<str>, saved: bool) {
        let before = self.person.clone();
        self.change(text);
        self.saved = saved;
        if !saved {
            return;
        }
        if before == self.person {
            return self.saved();
        }
        for agent in self.agents() {
            self.restore_fork(&agent);
        }
    }

    /// Returns all agents with steps that the file lacks.
    fn agents(&self) -> Vec<AgentId> {
        let merged = self.merged.iter().map(|(agent, _)| agent);
        let mut agents: Vec<AgentId> = Vec::new();
        for agent in merged.chain(self.forks.iter().map(|fork| &fork.agent)) {
            if !agents.contains(agent) {
                agents.push(agent.clone());
            }
        }
        agents
    }

    /// Turns the agent's merged steps into its buffer fork again.
    ///
    /// The fork begins at the person's text. Steps that conflict stay as they are.
    fn restore_fork(&mut self, agent: &AgentId) {
        let mut text = self.person.clone();
        let mut left = Vec::new();
        for (of, step) in &self.merged {
            match clean(&step.merged_into(&text)).filter(|_| of == agent) {
                Some(merged) => text = merged,
                None => left.push((of.clone(), step.clone())),
            }
        }
        if let Some(fork) = self.fork_of(agent) {
            match clean(&fork.step.merged_into(&text)) {
                Some(merged) => text = merged,
                None => return,
            }
        }
        self.merged = left;
        let step = AgentEdit {
            ancestor: self.person.clone(),
            agent: text,
        };
        let is_other = step.agent != step.ancestor;
        self.forks.retain(|fork| fork.agent != *agent);
        if is_other {
            self.forks.push(AgentFork {
                agent: agent.clone(),
                step,
                filed: None,
            });
        }
    }

    /// Records that the file holds exactly the person's text.
    pub(super) fn saved(&mut self) {
        self.saved = true;
        self.merged.clear();
        self.forget_filed();
    }

    /// Merges as far as that is clean. Reports a conflict once.
    pub(super) fn progress(&mut self) -> Progress {
        // The editor applies the offer, or its text moves on and the merge is repeated.
        if self.offer.is_some() {
            return Progress::Nothing;
        }
        let patches = self.offer(None);
        if self.offer.is_some() {
            return Progress::Offer(patches);
        }
        let conflicts = self.conflicts();
        if conflicts.is_empty() {
            self.conflict_reported = false;
            return Progress::Nothing;
        }
        if mem::replace(&mut self.conflict_reported, true) {
            Progress::Nothing
        } else {
            Progress::Conflict(conflicts)
        }
    }

    /// Offers the merged text and returns the patches for it.
    ///
    /// It contains the texts of all agents that merge cleanly. With `side`, it contains all texts,
    /// and conflicts are settled for that side. If there are no patches, the buffer forks end.
    pub(super) fn offer(&mut self, side: Option<BufferSide>) -> Vec<TextPatch> {
        if let Some(offer) = &self.offer {
            return lines::patches(&self.person, &offer.text);
        }
        let mut text = self.person.clone();
        let mut taken = Vec::new();
        let mut favored = Favored::No;
        for fork in &self.forks {
            let merge = fork.step.merged_into(&text);
            let settled = match (merge.is_clean(), side) {
                (true, _) => merge.settle(Favor::Ours),
                (false, None) => continue,
                (false, Some(BufferSide::Person)) => merge.settle(Favor::Ours),
                (false, Some(BufferSide::Agent)) => merge.settle(Favor::Theirs),
                (false, Some(BufferSide::Both)) => merge.keep_both(),
            };
            if !merge.is_clean() {
                favored = Favored::Yes;
            }
            text = text_of(settled);
            taken.push(Taken {
                agent: fork.agent.clone(),
                text: fork.step.agent.clone(),
                is_filed: fork.filed.as_ref() == Some(&fork.step.agent),
            });
        }
        if taken.is_empty() {
            return Vec::new();
        }
        let patches = lines::patches(&self.person, &text);
        self.offer = Some(Offer {
            text,
            taken,
            favored,
        });
        if patches.is_empty() {
            self.take();
        }
        patches
    }

    /// Records that the editor applied the offer. Returns `None` without an offer.
    pub(super) fn applied(&mut self) -> Option<Favored> {
        let favored = self.offer.as_ref()?.favored;
        self.saved = false;
        self.version += 1;
        self.take();
        Some(favored)
    }

    /// Makes the offer the person's text.
    fn take(&mut self) {
        let Some(offer) = self.offer.take() else {
            return;
        };
        let before = mem::replace(&mut self.person, offer.text.clone());
        let mut last_agent = AgentId::default();
        for taken in offer.taken {
            let Some(at) = self.forks.iter().position(|fork| fork.agent == taken.agent) else {
                continue;
            };
            let mut fork = self.forks.remove(at);
            if !taken.is_filed
                && !self.saved
                && offer.favored == Favored::No
                && let Some(step) = fork.unfiled(&taken.text)
            {
                self.add_merged(&taken.agent, step);
            }
            if fork.step.agent != taken.text {
                // The agent has written since. Its fork begins at what is merged now.
                fork.filed = fork.filed.filter(|_| taken.is_filed);
                fork.filed = fork.filed.filter(|filed| *filed != taken.text);
                fork.step.ancestor = taken.text;
                self.forks.insert(at, fork);
            }
            last_agent = taken.agent;
        }
        if !self.saved && offer.favored == Favored::Yes {
            // Text that the decision dropped does not belong to the agent any more.
            let step = AgentEdit {
                ancestor: before,
                agent: offer.text,
            };
            self.add_merged(&last_agent, step);
        }
    }

    /// Adds a merged step. Combines it with the last one of the agent if possible.
    ///
    /// A step that changes nothing is dropped.
    fn add_merged(&mut self, agent: &AgentId, step: AgentEdit) {
        if step.ancestor == step.agent {
            return;
        }
        if let Some((of, last)) = self.merged.last_mut()
            && of == agent
            && let Some(both) = clean(&step.merged_into(&last.agent))
        {
            last.agent = both;
            return;
        }
        self.merged.push((agent.clone(), step));
    }

    /// Returns the conflicts between agents' texts and the person's.
    pub(super) fn conflicts(&self) -> Vec<BufferConflict> {
        if self.offer.is_some() {
            return Vec::new();
        }
        let merges = self
            .forks
            .iter()
            .map(|fork| fork.step.merged_into(&self.person));
        merges.flat_map(|merge| conflicts(&merge)).collect()
    }
}

/// Returns the merged text if there is no conflict.
fn clean(merge: &TextMerge) -> Option<Arc<str>> {
    merge.is_clean().then(|| text_of(merge.settle(Favor::Ours)))
}

/// Converts merged lines of texts to a text.
fn text_of(bytes: Vec<u8>) -> Arc<str> {
    match String::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into(),
    }
}

fn conflicts(merge: &TextMerge) -> Vec<BufferConflict> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let hunks = merge.hunks();
    hunks
        .iter()
        .map(|hunk| BufferConflict {
            line: hunk.ours_lines.start as u64,
            ancestor: text(hunk.base),
            agent: text(hunk.theirs),
            person: text(hunk.ours),
        })
        .collect()
}
