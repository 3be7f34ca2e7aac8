"""Writes the generated pages of docs/ anew, and checks the links of all pages.

python docs/build.py            what `make docs` runs
python docs/build.py --check    writes nothing; exit status 1 if a page is stale or a link leads nowhere
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import generate_code
import generate_service

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
PAGES = {**generate_code.PAGES, **generate_service.PAGES}
"""Path below docs/ to the function that gives the page's text."""
NOTICE = "<!-- Written by docs/build.py: change the code or the generator, then run `make docs`. -->\n\n"

_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)|<img[^>]*\ssrc=\"([^\"]+)\"")
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ +(.+?)\s*$", re.MULTILINE)


def stale() -> list[str]:
    """Generated pages that differ from what they would be now."""
    return [
        path
        for path, make in PAGES.items()
        if not (DOCS / path).is_file() or (DOCS / path).read_text(encoding="utf-8") != NOTICE + make()
    ]


def write() -> list[str]:
    """Writes the pages that are stale. Returns them."""
    changed = stale()
    for path in changed:
        (DOCS / path).parent.mkdir(parents=True, exist_ok=True)
        (DOCS / path).write_text(NOTICE + PAGES[path](), encoding="utf-8")
    return changed


def pages() -> list[Path]:
    """All pages whose links are checked."""
    return sorted({*DOCS.rglob("*.md"), *ROOT.glob("*.md")})


def broken_links() -> Iterator[str]:
    """Links to files that do not exist, or to headings that their page does not have. Others' pages are not asked."""
    for page in pages():
        text = _FENCE.sub("", page.read_text(encoding="utf-8"))
        for found in _LINK.finditer(text):
            target = found[1] or found[2]
            if re.match(r"[a-z]+:", target):
                continue
            name, _, anchor = target.partition("#")
            path = (page.parent / name).resolve() if name else page
            where = f"{page.relative_to(ROOT)}: {target}"
            if not path.exists():
                yield f"{where}: there is no such file"
            elif anchor and path.suffix == ".md" and anchor not in anchors(path):
                yield f"{where}: there is no such heading"


def anchors(page: Path) -> set[str]:
    """What a page's headings are called in links: lower case, spaces as dashes, punctuation dropped."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    plain = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(text)]
    return {heading.replace(" ", "-") for heading in plain}


def main(arguments: list[str]) -> int:
    """Runs the program. Returns its exit status."""
    check = arguments == ["--check"]
    if arguments and not check:
        print(__doc__, file=sys.stderr)
        return 2
    changed = stale() if check else write()
    for path in changed:
        print(f"docs/{path}: {'stale: run make docs' if check else 'written'}")
    broken = list(broken_links())
    for line in broken:
        print(line)
    return 1 if broken or (check and changed) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
