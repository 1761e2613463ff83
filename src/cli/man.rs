//! `tine man`: man pages and the reference, generated from the command-line definitions.

use std::path::PathBuf;
use std::{fs, io};

use clap_mangen::Man as Page;
use clap_mangen::roff::{Roff, bold, roman};
use serde::Serialize;

use super::context::Context;
use super::{Exit, SUCCESS, args, reference};
use crate::client::failures;
use crate::ops::{ErrorCode, Failure};

/// Print a man page, or write all of them
///
/// `tine man | man -l -` shows the page of tine itself, `tine man round start | man -l -` that of a
/// command. A package or an installer writes all of them with --dir; --markdown prints the
/// reference of all commands.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine man round start | man -l -
  tine man --dir ~/.local/share/man/man1
  tine man --markdown > reference.md")]
pub(super) struct Man {
    /// The command whose page is printed; none: tine's own
    #[arg(value_name = "COMMAND", conflicts_with_all = ["dir", "markdown"])]
    pub command: Vec<String>,

    /// Write the pages of all commands to DIR, which is made if need be
    #[arg(long, value_name = "DIR", conflicts_with = "markdown", value_hint = clap::ValueHint::DirPath)]
    pub dir: Option<PathBuf>,

    /// Print the reference of all commands in Markdown
    #[arg(long)]
    pub markdown: bool,
}

#[derive(Serialize)]
struct Printed {
    name: String,
    page: String,
}

#[derive(Serialize)]
struct Written {
    files: Vec<String>,
}

#[derive(Serialize)]
struct Reference {
    reference: String,
}

pub(super) fn run(verb: &Man, context: &Context) -> Result<Exit, Failure> {
    let root = built();
    if verb.markdown {
        let reference = reference::of(&root);
        if context.output.is_json() {
            context.output.json(&Reference { reference })?;
        } else {
            context.output.text(&reference)?;
        }
        return Ok(SUCCESS);
    }
    if let Some(dir) = &verb.dir {
        fs::create_dir_all(dir).map_err(|error| failures::named("make", dir, &error))?;
        let mut files = Vec::new();
        for command in with_subcommands(&root) {
            let name = file_name(command);
            let path = dir.join(&name);
            fs::write(&path, page(&root, command))
                .map_err(|error| failures::named("write", &path, &error))?;
            files.push(name);
        }
        return if context.output.is_json() {
            context.output.json(&Written { files })
        } else {
            Ok(())
        }
        .map(|()| SUCCESS);
    }
    let mut found = &root;
    for word in &verb.command {
        found = subcommands(found)
            .into_iter()
            .find(|command| {
                command.get_name() == word || command.get_all_aliases().any(|alias| alias == word)
            })
            .ok_or_else(|| {
                Failure::new(
                    ErrorCode::Usage,
                    format!("there is no command {:?}", verb.command.join(" ")),
                )
                .hint("`tine --help` lists the commands")
            })?;
    }
    let page = page(&root, found);
    if context.output.is_json() {
        context.output.json(&Printed {
            name: file_name(found),
            page: String::from_utf8_lossy(&page).into_owned(),
        })?;
    } else {
        context.output.bytes(&page)?;
    }
    Ok(SUCCESS)
}

/// Returns the command line with all full names filled in.
fn built() -> clap::Command {
    let mut command = args::command().disable_help_subcommand(true);
    command.build();
    command
}

/// Returns a command's visible subcommands in the order of its help.
pub(super) fn subcommands(command: &clap::Command) -> Vec<&clap::Command> {
    let shown = command
        .get_subcommands()
        .filter(|command| !command.is_hide_set());
    let mut shown: Vec<&clap::Command> = shown.collect();
    shown.sort_by_key(|command| command.get_display_order());
    shown
}

/// Returns a command and all below it, in the order of help.
pub(super) fn with_subcommands(command: &clap::Command) -> Vec<&clap::Command> {
    let below = subcommands(command).into_iter().flat_map(with_subcommands);
    std::iter::once(command).chain(below).collect()
}

/// Returns the name of a command's page, such as `tine-round-start`.
fn page_name(command: &clap::Command) -> &str {
    command
        .get_display_name()
        .unwrap_or_else(|| command.get_name())
}

fn file_name(command: &clap::Command) -> String {
    format!("{}.1", page_name(command))
}

/// Renders the man page of one command of `root`.
fn page(root: &clap::Command, command: &clap::Command) -> Vec<u8> {
    let page = Page::new(command.clone());
    // The library leaves an empty date out, which would shift the fields after it.
    let title = format!(
        ".TH {} 1 \"\" \"tine {}\" \"tine\"\n",
        page_name(command),
        env!("CARGO_PKG_VERSION")
    );
    let mut text = title.into_bytes();
    text.extend(rendered(|text| page.render_name_section(text)));
    text.extend(synopsis(command).into_bytes());
    text.extend(rendered(|text| page.render_description_section(text)));
    text.extend(rendered(|text| page.render_options_section(text)));
    if !subcommands(command).is_empty() {
        text.extend(rendered(|text| page.render_subcommands_section(text)));
    }
    text.extend(examples(command).into_bytes());
    text.extend(see_also(root, command).into_bytes());
    text
}

fn rendered(render: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> Vec<u8> {
    let mut text = Vec::new();
    render(&mut text).expect("memory takes all that is written");
    text
}

/// Renders the synopsis as the help has it. The library's lacks the options' values.
fn synopsis(command: &clap::Command) -> String {
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]);
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    for (number, usage) in reference::usage(command).iter().enumerate() {
        if number > 0 {
            roff.control("br", []);
        }
        match usage.strip_prefix(name) {
            Some(rest) => roff.text([bold(name), roman(rest)]),
            None => roff.text([roman(usage)]),
        };
    }
    // A long list of alternatives does not fit into a line. Allow troff to break before each.
    roff.render().replace('|', "\\:|")
}

/// Renders the examples as in the help: indented lines keep their columns.
fn examples(command: &clap::Command) -> String {
    let mut roff = Roff::new();
    let (examples, remarks) = reference::examples(command);
    if !examples.is_empty() {
        roff.control("SH", ["EXAMPLES"]);
        roff.control("nf", []);
        for line in examples {
            roff.text([roman(line)]);
        }
        roff.control("fi", []);
    }
    for remark in remarks {
        roff.control("PP", []);
        roff.text([roman(remark)]);
    }
    roff.render()
}

fn see_also(root: &clap::Command, command: &clap::Command) -> String {
    let mut roff = Roff::new();
    roff.control("SH", ["SEE ALSO"]);
    let name = page_name(command);
    let mut others: Vec<&str> = Vec::new();
    let mut above = name;
    while let Some((shorter, _)) = above.rsplit_once('-') {
        above = shorter;
        // A command's own name may have a dash: there is no `tine-cherry`.
        if above == "tine"
            || root
                .find_subcommand(above.trim_start_matches("tine-"))
                .is_some()
        {
            others.push(above);
        }
    }
    others.push("git-worktree");
    let mut line = Vec::new();
    for (number, other) in others.into_iter().enumerate() {
        if number > 0 {
            line.push(roman(", "));
        }
        line.push(bold(other));
        line.push(roman("(1)"));
    }
    roff.text(line);
    roff.render()
}
