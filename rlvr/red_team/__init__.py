"""Find the cheapest text that earns a recipe's reward without being right.

attacks.py       the texts: fixed attacks, and the fragments that the others are made of
target.py        the rewards under attack: score texts on rows of the task
correctness.py   what a text earns that it can't have earned by being right
copying.py       copied parts of the prompts, in the rows and in a run's completions
search.py        mutate and recombine texts, and shorten the best one
policy.py        a tiny policy that learns from the reward alone
findings.py      the result: table, verdict, JSON
exercise.py      all of it, within a budget
"""
