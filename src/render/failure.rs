//! Failures in JSON.

use schemars::JsonSchema;
use serde::Serialize;

use tine_ops::{ErrorCode, Failure};
use tine_path::text::PathText;

/// Failure of a command as a JSON object.
#[derive(Serialize)]
pub struct FailureObject<'a> {
    /// The failure itself.
    pub error: FailureBody<'a>,
}

impl<'a> From<&'a Failure> for FailureObject<'a> {
    fn from(failure: &'a Failure) -> FailureObject<'a> {
        FailureObject {
            error: FailureBody::from(failure),
        }
    }
}

/// A failure in JSON.
#[derive(Serialize, JsonSchema)]
pub struct FailureBody<'a> {
    /// Stable, for machines.
    #[schemars(with = "String")]
    code: ErrorCode,
    message: &'a str,
    /// What lay beneath it, outermost first.
    causes: &'a [String],
    /// The paths that it is about, where they are known.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    paths: &'a [PathText],
    /// What to do next.
    hint: Option<&'a str>,
    /// The exit code of a command that fails so.
    exit: u8,
}

impl<'a> FailureBody<'a> {
    /// Converts the failure of a command that exits with `exit`.
    pub fn of(failure: &'a Failure, exit: u8) -> FailureBody<'a> {
        FailureBody {
            code: failure.code,
            message: &failure.message,
            causes: &failure.causes,
            paths: &failure.paths,
            hint: failure.hint.as_deref(),
            exit,
        }
    }
}

impl<'a> From<&'a Failure> for FailureBody<'a> {
    fn from(failure: &'a Failure) -> FailureBody<'a> {
        FailureBody::of(failure, failure.exit.code())
    }
}
