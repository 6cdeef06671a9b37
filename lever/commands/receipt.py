"""`lever receipt`: who allowed what, and what came of it, read offline from the journal."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from broker.errors import Unavailable
from broker.wire import frozen, strict_json
from broker.wire.names import DirectiveId
from broker.wire.records import PayloadRef
from broker.wire.sshsig import UNTOLD
from lever import receipts, show
from lever.exits import CliError, Exit
from lever.groups import Story, examples
from lever.params import ID, PATH, as_json, with_config, with_key
from lever.where import Place

if TYPE_CHECKING:
    from broker.offline import Examined, Receipt, Receipts

_SIGNERS = click.option(
    "--signers", type=PATH, metavar="FILE", help="The operator keys to verify with. Else operator.allowed_signers."
)
_STATE = click.option("--state", type=PATH, metavar="DIR", help="The state folder, if not the configured one.")
_EXAMPLE = "0d1f7c3e-6a58-4a5e-9f3b-1f2f6f1c9a55"
_MAX_BYTES = 1 << 20


@click.group(cls=Story)
def receipt() -> None:
    """Prove who allowed what, and what came of it.

    A receipt is made from the journal each time, offline, also beside a running broker: the call, the signature that
    allowed it over its exact bytes, whether the key was touched for it, and the outcome.
    """


@receipt.command(
    "list",
    epilog=examples(
        "lever receipt list", "lever receipt list --gestures", "lever receipt list --outcome outcome_unknown --json"
    ),
)
@_STATE
@click.option("--outcome", type=click.Choice(receipts.OUTCOMES), help="Only those with this outcome.")
@click.option(
    "--gestures", is_flag=True, help="Tell what was done at the key, too: ssh-keygen runs once for each signature."
)
@_SIGNERS
@with_config
@as_json
def list_(
    place: Place, state: Path | None, outcome: str | None, gestures: bool, signers: Path | None, as_json: bool
) -> None:
    """List every call that was begun, the oldest first."""
    folder = state or place.config.state
    found = _read(folder)
    listed = [one for one in found.of.values() if outcome in (None, receipts.row(one)[-1])]
    done = _gestures(place, folder, found, listed, signers) if gestures else {}
    seen = [(one, done.get(one.claim.claim, {})) for one in listed]
    if as_json:
        for one, told in seen:
            show.data(receipts.data(one, _bytes_of(folder, found)) | ({"gestures": told} if gestures else {}))
    elif listed and gestures:
        rows = [(*receipts.row(one), receipts.gesture(one, told)) for one, told in seen]
        show.table((*receipts.HEADERS, "GESTURE"), rows)
    elif listed:
        show.table(receipts.HEADERS, [receipts.row(one) for one in listed])
    else:
        show.say("no calls")


@receipt.command("show", epilog=examples(f"lever receipt show {_EXAMPLE}", f"lever receipt show {_EXAMPLE} --json"))
@click.argument("claim", type=ID)
@_STATE
@_SIGNERS
@with_config
@as_json
def show_(place: Place, claim: DirectiveId, state: Path | None, signers: Path | None, as_json: bool) -> None:
    """Show one receipt.

    What the operator did at the key is told of good signatures alone: `touch`, `touch and PIN`, or `no gesture` where
    it is no security key.

    With --json it holds the exact bytes as well, as long as the journal has them: kept in a file, it can be verified
    when they are gone.
    """
    folder = state or place.config.state
    found = _read(folder)
    one = _one(found, claim)
    gestures = _gestures(place, folder, found, [one], signers).get(claim, {})
    told = receipts.data(one, _bytes_of(folder, found)) | {"gestures": gestures}
    if as_json:
        return show.data(told)
    show.facts(receipts.facts(told))
    show.barred(_lines(told))


@receipt.command(
    epilog=examples(
        "lever receipt verify", "lever receipt verify kept.json", "lever receipt verify --signers old_allowed_signers"
    )
)
@click.argument("file", type=click.File("rb"), required=False)
@_STATE
@_SIGNERS
@with_config
@as_json
def verify(place: Place, file: BinaryIO | None, state: Path | None, signers: Path | None, as_json: bool) -> None:
    """Make every receipt again and check it.

    That the journal is whole; that each signature over the stored bytes is good, by ssh-keygen, at the time when it
    counted, and what was done at the key for it; that a consent was spent once, on exactly that call. Each call is
    judged again, from its own arguments, by the policies that were in force and the tool as it was accepted: it must
    come to the consent, class, account and resources that were recorded, by the rules of this version. What is past
    its retention is named as `bytes dropped`, and is not judged. With FILE only that one, as `show --json` wrote it.
    Exit 6 if one is not ok, 7 if the journal is damaged.
    """
    from broker import offline

    folder = state or place.config.state
    if not offline.verify_journal(folder).whole:
        raise CliError(f"the journal in {folder} is damaged", hint="lever journal verify", exit=Exit.CORRUPT_FILE)
    found = _read(folder)
    kept = _kept(file) if file else None
    given = {hashlib.sha256(raw).digest(): raw for raw in _bytes_in(kept)} if kept else {}
    wanted = [_one(found, str(kept.get("claim")))] if kept else [*found.of.values()]
    examined = offline.examine_receipts(folder, found, wanted, signers or _signers(place), given)
    if kept:
        made = receipts.data(wanted[0], _bytes_of(folder, found, given)) | {"gestures": examined[0].gestures}
        others = tuple(f"the file says another {name}" for name in receipts.differences(kept, made))
        examined = [examined[0]._replace(problems=(*examined[0].problems, *others))]
    for one in examined:
        show.data(_verdict(one)) if as_json else _show(one)
    if bad := sum(bool(one.problems) for one in examined):
        raise CliError(
            f"{bad} of {len(examined)} receipts are not ok",
            hint="lever receipt show CLAIM; with the keys of that time: --signers FILE",
            exit=Exit.VERIFICATION_FAILED,
        )
    if not as_json:
        many = len(examined) != 1
        show.say(f"all {len(examined)} receipts are ok" if many else "the one receipt is ok", "bold green")


@receipt.command(
    epilog=examples(f'lever receipt note {_EXAMPLE} \\\n    "The branch was deleted: seen on the server."')
)
@click.argument("claim", type=ID)
@click.argument("text")
@with_key
@as_json
def note(place: Place, claim: DirectiveId, text: str, as_json: bool) -> None:
    """Say what became of a call whose outcome is unknown.

    The outcome stays what it is; your signed word stands beside it.
    """
    from lever.envelopes import change

    answer = change(place, "/admin/outcome_note", "outcome_note", {"claim": claim, "note": text})
    show.data(answer) if as_json else show.put(f"noted {claim}")


def _read(folder: Path) -> Receipts:
    from broker import offline

    return offline.read_receipts(folder)


def _one(found: Receipts, claim: str) -> Receipt:
    if claim not in found.of:
        raise CliError(f"the journal holds no call {claim}", hint="lever receipt list", exit=Exit.REFUSED)
    return found.of[claim]


def _gestures(
    place: Place, folder: Path, found: Receipts, wanted: Sequence[Receipt], signers: Path | None
) -> dict[str, receipts.Gestures]:
    """Of the signatures behind each claim. None, and why, where there is nothing to verify signatures with."""
    from broker import offline

    try:
        examined = offline.examine_receipts(folder, found, wanted, signers or _signers(place), {})
    except (CliError, Unavailable) as error:
        show.warn(f"no gesture can be told: {error}")
        return {}
    return {one.receipt.claim.claim: one.gestures for one in examined}


def _bytes_of(folder: Path, found: Receipts, given: Mapping[bytes, bytes] | None = None) -> receipts.BytesOf:
    from broker import offline

    def bytes_of(ref: PayloadRef) -> bytes | None:
        return offline.exact_bytes(folder, found, ref, given or {})

    return bytes_of


def _signers(place: Place) -> Path:
    operator = place.config.operator
    if operator is None:
        raise CliError("expected an operator block with allowed_signers, found none", hint="--signers FILE")
    return operator.allowed_signers


def _kept(file: BinaryIO) -> dict[str, Any]:
    try:
        told = json.loads(file.read(_MAX_BYTES))
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
        raise CliError(
            "expected a receipt as `lever receipt show CLAIM --json` writes it",
            hint="lever receipt show CLAIM --json > FILE",
            exit=Exit.CORRUPT_FILE,
        )
    return told


def _bytes_in(kept: dict[str, Any]) -> list[bytes]:
    try:
        return list(receipts.bytes_in(kept))
    except ValueError as error:
        raise CliError(f"the receipt holds something that is no base64: {error}", exit=Exit.CORRUPT_FILE) from error


def _lines(told: dict[str, Any]) -> list[str]:
    """What the call was about, in the words of the agent and of the note, each as JSON."""
    named = [("account", told["account"])] if told["account"] else []
    named += [("resource", one) for one in told["resources"]]
    lines = [f"{name:<9} {show.safe_json(json.dumps(value, ensure_ascii=False))}" for name, value in named]
    if told["args"] is not None:
        value = frozen.thaw(base64.b64decode(told["args"])).value
        lines += [f"argument  {_pair(name, one)}" for name, one in value.items()]
    if told["note"] and told["note"]["text"] is not None:
        lines.append(f"note      {show.safe_json(json.dumps(told['note']['text'], ensure_ascii=False))}")
    return lines


def _pair(name: str, value: strict_json.JsonValue) -> str:
    return ": ".join(show.safe_json(json.dumps(one, ensure_ascii=False)) for one in (name, value))


def _verdict(one: Examined) -> dict[str, Any]:
    claim = one.receipt.claim.claim
    verdict = {"claim": claim, "ok": not one.problems, "problems": list(one.problems), "dropped": list(one.gone)}
    return verdict | {"gestures": one.gestures}


def _show(one: Examined) -> None:
    words = "; ".join((*one.problems, *(f"{name}: {receipts.DROPPED}" for name in one.gone)))
    claim = one.receipt.claim
    text = f"{claim.claim}  {claim.tool} of {claim.cn}/{claim.generation}{f': {words}' if words else ''}"
    show.verdict(
        "BAD" if one.problems else "ok", text, good=None if one.gone and not one.problems else not one.problems
    )
    for name, gesture in one.gestures.items():
        if not gesture.startswith(UNTOLD):  # the verdict says why not
            show.below(f"{name}: {gesture}")
