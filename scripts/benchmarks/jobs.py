"""What programs do, for counting their requests a file."""

import os
import shutil
import sqlite3
import subprocess
from dataclasses import dataclass
from typing import Callable

from .counting import difference, write
from .programs import git, run

ROWS = 20


@dataclass(frozen=True)
class Job:
    """A program's work: what it needs, what is counted, and over how many things it is told."""

    name: str
    # What one of them is called.
    each: str
    # Takes the fork; a function that does the work and says over how many things.
    prepare: Callable
    needs: str = ""
    why: str = ""

    def count(self, fork):
        """Requests by kind, and over how many things they are to be told."""
        fork.renew()
        act = self.prepare(fork)
        before = fork.counts()
        number = act()
        return difference(before, fork.counts()), number


def tracked(fork):
    return len(list(filter(None, git("ls-tree", "-r", "-z", "--name-only", "HEAD", cwd=fork.repo).split("\0"))))


def program(*command, forget=False, before=(), count=tracked):
    """Runs a program at the fork's root; `before` are run first and not counted."""

    def prepare(fork):
        if forget:
            fork.forget()
        for one in before:
            run(*one, cwd=fork.dir)

        def act():
            subprocess.run(command, cwd=fork.dir, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
            return count(fork)

        return act

    return prepare


def one(_fork):
    return 1


STATUS = ("git", "status", "--short")
FIND = ("find", ".", "-printf", "%s %T@\\n")
# As a shell runs it: that nothing is found is no failure.
SEARCH = ("sh", "-c", "rg -c never-in-any-file-1f2e3d -uu --glob '!.git' || true")
RG = ("rg", "-c", "never-in-any-file-1f2e3d", "-uu", "--glob", "!.git")


def after_one_change(fork):
    path = fork.known_files(1)[0]
    run(*STATUS, cwd=fork.dir)
    run(*STATUS, cwd=fork.dir)
    write(path, 100, os.O_APPEND)

    def act():
        run(*STATUS, cwd=fork.dir)
        return 1

    return act


def extract(fork):
    archive = os.path.join(fork.home, "files.tar")
    git("archive", "--output", archive, "HEAD", cwd=fork.repo)
    where = fork.new_directory()

    def act():
        run("tar", "xf", archive, cwd=where)
        return tracked(fork)

    return act


def extracted(fork):
    extract(fork)()
    return os.path.join(fork.dir, f"made-{fork.serial}")


def remove(fork):
    where = extracted(fork)

    def act():
        run("rm", "-rf", where)
        return tracked(fork)

    return act


def remove_base(fork):
    fork.forget()

    def act():
        run("rm", "-rf", *[os.path.join(fork.dir, name) for name in ("lib", "vendor")])
        listing = git("ls-tree", "-r", "-z", "--name-only", "HEAD", "lib", "vendor", cwd=fork.repo)
        return listing.count("\0")

    return act


def copy(flag):
    """Copies a tree with `cp` and this flag."""

    def prepare(fork):
        where = extracted(fork)

        def act():
            run("cp", flag, where, where + "-copy")
            return tracked(fork)

        return act

    return prepare


def switch(fork):
    run(*STATUS, cwd=fork.dir)
    changed = git("diff", "--name-only", "HEAD~1", "HEAD", cwd=fork.repo).count("\n")

    def act():
        run("git", "checkout", "--quiet", "HEAD~1", cwd=fork.dir)
        return changed

    return act


def stash_ten(fork):
    for path in fork.known_files(10):
        write(path, 100, os.O_APPEND)
    run(*STATUS, cwd=fork.dir)

    def act():
        run("git", "stash", "--quiet", cwd=fork.dir)
        return 1

    return act


def compile_c(fork):
    source = os.path.join(fork.new_directory(), "one.c")
    with open(source, "w") as file:
        file.write('#include "one.h"\nint one(void) { return ONE; }\n')
    with open(source[:-1] + "h", "w") as file:
        file.write("#define ONE 1\n")

    def act():
        run("cc", "-c", "one.c", cwd=os.path.dirname(source))
        return 1

    return act


def cargo(built=False, touched=False):
    def prepare(fork):
        where = fork.new_directory()
        run("cargo", "init", "--quiet", "--vcs", "none", "--name", "one", where)

        def act():
            run("cargo", "build", "--quiet", "--offline", cwd=where)
            return 1

        if built:
            act()
        if touched:
            with open(os.path.join(where, "src", "main.rs"), "a") as file:
                file.write("// changed\n")

        return act

    return prepare


def insert(journal):
    def prepare(fork):
        connection = sqlite3.connect(os.path.join(fork.new_directory(), "data.db"), isolation_level=None)
        connection.execute(f"pragma journal_mode={journal}")
        connection.execute("create table rows(id integer primary key, text)")

        def act():
            for number in range(ROWS):
                connection.execute("insert into rows(text) values (?)", (f"row {number}",))
            return ROWS

        return act

    return prepare


def install_packages(fork):
    """Packages made here, so that nothing is fetched: 20 of 10 files each."""
    packages = os.path.join(fork.home, "packages")
    shutil.rmtree(packages, ignore_errors=True)
    dependencies = []
    for number in range(20):
        directory = os.path.join(packages, f"package-{number}")
        os.makedirs(os.path.join(directory, "lib"))
        with open(os.path.join(directory, "package.json"), "w") as file:
            file.write(f'{{"name":"package-{number}","version":"1.0.0"}}')
        for part in range(9):
            with open(os.path.join(directory, "lib", f"part-{part}.js"), "w") as file:
                file.write("module.exports = 1\n" * 100)
        archive = os.path.join(packages, f"package-{number}-1.0.0.tgz")
        run("npm", "pack", "--silent", "--offline", "--pack-destination", packages, directory)
        dependencies.append(archive)
    where = fork.new_directory()
    with open(os.path.join(where, "package.json"), "w") as file:
        file.write('{"name":"app","version":"1.0.0"}')

    def act():
        cache = os.path.join(fork.home, "npm-cache")
        quietly = ("--silent", "--offline", "--no-audit", "--no-fund")
        run("npm", "install", *quietly, "--cache", cache, *dependencies, cwd=where)
        return sum(len(files) for _, _, files in os.walk(os.path.join(where, "node_modules")))

    return act


def commit_ten(fork):
    files = fork.known_files(10)
    run(*STATUS, cwd=fork.dir)
    run(*STATUS, cwd=fork.dir)
    for path in files:
        write(path, 100, os.O_APPEND)

    def act():
        run("sh", "-c", "git add -A && git commit -qm ten", cwd=fork.dir)
        return 1

    return act


ATTRIBUTES = "the kernel caches no extended attributes"
JOBS = [
    Job("find, first", "file", program(*FIND, forget=True), why="two listings a directory"),
    Job("find, again", "file", program(*FIND, before=[FIND, FIND])),
    Job("ls -lR, again", "file", program("ls", "-lR", before=[FIND, FIND]), why=ATTRIBUTES),
    Job("rg over everything, first", "file", program(*RG, forget=True), needs="rg", why="one READ a file"),
    Job("rg over everything, again", "file", program(*RG, before=[SEARCH, SEARCH]), needs="rg"),
    Job("git status, first", "file", program(*STATUS, forget=True), why="git stats every file of its index by name"),
    Job("git status, second", "run", program(*STATUS, before=[STATUS], count=one)),
    Job("git status, after one change", "run", after_one_change),
    Job("git add -A, git commit of 10 files", "run", commit_ten),
    Job("git checkout of an older commit", "changed file", switch),
    Job("git stash of 10 files", "run", stash_ten),
    Job("tar x", "file", extract),
    Job("cp -r", "file", copy("-r")),
    Job("cp -a", "file", copy("-a"), why=ATTRIBUTES),
    Job("rm -rf of own files", "file", remove),
    Job("rm -rf of base files nobody looked at", "file", remove_base),
    Job("cc -c of one file", "run", compile_c, needs="cc"),
    Job("cargo build, first", "run", cargo(), needs="cargo"),
    Job("cargo build, nothing to do", "run", cargo(built=True), needs="cargo"),
    Job("cargo build, one file changed", "run", cargo(built=True, touched=True), needs="cargo"),
    Job("SQLite insert, rollback journal", "row", insert("delete")),
    Job("SQLite insert, write-ahead log", "row", insert("wal")),
    Job("npm install, 20 packages", "file", install_packages, needs="npm"),
]
