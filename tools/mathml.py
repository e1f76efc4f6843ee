"""Typeset the equations of pages as the site is built, so that they need no script and no network.

A hook of MkDocs. What stands between dollars is LaTeX, as on GitHub; browsers draw MathML.
"""

import html
import re
from typing import Any

from latex2mathml.converter import convert

EQUATION = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\[(\[](?P<latex>.*?)\\[)\]]</(?P=tag)>', re.DOTALL
)


def on_page_content(text: str, **kwargs: Any) -> str:
    r"""The page with MathML in place of its LaTeX.

    `make docs` runs this example:

    >>> on_page_content(r'so <span class="arithmatex">\(a_i\)</span>.').split(">")[0]
    'so <math xmlns="http://www.w3.org/1998/Math/MathML" display="inline"'
    """
    return EQUATION.sub(_mathml, text)


def _mathml(found: re.Match[str]) -> str:
    display = "block" if found["tag"] == "div" else "inline"
    return convert(html.unescape(found["latex"]).strip(), display=display)
