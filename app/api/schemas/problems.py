"""Problems as clients see them."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from app.api.schemas.common import View


class ProblemError(View):
    """One fault of the request."""

    pointer: str = Field(description='RFC 6901 pointer into the body, "" for the whole or for no body.')
    message: str
    code: str = Field(description="Stable word for programs.")
    parameter: str | None = Field(
        None, description="The query parameter or header at fault; absent for bodies."
    )


class Problem(View):
    """Why a request was refused or failed (RFC 9457); some kinds carry further members."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "examples": [
                {
                    "type": "/problems/branch_busy",
                    "title": "Branch busy",
                    "status": 409,
                    "detail": "A run is active or queued on this branch; wait for its end, or cancel it.",
                    "code": "branch_busy",
                    "errors": [],
                    "request_id": "019a0000-0000-7000-8000-00000000000a",
                    "retryable": True,
                }
            ]
        },
    )

    type: str = Field(description="Address, on this server, of the explanation of the code.")
    title: str
    status: int
    detail: str = Field(description="What happened, and what to do.")
    code: str = Field(description="Stable word for programs.")
    errors: list[ProblemError]
    request_id: str | None = Field(description="As in X-Request-Id; the server's log has it too.")
    retryable: bool = Field(description="Whether the same request may succeed later.")


class ProblemType(View):
    """What a code means."""

    code: str
    status: int
    category: str
    retryable: bool
    description: str


class ProblemTypeList(View):
    """Every code."""

    data: list[ProblemType]
