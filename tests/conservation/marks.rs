//! Marks: words that stand for pieces of acknowledged work, and what their own actors did to them.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

/// Number of a mark; in files it is written as [`word`].
pub type MarkId = usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file of its own with a name of its own, which no merge can bring into conflict. So no
    /// commit and no view may lack it where what it follows had it.
    File,
    /// A word in a line of a file that others change, too. A strategy or a resolution may leave it
    /// out of a tip, not out of history.
    Line,
    /// A file in the scratch directory of a round's seat.
    Scratch,
    /// What a person typed into an editor: work once it is saved, and in no commit before.
    Typed,
}

#[derive(Clone, Debug)]
pub struct Mark {
    pub actor: usize,
    pub kind: Kind,
    /// The fork in which it was made; none is the main checkout.
    pub fork: Option<String>,
    pub path: String,
    /// When the step that made it began, since the run began.
    pub began: Duration,
    /// Whether its actor was told that it is written.
    pub acknowledged: bool,
    /// Its actor let it go: it need not be anywhere.
    pub released: bool,
    /// Its actor took its fork back to an earlier state: views and tips may lack it, but it must
    /// still be kept somewhere.
    pub taken_back: bool,
}

/// All marks of a run.
#[derive(Default)]
pub struct Marks(Mutex<Vec<Mark>>);

impl Marks {
    pub fn add(&self, mark: Mark) -> MarkId {
        let mut marks = self.0.lock().expect("no holder panics");
        marks.push(mark);
        marks.len() - 1
    }

    pub fn change(&self, id: MarkId, change: impl FnOnce(&mut Mark)) {
        change(&mut self.0.lock().expect("no holder panics")[id]);
    }

    pub fn change_where(&self, which: impl Fn(&Mark) -> bool, change: impl Fn(&mut Mark)) {
        let mut marks = self.0.lock().expect("no holder panics");
        marks.iter_mut().filter(|mark| which(mark)).for_each(change);
    }

    pub fn get(&self, id: MarkId) -> Mark {
        self.0.lock().expect("no holder panics")[id].clone()
    }

    pub fn all(&self) -> Vec<Mark> {
        self.0.lock().expect("no holder panics").clone()
    }

    /// The newest mark that `which` picks.
    pub fn newest(&self, which: impl Fn(&Mark) -> bool) -> Option<MarkId> {
        self.0
            .lock()
            .expect("no holder panics")
            .iter()
            .rposition(which)
    }
}

/// The word that stands for a mark.
pub fn word(id: MarkId) -> String {
    format!("m{id}z")
}

/// All marks whose words occur in `bytes`.
pub fn words_in(bytes: &[u8]) -> BTreeSet<MarkId> {
    let mut found = BTreeSet::new();
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|&byte| byte == b'm') {
        rest = &rest[at + 1..];
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if (1..=9).contains(&digits) && rest.get(digits) == Some(&b'z') {
            let number = std::str::from_utf8(&rest[..digits]).expect("digits are ASCII");
            found.insert(number.parse().expect("nine digits fit"));
        }
    }
    found
}
