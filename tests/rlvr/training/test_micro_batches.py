"""Micro-batches compute less padding than TRL's, and come to the same gradients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, Qwen3MoeConfig, Qwen3MoeForCausalLM
from trl.trainer.utils import shuffle_sequence_dict, split_tensor_dict

from rlvr.config.batch_plan import sorts_by_length
from rlvr.training.grpo_trainer import RecipeTrainer
from rlvr.training.micro_batches import ROW, MicroBatches
from tests.rlvr.training.test_train import QLORA, TINY, build, by_chance, train

Batch = dict[str, Any]
STEP = 4  # micro-batches of an optimizer step
LORA = {**QLORA, "load_in_4bit": False, "use_bnb_nested_quant": False, "lora_dropout": 0.0}
SHAPE = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": STEP, "steps_per_generation": STEP}

# The attributes of a trainer: a table of losses, and whether their rows may be sorted.
LOSSES: list[tuple[dict[str, Any], bool, str]] = [
    ({"loss_type": "grpo"}, True, "a mean of rows"),
    ({"loss_type": "dr_grpo"}, True, "a sum over a constant"),
    ({"loss_type": "dapo"}, True, "a sum over the tokens of the generation"),
    ({"loss_type": "cispo", "epsilon_high": 5.0}, True, "as dapo"),
    ({"loss_type": "vespo"}, True, "a weight for each row"),
    ({"loss_type": "sapo"}, True, "as grpo"),
    ({"loss_type": "luspo", "importance_sampling_level": "sequence"}, True, "a mean of rows"),
    ({"loss_type": "grpo", "importance_sampling_level": "sequence"}, True, "GSPO: a ratio for each row"),
    ({"loss_type": "dapo", "beta": 0.5}, True, "a KL term for each token"),
    ({"loss_type": "grpo", "off_policy_mask_threshold": 0.01}, True, "a decision for each row"),
    ({"loss_type": "bnpo"}, False, "divides by the tokens of a micro-batch"),
    ({"loss_type": "dapo", "top_entropy_quantile": 0.2}, False, "a quantile over a micro-batch"),
    ({"loss_type": "dapo", "entropy_coef": 1.0, "_entropy_bonus_enabled": True}, False, "a mean over a micro-batch"),
]


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> RecipeTrainer:
    settings = {**SHAPE, **LORA, "max_completion_length": 40, "temperature": 1.5}
    trainer, _, _ = build(tmp_path_factory.mktemp("run"), by_chance, settings=settings)
    trainer.current_gradient_accumulation_steps = STEP
    return trainer


@pytest.fixture(scope="module")
def generation(trainer: RecipeTrainer) -> Batch:
    return generate(trainer)


def generate(trainer: RecipeTrainer) -> Batch:
    """A generation with tokens of tools and a masked row, and a policy that has changed since."""
    trainer.model.train()
    batch = trainer._generate_and_score_completions(next(iter(trainer.get_train_dataloader())))
    random = torch.Generator().manual_seed(0)
    rows, width = batch["completion_mask"].shape
    batch["completion_mask"] *= torch.arange(width) < torch.randint(1, width + 1, (rows, 1), generator=random)
    lengths = batch["completion_mask"].sum(dim=1)
    assert lengths.min() < 20 < lengths.max(), "completions of different lengths"
    batch["tool_mask"] = (torch.rand(batch["completion_mask"].shape, generator=random) < 0.8).int()
    batch["old_per_token_logps"] = trainer.log_probabilities_of(batch)
    noise = 0.2 * torch.randn(batch["completion_mask"].shape, generator=random)
    batch["ref_per_token_logps"] = batch["old_per_token_logps"] + noise
    batch["completion_mask"][int(lengths.argmax())] = 0
    counted = batch["completion_mask"] * batch["tool_mask"]
    batch["num_items_in_batch"] = counted.sum()
    with torch.no_grad():
        for name, weight in trainer.model.named_parameters():
            if "lora_B" in name or "lora" not in name and weight.requires_grad:
                weight.add_(0.02 * torch.randn(weight.shape, generator=random))
    return batch


def ours(batch: Batch, *, by_length: bool = True) -> list[Batch]:
    micro_batches = MicroBatches(SHAPE["per_device_train_batch_size"], STEP, by_length=by_length, seed=0)
    return micro_batches.regroup(split_tensor_dict(shuffle_sequence_dict(batch), STEP))


def theirs(batch: Batch) -> list[Batch]:
    """What TRL makes of the generation, if its shuffle is the one of `ours`."""
    rows = torch.randperm(len(batch[ROW]), generator=torch.Generator().manual_seed(0))
    shuffled = {key: value[rows] if value.dim() else value for key, value in batch.items() if key != ROW}
    return split_tensor_dict(shuffled, STEP)


def gradient(trainer: RecipeTrainer, batches: list[Batch]) -> torch.Tensor:
    weights = [weight for weight in trainer.model.parameters() if weight.requires_grad]
    total = [torch.zeros_like(weight) for weight in weights]
    for batch in batches:
        parts = torch.autograd.grad(trainer._compute_loss(trainer.model, batch), weights)
        total = [one + other for one, other in zip(total, parts, strict=True)]
    return torch.cat([part.flatten() for part in total]).double()


def difference(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).norm() / other.norm())


@pytest.mark.slow
@pytest.mark.parametrize(("loss", "may_sort", "why"), LOSSES, ids=[str(case[0]) for case in LOSSES])
def test_a_step_has_trls_gradient(
    trainer: RecipeTrainer,
    generation: Batch,
    monkeypatch: pytest.MonkeyPatch,
    loss: dict[str, Any],
    may_sort: bool,
    why: str,
) -> None:
    for name, value in {"importance_sampling_level": "token", **loss}.items():
        assert hasattr(trainer, name)
        monkeypatch.setattr(trainer, name, value)
    expected = gradient(trainer, theirs(generation))
    assert expected.norm() > 1e-4, "a gradient that could be wrong"
    assert difference(gradient(trainer, ours(generation, by_length=may_sort)), expected) < 1e-4, why
    keys = {key: value for key, value in loss.items() if not key.startswith("_")}
    assert sorts_by_length({**SHAPE, **keys}) == may_sort
    if not may_sort:
        assert difference(gradient(trainer, ours(generation)), expected) > 1e-3, "it could be sorted after all"


@pytest.mark.slow
def test_the_load_balance_of_experts_has_trls_gradient(tmp_path: Path) -> None:
    AutoTokenizer.from_pretrained(TINY).save_pretrained(tmp_path / "model")
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "moe_intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    experts = {"num_key_value_heads": 2, "head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2, "vocab_size": 384}
    Qwen3MoeForCausalLM(Qwen3MoeConfig(**shape, **experts)).save_pretrained(tmp_path / "model")
    settings = {"model_name_or_path": str(tmp_path / "model"), "router_aux_loss_coef": 1.0, "temperature": 1.5}
    trainer, _, _ = build(tmp_path / "run", by_chance, settings={**SHAPE, **settings, "max_completion_length": 40})
    trainer.current_gradient_accumulation_steps = STEP
    assert trainer.aux_loss_enabled and not trainer.micro_batches.by_length
    generation = generate(trainer)
    expected = gradient(trainer, theirs(generation))
    assert difference(gradient(trainer, ours(generation, by_length=False)), expected) < 1e-4
    assert difference(gradient(trainer, ours(generation)), expected) > 1e-3, "it could be sorted after all"


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"gradient_accumulation_steps": 3, "steps_per_generation": 4}, "a step with rows of two generations"),
        ({"gradient_accumulation_steps": 8, "steps_per_generation": 4}, "a step of two generations"),
        ({"gradient_accumulation_steps": 1, "steps_per_generation": 4}, "one micro-batch for each step"),
    ],
)
def test_rows_stay_in_the_optimizer_step_that_trl_would_scale_them_for(settings: dict[str, Any], why: str) -> None:
    assert not sorts_by_length(settings), why


def test_a_micro_batch_is_as_wide_as_its_longest_prompt_and_completion(generation: Batch) -> None:
    batches = ours(generation)
    assert [len(batch["advantages"]) for batch in batches] == [4] * STEP
    for batch in batches:
        for part in ("prompt", "completion"):
            longest = max(int(batch[f"{part}_mask"].sum(dim=1).max()), 1)
            assert batch[f"{part}_ids"].shape == (4, longest)
        assert {batch[key].shape for key in ("tool_mask", "old_per_token_logps")} == {batch["completion_mask"].shape}
        assert batch["num_items_in_batch"] == generation["num_items_in_batch"] and ROW not in batch
        assert batch["completion_ids"].untyped_storage().nbytes() == batch["completion_ids"].nbytes, "saved as it is"
    lengths = torch.cat([batch["completion_mask"].sum(dim=1) for batch in batches]).tolist()
    assert lengths == sorted(lengths, reverse=True)


def rows_of(lengths: list[int]) -> Batch:
    ids = torch.arange(len(lengths))
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).int()
    prompts = torch.ones(len(lengths), 3, dtype=torch.int)
    tokens = (10 * ids[:, None] + torch.arange(max(lengths))) * mask
    return {
        "prompt_ids": prompts,
        "prompt_mask": prompts,
        "completion_ids": tokens,
        "completion_mask": mask,
        "advantages": ids.float(),
        ROW: ids,
    }


def test_each_row_is_in_one_step_and_steps_do_not_depend_on_trls_shuffle() -> None:
    rows = rows_of([1 + number % 7 for number in range(24)])
    found = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        micro_batches = MicroBatches(4, 2, by_length=True, seed=5)
        batches = micro_batches.regroup(split_tensor_dict(shuffle_sequence_dict(rows), 6))
        found.append([batch["advantages"].tolist() for batch in batches])
        for batch in batches:
            first_tokens = 10 * batch["advantages"] * batch["completion_mask"][:, 0]
            assert batch["completion_ids"][:, 0].equal(first_tokens.long()), "whole rows travel"
    assert found[0] == found[1]
    assert sorted(sum(found[0], [])) == list(range(24))
    micro_batches.begin(1)
    other = micro_batches.regroup(split_tensor_dict(shuffle_sequence_dict(rows), 6))
    assert [set(batch["advantages"].tolist()) for batch in other] != [set(rows) for rows in found[0]], "a new shuffle"


@pytest.mark.parametrize(("multiple", "widths"), [(1, (3, 6)), (4, (3, 6)), (2, (3, 6))])
def test_widths_stay_multiples(multiple: int, widths: tuple[int, int]) -> None:
    rows = rows_of([6, 1, 5, 1])
    batches = MicroBatches(2, 2, by_length=True, seed=0, multiple=multiple).regroup(split_tensor_dict(rows, 2))
    assert (batches[0]["prompt_ids"].size(1), batches[0]["completion_ids"].size(1)) == widths
    assert batches[1]["completion_ids"].size(1) == min(multiple, 6), "the short ones"


@pytest.mark.slow
def test_the_first_update_sees_the_very_log_probabilities_of_the_old_policy(tmp_path: Path) -> None:
    """In 16 bits, another width of the micro-batch would change them by some percent."""
    settings = {**SHAPE, "gradient_accumulation_steps": 2, "max_completion_length": 40, "temperature": 1.5}
    trainer, recipe, _ = build(tmp_path, by_chance, settings={**settings, "dtype": "bfloat16"})
    first, second = train(trainer, recipe)
    assert first["policy_kl"] == 0 and second["policy_kl"] != 0
