"""The attention explorer as a self-contained page."""

from collections.abc import Sequence
from html import escape
from typing import TypedDict

from headwise.inspect.attention import AttentionRecord, Kind
from headwise.inspect.document import STYLE, render_document
from headwise.inspect.explorer_files import explorer_script, explorer_style

EXPLORER = """<div id="explorer"></div>
<noscript><p>The attention explorer needs JavaScript; it is all in this file.</p></noscript>"""
"""Where `EXPLORER_START` puts the explorer."""

EXPLORER_START = """
(function () {
  const data = JSON.parse(document.getElementById("page-data").textContent);
  HeadwiseExplorer.mount(document.getElementById("explorer"), data.records, data.choice);
})();
"""


class Choice(TypedDict, total=False):
    """What the explorer shows first; positions count from 0."""

    kind: Kind
    layer: int
    head: int


def explorer_data(records: Sequence[AttentionRecord], choice: Choice) -> dict[str, object]:
    """Return what `EXPLORER_START` reads."""
    return {"records": [record.to_dict() for record in records], "choice": choice}


def render_attention(record: AttentionRecord, weights: str, choice: Choice) -> str:
    """Return the explorer of one record as an HTML document; `weights` names the checkpoint."""
    body = f"""<h1>Where the model looks</h1>
<p class="lead">Attention is how a Transformer relates words: each word looks at others, and the
numbers say how much. Choose a word to see. The weights are those of {escape(weights)}.</p>
<div class="card">
{EXPLORER}
</div>"""
    return render_document(
        title=f"Attention: {record.text}",
        body=body,
        style=STYLE + explorer_style(),
        script=explorer_script() + EXPLORER_START,
        data=explorer_data([record], choice),
    )
