//! A whole task with the official Python SDK as the client.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::support::{
    OutputExt, Tine, require_fuse, require_program, run_with_timeout_of, skip, test_name,
};

#[test]
fn the_python_sdk_does_a_whole_task() {
    require_fuse!();
    require_program!("python3");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    if !root.join("target/mcp-sdk/bin/python").exists() {
        skip(
            test_name!(),
            "the Python SDK is missing: `scripts/examples/mcp-task --install` gets it from PyPI",
        );
        return;
    }
    let mut script = Command::new(root.join("scripts/examples/mcp-task"));
    script.env("TINE", Tine::program());
    let output =
        run_with_timeout_of(&mut script, Duration::from_secs(120), b"").expect_success("mcp-task");
    let said = output.text();
    for protocol in ["2026-07-28", "2025-11-25"] {
        assert!(said.contains(&format!("protocol {protocol}")), "{said}");
    }
    assert_eq!(said.matches("\ndone").count(), 2, "{said}");
}
