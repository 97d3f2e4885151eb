"""Tasks and rows: reading, splitting, decontamination, code problems."""
