"""math/: is the final answer right?  code/: does the program pass its tests?"""
