"""`lever policy`: check, compare and try policies, offline, by the broker's own judgement."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from broker.wire import strict_json
from broker.wire.names import Cn
from lever import show
from lever.exits import CliError, Exit
from lever.groups import Story, examples
from lever.params import CN, PATH, as_json

if TYPE_CHECKING:
    from broker.offline import Change, Judgement, Policy

_T = TypeVar("_T")
_EFFECTS = {"wider": False, "stricter": True, "other": None}


@click.group(cls=Story)
def policy() -> None:
    """Check, compare and try policies.

    Works offline: a policy file is judged here by the same function as in the broker, and nothing is applied.
    """


@policy.command(epilog=examples("lever policy check policy.yaml"))
@click.argument("file", type=PATH)
@as_json
def check(file: Path, as_json: bool) -> None:
    """Check a policy FILE.

    Every problem is told with its line. What is allowed and may not be meant is a warning.
    """
    from broker import offline

    read = _load(file)
    warnings = offline.policy_warnings(read)
    if as_json:
        show.data({"name": read.name, "digest": read.digest.hex(), "warnings": warnings})
        return
    for text in warnings:
        show.warn(text)
    counts = (len(read.allowed), len(read.approval_required), len(read.denied), len(read.tools))
    show.facts({"policy": read.version, "digest": f"sha256:{read.digest.hex()}"})
    show.say("good: {} allowed, {} approval_required, {} denied, {} in the table".format(*counts), "bold green")


@policy.command(epilog=examples("lever policy diff old.yaml new.yaml"))
@click.argument("old", type=PATH)
@click.argument("new", type=PATH)
@as_json
def diff(old: Path, new: Path, as_json: bool) -> None:
    """Show what changes from policy OLD to policy NEW.

    Each change with what it does to the rights of agents: wider, stricter, or other.
    """
    from broker import offline

    changes = offline.compare_policies(_load(old), _load(new))
    for change in changes:
        show.data(change._asdict()) if as_json else _show_change(change)
    if not changes and not as_json:
        show.say("nothing changes")


@policy.command(
    epilog=examples(
        'lever policy explain worker-a files.read_file \'{"path": "/srv/a"}\' \\\n    --policy policy.yaml',
        "lever policy explain worker-a mail.send @call.json --policy policy.yaml \\\n    --catalogue tools.json",
    )
)
@click.argument("agent", type=CN)
@click.argument("tool")
@click.argument("arguments", metavar="ARGS")
@click.option("--policy", "files", type=PATH, multiple=True, required=True, metavar="FILE",
              help="The instance's policy; again for each further layer.")  # fmt: skip
@click.option("--catalogue", type=PATH, metavar="FILE", help="The accepted tools, as JSON by server.")
@as_json
def explain(
    agent: Cn, tool: str, arguments: str, files: tuple[Path, ...], catalogue: Path | None, as_json: bool
) -> None:
    """Show step by step what would come of a call.

    TOOL is server.tool; ARGS are its arguments as a JSON object, or @FILE. Without --catalogue the tool is taken for
    one that takes any arguments and says nothing of itself. Nothing is called.
    """
    from broker import offline

    layers = [_load(file) for file in files]
    given = strict_json.parse(_given(arguments), "arguments")
    judged = _told(lambda: offline.judge_call(layers, agent, tool, given, catalogue))
    if as_json:
        show.data(_data(judged))
        return
    if catalogue is None:
        show.say("without --catalogue: the tool's own definition is not known here")
    for step in judged.steps:
        show.put(f"{step.number}  {step.text}")
    for resource in judged.resources:
        show.put(f"   {resource.kind} {resource.value}")
    show.verdict(*_verdict(judged), good=None if judged.regime == "act" else judged.regime is not None)


@policy.command(epilog=examples("lever policy test expected.yaml"))
@click.argument("file", type=PATH)
@as_json
def test(file: Path, as_json: bool) -> None:
    """Try a FILE of expected decisions.

    It names the policies, and the calls with what is to come of each. Exit 6 when another thing does.
    """
    from broker import offline

    tried = wrong = 0
    for case, judged, came in _told(lambda: list(offline.try_expected(file))):
        tried, wrong = tried + 1, wrong + (came != case.expect)
        if as_json:
            show.data({"line": case.line, "tool": case.tool, "expected": case.expect, "found": came, **_data(judged)})
        elif came != case.expect:
            show.verdict("wrong  ", f"line {case.line}: {case.tool}: expected {case.expect}, found {came}", good=False)
            show.below(judged.steps[-1].text)
    if wrong:
        raise CliError(
            f"{wrong} of {tried} decisions are not as expected",
            hint="lever policy explain AGENT TOOL ARGS --policy FILE shows how one comes about",
            exit=Exit.VERIFICATION_FAILED,
        )
    if not as_json:
        show.say(f"all {tried} decisions are as expected", "bold green")


def _load(file: Path) -> Policy:
    from broker import offline

    return _told(lambda: offline.load_policy(file))


def _told(load: Callable[[], _T]) -> _T:
    """What was loaded. Raises CliError, with a line for each thing that is wrong."""
    from broker import offline

    try:
        return load()
    except offline.ConfigError as error:
        first, *more = error.lines
        raise CliError(first, more=more, hint=error.hint) from error


def _given(arguments: str) -> bytes:
    if not arguments.startswith("@"):
        return arguments.encode("utf-8", "surrogateescape")
    try:
        with Path(arguments[1:]).open("rb") as file:
            return file.read(strict_json.MAX_BYTES + 1)
    except OSError as error:
        raise CliError(f"{arguments[1:]} can't be read: {error.strerror}", hint=f"ls -l {arguments[1:]}") from error


def _show_change(change: Change) -> None:
    show.verdict(f"{change.effect:<10}", f"{change.what}: {change.old} -> {change.new}", good=_EFFECTS[change.effect])


def _verdict(judged: Judgement) -> tuple[str, str]:
    return (f"{judged.regime or 'denied':<10}", judged.decision.reason)


def _data(judged: Judgement) -> dict[str, Any]:
    refused = judged.regime is None
    return {
        "outcome": getattr(judged.decision, "code", None) or judged.regime,
        "denied": refused,
        "reason": judged.decision.reason,
        "tier": judged.tier,
        "class": judged.tool_class,
        "account": judged.account,
        "resources": [{"kind": each.kind, "value": each.value} for each in judged.resources],
        "args_digest": judged.frozen.digest.hex() if judged.frozen else None,
        "steps": [{"number": step.number, "text": step.text} for step in judged.steps],
    }
