//! A panic amid a change: the fork takes no more changes until it is mounted anew, and no other
//! fork is hurt.

use std::fs;
use std::io::ErrorKind;

use crate::support::{OutputExt, TestRepo, Tine, run_with_timeout};

#[test]
fn a_panic_makes_one_fork_read_only_until_it_is_mounted_anew() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let point = repo.home().join("panic-point");
    // Whoever comes first starts the daemon, which inherits this.
    let mut list = tine.command(&["list"]);
    list.env("TINE_PANIC_FILE", &point);
    run_with_timeout(&mut list).expect_success("list");
    let mut new = tine.command(&["new", "hurt"]);
    new.env("TINE_PANIC_FILE", &point);
    run_with_timeout(&mut new).expect_success("new");
    let hurt = std::path::PathBuf::from(tine.ok(&["path", "hurt"]));
    let other = tine.new_fork("other");
    fs::write(hurt.join("before"), "acknowledged").unwrap();
    fs::write(&point, "append").unwrap();
    fs::create_dir(hurt.join("amid")).expect_err("the daemon panics");
    assert!(!point.exists(), "it was this one");
    let refused = fs::write(hurt.join("after"), "lost").expect_err("it is read-only");
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
    assert_eq!(
        fs::read_to_string(hurt.join("before")).unwrap(),
        "acknowledged"
    );
    fs::write(other.join("file"), "fine").unwrap();
    tine.ok(&["commit", "other", "-m", "fine"]);
    let listed = tine.run(&["list"]);
    let listed = listed.text() + &listed.error_text();
    assert!(
        listed.contains("hurt is read-only") && listed.contains("tine mount hurt"),
        "{listed}"
    );
    let status = tine.run(&["status", "hurt", "--json"]);
    assert!(
        status.text().contains("fork-interrupted"),
        "{}",
        status.text()
    );
    let said = tine.fails(1, &["snapshot", "hurt"]);
    assert!(said.contains("a fault of tine interrupted"), "{said}");
    tine.ok(&["unmount", "--keep", "hurt"]);
    tine.ok(&["mount", "hurt"]);
    assert_eq!(
        fs::read_to_string(hurt.join("before")).unwrap(),
        "acknowledged"
    );
    fs::write(hurt.join("after"), "kept").unwrap();
    tine.ok(&["commit", "hurt", "-m", "on"]);
    tine.ok(&["check"]);
}
