"""What differs between two versions of one question, told without a word of its instructions or criteria."""

from __future__ import annotations

from collections.abc import Iterator

from structured_server.core.findings import some
from structured_server.core.prompt import Asked


def differences(before: Asked, now: Asked) -> Iterator[tuple[str, str]]:
    """Yield how a question differs from what it was, without a word of its criteria."""
    one, two = before.question, now.question
    if one.kind != two.kind:
        yield "type", f"It is of type {two.kind}, before {one.kind}."
        return
    if one.instructions != two.instructions:
        yield "instructions", "Its instructions are worded otherwise."
    words, were = [each.word for each in two.options], [each.word for each in one.options]
    more, less = _without(words, were), _without(were, words)
    if more or less:
        changed = [f"has {some(more)}"] if more else []
        changed += [f"has no longer {some(less)}"] if less else []
        yield "options", f"Of options, it {' and '.join(changed)}."
    elif words != were:
        yield "option_order", "Its options stand in another order."
    elif [each.key for each in one.options] != [each.key for each in two.options]:
        yield "options", "Its options differ in white space."
    meant = {each.word: each.description for each in one.options}
    reworded = [
        each.word for each in two.options if meant.get(each.word, each.description) != each.description
    ]
    if reworded:
        yield "criteria", f"What it says of {some(reworded)} is worded otherwise."
    if one.aliases != two.aliases:
        yield "aliases", "Its aliases are others."
    elif (
        not more
        and not less
        and dict(zip(were, before.labels, strict=True)) != dict(zip(words, now.labels, strict=True))
    ):
        yield "labels", f"Its labels are {some(now.labels)}, before {some(before.labels)}."


def _without(these: list[str], those: list[str]) -> list[str]:
    others = frozenset(those)
    return [each for each in these if each not in others]
