"""Record `parley run` in a terminal as an animated picture: `python docs/make_recording.py`.

Writes `docs/recording.svg` from a real run in a new folder. Readers who prefer no motion, and
programs that play no animation, see the last screen.
"""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

COMMAND = ("parley", "run")
COLUMNS, ROWS = 80, 24
SHORTEST_S, LAST_S = 0.12, 8.0
"""Least time between two screens, and how long the last one stays."""

_CELL, _LINE, _PAD = 8.43, 19, 14
_COLOURS = {"1": "bold", "2": "dim", "31": "red", "32": "green", "33": "yellow", "35": "pink"}
_COLOURS |= {"90": "dim", "91": "pink"}
_STYLE = """
text { font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: 14px;
  fill: #e7e9eb; white-space: pre; }
.screen { fill: #14171a; } .bold { font-weight: 700; } .dim { fill: #8b949d; }
.red { fill: #e5786d; } .green { fill: #7fc98f; } .yellow { fill: #d9b65c; }
.pink { fill: #d57f9b; }
"""

Line = list[tuple[str, str]]
"""Characters of a line with the class of their style."""


@dataclass
class Screen:
    """Text of a terminal that understands what `parley run` writes: colours and cursor moves."""

    lines: list[Line] = field(default_factory=lambda: [[]])
    row: int = 0
    column: int = 0
    style: str = ""

    def write(self, text: str) -> None:
        """Write characters and control sequences."""
        for found in re.finditer(r"\x1b\[([0-9;?]*)([A-Za-z])|([^\x1b])", text):
            values, letter, character = found.groups()
            if character:
                self._put(character)
            elif letter == "m":
                names = [_COLOURS[value] for value in values.split(";") if value in _COLOURS]
                self.style = " ".join(names)
            elif letter == "A":
                self.row = max(0, self.row - int(values or 1))
            elif letter == "K":
                self.lines[self.row] = []

    def _put(self, character: str) -> None:
        if character == "\r":
            self.column = 0
        elif character == "\n":
            self.row += 1
            if self.row == len(self.lines):
                self.lines.append([])
        else:
            line = self.lines[self.row]
            line += [(" ", "")] * (self.column + 1 - len(line))
            line[self.column] = (character, self.style)
            self.column += 1

    def copy_lines(self) -> list[Line]:
        """Return the lines as they are now."""
        return [list(line) for line in self.lines]


def record(command: tuple[str, ...], folder: Path) -> list[tuple[float, list[Line]]]:
    """Run a command in a terminal, and return each screen with its time in seconds.

    Raises:
        subprocess.CalledProcessError: the command failed.
    """
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "LINES": str(ROWS), "TERM": "xterm"}
    screen, screens, began = Screen(), [], time.monotonic()
    with subprocess.Popen(  # noqa: S603 - the command above
        command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, env=environment
    ) as process:
        os.close(theirs)
        while True:
            ready, _, _ = select.select([ours], [], [], 0.05)
            try:
                text = os.read(ours, 1 << 16).decode() if ready else ""
            except OSError:  # the other end was closed
                break
            if text:
                screen.write(text)
                screens.append((time.monotonic() - began, screen.copy_lines()))
            elif process.poll() is not None:
                break
    os.close(ours)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return screens


def thin_out(screens: list[tuple[float, list[Line]]]) -> list[tuple[float, list[Line]]]:
    """Return the screens that stay long enough to be seen, and the last one."""
    kept: list[tuple[float, list[Line]]] = []
    for (at, lines), (following, _) in zip(
        screens, [*screens[1:], (float("inf"), [])], strict=True
    ):
        if following - (kept[-1][0] if kept else 0) >= SHORTEST_S:
            kept.append((at, lines))
    return kept


def format_line(line: Line, y: float) -> str:
    """Return a line of text: one piece per style."""
    parts, start = [], 0
    while start < len(line):
        style = line[start][1]
        end = start
        while end < len(line) and line[end][1] == style:
            end += 1
        text = escape("".join(character for character, _ in line[start:end]))
        parts.append(f'<tspan x="{_PAD + start * _CELL:g}" class="{style}">{text}</tspan>')
        start = end
    return f'<text y="{y:g}">{"".join(parts)}</text>'


def build_svg(screens: list[tuple[float, list[Line]]]) -> str:
    """Return the animation: one group of lines per screen, shown one after the other."""
    prompt: Line = [(character, "bold") for character in f"$ {' '.join(COMMAND)}"]
    shown = [(0.0, [prompt])] + [(1.0 + at, [prompt, *lines]) for at, lines in screens]
    total = shown[-1][0] + LAST_S
    style, body = [_STYLE], []
    for number, (at, lines) in enumerate(shown):
        last = number == len(shown) - 1
        begin, end = 100 * at / total, 100 if last else 100 * shown[number + 1][0] / total
        hidden = "" if last else "opacity: 0; "
        style.append(
            f".s{number} {{ {hidden}animation: k{number} {total:.2f}s step-end infinite; }}"
        )
        frames = f"0% {{ opacity: 0; }} {begin:.3f}% {{ opacity: 1; }}"
        frames += "" if last else f" {end:.3f}% {{ opacity: 0; }}"
        style.append(f"@keyframes k{number} {{ {frames} }}")
        body.append(f'<g class="s{number}">')
        tops = range(_PAD + 14, _PAD + 14 + _LINE * len(lines), _LINE)
        body += [format_line(line, y) for line, y in zip(lines, tops, strict=True) if line]
        body.append("</g>")
    style.append("@media (prefers-reduced-motion: reduce) { g { animation: none !important; } }")
    width = round(COLUMNS * _CELL + 2 * _PAD)
    height = _LINE * max(len(lines) for _, lines in shown) + 2 * _PAD
    words = escape("\n".join("".join(c for c, _ in line).rstrip() for line in shown[-1][1]))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img" aria-labelledby="words">',
            f'<title id="words">{words}</title>',
            f"<style>{''.join(style)}</style>",
            f'<rect class="screen" width="{width}" height="{height}" rx="8"/>',
            *body,
            "</svg>\n",
        ]
    )


def main() -> None:
    """Write `docs/recording.svg`."""
    with tempfile.TemporaryDirectory() as folder:
        screens = thin_out(record(COMMAND, Path(folder)))
    target = Path(__file__).with_name("recording.svg")
    target.write_text(build_svg(screens), encoding="utf-8")


if __name__ == "__main__":
    main()
