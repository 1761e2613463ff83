//! Files that are open in a person's editor.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::tool::{Call, ToolOutput, ToolResult};
use super::text_path;
use tine_ops as ops;
use tine_ops::protocol::BufferMerged;
use tine_render::text::{counted, quoted};

/// Merge what you wrote to a file that is open in a person's editor into what the person has there.
///
/// Clean merges are shown in the editor at once. Conflicts change nothing: you get all three texts,
/// and settle them by editing the file so that it says what both mean.
#[derive(Deserialize, JsonSchema)]
pub(super) struct MergeBuffer {
    /// From the fork's root, or absolute.
    path: String,
}

/// What came of merging a buffer.
#[derive(Serialize, JsonSchema)]
pub(super) struct BufferShown {
    #[serde(flatten)]
    buffer: BufferMerged,
    /// Whether the editor's text now has what you wrote.
    merged: bool,
}

pub(super) fn merge_buffer(arguments: MergeBuffer, call: &Call<'_>) -> ToolResult<BufferShown> {
    let operation = ops::MergeBuffer {
        fork: None,
        path: text_path(&arguments.path),
        agent: ops::AgentOptions::default(),
    };
    let merged = call.route(operation, &arguments.path)?;
    let mut text = match merged.conflicts.len() {
        0 => format!("{} is merged in the editor", quoted(&merged.path)),
        count => format!(
            "{} in {}:",
            counted(count, "conflict"),
            quoted(&merged.path)
        ),
    };
    for conflict in &merged.conflicts {
        text.push_str(&format!(
            "\nline {}\n--- you\n{}\n--- the person\n{}",
            conflict.line, conflict.agent, conflict.person
        ));
    }
    let shown = BufferShown {
        merged: merged.conflicts.is_empty(),
        buffer: merged,
    };
    Ok(ToolOutput::new(shown, text))
}
