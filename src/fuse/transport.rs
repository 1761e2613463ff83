//! Which way requests come and answers go: through `/dev/fuse`, or through rings of io_uring as
//! well.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::str::FromStr;
use std::sync::Arc;

use fuser::{InitFlags, KernelConfig};
use log::{debug, info};
use parking_lot::Mutex;

use super::mount::{MountError, MountOptions};
use super::operations::Operations;
use super::ring::{Failed, Prepared, Rings};
use tine_workspace::MountProfile;

/// Whether FUSE may use io_uring: `Y` or `N`. Missing where the kernel has no rings.
pub const RINGS_PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// How requests come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// Through `/dev/fuse`.
    Device,
    /// Through a ring for each CPU.
    Ring,
}

impl Transport {
    pub fn name(self) -> &'static str {
        match self {
            Transport::Device => "device",
            Transport::Ring => "ring",
        }
    }
}

/// How requests shall come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TransportChoice {
    /// Through rings where the kernel has them, else through `/dev/fuse`.
    #[default]
    Auto,
    Only(Transport),
}

impl FromStr for TransportChoice {
    type Err = UnknownTransport;

    fn from_str(text: &str) -> Result<TransportChoice, UnknownTransport> {
        match text {
            "auto" => Ok(TransportChoice::Auto),
            "device" => Ok(TransportChoice::Only(Transport::Device)),
            "ring" => Ok(TransportChoice::Only(Transport::Ring)),
            _ => Err(UnknownTransport),
        }
    }
}

/// A word that names no [`TransportChoice`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownTransport;

impl fmt::Display for UnknownTransport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("it is none of auto, device and ring")
    }
}

/// The wish for rings, from before a session begins until it is known whether it comes true. The
/// session's file system has one half, whoever mounts the other.
#[derive(Clone)]
pub(super) struct RingOptions {
    operations: Arc<Operations>,
    /// That of the session, from mounting until INIT is answered.
    device: Arc<Mutex<Option<OwnedFd>>>,
    /// `None` until the kernel was asked.
    prepared: Arc<Mutex<Option<io::Result<Prepared>>>>,
}

impl RingOptions {
    pub(super) fn new(operations: Arc<Operations>) -> RingOptions {
        RingOptions {
            operations,
            device: Arc::new(Mutex::new(None)),
            prepared: Arc::new(Mutex::new(None)),
        }
    }

    /// Says what the session will talk to, before it begins.
    pub(super) fn set_device(&self, device: OwnedFd) {
        *self.device.lock() = Some(device);
    }

    /// Asks the kernel for rings in the answer to INIT, when all is there that they need: once it
    /// has agreed, it holds every request back until it has them or was told that there will be
    /// none.
    pub(super) fn negotiate(&self, config: &mut KernelConfig) {
        let is_offered = config
            .capabilities()
            .contains(InitFlags::FUSE_OVER_IO_URING);
        let prepared = match self.device.lock().take().filter(|_| is_offered) {
            Some(device) => Prepared::new(&self.operations, device),
            None => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "the kernel does not offer FUSE over io_uring",
            )),
        };
        let prepared = prepared.and_then(|prepared| {
            config
                .add_capabilities(InitFlags::FUSE_OVER_IO_URING)
                .map(|()| prepared)
                .map_err(|_| io::ErrorKind::Unsupported.into())
        });
        *self.prepared.lock() = Some(prepared);
    }

    /// Sets the rings up if the kernel agreed.
    fn come_true(&self, failed: &Failed) -> io::Result<Rings> {
        match self.prepared.lock().take() {
            Some(Ok(prepared)) => prepared.register(failed),
            Some(Err(error)) => Err(error),
            None => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

/// The wish that a choice comes to. Only `fuser` can have the kernel read files by itself, and so
/// rings are not for the profile that wants it.
pub(super) fn wish(
    options: &MountOptions,
    operations: &Arc<Operations>,
) -> Result<Option<RingOptions>, MountError> {
    match (options.transport, options.settings.profile) {
        (TransportChoice::Only(Transport::Device), _) => Ok(None),
        (TransportChoice::Auto, MountProfile::LargeFiles) => Ok(None),
        (TransportChoice::Only(Transport::Ring), MountProfile::LargeFiles) => {
            Err(MountError::NoRings(io::Error::new(
                io::ErrorKind::Unsupported,
                "the profile large-files needs /dev/fuse",
            )))
        }
        (
            TransportChoice::Auto | TransportChoice::Only(Transport::Ring),
            MountProfile::Everyday,
        ) => Ok(Some(RingOptions::new(operations.clone()))),
    }
}

/// Sets up what was chosen, as far as the machine has it.
pub(super) fn set_up(
    choice: TransportChoice,
    wish: Option<RingOptions>,
    failed: &Failed,
) -> Result<Option<Rings>, MountError> {
    let Some(wish) = wish else {
        return Ok(None);
    };
    match wish.come_true(failed) {
        Ok(rings) => Ok(Some(rings)),
        Err(error) if choice == TransportChoice::Only(Transport::Ring) => {
            Err(MountError::NoRings(error))
        }
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {
            debug!("requests come through /dev/fuse: {error}");
            Ok(None)
        }
        Err(error) => {
            info!("requests come through /dev/fuse: {error}");
            Ok(None)
        }
    }
}
