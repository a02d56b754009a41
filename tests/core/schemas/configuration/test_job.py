"""Placeholders in the values of a job file: which texts they replace, and which texts stay unchanged."""

from __future__ import annotations

import calendar
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.schemas import plain_yaml
from shardwright.schemas.configuration.job import Hook, escaped, expanded, variables_at, without_secrets

NOW = calendar.timegm((2026, 11, 21, 2, 5, 9))
VARIABLES = variables_at(
    NOW, {"BUCKET": "b", "EMPTY": "", "NESTED": "${BUCKET}{date}", "N": "7", "date": "x"}
)
#: Parts of placeholders, which random characters rarely form.
PIECES = st.lists(
    st.sampled_from(
        ["$", "$$", "{", "}", "{{", "}}", "date", "time", "BUCKET", "NOPE", ":-", "_", "9", " ", "ü"]
    )
).map("".join)


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("gs://${BUCKET}/${BUCKET}x", "gs://b/bx"),
        ("${EMPTY}", ""),
        ("${EMPTY:-none}", "none"),
        ("${NOPE:-none}", "none"),
        ("${NOPE:-}", ""),
        ("${BUCKET:-none}", "b"),
        ("${NOPE:-{date}/{day}}", "2026-11-21/21"),
        ("${date}", "x"),
        ("{date} {time} {year}-{month}-{day}", "2026-11-21 02-05-09 2026-11-21"),
        ("${NESTED}", "${BUCKET}{date}"),
        ("$${BUCKET}", "${BUCKET}"),
        ("$$${BUCKET}", "$b"),
        ("$$$${BUCKET}", "$${BUCKET}"),
        ("$${date}", "${date}"),
        ("{{date}}", "{date}"),
        ("{{{date}}}", "{2026-11-21}"),
        ("{{{{date}}}}", "{{date}}"),
        ("{{date}", "{2026-11-21"),
        ('{"on":"{date}"}', '{"on":"2026-11-21"}'),
    ],
)
def test_placeholders(text: str, becomes: str) -> None:
    assert VARIABLES.expand(text) == becomes
    assert expanded({"a": [text]}, VARIABLES, "top") == {"a": [becomes]}


@pytest.mark.parametrize(
    "text",
    [
        "(?P<label>[a-z]{2})", r"^.{3,}\d{2}$", "$", "$$", "$BUCKET", "a${2}", "$(BUCKET)", "{}", "{{}}",
        '{"a": {"b": {}}}', "{date", "date}", "{ date }", "{{ .Name }}", "${{ x }}", "100%", "{dates}", "",
    ],
)  # fmt: skip
def test_texts_without_placeholders_stay_unchanged(text: str) -> None:
    assert VARIABLES.expand(text) == text == escaped(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("${NOPE}", "NOPE is not set"),
        ("$$$${BUCKET} ${NOPE}", "NOPE is not set"),
        ("${BUCKET", "begins a variable"),
        ("${BUCKET-x}", "begins a variable"),
        ("${BUCKET:?x}", "begins a variable"),
        ("${NOPE:-a{2}}", "begins a variable"),
    ],
)
def test_wrong_placeholders_are_refused(text: str, says: str) -> None:
    with pytest.raises(plain_yaml.WrongValue, match=says) as caught:
        expanded({"k": ["fine", text]}, VARIABLES, "top")
    assert caught.value.path == ("top", "k", "1")


@given(st.text() | PIECES)
def test_any_text_can_be_escaped(text: str) -> None:
    assert VARIABLES.expand(escaped(text)) == text


@pytest.mark.parametrize("text", ["{" * 100_000, "$" * 100_000, "${A:-" * 20_000, "{date" * 20_000])
def test_long_texts_expand_in_linear_time(text: str) -> None:
    # This would take minutes if each brace began its own search.
    assert VARIABLES.expand(escaped(text)) == text


@given(PIECES)
def test_values_of_variables_are_not_expanded(value: str) -> None:
    assert variables_at(0, {"V": value}).expand("<${V}>") == f"<{value}>"


def test_a_variable_can_supply_a_number() -> None:
    values = {
        "a": "${N}",
        "b": "${NOPE:-0.25}",
        "c": "${NOPE:-1e-3}",
        "d": "7",
        "e": "v${N}",
        "f": "${NOPE:-7x}",
    }
    result = expanded(values, VARIABLES, numbers=True)
    assert result == {"a": 7, "b": 0.25, "c": 0.001, "d": "7", "e": "v7", "f": "7x"}
    assert [type(value) for value in result.values()] == [int, float, float, str, str, str]
    assert expanded("${N}", VARIABLES) == "7"
    assert expanded("${V}", variables_at(0, {"V": "9" * 5000}), numbers=True) == "9" * 5000


def test_messages_show_the_names_of_variables_and_not_their_values() -> None:
    environ = {"TOKEN": "s3cr\n3t", "LONG": "s3cr\n3t and more", "A": "e", "OTHER": "one"}
    texts = ["x${TOKEN}", "${LONG}", "${A}"]
    message = f"--seed x{environ['TOKEN']}: {environ['LONG']!r} and 'e' is not a number"
    shown = without_secrets(message, texts, environ)
    assert shown == "--seed x${TOKEN}: '${LONG}' and '${A}' is not a number"


def test_hooks_are_hidden_from_repr_and_can_be_pickled() -> None:
    hook = Hook(("curl", "s3cret"), "https://h/s3cret")
    assert "s3cret" not in repr([hook])
    assert pickle.loads(pickle.dumps(hook)) == hook


def test_texts_stay_literal_and_other_values_have_yamls_types() -> None:
    text = "a: no\nno: 010\nb: [1.10, 12:30, 2026-11-21, ~, 'null', +1]\n"
    assert plain_yaml.load_plain_yaml(text, as_texts=True) == {
        "a": "no", "no": "010", "b": ["1.10", "12:30", "2026-11-21", None, "null", "+1"],
    }  # fmt: skip
    assert plain_yaml.load_plain_yaml(text)["a"] is False


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("a: 1\nb: [\n", "expected the node content", (3, 1)),
        ("a: 1\nb: 2\n  \na: 3", "'a' occurs twice", (4, 1)),
        ("a: 1\nb: \0", r"remove the control character '\\x00'", (2, 4)),
        ("a: 1\nb: !custom 2", "write the value without the tag !custom", (2, 4)),
        ("a: 1\nb: !!python/name:os.system 2", "without the tag !!python/name:os.system", (2, 4)),
    ],
)
@pytest.mark.parametrize("as_texts", [True, False])
def test_errors_in_yaml_name_the_place(
    text: str, message: str, place: tuple[int, int], as_texts: bool
) -> None:
    with pytest.raises(plain_yaml.NotPlain, match=message) as caught:
        plain_yaml.load_plain_yaml(text, as_texts)
    assert (caught.value.line, caught.value.column) == place


def test_keys_in_yaml_have_places() -> None:
    assert plain_yaml.places_of_keys("a:\n  - b: 1")["a", "0", "b"] == (2, 5)
