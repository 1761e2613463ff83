//! Quoted-printable bodies (RFC 2045, section 6.7), as `git mailinfo` decodes them.

/// Last headers of an encoded mail, with the empty line.
pub(super) const HEADERS: &[u8] = b"MIME-Version: 1.0\n\
    Content-Type: text/plain; charset=UTF-8\n\
    Content-Transfer-Encoding: quoted-printable\n\n";

/// Maximum length of a line.
const MAX_LINE: usize = 76;

/// Returns whether `header` is one that [`HEADERS`] replaces.
pub(super) fn is_replaced(header: &[u8]) -> bool {
    let names = [
        &b"MIME-Version:"[..],
        b"Content-Type:",
        b"Content-Transfer-Encoding:",
    ];
    names.iter().any(|name| header.starts_with(name))
}

/// Encodes one line of a body, with its newline if any.
pub(super) fn quoted(line: &[u8]) -> Vec<u8> {
    let (text, end) = match line.strip_suffix(b"\n") {
        Some(text) => (text, &b"\n"[..]),
        None => (line, &b""[..]),
    };
    let mut quoted = Vec::with_capacity(line.len() + line.len() / 8);
    let mut width = 0;
    for (at, byte) in text.iter().enumerate() {
        let rest = &text[at..];
        if width + 3 >= MAX_LINE {
            quoted.extend_from_slice(b"=\n");
            width = 0;
        }
        let is_plain = match byte {
            b'=' => false,
            // Mail programs may strip blanks at the end of a line.
            b' ' | b'\t' => rest.len() > 1,
            // A line must not look like the beginning of a mail.
            b'F' => !(width == 0 && rest.starts_with(b"From ")),
            byte => byte.is_ascii_graphic(),
        };
        if is_plain {
            quoted.push(*byte);
        } else {
            quoted.extend_from_slice(format!("={byte:02X}").as_bytes());
        }
        width += if is_plain { 1 } else { 3 };
    }
    quoted.extend_from_slice(end);
    quoted
}
