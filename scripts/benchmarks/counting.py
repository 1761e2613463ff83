"""A fork whose requests to the daemon are counted."""

import json
import os

from .programs import Failure, generate, git, run

FILES = 2_000
# Sent without anybody waiting for an answer.
UNANSWERED = "forget"


class Fork:
    """A generated repository, a fork of it, and files in it that nothing has touched yet."""

    def __init__(self, tine, home, new_options=()):
        self.tine = tine
        self.home = home
        self.new_options = new_options
        self.repo = os.path.join(home, "repo")
        generate(self.repo, FILES, 3)
        self.plain = self.plain_files()
        self.forks = 0
        self.renew()

    def renew(self):
        """Another fork in its place: no operation finds what one before it left."""
        if self.forks:
            self.ask("delete", self.name, "--force")
        self.forks += 1
        self.name = f"counted-{self.forks}"
        self.dir = self.ask("new", self.name, *self.new_options).strip()
        self.untouched = self.plain
        self.serial = 0
        # What is asked once for each mount, because the answer holds for good, is asked now.
        write(os.path.join(self.new_directory(), "first"))

    def ask(self, *arguments):
        return run(self.tine, "-C", self.repo, *arguments)

    def plain_files(self):
        """Ordinary small files of the base, each of which is given away once."""
        listing = git("ls-tree", "-r", "-l", "-z", "HEAD", cwd=self.repo).split("\0")
        files = []
        for line in filter(None, listing):
            about, path = line.split("\t", 1)
            mode, _, _, size = about.split()
            # Neither many in one directory nor those with names that need care.
            if mode == "100644" and 0 < int(size) < 60_000 and not path.startswith(("docs/", "assets/many/")):
                files.append(path)
        return files

    def counts(self):
        status = json.loads(self.ask("daemon", "status", "--json"))
        for mount in status["mounted"]:
            if mount["fork"] == self.name:
                return {kind: count for kind, count in mount["requests"].items() if kind != UNANSWERED}
        raise Failure("the fork is not mounted")

    def forget(self):
        """Mounts the fork anew: the kernel knows nothing of it."""
        self.ask("unmount", self.name, "--keep")
        self.ask("mount", self.name)
        write(os.path.join(self.new_directory(), "first"))

    def base_files(self, count):
        """Files of the base that nothing was done with, absolute; the kernel knows their directories, not them."""
        taken, self.untouched = self.untouched[:count], self.untouched[count:]
        if len(taken) < count:
            raise Failure("the repository has too few files")
        paths = [os.path.join(self.dir, path) for path in taken]
        self.forget()
        for path in paths:
            os.stat(os.path.dirname(path))
        return paths

    def known_files(self, count):
        """As `base_files`; the kernel knows attributes and contents."""
        paths = self.base_files(count)
        for path in paths:
            read(path)
        return paths

    def new_directory(self):
        self.serial += 1
        path = os.path.join(self.dir, f"made-{self.serial}")
        os.mkdir(path)
        return path

    def new_names(self, count):
        """Names in a new directory that nobody asked for yet."""
        directory = self.new_directory()
        return [os.path.join(directory, f"name-{number}") for number in range(count)]

    def new_files(self, count, size=4096):
        """Files of the fork's own, just written."""
        paths = self.new_names(count)
        for path in paths:
            write(path, size)
        return paths

    def new_directories(self, count):
        paths = self.new_names(count)
        for path in paths:
            os.mkdir(path)
        return paths


def write(path, size=4096, flags=os.O_CREAT | os.O_EXCL):
    descriptor = os.open(path, os.O_WRONLY | flags, 0o644)
    if size:
        os.write(descriptor, b"x" * size)
    os.close(descriptor)


def read(path):
    """Reads to the end, as `cat` does."""
    descriptor = os.open(path, os.O_RDONLY)
    while os.read(descriptor, 128 * 1024):
        pass
    os.close(descriptor)


def difference(before, after):
    return {kind: after[kind] - before.get(kind, 0) for kind in after if after[kind] != before.get(kind, 0)}

