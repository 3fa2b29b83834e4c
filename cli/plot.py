"""``pivot plot``: pictures of a store."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from ..core.storage import write_file
from ..insight.plots import save_plots
from ..insight.stats import make_folder
from .console import out
from .options import StorePath, option, path_option


class PictureFormat(StrEnum):
    """Format of a picture."""

    PNG = "png"
    SVG = "svg"


def plot(
    root: StorePath,
    target: Annotated[Path, path_option("Folder for the pictures.", "--out", "PATH")] = Path("plots"),
    style: Annotated[PictureFormat, option("Format of the pictures.", "--format")] = PictureFormat.PNG,
) -> None:
    """Draw a store: return ladder, failure modes, pivot steps, slack; after a probe also its improvements.

    The plotting library comes with the extra "plots" of the package.

    [bold]Example[/]

    pivot plot runs/first --out plots
    """
    pictures = save_plots(root, style.value)
    make_folder(target)
    for name, content in pictures.items():
        write_file(target / name, content)
    out.print(f"wrote to {target}: {', '.join(pictures) or 'nothing, because no episode failed'}")
