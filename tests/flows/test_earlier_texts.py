"""A store whose texts an earlier version rendered: verify notes them, and relabelling brings them up to date."""

from collections.abc import Iterator
from pathlib import Path

import pivot
import pytest
from pivot.core.progress import Silent
from pivot.datasets.store.nights import load_store
from pivot.datasets.verify.verify import verify_store
from pivot.labeling.domains import domain_of
from pivot.labeling.statements import Sentences
from pivot.labeling.writers import TemplateWriter
from pivot.tests.stores import Patient, build_tiny, change_rows, read_rows, table_files

ENV = "frozenlake"
OLD = " in old words."


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A store of template version 3, whose sentences this version does not render."""
    wordings = {
        kind: tuple(f"{text[:-1]}{OLD}" for text in texts) for kind, texts in domain_of(ENV).sentences.wordings.items()
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TemplateWriter, "config", property(lambda _: {"version": "3"}))
        patch.setitem(domain_of(ENV).__dict__, "sentences", Sentences(wordings))
        root = build_tiny(tmp_path_factory.mktemp("earlier") / "store", ENV)
        report = verify_store(root, Silent())
        assert (report.problems, report.notes) == ([], [])
    yield root


def test_its_texts_are_noted_and_not_proved(earlier: Path) -> None:
    report = verify_store(earlier, Silent())
    labels = load_store(earlier).labels.collect()
    assert report.problems == []
    (note,) = report.notes
    assert f"the guidance of {labels['accepted'].sum()} accepted labels was not proved" in note
    assert "an earlier version rendered it" in note and "pivot relabel" in note
    assert all(OLD in text for text in labels["failure_reason"])


def test_everything_but_its_texts_is_proved(earlier: Path, tmp_path: Path) -> None:
    patient = Patient(earlier, tmp_path / "copy")
    name = patient.file(ENV, "labels")

    def lie(rows: list[dict[str, object]]) -> None:
        rows[0]["failure_mode"] = "timeout" if rows[0]["failure_mode"] == "deadlock" else "deadlock"

    change_rows(patient.root, name, lie)
    assert any("column failure_mode" in problem for problem in patient.found())


def test_relabelled_it_has_no_note(earlier: Path) -> None:
    pivot.relabel(earlier, {}, keep_old=True)
    report = verify_store(earlier, Silent())
    assert (report.problems, report.notes) == ([], [])
    labels = load_store(earlier).labels.collect()
    assert not any(OLD in text for text in labels["failure_reason"])
    kept = [read_rows(earlier, name) for name in table_files(earlier, ENV) if name.startswith("labels/v1/")]
    assert kept and all(OLD in row["failure_reason"] for rows in kept for row in rows)
