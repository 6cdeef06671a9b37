"""Power cuts: the state folder is on an ext4 of its own, which is shut down under the daemon; the log is replayed.

Nothing that was not synced is there afterwards, as far as the file system can tell: EXT4_IOC_SHUTDOWN drops what its
journal did not hold. What a drive's own cache loses is beyond it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import struct
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.proof.forge import LEVER, Forge
from tests.proof.processes import Daemon
from tests.proof.scene import Figures, Scene

_SHUTDOWN = 0x8004587D  # _IOR('X', 125, __u32)
_LOG_FLUSHED, _LOG_LOST = 1, 2
_MIB = 1 << 20
_ANSWERS = 20
_CALLS = 200  # at most, until one is executed


class CannotMount(Exception):
    """This machine has no loop devices, no ext4, or no right to use them. The reason is the message."""


class Medium:
    """An ext4 in a file, mounted at `place`."""

    def __init__(self, folder: Path) -> None:
        self._image, self.place = folder / "medium.ext4", folder / "medium"
        self.place.mkdir()
        with self._image.open("wb") as image:
            image.truncate(48 * _MIB)
        _run("mkfs.ext4", "-q", "-F", str(self._image))
        self.mount()

    def mount(self) -> None:
        _run("mount", "-o", "loop", str(self._image), str(self.place))

    def unmount(self) -> None:
        _run("umount", str(self.place))

    def cut(self, *, log_flushed: bool) -> None:
        """From now on nothing reaches the medium, and every write is refused."""
        fd = os.open(self.place, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(fd, _SHUTDOWN, struct.pack("I", _LOG_FLUSHED if log_flushed else _LOG_LOST))
        finally:
            os.close(fd)


@contextmanager
def medium(folder: Path) -> Iterator[Medium]:
    """Mounted, and gone afterwards. Raises CannotMount."""
    made = Medium(folder)
    try:
        yield made
    finally:
        subprocess.run(["umount", "--lazy", str(made.place)], check=False, capture_output=True)


class PowerCut:
    """The medium is cut while the clients are at it. Then the daemon is killed, or sees for itself that it must end."""

    disk_fails = True
    entry = LEVER
    listed, verified = 0.5, 1.0

    def __init__(self, medium: Medium) -> None:
        self._medium = medium
        self._called = False

    def environment(self, scene: Scene) -> Mapping[str, str]:
        return {}

    def early(self, scene: Scene) -> bool:
        return scene.chance.random() < 0.1

    def calling(self) -> bool:
        """Until one life went on until a call was executed."""
        return not self._called

    def end(self, scene: Scene, daemon: Daemon) -> str:
        chance = scene.chance
        if daemon.serves:
            if self.calling():
                scene.watch(daemon, _CALLS, "kx")
                self._called = True
            scene.watch(daemon, answers=int(chance.expovariate(1 / _ANSWERS)))
        else:
            daemon.listen(0.08 * chance.random())
        self._medium.cut(log_flushed=chance.random() < 0.3)
        noticed = daemon.serves and bool(scene.clients) and chance.random() < 0.5
        status = daemon.ended() if noticed else daemon.end()
        self._medium.unmount()
        self._medium.mount()
        allowed = (1,) if noticed else (1, -signal.SIGKILL)
        return "" if status in allowed else f"after a power cut it ended with {status}"


class OnMedium(Scene):
    """An instance whose state folder is on a medium."""

    def make(self) -> OnMedium:
        super().make()
        ending = self.ending
        assert isinstance(ending, PowerCut)
        where = ending._medium.place / "state"
        shutil.move(self.state, where)
        self.state.symlink_to(where)
        os.sync()  # a copy of ours, which promises nothing by itself
        return self


def cut(forge: Forge, folder: Path, seed: int, medium: Medium, cuts: int) -> Figures:
    """A new instance, so many power cuts, and what came of it."""
    return OnMedium(forge, folder, seed, PowerCut(medium)).play(cuts)


def _run(*argv: str) -> None:
    try:
        done = subprocess.run(argv, capture_output=True, text=True)
    except OSError as error:
        raise CannotMount(str(error)) from error
    if done.returncode:
        raise CannotMount(f"{argv[0]}: {done.stderr.strip()}")
