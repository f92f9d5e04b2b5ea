"""Bodies that both the OpenAPI document and the server refuse, and bodies that both accept."""

from __future__ import annotations

from typing import Any

Body = Any
Named = dict[str, Body]

NOUL = {"type": "noul", "instructions": "Is it urgent?"}
CHOICE = {"type": "choice", "instructions": "Which team?", "criteria": {"storage": None, "compute": "hosts"}}
SCORE = {"type": "score", "instructions": "How bad?", "criteria": ["none", "minor", "major"]}
PIXEL = "iVBORw0KGgo="
DATA_URL = f"data:image/png;base64,{PIXEL}"


def _but(base: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a body with fields changed; those that become `...` are left out."""
    return {name: value for name, value in (base | changes).items() if value is not ...}


def _decide(question: Any = NOUL, /, **changes: Any) -> dict[str, Any]:
    return _but({"state": "502 spike", "questions": {"q": question}}, **changes)


def _systemone(question: Any = NOUL, /, **changes: Any) -> dict[str, Any]:
    return _but({"model": "jev-latest", "state": "502 spike", "questions": {"q": question}}, **changes)


PREDICATE = {"type": "predicate", "instructions": "It is urgent."}
CHOICES = {"type": "choice", "instructions": "Which?", "choices": [{"value": "storage"}, {"value": True}]}
LEVELS = {"type": "score", "instructions": "How bad?", "levels": [{"label": "none"}, {"label": "major"}]}


def _decisions(question: Any = PREDICATE, /, **changes: Any) -> dict[str, Any]:
    return _but({"model": "dgemma", "input": "502 spike", "questions": [question]}, **changes)


def _options(count: int) -> dict[str, None]:
    return {f"o{index}": None for index in range(count)}


BAD: dict[str, Named] = {
    "/decide": {
        "no object": [],
        "no state": _decide(state=...),
        "state null": _decide(state=None),
        "state a number": _decide(state=7),
        "no questions": _decide(questions=...),
        "no question": _decide(questions={}),
        "questions in a list": _decide(questions=[NOUL]),
        "an empty id": _decide(questions={"": NOUL}),
        "401 questions": _decide(questions={f"q{index}": NOUL for index in range(401)}),
        "an unknown field": _decide(stat="502 spike"),
        "an unknown field of a question": _decide(_but(NOUL, instruction="?")),
        "an unknown type": _decide(_but(NOUL, type="number")),
        "a box": _decide({"type": "box", "instructions": "Where?"}),
        "a question that asks nothing": _decide({"type": "noul"}),
        "a question of blanks": _decide(_but(NOUL, instructions=" \n")),
        "nothing said of either outcome": _decide({"type": "noul", "criteria": {"true": None}}),
        "one option": _decide(_but(CHOICE, criteria=_options(1))),
        "1001 options": _decide(_but(CHOICE, criteria=_options(1001))),
        "an option without a name": _decide(_but(CHOICE, criteria={" ": None, "compute": None})),
        "options in a list": _decide(_but(CHOICE, criteria=["storage", "compute"])),
        "an option that means a number": _decide(_but(CHOICE, criteria={"storage": 1, "compute": None})),
        "levels in a map": _decide(_but(SCORE, criteria={"0": "none", "1": "major"})),
        "one level": _decide(_but(SCORE, criteria=["none"])),
        "27 levels": _decide(_but(SCORE, criteria=[f"level {index}" for index in range(27)])),
        "a level twice": _decide(_but(SCORE, criteria=["none", "major", "none"])),
        "a level that is null": _decide(_but(SCORE, criteria=["none", None])),
        "a level that is a number": _decide(_but(SCORE, criteria=[0, 1])),
        "a threshold above 1": _decide(_but(NOUL, threshold=1.5)),
        "a limit below 0": _decide(_but(NOUL, abstain={"min_label_mass": -0.1})),
        "an empty list of answers": _decide(questions={"q": NOUL, "r": _but(NOUL, ask_if={"q": []})}),
        "samples 0": _decide(read={"samples": 0}),
        "samples 33": _decide(read={"samples": 33}),
        "samples as text": _decide(read={"samples": "4"}),
        "a negative entropy threshold": _decide(read={"entropy_threshold": -0.1}),
        "a negative entropy threshold of one type": _decide(read={"entropy_threshold": {"noul": -1}}),
        "a temperature of 0": _decide(read={"temperature": 0}),
        "a temperature of 0 for one type": _decide(read={"temperature": {"score": 0}}),
        "a temperature above 100": _decide(read={"temperature": {"choice": 101}}),
        "steps 0": _decide(read={"steps": 0}),
        "half a step": _decide(read={"steps": 1.5}),
        "max_reads 0": _decide(read={"max_reads": 0}),
        "an unknown layout": _decide(read={"layout": "sideways"}),
        "read null": _decide(read=None),
        "deadline_ms 0": _decide(deadline_ms=0),
        "deadline_ms true": _decide(deadline_ms=True),
        "nine images": _decide(images=[DATA_URL] * 9),
        "metadata that is no text": _decide(metadata={"tries": 3}),
    },
    "/decide/batch": {
        "no items": _decide(state=...),
        "no item": _decide(state=..., items=[]),
        "a state beside the items": _decide(items=[{"state": "a"}]),
        "an item that is text": _decide(state=..., items=["a"]),
        "an item without a state": _decide(state=..., items=[{"id": "a"}]),
        "an id of 129 characters": _decide(state=..., items=[{"id": "x" * 129, "state": "a"}]),
        "1001 items": _decide(state=..., items=[{"state": "a"}] * 1001),
    },
    "/decide/lint": {
        "no questions": {"state": "502 spike"},
        "a negative count of tokens": _decide(longest_state_tokens=-1),
        "against no questions": _decide(against={"questions": {}}),
    },
    "/v1/systemone": {
        "no object": "502 spike",
        "no model": _systemone(model=...),
        "model null": _systemone(model=None),
        "no state": _systemone(state=...),
        "state null": _systemone(state=None),
        "state a number": _systemone(state=0.5),
        "state true": _systemone(state=True),
        "no questions": _systemone(questions=...),
        "no question": _systemone(questions={}),
        "questions null": _systemone(questions=None),
        "an empty id": _systemone(questions={"": NOUL}),
        "a question that is text": _systemone("Is it urgent?"),
        "an unknown type": _systemone(_but(NOUL, type="bool")),
        "no type": _systemone(_but(NOUL, type=...)),
        "a box": _systemone({"type": "box", "instructions": "Where?"}),
        "a question that asks nothing": _systemone({"type": "noul", "criteria": {}}),
        "instructions that are a number": _systemone(_but(NOUL, instructions=1)),
        "criteria of a noul in a list": _systemone(_but(NOUL, criteria=["yes", "no"])),
        "no criteria": _systemone(_but(CHOICE, criteria=...)),
        "empty criteria": _systemone(_but(CHOICE, criteria={})),
        "options in a list": _systemone(_but(CHOICE, criteria=["storage", "compute"])),
        "1001 options": _systemone(_but(CHOICE, criteria=_options(1001))),
        "levels in a map": _systemone(_but(SCORE, criteria={"none": 0, "major": 1})),
        "no level": _systemone(_but(SCORE, criteria=[])),
        "a level that is null": _systemone(_but(SCORE, criteria=[None, "major"])),
        "an asset of another type": _systemone(assets={"A": {"type": "sound", "data_base64": PIXEL}}),
        "an asset without data": _systemone(assets={"A": {"type": "image", "format": "png"}}),
        "an asset that is text": _systemone(assets={"A": PIXEL}),
        "nine assets": _systemone(
            assets={f"A{n}": {"type": "image", "data_base64": PIXEL} for n in range(9)}
        ),
        "an image without base64": _systemone(images=[{"content_type": "image/png"}]),
        "samples 0": _systemone(samples=0),
        "samples null": _systemone(samples=None),
        "auto_max 0": _systemone(auto_max=0),
        "a negative auto_threshold": _systemone(auto_threshold=-0.5),
        "steps 0": _systemone(steps=0),
        "steps 9": _systemone(steps=9),
        "a negative think": _systemone(think=-1),
        "chunk_rows 7": _systemone(chunk_rows=7),
        "sequential as text": _systemone(sequential="yes"),
        "a seed that is text": _systemone(seed="7"),
        "an unknown isolate": _systemone(isolate="some"),
        "ask for nothing": _systemone(ask=[]),
        "deadline_ms of eleven minutes": _systemone(deadline_ms=660_000),
        "depends_on as text": _systemone(_but(NOUL, depends_on="q")),
    },
    "/v1/decisions": {
        "no model": _decisions(model=...),
        "no input": _decisions(input=...),
        "input null": _decisions(input=None),
        "input an object": _decisions(input={"text": "502 spike"}),
        "an unknown role": _decisions(input=[{"role": "tool", "content": "502 spike"}]),
        "an unknown part": _decisions(input=[{"role": "user", "content": [{"type": "input_file"}]}]),
        "a part without its text": _decisions(input=[{"role": "user", "content": [{"type": "input_text"}]}]),
        "no question": _decisions(questions=[]),
        "401 questions": _decisions(questions=[PREDICATE] * 401),
        "an unknown type": _decisions(_but(PREDICATE, type="noul")),
        "no instructions": _decisions(_but(PREDICATE, instructions=...)),
        "a blank statement": _decisions(_but(PREDICATE, instructions=" ")),
        "a name that is a number": _decisions(_but(PREDICATE, name=1)),
        "one choice": _decisions(_but(CHOICES, choices=[{"value": "storage"}])),
        "a choice that is text": _decisions(_but(CHOICES, choices=["storage", "compute"])),
        "a choice that is a number": _decisions(_but(CHOICES, choices=[{"value": 1}, {"value": 2}])),
        "a choice twice": _decisions(_but(CHOICES, choices=[{"value": True}, {"value": True}])),
        "one level": _decisions(_but(LEVELS, levels=[{"label": "none"}])),
        "a level without a label": _decisions(_but(LEVELS, levels=[{"label": "none"}, {}])),
        "a level of blanks": _decisions(_but(LEVELS, levels=[{"label": " "}, {"label": "major"}])),
        "a System One body without a state": _systemone(state=...),
        "a System One body with state null": _systemone(state=None),
        "both a state and a list of questions": _decisions(state="502 spike"),
    },
    "/v1/chat/completions": {
        "no object": [],
        "no messages": {"model": "dgemma"},
        "no message": {"messages": []},
        "messages that are text": {"messages": ["502 spike"]},
        "a model that is a number": {"model": 7, "messages": [{"role": "user", "content": "502 spike"}]},
    },
}
_CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "502 spike"}]
GOOD: dict[str, Named] = {
    "/decide": {
        "the least": _decide(),
        "an object as the state": _decide(state={"alert": ["502", None, 1.5]}),
        "an empty list as the state": _decide(state=[]),
        "an empty text as the state": _decide(state=""),
        "nothing but what yes means": _decide({"type": "binary", "criteria": {"true": "wake someone"}}),
        "what no means as JSON": _decide({"type": "bool", "criteria": {"false": {}, "true": None}}),
        "a choice without instructions": _decide(_but(CHOICE, instructions=...)),
        "a score with structured levels": _decide(_but(SCORE, criteria=[{"is": "none"}, ["major"], "worst"])),
        "300 options": _decide(_but(CHOICE, criteria=_options(300))),
        "samples and a seed": _decide(read={"samples": 2, "seed": 10**30}),
        "a whole number with a fraction of nothing": _decide(read={"samples": 2.0}, deadline_ms=8000.0),
        "thresholds by type": _decide(read={"entropy_threshold": {"noul": 0.2}, "temperature": {"noul": 2}}),
        "a condition": _decide(questions={"q": NOUL, "r": _but(CHOICE, ask_if={"q": [True, "false"]})}),
        "an image": _decide(images=[DATA_URL]),
        "metadata": _decide(metadata={"trace": "1"}),
    },
    "/decide/batch": {
        "two items": _decide(state=..., items=[{"state": "a", "id": "1"}, {"state": {}}]),
    },
    "/decide/lint": {
        "no state": _decide(state=...),
        "against": _decide(against={"questions": {"q": NOUL}}, longest_state_tokens=500),
    },
    "/v1/systemone": {
        "the least": _systemone(),
        "fields that nobody knows": _systemone(_but(NOUL, colour="red"), provider={"order": []}, user="7"),
        "structured instructions": _systemone(_but(NOUL, instructions={"question": "Is it urgent?"})),
        "criteria on one side": _systemone({"type": "noul", "criteria": {"true": "wake someone"}}),
        "criteria null": _systemone(_but(NOUL, criteria=None)),
        "255 options": _systemone(_but(CHOICE, criteria=_options(255))),
        "lists as meanings": _systemone(_but(CHOICE, criteria={"storage": ["disks"], "compute": {}})),
        "ten levels": _systemone(_but(SCORE, criteria=[f"level {index}" for index in range(10)])),
        "an asset": _systemone(state="see A", assets={"A": {"type": "image", "data_base64": PIXEL}}),
        "an image of the other form": _systemone(images=[{"content_type": "image/png", "base64": PIXEL}]),
        "how to read": _systemone(samples=2, steps=1, isolate="none", chunk_rows=16, seed=-5),
        "one read after another": _systemone(sequential=True, auto_max=2, auto_threshold=0.5),
        "some of the questions": _systemone(questions={"q": NOUL, "r": SCORE}, ask=["r"]),
    },
    "/v1/decisions": {
        "the least": _decisions(),
        "all types": _decisions(questions=[PREDICATE, CHOICES, _but(LEVELS, name="anger")]),
        "a conversation": _decisions(
            input=[
                {"role": "user", "content": "502 spike"},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hm."}]},
                {"type": "function_call", "name": "logs", "arguments": "{}"},
                {"type": "function_call_output", "output": "none"},
            ]
        ),
        "JSON and an image": _decisions(
            input=[
                {
                    "role": "user",
                    "content": [
                        {"type": "input_json", "data": {"plan": "pro"}},
                        {"type": "input_image", "image_url": DATA_URL},
                    ],
                }
            ]
        ),
        "a System One body": _systemone(),
    },
    "/v1/chat/completions": {
        "what an engine writes": {"messages": _CHAT, "temperature": 0.2, "max_tokens": 5},
        "more digits than an engine counts with": {"messages": _CHAT, "user": 2**70},
    },
}
