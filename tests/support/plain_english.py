"""Finds sentences that are hard to read, in pages and in the texts of the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from inspect import cleandoc
from itertools import groupby
from pathlib import Path

MOST_WORDS = 25
# A string literal of fewer words is a name, a unit or a format, not a sentence.
FEWEST_WORDS_OF_A_TEXT = 4
# A clause in the place of a subject. A question may begin so.
CLAUSE = re.compile(r"(Who|Whoever|What|Whatever|Those (that|who)|That which|Of whom|Which)\b")
HANGING = re.compile(r"[;,] (who|of whom|whoever)\b")
# The same inside a sentence of the code, where pages have no such rule yet.
INNER = re.compile(
    r"[;:] (who|whoever|whom|whose|what|whatever|those (that|who)|which)\b"
    r"|\b(and|but|or|than|as|that|if|for|of|to|by|from|with) (who|whoever)\b"
)
# Comments that speak to a tool.
_PRAGMA = re.compile(r"#\s*(noqa|type:|fmt:|pragma|ruff:|mypy:|pylint:|SPDX|!)")
# Literals in another language: SQL, style sheets, TOML.
_CODE = re.compile(
    r"\s*((SELECT|INSERT|UPDATE|DELETE|CREATE|DROP|ALTER|PRAGMA|WITH|ATTACH)\b|\w+ \{ |\[\[?\w+\])"
)
# Strings come first: a # inside of one begins no comment.
_PYTHON_COMMENT = re.compile(
    r'''"""(?:[^\\]|\\.)*?"""|\'\'\'(?:[^\\]|\\.)*?\'\'\'|"(?:[^"\\\n]|\\.)*"'''
    r"""|'(?:[^'\\\n]|\\.)*'|(?P<comment>#[^\n]*)""",
    re.DOTALL,
)
_C_TEXT = re.compile(
    r"""//[^\n]*(?:\n[ \t]*//[^\n]*)*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'""",
    re.DOTALL,
)


# The line of `make reproduce` above a table: its command, its settings and its CPU time.
ORIGIN_LINE = re.compile(r"(?m)^\(`make reproduce ONLY=.*\)$")


def sentences(text: str) -> Iterator[str]:
    """Sentences of paragraphs and lists; code, links' targets and tables are left out."""
    text = ORIGIN_LINE.sub("", text)
    text = re.sub(r"(?ms)^ *```.*?^ *```|<!--.*?-->|^ {4,}.*?$", "", text)
    for block in re.split(r"\n\s*\n|\n(?=\s*[-*|#]|\d+\. )", text):
        if "|" in block or block.lstrip().startswith("#"):
            continue
        words = re.sub(r"^\s*(?:[-*#]+|\d+\.)\s*", "", block)
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]*`", "X", words))
        yield from re.split(r"(?<=[.!?])\s+|(?<=[:;])\s+(?=[A-Z\"*(])", " ".join(words.split()))


def is_hard(sentence: str) -> bool:
    """True of a sentence without a named subject, or with more words than a reader holds."""
    plain = sentence.strip("*_ ")
    if len(plain.split()) > MOST_WORDS or HANGING.search(plain):
        return True
    return CLAUSE.match(plain) is not None and not plain.endswith("?")


def hard_in_code(path: Path) -> Iterator[tuple[int, str]]:
    """(line, sentence) of each hard sentence in Python, C, protobuf, shell or a configuration."""
    source = path.read_text()
    if path.suffix == ".py":
        texts = _python_texts(source)
    elif path.suffix in {".c", ".h", ".proto"}:
        texts = _c_texts(source)
    else:
        texts = _hash_texts(source)
    for line, text in texts:
        hard = (one for one in sentences(text) if is_hard(one) or _is_hard_inside(one))
        yield from ((line, one) for one in hard)


def _is_hard_inside(sentence: str) -> bool:
    return INNER.search(sentence) is not None and not sentence.endswith("?")


def _python_texts(source: str) -> Iterator[tuple[int, str]]:
    """Docstrings, comments and string literals that are sentences."""
    inner: set[int] = set()
    for node in _nodes(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            inner.update(map(id, node.values))
            text = "".join(
                str(one.value) if isinstance(one, ast.Constant) else "X" for one in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = "" if id(node) in inner else node.value
        else:
            continue
        if len(text.split()) >= FEWEST_WORDS_OF_A_TEXT and not _CODE.match(text):
            yield node.lineno, _without_shown_lines(text)
    yield from _comments(source)


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node but names, each before its children. `ast.walk` takes twice as long."""
    left = [tree]
    while left:
        node = left.pop()
        yield node
        for field in node._fields:
            value = getattr(node, field)
            if isinstance(value, list):
                left += [one for one in value if isinstance(one, ast.AST)]
            elif isinstance(value, ast.AST) and not isinstance(value, ast.Name | ast.expr_context):
                left.append(value)


def _comments(source: str) -> Iterator[tuple[int, str]]:
    """Comments. Comments on consecutive lines, in one column, are one text."""
    found, line, counted = [], 1, 0
    for one in _PYTHON_COMMENT.finditer(source):
        text = one["comment"]
        if text and not _PRAGMA.match(text):
            line, counted = line + source.count("\n", counted, one.start()), one.start()
            column = one.start() - source.rfind("\n", 0, one.start()) - 1
            found.append(((line, column), text.lstrip("#:").removeprefix(" ").rstrip("- ")))
    blocks = groupby(enumerate(found), lambda one: (one[1][0][0] - one[0], one[1][0][1]))
    for _, block in blocks:
        lines = [one for _, one in block]
        yield lines[0][0][0], "\n".join(words for _, words in lines)


def _c_texts(source: str) -> Iterator[tuple[int, str]]:
    for found in _C_TEXT.finditer(source):
        text = found.group()
        if text[0] == "/":
            bare = re.sub(r"(?m)^\s*(?://+|/?\*+)/?|\*/\s*$", "", text)
            yield source.count("\n", 0, found.start()) + 1, _without_shown_lines(bare)


def _hash_texts(source: str) -> Iterator[tuple[int, str]]:
    """Comments on lines of their own; a setting that is commented out is no sentence."""
    for found in re.finditer(r"(?m)(^[ \t]*#(?![!\w]).*\n)+", source):
        bare = re.sub(r"(?m)^[ \t]*# ?(\w+ = .*|-+$)?", "", found.group())
        yield source.count("\n", 0, found.start()) + 1, _without_shown_lines(bare)


def _without_shown_lines(text: str) -> str:
    r"""Without paragraphs that click prints as they are (\b), and without lines of columns."""
    prose = re.sub(r"(?s)\x08.*?(\n\s*\n|\Z)", "\n\n", cleandoc(text))
    return re.sub(r"(?m)^.*\S {2,}\S.*$", "", prose)
