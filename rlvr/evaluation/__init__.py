"""Held-out accuracy for a model with or without an adapter, through one code path.

evaluate.py         rows -> answers -> verdicts, greedily or by samples, on one process or several
evaluated_model.py  the base or the trained model of a recipe, with its answer cache
evaluation_plan.py  what scripts/evaluate.py measures: check it, measure, write
output_folder.py    an earlier evaluation is not lost
measured.py         which rows, which decoding: by the recipe
engines.py          generate with transformers or vLLM
answer_cache.py     keep answers, so that a killed evaluation continues
shared_answers.py   share the answers of a base model between runs
scores.py           records -> accuracy, its parts, pass@k, the difference of two models
statistics.py       intervals and tests
evaluation_file.py  evaluation.json, and the table in the terminal
dialogue.py         ask the base and the trained model of a finished run
"""
