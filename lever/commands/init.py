"""`lever init`: a new instance, made whole or not at all."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from broker.wire.names import Instance
from lever import instance, show, socket_path
from lever.exits import CliError
from lever.groups import HELP_OPTIONS, examples
from lever.params import INSTANCE, PATH, as_json

_KEY_ON_HOST = (
    "the keys are files without a passphrase on this host: whoever reads them, or runs lever as you, is the operator. "
    "That is fine on your own machine. Elsewhere keep the keys on another machine, or in hardware that asks for a touch"
)


@click.command(
    context_settings=HELP_OPTIONS,
    epilog=examples(
        "lever init ~/lever --name demo --key ~/.ssh/id_ed25519.pub --key backup.pub",
        "lever init --name demo --make-keys",
        "lever init --name demo --make-keys \\\n    --listen 0.0.0.0:8443 --advertise hub.lan:8443",
    ),
)
@click.argument("folder", type=PATH, default=Path(), metavar="[DIR]")
@click.option("--name", type=INSTANCE, required=True, metavar="NAME", help="The instance's name: a-z 0-9 -.")
@click.option("--key", "keys", type=PATH, multiple=True, metavar="PUB", help="Your public key; give two or more.")
@click.option("--make-keys", is_flag=True, help="Make two keys without a passphrase, in DIR/keys.")
@click.option("--listen", default="127.0.0.1:8443", show_default=True, metavar="HOST:PORT", help="The agents' door.")
@click.option("--advertise", metavar="NAME:PORT", help="How agents reach it, if not by --listen.")
@as_json
def init(
    folder: Path,
    name: Instance,
    keys: tuple[Path, ...],
    make_keys: bool,
    listen: str,
    advertise: str | None,
    as_json: bool,
) -> None:
    """Make a new instance in DIR, or in this folder.

    Writes lever.yaml, allowed_signers and the state folder with its certificate authority. Nothing that is there
    already is overwritten.
    """
    if bool(keys) == make_keys:
        found = "both" if make_keys else "neither"
        raise CliError(
            f"expected your public keys (--key) or --make-keys, found {found}",
            hint=f"lever init --name {name} --key ~/.ssh/id_ed25519.pub --key backup.pub; or: "
            f"lever init --name {name} --make-keys",
        )
    made = instance.make(folder.expanduser(), instance.Wish(name, keys, make_keys, listen, advertise))
    warnings = _warnings(name, made, make_keys)
    for text in warnings:
        show.warn(text)
    if as_json:
        return show.data(
            {"instance": name, **_facts(made), "fingerprints": list(made.fingerprints), "warnings": warnings}
        )
    show.facts(_facts(made) | {f"key {n}": fingerprint for n, fingerprint in enumerate(made.fingerprints, 1)})
    config = shlex.quote(str(made.config))
    show.say(f"next: lever broker serve {config}")
    show.say(f"then: lever directive selftest {config}")


def _facts(made: instance.Made) -> dict[str, str]:
    return {
        "config": str(made.config),
        "allowed_signers": str(made.allowed_signers),
        "state": str(made.state),
        "signing_key": made.signing_key,
    }


def _warnings(name: Instance, made: instance.Made, make_keys: bool) -> list[str]:
    warnings = [_KEY_ON_HOST] if make_keys else []
    if len(made.fingerprints) < 2:
        warnings.append(f"one key only: losing it locks you out; add a second line to {made.allowed_signers}")
    if words := socket_path.too_long(made.state.absolute() / "operator.sock"):
        warnings.append(f"{words}; before lever broker serve: {socket_path.shorter(name, made.config)}")
    return warnings
