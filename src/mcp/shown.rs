//! Parts of answers that several tools share.

use std::os::unix::ffi::OsStrExt;

use schemars::JsonSchema;
use serde::Serialize;

use tine_ops::protocol::{ChangeLine, ForkInfo};
use tine_path::text::PathText;
use tine_render::text::{counted, quoted, short_id};

/// Maximum number of paths in one answer.
const MAX_PATHS: usize = 500;

/// Paths that changed.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ChangedPaths {
    /// How many there are.
    pub total: usize,
    /// The first of them.
    pub paths: Vec<ChangeLine>,
}

impl ChangedPaths {
    pub(crate) fn of(changes: &[ChangeLine]) -> ChangedPaths {
        ChangedPaths {
            total: changes.len(),
            paths: changes.iter().take(MAX_PATHS).cloned().collect(),
        }
    }

    /// Returns one line for each path, and the number of paths.
    pub(crate) fn text(&self) -> String {
        let mut text: String = self
            .paths
            .iter()
            .map(|change| format!("{} {}\n", change.kind.letter(), quoted(&change.path)))
            .collect();
        let left = self.total - self.paths.len();
        if left > 0 {
            text.push_str(&format!("and {left} more\n"));
        }
        text.push_str(&counted(self.total, "change"));
        text
    }
}

/// A fork.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ForkShown {
    #[serde(flatten)]
    pub info: ForkInfo,
    /// Whether the tools of this session mean it.
    pub active: bool,
    /// The fork that it began as.
    pub parent: Option<String>,
}

impl ForkShown {
    pub(crate) fn of(info: ForkInfo, is_active: bool) -> ForkShown {
        ForkShown {
            parent: info.parent.as_ref().map(|parent| parent.fork.to_string()),
            active: is_active,
            info,
        }
    }

    /// Returns the fork in one line.
    pub(crate) fn text(&self) -> String {
        let info = &self.info;
        let branch = match &info.branch {
            Some(branch) => format!("on branch {branch}"),
            None => "with a detached HEAD".to_owned(),
        };
        let head = short_id(info.head_commit.as_deref().unwrap_or("no commit"));
        let place = if info.mounted {
            format!(
                "at {}",
                quoted(&PathText::from(info.mount_dir.as_os_str().as_bytes()))
            )
        } else {
            "not mounted".to_owned()
        };
        let active = if self.active { "active: " } else { "" };
        format!("{active}{} {branch} ({head}), {place}", info.name)
    }
}
