"""Held-out accuracy for a model with or without an adapter, through one code path.

The figures are for the rows named and nothing else: an interval says how far chance alone could have moved them.

    measuring.py   rows -> answers -> verdicts, greedily or by samples, on one process or several
    engines.py     what generates: transformers, or vLLM
    keeping.py     answers are kept as they come; a killed evaluation goes on
    lenient.py     the second reading: right whatever the form
    scores.py      records -> accuracy, its parts, pass@k, the difference of two models
    statistics.py  intervals and tests
    subject.py     a model under evaluation
    results.py     evaluation.json, and the table in the terminal
    sweep.py       the same over several numbers of shots
"""

from rlvr.evaluation.answer_cache import AnswerCache, identity
from rlvr.evaluation.engines import Decoding, TransformersEngine, VllmEngine, check_engine, end_tokens, sampling_of
from rlvr.evaluation.evaluate import (
    evaluate,
    greedy,
    held_out_rows,
    measure,
    metric_of,
    scored_by,
)
from rlvr.evaluation.evaluated_model import EvaluatedModel
from rlvr.evaluation.results import about, heading, in_short, read_results, results_table, write_evaluation
from rlvr.evaluation.scores import Score, compare, compare_samples, pass_rates, summarise, suspicion
from rlvr.evaluation.statistics import (
    Difference,
    Interval,
    bootstrap,
    mcnemar,
    paired_difference,
    pass_at_k,
    powers_of_two,
    wilson,
)

__all__ = [
    "Decoding",
    "Difference",
    "Interval",
    "AnswerCache",
    "Score",
    "EvaluatedModel",
    "TransformersEngine",
    "VllmEngine",
    "about",
    "bootstrap",
    "check_engine",
    "compare",
    "compare_samples",
    "end_tokens",
    "evaluate",
    "greedy",
    "heading",
    "held_out_rows",
    "identity",
    "in_short",
    "mcnemar",
    "measure",
    "metric_of",
    "paired_difference",
    "pass_at_k",
    "pass_rates",
    "powers_of_two",
    "read_results",
    "results_table",
    "sampling_of",
    "scored_by",
    "summarise",
    "suspicion",
    "wilson",
    "write_evaluation",
]
