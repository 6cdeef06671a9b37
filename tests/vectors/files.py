"""Every file that `python -m tests.vectors` writes."""

from tests.vectors import bundles, csrs, frames, headers, pointers, records, sshsigs

FILES = (sshsigs.FILE, csrs.FILE, bundles.FILE, pointers.FILE, frames.FILE, headers.FILE, records.FILE)
