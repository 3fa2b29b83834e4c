"""Hooks of MkDocs: sources for the API reference, pages of the repository root, links, and help of every command."""

import os
import re
import shutil
from pathlib import Path

import click
import typer.main
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pivot.cli import app

ROOT = Path(__file__).resolve().parents[2]
ROOT_PAGES = {"CHANGELOG.md": "reference/changelog.md", "CONTRIBUTING.md": "internals/contributing.md"}
"""Pages of the repository root, and their paths on the site."""
HELP = "<!-- On the site, the help of every command follows. -->\n"
API = ROOT / "build" / "api"
"""Folder of links to the package for the API reference, with an ``__init__.py`` per folder as Griffe needs."""
_LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?![a-z]+:|#)([^)\s#]+)(#[^)\s]*)?\)")
_OPTIONS = re.compile(r"<table>\s*<thead>\s*<tr>\s*<th>argument or option</th>.*?</table>", re.DOTALL)
_ROLE = re.compile(r":(?:attr|class|data|func|meth|mod):(?=<code>|`)")


@event_priority(100)
def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Link the package into a folder in which ``datasets`` has an ``__init__.py``, before mkdocstrings looks for it."""
    shutil.rmtree(API, ignore_errors=True)
    datasets = API / "pivot" / "datasets"
    datasets.mkdir(parents=True)
    (datasets / "__init__.py").write_text('"""Config, store, tables and export."""\n', encoding="utf-8")
    folders = sorted(
        path.parent for path in ROOT.glob("*/__init__.py") if path.parent.name not in ("tests", "benchmarks")
    )
    for path in [*ROOT.glob("*.py"), *folders]:
        (API / "pivot" / path.name).symlink_to(path)
    for path in (ROOT / "datasets").iterdir():
        (datasets / path.name).symlink_to(path)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the repository root, with links relative to their path on the site."""
    for name, path in ROOT_PAGES.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, path, content=_with_links(text, ROOT, path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite links that leave the documentation, and insert the help of the commands."""
    path = page.file.src_path
    if path in ROOT_PAGES.values():
        return markdown
    markdown = _with_links(markdown, (Path(config.docs_dir) / path).parent, path)
    return markdown.replace(HELP, HELP + command_help())


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Remove marks of reStructuredText in docstrings, and fold what makes pages long: members and options.

    The marks are names of roles, and double colons before code. A link to a folded member opens its fold.
    """
    html = _OPTIONS.sub(r"<details><summary>arguments and options</summary>\g<0></details>", html)
    parts: list[str] = []
    classes: list[bool] = []  # whether each open div is a class
    folds: list[int] = []  # depths of the open folds
    for part in re.split(r"(<div\b[^>]*>|</div>)", _ROLE.sub("", html).replace("::</p>", ":</p>")):
        if part.startswith("<div"):
            if "doc-children" in part and any(classes) and not folds:
                folds.append(len(classes))
                parts.append("<details><summary>members</summary>")
            classes.append("doc-class" in part)
        parts.append(part)
        if part == "</div>":
            classes.pop()
            if folds and folds[-1] == len(classes):
                folds.pop()
                parts.append("</details>")
    return "".join(parts)


def _with_links(text: str, folder: Path, path: str) -> str:
    """Return a page whose links lead to pages of the site; a link to a source file keeps its text alone."""

    def rewrite(link: re.Match[str]) -> str:
        target = Path(os.path.normpath(folder / link[2]))
        name = target.relative_to(ROOT).as_posix()
        if name in ROOT_PAGES or name.startswith("docs/"):
            name = ROOT_PAGES.get(name, name.removeprefix("docs/"))
            return f"[{link[1]}]({os.path.relpath(name, Path(path).parent)}{link[3] or ''})"
        if not target.exists():
            raise ValueError(f"{path} links to {link[2]}, which does not exist; fix the link")
        return link[1]

    return _LINK.sub(rewrite, text)


def command_help() -> str:
    """Return usage, description and options of every command as Markdown."""
    group = typer.main.get_group(app)
    return "\n".join(_sections(group, click.Context(group, info_name="pivot")))


def _sections(group: click.Group, context: click.Context) -> list[str]:
    lines: list[str] = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        inner = click.Context(command, info_name=name, parent=context)
        if command is not None and not command.hidden:
            lines += _sections(command, inner) if hasattr(command, "commands") else _section(command, inner)
    return lines


def _section(command: click.Command, context: click.Context) -> list[str]:
    usage = " ".join(command.collect_usage_pieces(context))
    lines = [f"\n## {context.command_path}\n", f"```text\n{context.command_path} {usage}\n```\n", _plain(command.help)]
    options = [parameter.get_help_record(context) for parameter in command.get_params(context)]
    rows = [f"| `{_cell(flag)}` | {_cell(_plain(text))} |" for flag, text in filter(None, options)]
    return [*lines, "\n| argument or option | meaning |\n| --- | --- |", *rows, ""]


def _plain(text: str | None) -> str:
    """Return a help text as Markdown: rich's headings bold, without its escapes, and command lines as code."""
    marked = re.sub(r"\[bold\](.*?)\[/\]", r"**\1**", text or "")
    return re.sub(r"^(?=(?:pivot|torchrun) )", "    ", marked.replace("\\[", "[").replace("\b", ""), flags=re.MULTILINE)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
