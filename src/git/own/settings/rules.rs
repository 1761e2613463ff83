//! Settings that a fork does not get, and secrets in others.

use super::pattern::KeyPattern;

/// Settings that a fork does not get.
pub(super) struct LeftOut {
    /// Keys.
    pub(super) pattern: KeyPattern,
    /// Reason, as the end of "left out because".
    #[cfg_attr(not(test), expect(dead_code, reason = "it documents the row"))]
    pub(super) reason: &'static str,
}

const SECRET: &str = "it is or leads to a secret";
const PLACE: &str = "it describes the main checkout or its git directory";
const INDEX: &str = "it describes the main checkout's index; a fork has an index of its own";
const OWN: &str = "the fork's own file sets it";

/// All settings that a fork does not get.
pub(super) const LEFT_OUT: &[LeftOut] = &[
    row(
        "credential.[*.]*",
        "a fork must not use the person's credentials",
    ),
    row("http.[*.]extraHeader", "headers carry tokens"),
    row("http.[*.]cookieFile", "cookies are credentials"),
    row("http.[*.]saveCookies", "cookies are credentials"),
    row("http.[*.]*sslKey", SECRET),
    row("http.[*.]*sslKeyType", SECRET),
    row("http.[*.]*sslCert", "it is of no use without its key"),
    row("http.[*.]*sslCertType", "it is of no use without its key"),
    row(
        "http.[*.]*sslCertPasswordProtected",
        "it is of no use without its key",
    ),
    row(
        "http.[*.]proxyAuthMethod",
        "the proxy's user and password are removed",
    ),
    row(
        "remote.*.proxyAuthMethod",
        "the proxy's user and password are removed",
    ),
    row("receive.certNonceSeed", SECRET),
    row("sendemail.[*.]*pass*", SECRET),
    row("*.[*.]*pass", SECRET),
    row("*.[*.]*passwd*", SECRET),
    row("*.[*.]*password*", SECRET),
    row("*.[*.]*passphrase*", SECRET),
    row("*.[*.]*token", SECRET),
    row("*.[*.]*tokens", SECRET),
    row("*.[*.]*oauth*", SECRET),
    row("*.[*.]*secret*", SECRET),
    row("*.[*.]*apikey*", SECRET),
    row("*.[*.]*api-key*", SECRET),
    row("*.[*.]*privatekey*", SECRET),
    row("*.[*.]*private-key*", SECRET),
    row("*.[*.]*accesskey*", SECRET),
    row("*.[*.]*access-key*", SECRET),
    row("hub.[*.]*", "the program hub keeps its login there"),
    row("core.bare", PLACE),
    row("core.worktree", PLACE),
    row("core.repositoryFormatVersion", PLACE),
    row(
        "extensions.[*.]*",
        "git ignores extensions in included files",
    ),
    row(
        "core.preferSymlinkRefs",
        "the daemon reads a fork's HEAD as a file",
    ),
    row("core.fsmonitor", "the fork's own file sets its monitor"),
    row(
        "core.fsmonitorHookVersion",
        "the fork's own file sets its monitor",
    ),
    row("fsmonitor.[*.]*", "the fork's own file sets its monitor"),
    row("core.untrackedCache", OWN),
    row("core.fileMode", OWN),
    row("core.symlinks", OWN),
    row("core.ignoreCase", OWN),
    row("core.logAllRefUpdates", OWN),
    row("core.sparseCheckout*", INDEX),
    row("index.sparse", INDEX),
    row("sparse.[*.]*", INDEX),
    row("core.splitIndex", INDEX),
    row("splitIndex.[*.]*", INDEX),
    row(
        "gc.pruneExpire",
        "objects of a fork must last until the main repository has them",
    ),
    row(
        "gc.repackFilter*",
        "it moves objects out of the git directory",
    ),
    row("maintenance.[*.]*", "it is the main repository's schedule"),
    row("annex.uuid", "it names one repository"),
    row("tine.[*.]*", "tine reads it in the main repository"),
    row("include.[*.]*", "included files are resolved"),
    row("includeIf.[*.]*", "included files are resolved"),
];

/// Settings that are copied into a new fork's own file.
pub(super) const COPIED: [KeyPattern; 3] = [
    KeyPattern("remote.*.*"),
    KeyPattern("branch.*.*"),
    KeyPattern("submodule.*.*"),
];

const fn row(pattern: &'static str, reason: &'static str) -> LeftOut {
    LeftOut {
        pattern: KeyPattern(pattern),
        reason,
    }
}

/// Returns `text` without passwords and tokens in its URLs.
///
/// A user name stays in URLs for ssh only: elsewhere it can be a token.
pub(super) fn without_secrets(text: &[u8]) -> Vec<u8> {
    const MARK: &[u8] = b"://";
    let mut clean = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.windows(MARK.len()).position(|window| window == MARK) {
        let (before, after) = rest.split_at(at + MARK.len());
        clean.extend_from_slice(before);
        let end = after.iter().position(ends_authority).unwrap_or(after.len());
        let (authority, following) = after.split_at(end);
        match authority.iter().rposition(|&byte| byte == b'@') {
            None => clean.extend_from_slice(authority),
            Some(at) => {
                let (user_info, host) = authority.split_at(at);
                let user = user_info.split(|&byte| byte == b':').next();
                match user {
                    Some(user) if is_ssh(before) && !user.is_empty() => {
                        clean.extend_from_slice(user);
                        clean.extend_from_slice(host);
                    }
                    _ => clean.extend_from_slice(host.get(1..).unwrap_or_default()),
                }
            }
        }
        rest = following;
    }
    clean.extend_from_slice(rest);
    clean
}

fn ends_authority(byte: &u8) -> bool {
    matches!(byte, b'/' | b'?' | b'#' | b'\\' | b'"' | b'\'') || byte.is_ascii_whitespace()
}

/// Returns whether `before` ends with the start of a URL for ssh.
fn is_ssh(before: &[u8]) -> bool {
    let before = before.to_ascii_lowercase();
    before.ends_with(b"ssh://")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_lose_their_secrets() {
        for (text, expected) in [
            ("https://host/x", "https://host/x"),
            ("https://token@host/x", "https://host/x"),
            ("https://u:p@host:8080/x@y", "https://host:8080/x@y"),
            ("https://u:p@ss@host", "https://host"),
            ("ssh://git@host/x", "ssh://git@host/x"),
            ("ssh://git:pw@host/x", "ssh://git@host/x"),
            ("git+ssh://git:pw@host", "git+ssh://git@host"),
            ("ssh://:pw@host/x", "ssh://host/x"),
            ("git@host:x/y", "git@host:x/y"),
            (
                "!curl 'https://u:p@h/' http://t@i",
                "!curl 'https://h/' http://i",
            ),
            ("url.https://t@h/.insteadof", "url.https://h/.insteadof"),
            ("a://", "a://"),
            ("://@", "://"),
        ] {
            let clean = without_secrets(text.as_bytes());
            assert_eq!(String::from_utf8_lossy(&clean), expected, "{text}");
        }
    }

    #[test]
    fn every_row_has_a_reason() {
        for row in LEFT_OUT {
            assert!(!row.reason.is_empty(), "{:?}", row.pattern);
        }
    }
}
