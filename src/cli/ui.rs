//! `tine ui`: forks, diffs, reviews, handoffs and rounds in a browser.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;

use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::context::Context;
use super::{Exit, SUCCESS};
use crate::ops::{ErrorCode, Failure};
use crate::sys::process;
use crate::ui::{PageContext, Server};

/// Show forks, diffs, reviews and handoffs in a browser
///
/// The page is served on a port of 127.0.0.1 until Ctrl-C ends it. Its address holds a secret that
/// is new each time: who has the address may do what the page can. It shows the graph of forks,
/// what each has changed, and follows what happens. Conflicts of a review are resolved there as
/// `tine resolve` does, and handoffs applied.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine ui
  tine ui --no-open --port 8123     for a browser elsewhere, with `ssh -L 8123:127.0.0.1:8123`")]
pub(super) struct Ui {
    /// The port of 127.0.0.1 [default: a free one]
    #[arg(
        short,
        long,
        value_name = "N",
        default_value_t = 0,
        hide_default_value = true
    )]
    pub port: u16,

    /// Print the address and open no browser
    #[arg(long)]
    pub no_open: bool,
}

#[derive(Serialize)]
struct Document<'a> {
    address: &'a str,
    port: u16,
}

pub(super) fn run(verb: &Ui, context: &Context) -> Result<Exit, Failure> {
    let common_dir = context.repository()?.common_dir().to_owned();
    let git_dir = context.git_dir()?;
    // Reports problems of the repository here and not in the browser.
    drop(context.connect()?);
    let place = PageContext {
        common_dir,
        git_dir,
        cwd: context.cwd().to_owned(),
    };
    let server = Arc::new(Server::bind(verb.port, place)?);
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(|error| {
        Failure::new(ErrorCode::Io, "the page cannot wait for Ctrl-C").cause(error.to_string())
    })?;
    let ending = server.clone();
    thread::spawn(move || {
        if signals.forever().next().is_some() {
            ending.end();
        }
    });
    // The current directory would keep its fork's mount busy.
    context.step_out();
    let address = server.address();
    if context.output.is_json() {
        context.output.json(&Document {
            address: &address,
            port: server.port(),
        })?;
    } else {
        context.output.text(&format!("{address}\n"))?;
        context.output.note("Ctrl-C ends it");
    }
    if !verb.no_open && !context.output.is_json() {
        open(&address, context);
    }
    server.run();
    Ok(SUCCESS)
}

/// Opens a browser if there is a display.
///
/// A failure is only noted, because the address was printed.
fn open(address: &str, context: &Context) {
    let has_screen = ["DISPLAY", "WAYLAND_DISPLAY", "BROWSER"]
        .iter()
        .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()));
    if !has_screen {
        return;
    }
    let mut browser = Command::new("xdg-open");
    browser
        .arg(address)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    process::inherit_standard_streams_only(&mut browser);
    match browser.spawn() {
        Ok(mut browser) => {
            // Reaps the browser process, which may run for long.
            thread::spawn(move || browser.wait());
        }
        Err(error) => context.output.note(&format!(
            "no browser was opened (xdg-open: {error}): open the address in one"
        )),
    }
}
