"""A finished run as a model that others can use: exported, measured again, published.

export.py      write beside, measure, then rename (docs/export-publish.md)
merged.py      the adapter merged into its base, or alone
gguf_file.py   a model folder as one GGUF file; quantization.py has the types
llama_cpp.py   ask a GGUF file through llama.cpp
remeasure.py   ask the rows of the run again, and compare
publish.py     a run or an export on the Hugging Face hub (docs/export-publish.md): upload.py scans the files,
               hub.py makes the commit
model_card.py  README.md, written from the run's files; snippets.py has the code that loads the weights
settings.py    the id of the repository, and the token
"""
