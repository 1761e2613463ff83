"""stress-ng: its file system stressors, each verifying what it did."""

import re
import time

from .programs import install_packages

SECONDS = 3
# The class `filesystem`, without what uses none of the directory's file system (binderfs, eventfd, ioprio, procfs,
# bind-mount), and with those of the class `io` that use files. Not io-uring: stress-ng 0.15 asks statx for the name ""
# without AT_EMPTY_PATH, which is ENOENT everywhere; fio has io_uring.
CASES = """
access aio aiol chattr chdir chmod chown copy-file dentry dir dirdeep dirmany dnotify dup fallocate fanotify fcntl
fiemap file-ioctl filename flock fpunch fsize fstat getdent handle hdd inode-flags inotify io iomix lease link
locka lockf lockofd mknod open readahead rename revio seek sendfile symlink sync-file touch utime verity xattr
""".split()
# What the stressors would fill the disk with otherwise.
OPTIONS = {
    "copy-file": ["--copy-file-bytes", "128m"],
    "fallocate": ["--fallocate-bytes", "64m"],
    "fiemap": ["--fiemap-bytes", "16m"],
    "hdd": ["--hdd-bytes", "64m"],
    "iomix": ["--iomix-bytes", "64m"],
    "readahead": ["--readahead-bytes", "32m"],
    "revio": ["--revio-bytes", "64m"],
    "seek": ["--seek-size", "32m"],
    "sendfile": ["--sendfile-size", "4m"],
    "sync-file": ["--sync-file-bytes", "32m"],
}
NOT_IMPLEMENTED = 4


def prepare(options):
    install_packages({"stress-ng": "stress-ng"})


def run(place, tally, options):
    for name in CASES:
        started = time.monotonic()
        with place.scratch("stress-ng") as scratch:
            command = ["stress-ng", f"--{name}", "2", *OPTIONS.get(name, [])]
            command += ["--verify", "--timeout", str(SECONDS), "--temp-path", scratch, "--no-rand-seed"]
            # Some sync the whole machine between two looks at the clock.
            code, log = place.run("stress-ng", name, command, 120 + SECONDS)
        # Ends well also where it did nothing.
        reason = re.search(r"\] ([^\n\]]*), skipping stress|skipped: [1-9]", log)
        skipped = code == NOT_IMPLEMENTED or (code == 0 and reason)
        why = (reason and reason.group(1)) or "not implemented"
        tally.program(name, started, code, log, skipped=why if skipped else None)
