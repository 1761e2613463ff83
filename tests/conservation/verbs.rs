//! Every command of tine's: the steps that play it, or why none does.

use std::collections::BTreeSet;

use crate::chance::Shape;
use crate::plan::Plan;
use crate::support::{TestRepo, Tine};

enum Played {
    /// By steps of these names.
    By(&'static [&'static str]),
    /// By the oracle, after the steps.
    ByOracle,
    /// The reason.
    Not(&'static str),
}

use Played::{By, ByOracle, Not};

const GROUP: &str = "its commands have lines of their own";
const LOOKS: &str = "it changes nothing";
const SHELL: &str = "it prints what a shell or a reader takes";

const VERBS: [(&str, Played); 96] = [
    ("new", By(&["New"])),
    ("list", ByOracle),
    ("tree", Not(LOOKS)),
    ("path", Not(LOOKS)),
    ("mount", By(&["Mount"])),
    ("unmount", By(&["Unmount", "Stray"])),
    ("delete", By(&["Delete"])),
    (
        "convert",
        Not("a plan plays forks of one kind; tests/own_git converts them"),
    ),
    ("exec", By(&["Write", "Move", "Remove"])),
    ("shell", Not("as `exec`, which is played")),
    ("mcp", By(&["Write", "Line", "Move", "Remove"])),
    ("status", Not(LOOKS)),
    ("diff", Not(LOOKS)),
    ("revert", By(&["Revert", "RevertTo"])),
    ("commit", By(&["Commit", "CommitEdited"])),
    ("branch", Not(GROUP)),
    ("branch list", Not(LOOKS)),
    ("branch create", By(&["BranchCreate"])),
    ("branch delete", By(&["BranchDelete", "OldBranchDelete"])),
    ("branch rename", By(&["BranchRename"])),
    ("branch switch", By(&["Switch"])),
    ("merge", By(&["Merge", "MergeEdited"])),
    ("update", By(&["Update", "UpdateFetch"])),
    ("cherry-pick", By(&["CherryPick"])),
    ("apply", By(&["Apply"])),
    ("review", Not(GROUP)),
    ("review list", By(&["Resolve"])),
    ("review show", By(&["Resolve"])),
    ("review diff", ByOracle),
    ("review commit", By(&["Resolve"])),
    ("review refresh", By(&["ReviewRefresh"])),
    ("review abort", By(&["ReviewAbort"])),
    ("resolve", By(&["Resolve"])),
    ("push", By(&["Push", "PushAs", "PushDelete"])),
    ("fetch", By(&["Fetch"])),
    ("handoff", Not(GROUP)),
    ("handoff create", By(&["HandoffCreate"])),
    ("handoff list", By(&["HandoffApply"])),
    ("handoff show", Not(LOOKS)),
    ("handoff diff", ByOracle),
    ("handoff await", Not(LOOKS)),
    ("handoff apply", By(&["HandoffApply"])),
    ("handoff delete", By(&["HandoffDelete"])),
    ("handoff import", By(&["HandoffImport"])),
    ("round", Not(GROUP)),
    ("round start", By(&["RoundStart"])),
    ("round finish", By(&["RoundFinish"])),
    ("round show", By(&["RoundWork"])),
    ("round diff", Not(LOOKS)),
    ("round compare", Not(LOOKS)),
    ("round present", By(&["RoundPresent"])),
    ("round merge", By(&["RoundMerge"])),
    ("round attempt", Not("it counts, and touches no work")),
    ("round clean", By(&["RoundClean"])),
    ("buffer", Not(GROUP)),
    ("buffer list", Not(LOOKS)),
    ("buffer show", Not(LOOKS)),
    ("buffer merge", By(&["BufferMerge"])),
    ("buffer serve", By(&["OpenFile", "Type", "Save"])),
    ("log", Not(LOOKS)),
    (
        "snapshot",
        By(&["Snapshot", "SnapshotDelete", "SnapshotEdited"]),
    ),
    ("snapshots", ByOracle),
    ("restore", By(&["Restore", "RestorePath", "RestoreExact"])),
    ("reset", By(&["Reset"])),
    ("recover", By(&["Recover"])),
    ("recover list", Not("as `recover`, which is played")),
    ("recover show", Not(LOOKS)),
    (
        "recover purge",
        Not("it lets entries go that have the work of others too"),
    ),
    ("gc", By(&["Gc"])),
    ("check", By(&["Check"])),
    ("ls", By(&["RestoreExact"])),
    ("stat", Not(LOOKS)),
    ("cat", By(&["AgentWrites"])),
    ("write", By(&["Write", "AgentWrites"])),
    ("mv", By(&["Move"])),
    ("rm", By(&["Remove"])),
    ("undo", By(&["Undo"])),
    ("redo", By(&["Redo"])),
    ("op", Not(GROUP)),
    ("op log", Not(LOOKS)),
    ("edit", By(&["Line", "AgentEdits"])),
    ("search", Not(LOOKS)),
    ("run", By(&["Line"])),
    ("context", Not(LOOKS)),
    ("ui", Not("a page over what is played; tests/ui.rs has it")),
    ("daemon", Not(GROUP)),
    (
        "daemon start",
        Not("the next command after each end of the daemon starts it"),
    ),
    ("daemon stop", By(&["StopDaemon"])),
    ("daemon status", Not(LOOKS)),
    ("doctor", Not(LOOKS)),
    ("stats", Not(LOOKS)),
    ("top", Not(LOOKS)),
    ("completions", Not(SHELL)),
    ("shell-init", Not(SHELL)),
    ("man", Not(SHELL)),
    (
        "uninstall",
        Not("all that the others work with would go; tests/install.rs has it"),
    ),
];

/// Every command, as the built binary lists them.
fn commands() -> Vec<String> {
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let reference = tine.ok(&["man", "--markdown"]);
    let headings = reference
        .lines()
        .filter_map(|line| line.strip_prefix("## `tine ")?.strip_suffix('`'));
    headings.map(str::to_owned).collect()
}

#[test]
fn every_command_is_played_or_says_why_not() {
    let listed: BTreeSet<String> = VERBS.iter().map(|(verb, _)| (*verb).to_owned()).collect();
    assert_eq!(listed.len(), VERBS.len(), "a command is listed twice");
    let commands: BTreeSet<String> = commands().into_iter().collect();
    let unlisted: Vec<&String> = commands.difference(&listed).collect();
    assert!(
        unlisted.is_empty(),
        "have a step for {unlisted:?} in tests/conservation/plan.rs and chance.rs, and name it in tests/conservation/verbs.rs, or say there why not"
    );
    let gone: Vec<&String> = listed.difference(&commands).collect();
    assert!(gone.is_empty(), "no such command: {gone:?}");
    for (verb, played) in &VERBS {
        if let Not(why) = played {
            assert!(!why.is_empty(), "{verb}: say why it is not played");
        }
    }
}

#[test]
fn plans_have_every_step_that_plays_a_command() {
    let shape = Shape::from_environment();
    let mut made = BTreeSet::new();
    for seed in 0..64 {
        for actor in Plan::generate(seed, &shape).0 {
            made.extend(actor.steps.iter().map(|step| {
                let text = format!("{step:?}");
                let end = text.find(|c: char| !c.is_alphanumeric());
                text[..end.unwrap_or(text.len())].to_owned()
            }));
        }
    }
    for (verb, played) in &VERBS {
        let steps = match played {
            By(steps) => *steps,
            ByOracle | Not(_) => continue,
        };
        for step in steps {
            assert!(made.contains(*step), "{verb}: no plan has a step {step}");
        }
    }
}
