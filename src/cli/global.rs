//! Options that every command takes.

use std::path::PathBuf;

/// When to colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Color {
    Auto,
    Always,
    Never,
}

// Options of every command. (A doc comment here would become the program's own help.)
#[derive(Debug, clap::Args)]
pub(super) struct Global {
    /// Run as if started in DIR; given again, from there
    #[arg(short = 'C', value_name = "DIR", global = true, help_heading = "Global options", value_hint = clap::ValueHint::DirPath)]
    pub dirs: Vec<PathBuf>,

    /// Print one JSON value instead of text; failures too
    #[arg(long, global = true, help_heading = "Global options")]
    pub json: bool,

    /// Colour the output [NO_COLOR is obeyed]
    #[arg(long, global = true, help_heading = "Global options", value_enum, value_name = "WHEN", default_value_t = Color::Auto)]
    pub color: Color,

    /// Print neither notes nor progress; failures stay
    #[arg(short, long, global = true, help_heading = "Global options")]
    pub quiet: bool,

    /// Do not show what is long through a pager
    #[arg(long, global = true, help_heading = "Global options")]
    pub no_pager: bool,

    /// Log to standard error; twice for more
    #[arg(short, long, global = true, help_heading = "Global options", action = clap::ArgAction::Count)]
    pub verbose: u8,
}
