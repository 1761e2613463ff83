//! Changesets and files by URI, for clients that attach them to conversations.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use rmcp::model::{ReadResourceResult, Resource, ResourceContents, ResourceTemplate};

use super::schema;
use super::session::Session;
use super::tool::in_json;
use super::tools::files::read_bytes;
use super::tools::work::{StatusShown, diff_of, status_of};
use tine_change::ChangeKind;
use tine_ops::protocol::ForkInfo;
use tine_ops::{ErrorCode, Failure};
use tine_path::text::PathText;

const CHANGESET: &str = "tine://changeset";
const DIFF: &str = "tine://diff";
const FILE: &str = "tine://file/";

/// Maximum size of a file or patch that is returned, in bytes.
const MAX_BYTES: usize = 1 << 20;

/// Characters to escape in the path of a URI. Slashes stay.
const NOT_IN_PATHS: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// Lists the resources of the session.
///
/// These are the active fork's changeset and changed files, and the changesets of other forks.
pub(crate) fn list(session: &Session) -> Result<Vec<Resource>, Failure> {
    let active = session.active();
    let mut resources = Vec::new();
    if active.is_some() {
        resources.push(
            Resource::new(CHANGESET, "changeset")
                .with_title("What is uncommitted in the active fork")
                .with_mime_type("application/json"),
        );
        resources.push(
            Resource::new(DIFF, "diff")
                .with_title("The same as a patch")
                .with_mime_type("text/x-diff"),
        );
        let changed = status_of(session, None)?.changes.paths;
        let texts = changed
            .iter()
            .filter(|change| change.kind != ChangeKind::Deleted)
            .filter_map(|change| match &change.path {
                PathText::Text(path) => Some(path),
                // A URI template cannot express such a path.
                PathText::Bytes { .. } => None,
            });
        for path in texts {
            resources.push(
                Resource::new(
                    format!("{FILE}{}", utf8_percent_encode(path, NOT_IN_PATHS)),
                    path,
                )
                .with_description("changed in the active fork"),
            );
        }
    }
    let (forks, _) = session.with(|connection| connection.forks())?;
    let others = forks
        .iter()
        .filter(|fork| Some(&fork.name) != active.as_ref());
    resources.extend(others.map(|ForkInfo { name, .. }| {
        Resource::new(
            format!("{CHANGESET}/{name}"),
            format!("changeset of {name}"),
        )
        .with_title(format!("What is uncommitted in the fork {name}"))
        .with_mime_type("application/json")
    }));
    Ok(resources)
}

/// Returns the templates of resources that are not listed.
pub(crate) fn templates() -> Vec<ResourceTemplate> {
    vec![
        ResourceTemplate::new(format!("{CHANGESET}/{{fork}}"), "changeset of a fork")
            .with_description("What is uncommitted in a fork")
            .with_mime_type("application/json"),
        ResourceTemplate::new(format!("{DIFF}/{{fork}}"), "diff of a fork")
            .with_description("What is uncommitted in a fork, as a patch")
            .with_mime_type("text/x-diff"),
        ResourceTemplate::new(format!("{FILE}{{+path}}"), "file")
            .with_description("A file of the active fork, by its path from the root"),
    ]
}

/// Reads the resource at `uri`.
pub(crate) fn read(session: &Session, uri: &str) -> Result<ReadResourceResult, Failure> {
    let contents = if let Some(path) = uri.strip_prefix(FILE) {
        file(session, uri, path)?
    } else if let Some(fork) = fork_of(uri, CHANGESET) {
        let schema = schema::of_answer::<StatusShown>();
        let json = in_json(&status_of(session, fork)?, Some(&schema))?;
        ResourceContents::text(format!("{json:#}"), uri).with_mime_type("application/json")
    } else if let Some(fork) = fork_of(uri, DIFF) {
        let shown = diff_of(session, fork, None, &[], &["--binary"], MAX_BYTES)?;
        if shown.truncated {
            return Err(too_large(uri));
        }
        ResourceContents::text(shown.diff, uri).with_mime_type("text/x-diff")
    } else {
        return Err(Failure::new(
            ErrorCode::NoSuchPath,
            format!("there is no resource {uri:?}"),
        )
        .hint(format!(
            "{CHANGESET}, {DIFF}, either with /FORK, and {FILE}PATH are there"
        )));
    };
    Ok(ReadResourceResult::new(vec![contents]))
}

/// Returns the fork that `uri` names under `root`.
///
/// The inner `None` is the active fork. Returns `None` if `uri` is not under `root`.
fn fork_of<'u>(uri: &'u str, root: &str) -> Option<Option<&'u str>> {
    match uri.strip_prefix(root)? {
        "" => Some(None),
        rest => Some(Some(rest.strip_prefix('/')?)),
    }
}

fn file(session: &Session, uri: &str, path: &str) -> Result<ResourceContents, Failure> {
    let path = percent_decode_str(path).decode_utf8().map_err(|error| {
        Failure::new(ErrorCode::Usage, format!("{uri:?} is not a path in UTF-8"))
            .cause(error.to_string())
            .hint("the tool `run` reaches files whose names are none")
    })?;
    let (_, _, bytes) = read_bytes(session, &path)?;
    if bytes.len() > MAX_BYTES {
        return Err(too_large(uri));
    }
    let kind = mime_type(&path);
    Ok(match String::from_utf8(bytes) {
        Ok(text) => ResourceContents::text(text, uri).with_mime_type(kind.unwrap_or("text/plain")),
        Err(error) => ResourceContents::blob(STANDARD.encode(error.as_bytes()), uri)
            .with_mime_type(kind.unwrap_or("application/octet-stream")),
    })
}

fn too_large(uri: &str) -> Failure {
    Failure::new(
        ErrorCode::Usage,
        format!(
            "{uri} is larger than a resource may be ({} KiB)",
            MAX_BYTES >> 10
        ),
    )
    .hint("the tools `read_file` and `diff` show parts of it")
}

/// Returns the media type of files that clients display specially.
fn mime_type(path: &str) -> Option<&'static str> {
    let (_, extension) = path.rsplit_once('.')?;
    Some(match extension.to_ascii_lowercase().as_str() {
        "css" => "text/css",
        "csv" => "text/csv",
        "gif" => "image/gif",
        "htm" | "html" => "text/html",
        "jpeg" | "jpg" => "image/jpeg",
        "json" => "application/json",
        "md" => "text/markdown",
        "pdf" => "application/pdf",
        "png" => "image/png",
        "svg" => "image/svg+xml",
        "webp" => "image/webp",
        "xml" => "application/xml",
        _ => return None,
    })
}
