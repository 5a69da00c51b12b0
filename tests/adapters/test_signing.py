"""Signing with secrets of the environment and of a project, and what cannot be signed."""

from __future__ import annotations

from uuid import UUID

import pytest
from standardwebhooks import Webhook

from app.core.errors import NotFound
from app.core.signing import Signing
from app.core.webhooks import secret_of
from app.ports.signing import NotSigned
from tests.support.network import signing

pytestmark = pytest.mark.anyio

PROJECT = UUID(int=1)
SECRET, OTHER = secret_of(b"s" * 32), secret_of(b"o" * 32)
BODY = '{"text": "ä"}'.encode()


class Stored:
    """The credentials of one project."""

    async def secret(self, project_id: UUID, name: str) -> str:
        """See the port."""
        if project_id != PROJECT or name != "shop":
            raise NotFound("There is no credential of this name in this project.")
        return OTHER + "\n"


SIGNER = signing({"SIGNING": f" {SECRET}\n", "EMPTY": "", "UNSET": None, "PLAIN": "a password"}, Stored())


@pytest.mark.parametrize(
    ("said", "secret"), [(Signing(env="SIGNING"), SECRET), (Signing(credential="shop"), OTHER)]
)
async def test_what_is_signed_can_be_verified(said: Signing, secret: str) -> None:
    headers = await SIGNER.headers(said, PROJECT, BODY, id="call-1")
    assert headers["webhook-id"] == "call-1"
    assert Webhook(secret).verify(BODY, headers) == {"text": "ä"}


async def test_what_is_not_sent_again_has_an_id_of_its_own() -> None:
    ids = [(await SIGNER.headers(Signing(env="SIGNING"), PROJECT, BODY))["webhook-id"] for _ in range(3)]
    assert len(set(ids)) == 3


async def test_nothing_is_signed_where_nothing_says_so() -> None:
    assert await SIGNER.headers(None, PROJECT, BODY) == {}


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (Signing(env="EMPTY"), "'EMPTY' has no value"),
        (Signing(env="UNSET"), "'UNSET' has no value"),
        (Signing(env="PATH"), "'PATH' has no value"),
        (Signing(env="PLAIN"), "'PLAIN' holds is no signing secret"),
        (Signing(credential="gone"), "'gone' cannot be read: There is no credential"),
    ],
)
async def test_what_cannot_be_signed_says_why_and_tells_no_secret(said: Signing, words: str) -> None:
    with pytest.raises(NotSigned) as caught:
        await SIGNER.headers(said, PROJECT, BODY)
    assert words in str(caught.value)
    assert "a password" not in str(caught.value)


async def test_a_credential_is_looked_for_in_the_project_of_the_call() -> None:
    with pytest.raises(NotSigned):
        await SIGNER.headers(Signing(credential="shop"), UUID(int=2), BODY)


async def test_a_server_without_credentials_says_so() -> None:
    with pytest.raises(NotSigned, match="keeps none"):
        await signing({}).headers(Signing(credential="shop"), PROJECT, BODY)
