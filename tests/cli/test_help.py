"""`lever --help`, read top to bottom: complete, in order, within 80 columns, with examples, and quick."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from lever.cli import NOUNS, main
from tests.cli.conftest import Cli


def every_command() -> Iterator[tuple[str, click.Command]]:
    """Every command with the words that call it, groups included."""

    def walk(words: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
        yield words, command
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                assert inner
                yield from walk(f"{words} {name}", inner)

    yield from walk("lever", main)


COMMANDS = dict(every_command())
LEAVES = {words: command for words, command in COMMANDS.items() if not isinstance(command, click.Group)}


def help_of(words: str) -> str:
    done = CliRunner().invoke(main, [*words.split()[1:], "--help"], terminal_width=80, prog_name="lever")
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("words", COMMANDS)
def test_help_fits_80_columns(words: str) -> None:
    assert [line for line in help_of(words).splitlines() if len(line) > 80] == []


@pytest.mark.parametrize("words", LEAVES)
def test_every_command_shows_examples_that_begin_with_it(words: str) -> None:
    assert f"  {words}" in help_of(words).partition("Examples:")[2]


@pytest.mark.parametrize("words", [words for words in LEAVES if words != "lever completion"])
def test_every_example_is_understood(words: str) -> None:
    """Each example's options and arguments are those that the command takes; nothing is run."""
    _, _, examples = help_of(words).partition("Examples:")
    joined = examples.replace("\\\n", " ").splitlines()
    for line in joined:
        _, found, rest = line.partition(words + " ")
        if not found:
            continue
        argv = _split(rest)
        COMMANDS[words].make_context(words, argv, resilient_parsing=True)
        known = {option for p in COMMANDS[words].params for option in p.opts} | {"-n", "-f", "-h"}
        assert {word for word in argv if word.startswith("-") and len(word) > 1} <= known, line


def _split(line: str) -> list[str]:
    """The words of one command of an example line: up to a pipe, a comment or the next command."""
    words = shlex.split(line, comments=True)
    ends = [at for at, word in enumerate(words) if word in ("|", "&&", "&")]
    return words[: ends[0]] if ends else words


@pytest.mark.parametrize(
    "words", [words for words in LEAVES if words not in ("lever broker serve", "lever agent mcp", "lever completion")]
)
def test_every_command_takes_json(words: str) -> None:
    assert "--json" in help_of(words)


def test_the_nouns_are_listed_in_the_order_in_which_one_meets_them() -> None:
    listed = [line.split()[0] for line in help_of("lever").partition("Commands:")[2].splitlines()[1:16]]
    acting = [
        "init",
        "broker",
        "agent",
        "directive",
        "policy",
        "tools",
        "request",
        "lease",
        "run",
        "stop-all",
        "resume",
    ]
    assert listed == [*acting, "receipt", "journal", "doctor", "completion"]


@pytest.mark.parametrize("noun", NOUNS)
def test_a_nouns_line_is_the_first_of_its_own_help(noun: str) -> None:
    own = COMMANDS[f"lever {noun}"].help
    assert own
    assert own.splitlines()[0] == NOUNS[noun].help


def test_the_help_imports_none_of_what_the_work_needs() -> None:
    code = (
        "import sys, lever.cli\n"
        "try: lever.cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'http.client', 'pydantic', 'cryptography', 'rich', 'cbor2', 'asyncio'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_agents_own_commands_load_nothing_of_the_configuration() -> None:
    """They run in small containers, many times."""
    code = (
        "import sys, lever.cli\n"
        "try: lever.cli.main(['agent', 'consume', '--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'httpx2', 'pydantic', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_version(cli: Cli) -> None:
    done = cli.process("--version")
    assert done.status == 0
    assert done.stdout.startswith("lever, version ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_that_asks_lever(shell: str) -> None:
    done = CliRunner().invoke(main, ["completion", shell], prog_name="lever")
    assert done.exit_code == 0, done.output
    assert "_LEVER_COMPLETE" in done.output


def test_completion_completes(cli: Cli) -> None:
    env = {"_LEVER_COMPLETE": "bash_complete", "COMP_WORDS": "lever dir", "COMP_CWORD": "1"}
    assert cli.process(env=env).stdout == "plain,directive\n"
    env = {"_LEVER_COMPLETE": "bash_complete", "COMP_WORDS": "lever directive re", "COMP_CWORD": "2"}
    assert cli.process(env=env).stdout == "plain,revoke\n"
