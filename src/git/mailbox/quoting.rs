//! Quoted-printable bodies (RFC 2045, section 6.7), as `git mailinfo` decodes them.

/// What stands at the end of an encoded mail's headers, with the empty line.
pub(super) const HEADERS: &[u8] = b"MIME-Version: 1.0\n\
    Content-Type: text/plain; charset=UTF-8\n\
    Content-Transfer-Encoding: quoted-printable\n\n";

/// How long a line may be.
const MAX_LINE: usize = 76;

/// Whether `header` is one of those that [`HEADERS`] has.
pub(super) fn is_replaced(header: &[u8]) -> bool {
    let names = [
        &b"MIME-Version:"[..],
        b"Content-Type:",
        b"Content-Transfer-Encoding:",
    ];
    names.iter().any(|name| header.starts_with(name))
}

/// One line of a body, which ends with its newline if it has one.
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
            // What stands at the end of a line may be lost.
            b' ' | b'\t' => rest.len() > 1,
            // Nothing may look like the beginning of a mail.
            b'F' => !(width == 0 && rest.starts_with(b"From ")),
            byte => byte.is_ascii_graphic(),
        };
        match is_plain {
            true => quoted.push(*byte),
            false => quoted.extend_from_slice(format!("={byte:02X}").as_bytes()),
        }
        width += if is_plain { 1 } else { 3 };
    }
    quoted.extend_from_slice(end);
    quoted
}
