"""git's own tests, of its newest release, with all their repositories in the directory."""

import os
import re
import time

from .place import tail
from .programs import build, debian_source, install_packages

PACKAGES = {
    "make": "make", "cc": "gcc", "/usr/include/zlib.h": "zlib1g-dev", "/usr/include/curl/curl.h": "libcurl4-openssl-dev",
    "/usr/include/expat.h": "libexpat1-dev", "perl": "perl",
}
MAKE = ["make", "--silent", f"--jobs={os.cpu_count()}", "NO_RUST=1", "NO_TCLTK=1", "NO_GETTEXT=1", "CFLAGS=-O1"]
LIMIT_SECS = 1200
# Those that depend most on what the file system says: times, inode numbers, links, modes, names, locks.
SUBSET = """
t0000 t0050 t0060 t1300 t1400 t1404 t1500 t2005 t2021 t2022 t2025 t2103 t2200 t2201 t2202 t2203 t2204 t3000 t3001 t3010 t3600 t3700
t3701 t3903 t3904 t4000 t4114 t5304 t5310 t6021 t7001 t7063 t7064 t7101 t7300 t7301 t7508 t7519 t7520
""".split()
# Foreign systems, servers, and what no file system changes.
LEFT_OUT = re.compile(r"t9[1-8]\d\d|t5[59]\d\d")


def prepare(options):
    source = options.source.get("git") or debian_source("git")
    install_packages(PACKAGES)
    options.built["git"] = build(source, "git", [MAKE])


def run(place, tally, options):
    dir = os.path.join(options.built["git"], "t")
    environment = {"GIT_TEST_OPTS": "", "GIT_CONFIG_GLOBAL": "", "TEST_OUTPUT_DIRECTORY": dir}
    scripts = sorted(name for name in os.listdir(dir) if re.fullmatch(r"t\d{4}-.*\.sh", name))
    for script in scripts:
        if options.subset and script[:5] not in SUBSET:
            continue
        started = time.monotonic()
        name = script.removesuffix(".sh")
        if LEFT_OUT.fullmatch(script[:5]):
            continue
        with place.scratch("git") as scratch:
            code, log = place.run("git", name, ["sh", script, f"--root={scratch}"], LIMIT_SECS, dir, environment)
        skipped = re.search(r"^1\.\.0 # SKIP (.*)$", log, re.MULTILINE)
        if code == 0 and skipped:
            tally.case(name, "skipped", started, skipped.group(1))
        else:
            tally.case(name, "passed" if code == 0 else "failed", started)
            if code != 0:
                failed = re.findall(r"^not ok (?!.*# TODO).*$", log, re.MULTILINE)
                print("".join(f"    {line}\n" for line in failed) or tail(log))
