"""Where a workspace is made, used and taken away.

A place differs from another only by what stands in `PLACES`: for tine the arguments of `tine new` and settings in git's
configuration. Settings are a repository's, so a kind of tine that has some works on a clone of its own.
"""

import json
import os
import shutil

from .programs import Failure, drop_caches, git, run


class Repository:
    """A repository that workspaces are made of, with the checkout that overlays lie on."""

    def __init__(self, directory, tine):
        self.dir = directory
        self.tine = tine
        self.checkout = directory + ".lower"
        git("worktree", "add", "--quiet", "--detach", self.checkout, cwd=directory)
        git("status", cwd=self.checkout)
        self.clones = {}

    def configured(self, settings):
        """The directory of this repository, or of a clone of it, with these settings."""
        if not settings:
            return self.dir
        key = tuple(sorted(settings.items()))
        if key not in self.clones:
            clone = f"{self.dir}.clone-{len(self.clones)}"
            git("clone", "--quiet", "--no-hardlinks", self.dir, clone, cwd="/")
            for name, value in settings.items():
                git("config", name, value, cwd=clone)
            self.clones[key] = clone
        return self.clones[key]

    def stop_daemons(self):
        for directory in (self.dir, *self.clones.values()):
            run(self.tine, "-C", directory, "daemon", "stop", "--force")


class Place:
    """A kind of workspace."""

    def __init__(self, name):
        self.name = name

    def missing(self, _tine):
        """Why there is no such place on this machine; nothing if there is."""
        return None

    def warm_up(self, repository):
        """What is there already where somebody works with it."""

    def workspace(self, repository, number):
        raise NotImplementedError


class Workspace:
    """One workspace, while it is measured."""

    def __init__(self, repository, place, number):
        self.repository = repository
        self.place = place
        # The checkout that it belongs to.
        self.main_dir = repository.dir
        self.dir = f"{repository.dir}.{place.name.translate(str.maketrans(' ', '-', '()'))}-{number}"

    def set_up(self):
        raise NotImplementedError

    def take_away(self):
        raise NotImplementedError

    def check(self):
        """Fails where it is not what its place says."""

    def forget(self):
        """Leaves nothing of it in the kernel's memory, nor in that of a serving process."""
        drop_caches()

    def commit(self, message):
        """The commands that show what changed, name it, and commit it, as one would there."""
        status = ("git", "status", "--short")
        return status, status, ("sh", "-c", f"git add -A && git commit -qm {message}")

    def merge(self, branch):
        """The command that merges the branch, as one would there."""
        return ("git", "merge", "--quiet", "--no-edit", branch)

    def rebase(self, branch):
        """The command that makes the work again on the branch, with what is not committed on top."""
        return ("git", "rebase", "--quiet", "--autostash", branch)

    def pick(self, commit):
        return ("git", "cherry-pick", commit)

    def apply(self, patch):
        return ("git", "apply", patch)

    def scratch(self, name):
        """A new directory that git ignores: what is in it need not be kept when the workspace goes."""
        path = os.path.join(self.dir, "target", name)
        os.makedirs(path)
        return path


class Ext4(Place):
    """A linked worktree on the host's file system."""

    def workspace(self, repository, number):
        return Worktree(repository, self, number)


class Worktree(Workspace):
    def set_up(self):
        git("worktree", "add", "--quiet", "--detach", self.dir, cwd=self.repository.dir)

    def take_away(self):
        git("worktree", "remove", "--force", self.dir, cwd=self.repository.dir)


class Overlay(Place):
    """A union of a checkout and a directory for what is written."""

    def __init__(self, name, mount):
        super().__init__(name)
        self.mount = mount

    def workspace(self, repository, number):
        return Union(repository, self, number)


class Union(Workspace):
    def set_up(self):
        for part in ("upper", "work"):
            os.makedirs(os.path.join(self.dir + ".parts", part))
        os.makedirs(self.dir)
        self.mount()

    def mount(self):
        parts = self.dir + ".parts"
        options = f"lowerdir={self.repository.checkout},upperdir={parts}/upper,workdir={parts}/work"
        run(*self.place.mount, "-o", options, self.dir)

    def take_away(self):
        run("umount", self.dir)
        os.rmdir(self.dir)
        shutil.rmtree(self.dir + ".parts")

    def forget(self):
        run("umount", self.dir)
        drop_caches()
        self.mount()


class Tine(Place):
    """A fork."""

    def __init__(self, name, new=(), settings=None, transport=None, missing=lambda _tine: None):
        super().__init__(name)
        self.new = new
        self.settings = settings or {}
        self.transport = transport
        self.missing = missing

    def warm_up(self, repository):
        run(repository.tine, "-C", repository.configured(self.settings), "daemon", "start")

    def workspace(self, repository, number):
        return Fork(repository, self, number)


class Fork(Workspace):
    def __init__(self, repository, place, number):
        super().__init__(repository, place, number)
        self.name = f"fork-{number}"
        self.main_dir = repository.configured(place.settings)

    def ask(self, *arguments):
        return run(self.repository.tine, "-C", self.main_dir, *arguments)

    def set_up(self):
        self.dir = self.ask("new", self.name, *self.place.new).strip()

    def take_away(self):
        self.ask("delete", self.name, "--force")

    def forget(self):
        self.ask("daemon", "stop")
        drop_caches()
        # A daemon that starts mounts what was mounted; this waits for it.
        self.ask("mount", self.name)

    def check(self):
        wanted = self.place.transport
        for mount in self.figures()["mounted"]:
            if wanted and mount["fork"] == self.name and mount.get("transport") != wanted:
                raise Failure(f"the mount does not use {wanted}")

    def figures(self):
        return json.loads(self.ask("daemon", "status", "--json"))

    def commit(self, message):
        tine = (self.repository.tine, "-C", self.main_dir)
        return (
            (*tine, "status", self.name),
            (*tine, "diff", self.name, "--name-only"),
            (*tine, "commit", self.name, "-m", message),
        )

    def merge(self, branch):
        return (self.repository.tine, "-C", self.main_dir, "merge", branch, "--into", self.name)

    def rebase(self, branch):
        return (self.repository.tine, "-C", self.main_dir, "update", self.name, "--rebase", "--from", branch)

    def pick(self, commit):
        return (self.repository.tine, "-C", self.main_dir, "cherry-pick", self.name, commit)

    def apply(self, patch):
        return (self.repository.tine, "-C", self.main_dir, "apply", self.name, patch)


def without_rings(_tine):
    try:
        with open("/sys/module/fuse/parameters/enable_uring") as file:
            return None if file.read().strip() == "Y" else "the kernel's fuse.enable_uring is off"
    except OSError:
        return "the kernel has no FUSE over io_uring"


def without_profiles(tine):
    return None if "--profile" in run(tine, "new", "--help") else "this tine has no profiles"


PLACES = [
    Ext4("ext4"),
    Overlay("overlayfs", ("mount", "-t", "overlay", "overlay")),
    Overlay("fuse-overlayfs", ("fuse-overlayfs",)),
    Tine("tine", settings={"tine.transport": "device"}, transport="device"),
    Tine("tine (linked)", new=("--git", "linked"), settings={"tine.transport": "device"}, transport="device"),
    Tine("tine (ring)", settings={"tine.transport": "ring"}, transport="ring", missing=without_rings),
    Tine("tine (large-files)", new=("--profile", "large-files"), missing=without_profiles),
]
