"""Write the HTML report of a run, or a comparison of several runs: self-contained pages, made from run directories.

    run_reader.py           read a run directory; a sentence for each missing part
    curves.py               panels of metrics; svg_charts.py draws them
    rollouts.py             read the completions
    packing.py              choose those for the page's browser
    samples.py              held-out problems whose answers changed
    page.py, comparison.py  the page of one run, of several

Prompts, completions and names are untrusted data: the templates escape them all, and the pages' policy allows no
request and no other script.
"""
