"""Days, dates and amounts of money as people write them; whatever is written is true."""

from datetime import date

from plumbline_commerce.database.dice import Dice, Weighted, listed

MONTHS = listed("janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro", " ")
NUMBERS = listed("zero um dois três quatro cinco seis sete oito nove dez", " ")


def days_text(dice: Dice, days: int) -> str:
    """A number of days as people write it; always true ("mais de um mês" only of more than 30 days)."""
    loose = dice.random()
    if days == 1:
        return exact_days(dice, days)
    if loose < 0.25:
        exact = {7: "uma semana", 14: "duas semanas", 15: "quinze dias", 21: "três semanas", 30: "um mês"}
        if days in exact:
            return exact[days]
        for low, high, words in (
            (8, 13, "mais de uma semana"), (16, 20, "mais de duas semanas"), (22, 26, "mais de três semanas"),
            (27, 29, "quase um mês"), (31, 52, "mais de um mês"), (53, 59, "quase dois meses"),
            (61, 85, "mais de dois meses"), (91, 9999, "mais de três meses"),
        ):  # fmt: skip
            if low <= days <= high:
                return words
    return exact_days(dice, days)


def exact_days(dice: Dice, days: int) -> str:
    """A number of days, in figures or words."""
    if days == 1:
        return dice.pick(("1 dia", "um dia"))
    if 2 <= days <= 10 and dice.chance(0.15):
        return f"{NUMBERS[days]} dias"
    return f"{days} dias"


_DATE_FORMS = Weighted([("dia {dd}/{mm}", 5), ("dia {d} de {month}", 3), ("dia {d}/{m}", 2)])


def date_text(dice: Dice, day: date, *, day_only: bool) -> str:
    """A date as people write it, after "dia"; `day_only` allows to leave the month out."""
    form = "dia {d}" if day_only and dice.chance(0.3) else dice.weighted(_DATE_FORMS)
    return form.format(d=day.day, dd=f"{day.day:02d}", m=day.month, mm=f"{day.month:02d}", month=MONTHS[day.month - 1])


def money_text(dice: Dice, value: float | None) -> str:
    """An amount as people write it: "R$ 89,90", "89 reais e 90 centavos" only as a round figure."""
    assert value is not None, "a phrase names the price of an order without items"
    exact = f"{value:,.2f}".replace(",", " ").replace(".", ",").replace(" ", ".")
    whole = round(value)
    if value == whole and dice.chance(0.6):
        return dice.pick((f"{whole} reais", f"R$ {whole}", f"R${whole}"))
    if value % 1 >= 0.85 and value > 10 and dice.chance(0.4):
        return f"quase {whole} reais"
    return dice.pick((f"R$ {exact}", f"R${exact}", f"R$ {exact}", f"{exact} reais"))
