"""Load models, tokenizers and adapters; generate."""
