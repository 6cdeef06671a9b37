"""Checks of the state folder: whose it is, what it lies on, and the journal in it."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path

from broker.errors import BrokerError
from lever.checks.finding import Finding
from lever.checks.mounts import Mount, mount_of
from lever.exits import failure_of
from lever.where import Place

_ABOUT = "state folder"
_INSIDE = ("journal", "payloads", "ca")
_MIB = 1024 * 1024
_LITTLE_BYTES = 64 * _MIB
_FULL_BYTES = _MIB


def folder(place: Place) -> Iterator[Finding]:
    """The state folder: there, for its owner alone, and on a disk that takes what is written."""
    path = place.config.state
    try:
        found = path.stat()
    except OSError as error:
        words = (error.strerror or str(error)).lower()
        hint = f"restore it from a backup, or set `state` in {place.config_path} to where it is"
        yield Finding(_ABOUT, "fail", f"{path}: {words}", hint)
        return
    if not stat.S_ISDIR(found.st_mode):
        yield Finding(_ABOUT, "fail", f"{path} is no folder", f"set `state` in {place.config_path} to a folder")
        return
    mount = _mount(path)
    flaws = [
        *_private(path),
        *_read_only(path, mount),
        *_room(path, mount),
        *_network(path, mount, place),
    ]
    yield from flaws or [Finding(_ABOUT, "ok", f"{path}, for its owner alone")]


def config(place: Place) -> Iterator[Finding]:
    """lever.yaml and its folder: whoever can write there decides who is the operator."""
    for path in (place.config_path, place.config_path.absolute().parent):
        mode = path.stat().st_mode
        if mode & 0o022 and not mode & stat.S_ISVTX:
            text = f"others may write to {path} (mode {stat.S_IMODE(mode):04o}): they decide whose signature counts"
            yield Finding("configuration", "fail", text, f"chmod go-w {shlex.quote(str(path))}")


def journal(place: Place) -> Iterator[Finding]:
    """The journal, every byte of it."""
    from broker import offline

    if not place.config.state.is_dir():
        return
    try:
        report = offline.verify_journal(place.config.state)
    except BrokerError as error:
        told = failure_of(error)
        yield Finding("journal", "fail", " ".join(told.lines), told.hint)
        return
    if not report.whole:
        count, first = len(report.problems), report.problems[0]
        yield Finding("journal", "fail", f"damaged in {count} place(s); the first: {first}", "lever journal verify")
        return
    torn = "; the last one is cut short, which the broker's next start mends" if report.problems else ""
    yield Finding("journal", "ok", f"whole, {report.records} records{torn}")


def holder(path: Path) -> int | None:
    """The process that holds the state folder's lock, as far as Linux tells: to try the lock would be to take it."""
    try:
        lock, locks = (path / "lock").stat(), Path("/proc/locks").read_text()
    except OSError:
        return None
    inode = f"{os.major(lock.st_dev):02x}:{os.minor(lock.st_dev):02x}:{lock.st_ino}"
    for line in locks.splitlines():
        fields = line.split()
        if fields[1:2] == ["FLOCK"] and fields[5] == inode and int(fields[4]) > 0:
            return int(fields[4])
    return None


def _private(path: Path) -> Iterator[Finding]:
    """The folder and those in it which the broker wants for itself alone."""
    for each in (path, *(path / name for name in _INSIDE)):
        try:
            found = each.stat()
        except OSError:
            continue  # what is missing or hidden is told by the journal's check
        mode, mend = stat.S_IMODE(found.st_mode), f"chmod 0700 {shlex.quote(str(each))}"
        if found.st_uid != os.geteuid():
            text = f"{each} belongs to uid {found.st_uid}, this is uid {os.geteuid()}"
            hint = f"chown -R {os.geteuid()} {shlex.quote(str(path))}; or run lever as that user"
            yield Finding(_ABOUT, "warn", text, hint)
            return
        if mode & 0o077:
            yield Finding(_ABOUT, "fail", f"{each} is open to others (mode {mode:04o})", mend)
        elif mode & 0o700 != 0o700:
            yield Finding(_ABOUT, "fail", f"{each} can't be written by its owner (mode {mode:04o})", mend)


def _read_only(path: Path, mount: Mount | None) -> Iterator[Finding]:
    disk = _disk(path)
    if disk and disk.f_flag & os.ST_RDONLY:
        point = shlex.quote(mount.point) if mount else "MOUNT_POINT"
        text = f"{path} lies on a file system that is mounted read-only"
        yield Finding(_ABOUT, "fail", text, f"mount -o remount,rw {point}")


def _disk(path: Path) -> os.statvfs_result | None:
    """What the file system says of itself; None where it does not answer, which the journal's check tells."""
    try:
        return os.statvfs(path)
    except OSError:
        return None


def _room(path: Path, mount: Mount | None) -> Iterator[Finding]:
    """Is there space for the journal? It stops the broker when there is none."""
    disk = _disk(path)
    if disk is None:
        return
    free_bytes = disk.f_bavail * disk.f_frsize
    if disk.f_blocks == 0 or free_bytes >= _LITTLE_BYTES:
        return
    text = f"{path} lies on a file system with {free_bytes // _MIB} MiB left, expected {_LITTLE_BYTES // _MIB} or more"
    where = shlex.quote(mount.point if mount else str(path))
    hint = f"du -ax {where} | sort -n | tail; and delete or move what is large there"
    yield Finding(_ABOUT, "fail" if free_bytes < _FULL_BYTES else "warn", text, hint)


def _network(path: Path, mount: Mount | None, place: Place) -> Iterator[Finding]:
    if mount and mount.over_a_network:
        text = f"{path} lies on a network file system ({mount.kind}), whose locks and syncs are not to be trusted"
        hint = f"with the broker stopped, move it to a local disk and set `state` in {place.config_path} to that place"
        yield Finding(_ABOUT, "warn", text, hint)


def _mount(path: Path) -> Mount | None:
    """None where the system does not tell, as on macOS."""
    try:
        return mount_of(Path("/proc/self/mountinfo").read_text("utf-8", "replace"), str(path.resolve()))
    except OSError:
        return None
