"""The internals of TRL and transformers that `rlvr.training.trl_seam` uses are as they were.

If one of these fails after an upgrade, read the change in TRL before you change the test.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
import tomllib
from collections import defaultdict, deque
from importlib import metadata
from types import SimpleNamespace
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.version import Version
from transformers import Trainer
from trl import GRPOTrainer
from trl.generation.vllm_client import VLLMClient
from trl.generation.vllm_generation import VLLMGeneration
from trl.trainer.utils import RepeatSampler

from rlvr.training import vllm_rollouts
from rlvr.training.batch_merge import CompletionTable
from rlvr.training.epoch_sampler import EpochSampler
from rlvr.training.grpo_trainer import RecipeTrainer
from rlvr.training.trl_seam import TrlSeam
from tests.conftest import REPOSITORY

RUN_EPOCH = [
    *("self", "model", "epoch", "train_dataloader", "steps_in_epoch", "num_update_steps_per_epoch", "trial"),
    *("ignore_keys_for_eval", "start_time", "resume_from_checkpoint", "epochs_trained"),
    "steps_trained_in_current_epoch",
]
LOG_PROBABILITIES = ["self", "model", "input_ids", "attention_mask", "logits_to_keep", "batch_size"]


@pytest.mark.parametrize(
    ("method", "parameters", "why"),
    [
        ("_calculate_rewards", ["self", "inputs", "prompts", "completions", "completion_ids_list"], "masks and gates"),
        ("_generate", ["self", "prompts"], "completions/clipped_ratio with stop strings; lengths; time"),
        ("_generate_and_score_completions", ["self", "inputs"], "adaptive advantages, masked tokens, dynamic sampling"),
        ("_compute_loss", ["self", "model", "inputs"], "policy_kl"),
        ("training_step", ["self", "model", "inputs", "num_items_in_batch"], "time/update"),
        ("_save_checkpoint", ["self", "model", "trial"], "checkpoints that are complete or absent"),
        ("_run_epoch", RUN_EPOCH, "no step after the last; the order of the epoch at hand"),
        ("_get_train_sampler", ["self", "dataset"], "the order of the epoch at hand"),
        ("_get_per_token_logps_and_entropies", LOG_PROBABILITIES, "policy_kl; time; the check of rollouts"),
        ("_get_tool_suffix_ids", ["self", "tool_messages"], "tool calls of a batch at the same time"),
        ("log", ["self", "logs", "start_time"], "a table of completions that can't be written"),
        (
            "_generate_single_turn",
            ["self", "prompt_ids", "images", "multimodal_fields", "num_generations", "has_tool_images"],
            "stop strings",
        ),
    ],
)
def test_overridden_methods_keep_their_parameters(method: str, parameters: list[str], why: str) -> None:
    found = list(inspect.signature(getattr(GRPOTrainer, method)).parameters)
    assert (found[: len(parameters)] if parameters is LOG_PROBABILITIES else found) == parameters, why


@pytest.mark.parametrize("shuffle", [True, False])
def test_the_order_of_every_epoch_is_the_one_that_trl_draws(shuffle: bool) -> None:
    shape = {"mini_repeat_count": 2, "batch_size": 3, "repeat_count": 2, "shuffle": shuffle, "seed": 7}
    assert list(inspect.signature(RepeatSampler).parameters) == ["data_source", *shape]
    uninterrupted = RepeatSampler(range(10), **shape)
    epochs = [list(uninterrupted) for _ in range(3)]
    assert (epochs[0] != epochs[1]) == shuffle, "TRL's generator goes on; else EpochSampler can go"
    for epoch in (2, 0, 1):
        sampler = EpochSampler(range(10), **shape)
        sampler.epoch = epoch
        assert list(sampler) == epochs[epoch]
        assert len(sampler) == len(uninterrupted)


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("_step", GRPOTrainer.training_step),
        ("_buffered_inputs", GRPOTrainer._prepare_inputs),
        ("_current_train_step_time", GRPOTrainer.training_step),
        ("_metrics", GRPOTrainer.log),
        ("_logs", GRPOTrainer.log),
        ("_tr_loss", Trainer._maybe_log_save_evaluate),
        ("_globalstep_last_logged", Trainer._maybe_log_save_evaluate),
    ],
)
def test_what_a_checkpoint_keeps_between_two_steps_still_has_its_name(name: str, where: Any) -> None:
    assert name.removeprefix("_") in inspect.getsource(inspect.unwrap(where))


def test_vllm_gets_the_arguments_that_trl_would_pass() -> None:
    def keywords(function: Any, name: str) -> set[str]:
        calls = [
            node
            for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function))))
            if isinstance(node, ast.Call)
        ]
        call = next(node for node in calls if name in (getattr(node.func, "id", ""), getattr(node.func, "attr", "")))
        return {str(keyword.arg) for keyword in call.keywords}

    defaults = {"logprobs"}  # 0: the sampled token's
    theirs = keywords(GRPOTrainer.__init__, "VLLMGeneration")
    assert keywords(vllm_rollouts.VllmRollouts.__init__, "__init__") == theirs - defaults


def test_the_trainers_constructor_asks_in_three_places_whether_vllm_generates() -> None:
    """It is built without vLLM, so what it checks there must be ours: VESPO's ratios, and VLLMGeneration's own."""
    source = inspect.getsource(GRPOTrainer.__init__)
    uses = [
        line.strip() for line in source.splitlines() if "use_vllm" in line and not line.strip().startswith(("#", '"'))
    ]
    assert uses == [
        "self.use_vllm = args.use_vllm",
        'if self.loss_type == "vespo" and self.use_vllm and self.vllm_importance_sampling_correction:',
        "if self.use_vllm:",
    ]


@pytest.mark.parametrize(
    ("method", "text", "why"),
    [
        (VLLMGeneration.__init__, "self._init_vllm()", "the engine with our data type and adapters"),
        (VLLMGeneration.generate, "self.llm.generate(vllm_prompts, sampling_params=", "our engine adds the adapter"),
        (VLLMGeneration.generate, "self._llm_weights_sleeping", "sleep mode"),
        (VLLMGeneration.sync_weights, "self.llm.reset_prefix_cache()", "as our own"),
        (VLLMClient.generate, '"model": self.model', "a server completes with the adapter that we name"),
        (GRPOTrainer._generate_single_turn, "self.vllm_generation.sync_weights()", "before the first generation, too"),
        (GRPOTrainer._generate_single_turn, "self._last_loaded_step", "one synchronisation for each update"),
    ],
)
def test_vllm_is_used_through_the_names_that_we_replace(method: Any, text: str, why: str) -> None:
    assert text in inspect.getsource(method), why


@pytest.mark.parametrize(
    ("method", "text", "why"),
    [
        ("_tool_call_loop", "content = result if isinstance(result, list) else str(result)", "ToolResult is a list"),
        ("_tool_call_loop", "self._get_tool_suffix_ids(tool_messages)", "after the calls of all rollouts"),
        ("_generate_and_score_completions", "zip(prompts, self.environments, inputs, strict=True)", "resets in order"),
        ("_generate_and_score_completions", "environment.reset(**reset_kwargs)", "resets were started before"),
        ("_calculate_rewards", 'reward_kwargs["environments"] = self.environments', "the reward `environment`"),
    ],
)
def test_environments_are_called_where_we_expect_it(method: str, text: str, why: str) -> None:
    assert text in inspect.getsource(getattr(GRPOTrainer, method)), why


def test_no_public_name_of_ours_replaces_one_of_trl() -> None:
    overridden = {"training_step", "log", "evaluate", "create_model_card"}
    ours = vars(TrlSeam).keys() | vars(RecipeTrainer).keys()
    assert RecipeTrainer.__mro__[1:3] == (TrlSeam, GRPOTrainer)
    assert {name for name in ours if not name.startswith("_") and hasattr(GRPOTrainer, name)} == overridden


@pytest.mark.slow
def test_no_attribute_of_ours_replaces_one_that_trl_sets() -> None:
    """Such as TRL's `environments`, the objects of a batch. vLLM's are replaced on purpose (`generate_with`)."""

    def assigned(*classes: Any) -> set[str]:
        source = "".join(inspect.getsource(one) for one in classes)
        targets = re.findall(r"^ +((?:self\.\w+(?:: [^=\n]+)?(?:, | = ))+)", source, re.MULTILINE)
        return {name for target in targets for name in re.findall(r"self\.(\w+)", target)}

    private = {"_step", "_buffered_inputs", "_current_train_step_time", "_tr_loss", "_globalstep_last_logged"}
    on_purpose = {"use_vllm", "vllm_generation", "_last_loaded_step", "control"}
    assert {"environments", "_step"} <= assigned(GRPOTrainer) and "played_environments" in assigned(TrlSeam)
    assert assigned(TrlSeam, RecipeTrainer) & assigned(GRPOTrainer, Trainer) <= private | on_purpose


def test_no_other_module_names_a_private_member_of_the_trainer() -> None:
    """Neither its methods nor what it sets in itself; not those either that its own methods only call."""
    source = "".join(inspect.getsource(one) for one in (GRPOTrainer, Trainer))
    private = {name for name in dir(GRPOTrainer) if name.startswith("_") and not name.startswith("__")}
    private |= set(re.findall(r"self\.(_[a-z]\w*)", source))
    own = {name for name in {*vars(RecipeTrainer), *RecipeTrainer.__init__.__code__.co_names} if name.startswith("_")}
    assert not private & own, "RecipeTrainer would replace it"
    named = {
        f"{file.name}: {match[1]}"
        for file in (REPOSITORY / "rlvr").rglob("*.py")
        if file.name != "trl_seam.py"
        for match in re.finditer(r"\btrainer\.(_[a-z]\w*)|\bTrainer\.(_[a-z]\w*)", file.read_text())
    }
    assert not named


@pytest.mark.parametrize(
    ("package", "why"),
    [("trl", "GRPOTrainer"), ("transformers", "Trainer._run_epoch, _tr_loss, _globalstep_last_logged, …")],
)
def test_a_package_whose_private_names_are_used_is_bounded_to_the_minor_version_that_was_tested(
    package: str, why: str
) -> None:
    dependencies = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["dependencies"]
    (requirement,) = (one for one in map(Requirement, dependencies) if one.name == package)
    version = Version(metadata.version(package))
    following = f"{version.major}.{version.minor + 1}.0"
    assert version in requirement.specifier and not requirement.specifier.contains(following), why


def test_log_probabilities_are_the_first_thing_returned() -> None:
    source = inspect.getsource(GRPOTrainer._get_per_token_logps_and_entropies)
    assert "return logps, entropies, aux_loss" in source


def test_trl_itself_still_forgets_what_is_between_two_generations() -> None:
    """When it saves it, `TrlSeam.state_between_steps` has less to do."""
    assert "_buffered_inputs" not in inspect.getsource(GRPOTrainer._save_checkpoint)


def test_trl_itself_still_passes_no_tokenizer_to_generate() -> None:
    """When it does, `TrlSeam._generate_single_turn` need only make rounds."""
    source = inspect.getsource(GRPOTrainer._generate_single_turn)
    assert "unwrapped_model.generate(" in source and "tokenizer=" not in source


def test_trl_itself_still_counts_none_as_zero_beside_another_reward() -> None:
    """When it masks such rows by itself, `RecipeTrainer.score_rows` need only apply gates."""
    assert "nansum(dim=1)" in inspect.getsource(GRPOTrainer._generate_and_score_completions)


# ── The table of completions and the metrics ──────────────────────────────────────────────────────────────────────────


def test_a_table_that_is_written_is_read_back_and_nothing_of_the_earlier_one_is_left() -> None:
    logs: dict[str, Any] = {
        **{name: deque(maxlen=2) for name in ("images", "prompt", "completion", "advantages")},
        **{name: defaultdict(lambda: deque(maxlen=2)) for name in ("rewards", "extra")},
    }
    trainer = SimpleNamespace(_logs=logs)
    first = CompletionTable(["p0", "p1"], ["c0", "c1"], {"right": [0.0, 1.0]}, [-1.0, 1.0], {"note": ["a", "b"]})
    second = CompletionTable(["p2"], ["c2"], {"right": [1.0]}, [0.0], {})
    for table in (first, second):
        TrlSeam.write_table(trainer, table)  # type: ignore[arg-type]
        assert TrlSeam.read_table(trainer) == table  # type: ignore[arg-type]


def test_metrics_are_cut_back_to_what_they_were() -> None:
    metrics: dict[str, list[float]] = {"reward": [0.1, 0.2]}
    trainer = SimpleNamespace(metrics=metrics)
    with TrlSeam.without_further_metrics(trainer):  # type: ignore[arg-type]
        metrics["reward"].append(0.5)
        metrics["new"] = [1.0]
    assert metrics == {"reward": [0.1, 0.2]}
