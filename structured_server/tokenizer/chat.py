"""Learning a chat template's format: what it puts around a system and a user message.

The template is rendered with contents that occur nowhere in it, and its text is what stands around
them. Prompts are then built without it, of typed segments.
"""

from __future__ import annotations

from collections.abc import Sequence

from structured_server.core.tokens import ChatFormat
from structured_server.errors import TokenizerError
from structured_server.tokenizer.control import ControlStrings, ControlToken
from structured_server.tokenizer.template import ChatTemplate, Message, TemplateRefused

# What a template could drop, escape or change is in them; white space around contents is tried apart.
_SYSTEM = 'Alpha system "quoted" {<&\\>} it\'s\n\n  é 😀 Z.'
_USER = 'Bravo user "quoted" {<&\\>} it\'s\n\n  é 😀 Y.'
_REPLY = "Charlie reply X."
_BEFORE, _AFTER = " \t\n\u3000", "\u3000\r\n\t "  # all of it is white space to str.strip, as to jinja's trim

FOLDED = "\n\n"  # between system and user text where the template knows no system message


def learn_format(template: ChatTemplate) -> ChatFormat:
    """Return the control text around the messages of a prompt.

    A template that refuses or ignores a system message gets its text at the head of the user's.

    Raises:
        TokenizerError: the template does something else with contents than to put text around them.
    """
    start_user, end = _pieces(_render(template, [_user(_USER)]), ("user", _USER))
    strips = _strips(template, [], "user", _USER, start_user, end)
    try:
        with_system = template.render([_system(_SYSTEM), _user(_USER)], reply=True)
    except TemplateRefused:
        with_system = None
    if with_system is None or with_system == f"{start_user}{_USER}{end}":
        return ChatFormat(start=start_user, middle=FOLDED, end=end, start_user=start_user, strips=strips)
    start, middle, end_after_system = _pieces(with_system, ("system", _SYSTEM), ("user", _USER))
    if end_after_system != end:
        raise TokenizerError(
            "the chat template ends a prompt differently after a system message:"
            f" {end_after_system[-80:]!r} instead of {end[-80:]!r}"
        )
    if strips != _strips(template, [_system(_SYSTEM)], "user", _USER, f"{start}{_SYSTEM}{middle}", end):
        raise TokenizerError(
            "the chat template strips a user message only with, or only without, a system message"
        )
    return ChatFormat(start=start, middle=middle, end=end, start_user=start_user, strips=strips)


def learn_thinking(template: ChatTemplate) -> ChatFormat | None:
    """Return the control text around the messages of a prompt whose model is to think first.

    None where the template puts no fixed text around them then, or takes no notice of the wish.
    """
    messages = [_system(_SYSTEM), _user(_USER)]
    try:
        rendered = template.render(messages, reply=True, thinking=True)
        if rendered == template.render(messages, reply=True):
            return None
        start, middle, end = _pieces(rendered, ("system", _SYSTEM), ("user", _USER))
        padded = template.render(
            [_system(_SYSTEM), _user(f"{_BEFORE}{_USER}{_AFTER}")], reply=True, thinking=True
        )
    except (TemplateRefused, TokenizerError):
        return None
    strips = padded == rendered
    return ChatFormat(start=start, middle=middle, end=end, start_user=start, strips=strips)


def learn_turn_close(template: ChatTemplate, controls: ControlStrings) -> ControlToken:
    """Return the control token that follows the content of the model's own message.

    Raises:
        TokenizerError: the template does not end that message with a control token.
    """
    rendered = _render(template, [_user(_USER), {"role": "assistant", "content": _REPLY}], reply=False)
    _, _, tail = _pieces(rendered, ("user", _USER), ("assistant", _REPLY))
    if (found := controls.find(tail)) is None:
        raise TokenizerError(
            f"the chat template ends the assistant's message with {tail[:80]!r}, in which there is no control"
            " token: the tokenizer's added tokens should list the one that ends a turn"
        )
    return found[1]


def _system(content: str) -> Message:
    return {"role": "system", "content": content}


def _user(content: str) -> Message:
    return {"role": "user", "content": content}


def _render(template: ChatTemplate, messages: Sequence[Message], *, reply: bool = True) -> str:
    try:
        return template.render(messages, reply=reply)
    except TemplateRefused as error:
        roles = " and ".join(message["role"] for message in messages)
        raise TokenizerError(f"the chat template refuses a conversation of {roles}: {error}") from error


def _pieces(rendered: str, *contents: tuple[str, str]) -> list[str]:
    """Take a rendered conversation apart around its contents, given as (role, content) in order."""
    pieces = []
    for role, content in contents:
        if rendered.count(content) != 1:
            what = "repeats" if content in rendered else "drops, changes or reorders"
            raise TokenizerError(
                f"the chat template {what} the {role} message's content: it must hold it as it is"
            )
        before, _, rendered = rendered.partition(content)
        pieces.append(before)
    return [*pieces, rendered]


def _strips(
    template: ChatTemplate, head: Sequence[Message], role: str, content: str, start: str, end: str
) -> bool:
    """Return whether the template strips white space around a message's content."""
    padded = f"{_BEFORE}{content}{_AFTER}"
    rendered = _render(template, [*head, {"role": role, "content": padded}])
    if rendered == f"{start}{padded}{end}":
        return False
    if rendered == f"{start}{content}{end}":
        return True
    raise TokenizerError(
        f"the chat template strips only some of the white space around the {role} message's content:"
        " it must keep all of it or strip it as Jinja's trim does"
    )
