//! Reads of the git configuration while the repository is served.

use std::path::{Path, PathBuf};

use super::Repository;
use super::open::open_shared;
use crate::GitError;
use crate::own::behind_mount;

impl Repository {
    /// Returns a handle with the configuration that is on disk now.
    ///
    /// A serving process outlives many edits of the configuration.
    pub(crate) fn local_with_fresh_config(&self) -> Result<gix::Repository, GitError> {
        if self.inner.is_fresh {
            return Ok(self.local());
        }
        let shared = open_shared(&self.inner.common_dir, Some(&self.object_store()))?;
        Ok(shared.to_thread_local())
    }

    /// Reads a boolean from the current git configuration of the main checkout.
    pub fn config_bool(&self, key: &str) -> Option<bool> {
        let local = self.local_with_fresh_config().ok()?;
        local.config_snapshot().boolean(key)
    }

    /// Returns whether `<section>.<name>` was set when the repository was opened.
    ///
    /// Its value does not matter.
    pub fn has_setting(&self, section: &str, name: &str) -> bool {
        let local = self.local();
        let config = local.config_snapshot();
        let mut sections = config
            .plumbing()
            .sections_by_name(section)
            .into_iter()
            .flatten();
        sections.any(|section| section.contains_value_name(name))
    }

    /// Reads all values of a variable from the current git configuration.
    ///
    /// The configuration is that of the main checkout.
    ///
    /// # Errors
    /// Fails as [`Repository::open`] if the configuration cannot be read.
    pub fn config_values(&self, key: &str) -> Result<Vec<Vec<u8>>, GitError> {
        let local = self.local_with_fresh_config()?;
        let config = local.config_snapshot();
        let values = config.plumbing().strings(key).unwrap_or_default();
        Ok(values.into_iter().map(|value| value.to_vec()).collect())
    }

    /// Reads the variables of `[<section> "<subsection>"]` from the current git configuration.
    ///
    /// Names are as they are written. Of a name that is there twice, later values come later.
    ///
    /// # Errors
    /// Fails as [`Repository::open`] if the configuration cannot be read.
    pub(crate) fn settings_below(
        &self,
        section: &str,
        subsection: &str,
    ) -> Result<Vec<(String, String)>, GitError> {
        let local = self.local_with_fresh_config()?;
        let config = local.config_snapshot();
        let sections = config.plumbing().sections_by_name(section);
        let mut settings = Vec::new();
        for section in sections.into_iter().flatten() {
            if section.header().subsection_name() != Some(subsection.into()) {
                continue;
            }
            for name in section.value_names() {
                let value = section.value(&name).unwrap_or_default();
                settings.push((name, value.to_string()));
            }
        }
        Ok(settings)
    }

    /// Returns the last value of `<section>.<name>` that a user wrote.
    ///
    /// Files inside a checkout of the repository do not count, even if the configuration includes
    /// them: a commit could change them.
    ///
    /// # Errors
    /// Fails if the configuration or the list of worktrees cannot be read.
    pub fn setting_of_user(&self, section: &str, name: &str) -> Result<Option<Vec<u8>>, GitError> {
        let local = self.local_with_fresh_config()?;
        let config = local.config_snapshot();
        let checkouts = self.checkouts()?.into_iter().map(|checkout| {
            let dir = checkout.dir;
            dir.canonicalize().unwrap_or(dir)
        });
        // The list lacks some checkouts of a bare repository. The opened one always counts.
        let checkouts: Vec<PathBuf> = checkouts.chain([self.checkout_dir().to_owned()]).collect();
        let is_of_tree = |path: &Path| {
            // Resolve symlinks, so that a link into a checkout counts as well.
            let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
            let is_in_checkout = checkouts.iter().any(|checkout| path.starts_with(checkout));
            (is_in_checkout || is_in_own_fork(&path)) && !path.starts_with(self.common_dir())
        };
        let sections = config
            .plumbing()
            .sections_by_name(section)
            .into_iter()
            .flatten();
        let mut last = None;
        for section in sections {
            if section.header().subsection_name().is_some() {
                continue;
            }
            let Some(value) = section.value(name) else {
                continue;
            };
            let meta = section.meta();
            match meta
                .path
                .as_deref()
                .filter(|path| meta.level > 0 && is_of_tree(path))
            {
                Some(path) => {
                    log::warn!("{}: {name} counts in no file of the tree", path.display())
                }
                None => last = Some(value.to_vec()),
            }
        }
        Ok(last)
    }

    /// Reads a string from the current git configuration of the main checkout.
    pub fn config_string(&self, key: &str) -> Option<String> {
        let local = self.local_with_fresh_config().ok()?;
        local.config_snapshot().string(key).map(|v| v.to_string())
    }
}

/// Returns whether a path is in the mount of a fork.
fn is_in_own_fork(path: &Path) -> bool {
    let mut dirs = path.ancestors().skip(1);
    dirs.any(|dir| behind_mount(&dir.join(".git")).is_some())
}
