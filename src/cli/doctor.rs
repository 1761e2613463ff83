//! `tine doctor`: checks that this machine and repository have what tine needs.
//!
//! The checks are in `checks`.

use serde::Serialize;

use super::checks::{self, Check, Verdict};
use super::context::Context;
use super::output::{Output, Tone};
use super::{Exit, SUCCESS};
use crate::ops::{ExitCode, Failure};

/// Check what tine needs from this machine and this repository
///
/// One line a check: ok, warn (something will be missing) or fail (tine cannot work), each with a
/// hint. It changes nothing, works outside a repository as well, and ends with exit code 6 where a
/// check failed.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine doctor
  tine doctor --json | jq -r '.checks[] | select(.verdict != \"ok\")'")]
pub(super) struct Doctor {}

#[derive(Serialize)]
struct Report<'a> {
    ok: bool,
    checks: &'a [Check],
}

pub(super) fn run(_: &Doctor, context: &Context) -> Result<Exit, Failure> {
    let checks = checks::all(context);
    let ok = checks.iter().all(|check| check.verdict != Verdict::Fail);
    let (output, report) = (
        &context.output,
        Report {
            ok,
            checks: &checks,
        },
    );
    output.json_or_text(&report, || format_checks(&checks, output))?;
    Ok(if ok {
        SUCCESS
    } else {
        ExitCode::Environment.code()
    })
}

fn format_checks(checks: &[Check], output: &Output) -> String {
    let mut text = String::new();
    for check in checks {
        let (tone, word) = match check.verdict {
            Verdict::Ok => (Tone::Good, "ok  "),
            Verdict::Warn => (Tone::Careful, "warn"),
            Verdict::Fail => (Tone::Bad, "fail"),
        };
        let detail = crate::render::text::one_line(&check.detail);
        text.push_str(&format!(
            "{} {}: {detail}\n",
            output.paint(tone, word),
            check.name
        ));
        if let Some(hint) = &check.hint {
            text.push_str(&format!(
                "     hint: {}\n",
                crate::render::text::one_line(hint)
            ));
        }
    }
    text
}
