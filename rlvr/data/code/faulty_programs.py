"""Make faulty programs from right ones, for tasks of repair: one operator, comparison or number is changed.

The judge decides which are faulty: a change that fails no test is no fault.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator, Mapping, Sequence

from rlvr.data.io import Row
from rlvr.sandbox.limits import Limits
from rlvr.verifiers.code.judge import judge_many

MAX_CHANGES = 4  # tried for a program
TIME_S = 1.0  # of a test; a changed program may not end
_SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.FloorDiv,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


def add_faulty_programs(rows: Sequence[Row], solutions: Mapping[str, str | None], seed: int) -> list[Row]:
    """Return the rows for whose solution a faulty program was found, with the columns faulty_program and solution.

    Args:
        solutions: right programs by the rows' `id`.
    """
    candidates = {
        row["id"]: list(changed_programs(program, random.Random(f"{seed}/{row['id']}")))[:MAX_CHANGES]
        for row in rows
        if (program := solutions.get(row["id"]))
    }
    found: dict[str, str] = {}
    for number in range(MAX_CHANGES):
        open_rows = [row for row in rows if row["id"] not in found and len(candidates.get(row["id"], ())) > number]
        judgements = judge_many(
            [
                {
                    "program": candidates[row["id"]][number],
                    "language": row["language"],
                    "tests": row["tests"],
                    "entry_point": row["entry_point"],
                    "limits": Limits(time_s=TIME_S),
                    "stop_early": True,
                }
                for row in open_rows
            ]
        )
        for row, judgement in zip(open_rows, judgements, strict=True):
            if judgement.score < 1.0 and not judgement.sandbox_failed:
                found[row["id"]] = candidates[row["id"]][number]
    return [
        {**row, "faulty_program": found[row["id"]], "solution": solutions[row["id"]]}
        for row in rows
        if row["id"] in found
    ]


def changed_programs(program: str, rng: random.Random) -> Iterator[str]:
    """Yield the program with one change, each time at another place, in random order."""
    try:
        places = len(_places(ast.parse(program)))
    except (SyntaxError, ValueError, RecursionError):
        return
    for place in rng.sample(range(places), places):
        tree = ast.parse(program)
        node, field, index = _places(tree)[place]
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            node.value += rng.choice((-1, 1))
        elif index is None:
            setattr(node, field, _swapped(getattr(node, field)))
        else:
            getattr(node, field)[index] = _swapped(getattr(node, field)[index])
        yield ast.unparse(tree) + "\n"


def _places(tree: ast.AST) -> list[tuple[ast.AST, str, int | None]]:
    """Return what can be changed: a node, and the field that holds an operator, with its index in a list."""
    places: list[tuple[ast.AST, str, int | None]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and type(node.value) is int:
            places.append((node, "value", None))
        elif isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign) and type(node.op) in _SWAPS:
            places.append((node, "op", None))
        elif isinstance(node, ast.Compare):
            places += [(node, "ops", index) for index, op in enumerate(node.ops) if type(op) in _SWAPS]
    return places


def _swapped(operator: ast.AST) -> ast.AST:
    return _SWAPS[type(operator)]()
