//! Rounds as text.

use std::path::Path;

use crate::change::round::SeatState;
use crate::cli::output::{Cell, Output, Tone};
use crate::ops::protocol::{
    AttemptCounted, ReaderShown, RoundCompared, RoundFinished, RoundsCleaned, SeatShown,
    SessionShown, WorkShown,
};
use crate::path::shell::shell_word;
use crate::render::text::{counted, one_line, quoted, short_id};

/// Formats a session with all agents.
pub(super) fn format_session(shown: &SessionShown, output: &Output) -> String {
    let mut text = format!(
        "{}: round {}, from {}\n",
        shown.session,
        shown.round,
        short_id(&shown.base_commit)
    );
    let mut rows = Vec::new();
    for agent in &shown.agents {
        if let Some(seat) = agent.seat.as_ref().or(agent.before.as_ref()) {
            rows.push(row(agent.agent.as_str(), seat, agent.budget, output));
        }
    }
    if let Some(seat) = &shown.presenter {
        rows.push(row("(presenter)", seat, None, output));
    }
    text.push_str(&output.table(&rows));
    for archive in &shown.archives {
        text.push_str(&format!(
            "scratch of {} in round {}: {}\n",
            archive.label,
            archive.round,
            one_line(&archive.path.display().to_string())
        ));
    }
    text
}

fn row(agent: &str, seat: &SeatShown, budget: Option<u64>, output: &Output) -> Vec<Cell> {
    let (state, tone) = match seat.state {
        SeatState::Planned => ("planned", Tone::Careful),
        SeatState::Open => ("open", Tone::Good),
        SeatState::Finishing => ("finishing", Tone::Careful),
        SeatState::Finished => ("finished", Tone::Faint),
    };
    let name = seat.branch.clone().unwrap_or_else(|| seat.fork.to_string());
    let attempts = match (seat.attempts, budget) {
        (0, None) => String::new(),
        (attempts, None) => counted(usize::try_from(attempts).unwrap_or(usize::MAX), "attempt"),
        (attempts, Some(budget)) => format!("{attempts} of {budget} attempts"),
    };
    let place = match &seat.mount_dir {
        Some(dir) if seat.mounted => dir.display().to_string(),
        _ => String::new(),
    };
    vec![
        Cell::new(agent).toned(output, Tone::Name),
        Cell::new(seat.label.as_str()),
        Cell::new(name),
        Cell::new(state).toned(output, tone),
        Cell::new(size(&seat.work)),
        Cell::new(attempts),
        Cell::new(place),
    ]
}

/// Formats a size as `git diff --shortstat` does.
fn size(work: &WorkShown) -> String {
    if let Some(damage) = &work.damage {
        return format!("not whole: {}", one_line(damage));
    }
    let mut text = match work.files_changed {
        0 => "no change".to_owned(),
        files => format!(
            "{}, +{} -{}",
            counted(files, "file"),
            work.insertions,
            work.deletions
        ),
    };
    if work.uncommitted {
        text.push_str(", uncommitted");
    }
    text
}

/// Formats what one agent may know.
pub(super) fn format_reader(shown: &ReaderShown, output: &Output) -> String {
    let mut text = format!("round {}\n", shown.round);
    let own = shown
        .branch
        .clone()
        .or_else(|| shown.fork.as_ref().map(ToString::to_string));
    let mut rows = Vec::new();
    if let Some(own) = own {
        let work = shown.work.as_ref().map(size).unwrap_or_default();
        rows.push(vec![
            Cell::new("you").toned(output, Tone::Name),
            Cell::new(own),
            Cell::new(work),
            Cell::new(""),
        ]);
    }
    for other in &shown.others {
        let name = other
            .branch
            .clone()
            .unwrap_or_else(|| other.fork.to_string());
        let archive = other
            .archive
            .as_ref()
            .map(|path| path.display().to_string());
        rows.push(vec![
            Cell::new(other.label.as_str()).toned(output, Tone::Name),
            Cell::new(name),
            Cell::new(size(&other.work)),
            Cell::new(archive.unwrap_or_default()),
        ]);
    }
    text.push_str(&output.table(&rows));
    text
}

/// Formats a text for a prompt: full sentences without terminal control characters.
pub(super) fn format_prompt(shown: &ReaderShown) -> String {
    let mut text = format!("This is round {}.\n", shown.round);
    if let Some(dir) = &shown.mount_dir {
        text.push_str(&format!(
            "Your working directory is {}.\n",
            one_line(&dir.display().to_string())
        ));
    }
    if let (Some(branch), Some(work)) = (&shown.branch, &shown.work) {
        text.push_str(&format!(
            "You are on the branch {branch}, which began at {}.\n",
            short_id(&work.base_commit)
        ));
    }
    if let Some(branch) = &shown.previous_branch {
        text.push_str(&format!(
            "What you did in the round before is on {branch}.\n"
        ));
    }
    text.push_str(&format!(
        "Notes and experiments go into {}/, which git does not see.\n",
        shown.scratch
    ));
    if let Some(budget) = shown.budget {
        text.push_str(&format!(
            "You have made {} of {budget} verification attempts.\n",
            shown.attempts
        ));
    }
    if shown.others.is_empty() {
        text.push_str("Nobody else has finished anything yet.\n");
        return text;
    }
    text.push_str("\nWhat the others have finished:\n");
    for other in &shown.others {
        let how = match &other.branch {
            Some(branch) => format!(
                "{branch} (`git diff {}...{}`)",
                short_id(&other.work.base_commit),
                shell_word(branch)
            ),
            None => format!(
                "`git diff {} {}`",
                short_id(&other.work.base_commit),
                short_id(&other.work.tree)
            ),
        };
        text.push_str(&format!("- {}: {how}, {}", other.label, size(&other.work)));
        if let Some(archive) = &other.archive {
            text.push_str(&format!(
                "; notes in {}",
                one_line(&archive.display().to_string())
            ));
        }
        text.push('\n');
    }
    text
}

pub(super) fn format_finished(finished: &RoundFinished) -> String {
    let mut text = String::new();
    for seat in &finished.finished {
        let name = seat.branch.clone().unwrap_or_else(|| seat.fork.to_string());
        text.push_str(&format!("{}: {name} is finished", seat.agent));
        if let Some(commit) = &seat.committed {
            text.push_str(&format!(", what was uncommitted is {}", short_id(commit)));
        }
        if let Some(archive) = &seat.archive {
            text.push_str(&format!(
                "; scratch in {}",
                one_line(&archive.display().to_string())
            ));
        }
        text.push('\n');
    }
    if let Some(written) = &finished.written {
        text.push_str(&format!(
            "{}: {} written, {} deleted; what it was is {}\n",
            one_line(&written.directory.display().to_string()),
            written.written.len(),
            written.deleted.len(),
            written.before
        ));
    }
    text
}

/// Formats the results of all agents, and their pairwise comparison.
pub(super) fn format_comparison(compared: &RoundCompared, output: &Output) -> String {
    let heading = |words: &[&str]| -> Vec<Cell> {
        let cells = words
            .iter()
            .map(|word| Cell::new(*word).toned(output, Tone::Faint));
        cells.collect()
    };
    let mut rows = vec![heading(&["AGENT", "BRANCH", "FILES", "+", "-"])];
    for result in &compared.results {
        let work = &result.work;
        rows.push(vec![
            Cell::new(result.agent.as_str()).toned(output, Tone::Name),
            Cell::new(result.branch.clone().unwrap_or_default()),
            Cell::new(work.files_changed.to_string()).right(),
            Cell::new(work.insertions.to_string()).right(),
            Cell::new(work.deletions.to_string()).right(),
        ]);
    }
    let mut text = output.table(&rows);
    if compared.pairs.is_empty() {
        return text;
    }
    let mut rows = vec![heading(&["PAIR", "OVERLAP", "CONFLICTS", ""])];
    for pair in &compared.pairs {
        let conflicts = pair.conflicts.len();
        let tone = if conflicts == 0 {
            Tone::Good
        } else {
            Tone::Bad
        };
        let paths: Vec<String> = pair.conflicts.iter().map(quoted).collect();
        rows.push(vec![
            Cell::new(format!("{} {}", pair.a, pair.b)).toned(output, Tone::Name),
            Cell::new(pair.overlap.len().to_string()).right(),
            Cell::new(conflicts.to_string()).toned(output, tone).right(),
            Cell::new(paths.join(" ")),
        ]);
    }
    text.push('\n');
    text.push_str(&output.table(&rows));
    text
}

pub(super) fn format_attempt(counted: &AttemptCounted) -> String {
    match counted.budget {
        Some(budget) => format!("attempt {} of {budget}", counted.attempts),
        None => format!("attempt {}", counted.attempts),
    }
}

/// Formats the removed seats. `place`: the repository kept for a directory without git.
pub(super) fn format_cleaned(cleaned: &RoundsCleaned, place: Option<&Path>) -> String {
    let tine = match place {
        Some(dir) => format!("tine -C {}", one_line(&dir.display().to_string())),
        None => "tine".to_owned(),
    };
    let mut text = String::new();
    for seat in &cleaned.seats {
        let name = seat.branch.clone().unwrap_or_else(|| seat.fork.to_string());
        text.push_str(&format!("removed {name} of {}", seat.agent));
        if let (Some(commit), true) = (&seat.commit, seat.unmerged) {
            text.push_str(&format!(
                ", which was at {} and merged nowhere",
                short_id(commit)
            ));
        }
        let ways: Vec<String> = seat
            .recover
            .iter()
            .map(|id| format!("`{tine} recover {id} NAME`"))
            .collect();
        if !ways.is_empty() {
            text.push_str(&format!(" ({} brings it back)", ways.join(", ")));
        }
        if let (None, true) = (&seat.commit, seat.unmerged) {
            text.push_str(", which was merged nowhere and is gone with the session's repository");
        }
        text.push('\n');
    }
    if let Some(archives) = &cleaned.archives {
        text.push_str(&format!(
            "archived scratch stays in {}\n",
            one_line(&archives.display().to_string())
        ));
    }
    text
}
