"""Records of ranges of files: each record once, in order, for any division into ranges. Without Spark."""

from __future__ import annotations

import bz2
import datetime
import gzip
import io
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rw_sql.connectors.files import rows as file_rows

if TYPE_CHECKING:
    from collections.abc import Iterable

LINE = st.binary(max_size=12).map(lambda text: text.replace(b"\n", b"x").replace(b"\r", b"y"))
CUTS = st.lists(st.integers(0, 120), max_size=6)


def collected(found: Iterable[file_rows.Lines]) -> list[tuple[int, bytes]]:
    return [(int(at), text) for places, texts in found for at, text in zip(places, texts, strict=True)]


def stretches(size: int, cuts: list[int]) -> list[tuple[int, int]]:
    ends = sorted({0, size, *(cut for cut in cuts if cut < size)})
    return list(pairwise(ends))


@given(st.lists(LINE, max_size=12), st.booleans(), CUTS, st.integers(1, 30))
def test_stretches_side_by_side_have_each_line_once(
    texts: list[bytes], is_ended: bool, cuts: list[int], chunk: int
) -> None:
    data = b"\n".join(texts) + (b"\n" if is_ended and texts else b"")
    at, wanted = 0, []
    for text in texts:
        if text:
            wanted.append((at, text.removeprefix(b"\xef\xbb\xbf") if at == 0 else text))
        at += len(text) + 1
    wanted = [(place, text) for place, text in wanted if text]
    found = [
        each
        for start, end in stretches(len(data), cuts)
        for each in collected(file_rows.lines(io.BytesIO(data), start, end, chunk=chunk))
    ]
    assert found == wanted


@given(st.lists(LINE, max_size=12), CUTS, st.integers(1, 30))
def test_compressed_lines_are_each_in_one_stretch(texts: list[bytes], cuts: list[int], chunk: int) -> None:
    packed = gzip.compress(b"\n".join(texts), mtime=0)
    size = len(packed)
    found = [
        each
        for start, end in stretches(size, cuts)
        for each in collected(
            file_rows.compressed_lines(lambda: gzip.GzipFile(fileobj=io.BytesIO(packed)), size, start, end, chunk=chunk)
        )
    ]
    wanted = collected(file_rows.lines(io.BytesIO(b"\n".join(texts)), 0, None))
    assert [text for _, text in found] == [text for _, text in wanted]
    places = [at for at, _ in found]
    assert places == sorted(places)
    assert all(0 <= at < size for at in places)


def test_ends_of_lines_and_a_byte_order_mark_are_no_part_of_lines() -> None:
    data = b"\xef\xbb\xbfa\r\n\r\n\nb\r\nc"
    assert collected(file_rows.lines(io.BytesIO(data), 0, None)) == [(0, b"a"), (9, b"b"), (12, b"c")]


def test_a_line_that_is_longer_than_a_chunk() -> None:
    data = b"x" * 1000 + b"\n" + b"y" * 1000
    assert collected(file_rows.lines(io.BytesIO(data), 1, 2001, chunk=7)) == [(1001, b"y" * 1000)]


def test_an_empty_compressed_file() -> None:
    packed = bz2.compress(b"")
    assert collected(file_rows.compressed_lines(lambda: bz2.BZ2File(io.BytesIO(packed)), len(packed), 0, 99)) == []


@pytest.mark.parametrize(
    ("header", "order"),
    [(b"id,name", None), (b"name,id", [1, 0]), (b"ID,Name", None), (b"name", [None, 0]), (b"x,id,y,name", [1, 3])],
)
def test_columns_are_found_by_the_header(header: bytes, order: list[int | None] | None) -> None:
    assert file_rows.column_order(header, ["id", "name"], ",") == order


def test_fields_are_put_in_the_columns_order() -> None:
    texts = [b'"a, b",1', b"x,2,3", b"y,2"]
    assert file_rows.reordered(texts, [1, 0], 2, ",") == [b'1,"a, b"', b"x,2,3", b"2,y"]
    # One that misfits the header must not fit the columns by chance.
    assert file_rows.reordered([b"a,b"], [0, 2], 3, ",") == [b"a,b,"]


def test_a_value_with_a_line_break_stays_malformed_and_a_large_one_is_read() -> None:
    large = b"x" * 200_000
    texts = [b'"x","first', b'"a"" b",1', b"1," + large, b'a "b",2']
    wanted = [b'"x","first', b'1,"a"" b"', large + b",1", b'2,a "b"']
    assert file_rows.reordered(texts, [1, 0], 2, ",") == wanted


def test_fields_keep_their_text() -> None:
    texts = [b'"",1', b",2", b'"a\rb",3', b'"a,b",4', b"\xff,5", b' "a",6']
    wanted = [b'1,""', b"2,", b'3,"a\rb"', b'4,"a,b"', b"5,\xff", b'6, "a"']
    assert file_rows.reordered(texts, [1, 0], 2, ",") == wanted
    assert file_rows.fields_of(b'a\t"b\tc"\t', b"\t") == [b"a", b'"b\tc"', b""]


@pytest.mark.parametrize("line", [b'a,"b""', b'"a"b,1', b'"a" ,1', b"a\rb,1", b'"x",a\rb', b'"', b'"a""b'])
def test_a_line_without_the_form_of_csv_is_not_changed(line: bytes) -> None:
    assert file_rows.fields_of(line, b",") is None
    assert file_rows.reordered([line], [1, 0], 2, ",") == [line]
    # A malformed field in a column that the source does not have is an error too.
    assert file_rows.reordered([line], [1], 2, ",") == [line]


def test_a_second_carriage_return_at_the_end_of_a_line_does_not_swap_fields() -> None:
    (line,) = [text for _, text in collected(file_rows.lines(io.BytesIO(b"Anna,Bern\r\r\n"), 0, None))]
    assert line == b"Anna,Bern\r"
    # Decoding removes one line end, as from lines of a file whose fields are in the columns' order.
    assert file_rows.reordered([line, b'"Otto","Chur"\r', b"Anna,\r"], [1, 0], 2, ",") == [
        b"Bern,Anna",
        b'"Chur","Otto"',
        b",Anna",
    ]
    assert file_rows.reordered([b'"a\r"\r', b"\r"], [0], 1, ",") == [b'"a\r"', b"\r"]
    # Lines that decoding refuses are not changed.
    assert file_rows.reordered([b"a,b\r\r", b'a,"b\r', b"\r"], [1, 0], 2, ",") == [b"a,b\r\r", b'a,"b\r', b"\r"]


@given(
    st.integers(1, 3).flatmap(lambda count: st.permutations(range(count))),
    st.lists(st.sampled_from([b"a", b'"', b",", b"\r"]), min_size=1, max_size=8).map(b"".join),
)
@example(order=[1, 0], line=b'a,"b"\r')
def test_a_line_has_the_same_fields_in_every_order(order: list[int | None], line: bytes) -> None:
    def decoded(text: bytes) -> list[bytes] | None:
        found = file_rows.fields_of(text.removesuffix(b"\r"), b",")
        is_row = found is not None and len(found) == len(order) and text.removesuffix(b"\r")
        return found if is_row else None

    plain = decoded(line)
    (made,) = file_rows.reordered([line], order, len(order), ",")
    fields = [b""] if made == file_rows.NO_VALUE.encode() else decoded(made)
    assert fields == (None if plain is None else [plain[at] for at in order if at is not None])


def test_lines_below_a_header_without_any_of_the_columns_fit_no_columns() -> None:
    order = file_rows.column_order(b"7,ann", ["id", "name"], ",")
    assert order == [None, None]
    assert file_rows.reordered([b"8,bob", b"9"], order, 2, ",") == [b"8,bob,,", b"9,,"]


def test_a_quoted_name_in_a_header_may_contain_the_separator() -> None:
    header = b'"last, first",id,"a ""b"""'
    assert file_rows.width_of(header, ",") == 3
    assert file_rows.column_order(header, ["id", "last, first", 'a "b"'], ",") == [1, 0, 2]


@given(st.lists(st.integers(0, 5), max_size=30), st.lists(st.integers(1, 29), max_size=4))
def test_ranks_number_the_records_of_an_offset(places: list[int], cuts: list[int]) -> None:
    ordered = sorted(places)
    wanted = [at - ordered.index(place) for at, place in enumerate(ordered)]
    found: list[int] = []
    last = (-1, 0)
    for start, end in stretches(len(ordered), cuts):
        part, last = file_rows.ranks(np.array(ordered[start:end], np.int64), last)
        found += part.tolist()
    assert found == wanted


ROW = pa.struct([("id", pa.int64()), ("name", pa.string())])


def parquet(rows: int, group: int) -> bytes:
    sink = io.BytesIO()
    table = pa.table({"id": np.arange(rows), "name": pa.array([f"n{at}" for at in range(rows)])})
    pq.write_table(table, sink, row_group_size=group)
    return sink.getvalue()


def read(data: bytes, start: int, end: int, row: pa.StructType = ROW) -> list[tuple[int, object, object]]:
    found = file_rows.parquet_rows(io.BytesIO(data), len(data), start, end, row)
    return [
        (int(at), value, fault)
        for places, rows, faults in found
        for at, value, fault in zip(places, rows.to_pylist(), faults.to_pylist(), strict=True)
    ]


@pytest.mark.parametrize(("rows", "group"), [(0, 10), (1, 10), (100, 7), (5000, 2500)])
def test_stretches_of_parquet_have_each_row_once(rows: int, group: int) -> None:
    data = parquet(rows, group)
    size = len(data)
    found = [
        each for start, end in stretches(size, [1, 5, 100, size // 2, size - 9]) for each in read(data, start, end)
    ]
    assert [value for _, value, _ in found] == [{"id": at, "name": f"n{at}"} for at in range(rows)]
    assert all(0 <= at < size for at, _, _ in found)
    assert [at for at, _, _ in found] == sorted(at for at, _, _ in found)


@pytest.mark.parametrize("is_category", [False, True])
def test_long_values_that_repeat_are_read_in_small_parts(is_category: bool) -> None:
    sink = io.BytesIO()
    count, long = 12_000, "x" * 10_000
    names = pa.array([long] * count)
    names = names.dictionary_encode() if is_category else names
    pq.write_table(pa.table({"id": [7] * count, "name": names}), sink, row_group_size=count)
    data = sink.getvalue()
    assert len(data) < 20_000
    sizes = [
        (len(places), rows.nbytes)
        for places, rows, _ in file_rows.parquet_rows(io.BytesIO(data), len(data), 0, len(data), ROW)
    ]
    assert sum(rows for rows, _ in sizes) == count
    assert max(size for _, size in sizes) < 32 * 1024 * 1024


def test_a_line_without_an_end_is_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_rows, "MOST_LINE_BYTES", 1000)
    assert len(collected(file_rows.lines(io.BytesIO(b"x" * 900 + b"\nb"), 0, None, chunk=100))) == 2
    packed = gzip.compress(b"a\n" + b"x" * 100_000)
    with pytest.raises(ValueError, match="it has a line of more than"):
        collected(
            file_rows.compressed_lines(
                lambda: gzip.GzipFile(fileobj=io.BytesIO(packed)), len(packed), 0, len(packed), chunk=100
            )
        )
    with pytest.raises(ValueError, match="it has a line of more than"):
        file_rows.header_of(io.BytesIO(b"x" * 2000))


def test_parquet_columns_by_name_and_values_that_do_not_fit() -> None:
    row = pa.struct([("NAME", pa.int32()), ("other", pa.date32()), ("id", pa.int8())])
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": [1, 300], "name": ["7", "x"]}), sink)
    found = read(sink.getvalue(), 0, len(sink.getvalue()), row)
    assert [value for _, value, _ in found] == [
        {"NAME": 7, "other": None, "id": 1},
        {"NAME": None, "other": None, "id": None},
    ]
    assert [fault for _, _, fault in found] == [None, "column NAME: a value of type string does not fit"]


def test_a_text_of_parquet_that_is_not_utf_8_is_an_error() -> None:
    sink = io.BytesIO()
    names = pa.array(["Z\u00fcrich".encode(), "Z\u00fcrich".encode("latin-1")]).view(pa.string())
    pq.write_table(pa.table({"id": [1, 2], "name": names}), sink)
    (_, good, no_fault), (_, bad, fault) = read(sink.getvalue(), 0, len(sink.getvalue()))
    assert (good, no_fault) == ({"id": 1, "name": "Z\u00fcrich"}, None)
    assert (bad, fault) == ({"id": 2, "name": None}, "column name: the value is not UTF-8")


def test_categories_of_pandas_are_read_by_the_rules_of_their_values() -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": pa.array(["0x1F", "7"]).dictionary_encode()}), sink)
    found = read(sink.getvalue(), 0, len(sink.getvalue()), pa.struct([("id", pa.int64())]))
    assert [(value, fault) for _, value, fault in found] == [
        ({"id": None}, "column id: a value of type string does not fit"),
        ({"id": 7}, None),
    ]


def written(values: list[Any], kind: pa.DataType, marks: dict[str, str] | None = None, *, is_int96: bool) -> bytes:
    """A Parquet file with the column at. ``marks`` are the file's metadata."""
    sink = io.BytesIO()
    table = pa.table({"at": pa.array(values, kind)}).replace_schema_metadata(marks)
    pq.write_table(table, sink, use_deprecated_int96_timestamps=is_int96)
    return sink.getvalue()


def test_times_of_the_type_int96_are_read_in_all_years() -> None:
    times = [datetime.datetime(year, 12, 31, 23, 59, 59, 123456) for year in (1, 1500, 1677, 1969, 2024, 2263, 9999)]
    data = written(times, pa.timestamp("us"), is_int96=True)
    found = read(data, 0, len(data), pa.struct([("at", pa.timestamp("us"))]))
    assert [(value, fault) for _, value, fault in found] == [({"at": at}, None) for at in times]
    lists = written([[at] for at in times], pa.list_(pa.timestamp("us")), is_int96=True)
    found = read(lists, 0, len(lists), pa.struct([("at", pa.list_(pa.timestamp("us")))]))
    assert [(value, fault) for _, value, fault in found] == [({"at": [at]}, None) for at in times]


LEGACY = "org.apache.spark.legacy"
VERSION = "org.apache.spark.version"


@pytest.mark.parametrize(
    ("marks", "is_int96", "is_julian"),
    [
        (None, False, False),
        ({VERSION: "4.0.0"}, False, False),
        ({VERSION: "4.0.0"}, True, False),
        ({VERSION: "3.5.0", f"{LEGACY}DateTime": ""}, False, True),
        ({VERSION: "3.5.0", f"{LEGACY}DateTime": ""}, True, False),
        ({VERSION: "3.5.0", f"{LEGACY}INT96": ""}, True, True),
        ({VERSION: "3.5.0", f"{LEGACY}INT96": ""}, False, False),
        ({VERSION: "3.0.1"}, True, True),
        ({VERSION: "3.0.1"}, False, False),
        ({VERSION: "2.4.8"}, False, True),
        ({VERSION: "2.4.8"}, True, True),
    ],
)
def test_times_of_the_julian_calendar_are_errors(marks: dict[str, str] | None, is_int96: bool, is_julian: bool) -> None:
    times = [datetime.datetime(1582, 10, 4, 12), datetime.datetime(1582, 10, 17), None, datetime.datetime(2024, 1, 1)]
    data = written(times, pa.timestamp("us"), marks, is_int96=is_int96)
    found = read(data, 0, len(data), pa.struct([("at", pa.timestamp("us"))]))
    told = (
        "column at: a value of type timestamp[us] does not fit; the file counts days before 15 October 1582 by the "
        "Julian calendar"
    )
    assert [fault for _, _, fault in found] == [told if is_julian else None, None, None, None]
    assert [value for _, value, _ in found] == [{"at": None if is_julian and at is times[0] else at} for at in times]


def test_a_snapshot_wants_every_column_of_parquet() -> None:
    data = parquet(3, 3)
    with pytest.raises(ValueError, match="no column other"):
        list(
            file_rows.parquet_rows(
                io.BytesIO(data), len(data), 0, 99, pa.struct([("other", pa.int64())]), is_strict=True
            )
        )


def test_an_empty_field_keeps_its_quotes() -> None:
    texts = [b'"",1', b",2", b'"a,"",",3', b'" ",4', b'"""",5', b'x"",6', b'"",""']
    wanted = [b'1,""', b"2,", b'3,"a,"","', b'4," "', b'5,""""', b'6,x""', b'"",""']
    assert file_rows.reordered(texts, [1, 0], 2, ",") == wanted
    assert file_rows.reordered([b'1;"";2', b"1;;2"], [1, None], 3, ";") == [b'"";', b";"]
    # A line of one field that is empty would be no line.
    null = file_rows.NO_VALUE.encode()
    assert file_rows.reordered([b",1", b'"",1', b"a,1"], [0], 2, ",") == [null, b'""', b"a"]
