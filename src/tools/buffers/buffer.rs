//! One buffer: the person's text, the agent's, and how one comes into the other. A value, without
//! I/O.

use std::mem;
use std::sync::Arc;

use super::lines;
use super::{AgentId, BufferConflict, BufferSide, PersonText, TextPatch};
use tine_merge::{Favor, TextMerge, merge_text};

/// What an agent made of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentEdit {
    pub ancestor: Arc<str>,
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

/// A text that the editor was told to have in the place of the one that it has.
#[derive(Debug, Clone)]
struct Offer {
    text: Arc<str>,
    taken: Vec<Taken>,
    favored: Favored,
}

/// What an offer has of one agent.
#[derive(Debug, Clone)]
struct Taken {
    agent: AgentId,
    /// What the agent had then.
    text: Arc<str>,
    /// Whether the file has it by now.
    is_filed: bool,
}

/// What one agent wrote and the person's text does not have.
#[derive(Debug, Clone)]
struct AgentFork {
    agent: AgentId,
    step: AgentEdit,
    /// The agent's text that was brought into the file, if any was.
    filed: Option<Arc<str>>,
}

impl AgentFork {
    /// What the agent did that no file has, up to its text `agent_text`.
    fn unfiled(&self, agent_text: &Arc<str>) -> Option<AgentEdit> {
        let ancestor = self.filed.as_ref().unwrap_or(&self.step.ancestor);
        (ancestor != agent_text).then(|| AgentEdit {
            ancestor: ancestor.clone(),
            agent: agent_text.clone(),
        })
    }
}

/// Whether conflicts were settled by a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Favored {
    Yes,
    No,
}

/// What is to be told to the editor.
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
    /// How many steps the person's text has made.
    version: u64,
    saved: bool,
    /// At most one of an agent, in the order in which they began.
    forks: Vec<AgentFork>,
    /// What agents wrote, the person's text has and no file yet.
    merged: Vec<(AgentId, AgentEdit)>,
    /// For the text of this version; at most one, which the editor has seen, or will see.
    offer: Option<Offer>,
    /// Whether the editor was told that the agent's text does not fit.
    format_conflict: bool,
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
            format_conflict: false,
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

    /// The text of the first agent that has its own.
    pub(super) fn agent(&self) -> Option<Arc<str>> {
        self.forks.first().map(|fork| fork.step.agent.clone())
    }

    /// The agent's own text where it has one, else the person's.
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

    /// What agents did that no file has yet, one thing after the other.
    pub(super) fn steps(&self) -> Vec<AgentEdit> {
        let merged = self.merged.iter().map(|(_, step)| step.clone());
        let forked = self
            .forks
            .iter()
            .filter_map(|fork| fork.unfiled(&fork.step.agent));
        merged.chain(forked).collect()
    }

    /// Notes that the file has those of [`Buffer::steps`] for which `fits` holds, in their order;
    /// those that the person's text has, too, are forgotten, and come back.
    pub(super) fn filed(&mut self, fits: &[bool]) -> Vec<(AgentId, AgentEdit)> {
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

    /// The file has nothing any more of what agents wrote; `merged` is what the person's text has
    /// of it.
    pub(super) fn unfile(&mut self, merged: Vec<(AgentId, AgentEdit)>) {
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

    /// Whether what leads from `base` to `text` can be done to what the agent sees.
    pub(super) fn fits(&self, agent: &AgentId, base: &str, text: &str) -> bool {
        let sees = self.agent_sees(agent);
        merge_text(base.as_bytes(), sees.as_bytes(), text.as_bytes()).is_clean()
    }

    /// The agent has made `text` of `base`, which is what it last had.
    pub(super) fn write(&mut self, agent: &AgentId, base: &Arc<str>, text: Arc<str>) {
        if text == *base || text == *self.agent_sees(agent) {
            return;
        }
        self.format_conflict = false;
        let own = self.forks.iter_mut().find(|fork| fork.agent == *agent);
        match own {
            Some(fork) => {
                // What came into its text by edits, and it has not seen, stays.
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

    /// The person has a new text. An editor that has one did not take what it was offered for the
    /// one before.
    pub(super) fn change(&mut self, text: Arc<str>) {
        self.person = text;
        self.saved = false;
        self.version += 1;
        self.offer = None;
    }

    /// As [`Buffer::change`], with a text that may be the file's: then what the person did not save
    /// was given up, and with it what was merged there. That is the agent's own again.
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
            self.begin_anew(&agent);
        }
    }

    /// All that wrote something that no file has.
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

    /// Lets what the agent did be its own again, over the person's text; what does not fit stays
    /// what it is.
    fn begin_anew(&mut self, agent: &AgentId) {
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

    /// The file has the person's text, and nothing else.
    pub(super) fn saved(&mut self) {
        self.saved = true;
        self.merged.clear();
        self.forget_filed();
    }

    /// Merges as far as that is clean. A conflict is told once.
    pub(super) fn progress(&mut self) -> Progress {
        // What was offered is either taken, or the text has moved on: then it is merged again.
        if self.offer.is_some() {
            return Progress::Nothing;
        }
        let patches = self.offer(None);
        if self.offer.is_some() {
            return Progress::Offer(patches);
        }
        let conflicts = self.conflicts();
        if conflicts.is_empty() {
            self.format_conflict = false;
            return Progress::Nothing;
        }
        match mem::replace(&mut self.format_conflict, true) {
            true => Progress::Nothing,
            false => Progress::Conflict(conflicts),
        }
    }

    /// Offers the merged text: of each agent what fits, or all, with conflicts settled for `side`.
    /// What is to be changed; where nothing is, the agents' texts end.
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

    /// The editor has the text that it was offered; `None` where none was.
    pub(super) fn applied(&mut self) -> Option<Favored> {
        let favored = self.offer.as_ref()?.favored;
        self.saved = false;
        self.version += 1;
        self.take();
        Some(favored)
    }

    /// The person's text becomes what was offered.
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
                // The agent went on from what is merged now.
                fork.filed = fork.filed.filter(|_| taken.is_filed);
                fork.filed = fork.filed.filter(|filed| *filed != taken.text);
                fork.step.ancestor = taken.text;
                self.forks.insert(at, fork);
            }
            last_agent = taken.agent;
        }
        if !self.saved && offer.favored == Favored::Yes {
            // What was decided against is not the agent's any more.
            let step = AgentEdit {
                ancestor: before,
                agent: offer.text,
            };
            self.add_merged(&last_agent, step);
        }
    }

    /// Makes two steps of one agent one where they fit. One that changes nothing is none.
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

    /// Where agents' texts and the person's exclude each other.
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

/// The merged text where nothing is in conflict.
fn clean(merge: &TextMerge) -> Option<Arc<str>> {
    merge.is_clean().then(|| text_of(merge.settle(Favor::Ours)))
}

/// Lines of texts, one after the other, are a text.
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
