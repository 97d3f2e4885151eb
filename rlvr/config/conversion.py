"""Convert a configuration of the AWS sample, of open-r1 or of `trl grpo` to a recipe of this project.

    conversion = convert(Path("config_demo.yaml"))
    conversion.text, conversion.mapped, conversion.dropped, conversion.open_points

Keys that mean the same keep their value. The recipe says in a comment where every other value comes from, and it ends
with the keys that were dropped. Defaults that have changed since the TRL of the original are written out. Nothing is
read but the file: neither data nor model need to be there.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from rlvr.config import foreign_keys, foreign_rewards, schema
from rlvr.config.commented_yaml import heading, read_commented, section_text
from rlvr.config.foreign_keys import AWS, OPEN_R1, TRL, Program
from rlvr.config.yaml_reader import read_yaml
from rlvr.errors import InputError


class Change(NamedTuple):
    """What became of a key: the key or keys, and what replaces them or why they are gone."""

    key: str
    text: str


@dataclass
class Conversion:
    """A converted configuration.

    Attributes:
        program: that it was written for.
        text: the recipe.
        mapped: keys that have another name or value in the recipe.
        dropped: keys without a successor, each with the reason.
        open_points: what the user has to choose.
    """

    program: Program
    text: str = ""
    mapped: list[Change] = field(default_factory=list)
    dropped: list[Change] = field(default_factory=list)
    open_points: list[Change] = field(default_factory=list)


# Defaults of TRL 0.18, which the AWS sample and open-r1 pin, where TRL 1.16 has others.
_TRL_0_18: dict[str, Any] = {"max_completion_length": 256, "beta": 0.04, "loss_type": "bnpo"}
# What the sample's script adds to load_in_4bit.
_AWS_4BIT = {"use_bnb_nested_quant": True, "bnb_4bit_quant_storage": "bfloat16"}

# Keys of their data, and the option of our task that replaces each. The test split is the evaluation's.
_DATA_KEYS = {
    **dict.fromkeys(("train_dataset_id_or_path", "dataset_name", "dataset_id_or_path"), "path"),
    **dict.fromkeys(("datasets", "dataset_mixture"), "path"),
    "test_dataset_id_or_path": "test_path",
    **dict.fromkeys(("dataset_splits", "dataset_train_split"), "train_split"),
    "dataset_test_split": "",
    "test_split_size": "test_fraction",
    "dataset_config": "subset",
    "dataset_prompt_column": "columns",
    "system_prompt": "system",
}
_EVALUATION = {"split": "test", "rows": 500}


def convert(path: Path) -> Conversion:
    """Convert a configuration file.

    Raises:
        InputError: it can't be read, it is for none of the three programs, or it is a recipe of ours.
    """
    content, _ = read_yaml(path)
    program = foreign_keys.find_program(content)
    if program is None or program.instead:
        cause = "is for none of the AWS sample, open-r1 and `trl grpo`: it has no key that marks one of them"
        if program is not None:
            cause = f"is a configuration of {program.name}, which can't be converted. {program.instead}"
        elif {"task", "rewards"} & content.keys():
            cause = "is a recipe of this project already"
        raise InputError(f"{path} {cause}. See docs/migrate.md.", kind="not-convertible", path=path)
    return _Converter(path, content, program).convert()


class _Converter:
    """State of one conversion: the keys so far, each with its comment."""

    def __init__(self, path: Path, content: dict[str, Any], program: Program) -> None:
        self.path = path
        self.content = {key: value for key, value in content.items() if value is not None}
        self.result = Conversion(program)
        self.values, self.comments = read_commented(path)
        self.reward_comments: dict[int, str] = {}
        self.flat: dict[str, Any] = {}

    def convert(self) -> Conversion:
        for key in self.content:
            if key not in _DATA_KEYS and key not in foreign_rewards.REWARD_KEYS:
                self._convert_key(key)
        rewards = self._rewards()
        task = self._task(rewards)
        self._add_defaults()
        if self.content.get("save_strategy") == "no":
            self._ask("save_strategy", "it is no: an interrupted run starts again. Set steps, and save_steps")
        self._ask("evaluation", "the original measures nothing on held-out rows; this measures 500. Choose how many")
        self.result.text = self._write(task, rewards)
        return self.result

    def _convert_key(self, key: str) -> None:
        value = self.values[key]
        aws = self.result.program.name == AWS
        removed = foreign_keys.removed().get(key, "")
        new = "warmup_steps" if key == "warmup_ratio" else key if " " in removed else removed or key
        fault = schema.value_fault(new, self.content[key]) if new in schema.fields() else None
        if fault is not None:
            self._drop(key, f"it {fault.text}")
        elif new != key:
            share = ": below 1, a share of all steps" if key == "warmup_ratio" else ""
            self._map(key, new, value, f"{key} in the original{share}")
        elif key == "attn_implementation" and str(value).startswith("flash_attention"):
            self._map(key, key, "auto", f"{value} in the original; auto is FlashAttention 2 where it is installed")
        elif key == "lora_modules_to_save" and aws:
            self._drop(key, "no prompt has the tokens that they were trained for, and Qwen2.5-0.5B ties the two")
        elif key == "output_dir" and str(value).startswith("/opt/ml"):
            self._drop(key, "a SageMaker job puts the model there by itself; a run writes to runs/<recipe>")
        elif key == "log_level" and str(value) in ("info", "debug", "detail"):
            self._drop(key, "a run prints a line a step by itself; transformers would add its own between them")
        elif key in schema.fields() and not removed:
            self.flat[key] = value
        else:
            ours = foreign_keys.usual_names().get(key)
            advice = removed or foreign_keys.find_advice(key) or (f"Use {ours}" if ours else None)
            self._drop(key, advice or "neither a key of its program nor of ours")

    def _map(self, old: str, new: str, value: Any, note: str) -> None:
        self.flat[new] = value
        self.comments[new] = f"{note}. {self.comments[old]}" if old in self.comments else note
        self.result.mapped.append(Change(old, f"{new}: {_plain_text(value)}"))

    def _drop(self, key: str, reason: str) -> None:
        self.result.dropped.append(_change(key, reason.removeprefix("Remove it: ")))

    def _ask(self, key: str, text: str) -> None:
        self.result.open_points.append(_change(key, text))

    def _add_defaults(self) -> None:
        """Write out what the original had by default, and TRL has changed since."""
        if self.result.program.name == TRL:
            return
        for key, value in _TRL_0_18.items():
            if key not in self.flat:
                self.flat[key], self.comments[key] = value, "the default of TRL 0.18, which the original uses"
        if self.flat["beta"]:
            self.flat["use_bias_correction_kl"] = False
            self.comments["use_bias_correction_kl"] = "TRL 0.18 does not weigh the KL term by the ratio"
        if self.flat.get("use_vllm") and "vllm_mode" not in self.flat:
            self.flat["vllm_mode"] = "colocate"
            self._ask(
                "vllm_mode", "colocate runs vLLM in the training processes; server, TRL 0.18's default, beside it"
            )
        if self.flat.get("load_in_4bit") and self.result.program.name == AWS:
            for key, value in _AWS_4BIT.items():
                self.flat[key], self.comments[key] = value, "set by the original's script"

    def _rewards(self) -> list[dict[str, Any]]:
        """Our rewards for theirs. Two of theirs that have the same successor become one with both weights.

        A recipe lists a reward once. The options are then those of the heavier one, and the result says so.
        """
        content = self.content
        names = self._reward_names()
        weights = content.get("reward_weights") or [foreign_rewards.AWS_REWARDS.get(name, 1.0) for name in names]
        entries: dict[str, dict[str, Any]] = {}
        heaviest: dict[str, tuple[float, str]] = {}
        for name, weight in zip(names, [*weights, *[1.0] * len(names)], strict=False):
            known = foreign_rewards.REWARDS.get(name.removeprefix("trl.rewards."))
            ours = known.name if known is not None else name
            if known is None and "." not in name:
                self._drop(f"reward {name}", "no reward of ours means the same; see docs/rewards.md")
                continue
            entry = entries.setdefault(ours, {"name": ours, "weight": 0.0})
            options = known.options(content) if known is not None else {}
            if ours in heaviest and options != entry.get("options", {}):
                kept = max(heaviest[ours], (weight, name))[1]
                text = f"{heaviest[ours][1]} and {name} are one entry, with both weights and the options of {kept}"
                self._ask("rewards", f"{text}. Check that this is the format that you want to pay for")
            if weight >= heaviest.get(ours, (weight, name))[0]:
                heaviest[ours] = weight, name
                entry.pop("options", None)
                entry |= {"options": options} if options else {}
            entry["weight"] += weight
            note = known.difference if known is not None else "found by its import path"
            number = list(entries).index(ours)
            earlier = self.reward_comments.get(number)
            self.reward_comments[number] = "\n".join(filter(None, (earlier, f"{name}: {note}.")))
            self.result.mapped.append(Change(f"reward {name}", f"{ours}: {note}"))
        for key in foreign_rewards.REWARD_KEYS & content.keys() - {"reward_funcs", "reward_weights"}:
            owner = next(name for start, name in foreign_rewards.OWNERS.items() if key.startswith(start))
            if owner in names:
                self.result.mapped.append(Change(key, f"an option of {foreign_rewards.REWARDS[owner].name}"))
            else:
                self._drop(key, f"no reward of the original reads it ({owner} would)")
        if not entries:
            self._ask("rewards", "none of the original's rewards has a successor here (docs/rewards.md)")
        return list(entries.values())

    def _task(self, rewards: list[dict[str, Any]]) -> dict[str, Any]:
        """The task section: `jsonl` reads their files and datasets."""
        content, program = self.content, self.result.program
        task: dict[str, Any] = {"name": "jsonl"}
        if program.name == AWS:
            paths = {"path": "train_dataset_id_or_path", "test_path": "test_dataset_id_or_path"}
            task |= {ours: content.get(theirs) for ours, theirs in paths.items()}
            task |= {"train_split": content.get("dataset_splits"), "stop_strings": ["\nQuestion:"]}
            channels = "sagemaker: {channels: {train: s3://…/train, test: s3://…/val}} reads the original's data"
            self._ask("task.path", f"a file of the original's job. Name a local copy; in a job, {channels}")
            self._ask("task", "or {name: gsm8k, style: text, shots: 8}, which makes such prompts from the hub")
        else:
            mixture = content.get("dataset_mixture", {})
            listed = content.get("datasets") or mixture.get("datasets") or [{}]
            if len(listed) > 1:
                self._ask(
                    "task", f"the original mixes {len(listed)} datasets; this is the first. Join them into a file"
                )
            first = listed[0]
            files, name = first.get("data_files"), content.get("dataset_name") or content.get("dataset_id_or_path")
            task["path"] = files if isinstance(files, str) else first.get("path") or first.get("id") or name
            task["subset"] = first.get("name") or first.get("config") or content.get("dataset_config")
            task["train_split"] = first.get("split") or content.get("dataset_train_split")
            task["test_fraction"] = mixture.get("test_split_size") or content.get("test_split_size")
            if content.get("dataset_test_split", "test") != "test":
                self._ask(
                    "task", f"held-out rows are the split test, not {content['dataset_test_split']}; else a tenth"
                )
        if task["train_split"] == "train":
            del task["train_split"]
        if not task["path"]:
            self._ask("task.path", "the original names no data: a file, a folder, or a dataset of the hub")
        if program.name == OPEN_R1:
            task |= {"style": "chat", "system": content.get("system_prompt")}
        columns = self._columns(task["path"], rewards)
        task = {key: value for key, value in {**task, "columns": columns}.items() if value}
        for key, option in _DATA_KEYS.items():
            if key in content:
                value = _plain_text(task[option]) if option in task else "the default"
                text = (
                    f"task.{option}: {textwrap.shorten(value, 60, placeholder=' …')}" if option else "evaluation.split"
                )
                self.result.mapped.append(Change(key, text))
        return task

    def _columns(self, path: Any, rewards: list[dict[str, Any]]) -> dict[str, str]:
        """Our columns for the ones that their prompts and rewards read."""
        if self.result.program.name == AWS:
            return {}
        prompt = self.content.get("dataset_prompt_column", "prompt")
        columns = {"prompt": prompt} if prompt != "prompt" else {}
        for name in self._reward_names():
            columns |= foreign_rewards.COLUMNS.get(name.removeprefix("trl.rewards."), {})
        if "final_answer" in columns:
            columns["final_answer"] = foreign_rewards.SHORT_ANSWERS.get(str(path), columns["final_answer"])
            self._ask(
                "task.columns",
                f"the column `{columns['final_answer']}` must hold the short answer of a row, not its worked solution",
            )
        elif "tests" not in columns and any(reward["name"] == "code_execution" for reward in rewards):
            self._ask(
                "task.columns", "make a column tests of verification_info, and add tests: tests (docs/migrate.md)"
            )
        return columns

    def _reward_names(self) -> list[str]:
        """The names of their rewards; those that their program has by default."""
        default = {AWS: tuple(foreign_rewards.AWS_REWARDS), OPEN_R1: foreign_rewards.OPEN_R1_REWARDS}.get(
            self.result.program.name, ()
        )
        names = self.content.get("reward_funcs") or default
        return [names] if isinstance(names, str) else [str(name) for name in names]

    def _write(self, task: dict[str, Any], rewards: list[dict[str, Any]]) -> str:
        """The recipe's text, with the flat keys in the order of the original."""
        parts = [
            f"# Converted by scripts/convert_recipe.py from {self.path.name}, a configuration of "
            f"{self.result.program.name}.\n"
            "# A flat key without a comment has the name and the value of the original.\n",
            section_text("Model and training", self.flat, self.comments),
            section_text("Task", {"task": task}),
            section_text("Rewards", {"rewards": rewards}, {"rewards": self.reward_comments}),
        ]
        parts.append(section_text("Evaluation, which the original lacks", {"evaluation": _EVALUATION}))
        for title, changes in (("Dropped", self.result.dropped), ("To choose", self.result.open_points)):
            if changes:
                parts.append(heading(title) + "".join(f"# {change.key}: {change.text}.\n" for change in changes))
        return "\n".join(parts)


def _change(key: str, text: str) -> Change:
    """A change in one line."""
    return Change(" ".join(key.split()), " ".join(text.rstrip(".").split()))


def _plain_text(value: Any) -> str:
    """A value in one line, for people."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {_plain_text(item)}' for key, item in value.items())}}}"
    return str(value).lower() if isinstance(value, bool) else str(value)
