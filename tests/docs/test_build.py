"""The generated pages are up to date, and every link of the documentation leads somewhere."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """docs/build.py, with docs/ importable as it is when that runs as a program."""
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    names = ("build", "generate_code", "generate_service")
    yield importlib.import_module("build")
    for name in names:
        sys.modules.pop(name, None)


def test_generated_pages_say_what_the_code_says_now(build: ModuleType) -> None:
    assert build.stale() == [], "run make docs"


def test_every_link_leads_to_a_file_and_a_heading_that_exist(build: ModuleType) -> None:
    assert list(build.broken_links()) == []


def test_a_page_that_was_changed_by_hand_is_stale_until_it_is_written_anew(
    build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(build, "DOCS", tmp_path)
    monkeypatch.setattr(build, "ROOT", tmp_path)
    assert build.main([]) == 0 and build.main(["--check"]) == 0
    page = tmp_path / "reference" / "errors.md"
    page.write_text(page.read_text() + "more\n")
    assert build.main(["--check"]) == 1
    assert "docs/reference/errors.md: stale" in capsys.readouterr().out
    assert build.main([]) == 0 and build.main(["--check"]) == 0


@pytest.mark.parametrize(
    ("link", "why"),
    [("gone.md", "no such file"), ("other.md#nowhere", "no such heading"), ("#nowhere", "no such heading")],
)
def test_a_link_that_leads_nowhere_is_named(
    build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, link: str, why: str
) -> None:
    monkeypatch.setattr(build, "DOCS", tmp_path)
    monkeypatch.setattr(build, "ROOT", tmp_path)
    (tmp_path / "other.md").write_text("# A heading: with `code`\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[fine](other.md#a-heading-with-code), [outside](https://example.org/x)\n\n```text\n[no](link)\n```\n"
    )
    assert list(build.broken_links()) == []
    page.write_text(f"[bad]({link})\n")
    assert [line.endswith(why) for line in build.broken_links()] == [True]
