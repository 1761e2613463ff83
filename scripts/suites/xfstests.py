"""xfstests: the generic tests of its group "quick", which the kernel's file systems have to pass.

On forks it runs with two, one for the test directory and one for the scratch directory, of a repository on a disk of its own,
because some tests fill the disk. On another directory it makes two ext4 file systems in image files there, for comparison.
"""

import contextlib
import os
import pwd
import re
import subprocess
import tempfile
import time

from .place import Place, Repository
from .programs import TINE, TOOLS, Unavailable, build, install_packages

PACKAGES = {
    "autoconf": "autoconf", "libtoolize": "libtool", "make": "make", "cc": "gcc", "/usr/include/xfs/xfs.h": "xfslibs-dev",
    "/usr/include/uuid/uuid.h": "uuid-dev", "/usr/include/sys/acl.h": "libacl1-dev", "/usr/include/attr/libattr.h": "libattr1-dev",
    "/usr/include/libaio.h": "libaio-dev", "/usr/include/gdbm.h": "libgdbm-dev", "/usr/include/sys/capability.h": "libcap-dev",
    "bc": "bc", "gawk": "gawk", "xfs_io": "xfsprogs", "getfacl": "acl", "getfattr": "attr", "quota": "quota", "dbench": "dbench",
}
USERS = ("fsgqa", "fsgqa2", "123456-fsgqa")
# The helper that mount(8) calls for `-t fuse.tine`.
HELPER = "/sbin/mount.fuse.tine"
LIMIT_SECS = 900
IMAGE_BYTES = 4 << 30

# A few seconds together, each about something that went wrong in a file system before.
SUBSET = """
001 002 005 006 007 011 013 014 020 023 024 025 028 035 037 053 062 069 070 074 075 080 084 087 088 089 091 100 105 109 112 113
117 123 124 126 127 128 129 131 132 133 135 141 169 184 193 198 207 208 209 210 211 212 213 214 215 221 236 237 239 241 245 246
247 248 249 257 258 263 286 306 307 308 309 313 314 319 337 355 360 375 377 378 393 394 401 403 406 412 422 423 424 428 430 431
432 433 434 436 437 438 443 444 445 446 448 451 452 454 460 463 464 465 471 478 490 504 523 524 525 528 532 533 538 567 568 571
591 604 609 611 613 615 618 632 633 634 636 637 638 639 646 647 650 676 680 683 684 685 686 687 689 696 697 704 706 708 728 729
732 736 745 749 751 755 756 758 759 760 761 764
""".split()

# What is left out on forks, and why.
LEFT_OUT = {
    "generic/062": "expects an empty directory after mkfs; a fork has .git in its root",
    "generic/069": "appends a line at a time, many thousand times, and takes longer than the limit",
    "generic/079": "the kernel checks the flag for immutable files itself on no FUSE mount",
    "generic/103": "fills the disk with more than the image holds",
    "generic/184": "a fork's mount is nodev, so that device nodes in it cannot be opened",
}


def prepare(options):
    source = options.source.get("xfstests")
    if not source:
        raise Unavailable("there is no Debian package: name a directory with --source xfstests=DIR")
    install_packages(PACKAGES)
    options.built["xfstests"] = build(source, "xfstests", [["make", "--silent", f"--jobs={os.cpu_count()}"]])


def run(place, tally, options):
    for user in USERS:
        try:
            pwd.getpwnam(user)
        except KeyError:
            subprocess.run(["useradd", "--create-home", "--badname", user], check=True, stderr=subprocess.DEVNULL)
    dir = options.built["xfstests"]
    devices = on_forks(options) if place.fork else on_images(place)
    with devices as (config, path):
        config_path = os.path.join(TOOLS, "xfstests.config")
        with open(config_path, "w") as out:
            out.write("".join(f"export {key}='{value}'\n" for key, value in config.items()))
        environment = {"HOST_OPTIONS": config_path, "PATH": f"{path}:{os.environ['PATH']}"}
        for name in names(place, options, dir, environment):
            if place.fork and tally.left_out(name, LEFT_OUT):
                continue
            started = time.monotonic()
            code, log = place.run("xfstests", name, ["./check", name], LIMIT_SECS, dir, environment)
            not_run = re.search(rf"^{name}\s.*\[not run\] *(.*)$", log, re.MULTILINE)
            tally.program(name, started, code, log, skipped=not_run.group(1) if code == 0 and not_run else None)


def names(place, options, dir, environment):
    if options.subset:
        return [f"generic/{number}" for number in SUBSET]
    _, log = place.run("xfstests", "list", ["./check", "-n", "-g", "generic/quick"], LIMIT_SECS, dir, environment)
    return re.findall(r"^(generic/\d+)", log, re.MULTILINE)


@contextlib.contextmanager
def image(place, name, size):
    """An ext4 file system in an image file: some tests fill the disk, which must not be everybody's. Its mount."""
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(place.scratch(name))
        path = os.path.join(scratch, "image")
        with open(path, "wb") as out:
            out.truncate(size)
        subprocess.run(["mkfs.ext4", "-q", path], check=True)
        found = subprocess.run(["losetup", "--find", "--show", path], check=True, capture_output=True, text=True)
        device = found.stdout.strip()
        stack.callback(subprocess.run, ["losetup", "--detach", device], check=False)
        mount = os.path.join(scratch, "mount")
        os.mkdir(mount)
        subprocess.run(["mount", device, mount], check=True)
        stack.callback(subprocess.run, ["umount", "--lazy", mount], check=False, stderr=subprocess.DEVNULL)
        yield device, mount


@contextlib.contextmanager
def on_forks(options):
    """Two forks that mount(8) and umount(8) mount and unmount; the configuration, and what is first in PATH."""
    if os.path.exists(HELPER):
        raise Unavailable(f"{HELPER} exists already")
    path = os.path.join(TOOLS, "xfstests-bin")
    os.makedirs(path, exist_ok=True)
    # xfstests asks for a mount's type with df, and knows `fuse` alone.
    write_program(os.path.join(path, "df"), "#!/bin/sh\n/bin/df \"$@\" | sed 's/fuse\\.tine\\b/fuse/'\n")
    with contextlib.ExitStack() as stack:
        home = stack.enter_context(tempfile.TemporaryDirectory(prefix="tine-", ignore_cleanup_errors=True))
        os.chmod(home, 0o755)
        _, disk = stack.enter_context(image(Place(home), "disk", IMAGE_BYTES))
        repository = Repository(disk, options.profile, options.transport)
        stack.callback(repository.end)
        names = " ".join(
            f"'{key}={value}'"
            for key, value in repository.environment.items() if key == "HOME" or key.startswith("GIT_")
        )
        write_program(
            HELPER,
            "#!/bin/sh\n# For the xfstests of scripts/conformance: mounts the fork that the first argument names.\n"
            f"exec env {names} '{TINE}' -C '{repository.dir}' mount \"${{1#tine:}}\" --allow-other >/dev/null\n",
        )
        stack.callback(os.remove, HELPER)
        yield {
            "TEST_DEV": "tine:test", "TEST_DIR": repository.new("test"),
            "SCRATCH_DEV": "tine:scratch", "SCRATCH_MNT": repository.new("scratch"),
            "FSTYP": "fuse", "FUSE_SUBTYP": ".tine", "MOUNT_OPTIONS": "", "TEST_FS_MOUNT_OPTS": "",
        }, path


@contextlib.contextmanager
def on_images(place):
    """Two ext4 file systems in image files."""
    with image(place, "test", IMAGE_BYTES) as test, image(place, "scratch", IMAGE_BYTES) as scratch:
        yield {
            "TEST_DEV": test[0], "TEST_DIR": test[1], "SCRATCH_DEV": scratch[0], "SCRATCH_MNT": scratch[1],
            "FSTYP": "ext4",
        }, "/sbin"


def write_program(path, text):
    with open(path, "w") as out:
        out.write(text)
    os.chmod(path, 0o755)
