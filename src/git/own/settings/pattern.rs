//! Patterns of configuration keys, as git's documentation writes them.

use super::text::KeyParts;

/// A pattern such as `core.pager`, `diff.*.command` or `http.[*.]proxy`.
///
/// `*` stands for any bytes. The middle part is the subsection: `[*.]` matches any subsection and
/// none. Letter case counts in a subsection only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyPattern(pub &'static str);

impl KeyPattern {
    /// Returns whether the pattern matches a key.
    pub fn matches(self, key: &KeyParts) -> bool {
        let (section, rest) = self.0.split_once('.').unwrap_or((self.0, "*"));
        if !glob(section.to_ascii_lowercase().as_bytes(), &key.section) {
            return false;
        }
        let (subsection, variable) = match rest.strip_prefix("[*.]") {
            Some(variable) => (None, variable),
            None => match rest.rsplit_once('.') {
                Some((subsection, variable)) => (Some(Some(subsection)), variable),
                None => (Some(None), rest),
            },
        };
        let is_subsection = match (subsection, &key.subsection) {
            (None, _) | (Some(None), None) => true,
            (Some(Some(pattern)), Some(subsection)) => glob(pattern.as_bytes(), subsection),
            _ => false,
        };
        is_subsection && glob(variable.to_ascii_lowercase().as_bytes(), &key.variable)
    }
}

/// Matches `text` with `*` for any bytes.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    match pattern {
        [] => text.is_empty(),
        [b'*', rest @ ..] => {
            rest.is_empty() || (0..=text.len()).any(|at| glob(rest, text.get(at..).unwrap_or(b"")))
        }
        [byte, rest @ ..] => text
            .split_first()
            .is_some_and(|(first, text)| first == byte && glob(rest, text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_keys_as_the_documentation_writes_them() {
        for (pattern, key, expected) in [
            ("core.pager", "core.pager", true),
            ("core.sshCommand", "core.sshcommand", true),
            ("core.pager", "core.x.pager", false),
            ("core.pager", "core.pagers", false),
            ("diff.*.command", "diff.a.b.command", true),
            ("diff.*.command", "diff.command", false),
            ("http.[*.]proxy", "http.proxy", true),
            ("http.[*.]proxy", "http.https://x.y/z.proxy", true),
            ("http.[*.]proxy", "http.proxyauthmethod", false),
            ("http.[*.]ssl*Key", "http.https://x.proxysslkey", false),
            ("http.[*.]*sslKey", "http.https://x.proxysslkey", true),
            ("pager.*", "pager.log", true),
            ("pager.*", "pager.a.log", false),
            ("*.[*.]*token", "github.token", true),
            ("*.[*.]*token", "gitlab.https://x.OAUTHTOKEN", true),
            ("hub.[*.]*", "hub.a.b", true),
            ("hub.[*.]*", "hub.a", true),
        ] {
            let key = KeyParts::of(key.as_bytes());
            assert_eq!(
                KeyPattern(pattern).matches(&key),
                expected,
                "{pattern} {key:?}"
            );
        }
    }
}
