//! Requests of plain HTTP, byte by byte as a test wants them.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// How long a reply may take; a look for a new pulse takes 20 seconds.
const LIMIT: Duration = Duration::from_secs(90);

/// A request on its way.
pub struct Sent {
    port: u16,
    line: String,
    headers: Vec<(String, String)>,
    body: String,
}

/// What came back.
pub struct Reply {
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Sent {
    /// To that port of 127.0.0.1, under its own name.
    pub fn new(port: u16, method: &str, path: &str) -> Sent {
        Sent::without_host(port, method, path).header("Host", &format!("127.0.0.1:{port}"))
    }

    pub fn without_host(port: u16, method: &str, path: &str) -> Sent {
        Sent {
            port,
            line: format!("{method} {path} HTTP/1.0"),
            headers: Vec::new(),
            body: String::new(),
        }
    }

    /// For a server that understands nothing older.
    pub fn http_1_1(mut self) -> Sent {
        self.line = self.line.replace("HTTP/1.0", "HTTP/1.1");
        self
    }

    pub fn header(mut self, name: &str, value: &str) -> Sent {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn body(mut self, body: String) -> Sent {
        self.body = body;
        self
    }

    /// Sends it, and reads the reply to its end.
    #[track_caller]
    pub fn reply(self) -> Reply {
        let mut text = format!("{}\r\n", self.line);
        for (name, value) in &self.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if !self.body.is_empty() {
            text.push_str(&format!("Content-Length: {}\r\n", self.body.len()));
        }
        text.push_str("\r\n");
        text.push_str(&self.body);
        let mut stream =
            TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).expect("somebody listens");
        stream
            .set_read_timeout(Some(LIMIT))
            .expect("a limit can be set");
        stream.write_all(text.as_bytes()).expect("it can be sent");
        let mut reply = Vec::new();
        let mut part = [0; 64 << 10];
        // Whoever keeps the connection says how long the reply is.
        while !Reply::is_whole(&reply) {
            match stream.read(&mut part) {
                Ok(0) => break,
                Ok(count) => reply.extend_from_slice(&part[..count]),
                // A server that closes before it has read all of a body resets the connection; what
                // it said has arrived.
                Err(error) => {
                    assert!(!reply.is_empty(), "{}: {error}", self.line);
                    break;
                }
            }
        }
        Reply::parse(&reply)
    }
}

impl Reply {
    fn is_whole(reply: &[u8]) -> bool {
        let Some(end) = reply.windows(4).position(|window| window == b"\r\n\r\n") else {
            return false;
        };
        let length = Reply::parse(reply)
            .headers
            .iter()
            .find(|(name, _)| name == "content-length")
            .and_then(|(_, length)| length.parse::<usize>().ok());
        length.is_some_and(|length| reply.len() >= end + 4 + length)
    }

    fn parse(reply: &[u8]) -> Reply {
        let end = reply
            .windows(4)
            .position(|window| window == b"\r\n\r\n")
            .expect("a head");
        let head = std::str::from_utf8(&reply[..end]).expect("a head of text");
        let mut lines = head.split("\r\n");
        let status = lines
            .next()
            .and_then(|line| line.split(' ').nth(1))
            .expect("a status");
        let headers = lines.map(|line| {
            let (name, value) = line.split_once(':').expect("a header");
            (name.to_lowercase(), value.trim().to_owned())
        });
        Reply {
            status: status.parse().expect("a number"),
            headers: headers.collect(),
            body: reply[end + 4..].to_vec(),
        }
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error} in {:?}", self.text()))
    }

    /// The only header of that name.
    #[track_caller]
    pub fn header(&self, name: &str) -> &str {
        let found: Vec<&str> = self
            .headers
            .iter()
            .filter(|(of, _)| of == name)
            .map(|(_, value)| value.as_str())
            .collect();
        assert_eq!(found.len(), 1, "{name} in {:?}", self.headers);
        found[0]
    }
}
