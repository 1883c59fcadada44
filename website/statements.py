"""The tables of docs/sql.md, from the declarations that statements are checked with.

``python -m website.statements`` writes them into the page.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from elasticdl.sql.attributes import EVALUATE, PREDICT, TRAIN, attribute_table
from elasticdl.sql.columns.functions import FUNCTIONS
from elasticdl.sql.network.catalogue import NETWORKS, TRAINING, Argument
from website.markdown import table

PAGE = Path(__file__).resolve().parents[1] / "docs" / "sql.md"
_BLOCK = re.compile(r"(<!-- table: (\w+) -->\n)(.*?)(<!-- end of table -->)", re.DOTALL)


def tables() -> dict[str, str]:
    """Name -> table in Markdown."""
    return {"attributes": _attributes(), "functions": _functions(), "networks": _networks(), "arguments": _arguments()}


def with_tables(page: str) -> str:
    """A page whose tables are those of the code."""
    known = tables()
    return _BLOCK.sub(lambda block: f"{block[1]}\n{known[block[2]].strip()}\n\n{block[4]}", page)


def _attributes() -> str:
    verbs = (TRAIN, PREDICT, EVALUATE)
    found = {verb: attribute_table(verb) for verb in verbs}
    names = dict.fromkeys(name for verb in verbs for name in found[verb])
    rows = []
    for name in sorted(names, key=lambda name: ("." not in name, name)):
        takes = [verb for verb in verbs if name in found[verb]]
        each = found[takes[0]][name]
        kind = " or ".join(f"`{choice}`" for choice in each.choices) or each.kind
        defaults = dict.fromkeys(found[verb][name].default for verb in takes)
        default = ", ".join(text if " " in text else f"`{text}`" for text in defaults if text)
        rows.append((f"`{name}`", kind, default, "all" if len(takes) == len(verbs) else ", ".join(takes), each.meaning))
    return table(("attribute", "value", "default", "statements", "meaning"), rows)


def _functions() -> str:
    rows = []
    for name, function in FUNCTIONS.items():
        given = ", ".join([_SUBJECTS[function.of], *(_argument(*each) for each in function.arguments.items())])
        rows.append((f"`{name}({given})`", function.meaning))
    return table(("function", "meaning"), rows)


_SUBJECTS = {"column": "column", "category": "category", "categories": "category, ..."}


def _argument(name: str, default: Any) -> str:
    return name if default is ... else f"{name}={'by the data' if default is None else repr(default)}"


def _networks() -> str:
    rows = [(f"`{name}`", ", ".join(f"`model.{each}`" for each in arguments)) for name, arguments in NETWORKS.items()]
    return table(("model", "arguments of its own"), rows)


def _arguments() -> str:
    known: dict[str, Argument] = dict(TRAINING)
    for own in NETWORKS.values():
        known |= own
    rows = [
        (f"`model.{name}`", _KINDS.get(each.kind, each.kind), _default(each), each.meaning)
        for name, each in known.items()
    ]
    return table(("argument", "value", "default", "meaning"), rows)


_KINDS = {"ints": "list of integers", "int": "integer", "float": "number", "text": "string"}


def _default(argument: Argument) -> str:
    return "by the data" if argument.default is None else f"`{argument.default}`"


def main() -> None:
    """Write the tables into the page."""
    PAGE.write_text(with_tables(PAGE.read_text()))
    sys.stdout.write(f"{PAGE} has the tables of the code\n")


if __name__ == "__main__":
    main()
