"""Running programs: for their output, for their time, and with nothing of the developer's configuration."""

import os
import shutil
import subprocess
import threading
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# No step may hang for ever on a mount.
LIMIT_SECS = 900


class Failure(Exception):
    """Something could not be measured."""


def run(*command, cwd=None, env=None, text=""):
    """Runs a program that reads `text` to its end; what it printed."""
    try:
        answer = subprocess.run(
            command,
            cwd=cwd,
            env=env and {**os.environ, **env},
            capture_output=True,
            text=True,
            errors="replace",
            input=text,
            check=False,
            timeout=LIMIT_SECS,
        )
    except (subprocess.TimeoutExpired, OSError) as error:
        raise Failure(str(error)) from error
    if answer.returncode != 0:
        said = (answer.stderr or answer.stdout).strip().splitlines()[-5:]
        raise Failure(f"{os.path.basename(command[0])} ended with {answer.returncode}: {' / '.join(said)}")
    return answer.stdout


def timed(*command, cwd=None, env=None):
    """Seconds that a program takes from its start to its end."""
    started = time.perf_counter()
    try:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=env and {**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    except OSError as error:
        raise Failure(str(error)) from error
    # Waiting with a time limit would look every 50 ms whether the program has ended.
    limit = threading.Timer(LIMIT_SECS, process.kill)
    limit.start()
    code = process.wait()
    taken = time.perf_counter() - started
    limit.cancel()
    if code != 0:
        raise Failure(f"{os.path.basename(command[0])} ended with {code}")
    return taken


def git(*arguments, cwd):
    return run("git", *arguments, cwd=cwd)


def plain_environment():
    """Nothing of the developer's git configuration counts, and commits have an author."""
    os.environ.update(GIT_CONFIG_GLOBAL="/dev/null", GIT_CONFIG_SYSTEM="/dev/null")
    for role in ("AUTHOR", "COMMITTER"):
        os.environ.update({f"GIT_{role}_NAME": "bench", f"GIT_{role}_EMAIL": "bench@example.com"})


def build_tine(release):
    """The program of this checkout, built; its path."""
    target = os.path.join(ROOT, "target")
    command = ["cargo", "build", "--locked", "--quiet", "--target-dir", target]
    run(*command, *(["--release"] if release else []), cwd=ROOT)
    return os.path.join(target, "release" if release else "debug", "tine")


def generate(path, files, commits):
    """A repository that is the same each time."""
    run(os.path.join(ROOT, "scripts", "generate-repo"), path, "--files", str(files), "--commits", str(commits))


def install(packages):
    """Installs Debian's packages for those programs that are missing, and says so."""
    missing = sorted({package for program, package in packages.items() if not shutil.which(program)})
    if missing:
        print(f"Installing {' '.join(missing)}", file=sys.stderr)
        run("apt-get", "update", "-qq")
        run("apt-get", "install", "-y", "--no-install-recommends", *missing)


def drop_caches(what=3):
    """Makes the kernel forget contents (1), names and attributes (2), or both (3)."""
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w") as file:
        file.write(str(what))
