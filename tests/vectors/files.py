"""Every file that `python -m tests.vectors` writes."""

from tests.vectors import (
    bundles,
    configs,
    csrs,
    envelopes,
    frames,
    headers,
    pointers,
    policies,
    policy_files,
    records,
    sshsigs,
    statements,
)

FILES = (
    statements.FILE,
    envelopes.FILE,
    sshsigs.FILE,
    csrs.FILE,
    bundles.FILE,
    pointers.FILE,
    frames.FILE,
    headers.FILE,
    records.FILE,
    configs.FILE,
    policies.FILE,
    policy_files.FILE,
)
