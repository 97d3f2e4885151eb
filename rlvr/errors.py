"""The one exception that means: the recipe, the data or the machine is not what the run needs.

Whoever finds such a fault raises `InputError` with a sentence that says what is wrong, where (file, key, row) and how
to mend it. The scripts print it without a traceback and exit with 2; any other exception is a fault of ours, keeps
its traceback and exits with 1.
"""


class InputError(Exception):
    """Something that the user can mend. `str(error)` is all that is printed, so it must stand alone."""
