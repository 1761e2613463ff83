//! Paths in JSON, which holds text: where a path is not UTF-8 its bytes go as base64.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::RepoPath;

/// A path of the repository in JSON: a string where it is UTF-8, else `{"base64": "…"}`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum PathText {
    Text(String),
    Bytes { base64: String },
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
    /// The path's bytes; what is no base64 is empty.
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

/// For `#[serde(with)]`: a path of the repository as [`PathText`].
pub mod repo_path {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{PathText, RepoPath};

    pub fn serialize<S: Serializer>(path: &RepoPath, serializer: S) -> Result<S::Ok, S::Error> {
        PathText::from(path).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<RepoPath, D::Error> {
        let bytes = PathText::deserialize(deserializer)?.to_bytes();
        RepoPath::parse(bytes).map_err(serde::de::Error::custom)
    }
}

/// For `#[serde(with)]`: a directory of the machine as [`PathText`]; it may not be empty.
pub mod host_path {
    use std::ffi::{OsStr, OsString};
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::PathText;

    pub fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        PathText::from(OsStr::as_bytes(path.as_os_str())).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
        let bytes = PathText::deserialize(deserializer)?.to_bytes();
        match bytes.is_empty() {
            true => Err(serde::de::Error::custom("an empty path")),
            false => Ok(PathBuf::from(OsString::from_vec(bytes))),
        }
    }
}

/// As [`host_path`], where it may be missing.
pub mod optional_host_path {
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize)]
    struct Out<'a>(#[serde(with = "super::host_path")] &'a Path);

    #[derive(Deserialize)]
    struct In(#[serde(with = "super::host_path")] PathBuf);

    pub fn serialize<S: Serializer>(
        path: &Option<PathBuf>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        path.as_deref().map(Out).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<PathBuf>, D::Error> {
        Ok(Option::<In>::deserialize(deserializer)?.map(|path| path.0))
    }
}
