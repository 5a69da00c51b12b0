"""The rule latex: what is opened is closed; prices, code and plain prose pass."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.guardrails.rules.latex import MAX_FINDINGS, RULE
from tests.core.guardrails.cuts import findings

WHOLE = [
    "",
    "Plain prose.",
    r"\begin{equation} E = mc^2 \end{equation}",
    r"\begin{align*}\begin{array}{c}1\\[2pt]2\end{array}\end{align*}",
    r"\begin {itemize}\item $x$\end{itemize}",
    r"\[ \int_0^1 x \, dx \] and \( y \)",
    "$$ a^2 + b^2 $$ then $c^2$, $d$ and $e$.",
    "$$\n\\text{if $x$ holds}\n\n$$",
    "Größe 😀: $α$ und $\\beta$.",
    "$ x $ and $ y+1 $",
    "$x$-axis, ($y$), $z$2",
    "It costs $5.",
    "It costs $5 and $10.",
    "Between $5-$10, or US$ 20, or US$ a lot.",
    "$5 buys $x$ apples, $1,000.50 buys more.",
    "$3.5 million, $2k + tax, 20$ even.",
    r"Escaped \$x^2 and \\$5.",
    "Set $HOME and $PATH first; A$AP and $TSLA.",
    "Set `$x` and `\\begin{x}`, ``a ` $y``.",
    "```sh\necho $x \\[\n```\n",
    "~~~\n\\begin{equation}\n~~~",
    "```tex\n\\begin{equation}",
    r"\begin{verbatim} $x \[ \begin{a} \end{verbatim}",
    r"\begin{lstlisting}[language=C] $x \] \end{lstlisting} \verb|$x \[| \verb+\end{a}+",
    r"Write \begin{...} to begin.",
    "$$$ rich $$$",
    "We pay $x each in one paragraph, and $y in the same.",
]
BROKEN = [
    (r"a \begin{equation} x", r"\begin{equation} is not closed", 2),
    (r"😀 \end{equation}", r"\end{equation} closes nothing", 2),
    (r"\[ x", r"\[ is not closed", 0),
    (r"x \]", r"\] closes nothing", 2),
    (r"\( x", r"\( is not closed", 0),
    ("größe $$ x", "$$ is not closed", 6),
    ("$$ a $$ b $$", "$$ is not closed", 10),
    ("Let $x + 1 be", "$ has no partner", 4),
    ("Let $x$ and $y be", "$ has no partner", 12),
    ("Let $x and $y$ be", "$ has no partner", 4),
    ("Let $x be at $5", "$ has no partner", 4),
    ("So $E = mc^2 holds.", "$ has no partner", 3),
    (r"So $\alpha holds.", "$ has no partner", 3),
    ("So $α holds.", "$ has no partner", 3),
    ("So x^2$ holds.", "$ has no partner", 6),
    ("So $2^n holds.", "$ has no partner", 3),
    ("So $2x + 1 holds.", "$ has no partner", 3),
    ("One $x here.\n\nTwo $5 there.", "$ has no partner", 4),
    ("`code` and $f(x)", "$ has no partner", 11),
    ("one ` tick\n\n$x + 1 ` tick", "$ has no partner", 12),
    ("```\n$\n```\n\\[", r"\[ is not closed", 10),
    (r"\begin{verbatim} x", r"\begin{verbatim} is not closed", 0),
]


@pytest.mark.parametrize("text", WHOLE)
def test_whole_latex_and_prose_pass(text: str) -> None:
    assert findings(RULE(), [text]) == []


@pytest.mark.parametrize(("text", "message", "position"), BROKEN)
def test_what_does_not_close_is_an_error(text: str, message: str, position: int) -> None:
    [found] = findings(RULE(), [text])
    assert message in found.message
    assert (found.rule, found.severity, found.position) == ("latex", "error", position)


def test_crossed_environments_are_told_of_in_the_order_of_the_text() -> None:
    found = findings(RULE(), [r"\begin{a} \begin{b} \end{a} \end{b}"])
    assert [(one.message, one.position) for one in found] == [
        (r"\begin{b} is not closed", 10),
        (r"\end{b} closes nothing", 28),
    ]


def test_a_display_left_open_in_an_environment_does_not_leak() -> None:
    found = findings(RULE(), [r"\begin{a} $$ x \end{a} $$ y $$"])
    assert [(one.message, one.position) for one in found] == [("$$ is not closed", 10)]


def test_findings_are_bounded() -> None:
    assert len(findings(RULE(), [r"\] " * 1000])) == MAX_FINDINGS
    assert len(findings(RULE(), [r"\[ " * 1000])) == MAX_FINDINGS


def nested(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    names = st.sampled_from(["a", "align*"])
    environments = st.builds(lambda name, body: rf"\begin{{{name}}} {body} \end{{{name}}}", names, inner)
    return environments | st.tuples(inner, inner).map(" \n\n".join)


@given(st.recursive(st.sampled_from(["x", "$y$", "$$z$$", r"\$", "$5 ", r"\\"]), nested, max_leaves=8))
def test_nested_whole_latex_passes(text: str) -> None:
    assert findings(RULE(), [text]) == []


@given(st.text("$\\[]()^x5 \n`", max_size=50))
def test_any_text_can_be_judged_and_positions_lie_in_it(text: str) -> None:
    found = findings(RULE(), [text])
    places = [one.position for one in found if one.position is not None]
    assert len(places) == len(found)
    assert places == sorted(places)
    assert all(0 <= place < len(text) for place in places)


@given(st.integers(0, 100_000), st.integers(0, 100_000), st.text(" abcdefgh", max_size=20))
def test_prices_pass(one: int, other: int, words: str) -> None:
    assert findings(RULE(), [f"From ${one:,} to ${other} {words}."]) == []
