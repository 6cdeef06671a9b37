"""The `lever` command."""

import click


@click.group()
def main() -> None:
    """Lever: a signed way in for the operator of AI agents."""
