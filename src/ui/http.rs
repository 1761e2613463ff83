//! As much of HTTP/1.1 as a browser needs on the loopback: one request for each connection, which
//! is closed then. Nothing waits for anybody else: a connection has a thread of its own, and one
//! that says nothing is let go.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// What comes before a request's body may be so long, in bytes.
const HEAD_MAX: usize = 32 << 10;

const HEADERS_MAX: usize = 64;

/// How long the other side may take to say what it wants, and to take or send a part of the rest.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long what it still sends is read, so that it gets the reply.
const LINGER: Duration = Duration::from_secs(1);

/// A request without its body.
pub struct RequestHead {
    pub method: String,
    /// The path, with what follows a question mark.
    pub target: String,
    headers: Vec<(String, String)>,
    /// What came of the body already.
    begun: Vec<u8>,
}

/// What is sent.
pub struct Reply {
    pub status: u16,
    pub media_type: &'static str,
    pub content: Vec<u8>,
}

impl RequestHead {
    /// Reads a request's head; `None` where the other side said none that can be read.
    pub fn read(stream: &mut TcpStream) -> io::Result<Option<RequestHead>> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let deadline = Instant::now() + PATIENCE;
        let mut bytes = Vec::new();
        let mut part = [0; 4 << 10];
        while bytes.len() < HEAD_MAX && Instant::now() < deadline {
            let count = match stream.read(&mut part) {
                Ok(0) => return Ok(None),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            bytes.extend_from_slice(part.get(..count).unwrap_or_default());
            let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
            let mut parsed = httparse::Request::new(&mut headers);
            match parsed.parse(&bytes) {
                Ok(httparse::Status::Partial) => {}
                Ok(httparse::Status::Complete(end)) => {
                    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
                    return Ok(Some(RequestHead {
                        method: parsed.method.unwrap_or_default().to_owned(),
                        target: parsed.path.unwrap_or_default().to_owned(),
                        headers: parsed
                            .headers
                            .iter()
                            .map(|header| (header.name.to_owned(), text(header.value)))
                            .collect(),
                        begun: bytes.get(end..).unwrap_or_default().to_vec(),
                    }));
                }
                Err(error) => {
                    log::debug!("a request cannot be read: {error}");
                    return Ok(None);
                }
            }
        }
        Ok(None)
    }

    /// All headers of that name.
    pub fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.headers
            .iter()
            .filter(move |(of, _)| of.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// Reads the body, of at most `max` bytes; `None` of one that is longer, or does not say how
    /// long it is.
    pub fn read_body(&mut self, stream: &mut TcpStream, max: usize) -> io::Result<Option<Vec<u8>>> {
        let lengths: Vec<&str> = self.values("Content-Length").collect();
        let length = match lengths.as_slice() {
            [] if self.values("Transfer-Encoding").next().is_none() => Some(0),
            [length] => length.parse::<usize>().ok().filter(|length| *length <= max),
            _ => None,
        };
        let Some(length) = length else {
            return Ok(None);
        };
        let mut body = std::mem::take(&mut self.begun);
        let missing = length.saturating_sub(body.len());
        let came = stream.take(missing as u64).read_to_end(&mut body)?;
        if came < missing {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        body.truncate(length);
        Ok(Some(body))
    }
}

impl Reply {
    /// Sends it with these headers beside its own, and ends the connection.
    pub fn send(&self, stream: &mut TcpStream, headers: &[(&str, &str)]) -> io::Result<()> {
        let mut text = format!(
            "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nClient: close\r\n",
            self.status,
            reason(self.status),
            self.media_type,
            self.content.len()
        );
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str("\r\n");
        stream.write_all(text.as_bytes())?;
        stream.write_all(&self.content)?;
        stream.shutdown(Shutdown::Write)?;
        // A connection that is closed with something unread is reset, and the reply may be lost
        // with it.
        stream.set_read_timeout(Some(LINGER))?;
        let deadline = Instant::now() + LINGER;
        let mut rest = [0; 4 << 10];
        while Instant::now() < deadline && matches!(stream.read(&mut rest), Ok(1..)) {}
        Ok(())
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        409 => "Conflict",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Internal Server Error",
    }
}
