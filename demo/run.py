"""The main job, for real: every step is a run of the installed `lever`, in a temporary folder, with nothing prepared.

Neither of our packages is imported here: what you see is what you can type. The exit status is 1 if any step is not as
told.
"""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from mcp import Client, StdioServerParameters
from mcp.types import CallToolResult

from demo.story import NotAsToldError, Story, chapter, paint, print_lines, say
from demo.tools import servers, tools_under_authority


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def tell(story: Story) -> None:
    """The story, from an empty folder to a verified journal."""
    chapter("1. An instance, with two operator keys")
    story.lever("init", ".", "--name", "demo", "--make-keys", "--listen", f"127.0.0.1:{free_port()}")
    with (story.folder / "lever.yaml").open("a") as config:
        config.write("\ntools:\n  files: [read_file, write_file]\n")
        config.write(servers(story.folder))
    say("tools declared in lever.yaml: files.read_file, files.write_file")
    say("tool servers behind the broker: git (mcp-server-git), notes")
    story.start()
    story.lever("directive", "selftest")
    say("a signed test statement went the whole way")

    chapter("2. Two agents, each with a key of its own")
    for name in ("worker-a", "worker-b"):
        enrol(story, name, f"{name}.json")
    say("each folder holds a private key that never left it, and a 24 h certificate")

    chapter("3. The operator signs; the agent is told an id, and fetches the action")
    ids = send_and_consume(story)

    chapter("4. What is refused, each as the agent sees it: always the same miss")
    spent = refusals(story, ids)

    chapter("5. kill -9, restart: what was consumed stays consumed")
    story.kill()
    say("daemon killed")
    story.start()
    again = story.miss("consumed before the kill", ids[0], "worker-a")
    if again != spent:
        raise NotAsToldError("the miss after the restart differs from the one before")

    chapter("6. The same through MCP, as a harness does it")
    through_mcp(story)

    tools_under_authority(story)

    chapter("14. The record")
    print_lines(story.lever("journal", "verify"))


def enrol(story: Story, name: str, bundle: str) -> None:
    story.lever("agent", "invite", name, "--out", bundle)
    story.lever("agent", "enrol", "--bundle", bundle, "--identity", name)


def send(story: Story, agent: str, *what: str) -> str:
    sent = story.data("directive", "send", agent, *what)
    say(f"sent {sent['id']}, delivered: {str(sent['delivered']).lower()}")
    return str(sent["id"])


def send_and_consume(story: Story) -> list[str]:
    call = '{"kind":"tool_call","tool":"files","op":"write_file","args":{"path":"a.txt"}}'
    approval = '{"kind":"approval","tool":"files","op":"read_file","args":{}}'
    ids = []
    for what in (("--action", call), ("--action", approval), ("--instruction", "Finish the report first.")):
        id = send(story, "worker-a", *what)
        inbox = story.lever("agent", "inbox", "--identity", "worker-a", "--wait", "5")
        if id not in inbox.stdout:
            raise NotAsToldError(f"the pointer of {id} did not arrive: {inbox.stdout}")
        print_lines(inbox)
        answer = story.data("agent", "consume", id, "--identity", "worker-a")
        say(f"the agent got: {json.dumps({k: v for k, v in answer.items() if k != 'id'})}")
        ids.append(id)
    return ids


def refusals(story: Story, ids: list[str]) -> str:
    """Every cause of a miss. Each must look the same, to the byte."""
    pending = send(story, "worker-b", "--instruction", "For worker-b alone.")
    short = send(story, "worker-a", "--instruction", "Too late.", "--expires", "2s")
    revoked = send(story, "worker-a", "--instruction", "Never mind.")
    story.lever("directive", "revoke", revoked)
    forged = forge(story)
    shutil.copytree(story.folder / "worker-b", story.folder / "predecessor")
    enrol(story, "worker-b", "worker-b-again.json")
    fresh = send(story, "worker-b", "--instruction", "For the new worker-b.")
    while (
        json.loads(story.lever("agent", "check", short, "--identity", "worker-a", "--json", quiet=True).stdout)["state"]
        == "active"
    ):
        time.sleep(0.2)
    print(f"\n  {'why (only the operator knows)':<44} what the agent sees")
    misses = {
        story.miss("a second consume", ids[0], "worker-a"),
        story.miss("an id that never was", "no-such-id", "worker-a"),
        story.miss("another agent's directive", fresh, "worker-a"),
        story.miss("a forged signature (never stored)", forged, "worker-a"),
        story.miss("expired", short, "worker-a"),
        story.miss("revoked", revoked, "worker-a"),
        story.miss("sent before a re-enrolment", pending, "worker-b"),
        story.miss("the predecessor's certificate", fresh, "predecessor"),
    }
    if len(misses) != 1:
        raise NotAsToldError(f"the misses differ: {misses}")
    say("eight causes, one answer")
    story.data("agent", "consume", fresh, "--identity", "worker-b")
    say("and the right agent, of the right enrolment, gets it")
    return misses.pop()


def forge(story: Story) -> str:
    """Sign a statement, change one byte of it, submit it."""
    story.lever("directive", "sign", "worker-a", "--instruction", "Send me the logs.", "--out", "signed.json")
    pair = json.loads((story.folder / "signed.json").read_text())
    raw = base64.b64decode(pair["statement"])
    pair["statement"] = base64.b64encode(raw.replace(b"Send me", b"Mail me")).decode()
    (story.folder / "forged.json").write_text(json.dumps(pair))
    refused = story.lever("directive", "submit", "forged.json", expect=6)
    say(f"one word changed: {next(line for line in refused.stderr.splitlines() if line.startswith('error'))}")
    return str(json.loads(raw)["directive_id"])


def through_mcp(story: Story) -> None:
    """The official client starts what stands in the harness's own configuration, and calls the tool."""
    project = story.folder / "project"
    project.mkdir()
    story.lever("agent", "install", "claude-code", "--write", "--identity", "../worker-a", at=project)
    entry = json.loads((project / ".mcp.json").read_text())["mcpServers"]["lever"]
    id = send(story, "worker-a", "--instruction", "Tidy up, please.")

    async def call() -> CallToolResult:
        async with Client(StdioServerParameters(command=entry["command"], args=entry["args"])) as client:
            say(f"tools: {', '.join(tool.name for tool in (await client.list_tools()).tools)}")
            result = await client.call_tool("directive_consume", {"id": id})
            await client.call_tool("directive_report", {"id": id, "outcome": "done", "note": "All tidy."})
            return result

    result = asyncio.run(call())
    if result.is_error or result.structured_content["advisory_text"] != "Tidy up, please.":
        raise NotAsToldError(f"the tool answered {result}")
    say(f"directive_consume gave: {json.dumps(result.structured_content)}")
    print_lines(story.lever("directive", "show", id))


def main() -> int:
    folder = Path(tempfile.mkdtemp(prefix="lever-demo-"))
    story = Story(folder)
    begun = time.monotonic()
    try:
        tell(story)
    except (NotAsToldError, subprocess.TimeoutExpired, OSError) as error:
        print(f"\n{paint('31', 'not as told')}: {error}", file=sys.stderr)
        return 1
    finally:
        story.kill()
        shutil.rmtree(folder, ignore_errors=True)
    print(f"\n{paint('32', 'as told')}, in {time.monotonic() - begun:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
