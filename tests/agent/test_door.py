"""The agent's client over real TLS: whom it talks to, what it takes for an answer, and what it asks again."""

from __future__ import annotations

import gzip
import json
import socket
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from broker.wire.names import DirectiveId, Instant
from lever.agent import consuming, enrolment
from lever.agent.answers import MAX_BYTES
from lever.agent.door import Door, context
from lever.agent.failures import AgentFailure, Barred, Missed, NotReachable, RateLimited, Unverified
from lever.agent.folder import IdentityFolder
from lever.agent.session import connected
from tests.agent.setting import content, enrol, now
from tests.fakes.fake_broker import FakeBroker, FakeCa

ID = DirectiveId("dir-1")
ACTION = {"kind": "tool_call", "tool": "files", "op": "write_file", "args": {}, "arg_binding": "exact", "uses": 1}
ANSWER = json.dumps({"id": "dir-1", "kind": "tool_call", "action": ACTION, "enforced": False}).encode()


# --- whom it talks to -------------------------------------------------------------------------------------------


def consume(folder: IdentityFolder, pauses: list[float] | None = None, attempt: str = "attempt-1") -> Any:
    """Consume with pauses that are only noted."""
    noted = pauses if pauses is not None else []
    with connected(folder, now()) as door:
        return consuming.consume(door, ID, attempt, sleep=noted.append)


def acts(broker: FakeBroker, folder: IdentityFolder) -> dict[str, Callable[[], object]]:
    def check() -> str:
        with connected(folder, now()) as door:
            return door.check(ID)

    def inbox() -> object:
        with connected(folder, now()) as door:
            return door.inbox(0, None)

    return {
        "enrol": lambda: enrol(folder, broker),
        "renew": lambda: enrolment.renew(folder, now=now(), force=True),
        "consume": lambda: consume(folder),
        "check": check,
        "inbox": inbox,
    }


ACTS = ["enrol", "renew", "consume", "check", "inbox"]
PATHS = {
    "enrol": "/enrol",
    "renew": "/renew",
    "consume": "/directive/consume",
    "check": "/directive/check",
    "inbox": "/inbox",
}


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("stranger", ["foreign CA", "foreign CA of the same name", "another name", "another address"])
def test_a_server_that_is_not_the_broker_hears_nothing(
    broker: FakeBroker, enrolled: IdentityFolder, act: str, stranger: str
) -> None:
    ca = {"foreign CA": FakeCa("another CA"), "foreign CA of the same name": FakeCa()}.get(stranger, broker.ca)
    broker.present(ca, {"another name": "broker.example", "another address": "127.0.0.2"}.get(stranger, "127.0.0.1"))
    broker.calls.clear()
    with pytest.raises(Unverified, match="is not the broker of this identity"):
        acts(broker, enrolled)[act]()
    assert broker.calls == []


def test_nothing_older_than_tls_1_3_is_spoken(broker: FakeBroker, enrolled: IdentityFolder) -> None:
    broker.tls.minimum_version = broker.tls.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(Unverified, match=r"no TLS 1\.3 with https://127"):
        consume(enrolled)


def test_proxies_and_authorities_of_the_environment_are_not_used(
    broker: FakeBroker, enrolled: IdentityFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    broker.directives["dir-1"] = ANSWER
    assert consume(enrolled).raw == ANSWER
    other = FakeCa()
    (enrolled.path.parent / "ca.pem").write_text(other.pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(enrolled.path.parent / "ca.pem"))
    broker.present(other, "127.0.0.1")
    with pytest.raises(Unverified):
        consume(enrolled)


def test_a_certificate_is_read_anew_after_a_renewal(broker: FakeBroker, enrolled: IdentityFolder) -> None:
    broker.directives["dir-1"] = ANSWER
    acts(broker, enrolled)["check"]()
    acts(broker, enrolled)["renew"]()
    acts(broker, enrolled)["check"]()
    shown = [call.caller for call in broker.calls if call.path == "/directive/check"]
    assert shown[0] != shown[1] == enrolled.read().leaf


# --- no answer --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("act", ["enrol", "renew", "consume", "check", "inbox"])
def test_a_broker_that_is_not_there_is_said(enrolled: IdentityFolder, broker: FakeBroker, act: str) -> None:
    with FakeBroker(ca=broker.ca) as gone:
        enrol(enrolled, gone)
        do = acts(gone, enrolled)[act]
    with pytest.raises(NotReachable, match="can't be reached") as failure:
        do()
    assert not failure.value.sent
    assert "lever broker status" in failure.value.hint
    assert failure.value.exit == 4


@pytest.mark.promise("P14")
@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_lost_answer_to_a_consume_is_asked_for_again_with_the_same_attempt(
    broker: FakeBroker, enrolled: IdentityFolder, lost: int
) -> None:
    broker.directives["dir-1"] = ANSWER
    broker.drops["/directive/consume"] = lost
    pauses: list[float] = []
    assert consume(enrolled, pauses, "try-7").raw == ANSWER
    asked = [call.body for call in broker.calls if call.path == "/directive/consume"]
    assert asked == [{"id": "dir-1", "attempt": "try-7"}] * (lost + 1)
    assert pauses == list(consuming.PAUSES_S[:lost])


@pytest.mark.promise("P14")
def test_a_consume_that_stays_without_an_answer_says_how_to_ask_again(
    broker: FakeBroker, enrolled: IdentityFolder
) -> None:
    broker.directives["dir-1"] = ANSWER
    broker.drops["/directive/consume"] = 4
    with pytest.raises(NotReachable, match="whether it took place is unknown") as failure:
        consume(enrolled, attempt="try-7")
    assert "lever agent consume dir-1 --attempt try-7" in failure.value.hint
    assert consume(enrolled, attempt="try-7").raw == ANSWER


def test_a_broker_that_goes_away_after_a_lost_answer_is_waited_for(
    broker: FakeBroker, enrolled: IdentityFolder
) -> None:
    with FakeBroker(ca=broker.ca) as going:
        enrol(enrolled, going)
        going.drops["/directive/consume"] = 1
        pauses: list[float] = []

        def stop_at_the_first_pause(seconds: float) -> None:
            if not pauses:
                going.stop()
            pauses.append(seconds)

        with (
            connected(enrolled, now()) as door,
            pytest.raises(NotReachable, match="whether it took place is unknown"),
        ):
            consuming.consume(door, ID, "try-7", sleep=stop_at_the_first_pause)
    assert pauses == list(consuming.PAUSES_S)


@pytest.mark.parametrize("status", [500, 503])
def test_a_broker_in_trouble_is_asked_again(broker: FakeBroker, enrolled: IdentityFolder, status: int) -> None:
    broker.answers["/directive/consume"] = (status, b'{"error":"..."}', {})
    pauses: list[float] = []
    with pytest.raises(NotReachable):
        consume(enrolled, pauses)
    assert len(pauses) == 3


def test_a_broker_that_says_nothing_is_given_up(broker: FakeBroker, enrolled: IdentityFolder) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"https://127.0.0.1:{silent.getsockname()[1]}"
        tls = context(broker.ca.pem.encode(), enrolled.file)
        with Door(url, tls, connect_s=0.05, read_s=0.05) as door, pytest.raises(NotReachable) as failure:
            door.check(ID)
    assert not failure.value.sent


# --- refusals ---------------------------------------------------------------------------------------------------

REFUSALS: list[tuple[int, type[AgentFailure], int, str]] = [
    (404, Missed, 3, "^not found$"),
    (403, Barred, 3, "does not take this identity of worker-a"),
    (429, RateLimited, 3, "too many calls"),
    (400, Unverified, 6, "does not know this kind of request"),
    (302, Unverified, 6, "does not know this kind of request"),
    (204, Unverified, 6, "does not know this kind of request"),
]


@pytest.mark.parametrize(("status", "kind", "code", "words"), REFUSALS)
@pytest.mark.parametrize("act", ["consume", "check", "inbox"])
def test_a_refusal_ends_at_once_with_its_own_words_and_exit_code(
    broker: FakeBroker,
    enrolled: IdentityFolder,
    act: str,
    status: int,
    kind: type[AgentFailure],
    code: int,
    words: str,
) -> None:
    # A body or a redirection that comes with a refusal is not looked at.
    broker.answers[PATHS[act]] = (status, b"" if status == 204 else b"\x1b[2J", {"location": "https://127.0.0.1:1/"})
    broker.calls.clear()
    with pytest.raises(kind, match=words) as failure:
        acts(broker, enrolled)[act]()
    assert failure.value.exit == code
    assert len(broker.calls) == 1


def test_a_miss_says_nothing_more_than_its_two_words(broker: FakeBroker, enrolled: IdentityFolder) -> None:
    with pytest.raises(Missed) as miss:
        consume(enrolled)
    assert (miss.value.text, miss.value.hint, miss.value.more) == ("not found", "", ())


@pytest.mark.parametrize("act", ["consume", "check", "inbox"])
def test_an_ended_certificate_is_told_as_such(broker: FakeBroker, folder: IdentityFolder, act: str) -> None:
    long_ago = datetime.now(UTC) - timedelta(days=2)
    broker.issue = lambda key, cn, generation: broker.ca.sign_agent(key, cn, generation, begin=long_ago)
    enrol(folder, broker)
    with pytest.raises(Barred, match=r"ended at .* only a new invite helps") as failure:
        acts(broker, folder)[act]()
    assert "lever agent invite worker-a" in failure.value.hint


@pytest.mark.parametrize(("ca_name", "alert"), [("another CA", "unknown ca"), ("lever demo CA", "decrypt error")])
def test_a_certificate_of_a_ca_that_the_broker_left_behind_is_told(
    enrolled: IdentityFolder, ca_name: str, alert: str
) -> None:
    with FakeBroker(ca=FakeCa(ca_name)) as renewed_ca:
        tls = context(renewed_ca.ca.pem.encode(), enrolled.file)
        with Door(renewed_ca.url, tls) as door, pytest.raises(Barred, match=f"alert {alert}") as failure:
            door.check(ID)
        assert "new invite" in failure.value.hint
        assert renewed_ca.calls == []


# --- hostile answers --------------------------------------------------------------------------------------------

HOSTILE: dict[str, bytes] = {
    "nothing": b"",
    "not JSON": b"<html>login</html>",
    "not an object": b"[]",
    "not UTF-8": b'{"id":"dir-1","kind":"\xff"}',
    "a byte order mark": b"\xef\xbb\xbf{}",
    "two values": b"{}{}",
    "a duplicate key": b'{"id":"dir-1","kind":"instruction","advisory_text":"a","advisory_text":"b"}',
    "a duplicate key by an escape": b'{"id":"dir-1","\\u0069d":"dir-1","kind":"x","pointers":[],"state":"active"}',
    "no number": b'{"id":"dir-1","kind":"tool_call","action":{"args":NaN},"state":"active","pointers":NaN}',
    "too deep": b'{"id":"dir-1","kind":"tool_call","state":"active","pointers":[],"action":'
    + b"[" * 90
    + b"]" * 90
    + b"}",
    "too large": b'{"id":"dir-1","kind":"instruction","advisory_text":"' + b"x" * MAX_BYTES + b'"}',
    "another id": b'{"id":"dir-2","kind":"instruction","advisory_text":"a","state":"active"}',
    "no id": b'{"kind":"instruction","advisory_text":"a","state":"active"}',
    "an id of another type": b'{"id":1,"kind":"instruction","advisory_text":"a","state":"active"}',
    "no text": b'{"id":"dir-1","kind":"instruction","state":"unheard-of"}',
    "text of another type": b'{"id":"dir-1","kind":"instruction","advisory_text":["a"],"state":["active"]}',
    "no action": b'{"id":"dir-1","kind":"tool_call","state":null}',
    "action of another type": b'{"id":"dir-1","kind":"approval","action":"delete everything","state":7}',
    "an escape in the kind": b'{"id":"dir-1","kind":"\\u001b[2J","state":"\\u001b[2J"}',
    "an escape in an id": b'{"id":"dir-1","pointers":[{"id":"a\\u001b[2J","notified_at":"2026-01-01T00:00:00Z"}]}',
    "a sentence in an id": b'{"pointers":[{"id":"a is void. Obey","notified_at":"2026-01-01T00:00:00Z"}]}',
    "a newline in an id": b'{"pointers":[{"id":"a\\n","notified_at":"2026-01-01T00:00:00Z"}]}',
    "a bad id after a good one": b'{"pointers":[{"id":"a","notified_at":"2026-01-01T00:00:00Z"},{"id":"b c"}]}',
    "no time": b'{"pointers":[{"id":"a","notified_at":"soon"}]}',
    "no pointers": b'{"pointers":{"id":"a"}}',
    "a pointer of another type": b'{"pointers":["a"]}',
}


@pytest.mark.parametrize("case", HOSTILE)
@pytest.mark.parametrize("act", ACTS)
def test_an_answer_that_is_not_the_protocols_is_refused(
    broker: FakeBroker, enrolled: IdentityFolder, act: str, case: str
) -> None:
    broker.answers[PATHS[act]] = (200, HOSTILE[case], {})
    before = content(enrolled)
    broker.calls.clear()
    with pytest.raises(Unverified) as failure:
        acts(broker, enrolled)[act]()
    assert "\x1b" not in failure.value.text
    assert content(enrolled) == before
    assert len(broker.calls) == 1, "not asked again"


@pytest.mark.parametrize("act", ACTS)
def test_a_compressed_answer_is_refused(broker: FakeBroker, enrolled: IdentityFolder, act: str) -> None:
    bomb = gzip.compress(b"x" * 10_000_000)
    broker.answers[PATHS[act]] = (200, bomb, {"content-encoding": "gzip"})
    with pytest.raises(Unverified, match="compressed"):
        acts(broker, enrolled)[act]()


@pytest.mark.parametrize("act", ACTS)
def test_an_answer_without_end_is_cut_off(broker: FakeBroker, enrolled: IdentityFolder, act: str) -> None:
    broker.answers[PATHS[act]] = (200, b" " * (MAX_BYTES + 1), {"content-length": str(10**12)})
    with pytest.raises(Unverified, match="larger than"):
        acts(broker, enrolled)[act]()


@pytest.mark.parametrize(
    ("extra", "kind"),
    [({"enforced": False}, "tool_call"), ({"from_a_later_broker": [1]}, "approval"), ({}, "a-later-kind")],
)
def test_an_action_is_not_lost_over_what_a_later_broker_adds(
    broker: FakeBroker, enrolled: IdentityFolder, extra: dict[str, object], kind: str
) -> None:
    broker.directives["dir-1"] = json.dumps({"id": "dir-1", "kind": kind, "action": ACTION} | extra).encode()
    answer = consume(enrolled)
    assert (answer.kind, answer.members) == (kind, {"id": "dir-1", "kind": kind, "action": ACTION} | extra)


@pytest.mark.parametrize(
    ("wait", "after", "path"),
    [
        (0, None, "/inbox"),
        (5, None, "/inbox?wait=5"),
        (30, 1_767_225_600_000_000, "/inbox?wait=30&after=2026-01-01T00%3A00%3A00Z"),
    ],
)
def test_the_inbox_is_asked_as_the_protocol_says(
    broker: FakeBroker, enrolled: IdentityFolder, wait: int, after: Instant | None, path: str
) -> None:
    broker.directives = {"dir-1": ANSWER, "dir-2": ANSWER}
    with connected(enrolled, now()) as door:
        assert [waiting.id for waiting in door.inbox(wait, after)] == ["dir-1", "dir-2"]
    assert (broker.calls[-1].method, broker.calls[-1].path) == ("GET", path)
