"""Added tokens: reading them, and telling those that are mere text from those that control a model."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Self

from structured_server.errors import TokenizerError

# Elements whose names are also used for placeholders of media or for agents' commands (audio, video,
# canvas, search, output, ...) are left out on purpose: a tag that is wrongly taken apart costs a few
# tokens, a control token that is wrongly kept is a hole.
_HTML_ELEMENTS = (
    "a abbr acronym address applet area article aside b base basefont bdi bdo big blockquote body br button"
    " caption center cite code col colgroup dd del details dfn dir div dl dt em fieldset figcaption figure"
    " font footer form frame frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html i iframe img input ins kbd"
    " label legend li link main map mark nav noframes noscript ol optgroup option p pre q rp rt ruby s samp"
    " script section select small span strike strong style sub sup table tbody td textarea tfoot th thead"
    " title tr tt u ul wbr"
)
_HTML_TAGS = frozenset(tag for name in _HTML_ELEMENTS.split() for tag in (f"<{name}>", f"</{name}>"))


@dataclass(frozen=True, slots=True)
class AddedToken:
    """An entry of a tokenizer's list of added tokens.

    `normalized`: it is looked for in the normalised text, otherwise in the raw text. `lstrip` and
    `rstrip`: it swallows white space on that side.
    """

    content: str
    special: bool = False
    normalized: bool = False
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False

    @classmethod
    def parse(cls, entry: object, where: str) -> Self:
        """Read an entry of `added_tokens` or of `added_tokens_decoder`.

        Raises:
            TokenizerError: the entry has no text.
        """
        content = entry.get("content") if isinstance(entry, Mapping) else None
        if not isinstance(entry, Mapping) or not isinstance(content, str) or not content:
            raise TokenizerError(f'{where}: each added token must be an object with a non-empty "content"')
        special = entry.get("special") is True
        return cls(
            content,
            special=special,
            normalized=bool(entry.get("normalized", not special)),
            lstrip=entry.get("lstrip") is True,
            rstrip=entry.get("rstrip") is True,
            single_word=entry.get("single_word") is True,
        )

    def is_text(self, named: Collection[str]) -> bool:
        """Whether the token is only a shorter spelling of text: white space, or a tag of HTML.

        `named` are the strings that the configuration names as special tokens. The `special` flag
        alone decides nothing: real files set it on a handful of their control tokens.
        """
        if self.special or self.content in named:
            return False
        return not self.content.replace("▁", " ").strip() or self.content in _HTML_TAGS


def merge_added(listed: Iterable[AddedToken], configured: Iterable[AddedToken]) -> tuple[AddedToken, ...]:
    """Join the model file's added tokens with the configuration's, which win, as in transformers.

    A token that either of them calls special is special.
    """
    merged = {token.content: token for token in listed}
    for token in configured:
        known = merged.get(token.content)
        merged[token.content] = replace(token, special=token.special or (known is not None and known.special))
    return tuple(merged.values())
