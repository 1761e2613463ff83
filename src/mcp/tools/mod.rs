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

use rmcp::model::JsonObject;
use serde_json::Value;

use super::tool::{Entry, Hints};
use tine_ops as ops;
use tine_ops::Failure;
use tine_path::text::PathText;
use tine_render::text::one_line;

static ALL: LazyLock<Vec<Entry>> = LazyLock::new(|| {
    vec![
        Hints::READ_ONLY.tool("context", "Where am I", forks::context),
        Hints::ADDITIVE
            .tool("fork", "Make a fork", forks::fork)
            .progress(|_| "makes a fork".to_owned()),
        Hints::SESSION.tool("use_fork", "Go to another fork", forks::use_fork),
        Hints::READ_ONLY.tool("list_forks", "List forks", forks::list_forks),
        Hints::READ_ONLY.tool("read_file", "Read a file", files::read_file),
        Hints::IDEMPOTENT.tool("write_file", "Write a file", files::write_file),
        Hints::DESTRUCTIVE.tool("edit_file", "Edit a file", files::edit_file),
        Hints::DESTRUCTIVE.tool("delete_file", "Delete a file", files::delete_file),
        Hints::DESTRUCTIVE.tool("move_file", "Move a file", files::move_file),
        Hints::READ_ONLY.tool(
            "list_directory",
            "List a directory",
            looking::list_directory,
        ),
        Hints::READ_ONLY
            .tool("search", "Search files", looking::search)
            .progress(|arguments| format!("searches for {}", argument(arguments, "pattern"))),
        Hints::OPEN_WORLD
            .tool("run", "Run a command", run::run_command)
            .progress(|arguments| format!("runs {}", one_line(&argument(arguments, "command")))),
        Hints::DESTRUCTIVE.tool(
            "merge_buffer",
            "Merge into an open buffer",
            buffers::merge_buffer,
        ),
        Hints::READ_ONLY.tool("status", "What is uncommitted", work::status),
        Hints::READ_ONLY
            .tool("diff", "Show changes", work::diff)
            .progress(|_| "compares".to_owned()),
        Hints::ADDITIVE
            .tool("commit", "Commit", work::commit)
            .progress(|_| "commits".to_owned())
            .describe(work::COMMIT),
        Hints::READ_ONLY.tool("log", "What was done", history::log),
        Hints::ADDITIVE
            .operation::<ops::TakeSnapshot>("snapshot", "Take a snapshot", history::snapshot_text)
            .describe(history::SNAPSHOT),
        Hints::READ_ONLY
            .operation::<ops::ListSnapshots>(
                "list_snapshots",
                "List snapshots",
                history::list_snapshots_text,
            )
            .describe(history::LIST_SNAPSHOTS),
        Hints::IDEMPOTENT
            .tool("restore", "Go back to a point", history::restore)
            .describe(history::RESTORE),
        Hints::DESTRUCTIVE
            .tool("undo", "Undo", history::undo)
            .describe(history::UNDO),
        Hints::DESTRUCTIVE
            .tool("redo", "Redo", history::redo)
            .describe(history::REDO),
        Hints::DESTRUCTIVE
            .tool("merge", "Merge", merging::merge)
            .progress(|_| "merges".to_owned())
            .describe(merging::MERGE),
        Hints::DESTRUCTIVE
            .tool("update", "Bring the fork up to date", merging::update)
            .progress(|_| "brings the fork up to date".to_owned()),
        Hints::READ_ONLY.tool("show_review", "Show a review", reviews::show_review),
        Hints::IDEMPOTENT.tool(
            "resolve_conflict",
            "Resolve a conflict",
            reviews::resolve_conflict,
        ),
        Hints::DESTRUCTIVE
            .tool(
                "commit_review",
                "Make a reviewed merge",
                reviews::commit_review,
            )
            .progress(|arguments| format!("merges review {}", argument(arguments, "review")))
            .describe(reviews::COMMIT_REVIEW),
        Hints::IDEMPOTENT
            .tool("abort_review", "Let a review go", reviews::abort_review)
            .describe(reviews::ABORT_REVIEW),
        Hints::ADDITIVE
            .tool("handoff", "Hand work over", work::handoff)
            .progress(|_| "hands over".to_owned())
            .describe(work::HANDOFF),
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

/// Returns an argument in words.
fn argument(arguments: &JsonObject, name: &str) -> String {
    match arguments.get(name) {
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
        None => String::new(),
    }
}

fn text_path(path: &str) -> PathText {
    PathText::Text(path.to_owned())
}

/// Returns the failure for an answer that does not fit the request.
fn unexpected() -> Failure {
    Failure::other_answer("a tool")
}
