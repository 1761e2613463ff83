//! The caller's git settings, read without running git.
//!
//! A git process takes milliseconds for each question. A function returns `None` if the answer
//! depends on more than plain settings: conditional includes, a date in the environment, or a name
//! that git cleans up or derives from the host. The caller must then ask git.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use gix::date::Time;

use super::repository::NO_PACK_SLOTS;
use super::{CommitTime, Identity, Role};

/// The configuration that git has in one directory.
pub struct CallerConfig {
    local: gix::Repository,
}

impl CallerConfig {
    /// Reads the configuration for `dir`, a worktree or a git directory.
    ///
    /// Returns `None` if git must be asked.
    pub fn of(dir: &Path) -> Option<CallerConfig> {
        let (found, _trust) = gix::discover::upwards(dir).ok()?;
        let (git_dir, _) = found.into_repository_and_work_tree_directories();
        let mut permissions = gix::open::Permissions::all();
        // git is run without these settings, too.
        permissions.config.env = false;
        let opened = gix::open::Options::default()
            .permissions(permissions)
            .object_store_slots(NO_PACK_SLOTS)
            .open_path_as_is(true)
            .bail_if_untrusted(true)
            .open(git_dir)
            .ok()?;
        let config = CallerConfig {
            local: opened.to_thread_local(),
        };
        (!config.has_section("includeIf")).then_some(config)
    }

    /// Returns the identity of this `role` for a commit made now.
    ///
    /// Returns `None` if git must be asked.
    pub fn identity(&self, role: Role) -> Option<Identity> {
        self.identity_in(role, &|name| env::var_os(name))
    }

    fn identity_in(
        &self,
        role: Role,
        variable: &dyn Fn(&str) -> Option<OsString>,
    ) -> Option<Identity> {
        let part = |part: &str| {
            let text = match variable(&role.variable(&part.to_uppercase())) {
                Some(given) => given.into_string().ok()?,
                None => self
                    .setting(&role.key(part))
                    .or_else(|| self.setting(&format!("user.{part}")))?,
            };
            // The punctuation that git strips depends on its version.
            let is_clean = !text.is_empty() && super::commit::strip_crud(&text) == text;
            is_clean.then_some(text)
        };
        Some(Identity {
            name: part("name")?,
            email: part("email")?,
            time: Some(time_in(role, variable)?),
        })
    }

    /// Returns the directory of the repository's hooks.
    ///
    /// Returns `None` if git must be asked.
    pub fn hooks_dir(&self) -> Option<PathBuf> {
        // Since git 2.54, the configuration may define hooks.
        if self.has_section("hook") || self.sets("core", "hooksPath") {
            return None;
        }
        Some(self.local.common_dir().canonicalize().ok()?.join("hooks"))
    }

    /// Returns the private git directory of the worktree.
    pub fn git_dir(&self) -> &Path {
        self.local.git_dir()
    }

    fn setting(&self, key: &str) -> Option<String> {
        let value = self.local.config_snapshot().string(key)?;
        String::from_utf8(value.to_vec()).ok()
    }

    fn has_section(&self, name: &str) -> bool {
        let config = self.local.config_snapshot();
        let mut sections = config
            .plumbing()
            .sections_by_name(name)
            .into_iter()
            .flatten();
        sections.next().is_some()
    }

    fn sets(&self, section: &str, name: &str) -> bool {
        let config = self.local.config_snapshot();
        let mut sections = config
            .plumbing()
            .sections_by_name(section)
            .into_iter()
            .flatten();
        sections.any(|section| section.contains_value_name(name))
    }
}

/// Returns the current time in the caller's time zone.
///
/// Returns `None` if the environment gives a date for `role`.
pub fn commit_time(role: Role) -> Option<CommitTime> {
    time_in(role, &|name| env::var_os(name))
}

fn time_in(role: Role, variable: &dyn Fn(&str) -> Option<OsString>) -> Option<CommitTime> {
    if variable(&role.variable("DATE")).is_some() {
        return None;
    }
    let now = Time::now_local_or_utc();
    Some(CommitTime {
        secs: now.seconds,
        offset_secs: now.offset,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::program;
    use crate::testing::TestRepository;

    type Pair<'a> = (&'a str, &'a str);

    /// What is told without git is what git says.
    #[test]
    fn identities_are_those_that_git_finds() {
        let user = [
            ("user.name", "Conny Config"),
            ("user.email", "conny@example.org"),
        ];
        let author = [
            ("author.name", "Ada"),
            ("committer.email", "carl@example.org"),
        ];
        let nobody = [("user.name", " "), ("user.email", "conny@example.org")];
        let untidy = [
            ("user.name", "Conny C."),
            ("user.email", "conny@example.org"),
        ];
        let given = [("GIT_AUTHOR_NAME", "Grace"), ("GIT_COMMITTER_EMAIL", "g@h")];
        let empty = [("GIT_AUTHOR_NAME", ""), ("GIT_COMMITTER_NAME", "")];
        let dated = [
            ("GIT_AUTHOR_DATE", "2001-02-03T04:05:06Z"),
            ("GIT_COMMITTER_DATE", ""),
        ];
        let cases: [(Vec<Pair<'_>>, &[Pair<'_>], bool); 9] = [
            (vec![], &[], false),
            (user.to_vec(), &[], true),
            ([user, author].concat(), &[], true),
            ([user, author].concat(), &given, true),
            (nobody.to_vec(), &[], false),
            (untidy.to_vec(), &[], false),
            (user.to_vec(), &empty, false),
            (user.to_vec(), &dated, false),
            (
                [&user[..], &[("includeIf.onbranch:x.path", "x")]].concat(),
                &[],
                false,
            ),
        ];
        for (settings, environment, is_told) in cases {
            let test = TestRepository::new();
            // What is configured on this machine does not count.
            for key in ["user.name", "user.email"] {
                test.git(&["config", key, ""]);
            }
            for (key, value) in &settings {
                test.git(&["config", key, value]);
            }
            let variables: BTreeMap<&str, &str> = environment.iter().copied().collect();
            let variable = |name: &str| variables.get(name).map(OsString::from);
            for role in [Role::Author, Role::Committer] {
                let told = CallerConfig::of(test.dir())
                    .and_then(|config| config.identity_in(role, &variable));
                assert_eq!(
                    told.is_some(),
                    is_told,
                    "{settings:?} {environment:?}: {told:?}"
                );
                let Some(told) = told else {
                    continue;
                };
                let mut git = program::command(test.dir());
                for name in ["NAME", "EMAIL", "DATE"] {
                    git.env_remove(role.variable(name));
                }
                git.envs(environment.iter().copied());
                let said = program::run(git.args(["var", &role.variable("IDENT")]), b"").unwrap();
                let said = Identity::parse_signature(&said).unwrap();
                assert_eq!(
                    (told.name, told.email),
                    (said.name, said.email),
                    "{settings:?}"
                );
                let zone = |time: Option<CommitTime>| time.unwrap().offset_secs;
                assert_eq!(zone(told.time), zone(said.time));
            }
        }
    }

    #[test]
    fn hooks_are_where_git_looks_for_them() {
        let test = TestRepository::new();
        let hooks_dir = || CallerConfig::of(test.dir()).and_then(|config| config.hooks_dir());
        let asked = test.git(&["rev-parse", "--path-format=absolute", "--git-path", "hooks"]);
        assert_eq!(hooks_dir(), Some(PathBuf::from(asked)));
        for key in ["core.hooksPath", "hook.lint.event"] {
            test.git(&["config", key, "pre-commit"]);
            assert_eq!(hooks_dir(), None, "{key}");
            test.git(&["config", "--unset", key]);
        }
    }
}
