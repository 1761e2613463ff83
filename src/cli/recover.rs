//! `tine recover`: lists work that commands dropped, and brings it back.

mod arguments;

use self::arguments::Action;
pub(super) use self::arguments::Recover;
use super::context::Context;
use super::output::{Cell, Output, Tone};
use super::shown::{self, Shown};
use super::{Exit, SUCCESS};
use crate::change::recovery::RecoverKind;
use crate::ops::protocol::{
    OtherRecoverKind, OtherRecoverLine, Purged, RecoverLine, RecoverList, RecoverWork,
    WorkRecovered,
};
use crate::ops::{ExitCode, Failure, ListRecover, Purge, ShowRecover};
use crate::render::text::{
    counted, human_age, human_ago, human_size, now_secs, one_line, short_id,
};
use crate::store::FSCK;
use crate::store::ForkName;

pub(super) fn run(verb: &Recover, context: &Context) -> Result<Exit, Failure> {
    match (&verb.action, verb.id) {
        (Some(Action::List(verb)), _) => shown::run(verb, context),
        (Some(Action::Show(verb)), _) => shown::run(verb, context),
        (Some(Action::Purge(verb)), _) => shown::run(verb, context),
        (None, None) => shown::run(&ListRecover {}, context),
        (None, Some(id)) => recover_work(verb, id, context),
    }
}

impl Shown for ListRecover {
    fn show(&self, list: &RecoverList, context: &Context) -> Result<(), Failure> {
        for failure in &list.damaged {
            context.output.trouble(failure);
        }
        context.output.long(&format_list(list, &context.output))
    }
}

fn format_list(list: &RecoverList, output: &Output) -> String {
    if list.entries.is_empty() && list.elsewhere.is_empty() {
        return "nothing was dropped that could be brought back\n".to_owned();
    }
    let mut text = String::new();
    if !list.entries.is_empty() {
        let mut rows = vec![heading(
            output,
            &["ID", "AGE", "SIZE", "WHAT", "DROPPED BY", "BACK WITH"],
        )];
        rows.extend(list.entries.iter().map(|line| {
            vec![
                Cell::new(line.id.to_string()).right(),
                Cell::new(human_age(line.entry.kept_secs, now_secs())).right(),
                Cell::new(human_size(line.entry.size_bytes)).right(),
                Cell::new(what(line)).toned(output, Tone::Name),
                Cell::new(line.entry.command.as_str()),
                match &line.missing {
                    None => Cell::new(line.recover_command.as_str()).toned(output, Tone::Good),
                    Some(id) => {
                        Cell::new(format!("{} is missing", short_id(id))).toned(output, Tone::Bad)
                    }
                },
            ]
        }));
        text.push_str(&output.table(&rows));
        text.push_str(&format!(
            "{}, {}; {}\n",
            counted_entries(list.entries.len()),
            human_size(list.size_bytes),
            rules(list)
        ));
    }
    if !list.elsewhere.is_empty() {
        if !text.is_empty() {
            text.push('\n');
        }
        let mut rows = vec![heading(
            output,
            &["KEPT ELSEWHERE", "AGE", "WHY", "BACK WITH"],
        )];
        rows.extend(list.elsewhere.iter().map(|line| {
            vec![
                Cell::new(describe_other(line)).toned(output, Tone::Name),
                Cell::new(human_age(line.kept_secs, now_secs())).right(),
                Cell::new(line.because.as_str()),
                Cell::new(line.recover_command.as_str()).toned(output, Tone::Good),
            ]
        }));
        text.push_str(&output.table(&rows));
    }
    text
}

fn heading(output: &Output, words: &[&str]) -> Vec<Cell> {
    let cells = words
        .iter()
        .map(|word| Cell::new(*word).toned(output, Tone::Faint));
    cells.collect()
}

fn counted_entries(count: usize) -> String {
    match count {
        1 => "1 entry".to_owned(),
        _ => format!("{count} entries"),
    }
}

/// Describes when entries expire.
fn rules(list: &RecoverList) -> String {
    let age = list.max_age_secs.map(|secs| {
        format!(
            "{} old",
            human_age(0, i64::try_from(secs).unwrap_or(i64::MAX))
        )
    });
    let size = list
        .max_bytes
        .map(|bytes| format!("all entries take more than {}", human_size(bytes)));
    match (age, size) {
        (None, None) => "they stay until `tine recover purge`".to_owned(),
        (Some(age), None) => format!("each goes when it is {age}"),
        (None, Some(size)) => format!("the oldest go when {size}"),
        (Some(age), Some(size)) => format!("each goes when it is {age}, the oldest when {size}"),
    }
}

fn what(line: &RecoverLine) -> String {
    let entry = &line.entry;
    let fork = entry
        .fork
        .as_ref()
        .map(ForkName::as_str)
        .unwrap_or_default();
    let branch = entry.branch.as_deref().unwrap_or("commits");
    match entry.kind {
        RecoverKind::Fork => {
            let uncommitted = entry
                .uncommitted
                .as_ref()
                .map(|_| "uncommitted changes".to_owned());
            let snapshots = match entry.snapshots.len() {
                0 => None,
                count => Some(counted(count, "snapshot")),
            };
            let refs = match entry.refs.len() {
                0 => None,
                count => Some(counted(count, "ref")),
            };
            let parts = uncommitted.into_iter().chain(snapshots).chain(refs);
            let parts: Vec<String> = parts.collect();
            if parts.is_empty() {
                format!("fork {fork}")
            } else {
                format!("fork {fork}: {}", parts.join(", "))
            }
        }
        RecoverKind::Snapshot => {
            let name = entry
                .snapshots
                .last()
                .map_or("", |snapshot| snapshot.name.as_str());
            format!("snapshot {fork}@{name}")
        }
        RecoverKind::Branch if fork.is_empty() => format!("branch {branch}"),
        RecoverKind::Branch => format!("branch {branch} of {fork}"),
        RecoverKind::Handoff => format!("handoff {}", entry.number.unwrap_or_default()),
        RecoverKind::Review => format!("review {}", entry.number.unwrap_or_default()),
    }
}

fn describe_other(line: &OtherRecoverLine) -> String {
    match (line.what, &line.fork) {
        (OtherRecoverKind::Snapshot, Some(fork)) => format!("snapshot {fork}@{}", line.name),
        (OtherRecoverKind::Snapshot, None) => format!("snapshot {}", line.name),
        (OtherRecoverKind::Review, _) => format!("review {}", line.name),
        (OtherRecoverKind::Damaged, _) => format!("damaged/{}", line.name),
    }
}

impl Shown for ShowRecover {
    fn show(&self, line: &RecoverLine, context: &Context) -> Result<(), Failure> {
        context.output.long(&format_entry(line, &context.output))
    }
}

fn format_entry(line: &RecoverLine, output: &Output) -> String {
    let entry = &line.entry;
    let mut text = format!(
        "{}: {}\ndropped {} by `{}`, {}\n",
        line.id,
        one_line(&what(line)),
        human_ago(entry.kept_secs, now_secs()),
        one_line(&entry.command),
        human_size(entry.size_bytes)
    );
    if let Some(head) = &entry.head {
        let on = entry.branch.as_deref().unwrap_or("no branch");
        text.push_str(&format!(
            "HEAD was {} on {}\n",
            short_id(head),
            one_line(on)
        ));
    }
    let rows: Vec<Vec<Cell>> = entry
        .snapshots
        .iter()
        .map(|snapshot| {
            vec![
                Cell::indented(snapshot.name.as_str()).toned(output, Tone::Name),
                Cell::new(human_age(snapshot.created_secs, now_secs())).right(),
                Cell::new(snapshot.message.as_deref().unwrap_or_default()),
                Cell::new(format!(
                    "tine recover {} NAME --snapshot {}",
                    line.id, snapshot.name
                )),
            ]
        })
        .collect();
    if !rows.is_empty() {
        text.push_str("snapshots:\n");
        text.push_str(&output.table(&rows));
    }
    let rows: Vec<Vec<Cell>> = line
        .entry
        .refs
        .iter()
        .map(|(name, kept)| {
            vec![
                Cell::indented(name.as_str()).toned(output, Tone::Name),
                Cell::new(short_id(&kept.id)),
            ]
        })
        .collect();
    if !rows.is_empty() {
        text.push_str("refs:\n");
        text.push_str(&output.table(&rows));
    }
    let expires = match line.expires_secs {
        Some(secs) if secs > now_secs() => format!(", within {}", human_age(now_secs(), secs)),
        Some(_) => ", before it expires at any moment".to_owned(),
        None => String::new(),
    };
    text.push_str(&match &line.missing {
        None => format!("`{}` brings it back{expires}\n", line.recover_command),
        Some(id) => {
            format!("it does not come back as a whole: the object {id} is not in the repository; {FSCK}\n")
        }
    });
    text
}

fn recover_work(verb: &Recover, id: u64, context: &Context) -> Result<Exit, Failure> {
    let snapshot = verb.snapshot.as_deref().map(ForkName::parse).transpose()?;
    let request = RecoverWork {
        id,
        snapshot,
        name: verb.name.clone(),
        dir: verb.at.as_deref().map(|dir| context.absolute(dir)),
        mount: !verb.no_mount,
    };
    let recovered = context.connect()?.call(&request)?;
    context
        .output
        .json_or(&recovered, || print_recovered(&recovered, context))?;
    Ok(SUCCESS)
}

fn print_recovered(recovered: &WorkRecovered, context: &Context) -> Result<(), Failure> {
    match (&recovered.fork, &recovered.branch, &recovered.commit) {
        (Some(fork), ..) => {
            context.output.path(&fork.mount_dir)?;
            context.output.note(&format!(
                "{} is back{}, without what git ignored in it; `tine recover purge {}` lets its copy go",
                fork.name,
                match recovered.refs {
                    0 => String::new(),
                    count => format!(" with {}", counted(count, "ref")),
                },
                recovered.id
            ));
        }
        (None, Some(branch), Some(commit)) => context.output.text(&format!(
            "{} is back at {}\n",
            one_line(branch),
            short_id(commit)
        ))?,
        _ => {}
    }
    Ok(())
}

impl Shown for Purge {
    fn show(&self, purged: &Purged, context: &Context) -> Result<(), Failure> {
        for failure in &purged.stays {
            context.output.trouble(failure);
        }
        context.output.text(&format_purged(purged))
    }

    fn exit(purged: &Purged) -> Exit {
        if purged.stays.is_empty() {
            SUCCESS
        } else {
            ExitCode::Failure.code()
        }
    }
}

fn format_purged(purged: &Purged) -> String {
    if purged.purged.is_empty() {
        return "nothing was let go of\n".to_owned();
    }
    format!(
        "let go of {}; git frees {} by itself in two weeks, `git gc --prune=now` at once\n",
        counted_entries(purged.purged.len()),
        human_size(purged.size_bytes)
    )
}
