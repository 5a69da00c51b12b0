"""The headers of one MCP server: found for each request, and taken out of what the server says."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from app.adapters.mcp.answer import MAX_WORDS, NOTHING, Answer, words_in
from app.adapters.mcp.trouble import Kind, Trouble
from app.adapters.tools.headers import (
    NOT_CONFIGURED,
    SecretOf,
    Unsendable,
    secrets_in,
    sent_headers,
    sure_secrets_in,
)
from app.core.errors import CredentialUnreadable, UnknownCredential
from app.core.masking import Mask

REMEMBERED: Final = 4
"""How many sets of values are hidden: a call that sent the former ones may be answered after a change."""

_KINDS: Final = {
    NOT_CONFIGURED: Kind.NOT_CONFIGURED,
    UnknownCredential.code.upper(): Kind.NO_CREDENTIAL,
    CredentialUnreadable.code.upper(): Kind.UNREADABLE,
}
"""What a header without a value means; any other fault is one that may pass before anything is sent."""


class ServerHeaders:
    """What was chosen for a server, with the values of the moment."""

    def __init__(
        self, chosen: Mapping[str, str], exposed: Mapping[str, str | None], secret_of: SecretOf
    ) -> None:
        """`exposed` are the variables that may be named."""
        self._chosen = chosen
        self._exposed = exposed
        self._secret_of = secret_of
        self._sent: deque[dict[str, str]] = deque(maxlen=REMEMBERED)
        self._any = Mask(())
        self._sure: Mask | None = None

    async def now(self) -> Mapping[str, str]:
        """What is to be sent with a request, names in lower case. Raises Trouble for what cannot be."""
        try:
            found = await sent_headers(self._chosen, self._exposed, self._secret_of)
        except Unsendable as error:
            raise Trouble(_KINDS.get(error.type, Kind.NOT_SENT), str(error)) from None
        if found not in self._sent:
            self._sent.append(found)
            self._any = Mask({part for sent in self._sent for part in secrets_in(sent)})
            sure = {part for sent in self._sent for part in sure_secrets_in(sent, self._chosen)}
            self._sure = Mask(sure) if sure else None
        return found

    def told(self, words: str) -> str:
        """Words about a failure, `MAX_WORDS` code points at most, without any value that was sent."""
        told: str = self._any.all(words[: 4 * MAX_WORDS])  # Looking for pieces is slow.
        return told[:MAX_WORDS]

    def shown(self, answer: Answer) -> Answer:
        """An answer without what was sent as a secret; one that tells a failure, without any value."""
        if answer.is_error:
            return replace(answer, content=[{"type": "text", "text": self.told(words_in(answer.content))}])
        if self._sure is None:
            return answer
        structured = NOTHING if answer.structured is NOTHING else self._sure.whole(answer.structured)
        return replace(answer, content=self._sure.whole(list(answer.content)), structured=structured)
