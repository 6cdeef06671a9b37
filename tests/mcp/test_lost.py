"""A brokered call whose line breaks, or whose broker dies: never a second execution, and never a false answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from lever.agent import calling, keys
from lever.agent.door import Door, context
from lever.agent.folder import IdentityFolder
from lever.agent.mcp.calls import Desk as Caller
from lever.agent.session import connected
from tests.authority.desk import Desk
from tests.mcp.conftest import Beside, opened
from tests.rig import now

LONG = 20_000


def executions(office: Desk, cn: str) -> int:
    """How many calls of this agent were claimed for execution."""
    runs = office.signed("run_list").json()["runs"]
    return sum(run["used"]["tool_calls"] for run in runs if run["agent"]["cn"] == cn)


@contextmanager
def cutting(port: int) -> Iterator[tuple[int, list[bool]]]:
    """A line to this port that breaks, the first time, when the answer to a long request comes; and whether it did."""
    cut: list[bool] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    near = listener.accept()[0]
                except OSError:
                    return
                with near, socket.create_connection(("127.0.0.1", port)) as far:
                    carry(near, far)

        def carry(near: socket.socket, far: socket.socket) -> None:
            asked = [0]
            up = threading.Thread(target=upwards, args=(near, far, asked))
            up.start()
            while data := far.recv(65536):
                if asked[0] > LONG and not cut:
                    cut.append(True)
                    near.shutdown(socket.SHUT_RDWR)
                    break
                near.sendall(data)
            up.join()

        def upwards(near: socket.socket, far: socket.socket, asked: list[int]) -> None:
            with suppress(OSError):  # the broken line
                while data := near.recv(65536):
                    far.sendall(data)
                    asked[0] += len(data)
                far.shutdown(socket.SHUT_WR)

        server = threading.Thread(target=serve)
        server.start()
        yield listener.getsockname()[1], cut
        listener.shutdown(socket.SHUT_RDWR)
    server.join()


@pytest.mark.promise("P20", "P23")
def test_a_line_that_breaks_before_the_answer_is_no_second_execution(worker: Beside, office: Desk) -> None:
    folder = IdentityFolder(worker.identity)
    tls = context(keys.certificates_pem(folder.read().ca), folder.file)
    arguments = {"text": "x" * LONG}
    with connected(folder, now()) as door:
        asked = door.call("s__echo", arguments, "zero", 0)
    assert office.approve(asked["structuredContent"]["request_id"]).status_code == 200
    with cutting(office.rig.port) as (port, cut), Door(f"https://127.0.0.1:{port}", tls) as door:
        result = calling.call(door, "s__echo", arguments, "one", 0, sleep=lambda seconds: None)
    assert cut
    assert "x" * LONG in result["content"][0]["text"]
    assert executions(office, worker.cn) == 1


@pytest.mark.promise("P23")
def test_a_broker_that_dies_during_a_call_says_later_that_nobody_knows(tmp_path: Path) -> None:
    office = opened(tmp_path / "instance")
    beside = Beside(office.rig, "worker-a", tmp_path / "identity")
    beside.enrol()
    restarts, dead = list[float](), threading.Event()

    def restart(seconds: float) -> None:
        if not restarts:
            dead.wait()
            office.rig.start()
        restarts.append(seconds)

    caller = Caller(IdentityFolder(beside.identity), now, lambda: "one", restart)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(partial(caller.call, "r__silent", {}, "", 0))
        while not executions(office, "worker-a"):
            assert not answer.done(), answer.result()
        office.rig.kill()
        dead.set()
        result = answer.result(60)
    assert restarts
    assert (result["isError"], result["structuredContent"]["code"]) == (True, "outcome_unknown")
    assert executions(office, "worker-a") == 1
    office.rig.close()
