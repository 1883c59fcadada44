"""The site of the documentation: its reference is complete, and documents keep their form and their links."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml
from tests.unit.test_words import WORDS
from website import api, commands, decisions, events, layers, report, settings, training_job
from website.links import rewrite_links
from website.markdown import indent_lists, keep_flags_whole, parse_docstring, table

from elasticdl import api as python_api
from elasticdl.cli.main import app
from elasticdl.shared.kubernetes.training_job.job_schema import job_schema
from elasticdl.shared.messages.events import Event, TaskFinished
from elasticdl.shared.process.settings import MasterSettings, PsSettings, WorkerSettings, variable
from elasticdl.shared.proto.fields import cases

ROOT = Path(__file__).resolve().parents[2]
REPOSITORY = "https://example.com/repository"


def leaves(command: Any, name: str = "") -> dict[str, Any]:
    """Command name -> command, groups resolved."""
    if not hasattr(command, "commands"):
        return {name: command}
    return {
        key: leaf
        for part, each in command.commands.items()
        for key, leaf in leaves(each, f"{name} {part}".strip()).items()
    }


def test_every_command_and_flag_has_its_place() -> None:
    text = dict(commands.pages())
    found = leaves(typer.main.get_command(app))
    assert len(found) > 20
    sections = re.split(r"^## elasticdl ", "\n".join(text.values()), flags=re.M)
    for name, command in found.items():
        (section,) = [each for each in sections if each.startswith(f"{name}\n")]
        flags = [flag for each in command.params for flag in each.opts if flag.startswith("-")]
        assert [flag for flag in flags if not re.search(rf"`{flag}[`=]", section)] == [], name
        assert f"`elasticdl {name}`" in text["reference/cli/index.md"]


def test_a_flag_shows_its_default_and_its_text() -> None:
    text = dict(commands.pages())["reference/cli/run.md"]
    assert "| `--num_workers=N`{ .name } | `2` |" in text
    assert "| `--use_async=true|false`{ .name } | `true` |" in text
    assert re.search(r"\| `--csv_header`\{ .name \}<br>`--no_csv_header`\{ .name \} \| on \| Whether", text)


def test_every_event_is_listed_with_its_fields() -> None:
    page = events.page()
    assert [kind.__name__ for kind in cases(Event) if f"\n### {kind.__name__}\n" not in page] == []
    finished = page.partition("### TaskFinished\n")[2].partition("\n### ")[0]
    assert [each.name for each in dataclasses.fields(TaskFinished) if f"| `{each.name}`" not in finished] == []
    assert "sum over them of the mean loss of a batch." in finished
    assert "Annotated" not in page


def test_every_setting_is_listed() -> None:
    page = settings.page()
    names = {each.name for cls in (MasterSettings, WorkerSettings, PsSettings) for each in dataclasses.fields(cls)}
    assert len(names) > 20
    assert [name for name in names if f"| `{variable(name)}`" not in page] == []
    assert "| `AWS_REGION`{ .name }<br>`AWS_DEFAULT_REGION`{ .name } |" in page


def test_every_field_of_the_report_has_a_row() -> None:
    page = report.page()
    assert "| `audit.exact`{ .name } | whether every group absorbed every batch of every epoch exactly once" in page
    assert "| `job`{ .name } |" in page
    assert page.count("\n| `") > 30


def test_every_field_of_a_training_job_has_a_row() -> None:
    page = training_job.page()
    for path in (*(f"spec.job.{name}" for name in job_schema()["properties"]), "spec.worker.max", "status.phase"):
        assert f"| `{path}`{{ .name }} |" in page, path
    assert "| `spec.suspend`{ .name } | boolean | `false` |" in page
    assert "| `spec.volumes[].mountPath`{ .name } | string |" in page
    assert "- spec.worker.max must be at least spec.worker.min" in page


def test_the_python_api_is_complete() -> None:
    page = api.page()
    assert [name for name in python_api.__all__ if f"\n## {name}\n" not in page] == []
    assert "### Job.wait" in page
    assert "wait: bool = True" in page
    assert "| `run_dir`{ .name } | folder that holds one folder per job;" in page


def test_the_signatures_are_those_of_the_source() -> None:
    page = api.page()
    assert "Job(name: str, *, run_dir: str | Path = '', namespace: str = '')" in page
    assert "    model_def: Any,\n    training_data: Any,\n    *,\n    wait: bool = True,\n" in page
    assert "History(epochs: Sequence[Mapping[str, Any]], evaluations: Sequence[Mapping[str, Any]])" in page


def test_layers_are_described_without_importing_tensorflow() -> None:
    page = layers.page()
    assert "## elasticdl.layers.Embedding" in page
    assert "adapt(layer: Any, columns: str | Sequence[str] = ()) -> Any" in page
    assert "    input_dim: int | None = None,\n" in page
    assert "| `combiner`{ .name } | None gives one row per id;" in page
    assert "**Output shape:** (batch, ids, output_dim)" in page


def test_generated_pages_have_no_discouraged_words() -> None:
    own = [api.page(), events.page(), layers.page(), report.page(), settings.page(), training_job.page()]
    pages = [*own, *dict(commands.pages()).values()]
    assert [found.group() for page in pages for found in WORDS.finditer(page)] == []


def test_every_decision_is_listed_with_its_title() -> None:
    folder = ROOT / "docs" / "adr"
    page = (folder / "README.md").read_text()
    titles = decisions.titles(folder)
    assert set(titles) == {path.name for path in folder.glob("0*.md")}
    assert [name for name, title in titles.items() if f"- [{title}]({name})" not in page] == []


def test_every_document_is_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text()
    nav = yaml.safe_load(text[text.index("\nnav:") :])["nav"]
    listed = set(re.findall(r"[\w/.-]+\.md", str(nav)))
    written = {
        str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "adr"
    }
    assert written - listed == set()


@pytest.mark.parametrize(
    ("source", "page", "link", "expected"),
    [
        ("README.md", "index.md", "docs/data.md", "data.md"),
        ("docs/tutorials/own_data.md", "tutorials/own_data.md", "../../README.md#use-it", "../index.md#use-it"),
        ("docs/architecture.md", "architecture.md", "adr/", "adr/README.md"),
        ("docs/development.md", "development.md", "../CHANGELOG.md", "changelog.md"),
        ("README.md", "index.md", "model_zoo/", f"{REPOSITORY}/tree/HEAD/model_zoo"),
        ("README.md", "index.md", "LICENSE", f"{REPOSITORY}/blob/HEAD/LICENSE"),
        ("README.md", "index.md", "https://example.com/x.md", "https://example.com/x.md"),
        ("docs/data.md", "data.md", "#formats", "#formats"),
    ],
)
def test_links_lead_to_pages_or_to_the_repository(source: str, page: str, link: str, expected: str) -> None:
    assert rewrite_links(f"see [it]({link}).", source, page, ROOT, REPOSITORY) == f"see [it]({expected})."


def test_a_link_to_nothing_is_named() -> None:
    with pytest.raises(ValueError, match=r"docs/data\.md: the link to lost\.md leads to no file"):
        rewrite_links("[x](lost.md)", "docs/data.md", "data.md", ROOT, REPOSITORY)


def test_blocks_in_lists_are_indented_as_python_markdown_needs_it() -> None:
    document = (
        "1. Build:\n\n       make\n         x\n\n   Then\n\n   - this,\n     long\n\nText\n\n    code\n    - none\n"
    )
    expected = (
        "1. Build:\n\n        make\n          x\n\n    Then\n\n    - this,\n        long\n\n"
        "Text\n\n    code\n    - none\n"
    )
    assert indent_lists(document) == expected


def test_fenced_blocks_keep_their_indentation() -> None:
    document = "- item\n\n```yaml\na:\n  - b\n```\n"
    assert indent_lists(document) == document


def test_bars_are_escaped_outside_of_code_only() -> None:
    assert table(["a"], [["x | `y|z`"]]).splitlines()[-1] == "| x \\| `y|z` |"


def test_flags_stay_in_one_piece_unless_they_are_long() -> None:
    long = f"<code>--output={'x' * 40}</code> <code>elasticdl train --x</code>"
    assert keep_flags_whole(f"<code>--ps=2</code> {long}") == f'<code class="name">--ps=2</code> {long}'


def test_a_docstring_has_text_and_sections() -> None:
    found = parse_docstring(
        "Do ``it``.\n\n    Args:\n        a, b: the\n            values.\n\n    Returns:\n        More.\n"
    )
    assert found.text == "Do `it`."
    assert found.sections == {"Args": [("a, b", "the values.")], "Returns": [("", "More.")]}
