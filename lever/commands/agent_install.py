"""`lever agent install`: have an agent's harness start `lever agent mcp`. What it reads is in lever/agent/harness.py.

Everything is planned before anything is written, so that a refusal leaves every file as it was.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import unified_diff
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from lever import show
from lever.agent.harness import CHECKS, File, Harness, Place, Scope, Server, files, place
from lever.exits import CliError, Exit
from lever.groups import examples
from lever.params import as_json, with_identity
from lever.where import find

if TYPE_CHECKING:
    from lever.agent.merging import Taken, Unreadable
    from lever.edited_file import Edited

# What every harness takes as a server's name, and TOML as a key that needs no quotes.
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_WRITES_SKILL: tuple[Harness, ...] = ("claude-code", "opencode")


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the command line says. server, at: as the harness is to find them."""

    harness: Harness
    scope: Scope
    identity: Path
    server: Server
    at: Place
    deny_builtin: bool
    as_json: bool

    def files(self) -> list[File]:
        return files(self.harness, self.at, self.server, deny_builtin=self.deny_builtin)

    def again(self, *more: str, name: str = "") -> str:
        """The same command, to be typed."""
        words = ["lever", "agent", "install", self.harness]
        if self.harness != "json":
            words += ["--scope", self.scope]
        return shlex.join([*words, "--identity", str(self.identity), "--name", name or self.server.name, *more])


@dataclass(frozen=True, slots=True)
class _Step:
    """One file, as it is and as it is to be."""

    file: Edited
    new: bytes

    @property
    def outcome(self) -> str:
        if self.file.old == self.new:
            return "there"
        return "created" if self.file.old is None else "changed"

    def diff(self) -> list[str]:
        """The change, a line each."""
        old, new = ((content or b"").decode("utf-8", "replace").splitlines() for content in (self.file.old, self.new))
        return [line.rstrip("\n") for line in unified_diff(old, new, str(self.file.path), str(self.file.path))]


def _server_name(context: click.Context, parameter: click.Parameter, value: str) -> str:
    if not _NAME.fullmatch(value):
        raise click.BadParameter(f"expected 1 to 64 letters, digits, - or _, found {value!r}", context, parameter)
    return value


@click.command(
    epilog=examples(
        "lever agent install claude-code",
        "lever agent install codex --scope user --write",
        "lever agent install opencode --deny-builtin --write --dry-run",
    ),
)
@click.argument("harness", type=click.Choice(get_args(Harness)))
@click.option(
    "--scope",
    type=click.Choice(get_args(Scope)),
    default="project",
    show_default=True,
    help="This folder's configuration, or yours for every project.",
)
@with_identity
@click.option("--name", default="lever", show_default=True, callback=_server_name, help="What to call the server.")
@click.option("--write", is_flag=True, help="Write it where the harness looks, beside what is there.")
@click.option("--dry-run", is_flag=True, help="Show the change that --write would make, and write nothing.")
@click.option("--deny-builtin", is_flag=True, help="Also deny the harness's own shell, write and fetch tools.")
@as_json
def install(
    harness: Harness,
    scope: Scope,
    path: Path,
    name: str,
    write: bool,
    dry_run: bool,
    deny_builtin: bool,
    as_json: bool,
) -> None:
    """Connect an agent harness to its directives.

    Prints what the harness's configuration is to hold, so that it starts `lever agent mcp`; --write puts it there.
    Nothing that is there is overwritten, a second run changes nothing, and an instance's own folder is refused. `json`
    is the form that most other harnesses take: print it and put it in yourself.

    --deny-builtin is an offer for agents whose every effect is to go through the broker: without the harness's
    built-in shell, write and fetch tools only brokered tools are left to act with.
    """
    folder = Path(os.path.abspath(path))  # noqa: PTH100  absolute() keeps the `..`
    server = Server(name, _own_path(), ("agent", "mcp", "--identity", _utf8(folder)))
    at = _as_it_is(harness, place(harness, scope, Path.cwd(), Path.home(), os.environ))
    asked = _Asked(harness, scope, folder, server, at, deny_builtin, as_json)
    if write and harness == "json":
        raise CliError("expected a harness whose files are known, found json: it is printed only", hint=asked.again())
    if not folder.is_dir():
        show.warn(f"there is no identity in {folder} yet; lever agent enrol --bundle FILE --identity {folder}")
    if write and (around := find(None, {}, Path.cwd())):
        _must_not_work_there(around, refused=scope == "project" and not dry_run)
    _write(asked, dry_run) if write or (dry_run and harness != "json") else _print(asked)


def _must_not_work_there(config: Path, *, refused: bool) -> None:
    """In an instance's own folder an agent is not installed. Below it, and for every project, that is a warning."""
    if refused and config.parent.samefile(Path.cwd()):
        raise CliError(
            f"this is the folder of an instance ({config}): an agent that works here could write allowed_signers; "
            "nothing was changed",
            hint="in the folder that the agent works in: cd ~/project",
            exit=Exit.REFUSED,
        )
    show.warn(f"{config.parent} is the folder of an instance: an agent that works there could write allowed_signers")


def _print(asked: _Asked) -> None:
    """What each file is to hold, and where it belongs."""
    _snippets(asked, asked.files())
    if asked.as_json:
        return
    _tell_denied(asked)
    if asked.harness != "json":
        show.say(f"to have it written: {asked.again('--write', *_denying(asked))}")
    show.say(_skill_by_hand(asked))


def _snippets(asked: _Asked, wanted: Sequence[File]) -> None:
    from lever.agent.merging import snippet

    if asked.as_json:
        return _data(asked, [{"path": _path(asked, f), "outcome": "printed", "text": snippet(f)} for f in wanted])
    for file in wanted:
        show.say(f"for {_path(asked, file) or 'your harness'}:")
        for line in snippet(file).splitlines():
            show.put(line)


def _write(asked: _Asked, dry_run: bool) -> None:
    """Merge what is wanted into the harness's files, or show how."""
    steps = [_planned(asked, file) for file in asked.files()]
    if asked.harness in _WRITES_SKILL:
        steps.append(_planned_skill(asked))
    todo = [step for step in steps if step.outcome != "there"]
    for step in todo if not dry_run else ():
        # A project's files are shared by whoever shares the project; yours may hold secrets.
        step.file.replace(step.new, 0o666 if asked.scope == "project" else 0o600)
    if asked.as_json:
        return _data(asked, [_told(step, dry_run) for step in steps])
    for step in steps:
        done = {"there": "already there", "created": "would create" if dry_run else "wrote"}
        show.say(f"{done.get(step.outcome, 'would change' if dry_run else 'added to')}: {step.file.path}")
        for line in step.diff() if dry_run else ():
            show.put(line)
    _tell_denied(asked)
    if asked.harness not in _WRITES_SKILL:
        show.say(_skill_by_hand(asked))
    if not dry_run:
        show.say(f"to check: {CHECKS[asked.harness]}")


def _planned(asked: _Asked, file: File) -> _Step:
    from lever.agent.merging import Taken, Unreadable, merged
    from lever.edited_file import Edited

    edited = Edited.open(file.path, asked.at.root)
    old = edited.old or b""
    try:
        new = merged(old.decode("utf-8"), file).encode()
    except UnicodeDecodeError as error:
        raise _unreadable(asked, file, Unreadable(f"expected UTF-8, found: {error}")) from error
    except Unreadable as error:
        raise _unreadable(asked, file, error) from error
    except Taken as error:
        raise _taken(asked, file, error) from error
    return _Step(edited, new)


def _planned_skill(asked: _Asked) -> _Step:
    from lever.edited_file import Edited

    path = asked.at.skill
    step = _Step(Edited.open(path, asked.at.root), resources.files("lever.agent").joinpath("skill.md").read_bytes())
    if step.outcome != "changed":
        return step
    raise CliError(
        f"{path}: expected no skill of this name yet, or the same one, found another; nothing was changed",
        hint=shlex.join(["mv", str(path), f"{path}.old"]),
        exit=Exit.REFUSED,
        more=step.diff(),
    )


def _unreadable(asked: _Asked, file: File, error: Unreadable) -> CliError:
    """Comments, say, are the file's right: what is to be put in is printed instead."""
    if error.sound:
        _snippets(asked, [file])
    return CliError(
        f"{file.path}: {error.why}; nothing was changed",
        hint=f"put it in by hand: {asked.again(*_denying(asked))}",
        exit=Exit.REFUSED if error.sound else Exit.CORRUPT_FILE,
    )


def _taken(asked: _Asked, file: File, error: Taken) -> CliError:
    found, wanted = (json.dumps(value, indent=2, default=str).splitlines() for value in (error.found, error.wanted))
    if error.keys[0] not in ("mcpServers", "mcp_servers", "mcp"):
        hint = f"without --deny-builtin: {asked.again('--write')}"
    elif error.keys[-1] == asked.server.name:
        hint = asked.again("--write", *_denying(asked), name=f"{asked.server.name[:60]}-2")
    else:
        hint = f"put it in by hand: {asked.again(*_denying(asked))}"
    keys = ".".join(error.keys)
    return CliError(
        f"{file.path}: expected nothing at {keys} yet, or the same, found something else; nothing was changed",
        hint=hint,
        exit=Exit.REFUSED,
        more=[line.rstrip("\n") for line in unified_diff(found, wanted, "found", "wanted")],
    )


def _told(step: _Step, dry_run: bool) -> dict[str, Any]:
    written = step.outcome != "there" and not dry_run
    told: dict[str, Any] = {"path": str(step.file.path), "outcome": step.outcome, "written": written}
    if dry_run:
        told["diff"] = step.diff()
    return told


def _data(asked: _Asked, told: Sequence[dict[str, Any]]) -> None:
    server = {"name": asked.server.name, "command": asked.server.command, "args": asked.server.args}
    show.data({"harness": asked.harness, "scope": asked.scope, "server": server, "files": told})


def _tell_denied(asked: _Asked) -> None:
    if not asked.deny_builtin:
        return
    if asked.harness == "json":
        show.warn("there is no common form for what is denied: nothing is")
    elif asked.harness == "codex":
        show.warn(
            "of codex's own tools the shell alone can be denied so; for edits and searches set, above its first table: "
            'sandbox_mode = "read-only" and web_search = "disabled"'
        )
    else:
        show.say("with the built-in shell, write and fetch tools denied, only brokered tools are left to act with")


def _skill_by_hand(asked: _Asked) -> str:
    if asked.harness == "json":
        return "the text that teaches the model the rule: lever agent skill"
    folder, skill = (shlex.quote(str(path)) for path in (asked.at.skill.parent, asked.at.skill))
    return f"the text that teaches the model the rule: mkdir -p {folder} && lever agent skill > {skill}"


def _denying(asked: _Asked) -> Iterable[str]:
    return ("--deny-builtin",) if asked.deny_builtin else ()


def _path(asked: _Asked, file: File) -> str | None:
    return None if asked.harness == "json" else str(file.path)


def _as_it_is(harness: Harness, at: Place) -> Place:
    """opencode reads opencode.jsonc too: where that is the one there is, it is the one to add to."""
    commented = at.config.with_suffix(".jsonc")
    there = harness == "opencode" and commented.exists() and not at.config.exists()
    return replace(at, config=commented) if there else at


def _own_path() -> str:
    """Where this `lever` is. A symlink to it is kept: it outlives what it points to when that is installed anew."""
    own = sys.argv[0] if Path(sys.argv[0]).name == "lever" else str(Path(sys.executable).with_name("lever"))
    found = shutil.which(own) or shutil.which("lever")
    if not found:
        raise CliError("expected `lever` on PATH, found none", hint="pip install lever-broker", exit=Exit.UNEXPECTED)
    return _utf8(Path(found).absolute())


def _utf8(path: Path) -> str:
    """The path as text that a configuration can hold."""
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError as error:
        raise CliError(f"expected a path in UTF-8, found {path}", hint="mkdir -m 700 ~/.lever") from error
    return str(path)
