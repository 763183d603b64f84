"""What exists is documented, and what the documentation shows and points to exists."""

import ast
import inspect
import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

import click
from fastapi.routing import APIRoute

import fairlead
from fairlead import FairleadError, Settings, errors, sync
from fairlead.bench import WORKLOADS
from fairlead.cli import demo
from fairlead.cli.root import main
from fairlead.db.tx import Tx
from fairlead.model.hooks.hook import SHORTEST_SECRET
from fairlead.server.problems import PREFIX
from fairlead.server.rest import durable, jobs
from fairlead.server.views import Body
from fairlead.version import __version__
from tests.tables import each_case

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
WRITTEN = [*PAGES, ROOT / "README.md"]
HELP = "--help"  # said once, for all commands


def read(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def says(text: str, word: str) -> bool:
    """Whether the text has the word in code: whole, and not as a part of another."""
    return any(re.search(rf"(?<![\w.-]){re.escape(word)}(?![\w-])", span) for span in in_code(text))


def in_code(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE))


def rows(text: str) -> dict[str, str]:
    """The rows of tables, by the code in their first cell."""
    return {match[1]: match[0] for match in re.finditer(r"^\| `([^`]+)` .*$", text, re.MULTILINE)}


def sections(text: str) -> dict[str, str]:
    """What stands under each heading, by the heading."""
    parts = re.split(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def commands(command: click.Command = main, path: str = "fairlead") -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            if below := command.get_command(context, name):
                yield from commands(below, f"{path} {name}")


def subclasses(kind: type[FairleadError] = FairleadError) -> Iterator[type[FairleadError]]:
    yield kind
    for below in kind.__subclasses__():
        if below.__module__.startswith("fairlead."):  # not those of other tests
            yield from subclasses(below)


# Settings


def test_every_setting_is_documented_with_its_variable_and_default_and_no_other() -> None:
    table = rows(read("reference/settings.md"))
    documented = {
        name: (f"`FAIRLEAD_{name.upper()}`" in row, row.split("|")[3].strip().strip("`"))
        for name, row in table.items()
        if not name.startswith("FAIRLEAD_")
    }

    assert documented == {setting.name: (True, written(setting.default)) for setting in fields(Settings)}


def written(default: object) -> str:
    return "unset" if default is None else f"{default:g}" if isinstance(default, float) else str(default)


def test_every_variable_that_the_code_reads_is_documented() -> None:
    named = re.compile(r"FAIRLEAD_[A-Z_]+[A-Z]")
    used = {name for path in (ROOT / "src").rglob("*.py") for name in named.findall(path.read_text("utf-8"))}

    assert used - set(named.findall(read("reference/settings.md"))) == set()


# Command line


@each_case("page", ["reference/library.md", "how-to/definitions-and-payloads.md"])
def test_how_many_attempts_make_so_many_retries_is_said(page: str) -> None:
    assert "N retries are `max_attempts` N + 1" in rows(read(page))["max_attempts"]


def test_every_command_is_documented_with_its_arguments_and_options_and_no_other() -> None:
    documented = sections(read("reference/cli.md"))
    known = {f"`{path}`": command for path, command in commands()}
    faults = {heading: ["unknown"] for heading in documented if heading[0] == "`" and heading not in known}
    for heading, command in known.items():
        section = documented.get(heading)
        faults[heading] = ["no section"] if section is None else differences(command, section)

    assert {heading: names for heading, names in faults.items() if names} == {}


def differences(command: click.Command, section: str) -> list[str]:
    """Names of options and arguments that a section lacks, and options in its tables that do not exist."""
    options = {
        name: param.hidden
        for param in command.params
        if isinstance(param, click.Option)
        for name in (*param.opts, *param.secondary_opts)
    }
    missing = [
        name for name, hidden in options.items() if name != HELP and not hidden and not says(section, name)
    ]
    arguments = [
        str(param.name).upper()
        for param in command.params
        if isinstance(param, click.Argument) and param.nargs == 1
    ]
    first_cells = " ".join(line.split("|")[1] for line in section.splitlines() if line.startswith("| `--"))
    unknown = set(re.findall(r"--[a-z-]+[a-z]", first_cells)) - options.keys() - {HELP}
    return [*missing, *(name for name in arguments if name not in section), *unknown]


def test_every_workload_of_the_benchmarks_is_documented() -> None:
    for page in (sections(read("reference/cli.md"))["`fairlead bench`"], read("explanation/benchmarks.md")):
        assert [name for name in WORKLOADS if f"`{name}`" not in page] == []


# Errors


def test_every_error_is_documented_with_its_code_and_no_other() -> None:
    table = rows(read("reference/errors.md"))
    kinds = list(subclasses())

    assert set(table) == {kind.code for kind in kinds}
    assert [kind.code for kind in kinds if f"`{kind.__name__}`" not in table[kind.code]] == []


def test_no_two_errors_share_a_code() -> None:
    kinds = [kind for kind in subclasses() if kind not in (FairleadError, errors.Refused)]

    assert len({kind.code for kind in kinds} | {FairleadError.code}) == len(kinds) + 1


# Library


def test_every_public_name_has_a_section() -> None:
    headings = sections(read("reference/library.md"))

    assert [name for name in fairlead.__all__ if f"`{name}`" not in headings] == []


def test_the_reference_imports_every_public_name() -> None:
    [listed] = re.findall(
        r"^from fairlead import \((.*?)^\)", read("reference/library.md"), re.DOTALL | re.MULTILINE
    )

    assert set(re.findall(r"\w+", listed)) == set(fairlead.__all__)


@each_case(
    ("kind", "heading"),
    [
        (fairlead.Fairlead, "`Fairlead`"),
        (fairlead.JobFunction, "`JobFunction`"),
        (fairlead.EnqueuedJob, "`EnqueuedJob`"),
        (sync.Fairlead, "`fairlead.sync`"),
    ],
)
def test_a_public_method_is_documented(kind: type, heading: str) -> None:
    section = sections(read("reference/library.md"))[heading]
    methods = [name for name, _ in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")]

    assert methods
    assert [name for name in methods if not re.search(rf"[`.]{name}\b", section)] == []


@each_case("kind", [fairlead.Job, fairlead.NewJob])
def test_a_field_of_a_record_is_documented(kind: type) -> None:
    text = read("reference/library.md")

    assert [name for name in inspect.get_annotations(kind) if not says(text, name)] == []


# HTTP


def test_every_route_of_jobs_is_described_with_its_fields() -> None:
    section = sections(read("reference/http-api.md"))["Jobs"]
    routes = [route for one in (jobs, durable) for route in one.router.routes if isinstance(route, APIRoute)]
    names = {
        f"{method} {route.path.removeprefix(PREFIX).replace('job_id', 'id')}"
        for route in routes
        for method in route.methods or ()
    }
    asked: list[type[Body]] = [
        jobs.JobBody,
        jobs.FilterQuery,
        jobs.JobsQuery,
        jobs.BulkFilterBody,
        jobs.EditBody,
        jobs.LogsQuery,
    ]

    assert set(re.findall(r"`((?:GET|POST|PATCH) [^`]+)`", section)) == names
    assert [name for kind in asked for name in kind.model_fields if not says(section, name)] == []


# Database


async def test_every_table_and_function_is_documented(tx: Tx) -> None:
    text = read("reference/database.md")
    found = await tx.values(
        "select relname from pg_class where relnamespace = 'fairlead'::regnamespace and relkind in ('r', 'p') "
        "and relname !~ '^audit_log_[0-9]' "
        "union select proname from pg_proc where pronamespace = 'fairlead'::regnamespace "
        "and prorettype <> 'trigger'::regtype"
    )

    assert len(found) > 80
    assert [name for (name,) in found if not says(text, name)] == []


def test_every_audit_action_is_documented() -> None:
    sources = [*(ROOT / "src").rglob("*.py"), *(ROOT / "src").rglob("*.sql")]
    text = "\n".join(path.read_text("utf-8") for path in sources)
    actions = set(
        re.findall(r"""["']((?:jobs?|tenant|definition)_(?:created|changed|paused|resumed))["']""", text)
    )
    actions |= set(re.findall(r"""["'](JOB_(?!SUCCEEDED)[A-Z_]+)["']""", text))

    assert actions
    assert [name for name in actions if not says(read("reference/database.md"), name)] == []


# Installing and deploying


def test_every_extra_is_documented_where_installing_is() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    section = sections(read("index.md"))["Install"]

    assert set(rows(section)) == project["optional-dependencies"].keys() - {"dev"}
    wheels = re.findall(r"fairlead-([\d.]+)-py3", section)
    assert set(wheels) == {__version__}


@each_case("page", ["docs/index.md", "docs/tutorial.md", "README.md"])
def test_a_page_for_newcomers_says_how_to_install_it(page: str) -> None:
    assert "pip install '/path/to/fairlead[embedded]'" in (ROOT / page).read_text("utf-8")


@each_case("page", ["docs/how-to/typescript.md", "clients/typescript/README.md"])
def test_a_page_for_typescript_says_how_to_install_the_package_of_this_version(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")

    assert f"npm install /path/to/fairlead/clients/typescript/fairlead-{__version__}.tgz" in text
    assert "npm install fairlead" not in text


def facts() -> dict[str, tuple[str, str]]:
    """What a page has to tell its reader beforehand, by what it is: the page, and its words."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    # with the Python of Django 6, which brings its own tasks, this package is not needed
    [python] = re.findall(r"django-tasks.*python_version < '([\d.]+)'", "\n".join(extras["django"]))
    node = json.loads((ROOT / "tests/node/bullmq/package.json").read_text("utf-8"))["dependencies"]
    unknown = f"`{errors.TenantUnknown.code}`"
    return {
        "tenants must exist before a job is enqueued": ("fastapi", unknown),
        "and how to add them": ("fastapi", '`await fl.add_tenant("acme", exist_ok=True)`'),
        "tenants must exist before a worker starts": ("schedules", f"a worker ends with {unknown}"),
        "the packages of a worker of BullMQ": (
            "bullmq",
            f"npm install {' '.join(sorted(node.keys() - {'pg'}))}",
        ),
        "the Python that Django 6 needs": ("django", f"Django 6 needs Python {python} or later"),
        "the length of a secret": ("webhooks-in", f"at least {SHORTEST_SECRET} characters"),
    }


@each_case("fact", list(facts()))
def test_a_guide_says_what_its_reader_must_know_beforehand(fact: str) -> None:
    page, words = facts()[fact]

    assert words in read(f"how-to/{page}.md")


def test_no_variable_is_set_that_does_not_exist() -> None:
    named = re.compile(r"FAIRLEAD_[A-Z_]+[A-Z]")
    known = set(named.findall(read("reference/settings.md")))

    for page in WRITTEN:
        assert set(named.findall(page.read_text("utf-8"))) - known == set(), page


def test_the_tutorial_tells_of_all_that_the_demo_does() -> None:
    fl = fairlead.Fairlead(settings=Settings())
    demo.add_demo(fl)
    keys = {key for key in fl.functions if key.startswith("demo.")} | {demo.WORKFLOW}

    assert [key for key in keys if not says(read("tutorial.md"), key)] == []


# Everything


@each_case("page", WRITTEN, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_in_a_page_compiles_and_names_only_what_exists(page: Path) -> None:
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE):
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST
        tree = compile(block, str(page), "exec", flags=flags)
        modules = dict(imported_modules(tree))
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) in modules:
                assert hasattr(modules[ast.unparse(node.value)], node.attr), ast.unparse(node)


def imported_modules(tree: ast.AST) -> Iterator[tuple[str, ModuleType]]:
    """Modules of ours that the code imports with `from`, by the name that it gives them; other names must exist there."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "fairlead":
            home = import_module(str(node.module))
            for name in node.names:
                if not hasattr(home, name.name):
                    import_module(f"{node.module}.{name.name}")
                if isinstance(found := getattr(home, name.name), ModuleType):
                    yield name.asname or name.name, found


@each_case("page", WRITTEN, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_link_of_a_page_leads_somewhere(page: Path) -> None:
    text = page.read_text("utf-8")
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if not re.match(r"[a-z]+:", link)]

    assert [link for link in links if not leads_somewhere(page, link)] == []
    mentioned = re.findall(r"`((?:deploy|examples|src|tests)/[\w/.]+)`", text)
    assert [path for path in mentioned if not (ROOT / path).exists()] == []


def leads_somewhere(page: Path, link: str) -> bool:
    name, _, anchor = link.partition("#")
    target = (page.parent / name) if name else page
    # that of a picture says in which scheme it is shown
    return target.exists() and (not anchor or target.suffix == ".svg" or anchor in anchors(target))


@cache
def anchors(page: Path) -> set[str]:
    headings = sections(page.read_text("utf-8"))
    return {re.sub(r"[^\w\s-]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_the_navigation_has_every_page_once() -> None:
    listed = re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text("utf-8"))

    assert sorted(listed) == sorted(str(page.relative_to(DOCS)) for page in PAGES)


def test_the_site_needs_no_other_host() -> None:
    assert "://" not in (ROOT / "mkdocs.yml").read_text("utf-8")
