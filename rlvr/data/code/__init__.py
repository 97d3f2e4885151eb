"""Convert programming problems of published datasets: statements, tests and prompts."""
