//! The recording disk itself, without tine: what the other tests rely on.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;

use crate::require_disk;
use crate::support::disk::{
    self, Disk, Fault, Kind, What, extents_of, forget_cached, in_private_mounts, mount_image,
    mount_memory,
};
use crate::support::{Random, force_unmount_beneath};

#[test]
fn it_records_and_fails_as_told() {
    // A run of this test that another one started, to be the disk.
    if disk::serve_if_asked() {
        return;
    }
    require_disk!();
    in_private_mounts(|| {
        let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let (memory, place) = (root.path().join("memory"), root.path().join("disk"));
        mount_memory(&memory);
        fs::create_dir(&place).unwrap();
        let disk = Disk::start(Kind::Ext4, 64, &memory, &place);

        let path = place.join("file");
        let mut file = File::create(&path).unwrap();
        file.write_all(b"on the disk").unwrap();
        file.sync_all().unwrap();
        let synced = disk.position();
        assert!(synced > 0, "syncing writes");

        disk.fail(Fault::all(What::Writes));
        file.write_all_at(b"IN", 0).unwrap();
        assert_eq!(file.sync_all().unwrap_err().raw_os_error(), Some(libc::EIO));
        assert!(disk.has_failed());
        disk.heal();

        forget_cached(&path);
        let (start, end) = extents_of(&path)[0];
        disk.fail(Fault {
            range: (start, end),
            ..Fault::all(What::Reads)
        });
        assert_eq!(fs::read(&path).unwrap_err().raw_os_error(), Some(libc::EIO));
        disk.heal();
        assert_eq!(fs::read(&path).unwrap(), b"on the disk");

        drop(file);
        let recording = disk.finish();
        recording.check_end();
        assert_eq!(
            recording.flushed_at(synced),
            synced,
            "a sync ends with a flush"
        );
        let mut random = Random::new(1);
        for (position, expected) in [(0, None), (synced, Some(&b"on the disk"[..]))] {
            let replayed = recording.replay(position, 50, &mut random);
            mount_image(&replayed.image, &place);
            assert_eq!(fs::read(&path).ok().as_deref(), expected);
            disk::unmount(&place);
        }
        force_unmount_beneath(root.path());
    });
}
