//! Likely secrets, which are carried only if asked for by name.

use tine_git::patterns::is_match;
use tine_path::RepoPath;

/// Patterns of names that are held back in any carried directory.
const SECRETS: [&[u8]; 24] = [
    b".env*",
    b"*.env",
    b"*.pem",
    b"*.key",
    b"*.p12",
    b"*.pfx",
    b"*.jks",
    b"*.keystore",
    b"*.kdbx",
    b"*.ppk",
    b"*.gpg",
    b"id_*",
    b".netrc",
    b"_netrc",
    b".npmrc",
    b".pypirc",
    b".pgpass",
    b".htpasswd",
    b".git-credentials",
    b"credentials*",
    b"secrets*",
    b".aws",
    b".ssh",
    b".gnupg",
];

/// Directories of installed packages and build outputs.
///
/// They hold test keys and certificates that programs need, and names that match a pattern by
/// chance.
const MADE_BY_OTHERS: [&[u8]; 22] = [
    b"node_modules",
    b"bower_components",
    b".venv",
    b"venv",
    b"site-packages",
    b"vendor",
    b"target",
    b"build",
    b"dist",
    b"out",
    b"_build",
    b"deps",
    b"__pycache__",
    b".tox",
    b".nox",
    b".gradle",
    b".m2",
    b".yarn",
    b".next",
    b".nuxt",
    b".cache",
    b".bundle",
];

/// Returns whether `path` is held back unless asked for.
pub fn is_secret(path: &RepoPath) -> bool {
    let Some((parent, name)) = path.split_last() else {
        return false;
    };
    SECRETS
        .iter()
        .any(|pattern| is_match(pattern, name.as_bytes()))
        && !parent
            .components()
            .any(|name| MADE_BY_OTHERS.contains(&name.as_bytes()))
}

/// Returns the `patterns`, one per line, that name secrets.
///
/// The last component of such a pattern, taken as a name, is a secret's. A pattern for a directory
/// includes its content.
pub fn named_secrets<'p>(patterns: impl IntoIterator<Item = &'p [u8]>) -> Vec<Vec<u8>> {
    patterns
        .into_iter()
        .filter(|pattern| {
            let text = pattern.strip_prefix(b"!").unwrap_or(pattern);
            let text = text.trim_ascii_end();
            let text = text.strip_suffix(b"/").unwrap_or(text);
            let last = text.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
            SECRETS.iter().any(|secret| is_match(secret, last))
        })
        .map(<[u8]>::to_vec)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(text: &str) -> bool {
        is_secret(&RepoPath::parse(text).unwrap())
    }

    #[test]
    fn secrets_are_told_by_their_names_and_not_among_what_others_made() {
        for secret in [
            ".env",
            "a/.env.local",
            "config/server.key",
            "id_ed25519",
            ".ssh",
            "x/.netrc",
        ] {
            assert!(held(secret), "{secret}");
        }
        for other in [
            "target/debug/deps/id_arena-1.rlib",
            ".venv/lib/python3/site-packages/certifi/cacert.pem",
            "node_modules/a/test/server.key",
            "environment",
            "dev.db",
        ] {
            assert!(!held(other), "{other}");
        }
    }

    #[test]
    fn a_pattern_names_a_secret_by_its_last_component() {
        let patterns: [&[u8]; 8] = [
            b".env",
            b"/config/*.pem",
            b"*",
            b"config/",
            b".env*",
            b"id_rsa",
            b"!.env.prod",
            b".ssh/",
        ];
        let named = named_secrets(patterns);
        let named: Vec<_> = named
            .iter()
            .map(|name| String::from_utf8_lossy(name))
            .collect();
        assert_eq!(
            named,
            [
                ".env",
                "/config/*.pem",
                ".env*",
                "id_rsa",
                "!.env.prod",
                ".ssh/"
            ]
        );
    }
}
