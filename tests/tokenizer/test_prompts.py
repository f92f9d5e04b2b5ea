"""Prompts made of segments have the ids that transformers gives to the rendered chat template."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import sentencepiece

from structured_server.core.tokens import ChatFormat, Kind, Segment
from structured_server.tokenizer import LoadedTokenizer, load_tokenizer
from tests.tokenizer import folders

STATES = {
    "plain": "The network is down.",
    "starts with a space": " the network",
    "ends with a space": "the network ",
    "spaces around": "   the network   ",
    "starts with newlines": "\n\n\nthe network",
    "ends with a newline": "the network\n",
    "tabs around": "\tthe\t\tnetwork\t",
    "unusual white space around": "\u3000\xa0\r\nthe network\x1f\u2003",
    "a quote": '"the network"',
    "braces": '{"alert": {"a": [1, "b"]}}',
    "an apostrophe": "'s network isn't I'm",
    "non-ASCII": "é café Größe 北京",
    "non-ASCII white inside": "a\u2003b\u00a0c\u200bd",
    "emoji": "😀 down 👩‍👩‍👧 🫨",
    "runs of white space": "a  b   c\n\nd\n\n\n\ne\t\tf",
    "tags": "<table><td>a</td> <b>c</b> <s>x</s></table>\n<td>",
    "almost a control token": "<|turn <turn| > <|im_end| > <start_of_turn > < eos>",
    "very long": 'line "é" 北京 {x: 1}\n\n' * 2000,
    "white space only": " \n\t ",
    "empty": "",
}
SYSTEMS = {"without system": None, "with system": 'Answer in one word.\n\n- yes\n- no {"a": "é"}'}
FOLDED = ("unigram",)  # its template refuses system messages
WITH_ORACLE = ("gemma_like", "byte_level", "ignore_merges", "unigram", "sentencepiece_bpe", "gemma")


def prompt(chat: ChatFormat, system: str | None, state: str) -> list[Segment]:
    """Build a conversation as the core does."""
    state = state.strip() if chat.strips else state
    head = [Segment(Kind.CONTROL, chat.start_user)]
    if system is not None:
        head = [
            Segment(Kind.CONTROL, chat.start),
            Segment(Kind.TEXT, system),
            Segment(Kind.CONTROL, chat.middle),
        ]
    return [*head, Segment(Kind.STATE, state), Segment(Kind.CONTROL, chat.end)]


def conversation(system: str | None, state: str, *, folded: bool) -> list[dict[str, str]]:
    """Return the messages of the same conversation; a template that refuses system messages has it folded."""
    if system is None:
        return [{"role": "user", "content": state}]
    if folded:
        return [{"role": "user", "content": f"{system}\n\n{state.strip()}"}]
    return [{"role": "system", "content": system}, {"role": "user", "content": state}]


def ids_of_transformers(oracle: Any, messages: Sequence[dict[str, str]]) -> list[int]:
    """Tokenise a conversation with transformers alone."""
    ids: list[int] = oracle.apply_chat_template(
        messages, tokenize=True, add_generation_prompt=True, return_dict=False, enable_thinking=False
    )
    return ids


def cases() -> Iterator[object]:
    """Combine kinds of tokenizer, states and system texts."""
    for kind, (name, state), (how, system) in product(WITH_ORACLE, STATES.items(), SYSTEMS.items()):
        if kind == "unigram" and "<s>" in state:
            continue  # a control token in this vocabulary: the ids differ, on purpose
        if kind in FOLDED and system is not None and not state.strip():
            continue  # the template would strip what joins the two texts
        yield pytest.param(kind, state, system, id=f"{kind}, {name}, {how}")


@pytest.mark.parametrize(("kind", "state", "system"), list(cases()))
def test_prompt_ids_are_those_of_the_chat_template_in_transformers(
    kind: str,
    state: str,
    system: str | None,
    tokenizer_of: Callable[[str], LoadedTokenizer],
    oracle_of: Callable[[str], Any],
) -> None:
    """Whatever a state begins or ends with, its seams are those of the joint text."""
    tokenizer, oracle = tokenizer_of(kind), oracle_of(kind)

    expected = ids_of_transformers(oracle, conversation(system, state, folded=kind in FOLDED))

    assert expected == list(tokenizer.encode_prompt(prompt(tokenizer.chat, system, state)))


@pytest.mark.parametrize("kind", WITH_ORACLE)
def test_a_text_that_follows_the_state_is_joined_to_it(
    kind: str, tokenizer_of: Callable[[str], LoadedTokenizer], oracle_of: Callable[[str], Any]
) -> None:
    """Questions after the state are tokenised together with it, as the layout `document_first` needs."""
    tokenizer = tokenizer_of(kind)
    chat = tokenizer.chat
    for state, text in (("the net", "work is"), ("x\n", "\n\nthe"), ("a ", " b"), ("caf", "é"), ("", "yes")):
        segments = [
            Segment(Kind.CONTROL, chat.start_user),
            Segment(Kind.STATE, state),
            Segment(Kind.TEXT, text),
            Segment(Kind.CONTROL, chat.end),
        ]
        expected = ids_of_transformers(oracle_of(kind), [{"role": "user", "content": state + text}])
        assert expected == list(tokenizer.encode_prompt(segments))


@pytest.mark.parametrize("kind", WITH_ORACLE)
def test_the_original_ids_are_those_of_transformers(
    kind: str, tokenizer_of: Callable[[str], LoadedTokenizer], oracle_of: Callable[[str], Any]
) -> None:
    """Text full of control tokens is read as the engine reads it, for the comparison with `/tokenize`."""
    tokenizer, oracle = tokenizer_of(kind), oracle_of(kind)
    controls = " and\n".join(control.text for control in [*tokenizer.controls][:200])
    for text in (*STATES.values(), controls, f"yes {controls}no"):
        assert oracle.encode(text, add_special_tokens=False) == tokenizer.encode_like_engine(text)


def test_a_sentencepiece_model_gives_the_ids_of_its_own_library(
    folder_of: Callable[[str], Path], tokenizer_of: Callable[[str], LoadedTokenizer]
) -> None:
    """Text after a control symbol has no dummy prefix and is not trimmed."""
    tokenizer = tokenizer_of("sentencepiece_unigram")
    library = sentencepiece.SentencePieceProcessor(
        model_file=str(folder_of("sentencepiece_unigram") / "tokenizer.model")
    )
    for state in STATES.values():
        ours = tokenizer.encode_prompt(prompt(tokenizer.chat, None, state))
        rendered = "".join(segment.text for segment in prompt(tokenizer.chat, None, state))
        # <bos> is a control piece, which the library does not read from text.
        expected = library.encode(rendered.removeprefix("<bos>"))
        assert [2, *expected[1:]] == list(ours), state
        assert library.id_to_piece(expected[0]) == "▁", "the dummy prefix at the very start"


def test_text_at_the_start_of_a_prompt_gets_the_prefix_that_text_inside_does_not(
    tokenizer_of: Callable[[str], LoadedTokenizer],
) -> None:
    """`prepend_scheme: first` and SentencePiece's dummy prefix concern the start only."""
    for kind in ("unigram", "sentencepiece_unigram"):
        tokenizer = tokenizer_of(kind)
        start = tokenizer.encode_prompt([Segment(Kind.TEXT, "yes")])
        assert " yes" == "".join(map(tokenizer.token_text, start))
        assert "yes" == "".join(map(tokenizer.token_text, tokenizer.encode("yes")))


def test_a_control_token_swallows_the_white_space_that_its_flags_name(
    tokenizer_of: Callable[[str], LoadedTokenizer],
) -> None:
    """`lstrip` takes it off the text before the token, `rstrip` off the text after it, as in the whole."""
    tokenizer = tokenizer_of("byte_level")
    texts = ("a \u2003\n<|mask|> b", " <|mask|>", "<|im_start|>  \t<|mask|>\n", "a <|image_pad|> \xa0\n b")
    for text in texts:
        ids = tokenizer.encode_prompt([Segment(Kind.CONTROL, text)])
        assert tokenizer.encode_like_engine(text) == list(ids)


def test_legacy_gives_each_text_after_a_control_token_a_prefix(tmp_path: Path) -> None:
    """`legacy: true` in the configuration is transformers' word for it."""
    folder = folders.sentencepiece_unigram(tmp_path)
    config = folder / "tokenizer_config.json"
    config.write_text(config.read_text().replace("{", '{"legacy": true, ', 1))
    assert " yes" == "".join(
        map(load_tokenizer(str(folder)).token_text, load_tokenizer(str(folder)).encode("yes"))
    )


def test_runs_without_state_are_cached_and_those_with_state_are_not(
    tokenizer_of: Callable[[str], LoadedTokenizer],
) -> None:
    """States are many and private: none stays in memory."""
    tokenizer = tokenizer_of("gemma_like")
    before = tokenizer.cached_runs()
    for _ in range(2):
        tokenizer.encode_prompt(
            prompt(tokenizer.chat, "A system text seen nowhere else.", "A state seen nowhere else.")
        )
    assert before + 1 == tokenizer.cached_runs()
