"""Does things to files as several users, chosen at random, and says what came of it and what is there then.

    random.py SEED STEPS [flags]

Works in the current directory, as root. With `flags` immutable and append-only come and go, too, and failures are told
without their reason: a file system that keeps flags outside the kernel is asked after the kernel checked the rest.
"""

import array
import errno
import fcntl
import os
import random
import struct
import subprocess
import sys

SEED, STEPS = int(sys.argv[1]), int(sys.argv[2])
WITH_FLAGS = sys.argv[3:] == ["flags"]
chosen = random.Random(SEED)

NAMES = ["a", "b", "c", "d", "d/a", "d/b", "d/e", "d/e/a", "g", "g/a", "g/b", "."]
MODES = [0o777, 0o666, 0o2775, 0o6755, 0o700, 0o640, 0o1777, 0o2767, 0]
ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
CAPABILITY = struct.pack("<IIIII", 0x02000001, 1 << 13, 0, 0, 0)
GET_FLAGS, SET_FLAGS = 0x80086601, 0x40086602
IMMUTABLE, APPEND, NODUMP, NOATIME = 0x10, 0x20, 0x40, 0x80


def acl():
    users = sorted(chosen.sample([0, 3000, 3001, 3002], chosen.choice([0, 0, 1, 2])))
    groups = sorted(chosen.sample([0, 3000, 4000, 4001], chosen.choice([0, 0, 1, 2])))
    whom = [(0x01, -1)] + [(0x02, user) for user in users] + [(0x04, -1)] + [(0x08, group) for group in groups]
    if users or groups or chosen.random() < 0.3:
        whom.append((0x10, -1))
    whom.append((0x20, -1))
    if chosen.random() < 0.05:
        chosen.shuffle(whom)
    # Taking a default ACL from what is not a directory the kernel grants by itself on FUSE, and asks for flags first elsewhere.
    if chosen.random() < 0.05 and not WITH_FLAGS:
        whom = []
    return struct.pack("<I", 2) + b"".join(
        struct.pack("<HHi", tag, chosen.randrange(8), who) for tag, who in whom
    )


def with_open(path, how, use):
    # A fifo would wait for somebody at its other end.
    opened = os.open(path, how | os.O_NONBLOCK, 0)
    try:
        return use(opened)
    finally:
        os.close(opened)


def make(path, mode):
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode))


def flags_of(opened):
    flags = array.array("i", [0])
    fcntl.ioctl(opened, GET_FLAGS, flags, True)
    return flags[0]


def set_flags(opened, flags):
    kept = flags_of(opened) & ~(IMMUTABLE | APPEND | NODUMP | NOATIME)
    fcntl.ioctl(opened, SET_FLAGS, array.array("i", [kept | flags]))


def step():
    """What is done, as text and as something to call, and by whom."""
    path, other = chosen.choice(NAMES), chosen.choice(NAMES)
    mode = chosen.choice(MODES + [chosen.randrange(0o10000)])
    # Not (-1, -1): see docs/semantics.md.
    user, group = chosen.choice([-1, 0, 3000, 3001]), chosen.choice([0, 3000, 4000, 4001])
    size, value = chosen.choice([0, 3, 100]), acl()
    flags = chosen.choice([0, 0, NODUMP, NOATIME] + [IMMUTABLE, APPEND] * WITH_FLAGS)
    steps = [
        (f"make {path} {mode:o}", lambda: make(path, mode)),
        (f"make {other} {mode:o}", lambda: make(other, mode)),
        (f"mkdir {path} {mode & 0o1777:o}", lambda: os.mkdir(path, mode & 0o1777)),
        (f"mkdir {other} {mode & 0o1777:o}", lambda: os.mkdir(other, mode & 0o1777)),
        (f"mkfifo {path} {mode:o}", lambda: os.mkfifo(path, mode)),
        (f"symlink {path}", lambda: os.symlink("nowhere", path)),
        (f"link {path} {other}", lambda: os.link(path, other)),
        (f"rename {path} {other}", lambda: os.rename(path, other)),
        (f"unlink {path}", lambda: os.unlink(path)),
        (f"rmdir {path}", lambda: os.rmdir(path)),
        (f"chmod {path} {mode:o}", lambda: os.chmod(path, mode)),
        (f"chown {path} {user} {group}", lambda: os.lchown(path, user, group)),
        (f"set the times of {path}", lambda: os.utime(path, (5, 5))),
        (f"touch {path}", lambda: os.utime(path)),
        (f"append to {path}", lambda: with_open(path, os.O_WRONLY | os.O_APPEND, lambda to: os.write(to, b"xy"))),
        (f"append to {other}", lambda: with_open(other, os.O_WRONLY | os.O_APPEND, lambda to: os.write(to, b"z"))),
        (f"truncate {path} {size}", lambda: os.truncate(path, size)),
        (f"read {path}", lambda: with_open(path, os.O_RDONLY, lambda it: os.read(it, 9))),
        (f"list {path}", lambda: sorted(os.listdir(path))),
        (f"set the ACL of {path} {value.hex()}", lambda: os.setxattr(path, ACCESS, value)),
        (f"set the default ACL of {path} {value.hex()}", lambda: os.setxattr(path, DEFAULT, value)),
        (f"set the default ACL of d {value.hex()}", lambda: os.setxattr("d", DEFAULT, value)),
        (f"remove the ACL of {path}", lambda: os.removexattr(path, ACCESS)),
        (f"set user. of {path}", lambda: os.setxattr(path, "user.x", b"1")),
        (f"set trusted. of {path}", lambda: os.setxattr(path, "trusted.x", b"1")),
        (f"set capabilities of {path}", lambda: os.setxattr(path, "security.capability", CAPABILITY)),
        (f"set flags of {path} {flags:x}", lambda: with_open(path, os.O_RDONLY, lambda it: set_flags(it, flags))),
        (f"set flags of {other} 0", lambda: with_open(other, os.O_RDONLY, lambda it: set_flags(it, 0))),
    ]
    who = chosen.choice([
        (0, 0, []), (0, 0, []), (3000, 3000, []), (3000, 3001, [4000]), (3001, 4001, []), (3001, 3001, [3000, 4000]),
        (3002, 3000, []),
    ])
    return chosen.choice(steps), who, chosen.choice([0, 0o22, 0o27, 0o77])


def done(act, who, umask):
    """Does it as somebody, in a process of its own; what came of it."""
    user, group, groups = who
    from_child, to_parent = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.umask(umask)
            os.setgroups(groups)
            os.setresgid(group, group, group)
            os.setresuid(user, user, user)
            try:
                outcome = repr(act())
            except OSError as error:
                outcome = "refused" if WITH_FLAGS else errno.errorcode[error.errno]
        except BaseException as error:
            outcome = f"broken: {error!r}"
        os.write(to_parent, outcome.encode())
        os._exit(0)
    os.close(to_parent)
    with os.fdopen(from_child, "rb") as outcome:
        text = outcome.read().decode()
    os.waitpid(child, 0)
    return text


def attributes(path):
    values = {name: os.getxattr(path, name, follow_symlinks=False) for name in os.listxattr(path, follow_symlinks=False)}
    return [(name, values[name].hex()) for name in sorted(values)]


def seen(path):
    stat = os.lstat(path)
    kind = stat.st_mode & 0o170000
    yield path, f"{stat.st_mode:o}", stat.st_uid, stat.st_gid, attributes(path)
    if kind == 0o100000:
        yield stat.st_size, stat.st_nlink
    if kind in (0o100000, 0o040000):
        yield with_open(path, os.O_RDONLY, flags_of) & (IMMUTABLE | APPEND | NODUMP | NOATIME)


os.umask(0)
os.chmod(".", 0o777)
try:
    for number in range(STEPS):
        (what, act), who, umask = step()
        print(number, what, "by", who, f"umask {umask:o}:", done(act, who, umask))
        # First what the kernel remembers, asked for by itself.
        print("  modes", *(f"{os.lstat(name).st_mode:o}" for name in NAMES if os.path.lexists(name)))
        if number % 5 == 0:
            for directory in sorted(directory for directory, _, _ in os.walk(".")):
                for name in ["."] + sorted(os.listdir(directory)):
                    print("   ", *seen(os.path.join(directory, name)))
finally:
    subprocess.run(["chattr", "-Rf", "-ia", "."])
