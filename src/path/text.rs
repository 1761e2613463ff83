//! Paths in JSON: a path that is not UTF-8 is encoded as base64.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::RepoPath;

/// A path of the repository in JSON: a string where it is UTF-8, else `{"base64": "…"}`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "a path is a string, or {\"base64\": …} where it is not UTF-8"
)]
pub enum PathText {
    /// A path that is UTF-8.
    #[schemars(description = "")]
    Text(String),
    /// A path that is not UTF-8.
    #[schemars(description = "")]
    Bytes {
        /// The path's bytes in standard base64, with padding.
        #[schemars(description = "")]
        base64: String,
    },
}

impl From<&[u8]> for PathText {
    fn from(path: &[u8]) -> PathText {
        use base64::Engine;
        match std::str::from_utf8(path) {
            Ok(text) => PathText::Text(text.to_owned()),
            Err(_) => PathText::Bytes {
                base64: base64::engine::general_purpose::STANDARD.encode(path),
            },
        }
    }
}

impl From<&RepoPath> for PathText {
    fn from(path: &RepoPath) -> PathText {
        PathText::from(path.as_bytes())
    }
}

impl PathText {
    /// Returns the path's bytes, or nothing if the base64 is invalid.
    pub fn to_bytes(&self) -> Vec<u8> {
        use base64::Engine;
        match self {
            PathText::Text(text) => text.clone().into_bytes(),
            PathText::Bytes { base64 } => base64::engine::general_purpose::STANDARD
                .decode(base64)
                .unwrap_or_default(),
        }
    }
}

/// Serializes a [`RepoPath`] as [`PathText`], for `#[serde(with)]`.
pub mod repo_path {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{PathText, RepoPath};

    /// Serializes `path` as [`PathText`].
    ///
    /// # Errors
    /// An error of the serializer.
    pub fn serialize<S: Serializer>(path: &RepoPath, serializer: S) -> Result<S::Ok, S::Error> {
        PathText::from(path).serialize(serializer)
    }

    /// Deserializes a path of the repository.
    ///
    /// # Errors
    /// An error of the deserializer, or [`PathError`](crate::PathError) if the path is invalid.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<RepoPath, D::Error> {
        let bytes = PathText::deserialize(deserializer)?.to_bytes();
        RepoPath::parse(bytes).map_err(serde::de::Error::custom)
    }
}

/// Serializes a path of the host as [`PathText`], for `#[serde(with)]`.
///
/// Deserializing an empty path fails.
pub mod host_path {
    use std::ffi::{OsStr, OsString};
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::PathText;

    /// Serializes `path` as [`PathText`].
    ///
    /// # Errors
    /// An error of the serializer.
    pub fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        PathText::from(OsStr::as_bytes(path.as_os_str())).serialize(serializer)
    }

    /// Deserializes a path of the host.
    ///
    /// # Errors
    /// An error of the deserializer, or if the path is empty.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
        let bytes = PathText::deserialize(deserializer)?.to_bytes();
        if bytes.is_empty() {
            return Err(serde::de::Error::custom("an empty path"));
        }
        Ok(PathBuf::from(OsString::from_vec(bytes)))
    }
}

/// Like [`host_path`], for a path that may be missing.
pub mod optional_host_path {
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize)]
    struct Out<'a>(#[serde(with = "super::host_path")] &'a Path);

    #[derive(Deserialize)]
    struct In(#[serde(with = "super::host_path")] PathBuf);

    /// Serializes `path` as [`PathText`](super::PathText), `None` as null.
    ///
    /// # Errors
    /// An error of the serializer.
    pub fn serialize<S: Serializer>(
        path: &Option<PathBuf>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        path.as_deref().map(Out).serialize(serializer)
    }

    /// Deserializes a path of the host, null as `None`.
    ///
    /// # Errors
    /// An error of the deserializer, or if the path is empty.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<PathBuf>, D::Error> {
        Ok(Option::<In>::deserialize(deserializer)?.map(|path| path.0))
    }
}
