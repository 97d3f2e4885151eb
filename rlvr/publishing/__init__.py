"""Publish what a run trained, or what was exported of it, on the Hugging Face hub.

artifact.py       what is published: an adapter, a model or GGUF files, and the run that they come from
model_card.py     README.md, written from the run's files; snippets.py has the code that loads the weights
upload.py         the files, and the scan before one is sent
settings.py       the id of the repository, and the token
hub.py            what the repository holds, and the commit
publish.py        all of it
"""

from __future__ import annotations
