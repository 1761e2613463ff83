//! Lists the forks of a repository with their number of uncommitted paths.
//!
//! ```sh
//! cargo run -p tine-client --example overview -- path/to/repository
//! ```

use std::path::PathBuf;
use std::sync::Arc;

use tine_client::ops::Failure;
use tine_client::place::{Place, Silent};

fn main() -> Result<(), Failure> {
    let dir = std::env::args_os()
        .nth(1)
        .map_or_else(|| PathBuf::from("."), PathBuf::from);
    let place = Place::find(&dir, Arc::new(Silent))?;
    let mut client = place.connect()?;
    let (forks, damaged) = client.forks()?;
    for fork in forks {
        let changes = client.changes(&fork.name, false)?.changes.len();
        let branch = fork.branch.as_deref().unwrap_or("(detached)");
        println!(
            "{}\t{branch}\t{changes} uncommitted\t{}",
            fork.name,
            fork.mount_dir.display()
        );
    }
    for failure in damaged {
        eprintln!("{failure}");
    }
    Ok(())
}
