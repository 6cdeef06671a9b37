"""`lever lease`: seconds, not minutes; never longer than the policy in force says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.wire import statement
from broker.wire.names import NAMESPACE_DIRECTIVE
from broker.wire.statement import LeaseAction
from lever.exits import Exit
from tests.cli import said
from tests.cli.conftest import Cli, Done
from tests.cli.said import RESOLVED, a_policy, in_force
from tests.cli.test_directive import body_for, signed_by
from tests.fakes.operator_socket import OperatorSocket, operator_socket

OPENED = (200, {"id": "lease-1", "granted": True, "request_id": None})
SHORT = in_force(instance=a_policy(accounts={"mail": {"lease_seconds": 70, "lease_operations": 8}}))
LEASE = {
    "lease": "lease-1", "agent": {"cn": "worker-a", "generation": 3}, "account": "mail", "run": "run-1", "seconds": 90,
    "operations": 20, "used": 4, "first_read_at": None, "closes_at": "2026-01-01T00:01:00Z", "fingerprint": "SHA256:x",
}  # fmt: skip


@pytest.fixture
def path() -> Iterator[Path]:
    with said.socket_folder() as path:
        yield path


def opened(
    cli: Cli, instance: Path, path: Path, *words: str, policies: tuple[int, Any] = SHORT, account: str = "mail"
) -> tuple[Done, OperatorSocket]:
    with operator_socket(
        path, directive_resolve=RESOLVED, directive_send=OPENED, admin_policy_show=policies,
        admin_agent_show=(200, {"agents": [{"cn": "worker-a", "tenant": "t", "project": None}]}),
    ) as broker:  # fmt: skip
        done = cli("lease", "open", "worker-a", account, *words, "--config", instance, "--socket", path)
    return done, broker


def action(broker: OperatorSocket, instance: Path) -> statement.Action:
    body = body_for(broker, "/directive/send")
    return statement.read(signed_by(instance, "statement", body, NAMESPACE_DIRECTIVE)).action


@pytest.mark.promise("P21")
@pytest.mark.parametrize(
    ("words", "policies", "seconds", "operations"),
    [
        ((), in_force(instance=a_policy()), 90, 20),
        ((), SHORT, 70, 8),
        (("--minutes", "1"), SHORT, 60, 8),
        (("--minutes", "1440"), SHORT, 70, 8),
        (("--minutes", "1440"), in_force(instance=a_policy()), 90, 20),
        (("--operations", "3"), SHORT, 70, 3),
        (("--operations", "100"), SHORT, 70, 8),
    ],
)
def test_a_lease_is_as_long_as_the_policy_says_and_options_only_shorten(
    cli: Cli, instance: Path, path: Path, words: tuple[str, ...], policies: Any, seconds: int, operations: int
) -> None:
    done, broker = opened(cli, instance, path, *words, "--json", policies=policies)
    assert done.status == 0, done.stderr
    assert action(broker, instance) == LeaseAction("mail", seconds, operations)
    told = json.loads(done.stdout)
    assert (told["seconds"], told["operations"]) == (seconds, operations)
    assert told.get("deprecated") == ("minutes" if "--minutes" in words else None)
    assert ("deprecated" in done.stderr) is ("--minutes" in words)
    assert f'reads of account "mail"\n    | {operations} at most, in {seconds} s' in done.stderr


@pytest.mark.promise("P21")
@pytest.mark.parametrize("value", ["0", "-1", "1.5", "true", "soon", ""])
@pytest.mark.parametrize("option", ["--minutes", "--operations"])
def test_what_is_no_count_is_refused(cli: Cli, instance: Path, path: Path, option: str, value: str) -> None:
    done, broker = opened(cli, instance, path, option, value)
    assert done.status == Exit.USAGE
    assert broker.asked == []


def test_every_layer_shortens(cli: Cli, instance: Path, path: Path) -> None:
    layers = {"tenant__t": 40, "tenant__other": 1, "agent__worker-a": 50}
    policies = {scope: a_policy(accounts={"mail": {"lease_seconds": s}}) for scope, s in layers.items()}
    done, broker = opened(cli, instance, path, policies=in_force(instance=a_policy(), **policies))
    assert done.status == 0, done.stderr
    assert action(broker, instance) == LeaseAction("mail", 40, 20)


def test_a_layer_that_can_not_be_known_is_told(cli: Cli, instance: Path, path: Path) -> None:
    policies = in_force(instance=a_policy(), tenant__t=a_policy(accounts={"mail": {"lease_seconds": 1}}))
    words = ("lease", "open", "worker-a", "mail", "--config", instance, "--socket", path)
    with operator_socket(
        path, directive_resolve=RESOLVED, directive_send=OPENED, admin_policy_show=policies,
        admin_agent_show=(200, {"agents": [{"cn": "worker-a"}]}),
    ):  # fmt: skip
        done = cli(*words)
    assert (done.status, "these layers are left out" in done.stderr) == (0, True)


@pytest.mark.parametrize(
    ("account", "policies", "why"),
    [
        ("payroll", in_force(instance=a_policy()), "each read is its own act"),
        ("elsewhere", in_force(instance=a_policy()), "the instance's policy knows no account elsewhere"),
        (
            "elsewhere",
            in_force(instance=a_policy(), **{"agent__worker-a": a_policy(accounts={"elsewhere": {}})}),
            "the instance's policy knows no account elsewhere",
        ),
        ("mail", in_force(), "no policy is in force"),
    ],
)
def test_no_lease_of_what_has_none(cli: Cli, instance: Path, path: Path, account: str, policies: Any, why: str) -> None:
    done, broker = opened(cli, instance, path, policies=policies, account=account)
    assert (done.status, why in done.stderr) == (Exit.REFUSED, True), done.stderr
    assert "/directive/send" not in [route for route, _ in broker.asked]


def test_a_policy_that_is_not_the_one_of_its_digest_is_not_believed(cli: Cli, instance: Path, path: Path) -> None:
    status, body = in_force(instance=a_policy())
    body["policies"][0]["digest"] = "00" * 32
    done, _ = opened(cli, instance, path, policies=(status, body))
    assert done.status == Exit.VERIFICATION_FAILED


ENDED = {
    "lease": "0d1f7c3e-6a58-4a5e-9f3b-1f2f6f1c9a55", "agent": {"cn": "worker-a", "generation": 3}, "account": "mail",
    "seconds": 90, "operations": 20, "used": 7, "used_s": 61, "reason": "run over",
}  # fmt: skip


def test_list_all_tells_how_leases_ended(cli: Cli, instance: Path, path: Path) -> None:
    more = ("--config", instance, "--socket", path)
    with operator_socket(path, admin_lease_list=(200, {"leases": [LEASE], "closed": [ENDED]})):
        plain, every = cli("lease", "list", *more), cli("lease", "list", "--all", *more)
        data = cli("lease", "list", "--all", "--json", *more)
        screen = cli.on_terminal("lease", "list", "--all", *more, env={"NO_COLOR": "1"}).screen
    assert "run over" not in plain.stdout
    (line,) = (line for line in every.stdout.splitlines() if "run over" in line)
    assert line.split() == [ENDED["lease"], "worker-a/3", "mail", "7/20", "61/90", "run", "over"]
    assert json.loads(data.stdout) == {"leases": [LEASE], "closed": [ENDED]}
    assert max(map(len, screen.replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines())) <= 80


def test_list_and_close(cli: Cli, instance: Path, path: Path) -> None:
    more = ("--config", instance, "--socket", path)
    with operator_socket(
        path, admin_lease_list=(200, {"leases": [LEASE]}), admin_lease_close=(200, {"closed": True})
    ) as broker:  # fmt: skip
        listed, data = cli("lease", "list", *more), cli("lease", "list", "--json", *more)
        ended = cli.on_terminal("lease", "list", *more, env={"NO_COLOR": "1"})
        assert cli("lease", "close", "lease-1", *more).stdout == "closed lease-1\n"
    assert "4/20" in listed.stdout
    assert json.loads(data.stdout) == {"leases": [LEASE]}
    assert max(map(len, ended.screen.replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines())) <= 80
    assert body_for(broker, "/admin/lease_close")
    with operator_socket(path, admin_lease_close=(200, {"closed": False})):  # of a broker that tells no more
        done = cli("lease", "close", "lease-1", *more)
    assert (done.status, done.stdout) == (0, "no lease lease-1 is open\n")
