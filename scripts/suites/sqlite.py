"""SQLite's own tests ("veryquick"), with all databases in the directory."""

import os
import re
import time

from .place import tail
from .programs import build, debian_source, install_packages

PACKAGES = {"make": "make", "cc": "gcc", "tclsh": "tcl", "/usr/include/tcl8.6/tcl.h": "tcl-dev"}
LIMIT_SECS = 5400
# About locks, journals, the write-ahead log, shared memory, and crashes in the middle.
SUBSET = """
alter atomic attach2 backup2 crash crash2 crash3 delete2 exclusive exclusive2 incrblob io jrnlmode lock lock2 lock4 lock5 lock6
memsubsys1 mmap1 mmap2 nolock pager1 pager2 pager3 pragma2 savepoint shared2 sync superlock temptable trans2 unixexcl vacuum
vacuum2 wal wal2 wal5 wal6 wal7 walbak walcrash walhook wallock walmode walnoshm walprotocol walro walshared walslow walthread
""".split()


def prepare(options):
    source = options.source.get("sqlite") or debian_source("sqlite3")
    install_packages(PACKAGES)
    configure = ["./configure", "--enable-all", "--with-tcl=/usr/lib/tcl8.6"]
    options.built["sqlite"] = build(source, "sqlite", [configure, ["make", f"--jobs={os.cpu_count()}", "testfixture"]])


def run(place, tally, options):
    dir = options.built["sqlite"]
    fixture = os.path.join(dir, "testfixture")
    tests = [f"{name}.test" for name in SUBSET] if options.subset else ["veryquick.test"]
    for test in tests:
        script = os.path.join(dir, "test", test)
        if not os.path.exists(script):
            continue
        started = time.monotonic()
        with place.scratch("sqlite") as scratch:
            # Root reads what its mode forbids, which some tests would notice.
            code, log = place.run("sqlite", test, [fixture, script], LIMIT_SECS, scratch)
        outcome = re.search(r"^(\d+) errors out of (\d+) tests", log, re.MULTILINE)
        passed = code == 0 and outcome and outcome.group(1) == "0"
        tally.case(test, "passed" if passed else "failed", started, outcome.group(0) if outcome else "")
        if not passed:
            print(tail(log))
