"""tools/convert_triattention.py on archives built here, byte by byte."""
import importlib.util
import os
import pathlib
import struct
import tempfile
import unittest
import zipfile

PATH = pathlib.Path(__file__).resolve().parents[2] / "tools" / "convert_triattention.py"
spec = importlib.util.spec_from_file_location("convert_triattention", PATH)
tool = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tool)


def text(s):
    return b"X" + struct.pack("<I", len(s)) + s.encode()


def name(module, what):
    return b"c" + module.encode() + b"\n" + what.encode() + b"\n"


def tensor(key, n, storage=("torch", "FloatStorage"), call=("torch._utils", "_rebuild_tensor_v2"), offset=0):
    return (name(*call) + b"((" + text("storage") + name(*storage) + text(key) + text("cpu")
            + b"K" + bytes([n + offset]) + b"tQ" + b"K" + bytes([offset]) + b"K" + bytes([n]) + b"\x85" + b"K\x01\x85" + b"\x89"
            + name("collections", "OrderedDict") + b")R" + b"tR")


def archive(path, layers=2, heads=3, bands=4, metadata=b"", skip=None, **how):
    """Head (l, h), field i, band f holds 100 l + 10 h + i + f / 8."""
    pickle, files = b"", []
    for l in range(layers):
        for h in range(heads):
            if (l, h) == skip:
                continue
            entry = b""
            for i, field in enumerate(("q_mean_real", "q_mean_imag", "q_abs_mean")):
                offset = how.get("offset", 0)
                values = [99.0] * offset + [100 * l + 10 * h + i + f / 8 for f in range(bands)]
                files.append(struct.pack(f"<{len(values)}f", *values))
                entry += text(field) + tensor(str(len(files) - 1), bands, **how)
            pickle += text(f"layer{l:02}_head{h:02}") + b"}(" + entry + b"u"
    pickle = (b"\x80\x02}(" + text("metadata") + b"}(" + metadata + b"u" + text("stats") + b"}(" + pickle + b"uu.")
    write(path, pickle, files)


def write(path, pickle, files=()):
    with zipfile.ZipFile(path, "w") as z:
        z.writestr("a/data.pkl", pickle)
        z.writestr("a/byteorder", "little")
        for i, data in enumerate(files):
            z.writestr(f"a/data/{i}", data)


class Convert(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.TemporaryDirectory()
        self.addCleanup(self.dir.cleanup)
        self.path = os.path.join(self.dir.name, "x.pt")

    def refuses(self, pattern, **options):
        with self.assertRaisesRegex(tool.ConvertError, pattern):
            tool.convert(self.path, options.pop("theta", 10000.0), **options)

    def test_every_value_lands_in_its_place(self):
        for offset in (0, 3):
            archive(self.path, offset=offset)
            data, layers, heads, bands = tool.convert(self.path, 10000.0, name="tiny")
            self.assertEqual((layers, heads, bands), (2, 3, 4))
            self.assertEqual(data[:8], b"PFCAL01\n")
            self.assertEqual(struct.unpack_from("<4IQ", data, 8), (2, 3, 4, 4, 0))
            self.assertEqual(data[32:36], b"tiny")
            freq = struct.unpack_from("<4d", data, 36)
            for f, want in enumerate((1.0, 0.1, 0.01, 0.001)):
                self.assertAlmostEqual(freq[f], want, 12)
            values = struct.unpack_from("<72f", data, 68)
            for i in range(3):
                for l in range(2):
                    for h in range(3):
                        for f in range(4):
                            self.assertEqual(values[((i * 2 + l) * 3 + h) * 4 + f], 100 * l + 10 * h + i + f / 8)
            self.assertEqual(len(data), 68 + 72 * 4 + 8)

    def test_the_checksum_is_fnv1a(self):
        self.assertEqual(tool.fnv1a(b""), 0xCBF29CE484222325)
        self.assertEqual(tool.fnv1a(b"a"), 0xAF63DC4C8601EC8C)  # published test vector
        archive(self.path)
        data = tool.convert(self.path, 10000.0)[0]
        self.assertEqual(struct.unpack("<Q", data[-8:])[0], tool.fnv1a(data[:-8]))

    def test_frequencies_are_never_guessed(self):
        archive(self.path)
        with self.assertRaisesRegex(tool.ConvertError, "rope-theta"):
            tool.convert(self.path)
        archive(self.path, metadata=text("rope_theta") + b"G" + struct.pack(">d", 5e5))
        self.assertEqual(struct.unpack_from("<d", tool.convert(self.path, name="abcd")[0], 36 + 8)[0], 5e5 ** -0.25)
        self.refuses("rope_scaling", config={"rope_theta": 1e6, "rope_scaling": {"type": "yarn"}})

    def test_a_missing_head_is_an_error(self):
        archive(self.path, skip=(1, 1))
        self.refuses("missing")

    def test_nothing_is_executed(self):
        marker = os.path.join(self.dir.name, "ran")
        call = name("os", "system") + text("touch " + marker) + b"\x85R"
        write(self.path, b"\x80\x02" + call + b".")
        self.refuses("os.system")
        archive(self.path, call=("builtins", "eval"))
        self.refuses("builtins.eval")
        archive(self.path, storage=("torch", "HalfStorage"))
        self.refuses("not float32")
        for opcode in (b"b", b"i", b"o", b"\x81", b"\x93", b"P"):  # BUILD, INST, OBJ, NEWOBJ, ...
            write(self.path, b"\x80\x02}" + opcode + b".")
            self.refuses("refused")
        self.assertFalse(os.path.exists(marker))

    def test_damaged_files_are_errors(self):
        archive(self.path)
        with zipfile.ZipFile(self.path) as z:
            whole = z.read("a/data.pkl")
        for cut in list(range(0, 200)) + [len(whole) // 2, len(whole) - 1]:
            write(self.path, whole[:cut])
            self.refuses("")
        write(self.path, whole)  # no storages
        self.refuses("data/0")
        write(self.path, b"\x80\x02h\x07.")
        self.refuses("never kept")
        with open(self.path, "wb") as f:
            f.write(b"no zip at all")
        self.refuses("zip")

    @unittest.skipUnless(os.environ.get("PAGEFOLD_TRIATTENTION_PT"), "PAGEFOLD_TRIATTENTION_PT is not set")
    def test_the_official_file(self):
        data, layers, heads, bands = tool.convert(os.environ["PAGEFOLD_TRIATTENTION_PT"], 1e6)
        self.assertEqual((layers, heads, bands), (36, 32, 64))
        n = layers * heads * bands
        at = len(data) - 8 - 12 * n
        re = struct.unpack_from(f"<{n}f", data, at)
        im = struct.unpack_from(f"<{n}f", data, at + 4 * n)
        size = struct.unpack_from(f"<{n}f", data, at + 8 * n)
        for x, y, a in zip(re, im, size):  # |E q| <= E |q|
            self.assertLessEqual(x * x + y * y, a * a * 1.01 + 1e-6)


if __name__ == "__main__":
    unittest.main()
