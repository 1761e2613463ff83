"""What is timed. A step gets a workspace that is set up and gives seconds by what was measured.

"cold" and "first" mean that nothing of the workspace was in the kernel's memory nor in that of a serving process;
"second" follows at once; "warm" is the best of three after that.
"""

import json
import os
import shutil
import time
from dataclasses import dataclass
from typing import Callable

from .places import Fork
from .programs import Failure, drop_caches, run, timed
from .sources import npm

MIB = 1 << 20
BIG = 1024 * MIB


@dataclass(frozen=True)
class Step:
    name: str
    # Which of `Sources` it works on.
    repository: str
    # Takes the workspace and the sources.
    measure: Callable
    # Whether the workspace is there already; otherwise the step sets it up.
    set_up: bool = True
    needs: str = ""
    only_tine: bool = False


SEARCH = ("sh", "-c", "rg --threads 2 -c -uu --glob '!.git' never-in-any-file-1f2e3d . || true")
STATUS = ("git", "status", "--short")


def warm(*command, cwd):
    return min(timed(*command, cwd=cwd) for _ in range(3))


def new(workspace, _sources):
    started = time.perf_counter()
    workspace.set_up()
    os.listdir(workspace.dir)
    return {"new workspace": time.perf_counter() - started}


def total(workspace, _sources):
    if isinstance(workspace, Fork):
        workspace.ask("daemon", "stop")
    drop_caches()
    started = time.perf_counter()
    workspace.set_up()
    timed(*SEARCH, cwd=workspace.dir)
    return {"new workspace and rg over everything, cold": time.perf_counter() - started}


def find(workspace, _sources):
    command = ("find", workspace.dir, "-printf", "%s %T@\\n")
    workspace.forget()
    return {"find, cold": timed(*command), "find, warm": warm(*command, cwd="/")}


def status(workspace, _sources):
    workspace.forget()
    return {
        "git status, first": timed(*STATUS, cwd=workspace.dir),
        "git status, second": timed(*STATUS, cwd=workspace.dir),
        "git status, warm": warm(*STATUS, cwd=workspace.dir),
    }


def rg(workspace, _sources):
    workspace.forget()
    return {"rg, cold": timed(*SEARCH, cwd=workspace.dir), "rg, warm": warm(*SEARCH, cwd=workspace.dir)}


def second_fork(workspace, _sources):
    """What one fork read is there for the next."""
    workspace.forget()
    seconds = {"rg in a first fork, cold": timed(*SEARCH, cwd=workspace.dir)}
    other = workspace.place.workspace(workspace.repository, f"{workspace.name.removeprefix('fork-')}-second")
    other.set_up()
    try:
        seconds["rg in a second fork, first"] = timed(*SEARCH, cwd=other.dir)
    finally:
        other.take_away()
    return seconds


def sources_in(workspace):
    """Paths of source files."""
    listed = run("git", "ls-files", "-z", "*.rs", "*.c", "*.py", "*.md", cwd=workspace.dir).split("\0")
    return [path for path in listed if path and not path.startswith("docs/")]


def commit(workspace, _sources):
    """Ten files changed, looked at, and committed: in a fork by tine, then ten more there by git."""
    files = sources_in(workspace)
    run(*STATUS, cwd=workspace.dir)
    change(workspace, files[:10])
    show, names, record = workspace.commit("bench")
    seconds = {
        "status with 10 changes": timed(*show, cwd=workspace.dir),
        "names of 10 changes": timed(*names, cwd=workspace.dir),
        "commit of 10 files": timed(*record, cwd=workspace.dir),
    }
    change(workspace, files[10:20])
    by_git = ("sh", "-c", "git add -A && git commit -qm bench")
    seconds["git add -A and git commit of 10 files"] = timed(*by_git, cwd=workspace.dir)
    return seconds


def history(workspace, _sources):
    """What git reads of history, through the workspace's git directory."""
    run(*STATUS, cwd=workspace.dir)
    path = sources_in(workspace)[0]
    return {
        "git log --stat": warm("git", "log", "--stat", cwd=workspace.dir),
        "git blame": warm("git", "blame", path, cwd=workspace.dir),
        "git fsck": timed("git", "fsck", "--no-dangling", cwd=workspace.dir),
    }


def many_refs(workspace, sources):
    """A workspace, and a commit in it, in a repository with as many refs as `sources.MANY_REFS` says."""
    seconds = {"new workspace, 100,000 refs": new(workspace, sources)["new workspace"]}
    run(*STATUS, cwd=workspace.dir)
    seconds["git status, 100,000 refs"] = warm(*STATUS, cwd=workspace.dir)
    change(workspace, sources_in(workspace)[:10])
    seconds["git commit, 100,000 refs"] = timed("git", "commit", "-qam", "bench", cwd=workspace.dir)
    return seconds


def merge(workspace, _sources):
    """A branch that changed ten files, merged into one that changed ten others: in a fork by tine."""
    files = sources_in(workspace)
    record = ("sh", "-c", "git add -A && git commit -qm bench")
    side = f"side-{os.path.basename(workspace.dir)}"
    change(workspace, files[:10])
    run(*record, cwd=workspace.dir)
    run("git", "checkout", "--quiet", "-b", side, "HEAD~1", cwd=workspace.dir)
    change(workspace, files[10:20])
    run(*record, cwd=workspace.dir)
    run("git", "checkout", "--quiet", "-", cwd=workspace.dir)
    run(*STATUS, cwd=workspace.dir)
    seconds = {"merge of 10 files with 10": timed(*workspace.merge(side), cwd=workspace.dir)}
    left = run(*STATUS, cwd=workspace.dir)
    if left:
        raise Failure(f"the merge left {left}")
    run("git", "branch", "--quiet", "--delete", "--force", side, cwd=workspace.dir)
    return seconds


def update(workspace, _sources):
    """A commit and a change that is not committed, brought onto a branch that changed ten others; a commit made again; a patch."""
    files = sources_in(workspace)
    record = ("sh", "-c", "git add -A && git commit -qm bench")
    side = f"upstream-{os.path.basename(workspace.dir)}"
    here = run("git", "rev-parse", "HEAD", cwd=workspace.dir).strip()
    run("git", "checkout", "--quiet", "-b", side, cwd=workspace.dir)
    change(workspace, files[:10])
    run(*record, cwd=workspace.dir)
    change(workspace, files[20:30])
    run(*record, cwd=workspace.dir)
    run("git", "checkout", "--quiet", "-", cwd=workspace.dir)
    change(workspace, files[10:20])
    run(*record, cwd=workspace.dir)
    change(workspace, files[30:31])
    run(*STATUS, cwd=workspace.dir)
    seconds = {"rebase of a commit with 10 files and a change": timed(*workspace.rebase(f"{side}~1"), cwd=workspace.dir)}
    left = run(*STATUS, cwd=workspace.dir)
    if left != f" M {files[30]}\n":
        raise Failure(f"the update left {left!r}")
    seconds["cherry-pick of a commit with 10 files"] = timed(*workspace.pick(side), cwd=workspace.dir)
    patch = os.path.join(workspace.scratch("patch"), "patch")
    with open(patch, "w", encoding="utf-8") as file:
        file.write(run("git", "diff", "HEAD~1", "HEAD", cwd=workspace.dir))
    run("git", "reset", "--quiet", "--hard", "HEAD~1", cwd=workspace.dir)
    run(*STATUS, cwd=workspace.dir)
    seconds["patch of 10 files"] = timed(*workspace.apply(patch), cwd=workspace.dir)
    run("git", "reset", "--quiet", "--hard", here, cwd=workspace.dir)
    run("git", "branch", "--quiet", "--delete", "--force", side, cwd=workspace.dir)
    return seconds


def change(workspace, files):
    for path in files:
        with open(os.path.join(workspace.dir, path), "ab") as file:
            file.write(b"changed\n")


def small(workspace, sources):
    where = workspace.scratch("small")
    return {
        "create 10,000 files of 4 KiB": timed(sources.files, "create", "0", "10000", "1", "4096", cwd=where),
        "unlink them": timed(sources.files, "unlink", "0", "10000", "1", "0", cwd=where),
    }


def tar(workspace, sources):
    where = workspace.scratch("tar")
    seconds = {"tar x of 3,000 files": timed("tar", "xf", sources.archive(), cwd=where)}
    seconds["rm -rf of them"] = timed("rm", "-rf", where)
    return seconds


def npm_install(workspace, sources):
    where = os.path.join(workspace.dir, "npm")
    seconds = {"npm ci, 12,000 files": timed(*npm(sources.npm_cache()), cwd=where)}
    seconds["rm -rf node_modules"] = timed("rm", "-rf", os.path.join(where, "node_modules"))
    return seconds


def cargo_build(workspace, _sources):
    where = os.path.join(workspace.dir, "crate")
    command = ("cargo", "build", "--release", "--offline", "--locked", "--quiet")
    return {
        "cargo build": timed(*command, cwd=where),
        "cargo build, nothing to do": warm(*command, cwd=where),
    }


def make_build(workspace, _sources):
    where = os.path.join(workspace.dir, "c")
    return {
        "make -j2": timed("make", "-j2", "-s", cwd=where),
        "make -j2, nothing to do": warm("make", "-j2", "-s", cwd=where),
    }


def large(workspace, _sources):
    path = os.path.join(workspace.scratch("large"), "file")
    block = f"bs={MIB}"
    seconds = {"write 1 GiB": timed("dd", "if=/dev/zero", f"of={path}", block, f"count={BIG // MIB}")}
    read = ("dd", f"if={path}", "of=/dev/null", block)
    timed(*read)
    seconds["read 1 GiB, warm"] = warm(*read, cwd="/")
    for engine in ("psync", "mmap"):
        fio = ("fio", f"--name={engine}", f"--filename={path}", "--rw=randread", "--bs=4k", f"--ioengine={engine}")
        fio += (f"--size={256 * MIB}", "--invalidate=0", "--readonly", "--output-format=json", "--randseed=1")
        runs = [json.loads(run(*fio))["jobs"][0]["read"]["runtime"] for _ in range(2)]
        seconds[f"random 4 KiB reads of 256 MiB, {engine}, warm"] = min(runs) / 1000
    os.unlink(path)
    return seconds


STEPS = [
    Step("new", "tree", new, set_up=False),
    Step("total", "tree", total, set_up=False, needs="rg"),
    Step("find", "tree", find),
    Step("status", "tree", status),
    Step("rg", "tree", rg, needs="rg"),
    Step("second", "tree", second_fork, needs="rg", only_tine=True),
    Step("commit", "tree", commit),
    Step("history", "tree", history),
    Step("refs", "refs", many_refs, set_up=False),
    Step("merge", "tree", merge),
    Step("update", "tree", update),
    Step("small", "small", small),
    Step("tar", "small", tar),
    Step("large", "small", large, needs="fio"),
    Step("npm", "builds", npm_install, needs="npm"),
    Step("cargo", "builds", cargo_build, needs="cargo"),
    Step("make", "builds", make_build, needs="make"),
]


def unavailable(step):
    """Why a step cannot be done on this machine; nothing if it can."""
    return f"there is no {step.needs}" if step.needs and not shutil.which(step.needs) else None
