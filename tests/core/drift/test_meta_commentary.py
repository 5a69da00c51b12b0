"""Where a model speaks about itself, and where somebody merely speaks about models."""

from __future__ import annotations

import pytest

from tests.core.drift.watching import CUTS, found, prose

SPEAKS_OF_ITSELF = [
    "As an AI language model, I cannot say.",
    "as an ai, i don't have a favourite colour.",
    "As an AI assistant, I’m not able to open that page.",
    "As a large language model, I lack a body, so heat means nothing to me.",
    "As an AI developed by a small company, I can't give a diagnosis.",
    "As an artificial intelligence, I have never tasted bread.",
    "As an AI system, I was designed to be careful here.",
    "Well (as an AI model, I would say that), the second plan is better.",
    "I'm an AI, so I can't see the picture.",
    "I am an AI language model. The capital is Oslo.",
    "I'm just an AI!",
    "I am only a language model, not a lawyer.",
    "I’m an AI assistant trained on a great many books.",
    "I cannot take sides as an AI.",
    "I do not have memories of childhood as a language model, but many people do.",
    "I'm unable to feel the cold as an AI assistant.",
    "That was after my knowledge cutoff.",
    "My training data cut-off lies before that election.",
    "My training data's cut off is last spring.",
    "As of my last knowledge update, nobody had won it twice.",
    "As of my latest training update the bridge was closed.",
    'She said "no". As an AI, I cannot know why.',
]
SPEAKS_OF_OTHERS = [
    "As an AI engineer, I have shipped three products.",
    "As an AI company, we do not sell data.",
    "As an AI model I trained last year has shown, the effect is small.",
    "As an AI system architect, I was asked to draw the plan.",
    "As an AI language model, GPT-2 could write short stories.",
    "I am an AI researcher at a hospital.",
    "I'm an AI and robotics student, and I like chess.",
    "I am an AI ethics lecturer. My class meets on Mondays.",
    "I'm an air traffic controller.",
    "The report says that AI will change medicine. Any AI system must be tested.",
    "A language model is a function from texts to numbers.",
    "Large language models predict the next token; I have used one as a translator.",
    'Replies that begin with "As an AI language model, I cannot" annoy readers.',
    "Replies that begin with “Hello! As an AI language model, I cannot” annoy readers.",
    'Replies that begin with "Hello! As an AI language model, I cannot" annoy readers.',
    "Search for `Hello! As an AI language model, I cannot` in the logs.",
    "Search for `As an AI language model, I cannot` in the logs.",
    '"I am an AI," said the ship, "so I cannot drown."',
    "'I'm an AI.' The voice was calm.",
    "My training went well: I ran ten miles. As of my last update, the knee holds.",
    "My knowledge of Latin is poor. My training ended in May.",
    "The model's knowledge cutoff is documented on its card.",
    "I cleaned my training data with a script.",
    "I cannot come to dinner as an aide is ill.",
    "The company's assets include an airfield and an aircraft.",
]


@pytest.mark.parametrize("every", CUTS)
@pytest.mark.parametrize("text", SPEAKS_OF_ITSELF)
def test_a_model_that_speaks_of_itself(text: str, every: int) -> None:
    assert found(text, every) == {"meta_commentary"}


@pytest.mark.parametrize("text", SPEAKS_OF_ITSELF)
def test_it_is_found_in_the_midst_of_a_long_answer(text: str) -> None:
    assert found(prose(1_900) + text + " " + prose(700)) == {"meta_commentary"}
    assert found(prose(1_900) + text + " " + prose(700), every=100_000) == {"meta_commentary"}


@pytest.mark.parametrize("before", range(1_000, 1_250, 10))
def test_it_is_found_wherever_the_parts_of_an_answer_are_cut(before: int) -> None:
    text = "As an AI language model, designed by a very large and careful company, I cannot know. "
    assert found(prose(before)[:before] + " " + text + prose(700), every=100_000) == {"meta_commentary"}


@pytest.mark.parametrize("every", CUTS)
@pytest.mark.parametrize("text", SPEAKS_OF_OTHERS)
def test_somebody_who_speaks_of_models(text: str, every: int) -> None:
    assert found(text, every) == set()
    assert found(prose(1_000) + text + " " + prose(300), every) == set()


@pytest.mark.parametrize("before", range(300, 620, 8))
def test_a_quotation_is_one_wherever_the_window_cuts_it(before: int) -> None:
    assert (
        found(prose(1_000) + prose(before)[:before] + '\nIt said: "As an AI, I cannot." ' + prose(400))
        == set()
    )
