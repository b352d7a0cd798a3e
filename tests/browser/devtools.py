"""Headless Chromium, driven by its DevTools protocol over a pipe."""

import base64
import contextlib
import json
import os
import pathlib
import select
import shutil
import subprocess
import time


def chromium():
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    return None


class Browser:
    """One page. `messages`: all that the console of the page said, and exceptions that nobody caught."""

    def __init__(self, program, folder):
        self._to_read, self._to = os.pipe()
        self._from, self._from_write = os.pipe()
        self._ended = False
        self._next, self._buffer, self._session = 0, b"", None
        self.messages = []
        # Chromium takes descriptors 3 and 4; those of Python may be others.
        redirected = f'exec "$0" "$@" 3<&{self._to_read} 4>&{self._from_write}'
        self._process = subprocess.Popen(
            ["bash", "-c", redirected, program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             f"--user-data-dir={folder}/profile", "--remote-debugging-pipe", "about:blank"],
            pass_fds=(self._to_read, self._from_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(self._to_read)
        os.close(self._from_write)
        targets = self._call("Target.getTargets")["targetInfos"]
        page = next(target for target in targets if target["type"] == "page")
        self._session = self._call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Accessibility"):
            self._call(f"{domain}.enable")
        self.resize(1300, 900)

    def close(self):
        with contextlib.suppress(Exception):
            self._call("Browser.close")
        self._process.wait(timeout=20)
        os.close(self._to)
        os.close(self._from)

    def _take(self, message):
        method, params = message.get("method"), message.get("params", {})
        if method == "Runtime.consoleAPICalled":
            self.messages.append(" ".join(str(each.get("value", each.get("description"))) for each in params["args"]))
        elif method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.messages.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Log.entryAdded":
            self.messages.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")

    def _read(self, seconds):
        end = time.monotonic() + seconds
        while b"\0" not in self._buffer:
            if not select.select([self._from], [], [], max(0, end - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            chunk = os.read(self._from, 1 << 20)
            if not chunk:
                raise EOFError("the browser has gone")
            self._buffer += chunk
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)

    def _call(self, method, **params):
        self._next += 1
        message = {"id": self._next, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read(60)
            if answer.get("id") != self._next:
                self._take(answer)
            elif "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']['message']}")
            else:
                return answer["result"]

    def go(self, url):
        self._call("Page.navigate", url=url)

    def resize(self, width, height, dark=False):
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self._call("Emulation.setEmulatedMedia", features=features)

    def run(self, script):
        """The value of an expression of JavaScript, in the page."""
        result = self._call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{script}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait(self, script, seconds=20):
        """Until the expression is true; its value."""
        end = time.monotonic() + seconds
        while not (value := self.run(script)):
            if time.monotonic() > end:
                raise TimeoutError(f"`{script}` does not come true; the page says:\n{self.run('document.body.innerText')[:2000]}")
            time.sleep(0.02)
        return value

    def press(self, key, text="", shift=False):
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32}
        event = {"key": key, "code": key, "windowsVirtualKeyCode": codes.get(key, ord(key[0].upper())), "modifiers": 8 if shift else 0}
        text = {"Enter": "\r", " ": " "}.get(key, text)
        self._call("Input.dispatchKeyEvent", type="keyDown", text=text, **event)
        self._call("Input.dispatchKeyEvent", type="keyUp", **event)

    def type(self, text):
        self._call("Input.insertText", text=text)

    def accessible(self):
        """(role, name) of what readers of the screen are told."""
        nodes = self._call("Accessibility.getFullAXTree")["nodes"]
        return [(node.get("role", {}).get("value", ""), node.get("name", {}).get("value", "")) for node in nodes if not node.get("ignored")]

    def picture(self, path):
        image = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=False)
        pathlib.Path(path).write_bytes(base64.b64decode(image["data"]))
