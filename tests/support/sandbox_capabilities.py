"""Run the judge without some confinement mechanisms, to see what the others stop."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from rlvr.sandbox import capabilities
from rlvr.verifiers.code import scheduler


@contextlib.contextmanager
def capabilities_without(*mechanisms: str) -> Iterator[capabilities.SandboxCapabilities]:
    """Probe anew and judge without these mechanisms; restore the earlier capabilities afterwards."""
    unknown = set(mechanisms) - set(capabilities.MECHANISMS)
    if unknown:
        raise ValueError(f"no such mechanism: {', '.join(sorted(unknown))}")
    earlier = capabilities._detected
    scheduler.close()
    capabilities._detected = capabilities.probe_capabilities(mechanisms)
    try:
        yield capabilities._detected
    finally:
        scheduler.close()
        capabilities._detected = earlier
