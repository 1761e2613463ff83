//! What lies beneath fails: a disk that is full, that loses power, that answers with errors.

mod support;

#[path = "faults/disk_filter.rs"]
mod disk_filter;
#[path = "faults/full_disk.rs"]
mod full_disk;
#[path = "faults/power_loss.rs"]
mod power_loss;

/// Returns from the test with a `SKIP` line where disks cannot be made here; fails where `REQUIRE_FUSE=1`.
macro_rules! require_disk {
    () => {
        if let Some(reason) = $crate::support::disk::disks_missing() {
            $crate::support::skip($crate::support::test_name!(), &reason);
            return;
        }
    };
}
pub(crate) use require_disk;
