//! `tine revert`: takes paths of a fork back to what they were.

use std::ffi::OsString;

use super::context::Context;
use super::inside::Inside;
use super::output::Output;
use super::restore::lacking;
use super::status::change_text;
use super::{Exit, SUCCESS};
use crate::ops::Failure;
use crate::ops::protocol::{RevertRequest, Reverted};
use crate::render::nodes::shown;
use crate::render::text::counted;

/// Take paths of a fork back to what they were, mounted or not
///
/// Each path, with all beneath it, becomes what it is at the fork point: what changed is put back, what was removed comes
/// again, what was added goes. --to names another point: a snapshot, another fork, or a revision. All in one step, or nothing.
/// Ignored files are no part of it; where one is in the way of something, that is told and nothing changes without --force.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine revert fix-parser src/lexer.rs docs
  tine revert fix-parser . --dry-run             what would be taken back
  tine revert fix-parser src --to HEAD           to the fork's last commit
  tine revert fix-parser Cargo.lock --to fork:other")]
pub struct Revert {
    /// The fork
    #[arg(value_name = "FORK")]
    pub fork: String,

    /// From the fork's root, or absolute in its mount; `.` is everything
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<OsString>,

    /// Take them back to a snapshot, fork or revision [default: pristine]
    #[arg(long, value_name = "POINT")]
    pub to: Option<String>,

    /// Let go what is in the way and in no changeset
    #[arg(short, long)]
    pub force: bool,

    /// Show what would be done, and change nothing
    #[arg(short = 'n', long)]
    pub dry_run: bool,

    /// Take them exactly as they are there, also where HEAD has commits of others by now that they lack
    #[arg(long)]
    pub exact: bool,
}

pub fn run(verb: &Revert, context: &Context) -> Result<Exit, Failure> {
    let wish = Wish {
        fork: &verb.fork,
        paths: &verb.paths,
        to: verb.to.as_deref(),
        force: verb.force,
        dry_run: verb.dry_run,
        exact: verb.exact,
    };
    wish.carry_out(context)
}

/// What is to be taken back.
pub struct Wish<'a> {
    pub fork: &'a str,
    pub paths: &'a [OsString],
    pub to: Option<&'a str>,
    pub force: bool,
    pub dry_run: bool,
    pub exact: bool,
}

impl Wish<'_> {
    pub fn carry_out(&self, context: &Context) -> Result<Exit, Failure> {
        let mut inside = Inside::new(context, self.fork)?;
        let paths = inside.paths(self.paths.iter().map(OsString::as_os_str))?;
        let request = RevertRequest {
            fork: inside.fork.clone(),
            paths,
            to: self.to.map(str::to_owned),
            force: self.force,
            dry_run: self.dry_run,
            exact: self.exact,
        };
        let reverted = inside.connection.call(&request)?;
        if let Some(word) = self.to {
            context.output.note_meaning(word, &reverted.to);
        }
        for path in &reverted.left_alone {
            context.output.note(&format!(
                "{} is left alone: what a submodule stands on is changed in there",
                shown(path)
            ));
        }
        match context.output.is_json() {
            true => context.output.json(&reverted)?,
            false => context.output.text(&told(&reverted, &context.output))?,
        }
        Ok(SUCCESS)
    }
}

fn told(reverted: &Reverted, output: &Output) -> String {
    let mut text: String = reverted
        .changes
        .iter()
        .map(|change| change_text(change, output))
        .collect();
    let (count, point) = (reverted.changes.len(), &reverted.to.point);
    text.push_str(&match (count, reverted.dry_run) {
        (0, _) => format!("nothing to take back: it is as at {point}\n"),
        (_, false) => format!(
            "{} taken back to {point}; `tine undo {}` takes that back\n",
            counted(count, "path"),
            reverted.fork
        ),
        (_, true) => format!("{} would be taken back to {point}\n", counted(count, "path")),
    });
    text.push_str(&lacking(&reverted.left_out));
    text
}
