"""What the steps work on: repositories that are the same each time, an archive, packages, and a small C program.

Whatever has to be fetched is fetched once, by cargo and npm, of versions that lock files name, and stays in
target/bench.
"""

import hashlib
import os
import shutil

from .places import Repository
from .programs import ROOT, Failure, generate, git, run

KEPT = os.path.join(ROOT, "target", "bench")
HERE = os.path.dirname(os.path.abspath(__file__))
GENERATED = {"small": (3_000, 50), "large": (60_000, 100)}
# Repository with many refs: files, commits, and refs.
MANY_REFS = (3_000, 50, 100_000)
BUILDS = os.path.join(HERE, "builds")
IGNORED = "target/\nnode_modules/\n"


class Sources:
    """Repositories and files, each made when it is first asked for."""

    def __init__(self, home, tine, tree):
        self.home = home
        self.tine = tine
        self.tree = tree
        self.repositories = {}
        self.files = compile_files_program()

    def repository(self, name):
        """`tree` (what the user chose), `small`, `refs`, `builds`"""
        if name not in self.repositories:
            directory = os.path.join(self.home, name)
            self.make(self.tree if name == "tree" else name, directory)
            self.repositories[name] = Repository(directory, self.tine)
        return self.repositories[name]

    def make(self, name, directory):
        if name in GENERATED:
            generate(directory, *GENERATED[name])
        elif name == "refs":
            files, commits, refs = MANY_REFS
            generate(directory, files, commits)
            add_refs(directory, refs)
        elif name == "builds":
            git("clone", "--quiet", "--no-hardlinks", prepared_builds(), directory, cwd="/")
        else:
            source = ROOT if name == "own" else os.path.abspath(name)
            git("clone", "--quiet", "--no-hardlinks", source, directory, cwd="/")

    def archive(self):
        """3,000 files as a tar, without the one whose name is too long for fuse-overlayfs."""
        path = os.path.join(self.home, "files.tar")
        if not os.path.exists(path):
            small = self.repository("small").dir
            git("archive", "--output", path, "HEAD", "--", ".", ":!docs/nnn*", cwd=small)
        return path

    def npm_cache(self):
        return os.path.join(KEPT, "npm-cache")

    def stop_daemons(self):
        for repository in self.repositories.values():
            repository.stop_daemons()


def add_refs(directory, number):
    """Adds packed refs, on the commits in turn."""
    commits = git("rev-list", "HEAD", cwd=directory).split()
    lines = [f"create refs/remotes/origin/topic-{one:06} {commits[one % len(commits)]}\n" for one in range(number)]
    run("git", "update-ref", "--stdin", cwd=directory, text="".join(lines))
    git("pack-refs", "--all", cwd=directory)


def prepared_builds():
    """A repository with a crate and its dependencies, zstd's sources, and a list of npm packages; those are cached."""
    directory = os.path.join(KEPT, f"builds-{fingerprint(BUILDS)}")
    finished = os.path.join(directory, ".git", "finished")
    if os.path.exists(finished):
        return directory
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(BUILDS, directory)
    for part in ("crate", "c"):
        where = os.path.join(directory, part)
        settings = run("cargo", "vendor", "--quiet", "--locked", "vendor", cwd=where)
        os.makedirs(os.path.join(where, ".cargo"))
        with open(os.path.join(where, ".cargo", "config.toml"), "w") as file:
            file.write(settings)
    if shutil.which("npm"):
        where = os.path.join(directory, "npm")
        run(*npm(os.path.join(KEPT, "npm-cache"), offline=False), cwd=where)
        shutil.rmtree(os.path.join(where, "node_modules"))
    with open(os.path.join(directory, ".gitignore"), "w") as file:
        file.write(IGNORED)
    git("init", "--quiet", "-b", "main", cwd=directory)
    # Vendored sources come with ignore rules of their own.
    git("add", "--all", "--force", cwd=directory)
    git("commit", "--quiet", "--message", "Sources", cwd=directory)
    with open(finished, "w"):
        pass
    return directory


def fingerprint(directory):
    """Another for other files: what was prepared from older ones is not used."""
    digest = hashlib.sha256()
    for where, _, names in sorted(os.walk(directory)):
        for name in sorted(names):
            with open(os.path.join(where, name), "rb") as file:
                digest.update(name.encode() + b"\0" + file.read())
    return digest.hexdigest()[:12]


def npm(cache, offline=True):
    command = ["npm", "ci", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--cache", cache]
    return command + (["--offline"] if offline else [])


def compile_files_program():
    program = os.path.join(KEPT, "files")
    os.makedirs(KEPT, exist_ok=True)
    run("cc", "-O2", "-o", program, os.path.join(HERE, "files.c"))
    return program


def count_files(directory):
    found = git("ls-files", "-z", cwd=directory).count("\0")
    if not found:
        raise Failure(f"{directory} has no files")
    return found
