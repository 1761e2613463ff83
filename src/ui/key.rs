//! Secret in the page's address. The server refuses requests without it.

use std::fs::File;
use std::hint::black_box;
use std::io::Read;
use std::path::Path;

use tine_ops::Failure;

const KEY_BYTES: usize = 32;

/// Random word, new each time the page is served.
pub(crate) struct Key(String);

impl Key {
    pub(crate) fn new() -> Result<Key, Failure> {
        let mut bytes = [0; KEY_BYTES];
        let source = Path::new("/dev/urandom");
        File::open(source)
            .and_then(|mut random| random.read_exact(&mut bytes))
            .map_err(|error| Failure::io("read", source, &error))?;
        Ok(Key(bytes
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether `word` is the key, in constant time.
    pub(crate) fn is(&self, word: &str) -> bool {
        let (own, given) = (self.0.as_bytes(), word.as_bytes());
        let differs = own
            .iter()
            .zip(given.iter().chain(std::iter::repeat(&0)))
            .fold(0, |differs, (own, given)| {
                black_box(differs | (own ^ given))
            });
        own.len() == given.len() && differs == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_key_is_right() {
        let key = Key::new().unwrap();
        let right = key.as_str().to_owned();
        assert_eq!(right.len(), 64);
        assert!(key.is(&right));
        let other = Key::new().unwrap();
        for wrong in [
            "",
            &right[1..],
            &right[..63],
            &format!("{right}0"),
            other.as_str(),
        ] {
            assert!(!key.is(wrong), "{wrong}");
        }
    }
}
