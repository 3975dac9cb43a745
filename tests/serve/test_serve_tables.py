"""A server of runs that read tables: a question and its table in, the answer and the program out; on the page too."""

import pytest

from asked import HEADER, ROWS
from asked_runs import asker
from served_pages import Served, answered, open_page, problem  # noqa: F401 - pytest finds the fixture here
from server_samples import client_of, refused, some_runs
from sightline.explain.explanation import Explanation
from sightline.serve import Limits

pytestmark = pytest.mark.unchecked_shapes

TABLE = {"header": list(HEADER), "rows": [list(row) for row in ROWS]}
SMALL = {"header": ["Year", "Gold"], "rows": [["1994", "11"], ["1998", "12"]]}
QUESTION = "in which year did Norway win the most gold?"
LIMITS = Limits(table_cells=60, characters=200)


@pytest.fixture(scope="module")
def runs():
    return {"programmer": asker(), "frozen": some_runs()["frozen"]}


@pytest.fixture(scope="module")
def client(runs):
    with client_of(runs, limits=LIMITS) as client:
        yield client


def test_answers_are_those_of_predict(client, runs):
    asked = {"question": QUESTION, "table": TABLE}
    found = client.post("/predict", json={"questions": [asked, {**asked, "table": SMALL}]}).json()
    assert found["run"] == "programmer"
    expected = runs["programmer"].predict([(QUESTION, TABLE), (QUESTION, SMALL)])
    assert [tuple(one["answers"]) for one in found["predictions"]] == [one.answers for one in expected]


def test_an_explanation_has_the_table_and_the_program(client, runs):
    found = client.post("/explain", json={"question": QUESTION, "table": TABLE}).json()
    explanation = Explanation.from_json(found)
    assert explanation.table.header == HEADER
    assert explanation.table.rows == ROWS
    expected = runs["programmer"].explain({"question": QUESTION, "table": TABLE}, measure=False)
    assert [one.sentence for one in explanation.table.passes] == [one.sentence for one in expected.table.passes]
    assert explanation.output == expected.output


def test_many_rows_and_many_questions_are_read(runs):
    rows = [[str(row), "x"] for row in range(3000)]
    with client_of({"programmer": runs["programmer"]}) as client:
        body = {"question": QUESTION, "table": {"header": ["a", "b"], "rows": rows}}
        assert len(client.post("/explain", json=body).json()["table"]["rows"]) == 3000
        found = client.post("/predict", json={"questions": [{"question": QUESTION, "table": SMALL}] * 60})
        assert len(found.json()["predictions"]) == 60
        wrong = {"question": QUESTION, "table": {"header": ["a"], "rows": [[1]] * 100_000}}
        refused(client.post("/explain", json=wrong), 422, "each cell of a table is a string")


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"question": QUESTION}, 422, "question and table"),
        ({"text": QUESTION}, 422, "leave text out"),
        ({"question": QUESTION, "table": "/etc/passwd"}, 422, "table"),
        ({"question": QUESTION, "table": {"header": HEADER, "rows": [[1]]}}, 422, "string"),
        ({"question": QUESTION, "table": {"header": [], "rows": []}}, 422, "header"),
        ({"question": QUESTION, "table": {**TABLE, "name": "x"}}, 422, "name"),
        ({"question": QUESTION, "table": {"header": ["a"], "rows": [["b"]] * 60}}, 413, "61 cells"),
        ({"question": QUESTION, "table": {"header": ["a"], "rows": [["b" * 201]]}}, 422, "200"),
        ({"question": QUESTION, "table": TABLE, "beam": 3}, 422, "beam"),
        ({"run": "frozen", "question": QUESTION, "table": TABLE}, 422, "leave"),
        ({"run": "frozen", "text": "abc", "table": TABLE}, 422, "leave table out"),
    ],
)
def test_what_does_not_fit_is_refused(client, body, status, words):
    refused(client.post("/explain", json=body), status, words)


def test_texts_are_read_beside_tables(client):
    assert client.post("/predict", json={"run": "frozen", "texts": ["abc"]}).status_code == 200
    about = {one["name"]: one for one in client.get("/health").json()["runs"]}
    assert about["programmer"]["tables"]
    assert about["programmer"]["texts"] == ["question"]
    assert not about["frozen"]["tables"]
    schema = client.get("/openapi.json").json()["components"]["schemas"]
    assert schema["PredictRequest"]["example"]["questions"][0]["table"]["header"]


def test_short_rows_are_filled(client):
    table = {"header": ["a", "b"], "rows": [["1"], ["2", "3", "4"]]}
    found = client.post("/explain", json={"question": QUESTION, "table": table}).json()["table"]
    assert found["rows"] == [["1", "", ""], ["2", "3", "4"]]


# --- The page.


@pytest.fixture(scope="module")
def served(runs):
    made = Served({"programmer": runs["programmer"], "frozen": runs["frozen"]}, limits=LIMITS)
    yield made
    made.stop()


def paste(page, text):
    page.wait_for_selector("html[data-open]")
    page.locator("textarea.cells").fill(text)


def pasted(rows, delimiter="\t"):
    return "\n".join(delimiter.join(row) for row in rows)


def test_paste_ask_and_step(served, open_page, runs):
    page = open_page(served.address)
    paste(page, pasted([HEADER, *ROWS]))
    assert "7 rows, 6 columns: Year, Nation" in page.locator(".ask [role=status]").inner_text()
    page.get_by_label("Question").fill(QUESTION)
    page.keyboard.press("Control+Enter")
    answered(page)
    expected = runs["programmer"].explain({"question": QUESTION, "table": TABLE}, measure=False)
    assert page.locator(".fact dd").all_inner_texts() == [QUESTION, expected.output]
    for number, one in enumerate(expected.table.passes):
        selected = [page.locator(".asked tbody tr").nth(row).get_attribute("class") for row in range(len(ROWS))]
        assert [place for place, name in enumerate(selected) if name == "selected"] == list(one.selected)
        assert f"Pass {number + 1} of 4" in page.locator(".asked > .sentence").inner_text()
        if number < 3:
            page.get_by_role("button", name="Next").click()


def test_what_is_pasted_is_read_as_it_is_written(served, open_page):
    page = open_page(served.address)
    paste(page, 'a;b\n"x;""y""\nz";=cmd()\n\n1;2')
    page.get_by_label("Question").fill("how many?")
    page.keyboard.press("Control+Enter")
    answered(page)
    cells = page.locator(".asked tbody td bdi").all_inner_texts()
    assert cells == ['x;"y"␊z', "=cmd()", "1", "2"]


def test_tables_that_are_too_large_and_other_runs(served, open_page):
    page = open_page(served.address)
    paste(page, pasted([["a"], *[["1"]] * 80], ","))
    page.get_by_label("Question").fill("how many?")
    page.get_by_role("button", name="Explain").click()
    assert "81 cells, and this server takes 60" in problem(page)
    page.get_by_label("Run", exact=True).select_option("frozen")
    assert not page.locator("textarea.cells").is_visible()
    page.get_by_label("Text", exact=True).fill("abc")
    page.keyboard.press("Control+Enter")
    answered(page)
    assert page.locator(".asked").count() == 0


def test_axe_finds_nothing_on_the_page_of_a_table(served, open_page):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = open_page(served.address, bypass_csp=True)
    paste(page, pasted([HEADER, *ROWS]))
    page.get_by_label("Question").fill(QUESTION)
    page.keyboard.press("Control+Enter")
    answered(page)
    page.wait_for_timeout(250)
    found = axe.Axe().run(page).response["violations"]
    assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []
