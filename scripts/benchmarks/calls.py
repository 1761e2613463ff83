"""Single operations, as a program does them by system calls, for counting their requests."""

import ctypes
import fcntl
import mmap
import os
from dataclasses import dataclass
from typing import Callable

from .counting import difference, read, write

LIBC = ctypes.CDLL(None, use_errno=True)
MIB = 1 << 20


@dataclass(frozen=True)
class Call:
    """One operation: what it needs, and what is counted."""

    name: str
    # Takes the fork and a number; so many things to do it with.
    prepare: Callable
    # Does it with one of them.
    act: Callable
    # Why it is more than one could hope for, where it is.
    why: str = ""

    def count(self, fork, times):
        """Requests for one operation, by kind."""
        fork.renew()
        things = self.prepare(fork, times)
        before = fork.counts()
        for thing in things:
            self.act(thing)
        return {kind: number / times for kind, number in difference(before, fork.counts()).items()}


def after(prepare, act):
    """The same things, once something was done with each."""

    def prepared(fork, times):
        things = prepare(fork, times)
        for thing in things:
            act(thing)
        return things

    return prepared


def base_directories(fork, count):
    """Directories of the base with a few entries, of which the kernel knows nothing but their names."""
    every = {os.path.dirname(path) for path in fork.plain} - {""}
    # Without directories in them: listing one tells the kernel of what is in it.
    inner = sorted(path for path in every if not any(other.startswith(path + "/") for other in every))
    paths = [os.path.join(fork.dir, path) for path in inner[:count]]
    fork.forget()
    for path in paths:
        os.stat(path)
    return paths


def list_plainly(path):
    os.listdir(path)


def list_with_stat(path):
    for entry in os.scandir(path):
        entry.stat(follow_symlinks=False)


def stat_missing(path):
    try:
        os.stat(path)
    except FileNotFoundError:
        return
    raise AssertionError(path)


def make_link(path):
    os.symlink("target", path)


def links(fork, count):
    names = fork.new_names(count)
    for name in names:
        make_link(name)
    fork.forget()
    for name in names:
        os.stat(os.path.dirname(name))
    return names


def map_and_read(path):
    descriptor = os.open(path, os.O_RDONLY)
    with mmap.mmap(descriptor, 0, prot=mmap.PROT_READ) as mapped:
        sum(mapped[::4096])
    os.close(descriptor)


def opened(do, flags=os.O_RDWR):
    def act(path):
        descriptor = os.open(path, flags)
        try:
            do(descriptor)
        finally:
            os.close(descriptor)

    return act


def extract_as_tar(path):
    """open(O_EXCL), write, close, utimensat, and the mode, as GNU tar does for root."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.write(descriptor, b"x" * 4096)
    os.utime(descriptor, (1, 1))
    os.fchown(descriptor, os.geteuid(), os.getegid())
    os.fchmod(descriptor, 0o644)
    os.close(descriptor)


def overwrite(path):
    write(path, 4096, os.O_TRUNC)


def save_as_editor(path):
    """Written beside it, synced, and renamed over it."""
    beside = path + ".new"
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    os.write(descriptor, b"x" * 4096)
    os.fsync(descriptor)
    os.close(descriptor)
    os.rename(beside, path)


def set_attribute(path):
    os.setxattr(path, "user.bench", b"value")


def missing_attribute(path):
    try:
        os.getxattr(path, "user.missing")
    except OSError:
        return
    raise AssertionError(path)


def copy_range(path):
    source, target = os.open(path, os.O_RDONLY), os.open(path + ".copy", os.O_WRONLY | os.O_CREAT, 0o644)
    os.copy_file_range(source, target, 4096)
    os.close(source)
    os.close(target)


def seek_hole(descriptor):
    os.lseek(descriptor, 0, os.SEEK_HOLE)


def lock(descriptor):
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    fcntl.lockf(descriptor, fcntl.LOCK_EX)


def base(fork, count):
    return fork.base_files(count)


def known(fork, count):
    return fork.known_files(count)


def names(fork, count):
    return fork.new_names(count)


def own(fork, count):
    return fork.new_files(count)


def large(fork, count):
    return fork.new_files(count, MIB)


def large_unread(fork, count):
    paths = large(fork, count)
    fork.forget()
    for path in paths:
        os.stat(path)
    return paths


def directories(fork, count):
    return fork.new_directories(count)


NAME_CHECK = "is the name free?"
CAPABILITY = "security.capability is asked for once after each change of attributes"
SIZE_ASKED = "size and times after a write are the daemon's to tell"
TIME_ASKED = "the kernel does not trust the access time after reading"
TRUNCATES = "without open requests truncating is a request of its own"

CALLS = [
    Call("stat, first", base, os.stat),
    Call("stat, again", after(base, os.stat), os.stat),
    Call("stat of a missing name, first", names, stat_missing),
    Call("stat of a missing name, again", after(names, stat_missing), stat_missing),
    Call("open, read, close a small file, first", base, read, "the name, then the content"),
    Call("open, read, close a small file, again", after(base, read), read),
    Call("open, read, close after writing it", own, read, SIZE_ASKED),
    Call("stat after the first read", known, os.stat, TIME_ASKED),
    Call("stat after that", after(known, os.stat), os.stat),
    Call("open, read, close 1 MiB, first", large_unread, read, "read-ahead starts small"),
    Call("map and read a small file, first", base, map_and_read, "the name, then the content"),
    Call("list a directory, first", base_directories, list_plainly, "the second says that nothing follows"),
    Call("list a directory, again", after(base_directories, list_plainly), list_plainly, TIME_ASKED),
    Call("list a directory, after that", after(after(base_directories, list_plainly), list_plainly), list_plainly),
    Call("list, stat each entry, first", base_directories, list_with_stat, "the second says that nothing follows"),
    Call("list, stat each entry, again", after(base_directories, list_with_stat), list_with_stat, TIME_ASKED),
    Call("read a symlink, first", links, os.readlink, "the name, then the target"),
    Call("read a symlink, again", after(links, os.readlink), os.readlink),
    Call("access(X_OK)", known, lambda path: os.access(path, os.X_OK), "asked each time, where the kernel checks none"),
    Call("chdir", directories, lambda path: (os.chdir(path), os.chdir("/")), "as access"),
    Call("create empty, close", names, lambda path: write(path, 0), NAME_CHECK),
    Call("create, write 4 KiB, close", names, write, NAME_CHECK + "; " + CAPABILITY),
    Call("create, write 1 MiB, close", names, lambda path: write(path, MIB), NAME_CHECK + "; " + CAPABILITY),
    Call("create as tar does", names, extract_as_tar,
         NAME_CHECK + "; owner, mode and time come one by one; " + CAPABILITY),
    Call("save as an editor does", known, save_as_editor, "both names; " + CAPABILITY),
    Call("overwrite a base file (O_TRUNC, write)", known, overwrite, TRUNCATES + "; " + CAPABILITY),
    Call("overwrite an own file (O_TRUNC, write)", own, overwrite, TRUNCATES + "; " + CAPABILITY),
    Call("open O_TRUNC an empty file, write", lambda fork, n: fork.new_files(n, 0), overwrite,
         TRUNCATES + "; " + CAPABILITY),
    Call("write 4 KiB in place", own, lambda path: write(path, 4096, 0)),
    Call("append 4 KiB", own, lambda path: write(path, 4096, os.O_APPEND)),
    Call("append to a base file", known, lambda path: write(path, 100, os.O_APPEND), CAPABILITY),
    Call("truncate", own, lambda path: os.truncate(path, 100)),
    Call("fallocate", own, opened(lambda file: os.posix_fallocate(file, 0, 8192))),
    Call("fsync after nothing", own, opened(os.fsync)),
    Call("fsync after a write", own, opened(lambda file: (os.write(file, b"x"), os.fsync(file)))),
    Call("copy_file_range to a new file", own, copy_range, NAME_CHECK + "; " + CAPABILITY),
    Call("lseek(SEEK_HOLE)", own, opened(seek_hole)),
    Call("flock and fcntl lock", own, opened(lock)),
    Call("unlink an own file", own, os.unlink),
    Call("unlink a base file", known, os.unlink),
    Call("unlink a base file that nobody looked at", base, os.unlink, "the kernel looks the name up first"),
    Call("rename", own, lambda path: os.rename(path, path + ".to"), "is the new name free?"),
    Call("rename over a known file", after(own, lambda path: write(path + ".to")),
         lambda path: os.rename(path, path + ".to"), "a name that is replaced is looked up again"),
    Call("mkdir", names, os.mkdir, NAME_CHECK),
    Call("rmdir", directories, os.rmdir),
    Call("symlink", names, make_link, NAME_CHECK),
    Call("hard link", own, lambda path: os.link(path, path + ".to"), NAME_CHECK),
    Call("mkfifo", names, os.mkfifo, NAME_CHECK),
    Call("chmod", known, lambda path: os.chmod(path, 0o600)),
    Call("stat after chmod", after(known, lambda path: os.chmod(path, 0o600)), os.stat),
    Call("utimens", known, lambda path: os.utime(path, (1, 1))),
    Call("chown", known, lambda path: os.chown(path, os.geteuid(), os.getegid()), CAPABILITY),
    Call("stat after a write", own, os.stat, SIZE_ASKED),
    Call("stat a directory after a create in it",
         lambda fork, n: [os.path.join(path, "new") for path in fork.new_directories(n)],
         lambda path: (write(path, 0), os.stat(os.path.dirname(path))), NAME_CHECK + "; the directory's times changed"),
    Call("set an attribute", own, set_attribute),
    Call("get a missing attribute", known, missing_attribute, "the kernel caches no attributes"),
    Call("list attributes", known, os.listxattr, "the kernel caches no attributes"),
    Call("statvfs", known, os.statvfs, "the kernel caches no figures of file systems"),
]
