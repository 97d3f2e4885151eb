"""What rewards say of texts that exist already: saved completions, and texts that attack the rewards.

completions.py      read saved completions
reward_call.py      call a reward with them; missing_columns.py adds what the file lacks
rescoring.py        score them again; score_summary.py has the statistics, score_file.py the tables in the terminal
explain.py          explain the score of one row
red_team.py         find texts that earn a reward without being right
attacks.py          the texts; copying.py has the copied parts of the prompts
target.py           the rewards under attack: score texts on rows of the task
correctness.py      the part of a text's reward that no right answer explains
findings.py         the result: table, verdict, JSON
"""
