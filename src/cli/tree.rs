//! `tine tree`: the tree of forks and their snapshots.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::context::Context;
use super::graph::{self, GraphNode, NodeKind};
use super::output::{Output, Tone};
use super::{Exit, SUCCESS};
use crate::ops::protocol::{ForkInfo, SnapshotInfo};
use crate::ops::{self, ErrorCode, Failure};
use crate::store::ForkName;

/// Draw which fork began as which
///
/// A fork is below the one that it began as, or below that one's snapshot. One whose parent
/// was deleted is by itself and says so.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine tree
  tine tree --svg > forks.svg
  tine tree --dot | dot -Tpng > forks.png")]
pub(super) struct Tree {
    /// Print the language of Graphviz
    #[arg(long, conflicts_with = "svg")]
    pub dot: bool,

    /// Print a picture
    #[arg(long)]
    pub svg: bool,
}

/// Output format of the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Text,
    Dot,
    Svg,
}

/// Fork or snapshot with its children.
#[derive(Serialize)]
struct Branch {
    #[serde(skip_serializing_if = "Option::is_none")]
    fork: Option<ForkName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    snapshot: Option<ForkName>,
    #[serde(skip)]
    about: String,
    #[serde(skip)]
    kind: NodeKind,
    children: Vec<Branch>,
}

#[derive(Serialize)]
struct TreeDocument {
    forks: Vec<Branch>,
}

/// Input of the drawing.
struct Known {
    forks: Vec<ForkInfo>,
    snapshots: BTreeMap<ForkName, Vec<SnapshotInfo>>,
}

pub(super) fn run(tree: &Tree, context: &Context) -> Result<Exit, Failure> {
    let format = match (tree.dot, tree.svg) {
        (true, _) => Format::Dot,
        (false, true) => Format::Svg,
        (false, false) => Format::Text,
    };
    if format != Format::Text && context.output.is_json() {
        return Err(Failure::new(ErrorCode::Usage, "a picture is not JSON")
            .hint("leave out `--json`, or `--dot` and `--svg`"));
    }
    let Some(mut connection) = context.connect_to_forks()? else {
        return print_tree(context, Vec::new(), format);
    };
    let (forks, damaged) = connection.forks()?;
    let mut snapshots = BTreeMap::new();
    for fork in &forks {
        let request = ops::ListSnapshots {
            fork: Some(fork.name.clone()),
        };
        snapshots.insert(fork.name.clone(), connection.call(&request)?.snapshots);
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
    print_tree(context, roots, format)
}

impl Known {
    fn branch(&self, fork: &ForkInfo) -> Branch {
        let snapshots: &[SnapshotInfo] = self.snapshots.get(&fork.name).map_or(&[], |list| list);
        let has = |name: &ForkName| snapshots.iter().any(|snapshot| snapshot.name == *name);
        let children_of = |snapshot: Option<&ForkName>| {
            let began_here = self.forks.iter().filter(move |child| {
                child.parent.as_ref().is_some_and(|parent| {
                    // A child of a snapshot that is gone counts as a child of the fork.
                    let known = parent.snapshot.as_ref().filter(|name| has(name));
                    parent.fork == fork.name && child.name != fork.name && known == snapshot
                })
            });
            began_here
                .map(|child| self.branch(child))
                .collect::<Vec<_>>()
        };
        let mut children: Vec<Branch> = snapshots
            .iter()
            .map(|snapshot| Branch {
                fork: None,
                snapshot: Some(snapshot.name.clone()),
                about: snapshot.message.clone().unwrap_or_default(),
                kind: NodeKind::Snapshot,
                children: children_of(Some(&snapshot.name)),
            })
            .collect();
        children.extend(children_of(None));
        Branch {
            fork: Some(fork.name.clone()),
            snapshot: None,
            about: about(fork, self),
            kind: if fork.mounted {
                NodeKind::Mounted
            } else {
                NodeKind::Unmounted
            },
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

fn print_tree(context: &Context, forks: Vec<Branch>, format: Format) -> Result<Exit, Failure> {
    let output = &context.output;
    if output.is_json() {
        output.json(&TreeDocument { forks })?;
        return Ok(SUCCESS);
    }
    if forks.is_empty() {
        output.note("there are no forks yet: `tine new NAME` makes one");
    }
    let nodes = || forks.iter().map(node_of).collect::<Vec<GraphNode>>();
    let text = match format {
        Format::Dot => graph::dot(&nodes()),
        Format::Svg => graph::svg(&nodes()),
        Format::Text => {
            let mut text = String::new();
            for root in &forks {
                draw(root, "", "", output, &mut text);
            }
            text
        }
    };
    output.text(&text)?;
    Ok(SUCCESS)
}

impl Branch {
    fn label(&self) -> String {
        match (&self.fork, &self.snapshot) {
            (Some(fork), _) => fork.to_string(),
            (None, Some(snapshot)) => format!("@{snapshot}"),
            (None, None) => String::new(),
        }
    }
}

fn node_of(branch: &Branch) -> GraphNode {
    GraphNode {
        label: branch.label(),
        about: branch.about.clone(),
        kind: branch.kind,
        children: branch.children.iter().map(node_of).collect(),
    }
}

/// Draws a branch. Its own line begins with `first`, its children's with `rest`.
fn draw(branch: &Branch, first: &str, rest: &str, output: &Output, text: &mut String) {
    let label = match branch.fork {
        Some(_) => output.paint(Tone::Name, &branch.label()),
        None => branch.label(),
    };
    let line = format!(
        "{first}{label} {}",
        output.paint(Tone::Faint, &branch.about)
    );
    text.push_str(line.trim_end());
    text.push('\n');
    let last = branch.children.len().saturating_sub(1);
    for (number, child) in branch.children.iter().enumerate() {
        let (own, below) = if number == last {
            ("└─ ", "   ")
        } else {
            ("├─ ", "│  ")
        };
        draw(
            child,
            &format!("{rest}{own}"),
            &format!("{rest}{below}"),
            output,
            text,
        );
    }
}
