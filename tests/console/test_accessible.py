"""What the tests of pages call accessible: also the short look of `make test` sees the faults that people would meet."""

import pytest

from tests.console.visiting import Console, accessible, accessible_in_each_look, fits_each_window

pytestmark = pytest.mark.thorough

STYLE = """(text) => {
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(text);
    document.adoptedStyleSheets = [sheet];
}"""


async def test_faults_are_seen_in_each_look_in_dialogs_and_in_the_navigation(console: Console) -> None:
    page = await console.visit(path="/tokens")
    await page.evaluate("document.querySelector('#nav').append(document.createElement('textarea'))")
    with pytest.raises(AssertionError, match="label: "):
        await accessible(page, whole=True)
    await page.evaluate("document.querySelector('#nav textarea').remove()")

    for scheme in ("light", "dark"):
        pale = f"@media (prefers-color-scheme: {scheme}) {{ main h1 {{ color: #888; background: #777; }} }}"
        await page.evaluate(STYLE, pale)
        with pytest.raises(AssertionError, match="color-contrast"):
            await accessible_in_each_look(page)
    await page.evaluate(STYLE, "main h1 { width: 2000px; }")
    with pytest.raises(AssertionError, match="px wider than its window"):
        await fits_each_window(page)
    await page.evaluate(STYLE, "")
    await page.click("text=New token")
    await page.evaluate("document.querySelector('#new-token').append(document.createElement('textarea'))")
    with pytest.raises(AssertionError, match="label: "):
        await accessible(page)
