//! Runs sequences: each item builds on the outcome of the previous one.

mod patches;

use self::patches::ThreeWay;
use super::{
    Emptied, ItemDone, ItemResult, RunOptions, Sequence, SequenceItem, SequenceOutcome, Stopped,
};
use crate::ChangeError;
use crate::going_back::at_paths;
use crate::merge::{FastForward, MergeSpec, Planned, Tip, plan};
use crate::review::{ConflictRecord, ReviewRecord, damaged, parse_id};
use tine_git::commit::clean_message;
use tine_git::{CommitContent, CommitSpec, Identity, Message, ObjectId, Repository, program};
use tine_merge::{Conflict, MergeInput, MergeOptions, MergeOutcome, merge};
use tine_path::RepoPath;
use tine_store::Store;

/// Runs `sequence` on the tip `ours`.
///
/// `view` is the tree with its uncommitted changes; `None` if the caller does not need the view.
///
/// # Errors
/// [`ChangeError::EmptyPick`] for a commit that changes nothing, [`ChangeError::Git`] if objects
/// cannot be read or written, [`ChangeError::Store`] if the review is damaged.
pub fn run(
    store: &Store,
    repository: &Repository,
    sequence: &Sequence,
    ours: Tip,
    view: Option<ObjectId>,
    options: &RunOptions<'_>,
) -> Result<SequenceOutcome, ChangeError> {
    let tip = match &sequence.onto {
        None => ours,
        Some(hex) => {
            let commit_id = parse_id(hex)?;
            Tip {
                commit_id: Some(commit_id),
                tree_id: repository.commit_info(commit_id)?.tree_id,
            }
        }
    };
    let mut runner = Runner {
        store,
        repository,
        sequence,
        options,
        ran: SequenceOutcome {
            tip,
            view,
            done: Vec::new(),
            settled: Vec::new(),
            resolved: Vec::new(),
            stopped: None,
        },
        is_amended: false,
    };
    for (index, item) in sequence.items.iter().enumerate() {
        runner.run_item(index, item)?;
        if runner.ran.stopped.is_some() {
            break;
        }
    }
    Ok(runner.ran)
}

/// Run of a sequence, with the state so far.
struct Runner<'a> {
    store: &'a Store,
    repository: &'a Repository,
    sequence: &'a Sequence,
    options: &'a RunOptions<'a>,
    ran: SequenceOutcome,
    /// True if the review's amendments are in the tree.
    ///
    /// The commit that they were made for may be reused or dropped, so the last item gets them
    /// then.
    is_amended: bool,
}

/// Tree with conflicts, which may be open.
struct ItemOutcome {
    tree_id: ObjectId,
    conflicts: Vec<ConflictRecord>,
    settled: Vec<ConflictRecord>,
}

impl ItemOutcome {
    fn clean(tree_id: ObjectId) -> ItemOutcome {
        ItemOutcome {
            tree_id,
            conflicts: Vec::new(),
            settled: Vec::new(),
        }
    }

    fn of(outcome: MergeOutcome, item: &SequenceItem) -> ItemOutcome {
        let record = |conflict: &Conflict| ConflictRecord {
            of: item.name(),
            ..ConflictRecord::of(conflict)
        };
        ItemOutcome {
            tree_id: outcome.tree_id,
            conflicts: outcome.conflicts.iter().map(record).collect(),
            settled: outcome.settled.iter().map(record).collect(),
        }
    }
}

impl Runner<'_> {
    fn run_item(&mut self, index: usize, item: &SequenceItem) -> Result<(), ChangeError> {
        match item {
            SequenceItem::Merge { commit, message } => {
                self.merge(index, item, parse_id(commit)?, message)
            }
            SequenceItem::Pick {
                commit,
                parent,
                says_origin,
            } => {
                let parent_id = parent.as_deref().map(parse_id).transpose()?;
                self.pick(index, item, parse_id(commit)?, parent_id, *says_origin)
            }
            SequenceItem::Mail {
                patch,
                message,
                author,
                three_way,
                ..
            } => self.apply_mail(index, item, patch.as_deref(), message, author, *three_way),
            SequenceItem::Patch {
                patch,
                strip,
                reverse,
                three_way,
            } => {
                let view = self.ran.view.unwrap_or(self.ran.tip.tree_id);
                let three_way = if *three_way {
                    ThreeWay::First
                } else {
                    ThreeWay::Never
                };
                let options = (*strip, *reverse);
                let outcome = self.apply_patch(item, view, parse_id(patch)?, options, three_way)?;
                if let Some(tree_id) = self.apply_resolutions(index, outcome)? {
                    self.ran.view = Some(tree_id);
                    self.push_done(index, ItemResult::Applied, None);
                }
                Ok(())
            }
            SequenceItem::Restored {
                base_tree,
                view_tree,
                paths,
            } => {
                let paths: Vec<RepoPath> = paths
                    .iter()
                    .map(|path| RepoPath::parse(path.to_bytes()))
                    .collect::<Result<_, _>>()
                    .map_err(|error| damaged(&error))?;
                let base = parse_id(base_tree)?;
                let theirs = at_paths(self.repository, base, parse_id(view_tree)?, &paths)?;
                let outcome =
                    ItemOutcome::of(self.merged(base, self.ran.tip.tree_id, theirs)?, item);
                if let Some(tree_id) = self.apply_resolutions(index, outcome)? {
                    let view = self.ran.view.unwrap_or(self.ran.tip.tree_id);
                    self.ran.view = Some(at_paths(self.repository, view, tree_id, &paths)?);
                    self.push_done(index, ItemResult::Applied, None);
                }
                Ok(())
            }
            SequenceItem::Uncommitted {
                head_tree,
                view_tree,
                is_ours,
            } => {
                let (head_tree, view_tree) = (parse_id(head_tree)?, parse_id(view_tree)?);
                let outcome = if head_tree == view_tree {
                    ItemOutcome::clean(self.ran.tip.tree_id)
                } else {
                    let tip_tree = self.ran.tip.tree_id;
                    let (ours, theirs) = if *is_ours {
                        (view_tree, tip_tree)
                    } else {
                        (tip_tree, view_tree)
                    };
                    ItemOutcome::of(self.merged(head_tree, ours, theirs)?, item)
                };
                if let Some(tree_id) = self.apply_resolutions(index, outcome)? {
                    self.ran.view = Some(tree_id);
                    self.push_done(index, ItemResult::Applied, None);
                }
                Ok(())
            }
        }
    }

    fn push_done(&mut self, item: usize, how: ItemResult, commit_id: Option<ObjectId>) {
        self.ran.done.push(ItemDone {
            item,
            how,
            commit_id,
        });
    }

    fn merged(
        &self,
        base: ObjectId,
        ours: ObjectId,
        theirs: ObjectId,
    ) -> Result<MergeOutcome, ChangeError> {
        self.merged_with(base, ours, theirs, &self.options.merge)
    }

    fn merged_with(
        &self,
        base: ObjectId,
        ours: ObjectId,
        theirs: ObjectId,
        options: &MergeOptions,
    ) -> Result<MergeOutcome, ChangeError> {
        let input = MergeInput {
            base: Some(base),
            ours,
            theirs,
            allow_unrelated: false,
        };
        Ok(merge(self.repository, &input, options)?)
    }

    fn merge(
        &mut self,
        index: usize,
        item: &SequenceItem,
        commit_id: ObjectId,
        message: &str,
    ) -> Result<(), ChangeError> {
        let theirs = Tip {
            commit_id: Some(commit_id),
            tree_id: self.repository.commit_info(commit_id)?.tree_id,
        };
        let spec = MergeSpec {
            base: None,
            options: self.options.merge,
            fast_forward: FastForward::WherePossible,
            allow_unrelated: self.options.allow_unrelated,
        };
        match plan(self.repository, &self.ran.tip, &theirs, &spec)? {
            Planned::Contained => {
                self.push_done(index, ItemResult::Contained, self.ran.tip.commit_id)
            }
            Planned::FastForward(_) => {
                self.ran.tip = theirs;
                self.push_done(index, ItemResult::FastForward, Some(commit_id));
            }
            Planned::Merged(outcome) => {
                let Some(tree_id) =
                    self.apply_resolutions(index, ItemOutcome::of(outcome, item))?
                else {
                    return Ok(());
                };
                let message = match self.options.review.map(ReviewRecord::trailers) {
                    Some(trailers) if !trailers.is_empty() => format!("{message}\n\n{trailers}\n"),
                    _ => message.to_owned(),
                };
                let author = self.options.author.clone();
                self.commit(index, tree_id, &[commit_id], message.into(), author)?;
            }
        }
        Ok(())
    }

    fn pick(
        &mut self,
        index: usize,
        item: &SequenceItem,
        commit_id: ObjectId,
        parent_id: Option<ObjectId>,
        says_origin: bool,
    ) -> Result<(), ChangeError> {
        let repository = self.repository;
        let Some(content) = repository.commit_contents(&[commit_id])?.pop() else {
            return Ok(());
        };
        if self.sequence.reuse && parent_id.is_some() && self.ran.tip.commit_id == parent_id {
            self.ran.tip = Tip {
                commit_id: Some(commit_id),
                tree_id: content.tree_id,
            };
            self.push_done(index, ItemResult::FastForward, Some(commit_id));
            return Ok(());
        }
        let base = match parent_id {
            Some(parent_id) => parent_id,
            None => repository.empty_tree_id(),
        };
        let was_empty = repository.peel_to_tree(base)? == content.tree_id;
        let ours = self.ran.tip.commit_id.unwrap_or(self.ran.tip.tree_id);
        let outcome = self.merged(base, ours, commit_id)?;
        let Some(tree_id) = self.apply_resolutions(index, ItemOutcome::of(outcome, item))? else {
            return Ok(());
        };
        let message = if says_origin {
            with_origin(repository, &content)?
        } else {
            from_subject(&content.message).to_vec()
        };
        self.commit_unless_empty(index, tree_id, was_empty, message, content.author)
    }

    /// Commits `tree_id`, unless nothing would change.
    fn commit_unless_empty(
        &mut self,
        index: usize,
        tree_id: ObjectId,
        was_empty: bool,
        message: Vec<u8>,
        author: Identity,
    ) -> Result<(), ChangeError> {
        if tree_id == self.ran.tip.tree_id {
            let what = self
                .sequence
                .items
                .get(index)
                .and_then(SequenceItem::name)
                .unwrap_or_default();
            match (was_empty, self.sequence.emptied) {
                (_, Emptied::Keep) => {}
                (true, _) if self.sequence.keep_empty => {}
                (false, Emptied::Drop) => {
                    self.push_done(index, ItemResult::LeftOut, None);
                    return Ok(());
                }
                (was_empty, _) => return Err(ChangeError::EmptyPick { what, was_empty }),
            }
        }
        self.commit(
            index,
            tree_id,
            &[],
            Message::Verbatim(message),
            Some(author),
        )
    }

    /// Commits `tree_id` over the tip and `others`, and advances the tip.
    fn commit(
        &mut self,
        index: usize,
        tree_id: ObjectId,
        others: &[ObjectId],
        message: Message,
        author: Option<Identity>,
    ) -> Result<(), ChangeError> {
        let before = self.ran.tip;
        // git wrote some of the objects, and does not sync them.
        self.repository.sync_tree(tree_id, before.tree_id)?;
        let parent_ids = before.commit_id.into_iter().chain(others.iter().copied());
        let commit_id = self.repository.write_commit(&CommitSpec {
            tree_id,
            parent_ids: parent_ids.collect(),
            message,
            author,
            committer: self.options.committer.clone(),
        })?;
        self.ran.tip = Tip {
            commit_id: Some(commit_id),
            tree_id,
        };
        self.push_done(index, ItemResult::Committed, Some(commit_id));
        Ok(())
    }

    /// Applies the review's resolutions and amendments.
    ///
    /// Returns `None`, and stops the sequence, if conflicts stay open.
    fn apply_resolutions(
        &mut self,
        index: usize,
        outcome: ItemOutcome,
    ) -> Result<Option<ObjectId>, ChangeError> {
        let ItemOutcome {
            mut tree_id,
            mut conflicts,
            settled,
        } = outcome;
        self.ran.settled.extend(settled);
        if let Some(review) = self.options.review {
            let resolved = review.resolve(self.repository, tree_id, conflicts)?;
            tree_id = resolved.tree_id;
            conflicts = resolved.open;
            self.ran.resolved.extend(resolved.resolved);
            let is_last = index + 1 == self.sequence.items.len();
            if index == self.sequence.amended() || is_last && !self.is_amended {
                self.is_amended = true;
                tree_id = review.amend(self.repository, tree_id)?;
            }
        }
        if conflicts.is_empty() {
            return Ok(Some(tree_id));
        }
        self.ran.stopped = Some(Stopped {
            item: index,
            conflicts,
            tree_id,
        });
        Ok(None)
    }
}

/// Returns the message without leading blank lines, as git does.
fn from_subject(mut message: &[u8]) -> &[u8] {
    while let Some(end) = message.iter().position(|&byte| byte == b'\n') {
        let (line, rest) = message.split_at(end + 1);
        if !line.trim_ascii().is_empty() {
            break;
        }
        message = rest;
    }
    message
}

/// Returns the message with a line that names the original commit.
///
/// This follows `git cherry-pick -x`, which also cleans up the message.
fn with_origin(repository: &Repository, content: &CommitContent) -> Result<Vec<u8>, ChangeError> {
    let mut message = content.message.clone();
    if !message.ends_with(b"\n") {
        message.push(b'\n');
    }
    // The place where git would add a trailer shows whether the message ends with trailers or with
    // another such line.
    let mut ask = program::command(repository.common_dir());
    ask.args([
        "-c",
        "trailer.where=end",
        "interpret-trailers",
        "--no-divider",
        "--where=end",
        "--if-exists=add",
        "--if-missing=add",
        "--trailer",
    ]);
    let trailer = "Picked-from: tine";
    let asked = program::run(ask.arg(trailer), &message)?;
    if !asked.starts_with(&message) || asked.get(message.len()) == Some(&b'\n') {
        message.push(b'\n');
    }
    message.extend_from_slice(
        format!("(cherry picked from commit {})\n", content.commit_id).as_bytes(),
    );
    Ok(clean_message(&message))
}
