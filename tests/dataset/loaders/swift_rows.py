"""Read an export with the loader of ms-swift, and write its rows as JSON.

``python swift_rows.py FOLDER OUT``, in an environment that has ms-swift and not PIVOT.
"""

import hashlib
import io
import json
import sys
from pathlib import Path
from typing import Any

from PIL import Image
from swift.dataset import load_dataset
from swift.template.template_inputs import TemplateInputs


def digest(image: dict[str, Any]) -> str:
    """Return the digest of the pixels of an image cell as ms-swift hands it to its template."""
    data = image["bytes"] if image["bytes"] is not None else Path(image["path"]).read_bytes()
    return hashlib.sha256(Image.open(io.BytesIO(data)).convert("RGB").tobytes()).hexdigest()


def main(folder: str, out: str) -> None:
    """Load an export, strictly: a row that ms-swift would drop is an error."""
    data, _ = load_dataset(folder, strict=True, use_hf=True)
    rows: list[dict[str, Any]] = []
    for row in data:
        inputs = TemplateInputs.from_dict(dict(row))
        rejected = None if inputs.rejected is None else inputs.rejected.messages
        images = [digest(each) for each in row["images"]]
        rows.append({"messages": inputs.chosen.messages, "rejected": rejected, "images": images})
    Path(out).write_text(json.dumps(rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
