//! The text of configuration files, parsed and written as git does.
//!
//! The parser follows `git_parse_source` in git's `config.c`. The library's parser is not used
//! here: it rejects files that git reads, and a rejected file would hide settings from a check.

/// One setting of a configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Name as `git config --list` prints it: `section.subsection.variable`.
    pub key: Vec<u8>,
    /// Value, or `None` for a key without `=`, which means true.
    pub value: Option<Vec<u8>>,
}

/// A key's parts. Section and variable are in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyParts {
    /// Text before the first dot.
    pub section: Vec<u8>,
    /// Text between the first and the last dot, if there are two.
    pub subsection: Option<Vec<u8>>,
    /// Text after the last dot.
    pub variable: Vec<u8>,
}

impl KeyParts {
    /// Splits a key. A key without a dot is a variable of the section `""`.
    pub fn of(key: &[u8]) -> KeyParts {
        let first = key.iter().position(|&byte| byte == b'.');
        let last = key.iter().rposition(|&byte| byte == b'.');
        let (section, subsection, variable): (&[u8], _, &[u8]) = match (first, last) {
            (Some(first), Some(last)) => (
                key.get(..first).unwrap_or_default(),
                key.get(first + 1..last),
                key.get(last + 1..).unwrap_or_default(),
            ),
            _ => (b"", None, key),
        };
        KeyParts {
            section: section.to_ascii_lowercase(),
            subsection: subsection.map(<[u8]>::to_vec),
            variable: variable.to_ascii_lowercase(),
        }
    }
}

/// Parses `content` as git does, up to the first error.
///
/// Returns the settings before it. The second value is true if git reads the file to its end. Key
/// and value end at a NUL byte, as git's C strings do.
pub fn parse(content: &[u8]) -> (Vec<Setting>, bool) {
    let mut parser = Parser {
        content,
        at: 0,
        is_at_end: false,
    };
    let mut settings = Vec::new();
    let is_whole = parser.file(&mut settings).is_some();
    (settings, is_whole)
}

/// Byte order mark, which git skips as far as it is complete.
const MARK: &[u8] = b"\xef\xbb\xbf";

struct Parser<'a> {
    content: &'a [u8],
    at: usize,
    is_at_end: bool,
}

impl Parser<'_> {
    /// Returns the next byte. CRLF and the end of the file are newlines.
    fn next(&mut self) -> u8 {
        let rest = self.content.get(self.at..).unwrap_or_default();
        match rest {
            [] => {
                self.is_at_end = true;
                b'\n'
            }
            [b'\r', b'\n', ..] => {
                self.at += 2;
                b'\n'
            }
            [byte, ..] => {
                self.at += 1;
                *byte
            }
        }
    }

    /// Parses the file. Returns `None` at an error.
    fn file(&mut self, settings: &mut Vec<Setting>) -> Option<()> {
        if self.content.starts_with(MARK) {
            self.at = MARK.len();
        }
        let mut stem = Vec::new();
        loop {
            match self.next() {
                b'\n' if self.is_at_end => return Some(()),
                byte if is_space(byte) => {}
                b'#' | b';' => while self.next() != b'\n' {},
                b'[' => stem = self.header()?,
                byte if byte.is_ascii_alphabetic() => {
                    let mut key = stem.clone();
                    key.push(byte.to_ascii_lowercase());
                    settings.push(self.setting(key)?);
                }
                _ => return None,
            }
        }
    }

    /// Parses a header after `[`, and returns its keys' start.
    fn header(&mut self) -> Option<Vec<u8>> {
        let mut name = Vec::new();
        loop {
            let byte = self.next();
            match byte {
                _ if self.is_at_end => return None,
                b']' => break,
                byte if is_space(byte) => {
                    self.subsection(&mut name, byte)?;
                    break;
                }
                byte if is_key_byte(byte) || byte == b'.' => name.push(byte.to_ascii_lowercase()),
                _ => return None,
            }
        }
        if name.is_empty() {
            return None;
        }
        name.push(b'.');
        Some(name)
    }

    fn subsection(&mut self, name: &mut Vec<u8>, mut byte: u8) -> Option<()> {
        while is_space(byte) {
            if byte == b'\n' {
                return None;
            }
            byte = self.next();
        }
        if byte != b'"' {
            return None;
        }
        name.push(b'.');
        loop {
            let mut byte = self.next();
            match byte {
                b'\n' => return None,
                b'"' => break,
                b'\\' => {
                    byte = self.next();
                    if byte == b'\n' {
                        return None;
                    }
                }
                _ => {}
            }
            name.push(byte);
        }
        (self.next() == b']').then_some(())
    }

    fn setting(&mut self, mut key: Vec<u8>) -> Option<Setting> {
        let mut byte = self.next();
        while !self.is_at_end && is_key_byte(byte) {
            key.push(byte.to_ascii_lowercase());
            byte = self.next();
        }
        while byte == b' ' || byte == b'\t' {
            byte = self.next();
        }
        let value = match byte {
            b'\n' => None,
            b'=' => Some(until_nul(self.value()?)),
            _ => return None,
        };
        Some(Setting {
            key: until_nul(key),
            value,
        })
    }

    fn value(&mut self) -> Option<Vec<u8>> {
        let mut value = Vec::new();
        let (mut is_quoted, mut is_comment) = (false, false);
        // Length without trailing white space, while there is some.
        let mut trimmed_len = None;
        loop {
            let mut byte = self.next();
            if byte == b'\n' {
                if is_quoted {
                    return None;
                }
                value.truncate(trimmed_len.unwrap_or(value.len()));
                return Some(value);
            }
            if is_comment {
                continue;
            }
            if is_space(byte) && !is_quoted {
                if !value.is_empty() {
                    trimmed_len.get_or_insert(value.len());
                    value.push(byte);
                }
                continue;
            }
            if !is_quoted && (byte == b';' || byte == b'#') {
                is_comment = true;
                continue;
            }
            trimmed_len = None;
            match byte {
                b'\\' => {
                    byte = match self.next() {
                        b'\n' => continue,
                        b't' => b'\t',
                        b'b' => 8,
                        b'n' => b'\n',
                        byte @ (b'\\' | b'"') => byte,
                        _ => return None,
                    };
                    value.push(byte);
                }
                b'"' => is_quoted = !is_quoted,
                byte => value.push(byte),
            }
        }
    }
}

/// Returns whether git's `isspace` holds.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

fn is_key_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

fn until_nul(mut text: Vec<u8>) -> Vec<u8> {
    if let Some(end) = text.iter().position(|&byte| byte == 0) {
        text.truncate(end);
    }
    text
}

/// Appends `setting` with a header to a configuration file's text.
///
/// Returns false and appends nothing if no file can hold the setting.
#[must_use]
pub fn append(text: &mut Vec<u8>, setting: &Setting) -> bool {
    let mut lines = Vec::new();
    let parts = KeyParts::of(&setting.key);
    lines.push(b'[');
    lines.extend_from_slice(&parts.section);
    if let Some(subsection) = &parts.subsection {
        lines.extend_from_slice(b" \"");
        for &byte in subsection {
            if byte == b'"' || byte == b'\\' {
                lines.push(b'\\');
            }
            lines.push(byte);
        }
        lines.push(b'"');
    }
    lines.extend_from_slice(b"]\n\t");
    lines.extend_from_slice(&parts.variable);
    if let Some(value) = &setting.value {
        lines.extend_from_slice(b" = \"");
        for &byte in value {
            match byte {
                b'"' => lines.extend_from_slice(b"\\\""),
                b'\\' => lines.extend_from_slice(b"\\\\"),
                b'\n' => lines.extend_from_slice(b"\\n"),
                b'\t' => lines.extend_from_slice(b"\\t"),
                8 => lines.extend_from_slice(b"\\b"),
                byte => lines.push(byte),
            }
        }
        lines.push(b'"');
    }
    lines.push(b'\n');
    // Some keys from an odd file cannot be written, for example those with an empty section.
    let is_same = parse(&lines) == (vec![setting.clone()], true);
    if is_same {
        text.extend_from_slice(&lines);
    }
    is_same
}
