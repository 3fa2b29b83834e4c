"""Versions of the packages that a training run depends on."""

from importlib.metadata import PackageNotFoundError, version

PACKAGES = (
    "pivot-vlm",
    "torch",
    "transformers",
    "trl",
    "accelerate",
    "peft",
    "datasets",
    "numpy",
    "pillow",
    "torchvision",
)


def training_versions() -> dict[str, str]:
    """Return the installed versions by package."""
    versions: dict[str, str] = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    return versions
