"""fsx: random reads, writes, truncations and mappings of one file."""

import os
import time

from .programs import LOGS, TOOLS, install_crate, tool

VERSION = "0.3.2"
OPERATIONS = 5000
READ_WRITE = {"read": 10, "write": 10, "truncate": 0, "mapread": 0, "mapwrite": 0}
EVERYTHING = {
    "close_open": 1, "invalidate": 1, "mapread": 5, "mapwrite": 5, "read": 10, "write": 10, "truncate": 3,
    "fsync": 1, "fdatasync": 1, "posix_fallocate": 2, "punch_hole": 3, "copy_file_range": 3, "sendfile": 2,
    "posix_fadvise": 1,
}
# tine keeps what is smaller than this in slots that many contents share.
SLOT_LIMIT = 64 * 1024

# name: (seed, settings, sizes of operations, weights)
CASES = {
    "everything": (1, {"flen": 262144}, {"max": 65536}, EVERYTHING),
    "everything-large": (2, {"flen": 8 << 20}, {"max": 1 << 20}, EVERYTHING),
    "everything-small-operations": (3, {"flen": 262144}, {"max": 512}, EVERYTHING),
    "read-write": (4, {"flen": 262144}, {"max": 65536}, READ_WRITE),
    "truncate": (5, {"flen": 262144}, {"max": 32768}, READ_WRITE | {"truncate": 10}),
    "no-mmap": (6, {"flen": 262144}, {"max": 65536}, EVERYTHING | {"mapread": 0, "mapwrite": 0}),
    "mmap": (7, {"flen": 262144}, {"max": 65536}, READ_WRITE | {"mapread": 10, "mapwrite": 10, "truncate": 2}),
    "mmap-without-msync": (
        8, {"flen": 262144, "nomsyncafterwrite": True}, {"max": 65536},
        READ_WRITE | {"mapread": 10, "mapwrite": 10, "truncate": 2, "close_open": 1, "invalidate": 2},
    ),
    "holes": (9, {"flen": 1 << 20}, {"max": 131072}, READ_WRITE | {"truncate": 3, "punch_hole": 10, "posix_fallocate": 5}),
    "copies": (10, {"flen": 1 << 20}, {"max": 131072}, READ_WRITE | {"copy_file_range": 10, "sendfile": 5, "truncate": 2}),
    "sync": (
        11, {"flen": 131072}, {"max": 16384},
        READ_WRITE | {"truncate": 2, "fsync": 5, "fdatasync": 5, "close_open": 5, "invalidate": 5, "mapwrite": 5},
    ),
    "below-slot-limit": (12, {"flen": SLOT_LIMIT - 1}, {"max": 20000}, EVERYTHING),
    "around-slot-limit": (13, {"flen": SLOT_LIMIT + 4096}, {"max": SLOT_LIMIT}, EVERYTHING),
    # fsx 0.3.2 does not align posix_fallocate and then asks for lengths of 0, which is EINVAL everywhere.
    "aligned": (
        14, {"flen": 1 << 20}, {"min": 4096, "max": 65536, "align": 4096}, EVERYTHING | {"posix_fallocate": 0},
    ),
    "fixed-size": (
        15, {"flen": 1 << 20, "blockmode": True}, {"max": 65536, "align": 512},
        READ_WRITE | {"mapread": 5, "mapwrite": 5, "fsync": 1, "punch_hole": 5, "copy_file_range": 5},
    ),
}


def prepare(options):
    install_crate("fsx", VERSION)


def toml(value):
    return str(value).lower() if isinstance(value, bool) else str(value)


def run(place, tally, options):
    for name, (seed, settings, sizes, weights) in CASES.items():
        started = time.monotonic()
        config = os.path.join(TOOLS, f"fsx-{name}.toml")
        with open(config, "w") as out:
            for section, values in (("", settings), ("[opsize]\n", sizes), ("[weights]\n", weights)):
                out.write(section + "".join(f"{key} = {toml(value)}\n" for key, value in values.items()))
        with place.scratch("fsx") as scratch:
            path = os.path.join(scratch, "file")
            with open(path, "wb") as out:
                if settings.get("blockmode"):
                    out.truncate(settings["flen"])
            command = [tool("fsx"), "-f", config, "-P", LOGS, "-S", str(seed), "-N", str(OPERATIONS), path]
            code, log = place.run("fsx", name, command, 300)
        tally.program(name, started, code, log, note=f"seed {seed}")
