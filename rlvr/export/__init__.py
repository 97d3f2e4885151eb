"""A finished run as a model that others can use, measured again on the rows of the run (docs/export.md).

export.py      write beside, measure, then rename
merged.py      the adapter merged into its base, or alone
gguf_file.py   a model folder as one GGUF file; quantization.py has the types
llama_cpp.py   ask a GGUF file through llama.cpp
remeasure.py   ask the rows of the run again, and compare
"""

from rlvr.export.export import ExportRefused, Plan, export_run

__all__ = ["ExportRefused", "Plan", "export_run"]
