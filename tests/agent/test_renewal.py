"""`renew --loop`: when the next try is due, and what the loop does about what it meets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from broker.wire.names import Instant
from broker.wire.times import SECOND
from lever.agent.enrolment import Done
from lever.agent.failures import Barred, Damaged, NoIdentity
from lever.agent.folder import IdentityFolder
from lever.agent.renewal import NAP_S, Tries, due_at, keep_renewed, told
from tests.agent.setting import HOUR, content, enrol, keys_asked_for, now
from tests.fakes.fake_broker import FakeBroker

BEGIN = Instant(1_000_000 * SECOND)
END = Instant(BEGIN + 24 * HOUR)


@pytest.mark.promise("P35")
@pytest.mark.parametrize(
    ("failures", "chance", "after_s"),
    [
        (1, 0.0, 15),
        (1, 0.999999, 30),
        (2, 0.0, 30),
        (2, 0.999999, 60),
        (3, 0.5, 90),
        (4, 0.999999, 240),
        (5, 0.0, 150),
        (5, 0.999999, 300),
        (1000, 0.0, 150),
        (1000, 0.999999, 300),
    ],
)
def test_a_failed_try_is_followed_by_another_within_minutes(failures: int, chance: float, after_s: int) -> None:
    failed_at = Instant(BEGIN + 13 * HOUR)
    due = due_at(BEGIN, END, Tries(chance, failures, failed_at))
    assert round((due - failed_at) / SECOND) == after_s


@pytest.mark.parametrize(("chance", "hours"), [(0.0, 12.0), (0.5, 12.6), (0.999999, 13.2)])
def test_the_first_try_comes_at_half_life_and_a_little_later(chance: float, hours: float) -> None:
    assert due_at(BEGIN, END, Tries(chance)) == pytest.approx(BEGIN + hours * HOUR, abs=HOUR // 1000)


@pytest.mark.promise("P35")
@pytest.mark.parametrize(
    ("hours", "loud", "left"),
    [(13.0, False, "11 h"), (17.9, False, "6 h"), (18.1, True, "5 h"), (23.5, True, "30 min"), (23.99, True, "36 s")],
)
def test_the_last_quarter_of_the_life_is_said_aloud(hours: float, loud: bool, left: str) -> None:
    at = Instant(BEGIN + round(hours * HOUR))
    line = told("no answer", Tries(0.5, 3, at), at, BEGIN, END)
    assert line.startswith("WARNING: ") is loud
    assert f"the certificate ends in {left}, at 1970-01-13T13:46:40Z" in line
    assert "(3 in a row): no answer; next try in 90 s" in line


class Enough(Exception):
    """The loop did what the test waited for."""


@dataclass
class World:
    """A clock that only sleeping moves, and what was said and done. before_sleep: called with the clock's hours."""

    at: Instant = field(default_factory=now)
    hours: float = 30
    said: list[str] = field(default_factory=list)
    done: list[Done] = field(default_factory=list)
    naps: list[float] = field(default_factory=list)
    before_sleep: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.begun = self.at

    @property
    def passed(self) -> float:
        return (self.at - self.begun) / HOUR

    def sleep(self, seconds: float) -> None:
        assert 0 < seconds <= NAP_S
        self.before_sleep()
        self.naps.append(seconds)
        self.at = Instant(self.at + round(seconds * SECOND) + 1)
        if self.passed > self.hours:
            raise Enough

    def run(self, folder: IdentityFolder) -> None:
        keep_renewed(
            folder,
            clock=lambda: self.at,
            draw=lambda: 0.5,
            sleep=self.sleep,
            say=self.said.append,
            renewed=self.done.append,
        )


@pytest.fixture
def world(broker: FakeBroker) -> World:
    """A world in which the broker's certificates last 24 hours by its clock (TLS itself knows only the real one)."""
    made = World()
    broker.issue = lambda key, cn, generation: broker.ca.sign_agent(
        key, cn, generation, life=timedelta(hours=2 * (made.passed + 12))
    )
    return made


def renewals(broker: FakeBroker) -> int:
    return [call.path for call in broker.calls].count("/renew")


def test_the_loop_renews_at_half_life_and_goes_on(broker: FakeBroker, world: World, enrolled: IdentityFolder) -> None:
    at: list[float] = []
    broker.before = lambda call: at.append(world.passed)
    with pytest.raises(Enough):
        world.run(enrolled)
    assert at == [pytest.approx(12.6, abs=0.01), pytest.approx(25.83, abs=0.01)]
    assert [done.outcome for done in world.done] == ["renewed", "renewed"]
    assert world.said == []


@pytest.mark.promise("P35")
def test_the_loop_tries_again_says_so_and_recovers(broker: FakeBroker, world: World, enrolled: IdentityFolder) -> None:
    broker.calls.clear()
    broker.drops["/renew"] = 3
    world.hours = 14
    with pytest.raises(Enough):
        world.run(enrolled)
    assert [line.split(":")[0] for line in world.said] == [f"renewal failed ({n} in a row)" for n in (1, 2, 3)]
    assert len(world.done) == 1
    assert len(keys_asked_for(broker)) == 1


@pytest.mark.promise("P35")
@pytest.mark.parametrize("gone", [False, True])
def test_the_loop_warns_to_the_end_and_then_says_what_helps(
    broker: FakeBroker, world: World, folder: IdentityFolder, gone: bool
) -> None:
    broker.issue = lambda key, cn, generation: broker.ca.sign_agent(key, cn, generation, life=timedelta(hours=2))
    enrol(folder, broker)
    if gone:
        broker.stop()
    broker.answers["/renew"] = (503, b"{}", {})
    with pytest.raises(Barred, match="only a new invite helps"):
        world.run(folder)
    assert 2 <= world.passed < 2.1
    loud = [line.startswith("WARNING: ") for line in world.said]
    assert loud == sorted(loud), "quiet lines first"
    assert loud.count(True) >= 6, "every five minutes at least, for half an hour"
    assert loud.count(False) >= 6


def test_the_loop_ends_when_the_agent_is_revoked(broker: FakeBroker, world: World, enrolled: IdentityFolder) -> None:
    broker.revoked.add("worker-a")
    with pytest.raises(Barred, match="revoked"):
        world.run(enrolled)
    assert (renewals(broker), world.said) == (1, [])


def test_the_loop_takes_up_an_enrolment_beside_it(broker: FakeBroker, world: World, enrolled: IdentityFolder) -> None:
    broker.answers["/renew"] = (503, b"{}", {})

    def enrol_soon() -> None:
        if world.said and broker.generations["worker-a"] == 1:
            enrol(enrolled, broker)
            broker.calls.clear()
            del broker.answers["/renew"]

    world.before_sleep = enrol_soon
    world.hours = 24.9
    with pytest.raises(Enough):
        world.run(enrolled)
    assert renewals(broker) == 0, "the new certificate's half-life is at hour 25"


@pytest.mark.parametrize("hours", [13, 20])
def test_a_clock_that_is_ahead_makes_the_loop_renew_no_more_often(
    broker: FakeBroker, world: World, enrolled: IdentityFolder, hours: float
) -> None:
    broker.issue = None  # 24 hours from the real time, which is not the loop's
    world.at = world.begun = Instant(world.at + round(hours * HOUR))
    with pytest.raises(Enough):
        world.run(enrolled)
    assert renewals(broker) == 3, "at once, since the clock says so, and then at each half-life"
    assert [line for line in world.said if "clock" not in line] == []
    assert world.said[0].startswith("WARNING: here it is ")


def test_a_clock_that_is_put_right_again_does_not_let_the_certificate_end(
    broker: FakeBroker, world: World, enrolled: IdentityFolder
) -> None:
    broker.issue = None
    begun = world.at
    world.at = world.begun = Instant(begun + 20 * HOUR)

    def put_right() -> None:
        if world.done and world.at > begun + 20 * HOUR:
            world.at = Instant(world.at - 20 * HOUR)
        if world.at > begun + 13 * HOUR and len(world.done) > 1:
            raise Enough

    world.before_sleep = put_right
    world.hours = 60
    with pytest.raises(Enough):
        world.run(enrolled)
    assert world.at < begun + 14 * HOUR, "renewed at the half-life by the right clock, not twenty hours later"


def test_the_loop_ends_when_the_folder_can_not_be_used(world: World, enrolled: IdentityFolder) -> None:
    def damage() -> None:
        enrolled.file.write_bytes((content(enrolled) or b"")[:100])

    world.before_sleep = damage
    with pytest.raises(Damaged):
        world.run(enrolled)


def test_the_loop_needs_an_identity(world: World, folder: IdentityFolder) -> None:
    with pytest.raises(NoIdentity):
        world.run(folder)
