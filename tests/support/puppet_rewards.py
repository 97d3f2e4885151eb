"""Rewards that do as completions tell them: the text that files of rewards begin with, which workers can load."""

PUPPETS = '''
import asyncio, datetime, json, math, multiprocessing, os, random, subprocess, sys, threading, time

def puppet(prompts, completions, **kwargs):
    """Each completion says what becomes of the call."""
    values = []
    for word in completions:
        if word == "raise":
            raise ValueError("no good")
        if word == "exit":
            sys.exit(3)
        if word == "hang":
            time.sleep(1000)
        if word == "spin":
            while True:
                pass
        if word == "die":
            os.abort()
        if word == "short":
            continue
        values.append({"text": "0.5", "nan": math.nan, "inf": math.inf, "none": None, "list": [1]}.get(word, 1.0))
    return values

def only_rows(completions, **kwargs):
    if len(completions) > 1:
        raise RuntimeError("too many")
    return [1.0]

def draws(completions, **kwargs):
    import numpy
    return [random.random() + numpy.random.random() for _ in completions]

def group_sizes(prompts, completions, **kwargs):
    return [float(prompts.count(prompt)) for prompt in prompts]
'''
