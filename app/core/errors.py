"""What can go wrong for a caller: a stable code and a category; only the HTTP edge knows statuses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar


class Category(StrEnum):
    """What kind of trouble it is; `api/problems.py` maps each to one HTTP status."""

    MALFORMED = "malformed"
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"
    CONFLICT = "conflict"
    GONE = "gone"
    PRECONDITION = "precondition"
    TOO_LARGE = "too_large"
    HEAD_TOO_LARGE = "head_too_large"
    UNSUPPORTED_MEDIA = "unsupported_media"
    INVALID = "invalid"
    TOOL_FAILED = "tool_failed"
    TOO_MANY = "too_many"
    INTERNAL = "internal"
    UPSTREAM = "upstream"
    UNAVAILABLE = "unavailable"
    TIMEOUT = "timeout"


@dataclass(frozen=True, slots=True)
class FieldError:
    """One fault in a request body."""

    pointer: str
    """RFC 6901 JSON Pointer to the offending value, "" for the whole body."""
    message: str
    """What is wrong with it and what would be right."""
    code: str = "invalid"
    """Stable word for programs, for example `missing` or `unknown_field`."""
    parameter: str | None = None
    """Name of the query parameter or header at fault, when it is not the body."""


class AppError(Exception):
    """A fault that the caller is told about; subclasses set `code` and `category`."""

    code: ClassVar[str] = "internal"
    category: ClassVar[Category] = Category.INTERNAL
    retryable: ClassVar[bool] = False

    def __init__(
        self,
        detail: str,
        *,
        errors: Sequence[FieldError] = (),
        extra: dict[str, Any] | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        """`detail` says what happened and what to do; `extra` becomes further members of the problem."""
        super().__init__(detail)
        self.detail = detail
        self.errors = tuple(errors)
        self.extra = extra or {}
        self.retry_after_s = retry_after_s


class NotFound(AppError):
    """The named thing does not exist, or belongs to another project."""

    code = "not_found"
    category = Category.NOT_FOUND


class Invalid(AppError):
    """The request is well-formed but asks for something that cannot be done."""

    code = "invalid_request"
    category = Category.INVALID


class UnsupportedOption(Invalid):
    """An option that this version of Branchline does not offer."""

    code = "unsupported_option"


class UnknownModel(Invalid):
    """No model of this name is registered in the project."""

    code = "unknown_model"


class UnknownTool(Invalid):
    """No tool of this name is registered in the project."""

    code = "unknown_tool"


class UnknownCredential(Invalid):
    """No credential of this name is stored in the project."""

    code = "unknown_credential"


class KeyReused(Invalid):
    """An idempotency key came back with another request."""

    code = "idempotency_key_reused"


class Malformed(AppError):
    """The request could not be read."""

    code = "malformed_request"
    category = Category.MALFORMED


class InvalidJson(Malformed):
    """The body is no JSON that Branchline takes: broken, nested too deeply, or not storable."""

    code = "invalid_json"


class InvalidCursor(Malformed):
    """The `after` of a list is none that a page of this list gave out."""

    code = "invalid_cursor"


class BodyTooLarge(AppError):
    """The body has more bytes than this server takes."""

    code = "body_too_large"
    category = Category.TOO_LARGE


class HeadersTooLarge(AppError):
    """The line and the headers of the request have more bytes than this server takes."""

    code = "headers_too_large"
    category = Category.HEAD_TOO_LARGE


class UnsupportedMedia(AppError):
    """The body is not `application/json` in UTF-8."""

    code = "unsupported_media_type"
    category = Category.UNSUPPORTED_MEDIA


class Conflict(AppError):
    """The request contradicts the present state."""

    code = "conflict"
    category = Category.CONFLICT


class BranchBusy(Conflict):
    """Another run is active on the branch."""

    code = "branch_busy"
    retryable = True


class RunEnded(Conflict):
    """The run has reached a terminal status and takes no further input."""

    code = "run_already_ended"


class AlreadyDecided(Conflict):
    """Somebody else decided first, or nobody is asked any more."""

    code = "already_decided"


class CallNotWaiting(Conflict):
    """Nobody waits for the result of the call any more."""

    code = "call_not_waiting"


class AlreadyAnswered(Conflict):
    """Another result of the call was there first."""

    code = "already_answered"


class CallLeased(Conflict):
    """Another worker has the call at present."""

    code = "call_leased"
    retryable = True


class ClaimLost(Conflict):
    """The lease was over, and somebody else has claimed the call since."""

    code = "claim_lost"


class ArgumentsDiffer(Conflict):
    """The call has other arguments than those that the result is said to be for."""

    code = "arguments_differ"


class LegalHold(Conflict):
    """What is to be deleted or replaced is under a legal hold."""

    code = "legal_hold"


class NoSealingKey(Conflict):
    """A secret is to be stored, and the operator has set no key to seal it with."""

    code = "no_sealing_key"


class EventsGone(AppError):
    """The events that were asked for are older than is kept of the log."""

    code = "events_gone"
    category = Category.GONE


class PreconditionFailed(AppError):
    """The branch has changed since the version named by If-Match."""

    code = "precondition_failed"
    category = Category.PRECONDITION


class Unauthenticated(AppError):
    """No API key, or one that is unknown, revoked or expired."""

    code = "unauthenticated"
    category = Category.UNAUTHENTICATED


class Forbidden(AppError):
    """The key lacks the scope, or the request comes from a place that is not allowed."""

    code = "forbidden"
    category = Category.FORBIDDEN


class TooMany(AppError):
    """A limit on rate or number was reached."""

    code = "too_many_requests"
    category = Category.TOO_MANY
    retryable = True


class QueueFull(TooMany):
    """Too many runs wait for the branch, or in the project."""

    code = "queue_full"


class Unavailable(AppError):
    """Something that the service needs is out of reach for now."""

    code = "unavailable"
    category = Category.UNAVAILABLE
    retryable = True


class CredentialUnreadable(AppError):
    """A stored secret does not open with the keys that the operator has set."""

    code = "credential_unreadable"
    category = Category.UNAVAILABLE
