"""Strategic merge patches."""

from __future__ import annotations

from typing import Any

import pytest

from elasticdl.cli.kubernetes.manifests.patches import check_patches, merge
from elasticdl.shared.errors import UserError


@pytest.mark.parametrize(
    ("original", "patch", "expected"),
    [
        ({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"c": None, "e": 4}}, {"a": 1, "b": {"d": 3, "e": 4}}),
        ({"tolerations": [1]}, {"tolerations": [2]}, {"tolerations": [2]}),
        (
            {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
            {"env": [{"name": "B", "value": "3"}, {"name": "C", "value": "4"}]},
            {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "3"}, {"name": "C", "value": "4"}]},
        ),
        (
            {"volumes": [{"name": "a"}, {"name": "b"}]},
            {"volumes": [{"name": "a", "$patch": "delete"}]},
            {"volumes": [{"name": "b"}]},
        ),
        ({"b": {"c": 2, "d": 3}}, {"b": {"$patch": "replace", "e": 4}}, {"b": {"e": 4}}),
    ],
)
def test_a_patch_is_merged_as_the_api_server_does(
    original: dict[str, Any], patch: dict[str, Any], expected: dict[str, Any]
) -> None:
    before = repr(original)
    assert merge(original, patch) == expected
    assert repr(original) == before


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1], "holds no patches by section"),
        ({"workers": {}}, "unknown section 'workers'"),
        ({"worker": {"tolerations": []}}, "worker has the unknown field 'tolerations'"),
    ],
)
def test_a_file_with_something_else_is_refused(content: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_patches("spec.yaml", content)
