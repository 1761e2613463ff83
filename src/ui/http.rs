//! Subset of HTTP/1.1 that a browser needs on the loopback interface.
//!
//! Each connection carries one request and is closed after the reply. Each connection has its own
//! thread, so none waits for another. A connection that sends nothing is closed after a timeout.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// Maximum size of a request line with its headers, in bytes.
const HEAD_MAX: usize = 32 << 10;

const HEADERS_MAX: usize = 64;

/// Timeout of each read from and write to the client.
const PATIENCE: Duration = Duration::from_secs(10);

/// Time to read what the client sends after the reply.
///
/// Without it the client may not receive the reply.
const LINGER: Duration = Duration::from_secs(1);

/// Request without its body.
pub struct RequestHead {
    /// Method, as sent.
    pub method: String,
    /// Path with its query.
    pub target: String,
    headers: Vec<(String, String)>,
    /// Beginning of the body that was read with the head.
    begun: Vec<u8>,
}

/// Reply to a request.
pub struct Reply {
    /// Status code.
    pub status: u16,
    /// Value of the header `Content-Type`.
    pub media_type: &'static str,
    /// The body.
    pub content: Vec<u8>,
}

impl RequestHead {
    /// Reads the head of a request.
    ///
    /// Returns `None` if the client sends none that can be parsed.
    ///
    /// # Errors
    /// An I/O error of the connection, also if a read times out.
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

    /// Returns the values of all headers of that name.
    pub fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.headers
            .iter()
            .filter(move |(of, _)| of.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// Reads the body.
    ///
    /// Returns `None` if it is longer than `max` bytes or its length is unknown.
    ///
    /// # Errors
    /// An I/O error of the connection, also if it ends too early.
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
    /// Sends the reply and ends the connection.
    ///
    /// `headers` are sent in addition to the reply's own.
    ///
    /// # Errors
    /// An I/O error of the connection.
    pub fn send(&self, stream: &mut TcpStream, headers: &[(&str, &str)]) -> io::Result<()> {
        let mut text = format!(
            "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n",
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
        // Closing a connection with unread data resets it, and the reply may be lost.
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
