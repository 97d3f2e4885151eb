"""Add the plug-in folders rewards/, tasks/ and environments/ to the wheel, below rlvr/plugins.

They are not installed as top-level packages: other projects use these names. All else is in pyproject.toml.
"""

from setuptools import find_packages, setup

PLUGINS = ("rewards", "tasks", "environments")

setup(
    packages=[*find_packages(include=["rlvr", "rlvr.*"]), *(f"rlvr.plugins.{name}" for name in PLUGINS)],
    package_dir={f"rlvr.plugins.{name}": name for name in PLUGINS},
)
