"""The card and the words of `peek`: numbers and sentences are those of the stored rows; no licence for others' work."""

import re
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pivot
import pytest
from datasets.utils.metadata import MetadataConfigs
from huggingface_hub import DatasetCard, DatasetCardData
from PIL import Image
from pivot.core.errors import ConfigError, StoreError
from pivot.core.storage import LocalStorage
from pivot.datasets.export.card import Terms, row_counts, terms_of
from pivot.datasets.export.describe import find_episode
from pivot.datasets.sql.views import query
from pivot.datasets.store.config import make_config
from pivot.datasets.store.run import Run
from pivot.datasets.store.store import Store
from pivot.environments.base import EnvConfig
from pivot.environments.navigation.environment import NavigationConfig
from pivot.environments.primitiveskill.environment import PrimitiveSkillConfig
from pivot.labeling.base import Guidance
from pivot.labeling.writers.template import TemplateWriter
from pivot.tests.cli.command_line import run_config
from pivot.tests.stores import build_tiny, problems, stored_rows


def _section(root: Path, title: str) -> list[list[str]]:
    """Return the cells of the Markdown tables of one section of the card, line by line."""
    text = (root / "dataset/README.md").read_text(encoding="utf-8").split(f"## {title}\n")[1].split("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %"


def test_the_counts_are_those_of_the_rows(small_store: Path) -> None:
    header, *rows = _section(small_store, "Counts")
    assert [row[0] for row in rows] == ["sokoban", "frozenlake"]
    for cells in rows:
        row = dict(zip(header, cells, strict=True))
        env = row["environment"]
        episodes, labels = stored_rows(small_store, env, "episodes"), stored_rows(small_store, env, "labels")
        assert int(row["tasks"]) == len({episode["task_id"] for episode in episodes}) == 3
        assert int(row["episodes"]) == len(episodes) == 24
        assert row["success"] == _percent(sum(episode["success"] for episode in episodes), 24)
        assert int(row["failed"]) == sum(episode["failed"] for episode in episodes) == len(labels)
        assert int(row["accepted"]) == sum(label["accepted"] for label in labels)
        assert int(row["rejected"]) == sum(not label["accepted"] for label in labels)
        records = stored_rows(small_store, env, f"dataset/{env}/")
        assert int(row["train"]) + int(row["validation"]) == len(records)


def test_a_line_that_breaks_while_rows_are_counted_is_an_error_of_the_store(
    small_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalStorage, "open", Mock(side_effect=OSError("the line broke")))
    with pytest.raises(StoreError, match="the line broke"):
        row_counts(Store.open(small_store), "dataset")


def test_the_hub_can_read_and_show_it(small_store: Path) -> None:
    """The card passes the hub's own check, and the uploaded folder has every file that the page shows."""
    folder = small_store / "dataset"
    card = DatasetCard.load(folder / "README.md")
    head = card.data.to_dict()
    assert re.fullmatch(r"n<1K|\d+[KMB]?<n<\d+[KMB]", head["size_categories"][0])
    assert re.fullmatch(r"[a-z0-9.-]+", head["license"])
    assert all(re.fullmatch(r"[\w .-]{1,64}", tag) for tag in head["tags"])
    configs = MetadataConfigs.from_dataset_card_data(DatasetCardData(**head))
    assert configs.get_default_config_name() == "all"
    patterns = [name for config in configs.values() for split in config["data_files"] for name in split["path"]]
    for pattern in patterns:
        assert list(folder.glob(pattern)), pattern
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", card.content)
    links = re.findall(r"(?<!!)\[[^\]]*\]\((?!https://)([^)]+)\)", card.content)
    assert pictures == ["example.png"]
    for name in pictures + links:
        with Image.open(folder / name) as picture:
            assert picture.format == "PNG"
    # What `hf upload user/name STORE/dataset` sends: no hidden file, nothing above the folder.
    sent = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert "example.png" in sent and not any(name.startswith(".") for name in sent)


def test_the_modes_are_those_of_the_rows(small_store: Path) -> None:
    header, *rows = _section(small_store, "Failure modes")
    shown = {(cells[0], cells[1]): dict(zip(header, cells, strict=True)) for cells in rows}
    for env in ("sokoban", "frozenlake"):
        labels = [label for label in stored_rows(small_store, env, "labels") if label["accepted"]]
        modes = Counter(label["failure_mode"] for label in labels)
        assert {mode for name, mode in shown if name == env} == set(modes)
        for mode, count in modes.items():
            row, steps = shown[env, mode], [each["pivot_step"] for each in labels if each["failure_mode"] == mode]
            assert (int(row["records"]), row["share"]) == (count, _percent(count, len(labels)))
            assert float(row["mean pivot step"]) == pytest.approx(sum(steps) / count, abs=0.005)


def test_levels_that_were_out_of_reach_from_the_start_are_no_records(tmp_path: Path) -> None:
    (tmp_path / "levels.txt").write_text("SFF\nFHF\nFFG\n\nSFFFFFF\nFFFFFFG\n")
    settings = {"levels": str(tmp_path / "levels.txt"), "horizon": 5}
    root = build_tiny(tmp_path / "store", environments={"frozenlake": {"tasks": 2, "settings": settings}}, rollouts=6)
    records = sum(int(row[2]) for row in _section(root, "Failure modes")[1:])
    assert records == len(stored_rows(root, "frozenlake", "dataset/frozenlake/"))
    assert records < sum(label["accepted"] for label in stored_rows(root, "frozenlake", "labels"))


def test_stand_ins_settings_and_columns_are_named(small_store: Path) -> None:
    text = (small_store / "dataset/README.md").read_text(encoding="utf-8")
    assert re.search(r"Stand-ins.*policy `scripted`.*teacher `template`", text)
    assert "3 rollouts" not in text
    assert "8 rollouts a task, seed 0" in text and '"max_solution": 5' in text
    assert "solvers `frozenlake`" in text and "- `pivot_step`: t*, 0-based." in text
    assert "![A labelled failure](example.png)" in text


def test_rejected_labels_are_counted_by_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty guidance from the teacher: every label is kept, none is trained on."""
    monkeypatch.setattr(TemplateWriter, "write", lambda self, requests: [Guidance("") for _ in requests])
    root = build_tiny(tmp_path / "store", "frozenlake")
    labels = stored_rows(root, "frozenlake", "labels")
    assert {label["accepted"] for label in labels} == {False}
    names = Counter(name for label in labels for name in {reason["name"] for reason in label["reject_reasons"]})
    header, *rows = _section(root, "Counts")
    (counts, *rejects) = [cells for cells in rows if cells[0] != "reject reason"]
    assert dict(zip(header, counts, strict=True))["rejected"] == str(len(labels))
    assert {name: int(number) for name, number in rejects} == names
    assert dict(query(root, "SELECT name, count(DISTINCT episode_id) FROM rejects GROUP BY name")[1]) == names
    assert not (root / "dataset/example.png").exists() and problems(root) == []


@pytest.mark.parametrize("env", ["sokoban", "frozenlake"])
def test_an_episode_in_words(small_store: Path, env: str) -> None:
    store = Store.open(small_store)
    labels = {label["episode_id"]: label for label in stored_rows(small_store, env, "labels")}
    for episode in stored_rows(small_store, env, "episodes"):
        view = find_episode(store, episode["episode_id"])
        facts = dict(view.facts())
        assert facts["episode"] == episode["episode_id"]
        assert f"in {episode['num_steps']} of {episode['horizon']} turns" in facts["return"]
        assert len(view.log) == episode["num_steps"]
        if label := labels.get(episode["episode_id"]):
            assert view.title == f"{env}: {label['failure_mode']} at step {label['pivot_step']}"
            assert facts["a plan that still worked before the pivot"].split() == label["witness"]
            assert view.pivot_step == label["pivot_step"]
        else:
            assert view.title == f"{env}: solved" and view.pivot_step is None
    figure = find_episode(store, next(iter(labels))).figure()
    assert min(figure.shape[:2]) > 300


FIVE = ("sokoban", "frozenlake", "navigation", "primitiveskill", "svg")
MODEL = {"name": "openai", "options": {"model": "some/model"}, "service": {"base_url": "http://localhost:1/v1"}}


def terms(*names: str, settings: dict[str, Any] | None = None, **fields: Any) -> Terms:
    runs = {name: {"tasks": 1, "settings": settings or {}} for name in names}
    return terms_of(Run(make_config({"environments": runs} | fields)))


def test_what_the_pipeline_generates_is_under_its_own_licence() -> None:
    licence_terms = terms(*FIVE)
    assert (licence_terms.licence, licence_terms.stated, licence_terms.open_questions) == ("apache-2.0", False, False)
    assert [(where, source.licence) for where, source in licence_terms.sources] == [("frozenlake", "mit")]


@pytest.mark.parametrize("role", ["policy", "teacher"])
def test_the_text_of_a_model_has_terms_of_its_own(role: str) -> None:
    licence_terms = terms("sokoban", **{role: MODEL})
    assert (licence_terms.licence, licence_terms.open_questions) == ("unknown", True)
    ((where, source),) = licence_terms.sources
    assert where == {"policy": "replies", "teacher": "guidance"}[role] and "`some/model`" in source.what


def test_own_targets_belong_to_whoever_drew_them(tmp_path: Path) -> None:
    drawing = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"><circle r="{}" fill="red"/></svg>'
    for radius in (3, 4):
        (tmp_path / f"{radius}.svg").write_text(drawing.format(radius))
    licence_terms = terms("svg", settings={"targets": str(tmp_path)})
    assert licence_terms.licence == "unknown" and str(tmp_path) in licence_terms.sources[0][1].what


def test_simulators_and_silent_plugins_are_not_taken_for_ours() -> None:
    class Silent(EnvConfig):
        horizon: int = 3

    # Not validated, so that the simulator need not be installed.
    thor = NavigationConfig.model_construct(backend="thor", task_files=("/somewhere/base.json",))
    made = PrimitiveSkillConfig.model_construct(backend="maniskill")
    for config, words in ((Silent(), "does not say"), (thor, "AI2-THOR"), (made, "ManiSkill")):
        assert any(words in source.what and source.licence is None for source in config.sources), config
    assert any("base.json" in source.what for source in thor.sources)


def test_the_card_says_so_and_a_flag_states_the_licence(tmp_path: Path) -> None:
    root = build_tiny(tmp_path / "store", "frozenlake")
    card = DatasetCard.load(root / "dataset/README.md")
    assert card.data.to_dict()["license"] == "apache-2.0"
    assert "- `frozenlake`: tile pictures of the Gymnasium package (mit)." in card.text
    config = run_config(f"--config {root}/run.json --license cc-by-4.0")
    pivot.build(config, root)
    card = DatasetCard.load(root / "dataset/README.md")
    assert card.data.to_dict()["license"] == "cc-by-4.0"
    assert re.search(r"`cc-by-4\.0`, as stated by \w+ built this dataset\. What the PIVOT pipeline", card.text)
    assert problems(root) == [] and pivot.build(run_config(f"--config {root}/run.json"), root).already_complete
    with pytest.raises(ConfigError, match="license"):
        run_config(f"--config {root}/run.json --license 'My Own: licence'")
