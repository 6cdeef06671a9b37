"""`lever completion`: what a shell needs to complete the words of `lever`."""

from __future__ import annotations

import click

from lever.exits import CliError
from lever.groups import HELP_OPTIONS, examples

_FILES = {
    "bash": 'eval "$(lever completion bash)"      # in ~/.bashrc',
    "zsh": 'eval "$(lever completion zsh)"       # in ~/.zshrc, after compinit',
    "fish": "lever completion fish | source        # in ~/.config/fish/config.fish",
}


@click.command(context_settings=HELP_OPTIONS, epilog=examples(*_FILES.values()))
@click.argument("shell", type=click.Choice(sorted(_FILES)))
def completion(shell: str) -> None:
    """Print the completion script for a shell."""
    from click.shell_completion import get_completion_class

    from lever.cli import main

    made = get_completion_class(shell)
    assert made
    try:
        script = made(main, {}, "lever", "_LEVER_COMPLETE").source()
    except (OSError, RuntimeError) as error:
        raise CliError(f"no completion for this {shell}: {error}", hint="lever completion --help") from error
    click.echo(script)
