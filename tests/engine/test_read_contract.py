"""The read contract, row by row, against the real server: what the vLLM backend relies on or must check.

A read is one denoise step over a seeded canvas, sent to `POST /v1/completions` as token ids. When vLLM is
updated, the tests that fail here are the list of what to reconsider in the backend.
"""

from __future__ import annotations

import math
import time
from typing import Any

import httpx
import pytest

from tests.engine.reads import IDS, PROMPT, SEED, WIDTH, Post, Row, draw, read, refusal, rows, seeded
from tests.engine.server import CANVAS, MAX_MODEL_LEN


class TestReply:
    """One row a canvas position, exact over the whole vocabulary."""

    def test_a_read_gives_one_row_a_position_and_finishes_by_length(self, post: Post) -> None:
        reply = post(read())
        assert len(rows(reply)) == WIDTH
        assert reply.json()["choices"][0]["finish_reason"] == "length"
        assert reply.json()["usage"]["prompt_tokens"] == len(PROMPT)

    def test_a_row_holds_the_argmax_and_every_id_asked_for(self, plain: list[Row], post: Post) -> None:
        tokens = post(read()).json()["choices"][0]["logprobs"]["tokens"]
        for token, row in zip(tokens, plain, strict=True):
            best = int(token.removeprefix("token_id:"))
            assert {best, *IDS} == set(row)
            assert best == max(row, key=lambda i: row[i])

    def test_ids_replace_the_top_k(self, plain: list[Row], post: Post) -> None:
        assert plain == rows(post(read(logprobs=20)))

    def test_max_logprobs_limits_the_top_k_but_not_the_ids(self, plain: list[Row], post: Post) -> None:
        assert plain == rows(post(read(logprobs=33)))
        assert "max allowed: 32" in refusal(post(read(logprobs=33, without=("logprob_token_ids",))))

    def test_the_order_and_repetition_of_ids_change_nothing(self, plain: list[Row], post: Post) -> None:
        assert plain == rows(post(read(logprob_token_ids=[*reversed(IDS), IDS[0]])))

    def test_values_are_at_temperature_1_over_the_whole_vocabulary(self, post: Post, vocabulary: int) -> None:
        everything: list[Row] = [{} for _ in range(WIDTH)]
        for start in range(0, vocabulary, 128):
            ids = list(range(start, min(start + 128, vocabulary)))
            for whole, part in zip(everything, rows(post(read(logprob_token_ids=ids))), strict=True):
                whole |= part
        for row in everything:
            assert vocabulary == len(row)
            assert math.fsum(map(math.exp, row.values())) == pytest.approx(1, abs=1e-5)

    def test_a_read_that_is_not_read_only_has_the_schedules_temperature_instead(
        self, plain: list[Row], post: Post
    ) -> None:
        tempered = rows(post(read(without=("diffusion_read_only",))))
        gap, sharper = (row[IDS[0]] - row[IDS[1]] for row in (plain[0], tempered[0]))
        assert sharper / gap == pytest.approx(1 / 0.8, rel=1e-3)

    def test_constrained_renormalises_over_the_ids_and_loses_label_mass(
        self, plain: list[Row], post: Post
    ) -> None:
        constrained = rows(post(read(xargs={"diffusion_constrained": True})))
        for free, row in zip(plain, constrained, strict=True):
            mass = math.fsum(math.exp(free[i]) for i in IDS)
            assert set(IDS) == set(row)
            assert math.fsum(map(math.exp, row.values())) == pytest.approx(1, abs=1e-5)
            for i in IDS:
                assert row[i] == pytest.approx(free[i] - math.log(mass), abs=1e-4)

    def test_the_same_bytes_give_the_same_bits(self, post: Post) -> None:
        body = read(prompt=draw(200, seed=1))
        first, *others = (post(body).json()["choices"] for _ in range(4))
        assert [first] * 3 == others

    def test_the_prompt_and_the_noise_move_the_answer(self, plain: list[Row], post: Post) -> None:
        other_prompt = read(prompt=[601, *PROMPT[1:]])
        other_noise = read(xargs=seeded([*SEED[:-1], 950]))
        for body in (other_prompt, other_noise):
            assert plain[0][IDS[0]] != pytest.approx(rows(post(body))[0][IDS[0]], abs=1e-3)

    def test_the_chat_route_gives_the_same_rows_in_another_shape(
        self, client: httpx.Client, post: Post
    ) -> None:
        messages = [{"role": "user", "content": "HTTP 502"}]
        chat = read(messages=messages, logprobs=True, top_logprobs=1, without=("prompt",))
        content = client.post("/v1/chat/completions", json=chat).json()["choices"][0]["logprobs"]["content"]
        ids = client.post("/tokenize", json={"model": "dgemma", "messages": messages}).json()["tokens"]
        expected = rows(post(read(prompt=ids)))
        actual = [
            {int(top["token"].removeprefix("token_id:")): top["logprob"] for top in position["top_logprobs"]}
            for position in content
        ]
        assert expected == actual


class TestCanvas:
    """What a seeded canvas may be."""

    def test_a_seed_of_another_length_than_the_canvas_is_refused(self, post: Post) -> None:
        message = refusal(post(read(xargs={"diffusion_canvas_length": 32})))
        assert "diffusion_seed_canvas must hold exactly 32 ids, got 16." in message

    def test_a_seed_without_a_length_must_fill_the_served_canvas(self, post: Post) -> None:
        message = refusal(post(read(without=("diffusion_canvas_length",))))
        assert f"diffusion_seed_canvas must hold exactly {CANVAS} ids, got 16." in message

    def test_a_canvas_wider_than_served_is_refused(self, post: Post) -> None:
        message = refusal(post(read(xargs=seeded(draw(CANVAS + 1, seed=2)))))
        assert "no larger than the served canvas" in message

    def test_a_canvas_of_width_0_is_refused(self, post: Post) -> None:
        assert "must be a positive integer" in refusal(post(read(xargs={"diffusion_canvas_length": 0})))

    @pytest.mark.parametrize("width", [1, 24, CANVAS - 1])
    def test_a_width_that_is_no_multiple_of_16_is_accepted(self, post: Post, width: int) -> None:
        assert width == len(rows(post(read(xargs=seeded(draw(width, seed=3))))))

    @pytest.mark.parametrize("beyond", [0, 10**9], ids=["vocabulary size", "a billion more"])
    def test_a_seed_id_outside_the_vocabulary_is_refused(
        self, post: Post, vocabulary: int, beyond: int
    ) -> None:
        message = refusal(post(read(xargs=seeded([*SEED[:-1], vocabulary + beyond]))))
        assert f"ids must be in [0, {vocabulary})" in message

    @pytest.mark.parametrize("wrong", [1.5, "700"], ids=["float", "string"])
    def test_a_seed_id_that_is_no_integer_is_refused(self, post: Post, wrong: object) -> None:
        assert "must be a list of token ids" in refusal(post(read(xargs=seeded([*SEED[:-1], wrong]))))

    def test_pinned_positions_without_a_seed_are_refused(self, post: Post) -> None:
        pinned = read(xargs={"diffusion_pinned": [3]}, without=("diffusion_seed_canvas",))
        assert "needs a diffusion_seed_canvas" in refusal(post(pinned))

    def test_pinned_positions_outside_the_canvas_are_refused(self, post: Post) -> None:
        assert "must lie inside the canvas" in refusal(post(read(xargs={"diffusion_pinned": [WIDTH]})))

    def test_pinned_positions_do_not_change_the_first_step(self, plain: list[Row], post: Post) -> None:
        assert plain == rows(post(read(xargs={"diffusion_pinned": [3]})))

    def test_max_tokens_below_the_width_gives_that_many_rows_and_the_same_numbers(
        self, plain: list[Row], post: Post
    ) -> None:
        assert plain[:5] == rows(post(read(max_tokens=5)))


class TestFlags:
    """What the other diffusion arguments accept."""

    def test_0_steps_are_refused(self, post: Post) -> None:
        assert "must be a positive integer" in refusal(post(read(xargs={"diffusion_max_steps": 0})))

    def test_more_than_48_steps_are_capped_silently(self, post: Post) -> None:
        begin = time.monotonic()
        post(read(xargs={"diffusion_max_steps": 48}))
        middle = time.monotonic()
        assert WIDTH == len(rows(post(read(xargs={"diffusion_max_steps": 4800}))))
        assert time.monotonic() - middle < 10 * (middle - begin)

    def test_read_only_as_a_string_is_refused(self, post: Post) -> None:
        assert "must be a boolean" in refusal(post(read(xargs={"diffusion_read_only": "true"})))

    def test_read_only_as_1_is_accepted(self, plain: list[Row], post: Post) -> None:
        assert plain == rows(post(read(xargs={"diffusion_read_only": 1})))

    def test_an_unknown_argument_is_ignored(self, plain: list[Row], post: Post) -> None:
        assert plain == rows(post(read(xargs={"diffusion_no_such_thing": [1, 2]})))


class TestIds:
    """Which log-probabilities can be asked for."""

    def test_128_ids_are_accepted(self, post: Post) -> None:
        ids = list(range(700, 828))
        assert set(ids) <= set(rows(post(read(logprob_token_ids=ids)))[0])

    def test_129_ids_are_refused(self, post: Post) -> None:
        assert "max allowed: 128" in refusal(post(read(logprob_token_ids=list(range(700, 829)))))

    def test_ids_without_logprobs_are_refused(self, post: Post) -> None:
        assert "`logprobs` must be set" in refusal(post(read(without=("logprobs",))))

    def test_an_id_outside_the_vocabulary_is_refused_with_its_size(self, post: Post, vocabulary: int) -> None:
        assert f"Vocabulary size: {vocabulary}" in refusal(post(read(logprob_token_ids=[vocabulary])))


class TestSampling:
    """Sampling parameters have no place in a read."""

    @pytest.mark.parametrize(
        "parameter",
        [
            {"temperature": 0.5},
            {"seed": 7},
            {"min_p": 0.1},
            {"min_tokens": 2},
            {"logit_bias": {"700": 5}},
            {"bad_words": ["no"]},
            {"allowed_token_ids": IDS},
        ],
        ids=lambda parameter: next(iter(parameter)),
    )
    def test_a_sampling_parameter_is_refused(self, post: Post, parameter: dict[str, Any]) -> None:
        assert "not yet supported with diffusion models" in refusal(post(read(**parameter)))

    def test_a_grammar_is_refused(self, post: Post) -> None:
        message = refusal(post(read(response_format={"type": "json_object"})))
        assert "not yet supported for diffusion language models" in message

    @pytest.mark.parametrize("parameter", [{"top_p": 0.5}, {"top_k": 1}], ids=["top_p", "top_k"])
    def test_top_p_and_top_k_are_accepted_and_erase_labels(
        self, post: Post, parameter: dict[str, Any]
    ) -> None:
        assert all(row[i] < -1000 for row in rows(post(read(**parameter)))[:1] for i in IDS)

    @pytest.mark.parametrize("field", [{"n": 2}, {"prompt": [PROMPT, PROMPT]}], ids=["n", "two prompts"])
    def test_two_answers_of_one_request_share_their_noise(
        self, plain: list[Row], post: Post, field: dict[str, Any]
    ) -> None:
        reply = post(read(**field))
        for choice in range(2):
            for expected, actual in zip(plain, rows(reply, choice), strict=True):
                assert actual == pytest.approx(expected, abs=1e-4)


class TestRoom:
    """Prompt and canvas share the context."""

    def test_a_prompt_longer_than_the_context_is_refused(self, post: Post) -> None:
        message = refusal(post(read(prompt=draw(MAX_MODEL_LEN + 1, seed=4))))
        assert f"maximum context length is {MAX_MODEL_LEN} tokens" in message

    def test_a_prompt_that_fills_the_context_is_refused(self, post: Post) -> None:
        assert "max_tokens must be at least 1" in refusal(post(read(prompt=draw(MAX_MODEL_LEN, seed=4))))

    def test_a_prompt_that_just_leaves_room_for_the_canvas_gives_all_rows(self, post: Post) -> None:
        assert WIDTH == len(rows(post(read(prompt=draw(MAX_MODEL_LEN - WIDTH, seed=4)))))

    def test_a_prompt_that_leaves_less_room_than_the_canvas_gives_fewer_rows_and_no_error(
        self, post: Post
    ) -> None:
        reply = post(read(prompt=draw(MAX_MODEL_LEN - WIDTH + 4, seed=4)))
        assert WIDTH - 4 == len(rows(reply))
        assert reply.json()["choices"][0]["finish_reason"] == "length"
