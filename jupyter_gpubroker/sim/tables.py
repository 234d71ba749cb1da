# SPDX-License-Identifier: BSD-3-Clause
"""CSV files of people -> rows of checked values; errors name file, line, field and remedy."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import isfinite

from ..core.model import Refusal

ROWS_MAX = 5_000_000
Parse = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Column:
    """One column: how its values are read, and what an empty or absent one stands for."""

    parse: Parse
    default: object = None
    required: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a file, read."""

    file: str
    line: int
    values: Mapping[str, object]

    def wrong(self, field: str, message: str, remedy: str = "") -> Refusal:
        """What is wrong with one of its values."""
        return Refusal(f"{self.file} line {self.line}: {field}", message, remedy)

    def text(self, field: str) -> str:
        """A value that is text."""
        return str(self.values[field])

    def whole(self, field: str) -> int:
        """A value that is a whole number."""
        value = self.values[field]
        assert isinstance(value, int), (field, value)
        return value

    def seconds(self, field: str) -> float:
        """A value that is a number of seconds."""
        value = self.values[field]
        assert isinstance(value, int | float), (field, value)
        return float(value)


def text(value: str) -> object:
    """Text of one line, not too long."""
    if len(value) > 100 or not value.isprintable():
        raise ValueError("is not a short text of one line")
    return value


def whole(least: int = 0, most: int = 10**9) -> Parse:
    """A whole number in a range."""

    def parse(value: str) -> object:
        try:
            number = int(value)
        except ValueError:
            raise ValueError(f"{value!r} is not a whole number") from None
        if not least <= number <= most:
            raise ValueError(f"{number} is out of range: {least} … {most}")
        return number

    return parse


def seconds(value: str) -> object:
    """A number of seconds that is not negative."""
    try:
        number = float(value)
    except ValueError:
        raise ValueError(f"{value!r} is not a number of seconds") from None
    if not isfinite(number) or number < 0:
        raise ValueError(f"{value} is out of range: 0 or more")
    return number


def runtime(value: str) -> object:
    """Seconds, or -1 for what never ends."""
    return -1.0 if value in ("-1", "-1.0") else seconds(value)


def rows(content: str, file: str, columns: Mapping[str, Column]) -> Iterator[Row]:
    """The rows of a file; Refusal at the first that is wrong."""
    reader = csv.reader(io.StringIO(content), strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        _check_header(header, file, columns)
        for count, cells in enumerate(reader):
            if cells:
                yield _row(header, cells, Row(file, reader.line_num, {}), columns)
            if count > ROWS_MAX:
                raise Refusal(file, f"has more than {ROWS_MAX} lines")
    except csv.Error as error:
        raise Refusal(f"{file} line {reader.line_num}", f"is not CSV: {error}") from None


def _check_header(header: list[str], file: str, columns: Mapping[str, Column]) -> None:
    where, known = f"{file} line 1", "columns: " + ",".join(columns)
    for name in header:
        if name not in columns:
            raise Refusal(f"{where}: {name}", "unknown column", known)
        if header.count(name) > 1:
            raise Refusal(f"{where}: {name}", "is there twice", known)
    for name, column in columns.items():
        if column.required and name not in header:
            raise Refusal(f"{where}: {name}", "this column must be there", known)


def _row(header: list[str], cells: list[str], row: Row, columns: Mapping[str, Column]) -> Row:
    if len(cells) != len(header):
        raise row.wrong("columns", f"{len(cells)} values for {len(header)} columns")
    given = dict(zip(header, cells, strict=True))
    values: dict[str, object] = {}
    for name, column in columns.items():
        value = given.get(name, "").strip()
        if not value and column.required:
            raise row.wrong(name, "must be given")
        try:
            values[name] = column.parse(value) if value else column.default
        except ValueError as error:
            raise row.wrong(name, str(error)) from None
    return Row(row.file, row.line, values)
