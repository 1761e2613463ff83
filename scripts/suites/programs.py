"""Where tools and logs are, and how what a suite needs is installed or built."""

import glob
import os
import re
import shutil
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TOOLS = os.path.join(ROOT, "target", "conformance")
LOGS = os.path.join(TOOLS, "logs")
TINE = os.path.join(ROOT, "target", "debug", "tine")
DEBIAN_SOURCES = "/etc/apt/sources.list.d/debian.sources"
DEBIAN_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


class Failure(Exception):
    """The suites cannot be run."""


class Unavailable(Exception):
    """One suite cannot be run here; the others can."""


def tool(name):
    return os.path.join(TOOLS, "bin", name)


def as_root(command):
    return command if os.geteuid() == 0 else ["sudo", "-n", *command]


def install_packages(packages):
    """Installs the Debian packages of `packages` (pattern of a file, or program: package) whose file or program is missing."""
    missing = sorted({
        package for what, package in packages.items()
        if not (glob.glob(what) if what.startswith("/") else shutil.which(what))
    })
    if not missing:
        return
    command = as_root(["apt-get", "install", "-y", "--no-install-recommends", *missing])
    print(f"The suites need {' '.join(missing)}; installing: {' '.join(command)}", flush=True)
    try:
        subprocess.run(as_root(["apt-get", "update", "-qq"]), check=True)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Unavailable(f"{' '.join(missing)} cannot be installed: {error}") from error


def install_crate(name, version):
    if os.path.exists(tool(name)):
        answer = subprocess.run([tool(name), "--version"], capture_output=True, text=True, check=False)
        if answer.stdout.split() == [name, version]:
            return
    print(f"Building {name} {version} into {TOOLS}", flush=True)
    command = ["cargo", "install", "--quiet", "--locked", "--force", "--root", TOOLS, "--version", version, name]
    subprocess.run(command, check=True)


def debian_source(package):
    """The unpacked source of `package` as Debian's unstable release has it: the newest version, tests included."""
    place = os.path.join(TOOLS, "sources", package)
    unpacked = source_dir(place, package)
    if unpacked:
        return unpacked
    if not (shutil.which("apt-get") and os.path.exists(DEBIAN_KEYRING) and os.path.exists(DEBIAN_SOURCES)):
        raise Unavailable(f"Debian's source package {package} can be had on Debian only: name a directory with --source")
    install_packages({"dpkg-source": "dpkg-dev", "make": "make", "cc": "gcc"})
    os.makedirs(place, exist_ok=True)
    parts = os.path.join(place, "parts")
    lists = os.path.join(place, "lists")
    os.makedirs(parts, exist_ok=True)
    os.makedirs(os.path.join(lists, "partial"), exist_ok=True)
    with open(DEBIAN_SOURCES) as file:
        mirror = re.search(r"^URIs:\s*(\S+)", file.read(), re.MULTILINE).group(1)
    with open(os.path.join(parts, "unstable.sources"), "w") as out:
        out.write(f"Types: deb-src\nURIs: {mirror}\nSuites: sid\nComponents: main\nSigned-By: {DEBIAN_KEYRING}\n")
    options = ["-o", "Dir::Etc::sourcelist=/dev/null", "-o", f"Dir::Etc::sourceparts={parts}"]
    options += ["-o", f"Dir::State::lists={lists}", "-o", "APT::Sandbox::User=root"]
    print(f"Fetching the source package {package} into {place}", flush=True)
    for command in (["update"], ["source", "--download-only", package]):
        answer = subprocess.run(
            ["apt-get", "-qq", *options, *command], cwd=place, capture_output=True, text=True, check=False
        )
        if answer.returncode != 0:
            raise Unavailable(f"the source package {package} cannot be fetched:\n{answer.stderr}")
    descriptions = [name for name in os.listdir(place) if name.endswith(".dsc")]
    # Debian's patches are for Debian; no signature is asked for what apt has verified.
    unpack = ["dpkg-source", "--no-check", "--skip-patches", "--extract", *descriptions]
    subprocess.run(unpack, cwd=place, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return source_dir(place, package)


def source_dir(place, package):
    if not os.path.isdir(place):
        return None
    found = [name for name in os.listdir(place) if name.startswith(f"{package}-") and os.path.isdir(os.path.join(place, name))]
    return os.path.join(place, found[0]) if found else None


def build(source, name, commands):
    """Builds a copy of the directory `source` with `commands`, once; the copy."""
    if not os.path.isdir(source):
        raise Failure(f"{source} is not a directory")
    origin = os.path.realpath(source)
    place = os.path.join(TOOLS, "built", name)
    mark = os.path.join(TOOLS, "built", f"{name}.source")
    if os.path.exists(mark):
        with open(mark) as file:
            if file.read() == origin:
                return place
        os.remove(mark)
    shutil.rmtree(place, ignore_errors=True)
    print(f"Building {name} in {place}", flush=True)
    shutil.copytree(source, place, symlinks=True, ignore=shutil.ignore_patterns(".git"))
    log_path = os.path.join(LOGS, f"build-{name}.log")
    with open(log_path, "w") as log:
        for command in commands:
            answer = subprocess.run(command, cwd=place, stdout=log, stderr=subprocess.STDOUT, check=False)
            if answer.returncode != 0:
                raise Unavailable(f"{name} cannot be built: {' '.join(command)} failed, see {log_path}")
    with open(mark, "w") as out:
        out.write(origin)
    return place
