//! Conversions of stored files in a checkout.
//!
//! They are end of line, `ident`, `filter` drivers and `working-tree-encoding`. Attributes and
//! configuration decide here which paths are converted ([`attributes`]). The converted bytes come
//! from git itself ([`smudge`]), so they are exactly git's. The git library converts in the other
//! direction.

mod attributes;
mod settings;
mod smudge;

use std::sync::OnceLock;

use gix::filter::plumbing::eol::{AutoCrlf, Mode};
use gix::filter::plumbing::pipeline::CrlfRoundTripCheck;
use gix::filter::plumbing::pipeline::convert::ToGitOutcome;
use gix::filter::plumbing::{self, Pipeline};
use parking_lot::Mutex;

use super::blobs::BlobWriter;
use super::{Base, BaseDir};
use crate::error::with_causes;
use crate::{GitError, ObjectId, Repository, TreeEntryKind};
use attributes::{Attributes, FileAttributes, TextKind};
pub use settings::ConversionSettings;
use smudge::Smudge;
use tine_path::{EntryName, RepoPath};

/// The directions in which a file is converted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Conversion {
    /// True if a checkout may write other bytes than the blob's.
    pub to_worktree: bool,
    /// True if `git add` may store other bytes than the file's.
    pub to_git: bool,
}

/// The conversions of one tree under the settings it was opened with.
pub(super) struct Conversions {
    options: plumbing::pipeline::Options,
    attributes: Attributes,
    smudge: Smudge,
    /// Fingerprint of all that affects conversions, except the tree.
    fingerprint: u64,
    /// Pipeline that runs the filter programs, created on first use.
    clean: OnceLock<Mutex<Pipeline>>,
}

impl Conversions {
    pub(super) fn new(
        repository: &Repository,
        tree_id: ObjectId,
        settings: ConversionSettings,
    ) -> Result<Conversions, GitError> {
        let local = repository.local_with_fresh_config()?;
        let mut options = gix::filter::Pipeline::options(&local)
            .map_err(GitError::library("read the configuration of filters"))?;
        // If it is unset, git only warns of irreversible conversions.
        if local.config_snapshot().string("core.safecrlf").is_none() {
            options.crlf_roundtrip_check = CrlfRoundTripCheck::Skip;
        }
        settings.apply(&mut options);
        let attributes = Attributes::new(repository, &local)?;
        Ok(Conversions {
            fingerprint: settings.fingerprint() ^ attributes.fingerprint(),
            options,
            attributes,
            smudge: Smudge::new(repository, tree_id, settings),
            clean: OnceLock::new(),
        })
    }

    pub(super) fn settings(&self) -> &ConversionSettings {
        self.smudge.settings()
    }

    pub(super) fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Returns the conversion of the file at `path`.
    pub(super) fn of_path(&self, base: &Base, path: &RepoPath) -> Result<Conversion, GitError> {
        let Some((parent, _)) = path.split_last() else {
            return Ok(Conversion::default());
        };
        let attributes = self.attributes.of_file(base, &parent, path)?;
        Ok(self.decide(&attributes))
    }

    /// Returns the conversion of the file `name` in `dir`.
    pub(super) fn of_entry(
        &self,
        base: &Base,
        dir: &BaseDir,
        name: &EntryName,
    ) -> Result<Conversion, GitError> {
        let rules = self.attributes.of_dir(base, &dir.path)?;
        if rules.is_empty() {
            return Ok(self.decide(&FileAttributes::default()));
        }
        let attributes = self.attributes.matching(&rules, &dir.path.join(name));
        Ok(self.decide(&attributes))
    }

    /// Decides as git's `convert_attrs` and its callers (convert.c).
    fn decide(&self, attributes: &FileAttributes) -> Conversion {
        let config = self.options.eol_config;
        let native_is_crlf = match config.auto_crlf {
            AutoCrlf::Enabled => true,
            AutoCrlf::Input => false,
            AutoCrlf::Disabled => config.eol == Some(Mode::CrLf),
        };
        let (eol_out, eol_in) = match (attributes.text, attributes.eol_is_crlf) {
            (Some(TextKind::Binary), _) => (false, false),
            (_, Some(is_crlf)) => (is_crlf, true),
            (Some(TextKind::Input), None) => (false, true),
            (Some(TextKind::Always | TextKind::Auto), None) => (native_is_crlf, true),
            (None, None) => match config.auto_crlf {
                AutoCrlf::Enabled => (true, true),
                AutoCrlf::Input => (false, true),
                AutoCrlf::Disabled => (false, false),
            },
        };
        let both = attributes.ident || attributes.has_encoding || self.driver(attributes).is_some();
        Conversion {
            to_worktree: eol_out || both,
            to_git: eol_in || both,
        }
    }

    /// Returns the configured driver that `filter` names.
    fn driver(&self, attributes: &FileAttributes) -> Option<&plumbing::Driver> {
        let name = attributes.filter.as_ref()?;
        let mut drivers = self.options.drivers.iter();
        drivers.find(|driver| driver.name.as_slice() == name.as_slice())
    }

    /// Writes a checkout's content of the blob at `path` to `writer`.
    pub(super) fn smudge(
        &self,
        path: &RepoPath,
        blob_id: ObjectId,
        writer: &mut BlobWriter<'_>,
    ) -> Result<(), GitError> {
        self.smudge.convert(path, blob_id, writer)
    }

    /// Kills the converting process, and waits for its end.
    #[cfg(test)]
    pub(super) fn kill_converter(&self) {
        self.smudge.kill();
    }

    /// Returns what `git add` would store for `content` at `path`.
    pub(super) fn clean(
        &self,
        base: &Base,
        path: &RepoPath,
        content: Vec<u8>,
    ) -> Result<Vec<u8>, GitError> {
        let Some((parent, _)) = path.split_last() else {
            return Ok(content);
        };
        let rules = self.attributes.of_dir(base, &parent)?;
        let attributes = self.attributes.matching(&rules, path);
        let driver = self.driver(&attributes);
        if let Some(driver) = driver
            && driver.required
            && driver.clean.is_none()
            && driver.process.is_none()
        {
            let reason = format!("the required filter {} has no clean command", driver.name);
            return Err(filter_failed(path, reason));
        }
        let repository = base.repository();
        // With automatic detection, git does not convert files whose stored version has CRLFs.
        let stored = match base.find(path)? {
            Some((dir, index)) => match dir.entries[index].kind {
                TreeEntryKind::File | TreeEntryKind::Executable => Some(dir.entries[index].id),
                TreeEntryKind::Symlink | TreeEntryKind::Directory | TreeEntryKind::Submodule => {
                    None
                }
            },
            None => None,
        };
        let convert = |pipeline: &mut Pipeline| {
            let outcome = pipeline
                .convert_to_git(
                    content.as_slice(),
                    path.as_path(),
                    &mut |_, outcome| self.attributes.fill(&rules, path, outcome),
                    &mut |buffer| {
                        let Some(id) = stored else { return Ok(None) };
                        *buffer = repository.read_blob(id).map_err(gix::Error::from_error)?;
                        Ok(Some(()))
                    },
                )
                .map_err(|error| filter_failed(path, with_causes(&error)))?;
            let mut cleaned = Vec::new();
            match outcome {
                ToGitOutcome::Buffer(bytes) => cleaned.extend_from_slice(bytes),
                ToGitOutcome::Process(mut output) => {
                    output
                        .read_to_end(&mut cleaned)
                        .map_err(|error| filter_failed(path, error.to_string()))?;
                }
                ToGitOutcome::Unchanged(bytes) => cleaned.extend_from_slice(bytes),
            }
            Ok(cleaned)
        };
        let cleaned = convert(&mut self.pipeline(repository)?.lock());
        match (cleaned, driver) {
            (Err(error), Some(driver)) if !driver.required => {
                // git continues without a filter that is not required.
                log::warn!("{error}");
                let mut options = self.options.clone();
                options.drivers.clear();
                convert(&mut self.new_pipeline(repository, options)?)
            }
            (cleaned, _) => cleaned,
        }
    }

    fn pipeline(&self, repository: &Repository) -> Result<&Mutex<Pipeline>, GitError> {
        if let Some(pipeline) = self.clean.get() {
            return Ok(pipeline);
        }
        let pipeline = self.new_pipeline(repository, self.options.clone())?;
        Ok(self.clean.get_or_init(|| Mutex::new(pipeline)))
    }

    /// Creates a pipeline whose drivers run in the main worktree, as [`Smudge`]'s.
    fn new_pipeline(
        &self,
        repository: &Repository,
        options: plumbing::pipeline::Options,
    ) -> Result<Pipeline, GitError> {
        let mut context = repository
            .with_local(gix::Repository::command_context)
            .map_err(GitError::library("read the configuration of filters"))?;
        context.git_dir = Some(repository.common_dir().to_owned());
        context.worktree_dir = Some(repository.checkout_dir().to_owned());
        Ok(Pipeline::new(context, repository.hash_kind(), options))
    }
}

/// Returns the error of a failed required filter or its process.
fn filter_failed(path: &RepoPath, reason: String) -> GitError {
    GitError::GitFailed {
        command: format!("filters for {path}"),
        stderr: reason,
    }
}
