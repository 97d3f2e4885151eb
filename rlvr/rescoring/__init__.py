"""Score saved completions again, and explain a score."""
