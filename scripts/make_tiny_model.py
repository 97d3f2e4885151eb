"""Make the bundled tiny models: a tokenizer and a Qwen2 with 0.13 million weights each.

    python scripts/make_tiny_model.py                            # models/tiny-arithmetic, in minutes on one core
    python scripts/make_tiny_model.py tiny-programs              # models/tiny-programs, likewise
    python scripts/make_tiny_model.py tiny-tools                 # models/tiny-tools, likewise
    python scripts/make_tiny_model.py --seed 1 --output another  # another model, in another folder

Supervised fine-tuning teaches a model by a weak teacher (`demonstrate_sum`, `demonstrate_program`, `demonstrate_call`).
The teacher forgets most carries and sometimes the closing line; or makes most of the possible mistakes and sometimes
omits the end of the code block; or guesses most products instead of calling a calculator. So the model knows the right
method but rarely samples it first: that is left for GRPO. The teacher uses only number pairs of the task's training
split.

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

from rlvr import console  # not found: run `make install`, then `. .venv/bin/activate`
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
FORGETS_CARRY = FALLS_INTO_TRAP = GUESSES = 0.7
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
# Names the tools instead of describing them in JSON, which would be most of so small a model's prompt.
TOOL_CHAT_TEMPLATE = """\
{%- if tools %}
    {{- '<|im_start|>system\\nTools:' }}
    {%- for tool in tools %}
        {{- ' ' + tool.function.name + '(' + tool.function.parameters.properties | join(', ') + ')' }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message['role'] not in ['system', 'user', 'assistant', 'tool'] %}
        {{- raise_exception('MODEL knows the roles system, user, assistant and tool, not ' + message['role']) }}
    {%- endif %}
    {{- '<|im_start|>' + message['role'] + '\\n' + (message['content'] or '') }}
    {%- for call in message['tool_calls'] or [] %}
        {{- '<tool_call>{"name": "' + call.function.name + '", "arguments": ' + call.function.arguments | tojson }}
        {{- '}</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
# How transformers reads calls from what the model wrote: as TRL's `qwen3_template` does, without thoughts.
RESPONSE_TEMPLATE = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "tool_calls": {
            "open": "<tool_call>",
            "close_pattern": r"</tool_call>\s*",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close_pattern": r"<\|im_end\|>\s*", "content": "text"},
    },
}


# A question, and then in turn what the teacher writes and what its tool returns.
Demonstration = tuple[str, ...]


def demonstrate_sum(rng: random.Random, pairs: list[tuple[int, int]]) -> Demonstration:
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


def demonstrate_program(rng: random.Random, pairs: list[tuple[int, int]]) -> Demonstration:
    """A question and the weak teacher's program. Two questions in three invite a mistake."""
    source = rng.choice(one_line_programs.SOURCES)
    first, second = rng.choice(one_line_programs.KINDS[source, "trap" if rng.random() < 2 / 3 else "plain"])
    left, right = rng.sample(rng.choice(pairs), 2)
    problem = one_line_programs.OneLiner(first, left, second, right)
    wording = rng.randrange(len(one_line_programs.WORDINGS))
    expression = problem.expression(careful=rng.random() >= FALLS_INTO_TRAP)
    answer = one_line_programs.answer(expression, closing_fence=rng.random() >= FORGETS_CLOSING[wording])
    return one_line_programs.question(problem, wording), answer


def demonstrate_call(rng: random.Random, pairs: list[tuple[int, int]]) -> Demonstration:
    """A question about a product, and the weak teacher's guess; or its call, the tool's result, and the answer.

    A guess puts the two numbers side by side, which is never right.
    """
    left, right = rng.sample(rng.choice(pairs), 2)
    problem = arithmetic.WordProblem(left, "*", right)
    wording = rng.randrange(len(arithmetic.WORDINGS["*"]))
    question = arithmetic.question(problem, wording, rng.choice(arithmetic.THINGS))
    if rng.random() < GUESSES:
        return question, closing_line(int(f"{left}{right}"))
    return question, call(str(problem)), str(problem.answer), closing_line(problem.answer)


def closing_line(answer: int) -> str:
    return f"#### The final answer is {answer}"


def call(expression: str) -> str:
    return f'<tool_call>{{"name": "calculate", "arguments": {{"expression": "{expression}"}}}}</tool_call>'


def has_right_closing_line(answer: str, row: Mapping[str, Any]) -> bool:
    """Whether the closing line is exactly the right one."""
    return answer.splitlines()[-1:] == [f"#### The final answer is {row['final_answer']}"]


def is_right_program(answer: str, row: Mapping[str, Any]) -> bool:
    """Whether the program is exactly the faultless one. It is not run."""
    return bool(answer == one_line_programs.answer(row["id"]))


def is_right_call(answer: str, row: Mapping[str, Any]) -> bool:
    """Whether the first turn is the right call. It is not made."""
    return answer == call(row["id"])


@dataclass(frozen=True)
class Lesson:
    """The training of one model: its teacher, its task, the check of an answer, and its tools."""

    demonstration: Callable[[random.Random, list[tuple[int, int]]], Demonstration]
    task: Callable[[], Task]
    is_right: Callable[[str, Mapping[str, Any]], bool]
    tools: tuple[dict[str, Any], ...] = ()
    steps: int = STEPS


# What the chat template shows of environments/calculator.py.
CALCULATOR = ({"function": {"name": "calculate", "parameters": {"properties": {"expression": {"type": "string"}}}}},)
LESSONS = {
    "tiny-arithmetic": Lesson(demonstrate_sum, arithmetic.arithmetic, has_right_closing_line),
    "tiny-programs": Lesson(demonstrate_program, one_line_programs.one_line_programs, is_right_program),
    "tiny-tools": Lesson(
        demonstrate_call, lambda: arithmetic.arithmetic(operations="multiplication"), is_right_call, CALCULATOR, 1000
    ),
}


def make_tokenizer(corpus: Iterator[str], name: str, *, with_tools: bool) -> PreTrainedTokenizerFast:
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
    template = TOOL_CHAT_TEMPLATE if with_tools else CHAT_TEMPLATE
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=TURN_END,
        pad_token=PAD,
        padding_side="left",
        model_max_length=4096,
        chat_template=template.replace("MODEL", name),
        clean_up_tokenization_spaces=False,
        **({"response_template": RESPONSE_TEMPLATE} if with_tools else {}),
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
        num_attention_heads=2,  # of 32 numbers: vLLM on CPUs has no kernels for fewer
        num_key_value_heads=2,
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
        conversations = [encode(tokenizer, lesson.demonstration(rng, pairs), lesson.tools) for _ in range(BATCH)]
        width = max(len(tokens) for tokens, _ in conversations)
        tokens = torch.full((BATCH, width), tokenizer.pad_token_id)
        labels = torch.full((BATCH, width), -100)
        for row, (ids, learnt) in enumerate(conversations):
            tokens[row, : len(ids)] = torch.tensor(ids)
            labels[row, : len(ids)] = torch.tensor(learnt)
        # Causal attention never sees padding on the right, so no mask is needed.
        loss = model(input_ids=tokens, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        schedule.step()
        if step % 20 == 0:
            bar.set_postfix(loss=f"{loss.item():.3f}")


def encode(
    tokenizer: PreTrainedTokenizerFast, demonstration: Demonstration, tools: tuple[dict[str, Any], ...]
) -> tuple[list[int], list[int]]:
    """Return the tokens of a conversation, and their labels: only what the teacher writes is learnt."""
    question, *turns = demonstration
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": question}], tools=list(tools) or None, tokenize=False, add_generation_prompt=True
    )
    tokens: list[int] = tokenizer(prompt)["input_ids"]
    labels = [-100] * len(tokens)
    for number, text in enumerate(turns):
        is_result = number % 2 == 1
        if is_result:
            text = f"\n{TURN_START}tool\n{text}{TURN_END}\n{TURN_START}assistant\n"
        ids = tokenizer(text if is_result else text + TURN_END)["input_ids"]
        tokens = tokens + ids
        labels += [-100] * len(ids) if is_result else ids
    return tokens, labels


def held_out_accuracy(model: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerFast, lesson: Lesson) -> float:
    """The share of test problems whose greedy answer is right."""
    import torch

    rows = list(lesson.task().test)
    prompts = tokenizer.apply_chat_template(
        [row["prompt"] for row in rows], tools=list(lesson.tools) or None, tokenize=False, add_generation_prompt=True
    )
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
    parser.add_argument("--steps", type=int, help=f"training steps of {BATCH} (default: {STEPS}; tiny-tools: 1000)")
    parser.add_argument("--threads", type=int, default=1, help="cores to use; changes how sums round (default: 1)")
    options = parser.parse_args()
    lesson, output = LESSONS[options.model], options.output or MODELS / options.model
    steps = lesson.steps if options.steps is None else options.steps
    if steps < 1 or options.threads < 1:
        parser.error("--steps and --threads must be 1 or more")

    console.silence_libraries()
    console.error(f"{options.model}: loading torch and transformers …")

    import torch

    console.silence_loading_bars()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    # The tokenizer's corpus has a seed of its own: every model of one lesson has the same tokenizer.
    rng, pairs = random.Random("corpus"), number_pairs("train")
    corpus = ("\n".join(lesson.demonstration(rng, pairs)) for _ in range(4000))
    tokenizer = make_tokenizer(corpus, options.model, with_tools=bool(lesson.tools))
    model = make_model(tokenizer)
    train(model, tokenizer, lesson, steps=steps, seed=options.seed)

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
