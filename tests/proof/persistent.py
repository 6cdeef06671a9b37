"""What all clients have in common: an answer that was lost is asked for again, also when nobody is there to answer."""

from __future__ import annotations

from collections.abc import Callable

from tests.proof.lines import Gone

Step = Callable[[], None]


class Persistent:
    """again: what was lost, as the step that asks for it."""

    again: Step | None = None

    def lost(self, step: Step) -> None:
        """The answer to this step never came."""
        self.again = step

    def ask_again(self) -> None:
        """Take the step that was lost; it stays lost while nobody answers."""
        step, self.again = self.again, None
        assert step
        try:
            step()
        except Gone:
            self.again = step
            raise
