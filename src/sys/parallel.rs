//! Work that waits in several places at the same time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use parking_lot::Mutex;

/// Number of threads that wait for the disk at the same time.
const DISK_WAITS: usize = 8;

/// Runs [`at_once`] for work that waits for the disk.
///
/// A file system makes one journal commit for all callers that wait for one.
///
/// # Errors
/// As in [`at_once`].
pub fn disk_work<'i, T: Sync, E: Send>(
    items: &'i [T],
    work: impl Fn(&'i T) -> Result<(), E> + Sync,
) -> Result<(), E> {
    at_once(items, DISK_WAITS, work)
}

/// Runs `work` for each item on up to `max_threads` threads.
///
/// The order is undefined. Blocks until all work that began has ended.
///
/// # Errors
/// One of the errors of `work`. No further work begins after an error.
pub fn at_once<'i, T: Sync, E: Send>(
    items: &'i [T],
    max_threads: usize,
    work: impl Fn(&'i T) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(None);
    let go_on = || {
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(error) = work(item) {
                next.store(items.len(), Ordering::Relaxed);
                failed.lock().get_or_insert(error);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..items.len().min(max_threads) {
            let spawned = thread::Builder::new()
                .name("tine-wait".to_owned())
                .spawn_scoped(scope, go_on);
            if spawned.is_err() {
                // The threads that exist do all the work.
                break;
            }
        }
        go_on();
    });
    failed.into_inner().map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_item_is_worked_on_once() {
        for count in [0, 1, 3, 100] {
            let items: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
            let done: Result<(), ()> = disk_work(&items, |item| {
                item.fetch_add(1, Ordering::Relaxed);
                Ok(())
            });
            assert_eq!(done, Ok(()));
            assert!(items.iter().all(|item| item.load(Ordering::Relaxed) == 1));
        }
    }

    #[test]
    fn an_error_is_told() {
        let items: Vec<usize> = (0..100).collect();
        let done = disk_work(&items, |item| match item {
            3 => Err(*item),
            _ => Ok(()),
        });
        assert_eq!(done, Err(3));
    }
}
