# SPDX-License-Identifier: Apache-2.0
"""Parquet and Arrow files of pyarrow, DuckDB and polars against what pyarrow reads from them.

    pip install pyarrow duckdb polars numpy     # datasets, if save_to_disk is to be tried, too
    bazel build //tests/parity:print_table
    python tests/parity/columnar_files.py check --program bazel-bin/tests/parity/print_table
        writes 210 files of many types, encodings, compressions and shapes (--files N, --seed S), and
        compares types and rows, exactly; a few are beyond what pyarrow itself writes and reads
    python tests/parity/columnar_files.py speed --program ... [--gigabytes 1] [--compression snappy]
        a text data set, read with all columns: seconds and peak memory of both, with 1 thread and 2
"""
import argparse
import base64
import collections
import decimal
import json
import math
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

import numpy
import pyarrow as pa
import pyarrow.parquet as pq

UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


# ---- What a row should read as -------------------------------------------------------------------


def date_text(days):
    """ISO 8601 of days since 1970, for any year."""
    text = str(numpy.datetime64(int(days), "D"))
    year = int(text[:-6])
    return text if 0 <= year <= 9999 else f"{year:+05d}{text[-6:]}"


def time_text(units, unit):
    seconds, fraction = divmod(units, UNITS[unit])
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return text + (f".{fraction:0{DIGITS[unit]}d}" if fraction else "")


def timestamp_text(units, type):
    days, within = divmod(units, 86400 * UNITS[type.unit])
    return f"{date_text(days)}T{time_text(within, type.unit)}" + ("Z" if type.tz else "")


def integers(array, width):
    return array.view(pa.int32() if width == 32 else pa.int64()).to_pylist()


def nullable(values, text):
    return [None if value is None else text(value) for value in values]


def nested(array):
    type = array.type
    valid = array.is_valid().to_pylist()
    if pa.types.is_struct(type):
        members = [values(child) for child in array.flatten()]
        names = [field.name for field in type]
        return [dict(zip(names, (m[i] for m in members))) if valid[i] else None
                for i in range(len(array))]
    if pa.types.is_map(type):
        pairs = [list(pair) for pair in zip(values(array.keys), values(array.items))]
        ends = array.offsets.to_pylist()
    elif pa.types.is_fixed_size_list(type):
        pairs = values(array.values)
        ends = [(array.offset + i) * type.list_size for i in range(len(array) + 1)]
    else:
        pairs, ends = values(array.values), array.offsets.to_pylist()
    return [pairs[ends[i]:ends[i + 1]] if valid[i] else None for i in range(len(array))]


def values(array):
    """What AppendJson should say of each row."""
    type = array.type
    if pa.types.is_dictionary(type):
        return values(array.dictionary_decode())
    if isinstance(type, pa.BaseExtensionType):
        storage = values(array.storage)
        if type.extension_name != "arrow.uuid":
            return storage
        hexes = nullable(storage, lambda text: base64.b64decode(text).hex())
        return nullable(hexes, lambda h: "-".join((h[:8], h[8:12], h[12:16], h[16:20], h[20:])))
    if pa.types.is_nested(type):
        return nested(array)
    if pa.types.is_date32(type):
        return nullable(integers(array, 32), date_text)
    if pa.types.is_date64(type):
        return nullable(integers(array, 64), lambda ms: date_text(ms // 86400000))
    if pa.types.is_time(type):
        return nullable(integers(array, type.bit_width), lambda u: time_text(u, type.unit))
    if pa.types.is_timestamp(type):
        return nullable(integers(array, 64), lambda u: timestamp_text(u, type))
    if pa.types.is_duration(type):
        return integers(array, 64)
    if pa.types.is_decimal(type):
        return nullable(array.to_pylist(), lambda number: format(number, "f"))
    if (pa.types.is_binary(type) or pa.types.is_large_binary(type)
            or pa.types.is_fixed_size_binary(type) or pa.types.is_binary_view(type)):
        return nullable(array.to_pylist(), lambda raw: base64.b64encode(raw).decode())
    return array.to_pylist()


def type_text(type, parquet):
    """What print_table should call a type; Parquet keeps no durations and no zones."""
    def inner(t):
        return type_text(t, parquet)
    if pa.types.is_dictionary(type):
        return inner(type.value_type)
    if isinstance(type, pa.BaseExtensionType):
        return "uuid" if type.extension_name == "arrow.uuid" else inner(type.storage_type)
    if pa.types.is_struct(type):
        return "struct<" + ", ".join(f"{f.name}: {inner(f.type)}" for f in type) + ">"
    if pa.types.is_map(type):
        return f"map<{inner(type.key_type)}, {inner(type.item_type)}>"
    if pa.types.is_list(type) or pa.types.is_large_list(type) or pa.types.is_fixed_size_list(type):
        return f"list<{inner(type.value_type)}>"
    if pa.types.is_decimal(type):
        return f"decimal({type.precision}, {type.scale})"
    if pa.types.is_date64(type):
        return "date32[day]"
    if parquet and pa.types.is_duration(type):
        return "int64"
    if pa.types.is_timestamp(type):
        return f"timestamp[{type.unit}" + (f", tz={'UTC' if parquet else type.tz}]" if type.tz else "]")
    return str(type).replace("large_", "").replace("_view", "")


def same(ours, theirs, type):
    """Whether a value of JSON is pyarrow's; a float is compared in its own type."""
    if pa.types.is_dictionary(type):
        return same(ours, theirs, type.value_type)
    if ours is None or theirs is None:
        return ours is theirs
    if isinstance(type, pa.BaseExtensionType) and type.extension_name != "arrow.uuid":
        return same(ours, theirs, type.storage_type)
    if pa.types.is_floating(type):
        if not isinstance(ours, float):
            return False
        code = {16: "e", 32: "f", 64: "d"}[type.bit_width]
        if math.isnan(theirs) or math.isinf(theirs):
            return repr(ours) == repr(theirs)
        return struct.pack(code, ours) == struct.pack(code, theirs)
    if pa.types.is_struct(type):
        return list(ours) == [f.name for f in type] and all(
            same(ours[f.name], theirs[f.name], f.type) for f in type)
    if pa.types.is_map(type):
        return len(ours) == len(theirs) and all(
            same(a[0], b[0], type.key_type) and same(a[1], b[1], type.item_type)
            for a, b in zip(ours, theirs))
    if pa.types.is_nested(type):
        return len(ours) == len(theirs) and all(
            same(a, b, type.value_type) for a, b in zip(ours, theirs))
    return ours == theirs and isinstance(ours, bool) == isinstance(theirs, bool)


# ---- Tables --------------------------------------------------------------------------------------

WORDS = "the of and Ünïcode 数据 😀 to \"quoted\" back\\slash\nline".split(" ")


def texts(rng, rows):
    few = rng.random() < 0.4
    longest = rng.choice([3, 20, 400])
    made = [" ".join(rng.choices(WORDS, k=rng.randint(0, longest))) for _ in range(9 if few else rows)]
    return [rng.choice(made) for _ in range(rows)] if few else made


def with_nulls(rng, made):
    share = rng.choice([0, 0, 0.1, 0.5, 1])
    return [None if rng.random() < share else value for value in made]


def numbers(rng, rows, low, high):
    if rng.random() < 0.3:  # in order, as identifiers are
        return [min(high, max(low, i * 3 - 5)) for i in range(rows)]
    return [rng.choice([low, high, 0 if low <= 0 <= high else low, rng.randint(low, high)])
            for _ in range(rows)]


def scalar(rng, rows):
    """A column of a type without children."""
    kind = rng.randrange(16)
    if kind < 4:
        type = rng.choice([pa.string(), pa.string(), pa.large_string()])
        return pa.array(with_nulls(rng, texts(rng, rows)), type)
    if kind == 4:
        bits, sign = rng.choice([8, 16, 32, 64]), rng.random() < 0.6
        type = getattr(pa, ("" if sign else "u") + f"int{bits}")()
        low, high = (-2**(bits - 1), 2**(bits - 1) - 1) if sign else (0, 2**bits - 1)
        return pa.array(with_nulls(rng, numbers(rng, rows, low, high)), type)
    if kind == 5:
        return pa.array(with_nulls(rng, [rng.random() < 0.7 for _ in range(rows)]), pa.bool_())
    if kind in (6, 7):
        type = rng.choice([pa.float32(), pa.float64(), pa.float16()])
        made = [rng.choice([0.1, -0.0, 1.0, math.inf, -math.inf, rng.gauss(0, 100), 6e-8, 65504.0])
                for _ in range(rows)]
        made = [numpy.float16(x) for x in made] if pa.types.is_float16(type) else made
        return pa.array(with_nulls(rng, made), type)
    if kind == 8:
        return pa.array(with_nulls(rng, numbers(rng, rows, -800000, 3000000)), pa.int32()).view(pa.date32())
    if kind in (9, 10):
        unit, zone = rng.choice(list(UNITS)), rng.choice([None, "UTC", "Europe/Berlin"])
        top = 4 * 10**9 * UNITS[unit]
        made = numbers(rng, rows, -top, top)
        return pa.array(with_nulls(rng, made), pa.int64()).view(pa.timestamp(unit, zone))
    if kind == 11:
        unit = rng.choice(list(UNITS))
        type = pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)
        integer = pa.int32() if unit in ("s", "ms") else pa.int64()
        made = numbers(rng, rows, 0, 86400 * UNITS[unit] - 1)
        return pa.array(with_nulls(rng, made), integer).view(type)
    if kind == 12:
        return pa.array(with_nulls(rng, numbers(rng, rows, -10**12, 10**12)), pa.int64()).view(pa.duration("us"))
    if kind == 13:
        precision = rng.choice([5, 9, 15, 18, 30, 38, 60])
        scale = rng.randint(0, min(precision, 10))
        made = [decimal.Decimal(n).scaleb(-scale, decimal.Context(prec=80))
                for n in numbers(rng, rows, -10**precision + 1, 10**precision - 1)]
        wide = pa.decimal128 if precision <= 38 else pa.decimal256
        return pa.array(with_nulls(rng, made), wide(precision, scale))
    if kind == 14:
        size = rng.choice([0, 1, 7, 16])
        raw = [rng.randbytes(size or rng.randint(0, 30)) for _ in range(rows)]
        return pa.array(with_nulls(rng, raw), pa.binary(size) if size else pa.binary())
    return pa.array(with_nulls(rng, texts(rng, rows)), pa.string()).dictionary_encode()


def column(rng, rows, depth=0):
    kind = rng.randrange(10) if depth < 3 else 0
    if kind < 5:
        made = scalar(rng, rows)
        while depth > 0 and pa.types.is_dictionary(made.type):
            made = scalar(rng, rows)
        return made
    mask = pa.array([rng.random() < 0.2 for _ in range(rows)], pa.bool_()) if rng.random() < 0.5 else None
    if kind == 5 or kind == 6:
        children = [column(rng, rows, depth + 1) for _ in range(rng.randint(1, 3))]
        return pa.StructArray.from_arrays(children, [f"m{i}" for i in range(len(children))], mask=mask)
    if kind == 7:
        size = rng.randint(1, 3)
        return pa.FixedSizeListArray.from_arrays(column(rng, rows * size, depth + 1), size)
    counts = [rng.choice([0, 1, 2, 5, 40 if depth == 0 else 1]) for _ in range(rows)]
    total = sum(counts)
    offsets = numpy.concatenate([[0], numpy.cumsum(counts)]).astype("int32")
    offsets = pa.array(offsets, pa.int32())
    if kind == 8:
        keys = pa.array([f"k{i}" for i in range(total)], pa.string())
        return pa.MapArray.from_arrays(offsets, keys, column(rng, total, depth + 1))
    return pa.ListArray.from_arrays(offsets, column(rng, total, depth + 1), mask=mask)


def table(rng):
    rows = rng.choice([0, 1, 2, 50, 300, 1000, 3000])
    columns = [column(rng, rows) for _ in range(rng.randint(1, 6))]
    return pa.table(columns, names=[f"c{i}" for i in range(len(columns))])


# ---- Files ---------------------------------------------------------------------------------------


def encodings(rng, data):
    """Encodings of some columns, for those whose types have them."""
    chosen = {}
    for field in data.schema:
        type = field.type
        if pa.types.is_integer(type) and type.bit_width >= 32:
            chosen[field.name] = rng.choice(["DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT", "PLAIN"])
        elif pa.types.is_string(type) or pa.types.is_large_string(type):
            chosen[field.name] = rng.choice(["DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY", "PLAIN"])
        elif pa.types.is_float32(type) or pa.types.is_float64(type):
            chosen[field.name] = rng.choice(["BYTE_STREAM_SPLIT", "PLAIN"])
        elif pa.types.is_boolean(type):
            chosen[field.name] = rng.choice(["RLE", "PLAIN"])
        elif pa.types.is_fixed_size_binary(type):
            chosen[field.name] = rng.choice(["DELTA_BYTE_ARRAY", "BYTE_STREAM_SPLIT", "PLAIN"])
    return chosen


def write_parquet(rng, path):
    data = table(rng)
    dictionary = rng.random() < 0.5
    options = dict(
        compression=rng.choice(["none", "snappy", "gzip", "zstd", "lz4"]),
        data_page_version=rng.choice(["1.0", "2.0"]), version=rng.choice(["2.4", "2.6"]),
        data_page_size=rng.choice([1, 200, 5000, 1 << 20]), write_batch_size=rng.choice([1, 64, 1024]),
        row_group_size=rng.choice([1, 100, 777, 1 << 20]) if data.num_rows < 1000 else 500,
        use_dictionary=dictionary, dictionary_pagesize_limit=rng.choice([20, 1000, 1 << 20]),
        write_statistics=rng.random() < 0.5, write_page_index=rng.random() < 0.3,
        write_page_checksum=rng.random() < 0.5, store_schema=rng.random() < 0.7,
        use_compliant_nested_type=rng.random() < 0.7,
        use_deprecated_int96_timestamps=rng.random() < 0.15)
    if not dictionary:
        options["column_encoding"] = encodings(rng, data)
    pq.write_table(data, path, **options)
    return "Parquet of pyarrow"


def write_arrow(rng, path):
    data = table(rng)
    old = rng.random() < 0.15
    if not old and rng.random() < 0.3:
        views = {pa.string(): pa.string_view(), pa.binary(): pa.binary_view()}
        data = data.cast(pa.schema([(f.name, views.get(f.type, f.type)) for f in data.schema]))
    if rng.random() < 0.2:
        data = data.append_column("dates", pa.array([86400000 * (i - 3) for i in range(len(data))],
                                                    pa.int64()).view(pa.date64()))
    stream = rng.random() < 0.5
    options = pa.ipc.IpcWriteOptions(
        metadata_version=pa.ipc.MetadataVersion.V4 if old else pa.ipc.MetadataVersion.V5,
        compression=None if old else rng.choice([None, "lz4", "zstd"]),
        use_legacy_format=old and stream, emit_dictionary_deltas=stream and rng.random() < 0.5)
    new = pa.ipc.new_stream if stream else pa.ipc.new_file
    with pa.OSFile(str(path), "wb") as file, new(file, data.schema, options=options) as writer:
        writer.write_table(data, max_chunksize=rng.choice([1, 100, 1000]) if len(data) < 500 else 700)
    return "Arrow stream" if stream else "Arrow file"


def write_growing_dictionary(rng, path):
    """Dictionaries that grow (deltas), and that others replace."""
    type = pa.dictionary(pa.int16(), pa.string())
    deltas = rng.random() < 0.5
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=deltas)
    entries = []
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(
            file, pa.schema([("c", type)]), options=options) as writer:
        for batch in range(5):
            entries = (entries if deltas else []) + [f"{batch}-{i}" for i in range(batch + 1)]
            indices = pa.array([rng.randrange(len(entries)) for _ in range(20)], pa.int16())
            array = pa.DictionaryArray.from_arrays(indices, pa.array(entries))
            writer.write_batch(pa.record_batch([array], names=["c"]))
    return "Arrow stream with growing dictionaries" if deltas else "Arrow stream with new dictionaries"


def write_duckdb(rng, path):
    import duckdb
    rows = rng.choice([0, 1, 100, 3000])
    compression = rng.choice(["uncompressed", "snappy", "gzip", "zstd", "lz4_raw"])
    version = rng.choice(["V1", "V2"])
    connection = duckdb.connect()
    connection.execute("CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')")
    connection.execute(f"""COPY (SELECT range AS i, CASE WHEN range % 3 = 0 THEN NULL
        ELSE 'text ' || range % {rng.choice([5, 100000])} END AS s, (range % 7)::UTINYINT AS u,
        range / 7 AS d, (range / 3)::FLOAT AS f, (range * 1.25)::DECIMAL(18, 3) AS n, range % 2 = 0 AS b,
        DATE '2000-01-01' + (range % 9999)::INTEGER AS day, TIMESTAMP '1990-01-01' + INTERVAL (range) MINUTE AS ts,
        TIMESTAMPTZ '1990-01-01 00:00:00+00' + INTERVAL (range) MINUTE AS tz,
        [range, NULL, range + 1] AS l, {{'a': range, 'b': [{{'c': 'x' || range}}]}} AS st,
        MAP {{'k': range}} AS m, encode('b' || range) AS raw, 'happy'::mood AS mood, uuid() AS id,
        CASE WHEN range % 2 = 0 THEN [] ELSE NULL END::INTEGER[][] AS deep
        FROM range({rows})) TO '{path}' (FORMAT parquet, COMPRESSION {compression},
        PARQUET_VERSION {version}, ROW_GROUP_SIZE {rng.choice([2048, 100000])})""")
    return "Parquet of DuckDB"


def write_polars(rng, path):
    import polars
    data = table(rng)
    keep = [f.name for f in data.schema
            if not any(word in str(f.type) for word in ("map", "256", "decimal", "[s", "fixed"))]
    if not keep:
        data, keep = pa.table({"s": texts(rng, 20)}), ["s"]
    frame = polars.from_arrow(data.select(keep))
    if rng.random() < 0.5:
        frame.write_parquet(path, compression=rng.choice(["uncompressed", "snappy", "gzip", "zstd", "lz4"]),
                            row_group_size=rng.choice([100, 1000, None]), statistics=rng.random() < 0.5,
                            data_page_size=rng.choice([100, None]))
        return "Parquet of polars"
    write = frame.write_ipc if rng.random() < 0.5 else frame.write_ipc_stream
    write(path, compression=rng.choice(["uncompressed", "lz4", "zstd"]))
    return "Arrow of polars"


def write_data_set(rng, path):
    """As save_to_disk leaves it."""
    from datasets import Dataset, disable_progress_bars
    disable_progress_bars()
    rows = rng.choice([1, 2500])
    made = Dataset.from_dict({"messages": [[{"role": "user", "content": t}] for t in texts(rng, rows)],
                              "label": [i % 3 for i in range(rows)]})
    made.save_to_disk(str(path) + ".set")
    next(pathlib.Path(str(path) + ".set").glob("data-*.arrow")).rename(path)
    return "Arrow of datasets"


def read(path):
    """pyarrow's table, and whether the file is Parquet."""
    begin = path.read_bytes()[:6]
    if begin[:4] == b"PAR1":
        return pq.ParquetFile(path).read(), True
    with pa.memory_map(str(path)) as source:
        return (pa.ipc.open_file if begin == b"ARROW1" else pa.ipc.open_stream)(source).read_all(), False


def difference(program, path, data, parquet):
    """What differs from pyarrow's table, or nothing."""
    done = subprocess.run([program, str(path)], capture_output=True, text=True)
    if done.returncode != 0:
        return done.stderr.strip()
    types, *lines = done.stdout.split("\n")[:-1]
    expected = ", ".join(f"{f.name}: {type_text(f.type, parquet)}" for f in data.schema)
    if types != expected and types.replace("mood: string", "mood: binary") != expected:
        return f"types {types}, expected {expected}"
    rows = [json.loads(line) for line in lines]
    if len(rows) != data.num_rows:
        return f"{len(rows)} rows, expected {data.num_rows}"
    for field, chunks in zip(data.schema, data.columns):
        theirs = [value for chunk in chunks.chunks for value in values(chunk)]
        for i, (row, value) in enumerate(zip(rows, theirs)):
            if field.name == "mood" and value is not None and pa.types.is_binary(field.type):
                value = base64.b64decode(value).decode()
                field = pa.field("mood", pa.string())
            if not same(row[field.name], value, field.type):
                return f"row {i} of {field.name} ({field.type}): {row[field.name]!r}, expected {value!r}"
    return None


def check(arguments):
    writers = [write_parquet] * 8 + [write_arrow] * 5 + [write_duckdb, write_polars, write_polars,
                                                        write_growing_dictionary]
    try:
        import datasets  # noqa: F401
        writers.append(write_data_set)
    except ImportError as error:
        print(f"without save_to_disk of datasets: {error}")
    counts = collections.Counter()
    compared = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for number in range(arguments.files):
            rng = random.Random(arguments.seed * 100003 + number)
            path = pathlib.Path(folder) / f"{number}"
            try:
                kind = writers[number % len(writers)](rng, path)
            except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError) as error:
                counts[f"not written by pyarrow: {str(error)[:50]}"] += 1
                continue
            counts[kind] += 1
            try:
                data, parquet = read(path)
            except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
                counts[f"not read by pyarrow: {str(error)[:50]}"] += 1
                continue
            wrong = difference(arguments.program, path, data, parquet)
            compared += 1
            if wrong:
                failed += 1
                print(f"file {number} ({kind}): {wrong[:1000]}")
            else:
                path.unlink()
    for kind, count in sorted(counts.items()):
        print(f"{count:4d} {kind}")
    print(f"{failed} of {compared} files differ")
    return failed != 0 or compared == 0


# ---- Speed ---------------------------------------------------------------------------------------


def write_text(path, gigabytes, compression):
    rng = random.Random(1)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(1, 9))) for _ in range(20000)]
    weights = [1 / (i + 3) for i in range(len(words))]
    writer, size, row = None, 0, 0
    while size < gigabytes * 10**9:
        drawn = rng.choices(words, weights, k=2000000)
        rows, at = [], 0
        while at < len(drawn):
            step = rng.randint(20, 800)
            rows.append(" ".join(drawn[at:at + step]))
            at += step
        batch = pa.table({"id": [f"<urn:{row + i}>" for i in range(len(rows))], "text": rows,
                          "url": [f"https://example.org/{rng.randrange(10**9)}" for _ in rows],
                          "language": ["en"] * len(rows), "score": [rng.random() for _ in rows],
                          "tokens": [len(r) // 4 for r in rows]})
        writer = writer or pq.ParquetWriter(path, batch.schema, compression=compression)
        writer.write_table(batch)
        row += len(rows)
        size += batch.nbytes
    writer.close()


READ = """
import sys, time, pyarrow as pa, pyarrow.parquet as pq
pa.set_cpu_count(int(sys.argv[2]))
begin = time.perf_counter()
rows = sum(len(b) for b in pq.ParquetFile(sys.argv[1], memory_map=True).iter_batches(use_threads=int(sys.argv[2]) > 1))
print(time.perf_counter() - begin)
"""


def timed(command):
    """Seconds that the program says, and its peak memory in MB."""
    script = ("import resource, subprocess, sys\n"
              "out = subprocess.run(sys.argv[1:], capture_output=True, text=True, check=True).stdout\n"
              "print(out.split()[0], resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)")
    out = subprocess.run([sys.executable, "-c", script, *command], capture_output=True, text=True, check=True)
    seconds, megabytes = out.stdout.split()
    return float(seconds), int(megabytes)


def speed(arguments):
    path = pathlib.Path(arguments.folder) / f"text-{arguments.gigabytes}-{arguments.compression}.parquet"
    if not path.exists():
        write_text(path, arguments.gigabytes, arguments.compression)
    print(f"{path}: {path.stat().st_size / 1e6:.0f} MB, {pq.ParquetFile(path).metadata.num_rows} rows")
    for threads in ("1", "2"):
        # Alternating; the file is in the page cache after the first.
        ours, theirs = [], []
        for _ in range(arguments.rounds):
            theirs.append(timed([sys.executable, "-c", READ, str(path), threads]))
            ours.append(timed([arguments.program, "--time", "--threads", threads, str(path)]))
        (a, memory), (b, their_memory) = min(ours), min(theirs)
        print(f"{threads} threads: {a:.3f} s, {memory} MB; pyarrow {b:.3f} s, {their_memory} MB; ratio {a / b:.2f}")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("mode", choices=["check", "speed"])
    parser.add_argument("--program", required=True)
    parser.add_argument("--files", type=int, default=210)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--gigabytes", type=float, default=1)
    parser.add_argument("--compression", default="snappy")
    parser.add_argument("--folder", default=tempfile.gettempdir())
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    return check(arguments) if arguments.mode == "check" else speed(arguments)


if __name__ == "__main__":
    sys.exit(main())
