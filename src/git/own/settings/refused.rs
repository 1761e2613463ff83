//! Settings that an untrusted fork may not have in its own files.
//!
//! git runs a program for each of them, or gives a secret away, as soon as a person works in the
//! fork. The table is the only list: the daemon refuses by it, the documentation shows it, and a
//! test runs git on each row.

use super::pattern::KeyPattern;
use super::text::{KeyParts, Setting, append, parse};
use super::{INCLUDE_KEY, MONITOR_COMMAND, SHARED_PATH};

/// Setting that an untrusted fork may not have.
#[derive(Debug)]
pub struct RefusedSetting {
    /// Keys.
    pub pattern: KeyPattern,
    /// Values that are refused.
    pub values: RefusedValues,
    /// Effect, as a clause.
    pub reason: &'static str,
}

/// Values of a setting that are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusedValues {
    /// All.
    All,
    /// All except `true`, `false` and git's other words for these.
    NotBoolean,
    /// All except a boolean and the command that tine sets.
    NotMonitor,
    /// All except the line that tine writes into the fork's own file.
    NotShared,
    /// Commands: they begin with `!`.
    Command,
    /// URLs that are commands: they begin with `ext::`.
    CommandUrl,
    /// Names of a tool that are paths: they have a slash.
    Path,
    /// Encodings except UTF-8.
    NotUtf8,
    /// Directories outside the fork, and all in the fork's own `config`.
    Outside,
}

impl RefusedValues {
    /// Returns the text for the documentation.
    pub fn text(self) -> &'static str {
        match self {
            RefusedValues::All => "all",
            RefusedValues::NotBoolean => "all except `true` and `false`",
            RefusedValues::NotMonitor => "all except `true`, `false` and tine's own",
            RefusedValues::NotShared => "all except tine's own",
            RefusedValues::Command => "those that begin with `!`",
            RefusedValues::CommandUrl => "those that begin with `ext::`",
            RefusedValues::Path => "those that have a slash",
            RefusedValues::NotUtf8 => "all except `UTF-8`",
            RefusedValues::Outside => "all, but a submodule's may lead to a place in the fork",
        }
    }

    fn match_value(self, setting: &Setting, place: ConfigPlace) -> bool {
        let value = setting.value.as_deref();
        match self {
            RefusedValues::All => true,
            RefusedValues::NotBoolean => !value.is_none_or(is_boolean),
            RefusedValues::NotMonitor => {
                !value.is_none_or(|value| is_boolean(value) || value == MONITOR_COMMAND)
            }
            RefusedValues::NotShared => {
                !(place.is_forks_own
                    && setting.key == INCLUDE_KEY
                    && value == Some(SHARED_PATH.as_bytes()))
            }
            RefusedValues::Command => value.is_some_and(|value| value.starts_with(b"!")),
            RefusedValues::CommandUrl => value.is_some_and(|value| value.starts_with(b"ext::")),
            RefusedValues::Path => value.is_some_and(|value| value.contains(&b'/')),
            RefusedValues::NotUtf8 => value.is_some_and(|value| {
                !value.eq_ignore_ascii_case(b"utf-8") && !value.eq_ignore_ascii_case(b"utf8")
            }),
            RefusedValues::Outside => {
                place.is_forks_own || !value.is_some_and(|value| is_inside(value, place.depth))
            }
        }
    }
}

/// Place of a configuration file in a fork.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfigPlace {
    /// True for a file in the fork's own git directory itself.
    pub is_forks_own: bool,
    /// Number of directories between the fork's root and the file.
    pub depth: usize,
}

const PROGRAM: &str = "git runs the program";
const SIGNING: &str = "git runs the program to sign, or to check a signature";
const TRANSFER: &str = "git runs the program to fetch or push";
const TOOL: &str = "the command runs the program";
const TOOL_SCRIPT: &str = "git sources the file as a shell script";
const REBASE_LINES: &str =
    "a character becomes a newline, and the next line a command of `git rebase`";
const SECRETS: &str = "it leads what git sends, passwords included, to another place";

/// All settings that an untrusted fork may not have.
pub const REFUSED: &[RefusedSetting] = &[
    row("alias.[*.]*", "an alias can be any command"),
    row("annex.[*.]*command*", "git-annex runs the program"),
    row("browser.*.cmd", TOOL),
    row("browser.*.path", TOOL),
    row("core.alternateRefsCommand", PROGRAM),
    row("core.askPass", "git runs the program to ask for a password"),
    row("core.editor", "git runs the program to edit a text"),
    row_of(
        "core.fsmonitor",
        RefusedValues::NotMonitor,
        "git runs the program for `git status`",
    ),
    row("core.gitProxy", TRANSFER),
    row("core.hooksPath", "git runs the hooks in that directory"),
    row("core.pager", "git runs the program to show what it prints"),
    row("core.sshCommand", TRANSFER),
    row_of(
        "core.worktree",
        RefusedValues::Outside,
        "`git checkout` and `git clean` change another directory",
    ),
    row("credential.[*.]*", "git runs helpers for passwords"),
    row("delta.[*.]pager", "the pager delta runs the program"),
    row("diff.*.command", "`git diff` runs the program"),
    row("diff.*.textconv", "`git log -p` runs the program"),
    row("diff.external", "`git diff` runs the program"),
    row_of("diff.guitool", RefusedValues::Path, TOOL_SCRIPT),
    row_of("diff.tool", RefusedValues::Path, TOOL_SCRIPT),
    row("difftool.*.cmd", TOOL),
    row("difftool.*.path", TOOL),
    row("filter.*.clean", "`git status` runs the program"),
    row("filter.*.process", "`git status` runs the program"),
    row("filter.*.smudge", "`git checkout` runs the program"),
    row(
        "format.outputDirectory",
        "git writes files to any directory",
    ),
    row("gc.recentObjectsHook", "`git gc` runs the program"),
    row(
        "gitflow.path.hooks",
        "git-flow runs the hooks in that directory",
    ),
    row("gpg.[*.]program", SIGNING),
    row(
        "gpg.ssh.allowedSignersFile",
        "it says whose signatures are good",
    ),
    row("gpg.ssh.defaultKeyCommand", SIGNING),
    row("guitool.*.cmd", "`git gui` runs the program"),
    row(
        "hook.[*.]*",
        "git runs the program as a hook, since version 2.54",
    ),
    row("http.[*.]*proxy*", SECRETS),
    row("http.[*.]*ssl*", "what git sends can be read by others"),
    row(
        "http.[*.]cookieFile",
        "git reads that file, or writes to it",
    ),
    row("http.[*.]curloptResolve", SECRETS),
    row("http.[*.]saveCookies", "git writes to any file"),
    row_of("i18n.commitEncoding", RefusedValues::NotUtf8, REBASE_LINES),
    row_of(
        "i18n.logOutputEncoding",
        RefusedValues::NotUtf8,
        REBASE_LINES,
    ),
    row("imap.tunnel", "`git imap-send` runs the program"),
    row_of(
        "include.[*.]path",
        RefusedValues::NotShared,
        "git reads settings from another file",
    ),
    row("includeIf.*.path", "git reads settings from another file"),
    row("init.templateDir", "`git init` copies hooks from there"),
    row("instaweb.*", "`git instaweb` runs the program"),
    row("interactive.diffFilter", "`git add -p` runs the program"),
    row("lfs.customtransfer.*.*", "git-lfs runs the program"),
    row("lfs.extension.*.*", "git-lfs runs the program"),
    row("lfs.standalonetransferagent", "git-lfs runs the program"),
    row("lfs.storage", "git-lfs writes files to any directory"),
    row("man.*.cmd", "`git help` runs the program"),
    row("man.*.path", "`git help` runs the program"),
    row("merge.*.driver", "`git merge` runs the program"),
    row_of("merge.guitool", RefusedValues::Path, TOOL_SCRIPT),
    row_of("merge.tool", RefusedValues::Path, TOOL_SCRIPT),
    row("mergetool.*.cmd", TOOL),
    row(
        "mergetool.*.layout",
        "vim gets commands that are made from it",
    ),
    row("mergetool.*.path", TOOL),
    row_of(
        "pager.[*.]*",
        RefusedValues::NotBoolean,
        "git runs the program to show what it prints",
    ),
    row("protocol.[*.]allow", "git then runs commands that are URLs"),
    row(
        "rebase.instructionFormat",
        "a line in it becomes a command of `git rebase`",
    ),
    row("remote.*.annex-*", "git-annex runs the program"),
    row("remote.*.proxy*", SECRETS),
    row_of("remote.*.pushurl", RefusedValues::CommandUrl, TRANSFER),
    row("remote.*.receivepack", TRANSFER),
    row("remote.*.uploadpack", TRANSFER),
    row_of("remote.*.url", RefusedValues::CommandUrl, TRANSFER),
    row("remote.*.vcs", TRANSFER),
    row("sendemail.[*.]*cmd", "`git send-email` runs the program"),
    row(
        "sendemail.[*.]smtpServer*",
        "`git send-email` runs the program",
    ),
    row("sequence.editor", "`git rebase -i` runs the program"),
    row_of(
        "submodule.*.update",
        RefusedValues::Command,
        "`git submodule update` runs the program",
    ),
    row_of("submodule.*.url", RefusedValues::CommandUrl, TRANSFER),
    row("svn.[*.]authorsProg", "`git svn` runs the program"),
    row("tar.*.command", "`git archive` runs the program"),
    row("tig.[*.]*", "tig runs commands that are bound to keys"),
    row("trailer.*.cmd", "`git interpret-trailers` runs the program"),
    row(
        "trailer.*.command",
        "`git interpret-trailers` runs the program",
    ),
    row(
        "uploadpack.packObjectsHook",
        "git runs the program for others that fetch",
    ),
    row("url.ext::*.*", TRANSFER),
];

const fn row(pattern: &'static str, reason: &'static str) -> RefusedSetting {
    row_of(pattern, RefusedValues::All, reason)
}

const fn row_of(
    pattern: &'static str,
    values: RefusedValues,
    reason: &'static str,
) -> RefusedSetting {
    RefusedSetting {
        pattern: KeyPattern(pattern),
        values,
        reason,
    }
}

/// Setting that makes a configuration file refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundRefused {
    /// Key, or a description if the file cannot be parsed.
    pub what: String,
    /// Reason, as a clause.
    pub reason: &'static str,
}

/// Returns the first refused setting of a configuration file.
///
/// Settings that `before` has, the file's present content, may stay. What git cannot parse is
/// refused.
pub fn refused_in(content: &[u8], before: &[u8], place: ConfigPlace) -> Option<FoundRefused> {
    let (settings, is_whole) = parse(content);
    let (known, _) = parse(before);
    for setting in &settings {
        if let Some(row) = refusal_of(setting, place)
            && !known.contains(setting)
        {
            let exact = Some(row.pattern.0).filter(|pattern| !pattern.contains('*'));
            let key = String::from_utf8_lossy(&setting.key);
            return Some(FoundRefused {
                what: exact.unwrap_or(&key).to_owned(),
                reason: row.reason,
            });
        }
    }
    (!is_whole).then(|| FoundRefused {
        what: "a configuration file".to_owned(),
        reason: "git cannot parse it",
    })
}

/// Returns a configuration file without refused settings, and the first of them.
///
/// `None` if git may read all of it. With `keeps_programs` only a work tree outside the fork is
/// left out: a file that was checked elsewhere may have one after its directory was moved.
pub fn without_refused(
    content: &[u8],
    place: ConfigPlace,
    keeps_programs: bool,
) -> Option<(Vec<u8>, FoundRefused)> {
    let found = if keeps_programs {
        let (settings, _) = parse(content);
        let outside = settings.iter().find(|setting| is_outside(setting, place))?;
        FoundRefused {
            what: String::from_utf8_lossy(&outside.key).into_owned(),
            reason: "it leads to a directory outside the fork",
        }
    } else {
        refused_in(content, b"", place)?
    };
    let (settings, is_whole) = parse(content);
    let mut text = Vec::new();
    for setting in settings.iter().filter(|_| is_whole) {
        let is_left_out = if keeps_programs {
            is_outside(setting, place)
        } else {
            refusal_of(setting, place).is_some()
        };
        if !is_left_out && !append(&mut text, setting) {
            log::debug!("a setting of a fork is left out: no file can hold it");
        }
    }
    Some((text, found))
}

fn is_outside(setting: &Setting, place: ConfigPlace) -> bool {
    setting.key == b"core.worktree" && RefusedValues::Outside.match_value(setting, place)
}

/// Returns the row by which a setting is refused.
fn refusal_of(setting: &Setting, place: ConfigPlace) -> Option<&'static RefusedSetting> {
    let key = KeyParts::of(&setting.key);
    REFUSED
        .iter()
        .find(|row| row.pattern.matches(&key) && row.values.match_value(setting, place))
}

/// Returns whether git takes the value for true or false.
fn is_boolean(value: &[u8]) -> bool {
    let words: [&[u8]; 7] = [b"true", b"yes", b"on", b"false", b"no", b"off", b""];
    words.iter().any(|word| value.eq_ignore_ascii_case(word)) || matches!(value, b"0" | b"1")
}

/// Returns whether a relative path stays in the fork.
///
/// It begins at a directory at this depth.
fn is_inside(path: &[u8], depth: usize) -> bool {
    if path.is_empty() || path.starts_with(b"/") {
        return false;
    }
    let mut depth = depth;
    for part in path.split(|&byte| byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => match depth.checked_sub(1) {
                Some(above) => depth = above,
                None => return false,
            },
            _ => depth = depth.saturating_add(1),
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: ConfigPlace = ConfigPlace {
        is_forks_own: true,
        depth: 1,
    };
    const OF_SUBMODULE: ConfigPlace = ConfigPlace {
        is_forks_own: false,
        depth: 3,
    };

    fn refused(content: &[u8], place: ConfigPlace) -> Option<String> {
        refused_in(content, b"", place).map(|found| found.what)
    }

    #[test]
    fn odd_ways_to_write_a_setting_are_read_as_git_reads_them() {
        for content in [
            &b"[core]\n\tfsmonitor = x\n"[..],
            b"[core] fsmonitor=x",
            b"[CORE]FSMonitor=x",
            b"\xef\xbb\xbf[core]\r\n\tfsmonitor = x\r\n",
            b"[core]\n\tfsmonitor \\\n = x\n",
            b"[core]\n\tfsmonitor = \\\nx\n",
            b"# [core]\n;x\n[core] ; y\nfsmonitor = \"x\" # z\n",
            b"[user] name = a\n[core]\nbare = false\nfsmonitor = x\n",
            b"[core]\nfsmonitor = x\n[core]\nfsmonitor = false\n",
            b"[diff.X]\n\tcommand = x\n",
            b"[diff \"a.b\\\"c\"]\n\tcommand = x\n",
            b"[include]\n\tpath = tine/config\n\tpath = x\n",
            b"[include]\n\tpath = ./tine/config\n",
            b"[includeIf \"gitdir:/\"]\n\tpath = tine/config\n",
            b"[pager]\n\tlog = x\n",
            b"[core]\n\tworktree = ..\n",
            b"[url \"ext::sh -c x\"]\n\tinsteadOf = y\n",
            b"[credential \"https://x\"]\n\thelper = x\n",
            b"[core]\n\tfsmonitor = x\0\n",
            b"[core]\n\tpager\n",
            b"[core\n\tbare = false\n",
            b"[nonsense",
            b"\0",
        ] {
            assert!(
                refused(content, OWN).is_some(),
                "{}",
                String::from_utf8_lossy(content)
            );
        }
    }

    #[test]
    fn harmless_settings_are_not_refused() {
        for content in [
            &b""[..],
            b"[core]\n\tfsmonitor = false\n\tbare = false\n",
            b"[pager]\n\tlog = false\n\tdiff\n",
            b"[user]\n\tname = core.pager\n\temail = a@b\n",
            b"[remote \"origin\"]\n\turl = https://host/x.git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n",
            b"[remote \"origin\"]\n\turl = git@host:x.git\n\tpushurl = ../y\n",
            b"[branch \"a\"]\n\tremote = origin\n\tmerge = refs/heads/a\n",
            b"[url \"https://host/\"]\n\tinsteadOf = gh:\n",
            b"[submodule \"s\"]\n\tactive = true\n\turl = https://host/s\n\tupdate = rebase\n",
            b"[extensions]\n\tworktreeConfig = true\n[core]\n\tsparseCheckout = true\n",
            b"[diff]\n\ttool = vimdiff\n[merge]\n\ttool = meld\n\tconflictStyle = zdiff3\n",
        ] {
            assert_eq!(refused(content, OWN), None);
        }
        let own = super::super::own_settings(&super::super::OwnSettings {
            object_format: None,
            partial_clone: None,
            file_mode: true,
            symlinks: true,
            ignore_case: false,
            monitor_command: Some(MONITOR_COMMAND.to_vec()),
            copied: Vec::new(),
        });
        assert_eq!(refused(&own, OWN), None);
        // Elsewhere the same line includes a file that nobody checks.
        assert!(refused(&own, OF_SUBMODULE).is_some());
    }

    #[test]
    fn a_submodule_has_its_work_tree_in_the_fork() {
        for (value, is_refused) in [
            ("../../../s", false),
            ("../../../../s", true),
            ("../../../a/../../s", true),
            ("/s", true),
            ("", true),
        ] {
            let content = format!("[core]\n\tworktree = {value}\n");
            let found = refused(content.as_bytes(), OF_SUBMODULE);
            assert_eq!(found.is_some(), is_refused, "{value}");
        }
    }

    #[test]
    fn what_git_reads_is_without_refused_settings() {
        let content = b"[user] name = a\n[core] pager = x\nbare = false\n[alias \"b\"] c = d\n";
        let (kept, found) = without_refused(content, OF_SUBMODULE, false).unwrap();
        assert_eq!(found.what, "core.pager");
        let (settings, is_whole) = parse(&kept);
        let keys: Vec<&[u8]> = settings.iter().map(|setting| &setting.key[..]).collect();
        assert_eq!(keys, [&b"user.name"[..], b"core.bare"]);
        assert!(is_whole);
        assert_eq!(without_refused(&kept, OF_SUBMODULE, false), None);
        assert_eq!(without_refused(content, OF_SUBMODULE, true), None);
        let moved = b"[core]\nworktree = ../../../../x\npager = x\n";
        let (kept, _) = without_refused(moved, OF_SUBMODULE, true).unwrap();
        assert_eq!(parse(&kept).0.len(), 1);
        let (kept, _) = without_refused(b"[user] name = a\n[", OF_SUBMODULE, false).unwrap();
        assert_eq!(kept, b"");
    }

    #[test]
    fn what_a_file_has_may_stay_in_it() {
        let before = b"[alias]\n\tx = !y\n";
        let after = b"[alias]\n\tx = !y\n[user]\n\tname = z\n";
        assert_eq!(refused_in(after, before, OWN), None);
        let other = b"[alias]\n\tx = !z\n";
        assert!(refused_in(other, before, OWN).is_some());
    }
}
