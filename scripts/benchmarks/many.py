"""Many workspaces of one repository at once: what each takes to make, on the disk, and in the daemon's memory.

On the disk counts what grew in the git directory (the store is in it) and what stands in the workspaces' own
directories. What is mounted there does not: it is in the store.
"""

import os
import time

from .growth import settled_memory
from .places import Fork
from .programs import run, timed
from .steps import STATUS

CHANGED_BYTES = 4096


def many(sources, places, number, note, enough):
    """`note` takes a place's name and its figures."""
    repository = sources.repository("tree")
    for place in places:
        if not enough():
            note(place.name, in_place(repository, place, number))


def in_place(repository, place, number):
    place.warm_up(repository)
    made = []
    try:
        first = place.workspace(repository, "many-first")
        # The first one makes what all of a base share, and is not counted.
        first.set_up()
        made.append(first)
        os.sync()
        before = disk_bytes(first.main_dir)
        seconds = []
        for count in range(number):
            workspace = place.workspace(repository, f"many-{count}")
            started = time.perf_counter()
            workspace.set_up()
            os.listdir(workspace.dir)
            seconds.append(time.perf_counter() - started)
            made.append(workspace)
        counted = made[1:]
        figures = {"number": number, "new_seconds": seconds, "fresh": taken(before, counted)}
        figures["status_seconds"] = [timed(*STATUS, cwd=workspace.dir) for workspace in counted]
        for workspace in counted:
            with open(os.path.join(workspace.dir, "changed-here"), "wb") as file:
                file.write(os.urandom(CHANGED_BYTES))
        figures["used"] = taken(before, counted)
        return figures
    finally:
        for workspace in made:
            workspace.take_away()


def taken(before, workspaces):
    """What so many workspaces take: bytes on the disk, and of the daemon's memory where there is one."""
    os.sync()
    first = workspaces[0]
    grown = disk_bytes(first.main_dir) - before
    figures = {"disk_bytes": grown + sum(disk_bytes(workspace.dir) for workspace in workspaces)}
    if isinstance(first, Fork):
        figures["memory_bytes"] = settled_memory(first)
    return figures


def disk_bytes(directory):
    """What is allocated for it; nothing where another file system begins, as at a mount."""
    if os.path.ismount(directory):
        return 0
    return int(run("du", "--summarize", "--one-file-system", "--block-size=1", directory).split()[0])
