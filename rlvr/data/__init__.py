"""Load, check and split rows of data; compare them with evaluation sets."""
