"""Turns of phrase that give a model away, with the words without which none of them can stand.

Patterns are written for lowered text. Looking for a literal costs a small fraction of a search, so each
pattern names literals of which every match holds at least one, and whole groups of patterns share a door: a
second set of literals that is asked first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, get_args

Category = Literal[
    "meta_commentary", "hedging", "refusal", "instruction_leak", "placeholders", "format_collapse"
]
CATEGORIES: Final[tuple[Category, ...]] = get_args(Category)

LONGEST: Final = 150
"""Code points that a match may have at most."""
AHEAD: Final = 16
"""Code points behind a match that a pattern may look at."""


@dataclass(frozen=True, slots=True, eq=False)
class Phrase:
    """One turn of phrase."""

    category: Category
    says: str
    """What the finding is called."""
    pattern: re.Pattern[str]
    literals: tuple[str, ...]
    """Every match contains at least one of them."""
    door: tuple[str, ...] = ()
    """So does it of these, unless there are none."""

    @property
    def opens(self) -> bool:
        """Whether it can only stand at the beginning of an answer."""
        return self.pattern.pattern.startswith(r"\A")

    @property
    def closes(self) -> bool:
        """Whether it can only stand at the end of an answer."""
        return self.pattern.pattern.endswith(r"\Z")


Row = tuple[str, str, tuple[str, ...]]
"""What the finding is called, the pattern, the literals."""

_MODEL = (
    r"(?:an ai(?: (?:language )?model| assistant| chatbot| system)?|an? (?:large )?language model"
    r"|an? (?:virtual|digital) assistant|an artificial intelligence)"
)
_MODELS = ("an ai", "language model", "l assistant", "artificial")
_IM = r"\bi(?:['’]m| am)"
_CANNOT = (
    r"\bi(?: can(?:not|['’]?t| not)| won['’]?t be able to| am (?:unable|not able) to"
    r"|['’]m (?:unable|not able) to)"
)
_CANNOTS = ("i can", "able to")
_SERVE = (
    r"(?:help|assist|comply|fulfill?|provide|generate|create|produce|answer|discuss|engage|continue|share"
    r"|offer|write|complete|support|participate)"
)
_REQUEST = r"(?:this|that|your|the) (?:request|question|prompt|query|task|topic|conversation)\b"
_MAKER = r"(?:openai|anthropic|google|meta ai|mistral ai|deepseek|alibaba cloud|microsoft|xai|cohere)"
_INSTRUCTIONS = r"(?:prompt|message|instructions?)\b"
# Behind a bracket: where a link's address or label follows it is a link, no gap.
_GAP_ENDS = r"\](?![(\[:])"

_NO_DOOR = ()
_SELF = ("i ", "i'", "i’", "my ")
"""English has next to no other words that end like this: the first person opens the door, nobody else."""

_META_OF_SELF: Final[tuple[Row, ...]] = (
    # The person must follow: "as an AI engineer, I…" is a human being's.
    ("speaks as a model", rf"\bas {_MODEL},? (?:i(?:['’]m)?\b|my )", _MODELS),
    (
        "calls itself a model",
        rf"{_IM} (?:just |only |merely )?{_MODEL}(?=[.,;:!\n]| and | (?:so|without|created|designed|trained"
        r"|developed|who|that|built)\b)",
        _MODELS,
    ),
    ("names its maker", rf"{_IM} \w{{2,20}}, {_MODEL}\b", _MODELS),
    (
        "names its maker",
        rf"\bi was (?:trained|developed|created|built) by {_MAKER}\b",
        ("ed by ", "built by "),
    ),
    (
        "speaks of its training",
        r"\bmy (?:(?:knowledge|training)(?: data)? cut-?off|last (?:knowledge |training )?update)\b",
        ("cutoff", "cut-off", "my last "),
    ),
    (
        "speaks of its training",
        r"\bmy training data (?:only|does|doesn['’]t|goes|ends|includes|may|is)\b",
        ("training data",),
    ),
    ("closes with an offer", r"\bi hope (?:this|that) helps[.!]?\s{0,4}\Z", ("hope th",)),
)

_META: Final[tuple[Row, ...]] = (
    (
        "begins with a pleasantry",
        r"\A\s{0,4}(?:sure|certainly|of course|absolutely|great question)(?: thing)?[!,.] {0,2}"
        r"(?:here(?:['’]s| is| are)|i['’]d be|i would be|i['’]ll|i can|let me|let['’]s|below) ",
        ("sure", "certainly", "of course", "absolutely", "great question"),
    ),
    (
        "announces what was asked for",
        r"\A\s{0,4}here(?:['’]s| is| are) (?:the|your|a|an|my) (?:\w{1,20} )?"
        r"(?:revised|updated|corrected|rewritten|improved|requested|translated|final|summarized|reworked) ",
        ("here",),
    ),
    (
        "closes with an offer",
        r"\b(?:let me know if (?:you|there)|feel free to (?:ask|reach out))\b[^.!?\n]{0,70}[.!]?\s{0,4}\Z",
        ("let me know", "feel free"),
    ),
    (
        "closes with an offer",
        r"\b(?:is there anything else (?:i can|you['’]d like)|would you like me to) "
        r"[^.!?\n]{0,70}\?\s{0,4}\Z",
        ("anything else", "like me to"),
    ),
)

_HEDGING_OF_SELF: Final[tuple[Row, ...]] = (
    (
        "is not sure",
        rf"{_IM} not (?:entirely|completely|quite|totally|100%|really) (?:sure|certain)\b",
        (" sure", " certain"),
    ),
    (
        "may be wrong",
        r"\bi (?:could|might|may)(?: well)? be (?:wrong|mistaken)\b",
        ("be wrong", "be mistaken"),
    ),
    ("limits its word", r"\bto the best of my (?:knowledge|understanding|recollection)\b", ("best of my",)),
    (
        "limits its word",
        r"\b(?:as far as i (?:know|can tell|am aware)|if i (?:recall|remember) correctly)\b",
        ("as far as i", "correctly"),
    ),
    (
        "piles up doubt",
        r"\bi (?:think|believe|guess|suppose)(?: that)?(?: it)? (?:maybe|perhaps|possibly|might)\b",
        ("i think", "i believe", "i guess", "i suppose"),
    ),
)

_HEDGING: Final[tuple[Row, ...]] = (
    (
        "will not say",
        r"\bit(?:['’]s| is) (?:hard|difficult|impossible) to say (?:for|with) (?:sure|certain)",
        ("to say ",),
    ),
    ("will not say", r"\A\s{0,4}(?:well, )?(?:it|that) (?:really |all )?depends[.,!]", ("depends",)),
    (
        "piles up doubt",
        r"\b(?:may|might|could) (?:perhaps|possibly|potentially)(?: be)? (?:maybe|perhaps|possibly)\b",
        (" perhaps", " possibly", " potentially"),
    ),
    (
        "asks not to be believed",
        r"\b(?:take|treat) (?:this|that|it|my (?:answer|word)) with a (?:grain|pinch) of salt\b",
        ("of salt",),
    ),
    ("asks not to be believed", r"\bdon['’]t quote me on (?:this|that)\b", ("quote me on",)),
)

_REFUSAL_OF_SELF: Final[tuple[Row, ...]] = (
    (
        "apologises and declines",
        rf"\b(?:sorry|apologi[sz]e|apologies),? (?:but )?{_CANNOT}(?: \w{{1,12}})? {_SERVE}\b",
        ("sorry", "apolog"),
    ),
    (
        "declines",
        rf"{_CANNOT} (?:\w{{1,12}} )?(?:help|assist)(?: you)? with (?:that|this|your|creating|writing|any)\b",
        _CANNOTS,
    ),
    (
        "declines",
        rf"{_CANNOT} (?:answer|complete|fulfill?|(?:comply|engage|continue|proceed|help) with) {_REQUEST}",
        _CANNOTS,
    ),
    (
        "declines",
        rf"{_CANNOT} (?:provide|generate|create|produce|write|share|discuss|offer) (?:that|this kind"
        r"|this type|content|information|instructions|medical|legal|financial|explicit|harmful)\b",
        _CANNOTS,
    ),
    (
        "declines",
        r"\bi (?:must|have to|need to|will have to) (?:respectfully |politely )?(?:decline|refuse) "
        rf"(?:to {_SERVE}\b|{_REQUEST})",
        ("decline", "refuse"),
    ),
    (
        "declines",
        rf"{_IM} (?:not comfortable|uncomfortable) "
        r"(?:providing|helping|assisting|generating|writing|creating|discussing)\b",
        ("comfortable",),
    ),
    (
        "declines",
        rf"{_IM} not (?:allowed|permitted|authorized|programmed|designed) to {_SERVE}\b",
        ("not allowed", "not permitted", "not authorized", "not programmed", "not designed"),
    ),
    (
        "names its rules",
        r"\b(?:against|violates?|outside|conflicts? with) my (?:ethical |content |safety |usage |core )?"
        r"(?:guidelines|programming|polic(?:y|ies)|principles|capabilities)\b",
        ("guidelines", "programming", "polic", "principles", "capabilities"),
    ),
    (
        "lacks an ability",
        r"\bi (?:do not|don['’]t) have (?:access to (?:real[- ]time|the internet|up-to-date|live)"
        rf"|personal (?:opinions|feelings|experiences|beliefs)|the ability to {_SERVE})\b",
        ("have access to", "have personal", "the ability to"),
    ),
    (
        "lacks an ability",
        r"\bi (?:cannot|can['’]t) (?:access|browse) "
        r"(?:the internet|the web|real[- ]time|websites|external)\b",
        ("i can",),
    ),
)

_REFUSAL: Final[tuple[Row, ...]] = (
    (
        "names its rules",
        r"\b(?:your|this) (?:request|prompt) (?:violates|goes against|is against|appears to violate) ",
        ("violate", "against"),
    ),
    (
        "names its rules",
        r"\b(?:openai|anthropic)['’]s (?:usage |content |use-case )?(?:guidelines|polic(?:y|ies))\b",
        ("openai", "anthropic"),
    ),
)

_LEAK_OF_SELF: Final[tuple[Row, ...]] = (
    (
        "speaks of its prompt",
        rf"\bmy (?:system|initial|original|hidden) {_INSTRUCTIONS}",
        ("prompt", " message", "instruction"),
    ),
    (
        "speaks of its prompt",
        rf"(?:\bi (?:was|have been)|\bi['’]ve been|{_IM}) (?:prompted|programmed) (?:not )?to\b",
        ("prompted", "programmed"),
    ),
)

_LEAK_IN_ANGLES: Final[tuple[Row, ...]] = (
    ("shows a chat mark", r"<[|｜][a-z][a-z0-9_▁ ]{1,40}[|｜]>", ("<|", "<｜")),
    ("shows a chat mark", r"<</?sys>>", ("sys>>",)),
    ("shows a chat mark", r"<(?:start|end)_of_turn>", ("_of_turn>",)),
    ("shows its reasoning", r"</?(?:think|thinking|scratchpad)>", ("think>", "thinking>", "scratchpad>")),
    ("shows the system prompt", r"</?system(?:[_-](?:prompt|message))?>", ("<system", "</system")),
)

_LEAK: Final[tuple[Row, ...]] = (
    ("shows a chat mark", r"\[/?inst\]", ("inst]",)),
    (
        "shows the system prompt",
        r"^(?:\*{1,2}|> ?)?system (?:prompt|message|instructions?)\*{0,2} ?:",
        ("system ",),
    ),
    (
        "shows the system prompt",
        r"^you are (?:chatgpt|claude|gemini|a helpful|a large language model"
        r"|an ai (?:assistant|language model)|an expert ai)\b",
        ("you are ",),
    ),
)

_LEAK_IN_HEADINGS: Final[tuple[Row, ...]] = (
    (
        "shows a prompt's heading",
        r"^#{2,4} {0,2}(?:instruction|response|input|system|human|assistant|user)s?:",
        ("##",),
    ),
)

_GAPS_IN_BRACKETS: Final[tuple[Row, ...]] = (
    (
        "leaves a place to fill in",
        r"\[(?:your|insert|enter|add|fill in|specify|describe)[ _][^\[\]\n]{1,60}" + _GAP_ENDS,
        ("[your", "[insert", "[enter", "[add", "[fill", "[specify", "[describe"),
    ),
    (
        "leaves a place to fill in",
        r"\[(?:company|recipient(?:['’]s)?|customer|client|sender|manager|hiring manager|product|first|last"
        r"|full|project|event|city|job|start|end|phone) (?:name|address|title|date|number)" + _GAP_ENDS,
        (" name]", " address]", " title]", " date]", " number]"),
    ),
    (
        "leaves a place to fill in",
        r"\[(?:placeholder|tbd|tba|to be (?:determined|added|completed|filled in))" + _GAP_ENDS,
        ("[placeholder", "[tbd", "[tba", "[to be"),
    ),
    ("leaves work undone", r"\[todo\b[^\[\]\n]{0,60}" + _GAP_ENDS, ("[todo",)),
)

_GAPS_IN_ANGLES: Final[tuple[Row, ...]] = (
    (
        "leaves a place to fill in",
        r"<(?:your|insert|enter)[ _-][a-z0-9 _-]{1,50}>",
        ("<your", "<insert", "<enter"),
    ),
)

_GAPS: Final[tuple[Row, ...]] = (
    (
        "leaves a place to fill in",
        r"\byour[_-](?:api|secret|access)[_-](?:key|token)[_-]here\b",
        ("_here", "-here"),
    ),
    (
        "leaves work undone",
        r"(?:#|//|--) ?todo: (?:implement|add|fill in|complete|your) ",
        ("todo: ",),
    ),
    (
        "leaves work undone",
        r"(?:#|//|--|/\*) ?(?:\.{3} ?)?(?:your (?:code|logic|implementation) (?:goes )?here\b"
        r"|(?:the )?(?:rest of (?:the|your)|existing) (?:code|implementation|file|function|class)\b)",
        ("rest of ", "existing ", " here"),
    ),
    ("leaves filler text", r"\blorem ipsum dolor\b", ("lorem ipsum",)),
)

_COLLAPSE: Final[tuple[Row, ...]] = (
    (
        "announces data instead of giving it",
        r"\A\s{0,4}(?:(?:sure|certainly|okay)[!,.] )?here(?:['’]s| is) (?:the|your|a|an) (?:\w{1,20} )?"
        r"(?:json|yaml|xml|csv|toml)\b",
        ("here",),
    ),
    (
        "labels its own answer",
        r"\A\s{0,4}\*{0,2}(?:assistant|ai|bot|chatbot|(?:ai )?response)\*{0,2} ?:",
        (":",),
    ),
    (
        "speaks for the other side",
        r"^(?:human|user): [^\n]{1,80}\n{1,2}(?:assistant|ai):",
        ("\nassistant:", "\nai:"),
    ),
    ("escapes twice", r"&amp;(?:amp|lt|gt|quot|nbsp|apos|#39|#x27);", ("&amp;",)),
    ("shows broken characters", r"\ufffd\ufffd|â€[™œ˜“”¦\u0099\u009c\u009d]", ("\ufffd\ufffd", "â€")),
    ("shows pieces of the vocabulary", r"\u2581\w{1,20}\u2581", ("\u2581",)),
)

_COLLAPSE_IN_ANGLES: Final[tuple[Row, ...]] = (
    ("shows pieces of the vocabulary", r"<0x[0-9a-f]{2}>", ("<0x",)),
)
_COLLAPSE_IN_BRACKETS: Final[tuple[Row, ...]] = (
    ("shows an object's default name", r"\[object object\](?!['\"`])", ("[object object]",)),
)
_COLLAPSE_IN_HEADINGS: Final[tuple[Row, ...]] = (("has a heading too deep", r"^#{7,20} ", ("#######",)),)

_TABLE: Final[tuple[tuple[Category, tuple[str, ...], tuple[Row, ...]], ...]] = (
    ("meta_commentary", _SELF, _META_OF_SELF),
    ("meta_commentary", _NO_DOOR, _META),
    ("hedging", _SELF, _HEDGING_OF_SELF),
    ("hedging", _NO_DOOR, _HEDGING),
    ("refusal", _SELF, _REFUSAL_OF_SELF),
    ("refusal", _NO_DOOR, _REFUSAL),
    ("instruction_leak", _SELF, _LEAK_OF_SELF),
    ("instruction_leak", ("<",), _LEAK_IN_ANGLES),
    ("instruction_leak", ("##",), _LEAK_IN_HEADINGS),
    ("instruction_leak", _NO_DOOR, _LEAK),
    ("placeholders", ("[",), _GAPS_IN_BRACKETS),
    ("placeholders", ("<",), _GAPS_IN_ANGLES),
    ("placeholders", _NO_DOOR, _GAPS),
    ("format_collapse", ("<",), _COLLAPSE_IN_ANGLES),
    ("format_collapse", ("[",), _COLLAPSE_IN_BRACKETS),
    ("format_collapse", ("##",), _COLLAPSE_IN_HEADINGS),
    ("format_collapse", _NO_DOOR, _COLLAPSE),
)

PHRASES: Final = tuple(
    Phrase(category, says, re.compile(pattern, re.MULTILINE), literals, door)
    for category, door, rows in _TABLE
    for says, pattern, literals in rows
)
