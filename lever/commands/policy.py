"""`lever policy`: check, compare and try policies offline, by the broker's own judgement; put them in force."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from broker.errors import Malformed
from broker.wire import strict_json
from broker.wire.catalogue import server_name
from broker.wire.names import Cn
from lever import show
from lever.exits import CliError, Exit
from lever.groups import Story, examples
from lever.new_file import new_file
from lever.params import CN, PATH, SCOPE, as_json, with_key
from lever.where import Place

if TYPE_CHECKING:
    from broker.offline import Change, Judgement, Policy
    from lever.in_force import Calls

_T = TypeVar("_T")
_STORED = Path(__file__).parents[1] / "policies"
_STARTING = ("read-only", "developer", "office")
_EFFECTS = {"wider": False, "stricter": True, "other": None}


@click.group(cls=Story)
def policy() -> None:
    """Check, try and apply policies.

    init writes one to start from. check, diff and test work without a broker: a policy file is judged here by the same
    function as in the broker. What apply puts in force is what was shown, and signed by you.
    """


@policy.command(epilog=examples("lever policy init developer", "lever policy init office policies"))
@click.argument("name", type=click.Choice(_STARTING))
@click.argument("folder", type=PATH, default=Path(), metavar="[DIR]")
@as_json
def init(name: str, folder: Path, as_json: bool) -> None:
    """Write a policy to start from.

    It comes with the decisions that are expected of it, and with the tools that these speak of. Put your own tools in
    their place; then check, test and apply it. Nothing is overwritten.
    """
    written = [folder / f"{name}.yaml", folder / f"{name}.expected.yaml"]
    catalogue = folder / "catalogue.json"
    if not _is_same(catalogue):
        written.append(catalogue)
    with ExitStack() as opened:
        files = [opened.enter_context(new_file(path)) for path in written]
        for path, file in zip(written, files, strict=True):
            file.write((_STORED / path.name).read_bytes())
    if as_json:
        return show.data({"files": [str(path) for path in written]})
    for path in written:
        show.put(str(path))
    show.say(f"next: lever policy test {written[1]}; then lever policy apply {written[0]}")


@policy.command(epilog=examples("lever policy check policy.yaml"))
@click.argument("file", type=PATH)
@with_key
@as_json
def check(place: Place, file: Path, as_json: bool) -> None:
    """Check a policy FILE.

    Every problem is told with its line. What is allowed and may not be meant is a warning, and so is an entry that
    names no accepted tool: for that the running broker is asked, by a signature. Where none answers, a line says so.
    """
    read = _load(file)
    accepted = _accepted_names(place)
    warnings = _warnings(read, accepted)
    if as_json:
        checked = accepted is not None
        show.data({"name": read.name, "digest": read.digest.hex(), "warnings": warnings, "names_checked": checked})
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
        "lever policy explain worker-a mail.send @call.json    # as it is in force",
    )
)
@click.argument("agent", type=CN)
@click.argument("tool")
@click.argument("arguments", metavar="ARGS")
@click.option("--policy", "files", type=PATH, multiple=True, metavar="FILE",
              help="The instance's policy; again for each further layer. Else those in force.")  # fmt: skip
@click.option("--catalogue", type=PATH, metavar="FILE", help="The accepted tools, as JSON by server.")
@with_key
@as_json
def explain(
    place: Place,
    agent: Cn,
    tool: str,
    arguments: str,
    files: tuple[Path, ...],
    catalogue: Path | None,
    as_json: bool,
) -> None:
    """Show step by step what would come of a call.

    TOOL is server.tool; ARGS are its arguments as a JSON object, or @FILE. Without --policy the running broker is
    asked: for the policies in force, for the tools, accepted or shut, and how AGENT stands at this moment (steps 1 to
    3: its enrolment and the emergency stop, its run and budget, its calls that run). A call that these bar is denied,
    whatever the further steps say.

    With --policy no broker is asked: steps 1 to 3 are left out, and AGENT is but a name. Without --catalogue, too, the
    tool is then taken for one that takes any arguments and says nothing of itself. Nothing is called.
    """
    from broker import offline
    from lever import in_force

    given = strict_json.parse(_given(arguments), "arguments")
    layers: Sequence[Policy] = [_load(file) for file in files]
    calls = in_force.Calls()
    if not files:
        layers, calls = in_force.layers_and_calls(place, agent)
    accepted = catalogue if files or catalogue else in_force.catalogue(place, _server(tool))
    judged = _told(lambda: offline.judge_call(layers, agent, tool, given, accepted))
    if as_json:
        return show.data(_data(judged, calls))
    if files:
        show.say(f"with --policy: how {agent} stands is not known here, so steps 1 to 3 are left out")
    if accepted is None:
        show.say("without --catalogue: the tool's own definition is not known here")
    for number, text in (*calls.steps, *judged.steps):
        show.put(f"{number}  {text}")
    for resource in judged.resources:
        show.put(f"   {resource.kind} {resource.value}")
    denied = calls.refused is not None or judged.regime is None
    show.verdict(*_verdict(judged, calls), good=None if judged.regime == "act" and not denied else not denied)


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


@policy.command(epilog=examples("lever policy apply policy.yaml", "lever policy apply team.yaml --scope project/site"))
@click.argument("file", type=PATH)
@click.option(
    "--scope",
    type=SCOPE,
    default="instance",
    metavar="SCOPE",
    help="instance; or tenant/N, project/N, agent/N to narrow.",
)
@click.option("--yes", is_flag=True, help="Sign without asking.")
@with_key
@as_json
def apply(place: Place, file: Path, scope: str, yes: bool, as_json: bool) -> None:
    """Put a policy FILE in force, for all agents or for a layer of them.

    What changes against the one in force is shown before you sign it, and which entries name no accepted tool. A layer
    can only narrow what the instance's policy allows.
    """
    from broker import offline
    from lever import in_force
    from lever.envelopes import attach

    new = _load(file)
    policies, accepted = in_force.policies_and_tools(place)
    old = policies.get(scope)
    show.say(f"For {scope}: {old.version if old else 'no policy'} -> {new.version}")
    for change in offline.compare_policies(old, new) if old else ():
        show.verdict(*_changed(change), good=_EFFECTS[change.effect], words=True)
    if old is None:
        counts = (len(new.allowed), len(new.approval_required), len(new.denied))
        show.say("{} allowed, {} approval_required, {} denied".format(*counts))
    for text in _warnings(new, accepted):
        show.warn(text)
    answer = attach(place, "policy_apply", {"scope": scope}, new.raw, yes=yes)
    show.data(answer) if as_json else show.put(f"{scope} is under {answer.get('version')}")


@policy.command("show", epilog=examples("lever policy show", "lever policy show --scope instance --json"))
@click.option("--scope", type=SCOPE, metavar="SCOPE", help="Only this one's.")
@with_key
@as_json
def show_(place: Place, scope: str | None, as_json: bool) -> None:
    """Show the policies in force, each with its digest.

    The policy itself is the canonical JSON that was signed.
    """
    from lever import in_force

    found = {name: one for name, one in in_force.policies(place).items() if scope in (None, name)}
    if as_json:
        rows = [
            {"scope": name, "version": one.version, "digest": one.digest.hex(), "policy": json.loads(one.raw)}
            for name, one in found.items()
        ]
        return show.data({"policies": rows})
    for name, one in found.items():
        show.facts({"scope": name, "policy": one.version, "digest": f"sha256:{one.digest.hex()}"})
        text = json.dumps(json.loads(one.raw), indent=2, ensure_ascii=False)
        show.barred(show.safe_json(line) for line in text.split("\n"))
    if not found:
        show.say(f"no policy is in force{f' for {scope}' if scope else ''}; lever policy apply FILE")


def _is_same(catalogue: Path) -> bool:
    """Did another policy bring it already?"""
    try:
        return catalogue.read_bytes() == (_STORED / catalogue.name).read_bytes()
    except OSError:
        return False


def _accepted_names(place: Place) -> list[str] | None:
    """Of the tools that the running broker has accepted; None, and a line of why, where that can't be asked."""
    from lever import in_force

    try:
        accepted, why = in_force.policies_and_tools(place)[1], "the broker does not tell which it accepted"
    except CliError as error:
        accepted, why = None, error.text
    if accepted is None:
        show.say(f"tool names were not checked: {why}")
    return accepted


def _warnings(policy: Policy, accepted: list[str] | None) -> list[str]:
    """What may not be meant. accepted: the accepted tools' names; None where they are not known."""
    from broker import offline

    idle = offline.entries_of_no_tool(policy, accepted) if accepted is not None else ()
    unknown = [f"no accepted tool has these names: {', '.join(idle)}; see lever tools list"] if idle else []
    return [*offline.policy_warnings(policy), *unknown]


def _server(tool: str) -> str:
    server, dot, _ = tool.partition(".")
    if not dot:
        raise Malformed("tool", "expected server.tool")
    return server_name(server)


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
    show.verdict(*_changed(change), good=_EFFECTS[change.effect])


def _changed(change: Change) -> tuple[str, str]:
    return f"{change.effect:<10}", f"{change.what}: {change.old} -> {change.new}"


def _verdict(judged: Judgement, calls: Calls) -> tuple[str, str]:
    if calls.refused:
        return (f"{'denied':<10}", ": ".join(filter(None, calls.refused)))
    return (f"{judged.regime or 'denied':<10}", judged.decision.reason)


def _data(judged: Judgement, calls: Calls | None = None) -> dict[str, Any]:
    """calls: how the agent stands, where that is known."""
    code = getattr(judged.decision, "code", None)
    barred, why = (calls.refused if calls else None) or ("", "")
    steps = [*(calls.steps if calls else ()), *judged.steps]
    return {
        "outcome": barred or code or judged.regime,
        "denied": bool(barred or code),
        "reason": why or barred or judged.decision.reason,
        "tier": judged.tier,
        "class": judged.tool_class,
        "account": judged.account,
        "resources": [{"kind": each.kind, "value": each.value} for each in judged.resources],
        "args_digest": judged.frozen.digest.hex() if judged.frozen else None,
        "steps": [{"number": number, "text": text} for number, text in steps],
    }
