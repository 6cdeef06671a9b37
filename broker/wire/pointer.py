"""The pointer's text: all that an untrusted channel ever carries. docs/formats/pointer.md is normative."""

from __future__ import annotations

from enum import StrEnum

from broker.wire import names
from broker.wire.names import DirectiveId


class About(StrEnum):
    """What a pointer's id is of."""

    DIRECTIVE = "directive"
    REQUEST = "request"


def sentence(id: DirectiveId, about: About = About.DIRECTIVE) -> str:
    """The fixed sentence with the id in it. Raises Malformed for an id that could be words."""
    safe = names.directive_id(id)
    if about is About.REQUEST:
        return (
            f"Your request {safe} to the operator is settled. To see how, "
            f'call the tool request_status with request_id "{safe}".'
        )
    return (
        f"Operator directive {safe} is waiting. If you decide to act on it, "
        f'call the tool directive_consume with id "{safe}".'
    )
