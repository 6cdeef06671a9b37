"""`lever doctor`: look at everything, change nothing, and name the command that mends what is wrong."""

from __future__ import annotations

from dataclasses import asdict

import click

from lever import show
from lever.exits import CliError, Exit
from lever.groups import HELP_OPTIONS, examples
from lever.params import as_json, with_socket
from lever.where import Place

_WORDS = {"ok": ("ok", True), "warn": ("warn", None), "fail": ("FAIL", False)}


@click.command(
    context_settings=HELP_OPTIONS,
    epilog=examples("lever doctor", "lever doctor /srv/demo/lever.yaml", "lever doctor --json"),
)
@with_socket
@as_json
def doctor(place: Place, as_json: bool) -> None:
    """Look for what is wrong, and say what mends it.

    Signs nothing and changes nothing. Exit 6 if a check fails; a warning does not count. What only a signature can show
    is for `lever directive selftest`.
    """
    from lever import checks

    findings = []
    for finding in checks.every(place):
        findings.append(finding)
        if not as_json:
            word, good = _WORDS[finding.level]
            show.verdict(word, f"{finding.about}: {finding.text}", good=good)
            if finding.hint:
                show.below(f"hint: {finding.hint}")
    failed = sum(finding.level == "fail" for finding in findings)
    if as_json:
        show.data({"ok": not failed, "checks": [asdict(finding) for finding in findings]})
    if failed:
        raise CliError(f"{failed} of {len(findings)} checks failed", exit=Exit.VERIFICATION_FAILED)
    if not as_json:
        show.say("next: lever directive selftest")
