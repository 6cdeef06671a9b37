"""`lever journal`: read offline, every problem with its place, nothing in it that could disguise a line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from lever.commands import journal
from lever.exits import Exit
from tests.cli.conftest import Cli


def segment(instance: Path) -> Path:
    (found,) = (instance / "state" / "journal").glob("*.seg")
    return found


def flip(path: Path, offset: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[offset] ^= 1
    path.write_bytes(raw)


def test_a_whole_journal(cli: Cli, instance: Path) -> None:
    done, data = cli("journal", "verify", instance), cli("journal", "verify", instance, "--json")
    assert (done.status, done.stderr) == (0, "the journal is whole\n")
    told = json.loads(data.stdout)
    assert (told["whole"], told["instance"], told["records"], told["problems"]) == (True, "demo", 1, [])
    assert told["head"] in done.stdout


def test_each_problem_is_named_with_its_file_offset_and_record(cli: Cli, instance: Path) -> None:
    path = segment(instance)
    flip(path, path.stat().st_size - 10)
    done, data = cli("journal", "verify", instance), cli("journal", "verify", instance, "--json")
    assert (done.status, data.status) == (Exit.CORRUPT_FILE, Exit.CORRUPT_FILE)
    (problem,) = json.loads(data.stdout)["problems"]
    assert problem["file"] == f"journal/{path.name}"
    assert problem["offset"] > 0
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("damaged"))
    assert f"journal/{path.name} at byte {problem['offset']}" in line
    assert "hint:  stop the broker" in done.stderr


def test_a_last_record_that_is_cut_short_is_what_a_crash_leaves(cli: Cli, instance: Path) -> None:
    path = segment(instance)
    path.write_bytes(path.read_bytes() + b"\x00\x00")
    done = cli("journal", "verify", instance)
    assert done.status == 0
    assert "incomplete" in done.stdout


def test_a_state_folder_that_is_none(cli: Cli) -> None:
    done = cli("journal", "verify", "--state", "nothing")
    assert done.status == Exit.UNEXPECTED
    assert "is no state folder" in done.stderr
    assert "hint:  " in done.stderr


def test_a_copy_is_read_without_any_configuration(cli: Cli, instance: Path) -> None:
    shutil.copytree(instance / "state", cli.folder / "copy")
    assert cli("journal", "verify", "--state", "copy").status == 0
    assert "instance_created" in cli("journal", "show", "--state", "copy").stdout


def test_show_is_one_line_a_record(cli: Cli, instance: Path) -> None:
    done, data = cli("journal", "show", instance), cli("journal", "show", instance, "--json")
    (line,) = done.stdout.splitlines()
    (whole,) = map(json.loads, data.stdout.splitlines())
    assert line.split() == [
        "1",
        whole["at"],
        "instance_created",
        "instance=demo",
        f"ca_digest={whole['ca_digest'][:12]}",
    ]
    assert len(whole["ca_digest"]) == 64


def test_show_filters_by_kind_and_by_directive(cli: Cli, instance: Path) -> None:
    assert cli("journal", "show", instance, "--kind", "instance_created").stdout
    assert cli("journal", "show", instance, "--kind", "directive_admitted").stdout == ""
    assert cli("journal", "show", instance, "--id", "x").stdout == ""


def test_a_text_can_pose_neither_as_a_field_nor_as_a_line() -> None:
    record = {"seq": 7, "at": "T", "kind": "pointer_failed", "why": "gone id=other", "channel": "", "ids": ["a", "b"]}
    assert journal._line(record) == '     7  T  pointer_failed  why="gone id=other" channel="" ids=a,b'


def test_a_damaged_journal_is_shown_up_to_the_damage(cli: Cli, instance: Path) -> None:
    path = segment(instance)
    whole = path.read_bytes()
    path.write_bytes(whole + b"damaged, and more than a frame's head")
    done = cli("journal", "show", instance)
    assert done.status == Exit.CORRUPT_FILE
    assert "instance_created" in done.stdout
    assert "hint:  lever journal verify" in done.stderr
