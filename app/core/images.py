"""What may stand for an image: an address that the model's server fetches, or the image itself."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Annotated, Final, Protocol, cast

from pydantic import AfterValidator, ValidationInfo

MAX_IMAGES: Final = 20
"""Images of one message."""

_DATA: Final = re.compile(r"data:image/[a-zA-Z0-9.+-]+(?P<parameters>(?:;[^,;]*)*),(?P<data>.*)", re.DOTALL)


class Outside(Protocol):
    """What only the running service knows; the context in which a body is validated."""

    def address_fault(self, url: str) -> str | None:
        """What is wrong with an address that is to be reached."""


def data_fault(url: str) -> str | None:
    """What is wrong with a data URL of an image."""
    found = _DATA.fullmatch(url)
    if found is None or not found["data"]:
        return "the data URL of an image says its type, as data:image/png;base64,… does, and has data"
    if found["parameters"].lower().endswith(";base64"):
        try:
            base64.b64decode("".join(found["data"].split()), validate=True)
        except (binascii.Error, ValueError):
            return "the data of this data URL is no base64"
    return None


def _checked(url: str, info: ValidationInfo) -> str:
    # What was stored has been judged when it came.
    if info.context is None:
        return url
    is_data = url.startswith("data:")
    if fault := data_fault(url) if is_data else cast(Outside, info.context).address_fault(url):
        raise ValueError(fault)
    return url


Image = Annotated[str, AfterValidator(_checked)]
"""An http or https address, judged as it is written, or a data URL. Nothing is fetched by the service."""
