"""The tokenizer that the rest of the project sees."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from structured_server.core.tokens import ChatFormat, Kind, Segment
from structured_server.tokenizer.control import ControlStrings, ControlToken
from structured_server.tokenizer.model import TokenModel
from structured_server.tokenizer.vocabulary import Vocabulary
from structured_server.tokenizer.words import MOST_ACROSS, Words

# What a regular expression of `tokenizers` calls white space, for tokens that swallow it.
_SPACES = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_FILLERS = ("\u200b", "\u2060", "·")  # zero width space, word joiner, and what nobody strips
_CACHED_RUNS = 1024
_LONGEST_CACHED = 32_768  # characters


class LoadedTokenizer:
    """A tokenizer read from files; implements `core.tokens.Tokenizer`. Safe to use from several threads."""

    def __init__(
        self,
        model: TokenModel,
        *,
        chat: ChatFormat,
        turn_close: int,
        padding: int,
        mask: int | None,
        thought: str | None,
        thinking: ChatFormat | None,
        fingerprint: str,
    ) -> None:
        """Put a tokenizer together; `thought` is the text of the empty thought block, if there is one."""
        self._model = model
        self._vocabulary = Vocabulary(model)
        self._inner = self._inside
        if model.by_joining and len(self._vocabulary.across) <= MOST_ACROSS:
            self._inner = Words(self._inside, self._vocabulary.across).encode
        self._split = lru_cache(_CACHED_RUNS)(lambda text: tuple(model.controls.split(text)))
        self._encode_cached = lru_cache(_CACHED_RUNS)(self._encode_run)
        self.chat = chat
        self.turn_close = turn_close
        self.thinking = thinking
        self.padding = padding
        self.mask = mask
        self.fingerprint = fingerprint
        self.scaffold = () if thought is None else self.encode_prompt([Segment(Kind.CONTROL, thought)])
        end = self.encode_prompt([Segment(Kind.CONTROL, chat.end)])
        self.scaffold_in_prompt = bool(self.scaffold) and end[-len(self.scaffold) :] == self.scaffold

    @property
    def vocabulary_size(self) -> int:
        """One more than the largest token id."""
        return self._vocabulary.size

    @property
    def noise_ids(self) -> Sequence[int]:
        """The ids that may fill a slot, ascending: no added, byte-fallback or image token."""
        return self._vocabulary.noise_ids

    @property
    def control_ids(self) -> frozenset[int]:
        """The ids that no text produces: those of the control tokens."""
        return self._model.unreachable

    @property
    def controls(self) -> ControlStrings:
        """The control tokens."""
        return self._model.controls

    def encode(self, text: str) -> tuple[int, ...]:
        """Tokenise text of mid-prompt in which no control token is recognised."""
        return tuple(self._inner(text)) if text else ()

    def variants(self, label_id: int) -> tuple[int, ...]:
        """Return the ids, ascending, equal to this one after stripping white space only."""
        return self._vocabulary.variants(label_id)

    def token_text(self, token_id: int) -> str:
        """Return what the token reads as, for people."""
        return self._vocabulary.text(token_id)

    def text(self, ids: Sequence[int]) -> str:
        """Return what the tokens read as together, for people."""
        return self._vocabulary.joined(ids)

    def encode_prompt(self, segments: Sequence[Segment]) -> tuple[int, ...]:
        """Tokenise a prompt as the joint text between control tokens.

        Control tokens are recognised in control segments only. The ids are those of the whole text,
        wherever text and state hold no control token's string.
        """
        ids: list[int] = []
        run: list[str] = []
        cacheable = True
        left: ControlToken | None = None
        for segment in segments:
            if segment.kind is not Kind.CONTROL:
                run.append(segment.text)
                cacheable = cacheable and segment.kind is not Kind.STATE
                continue
            for part in self._split(segment.text):
                if isinstance(part, str):
                    run.append(part)
                    continue
                ids += self._encode_between(left, "".join(run), part, cacheable)
                ids.append(part.id)
                run.clear()
                cacheable, left = True, part
        ids += self._encode_between(left, "".join(run), None, cacheable)
        return tuple(ids)

    def encode_like_engine(self, text: str) -> list[int]:
        """Tokenise as the untouched tokenizer does, every added token recognised, and none put in front."""
        ids = self._model.encode_original(text)
        return list(self.encode_prompt([Segment(Kind.CONTROL, text)])) if ids is None else ids

    def neutralise(self, text: str) -> str:
        """Return the text with each control token's string broken, for engines that tokenise text."""
        normalise = self._model.normalise
        fillers = (char for char in _FILLERS if normalise(f"a{char}b") != normalise("ab"))
        filler = next((char for char in fillers if char not in self.controls), " ")
        text = self.controls.neutralise(text, filler)
        if (normal := normalise(text)) == text:
            return text
        strings = ControlStrings(ControlToken(token.id, normalise(token.text)) for token in self.controls)
        return text if strings.find(normal) is None else strings.neutralise(normal, filler)

    def cached_runs(self) -> int:
        """Return how many texts between control tokens are cached; none of them holds a state."""
        return self._encode_cached.cache_info().currsize

    def _encode_between(
        self, left: ControlToken | None, run: str, right: ControlToken | None, cacheable: bool
    ) -> Sequence[int]:
        """Tokenise the text between two control tokens; None is the prompt's start or end."""
        if left is not None and left.rstrip:
            run = run.lstrip(_SPACES)
        if right is not None and right.lstrip:
            run = run.rstrip(_SPACES)
        if not run:
            return ()
        encode = self._encode_cached if cacheable and len(run) <= _LONGEST_CACHED else self._encode_run
        return encode(run, left is None)

    def _encode_run(self, run: str, leading: bool) -> tuple[int, ...]:
        return tuple(self._model.encode(run, leading=True) if leading else self._inner(run))

    def _inside(self, text: str) -> list[int]:
        return self._model.encode(text, leading=False)
