//! Failures: what every error becomes before a person or a program sees it.
//!
//! An error names its code, cause and hint at its variant; [`ToFailure`] is derived from that.

mod code;
mod failure;

pub use code::{ErrorCode, ExitCode};
pub use failure::{Failure, is_out_of_files, no_space, out_of_files};
/// Derives [`trait@ToFailure`] for an enum of errors.
pub use tine_failure_derive::ToFailure;

use tine_path::PathError;

/// Error that knows its failure.
///
/// ```
/// #[derive(Debug, thiserror::Error, tine_failure::ToFailure)]
/// enum HouseError {
///     #[error("there is no branch {0:?}")]
///     #[failure(NoSuchBranch)]
///     #[hint("`tine branch create {branch}` makes it", branch = _0)]
///     NoSuchBranch(String),
///     #[error("the object {id} cannot be read: {reason}")]
///     #[failure(CorruptObject, cause = reason)]
///     #[hint("`git fsck` shows what is damaged")]
///     CorruptObject { id: u64, reason: String },
/// }
///
/// let error = HouseError::CorruptObject { id: 7, reason: "it is short".into() };
/// let failure = tine_failure::Failure::from(error);
/// assert_eq!(failure.message, "the object 7 cannot be read");
/// assert_eq!(failure.causes, ["it is short"]);
/// ```
///
/// Expressions see the fields by name, or as `_0` and `_1`, and `self`.
///
/// | attribute | meaning |
/// |---|---|
/// | `#[hint("format", …)]`, `#[hint(EXPRESSION)]` | the hint; without it the code's own |
/// | `#[failure(CODE)]` | the [`ErrorCode`]; it must exist |
/// | `#[failure(cause = EXPRESSION)]` | the cause; the message ends before it, if it is in the error's text |
/// | `#[failure(causes = EXPRESSION)]` | further causes, an iterator |
/// | `#[failure(paths = EXPRESSION)]` | the paths that the failure is about |
/// | `#[failure(message("format", …))]` | the message, where it is not the error's text |
/// | `#[failure(transparent)]` | the failure of the field `_0` |
/// | `#[failure(with = EXPRESSION)]` | the whole failure, where the code depends on the fields |
///
/// At the enum itself the attributes have the values for variants without their own.
///
/// ```compile_fail
/// #[derive(Debug, thiserror::Error, tine_failure::ToFailure)]
/// enum HouseError {
///     #[error("there is no branch {0:?}")]
///     #[failure(NoSuchBrunch)]
///     NoSuchBranch(String),
/// }
/// ```
pub trait ToFailure {
    /// Returns the failure to show.
    fn to_failure(&self) -> Failure;
}

impl<E: ToFailure> From<E> for Failure {
    fn from(error: E) -> Failure {
        error.to_failure()
    }
}

// Its crate is below this one.
impl ToFailure for PathError {
    fn to_failure(&self) -> Failure {
        let message = self.to_string();
        match self {
            PathError::Empty
            | PathError::TooLong
            | PathError::Reserved(_)
            | PathError::ForbiddenByte(_)
            | PathError::Outside(_) => Failure::new(ErrorCode::Usage, message)
                .hint("name a path inside the fork, from its root"),
        }
    }
}
