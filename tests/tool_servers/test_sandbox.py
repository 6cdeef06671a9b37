"""What a server can see and reach: bubblewrap for real, the broker's files beside it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from broker.config import Sandbox
from broker.effects.tool_servers import NotSent, Unknown
from tests.tool_servers.conftest import Make
from tests.tool_servers.setting import FAKE, ROOT, A, AServer, alive, ask, children, sent, until

pytestmark = pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed")
PYTHON = Path(os.path.realpath(sys.executable))
NEEDED = (Path(sys.base_prefix), FAKE)


@pytest.fixture
def broker(tmp_path: Path) -> list[Path]:
    """What is the broker's own, as it lies on the disk."""
    for folder in ("state/journal", "keys", "work"):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("lever.yaml", "allowed_signers", "keys/operator-1", "state/operator.sock", "state/journal/1"):
        (tmp_path / file).write_text("secret")
    return [tmp_path / name for name in ("state", "lever.yaml", "allowed_signers", "keys/operator-1")]


def inside(sandbox: Sandbox) -> AServer:
    return AServer(command=(str(PYTHON), "-S", str(FAKE)), sandbox=sandbox)


def shows(read: tuple[Path, ...] = (), write: tuple[Path, ...] = (), network: bool = False) -> Sandbox:
    return Sandbox.model_construct(read=NEEDED + read, write=write, network=network)


async def test_nothing_of_the_brokers_is_visible_and_only_its_own_folder_is_writable(
    make: Make, tmp_path: Path, broker: list[Path]
) -> None:
    work = tmp_path / "work"
    servers = make({"s": inside(shows(write=(work,)))}, hidden=broker)
    paths = [str(path) for path in (*broker, tmp_path / "state/operator.sock", Path("/home"), Path("/opt"),
                                    Path("/etc/shadow"), Path("/var"), work)]  # fmt: skip
    write = [str(work / "made"), str(FAKE), "/usr/made", "/tmp/made"]
    found = json.loads(await ask(servers, "look", paths=paths, write=write))
    assert [path for path, seen in found["seen"].items() if seen] == [str(work)]
    assert [path for path, done in found["written"].items() if done] == [str(work / "made"), "/tmp/made"]
    assert not Path("/tmp/made").exists(), "that was a /tmp of its own"
    assert (work / "made").read_text() == "here"
    assert found["links"] == ["lo"]
    assert found["folder"] == str(work)
    assert found["environment"]["HOME"] == "/tmp"
    assert (tmp_path / "lever.yaml").read_text() == "secret"


async def test_the_network_is_there_only_if_it_was_asked_for(make: Make) -> None:
    servers = make({"s": inside(shows(network=True)), "t": inside(shows())})
    here = sorted(os.listdir("/sys/class/net"))
    assert sorted(json.loads(await ask(servers, "look", paths=[]))["links"]) == here
    assert json.loads(await ask(servers, "look", server="t", paths=[]))["links"] == ["lo"]


@pytest.mark.parametrize("place", ["state", "state/journal", ".", "link", "keys", "lever.yaml"])
@pytest.mark.parametrize("writes", [True, False])
async def test_a_sandbox_that_shows_what_is_the_brokers_is_not_made(
    make: Make, tmp_path: Path, broker: list[Path], place: str, writes: bool
) -> None:
    """Above it, below it, or by a link; what may be written above it could be moved away."""
    before = children()
    (tmp_path / "link").symlink_to(tmp_path / "state")
    shown = (tmp_path / place,)
    server = inside(shows(write=shown) if writes else shows(read=shown))
    servers = make({"s": server}, hidden=broker)
    with pytest.raises(NotSent, match=r"^s: its sandbox shows .*, which is the broker's own$"):
        await sent(servers, A, "s", "pid", b"{}", 30)
    assert children() <= before


async def test_a_path_that_is_not_there_is_named(make: Make, tmp_path: Path) -> None:
    servers = make({"s": inside(shows(read=(tmp_path / "absent",)))})
    with pytest.raises(NotSent, match=r"^s: its sandbox shows .*/absent, which does not exist$"):
        await sent(servers, A, "s", "pid", b"{}", 30)


async def test_without_bubblewrap_it_is_not_run_at_all(make: Make, tmp_path: Path) -> None:
    before = children()
    servers = make({"s": inside(shows())}, environ={"PATH": str(tmp_path)})
    with pytest.raises(NotSent, match=r"^s: its sandbox needs bubblewrap \(bwrap\), which is not installed"):
        await sent(servers, A, "s", "pid", b"{}", 30)
    assert children() <= before


async def test_also_a_grandchild_that_left_its_session_ends(make: Make) -> None:
    before = children()
    servers = make({"s": inside(shows())})
    await ask(servers, "stranger")
    await ask(servers, "child")
    assert len(children() - before) >= 4, "bubblewrap twice, the server, its children"
    with pytest.raises(Unknown):
        await sent(servers, A, "s", "dies", b"{}", 30)
    await until(lambda: children() <= before)


async def test_a_flood_from_inside_is_ended_too(make: Make) -> None:
    before = children()
    servers = make({"s": inside(shows())})
    await ask(servers, "stranger")
    started = children() - before
    with pytest.raises(Unknown):
        await sent(servers, A, "s", "endless", b"{}", 30)
    await until(lambda: not any(map(alive, started)))


BROKER = """
import asyncio, json, os, sys, time
from pathlib import Path
from tests.tool_servers.setting import A, AServer, ask, until
from tests.tool_servers.test_sandbox import inside, shows
from broker.effects.tool_servers import ToolServers

async def main():
    servers = ToolServers({"s": SERVER}, folder=Path("/"), environ=os.environ, hidden=[],
                          steady=lambda: 0, chance=lambda: 0.0)
    await ask(servers, "daemon")
    stuck = asyncio.create_task(ask(servers, "stuck"))  # it does not see that its input has ended
    await until(lambda: servers._current["s", A].in_hand)
    print("ready", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.parametrize("server", ["inside(shows())", "AServer()"], ids=["sandbox", "none"])
async def test_kill_9_of_the_broker_leaves_nothing_running(server: str) -> None:
    before = children()
    argv = (sys.executable, "-c", BROKER.replace("SERVER", server))
    broker = await asyncio.create_subprocess_exec(*argv, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    assert broker.stdout
    assert await broker.stdout.readline() == b"ready\n"
    lives = children() - before - {broker.pid}
    assert len(lives) >= 3
    broker.kill()
    await broker.wait()
    await until(lambda: not any(map(alive, lives)))
