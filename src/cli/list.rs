//! `tine list`: all forks of the repository.

use std::os::unix::ffi::OsStrExt;

use serde::Serialize;

use super::context::Context;
use super::output::{Cell, Output, Tone};
use super::{Exit, SUCCESS};
use crate::client::Client;
use crate::ops;
use crate::ops::Failure;
use crate::ops::protocol::{ForkInfo, RefusedChange, TreeInfo, TreeWord};
use crate::path::shell::shell_word;
use crate::path::text::PathText;
use crate::render::failure::FailureBody;
use crate::render::text::{human_age, human_size, now_secs, one_line, quoted, short_id};
use crate::store::ForkName;

/// List the forks of the repository
///
/// One line a fork: its name, what it began as, the branch it is on, whether it is mounted, what
/// its layer takes on the disk, its age and its path.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine list
  tine list --json | jq -r '.forks[] | select(.mounted | not) | .name'")]
pub(super) struct List {}

#[derive(Serialize)]
struct Listing<'a> {
    forks: Vec<ForkInfo>,
    damaged: Vec<FailureBody<'a>>,
}

pub(super) fn run(_: &List, context: &Context) -> Result<Exit, Failure> {
    let mut connection = context.connect_to_forks()?;
    let (forks, damaged) = match &mut connection {
        Some(connection) => connection.forks()?,
        None => (Vec::new(), Vec::new()),
    };
    let output = &context.output;
    if output.is_json() {
        output.json(&Listing {
            forks,
            damaged: damaged.iter().map(FailureBody::from).collect(),
        })?;
        return Ok(SUCCESS);
    }
    if forks.is_empty() && damaged.is_empty() {
        output.note("there are no forks yet: `tine new NAME` makes one");
    }
    if !forks.is_empty() {
        output.text(&output.table(&rows(&forks, output)))?;
    }
    if let Some(connection) = &mut connection {
        forks
            .iter()
            .for_each(|fork| note_unrequested_changes(fork, connection, output));
    }
    for fork in &forks {
        let trees = fork.carry.iter().flat_map(|carry| &carry.trees);
        note_trees(&fork.name, trees, output);
    }
    for failure in &damaged {
        output.trouble(failure);
    }
    Ok(SUCCESS)
}

/// Most names shown of the files in a mount place.
const SHOWN_NAMES: usize = 10;

/// Notes unrequested changes to a fork: a moved mount place, and files found there.
pub(super) fn note_unrequested_changes(fork: &ForkInfo, connection: &mut Client, output: &Output) {
    let name = &fork.name;
    if let Some(note) = &fork.note {
        output.note(&format!("{name}: {}", one_line(note)));
    }
    if let [newest, earlier @ ..] = fork.refused.as_slice() {
        note_refused(name, std::slice::from_ref(newest), output);
        if !earlier.is_empty() {
            output.note(&format!(
                "{name}: {} more refused: `tine status {name}` names them",
                earlier.len()
            ));
        }
    }
    note_strays(fork, connection, output);
}

/// Notes changes that the mount of an untrusted fork refused.
pub(super) fn note_refused(fork: &ForkName, refused: &[RefusedChange], output: &Output) {
    for change in refused {
        let path = String::from_utf8_lossy(&change.path.to_bytes()).into_owned();
        let place = if change.what == path {
            String::new()
        } else {
            format!(" in {}", quoted(&change.path))
        };
        output.note(&format!(
            "{fork}: refused: {}{place} ({})",
            one_line(&change.what),
            change.reason
        ));
    }
}

/// Notes dependency trees that differ from the main checkout's, with a remedy.
pub(super) fn note_trees<'t>(
    fork: &ForkName,
    trees: impl Iterator<Item = &'t TreeInfo>,
    output: &Output,
) {
    for tree in trees {
        let path = quoted(&tree.path);
        let take_up = format!("`tine update {fork} --carried`");
        let note = match (tree.state, &tree.reason) {
            (TreeWord::Kept, _) if !tree.moved_on => continue,
            (TreeWord::Kept, _) => {
                format!(
                    "the main checkout has moved on from {path} as the fork has it: {take_up} takes up the new one"
                )
            }
            (TreeWord::Keeping, _) => {
                format!(
                    "{path} is being kept; until it is whole the fork follows the main checkout"
                )
            }
            (TreeWord::Following, reason) => format!(
                "{path} is not kept, the fork follows the main checkout: {}; {take_up} tries again",
                reason.as_deref().unwrap_or_default()
            ),
            (TreeWord::Damaged, _) => format!(
                "what was kept of {path} is damaged, the fork follows the main checkout once it is mounted again: {take_up} keeps it anew"
            ),
        };
        output.note(&format!("{fork}: {note}"));
    }
}

/// Formats the first names and the number of the others.
pub(super) fn some_of(names: &[PathText]) -> String {
    let shown: Vec<String> = names.iter().take(SHOWN_NAMES).map(quoted).collect();
    match names.len().saturating_sub(SHOWN_NAMES) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Notes files that were found at a fork's mount place, once.
pub(super) fn note_strays(fork: &ForkInfo, connection: &mut Client, output: &Output) {
    let name = &fork.name;
    if !fork.lying.is_empty() {
        output.note(&format!(
            "{name}: {} in {} while it is not mounted: {}; `tine mount {name}` brings that into the fork",
            if fork.lying.len() == 1 {
                "a file was put"
            } else {
                "files were put"
            },
            shell_word(fork.mount_dir.as_os_str().as_bytes()),
            some_of(&fork.lying)
        ));
    }
    if fork.strays.is_empty() {
        return;
    }
    for stray in &fork.strays {
        let became = if stray.path == stray.became {
            String::new()
        } else {
            format!(" as {}", quoted(&stray.became))
        };
        output.note(&format!(
            "{name}: {} was written while nothing was mounted, and is in the fork now{became}",
            quoted(&stray.path)
        ));
    }
    output.note(&format!(
        "{name}: `tine op log {name}` shows the operation that brought it, `tine undo {name}` takes that back while it is the last"
    ));
    let request = ops::MarkStraysReported {
        fork: name.clone(),
        strays: fork.strays.clone(),
    };
    if let Err(failure) = connection.call(&request) {
        output.trouble(&failure);
    }
}

fn rows(forks: &[ForkInfo], output: &Output) -> Vec<Vec<Cell>> {
    let now_secs = now_secs();
    let carries = forks.iter().any(|fork| fork.carry.is_some());
    let heading = [
        "NAME", "FROM", "BRANCH", "STATE", "LAYER", "AGE", "PATH", "CARRIES",
    ]
    .into_iter()
    .enumerate()
    .filter(|(_, text)| carries || *text != "CARRIES")
    .map(|(column, text)| {
        let cell = Cell::new(text).toned(output, Tone::Faint);
        if matches!(column, 4 | 5) {
            cell.right()
        } else {
            cell
        }
    })
    .collect();
    let mut rows = vec![heading];
    rows.extend(forks.iter().map(|fork| {
        let trust = if fork.untrusted { ", untrusted" } else { "" };
        let state = if fork.mounted {
            Cell::new(format!("mounted{trust}")).toned(output, Tone::Good)
        } else {
            Cell::new(format!("unmounted{trust}")).toned(output, Tone::Faint)
        };
        let mut row = vec![
            Cell::new(fork.name.as_str()).toned(output, Tone::Name),
            Cell::new(origin(fork)).toned(output, Tone::Faint),
            Cell::new(fork.branch.as_deref().unwrap_or("(detached)")),
            state,
            Cell::new(human_size(fork.layer_bytes)).right(),
            Cell::new(human_age(fork.created_secs, now_secs)).right(),
            Cell::new(fork.mount_dir.display().to_string()).ending(),
        ];
        if carries {
            row.push(carried(fork, output));
        }
        row
    }));
    rows
}

/// Returns the origin: another fork, its snapshot, or a commit.
fn origin(fork: &ForkInfo) -> String {
    match (&fork.parent, &fork.fork_point) {
        (Some(parent), _) => match &parent.snapshot {
            Some(snapshot) => format!("{}@{snapshot}", parent.fork),
            None => parent.fork.to_string(),
        },
        (None, Some(commit)) => short_id(commit).to_owned(),
        (None, None) => String::new(),
    }
}

/// Most paths that a line names.
const NAMED: usize = 3;

fn carried(fork: &ForkInfo, output: &Output) -> Cell {
    let Some(carry) = &fork.carry else {
        return Cell::new("");
    };
    if !carry.available {
        let text = format!(
            "nothing: {} is the main checkout no more",
            carry.from.display()
        );
        return Cell::new(text).toned(output, Tone::Careful);
    }
    let named = carry.paths.iter().take(NAMED);
    let mut text: Vec<String> = named
        .map(|path| String::from_utf8_lossy(&path.to_bytes()).into_owned())
        .collect();
    if carry.paths.len() > NAMED {
        text.push(format!("{} more", carry.paths.len() - NAMED));
    }
    Cell::new(text.join(", "))
}
