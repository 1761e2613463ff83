//! One buffer: the person's text, the agent's, and how one comes into the other. A value, without I/O.

use std::mem;
use std::sync::Arc;

use super::lines;
use super::{BufferConflict, BufferSide, PersonText, TextPatch};
use crate::merge::{Favor, TextMerge, merge_text};

/// What an agent made of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub ancestor: Arc<str>,
    pub agent: Arc<str>,
}

impl Step {
    fn merged_into(&self, text: &str) -> TextMerge {
        merge_text(self.ancestor.as_bytes(), text.as_bytes(), self.agent.as_bytes())
    }
}

/// A text that the editor was told to have in the place of the one that it has.
#[derive(Debug, Clone)]
struct Offer {
    text: Arc<str>,
    /// What the agent had then, all of which is in `text`.
    agent: Arc<str>,
    favored: Favored,
}

/// Whether conflicts were settled by a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Favored {
    Yes,
    No,
}

/// What is to be told to the editor.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    Nothing,
    Offer(Vec<TextPatch>),
    Conflict(Vec<BufferConflict>),
}

/// One buffer.
#[derive(Debug, Clone)]
pub struct Buffer {
    person: Arc<str>,
    /// How many steps the person's text has made.
    version: u64,
    saved: bool,
    /// What the agent wrote and the person's text does not have.
    fork: Option<Step>,
    /// What the agent wrote, the person's text has and no file yet.
    merged: Vec<Step>,
    /// For the text of this version; at most one, which the editor has seen, or will see.
    offer: Option<Offer>,
    /// Whether the editor was told that the agent's text does not fit.
    told_conflict: bool,
}

impl Buffer {
    pub fn new(text: Arc<str>, saved: bool) -> Buffer {
        Buffer {
            person: text,
            version: 0,
            saved,
            fork: None,
            merged: Vec::new(),
            offer: None,
            told_conflict: false,
        }
    }

    pub fn version(&self) -> u64 {
        self.version
    }

    pub fn person(&self) -> PersonText {
        PersonText {
            text: self.person.clone(),
            saved: self.saved,
        }
    }

    /// The agent's own text.
    pub fn agent(&self) -> Option<Arc<str>> {
        self.fork.as_ref().map(|fork| fork.agent.clone())
    }

    pub fn agent_sees(&self) -> &str {
        self.fork.as_ref().map_or(&self.person, |fork| &fork.agent)
    }

    pub fn is_forked(&self) -> bool {
        self.fork.is_some()
    }

    pub fn is_offered(&self) -> bool {
        self.offer.is_some()
    }

    pub fn has_unsaved_merge(&self) -> bool {
        !self.merged.is_empty()
    }

    /// What the agent did that no file has yet, one thing after the other.
    pub fn steps(&self) -> Vec<Step> {
        self.merged.iter().chain(&self.fork).cloned().collect()
    }

    /// The agent has a new text.
    pub fn write(&mut self, text: Arc<str>) {
        if *text == *self.agent_sees() {
            return;
        }
        self.told_conflict = false;
        match &mut self.fork {
            Some(fork) => fork.agent = text,
            None => {
                self.fork = Some(Step {
                    ancestor: self.person.clone(),
                    agent: text,
                });
            }
        }
    }

    /// The person has a new text. An editor that has one did not take what it was offered for the one before.
    pub fn change(&mut self, text: Arc<str>) {
        self.person = text;
        self.saved = false;
        self.version += 1;
        self.offer = None;
    }

    /// As [`Buffer::change`], with a text that may be the file's: then what the person did not save was given up, and with it
    /// what was merged there. That is the agent's own again.
    pub fn replace(&mut self, text: Arc<str>, saved: bool) {
        let before = self.person.clone();
        self.change(text);
        self.saved = saved;
        if !saved {
            return;
        }
        if before == self.person {
            return self.saved();
        }
        let mut agent = self.person.clone();
        let mut left = Vec::new();
        for step in &self.merged {
            match clean(&step.merged_into(&agent)) {
                Some(text) => agent = text,
                None => left.push(step.clone()),
            }
        }
        if let Some(fork) = &self.fork {
            match clean(&fork.merged_into(&agent)) {
                Some(text) => agent = text,
                None => return,
            }
        }
        self.merged = left;
        self.fork = (agent != self.person).then(|| Step {
            ancestor: self.person.clone(),
            agent,
        });
    }

    /// The file has the person's text.
    pub fn saved(&mut self) {
        self.saved = true;
        self.merged.clear();
    }

    /// Merges as far as that is clean. A conflict is told once.
    pub fn progress(&mut self) -> Progress {
        // What was offered is either taken, or the text has moved on: then it is merged again.
        if self.offer.is_some() {
            return Progress::Nothing;
        }
        let Some(fork) = &self.fork else {
            return Progress::Nothing;
        };
        let merge = fork.merged_into(&self.person);
        if !merge.is_clean() {
            return match mem::replace(&mut self.told_conflict, true) {
                true => Progress::Nothing,
                false => Progress::Conflict(conflicts(&merge)),
            };
        }
        self.told_conflict = false;
        let patches = self.offer(None);
        match self.offer {
            Some(_) => Progress::Offer(patches),
            None => Progress::Nothing,
        }
    }

    /// Offers the merged text, its conflicts settled for `side`; what is to be changed. Where nothing is, the agent's text ends.
    pub fn offer(&mut self, side: Option<BufferSide>) -> Vec<TextPatch> {
        let Some(fork) = &self.fork else {
            return Vec::new();
        };
        if let Some(offer) = &self.offer {
            return lines::patches(&self.person, &offer.text);
        }
        let merge = fork.merged_into(&self.person);
        let favored = match merge.is_clean() {
            true => Favored::No,
            false => Favored::Yes,
        };
        let favor = match side {
            None | Some(BufferSide::Person) => Favor::Ours,
            Some(BufferSide::Agent) => Favor::Theirs,
            Some(BufferSide::Both) => Favor::Union,
        };
        let text = text_of(merge.settle(favor));
        let patches = lines::patches(&self.person, &text);
        self.offer = Some(Offer {
            text,
            agent: fork.agent.clone(),
            favored,
        });
        if patches.is_empty() {
            self.take();
        }
        patches
    }

    /// The editor has the text that it was offered; `None` where none was.
    pub fn applied(&mut self) -> Option<Favored> {
        let favored = self.offer.as_ref()?.favored;
        self.saved = false;
        self.version += 1;
        self.take();
        Some(favored)
    }

    /// The person's text becomes what was offered.
    fn take(&mut self) {
        let (Some(offer), Some(fork)) = (self.offer.take(), self.fork.take()) else {
            return;
        };
        let before = mem::replace(&mut self.person, offer.text.clone());
        if fork.agent != offer.agent {
            // The agent went on from what is merged now.
            self.fork = Some(Step {
                ancestor: offer.agent.clone(),
                agent: fork.agent,
            });
        }
        if self.saved {
            return;
        }
        self.add_merged(match offer.favored {
            Favored::No => Step {
                ancestor: fork.ancestor,
                agent: offer.agent,
            },
            // What was decided against is not the agent's any more.
            Favored::Yes => Step {
                ancestor: before,
                agent: offer.text,
            },
        });
    }

    /// Makes two steps one where they fit.
    fn add_merged(&mut self, step: Step) {
        if let Some(last) = self.merged.last_mut() {
            if let Some(both) = clean(&step.merged_into(&last.agent)) {
                last.agent = both;
                return;
            }
        }
        self.merged.push(step);
    }

    /// Where the agent's text and the person's exclude each other.
    pub fn conflicts(&self) -> Vec<BufferConflict> {
        let fork = self.fork.as_ref().filter(|_| self.offer.is_none());
        fork.map_or_else(Vec::new, |fork| conflicts(&fork.merged_into(&self.person)))
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
