"""The page at /, in a real browser over a running server with a fake model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from selenium.webdriver.common.by import By

from tests.live_endpoint import LiveEndpoint, register_fakes, wait_for

if TYPE_CHECKING:
    from selenium.webdriver import Chrome
    from selenium.webdriver.remote.webelement import WebElement

pytestmark = pytest.mark.browser
MODEL = "main.ml.echo"
ROW = "document.querySelector('tr[data-endpoint=steady]')"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveEndpoint]:
    """One endpoint, whose update to version 3 failed; a token is asked for."""
    registry = register_fakes(tmp_path_factory.mktemp("registry"), MODEL)
    live = LiveEndpoint(tmp_path_factory.mktemp("server"), registry, "--token", "right")
    live.headers["Authorization"] = "Bearer right"
    live.start()
    live.create("steady", entity_name=MODEL, entity_version="1")
    live.settled("steady")
    broken = {"served_entities": [{"entity_name": MODEL, "entity_version": "3"}]}
    live.put_config("steady", broken)
    live.settled("steady")
    yield live
    live.stop()


@pytest.fixture
def page(server: LiveEndpoint, browser: Chrome) -> Chrome:
    """The page, opened with the token."""
    browser.get(server.url)
    wait_for(lambda: shown(browser, "login") or has_row(browser), "the page has read the state")
    if shown(browser, "login"):
        fill(browser, "token", "right\n")
    wait_for(lambda: has_row(browser), "the endpoint is shown")
    return browser


def part(browser: Chrome, name: str) -> WebElement:
    return browser.find_element(By.ID, name)


def shown(browser: Chrome, name: str) -> bool:
    return part(browser, name).is_displayed()


def has_row(browser: Chrome) -> bool:
    return bool(browser.execute_script(f"return {ROW} !== null"))


def row_text(browser: Chrome) -> str:
    """Read in one step: the page draws its rows anew every two seconds."""
    return str(browser.execute_script(f"return {ROW}.innerText"))


def fill(browser: Chrome, name: str, text: str) -> None:
    part(browser, name).clear()
    part(browser, name).send_keys(text)


def test_a_token_is_asked_for_and_judged(server: LiveEndpoint, browser: Chrome) -> None:
    browser.get(server.url)
    browser.execute_script("sessionStorage.clear()")
    browser.refresh()
    wait_for(lambda: shown(browser, "login"), "a token is asked for")
    assert part(browser, "connection").text == "Token wanted"
    fill(browser, "token", "wrong\n")
    wait_for(lambda: "not one of" in part(browser, "token-fault").text, "it is refused")
    assert not has_row(browser)
    fill(browser, "token", "right\n")
    wait_for(lambda: has_row(browser), "the endpoint is shown")
    assert not shown(browser, "login")


def test_states_versions_and_the_reason_of_a_failure(page: Chrome) -> None:
    badges = f"[...{ROW}.querySelectorAll('.badge')]"
    states = page.execute_script(f"return {badges}.map((badge) => badge.title)")
    assert states == ["READY", "UPDATE_FAILED"]
    text = row_text(page)
    assert f"{MODEL} version 1 (100 %)" in text
    assert f"{MODEL} version 3 (not taken over)" in text
    assert "failed: RuntimeError: the fake was told not to load" in text


def test_an_answer_with_its_facts_and_rates(page: Chrome) -> None:
    fill(page, "prompt", '{"grade": "yes"}')
    part(page, "send").click()
    wait_for(lambda: "tokens" in part(page, "answer-facts").text, "an answer is shown")
    assert part(page, "answer").text.splitlines() == ["{", '  "grade": "yes"', "}"]
    assert part(page, "answer-facts").text.startswith("finish reason: stop · 2 + 2 tokens · ")
    assert part(page, "answer-fault").text == ""
    wait_for(lambda: "–" not in row_text(page), "rates are shown")


def test_a_schema_that_is_no_json_is_not_sent(page: Chrome) -> None:
    before = part(page, "answer").text
    fill(page, "schema", '{"type": ')
    part(page, "send").click()
    assert part(page, "schema-fault").text.startswith("Not JSON: ")
    assert part(page, "schema").get_attribute("aria-invalid") == "true"
    assert part(page, "answer").text == before
    fill(page, "schema", "{}")
    assert part(page, "schema-fault").text == ""
    assert part(page, "schema").get_attribute("aria-invalid") == "false"


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        ("reject", "INVALID_ROW: the fake was told to reject it"),
        ("raise", "unexpected error while evaluating"),
    ],
)
def test_errors_of_a_row_and_of_a_call(page: Chrome, prompt: str, said: str) -> None:
    fill(page, "prompt", prompt)
    part(page, "send").click()
    wait_for(lambda: said in part(page, "answer-fault").text, "the error is shown")
    assert part(page, "send").is_enabled()


def test_nothing_is_wrong_in_the_browsers_log(server: LiveEndpoint, page: Chrome) -> None:
    """But for the answers that were errors on purpose; other tests share the browser."""
    log = page.get_log("browser")  # type: ignore[no-untyped-call]
    faults = [entry["message"] for entry in log if entry["level"] == "SEVERE"]
    ours = [fault for fault in faults if fault.startswith(server.url)]
    assert any(" 401 " in fault for fault in ours), "the wrong token of the first test"
    assert [fault for fault in ours if " 401 " not in fault and " 400 " not in fault] == []
