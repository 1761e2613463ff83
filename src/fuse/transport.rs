//! Choice of the transport: `/dev/fuse` alone, or io_uring rings as well.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::str::FromStr;
use std::sync::Arc;

use fuser::{InitFlags, KernelConfig};
use log::{debug, info};
use parking_lot::Mutex;

use super::error::MountError;
use super::mount::MountOptions;
use super::operations::Operations;
use super::ring::{Failed, Prepared, Rings};
use tine_store::MountProfile;

/// Kernel parameter that permits FUSE over io_uring: `Y` or `N`.
///
/// The file is missing if the kernel does not support it.
pub const RINGS_PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// Transport of a mount's requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// Reads and writes on `/dev/fuse`.
    Device,
    /// One io_uring ring for each CPU.
    Ring,
}

impl Transport {
    /// Returns the name, as in [`TransportChoice::from_str`].
    pub fn name(self) -> &'static str {
        match self {
            Transport::Device => "device",
            Transport::Ring => "ring",
        }
    }
}

/// Requested transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TransportChoice {
    /// Rings if the kernel has them, else `/dev/fuse`.
    #[default]
    Auto,
    /// This transport, or an error.
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

/// Error for a word that is not a valid [`TransportChoice`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownTransport;

impl fmt::Display for UnknownTransport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("it is none of auto, device and ring")
    }
}

/// Request for rings, until the kernel has accepted or refused it.
///
/// Shared between the session's file system and the code that mounts.
#[derive(Clone)]
pub(super) struct RingOptions {
    /// Implementation of the requests.
    operations: Arc<Operations>,
    /// Device of the session, from mounting until the reply to INIT.
    device: Arc<Mutex<Option<OwnedFd>>>,
    /// Prepared rings or the reason against them; `None` before INIT.
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

    /// Sets the session's device, before the session starts.
    pub(super) fn set_device(&self, device: OwnedFd) {
        *self.device.lock() = Some(device);
    }

    /// Requests rings in the reply to INIT, if they can be prepared.
    ///
    /// Once the kernel has agreed, it holds back all requests until it gets the rings, or learns
    /// that there will be none.
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

    /// Registers the rings, if the kernel agreed.
    fn register(&self, failed: &Failed) -> io::Result<Rings> {
        match self.prepared.lock().take() {
            Some(Ok(prepared)) => prepared.register(failed),
            Some(Err(error)) => Err(error),
            None => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

/// Returns the request for rings that the options imply, if any.
///
/// The profile for large files excludes rings, as only `fuser` supports passthrough.
pub(super) fn ring_options(
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

/// Sets up the requested transport, or falls back to `/dev/fuse`.
pub(super) fn set_up(
    choice: TransportChoice,
    ring_options: Option<RingOptions>,
    failed: &Failed,
) -> Result<Option<Rings>, MountError> {
    let Some(ring_options) = ring_options else {
        return Ok(None);
    };
    match ring_options.register(failed) {
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
