//! Finding and replacing in a text.

use serde::{Deserialize, Serialize};

/// One replacement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextEdit {
    /// As it stands in the text, once unless `replace_all`.
    pub old: String,
    pub new: String,
    #[serde(default)]
    pub replace_all: bool,
}
