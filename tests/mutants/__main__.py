"""`make mutants`: apply each mutant in a scratch copy, run its catchers, and report which were caught.

make mutants                                  all of them
make mutants ARGS="heartbeat_by_job"          some of them
make mutants ARGS="--by suite,interleavings"  only with these catchers
make mutants ARGS="--report docs/reliability.md --json mutants.json"
make mutants ARGS="--generated"               wrong versions of the stored functions, made by rules
"""

import argparse
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import click
import msgspec

from tests.mutants.catalogue import MUTANTS
from tests.mutants.catching import CATCHERS, Seen, Verdict, judge, look, name_of
from tests.mutants.generated import run
from tests.mutants.mutant import Catcher, Mutant
from tests.mutants.report import render_json, write_report
from tests.mutants.scratch import scratch_tree


def main(argv: Sequence[str] | None = None) -> int:
    """Run the mutants that are named, or all. The exit code is 1 if one of them was not caught."""
    argv = sys.argv[1:] if argv is None else argv
    if argv[:1] == ["--generated"]:
        return run.main(argv[1:])
    options = _parse(argv)
    mutants = [one for one in MUTANTS if not options.names or one.name in options.names]
    if options.list:
        for mutant in mutants:
            click.echo(f"{mutant.name:40} {', '.join(mutant.breaks):10} {mutant.wrong}")
        return 0
    kinds = tuple(options.by.split(",")) if options.by else ()
    if trouble := _check_unchanged(mutants, kinds, options.at_once):
        click.echo("\n".join(trouble), err=True)
        return 2
    verdicts = _judge_all(mutants, kinds, options.at_once)
    caught = sum(1 for one in verdicts if one.finding)
    click.echo(f"{caught} of {len(verdicts)} mutants caught")
    if options.json:
        options.json.write_bytes(render_json(mutants, verdicts))
    if options.report:
        write_report(options.report, mutants, verdicts)
    return 0 if caught == len(verdicts) else 1


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="mutants; all if none is named")
    parser.add_argument("--by", help=f"only with these catchers, separated by commas: {', '.join(CATCHERS)}")
    parser.add_argument("--at-once", type=int, default=2, help="how many mutants are tried at the same time")
    parser.add_argument("--report", type=Path, help="a Markdown file: its table of mutants is replaced")
    parser.add_argument("--json", type=Path, help="a file for the verdicts as JSON")
    parser.add_argument("--list", action="store_true", help="show the mutants and run nothing")
    options = parser.parse_args(argv)
    known = {one.name for one in MUTANTS}
    if unknown := [name for name in options.names if name not in known]:
        parser.error(f"there is no mutant {unknown[0]!r}; --list shows all")
    if options.by and (unknown := [kind for kind in options.by.split(",") if kind not in CATCHERS]):
        parser.error(f"there is no catcher {unknown[0]!r}; use {', '.join(CATCHERS)}")
    return options


def _check_unchanged(mutants: Iterable[Mutant], kinds: tuple[str, ...], at_once: int) -> list[str]:
    """What catchers see in the unchanged tree: if they see something there, they prove nothing."""
    catchers = dict.fromkeys(
        catcher for one in mutants for catcher in one.catchers if not kinds or name_of(catcher) in kinds
    )
    trouble = []
    with ThreadPoolExecutor(at_once) as pool:
        for catcher, seen in zip(catchers, pool.map(_look_at_unchanged, catchers), strict=True):
            said = seen.finding or seen.trouble or "nothing found"
            click.echo(f"unchanged: {_describe(catcher)}: {said}")
            if seen.finding or seen.trouble:
                trouble.append(
                    f"The unchanged tree does not pass {_describe(catcher)}. Nothing is proved by it."
                )
    return trouble


def _look_at_unchanged(catcher: Catcher) -> Seen:
    with scratch_tree() as tree:
        return look(tree, catcher)


def _describe(catcher: Catcher) -> str:
    values = {
        name: value for name, value in msgspec.structs.asdict(catcher).items() if value and name != "load"
    }
    return f"{name_of(catcher)} {' '.join(f'{name}={value}' for name, value in values.items())}"


def _judge_all(mutants: Sequence[Mutant], kinds: tuple[str, ...], at_once: int) -> list[Verdict]:
    with ThreadPoolExecutor(at_once) as pool:
        verdicts = {}
        for done in as_completed([pool.submit(_judge, one, kinds) for one in mutants]):
            verdict = done.result()
            verdicts[verdict.mutant] = verdict
            click.echo(_line(verdict))
    return [verdicts[one.name] for one in mutants]


def _judge(mutant: Mutant, kinds: tuple[str, ...]) -> Verdict:
    began = time.monotonic()
    with scratch_tree() as tree:
        verdict = judge(tree, mutant, kinds)
    return msgspec.structs.replace(verdict, seconds=round(time.monotonic() - began, 1))


def _line(verdict: Verdict) -> str:
    if verdict.finding:
        said = f"caught by {verdict.caught_by}: {verdict.finding}"
    elif verdict.trouble:
        said = f"NO MUTANT: {verdict.trouble}"
    else:
        said = "SURVIVED"
    if verdict.missed_by:
        said += f" (not seen by {', '.join(verdict.missed_by)})"
    return f"{verdict.mutant}: {said} [{verdict.seconds:.0f} s]"


if __name__ == "__main__":
    sys.exit(main())
