"""The versions that a training run depends on."""

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
    found: dict[str, str] = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
