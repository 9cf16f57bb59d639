#!/usr/bin/env python3
"""Checks what a compiler does not: include direction, sizes, layout, words that do not belong in the tree.

Usage: tools/check_style.py [--untested]     exit status 1 when something is wrong
"""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# What a folder of src/ may include, itself aside (src/README.md has the table). A folder absent here is an error.
BASE = {"base"}
MAY_INCLUDE = {
    "base": set(),
    "net": BASE,
    "kernels": BASE,
    "kv": BASE,
    "formats": BASE,
    "text": BASE,
    "grammar": BASE,
    "calc": BASE,
    "report": BASE,
    "backend": BASE | {"kernels"},
    "model": BASE | {"backend", "formats"},
    "engine": BASE | {"model", "backend", "kv", "calc", "grammar"},
    "api": BASE | {"model", "engine", "text", "grammar", "formats", "kv", "calc", "backend"},
    "quantize": BASE | {"api", "model", "engine", "text", "formats", "kv", "backend"},
    "eval": BASE | {"report", "api", "model", "engine", "text", "formats", "kv", "backend"},
    "bench": BASE | {"net", "kernels", "report", "api", "model", "engine", "kv", "backend"},
    "server": BASE | {"engine", "text", "grammar", "kv", "calc", "api"},
    "cli": BASE | {"net", "kernels", "kv", "formats", "text", "calc", "backend", "model", "engine", "api", "quantize", "eval", "bench", "report",
                    "server"},
}
# Plain-data headers that may be included from further away.
KV_DATA = {"kv/table.h", "kv/moves.h", "kv/signals.h"}
ALSO = {
    "backend": KV_DATA,
    "model": KV_DATA | {"text/vocab.h"},
    "api": KV_DATA,
}
# Folders that may include the public headers include/pagefold/.
PUBLIC_OPTIONS = {"kv", "engine", "api", "eval", "bench", "server", "cli"}

MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 70
# path: reason
LONG_FILES: dict[str, str] = {}
# "path:function's first line, stripped": reason
LONG_FUNCTIONS: dict[str, str] = {
    "src/kernels/matmul_i8_avx512.cpp:static void run(const Int8Kernel& self, int tile, int row)":
        "one register block: cut in two it spills",
    "src/kernels/matmul_i8_avx512.cpp:template <int T, int R> static void run(const Int8Kernel& self, int tile, int row)":
        "one register block: cut in two it spills",
    "src/text/jinja/format.cpp:Status json_walk(Heap& heap, std::string& out, const Value& v, const JsonStyle& style, int depth)":
        "one case a kind of value",
    "src/text/jinja/interp_expr.cpp:Result<Value> Interp::eval_kind(const Expr& e)": "one case a kind of expression",
}

# Machine paths, package hosts and left-over notes. Written in pieces so that this file passes its own check.
FORBIDDEN = [
    (re.compile(r"(?<![\w.])/(?:wo" r"rk|ro" r"ot)/"), "a path of one machine"),
    (re.compile(r"\b(?:py" r"pi\.org|files\.python" r"hosted\.org|deb\.deb" r"ian\.org)"), "a package host"),
    (re.compile(r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X)\b"), "a left-over note"),
]
CODE_SUFFIXES = {".cpp", ".h"}
TEXT_SUFFIXES = CODE_SUFFIXES | {".py", ".md", ".cmake", ".txt", ".json", ".sh", ".def", ".js", ".css", ".html", ""}
BINARY_OR_DATA = re.compile(r"^(fuzz/corpus/|tests/.*/(data|fixtures|golden)/|LICENSE$)")


def tracked_files() -> list[str]:
    out = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True)
    return sorted(f for f in out.stdout.decode().split("\0") if f and (ROOT / f).is_file())


def strip_code(text: str) -> str:
    """Comments, strings and character literals become spaces; line breaks stay."""
    token = re.compile(
        r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^\s()\\]{0,16})\((?:.*?)\)(?P=tag)"'
        r'|"(?:\\.|[^"\\\n])*"' r"|(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+'", re.S)
    return token.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def check_includes(path: str, text: str, errors: list[str]) -> None:
    folder = path.split("/")[1]
    if folder not in MAY_INCLUDE:
        errors.append(f"{path}: folder src/{folder} has no layer in tools/check_style.py")
        return
    for number, line in enumerate(text.splitlines(), 1):
        m = re.match(r'\s*#\s*include\s+["<]([^">]+)[">]', line)
        if not m or "/" not in m.group(1):
            continue
        target = m.group(1)
        top = target.split("/")[0]
        if top == "pagefold":
            if folder not in PUBLIC_OPTIONS:
                errors.append(f"{path}:{number}: src/{folder} may not include the public header {target}")
        elif top in MAY_INCLUDE and top != folder:
            if top not in MAY_INCLUDE[folder] and target not in ALSO.get(folder, set()):
                errors.append(f"{path}:{number}: src/{folder} may not include {target} (includes point down the layers)")


def check_functions(path: str, code: str, errors: list[str]) -> None:
    """Bodies that open after a ')' (qualifiers and initialiser lists between) and span too many lines."""
    stack: list[tuple[int, str | None]] = []
    line = 1
    since = 0  # where the current declaration started
    for i, c in enumerate(code):
        if c == "\n":
            line += 1
        elif c == "{":
            head = code[since:i]
            scope = re.search(r"\b(namespace|class|struct|union|enum)\b[^()]*$", head.strip())
            inside_function = any(name is not None for _, name in stack)
            is_function = not scope and not inside_function and ")" in head and "=" not in head.split("(")[0]
            name = " ".join(head.split())[:100] if is_function else None
            stack.append((line, name))
            since = i + 1
        elif c == "}":
            if stack:
                first, name = stack.pop()
                length = line - first + 1
                if name is not None and length > MAX_FUNCTION_LINES and f"{path}:{name}" not in LONG_FUNCTIONS:
                    errors.append(f"{path}:{first}: function of {length} lines (most: {MAX_FUNCTION_LINES}): {name}")
            since = i + 1
        elif c == ";":
            since = i + 1


def parameter_types(parameters: str) -> str:
    parts, depth = [""], 0
    for c in parameters:
        depth += (c in "<([{") - (c in ">)]}")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    types = (re.sub(r"(?<=[\s&*>])\w+\s*$", "", p.split("=")[0].strip()) for p in parts)
    return ", ".join(re.sub(r"\s+", "", t) for t in types)


def declared_names(head: str, opens_body: bool) -> list[str]:
    """What a declaration in an unnamed namespace calls by name; functions with their parameters' types, since these may overload."""
    head = " ".join(head.split())
    if re.match(r"TEST(_[FP])?\(|INSTANTIATE_|static_assert|template <> |PF_|extern ", head) or "namespace" in head:
        return []
    alias = re.match(r"(?:template <.*> )?using (\w+) =", head)
    if alias:
        return [alias.group(1)]
    if opens_body:
        kind = re.search(r"\b(?:struct|class|union|enum(?: class)?) (\w+)(?: final)?(?: : [^()]*)?$", head)
        if kind:
            return [kind.group(1)]
        function = re.match(r"[^=(]*?\b(\w+)\((.*)\)[^()]*$", head)
        if function:
            return [f"{function.group(1)}({parameter_types(function.group(2))})"]
    if "(" in head.split("=")[0] or head.startswith(("using ", "struct ", "class ", "enum ")):
        return []
    if opens_body and "=" not in head:
        head += " ="
    return re.findall(r"\b([A-Za-z_]\w*)(?:\[[^\]]*\])* ?=(?!=)", head)


def unnamed_names(code: str) -> dict[str, int]:
    """Names of a file's unnamed namespaces, each with the namespaces around it, and their lines."""
    code = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: re.sub(r"[^\n]", " ", m.group()), code, flags=re.M)
    found: dict[str, int] = {}
    scopes: list[str | None] = []  # None: the body of something
    since = 0
    for m in re.finditer(r"[{};]", code):
        head = code[since:m.start()].strip()
        since = m.end()
        inside = "" in scopes and None not in scopes
        if m.group() == "}":
            if scopes:
                scopes.pop()
            continue
        namespace = re.search(r"\bnamespace\s*([\w:]*)$", head) if m.group() == "{" else None
        if inside and not namespace:
            for name in declared_names(head, m.group() == "{"):
                found["::".join([s for s in scopes if s] + [name])] = code.count("\n", 0, m.start()) + 1
        if m.group() == "{":
            scopes.append(namespace.group(1) if namespace else None)
    return found


def check_unnamed(files: list[str]) -> list[str]:
    """Grouped builds (PAGEFOLD_UNITY) compile files of a module as one: names of their unnamed namespaces meet."""
    errors, seen = [], {}
    for path in files:
        m = re.match(r"(src/cli/pull|(?:src|tests)/\w+)/.*(?<!_avx2)(?<!_avx512)\.cpp$", path)
        if not m:
            continue
        for name, line in unnamed_names(strip_code((ROOT / path).read_text(encoding="utf-8"))).items():
            other = seen.setdefault((m.group(1), name), path)
            if other != path:
                errors.append(f"{path}:{line}: {name} is a name of {other} too, and grouped builds compile both as one file")
    return errors


def check_text(path: str, text: str, errors: list[str]) -> None:
    for number, line in enumerate(text.splitlines(), 1):
        for pattern, what in FORBIDDEN:
            if pattern.search(line):
                errors.append(f"{path}:{number}: {what}: {line.strip()[:100]}")


def check_file(path: str) -> list[str]:
    errors: list[str] = []
    suffix = Path(path).suffix
    if suffix not in TEXT_SUFFIXES or BINARY_OR_DATA.match(path):
        return errors
    try:
        text = (ROOT / path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return [f"{path}: not UTF-8"]
    check_text(path, text, errors)
    lines = text.count("\n")
    if suffix in CODE_SUFFIXES | {".py"} and lines > MAX_FILE_LINES and path not in LONG_FILES:
        errors.append(f"{path}: {lines} lines (most: {MAX_FILE_LINES})")
    if suffix not in CODE_SUFFIXES:
        return errors
    if path.startswith("src/"):
        check_includes(path, text, errors)
    if path.endswith(".h") and "#pragma once" not in text:
        errors.append(f"{path}: no #pragma once")
    check_functions(path, strip_code(text), errors)
    if path.startswith(("src/", "include/", "examples/")) and not text.isascii():
        without_strings = re.sub(r'"(?:\\.|[^"\\\n])*"', "", text)
        for number, line in enumerate(without_strings.splitlines(), 1):
            if not line.isascii():
                errors.append(f"{path}:{number}: characters outside ASCII in code or a comment")
    return errors


def check_format(paths: list[str]) -> list[str]:
    def run(chunk: list[str]) -> list[str]:
        try:
            done = subprocess.run(["clang-format", "--dry-run", "-Werror", *chunk], cwd=ROOT, capture_output=True, text=True)
        except FileNotFoundError:
            return ["clang-format is not installed"]
        names = sorted({m.group(1) for m in re.finditer(r"^(\S+?):\d+:\d+: error:", done.stderr, re.M)})
        if done.returncode and not names:
            return [f"clang-format: {done.stderr.strip()[:300]}"]
        return [f"{n}: not formatted (clang-format -i {n})" for n in names]

    chunks = [paths[i : i + 16] for i in range(0, len(paths), 16)]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return [e for part in pool.map(run, chunks) for e in part]


def missing_tests(files: list[str]) -> list[str]:
    """Modules are tested by tests/MODULE; a source without a test of its name is only a hint."""
    tests = {Path(f).name for f in files if f.startswith("tests/")}
    out = []
    for f in files:
        if f.startswith("src/") and f.endswith(".cpp") and not f.startswith("src/cli/"):
            stem = re.sub(r"_(avx2|avx512)$", "", Path(f).stem)
            if f"{stem}_test.cpp" not in tests:
                out.append(f)
    return out


def main() -> int:
    files = tracked_files()
    errors = [e for f in files for e in check_file(f)]
    errors += check_unnamed(files)
    errors += check_format([f for f in files if Path(f).suffix in CODE_SUFFIXES])
    if "--untested" in sys.argv:
        untested = missing_tests(files)
        if untested:
            print(f"note: {len(untested)} sources have no test of their own name: {' '.join(untested)}", file=sys.stderr)
    for e in errors:
        print(e, file=sys.stderr)
    print(f"{len(files)} files, {len(errors)} faults", file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
