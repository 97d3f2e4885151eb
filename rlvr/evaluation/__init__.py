"""Held-out accuracy for a model with or without an adapter, through one code path.

evaluate.py         rows -> answers -> verdicts, greedily or by samples, on one process or several
evaluated_model.py  the base or the trained model of a recipe, with its answer cache
evaluation_plan.py  what scripts/evaluate.py measures: check it, measure, write
output_folder.py    an earlier evaluation is not lost
measured.py         which rows, which decoding: by the recipe
engines.py          generate with transformers or vLLM
answer_cache.py     keep answers, so that a killed evaluation continues
lenient_match.py    match an answer with its reference whatever its form
scores.py           records -> accuracy, its parts, pass@k, the difference of two models
statistics.py       intervals and tests
evaluation_file.py  evaluation.json, and the table in the terminal
shot_sweep.py       the same over several numbers of shots
dialogue.py         ask the base and the trained model of a finished run
"""

from rlvr.evaluation.engines import Decoding, TransformersEngine, check_engine, end_tokens, sampling_settings
from rlvr.evaluation.evaluate import evaluate
from rlvr.evaluation.evaluated_model import SAMPLED_PROMPTS, EvaluatedModel
from rlvr.evaluation.evaluation_file import (
    describe_evaluation,
    heading,
    results_in_words,
    results_table,
    score_in_words,
    write_evaluation,
)
from rlvr.evaluation.measured import (
    greedy_decoding,
    held_out_rows,
    training_decoding,
)
from rlvr.evaluation.scores import summarise
from rlvr.evaluation.statistics import paired_difference

__all__ = [
    "SAMPLED_PROMPTS",
    "Decoding",
    "EvaluatedModel",
    "TransformersEngine",
    "check_engine",
    "describe_evaluation",
    "end_tokens",
    "evaluate",
    "greedy_decoding",
    "heading",
    "held_out_rows",
    "paired_difference",
    "results_in_words",
    "results_table",
    "sampling_settings",
    "score_in_words",
    "summarise",
    "training_decoding",
    "write_evaluation",
]
