//! Waiting in several places at a time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use parking_lot::Mutex;

/// How many wait for the disk at a time.
const DISK_WAITS: usize = 8;

/// [`at_once`] for work that waits for the disk: a file system makes one commit of its journal for
/// all who wait for one.
pub fn disk_work<'i, T: Sync, E: Send>(
    items: &'i [T],
    work: impl Fn(&'i T) -> Result<(), E> + Sync,
) -> Result<(), E> {
    at_once(items, DISK_WAITS, work)
}

/// Does `work` for each of `items`, up to `max_threads` of them at a time and in no order. After an
/// error nothing more is begun; the answer is one of the errors, and comes when all that had begun
/// is over.
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
                // Whoever is there does it all.
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
