"""Ask the base and the trained model of a finished run, with its own prompts, stop strings and decoding."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from rlvr import console
from rlvr.artifacts.finished_run import FinishedRun, open_run
from rlvr.config.recipe import require_one_task
from rlvr.config.specs import EvaluationSpec
from rlvr.data.io import Row
from rlvr.environments.transcript import as_text
from rlvr.errors import InputError
from rlvr.evaluation.conversations import open_player
from rlvr.evaluation.engines import TransformersEngine
from rlvr.evaluation.evaluate import measure
from rlvr.evaluation.measured import greedy_decoding
from rlvr.formatting import visible
from rlvr.modeling import loading
from rlvr.modeling.generation import prompt_tokens
from rlvr.reward_audit.reward_call import explanation
from rlvr.scoring.metric_choice import choose_metrics
from rlvr.scoring.registry import load_rewards, load_tasks
from rlvr.scoring.reward import RewardError
from rlvr.scoring.scorer import Scorer

if TYPE_CHECKING:
    from datasets import Dataset

__all__ = ["answer_lines", "open_run"]


def answer_lines(run: FinishedRun, lines: Iterable[str]) -> None:
    """Print what both models answer to each line, and what the metric says of the answers to a held-out row.

    Raises:
        InputError: the base or the data is not there.
    """
    from datasets import Dataset

    require_one_task(run.recipe, "A dialogue")
    console.silence_loading_bars()
    recipe, task = run.recipe, load_tasks(run.recipe.tasks)
    rows = task.split((recipe.evaluation or EvaluationSpec()).split)
    metrics = choose_metrics(recipe, load_rewards(recipe.rewards))
    metric = metrics[""]
    tokenizer = loading.load_tokenizer(recipe, chat=task.is_chat)
    decoding, options = greedy_decoding(task, recipe), recipe.settings.get("chat_template_kwargs")
    form: dict[str, Any] = {"batch_size": 1, "description": "", "template_options": options}

    def answer(engine: TransformersEngine, row: Row) -> str:
        if row.keys() == {"prompt"}:
            [found] = engine.complete(prompt_tokens(tokenizer, [row["prompt"]], options), decoding, decoding.seed)
            return _shown(found.text, found.tokens, found.ended, [])
        data = Dataset.from_list([row])
        [record] = measure(engine, data, [metric], metrics, scorer, decoding, player=player, **form)
        verdict = {True: "right", False: "wrong", None: "not scored"}[record["correct"]]
        why = [verdict, *explanation({**row, **record}, metric, [metric])[0]]
        return _shown(as_text(record["completion"]), record["tokens"], record["ended"], why)

    with (
        Scorer([metric], timeout_s=recipe.settings["reward_timeout_s"]) as scorer,
        open_player(recipe, tokenizer, rows.column_names) as player,
    ):
        trained = loading.load_model(recipe, tokenizer, adapter=run.weights)
        base = trained if run.is_adapter else loading.load_model(recipe, tokenizer)
        for line in lines:
            try:
                row = row_of(line, rows, needs_row=player is not None)
                console.info(visible(as_text(row["prompt"])))
                with base.disable_adapter() if run.is_adapter else nullcontext():
                    console.info(f"\n{console.bold('base')}\n{answer(TransformersEngine(base, tokenizer), row)}")
                console.info(f"\n{console.bold('trained')}\n{answer(TransformersEngine(trained, tokenizer), row)}")
            except (InputError, RewardError) as error:
                console.error(str(error))


def _shown(text: str, tokens: int, ended: bool, notes: list[str]) -> str:
    length = f"{tokens} tokens{'' if ended else ', cut off'}"
    return "\n".join([visible(text), *(console.dim(f"  {visible(note)}") for note in (length, *notes))])


def row_of(line: str, rows: Dataset, *, needs_row: bool = False) -> Row:
    """The row that a line asks for: a held-out one ("/row 3"), or the prompt of one with another question.

    Raises:
        InputError: there is no such row, or an environment needs one.
    """
    command, _, number = line.partition(" ")
    if command == "/row" and number.isdecimal() and int(number) < len(rows):
        return dict(rows[int(number)])
    if command == "/row" or needs_row:
        why = "there is no such held-out row" if command == "/row" else "the environment of the run needs a row"
        raise InputError(f"{line}: {why}. Write /row and a number from 0 to {len(rows) - 1}.", kind="out-of-range")
    prompt = rows[0]["prompt"]
    text = prompt if isinstance(prompt, str) else prompt[-1]["content"]
    before, found, after = text.rpartition(rows[0].get("question") or text)
    text = f"{before}{line}{after}" if found else line
    return {"prompt": text if isinstance(prompt, str) else [*prompt[:-1], {**prompt[-1], "content": text}]}
