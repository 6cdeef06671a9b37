"""The pointer's text: all that an untrusted channel ever carries. docs/formats/pointer.md is normative."""

from __future__ import annotations

from broker.wire import names
from broker.wire.names import DirectiveId


def sentence(id: DirectiveId) -> str:
    """The fixed sentence with the id in it. Raises Malformed for an id that could be words."""
    safe = names.directive_id(id)
    return (
        f"Operator directive {safe} is waiting. If you decide to act on it, "
        f'call the tool directive_consume with id "{safe}".'
    )
