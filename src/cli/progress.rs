//! What is going on, on standard error, as long as it takes.

use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// What takes less is not worth a word.
const PATIENCE: Duration = Duration::from_millis(500);

/// How often it moves.
const STEP: Duration = Duration::from_millis(100);

/// Shows what is going on, and for how long, until it is dropped: nothing is left of it then.
pub(super) struct Busy {
    ended: Option<Sender<()>>,
    shower: Option<JoinHandle<()>>,
}

impl Busy {
    pub(super) fn with(what: &'static str) -> Busy {
        let (ended, end) = mpsc::channel::<()>();
        let is_over =
            move |time| !matches!(end.recv_timeout(time), Err(mpsc::RecvTimeoutError::Timeout));
        let shower = thread::Builder::new()
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
            // Without a thread there is no progress to see, and nothing else is amiss.
            shower: shower.ok(),
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        drop(self.ended.take());
        if let Some(shower) = self.shower.take() {
            // It has cleared the line before anything else is said.
            let _ = shower.join();
        }
    }
}
