"""git's own tests, of its newest release, with all their repositories in the directory."""

import os
import re
import time

from .place import OWNER, as_owner
from .programs import build, debian_source, install_packages

PACKAGES = {
    "make": "make", "cc": "gcc", "/usr/include/zlib.h": "zlib1g-dev", "/usr/include/*/curl/curl.h": "libcurl4-openssl-dev",
    "/usr/include/expat.h": "libexpat1-dev", "perl": "perl",
}
MAKE = ["make", "--silent", f"--jobs={os.cpu_count()}", "NO_RUST=1", "NO_TCLTK=1", "NO_GETTEXT=1", "CFLAGS=-O1"]
LIMIT_SECS = 1200
# Those that depend most on what the file system says: times, inode numbers, links, modes, names, locks.
SUBSET = """
t0050 t0060 t1300 t1400 t1404 t1500 t2005 t2021 t2022 t2025 t2103 t2200 t2201 t2202 t2203 t2204 t3000 t3001 t3010 t3600 t3700
t3904 t4000 t4114 t5304 t6021 t7001 t7063 t7064 t7101 t7300 t7301 t7508 t7519 t7520
""".split()
# What is left out on a mount, and why: scripts, and cases of scripts by number.
LEFT_OUT = dict.fromkeys(
    ["t7508.125", "t7519"],
    "git uses no fsmonitor on FUSE without fsmonitor.allowRemote, which forks set and the test's repositories do not",
)


def prepare(options):
    source = options.source.get("git") or debian_source("git")
    install_packages(PACKAGES)
    options.built["git"] = build(source, "git", [MAKE])


def run(place, tally, options):
    dir = os.path.join(options.built["git"], "t")
    scripts = sorted(name for name in os.listdir(dir) if re.fullmatch(r"t\d{4}-.*\.sh", name))
    for script in scripts:
        if options.subset and script[:5] not in SUBSET:
            continue
        name = script.removesuffix(".sh")
        left_out = {case: why for case, why in LEFT_OUT.items() if place.fork and case.startswith(script[:5])}
        for case in left_out:
            tally.left_out(case, left_out)
        if script[:5] in left_out:
            continue
        started = time.monotonic()
        with place.scratch("git", OWNER.st_uid, OWNER.st_gid) as scratch:
            environment = {"TEST_OUTPUT_DIRECTORY": scratch, "GIT_SKIP_TESTS": " ".join(left_out)}
            code, log = place.run("git", name, as_owner(["sh", script]), LIMIT_SECS, dir, environment)
        not_run = re.search(r"^1\.\.0 # SKIP (.*)$", log, re.MULTILINE)
        failed = "\n".join(re.findall(r"^not ok (?!.*# TODO).*$", log, re.MULTILINE))
        tally.program(name, started, code, failed or log, skipped=not_run.group(1) if code == 0 and not_run else None)
