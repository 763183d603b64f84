"""Break one thing in a played run, in its tables or in its history, and see which rules notice."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from fairlead.chaos.checks import FAMILIES
from fairlead.chaos.checks.check_run import RunFacts, RunResult, check_in_transaction, load_run
from fairlead.chaos.checks.family import Violation, run_family
from fairlead.chaos.history import HistoryRecord, HistoryWriter, read_history
from fairlead.chaos.run_plan import RunPlan
from fairlead.db.tx import Tx
from tests.chaos.checks.played_run import PLAN, PlayedRun

Edit = Callable[[list[HistoryRecord]], Sequence[HistoryRecord]]


class _Undo(Exception):
    """Rolls back."""


class Tampering:
    """The played run, changed by statements and by an edit of its history. All changes are undone."""

    def __init__(self, run: PlayedRun, folder: Path) -> None:
        self._run = run
        self._folder = folder

    async def find(self, name: str, *statements: str, edit: Edit | None = None) -> list[Violation]:
        """The violations of the rule that a changed run has."""
        [family] = [one for one in FAMILIES if name in one.queries]
        folder = self._edit(edit)
        found: list[Violation] = []

        async def look(tx: Tx) -> None:
            values = await load_run(tx, folder, PLAN)
            result = await run_family(tx, family, values)
            found.extend(one for one in result.violations if one.name == name)

        await self._change(statements, look)
        return found

    async def check(
        self, *statements: str, edit: Edit | None = None, plan: RunPlan = PLAN, **options: Any
    ) -> RunResult:
        """The whole result of a changed run."""
        folder = self._edit(edit)
        found: list[RunResult] = []

        async def look(tx: Tx) -> None:
            found.append(await check_in_transaction(tx, folder, RunFacts(plan=plan, **options)))

        await self._change(statements, look)
        return found[0]

    async def _change(self, statements: Sequence[str], look: Callable[[Tx], Any]) -> None:
        ids = {name.replace(" ", "_"): one for name, one in self._run.ids.items()}
        with suppress(_Undo):
            async with self._run.fl.database.transaction(unhurried=True) as tx:
                # no triggers and no foreign keys: nothing keeps a wrong row out
                await tx.run("set local session_replication_role = replica")
                for statement in statements:
                    assert await tx.run(statement, ids) != 0, f"changed nothing: {statement}"
                await look(tx)
                raise _Undo

    def _edit(self, edit: Edit | None) -> Path:
        if edit is None:
            return self._run.folder
        records = read_history(self._run.folder)
        edited = edit(list(records))
        assert list(edited) != records, "the edit changed nothing"
        folder = Path(mkdtemp(dir=self._folder))
        writer = HistoryWriter(folder / "edited.history")
        for record in edited:
            writer.write(record)
        writer.close()
        return folder
