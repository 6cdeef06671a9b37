"""How processes begin, end and are counted; and that nothing of them is left."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from broker.config import Reference
from broker.effects.tool_servers import NotSent, ToolServers, Unknown
from broker.errors import Malformed
from tests.fakes.tool_server import TOOLS
from tests.tool_servers.conftest import Make
from tests.tool_servers.setting import A, AServer, B, Watch, alive, ask, children, fake, looked, sent, until


async def test_nothing_is_started_before_it_is_used(make: Make) -> None:
    before = children()
    servers = make({"s": AServer()})
    assert (servers.connections, children() - before) == (0, set())


async def test_stop_ends_the_process_its_child_and_what_is_in_hand(make: Make) -> None:
    servers = make({"s": AServer()})
    pid, child = int(await ask(servers, "pid")), int(await ask(servers, "child"))
    assert alive(pid)
    assert alive(child)
    call = asyncio.create_task(sent(servers, A, "s", "stuck", b"{}", 30))
    await until(lambda: servers._current["s", A].in_hand == 1)
    await servers.stop()
    assert not alive(pid)
    await until(lambda: not alive(child))  # it is killed; its death is the system's to tell
    with pytest.raises(Unknown, match=r"^s: the broker ended it$"):
        await call
    with pytest.raises(NotSent, match=r"^s: the broker is stopping$"):
        await ask(servers, "pid")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody is given the orphans of others")
@pytest.mark.parametrize("end", ["stop", "dies", "garbage", "idle"])
async def test_what_left_its_parent_its_session_and_its_environment_ends_with_the_server(make: Make, end: str) -> None:
    other = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    servers = make({"s": AServer(idle_s=0.05 if end == "idle" else 300)})
    gone, pid = int(await ask(servers, "daemon")), 0
    if end == "idle":
        await until(lambda: servers.connections == 0)
    elif end == "stop":
        pid = int(await ask(servers, "pid"))
        assert alive(gone), "as long as the server lives"
        await servers.stop()
    else:
        with pytest.raises(Unknown):
            await sent(servers, A, "s", end, b"{}", 30)
        await until(lambda: servers.connections == 0)
    assert (alive(gone), alive(pid), alive(other.pid)) == (False, False, True), "no other child is touched"
    other.kill()
    other.wait()


async def test_under_its_keeper_a_server_ends_as_it_would_without(make: Make) -> None:
    """Its status and its signal are told; none of the keeper's own signals is ignored or held back in it."""
    for command, why in (
        ("kill -9 $$", "it was ended by signal 9"),
        ("exit 7", "it ended with exit status 7"),
        ("trap 'exit 5' PIPE; kill -PIPE $$", "it ended with exit status 5"),
        ("trap 'exit 6' TERM; kill -TERM $$", "it ended with exit status 6"),
    ):
        servers = make({"s": AServer(command=("/bin/sh", "-c", command))})
        with pytest.raises(NotSent, match=f"^s: {why}$"):
            await looked(servers)


async def test_what_it_wrote_last_goes_with_the_failure_and_is_no_word_of_it(make: Make) -> None:
    command = ("/bin/sh", "-c", "echo first >&2; printf 'no \\033[1mword\\n' >&2; exit 1")
    servers = make({"s": AServer(command=command)})
    for why in ("", "; it is tried again in 1 s"):
        with pytest.raises(NotSent, match=f"^s: it ended with exit status 1{why}$") as found:
            await looked(servers, None)
        assert found.value.said == r"no \x1b[1mword"
        await until(lambda: servers.connections == 0)


async def test_stop_ends_a_process_that_is_only_starting(make: Make) -> None:
    before = children()
    servers = make({"s": fake("mute")})
    call = asyncio.create_task(sent(servers, A, "s", "pid", b"{}", 30))
    await until(lambda: bool(children() - before))
    await servers.stop()
    assert children() <= before
    with pytest.raises(NotSent):
        await call


async def test_a_caller_that_leaves_while_it_starts_takes_nobody_with_it(make: Make) -> None:
    servers = make({"s": AServer()})
    first = asyncio.create_task(ask(servers, "pid"))
    await until(lambda: servers.connections == 1)
    second = asyncio.create_task(ask(servers, "pid"))
    await asyncio.sleep(0)
    first.cancel()
    assert alive(int(await second))
    assert servers.connections == 1


async def test_a_crash_takes_its_children_along_and_the_next_start_waits(make: Make, watch: Watch) -> None:
    servers = make({"s": AServer()})
    child = int(await ask(servers, "child"))
    for pause in (1, 2, 4):  # half of 2, 4, 8 ... seconds: chance is 0 here
        with pytest.raises(Unknown):
            await sent(servers, A, "s", "dies", b"{}", 30)
        await until(lambda: servers.connections == 0)
        with pytest.raises(NotSent, match=f"^s: it ended with exit status 3; it is tried again in {pause} s$"):
            await ask(servers, "pid")
        assert int(await ask(servers, "pid", B)), "another agent's process is not kept waiting"
        watch.forward(pause)
        servers.retire(lambda holder: holder == B)
        await until(lambda: servers.connections == 0)
    await until(lambda: not alive(child))
    await ask(servers, "pid")
    with pytest.raises(Unknown):
        await sent(servers, A, "s", "dies", b"{}", 30)
    await until(lambda: servers.connections == 0)
    with pytest.raises(NotSent, match=r"in 1 s$"):
        await ask(servers, "pid")


async def test_an_idle_process_ends_and_comes_back_without_a_pause(make: Make) -> None:
    servers = make({"s": AServer(idle_s=0.05)})
    pid = int(await ask(servers, "pid"))
    await until(lambda: servers.connections == 0)
    assert not alive(pid)
    assert int(await ask(servers, "pid")) != pid


async def test_a_process_in_use_is_not_idle(make: Make) -> None:
    servers = make({"s": AServer(idle_s=0.05)})
    await ask(servers, "pid")
    with pytest.raises(Unknown, match="no answer came"):
        await sent(servers, A, "s", "silent", b"{}", 0.5)


async def test_at_the_bound_the_longest_unused_makes_room_and_a_busy_one_does_not(make: Make) -> None:
    servers = make({"s": AServer(), "t": AServer(), "u": AServer()}, most=2)
    first, second = int(await ask(servers, "pid", A, "s")), int(await ask(servers, "pid", A, "t"))
    assert int(await ask(servers, "pid", A, "s")) == first
    third = int(await ask(servers, "pid", A, "u"))
    assert (alive(first), alive(second), alive(third), servers.connections) == (True, False, True, 2)
    calls = [asyncio.create_task(sent(servers, A, name, "silent", b"{}", 30)) for name in ("s", "u")]
    await until(lambda: all(servers._current[name, A].in_hand for name in ("s", "u")))
    with pytest.raises(NotSent, match=r"^all 2 processes and sessions of tool servers are busy$"):
        await ask(servers, "pid", A, "t")
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)
    assert await ask(servers, "pid", A, "t")


async def test_a_stampede_never_passes_the_bound(make: Make) -> None:
    names = [f"s{n}" for n in range(6)]
    servers = make({name: AServer() for name in names}, most=2)
    seen: list[int] = []

    async def one(name: str) -> bool:
        try:
            await ask(servers, "pid", A, name)
        except NotSent:
            return False
        finally:
            seen.append(servers.connections)
        return True

    assert any(await asyncio.gather(*map(one, names)))
    assert max(seen) <= 2


async def test_what_a_former_generation_has_ends_after_its_call(make: Make) -> None:
    servers = make({"s": AServer()})
    pid = int(await ask(servers, "pid"))
    call = asyncio.create_task(sent(servers, A, "s", "silent", b"{}", 0.5))
    await until(lambda: servers._current["s", A].in_hand == 1)
    servers.retire(lambda holder: holder == A)
    await asyncio.sleep(0)
    assert alive(pid)
    with pytest.raises(Unknown, match="no answer came"):
        await call
    await until(lambda: not alive(pid))
    assert alive(int(await ask(servers, "pid")))


async def test_the_tools_are_listed_page_by_page_as_they_were_said(make: Make) -> None:
    servers = make({"s": AServer(), "paged": fake("pages")})
    whole, paged = [(await looked(servers, None, name)).tools for name in ("s", "paged")]
    definitions = [[tool.definition for tool in tools.values()] for tools in (whole, paged)]
    assert definitions[0] == definitions[1]
    assert [*whole] == TOOLS
    assert definitions[0][0] == {"name": "echo", "description": "Does echo.", "inputSchema": {"type": "object"}}
    assert servers.connections == 2, "no agent's process was needed"


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("circle", "a list that never ends"),
        ("for ever", "more than 100 pages"),
        ("many", "more than 1000 tools"),
    ],
)
async def test_a_list_that_is_none_is_refused(make: Make, how: str, why: str) -> None:
    servers = make({"s": fake(how, max_output_bytes=1_000_000)})
    with pytest.raises(Malformed, match=why):
        await looked(servers)


async def test_a_list_of_another_shape_is_no_list(make: Make) -> None:
    servers = make({"s": fake("no list")})
    with pytest.raises(Malformed, match=r"^s: tools: expected an array$"):
        await looked(servers)


async def test_a_look_counts_until_its_own_process_says_that_the_tools_changed(make: Make) -> None:
    """One agent's process, which that agent may steer, is not to keep another agent from its calls."""
    servers = make({"s": AServer()})
    await looked(servers, A)
    tool = (await looked(servers, B)).tools["pid"]
    await ask(servers, "changed", B)
    await until(lambda: servers.looked(B, "s") is None)
    with pytest.raises(NotSent, match=r"^s: its tools may have changed since they were looked at$"):
        await servers.call(B, tool, b"{}", 30)
    assert await servers.call(A, tool, b"{}", 30)
    await looked(servers, B)
    assert await servers.call(B, tool, b"{}", 30)


async def test_a_call_goes_over_the_connection_that_was_looked_at_or_not_at_all(make: Make) -> None:
    """What another process was seen to define says nothing of this one."""
    servers = make({"s": AServer()})
    tool = (await looked(servers, B)).tools["pid"]
    for holder in (A, B):
        await servers.look(None, "s", 0, 0)
        if holder == B:
            servers._current["s", B].retire()
            await until(lambda: servers.connections == 1)
        with pytest.raises(NotSent, match=r"^s: it ended since its tools were looked at$"):
            await servers.call(holder, tool, b"{}", 30)
        assert servers.connections <= 2, "and starts nothing"
    other = (await looked(servers, B)).tools["pid"]
    with pytest.raises(NotSent, match="may have changed"):
        await servers.call(B, replace(other, digest=tool.digest[::-1]), b"{}", 30)  # type: ignore[arg-type]


async def test_a_look_that_is_new_enough_is_not_taken_again(make: Make) -> None:
    servers = make({"s": AServer()})
    first = await asyncio.gather(*(servers.look(A, "s", 100 + n, 40 + n) for n in range(5)))
    assert {one.at for one in first} == {100}, "who comes together looks once"
    assert (await servers.look(A, "s", 159, 99)) is first[0]
    assert (await servers.look(A, "s", 160, 100)).at == 160


async def test_a_change_while_the_list_is_read_makes_the_look_worthless(make: Make) -> None:
    servers = make({"s": fake("pages")})
    looking = asyncio.create_task(servers.look(A, "s", 1, 0))
    await until(lambda: ("s", A) in servers._current and servers._current["s", A]._looking.locked())
    servers._current["s", A].forget()
    assert (await looking).listing.tools
    assert servers.looked(A, "s") is None


@pytest.mark.promise("P22")
@pytest.mark.parametrize(
    ("how", "unfit"),
    [
        ("twice", {"echo": "two definitions have this name"}),
        ("deep", {"deep": "tool: nested deeper than 64"}),
        ("case", {"case": "tool: keys type and Type differ only in case"}),
        ("nameless", {"#1": "tool: expected an object, found null", "#2": "name: expected 1 to 128 of A-Z"}),
    ],
)
async def test_a_definition_that_is_none_shuts_its_tool_alone(make: Make, how: str, unfit: dict[str, str]) -> None:
    servers = make({"s": fake(how)})
    listing = await looked(servers)
    assert {name: why[: len(unfit.get(name, ""))] for name, why in listing.unfit.items()} == unfit
    assert not listing.tools.keys() & unfit.keys()
    assert len(listing.tools) >= len(TOOLS) - 1
    await ask(servers, "pid")


async def test_what_a_server_says_is_logged_in_bounds_and_escaped(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    servers = make({"s": AServer()})
    await ask(servers, "talks", lines=5000)
    await servers.stop()
    said = [record for record in caplog.records if record.message == "a tool server says"]
    assert len(said) == 40
    lines = [vars(record)["line"] for record in said]
    assert lines[0] == r"line 0 \x1b[2J\u202e of trouble"
    (left,) = [vars(record)["lines"] for record in caplog.records if "left out" in record.message]
    assert left == 4960


@pytest.mark.promise("P30")
async def test_neither_arguments_nor_answers_reach_the_log(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    servers = make({"s": AServer()})
    await ask(servers, "echo", secret="hunter2")
    for tool in ("garbage", "strange", "nonsense", "refuses"):
        with suppress(Unknown, NotSent):
            await sent(servers, A, "s", tool, b'{"secret":"hunter2"}', 30)
    assert "hunter2" not in caplog.text
    assert "listening" not in caplog.text


class TestCredentials:
    async def seen(self, make: Make, reference: Reference, **environ: str) -> str:
        argv = (sys.executable, "-S", *AServer().command[2:])  # type: ignore[index]
        servers = make({"s": AServer(command=argv, env={"TOKEN": reference})}, environ={"PATH": "/bin", **environ})
        environment: dict[str, str] = json.loads(await ask(servers, "look", paths=[]))["environment"]
        environment.pop("LC_CTYPE", None)  # Python's own
        assert environment.keys() == {"PATH", "TOKEN"}, "nothing else of the broker's"
        return environment["TOKEN"]

    async def test_each_kind_arrives(self, make: Make, tmp_path: Path) -> None:
        (tmp_path / "token").write_text("one two\n")
        assert await self.seen(make, Reference("file", str(tmp_path / "token"))) == "one two"
        folder = {"CREDENTIALS_DIRECTORY": str(tmp_path)}
        assert await self.seen(make, Reference("credential", "token"), **folder) == "one two"
        assert await self.seen(make, Reference("environment", "OURS"), OURS="three") == "three"

    async def test_a_changed_file_counts_at_the_next_start(self, make: Make, tmp_path: Path) -> None:
        token = tmp_path / "token"
        token.write_text("old")
        servers = make({"s": AServer(env={"TOKEN": Reference("file", str(token))})})
        assert '"TOKEN": "old"' in await ask(servers, "look", paths=[])
        token.write_text("new")
        servers.retire(lambda holder: True)
        assert '"TOKEN": "new"' in await ask(servers, "look", paths=[])

    @pytest.mark.parametrize(
        ("reference", "content", "why"),
        [
            (Reference("environment", "ABSENT"), "", "the broker's environment has no ABSENT"),
            (Reference("credential", "x"), "", "there are no systemd credentials: CREDENTIALS_DIRECTORY is not set"),
            (Reference("file", "absent"), "", "absent can't be read: no such file or directory"),
            (Reference("file", "token"), "", "what it refers to is empty"),
            (Reference("file", "token"), "sec\nret", "what it refers to is not one line of text"),
            (Reference("file", "token"), "s" * 70000, "token has more than 65536 bytes"),
        ],
    )
    async def test_what_is_not_there_starts_nothing(
        self, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: Reference, content: str, why: str
    ) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "token").write_text(content)
        servers: ToolServers = make({"s": AServer(env={"TOKEN": reference})}, environ={"PATH": "/bin"})
        with pytest.raises(NotSent) as caught:
            await sent(servers, A, "s", "pid", b"{}", 30)
        assert caught.value.what == f"s: TOKEN: {why}"
        assert "sec" not in caught.value.what
