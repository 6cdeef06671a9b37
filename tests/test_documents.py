"""The documents are held to the code: each row of the threat model names a test that exists."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from broker.wire.bodies import consume_body

ROOT = Path(__file__).parent.parent
MODEL = (ROOT / "docs" / "THREAT_MODEL.md").read_text()
TABLES, TRIED = MODEL.split("## What was tried")
HEADS = ("| attack", "| promise", "| case")
ROWS = [line for line in TABLES.splitlines() if line.startswith("| ") and not line.startswith(HEADS)]
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
LATER = re.compile(r"issue on (a hostile world|agents|authority|proof) \|$")


@cache
def marks_of(path: str) -> dict[str, set[str]]:
    """The promises that each function of a file is marked with, by itself or with the whole file."""
    tree = ast.parse((ROOT / path).read_text())
    whole = [node.value for node in tree.body if isinstance(node, ast.Assign) and _named(node.targets[0], "pytestmark")]
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {one.name: {*_promises(*whole, *one.decorator_list)} for one in functions}


def _promises(*marked: ast.expr) -> Iterator[str]:
    for node in itertools.chain.from_iterable(map(ast.walk, marked)):
        if isinstance(node, ast.Call) and _named(node.func, "pytest.mark.promise"):
            yield from map(ast.literal_eval, node.args)


def _named(node: ast.expr, name: str) -> bool:
    return ast.unparse(node) == name


def functions_of(path: str) -> set[str]:
    return {*marks_of(path)}


def test_what_broke_once_names_a_test_that_exists() -> None:
    broke = [line for line in TRIED.splitlines() if line.startswith("| ") and "| broke: " in line]
    assert len(broke) > 10
    for row in broke:
        (named,) = NAMED.findall(row)
        assert named[1] in functions_of(named[0]), row


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip()[:40])
def test_every_row_names_a_test_that_exists_or_the_issue_that_brings_it(row: str) -> None:
    named = NAMED.findall(row)
    assert named or LATER.search(row), row
    assert "issue on a hostile world" not in row, "that one is closed"
    for path, name in named:
        assert name in functions_of(path), f"{path} has no {name}"


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.startswith("| P")], ids=lambda row: row.split("|")[1].strip()
)
def test_every_test_that_a_promise_names_is_marked_with_it(row: str) -> None:
    """So `-m` and the reports of a promise come to the same tests as its row."""
    promise = row.split("|")[1].strip()
    unmarked = [name for path, name in NAMED.findall(row) if promise not in marks_of(path).get(name, ())]
    assert unmarked == [], f"not marked with {promise}"


def test_every_promise_and_every_attack_has_its_row() -> None:
    assert [f"P{n}" for n in range(1, 38)] == re.findall(r"^\| (P\d+) \|", MODEL, re.MULTILINE)
    attacks = MODEL.split("## Attacks")[1].split("## Promises")[0]
    assert len(re.findall(r"^\| ", attacks, re.MULTILINE)) - 1 == 15


CASES = (
    "parallel reads", "two identical mutations", "two acts of the same digest", "provably not sent",
    "upstream answered with an error", "time-out or lost connection", "long call, streaming", "act or lease ends while",
    "policy, pin or key changed", "approval for other arguments", "1, 1.0", "one call that fans out",
    "a caller that leaves", "wall clock", "restart", "two operators answer", "agent enrolled anew", "token and cost",
    "a run", "an act consumed by a manager", "the upstream server itself", "secrets in arguments", "an agent floods",
)  # fmt: skip


def test_every_corner_case_of_a_tool_call_has_its_row() -> None:
    table = TABLES.split("## Corner cases of a tool call")[1]
    rows = [row.removeprefix("| ") for row in table.splitlines() if row.startswith("| ")]
    for case in CASES:
        assert len([row for row in rows if row.startswith(case)]) == 1, case


def test_the_doors_page_shows_a_consume_as_the_door_takes_it() -> None:
    page = (ROOT / "docs" / "formats" / "doors.md").read_text()
    example = page.split("```json\n")[1].split("```")[0]
    assert consume_body(example.encode()).attempt == "b7d5"


def test_every_link_between_the_documents_leads_somewhere() -> None:
    for page in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
