"""Secrets are found by the name of their variable, by their shape, and in nothing that only looks like one."""

from __future__ import annotations

import pytest

from rlvr.artifacts.secret_scan import find_token, is_secret_name, read_text, secrets_in
from rlvr.sagemaker.secret_scan import find_secrets_in_request

RANDOM = "q7X!r2Lp9Zv4Kt8W"


@pytest.mark.parametrize(
    ("name", "is_secret", "why"),
    [
        ("GRPO_REWARDS_KEY", True, "the key of the reward servers"),
        ("WANDB_KEY", True, "a key that is not called an API key"),
        ("WANDB_API_KEY", True, "one that is"),
        ("apiKey", True, "no separator"),
        ("APITOKEN", True, "no separator, in capitals"),
        ("DBPASSWORD", True, "no separator before a password"),
        ("MY_PASS", True, "a short word"),
        ("DB_PWD", True, "another one"),
        ("GH_PAT", True, "a personal access token"),
        ("deploy-token", True, "a tag's name"),
        ("HTTP_AUTHORIZATION", True, "a header"),
        ("OPENAI_API_KEY_2", True, "the second one"),
        ("GOOGLE_CREDENTIALS", True, "several"),
        ("SORT_KEY", True, "the last word decides, though it may be no secret"),
        ("TOKENIZERS_PARALLELISM", False, "not at the end"),
        ("MAX_TOKENS", False, "a number of tokens"),
        ("KEYBOARD", False, "another word"),
        ("MONKEY", False, "a short word needs a separator"),
        ("COMPASS", False, "the same"),
        ("PWD", False, "the working folder"),
        ("key", False, "of any mapping"),
        ("HF_TOKEN_SECRET_ARN", False, "where a secret is kept"),
        ("PASSES", False, "a count"),
        ("PYTHONPATH", False, "a path, not a PAT"),
    ],
)
def test_a_name_is_secret_by_its_last_word_in_requests_and_in_files(name: str, is_secret: bool, why: str) -> None:
    assert is_secret_name(name) == is_secret, why
    assert bool(find_secrets_in_request({"Environment": {name: "x"}})) == is_secret, why
    for line in (f"{name}={RANDOM}", f'  "{name}": "{RANDOM}",'):
        assert any(secrets_in(line)) == is_secret, (why, line)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("sort_key = sha256_of_prompt_1(row)", "a call"),
        ("sort_key = columns_2_by_name[0]", "an index"),
        ("sort_key = layers.attention.bias", "a name without a digit"),
        ("key: transformer.layers.0.mlp.dense_4h_to_h.bias", "a key of any mapping"),
    ],
)
def test_a_program_that_assigns_to_a_key_holds_no_secret(line: str, why: str) -> None:
    assert [*secrets_in(line)] == [], why


@pytest.mark.parametrize(
    ("variable", "value", "advice", "why"),
    [
        ("HF_TOKEN", "x", "hf_token_secret_arn", "the hub's variable"),
        ("HUGGING_FACE_HUB_TOKEN", "x", "hf_token_secret_arn", "its former name"),
        ("NOTE", "hf_" + "aB3" * 12, "hf_token_secret_arn", "a token of the hub under any name"),
        ("GRPO_REWARDS_KEY", "x", "rewards_key_secret_arn", "the key of the reward servers"),
        ("NOTE", "AKIA" + "IOSFODNN7EXAMPLE", "role", "AWS gives permissions to the job's role"),
        ("DB_PASSWORD", "x", "Secrets Manager", "no key of the section has it"),
    ],
)
def test_the_advice_suits_the_secret(variable: str, value: str, advice: str, why: str) -> None:
    (problem,) = find_secrets_in_request({"Environment": {variable: value}})
    assert advice in problem.message, why
    assert ("hf_token" in problem.message) == (advice == "hf_token_secret_arn"), why


# Put together here, so that a scanner of this repository finds nothing.
JWT = ".".join(
    ["eyJ" + "hbGciOiJIUzI1NiJ9", "eyJ" + "zdWIiOiIxMjM0NTY3ODkwIn0", "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEj"]
)
HOOK = "https://hooks." + "slack.com/services/" + "T0A1B2C3D/B0A1B2C3D/aB3aB3aB3aB3aB3aB3aB3aB3"


@pytest.mark.parametrize(
    ("text", "what", "why"),
    [
        ("glpat-" + "aB3" * 7, "a GitLab token", "a personal access token"),
        ("https://discord.com/api/webhooks/1234567890/" + "aB3" * 20, "a Discord webhook", "its URL is the key"),
        ("Authorization=Bearer " + "aB3" * 8, "a bearer token", "a value of OTEL_EXPORTER_OTLP_HEADERS"),
        ("the bearer of good news", None, "a word"),
        (f"Bearer {JWT}", "a JSON Web Token", "a login"),
        (HOOK, "a Slack webhook", "its address lets any program write"),
        ("eyJhbGciOiJIUzI1NiJ9", None, "one part alone is any JSON in base64"),
        ("https://hooks.slack.com/services", None, "no address of a channel"),
        ("see glpat-NAME", None, "a description"),
    ],
)
def test_a_token_is_known_by_its_shape(text: str, what: str | None, why: str) -> None:
    assert find_token(text) == what, why


ESCAPED = "".join(f"\\u{ord(letter):04X}" for letter in "glpat-" + "aB3" * 7)


@pytest.mark.parametrize(
    ("content", "line", "why"),
    [
        (f"a\nb {ESCAPED}".encode(), 2, "letters as JSON may write them"),
        (f"a\n\nä glpat-{'aB3' * 7}".encode("utf-16"), 3, "UTF-16 with its mark"),
        (f"a\nglpat-{'aB3' * 7}".encode("utf-16-be"), 2, "UTF-16 without"),
        (b"\x08\0\0\0" + b"0\0\0\0\0\0\0\0glpat-" + b"aB3" * 14 + b"\xff\0\1", 1, "a string behind its length"),
        (f"a {ESCAPED[:-60]}".encode(), None, "too short for a token"),
        (b"glpat-aB3aB3\0\0aB3aB3aB3aB3aB3", None, "two strings"),
        ("glpat-NAME läuft".encode("utf-16"), None, "a description in UTF-16"),
    ],
)
def test_a_token_is_found_in_any_encoding(content: bytes, line: int | None, why: str) -> None:
    assert [number for number, _ in secrets_in(read_text(content))] == ([line] if line else []), why


@pytest.mark.parametrize(
    ("url", "is_secret", "why"),
    [
        ("https://host/x?access_token=hunter22", True, "in the query"),
        ("https://host/x#access_token=hunter22", True, "in the fragment"),
        ("https://host/x?a=1#state=2&access_token=hunter22", True, "not the first"),
        ("https://host/x?max_tokens=100000", False, "a number of tokens"),
        ("https://host/x#tokens", False, "a heading"),
    ],
)
def test_a_url_with_a_token_is_found_in_a_request(url: str, is_secret: bool, why: str) -> None:
    assert bool(find_secrets_in_request({"Environment": {"INDEX": url}})) == is_secret, why
