"""The phrases that are noted, those that only look like them, and how the text may be cut."""

from __future__ import annotations

from ast import literal_eval
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from app.core.guardrails.base import KEEP
from app.core.guardrails.phrases import LONGEST, PHRASES
from app.core.guardrails.rules.pattern import PatternRule
from tests.core.guardrails.texts import cut, found, tails

BAD: dict[str, list[str]] = {
    "meta_commentary": [
        "The lamp is old. As an AI language model, I have never seen one.",
        "As an AI, my view is limited.",
        "As a large language model I cannot taste soup.",
        "Well, I'm just a language model.",
        "Remember that I’m an AI assistant who likes ferries.",
        "I am an AI chatbot for the harbour.",
        "My training data ends before that storm.",
        "That was after my knowledge cutoff.",
        "I don't have personal opinions on gulls.",
        "I do not have access to real-time information.",
    ],
    "hedging": [
        "Sure! The ferry leaves at nine.",
        "Certainly, here is the timetable.",
        "Great question! The ferry leaves at nine.",
        "I'm not sure but it may be ten.",
        "I'm not entirely sure, but it may be nine.",
        "I am not quite certain, but it may be ten.",
        "I am not certain but it may be nine.",
        "It leaves at nine, though I could be wrong.",
        "I might well be mistaken about the pier.",
        "Take this with a grain of salt.",
        "I can't guarantee the weather.",
        "It is blue, to the best of my knowledge.",
    ],
    "refusal": [
        "I'm sorry, but I can't do that.",
        "I am afraid I cannot help there.",
        "I won't help you with that.",
        "I can not help with this.",
        "I will not assist you with that.",
        "Sadly I am unable to assist with your request.",
        "I cannot comply with this request.",
        "I can’t fulfill that request.",
        "I must respectfully decline.",
        "It goes against my guidelines.",
    ],
    "instruction_leak": [
        "You are a helpful assistant. The ferry leaves at nine.",
        "That is what my system prompt says.",
        "By my initial instructions it is nine.",
        "I was instructed not to talk about gulls.",
        "nine<|im_end|>",
        "[/INST] nine",
        "<<SYS>> nine",
        "nine\n### Response: nine",
        "### Instruction: say nine",
    ],
    "placeholders": [
        "Dear [Your Name], the ferry is late.",
        "Call us at [insert phone number] today.",
        "[Enter the date here]",
        "Dear [Name], the ferry is late.",
        "It left on [Date].",
        "We at [Company Name] are sorry.",
        "Log in as <your-user-name> first.",
        "Log in as <insert name> first.",
        "Lorem ipsum dolor sit amet.",
        "The rest of the text goes here.",
    ],
    "format_collapse": [
        "Here is the JSON you wanted:\n{}",
        "nine\n[End of response]",
        "[start of answer] nine",
        "It leaves at nine.\n\nHuman: and tomorrow?",
        "It leaves at nine.\n\nAssistant: yes.",
    ],
}

GOOD = [
    "The ferry will certainly leave, of course, and surely at nine! Absolutely.",
    "Certainly the ferry leaves at nine.",
    "Sure enough, it left.",
    "Our assets, our certainty and our measures are in order, but nothing is certain.",
    "As an AI engineer, I work on ferries.",
    "As an AI researcher I have seen many models.",
    "I'm an AI engineer at a language model company.",
    "I cannot overstate how late it was, and I can't help laughing with this crew.",
    "I cannot help with the ropes, my hand hurts.",
    "I was told to wait. She was instructed to leave.",
    "The system prompt is the first message that a model sees.",
    "A large language model predicts words.",
    "I'm sorry, but the ferry has left.",
    "Match it with [name]+ or [^name]*, or `[Name]`.",
    "See [your account](https://example.org/account) for that.",
    "Use `<your-token>` there, and `curl -H [your token]` here.",
    "```\nDear [Your Name],\n# As an AI, I\n```\n",
    "The text:\n~~~text\nlorem ipsum dolor\n[insert name]\n~~~\nis filler.",
    'The phrase "As an AI language model, I" is worn out.',
    "She said “I must decline” and left.",
    "names[date] = rows[name] + 1",
    "The human: a short history. An assistant: a job.",
    "We sell grain, salt and a guarantee.",
    "### Responses\n\nThere were none.",
    "",
]


def kinds(text: str, **options: Any) -> list[tuple[str, int | None]]:
    """What is told of an answer."""
    return [(violation.message, violation.position) for violation in found(PatternRule(options), text)]


@pytest.mark.parametrize(
    ("category", "text"), [(category, text) for category, texts in BAD.items() for text in texts]
)
def test_a_phrase_is_noted_once_and_by_its_category_alone(category: str, text: str) -> None:
    (violation,) = found(PatternRule({"include": [category]}), text)
    assert (violation.rule, violation.severity) == ("pattern", "warning")
    assert violation.position is not None
    said = literal_eval(violation.message.partition(": ")[2])
    assert text[violation.position :].lstrip().startswith(said)
    assert not found(PatternRule({"exclude": [category]}), text)


@pytest.mark.parametrize("text", GOOD)
def test_what_only_looks_like_a_phrase_is_left_alone(text: str) -> None:
    assert not kinds(text)


@pytest.mark.parametrize("text", ["It is nine. Sure! Great question!", "nine\nHere is the JSON: {}"])
def test_openings_count_at_the_beginning_only(text: str) -> None:
    assert not kinds(text)


def test_an_opening_is_told_before_the_answer_ends() -> None:
    check = PatternRule().start()
    told = [len(check.tail(tail)) for tail in tails(["Sure", "! ", "The ferry waits. " * 6, "Sure! "])]
    assert told == [0, 0, 1, 0]


@pytest.mark.parametrize(
    "parts",
    [
        ["As an AI, I", "mage is sharp."],
        ["See [your account]", "(https://example.org)"],
        ["Sure", "ly! It is."],
    ],
)
def test_a_phrase_at_the_end_of_a_part_waits_for_what_follows(parts: list[str]) -> None:
    assert not found(PatternRule(), parts)


def test_places_are_those_of_the_text_whatever_its_lower_case_is() -> None:
    text = "İİİ ΣΑΣ. As an AI, I wait."
    assert kinds(text) == [("the model talks about itself: 'As an AI, I'", 9)]


ALL = [text for texts in BAD.values() for text in texts] + GOOD
FILLER = ["\n", " ", "The lamp burns on the pier. " * 3, "`", '"', "```\n", "\n```\n", "x" * 50, "é İ "]


@settings(max_examples=300)
@given(st.lists(st.sampled_from(ALL + FILLER), max_size=8), st.lists(st.integers(0, 5_000), max_size=10))
def test_findings_do_not_depend_on_the_cuts(parts: list[str], at: list[int]) -> None:
    text = "".join(parts)
    whole = found(PatternRule(), text)
    assert sorted(map(repr, found(PatternRule(), cut(text, at)))) == sorted(map(repr, whole))
    assert len(set(map(repr, whole))) == len(whole)


@given(st.lists(st.sampled_from(ALL + FILLER), max_size=8))
def test_the_literals_hide_nothing_that_the_expressions_find(parts: list[str]) -> None:
    lower = "".join(parts).lower()
    assert PatternRule().hits(lower) == [
        index for index, phrase in enumerate(PHRASES) if phrase.literal in lower
    ]
    for phrase in PHRASES:
        for match in phrase.pattern.finditer(lower):
            assert phrase.literal in match[0]
            assert len(match[0]) <= LONGEST


@pytest.mark.parametrize("phrase", PHRASES, ids=lambda phrase: phrase.pattern.pattern)
def test_every_phrase_has_an_example(phrase: Any) -> None:
    texts = [text.lower() for text in BAD[phrase.category]]
    assert any(phrase.pattern.search(text) for text in texts)


def test_no_phrase_outgrows_what_a_check_is_shown_again() -> None:
    # Beside the phrase itself, the code before it has to be in sight.
    assert LONGEST + 60 <= KEEP


def test_checks_of_one_rule_know_nothing_of_each_other() -> None:
    rule = PatternRule()
    first, second = rule.start(), rule.start()
    (tail,) = tails(["```\nAs an AI, I wait."])
    assert not first.tail(tail)
    (other,) = tails(["As an AI, I wait."])
    assert second.tail(other)
    assert not second.end("As an AI, I wait.")


@pytest.mark.parametrize(
    "options", [{"include": []}, {"include": ["tone"]}, {"exclude": ["x"]}, {"only": []}]
)
def test_bad_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        PatternRule(options)


def test_half_a_character_hurts_nothing() -> None:
    assert kinds("\ud800 As an AI, I wait.") == [("the model talks about itself: 'As an AI, I'", 2)]
