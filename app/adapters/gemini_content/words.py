"""The names of the options that the Gemini API takes, and where each of them stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

GENERATION_OPTIONS: Final = frozenset(
    {
        "audioTimestamp",
        "enableEnhancedCivicAnswers",
        "frequencyPenalty",
        "imageConfig",
        "logprobs",
        "maxOutputTokens",
        "mediaResolution",
        "presencePenalty",
        "responseJsonSchema",
        "responseLogprobs",
        "responseMimeType",
        "responseModalities",
        "responseSchema",
        "routingConfig",
        "seed",
        "speechConfig",
        "stopSequences",
        "temperature",
        "thinkingConfig",
        "topK",
        "topP",
    }
)
"""Options that stand in `generationConfig`. There is no `candidateCount`: one answer is read."""

REQUEST_OPTIONS: Final = frozenset({"cachedContent", "labels", "safetySettings", "serviceTier", "toolConfig"})
"""Options that stand beside it."""


def unknown_options(options: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The path of each option that the API does not have.

    Those of `generationConfig` may be given inside of it or by themselves.
    """
    unknown: list[tuple[str, ...]] = []
    for name, value in options.items():
        if name == "generationConfig" and isinstance(value, Mapping):
            unknown += [(name, inner) for inner in value if inner not in GENERATION_OPTIONS]
        elif name not in GENERATION_OPTIONS | REQUEST_OPTIONS:
            unknown.append((name,))
    return unknown


def placed(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Known options, as those that stand in the request itself and those of `generationConfig`."""
    beside = {name: value for name, value in options.items() if name in REQUEST_OPTIONS}
    inside = {name: value for name, value in options.items() if name in GENERATION_OPTIONS}
    return beside, {**options.get("generationConfig", {}), **inside}
