"""Which file system a path is on, from mountinfo as the kernel writes it; and doctor's word about a remote one."""

from __future__ import annotations

from pathlib import Path

import pytest

from lever.checks import state
from lever.checks.mounts import Mount, mount_of
from lever.where import Place
from tests.cli.conftest import Cli

MOUNTINFO = r"""
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw
31 27 0:30 / /home rw,nosuid shared:5 - nfs4 files:/export/home rw,vers=4.2,proto=tcp
32 31 0:31 / /home/me/local\040disk rw - xfs /dev/vdb rw
33 27 0:32 / /mnt/share rw - cifs //files/share rw
34 27 0:33 / /mnt/guest rw - 9p host rw,trans=virtio
35 27 0:34 / /mnt/far rw - fuse.sshfs me@far: rw,user_id=0
36 27 0:35 / /mnt/near rw - fuse.fuse-overlayfs fuse-overlayfs rw
37 27 0:36 / /srv rw - ext4 /dev/vdc rw
38 37 0:37 / /srv rw - nfs files:/srv rw
a line that is none
"""


@pytest.mark.parametrize(
    ("path", "point", "kind", "remote"),
    [
        ("/var/lib/lever", "/", "ext4", False),
        ("/home/me/lever/state", "/home", "nfs4", True),
        ("/home", "/home", "nfs4", True),
        ("/homes/me", "/", "ext4", False),
        ("/home/me/local disk/state", "/home/me/local disk", "xfs", False),
        ("/mnt/share/state", "/mnt/share", "cifs", True),
        ("/mnt/guest/state", "/mnt/guest", "9p", True),
        ("/mnt/far/state", "/mnt/far", "fuse.sshfs", True),
        ("/mnt/near/state", "/mnt/near", "fuse.fuse-overlayfs", False),
        ("/srv/state", "/srv", "nfs", True),
    ],
)
def test_the_longest_mount_point_counts_and_of_two_the_later(path: str, point: str, kind: str, remote: bool) -> None:
    found = mount_of(MOUNTINFO, path)
    assert found == Mount(point, kind)
    assert found.over_a_network is remote


def test_what_the_kernel_does_not_tell_is_not_known() -> None:
    assert mount_of("", "/var") is None


def test_doctor_warns_of_a_state_folder_on_another_machine(
    cli: Cli, instance: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No such file system can be mounted here, so the kernel's word is made up."""
    monkeypatch.setattr(state, "mount_of", lambda *_: Mount("/home", "nfs4"))
    done = cli("doctor", instance)
    assert "warn state folder: " in done.stdout
    assert "lies on a network file system (nfs4)" in done.stdout
    assert f"set `state` in {Place(instance).config_path} to that place" in done.stdout
