"""pjdfstest: POSIX calls and their errors, as root and as two ordinary users."""

import os
import pwd
import re
import subprocess
import tempfile

from .place import tail
from .programs import TOOLS, install_crate, tool

VERSION = "0.2.2"
SECOND_USER = "tine-conformance"
SECONDARY_FS = "/dev/shm"
# The nap between two changes of a time (in seconds) is longer than the tick of the clock that ext4 takes its times from.
CONFIG = f"""\
[features]
posix_fallocate = {{}}
rename_ctime = {{}}
utimensat = {{}}
utime_now = {{}}
[settings]
naptime = 0.02
allow_remount = false
[dummy_auth]
entries = [["nobody", "nogroup"], ["{SECOND_USER}", "{SECOND_USER}"]]
"""


def prepare(options):
    install_crate("pjdfstest", VERSION)


def make_second_user():
    try:
        pwd.getpwnam(SECOND_USER)
    except KeyError:
        command = ["useradd", "--system", "--user-group", "--no-create-home", "--shell", "/usr/sbin/nologin", SECOND_USER]
        print(f"pjdfstest needs a second ordinary user; making one: {' '.join(command)}", flush=True)
        subprocess.run(command, check=True)


def run(place, tally, options):
    make_second_user()
    config = os.path.join(TOOLS, "pjdfstest.toml")
    with open(config, "w") as out:
        out.write(CONFIG)
    with place.scratch("pjdfstest") as scratch, tempfile.TemporaryDirectory(dir=SECONDARY_FS) as beside:
        # A socket's path has 107 bytes at most, and pjdfstest adds more than 50.
        short_path = os.path.join(beside, "p")
        os.symlink(scratch, short_path)
        os.chmod(beside, 0o755)
        command = [tool("pjdfstest"), "-c", config, "-p", short_path, "-s", SECONDARY_FS]
        code, log = place.run("pjdfstest", "all", command, 900)
    summary = re.search(r"^Summary: (\d+) failed, (\d+) skipped, (\d+) passed", log, re.MULTILINE)
    if not summary:
        tally.failed += 1
        print(f"pjdfstest did not come to its end (exit code {code})\n{tail(log)}")
        return
    tally.failed, tally.skipped, tally.passed = map(int, summary.groups())
    for line in log.splitlines():
        if re.search(r"\sFAILED$", line):
            print(f"pjdfstest {line.split()[0]} ... FAILED")
    if code != 0 and tally.failed == 0:
        tally.failed = 1
