"""What the figures were made on, without saying whose it is."""

import os
import platform
import re
import shutil
import subprocess

PROGRAMS = {
    "git": ("git", "--version"),
    "rg": ("rg", "--version"),
    "tar": ("tar", "--version"),
    "cargo": ("cargo", "--version"),
    "cc": ("cc", "--version"),
    "npm": ("npm", "--version"),
    "fio": ("fio", "--version"),
    "fuse-overlayfs": ("fuse-overlayfs", "--version"),
}


def describe(directory, tine):
    """Processor, memory, kernel, the file system that holds `directory`, versions of programs."""
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)),
        "virtualisation": said("systemd-detect-virt") or "unknown",
        "kernel": re.match(r"[\d.]+", platform.release()).group(),
        "file_system": said("findmnt", "--noheadings", "--output", "FSTYPE", "--target", directory),
        "versions": {"tine": said(tine, "--version"), **{name: said(*command) for name, command in PROGRAMS.items()}},
    }


def processor():
    with open("/proc/cpuinfo") as file:
        found = re.search(r"^model name\s*:\s*(.+)$", file.read(), re.MULTILINE)
    return found.group(1) if found else platform.machine()


def said(*command):
    """The line in which a program tells its version, or the first that it prints; nothing where there is none."""
    if not shutil.which(command[0]):
        return None
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    lines = answer.stdout.strip().splitlines()
    name = os.path.basename(command[0])
    return next((line for line in lines if line.startswith(name)), lines[0] if lines else None)
