"""Which file system a path is on, read from /proc/self/mountinfo (proc(5))."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

_NETWORK = frozenset(
    ("9p", "afs", "beegfs", "ceph", "cifs", "davfs", "glusterfs", "lustre", "ncpfs", "nfs", "nfs4", "smb3", "smbfs")
)
_NETWORK_FUSE = frozenset(
    ("ceph-fuse", "curlftpfs", "davfs", "gcsfuse", "glusterfs", "juicefs", "rclone", "s3fs", "sshfs", "vmhgfs-fuse")
)
_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """Where a file system is mounted, and of what kind it is: `ext4`, `nfs4`, `fuse.sshfs`."""

    point: str
    kind: str

    @property
    def over_a_network(self) -> bool:
        """Whether another machine holds the files, so that locks and syncs are only as good as its word."""
        kind, _, subtype = self.kind.partition(".")
        return kind in _NETWORK or (kind == "fuse" and subtype in _NETWORK_FUSE)


def mount_of(mountinfo: str, path: str) -> Mount | None:
    """The mount that an absolute path without links in it lies on: the longest mount point, of equals the last."""
    found: Mount | None = None
    for line in mountinfo.splitlines():
        before, dash, after = line.partition(" - ")
        fields = before.split(" ")
        if not dash or len(fields) < 5:
            continue
        mount = Mount(_OCTAL.sub(lambda octal: chr(int(octal[1], 8)), fields[4]), after.split(" ")[0])
        inside = PurePosixPath(path).is_relative_to(mount.point)
        if inside and (found is None or len(mount.point) >= len(found.point)):
            found = mount
    return found
