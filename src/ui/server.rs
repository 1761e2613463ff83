//! Listens on a loopback port, refuses foreign requests, and replies.
//!
//! Every request must name this host and port in `Host`, so that no other page's name can be bound
//! to this address. Its path must begin with the key. A request that changes something must be
//! JSON, and must come from the page itself.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use serde_json::json;

use super::http::{Reply, RequestHead};
use super::key::Key;
use super::routes::{Method, PageContext, PageRequest};
use super::{assets, contents, routes};
use tine_ops::{ErrorCode, ExitCode, Failure};

/// Maximum size of a request's body, in bytes.
const BODY_MAX: usize = 64 << 20;

/// Maximum number of connections at once. A browser opens six.
const CONNECTIONS_MAX: usize = 128;

/// Stack size of a connection's thread, in bytes.
const STACK_BYTES: usize = 2 << 20;

const JSON: &str = "application/json";

/// Content policy: the page runs its own scripts and asks its own server only.
const CONTENT_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
     require-trusted-types-for 'script'; trusted-types 'none'";

/// Further headers of every reply.
const HEADERS: [(&str, &str); 6] = [
    ("Content-Security-Policy", CONTENT_POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cache-Control", "no-store"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
];

/// Server of the page.
pub struct Server {
    listener: TcpListener,
    page: Arc<Page>,
    /// Number of open connections.
    connections: Arc<AtomicUsize>,
    is_ending: AtomicBool,
}

/// Data that all connections share. Immutable.
struct Page {
    port: u16,
    key: Key,
    place: PageContext,
}

/// Refusal of a request before the daemon is asked.
struct Refusal {
    status: u16,
    failure: Failure,
}

impl Server {
    /// Listens on a port of 127.0.0.1. Port 0 chooses a free one.
    ///
    /// # Errors
    /// [`Failure`] if the port is taken or random bytes for the key cannot be read.
    pub fn bind(port: u16, place: PageContext) -> Result<Server, Failure> {
        let cannot = |cause: String| {
            Failure::new(
                ErrorCode::Io,
                format!("port {port} of 127.0.0.1 cannot be had"),
            )
            .cause(cause)
            .hint("without `--port` a free one is taken")
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .map_err(|error| cannot(error.to_string()))?;
        let address = listener
            .local_addr()
            .map_err(|error| cannot(error.to_string()))?;
        let page = Page {
            port: address.port(),
            key: Key::new()?,
            place,
        };
        Ok(Server {
            listener,
            page: Arc::new(page),
            connections: Arc::default(),
            is_ending: AtomicBool::new(false),
        })
    }

    /// Returns the page's address with the key.
    ///
    /// A holder of the address may do everything that the page can.
    pub fn address(&self) -> String {
        format!(
            "http://127.0.0.1:{}/{}/",
            self.page.port,
            self.page.key.as_str()
        )
    }

    /// Returns the port that the server listens on.
    pub fn port(&self) -> u16 {
        self.page.port
    }

    /// Serves connections until [`Server::end`]. Blocks.
    pub fn run(&self) {
        for stream in self.listener.incoming() {
            if self.is_ending.load(Ordering::Acquire) {
                return;
            }
            match stream {
                Ok(stream) => self.serve(stream),
                // The client left, or the process is out of descriptors. Those in use may be closed
                // soon.
                Err(error) => {
                    log::warn!("a connection was not taken: {error}");
                    thread::yield_now();
                }
            }
        }
    }

    /// Makes [`Server::run`] return.
    pub fn end(&self) {
        self.is_ending.store(true, Ordering::Release);
        // A connection wakes the thread that accepts.
        if let Err(error) = TcpStream::connect((Ipv4Addr::LOCALHOST, self.page.port)) {
            log::debug!("the server cannot be woken: {error}");
        }
    }

    fn serve(&self, mut stream: TcpStream) {
        let counted = Counted::new(&self.connections);
        if counted.number > CONNECTIONS_MAX {
            log::warn!("{} connections at once: one was refused", counted.number);
            return;
        }
        let page = self.page.clone();
        let answer = move || {
            let _counted = counted;
            // A client that is gone needs no reply.
            if let Err(error) = page.converse(&mut stream) {
                log::debug!("a connection ended: {error}");
            }
        };
        // Without a thread the connection is closed, which the browser reports.
        if let Err(error) = thread::Builder::new().stack_size(STACK_BYTES).spawn(answer) {
            log::warn!("a connection gets no thread: {error}");
        }
    }
}

/// Counts an open connection while it exists.
struct Counted {
    all: Arc<AtomicUsize>,
    /// Number of open connections including this one.
    number: usize,
}

impl Counted {
    fn new(all: &Arc<AtomicUsize>) -> Counted {
        Counted {
            all: all.clone(),
            number: all.fetch_add(1, Ordering::Relaxed) + 1,
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.all.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Page {
    /// Reads a request and replies.
    fn converse(&self, stream: &mut TcpStream) -> std::io::Result<()> {
        let Some(mut head) = RequestHead::read(stream)? else {
            return Ok(());
        };
        let reply = match self.check(&head) {
            Err(refusal) => {
                log::info!(
                    "{} {}: {}",
                    head.method,
                    self.without_key(&head.target),
                    refusal.failure
                );
                refused(&refusal, !head.target.contains("/api/"))
            }
            Ok(Wanted::Asset(asset)) => Reply {
                status: 200,
                media_type: asset.media_type,
                content: asset.content.as_bytes().to_vec(),
            },
            Ok(Wanted::Route(route, query)) => match head.read_body(stream, BODY_MAX)? {
                None => refused(&too_long(), false),
                Some(body) => self.answer(route, &query, body),
            },
        };
        reply.send(stream, &HEADERS)
    }

    fn answer(&self, route: &routes::Route, query: &str, body: Vec<u8>) -> Reply {
        let asked = PageRequest {
            fields: form_urlencoded::parse(query.as_bytes())
                .into_owned()
                .collect(),
            body,
        };
        match (route.answer)(&self.place, &asked) {
            Ok(value) => Reply {
                status: 200,
                media_type: JSON,
                content: value.to_string().into_bytes(),
            },
            Err(failure) => {
                log::info!("{}: {failure}", route.name);
                failed(status_of(&failure), &failure)
            }
        }
    }

    fn without_key(&self, url: &str) -> String {
        url.replace(self.key.as_str(), "KEY")
    }

    /// Checks that the page itself makes the request.
    ///
    /// Returns the target that its path names after the key.
    fn check(&self, head: &RequestHead) -> Result<Wanted, Refusal> {
        let hosts: Vec<&str> = head.values("Host").collect();
        let own = [
            format!("127.0.0.1:{}", self.port),
            format!("localhost:{}", self.port),
        ];
        let is_own = |host: &str| own.iter().any(|own| own.eq_ignore_ascii_case(host));
        if !matches!(hosts.as_slice(), [host] if is_own(host)) {
            return Err(refuse(403, not_let_in("this page has another host's name")));
        }
        let (path, query) = head.target.split_once('?').unwrap_or((&head.target, ""));
        let (key, rest) = path
            .strip_prefix('/')
            .unwrap_or(path)
            .split_once('/')
            .unwrap_or_default();
        if !self.key.is(key) {
            return Err(refuse(
                403,
                not_let_in("this address has not the right key"),
            ));
        }
        let origins_are_own = head
            .values("Origin")
            .all(|origin| origin.strip_prefix("http://").is_some_and(is_own));
        let site_is_own = head
            .values("Sec-Fetch-Site")
            .all(|site| matches!(site, "same-origin" | "none") || rest.is_empty());
        if !origins_are_own || !site_is_own {
            return Err(refuse(403, not_let_in("another page asks")));
        }
        let wanted = match rest.strip_prefix("api/") {
            Some(name) => routes::find(name).map(|route| Wanted::Route(route, query.to_owned())),
            None => assets::find(rest).map(Wanted::Asset),
        };
        let wanted =
            wanted.ok_or_else(|| refuse(404, wrong_request("there is no such thing here")))?;
        match (head.method.as_str(), wanted.method()) {
            ("GET", Method::Get) => {}
            ("POST", Method::Post) => {
                let is_json = head
                    .values("Content-Type")
                    .any(|of| of.eq_ignore_ascii_case(JSON));
                if !is_json {
                    return Err(refuse(
                        415,
                        wrong_request("what is to be done is told in JSON only"),
                    ));
                }
            }
            _ => {
                return Err(refuse(
                    405,
                    wrong_request("this cannot be asked in that manner"),
                ));
            }
        }
        Ok(wanted)
    }
}

/// Target of a request.
enum Wanted {
    Asset(&'static assets::Asset),
    /// Route, with the query of the address.
    Route(&'static routes::Route, String),
}

impl Wanted {
    fn method(&self) -> Method {
        match self {
            Wanted::Asset(_) => Method::Get,
            Wanted::Route(route, _) => route.method,
        }
    }
}

fn too_long() -> Refusal {
    Refusal {
        status: 413,
        failure: Failure::new(ErrorCode::Usage, "what the page sent is too long")
            .hint("`tine resolve REVIEW PATH --file FILE` takes a file of any length"),
    }
}

fn refuse(status: u16, failure: Failure) -> Refusal {
    Refusal { status, failure }
}

fn not_let_in(message: &str) -> Failure {
    Failure::new(ErrorCode::PermissionDenied, message)
        .hint("open the address that `tine ui` printed")
}

fn wrong_request(message: &str) -> Failure {
    Failure::new(ErrorCode::Usage, message).hint("open the address that `tine ui` printed")
}

/// Builds the reply of a refusal: text if a person may see it, else JSON.
fn refused(refusal: &Refusal, is_page: bool) -> Reply {
    let failure = &refusal.failure;
    if !is_page {
        return failed(refusal.status, failure);
    }
    let hint = failure.hint.as_deref().unwrap_or_default();
    Reply {
        status: refusal.status,
        media_type: "text/plain; charset=utf-8",
        content: format!("error: {}\nhint: {hint}\n", failure.message).into_bytes(),
    }
}

fn failed(status: u16, failure: &Failure) -> Reply {
    let told = contents::document(failure).unwrap_or_default();
    Reply {
        status,
        media_type: JSON,
        content: json!({ "error": told }).to_string().into_bytes(),
    }
}

fn status_of(failure: &Failure) -> u16 {
    match failure.exit {
        ExitCode::Usage => 400,
        ExitCode::NotFound => 404,
        ExitCode::Refused | ExitCode::Conflict | ExitCode::Nothing | ExitCode::Spent => 409,
        ExitCode::Timeout => 504,
        ExitCode::Success | ExitCode::Failure | ExitCode::Environment => 500,
    }
}
