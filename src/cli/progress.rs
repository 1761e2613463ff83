//! Progress of a slow step, on standard error.

use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Delay before anything is shown.
const PATIENCE: Duration = Duration::from_millis(500);

/// Interval between two updates.
const STEP: Duration = Duration::from_millis(100);

/// Shows a step and its duration until dropped, then clears the line.
pub(super) struct Busy {
    ended: Option<Sender<()>>,
    painter: Option<JoinHandle<()>>,
}

impl Busy {
    pub(super) fn with(what: &'static str) -> Busy {
        let (ended, end) = mpsc::channel::<()>();
        let is_over =
            move |time| !matches!(end.recv_timeout(time), Err(mpsc::RecvTimeoutError::Timeout));
        let painter = thread::Builder::new()
            .name("progress".to_owned())
            .spawn(move || {
                if is_over(PATIENCE) {
                    return;
                }
                let style = ProgressStyle::with_template("{spinner} {msg} {elapsed}")
                    .unwrap_or_else(|_| ProgressStyle::default_spinner());
                let spinner = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr())
                    .with_style(style)
                    .with_elapsed(PATIENCE)
                    .with_message(what);
                spinner.tick();
                while !is_over(STEP) {
                    spinner.tick();
                }
                spinner.finish_and_clear();
            });
        Busy {
            ended: Some(ended),
            // Without a thread there is no progress to see, but everything else works.
            painter: painter.ok(),
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        drop(self.ended.take());
        if let Some(painter) = self.painter.take() {
            // The thread clears the line before anything else is printed.
            let _ = painter.join();
        }
    }
}
