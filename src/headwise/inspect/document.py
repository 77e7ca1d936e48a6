"""Self-contained pages: one file that makes no request and runs only our own script.

The page's Content-Security-Policy names the digests of its script and its style, so markup in
untrusted text could neither run nor load anything. It blocks style attributes, too: pages use
classes.
"""

import base64
import hashlib
import json
from html import escape

STYLE = """
:root { color-scheme: light dark; --ink: #1d2430; --dim: #5b6676; --line: #d5dbe3; --grid: #e3e8ee;
  --paper: #fbfcfd; --card: #ffffff; --accent: #1f5fbf; --heat: 31, 95, 191; --works: #17663a; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf0; --dim: #9aa6b6; --line: #343c49;
  --grid: #2c3440; --paper: #12161c; --card: #1a2029; --accent: #7db1ff; --heat: 125, 177, 255;
  --works: #7fd4a2; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; }
main { max-width: 76rem; margin: 0 auto; padding: 2rem 1rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .35rem; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 0 0 .25rem; }
h3 { font-size: 1rem; margin: 0; }
.lead { color: var(--dim); margin: 0; font-size: 1.05rem; max-width: 48rem; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: .6rem;
  padding: 1.25rem; margin-top: 1.25rem; min-width: 0; }
noscript p { border-left: 4px solid var(--accent); padding-left: .75rem; }
@media (max-width: 40rem) { main { padding: 1.25rem .75rem 3rem; } .card { padding: 1rem .75rem; } }
/* Projectors and other large screens. */
@media (min-width: 120rem) { html { font-size: 20px; } body { font-size: 1rem; } }
"""
"""The style of every page: colours, light and dark, headings and cards."""


def render_document(
    *, title: str, body: str, style: str, script: str = "", data: dict[str, object] | None = None
) -> str:
    """Return a page with the given HTML body; the title is plain text.

    The script finds `data`, as JSON, in the element whose id is `page-data`.
    """
    policy = (
        f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)}; "
        "img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    scripts = ""
    if data is not None:
        scripts += f'<script type="application/json" id="page-data">{_embedded(data)}</script>\n'
    if script:
        scripts += f"<script>{script}</script>\n"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{style}</style>
</head>
<body>
<main>
{body}
</main>
{scripts}</body>
</html>
"""


def _embedded(data: dict[str, object]) -> str:
    """Write data as JSON without <, so that no text in it can close the script element."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")


def _digest(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
