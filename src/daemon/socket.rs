//! The daemon's socket, `<store>/daemon.sock`.
//!
//! The address of a Unix socket has at most 108 bytes, and a path may be longer. So both sides use
//! an address relative to a descriptor of the store's directory: `/proc/self/fd/<n>/daemon.sock`.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use tine_ops::failure::{ErrorCode, Failure};
use tine_store::Store;
use tine_sys::process;

/// Name of the socket in the store's directory.
pub const SOCKET_NAME: &str = "daemon.sock";

/// Returns the store's directory in a common git directory.
pub fn store_dir(common_dir: &Path) -> PathBuf {
    common_dir.join("tine")
}

/// Binds the socket in `store_dir`, and removes an old one first.
///
/// The caller must hold the store's lock, so that no running daemon loses its socket. Only the
/// owner can connect: the directory gets the mode 0700 and the socket 0600.
///
/// # Errors
/// `io` or `permission-denied` if a system call fails.
pub fn bind(store_dir: &Path) -> Result<UnixListener, Failure> {
    let path = store_dir.join(SOCKET_NAME);
    let failed = |error: io::Error| Failure::io("listen at", &path, &error);
    // The directory protects the socket until the socket has its mode.
    fs::set_permissions(store_dir, Permissions::from_mode(0o700)).map_err(failed)?;
    match fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let dir = open_dir(store_dir).map_err(failed)?;
    let listener = UnixListener::bind(address_in(&dir)).map_err(failed)?;
    fs::set_permissions(&path, Permissions::from_mode(0o600)).map_err(failed)?;
    Ok(listener)
}

/// Connects to the daemon of the store in `store_dir`.
///
/// Returns `None` if there is no store or no daemon listens.
///
/// # Errors
/// `permission-denied` if the store or the listening process belongs to another user; `io` if the
/// connection fails.
pub fn connect(store_dir: &Path) -> Result<Option<UnixStream>, Failure> {
    if !Store::exists_at(store_dir)? {
        return Ok(None);
    }
    let connected = open_dir(store_dir).and_then(|dir| UnixStream::connect(address_in(&dir)));
    match connected {
        Ok(stream) => check_owner(store_dir, &stream).map(|()| Some(stream)),
        Err(error) => match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => Ok(None),
            _ => Err(Failure::io(
                "connect to",
                &store_dir.join(SOCKET_NAME),
                &error,
            )),
        },
    }
}

/// Checks that the listening process belongs to the store's owner or root.
fn check_owner(store_dir: &Path, stream: &UnixStream) -> Result<(), Failure> {
    let failed =
        |error: io::Error| Failure::io("ask who listens at", &store_dir.join(SOCKET_NAME), &error);
    let daemon = process::peer_credentials(stream).map_err(failed)?;
    let owner = fs::metadata(store_dir).map_err(failed)?.uid();
    if daemon.uid == 0 || daemon.uid == owner {
        return Ok(());
    }
    Err(Failure::new(
        ErrorCode::PermissionDenied,
        format!("the daemon of {} runs as another user", store_dir.display()),
    )
    .cause(format!(
        "process {} of user {} has its socket",
        daemon.pid, daemon.uid
    ))
    .hint("no command is sent to it; see what that process is"))
}

/// Removes the socket, if it exists.
///
/// The caller must hold the store's lock. A failure is logged.
pub fn remove(store_dir: &Path) {
    let path = store_dir.join(SOCKET_NAME);
    if let Err(error) = fs::remove_file(&path)
        && error.kind() != ErrorKind::NotFound
    {
        log::warn!("could not remove {}: {error}", path.display());
    }
}

fn open_dir(dir: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW)
        .open(dir)
}

/// Returns the socket's address relative to the open directory.
fn address_in(dir: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{SOCKET_NAME}", dir.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_longer_than_a_socket_address_works_and_only_the_owner_may_connect() {
        let place = tempfile::tempdir().unwrap();
        let store = place.path().join("x".repeat(100)).join("y".repeat(100));
        assert!(connect(&store).unwrap().is_none(), "there is no store");
        fs::create_dir_all(&store).unwrap();
        assert!(connect(&store).unwrap().is_none(), "there is no socket");
        let listener = bind(&store).unwrap();
        assert!(connect(&store).unwrap().is_some());
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&store), 0o700);
        assert_eq!(mode(&store.join(SOCKET_NAME)), 0o600);

        drop(listener);
        assert!(
            connect(&store).unwrap().is_none(),
            "a dead socket is nobody"
        );
        let _again = bind(&store).unwrap();
        assert!(connect(&store).unwrap().is_some());
        remove(&store);
        assert!(connect(&store).unwrap().is_none());
    }
}
