"""Worker processes: mutants of what a worker does when a connection, a reply or its own process is lost."""

from tests.mutants.catalogue.runs import COMMANDS, DATABASE, STALLS
from tests.mutants.mutant import Edit, Mutant, Suite

BLOCKED_LOOP = Suite(("tests/runtime/test_blocked_loop.py",))

MUTANTS = (
    Mutant(
        name="worker_outlives_its_lease",
        breaks=("I3", "I4"),
        wrong="A worker that cannot renew its leases runs its attempts on while others run the same jobs.",
        file="runtime/heartbeat.py",
        old="            self._drop_expiring()\n",
        new="",
        catchers=(STALLS, Suite(("tests/runtime/test_heartbeat.py",))),
        findings=("handlers_overlap",),
    ),
    Mutant(
        name="lost_attempt_runs_on",
        breaks=("I3",),
        wrong="A worker that lost a lease does not stop the handler.",
        file="runtime/worker_attempt.py",
        old="        self.lost = True\n        if self.run is not None:\n            self.run.lose(grace)\n",
        new="        self.lost = True\n",
        catchers=(STALLS, Suite(("tests/runtime/test_worker.py",))),
        findings=("handlers_overlap",),
    ),
    Mutant(
        name="start_after_the_lease",
        breaks=("I3",),
        wrong="A worker that was stopped for longer than a lease starts what it had claimed before.",
        file="runtime/worker_attempt.py",
        old="            self._fence()\n",
        new="            pass\n",
        catchers=(Suite(("tests/runtime/test_worker.py",)),),
    ),
    Mutant(
        name="batch_after_the_lease",
        breaks=("I3",),
        wrong="A worker that was stopped for longer than a lease starts a batch that it had collected before.",
        file="handlers/batch.py",
        old="        if member.may_begin is not None and not member.may_begin():\n",
        new="        if False:\n",
        catchers=(Suite(("tests/runtime/test_execution.py",)),),
    ),
    Mutant(
        name="fence_on_time_before_its_losses",
        breaks=("I3",),
        wrong="While the heartbeat's thread gives leases up, the event loop takes them for valid.",
        file="runtime/heartbeat.py",
        old="        for lease in over:\n            self._lose(lease)\n        # not before: another thread asks it whether leases may be lost\n"
        "        self._late_at = deadline\n",
        new="        self._late_at = deadline\n        for lease in over:\n            self._lose(lease)\n",
        catchers=(Suite(("tests/runtime/test_heartbeat.py",)),),
    ),
    Mutant(
        name="late_cancel_ends_the_next_statement",
        breaks=("I11",),
        wrong="A connection is used again although the cancel of its last statement may still be under way.",
        file="db/connection.py",
        old="        if reading.cancelled() or not is_told:\n",
        new="        if reading.cancelled():\n",
        catchers=(Suite(("tests/db/test_answer_reader.py",)),),
    ),
    Mutant(
        name="cancel_outlasts_a_lease",
        breaks=("I3",),
        wrong="A handler that loses its lease waits five seconds for the cancel of its statement, also with a short lease.",
        file="db/session.py",
        old="    return min(LONGEST_CANCEL_SECONDS, settings.lease_seconds * CANCEL_PART)\n",
        new="    return LONGEST_CANCEL_SECONDS\n",
        catchers=(Suite(("tests/db/test_session.py",)),),
    ),
    Mutant(
        name="outcome_dropped_in_outage",
        breaks=("I11",),
        wrong="An outcome that could not be written while the database was away is forgotten.",
        file="runtime/finisher.py",
        old="            batch = [(batch[0][0], unstorable_change(why))]\n        self._waiting += batch\n",
        new="            batch = [(batch[0][0], unstorable_change(why))]\n",
        catchers=(DATABASE, Suite(("tests/runtime/test_finisher.py",))),
        findings=("job_not_ended", "not_drained"),
    ),
    Mutant(
        name="unanswered_claims_forgotten",
        breaks=("I19", "I11"),
        wrong="The jobs of a claim whose answer was lost stay leased until they expire, and count as lost.",
        file="runtime/store_source.py",
        old="        tokens = self._unanswered.due()\n        if not tokens:\n            return\n",
        new="        return\n",
        catchers=(Suite(("tests/runtime/test_unheard_claims.py",)),),
    ),
    Mutant(
        name="notification_without_polling",
        breaks=("I11",),
        wrong="A worker waits for a notification only: a job whose notification was lost waits for the next one.",
        file="runtime/worker.py",
        old="                seconds = self._count_pause() or await self._start_suspect_instead()\n"
        "                if (opens_in := self._source.opens_in) is not None:\n"
        "                    seconds = min(seconds, opens_in)\n"
        "                await wait_any(self._wake, seconds=seconds)\n",
        new="                if not self._count_pause():\n"
        "                    await self._start_suspect_instead()\n"
        "                await wait_any(self._wake)\n",
        catchers=(
            Suite(
                ("tests/runtime/test_worker.py::test_a_job_whose_notification_was_lost_is_found_by_polling",)
            ),
        ),
    ),
    Mutant(
        name="command_outlives_its_worker",
        breaks=("I12", "I3"),
        wrong="The processes of a command run on when their worker was killed.",
        file="handlers/supervisor.py",
        old="            self._selector.unregister(self._link.sock)\n"
        "            self._deadline = math.inf\n"
        "            self._kill_all()\n            return False\n",
        new="            os._exit(0)\n",
        more=(
            Edit(
                "handlers/supervisor.py",
                "            self._alone, self._kill_at = True, 0.0\n",
                "            os._exit(0)\n",
            ),
        ),
        catchers=(COMMANDS, Suite(("tests/handlers/test_supervisor.py",))),
        findings=("process_orphaned", "handlers_overlap"),
    ),
    Mutant(
        name="only_the_command_itself_is_killed",
        breaks=("I12",),
        wrong="A command that ends or is killed leaves its child processes behind.",
        file="handlers/supervisor.py",
        old="            self._sweeps += 1\n            kill_descendants(os.getpid())\n",
        new="            self._sweeps = MOST_SWEEPS\n            send_signal(self._main, signal.SIGKILL)\n",
        catchers=(COMMANDS, Suite(("tests/handlers/test_supervisor.py",))),
        findings=("process_orphaned",),
    ),
    Mutant(
        name="lease_counted_from_the_reply",
        breaks=("I3", "I4"),
        wrong="A worker counts a renewed lease from the moment of the reply, and so believes in it longer than the database.",
        file="runtime/heartbeat.py",
        old="                self._expires_at[lease] = asked_at + self._lease_seconds\n",
        new="                self._expires_at[lease] = self._clock() + self._lease_seconds\n",
        catchers=(Suite(("tests/runtime/test_heartbeat.py",)),),
    ),
    Mutant(
        name="given_back_job_starts",
        breaks=("I3", "I4"),
        wrong="A worker starts a job that its heartbeat thread has given back while the event loop was blocked.",
        file="runtime/unstarted.py",
        old="        return self.jobs.pop(id(held), None) is not None\n",
        new="        self.jobs.pop(id(held), None)\n        return True\n",
        catchers=(BLOCKED_LOOP,),
    ),
    Mutant(
        name="withdrawn_claim_starts",
        breaks=("I3", "I4"),
        wrong="A worker starts the jobs of a claim that its heartbeat thread has withdrawn.",
        file="runtime/unstarted.py",
        old="        return self._claims.pop(claim, False)\n",
        new="        self._claims.pop(claim, False)\n        return True\n",
        catchers=(BLOCKED_LOOP,),
    ),
    Mutant(
        name="blocked_worker_keeps_its_jobs",
        breaks=("I11", "I19"),
        wrong="A worker whose event loop is blocked keeps what it has not started.",
        file="runtime/heartbeat.py",
        old="        self._given_back += self._unstarted.take_back()\n",
        new="",
        catchers=(BLOCKED_LOOP,),
    ),
)
