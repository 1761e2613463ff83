//! The conversion settings of a checkout, as a storable value.
//!
//! A checkout on disk is converted once, and then stays as written. A fork's base files are
//! converted whenever they are read, so a fork keeps the settings of its creation. Attributes
//! outside the tree (`info/attributes`, `core.attributesFile`) are not included: the git program
//! reads them in place.

use std::ffi::OsString;
use std::hash::Hasher;
use std::os::unix::ffi::OsStringExt;
use std::process::Command;

use gix::filter::plumbing::eol;
use gix::filter::plumbing::{self, pipeline};
use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher13;

use crate::{GitError, Repository};
use tine_path::text::PathText;

/// Line ends and filter drivers, as configured at one time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConversionSettings {
    autocrlf: AutoCrlf,
    /// Line end; `None` for the platform's default.
    eol: Option<Eol>,
    /// Drivers, sorted by name.
    filters: Vec<Filter>,
}

/// `core.autocrlf`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum AutoCrlf {
    False,
    Input,
    True,
}

/// `core.eol`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Eol {
    Lf,
    Crlf,
}

/// A driver, `filter.<name>.*`. Its texts need not be UTF-8.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Filter {
    name: PathText,
    clean: Option<PathText>,
    smudge: Option<PathText>,
    process: Option<PathText>,
    required: bool,
}

impl ConversionSettings {
    /// Reads the current settings.
    ///
    /// # Errors
    /// [`GitError::Library`] if the configuration cannot be read.
    pub fn current(repository: &Repository) -> Result<ConversionSettings, GitError> {
        let local = repository.local_with_fresh_config()?;
        let options = gix::filter::Pipeline::options(&local)
            .map_err(GitError::library("read the configuration of filters"))?;
        let text = |value: &Option<gix::bstr::BString>| {
            value.as_deref().map(|value| PathText::from(&**value))
        };
        let mut filters: Vec<Filter> = options
            .drivers
            .iter()
            .map(|driver| Filter {
                name: PathText::from(driver.name.as_slice()),
                clean: text(&driver.clean),
                smudge: text(&driver.smudge),
                process: text(&driver.process),
                required: driver.required,
            })
            .collect();
        filters.sort_by_key(|filter| filter.name.to_bytes());
        Ok(ConversionSettings {
            autocrlf: match options.eol_config.auto_crlf {
                eol::AutoCrlf::Disabled => AutoCrlf::False,
                eol::AutoCrlf::Input => AutoCrlf::Input,
                eol::AutoCrlf::Enabled => AutoCrlf::True,
            },
            eol: options.eol_config.eol.map(|eol| match eol {
                eol::Mode::Lf => Eol::Lf,
                eol::Mode::CrLf => Eol::Crlf,
            }),
            filters,
        })
    }

    /// Returns a hash of the settings, which is stable across versions.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = SipHasher13::new();
        hasher.write(&serde_json::to_vec(self).expect("strings and flags can be written"));
        hasher.finish()
    }

    /// Replaces the settings in `options` by these.
    pub(super) fn apply(&self, options: &mut pipeline::Options) {
        options.eol_config = eol::Configuration {
            auto_crlf: match self.autocrlf {
                AutoCrlf::False => eol::AutoCrlf::Disabled,
                AutoCrlf::Input => eol::AutoCrlf::Input,
                AutoCrlf::True => eol::AutoCrlf::Enabled,
            },
            eol: self.eol.map(|eol| match eol {
                Eol::Lf => eol::Mode::Lf,
                Eol::Crlf => eol::Mode::CrLf,
            }),
        };
        let bytes = |text: &Option<PathText>| text.as_ref().map(|text| text.to_bytes().into());
        let drivers = self.filters.iter().map(|filter| plumbing::Driver {
            name: filter.name.to_bytes().into(),
            clean: bytes(&filter.clean),
            smudge: bytes(&filter.smudge),
            process: bytes(&filter.process),
            required: filter.required,
        });
        options.drivers = drivers.collect();
    }

    /// Adds these settings to a git command, overriding those of `now`.
    pub(super) fn configure(&self, command: &mut Command, now: &ConversionSettings) {
        let mut set = |key: &[u8], value: &[u8]| {
            let setting = [key, b"=", value].concat();
            command.arg("-c").arg(OsString::from_vec(setting));
        };
        set(
            b"core.autocrlf",
            match self.autocrlf {
                AutoCrlf::False => b"false",
                AutoCrlf::Input => b"input",
                AutoCrlf::True => b"true",
            },
        );
        set(
            b"core.eol",
            match self.eol {
                None => b"native",
                Some(Eol::Lf) => b"lf",
                Some(Eol::Crlf) => b"crlf",
            },
        );
        let came_later = now.filters.iter().filter(|later| {
            let is_it = |filter: &&Filter| filter.name == later.name;
            self.filters.iter().find(is_it).is_none()
        });
        let nothing = |later: &Filter| Filter {
            name: later.name.clone(),
            clean: None,
            smudge: None,
            process: None,
            required: false,
        };
        let switched_off: Vec<Filter> = came_later.map(nothing).collect();
        for filter in self.filters.iter().chain(&switched_off) {
            let name = filter.name.to_bytes();
            if name.contains(&b'=') {
                // Such a name cannot be set on the command line.
                continue;
            }
            let key = |field: &str| [b"filter.", name.as_slice(), b".", field.as_bytes()].concat();
            let bytes =
                |text: &Option<PathText>| text.as_ref().map(PathText::to_bytes).unwrap_or_default();
            set(&key("smudge"), &bytes(&filter.smudge));
            // For git, an empty process is a process: it keeps the other commands from running.
            if let Some(process) = &filter.process {
                set(&key("process"), &process.to_bytes());
            } else if filter.smudge.is_none() {
                set(&key("process"), b"");
            }
            set(
                &key("required"),
                if filter.required { b"true" } else { b"false" },
            );
        }
    }
}
