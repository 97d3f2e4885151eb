"""Call reward functions: locally, over HTTP, on Ray; collect values and failures."""
