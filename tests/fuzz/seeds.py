"""Writes small valid files for a fuzzer to start from: python3 seeds.py gguf|safetensors FOLDER"""
import json
import pathlib
import struct
import sys


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def gguf():
    entries = [
        text("general.architecture") + struct.pack("<I", 8) + text("llama"),
        text("llama.block_count") + struct.pack("<II", 4, 2),
        text("eps") + struct.pack("<If", 6, 1e-5),
        text("words") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("bc"),
        text("ids") + struct.pack("<IIQ3i", 9, 5, 3, 1, 2, 3),
        text("nested") + struct.pack("<IIQ", 9, 9, 1) + struct.pack("<IQ2B", 0, 2, 1, 2),
    ]
    infos, data = b"", b""
    for number, (kind, dims, size) in enumerate([(0, [3, 2], 24), (1, [4], 8), (2, [32], 18), (3, [32, 2], 40), (8, [32], 34), (30, [2], 4)]):
        infos += text(f"t{number}") + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, len(data))
        data += bytes(size) + bytes(-size % 32)
    for version in (2, 3):
        head = b"GGUF" + struct.pack("<IQQ", version, 6, len(entries)) + b"".join(entries) + infos
        yield head + bytes(-len(head) % 32) + data


def safetensors():
    header = {
        "__metadata__": {"format": "pt"},
        "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
        "b": {"dtype": "BF16", "shape": [4], "data_offsets": [24, 32]},
        "c": {"dtype": "F16", "shape": [0], "data_offsets": [32, 32]},
        "d": {"dtype": "I64", "shape": [], "data_offsets": [32, 40]},
    }
    packed = json.dumps(header).encode()
    yield struct.pack("<Q", len(packed)) + packed + bytes(40)
    yield struct.pack("<Q", 2) + b"{}"


def main():
    folder = pathlib.Path(sys.argv[2])
    for number, contents in enumerate({"gguf": gguf, "safetensors": safetensors}[sys.argv[1]]()):
        (folder / f"seed{number}").write_bytes(contents)


main()
