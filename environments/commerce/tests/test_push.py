"""Push messages: the law of the task, messages that no template writes, gates, cheats, and the
pairs' customers."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from environments.commerce.tests.conftest import OPTIONS
from plumbline.api import HOSTILE
from plumbline.errors import DataError, RecipeError
from plumbline.storage import read_jsonl, write_jsonl
from plumbline.tasks import open_task, silent
from plumbline_commerce.build import SPLITS, _record
from plumbline_commerce.database.catalogue import CATEGORIES
from plumbline_commerce.database.people import MEN, WOMEN
from plumbline_commerce.job import Shop
from plumbline_commerce.options import COUNTS, CommerceOptions
from plumbline_commerce.push import pairs as made
from plumbline_commerce.push.job import Push
from plumbline_commerce.push.rubric import (
    FAILED,
    GATES,
    LONG,
    RUBRIC,
    SHORT,
    PushPhrases,
    claims_of,
    facts_of,
    judge,
    lexicon,
    numbers_of,
    situations,
    words,
)
from tests.work import most_work

WRITTEN = yaml.safe_load(Path(__file__).with_name("push_messages.yaml").read_text(encoding="utf-8"))
LATE = {
    "name": "Camila",
    "product": "cafeteira",
    "situation": "late_arrived",
    "told": "pedido entregue com atraso: 4 dias",
    "offers": [],
    "titled": False,
}
OFFERED = {**LATE, "offers": ["10% de desconto com o cupom VOLTA10", "frete grátis até domingo"]}
GOOD = "Camila, sua cafeteira chegou! Desculpe a demora e aproveite cada café."


@pytest.fixture(scope="module")
def shop(commerce_folder) -> Shop:
    options = CommerceOptions(**OPTIONS, job="push", push=120)
    return Shop(commerce_folder / "commerce.db", commerce_folder, options, silent)


@pytest.fixture(scope="module")
def push(shop, tmp_path_factory):
    """The task on rows of the small shop, its other jobs left out."""
    folder = tmp_path_factory.mktemp("push")
    for split, pairs in made.pairs(shop).items():
        write_jsonl(folder / f"{split}.jsonl", [_record("push", pair) for pair in pairs])
    return open_task("commerce", {"data": str(folder), "job": "push"}, folder)


def total(text, reference=LATE, reading="lenient"):
    return judge(reference, text, reading)[1].total


def parts(text, reference=LATE):
    return judge(reference, text, "lenient")[1].parts


def failed(text, reference=LATE):
    return {gate for gate in GATES if not parts(text, reference)[gate]}


def test_every_skeleton_is_right_for_every_product_and_enough_fit():
    """Of all skeletons, products, names and offers a sample, every skeleton in it."""
    rng = np.random.default_rng(0)
    nouns = list({noun.word: noun for category in CATEGORIES for noun in category.nouns}.values())[
        ::2
    ]
    names = [*WOMEN, *MEN]
    tried = Counter()
    for situation in situations().values():
        assert len(situation.plain) >= 8
        assert len(situation.offer) >= (8 if situation.offered else 0)
        for position, noun in enumerate(nouns):
            offers = made.draw_offers(rng) if situation.offered and position % 2 else []
            name, days = (
                ("Rosângela", "12 dias")
                if position % 3
                else (names[rng.integers(len(names))], "1 dia")
            )
            told = situation.told[position % len(situation.told)].format(
                days=days, complaint="reclamou do atraso"
            )
            reference = {
                **LATE,
                "name": name,
                "product": noun.word,
                "situation": situation.name,
                "told": told,
            }
            reference["offers"] = [offer for offer, _ in offers]
            slots = {"name": name, "days": days, **made.agree_words(noun)}
            said = [{"offer": form} for _, forms in offers for form in forms] or [{}]
            fitting = [
                (skeleton, text)
                for skeleton in (situation.offer if offers else situation.plain)
                for offer in said
                if SHORT <= len(text := skeleton.format_map({**slots, **offer})) <= LONG
            ]
            assert len(fitting) >= 4
            for index in {position % len(fitting), int(rng.integers(len(fitting)))}:
                skeleton, text = fitting[index]
                tried[skeleton] += 1
                assert total(text, reference, "strict") == 1.0, text
    assert len(tried) == sum(
        len(situation.plain) + len(situation.offer) for situation in situations().values()
    )


@pytest.mark.parametrize(
    "group", WRITTEN, ids=lambda group: f"{group['prompt']['situation']}-{group['prompt']['name']}"
)
def test_messages_as_people_write_them_earn_what_they_are_worth(group):
    reference = {**group["prompt"], "titled": False}
    for line in group["messages"]:
        bound, text = line.split(" ", 1)
        earned = total(text, reference)
        if int(bound) > 0:
            assert earned >= int(bound) / 10 - 1e-9, text
        else:
            assert earned <= -int(bound) / 10 + 1e-9, text


def test_there_are_enough_of_them_for_every_situation():
    texts = {line.split(" ", 1)[1] for group in WRITTEN for line in group["messages"]}
    assert len(texts) >= 180
    assert {group["prompt"]["situation"] for group in WRITTEN} == set(situations())


@pytest.mark.parametrize(
    ("text", "gate"),
    [
        (GOOD + " " + "Conte para a gente como ficou o primeiro café da manhã.", "limit"),
        ("", "limit"),
        ("Camila, your cafeteira has arrived! Sorry for the delay, enjoy it.", "portuguese"),
        ("Camila, tu cafeteira ya llegó. Perdón por la demora, disfruta el café.", "portuguese"),
        ("Camila chegou atraso desculpe cafeteira aproveite conte veja", "portuguese"),
        (GOOD.replace("Camila", "[nome]"), "filled"),
        (GOOD.replace("Camila", "{{nome}}"), "filled"),
        (GOOD.replace("sua cafeteira", "<produto>"), "filled"),
        (GOOD.replace("Camila", "Prezado cliente"), "filled"),
        *((f"{GOOD} Use {code}.", "honest") for code in ("VOLTA10", "o cupom VOLTE")),
        *(
            (f"{GOOD} {more}", "honest")
            for more in ("Ganhe desconto!", "Frete grátis!", "É um brinde nosso.")
        ),
        *(
            (f"{GOOD} {more}", "honest")
            for more in ("Por R$ 89,90.", "Só hoje mesmo!", "Em 24h.", "Foram 5 dias.")
        ),
        *(
            (f"{GOOD} {more}", "honest")
            for more in ("Em dois dias vem mais.", "É garantido!", "Veja em www.loja.com")
        ),
        ("- Camila, sua cafeteira chegou!\n- Desculpe a demora.\n- Aproveite!", "single"),
        (f"{GOOD} ou: Camila, aproveite!", "single"),
        (GOOD.upper(), "calm"),
        (GOOD + " ☕🎉💛", "calm"),
    ],
)
def test_a_failed_gate_leaves_a_tenth(text, gate):
    assert gate in failed(text)
    assert total(text) <= FAILED
    assert failed(GOOD) == set()
    assert total(GOOD) == 1.0


def test_what_the_prompt_says_may_be_said():
    assert (
        failed("Camila, foram 4 dias de atraso. Sua cafeteira chegou: aproveite, e nos desculpe!")
        == set()
    )
    offer = (
        "Camila, sua cafeteira chegou, e o atraso é nosso: aproveite 10% de desconto no cupom "
        "VOLTA10."
    )
    assert total(offer, OFFERED) == 1.0
    assert failed(offer) == {"honest"}
    assert failed(offer.replace("10%", "20%"), OFFERED) == {"honest"}
    assert failed(offer.replace("10%", "R$ 10"), OFFERED) == {"honest"}
    assert failed(offer.replace("VOLTA10", "VOLTA20"), OFFERED) == {"honest"}
    assert (
        failed(
            "Camila, sua cafeteira chegou. Desculpe a demora: frete grátis até domingo!", OFFERED
        )
        == set()
    )
    assert failed(
        "Camila, sua cafeteira chegou. Desculpe a demora: cápsulas grátis até domingo!", OFFERED
    ) == {"honest"}
    assert failed(
        "Camila, sua cafeteira chegou. Desculpe a demora: frete grátis até sábado!", OFFERED
    ) == {"honest"}


def test_an_offer_pays_where_there_is_one_and_half_of_it_half():
    assert parts(GOOD)["offer"] is None
    assert parts(GOOD, OFFERED)["offer"] == 0
    assert (
        parts("Camila, sua cafeteira chegou. Desculpe o atraso: use VOLTA10!", OFFERED)["offer"]
        == 0.5
    )
    assert (
        parts("Camila, sua cafeteira chegou. Desculpe o atraso: use 10% de desconto!", OFFERED)[
            "offer"
        ]
        == 0.5
    )
    assert (
        parts("Camila, chegou! Desculpe o atraso: frete grátis até domingo, aproveite!", OFFERED)[
            "offer"
        ]
        == 1
    )


@pytest.mark.parametrize(
    ("text", "part", "value"),
    [
        ("Camila, sua cafeteira chegou! Espero que goste. Aproveite cada café.", "situation", 0.2),
        ("Camila, desculpe a demora com a cafeteira. Aproveite cada café.", "situation", 0.6),
        ("Camila, sua cafeteira não chegou. Desculpe a demora e aproveite.", "situation", 0.0),
        ("Chegou a sua cafeteira! Desculpe a demora e aproveite cada café.", "personal", 0.5),
        ("Camila, sua encomenda chegou! Desculpe a demora e aproveite.", "personal", 0.5),
        ("Camila, sua cafeteira chegou! Desculpe a demora na entrega.", "call", 0.0),
        ("Camila, sua cafeteira chegou! Desculpe a demora. Pague o pedido.", "call", 0.0),
        ("Camila, sua cafeteira chegou! Desculpe a demora. Abra, conte, aproveite.", "call", 0.5),
        ("Camila, sua cafeteira chegou! Desculpe a demora. Abra, veja, conte, use.", "call", 0.0),
        ("Camila, sua cafeteira chegou! Desculpe a demora. Não perca: aproveite.", "own", 0.5),
        ("Camila, sua cafeteira chegou! Desculpe a demora e", "written", 0.5),
        ("Camila, chegou. Desculpe!", "band", 25 / SHORT),
    ],
)
def test_each_part_pays_for_its_own(text, part, value):
    assert parts(text)[part] == pytest.approx(value)
    assert parts(GOOD)[part] == 1


def test_copied_facts_say_nothing_of_the_situation():
    assert parts("Camila, cafeteira: pedido entregue com atraso: 4 dias.")["situation"] == 0
    assert parts("Camila, sua cafeteira foi entregue com atraso. Desculpe!")["situation"] == 1


def test_what_stands_around_costs_a_share_and_under_the_strict_reading_nearly_all():
    for text in (
        f'"{GOOD}"',
        f"Mensagem: {GOOD}",
        f"```\n{GOOD}\n```",
        f"Claro! Aqui está:\n{GOOD}",
    ):
        outcome, score = judge(LATE, text, "lenient")
        assert score.total == pytest.approx(0.9)
        assert score.readings["strict"] <= FAILED
        assert total(text, reading="strict") == score.readings["strict"]
        assert outcome.how != "strict"
    assert judge(LATE, GOOD, "lenient")[0].how == "strict"
    assert judge(LATE, GOOD, "lenient")[1].readings == {"lenient": 1.0, "strict": 1.0}


def test_a_title_is_the_first_line_where_it_is_asked_for(shop):
    titled = {**LATE, "titled": True}
    assert total(f"Demorou, mas chegou\n{GOOD}", titled) == 1.0
    assert failed(GOOD, titled) == {"limit"}
    assert failed(f"{'Demorou muito, mas a sua cafeteira chegou, ' * 2}\n{GOOD}", titled) == {
        "limit"
    }
    assert total(f"Título: Demorou, mas chegou\nMensagem: {GOOD}", titled) == pytest.approx(0.9)
    options = shop.options.model_copy(update={"titles": True, "push": 40})
    for pairs in made.pairs(Shop(shop.database, shop.folder, options, silent)).values():
        for pair in pairs:
            assert pair.prompt[-1]["content"].endswith(made.texts()["titled"])
            assert total(pair.gold, pair.reference) == 1.0


@given(st.text())
@settings(max_examples=150, deadline=None)
def test_any_text_is_scored(text):
    for titled in (False, True):
        assert 0 <= total(text, {**OFFERED, "titled": titled}) <= 1


def test_hostile_texts_are_judged_in_time(push):
    rng = np.random.default_rng(0)
    example = push.examples("train")[0]
    pieces = [*HOSTILE, example.gold, "não " * 3000, "R$ " * 3000, "1." * 5000]
    pieces += ["``` " * 2000, "<think>" * 999, "é só " * 999]
    texts = [
        "".join(
            pieces[index][: int(rng.integers(1, 6000))]
            for index in rng.integers(len(pieces), size=3)
        )
        for _ in range(200)
    ]

    def scored(text: str) -> None:
        assert 0 <= push.judge(example, text)[1].total <= 1

    assert most_work(scored, texts) < 5


def test_the_language_gate_agrees_with_a_trained_detector():
    """On gold messages and hand-written ones; py3langid must say Portuguese or Galician where the
    gate opens."""
    from py3langid import langid

    detector = langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE)
    detector.set_languages(["pt", "es", "en", "gl", "fr", "it"])
    texts = [
        (line.split(" ", 1)[1], {**group["prompt"], "titled": False})
        for group in WRITTEN
        for line in group["messages"]
    ]
    foreign = [
        "Your order is on the way, thank you for shopping with us!",
        "Tu pedido está en camino, sigue la entrega aquí.",
        "Votre commande est en route, merci pour votre achat !",
        "Il tuo ordine è in arrivo, grazie per la fiducia!",
    ]
    texts += [(text, LATE) for text in foreign]
    agree = [
        ("portuguese" not in failed(text, reference))
        == (detector.classify(text)[0] in ("pt", "gl"))
        for text, reference in texts
    ]
    assert np.mean(agree) > 0.95
    assert all("portuguese" in failed(text) for text in foreign)


def test_pairs_share_no_customer_with_each_other_or_with_extraction(shop):
    pairs = [pair for split in made.pairs(shop).values() for pair in split]
    customers = {pair.about["customer_unique_id"] for pair in pairs}
    asked = {
        row["customer_unique_id"]
        for split in SPLITS
        for _, row in read_jsonl(shop.folder / f"{split}.jsonl")
    }
    assert len(customers) == len(pairs) == 120
    assert asked
    assert customers.isdisjoint(asked)
    kinds = Counter(pair.about["situation"] for pair in pairs)
    assert kinds.keys() == situations().keys()
    assert max(kinds.values()) - min(kinds.values()) <= 1
    assert len({pair.gold for pair in pairs}) > 110
    assert made.pairs(shop) == made.pairs(shop)


def test_without_extraction_its_default_customers_are_left_out(shop, monkeypatch):
    asked = []

    def chosen(of):
        asked.append(of.options.count("extraction"))
        return [{"customer_unique_id": "somebody"}]

    monkeypatch.setattr(made.extraction, "choose_reviews", chosen)
    alone = shop.options.model_copy(update={"extraction": None})
    assert made._taken_customers(Shop(shop.database, shop.folder, alone, silent)) == {"somebody"}
    assert made._taken_customers(shop) == {"somebody"}
    assert asked == [COUNTS["extraction"], OPTIONS["extraction"]]


def test_each_row_is_in_its_situation(shop):
    rows = {name: made._rows(shop, situation) for name, situation in situations().items()}
    assert all(row["delay_days"] > 0 for row in rows["late_arrived"])
    assert all(row["order_status"] in ("canceled", "unavailable") for row in rows["cancelled"])
    assert all(row["payment_type"] == "boleto" for row in rows["boleto"])
    assert all(row["sentiment"] == "negativo" for row in rows["negative_review"])
    assert all(row["sentiment"] == "positivo" for row in rows["positive_review"])
    assert all(row["delay_days"] == 0 and row["review_text"] is None for row in rows["ask_review"])
    assert all(rows.values())


def test_too_many_prompts_are_refused_with_the_number_there_is(shop):
    options = shop.options.model_copy(update={"push": 100_000})
    with pytest.raises(DataError, match=r"100000 .* the shop has 2"):
        made.pairs(Shop(shop.database, shop.folder, options, silent))
    with pytest.raises(RecipeError, match="titles"):
        open_task("commerce", {"titles": "always"}, shop.folder)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"name": ""}, "lacks name"),
        ({"product": None}, "lacks product"),
        ({"situation": "birthday"}, "'birthday'"),
        ({"offers": "10%"}, "lacks offers"),
        ({"titled": "yes"}, "lacks titled"),
    ],
)
def test_an_edited_row_says_what_is_wrong(change, says):
    Push.check(LATE)
    with pytest.raises(ValueError, match=says):
        Push.check({**LATE, **change})


def test_phrases():
    phrases = PushPhrases(
        {"late": ["atras*", "não chegou", "passou .. prazo"], "here": ["já? chegou/veio"]},
        negatable=True,
    )
    assert phrases.find_phrases(words("Atrasou!")) == {"late"}
    assert phrases.find_phrases(words("sem atraso")) == set()
    assert phrases.find_phrases(words("ainda não chegou")) == {"late"}
    assert phrases.find_phrases(words("Não. Chegou!")) == {"here"}
    assert phrases.find_phrases(words("passou muito do prazo")) == {"late"}
    assert phrases.find_phrases(words("passou. O prazo")) == set()
    with pytest.raises(ValueError, match="beginning"):
        PushPhrases({"x": ["de*"]}, negatable=False)


def test_the_tables_name_only_what_there_is():
    concepts = lexicon().concepts.find_phrases([])  # read at all
    assert concepts == set()
    table = yaml.safe_load(
        (Path(made.__file__).with_name("lexicon.yaml")).read_text(encoding="utf-8")
    )
    for situation in situations().values():
        named = situation.core.union(*situation.also, situation.contradicting)
        assert named <= table["concepts"].keys()
        assert set(situation.acts) <= table["acts"].keys()
        assert situation.core.isdisjoint(situation.contradicting)
        assert all(len(title.format(name="Rosângela")) <= 50 for title in situation.titles)
    texts = [text for group in table["concepts"].values() for text in group]
    assert all(isinstance(text, str) for text in texts)


def test_numbers_and_claims():
    assert numbers_of("R$ 1.234,50 e 10% ou 10 por cento, 3 dias") == {
        (1234.5, "R$"),
        (10.0, "%"),
        (3.0, "dia"),
    }
    assert claims_of(words("frete grátis")) == {"free shipping"}
    assert claims_of(words("frete grátis e caneca grátis")) == {"free shipping", "free"}
    facts = facts_of("Ana", "telefone sem fio", "boleto", ("10% com VOLTA10",))
    assert "volta10" in facts.codes
    assert "telefones" in facts.forms


def test_the_weights_are_those_of_the_documents():
    page = (Path(__file__).parents[3] / "docs" / "research" / "commerce.md").read_text(
        encoding="utf-8"
    )
    assert RUBRIC.identity in page
    assert [
        row for part in RUBRIC.parts if (row := f"| {part.name} | {part.weight:.2f} |") not in page
    ] == []
    assert [
        row
        for part in RUBRIC.form
        if (row := f"| *{part.name}* | -{part.weight:.2f} |") not in page
    ] == []
