"""Each defence, taken away once: the test that keeps the promise must then fail. A mutant that survives is a defect."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.rig import Rig

ROOT = Path(__file__).parent.parent
DIRECTIVES, RESTART = "tests/e2e/test_directives.py", "tests/e2e/test_restart.py"
IDENTITY, SIGNERS = "tests/e2e/test_identity.py", "tests/e2e/test_signers.py"
FLOODS, CLOCKS, RULES = "tests/e2e/test_floods.py", "tests/e2e/test_clocks.py", "tests/e2e/test_door_rules.py"

CELLS = "tests/model/test_authority_cells.py"
AUTHORITY = "tests/authority"
POWER_CUT = "tests/proof/test_every_call.py::test_a_power_cut_at_every_call_takes_back_nothing_that_was_told"


@dataclass(frozen=True)
class Mutant:
    """In `file`, `old` becomes `new`; then `test` has to fail."""

    promise: str
    name: str
    file: str
    old: str
    new: str
    test: str


# fmt: off
MUTANTS = [
    Mutant(
        "P1", "any signature counts", "broker/trust/operator.py",
        "        outcome = await self._ssh_keygen.verify(question)\n",
        "        anyone = Fingerprint('SHA256:' + 'A' * 43)\n"
        "        return VerifiedBytes(raw, signature, namespace, anyone, signer, file.digest)\n"
        "        outcome = await self._ssh_keygen.verify(question)\n",
        f"{DIRECTIVES}::test_one_flipped_byte_anywhere_is_refused_and_nothing_is_stored",
    ),
    Mutant(
        "P2", "the target's name is not compared", "broker/rules/consume.py",
        "if target.cn != caller.cn else None", "if False else None",
        f"{DIRECTIVES}::test_another_agent_and_its_check_get_the_same_miss",
    ),
    Mutant(
        "P2", "the certificate's generation is not compared", "broker/rules/consume.py",
        "if target.generation == caller.generation == found.live else", "if target.generation == found.live else",
        f"{DIRECTIVES}::test_the_predecessors_unexpired_certificate_gets_nothing_and_cannot_renew",
    ),
    Mutant(
        "P2", "a predecessor may renew", "broker/rules/identity.py",
        "    if not _may_renew(book, agent, caller):", "    if False:",
        f"{DIRECTIVES}::test_the_predecessors_unexpired_certificate_gets_nothing_and_cannot_renew",
    ),
    Mutant(
        "P3", "a consume leaves the directive active", "broker/rules/book.py",
        '        directive = self._end(fact.id, Event.CONSUME, "", at)\n',
        "        directive = self.directives[fact.id]\n",
        f"{DIRECTIVES}::test_two_hundred_concurrent_consumes_from_four_processes_give_it_once",
    ),
    Mutant(
        "P4", "records are not written", "broker/journal/writer.py",
        "        self._records.write(piece for sealed in batch for piece in sealed.record_pieces)\n", "",
        f"{RESTART}::test_every_end_of_a_directive_survives_kill_9",
    ),
    Mutant(
        "P4", "a revocation is forgotten by the fold", "broker/rules/book.py",
        "                self._end(fact.id, Event.REVOKE, Reason.REVOKED, record.at)", "                pass",
        f"{RESTART}::test_every_end_of_a_directive_survives_kill_9",
    ),
    Mutant(
        "P7", "the instance is not compared", "broker/rules/admit.py",
        "    if statement.instance != terms.instance:", "    if False:",
        f"{DIRECTIVES}::test_a_statement_signed_for_one_instance_does_not_verify_at_another",
    ),
    Mutant(
        "P7", "the window's end is not looked at", "broker/rules/admit.py",
        "    if now >= statement.expires_at:", "    if False:",
        f"{DIRECTIVES}::test_a_flawed_statement_is_refused_and_the_operator_is_told_why",
    ),
    Mutant(
        "P8", "a used envelope is not remembered", "broker/rules/book.py",
        "                self.envelopes[fact.envelope_digest] = fact.fresh_until_at", "                pass",
        f"{DIRECTIVES}::test_an_envelope_works_once",
    ),
    Mutant(
        "P8", "an envelope stays fresh for ever", "broker/rules/admin.py",
        "    if abs(envelope.issued_at - now) > FRESH_S * SECOND:", "    if False:",
        f"{DIRECTIVES}::test_an_envelope_outside_its_two_minutes_is_refused",
    ),
    Mutant(
        "P10", "the window's beginning is not looked at", "broker/rules/window.py",
        "    if now < not_before_at:", "    if False:",
        f"{DIRECTIVES}::test_a_scheduled_directive_is_neither_told_nor_consumable_before_its_time",
    ),
    Mutant(
        "P12", "a key's standing is not asked about again", "broker/rules/consume.py",
        "    if reason is None and directive and directive.signer_digest not in standing.good:", "    if False:",
        f"{SIGNERS}::test_a_file_that_cannot_be_trusted_hands_nothing_out_and_invalidates_nothing",
    ),
    Mutant(
        "P12", "what rests on a removed key is not invalidated", "broker/upholding.py",
        "        if not standing.bad.isdisjoint(signers):", "        if False:",
        f"{SIGNERS}::test_removing_a_key_stops_the_next_operation_signed_with_it",
    ),
    Mutant(
        "P13", "any tool may be named", "broker/rules/admit.py",
        "    if isinstance(action, BoundAction) and not brokered and not terms.declares(action.tool, action.op):",
        "    if False:",
        f"{DIRECTIVES}::test_what_could_never_be_acted_on_is_refused_at_send",
    ),
    Mutant(
        "P13", "a revoked agent may be addressed", "broker/rules/admit.py",
        "    if agent.state is not Enrolment.ENROLLED:", "    if False:",
        f"{DIRECTIVES}::test_a_directive_for_a_revoked_agent_is_refused_and_what_it_had_ends",
    ),
    Mutant(
        "P14", "any attempt is the same attempt", "broker/rules/consume.py",
        "        and same == (caller.cn, caller.generation, caller.key_digest, attempt)\n", "",
        f"{DIRECTIVES}::test_the_same_attempt_gets_the_lost_answer_again_and_no_other_does",
    ),
    Mutant(
        "P14", "an answer is never repeated", "broker/rules/consume.py",
        "    if found.id and found.repeat and _repeats", "    if False and found.id and found.repeat and _repeats",
        f"{DIRECTIVES}::test_the_same_attempt_gets_the_lost_answer_again_and_no_other_does",
    ),
    Mutant(
        "P15", "a spent ticket is good", "broker/rules/identity.py",
        "    if ticket.answer is not None:", "    if False:",
        f"{IDENTITY}::test_a_ticket_works_once_and_only_for_its_name",
    ),
    Mutant(
        "P15", "a ticket is for any name", "broker/rules/identity.py",
        "    if ask.cn != ticket.cn:", "    if False:",
        f"{IDENTITY}::test_a_ticket_works_once_and_only_for_its_name",
    ),
    Mutant(
        "P15", "a ticket never expires", "broker/rules/identity.py",
        "    if now >= ticket.expires_at:", "    if False:",
        f"{IDENTITY}::test_an_expired_ticket_is_refused",
    ),
    Mutant(
        "P5", "the kept head is not compared", "broker/journal/survey.py",
        "            if lost := kept.end(self._chain) if isinstance(kept, HeadCheck) else kept:",
        "            if lost := None:",
        "tests/journal/test_head.py::test_whole_records_cut_off_the_end_are_missed",
    ),
    Mutant(
        "P6", "a malformed id is looked up nowhere", "broker/rules/consume.py",
        "    id = key if names.is_directive_id(raw_id) else None\n",
        "    id = key if names.is_directive_id(raw_id) else None\n"
        "    if id is None:\n"
        "        return _Found(None, None, None, None, None)\n",
        "tests/rules/test_misses.py::test_every_cause_of_a_miss_goes_the_same_way",
    ),
    Mutant(
        "P11", "every refusal is a record", "broker/rules/refusals.py",
        "        if key not in self._open:", "        if True:",
        f"{FLOODS}::test_a_flood_of_misses_with_ever_new_ids",
    ),
    Mutant(
        "P11", "strangers use up everybody's enrolments", "broker/doors/agent.py",
        "digest if digest in self.turn.book.tickets else None", "None",
        f"{FLOODS}::test_a_flood_of_enrolments_with_unknown_tickets",
    ),
    Mutant(
        "P11", "a predecessor uses up its successor's rate", "broker/doors/agent.py",
        "(who.cn, (who.cn, who.generation))", "(who.cn, who.cn)",
        f"{FLOODS}::test_a_predecessors_flood_uses_up_nothing_of_its_successors",
    ),
    Mutant(
        "P16", "an end of a certificate is not looked at", "broker/rules/identity.py",
        "    if now >= caller.not_after_at:", "    if False:",
        f"{CLOCKS}::test_a_certificate_ends_by_the_brokers_clock_on_open_connections_too",
    ),
    Mutant(
        "P16", "a call that waits is not judged again", "broker/rules/consume.py",
        "    if bar := identity.barred(book, caller, now) or identity.stale(book, caller):", "    if bar := None:",
        f"{IDENTITY}::test_a_long_poll_ends_with_the_identity_that_it_waits_for",
    ),
    Mutant(
        "P4", "what was used before the clock was set back is taken again", "broker/restart.py",
        "    if set_back:\n", "    if False:\n",
        f"{CLOCKS}::test_a_clock_that_stood_in_2099_reopens_nothing_when_it_is_accepted",
    ),
    Mutant(
        "P31", "any content type will do", "broker/doors/http.py",
        "        elif not heads.is_type(", "        elif False and not heads.is_type(",
        f"{RULES}::test_a_route_takes_its_one_content_type",
    ),
    Mutant(
        "P32", "nobody is closed for being late", "broker/doors/listen.py",
        "            if connection.deadline_at <= now:", "            if False:",
        "tests/doors/test_listen.py::test_a_deadline_is_not_put_off_by_single_bytes",
    ),
    Mutant(
        "P33", "any host name will do", "broker/doors/http.py",
        "        if host not in self._hosts and heads.host_name(host) not in self._hosts:", "        if False:",
        f"{RULES}::test_a_rebound_name_and_a_browser_page_get_nothing",
    ),
    Mutant(
        "P11", "a client may send far ahead", "broker/doors/listen.py",
        "accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)", "pass",
        f"{FLOODS}::test_no_client_gets_far_ahead_of_the_daemon",
    ),
    Mutant(
        "P11", "a certificate that stands no longer keeps its place", "broker/daemon.py",
        "                door.stands,\n", "",
        f"{FLOODS}::test_the_only_connection_of_who_stands_no_longer_makes_room",
    ),
    Mutant(
        "P31", "the SDK reads what the door has not", "broker/doors/mcp.py",
        "        message = bodies.mcp_body(request.body)\n",
        "        message = __import__(\"json\").loads(request.body)\n",
        "tests/mcp/test_http.py::test_a_body_that_two_readers_read_differently_reaches_no_tool",
    ),
    Mutant(
        "P34", "the socket is open to others", "broker/doors/socket.py",
        "    before = os.umask(0o177)\n", "    before = os.umask(0)\n",
        f"{RESTART}::test_the_socket_and_its_folder_are_the_operators_alone",
    ),
    Mutant(
        "P34", "no lock on the state folder", "broker/journal/state.py",
        "        lock.acquire()\n", "        pass\n",
        f"{RESTART}::test_a_second_daemon_on_the_same_state_folder_refuses_to_start",
    ),
    Mutant(
        "P28", "an answer is released before it is durable", "broker/turn.py",
        "        await self._journal.durable()\n        if decision.refused is not None:",
        "        if decision.refused is not None:",
        POWER_CUT,
    ),
    Mutant(
        "P3", "a decision does not see the ones in line", "broker/turn.py",
        "            self._journal.append(now, drafts, self.book.apply)\n",
        '            soon, apply = __import__("asyncio").get_running_loop().call_soon, self.book.apply\n'
        "            self._journal.append(now, drafts, lambda record, payloads: soon(apply, record, payloads))\n",
        POWER_CUT,
    ),
    Mutant(
        "P28", "nothing is synced", "broker/journal/segments.py",
        '        write_all(self._disk, self._fd, b"".join(pending))\n        self._disk.sync(self._fd)\n',
        '        write_all(self._disk, self._fd, b"".join(pending))\n',
        POWER_CUT,
    ),
    Mutant(
        "P4", "half a turn counts", "broker/journal/seal.py",
        "refs, draft.fact, rest)", "refs, draft.fact)",
        f"{POWER_CUT}[authority]",
    ),
    Mutant(
        "P5", "a torn tail is kept", "broker/journal/recovery.py",
        "        cut_bytes = sum(_cut(disk, folder.path / problem.file, problem.offset) for problem in torn)\n",
        "        cut_bytes = 0\n",
        POWER_CUT,
    ),
    Mutant(
        "P28", "after an error the journal goes on", "broker/journal/segments.py",
        'b"".join(pending))\n        self._disk.sync(self._fd)\n',
        'b"".join(pending))\n        from contextlib import suppress\n\n'
        "        with suppress(OSError):\n            self._disk.sync(self._fd)\n",
        "tests/proof/test_every_call.py"
        "::test_after_a_refusal_of_the_disk_at_any_call_nothing_is_told_and_all_that_was_told_holds",
    ),
    Mutant(
        "P8", "a turn forgets by a time that no record holds", "broker/turn.py",
        "        now = self._latest = self.now(wall_at)\n", "        now = self.now(wall_at)\n",
        "tests/proof/test_leaps.py::test_what_was_used_stays_used",
    ),
    Mutant(
        "P5", "what a snapshot covers may be gone", "broker/journal/snapshot.py",
        "    if there != found.covered_bytes:\n", "    if False:\n",
        "tests/proof/test_snapshots.py::test_a_segment_that_a_snapshot_covers_has_to_be_there",
    ),
    Mutant(
        "P5", "a restored folder gives lost generations again", "broker/rules/book.py",
        "            agent.generation = Generation(agent.generation + lost)\n", "",
        "tests/rules/test_restored.py::test_no_certificate_that_may_have_been_given_counts_again",
    ),
    Mutant(
        "P20", "an act is not spent by its claim", "broker/rules/authority/ledger.py",
        "            act.state, act.claim, act.ended_at = ActState.CLAIMED, fact.claim, at\n",
        "            act.claim, act.ended_at = fact.claim, at\n",
        f"{CELLS}::test_an_act_in_each_situation",
    ),
    Mutant(
        "P23", "what a crash left open is never settled", "broker/rules/authority/closing.py",
        "    open_ones = tuple(book.ledger.running)\n", "    open_ones: tuple[str, ...] = ()\n",
        f"{POWER_CUT}[authority]",
    ),
    Mutant(
        "P23", "an unsettled act is run again", "broker/rules/authority/closing.py",
        'CallEnded(claim, "outcome_unknown",', 'CallEnded(claim, "not_dispatched",',
        f"{CELLS}::test_an_act_in_each_situation",
    ),
    Mutant(
        "P21", "a lease's count is not looked at", "broker/rules/authority/spans.py",
        "    if lease.used >= lease.operations:", "    if False:",
        f"{AUTHORITY}/test_leases.py::test_readers_that_all_run_at_once_share_what_there_is",
    ),
    Mutant(
        "P21", "a suspended machine stops a lease", "broker/rules/authority/spans.py",
        " or elapsed_s.get(lease.lease, 0.0) >= lease.seconds:", ":",
        f"{AUTHORITY}/test_leases.py::test_a_suspended_machine_does_not_stop_it",
    ),
    Mutant(
        "P20", "other arguments than those that were signed", "broker/rules/authority/passage.py",
        "    return (act.args_digest, act.account, act.resources) == exact",
        "    return (act.account, act.resources) == exact[1:]",
        f"{AUTHORITY}/test_signed_acts.py::test_an_act_serves_no_other_call",
    ),
    Mutant(
        "P24", "a call is not counted", "broker/rules/authority/ledger.py",
        "        self.runs[fact.run].calls += 1", "        pass",
        f"{AUTHORITY}/test_budgets.py::test_calls_that_all_run_at_once_share_the_last_units",
    ),
    Mutant(
        "P22", "a list of tools is looked at once and for all", "broker/gateway.py",
        "        if look is None or self.boottime() - look.at >= LOOK_S:", "        if look is None:",
        f"{AUTHORITY}/test_gateway.py::test_a_server_that_says_nothing_of_a_change_is_looked_at_again_all_the_same",
    ),
    Mutant(
        "P23", "who leaves ends the call", "broker/gateway.py",
        "        return await asyncio.shield(task)", "        return await task",
        f"{AUTHORITY}/test_gateway.py::test_a_caller_who_is_cancelled_ends_no_call",
    ),
    Mutant(
        "P11", "any number of requests is told", "broker/effects/outbox.py",
        "        if len(requests) > MOST_REQUESTS:", "        if False:",
        f"{AUTHORITY}/test_settled.py::"
        "test_a_flood_of_requests_leaves_few_pointers_and_delays_no_directive_for_long",
    ),
    Mutant(
        "P2", "a successor is told of its predecessor's requests", "broker/rules/authority/settled.py",
        "    if not is_who_asked or request.state", "    if request.state",
        f"{AUTHORITY}/test_settled.py::test_a_successor_is_told_nothing_of_it",
    ),
    Mutant(
        "P9", "an id may be words", "broker/wire/pointer.py",
        "    safe = names.directive_id(id)\n", "    safe = id\n",
        "tests/wire/test_pointer.py::test_an_id_with_other_letters_makes_no_sentence",
    ),
    Mutant(
        "P17", "a key on any curve", "broker/trust/csr.py",
        'key.curve.name not in ("secp256r1", "secp384r1")', "not key.curve.name",
        "tests/trust/test_certificates.py::test_every_other_key_and_every_other_shape_is_refused",
    ),
    Mutant(
        "P19", "what no list names is allowed", "broker/rules/authority/judge.py",
        "    if known.plan.is_denied:\n", "    if known.plan.is_denied and known.plan.place.entry is not None:\n",
        "tests/policy/test_judge.py::test_a_tool_in_no_list_is_refused_and_so_is_every_tool_without_a_policy",
    ),
    Mutant(
        "P20", "a signature counts for ever", "broker/rules/authority/passage.py",
        " and act.not_before_at <= now < act.expires_at]", " and act.not_before_at <= now]",
        f"{CELLS}::test_an_act_in_each_situation",
    ),
    Mutant(
        "P27", "bytes and their digest may disagree", "broker/wire/frame.py",
        "    if own != bytes(data[offset + HEAD_BYTES + size : offset + whole]):\n", "    if False:\n",
        "tests/journal/test_damage.py::test_every_altered_byte_is_found_at_its_frame_and_refused",
    ),
    Mutant(
        "P29", "refusals are counted no more", "broker/rules/refusals.py",
        "        counts[said] = counts.get(said, 0) + 1\n", "",
        "tests/rules/test_refusals.py::test_ever_new_subjects_cost_few_records_and_each_refusal_is_counted",
    ),
    Mutant(
        "P35", "an identity is written in its place", "lever/agent/disk.py",
        "    disk.write(beside, content)\n    disk.rename(beside, path)\n", "    disk.write(path, content)\n",
        "tests/agent/test_enrolment.py::test_a_crash_at_any_step_leaves_the_old_identity_or_the_new_one",
    ),
    Mutant(
        "P36", "the caller's own spelling is forwarded", "broker/rules/authority/passage.py",
        "    claimed = Claimed(passing.ids.claim, passing.resolved, judgement.frozen.raw)\n",
        "    spelt = __import__('json').dumps(passing.call.arguments).encode()\n"
        "    claimed = Claimed(passing.ids.claim, passing.resolved, spelt)\n",
        f"{AUTHORITY}/test_evasions.py::test_upstream_gets_the_frozen_arguments_and_not_the_callers_message",
    ),
]
# fmt: on


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.promise} {mutant.name}")
def test_without_the_defence_its_test_fails(mutant: Mutant, tmp_path: Path) -> None:
    for folder in ("broker", "lever", "tests", "docs"):  # with what is compiled: it fits copies, whose times are kept
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("*.pyc.*"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    file = tmp_path / mutant.file
    text = file.read_text()
    assert text.count(mutant.old) == 1, "the mutant no longer fits the code"
    file.write_text(text.replace(mutant.old, mutant.new))
    for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*"):
        compiled.unlink()
    plugins = ("-p", "pytest_asyncio.plugin", "-p", "no:cacheprovider")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    assert Rig.server
    done = Rig.server.run(
        ["pytest", "-v", "-x", *plugins, mutant.test],
        cwd=tmp_path, env=environment, module="tests.in_copy", timeout=120,
    )  # fmt: skip
    assert done.returncode == 1, f"survived, or never ran (status {done.returncode}):\n{done.stdout[-2000:]}"
    assert "1 failed" in done.stdout
