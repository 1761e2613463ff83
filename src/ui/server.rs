//! Listens on a loopback port, refuses what is not the page's own request, and replies.
//!
//! Every request must be made to this very host and port, as the browser names it (so that no other page's name can be bound to this
//! address), and its path must begin with the key. What changes something must be sent as JSON, and from the page itself.

use std::io::Read;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::thread;

use serde_json::json;
use tiny_http::{Header, Method, Request, Response};

use super::key::Key;
use super::routes::{Asked, Manner, Place};
use super::{assets, contents, routes};
use crate::daemon::{ErrorCode, ExitCode, Failure};

/// A request's body may be so long, in bytes.
const BODY_MAX: u64 = 64 << 20;

/// A request is handled by a thread of its own; a browser has a few at once.
const STACK_BYTES: usize = 2 << 20;

const JSON: &str = "application/json";

/// What the browser may do with the page: run its own scripts and ask its own server, and nothing else.
const CONTENT_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
     require-trusted-types-for 'script'; trusted-types 'none'";

/// What every reply says beside that.
const HEADERS: [(&str, &str); 6] = [
    ("Content-Security-Policy", CONTENT_POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cache-Control", "no-store"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
];

/// The page's server.
pub struct Server {
    http: tiny_http::Server,
    port: u16,
    key: Key,
    place: Arc<Place>,
}

/// A request that is refused before anybody is asked.
struct Refusal {
    status: u16,
    failure: Failure,
}

/// What is sent.
struct Reply {
    status: u16,
    media_type: &'static str,
    content: Vec<u8>,
}

impl Server {
    /// Listens on that port of 127.0.0.1; on a free one for 0.
    pub fn bind(port: u16, place: Place) -> Result<Server, Failure> {
        let cannot = |cause: String| {
            Failure::new(ErrorCode::Io, format!("port {port} of 127.0.0.1 cannot be had"))
                .cause(cause)
                .hint("without --port a free one is taken")
        };
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(|error| cannot(error.to_string()))?;
        let address = listener.local_addr().map_err(|error| cannot(error.to_string()))?;
        let http =
            tiny_http::Server::from_listener(listener, None).map_err(|error| cannot(error.to_string()))?;
        Ok(Server {
            http,
            port: address.port(),
            key: Key::new()?,
            place: Arc::new(place),
        })
    }

    /// The page's address, with the key: whoever has it may do what the page can.
    pub fn address(&self) -> String {
        format!("http://127.0.0.1:{}/{}/", self.port, self.key.as_str())
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Serves until [`Server::end`].
    pub fn run(&self) {
        for request in self.http.incoming_requests() {
            match self.check(&request) {
                Ok(route) => self.handle(request, route),
                Err(refusal) => {
                    log::info!(
                        "{} {}: {}",
                        request.method(),
                        self.without_key(request.url()),
                        refusal.failure
                    );
                    let is_page = !request.url().contains("/api/");
                    reply(request, refused(&refusal, is_page));
                }
            }
        }
    }

    /// Lets [`Server::run`] return.
    pub fn end(&self) {
        self.http.unblock();
    }

    fn without_key(&self, url: &str) -> String {
        url.replace(self.key.as_str(), "KEY")
    }

    /// Whether the request is the page's own; what follows the key in its path.
    fn check(&self, request: &Request) -> Result<Wanted, Refusal> {
        let hosts: Vec<&str> = values(request, "Host").collect();
        let own = [
            format!("127.0.0.1:{}", self.port),
            format!("localhost:{}", self.port),
        ];
        let is_own = |host: &str| own.iter().any(|own| own.eq_ignore_ascii_case(host));
        if !matches!(hosts.as_slice(), [host] if is_own(host)) {
            return Err(refuse(403, "this page has another host's name"));
        }
        let (path, query) = request.url().split_once('?').unwrap_or((request.url(), ""));
        let (key, rest) = path
            .strip_prefix('/')
            .unwrap_or(path)
            .split_once('/')
            .unwrap_or_default();
        if !self.key.is(key) {
            return Err(refuse(403, "this address has not the right key"));
        }
        let origins_are_own =
            values(request, "Origin").all(|origin| origin.strip_prefix("http://").is_some_and(is_own));
        let site_is_own = values(request, "Sec-Fetch-Site")
            .all(|site| matches!(site, "same-origin" | "none") || rest.is_empty());
        if !origins_are_own || !site_is_own {
            return Err(refuse(403, "another page asks"));
        }
        let wanted = match rest.strip_prefix("api/") {
            Some(name) => routes::find(name).map(|route| Wanted::Route(route, query.to_owned())),
            None => assets::find(rest).map(Wanted::Asset),
        };
        let wanted = wanted.ok_or_else(|| refuse(404, "there is no such thing here"))?;
        match (request.method(), wanted.manner()) {
            (Method::Get, Manner::Look) => {}
            (Method::Post, Manner::Act) => {
                let is_json = values(request, "Content-Type").any(|of| of.eq_ignore_ascii_case(JSON));
                if !is_json {
                    return Err(refuse(415, "what is to be done is told in JSON only"));
                }
            }
            _ => return Err(refuse(405, "this cannot be asked in that manner")),
        }
        Ok(wanted)
    }

    fn handle(&self, mut request: Request, wanted: Wanted) {
        let (route, query) = match wanted {
            Wanted::Asset(asset) => {
                let content = asset.content.as_bytes().to_vec();
                return reply(
                    request,
                    Reply {
                        status: 200,
                        media_type: asset.media_type,
                        content,
                    },
                );
            }
            Wanted::Route(route, query) => (route, query),
        };
        let place = self.place.clone();
        let answer = move || {
            let told = read(&mut request, &query).and_then(|asked| (route.answer)(&place, &asked));
            let answered = match told {
                Ok(value) => Reply {
                    status: 200,
                    media_type: JSON,
                    content: value.to_string().into_bytes(),
                },
                Err(failure) => {
                    log::info!("{}: {failure}", route.name);
                    failed(status_of(&failure), &failure)
                }
            };
            reply(request, answered);
        };
        // A request that gets no thread is dropped with it, and the browser told so.
        if let Err(error) = thread::Builder::new().stack_size(STACK_BYTES).spawn(answer) {
            log::warn!("{}: no thread: {error}", route.name);
        }
    }
}

/// What a request is for.
enum Wanted {
    Asset(&'static assets::Asset),
    /// With what the address says behind its path.
    Route(&'static routes::Route, String),
}

impl Wanted {
    fn manner(&self) -> Manner {
        match self {
            Wanted::Asset(_) => Manner::Look,
            Wanted::Route(route, _) => route.manner,
        }
    }
}

fn values<'a>(request: &'a Request, name: &'static str) -> impl Iterator<Item = &'a str> {
    request
        .headers()
        .iter()
        .filter(move |header| header.field.equiv(name))
        .map(|header| header.value.as_str())
}

fn read(request: &mut Request, query: &str) -> Result<Asked, Failure> {
    let mut body = Vec::new();
    request
        .as_reader()
        .take(BODY_MAX + 1)
        .read_to_end(&mut body)
        .map_err(|error| {
            Failure::new(ErrorCode::Io, "what the page sent could not be read")
                .cause(error.to_string())
                .hint("try again")
        })?;
    if body.len() as u64 > BODY_MAX {
        return Err(Failure::new(ErrorCode::Usage, "what the page sent is too long")
            .hint("`tine resolve REVIEW PATH --file FILE` takes a file of any length"));
    }
    Ok(Asked {
        fields: form_urlencoded::parse(query.as_bytes()).into_owned().collect(),
        body,
    })
}

fn refuse(status: u16, message: &str) -> Refusal {
    let code = match status {
        403 => ErrorCode::PermissionDenied,
        _ => ErrorCode::Usage,
    };
    Refusal {
        status,
        failure: Failure::new(code, message).hint("open the address that `tine ui` printed"),
    }
}

/// A refusal: in words where a person may be looking, else in JSON.
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

fn reply(request: Request, reply: Reply) {
    let mut response = Response::from_data(reply.content).with_status_code(reply.status);
    for (name, value) in HEADERS.into_iter().chain([("Content-Type", reply.media_type)]) {
        if let Ok(header) = Header::from_bytes(name, value) {
            response.add_header(header);
        }
    }
    // A browser that went away needs nothing any more.
    if let Err(error) = request.respond(response) {
        log::debug!("a reply did not arrive: {error}");
    }
}
