"""What `lever doctor` looks at: each check says how one thing is, and how to mend it. Nothing is written."""

from __future__ import annotations

from collections.abc import Iterator

from lever.checks import broker, keys, servers, ssh, state
from lever.checks.finding import Finding
from lever.exits import CliError
from lever.where import Place

__all__ = ["Finding", "every"]


def every(place: Place) -> Iterator[Finding]:
    """All checks, in the order in which one rests on the other."""
    yield from ssh.keygen()
    yield from ssh.agent()
    try:
        config = place.config
    except CliError as error:
        yield from (Finding("configuration", "fail", text, error.hint) for text in (error.text, *error.more))
        return
    yield Finding("configuration", "ok", f"{place.config_path}, instance {config.instance}")
    for check in (
        state.config,
        keys.signers,
        keys.signing_key,
        state.folder,
        state.journal,
        servers.confined,
        broker.answers,
    ):
        yield from check(place)
