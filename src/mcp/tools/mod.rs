//! The tools, in the order of their list.

mod buffers;
pub(crate) mod files;
mod forks;
mod history;
mod looking;
mod merging;
mod reviews;
mod run;
pub(crate) mod work;

use std::sync::LazyLock;

use super::tool::Entry;
use tine_client::commit::CommitWithHooks;
use tine_ops as ops;
use tine_ops::Failure;
use tine_path::text::PathText;

static ALL: LazyLock<Vec<Entry>> = LazyLock::new(|| {
    vec![
        Entry::of::<forks::Context>(),
        Entry::of::<forks::Fork>(),
        Entry::of::<forks::UseFork>(),
        Entry::of::<forks::ListForks>(),
        Entry::of::<files::ReadFile>(),
        Entry::of::<files::WriteFile>(),
        Entry::of::<files::EditFile>(),
        Entry::of::<files::DeleteFile>(),
        Entry::of::<files::MoveFile>(),
        Entry::of::<looking::ListDirectory>(),
        Entry::of::<looking::Search>(),
        Entry::of::<run::Run>(),
        Entry::of::<buffers::MergeBuffer>(),
        Entry::of::<work::Status>(),
        Entry::of::<work::Diff>(),
        Entry::of::<CommitWithHooks>(),
        Entry::of::<history::Log>(),
        Entry::of::<ops::TakeSnapshot>(),
        Entry::of::<ops::ListSnapshots>(),
        Entry::of::<ops::Restore>(),
        Entry::of::<ops::Undo>(),
        Entry::of::<ops::Redo>(),
        Entry::of::<merging::Merge>(),
        Entry::of::<merging::Update>(),
        Entry::of::<reviews::ShowReview>(),
        Entry::of::<reviews::ResolveConflict>(),
        Entry::of::<ops::CommitReview>(),
        Entry::of::<ops::AbortReview>(),
        Entry::of::<ops::CreateHandoff>(),
    ]
});

/// Returns all tools.
pub(crate) fn all() -> &'static [Entry] {
    &ALL
}

/// Returns the tool called `name`.
pub(crate) fn find(name: &str) -> Option<&'static Entry> {
    ALL.iter().find(|entry| entry.line.name == name)
}

fn text_path(path: &str) -> PathText {
    PathText::Text(path.to_owned())
}

/// Returns the failure for an answer that does not fit the request.
fn unexpected() -> Failure {
    Failure::other_answer("a tool")
}

/// Returns an operation's name for the log of operations.
fn command(tool: &str, what: &str) -> String {
    format!("mcp {tool} {what}")
}
