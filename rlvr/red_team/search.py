"""Search for texts that earn more unearned: mutate and recombine the best ones, then shorten the winner."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from rlvr.red_team.attacks import FORMS, Text, template
from rlvr.red_team.correctness import Earnings
from rlvr.red_team.target import SCREENING_ROWS, Budget

Evaluate = Callable[[Sequence[Text], "Sequence[int] | None"], list[Earnings]]
POOL = 24  # texts that parents are drawn from
CHILDREN = 16  # per generation
MAX_PIECES = 12
SCREENING = range(SCREENING_ROWS)
ENOUGH = 0.98  # of a right answer's reward: the search ends
SAME = 0.02  # of a right answer's reward
MAX_PARTS = 16  # the smallest part of a constant that `shorten` leaves out


def by_gain(earnings: Earnings) -> tuple[float, float, float]:
    """Sort key: the most unearned reward first, then the shortest text."""
    return (-round(earnings.gain, 2), -round(earnings.share, 2), earnings.size)


def search(
    evaluate: Evaluate,
    known: Sequence[Earnings],
    promising: Sequence[Text],
    first: Sequence[Text],
    pieces: Sequence[Text],
    budget: Budget,
    rng: random.Random,
) -> list[Earnings]:
    """The best texts that the search found, judged on all rows.

    Args:
        evaluate: judges texts on rows.
        known: the fixed attacks, judged.
        promising, first: the first generation.
        pieces: what mutations insert.
        budget: what is left for the search.
    """
    screened: dict[str, Earnings] = {}
    order = rng.sample(first, len(first))  # a small budget tries some of each kind
    order = [*promising, *order]
    for start in range(0, len(order), CHILDREN):
        if budget.is_spent:
            break
        for one in evaluate(order[start : start + CHILDREN], SCREENING):
            screened[template(one.text)] = one
    pool = sorted([*known, *screened.values()], key=by_gain)[:POOL]
    while pool[0].gain < ENOUGH and not budget.is_spent:
        children = {template(child): child for child in (_child(pool, pieces, rng) for _ in range(CHILDREN))}
        new = [child for name, child in children.items() if name not in screened]
        for one in evaluate(new, SCREENING):
            screened[template(one.text)] = one
        # Also texts without any success stay in the pool, so that two halves of one can meet.
        pool = sorted([*pool, *(screened[template(child)] for child in new)], key=by_gain)[:POOL]
    return sorted(evaluate([one.text for one in pool], None), key=by_gain)


def shorten(evaluate: Evaluate, best: Earnings, budget: Budget) -> Earnings:
    """Leave out what a text earns as much without: pieces, then halves and smaller parts of constants."""
    part = 2
    while part <= MAX_PARTS and not budget.is_spent:
        better = None
        for shorter in _parts_left_out(best.text, part):
            if budget.is_spent:
                break
            [one] = evaluate([shorter], None)
            if one.gain >= best.gain - SAME:
                better = one
                break
        if better is None:
            part *= 2
        else:
            best = better
    return best


def _parts_left_out(text: Text, part: int) -> list[Text]:
    """The text without one piece, and without one `part`-th of a constant."""
    shorter: list[Text] = [(*text[:index], *text[index + 1 :]) for index in range(len(text))]
    for index, piece in enumerate(text):
        if isinstance(piece, str) and len(piece) > 1:
            step = max(1, len(piece) // part)
            for start in range(0, len(piece), step):
                kept = piece[:start] + piece[start + step :]
                shorter.append((*text[:index], kept, *text[index + 1 :]))
    return shorter


def _child(pool: Sequence[Earnings], pieces: Sequence[Text], rng: random.Random) -> Text:
    parent = _parent(pool, rng)
    if rng.random() < 0.3:  # recombine: the beginning of one, the end of another
        other = _parent(pool, rng)
        child: Text = (*parent[: rng.randint(0, len(parent))], *other[rng.randint(0, len(other)) :])
    else:
        child = rng.choice(MUTATIONS)(parent, pieces, rng)
    return child[:MAX_PIECES]


def _parent(pool: Sequence[Earnings], rng: random.Random) -> Text:
    return min(rng.sample(pool, min(3, len(pool))), key=by_gain).text


def _insert(text: Text, pieces: Sequence[Text], rng: random.Random) -> Text:
    at = rng.randint(0, len(text))
    return (*text[:at], *rng.choice(pieces), *text[at:])


def _replace(text: Text, pieces: Sequence[Text], rng: random.Random) -> Text:
    if not text:
        return rng.choice(pieces)
    at = rng.randrange(len(text))
    return (*text[:at], *rng.choice(pieces), *text[at + 1 :])


def _remove(text: Text, pieces: Sequence[Text], rng: random.Random) -> Text:
    at = rng.randrange(len(text)) if text else 0
    return (*text[:at], *text[at + 1 :])


def _surround(text: Text, pieces: Sequence[Text], rng: random.Random) -> Text:
    before, after = rng.choice(FORMS)
    return (before, *text, after)


def _repeat(text: Text, pieces: Sequence[Text], rng: random.Random) -> Text:
    return (*text, "\n", *text)


def _change(text: Text, pieces: Sequence[Text], rng: random.Random) -> Text:
    """Change a constant: its case, its digits, its separators, a part of it."""
    constants = [index for index, piece in enumerate(text) if isinstance(piece, str) and piece]
    if not constants:
        return _insert(text, pieces, rng)
    at = rng.choice(constants)
    piece = text[at]
    assert isinstance(piece, str)
    cut = rng.randint(0, len(piece))
    changed = rng.choice(
        [
            piece.upper(),
            piece.lower(),
            piece[:cut],
            piece[cut:],
            piece.replace(" ", "\n"),
            piece.replace(", ", " "),
            " ".join(piece),
            piece.translate({ord(str(n)): str((n + 1) % 10) for n in range(10)}),
        ]
    )
    return (*text[:at], changed, *text[at + 1 :])


MUTATIONS = (_insert, _insert, _replace, _remove, _surround, _surround, _repeat, _change)
