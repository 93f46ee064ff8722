"""Names, places and words from which records are drawn; all of them ordinary and invented in their combination."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Words:
    """What one language draws from."""

    first: tuple[str, ...]
    last: tuple[str, ...]
    cities: tuple[str, ...]
    streets: tuple[str, ...]
    companies: tuple[str, ...]
    forms_of_company: tuple[str, ...]
    days: tuple[str, ...]


def _list(text: str) -> tuple[str, ...]:
    """The parts of "one|two words|three"."""
    return tuple(text.split("|"))


EN = Words(
    first=_list(
        "Ada|Bruno|Carmen|Dilys|Edwin|Farah|Gareth|Hana|Imogen|Jonas|Keira|Leopold|Maeve|Nadia|Oscar|Priya|Quentin|"
        "Rosa|Stefan|Talia|Umar|Vera|Winston|Xenia|Yusuf|Zelda|Anton|Bridget|Callum|Dorota"
    ),
    last=_list(
        "Abernathy|Bellweather|Castellan|Dunmore|Eastlake|Fairbairn|Greaves|Holloway|Inchbald|Jessop|Kavanagh|"
        "Lindqvist|Marchbank|Nakamura|O'Dowd|Pemberton|Quill|Rutherford|Sandoval|Thistlewood|Upcott|Varga|Whitlock|"
        "Yardley|Zeller|Achebe|Boateng|Czerny|D'Amico|Ellingham"
    ),
    cities=_list(
        "Alderport|Brackenfield|Corvale|Dunhaven|Eastmere|Fenwick|Glenrowan|Harrowby|Kingsbarrow|Larchmont|"
        "Marlow Bay|Nethercote"
    ),
    streets=_list("Alder|Birch|Chapel|Dock|Elm|Foundry|Grange|Harbour|Juniper|Lantern|Mill|Orchard|Quarry|Station"),
    companies=_list(
        "Northwind|Bluefin|Copperleaf|Larkspur|Ironbridge|Saltmarsh|Kestrel|Hollowell|Brightwater|Tamarind"
    ),
    forms_of_company=_list("Ltd|Partners|Works|Group|& Sons|Studio"),
    days=_list("Monday|Tuesday|Wednesday|Thursday|Friday"),
)
PT = Words(
    first=_list(
        "Adriana|Bento|Cecília|Davi|Elaine|Fábio|Gustavo|Helena|Inácio|Joana|Kátia|Lauro|Marlene|Nelson|Otávia|Paulo|"
        "Quitéria|Rogério|Sônia|Tadeu|Úrsula|Valter|Wanda|Yara|Zuleica|Anísio|Benedita|Caetano|Dalva|Emerson"
    ),
    last=_list(
        "Albuquerque|Barreto|Conceição|Drummond|Esteves|Fagundes|Guimarães|Hipólito|Ibiapina|Junqueira|Lacerda|"
        "Magalhães|Nogueira|Osório|Peixoto|Quintela|Rezende|Siqueira|Tavares|Uchôa|Vasconcelos|Xavier|Zanetti|"
        "Assunção|Bittencourt|Cordeiro|Damasceno|Evangelista|Falcão|Godoy"
    ),
    cities=_list(
        "Campo Verde|Lagoa Serena|Morro Alto|Nova Aurora|Pedra Branca|Porto Manso|Rio Claro do Sul|Santa Flora|"
        "São Bento Novo|Vila Esperança|Barra Funda do Norte|Serra Azul"
    ),
    streets=_list(
        "Rua das Acácias|Avenida Central|Rua do Mercado|Travessa da Fonte|Rua Sete de Abril|Avenida dos Ipês|"
        "Rua Boa Vista|Alameda Santos Reis|Rua da Estação|Rua Nova"
    ),
    companies=_list("Aroeira|Beira-Mar|Cajueiro|Dois Rios|Estrela Norte|Graúna|Jequitibá|Monte Belo|Pau-Brasil|Sabiá"),
    forms_of_company=_list("Ltda|S.A.|Comércio|Serviços|Indústria|e Filhos"),
    days=_list("segunda-feira|terça-feira|quarta-feira|quinta-feira|sexta-feira"),
)
WORDS: Mapping[str, Words] = {"en": EN, "pt": PT}
