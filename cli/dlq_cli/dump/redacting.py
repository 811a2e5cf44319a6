"""Takes secrets out of texts: keys, tokens, passwords, values of environments, and commands.

A secret that looks like ordinary words cannot be known. So a dump is for people to read before they
send it on, and its list of files says so.
"""

from __future__ import annotations

import json
import re
from typing import Any

GONE = "[left out]"
# Keys of JSON documents and log lines that hold the words of users.
_USERS = frozenset(
    {"command", "argv", "arguments", "script", "wrap", "cmdline", "environment", "env", "secrets",
     "comment", "labels"}
)  # fmt: skip
_NAMES = (
    r"(?:password|passwd|passphrase|secret|token|credential|authorization|cookie|webhook|dsn"
    r"|(?:api|private|access|account|signing|encryption|shared)[_-]?key)"
)
_SECRET_KEY = re.compile(rf"(?i){_NAMES}|\A(?:pass|pwd)\Z")
_VALUE = (
    r"(\"\"\"(?s:.*?)(?:\"\"\"|\Z)|'''(?s:.*?)(?:'''|\Z)"
    r"|\"(?:\\.|[^\"\\\n])*\"|(?:'[^'\n]*')+|[^\s,;}\]]+)"
)
# Each works in a time that is proportional to the text: a log may have a line of a megabyte.
_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"-----BEGIN [^-]+-----.*?(-----END [^-]+-----|\Z)", re.DOTALL), GONE),
    (re.compile(r"\A[A-Za-z0-9+/=\s]*-----END [^-]+-----"), GONE),  # the end of a log begins in it
    (re.compile(r"dlq1\.[A-Za-z0-9_.-]+"), GONE),  # join tokens
    # tokens of others that are known by their first letters
    (re.compile(r"\b(?:sk-|hf_|gh[pousr]_|github_pat_|glpat-|xox[a-z]-)[\w-]{8,}"), GONE),
    (re.compile(r"\b(?:npm_|pypi-|dckr_pat_|dop_v1_|AIza|[rs]k_(?:live|test)_)[\w-]{8,}"), GONE),
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}|\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*"), GONE),
    (re.compile(r"(?i)([?&#](?:link|token|code|secret|key)=)[^&\s\"']+"), rf"\1{GONE}"),
    (re.compile(r"(?i)/wall#\S+"), f"/wall#{GONE}"),
    # addresses that are secrets themselves
    (re.compile(r"(?i)(https?://[^\s/\"']{0,256}hook[^\s/\"']{0,256}/)[^\s\"']+"), rf"\1{GONE}"),
    (re.compile(r"(?i)(https?://[^\s\"']{0,256}/(?:web)?hooks?/)[^\s\"']+"), rf"\1{GONE}"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}"), rf"\1 {GONE}"),
    (re.compile(r"([a-z][a-z0-9+.-]{0,20}://[^/\s:@]{0,256}):[^\s/\"']{1,256}@"), rf"\1:{GONE}@"),
    (re.compile(r"(?i)(cookie\s*:\s*)[^\n\"']+"), rf"\1{GONE}"),
    (re.compile(rf"(?i)((?<![\w-])--[\w-]*{_NAMES}[\w-]{{0,64}}\s+){_VALUE}"), rf"\1{GONE}"),
    # name = "value", name: value and NAME=value, where the name says that it is a secret
    (
        re.compile(
            rf"(?i)((?:(?<![\w.-])[\w.-]*{_NAMES}[\w.-]{{0,64}}|\bpass|\bpwd)"
            rf"[\"']?\s*[=:]\s*){_VALUE}"
        ),
        rf"\1{GONE}",
    ),
)


def redacted(text: str, *, with_commands: bool = False) -> str:
    """The text without secrets, line by line where a line is JSON."""
    lines = [_line(line, with_commands=with_commands) for line in text.split("\n")]
    return _plain("\n".join(lines))


def _line(line: str, *, with_commands: bool) -> str:
    if not line.lstrip().startswith(("{", "[")):
        return line
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return line
    return json.dumps(_value(value, with_commands=with_commands), ensure_ascii=False)


def _value(value: Any, *, with_commands: bool) -> Any:
    if isinstance(value, dict):
        return {
            key: GONE
            if each and _is_left_out(str(key), with_commands=with_commands)
            else _value(each, with_commands=with_commands)
            for key, each in value.items()
        }
    if isinstance(value, list):
        return [_value(each, with_commands=with_commands) for each in value]
    return _plain(value) if isinstance(value, str) else value


def _is_left_out(key: str, *, with_commands: bool) -> bool:
    if key in ("environment", "env", "secrets"):
        return True
    return _SECRET_KEY.search(key) is not None or (key in _USERS and not with_commands)


def _plain(text: str) -> str:
    for pattern, instead in _PATTERNS:
        text = pattern.sub(instead, text)
    return text
