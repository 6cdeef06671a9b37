"""How a command ends: one table of exit codes, one way of telling, and never a traceback for what can be expected."""

from __future__ import annotations

import signal
import subprocess
from functools import partial

import click
import pytest
from click.testing import CliRunner

from broker.errors import BrokerError, Damaged, Fatal, Malformed, Reason, Refused, Unavailable, Untrusted
from lever.exits import CliError, Exit, failure_of
from lever.groups import Lever, Noun
from tests.cli.conftest import Cli
from tests.rig import LEVER


@pytest.mark.parametrize(
    ("error", "status", "hint"),
    [
        (Malformed("field", "missing"), 2, ""),
        (Refused(Reason.REVOKED, "gone", "do this"), 3, "do this"),
        (Unavailable("no verifier"), 4, ""),
        (Untrusted("bad signature"), 6, ""),
        (Damaged("a byte was changed", hint="look"), 7, "look"),
        (Fatal("the disk is full", hint="make room"), 1, "make room"),
        (BrokerError("odd"), 1, ""),
        (CliError("not signed", hint="sign", exit=Exit.SIGNING_FAILED), 5, "sign"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_kind_of_failure_has_its_exit_code(error: CliError | BrokerError, status: int, hint: str) -> None:
    told = failure_of(error)
    assert (told.exit, told.hint, told.lines) == (status, hint, (str(error),))


def test_a_failure_is_told_on_standard_error_with_its_hint(cli: Cli) -> None:
    done = cli.process("directive", "list")
    assert done.status == Exit.USAGE
    assert done.stdout == ""
    error, hint = done.stderr.splitlines()
    assert error.startswith("error: expected a lever.yaml")
    assert hint.startswith("hint:  lever init --name NAME")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("directivf",), "did you mean directive?"),
        (("directive", "snd"), "send"),
        (("directive", "send"), "AGENT"),
        (("directive", "send", "worker-a", "--bogus"), "--bogus"),
        (("agent", "show", "Worker_A"), "1 to 63 of a-z 0-9 -"),
        (("agent", "show", "worker-a\nerror: all is well"), "\\nerror: all is well"),
        (("agent", "invite", "\x1b[2Jworker"), "[2Jworker"),
        (("directive", "show", "no\nid"), "no\\nid"),
        (("directive", "send", "worker-a", "--expires", "10"), "a duration like 90s"),
        (("directive", "send", "worker-a", "--expires", "25h"), "from 1s to 24h"),
        (("directive", "send", "worker-a", "--not-before", "tomorrow"), "a time like 2026-01-31T09:00:00Z"),
        (("directive", "list", "--config", "a.yaml", "b.yaml"), "expected one configuration, found two"),
        (("journal", "show", "--kind", "nonsense"), "nonsense"),
    ],
)
def test_wrong_words_are_told_on_one_line_and_exit_2(cli: Cli, words: tuple[str, ...], told: str) -> None:
    done = cli(*words)
    assert done.status == Exit.USAGE
    assert "Traceback" not in done.stderr
    assert "\x1b" not in done.stderr
    error, hint = done.stderr.splitlines()
    assert error.startswith("error: ")
    assert told in error
    assert hint.startswith("hint:  ")


def test_lever_alone_shows_the_help_and_exits_2(cli: Cli) -> None:
    done = cli()
    assert done.status == Exit.USAGE
    assert "Commands:" in done.stderr


@click.command()
def broken() -> None:
    """Fail as no command should."""
    raise ZeroDivisionError("half\nway")


BROKEN = Lever(nouns={"broken": Noun(__name__, "Fail.")})


def test_the_unexpected_is_one_line_and_says_how_to_see_more() -> None:
    done = CliRunner().invoke(BROKEN, ["broken"], env={"LEVER_DEBUG": None})
    assert done.exit_code == Exit.UNEXPECTED
    assert done.output.splitlines() == [
        "error: unexpected: ZeroDivisionError: half\\nway",
        "hint:  LEVER_DEBUG=1 before the same command shows where it happened",
    ]


def test_the_traceback_is_shown_to_who_asks_for_it() -> None:
    done = CliRunner().invoke(BROKEN, ["broken"], env={"LEVER_DEBUG": "1"})
    assert done.exit_code == Exit.UNEXPECTED
    assert "Traceback (most recent call last)" in done.output


def test_an_interrupt_ends_with_130_and_no_traceback(cli: Cli) -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [LEVER, "directive", "submit", "-"],
        cwd=cli.folder, env=cli.environment(), stdin=pipe, stdout=pipe, stderr=pipe, text=True, pipesize=4096,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # a suite in the background ignores it
    ) as process:  # fmt: skip
        assert process.stdin
        # More than a pipe holds, and less than the command takes: once it is written, it is past its own start and
        # waits for more.
        process.stdin.write("x" * 12288)
        process.stdin.flush()
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate()
    assert process.returncode == Exit.INTERRUPTED
    assert stderr.splitlines()[-1] == "interrupted"
    assert "Traceback" not in stderr
