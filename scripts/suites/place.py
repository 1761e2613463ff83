"""Where suites run, how one program runs there, and what the cases came to."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from .programs import LOGS, ROOT, TINE, Failure


class Tally:
    """What the cases of one suite came to."""

    def __init__(self, suite):
        self.suite = suite
        self.passed = self.failed = self.skipped = 0

    def case(self, name, outcome, started, note=""):
        setattr(self, outcome, getattr(self, outcome) + 1)
        word = {"passed": "ok", "failed": "FAILED", "skipped": "SKIP"}[outcome]
        note = f" ({note})" if note else ""
        print(f"{self.suite} {name} ... {word}{note} {time.monotonic() - started:.1f}s", flush=True)

    def left_out(self, name, reasons):
        """Counts a case of `reasons` (name: why it is not run) as skipped; whether it is one."""
        if name in reasons:
            self.case(name, "skipped", time.monotonic(), reasons[name])
        return name in reasons

    def program(self, name, started, code, log, skipped=None, note=""):
        """Counts a case by its exit code. `skipped` says why it did not run, if it says so."""
        if skipped is not None:
            self.case(name, "skipped", started, skipped)
        elif code == 0:
            self.case(name, "passed", started, note)
        else:
            self.case(name, "failed", started, note)
            print(tail(log))

    def __str__(self):
        return f"{self.suite}: {self.passed} passed, {self.failed} failed, {self.skipped} skipped"


class Place:
    """The directory to run in, and how to end what hangs there."""

    def __init__(self, path, fork=None):
        self.path = path
        # None where this is no fork's mount.
        self.fork = fork

    def cut_off(self):
        """Fails all that waits for the mount. On other file systems nothing waits for ever."""
        if self.fork:
            self.fork.cut_off()

    def run(self, suite, name, command, limit_secs, cwd=None, environment=None):
        """Runs one program in a session of its own; its exit code (None: out of time) and its log."""
        log_path = os.path.join(LOGS, f"{suite}-{name.replace('/', '-')}.log")
        with open(log_path, "w+", errors="replace") as log:
            program = subprocess.Popen(
                command, cwd=cwd or self.path, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                start_new_session=True, env=os.environ | (environment or {}),
            )
            try:
                code = program.wait(limit_secs)
            except subprocess.TimeoutExpired:
                code = None
                log.write(f"\nout of time after {limit_secs} seconds\n")
            finally:
                # Also where this script itself is to end: the program would keep the mount busy.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(program.pid, signal.SIGKILL)
            if code is None:
                try:
                    program.wait(10)
                except subprocess.TimeoutExpired:
                    self.cut_off()
                    program.wait(10)
            log.seek(0)
            return code, log.read()

    @contextlib.contextmanager
    def scratch(self, name, uid=0, gid=0):
        """A directory of one case's own, gone afterwards."""
        path = os.path.join(self.path, name)
        os.mkdir(path)
        os.chmod(path, 0o755)
        os.chown(path, uid, gid)
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)


# Tools and logs are in the checkout, which others than its owner may be unable to enter.
OWNER = os.stat(ROOT)


def as_owner(command):
    """`command` as an ordinary user: the checkout's owner; root without its capabilities where it is root's."""
    return ["setpriv", f"--reuid={OWNER.st_uid}", f"--regid={OWNER.st_gid}", "--clear-groups", "--bounding-set=-all", *command]


def tail(log):
    lines = [line for line in log.splitlines() if line.strip()]
    return "".join(f"    {line}\n" for line in lines[-15:])


class Repository:
    """A repository for the suites alone, whose forks all users may enter."""

    def __init__(self, home, profile, transport):
        self.dir = os.path.join(home, "repo")
        self.profile = profile
        self.mounts = {}
        git = {f"GIT_{role}_{what}": "conformance" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        self.environment = {
            key: value for key, value in os.environ.items() if not key.startswith(("GIT_", "TINE_"))
        } | {"HOME": home, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"} | git
        self.run("git", "init", "--quiet", self.dir)
        self.run("git", "-C", self.dir, "commit", "--quiet", "--allow-empty", "--message", "Begin")
        self.run("git", "-C", self.dir, "config", "tine.transport", transport)

    def run(self, *command):
        answer = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=120, check=False,
            stdin=subprocess.DEVNULL,
        )
        if answer.returncode != 0:
            raise Failure(f"{' '.join(command)} failed:\n{answer.stderr}")
        return answer.stdout.rstrip("\n")

    def tine(self, *arguments):
        return self.run(TINE, "-C", self.dir, *arguments)

    def new(self, name):
        """The mount of a new fork."""
        mount = self.tine("new", name, "--allow-other", "--profile", self.profile)
        self.mounts[name] = mount
        return mount

    def delete(self, name):
        self.tine("delete", name, "--force")
        del self.mounts[name]

    def cut_off(self):
        for mount in self.mounts.values():
            with contextlib.suppress(OSError):
                connection = os.minor(os.stat(mount).st_dev)
                with open(f"/sys/fs/fuse/connections/{connection}/abort", "w") as abort:
                    abort.write("1")

    def end(self):
        try:
            for name in list(self.mounts):
                self.delete(name)
            self.tine("daemon", "stop")
        except (Failure, subprocess.TimeoutExpired) as error:
            print(f"The forks cannot be taken away, their mounts are cut off: {error}", file=sys.stderr)
            self.cut_off()
            for mount in self.mounts.values():
                subprocess.run(["umount", "--lazy", mount], check=False)


@contextlib.contextmanager
def forked(profile, transport):
    """A fork's mount that all users may enter."""
    home = tempfile.mkdtemp(prefix="tine-")
    os.chmod(home, 0o755)
    repository = Repository(home, profile, transport)
    try:
        yield Place(repository.new("fork"), repository)
    finally:
        repository.end()
        shutil.rmtree(home, ignore_errors=True)
