"""The units of docs/operating/namespaces.md under a real systemd: two agents, each in its namespace and view."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from tests.rig import LEVER
from tests.system.machine import NEEDED, PACKAGES, REPOSITORY, Machine, booted, required

FOLDER = "/var/lib/lever/demo"
CONFIG = f"{FOLDER}/lever.yaml"
DOCUMENTS = REPOSITORY / "docs" / "operating"
AGENTS = ("agent-a", "agent-b")
EXPOSURE = 1.4
"""What `systemd-analyze security` may say of an agent at most: 0 is least exposed, 10 most."""

# The agent of this test runs the job in its folder and ends. Its `lever` lies where homes and /tmp are hidden.
DROP_IN = f"""[Service]
Type=oneshot
ExecStart=
ExecStart=-/bin/sh -c 'sh job >out 2>&1'
BindReadOnlyPaths={" ".join(sorted({sys.prefix, sys.base_prefix, str(REPOSITORY)} - {"/usr", "/usr/local"}))}
"""
CONNECT = """
import socket
for to in (("10.203.0.1", 8443), ("10.203.0.1", 9600), ("10.203.2.1", 9600), ("10.203.1.1", 9600)):
    try:
        socket.create_connection(to, timeout=0.5).close()
        print("reached", *to)
    except OSError:
        pass
"""


def write(machine: Machine, path: str, content: str) -> None:
    machine.run("sh", "-c", 'mkdir -p "$(dirname "$0")"; printf "%s" "$1" >"$0"', path, content)


def job(machine: Machine, name: str, script: str) -> str:
    """Run a script as this agent: what it printed."""
    machine.run("rm", "-f", f"/var/lib/agents/{name}/out")
    write(machine, f"/var/lib/agents/{name}/job", script)
    machine.run("systemctl", "start", f"lever-agent@{name}.service")
    return machine.run("cat", f"/var/lib/agents/{name}/out").stdout


def set_up(machine: Machine) -> None:
    """What the page says, then an instance, and both agents enrolled."""
    machine.run("install", "-m", "755", str(DOCUMENTS / "netns.sh"), "/usr/local/sbin/")
    for unit in ("lever-netns.service", "lever-agent@.service"):
        machine.run("install", "-m", "644", str(DOCUMENTS / unit), "/etc/systemd/system/")
    write(machine, "/etc/systemd/system/lever-agent@.service.d/test.conf", DROP_IN)
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "enable", "--now", "lever-netns.service")
    machine.run(LEVER, "init", FOLDER, "--name", "demo", "--make-keys", "--listen", "10.203.0.1:8443")
    machine.run(LEVER, "broker", "start", CONFIG)
    for name in AGENTS:
        machine.run("useradd", "--system", name)
        bundle = machine.run(LEVER, "agent", "invite", name, "--json", CONFIG).stdout
        write(machine, f"/var/lib/agents/{name}/bundle.json", bundle)
        machine.run("chown", "-R", name, f"/var/lib/agents/{name}")
        assert "enrolled" in job(machine, name, f"{LEVER} agent enrol --bundle bundle.json")


@pytest.mark.root
@pytest.mark.promise("P18")
def test_agents_in_units_reach_the_door_alone_and_each_is_itself(tmp_path: Path) -> None:
    required((*NEEDED, "ip", "nft"), f"{PACKAGES}, iproute2, nftables")
    with booted(tmp_path) as machine:
        set_up(machine)
        sent = machine.run(LEVER, "directive", "send", "agent-a", "--instruction", "Hi.", "--json", "--yes", CONFIG)
        consume = f"{LEVER} agent consume {json.loads(sent.stdout)['id']}"
        assert "not found" in job(machine, "agent-b", consume)
        assert "Hi." in job(machine, "agent-a", consume)

        identity = "/var/lib/agents/agent-a/.lever/identity/identity.pem"
        there = [identity, f"{FOLDER}/state/operator.sock", f"{FOLDER}/keys", "/run/netns", "/run/systemd/private"]
        machine.run("stat", *there)
        assert job(machine, "agent-b", f"for path in {' '.join(there)}; do test ! -e $path || echo $path; done") == ""
        status = job(machine, "agent-b", "cat /proc/self/status")
        assert re.findall(r"(?m)^Cap\w+:\s*(\w+)$", status) == ["0" * 16] * 5

        machine.run("systemd-run", "--unit=other", sys.executable, "-m", "http.server", "9600")
        answers = ("bash", "-c", "exec 3<>/dev/tcp/10.203.2.1/9600")
        machine.until(
            lambda: not machine.run(*answers, expect=None).returncode, "the other service answers on the host"
        )
        assert job(machine, "agent-b", f"{sys.executable} -c '{CONNECT}'") == "reached 10.203.0.1 8443\n"

        told = machine.run("systemd-analyze", "--no-pager", "security", "lever-agent@agent-b.service").stdout
        assert float(re.findall(r"Overall exposure level for \S+: ([\d.]+)", told)[0]) <= EXPOSURE, told
        machine.run("nft", "delete", "table", "inet", "lever")
        reached = job(machine, "agent-b", f"{sys.executable} -c '{CONNECT}'")
        assert "reached 10.203.0.1 9600" in reached, "it was the rules that held"
