"""Does this query answer the question? `judge.py` decides; `queries.py` runs inside the sandbox."""
