"""A setting is declared once: flags, files and Python give equal configs; one table names policy and teacher."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
import yaml
from annotated_types import Ge, Gt, Le, Lt
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from pivot.cli.build import OPTIONS as BUILD
from pivot.cli.build import RUN_FORM, WORKERS, _begun_store
from pivot.cli.evaluate import ANALYZER, BASELINES, POLICY
from pivot.cli.export import EXPORT, MERGE
from pivot.cli.from_config import Flag, Form, Leaf, leaves, without_none
from pivot.cli.model_flags import OF_MODEL, OF_SERVER, SET_BY_BUILD
from pivot.cli.probe import OPTIONS as PROBE_OPTIONS
from pivot.cli.probe import SETTINGS as PROBE
from pivot.cli.relabel import OPTIONS as RELABEL
from pivot.cli.train import RL, SFT
from pivot.cli.verify import OPTIONS as VERIFY
from pivot.core.errors import ConfigError, PivotError
from pivot.core.storage import Url
from pivot.datasets.store.config import PartConfig, RunConfig, env_config, environment, make_config
from pivot.environments.frozenlake import FrozenLakeEnv
from pivot.models.base import ModelOptions
from pivot.models.service import Service
from pivot.tests.cli.command_line import read, run_config
from pivot.tests.flow_runs import config_of
from pydantic import BaseModel, Field, ValidationError
from pydantic.fields import FieldInfo

TRAINING = (SFT, RL, ANALYZER, BASELINES, POLICY)
FORMS = (RUN_FORM, BUILD, WORKERS, PROBE, PROBE_OPTIONS, RELABEL, VERIFY, MERGE, EXPORT, *TRAINING)

# Any valid value of a field

TEXTS = st.text("abcxyz0189-_./ äß=,:", min_size=1, max_size=12)
WORDS = TEXTS.map(str.strip).filter(lambda text: text[:1] not in ("", "-"))

SPECIAL: dict[str, st.SearchStrategy[Any]] = {
    "roots": st.sampled_from((["runs/first"], ["runs/first", "s3://bucket/second"])),
    "env": st.sampled_from(("sokoban", "frozenlake")),
    "settings": st.sampled_from(({}, {"horizon": 5}, {"horizon": 3, "cell": 32})),
    "service": st.sampled_from(({}, {"base_url": "http://h/v1", "max_concurrency": 3})),
    "backend": st.just("openai"),
    "arm": st.sampled_from(("mp", "p", "vanilla_grpo")),
    "credit": st.sampled_from((None, "progress", "slack")),
    "opd_objective": st.sampled_from(("printed", "gap")),
    "advantages": st.just("grpo"),
    "opd_scope": st.just("all"),
    "teacher_model": st.none(),
    "recipe": st.sampled_from((None, "tiny")),
    "kind": st.sampled_from(("credit", "pairs", "dataset")),
    "configs": st.sampled_from((("all",), ("sokoban", "svg"))),
}
"""Values of fields that depend on each other or on a registry, by field."""


def values_of(field: FieldInfo) -> st.SearchStrategy[Any]:
    """Draw values that fit the type and the bounds of a field; validators of the model may still refuse one."""
    kind, optional = without_none(field.annotation)
    drawn = _of_type(kind, field.metadata)
    return st.none() | drawn if optional else drawn


def _of_type(kind: Any, limits: list[Any]) -> st.SearchStrategy[Any]:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (tuple, dict):
        one = _of_type(inner[-1] if origin is dict else inner[0], [])
        keys = st.text("abc_", min_size=1, max_size=3)
        return st.lists(one, max_size=3).map(tuple) if origin is tuple else st.dictionaries(keys, one, max_size=2)
    if origin is Literal or (isinstance(kind, type) and issubclass(kind, Enum)):
        return st.sampled_from(inner or list(kind))
    if Path in inner:
        return st.sampled_from([Path("runs/x"), Path("my runs/é"), Url("s3://bucket/runs")])
    if kind in (int, float):
        return _number(kind, limits)
    anything = st.integers(-9, 9) | st.booleans() | WORDS | st.lists(st.integers(), max_size=2)
    return {Any: anything, bool: st.booleans()}.get(kind, WORDS)


def _number(kind: type, limits: list[Any]) -> st.SearchStrategy[Any]:
    """Draw a number within the bounds; an open bound is left out by one, or by the smallest step."""
    bounds = {type(each): each for each in limits}
    low = bounds[Ge].ge if Ge in bounds else bounds[Gt].gt if Gt in bounds else -99
    high = bounds[Le].le if Le in bounds else bounds[Lt].lt if Lt in bounds else 10**6
    if kind is int:
        return st.integers(int(low) + (Gt in bounds), int(high) - (Lt in bounds))
    return st.floats(low, high, exclude_min=Gt in bounds, exclude_max=Lt in bounds, allow_nan=False)


def models_of(form: Form[Any]) -> st.SearchStrategy[BaseModel]:
    """Draw valid models of a form; each field may also keep its default."""
    if isinstance(form.model, type) and form.model is RunConfig:
        return run_configs()

    @st.composite
    def model(draw: st.DrawFn) -> BaseModel:
        chosen: dict[str, Any] = {}
        for name, field in form.model.model_fields.items():
            if field.is_required() or draw(st.booleans()):
                chosen[name] = draw(SPECIAL[name] if name in SPECIAL else values_of(field))
        try:
            return form.model.model_validate(chosen)
        except (ValidationError, PivotError):
            assume(False)
            raise

    return model()


@st.composite
def run_configs(draw: st.DrawFn) -> RunConfig:
    """Draw run configs: environments and solvers with settings of their own, a policy and a teacher with options."""
    names = draw(st.lists(st.sampled_from(("sokoban", "frozenlake", "primitiveskill")), min_size=1, unique=True))
    raw: dict[str, Any] = {"environments": {}, "solvers": {}}
    for name in names:
        chosen = _some(draw, environment(name).config_type)
        raw["environments"][name] = {"tasks": draw(st.integers(1, 50)), "settings": chosen}
    if "sokoban" in names and draw(st.booleans()):
        raw["solvers"]["sokoban"] = {"max_states": draw(st.integers(1, 10**6))}
    parts = ("environments", "solvers", "policy", "teacher")
    for name, field in RunConfig.model_fields.items():
        if name not in parts and draw(st.booleans()):
            raw[name] = draw(values_of(field))
    for role in ("policy", "teacher"):
        options = {"model": draw(WORDS), "temperature": draw(st.floats(0, 2)), "top_k": draw(st.integers(0, 9))}
        service: dict[str, Any] = {"max_concurrency": draw(st.integers(1, 99)), "refresh": draw(st.booleans())}
        service["tries"] = draw(st.integers(1, 9))
        raw[role] = draw(st.sampled_from([{"name": "openai", "options": options, "service": service}, None]))
        if raw[role] is None:
            raw[role] = {"name": "scripted" if role == "policy" else "template"}
    try:
        return make_config(raw)
    except PivotError:
        assume(False)
        raise


def _some(draw: st.DrawFn, kind: type[BaseModel]) -> dict[str, Any]:
    """Draw settings without paths, because random ones, such as the root folder, would be read."""
    fields = {name: field for name, field in kind.model_fields.items() if name not in getattr(kind, "locations", ())}
    chosen = {name: draw(values_of(field)) for name, field in fields.items() if draw(st.integers(0, 3)) == 0}
    try:
        kind.model_validate(chosen)
    except (ValidationError, PivotError):
        return {}
    return chosen


# The same config as flags and as files


def words_of(form: Form[Any], model: BaseModel) -> list[str]:
    """Write a model as a command line with an option for every field."""
    if isinstance(model, RunConfig):
        return _words_of_run(model)
    words = list(_words_of_fields(form, plain(model)))
    settings_of_env = plain(model).get("settings") if form in (RL, POLICY) else None
    return [f"--set={key}={json.dumps(each)}" for key, each in (settings_of_env or {}).items()] + words


def _words_of_fields(form: Form[Any], data: Mapping[str, Any]) -> Iterator[str]:
    for leaf, flag in form.leaves():
        value: Any = data
        for key in leaf.keys:
            value = None if value is None else value.get(key)
        if value is not None:
            yield from _words_of(leaf, form.flag_name(leaf, flag), flag, value)


def _words_of(leaf: Leaf, name: str, flag: Flag, value: Any) -> list[str]:
    off = flag.off or (f"--no-{name.removeprefix('--')}" if leaf.field.default is not False else "")
    return {
        "value": lambda: [str(value) if flag.argument else f"{name}={value}"],
        "switch": lambda: [name] if value else [off] if off else [],
        "list": lambda: [str(each) if flag.argument else f"{name}={each}" for each in value],
        "mapping": lambda: [f"{name}={key}={json.dumps(each)}" for key, each in value.items()],
        "nested mapping": lambda: [
            f"{name}={outer}.{key}={json.dumps(each)}" for outer, inner in value.items() for key, each in inner.items()
        ],
    }[leaf.shape]()


def plain(value: Any) -> Any:
    """Return a value of a config as the plain data of files."""
    if isinstance(value, BaseModel):
        return {name: plain(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, Enum):
        return value.value
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _words_of_run(config: RunConfig) -> list[str]:
    data = plain(config)
    words = [*config.environments]
    words.append("--tasks=" + ",".join(f"{name}={run.tasks}" for name, run in config.environments.items()))
    for name, run in data["environments"].items():
        words += [f"--set={name}.{key}={json.dumps(value)}" for key, value in run["settings"].items()]
    for name, chosen in data["solvers"].items():
        words += [f"--solver={name}.{key}={json.dumps(value)}" for key, value in chosen.items()]
    for role in ("policy", "teacher"):
        part = data[role]
        flag = "--writer" if role == "teacher" else "--policy"
        words.append(f"{flag}={part['name']}")
        words += [f"{flag}-set={key}={json.dumps(value)}" for key, value in part["options"].items()]
        words += [f"{flag}-service={key}={json.dumps(value)}" for key, value in part["service"].items()]
    return [*words, *_words_of_fields(RUN_FORM, data)]


def toml_of(data: Any) -> str:
    """Write plain data as TOML; it has no null, so keys without a value are left out."""
    if isinstance(data, Mapping):
        pairs = (f"{json.dumps(key)} = {toml_of(each)}" for key, each in data.items() if each is not None)
        return "{" + ", ".join(pairs) + "}"
    if isinstance(data, list):
        return "[" + ", ".join(map(toml_of, data)) + "]"
    return repr(data) if isinstance(data, float) else json.dumps(data, ensure_ascii=False)


def _lines_of_toml(data: Mapping[str, Any]) -> str:
    return "".join(f"{json.dumps(key)} = {toml_of(value)}\n" for key, value in data.items() if value is not None)


WRITTEN: dict[str, Callable[[Any], str]] = {
    "yaml": partial(yaml.safe_dump, allow_unicode=True),
    "json": lambda data: json.dumps({"config": data}),
    "toml": _lines_of_toml,
}
"""Text of a config file, by its suffix."""


@pytest.mark.parametrize("form", FORMS, ids=[form.model.__name__ for form in FORMS])
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(data=st.data())
def test_flags_files_and_python_give_equal_configs(
    form: Form[Any], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Catch an option or a key of a config file that is read as another value, or not at all."""
    model = data.draw(models_of(form))
    assert read(form, *words_of(form, model)) == model
    suffix = data.draw(st.sampled_from(tuple(WRITTEN)))
    file = tmp_path_factory.mktemp("config") / f"config.{suffix}"
    file.write_text(WRITTEN[suffix](plain(model)), encoding="utf-8")
    assert read(form, "--config", file) == model, suffix


# Every field has a flag


def test_every_field_of_a_run_config_has_a_flag() -> None:
    flags = {leaf.keys[0] for leaf, _ in RUN_FORM.leaves()}
    assert flags | {"environments", "policy", "teacher", "solvers"} == RunConfig.model_fields.keys()


@pytest.mark.parametrize("form", FORMS[1:], ids=[form.model.__name__ for form in FORMS[1:]])
def test_every_field_of_another_model_has_a_flag(form: Form[Any]) -> None:
    by_hand = [("settings",)] if form in (RL, POLICY) else []  # --set
    flags = [leaf.keys for leaf, _ in form.leaves()]
    assert sorted(flags + by_hand) == sorted(leaf.keys for leaf in leaves(form.model))


# Precedence, shapes, names


class Inner(BaseModel):
    """A nested model."""

    depth: int = 3
    """Depth of the model."""


class Sample(BaseModel):
    """One field of every shape."""

    name: str = Field(description="A name.")
    size: float | None = Field(default=2.5, description="A size.")
    level: Literal["low", "high"] = "low"
    loud: bool = True
    many: tuple[int, ...] = ()
    open_fields: dict[str, Any] = {}
    nested: dict[str, dict[str, Any]] = {}
    inner: Inner = Inner()


SAMPLE = Form("sample", Sample)


def test_a_flag_wins_over_the_file_and_the_file_over_the_default(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text('name = "file"\nmany = [1, 2]\n[inner]\ndepth = 7\n')
    assert read(SAMPLE, "--config", tmp_path / "c.toml") == Sample(name="file", many=(1, 2), inner=Inner(depth=7))
    merged = read(SAMPLE, "--config", tmp_path / "c.toml", "--name", "flag", "--inner-depth", "9", "--no-loud")
    assert merged == Sample(name="flag", many=(1, 2), inner=Inner(depth=9), loud=False)
    (tmp_path / "c.toml").write_text('name = "file"\ninner = 1\n')
    assert read(SAMPLE, "--config", tmp_path / "c.toml", "--inner-depth", "9").inner == Inner(depth=9)
    (tmp_path / "run.json").write_text("{}")  # of a store that a build without environments resumes
    begun = [_begun_store({"build__out": str(tmp_path), "run__envs": envs}) for envs in ([], ["sokoban"])]
    assert begun == [tmp_path / "run.json", None]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--name", "x", "--level", "middle"), "--level: found 'middle', expected one of low, high"),
        (("--name", "x", "--size", "big"), "--size: found 'big', expected a number"),
        (("--name", "x", "--many", "1", "--many", "y"), "--many: found 'y', expected a whole number"),
        (("--name", "x", "--inner-depth", "y"), "--inner-depth: found 'y', expected a whole number"),
        (("--name", "x", "--open-fields", "a"), "--open-fields: found 'a', expected KEY=VALUE"),
        (("--name", "x", "--nested", "a=1"), "--nested: found 'a=1', expected ENV.KEY=VALUE"),
        ((), "missing option '--name': a name"),
        (("--config", "c.yaml"), "config file c.yaml: level: found 'middle', expected one of low, high"),
        (("--config", "deep.yaml"), "config file deep.yaml: inner.depth: found [1], expected a whole number"),
        (("--config", "odd.yaml"), "config file odd.yaml: nmae: unknown setting; did you mean 'name'?"),
        (("--config", "gone.yaml"), "--config: cannot read gone.yaml: No such file or directory"),
        (("--config", "bad.toml"), "--config: bad.toml is not valid TOML"),
        (("--config", "bad.yaml"), "--config: bad.yaml is not valid YAML"),
        (("--config", "list.yaml"), "--config: list.yaml holds a list; expected keys and values"),
        (("--config", "empty.yaml"), "--config: empty.yaml holds nothing; expected keys and values"),
        (("--config", "latin.yaml"), "--config: latin.yaml is not a text file in UTF-8"),
        (("--config", ""), "--config: found '', expected a path"),
    ],
)
def test_a_message_names_the_flag_or_the_key(
    words: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in (
        ("c.yaml", "name: x\nlevel: middle"),
        ("deep.yaml", "name: x\ninner:\n  depth: [1]"),
        ("odd.yaml", "nmae: x"),
        ("bad.toml", "= 1"),
        ("bad.yaml", "a: [1"),
        ("list.yaml", "[1]"),
        ("empty.yaml", ""),
    ):
        (tmp_path / name).write_text(text)
    (tmp_path / "latin.yaml").write_bytes(b"name: \xe9")
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        read(SAMPLE, *words)
    assert "\n" not in str(caught.value)


def test_settings_of_environments_in_a_file_are_named_in_messages(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("environments: {sokoban: {tasks: 1, settings: {boxes: lots}}}")
    with pytest.raises(ConfigError, match=r"c\.yaml: environments\.sokoban\.settings\.boxes: found 'lots', expected"):
        read(RUN_FORM, "--config", tmp_path / "c.yaml")
    policy = "policy: {name: openai, options: {model: x}, service: null}"
    (tmp_path / "c.yaml").write_text("environments: {sokoban: {}}\n" + policy)
    with pytest.raises(ConfigError, match=r"c\.yaml: policy\.service: found None, expected an object"):
        read(RUN_FORM, "--config", tmp_path / "c.yaml")
    (tmp_path / "c.yaml").write_text("environments: {sokoban: {settings: {boxes: 2}}}\nrollouts: 4")
    config = read(RUN_FORM, "--config", tmp_path / "c.yaml")
    assert config.environments["sokoban"].settings == env_config("sokoban", {"boxes": 2}).model_dump(mode="json")
    assert (config.environments["sokoban"].tasks, config.rollouts) == (180, 4)


def test_all_levels_of_a_file_are_played(tmp_path: Path) -> None:
    rooms = [
        "\n".join(["S" + "F" * wide, *["F" * (wide + 1)] * high, "F" * wide + "G"])
        for wide in range(1, 23)
        for high in range(10)
    ]
    (tmp_path / "levels.txt").write_text("\n\n".join(rooms))
    config = run_config(f"frozenlake --levels {tmp_path}/levels.txt")
    assert config.environments["frozenlake"].tasks == len(rooms) > FrozenLakeEnv.profile.default_tasks


def test_flags_become_options_and_service_settings() -> None:
    config = run_config("sokoban --policy openai --model m --temperature 0.4 --base-url http://h/v1/")
    assert config.policy == PartConfig(
        name="openai", options={"model": "m", "temperature": 0.4}, service={"base_url": "http://h/v1"}
    )
    with pytest.raises(ConfigError, match="--model: policy 'scripted' is not a model, so it cannot use this option"):
        run_config("sokoban --model m")


def asked(command: str) -> RunConfig:
    """Return the config that a command line comes to."""
    return run_config(f"sokoban --tasks 1 {command}")


def test_a_writer_has_every_setting_and_follows_the_server_of_the_policy() -> None:
    config = asked(
        "--policy openai --model m --writer openai --writer-model n --base-url http://h/v1 --max-concurrency 9 "
        "--price-in 1 --temperature 0.7 --no-cache --request-timeout 5 --writer-set revision=r --writer-set top_p=0.9 "
        "--writer-set temperature=0.3 --writer-set top_k=4 --writer-set max_tokens=900 --writer-service price_in=2 "
        "--writer-service price_out=3 --writer-service max_concurrency=2 --writer-service cache=t.sqlite "
        "--writer-service key_variable=T_KEY"
    )
    both = {"base_url": "http://h/v1", "request_seconds": 5.0}
    assert config.policy.service == {**both, "max_concurrency": 9, "cache": "", "price_in": 1.0}
    own = {"max_concurrency": 2, "cache": "t.sqlite", "key_variable": "T_KEY", "price_in": 2.0, "price_out": 3.0}
    assert config.teacher.service == both | own
    assert config.policy.options == {"model": "m", "temperature": 0.7}
    sampling = {"temperature": 0.3, "top_p": 0.9, "top_k": 4, "max_tokens": 900}
    assert config.teacher.options == {"model": "n", "revision": "r", **sampling}
    priced = asked("--policy openai --model m --writer openai --writer-model n --base-url http://h/v1 --price-in 1")
    assert priced.teacher.service == {"base_url": "http://h/v1"}, "another model has other prices"
    options = {each for kind in (ModelOptions, Service) for each in kind.model_fields}
    assert options - {*SET_BY_BUILD} == {leaf.keys[0] for form in (OF_MODEL, OF_SERVER) for leaf, _ in form.leaves()}


def test_a_teacher_keeps_what_a_config_file_says_of_it_alone(tmp_path: Path) -> None:
    """A policy flag also changes the teacher's setting if both were equal; the teacher's own setting stays."""
    both = {"cache": "c.sqlite", "max_concurrency": 8}
    part = {"name": "openai", "options": {"model": "m"}, "service": {**both, "base_url": "http://a/v1"}}
    own = part | {"service": {**both, "base_url": "http://b/v1"}}
    teachers = (("", own, "b"), ("", part, "c"), ("--writer openai --writer-model n", {"name": "template"}, "c"))
    for words, teacher, host in teachers:
        (tmp_path / "run.json").write_text(json.dumps({"config": config_of(1, policy=part, teacher=teacher)}))
        moved = asked(f"--config {tmp_path}/run.json {words} --base-url http://c/v1 --policy-service max_concurrency=4")
        assert moved.policy.service == {**both, "base_url": "http://c/v1", "max_concurrency": 4}
        assert moved.teacher.service == {**both, "base_url": f"http://{host}/v1", "max_concurrency": 4}


def test_a_server_without_a_role_is_refused_and_one_for_the_teacher_alone_is_not() -> None:
    config = asked("--writer openai --writer-model n --base-url http://h/v1 --no-cache")
    assert config.policy == PartConfig(name="scripted")
    assert config.teacher.service == {"base_url": "http://h/v1", "cache": ""}
    for wrong, name in (("--base-url http://h/v1", "--base-url"), ("--writer openai --price-in 1", "--price-in")):
        with pytest.raises(ConfigError, match=f"{name}: policy 'scripted' is not a model, so it cannot"):
            asked(wrong)
