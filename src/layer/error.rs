//! What can go wrong with a layer's store.

use std::path::PathBuf;

use thiserror::Error;

/// A failure of a layer's store.
#[derive(Debug, Error)]
pub enum LayerError {
    #[error("{action} {path}: {source}")]
    Io {
        action: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{path} is damaged at byte {offset}: {reason}")]
    Corrupt {
        path: PathBuf,
        offset: u64,
        reason: String,
    },
    #[error("{path} has format {found}, this tine knows up to {known}")]
    NewerFormat {
        path: PathBuf,
        found: u32,
        known: u32,
    },
    #[error("{path} is in use by another process")]
    Locked { path: PathBuf },
    #[error("{path} has no seal yet")]
    Unsealed { path: PathBuf },
    #[error("{path} is frozen")]
    Frozen { path: PathBuf },
    #[error(
        "{path} failed to be written before and takes no more changes until it is opened again"
    )]
    Poisoned { path: PathBuf },
    #[error(
        "a fault of tine interrupted a change in {path}: nothing more is written there until it is opened again"
    )]
    Interrupted { path: PathBuf },
}

impl LayerError {
    /// Wraps an I/O error: `LayerError::io("append to", path)` for `map_err`.
    pub fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> LayerError {
        let path = path.into();
        move |source| LayerError::Io {
            action,
            path,
            source,
        }
    }
}
