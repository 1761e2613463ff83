//! Errors of a layer's store.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use thiserror::Error;

use tine_failure::{ErrorCode, Failure, ToFailure};

/// Failure of a layer's store.
#[derive(Debug, Error, ToFailure)]
pub enum LayerError {
    /// The operating system refused an operation.
    #[error("{action} {path}: {source}")]
    #[failure(with = io_failed(action, path, source))]
    Io {
        /// Verb of the operation, such as `open`.
        action: &'static str,
        /// File or directory of the operation.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// A file of the layer has wrong bytes or lacks some.
    #[error("{path} is damaged at byte {offset}: {reason}")]
    #[failure(StoreDamaged, message("{} is damaged", path.display()))]
    #[failure(cause = format!("at byte {offset}: {reason}"))]
    Corrupt {
        /// Damaged file.
        path: PathBuf,
        /// Position of the damage, in bytes.
        offset: u64,
        /// Short description of the damage.
        reason: String,
    },
    /// A newer version of the program wrote the layer.
    #[error("{path} has format {found}, this tine knows up to {known}")]
    #[failure(NewerFormat)]
    NewerFormat {
        /// Log of the layer.
        path: PathBuf,
        /// Format version of the log.
        found: u32,
        /// Newest format version that this program reads.
        known: u32,
    },
    /// Another process or [`Layer`](crate::Layer) has the layer open.
    #[error("{path} is in use by another process")]
    #[failure(StoreLocked)]
    Locked {
        /// Log of the layer.
        path: PathBuf,
    },
    /// The layer should be frozen, but its log has no seal.
    #[error("{path} has no seal yet")]
    #[failure(Internal)]
    Unsealed {
        /// Log of the layer.
        path: PathBuf,
    },
    /// The layer is frozen and takes no changes.
    #[error("{path} is frozen")]
    #[failure(Internal)]
    Frozen {
        /// Log of the layer.
        path: PathBuf,
    },
    /// An earlier write or sync failed, so the layer only allows reading.
    #[error(
        "{path} failed to be written before and takes no more changes until it is opened again"
    )]
    #[failure(Io)]
    #[hint(
        "see that the disk is well and has space, then `tine unmount FORK` and `tine mount FORK`"
    )]
    Poisoned {
        /// Log of the layer.
        path: PathBuf,
    },
    /// A panic interrupted a change, so the layer only allows reading.
    #[error(
        "a fault of tine interrupted a change in {path}: nothing more is written there until it is opened again"
    )]
    #[failure(ForkInterrupted)]
    Interrupted {
        /// Log of the layer.
        path: PathBuf,
    },
}

impl LayerError {
    /// Returns a closure for `map_err` that adds the action and the path.
    ///
    /// Example: `LayerError::io("append to", path)`.
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

/// Makes the failure of a system call on a layer.
///
/// A missing file, or one of the wrong kind, is damage.
fn io_failed(action: &str, path: &Path, source: &io::Error) -> Failure {
    match source.kind() {
        ErrorKind::NotFound => Failure::new(
            ErrorCode::StoreDamaged,
            format!("{} is missing", path.display()),
        ),
        ErrorKind::NotADirectory | ErrorKind::IsADirectory => Failure::new(
            ErrorCode::StoreDamaged,
            format!("{} is damaged", path.display()),
        )
        .cause(source.to_string()),
        _ => Failure::io(action, path, source),
    }
}
