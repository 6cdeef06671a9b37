"""The one list of targets. A parser without one fails tests/fuzz/test_coverage.py."""

from tests.fuzz.targets import agent, authority, doors, files, tool_servers, trust, wire

TARGETS = (
    *wire.TARGETS,
    *trust.TARGETS,
    *files.TARGETS,
    *doors.TARGETS,
    *agent.TARGETS,
    *authority.TARGETS,
    *tool_servers.TARGETS,
)
