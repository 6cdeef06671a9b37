"""Which configuration a command works with, and that nobody else's is taken by accident."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from broker.wire.names import Instance
from lever import where
from lever.exits import CliError, Exit
from lever.where import Place
from tests.cli.conftest import Cli


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """top/lever.yaml, top/inner/deep, other.yaml."""
    (tmp_path / "top" / "inner" / "deep").mkdir(parents=True)
    (tmp_path / "top" / "lever.yaml").write_text("instance: top\n")
    (tmp_path / "other.yaml").write_text("instance: other\n")
    return tmp_path


def test_the_nearest_upwards(tree: Path) -> None:
    assert where.find(None, {}, tree / "top" / "inner" / "deep") == tree / "top" / "lever.yaml"
    (tree / "top" / "inner" / "lever.yaml").write_text("instance: inner\n")
    assert where.find(None, {}, tree / "top" / "inner" / "deep") == tree / "top" / "inner" / "lever.yaml"


def test_the_variable_before_the_nearest_and_a_named_one_before_both(tree: Path) -> None:
    environment = {"LEVER_CONFIG": str(tree / "other.yaml")}
    assert where.find(None, environment, tree / "top") == tree / "other.yaml"
    assert where.find(tree / "third.yaml", environment, tree / "top") == tree / "third.yaml"


def test_a_folder_stands_for_the_file_in_it(tree: Path) -> None:
    assert where.find(tree / "top", {}, tree) == tree / "top" / "lever.yaml"


def test_none_at_all(tree: Path) -> None:
    assert where.find(None, {"LEVER_CONFIG": ""}, tree) is None


def test_one_that_everybody_may_write_is_not_found_by_accident(tree: Path) -> None:
    config = tree / "top" / "lever.yaml"
    config.chmod(0o666)
    with pytest.raises(CliError, match="can be written by everybody") as raised:
        where.find(None, {}, tree / "top")
    assert raised.value.exit is Exit.REFUSED
    assert where.find(config, {}, tree / "top") == config, "named, it is taken"


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_one_of_another_user_is_not_found_by_accident(tree: Path) -> None:
    os.chown(tree / "top" / "lever.yaml", 12345, 12345)
    with pytest.raises(CliError, match="belongs to uid 12345"):
        where.find(None, {}, tree / "top")


def test_a_dangling_link_is_told_and_not_passed_over(tree: Path) -> None:
    (tree / "top" / "inner" / "lever.yaml").symlink_to("nowhere")
    with pytest.raises(CliError, match="can't be read"):
        where.find(None, {}, tree / "top" / "inner")


def test_what_the_options_say_needs_no_configuration() -> None:
    place = Place().at(Path("/run/a.sock")).signing(Path("/k"), Instance("demo"))
    assert (place.instance, place.socket, place.key) == ("demo", Path("/run/a.sock"), Path("/k"))


def test_without_a_configuration_the_instance_must_be_said(cli: Cli, key: Path) -> None:
    done = cli("directive", "list", "--socket", "a.sock", "--key", key)
    assert done.status == Exit.USAGE
    assert "found neither --instance nor a lever.yaml" in done.stderr


def test_without_a_configuration_the_key_must_be_said(cli: Cli) -> None:
    done = cli("directive", "sign", "worker-a", "--generation", "1", "--instruction", "x", "--instance", "demo")
    assert done.status == Exit.USAGE
    assert "found neither --key nor operator.signing_key" in done.stderr


def test_every_mistake_in_a_configuration_is_told_with_its_line(cli: Cli) -> None:
    (cli.folder / "lever.yaml").write_text("instance: demo\nlisten: nowhere\nstat: x\n")
    done = cli("directive", "list")
    assert done.status == Exit.USAGE
    assert "lever.yaml:2:9: expected HOST:PORT" in done.stderr
    assert "lever.yaml:3:1: unknown key" in done.stderr
    assert done.stderr.count("error: ") == 2
    assert "hint:  " in done.stderr


def test_a_named_configuration_that_is_not_there(cli: Cli) -> None:
    done = cli("journal", "verify", "--config", "gone.yaml")
    assert done.status == Exit.USAGE
    assert "gone.yaml: there is no such file" in done.stderr


def test_the_trailing_argument_the_option_and_the_variable_lead_to_the_same(cli: Cli, instance: Path) -> None:
    config = instance / "lever.yaml"
    said = [
        cli("journal", "verify", config).stdout,
        cli("journal", "verify", "--config", config).stdout,
        cli("journal", "verify", instance).stdout,
        cli("journal", "verify", env={"LEVER_CONFIG": str(config)}).stdout,
        cli("journal", "verify", cwd=instance / "keys").stdout,
    ]
    assert len(set(said)) == 1
    assert "instance  demo" in said[0]
