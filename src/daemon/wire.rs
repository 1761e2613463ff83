//! Lines on the socket: bounded reading, and encoding of requests and answers.
//!
//! A line that is too long or not JSON, has another version, or names an unknown operation becomes
//! a [`Failure`], never a panic.

use std::io::{self, BufRead, Read};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use tine_ops::protocol::PROTOCOL_VERSION;
use tine_ops::{Call, CallerContext, Entry, ErrorCode, Failure, Operation};

/// Maximum length of a request line in bytes.
///
/// Answers have no limit, because clients trust the daemon.
pub const MAX_REQUEST_BYTES: u64 = 16 << 20;

/// Request of the current version, as sent.
#[derive(Serialize)]
struct RequestOut<'a, O> {
    protocol: u32,
    request: &'static str,
    from: &'a CallerContext,
    arguments: &'a O,
}

/// Request that daemons of every version accept.
#[derive(Serialize)]
struct RequestForEveryVersion<'a, O> {
    protocol: u32,
    request: &'static str,
    #[serde(flatten)]
    arguments: &'a O,
}

/// Request of the current version, as received, except for the header.
#[derive(Deserialize)]
struct RequestIn<'a> {
    #[serde(default)]
    from: CallerContext,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

/// Version and name of a request.
///
/// Other fields are ignored, since another version may have any.
#[derive(Deserialize)]
struct Header {
    protocol: Option<u32>,
    request: Option<String>,
}

/// Answer, as sent and received.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Reply<Answer, Error> {
    Ok(Answer),
    Error(Error),
}

/// Result of reading one line.
#[derive(Debug)]
pub enum Line {
    /// The line without its line break.
    Complete(Vec<u8>),
    /// The peer closed the connection. An incomplete line is dropped.
    End,
    /// The line is longer than the limit. The rest of it is unread.
    TooLong,
}

/// Reads one line of at most `max_bytes` bytes.
///
/// # Errors
/// The error of `input`.
pub fn read_line(input: &mut impl BufRead, max_bytes: u64) -> io::Result<Line> {
    let mut line = Vec::new();
    input
        .take(max_bytes.saturating_add(1))
        .read_until(b'\n', &mut line)?;
    if line.last() == Some(&b'\n') {
        line.pop();
        return Ok(Line::Complete(line));
    }
    Ok(if line.len() as u64 > max_bytes {
        Line::TooLong
    } else {
        Line::End
    })
}

/// Encodes a request as one line, with its line break.
///
/// # Errors
/// `internal` if the operation cannot be serialized.
pub fn encode_request<O: Operation>(
    from: &CallerContext,
    operation: &O,
) -> Result<Vec<u8>, Failure> {
    if O::ANY_VERSION {
        encode(&RequestForEveryVersion {
            protocol: PROTOCOL_VERSION,
            request: O::NAME,
            arguments: operation,
        })
    } else {
        encode(&RequestOut {
            protocol: PROTOCOL_VERSION,
            request: O::NAME,
            from,
            arguments: operation,
        })
    }
}

/// Encodes an answer as one line, with its line break.
///
/// # Errors
/// `internal` if the answer cannot be serialized.
pub fn encode_response<Answer: Serialize>(
    response: &Result<Answer, Failure>,
) -> Result<Vec<u8>, Failure> {
    encode(&match response {
        Ok(answer) => Reply::Ok(answer),
        Err(failure) => Reply::Error(failure),
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

/// Decoded request. Its arguments are not decoded yet.
pub struct Request {
    /// Operation, from the table of all operations.
    pub entry: &'static Entry,
    /// Surroundings of the caller. The default for requests of every version.
    pub from: CallerContext,
    /// Arguments of the operation in JSON.
    arguments: Box<RawValue>,
    /// Value of the answer's field `answer`, if it has one.
    ///
    /// Programs of the first version identify the answer's type by it.
    answer: Option<&'static str>,
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.entry.name, self.arguments)
    }
}

impl Request {
    /// Runs the operation and returns its answer in JSON.
    ///
    /// # Errors
    /// `usage` if the arguments cannot be decoded, and the operation's errors.
    pub fn run(&self, call: &Call<'_>) -> Result<Box<RawValue>, Failure> {
        let answer = self.entry.run(&self.arguments, call)?;
        match self.answer {
            None => Ok(answer),
            Some(name) => tagged(&answer, name).map_err(|error| {
                Failure::new(ErrorCode::Internal, "the answer could not be written")
                    .cause(error.to_string())
            }),
        }
    }
}

/// Adds the field `answer` to an answer, a JSON object.
fn tagged(answer: &RawValue, name: &str) -> serde_json::Result<Box<RawValue>> {
    let mut answer: serde_json::Map<String, Value> = serde_json::from_str(answer.get())?;
    answer.insert("answer".to_owned(), Value::from(name));
    serde_json::value::to_raw_value(&answer)
}

/// Decodes a request line, without its arguments.
///
/// # Errors
/// `usage` if the line is not a request, `protocol-mismatch` if it is a request of another version.
pub fn decode_request(line: &[u8]) -> Result<Request, Failure> {
    let header: Header = serde_json::from_slice(line).map_err(Failure::not_understood)?;
    let is_ours = header.protocol == Some(PROTOCOL_VERSION);
    let name = header.request.unwrap_or_default();
    let entry = tine_ops::find(&name).filter(|entry| is_ours || entry.for_every_version);
    if !is_ours && entry.is_none() {
        let theirs = match header.protocol {
            Some(version) => version.to_string(),
            None => "none".to_owned(),
        };
        return Err(version_mismatch(&theirs, &PROTOCOL_VERSION.to_string()));
    }
    let Some(entry) = entry else {
        let unknown = format!("there is no operation {name:?}");
        return Err(Failure::not_understood(serde::de::Error::custom(unknown)));
    };
    if entry.for_every_version {
        let is_status = name == tine_ops::DaemonStatus::NAME;
        return Ok(Request {
            entry,
            from: CallerContext::default(),
            arguments: serde_json::from_slice(line).map_err(Failure::not_understood)?,
            answer: Some(if is_status { "daemon" } else { "done" }),
        });
    }
    let request: RequestIn<'_> = serde_json::from_slice(line).map_err(Failure::not_understood)?;
    Ok(Request {
        entry,
        from: request.from,
        arguments: request.arguments.unwrap_or(RawValue::NULL).to_owned(),
        answer: None,
    })
}

/// Decodes an answer line.
///
/// # Errors
/// The failure that the daemon sent, or `protocol-mismatch` if the line is not an `Answer`.
pub fn decode_response<Answer: DeserializeOwned>(line: &[u8]) -> Result<Answer, Failure> {
    match serde_json::from_slice(line) {
        Ok(Reply::Ok(answer)) => Ok(answer),
        Ok(Reply::Error(failure)) => Err(failure),
        Err(error) => {
            Err(version_mismatch(&PROTOCOL_VERSION.to_string(), "another").cause(error.to_string()))
        }
    }
}

/// Returns the failure for a client and a daemon of different versions.
///
/// `client` and `daemon` are the versions of the protocol.
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
    use tine_ops::protocol::{Commits, DaemonInfo};
    use tine_ops::{Commit, DaemonStatus, Log, Mount, ReadStats, Stop};
    use tine_store::ForkName;

    fn fork(name: &str) -> ForkName {
        ForkName::parse(name).unwrap()
    }

    fn line_of<O: Operation>(operation: &O) -> Vec<u8> {
        let from = CallerContext {
            command: "tine x".to_owned(),
            ..CallerContext::default()
        };
        encode_request(&from, operation).unwrap()
    }

    /// The arguments as they arrive.
    fn arrived<O: Operation>(line: &[u8]) -> O {
        let request = decode_request(line).unwrap();
        assert_eq!(request.entry.name, O::NAME);
        serde_json::from_str(request.arguments.get()).unwrap()
    }

    #[test]
    fn requests_survive_the_way() {
        let log = Log {
            fork: fork("demo"),
            limit: 7,
        };
        let line = line_of(&log);
        assert_eq!(line.iter().filter(|&&b| b == b'\n').count(), 1, "one line");
        assert_eq!(format!("{:?}", arrived::<Log>(&line)), format!("{log:?}"));
        assert_eq!(decode_request(&line).unwrap().from.command, "tine x");
        for force in [true, false] {
            assert_eq!(arrived::<Stop>(&line_of(&Stop { force })).force, force);
        }
        arrived::<DaemonStatus>(&line_of(&DaemonStatus {}));
    }

    #[test]
    fn each_operation_has_a_name_of_its_own() {
        let mut names: Vec<&str> = tine_ops::OPERATIONS
            .iter()
            .map(|entry| entry.name)
            .collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    proptest::proptest! {
        /// Whatever arrives is a request or a failure.
        #[test]
        fn any_line_is_understood_or_refused(line in proptest::collection::vec(0u8.., 0..512)) {
            let _ = decode_request(&line);
            let _ = decode_response::<DaemonInfo>(&line);
        }

        /// The same for lines that were requests before some bytes were changed, removed or
        /// doubled.
        #[test]
        fn any_damaged_request_is_understood_or_refused(
            which in 0usize..4,
            damage in proptest::collection::vec((0usize..400, 0u8.., 0u8..4), 1..6),
        ) {
            let mut line = match which {
                0 => line_of(&ReadStats { fork: Some(fork("demo")), watch: true }),
                1 => line_of(&Mount { at: Some(PathBuf::from("/tmp/x")), ..Mount::of(fork("demo")) }),
                2 => line_of(&Commit { fork: Some(fork("demo")), message: vec!["m".into()], allow_revert: false }),
                _ => line_of(&Log { fork: fork("demo"), limit: usize::MAX }),
            };
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
                let _ = request.entry.check(&request.arguments);
            }
        }
    }

    #[test]
    fn directories_that_are_not_utf8_survive_the_way() {
        use std::ffi::OsString;
        use std::os::unix::ffi::OsStringExt;
        let odd = PathBuf::from(OsString::from_vec(b"/tmp/\xff\xfe".to_vec()));
        let mount = Mount {
            at: Some(odd.clone()),
            ..Mount::of(fork("demo"))
        };
        assert_eq!(arrived::<Mount>(&line_of(&mount)).at, Some(odd));
    }

    #[test]
    fn answers_survive_the_way() {
        let failure = Failure::new(ErrorCode::Busy, "x is in use")
            .cause("sh (12)")
            .hint("--force");
        let line = encode_response::<Commits>(&Err(failure.clone())).unwrap();
        assert_eq!(decode_response::<Commits>(&line).unwrap_err(), failure);
        let line = encode_response(&Ok(Commits {
            commits: Vec::new(),
        }))
        .unwrap();
        assert_eq!(line, b"{\"ok\":{\"commits\":[]}}\n");
        assert!(decode_response::<Commits>(&line).is_ok());
        let other = decode_response::<DaemonInfo>(&line).unwrap_err();
        assert_eq!(other.code, ErrorCode::ProtocolMismatch);
    }

    #[test]
    fn another_version_is_refused_but_may_stop_the_daemon() {
        let mismatch = decode_request(br#"{"protocol":99,"request":"frobnicate"}"#).unwrap_err();
        assert_eq!(mismatch.code, ErrorCode::ProtocolMismatch);
        let unversioned = decode_request(br#"{"request":"list"}"#).unwrap_err();
        assert_eq!(unversioned.code, ErrorCode::ProtocolMismatch);
        let newer = br#"{"protocol":99,"request":"stop","force":true,"new":1}"#;
        assert!(arrived::<Stop>(newer).force);
        arrived::<DaemonStatus>(br#"{"request":"status"}"#);
        // As daemons of the first version take it.
        let line: Value = serde_json::from_slice(&line_of(&Stop { force: true })).unwrap();
        assert_eq!(
            line,
            serde_json::json!({"protocol": PROTOCOL_VERSION, "request": "stop", "force": true})
        );
    }

    /// Programs of the first version tell answers by a word in them.
    #[test]
    fn a_program_of_the_first_version_understands_who_is_there() {
        let request = decode_request(br#"{"protocol":1,"request":"status"}"#).unwrap();
        assert_eq!(request.answer, Some("daemon"));
        let answer = serde_json::value::to_raw_value(&serde_json::json!({"pid": 1})).unwrap();
        let answer = tagged(&answer, "daemon").unwrap();
        let answer: Value = serde_json::from_str(answer.get()).unwrap();
        assert_eq!(answer, serde_json::json!({"answer": "daemon", "pid": 1}));
        let request = decode_request(br#"{"protocol":1,"request":"stop","force":false}"#).unwrap();
        assert_eq!(request.answer, Some("done"));
    }

    #[test]
    fn hostile_lines_are_refused() {
        let deep = [b"[".repeat(100_000), b"]".repeat(100_000)].concat();
        let deep_arguments = [
            &br#"{"protocol":2,"request":"show","arguments":"#[..],
            &deep,
            b"}",
        ]
        .concat();
        for line in [
            &b""[..],
            b"\0",
            b"null",
            b"{}x",
            b"\xff\xfe",
            br#"{"protocol":2,"request":"unknown"}"#,
            br#"{"protocol":2,"request":"show","arguments":{"fork":"../../etc"}}"#,
            br#"{"protocol":2,"request":"show"}"#,
            br#"{"protocol":2,"request":"log","arguments":{"fork":"demo","limit":-1}}"#,
            br#"{"protocol":2,"request":"log","from":7,"arguments":{"fork":"demo","limit":1}}"#,
            br#"{"protocol":2,"request":"stop"}"#,
            &deep,
            &deep_arguments,
        ] {
            let understood =
                decode_request(line).and_then(|request| request.entry.check(&request.arguments));
            let failure = understood.unwrap_err();
            assert_eq!(
                failure.code,
                ErrorCode::Usage,
                "{}",
                String::from_utf8_lossy(&line[..line.len().min(200)])
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
