"""Agents in network namespaces, set up by the script of docs/operating/namespaces.md: who reaches what, as whom."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig import LEVER, Rig
from tests.system.machine import REPOSITORY
from tests.system.netns import DOOR, DOOR_PORT, SCRIPT, Host, host, private_folder

PAGE = REPOSITORY / "docs" / "operating" / "namespaces.md"
OTHER_PORT = 9600
UIDS = {"agent-a": 64101, "agent-b": 64102}
A, B, LAN = "10.203.1.2", "10.203.2.2", "192.0.2.7"
FORGED = "forged"
LAST = "last"


class World:
    """A host with a broker and two agents that have enrolled, each from its own namespace and view of the files."""

    def __init__(self, host: Host, folder: Path) -> None:
        self.host = host
        self.rig = Rig.create(folder / "demo")
        listen = self.rig.config.read_text()
        self.rig.config.write_text(re.sub(r"(?m)^listen: .*$", f"listen: {DOOR}:{DOOR_PORT}", listen))
        self.folders = {name: private_folder(folder / name, uid) for name, uid in UIDS.items()}

    def start(self) -> None:
        self.rig.start(wrapper=self.host.network)
        for name in UIDS:
            bundle = self.rig.cli("agent", "invite", name, "--json").stdout
            self.inside(name, LEVER, "agent", "enrol", "--bundle", "-", input=bundle)

    def identity(self, name: str) -> Path:
        return self.folders[name] / ".lever" / "identity" / "identity.pem"

    def inside(
        self, name: str, *argv: str, expect: int | None = 0, input: str | None = None, network: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as this agent, in its network or in another's."""
        run = ("sh", str(SCRIPT), "run", network or name, str(UIDS[name]), str(self.folders[name]))
        return self.host.run(*run, *argv, expect=expect, input=input)

    def consume(self, name: str, id: str, network: str = "") -> str:
        """The kind of what an agent is given for this id; "miss" for the miss."""
        done = self.inside(name, LEVER, "agent", "consume", id, "--json", expect=None, network=network)
        if done.returncode:
            assert (done.returncode, done.stdout) == (3, ""), done.stderr
            assert "not found" in done.stderr
            return "miss"
        kind: str = json.loads(done.stdout)["kind"]
        return kind


@pytest.fixture
def on_host() -> Iterator[Host]:
    with host() as made:
        yield made


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One for all: of the tests that share it, the one that takes the rules away is about what holds without them."""
    with host() as on_host:
        made = World(on_host, tmp_path_factory.mktemp("world"))
        try:
            made.start()
            yield made
        finally:
            made.rig.close()


@pytest.mark.root
@pytest.mark.promise("P18")
def test_each_agent_consumes_its_own_and_what_is_anothers_is_the_miss(world: World) -> None:
    for_a, for_b = world.rig.send("agent-a"), world.rig.send("agent-b")
    assert world.consume("agent-b", for_a) == "miss"
    assert world.consume("agent-a", for_b) == "miss"
    assert world.consume("agent-a", for_a) == "instruction"
    assert world.consume("agent-b", for_b) == "instruction"


@pytest.mark.root
@pytest.mark.promise("P18")
def test_an_agent_finds_no_path_to_another_identity_or_to_the_operator_socket(world: World) -> None:
    rig = world.rig
    hidden = [world.identity("agent-a"), rig.socket, rig.state, rig.key, rig.allowed_signers, Path("/run/netns")]
    assert [path for path in hidden[:-1] if not path.exists()] == []
    seen = [path for path in hidden if not world.inside("agent-b", "test", "-e", str(path), expect=None).returncode]
    assert seen == []
    assert world.inside("agent-b", "test", "-r", str(world.identity("agent-b"))).returncode == 0
    inside = world.inside("agent-b", "sh", "-c", "cat /proc/self/status; ls /proc; env").stdout
    assert re.findall(r"(?m)^Cap\w+:\s*(\w+)$", inside) == ["0" * 16] * 5
    assert "NoNewPrivs:\t1" in inside
    assert str(rig.daemon.pid if rig.daemon else 0) not in re.findall(r"(?m)^\d+$", inside), "a process of the host's"
    assert "SSH_AUTH_SOCK" not in inside
    # A socket without a path would be the network's, and reached from wherever the network is shared.
    listening = world.host.run("cat", "/proc/net/unix").stdout
    assert str(rig.socket) in listening
    assert "@" not in listening


@pytest.mark.root
@pytest.mark.promise("P18")
def test_nothing_of_the_host_is_reached_but_the_door(on_host: Host) -> None:
    host, link_local = on_host, "fe80::1"
    host.run("ip", "address", "add", f"{LAN}/32", "dev", "lo")
    host.run("ip", "address", "add", f"{link_local}/64", "dev", "lever-2", "nodad")
    # What an agent can't do and a container with NET_ADMIN can: more routes, more addresses.
    host.inside("agent-b", "ip", "route", "add", "default", "via", "10.203.2.1")
    host.inside("agent-b", "ip", "address", "add", "fe80::2/64", "dev", "eth0", "nodad")
    others = {DOOR: B, "10.203.2.1": B, "10.203.1.1": B, LAN: B, f"{link_local}%eth0": "fe80::2"}
    with host.service(OTHER_PORT), host.service(DOOR_PORT):
        assert host.connect("", "127.0.0.1", OTHER_PORT) == "you are 127.0.0.1"
        assert host.connect("", DOOR, OTHER_PORT) == f"you are {DOOR}"
        assert host.connect("agent-b", DOOR, DOOR_PORT) == "connected"
        assert host.connect("agent-b", "127.0.0.1", OTHER_PORT) == "ConnectionRefusedError", "a loopback of its own"
        assert [to for to in others if not host.dropped("agent-b", to, OTHER_PORT)] == []
        host.drop_rules()
        found = {to: host.connect("agent-b", to, OTHER_PORT).split("%")[0] for to in others}
        assert found == {to: f"you are {source}" for to, source in others.items()}, "it was the rules that held"


@pytest.mark.root
@pytest.mark.promise("P18")
def test_an_agent_does_not_reach_another_even_when_the_host_forwards(on_host: Host) -> None:
    assert on_host.run("ip", "-n", "agent-b", "route", "show", "default").stdout == "", "no way out by itself"
    for name, number in (("agent-a", 1), ("agent-b", 2)):
        on_host.set(f"lever-{number}", forwarding=1)
        on_host.inside(name, "ip", "route", "add", "default", "via", f"10.203.{number}.1")
    with on_host.service(OTHER_PORT, "agent-a"):
        assert on_host.dropped("agent-b", A, OTHER_PORT)
        assert on_host.drops("forward") > 0
        on_host.drop_rules()
        assert on_host.connect("agent-b", A, OTHER_PORT) == f"you are {B}", "it was the rules that held"


@pytest.mark.root
@pytest.mark.promise("P18")
def test_the_rules_alone_drop_a_forged_source_address(on_host: Host) -> None:
    on_host.inside("agent-b", "ip", "address", "add", f"{A}/32", "dev", "eth0")
    on_host.set("lever-2", rp_filter=0)
    with on_host.service(DOOR_PORT):
        assert on_host.connect("agent-b", DOOR, DOOR_PORT) == "connected"
        assert on_host.drops("input") == 0
        assert on_host.dropped("agent-b", DOOR, DOOR_PORT, source=A)
        assert on_host.drops("input") > 0


@pytest.mark.root
@pytest.mark.promise("P18")
def test_the_kernels_filter_alone_drops_a_forged_source_address(on_host: Host) -> None:
    on_host.inside("agent-b", "ip", "address", "add", f"{A}/32", "dev", "eth0")
    on_host.drop_rules()
    with on_host.service(OTHER_PORT) as service:
        for arrived in ([], [FORGED]):
            on_host.send("agent-b", DOOR, OTHER_PORT, A, FORGED)
            on_host.send("agent-b", DOOR, OTHER_PORT, B, LAST)
            assert service.datagrams_before(LAST) == arrived
            on_host.set("lever-2", rp_filter=0)


@pytest.mark.root
def test_the_host_does_not_tell_by_arp_which_addresses_it_has(on_host: Host) -> None:
    on_host.run("ip", "address", "add", f"{LAN}/32", "dev", "lo")
    on_host.inside("agent-b", "ip", "route", "add", LAN, "dev", "eth0")
    for told in (False, True):
        assert on_host.dropped("agent-b", LAN, OTHER_PORT)
        assert ("lladdr" in on_host.inside("agent-b", "ip", "neighbour", "show", LAN)) == told
        on_host.set("lever-2", arp_ignore=0)
        on_host.inside("agent-b", "ip", "neighbour", "flush", LAN)


@pytest.mark.root
@pytest.mark.promise("P18")
def test_in_anothers_network_and_with_its_address_an_agent_is_still_itself(world: World) -> None:
    host, first, second = world.host, world.rig.send("agent-a"), world.rig.send("agent-a")
    host.drop_rules()
    assert world.consume("agent-b", first, network="agent-a") == "miss"
    with host.service(OTHER_PORT):
        assert host.connect("agent-a", DOOR, OTHER_PORT) == f"you are {A}"
    assert world.consume("agent-a", first, network="agent-b") == "instruction", "the certificate is the identity"
    assert world.consume("agent-a", second) == "instruction"


@pytest.mark.root
def test_what_the_script_made_it_takes_away_again(on_host: Host) -> None:
    on_host.script("remove", "agent-a", "1")
    on_host.script("remove", "agent-b", "2")
    on_host.script("off")
    assert on_host.run("ip", "netns", "list").stdout == ""
    assert on_host.run("nft", "list", "ruleset").stdout == ""
    assert "10.203." not in on_host.run("ip", "address").stdout


def test_the_page_shows_the_script_and_each_verb_of_it() -> None:
    page, script = PAGE.read_text(), SCRIPT.read_text()
    assert "](netns.sh)" in page
    for verb in ("host", "add", "run", "remove", "off"):
        assert f"netns.sh {verb}" in page
        assert re.search(rf"(?m)^{verb}\(\) \{{$", script)
    subprocess.run(["sh", "-n", str(SCRIPT)], check=True)
