"""How to keep the broker running where there is no systemd: words to copy. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from html import escape

from lever.unit import Unit


def supervised(platform: str, program: Sequence[str], unit: Unit) -> list[str]:
    """What to do instead, line by line. platform: as sys.platform; program: how `lever` is started."""
    argv = [*program, "broker", "serve", str(unit.config)]
    if platform == "darwin":
        return list(_launchd(argv, unit.instance, str(unit.config.with_name("broker.log"))))
    return list(_anywhere(argv, unit.instance))


def _anywhere(argv: Sequence[str], instance: str) -> Iterator[str]:
    command = shlex.join(argv)
    yield "the broker runs under any supervisor that starts it again when it ends. In a shell:"
    yield f"    until {command}; do sleep 1; done"
    yield f"with runit, an executable /etc/sv/lever-{instance}/run:"
    yield "    #!/bin/sh"
    yield f"    exec {command} 2>&1"


def _launchd(argv: Sequence[str], instance: str, log: str) -> Iterator[str]:
    label = f"lever.{instance}"
    yield f"launchd can run the broker. Write ~/Library/LaunchAgents/{label}.plist:"
    yield '    <?xml version="1.0" encoding="UTF-8"?>'
    yield '    <plist version="1.0"><dict>'
    yield f"      <key>Label</key><string>{label}</string>"
    yield "      <key>ProgramArguments</key><array>"
    yield from (f"        <string>{escape(word, quote=False)}</string>" for word in argv)
    yield "      </array>"
    yield "      <key>RunAtLoad</key><true/>"
    yield "      <key>KeepAlive</key><dict><key>SuccessfulExit</key><false/></dict>"
    yield f"      <key>StandardErrorPath</key><string>{escape(log, quote=False)}</string>"
    yield "    </dict></plist>"
    yield f"and load it: launchctl bootstrap gui/$(id -u) ~/Library/LaunchAgents/{label}.plist"
