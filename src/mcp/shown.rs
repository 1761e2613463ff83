//! Parts of answers that several tools share.

use schemars::JsonSchema;
use serde::Serialize;

use tine_ops::protocol::{ChangeKindText, ChangeLine, ForkInfo};
use tine_path::text::PathText;
use tine_render::text::{counted, quoted, short_id};

/// Maximum number of paths in one answer.
const MAX_PATHS: usize = 500;

/// A path that changed.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ChangedPath {
    pub path: PathText,
    /// `added`, `modified`, `deleted` or `type_changed`.
    #[schemars(with = "String")]
    pub kind: ChangeKindText,
}

/// Paths that changed.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ChangedPaths {
    /// How many there are.
    pub total: usize,
    /// The first of them.
    pub paths: Vec<ChangedPath>,
}

impl ChangedPaths {
    pub(crate) fn of(changes: &[ChangeLine]) -> ChangedPaths {
        let line = |change: &ChangeLine| ChangedPath {
            path: change.path.clone(),
            kind: change.kind,
        };
        ChangedPaths {
            total: changes.len(),
            paths: changes.iter().take(MAX_PATHS).map(line).collect(),
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
    pub name: String,
    /// Whether the tools of this session mean it.
    pub active: bool,
    /// None: HEAD is detached.
    pub branch: Option<String>,
    /// The branch that it came from, which `merge` goes to.
    pub from_branch: Option<String>,
    pub head_commit: Option<String>,
    /// Where its own commits begin.
    pub fork_point: Option<String>,
    /// The fork that it began as.
    pub parent: Option<String>,
    /// Its root, an ordinary checkout while it is mounted.
    pub mount_dir: PathText,
    pub mounted: bool,
}

impl ForkShown {
    pub(crate) fn of(info: &ForkInfo, is_active: bool) -> ForkShown {
        use std::os::unix::ffi::OsStrExt;
        ForkShown {
            name: info.name.to_string(),
            active: is_active,
            branch: info.branch.clone(),
            from_branch: info.from_branch.clone(),
            head_commit: info.head_commit.clone(),
            fork_point: info.fork_point.clone(),
            parent: info.parent.as_ref().map(|parent| parent.fork.to_string()),
            mount_dir: PathText::from(info.mount_dir.as_os_str().as_bytes()),
            mounted: info.mounted,
        }
    }

    /// Returns the fork in one line.
    pub(crate) fn text(&self) -> String {
        let branch = match &self.branch {
            Some(branch) => format!("on branch {branch}"),
            None => "with a detached HEAD".to_owned(),
        };
        let head = short_id(self.head_commit.as_deref().unwrap_or("no commit"));
        let place = if self.mounted {
            format!("at {}", quoted(&self.mount_dir))
        } else {
            "not mounted".to_owned()
        };
        let active = if self.active { "active: " } else { "" };
        format!("{active}{} {branch} ({head}), {place}", self.name)
    }
}
