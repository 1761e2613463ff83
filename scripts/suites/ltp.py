"""LTP: its file system tests, and those of the system calls that go to a file system."""

import os
import re
import shlex
import time

from .programs import TOOLS, Unavailable, build, install_packages

PACKAGES = {
    "autoconf": "autoconf", "automake": "automake", "m4": "m4", "pkg-config": "pkg-config", "make": "make", "cc": "gcc",
    "/usr/include/libaio.h": "libaio-dev", "/usr/include/sys/capability.h": "libcap-dev", "/usr/include/sys/acl.h": "libacl1-dev",
}
LIMIT_SECS = 600
# How a program ends whose case is not for this system.
TCONF = 32
CALLS = """
access chdir chmod chown close copy_file_range creat dup dup2 dup3 faccessat faccessat2 fallocate fchdir fchmod fchmodat fchown
fchownat fcntl fdatasync fgetxattr flistxattr flock fremovexattr fsetxattr fstat fstatat fstatfs fsync ftruncate futimesat getcwd
getdents getxattr lchown lgetxattr link linkat listxattr llistxattr llseek lremovexattr lseek lsetxattr lstat mkdir mkdirat mknod mknodat mmap
mremap msync munmap name_to_handle_at open open_by_handle_at openat openat2 pread preadv preadv2 pwrite pwritev pwritev2 read readahead
readdir readlink readlinkat readv removexattr rename renameat renameat2 rmdir sendfile setxattr splice stat statfs statvfs statx
symlink symlinkat sync sync_file_range syncfs tee truncate umask unlink unlinkat utime utimensat utimes vmsplice write writev
""".split()
FILES = ["syscalls", "dio", "fs_perms_simple", "fs"]
# These make a file system on a loop device: what they show is about that one.
OF_OTHERS = re.compile(rb"needs_device|mount_device|all_filesystems|format_device|needs_rofs|mntpoint = ")
# What is left out, and why.
LEFT_OUT = {
    "fcntl35": "about pipes", "fcntl35_64": "about pipes",
    "getxattr05": "writes a setting of the kernel's user namespaces, which a container may not",
    "fs_fill": "fills a file system of its own",
    "proc01": "about /proc", "read_all_dev": "about /dev", "read_all_proc": "about /proc", "read_all_sys": "about /sys",
    "binfmt_misc01": "about the kernel's formats", "binfmt_misc02": "about the kernel's formats",
    "isofs": "about iso9660", "squashfs01": "about squashfs", "quota_remount_test01": "about quotas of another file system",
}


def prepare(options):
    source = options.source.get("ltp")
    if not source:
        raise Unavailable("there is no Debian package: name a directory with --source ltp=DIR")
    install_packages(PACKAGES)
    jobs = f"--jobs={os.cpu_count()}"
    root = os.path.join(TOOLS, "built", "ltp-installed")
    make = ["make", "--silent", jobs]
    folders = ["kernel/fs", "kernel/io", *(f"kernel/syscalls/{call}" for call in CALLS), "lib"]
    commands = [["make", "autotools"], ["./configure", f"--prefix={root}"], [*make, "-C", "lib"]]
    for folder in folders:
        if os.path.isdir(os.path.join(source, "testcases", folder)):
            commands += [[*make, "-C", f"testcases/{folder}"], [*make, "-C", f"testcases/{folder}", "install"]]
    options.built["ltp"] = build(source, "ltp", commands)


def run(place, tally, options):
    dir = options.built["ltp"]
    installed = os.path.join(TOOLS, "built", "ltp-installed", "testcases", "bin")
    of_others = programs_of_others(os.path.join(dir, "testcases"))
    for name, command in cases(dir):
        program = shlex.split(command)[0]
        if not os.path.exists(os.path.join(installed, program)) or program in of_others:
            continue
        if tally.left_out(name, LEFT_OUT):
            continue
        started = time.monotonic()
        with place.scratch("ltp") as scratch:
            os.chmod(scratch, 0o1777)
            environment = {
                "TMPDIR": scratch, "LTPROOT": os.path.dirname(os.path.dirname(installed)),
                "PATH": f"{installed}:{os.environ['PATH']}", "LTP_TIMEOUT_MUL": "5",
            }
            code, log = place.run("ltp", name, ["sh", "-c", command], LIMIT_SECS, scratch, environment)
        reason = re.search(r"TCONF: (.*)$", log, re.MULTILINE)
        failed = "\n".join(re.findall(r"^.*T(?:FAIL|BROK): .*$", log, re.MULTILINE))
        tally.program(name, started, code, failed or log, skipped=(reason.group(1) if reason else "") if code == TCONF else None)


def cases(dir):
    """Names and shell commands of the files in `runtest`, each once."""
    seen = set()
    for file_name in FILES:
        with open(os.path.join(dir, "runtest", file_name)) as file:
            for line in file:
                name, *command = line.split(maxsplit=1) or [""]
                if command and not name.startswith("#") and name not in seen:
                    seen.add(name)
                    yield name, command[0].strip()


def programs_of_others(dir):
    found = set()
    for folder, _, names in os.walk(dir):
        for name in names:
            if name.endswith(".c"):
                with open(os.path.join(folder, name), "rb") as file:
                    if OF_OTHERS.search(file.read()):
                        found.add(name.removesuffix(".c"))
    return found
