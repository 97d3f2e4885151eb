"""Write docs/reference/: what the code itself says about keys, plug-ins, public names and exit codes.

    python -m rlvr.reference        # in the repository; tests/docs/test_reference.py compares

docs/reference/problems.md is written by hand, and a test compares its kinds with the code.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rlvr import public_names
from rlvr.config import foreign_keys, key_help, project
from rlvr.docstrings import described, first_paragraph
from rlvr.verifiers.code.options import JudgeOptions

HEAD = "<!-- python -m rlvr.reference writes this page. -->\n"
# Arguments that TRL and the scorer pass; no option of a recipe.
PASSED = {"prompts", "completions", "completion_ended", "completion_ids", "environments", "trainer_state"}
PASSED |= {"log_metric", "log_extra", "self"}
ORIGINS = {
    "section": ("Sections", "Keys of a section are dotted on the command line: `--evaluation.rows 100`."),
    "run": ("Keys of this project", "They control the run. TRL does not get them."),
    "training": ("Keys of GRPOConfig", "TRL and transformers wrote these sentences."),
    "model": ("Keys of ModelConfig", "TRL wrote these sentences."),
}


def pages() -> dict[str, str]:
    """Return the text of each page by its name in docs/reference/."""
    made = {
        "recipe-keys.md": ("Recipe keys", _keys()),
        "rewards.md": ("Bundled rewards", _plug_ins("rewards")),
        "tasks.md": ("Bundled tasks", _plug_ins("tasks")),
        "environments.md": ("Bundled environments", _environments()),
        "python-api.md": ("Python API", _public_names()),
        "exit-codes.md": ("Exit codes", _exit_codes()),
        "other-programs.md": ("Keys of other programs", _other_programs()),
    }
    return {name: f"# {title}\n\n{HEAD}\n" + "\n".join(lines).rstrip() + "\n" for name, (title, lines) in made.items()}


def _keys() -> Iterator[str]:
    yield "`python run_grpo.py --keys WORD` prints the keys that have WORD in their name."
    for origin, (title, text) in ORIGINS.items():
        yield from ("", f"## {title}", "", text, "")
        for key in key_help.all_keys():
            if key.origin == origin:
                yield f"- `{key.name}` ({key.type}; default `{key.default}`): {key.help}"


def _plug_ins(folder: str) -> Iterator[str]:
    yield f"One file in [{folder}/](../../{folder}) each. Options stand in the recipe, columns in the data."
    for file in sorted((project.ROOT / folder).glob("[!_]*.py")):
        module = importlib.import_module(f"{folder}.{file.stem}")
        yield from ("", f"## {file.stem}", "", first_paragraph(module.__doc__), "")
        yield from _arguments(getattr(module, file.stem))


def _environments() -> Iterator[str]:
    yield "One file in [environments/](../../environments) each. Options stand in the recipe, columns in the data."
    for file in sorted((project.ROOT / "environments").glob("[!_]*.py")):
        module = importlib.import_module(f"environments.{file.stem}")
        [cls] = (one for name, one in vars(module).items() if name.lower() == file.stem.replace("_", ""))
        yield from ("", f"## {file.stem}", "", first_paragraph(module.__doc__), "")
        if "__init__" in vars(cls):
            yield from _arguments(cls.__init__)
        for name, method in inspect.getmembers(cls, inspect.isfunction):
            if not name.startswith("_") and name not in ("reset", "get_reward"):
                yield f"- Tool `{name}`: {first_paragraph(method.__doc__)}"


def _public_names() -> Iterator[str]:
    yield "These names are stable. `import rlvr` loads neither torch nor TRL. Other modules may change."
    for name, module in sorted(public_names.MODULES.items()):
        value = getattr(importlib.import_module(module), name)
        yield from (
            "",
            f"## {name}",
            "",
            f"```python\n{_signature(name, value)}\n```",
            "",
            first_paragraph(value.__doc__),
            "",
        )
        section = "Attributes" if inspect.isclass(value) else "Args"
        yield from (f"- `{key}`: {text}" for key, text in described(value.__doc__, section).items())


def _exit_codes() -> Iterator[str]:
    files = ["run_grpo.py", *sorted(f"scripts/{file.name}" for file in (project.ROOT / "scripts").glob("*.py"))]
    for name in [*files, "rlvr/reward_server/__main__.py"]:
        text = " ".join((ast.get_docstring(ast.parse((project.ROOT / name).read_text(encoding="utf-8"))) or "").split())
        if found := re.search(r"Exit codes: (.*?)\.(?: |$)", text):
            yield f"- `{name}`: {found[1]}."


def _other_programs() -> Iterator[str]:
    yield "`scripts/convert_recipe.py` applies these tables. `--check` names the successor of each key."
    tables: Mapping[str, Mapping[str, str]] = {
        "Usual names": foreign_keys.usual_names(),
        "Keys that TRL or transformers renamed, or that a recipe can't have": foreign_keys.removed(),
        **{program.name.replace("`", ""): program.keys for program in foreign_keys.programs()},
    }
    for title, keys in tables.items():
        yield from ("", f"## {title[0].upper()}{title[1:]}", "")
        yield from (f"- `{key}`: {_successor(keys[key])}" for key in sorted(keys))


def _successor(text: str) -> str:
    return f"`{text}`" if re.fullmatch(r"[\w.]+", text) else f"{text}."


def _arguments(function: Callable[..., Any]) -> Iterator[str]:
    """A line for each argument that a recipe or the data gives."""
    texts = described(JudgeOptions.__doc__, "Attributes") if hasattr(function, "__wrapped__") else {}
    texts |= described(function.__doc__, "Args")
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in PASSED or parameter.kind is parameter.VAR_KEYWORD:
            continue
        required = parameter.default is parameter.empty
        kind = "column" if required and "completions" in inspect.signature(function).parameters else "required"
        default = kind if required else f"default `{parameter.default!r}`"
        text = texts.get(parameter.name, "")
        yield f"- `{parameter.name}` ({default}){f': {text}' if text else ''}"


def _signature(name: str, value: Any) -> str:
    signature = re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(inspect.signature(value)))
    return f"{name}{re.sub(r'(?:[a-z_]+[.])+(?=[A-Z])', '', signature)}"


def write(folder: Path) -> None:
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(project.ROOT / "docs" / "reference")
