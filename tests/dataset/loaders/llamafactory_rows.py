"""Read an export with the loader of LLaMA-Factory, and write its rows as JSON.

``python llamafactory_rows.py FOLDER STAGE OUT``, in an environment that has LLaMA-Factory and not PIVOT. Its module for
sound imports torchaudio, which needs CUDA; pictures do not use it.
"""

import hashlib
import json
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from transformers import Seq2SeqTrainingArguments

sys.modules["torchaudio"] = ModuleType("torchaudio")
sys.modules["torchaudio"].__spec__ = ModuleSpec("torchaudio", None)

from llamafactory.data.loader import _get_merged_dataset  # noqa: E402
from llamafactory.data.mm_plugin import BasePlugin  # noqa: E402
from llamafactory.hparams import DataArguments, ModelArguments  # noqa: E402


def digest(image: Any) -> str:
    """Return the digest of the pixels of a picture."""
    return hashlib.sha256(image.convert("RGB").tobytes()).hexdigest()


def main(folder: str, stage: str, out: str) -> None:
    """Load every set that ``dataset_info.json`` names, and check the pictures of each row as the trainer does."""
    names = sorted(json.loads(Path(folder, "dataset_info.json").read_text()))
    data = DataArguments(dataset=",".join(names), dataset_dir=folder)
    training = Seq2SeqTrainingArguments(output_dir=f"{out}.out", use_cpu=True)
    model = ModelArguments(model_name_or_path="none")
    plugin = BasePlugin(image_token="<image>", video_token=None, audio_token=None)
    rows: list[dict[str, Any]] = []
    for name in names:
        for row in _get_merged_dataset([name], model, data, training, stage):
            plugin._validate_messages(row["_prompt"] + row["_response"], row["_images"], [], [])
            images = [digest(image) for image in row["_images"]]
            rows.append({"prompt": row["_prompt"], "response": row["_response"], "images": images})
    Path(out).write_text(json.dumps(rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
