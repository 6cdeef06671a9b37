"""`lever journal`: the record of everything, read offline: no broker is asked, and none is in the way."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, get_args

import click

from broker.errors import Malformed, Untrusted
from broker.wire import records
from broker.wire.head import MAX_BYTES
from broker.wire.record_codec import digest_of
from broker.wire.record_view import view
from lever import show
from lever.exits import CliError, Exit
from lever.groups import Story, examples
from lever.params import ID, PATH, as_json, with_config
from lever.where import Place

if TYPE_CHECKING:
    from broker.offline import Report

_KINDS = tuple(re.sub(r"(?<!^)(?=[A-Z])", "_", fact.__name__).lower() for fact in get_args(records.Fact))
_SHORT_HEX = 12


@click.group(cls=Story)
def journal() -> None:
    """Read the record of all that the broker decided.

    Works offline, also beside a running broker, and checks that the record is whole.
    """


_STATE = click.option("--state", type=PATH, metavar="DIR", help="The state folder, if not the configured one.")


@journal.command(epilog=examples("lever journal verify", "lever journal verify --state /backup/state --json"))
@_STATE
@click.option("--head", type=click.File("rb"), metavar="FILE", help="A signed head that was kept elsewhere.")
@with_config
@as_json
def verify(place: Place, state: Path | None, head: BinaryIO | None, as_json: bool) -> None:
    """Check every byte of the journal.

    Each place that is not as it must be is named. Exit 7 if the journal is damaged. A last record that is cut short
    is what a crash leaves; the broker cuts it off. With --head also that it is no older than that head.
    """
    from broker import offline

    folder = state or place.config.state
    try:
        report = offline.verify_journal(folder, head.read(MAX_BYTES) if head else None)
    except (Malformed, Untrusted) as error:
        raise CliError(
            f"expected a head as `kept_head.keep` was given it, found: {error}",
            hint="cat the file that you keep heads in",
            exit=Exit.VERIFICATION_FAILED,
        ) from error
    show.data(_data(report)) if as_json else _show(report)
    if not report.whole:
        raise CliError(
            f"the journal in {folder} is damaged: {len(report.problems)} problem(s)",
            hint="stop the broker and restore the whole state folder from a backup; docs/OPERATING.md says more",
            exit=Exit.CORRUPT_FILE,
        )
    if not as_json:
        show.say("the journal is whole", "bold green")


@journal.command(
    "show",
    epilog=examples(
        "lever journal show",
        "lever journal show --kind directive_consumed",
        "lever journal show --id 0d1f7c3e-6a58-4a5e-9f3b-1f2f6f1c9a55 --json",
    ),
)
@_STATE
@click.option(
    "--kind", type=click.Choice(_KINDS), metavar="KIND", help=f"Only records of this kind: {', '.join(_KINDS)}."
)
@click.option("--id", "id", type=ID, help="Only records about this directive.")
@with_config
@as_json
def show_(place: Place, state: Path | None, kind: str | None, id: str | None, as_json: bool) -> None:
    """Show the records, one a line.

    Number, time, kind, and what happened. Digests are cut short; --json has them whole, one JSON object a line.
    Ends at a damaged record.
    """
    for record in _read(state or place.config.state):
        if kind and record["kind"] != kind:
            continue
        if id and id != record.get("id") and id not in record.get("ids", ()):
            continue
        show.data(record) if as_json else show.put(_line(record))


@journal.command(epilog=examples("lever journal export > journal.jsonl", "lever journal export --state /backup/state"))
@_STATE
@with_config
@as_json
def export(place: Place, state: Path | None, as_json: bool) -> None:
    """Write every record as a line of JSON, with its digest, with or without --json.

    Whole and in order, for a log host or a file that outlives this machine: each line's `prev` is the `digest` of the
    line before. Digests stand for the exact bytes, which are never exported. Exit 7 at a damaged record.
    """
    from broker import offline

    for record in offline.walk_journal(state or place.config.state):
        show.data(view(record) | {"prev": record.prev.hex(), "digest": digest_of(record).hex()})


@journal.command(epilog=examples("lever journal backup /mnt/backup/demo-state"))
@click.argument("folder", type=PATH)
@_STATE
@with_config
@as_json
def backup(place: Place, folder: Path, state: Path | None, as_json: bool) -> None:
    """Copy the state folder to a new FOLDER, also beside a running broker.

    The copy holds the broker's private key: keep it where only you can read it. To go on from it, put it in the place
    of the state folder and start with `lever broker serve --restored`.
    """
    from broker import offline

    offline.copy_state(state or place.config.state, folder)
    report = offline.verify_journal(folder)
    if not report.whole:
        raise CliError(f"the copy in {folder} is damaged", hint="lever journal verify", exit=Exit.CORRUPT_FILE)
    if as_json:
        return show.data({"folder": str(folder)} | _data(report))
    show.say(f"copied {report.records} records to {folder}, and the copy is whole")


def _read(folder: Path) -> Iterator[dict[str, Any]]:
    from broker import offline

    return (view(record) for record in offline.walk_journal(folder))


def _line(record: dict[str, Any]) -> str:
    fields = (f"{name}={_value(name, value)}" for name, value in record.items() if name not in ("seq", "at", "kind"))
    return "  ".join((f"{record['seq']:>6}", record["at"], record["kind"], " ".join(fields))).rstrip()


def _value(name: str, value: Any) -> str:
    if name.endswith("_digest"):
        return str(value)[:_SHORT_HEX]
    text = ",".join(value) if isinstance(value, list) else str(value)
    # Quoted where a text could pass for the next field.
    return json.dumps(text, ensure_ascii=False) if not text or re.search(r'[\s="\\]', text) else text


def _data(report: Report) -> dict[str, Any]:
    names = ("kind", "file", "offset", "seq", "expected", "found")
    return {
        "whole": report.whole,
        "instance": report.instance,
        "records": report.records,
        "payloads": report.payloads,
        "head": report.head.hex() if report.head else None,
        "problems": [{name: getattr(problem, name) for name in names} for problem in report.problems],
    }


def _show(report: Report) -> None:
    counted = {"instance": report.instance, "records": str(report.records), "payloads": str(report.payloads)}
    show.facts({**counted, "head": report.head.hex() if report.head else ""})
    for problem in report.problems:
        show.verdict(str(problem.kind), f" {problem}", good=None if problem.kind == "incomplete" else False)
