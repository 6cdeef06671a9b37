"""The mistakes an operator can make while the broker runs: how each is made, what is told of it, what mends it."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.cli.scene import Scene
from tests.cli.test_signer import listening_as
from tests.rig import make_key


@dataclass(frozen=True)
class Mistake:
    """What is done wrong, and what is told of it.

    mend follows doctor's hint; without one it is run as it stands. selftest: what that says; it passes where the
    mistake is a `warn`. serve: what `lever broker serve` says; "" where it starts. unprivileged: it is none for root.
    passes: selftest passes all the same, with a warning.
    """

    make: Callable[[Scene], object]
    said: str
    mend: Callable[[Scene, str], object] = Scene.sh
    selftest: str = ""
    serve: str = ""
    level: str = "fail"
    unprivileged: bool = False
    passes: bool = False


def signers(scene: Scene) -> Path:
    return scene.rig.allowed_signers


def in_first_line(new: str, old: str = r"^(operator@demo) namespaces=") -> Callable[[Scene], None]:
    return lambda scene: scene.edit(signers(scene), old, new)


def added(line: str) -> Callable[[Scene], None]:
    return lambda scene: signers(scene).write_text(f"{signers(scene).read_text()}{line}\n") and None


def replaced(make: Callable[[Path], object]) -> Callable[[Scene], None]:
    def replace(scene: Scene) -> None:
        signers(scene).unlink()
        make(signers(scene))

    return replace


def each_key(*numbers: int) -> Callable[[Scene, str], None]:
    """Run the hint for each key: from the second one on without what comes before `&&`."""

    def mend(scene: Scene, hint: str) -> None:
        for number in numbers:
            assert "KEY.pub" in hint
            scene.sh(hint.replace("KEY.pub", f"keys/operator-{number}.pub"))
            hint = hint.rpartition(" && ")[2]

    return mend


def line_of(hint: str) -> int:
    found = re.search(r"line (\d+)", hint)
    assert found, hint
    return int(found[1])


def edited(old: str, new: str) -> Callable[[Scene, str], None]:
    """Edit the line that the hint names; `{}` stands for what it says to write there."""

    def mend(scene: Scene, hint: str) -> None:
        said = re.search(r'namespaces="[^"]*"|operator@demo', hint)
        lines = signers(scene).read_text().splitlines()
        at = line_of(hint) - 1
        lines[at] = re.sub(old, new.replace("{}", said[0] if said else ""), lines[at])
        signers(scene).write_text("\n".join(lines) + "\n")

    return mend


def deleted(scene: Scene, hint: str) -> None:
    assert f"delete line {line_of(hint)}" in hint
    lines = signers(scene).read_text().splitlines(keepends=True)
    del lines[line_of(hint) - 1]
    signers(scene).write_text("".join(lines))


def begun_with_the_principal(scene: Scene, hint: str) -> None:
    assert hint == "begin the line of each of your keys with operator@demo"
    signers(scene).write_text(signers(scene).read_text().replace("operator@prod", "operator@demo"))


def forwarded_agent(scene: Scene) -> None:
    """A process named as sshd's is; behind it any socket, since nothing is asked of the agent."""
    path = scene.place / "agent" / "socket"
    path.parent.mkdir(exist_ok=True)
    scene.stack.callback(shutil.rmtree, path.parent)
    scene.stack.enter_context(listening_as("sshd", path, scene.rig.socket))
    path.chmod(0o777)
    scene.env["SSH_AUTH_SOCK"] = str(path)


def unset(scene: Scene, hint: str) -> None:
    assert hint.startswith("unset SSH_AUTH_SOCK")
    del scene.env["SSH_AUTH_SOCK"]


def keyless(scene: Scene) -> None:
    scene.rig.key.unlink()
    scene.rig.key.with_suffix(".pub").unlink()


def another_key(scene: Scene) -> None:
    new = make_key(scene.rig.folder / "keys" / "operator-3")
    for half in (new, new.with_suffix(".pub")):
        shutil.chown(half, scene.rig.folder.owner())
    scene.edit(scene.rig.config, "operator-1", "operator-3")


def moved_out(scene: Scene, hint: str) -> None:
    scene.sh(hint)
    set_in_the_configuration(scene, hint)


def set_in_the_configuration(scene: Scene, hint: str) -> None:
    """Edit as told by `then set in FILE ...: KEY: VALUE`: the line that has the key, or the comment that shows it."""
    found = re.search(r"then set in (\S+?)[:,].* (\w+): (\S+)$", hint)
    assert found, hint
    config, key, value = Path(found[1]), found[2], found[3]
    old = rf"^  (?:# )?{key}: .*"
    scene.edit(config, old, f"  {key}: {value}")


def clock_ahead(seconds: int) -> Callable[[Scene], None]:
    return lambda scene: scene.env.update(CLOCK_AHEAD_S=str(seconds))


def clock_set(scene: Scene, hint: str) -> None:
    assert hint.startswith("timedatectl set-ntp true")
    del scene.env["CLOCK_AHEAD_S"]


def brought_back(scene: Scene, hint: str) -> None:
    assert hint.startswith(f"bring {scene.rig.key} back")
    scene.rig.key.with_name("lost").rename(scene.rig.key)


RUNNING = {
    "allowed_signers missing": Mistake(
        lambda scene: signers(scene).unlink(), "does not exist", each_key(1, 2), "does not exist"
    ),
    "allowed_signers unreadable": Mistake(
        lambda scene: signers(scene).chmod(0), "can't be read: Permission denied", selftest="can't be read",
        unprivileged=True,
    ),
    "allowed_signers a folder": Mistake(replaced(Path.mkdir), "is a folder", each_key(1, 2), "is a folder"),
    "allowed_signers a FIFO": Mistake(replaced(os.mkfifo), "is a FIFO", each_key(1, 2), "is a FIFO"),
    "allowed_signers writable by others": Mistake(
        lambda scene: signers(scene).chmod(0o666), "can be written by others", selftest="can be written by others"
    ),
    "allowed_signers empty": Mistake(
        lambda scene: signers(scene).write_text("# nobody yet\n"), "no line of it names a key",
        each_key(1, 2), "no line of it names a key",
    ),
    "no key under the principal": Mistake(
        lambda scene: signers(scene).write_text(signers(scene).read_text().replace("@demo name", "@prod name")),
        "no key stands under operator@demo", begun_with_the_principal, "under another principal",
    ),
    "a principal that is a pattern": Mistake(
        in_first_line("* namespaces="), "is a pattern that also matches", edited(r"^\*", "{}"),
        "is a pattern that also matches", level="warn",
    ),
    "namespaces that leave ours out": Mistake(
        in_first_line(r'operator@demo namespaces="git"', r'^operator@demo namespaces="[^"]*"'), "leaves out",
        edited(r'namespaces="[^"]*"', "{}"), "leaves out",
    ),
    "a key that expired": Mistake(
        in_first_line(r'\1 valid-before="20200101Z",namespaces='), "expired at 2020-01-01",
        edited("20200101Z", "20991231Z"), "expired at 2020-01-01",
    ),
    "a key that is not valid yet": Mistake(
        in_first_line(r'\1 valid-after="20990101Z",namespaces='), "is not valid before 2099-01-01",
        edited("20990101Z", "20200101Z"), "is not valid before 2099-01-01",
    ),
    "a line of garbage": Mistake(
        added("garbage"), "line 5 is skipped: no key on it", deleted, "line 5 is skipped", passes=True
    ),
    "an option that ssh-keygen does not know here": Mistake(
        in_first_line(r"\1 verify-required,namespaces="), "line 3 is skipped: unknown option verify-required",
        edited("verify-required,", ""), "unknown option verify-required",
    ),
    "one key only": Mistake(
        lambda scene: signers(scene).write_text("".join(signers(scene).read_text().splitlines(True)[:-1])),
        "has one key only", each_key(2), "has one key only", level="warn",
    ),
    "a forwarded ssh-agent": Mistake(forwarded_agent, "it is forwarded to this host", unset, level="warn"),
    "an ssh-agent that is gone": Mistake(
        lambda scene: scene.env.update(SSH_AUTH_SOCK="/nowhere/agent"), "nothing answers on /nowhere/agent",
        unset, level="warn",
    ),
    "the key where agents work": Mistake(
        lambda scene: (scene.rig.folder / ".git").mkdir(), "which looks like a tree that agents work in",
        moved_out, level="warn",
    ),
    "the key readable by others": Mistake(
        lambda scene: scene.rig.key.chmod(0o644), "can be read by others", selftest="other users may read it"
    ),
    "the key missing": Mistake(keyless, "operator-1 can't be read: no such file", selftest="expected a key at"),
    "the private half lost": Mistake(
        lambda scene: scene.rig.key.rename(scene.rig.key.with_name("lost")),
        "nobody can sign with it here", brought_back,
        selftest="only the public half of the key is here",
    ),
    "lever.yaml writable by others": Mistake(
        lambda scene: scene.rig.config.chmod(0o666), "they decide whose signature counts",
        selftest="which can be written by everybody",
    ),
    "lever.yaml in a folder writable by others": Mistake(
        lambda scene: scene.rig.folder.chmod(0o777), "they decide whose signature counts"
    ),
    "the key not in allowed_signers": Mistake(
        another_key, "operator-3.pub is not in", selftest="the signing key is not in allowed_signers"
    ),
    "the state folder open to others": Mistake(
        lambda scene: scene.rig.state.chmod(0o755), "is open to others"
    ),
    "a clock somewhat wrong": Mistake(
        clock_ahead(30), "s behind this machine's", clock_set, level="warn"
    ),
    "a clock ahead": Mistake(
        clock_ahead(600), "s behind this machine's", clock_set,
        "s behind this machine's",
    ),
    "a clock behind": Mistake(
        clock_ahead(-600), "s ahead of this machine's", clock_set,
        "s ahead of this machine's",
    ),
}  # fmt: skip
