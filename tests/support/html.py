"""A page as a browser takes it apart: its elements, links and words, and what is wrong with its form."""

from __future__ import annotations

import re
from collections import Counter
from html.parser import HTMLParser

VOID = frozenset({"meta", "link", "input", "br", "rect"})
ALLOWED = {
    *("html", "head", "meta", "title", "link", "script", "noscript", "body", "header", "nav", "main", "footer"),
    *("form", "label", "input", "button", "div", "section", "ul", "li", "p", "h1", "h2", "a", "span", "small"),
    *("table", "caption", "thead", "tbody", "tr", "th", "td", "svg", "rect", "abbr", "strong", "code", "pre", "time"),
    *("details", "summary", "dl", "dt", "dd"),
}
"""What the templates use; anything else came from elsewhere."""


class Page(HTMLParser):
    """One page, parsed.

    Attributes:
        elements: Name and attributes of each element, in order.
        links: Where its links lead.
        words: All its text, in order.
        wrong: What a browser would have to guess at.
    """

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.wrong: list[str] = []
        self._open: list[str] = []
        self._words: list[str] = []
        self.feed(text)
        self.close()
        self.wrong += [f"{name} is never closed" for name in self._open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element without content."""
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        """Close an element."""
        if not self._open or self._open.pop() != tag:
            self.wrong.append(f"{tag} is closed where another is open")

    def handle_data(self, data: str) -> None:
        """Note text."""
        self._words.append(data)

    @property
    def text(self) -> str:
        """All text, its white space made one."""
        return re.sub(r" ([,.;:])", r"\1", " ".join(" ".join(self._words).split()))

    @property
    def links(self) -> list[str]:
        """Where its links lead."""
        return [str(attributes["href"]) for name, attributes in self.elements if name == "a"]

    def all(self, name: str) -> list[dict[str, str | None]]:
        """Return the attributes of all elements of one name."""
        return [attributes for found, attributes in self.elements if found == name]

    def faults(self) -> list[str]:
        """Return what is wrong: form, anything that could run, what a screen reader would miss."""
        found = list(self.wrong)
        found += [f"element {name}" for name, _ in self.elements if name not in ALLOWED]
        for name, attributes in self.elements:
            found += [f"{name} {key}" for key in attributes if key.startswith("on") or key == "style"]
        found += [f"link to {to}" for to in self.links if not to.startswith(("/", "#")) or to.startswith("//")]
        found += [f"script {one}" for one in self.all("script") if set(one) != {"src", "defer"}]
        ids = Counter(attributes["id"] for _, attributes in self.elements if "id" in attributes)
        found += [f"id {name} is there {count} times" for name, count in ids.items() if count > 1]
        found += [
            f"{name} is there {len(self.all(name))} times"
            for name in ("main", "h1", "title")
            if len(self.all(name)) != 1
        ]
        found += ["a table without caption"] * (len(self.all("table")) - len(self.all("caption")))
        found += ["a head of a table without scope" for one in self.all("th") if "scope" not in one]
        found += ["a picture without words" for one in self.all("svg") if not {"aria-label", "aria-hidden"} & set(one)]
        return found
