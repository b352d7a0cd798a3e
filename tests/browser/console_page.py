"""The console in headless Chromium: by keyboard alone, with a name for every control, 10,000 workflows, and no console message."""

import argparse
import contextlib
import pathlib
import subprocess
import sys
import tempfile

from devtools import Browser, chromium

FOCUS = "document.activeElement"
ROWS = "document.querySelectorAll('tbody tr').length"
CONTROLS = {"button", "checkbox", "combobox", "link", "searchbox", "textbox", "progressbar", "table", "Iframe"}


class Failed(Exception):
    pass


def expect(condition, what):
    if not condition:
        raise Failed(what)


def tab_to(browser, script, most=60):
    """Presses Tab until the focused element is so."""
    for _ in range(most):
        browser.press("Tab")
        if browser.run(f"(({script})({FOCUS}))"):
            return
    raise Failed(f"no Tab leads to `{script}`; the focus is on `{browser.run(FOCUS + '.outerHTML')[:200]}`")


def named(browser, where):
    nameless = [role for role, name in browser.accessible() if role in CONTROLS and not name]
    expect(not nameless, f"{where}: without a name: {nameless}")


def fits(browser, where):
    widths = browser.run("[document.documentElement.scrollWidth, innerWidth]")
    expect(widths[0] <= widths[1], f"{where}: {widths[0]} pixels wide in a window of {widths[1]}")


def open_console(browser, url):
    browser.go(url)
    browser.wait(f"{ROWS} === 50")
    expect(browser.run("location.hash") == "#/workflows", "the token stays in the address")
    expect(browser.run("document.getElementById('caller').textContent") == "operator", "the token does not allow changes")
    named(browser, "workflows")


def list_workflows(browser):
    """Pages and filters of 10,000, by keyboard."""
    browser.press("Tab")
    expect(browser.run(f"{FOCUS}.className") == "skip", "the first Tab leads not to the link that skips")
    browser.press("Enter")
    expect(browser.run(f"{FOCUS}.id") == "main", "the link does not skip")
    tab_to(browser, "e => e.name === 'model'")
    browser.type("model00013")
    browser.press("Enter")
    browser.wait(f"{ROWS} === 1")
    expect("model=model00013" in browser.run("location.hash"), "the filter is not in the address")
    browser.run("history.back()")
    browser.wait(f"{ROWS} === 50")
    expect(browser.run("document.querySelector('[name=model]').value") == "", "going back leaves the filter")
    browser.run("location.hash = '#/workflows?state=failed&target=raspberry-pi%2F5&label=team%3Dspeech'")
    browser.wait("[...document.querySelectorAll('tbody .state')].every(e => e.textContent === 'failed')")
    expect(browser.run(f"{ROWS}") == 50, "filters do not join")
    browser.run("location.hash = '#/workflows?label=team'")
    browser.wait("[...document.querySelectorAll('tbody .state')].some(e => e.textContent === 'succeeded')")
    for page in range(2, 22):
        tab_to(browser, "e => e.textContent === 'Next page'", 200) if page == 2 else None
        browser.press("Enter")
        browser.wait(f"document.body.innerText.includes('Page {page}')")
    expect(browser.run(f"{FOCUS}.textContent") == "Next page", "the next page takes the focus away")
    expect(browser.run("document.querySelector('caption').textContent").startswith("Workflows 1,001 to 1,050"), "not page 21")
    browser.run("location.hash = '#/workflows?filter&title=nothing'")
    browser.wait("document.querySelector('caption').textContent.includes('No workflow')")
    browser.run("location.hash = '#/workflows?label=a%20b%20c'")
    browser.wait("!document.getElementById('problem').hidden")
    browser.run("location.hash = '#/workflows'")
    browser.wait("document.getElementById('problem').hidden")


def watch_live(browser, gateway):
    """Live progress, then cancel, retry and the end."""
    browser.wait(f"{ROWS} === 50")
    tab_to(browser, "e => e.textContent === 'compile live.onnx'", 200)
    browser.press("Enter")
    browser.wait("document.querySelectorAll('.graph a').length === 12")
    browser.wait("document.querySelectorAll('.graph a.running').length === 6")
    expect(browser.run("document.querySelector('.graph a.running').getAttribute('aria-label')").endswith("Compile running 37 %"),
           "the graph does not say the progress")
    expect(browser.run("document.querySelectorAll('tbody progress').length") == 6, "the table has no progress")
    named(browser, "workflow")
    tab_to(browser, "e => e.matches('.graph a') && e.getAttribute('aria-label').startsWith('resnet50/import')")
    browser.press("Enter")
    browser.wait("document.querySelector('.details h2')?.textContent === 'resnet50/import'")
    expect(browser.run(f"{FOCUS}.textContent") == "resnet50/import", "the details take no focus")
    tab_to(browser, "e => e.textContent === 'Cancel'", 100)
    browser.press("Enter")
    expect(browser.run(f"{FOCUS}.textContent").endswith("sure?"), "it does not ask")
    browser.press("Enter")
    browser.wait("document.querySelector('main dl .state').textContent === 'cancelled'")
    gateway.stdin.write("go\n")
    gateway.stdin.flush()
    tab_to(browser, "e => e.textContent === 'Retry what failed'", 100)
    browser.press("Enter")
    browser.wait("document.querySelector('main dl .state').textContent === 'succeeded'")
    browser.wait("document.getElementById('live').textContent.startsWith('succeeded: 12 succeeded')")


def see_failure(browser):
    browser.run("location.hash = '#/workflows?model=model00013'")
    browser.wait(f"{ROWS} === 1")
    browser.run("document.querySelector('tbody a').click()")
    browser.wait("document.querySelectorAll('.graph a').length === 3")
    browser.run("document.querySelector('.graph a.failed').dispatchEvent(new MouseEvent('click', {bubbles: true}))")
    browser.wait("document.querySelector('.details').innerText.includes('weight has rank 3')")
    expect(browser.run("document.querySelector('.details pre').textContent").endswith("accepted by codegen-3 <b>"), "the log is not there")


def see_report(browser):
    browser.run("location.hash = location.hash.replace(/step=.*/, 'step=model00013%2Fanalyse')")
    tab = "[...document.querySelectorAll('.details button')].find(e => e.textContent === 'Show page')"
    browser.wait(f"Boolean({tab})")
    browser.run(f"{tab}.click()")
    browser.wait("document.querySelector('iframe') !== null")
    expect(browser.run("document.querySelector('iframe').getAttribute('sandbox')") == "allow-scripts", "the report is not in a sandbox")
    browser.wait("new Promise(done => setTimeout(() => done(true), 300))")
    expect(browser.run("document.title") != "reached", "a report reaches the console")
    expect(browser.run("document.querySelector('iframe').contentDocument === null"), "the report has the console's origin")
    named(browser, "report")


def see_no_step(browser):
    browser.run("location.hash = location.hash.replace(/step=.*/, 'step=nothing')")
    browser.wait("document.querySelector('main [role=status]:not([hidden])')?.textContent === 'There is no step nothing.'")


def go_away(browser, path):
    """Requests to the path get no answer until `come_back`."""
    browser.run("window.wholeFetch = window.fetch; window.fetch = (asked, ...rest) => "
                f"asked === '{path}' ? Promise.reject(new TypeError('away')) : window.wholeFetch(asked, ...rest); 0")


def come_back(browser):
    browser.run("window.fetch = window.wholeFetch; 0")


def hear_error(browser, method):
    """Errors of a button are said to readers of the screen. The button need not be there for others."""
    go_away(browser, f"/api/{method}")
    browser.run("[...document.querySelectorAll('main .bar button')].find(e => e.textContent === 'Retry what failed').click()")
    browser.wait("document.querySelector('main [role=alert]:not([hidden])')?.textContent === 'the gateway does not answer'")
    come_back(browser)


def learn_caller_late(browser):
    """The caller becomes known once the gateway answers, though another page was opened meanwhile."""
    go_away(browser, "/api/session")
    browser.run("document.getElementById('token').value = sessionStorage.getItem('quench-token')")
    browser.run("document.getElementById('token-form').requestSubmit()")
    browser.wait("document.getElementById('caller').textContent === ''")
    browser.run("location.hash = '#/fleets'")
    browser.wait("document.querySelector('h1').textContent === 'Fleets'")
    come_back(browser)
    browser.wait("document.getElementById('caller').textContent === 'operator'")


def see_fleets(browser):
    browser.run("location.hash = '#/fleets'")
    browser.wait(f"{ROWS} === 1")
    named(browser, "fleets")
    browser.run("document.querySelector('tbody a').click()")
    browser.wait(f"{ROWS} === 12")
    browser.wait("document.querySelector('main dl .state').textContent === 'succeeded'")
    named(browser, "fleet")
    browser.run("location.hash += (location.hash.includes('?') ? '&' : '?') + 'target=raspberry&model=bert'")
    browser.wait(f"{ROWS} === 2")


def see_machine(browser):
    browser.run("location.hash = '#/machine'")
    browser.wait(f"{ROWS} === 2")
    browser.wait("document.body.innerText.includes('serves')")
    named(browser, "machine")
    browser.run("location.hash = '#/tenants'")
    browser.wait(f"{ROWS} === 1")
    named(browser, "tenants")


def without_token(browser):
    """Reads and changes nothing."""
    tab_to(browser, "e => e.id === 'token-button'", 100)
    browser.press("Enter")
    expect(browser.run(f"{FOCUS}.id") == "token", "the field of the token takes no focus")
    browser.run("document.getElementById('token-forget').click()")
    browser.wait("document.getElementById('caller').textContent === 'read-only'")
    browser.run("location.hash = '#/workflows'")
    browser.wait(f"{ROWS} === 50")
    browser.run("document.querySelector('tbody a').click()")
    browser.wait("document.querySelectorAll('.graph a').length > 0")
    expect(browser.run("[...document.querySelectorAll('main .bar button')].every(e => e.hidden)"), "buttons that may not be used")


def take_pictures(browser, folder, name, place):
    for width, height, dark, kind in ((1300, 900, False, "light"), (1300, 900, True, "dark"), (400, 800, False, "narrow")):
        browser.resize(width, height, dark)
        browser.run(f"location.hash = '{place}'")
        browser.wait("new Promise(done => requestAnimationFrame(() => setTimeout(() => done(true), 700)))")
        fits(browser, f"{name}, {kind}")
        if folder:
            browser.picture(folder / f"{name}-{kind}.png")
    browser.resize(1300, 900)


def walk(browser, gateway, pictures):
    url = gateway.stdout.readline().strip()
    open_console(browser, url)
    list_workflows(browser)
    take_pictures(browser, pictures, "workflows", "#/workflows")
    live = browser.run("[...document.querySelectorAll('tbody a')].find(e => e.textContent === 'compile live.onnx').hash")
    take_pictures(browser, pictures, "live", f"{live}?step=resnet50%2Fimport")
    browser.run("location.hash = '#/workflows'")
    watch_live(browser, gateway)
    see_failure(browser)
    take_pictures(browser, pictures, "failed", browser.run("location.hash"))
    see_report(browser)
    see_no_step(browser)
    hear_error(browser, "Workflows/RetryWorkflow")
    see_fleets(browser)
    take_pictures(browser, pictures, "fleet", "#/fleets/nightly")
    hear_error(browser, "Fleets/RetryFleet")
    see_machine(browser)
    take_pictures(browser, pictures, "machine", "#/machine")
    learn_caller_late(browser)
    without_token(browser)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gateway", required=True, help="the program console_gateway")
    parser.add_argument("--pictures", type=pathlib.Path, help="folder for pictures of the pages")
    args = parser.parse_args()
    program = chromium()
    if program is None:
        print("skipped: no Chromium")
        return 77
    if args.pictures:
        args.pictures.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        gateway = stack.enter_context(subprocess.Popen([args.gateway], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        stack.callback(gateway.stdin.close)
        browser = Browser(program, folder)
        stack.callback(browser.close)
        try:
            walk(browser, gateway, args.pictures)
            # The browser says so of each refused request, whatever the page makes of it.
            spoken = [text for text in browser.messages if not text.startswith("Failed to load resource")]
            expect(not spoken, f"the console of the page says: {spoken}")
        except (Failed, TimeoutError) as error:
            print(error, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
