"""docs/formats/config.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from broker.config import Address, Agent, Config, Limits, Operator, ToCommand, ToInbox
from broker.config.schema import Block, KeptHead, Sandbox, Server
from broker.wire.names import Cn
from tests.config.conftest import Read

PAGE = (Path(__file__).parents[2] / "docs" / "formats" / "config.md").read_text()
EXAMPLE = "".join(line[4:] + "\n" for line in PAGE.split("## Keys")[0].splitlines() if line.startswith("    "))
BLOCKS: dict[str, type[Block]] = {
    "": Config,
    "operator.": Operator,
    "servers.*.": Server,
    "servers.*.sandbox.": Sandbox,
    "agents.*.": Agent,
    "kept_head.": KeptHead,
    "limits.": Limits,
}


def test_the_example_loads(read: Read, tmp_path: Path) -> None:
    config = read(EXAMPLE)
    assert config.instance == "demo"
    assert config.listen == Address("127.0.0.1", 8443)
    assert config.reached_at == Address("broker.example", 8443)
    assert config.operator
    assert config.operator.allowed_signers == tmp_path / "allowed_signers"
    assert config.operator.signing_key == tmp_path / "keys" / "operator-1"
    assert (config.operator.directive_expiry_s, config.operator.directive_expiry_max_s) == (600, 86400)
    command = ToCommand(("scion", "message", "--", "{agent}", "{text}"))
    assert config.deliver_to(Cn("worker-a")) == (ToInbox(), command)
    assert config.limits == Limits()


def test_the_table_has_every_key_and_its_default() -> None:
    rows = dict(re.findall(r"^\| `([\w.*]+)` \| [^|]+ \| `?([^|`]*)`? \|", PAGE, re.MULTILINE))
    known = {
        prefix + (field.alias or name): field
        for prefix, block in BLOCKS.items()
        for name, field in block.model_fields.items()
    }
    assert rows.keys() == known.keys()
    for key, field in known.items():
        if key in ("operator", "limits", "servers.*.sandbox"):
            continue
        written = {"None": "null", "()": "[]", "('inbox',)": "[inbox]", "False": "false"}
        default = "required" if field.is_required() else written.get(str(field.default), str(field.default))
        assert rows[key] == default, key
