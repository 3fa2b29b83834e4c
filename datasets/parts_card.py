"""The card of a store with parts: which there are, and the configs that load the datasets of all of them."""

from typing import Any

from ..identity import digest
from ..storage import FileRecord
from .card import CARD, TAGS, TITLE
from .licence import terms_of
from .parts import PARTS, Members, listed_parts, members_of, part_folder, unlike
from .split import SIDES
from .store import DATASET_FOLDER, MANIFEST, NAMED_FILES, Store

_TEXT = """---
{{ card_data }}
---

# PIVOT failure labels, a store of %d parts

Made at several times, each part with a policy, seed and settings of its own. What the rows are, how they were made and
what is in them, says the card of each part.

| part | card | environments | policy | levels | rollouts a level | seed |
|---|---|---|---|---|---|---|
%s

Rows of all parts have the same columns and the same class names; no level and policy is in two of them.
"""


def parts_card(store: Store) -> str:
    """Return the text of ``DIR/README.md`` for a store with later parts."""
    members = members_of(store)
    rows = []
    for prefix, member in members.items():
        config = member.config
        cells = (
            f"`{prefix or './'}`",
            f"[{prefix}{DATASET_FOLDER}/{CARD}]({prefix}{DATASET_FOLDER}/{CARD})",
            ", ".join(config.environments),
            f"`{config.policy.name}`",
            sum(run.tasks for run in config.environments.values()),
            config.rollouts,
            config.seed,
        )
        rows.append("| " + " | ".join(map(str, cells)) + " |")
    licences = sorted({terms_of(member.run).licence for member in members.values()})
    from huggingface_hub import DatasetCard, DatasetCardData  # noqa: PLC0415 - takes a tenth of the start of a command

    head = DatasetCardData(
        license=licences[0] if len(licences) == 1 else "unknown",
        pretty_name=TITLE,
        task_categories=["image-text-to-text", "reinforcement-learning"],
        tags=TAGS,
        configs=_configs(members),
    )
    return str(DatasetCard.from_template(head, template_str=_TEXT % (len(members), "\n".join(rows)))).rstrip() + "\n"


def _configs(members: Members) -> list[dict[str, Any]]:
    """Return the ``configs`` section: the configs of the parts' cards, each over the files of all parts."""
    environments = dict.fromkeys(env for member in members.values() for env in member.config.environments)
    files = [f"{prefix}{name}" for prefix, member in members.items() for name in sorted(_dataset_files(member))]
    folders = [f"{prefix}{DATASET_FOLDER}/" for prefix in members]
    content = digest({prefix: member.storage.record(MANIFEST).sha256 for prefix, member in members.items()})

    def side_paths(side: str, subfolders: list[str]) -> list[str]:
        starts = [f"{folder}{subfolder}/{side}-" for folder in folders for subfolder in subfolders]
        named = {start: [file for file in files if file.startswith(start)] for start in starts}
        if sum(map(len, named.values())) > NAMED_FILES:
            return [f"{start}*.parquet" for start, some in named.items() if some]
        return [file for some in named.values() for file in some]

    def config(name: str, subfolders: list[str], **extra: Any) -> dict[str, Any]:
        paths = {side: side_paths(side, subfolders) for side in SIDES}
        sides = [{"split": side, "path": path} for side, path in paths.items() if path]
        return {"config_name": name, **extra, "description": f"content {content}", "data_files": sides}

    configs = [
        config("all", [*environments], default=True),
        *(config(env, [env]) for env in environments),
        *(config(f"{env}_episodes", [f"{env}_episodes"]) for env in environments),
    ]
    return [each for each in configs if each["data_files"]]


def _dataset_files(store: Store) -> list[str]:
    """Return the Parquet files of a dataset."""
    return [name for name in store.manifest() if name.startswith(f"{DATASET_FOLDER}/") and name.endswith(".parquet")]


def write_parts_card(store: Store) -> FileRecord:
    """Write ``DIR/README.md``."""
    return store.storage.write_bytes(CARD, parts_card(store).encode())


def part_problems(store: Store) -> list[str]:
    """Compare the manifests of the parts with the digests that the root has of them, and the card with the parts."""
    listed, storage = listed_parts(store.storage), store.storage
    remedy = f"add the parts as they are now with: pivot build --append --out {store.root}"
    relabel = f"it was labelled alone; label all parts alike with: pivot relabel {store.root}"
    problems: list[str] = []
    for number, record in listed.items():
        name = f"{part_folder(number)}/{MANIFEST}"
        if storage.stat(name) is None or storage.record(name) != record:
            different = storage.stat(name) and unlike(Store.open(store.root / part_folder(number)), store)
            problems.append(f"{name}: it is not the manifest that {PARTS} names; {relabel if different else remedy}")
    there = storage.stat(CARD) is not None
    if listed and not problems:
        stored = storage.read_bytes(CARD) if there else b""
        if stored != parts_card(store).encode():
            problems.append(f"{CARD}: it is not the card that the parts give; {remedy}")
    if not listed and there:
        problems.append(f"{CARD}: a card of parts, of which {PARTS} names none")
    return problems
