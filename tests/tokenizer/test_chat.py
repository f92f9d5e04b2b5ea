"""Chat templates: their format is learnt, and those that cannot be followed are refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from structured_server.core.tokens import ChatFormat
from structured_server.errors import TokenizerError
from structured_server.tokenizer import LoadedTokenizer, load_tokenizer
from structured_server.tokenizer.chat import learn_format, learn_thinking, learn_turn_close
from structured_server.tokenizer.control import ControlStrings, ControlToken
from structured_server.tokenizer.template import ChatTemplate, TemplateRefused
from tests.tokenizer import folders

SIMPLE = (
    "{% for m in messages %}<{{ m.role }}>{{ CONTENT }}</>{% endfor %}"
    "{% if add_generation_prompt %}<model>{% endif %}"
)


def template(content: str = "m.content", around: str = SIMPLE) -> ChatTemplate:
    """Make a template that treats contents in its own way."""
    return ChatTemplate(around.replace("CONTENT", content), {"bos_token": "<bos>"})


def test_the_format_of_a_plain_template_is_what_it_puts_around_messages() -> None:
    """Nothing else is learnt."""
    expected = ChatFormat("<system>", "</><user>", "</><model>", "<user>", strips=False)
    assert expected == learn_format(template())


def test_a_template_that_trims_is_seen_to_strip() -> None:
    """Both ways of writing it are the same."""
    assert learn_format(template("m.content | trim")).strips
    assert learn_format(template("m.content.strip()")).strips


def test_a_template_that_refuses_or_ignores_system_messages_has_their_text_folded() -> None:
    """It then heads the user's message, two newlines before that text."""
    refusing = template("raise_exception('no system') if m.role == 'system' else m.content")
    ignoring = ChatTemplate(
        SIMPLE.replace("CONTENT", "m.content").replace("messages %}", "messages if m.role != 'system' %}"), {}
    )
    for each in (refusing, ignoring):
        assert ChatFormat("<user>", "\n\n", "</><model>", "<user>", strips=False) == learn_format(each)


def test_a_default_system_message_belongs_to_the_format_without_one() -> None:
    """Some templates speak for themselves when nobody else does."""
    chat = learn_format(ChatTemplate(folders.CHATML_TEMPLATE, {}))
    assert "<|im_start|>system\n" == chat.start
    assert "<|im_start|>system\nYou are terse.<|im_end|>\n<|im_start|>user\n" == chat.start_user


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("'fixed'", "drops, changes or reorders the user message's content"),
        ("m.content | e", "drops, changes or reorders the user message's content"),
        ("m.content | upper", "drops, changes or reorders the user message's content"),
        ("m.content | tojson", "drops, changes or reorders the user message's content"),
        ("m.content.split() | join(' ')", "drops, changes or reorders the user message's content"),
        ("m.content ~ m.content", "repeats the user message's content"),
        ("m.content.lstrip()", "strips only some of the white space around the user message's content"),
        ("m.content.strip(' ')", "strips only some of the white space around the user message's content"),
        ("raise_exception('not you')", "refuses a conversation of user: TemplateError: not you"),
        ("m.nothing.at.all", "refuses a conversation of user: UndefinedError"),
        (
            "m.content | upper if m.role == 'system' else m.content",
            "drops, changes or reorders the system message's content",
        ),
        (
            "m.content.strip() if messages | length == 1 else m.content",
            "only with, or only without, a system message",
        ),
    ],
)
def test_a_template_that_changes_contents_is_refused(content: str, message: str) -> None:
    """Prompts made of segments could not follow it; the message says what it does."""
    with pytest.raises(TokenizerError) as error:
        learn_format(template(content))
    assert message in error.value.message


def test_a_template_that_reorders_messages_is_refused() -> None:
    """The core puts the system text first."""
    reordering = ChatTemplate(
        SIMPLE.replace("in messages", "in messages | reverse").replace("CONTENT", "m.content"), {}
    )
    with pytest.raises(TokenizerError, match="drops, changes or reorders the user"):
        learn_format(reordering)


def test_a_template_whose_end_depends_on_the_system_message_is_refused() -> None:
    """There is one end in a chat format."""
    source = SIMPLE.replace("CONTENT", "m.content").replace(
        "<model>", "{{ '<think>' if messages | length == 2 else '' }}"
    )
    with pytest.raises(TokenizerError, match="ends a prompt differently after a system message"):
        learn_format(ChatTemplate(source, {}))


def test_the_turn_close_is_the_first_control_token_after_the_model_s_words() -> None:
    """Whatever text stands before it."""
    controls = ControlStrings([ControlToken(7, "</>"), ControlToken(8, "<user>")])
    assert ControlToken(7, "</>") == learn_turn_close(template(), controls)
    with pytest.raises(
        TokenizerError, match="ends the assistant's message with '</>', in which there is no control"
    ):
        learn_turn_close(template(), ControlStrings([ControlToken(8, "<user>")]))


def test_templates_have_what_transformers_gives_them(oracle_of: Callable[[str], Any]) -> None:
    """Loop controls, generation blocks, JSON unescaped, dates, and the special tokens by name."""
    source = """{{ bos_token }}
    {%- for m in messages -%}
      {%- if loop.index == 3 %}{% break %}{% endif -%}
      {% generation %}[{{ m.content }}]{% endgeneration %}
    {%- endfor %}
    {{ {'a': '<é>', 'b': [1, 2.5, true, none]} | tojson }} {{ ['x'] | tojson(indent=2) }}
    {{ strftime_now('%Y-%m-%d') }} {{ enable_thinking }} {{ tools is none }} {{ documents is none }}
    {%- set ns = namespace(n=0) -%}{% set ns.n = 3 %}{{ ns.n }} {{ pad_token }} {{ undefined_name }}
    {% if add_generation_prompt %}
    reply
    {% endif %}"""
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]
    expected = oracle_of("gemma_like").apply_chat_template(
        messages, chat_template=source, tokenize=False, add_generation_prompt=True, enable_thinking=False
    )
    assert expected == ChatTemplate(source, folders.SPECIAL).render(messages, reply=True)


def test_a_template_runs_in_a_sandbox() -> None:
    """Templates are programs of strangers."""
    for source in (
        "{{ ''.__class__.__mro__ }}{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
    ):
        with pytest.raises(TemplateRefused, match="SecurityError"):
            ChatTemplate(source, {}).render([], reply=True)


def test_a_template_with_wrong_syntax_is_refused_by_line() -> None:
    """The message says where."""
    with pytest.raises(TokenizerError, match="line 2 of the chat template is not Jinja"):
        ChatTemplate("ok\n{% for %}", {})


def test_the_thought_block_is_found_where_the_vocabulary_has_a_channel(
    tmp_path: Path, tokenizer_of: Callable[[str], LoadedTokenizer]
) -> None:
    """It stands in the prompt where the template puts it there, and otherwise is left to the canvas."""
    in_prompt = tokenizer_of("gemma_like")
    thought = "<|channel>thought\n<channel|>"
    assert thought == "".join(map(in_prompt.token_text, in_prompt.scaffold))
    assert in_prompt.scaffold_in_prompt

    source = folders.GEMMA_4_TEMPLATE.replace("<|channel>thought\\n<channel|>", "")
    in_canvas = load_tokenizer(str(folders.gemma_like(tmp_path, source)))
    assert in_prompt.scaffold == in_canvas.scaffold
    assert not in_canvas.scaffold_in_prompt

    without = tokenizer_of("byte_level")
    assert ((), False) == (without.scaffold, without.scaffold_in_prompt)


def test_the_format_of_a_thinking_prompt_is_the_templates(
    tmp_path: Path, tokenizer_of: Callable[[str], LoadedTokenizer], oracle_of: Callable[[str], Any]
) -> None:
    """There the empty thought block is left out: the model writes one that is not."""
    tokenizer = tokenizer_of("gemma_like")
    thinking = tokenizer.thinking
    assert thinking is not None
    assert f"{thinking.end}<|channel>thought\n<channel|>" == tokenizer.chat.end
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": " So? "}]
    expected = oracle_of("gemma_like").apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True, enable_thinking=True
    )
    assert expected == f"{thinking.start}Be brief.{thinking.middle}So?{thinking.end}"
    assert thinking.strips

    source = folders.GEMMA_4_TEMPLATE.replace("not enable_thinking | default(false)", "true")
    heedless = load_tokenizer(str(folders.gemma_like(tmp_path, source)))
    assert heedless.thinking is None
    assert tokenizer_of("byte_level").thinking is None


@pytest.mark.parametrize(
    "source",
    [
        SIMPLE.replace("CONTENT", "m.content if not enable_thinking else m.content | upper"),
        SIMPLE.replace("CONTENT", "m.content")
        + "{% if enable_thinking %}{{ raise_exception('no') }}{% endif %}",
        SIMPLE.replace("CONTENT", "m.content")
        + "{% if enable_thinking %}{{ messages[0].content }}{% endif %}",
    ],
    ids=["changes contents", "refuses", "repeats contents"],
)
def test_a_template_that_cannot_be_told_to_think_is_no_thinking_one(source: str) -> None:
    """Prompts without thoughts are not affected."""
    assert isinstance(learn_format(ChatTemplate(source, {})), ChatFormat)
    assert learn_thinking(ChatTemplate(source, {})) is None


def test_special_ids_come_from_the_files(tokenizer_of: Callable[[str], LoadedTokenizer]) -> None:
    """Turn close, padding and mask are read from template and configuration."""
    expected = {
        "gemma_like": ("<turn|>", "<eos>", "<mask>"),
        "byte_level": ("<|im_end|>", "<|im_end|>", "<|mask|>"),
        "sentencepiece_bpe": ("<turn|>", "<eos>", "<mask>"),
        "unigram": ("<turn|>", "</s>", None),
    }
    for kind, names in expected.items():
        tokenizer = tokenizer_of(kind)
        ids = (tokenizer.turn_close, tokenizer.padding, tokenizer.mask)
        assert names == tuple(None if i is None else tokenizer.token_text(i) for i in ids)


def test_the_real_tokenizer_has_gemma_3_s_format(tokenizer_of: Callable[[str], LoadedTokenizer]) -> None:
    """Pinned, so that a change of libraries or files is seen."""
    tokenizer = tokenizer_of("gemma")
    start = "<bos><start_of_turn>user\n"
    end = "<end_of_turn>\n<start_of_turn>model\n"
    assert ChatFormat(start, "\n\n", end, start, strips=True) == tokenizer.chat
    assert (106, 106, 4) == (tokenizer.turn_close, tokenizer.padding, tokenizer.mask)
    assert (262_145, 255_472) == (tokenizer.vocabulary_size, len(tokenizer.noise_ids))
    assert 13 == len(tokenizer.encode('{"urgent":"yes","team":"networking","severity":"critical"}'))
