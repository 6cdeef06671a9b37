"""The command channel, with real processes: what reaches the command, what never does, and what is left of it."""

from __future__ import annotations

import asyncio
import json
import os
import select
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from broker.effects.channels import CommandChannel
from broker.effects.commands import Command, environment_of
from broker.errors import Unavailable
from broker.wire.escape import escaped
from broker.wire.names import Cn, DirectiveId
from broker.wire.pointer import sentence

A, ID = Cn("worker-a"), DirectiveId("d-1")
LONG_S = 600.0
RECORD = """
import json, os, sys
known = {"argv": sys.argv[2:], "environ": dict(os.environ), "cwd": os.getcwd(), "stdin": sys.stdin.read(),
         "leads": os.getsid(0) == os.getpid()}
with open(sys.argv[1], "w") as file:
    json.dump(known, file)
"""


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Coroutine[Any, Any, dict[str, Any]]]:
    """Deliver by a script that records what it was given; the record."""
    script, out = tmp_path / "tell.py", tmp_path / "out.json"
    script.write_text(RECORD)

    async def deliver(*words: str, cn: str = A, id: str = ID) -> dict[str, Any]:
        out.unlink(missing_ok=True)
        channel = command(sys.executable, "-I", str(script), str(out), *words, folder=tmp_path)
        try:
            await channel.deliver(Cn(cn), DirectiveId(id))
        except Unavailable:
            assert not out.exists(), "refused, and yet it ran"
            raise
        return dict(json.loads(out.read_text()))

    return deliver


def command(*argv: str, folder: Path = Path("/"), timeout_s: float = LONG_S) -> CommandChannel:
    return CommandChannel(argv, timeout_s, folder=folder, environment=environment_of(os.environ))


def shell(script: str, *words: str, timeout_s: float = LONG_S, folder: Path = Path("/")) -> CommandChannel:
    return command("/bin/sh", "-c", script, "tell", *words, timeout_s=timeout_s, folder=folder)


async def why(channel: CommandChannel) -> str:
    with pytest.raises(Unavailable) as caught:
        await channel.deliver(A, ID)
    return caught.value.what


@pytest.mark.promise("P9")
async def test_each_word_stays_one_word_with_its_placeholders_filled_in(run: Any) -> None:
    seen = await run("{text}", "to={agent}", "{id}", "{agent}/{id}", "plain", "", "{{id}}", "{other}")
    assert seen["argv"] == [sentence(ID), "to=worker-a", "d-1", "worker-a/d-1", "plain", "", "{d-1}", "{other}"]


@pytest.mark.promise("P9")
async def test_no_shell_reads_the_words(run: Any, tmp_path: Path) -> None:
    words = ["$(touch pwned)", "`touch pwned`", "; touch pwned", "*", "$HOME", "a b", "'\"\\", "> pwned"]
    assert (await run(*words))["argv"] == words
    assert not (tmp_path / "pwned").exists()


HOSTILE = ["", "a b", "a\nb", "$(id)", "a;b", "a\x1b[2J", "a\0b", "\u202ea", "a" * 65, "{text}", "\ud800", "日本"]


@pytest.mark.promise("P9")
@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
async def test_a_hostile_id_or_agent_name_reaches_no_command(run: Any, name: str) -> None:
    with pytest.raises(Unavailable, match="not told"):
        await run("{id}", id=name)
    with pytest.raises(Unavailable, match="not told"):
        await run("{agent}", cn=name)


@pytest.mark.promise("P9")
@pytest.mark.parametrize("id", ["-rf", "--help", "-", "--"])
async def test_an_id_never_becomes_an_option(run: Any, id: str) -> None:
    for words in (["{id}"], ["{id}.txt", "--"]):
        with pytest.raises(Unavailable, match="put -- before"):
            await run(*words, id=id)
    assert (await run("-v", "--", "{id}", id=id))["argv"] == ["-v", "--", id]
    assert (await run("--id={id}", id=id))["argv"] == [f"--id={id}"]


@pytest.fixture
def words_on_stdin() -> Iterator[None]:
    """What the daemon itself could read from its standard input."""
    read, write = os.pipe()
    os.write(write, b"words\n")
    os.close(write)
    kept = os.dup(0)
    os.dup2(read, 0)
    yield
    os.dup2(kept, 0)
    os.close(kept)
    os.close(read)


@pytest.mark.usefixtures("words_on_stdin")
async def test_the_command_knows_three_variables_and_its_folder_and_reads_nothing(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"SSH_AUTH_SOCK": "/x", "SECRET": "x", "HOME": "/home/x", "LANG": "C.UTF-8"}.items():
        monkeypatch.setenv(name, value)
    seen = await run()
    assert seen["environ"] == {"PATH": os.environ["PATH"], "HOME": "/home/x", "LANG": "C.UTF-8"}
    assert Path(seen["cwd"]) == tmp_path
    assert seen["stdin"] == ""
    assert seen["leads"], "a session of its own: no terminal, and killed as one"


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("exit 3", "/bin/sh ended with exit status 3"),
        ("echo no such pane >&2; echo more >&2; exit 1", "/bin/sh ended with exit status 1: no such pane"),
        ("echo words on standard output; exit 1", "/bin/sh ended with exit status 1"),
        (r"printf '\n  \n late\n' >&2; exit 1", "/bin/sh ended with exit status 1: late"),
        (r"printf 'a\033[2Jb\rc' >&2; exit 1", r"/bin/sh ended with exit status 1: a\x1b[2Jb\rc"),
        (r"printf '\342\200\256x\377' >&2; exit 1", "/bin/sh ended with exit status 1: \\u202ex\ufffd"),
        ("kill -9 $$", "/bin/sh was ended by signal 9"),
    ],
)
async def test_a_failure_says_how_it_ended_and_the_first_thing_it_complained_of(script: str, text: str) -> None:
    assert await why(shell(script)) == text


async def test_a_long_complaint_is_cut_short() -> None:
    said = await why(shell("head -c 5000 /dev/zero | tr '\\0' x >&2; exit 1"))
    assert said.endswith("x" * 200 + "...")


@pytest.mark.parametrize(
    ("program", "text"),
    [
        ("lever-no-such-program", "lever-no-such-program can't be started: no such file or directory"),
        ("/", "/ can't be started: permission denied"),
        ("/a\nb", r"/a\nb can't be started: no such file or directory"),
    ],
)
async def test_a_program_that_is_not_there(program: str, text: str) -> None:
    assert await why(command(program)) == text


class Kin:
    """Tells whether any process that a script started is still there: each holds the pipe open."""

    def __init__(self, folder: Path) -> None:
        self.pipe = folder / "pipe"
        os.mkfifo(self.pipe)
        self.fd = os.open(self.pipe, os.O_RDONLY | os.O_NONBLOCK)

    @property
    def script(self) -> str:
        """Hold the pipe, with a child and a grandchild, and say so."""
        return f"exec 3>'{self.pipe}'; (sleep 600 & sleep 600) & echo up >&3; "

    def next(self) -> bytes:
        """What comes next; empty when all who held the pipe are gone, or were never there."""
        try:
            return os.read(self.fd, 100)
        except BlockingIOError:
            assert select.select([self.fd], [], [], 30)[0], "somebody still holds the pipe"
            return os.read(self.fd, 100)

    def first(self) -> bytes:
        """Wait until somebody is there."""
        assert select.select([self.fd], [], [], 30)[0]
        return os.read(self.fd, 100)


@pytest.fixture
def kin(tmp_path: Path) -> Iterator[Kin]:
    made = Kin(tmp_path)
    yield made
    os.close(made.fd)


async def test_a_hanging_command_is_killed_at_its_deadline_with_all_its_children(kin: Kin) -> None:
    said = await why(shell(kin.script + "sleep 600", timeout_s=1.5))
    assert said == "/bin/sh was killed: it had not ended after 1.5 s"
    assert kin.next() == b"up\n"
    assert kin.next() == b""


async def test_a_delivery_that_is_given_up_leaves_no_process_behind(kin: Kin) -> None:
    delivery = asyncio.create_task(shell(kin.script + "sleep 600").deliver(A, ID))
    assert await asyncio.to_thread(kin.first) == b"up\n"
    delivery.cancel()
    with pytest.raises(asyncio.CancelledError):
        await delivery
    assert kin.next() == b""


@pytest.mark.parametrize("steps", range(12))
async def test_nor_does_one_that_is_given_up_while_it_starts(kin: Kin, steps: int) -> None:
    delivery = asyncio.create_task(shell(kin.script + "sleep 600").deliver(A, ID))
    for _ in range(steps):
        await asyncio.sleep(0)
    delivery.cancel()
    with pytest.raises(asyncio.CancelledError):
        await delivery
    assert kin.next() in (b"", b"up\n")
    assert kin.next() == b""


@pytest.mark.parametrize("status", [0, 1])
async def test_what_a_command_leaves_running_does_not_outlive_it(kin: Kin, status: int) -> None:
    channel = shell(kin.script + f"exit {status}")
    if status:
        await why(channel)
    else:
        await channel.deliver(A, ID)
    assert kin.next() == b"up\n"
    assert kin.next() == b""


async def test_a_flood_on_standard_output_goes_nowhere() -> None:
    await shell("head -c 50000000 /dev/zero").deliver(A, ID)


async def test_a_flood_of_errors_ends_the_command() -> None:
    assert await why(shell("exec yes >&2")) == "/bin/sh was killed: it wrote more than 65536 bytes"


def test_the_event_loop_of_the_daemon_does_the_same(tmp_path: Path) -> None:
    made = Kin(tmp_path)

    async def story() -> None:
        await shell("exit 0").deliver(A, ID)
        assert await why(shell("echo no >&2; exit 4")) == "/bin/sh ended with exit status 4: no"
        assert "can't be started" in await why(command("lever-no-such-program"))
        assert "wrote more than" in await why(shell("exec yes >&2"))
        await shell(made.script + "exit 0").deliver(A, ID)
        assert (made.next(), made.next()) == (b"up\n", b"")
        assert "had not ended" in await why(shell(made.script + "sleep 600", timeout_s=1.5))
        assert (made.next(), made.next()) == (b"up\n", b"")

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(story())
    os.close(made.fd)


@pytest.mark.parametrize(
    ("text", "shown"), [("plain é", "plain é"), ("a\nb", r"a\nb"), ("\u200b\u2066", r"\u200b\u2066"), ("\x9b", r"\x9b")]
)
def test_foreign_text_is_shown_in_one_line_as_it_is(text: str, shown: str) -> None:
    assert escaped(text) == shown


def talking(script: str) -> Command:
    return Command(["/bin/sh", "-c", script], 20.0, folder=Path("/"), environment=environment_of(os.environ))


async def test_a_command_that_is_given_something_gives_something_back() -> None:
    assert await talking("cat; echo more").run(b"given\n") == b"given\nmore\n"


async def test_a_command_that_reads_nothing_of_what_it_is_given_ends_as_it_ends() -> None:
    assert await talking("echo done").run(b"x" * 1_000_000) == b"done\n"
    with pytest.raises(Unavailable, match="ended with exit status 3: why"):
        await talking("echo why >&2; exit 3").run(b"x" * 1_000_000)


async def test_a_command_that_writes_without_end_is_ended() -> None:
    with pytest.raises(Unavailable, match="it wrote more than 65536 bytes"):
        await talking("exec yes").run(b"")
