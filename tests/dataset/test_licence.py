"""The card claims no licence for what others made: own targets, plugins, simulators, the text of models."""

import re
from pathlib import Path
from typing import Any

import pivot
import pytest
from huggingface_hub import DatasetCard
from pivot.core.errors import ConfigError
from pivot.datasets.export.card import Terms, terms_of
from pivot.datasets.store.config import make_config
from pivot.datasets.store.run import Run
from pivot.environments.base import EnvConfig
from pivot.environments.navigation.environment import NavigationConfig
from pivot.environments.primitiveskill.environment import PrimitiveSkillConfig
from pivot.tests.cli.command_line import run_config
from pivot.tests.stores import build_tiny, problems

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
    assert where == {"policy": "replies", "teacher": "guidance"}[role]
    assert "`some/model`" in source.what


def test_own_targets_belong_to_whoever_drew_them(tmp_path: Path) -> None:
    drawing = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"><circle r="{}" fill="red"/></svg>'
    for radius in (3, 4):
        (tmp_path / f"{radius}.svg").write_text(drawing.format(radius))
    licence_terms = terms("svg", settings={"targets": str(tmp_path)})
    assert licence_terms.licence == "unknown"
    assert str(tmp_path) in licence_terms.sources[0][1].what


def test_simulators_and_silent_plugins_are_not_taken_for_ours() -> None:
    class Silent(EnvConfig):
        horizon: int = 3

    # Not validated: whether the simulator is installed does not matter here.
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
    assert re.search(
        r"`cc-by-4\.0`, as stated by \w+ built this dataset\. What the PIVOT pipeline generated", card.text
    )
    assert problems(root) == []
    assert pivot.build(run_config(f"--config {root}/run.json"), root).already_complete
    with pytest.raises(ConfigError, match="license"):
        run_config(f"--config {root}/run.json --license 'My Own: licence'")
