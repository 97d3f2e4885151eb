"""Load model, tokenizer, adapter; generate."""
