"""A small stand-in for a model hub on the loopback interface, with the faults a download can meet."""

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Hub:
    """files: name -> bytes. The other fields are faults and wishes, set by each test."""

    def __init__(self):
        self.files = {}
        self.commit = "0123456789abcdef0123456789abcdef01234567"
        self.token = None  # required bearer token
        self.listed_size = {}  # name -> a size that differs from the truth
        self.listed_sha = {}  # name -> a hash that differs from the truth
        self.cut_after = {}  # name -> bytes after which the connection is closed, once
        self.ignore_range = False
        self.redirect_to = None  # base address of another server that has the bytes
        self.fail_first = {}  # name -> status of the first request
        self.serve = True  # False: the files are 404
        self.requests = []  # (path, range, authorization)

        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def do_GET(self):
                hub.handle(self)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def add(self, name, data):
        self.files[name] = data

    def ranges_of(self, name):
        return [r for path, r, _ in self.requests if path.endswith("/" + name)]

    def listing(self):
        siblings = []
        for name, data in self.files.items():
            item = {"rfilename": name, "size": self.listed_size.get(name, len(data))}
            if name.endswith((".gguf", ".safetensors")):
                sha = self.listed_sha.get(name, hashlib.sha256(data).hexdigest())
                item["lfs"] = {"sha256": sha, "size": item["size"], "pointerSize": 134}
            siblings.append(item)
        return {"id": "owner/name", "sha": self.commit, "siblings": siblings}

    @staticmethod
    def reply(request, status, body=b"", headers=()):
        request.send_response(status)
        for key, value in headers:
            request.send_header(key, value)
        request.send_header("Content-Length", str(len(body)))
        request.send_header("Connection", "close")
        request.end_headers()
        request.wfile.write(body)
        request.close_connection = True

    def handle(self, request):
        path = request.path.split("?")[0]
        self.requests.append((path, request.headers.get("Range"), request.headers.get("Authorization")))
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            return self.reply(request, 401)
        if path.startswith("/api/models/owner/name/revision/"):
            return self.reply(request, 200, json.dumps(self.listing()).encode())
        prefix = f"/owner/name/resolve/{self.commit}/"
        name = path.removeprefix(prefix)
        if not path.startswith(prefix) or name not in self.files or not self.serve:
            return self.reply(request, 404)
        if name in self.fail_first:
            return self.reply(request, self.fail_first.pop(name))
        if self.redirect_to:
            return self.reply(request, 302, headers=[("Location", self.redirect_to + path)])
        return self.send_file(request, name)

    def send_file(self, request, name):
        data = self.files[name]
        first = 0
        wanted = request.headers.get("Range")
        if wanted and not self.ignore_range:
            first = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if first >= len(data):
                return self.reply(request, 416)
        request.send_response(206 if first else 200)
        if first:
            request.send_header("Content-Range", f"bytes {first}-{len(data) - 1}/{len(data)}")
        request.send_header("Content-Length", str(len(data) - first))
        request.send_header("Connection", "close")
        request.end_headers()
        cut = self.cut_after.pop(name, None)
        request.wfile.write(data[first:] if cut is None else data[first : first + cut])
        request.close_connection = True
