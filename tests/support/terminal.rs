//! A terminal of a test's own, and a program that runs in it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use nix::pty::{Winsize, openpty};

use super::command::DEFAULT_LIMIT;
use super::{process, wait_until};

/// A program whose standard input, output and error are a terminal.
pub struct Terminal {
    child: Child,
    keyboard: File,
    shown: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Terminal {
    /// Starts `command` on a terminal with so many columns.
    pub fn start(command: &mut Command, columns: u16) -> Terminal {
        let size = Winsize {
            ws_row: 24,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let pty = openpty(&size, None).expect("there are terminals");
        let side = || Stdio::from(pty.slave.try_clone().expect("it can be shared"));
        let mut owned = Command::new("setsid");
        // It is the terminal that its programs find by themselves, too.
        owned
            .args(["--ctty", "--wait"])
            .arg(command.get_program())
            .args(command.get_args());
        if let Some(dir) = command.get_current_dir() {
            owned.current_dir(dir);
        }
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => owned.env(name, value),
                None => owned.env_remove(name),
            };
        }
        let child = owned
            .env("TERM", "xterm")
            .stdin(side())
            .stdout(side())
            .stderr(side())
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?} cannot be run: {error}"));
        drop(pty.slave);
        let shown = Arc::new(Mutex::new(Vec::new()));
        let keyboard = File::from(pty.master.try_clone().expect("it can be shared"));
        let reader = std::thread::spawn({
            let shown = Arc::clone(&shown);
            move || read(pty.master, &shown)
        });
        Terminal {
            child,
            keyboard,
            shown,
            reader: Some(reader),
        }
    }

    /// All that was shown so far, escape sequences and all.
    pub fn shown(&self) -> String {
        let shown = self.shown.lock().expect("the reader does not panic");
        String::from_utf8_lossy(&shown).into_owned()
    }

    #[track_caller]
    pub fn wait_for(&self, text: &str) {
        let what = || format!("{text:?} on the terminal");
        let mut last = String::new();
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_until(&what(), DEFAULT_LIMIT, || {
                last = self.shown();
                last.contains(text)
            });
        }));
        assert!(found.is_ok(), "{} never came: {last:?}", what());
    }

    /// Types.
    pub fn send(&mut self, keys: &str) {
        self.keyboard
            .write_all(keys.as_bytes())
            .expect("somebody reads");
    }

    /// Waits until the program has ended; all that it showed, and how it ended.
    #[track_caller]
    pub fn end(mut self) -> (String, ExitStatus) {
        let mut status = None;
        let limit = DEFAULT_LIMIT;
        wait_until("the program ends", limit, || {
            status = self.child.try_wait().expect("it is our child");
            status.is_some()
        });
        if let Some(reader) = self.reader.take() {
            reader.join().expect("the reader does not panic");
        }
        (self.shown(), status.expect("it has ended"))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            process::kill_group(self.child.id());
            // It was killed: there is nothing else to know.
            let _ = self.child.wait();
        }
    }
}

/// Reads until nobody has the other side open any more, which the kernel tells with an error.
fn read(master: OwnedFd, shown: &Mutex<Vec<u8>>) {
    let mut master = File::from(master);
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = master.read(&mut buffer) {
        let mut shown = shown.lock().expect("nobody panics with it");
        shown.extend_from_slice(&buffer[..count]);
    }
}

/// Runs `command` to its end on a terminal with so many columns; what it showed, with plain
/// newlines.
#[track_caller]
pub fn shown_on_terminal(command: &mut Command, columns: u16) -> String {
    let (shown, status) = Terminal::start(command, columns).end();
    assert!(status.success(), "{command:?}: {status}: {shown}");
    shown.replace("\r\n", "\n")
}
