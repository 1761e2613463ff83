//! Access control lists and the mode beside them, and flags.

use super::{Fixture, ME, path};
use crate::acl::tests::{extended, minimal};
use crate::acl::{ACCESS, DEFAULT};
use crate::{Caller, FsError, RenameMode, SetAttr, XattrMode};
use tine_attr::{Ino, InodeFlags};

fn chmod(perm: u16) -> SetAttr {
    SetAttr {
        perm: Some(perm),
        ..SetAttr::default()
    }
}

#[test]
fn a_list_and_the_mode_stay_in_step() {
    let fixture = Fixture::new();
    let workspace = fixture.open();
    let file = workspace.reach("a.txt").ino;
    let set = |name, value: &[u8]| workspace.setxattr(ME, file, name, value, XattrMode::Set);
    set(ACCESS, &extended()).unwrap();
    assert_eq!(workspace.getattr(file).unwrap().perm, 0o774);
    drop(workspace);

    let workspace = fixture.open();
    let file = workspace.reach("a.txt").ino;
    let set = |name, value: &[u8]| workspace.setxattr(ME, file, name, value, XattrMode::Set);
    assert_eq!(workspace.getxattr(ME, file, ACCESS).unwrap(), extended());
    workspace.setattr(ME, file, &chmod(0o610)).unwrap();
    assert_ne!(workspace.getxattr(ME, file, ACCESS).unwrap(), extended());
    assert_eq!(workspace.getattr(file).unwrap().perm, 0o610);
    // What a mode can say, the mode says.
    set(ACCESS, &minimal(0o640)).unwrap();
    assert_eq!(workspace.getattr(file).unwrap().perm, 0o640);
    assert!(workspace.listxattr(ME, file).unwrap().is_empty());
    assert!(matches!(set(ACCESS, &[2, 0, 0]), Err(FsError::Invalid)));
    assert!(matches!(
        set(DEFAULT, &extended()),
        Err(FsError::AccessDenied)
    ));
    let link = workspace.reach("link").ino;
    let refused = workspace.setxattr(ME, link, ACCESS, &extended(), XattrMode::Set);
    assert!(matches!(refused, Err(FsError::Unsupported)));
}

#[test]
fn a_default_list_stands_in_for_the_umask() {
    let fixture = Fixture::new();
    let workspace = fixture.open();
    let caller = Caller { umask: 0o077, ..ME };
    let dir = workspace.reach("dir").ino;
    let made = |name: &[u8]| workspace.mknod(caller, dir, name, 0o100666, 0).unwrap();
    assert_eq!(made(b"before").perm, 0o600);
    workspace
        .setxattr(ME, dir, DEFAULT, &extended(), XattrMode::Set)
        .unwrap();
    let file = made(b"after");
    assert_eq!(file.perm, 0o664);
    assert!(workspace.getxattr(ME, file.ino, ACCESS).is_ok());
    let sub = workspace.mkdir(caller, dir, b"made", 0o777).unwrap();
    assert_eq!(sub.perm, 0o774);
    assert_eq!(
        workspace.getxattr(ME, sub.ino, DEFAULT).unwrap(),
        extended()
    );
    let link = workspace.symlink(caller, dir, b"made-link", b"x").unwrap();
    assert_eq!(link.perm, 0o777);
    assert!(workspace.listxattr(ME, link.ino).unwrap().is_empty());
}

#[test]
fn set_group_id_goes_with_a_list_from_outside_the_group() {
    let fixture = Fixture::new();
    let workspace = fixture.open();
    let made = workspace.mknod(Caller::new(5, 6), Ino::ROOT, b"program", 0o102755, 0);
    let file = made.unwrap().ino;
    let set = |caller| {
        workspace
            .setxattr(caller, file, ACCESS, &extended(), XattrMode::Set)
            .unwrap();
        workspace.getattr(file).unwrap().perm
    };
    assert_eq!(set(Caller::ROOT), 0o2774);
    assert_eq!(set(Caller::new(5, 6)), 0o2774);
    assert_eq!(set(Caller::new(5, 7)), 0o774);
}

#[test]
fn a_node_takes_attributes_as_long_as_they_can_be_listed() {
    let fixture = Fixture::new();
    let workspace = fixture.open();
    let file = workspace.reach("a.txt").ino;
    let set = |name: String, value: &[u8]| {
        workspace.setxattr(ME, file, name.as_bytes(), value, XattrMode::Set)
    };
    let long = |number: u32| format!("user.{number:0>250}");
    let room = (0..)
        .find(|number| set(long(*number), b"").is_err())
        .unwrap();
    assert!(matches!(set(long(room), b""), Err(FsError::AttributesFull)));
    assert_eq!(room, 64 * 1024 / 256);
    let value = vec![1; 64 * 1024];
    let held = (0..)
        .take_while(|number| set(long(*number), &value).is_ok())
        .count();
    assert_eq!(held, 3, "beside the names");
    let longer = [&value[..], b"1"].concat();
    assert!(matches!(
        set("user.x".into(), &longer),
        Err(FsError::ValueTooLong)
    ));
}

#[test]
fn flags_are_kept_and_shown_as_flags_only() {
    let fixture = Fixture::new();
    let workspace = fixture.open();
    let both = InodeFlags::IMMUTABLE.union(InodeFlags::NODUMP);
    let file = workspace.reach("a.txt").ino;
    let refused = workspace.set_flags(ME, file, both);
    assert!(
        matches!(refused, Err(FsError::NotPermitted)),
        "it is root's to do"
    );
    workspace.set_flags(ME, file, InodeFlags::NODUMP).unwrap();
    let another = workspace.set_flags(Caller::new(5, 5), file, InodeFlags::default());
    assert!(matches!(another, Err(FsError::NotPermitted)));
    workspace.set_flags(Caller::ROOT, file, both).unwrap();
    drop(workspace);

    let workspace = fixture.open();
    let file = workspace.reach("a.txt").ino;
    assert_eq!(workspace.flags(file).unwrap(), both);
    assert!(workspace.listxattr(Caller::ROOT, file).unwrap().is_empty());
    let forged = workspace.setxattr(Caller::ROOT, file, b"tine.flags", &[0; 4], XattrMode::Set);
    assert!(matches!(forged, Err(FsError::Unsupported)));
    let by_path = workspace.write_path(Caller::ROOT, &path("a.txt"), b"x");
    assert!(matches!(by_path, Err(FsError::NotPermitted)));
    let removed = workspace.remove_path(Caller::ROOT, &path("a.txt"));
    assert!(matches!(removed, Err(FsError::NotPermitted)));
    workspace
        .set_flags(Caller::ROOT, file, InodeFlags::default())
        .unwrap();
    workspace
        .write_path(Caller::ROOT, &path("a.txt"), b"x")
        .unwrap();
}

#[test]
fn a_synchronous_node_is_on_the_disk_before_a_change_is_acknowledged() {
    let fixture = Fixture::new();
    let workspace = fixture.open();
    let (file, dir) = (workspace.reach("a.txt").ino, workspace.reach("dir").ino);
    workspace.write(file, 0, b"x", None).unwrap();
    assert!(workspace.is_dirty());
    workspace.set_flags(ME, file, InodeFlags::SYNC).unwrap();
    workspace.set_flags(ME, dir, InodeFlags::DIRSYNC).unwrap();
    let is_synced = |what: &str| assert!(!workspace.is_dirty(), "{what}");
    workspace.write(file, 0, b"y", None).unwrap();
    is_synced("write");
    workspace.setattr(ME, file, &chmod(0o600)).unwrap();
    is_synced("chmod");
    workspace.mknod(ME, dir, b"made", 0o100644, 0).unwrap();
    is_synced("mknod");
    let sub = workspace.mkdir(ME, dir, b"under", 0o755).unwrap();
    is_synced("mkdir");
    assert_eq!(workspace.flags(sub.ino).unwrap(), InodeFlags::DIRSYNC);
    workspace
        .rename(ME, dir, b"made", Ino::ROOT, b"moved", RenameMode::Replace)
        .unwrap();
    is_synced("rename");
    workspace.link(ME, file, dir, b"linked").unwrap();
    is_synced("link");
    workspace.unlink(ME, dir, b"linked").unwrap();
    is_synced("unlink");
    workspace.rmdir(ME, dir, b"under").unwrap();
    is_synced("rmdir");
    workspace
        .write(workspace.reach("empty").ino, 0, b"x", None)
        .unwrap();
    assert!(workspace.is_dirty());
}
