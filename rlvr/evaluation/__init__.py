"""Held-out accuracy for a model with or without an adapter, through one code path.

evaluate.py         rows -> answers -> verdicts, greedily or by samples, on one process or several
engines.py          generate with transformers or vLLM
answer_cache.py     keep answers, so that a killed evaluation continues
lenient_match.py    match an answer with its reference whatever its form
scores.py           records -> accuracy, its parts, pass@k, the difference of two models
statistics.py       intervals and tests
evaluated_model.py  a model under evaluation
results.py          evaluation.json, and the table in the terminal
shot_sweep.py       the same over several numbers of shots
"""

from rlvr.evaluation.answer_cache import AnswerCache, cache_settings
from rlvr.evaluation.engines import (
    Decoding,
    TransformersEngine,
    VllmEngine,
    check_engine,
    end_tokens,
    sampling_settings,
)
from rlvr.evaluation.evaluate import (
    choose_metric,
    evaluate,
    greedy_decoding,
    held_out_rows,
    measure,
    rewards_to_run,
)
from rlvr.evaluation.evaluated_model import EvaluatedModel
from rlvr.evaluation.results import (
    describe_evaluation,
    heading,
    read_results,
    results_table,
    score_in_words,
    write_evaluation,
)
from rlvr.evaluation.scores import Score, compare, compare_samples, pass_rates, reference_warning, summarise
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
    "AnswerCache",
    "Decoding",
    "Difference",
    "EvaluatedModel",
    "Interval",
    "Score",
    "TransformersEngine",
    "VllmEngine",
    "bootstrap",
    "cache_settings",
    "check_engine",
    "choose_metric",
    "compare",
    "compare_samples",
    "describe_evaluation",
    "end_tokens",
    "evaluate",
    "greedy_decoding",
    "heading",
    "held_out_rows",
    "mcnemar",
    "measure",
    "paired_difference",
    "pass_at_k",
    "pass_rates",
    "powers_of_two",
    "read_results",
    "reference_warning",
    "results_table",
    "rewards_to_run",
    "sampling_settings",
    "score_in_words",
    "summarise",
    "wilson",
    "write_evaluation",
]
