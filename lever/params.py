"""The options that commands share, and the types of their values. Every wrong value is told with what was expected."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from broker.errors import Malformed
from broker.wire import catalogue, names, times
from broker.wire.names import Cn, DirectiveId, Generation, Instance, Instant
from lever.exits import CliError
from lever.where import Place

DAY_S = 86400
_DURATION = re.compile(r"(?=[0-9])(?:([0-9]{1,6})h)?(?:([0-9]{1,6})m)?(?:([0-9]{1,6})s)?", re.ASCII)
_CENTS = re.compile(r"([0-9]{1,12})(?:\.([0-9]{1,4}))?", re.ASCII)
_F = TypeVar("_F", bound=Callable[..., Any])


class _Word(click.ParamType[Any]):
    """A word that one of the protocol's own parsers judges."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The parsed value."""
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except Malformed as error:
            self.fail(f"{error.why}, found {value!r}", param, ctx)


def _duration_s(text: str) -> int:
    found = _DURATION.fullmatch(text)
    hours, minutes, seconds = (int(found[i] or 0) for i in (1, 2, 3)) if found else (0, 0, 0)
    if not 1 <= (whole := hours * 3600 + minutes * 60 + seconds) <= DAY_S:
        raise Malformed("duration", "expected a duration like 90s, 10m or 1h30m, from 1s to 24h")
    return whole


def _cn(text: str) -> Cn:
    return names.cn(text)


def _id(text: str) -> DirectiveId:
    return names.directive_id(text)


def _server(text: str) -> str:
    return catalogue.server_name(text)


def _scope(text: str) -> str:
    kind, separator, name = text.partition("/")
    if text != "instance" and not (kind in ("tenant", "project", "agent") and separator):
        raise Malformed("scope", "expected instance, tenant/NAME, project/NAME or agent/NAME")
    return text if text == "instance" else f"{kind}/{names.cn(name)}"


def _instance(text: str) -> Instance:
    return names.instance(text)


def _instant(text: str) -> Instant:
    return times.parse(text, "time")


def _cents(text: str) -> int:
    """As 1/10,000 of a cent: a sum in decimal digits is never a fraction of one in binary."""
    found = _CENTS.fullmatch(text)
    if not found:
        raise Malformed("cents", "expected an amount like 2 or 0.0375")
    return int(found[1]) * 10_000 + int((found[2] or "").ljust(4, "0"))


def _generation(text: str) -> Generation:
    return names.generation(int(text) if text.isascii() and text.isdigit() else 0)


CN = _Word("agent", _cn)
SERVER = _Word("server", _server)
SCOPE = _Word("scope", _scope)
ID = _Word("id", _id)
INSTANCE = _Word("name", _instance)
DURATION = _Word("duration", _duration_s)
INSTANT = _Word("time", _instant)
GENERATION = _Word("number", _generation)
CENTS = _Word("amount", _cents)
PATH = click.Path(path_type=Path)
_INSTANCE = click.option("--instance", type=INSTANCE, metavar="NAME", help="The instance, if no configuration says it.")


def as_json(function: _F) -> _F:
    """--json, as the argument `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print data, not words, on standard output.")(function)


def with_config(function: Callable[..., Any], *, trailing: bool = True) -> Callable[..., Any]:
    """--config and a trailing CONFIG, as the argument `place`. trailing: False where any number of words comes last."""

    @wraps(function)
    def located(*args: Any, named: Path | None, trailing: Path | None = None, **kwargs: Any) -> Any:
        return function(*args, place=Place.of(named, trailing), **kwargs)

    word = click.argument("trailing", type=PATH, required=False, metavar="[CONFIG]")
    option = click.option(
        "--config",
        "named",
        type=PATH,
        metavar="FILE",
        help=f"The configuration. Else {'CONFIG, ' if trailing else ''}$LEVER_CONFIG, lever.yaml here or above.",
    )
    return option(word(located) if trailing else located)


def with_socket(function: Callable[..., Any], *, trailing: bool = True) -> Callable[..., Any]:
    """--socket on top of `with_config`: for what asks the broker without signing."""

    @partial(with_config, trailing=trailing)
    @click.option(
        "--socket",
        type=PATH,
        metavar="PATH",
        help="The operator socket, if not the configured one (say, brought here by ssh -L).",
    )
    @wraps(function)
    def connected(*args: Any, place: Place, socket: Path | None, **kwargs: Any) -> Any:
        return function(*args, place=place.at(socket), **kwargs)

    return connected


_SELFTEST = "lever directive selftest"


def with_key(function: Callable[..., Any], *, trailing: bool = True) -> Callable[..., Any]:
    """--key, --instance and --socket on top of `with_config`: for what is signed and sent."""

    @partial(with_socket, trailing=trailing)
    @click.option(
        "--key",
        type=PATH,
        metavar="FILE",
        help="The key that signs, or its .pub if a local ssh-agent holds it. Else operator.signing_key.",
    )
    @_INSTANCE
    @wraps(function)
    def signing(*args: Any, place: Place, key: Path | None, instance: Instance | None, **kwargs: Any) -> Any:
        try:
            return function(*args, place=place.signing(key, instance), **kwargs)
        except CliError as error:
            if key is None or error.hint != _SELFTEST:  # which by itself tries the configured key
                raise
            hint = f"{_SELFTEST} --key {shlex.quote(str(key))}"
            raise CliError(error.text, hint=hint, exit=error.exit, more=error.more) from error

    return signing


def with_keys(function: Callable[..., Any]) -> Callable[..., Any]:
    """As `with_key`, for any number of keys, as the argument `keys`."""

    @with_socket
    @click.option(
        "--key", "keys", type=PATH, metavar="FILE", multiple=True, help="A key to sign with; may be repeated."
    )
    @_INSTANCE
    @wraps(function)
    def signing(*args: Any, place: Place, instance: Instance | None, **kwargs: Any) -> Any:
        return function(*args, place=place.signing(None, instance), **kwargs)

    return signing


def with_identity(function: _F) -> _F:
    """--identity, as the argument `path`: what runs beside an agent finds its key and certificate there."""
    return click.option(
        "--identity",
        "path",
        type=PATH,
        envvar="LEVER_IDENTITY",
        default=lambda: Path.home() / ".lever" / "identity",
        show_envvar=True,
        metavar="DIR",
        help="The identity folder, 0700. Else ~/.lever/identity.",
    )(function)
