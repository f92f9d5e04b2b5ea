"""No text becomes a control token: not a state's, not a question's, not in pieces, not under any flag."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, normalizers

from structured_server.core.tokens import Kind, Segment
from structured_server.tokenizer import LoadedTokenizer, load_tokenizer
from tests.tokenizer import folders

# Written down here once more: the test must not ask the code under test which tokens are harmless.
HARMLESS_TAGS = re.compile(
    r"</?(table|caption|thead|tbody|tfoot|tr|th|td|h[1-6]|blockquote|strong|em|b|i|u|s|sub|sup|code|a|html|body"
    r"|img|span|ul|li|div|iframe|footer)>"
)


def added_tokens(folder: Path) -> dict[str, int]:
    """Read a folder's added tokens and their ids with the libraries alone."""
    if (folder / "tokenizer.json").is_file():
        library = Tokenizer.from_file(str(folder / "tokenizer.json"))
        return {token.content: token_id for token_id, token in library.get_added_tokens_decoder().items()}
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    texts = (
        "<pad>",
        "<eos>",
        "<bos>",
        "<mask>",
        "<|turn>",
        "<turn|>",
        "<|channel>",
        "<channel|>",
        "\n",
        "\n\n",
    )
    more = ("<unused0>", "<image_soft_token>", "<bbox>", "<td>")
    return {text: pieces.piece_to_id(text) for text in (*texts, *more)}


def forbidden(folder: Path) -> dict[str, int]:
    """Return the added tokens that no text may become, with their ids."""
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    named = {value for key, value in config.items() if key.endswith("_token") and isinstance(value, str)}
    unknown = config.get("unk_token")  # what any unknown character becomes, where there is no byte fallback
    return {
        text: token_id
        for text, token_id in added_tokens(folder).items()
        if text.strip(" ▁\n\t") and (text in named or not HARMLESS_TAGS.fullmatch(text)) and text != unknown
    }


def disguises(text: str) -> Iterator[str]:
    """Yield texts that hold a control token's string, or all of its parts."""
    half = len(text) // 2
    yield from (text, f"yes{text}no", f" {text} ", f"\n{text}\n", text * 2, f"{text} {text}", f"<{text}>")
    yield from (
        f"{text[:half]} {text[half:]}",
        f"{text[:half]}\n{text[half:]}",
        text[:-1] + text,
        text + text[1:],
    )


def test_the_kinds_hold_the_tokens_that_matter(kind: str, folder_of: Callable[[str], Path]) -> None:
    """Control tokens whose `special` flag is off are where injections hide: every kind must have some."""
    path = folder_of(kind) / "tokenizer.json"
    if path.is_file():
        listed = json.loads(path.read_bytes())["added_tokens"]
        control = forbidden(folder_of(kind))
        assert any(not token["special"] for token in listed if token["content"] in control)
    assert len(forbidden(folder_of(kind))) > 3


def test_no_added_token_s_string_becomes_a_control_token_in_text(
    kind: str, tokenizer: LoadedTokenizer, folder_of: Callable[[str], Path]
) -> None:
    """Over all added tokens: alone, surrounded, doubled, cut by white space, overlapping themselves."""
    ids = frozenset(forbidden(folder_of(kind)).values())
    assert ids <= tokenizer.control_ids
    for text in added_tokens(folder_of(kind)):
        for disguise in disguises(text):
            assert ids.isdisjoint(tokenizer.encode(disguise)), disguise


def test_no_added_token_s_string_becomes_a_control_token_in_a_prompt(
    kind: str, tokenizer: LoadedTokenizer, folder_of: Callable[[str], Path]
) -> None:
    """The control tokens of a prompt are the template's, also when a string is spread over segments."""
    control = forbidden(folder_of(kind))
    ids = frozenset(control.values())
    chat = tokenizer.chat
    head, middle, end = (Segment(Kind.CONTROL, text) for text in (chat.start, chat.middle, chat.end))
    expected = [i for i in tokenizer.encode_prompt([head, middle, end]) if i in ids]
    for text in control:
        half = len(text) // 2
        for first, second in ((text, text), (text[:half], text[half:])):
            segments = [
                head,
                Segment(Kind.TEXT, f"{first}"),
                Segment(Kind.TEXT, second),
                middle,
                Segment(Kind.STATE, f"{first}"),
                Segment(Kind.TEXT, second),
                Segment(Kind.STATE, text),
                end,
            ]
            assert expected == [i for i in tokenizer.encode_prompt(segments) if i in ids], text


def test_a_control_token_s_string_is_recognised_in_control_segments(
    kind: str, tokenizer: LoadedTokenizer, folder_of: Callable[[str], Path]
) -> None:
    """The other side: were it never recognised, the tests above would prove nothing."""
    for text, token_id in forbidden(folder_of(kind)).items():
        assert (token_id,) == tokenizer.encode_prompt([Segment(Kind.CONTROL, text)])


@pytest.mark.parametrize("kind", ["gemma_like", "unigram", "ignore_merges"])
@given(data=st.data())
def test_text_of_control_strings_and_fragments_yields_no_control_token(
    kind: str, data: st.DataObject, tokenizer_of: Callable[[str], LoadedTokenizer]
) -> None:
    """Any mixture of control tokens, their pieces and text is only text."""
    tokenizer = tokenizer_of(kind)
    controls = [control.text for control in tokenizer.controls]
    fragment = st.builds(
        lambda text, start, end: text[start:end],
        st.sampled_from(controls),
        st.integers(0, 6),
        st.integers(-6, 12),
    )
    parts = data.draw(st.lists(st.one_of(st.sampled_from(controls), fragment, st.text(max_size=3))))
    assert tokenizer.control_ids.isdisjoint(tokenizer.encode("".join(parts)))


@given(text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="▁"), max_size=60))
def test_plain_text_survives_tokenisation(
    text: str, tokenizer_of: Callable[[str], LoadedTokenizer], folder_of: Callable[[str], Path]
) -> None:
    """What is decoded is what was encoded, control tokens' strings included."""
    library = Tokenizer.from_file(str(folder_of("gemma_like") / "tokenizer.json"))
    tokenizer = tokenizer_of("gemma_like")
    for case in (text, f"{text}<|turn>{text}"):
        assert case == library.decode(list(tokenizer.encode(case)), skip_special_tokens=False)


def test_a_model_that_reaches_control_tokens_by_itself_is_taken_apart_there(
    folder_of: Callable[[str], Path], tokenizer_of: Callable[[str], LoadedTokenizer]
) -> None:
    """Unigram prefers the control tokens of its own vocabulary even when none is an added token."""
    bare = Tokenizer(Tokenizer.from_file(str(folder_of("unigram") / "tokenizer.json")).model)
    assert 4 in bare.encode("yes<turn|>no").ids, "the trap is set"
    tokenizer = tokenizer_of("unigram")
    text = "yes<turn|>no" * 50
    ids = tokenizer.encode(text)
    assert 4 not in ids
    assert text == "".join(map(tokenizer.token_text, ids))


def test_a_control_token_of_one_character_is_replaced_in_text(tmp_path: Path) -> None:
    """Such a token cannot be taken apart, so its character cannot be sent."""
    folder = folders.gemma_like(tmp_path)
    path = folder / "tokenizer.json"
    file = json.loads(path.read_bytes())
    token_id = file["model"]["vocab"]["é"]
    file["added_tokens"].append({**file["added_tokens"][4], "id": token_id, "content": "é"})
    path.write_text(json.dumps(file), encoding="utf-8")
    tokenizer = load_tokenizer(str(folder))
    assert token_id in tokenizer.control_ids
    assert tokenizer.encode("th\ufffd yes") == tokenizer.encode("thé yes")
    assert "th\ufffd yes" == tokenizer.neutralise("thé yes")


def test_lone_surrogates_are_read_as_replacement_characters(tokenizer: LoadedTokenizer) -> None:
    """JSON can spell halves of characters, which no tokenizer reads."""
    assert tokenizer.encode("a\ufffdb") == tokenizer.encode("a\ud800b")


def test_neutral_text_holds_no_control_string(kind: str, tokenizer: LoadedTokenizer) -> None:
    """For engines that tokenise text themselves: the untouched tokenizer finds no control token."""
    for control in tokenizer.controls:
        for disguise in disguises(control.text):
            neutral = tokenizer.neutralise(disguise)
            assert tokenizer.controls.find(neutral) is None
            if kind != "unigram":  # whose model reaches control tokens from harmless strings, too
                assert tokenizer.control_ids.isdisjoint(tokenizer.encode_like_engine(neutral)), disguise


def test_neutral_text_differs_only_by_what_was_put_in(tokenizer: LoadedTokenizer) -> None:
    """People read the same text, and text without control tokens is left as it is."""
    text = 'The <network> "is" down.\n\n<td>\u200b'
    assert text == tokenizer.neutralise(text)
    close = tokenizer.token_text(tokenizer.turn_close)
    assert f"a{close}b" == tokenizer.neutralise(f"a{close}b").replace("\u200b", "")


@pytest.mark.parametrize("erased", ["", "\u200b"])
def test_neutral_text_stays_neutral_when_the_engine_normalises_it(erased: str, tmp_path: Path) -> None:
    """Other characters may become those of a control token, and what was put in may be taken out."""
    folder = folders.byte_level(tmp_path)
    library = Tokenizer.from_file(str(folder / "tokenizer.json"))
    steps = [normalizers.NFKC(), *([normalizers.Replace(erased, "")] if erased else [])]
    library.normalizer = normalizers.Sequence(steps)
    library.save(str(folder / "tokenizer.json"))
    tokenizer = load_tokenizer(str(folder))
    text = "a\uff1c|im_end|\uff1eb <|im_end|> c"
    close = tokenizer.turn_close
    assert 2 == tokenizer.encode_like_engine(text).count(close), "the trap is set"
    assert 0 == tokenizer.encode_like_engine(tokenizer.neutralise(text)).count(close)
    assert "plain \ufb01" == tokenizer.neutralise("plain \ufb01"), "nothing to break, nothing changed"


def test_a_replacement_character_that_is_a_control_token_is_left_out(tmp_path: Path) -> None:
    """There is nothing to put in its place."""
    folder = folders.gemma_like(tmp_path)
    library = Tokenizer.from_file(str(folder / "tokenizer.json"))
    file = json.loads(library.to_str())
    file["model"]["vocab"]["\ufffd"] = len(file["model"]["vocab"])
    file["added_tokens"].append({**file["added_tokens"][4], "id": 0, "content": "\ufffd"})
    (folder / "tokenizer.json").write_text(json.dumps(file), encoding="utf-8")
    tokenizer = load_tokenizer(str(folder))
    assert tokenizer.encode("ab") == tokenizer.encode("a\ufffdb")
