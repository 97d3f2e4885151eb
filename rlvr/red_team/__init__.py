"""Find texts that earn a recipe's reward without being right.

attacks.py       the texts
target.py        the rewards under attack: score texts on rows of the task
correctness.py   what a text earns that it can't have earned by being right
copying.py       copied parts of the prompts, in the rows and in a run's completions
findings.py      the result: table, verdict, JSON
exercise.py      all of it
"""
