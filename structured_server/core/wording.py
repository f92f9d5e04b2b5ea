"""What words give away: yes/no questions of opposite polarity, ids that suggest an answer.

Both go by lists of English words: they find what is plain to see and nothing more.
"""

from __future__ import annotations

import re
from collections import Counter

from structured_server.core.questions import Noul, Question

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_ID_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_A-Za-z]+")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NEGATIONS = _words("neither never no nobody non none nor not nothing")
_FILLERS = _words("a all an any anybody anyone anything at ever some somebody someone something the")
_CONTRACTED = {"ca": "can", "wo": "will", "sha": "shall"}
_PREFIXES = ("un", "in", "im", "ir", "il", "dis", "non", "mis")
_SHORTEST_STEM = 4
# They look like a prefix before a word, and are none.
_PLAIN = _words(
    "discover discount dispatch display import impress impact income increase inform input insight inside "
    "instance instead intend intent mission mistake under unit until"
)
_ANTONYMS = frozenset(
    frozenset(pair.split("/"))
    for pair in _words(
        "absent/present accept/reject accepted/rejected allow/deny allowed/denied approve/reject "
        "approved/rejected bad/good better/worse broken/working closed/open correct/wrong dangerous/safe "
        "decrease/increase disable/enable disabled/enabled down/up early/late exclude/include "
        "excluded/included external/internal fail/pass failed/passed failed/succeeded failure/success "
        "fake/real fall/rise false/true healthy/sick high/low large/small less/more lose/win "
        "negative/positive off/on private/public right/wrong start/stop with/without"
    )
)
_SUGGESTIVE = _words(
    "always certainly certain clearly confirmed correct definitely expected false fake incorrect inverse "
    "inverted likely mirror mirrored obviously opposite presumably probably real rev reverse reversed right "
    "sure surely true unlikely wrong yes"
)
_ID_NEGATIONS = _NEGATIONS | {"cannot", "without", "isnt", "dont", "cant", "wont", "doesnt"}


def opposite(first: Noul, second: Noul) -> bool:
    """Tell whether two yes/no questions plainly ask the same with opposite polarity."""
    if first.true and second.true and (first.true, first.false) == (second.false, second.true):
        return True
    texts = ((first.instructions, second.instructions), (first.true, second.true))
    return any(one and two and _contradict(one, two) for one, two in texts)


def leading_word(identifier: str, question: Question) -> str | None:
    """Return the option that an id names, or its word that suggests an answer, or None."""
    words = [word.casefold() for word in _ID_WORD.findall(identifier)]
    for option in question.options:
        named = [word.casefold() for word in _ID_WORD.findall(option.word)]
        if named and any(words[at : at + len(named)] == named for at in range(len(words))):
            return option.word
    return next((word for word in words if word in _ID_NEGATIONS or word in _SUGGESTIVE), None)


def _contradict(first: str, second: str) -> bool:
    (one, negated), (two, also_negated) = _parse(first), _parse(second)
    left, right = list((one - two).elements()), list((two - one).elements())
    if not left and not right:
        return bool(one) and negated != also_negated
    return (
        negated == also_negated and len(left) == len(right) == 1 and len(one) > 1 and _antonyms(*left, *right)
    )


def _parse(text: str) -> tuple[Counter[str], bool]:
    """Return a text's words without its negations, and whether they negate it."""
    words: Counter[str] = Counter()
    negated = False
    for word in _WORD.findall(text.casefold().replace("’", "'")):
        if word.endswith("n't"):
            stem = word.removesuffix("n't")
            words[_CONTRACTED.get(stem, stem)] += 1
            negated = not negated
        elif word == "cannot":
            words["can"] += 1
            negated = not negated
        elif word in _NEGATIONS:
            negated = not negated
        elif word not in _FILLERS:
            words[word] += 1
    return words, negated


def _antonyms(first: str, second: str) -> bool:
    if frozenset((first, second)) in _ANTONYMS:
        return True
    short, long = sorted((first, second), key=len)
    return (
        len(short) >= _SHORTEST_STEM
        and long not in _PLAIN
        and any(long == prefix + short for prefix in _PREFIXES)
    )
