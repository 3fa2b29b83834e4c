"""The card of a store with parts: which there are, and the configs that load the datasets of all of them."""

from typing import Any

from huggingface_hub import DatasetCard, DatasetCardData

from ..identity import digest
from ..storage import FileRecord
from .card import CARD, TAGS, TITLE
from .licence import terms_of
from .parts import PARTS, Members, listed_parts, members_of, part_folder
from .split import SIDES
from .store import DATASET_FOLDER, MANIFEST, Store

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
    head = DatasetCardData(
        license=licences[0] if len(licences) == 1 else "unknown",
        pretty_name=TITLE,
        task_categories=["image-text-to-text", "reinforcement-learning"],
        tags=TAGS,
        configs=_configs(members),
    )
    return str(DatasetCard.from_template(head, template_str=_TEXT % (len(members), "\n".join(rows)))).rstrip() + "\n"


def _configs(members: Members) -> list[dict[str, Any]]:
    """The ``configs`` section: those of the parts' own cards, each over the files of all parts that have some."""
    environments = dict.fromkeys(env for member in members.values() for env in member.config.environments)
    folders = {f"{prefix}{DATASET_FOLDER}/": member for prefix, member in members.items()}
    present = {f"{folder}{name}" for folder, member in folders.items() for name in _sides(member)}
    content = digest({prefix: member.storage.record(MANIFEST).sha256 for prefix, member in members.items()})

    def config(name: str, subfolders: list[str], **extra: Any) -> dict[str, Any]:
        paths = {
            side: [
                f"{folder}{subfolder}/{side}-*.parquet"
                for folder in folders
                for subfolder in subfolders
                if f"{folder}{subfolder}/{side}" in present
            ]
            for side in SIDES
        }
        files = [{"split": side, "path": path} for side, path in paths.items() if path]
        return {"config_name": name, **extra, "description": f"content {content}", "data_files": files}

    configs = [
        config("all", [*environments], default=True),
        *(config(env, [env]) for env in environments),
        *(config(f"{env}_episodes", [f"{env}_episodes"]) for env in environments),
    ]
    return [each for each in configs if each["data_files"]]


def _sides(store: Store) -> set[str]:
    """Return the subfolders of a dataset with the sides of which they have files, such as ``sokoban/train``."""
    names = (name.removeprefix(f"{DATASET_FOLDER}/") for name in store.storage.listing(DATASET_FOLDER))
    return {name.rpartition("-")[0] for name in names if name.endswith(".parquet")}


def write_parts_card(store: Store) -> FileRecord:
    """Write ``DIR/README.md``."""
    return store.storage.write_bytes(CARD, parts_card(store).encode())


def part_problems(store: Store) -> list[str]:
    """Compare the manifests of the parts with the digests that the root has of them, and the card with the parts."""
    listed, storage = listed_parts(store.storage), store.storage
    mend = f"take up the parts as they are now with: pivot build --append --out {store.root}"
    problems = [
        f"{name}: it is not the manifest that {PARTS} names; {mend}"
        for number, record in listed.items()
        for name in [f"{part_folder(number)}/{MANIFEST}"]
        if storage.stat(name) is None or storage.record(name) != record
    ]
    if (
        listed
        and not problems
        and (storage.stat(CARD) is None or storage.read_bytes(CARD).decode() != parts_card(store))
    ):
        problems.append(f"{CARD}: it is not the card that the parts give; {mend}")
    if not listed and storage.stat(CARD) is not None:
        problems.append(f"{CARD}: a card of parts, of which {PARTS} names none")
    return problems
