"""Check the source of a checker without running it: it comes with the data, so it runs in the sandbox only."""

from __future__ import annotations

import symtable

from rlvr.errors import InputError


def check_checker(source: str) -> None:
    """Raise InputError unless a checker is Python and its module has the name `check`."""
    try:
        compile(source, "checker", "exec", dont_inherit=True)
        module = symtable.symtable(source, "checker", "exec")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        message = f"the checker is not valid Python: {error}."
        raise InputError(message, kind="invalid-checker", key="checker") from error
    check = module.lookup("check") if "check" in module.get_identifiers() else None
    if check is None or not (check.is_assigned() or check.is_imported()):
        message = "the checker defines no function check(input, output, expected)."
        raise InputError(message, kind="invalid-checker", key="checker")
