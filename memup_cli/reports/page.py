"""A report as one self-contained HTML page: template, style, script and data in one file that needs nothing else.

All texts reach the page as data and are shown with textContent; the policy in its head lets no other script run.
"""

import base64
import hashlib
import html
import json
from importlib.resources import files
from typing import Any


def page(report: dict[str, Any]) -> str:
    parts = {name: (files(__package__) / f"page.{name}").read_text("utf-8") for name in ("html", "css", "js")}
    names = ", ".join(run["name"] for run in report["runs"])
    fill = {
        "@TITLE@": html.escape(f"{names} - memup report"),
        "@POLICY@": html.escape(
            f"default-src 'none'; img-src data:; style-src {_hash(parts['css'])}; script-src {_hash(parts['js'])}"
        ),
        "@STYLE@": parts["css"],
        "@DATA@": script_json(report),
        "@SCRIPT@": parts["js"],
    }
    before, text = parts["html"], ""
    for mark, value in fill.items():  # in order, each once: a mark inside the data stays what it is
        head, _, before = before.partition(mark)
        text += head + value
    return text + before


def script_json(data: Any) -> str:
    """JSON that can stand inside a <script> element: no text in it can end the element or begin a comment."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
