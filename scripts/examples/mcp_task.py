"""The task of scripts/examples/mcp-task: TINE MODE."""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.shared.exceptions import MCPError

CALC = """def add(a, b):
    return a - b


def double(a):
    return add(a, a)
"""
TEST = """import calc

assert calc.add(2, 3) == 5, calc.add(2, 3)
assert calc.double(4) == 8
print("all is well")
"""


def say(what):
    print(f"== {what}", flush=True)


class Repository:
    """The repository, seen from outside."""

    def __init__(self, place):
        self.dir = place / "repo"
        self.dir.mkdir()
        # Who commits is said by the repository, not by whoever runs this.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "TINE_"))}
        self.env = dict(inherited, GIT_CONFIG_GLOBAL="/dev/null", GIT_CONFIG_SYSTEM="/dev/null", HOME=str(place))
        self.git("init", "-q", "-b", "main")
        self.git("config", "user.name", "Ada")
        self.git("config", "user.email", "ada@example.org")
        (self.dir / "calc.py").write_text(CALC)
        (self.dir / "test_calc.py").write_text(TEST)
        self.git("add", "-A")
        self.git("commit", "-qm", "Calculate")

    def git(self, *args, dir=None):
        done = subprocess.run(["git", *args], cwd=dir or self.dir, env=self.env, check=True, capture_output=True, text=True)
        return done.stdout.rstrip("\n")


class Agent:
    """The client. Every structured answer is checked against the tool's schema by the SDK."""

    def __init__(self, client):
        self.client = client

    async def ask(self, name, /, **arguments):
        result = await self.client.call_tool(name, arguments)
        assert not result.is_error, (name, arguments, result.content[0].text)
        assert result.content[0].text, name
        return result.structured_content

    async def refused(self, code, name, /, **arguments):
        result = await self.client.call_tool(name, arguments)
        assert result.is_error, (name, arguments, result)
        error = result.structured_content["error"]
        assert error["code"] == code, error
        assert error["message"] in result.content[0].text
        return error


async def task(client, repo):
    agent = Agent(client)

    say("tools and resources are listed")
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert {"fork", "read_file", "edit_file", "run", "snapshot", "restore", "commit", "merge"} <= tools.keys()
    assert tools["read_file"].annotations.read_only_hint and tools["delete_file"].annotations.destructive_hint
    templates = (await client.list_resource_templates()).resource_templates
    assert "tine://file/{+path}" in [template.uri_template for template in templates]

    say("nothing is done without a fork")
    assert "fork" not in await agent.ask("context")
    await agent.refused("not-in-fork", "write_file", path="calc.py", content="")

    say("a new fork")
    fork = await agent.ask("fork", name="fix-add")
    mount = Path(fork["mount_dir"])
    assert (mount / "calc.py").read_text() == CALC
    assert fork["from_branch"] == "main" and fork["branch"] == "tine/fix-add"

    say("it fails its tests")
    ran = await agent.ask("run", command="python3 -B test_calc.py")
    assert ran["exit_code"] == 1 and "AssertionError: -1" in ran["stderr"], ran

    say("reading, finding, editing")
    read = await agent.ask("read_file", path="calc.py")
    assert read["text"] == CALC and read["total_lines"] == 6
    found = await agent.ask("search", pattern=r"return a - b", globs=["*.py"])
    assert [(line["path"], line["line"]) for line in found["lines"]] == [("calc.py", 2)]
    await agent.refused("edit-not-found", "edit_file", path="calc.py", edits=[{"old": "a * b", "new": "a + b"}])
    ambiguous = [{"old": "return", "new": "yield"}]
    await agent.refused("edit-ambiguous", "edit_file", path="calc.py", edits=ambiguous)
    await agent.ask("edit_file", path="calc.py", edits=[{"old": "a - b", "new": "a + b"}])
    fixed = CALC.replace("a - b", "a + b")
    assert (mount / "calc.py").read_text() == fixed, "the mount shows it at once"
    assert (repo.dir / "calc.py").read_text() == CALC, "the main checkout does not"
    ran = await agent.ask("run", command="python3 -B test_calc.py")
    assert ran["exit_code"] == 0 and ran["stdout"] == "all is well\n", ran

    say("a snapshot, something broken, and back")
    await agent.ask("snapshot", name="works", message="all tests pass")
    await agent.ask("write_file", path="calc.py", content="oops\n")
    await agent.ask("delete_file", path="test_calc.py")
    ran = await agent.ask("run", command="rm -rf *; ls")
    assert ran["stdout"] == "" and not (mount / "calc.py").exists()
    restored = await agent.ask("restore", to="works")
    assert restored["before"], restored
    assert (mount / "calc.py").read_text() == fixed and (mount / "test_calc.py").read_text() == TEST

    say("undo, and redo")
    await agent.ask("write_file", path="notes/todo.md", content="more\n")
    await agent.ask("undo")
    assert not (mount / "notes").exists()
    await agent.ask("redo")
    assert (mount / "notes/todo.md").read_text() == "more\n"
    await agent.ask("undo")

    say("status, diff and resources agree with git")
    status = await agent.ask("status")
    assert status["changes"]["paths"] == [{"path": "calc.py", "kind": "modified"}], status
    assert repo.git("status", "--porcelain", dir=mount) == " M calc.py"
    diff = await agent.ask("diff")
    assert diff["diff"].rstrip("\n") == repo.git("diff", dir=mount)
    listed = [resource.uri for resource in (await client.list_resources()).resources]
    assert "tine://changeset" in listed and "tine://file/calc.py" in listed, listed
    read = await client.read_resource("tine://file/calc.py")
    assert read.contents[0].text == fixed
    read = await client.read_resource("tine://changeset")
    assert json.loads(read.contents[0].text)["changes"]["total"] == 1
    try:
        await client.read_resource("tine://file/nowhere")
        raise AssertionError("it is not there")
    except MCPError as error:
        assert error.error.data["error"]["code"] == "no-such-path", error.error

    say("a commit")
    committed = await agent.ask("commit", message="Add, and do not subtract")
    assert repo.git("rev-parse", "tine/fix-add") == committed["commit"]
    said = repo.git("log", "-1", "--format=%s, %an", "tine/fix-add")
    assert said == "Add, and do not subtract, Ada", said
    assert repo.git("status", "--porcelain", dir=mount) == ""

    say("a merge without conflicts")
    would = await agent.ask("merge", dry_run=True)
    assert would["status"] == "merged" and would["dry_run"]
    assert repo.git("rev-parse", "main") == committed["parent"], "a dry run changes nothing"
    merged = await agent.ask("merge")
    assert merged["status"] == "merged" and merged["target"] == "main" and merged["conflicts"] == []
    assert repo.git("rev-parse", "main") == committed["commit"]
    assert (repo.dir / "calc.py").read_text() == fixed, "the main checkout follows"
    assert (await agent.ask("merge"))["status"] == "nothing-to-merge"

    say("a merge with a conflict")
    await agent.ask("edit_file", path="calc.py", edits=[{"old": "return a + b", "new": "return int(a) + int(b)"}])
    await agent.ask("commit", message="Add integers")
    theirs = fixed.replace("return a + b", "return b + a")
    (repo.dir / "calc.py").write_text(theirs)
    repo.git("commit", "-qam", "Add the other way round")
    before = repo.git("rev-parse", "main")
    merged = await agent.ask("merge", message="Merge the integers")
    assert merged["status"] == "conflicts", merged
    [conflict] = merged["conflicts"]
    assert conflict["path"] == "calc.py" and conflict["kind"] == "both_modified"
    assert conflict["ours"][0]["text"] == theirs
    [hunk] = conflict["hunks"]
    assert "b + a" in hunk["ours"] and "int(a)" in hunk["theirs"], hunk
    assert repo.git("rev-parse", "main") == before and repo.git("status", "--porcelain") == ""

    say("the conflict is resolved")
    review = merged["review"]
    await agent.refused("review-state", "commit_review", review=review)
    resolved = fixed.replace("return a + b", "return int(b) + int(a)")
    shown = await agent.ask(
        "resolve_conflict", review=review, path="calc.py", how="content", content=resolved, reason="both are meant"
    )
    assert shown["reviews"][0]["open"] == 0
    merged = await agent.ask("commit_review", review=review)
    assert merged["status"] == "merged" and repo.git("rev-parse", "main") == merged["after"]
    assert repo.git("rev-list", "--parents", "-1", "main").split()[1] == before
    assert (repo.dir / "calc.py").read_text() == resolved
    message = repo.git("log", "-1", "--format=%B", "main")
    assert message.startswith("Merge the integers") and "both are meant" in message, message
    ran = subprocess.run([sys.executable, "-B", "test_calc.py"], cwd=repo.dir, capture_output=True, text=True)
    assert ran.stdout == "all is well\n", ran

    say("up to date again, another fork of this one, and a handoff")
    assert (await agent.ask("update"))["status"] == "merged"
    assert (mount / "calc.py").read_text() == resolved
    await agent.ask("write_file", path="draft.txt", content="not committed\n")
    other = await agent.ask("fork", name="other", from_active=True)
    assert (Path(other["mount_dir"]) / "draft.txt").read_text() == "not committed\n"
    assert [f["name"] for f in (await agent.ask("list_forks"))["forks"] if f["active"]] == ["other"]
    await agent.ask("commit", message="Keep a draft")
    handed = await agent.ask("handoff")
    assert handed["state"] == "ready" and handed["commits"] >= 1, handed
    assert "not committed" in Path(handed["mailbox"]).read_text()


async def main():
    tine, mode = os.path.abspath(sys.argv[1]) if "/" in sys.argv[1] else sys.argv[1], sys.argv[2]
    with tempfile.TemporaryDirectory() as place:
        repo = Repository(Path(place))
        server = StdioServerParameters(command=tine, args=["-C", str(repo.dir), "mcp"], env=repo.env)
        try:
            async with Client(server, mode=mode) as client:
                print(f"protocol {client.protocol_version}")
                await task(client, repo)
            # The client has gone, and the forks are there.
            listed = subprocess.run([tine, "list", "--json"], cwd=repo.dir, env=repo.env, check=True, capture_output=True)
            names = [fork["name"] for fork in json.loads(listed.stdout)["forks"]]
            assert sorted(names) == ["fix-add", "other"], names
        finally:
            subprocess.run([tine, "uninstall", "--force"], cwd=repo.dir, env=repo.env, capture_output=True)
    print("done")


asyncio.run(main())
