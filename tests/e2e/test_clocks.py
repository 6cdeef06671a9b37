"""Clocks that jump, stand still or differ: nothing opens that was shut, and nothing that was used is used again."""

from __future__ import annotations

import ssl
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest

from broker.wire import envelope, statement
from broker.wire.act_records import CallEnded, LeaseClosed, RequestEnded
from broker.wire.envelope import Envelope
from broker.wire.names import NAMESPACE_ADMIN, NAMESPACE_DIRECTIVE, Instance, Instant
from broker.wire.times import SECOND
from tests.authority.desk import BETWEEN, FAKE, WATCHED, Desk, asked, call, code, until, wide_policy
from tests.fakes.fake_clock import COMPILER, FakeClock
from tests.forked import ForkServer
from tests.rig import Agent, Rig, is_miss, now, pair, sign

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler")

HOUR = 3600
TO_2099 = 73 * 365 * 24 * HOUR


@pytest.fixture(scope="module")
def clocked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FakeClock, ForkServer]]:
    """A clock, and a server whose processes follow it."""
    clock = FakeClock(tmp_path_factory.mktemp("clock"))
    server = ForkServer(clock.environment)
    yield clock, server
    server.close()


@pytest.fixture
def clock(clocked: tuple[FakeClock, ForkServer]) -> FakeClock:
    clocked[0].set(0)
    return clocked[0]


@pytest.fixture
def rig(tmp_path: Path, clock: FakeClock, clocked: tuple[FakeClock, ForkServer]) -> Iterator[Rig]:
    """An instance whose daemon follows the fake clock; the tests and the agents keep the real one."""
    made = Rig.create(tmp_path / "instance")
    made.clocked = clocked[1]
    made.start(env=clock.environment)
    yield made
    made.close()


@pytest.fixture
def house(tmp_path: Path, clock: FakeClock, clocked: tuple[FakeClock, ForkServer]) -> Iterator[Desk]:
    """Such an instance with a tool server behind it, which is watched."""
    made = Rig.create(tmp_path / "instance")
    (beside := tmp_path / "beside").mkdir()
    servers = WATCHED.format(python=sys.executable, between=BETWEEN, fake=FAKE, folder=beside)
    made.config.write_text(made.config.read_text() + servers)
    made.clocked = clocked[1]
    yield Desk(made.start(env=clock.environment)).open(wide_policy())
    made.close()


def later(rig: Rig, offset_s: int, cn: str = "worker-a") -> bytes:
    """A good statement for a broker whose clock is so far ahead of ours."""
    at = Instant(now() + offset_s * SECOND)
    value = rig.statement(cn, issued_at=at, not_before=at, expires_at=Instant(at + 600 * SECOND))
    return statement.encode(value)


def is_behind(response: httpx2.Response) -> bool:
    return response.status_code == 503 and response.json() == {"error": "clock_behind"}


def health(rig: Rig) -> dict[str, object]:
    with rig.line() as line:
        told: dict[str, object] = line.get("/health").json()
        return told


def list_envelope(rig: Rig, issued_at: Instant) -> bytes:
    return envelope.encode(Envelope(Instance(rig.name), "list", {"nonce": "n"}, issued_at))


def submit_list(rig: Rig, raw: bytes) -> httpx2.Response:
    return rig.post("/directive/list", pair("envelope", raw, sign(rig.key, NAMESPACE_ADMIN, raw)))


def test_an_hour_forward_shuts_windows_and_an_hour_back_opens_none(rig: Rig, clock: FakeClock) -> None:
    agent = rig.enrol("worker-a")
    id, kept = rig.send(), rig.send(expires_at=Instant(now() + 5 * HOUR * SECOND))
    clock.set(HOUR)
    assert is_miss(agent.consume(id)), "ten minutes have passed, whatever the reason"
    clock.set(0)
    assert is_behind(agent.consume(id))
    assert is_behind(agent.consume(kept)), "until the clock has caught up nothing is decided, the open ones included"
    refused = rig.send_raw(statement.encode(rig.statement()))
    assert (refused.status_code, refused.json()["reason"]) == (409, "clock_behind")
    assert "--accept-clock" in refused.json()["hint"]
    assert health(rig)["clock_behind"] is True
    clock.set(HOUR + 1)
    assert agent.consume(kept).status_code == 200, "and nothing is lost by it"
    assert health(rig)["clock_behind"] is False


def test_a_minute_back_stops_nobody_and_time_stands_still_meanwhile(rig: Rig, clock: FakeClock) -> None:
    agent = rig.enrol("worker-a")
    closing = rig.send(expires_at=Instant(now() + 30 * SECOND))
    clock.set(31)
    assert is_miss(agent.consume(closing))
    clock.set(-60)
    assert agent.consume(rig.send()).status_code == 200
    assert is_miss(agent.consume(closing)), "the clock says that it is open again; the journal knows better"


@pytest.mark.promise("P14")
def test_a_consumed_directive_can_be_revoked_long_after_its_repeat_is_over(rig: Rig, clock: FakeClock) -> None:
    """Nothing is written in between: what its own record forgets must not surprise a decision."""
    agent = rig.enrol("worker-a")
    id = rig.send()
    assert agent.consume(id, "attempt").status_code == 200
    clock.set(125)
    revoke = rig.envelope("revoke", Instant(now() + 125 * SECOND), id=id)
    answer = rig.post("/directive/revoke", pair("envelope", revoke, sign(rig.key, NAMESPACE_ADMIN, revoke)))
    assert answer.json() == {"revoked": False}
    assert rig.daemon
    assert rig.daemon.poll() is None


@pytest.mark.promise("P5")
def test_a_journal_is_read_alike_under_other_limits(rig: Rig, clock: FakeClock) -> None:
    agent = rig.enrol("worker-a")
    id = rig.send()
    agent.consume(id, "attempt")
    clock.set(45)
    revoke = rig.envelope("revoke", Instant(now() + 45 * SECOND), id=id)
    assert rig.post("/directive/revoke", pair("envelope", revoke, sign(rig.key, NAMESPACE_ADMIN, revoke))).is_success
    rig.kill()
    rig.config.write_text(rig.config.read_text().replace("limits: {", "limits: {consume_repeat_s: 0, "))
    rig.start(env=clock.environment)
    assert is_miss(agent.consume(id, "attempt"))


def test_a_scheduled_directive_opens_when_a_suspended_machine_wakes(rig: Rig, clock: FakeClock) -> None:
    agent = rig.enrol("worker-a")
    at = now()
    id = rig.send(not_before=Instant(at + HOUR * SECOND), expires_at=Instant(at + 2 * HOUR * SECOND))
    assert is_miss(agent.consume(id))
    clock.set(HOUR + 1)
    assert agent.consume(id).status_code == 200


def test_a_clock_that_stood_in_2099_reopens_nothing_when_it_is_accepted(rig: Rig, clock: FakeClock) -> None:
    agent = rig.enrol("worker-a")
    used = statement.encode(rig.statement())
    signature = sign(rig.key, NAMESPACE_DIRECTIVE, used)
    id = rig.submit(used, signature).json()["id"]
    active = rig.send()
    ticket = rig.invite("worker-b")
    assert agent.consume(id).status_code == 200
    spent = list_envelope(rig, now())
    assert submit_list(rig, spent).status_code == 200
    clock.set(TO_2099)
    ahead = later(rig, TO_2099)
    signed_ahead = sign(rig.key, NAMESPACE_DIRECTIVE, ahead)
    assert rig.submit(ahead, signed_ahead).status_code == 200, "time passes in the journal: it forgets old tombstones"
    rig.kill()
    clock.set(0)
    rig.start(env=clock.environment)
    assert health(rig)["clock_behind"] is True, "the daemon is up, and says what is wrong"
    assert is_behind(agent.consume(active))
    assert rig.stop() == 0
    rig.start("--accept-clock", env=clock.environment)
    assert health(rig)["clock_behind"] is False
    assert is_miss(agent.consume(active)), "what was active is invalidated"
    assert rig.submit(used, signature).json()["reason"] == "id_seen"
    assert submit_list(rig, spent).json()["reason"] == "envelope_replayed"
    assert rig.submit(ahead, signed_ahead).json()["reason"] == "expiry_beyond_cap"
    assert Agent(rig, "worker-b").redeem(ticket).status_code == 403
    assert agent.consume(rig.send()).status_code == 200, "and it goes on"
    rig.kill()
    rig.start("--accept-clock", env=clock.environment)
    assert any("nothing was to be accepted" in line for line in rig.log), "the flag left in place does nothing"
    assert rig.submit(used, signature).json()["reason"] == "id_seen", "after a further restart too"
    assert submit_list(rig, spent).json()["reason"] == "envelope_replayed"
    kinds = rig.cli("journal", "show", "--json").stdout
    assert kinds.count('"clock_accepted"') - kinds.count('"reason": "clock_accepted"') >= 1
    assert "the journal is whole" in rig.cli("journal", "verify").stderr


def test_a_change_of_signers_seen_while_the_clock_is_behind_is_written_later(rig: Rig, clock: FakeClock) -> None:
    rig.enrol("worker-a")
    clock.set(HOUR)
    assert rig.send_raw(later(rig, HOUR)).status_code == 200
    clock.set(0)
    lines = rig.allowed_signers.read_text()
    rig.allowed_signers.write_text(lines + "# changed\n")
    assert rig.send_raw(statement.encode(rig.statement())).json()["reason"] == "clock_behind"
    before = rig.cli("journal", "show", "--json").stdout.count('"signers_changed"')
    clock.set(HOUR + 1)
    assert rig.send_raw(later(rig, HOUR + 1)).status_code == 200
    rig.stop()
    assert rig.cli("journal", "show", "--json").stdout.count('"signers_changed"') == before + 1


@pytest.mark.promise("P16")
def test_a_certificate_ends_by_the_brokers_clock_on_open_connections_too(rig: Rig, clock: FakeClock) -> None:
    agent = rig.enrol("worker-a")
    assert is_miss(agent.consume("unknown"))
    clock.set(25 * HOUR)
    assert agent.consume("unknown").status_code == 403
    with pytest.raises((httpx2.HTTPError, ssl.SSLError)), agent.client() as anew:
        anew.post("/renew", json={"csr": agent.csr()})


@pytest.mark.parametrize("offset_s", [-HOUR, HOUR])
def test_a_cli_whose_clock_differs_is_told_so(rig: Rig, clock: FakeClock, tmp_path: Path, offset_s: int) -> None:
    rig.enrol("worker-a")
    other = FakeClock(tmp_path / "other")
    other.set(offset_s)
    for words in (("directive", "send", "worker-a", "--instruction", "go", "--yes"), ("directive", "list")):
        told = rig.cli(*words, expect=3, env=other.environment)
        assert "clock" in told.stderr, told.stderr
    assert rig.cli("directive", "list").returncode == 0


@pytest.mark.promise("P21", "P23")
def test_what_time_alone_closes_is_closed_and_told_though_nobody_calls(house: Desk, clock: FakeClock) -> None:
    agent, hold = house.rig.enrol("worker-a"), house.beside / "hold"
    request = asked(agent, "s__echo", {"n": 1})
    assert house.lease(agent, "mail").status_code == 200
    assert code(call(agent, "s__pid")) == ""
    hold.touch()
    with ThreadPoolExecutor(1) as other:
        going = other.submit(call, house.rig.enrol("worker-b"), "s__look", {"paths": []})
        until(lambda: bool(house.reached("look")))
        clock.set(-HOUR)
        hold.unlink()
        assert code(going.result()) == "in_progress", "what came of it can't be written"
    assert [fact.outcome for fact in house.facts(CallEnded)] == ["done"]
    clock.set(HOUR)
    told = agent.get("/inbox?wait=30&requests=1").json()
    assert [one["id"] for one in told["requests"]] == [request]
    assert [(fact.request, fact.reason) for fact in house.facts(RequestEnded)] == [(request, "expired")]
    assert [fact.reason for fact in house.facts(LeaseClosed)] == ["time"]
    assert [fact.outcome for fact in house.facts(CallEnded)] == ["done", "done"]
