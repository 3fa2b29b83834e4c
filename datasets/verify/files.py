"""Verify run.json, the card with its picture, and receipts."""

import re
from collections.abc import Mapping
from typing import Any

from ...core.images import LOSSLESS, container_problem, decode, frame_id
from ...core.storage import FileRecord, Storage
from ...core.storage.receipts import Receipt
from ..export.card import CARD, PICTURE, card_text, example_picture
from ..store.config import Shard, versions
from ..store.inputs import EXPORT, LABEL, ROLLOUT, export_stage
from ..store.origin import ORIGIN
from ..store.store import DATASET_FOLDER, MANIFEST, RECEIPTS, RUN, Store
from .compare import contrast
from .inventory import dataset_files


def run_problems(store: Store, run_id: str) -> list[str]:
    """Check that ``run.json`` has exactly the content that a build writes; ``run_id`` is that of its rows."""
    raw, config = store.storage.read_json(RUN), store.config.model_dump(mode="json")
    expected = {"run_id", "config", "versions", "format"}
    problems = [f"{RUN}: unknown field {name!r}" for name in sorted(map(str, raw.keys() - expected))]
    problems += [f"{RUN}: the field {name!r} is missing" for name in sorted(expected - raw.keys())]
    if raw.get("run_id") not in (run_id, None):
        problems.append(f"{RUN}: {contrast('run_id', raw['run_id'], run_id)}")
    if not isinstance(raw["config"], dict):
        return [*problems, f"{RUN}: the config is not an object"]
    if raw["config"] != config:
        problems.append(f"{RUN}: {_config_contrast(raw['config'], config)}")
    return problems + _version_problems(raw)


def _config_contrast(stored: dict[str, Any], complete: dict[str, Any]) -> str:
    missing = sorted(complete.keys() - stored.keys())
    return f"config lacks the field {missing[0]!r}" if missing else contrast("config", stored, complete)


def _version_problems(raw: Mapping[str, Any]) -> list[str]:
    """Check which packages the versions name; the versions themselves cannot be derived, so nothing rests on them."""
    stored, names = raw.get("versions"), versions().keys()
    if not isinstance(stored, dict) or not all(isinstance(value, str) for value in stored.values()):
        return [f"{RUN}: versions are not texts by package name"]
    odd = sorted(stored.keys() ^ names)
    return [f"{RUN}: versions name other packages than a build does: {', '.join(odd)}"] if odd else []


def card_problems(store: Store) -> list[str]:
    """Derive the card and its picture from the tables and compare."""
    storage = store.storage
    try:
        picture = example_picture(store)
        run, manifest, stored = storage.read_json(RUN), store.manifest(), storage.read_bytes(f"{DATASET_FOLDER}/{CARD}")
        problems = []
        if stored != card_text(store, DATASET_FOLDER, run, manifest, picture is not None).encode():
            problems.append(f"{DATASET_FOLDER}/{CARD}: its text is not the one that the tables and {RUN} give")
        return problems + _picture_problems(storage, f"{DATASET_FOLDER}/{PICTURE}", picture)
    except Exception as error:  # noqa: BLE001 - tables that contradict each other break what is counted in any way
        return [f"{DATASET_FOLDER}/{CARD}: it cannot be recomputed ({type(error).__name__}: {error})"]


def _picture_problems(storage: Storage, name: str, picture: bytes | None) -> list[str]:
    """Check that a file shows the pixels of ``picture``; without a picture there must be no file."""
    if picture is None or storage.stat(name) is None:
        wrong = picture is not None or storage.stat(name) is not None
        return [f"{name}: it is not the picture that the tables give"] if wrong else []
    stored = storage.read_bytes(name)
    if stored == picture:
        return []
    if frame_id(decode(stored)) != frame_id(decode(picture)):
        return [f"{name}: it is not the picture that the tables give"]
    strange = container_problem(stored, LOSSLESS)
    return [] if strange is None else [f"{name}: {strange}"]


# Receipts

_STAGES = re.compile(rf"{RECEIPTS}/(?:{ROLLOUT}|{LABEL}-v\d+|{EXPORT}-v\d+(?:-staged)?)/\w+/\d{{5}}\.json")


def receipt_problems(
    store: Store, manifest: Mapping[str, FileRecord], expected: Mapping[Shard, Mapping[str, Receipt]]
) -> list[str]:
    """Compare the receipts that are there with what the shards' rows give; a store may be published without any."""
    problems = [
        f"{name}: a receipt that no stage leaves"
        for name in store.storage.listing(RECEIPTS)
        if not _STAGES.fullmatch(name) and name != ORIGIN
    ]
    in_place, staged = (export_stage(store.config, staged=each) for each in (False, True))
    for shard, stages in expected.items():
        for stage, right in stages.items():
            name = store.receipt_file(stage, shard)
            # A relabel leaves a staged export; a build after it, which then is the newer one, an export in place.
            older = stage == staged and store.storage.stat(store.receipt_file(in_place, shard)) is not None
            if store.storage.stat(name) is None or older:
                continue
            receipt = store.receipt(stage, shard)
            if receipt is None:
                problems.append(f"{name}: it cannot be read; the next build makes the shard again")
                continue
            problems += [f"{name}: {what}" for what in _receipt_problems(store, receipt, right, manifest)]
            made = {file.replace(f"{store.staged_folder}/", f"{DATASET_FOLDER}/", 1) for file in receipt.files}
            if made != _stage_files(store, stage, shard) & manifest.keys():
                problems.append(f"{name}: it names other files than its stage makes")
    return problems


def _stage_files(store: Store, stage: str, shard: Shard) -> set[str]:
    if stage == ROLLOUT:
        return set(store.rollout_files(shard))
    return set(store.label_files(shard)) if stage.startswith(LABEL) else dataset_files(shard)


def _receipt_problems(store: Store, receipt: Receipt, right: Receipt, manifest: Mapping[str, FileRecord]) -> list[str]:
    problems = []
    for made_as, record in receipt.files.items():
        name = made_as.replace(f"{store.staged_folder}/", f"{DATASET_FOLDER}/", 1)
        if manifest.get(name) != record:
            problems.append(f"its record of {name} is not that of {MANIFEST}")
    if receipt.facts != right.facts:
        problems.append(contrast("facts", receipt.facts, right.facts))
    if right.inputs and receipt.inputs != right.inputs:
        problems.append("its inputs are not those of the run; the next build makes the shard again")
    return problems
