//! What access(2) says to root, who may read and write everything.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use nix::sys::stat::Mode;
use nix::unistd::{AccessFlags, access, mkfifo};

use crate::compare::compare;
use crate::support::test_name;

#[test]
fn access_tells_what_may_be_executed() {
    compare(test_name!(), &[], |place| {
        place.file("plain", "");
        place.file("script", "#!/bin/sh\n");
        fs::create_dir(place.at("dir")).unwrap();
        mkfifo(&place.at("pipe"), Mode::S_IRWXU).unwrap();
        for name in ["plain", "script", "dir", "pipe", "README.md", "src"] {
            let path = place.at(name);
            for perm in [0, 0o644, 0o100, 0o010, 0o001, 0o777] {
                fs::set_permissions(&path, Permissions::from_mode(perm)).unwrap();
                for mask in [
                    AccessFlags::F_OK,
                    AccessFlags::R_OK,
                    AccessFlags::W_OK,
                    AccessFlags::X_OK,
                ] {
                    let what = format!("{name} with {perm:o}: {mask:?}");
                    place.outcome(what, access(&path, mask));
                }
            }
        }
        place.outcome("missing", access(&place.at("missing"), AccessFlags::F_OK));
        fs::set_permissions(place.at("dir"), Permissions::from_mode(0o0)).unwrap();
        for name in ["dir", "plain"] {
            let entered = Command::new("true").current_dir(place.at(name)).status();
            place.outcome(format!("cd {name}"), entered);
        }
    });
}
