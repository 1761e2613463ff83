//! Files that are open in a person's editor.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::call::ToolCall;
use super::super::session::Session;
use super::super::tool::{Hints, Tool, ToolOutput};
use super::{command, text_path};
use tine_ops as ops;
use tine_ops::Failure;
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

impl Tool for MergeBuffer {
    const NAME: &'static str = "merge_buffer";
    const TITLE: &'static str = "Merge into an open buffer";
    const HINTS: Hints = Hints::CHANGES;
    type Answer = BufferShown;

    fn call(self, session: &Session, _call: &ToolCall) -> Result<ToolOutput<BufferShown>, Failure> {
        let operation = ops::MergeBuffer {
            fork: None,
            path: text_path(&self.path),
            agent: ops::AgentOptions::default(),
        };
        let merged = session.route(operation, command(Self::NAME, &self.path))?;
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
}
