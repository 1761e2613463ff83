"""How costs grow: with what is in a fork, with the number of mounts, and in the daemon's memory."""

import time

from .programs import Failure, drop_caches, run, timed
from .steps import SEARCH

ENTRIES = [1_000, 10_000, 100_000, 1_000_000]
MOUNTS = [1, 10, 50, 200]
SAMPLE = 1_000
BYTES = 100


def one(sources, where, operation, first, step=1):
    """Microseconds for one operation, told over a thousand."""
    printed = run(sources.files, operation, str(first), str(SAMPLE), str(step), str(BYTES), cwd=where)
    return float(printed)


def sample(sources, where, total):
    """Beside `total` files there: what a create, an unlink, and a lookup of what the kernel has forgotten take."""
    create = one(sources, where, "create", total)
    unlink = one(sources, where, "unlink", total)
    drop_caches(2)
    return {"create": create, "lookup": one(sources, where, "stat", 0, max(1, total // SAMPLE)), "unlink": unlink}


def by_entries(sources, places, note, most, enough):
    """Costs at each number of files, in 1,000 a directory. `note` takes place, number and costs."""
    repository = sources.repository("small")
    for place in places:
        workspace = place.workspace(repository, "entries")
        place.warm_up(repository)
        workspace.set_up()
        try:
            where, there = workspace.scratch("entries"), 0
            for total in ENTRIES:
                if total > most or enough():
                    break
                run(sources.files, "create", str(there), str(total - there), "1", str(BYTES), cwd=where)
                there = total
                note(place.name, total, sample(sources, where, total))
        finally:
            workspace.take_away()


def by_mounts(sources, place, note, most, enough):
    """Costs in one fork, the time of a further `tine new`, and the daemon's memory, at each number of mounts."""
    repository = sources.repository("small")
    forks = []
    try:
        for total in MOUNTS:
            if total > most or enough():
                break
            while len(forks) < total:
                fork = place.workspace(repository, f"mount-{len(forks)}")
                started = time.perf_counter()
                fork.set_up()
                taken = time.perf_counter() - started
                forks.append(fork)
            where = forks[0].scratch(f"at-{total}")
            run(sources.files, "create", "0", str(SAMPLE), "1", str(BYTES), cwd=where)
            memory = settled_memory(forks[0])
            note(total, {**sample(sources, where, SAMPLE), "new_seconds": taken, "memory_bytes": memory})
    finally:
        for fork in forks:
            fork.take_away()


def settled_memory(fork):
    """The daemon's resident memory once it gives nothing back any more."""
    before, after = None, fork.figures()["memory_bytes"]
    for _ in range(20):
        if before is not None and after >= before:
            break
        time.sleep(1)
        before, after = after, fork.figures()["memory_bytes"]
    return after


def memory_of_one(sources, place):
    """Bytes of the daemon with one mount of which everything was listed and read: right after, and a little later."""
    repository = sources.repository("tree")
    fork = place.workspace(repository, "memory")
    fork.set_up()
    try:
        fork.forget()
        fresh = fork.figures()["memory_bytes"]
        timed("find", fork.dir, "-printf", "%s\\n")
        timed(*SEARCH, cwd=fork.dir)
        read = fork.figures()
        # Pages of mapped packs count as resident, and are the kernel's to take back.
        mapped = resident_bytes(read["pid"], "RssFile")
        return {
            "fresh": fresh,
            "walked_and_read": read["memory_bytes"],
            "of_it_mapped_files": mapped,
            "later": settled_memory(fork),
        }
    finally:
        fork.take_away()


def resident_bytes(pid, kind):
    with open(f"/proc/{pid}/status") as file:
        line = next(line for line in file if line.startswith(kind + ":"))
    return int(line.split()[1]) * 1024


def idle_mount(memory_by_mounts):
    """Bytes that a further mount takes which nobody uses."""
    numbers = sorted(memory_by_mounts)
    if len(numbers) < 2:
        raise Failure("one number of mounts says nothing of a further one")
    few, many = numbers[0], numbers[-1]
    return (memory_by_mounts[many] - memory_by_mounts[few]) / (many - few)
