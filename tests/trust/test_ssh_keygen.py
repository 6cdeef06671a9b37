"""The process around ssh-keygen: bounded, clean, and gone afterwards, whatever the program does."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from broker.errors import Unavailable
from broker.trust.operator import OperatorTrust
from broker.trust.ssh_keygen import Question, SshKeygen
from broker.wire.names import NAMESPACE_DIRECTIVE, Instance, Instant
from tests.rig import now, sign
from tests.trust.programs import counted, program

DEMO = Instance("demo")
RAW = b"the statement"
GOOD = f'Good \\"{NAMESPACE_DIRECTIVE}\\" signature for operator@demo with ED25519 key SHA256:{"A" * 43}'
QUESTION = Question(b"", "operator@demo", NAMESPACE_DIRECTIVE, RAW, b"a signature", Instant(1_900_000_000_123_456))


def is_running(pid: int) -> bool:
    """Whether there is such a process; an orphan that nobody waits for counts as gone."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except FileNotFoundError:
        return not Path("/proc/self").exists()


def is_reaped(pid: int) -> bool:
    """Whether a process that was our child has been waited for."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return True
    return False


def open_files() -> set[str]:
    return set(os.listdir("/dev/fd"))


async def asked(executable: str, timeout_s: float = 20.0) -> object:
    keygen = SshKeygen(executable, timeout_s=timeout_s)
    try:
        return await keygen.verify(QUESTION)
    finally:
        await keygen.close()


@pytest.mark.parametrize(
    "script",
    [
        "exec sleep 600",
        "exec >&-; exec sleep 600",  # says its last word and stays
        "trap '' TERM INT HUP; while :; do sleep 0.1; done",
        "while :; do echo Good; done",
        'sleep 600 & echo $! >> "$0.pids"; wait',
        'sleep 600 & echo $! >> "$0.pids"; exit 0',
    ],
    ids=["silent", "mute", "deaf", "talkative", "parent", "deserter"],
)
async def test_what_does_not_end_is_ended_with_all_that_it_started(tmp_path: Path, script: str) -> None:
    hanging = program(tmp_path / "hanging", f'echo $$ > "$0.pids"\n{script}')
    before = open_files()
    with pytest.raises(Unavailable, match="did not end within"):
        await asked(hanging, timeout_s=0.3)
    pids = [int(pid) for pid in (tmp_path / "hanging.pids").read_text().split()]
    assert pids
    assert is_reaped(pids[0])
    async with asyncio.timeout(20):  # an orphan goes a moment after the signal
        while any(is_running(pid) for pid in pids):
            await asyncio.sleep(0.01)
    assert not open_files() - before


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("exit 0", "status 0 but did not say"),
        ("echo 'Good \"x\" signature for operator@demo with ED25519 key SHA256:abc'; exit 0", "did not say"),
        (f'echo "{GOOD}" | sed s/directive@/admin@/', "did not say"),
        (f'echo "{GOOD}" | sed s/@demo/@prod/', "did not say"),
        (f'echo "{GOOD}"; echo "{GOOD}"', "did not say"),
        ("kill -SEGV $$", "status -11"),
        ("exit 1", "status 1"),
        ("echo 'Invalid \"verify-time\" option' >&2; exit 255", "too old"),
    ],
)
async def test_an_answer_that_is_none_is_neither_a_yes_nor_a_no(
    allowed: Path, first: Path, tmp_path: Path, script: str, reason: str
) -> None:
    trust = OperatorTrust(allowed, DEMO, ssh_keygen=program(tmp_path / "odd", script))
    with pytest.raises(Unavailable, match=reason):
        await trust.verify(RAW, sign(first, NAMESPACE_DIRECTIVE, RAW), NAMESPACE_DIRECTIVE, now())


@pytest.mark.parametrize("name", ["no-such-program-anywhere", "not-executable"])
async def test_a_missing_ssh_keygen_is_unavailable_and_leaves_nothing_open(
    allowed: Path, tmp_path: Path, name: str
) -> None:
    (tmp_path / "not-executable").write_text("#!/bin/sh\nexit 0\n")
    executable = str(tmp_path / name) if name == "not-executable" else name
    before = open_files()
    with pytest.raises(Unavailable, match="can't be run"):
        await asked(executable)
    assert not open_files() - before
    found = await OperatorTrust(allowed, DEMO, ssh_keygen=executable).diagnose(now())
    assert [finding.code for finding in found] == ["ssh_keygen_unavailable"]


async def test_the_keygengets_fixed_words_the_bytes_on_descriptors_and_a_clean_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", "/nowhere")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/nowhere")
    folder = tmp_path / "seen"
    folder.mkdir()
    script = f'''cd "{folder}"
env | sed 's/=.*//' | sort > names
for word; do printf '%s\\n' "$word"; done > words
cat > stdin
cat "$4" > allowed
for last; do :; done
cat "$last" > signature'''
    await asked(program(tmp_path / "spy", script))
    # The shell itself adds the last three.
    assert set((folder / "names").read_text().split()) <= {"LANG", "PATH", "TZ", "PWD", "SHLVL", "_", "OLDPWD"}
    words = (folder / "words").read_text().splitlines()
    fixed = [
        "-Y",
        "verify",
        "-f",
        "-I",
        "operator@demo",
        "-n",
        NAMESPACE_DIRECTIVE,
        "-Overify-time=20300317174640Z",
        "-s",
    ]
    assert [word for word in words if not word.startswith("/dev/fd/")] == fixed
    assert (folder / "stdin").read_bytes() == RAW
    assert (folder / "allowed").read_bytes() == QUESTION.allowed
    assert (folder / "signature").read_bytes() == QUESTION.signature


async def test_no_more_processes_run_at_a_time_than_allowed(tmp_path: Path) -> None:
    running = tmp_path / "running"
    running.mkdir()
    # Each process counts those it finds running beside it.
    script = f'mkdir "{running}/$$"; sleep 0.05; ls "{running}" | wc -l; rmdir "{running}/$$"'
    keygen = SshKeygen(program(tmp_path / "busy", script), parallel=3)
    outcomes = await asyncio.gather(*(keygen.verify(QUESTION) for _ in range(12)))
    await keygen.close()
    beside = [int(outcome.stdout) for outcome in outcomes]
    assert max(beside) <= 3
    assert max(beside) > 1, "they did not run beside each other at all"


async def test_a_hundred_verifications_leave_no_file_and_no_process(allowed: Path, first: Path, tmp_path: Path) -> None:
    keygen = counted(tmp_path)
    trust = OperatorTrust(allowed, DEMO, ssh_keygen=keygen.executable)
    signature = sign(first, NAMESPACE_DIRECTIVE, RAW)
    before = open_files()
    await asyncio.gather(*(trust.verify(RAW, signature, NAMESPACE_DIRECTIVE, now()) for _ in range(100)))
    assert not open_files() - before
    pids = keygen.pids
    assert len(pids) == 100
    assert all(is_reaped(pid) for pid in pids)
    await trust.close()
