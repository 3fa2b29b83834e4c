"""Long description of the package, with absolute links: ``pyproject.toml`` cannot compute it.

A package index resolves no relative link. Where ``[project.urls]`` names a ``Repository``, links and pictures of the
README lead there; without one, links leave their text and pictures go, so that none is broken.
"""

import re
import tomllib
from pathlib import Path

from setuptools import setup

_HERE = Path(__file__).parent
_PICTURE = re.compile(r"!\[([^\]]*)\]\((?![a-z]+:)([^)]+)\)\n?")
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?![a-z]+:|#)([^)]+)\)")


def long_description(readme: str, repository: str | None) -> str:
    """Return the README with no link in it that is relative to the repository; ``repository`` is its address."""
    if repository is None:
        return _LINK.sub(r"\1", _PICTURE.sub("", readme))
    base = repository.rstrip("/").removesuffix(".git")
    readme = _PICTURE.sub(lambda match: f"![{match[1]}]({base}/raw/HEAD/{match[2]})\n", readme)
    return _LINK.sub(lambda match: f"[{match[1]}]({base}/blob/HEAD/{match[2]})", readme)


if __name__ == "__main__":
    project = tomllib.loads((_HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    setup(
        script_name=Path(__file__).name,  # not a module of the package, which has the same folder
        long_description=long_description(
            (_HERE / "README.md").read_text(encoding="utf-8"), project.get("urls", {}).get("Repository")
        ),
        long_description_content_type="text/markdown",
    )
