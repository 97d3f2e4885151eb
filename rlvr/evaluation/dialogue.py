"""Talk to the base and the trained model of a finished run, with its own prompts, stop strings and decoding.

A LoRA run is loaded once: the base answers with the adapter switched off. A fully trained model is loaded beside its
base.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr.artifacts import directory
from rlvr.config.recipe import Recipe, load_recipe, require_one_task
from rlvr.config.specs import EvaluationSpec
from rlvr.errors import InputError
from rlvr.evaluation.conversations import Player, open_player
from rlvr.evaluation.engines import Completion, Decoding, TransformersEngine
from rlvr.evaluation.evaluate import measure
from rlvr.evaluation.measured import choose_metric, greedy_decoding
from rlvr.modeling import loading
from rlvr.modeling.generation import prompt_tokens
from rlvr.rescoring.explain import explanation
from rlvr.scoring.reward import Reward
from rlvr.scoring.scorer import Scorer

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from rlvr.data.task import Task

SIDES = ("base", "trained")
GOLD = "final_answer"
Show = Callable[[str], object]


@dataclass(frozen=True)
class Answer:
    """What one of the models answered.

    Attributes:
        completion: text; of an environment the messages.
        tokens: that the model wrote.
        ended: whether it ended by itself.
        correct: the verdict of the run's metric; None if there is no reference, or the metric could not say.
        why: what the metric explains of its verdict.
    """

    completion: Any
    tokens: int
    ended: bool
    correct: bool | None = None
    why: tuple[str, ...] = ()


@dataclass(frozen=True)
class Question:
    """A prompt for both models, and the columns that verify an answer to it.

    Attributes:
        text: what the user typed; None for a held-out row.
        row: a held-out row, or the reference answer alone.
    """

    text: str | None
    row: Mapping[str, Any]


class _Side:
    """An engine: one of the two models. Its tokens are shown as they come."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, *, adapter_off: bool) -> None:
        self.tokenizer = tokenizer
        self._model = model
        self._adapter_off = adapter_off
        self.show: Show | None = None

    def complete(self, prompts: Sequence[list[int]], decoding: Decoding, seed: int) -> list[Completion]:
        streamer = None if self.show is None else _streamer(self.tokenizer, self.show)
        engine = TransformersEngine(self._model, self.tokenizer, streamer)
        with self._model.disable_adapter() if self._adapter_off else nullcontext():
            return engine.complete(prompts, decoding, seed)

    def close(self) -> None: ...


def _streamer(tokenizer: PreTrainedTokenizerBase, show: Show) -> Any:
    from transformers import TextStreamer

    class Streamer(TextStreamer):
        def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
            show(text)

    return Streamer(tokenizer, skip_prompt=True, skip_special_tokens=True)


class Dialogue:
    """Both models of a run, and the conversation with each.

    Args:
        player: plays the environment of a run; None for a run without one.
    """

    def __init__(
        self,
        recipe: Recipe,
        task: Task,
        sides: Mapping[str, _Side],
        metric: Reward,
        scorer: Scorer,
        player: Player | None,
    ) -> None:
        self.recipe, self.task, self.metric, self.player = recipe, task, metric, player
        self.rows: Dataset = task.split((recipe.evaluation or EvaluationSpec()).split)
        self._sides, self._scorer = sides, scorer
        self._decoding = greedy_decoding(task, recipe)
        self._talks: dict[str, list[Any]] = {}

    def begin(self) -> None:
        """Forget the conversation."""
        self._talks = {}

    def question(self, text: str | None, number: int | None = None, reference: str | None = None) -> Question:
        """A typed question, or a held-out row, which begins a new conversation.

        Args:
            number: of the row, from 0.
            reference: answer that a typed question is verified against.

        Raises:
            InputError: of kind "out-of-range", "needs-row" or "missing-column".
        """
        if number is not None:
            if not 0 <= number < len(self.rows):
                raise InputError(
                    f"There is no held-out row {number}. Give a number from 0 to {len(self.rows) - 1}.",
                    kind="out-of-range",
                    key="--row",
                    row=number,
                )
            self.begin()
            return Question(None, self.rows[number])
        if self.player is not None:
            raise InputError(
                "The run has an environment, which begins with a row of its task: a typed question can't be played. "
                f"Give a held-out row (0 to {len(self.rows) - 1}).",
                kind="needs-row",
                key="--row",
            )
        if reference is None:
            return Question(text, {})
        if other := set(self.metric.columns) - {GOLD} - set(self.metric.options):
            raise InputError(
                f"{self.metric.label} verifies with the column {min(other)}, not with a reference answer. Give a "
                "held-out row instead.",
                kind="missing-column",
                key="--reference",
            )
        return Question(text, {GOLD: reference})

    def prompt(self, side: str, question: Question) -> Any:
        """The prompt of a question: messages with the conversation so far, or plain text."""
        if question.text is None:
            return question.row["prompt"]
        if not self.task.is_chat:
            return _fill(self.rows[0], self.rows[0]["prompt"], question.text)
        talk = self._talks.get(side)
        if talk is None:
            first = self.rows[0]["prompt"]
            content = _fill(self.rows[0], first[-1]["content"], question.text)
            return [*self._shared_messages(), {"role": "user", "content": content}]
        return [*talk, {"role": "user", "content": question.text}]

    def _shared_messages(self) -> list[dict[str, str]]:
        """The messages that begin the prompt of every held-out row: the system prompt and examples."""
        prompts = [row["prompt"][:-1] for row in self.rows.select(range(min(2, len(self.rows))))]
        shared = []
        for message, *others in zip(*prompts, strict=False):
            if any(other != message for other in others):
                break
            shared.append(message)
        return shared

    def ask(self, side: str, question: Question, show: Show | None = None) -> Answer:
        """Let one of the models answer, and verify the answer if the question has a reference.

        Args:
            show: gets the text as it comes.

        Raises:
            RewardError: the metric failed.
        """
        prompt = self.prompt(side, question)
        engine = self._sides[side]
        engine.show = show
        if question.row:
            answer = self._verified(engine, {**question.row, "prompt": prompt})
        else:
            ids = prompt_tokens(engine.tokenizer, [prompt], self.recipe.settings.get("chat_template_kwargs"))
            completion = engine.complete(ids, self._decoding, self._decoding.seed)[0]
            answer = Answer(completion.text, completion.tokens, completion.ended)
        if self.task.is_chat:
            turn = answer.completion
            turn = [{"role": "assistant", "content": turn}] if isinstance(turn, str) else turn
            self._talks[side] = [*prompt, *turn]
        return answer

    def _verified(self, engine: _Side, row: dict[str, Any]) -> Answer:
        from datasets import Dataset

        record = measure(
            engine,
            Dataset.from_list([row]),
            [self.metric],
            self.metric,
            self._scorer,
            self._decoding,
            batch_size=1,
            description="",
            template_options=self.recipe.settings.get("chat_template_kwargs"),
            player=self.player,
        )[0]
        why = explanation({**row, **record}, self.metric, [self.metric]).lines
        return Answer(record["completion"], record["tokens"], record["ended"], record["correct"], tuple(why))


def _fill(row: Mapping[str, Any], prompt: str, question: str) -> str:
    """The prompt of a row with another question; the question alone if the prompt does not contain the row's own."""
    own = row.get("question")
    before, found, after = prompt.rpartition(own) if isinstance(own, str) and own else ("", "", "")
    return f"{before}{question}{after}" if found else question


@contextmanager
def open_dialogue(recipe: Recipe, weights: Path) -> Iterator[Dialogue]:
    """Load the models of a finished run (`find_run`), and start its metric.

    Raises:
        InputError: the base or the data is not there.
    """
    from rlvr.scoring.registry import load_rewards, load_task

    metric = choose_metric(recipe.evaluation, load_rewards(recipe.rewards))
    task = load_task(recipe.task)
    tokenizer = loading.load_tokenizer(recipe, chat=task.is_chat)
    with ExitStack() as stack:
        scorer = stack.enter_context(Scorer([metric], timeout_s=recipe.settings["reward_timeout_s"]))
        model = loading.load_model(recipe, tokenizer, adapter=weights)
        is_adapter = (weights / "adapter_config.json").is_file()
        base = model if is_adapter else loading.load_model(recipe, tokenizer)
        sides = {
            "base": _Side(base, tokenizer, adapter_off=is_adapter),
            "trained": _Side(model, tokenizer, adapter_off=False),
        }
        columns = task.split((recipe.evaluation or EvaluationSpec()).split).column_names
        player = stack.enter_context(open_player(recipe, tokenizer, columns))
        yield Dialogue(recipe, task, sides, metric, scorer, player)


def find_run(folder: Path, overrides: Sequence[str] = ()) -> tuple[Recipe, Path]:
    """The recipe of a finished run, and the folder of its adapter or model. Imports no slow package.

    Raises:
        InputError: of kind "not-a-run", "run-not-finished" or "model-not-found"; or the overrides are wrong.
    """
    if not (folder / "recipe.yaml").is_file():
        message = f"{folder} is not a run directory: it has no recipe.yaml. Give the output_dir of a run."
        raise InputError(message, kind="not-a-run", path=folder)
    recipe = load_recipe(folder / "recipe.yaml", overrides)
    weights = folder / ("adapter" if recipe.settings.get("use_peft") else "model")
    status = (directory.read_status(folder) or {}).get("status", "done")
    if status not in ("trained", "done"):
        fault = f"its status is {status}"
        fix = "Its failure.txt says why" if status == "failed" else "The command that started it continues it"
    elif not weights.is_dir():
        fault, fix = f"it has no folder {weights.name}", "Copy that folder, too"
    else:
        try:
            loading.find_model(str(recipe.settings["model_name_or_path"]))
        except InputError as error:
            message = f"The base of {folder} is missing. {error} If it is elsewhere: --model_name_or_path FOLDER."
            raise InputError(message, kind=error.kind, key="model_name_or_path") from error
        require_one_task(recipe, "A dialogue")
        return recipe, weights
    raise InputError(f"{folder} has no trained model: {fault}. {fix}.", kind="run-not-finished", path=folder)
