"""The `lever` command: its nouns, in the order in which one meets them."""

from __future__ import annotations

import click

from lever.groups import Lever, Noun, examples

NOUNS = {
    "init": Noun("lever.commands.init", "Make a new instance in DIR, or in this folder."),
    "broker": Noun("lever.commands.broker", "Run the broker, and see how it is."),
    "agent": Noun("lever.commands.agent", "Invite agents, shut them out; or be one."),
    "directive": Noun("lever.commands.directive", "Sign directives, send them, see what came of them."),
    "policy": Noun("lever.commands.policy", "Check, try and apply policies."),
    "tools": Noun("lever.commands.tools", "See what tool servers define, and accept it."),
    "request": Noun("lever.commands.request", "See what agents ask for, and answer."),
    "lease": Noun("lever.commands.lease", "Let an agent read one account for seconds."),
    "run": Noun("lever.commands.run", "See what agents have used, and begin or end a run."),
    "stop-all": Noun("lever.commands.stop", "Stop everything that agents do, at once."),
    "resume": Noun("lever.commands.stop", "Lift the emergency stop, signed."),
    "receipt": Noun("lever.commands.receipt", "Prove who allowed what, and what came of it."),
    "journal": Noun("lever.commands.journal", "Read the record of all that the broker decided."),
    "doctor": Noun("lever.commands.doctor", "Look for what is wrong, and say what mends it."),
    "completion": Noun("lever.commands.completion", "Print the completion script for a shell."),
}


@click.group(
    cls=Lever,
    nouns=NOUNS,
    epilog=examples(
        "lever init ~/lever --name demo --make-keys && cd ~/lever",
        "lever broker serve &",
        "lever agent invite worker-a --out worker-a.json",
        "lever agent enrol --bundle worker-a.json      # beside the agent",
        'lever directive send worker-a --instruction "Finish the report first."',
    ),
)
@click.version_option(package_name="lever-broker", prog_name="lever")
def main() -> None:
    """A signed way in for the operator of AI agents.

    You sign with an SSH key, the broker checks the exact bytes, and the agent fetches the action once, over its own
    mutual-TLS identity. Text that merely claims to be from you stays what it is: text.

    Data goes to standard output and words to standard error; --json makes the data JSON. Exit status: 0 done,
    1 unexpected, 2 usage, 3 refused, 4 broker not reachable, 5 signing failed, 6 verification failed, 7 corrupt file.
    """
