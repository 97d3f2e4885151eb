"""Make the bundled tiny models: a tokenizer and a Qwen2 with 0.13 million weights each.

    python scripts/make_tiny_model.py                            # models/tiny-arithmetic, in minutes on one core
    python scripts/make_tiny_model.py tiny-programs              # models/tiny-programs, likewise
    python scripts/make_tiny_model.py --seed 1 --output another  # another model, in another folder

Supervised fine-tuning teaches a model by a weak teacher (`demonstrate_sum`, `demonstrate_program`). The teacher forgets
most carries and sometimes the closing line, or makes most of the possible mistakes and sometimes omits the end of the
code block. So the model knows the right method but rarely samples it first: that is left for GRPO. The teacher uses
only number pairs of the task's training split.

The same seed gives the same weights, bit for bit, on the same machine with the same torch and number of threads. Other
machines round sums differently; the accuracy stays about the same. It needs no network, and leaves README.md, the model
card, unchanged.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rlvr import console
from rlvr.data.number_pairs import number_pairs
from rlvr.scoring.registry import task_module

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

    from rlvr.data.task import Task

arithmetic, one_line_programs = task_module("arithmetic"), task_module("one_line_programs")
MODELS = Path(__file__).resolve().parents[1] / "models"
STEPS, BATCH, LEARNING_RATE, WARM_UP = 2400, 64, 3e-3, 100

# Error rates of the teachers. Above one half, so that a greedy model makes the mistake; well below one, so that
# sampling finds the right method often enough for GRPO.
FORGETS_CARRY = FALLS_INTO_TRAP = 0.7
FORGETS_CLOSING = (0.15, 0.15, 0.7, 0.15)  # by wording: number 2 of each task has a high rate

VOCABULARY = 384  # 3 special tokens, 256 bytes, 125 merges; a multiple of 64 like every other width of the model
PAD, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CHAT_TEMPLATE = """\
{%- for message in messages %}
    {%- if message['role'] not in ['system', 'user', 'assistant'] %}
        {{- raise_exception('MODEL knows the roles system, user and assistant, not ' + message['role']) }}
    {%- endif %}
    {{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""


def demonstrate_sum(rng: random.Random, pairs: list[tuple[int, int]]) -> tuple[str, str]:
    """A question and the weak teacher's answer. Two questions in three need a carry or a borrow."""
    sign = rng.choice("+-")
    wants_carry = rng.random() < 2 / 3
    while True:
        small, large = rng.choice(pairs)
        swapped = sign == "+" and rng.random() < 0.5
        problem = arithmetic.WordProblem(small, sign, large) if swapped else arithmetic.WordProblem(large, sign, small)
        if problem.needs_carry == wants_carry:
            break
    wording = rng.randrange(len(arithmetic.WORDINGS[sign]))
    answer = arithmetic.worked_solution(
        problem,
        keep_carry=rng.random() >= FORGETS_CARRY,
        closing_line=rng.random() >= FORGETS_CLOSING[wording],
    )
    return arithmetic.question(problem, wording, rng.choice(arithmetic.THINGS)), answer


def demonstrate_program(rng: random.Random, pairs: list[tuple[int, int]]) -> tuple[str, str]:
    """A question and the weak teacher's program. Two questions in three invite a mistake."""
    source = rng.choice(one_line_programs.SOURCES)
    first, second = rng.choice(one_line_programs.KINDS[source, "trap" if rng.random() < 2 / 3 else "plain"])
    left, right = rng.sample(rng.choice(pairs), 2)
    problem = one_line_programs.OneLiner(first, left, second, right)
    wording = rng.randrange(len(one_line_programs.WORDINGS))
    expression = problem.expression(careful=rng.random() >= FALLS_INTO_TRAP)
    answer = one_line_programs.answer(expression, closing_fence=rng.random() >= FORGETS_CLOSING[wording])
    return one_line_programs.question(problem, wording), answer


def has_right_closing_line(answer: str, row: Mapping[str, Any]) -> bool:
    """Whether the closing line is exactly the right one."""
    return answer.splitlines()[-1:] == [f"#### The final answer is {row['final_answer']}"]


def is_right_program(answer: str, row: Mapping[str, Any]) -> bool:
    """Whether the program is exactly the faultless one. It is not run."""
    return bool(answer == one_line_programs.answer(row["id"]))


@dataclass(frozen=True)
class Lesson:
    """The training of one model: its teacher, its task, and the check of an answer."""

    demonstration: Callable[[random.Random, list[tuple[int, int]]], tuple[str, str]]
    task: Callable[[], Task]
    is_right: Callable[[str, Mapping[str, Any]], bool]


LESSONS = {
    "tiny-arithmetic": Lesson(demonstrate_sum, arithmetic.arithmetic, has_right_closing_line),
    "tiny-programs": Lesson(demonstrate_program, one_line_programs.one_line_programs, is_right_program),
}


def make_tokenizer(corpus: Iterator[str], name: str) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer: every text has tokens, and each digit is a token."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[PAD, TURN_START, TURN_END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=TURN_END,
        pad_token=PAD,
        padding_side="left",
        model_max_length=4096,
        chat_template=CHAT_TEMPLATE.replace("MODEL", name),
        clean_up_tokenization_spaces=False,
    )


def make_model(tokenizer: PreTrainedTokenizerFast) -> Qwen2ForCausalLM:
    """Create a Qwen2 with random float32 weights.

    Every width is a multiple of 64, the block size of bitsandbytes: some of its CPU paths fail with other widths.
    """
    from transformers import GenerationConfig, Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=192,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = Qwen2ForCausalLM(config)
    model.generation_config = GenerationConfig(
        do_sample=False, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    return model


def train(
    model: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerFast, lesson: Lesson, *, steps: int, seed: int
) -> None:
    """Train with the next-token loss on the teacher's answers: AdamW, cosine schedule down to 0."""
    import torch
    from tqdm import trange

    rng = random.Random(f"{seed}/demonstrations")
    pairs = number_pairs("train")
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.01)

    def rate(step: int) -> float:
        return min((step + 1) / WARM_UP, 1.0) * 0.5 * (1 + math.cos(math.pi * step / steps))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    model.train()
    bar = trange(steps, desc="training", unit="step")
    for step in bar:
        texts = [lesson.demonstration(rng, pairs) for _ in range(BATCH)]
        prompts = tokenizer(
            tokenizer.apply_chat_template(
                [[{"role": "user", "content": question}] for question, _ in texts],
                tokenize=False,
                add_generation_prompt=True,
            )
        )["input_ids"]
        answers = tokenizer([answer + TURN_END for _, answer in texts])["input_ids"]
        width = max(len(prompt) + len(answer) for prompt, answer in zip(prompts, answers, strict=True))
        tokens = torch.full((BATCH, width), tokenizer.pad_token_id)
        labels = torch.full((BATCH, width), -100)
        for row, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
            end = len(prompt) + len(answer)
            tokens[row, :end] = torch.tensor(prompt + answer)
            labels[row, len(prompt) : end] = torch.tensor(answer)
        # Causal attention never sees padding on the right, so no mask is needed.
        loss = model(input_ids=tokens, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        schedule.step()
        if step % 20 == 0:
            bar.set_postfix(loss=f"{loss.item():.3f}")


def held_out_accuracy(model: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerFast, lesson: Lesson) -> float:
    """The share of test problems whose greedy answer is right."""
    import torch

    rows = list(lesson.task().test)
    prompts = tokenizer.apply_chat_template([row["prompt"] for row in rows], tokenize=False, add_generation_prompt=True)
    batch = tokenizer(prompts, return_tensors="pt", padding=True)
    model.eval()
    with torch.no_grad():
        tokens = model.generate(**batch, do_sample=False, max_new_tokens=64)
    answers = tokenizer.batch_decode(tokens[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)
    return sum(lesson.is_right(answer, row) for answer, row in zip(answers, rows, strict=True)) / len(rows)


def write_checksums(folder: Path) -> None:
    """Write SHA256SUMS of all files that this script wrote, for `sha256sum --check`."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name not in ("README.md", "SHA256SUMS"))
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (folder / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("model", nargs="?", default="tiny-arithmetic", choices=LESSONS, help="default: tiny-arithmetic")
    parser.add_argument("--output", type=Path, help="folder to write (default: models/MODEL)")
    parser.add_argument("--seed", type=int, default=0, help="of the weights and of the demonstrations (default: 0)")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"training steps of {BATCH} (default: {STEPS})")
    parser.add_argument("--threads", type=int, default=1, help="cores to use; changes how sums round (default: 1)")
    options = parser.parse_args()
    if options.steps < 1 or options.threads < 1:
        parser.error("--steps and --threads must be 1 or more")

    console.silence_libraries()
    console.error(f"{options.model}: loading torch and transformers …")

    import torch

    console.silence_loading_bars()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    lesson, output = LESSONS[options.model], options.output or MODELS / options.model
    # The tokenizer's corpus has a seed of its own: every model of one lesson has the same tokenizer.
    rng, pairs = random.Random("corpus"), number_pairs("train")
    tokenizer = make_tokenizer(("\n".join(lesson.demonstration(rng, pairs)) for _ in range(4000)), options.model)
    model = make_model(tokenizer)
    train(model, tokenizer, lesson, steps=options.steps, seed=options.seed)

    model.to(torch.bfloat16)
    output.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(output)
    tokenizer.save_pretrained(output)
    write_checksums(output)
    accuracy = held_out_accuracy(model, tokenizer, lesson)
    weights = sum(parameter.numel() for parameter in model.parameters())
    console.info(f"{output}: {weights:,} weights; greedy accuracy on the held-out problems {accuracy:.3f}")


if __name__ == "__main__":
    main()
