"""Play the environments of held-out rows: turns of the model and calls of tools, as in training.

The loop does what GRPOTrainer's `_tool_call_loop` does, which needs a trainer with a loaded model, rewards and
training rows. An evaluation has none where vLLM generates or all answers are cached, so the loop is written again for
an `Engine`, and tests/rlvr/evaluation/test_conversations.py compares both.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rlvr import console
from rlvr.config.recipe import Recipe
from rlvr.environments.loading import COLUMN, load_environments
from rlvr.environments.messages import Messages, limit_nesting, resolve, start_calls, training_template
from rlvr.environments.proxies import EnvironmentProxy, Environments, tools_of
from rlvr.evaluation.engines import Completion, Conversation, Decoding, Engine
from rlvr.modeling.loading import load_config

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

STEP = -2  # of random numbers: training begins at 0, and -1 is the trial of --check
SHOWN_CAUSES = 3  # of failed environments, of a batch
RowKey = tuple[int, int]  # a row's number, and that of its sample


@contextmanager
def open_player(recipe: Recipe, tokenizer: PreTrainedTokenizerBase, columns: Sequence[str]) -> Iterator[Player | None]:
    """The player of a recipe's environments, with worker processes of its own; None for a recipe without one."""
    if not recipe.environments:
        yield None
        return
    loaded = load_environments(recipe.environments)
    environments = Environments(recipe, loaded, by_column=COLUMN in columns)
    with environments.workers:
        yield player_of(recipe, tokenizer, environments)


def player_of(recipe: Recipe, tokenizer: PreTrainedTokenizerBase, environments: Environments) -> Player:
    """A player with a recipe's limits and template options."""
    return Player(
        environments,
        tokenizer,
        max_iterations=recipe.settings.get("max_tool_calling_iterations"),
        template_options=recipe.settings.get("chat_template_kwargs") or {},
        max_positions=load_config(recipe).get_text_config().max_position_embeddings,
    )


class Player:
    """Completes held-out rows of an environment.

    Args:
        tokenizer: with a chat template that renders tools (`rlvr.preflight.environment_checks.check_template`).
        max_iterations: `max_tool_calling_iterations`; None for no limit.
        template_options: `chat_template_kwargs`.
        max_positions: tokens that the model can read.
    """

    def __init__(
        self,
        environments: Environments,
        tokenizer: PreTrainedTokenizerBase,
        *,
        max_iterations: int | None,
        template_options: Mapping[str, Any],
        max_positions: int,
    ) -> None:
        from trl.chat_template_utils import parse_response

        self._parse_response = parse_response
        self.environments = environments
        self._tokenizer = copy.deepcopy(tokenizer)
        template = training_template(self._tokenizer)
        limit_nesting(self._tokenizer)
        self._template_options = {**template_options, "chat_template": template, "return_dict": False}
        self._max_iterations = max_iterations
        self._max_positions = max_positions

    def play(
        self,
        engine: Engine,
        rows: Sequence[Mapping[str, Any]],
        keys: Sequence[RowKey],
        decoding: Decoding,
        seed: int,
    ) -> list[Completion]:
        """Play each row once. `max_new_tokens` of the decoding limits a whole conversation."""
        environments = self.environments.reset(rows, STEP, keys)
        rollouts = self.environments.rollouts
        talks = [
            self._begin(row, environment, None if rollout is None else rollout.observation())
            for row, environment, rollout in zip(rows, environments, rollouts, strict=True)
        ]
        active, iteration = talks, 0
        while active:
            room = max(decoding.max_new_tokens - len(talk.ids) for talk in active)
            limited = dataclasses.replace(decoding, max_new_tokens=room)
            turns = engine.complete([talk.prompt_ids + talk.ids for talk in active], limited, seed + iteration)
            for talk, turn in zip(active, turns, strict=True):
                self._add_turn(talk, turn, decoding.max_new_tokens - len(talk.ids))
            calling = [talk for talk in active if talk.calls]
            if iteration == self._max_iterations:
                for talk in calling:
                    talk.stopped = "iterations"
                break
            results = [start_calls(talk.environment, talk.calls) for talk in calling]
            pairs = zip(calling, results, strict=True)
            active = [talk for talk, messages in pairs if self._add_results(talk, messages, decoding.max_new_tokens)]
            iteration += 1
        self.environments.end()
        return [talk.completion() for talk in talks]

    def replay(
        self, rows: Sequence[Mapping[str, Any]], keys: Sequence[RowKey], conversations: Sequence[Conversation]
    ) -> list[EnvironmentProxy]:
        """Bring environments into the state in which conversations left them, by the same calls.

        An environment does the same for the same row, calls and random numbers (docs/environments.md).
        """
        environments = self.environments.reset(rows, STEP, keys)
        pending: list[Messages] = []
        for environment, conversation in zip(environments, conversations, strict=True):
            messages = conversation.messages
            # Calls beyond the limit of iterations were not made. Those whose results had no room were.
            for message in messages[:-1] if conversation.stopped == "iterations" else messages:
                if message.get("tool_calls"):
                    pending.append(start_calls(environment, message["tool_calls"]))
        for results in pending:
            resolve(results)
        return environments

    def mask_failures(self, values: Sequence[list[float | None]]) -> list[list[float | None]]:
        """Drop the environments that were replayed; the rows of those that failed have no values."""
        causes = self.environments.failures()
        for cause in sorted(set(filter(None, causes)))[:SHOWN_CAUSES]:
            count = causes.count(cause)
            console.error(f"\nAn environment failed in {count} of {len(causes)} rows, which have no score: {cause}.")
        self.environments.end()
        pairs = zip(values, causes, strict=True)
        return [[None] * len(row) if cause else list(row) for row, cause in pairs]

    def _begin(self, row: Mapping[str, Any], environment: EnvironmentProxy, observation: str | None) -> _Talk:
        prompt = [dict(message) for message in row["prompt"]]
        if observation is not None:
            prompt[-1]["content"] += observation
        tools = list(tools_of(environment).values())
        ids = self._tokenizer.apply_chat_template(
            prompt, tools=tools or None, add_generation_prompt=True, **self._template_options
        )
        return _Talk(environment, tools, prompt, ids)

    def _add_turn(self, talk: _Talk, turn: Completion, room: int) -> None:
        ids = list(turn.ids[:room])
        ended = turn.ended and len(ids) == len(turn.ids)
        message = self._parse_response(self._tokenizer, ids, prefix=talk.prompt_ids + talk.ids, tools=talk.tools)
        talk.ids += ids
        talk.tokens += len(ids)
        talk.messages.append(message)
        talk.calls = message.get("tool_calls") or []
        talk.stopped = "answer" if ended and not talk.calls else "length"

    def _add_results(self, talk: _Talk, messages: Messages, limit: int) -> bool:
        """Wait for the results of tools, and add them if there is room."""
        seconds = resolve(messages)
        ids = self._result_ids(messages)
        length = len(talk.ids) + len(ids)
        if length >= limit or len(talk.prompt_ids) + length >= self._max_positions:
            return False
        talk.ids += ids
        talk.messages += messages
        talk.tool_seconds += seconds
        return True

    def _result_ids(self, messages: Messages) -> list[int]:
        """What the chat template writes between a turn with calls and the next turn (`_get_tool_suffix_ids`)."""
        call = {"type": "function", "function": {"name": messages[0]["name"], "arguments": {}}}
        before = [{"role": "user", "content": "-"}, {"role": "assistant", "content": "", "tool_calls": [call]}]
        start = self._tokenizer.apply_chat_template(before, **self._template_options)
        whole = self._tokenizer.apply_chat_template(
            before + messages, add_generation_prompt=True, **self._template_options
        )
        if self._tokenizer.eos_token_id in start:  # a turn ends there; the template may add a line break
            start = start[: len(start) - start[::-1].index(self._tokenizer.eos_token_id)]
        return list(whole[len(start) :])


@dataclass
class _Talk:
    """A conversation that is being played: its tokens after the prompt, how many the model wrote, and its calls."""

    environment: EnvironmentProxy
    tools: list[Any]
    prompt: Messages
    prompt_ids: list[int]
    ids: list[int] = field(default_factory=list)
    tokens: int = 0
    messages: Messages = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    tool_seconds: list[float | None] = field(default_factory=list)
    stopped: str = ""

    def completion(self) -> Completion:
        conversation = Conversation(self.prompt, self.messages, self.stopped, self.tool_seconds)
        last = self.messages[-1].get("content") or ""
        return Completion(last, self.tokens, self.stopped == "answer", conversation=conversation)
