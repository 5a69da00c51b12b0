"""The phrases of the pattern rule: what a model says about itself, and what it should have filled in."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

Category = Literal[
    "meta_commentary", "hedging", "refusal", "instruction_leak", "placeholders", "format_collapse"
]

LONGEST: Final = 90
"""Code points that no match exceeds."""


@dataclass(frozen=True, slots=True)
class Phrase:
    """One way to say it, in lower case."""

    category: Category
    literal: str
    """Stands in every match, so that a text without it needs no further look."""
    pattern: re.Pattern[str]


def _phrases(category: Category, *pairs: tuple[str, str]) -> tuple[Phrase, ...]:
    return tuple(Phrase(category, literal, re.compile(pattern)) for literal, pattern in pairs)


_AM: Final = r"\bi(?:['’]m| am)"
_CANNOT: Final = r"\bi (?:cannot|can['’]t|can not|won['’]t|will not|am unable to|am not able to)"

PHRASES: Final[tuple[Phrase, ...]] = (
    *_phrases(
        "meta_commentary",
        ("as an ai", r"\bas an ai(?: language model| model| assistant| chatbot| system)?,? (?:i|my)\b"),
        ("as a large language model", r"\bas a large language model,? (?:i|my)\b"),
        ("language model", _AM + r" (?:just |only |merely )?an? (?:large |ai )?language model\b"),
        ("an ai assistant", _AM + r" (?:just |only |merely )?an ai assistant\b"),
        ("an ai chatbot", _AM + r" (?:just |only |merely )?an ai chatbot\b"),
        ("my training data", r"\bmy training data (?:only |does|ends|goes|is limited|includes|stops)"),
        ("knowledge cut", r"\bmy (?:last )?knowledge cut-?off\b"),
        (
            "have personal",
            r"\bi (?:don['’]t|do not) have personal (?:opinions|feelings|beliefs|experiences)\b",
        ),
        (
            "real-time",
            r"\bi (?:don['’]t|do not) have (?:access to )?real-time (?:access|data|information|knowledge)\b",
        ),
    ),
    *_phrases(
        "hedging",
        ("sure, but", _AM + r" not (?:entirely |completely |quite |fully |really )?sure, but\b"),
        ("sure but", _AM + r" not (?:entirely |completely |quite |fully |really )?sure but\b"),
        ("certain, but", _AM + r" not (?:entirely |completely |quite |fully |really )?certain, but\b"),
        ("certain but", _AM + r" not (?:entirely |completely |quite |fully |really )?certain but\b"),
        ("be wrong", r"\bi (?:could|might|may) (?:well )?be wrong\b"),
        ("be mistaken", r"\bi (?:could|might|may) (?:well )?be mistaken\b"),
        ("grain of salt", r"\btake (?:this|that|it|my \w{1,20}) with a grain of salt\b"),
        ("guarantee", r"\bi (?:cannot|can['’]t|can not) guarantee\b"),
        ("to the best of my knowledge", r"\bto the best of my knowledge\b"),
    ),
    *_phrases(
        "refusal",
        (
            "sorry",
            _AM + r" (?:very |so |truly )?sorry,? but i (?:cannot|can['’]t|can not|won['’]t|am unable)\b",
        ),
        (
            "afraid",
            _AM + r" afraid (?:that )?i (?:cannot|can['’]t|can not|won['’]t) (?:help|assist|do that)\b",
        ),
        ("help with", _CANNOT + r" help with (?:that|this|your request)\b"),
        ("help you with", _CANNOT + r" help you with (?:that|this|your request)\b"),
        ("assist with", _CANNOT + r" assist with (?:that|this|your request)\b"),
        ("assist you with", _CANNOT + r" assist you with (?:that|this|your request)\b"),
        ("comply", _CANNOT + r" comply with (?:that|this|your|the) request\b"),
        ("fulfil", _CANNOT + r" fulfill? (?:that|this|your|the) request\b"),
        ("decline", r"\bi (?:must|have to) (?:respectfully |politely )?decline\b"),
        ("against my", r"\bagainst my (?:guidelines|programming|usage policies)\b"),
    ),
    *_phrases(
        "instruction_leak",
        ("my system prompt", r"\bmy system prompt\b"),
        ("instructions", r"\bmy (?:hidden|initial|original|system) instructions\b"),
        ("instructed", r"\bi(?:['’]ve been| have been| was|['’]m| am) instructed (?:not to|never to)\b"),
        (
            "<|",
            r"<\|(?:im_start|im_end|endoftext|eot_id|start_header_id|end_header_id|system|user|assistant)\|>",
        ),
        ("[/inst]", r"\[/inst\]"),
        ("<<sys>>", r"<<sys>>"),
        ("### ", r"(?m:^)### (?:instruction|response|input):"),
    ),
    *_phrases(
        "placeholders",
        ("[your ", r"\[your [a-z][a-z0-9 '’/_-]{0,50}\](?!\()"),
        ("[insert ", r"\[insert [a-z][a-z0-9 '’/_-]{0,50}\](?!\()"),
        ("[enter ", r"\[enter [a-z][a-z0-9 '’/_-]{0,50}\](?!\()"),
        ("[name]", r"(?<!\S)\[name\](?=[\s,.;!?])"),
        ("[date]", r"(?<!\S)\[date\](?=[\s,.;!?])"),
        ("[company name]", r"(?<!\S)\[company name\](?=[\s,.;!?])"),
        ("<your", r"<your[ _-][a-z][a-z _-]{1,50}>"),
        ("<insert", r"<insert[ _-][a-z][a-z _-]{1,50}>"),
        ("lorem ipsum", r"\blorem ipsum dolor\b"),
        ("goes here", r"\b(?:rest|remainder) of (?:the|your) (?:answer|code|content|text) goes here\b"),
    ),
    *_phrases(
        "format_collapse",
        ("[end of ", r"\[end of (?:answer|json|output|response)\]"),
        ("[start of ", r"\[start of (?:answer|json|output|response)\]"),
        ("\n\nhuman: ", r"\n\nhuman: "),
        ("\n\nassistant: ", r"\n\nassistant: "),
    ),
)
"""What is looked for anywhere in an answer."""

HEAD: Final = 100
"""Code points of an answer's beginning in which an opening stands."""

OPENINGS: Final[tuple[Phrase, ...]] = (
    *_phrases(
        "hedging",
        ("", r"\s*(?:sure|certainly|of course|absolutely)!"),
        (
            "",
            r"\s*(?:sure|certainly|of course|absolutely)[,.] (?:here|let me|i['’]d|i['’]ll|i can)\b",
        ),
        ("", r"\s*(?:what a |that['’]s a )?(?:great|good|excellent) question[!.,]"),
    ),
    *_phrases("instruction_leak", ("", r"\s*(?:system: ?)?you are an? (?:helpful |ai )assistant\b")),
    *_phrases(
        "format_collapse",
        (
            "",
            r"\s*here(?:['’]s| is) (?:the|your) (?:corrected |valid )?(?:json|output)\b[^\n]{0,30}:",
        ),
    ),
)
"""What only an answer's first words may match."""
