//! Lines on the socket: reading them with a bound, and the envelopes around requests and answers.
//!
//! Whatever arrives is judged here: a line that is too long, no JSON, of another version or an unknown request becomes
//! a [`Failure`], never a panic.

use std::io::{self, BufRead, Read};

use serde::{Deserialize, Serialize};

use tine_ops::failure::{ErrorCode, Failure};
use tine_ops::protocol::{Answer, PROTOCOL_VERSION, Request, Response};

/// The longest request line in bytes. Answers have no bound: the daemon is trusted by those who may connect to it.
pub const MAX_REQUEST_BYTES: u64 = 16 << 20;

#[derive(Serialize)]
struct RequestOut<'a> {
    protocol: u32,
    #[serde(flatten)]
    request: &'a Request,
}

/// Only what tells the version and the request apart, whatever else a future version may have.
#[derive(Deserialize)]
struct Header {
    protocol: Option<u32>,
    request: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum ReplyOut<'a> {
    Ok(&'a Answer),
    Error(&'a Failure),
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum ReplyIn {
    Ok(Box<Answer>),
    Error(Failure),
}

/// What came of reading one line.
#[derive(Debug)]
pub enum Line {
    /// Without its line break.
    Complete(Vec<u8>),
    /// The other side closed the connection; half a line is no line.
    End,
    /// Longer than allowed; the rest is still unread.
    TooLong,
}

/// Reads one line of at most `max_bytes` bytes.
pub fn read_line(input: &mut impl BufRead, max_bytes: u64) -> io::Result<Line> {
    let mut line = Vec::new();
    input
        .take(max_bytes.saturating_add(1))
        .read_until(b'\n', &mut line)?;
    if line.last() == Some(&b'\n') {
        line.pop();
        return Ok(Line::Complete(line));
    }
    Ok(match line.len() as u64 > max_bytes {
        true => Line::TooLong,
        false => Line::End,
    })
}

/// A request as a line with its break.
pub fn encode_request(request: &Request) -> Result<Vec<u8>, Failure> {
    let envelope = RequestOut {
        protocol: PROTOCOL_VERSION,
        request,
    };
    encode(&envelope)
}

/// An answer as a line with its break.
pub fn encode_response(response: &Response) -> Result<Vec<u8>, Failure> {
    encode(&match response {
        Ok(answer) => ReplyOut::Ok(answer),
        Err(failure) => ReplyOut::Error(failure),
    })
}

fn encode(value: &impl Serialize) -> Result<Vec<u8>, Failure> {
    let mut line = serde_json::to_vec(value).map_err(|error| {
        Failure::new(
            ErrorCode::Internal,
            "the message to or from the daemon could not be written",
        )
        .cause(error.to_string())
    })?;
    line.push(b'\n');
    Ok(line)
}

/// Understands a request line.
pub fn decode_request(line: &[u8]) -> Result<Request, Failure> {
    let malformed = |error: serde_json::Error| {
        Failure::new(ErrorCode::Usage, "the daemon does not understand the request")
            .cause(error.to_string())
            .hint("the program that asked may be of another version: `tine daemon stop` ends the daemon, and the next command starts one that fits")
    };
    let header: Header = serde_json::from_slice(line).map_err(malformed)?;
    let for_every_version = matches!(header.request.as_deref(), Some("status" | "stop"));
    if header.protocol != Some(PROTOCOL_VERSION) && !for_every_version {
        let theirs = match header.protocol {
            Some(version) => version.to_string(),
            None => "none".to_owned(),
        };
        return Err(version_mismatch(&theirs, &PROTOCOL_VERSION.to_string()));
    }
    serde_json::from_slice(line).map_err(malformed)
}

/// Understands an answer line.
pub fn decode_response(line: &[u8]) -> Response {
    match serde_json::from_slice(line) {
        Ok(ReplyIn::Ok(answer)) => Ok(*answer),
        Ok(ReplyIn::Error(failure)) => Err(failure),
        Err(error) => {
            Err(version_mismatch(&PROTOCOL_VERSION.to_string(), "another").cause(error.to_string()))
        }
    }
}

/// Two programs of different versions met.
pub fn version_mismatch(client: &str, daemon: &str) -> Failure {
    Failure::new(
        ErrorCode::ProtocolMismatch,
        format!("this program speaks version {client} of the daemon's protocol, the daemon version {daemon}"),
    )
    .hint("`tine daemon stop` ends the old daemon; the next command starts one that fits")
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use tine_ops::protocol::NewRequest;
    use tine_workspace::{ForkName, MountWishes, UnmountPolicy};

    fn fork(name: &str) -> ForkName {
        ForkName::parse(name).unwrap()
    }

    #[test]
    fn requests_survive_the_way() {
        let requests = [
            Request::Status,
            Request::Stop { force: true },
            Request::New(NewRequest {
                fork: fork("demo"),
                git_dir: PathBuf::from("/r/.git"),
                from: Some("HEAD~2".into()),
                from_fork: None,
                from_remote: None,
                branch: None,
                detached: false,
                dir: None,
                mount: true,
                wishes: MountWishes {
                    suid: true,
                    ..MountWishes::default()
                },
                on_unmount: UnmountPolicy::Discard,
                snapshot_every: None,
                umask: 0o022,
                carry: Default::default(),
            }),
            Request::Log {
                fork: fork("demo"),
                limit: 7,
            },
        ];
        for request in requests {
            let line = encode_request(&request).unwrap();
            assert_eq!(line.iter().filter(|&&b| b == b'\n').count(), 1, "one line");
            let back = decode_request(&line).unwrap();
            assert_eq!(format!("{back:?}"), format!("{request:?}"));
        }
    }

    proptest::proptest! {
        /// Whatever arrives is a request or a failure.
        #[test]
        fn any_line_is_understood_or_refused(line in proptest::collection::vec(0u8.., 0..512)) {
            let _ = decode_request(&line);
            let _ = decode_response(&line);
        }

        /// The same for lines that were requests before some bytes were changed, removed or doubled.
        #[test]
        fn any_damaged_request_is_understood_or_refused(
            which in 0usize..4,
            damage in proptest::collection::vec((0usize..400, 0u8.., 0u8..4), 1..6),
        ) {
            let requests = [
                Request::Stats { fork: Some(fork("demo")), watch: true },
                Request::Mount { fork: fork("demo"), dir: Some(PathBuf::from("/tmp/x")), wishes: Default::default(), snapshot_every: Some(tine_ops::protocol::SnapshotPolicy::Never) },
                Request::Commit { fork: fork("demo"), message: "m".into(), author: None, committer: None, allow_revert: false },
                Request::Log { fork: fork("demo"), limit: usize::MAX },
            ];
            let mut line = encode_request(&requests[which]).unwrap();
            for (at, byte, how) in damage {
                let at = at % line.len();
                match how {
                    0 => line[at] = byte,
                    1 => line[at] ^= 1 << (byte % 8),
                    2 if line.len() > 1 => { line.remove(at); }
                    _ => line.insert(at, byte),
                }
            }
            if let Ok(request) = decode_request(&line) {
                // What was understood can be said again.
                encode_request(&request).unwrap();
            }
        }
    }

    #[test]
    fn directories_that_are_not_utf8_survive_the_way() {
        use std::ffi::OsString;
        use std::os::unix::ffi::OsStringExt;
        let odd = PathBuf::from(OsString::from_vec(b"/tmp/\xff\xfe".to_vec()));
        let request = Request::Mount {
            fork: fork("demo"),
            dir: Some(odd.clone()),
            wishes: MountWishes::default(),
            snapshot_every: None,
        };
        match decode_request(&encode_request(&request).unwrap()).unwrap() {
            Request::Mount { dir, .. } => assert_eq!(dir, Some(odd)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn answers_survive_the_way() {
        let failure = Failure::new(ErrorCode::Busy, "x is in use")
            .cause("sh (12)")
            .hint("--force");
        let back = decode_response(&encode_response(&Err(failure.clone())).unwrap()).unwrap_err();
        assert_eq!(back, failure);
        let answer = Answer::Log { commits: Vec::new() };
        let line = encode_response(&Ok(answer)).unwrap();
        assert_eq!(line, b"{\"ok\":{\"answer\":\"log\",\"commits\":[]}}\n");
        assert!(matches!(decode_response(&line), Ok(Answer::Log { .. })));
    }

    #[test]
    fn another_version_is_refused_but_may_stop_the_daemon() {
        let mismatch = decode_request(br#"{"protocol":99,"request":"frobnicate"}"#).unwrap_err();
        assert_eq!(mismatch.code, ErrorCode::ProtocolMismatch);
        let unversioned = decode_request(br#"{"request":"list"}"#).unwrap_err();
        assert_eq!(unversioned.code, ErrorCode::ProtocolMismatch);
        assert!(matches!(
            decode_request(br#"{"protocol":99,"request":"stop","force":true,"new":1}"#),
            Ok(Request::Stop { force: true })
        ));
        assert!(matches!(
            decode_request(br#"{"request":"status"}"#),
            Ok(Request::Status)
        ));
    }

    #[test]
    fn hostile_lines_are_refused() {
        let deep = [b"[".repeat(100_000), b"]".repeat(100_000)].concat();
        for line in [
            &b""[..],
            b"\0",
            b"null",
            b"{}x",
            b"\xff\xfe",
            br#"{"protocol":1,"request":"unknown"}"#,
            br#"{"protocol":1,"request":"show","fork":"../../etc"}"#,
            br#"{"protocol":1,"request":"log","fork":"demo","limit":-1}"#,
            br#"{"protocol":1,"request":"stop"}"#,
            &deep,
        ] {
            let failure = decode_request(line).unwrap_err();
            assert_eq!(
                failure.code,
                ErrorCode::Usage,
                "{}",
                String::from_utf8_lossy(line)
            );
        }
    }

    #[test]
    fn lines_are_bounded() {
        let mut input = &b"abc\nabcd\nab"[..];
        assert!(matches!(read_line(&mut input, 3), Ok(Line::Complete(line)) if line == b"abc"));
        assert!(matches!(read_line(&mut input, 3), Ok(Line::TooLong)));
        let mut input = &b"abc"[..];
        assert!(matches!(read_line(&mut input, 3), Ok(Line::End)));
    }
}
