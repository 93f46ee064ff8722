"""From a table to a chat in Portuguese."""

from typing import Literal

from plumbline.records import Message
from plumbline_commerce.insights.table import Table, rendered

FULL = """\
Você é analista de uma loja on-line brasileira. Responda à pergunta do gestor em português, com 3 a 5 frases ou \
tópicos, usando apenas a tabela. Diga onde está o maior e o menor valor, compare as linhas com números (diferença, \
razão, percentual ou média) e escreva o nome da linha junto de cada número. Termine com uma recomendação que cite uma \
linha da tabela."""
SHORT = "Analise a tabela em 3 a 5 frases e recomende uma ação."


def messages(table: Table, title: str, question: str, instructions: Literal["full", "short"]) -> list[Message]:
    """The prompt: what to do, the table under its title, the question."""
    return [
        {"role": "system", "content": FULL if instructions == "full" else SHORT},
        {"role": "user", "content": f"{title}\n{rendered(table)}\nPergunta: {question}"},
    ]
