//! Asks a resolver about the conflicts of a review, one after another.

use std::time::Duration;

use super::contents::store_dir;
use super::context::Context;
use crate::change::resolver::{
    AnsweredResolution, CommandResolver, ConflictQuestion, DEFAULT_PATIENCE, JsonBytes,
    MergeQuestion, QuestionCommit, QuestionResolution, QuestionVersion, Resolver, VerdictKind,
};
use crate::change::review::{ConflictRecord, Verdict, VersionRecord};
use crate::client::Client;
use crate::client::content::{content, object_id};
use crate::git::program;
use crate::merge::MergeSide;
use crate::ops;
use crate::ops::protocol::{ResolveWith, ReviewShown};
use crate::ops::transfer::{Outgoing, Transfer};
use crate::ops::{ErrorCode, Failure};
use crate::render::text::quoted;

/// Most commits of a side that a resolver gets.
const MAX_COMMITS: usize = 50;

// The resolver and its options. (A doc comment here would become a verb's help.)
#[derive(Debug, Clone, clap::Args)]
pub(super) struct ResolverArgs {
    /// Ask CMD about each conflict, with JSON on its standard input and output (docs/merge.md)
    #[arg(long, value_name = "CMD", help_heading = "Resolver")]
    pub resolver: Option<String>,

    /// How long one answer may take, in seconds
    #[arg(long, value_name = "SECS", requires = "resolver", help_heading = "Resolver", default_value_t = DEFAULT_PATIENCE.as_secs())]
    pub resolver_timeout: u64,

    /// Have the resolver look at the whole merge when its conflicts are resolved: it may veto it,
    /// or amend it
    #[arg(long, requires = "resolver", help_heading = "Resolver")]
    pub semantic: bool,

    /// Commit when everything was resolved, and not vetoed
    #[arg(long, requires = "resolver", help_heading = "Resolver")]
    pub auto_commit: bool,
}

/// State of a review after a resolver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReviewProgress {
    /// All conflicts are resolved, and the resolver did not veto the merge.
    Resolved,
    /// A person must continue.
    Open,
}

/// Asks the resolver about each open conflict, and then about the merge.
pub(super) fn resolve(
    args: &ResolverArgs,
    context: &Context,
    connection: &mut Client,
    review: u64,
) -> Result<ReviewProgress, Failure> {
    let Some(command) = &args.resolver else {
        return Ok(ReviewProgress::Open);
    };
    let resolver = CommandResolver {
        command: command.into(),
        dir: context.cwd().to_owned(),
        patience: Duration::from_secs(args.resolver_timeout),
    };
    let mut run = ResolverRun {
        context,
        connection,
        by: command,
        shown: None,
        asked: Vec::new(),
    };
    run.shown = Some(run.connection.call(&ops::ShowReview { review })?);
    // Where commits are made one after another, a resolution may bring up more conflicts.
    while run.ask_about_conflicts(&resolver)? > 0 {}
    if run.shown()?.info.open > 0 {
        return Ok(ReviewProgress::Open);
    }
    if args.semantic {
        run.ask_about_merge(&resolver)
    } else {
        Ok(ReviewProgress::Resolved)
    }
}

struct ResolverRun<'a> {
    context: &'a Context,
    connection: &'a mut Client,
    by: &'a str,
    shown: Option<ReviewShown>,
    /// Conflicts that the resolver was asked about.
    asked: Vec<ConflictRecord>,
}

impl ResolverRun<'_> {
    fn shown(&self) -> Result<&ReviewShown, Failure> {
        self.shown
            .as_ref()
            .ok_or_else(|| Failure::new(ErrorCode::Internal, "the review was not read"))
    }

    /// Asks about open conflicts not asked about before. Returns their number.
    fn ask_about_conflicts(&mut self, resolver: &dyn Resolver) -> Result<usize, Failure> {
        let shown = self.shown()?.clone();
        let record = &shown.info.record;
        let ours_commits = self.commits(
            record.ours_commit.as_deref(),
            record.theirs_commit.as_deref(),
        )?;
        let theirs_commits = self.commits(
            record.theirs_commit.as_deref(),
            record.ours_commit.as_deref(),
        )?;
        let open: Vec<&ConflictRecord> = record
            .conflicts
            .iter()
            .filter(|conflict| conflict.resolution.is_none() && !self.asked.contains(conflict))
            .collect();
        for conflict in &open {
            self.asked.push((*conflict).clone());
            let question = ConflictQuestion {
                kind: conflict.kind,
                path: conflict.path.clone(),
                paths: conflict.paths.clone(),
                base: self.versions(conflict, MergeSide::Base)?,
                ours: self.versions(conflict, MergeSide::Ours)?,
                theirs: self.versions(conflict, MergeSide::Theirs)?,
                hunks: crate::client::content::hunks(self.context, conflict)?,
                ours_commits: ours_commits.clone(),
                theirs_commits: theirs_commits.clone(),
                other_paths: shown
                    .changes
                    .iter()
                    .map(|change| change.path.clone())
                    .filter(|path| !conflict.paths.contains(path))
                    .collect(),
            };
            match resolver.resolve(&question) {
                // The conflict stays as it was.
                Err(error) => self
                    .context
                    .output
                    .note(&format!("{} stays open: {error}", quoted(&conflict.path))),
                Ok(answer) => {
                    let (how, content, executable) = match answer.resolution {
                        AnsweredResolution::Skip => continue,
                        AnsweredResolution::Base => (ResolveWith::Base, None, None),
                        AnsweredResolution::Ours => (ResolveWith::Ours, None, None),
                        AnsweredResolution::Theirs => (ResolveWith::Theirs, None, None),
                        AnsweredResolution::Union => (ResolveWith::Union, None, None),
                        AnsweredResolution::OursFile => (ResolveWith::OursFile, None, None),
                        AnsweredResolution::TheirsFile => (ResolveWith::TheirsFile, None, None),
                        AnsweredResolution::Delete => (ResolveWith::Delete, None, None),
                        AnsweredResolution::Content { bytes, executable } => {
                            let content = outgoing(&store_dir(self.context)?, &bytes)?;
                            (ResolveWith::Content, Some(content), executable)
                        }
                    };
                    let request = ops::Resolve {
                        review: record.id,
                        path: conflict.path.clone(),
                        how,
                        content,
                        executable,
                        by: self.by.to_owned(),
                        reason: answer.reasoning,
                        metadata: answer.metadata,
                    };
                    self.shown = Some(self.connection.call(&request)?);
                }
            }
        }
        Ok(open.len())
    }

    fn ask_about_merge(&mut self, resolver: &dyn Resolver) -> Result<ReviewProgress, Failure> {
        let shown = self.shown()?;
        let record = &shown.info.record;
        let mut git = program::command(self.context.repository()?.common_dir());
        git.arg(format!("--attr-source={}", shown.new_tree)).args([
            "diff",
            "--no-ext-diff",
            "--no-textconv",
            "--no-color",
            "--binary",
            &shown.old_tree,
            &shown.new_tree,
        ]);
        let question = MergeQuestion {
            source: record.merge.source.clone(),
            target: record.merge.into.clone(),
            patch: JsonBytes::from(program::run(&mut git, b"")?),
            changed_paths: shown
                .changes
                .iter()
                .map(|change| change.path.clone())
                .collect(),
            resolutions: record
                .conflicts
                .iter()
                .filter_map(|conflict| {
                    let resolution = conflict.resolution.as_ref()?;
                    Some(QuestionResolution {
                        path: conflict.path.clone(),
                        how: resolution.how,
                        reasoning: resolution.reasoning.clone(),
                    })
                })
                .collect(),
        };
        let review = record.id;
        let judgement = match resolver.judge(&question) {
            Ok(judgement) => judgement,
            Err(error) => {
                self.context
                    .output
                    .note(&format!("the merge was not looked at as a whole: {error}"));
                return Ok(ReviewProgress::Open);
            }
        };
        let store_dir = store_dir(self.context)?;
        let mut changes = Vec::new();
        for (path, content) in judgement.changes {
            let content = content
                .map(|bytes| outgoing(&store_dir, &bytes))
                .transpose()?;
            changes.push((path, content));
        }
        let request = ops::JudgeReview {
            review,
            verdict: Verdict {
                kind: judgement.verdict,
                by: self.by.to_owned(),
                reasoning: judgement.reasoning.clone(),
                metadata: judgement.metadata,
            },
            changes,
        };
        self.shown = Some(self.connection.call(&request)?);
        Ok(match judgement.verdict {
            VerdictKind::Accept | VerdictKind::Amend => ReviewProgress::Resolved,
            VerdictKind::Veto => {
                let why = judgement.reasoning.unwrap_or_default();
                self.context
                    .output
                    .note(&format!("the resolver vetoes the merge: {why}"));
                ReviewProgress::Open
            }
        })
    }

    fn versions(
        &self,
        conflict: &ConflictRecord,
        side: MergeSide,
    ) -> Result<Vec<QuestionVersion>, Failure> {
        let version = |version: &VersionRecord| {
            let mode = version.kind.mode_text();
            Ok(QuestionVersion {
                path: version.path.clone(),
                content: content(self.context, Some(&mode), Some(&version.id))?,
                mode,
                id: version.id.clone(),
            })
        };
        conflict.versions(side).iter().map(version).collect()
    }

    /// Returns the commits of `tip` that `other` lacks, at most [`MAX_COMMITS`].
    fn commits(
        &self,
        tip: Option<&str>,
        other: Option<&str>,
    ) -> Result<Vec<QuestionCommit>, Failure> {
        let Some(tip) = tip else {
            return Ok(Vec::new());
        };
        let repository = self.context.repository()?;
        let other = other.map(object_id).transpose()?;
        let commits = repository.log(object_id(tip)?, other, MAX_COMMITS)?;
        commits
            .into_iter()
            .map(|(id, info)| {
                Ok(QuestionCommit {
                    id: id.to_string(),
                    author: format!("{} <{}>", info.author_name, info.author_email),
                    message: repository.commit_message(id)?,
                })
            })
            .collect()
    }
}

fn outgoing(store_dir: &std::path::Path, bytes: &[u8]) -> Result<Transfer, Failure> {
    let mut outgoing = Outgoing::new(store_dir);
    outgoing.add(bytes)?;
    Ok(outgoing.finish())
}
