//! `tine tree`: which fork began as which, with their snapshots.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::context::Context;
use super::output::{Output, Tone};
use super::{Exit, SUCCESS};
use crate::daemon::Failure;
use crate::daemon::protocol::{ForkInfo, SnapshotInfo};
use crate::workspace::ForkName;

/// Draw which fork began as which
///
/// A fork stands beneath the one that it began as, or beneath that one's snapshot. One whose parent was deleted stands by
/// itself and says so.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Example:
  tine tree")]
pub struct Tree {}

/// A fork or a snapshot, and what stands beneath it.
#[derive(Serialize)]
struct Branch {
    #[serde(skip_serializing_if = "Option::is_none")]
    fork: Option<ForkName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    snapshot: Option<ForkName>,
    #[serde(skip)]
    about: String,
    children: Vec<Branch>,
}

#[derive(Serialize)]
struct Drawing {
    forks: Vec<Branch>,
}

/// All that is drawn.
struct Known {
    forks: Vec<ForkInfo>,
    snapshots: BTreeMap<ForkName, Vec<SnapshotInfo>>,
}

pub fn run(_: &Tree, context: &Context) -> Result<Exit, Failure> {
    let Some(mut connection) = context.connect_to_forks()? else {
        return tell(context, Vec::new());
    };
    let (forks, damaged) = connection.forks()?;
    let mut snapshots = BTreeMap::new();
    for fork in &forks {
        snapshots.insert(fork.name.clone(), connection.snapshots(&fork.name)?);
    }
    let known = Known { forks, snapshots };
    let names: BTreeSet<&ForkName> = known.forks.iter().map(|fork| &fork.name).collect();
    let is_root = |fork: &&ForkInfo| {
        let parent = fork.parent.as_ref();
        parent.is_none_or(|parent| !names.contains(&parent.fork))
    };
    let roots = known
        .forks
        .iter()
        .filter(is_root)
        .map(|fork| known.branch(fork))
        .collect();
    for failure in &damaged {
        context.output.trouble(failure);
    }
    tell(context, roots)
}

impl Known {
    fn branch(&self, fork: &ForkInfo) -> Branch {
        let snapshots: &[SnapshotInfo] = self.snapshots.get(&fork.name).map_or(&[], |list| list);
        let has = |name: &ForkName| snapshots.iter().any(|snapshot| snapshot.name == *name);
        let children_of = |snapshot: Option<&ForkName>| {
            let began_here = self.forks.iter().filter(move |child| {
                child.parent.as_ref().is_some_and(|parent| {
                    // A snapshot that is gone is as good as the fork itself.
                    let known = parent.snapshot.as_ref().filter(|name| has(name));
                    parent.fork == fork.name && child.name != fork.name && known == snapshot
                })
            });
            began_here.map(|child| self.branch(child)).collect::<Vec<_>>()
        };
        let mut children: Vec<Branch> = snapshots
            .iter()
            .map(|snapshot| Branch {
                fork: None,
                snapshot: Some(snapshot.name.clone()),
                about: snapshot.message.clone().unwrap_or_default(),
                children: children_of(Some(&snapshot.name)),
            })
            .collect();
        children.extend(children_of(None));
        Branch {
            fork: Some(fork.name.clone()),
            snapshot: None,
            about: about(fork, self),
            children,
        }
    }
}

fn about(fork: &ForkInfo, known: &Known) -> String {
    let branch = fork.branch.as_deref().unwrap_or("detached");
    let gone = fork
        .parent
        .as_ref()
        .filter(|parent| known.forks.iter().all(|other| other.name != parent.fork));
    let origin = gone.map_or(String::new(), |parent| {
        format!(", began as {} (deleted)", parent.fork)
    });
    let state = if fork.mounted { "" } else { ", unmounted" };
    format!("[{branch}{state}{origin}]")
}

fn tell(context: &Context, forks: Vec<Branch>) -> Result<Exit, Failure> {
    let output = &context.output;
    if output.is_json() {
        output.json(&Drawing { forks })?;
        return Ok(SUCCESS);
    }
    if forks.is_empty() {
        output.note("there are no forks yet: `tine new NAME` makes one");
    }
    let mut text = String::new();
    for root in &forks {
        draw(root, "", "", output, &mut text);
    }
    output.text(&text)?;
    Ok(SUCCESS)
}

/// Draws a branch: its own line begins with `first`, those beneath with `rest`.
fn draw(branch: &Branch, first: &str, rest: &str, output: &Output, text: &mut String) {
    let label = match (&branch.fork, &branch.snapshot) {
        (Some(fork), _) => output.paint(Tone::Name, fork.as_str()),
        (None, Some(snapshot)) => format!("@{snapshot}"),
        (None, None) => String::new(),
    };
    let line = format!("{first}{label} {}", output.paint(Tone::Faint, &branch.about));
    text.push_str(line.trim_end());
    text.push('\n');
    let last = branch.children.len().saturating_sub(1);
    for (number, child) in branch.children.iter().enumerate() {
        let (own, beneath) = match number == last {
            true => ("└─ ", "   "),
            false => ("├─ ", "│  "),
        };
        draw(
            child,
            &format!("{rest}{own}"),
            &format!("{rest}{beneath}"),
            output,
            text,
        );
    }
}
