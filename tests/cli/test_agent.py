"""`lever agent`, the operator's side: a ticket that only the bundle knows, in a file that only its owner reads."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from broker.wire import bundle, envelope
from broker.wire.names import NAMESPACE_ADMIN
from lever.exits import Exit
from tests.cli.conftest import Cli
from tests.cli.test_directive import body_for, signed_by
from tests.fakes.operator_socket import operator_socket

CA = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
INVITED = (
    200,
    {"cn": "worker-a", "broker_ca": CA, "broker_url": "https://hub:8443", "expires_at": "2026-01-01T00:10:00Z"},
)
AGENT = {
    "cn": "worker-a", "generation": 2, "state": "enrolled", "active_directives": 1,
    "certificate": {"not_after": "2026-01-02T00:00:00Z", "renewals": 3}, "last_seen_at": None,
}  # fmt: skip


@pytest.fixture
def path() -> Iterator[Path]:
    """Where a socket may be, short enough for every system."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    yield folder / "operator.sock"
    shutil.rmtree(folder)


def test_invite_writes_a_bundle_whose_ticket_the_broker_knows_by_digest_alone(
    cli: Cli, instance: Path, path: Path
) -> None:
    with operator_socket(path, admin_agent_invite=INVITED) as broker:
        words = ("agent", "invite", "worker-a", "--out", "w.json", "--expires", "5m")
        done = cli(*words, "--config", instance, "--socket", path)
    assert done.status == 0, done.stderr
    out = cli.folder / "w.json"
    assert out.stat().st_mode & 0o777 == 0o600
    made = bundle.parse(out.read_bytes())
    assert (made.agent_cn, made.broker_url, made.broker_ca) == ("worker-a", "https://hub:8443", CA)
    raw = signed_by(instance, "envelope", body_for(broker, "/admin/agent_invite"), NAMESPACE_ADMIN)
    value = envelope.read(raw)
    assert value.params["ticket_digest"] == sha256(made.ticket.encode()).hexdigest()
    assert (value.op, value.params["cn"], value.params["expires_s"]) == ("agent_invite", "worker-a", "300")
    assert raw.decode() in done.stderr.splitlines()
    assert made.ticket not in json.dumps(broker.asked) + done.stderr + done.stdout
    assert len(made.ticket) == 43, "32 random bytes"


def test_invite_prints_the_bundle_as_json_and_writes_nothing(cli: Cli, instance: Path, path: Path) -> None:
    before = set(cli.folder.iterdir())
    with operator_socket(path, admin_agent_invite=INVITED):
        done = cli("agent", "invite", "worker-a", "--json", "--config", instance, "--socket", path)
    assert bundle.parse(done.stdout.encode()).agent_cn == "worker-a"
    assert set(cli.folder.iterdir()) == before


def test_invite_names_the_file_after_the_agent(cli: Cli, instance: Path, path: Path) -> None:
    with operator_socket(path, admin_agent_invite=INVITED):
        done = cli("agent", "invite", "worker-a", "--config", instance, "--socket", path)
    assert "wrote bootstrap-worker-a.json" in done.stderr
    assert (cli.folder / "bootstrap-worker-a.json").is_file()


@pytest.mark.parametrize("kind", ["file", "link", "dangling link"])
def test_out_is_never_written_over_or_through_anything(cli: Cli, instance: Path, path: Path, kind: str) -> None:
    out, victim = cli.folder / "w.json", cli.folder / "victim"
    if kind == "file":
        out.write_text("mine")
    else:
        out.symlink_to(victim)
    if kind == "link":
        victim.write_text("mine")
    with operator_socket(path, admin_agent_invite=INVITED) as broker:
        done = cli("agent", "invite", "worker-a", "--out", out, "--config", instance, "--socket", path)
    assert done.status == Exit.REFUSED
    assert "nothing was changed" in done.stderr
    assert broker.asked == [], "no ticket is made that nobody can have"
    assert [p.read_text() for p in (out, victim) if p.exists()] == ["mine"] * {"file": 1, "link": 2}.get(kind, 0)


@pytest.mark.parametrize(
    "answer",
    [(409, {"error": "no", "reason": "reserved_name", "hint": "h"}), (200, {"cn": "worker-a"}), (500, {"error": "x"})],
    ids=["refused", "no bundle in it", "stopped"],
)
def test_an_invite_that_failed_leaves_no_file(cli: Cli, instance: Path, path: Path, answer: tuple[int, object]) -> None:
    with operator_socket(path, admin_agent_invite=answer):
        done = cli("agent", "invite", "worker-a", "--out", "w.json", "--config", instance, "--socket", path)
    assert done.status != 0
    assert not (cli.folder / "w.json").exists()


def test_list_and_show(cli: Cli, instance: Path, path: Path) -> None:
    more = ("--config", instance, "--socket", path)
    invited = {"cn": "worker-b", "generation": 0, "state": "invited", "certificate": None, "active_directives": 0}
    with operator_socket(path, admin_agent_list=(200, {"agents": [AGENT, invited]})):
        listed, data = cli("agent", "list", *more), cli("agent", "list", *more, "--json")
    assert [line.split()[0] for line in listed.stdout.splitlines()] == ["AGENT", "worker-a", "worker-b"]
    assert json.loads(data.stdout) == {"agents": [AGENT, invited]}
    with operator_socket(path, admin_agent_show=(200, {"agents": [AGENT]})):
        assert "certificate until  2026-01-02T00:00:00Z" in cli("agent", "show", "worker-a", *more).stdout
    with operator_socket(path, admin_agent_show=(200, {"agents": []})):
        assert cli("agent", "show", "worker-a", *more).status == Exit.REFUSED


def test_the_list_fits_a_terminal_of_80_columns(cli: Cli, instance: Path, path: Path) -> None:
    one = AGENT | {"last_seen_at": "2026-01-01T00:00:00.123456Z"}
    with operator_socket(path, admin_agent_list=(200, {"agents": [one]})):
        ended = cli.on_terminal("agent", "list", "--config", instance, "--socket", path, env={"NO_COLOR": "1"})
    lines = ended.screen.replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines()
    assert max(map(len, lines)) <= 80


def test_revoke(cli: Cli, instance: Path, path: Path) -> None:
    words = ("agent", "revoke", "worker-a", "--config", instance, "--socket", path)
    with operator_socket(path, admin_agent_revoke=(200, {"revoked": True})) as broker:
        assert cli(*words).stdout == "revoked worker-a\n"
    value = envelope.read(signed_by(instance, "envelope", body_for(broker, "/admin/agent_revoke"), NAMESPACE_ADMIN))
    assert (value.op, value.params["cn"]) == ("agent_revoke", "worker-a")
    with operator_socket(path, admin_agent_revoke=(200, {"revoked": False})):
        assert cli(*words).status == Exit.REFUSED


@pytest.mark.parametrize(("verb", "done"), [("pause", "paused"), ("resume", "resumed")])
def test_a_pause_and_its_end_are_signed_and_said(cli: Cli, instance: Path, path: Path, verb: str, done: str) -> None:
    route = f"admin_agent_{verb}"
    with operator_socket(path, **{route: (200, {done: True})}) as broker:
        told = cli("agent", verb, "worker-a", "--config", instance, "--socket", path)
    assert (told.status, told.stdout) == (0, f"{done} worker-a\n")
    value = envelope.read(signed_by(instance, "envelope", body_for(broker, f"/admin/agent_{verb}"), NAMESPACE_ADMIN))
    assert (value.op, value.params["cn"]) == (f"agent_{verb}", "worker-a")
    with operator_socket(path, **{route: (200, {done: False})}):
        told = cli("agent", verb, "worker-a", "--config", instance, "--socket", path)
    assert told.status == Exit.REFUSED
    assert f"nothing to {verb} of worker-a" in told.stderr
    assert "lever agent show worker-a" in told.stderr


def test_what_waits_for_an_agent_is_shown_below_it(cli: Cli, instance: Path, path: Path) -> None:
    waits = {
        "id": "d-1", "state": "active", "kind": "instruction", "target": {"cn": "worker-a", "generation": 2},
        "expires_at": "2126-01-01T00:00:00Z", "pointer": {"state": "delivered", "attempts": 1},
    }  # fmt: skip
    with operator_socket(path, admin_agent_show=(200, {"agents": [AGENT | {"state": "paused", "pending": [waits]}]})):
        told = cli("agent", "show", "worker-a", "--config", instance, "--socket", path)
    assert "you paused it: lever agent resume" in told.stdout
    assert any(line.startswith("d-1") and "yes" in line for line in told.stdout.splitlines())
