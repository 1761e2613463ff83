//! Resolves conflicts of a review, sets its verdict, and amends other paths.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::replanning::{find_later_conflicts, follow_target};
use super::{open_review, shown};
use crate::failure::{ErrorCode, Failure};
use crate::operation::{Call, Operation, path_parser};
use crate::protocol::{ResolveWith, ReviewShown};
use crate::sequencing::write_content;
use crate::state::slots::Daemon;
use crate::transfer::Transfer;
use tine_change::review::{
    Amendment, ConflictRecord, ResolutionKind, ResolutionRecord, Verdict, VersionRecord,
};
use tine_git::{ObjectId, Repository, TreeEntryKind};
use tine_merge::{Favor, Level, MergeSide, settle_content};
use tine_path::RepoPath;
use tine_path::text::PathText;
use tine_workspace::Actor;

/// Maximum length of a symlink's target on Linux.
const MAX_LINK_BYTES: u64 = 4096;

/// Resolve a conflict of a review
///
/// --ours and --theirs say whose lines stay where both sides changed the same ones, as
/// `git merge -X ours` does: what else either side changed in the file stays merged, its mode, too.
/// Binary files, symlinks and renames have no lines: there they take the whole version; --ours-file
/// and --theirs-file do so for a text. A content that is given goes into a file in the merged mode;
/// if the conflict is about a symlink, it is the link's target.
///
/// Until the review is committed, a conflict can be resolved again, and differently.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize, JsonSchema)]
#[command(after_long_help = "\
Examples:
  tine resolve 3 src/main.rs --theirs
  tine resolve 3 Cargo.lock --theirs-file
  tine resolve 3 src/main.rs --file merged.rs --reason 'both limits are needed'
  sed s/x/y/ old | tine resolve 3 src/main.rs --stdin
  tine resolve 3 notes.md --delete")]
pub struct Resolve {
    /// The review's number
    #[arg(value_name = "REVIEW")]
    pub review: u64,

    /// The conflict's path, from the root of the repository
    #[arg(id = "conflict", value_name = "PATH", value_parser = path_parser())]
    #[schemars(with = "String")]
    pub path: PathText,

    /// Resolution of the conflict.
    #[command(flatten)]
    pub how: ResolveWith,

    /// Bytes of the file, or target of the symlink, if given.
    #[arg(skip)]
    #[schemars(skip)]
    #[serde(default)]
    pub content: Option<Transfer>,

    /// True for an executable file; `None` keeps the merged mode.
    ///
    /// With `None` a symlink stays a symlink.
    #[arg(skip)]
    #[schemars(skip)]
    #[serde(default)]
    pub executable: Option<bool>,

    /// Name of the person or program that resolves it.
    #[arg(skip = by_hand())]
    #[schemars(skip)]
    #[serde(default = "by_hand")]
    pub by: String,

    /// Why; it goes into the merge commit
    #[arg(long, value_name = "TEXT")]
    #[serde(default)]
    pub reason: Option<String>,

    /// Further data of the caller, which the review keeps.
    #[arg(skip)]
    #[schemars(skip)]
    #[serde(default)]
    pub metadata: Option<serde_json::Value>,
}

fn by_hand() -> String {
    "hand".to_owned()
}

impl Operation for Resolve {
    const NAME: &'static str = "resolve";
    type Answer = ReviewShown;

    fn run(self, call: &Call<'_>) -> Result<ReviewShown, Failure> {
        resolve(call.daemon, call.by(), &self)
    }
}

/// Sets the verdict on a review, and changes paths without conflicts.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JudgeReview {
    /// Number of the review.
    pub review: u64,
    /// Verdict on the review as a whole.
    pub verdict: Verdict,
    /// New content of each path; `None` deletes the path.
    pub changes: Vec<(PathText, Option<Transfer>)>,
}

impl Operation for JudgeReview {
    const NAME: &'static str = "judge";
    type Answer = ReviewShown;

    fn run(self, call: &Call<'_>) -> Result<ReviewShown, Failure> {
        let (daemon, by) = (call.daemon, call.by());
        let repository = daemon.repository_now()?;
        let _guard = daemon.reviews.lock();
        let mut record = open_review(daemon, self.review)?;
        // Only the commit of a review fails on a side that cannot be read.
        if let Err(failure) = follow_target(daemon, by, &mut record) {
            log::info!("review {}: {failure}", record.id);
        }
        let (_, merged_tree) = record.trees(&daemon.store, &repository)?;
        let mut amendments = Vec::new();
        for (path, content) in &self.changes {
            let repo_path = RepoPath::parse(path.to_bytes())?;
            let kind = match repository
                .tree_entry(merged_tree, &repo_path)?
                .map(|entry| entry.kind)
            {
                Some(TreeEntryKind::Directory) => {
                    return Err(Failure::new(
                        ErrorCode::WrongKind,
                        format!("{repo_path} is a directory"),
                    )
                    .hint("name a file in it"));
                }
                Some(TreeEntryKind::Submodule) if content.is_some() => {
                    return Err(Failure::new(
                        ErrorCode::WrongKind,
                        format!("{repo_path} is a submodule"),
                    )
                    .hint("change it in its own repository"));
                }
                Some(kind) => kind,
                None => TreeEntryKind::File,
            };
            let new = match content {
                None => None,
                Some(content) => Some(VersionRecord {
                    path: path.clone(),
                    kind,
                    id: given_content(daemon, &repository, content, kind)?.to_string(),
                }),
            };
            amendments.push(Amendment {
                path: path.clone(),
                new,
            });
        }
        record.amendments = amendments;
        record.verdict = Some(self.verdict.clone());
        record.save(&daemon.store, &repository)?;
        shown(daemon, by, record)
    }
}

/// Sets the resolution of a conflict, in place of an earlier one.
fn resolve(daemon: &Arc<Daemon>, by: Actor<'_>, request: &Resolve) -> Result<ReviewShown, Failure> {
    let repository = daemon.repository_now()?;
    let _guard = daemon.reviews.lock();
    let mut record = open_review(daemon, request.review)?;
    // Only the commit of a review fails on a side that cannot be read.
    if let Err(failure) = follow_target(daemon, by, &mut record) {
        log::info!("review {}: {failure}", record.id);
    }
    let level = record.merge.level;
    let path = RepoPath::parse(request.path.to_bytes())?;
    let Some(conflict) = record.conflict_at(&(&path).into()) else {
        return Err(Failure::new(
            ErrorCode::NoSuchConflict,
            format!("{path} is in no conflict of review {}", request.review),
        )
        .hint(format!("`tine review show {}` lists them", request.review)));
    };
    if (request.how == ResolveWith::Content) != request.content.is_some() {
        return Err(Failure::new(
            ErrorCode::Usage,
            "`content` belongs to `how` = `content`, and must be there then",
        )
        .hint("give the whole file as it is to be, or another `how`"));
    }
    let resolved = |how, versions| {
        Some(ResolutionRecord {
            how,
            versions,
            by: request.by.clone(),
            reasoning: request.reason.clone(),
            metadata: request.metadata.clone(),
        })
    };
    let whole = |how, side| resolved(how, conflict.versions(side).to_vec());
    // A merge at the level of paths merges nothing inside files.
    let settled = |favor| -> Result<_, Failure> {
        Ok(match level {
            Level::Path => None,
            Level::Text => settle_content(&repository, &conflict.conflict()?, favor)?,
        })
    };
    let lines = |how, favor, side| -> Result<_, Failure> {
        Ok(match settled(favor)? {
            Some(version) => resolved(how, vec![(&version).into()]),
            None => whole(how, side),
        })
    };
    let resolution = match request.how {
        ResolveWith::Reopen => None,
        ResolveWith::Delete => resolved(ResolutionKind::Delete, Vec::new()),
        ResolveWith::Base => lines(ResolutionKind::Base, Favor::Base, MergeSide::Base)?,
        ResolveWith::Ours => lines(ResolutionKind::Ours, Favor::Ours, MergeSide::Ours)?,
        ResolveWith::Theirs => lines(ResolutionKind::Theirs, Favor::Theirs, MergeSide::Theirs)?,
        ResolveWith::OursFile => whole(ResolutionKind::OursFile, MergeSide::Ours),
        ResolveWith::TheirsFile => whole(ResolutionKind::TheirsFile, MergeSide::Theirs),
        ResolveWith::Union => {
            match settle_content(&repository, &conflict.conflict()?, Favor::Union)? {
                Some(version) => resolved(ResolutionKind::Union, vec![(&version).into()]),
                None => {
                    return Err(Failure::new(
                        ErrorCode::WrongKind,
                        "both sides can be taken of a text only",
                    )
                    .hint(
                        "take one side (`--ours`, `--theirs`), or give the result (`--file F`)",
                    ));
                }
            }
        }
        ResolveWith::Content => {
            let version = given_version(daemon, &repository, conflict, request)?;
            resolved(ResolutionKind::Content, vec![version])
        }
    };
    conflict.resolution = resolution;
    // The verdict and the amendments were made for another result.
    record.verdict = None;
    record.amendments.clear();
    find_later_conflicts(daemon, by, &repository, &mut record)?;
    record.save(&daemon.store, &repository)?;
    shown(daemon, by, record)
}

/// Returns the entry with the content that the request gives.
fn given_version(
    daemon: &Arc<Daemon>,
    repository: &Repository,
    conflict: &ConflictRecord,
    request: &Resolve,
) -> Result<VersionRecord, Failure> {
    let (Some(content), Some((path, kind))) = (&request.content, conflict.content_place()?) else {
        return Err(Failure::new(
            ErrorCode::WrongKind,
            format!(
                "{} is a submodule",
                RepoPath::parse(conflict.path.to_bytes())?
            ),
        )
        .hint("take one side: `--ours` or `--theirs`"));
    };
    let kind = match (request.executable, kind) {
        (Some(_), TreeEntryKind::Symlink) => {
            return Err(Failure::new(
                ErrorCode::WrongKind,
                format!("{} is a symlink", RepoPath::parse(path.to_bytes())?),
            )
            .hint("give where it is to lead, without `executable`; or take one side"));
        }
        (None, kind) => kind,
        (Some(true), _) => TreeEntryKind::Executable,
        (Some(false), _) => TreeEntryKind::File,
    };
    let id = given_content(daemon, repository, content, kind)?.to_string();
    Ok(VersionRecord { path, kind, id })
}

/// Writes a sent content as the blob of a file or symlink.
fn given_content(
    daemon: &Daemon,
    repository: &Repository,
    content: &Transfer,
    kind: TreeEntryKind,
) -> Result<ObjectId, Failure> {
    let id = write_content(daemon, repository, content)?;
    if kind != TreeEntryKind::Symlink {
        return Ok(id);
    }
    let refused = |why: &str| {
        Err(Failure::new(
            ErrorCode::WrongKind,
            format!("the content cannot be where a symlink leads: {why}"),
        )
        .hint("give the path that it is to lead to; or take one side"))
    };
    if repository.blob_size(id)? > MAX_LINK_BYTES {
        return refused("it is too long");
    }
    let content = repository.read_blob(id)?;
    // Text files end with a line break; targets do not.
    let target = content.strip_suffix(b"\n").unwrap_or(&content);
    match target {
        [] => refused("it is empty"),
        _ if target.contains(&0) || target.contains(&b'\n') => refused("it is more than a path"),
        _ if target.len() == content.len() => Ok(id),
        mut target => {
            let len = target.len() as u64;
            Ok(repository.write_blob(&mut target, len)?)
        }
    }
}
