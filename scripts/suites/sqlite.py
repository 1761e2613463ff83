"""SQLite's own tests ("veryquick" and slow ones), with all databases in the directory."""

import os
import re
import time

from .place import OWNER, as_owner
from .programs import build, debian_source, install_packages

PACKAGES = {"make": "make", "cc": "gcc", "tclsh": "tcl", "/usr/include/tcl8.6/tcl.h": "tcl-dev"}
LIMIT_SECS = 5400
# About locks, journals, the write-ahead log, shared memory, and crashes in the middle.
SUBSET = """
alter atomic attach2 backup2 crash2 crash3 delete2 exclusive exclusive2 incrblob io jrnlmode lock lock2 lock4 lock5 lock6
memsubsys1 mmap1 mmap2 nolock pager1 pager3 pragma2 savepoint shared2 sync superlock temptable unixexcl vacuum vacuum2
wal wal2 wal5 wal6 wal7 walbak walcrash walhook walmode walnoshm walro walshared
""".split()

# Left out of veryquick.test because they are slow; the whole suite has them, too.
SLOW = "crash crash2 crash3 trans2 walcrash walprotocol walslow walthread".split()


def prepare(options):
    source = options.source.get("sqlite") or debian_source("sqlite3")
    install_packages(PACKAGES)
    configure = ["./configure", "--enable-all", "--with-tcl=/usr/lib/tcl8.6"]
    options.built["sqlite"] = build(source, "sqlite", [configure, ["make", f"--jobs={os.cpu_count()}", "testfixture"]])


def run(place, tally, options):
    dir = options.built["sqlite"]
    fixture = os.path.join(dir, "testfixture")
    tests = [f"{name}.test" for name in (SUBSET if options.subset else ["veryquick", *SLOW])]
    for test in tests:
        script = os.path.join(dir, "test", test)
        started = time.monotonic()
        if not os.path.exists(script):
            tally.case(test, "skipped", started, "this version has none")
            continue
        with place.scratch("sqlite", OWNER.st_uid, OWNER.st_gid) as scratch:
            code, log = place.run("sqlite", test, as_owner([fixture, script]), LIMIT_SECS, scratch)
        outcome = re.search(r"^(\d+) errors out of \d+ tests", log, re.MULTILINE)
        if code == 0 and not outcome:
            code = 1
        failed = "\n".join(re.findall(r"^! .*$", log, re.MULTILINE))
        tally.program(test, started, code, failed or log, note=outcome.group(0) if outcome else "")
