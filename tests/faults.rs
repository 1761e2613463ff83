//! What lies beneath fails: a disk that is full, that loses power, that answers with errors.

mod support;

#[path = "faults/disk_filter.rs"]
mod disk_filter;
#[path = "faults/full_disk.rs"]
mod full_disk;
#[path = "faults/io_errors.rs"]
mod io_errors;
#[path = "faults/power_loss.rs"]
mod power_loss;
#[path = "faults/taking_over.rs"]
mod taking_over;

use support::TestRepo;
use support::disk::{Disk, Kind, mount_memory};

/// Returns from the test with a `SKIP` line where disks cannot be made here; fails where
/// `REQUIRE_FUSE=1`.
macro_rules! require_disk {
    () => {
        if let Some(reason) = $crate::support::disk::disks_missing() {
            $crate::support::skip($crate::support::test_name!(), &reason);
            return;
        }
    };
}
pub(crate) use require_disk;

/// A repository on a disk that is recorded and that fails when told to.
fn on_disk(kind: Kind) -> (TestRepo, Disk) {
    /// xfs makes none below 300.
    const MEBIBYTES: u64 = 320;
    let mut disk = None;
    let repo = TestRepo::on_disk(|root| {
        let memory = root.join("memory");
        mount_memory(&memory);
        disk = Some(Disk::start(kind, MEBIBYTES, &memory, &root.join("disk")));
    });
    // git does not wait for the objects that it writes.
    repo.sh_in(repo.root(), "sync -f disk");
    (repo, disk.expect("it was just made"))
}
