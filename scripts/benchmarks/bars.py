"""What is asked of tine: ratios to what else gives a workspace, and how much they may be."""

import statistics
from dataclasses import dataclass

MIB = 1 << 20
TINE = "tine"
MANY = 50_000


@dataclass(frozen=True)
class Bar:
    """One ratio, of medians."""

    measure: str
    limit: float
    # In which place it is compared with, and with what if it is not the same.
    to: str = "ext4"
    to_measure: str = ""
    # Where more is hoped for.
    stretch: float = 0
    by: str = TINE
    # How many files the repository must have for it to mean anything.
    least_files: int = 0

    def name(self):
        suffix = self.by.removeprefix(TINE)
        if self.to_measure and self.to == self.by:
            return f"{self.measure}{suffix} : {self.to_measure}"
        return f"{self.measure}{suffix} : {self.to_measure + ', ' if self.to_measure else ''}{self.to}"

    def judge(self, seconds):
        """Ratios of medians and of minima, and whether the bar is met; nothing where it was not measured."""
        ours = seconds.get(self.measure, {}).get(self.by)
        theirs = seconds.get(self.to_measure or self.measure, {}).get(self.to)
        if not ours or not theirs:
            return None
        ratio = statistics.median(ours) / statistics.median(theirs)
        return {
            "name": self.name(),
            "ratio": ratio,
            "of_minima": min(ours) / min(theirs),
            "limit": self.limit,
            "stretch": self.stretch,
            "met": ratio <= self.limit,
        }


LARGE_FILES = "tine (large-files)"
BARS = [
    Bar("new workspace", 0.01, least_files=MANY),
    Bar("new workspace and rg over everything, cold", 0.5),
    Bar("git status, second", 0.5, least_files=MANY),
    Bar("find, warm", 1.0),
    Bar("rg, warm", 1.25),
    Bar("rg, warm", 1.0, to="overlayfs"),
    Bar("rg in a second fork, first", 0.7, to=TINE, to_measure="rg in a first fork, cold"),
    Bar("commit of 10 files", 0.1, least_files=MANY),
    Bar("status with 10 changes", 0.1, least_files=MANY),
    Bar("names of 10 changes", 0.1, least_files=MANY),
    Bar("merge of 10 files with 10", 1.0, least_files=MANY),
    Bar("create 10,000 files of 4 KiB", 4, stretch=2.5),
    Bar("tar x of 3,000 files", 4, stretch=2.5),
    Bar("rm -rf of them", 4, stretch=2.5),
    Bar("npm ci, 12,000 files", 4, stretch=2.5),
    Bar("cargo build", 1.10),
    Bar("make -j2", 1.10),
    Bar("write 1 GiB", 4),
    Bar("write 1 GiB", 1.2, by=LARGE_FILES),
    Bar("read 1 GiB, warm", 3),
    Bar("read 1 GiB, warm", 1.1, by=LARGE_FILES),
    Bar("random 4 KiB reads of 256 MiB, psync, warm", 1.25),
    Bar("random 4 KiB reads of 256 MiB, mmap, warm", 1.25),
]
# Bytes: of a daemon with one mount walked and read, and of a further idle mount.
WALKED_LIMIT = 60 * MIB
IDLE_LIMIT = 1 * MIB


def judged(figures):
    files = figures["repository"]["files"]
    verdicts = (bar.judge(figures["seconds"]) for bar in BARS if files >= bar.least_files)
    return [verdict for verdict in verdicts if verdict]
