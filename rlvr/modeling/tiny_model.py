"""The bundled tiny models: their tokenizer, their network and its training (scripts/make_tiny_model.py)."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from tqdm import trange
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

BATCH, LEARNING_RATE, WARM_UP = 64, 3e-3, 100

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
Tools = tuple[dict[str, Any], ...]  # as a chat template gets them


def make_tokenizer(corpus: Iterator[str], name: str, *, with_tools: bool) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer: every text has tokens, and each digit is a token."""
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
    model: Qwen2ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    demonstrate: Callable[[], Demonstration],
    tools: Tools,
    steps: int,
) -> None:
    """Train with the next-token loss on the teacher's answers: AdamW, cosine schedule down to 0."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.01)

    def rate(step: int) -> float:
        return min((step + 1) / WARM_UP, 1.0) * 0.5 * (1 + math.cos(math.pi * step / steps))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    model.train()
    bar = trange(steps, desc="training", unit="step")
    for step in bar:
        conversations = [encode(tokenizer, demonstrate(), tools) for _ in range(BATCH)]
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
    tokenizer: PreTrainedTokenizerFast, demonstration: Demonstration, tools: Tools
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


def greedy_answers(
    model: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerFast, prompts: list[Any], tools: Tools
) -> list[str]:
    """The model's greedy answers, without special tokens."""
    texts = tokenizer.apply_chat_template(
        prompts, tools=list(tools) or None, tokenize=False, add_generation_prompt=True
    )
    batch = tokenizer(texts, return_tensors="pt", padding=True)
    model.eval()
    with torch.no_grad():
        tokens = model.generate(**batch, do_sample=False, max_new_tokens=64)
    return list(tokenizer.batch_decode(tokens[:, batch["input_ids"].shape[1] :], skip_special_tokens=True))


def write_checksums(folder: Path) -> None:
    """Write SHA256SUMS of all files that this script wrote, for `sha256sum --check`."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name not in ("README.md", "SHA256SUMS"))
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (folder / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")


def save(model: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write the model in bfloat16."""
    model.to(torch.bfloat16)
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    write_checksums(folder)


def prepare_torch(threads: int, seed: int) -> None:
    """Fix what the weights depend on."""
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
