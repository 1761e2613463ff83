//! Listing directories and searching lines of the active fork.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::tool::{Call, MAX_TEXT, ToolOutput, ToolResult};
use super::text_path;
use tine_ops as ops;
use tine_ops::protocol::{FoundLine, NodeKind, NodeLine, ToolFound, ToolListed};
use tine_path::text::PathText;
use tine_render::nodes::{kind_letter, shown as shown_path};
use tine_render::text::{counted, quoted};

/// Maximum number of directory entries in one answer.
const MAX_ENTRIES: usize = 1000;

/// Default number of lines that a search returns.
const DEFAULT_FOUND: usize = 100;

/// Maximum number of lines that a search returns.
const MAX_FOUND: usize = 1000;

/// List what a directory of the active fork holds.
#[derive(Deserialize, JsonSchema)]
pub(super) struct ListDirectory {
    /// From the fork's root, or absolute. Default: the root.
    path: Option<String>,
    /// Everything below it, too.
    #[serde(default)]
    deep: bool,
}

/// What a directory holds.
#[derive(Serialize, JsonSchema)]
pub(super) struct DirectoryShown {
    path: PathText,
    entries: Vec<NodeLine>,
    /// How many there are; `entries` has the first of them.
    total: usize,
}

pub(super) fn list_directory(
    arguments: ListDirectory,
    call: &Call<'_>,
) -> ToolResult<DirectoryShown> {
    let path = arguments.path.as_deref().unwrap_or(".");
    let operation = ops::ListDirectory::of(text_path(path), arguments.deep);
    let ToolListed {
        path, mut entries, ..
    } = call.route(operation, path)?;
    let total = entries.len();
    entries.truncate(MAX_ENTRIES);
    let mut text: String = entries
        .iter()
        .map(|entry| {
            let slash = if entry.kind == NodeKind::Directory {
                "/"
            } else {
                ""
            };
            let target = entry.target.as_ref();
            let target = target.map_or(String::new(), |target| format!(" -> {}", quoted(target)));
            format!(
                "{} {}{slash}{target}\n",
                kind_letter(entry.kind),
                quoted(&entry.path)
            )
        })
        .collect();
    text.push_str(&match total - entries.len() {
        0 => format!("{} in {}", entries_counted(total), shown_path(&path)),
        left => format!("and {left} more: list a directory beneath, or `search`"),
    });
    let shown = DirectoryShown {
        path,
        entries,
        total,
    };
    Ok(ToolOutput::new(shown, text))
}

fn entries_counted(count: usize) -> String {
    match count {
        1 => "1 entry".to_owned(),
        _ => format!("{count} entries"),
    }
}

/// Search the text files of the active fork for a regular expression, line by line, as ripgrep
/// does.
///
/// What git ignores, and what is not text, is left out.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Search {
    /// A regular expression in ripgrep's (Rust's) syntax: escape `( ) [ ] { } . * + ? | ^ $ \`.
    pattern: String,
    /// Only at or below this path. Default: everywhere.
    path: Option<String>,
    /// Only files that match one of these, as in a .gitignore: `*.rs`, `src/**/*.py`, or with `!`
    /// in front those that do not.
    #[serde(default)]
    globs: Vec<String>,
    /// Whatever the case.
    #[serde(default)]
    ignore_case: bool,
    /// Ignored files, too.
    #[serde(default)]
    ignored: bool,
    /// How many lines to find at most, up to 1000. Default: 100.
    limit: Option<usize>,
}

/// What was found.
#[derive(Serialize, JsonSchema)]
pub(super) struct SearchShown {
    lines: Vec<FoundLine>,
    /// There are more: narrow it, or raise the limit.
    truncated: bool,
    /// Files that are too large to be searched.
    too_large: Vec<PathText>,
}

pub(super) fn search(arguments: Search, call: &Call<'_>) -> ToolResult<SearchShown> {
    let pattern = arguments.pattern.clone();
    let operation = ops::SearchFiles {
        fork: None,
        pattern: arguments.pattern,
        path: arguments.path.as_deref().map(text_path),
        globs: arguments.globs,
        ignore_case: arguments.ignore_case,
        ignored: arguments.ignored,
        limit: arguments.limit.unwrap_or(DEFAULT_FOUND).clamp(1, MAX_FOUND),
        agent: ops::AgentOptions::default(),
    };
    let ToolFound {
        lines,
        mut truncated,
        too_large,
        ..
    } = call.route(operation, &pattern)?;
    let mut text = String::new();
    let mut shown = Vec::new();
    for found in lines {
        let line = format!("{}:{}: {}\n", quoted(&found.path), found.line, found.text);
        if text.len() + line.len() > MAX_TEXT {
            truncated = true;
            break;
        }
        text.push_str(&line);
        shown.push(found);
    }
    text.push_str(&counted(shown.len(), "line"));
    if truncated {
        text.push_str(", and there are more: narrow it with `path` or `globs`");
    }
    if !too_large.is_empty() {
        text.push_str(&format!(
            "; {} too large to be searched",
            counted(too_large.len(), "file")
        ));
    }
    let shown = SearchShown {
        lines: shown,
        truncated,
        too_large,
    };
    Ok(ToolOutput::new(shown, text))
}
