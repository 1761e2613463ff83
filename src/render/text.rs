//! Formatting of text, paths, sizes and times for people.

use std::fmt::Write as _;

use tine_attr::Timestamp;
use tine_path::text::PathText;

/// Puts `text` on one line.
///
/// Line feeds and tabs become spaces and carriage returns are dropped. Other control characters,
/// which could control the terminal, are escaped.
pub fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.trim().chars() {
        match character {
            '\n' | '\t' => line.push(' '),
            '\r' => {}
            c if c.is_control() => {
                let _ = write!(line, "\\x{:02x}", u32::from(c));
            }
            c => line.push(c),
        }
    }
    line
}

/// Quotes a repository path as git does.
///
/// A path with control characters, quotes, backslashes or bytes that are not UTF-8 is put in double
/// quotes, with C escapes. Any other path is returned unchanged.
pub fn quoted(path: &PathText) -> String {
    let bytes = path.to_bytes();
    let plain = std::str::from_utf8(&bytes).ok().filter(|text| {
        !text
            .chars()
            .any(|c| c.is_control() || c == '"' || c == '\\')
    });
    if let Some(plain) = plain {
        return plain.to_owned();
    }
    let mut quoted = String::from("\"");
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '"' => quoted.push_str("\\\""),
                '\\' => quoted.push_str("\\\\"),
                '\n' => quoted.push_str("\\n"),
                '\t' => quoted.push_str("\\t"),
                '\r' => quoted.push_str("\\r"),
                '\x07' => quoted.push_str("\\a"),
                '\x08' => quoted.push_str("\\b"),
                '\x0b' => quoted.push_str("\\v"),
                '\x0c' => quoted.push_str("\\f"),
                c if c.is_control() => {
                    push_octal(&mut quoted, c.encode_utf8(&mut [0; 4]).as_bytes())
                }
                c => quoted.push(c),
            }
        }
        push_octal(&mut quoted, chunk.invalid());
    }
    quoted.push('"');
    quoted
}

fn push_octal(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        let _ = write!(text, "\\{byte:03o}");
    }
}

/// Formats a number of bytes: `0 B`, `12.3 KiB`, `4.0 GiB`.
pub fn human_size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    // 1023.95 would be shown as 1024.0 of the smaller unit.
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS.get(unit).unwrap_or(&"PiB"))
}

/// Returns the current time in seconds since 1970.
pub fn now_secs() -> i64 {
    Timestamp::now().secs
}

/// Formats the time since `then_secs`: `now`, `5m ago`.
pub fn human_ago(then_secs: i64, now_secs: i64) -> String {
    match human_age(then_secs, now_secs) {
        age if age == "now" => age,
        age => format!("{age} ago"),
    }
}

/// Formats the age of `then_secs`: `now`, `5m`, `3h`, `12d`.
///
/// Both times are in seconds since 1970.
pub fn human_age(then_secs: i64, now_secs: i64) -> String {
    let seconds = now_secs.saturating_sub(then_secs);
    match seconds {
        ..60 => "now".to_owned(),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Returns the first 7 characters of an object id.
pub fn short_id(id: &str) -> &str {
    id.get(..7).unwrap_or(id)
}

/// Formats a count with its noun: `1 change`, `2 changes`.
pub fn counted(count: usize, one: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        _ => format!("{count} {one}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(path: &str) -> PathText {
        PathText::Text(path.to_owned())
    }

    #[test]
    fn paths_are_quoted_as_git_does() {
        assert_eq!(quoted(&text("src/naïve file.rs")), "src/naïve file.rs");
        assert_eq!(quoted(&text("a\nb")), r#""a\nb""#);
        assert_eq!(quoted(&text("say \"hi\"\\")), r#""say \"hi\"\\""#);
        assert_eq!(quoted(&text("\x1b[31m")), r#""\033[31m""#);
        let bytes = PathText::Bytes {
            base64: "Zv9v".to_owned(),
        };
        assert_eq!(quoted(&bytes), r#""f\377o""#);
    }

    #[test]
    fn a_message_cannot_break_its_line_or_steer_the_terminal() {
        assert_eq!(one_line("two\nlines\x1b[2J\r\n"), "two lines\\x1b[2J");
    }

    #[test]
    fn sizes_and_ages_are_short() {
        let sizes: Vec<String> = [0, 1023, 1024, 1536, 1024 * 1024 - 1, 5 << 30, u64::MAX]
            .map(human_size)
            .into();
        assert_eq!(
            sizes,
            [
                "0 B",
                "1023 B",
                "1.0 KiB",
                "1.5 KiB",
                "1.0 MiB",
                "5.0 GiB",
                "16384.0 PiB"
            ]
        );
        let ages: Vec<String> = [1000, 940, 0, -99_000, -1_000_000]
            .map(|then| human_age(then, 1000))
            .into();
        assert_eq!(ages, ["now", "1m", "16m", "1d", "11d"]);
        assert_eq!(human_ago(100, 120), "now");
        assert_eq!(human_ago(0, 60), "1m ago");
        assert_eq!(
            human_age(i64::MIN, i64::MAX),
            format!("{}d", i64::MAX / 86_400)
        );
    }
}
