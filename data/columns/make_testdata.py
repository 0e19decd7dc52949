# SPDX-License-Identifier: Apache-2.0
"""Writes testdata/: small Parquet and Arrow files, and what pyarrow reads from each (NAME.jsonl).

    pip install pyarrow numpy
    python data/columns/make_testdata.py
"""
import datetime
import decimal
import json
import pathlib
import sys
import uuid
import zlib

import numpy
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = pathlib.Path(__file__).parents[2]
FOLDER = ROOT / "data/columns/testdata"
sys.path.insert(0, str(ROOT / "tests/parity"))
import columnar_files  # noqa: E402

DAY = datetime.date
TIME = datetime.datetime


def chat():
    turn = pa.struct([("role", pa.string()), ("content", pa.string())])
    rows = [[{"role": "user", "content": f"Frage {i} – 质问"}, {"role": "assistant", "content": None}]
            for i in range(6)]
    rows[1], rows[2], rows[4] = [], None, [None, {"role": "user", "content": "a \"b\"\n"}]
    return pa.table({"messages": pa.array(rows, pa.list_(turn)), "id": range(6)})


def types():
    values = {
        "null": pa.nulls(4), "bool": [True, None, False, True],
        "i8": pa.array([-128, None, 127, 0], pa.int8()), "i16": pa.array([1, 2, 3, -4], pa.int16()),
        "i32": pa.array([None, 2**31 - 1, -2**31, 0], pa.int32()), "i64": [2**63 - 1, -2**63, None, 9],
        "u8": pa.array([255, 0, None, 1], pa.uint8()), "u16": pa.array([65535, 0, 1, 2], pa.uint16()),
        "u32": pa.array([2**32 - 1, None, 1, 2], pa.uint32()),
        "u64": pa.array([2**64 - 1, 0, None, 2], pa.uint64()),
        "f16": pa.array(numpy.array([0.1, 1, -2.5, 65504], "float16")),
        "f32": pa.array([0.1, None, 1e30, 3], pa.float32()), "f64": [0.1, -0.0, None, 5e-324],
        "date": [DAY(2024, 2, 29), None, DAY(1, 1, 1), DAY(9999, 12, 31)],
        "time": pa.array([0, 86399999, None, 3723004], pa.int32()).view(pa.time32("ms")),
        "us": pa.array([TIME(2024, 2, 29, 1, 2, 3, 4), None, TIME(1969, 12, 31), TIME(1, 1, 1)],
                       pa.timestamp("us", "UTC")),
        "ns": pa.array([1, -1, None, 10**18], pa.int64()).view(pa.timestamp("ns")),
        "dec": pa.array([decimal.Decimal("-12.50"), None, decimal.Decimal("0.01"),
                         decimal.Decimal("99999999999999.99")], pa.decimal128(20, 2)),
        "small": pa.array([decimal.Decimal("-1.5"), None, decimal.Decimal("0"), decimal.Decimal("99.9")],
                          pa.decimal128(3, 1)),
        "text": ["", "é", None, "x" * 40], "bin": [b"", b"\xff\0", None, b"ab"],
        "fixed": pa.array([b"abc", None, b"\0\1\2", b"xyz"], pa.binary(3)),
        "id": pa.array([uuid.UUID(int=i * 2**100 + 7).bytes for i in range(4)], pa.uuid()),
        "word": pa.array(["a", "b", None, "a"]).dictionary_encode(),
    }
    return pa.table(values)


def nested():
    return pa.table({
        "deep": pa.array([[[1, None], []], None, [], [None, [2]]], pa.list_(pa.list_(pa.int16()))),
        "map": pa.array([[("a", 1)], None, [], [("b", None), ("c", 3)]], pa.map_(pa.string(), pa.int32())),
        "pair": pa.array([[1, 2], [3, None], None, [5, 6]], pa.list_(pa.int64(), 2)),
        "tree": [{"a": None, "b": {"c": ["x"]}}, None, {"a": 1, "b": None}, {"a": 2, "b": {"c": []}}],
    })


def numbers():
    count = 400
    return pa.table({
        "up": range(10**9, 10**9 + 7 * count, 7), "down": pa.array(range(count, 0, -1), pa.int32()),
        "wild": [((i * 2654435761) % 2**64) - 2**63 for i in range(count)],
        "name": [f"name-{i // 10}-{i % 10}" for i in range(count)], "line": ["x" * (i % 50) for i in range(count)],
        "float": [i / 7 for i in range(count)], "flag": [i % 5 == 0 if i % 11 else None for i in range(count)],
    })


NUMBERS = {"up": "DELTA_BINARY_PACKED", "down": "DELTA_BINARY_PACKED", "wild": "DELTA_BINARY_PACKED",
           "name": "DELTA_BYTE_ARRAY", "line": "DELTA_LENGTH_BYTE_ARRAY", "float": "BYTE_STREAM_SPLIT",
           "flag": "RLE"}


def expected(data):
    """Rows, with floats in the shortest spelling of their type."""
    columns = []
    for field, chunks in zip(data.schema, data.columns):
        rows = [value for chunk in chunks.chunks for value in columnar_files.values(chunk)]
        if pa.types.is_floating(field.type):
            kind = {16: numpy.float16, 32: numpy.float32, 64: numpy.float64}[field.type.bit_width]
            rows = [None if value is None else float(str(kind(value))) for value in rows]
        columns.append(rows)
    names = data.schema.names
    return [dict(zip(names, row)) for row in zip(*columns)]


def finish(name):
    data, _ = columnar_files.read(FOLDER / name)
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in expected(data)]
    (FOLDER / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")


def parquet(name, data, **options):
    pq.write_table(data, FOLDER / f"{name}.parquet", **options)
    finish(f"{name}.parquet")


def arrow(name, data, stream=False, rows=3, **options):
    new = pa.ipc.new_stream if stream else pa.ipc.new_file
    with pa.OSFile(str(FOLDER / f"{name}.arrow"), "wb") as file:
        with new(file, data.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
            writer.write_table(data, max_chunksize=rows)
    finish(f"{name}.arrow")


def tasks():
    """Records for every kind of task that learns from texts."""
    turn = pa.struct([("role", pa.string()), ("content", pa.string())])
    pair = pa.struct([("de", pa.string()), ("en", pa.string())])
    n = range(24)
    good = [i % 3 == 0 for i in n]
    words = [f"the {'good' if g else 'bad'} film number {i * i}" for i, g in zip(n, good)]
    chats = [[{"role": "user", "content": f"what is {i} and {i + 1}?"},
              {"role": "assistant", "content": f"it is {2 * i + 1}"}] for i in n]
    return pa.table({
        "text": words, "label": pa.array([int(g) for g in good], pa.int8()),
        "translation": pa.array([{"de": f"Haus {i}", "en": f"house {i}"} for i in n], pair),
        "messages": pa.array(chats, pa.list_(turn)), "prompt": [f"count to {i}" for i in n],
        "response": [" ".join(map(str, range(i % 5))) + "." for i in n],
        "chosen": [f" {i}!" for i in n], "rejected": [f" {i}?" for i in n]})


def png(value):
    """A picture of 4 by 4 grey points, from this one on."""
    def chunk(kind, data):
        return (len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big"))
    rows = b"".join(bytes([0, *range(value + 4 * y, value + 4 * y + 4)]) for y in range(4))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", bytes([0, 0, 0, 4, 0, 0, 0, 4, 8, 0, 0, 0, 0]))
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def pictures():
    """As `datasets` writes them; with the picture's class as a text, too."""
    labels = [0, 0, 0, 1, 1, 2]
    file = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    names = ["ant", "bee", "cat"]
    table = pa.table({
        "image": pa.array([{"bytes": png(10 * i), "path": f"{i}.png"} for i in range(6)], file),
        "label": pa.array(labels, pa.int64()), "animal": [names[i] for i in labels]})
    features = {"image": {"_type": "Image"}, "label": {"names": names, "_type": "ClassLabel"}}
    return table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})


def pictures_beside():
    """Pictures in files of their own, and what is missing."""
    file = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    rows = [{"bytes": None, "path": "beside.png"}, {"bytes": None, "path": None}, None]
    return pa.table({"photo": pa.array(rows, file), "caption": ["a", "b", "c"],
                     "kind": pa.array([0, 2, -1], pa.int8()), "other": pa.array([0, None, 1], pa.int8())})


def growing():
    """A dictionary that grows from batch to batch."""
    kind = pa.dictionary(pa.int8(), pa.string())
    chunks = [pa.DictionaryArray.from_arrays(pa.array([i, 0, None], pa.int8()), [f"w{j}" for j in range(i + 1)])
              for i in range(3)]
    return pa.table({"word": pa.chunked_array(chunks, kind)})


def main():
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.iterdir():
        old.unlink()
    parquet("chat", chat(), row_group_size=4)
    parquet("types", types(), compression="none", write_page_checksum=True, store_schema=False)
    parquet("nested", nested(), compression="lz4", data_page_version="2.0", data_page_size=1)
    parquet("numbers", numbers(), compression="zstd", use_dictionary=False, column_encoding=NUMBERS,
            data_page_size=500, write_batch_size=50)
    parquet("fallback", numbers().select(["name"]), compression="gzip", dictionary_pagesize_limit=100,
            data_page_size=200, write_batch_size=20, row_group_size=150)
    parquet("int96", types().select(["ns", "us"]).slice(0, 1), use_deprecated_int96_timestamps=True)
    parquet("empty", chat().slice(0, 0))
    parquet("bytes", pa.table({"text": ["é 1".encode(), b"2", b""]}), store_schema=False)
    parquet("tasks", tasks(), row_group_size=10, compression="zstd")
    parquet("pictures", pictures(), row_group_size=4)
    arrow("pictures", pictures(), stream=True, rows=4)
    parquet("pictures_beside", pictures_beside())
    parquet("captions", pictures_beside().select(["photo", "caption"]))
    arrow("tasks", tasks(), stream=True, rows=7)
    arrow("chat", chat())
    arrow("chat_stream", chat(), stream=True, rows=4)
    arrow("types", types(), compression="zstd")
    arrow("nested", nested(), stream=True, compression="lz4")
    arrow("old", nested(), stream=True, use_legacy_format=True, metadata_version=pa.ipc.MetadataVersion.V4)
    views = chat().select(["id"]).append_column("v", pa.array(["a", None, "x" * 13, "", "é" * 20, "y"], pa.string_view()))
    arrow("views", views, rows=6)
    arrow("growing", growing(), stream=True, emit_dictionary_deltas=True)
    arrow("replaced", growing(), stream=True)
    arrow("empty", chat().slice(0, 0), stream=True)


if __name__ == "__main__":
    main()
