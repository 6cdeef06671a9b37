"""The pages of docs/formats: each example is what the code takes, and each table names every field."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from cryptography import x509

from broker.wire import bundle, envelope, pointer, sshsig, statement
from broker.wire.names import NAMESPACE_DIRECTIVE, DirectiveId
from tests.wire import ssh

PAGES = Path(__file__).parents[2] / "docs" / "formats"


def page(name: str) -> str:
    return (PAGES / f"{name}.md").read_text(encoding="utf-8")


def examples(name: str) -> list[str]:
    """The fenced blocks of a page, in order."""
    return re.findall(r"^```[a-z]+\n(.*?)\n```$", page(name), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", ["statement", "envelope", "signature", "bundle", "pointer"])
def test_a_page_starts_with_its_example(name: str) -> None:
    assert re.match(rf"# {name.capitalize()}\n\n```(json|text)\n", page(name))


def test_statement() -> None:
    first, *others = examples("statement")
    said = statement.read(first.encode())
    assert said.action.kind == "tool_call"
    told = [json.loads(first) | {"action": json.loads(other)} for other in others]
    kinds = [statement.read(json.dumps(one).encode()).action.kind for one in told]
    assert kinds == ["instruction", "approval", "lease"]


def test_envelope() -> None:
    (example,) = examples("envelope")
    assert envelope.read(example.encode()).op == "revoke"


def test_signature(tmp_path: Path) -> None:
    armored, line = examples("signature")
    principal, key = line.split(" ", 1)
    assert principal == ssh.PRINCIPAL
    assert sshsig.parse(armored.encode()).namespace == NAMESPACE_DIRECTIVE
    signed = examples("statement")[0].encode()
    assert ssh.verifies(tmp_path, key, armored.encode(), signed)
    assert not ssh.verifies(tmp_path, key, armored.encode(), signed + b"\n")


def test_bundle() -> None:
    (example,) = examples("bundle")
    (authority,) = x509.load_pem_x509_certificates(bundle.parse(example.encode()).broker_ca.encode())
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_pointer() -> None:
    told = dict(zip(pointer.About, examples("pointer"), strict=True))
    assert told == {
        about: pointer.sentence(DirectiveId(example.split('"')[1]), about) for about, example in told.items()
    }


def _paths(value: object, prefix: str = "") -> list[str]:
    if not isinstance(value, dict):
        return []
    return [prefix + name for name in value] + [
        path for name, inner in value.items() if name == "target_agent" for path in _paths(inner, f"{name}.")
    ]


@pytest.mark.parametrize("name", ["statement", "envelope", "bundle"])
def test_every_field_of_the_example_has_its_place_in_the_table(name: str) -> None:
    document = json.loads(examples(name)[0])
    rows = " ".join(re.findall(r"^\| (`[^|]*) \|", page(name), re.MULTILINE))
    expected = set(_paths(document)) | set(_paths(document.get("action", {})))
    assert expected - {"target_agent"} <= set(re.findall(r"`([^`]+)`", rows))
