"""A headless Chromium, driven over the DevTools protocol through a pair of pipes: no driver program, no web socket.

Messages are JSON objects that end with a zero byte; the browser reads descriptor 3 and writes descriptor 4.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time

OPTIONS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
           "--disable-background-networking", "--disable-component-update", "--disable-default-apps", "--disable-extensions",
           "--disable-sync", "--disable-features=OptimizationHints,MediaRouter,Translate", "--no-default-browser-check",
           "--metrics-recording-only", "--password-store=basic", "--use-mock-keychain", "--remote-debugging-pipe")


def find():
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Browser:
    def __init__(self, timeout=20):
        self.timeout = timeout
        self.profile = tempfile.TemporaryDirectory(prefix="pagefold-chromium-")
        to_browser, self.out = os.pipe()
        self.inp, from_browser = os.pipe()

        # A launcher puts the pipes where the browser looks for them; through high numbers, so that neither end is overwritten.
        launch = ("import fcntl, os, sys; a, b = (fcntl.fcntl(int(n), fcntl.F_DUPFD, 10) for n in sys.argv[1:3]);"
                  "os.dup2(a, 3); os.dup2(b, 4); os.execv(sys.argv[3], sys.argv[3:])")
        self.process = subprocess.Popen([sys.executable, "-c", launch, str(to_browser), str(from_browser), find(), *OPTIONS,
                                         f"--user-data-dir={self.profile.name}", "about:blank"],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        pass_fds=(to_browser, from_browser), start_new_session=True)
        os.close(to_browser)
        os.close(from_browser)
        self.buffer = b""
        self.next_id = 0
        self.events = []

    def close(self):
        try:
            self.send("Browser.close")
            self.process.wait(5)
        except (OSError, RuntimeError, TimeoutError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.out)
        os.close(self.inp)
        self.profile.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def receive(self, end):
        while b"\0" not in self.buffer:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.inp], [], [], left)[0]:
                raise TimeoutError("the browser did not answer")
            data = os.read(self.inp, 1 << 20)
            if not data:
                raise RuntimeError("the browser has gone")
            self.buffer += data
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def send(self, method, session=None, **params):
        """The result of a command; events that come meanwhile are kept."""
        self.next_id += 1
        message = {"id": self.next_id, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + self.timeout
        while True:
            answer = self.receive(end)
            if answer.get("id") == self.next_id:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer)

    def page(self):
        return Page(self)


class Page:
    """One tab. Everything it logs and asks the network for is kept in `events` of the browser."""

    def __init__(self, browser):
        self.browser = browser
        self.target = browser.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.send("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method, **params):
        return self.browser.send(method, self.session, **params)

    def close(self):
        self.browser.send("Target.closeTarget", targetId=self.target)

    def view(self, width, height, dark=False, scale=1):
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale,
                  mobile=width < 700)
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
                                                          {"name": "prefers-reduced-motion", "value": "reduce"}])

    def open(self, url):
        answer = self.send("Page.navigate", url=url)
        if "errorText" in answer:
            raise RuntimeError(f"{url}: {answer['errorText']}")

    def run(self, script):
        """The value of an expression, a promise included."""
        answer = self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, userGesture=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise RuntimeError(f"{script}: {details.get('exception', {}).get('description', details['text'])}")
        return answer["result"].get("value")

    def until(self, script, seconds=15):
        """Polls in the page, on its own clock, until the expression is true; its value."""
        wrapped = f"""new Promise((resolve, reject) => {{
          const end = performance.now() + {seconds * 1000};
          const look = () => {{
            let value;
            try {{ value = ({script}); }} catch (e) {{ value = false; }}
            if (value) resolve(value);
            else if (performance.now() > end) reject(new Error('it did not become true'));
            else setTimeout(look, 50);
          }};
          look();
        }})"""
        before, self.browser.timeout = self.browser.timeout, seconds + 10
        try:
            return self.run(wrapped)
        finally:
            self.browser.timeout = before

    def click(self, selector):
        box = self.run(f"""(() => {{
          const e = document.querySelector({json.dumps(selector)});
          e.scrollIntoView({{block: 'center'}});
          const r = e.getBoundingClientRect();
          return [r.x + r.width / 2, r.y + r.height / 2];
        }})()""")
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def type(self, selector, text):
        """Replaces what a field holds, as keys do."""
        self.run(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.focus(); e.select(); }})()")
        self.send("Input.insertText", text=text)

    def key(self, name):
        for kind in ("rawKeyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=name, code=name)

    def screenshot(self, path, whole=True):
        params = {}
        if whole:
            size = self.send("Page.getLayoutMetrics")["cssContentSize"]
            params = {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1},
                      "captureBeyondViewport": True}
        data = self.send("Page.captureScreenshot", format="png", **params)["data"]
        with open(path, "wb") as f:
            f.write(base64.b64decode(data))

    def own(self, method):
        return [e["params"] for e in self.browser.events
                if e.get("sessionId") == self.session and e.get("method") == method]

    def complaints(self):
        """Errors and warnings of the console, uncaught exceptions, refused or failed loads."""
        self.run("0")  # what was said so far is here once this is answered
        out = [p["exceptionDetails"].get("exception", {}).get("description", p["exceptionDetails"]["text"])
               for p in self.own("Runtime.exceptionThrown")]
        out += [str([a.get("value", a.get("description")) for a in p["args"]])
                for p in self.own("Runtime.consoleAPICalled") if p["type"] in ("error", "warning", "assert")]
        out += [f"{p['entry']['text']} {p['entry'].get('url', '')}" for p in self.own("Log.entryAdded")
                if p["entry"]["level"] in ("error", "warning")]
        return out

    def requests(self):
        return [p["request"]["url"] for p in self.own("Network.requestWillBeSent")]
