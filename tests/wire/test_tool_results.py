"""The names that agents call tools by."""

from __future__ import annotations

import pytest

from broker.errors import Malformed
from broker.wire import tool_results


def test_a_name_as_policies_write_it_is_told_as_agents_write_it() -> None:
    assert tool_results.qualified("git__git_status") == "git.git_status"
    with pytest.raises(Malformed, match=r"there is none of that name; agents write git__git_status$"):
        tool_results.qualified("git.git_status")


@pytest.mark.parametrize("name", ["", ".", "status", "Git.status", "git.\x1b[2J", "git." + "x" * 10_000])
def test_nothing_is_told_again_that_is_no_name(name: str) -> None:
    with pytest.raises(Malformed, match=r"; agents write server__tool$"):
        tool_results.qualified(name)
