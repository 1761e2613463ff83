//! How often the kernel asked for what.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! operations {
    ($($variant:ident $name:literal),+ $(,)?) => {
        /// A kind of request.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Operation {
            $($variant),+
        }

        impl Operation {
            const ALL: &'static [Operation] = &[$(Operation::$variant),+];

            /// As FUSE names it, in lower case.
            pub(super) fn name(self) -> &'static str {
                match self {
                    $(Operation::$variant => $name),+
                }
            }
        }
    };
}

operations! {
    Lookup "lookup",
    Forget "forget",
    GetAttr "getattr",
    SetAttr "setattr",
    ReadLink "readlink",
    MkNod "mknod",
    MkDir "mkdir",
    Symlink "symlink",
    Link "link",
    Unlink "unlink",
    RmDir "rmdir",
    Rename "rename",
    Open "open",
    OpenDir "opendir",
    Release "release",
    Create "create",
    Flush "flush",
    Access "access",
    Read "read",
    Write "write",
    Fsync "fsync",
    FsyncDir "fsyncdir",
    ReadDir "readdir",
    ReadDirPlus "readdirplus",
    StatFs "statfs",
    SetXattr "setxattr",
    GetXattr "getxattr",
    ListXattr "listxattr",
    RemoveXattr "removexattr",
    Fallocate "fallocate",
    Lseek "lseek",
    CopyFileRange "copy_file_range",
    Ioctl "ioctl",
    Poll "poll",
}

/// One number for each kind of request. Relaxed: they are read for information only.
pub(super) struct Counters([AtomicU64; Operation::ALL.len()]);

impl Counters {
    pub(super) fn new() -> Counters {
        Counters([const { AtomicU64::new(0) }; Operation::ALL.len()])
    }

    pub(super) fn count(&self, operation: Operation) {
        if let Some(counter) = self.0.get(operation as usize) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Name and number of every kind, also of those that never came.
    pub(super) fn read(&self) -> Vec<(&'static str, u64)> {
        Operation::ALL
            .iter()
            .zip(&self.0)
            .map(|(operation, counter)| (operation.name(), counter.load(Ordering::Relaxed)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_own_number() {
        let counters = Counters::new();
        counters.count(Operation::Lookup);
        counters.count(Operation::Poll);
        counters.count(Operation::Poll);
        let read = counters.read();
        assert_eq!(read.first(), Some(&("lookup", 1)));
        assert_eq!(read.last(), Some(&("poll", 2)));
        assert_eq!(read.iter().map(|(_, number)| number).sum::<u64>(), 3);
    }
}
