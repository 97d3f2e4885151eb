"""What scores depend on beside the arguments is collected from all rewards."""

from __future__ import annotations

from pathlib import Path

from rlvr.config.specs import RewardSpec
from rlvr.scoring.registry import environment_info, load_reward


def test_conditions_of_all_rewards_are_put_together(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text(
            f"def {name}(prompts, completions, *, unit='kg', **kwargs):\n    return [0.0] * len(completions)\n\n\n"
            f"def environment_info(unit='kg', **kwargs):\n    return {{'scales_{name}': unit}}\n"
        )
    (tmp_path / "three.py").write_text(
        "def three(prompts, completions, **kwargs):\n    return [0.0] * len(completions)\n"
    )
    specs = [RewardSpec(name=str(tmp_path / f"{name}.py")) for name in ("one", "two", "three")]
    specs[0] = RewardSpec(name=specs[0].name, options={"unit": "g"})
    assert environment_info([load_reward(spec) for spec in specs]) == {"scales_one": "g", "scales_two": "kg"}


def test_code_rewards_name_the_sandbox() -> None:
    found = environment_info([load_reward(RewardSpec(name="code_execution"))])
    assert found["sandbox"].split(":")[0] in ("strong", "sealed", "weak")
