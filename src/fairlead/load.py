"""Import an application by its name, `module:name`."""

import difflib
import importlib
import sys
import traceback
from pathlib import Path
from typing import Any

from fairlead import sync
from fairlead.errors import FairleadError, InvalidInput
from fairlead.library.app import Fairlead


def load_app(name: str) -> Fairlead:
    """Import the Fairlead `module:name`, also if it is a synchronous one; searches the working folder first."""
    found = find_app(name, Path.cwd())
    if isinstance(found, sync.Fairlead):
        found.close()  # in case its module opened it: from now on its calls use our Fairlead
        return found.inner
    return found


def find_app(name: str, folder: Path) -> Fairlead | sync.Fairlead:
    """Import the Fairlead `module:name` as it is; searches this folder first."""
    module_name, _, attribute = name.partition(":")
    if sys.path[:1] != [str(folder)]:
        sys.path.insert(0, str(folder))
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name.partition(".")[0] and error.name != module_name:
            raise InvalidInput(_describe_import_error(module_name, error)) from error
        raise InvalidInput(_describe_missing_module(module_name, attribute, folder)) from error
    except FairleadError:
        raise  # its message already says what to do
    except SystemExit as error:
        raise InvalidInput(f"The module {module_name!r} exits while it is imported. {_GUARD}") from error
    except Exception as error:
        raise InvalidInput(_describe_import_error(module_name, error)) from error
    module = found
    for part in (attribute or "fl").split("."):
        found = getattr(found, part, None)
    if not isinstance(found, Fairlead | sync.Fairlead):
        example = f"{module_name}:{_find_name(module)}" if _find_name(module) else "jobs:fl"
        raise InvalidInput(f"{name!r} does not name a Fairlead. Use module:name, such as {example}.")
    return found


_GUARD = 'Put its script code below `if __name__ == "__main__":`.'


def _find_name(module: Any) -> str | None:
    """The name of a Fairlead in this module."""
    return next(
        (name for name, one in vars(module).items() if isinstance(one, Fairlead | sync.Fairlead)), None
    )


def _describe_missing_module(module_name: str, attribute: str, folder: Path) -> str:
    if module_name.endswith(".py"):
        name = module_name.removesuffix(".py").replace("/", ".")
        return f"Give the module, not its file: {name}:{attribute or 'fl'}."
    near = difflib.get_close_matches(module_name, [path.stem for path in folder.glob("*.py")], n=1)
    hint = f"Did you mean {near[0]}:{attribute or 'fl'}? " if near else ""
    return (
        f"The module {module_name!r} was not found. {hint}Run this in a folder from which it can be imported."
    )


def _describe_import_error(name: str, error: Exception) -> str:
    """An import error with its traceback, without Fairlead's and importlib's frames above it."""
    frames = error.__traceback__
    while frames is not None and (
        frames.tb_frame.f_code is find_app.__code__ or "importlib" in frames.tb_frame.f_code.co_filename
    ):
        frames = frames.tb_next
    trace = "".join(traceback.format_exception(type(error), error, frames)).rstrip()
    hint = f" {_GUARD}" if "asyncio.run() cannot be called" in str(error) else ""
    return f"The module {name!r} cannot be imported: {type(error).__name__}: {error}{hint}\n{trace}"
