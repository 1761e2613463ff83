//! Output of a command, read to its end and kept in part.

use std::io::{ErrorKind, Read};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;

use parking_lot::Mutex;

use super::Event;

/// Size of the reads from a pipe, in bytes.
const CHUNK: usize = 64 << 10;

/// Kept part of an output.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunOutput {
    /// Bytes from the beginning.
    pub head: Vec<u8>,
    /// Number of bytes between `head` and `tail` that are not kept.
    pub left_out: u64,
    /// Bytes from the end.
    pub tail: Vec<u8>,
}

impl RunOutput {
    /// Returns the output as text, lossily decoded.
    ///
    /// A line says how many bytes are left out.
    pub fn text(&self) -> String {
        let mut text = String::from_utf8_lossy(&self.head).into_owned();
        if self.left_out > 0 {
            let end = if text.ends_with('\n') { "" } else { "\n" };
            text.push_str(&format!(
                "{end}[{} bytes are left out here]\n",
                self.left_out
            ));
        }
        text.push_str(&String::from_utf8_lossy(&self.tail));
        text
    }
}

/// Output read from a pipe.
pub(super) struct CapturedOutput {
    max: usize,
    head: Vec<u8>,
    /// The newest bytes, and older ones that are dropped in the end.
    tail: Vec<u8>,
    left_out: u64,
    /// True if the output was returned. Later bytes are dropped.
    is_taken: bool,
}

impl CapturedOutput {
    fn add(&mut self, bytes: &[u8]) {
        if self.is_taken {
            return;
        }
        let room = (self.max - self.max / 2).saturating_sub(self.head.len());
        let (first, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(first);
        self.tail.extend_from_slice(rest);
        if self.tail.len() > self.max.max(CHUNK) {
            self.shorten();
        }
    }

    fn shorten(&mut self) {
        let over = self.tail.len().saturating_sub(self.max / 2);
        self.tail.drain(..over);
        self.left_out += over as u64;
    }

    pub(super) fn take(&mut self) -> RunOutput {
        self.shorten();
        self.is_taken = true;
        RunOutput {
            head: std::mem::take(&mut self.head),
            left_out: self.left_out,
            tail: std::mem::take(&mut self.tail),
        }
    }
}

/// Reads a pipe to its end in a thread.
///
/// It keeps reading after the output was returned, because a full pipe would block the processes
/// that still write.
pub(super) fn capture(
    pipe: Option<impl Read + Send + 'static>,
    max: usize,
    sender: &Sender<Event>,
) -> Arc<Mutex<CapturedOutput>> {
    let captured = Arc::new(Mutex::new(CapturedOutput {
        max,
        head: Vec::new(),
        tail: Vec::new(),
        left_out: 0,
        is_taken: false,
    }));
    let (to, closed) = (captured.clone(), sender.clone());
    let read = move || {
        if let Some(mut pipe) = pipe {
            let mut buffer = vec![0; CHUNK];
            loop {
                match pipe.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(count) => to.lock().add(buffer.get(..count).unwrap_or_default()),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(_) => break,
                }
            }
        }
        // The receiver is gone if `run` has returned.
        let _ = closed.send(Event::Closed);
    };
    if let Err(error) = thread::Builder::new()
        .name("tine-output".to_owned())
        .spawn(read)
    {
        log::warn!("a command's output is not read: {error}");
        let _ = sender.send(Event::Closed);
    }
    captured
}
