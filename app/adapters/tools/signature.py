"""The JSON Schema of a Python function's arguments, and the way from JSON to what it expects."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from pydantic_core import PydanticSerializationError

from app.adapters.plugins import BadPlugin
from app.core.json_schema import SchemaError
from app.core.json_text import pointer

_Kind = inspect.Parameter


class InvalidTool(BadPlugin):
    """The declaration of a tool makes no sense; says which tool and what to change."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """What a function takes."""

    parameters: Mapping[str, Any]
    """JSON Schema, an object."""
    adapters: Mapping[str, TypeAdapter[Any]]
    """For each argument, the way from JSON to its annotated type; empty with a schema given by hand."""

    def convert(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as the function expects them; those that were not given stay so.

        Raises `Unconvertible`.
        """
        converted: dict[str, Any] = {}
        faults: list[SchemaError] = []
        for name, value in arguments.items():
            adapter = self.adapters.get(name)
            try:
                converted[name] = value if adapter is None else adapter.validate_python(value)
            except ValidationError as error:
                faults += [
                    SchemaError(pointer(name, *fault["loc"]), fault["msg"])
                    for fault in error.errors(include_url=False, include_context=False, include_input=False)
                ]
        if faults:
            raise Unconvertible(faults)
        return converted


class Unconvertible(Exception):
    """Arguments that satisfy the schema and still cannot be made into what the function is annotated with."""

    def __init__(self, faults: list[SchemaError]) -> None:
        super().__init__("; ".join(f"{fault.pointer}: {fault.message}" for fault in faults))
        self.faults = faults


def arguments_of(name: str, func: Callable[..., Any], given: Mapping[str, Any] | None) -> Arguments:
    """Read the signature of tool `name`; a schema that is `given` counts alone. Raises `InvalidTool`."""
    signature = _signature(name, func)
    named = _named_parameters(name, signature, open_ended=given is not None)
    if given is not None:
        return Arguments(given, {})
    adapters = {key: _adapter(name, parameter) for key, parameter in named.items()}
    schemas, defs = TypeAdapter.json_schemas([(key, "validation", adapters[key]) for key in adapters])
    properties = {
        key: {**schemas[key, "validation"], **_default(parameter, adapters[key])}
        for key, parameter in named.items()
    }
    required = [key for key, parameter in named.items() if parameter.default is _Kind.empty]
    return Arguments(
        {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
            **({"$defs": defs["$defs"]} if "$defs" in defs else {}),
        },
        adapters,
    )


def _signature(name: str, func: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(func, eval_str=True)
    except (NameError, AttributeError, SyntaxError) as error:
        raise InvalidTool(f"tool {name!r}: an annotation cannot be resolved: {error}") from None
    except (TypeError, ValueError):
        raise InvalidTool(f"tool {name!r}: {func!r} has no signature; wrap it in a function") from None


def _named_parameters(
    name: str, signature: inspect.Signature, *, open_ended: bool
) -> dict[str, inspect.Parameter]:
    """The parameters that can be given by name, which is how every tool is called."""
    named: dict[str, inspect.Parameter] = {}
    for key, parameter in signature.parameters.items():
        match parameter.kind:
            case _Kind.POSITIONAL_ONLY:
                raise InvalidTool(f"tool {name!r}: {key!r} is positional-only; tools are called by name")
            case _Kind.VAR_POSITIONAL:
                raise InvalidTool(f"tool {name!r}: *{key} cannot be given by name; take a list instead")
            case _Kind.VAR_KEYWORD:
                if not open_ended:
                    raise InvalidTool(
                        f"tool {name!r}: **{key} needs `parameters`, a JSON Schema given by hand"
                    )
            case _:
                named[key] = parameter
    return named


def _adapter(name: str, parameter: inspect.Parameter) -> TypeAdapter[Any]:
    annotation = Any if parameter.annotation is _Kind.empty else parameter.annotation
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(annotation)
        adapter.json_schema()
    except (PydanticSchemaGenerationError, PydanticUserError):
        raise InvalidTool(
            f"tool {name!r}: {parameter.name!r} has a type without a JSON form; annotate it otherwise, "
            "or give `parameters`"
        ) from None
    return adapter


def _default(parameter: inspect.Parameter, adapter: TypeAdapter[Any]) -> dict[str, Any]:
    """The default, for models to see; it is the function that applies it."""
    if parameter.default is _Kind.empty:
        return {}
    try:
        return {"default": adapter.dump_python(parameter.default, mode="json", warnings="error")}
    except (PydanticSerializationError, ValueError, TypeError):
        return {}
