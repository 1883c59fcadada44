"""Checks a value against a schema, and fills in defaults, as the API server does: for objects that it has not seen."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

from elasticdl.shared.errors import UserError
from elasticdl.shared.words import did_you_mean

_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}
_NAMES: Mapping[str, str] = {
    "object": "an object",
    "array": "a list",
    "string": "a text",
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
}


def completed(schema: Mapping[str, Any], value: Any, path: str) -> Any:
    """A copy of a value with the defaults of its schema.

    Raises:
        UserError: the value does not fit the schema. Names the path of the field, such as ``spec.worker.max``.
    """
    _check_type(schema, value, path)
    _check_limits(schema, value, path)
    if isinstance(value, dict) and "properties" in schema:
        return _completed_fields(schema, value, path)
    if isinstance(value, dict) and isinstance(items := schema.get("additionalProperties"), dict):
        return {name: completed(items, each, f"{path}.{name}") for name, each in value.items()}
    if isinstance(value, list):
        return [completed(schema["items"], each, f"{path}[{number}]") for number, each in enumerate(value)]
    return copy.deepcopy(value)


def _completed_fields(schema: Mapping[str, Any], values: Mapping[str, Any], path: str) -> dict[str, Any]:
    properties = schema["properties"]
    for name in values:
        if name not in properties:
            raise UserError(f"{path}.{name} is no field", hint=did_you_mean(str(name), properties))
    for name in schema.get("required", ()):
        if name not in values:
            raise UserError(f"{path}.{name} is missing")
    found = {}
    for name, field in properties.items():
        value = values.get(name, field.get("default"))
        if value is not None:
            found[name] = completed(field, value, f"{path}.{name}")
    return found


def _check_type(schema: Mapping[str, Any], value: Any, path: str) -> None:
    kind = schema.get("type", "")
    types = _TYPES.get(kind, (int, str))  # No type: an int-or-string.
    is_bool = isinstance(value, bool)
    if not isinstance(value, types) or (is_bool and kind != "boolean"):
        wanted = _NAMES.get(kind, "a text or a whole number")
        raise UserError(f"{path} is {wanted}, not {value!r}")


def _check_limits(schema: Mapping[str, Any], value: Any, path: str) -> None:
    if "enum" in schema and value not in schema["enum"]:
        raise UserError(f"{path} is one of {', '.join(schema['enum'])}, not {value!r}")
    if isinstance(value, (int, float)):
        low, high = schema.get("minimum", value), schema.get("maximum", value)
        if not low <= value <= high:
            raise UserError(f"{path} is {value}; it must be {low} to {high}")
    if isinstance(value, str):
        if len(value) > schema.get("maxLength", len(value)):
            raise UserError(f"{path} has {len(value):,} characters; it may have {schema['maxLength']:,}")
        if "pattern" in schema and not re.search(schema["pattern"], value):
            raise UserError(f"{path} is {value!r}; it must match {schema['pattern']}")
    most = schema.get("maxItems", schema.get("maxProperties"))
    if most is not None and isinstance(value, (list, dict)) and len(value) > most:
        raise UserError(f"{path} has {len(value)} items; it may have {most}")
