"""Groups of commands, and the one place where a failure becomes words and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NoReturn

import click

from broker.errors import BrokerError
from lever import show
from lever.exits import CliError, Exit, Failure, failure_of

HELP_OPTIONS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
DEBUG = "LEVER_DEBUG"


def examples(*lines: str) -> str:
    """The end of a command's help: what one would type."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


class Story(click.Group):
    """A group that lists its commands in the order in which they were added, and may get some of them later.

    later: called once, with the group, before anything but `names` is looked up: it adds further commands. So what
    they need is imported when one of them is wanted, and not for each `lever --help`.
    """

    def __init__(self, *args: Any, later: Callable[[Story], None] | None = None, **kwargs: Any) -> None:
        kwargs.setdefault("context_settings", HELP_OPTIONS)
        super().__init__(*args, **kwargs)
        self._later = later

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command, in the order of adding."""
        self._complete()
        return list(self.commands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name."""
        if cmd_name not in self.commands:
            self._complete()
        return super().get_command(ctx, cmd_name)

    def _complete(self) -> None:
        later, self._later = self._later, None
        if later:
            later(self)


@dataclass(frozen=True, slots=True)
class Noun:
    """A command of the root that is imported when it is wanted. help: its short help, the first sentence of its own."""

    module: str
    help: str


class Lever(click.Group):
    """The root: runs a command and tells how it ended. No expected failure shows a traceback.

    nouns: its commands by name, in the order of the help. Importing them all would take three times as long as
    printing the help.
    """

    def __init__(self, *args: Any, nouns: Mapping[str, Noun], **kwargs: Any) -> None:
        super().__init__(*args, context_settings=HELP_OPTIONS, **kwargs)
        self._nouns = nouns

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command, in the order of the help."""
        return list(self._nouns)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name."""
        if cmd_name not in self._nouns:
            return None
        found = getattr(import_module(self._nouns[cmd_name].module), cmd_name.replace("-", "_"))
        assert isinstance(found, click.Command)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The help's list of commands, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, noun.help) for name, noun in self._nouns.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's, but that an unknown word is told with the known ones it resembles."""
        if args[0] not in self._nouns and not args[0].startswith("-") and not ctx.resilient_parsing:
            near = get_close_matches(args[0], self._nouns, n=1)
            raise click.UsageError(f"no such command: {args[0]}" + (f" (did you mean {near[0]}?)" if near else ""), ctx)
        return super().resolve_command(ctx, args)

    def main(self, args: Sequence[str] | None = None, *, standalone_mode: bool = True, **kwargs: Any) -> Any:  # type: ignore[override]
        """Run, and exit with a code of lever/exits.py."""
        if not standalone_mode:
            return super().main(args, standalone_mode=False, **kwargs)
        try:
            status = super().main(args, standalone_mode=False, **kwargs)
        except (Exception, KeyboardInterrupt) as error:
            _leave(error)
        sys.exit(status if isinstance(status, int) else Exit.DONE)


def _leave(error: Exception | KeyboardInterrupt) -> NoReturn:
    if isinstance(error, click.Abort | KeyboardInterrupt):
        show.say("interrupted")
        sys.exit(Exit.INTERRUPTED)
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        sys.exit(Exit.USAGE)
    if os.environ.get(DEBUG):
        import traceback

        traceback.print_exception(error)
    told = _told(error)
    show.fail(told.lines, told.hint)
    sys.exit(told.exit)


def _told(error: Exception) -> Failure:
    if isinstance(error, CliError | BrokerError):
        return failure_of(error)
    if isinstance(error, click.UsageError):
        return Failure((_one_line(error),), f"{error.ctx.command_path} --help" if error.ctx else "", Exit.USAGE)
    if isinstance(error, click.ClickException):
        return Failure((_one_line(error),), "", Exit.USAGE)
    words = f"unexpected: {type(error).__name__}: {error}"
    return Failure((words,), f"{DEBUG}=1 before the same command shows where it happened", Exit.UNEXPECTED)


def _one_line(error: click.ClickException) -> str:
    """click spreads choices over lines of their own; ours is one sentence."""
    return " ".join(error.format_message().split())
